/* layers.c - builders that make parameters: linear, conv2d, batch norm; also dropout and drop_path,
 * which need their names.
 *
 * The name of a layer determines those of its parameters ("conv1.weight") and is part of every
 * message.  Shapes are checked here only as far as the parameters' shapes need it; the op's own
 * infer checks the rest. */
#include <stdio.h>
#include <string.h>

#include "base/philox.h"
#include "ops/rules.h"
#include "tutti/functional.h"

/* Weight and bias [n_out] of a layer; *bias stays NULL without one.  A layer's own init is for the
 * weight; the bias is then zero.  Otherwise both are uniform within 1 / sqrt(fan_in). */
static tutti_value *layer_params(tutti_graph *g, const char *name, const tutti_shape *shape,
                                 const tutti_init *init, tutti_value **bias) {
    int64_t fan_in = 1;
    for (int d = 1; d < shape->n_dims; d++) fan_in *= shape->dim[d];
    const tutti_init usual = {.kind = TUTTI_INIT_FAN_IN_UNIFORM, .fan_in = fan_in}, zero = {0};
    tutti_value *weight = tti_layer_param(g, name, "weight", shape, init ? init : &usual);
    if (bias)
        *bias =
            tti_layer_param(g, name, "bias", &TUTTI_SHAPE(shape->dim[0]), init ? &zero : &usual);
    return weight;
}

/* ---- linear ---- */

tutti_value *tutti_linear_with(tutti_graph *g, tutti_value *x, const tutti_linear_desc *desc,
                               const char *name) {
    if (!tti_can_build(g, "linear", x, name)) return NULL;
    const tutti_shape *shape = &x->type.shape;
    char text[128];
    if (!desc || desc->n_out < 1)
        return tti_build_fail(g, "linear '%s': n_out must be >= 1, is %lld", name,
                              desc ? (long long)desc->n_out : 0LL);
    if (shape->n_dims < 1 || shape->dim[shape->n_dims - 1] < 1)
        return tti_build_fail(g, "linear '%s': input %s has no features", name,
                              tti_type_text(&x->type, text, sizeof text));
    tutti_shape dims = TUTTI_SHAPE(desc->n_out, shape->dim[shape->n_dims - 1]);
    tutti_value *in[3] = {x};
    in[1] = layer_params(g, name, &dims, desc->init, desc->no_bias ? NULL : &in[2]);
    return tti_emit(g, "linear", name, in, desc->no_bias ? 2 : 3, NULL);
}

tutti_value *tutti_linear(tutti_graph *g, tutti_value *x, int64_t n_out, const char *name) {
    return tutti_linear_with(g, x, &(tutti_linear_desc){.n_out = n_out}, name);
}

/* ---- conv2d ---- */

static int64_t or_one(int64_t x) { return x ? x : 1; }

/* The weight's shape [O,C/groups,Kh,Kw], or a failure noted in g. */
static bool conv_weight(tutti_graph *g, const tutti_value *x, const tutti_conv2d_desc *desc,
                        const char *name, tutti_shape *out) {
    const tutti_shape *shape = &x->type.shape;
    int64_t groups = or_one(desc->groups);
    int64_t kernel_h = desc->kernel_h ? desc->kernel_h : desc->kernel;
    int64_t kernel_w = desc->kernel_w ? desc->kernel_w : desc->kernel;
    char text[128];
    if (shape->n_dims != 4 || shape->dim[1] < 1)
        tti_build_fail(g, "conv2d '%s': input must be [N,C,H,W], is %s", name,
                       tti_type_text(&x->type, text, sizeof text));
    else if (desc->n_out < 1 || kernel_h < 1 || kernel_w < 1)
        tti_build_fail(g, "conv2d '%s': n_out %lld and kernel %lldx%lld must be >= 1", name,
                       (long long)desc->n_out, (long long)kernel_h, (long long)kernel_w);
    else if (groups < 1 || shape->dim[1] % groups || desc->n_out % groups)
        tti_build_fail(g,
                       "conv2d '%s': groups %lld must divide %lld input and %lld output channels",
                       name, (long long)groups, (long long)shape->dim[1], (long long)desc->n_out);
    if (tti_graph_has_failed(g)) return false;
    *out = TUTTI_SHAPE(desc->n_out, shape->dim[1] / groups, kernel_h, kernel_w);
    return true;
}

/* Two times the same number, as the attribute key. */
static tti_attr_arg twice(const char *key, int64_t x) {
    return TTI_INTS(key, 2, (int64_t[]){x, x});
}

tutti_value *tutti_conv2d(tutti_graph *g, tutti_value *x, const tutti_conv2d_desc *desc,
                          const char *name) {
    tutti_shape dims;
    if (!tti_can_build(g, "conv2d", x, name)) return NULL;
    if (!desc) return tti_build_fail(g, "conv2d '%s': desc is NULL", name);
    if (!conv_weight(g, x, desc, name, &dims)) return NULL;
    tutti_value *in[3] = {x};
    in[1] = layer_params(g, name, &dims, desc->init, desc->no_bias ? NULL : &in[2]);
    tti_attr_arg attrs[] = {twice("stride", or_one(desc->stride)),
                            twice("pad", desc->pad),
                            twice("dilation", or_one(desc->dilation)),
                            TTI_INT("groups", or_one(desc->groups)),
                            {0}};
    return tti_emit(g, "conv2d", name, in, desc->no_bias ? 2 : 3, attrs);
}

/* ---- batch norm ---- */

enum { FULL_NAME = TTI_MAX_LAYER_NAME + 40 };

static const double default_momentum = 0.1;

typedef struct bn_layer {
    tutti_graph *g;
    const char *name;
    tutti_shape shape; /* [C] */
    double momentum;
} bn_layer;

static const char *full_name(const bn_layer *bn, const char *suffix, char text[FULL_NAME]) {
    snprintf(text, FULL_NAME, "%s.%s", bn->name, suffix);
    return text;
}

static tutti_value *bn_param(const bn_layer *bn, const char *suffix, const tutti_init *init) {
    char text[FULL_NAME];
    return tutti_param(bn->g, full_name(bn, suffix, text), &bn->shape, init, false);
}

static tutti_value *bn_buffer(const bn_layer *bn, const char *suffix, double value) {
    char text[FULL_NAME];
    return tutti_buffer(bn->g, full_name(bn, suffix, text), &bn->shape, value, bn->momentum);
}

tutti_value *tutti_batch_norm2d(tutti_graph *g, tutti_value *x, const tutti_batch_norm_desc *desc,
                                const char *name) {
    const tutti_batch_norm_desc usual = {0};
    char text[128];
    if (!tti_can_build(g, "batch_norm2d", x, name)) return NULL;
    if (!desc) desc = &usual;
    if (x->type.shape.n_dims < 2)
        return tti_build_fail(g, "batch_norm2d '%s': input must be [N,C,..], is %s", name,
                              tti_type_text(&x->type, text, sizeof text));
    const bn_layer bn = {.g = g,
                         .name = name,
                         .shape = TUTTI_SHAPE(x->type.shape.dim[1]),
                         .momentum = desc->momentum != 0 ? desc->momentum : default_momentum};
    const tutti_init ones = {.kind = TUTTI_INIT_CONSTANT, .a = 1};
    tutti_batch_norm_tensors tensors = {.eps = desc->eps, .sync = desc->sync};
    tensors.weight = bn_param(&bn, "weight", desc->init ? desc->init : &ones);
    tensors.bias = bn_param(&bn, "bias", NULL);
    tensors.running_mean = bn_buffer(&bn, "running_mean", 0);
    tensors.running_var = bn_buffer(&bn, "running_var", 1);
    if (tti_graph_has_failed(g)) return NULL;
    return tutti_batch_norm_of(g, x, &tensors, name);
}

/* ---- dropout ---- */

/* Two layers of one name would drop the same elements. */
static bool key_is_taken(const tutti_graph *g, int64_t key) {
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        bool has_key = node->op->traits & TTI_RANDOM && tti_attr_has(node, "key");
        if (has_key && tti_attr_int(node, "key") == key) return true;
    }
    return false;
}

static tutti_value *random_layer(tutti_graph *g, const char *op, tutti_value *x, double p,
                                 const char *name) {
    if (!tti_can_build(g, op, x, name)) return NULL;
    int64_t key = (int64_t)tti_hash_name(name);
    if (key_is_taken(g, key)) return tti_build_fail(g, "%s '%s': the name is taken", op, name);
    return tti_emit(g, op, name, &x, 1,
                    (tti_attr_arg[]){TTI_FLOAT("p", p), TTI_INT("key", key), {0}});
}

tutti_value *tutti_dropout(tutti_graph *g, tutti_value *x, double p, const char *name) {
    return random_layer(g, "dropout", x, p, name);
}

tutti_value *tutti_drop_path(tutti_graph *g, tutti_value *x, double p, const char *name) {
    return random_layer(g, "drop_path", x, p, name);
}
