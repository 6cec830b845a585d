/* device_params.c - the parameters of a worker on a device: the update over its table of blocks,
 * parameters that other workers update, and ZeRO-2 and ZeRO-3.
 *
 * Every worker's table has all blocks, so that arrays indexed by block are the same for all of
 * them; blocks of other workers are not updated, and only hashed once their parameters have
 * arrived. */
#include "exec/device/params/device_params.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/partitions.h"
#include "comm/transport.h"
#include "exec/device/state/device_state.h"
#include "exec/worker/worker.h"

struct tti_device_update {
    tti_exec *x;
    const tti_device_ops *ops;
    tti_device_update_desc desc;
    void *update;
};

static tti_update_block block_of(const tti_plan *plan, const tti_update_step *step) {
    const tti_slot *slot = &plan->slots[step->slot];
    tti_update_block block = {.hash_at = step->hash_at,
                              .hash_weight = step->hash_weight,
                              .params = step->first,
                              .grads = step->first,
                              .n_elems = (uint32_t)step->n_elems,
                              .slot = step->slot,
                              .lr_factor = (float)slot->rule.lr_factor,
                              .decay = (float)slot->rule.decay,
                              .kind = TTI_BLOCK_TRAINED,
                              .takes_l1 = slot->decay,
                              .has_low_copy = slot->has_low_copy,
                              .low_copy = slot->low_copy + (step->first - slot->first)};
    if (slot->rule.frozen)
        block.kind = TTI_BLOCK_FROZEN;
    else if (slot->buffer) {
        block.kind = TTI_BLOCK_BUFFER;
        block.decay = (float)tti_attr_float(slot->param, "momentum");
    }
    return block;
}

static tutti_status all_gather_words(void *user, void *words, size_t n_words) {
    const tti_device_update *u = user;
    if (u->desc.reduce && tti_exec_has_partitions(tti_setup_of(u->x)))
        TTI_TRY(tti_device_reduce_words(u->desc.reduce, words, n_words));
    if (u->desc.axis) return tti_device_axis_partials(u->desc.axis, words, n_words);
    if (u->desc.reduce) return TUTTI_OK;
    return tti_device_host_staged_words(u->desc.host_staged, words, n_words);
}

/* The summed gradients. */
static float *grads_of(tti_exec *x) {
    const tti_sharded *sharded = tti_sharded_of(x);
    return sharded && sharded->own_grads ? sharded->own_grads : tti_exec_grads(x);
}

static tutti_status create_backend_update(tti_device_update *u, const tti_update_block *blocks,
                                          const tti_node *node) {
    tti_exec *x = u->x;
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    const tti_plan *plan = setup->desc.plan;
    if (tti_exec_has_partitions(setup) && !u->ops->update.complete)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "exec: this device has all of the optimizer's state or none");
    /* A worker has only a part of the sums over blocks. */
    return u->ops->update.create(
        &(tti_update_desc){.node = node,
                           .blocks = blocks,
                           .n_blocks = plan->n_updates,
                           .n_slots = plan->n_slots,
                           .n_states = setup->desc.server ? 0 : plan->n_states,
                           .n_shards = setup->desc.n_shards,
                           .params = tti_exec_array(x, TTI_STATE_PARAMS),
                           .grads = grads_of(x),
                           .ema = tti_exec_array(x, TTI_STATE_EMA),
                           .low_copies = arrays->low_copies,
                           .low_dtype = plan->low_dtype,
                           .states = arrays->states,
                           .args = u->desc.args,
                           .sums = u->desc.sums,
                           .n_sums = tti_n_sums(setup),
                           .report = u->desc.report,
                           .clip_norm = setup->desc.clip_norm,
                           .clip_value = setup->desc.clip_value,
                           .l1 = setup->desc.l1,
                           .ema_decay = setup->desc.ema,
                           .watch_gradients = setup->desc.watch_gradients,
                           .complete_words = (tti_exec_has_partitions(setup) || setup->divided)
                                                 ? all_gather_words
                                                 : NULL,
                           .user = u,
                           .failure = setup->desc.elastic && u->desc.reduce
                                          ? tti_device_reduce_failure(u->desc.reduce)
                                          : NULL},
        &u->update);
}

tutti_status tti_device_update_create(tti_exec *x, const tti_device_update_desc *desc,
                                      tti_device_update **out) {
    const tti_setup *setup = tti_setup_of(x);
    tti_device_update *u = calloc(1, sizeof *u);
    tti_update_block *blocks = calloc((size_t)setup->desc.plan->n_updates + 1, sizeof *blocks);
    const tti_node *node = NULL;
    *out = u;
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    if (u && blocks) {
        *u = (tti_device_update){.x = x, .ops = setup->desc.backend->device, .desc = *desc};
        /* Blocks that a server updates are only hashed here. */
        const tti_sharded *sharded = tti_sharded_of(x);
        const tti_plan *plan = setup->desc.plan;
        for (int i = 0; i < plan->n_updates; i++) {
            blocks[i] = block_of(plan, &plan->updates[i]);
            if (setup->desc.server) blocks[i].kind = TTI_BLOCK_FROZEN;
            if (blocks[i].kind == TTI_BLOCK_TRAINED) *(&node) = plan->updates[i].node;
        }
        for (int i = 0; i < plan->n_updates; i++)
            blocks[i].is_here = !tti_exec_has_sharded_params(x);
        for (int i = 0; i < plan->n_updates; i++)
            blocks[i].is_sent_low =
                tti_device_param_gather_sends_low(tti_device_of(x)->param_gather, blocks[i].slot);
        for (int i = 0; i < setup->share.n_blocks; i++) {
            tti_update_block *own = &blocks[setup->share.blocks[i].update];
            own->is_own = own->is_here = 1;
            own->state = setup->share.blocks[i].state;
            if (tti_exec_has_sharded_params(x)) own->params = own->state;
            if (sharded && sharded->own_grads) own->grads = own->state;
        }
        st = create_backend_update(u, blocks, node);
    }
    if (st == TUTTI_OK && desc->reduce)
        st = tti_device_reduce_join_update(desc->reduce, u->update, &tti_device_of(x)->transport);
    free(blocks);
    return st;
}

tutti_status tti_device_update_low_copies(tti_device_update *u) {
    return u->ops->update.low_copies(u->update);
}

void tti_device_update_destroy(tti_device_update *u) {
    if (!u) return;
    if (u->ops) u->ops->update.destroy(u->update);
    free(u);
}

bool tti_device_update_sums(const tti_device_update *u) {
    return u->desc.reduce && tti_device_reduce_updates(u->desc.reduce);
}

tutti_status tti_device_update_run(tti_device_update *u) {
    const tti_device_update_desc *d = &u->desc;
    if (tti_device_update_sums(u))
        return tti_device_reduce_update(d->reduce, d->args, d->report, d->reported);
    TTI_TRY(u->ops->update.run(u->update));
    if (!tti_exec_has_partitions(tti_setup_of(u->x))) return TUTTI_OK;
    if (u->desc.reduce)
        return tti_device_reduce_hash(u->desc.reduce, u->desc.report, u->desc.reported);
    if (tti_exec_has_sharded_params(u->x)) return TUTTI_OK;
    TTI_TRY(tti_device_host_staged_gather(u->desc.host_staged));
    return tti_device_update_complete(u, 0, tti_setup_of(u->x)->desc.plan->n_updates);
}

tutti_status tti_device_update_complete(tti_device_update *u, int first, int n) {
    return u->ops->update.complete(u->update, first, n);
}

tutti_status tti_device_update_hash(tti_device_update *u, uint64_t *hash) {
    return u->ops->update.hash(u->update, hash);
}

/* ---- gathers updated parameters bucket by bucket during the next forward pass ----
 *
 * Fetches run one after the other in their queue and wait only for each other, so each is launched
 * when a step of the program needs it: that step then waits for that bucket and no later one.  All
 * fetches come before the first sum of gradients, so that every worker has the same order of calls,
 * however many shards it has. */

/* A bucket, the first step that reads it, and its blocks (plan->updates). */
typedef struct fetch_entry {
    int bucket, step;
    int first_block, n_blocks;
} fetch_entry;

struct tti_device_param_gather {
    tti_exec *x;
    tti_device_reduce *reduce;
    tti_device_update *const *update;
    tti_low_gather *low;  /* NULL: all parameters are fetched in 32 bits */
    fetch_entry *fetches; /* [n_buckets] in the order of the fetches */
    int n_fetches, next;
    bool is_stale; /* a step began after parameters were last whole */
    tutti_status status;
};

/* ---- the order ---- */

/* The bucket of a value that a step reads; -1: not a parameter. */
static int bucket_of(const tti_plan *plan, tti_buf buf) {
    if (buf.space == TTI_SPACE_PARAM) return tti_plan_find_bucket(plan, buf.offset / sizeof(float));
    if (buf.space != TTI_SPACE_LOW) return -1;
    size_t at = buf.offset / sizeof(uint16_t); /* position in the 16-bit copies */
    int i = 0;
    while (!plan->slots[i].has_low_copy || at - plan->slots[i].low_copy >= plan->slots[i].n_elems)
        i++;
    return tti_plan_find_bucket(plan, plan->slots[i].first + (at - plan->slots[i].low_copy));
}

static int by_step(const void *a, const void *b) {
    const fetch_entry *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    return (x->bucket > y->bucket) - (x->bucket < y->bucket);
}

tutti_status tti_device_param_gather_create(tti_exec *x, tti_device_reduce *reduce,
                                            tti_device_update *const *update,
                                            tti_device_param_gather **out) {
    tti_device_param_gather *p = calloc(1, sizeof *p);
    *out = p;
    if (!p) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    *p = (tti_device_param_gather){.x = x,
                                   .reduce = reduce,
                                   .update = update,
                                   .n_fetches = tti_setup_of(x)->desc.plan->n_buckets};
    p->fetches = calloc((size_t)p->n_fetches + 1, sizeof *p->fetches);
    if (!p->fetches) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    /* Parameters that only evaluation reads come last, with those read after the first gradients
     * are ready. */
    const tti_plan *plan = tti_setup_of(p->x)->desc.plan;
    int latest = INT_MAX;
    for (int b = 0; b < plan->n_buckets; b++) {
        p->fetches[b] = (fetch_entry){.bucket = b, .step = INT_MAX};
        latest = TTI_MIN(latest, plan->buckets[b].ready_after);
    }
    const tti_program *program = &plan->shard;
    for (int s = program->n_steps - 1; s >= 0; s--)
        for (int i = 0; i < program->steps[s]->n_in; i++) {
            int b = bucket_of(plan, program->bufs[program->steps[s]->in[i]->id]);
            if (b >= 0) p->fetches[b].step = s;
        }
    /* Blocks are in the order of the flat arrays. */
    for (int i = plan->n_updates - 1; i >= 0; i--) {
        fetch_entry *t = &p->fetches[tti_plan_find_bucket(plan, plan->updates[i].first)];
        t->first_block = i;
        t->n_blocks++;
    }
    for (int b = 0; b < plan->n_buckets; b++)
        p->fetches[b].step = TTI_MIN(p->fetches[b].step, TTI_MAX(latest, 0));
    qsort(p->fetches, (size_t)plan->n_buckets, sizeof *p->fetches, by_step);
    TTI_TRY(tti_low_gather_create(x, reduce, &p->low));
    if (p->low)
        tti_str_printf(&tti_device_of(x)->transport, ", %.3g %% of the parameters in 16 bits",
                       100 * tti_low_gather_share(p->low));
    return TUTTI_OK;
}

void tti_device_param_gather_destroy(tti_device_param_gather *p) {
    if (!p) return;
    tti_low_gather_destroy(p->low);
    free(p->fetches);
    free(p);
}

bool tti_device_param_gather_sends_low(const tti_device_param_gather *p, int slot) {
    return p && tti_low_gather_has(p->low, slot);
}

/* ---- a step ---- */

static tutti_status fetch_bucket(const tti_device_param_gather *p, int bucket, bool overlapped) {
    float *dst = tti_exec_array(p->x, TTI_STATE_PARAMS) +
                 tti_setup_of(p->x)->desc.plan->buckets[bucket].first;
    return tti_device_reduce_fetch(p->reduce, bucket, TTI_FROM_PARAMS, dst, overlapped);
}

static tutti_status fetch_all(tti_device_param_gather *p) {
    TTI_TRY(tti_device_reduce_sync_and_barrier(p->reduce));
    for (int i = 0; i < p->n_fetches; i++) TTI_TRY(fetch_bucket(p, p->fetches[i].bucket, false));
    return tti_device_reduce_fetched(p->reduce, false);
}

/* Adds the received parameters, which kernels read in 16 bits from here on, to the previous step's
 * hash. */
static tutti_status complete(const tti_device_param_gather *p, int first, int n, bool low) {
    const tti_device_update *u = *p->update;
    TTI_TRY(low ? u->ops->update.complete_low(u->update, first, n)
                : u->ops->update.complete(u->update, first, n));
    return tti_profile_upto(p->x, TTI_ROW_COMPUTE, tti_instr_span(TTI_HASH), -1);
}

tutti_status tti_device_param_gather_begin(tti_device_param_gather *p, bool overlapped) {
    p->status = TUTTI_OK;
    p->next = overlapped ? 0 : p->n_fetches;
    if (overlapped) return tti_device_reduce_fetch_begin(p->reduce);
    TTI_TRY(fetch_all(p));
    return complete(p, 0, tti_setup_of(p->x)->desc.plan->n_updates, false);
}

bool tti_device_param_gather_is_due(const tti_device_param_gather *p) {
    return p->status == TUTTI_OK && p->next < p->n_fetches;
}

/* No kernels overlap with the first fetch, so it uses all multiprocessors. */
static tutti_status fetch_buckets_upto(tti_device_param_gather *p, int step) {
    int first = p->next;
    bool is_asked = tti_device_param_gather_is_due(p) && p->fetches[first].step <= step;
    if (!is_asked) return TUTTI_OK;
    for (; p->next < p->n_fetches && p->fetches[p->next].step <= step; p->next++) {
        int bucket = p->fetches[p->next].bucket;
        bool overlapped = p->next > 0;
        TTI_TRY(p->low ? tti_low_gather_fetch(p->low, bucket, overlapped)
                       : fetch_bucket(p, bucket, overlapped));
    }
    TTI_TRY(tti_device_reduce_fetched(p->reduce, true));
    for (int i = first; i < p->next; i++)
        TTI_TRY(complete(p, p->fetches[i].first_block, p->fetches[i].n_blocks, p->low != NULL));
    return TUTTI_OK;
}

void tti_device_param_gather_before(tti_device_param_gather *p, int step) {
    if (p->status == TUTTI_OK) p->status = fetch_buckets_upto(p, step);
}

tutti_status tti_device_param_gather_finish(tti_device_param_gather *p) {
    TTI_TRY(p->status);
    return fetch_buckets_upto(p, INT_MAX);
}

/* ---- between steps ---- */

tutti_status tti_device_param_gather_settle(tti_device_param_gather *p) {
    if (!p->is_stale) return TUTTI_OK;
    TTI_TRY(fetch_all(p));
    p->is_stale = false;
    return TUTTI_OK;
}

void tti_device_param_gather_written(tti_device_param_gather *p, bool whole) {
    p->is_stale = !whole;
}

/* ---- ZeRO-2 and ZeRO-3 on devices: gathers before reads, waits before writes ----
 *
 * The order of the moves follows from the plan and is the same on all workers.  Outside of a
 * captured graph a kernel that waits for a peer must not run while another one is being loaded, so
 * there all workers wait for each fetch; an evaluation does so once.  If devices do not reach each
 * other the host fetches: the parts of all workers are gathered on it once per step, or per batch
 * of an evaluation, and each bucket is copied from there. */

struct tti_device_sharded {
    tti_exec *x;
    tti_device_reduce *reduce; /* NULL: through the host, with the following memory */
    float *whole; /* [n_flat]: parameters; other workers read this worker's partitions */
    bool is_pinned;
    const tti_device_ops *ops;
    /* For the run of a program. */
    const tti_bucket_memory *params; /* NULL: parameters are unsharded */
    int *events; /* [live ranges of train or eval, whichever has more]: events of their fetches */
    int next;    /* next live range to fetch */
    int next_event;
    int source;
    bool overlapped, is_last;
    bool step_overlapped, has_evaluated;
    tutti_status status;
};

/* Allocates host memory for fetches.  Copies from memory that is not pinned are slower, but still
 * correct. */
static tutti_status alloc_host(tti_device_sharded *l) {
    size_t n_bytes = tti_setup_of(l->x)->desc.plan->n_flat * sizeof(float);
    void *memory = NULL;
    if (l->reduce || (!tti_sharded_of(l->x)->params && !tti_sharded_of(l->x)->averages))
        return TUTTI_OK;
    TTI_TRY(tutti_comm_alloc(tti_setup_of(l->x)->desc.comm, n_bytes + 64, &memory));
    l->whole = memory;
    l->is_pinned = l->ops->memory.pin(memory, n_bytes) == TUTTI_OK;
    if (!l->is_pinned) tti_clear_error();
    return TUTTI_OK;
}

tutti_status tti_device_sharded_create(tti_exec *x, tti_device_reduce *reduce,
                                       tti_device_sharded **out) {
    const tti_sharded *sharded = tti_sharded_of(x);
    tti_device_sharded *l = calloc(1, sizeof *l);
    *out = l;
    if (!l) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    *l = (tti_device_sharded){
        .x = x, .reduce = reduce, .ops = tti_setup_of(x)->desc.backend->device};
    size_t n = (size_t)TTI_MAX(sharded->train.n_live, sharded->eval.n_live);
    l->events = calloc(n + 1, sizeof *l->events);
    return l->events ? alloc_host(l) : tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
}

void tti_device_sharded_destroy(tti_device_sharded *l) {
    if (!l) return;
    if (l->is_pinned) l->ops->memory.unpin(l->whole);
    free(l->events);
    free(l);
}

/* ---- fetches through the host ---- */

/* Gathers all partitions of all workers.  No worker still reads the previous contents, because the
 * sums of a step or evaluation lie in between. */
static tutti_status gather_on_host(tti_device_sharded *l, const float *from) {
    tti_exec *x = l->x;
    const tti_setup *setup = tti_setup_of(x);
    tti_share_run run;
    if (!l->whole) return TUTTI_OK;
    for (int i = 0; tti_share_next(&setup->share, setup->desc.plan, &i, &run);)
        TTI_TRY(l->ops->queues.copy(TTI_QUEUE_COMPUTE, l->whole + run.first, from + run.state,
                                    run.n_elems * sizeof *from));
    TTI_TRY(tti_profile_upto(x, TTI_ROW_COMPUTE,
                             tti_span_of(TTI_SPAN_WORK, "own parameters to the host"), -1));
    TTI_TRY(l->ops->queues.sync());
    int64_t start = tti_now_ns();
    TTI_TRY(tti_zero_gather(setup, l->whole, l->whole));
    int64_t end = tti_now_ns();
    tti_exec_waited(x, end - start);
    tti_profile_add(x, TTI_ROW_COMM, tti_instr_span(TTI_ALL_GATHER), -1, start, end);
    return tti_profile_from(x, TTI_ROW_COMPUTE);
}

/* In the communication queue, as between devices. */
static tutti_status fetch_from_host(tti_device_sharded *l, int i, float *dst) {
    const tti_bucket *bucket = &tti_setup_of(l->x)->desc.plan->buckets[l->params->live[i].bucket];
    TTI_TRY(tti_profile_from(l->x, TTI_ROW_COMM));
    TTI_TRY(l->ops->queues.copy(TTI_QUEUE_COMM, dst, l->whole + bucket->first,
                                bucket->n_elems * sizeof *dst));
    TTI_TRY(tti_profile_upto(l->x, TTI_ROW_COMM,
                             tti_span_of(TTI_SPAN_PARAMS, "parameters to the device"), -1));
    l->events[i] = l->next_event++ % TTI_SUM_EVENTS;
    return l->ops->queues.record_event(TTI_QUEUE_COMM, l->events[i]);
}

/* ---- moves ---- */

static tutti_status fetch(tti_device_sharded *l, int i) {
    const tti_live_range *live = &l->params->live[i];
    float *dst = tti_sharded_of(l->x)->gathered + live->offset;
    if (!l->reduce) return fetch_from_host(l, i, dst);
    if (!l->overlapped) TTI_TRY(tti_device_reduce_sync_and_barrier(l->reduce));
    TTI_TRY(tti_device_reduce_fetch(l->reduce, live->bucket, l->source, dst, l->overlapped));
    if (!l->overlapped) return tti_device_reduce_rest(l->reduce);
    return tti_device_reduce_record(l->reduce, &l->events[i]);
}

/* True if only the readers wait for a fetch, and not the launch. */
static bool fetches_overlapped(const tti_device_sharded *l) { return !l->reduce || l->overlapped; }

/* Waits until the previous contents have been summed.  Sums run in order, so it waits for the
 * newest. */
static tutti_status await_place(tti_device_sharded *l, const tti_live_range *live) {
    const tti_bucket_memory *w = &tti_sharded_of(l->x)->grads;
    int newest = -1;
    for (int i = 0; i < w->n_live; i++)
        if (w->live[i].last < live->first && tti_bucket_memory_shares(w, &w->live[i], live))
            newest = TTI_MAX(newest, w->live[i].bucket);
    if (newest < 0) return TUTTI_OK;
    TTI_TRY(tti_device_reduce_wait_for(l->reduce, newest));
    return tti_profile_upto(l->x, TTI_ROW_COMPUTE, tti_span_of(TTI_SPAN_WAIT, "waiting for sums"),
                            -1);
}

static tutti_status prepare_for_step(tti_device_sharded *l, int step) {
    const tti_bucket_memory *grads = &tti_sharded_of(l->x)->grads;
    if (l->params) {
        /* The memory is free once the steps that are queued now have completed. */
        int first = l->next;
        while (l->next < l->params->n_live && l->params->live[l->next].taken <= step) {
            if (fetches_overlapped(l) && l->next == first)
                TTI_TRY(l->ops->queues.order(TTI_QUEUE_COMM, TTI_QUEUE_COMPUTE));
            TTI_TRY(fetch(l, l->next++));
        }
    }
    if (l->params) {
        bool waits = false;
        for (int i = 0; i < l->next; i++) {
            if (l->params->live[i].first != step || !fetches_overlapped(l)) continue;
            TTI_TRY(l->ops->queues.wait_event(TTI_QUEUE_COMPUTE, l->events[i]));
            waits = true;
        }
        if (waits)
            TTI_TRY(tti_profile_upto(l->x, TTI_ROW_COMPUTE,
                                     tti_span_of(TTI_SPAN_WAIT, "waiting for parameters"), -1));
    }
    for (int i = 0; l->is_last && l->overlapped && i < grads->n_live; i++)
        if (grads->live[i].first == step) TTI_TRY(await_place(l, &grads->live[i]));
    return TUTTI_OK;
}

void tti_device_sharded_before(tti_device_sharded *l, int step) {
    if (l->status == TUTTI_OK) l->status = prepare_for_step(l, step);
}

/* The same moves, for a micro-batch group without a shard of this worker. */
static void move_without_shard(tti_device_sharded *l, int n_steps) {
    for (int s = 0; s < n_steps; s++) tti_device_sharded_before(l, s);
}

/* ---- a step ---- */

void tti_device_sharded_begin(tti_device_sharded *l, bool is_last) {
    l->params = tti_sharded_of(l->x)->params ? &tti_sharded_of(l->x)->train : NULL;
    l->source = TTI_FROM_PARAMS;
    l->overlapped = l->step_overlapped;
    l->is_last = is_last;
    l->next = 0;
}

/* Each segment of a shard fetches what it reads.  No live range spans two segments. */
void tti_device_sharded_begin_segment(tti_device_sharded *l, bool eval, int first) {
    l->params = eval ? &tti_sharded_of(l->x)->eval : &tti_sharded_of(l->x)->train;
    l->next = 0;
    while (l->next < l->params->n_live && l->params->live[l->next].first < first) l->next++;
}

/* The host gathers for each worker separately, so idle gathers are not necessary. */
static int n_idle_gathers(const tti_device_sharded *l, int n_idle) {
    return l->reduce ? n_idle : 0;
}

tutti_status tti_device_sharded_step(tti_device_sharded *l, bool overlapped) {
    l->step_overlapped = overlapped;
    l->status = tti_sharded_of(l->x)->params
                    ? gather_on_host(l, tti_exec_array(l->x, TTI_STATE_PARAMS))
                    : TUTTI_OK;
    for (int i = n_idle_gathers(l, tti_sharded_idle_micro_groups(l->x)); i > 0; i--) {
        tti_device_sharded_begin(l, false);
        move_without_shard(l, tti_setup_of(l->x)->desc.plan->shard.n_steps);
    }
    return l->status;
}

tutti_status tti_device_sharded_finish(tti_device_sharded *l) { return l->status; }

/* ---- evaluation ---- */

static void begin_eval(tti_device_sharded *l) {
    l->params = tti_sharded_of(l->x)->params ? &tti_sharded_of(l->x)->eval : NULL;
    l->source = tti_exec_array(l->x, TTI_STATE_EMA) ? TTI_FROM_AVERAGES : TTI_FROM_PARAMS;
    l->overlapped = l->reduce && l->has_evaluated;
    l->is_last = false;
    l->next = 0;
    l->status = TUTTI_OK;
}

tutti_status tti_device_sharded_eval_begin(tti_device_sharded *l) {
    l->status = TUTTI_OK;
    return tti_sharded_of(l->x)->params
               ? gather_on_host(l, tti_exec_array(l->x, TTI_STATE_EMA)
                                       ? tti_exec_array(l->x, TTI_STATE_EMA)
                                       : tti_exec_array(l->x, TTI_STATE_PARAMS))
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

tutti_status tti_device_sharded_eval_rest(tti_device_sharded *l) {
    const tti_setup *setup = tti_setup_of(l->x);
    /* Shards are evaluated one after the other, even if the shards of a training step are
     * joined. */
    int n_idle = tti_shard_map_most(&setup->shard_map) - (setup->last_shard - setup->first_shard);
    for (int i = n_idle_gathers(l, n_idle); i > 0; i--) {
        begin_eval(l);
        move_without_shard(l, setup->desc.plan->eval.n_steps);
        TTI_TRY(l->status);
    }
    l->has_evaluated = true;
    return TUTTI_OK;
}

tutti_status tti_device_sharded_rest(tti_device_sharded *l) {
    return l->reduce ? tti_device_reduce_rest(l->reduce) : l->ops->queues.sync();
}

tutti_status tti_device_sharded_averages(tti_device_sharded *l) {
    const tti_plan *plan = tti_setup_of(l->x)->desc.plan;
    if (!l->reduce) {
        size_t n_bytes = tti_setup_of(l->x)->desc.plan->n_flat * sizeof(float);
        TTI_TRY(gather_on_host(l, tti_exec_array(l->x, TTI_STATE_EMA)));
        TTI_TRY(l->ops->queues.copy(TTI_QUEUE_COMPUTE, tti_sharded_of(l->x)->averages, l->whole,
                                    n_bytes));
        return tti_device_sharded_rest(l);
    }
    TTI_TRY(tti_device_reduce_sync_and_barrier(l->reduce));
    for (int b = 0; b < plan->n_buckets; b++) {
        float *dst = tti_sharded_of(l->x)->averages + plan->buckets[b].first;
        TTI_TRY(tti_device_reduce_fetch(l->reduce, b, TTI_FROM_AVERAGES, dst, false));
    }
    return tti_device_sharded_rest(l);
}
