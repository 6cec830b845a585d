/* rules.c - shape checks, split rules, costs and index arithmetic shared by the families.
 *
 * Nothing here knows an op by name.  A split rule is a row of characters, one for each input and
 * output (rules.h), so that a family states all its rules as a small table and the generic test can
 * try every placement against the reference. */
#include "ops/rules.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { TYPE_TEXT = 128 };

/* ---- infer ---- */

bool tti_is_float(tutti_dtype dtype) {
    return dtype == TUTTI_F32 || dtype == TUTTI_F64 || dtype == TUTTI_F16 || dtype == TUTTI_BF16;
}

tutti_status tti_need_floats(const tti_node *node, int first, int last) {
    for (int i = first; i < last; i++) {
        tutti_dtype dtype = node->in[i]->type.dtype, wanted = node->in[first]->type.dtype;
        if (!tti_is_float(dtype))
            return tti_node_fail(node, "input %d must be floating, is %s", i,
                                 tutti_dtype_text(dtype));
        if (dtype != wanted)
            return tti_node_fail(node, "inputs must have one dtype, input %d is %s and input %d %s",
                                 first, tutti_dtype_text(wanted), i, tutti_dtype_text(dtype));
    }
    return TUTTI_OK;
}

tutti_status tti_need_dtype(const tti_node *node, int i, tutti_dtype dtype) {
    if (node->in[i]->type.dtype == dtype) return TUTTI_OK;
    return tti_node_fail(node, "input %d must be %s, is %s", i, tutti_dtype_text(dtype),
                         tutti_dtype_text(node->in[i]->type.dtype));
}

tutti_status tti_need_type(const tti_node *node, int i, const tutti_type *type) {
    char want[TYPE_TEXT], is[TYPE_TEXT];
    const tutti_type *own = &node->in[i]->type;
    if (own->dtype == type->dtype && tti_shape_equal(&own->shape, &type->shape)) return TUTTI_OK;
    return tti_node_fail(node, "input %d must be %s, is %s", i,
                         tti_type_text(type, want, sizeof want), tti_type_text(own, is, sizeof is));
}

tutti_status tti_need_n_dims(const tti_node *node, int i, int n_dims) {
    char text[TYPE_TEXT];
    if (tti_in_shape(node, i)->n_dims == n_dims) return TUTTI_OK;
    return tti_node_fail(node, "input %d must have %d dimensions, is %s", i, n_dims,
                         tti_type_text(&node->in[i]->type, text, sizeof text));
}

tutti_status tti_need_eps(const tti_node *node) {
    double eps = tti_attr_float(node, "eps");
    if (eps > 0 && isfinite(eps)) return TUTTI_OK;
    return tti_node_fail(node, "eps must be > 0, is %g", eps);
}

tutti_status tti_need_same_shape(const tti_node *node, int i, int j) {
    char a[TYPE_TEXT], b[TYPE_TEXT];
    if (tti_shape_equal(tti_in_shape(node, i), tti_in_shape(node, j))) return TUTTI_OK;
    return tti_node_fail(node, "inputs %d and %d must have one shape, are %s and %s", i, j,
                         tti_type_text(&node->in[i]->type, a, sizeof a),
                         tti_type_text(&node->in[j]->type, b, sizeof b));
}

tutti_status tti_infer_same(const tti_node *node, tutti_type *out) {
    TTI_TRY(tti_need_floats(node, 0, node->n_in));
    for (int i = 1; i < node->n_in; i++) TTI_TRY(tti_need_same_shape(node, 0, i));
    for (int k = 0; k < node->op->n_out; k++) out[k] = node->in[0]->type;
    return TUTTI_OK;
}

/* Dimension d of shape seen as one of n_dims dimensions, aligned at the last. */
static int64_t aligned_dim(const tutti_shape *shape, int n_dims, int d) {
    int own = d - (n_dims - shape->n_dims);
    return own < 0 ? 1 : shape->dim[own];
}

tutti_status tti_broadcast_shapes(const tti_node *node, const tutti_shape *a, const tutti_shape *b,
                                  tutti_shape *out) {
    tutti_shape shape = {.n_dims = TTI_MAX(a->n_dims, b->n_dims)};
    for (int d = 0; d < shape.n_dims; d++) {
        int64_t x = aligned_dim(a, shape.n_dims, d), y = aligned_dim(b, shape.n_dims, d);
        if (x != y && x != 1 && y != 1) {
            char ta[TYPE_TEXT], tb[TYPE_TEXT];
            return tti_node_fail(
                node, "%s and %s do not broadcast",
                tti_type_text(&(tutti_type){node->in[0]->type.dtype, *a}, ta, sizeof ta),
                tti_type_text(&(tutti_type){node->in[0]->type.dtype, *b}, tb, sizeof tb));
        }
        shape.dim[d] = x == 1 ? y : x;
    }
    *out = shape;
    return TUTTI_OK;
}

bool tti_can_broadcast(const tutti_shape *part, const tutti_shape *full) {
    if (part->n_dims > full->n_dims) return false;
    for (int d = 0; d < full->n_dims; d++) {
        int64_t x = aligned_dim(part, full->n_dims, d);
        if (x != 1 && x != full->dim[d]) return false;
    }
    return true;
}

tutti_status tti_get_axis(const tti_node *node, int n_dims, int *axis) {
    int64_t a = tti_attr_int(node, "axis");
    if (a < -n_dims || a >= n_dims)
        return tti_node_fail(node, "axis %lld is outside a shape of %d dimensions", (long long)a,
                             n_dims);
    *axis = (int)(a < 0 ? a + n_dims : a);
    return TUTTI_OK;
}

tutti_shape tti_get_shape(const tti_node *node, const char *attr) {
    const tti_attr *list = tti_attr_get(node, attr);
    tutti_shape shape = {.n_dims = list->n};
    memcpy(shape.dim, list->v, sizeof shape.dim);
    return shape;
}

tutti_status tti_get_pair(const tti_node *node, const char *attr, int64_t lo,
                          const int64_t *fallback, int64_t out[2]) {
    const tti_attr *list = tti_attr_get(node, attr);
    if (list->n == 0 && fallback) {
        out[0] = fallback[0], out[1] = fallback[1];
        return TUTTI_OK;
    }
    if (list->n != 2) return tti_node_fail(node, "%s needs 2 numbers, has %d", attr, list->n);
    for (int i = 0; i < 2; i++) {
        if (list->v[i] < lo || list->v[i] > 1 << 24)
            return tti_node_fail(node, "%s must be %lld .. %d, is %lld", attr, (long long)lo,
                                 1 << 24, (long long)list->v[i]);
        out[i] = list->v[i];
    }
    return TUTTI_OK;
}

tti_attr_arg tti_same_attr(const tti_node *node, const char *name) {
    return (tti_attr_arg){name, *tti_attr_get(node, name)};
}

/* ---- gradients ---- */

tutti_value *tti_grad_emit(tutti_graph *g, const tti_node *node, const char *op,
                           tutti_value *const *in, int n_in, const tti_attr_arg *attrs) {
    return tti_emit(g, op, node->name, in, n_in, attrs);
}

tutti_status tti_grad_none(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                           const bool *need, tutti_value **dx) {
    (void)node, (void)dy, (void)need, (void)dx;
    return tutti_graph_check(g);
}

tutti_status tti_grad_zero(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                           const bool *need, tutti_value **dx) {
    return tti_grad_none(g, node, dy, need, dx);
}

tutti_value *tti_grad_sum_to(tutti_graph *g, const tti_node *node, tutti_value *value,
                             const tutti_value *like) {
    if (!value || tti_shape_equal(&value->type.shape, &like->type.shape)) return value;
    const tutti_shape *to = &like->type.shape;
    return tti_grad_emit(g, node, "sum_to", &value, 1,
                         (tti_attr_arg[]){TTI_INTS("dims", to->n_dims, to->dim), {0}});
}

tutti_value *tti_grad_act(tutti_graph *g, const tti_node *node, tutti_value *dy) {
    if (tti_attr_int(node, "act") != TTI_EPILOGUE_RELU) return dy;
    return tti_grad_emit(g, node, "relu_grad", (tutti_value *[]){node->out[0], dy}, 2, NULL);
}

/* ---- shard ---- */

bool tti_is_split(tti_placement p, int dim) { return p.kind == TTI_SPLIT && p.dim == dim; }

tti_placement tti_split_along(int dim) { return (tti_placement){TTI_SPLIT, dim}; }

static const char *placement_text(tti_placement_kind kind) {
    if (kind == TTI_WHOLE) return "whole";
    return kind == TTI_PARTIAL ? "partial" : "each worker's own";
}

tutti_status tti_shard_refuse(const tti_node *node, const tti_placement *in, const char *why) {
    char text[TTI_MAX_IN * 24] = "";
    size_t n = 0;
    for (int i = 0; i < node->n_in && n < sizeof text; i++) {
        const char *comma = i ? ", " : "";
        if (in[i].kind == TTI_SPLIT)
            n += (size_t)snprintf(text + n, sizeof text - n, "%ssplit along %d", comma, in[i].dim);
        else
            n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", comma,
                                  placement_text(in[i].kind));
    }
    (void)tti_node_fail(node, "%s; the inputs are: %s", why, text);
    return TUTTI_E_UNSUPPORTED;
}

/* True if placement p of a value of n_dims dimensions is what code says.  *any is the dimension
 * bound to d and a so far, -1 when none is. */
static bool code_fits(char code, tti_placement p, int n_dims, int *any) {
    if (code == 'W') return p.kind == TTI_WHOLE;
    if (code == 'P') return p.kind == TTI_PARTIAL;
    if (code == 'O') return p.kind == TTI_OWN;
    if (code == '-' || p.kind != TTI_SPLIT) return false;
    if (code == 'L') return p.dim == n_dims - 1;
    if (code >= '0' && code <= '7') return p.dim == code - '0';
    if (code == 'd' && p.dim == n_dims - 1) return false;
    if (*any >= 0 && *any != p.dim) return false;
    *any = p.dim;
    return true;
}

static bool rule_fits(const tti_node *node, const char *codes, const tti_placement *in, int *any) {
    *any = -1;
    for (int i = 0; codes[i]; i++) {
        if (i >= node->n_in) return true;
        if (!code_fits(codes[i], in[i], tti_in_shape(node, i)->n_dims, any)) return false;
    }
    return true;
}

static tti_placement placement_of(const tti_node *node, int k, char code, int any) {
    if (code == 'W') return (tti_placement){TTI_WHOLE, 0};
    if (code == 'P') return (tti_placement){TTI_PARTIAL, 0};
    if (code == 'O') return (tti_placement){TTI_OWN, 0};
    if (code == 'L') return tti_split_along(node->out[k]->type.shape.n_dims - 1);
    return tti_split_along(code >= '0' && code <= '7' ? code - '0' : any);
}

/* The first rule that fits, as its index; -1: none. */
static int find_rule(const tti_node *node, const tti_shard_rule *rules, int n_rules,
                     const tti_placement *in, int *any) {
    for (int r = 0; r < n_rules; r++)
        if (rule_fits(node, rules[r].in, in, any)) return r;
    return -1;
}

static const tti_shard_rule all_whole = {"WWWWWWWWWWWWWWWW", "WWWWWWWW"};

tutti_status tti_shard_match(const tti_node *node, const tti_shard_rule *rules, int n_rules,
                             const tti_placement *in, tti_placement *out, const char *why) {
    int any;
    const tti_shard_rule *rule = &all_whole;
    if (find_rule(node, rule, 1, in, &any) < 0) {
        int r = find_rule(node, rules, n_rules, in, &any);
        if (r < 0) return tti_shard_refuse(node, in, why);
        rule = &rules[r];
    }
    for (int k = 0; k < node->op->n_out; k++) out[k] = placement_of(node, k, rule->out[k], any);
    return TUTTI_OK;
}

static const char same_why[] = "all inputs must be split alike, and a partial sum cannot be used";

tutti_status tti_shard_same(const tti_node *node, const tti_placement *in, tti_placement *out) {
    static const tti_shard_rule rules[] = {{"aaaaaaaaaaaaaaaa", "aaaaaaaa"}};
    return tti_shard_match(node, rules, 1, in, out, same_why);
}

tutti_status tti_shard_linear(const tti_node *node, const tti_placement *in, tti_placement *out) {
    static const tti_shard_rule rules[] = {{"a", "a"}, {"P", "P"}};
    return tti_shard_match(node, rules, 2, in, out, same_why);
}

tutti_status tti_shard_grad(const tti_node *node, const tti_placement *in, tti_placement *out) {
    static const tti_shard_rule rules[] = {{"aa", "a"}, {"WP", "P"}};
    return tti_shard_match(node, rules, 2, in, out, same_why);
}

tutti_status tti_shard_planes(const tti_node *node, const tti_placement *in, tti_placement *out) {
    static const tti_shard_rule rules[] = {{"00", "00"}, {"11", "11"}};
    return tti_shard_match(node, rules, 2, in, out,
                           "only samples (0) or channels (1) can be split, all inputs alike");
}

/* ---- cut ---- */

bool tti_is_packed(tti_cut c, int dim, int groups) {
    return c.kind == TTI_SPLIT && c.dim == dim && c.groups == groups;
}

bool tti_is_cut(tti_cut c, int dim) { return tti_is_packed(c, dim, 1); }

bool tti_cut_match(const tti_node *node, const char *in_codes, const char *out_codes,
                   const tti_cut *in, tti_cut *out) {
    int any = -1;
    for (int i = 0; i < node->n_in && in_codes[i]; i++) {
        tti_placement p = {in[i].kind, in[i].dim};
        if (in[i].kind == TTI_SPLIT && in[i].groups != 1) return false;
        if (!code_fits(in_codes[i], p, tti_in_shape(node, i)->n_dims, &any)) return false;
    }
    for (int k = 0; k < node->op->n_out; k++) {
        tti_placement p = placement_of(node, k, out_codes[k], any);
        out[k] = (tti_cut){p.kind, p.dim, 1};
    }
    return true;
}

/* ---- cost ---- */

void tti_cost_flops(const tti_node *node, double flops, tti_cost *cost) {
    double bytes = 0;
    for (int i = 0; i < node->n_in; i++) bytes += (double)tti_value_n_bytes(node->in[i]);
    for (int k = 0; k < node->op->n_out; k++) bytes += (double)tti_value_n_bytes(node->out[k]);
    *cost = (tti_cost){flops, bytes};
}

void tti_cost_elementwise(const tti_node *node, tti_cost *cost) {
    tti_cost_flops(node, (double)tti_out_n(node, 0), cost);
}

void tti_cost_move(const tti_node *node, tti_cost *cost) { tti_cost_flops(node, 0, cost); }

void tti_cost_free(const tti_node *node, tti_cost *cost) {
    (void)node;
    *cost = (tti_cost){0, 0};
}

/* ---- index arithmetic ---- */

size_t tti_broadcast_index(const tutti_shape *full, const tutti_shape *part, size_t flat) {
    size_t index = 0, stride = 1;
    for (int d = full->n_dims - 1; d >= full->n_dims - part->n_dims; d--) {
        size_t n = (size_t)full->dim[d], own = (size_t)aligned_dim(part, full->n_dims, d);
        if (own != 1) index += flat % n * stride;
        stride *= own;
        flat /= n;
    }
    return index;
}

tti_axis_view tti_view_axis(const tutti_shape *shape, int axis) {
    tti_axis_view view = {1, (size_t)shape->dim[axis], 1};
    for (int d = 0; d < axis; d++) view.outer *= (size_t)shape->dim[d];
    for (int d = axis + 1; d < shape->n_dims; d++) view.inner *= (size_t)shape->dim[d];
    return view;
}

/* ---- builders ---- */

tutti_value *tti_build1(tutti_graph *g, const char *op, tutti_value *a, const tti_attr_arg *attrs) {
    return tti_emit(g, op, NULL, &a, 1, attrs);
}

tutti_value *tti_build2(tutti_graph *g, const char *op, tutti_value *a, tutti_value *b,
                        const tti_attr_arg *attrs) {
    return tti_emit(g, op, NULL, (tutti_value *[]){a, b}, 2, attrs);
}

size_t tti_left_parts(size_t n) {
    size_t left = 1;
    while (2 * left < n) left *= 2;
    return left;
}

double tti_join_element(const float *parts, size_t n, size_t n_elems, size_t i) {
    if (n == 1) return parts[i];
    size_t left = tti_left_parts(n);
    return tti_join_element(parts, left, n_elems, i) +
           tti_join_element(parts + left * n_elems, n - left, n_elems, i);
}

void tti_join_sums(const float *parts, size_t n_parts, size_t n_elems, float *out) {
    for (size_t i = 0; i < n_elems; i++)
        out[i] = (float)tti_join_element(parts, n_parts, n_elems, i);
}

tutti_value *tti_build_fail(tutti_graph *g, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    tti_graph_fail(g, tti_fail(TUTTI_E_INVALID, "%s", text));
    return NULL;
}

bool tti_can_build(tutti_graph *g, const char *op, const tutti_value *x, const char *name) {
    if (tti_graph_has_failed(g)) return false;
    if (!name || !name[0])
        tti_build_fail(g, "%s: the layer needs a name", op);
    else if (strnlen(name, TTI_MAX_LAYER_NAME + 1) > TTI_MAX_LAYER_NAME)
        tti_build_fail(g, "%s: the name is too long", op);
    else if (!x)
        tti_build_fail(g, "%s '%s': the input is missing (NULL)", op, name);
    return !tti_graph_has_failed(g);
}

tutti_value *tti_layer_param(tutti_graph *g, const char *name, const char *suffix,
                             const tutti_shape *shape, const tutti_init *init) {
    char full[TTI_MAX_LAYER_NAME + 16];
    snprintf(full, sizeof full, "%s.%s", name, suffix);
    return tutti_param(g, full, shape, init, shape->n_dims > 1);
}
