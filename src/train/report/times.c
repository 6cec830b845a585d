/* times.c - sums times per worker and gathers them.
 *
 * All workers must gather at the same steps, so the step number decides, not a clock.  Gathering
 * becomes rare in long runs, so that it costs almost nothing. */
#include "train/report/times.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/conclude.h"
#include "ps/server.h"

enum { PER_DOUBLING = 16, PER_DOUBLING_OF_MANY = 1 }; /* OF_MANY: if only rank 0 has the times */

tutti_status tti_times_init(tti_times *t, tutti_comm *comm, int n_ranks, int64_t first_step,
                            bool for_all) {
    *t = (tti_times){.comm = comm, .n_ranks = n_ranks, .first_step = first_step};
    t->at_root = n_ranks > 1 && !for_all && comm && tti_comm_concludes_alone(comm);
    if (t->at_root && tutti_comm_rank(comm) > 0) return TUTTI_OK;
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
    int per_doubling = t->at_root ? PER_DOUBLING_OF_MANY : PER_DOUBLING;
    while (n / every >= 2 * per_doubling) every *= 2;
    return n > 0 && n % every == 0;
}

/* Gathers at the server, because asynchronous workers have separate step counts. */
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

static void add_times(void *user, int rank, const void *theirs) {
    tti_times *t = user;
    memcpy(t->all[rank], theirs, sizeof t->all[rank]);
}

static void finish_times(void *user, void *result) {
    (void)user;
    (void)result;
}

static tutti_status gather_at_root(tti_times *t) {
    char nothing;
    return tti_comm_conclude(t->comm, &(tti_conclusion){.mine = t->own,
                                                        .n_bytes = sizeof t->own,
                                                        .result = &nothing,
                                                        .add = add_times,
                                                        .finish = finish_times,
                                                        .user = t});
}

tutti_status tti_times_gather(tti_times *t) {
    if (t->at_root)
        TTI_TRY(gather_at_root(t));
    else if (t->exec)
        TTI_TRY(gather_at_server(t));
    else if (t->n_ranks == 1)
        memcpy(t->all[0], t->own, sizeof t->own);
    else
        TTI_TRY(tutti_comm_all_gather(t->comm, t->own, t->all, TTI_N_TIME_PARTS, TUTTI_F64));
    memset(t->own, 0, sizeof t->own);
    return TUTTI_OK;
}
