/* model_table.c - the models that a job can name.  To add one: a file with its builder, a line in
 * models.h, a row here. */
#include <stddef.h>
#include <string.h>

#include "models/models.h"

/* In alphabetical order. */
static const tutti_model models[] = {
    {.name = "bert",
     .doc = "token encoder: predicts masked tokens; model.head=classify predicts a class",
     .input = TUTTI_MODEL_TOKENS,
     .build = tti_model_bert,
     .size = "base",
     .activation = "gelu"},
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
