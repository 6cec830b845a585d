/* cuda_head_test.c - cross_entropy_head element by element: what cuda_ops_test compares beside the
 * largest of a value, a row's sum at its label, hides the rest of the row.
 *
 * Rows of zeros, whose logits are all equal; rows that do not count; rows whose label is far below
 * the largest logit.  Exit code 77 without a device. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/gpus.h"
#include "base/dtype.h"
#include "base/philox.h"
#include "ops/loss/head.h"
#include "ops/op_table.h"
#include "t.h"

static const tti_device_ops *ops;

typedef struct head_case {
    const char *kernel;
    int64_t n_rows, n_classes, width;
    double far;       /* x of rows with a far label, in those of others */
    double tolerance; /* of each share of a softmax */
} head_case;

enum { X, W, LABELS, DLOSS, N_IN, EXPS = 0, FACTORS, LOSS, COUNT, CORRECT, N_OUT };

typedef struct bench {
    tutti_graph *g;
    tti_node *node;
    void *in[N_IN], *out[N_OUT];
} bench;

static void *host_memory(const tutti_value *value) {
    void *memory = calloc(1, tti_value_n_bytes(value) + 8);
    assert_non_null(memory);
    return memory;
}

static bool is_zero_row(int64_t r) { return r % 11 == 3; }
static bool is_ignored(int64_t r) { return r % 11 == 5; }
static bool is_far(int64_t r) { return r % 11 == 7; }

static int32_t label_of(const head_case *c, int64_t r) {
    if (is_ignored(r)) return -1;
    if (is_zero_row(r)) return r % 2 ? 0 : 5;
    return (int32_t)(tti_philox_draw(3, 1, (uint64_t)r).v[0] % (uint32_t)c->n_classes);
}

static void bench_open(bench *b, const head_case *c) {
    *b = (bench){.g = tutti_graph_create(true)};
    tutti_value *in[N_IN] = {
        tutti_input(b->g, "x", TUTTI_BF16, &TUTTI_SHAPE(c->n_rows, c->width)),
        tutti_input(b->g, "w", TUTTI_BF16, &TUTTI_SHAPE(c->n_classes, c->width)),
        tutti_input(b->g, "labels", TUTTI_I32, &TUTTI_SHAPE(c->n_rows)),
        tutti_input(b->g, "dloss", TUTTI_F32, &(tutti_shape){0})};
    b->node = tti_graph_add(
        b->g, &(tti_node_desc){.op = tti_op_find("cross_entropy_head"), .in = in, .n_in = N_IN});
    assert_non_null(b->node);
    for (int i = 0; i < N_IN; i++) b->in[i] = host_memory(in[i]);
    for (int k = 0; k < N_OUT; k++) b->out[k] = host_memory(b->node->out[k]);
    for (int64_t i = 0; i < c->n_rows * c->width; i++) {
        int64_t r = i / c->width;
        double unit = (double)tti_philox_unit(tti_philox_draw(3, 2, (uint64_t)i).v[0]) * 2 - 1;
        unit *= is_zero_row(r) ? 0 : is_far(r) ? c->far : 1;
        tti_store_elem(TUTTI_BF16, b->in[X], (size_t)i, unit);
    }
    for (int64_t i = 0; i < c->n_classes * c->width; i++) {
        double unit = (double)tti_philox_unit(tti_philox_draw(3, 4, (uint64_t)i).v[0]) * 2 - 1;
        tti_store_elem(TUTTI_BF16, b->in[W], (size_t)i, unit);
    }
    for (int64_t r = 0; r < c->n_rows; r++) ((int32_t *)b->in[LABELS])[r] = label_of(c, r);
    *(float *)b->in[DLOSS] = 0.5f;
}

static void bench_run(bench *b, const head_case *c) {
    void *in[N_IN], *out[N_OUT], *state = NULL;
    const tti_kernel *kernel = cuda->select(b->node, false);
    assert_non_null(kernel);
    assert_string_equal(kernel->name, c->kernel);
    if (kernel->prepare) T_OK(kernel->prepare(b->node, &state));
    size_t n = kernel->scratch_bytes(b->node, state);
    void *scratch = cuda->alloc(n);
    for (int i = 0; i < N_IN; i++) {
        size_t n_bytes = tti_value_n_bytes(b->node->in[i]);
        in[i] = cuda->alloc(n_bytes);
        T_OK(ops->queues.copy(TTI_QUEUE_COMPUTE, in[i], b->in[i], n_bytes));
    }
    for (int k = 0; k < N_OUT; k++) out[k] = cuda->alloc(tti_value_n_bytes(b->node->out[k]));
    T_OK(kernel->run(state, &(tti_kargs){b->node, in, out, scratch, NULL}));
    for (int k = 0; k < N_OUT; k++)
        T_OK(ops->queues.copy(TTI_QUEUE_COMPUTE, b->out[k], out[k],
                              tti_value_n_bytes(b->node->out[k])));
    T_OK(ops->queues.sync());
    for (int i = 0; i < N_IN; i++) cuda->release(in[i], tti_value_n_bytes(b->node->in[i]));
    for (int k = 0; k < N_OUT; k++) cuda->release(out[k], tti_value_n_bytes(b->node->out[k]));
    cuda->release(scratch, n);
    if (kernel->release) kernel->release(state);
}

static void bench_close(bench *b) {
    for (int i = 0; i < N_IN; i++) free(b->in[i]);
    for (int k = 0; k < N_OUT; k++) free(b->out[k]);
    tutti_graph_destroy(b->g);
}

/* The sum of e^(z - z_label) of row r, and z of all classes. */
static double raise_row(const bench *b, const head_case *c, int64_t r, double *z) {
    double sum = 0;
    for (int64_t n = 0; n < c->n_classes; n++) {
        z[n] = 0;
        for (int64_t k = 0; k < c->width; k++)
            z[n] += tti_load_elem(TUTTI_BF16, b->in[X], (size_t)(r * c->width + k)) *
                    tti_load_elem(TUTTI_BF16, b->in[W], (size_t)(n * c->width + k));
    }
    for (int64_t n = 0; n < c->n_classes; n++)
        sum += exp(fmin(z[n] - z[label_of(c, r)], TTI_HEAD_MOST));
    return sum;
}

/* Every share of the softmax, and 1 less at the label. */
static void expect_row(const bench *b, const head_case *c, int64_t r, const double *z, double sum) {
    double factor = (double)((float *)b->out[FACTORS])[r] / 0.5;
    int32_t label = label_of(c, r);
    T_NEAR(factor * sum, 1, c->tolerance);
    for (int64_t n = 0; n < c->n_classes; n++) {
        double share = exp(fmin(z[n] - z[label], TTI_HEAD_MOST)) / sum - (n == label);
        double got =
            factor * tti_load_elem(TUTTI_BF16, b->out[EXPS], (size_t)(r * c->n_classes + n));
        if (!(fabs(got - share) <= 2 * c->tolerance * fabs(share) + 1e-30))
            fail_msg("row %lld class %lld: %g, want %g", (long long)r, (long long)n, got, share);
    }
}

static void check(const head_case *c) {
    bench b;
    double loss = 0, count = 0, correct = 0, *z = calloc((size_t)c->n_classes, sizeof *z);
    assert_non_null(z);
    bench_open(&b, c);
    bench_run(&b, c);
    for (int64_t r = 0; r < c->n_rows; r++) {
        if (is_ignored(r)) {
            assert_true(((float *)b.out[FACTORS])[r] == 0);
            continue;
        }
        double sum = raise_row(&b, c, r, z), best = z[0];
        int64_t first = 0;
        for (int64_t n = 1; n < c->n_classes; n++)
            if (z[n] > best) best = z[n], first = n;
        if (r % 3 == 0 || is_far(r)) expect_row(&b, c, r, z, sum);
        loss += log(sum), count += 1, correct += first == label_of(c, r);
    }
    T_NEAR(*(float *)b.out[LOSS] / loss, 1, c->tolerance);
    assert_true(*(float *)b.out[COUNT] == (float)count);
    assert_true(fabs(*(float *)b.out[CORRECT] - correct) <= 1); /* a near tie */
    bench_close(&b);
    free(z);
}

static const head_case by_tiles = {"wgmma", 1500, 2296, 72, 30, 0.01};
static const head_case by_library = {"cublaslt", 61, 203, 24, 30, 0.01};

T_CASE(the_product_raises_e) {
    T_UNUSED;
    check(&by_tiles);
}

T_CASE(logits_are_turned) {
    T_UNUSED;
    check(&by_library);
}

/* One class has an infinite logit in every row: no row that counts has a gradient. */
static void expect_reported(const head_case *c) {
    bench b;
    bench_open(&b, c);
    for (int64_t r = 0; r < c->n_rows; r++)
        tti_store_elem(TUTTI_BF16, b.in[X], (size_t)(r * c->width), 1);
    tti_store_elem(TUTTI_BF16, b.in[W], (size_t)(7 * c->width), INFINITY);
    bench_run(&b, c);
    assert_true(!isfinite(*(float *)b.out[LOSS]));
    for (int64_t r = 0; r < c->n_rows; r++) assert_true(!(((float *)b.out[FACTORS])[r] > 0));
    bench_close(&b);
}

/* A label's logit is -inf in the rows of one class: the loss is inf, and their gradient is finite.
 */
static void expect_infinite_loss(const head_case *c) {
    bench b;
    bench_open(&b, c);
    int32_t label = label_of(c, 0);
    for (int64_t r = 0; r < c->n_rows; r++)
        tti_store_elem(TUTTI_BF16, b.in[X], (size_t)(r * c->width), 1);
    tti_store_elem(TUTTI_BF16, b.in[W], (size_t)(label * c->width), -INFINITY);
    bench_run(&b, c);
    assert_true(*(float *)b.out[LOSS] == INFINITY);
    for (int64_t r = 0; r < c->n_rows; r++) {
        if (label_of(c, r) != label) continue;
        double others = 0, factor = (double)((float *)b.out[FACTORS])[r] / 0.5;
        for (int64_t n = 0; n < c->n_classes; n++) {
            size_t at = (size_t)(r * c->n_classes + n);
            double share = factor * tti_load_elem(TUTTI_BF16, b.out[EXPS], at);
            if (n == label)
                T_NEAR(share, -1, c->tolerance);
            else
                others += share;
        }
        T_NEAR(others, 1, c->tolerance);
    }
    bench_close(&b);
}

T_CASE(an_infinite_logit_is_reported) {
    T_UNUSED;
    expect_infinite_loss(&by_tiles);
    expect_infinite_loss(&by_library);
    expect_reported(&by_tiles);
    expect_reported(&by_library);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_product_raises_e),
                                       cmocka_unit_test(logits_are_turned),
                                       cmocka_unit_test(an_infinite_logit_is_reported)};
    int code = find_gpus(1);
    if (code) return code;
    ops = cuda->device;
    if (ops->open(&(tti_device_desc){.index = 0, .exact = true}) != TUTTI_OK) return 2;
    int n = cmocka_run_group_tests(tests, NULL, NULL);
    ops->close();
    return n ? 1 : 0;
}
