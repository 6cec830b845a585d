/* binary.c - arithmetic on two inputs with numpy's broadcasting, and its two directions as ops.
 *
 * Shapes are aligned at the last dimension; dimensions of 1 repeat. sum_to is the gradient of
 * repeating, broadcast_to the gradient of summing. */
#include <math.h>

#include "ops/rules.h"
#include "tutti/ops.h"

static tutti_status binary_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(tti_need_floats(node, 0, 2));
    out[0].dtype = node->in[0]->type.dtype;
    return tti_broadcast_shapes(node, tti_in_shape(node, 0), tti_in_shape(node, 1), &out[0].shape);
}

/* name, y for p (input 0) and q (input 1), in the reference */
#define ZIP(name, y)                                                                     \
    static void name##_reference(const tti_args *a) {                                    \
        const tutti_shape *full = &a->node->out[0]->type.shape;                          \
        size_t n = tti_out_n(a->node, 0);                                                \
        for (size_t i = 0; i < n; i++) {                                                 \
            double p = a->in[0][tti_broadcast_index(full, tti_in_shape(a->node, 0), i)]; \
            double q = a->in[1][tti_broadcast_index(full, tti_in_shape(a->node, 1), i)]; \
            a->out[0][i] = (y);                                                          \
        }                                                                                \
    }

/* The larger and the smaller, NaN if one is NaN. */
static double larger(double p, double q) { return isnan(p) || p > q ? p : q; }
static double smaller(double p, double q) { return isnan(p) || p < q ? p : q; }

ZIP(add, p + q)
ZIP(sub, p - q)
ZIP(mul, p *q)
ZIP(div, p / q)
ZIP(maximum, larger(p, q))
ZIP(minimum, smaller(p, q))
ZIP(pow, pow(p, q))
ZIP(equal, p == q)
ZIP(less, p < q)
ZIP(less_equal, p <= q)
ZIP(keep, q != 0 ? p : 0)
#undef ZIP

/* ---- gradients ---- */

static tutti_value *both(tutti_graph *g, const tti_node *node, const char *op, tutti_value *a,
                         tutti_value *b) {
    return tti_grad_emit(g, node, op, (tutti_value *[]){a, b}, 2, NULL);
}

/* The gradient of input i, summed over its repeated dimensions. */
static tutti_value *reduced(tutti_graph *g, const tti_node *node, int i, tutti_value *value) {
    return tti_grad_sum_to(g, node, value, node->in[i]);
}

static tutti_status add_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                             const bool *need, tutti_value **dx) {
    for (int i = 0; i < 2; i++)
        if (need[i]) dx[i] = reduced(g, node, i, dy[0]);
    return tutti_graph_check(g);
}

static tutti_status sub_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                             const bool *need, tutti_value **dx) {
    if (need[0]) dx[0] = reduced(g, node, 0, dy[0]);
    if (need[1]) {
        tutti_value *sum = reduced(g, node, 1, dy[0]);
        dx[1] = tti_grad_emit(g, node, "neg", &sum, 1, NULL);
    }
    return tutti_graph_check(g);
}

static tutti_status mul_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                             const bool *need, tutti_value **dx) {
    for (int i = 0; i < 2; i++)
        if (need[i]) dx[i] = reduced(g, node, i, both(g, node, "mul", dy[0], node->in[1 - i]));
    return tutti_graph_check(g);
}

/* y = p / q: dp = dy / q, dq = -dp y */
static tutti_status div_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                             const bool *need, tutti_value **dx) {
    tutti_value *quotient = both(g, node, "div", dy[0], node->in[1]);
    if (need[0]) dx[0] = reduced(g, node, 0, quotient);
    if (need[1]) {
        tutti_value *sum = reduced(g, node, 1, both(g, node, "mul", quotient, node->out[0]));
        dx[1] = tti_grad_emit(g, node, "neg", &sum, 1, NULL);
    }
    return tutti_graph_check(g);
}

/* dy goes to the input that was chosen, half to each where they are equal: the share of input i
 * is (1 + sign(in i - in j)) / 2 for the maximum, and with the signs exchanged for the minimum. */
static tutti_status choice_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                const bool *need, tutti_value **dx, double slope) {
    for (int i = 0; i < 2; i++) {
        if (!need[i]) continue;
        tutti_value *above = both(g, node, "sub", node->in[i], node->in[1 - i]);
        tutti_value *sign = tti_grad_emit(g, node, "sign", &above, 1, NULL);
        tti_attr_arg half[] = {TTI_FLOAT("alpha", slope), TTI_FLOAT("beta", 0.5), {0}};
        tutti_value *share = tti_grad_emit(g, node, "affine", &sign, 1, half);
        dx[i] = reduced(g, node, i, both(g, node, "mul", dy[0], share));
    }
    return tutti_graph_check(g);
}

static tutti_status maximum_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                 const bool *need, tutti_value **dx) {
    return choice_grad(g, node, dy, need, dx, 0.5);
}

static tutti_status minimum_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                 const bool *need, tutti_value **dx) {
    return choice_grad(g, node, dy, need, dx, -0.5);
}

static tutti_value *scaled(tutti_graph *g, const tti_node *node, tutti_value *x, double alpha,
                           double beta) {
    tti_attr_arg attrs[] = {TTI_FLOAT("alpha", alpha), TTI_FLOAT("beta", beta), {0}};
    return tti_grad_emit(g, node, "affine", &x, 1, attrs);
}

/* 1 where x is 0, else 0. */
static tutti_value *is_zero(tutti_graph *g, const tti_node *node, tutti_value *x) {
    return both(g, node, "equal", x, scaled(g, node, x, 0, 0));
}

/* dp = q p^(q - 1) dy, 0 where q is 0; dq = ln(p) y dy, 0 where p is 0: as PyTorch has it. */
static tutti_status pow_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                             const bool *need, tutti_value **dx) {
    tutti_value *p = node->in[0], *q = node->in[1];
    if (need[0]) {
        tutti_value *slope = both(g, node, "pow", p, scaled(g, node, q, 1, -1));
        slope = both(g, node, "mul", both(g, node, "mul", dy[0], q), slope);
        dx[0] = reduced(g, node, 0, both(g, node, "keep", slope, q));
    }
    if (need[1]) {
        tutti_value *log = tti_grad_emit(g, node, "log", &p, 1, NULL);
        tutti_value *slope = both(g, node, "mul", both(g, node, "mul", dy[0], node->out[0]), log);
        tutti_value *kept = scaled(g, node, is_zero(g, node, p), -1, 1);
        dx[1] = reduced(g, node, 1, both(g, node, "keep", slope, kept));
    }
    return tutti_graph_check(g);
}

static tutti_status keep_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                              const bool *need, tutti_value **dx) {
    if (need[0]) dx[0] = reduced(g, node, 0, both(g, node, "keep", dy[0], node->in[1]));
    return tutti_graph_check(g);
}

/* ---- sum_to, broadcast_to ---- */

static const tti_attr_spec to_attrs[] = {{"dims", TTI_ATTR_INTS, 0, "shape of the output"}, {0}};

/* The type of the output, if part can be repeated to full. */
static tutti_status to_infer(const tti_node *node, bool up, tutti_type *out) {
    tutti_shape to = tti_get_shape(node, "dims");
    const tutti_shape *from = tti_in_shape(node, 0);
    TTI_TRY(tti_need_floats(node, 0, 1));
    if (!tti_can_broadcast(up ? from : &to, up ? &to : from)) {
        char a[128], b[128];
        tutti_type wanted = {node->in[0]->type.dtype, to};
        return tti_node_fail(node, "%s does not become %s by broadcasting or its reverse",
                             tti_type_text(&node->in[0]->type, a, sizeof a),
                             tti_type_text(&wanted, b, sizeof b));
    }
    out[0] = (tutti_type){node->in[0]->type.dtype, to};
    return TUTTI_OK;
}

static tutti_status sum_to_infer(const tti_node *node, tutti_type *out) {
    return to_infer(node, false, out);
}

static tutti_status broadcast_to_infer(const tti_node *node, tutti_type *out) {
    return to_infer(node, true, out);
}

static void sum_to_reference(const tti_args *a) {
    const tutti_shape *from = tti_in_shape(a->node, 0), *to = &a->node->out[0]->type.shape;
    size_t n = tti_in_n(a->node, 0), n_out = tti_out_n(a->node, 0);
    for (size_t i = 0; i < n_out; i++) a->out[0][i] = 0;
    for (size_t i = 0; i < n; i++) a->out[0][tti_broadcast_index(from, to, i)] += a->in[0][i];
}

static void broadcast_to_reference(const tti_args *a) {
    const tutti_shape *from = tti_in_shape(a->node, 0), *to = &a->node->out[0]->type.shape;
    size_t n = tti_out_n(a->node, 0);
    for (size_t i = 0; i < n; i++) a->out[0][i] = a->in[0][tti_broadcast_index(to, from, i)];
}

static tutti_status sum_to_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                const bool *need, tutti_value **dx) {
    const tutti_shape *to = tti_in_shape(node, 0);
    tti_attr_arg attrs[] = {TTI_INTS("dims", to->n_dims, to->dim), {0}};
    if (need[0]) dx[0] = tti_grad_emit(g, node, "broadcast_to", dy, 1, attrs);
    return tutti_graph_check(g);
}

static tutti_status broadcast_to_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                      const bool *need, tutti_value **dx) {
    if (need[0]) dx[0] = reduced(g, node, 0, dy[0]);
    return tutti_graph_check(g);
}

/* ---- shard ---- */

/* The output's placement where at least one input is split: all that are must be split along one
 * output dimension, and an input that is whole must repeat along it. */
static tutti_status split_shard(const tti_node *node, const tti_placement *in, tti_placement *out) {
    const tutti_shape *full = &node->out[0]->type.shape;
    int dim = -1;
    for (int i = 0; i < 2; i++) {
        if (in[i].kind != TTI_SPLIT) continue;
        int d = in[i].dim + full->n_dims - tti_in_shape(node, i)->n_dims;
        if (dim >= 0 && d != dim) return tti_shard_refuse(node, in, "split along two dimensions");
        if (tti_in_dim(node, i, in[i].dim) != full->dim[d])
            return tti_shard_refuse(node, in, "split along a dimension that repeats");
        dim = d;
    }
    for (int i = 0; i < 2; i++) {
        int d = dim - (full->n_dims - tti_in_shape(node, i)->n_dims);
        if (in[i].kind == TTI_SPLIT || d < 0) continue;
        if (tti_in_dim(node, i, d) != 1)
            return tti_shard_refuse(node, in,
                                    "a dimension is split in one input and whole in another");
    }
    out[0] = tti_split_along(dim);
    return TUTTI_OK;
}

static bool has_kind(const tti_placement *in, tti_placement_kind kind) {
    return in[0].kind == kind || in[1].kind == kind;
}

/* rules: what partial inputs may do; splits and wholes are the same for every op. */
static tutti_status binary_shard(const tti_node *node, const tti_placement *in, tti_placement *out,
                                 const tti_shard_rule *rules, int n_rules) {
    if (has_kind(in, TTI_PARTIAL) || !has_kind(in, TTI_SPLIT))
        return tti_shard_match(node, rules, n_rules, in, out, "a partial sum cannot be used");
    return split_shard(node, in, out);
}

static tutti_status add_shard(const tti_node *node, const tti_placement *in, tti_placement *out) {
    static const tti_shard_rule rules[] = {{"PP", "P"}};
    return binary_shard(node, in, out, rules, 1);
}

static tutti_status mul_shard(const tti_node *node, const tti_placement *in, tti_placement *out) {
    static const tti_shard_rule rules[] = {{"PW", "P"}, {"WP", "P"}};
    return binary_shard(node, in, out, rules, 2);
}

static tutti_status div_shard(const tti_node *node, const tti_placement *in, tti_placement *out) {
    static const tti_shard_rule rules[] = {{"PW", "P"}};
    return binary_shard(node, in, out, rules, 1);
}

static tutti_status keep_shard(const tti_node *node, const tti_placement *in, tti_placement *out) {
    static const tti_shard_rule rules[] = {{"PW", "P"}};
    return binary_shard(node, in, out, rules, 1);
}

static tutti_status choice_shard(const tti_node *node, const tti_placement *in,
                                 tti_placement *out) {
    return binary_shard(node, in, out, NULL, 0);
}

/* A dimension that stays is split in the output too; one that is summed leaves terms of a sum. */
static tutti_status sum_to_shard(const tti_node *node, const tti_placement *in,
                                 tti_placement *out) {
    const tutti_shape *from = tti_in_shape(node, 0), *to = &node->out[0]->type.shape;
    out[0] = in[0];
    if (in[0].kind != TTI_SPLIT) return TUTTI_OK;
    int d = in[0].dim - (from->n_dims - to->n_dims);
    bool stays = d >= 0 && to->dim[d] == from->dim[in[0].dim];
    out[0] = stays ? tti_split_along(d) : (tti_placement){TTI_PARTIAL, 0};
    return TUTTI_OK;
}

static tutti_status broadcast_to_shard(const tti_node *node, const tti_placement *in,
                                       tti_placement *out) {
    const tutti_shape *from = tti_in_shape(node, 0), *to = &node->out[0]->type.shape;
    out[0] = in[0];
    if (in[0].kind != TTI_SPLIT) return TUTTI_OK;
    int d = in[0].dim + to->n_dims - from->n_dims;
    if (to->dim[d] != from->dim[in[0].dim])
        return tti_shard_refuse(node, in, "split along a dimension that repeats");
    out[0] = tti_split_along(d);
    return TUTTI_OK;
}

static void sum_to_cost(const tti_node *node, tti_cost *cost) {
    tti_cost_flops(node, (double)tti_in_n(node, 0), cost);
}

/* ---- builders ---- */

tutti_value *tutti_add(tutti_graph *g, tutti_value *a, tutti_value *b) {
    return tti_build2(g, "add", a, b, NULL);
}
tutti_value *tutti_sub(tutti_graph *g, tutti_value *a, tutti_value *b) {
    return tti_build2(g, "sub", a, b, NULL);
}
tutti_value *tutti_mul(tutti_graph *g, tutti_value *a, tutti_value *b) {
    return tti_build2(g, "mul", a, b, NULL);
}
tutti_value *tutti_div(tutti_graph *g, tutti_value *a, tutti_value *b) {
    return tti_build2(g, "div", a, b, NULL);
}
tutti_value *tutti_maximum(tutti_graph *g, tutti_value *a, tutti_value *b) {
    return tti_build2(g, "maximum", a, b, NULL);
}
tutti_value *tutti_minimum(tutti_graph *g, tutti_value *a, tutti_value *b) {
    return tti_build2(g, "minimum", a, b, NULL);
}

tutti_value *tutti_pow(tutti_graph *g, tutti_value *a, tutti_value *b) {
    return tti_build2(g, "pow", a, b, NULL);
}
tutti_value *tutti_equal(tutti_graph *g, tutti_value *a, tutti_value *b) {
    return tti_build2(g, "equal", a, b, NULL);
}
tutti_value *tutti_less(tutti_graph *g, tutti_value *a, tutti_value *b) {
    return tti_build2(g, "less", a, b, NULL);
}
tutti_value *tutti_less_equal(tutti_graph *g, tutti_value *a, tutti_value *b) {
    return tti_build2(g, "less_equal", a, b, NULL);
}
tutti_value *tutti_keep(tutti_graph *g, tutti_value *x, tutti_value *mask) {
    return tti_build2(g, "keep", x, mask, NULL);
}
tutti_value *tutti_where(tutti_graph *g, tutti_value *mask, tutti_value *a, tutti_value *b) {
    tutti_value *other = tutti_keep(g, b, tutti_affine(g, mask, -1, 1));
    return tutti_add(g, tutti_keep(g, a, mask), other);
}

static tutti_value *build_to(tutti_graph *g, const char *op, tutti_value *x,
                             const tutti_shape *shape) {
    if (!shape || shape->n_dims < 0 || shape->n_dims > TUTTI_MAX_DIMS)
        return tti_build_fail(g, "%s: a shape of 0 to %d dimensions is needed", op, TUTTI_MAX_DIMS);
    return tti_build1(g, op, x, (tti_attr_arg[]){TTI_INTS("dims", shape->n_dims, shape->dim), {0}});
}

tutti_value *tutti_broadcast_to(tutti_graph *g, tutti_value *x, const tutti_shape *shape) {
    return build_to(g, "broadcast_to", x, shape);
}
tutti_value *tutti_sum_to(tutti_graph *g, tutti_value *x, const tutti_shape *shape) {
    return build_to(g, "sum_to", x, shape);
}

/* ---- records ---- */

static const tti_sample samples[] = {
    {.in = "f32[4,6] f32[4,6]"},
    {.in = "f32[4,6] f32[6]"}, /* a bias */
    {.in = "f32[2,3,4,5] f32[3,1,1]"},
    {.in = "f32[4,1] f32[1,6]"},
    {.in = "f64[] f64[3]"},
    {.in = "f32[0,5] f32[5]"},
    {.in = "f32[4,6] f32[4]", .expect = TUTTI_E_INVALID},
    {.in = "f32[3] f64[3]", .expect = TUTTI_E_INVALID},
    {.in = "i32[3] i32[3]", .int_hi = 5, .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample div_samples[] = {
    {.in = "f32[4,6] f32[4,6]", .lo = 0.5, .hi = 2},
    {.in = "f32[2,3,4] f32[3,1]", .lo = 0.5, .hi = 2},
    {.in = "f32[1] f32[2,6]", .lo = -2, .hi = -0.5},
    {.in = "f32[0,5] f32[]", .lo = 1, .hi = 2},
    {.in = "f32[2,6] f32[2,5]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample pow_samples[] = {
    {.in = "f32[4,6] f32[4,6]", .lo = 0.5, .hi = 2},
    {.in = "f32[2,3,4] f32[3,1]", .lo = 0.5, .hi = 3},
    {.in = "f64[1] f64[2,6]", .lo = 0.25, .hi = 2},
    {.in = "f32[0,5] f32[]", .lo = 1, .hi = 2},
    {.in = "f32[2,6] f32[2,5]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample relation_samples[] = {
    {.in = "f32[4,6] f32[4,6]"},
    {.in = "f32[2,3,4,5] f32[3,1,1]"},
    {.in = "f32[4,1] f32[1,6]"},
    {.in = "f64[] f64[3]"},
    {.in = "f32[0,5] f32[5]"},
    {.in = "f32[4,6] f32[4]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample sum_to_samples[] = {
    {.in = "f32[4,6]", .attrs = "dims=[6]"},
    {.in = "f32[2,3,4,5]", .attrs = "dims=[3,1,1]"},
    {.in = "f32[4,2]", .attrs = "dims=[4,2]"},
    {.in = "f32[2,6]"},
    {.in = "f32[0,5]", .attrs = "dims=[5]"}, /* zeros */
    {.in = "f32[4,6]", .attrs = "dims=[4]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4]", .attrs = "dims=[1,4]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample broadcast_to_samples[] = {
    {.in = "f32[6]", .attrs = "dims=[4,6]"},
    {.in = "f32[4,1]", .attrs = "dims=[3,4,6]"},
    {.in = "f64[]", .attrs = "dims=[3]"},
    {.in = "f32[5]", .attrs = "dims=[0,5]"},
    {.in = "f32[4,6]", .attrs = "dims=[4,7]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6]", .attrs = "dims=[6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[1]", .attrs = "dims=[-1]", .expect = TUTTI_E_INVALID},
    {0},
};

/* The common fields of arithmetic records. */
#define ZIP_OP(op_name, op_doc)                                                \
    .name = #op_name, .doc = op_doc, .n_in_min = 2, .n_in_max = 2, .n_out = 1, \
    .infer = binary_infer, .cost = tti_cost_elementwise, .reference = op_name##_reference

enum { ZIP_TRAITS = TTI_BROADCAST | TTI_IN_PLACE };

const tti_op tti_ops_binary[] = {
    {ZIP_OP(add, "y = a + b"), .grad = add_grad, .traits = ZIP_TRAITS | TTI_COMMUTATIVE,
     .joint = TTI_JOINT_ADD, .epilogue = TTI_EPILOGUE_BIAS, .shard = add_shard, .samples = samples},
    {ZIP_OP(sub, "y = a - b"), .grad = sub_grad, .traits = ZIP_TRAITS, .shard = add_shard,
     .samples = samples},
    {ZIP_OP(mul, "y = a b"), .grad = mul_grad, .traits = ZIP_TRAITS | TTI_COMMUTATIVE,
     .shard = mul_shard, .samples = samples},
    {ZIP_OP(div, "y = a / b"), .grad = div_grad, .traits = ZIP_TRAITS, .shard = div_shard,
     .samples = div_samples},
    {ZIP_OP(maximum, "y = max(a, b); a tie gives each half the gradient"), .grad = maximum_grad,
     .traits = ZIP_TRAITS | TTI_COMMUTATIVE, .shard = choice_shard, .samples = samples},
    {ZIP_OP(minimum, "y = min(a, b); a tie gives each half the gradient"), .grad = minimum_grad,
     .traits = ZIP_TRAITS | TTI_COMMUTATIVE, .shard = choice_shard, .samples = samples},
    {ZIP_OP(pow, "y = a^b"), .grad = pow_grad, .traits = ZIP_TRAITS | TTI_WIDE,
     .shard = choice_shard, .samples = pow_samples},
    {ZIP_OP(equal, "1 where a = b, else 0; no gradient"), .grad = tti_grad_none,
     .traits = ZIP_TRAITS | TTI_COMMUTATIVE, .shard = choice_shard, .samples = relation_samples},
    {ZIP_OP(less, "1 where a < b, else 0; no gradient"), .grad = tti_grad_none,
     .traits = ZIP_TRAITS, .shard = choice_shard, .samples = relation_samples},
    {ZIP_OP(less_equal, "1 where a <= b, else 0; no gradient"), .grad = tti_grad_none,
     .traits = ZIP_TRAITS, .shard = choice_shard, .samples = relation_samples},
    {ZIP_OP(keep, "x where mask is not 0, else 0; inputs x, mask"), .grad = keep_grad,
     .traits = ZIP_TRAITS, .shard = keep_shard, .samples = samples},
    {.name = "sum_to",
     .doc = "x summed to a shape that broadcasts to x's",
     .n_in_min = 1,
     .n_in_max = 1,
     .n_out = 1,
     .attrs = to_attrs,
     .traits = TTI_READS_STRIDED,
     .infer = sum_to_infer,
     .grad = sum_to_grad,
     .shard = sum_to_shard,
     .cost = sum_to_cost,
     .reference = sum_to_reference,
     .samples = sum_to_samples},
    {.name = "broadcast_to",
     .doc = "x repeated to a shape",
     .n_in_min = 1,
     .n_in_max = 1,
     .n_out = 1,
     .attrs = to_attrs,
     .infer = broadcast_to_infer,
     .grad = broadcast_to_grad,
     .shard = broadcast_to_shard,
     .cost = tti_cost_move,
     .reference = broadcast_to_reference,
     .samples = broadcast_to_samples},
    {0},
};
