/* embed.c - from integers to vectors.  The one idea: a label outside 0 .. n-1, such as the -1 of a
 * missing row, is a row of zeros. */
#include "ops/rules.h"
#include "tutti/ops.h"

static const tti_attr_spec one_hot_attrs[] = {{"n", TTI_ATTR_INT, 1, "classes, >= 1"}, {0}};

static tutti_status one_hot_infer(const tti_node *node, tutti_type *out) {
    const tutti_shape *labels = tti_in_shape(node, 0);
    int64_t n = tti_attr_int(node, "n");
    TTI_TRY(tti_need_dtype(node, 0, TUTTI_I32));
    if (labels->n_dims == TUTTI_MAX_DIMS)
        return tti_node_fail(node, "labels have %d dimensions, one more is too many",
                             labels->n_dims);
    if (n < 1) return tti_node_fail(node, "n must be >= 1, got %lld", (long long)n);
    out[0] = (tutti_type){TUTTI_F32, *labels};
    out[0].shape.dim[out[0].shape.n_dims++] = n;
    return TUTTI_OK;
}

static void one_hot_reference(const tti_args *a) {
    int64_t n = tti_attr_int(a->node, "n");
    for (size_t i = 0; i < tti_in_n(a->node, 0); i++)
        for (int64_t c = 0; c < n; c++)
            a->out[0][(int64_t)i * n + c] = a->in[0][i] == (double)c ? 1 : 0;
}

static const tti_sample one_hot_samples[] = {
    {.in = "i32[7]", .attrs = "n=4", .int_lo = -1, .int_hi = 4},
    {.in = "i32[2,3]", .attrs = "n=2", .int_lo = 0, .int_hi = 1},
    {.in = "i32[]", .attrs = "n=3", .int_lo = 0, .int_hi = 2},
    {.in = "i32[0]", .attrs = "n=3"},
    {.in = "i32[4]", .attrs = "n=0", .expect = TUTTI_E_INVALID},
    {.in = "f32[4]", .attrs = "n=3", .expect = TUTTI_E_INVALID},
    {0},
};

const tti_op tti_ops_embed[] = {
    {.name = "one_hot",
     .doc = "y[..,c] = [x = c] for c in 0 .. n-1; a label outside gives zeros",
     .n_in_min = 1,
     .n_in_max = 1,
     .n_out = 1,
     .attrs = one_hot_attrs,
     .infer = one_hot_infer,
     .shard = tti_shard_same,
     .cost = tti_cost_move,
     .reference = one_hot_reference,
     .samples = one_hot_samples},
    {0},
};

tutti_value *tutti_one_hot(tutti_graph *g, tutti_value *labels, int64_t n_classes) {
    return tti_build1(g, "one_hot", labels, (tti_attr_arg[]){TTI_INT("n", n_classes), {0}});
}
