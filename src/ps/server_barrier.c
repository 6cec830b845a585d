/* server_barrier.c - barriers of worker processes, at which values are combined.
 *
 * Threads use a communicator, which breaks when one leaves.  Here values are sent to the server,
 * which knows which workers are alive; so a synchronization needs all live workers, and no others.
 */
#include <string.h>

#include "base/dtype.h"
#include "ps/server_group.h"

/* Adds two doubles, which were sent as their bits. */
static int64_t sum_of_bits(int64_t a, int64_t b) {
    double sum = tti_f64_of_bits((uint64_t)a) + tti_f64_of_bits((uint64_t)b);
    return (int64_t)tti_f64_to_bits(sum);
}

/* Combines the values in the order of the workers' numbers, so that the order of arrival does not
 * matter. */
static void combine(tti_barrier *h, int n_workers) {
    bool first = true;
    for (int w = 0; w < n_workers; w++) {
        const int64_t *from = h->values + (size_t)w * TTI_COMBINE_VALUES;
        if (!h->has_arrived[w]) continue;
        for (int i = 0; i < h->n_values; i++) {
            int64_t *to = &h->result[i];
            if (first)
                *to = from[i];
            else if (h->op == TTI_COMBINE_SUM)
                *to = sum_of_bits(*to, from[i]);
            else
                *to = TTI_MAX(*to, from[i]);
        }
        first = false;
    }
}

static bool all_have_arrived(const tti_server *s) {
    for (int w = 0; w < s->desc.n_workers; w++)
        if (!s->worker[w].is_dead && !s->barrier.has_arrived[w]) return false;
    return true;
}

void tti_server_end_round(tti_server *s) {
    tti_barrier *h = &s->barrier;
    if (!all_have_arrived(s)) return;
    h->members = (tti_members){0};
    for (int w = 0; w < s->desc.n_workers; w++) {
        uint64_t bit = UINT64_C(1) << w;
        if (h->has_arrived[w]) h->members.all |= bit;
        if (h->has_arrived[w] && !s->worker[w].has_left) h->members.able |= bit;
    }
    combine(h, s->desc.n_workers);
    memset(h->has_arrived, 0, sizeof h->has_arrived);
    h->n_rounds++;
    pthread_cond_broadcast(&s->news);
}

static bool has_begun(const tti_barrier *h) {
    for (int w = 0; w < TTI_MAX_RANKS; w++)
        if (h->has_arrived[w]) return true;
    return false;
}

static bool is_round_over(const tti_server *s, int w, int64_t n_before) {
    (void)w;
    return s->barrier.n_rounds > n_before;
}

static tutti_status join_round(tti_server *s, int w, tti_combine_op op, int64_t *values, int n,
                               tti_members *members) {
    tti_barrier *h = &s->barrier;
    int64_t n_before = h->n_rounds;
    if (s->failed) return tti_fail(s->cause, "%s", s->error);
    if (!has_begun(h)) {
        h->op = op;
        h->n_values = n;
    } else if (h->op != op || h->n_values != n || h->has_arrived[w]) {
        tti_fail(TUTTI_E_MISMATCH, "parameter server: %s %d is in another synchronization",
                 tti_server_kind(s), w);
        tti_server_fail(s, TUTTI_E_MISMATCH, tutti_last_error());
        return TUTTI_E_MISMATCH;
    }
    int64_t *own = h->values + (size_t)w * TTI_COMBINE_VALUES;
    for (int i = 0; i < n; i++) own[i] = values[i];
    h->has_arrived[w] = true;
    tti_server_end_round(s);
    TTI_TRY(tti_server_wait(s, w, is_round_over, n_before));
    for (int i = 0; i < n; i++) values[i] = h->result[i];
    *members = h->members; /* the same for all, even if a worker has left meanwhile */
    return TUTTI_OK;
}

tutti_status tti_server_combine_for(tti_server *s, int w, tti_combine_op op, int64_t *values, int n,
                                    tti_members *members) {
    TTI_ASSERT(n >= 0 && n <= TTI_COMBINE_VALUES);
    pthread_mutex_lock(&s->mutex);
    tutti_status st = join_round(s, w, op, values, n, members);
    pthread_mutex_unlock(&s->mutex);
    return st;
}

static tutti_status combine_one(tti_exec *x, tti_combine_op op, void *values, int n,
                                tti_members *members) {
    tti_server *s = tti_exec_server(x);
    if (s->client) return tti_client_combine(s, op, values, n, members);
    return tti_server_combine_for(s, tti_exec_server_worker(x), op, values, n, members);
}

tutti_status tti_server_combine(tti_exec *x, tti_combine_op op, void *values, int n,
                                tti_members *members) {
    tti_replica_group *replica_group = tti_exec_server(x)->replica_group;
    TTI_TRY(tti_replica_group_combine(replica_group, op, values, n));
    if (tti_server_speaks(tti_exec_server(x))) TTI_TRY(combine_one(x, op, values, n, members));
    TTI_TRY(tti_replica_group_broadcast(replica_group, values, (size_t)n * sizeof(int64_t)));
    return tti_replica_group_broadcast(replica_group, members, sizeof *members);
}
