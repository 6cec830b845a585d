/* weight_names.h - maps names and layouts of parameters in files of other programs to those of
 * Tutti. */
#ifndef TTI_TRAIN_WEIGHT_NAMES_H
#define TTI_TRAIN_WEIGHT_NAMES_H

#include "ckpt/weights.h"
#include "train/setup/blueprint.h"

/* True if Tutti's matrix is [out,in] and that of Hugging Face is [in,out]. */
bool tti_weight_is_transposed(const tti_blueprint *b, const char *name);

enum { TTI_WEIGHT_NAME = 600 };

/* Converts torchvision's name of a ResNet parameter to the name in transformers.  False: the name
 * does not belong to a ResNet. */
bool tti_weight_hf_resnet(const char *name, char out[TTI_WEIGHT_NAME]);

/* Finds a parameter in a file: under its own name, without the prefix of the model (transformer.,
 * bert.), under an old name, or under the name in transformers' ResNet.  Returns its index in the
 * file; -1: missing. */
int64_t tti_weight_find(const tti_weights *weights, const char *name);

enum { TTI_WEIGHT_PARTS = 3 };

/* Tensors of a file that make up a parameter, joined along dimension 0; n is 0 if it is missing. */
typedef struct tti_weight_parts {
    int n;
    size_t at[TTI_WEIGHT_PARTS];
} tti_weight_parts;

/* Finds a parameter of the model as tti_weight_find does, then under the model's aliases. */
tti_weight_parts tti_weight_find_parts(const tti_blueprint *b, const tti_weights *weights,
                                       const char *name);

/* True if the model does not need a tensor of a file: buffers, counters, the second copy of a tied
 * tensor (init_config.c has compared it), heads of other tasks. */
bool tti_weight_is_surplus(const tti_blueprint *b, const char *name);

/* Writes the transpose of src[n_rows,n_cols] to dst[n_cols,n_rows]. */
void tti_weight_transpose(const float *src, int64_t n_rows, int64_t n_cols, float *dst);

/* Number of attention heads of the model, 0 if it has none. */
int64_t tti_model_n_heads(const tti_blueprint *b);

#endif /* TTI_TRAIN_WEIGHT_NAMES_H */
