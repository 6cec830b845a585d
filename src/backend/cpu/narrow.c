/* narrow.c - runs ops on 16-bit floats with the f32 kernels: converts the inputs to f32 in scratch
 * memory, runs the kernel and rounds the results.
 *
 * A node with 16-bit values has a twin with f32 values, whose kernel is selected as usual.  So any
 * op with a fast f32 kernel has one for 16 bits; the result is rounded once, at the end. */
#include <stdlib.h>

#include "backend/cpu/cpu.h"

/* A copy of a node with f32 instead of 16-bit values.  Do not copy it: it has pointers to its own
 * fields. */
typedef struct twin {
    tti_node node;
    tutti_value in_values[TTI_MAX_IN], out_values[TTI_MAX_OUT];
    tutti_value *in[TTI_MAX_IN];
} twin;

typedef struct via_f32 {
    twin twin;
    const tti_kernel *kernel;
    void *state;
} via_f32;

static bool is_narrow(const tutti_value *value) {
    return value->type.dtype == TUTTI_F16 || value->type.dtype == TUTTI_BF16;
}

static tutti_value widened(const tutti_value *value) {
    tutti_value wide = *value;
    if (is_narrow(value)) wide.type.dtype = TUTTI_F32;
    return wide;
}

static void make_twin(const tti_node *node, twin *t) {
    t->node = *node;
    t->node.in = t->in;
    for (int i = 0; i < node->n_in; i++) {
        t->in_values[i] = widened(node->in[i]);
        t->in[i] = &t->in_values[i];
    }
    for (int k = 0; k < node->op->n_out; k++) {
        t->out_values[k] = widened(node->out[k]);
        t->node.out[k] = &t->out_values[k];
    }
}

/* False for fused chains: a twin does not convert the values inside a chain. */
static bool can_run(const tti_node *node) {
    bool any = false;
    twin t;
    for (int i = 0; i < node->n_in; i++) any |= is_narrow(node->in[i]);
    for (int k = 0; k < node->op->n_out; k++) any |= is_narrow(node->out[k]);
    if (!any || node->n_body > 0) return false;
    make_twin(node, &t);
    return tti_backend_cpu.select(&t.node, false) != &tti_reference_kernel;
}

static void release(void *state) {
    via_f32 *n = state;
    if (n && n->kernel->release) n->kernel->release(n->state);
    free(n);
}

static tutti_status prepare(const tti_node *node, void **state) {
    via_f32 *n = calloc(1, sizeof *n);
    if (!n) return tti_fail(TUTTI_E_NOMEM, "%s '%s': out of memory", node->op->name, node->name);
    make_twin(node, &n->twin);
    n->kernel = tti_backend_cpu.select(&n->twin.node, false);
    tutti_status st = n->kernel->prepare ? n->kernel->prepare(&n->twin.node, &n->state) : TUTTI_OK;
    if (st == TUTTI_OK)
        *state = n;
    else
        free(n);
    return st;
}

/* Bytes of the f32 copy, rounded up to whole cache lines; 0: the value needs none. */
static size_t wide_bytes(const tutti_value *value) {
    return is_narrow(value) ? ((size_t)tti_value_n_elems(value) * sizeof(float) + 63) / 64 * 64 : 0;
}

/* The f32 copies come first, then the scratch memory of the twin's kernel. */
static size_t scratch_bytes(const tti_node *node, const void *state) {
    const via_f32 *n = state;
    size_t bytes = n->kernel->scratch_bytes ? n->kernel->scratch_bytes(&n->twin.node, n->state) : 0;
    for (int i = 0; i < node->n_in; i++) bytes += wide_bytes(node->in[i]);
    for (int k = 0; k < node->op->n_out; k++) bytes += wide_bytes(node->out[k]);
    return bytes;
}

static tutti_status run_widened(void *state, const tti_kargs *a) {
    via_f32 *n = state;
    const tti_node *node = a->node;
    const tti_cpu_isa *isa = tti_cpu_isa_at(0);
    void *in[TTI_MAX_IN], *out[TTI_MAX_OUT];
    char *at = a->scratch;
    for (int i = 0; i < node->n_in; i++) {
        in[i] = is_narrow(node->in[i]) ? at : a->in[i];
        if (is_narrow(node->in[i]))
            isa->widen(node->in[i]->type.dtype == TUTTI_BF16, a->in[i], in[i],
                       (size_t)tti_value_n_elems(node->in[i]));
        at += wide_bytes(node->in[i]);
    }
    for (int k = 0; k < node->op->n_out; k++) {
        out[k] = is_narrow(node->out[k]) ? at : a->out[k];
        at += wide_bytes(node->out[k]);
    }
    TTI_TRY(n->kernel->run(n->state, &(tti_kargs){&n->twin.node, in, out, at, a->run}));
    for (int k = 0; k < node->op->n_out; k++)
        if (is_narrow(node->out[k]))
            isa->narrow(node->out[k]->type.dtype == TUTTI_BF16, out[k], a->out[k],
                        (size_t)tti_value_n_elems(node->out[k]));
    return TUTTI_OK;
}

const tti_kernel tti_narrow_kernel = {.op = "*",
                                      .name = "by f32",
                                      .can_run = can_run,
                                      .prepare = prepare,
                                      .scratch_bytes = scratch_bytes,
                                      .run = run_widened,
                                      .release = release};
