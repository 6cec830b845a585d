"""import_zoo_latest.py - models of transformers that the other files of import_zoo.py lack, most of
them new in version 5: the group latest."""

import torch
from import_zoo_group import Group
from import_zoo_models import BERT, LLAMA, VIT, config_of, images, language, waves, wrap
from import_zoo_recent import FULL, IDS, LATENT, ROUTED

GROUP = Group("latest", "late_")
GROUPS, add, case = GROUP.groups, GROUP.add, GROUP.case
text, image = GROUP.built_by(language), GROUP.built_by(images)


# ---- language models ----

text("hy_v3", "HYV3", head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
     mlp_layer_types=["dense", "sparse"], **LLAMA)
text("granitemoe_swa", "GraniteMoeSWA", num_local_experts=4, num_experts_per_tok=2,
     sliding_window=4, shared_intermediate_size=24, **IDS, **LLAMA)
text("ultrabert", "Ultrabert", "ForMaskedLM", mask=True, sliding_window=4, **LLAMA)
text("dory", "Dory", head_dim=8, sliding_window=4, n_input_layers=1, n_output_layers=1,
     **dict(LLAMA, num_hidden_layers=3))
text("bailing_hybrid", "BailingHybrid", num_local_experts=4, layer_group_size=2, head_dim=8,
     **IDS, **ROUTED, **LATENT, **FULL)
text("phi4_partial_rotary", "Phi3", rope_parameters={
    "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}, **IDS, **LLAMA)
text("glm_moe_dsa", "GlmMoeDsa", index_n_heads=2, index_head_dim=16, index_topk=4, **ROUTED,
     **LATENT, **FULL)
text("qwen3_yarn", "Qwen3", head_dim=8, rope_parameters={
    "rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
    "original_max_position_embeddings": 16}, **LLAMA)
text("gemma2_eager_classes", "Gemma2", "ForSequenceClassification", head_dim=16, sliding_window=4,
     pad_token_id=0, **LLAMA)
text("modernbert_questions", "ModernBert", "ForQuestionAnswering",
     pick=("start_logits", "end_logits"), mask=True, local_attention=8, cls_token_id=1,
     sep_token_id=2, **IDS, **BERT)
text("deberta_v3_words", "DebertaV2", "ForTokenClassification", relative_attention=True, mask=True,
     pos_att_type=["c2p", "p2c"], position_buckets=8, share_att_key=True, norm_rel_ebd="layer_norm",
     position_biased_input=False, max_relative_positions=-1, conv_kernel_size=3, **BERT)


@case
def blt():
    import transformers
    part = dict(hidden_size=32, num_attention_heads=4, num_hidden_layers=1, intermediate_size=48,
                max_position_embeddings=64)
    config = config_of("Blt", vocab_size=97, patch_in_forward=False, encoder_hash_byte_group_vocab=31,
                       encoder_hash_byte_group_size=[3, 4],
                       encoder_config=dict(part, vocab_size=97, hidden_size_global=32),
                       decoder_config=dict(part, vocab_size=97, hidden_size_global=32),
                       global_config=dict(part),
                       patcher_config=dict(part, vocab_size=97))
    inputs = {"input_ids": torch.randint(3, 97, (2, 8)),
              "patch_lengths": torch.tensor([[1, 3, 4], [1, 3, 4]])}
    return wrap(transformers.BltForCausalLM(config), list(inputs), ("logits",)), inputs


@case
def csm_depth():
    import transformers
    config = config_of("CsmDepthDecoder", num_codebooks=6, backbone_hidden_size=24, vocab_size=31,
                       **{k: v for k, v in LLAMA.items()})
    inputs = {"input_ids": torch.randint(0, 31, (2, 6)),
              "backbone_last_hidden_state": torch.randn(2, 24)}
    return wrap(transformers.CsmDepthDecoderForCausalLM(config), list(inputs), ("logits",)), inputs


@case
def bark_semantic():
    import transformers
    config = config_of("BarkSemantic", block_size=64, input_vocab_size=97, output_vocab_size=97,
                       num_layers=2, num_heads=4, hidden_size=32)
    return wrap(transformers.BarkSemanticModel(config), ["input_ids"], ("logits",)), {
        "input_ids": torch.randint(0, 97, (2, 10))}


@case
def bark_fine():
    import transformers
    config = config_of("BarkFine", block_size=64, input_vocab_size=97, output_vocab_size=97,
                       num_layers=2, num_heads=4, hidden_size=32, n_codes_total=4)
    return wrap(transformers.BarkFineModel(config), ["input_ids"], ("logits",), codebook_idx=2), {
        "input_ids": torch.randint(0, 97, (2, 10, 4))}


@case
def musicgen_decoder():
    import transformers
    config = config_of("MusicgenDecoder", vocab_size=31, max_position_embeddings=64, ffn_dim=48,
                       num_hidden_layers=2, num_attention_heads=4, hidden_size=32, num_codebooks=2,
                       pad_token_id=30)
    return wrap(transformers.MusicgenForCausalLM(config), ["input_ids"], ("logits",)), {
        "input_ids": torch.randint(0, 30, (4, 8))}


@case
def trocr():
    import transformers
    config = config_of("TrOCR", vocab_size=97, d_model=32, decoder_layers=2, decoder_ffn_dim=48,
                       decoder_attention_heads=4, max_position_embeddings=64, is_decoder=True,
                       cross_attention_hidden_size=24, add_cross_attention=True, **IDS)
    inputs = {"input_ids": torch.randint(3, 97, (2, 8)),
              "encoder_hidden_states": torch.randn(2, 5, 24)}
    return wrap(transformers.TrOCRForCausalLM(config), list(inputs), ("logits",)), inputs


# ---- images ----

BACKBONE = dict(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], embedding_size=8)


def small_resnet():
    import transformers
    return transformers.ResNetConfig(out_features=["stage1", "stage2", "stage3", "stage4"],
                                     **BACKBONE)


@case
def maskformer():
    import transformers
    decoder = transformers.DetrConfig(d_model=32, encoder_layers=1, decoder_layers=1,
                                      encoder_attention_heads=2, decoder_attention_heads=2,
                                      encoder_ffn_dim=24, decoder_ffn_dim=24, num_queries=4)
    config = config_of("MaskFormer", fpn_feature_size=32, mask_feature_size=32,
                       backbone_config=small_resnet(), decoder_config=decoder, num_labels=3)
    return wrap(transformers.MaskFormerForInstanceSegmentation(config), ["pixel_values"],
                ("class_queries_logits", "masks_queries_logits")), {
        "pixel_values": torch.randn(2, 3, 64, 64)}


@case
def upernet():
    import transformers
    config = config_of("UperNet", backbone_config=small_resnet(), hidden_size=16,
                       pool_scales=[1, 2], use_auxiliary_head=False, num_labels=3)
    return wrap(transformers.UperNetForSemanticSegmentation(config), ["pixel_values"],
                ("logits",)), {"pixel_values": torch.randn(2, 3, 64, 64)}


def pose(simple):
    import transformers
    backbone = transformers.VitPoseBackboneConfig(
        image_size=[32, 32], patch_size=[8, 8], hidden_size=32, num_hidden_layers=2,
        num_attention_heads=4, out_features=["stage2"])
    config = config_of("VitPose", backbone_config=backbone, num_labels=5,
                       use_simple_decoder=simple)
    return wrap(transformers.VitPoseForPoseEstimation(config), ["pixel_values"],
                ("heatmaps",)), {"pixel_values": torch.randn(2, 3, 32, 32)}


add("vitpose_simple", lambda: pose(True))
add("vitpose", lambda: pose(False))


@case
def vitmatte():
    import transformers
    backbone = transformers.VitDetConfig(num_channels=4, window_size=2, window_block_indices=[0],
                                         out_features=["stage2"],
                                         **dict(VIT, image_size=64, patch_size=16))
    config = config_of("VitMatte", backbone_config=backbone, hidden_size=32,
                       convstream_hidden_sizes=[8, 8, 8], fusion_hidden_sizes=[16, 8, 8, 8])
    return wrap(transformers.VitMatteForImageMatting(config), ["pixel_values"], ("alphas",)), {
        "pixel_values": torch.randn(2, 4, 64, 64)}


@case
def mgp_str():
    import transformers
    config = config_of("Mgpstr", image_size=[32, 32], patch_size=8, max_token_length=5,
                       num_character_labels=7, num_bpe_labels=8, num_wordpiece_labels=9,
                       hidden_size=32, num_hidden_layers=2, num_attention_heads=4)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = transformers.MgpstrForSceneTextRecognition(config)

        def forward(self, pixel_values):
            return tuple(self.model(pixel_values).logits)

    return Net(), {"pixel_values": torch.randn(2, 3, 32, 32)}


@case
def x_clip_vision():
    import transformers
    config = config_of("XCLIPVision", mit_hidden_size=16, mit_intermediate_size=24,
                       mit_num_attention_heads=2, num_frames=2, **VIT)
    return wrap(transformers.XCLIPVisionModel(config), ["pixel_values"],
                ("last_hidden_state", "pooler_output")), {
        "pixel_values": torch.randn(4, 3, 32, 32)}


image("sapiens2", "Sapiens2", "Model", pick=("last_hidden_state",), **VIT)
image("tipsv2_vision", "Tipsv2Vision", "Model", pick=("last_hidden_state",), **VIT)
image("owlv2_vision", "Owlv2Vision", "Model", pick=("last_hidden_state", "pooler_output"), **VIT)
image("git_vision", "GitVision", "Model", pick=("last_hidden_state",), **VIT)
image("janus_vision", "JanusVision", "Model", pick=("last_hidden_state",), **VIT)


@case
def vision_encoder_decoder():
    import transformers
    encoder = config_of("ViT", **VIT)
    decoder = config_of("GPT2", vocab_size=97, n_embd=32, n_layer=1, n_head=4, n_positions=64,
                        add_cross_attention=True)
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder.use_cache = False
    model = transformers.VisionEncoderDecoderModel(config=config)
    inputs = {"pixel_values": torch.randn(2, 3, 32, 32),
              "decoder_input_ids": torch.randint(3, 97, (2, 8))}
    return wrap(model, list(inputs), ("logits",)), inputs


# ---- sound and series ----

@case
def speecht5_recognition():
    import transformers
    config = config_of("SpeechT5", vocab_size=40, hidden_size=32, encoder_layers=1,
                       encoder_attention_heads=4, encoder_ffn_dim=48, decoder_layers=1,
                       decoder_ffn_dim=48, decoder_attention_heads=4, conv_dim=[16, 16],
                       conv_stride=[5, 2], conv_kernel=[10, 3], num_conv_pos_embeddings=8,
                       num_conv_pos_embedding_groups=4, apply_spec_augment=False,
                       encoder_max_relative_position=8, max_speech_positions=64,
                       max_text_positions=32)
    inputs = {"input_values": torch.randn(2, 400), "decoder_input_ids": torch.randint(3, 40, (2, 6))}
    return wrap(transformers.SpeechT5ForSpeechToText(config), list(inputs), ("logits",)), inputs


@case
def qwen2_audio_encoder():
    import transformers
    config = config_of("Qwen2AudioEncoder", d_model=32, encoder_layers=2, encoder_attention_heads=4,
                       encoder_ffn_dim=48, num_mel_bins=16, max_source_positions=20)
    return wrap(transformers.Qwen2AudioEncoder(config), ["input_features"],
                ("last_hidden_state",)), {"input_features": torch.randn(2, 16, 40)}


@case
def timesfm2_5():
    import transformers
    config = config_of("TimesFm2_5", patch_length=8, context_length=32, horizon_length=8,
                       hidden_size=32, intermediate_size=48, head_dim=8, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=4, output_quantile_len=8)
    inputs = {"past_values": torch.randn(2, 32), "past_values_padding": torch.zeros(2, 32)}
    return wrap(transformers.TimesFm2_5Model(config), list(inputs), ("last_hidden_state",)), inputs


PATCHES = dict(num_input_channels=3, context_length=32, patch_length=8, patch_stride=8, d_model=16,
               num_targets=3)
for _name, _kind, _pick, _more in (
        ("patchtst_classes", "ForClassification", "prediction_logits", {"use_cls_token": True}),
        ("patchtst_values", "ForRegression", "regression_outputs", {"pooling_type": "max"})):
    def _series(kind=_kind, pick=_pick, more=_more):
        import transformers
        config = config_of("PatchTST", num_hidden_layers=2, num_attention_heads=2, ffn_dim=24,
                           loss="mse", **PATCHES, **more)
        return wrap(getattr(transformers, "PatchTST" + kind)(config), ["past_values"], (pick,)), {
            "past_values": torch.randn(3, 32, 3)}
    add(_name, _series)


@case
def patchtsmixer_classes():
    import transformers
    config = config_of("PatchTSMixer", num_layers=2, mode="mix_channel", gated_attn=True,
                       self_attn=True, self_attn_heads=2, scaling="std", **PATCHES)
    return wrap(transformers.PatchTSMixerForTimeSeriesClassification(config), ["past_values"],
                ("prediction_outputs",)), {"past_values": torch.randn(3, 32, 3)}


add("wav2vec2_speaker", lambda: waves("Wav2Vec2", "ForXVector", tdnn_dim=[16, 16, 24],
                                      tdnn_kernel=[5, 3, 1], tdnn_dilation=[1, 2, 1],
                                      xvector_output_dim=12))


# ---- detection of torchvision: backbone and proposals, without what follows from the data ----

@case
def faster_rcnn_proposals():
    from torchvision.models.detection.rpn import RPNHead
    from torchvision.ops import FeaturePyramidNetwork

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            import torchvision
            net = torchvision.models.resnet18(weights=None)
            self.stem = torch.nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool, net.layer1)
            self.layer2, self.layer3 = net.layer2, net.layer3
            self.fpn = FeaturePyramidNetwork([64, 128, 256], 16)
            self.rpn = RPNHead(16, 3, conv_depth=2)

        def forward(self, x):
            a = self.stem(x)
            b = self.layer2(a)
            levels = self.fpn({"a": a, "b": b, "c": self.layer3(b)})
            scores, boxes = self.rpn(list(levels.values()))
            return (torch.cat([s.flatten(1) for s in scores], 1),
                    torch.cat([d.permute(0, 2, 3, 1).reshape(d.shape[0], -1, 4) for d in boxes], 1))

    return Net(), {"x": torch.randn(2, 3, 64, 64)}


@case
def fcos_head():
    from torchvision.models.detection.fcos import FCOSHead

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.head = FCOSHead(32, 1, 4)

        def forward(self, a, b):
            found = self.head([a, b])
            return found["cls_logits"], found["bbox_regression"], found["bbox_ctrness"]

    return Net(), {"a": torch.randn(2, 32, 8, 8), "b": torch.randn(2, 32, 4, 4)}
