/* gather_rows.c - values of all shards of the batch in one shard, for losses that compare each
 * sample with all others.
 *
 *   y = gather_rows(x)         the rows of all shards, in the order of the shards
 *   dx = sum_rows(dy)          its gradient: the sum over the shards of what each of them gives to
 *                              the rows of this one, in a tree over the shards
 *   labels = batch_rows(there) the place of each own row among those of all shards
 *
 * The executor moves the values (TTI_SYNC).  A graph has the number of shards from
 * tutti_graph_set_shards; for one shard no node is made. */
#include <string.h>

#include "ir/graph.h"
#include "ops/rules.h"
#include "tutti/losses.h"

static const tti_attr_spec shards_attrs[] = {
    {"n", TTI_ATTR_INT, 1, "number of shards of the batch, >= 1"}, {0}};

/* ---- infer ---- */

static tutti_status check(const tti_node *node, int64_t *n) {
    *n = tti_attr_int(node, "n");
    TTI_TRY(tti_need_dtype(node, 0, TUTTI_F32));
    if (tti_in_shape(node, 0)->n_dims < 1) return tti_node_fail(node, "input 0 has no rows");
    if (*n < 1 || *n > 1 << 20) return tti_node_fail(node, "n is %lld", (long long)*n);
    return TUTTI_OK;
}

static tutti_status gather_infer(const tti_node *node, tutti_type *out) {
    int64_t n;
    TTI_TRY(check(node, &n));
    out[0] = node->in[0]->type;
    if (__builtin_mul_overflow(n, out[0].shape.dim[0], &out[0].shape.dim[0]))
        return tti_node_fail(node, "too many rows");
    return TUTTI_OK;
}

static tutti_status sum_infer(const tti_node *node, tutti_type *out) {
    int64_t n;
    TTI_TRY(check(node, &n));
    out[0] = node->in[0]->type;
    if (out[0].shape.dim[0] % n != 0)
        return tti_node_fail(node, "%lld rows cannot be divided into %lld shards",
                             (long long)out[0].shape.dim[0], (long long)n);
    out[0].shape.dim[0] /= n;
    return TUTTI_OK;
}

static tutti_status batch_rows_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(tti_need_dtype(node, 0, TUTTI_I32));
    TTI_TRY(tti_need_n_dims(node, 0, 1));
    out[0] = node->in[0]->type;
    return TUTTI_OK;
}

/* ---- references: a shard alone, as if it were the first and the others had zeros ---- */

static void gather_reference(const tti_args *a) {
    size_t n = tti_in_n(a->node, 0), n_all = tti_out_n(a->node, 0);
    memcpy(a->out[0], a->in[0], n * sizeof(double));
    for (size_t i = n; i < n_all; i++) a->out[0][i] = 0;
}

static void sum_reference(const tti_args *a) {
    memcpy(a->out[0], a->in[0], tti_out_n(a->node, 0) * sizeof(double));
}

static void batch_rows_reference(const tti_args *a) {
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++)
        a->out[0][i] = a->in[0][i] == -1 ? -1 : (double)(a->run->sample0 + i);
}

static void join_rows(const float *parts, size_t n_parts, size_t n_elems, float *out) {
    memcpy(out, parts, n_parts * n_elems * sizeof *out);
}

/* ---- gradient and placement ---- */

static tutti_status gather_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                const bool *need, tutti_value **dx) {
    if (need[0])
        dx[0] = tti_grad_emit(g, node, "sum_rows", &dy[0], 1,
                              (tti_attr_arg[]){tti_same_attr(node, "n"), {0}});
    return tutti_graph_check(g);
}

static tutti_status gather_shard(const tti_node *node, const tti_placement *in,
                                 tti_placement *out) {
    static const tti_shard_rule rules[] = {{"0", "W"}};
    return tti_shard_match(node, rules, 1, in, out, "only rows of samples are gathered");
}

static tutti_status sum_shard(const tti_node *node, const tti_placement *in, tti_placement *out) {
    static const tti_shard_rule rules[] = {{"P", "0"}};
    return tti_shard_match(node, rules, 1, in, out, "only partial sums are added");
}

/* ---- builders ---- */

tutti_value *tutti_gather_rows(tutti_graph *g, tutti_value *x) {
    if (!g || tti_graph_n_shards(g) == 1) return x;
    return tti_build1(g, "gather_rows", x,
                      (tti_attr_arg[]){TTI_INT("n", tti_graph_n_shards(g)), {0}});
}

tutti_value *tutti_batch_rows(tutti_graph *g, tutti_value *present) {
    return tti_build1(g, "batch_rows", present, NULL);
}

/* ---- records ---- */

static const tti_sample gather_samples[] = {
    {.in = "f32[4,3]", .attrs = "n=2"},
    {.in = "f32[5]", .attrs = "n=1"},
    {.in = "f32[0,3]", .attrs = "n=4"},
    {.in = "f32[]", .attrs = "n=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,3]", .attrs = "n=0", .expect = TUTTI_E_INVALID},
    {.in = "f64[4,3]", .attrs = "n=2", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample sum_samples[] = {
    {.in = "f32[4,3]", .attrs = "n=2"},
    {.in = "f32[5]", .attrs = "n=1"},
    {.in = "f32[0,3]", .attrs = "n=4"},
    {.in = "f32[4,3]", .attrs = "n=3", .expect = TUTTI_E_INVALID},
    {.in = "i32[4]", .attrs = "n=2", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample batch_rows_samples[] = {
    {.in = "i32[7]", .int_lo = -1, .int_hi = 1},
    {.in = "i32[0]"},
    {.in = "f32[7]", .expect = TUTTI_E_INVALID},
    {.in = "i32[7,2]", .expect = TUTTI_E_INVALID},
    {0},
};

const tti_op tti_ops_gather_rows[] = {
    {.name = "gather_rows",
     .doc = "y = the rows of all n shards, in their order",
     .n_in_min = 1,
     .n_in_max = 1,
     .n_out = 1,
     .attrs = shards_attrs,
     .traits = TTI_SYNC,
     .infer = gather_infer,
     .grad = gather_grad,
     .shard = gather_shard,
     .cost = tti_cost_move,
     .reference = gather_reference,
     .join = join_rows,
     .samples = gather_samples},
    {.name = "sum_rows",
     .doc = "y = the shard's own rows of the sum of x over all n shards",
     .n_in_min = 1,
     .n_in_max = 1,
     .n_out = 1,
     .attrs = shards_attrs,
     .traits = TTI_SYNC,
     .infer = sum_infer,
     .shard = sum_shard,
     .cost = tti_cost_elementwise,
     .reference = sum_reference,
     .join = tti_join_sums,
     .samples = sum_samples},
    {.name = "batch_rows",
     .doc = "y_i = number of row i in the batch, -1 where x_i is -1",
     .n_in_min = 1,
     .n_in_max = 1,
     .n_out = 1,
     .traits = TTI_RANDOM,
     .infer = batch_rows_infer,
     .grad = tti_grad_none,
     .shard = tti_shard_same,
     .cost = tti_cost_move,
     .reference = batch_rows_reference,
     .samples = batch_rows_samples},
    {0},
};
