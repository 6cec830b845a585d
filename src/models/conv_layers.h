/* conv_layers.h - layers that convolutional models share, with torchvision's names and initial
 * values.  Errors are sticky, as in tutti/ops.h. */
#ifndef TTI_MODELS_CONV_LAYERS_H
#define TTI_MODELS_CONV_LAYERS_H

#include "models/models.h"

/* An activation of tutti/ops.h. */
typedef tutti_value *(*tti_activation)(tutti_graph *g, tutti_value *x);

/* A convolution without bias, padded to keep the size at stride 1, then a batch norm, then the
 * activation. */
typedef struct tti_conv_norm {
    int64_t n_out, kernel;
    int64_t stride, groups;    /* 0: 1 */
    tti_activation activation; /* NULL: none */
    double eps, momentum;      /* of the batch norm; 0: the defaults 1e-5 and 0.1 */
    bool zero;                 /* the weight of the batch norm starts at zero */
} tti_conv_norm;

/* The layers have the names "NAME.0" and "NAME.1", as in torchvision's Conv2dNormActivation. */
tutti_value *tti_conv_norm_build(tutti_graph *g, tutti_value *x, const tti_conv_norm *layer,
                                 const char *name);
/* The same with the names of the convolution and of the batch norm. */
tutti_value *tti_conv_norm_named(tutti_graph *g, tutti_value *x, const tti_conv_norm *layer,
                                 const char *conv, const char *norm);

typedef struct tti_squeeze {
    int64_t width; /* channels of the inner layer */
    tti_activation activation, gate;
} tti_squeeze;

/* Squeeze and excitation (Hu et al. 2018): x times gate(NAME.fc2(activation(NAME.fc1(mean of x over
 * its positions)))).  x: [N,C,H,W]. */
tutti_value *tti_squeeze_build(tutti_graph *g, tutti_value *x, const tti_squeeze *layer,
                               const char *name);

tutti_value *tti_hard_sigmoid(tutti_graph *g, tutti_value *x); /* relu6(x + 3) / 6   */
tutti_value *tti_hard_swish(tutti_graph *g, tutti_value *x);   /* x hard_sigmoid(x)  */

/* Stochastic depth of residual branch i = 1 .. n: the probability grows linearly up to that of
 * params.  The layer has the name "BLOCK.drop_path". */
tutti_value *tti_drop_branch(tutti_graph *g, tutti_value *x, const tutti_model_params *params,
                             int i, int n, const char *block);

/* [N,C,H,W] -> [N,C]: the mean over all positions, then the dropout of params, if any. */
tutti_value *tti_pool_features(tutti_graph *g, tutti_value *x, const tutti_model_params *params,
                               const char *dropout);

/* A linear layer whose initial weights are normal with standard deviation 0.01, and whose bias is
 * zero. */
tutti_value *tti_linear_normal(tutti_graph *g, tutti_value *x, int64_t n_out, const char *name);

/* The multiple of `step` that is nearest to n, at least step and not below 0.9 n. */
int64_t tti_round_channels(double n, int64_t step);

/* The width multiplier of params, 1 by default. */
double tti_width_multiplier(const tutti_model_params *params);

#endif /* TTI_MODELS_CONV_LAYERS_H */
