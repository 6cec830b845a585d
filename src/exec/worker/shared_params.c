/* shared_params.c - the memory that workers of one process share; exec.c and flat_update.c order
 * the accesses.
 */
#include "exec/worker/shared_params.h"

#include <stdlib.h>

static bool alloc_all(tti_shared_params *c, int n_states, bool ema) {
    c->params = c->backend->alloc(c->n_bytes);
    bool ok = c->params != NULL;
    for (int k = 0; k < n_states; k++) {
        c->states[k] = c->backend->alloc(c->n_bytes);
        ok = ok && c->states[k];
    }
    if (ema) c->ema = c->backend->alloc(c->n_bytes);
    return ok && (!ema || c->ema);
}

tutti_status tti_shared_params_create(const tti_exec_desc *desc, tti_shared_params **out) {
    *out = NULL;
    tti_shared_params *c = calloc(1, sizeof *c);
    if (!c) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    c->backend = desc->backend;
    c->n_bytes = desc->plan->n_flat * sizeof(float) + 64;
    if (!alloc_all(c, desc->plan->n_states, desc->ema > 0)) {
        tti_shared_params_destroy(c);
        return tti_fail(TUTTI_E_NOMEM, "exec: arrays of %zu bytes for parameters and state",
                        desc->plan->n_flat * sizeof(float));
    }
    *out = c;
    return TUTTI_OK;
}

void tti_shared_params_destroy(tti_shared_params *c) {
    if (!c) return;
    c->backend->release(c->params, c->n_bytes);
    for (int k = 0; k < TTI_MAX_OUT; k++) c->backend->release(c->states[k], c->n_bytes);
    c->backend->release(c->ema, c->n_bytes);
    free(c);
}
