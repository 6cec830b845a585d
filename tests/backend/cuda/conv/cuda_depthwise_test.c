/* cuda_depthwise_test.c - depthwise convolutions on a device: one sample has the same bits in every
 * batch, and, if TUTTI_TEST_TIMES is set, a table of times.
 *
 * cuda_ops_test.c compares the kernels with the reference.  The table has each depthwise layer of
 * EfficientNet-B0 and ConvNeXt-T in bf16 with a batch of 128: the bytes that must move, the time of
 * our kernels, what that reaches, and the time of cuDNN, which computes N,C,H,W values here.  Exit
 * code 77 without a device. */
#include <stdio.h>
#include <stdlib.h>

#include "backend/gpus.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/philox.h"
#include "ops/op_samples.h"
#include "ops/op_table.h"
#include "t.h"

enum { FORWARD, GRAD_X, GRAD_W, N_KINDS, N_RUNS = 20 };

static const char *const names[] = {"conv2d", "conv2d_grad_x", "conv2d_grad_w"};
static const tti_device_ops *ops;

typedef struct layer {
    const char *model;
    int n, c, side, kernel, stride;
} layer;

static int result_side(const layer *l) { return (l->side - 1) / l->stride + 1; }

/* x[n,c,side,side], "same" padding; n_in inputs in bf16. */
static tti_node *make_node(tutti_graph *g, const layer *l, int kind, bool last) {
    char in[120], attrs[120];
    int y = result_side(l);
    snprintf(attrs, sizeof attrs, "groups=%d stride=[%d,%d] pad=[%d,%d]", l->c, l->stride,
             l->stride, l->kernel / 2, l->kernel / 2);
    size_t end = strlen(attrs);
    if (kind == FORWARD)
        snprintf(in, sizeof in, "bf16[%d,%d,%d,%d] bf16[%d,1,%d,%d]", l->n, l->c, l->side, l->side,
                 l->c, l->kernel, l->kernel);
    else if (kind == GRAD_X)
        snprintf(in, sizeof in, "bf16[%d,%d,%d,%d] bf16[%d,1,%d,%d]", l->n, l->c, y, y, l->c,
                 l->kernel, l->kernel);
    else
        snprintf(in, sizeof in, "bf16[%d,%d,%d,%d] bf16[%d,%d,%d,%d]", l->n, l->c, y, y, l->n, l->c,
                 l->side, l->side);
    if (kind == GRAD_X)
        snprintf(attrs + end, sizeof attrs - end, " in_hw=[%d,%d]", l->side, l->side);
    if (kind == GRAD_W)
        snprintf(attrs + end, sizeof attrs - end, " kernel=[%d,%d]", l->kernel, l->kernel);
    tti_sample sample = {.in = in, .attrs = attrs};
    const tti_op *op = tti_op_find(names[kind]);
    tutti_type types[TTI_MAX_IN];
    tti_attr_arg list[TTI_MAX_ATTRS + 1];
    int n_in = t_parse_sample(op, &sample, types, list);
    tti_node *node = t_add_node(g, op, types, n_in, list);
    assert_non_null(node);
    tti_layout layout = last ? TTI_CHANNELS_LAST_BYTES : TTI_PLAIN;
    for (int i = 0; i < n_in; i++)
        if (!(op->weights_in >> i & 1)) node->in[i]->layout = layout;
    if (!(op->weights_out & 1)) node->out[0]->layout = layout;
    return node;
}

/* A node with its values on the device. */
typedef struct on_device {
    tutti_graph *g;
    tti_node *node;
    const tti_kernel *kernel;
    void *state, *in[2], *out[2], *scratch;
    size_t n_scratch;
} on_device;

/* Element e of input i is the same in every batch. */
static void fill(const tutti_value *value, int i, void *memory) {
    size_t n = (size_t)tti_value_n_elems(value);
    for (size_t e = 0; e < n; e++) {
        uint32_t number = tti_philox_draw(5, (uint64_t)i, e).v[0] % 2048;
        tti_store_elem(value->type.dtype, memory, e, (double)number / 1024 - 1);
    }
}

/* fills: otherwise zeros, which take no longer. */
static void open_node(on_device *d, const layer *l, int kind, bool last, bool fills) {
    *d = (on_device){.g = tutti_graph_create(true)};
    d->node = make_node(d->g, l, kind, last);
    d->kernel = cuda->select(d->node, false);
    assert_string_equal(d->kernel->name, last ? "depthwise" : "cudnn");
    if (d->kernel->prepare) T_OK(d->kernel->prepare(d->node, &d->state));
    for (int i = 0; i < 2; i++) {
        size_t n = tti_value_n_bytes(d->node->in[i]);
        void *host = calloc(1, n);
        assert_non_null(host);
        if (fills) fill(d->node->in[i], i, host);
        d->in[i] = cuda->alloc(n);
        assert_non_null(d->in[i]);
        T_OK(ops->queues.copy(TTI_QUEUE_COMPUTE, d->in[i], host, n));
        T_OK(ops->queues.sync());
        free(host);
    }
    for (int k = 0; k < d->node->op->n_out; k++)
        d->out[k] = cuda->alloc(tti_value_n_bytes(d->node->out[k]));
    if (d->kernel->scratch_bytes) d->n_scratch = d->kernel->scratch_bytes(d->node, d->state);
    d->scratch = cuda->alloc(d->n_scratch);
}

static void run_node(on_device *d) {
    T_OK(d->kernel->run(
        d->state,
        &(tti_kargs){.node = d->node, .in = d->in, .out = d->out, .scratch = d->scratch}));
}

/* Output 0, n_bytes of it. */
static void *result_of(on_device *d, size_t n_bytes) {
    void *host = malloc(n_bytes);
    assert_non_null(host);
    run_node(d);
    T_OK(ops->queues.copy(TTI_QUEUE_COMPUTE, host, d->out[0], n_bytes));
    T_OK(ops->queues.sync());
    return host;
}

static void close_node(on_device *d) {
    for (int i = 0; i < 2; i++) cuda->release(d->in[i], tti_value_n_bytes(d->node->in[i]));
    for (int k = 0; k < d->node->op->n_out; k++)
        cuda->release(d->out[k], tti_value_n_bytes(d->node->out[k]));
    cuda->release(d->scratch, d->n_scratch);
    if (d->kernel->release) d->kernel->release(d->state);
    tutti_graph_destroy(d->g);
}

/* The first samples in a batch of 3 and of 7: other tiles, the same bits.  dw twice. */
T_CASE(a_sample_has_the_same_bits_in_every_batch) {
    T_UNUSED;
    static const layer layers[] = {
        {"", 7, 48, 7, 7, 1}, {"", 7, 48, 14, 5, 1}, {"", 7, 40, 28, 3, 1}, {"", 7, 40, 28, 5, 2}};
    for (size_t i = 0; i < TTI_COUNT(layers); i++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            layer few = layers[i];
            if (kind != GRAD_W) few.n = 3;
            on_device a, b;
            open_node(&a, &few, kind, true, true);
            open_node(&b, &layers[i], kind, true, true);
            size_t n = tti_value_n_bytes(a.node->out[0]);
            void *first = result_of(&a, n), *second = result_of(&b, n);
            assert_memory_equal(first, second, n);
            free(first);
            free(second);
            close_node(&a);
            close_node(&b);
        }
}

/* Microseconds of a run. */
static double time_of(const layer *l, int kind, bool last) {
    on_device d;
    open_node(&d, l, kind, last, false);
    for (int i = 0; i < 3; i++) run_node(&d);
    T_OK(ops->queues.sync());
    int64_t from = tti_now_ns();
    for (int i = 0; i < N_RUNS; i++) run_node(&d);
    T_OK(ops->queues.sync());
    double us = (double)(tti_now_ns() - from) / 1e3 / N_RUNS;
    close_node(&d);
    return us;
}

/* The forward pass reads x and writes y, dx reads dy and writes dx, dw reads both: as many bytes.
 */
static double bytes_of(const layer *l) {
    double y = result_side(l);
    return 2.0 * l->n * l->c * ((double)l->side * l->side + y * y);
}

static const layer table[] = {
    {"efficientnet_b0", 128, 32, 112, 3, 1}, {"efficientnet_b0", 128, 96, 112, 3, 2},
    {"efficientnet_b0", 128, 144, 56, 3, 1}, {"efficientnet_b0", 128, 144, 56, 5, 2},
    {"efficientnet_b0", 128, 240, 28, 5, 1}, {"efficientnet_b0", 128, 240, 28, 3, 2},
    {"efficientnet_b0", 128, 480, 14, 3, 1}, {"efficientnet_b0", 128, 480, 14, 5, 1},
    {"efficientnet_b0", 128, 672, 14, 5, 1}, {"efficientnet_b0", 128, 672, 14, 5, 2},
    {"efficientnet_b0", 128, 1152, 7, 5, 1}, {"efficientnet_b0", 128, 1152, 7, 3, 1},
    {"convnext_tiny", 128, 96, 56, 7, 1},    {"convnext_tiny", 128, 192, 28, 7, 1},
    {"convnext_tiny", 128, 384, 14, 7, 1},   {"convnext_tiny", 128, 768, 7, 7, 1},
};

T_CASE(times) {
    T_UNUSED;
    if (!getenv("TUTTI_TEST_TIMES")) return;
    bool with_cudnn = strcmp(getenv("TUTTI_TEST_TIMES"), "own") != 0;
    ops->close();
    T_OK(ops->open(&(tti_device_desc){.exact = false})); /* cuDNN's fastest engine */
    printf("%-16s %-14s %5s %4s %6s %8s %8s %8s %8s %8s\n", "model", "op", "c", "side", "window",
           "MB", "least us", "us", "GB/s", "cuDNN us");
    for (size_t i = 0; i < TTI_COUNT(table); i++)
        for (int kind = 0; kind < N_KINDS; kind++) {
            const layer *l = &table[i];
            double bytes = bytes_of(l), us = time_of(l, kind, true);
            printf("%-16s %-14s %5d %4d %3dx%d/%d %8.1f %8.1f %8.1f %8.0f", l->model, names[kind],
                   l->c, l->side, l->kernel, l->kernel, l->stride, bytes / 1e6, bytes / 3.35e6, us,
                   bytes / us / 1e3);
            if (with_cudnn) printf(" %8.1f", time_of(l, kind, false));
            printf("\n");
            fflush(stdout);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_sample_has_the_same_bits_in_every_batch),
                                       cmocka_unit_test(times)};
    int code = find_gpus(1);
    if (code) return code;
    ops = cuda->device;
    T_OK(ops->open(&(tti_device_desc){.exact = true}));
    int n = cmocka_run_group_tests(tests, NULL, NULL);
    ops->close();
    return n ? 1 : 0;
}
