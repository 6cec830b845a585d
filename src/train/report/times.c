/* times.c - sums times per worker and gathers them.
 *
 * All workers must gather at the same steps, so the step number decides and never a clock.  It must
 * cost almost nothing, so it becomes rare in long runs. */
#include "train/report/times.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ps/server.h"

enum { PER_DOUBLING = 16 };

tutti_status tti_times_init(tti_times *t, tutti_comm *comm, int n_ranks, int64_t first_step) {
    *t = (tti_times){.comm = comm, .n_ranks = n_ranks, .first_step = first_step};
    t->all = calloc((size_t)n_ranks, sizeof *t->all);
    return t->all ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "train: out of memory");
}

void tti_times_fini(tti_times *t) {
    free(t->all);
    t->all = NULL;
}

void tti_times_add(tti_times *t, const tti_step_result *result, int64_t wait_ns, int64_t spent_ns) {
    const int64_t part_ns[TTI_N_TIME_PARTS] = {wait_ns, result->compute_ns, result->comm_ns,
                                               result->update_ns, spent_ns};
    for (int i = 0; i < TTI_N_TIME_PARTS; i++) t->own[i] += (double)part_ns[i] * 1e-9;
}

bool tti_times_is_due(const tti_times *t, int64_t step) {
    int64_t n = step - t->first_step, every = 1;
    while (n / every >= 2 * PER_DOUBLING) every *= 2;
    return n > 0 && n % every == 0;
}

/* With separate step counts per worker, gathers at the server. */
static tutti_status gather_at_server(tti_times *t) {
    tti_members members;
    double *all = &t->all[0][0];
    int n_all = t->n_ranks * TTI_N_TIME_PARTS;
    memset(t->all, 0, (size_t)t->n_ranks * sizeof *t->all);
    memcpy(t->all[t->rank], t->own, sizeof t->own);
    for (int at = 0; at < n_all; at += TTI_COMBINE_VALUES)
        TTI_TRY(tti_server_combine(t->exec, TTI_COMBINE_SUM, all + at,
                                   TTI_MIN(n_all - at, (int)TTI_COMBINE_VALUES), &members));
    return TUTTI_OK;
}

tutti_status tti_times_gather(tti_times *t) {
    if (t->exec)
        TTI_TRY(gather_at_server(t));
    else if (t->n_ranks == 1)
        memcpy(t->all[0], t->own, sizeof t->own);
    else
        TTI_TRY(tutti_comm_all_gather(t->comm, t->own, t->all, TTI_N_TIME_PARTS, TUTTI_F64));
    memset(t->own, 0, sizeof t->own);
    return TUTTI_OK;
}
