/* weight_names.h - how other programs name and store the parameters of a model. */
#ifndef TTI_TRAIN_WEIGHT_NAMES_H
#define TTI_TRAIN_WEIGHT_NAMES_H

#include "ckpt/weights.h"
#include "train/setup/blueprint.h"

/* Whether a matrix of ours is [out,in] and Hugging Face's [in,out]. */
bool tti_weight_is_transposed(const tti_blueprint *b, const char *name);

enum { TTI_WEIGHT_NAME = 600 };

/* The name of transformers' ResNet for one of our parameters, which has torchvision's name; false
 * if the name does not belong to a resnet. */
bool tti_weight_hf_resnet(const char *name, char out[TTI_WEIGHT_NAME]);

/* The place of a parameter in a file: under its own name, without its first part (the prefix of
 * the model: transformer., bert.), under old names of it, as a part of transformers' ResNet.
 * -1: it is not there. */
int64_t tti_weight_find(const tti_weights *weights, const char *name);

/* Whether a tensor of a file is not needed by the model: buffers, counters, the second copy of a
 * tied tensor (init_config.c has compared it), heads of other tasks. */
bool tti_weight_is_surplus(const tti_blueprint *b, const char *name);

/* dst[n_cols,n_rows] = src[n_rows,n_cols] transposed. */
void tti_weight_transpose(const float *src, int64_t n_rows, int64_t n_cols, float *dst);

/* Heads of the attention of the model, 0 if it has none. */
int64_t tti_model_n_heads(const tti_blueprint *b);

#endif /* TTI_TRAIN_WEIGHT_NAMES_H */
