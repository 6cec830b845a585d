/* random.c - dropout: sets random elements to 0 and scales the others so that the mean stays the
 * same; and drop_path, the same with whole samples (stochastic depth, Huang et al. 2016).
 *
 * The random bits of an element depend on the seed, the layer, the step, the position of its sample
 * in the global batch and its index inside the sample, and on nothing else; so every division of
 * the batch over shards and workers, and the backward pass, use the same mask. */
#include "ops/random.h"
#include "base/philox.h"
#include "ops/draw.h"
#include "ops/rules.h"
#include "ops/tensor_shard.h"
#include "tutti/ops.h"

/* The last three: of the whole value this is a shard (ops/tensor_shard.h). */
static const tti_attr_spec dropout_attrs[] = {
    {"p", TTI_ATTR_FLOAT, 0, "probability of 0, 0 <= p < 1"},
    {"key", TTI_ATTR_INT, 0, "tti_hash_name of the layer"},
    {"cut_dim", TTI_ATTR_INT, -1, "dimension of which this is a shard; -1: whole"},
    {"cut_n", TTI_ATTR_INT, 1, "shards"},
    {"cut_index", TTI_ATTR_INT, 0, "which one"},
    {0},
};

static const tti_attr_spec path_attrs[] = {
    {"p", TTI_ATTR_FLOAT, 0, "probability of 0, 0 <= p < 1"},
    {"key", TTI_ATTR_INT, 0, "tti_hash_name of the layer"},
    {0},
};

enum { SAMPLE_BITS = 28 }; /* draws of four elements per sample */

static size_t sample_elems(const tti_node *node) {
    size_t n = 1;
    for (int d = 1; d < tti_in_shape(node, 0)->n_dims; d++) n *= (size_t)tti_in_dim(node, 0, d);
    return n;
}

static tutti_status mask_infer(const tti_node *node, tutti_type *out) {
    double p = tti_attr_float(node, "p");
    if (!(p >= 0 && p < 1)) return tti_node_fail(node, "p must be >= 0 and < 1, is %g", p);
    size_t n_shards = tti_attr_has(node, "cut_n") ? (size_t)tti_tensor_shard_of(node).n : 1;
    if (sample_elems(node) >= ((size_t)4 << SAMPLE_BITS) / n_shards)
        return tti_node_fail(node, "a sample has %zu elements, fewer than 2^30 are allowed",
                             sample_elems(node) * n_shards);
    return tti_infer_same(node, out);
}

static tutti_status dropout_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(tti_tensor_shard_check(node, tti_in_shape(node, 0)));
    if (tti_attr_int(node, "cut_dim") == 0)
        return tti_node_fail(node, "shards are cut inside samples, not along dimension 0");
    return mask_infer(node, out);
}

tti_sample_runs tti_dropout_runs(const tti_node *node) {
    tti_tensor_shard of = tti_tensor_shard_of(node);
    size_t n = sample_elems(node);
    if (of.dim < 0) return (tti_sample_runs){.n_runs = 1, .n_elems = n, .step = n};
    tti_axis_view v = tti_view_axis(tti_in_shape(node, 0), of.dim);
    size_t run = v.n * v.inner;
    return (tti_sample_runs){.n_runs = run ? n / run : 0,
                             .n_elems = run,
                             .first = (size_t)of.index * run,
                             .step = (size_t)of.n * run};
}

/* A dropped x is 0, computed as x - x, so that NaN and infinities become NaN, as in PyTorch. */
static double dropped(double x) { return x - x; }

static void dropout_reference(const tti_args *a) {
    double p = tti_attr_float(a->node, "p"), scale = 1 / (1 - p);
    uint64_t key = tti_mix64(a->run->seed, (uint64_t)tti_attr_int(a->node, "key"));
    size_t n = tti_in_n(a->node, 0), per_sample = sample_elems(a->node);
    tti_sample_runs runs = tti_dropout_runs(a->node);
    for (size_t i = 0; i < n; i++) {
        size_t own = i % per_sample;
        size_t e = own / runs.n_elems * runs.step + runs.first + own % runs.n_elems;
        uint64_t sample = a->run->sample0 + i / per_sample;
        tti_philox r = tti_philox_draw(key, a->run->step, (sample << SAMPLE_BITS) + e / 4);
        double x = a->in[0][i];
        a->out[0][i] = tti_philox_unit(r.v[e % 4]) >= (float)p ? x * scale : dropped(x);
    }
}

/* One draw for each sample. */
static void drop_path_reference(const tti_args *a) {
    double p = tti_attr_float(a->node, "p"), scale = 1 / (1 - p);
    uint64_t key = tti_mix64(a->run->seed, (uint64_t)tti_attr_int(a->node, "key"));
    size_t n = tti_in_n(a->node, 0), per_sample = sample_elems(a->node);
    for (size_t i = 0; i < n; i++) {
        uint64_t sample = a->run->sample0 + i / per_sample;
        tti_philox r = tti_philox_draw(key, a->run->step, sample << SAMPLE_BITS);
        double x = a->in[0][i];
        a->out[0][i] = tti_philox_unit(r.v[0]) >= (float)p ? x * scale : dropped(x);
    }
}

/* ---- noise: random numbers for the shape of x ---- */

static const tti_attr_spec noise_attrs[] = {
    {"normal", TTI_ATTR_INT, 0, "1: normal with deviation 1; 0: uniform in 0 .. 1"},
    {"key", TTI_ATTR_INT, 0, "tti_hash_name of the layer"},
    {0},
};

static tutti_status noise_infer(const tti_node *node, tutti_type *out) {
    if (tti_in_shape(node, 0)->n_dims < 1) return tti_node_fail(node, "a scalar has no samples");
    if (sample_elems(node) >= (size_t)4 << SAMPLE_BITS)
        return tti_node_fail(node, "a sample has %zu elements, fewer than 2^30 are allowed",
                             sample_elems(node));
    return tti_infer_same(node, out);
}

static void noise_reference(const tti_args *a) {
    uint64_t key = tti_mix64(a->run->seed, (uint64_t)tti_attr_int(a->node, "key"));
    bool normal = tti_attr_int(a->node, "normal") != 0;
    size_t n = tti_in_n(a->node, 0), per_sample = sample_elems(a->node);
    for (size_t i = 0; i < n; i++) {
        size_t e = i % per_sample;
        uint64_t sample = a->run->sample0 + i / per_sample;
        tti_philox r = tti_philox_draw(key, a->run->step, (sample << SAMPLE_BITS) + e / 4);
        double pair[2];
        tti_draw_normals(r.v[e % 4 / 2 * 2], r.v[e % 4 / 2 * 2 + 1], &pair[0], &pair[1]);
        a->out[0][i] = normal ? pair[e % 2] : (double)tti_philox_unit(r.v[e % 4]);
    }
}

/* The numbers follow the samples. */
static tutti_status noise_shard(const tti_node *node, const tti_placement *in, tti_placement *out) {
    static const tti_shard_rule rules[] = {{"0", "0"}};
    return tti_shard_match(node, rules, 1, in, out,
                           "only whole samples can be split: numbers are counted within a sample");
}

tutti_value *tutti_noise(tutti_graph *g, tutti_value *x, bool normal, const char *name) {
    if (!tti_can_build(g, "noise", x, name)) return NULL;
    return tti_emit(
        g, "noise", name, &x, 1,
        (tti_attr_arg[]){
            TTI_INT("normal", normal), TTI_INT("key", (int64_t)tti_hash_name(name)), {0}});
}

static tutti_status drop_path_infer(const tti_node *node, tutti_type *out) {
    if (tti_in_shape(node, 0)->n_dims < 1) return tti_node_fail(node, "a scalar has no samples");
    return mask_infer(node, out);
}

static tutti_status emit_masked(tutti_graph *g, const tti_node *node, const char *op,
                                tutti_value *const *dy, tutti_value **dx) {
    tti_attr_arg attrs[] = {
        tti_same_attr(node, "p"), tti_same_attr(node, "key"), {0}, {0}, {0}, {0}};
    if (tti_attr_has(node, "cut_dim")) {
        attrs[2] = tti_same_attr(node, "cut_dim");
        attrs[3] = tti_same_attr(node, "cut_n");
        attrs[4] = tti_same_attr(node, "cut_index");
    }
    dx[0] = tti_grad_emit(g, node, op, dy, 1, attrs);
    return tutti_graph_check(g);
}

static tutti_status drop_path_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                   const bool *need, tutti_value **dx) {
    return need[0] ? emit_masked(g, node, "drop_path_grad", dy, dx) : TUTTI_OK;
}

static tutti_status dropout_grad(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                 const bool *need, tutti_value **dx) {
    return need[0] ? emit_masked(g, node, "dropout_grad", dy, dx) : TUTTI_OK;
}

/* The mask follows the samples, and is the same for every term of a sum. */
static tutti_status dropout_shard(const tti_node *node, const tti_placement *in,
                                  tti_placement *out) {
    static const tti_shard_rule rules[] = {{"0", "0"}, {"P", "P"}};
    return tti_shard_match(node, rules, 2, in, out,
                           "only whole samples can be split: masks are counted within a sample");
}

/* Any part of the samples, if the elements are counted in the whole; drop_path has none. */
static bool dropout_cut(const tti_node *node, int n, const tti_cut *in, tti_cut *out) {
    (void)n;
    out[0] = in[0];
    bool counted = !tti_attr_has(node, "cut_dim") || tti_attr_int(node, "cut_dim") < 0;
    return counted && in[0].kind == TTI_SPLIT && in[0].dim > 0 && in[0].groups == 1;
}

static void dropout_emit_cut(tutti_graph *g, const tti_node *node, const tti_axis *axis,
                             const tti_cut *cut, tutti_value *const *in, tutti_value **out) {
    out[0] = tti_emit(g, "dropout", node->name, in, 1,
                      (tti_attr_arg[]){tti_same_attr(node, "p"),
                                       tti_same_attr(node, "key"),
                                       TTI_INT("cut_dim", cut[0].dim),
                                       TTI_INT("cut_n", axis->n),
                                       TTI_INT("cut_index", axis->index),
                                       {0}});
}

static void dropout_cost(const tti_node *node, tti_cost *cost) {
    tti_cost_flops(node, 12.0 * (double)tti_out_n(node, 0), cost); /* Philox: 40 per draw of 4 */
}

static const tti_sample samples[] = {
    {.in = "f32[4,6]", .attrs = "p=0.5 key=7"},
    {.in = "f32[2,3,5]", .attrs = "p=0.25 key=-1"},
    {.in = "f32[4,4]"},
    {.in = "f32[2,3,5]", .attrs = "p=0.5 key=7 cut_dim=1 cut_n=4 cut_index=3"},
    {.in = "f32[2,3,5]", .attrs = "p=0.5 key=7 cut_dim=2 cut_n=2 cut_index=1"},
    {.in = "f32[2,3]", .attrs = "cut_n=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3]", .attrs = "cut_dim=0 cut_n=2", .expect = TUTTI_E_INVALID},
    {.in = "f32[1,536870912]", .attrs = "cut_dim=1 cut_n=2", .expect = TUTTI_E_INVALID},
    {.in = "f64[1]", .attrs = "p=0.9 key=1"},
    {.in = "f32[0,6]", .attrs = "p=0.5"},
    {.in = "f32[4,6]", .attrs = "p=1", .expect = TUTTI_E_INVALID},
    {.in = "f32[4,6]", .attrs = "p=-0.1", .expect = TUTTI_E_INVALID},
    {.in = "f32[1,1073741824]", .attrs = "p=0.5", .expect = TUTTI_E_INVALID},
    {.in = "i32[4]", .attrs = "p=0.5", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample noise_samples[] = {
    {.in = "f32[4,6]", .attrs = "key=7"},
    {.in = "f32[2,3,5]", .attrs = "normal=1 key=-1"},
    {.in = "f64[3]"},
    {.in = "f32[70,1]"},
    {.in = "f32[2,301]", .attrs = "normal=1 key=3"},
    {.in = "f32[0,6]"},
    {.in = "f32[]", .expect = TUTTI_E_INVALID},
    {.in = "i32[4]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample path_samples[] = {
    {.in = "f32[4,6]", .attrs = "p=0.5 key=7"},
    {.in = "f32[8,3,5]", .attrs = "p=0.25 key=-1"},
    {.in = "f32[4]"},
    {.in = "f32[0,6]", .attrs = "p=0.5"},
    {.in = "f32[4,0]", .attrs = "p=0.5"},
    {.in = "f32[4,6]", .attrs = "p=1", .expect = TUTTI_E_INVALID},
    {.in = "f32[]", .attrs = "p=0.5", .expect = TUTTI_E_INVALID},
    {0},
};

/* The common fields of these records. */
#define DROPOUT                                                                               \
    .n_in_min = 1, .n_in_max = 1, .n_out = 1, .attrs = dropout_attrs, .infer = dropout_infer, \
    .shard = dropout_shard, .cost = dropout_cost, .reference = dropout_reference,             \
    .samples = samples

#define PATH                                                                                 \
    .n_in_min = 1, .n_in_max = 1, .n_out = 1, .attrs = path_attrs, .infer = drop_path_infer, \
    .shard = dropout_shard, .cost = tti_cost_elementwise, .reference = drop_path_reference,  \
    .samples = path_samples

const tti_op tti_ops_random[] = {
    {.name = "dropout",
     .doc = "y = x / (1 - p) with probability 1 - p, else 0",
     DROPOUT,
     .traits = TTI_RANDOM | TTI_EVAL_IDENTITY | TTI_FOLLOWS | TTI_EITHER_LAYOUT,
     .cut = dropout_cut,
     .emit_cut = dropout_emit_cut,
     .grad = dropout_grad},
    {.name = "dropout_grad",
     .doc = "dx = dy with dropout's mask and scale",
     DROPOUT,
     .traits = TTI_RANDOM | TTI_EITHER_LAYOUT},
    {.name = "drop_path",
     .doc = "y = x / (1 - p) for a fraction 1 - p of the samples, else 0",
     PATH,
     .traits = TTI_RANDOM | TTI_EVAL_IDENTITY | TTI_FOLLOWS | TTI_EITHER_LAYOUT,
     .cut = dropout_cut,
     .grad = drop_path_grad},
    {.name = "drop_path_grad",
     .doc = "dx = dy with drop_path's mask and scale",
     PATH,
     .traits = TTI_RANDOM | TTI_EITHER_LAYOUT},
    {.name = "noise",
     .doc = "random numbers of x's shape, different for each sample; x itself is not read",
     .n_in_min = 1,
     .n_in_max = 1,
     .n_out = 1,
     .attrs = noise_attrs,
     .traits = TTI_RANDOM,
     .infer = noise_infer,
     .shard = noise_shard,
     .cost = dropout_cost,
     .reference = noise_reference,
     .samples = noise_samples},
    {0},
};
