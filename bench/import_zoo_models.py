"""import_zoo_models.py - the models of import_zoo.py: functions that return (module, inputs)."""

import functools
import inspect

CASES, FIELD, GROUPS = {}, [], {}


def case(name, field=False):
    def add(build):
        CASES[name] = build
        if field:
            FIELD.append(name)
        return build
    return add


def add(name, build, field=False):
    case(name, field)(build)


# ---- torchvision ----

def vision(name, size=64, batch=4, family="models", **more):
    import torch
    import torchvision
    if not name.startswith(("vit", "swin", "maxvit", "deeplab", "fcn", "lraspp")):
        more.setdefault("num_classes", 10)
    if family == "segmentation":
        more.update(weights=None, weights_backbone=None, num_classes=5)
        model = getattr(torchvision.models.segmentation, name)(**more)
    else:
        more.setdefault("num_classes", 10)
        model = getattr(torchvision.models, name)(weights=None, **more)
    if name.startswith(("vgg", "alexnet")):
        small(model)
    name = next(iter(inspect.signature(model.forward).parameters))
    return model, {name: torch.randn(batch, 3, size, size)}


def small(model):
    """The same layers with fewer weights in the large linear ones."""
    from torch import nn
    linear = [k for k, m in enumerate(model.classifier) if isinstance(m, nn.Linear)]
    width = model.classifier[linear[0]].in_features
    for k in linear:
        out = 10 if k == linear[-1] else 64
        model.classifier[k] = nn.Linear(width, out)
        width = out


for _name in ("alexnet", "densenet121", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small",
              "regnet_x_400mf", "regnet_y_400mf", "resnet18", "resnet50", "resnext50_32x4d",
              "wide_resnet50_2", "shufflenet_v2_x0_5", "squeezenet1_0", "vgg11", "vgg11_bn",
              "vit_b_32", "convnext_tiny", "efficientnet_b0", "efficientnet_v2_s", "swin_t",
              "swin_v2_t"):
    add(_name, functools.partial(vision, _name, **({"image_size": 64} if _name == "vit_b_32" else
                                                   {})), True)


def with_heads(name, size):
    """In training the heads on the way are outputs too, in a class that cannot be stored."""
    import torch
    model, inputs = vision(name, size, 2, init_weights=False, transform_input=False)
    kind = type(model)

    def forward(self, x):
        out = kind.forward(self, x)
        return out if isinstance(out, torch.Tensor) else torch.cat(
            [t for t in out if t is not None], 1)

    model.__class__ = type(kind.__name__, (kind,), {"forward": forward})
    return model, inputs


add("googlenet", lambda: with_heads("googlenet", 96), True)
add("inception_v3", lambda: with_heads("inception_v3", 299), True)


@case("maxvit", True)
def maxvit():
    import torch
    from torchvision.models.maxvit import MaxVit
    return MaxVit((64, 64), 16, 4, [16, 32], [1, 2], 8, 0.2, num_classes=10), {
        "x": torch.randn(4, 3, 64, 64)}


for _name in ("deeplabv3_resnet50", "lraspp_mobilenet_v3_large", "fcn_resnet50"):
    add(_name, functools.partial(vision, _name, family="segmentation", batch=2), True)

add("fcn_aux", lambda: vision("fcn_resnet50", family="segmentation", batch=2, aux_loss=True))
add("deeplab_aux", lambda: vision("deeplabv3_mobilenet_v3_large", family="segmentation", batch=2,
                                  aux_loss=True))


@case("fpn_backbone")
def fpn_backbone():
    import torch
    from torchvision.models import resnet18
    from torchvision.models.detection.backbone_utils import BackboneWithFPN
    body = resnet18(weights=None)
    names = {"layer%d" % i: str(i - 1) for i in (1, 2, 3, 4)}
    return BackboneWithFPN(body, names, [64, 128, 256, 512], 32), {"x": torch.randn(2, 3, 64, 64)}


@case("retinanet_head")
def retinanet_head():
    import torch
    from torch import nn
    from torchvision.models.detection.retinanet import RetinaNetHead

    class Head(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = RetinaNetHead(16, 3, 4)

        def forward(self, a, b):
            return self.head([a, b])

    return Head(), {"a": torch.randn(2, 16, 8, 8), "b": torch.randn(2, 16, 4, 4)}


@case("ssd_backbone")
def ssd_backbone():
    import torch
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large
    model = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=3)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone, self.head = model.backbone, model.head

        def forward(self, x):
            return self.head(list(self.backbone(x).values()))

    return Net(), {"x": torch.randn(2, 3, 128, 128)}


def video(name):
    import torch
    import torchvision
    model = getattr(torchvision.models.video, name)(weights=None, num_classes=5)
    return model, {"x": torch.randn(2, 3, 4, 32, 32)}


for _name in ("r3d_18", "mc3_18", "r2plus1d_18"):
    add(_name, functools.partial(video, _name))


@case("s3d")
def s3d():
    import torch
    import torchvision
    return torchvision.models.video.s3d(weights=None, num_classes=5), {
        "x": torch.randn(2, 3, 16, 224, 224)}


@case("mvit_v2")
def mvit():
    import torch
    from torchvision.models.video.mvit import MSBlockConfig, MViT
    blocks = [MSBlockConfig(1, 16, 16, [3, 3, 3], [], [3, 3, 3], [1, 2, 2]),
              MSBlockConfig(2, 16, 32, [3, 3, 3], [1, 2, 2], [3, 3, 3], [1, 1, 1])]
    return MViT((32, 32), 4, blocks, residual_pool=True, residual_with_cls_embed=False,
                rel_pos_embed=True, proj_after_attn=True, num_classes=5), {
        "x": torch.randn(2, 3, 4, 32, 32)}


# ---- transformers ----

NO_DROPOUT = ("hidden_dropout_prob", "attention_probs_dropout_prob", "attention_dropout",
              "hidden_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout",
              "activation_dropout", "classifier_dropout", "summary_first_dropout", "dropout_rate",
              "drop_path_rate", "attn_dropout", "resid_dropout", "embed_dropout", "drop_path",
              "embedding_dropout", "mlp_dropout", "classifier_dropout_prob", "path_dropout",
              "ff_dropout", "positional_dropout", "attention_dropout_prob", "feat_proj_dropout",
              "final_dropout", "layerdrop", "encoder_layerdrop", "decoder_layerdrop",
              "conformer_conv_dropout", "head_dropout", "emb_pdrop", "pooler_dropout",
              "embd_dropout", "attention_dropout_rate", "drop_rate", "seq_classif_dropout",
              "qa_dropout", "attn_dropout_rate", "projection_dropout")


def config_of(kind, **more):
    import transformers
    config = getattr(transformers, kind + "Config")(**more)
    for part in (config, *[getattr(config, n) for n in ("text_config", "vision_config",
                                                        "encoder", "decoder")
                           if hasattr(getattr(config, n, None), "to_dict")]):
        for name in NO_DROPOUT:
            if isinstance(getattr(part, name, None), float):
                setattr(part, name, 0.0)
        part.use_cache = False
        part.return_dict = True
    return config


def wrap(model, names, pick=None, **fixed):
    """The model with inputs of these names; its outputs as a tuple, or only some of them."""
    import torch

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def run(self, given):
            out = self.model(**given, **fixed)
            return tuple(out[p] for p in pick) if pick else out

    arguments = ", ".join(names)
    code = "def forward(self, %s):\n    return self.run({%s})" % (
        arguments, ", ".join("'%s': %s" % (n, n) for n in names))
    scope = {}
    exec(code, scope)  # a signature with these names
    Wrapped.forward = scope["forward"]
    return Wrapped()


def language(kind, head="ForCausalLM", pick=("logits",), vocab=97, length=12, batch=3, mask=False,
             fixed=None, **more):
    import torch
    import transformers
    config = config_of(kind, vocab_size=vocab, **more)
    model = getattr(transformers, kind + head)(config)
    inputs = {"input_ids": torch.randint(3, vocab, (batch, length))}
    if mask:
        inputs["attention_mask"] = torch.ones(batch, length, dtype=torch.int64)
        inputs["attention_mask"][1, length // 2:] = 0
    return wrap(model, list(inputs), pick, **(fixed or {})), inputs


LLAMA = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)
BERT = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=64)


def text(name, kind, *args, field=False, **more):
    add(name, functools.partial(language, kind, *args, **more), field)


text("llama", "Llama", field=True, **LLAMA)
text("llama3", "Llama", field=True, rope_parameters={
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 32}, tie_word_embeddings=True,
    **LLAMA)
text("qwen2", "Qwen2", field=True, **LLAMA)
text("qwen3", "Qwen3", field=True, head_dim=16, **LLAMA)
text("mistral", "Mistral", field=True, sliding_window=4, **LLAMA)
text("gemma", "Gemma", field=True, head_dim=16, **LLAMA)
text("gemma2", "Gemma2", field=True, head_dim=16, sliding_window=4, **LLAMA)


@case("gemma3", True)
def gemma3():
    import torch
    import transformers
    config = config_of("Gemma3Text", vocab_size=97, head_dim=16, sliding_window=4, **LLAMA)
    return wrap(transformers.Gemma3ForCausalLM(config), ["input_ids"], ("logits",)), {
        "input_ids": torch.randint(3, 97, (3, 12))}


text("phi3", "Phi3", field=True, pad_token_id=0, bos_token_id=1, eos_token_id=2, **LLAMA)
text("olmo2", "Olmo2", field=True, **LLAMA)
text("gpt2", "GPT2", "LMHeadModel", field=True, n_embd=32, n_layer=2, n_head=4, n_positions=64)
text("gpt_neox", "GPTNeoX", field=True, **BERT)
text("mixtral", "Mixtral", field=True, num_local_experts=4, num_experts_per_tok=2, **LLAMA)
text("qwen3_moe", "Qwen3Moe", field=True, num_experts=4, num_experts_per_tok=2, head_dim=16,
     moe_intermediate_size=24, **LLAMA)
text("bert", "Bert", "ForSequenceClassification", field=True, mask=True, **BERT)
text("distilbert", "DistilBert", "ForSequenceClassification", field=True, mask=True, dim=32,
     hidden_dim=48, n_layers=2, n_heads=4, max_position_embeddings=64)
text("modernbert", "ModernBert", "ForMaskedLM", field=True, mask=True, local_attention=8,
     pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2, **BERT)
text("roberta", "Roberta", "ForMaskedLM", field=True, **BERT)


def images(kind, head="ForImageClassification", size=32, batch=3, channels=3, pick=("logits",),
             names=("pixel_values",), **more):
    import torch
    import transformers
    config = config_of(kind, **more)
    model = getattr(transformers, kind + head)(config)
    return wrap(model, list(names), pick), {names[0]: torch.randn(batch, channels, size, size)}


VIT = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
           image_size=32, patch_size=8)


def image(name, kind, *args, field=False, **more):
    add(name, functools.partial(images, kind, *args, **more), field)


image("hf_convnext", "ConvNext", field=True, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1],
        size=64)
image("hf_resnet", "ResNet", field=True, hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1],
        embedding_size=8, size=64)
image("hf_vit", "ViT", field=True, **VIT)
image("dinov2", "Dinov2", field=True, hidden_size=32, num_hidden_layers=2,
        num_attention_heads=4, image_size=32, patch_size=8)
image("segformer", "Segformer", "ForSemanticSegmentation", field=True, size=64, batch=2,
        num_encoder_blocks=4, depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32],
        num_attention_heads=[1, 2, 4, 8], decoder_hidden_size=16)
image("hf_swin", "Swin", field=True, image_size=32, patch_size=2, embed_dim=16, depths=[2, 2],
        num_heads=[2, 4], window_size=4)


def towers(kind, field_text, field_vision):
    import torch
    import transformers
    config = config_of(kind, text_config=field_text, vision_config=field_vision)
    model = getattr(transformers, kind + "Model")(config)
    inputs = {"input_ids": torch.randint(3, 96, (3, 12)),
              "pixel_values": torch.randn(3, 3, 32, 32)}
    return wrap(model, list(inputs), ("logits_per_image", "text_embeds", "image_embeds")), inputs


SMALL_TEXT = dict(vocab_size=97, eos_token_id=96, **{
    k: v for k, v in BERT.items() if k != "max_position_embeddings"}, max_position_embeddings=16)
add("clip", lambda: towers("CLIP", dict(SMALL_TEXT), dict(VIT)), True)
add("siglip", lambda: towers("Siglip", dict(SMALL_TEXT), dict(VIT)), True)


@case("whisper", True)
def whisper():
    import torch
    import transformers
    config = config_of("Whisper", vocab_size=97, d_model=32, encoder_layers=2, decoder_layers=2,
                       encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
                       decoder_ffn_dim=48, num_mel_bins=16, max_source_positions=20,
                       max_target_positions=16, pad_token_id=0, bos_token_id=1, eos_token_id=2,
                       decoder_start_token_id=1)
    inputs = {"input_features": torch.randn(2, 16, 40),
              "decoder_input_ids": torch.randint(3, 97, (2, 8))}
    return wrap(transformers.WhisperForConditionalGeneration(config), list(inputs),
                ("logits",)), inputs


@case("t5", True)
def t5():
    import torch
    import transformers
    config = config_of("T5", vocab_size=97, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4)
    inputs = {"input_ids": torch.randint(3, 97, (2, 10)),
              "decoder_input_ids": torch.randint(3, 97, (2, 8))}
    return wrap(transformers.T5ForConditionalGeneration(config), list(inputs), ("logits",)), inputs


@case("patchtst", True)
def patchtst():
    import torch
    import transformers
    config = config_of("PatchTST", num_input_channels=3, context_length=32, patch_length=8,
                       patch_stride=8, prediction_length=8, d_model=16, num_hidden_layers=2,
                       num_attention_heads=2, ffn_dim=24)
    return wrap(transformers.PatchTSTForPrediction(config), ["past_values"],
                ("prediction_outputs",)), {"past_values": torch.randn(3, 32, 3)}


# ---- further architectures of transformers ----

text("albert", "Albert", "ForMaskedLM", mask=True, embedding_size=16, **BERT)
text("deberta", "Deberta", "ForMaskedLM", **BERT)
text("deberta_rel", "Deberta", "ForMaskedLM", relative_attention=True, pos_att_type=["c2p", "p2c"],
     max_relative_positions=16, **BERT)
text("deberta_v2", "DebertaV2", "ForSequenceClassification", relative_attention=True,
     pos_att_type=["c2p", "p2c"], position_buckets=8, **BERT)
text("electra", "Electra", "ForPreTraining", mask=True, embedding_size=16, **BERT)
text("xlm_roberta", "XLMRoberta", "ForTokenClassification", mask=True, **BERT)
text("camembert", "Camembert", "ForQuestionAnswering", pick=("start_logits", "end_logits"), **BERT)
text("mpnet", "MPNet", "ForMaskedLM", mask=True, **BERT)
text("squeezebert", "SqueezeBert", "ForSequenceClassification", **BERT)
text("convbert", "ConvBert", "ForSequenceClassification", **BERT)
text("funnel", "Funnel", "ForMaskedLM", d_model=32, n_head=4, d_head=8, d_inner=48,
     block_sizes=[1, 1], num_decoder_layers=1)
text("fnet", "FNet", "ForMaskedLM", **{k: v for k, v in BERT.items()
                                       if k != "num_attention_heads"})
text("mobilebert", "MobileBert", "ForMaskedLM", embedding_size=16, intra_bottleneck_size=16,
     true_hidden_size=16, **BERT)
text("roformer", "RoFormer", "ForMaskedLM", mask=True, embedding_size=32, **BERT)
text("nystromformer", "Nystromformer", "ForMaskedLM", segment_means_seq_len=12, num_landmarks=4,
     **BERT)
text("longformer", "Longformer", "ForMaskedLM", length=16, attention_window=8, **BERT)
text("big_bird", "BigBird", "ForMaskedLM", attention_type="original_full", **BERT)
text("ernie", "Ernie", "ForMaskedLM", mask=True, **BERT)
text("nomic_like_esm", "Esm", "ForMaskedLM", mask=True, position_embedding_type="rotary",
     pad_token_id=0, mask_token_id=2, **BERT)
text("opt", "OPT", hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4,
     max_position_embeddings=64, word_embed_proj_dim=16)
text("gpt_neo", "GPTNeo", hidden_size=32, num_layers=2, num_heads=4, window_size=4,
     attention_types=[[["global", "local"], 1]], max_position_embeddings=64)
text("gptj", "GPTJ", n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_positions=64)
text("codegen", "CodeGen", n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_positions=64)
text("gpt_bigcode", "GPTBigCode", n_embd=32, n_layer=2, n_head=4, n_positions=64)
text("bloom", "Bloom", hidden_size=32, n_layer=2, n_head=4)
text("falcon", "Falcon", hidden_size=32, num_hidden_layers=2, num_attention_heads=4)
text("falcon_alibi", "Falcon", hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
     alibi=True, parallel_attn=False, bias=True)
text("mpt", "Mpt", d_model=32, n_heads=4, n_layers=2, max_seq_len=64)
text("phi", "Phi", **LLAMA)
text("stablelm", "StableLm", **LLAMA)
text("starcoder2", "Starcoder2", **LLAMA)
text("cohere", "Cohere", pad_token_id=0, bos_token_id=1, eos_token_id=2, **LLAMA)
text("cohere2", "Cohere2", pad_token_id=0, bos_token_id=1, eos_token_id=2, sliding_window=4,
     **LLAMA)
text("olmo", "Olmo", **LLAMA)
text("olmoe", "Olmoe", num_experts=4, num_experts_per_tok=2, **LLAMA)
text("qwen2_moe", "Qwen2Moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
     shared_expert_intermediate_size=24, **LLAMA)
text("granite", "Granite", **LLAMA)
text("granitemoe", "GraniteMoe", num_local_experts=4, num_experts_per_tok=2, **LLAMA)
text("glm", "Glm", pad_token_id=0, eos_token_id=2, head_dim=8, **LLAMA)
text("glm4", "Glm4", pad_token_id=0, eos_token_id=2, head_dim=8, **LLAMA)
text("helium", "Helium", head_dim=8, **LLAMA)
text("smollm3", "SmolLM3", pad_token_id=0, bos_token_id=1, eos_token_id=2, **LLAMA)
text("ernie4_5", "Ernie4_5", pad_token_id=0, head_dim=8, **LLAMA)
text("exaone4", "Exaone4", sliding_window=4, **LLAMA)
text("nemotron", "Nemotron", pad_token_id=0, bos_token_id=1, eos_token_id=2, **LLAMA)
text("persimmon", "Persimmon", pad_token_id=0, **{k: v for k, v in LLAMA.items()
                                                  if k != "num_key_value_heads"})
text("gpt_oss", "GptOss", num_local_experts=4, num_experts_per_tok=2, head_dim=8,
     sliding_window=4, **LLAMA)
text("deepseek_v3", "DeepseekV3", q_lora_rank=16, kv_lora_rank=8, qk_rope_head_dim=4,
     qk_nope_head_dim=8, v_head_dim=8, n_routed_experts=4, num_experts_per_tok=2, n_group=2,
     topk_group=1, first_k_dense_replace=1, moe_intermediate_size=24,
     **dict(LLAMA, num_key_value_heads=4))
text("mamba", "Mamba", hidden_size=16, state_size=4, num_hidden_layers=2, length=6)
text("mamba2", "Mamba2", hidden_size=16, state_size=4, num_hidden_layers=1, num_heads=4,
     head_dim=8, n_groups=1, chunk_size=4, length=8)
text("recurrent_gemma", "RecurrentGemma", hidden_size=32, intermediate_size=48,
     num_hidden_layers=3, num_attention_heads=4, attention_window_size=8, lru_width=32, length=6)
text("rwkv", "Rwkv", hidden_size=16, num_hidden_layers=2, attention_hidden_size=16, length=6)
text("xglm", "XGLM", d_model=32, ffn_dim=48, num_layers=2, attention_heads=4)
text("biogpt", "BioGpt", **BERT)
text("openai_gpt", "OpenAIGPT", "LMHeadModel", n_embd=32, n_layer=2, n_head=4, n_positions=64)
text("ctrl", "CTRL", "LMHeadModel", n_embd=32, n_layer=2, n_head=4, dff=48, n_positions=64)
text("xlnet", "XLNet", "LMHeadModel", d_model=32, n_layer=2, n_head=4, d_inner=48)
text("xlm", "XLM", "WithLMHeadModel", emb_dim=32, n_layers=2, n_heads=4)
text("perceiver", "Perceiver", "ForMaskedLM", pick=("logits",), d_model=16, d_latents=16,
     num_latents=8, num_self_attends_per_block=2, num_self_attention_heads=2,
     num_cross_attention_heads=2, max_position_embeddings=12)


def seq2seq(kind, head="ForConditionalGeneration", **more):
    import torch
    import transformers
    config = config_of(kind, vocab_size=97, **more)
    inputs = {"input_ids": torch.randint(3, 97, (2, 10)),
              "decoder_input_ids": torch.randint(3, 97, (2, 8))}
    return wrap(getattr(transformers, kind + head)(config), list(inputs), ("logits",)), inputs


SEQ = dict(d_model=32, encoder_layers=1, decoder_layers=2, encoder_attention_heads=4,
           decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48,
           max_position_embeddings=64)
for _name, _kind, _head in (("bart", "Bart", "ForConditionalGeneration"),
                            ("mbart", "MBart", "ForConditionalGeneration"),
                            ("pegasus", "Pegasus", "ForConditionalGeneration"),
                            ("marian", "Marian", "MTModel"),
                            ("m2m_100", "M2M100", "ForConditionalGeneration"),
                            ("blenderbot_small", "BlenderbotSmall", "ForConditionalGeneration")):
    add(_name, functools.partial(seq2seq, _kind, _head, **SEQ))
add("mt5", lambda: seq2seq("MT5", d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4))
add("longt5", lambda: seq2seq("LongT5", d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4,
                              local_radius=3))

image("beit", "Beit", use_relative_position_bias=True, **VIT)
image("data2vec_vision", "Data2VecVision", **VIT)
image("deit", "DeiT", **VIT)
image("convnextv2", "ConvNextV2", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1], size=64)
image("regnet", "RegNet", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1], embedding_size=8,
        groups_width=4, size=64)
image("mobilevit", "MobileViT", image_size=64, size=64, hidden_sizes=[16, 24, 32],
        num_attention_heads=2, neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 32])
image("mobilevitv2", "MobileViTV2", image_size=64, size=64)
image("poolformer", "PoolFormer", hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], size=64)
image("swinv2", "Swinv2", image_size=32, patch_size=2, embed_dim=16, depths=[2, 2],
        num_heads=[2, 4], window_size=4)
image("pvt", "Pvt", size=64, image_size=64, depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32],
        num_attention_heads=[1, 2, 4, 8])
image("pvt_v2", "PvtV2", size=64, image_size=64, depths=[1, 1, 1, 1],
        hidden_sizes=[8, 16, 24, 32], num_attention_heads=[1, 2, 4, 8])
image("cvt", "Cvt", size=64, embed_dim=[8, 16, 24], depth=[1, 1, 2], num_heads=[1, 2, 3])
image("focalnet", "FocalNet", size=32, image_size=32, embed_dim=16, depths=[1, 1],
        focal_levels=[1, 1], focal_windows=[3, 3], hidden_sizes=[16, 32])
image("efficientnet_hf", "EfficientNet", size=64, width_coefficient=0.25,
        depth_coefficient=0.5)
image("mobilenet_v1", "MobileNetV1", size=64, depth_multiplier=0.25)
image("bit", "Bit", size=64, hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1],
        embedding_size=16, num_groups=4)
image("dinat_free_hiera", "Hiera", size=32, image_size=[32, 32], patch_size=[3, 3],
        patch_stride=[4, 4], patch_padding=[1, 1], embed_dim=16, depths=[1, 1],
        num_heads=[1, 2], query_stride=[2, 2], num_query_pool=1, masked_unit_size=[4, 4])
image("swiftformer", "SwiftFormer", size=64, image_size=64, embed_dims=[8, 16, 24, 32],
        depths=[1, 1, 1, 1])
image("vit_msn", "ViTMSN", **VIT)
image("dinov2_reg", "Dinov2WithRegisters", hidden_size=32, num_hidden_layers=2,
        num_attention_heads=4, image_size=32, patch_size=8)
image("ijepa", "IJepa", **VIT)
image("upernet_free_dpt", "DPT", "ForDepthEstimation", pick=("predicted_depth",),
        backbone_out_indices=[0, 1, 1, 1], neck_hidden_sizes=[8, 8, 8, 8], fusion_hidden_size=8,
        is_hybrid=False, reassemble_factors=[4, 2, 1, 0.5], **VIT)


@case("vit_mae")
def vit_mae():
    import torch
    import transformers
    config = config_of("ViTMAE", decoder_hidden_size=16, decoder_num_hidden_layers=1,
                       decoder_num_attention_heads=2, decoder_intermediate_size=24, **VIT)
    inputs = {"pixel_values": torch.randn(2, 3, 32, 32), "noise": torch.rand(2, 16)}
    return wrap(transformers.ViTMAEForPreTraining(config), list(inputs), ("logits",)), inputs


def detr_config(kind, stages=("stage4",), **more):
    import transformers
    backbone = transformers.ResNetConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1],
                                         embedding_size=8, out_features=list(stages))
    return config_of(kind, use_timm_backbone=False, use_pretrained_backbone=False,
                     backbone=None, backbone_config=backbone, d_model=32, encoder_layers=1,
                     decoder_layers=1, encoder_attention_heads=4, decoder_attention_heads=4,
                     encoder_ffn_dim=48, decoder_ffn_dim=48, num_queries=5, num_labels=3, **more)


@case("detr")
def detr():
    import torch
    import transformers
    return wrap(transformers.DetrForObjectDetection(detr_config("Detr")), ["pixel_values"],
                ("logits", "pred_boxes")), {"pixel_values": torch.randn(2, 3, 64, 64)}


@case("yolos")
def yolos():
    import torch
    import transformers
    config = config_of("Yolos", num_detection_tokens=4, num_labels=3,
                       use_mid_position_embeddings=False, **dict(VIT, image_size=[32, 32]))
    return wrap(transformers.YolosForObjectDetection(config), ["pixel_values"],
                ("logits", "pred_boxes")), {"pixel_values": torch.randn(2, 3, 32, 32)}


def waves(kind, head="ForCTC", **more):
    import torch
    import transformers
    config = config_of(kind, vocab_size=20, hidden_size=32, intermediate_size=48,
                       num_hidden_layers=2, num_attention_heads=4, conv_dim=(16, 16),
                       conv_kernel=(10, 3), conv_stride=(5, 2), num_conv_pos_embeddings=8,
                       num_conv_pos_embedding_groups=4, apply_spec_augment=False,
                       mask_time_prob=0.0, **more)
    return wrap(getattr(transformers, kind + head)(config), ["input_values"], ("logits",)), {
        "input_values": torch.randn(2, 400)}


add("wav2vec2", lambda: waves("Wav2Vec2"))
add("wav2vec2_stable", lambda: waves("Wav2Vec2", feat_extract_norm="layer",
                                     do_stable_layer_norm=True))
add("hubert", lambda: waves("Hubert"))
add("wavlm", lambda: waves("WavLM"))
add("data2vec_audio", lambda: waves("Data2VecAudio"))


@case("ast")
def ast():
    import torch
    import transformers
    config = config_of("AST", max_length=32, num_mel_bins=16, frequency_stride=8, time_stride=8,
                       **{k: v for k, v in VIT.items() if k != "image_size"})
    return wrap(transformers.ASTForAudioClassification(config), ["input_values"],
                ("logits",)), {"input_values": torch.randn(2, 32, 16)}


@case("whisper_encoder")
def whisper_encoder():
    import torch
    import transformers
    config = config_of("Whisper", d_model=32, encoder_layers=2, encoder_attention_heads=4,
                       encoder_ffn_dim=48, num_mel_bins=16, max_source_positions=20)
    return wrap(transformers.WhisperForAudioClassification(config), ["input_features"],
                ("logits",)), {"input_features": torch.randn(2, 16, 40)}


@case("time_series")
def time_series():
    import torch
    import transformers
    config = config_of("PatchTSMixer", context_length=32, patch_length=8, num_input_channels=3,
                       patch_stride=8, d_model=16, num_layers=2, prediction_length=8)
    return wrap(transformers.PatchTSMixerForPrediction(config), ["past_values"],
                ("prediction_outputs",)), {"past_values": torch.randn(3, 32, 3)}


@case("decision_transformer")
def decision_transformer():
    import torch
    import transformers
    config = config_of("DecisionTransformer", state_dim=5, act_dim=3, hidden_size=32, n_layer=2,
                       n_head=4, n_positions=64, max_ep_len=20)
    model = transformers.DecisionTransformerModel(config)
    inputs = {"states": torch.randn(2, 4, 5), "actions": torch.randn(2, 4, 3),
              "rewards": torch.randn(2, 4, 1), "returns_to_go": torch.randn(2, 4, 1),
              "timesteps": torch.randint(0, 20, (2, 4)),
              "attention_mask": torch.ones(2, 4)}
    return wrap(model, list(inputs), ("state_preds", "action_preds", "return_preds")), inputs


@case("vilt")
def vilt():
    import torch
    import transformers
    config = config_of("Vilt", vocab_size=97, max_image_length=-1, num_labels=4, **dict(
        VIT, max_position_embeddings=16))
    inputs = {"input_ids": torch.randint(3, 97, (2, 8)),
              "pixel_values": torch.randn(2, 3, 32, 32)}
    return wrap(transformers.ViltForQuestionAnswering(config), list(inputs), ("logits",)), inputs


@case("blip_vision")
def blip_vision():
    import torch
    import transformers
    config = config_of("BlipVision", **VIT)
    return wrap(transformers.BlipVisionModel(config), ["pixel_values"],
                ("last_hidden_state", "pooler_output")), {
        "pixel_values": torch.randn(2, 3, 32, 32)}


@case("sam_vision")
def sam_vision():
    import torch
    import transformers
    config = config_of("SamVision", output_channels=8, image_size=64, patch_size=8, hidden_size=32,
                       num_hidden_layers=2, num_attention_heads=4, mlp_dim=48, window_size=3,
                       global_attn_indexes=[1])
    return wrap(transformers.SamVisionModel(config), ["pixel_values"],
                ("last_hidden_state",)), {"pixel_values": torch.randn(2, 3, 64, 64)}


@case("dac_encoder")
def dac_encoder():
    import torch
    import transformers
    config = config_of("Dac", encoder_hidden_size=8, downsampling_ratios=[2, 2],
                       decoder_hidden_size=16, upsampling_ratios=[2, 2], n_codebooks=1)
    model = transformers.DacModel(config)
    return model.encoder, {"hidden_state": torch.randn(2, 1, 64)}


@case("univnet_free_hifigan")
def hifigan():
    import torch
    import transformers
    config = config_of("FastSpeech2ConformerHifiGan", model_in_dim=8, upsample_initial_channel=16,
                       upsample_rates=[2, 2], upsample_kernel_sizes=[4, 4],
                       resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1, 3]])
    return wrap(transformers.FastSpeech2ConformerHifiGan(config), ["spectrogram"]), {
        "spectrogram": torch.randn(2, 6, 8)}


# ---- timm ----

def timm_model(name, size=64, **more):
    import timm
    import torch
    model = timm.create_model(name, pretrained=False, num_classes=10, **more)
    return model, {"x": torch.randn(2, 3, size, size)}


for _name, _size, _more in (
        ("mixer_s32_224", 64, {"img_size": 64}), ("resmlp_12_224", 64, {"img_size": 64}),
        ("gmlp_ti16_224", 64, {"img_size": 64}), ("ghostnet_050", 64, {}),
        ("repvgg_a0", 64, {}), ("levit_128s", 224, {}), ("coatnet_pico_rw_224", 64,
                                                        {"img_size": 64}),
        ("mobileone_s0", 64, {}), ("nfnet_l0", 64, {}), ("resnest14d", 64, {}),
        ("tnt_s_patch16_224", 224, {}), ("eva02_tiny_patch14_224", 56, {"img_size": 56}),
        ("xcit_nano_12_p16_224", 64, {}), ("hardcorenas_a", 64, {}), ("edgenext_xx_small", 64, {}),
        ("rexnet_100", 64, {}), ("crossvit_tiny_240", 240, {}), ("fastvit_t8", 64, {}),
        ("efficientvit_b0", 64, {}), ("efficientformerv2_s0", 224, {}), ("caformer_s18", 64, {}),
        ("dpn68", 64, {}), ("dla34", 64, {}), ("hrnet_w18_small", 64, {}), ("sknet_free_skresnet18",
                                                                         64, {}),
        ("vovnet39a", 64, {}), ("tresnet_free_selecsls42b", 64, {}), ("mobilenetv4_conv_small",
                                                                      64, {}),
        ("visformer_tiny", 224, {}), ("twins_pcpvt_small", 64, {}), ("gcresnet33ts", 64, {}),
        ("lambda_resnet26rpt_256", 64, {}), ("halonet26t", 256, {}), ("botnet26t_256", 64,
                                                                     {"img_size": 64}),
        ("beit_base_patch16_224", 32, {"img_size": 32, "depth": 2, "embed_dim": 48,
                                       "num_heads": 4})):
    add("timm_" + _name.split("_free_")[-1], functools.partial(
        timm_model, _name.split("_free_")[-1], _size, **_more))


# ---- hand-written modules ----

def _odd():
    import import_zoo_odd
    for name, build in import_zoo_odd.CASES.items():
        add(name, build)


_odd()


# ---- further groups ----

def _more():
    import import_zoo_families
    import import_zoo_ideas
    import import_zoo_ideas_more  # noqa: F401
    import import_zoo_kinds
    import import_zoo_latest
    import import_zoo_more
    import import_zoo_recent
    import import_zoo_written
    import import_zoo_written_more  # noqa: F401
    for groups in (import_zoo_more.GROUPS, import_zoo_families.GROUPS, import_zoo_recent.GROUPS,
                   import_zoo_written.GROUPS, import_zoo_ideas.GROUPS, import_zoo_latest.GROUPS,
                   import_zoo_kinds.GROUPS):
        for group, cases in groups.items():
            GROUPS[group] = list(cases)
            for name, build in cases.items():
                add(name, build)


_more()
