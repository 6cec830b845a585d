/* server_sync.c - synchronous steps: every worker pushes its partial sums, and pulls the parameters
 * that follow from all of them. */
#include <string.h>

#include "base/clock.h"
#include "exec/device/device.h"
#include "exec/worker/worker.h"
#include "ps/server_state.h"

/* Between two steps, when the threads read no pieces, workers may have been assigned other shards.
 */
static tutti_status take_shard_map(tti_server *s, const tti_shard_map *shard_map) {
    tti_sum_order order;
    if (tti_shard_map_same(&s->shard_map, shard_map)) return TUTTI_OK;
    TTI_ASSERT(s->n_arrived == 0);
    TTI_TRY(tti_shard_map_check(shard_map, s->desc.n_workers, s->desc.exec.n_shards));
    TTI_TRY(tti_sum_order_shards(shard_map, &order));
    tti_sum_order_free(&s->order);
    s->order = order;
    s->shard_map = *shard_map;
    return TUTTI_OK;
}

static tutti_status arrive(tti_server *s, tti_exec *x, const tti_step_desc *desc, double inv_count,
                           tti_step_result *result) {
    const tti_setup *setup = tti_setup_of(x);
    int w = setup->desc.server_worker;
    if (s->failed) return tti_fail(s->cause, "%s", s->error);
    TTI_ASSERT(s->worker[w].n_pieces == 0);
    TTI_TRY(take_shard_map(s, &setup->shard_map));
    for (int i = 0; i < setup->acc.n_pieces; i++) s->worker[w].pieces[i] = tti_exec_partial(x, i);
    s->worker[w].n_pieces = setup->acc.n_pieces;
    if (++s->n_arrived == s->desc.n_workers) {
        s->step = (tti_request){.kind = TTI_STEP, .step = *desc, .inv_count = inv_count};
        tti_server_put(s, &s->step);
    }
    TTI_TRY(tti_server_wait_step(s, w));
    const tti_step_result *applied = &s->step.arrival.result;
    result->grad_norm = applied->grad_norm;
    result->skipped = applied->skipped;
    return s->step.status == TUTTI_OK ? TUTTI_OK : tti_fail(s->step.status, "%s", s->step.error);
}

/* A copy of the parameters into the memory of a worker. */
typedef struct copying {
    const tti_setup *setup;
    const float *from;
    float *to;
    _Atomic uint64_t hash; /* of the copy as it is in memory: a sum over the threads */
} copying;

static void copy_compute_thread(int compute_thread, void *arg) {
    copying *c = arg;
    const tti_plan *plan = c->setup->desc.plan;
    uint64_t hash = 0;
    tti_range mine = tti_compute_thread_range((size_t)plan->n_updates, 1, compute_thread,
                                              c->setup->desc.n_compute_threads);
    for (size_t i = mine.first; i < mine.last; i++) {
        const tti_update_step *u = &plan->updates[i];
        memcpy(c->to + u->first, c->from + u->first, u->n_elems * sizeof *c->to);
        hash += c->setup->desc.backend->hash(c->to + u->first, u->n_elems, u->first);
    }
    c->hash += hash;
}

/* The server's parameters, to the memory of a worker; nothing is applied before all workers have
 * pushed again. */
static tutti_status copy_to_worker(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_tally *tally = tti_tally_of(x);
    copying c = {.setup = setup,
                 .from = tti_arrays_of(tti_server_exec(setup->desc.server))->params,
                 .to = tti_arrays_of(x)->params};
    tally->last_hash = 0;
    if (tti_device_of(x)) {
        TTI_TRY(tti_exec_device_put(x, c.to, c.from));
        return tti_exec_device_hash(x, &tally->last_hash);
    }
    tti_compute_threads_run(tti_threads_of(x)->pool, copy_compute_thread, &c);
    tally->last_hash = c.hash;
    return TUTTI_OK;
}

tutti_status tti_server_push_step(tti_exec *x, const tti_step_desc *desc, double inv_count,
                                  tti_step_result *result) {
    tti_server *s = tti_setup_of(x)->desc.server;
    int64_t begin = tti_now_ns();
    pthread_mutex_lock(&s->mutex);
    tutti_status st = arrive(s, x, desc, inv_count, result);
    pthread_mutex_unlock(&s->mutex);
    TTI_TRY(st);
    tti_profile_rest(x, tti_part_sums("sums of the step"), begin);
    tti_server_profile(x, "sum and update", begin, tti_now_ns(), s->step.arrival.result.update_ns);
    return TUTTI_OK;
}

tutti_status tti_server_pull_step(tti_exec *x) {
    const tti_span copy = {
        .part = tti_part_params("parameters from the server"), .shard = -1, .row = TTI_ROW_COMM};
    int64_t start = tti_now_ns();
    TTI_TRY(copy_to_worker(x));
    int64_t copied = tti_now_ns();
    tti_profile_stall(x, &copy, "waiting for parameters", start, copied);
    tti_profile_mark(x, copied);
    return TUTTI_OK;
}
