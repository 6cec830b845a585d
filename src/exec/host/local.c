/* local.c - local SGD: averages over the workers.
 *
 * Parameters are averaged in the buffer of the summed gradients, which peers see and which is free
 * after the update.  Frozen parameters are not averaged, since a mean of equal numbers need not be
 * that number. */
#include "exec/host/local.h"

#include <string.h>

#include "exec/worker/worker.h"

/* ---- means ---- */

typedef struct mean {
    tti_exec *x;
    float *values; /* [n_flat] */
    bool back;     /* the mean is copied back, else values are copied to the buffer */
} mean;

/* A compute thread's range of the blocks of the update. */
static void mean_compute_thread(int compute_thread, void *arg) {
    const mean *m = arg;
    const tti_plan *plan = tti_setup_of(m->x)->desc.plan;
    float share = 1 / (float)tti_setup_of(m->x)->n_ranks, *buffer = tti_exec_grads(m->x);
    tti_range mine = tti_compute_thread_range((size_t)plan->n_updates, 1, compute_thread,
                                              tti_setup_of(m->x)->desc.n_compute_threads);
    for (size_t i = mine.first; i < mine.last; i++) {
        const tti_update_step *u = &plan->updates[i];
        float *v = m->values + u->first, *b = buffer + u->first;
        if (!m->back) memcpy(b, v, u->n_elems * sizeof *b);
        for (size_t e = 0; m->back && u->node && e < u->n_elems; e++) v[e] = b[e] * share;
    }
}

tutti_status tti_local_average(tti_exec *x, float *values) {
    const tti_setup *setup = tti_setup_of(x);
    tti_thread_set *threads = tti_threads_of(x);
    size_t n = setup->desc.plan->n_flat;
    float *buffer = tti_exec_grads(x);
    tti_compute_threads_run(threads->pool, mean_compute_thread, &(mean){x, values, false});
    tti_tally_of(x)->sent_bytes += tti_exec_reduce_bytes(setup, n * sizeof *buffer);
    TTI_TRY(tutti_comm_all_reduce(setup->desc.comm, buffer, buffer, n, TUTTI_F32, TUTTI_SUM,
                                  setup->desc.alg));
    tti_compute_threads_run(threads->pool, mean_compute_thread, &(mean){x, values, true});
    return TUTTI_OK;
}
