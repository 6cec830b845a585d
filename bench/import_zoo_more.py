"""import_zoo_more.py - further models of import_zoo.py, in groups: timm, text, vision, audio,
forecast, recommend, graph.

Each entry is a function that returns (module, inputs).  Models of packages that are not installed
are absent."""

import functools

import torch
import torch.nn.functional as F
from import_zoo_models import (BERT, LLAMA, SEQ, SMALL_TEXT, VIT, config_of, detr_config, language,
                               images, seq2seq, timm_model, towers, waves, wrap)
from torch import nn

GROUPS = {}


def add(group, name, build):
    GROUPS.setdefault(group, {})[name] = build


def case(group, name=None):
    def register(build):
        add(group, name or build.__name__, build)
        return build
    return register


# ---- timm: small images, no pretrained weights ----

SIZED = {"img_size": 64}
for _name, _size, _more in (
        ("efficientnetv2_rw_t", 64, {}), ("convmixer_768_32", 32, {}),
        ("maxvit_rmlp_pico_rw_256", 64, SIZED), ("maxxvit_rmlp_nano_rw_256", 64, SIZED),
        ("inception_v4", 96, {}), ("inception_resnet_v2", 96, {}), ("nf_resnet26", 64, {}),
        ("nf_regnet_b0", 64, {}), ("cait_xxs24_224", 64, {**SIZED, "depth": 3}),
        ("deit3_small_patch16_224", 64, {**SIZED, "depth": 3}),
        ("deit_tiny_distilled_patch16_224", 64, {**SIZED, "depth": 3}),
        ("volo_d1_224", 64, SIZED),
        ("poolformerv2_s12", 64, {"layers": [1, 1, 1, 1]}),
        ("davit_tiny", 64, {"depths": [1, 1, 1, 1]}), ("twins_svt_small", 64,
                                                      {"depths": [1, 1, 2, 1]}),
        ("pvt_v2_b0", 64, {}), ("hiera_tiny_224", 64, {**SIZED, "stages": [1, 1, 1, 1]}),
        ("tiny_vit_5m_224", 64, {**SIZED, "depths": [1, 1, 1, 1]}),
        ("vitamin_small_224", 64, SIZED), ("rdnet_tiny", 64, {}), ("starnet_s050", 64, {}),
        ("mambaout_femto", 64, {}), ("csatv2", 64, {}), ("nextvit_small", 64, {}),
        ("repvit_m0_9", 64, {}), ("swiftformer_xs", 64, {}), ("cs3darknet_s", 64, {}),
        ("cspresnet50", 64, {}), ("ese_vovnet19b_dw", 64, {}), ("focalnet_tiny_srf", 64, {}),
        ("gernet_s", 64, {}), ("ghostnetv2_100", 64, {}), ("ghostnetv3_050", 64, {}),
        ("hgnetv2_b0", 64, {}), ("inception_next_atto", 64, {}), ("lcnet_050", 64, {}),
        ("mixnet_s", 64, {}), ("mobilevit_xxs", 64, {}), ("mobilevitv2_050", 64, {}),
        ("pit_ti_224", 64, SIZED), ("pnasnet5large", 64, {}), ("res2net50_26w_4s", 64, {}),
        ("resnetv2_18", 64, {}), ("resnext26ts", 64, {}), ("seresnext26t_32x4d", 64, {}),
        ("swinv2_cr_tiny_224", 64, {**SIZED, "depths": [1, 1, 1, 1]}),
        ("tf_efficientnet_lite0", 64, {}), ("tf_mixnet_s", 64, {}),
        ("vit_relpos_small_patch16_224", 64, {**SIZED, "depth": 3}),
        ("vit_small_resnet26d_224", 64, {**SIZED, "depth": 3}), ("xception41", 64, {}),
        ("convit_tiny", 64, {**SIZED, "depth": 3, "local_up_to_layer": 2}),
        ("coat_lite_tiny", 64, {**SIZED, "serial_depths": [1, 1, 1, 1]}),
        ("bat_resnext26ts", 256, {}),
        ("sebotnet33ts_256", 64, SIZED), ("eca_halonext26ts", 256, {}),
        ("gcvit_xxtiny", 64, {**SIZED, "depths": [1, 1, 2, 1]}), ("efficientvit_m0", 64, SIZED),
        ("efficientformer_l1", 224, {}), ("fastvit_sa12", 64, {}), ("fasternet_t0", 64, {}),
        ("shvit_s1", 64, {}), ("sequencer2d_s", 64, {"layers": [1, 1, 1, 1]}),
        ("samvit_base_patch16", 64, {**SIZED, "depth": 3, "global_attn_indexes": [1]}),
        ("mvitv2_tiny", 64, SIZED),
        ("nest_tiny", 64, {**SIZED, "depths": [1, 1, 1]}),
        ("naflexvit_base_patch16_gap", 64, {"depth": 2}), ("resnet50_gn", 64, {}),
        ("resnetblur18", 64, {}), ("resnetaa50", 64, {}), ("tresnet_m", 64, {}),
        ("fbnetv3_b", 64, {}), ("convformer_s18", 64, {"depths": [1, 1, 1, 1]}),
        ("legacy_seresnet18", 64, {}), ("crossvit_9_240", 240, {}), ("flexivit_small", 64,
                                                                    {**SIZED, "depth": 3})):
    add("timm", "timm_" + _name, functools.partial(timm_model, _name, _size, **_more))


# ---- language models and encoders of transformers ----

def text(name, kind, *args, **more):
    add("text", name, functools.partial(language, kind, *args, **more))


MOE = dict(num_experts=4, num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)
MLA = dict(hidden_size=32, intermediate_size=48, moe_intermediate_size=24, num_hidden_layers=2,
           num_attention_heads=4, num_key_value_heads=4, n_routed_experts=4, n_group=1,
           topk_group=1, num_experts_per_tok=2, first_k_dense_replace=1, kv_lora_rank=8,
           q_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8,
           max_position_embeddings=64, n_shared_experts=1)
text("deepseek_v2", "DeepseekV2", **MLA)
text("deepseek_v3", "DeepseekV3", **MLA)
text("arcee", "Arcee", **LLAMA)
text("apertus", "Apertus", **LLAMA)
text("seed_oss", "SeedOss", head_dim=8, **LLAMA)
text("diffllama", "DiffLlama", **LLAMA)
text("doge", "Doge", **LLAMA)
text("olmo3", "Olmo3", sliding_window=4, **LLAMA)
text("gpt_oss", "GptOss", head_dim=8, sliding_window=4, num_local_experts=4, num_experts_per_tok=2,
     **LLAMA)
text("phimoe", "Phimoe", num_local_experts=4, num_experts_per_tok=2, **LLAMA)
text("minimax", "MiniMax", num_local_experts=4, num_experts_per_tok=2, head_dim=8, block_size=4,
     layer_types=["linear_attention", "full_attention"], **LLAMA)
text("qwen3_next", "Qwen3Next", head_dim=8, linear_num_value_heads=4, linear_num_key_heads=2,
     linear_key_head_dim=8, linear_value_head_dim=8, shared_expert_intermediate_size=24,
     layer_types=["linear_attention", "full_attention"], **MOE, **LLAMA)
text("mamba", "Mamba", hidden_size=16, num_hidden_layers=2, state_size=4, length=6)
text("mamba2", "Mamba2", hidden_size=16, num_hidden_layers=2, state_size=4, num_heads=4,
     head_dim=8, n_groups=1, chunk_size=4, length=8)
text("falcon_mamba", "FalconMamba", hidden_size=16, num_hidden_layers=2, state_size=4, length=6)
text("recurrent_gemma", "RecurrentGemma", lru_width=32, attention_window_size=8,
     block_types=["recurrent", "attention"], **LLAMA)
text("jamba", "Jamba", attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2,
     expert_layer_offset=1, num_experts=4, num_experts_per_tok=2, use_mamba_kernels=False,
     mamba_d_state=4, mamba_dt_rank=4, length=6, pad_token_id=0, **LLAMA)
text("persimmon", "Persimmon", **{k: v for k, v in LLAMA.items() if k != "num_key_value_heads"})
text("xmod", "Xmod", "ForMaskedLM", languages=["en_XX"], default_language="en_XX", **BERT)
text("mega_bert", "MegatronBert", "ForMaskedLM", mask=True, **BERT)
text("rembert", "RemBert", "ForMaskedLM", input_embedding_size=16, output_embedding_size=24,
     **BERT)
text("ibert", "IBert", "ForMaskedLM", **BERT)
text("roc_bert", "RoCBert", "ForMaskedLM", enable_pronunciation=False, enable_shape=False, **BERT)
text("roberta_prelayernorm", "RobertaPreLayerNorm", "ForMaskedLM", mask=True, **BERT)
text("xlm_roberta_xl", "XLMRobertaXL", "ForMaskedLM", **BERT)
text("flaubert", "Flaubert", "WithLMHeadModel", emb_dim=32, n_layers=2, n_heads=4)
text("yoso", "Yoso", "ForMaskedLM", use_expectation=True, **BERT)
text("mra", "Mra", "ForMaskedLM", **BERT)
text("canine", "Canine", "ForSequenceClassification", length=32, local_transformer_stride=8,
     downsampling_rate=4, num_hash_buckets=16, upsampling_kernel_size=4, **BERT)
text("nomic_bert", "NomicBert", "ForMaskedLM", mask=True, **BERT)
text("eurobert", "EuroBert", "ForMaskedLM", **LLAMA)
text("modernbert_decoder", "ModernBertDecoder", "ForCausalLM", local_attention=8, pad_token_id=0,
     bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2, **BERT)
text("bert_generation", "BertGeneration", "Decoder", is_decoder=True, **BERT)
text("imagegpt", "ImageGPT", "ForCausalImageModeling", n_embd=32, n_layer=2, n_head=4,
     n_positions=64)
text("xlstm", "xLSTM", hidden_size=32, num_hidden_layers=2, num_blocks=2, num_heads=4,
     chunkwise_kernel="chunkwise--native_autograd", sequence_kernel="native_sequence__native",
     step_kernel="native", chunk_size=4, length=8)
text("splinter", "Splinter", "ForQuestionAnswering", pick=("start_logits", "end_logits"), **BERT)

for _name, _kind in (("plbart", "PLBart"), ("bigbird_pegasus", "BigBirdPegasus"), ("led", "LED"),
                     ("blenderbot", "Blenderbot"), ("pegasus_x", "PegasusX"), ("mvp", "Mvp"),
                     ("nllb_moe", "NllbMoe"), ("prophetnet", "ProphetNet")):
    _more = {"prophetnet": dict(hidden_size=32, encoder_ffn_dim=48, decoder_ffn_dim=48,
                                num_encoder_layers=1, num_decoder_layers=1,
                                num_encoder_attention_heads=4, num_decoder_attention_heads=4),
             "bigbird_pegasus": dict(attention_type="original_full", **SEQ),
             "led": dict(attention_window=[4], max_encoder_position_embeddings=64,
                         max_decoder_position_embeddings=64,
                         **{k: v for k, v in SEQ.items() if k != "max_position_embeddings"}),
             "nllb_moe": dict(num_experts=4, expert_capacity=16, **SEQ),
             "pegasus_x": dict(block_size=4, num_global_tokens=2, **SEQ)}.get(_name, SEQ)
    add("text", _name, functools.partial(seq2seq, _kind, **_more))
add("text", "umt5", lambda: seq2seq("UMT5", d_model=32, d_kv=8, d_ff=48, num_layers=2,
                                    num_heads=4))
add("text", "switch_transformers", lambda: seq2seq(
    "SwitchTransformers", d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, num_experts=4,
    num_sparse_encoder_layers=1, num_sparse_decoder_layers=1))


@case("text")
def layoutlm():
    import transformers
    model = transformers.LayoutLMForTokenClassification(config_of(
        "LayoutLM", vocab_size=97, max_2d_position_embeddings=64, **BERT))
    corner = torch.randint(0, 30, (2, 8, 2))
    inputs = {"input_ids": torch.randint(3, 97, (2, 8)),
              "bbox": torch.cat([corner, corner + torch.randint(0, 30, (2, 8, 2))], -1)}
    return wrap(model, list(inputs), ("logits",)), inputs


# ---- vision and two towers ----

def image(name, kind, *args, **more):
    add("vision", name, functools.partial(images, kind, *args, **more))


image("dinov3_vit", "DINOv3ViT", "Model", pick=("last_hidden_state",), **VIT)
image("dinov3_convnext", "DINOv3ConvNext", "Model", pick=("pooler_output",), size=64,
        hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1])
image("hf_hgnet", "HGNetV2", size=64)
image("textnet", "TextNet", size=64)
image("vit_hybrid_free_glpn", "GLPN", "ForDepthEstimation", pick=("predicted_depth",), size=64,
        depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 24, 32], decoder_hidden_size=8,
        num_attention_heads=[1, 2, 4, 8])
image("swin2sr", "Swin2SR", "ForImageSuperResolution", pick=("reconstruction",), size=32,
        image_size=32, embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4)
image("vit_det", "VitDet", "Model", pick=("last_hidden_state",), window_size=2,
        window_block_indices=[0], **VIT)
image("superpoint_free_levit", "Levit", size=64, image_size=64, hidden_sizes=[16, 24, 32],
        num_attention_heads=[2, 3, 4], depths=[1, 1, 1], key_dim=[8, 8, 8])
image("mlcd", "MLCDVision", "Model", pick=("pooler_output",), **VIT)
image("seggpt_free_pixio", "Pixio", "Model", pick=("last_hidden_state",), **VIT)


@case("vision")
def timesformer():
    import transformers
    config = config_of("Timesformer", num_frames=2, **VIT)
    return wrap(transformers.TimesformerForVideoClassification(config), ["pixel_values"],
                ("logits",)), {"pixel_values": torch.randn(2, 2, 3, 32, 32)}


@case("vision")
def videomae():
    import transformers
    config = config_of("VideoMAE", num_frames=4, tubelet_size=2, **VIT)
    return wrap(transformers.VideoMAEForVideoClassification(config), ["pixel_values"],
                ("logits",)), {"pixel_values": torch.randn(2, 4, 3, 32, 32)}


@case("vision")
def vivit():
    import transformers
    config = config_of("Vivit", num_frames=4, tubelet_size=[2, 8, 8], **{
        k: v for k, v in VIT.items() if k != "patch_size"})
    return wrap(transformers.VivitForVideoClassification(config), ["pixel_values"],
                ("logits",)), {"pixel_values": torch.randn(2, 4, 3, 32, 32)}


for _name, _kind in (("align_free_altclip", "AltCLIP"), ("chinese_clip", "ChineseCLIP"),
                     ("siglip2_free_metaclip2", "MetaClip2"), ("aimv2", "Aimv2"),
                     ("groupvit", "GroupViT"), ("blip", "Blip")):
    add("vision", _name, functools.partial(towers, _kind, dict(SMALL_TEXT), dict(VIT)))


@case("vision")
def clipseg():
    import transformers
    config = config_of("CLIPSeg", text_config=dict(SMALL_TEXT), vision_config=dict(VIT),
                       extract_layers=[0, 1], reduce_dim=8, decoder_num_attention_heads=2,
                       decoder_intermediate_size=16)
    inputs = {"input_ids": torch.randint(3, 96, (2, 12)),
              "pixel_values": torch.randn(2, 3, 32, 32)}
    return wrap(transformers.CLIPSegForImageSegmentation(config), list(inputs), ("logits",)), inputs


@case("vision")
def conditional_detr():
    import transformers
    config = detr_config("ConditionalDetr")
    return wrap(transformers.ConditionalDetrForObjectDetection(config), ["pixel_values"],
                ("logits", "pred_boxes")), {"pixel_values": torch.randn(2, 3, 64, 64)}


@case("vision")
def deformable_detr():
    import transformers
    config = detr_config("DeformableDetr", ("stage2", "stage3", "stage4"), num_feature_levels=3)
    return wrap(transformers.DeformableDetrForObjectDetection(config), ["pixel_values"],
                ("logits", "pred_boxes")), {"pixel_values": torch.randn(2, 3, 64, 64)}


@case("vision")
def mask2former_free_maskformer_swin():
    import transformers
    config = config_of("MaskFormerSwin", image_size=32, patch_size=2, embed_dim=16, depths=[1, 1],
                       num_heads=[2, 4], window_size=4)
    return wrap(transformers.MaskFormerSwinModel(config), ["pixel_values"],
                ("last_hidden_state",)), {"pixel_values": torch.randn(2, 3, 32, 32)}


@case("vision")
def swin3d():
    from torchvision.models.video.swin_transformer import SwinTransformer3d
    model = SwinTransformer3d([2, 4, 4], 16, [1, 1], [2, 2], [4, 4, 4], num_classes=5)
    return model, {"x": torch.randn(2, 3, 4, 32, 32)}


def detector(name, size=96):
    import torchvision
    model = getattr(torchvision.models.detection, name)(weights=None, weights_backbone=None,
                                                       num_classes=3)

    class Detector(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def train(self, mode=True):
            return super().train(False)  # training needs targets: lists of boxes

        def forward(self, x):
            return [d["boxes"] for d in self.model(list(x))]

    return Detector().eval(), {"x": torch.rand(2, 3, size, size)}


for _name in ("fasterrcnn_mobilenet_v3_large_fpn", "retinanet_resnet50_fpn", "fcos_resnet50_fpn",
              "ssd300_vgg16"):  # their results depend on the data: refused or not exportable
    add("vision", "detector_" + _name.split("_")[0], functools.partial(detector, _name))


@case("vision")
def unet2d():
    """The blocks of a diffusion model's U-Net, by hand: time embedding, group norm, attention."""
    class Block(nn.Module):
        def __init__(self, n_in, n_out, n_time):
            super().__init__()
            self.n1, self.c1 = nn.GroupNorm(4, n_in), nn.Conv2d(n_in, n_out, 3, padding=1)
            self.time = nn.Linear(n_time, n_out)
            self.n2, self.c2 = nn.GroupNorm(4, n_out), nn.Conv2d(n_out, n_out, 3, padding=1)
            self.skip = nn.Conv2d(n_in, n_out, 1) if n_in != n_out else nn.Identity()

        def forward(self, x, t):
            h = self.c1(F.silu(self.n1(x))) + self.time(F.silu(t))[:, :, None, None]
            return self.skip(x) + self.c2(F.silu(self.n2(h)))

    class Attend(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.norm, self.qkv, self.out = nn.GroupNorm(4, n), nn.Conv1d(n, 3 * n, 1), nn.Conv1d(
                n, n, 1)

        def forward(self, x):
            b, c, h, w = x.shape
            q, k, v = self.qkv(self.norm(x).reshape(b, c, h * w)).chunk(3, 1)
            a = torch.einsum("bct,bcs->bts", q * c ** -0.25, k * c ** -0.25).softmax(-1)
            return x + self.out(torch.einsum("bts,bcs->bct", a, v)).reshape(b, c, h, w)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 32))
            self.first, self.down = nn.Conv2d(3, 16, 3, padding=1), Block(16, 16, 32)
            self.shrink, self.mid = nn.Conv2d(16, 32, 3, 2, 1), Block(32, 32, 32)
            self.attend, self.up = Attend(32), nn.Conv2d(32, 16, 3, padding=1)
            self.last, self.norm = Block(32, 16, 32), nn.GroupNorm(4, 16)
            self.out = nn.Conv2d(16, 3, 3, padding=1)

        def forward(self, x, t):
            rates = torch.exp(-torch.arange(8) * (9.2 / 8))
            angles = t[:, None].float() * rates
            time = self.time(torch.cat([angles.sin(), angles.cos()], -1))
            a = self.down(self.first(x), time)
            b = self.attend(self.mid(self.shrink(a), time))
            b = self.up(F.interpolate(b, scale_factor=2.0, mode="nearest"))
            return self.out(F.silu(self.norm(self.last(torch.cat([a, b], 1), time))))

    return Net(), {"x": torch.randn(2, 3, 16, 16), "t": torch.randint(0, 1000, (2,))}


# ---- audio ----

add("audio", "sew", lambda: waves("SEW", squeeze_factor=2))
add("audio", "unispeech", lambda: waves("UniSpeech"))
add("audio", "unispeech_sat", lambda: waves("UniSpeechSat"))
add("audio", "wav2vec2_conformer", lambda: waves("Wav2Vec2Conformer",
                                                 position_embeddings_type="rotary",
                                                 conv_depthwise_kernel_size=3))
add("audio", "wav2vec2_conformer_relative", lambda: waves(
    "Wav2Vec2Conformer", position_embeddings_type="relative", conv_depthwise_kernel_size=3))


@case("audio")
def wav2vec2_bert():
    import transformers
    config = config_of("Wav2Vec2Bert", vocab_size=20, hidden_size=32, intermediate_size=48,
                       num_hidden_layers=2, num_attention_heads=4, conv_depthwise_kernel_size=3,
                       feature_projection_input_dim=16, apply_spec_augment=False)
    return wrap(transformers.Wav2Vec2BertForCTC(config), ["input_features"], ("logits",)), {
        "input_features": torch.randn(2, 12, 16)}


@case("audio")
def speech2text():
    import transformers
    config = config_of("Speech2Text", vocab_size=97, input_feat_per_channel=16, conv_channels=16,
                       max_source_positions=64, max_target_positions=64, **{
                           k: v for k, v in SEQ.items() if k != "max_position_embeddings"})
    inputs = {"input_features": torch.randn(2, 24, 16),
              "decoder_input_ids": torch.randint(3, 97, (2, 8))}
    return wrap(transformers.Speech2TextForConditionalGeneration(config), list(inputs),
                ("logits",)), inputs


@case("audio")
def parakeet_encoder():
    import transformers
    config = config_of("ParakeetEncoder", hidden_size=32, num_hidden_layers=2,
                       num_attention_heads=4, intermediate_size=48, num_mel_bins=16,
                       conv_kernel_size=3, subsampling_conv_channels=8)
    return wrap(transformers.ParakeetEncoder(config), ["input_features"],
                ("last_hidden_state",)), {"input_features": torch.randn(2, 32, 16)}


@case("audio")
def encodec_encoder():
    import transformers
    model = transformers.EncodecModel(config_of("Encodec", num_filters=4, hidden_size=16,
                                                upsampling_ratios=[4, 2], num_lstm_layers=1))
    return model.encoder, {"hidden_states": torch.randn(2, 1, 128)}


@case("audio")
def vits_flow():
    import transformers
    config = config_of("Vits", vocab_size=38, hidden_size=16, num_hidden_layers=1, ffn_dim=24,
                       num_attention_heads=2, flow_size=16, spectrogram_bins=9,
                       upsample_initial_channel=16, posterior_encoder_num_wavenet_layers=2)
    return transformers.VitsModel(config).decoder, {"spectrogram": torch.randn(2, 16, 6)}


# ---- forecasting ----

@case("forecast")
def tcn():
    class Block(nn.Module):
        def __init__(self, n_in, n_out, dilation):
            super().__init__()
            norm = nn.utils.parametrizations.weight_norm
            self.c1 = norm(nn.Conv1d(n_in, n_out, 3, padding=2 * dilation, dilation=dilation))
            self.c2 = norm(nn.Conv1d(n_out, n_out, 3, padding=2 * dilation, dilation=dilation))
            self.skip, self.cut = nn.Conv1d(n_in, n_out, 1), 2 * dilation

        def forward(self, x):
            y = F.relu(self.c1(x)[..., :-self.cut])
            return F.relu(F.relu(self.c2(y)[..., :-self.cut]) + self.skip(x))

    return nn.Sequential(Block(3, 8, 1), Block(8, 8, 2), Block(8, 8, 4)), {
        "input": torch.randn(3, 3, 20)}


@case("forecast")
def deepar():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.lstm = nn.Embedding(7, 4), nn.LSTM(6, 12, 2, batch_first=True)
            self.mean, self.scale = nn.Linear(12, 1), nn.Linear(12, 1)

        def forward(self, series, item, covariates):
            level = 1 + series.abs().mean(1, keepdim=True)
            lagged = (series / level)[:, :-1, None]
            e = self.embed(item)[:, None].expand(-1, lagged.shape[1], -1)
            h, _ = self.lstm(torch.cat([lagged, covariates[:, 1:], e], -1))
            mean, scale = self.mean(h)[..., 0] * level, F.softplus(self.scale(h))[..., 0] * level
            target = series[:, 1:]
            return (-torch.distributions.Normal(mean, scale, validate_args=False)
                    .log_prob(target)).mean(1)

    return Net(), {"series": torch.randn(3, 10), "item": torch.randint(0, 7, (3,)),
                   "covariates": torch.randn(3, 10, 1)}


@case("forecast")
def student_t():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru, self.out = nn.GRU(2, 8, batch_first=True), nn.Linear(8, 3)

        def forward(self, x):
            df, loc, scale = self.out(self.gru(x)[0]).chunk(3, -1)
            return torch.distributions.StudentT(2 + F.softplus(df), loc, F.softplus(scale) + 1e-3,
                                                validate_args=False).log_prob(x[..., :1])

    return Net(), {"x": torch.randn(3, 7, 2)}


@case("forecast")
def negative_binomial():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.out = nn.Linear(4, 2)

        def forward(self, x, y):
            total, logits = self.out(x).chunk(2, -1)
            return torch.distributions.NegativeBinomial(
                F.softplus(total), logits=logits, validate_args=False).log_prob(y)

    return Net(), {"x": torch.randn(5, 4), "y": torch.randint(0, 9, (5, 1)).float()}


@case("forecast")
def nbeats():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU())
            self.theta = nn.Linear(16, 6)
            t = torch.arange(18) / 12
            self.register_buffer("basis", torch.stack([t ** i for i in range(3)]))

        def forward(self, x):
            a, b = self.theta(self.body(x)).chunk(2, -1)
            return a @ self.basis[:, :12], b @ self.basis[:, 12:]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(Block() for _ in range(3))

        def forward(self, x):
            total = 0
            for block in self.blocks:
                back, ahead = block(x)
                x, total = x - back, total + ahead
            return total

    return Net(), {"x": torch.randn(4, 12)}


@case("forecast")
def temporal_fusion():
    class Gate(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.a, self.b, self.c = nn.Linear(n, n), nn.Linear(n, n), nn.Linear(n, 2 * n)
            self.norm = nn.LayerNorm(n)

        def forward(self, x):
            return self.norm(x + F.glu(self.c(self.b(F.elu(self.a(x)))), -1))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.inputs = nn.ModuleList(nn.Linear(1, 8) for _ in range(3))
            self.choose, self.gate = nn.Linear(24, 3), Gate(8)
            self.lstm = nn.LSTM(8, 8, batch_first=True)
            self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
            self.out = nn.Linear(8, 3)

        def forward(self, x):
            parts = torch.stack([f(x[..., i:i + 1]) for i, f in enumerate(self.inputs)], -1)
            h = (parts * self.choose(parts.flatten(-2)).softmax(-1)[..., None, :]).sum(-1)
            h = self.gate(h + self.lstm(h)[0])
            mask = torch.triu(torch.ones(6, 6, dtype=torch.bool), 1)
            h = self.gate(h + self.attend(h, h, h, attn_mask=mask, need_weights=False)[0])
            q = self.out(h)
            loss = torch.stack([torch.maximum(p * (x[..., 0] - q[..., i]),
                                              (p - 1) * (x[..., 0] - q[..., i]))
                                for i, p in enumerate((0.1, 0.5, 0.9))])
            return loss.mean((0, 2))

    return Net(), {"x": torch.randn(3, 6, 3)}


for _name, _kind in (("autoformer", "Autoformer"), ("informer", "Informer"),
                     ("time_series_transformer", "TimeSeriesTransformer")):
    def _forecast(kind=_kind):
        import transformers
        config = config_of(kind, prediction_length=4, context_length=8, lags_sequence=[1, 2],
                           num_time_features=1, d_model=16, encoder_layers=1, decoder_layers=1,
                           encoder_attention_heads=2, decoder_attention_heads=2,
                           encoder_ffn_dim=24, decoder_ffn_dim=24, label_length=4,
                           moving_average=3)
        model = getattr(transformers, kind + "ForPrediction")(config)
        inputs = {"past_values": torch.randn(2, 10), "past_time_features": torch.randn(2, 10, 1),
                  "past_observed_mask": torch.ones(2, 10), "future_values": torch.randn(2, 4),
                  "future_time_features": torch.randn(2, 4, 1)}
        return wrap(model, list(inputs), ("loss",)), inputs
    add("forecast", _name, _forecast)


# ---- recommendation ----

@case("recommend")
def dlrm():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(nn.EmbeddingBag(n, 8, mode="sum") for n in (11, 7, 5))
            self.bottom = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8), nn.ReLU())
            self.top = nn.Sequential(nn.Linear(14, 16), nn.ReLU(), nn.Linear(16, 1))

        def forward(self, dense, ids):
            rows = [t(ids[:, i:i + 1]) for i, t in enumerate(self.tables)]
            all_rows = torch.stack([self.bottom(dense)] + rows, 1)
            pairs = torch.bmm(all_rows, all_rows.transpose(1, 2))
            i, j = torch.tril_indices(4, 4, -1)
            return self.top(torch.cat([all_rows[:, 0], pairs[:, i, j]], 1))

    return Net(), {"dense": torch.randn(6, 4), "ids": torch.randint(0, 5, (6, 3))}


@case("recommend")
def deepfm():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Embedding(30, 1), nn.Embedding(30, 6)
            self.deep = nn.Sequential(nn.Linear(18, 16), nn.BatchNorm1d(16), nn.ReLU(),
                                      nn.Linear(16, 1))
            self.register_buffer("start", torch.tensor([0, 10, 20]))

        def forward(self, ids):
            ids = ids + self.start
            e = self.second(ids)
            fm = 0.5 * (e.sum(1) ** 2 - (e ** 2).sum(1)).sum(1, keepdim=True)
            return torch.sigmoid(self.first(ids).sum(1) + fm + self.deep(e.flatten(1)))

    return Net(), {"ids": torch.randint(0, 10, (6, 3))}


@case("recommend")
def din():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.items = nn.Embedding(20, 8, padding_idx=0)
            self.score = nn.Sequential(nn.Linear(32, 8), nn.PReLU(), nn.Linear(8, 1))
            self.out = nn.Linear(16, 1)

        def forward(self, history, item):
            h, q = self.items(history), self.items(item)[:, None].expand(-1, 6, -1)
            s = self.score(torch.cat([h, q, h - q, h * q], -1))[..., 0]
            s = s.masked_fill(history == 0, -1e9).softmax(-1)
            return self.out(torch.cat([(s[..., None] * h).sum(1), q[:, 0]], -1))

    history = torch.randint(1, 20, (4, 6))
    history[1, 4:] = 0
    return Net(), {"history": history, "item": torch.randint(1, 20, (4,))}


@case("recommend")
def mmoe():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.experts = nn.Parameter(torch.randn(4, 8, 6))
            self.gates = nn.ModuleList(nn.Linear(8, 4) for _ in range(2))
            self.heads = nn.ModuleList(nn.Linear(6, 1) for _ in range(2))

        def forward(self, x):
            e = torch.einsum("bi,eio->beo", x, self.experts).relu()
            return torch.cat([h((g(x).softmax(-1)[..., None] * e).sum(1))
                              for g, h in zip(self.gates, self.heads)], 1)

    return Net(), {"x": torch.randn(5, 8)}


@case("recommend")
def cross_network():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

        def forward(self, x):
            y = x
            for layer in self.layers:
                y = x * layer(y) + y
            return y

    return Net(), {"x": torch.randn(5, 8)}


# ---- graph neural networks, by hand: dense adjacency, or edges of a fixed graph ----

@case("graph")
def gcn():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(5, 8), nn.Linear(8, 3)

        def forward(self, x, adjacency):
            a = adjacency + torch.eye(6)
            d = a.sum(-1).rsqrt()
            a = d[..., None] * a * d[..., None, :]
            return self.b(a @ F.relu(self.a(a @ x)))

    return Net(), {"x": torch.randn(2, 6, 5), "adjacency": (torch.rand(2, 6, 6) > 0.5).float()}


@case("graph")
def gat():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Linear(5, 8, bias=False)
            self.left, self.right = nn.Linear(8, 1), nn.Linear(8, 1)

        def forward(self, x, adjacency):
            h = self.w(x)
            e = F.leaky_relu(self.left(h) + self.right(h).transpose(1, 2), 0.2)
            return F.elu(e.masked_fill(adjacency == 0, float("-inf")).softmax(-1) @ h)

    a = (torch.rand(2, 6, 6) > 0.5).float() + torch.eye(6)
    return Net(), {"x": torch.randn(2, 6, 5), "adjacency": (a > 0).float()}


@case("graph")
def message_passing():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.message, self.update = nn.Linear(10, 8), nn.GRUCell(8, 5)
            self.register_buffer("source", torch.tensor([0, 1, 2, 3, 4, 5, 0, 2]))
            self.register_buffer("target", torch.tensor([1, 2, 3, 4, 5, 0, 3, 5]))

        def forward(self, x):
            n = x.shape[0]
            m = F.relu(self.message(torch.cat([x[:, self.source], x[:, self.target]], -1)))
            total = torch.zeros(n, 6, 8).index_add(1, self.target, m)
            return self.update(total.reshape(-1, 8), x.reshape(-1, 5)).reshape(n, 6, 5)

    return Net(), {"x": torch.randn(3, 6, 5)}


@case("graph")
def scatter_edges():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(5, 5)

        def forward(self, x, source, target):
            m = torch.gather(self.fc(x), 1, source[..., None].expand(-1, -1, 5))
            return torch.zeros_like(x).scatter_add(1, target[..., None].expand(-1, -1, 5), m)

    return Net(), {"x": torch.randn(2, 6, 5), "source": torch.randint(0, 6, (2, 9)),
                   "target": torch.randint(0, 6, (2, 9))}


@case("graph")
def graph_of_samples():
    """The nodes of one graph are the samples: edges connect them, so it trains as one shard."""
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(5, 4)
            self.register_buffer("edges", torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]]))

        def forward(self, x):
            h = self.fc(x)
            return torch.zeros_like(h).index_add(0, self.edges[1], h[self.edges[0]])

    return Net(), {"x": torch.randn(4, 5)}
