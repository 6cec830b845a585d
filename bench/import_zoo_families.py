"""import_zoo_families.py - further models of import_zoo.py, in groups: families (timm), blocks.

families: a model of each family of timm that import_zoo_models.py and import_zoo_more.py lack, and
of each variant with layers of its own.  blocks: small networks with other norms, activations,
pooling and attention in them, as options of timm.  Weights are random and images are small.
"""

import functools

import torch
from import_zoo_models import timm_model

GROUPS = {}


def add(group, name, build):
    GROUPS.setdefault(group, {})[name] = build


SIZED = {"img_size": 64}
SHALLOW = {**SIZED, "depth": 2}
for _name, _size, _more in (
        ("swin_tiny_patch4_window7_224", 64, {**SIZED, "depths": [2, 2, 2, 2]}),
        ("swin_s3_tiny_224", 64, {**SIZED, "depths": [1, 1, 1, 1]}),
        ("swinv2_tiny_window8_256", 64, {**SIZED, "depths": [2, 2, 2, 2]}),
        ("regnetx_002", 64, {}), ("regnety_002", 64, {}), ("regnetv_040", 64, {}),
        ("regnetz_b16", 64, {}), ("regnetz_b16_evos", 64, {}), ("repghostnet_050", 64, {}),
        ("efficientvim_m1", 64, {}), ("cpubone_nano", 64, {}), ("cspnext_tiny", 64, {}),
        ("deepseek_vit_412m", 64, SHALLOW), ("gemma4_vit_167m", 64, SHALLOW),
        ("hieradet_small", 64, {"stages": [1, 1, 2, 1], "global_att_blocks": [2]}),
        ("sam2_hiera_tiny", 64, {"stages": [1, 1, 2, 1], "global_att_blocks": [2]}),
        ("iformer_t", 64, {}), ("lcnetv2_small", 64, {}), ("lowformer_b0", 64, {}),
        ("mobilenetv5_base", 64, {}), ("qwen3_vit_88m", 64, SHALLOW),
        ("nasnetalarge", 96, {}), ("legacy_seresnext26_32x4d", 64, {}),
        ("vit_tiny_r_s16_p8_224", 64, SHALLOW), ("legacy_xception", 64, {}),
        ("densenetblur121d", 64, {}), ("convnext_atto", 64, {}), ("convnextv2_atto", 64, {}),
        ("convnext_atto_ols", 64, {}), ("convnext_atto_rms", 64, {}), ("resnet14t", 64, {}),
        ("resnet50_clip", 64, {}), ("resnet51q", 64, {}), ("resnet50_mlp", 64, {}),
        ("seresnet18", 64, {}), ("resnetrs50", 64, {}), ("ecaresnet26t", 64, {}),
        ("resnet50c", 64, {}), ("resnet50s", 64, {}), ("resnetv2_50d_evos", 64, {}),
        ("resnetv2_50d_gn", 64, {}), ("resnetv2_50x1_bit", 64, {}),
        ("efficientnet_b0_g16_evos", 64, {}), ("efficientnet_b0_g8_gn", 64, {}),
        ("efficientnet_es", 64, {}), ("efficientnet_cc_b0_4e", 64, {}),
        ("tf_efficientnet_b0", 64, {}), ("tf_efficientnetv2_b0", 64, {}),
        ("efficientnet_b0_gn", 64, {}), ("efficientnet_x_b3", 64, {}),
        ("mobilenetv1_100", 64, {}), ("mobilenetv3_rw", 64, {}), ("mobilenetv2_035", 64, {}),
        ("mobilenetv4_hybrid_medium", 64, {}), ("mobilenet_edgetpu_v2_xs", 64, {}),
        ("mnasnet_small", 64, {}), ("semnasnet_075", 64, {}), ("spnasnet_100", 64, {}),
        ("fbnetc_100", 64, {}), ("tinynet_e", 64, {}), ("tf_mobilenetv3_small_minimal_100", 64, {}),
        ("levit_conv_128s", 224, {}), ("levit_256d", 224, {}),
        ("coat_mini", 64, {**SIZED, "serial_depths": [1, 1, 1, 1], "parallel_depth": 1}),
        ("edgenext_small_rw", 64, {}),
        ("eva02_base_patch16_clip_224", 64, SHALLOW), ("vit_pwee_patch16_reg1_gap_256", 64, SHALLOW),
        ("vit_mediumd_patch16_rope_reg1_gap_256", 64, SHALLOW), ("vit_tiny_patch16_224", 64, SHALLOW),
        ("vit_so150m_patch16_reg4_map_256", 64, SHALLOW), ("vit_small_patch16_dinov3", 64, SHALLOW),
        ("vit_small_patch16_rope_ape_224", 64, SHALLOW),
        ("vit_small_patch16_rope_mixed_224", 64, SHALLOW),
        ("vit_base_patch16_xp_224", 64, SHALLOW), ("vit_dlittle_patch16_reg1_gap_256", 64, SHALLOW),
        ("vit_base_patch16_siglip_224", 64, SHALLOW), ("vit_small_patch14_dinov2", 56,
                                                      {"img_size": 56, "depth": 2}),
        ("vit_base_patch32_plus_256", 64, SHALLOW), ("vit_small_plus_patch16_dinov3", 64, SHALLOW),
        ("aimv2_large_patch14_224", 56, {"img_size": 56, "depth": 2}),
        ("vit_base_patch16_clip_quickgelu_224", 64, SHALLOW),
        ("vit_relpos_base_patch16_rpn_224", 64, SHALLOW), ("vit_srelpos_small_patch16_224", 64,
                                                          SHALLOW),
        ("beitv2_base_patch16_224", 64, SHALLOW), ("dm_nfnet_f0", 64, {}), ("eca_nfnet_l0", 64, {}),
        ("nf_ecaresnet26", 64, {}), ("nf_seresnet26", 64, {}), ("hgnet_tiny", 64, {}),
        ("dla46x_c", 64, {}), ("dla60_res2net", 64, {}), ("dpn48b", 64, {}),
        ("fastvit_mci0", 64, {}), ("fastvit_ma36", 64, {"layers": [1, 1, 1, 1]}),
        ("focalnet_tiny_lrf", 64, {}), ("gcresnext26ts", 64, {}),
        ("eca_resnext26ts", 64, {}), ("seresnext26ts", 64, {}), ("mobileone_s1", 64, {}),
        ("gmixer_12_224", 64, SIZED), ("resmlp_24_224", 64, SIZED),
        ("haloregnetz_b", 256, {}), ("lambda_resnet26t", 64, SIZED), ("sehalonet33ts", 256, {}),
        ("eca_botnext26ts_256", 64, SIZED), ("lamhalobotnet50ts_256", 256, {}),
        ("repvgg_d2se", 64, {}), ("mobilevit_s", 64, {}), ("mobilevitv2_075", 64, {}),
        ("maxvit_tiny_tf_224", 64, SIZED), ("coatnet_rmlp_nano_rw_224", 64, SIZED),
        ("coatnext_nano_rw_224", 64, SIZED), ("coatnet_nano_cc_224", 64, SIZED),
        ("coatnet_bn_0_rw_224", 64, SIZED), ("maxxvitv2_nano_rw_256", 64, SIZED),
        ("maxvit_tiny_pm_256", 64, SIZED), ("nest_tiny_jx", 64, SIZED),
        ("naflexvit_base_patch16_map", 64, {"depth": 2}),
        ("naflexvit_base_patch16_par_gap", 64, {"depth": 2}),
        ("naflexvit_base_patch16_parfac_gap", 64, {"depth": 2}),
        ("pit_s_distilled_224", 64, SIZED), ("rexnetr_100", 64, {}), ("selecsls60", 64, {}),
        ("skresnext50_32x4d", 64, {}), ("tnt_s_legacy_patch16_224", 224, {"depth": 2}),
        ("tresnet_v2_l", 64, {}), ("xception41p", 64, {}), ("poolformer_s12", 64, {}),
        ("mvitv2_small_cls", 64, SIZED),
        ("pvt_v2_b2_li", 64, {"depths": [1, 1, 1, 1]}), ("davit_base_fl", 64,
                                                        {"depths": [1, 1, 1, 1]}),
        ("hiera_small_abswin_256", 64, {**SIZED, "stages": [1, 1, 2, 1]}),
        ("volo_d2_224", 64, SIZED), ("visformer_small", 64, SIZED),
        ("crossvit_9_dagger_240", 240, {}), ("xcit_tiny_12_p8_224", 64, {"depth": 2}),
        ("cait_s24_224", 64, SHALLOW), ("convit_small", 64, {**SIZED, "depth": 3,
                                                            "local_up_to_layer": 2}),
        ("vovnet39a", 64, {}), ("eca_vovnet39b", 64, {}), ("ese_vovnet39b_evos", 64, {}),
        ("cs3edgenet_x", 64, {}), ("cs3se_edgenet_x", 64, {}), ("cs3sedarknet_l", 64, {}),
        ("darknetaa53", 64, {}), ("cspresnext50", 64, {}), ("cspdarknet53", 64, {}),
        ("res2next50", 64, {}), ("resnest26d", 64, {}), ("hrnet_w18_ssld", 64, {}),
        ("inception_next_tiny", 64, {"depths": [1, 1, 1, 1]}), ("mambaout_kobe", 64, {}),
        ("efficientvit_l1", 64, {}), ("efficientformerv2_s1", 224, {}),
        ("ghostnetv3_100", 64, {}), ("hardcorenas_f", 64, {}), ("vitamin_base_224", 64, SIZED),
        ("caformer_s36", 64, {"depths": [1, 1, 1, 1]}), ("sequencer2d_m", 64,
                                                        {"layers": [1, 1, 1, 1]})):
    add("families", "timm_" + _name, functools.partial(timm_model, _name, _size, **_more))

for _name in ("byobnet", "coatnet", "convnext", "convnext2", "convnext3", "efficientnet",
              "efficientnet_evos", "efficientnet_gn", "efficientnet_ln", "mambaout", "maxvit",
              "nfnet", "resnet", "vit", "vit2", "vit3", "vit4", "vit_relpos"):
    add("families", "timm_test_" + _name, functools.partial(
        timm_model, "test_" + _name, 64, **({"img_size": 64} if "vi" in _name or
                                            _name == "coatnet" else {})))


def block(name, of="resnet10t", size=64, **more):
    add("blocks", "block_" + name, functools.partial(timm_model, of, size, **more))


for _name in ("se", "ese", "eca", "ecam", "ceca", "gc", "gca", "cbam", "lcbam", "sk", "splat",
              "nl", "bat"):
    block(_name, size=224 if _name == "bat" else 64, block_args={"attn_layer": _name})
for _name in ("mish", "hard_mish", "hard_swish", "hard_sigmoid", "prelu", "gelu_tanh", "quick_gelu",
              "celu", "selu", "elu", "leaky_relu", "relu6", "tanh", "sigmoid", "silu", "gelu"):
    block(_name, act_layer=_name)
for _name in ("groupnorm1", "layernorm2d", "rmsnorm2d"):
    block(_name, norm_layer=_name)
for _name in ("avgmax", "catavgmax", "max", "fast", "fastavg", "fastmax", "fastavgmax",
              "fastcatavgmax"):
    block("pool_" + _name, global_pool=_name)
for _name in ("evonormb0", "evonormb1", "evonormb2", "frn", "frntlu"):
    block(_name, "test_byobnet", norm_layer=_name)
for _name in ("avg", "max", "map", "token", "avgmax"):
    block("vit_pool_" + _name, "test_vit", img_size=64, global_pool=_name)
block("output_stride_8", output_stride=8)
block("output_stride_16", "efficientnet_lite0", output_stride=16)


def features(name, size=64, **more):
    import timm
    model = timm.create_model(name, pretrained=False, features_only=True, **more)
    return model, {"x": torch.randn(2, 3, size, size)}


for _name, _more in (("resnet10t", {}), ("mobilenetv3_small_050", {}), ("convnext_atto", {}),
                     ("test_vit", {"img_size": 64}), ("regnetx_002", {}), ("lcnet_035", {})):
    add("blocks", "features_" + _name, functools.partial(features, _name, **_more))
