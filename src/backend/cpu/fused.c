/* fused.c - a chain of elementwise nodes in one pass: block by block, so that the output of one
 * function is still in the nearest cache when the next one reads it.
 *
 * Each body node runs its own elementwise function (elementwise.c); the last one writes output 0.
 */
#include <stdlib.h>

#include "backend/cpu/simd.h"

enum { BLOCK = 2048, MAX_BODY = 64 };

/* The source of a body node's input: >= 0 an input of the fused node, < 0 body node -1 - source. */
typedef struct step {
    tti_elem_fn fn;
    int source[TTI_MAX_IN];
} step;

typedef struct fused_state {
    int n_steps;
    step steps[];
} fused_state;

static bool find_source(const tti_node *fused, int n_done, const tutti_value *value, int *source) {
    for (int j = n_done - 1; j >= 0; j--)
        if (fused->body[j]->out[0] == value) {
            *source = -1 - j;
            return true;
        }
    for (int i = 0; i < fused->n_in; i++)
        if (fused->in[i] == value) {
            *source = i;
            return true;
        }
    return false;
}

static bool can_run(const tti_node *node) {
    int source;
    if (!(node->op->traits & TTI_FUSED) || node->n_body < 1 || node->n_body > MAX_BODY)
        return false;
    if (!tti_all_f32(node) || !tti_one_layout(node)) return false;
    for (int i = 0; i < node->n_in; i++)
        if (!tti_shape_equal(&node->in[i]->type.shape, &node->out[0]->type.shape)) return false;
    for (int j = 0; j < node->n_body; j++) {
        const tti_node *body = node->body[j];
        if (!TTI_VARIANT(tti_elem_find)(body)) return false;
        for (int i = 0; i < body->n_in; i++)
            if (!find_source(node, j, body->in[i], &source)) return false;
    }
    return true;
}

static tutti_status prepare(const tti_node *node, void **state) {
    size_t n_bytes = sizeof(fused_state) + (size_t)node->n_body * sizeof(step);
    fused_state *s = calloc(1, n_bytes);
    if (!s) return tti_fail(TUTTI_E_NOMEM, "fused: out of memory for %zu bytes", n_bytes);
    s->n_steps = node->n_body;
    for (int j = 0; j < node->n_body; j++) {
        const tti_node *body = node->body[j];
        s->steps[j].fn = TTI_VARIANT(tti_elem_find)(body);
        for (int i = 0; i < body->n_in; i++)
            find_source(node, j, body->in[i], &s->steps[j].source[i]);
    }
    *state = s;
    return TUTTI_OK;
}

static size_t scratch_bytes(const tti_node *node, const void *state) {
    (void)state;
    return (size_t)node->n_body * BLOCK * sizeof(float);
}

/* Elements first .. first+n-1 through the whole chain. */
static void run_block(const fused_state *s, const tti_kargs *a, size_t first, size_t n) {
    float *block = a->scratch;
    for (int j = 0; j < s->n_steps; j++) {
        const tti_node *body = a->node->body[j];
        const float *in[TTI_MAX_IN];
        for (int i = 0; i < body->n_in; i++) {
            int source = s->steps[j].source[i];
            in[i] = source >= 0 ? (const float *)a->in[source] + first
                                : block + (size_t)(-1 - source) * BLOCK;
        }
        float *out = j == s->n_steps - 1 ? (float *)a->out[0] + first : block + (size_t)j * BLOCK;
        s->steps[j].fn(body, in, out, n);
    }
}

static tutti_status run_chain(void *state, const tti_kargs *a) {
    size_t n = tti_n_elems(a->node->out[0]);
    for (size_t first = 0; first < n; first += BLOCK)
        run_block(state, a, first, TTI_MIN((size_t)BLOCK, n - first));
    return TUTTI_OK;
}

extern const tti_kernel TTI_VARIANT(tti_kernels_fused)[];
const tti_kernel TTI_VARIANT(tti_kernels_fused)[] = {
    {.op = "*",
     .name = TTI_ISA_TEXT,
     .can_run = can_run,
     .prepare = prepare,
     .scratch_bytes = scratch_bytes,
     .run = run_chain,
     .release = free},
    {0},
};
