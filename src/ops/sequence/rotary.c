/* rotary.c - rotary positions (Su et al. 2021): rotates pairs of elements by an angle that grows
 * with the position, so that products of queries and keys depend on their distance.
 *
 * Pairs are (i, i + D/2) of a head of width D, as in GPT-NeoX and LLaMA, and their angles are
 * position * base^(-2 i / D).  Only the first heads of a position are rotated: of qkv, queries and
 * keys.  The gradient is the inverse rotation, the same op with inverse=1. */
#include <math.h>
#include <string.h>

#include "ops/rules.h"
#include "tutti/ops.h"

static const tti_attr_spec rotary_attrs[] = {
    {"heads", TTI_ATTR_INT, 1, "number of heads, from the first one, that are rotated"},
    {"dim", TTI_ATTR_INT, 2, "width of a head, even"},
    {"base", TTI_ATTR_FLOAT, 10000, "base of the angles, > 0"},
    {"start", TTI_ATTR_INT, 0, "position of the first element"},
    {"inverse", TTI_ATTR_INT, 0, "1: rotates back, which is the gradient"},
    {0},
};

static tutti_status rotary_infer(const tti_node *node, tutti_type *out) {
    int64_t heads = tti_attr_int(node, "heads"), dim = tti_attr_int(node, "dim"), width;
    int64_t start = tti_attr_int(node, "start"), inverse = tti_attr_int(node, "inverse");
    double base = tti_attr_float(node, "base");
    TTI_TRY(tti_need_floats(node, 0, 1));
    TTI_TRY(tti_need_n_dims(node, 0, 3));
    if (node->n_in == 2) {
        TTI_TRY(tti_need_dtype(node, 1, TUTTI_I32));
        TTI_TRY(tti_need_n_dims(node, 1, 1));
        if (tti_in_dim(node, 1, 0) != 1) return tti_node_fail(node, "pos must have 1 element");
    }
    if (heads < 0 || dim < 2 || dim % 2 || __builtin_mul_overflow(heads, dim, &width) ||
        width > tti_in_dim(node, 0, 2))
        return tti_node_fail(node, "%lld heads of width %lld are more than %lld elements",
                             (long long)heads, (long long)dim, (long long)tti_in_dim(node, 0, 2));
    if (!(base > 0 && isfinite(base))) return tti_node_fail(node, "base must be > 0, is %g", base);
    if (start < 0 || start > 1 << 30)
        return tti_node_fail(node, "start must be 0 .. 2^30, is %lld", (long long)start);
    if (inverse != 0 && inverse != 1)
        return tti_node_fail(node, "inverse must be 0 or 1, is %lld", (long long)inverse);
    out[0] = node->in[0]->type;
    return TUTTI_OK;
}

static void turn_head(const double *x, double *y, size_t dim, double position, double base) {
    for (size_t i = 0; i < dim / 2; i++) {
        double angle = position * pow(base, -2.0 * (double)i / (double)dim);
        double c = cos(angle), s = sin(angle), a = x[i], b = x[i + dim / 2];
        y[i] = a * c - b * s;
        y[i + dim / 2] = b * c + a * s;
    }
}

static void rotary_reference(const tti_args *a) {
    size_t heads = (size_t)tti_attr_int(a->node, "heads"),
           dim = (size_t)tti_attr_int(a->node, "dim");
    size_t n_t = (size_t)tti_in_dim(a->node, 0, 1), width = (size_t)tti_in_dim(a->node, 0, 2);
    size_t n_rows = (size_t)tti_in_dim(a->node, 0, 0) * n_t;
    double base = tti_attr_float(a->node, "base"), start = (double)tti_attr_int(a->node, "start");
    double sign = tti_attr_int(a->node, "inverse") ? -1 : 1;
    if (a->node->n_in == 2) start += a->in[1][0];
    memcpy(a->out[0], a->in[0], tti_in_n(a->node, 0) * sizeof(double));
    for (size_t r = 0; r < n_rows; r++)
        for (size_t h = 0; h < heads; h++)
            turn_head(a->in[0] + r * width + h * dim, a->out[0] + r * width + h * dim, dim,
                      sign * (start + (double)(r % n_t)), base);
}

static tutti_status rotary_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                const bool *need, tutti_value **dx) {
    tti_attr_arg attrs[] = {tti_same_attr(node, "heads"),
                            tti_same_attr(node, "dim"),
                            tti_same_attr(node, "base"),
                            tti_same_attr(node, "start"),
                            TTI_INT("inverse", !tti_attr_int(node, "inverse")),
                            {0}};
    tutti_value *in[2] = {dy[0], node->n_in == 2 ? node->in[1] : NULL};
    if (need[0]) dx[0] = tti_grad_emit(g, node, "rotary", in, node->n_in, attrs);
    return tutti_graph_check(g);
}

static tutti_status rotary_shard(const tti_node *node, const tti_placement *in,
                                 tti_placement *out) {
    static const tti_shard_rule rules[] = {{"0W", "0"}, {"PW", "P"}};
    return tti_shard_match(node, rules, 2, in, out, "only samples can be split");
}

/* The value may be packed in parts of equal width, such as queries, keys and values: whole parts
 * are turned, and each worker has heads of each. */
static bool rotary_cut(const tti_node *node, int n, const tti_cut *in, tti_cut *out) {
    int64_t dim = tti_attr_int(node, "dim"), turned = tti_attr_int(node, "heads") * dim;
    int64_t part = tti_in_dim(node, 0, 2) / in[0].groups;
    if (!tti_is_packed(in[0], 2, in[0].groups)) return false;
    if (node->n_in == 2 && in[1].kind != TTI_WHOLE) return false;
    if (part == 0 || part % (dim * n) != 0 || turned % part != 0) return false;
    out[0] = in[0];
    return true;
}

static void rotary_emit_cut(tutti_graph *g, const tti_node *node, const tti_axis *axis,
                            const tti_cut *cut, tutti_value *const *in, tutti_value **out) {
    (void)cut;
    tti_emit_n(g, "rotary", node->name, in, node->n_in,
               (tti_attr_arg[]){TTI_INT("heads", tti_attr_int(node, "heads") / axis->n),
                                tti_same_attr(node, "dim"),
                                tti_same_attr(node, "base"),
                                tti_same_attr(node, "start"),
                                tti_same_attr(node, "inverse"),
                                {0}},
               out);
}

static void rotary_cost(const tti_node *node, tti_cost *cost) {
    tti_cost_flops(node, 3.0 * (double)tti_in_n(node, 0), cost);
}

/* ---- builder ---- */

tutti_value *tutti_rotary(tutti_graph *g, tutti_value *x, tutti_value *pos,
                          const tutti_rotary_desc *desc) {
    const tutti_rotary_desc usual = {0};
    if (!desc) desc = &usual;
    tti_attr_arg attrs[] = {TTI_INT("heads", desc->heads),
                            TTI_INT("dim", desc->dim),
                            TTI_FLOAT("base", desc->base != 0 ? desc->base : 10000),
                            TTI_INT("start", desc->start),
                            {0}};
    return tti_emit(g, "rotary", NULL, (tutti_value *[]){x, pos}, pos ? 2 : 1, attrs);
}

/* ---- record ---- */

static const tti_sample rotary_samples[] = {
    {.in = "f32[2,3,12]", .attrs = "heads=2 dim=4"},
    {.in = "f32[2,5,6]", .attrs = "dim=6 base=100 start=7"},
    {.in = "f32[4,1,4] i32[1]", .attrs = "dim=2", .int_lo = 3, .int_hi = 9},
    {.in = "f64[1,2,2]", .attrs = "inverse=1"},
    {.in = "f32[0,3,4]"},
    {.in = "f32[2,3,4]", .attrs = "heads=0"},
    {.in = "f32[2,3,12]", .attrs = "heads=4 dim=4", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,12]", .attrs = "dim=3", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,12]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,12]", .attrs = "base=0", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,12]", .attrs = "start=-1", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3,12] i32[2]", .expect = TUTTI_E_INVALID},
    {0},
};

const tti_op tti_ops_rotary[] = {
    {.name = "rotary",
     .doc = "pairs (i, i + D/2) of the first heads rotated by (start + pos + t) base^(-2 i / D); "
            "inputs x[B,T,..], pos?",
     .n_in_min = 1,
     .n_in_max = 2,
     .n_out = 1,
     .attrs = rotary_attrs,
     .traits = TTI_FOLLOWS,
     .infer = rotary_infer,
     .grad = rotary_grad,
     .shard = rotary_shard,
     .cut = rotary_cut,
     .emit_cut = rotary_emit_cut,
     .cost = rotary_cost,
     .reference = rotary_reference,
     .samples = rotary_samples},
    {0},
};
