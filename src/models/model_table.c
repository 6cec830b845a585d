/* model_table.c - the models that a job can name.  To add one: a file with its builder, a line in
 * models.h, a row here. */
#include <stddef.h>
#include <string.h>

#include "models/models.h"

/* A model for images with a choice of model.width_multiplier. */
#define SCALED(model, text)                                                                   \
    {                                                                                         \
        .name = #model, .doc = text, .input = TUTTI_MODEL_IMAGES, .build = tti_model_##model, \
        .scales_width = true                                                                  \
    }

/* In alphabetical order. */
static const tutti_model models[] = {
    {.name = "bert",
     .doc = "token encoder: predicts masked tokens; model.head=classify predicts a class",
     .input = TUTTI_MODEL_TOKENS,
     .build = tti_model_bert,
     .size = "base",
     .activation = "gelu"},
    {.name = "convnext",
     .doc = "ConvNeXt; tiny, small, base and large by model.size",
     .input = TUTTI_MODEL_IMAGES,
     .build = tti_model_convnext,
     .aliases = tti_convnext_aliases,
     .size = "tiny"},
    SCALED(densenet121, "DenseNet-BC of 121 layers"),
    SCALED(densenet161, "DenseNet-BC of 161 layers"),
    SCALED(densenet169, "DenseNet-BC of 169 layers"),
    SCALED(densenet201, "DenseNet-BC of 201 layers"),
    SCALED(efficientnet_b0, "EfficientNet b0, for images of about 224x224"),
    SCALED(efficientnet_b1, "EfficientNet b1, for images of about 240x240"),
    SCALED(efficientnet_b2, "EfficientNet b2, for images of about 260x260"),
    SCALED(efficientnet_b3, "EfficientNet b3, for images of about 300x300"),
    SCALED(efficientnet_b4, "EfficientNet b4, for images of about 380x380"),
    SCALED(efficientnet_b5, "EfficientNet b5, for images of about 456x456"),
    SCALED(efficientnet_b6, "EfficientNet b6, for images of about 528x528"),
    SCALED(efficientnet_b7, "EfficientNet b7, for images of about 600x600"),
    SCALED(efficientnet_v2_l, "EfficientNetV2 large, for images of about 480x480"),
    SCALED(efficientnet_v2_m, "EfficientNetV2 medium, for images of about 480x480"),
    SCALED(efficientnet_v2_s, "EfficientNetV2 small, for images of about 384x384"),
    {.name = "gpt2",
     .doc = "GPT-2 of any size; model.size has its 124M, 355M, 774M and 1558M",
     .input = TUTTI_MODEL_TOKENS,
     .build = tti_model_gpt2,
     .decode = tti_gpt2_decode,
     .transposed = tti_gpt2_transposed,
     .size = "124M",
     .activation = "gelu_tanh"},
    {.name = "lenet",
     .doc = "2 x (conv 3x3, relu, max-pool), 2 linear; for small images",
     .input = TUTTI_MODEL_IMAGES,
     .build = tti_model_lenet},
    {.name = "lstm",
     .doc = "LSTM language model; small, medium and large by model.size",
     .input = TUTTI_MODEL_TOKENS,
     .build = tti_model_lstm,
     .size = "small"},
    {.name = "mlp",
     .doc = "linear layers of model.hidden widths with relu between",
     .build = tti_model_mlp},
    SCALED(mobilenet_v2, "MobileNetV2; model.width_multiplier scales its channels"),
    SCALED(mobilenet_v3_large, "MobileNetV3 large"),
    SCALED(mobilenet_v3_small, "MobileNetV3 small"),
    SCALED(regnet_x_16gf, "RegNetX of 16 GFLOPs"),
    SCALED(regnet_x_1_6gf, "RegNetX of 1.6 GFLOPs"),
    SCALED(regnet_x_32gf, "RegNetX of 32 GFLOPs"),
    SCALED(regnet_x_3_2gf, "RegNetX of 3.2 GFLOPs"),
    SCALED(regnet_x_400mf, "RegNetX of 400 MFLOPs"),
    SCALED(regnet_x_800mf, "RegNetX of 800 MFLOPs"),
    SCALED(regnet_x_8gf, "RegNetX of 8 GFLOPs"),
    SCALED(regnet_y_128gf, "RegNetY of 128 GFLOPs with squeeze and excitation"),
    SCALED(regnet_y_16gf, "RegNetY of 16 GFLOPs with squeeze and excitation"),
    SCALED(regnet_y_1_6gf, "RegNetY of 1.6 GFLOPs with squeeze and excitation"),
    SCALED(regnet_y_32gf, "RegNetY of 32 GFLOPs with squeeze and excitation"),
    SCALED(regnet_y_3_2gf, "RegNetY of 3.2 GFLOPs with squeeze and excitation"),
    SCALED(regnet_y_400mf, "RegNetY of 400 MFLOPs with squeeze and excitation"),
    SCALED(regnet_y_800mf, "RegNetY of 800 MFLOPs with squeeze and excitation"),
    SCALED(regnet_y_8gf, "RegNetY of 8 GFLOPs with squeeze and excitation"),
    {.name = "resnet101",
     .doc = "ResNet v1.5 of 101 layers, bottlenecks",
     .input = TUTTI_MODEL_IMAGES,
     .build = tti_model_resnet101},
    {.name = "resnet18",
     .doc = "ResNet v1.5 of 18 layers; model.stem=cifar for images of about 32x32",
     .input = TUTTI_MODEL_IMAGES,
     .build = tti_model_resnet18},
    {.name = "resnet34",
     .doc = "ResNet v1.5 of 34 layers",
     .input = TUTTI_MODEL_IMAGES,
     .build = tti_model_resnet34},
    {.name = "resnet50",
     .doc = "ResNet v1.5 of 50 layers, bottlenecks",
     .input = TUTTI_MODEL_IMAGES,
     .build = tti_model_resnet50},
    {.name = "swin",
     .doc = "Swin transformer v1; tiny, small, base and large by model.size",
     .input = TUTTI_MODEL_IMAGES,
     .build = tti_model_swin,
     .aliases = tti_swin_aliases,
     .surplus = tti_swin_surplus,
     .size = "tiny"},
    {.name = "unet",
     .doc = "U-Net with batch norm: a class for each pixel (data.format=masks)",
     .input = TUTTI_MODEL_IMAGES,
     .build = tti_model_unet},
    {.name = "vgg11",
     .doc = "11 layers of conv 3x3 and linear; model.batch_norm for batch norm",
     .input = TUTTI_MODEL_IMAGES,
     .build = tti_model_vgg11},
    {.name = "vgg13",
     .doc = "13 layers of conv 3x3 and linear",
     .input = TUTTI_MODEL_IMAGES,
     .build = tti_model_vgg13},
    {.name = "vgg16",
     .doc = "16 layers of conv 3x3 and linear",
     .input = TUTTI_MODEL_IMAGES,
     .build = tti_model_vgg16},
    {.name = "vit",
     .doc = "vision transformer; tiny, small, base and large by model.size",
     .input = TUTTI_MODEL_IMAGES,
     .build = tti_model_vit,
     .aliases = tti_vit_aliases,
     .surplus = tti_vit_surplus,
     .size = "base",
     .activation = "gelu"},
};

const tutti_model *tutti_model_at(int i) {
    int n = (int)(sizeof models / sizeof models[0]);
    return i >= 0 && i < n ? &models[i] : NULL;
}

const tutti_model *tutti_model_find(const char *name) {
    for (int i = 0; tutti_model_at(i); i++)
        if (strcmp(models[i].name, name) == 0) return &models[i];
    return NULL;
}
