/* op_table_test.c - what must hold for every op of the table, on every one of its samples:
 * inference says yes or no as the sample does, the text form reads back, the reference writes every
 * element, the gradient is that of finite differences, and every accepted split over two workers
 * gives the same numbers as no split. */
#include <stdlib.h>

#include "ops/op_samples.h"
#include "ops/op_table.h"
#include "reference_run.h"
#include "t.h"
#include "tutti/ops.h"

static const tti_run run0 = {.seed = 3, .step = 5, .sample0 = 40};

static bool is_float(tutti_dtype dtype) { return dtype <= TUTTI_BF16; }

/* One sample, ready to be built. */
typedef struct sample_case {
    const tti_op *op;
    const tti_sample *sample;
    tutti_type types[TTI_MAX_IN];
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1];
    int n_in;
    char label[256];
} sample_case;

static void each_sample(tutti_status expect, void (*fn)(const sample_case *c)) {
    const tti_op *op;
    for (int i = 0; (op = tti_op_at(i)) != NULL; i++)
        for (const tti_sample *s = op->samples; s && s->in; s++) {
            sample_case c = {.op = op, .sample = s};
            if (s->expect != expect) continue;
            c.n_in = t_parse_sample(op, s, c.types, c.attrs);
            snprintf(c.label, sizeof c.label, "%s(%s){%s}", op->name, s->in,
                     s->attrs ? s->attrs : "");
            fn(&c);
        }
}

static tti_node *build(tutti_graph *g, const sample_case *c) {
    tti_node *node = t_add_node(g, c->op, c->types, c->n_in, c->attrs);
    if (!node && tutti_graph_check(g) != TUTTI_OK) fail_msg("%s: %s", c->label, tutti_last_error());
    return node;
}

static void fill_inputs(const t_reference *r, const tti_node *node, const tti_sample *sample) {
    for (int i = 0; i < node->n_in; i++) {
        double *x = t_reference_of(r, node->in[i]);
        size_t n = (size_t)tti_value_n_elems(node->in[i]);
        for (size_t e = 0; e < n; e++) x[e] = t_sample_elem(sample, node->in[i]->type.dtype, i, e);
    }
}

/* ---- the table ---- */

T_CASE(table_is_complete) {
    T_UNUSED;
    int n = 0;
    tti_op_table_check();
    while (tti_op_at(n)) n++;
    assert_true(n >= 120);
    assert_null(tti_op_find("no such op"));
    assert_null(tti_op_find(""));
    assert_non_null(tti_op_find("conv2d"));
}

/* The first look-up builds the index by name, so this case comes first. */
static const char *find_all(int rank, int n_ranks, void *arg) {
    (void)rank, (void)n_ranks, (void)arg;
    const tti_op *op;
    for (int i = 0; (op = tti_op_at(i)) != NULL; i++)
        if (tti_op_find(op->name) != op) return "an op is not found by its name";
    return NULL;
}

T_CASE(many_threads_may_ask_at_once) {
    T_UNUSED;
    t_ranks(4, find_all, NULL);
}

/* ---- what each row has ---- */

/* Ops that lack something on purpose. */
typedef struct exception {
    const char *op, *why;
} exception;

static const exception no_gradient[] = {
    {"matmul_add", "the pass fuse makes it, after autodiff"},
    {"matmul_wide", "the pass fuse makes it, after autodiff"},
    {"linear_gelu", "the pass fuse makes it, after autodiff"},
    {"linear_add", "the pass fuse makes it, after autodiff"},
    {"conv2d_stats", "the pass fuse makes it, after autodiff"},
    {"conv2d_pool", "the pass fuse makes it, after autodiff"},
    {"bn_apply_pair", "the pass fuse makes it, after autodiff"},
    {"bn_apply_mask", "the pass fuse makes it, after autodiff"},
    {"bn_apply_pool", "the pass fuse makes it, after autodiff"},
    {"add_layer_norm", "the pass fuse makes it, after autodiff"},
    {"cross_entropy_head", "the pass fuse makes it, after autodiff"},
    {"scale_rows", "the pass fuse makes it, after autodiff"},
    {"fused", "the pass fuse makes it, after autodiff"},
    {"bn_stats", "the gradient of bn_apply is that through the statistics too"},
    {"sync_moments", "the gradient of bn_apply is that through the statistics too"},
    {"sync_sum", "it adds gradients"},
    {"bn_running", "running statistics are not trained"},
    {"bn_eval", "evaluation only"},
    {"attention_cached", "generation of text only"},
    {"one_hot", "its input are integers"},
    {"argmax", "its output are integers"},
    {"value_sums", "a metric"},
    {"scatter_add", "it is the gradient of gather"},
    {"sum_rows", "it is the gradient of gather_rows"},
    {"own_rows", "the gradient of entropy_join is that of entropy_part too"},
    {"entropy_part", "the gradient of entropy_join is that of entropy_part too"},
    {"noise", "random numbers have no inputs"},
    {"sgd", "an update"},
    {"adam", "an update"},
    {"adamw", "an update"},
    {"rmsprop", "an update"},
    {"adagrad", "an update"},
    {"lion", "an update"},
    {"lars", "an update"},
    {"lamb", "an update"},
    {"lamb_direction", "an update"},
    {"buffer_update", "an update"},
    {"ema", "an update"},
};

static const exception no_batch_split[] = {
    {"bn_running", "it has statistics of the whole shard"},
    {"fused", "its nodes have rules of their own: fused_test.c"},
};

static const exception no_tensor_split[] = {
    {"matmul_wide", "made after the pass tensor"},
    {"conv2d_stats", "made after the pass tensor"},
    {"conv2d_pool", "made after the pass tensor"},
    {"bn_apply_pair", "made after the pass tensor"},
    {"bn_apply_mask", "made after the pass tensor"},
    {"bn_apply_pool", "made after the pass tensor"},
    {"cross_entropy_and_grad", "made after the pass tensor"},
    {"cross_entropy_and_grad_sums", "made after the pass tensor"},
    {"cross_entropy_head", "made after the pass tensor"},
    {"fused", "made after the pass tensor"},
    {"bn_eval", "few elements per weight: convolutions are whole on each worker"},
    {"group_norm", "few elements per weight: convolutions are whole on each worker"},
    {"lstm", "each step needs the whole state"},
    {"gru", "each step needs the whole state"},
    {"attention_cached", "text is generated on one worker"},
    {"mse", "a loss: its inputs are whole on each worker"},
    {"bce_with_logits", "a loss: its inputs are whole on each worker"},
    {"kl_div", "a loss: its inputs are whole on each worker"},
    {"gather_rows", "a loss: its inputs are whole on each worker"},
    {"sum_rows", "a loss: its inputs are whole on each worker"},
    {"batch_rows", "a loss: its inputs are whole on each worker"},
    {"class_counts", "a metric: its inputs are whole on each worker"},
    {"value_sums", "a metric: its inputs are whole on each worker"},
    {"noise", "it has no inputs"},
    {"entropy_part", "its input is cut by the pass tensor itself"},
    {"entropy_join", "its input is cut by the pass tensor itself"},
};

static const exception no_refused_sample[] = {
    {"stop_gradient", "it takes any one value"},
    {"fused", "its samples are chains: fused_test.c"},
};

static bool is_listed(const tti_op *op, const exception *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].op, op->name) == 0) return true;
    return false;
}

/* Has it, or is listed, but not both: reasons that no longer hold are removed. */
static void need(const tti_op *op, bool has, const char *what, const exception *list, size_t n) {
    bool listed = is_listed(op, list, n);
    if (!has && !listed) fail_msg("%s has no %s, and no reason for it is listed", op->name, what);
    if (has && listed) fail_msg("%s has a %s, and a reason why not is listed", op->name, what);
}

static void check_names(const exception *list, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!tti_op_find(list[i].op)) fail_msg("%s is listed, and is no op", list[i].op);
        assert_true(list[i].why[0] != '\0');
    }
}

typedef struct splits {
    bool batch, other;
} splits;

/* Which splits of its inputs an op accepts for a sample: combination `code` of placements. */
static void try_split(const tti_op *op, const tti_node *node, long code, splits *found) {
    tti_placement in[TTI_MAX_IN], out[TTI_MAX_OUT] = {{TTI_WHOLE, 0}};
    bool first = false;
    for (int i = 0; i < node->n_in; i++) {
        int n_dims = node->in[i]->type.shape.n_dims, k = (int)(code % (n_dims + 2));
        code /= n_dims + 2;
        in[i] = k == 0        ? (tti_placement){TTI_WHOLE, 0}
                : k <= n_dims ? (tti_placement){TTI_SPLIT, k - 1}
                              : (tti_placement){TTI_PARTIAL, 0};
        first |= in[i].kind == TTI_SPLIT && in[i].dim == 0;
    }
    if (op->shard(node, in, out) != TUTTI_OK) return;
    if (first) found->batch = true;
    if (!first) found->other = true;
}

static splits find_splits(const tti_op *op, int *n_good, int *n_bad) {
    splits found = {0};
    *n_good = *n_bad = 0;
    for (const tti_sample *s = op->samples; s && s->in; s++) {
        sample_case c = {.op = op, .sample = s};
        c.n_in = t_parse_sample(op, s, c.types, c.attrs);
        *n_good += s->expect == TUTTI_OK;
        *n_bad += s->expect != TUTTI_OK;
        if (s->expect != TUTTI_OK || op->traits & TTI_SOURCE) continue;
        tutti_graph *g = tutti_graph_create(true);
        tti_node *node = build(g, &c);
        long n = 1;
        for (int i = 0; i < c.n_in && n < 20000; i++) n *= c.types[i].shape.n_dims + 2;
        for (long code = 1; code < n && !(found.batch && found.other); code++)
            try_split(op, node, code, &found);
        tutti_graph_destroy(g);
    }
    return found;
}

/* Gradients are ops of their own, which are made once and not differentiated again. */
static bool is_gradient(const tti_op *op) { return strstr(op->name, "_grad") != NULL; }

#define NEED(op, has, what, list) need(op, has, what, list, TTI_COUNT(list))

T_CASE(each_row_is_complete) {
    T_UNUSED;
    const tti_op *op;
    check_names(no_gradient, TTI_COUNT(no_gradient));
    check_names(no_batch_split, TTI_COUNT(no_batch_split));
    check_names(no_tensor_split, TTI_COUNT(no_tensor_split));
    check_names(no_refused_sample, TTI_COUNT(no_refused_sample));
    for (int i = 0; (op = tti_op_at(i)) != NULL; i++) {
        int n_good, n_bad;
        bool is_source = op->traits & TTI_SOURCE, is_fused = op->traits & TTI_FUSED;
        splits found = find_splits(op, &n_good, &n_bad);
        if (!op->infer || !op->shard || !op->cost) fail_msg("%s has no rule", op->name);
        if (!op->doc || !op->doc[0]) fail_msg("%s has no description", op->name);
        if (n_good == 0 && !is_fused) fail_msg("%s has no sample", op->name);
        NEED(op, n_bad > 0, "sample that is refused", no_refused_sample);
        if (is_source) continue;
        if (!op->reference && !is_fused) fail_msg("%s has no reference", op->name);
        if (!is_gradient(op)) NEED(op, op->grad != NULL, "gradient", no_gradient);
        if (op->traits & TTI_SYNC) continue; /* it joins shards itself */
        NEED(op, found.batch, "split along the batch", no_batch_split);
        if (!is_gradient(op))
            NEED(op, found.other || op->cut, "split along a tensor axis", no_tensor_split);
    }
}

/* ---- infer ---- */

static void check_accepted(const sample_case *c) {
    tutti_graph *g = tutti_graph_create(true);
    build(g, c);
    T_OK(tti_graph_verify(g));
    tutti_graph_destroy(g);
}

static void check_refused(const sample_case *c) {
    tutti_graph *g = tutti_graph_create(true);
    if (t_add_node(g, c->op, c->types, c->n_in, c->attrs)) fail_msg("%s: accepted", c->label);
    tutti_status st = tutti_graph_check(g);
    if (st != c->sample->expect) fail_msg("%s: %s", c->label, tutti_status_text(st));
    char start[80];
    snprintf(start, sizeof start, "%s 'layer': ", c->op->name);
    if (strncmp(tutti_last_error(), start, strlen(start)) != 0)
        fail_msg("%s: message '%s' does not name op and layer", c->label, tutti_last_error());
    tutti_graph_destroy(g);
}

T_CASE(good_samples_are_inferred) {
    T_UNUSED;
    each_sample(TUTTI_OK, check_accepted);
}

T_CASE(bad_samples_are_refused_by_op_and_layer) {
    T_UNUSED;
    each_sample(TUTTI_E_INVALID, check_refused);
}

static void check_text(const sample_case *c) {
    tutti_graph *g = tutti_graph_create(true), *back = NULL;
    tti_str first = {0}, second = {0};
    build(g, c);
    tti_graph_print(g, &first);
    T_OK(tti_graph_read(tti_str_text(&first), "sample", tti_op_find, &back));
    tti_graph_print(back, &second);
    assert_string_equal(tti_str_text(&first), tti_str_text(&second));
    tti_str_free(&first);
    tti_str_free(&second);
    tutti_graph_destroy(back);
    tutti_graph_destroy(g);
}

T_CASE(text_form_reads_back) {
    T_UNUSED;
    each_sample(TUTTI_OK, check_text);
}

/* ---- reference and cost ---- */

static void check_reference(const sample_case *c) {
    if (c->op->traits & TTI_SOURCE) return;
    tutti_graph *g = tutti_graph_create(true);
    tti_node *node = build(g, c);
    t_reference *r = t_reference_create(g);
    fill_inputs(r, node, c->sample);
    for (int k = 0; k < c->op->n_out; k++)
        for (int64_t e = 0; e < tti_value_n_elems(node->out[k]); e++)
            t_reference_of(r, node->out[k])[e] = NAN;
    t_reference_run(r, &run0);
    for (int k = 0; k < c->op->n_out; k++)
        for (int64_t e = 0; e < tti_value_n_elems(node->out[k]); e++)
            if (!isfinite(t_reference_of(r, node->out[k])[e]))
                fail_msg("%s: output %d element %lld is not written", c->label, k, (long long)e);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

T_CASE(references_write_every_element) {
    T_UNUSED;
    each_sample(TUTTI_OK, check_reference);
}

static void check_cost(const sample_case *c) {
    tutti_graph *g = tutti_graph_create(true);
    tti_cost cost = {-1, -1};
    c->op->cost(build(g, c), &cost);
    if (!(cost.flops >= 0 && cost.bytes >= 0 && isfinite(cost.flops + cost.bytes)))
        fail_msg("%s: cost %g flops, %g bytes", c->label, cost.flops, cost.bytes);
    tutti_graph_destroy(g);
}

T_CASE(costs_are_sane) {
    T_UNUSED;
    each_sample(TUTTI_OK, check_cost);
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(4, 6));
    tutti_value *y = tutti_linear(g, x, 8, "fc");
    tti_cost cost;
    T_OK(tutti_graph_check(g));
    y->node->op->cost(y->node, &cost);
    T_NEAR(cost.flops, 2 * 4 * 6 * 8, 0);
    T_NEAR(cost.bytes, 4 * (4 * 6 + 8 * 6 + 8 + 4 * 8), 0);
    tutti_graph_destroy(g);
}

/* ---- gradients ---- */

/* Ops whose gradient is not that of their inputs taken one by one. */
static bool has_own_test(const tti_op *op) {
    return strcmp(op->name, "bn_apply") == 0 || /* through the statistics too: batch_norm_test.c */
           strcmp(op->name, "entropy_join") ==
               0 || /* through the parts too: passes/tensor/tensor_test.c */
           strcmp(op->name, "stop_gradient") == 0; /* none: shape_test.c */
}

/* True if a gradient can flow into output k. */
static bool takes_gradient(const tti_node *node, int k) {
    return is_float(node->out[k]->type.dtype) && !(node->op->saved_out >> k & 1);
}

/* The number whose gradient is tested: every output that takes one, on fixed random numbers. */
static double weight_of(int k, size_t e) {
    return 2 * (double)tti_philox_unit(tti_philox_draw(23, (uint64_t)k, e).v[0]) - 1;
}

/* weights: weight_of each element of the outputs that take a gradient, in order; owned by the
 * caller. */
static double *make_weights(const tti_node *node) {
    size_t n_all = 0, at = 0;
    for (int k = 0; k < node->op->n_out; k++) n_all += (size_t)tti_value_n_elems(node->out[k]);
    double *weights = calloc(n_all + 1, sizeof *weights);
    assert_non_null(weights);
    for (int k = 0; k < node->op->n_out; k++)
        for (size_t e = 0; takes_gradient(node, k) && e < (size_t)tti_value_n_elems(node->out[k]);
             e++)
            weights[at++] = weight_of(k, e);
    return weights;
}

static double projection(const t_reference *r, const tti_node *node, const double *weights) {
    double sum = 0;
    for (int k = 0; k < node->op->n_out; k++) {
        size_t n = (size_t)tti_value_n_elems(node->out[k]);
        if (!takes_gradient(node, k)) continue;
        const double *out = t_reference_of(r, node->out[k]);
        for (size_t e = 0; e < n; e++) sum += *weights++ * out[e];
    }
    return sum;
}

/* d projection / d element e of input i, by central differences.  The step grows with the element
 * only as far as rounding demands, since functions such as softmax are not smoother of large ones;
 * the largest is a power of two, which can be added exactly. */
static double difference(const t_reference *r, const tti_node *node, const double *weights, int i,
                         size_t e) {
    double *x = t_reference_of(r, node->in[i]), old = x[e], p[2];
    double h = fmin(1e-5 * fmax(1, fabs(old)), 0x1p-10);
    for (int side = 0; side < 2; side++) {
        x[e] = old + (side ? h : -h);
        t_reference_run((t_reference *)(uintptr_t)r, &run0);
        p[side] = projection(r, node, weights);
    }
    x[e] = old;
    return (p[1] - p[0]) / (2 * h);
}

/* An input of more elements is compared at every LARGE_STRIDE-th, a prime: no dimension is a
 * multiple of it.  Each op has smaller samples, which are compared as a whole. */
enum { LARGE = 2048, LARGE_STRIDE = 13 };
static size_t stride_of(size_t n) { return n > LARGE ? LARGE_STRIDE : 1; }

/* Emits the gradient of node, asking for input only (-1: all); dx as the op gives it. */
static void emit_gradient(tutti_graph *g, tti_node *node, int only, tutti_value **dx) {
    tutti_value *dy[TTI_MAX_OUT] = {NULL};
    bool need[TTI_MAX_IN];
    for (int k = 0; k < node->op->n_out; k++) {
        char name[16];
        snprintf(name, sizeof name, "dy%d", k);
        if (takes_gradient(node, k))
            dy[k] = tutti_input(g, name, node->out[k]->type.dtype, &node->out[k]->type.shape);
    }
    for (int i = 0; i < node->n_in; i++) {
        need[i] = is_float(node->in[i]->type.dtype) && (only < 0 || only == i);
        dx[i] = NULL;
    }
    T_OK(node->op->grad(g, node, dy, need, dx));
    for (int i = 0; i < node->n_in; i++)
        if (dx[i]) {
            assert_true(need[i]);
            T_EQ(dx[i]->type.dtype, node->in[i]->type.dtype);
            assert_true(tti_shape_equal(&dx[i]->type.shape, &node->in[i]->type.shape));
        }
}

static void fill_dy(const t_reference *r, const tutti_graph *g, const tti_node *node) {
    for (int k = 0; k < node->op->n_out; k++) {
        char name[16];
        snprintf(name, sizeof name, "dy%d", k);
        tti_node *dy = tti_graph_find_source(g, name);
        for (size_t e = 0; dy && e < (size_t)tti_value_n_elems(dy->out[0]); e++)
            t_reference_of(r, dy->out[0])[e] = weight_of(k, e);
    }
}

/* The gradient graph's dx against the differences, for one choice of what is needed. */
static void compare_gradient(const sample_case *c, int only, double *const *expected) {
    tutti_graph *g = tutti_graph_create(true);
    tti_node *node = build(g, c);
    tutti_value *dx[TTI_MAX_IN];
    emit_gradient(g, node, only, dx);
    t_reference *r = t_reference_create(g);
    fill_inputs(r, node, c->sample);
    fill_dy(r, g, node);
    t_reference_run(r, &run0);
    for (int i = 0; i < node->n_in; i++) {
        if (!is_float(node->in[i]->type.dtype) || (only >= 0 && only != i)) continue;
        size_t n = (size_t)tti_value_n_elems(node->in[i]);
        for (size_t e = 0; e < n; e += stride_of(n)) {
            double got = dx[i] ? t_reference_of(r, dx[i])[e] : 0, want = expected[i][e];
            if (!(fabs(got - want) <= 1e-6 * fmax(1, fabs(want))))
                fail_msg("%s: dx[%d][%zu] = %.9g, differences give %.9g", c->label, i, e, got,
                         want);
        }
    }
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

static void check_gradient(const sample_case *c) {
    if (!c->op->grad || has_own_test(c->op)) return;
    tutti_graph *g = tutti_graph_create(true);
    tti_node *node = build(g, c);
    t_reference *r = t_reference_create(g);
    double *expected[TTI_MAX_IN] = {NULL};
    bool any = false;
    for (int k = 0; k < c->op->n_out; k++) any |= takes_gradient(node, k);
    fill_inputs(r, node, c->sample);
    double *weights = make_weights(node);
    for (int i = 0; i < node->n_in; i++) {
        size_t n = (size_t)tti_value_n_elems(node->in[i]);
        expected[i] = calloc(n + 1, sizeof(double));
        for (size_t e = 0; is_float(node->in[i]->type.dtype) && e < n; e += stride_of(n))
            expected[i][e] = difference(r, node, weights, i, e);
    }
    for (int only = -1; any && only < node->n_in; only++) compare_gradient(c, only, expected);
    for (int i = 0; i < node->n_in; i++) free(expected[i]);
    free(weights);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

T_CASE(gradients_are_those_of_finite_differences) {
    T_UNUSED;
    each_sample(TUTTI_OK, check_gradient);
}

/* ---- splits over two workers ---- */

enum { N_WORKERS = 2 };

/* Element e of a part -> its element in the whole, for dimension dim cut in equal parts. */
static size_t whole_index(const tutti_shape *whole, int dim, int worker, size_t e) {
    size_t inner = 1, n = (size_t)whole->dim[dim] / N_WORKERS;
    for (int d = dim + 1; d < whole->n_dims; d++) inner *= (size_t)whole->dim[d];
    size_t outer = e / (n * inner), rest = e % (n * inner);
    return (outer * N_WORKERS + (size_t)worker) * n * inner + rest;
}

/* A worker's elements of an input: x[e], its part of x, or a term of x. */
static double part_of_input(const tutti_shape *whole, tti_placement p, int worker, size_t e,
                            const double *x) {
    if (p.kind == TTI_SPLIT) return x[whole_index(whole, p.dim, worker, e)];
    if (p.kind == TTI_WHOLE) return x[e];
    double term = 0.5 * x[e] + weight_of(7, e);
    return worker == 0 ? term : x[e] - term;
}

/* Builds the node that one worker runs; NULL where a dimension of an output cannot be cut. */
static tti_node *build_part(tutti_graph *g, const sample_case *c, const tti_node *whole,
                            const tti_placement *in, const tti_placement *out) {
    tutti_type types[TTI_MAX_IN];
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1];
    memcpy(attrs, c->attrs, sizeof attrs);
    for (int i = 0; i < c->n_in; i++) {
        types[i] = c->types[i];
        if (in[i].kind == TTI_SPLIT) types[i].shape.dim[in[i].dim] /= N_WORKERS;
    }
    for (int k = 0; k < c->op->n_out; k++)
        if (out[k].kind == TTI_SPLIT && whole->out[k]->type.shape.dim[out[k].dim] % N_WORKERS)
            return NULL;
    for (int a = 0; attrs[a].name; a++)
        if (strcmp(attrs[a].name, "dims") == 0 && out[0].kind == TTI_SPLIT)
            attrs[a].value.v[out[0].dim] /= N_WORKERS;
    tti_node *node = t_add_node(g, c->op, types, c->n_in, attrs);
    if (!node && tutti_graph_check(g) != TUTTI_OK)
        fail_msg("%s: the part does not build: %s", c->label, tutti_last_error());
    return node;
}

static void compare_part(const sample_case *c, const tti_node *whole, const t_reference *r,
                         const tti_placement *out, t_reference *const parts[N_WORKERS],
                         const tti_node *const nodes[N_WORKERS]) {
    for (int k = 0; k < c->op->n_out; k++) {
        if (out[k].kind == TTI_OWN) continue; /* says nothing about the whole */
        const tutti_shape *shape = &whole->out[k]->type.shape;
        const double *want = t_reference_of(r, whole->out[k]);
        for (int w = 0; w < N_WORKERS; w++) {
            size_t n = (size_t)tti_value_n_elems(nodes[w]->out[k]);
            const double *got = t_reference_of(parts[w], nodes[w]->out[k]);
            const double *other = t_reference_of(parts[1 - w], nodes[1 - w]->out[k]);
            for (size_t e = 0; e < n; e++) {
                size_t at = out[k].kind == TTI_SPLIT ? whole_index(shape, out[k].dim, w, e) : e;
                double value = out[k].kind == TTI_PARTIAL ? got[e] + other[e] : got[e];
                if (!(fabs(value - want[at]) <= 1e-9 * fmax(1, fabs(want[at]))))
                    fail_msg("%s: worker %d, output %d (%d along %d), element %zu: %g, not %g",
                             c->label, w, k, (int)out[k].kind, out[k].dim, e, value, want[at]);
            }
        }
    }
}

static void check_split(const sample_case *c, const tti_node *whole, const t_reference *r,
                        const tti_placement *in, const tti_placement *out) {
    tutti_graph *g[N_WORKERS];
    t_reference *parts[N_WORKERS] = {NULL};
    const tti_node *nodes[N_WORKERS];
    bool built = true;
    for (int w = 0; w < N_WORKERS; w++) {
        g[w] = tutti_graph_create(true);
        nodes[w] = build_part(g[w], c, whole, in, out);
        built &= nodes[w] != NULL;
    }
    for (int w = 0; built && w < N_WORKERS; w++) {
        parts[w] = t_reference_create(g[w]);
        for (int i = 0; i < c->n_in; i++) {
            double *x = t_reference_of(parts[w], nodes[w]->in[i]);
            for (size_t e = 0; e < (size_t)tti_value_n_elems(nodes[w]->in[i]); e++)
                x[e] =
                    part_of_input(&c->types[i].shape, in[i], w, e, t_reference_of(r, whole->in[i]));
        }
        tti_run run = run0;
        if (in[0].kind == TTI_SPLIT && in[0].dim == 0)
            run.sample0 += (uint64_t)w * (uint64_t)nodes[w]->in[0]->type.shape.dim[0];
        t_reference_run(parts[w], &run);
    }
    if (built) compare_part(c, whole, r, out, parts, nodes);
    for (int w = 0; w < N_WORKERS; w++) {
        t_reference_destroy(parts[w]);
        tutti_graph_destroy(g[w]);
    }
}

/* Placement number `number` of an input; false where the dimension cannot be cut. */
static bool placement_number(const tutti_type *type, int number, tti_placement *out) {
    *out = (tti_placement){TTI_WHOLE, 0};
    if (number == 0) return true;
    if (number > type->shape.n_dims) {
        *out = (tti_placement){TTI_PARTIAL, 0};
        return is_float(type->dtype);
    }
    *out = (tti_placement){TTI_SPLIT, number - 1};
    return type->shape.dim[number - 1] % N_WORKERS == 0;
}

static int n_splits; /* accepted with at least one input that is not whole */

static void try_placements(const sample_case *c, const tti_node *whole, const t_reference *r,
                           tti_placement *in, int i) {
    if (i < c->n_in) {
        for (int n = 0; n <= c->types[i].shape.n_dims + 1; n++)
            if (placement_number(&c->types[i], n, &in[i])) try_placements(c, whole, r, in, i + 1);
        return;
    }
    tti_placement out[TTI_MAX_OUT] = {{TTI_WHOLE, 0}};
    tutti_status st = c->op->shard(whole, in, out);
    bool all_whole = true;
    for (int k = 0; k < c->n_in; k++) all_whole &= in[k].kind == TTI_WHOLE;
    if (all_whole) {
        if (st != TUTTI_OK) fail_msg("%s: whole inputs are refused", c->label);
        for (int k = 0; k < c->op->n_out; k++) T_EQ(out[k].kind, TTI_WHOLE);
        return;
    }
    if (st != TUTTI_OK) {
        T_EQ(st, TUTTI_E_UNSUPPORTED);
        assert_true(strncmp(tutti_last_error(), c->op->name, strlen(c->op->name)) == 0);
        return;
    }
    n_splits++;
    check_split(c, whole, r, in, out);
}

static void check_shard(const sample_case *c) {
    if (c->op->traits & (TTI_SOURCE | TTI_SYNC)) return; /* TTI_SYNC: its work is done by others */
    tutti_graph *g = tutti_graph_create(true);
    tti_node *node = build(g, c);
    t_reference *r = t_reference_create(g);
    tti_placement in[TTI_MAX_IN];
    fill_inputs(r, node, c->sample);
    t_reference_run(r, &run0);
    try_placements(c, node, r, in, 0);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

T_CASE(accepted_splits_give_the_same_numbers) {
    T_UNUSED;
    n_splits = 0;
    each_sample(TUTTI_OK, check_shard);
    assert_true(n_splits > 800);
}

/* Accepted placements, written as the placements of inputs and outputs; the numbers are checked
 * above. */
static tti_placement placement_code(char code) {
    if (code == 'W') return (tti_placement){TTI_WHOLE, 0};
    if (code == 'P') return (tti_placement){TTI_PARTIAL, 0};
    return (tti_placement){TTI_SPLIT, code - '0'};
}

T_CASE(splits_that_training_needs_are_accepted) {
    T_UNUSED;
    static const struct {
        const char *op, *types, *attrs, *in, *out;
    } rows[] = {
        {"linear", "f32[4,6] f32[8,6] f32[8]", NULL, "0WW", "0"},
        {"linear", "f32[4,6] f32[8,6] f32[8]", NULL, "W00", "1"},
        {"linear", "f32[4,6] f32[8,6]", NULL, "11", "P"},
        {"linear", "f32[4,6] f32[8,6] f32[8]", NULL, "11W", "!"},
        {"linear", "f32[4,6] f32[8,6]", "act=1", "11", "!"},
        {"linear_grad_w", "f32[4,8] f32[4,6]", NULL, "00", "PP"},
        {"linear_grad_w", "f32[4,8] f32[4,6]", NULL, "0W", "!"},
        {"matmul", "f32[4,6] f32[6,8]", NULL, "0W", "0"},
        {"matmul", "f32[4,6] f32[6,8]", NULL, "10", "P"},
        {"matmul", "f32[4,6] f32[6,8]", NULL, "00", "!"},
        {"conv2d", "f32[2,4,5,5] f32[6,4,3,3] f32[6]", NULL, "0WW", "0"},
        {"conv2d", "f32[2,4,5,5] f32[6,4,3,3] f32[6]", NULL, "W00", "1"},
        {"conv2d", "f32[2,4,5,5] f32[6,4,3,3]", NULL, "11", "P"},
        {"conv2d", "f32[2,4,5,5] f32[6,4,3,3] f32[6]", NULL, "2WW", "!"},
        {"conv2d", "f32[2,4,5,5] f32[6,2,3,3]", "groups=2", "11", "!"},
        {"conv2d_grad_w", "f32[2,6,3,3] f32[2,4,5,5]", "kernel=[3,3]", "00", "PP"},
        {"conv2d_pool", "f32[2,3,6,4] f32[4,3,3,3] f32[4]", NULL, "0WW", "00"},
        {"conv2d_pool", "f32[2,3,6,4] f32[4,3,3,3] f32[4]", NULL, "PWW", "!"},
        {"conv2d_pool_grad_x", "f32[2,4,3,2] u8[2,4,3,2] f32[4,3,3,3]", NULL, "00W", "0"},
        {"conv2d_pool_grad_w", "f32[2,4,3,2] u8[2,4,3,2] f32[2,3,6,4]", NULL, "000", "PP"},
        {"conv2d_pool_grad_w", "f32[2,4,3,2] u8[2,4,3,2] f32[2,3,6,4]", NULL, "00W", "!"},
        {"max_pool2d", "f32[2,4,6,4]", "kernel=[2,2]", "0", "00"},
        {"max_pool2d", "f32[2,4,6,4]", "kernel=[2,2]", "2", "!"},
        {"cross_entropy", "f32[4,10] i32[4]", NULL, "00", "PPP0"},
        {"cross_entropy", "f32[4,10] i32[4]", NULL, "0W", "!"},
        {"cross_entropy", "f32[4,10] i32[4]", NULL, "1W", "!"},
        {"cross_entropy_grad", "f32[4,10] i32[4] f32[]", NULL, "00W", "0"},
        {"cross_entropy_grad", "f32[4,10] i32[4] f32[] f32[4,2]", NULL, "00W0", "0"},
        {"mse", "f32[4,6] f32[4,6] i32[4]", NULL, "000", "PP"},
        {"softmax", "f32[4,6]", NULL, "0", "0"},
        {"softmax", "f32[4,6]", NULL, "1", "!"},
        {"mean", "f32[4,6]", "axes=[0]", "0", "!"},
        {"sum", "f32[4,6]", "axes=[0]", "0", "P"},
        {"reshape", "f32[4,6,2]", "dims=[4,12]", "0", "0"},
        {"reshape", "f32[4,6,2]", "dims=[4,12]", "1", "1"},
        {"reshape", "f32[4,6,2]", "dims=[4,12]", "2", "!"},
        {"transpose", "f32[4,6]", "perm=[1,0]", "0", "1"},
        {"concat", "f32[4,6] f32[4,2]", "axis=1", "00", "0"},
        {"concat", "f32[4,6] f32[2,6]", "axis=0", "00", "!"},
        {"slice", "f32[4,6]", "len=2", "0", "!"},
        {"add", "f32[4,6] f32[6]", NULL, "0W", "0"},
        {"add", "f32[4,6] f32[6]", NULL, "10", "1"},
        {"add", "f32[4,6] f32[4,6]", NULL, "0W", "!"},
        {"add", "f32[4,6] f32[4,6]", NULL, "PW", "!"},
        {"relu", "f32[4,6]", NULL, "P", "!"},
        {"dropout", "f32[4,6]", "p=0.5", "0", "0"},
        {"dropout", "f32[4,6]", "p=0.5", "1", "!"},
        {"drop_path", "f32[4,6]", "p=0.5", "0", "0"},
        {"drop_path", "f32[4,6]", "p=0.5", "1", "!"},
        {"layer_norm", "f32[4,6] f32[6] f32[6]", NULL, "0WW", "000"},
        {"layer_norm", "f32[4,6] f32[6] f32[6]", NULL, "100", "!"},
        {"layer_norm_grad_w", "f32[4,6] f32[4,6] f32[4] f32[4]", NULL, "0000", "PP"},
        {"rms_norm_grad_w", "f32[4,6] f32[4,6] f32[4]", NULL, "000", "P"},
        {"group_norm", "f32[4,6,2] f32[6] f32[6]", "groups=2", "0WW", "000"},
        {"group_norm", "f32[4,6,2] f32[6] f32[6]", "groups=2", "2WW", "!"},
        {"bn_eval", "f32[4,6] f32[6] f32[6] f32[6] f32[6]", NULL, "0WWWW", "0"},
        {"embedding", "f32[5,4] i32[2,6]", NULL, "W0", "0"},
        {"embedding", "f32[4,4] i32[2,6]", NULL, "0W", "!"},
        {"embedding_grad", "f32[2,6,4] i32[2,6]", "rows=5", "00", "P"},
        {"attention", "f32[2,4,12] i32[2]", "heads=2", "00", "00"},
        {"attention", "f32[2,4,12]", "heads=2", "1", "!"},
        {"attention_grad", "f32[2,4,12] f32[2,4,4] f32[2,2,4] f32[2,4,4]", "heads=2", "0000", "0"},
        {"cross_entropy_head", "bf16[4,8] bf16[6,8] i32[4] f32[]", NULL, "0W0W", "00PPP"},
        {"rotary", "f32[2,4,12]", "dim=4", "0", "0"},
        {"rotary", "f32[2,4,12]", "dim=4", "1", "!"},
        {"swiglu", "f32[4,6]", NULL, "0", "0"},
        {"swiglu", "f32[4,6]", NULL, "1", "!"},
        {"upsample_bilinear2d", "f32[2,4,3,2]", "out=[6,4]", "0", "0"},
        {"lstm", "f32[2,4,3] f32[8,3] f32[8,2] f32[8] f32[8]", NULL, "0WWWW", "000"},
        {"lstm", "f32[2,4,3] f32[8,3] f32[8,2] f32[8] f32[8]", NULL, "1WWWW", "!"},
        {"bce_with_logits", "f32[4,6] f32[4,6]", NULL, "00", "PP"},
        {"sgd", "f32[4] f32[4] f32[4] f32[8]", NULL, "000W", "00"},
        {"lars", "f32[4] f32[4] f32[4] f32[8] f32[2]", NULL, "000WW", "00"},
        {"sgd", "f32[4] f32[4] f32[4] f32[8]", NULL, "WWPW", "!"},
    };
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        sample_case c = {.op = tti_op_find(rows[i].op)};
        tti_sample sample = {.in = rows[i].types, .attrs = rows[i].attrs};
        c.n_in = t_parse_sample(c.op, &sample, c.types, c.attrs);
        snprintf(c.label, sizeof c.label, "row %zu, %s", i, rows[i].op);
        tutti_graph *g = tutti_graph_create(true);
        tti_node *node = build(g, &c);
        tti_placement in[TTI_MAX_IN], out[TTI_MAX_OUT];
        for (int k = 0; k < c.n_in; k++) in[k] = placement_code(rows[i].in[k]);
        tutti_status st = c.op->shard(node, in, out);
        bool accept = rows[i].out[0] != '!';
        if ((st == TUTTI_OK) != accept) fail_msg("%s: %s", c.label, tutti_last_error());
        for (int k = 0; accept && k < c.op->n_out; k++) {
            tti_placement want = placement_code(rows[i].out[k]);
            T_EQ(out[k].kind, want.kind);
            T_EQ(out[k].dim, want.dim);
        }
        tutti_graph_destroy(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_threads_may_ask_at_once),
        cmocka_unit_test(table_is_complete),
        cmocka_unit_test(each_row_is_complete),
        cmocka_unit_test(good_samples_are_inferred),
        cmocka_unit_test(bad_samples_are_refused_by_op_and_layer),
        cmocka_unit_test(text_form_reads_back),
        cmocka_unit_test(references_write_every_element),
        cmocka_unit_test(costs_are_sane),
        cmocka_unit_test(gradients_are_those_of_finite_differences),
        cmocka_unit_test(accepted_splits_give_the_same_numbers),
        cmocka_unit_test(splits_that_training_needs_are_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
