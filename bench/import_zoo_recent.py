"""import_zoo_recent.py - further models of transformers for import_zoo.py: the group recent."""

import functools

import torch
from import_zoo_group import Group
from import_zoo_models import (BERT, LLAMA, SEQ, SMALL_TEXT, VIT, config_of, detr_config, language,
                               images, seq2seq, towers, waves, wrap)

GROUP = Group("recent", "new_")
GROUPS, add, case = GROUP.groups, GROUP.add, GROUP.case
text, image = GROUP.built_by(language), GROUP.built_by(images)

IDS = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
FULL = dict(LLAMA, num_key_value_heads=4)
EXPERTS = dict(num_experts=4, num_local_experts=4, num_experts_per_tok=2, moe_intermediate_size=24)
ROUTED = dict(n_routed_experts=4, n_group=1, topk_group=1, num_experts_per_tok=2,
              moe_intermediate_size=24, n_shared_experts=1, first_k_dense_replace=1)
LATENT = dict(kv_lora_rank=8, q_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8)

# ---- language models ----

text("afmoe", "Afmoe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24,
     num_dense_layers=1, head_dim=8, sliding_window=4, **LLAMA)
text("aria_text", "AriaText", moe_num_experts=4, moe_topk=2, moe_num_shared_experts=1, **IDS,
     **LLAMA)
text("bamba", "Bamba", mamba_n_heads=8, mamba_d_head=8, mamba_d_state=8, mamba_n_groups=1,
     mamba_chunk_size=4, attn_layer_indices=[1], **IDS, **LLAMA)
text("bitnet", "BitNet", **IDS, **LLAMA)
text("cohere2_moe", "Cohere2Moe", sliding_window=4, **EXPERTS, **IDS, **LLAMA)
text("cpmant", "CpmAnt", hidden_size=32, num_attention_heads=4, dim_head=8, dim_ff=48,
     num_hidden_layers=2, prompt_length=4, prompt_types=4, segment_types=4)
text("cwm", "Cwm", head_dim=8, sliding_window=4, **IDS, **LLAMA)
text("dbrx", "Dbrx", d_model=32, n_heads=4, n_layers=2, max_seq_len=64,
     ffn_config={"ffn_hidden_size": 24, "moe_num_experts": 4, "moe_top_k": 2, "hidden_size": 32},
     attn_config={"kv_n_heads": 2, "clip_qkv": 8.0})
text("deepseek_v32", "DeepseekV32", index_n_heads=2, index_head_dim=16, index_topk=4, **ROUTED,
     **LATENT, **FULL)
text("deepseek_v4", "DeepseekV4", **ROUTED, **FULL)
text("dots1", "Dots1", **ROUTED, **LLAMA)
text("ernie4_5_moe", "Ernie4_5_Moe", moe_num_experts=4, moe_k=2, moe_intermediate_size=24,
     moe_num_shared_experts=1, moe_layer_start_index=1, **IDS, **LLAMA)
text("exaone_moe", "ExaoneMoe", sliding_window=4, num_experts=4, num_experts_per_tok=2,
     moe_intermediate_size=24, num_shared_experts=1, n_group=1, topk_group=1,
     first_k_dense_replace=1, **IDS, **LLAMA)
text("falcon_h1", "FalconH1", mamba_n_heads=4, mamba_d_head=8, mamba_d_ssm=32, mamba_d_state=8,
     mamba_chunk_size=4, **IDS, **LLAMA)
text("flex_olmo", "FlexOlmo", num_experts=4, num_experts_per_tok=2, **IDS, **LLAMA)
text("gpt_neox_japanese", "GPTNeoXJapanese", hidden_size=32, num_hidden_layers=2,
     num_attention_heads=4, intermediate_multiple_size=2, max_position_embeddings=64)

text("glm4_moe", "Glm4Moe", head_dim=8, **ROUTED, **LLAMA)
text("glm4_moe_lite", "Glm4MoeLite", **ROUTED, **LATENT, **FULL)
text("granitemoe_hybrid", "GraniteMoeHybrid", num_local_experts=4, num_experts_per_tok=2,
     shared_intermediate_size=24, mamba_n_heads=8, mamba_d_head=8, mamba_d_state=8,
     mamba_chunk_size=4, layer_types=["mamba", "attention"], **IDS, **LLAMA)
text("granitemoe_shared", "GraniteMoeShared", num_local_experts=4, num_experts_per_tok=2,
     shared_intermediate_size=24, **IDS, **LLAMA)
text("hunyuan_dense", "HunYuanDenseV1", head_dim=8, **IDS, **LLAMA)
text("hunyuan_moe", "HunYuanMoEV1", head_dim=8, num_experts=4, moe_topk=2, **IDS, **LLAMA)
text("jais2", "Jais2", head_dim=8, **IDS, **LLAMA)
text("jetmoe", "JetMoe", num_local_experts=4, num_experts_per_tok=2, kv_channels=8,
     **{k: v for k, v in LLAMA.items() if k != "num_attention_heads"})
text("kimi_linear", "KimiLinear", **ROUTED, **LATENT, **FULL)
text("lfm2", "Lfm2", layer_types=["conv", "full_attention"], block_multiple_of=8, **IDS, **LLAMA)
text("lfm2_moe", "Lfm2Moe", layer_types=["conv", "full_attention"], num_dense_layers=1,
     num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, **IDS, **LLAMA)

text("longcat_flash", "LongcatFlash", **LATENT, num_layers=2, n_routed_experts=4,
     zero_expert_num=2, moe_topk=2, expert_ffn_hidden_size=24, ffn_hidden_size=48, hidden_size=32,
     num_attention_heads=4, max_position_embeddings=64)
text("minicpm3", "MiniCPM3", **LATENT, **IDS, **FULL)
text("minimax_m2", "MiniMaxM2", head_dim=8, num_local_experts=4, num_experts_per_tok=2, rotary_dim=4,
     **IDS, **LLAMA)
text("ministral", "Ministral", head_dim=8, sliding_window=4, **IDS, **LLAMA)
text("ministral3", "Ministral3", head_dim=8, **IDS, **LLAMA)
text("mimo_v2", "MiMoV2Flash", head_dim=8, **EXPERTS, **LLAMA)
text("nanochat", "NanoChat", **IDS, **LLAMA)

text("olmo_hybrid", "OlmoHybrid", head_dim=8, linear_num_value_heads=4, linear_num_key_heads=4,
     linear_key_head_dim=8, linear_value_head_dim=8, layer_types=["linear_attention",
                                                                   "full_attention"], **FULL)
text("solar_open", "SolarOpen", head_dim=8, **ROUTED, **LLAMA)
text("vaultgemma", "VaultGemma", head_dim=8, sliding_window=4, **LLAMA)
text("youtu", "Youtu", **LATENT, **IDS, **FULL)
text("zamba2", "Zamba2", mamba_d_state=8, mamba_headdim=16, n_mamba_heads=4, chunk_size=4,
     layers_block_type=["mamba", "hybrid"], num_mem_blocks=1, adapter_rank=4, **FULL)
text("zaya", "Zaya", **EXPERTS, **LLAMA)
text("hrm_text", "HrmText", **IDS, **LLAMA)
text("kolibri", "Kolibri1", **IDS, **LLAMA)
text("laguna", "Laguna", head_dim=8, **EXPERTS, **LLAMA)
text("mellum", "Mellum", **EXPERTS, **LLAMA)
text("apertus15", "Apertus1p5Text", **LLAMA)
text("inkling", "InklingText", **LLAMA)

text("mistral4", "Mistral4", **ROUTED, **LATENT, **FULL)
text("granite_swa", "GraniteSWA", sliding_window=4, **IDS, **LLAMA)
text("axk1", "AXK1", **ROUTED, **LATENT, **FULL)


def named_text(name, config, model, **more):
    """A language model whose classes are not named alike."""
    def build():
        import transformers
        net = getattr(transformers, model)(config_of(config, vocab_size=97, **more))
        return wrap(net, ["input_ids"], ("logits",)), {"input_ids": torch.randint(3, 97, (3, 12))}
    add(name, build)


named_text("gemma3n", "Gemma3nText", "Gemma3nForCausalLM", head_dim=8, sliding_window=4,
           hidden_size_per_layer_input=8, vocab_size_per_layer_input=97, laurel_rank=4,
           num_kv_shared_layers=0, altup_num_inputs=2, activation_sparsity_pattern=[0.5, 0.0],
           layer_types=["sliding_attention", "full_attention"], **LLAMA)
named_text("llama4", "Llama4Text", "Llama4ForCausalLM", head_dim=8, num_local_experts=4,
           num_experts_per_tok=1, intermediate_size_mlp=48, attention_chunk_size=4, **IDS, **LLAMA)
named_text("qwen3_5", "Qwen3_5Text", "Qwen3_5ForCausalLM", head_dim=8, linear_num_value_heads=4,
           linear_num_key_heads=2, linear_key_head_dim=8, linear_value_head_dim=8,
           layer_types=["linear_attention", "full_attention"], **LLAMA)
named_text("qwen3_5_moe", "Qwen3_5MoeText", "Qwen3_5MoeForCausalLM", head_dim=8,
           linear_num_value_heads=4, linear_num_key_heads=2, linear_key_head_dim=8,
           linear_value_head_dim=8, layer_types=["linear_attention", "full_attention"],
           shared_expert_intermediate_size=24, **EXPERTS, **LLAMA)
named_text("gemma4", "Gemma4Text", "Gemma4ForCausalLM", head_dim=8, sliding_window=4,
           hidden_size_per_layer_input=8, vocab_size_per_layer_input=97, num_kv_shared_layers=0,
           layer_types=["sliding_attention", "full_attention"], **LLAMA)
named_text("nemotron_h", "NemotronH", "NemotronHForCausalLM", mamba_num_heads=4, mamba_head_dim=8,
           ssm_state_size=8, n_groups=1, chunk_size=4, head_dim=8,
           layers_block_type=["mamba", "attention", "moe"], n_routed_experts=4, n_group=1,
           topk_group=1, num_experts_per_tok=2, moe_intermediate_size=24,
           moe_shared_expert_intermediate_size=24,
           **{k: v for k, v in LLAMA.items() if k != "num_hidden_layers"})

# ---- encoders, and encoders with decoders ----

text("lilt_free_luke", "Luke", "ForMaskedLM", entity_vocab_size=8, entity_emb_size=16, **BERT)
text("markuplm", "MarkupLM", "ForTokenClassification", max_depth=4, xpath_unit_hidden_size=8,
     max_xpath_tag_unit_embeddings=8, max_xpath_subs_unit_embeddings=8, tag_pad_id=7,
     subs_pad_id=7, **BERT)
text("visual_bert", "VisualBert", "Model", pick=("last_hidden_state",), **BERT)
text("esmc", "Esmc", "ForMaskedLM", **BERT)
text("gte", "Gte", "ForMaskedLM", mask=True, **BERT)
text("jina_v3", "JinaEmbeddingsV3", "ForMaskedLM", mask=True, **BERT)
text("data2vec_text", "Data2VecText", "ForMaskedLM", **BERT)
text("tapas", "Tapas", "Model", pick=("last_hidden_state",), mask=True, **BERT)
text("lxmert_free_dpr", "DPR", "QuestionEncoder", pick=("pooler_output",), mask=True, **BERT)
text("bert_tokens", "Bert", "ForTokenClassification", mask=True, **BERT)
text("bert_questions", "Bert", "ForQuestionAnswering", pick=("start_logits", "end_logits"), **BERT)
text("gpt2_classes", "GPT2", "ForSequenceClassification", pad_token_id=0, n_embd=32, n_layer=2,
     n_head=4, n_positions=64)
text("llama_classes", "Llama", "ForSequenceClassification", pad_token_id=0, **LLAMA)
text("reformer", "Reformer", "ModelWithLMHead", hidden_size=32, attention_head_size=8,
     attn_layers=["local", "local"], num_attention_heads=4, feed_forward_size=48, is_decoder=True,
     axial_pos_shape=[4, 4], axial_pos_embds_dim=[16, 16], local_attn_chunk_length=4, length=16)
text("bros_free_xlnet_classes", "XLNet", "ForSequenceClassification", d_model=32, n_layer=2,
     n_head=4, d_inner=48)
add("fsmt", lambda: seq2seq("FSMT", src_vocab_size=97, tgt_vocab_size=97, langs=["en", "de"],
                            **{k: v for k, v in SEQ.items() if k != "vocab_size"}))


@case
def t5gemma():
    import transformers
    part = dict(vocab_size=97, head_dim=8, sliding_window=4, **LLAMA)
    config = config_of("T5Gemma", encoder=dict(part), decoder=dict(part), vocab_size=97)
    inputs = {"input_ids": torch.randint(3, 97, (2, 10)),
              "decoder_input_ids": torch.randint(3, 97, (2, 8))}
    return wrap(transformers.T5GemmaForConditionalGeneration(config), list(inputs),
                ("logits",)), inputs


# ---- vision and two towers ----

image("donut_swin", "DonutSwin", "Model", pick=("last_hidden_state",), image_size=32,
        patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4)
image("mobilenet_v2", "MobileNetV2", size=64, depth_multiplier=0.25)
image("siglip_vision", "SiglipVision", "Model", pick=("pooler_output",), **VIT)
image("clip_vision", "CLIPVision", "Model", pick=("pooler_output",), **VIT)
image("internvl_vision", "InternVLVision", "Model", pick=("last_hidden_state",),
        **dict(VIT, image_size=[32, 32], patch_size=[8, 8]))
image("sam_hq", "SamHQVision", "Model", pick=("last_hidden_state",), output_channels=8, size=64,
        image_size=64, patch_size=8, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        mlp_dim=48, window_size=3, global_attn_indexes=[1])
image("sam2_hiera", "Sam2HieraDet", "Model", pick=("last_hidden_state",), size=64,
        image_size=[64, 64], hidden_size=16, num_attention_heads=1, blocks_per_stage=[1, 1, 1, 1],
        embed_dim_per_stage=[16, 32, 64, 128], num_attention_heads_per_stage=[1, 2, 4, 8],
        global_attention_blocks=[2], window_positional_embedding_background_size=[4, 4])
image("vjepa2_free_radio", "Radio", "Model", **VIT)
image("segformer_classes", "Segformer", size=64, num_encoder_blocks=4, depths=[1, 1, 1, 1],
        hidden_sizes=[8, 16, 24, 32], num_attention_heads=[1, 2, 4, 8], decoder_hidden_size=16)
image("beit_pixels", "Beit", "ForSemanticSegmentation", use_auxiliary_head=False,
        out_indices=[1, 1, 2, 2], pool_scales=[1, 2], **dict(VIT, hidden_size=32))
image("depth_anything", "DepthAnything", "ForDepthEstimation", pick=("predicted_depth",), size=28)
image("mobilevit_pixels", "MobileViT", "ForSemanticSegmentation", image_size=64, size=64,
        hidden_sizes=[16, 24, 32], num_attention_heads=2, aspp_out_channels=16,
        neck_hidden_sizes=[8, 8, 16, 16, 24, 24, 32], atrous_rates=[2, 4, 6])
image("zoe_free_superpoint", "SuperPoint", "ForKeypointDetection", size=64)
for _name, _kind in (("table_transformer", "TableTransformer"), ("dab_detr", "DabDetr")):
    def _detector(kind=_kind):
        import transformers
        net = getattr(transformers, kind + "ForObjectDetection")(detr_config(kind))
        return wrap(net, ["pixel_values"], ("logits", "pred_boxes")), {
            "pixel_values": torch.randn(2, 3, 64, 64)}
    add(_name, _detector)


@case
def rt_detr():
    import transformers
    backbone = transformers.RTDetrResNetConfig(
        hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 1, 1], embedding_size=8, layer_type="basic",
        out_features=["stage2", "stage3", "stage4"])
    config = config_of("RTDetr", backbone_config=backbone, encoder_in_channels=[16, 24, 32],
                       encoder_hidden_dim=32, d_model=32, encoder_ffn_dim=48, decoder_ffn_dim=48,
                       encoder_attention_heads=4, decoder_attention_heads=4, decoder_layers=2,
                       num_queries=5, num_denoising=0, feat_strides=[8, 16, 32], num_labels=3,
                       decoder_in_channels=[32, 32, 32])
    return wrap(transformers.RTDetrForObjectDetection(config), ["pixel_values"],
                ("logits", "pred_boxes")), {"pixel_values": torch.randn(2, 3, 64, 64)}


@case
def vjepa2():
    import transformers
    config = config_of("VJEPA2", crop_size=32, patch_size=8, frames_per_clip=4, tubelet_size=2,
                       hidden_size=24, num_attention_heads=2, num_hidden_layers=2,
                       pred_hidden_size=24, pred_num_attention_heads=2, pred_num_hidden_layers=1)
    return wrap(transformers.VJEPA2Model(config), ["pixel_values_videos"], ("last_hidden_state",),
                skip_predictor=True), {"pixel_values_videos": torch.randn(2, 4, 3, 32, 32)}


@case
def layoutlmv3():
    import transformers
    config = config_of("LayoutLMv3", vocab_size=97, input_size=32, patch_size=8,
                       coordinate_size=4, shape_size=8, max_2d_position_embeddings=64, **BERT)
    corner = torch.randint(0, 30, (2, 8, 2))
    inputs = {"input_ids": torch.randint(3, 97, (2, 8)), "pixel_values": torch.randn(2, 3, 32, 32),
              "bbox": torch.cat([corner, corner + torch.randint(0, 30, (2, 8, 2))], -1)}
    return wrap(transformers.LayoutLMv3ForTokenClassification(config), list(inputs),
                ("logits",)), inputs


@case
def lilt():
    import transformers
    config = config_of("Lilt", vocab_size=97, channel_shrink_ratio=4,
                       max_2d_position_embeddings=64, **BERT)
    corner = torch.randint(0, 30, (2, 8, 2))
    inputs = {"input_ids": torch.randint(3, 97, (2, 8)),
              "bbox": torch.cat([corner, corner + torch.randint(0, 30, (2, 8, 2))], -1)}
    return wrap(transformers.LiltForTokenClassification(config), list(inputs), ("logits",)), inputs


@case
def bros():
    import transformers
    config = config_of("Bros", vocab_size=97, dim_bbox=8, **BERT)
    inputs = {"input_ids": torch.randint(3, 97, (2, 8)), "bbox": torch.rand(2, 8, 8)}
    return wrap(transformers.BrosModel(config), list(inputs), ("last_hidden_state",)), inputs


@case
def lxmert():
    import transformers
    config = config_of("Lxmert", vocab_size=97, visual_feat_dim=16, l_layers=1, x_layers=1,
                       r_layers=1, num_qa_labels=5, **{k: v for k, v in BERT.items()
                                                       if k != "num_hidden_layers"})
    inputs = {"input_ids": torch.randint(3, 97, (2, 8)), "visual_feats": torch.randn(2, 5, 16),
              "visual_pos": torch.rand(2, 5, 4)}
    return wrap(transformers.LxmertForQuestionAnswering(config), list(inputs),
                ("question_answering_score",)), inputs


for _name, _kind in (("owlvit", "OwlViT"), ("align", "Align"), ("flava", "Flava"),
                     ("bridge_tower", "BridgeTower"), ("siglip2", "Siglip2")):
    add(_name, functools.partial(towers, _kind, dict(SMALL_TEXT), dict(VIT)))


@case
def llava():
    import transformers
    config = config_of("Llava", text_config=dict(model_type="llama", vocab_size=97, **LLAMA),
                       vision_config=dict(model_type="clip_vision_model", projection_dim=32, **VIT),
                       image_token_index=96, image_token_id=96, vision_feature_layer=-1)
    ids = torch.randint(3, 90, (2, 24))
    ids[:, 2:18] = 96
    inputs = {"input_ids": ids, "pixel_values": torch.randn(2, 3, 32, 32)}
    return wrap(transformers.LlavaForConditionalGeneration(config), list(inputs),
                ("logits",)), inputs


# ---- sound and series ----

add("sew_d", lambda: waves("SEWD", squeeze_factor=2, max_position_embeddings=64,
                           position_buckets=16, share_att_key=True, feature_layer_norm_eps=1e-5))
add("wav2vec2_classes", lambda: waves("Wav2Vec2", "ForSequenceClassification",
                                      classifier_proj_size=16))
add("wav2vec2_frames", lambda: waves("Wav2Vec2", "ForAudioFrameClassification"))
add("hubert_classes", lambda: waves("Hubert", "ForSequenceClassification", classifier_proj_size=16))


@case
def moonshine():
    import transformers
    config = config_of("Moonshine", vocab_size=97, hidden_size=32, intermediate_size=48,
                       encoder_num_hidden_layers=1, decoder_num_hidden_layers=1,
                       encoder_num_attention_heads=4, decoder_num_attention_heads=4,
                       encoder_num_key_value_heads=4, decoder_num_key_value_heads=4)
    inputs = {"input_values": torch.randn(2, 2000),
              "decoder_input_ids": torch.randint(3, 97, (2, 8))}
    return wrap(transformers.MoonshineForConditionalGeneration(config), list(inputs),
                ("logits",)), inputs


@case
def clap_audio():
    import transformers
    config = config_of("ClapAudio", spec_size=64, num_mel_bins=16, patch_size=4, patch_stride=[4, 4],
                       window_size=4, depths=[1, 1], num_attention_heads=[2, 4], hidden_size=32,
                       patch_embeds_hidden_size=16, projection_dim=16, enable_fusion=False)
    return wrap(transformers.ClapAudioModelWithProjection(config), ["input_features"],
                ("audio_embeds",)), {"input_features": torch.randn(2, 1, 64, 16)}


@case
def univnet():
    import transformers
    config = config_of("UnivNet", model_in_channels=8, model_hidden_channels=8, num_mel_bins=8,
                       resblock_kernel_sizes=[3], resblock_stride_sizes=[4],
                       resblock_dilation_sizes=[[1, 3]], kernel_predictor_hidden_channels=8,
                       kernel_predictor_num_blocks=1)
    inputs = {"input_features": torch.randn(2, 6, 8), "noise_sequence": torch.randn(2, 6, 8)}
    return wrap(transformers.UnivNetModel(config), list(inputs), ("waveforms",)), inputs


@case
def timesfm():
    import transformers
    config = config_of("TimesFm", patch_length=8, context_length=32, horizon_length=8,
                       hidden_size=32, intermediate_size=48, head_dim=8, num_hidden_layers=2,
                       num_attention_heads=4)
    inputs = {"past_values": torch.randn(2, 32), "past_values_padding": torch.zeros(2, 32),
              "freq": torch.zeros(2, 1, dtype=torch.int64)}
    return wrap(transformers.TimesFmModel(config), list(inputs), ("last_hidden_state",)), inputs


@case
def mimi_encoder():
    import transformers
    config = config_of("Mimi", hidden_size=16, num_filters=4, upsampling_ratios=[2, 2],
                       num_residual_layers=1, codebook_dim=8, codebook_size=8)
    return transformers.MimiModel(config).encoder, {"hidden_states": torch.randn(2, 1, 64)}


@case
def fastspeech2():
    import transformers
    config = config_of("FastSpeech2ConformerHifiGan", model_in_dim=8, upsample_initial_channel=16,
                       upsample_rates=[2, 2], upsample_kernel_sizes=[4, 4],
                       resblock_kernel_sizes=[3, 5], resblock_dilation_sizes=[[1, 3], [1, 2]],
                       normalize_before=False)
    return wrap(transformers.FastSpeech2ConformerHifiGan(config), ["spectrogram"]), {
        "spectrogram": torch.randn(2, 6, 8)}
