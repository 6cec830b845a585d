/* rules.h - common code of the ops: shape checks, split rules, costs, index arithmetic.
 *
 * Infer helpers fail with tti_node_fail, so that every message starts with the op and the layer.
 * Split rules are tables of short texts (tti_shard_rule), tried in order. */
#ifndef TTI_OPS_RULES_H
#define TTI_OPS_RULES_H

#include "ops/op_table.h"

/* ---- access ---- */

static inline const tutti_shape *tti_in_shape(const tti_node *node, int i) {
    return &node->in[i]->type.shape;
}
static inline int64_t tti_in_dim(const tti_node *node, int i, int dim) {
    return node->in[i]->type.shape.dim[dim];
}
static inline size_t tti_in_n(const tti_node *node, int i) {
    return (size_t)tutti_shape_n_elems(&node->in[i]->type.shape);
}
static inline size_t tti_out_n(const tti_node *node, int k) {
    return (size_t)tutti_shape_n_elems(&node->out[k]->type.shape);
}

/* ---- infer: TUTTI_OK, or TUTTI_E_INVALID with a text ---- */

bool tti_is_float(tutti_dtype dtype);

/* Inputs first .. last-1 are floating and of one dtype. */
tutti_status tti_need_floats(const tti_node *node, int first, int last);
tutti_status tti_need_dtype(const tti_node *node, int i, tutti_dtype dtype);
tutti_status tti_need_type(const tti_node *node, int i, const tutti_type *type);
tutti_status tti_need_n_dims(const tti_node *node, int i, int n_dims);
tutti_status tti_need_same_shape(const tti_node *node, int i, int j);
tutti_status tti_need_eps(const tti_node *node); /* attribute "eps": > 0 */

/* All inputs floating and of one type, which every output has. */
tutti_status tti_infer_same(const tti_node *node, tutti_type *out);

/* numpy's rule for two shapes. */
tutti_status tti_broadcast_shapes(const tti_node *node, const tutti_shape *a, const tutti_shape *b,
                                  tutti_shape *out);
/* True if a value of shape part can be repeated to shape full. */
bool tti_can_broadcast(const tutti_shape *part, const tutti_shape *full);

/* The attribute "axis" for n_dims dimensions; negative ones count from the end. */
tutti_status tti_get_axis(const tti_node *node, int n_dims, int *axis);
/* An attribute that is a list of dimensions, as a shape. */
tutti_shape tti_get_shape(const tti_node *node, const char *attr);
/* An attribute that is a pair, each lo .. 2^24; an empty list gives fallback (unless NULL). */
tutti_status tti_get_pair(const tti_node *node, const char *attr, int64_t lo,
                          const int64_t *fallback, int64_t out[2]);

/* Passes on an attribute of node to a new one. */
tti_attr_arg tti_same_attr(const tti_node *node, const char *name);

/* ---- gradients ---- */

/* value summed to the shape of like, which was repeated to value's shape; value if equal. */
tutti_value *tti_grad_sum_to(tutti_graph *g, const tti_node *node, tutti_value *value,
                             const tutti_value *like);
/* No input gets a gradient: comparisons, and what stops gradients.  As in PyTorch, a parameter with
 * no other way to the loss stays as it is. */
tutti_status tti_grad_none(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                           const bool *need, tutti_value **dx);
/* The gradient of piecewise constant functions is 0, and is left out of sums.  As in PyTorch, a
 * parameter with no other way to the loss has a gradient of zeros: weight decay applies. */
tutti_status tti_grad_zero(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                           const bool *need, tutti_value **dx);
/* Adds one node with node's name: op(in...) -> first output. */
tutti_value *tti_grad_emit(tutti_graph *g, const tti_node *node, const char *op,
                           tutti_value *const *in, int n_in, const tti_attr_arg *attrs);
/* dy for an epilogue: dy through the "act" of node, whose output is y. */
tutti_value *tti_grad_act(tutti_graph *g, const tti_node *node, tutti_value *dy);

/* ---- shard ---- */

/* Fails with TUTTI_E_UNSUPPORTED: why, and the placements of the inputs. */
tutti_status tti_shard_refuse(const tti_node *node, const tti_placement *in, const char *why);

/* One character for each input, one for each output: W whole, P partial, 0..7 divided along that
 * dimension, L divided along the last one, d divided along any dimension but the last, a along any,
 * the same for every d and a; O own (TTI_OWN), - input is absent.  Characters beyond the present
 * inputs are skipped. */
typedef struct tti_shard_rule {
    const char *in, *out;
} tti_shard_rule;

/* The first rule that fits; all inputs whole gives whole outputs; else refuses with why. */
tutti_status tti_shard_match(const tti_node *node, const tti_shard_rule *rules, int n_rules,
                             const tti_placement *in, tti_placement *out, const char *why);

tutti_status tti_shard_same(const tti_node *node, const tti_placement *in, tti_placement *out);
/* As same, and partial sums stay partial sums: for ops that are linear in their one input. */
tutti_status tti_shard_linear(const tti_node *node, const tti_placement *in, tti_placement *out);
/* As same, and linear in the last input: f(x, dy). */
tutti_status tti_shard_grad(const tti_node *node, const tti_placement *in, tti_placement *out);
/* Only along dimension 0 (the samples) or 1 (the channels), the same for all inputs. */
tutti_status tti_shard_planes(const tti_node *node, const tti_placement *in, tti_placement *out);

/* ---- cut: over the workers of a tensor axis ---- */

/* True if c is cut along dim, which is one packed dimension, or `groups` of them. */
bool tti_is_cut(tti_cut c, int dim);
bool tti_is_packed(tti_cut c, int dim, int groups);

/* The characters W, P, O, 0..7 and L of tti_shard_rule, of cuts without packing: true, and out, if
 * the inputs lie as the text in says. */
bool tti_cut_match(const tti_node *node, const char *in_codes, const char *out_codes,
                   const tti_cut *in, tti_cut *out);

bool tti_is_split(tti_placement p, int dim);
tti_placement tti_split_along(int dim);

/* ---- cost ---- */

/* flops as given; bytes: every input and output once. */
void tti_cost_flops(const tti_node *node, double flops, tti_cost *cost);
/* One flop for each element of output 0. */
void tti_cost_elementwise(const tti_node *node, tti_cost *cost);
/* No flops, only bytes. */
void tti_cost_move(const tti_node *node, tti_cost *cost);
/* No cost: sources and views. */
void tti_cost_free(const tti_node *node, tti_cost *cost);

/* ---- index arithmetic of the references ---- */

/* The element of a value of shape part that becomes element flat of shape full when part is
 * repeated (aligned at the last dimension, dimensions of 1 repeat). */
size_t tti_broadcast_index(const tutti_shape *full, const tutti_shape *part, size_t flat);

/* A shape around an axis: [outer, n, inner]. */
typedef struct tti_axis_view {
    size_t outer, n, inner;
} tti_axis_view;
tti_axis_view tti_view_axis(const tutti_shape *shape, int axis);

/* ---- TTI_SYNC: values of n shards, combined in a tree whose form depends on n alone ---- */

/* The largest power of two below n >= 2: the left branch of a tree over n parts. */
size_t tti_left_parts(size_t n);
/* The sum of element i of parts [n][n_elems]. */
double tti_join_element(const float *parts, size_t n, size_t n_elems, size_t i);
/* tti_op.join of a sum. */
void tti_join_sums(const float *parts, size_t n_parts, size_t n_elems, float *out);

/* ---- functions that several families need ---- */

/* gelu by tanh, and its derivative (activation.c). */
double tti_gelu(double x, bool by_tanh);
double tti_gelu_slope(double x, bool by_tanh);

/* matmul, linear and linear_grad_w without the checks and the meaning of further inputs (matmul.c);
 * linear without act: bias is the bias' input, -1: none. */
tutti_status tti_matmul_infer(const tti_node *node, tutti_type *out);
void tti_matmul_product(const tti_args *args);
void tti_matmul_cost(const tti_node *node, tti_cost *cost);
tutti_status tti_linear_infer(const tti_node *node, int bias, tutti_type *out);
void tti_linear_product(const tti_args *args, int bias, double *y);
void tti_linear_cost(const tti_node *node, tti_cost *cost);
tutti_status tti_linear_grad_w_infer(const tti_node *node, tutti_type *out);
void tti_linear_grad_w_product(const tti_args *args);
void tti_linear_grad_w_cost(const tti_node *node, tti_cost *cost);

/* ---- builders ---- */

/* The node op(a) or op(a, b) -> out 0. */
tutti_value *tti_build1(tutti_graph *g, const char *op, tutti_value *a, const tti_attr_arg *attrs);
tutti_value *tti_build2(tutti_graph *g, const char *op, tutti_value *a, tutti_value *b,
                        const tti_attr_arg *attrs);
/* Notes a failure of a builder with the text of tti_fail and returns NULL. */
tutti_value *tti_build_fail(tutti_graph *g, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));

enum { TTI_MAX_LAYER_NAME = 200 };

/* True if a layer can be built: a graph without failure, an input, a name of sensible length. */
bool tti_can_build(tutti_graph *g, const char *op, const tutti_value *x, const char *name);
/* Parameter NAME.SUFFIX; weight decay applies to those of two dimensions or more. */
tutti_value *tti_layer_param(tutti_graph *g, const char *name, const char *suffix,
                             const tutti_shape *shape, const tutti_init *init);

#endif /* TTI_OPS_RULES_H */
