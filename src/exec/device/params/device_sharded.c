/* device_sharded.c - ZeRO-2 and ZeRO-3 on devices: gathers before reads, waits before writes.
 *
 * The order of the moves follows from the plan and is the same on all workers.  Outside of a
 * captured graph a kernel that waits for a peer must not run while another one is being loaded, so
 * there all workers wait for each fetch; an evaluation does so once.
 *
 * If devices do not reach each other the host fetches: the parts of all workers are gathered on it
 * once per step, or per batch of an evaluation, and each bucket is copied from there. */
#include "exec/device/params/device_sharded.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/parts.h"
#include "comm/transport.h"
#include "exec/worker/worker.h"

struct tti_device_sharded {
    tti_exec *x;
    tti_device_reduce *reduce; /* NULL: through the host, which has: */
    float *whole;              /* [n_flat]: parameters; others read the own parts */
    bool is_pinned;
    const tti_device_ops *ops;
    /* For the run of a program. */
    const tti_window *params; /* NULL: they are whole */
    int *events; /* [uses of the longer window]: where their fetches are in the queue */
    int next;    /* use to be fetched */
    int next_event;
    int source;
    bool overlapped, is_last;
    bool step_overlapped, has_evaluated;
    tutti_status status;
};

/* Allocates host memory for fetches.  Copies of memory that is not pinned are slower, but still
 * correct. */
static tutti_status take_host(tti_device_sharded *l) {
    size_t n_bytes = tti_setup_of(l->x)->desc.plan->n_flat * sizeof(float);
    void *memory = NULL;
    if (l->reduce ||
        (!tti_arrays_of(l->x)->sharded->params && !tti_arrays_of(l->x)->sharded->averages))
        return TUTTI_OK;
    TTI_TRY(tutti_comm_alloc(tti_setup_of(l->x)->desc.comm, n_bytes + 64, &memory));
    l->whole = memory;
    l->is_pinned = l->ops->memory.pin(memory, n_bytes) == TUTTI_OK;
    if (!l->is_pinned) tti_clear_error();
    return TUTTI_OK;
}

tutti_status tti_device_sharded_create(tti_exec *x, tti_device_reduce *reduce,
                                       tti_device_sharded **out) {
    tti_arrays *arrays = tti_arrays_of(x);
    tti_device_sharded *l = calloc(1, sizeof *l);
    *out = l;
    if (!l) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    *l = (tti_device_sharded){
        .x = x, .reduce = reduce, .ops = tti_setup_of(x)->desc.backend->device};
    size_t n = (size_t)TTI_MAX(arrays->sharded->train.n_uses, arrays->sharded->eval.n_uses);
    l->events = calloc(n + 1, sizeof *l->events);
    return l->events ? take_host(l) : tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
}

void tti_device_sharded_destroy(tti_device_sharded *l) {
    if (!l) return;
    if (l->is_pinned) l->ops->memory.unpin(l->whole);
    free(l->events);
    free(l);
}

/* ---- moves by the host ---- */

/* Gathers all parts of all workers.  No worker still reads the previous ones, because the sums of a
 * step, or of an evaluation, lie between. */
static tutti_status bring(tti_device_sharded *l, const float *from) {
    tti_exec *x = l->x;
    const tti_setup *setup = tti_setup_of(x);
    tti_share_run run;
    if (!l->whole) return TUTTI_OK;
    for (int i = 0; tti_share_next(&setup->share, setup->desc.plan, &i, &run);)
        TTI_TRY(l->ops->queues.copy(TTI_QUEUE_COMPUTE, l->whole + run.first, from + run.state,
                                    run.n_elems * sizeof *from));
    TTI_TRY(tti_profile_upto(x, TTI_ROW_COMPUTE, tti_part_work("own parameters to the host"), -1));
    TTI_TRY(l->ops->queues.sync());
    int64_t start = tti_now_ns();
    TTI_TRY(tti_zero_gather(setup, l->whole, l->whole));
    int64_t end = tti_now_ns();
    tti_exec_waited(tti_tally_of(x), end - start);
    tti_profile_add(x, TTI_ROW_COMM, tti_part_params("parameters of other workers"), -1, start,
                    end);
    return tti_profile_from(x, TTI_ROW_COMPUTE);
}

/* In the communication queue, as between devices. */
static tutti_status fetch_from_host(tti_device_sharded *l, int i, float *dst) {
    const tti_bucket *bucket = &tti_setup_of(l->x)->desc.plan->buckets[l->params->uses[i].bucket];
    TTI_TRY(tti_profile_from(l->x, TTI_ROW_COMM));
    TTI_TRY(l->ops->queues.copy(TTI_QUEUE_COMM, dst, l->whole + bucket->first,
                                bucket->n_elems * sizeof *dst));
    TTI_TRY(tti_profile_upto(l->x, TTI_ROW_COMM, tti_part_params("parameters to the device"), -1));
    l->events[i] = l->next_event++ % TTI_SUM_EVENTS;
    return l->ops->queues.record_event(TTI_QUEUE_COMM, l->events[i]);
}

/* ---- moves ---- */

static tutti_status fetch(tti_device_sharded *l, int i) {
    const tti_use *use = &l->params->uses[i];
    float *dst = tti_arrays_of(l->x)->sharded->gathered + use->offset;
    if (!l->reduce) return fetch_from_host(l, i, dst);
    if (!l->overlapped) TTI_TRY(tti_device_reduce_meet(l->reduce));
    TTI_TRY(tti_device_reduce_fetch(l->reduce, use->bucket, l->source, dst, l->overlapped));
    if (!l->overlapped) return tti_device_reduce_rest(l->reduce);
    return tti_device_reduce_record(l->reduce, &l->events[i]);
}

/* Whether readers wait for a fetch, instead of the launch. */
static bool fetches_overlapped(const tti_device_sharded *l) { return !l->reduce || l->overlapped; }

/* A place is free once the steps that are in the queue so far have been done. */
static tutti_status fetch_upto(tti_device_sharded *l, int step) {
    int first = l->next;
    while (l->next < l->params->n_uses && l->params->uses[l->next].taken <= step) {
        if (fetches_overlapped(l) && l->next == first)
            TTI_TRY(l->ops->queues.order(TTI_QUEUE_COMM, TTI_QUEUE_COMPUTE));
        TTI_TRY(fetch(l, l->next++));
    }
    return TUTTI_OK;
}

static tutti_status await_params(tti_device_sharded *l, int step) {
    bool waits = false;
    for (int i = 0; i < l->next; i++) {
        if (l->params->uses[i].first != step || !fetches_overlapped(l)) continue;
        TTI_TRY(l->ops->queues.wait_event(TTI_QUEUE_COMPUTE, l->events[i]));
        waits = true;
    }
    if (!waits) return TUTTI_OK;
    return tti_profile_upto(l->x, TTI_ROW_COMPUTE, tti_part_wait("waiting for parameters"), -1);
}

/* Waits until the previous contents have been summed: the newest of them, because sums run in
 * order. */
static tutti_status await_place(tti_device_sharded *l, const tti_use *use) {
    const tti_window *w = &tti_arrays_of(l->x)->sharded->grads;
    int newest = -1;
    for (int i = 0; i < w->n_uses; i++)
        if (w->uses[i].last < use->first && tti_window_shares(w, &w->uses[i], use))
            newest = TTI_MAX(newest, w->uses[i].bucket);
    if (newest < 0) return TUTTI_OK;
    TTI_TRY(tti_device_reduce_wait_for(l->reduce, newest));
    return tti_profile_upto(l->x, TTI_ROW_COMPUTE, tti_part_wait("waiting for sums"), -1);
}

static tutti_status come_to(tti_device_sharded *l, int step) {
    const tti_window *grads = &tti_arrays_of(l->x)->sharded->grads;
    if (l->params) TTI_TRY(fetch_upto(l, step));
    if (l->params) TTI_TRY(await_params(l, step));
    for (int i = 0; l->is_last && l->overlapped && i < grads->n_uses; i++)
        if (grads->uses[i].first == step) TTI_TRY(await_place(l, &grads->uses[i]));
    return TUTTI_OK;
}

void tti_device_sharded_before(tti_device_sharded *l, int step) {
    if (l->status == TUTTI_OK) l->status = come_to(l, step);
}

/* The same moves without a shard. */
static void replay(tti_device_sharded *l, int n_steps) {
    for (int s = 0; s < n_steps; s++) tti_device_sharded_before(l, s);
}

/* ---- a step ---- */

void tti_device_sharded_begin(tti_device_sharded *l, bool is_last) {
    l->params = tti_arrays_of(l->x)->sharded->params ? &tti_arrays_of(l->x)->sharded->train : NULL;
    l->source = TTI_FROM_PARAMS;
    l->overlapped = l->step_overlapped;
    l->is_last = is_last;
    l->next = 0;
}

/* Each part of a shard fetches what it reads: none of its uses is in two of them. */
void tti_device_sharded_begin_part(tti_device_sharded *l, bool eval, int first) {
    l->params = eval ? &tti_arrays_of(l->x)->sharded->eval : &tti_arrays_of(l->x)->sharded->train;
    l->next = 0;
    while (l->next < l->params->n_uses && l->params->uses[l->next].first < first) l->next++;
}

/* The host has everything for each worker separately. */
static int n_to_play(const tti_device_sharded *l, int n_idle) { return l->reduce ? n_idle : 0; }

tutti_status tti_device_sharded_step(tti_device_sharded *l, bool overlapped) {
    l->step_overlapped = overlapped;
    l->status =
        tti_arrays_of(l->x)->sharded->params ? bring(l, tti_arrays_of(l->x)->params) : TUTTI_OK;
    for (int i = n_to_play(l, tti_sharded_idle_shard_groups(l->x)); i > 0; i--) {
        tti_device_sharded_begin(l, false);
        replay(l, tti_setup_of(l->x)->desc.plan->shard.n_steps);
    }
    return l->status;
}

tutti_status tti_device_sharded_finish(tti_device_sharded *l) { return l->status; }

/* ---- evaluation ---- */

static void begin_eval(tti_device_sharded *l) {
    l->params = tti_arrays_of(l->x)->sharded->params ? &tti_arrays_of(l->x)->sharded->eval : NULL;
    l->source = tti_arrays_of(l->x)->ema ? TTI_FROM_AVERAGES : TTI_FROM_PARAMS;
    l->overlapped = l->reduce && l->has_evaluated;
    l->is_last = false;
    l->next = 0;
    l->status = TUTTI_OK;
}

tutti_status tti_device_sharded_eval_begin(tti_device_sharded *l) {
    l->status = TUTTI_OK;
    return tti_arrays_of(l->x)->sharded->params
               ? bring(l, tti_arrays_of(l->x)->ema ? tti_arrays_of(l->x)->ema
                                                   : tti_arrays_of(l->x)->params)
               : TUTTI_OK;
}

static void after_step(int step, void *user) { tti_device_sharded_before(user, step + 1); }

tutti_status tti_device_sharded_eval(tti_device_sharded *l, tti_instance *instance,
                                     const tti_run *run) {
    begin_eval(l);
    tti_device_sharded_before(l, 0);
    TTI_TRY(tti_instance_run(instance, run, after_step, l));
    return l->status;
}

/* Shards are evaluated one after the other, even if those of a step are joined. */
static int n_idle_evaluations(const tti_setup *setup) {
    int most = 0;
    for (int r = 0; r < setup->n_ranks; r++)
        most = TTI_MAX(most, tti_shard_map_n_of(&setup->shard_map, r));
    return most - (setup->last_shard - setup->first_shard);
}

tutti_status tti_device_sharded_eval_rest(tti_device_sharded *l) {
    for (int i = n_to_play(l, n_idle_evaluations(tti_setup_of(l->x))); i > 0; i--) {
        begin_eval(l);
        replay(l, tti_setup_of(l->x)->desc.plan->eval.n_steps);
        TTI_TRY(l->status);
    }
    l->has_evaluated = true;
    return TUTTI_OK;
}

tutti_status tti_device_sharded_rest(tti_device_sharded *l) {
    return l->reduce ? tti_device_reduce_rest(l->reduce) : l->ops->queues.sync();
}

static tutti_status averages_host_staged(tti_device_sharded *l) {
    size_t n_bytes = tti_setup_of(l->x)->desc.plan->n_flat * sizeof(float);
    TTI_TRY(bring(l, tti_arrays_of(l->x)->ema));
    TTI_TRY(l->ops->queues.copy(TTI_QUEUE_COMPUTE, tti_arrays_of(l->x)->sharded->averages, l->whole,
                                n_bytes));
    return tti_device_sharded_rest(l);
}

tutti_status tti_device_sharded_averages(tti_device_sharded *l) {
    const tti_plan *plan = tti_setup_of(l->x)->desc.plan;
    if (!l->reduce) return averages_host_staged(l);
    TTI_TRY(tti_device_reduce_meet(l->reduce));
    for (int b = 0; b < plan->n_buckets; b++) {
        float *dst = tti_arrays_of(l->x)->sharded->averages + plan->buckets[b].first;
        TTI_TRY(tti_device_reduce_fetch(l->reduce, b, TTI_FROM_AVERAGES, dst, false));
    }
    return tti_device_sharded_rest(l);
}
