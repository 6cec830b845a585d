/* offload.c - updates the parameters of a device worker on the host.
 *
 * Uses a host executor without shards, as a parameter server does, in the same group of workers.
 * So optimizers, norms, partitions, averages and checkpoints give the same bits as on the host.
 * This file only copies between host and device memory. */
#include "exec/device/params/device_params.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/transport.h"
#include "exec/device/state/device_state.h"
#include "exec/program/exec_program.h"

struct tti_offload {
    tti_exec *x, *host;
    const tti_device_ops *ops;
    float *grads;                     /* [n_flat] host: summed gradients; a buffer of host */
    bool owns_grads;                  /* false: the communicator owns them */
    bool has_pinned;                  /* the communicator's memory is pinned */
    bool has_pinned_params;           /* the host executor's parameters are pinned */
    tti_step_report *report;          /* pinned */
    tti_offload_report device_report; /* of the device's steps */
    int next_bucket;                  /* the next bucket to copy */
    bool has_averages;
    int *due; /* [n_buckets]: steps after which a streaming worker's buckets are due (accumulate.h);
                 NULL: the worker does not stream */
    int sums_due;
    double *sums;          /* pinned [device_report.n_sums]: copied with the first bucket */
    int n_awaited;         /* events of the step in flight */
    int64_t arrived_ns;    /* time (tti_now_ns) when the last event completed */
    bool has_early_result; /* the update has already completed, with result early_result */
    tti_step_result early_result;
};

/* The host executor has no shards to add: sums come from x. */
tti_exec_desc tti_offload_desc(const tti_setup *setup) {
    tti_exec_desc desc = setup->desc;
    desc.backend = &tti_backend_cpu;
    desc.device = (tti_device_desc){0};
    desc.n_compute_threads = setup->n_threads;
    desc.serves = true;
    desc.offload = false;
    desc.mixed = false;
    desc.fast = false;
    desc.wire = TUTTI_F32;
    desc.compression = TTI_COMPRESS_NONE;
    return desc;
}

/* Copies from memory that is not pinned wait for the device, but are still correct. */
static bool pin(const tti_offload *o, void *memory, size_t n_bytes) {
    if (o->ops->memory.pin(memory, n_bytes) == TUTTI_OK) return true;
    tti_clear_error();
    return false;
}

static size_t flat_bytes(const tti_offload *o) {
    return tti_setup_of(o->x)->desc.plan->n_flat * sizeof(float);
}

static tutti_status send_params(void *user, size_t first, size_t last);

tutti_status tti_offload_create(tti_exec *x, tti_exec *host, tti_offload **out) {
    *out = NULL;
    tti_offload *o = calloc(1, sizeof *o);
    if (!o) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    *o = (tti_offload){.x = x, .host = host, .ops = tti_setup_of(x)->desc.backend->device};
    tti_update_set_overlap(tti_update_of(o->host),
                           &(tti_update_overlap){.updated = send_params, .user = o});
    o->has_pinned_params = pin(o, tti_exec_array(o->host, TTI_STATE_PARAMS), flat_bytes(o));
    o->report = o->ops->memory.alloc_host(sizeof *o->report);
    tutti_status st = o->report ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: out of pinned memory");
    if (st == TUTTI_OK)
        *out = o;
    else
        tti_offload_destroy(o);
    return st;
}

void tti_offload_destroy(tti_offload *o) {
    if (!o) return;
    if (o->has_pinned_params) o->ops->memory.unpin(tti_exec_array(o->host, TTI_STATE_PARAMS));
    if (o->has_pinned) o->ops->memory.unpin(o->grads);
    if (o->owns_grads) o->ops->memory.release_host(o->grads);
    if (o->report) o->ops->memory.release_host(o->report);
    if (o->sums) o->ops->memory.release_host(o->sums);
    free(o->due);
    free(o);
}

tti_exec *tti_offload_host(const tti_offload *o) { return o ? o->host : NULL; }

/* Other workers read this memory: partitions of parameters are sent through it. */
static tutti_status alloc_grads(tti_offload *o) {
    void *memory = NULL;
    if (tti_setup_of(o->x)->n_ranks == 1) {
        o->grads = o->ops->memory.alloc_host(flat_bytes(o) + 64);
        o->owns_grads = o->grads != NULL;
    } else {
        TTI_TRY(tutti_comm_alloc(tti_setup_of(o->x)->desc.comm, flat_bytes(o) + 64, &memory));
        o->grads = memory;
        /* A captured graph cannot wait for copies to memory that is not pinned. */
        TTI_TRY(o->ops->memory.pin(memory, flat_bytes(o)));
        o->has_pinned = true;
    }
    return o->grads ? TUTTI_OK
                    : tti_fail(TUTTI_E_NOMEM, "exec: cannot allocate %zu bytes of pinned memory",
                               flat_bytes(o));
}

static tutti_status wait_for_gradients(void *user, size_t first, size_t last);

static tutti_status prepare_stream(tti_offload *o) {
    const tti_exec_desc *desc = &tti_setup_of(o->x)->desc;
    const tti_plan *plan = desc->plan;
    /* True if the update of a bucket depends only on its own gradients. */
    bool is_local = desc->clip_norm == 0 && !desc->watch_gradients && !plan->takes_norms &&
                    desc->l1 == 0 && desc->clip_value == 0;
    if (!o->ops->update.is_overlapped || tti_setup_of(o->x)->n_ranks > 1 || plan->n_buckets < 2 ||
        !is_local)
        return TUTTI_OK;
    o->sums = o->ops->memory.alloc_host((size_t)o->device_report.n_sums * sizeof *o->sums);
    o->due = calloc((size_t)plan->n_buckets, sizeof *o->due);
    if (!o->sums || !o->due) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    tti_bucket_due(plan, o->due);
    o->sums_due = tti_sums_due(&plan->shard);
    tti_update_set_overlap(
        tti_update_of(o->host),
        &(tti_update_overlap){.awaited = wait_for_gradients, .updated = send_params, .user = o});
    return TUTTI_OK;
}

tutti_status tti_offload_attach(tti_offload *o, tti_device_host_staged *host_staged,
                                const tti_offload_report *report) {
    o->device_report = *report;
    if (host_staged)
        o->grads = tti_device_host_staged_sum(host_staged);
    else
        TTI_TRY(alloc_grads(o));
    tti_exec_lend_grads(o->host, o->grads);
    return host_staged ? TUTTI_OK : prepare_stream(o);
}

bool tti_offload_streams(const tti_offload *o) { return o && o->due; }

/* ---- gradients to the host ---- */

void tti_offload_begin(tti_offload *o) {
    o->next_bucket = o->n_awaited = 0;
    o->has_early_result = false;
}

/* The number of events is limited: neighbouring buckets share one, recorded after the last of
 * them. */
static int event_of(const tti_offload *o, int bucket) {
    int n_buckets = tti_setup_of(o->x)->desc.plan->n_buckets,
        n_events = TTI_MIN(n_buckets, TTI_N_OFFLOADED);
    return (int)((int64_t)bucket * n_events / n_buckets);
}

/* The range that is summed here: the whole bucket, or the blocks that this worker updates. */
static tti_range part_of(const tti_setup *setup, int bucket) {
    const tti_bucket *b = &setup->desc.plan->buckets[bucket];
    const size_t *bounds =
        setup->share.bounds + (size_t)bucket * (size_t)(setup->share.n_ranks + 1);
    if (!tti_exec_has_partitions(setup)) return (tti_range){b->first, b->first + b->n_elems};
    return (tti_range){bounds[setup->rank], bounds[setup->rank + 1]};
}

tutti_status tti_offload_bring(tti_offload *o, int n_buckets, tti_queue queue) {
    const float *sums = tti_exec_grads(o->x);
    if (o->next_bucket >= n_buckets) return TUTTI_OK;
    TTI_TRY(o->ops->queues.order(TTI_QUEUE_COPY, queue));
    TTI_TRY(tti_profile_from(o->x, TTI_ROW_COPY));
    if (o->due && o->next_bucket == 0) {
        TTI_TRY(o->ops->queues.copy(TTI_QUEUE_COPY, o->sums, o->device_report.sums,
                                    (size_t)o->device_report.n_sums * sizeof *o->sums));
    }
    for (; o->next_bucket < n_buckets; o->next_bucket++) {
        tti_range part = part_of(tti_setup_of(o->x), o->next_bucket);
        TTI_TRY(o->ops->queues.copy(TTI_QUEUE_COPY, o->grads + part.first, sums + part.first,
                                    (part.last - part.first) * sizeof *sums));
        bool is_last = o->next_bucket + 1 == tti_setup_of(o->x)->desc.plan->n_buckets;
        if (o->due && (is_last || event_of(o, o->next_bucket + 1) != event_of(o, o->next_bucket))) {
            TTI_TRY(o->ops->queues.record_host_event(
                TTI_QUEUE_COPY, TTI_EVENT_OFFLOADED + event_of(o, o->next_bucket)));
        }
    }
    return tti_profile_upto(o->x, TTI_ROW_COPY,
                            tti_span_of(TTI_SPAN_GRADS, "gradients to the host"), -1);
}

bool tti_offload_wants_sums(const tti_offload *o, int step) {
    return tti_offload_streams(o) && step == o->sums_due;
}

tutti_status tti_offload_after(tti_offload *o, int step) {
    tti_exec *x = o->x;
    const tti_setup *setup = tti_setup_of(x);
    const tti_plan *plan = setup->desc.plan;
    const tti_micro_group *last = &setup->acc.micro_groups[setup->acc.n_micro_groups - 1];
    int n = o->next_bucket;
    for (; n < plan->n_buckets &&
           (o->due ? o->due[n] : tti_setup_of(o->x)->desc.plan->buckets[n].ready_after) <= step;
         n++)
        tti_exec_merge(x, last, plan->buckets[n].first,
                       plan->buckets[n].first + plan->buckets[n].n_elems);
    return tti_offload_bring(o, n, TTI_QUEUE_COMPUTE);
}

/* ---- the update ---- */

/* A streaming worker's copy queue still has gradients to copy. */
static tti_queue queue_back(const tti_offload *o) {
    return o->due ? TTI_QUEUE_COMM : TTI_QUEUE_COPY;
}

/* Parameters first .. last-1 are final: copies them to the device. */
static tutti_status send_params(void *user, size_t first, size_t last) {
    const tti_offload *o = user;
    return o->ops->queues.copy(queue_back(o), tti_exec_array(o->x, TTI_STATE_PARAMS) + first,
                               tti_exec_array(o->host, TTI_STATE_PARAMS) + first,
                               (last - first) * sizeof(float));
}

/* Waits for the gradients of elements first .. last-1. */
static tutti_status wait_for_gradients(void *user, size_t first, size_t last) {
    tti_offload *o = user;
    TTI_ASSERT(last > first);
    int event = event_of(o, tti_plan_find_bucket(tti_setup_of(o->x)->desc.plan, last - 1));
    for (; o->n_awaited <= event; o->n_awaited++) {
        TTI_TRY(o->ops->queues.await_host_event(TTI_EVENT_OFFLOADED + o->n_awaited));
        o->arrived_ns = tti_now_ns();
    }
    return TUTTI_OK;
}

static tutti_status make_update(tti_offload *o, const tti_step_desc *desc,
                                tti_step_result *result) {
    tti_exec *h = o->host;
    tti_exec_begin_step(h, desc);
    tti_arrays_of(h)->has_whole_ema = o->has_averages = false;
    tti_tally_of(h)->gather_ns = 0;
    return tti_exec_apply(h, desc, result->count > 0 ? 1.0 / result->count : 0, result);
}

tutti_status tti_offload_stream(tti_offload *o, const tti_step_desc *desc) {
    o->early_result = (tti_step_result){0};
    int64_t start = tti_now_ns();
    TTI_TRY(wait_for_gradients(o, 0, 1));
    memcpy(tti_exec_sums(o->x), o->sums, (size_t)o->device_report.n_sums * sizeof *o->sums);
    tti_exec_set_sums(o->x, &o->early_result);
    if (tti_exec_first_bad_shard(o->x) < 0) {
        TTI_TRY(make_update(o, desc, &o->early_result));
        o->has_early_result = true;
    }
    /* Buckets of frozen parameters have no block and so no other wait, but they must have
     * arrived. */
    TTI_TRY(wait_for_gradients(o, 0, tti_setup_of(o->x)->desc.plan->n_flat));
    tti_profile_add(o->x, TTI_ROW_HOST,
                    tti_span_of(TTI_SPAN_OTHER, "update on the host, as gradients come"), -1, start,
                    tti_now_ns());
    return TUTTI_OK;
}

int64_t tti_offload_came_ns(const tti_offload *o) { return o->arrived_ns; }

tutti_status tti_offload_update(tti_offload *o, const tti_step_desc *desc,
                                tti_step_result *result) {
    int bad = tti_exec_first_bad_shard(o->x);
    if (bad < 0) {
        int64_t start = o->due ? o->arrived_ns : tti_now_ns();
        if (!o->due) TTI_TRY(make_update(o, desc, result));
        if (o->has_early_result) result->params_hash = o->early_result.params_hash;
        o->report->params_hash = result->params_hash;
        TTI_TRY(o->ops->queues.copy(queue_back(o), o->device_report.report, o->report,
                                    sizeof *o->report));
        TTI_TRY(o->ops->queues.order(TTI_QUEUE_COMPUTE, queue_back(o)));
        int64_t end = tti_now_ns();
        result->comm_ns += tti_tally_of(o->host)->gather_ns;
        tti_exec_waited(o->x, tti_tally_of(o->host)->gather_ns);
        result->update_ns = end - start - tti_tally_of(o->host)->gather_ns;
        if (!o->due)
            tti_profile_add(o->x, TTI_ROW_HOST, tti_span_of(TTI_SPAN_OTHER, "update on the host"),
                            -1, start, end);
        return TUTTI_OK;
    }
    result->skipped = true;
    return tti_setup_of(o->x)->desc.mixed ? tti_exec_report_bad_loss(o->x, desc, bad)
                                          : tti_exec_bad_loss(o->x, desc->step, bad, "");
}

/* ---- whole arrays to the device ---- */

static tutti_status copy_to_device(const tti_offload *o, float *dst, const float *src) {
    TTI_TRY(o->ops->queues.copy(TTI_QUEUE_COMPUTE, dst, src, flat_bytes(o)));
    return o->ops->queues.sync();
}

tutti_status tti_offload_put_params(tti_offload *o) {
    o->has_averages = false;
    return copy_to_device(o, tti_exec_array(o->x, TTI_STATE_PARAMS),
                          tti_exec_array(o->host, TTI_STATE_PARAMS));
}

tutti_status tti_offload_put_averages(tti_offload *o) {
    tti_exec *h = o->host;
    const tti_setup *setup = tti_setup_of(h);
    if (!tti_exec_array(h, TTI_STATE_EMA) || o->has_averages) return TUTTI_OK;
    if (tti_exec_has_partitions(setup)) TTI_TRY(tti_zero_gather_ema(h));
    TTI_TRY(copy_to_device(
        o, tti_exec_grads(o->x),
        tti_exec_has_partitions(setup) ? tti_zero_averages(h) : tti_exec_array(h, TTI_STATE_EMA)));
    o->has_averages = true;
    return TUTTI_OK;
}
