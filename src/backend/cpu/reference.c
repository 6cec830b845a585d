/* reference.c - the kernel "*": the definition of an op, for every dtype and layout.
 *
 * Inputs become row-major doubles in scratch, the op's own reference runs, outputs are converted
 * back.  Slow on purpose.  A fused node, which has no reference of its own, runs its body's. */
#include "backend/cpu/cpu.h"
#include "backend/cpu/nd.h"
#include "base/dtype.h"

/* A place in scratch, in whole cache lines. */
static size_t doubles_bytes(const tutti_value *value) {
    return ((size_t)tti_value_n_elems(value) * sizeof(double) + 63) / 64 * 64;
}

static size_t reference_scratch_bytes(const tti_node *node, const void *state) {
    size_t n = 0;
    (void)state;
    for (int i = 0; i < node->n_in; i++) n += doubles_bytes(node->in[i]);
    for (int k = 0; k < node->op->n_out; k++) n += doubles_bytes(node->out[k]);
    for (int j = 0; j < node->n_body; j++) n += doubles_bytes(node->body[j]->out[0]);
    return n;
}

/* Calls once for each element with its places in row-major order and in memory. */
typedef void (*element_fn)(const tutti_value *value, void *memory, double *plain, size_t i_plain,
                           size_t i_memory);

static void load_element(const tutti_value *value, void *memory, double *plain, size_t i_plain,
                         size_t i_memory) {
    plain[i_plain] = tti_load_elem(value->type.dtype, memory, i_memory);
}

static void store_element(const tutti_value *value, void *memory, double *plain, size_t i_plain,
                          size_t i_memory) {
    tti_store_elem(value->type.dtype, memory, i_memory, plain[i_plain]);
}

static void for_elements(const tutti_value *value, void *memory, double *plain, element_fn fn) {
    tutti_value row_major = *value;
    row_major.layout = TTI_PLAIN;
    tti_nd nd = tti_nd_make(&value->type.shape, (const tutti_value *[]){&row_major, value}, 2);
    size_t n_outer = tti_nd_n_outer(&nd, 0);
    tti_nd_at at = {0};
    for (size_t o = 0; o < n_outer; o++, tti_nd_next(&nd, 0, &at))
        fn(value, memory, plain, at.offset[0], at.offset[1]);
}

/* The input of a body node: an input of the fused node, or an earlier body node. */
static const double *body_input(const tti_node *fused, int n_done, const tutti_value *value,
                                const double *const *in, double *const *temp) {
    for (int j = n_done - 1; j >= 0; j--)
        if (fused->body[j]->out[0] == value) return temp[j];
    for (int i = 0; i < fused->n_in; i++)
        if (fused->in[i] == value) return in[i];
    return NULL;
}

static tutti_status run_body(const tti_args *args, double *memory) {
    const tti_node *fused = args->node;
    double *temp[TTI_MAX_BODY];
    for (int j = 0; j < fused->n_body; j++) {
        const tti_node *node = fused->body[j];
        const double *in[TTI_MAX_IN];
        temp[j] = j == fused->n_body - 1 ? args->out[0] : memory;
        memory += doubles_bytes(node->out[0]) / sizeof(double);
        for (int i = 0; i < node->n_in; i++) {
            in[i] = body_input(fused, j, node->in[i], args->in, temp);
            if (!in[i])
                return tti_fail(TUTTI_E_INTERNAL, "fused: input %d of body node %d is unknown", i,
                                j);
        }
        node->op->reference(&(tti_args){node, in, &temp[j], args->run});
    }
    return TUTTI_OK;
}

static bool reference_can_run(const tti_node *node) {
    return node->op->reference ||
           ((node->op->traits & TTI_FUSED) && node->n_body > 0 && node->n_body <= TTI_MAX_BODY);
}

static tutti_status reference_run(void *state, const tti_kargs *args) {
    const tti_node *node = args->node;
    double *in[TTI_MAX_IN], *out[TTI_MAX_OUT], *memory = args->scratch;
    (void)state;
    for (int i = 0; i < node->n_in; i++) {
        in[i] = memory;
        memory += doubles_bytes(node->in[i]) / sizeof(double);
        for_elements(node->in[i], args->in[i], in[i], load_element);
    }
    for (int k = 0; k < node->op->n_out; k++) {
        out[k] = memory;
        memory += doubles_bytes(node->out[k]) / sizeof(double);
    }
    tti_args plain = {node, (const double *const *)in, out, args->run};
    if (node->op->reference)
        node->op->reference(&plain);
    else
        TTI_TRY(run_body(&plain, memory));
    for (int k = 0; k < node->op->n_out; k++)
        for_elements(node->out[k], args->out[k], out[k], store_element);
    return TUTTI_OK;
}

const tti_kernel tti_reference_kernel = {.op = "*",
                                         .name = "reference",
                                         .can_run = reference_can_run,
                                         .scratch_bytes = reference_scratch_bytes,
                                         .run = reference_run};
