/* server_members.c - replica groups, workers that leave, barriers of worker processes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "comm/progress.h"
#include "comm/subgroup.h"
#include "exec/worker/worker.h"
#include "ps/server_state.h"

bool tti_server_sends_requests(const tti_server *s) {
    const tti_replica_group *t = s->replica_group;
    return !t || t->model_rank == 0;
}

tutti_status tti_replica_group_ask_stop(tti_replica_group *t, bool *stops) {
    int32_t requested = t && t->wants_stop;
    if (!t) return TUTTI_OK;
    TTI_TRY(tutti_comm_all_reduce(t->mesh.model, &requested, &requested, 1, TUTTI_I32, TUTTI_MAX,
                                  TUTTI_ALG_AUTO));
    *stops = requested > 0;
    return TUTTI_OK;
}

tutti_status tti_replica_group_broadcast(tti_replica_group *t, void *data, size_t n_bytes) {
    if (!t || n_bytes == 0) return TUTTI_OK;
    return tutti_comm_broadcast(t->mesh.model, data, n_bytes, TUTTI_U8, 0);
}

void tti_replica_group_destroy(tti_replica_group *t) {
    if (!t) return;
    tti_mesh_fini(&t->updates);
    tutti_comm_destroy(t->state_owners);
    tti_mesh_fini(&t->mesh);
    free(t->n_keys);
    free(t);
}

/* ---- a replica that leaves ---- */

enum { MAX_COMMS = 4 };

/* True if only this replica failed. This worker's own failure counts. A failed call counts only if
 * a connection inside the replica broke, not if another worker ended the run. */
static bool is_replica_failure(const tti_replica_group *t, tutti_comm *const *comms, int n,
                               tutti_status st) {
    bool is_broken = false;
    for (int i = 0; i < n && st == TUTTI_E_PEER; i++)
        is_broken = is_broken || tti_comm_check(comms[i]) != TUTTI_OK;
    return (is_broken && tti_comm_check_reported(t->mesh.world) == TUTTI_OK) ||
           st == TUTTI_E_INTERNAL || st == TUTTI_E_NOMEM || st == TUTTI_E_IO;
}

bool tti_server_leave_replica(tti_exec *x, tutti_status st, const char *why) {
    tutti_comm *comms[MAX_COMMS];
    tti_server *s = tti_exec_server(x);
    tti_replica_group *t = s->replica_group;
    if (!t || t->mesh.at.data == 0 || t->has_disconnected || t->is_required)
        return t && t->has_left;
    /* This replica's communicators, those of the server's calls and of the executor. */
    const tti_mesh *of_exec = tti_setup_of(x)->desc.mesh;
    tutti_comm *all[MAX_COMMS] = {t->mesh.model, of_exec->model, of_exec->pipeline,
                                  of_exec->tensor};
    int n = 0;
    for (int i = 0; i < MAX_COMMS; i++)
        if (all[i]) comms[n++] = all[i];
    t->is_required = !is_replica_failure(t, comms, n, st);
    if (t->is_required) return false;
    for (int i = 0; i < n; i++) tti_comm_abort(comms[i], why);
    t->has_disconnected = true;
    /* The worker that sends requests reports the failure. If another worker of the replica failed,
     * why already names it. */
    char text[512];
    snprintf(text, sizeof text, "rank %d failed: %s", tutti_comm_rank(t->mesh.world), why);
    t->has_left = t->model_rank > 0 || tti_client_leave(s, st == TUTTI_E_PEER ? why : text);
    return t->has_left;
}

/* ---- barriers of worker processes, which combine values ----
 *
 * Threads use a communicator, which breaks when a thread leaves. Processes send values to the
 * server, which knows the live workers, so its barrier waits only for these. */

/* With the mutex held: ends the round if all live workers have arrived. The result stays
 * valid until the next round ends, which requires that all workers have read it. */
static void end_round(tti_server *s) {
    tti_barrier *h = &s->barrier;
    for (int w = 0; w < s->desc.n_workers; w++)
        if (!s->worker[w].is_dead && !h->has_arrived[w]) return;
    h->members = (tti_members){0};
    for (int w = 0; w < s->desc.n_workers; w++) {
        if (h->has_arrived[w]) tti_set_add(&h->members.all, w);
        if (h->has_arrived[w] && !s->worker[w].has_left) tti_set_add(&h->members.live, w);
    }
    /* Combines the values in the order of the workers' numbers, so that the result does not depend
     * on the order of arrival. */
    bool first = true;
    for (int w = 0; w < s->desc.n_workers; w++) {
        const int64_t *from = h->values + (size_t)w * TTI_COMBINE_VALUES;
        if (!h->has_arrived[w]) continue;
        for (int i = 0; i < h->n_values; i++) {
            int64_t *to = &h->result[i];
            if (first)
                *to = from[i];
            else if (h->op == TTI_COMBINE_SUM)
                *to = (int64_t)tti_f64_to_bits(tti_f64_of_bits((uint64_t)*to) +
                                               tti_f64_of_bits((uint64_t)from[i]));
            else
                *to = TTI_MAX(*to, from[i]);
        }
        first = false;
    }
    memset(h->has_arrived, 0, (size_t)s->desc.n_workers * sizeof *h->has_arrived);
    h->n_rounds++;
    pthread_cond_broadcast(&s->news);
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
    bool has_begun = false;
    for (int i = 0; i < s->desc.n_workers; i++) has_begun = has_begun || h->has_arrived[i];
    if (!has_begun) {
        h->op = op;
        h->n_values = n;
    } else if (h->op != op || h->n_values != n || h->has_arrived[w]) {
        tti_fail(TUTTI_E_MISMATCH, "parameter server: %s %d is at another barrier",
                 tti_server_worker_noun(s), w);
        tti_server_fail(s, TUTTI_E_MISMATCH, tutti_last_error());
        return TUTTI_E_MISMATCH;
    }
    int64_t *own = h->values + (size_t)w * TTI_COMBINE_VALUES;
    for (int i = 0; i < n; i++) own[i] = values[i];
    h->has_arrived[w] = true;
    end_round(s);
    TTI_TRY(tti_server_wait(s, w, is_round_over, n_before));
    for (int i = 0; i < n; i++) values[i] = h->result[i];
    *members = h->members; /* every worker gets the same sets, even if a worker has left since */
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

tutti_status tti_server_combine(tti_exec *x, tti_combine_op op, void *values, int n,
                                tti_members *members) {
    tti_server *s = tti_exec_server(x);
    tti_replica_group *t = s->replica_group;
    if (t && n == 0) TTI_TRY(tutti_comm_barrier(t->mesh.model));
    if (t && n > 0)
        TTI_TRY(tutti_comm_all_reduce(
            t->mesh.model, values, values, (size_t)n, op == TTI_COMBINE_SUM ? TUTTI_F64 : TUTTI_I64,
            op == TTI_COMBINE_SUM ? TUTTI_SUM : TUTTI_MAX, TUTTI_ALG_AUTO));
    if (tti_server_sends_requests(s))
        TTI_TRY(s->client
                    ? tti_client_combine(s, op, values, n, members)
                    : tti_server_combine_for(s, tti_exec_server_worker(x), op, values, n, members));
    TTI_TRY(tti_replica_group_broadcast(t, values, (size_t)n * sizeof(int64_t)));
    return tti_replica_group_broadcast(t, members, sizeof *members);
}

/* ---- workers that leave, or whose process has ended ---- */

static bool may_leave(const tti_server *s, int w, bool is_dead) {
    int n_present = s->desc.n_workers - s->n_left;
    int n_needed = s->desc.n_backup > 0 ? s->desc.n_workers - s->desc.n_backup : 1;
    bool computes = s->worker[w].computes;
    bool owns_part = s->replica_group && w == 0;
    if (s->failed || s->desc.replay || owns_part || n_present <= n_needed) return false;
    if (!computes) return is_dead;
    for (int i = 0; i < s->n_left && s->desc.n_backup == 0; i++)
        if (s->left[i].batch == s->worker[w].batch) return false;
    return true;
}

static bool remove_from_run(tti_server *s, int w, const char *why, bool is_dead) {
    tti_served *me = &s->worker[w];
    if (!may_leave(s, w, is_dead)) return false;
    tti_leave *report = &s->left[s->n_left++];
    *report = (tti_leave){.worker = w, .step = s->n_updates, .batch = -1};
    snprintf(report->why, sizeof report->why, "%s", why);
    if (s->desc.n_backup == 0 && me->computes)
        report->batch = s->returned[s->n_returned++] = me->batch;
    me->computes = false;
    me->has_left = true;
    pthread_cond_broadcast(&s->news);
    return true;
}

void tti_server_remove_worker(tti_server *s, int w, const char *why) {
    bool held_keys = why && tti_server_has_ranges(s) && w < s->desc.n_ranges;
    pthread_mutex_lock(&s->mutex);
    tti_served *dead = &s->worker[w];
    bool may_go = !held_keys && (dead->has_left || remove_from_run(s, w, why, true));
    dead->is_dead = true;
    if (may_go)
        end_round(s);
    else if (!s->failed) {
        char text[512];
        const char *need = held_keys        ? "no other process has its range of the parameters"
                           : s->desc.replay ? "a replay needs all workers"
                                            : "the others need it";
        snprintf(text, sizeof text, "parameter server: %s %d has left, and %s: %s",
                 tti_server_worker_noun(s), w, need, why);
        tti_server_fail(s, TUTTI_E_PEER, text);
    }
    pthread_mutex_unlock(&s->mutex);
}

/* A replica whose workers have disconnected counts as gone: barriers do not wait for it. */
bool tti_server_leave_for(tti_server *s, int w, const char *why) {
    if (s->replica_group) tti_server_remove_worker(s, w, why);
    pthread_mutex_lock(&s->mutex);
    bool may = s->replica_group ? s->worker[w].has_left : remove_from_run(s, w, why, false);
    pthread_mutex_unlock(&s->mutex);
    return may;
}

bool tti_server_leave(tti_exec *x, const char *why) {
    tti_server *s = tti_exec_server(x);
    if (s->replica_group)
        return false; /* the whole replica must leave (tti_server_leave_replica) */
    if (s->client) return tti_client_leave(s, why);
    return tti_server_leave_for(s, tti_exec_server_worker(x), why);
}

bool tti_server_has_left(const tti_exec *x) {
    tti_server *s = tti_exec_server(x);
    if (s->client) return tti_client_has_left(s);
    pthread_mutex_lock(&s->mutex);
    bool has = s->worker[tti_exec_server_worker(x)].has_left;
    pthread_mutex_unlock(&s->mutex);
    return has;
}

void tti_server_eval_batches(const tti_exec *x, int *index, int *n_present) {
    tti_server *s = tti_exec_server(x);
    pthread_mutex_lock(&s->mutex);
    *index = 0;
    for (int w = 0; w < tti_exec_server_worker(x); w++) *index += !s->worker[w].has_left;
    if (s->worker[tti_exec_server_worker(x)].has_left) *index = -1;
    *n_present = s->desc.n_workers - s->n_left;
    if (s->desc.n_backup > 0) *index = 0, *n_present = 1;
    pthread_mutex_unlock(&s->mutex);
}

bool tti_server_next_leave(tti_server *s, tti_leave *out) {
    pthread_mutex_lock(&s->mutex);
    bool any = s->n_left_reported < s->n_left;
    if (any) *out = s->left[s->n_left_reported++];
    pthread_mutex_unlock(&s->mutex);
    return any;
}
