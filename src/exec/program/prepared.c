/* prepared.c - prepares kernels before anything is allocated.
 *
 * The scratch memory of a kernel is known once it is prepared, which on a device may include
 * timing; so it is done once, and the kernels are stored here until a program is bound to them. */
#include "exec/program/prepared.h"

#include <stdlib.h>

#include "base/error.h"
#include "exec/program/collective.h"

typedef struct ready {
    const tti_kernel *kernel; /* NULL: none, or taken */
    void *state;
} ready;

struct tti_prepared {
    int n_steps;
    size_t scratch_bytes;
    ready *steps; /* [n_steps] */
};

static void note_scratch(tti_prepared *p, size_t n_bytes) {
    p->scratch_bytes = TTI_MAX(p->scratch_bytes, n_bytes);
}

/* Collectives are not kernels of a backend; those of devices have their own memory. */
static tutti_status prepare(const tti_node *node, const tti_backend *backend, bool reference,
                            tti_prepared *p, ready *step) {
    if (node->op->traits & TTI_COLLECTIVE) {
        if (!backend->device) note_scratch(p, tti_collective_kernel.scratch_bytes(node, NULL));
        return TUTTI_OK;
    }
    const tti_kernel *kernel = backend->select(node, reference);
    if (!kernel) return TUTTI_OK; /* binding reports the error */
    if (kernel->prepare) TTI_TRY(kernel->prepare(node, &step->state));
    step->kernel = kernel;
    if (!kernel->scratch_bytes) return TUTTI_OK;
    note_scratch(p, kernel->scratch_bytes(node, step->state));
    return TUTTI_OK;
}

tutti_status tti_prepared_create(const tti_program *program, const tti_backend *backend,
                                 bool reference, tti_prepared **out) {
    tti_prepared *p = calloc(1, sizeof *p);
    if (p) p->steps = calloc((size_t)program->n_steps + 1, sizeof *p->steps);
    tutti_status st = TUTTI_OK;
    if (!p || !p->steps) st = tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    if (st == TUTTI_OK) p->n_steps = program->n_steps;
    for (int s = 0; st == TUTTI_OK && s < program->n_steps; s++)
        st = prepare(program->steps[s], backend, reference, p, &p->steps[s]);
    if (st != TUTTI_OK) {
        tti_prepared_destroy(p);
        return st;
    }
    *out = p;
    return TUTTI_OK;
}

void tti_prepared_destroy(tti_prepared *p) {
    if (!p) return;
    for (int s = 0; s < p->n_steps; s++)
        if (p->steps[s].kernel && p->steps[s].kernel->release)
            p->steps[s].kernel->release(p->steps[s].state);
    free(p->steps);
    free(p);
}

size_t tti_prepared_scratch(const tti_prepared *p) { return p ? p->scratch_bytes : 0; }

bool tti_prepared_take(tti_prepared *p, int step, const tti_kernel **kernel, void **state) {
    if (!p || !p->steps[step].kernel) return false;
    *kernel = p->steps[step].kernel;
    *state = p->steps[step].state;
    p->steps[step].kernel = NULL;
    return true;
}
