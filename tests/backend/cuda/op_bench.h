/* op_bench.h - one node with its values on the host and on the device; for cuda_ops_test.c.  Header
 * only. */
#ifndef TTI_TESTS_OP_BENCH_H
#define TTI_TESTS_OP_BENCH_H

#include <stdio.h>
#include <stdlib.h>

#include "backend/cpu/cpu.h"
#include "backend/gpus.h"
#include "base/dtype.h"
#include "ops/op_samples.h"
#include "ops/op_table.h"
#include "t.h"

enum { GUARD_BYTES = 256, MAX_NUMBERS = 120 };

static const tti_device_ops *ops;
static int n_tried, n_failed, n_missing;
static int n_ever; /* tried, of all cases */
static const tti_run test_run = {.seed = 11, .step = 3, .sample0 = 40};
static tti_run *device_run;

typedef struct op_case {
    const char *op;
    tti_sample sample;
} op_case;

/* ---- a node, its values on both sides ---- */

typedef struct bench {
    tutti_graph *g;
    tti_node *node;
    char *in[TTI_MAX_IN], *want[TTI_MAX_OUT], *got[TTI_MAX_OUT], *first[TTI_MAX_OUT];
} bench;

static void report(const bench *b, const char *what) {
    tti_str str = {0};
    n_failed++;
    if (n_failed > MAX_NUMBERS) return;
    tti_str_printf(&str, "%s(", b->node->op->name);
    for (int i = 0; i < b->node->n_in; i++) {
        tti_type_print(&str, &b->node->in[i]->type);
        tti_str_add(&str, b->node->in[i]->layout ? "L " : " ");
    }
    for (int i = 0; i < tti_n_attrs(b->node->op); i++)
        tti_str_printf(&str, " %s=%lld/%g", b->node->op->attrs[i].name,
                       (long long)b->node->attrs[i].i, b->node->attrs[i].f);
    printf("FAIL %s): %s\n", tti_str_text(&str), what);
    fflush(stdout);
    tti_str_free(&str);
}

static char *host_memory(size_t n_bytes) {
    char *memory = calloc(1, n_bytes + GUARD_BYTES);
    assert_non_null(memory);
    return memory;
}

static bool is_float(tutti_dtype dtype) {
    return dtype == TUTTI_F32 || dtype == TUTTI_F64 || dtype == TUTTI_F16 || dtype == TUTTI_BF16;
}

/* Which float inputs are turned to which dtype: bit i of mask stands for input i. */
typedef struct variant {
    tutti_dtype dtype;
    unsigned mask;
} variant;

/* False where the op does not take these types. */
static bool bench_open(bench *b, const tti_op *op, const tti_sample *sample, variant v) {
    tutti_type types[TTI_MAX_IN];
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1];
    *b = (bench){.g = tutti_graph_create(true)};
    int n_in = t_parse_sample(op, sample, types, attrs);
    for (int i = 0; i < n_in; i++)
        if (types[i].dtype == TUTTI_F32 && (v.mask >> i & 1)) types[i].dtype = v.dtype;
    b->node = t_add_node(b->g, op, types, n_in, attrs);
    if (!b->node) return false;
    for (int i = 0; i < n_in; i++) {
        b->in[i] = host_memory(tti_value_n_bytes(b->node->in[i]));
        t_fill_input(b->node, sample, i, b->in[i]);
    }
    for (int k = 0; k < op->n_out; k++) {
        size_t n = tti_value_n_bytes(b->node->out[k]);
        b->want[k] = host_memory(n), b->got[k] = host_memory(n), b->first[k] = host_memory(n);
    }
    return true;
}

static void bench_close(bench *b) {
    for (int i = 0; i < TTI_MAX_IN; i++) free(b->in[i]);
    for (int k = 0; k < TTI_MAX_OUT; k++) free(b->want[k]), free(b->got[k]), free(b->first[k]);
    tutti_graph_destroy(b->g);
}

static void run_reference(bench *b) {
    const tti_kernel *kernel = &tti_reference_kernel;
    void *scratch = host_memory(kernel->scratch_bytes(b->node, NULL));
    T_OK(kernel->run(NULL, &(tti_kargs){.node = b->node,
                                        .in = (void *const *)b->in,
                                        .out = (void *const *)b->want,
                                        .scratch = scratch,
                                        .run = &test_run}));
    free(scratch);
}

/* ---- the device's side ---- */

typedef struct device_value {
    char *memory;
    size_t n_bytes;
} device_value;

static device_value to_device(const void *from, size_t n_bytes) {
    device_value v = {cuda->alloc(n_bytes + GUARD_BYTES), n_bytes};
    char *host = malloc(n_bytes + GUARD_BYTES);
    assert_true(v.memory && host);
    memset(host, 0xA5, n_bytes + GUARD_BYTES);
    if (from) memcpy(host, from, n_bytes);
    T_OK(ops->queues.copy(TTI_QUEUE_COMPUTE, v.memory, host, n_bytes + GUARD_BYTES));
    T_OK(ops->queues.sync());
    free(host);
    return v;
}

/* Back to the host; false when the guard after it was written to. */
static bool from_device(device_value v, void *to) {
    unsigned char guard[GUARD_BYTES];
    if (to) T_OK(ops->queues.copy(TTI_QUEUE_COMPUTE, to, v.memory, v.n_bytes));
    T_OK(ops->queues.copy(TTI_QUEUE_COMPUTE, guard, v.memory + v.n_bytes, GUARD_BYTES));
    T_OK(ops->queues.sync());
    for (int i = 0; i < GUARD_BYTES; i++)
        if (guard[i] != 0xA5) return false;
    return true;
}

typedef struct on_device {
    device_value in[TTI_MAX_IN], out[TTI_MAX_OUT], scratch;
    void *state;
    const tti_kernel *kernel;
} on_device;

static int n_replaced(const tti_node *node) {
    return node->op->traits & TTI_UPDATE ? node->op->n_out : 0;
}

static bool device_open(bench *b, on_device *d) {
    const tti_node *node = b->node;
    *d = (on_device){.kernel = cuda->select(node, false)};
    if (!d->kernel) {
        n_missing++;
        report(b, "there is no kernel");
        return false;
    }
    if (d->kernel->prepare && d->kernel->prepare(node, &d->state) != TUTTI_OK) {
        report(b, tutti_last_error());
        return false;
    }
    for (int i = 0; i < node->n_in; i++)
        d->in[i] = to_device(b->in[i], tti_value_n_bytes(node->in[i]));
    for (int k = 0; k < node->op->n_out; k++)
        d->out[k] = to_device(NULL, tti_value_n_bytes(node->out[k]));
    size_t n = d->kernel->scratch_bytes ? d->kernel->scratch_bytes(node, d->state) : 0;
    d->scratch = to_device(NULL, n);
    return true;
}

static void device_close(on_device *d) {
    device_value *const lists[] = {d->in, d->out, &d->scratch};
    const int counts[] = {TTI_MAX_IN, TTI_MAX_OUT, 1};
    for (int l = 0; l < 3; l++)
        for (int i = 0; i < counts[l]; i++)
            cuda->release(lists[l][i].memory, lists[l][i].n_bytes + GUARD_BYTES);
    if (d->kernel && d->kernel->release) d->kernel->release(d->state);
}

/* One run; false when it failed or wrote where it must not. */
static bool device_run_once(bench *b, on_device *d, char *const *results) {
    void *in[TTI_MAX_IN], *out[TTI_MAX_OUT];
    int n_out = b->node->op->n_out, n_in_place = n_replaced(b->node);
    for (int i = 0; i < b->node->n_in; i++) {
        in[i] = d->in[i].memory;
        T_OK(ops->queues.copy(TTI_QUEUE_COMPUTE, in[i], b->in[i], d->in[i].n_bytes));
    }
    for (int k = 0; k < n_out; k++) out[k] = k < n_in_place ? in[k] : d->out[k].memory;
    tutti_status st =
        d->kernel->run(d->state, &(tti_kargs){b->node, in, out, d->scratch.memory, device_run});
    if (st == TUTTI_OK) st = ops->queues.sync();
    if (st != TUTTI_OK) {
        report(b, tutti_last_error());
        if (st == TUTTI_E_DEVICE) exit(3); /* the device cannot be used any more */
        return false;
    }
    bool intact = from_device(d->scratch, NULL);
    for (int i = 0; i < b->node->n_in; i++) intact &= from_device(d->in[i], NULL);
    for (int k = 0; k < n_out; k++)
        intact &= from_device(k < n_in_place ? d->in[k] : d->out[k], results[k]);
    if (!intact) report(b, "wrote beyond the end");
    return intact;
}

/* Gives the 4-D values N,H,W,C bytes, where an op has kernels for them; weights stay plain. */
static bool set_layouts(tti_node *node, int which) {
    const unsigned takes =
        TTI_CHANNELS_LAST | TTI_ELEMENTWISE | TTI_BROADCAST | TTI_EITHER_LAYOUT | TTI_READS_STRIDED;
    bool any = false, may = (node->op->traits & takes) != 0;
    bool plain_out = (node->op->traits & TTI_READS_STRIDED) != 0;
    for (int i = 0; i < node->n_in; i++) {
        bool is_weight = (node->op->weights_in >> i & 1) != 0;
        bool last = which && node->in[i]->type.shape.n_dims == 4 && !is_weight;
        node->in[i]->layout = last ? TTI_CHANNELS_LAST_BYTES : TTI_PLAIN;
        any |= last;
    }
    for (int k = 0; k < node->op->n_out; k++) {
        bool is_weight = (node->op->weights_out >> k & 1) != 0;
        bool last = which && node->out[k]->type.shape.n_dims == 4 && !is_weight && !plain_out;
        node->out[k]->layout = last ? TTI_CHANNELS_LAST_BYTES : TTI_PLAIN;
    }
    if (strcmp(node->op->name, "to_layout") == 0) { /* turns what it is given */
        bool to_last = tti_attr_int(node, "layout") == TTI_CHANNELS_LAST_BYTES;
        bool is_4d = node->in[0]->type.shape.n_dims == 4;
        node->in[0]->layout = is_4d && !to_last ? TTI_CHANNELS_LAST_BYTES : TTI_PLAIN;
        node->out[0]->layout = is_4d && to_last ? TTI_CHANNELS_LAST_BYTES : TTI_PLAIN;
        return which == 0;
    }
    return which == 0 || (any && may);
}

#endif /* TTI_TESTS_OP_BENCH_H */
