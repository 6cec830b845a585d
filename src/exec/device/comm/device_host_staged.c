/* device_host_staged.c - reduces device gradients through host memory. */
#include "exec/device/comm/device_host_staged.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/transport.h"
#include "exec/device/comm/device_tp.h"
#include "exec/device/state/device_state.h"

struct tti_device_host_staged {
    tti_exec *x;
    const tti_device_ops *ops;
    float **partials; /* [n_partials >= acc.n_partials], owned by the communicator */
    int n_partials;
    uint16_t *wire;  /* [n_flat], owned by the communicator: sums in the wire dtype; NULL: sums are
                        sent as f32 */
    int n_pinned;    /* the first n_pinned partials are pinned */
    int next_bucket; /* next bucket of sharded gradients to copy */
    int64_t computed_ns; /* when the gradients of the newest step had been copied to the host */
    int64_t summed_ns;   /* when they had been summed over all workers */
};

/* In fast mode only the first partial sum has gradients. */
static int n_partials_of(const tti_setup *setup) {
    return setup->desc.fast ? 1 : setup->acc.n_partials;
}

/* All ranks allocate the same number. In mixed runs each partial sum corresponds to a buffer of a
 * worker on the host. */
static tutti_status alloc_partials(tti_device_host_staged *b) {
    const tti_setup *setup = tti_setup_of(b->x);
    int32_t n = setup->n_agreed, own = setup->acc.n_partials;
    if (setup->n_ranks == 1) return TUTTI_OK; /* no other worker has the same part of the model */
    if (!setup->desc.mixed)
        TTI_TRY(tutti_comm_all_reduce(setup->desc.comm, &own, &n, 1, TUTTI_I32, TUTTI_MAX,
                                      TUTTI_ALG_AUTO));
    if (b->partials && n <= b->n_partials) return TUTTI_OK;
    float **partials = realloc(b->partials, (size_t)(n + 1) * sizeof *partials);
    if (!partials) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    b->partials = partials;
    for (; b->n_partials < n; b->n_partials++) {
        void *memory = NULL;
        TTI_TRY(tutti_comm_alloc(setup->desc.comm, setup->desc.plan->n_flat * sizeof(float) + 64,
                                 &memory));
        partials[b->n_partials] = memory;
    }
    return TUTTI_OK;
}

tutti_status tti_device_host_staged_grow(tti_device_host_staged *b) { return alloc_partials(b); }

static tutti_status alloc_wire(tti_device_host_staged *b) {
    const tti_setup *setup = tti_setup_of(b->x);
    void *memory = NULL;
    if (setup->n_ranks == 1 || !setup->desc.fast || setup->desc.wire == TUTTI_F32) return TUTTI_OK;
    TTI_TRY(tutti_comm_alloc(setup->desc.comm, setup->desc.plan->n_flat * sizeof *b->wire + 64,
                             &memory));
    b->wire = memory;
    return TUTTI_OK;
}

tutti_status tti_device_host_staged_create(tti_exec *x, tti_device_host_staged **out) {
    const tti_setup *setup = tti_setup_of(x);
    tti_device_host_staged *b = calloc(1, sizeof *b);
    *out = b;
    if (!b) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    b->x = x;
    b->ops = setup->desc.backend->device;
    if (setup->desc.server) return TUTTI_OK; /* gradients are copied to the server's memory */
    TTI_TRY(alloc_wire(b));                  /* allocations must be in the order of exec.c */
    TTI_TRY(alloc_partials(b));
    /* A copy to memory that is not pinned is slower, but still correct. */
    size_t n_bytes = tti_setup_of(b->x)->desc.plan->n_flat * sizeof(float);
    int n = TTI_MIN(b->n_partials, n_partials_of(tti_setup_of(b->x)));
    while (b->n_pinned < n && b->ops->memory.pin(b->partials[b->n_pinned], n_bytes) == TUTTI_OK)
        b->n_pinned++;
    if (b->n_pinned < n) tti_clear_error();
    if (tti_compress_wanted(&setup->desc, setup->n_ranks)) return tti_exec_create_compress(x);
    return TUTTI_OK;
}

void tti_device_host_staged_destroy(tti_device_host_staged *b) {
    if (!b) return;
    for (int i = 0; i < b->n_pinned; i++) b->ops->memory.unpin(b->partials[i]);
    free(b->partials);
    free(b);
}

/* Sums the partial sums [n_flat] as the host does. In exact mode: along the tree, whole or bucket
 * by bucket to the owners of partitions. */
static tutti_status sum_partials(const tti_device_host_staged *b, const tti_partial *partials,
                                 int n_partials) {
    tti_exec *x = b->x;
    const tti_setup *setup = tti_setup_of(x);
    const tti_plan *plan = setup->desc.plan;
    bool along_tree = !setup->desc.fast && !setup->desc.local;
    if (along_tree && !tti_exec_has_partitions(setup))
        return tti_exec_reduce_tree(x, partials, (tti_range){0, plan->n_flat}, false, false);
    tti_reduce_method method = tti_compress_is_on(x) ? TTI_REDUCE_COMPRESS
                               : b->wire             ? TTI_REDUCE_ROUNDED
                                                     : TTI_REDUCE_ANY;
    for (int i = 0; i < plan->n_buckets; i++) {
        size_t first = plan->buckets[i].first, n = plan->buckets[i].n_elems;
        const tti_range range = {first, first + n};
        tti_partial part[TTI_MAX_PARTIALS];
        for (int k = 0; k < n_partials; k++) {
            part[k] = partials[k];
            part[k].data = (float *)partials[k].data + first;
        }
        if (along_tree)
            TTI_TRY(
                tti_exec_reduce_tree(x, part, range, !tti_pipe_has_tied(plan, first, n), false));
        else
            TTI_TRY(tti_exec_reduce_sum(x, method, part[0].data, b->wire ? b->wire + first : NULL,
                                        range, false));
    }
    return TUTTI_OK;
}

/* ---- gradients on the device ---- */

/* Copies a range of every partial sum to the host. */
static tutti_status copy_to_host(const tti_device_host_staged *b, size_t first, size_t n_elems) {
    const tti_exec *x = b->x;
    const tti_setup *setup = tti_setup_of(x);
    for (int i = 0; i < n_partials_of(setup); i++)
        TTI_TRY(b->ops->queues.copy(TTI_QUEUE_COMPUTE, b->partials[i] + first,
                                    tti_exec_grads_at(x, setup->acc.partial_buffer[i], first),
                                    n_elems * sizeof(float)));
    return TUTTI_OK;
}

tutti_status tti_device_host_staged_after(tti_device_host_staged *b, int step) {
    const tti_plan *plan = tti_setup_of(b->x)->desc.plan;
    while (b->next_bucket < plan->n_buckets && plan->buckets[b->next_bucket].ready_after <= step) {
        /* Copies a bucket before later kernels of the queue overwrite it. */
        const tti_bucket *bucket = &plan->buckets[b->next_bucket++];
        tti_exec *x = b->x;
        const tti_setup *setup = tti_setup_of(x);
        size_t first = bucket->first, n = bucket->n_elems;
        TTI_TRY(tti_device_tp_wait(tti_tp_of(x)));
        tti_exec_merge(x, &setup->acc.micro_groups[setup->acc.n_micro_groups - 1], first,
                       first + n);
        for (int i = 1; setup->desc.fast && i < setup->acc.n_partials; i++)
            setup->desc.backend->accumulate(
                tti_exec_grads_at(x, setup->acc.partial_buffer[0], first),
                tti_exec_grads_at(x, setup->acc.partial_buffer[i], first), n);
        TTI_TRY(copy_to_host(b, first, n));
    }
    return TUTTI_OK;
}

/* Copies the sums to where the update reads them. */
static tutti_status put_grads(const tti_device_host_staged *b) {
    tti_exec *x = b->x;
    const tti_setup *setup = tti_setup_of(x);
    const tti_sharded *sharded = tti_sharded_of(x);
    float *own = sharded ? sharded->own_grads : NULL;
    tti_share_run run;
    if (!own)
        return b->ops->queues.copy(TTI_QUEUE_COMPUTE, tti_exec_grads(x), b->partials[0],
                                   setup->desc.plan->n_flat * sizeof(float));
    for (int i = 0; tti_share_next(&setup->share, setup->desc.plan, &i, &run);)
        TTI_TRY(b->ops->queues.copy(TTI_QUEUE_COMPUTE, own + run.state, b->partials[0] + run.first,
                                    run.n_elems * sizeof(float)));
    return TUTTI_OK;
}

tutti_status tti_device_host_staged_grads(tti_device_host_staged *b) {
    tti_exec *x = b->x;
    const tti_setup *setup = tti_setup_of(x);
    tti_partial partials[TTI_MAX_PARTIALS];
    if (setup->n_ranks == 1) return TUTTI_OK;
    int n_partials = n_partials_of(setup);
    TTI_TRY(b->ops->queues.record_host_event(TTI_QUEUE_COMPUTE, TTI_EVENT_COMPUTED));
    for (int i = 0; i < n_partials; i++) {
        partials[i] = setup->acc.partials[i];
        partials[i].data = b->partials[i];
    }
    if (tti_sharded_of(x)) {
        TTI_TRY(tti_device_host_staged_after(b, setup->desc.plan->shard.n_steps));
        b->next_bucket = 0;
    } else {
        TTI_TRY(copy_to_host(b, 0, setup->desc.plan->n_flat));
    }
    TTI_TRY(tti_profile_upto(x, TTI_ROW_COMPUTE,
                             tti_span_of(TTI_SPAN_GRADS, "gradients to the host"), -1));
    TTI_TRY(b->ops->queues.await_host_event(TTI_EVENT_COMPUTED));
    int64_t made = tti_now_ns();
    TTI_TRY(b->ops->queues.sync());
    int64_t start = b->computed_ns = tti_now_ns();
    tti_exec_copied(x, start - made);
    TTI_TRY(sum_partials(b, partials, n_partials));
    int64_t end = tti_now_ns();
    tti_exec_waited(x, end - start);
    tti_profile_add(x, TTI_ROW_COMM, tti_instr_span(TTI_ALL_REDUCE), -1, start, end);
    if (tti_pipe_of(x)) TTI_TRY(tti_pipe_reduce_tied_grads(x, b->partials[0]));
    TTI_TRY(tti_profile_from(x, TTI_ROW_COMPUTE));
    if (tti_offload_of(x)) return TUTTI_OK;
    TTI_TRY(put_grads(b));
    return tti_profile_upto(x, TTI_ROW_COMPUTE,
                            tti_span_of(TTI_SPAN_GRADS, "gradients to the device"), -1);
}

int64_t tti_device_host_staged_computed(const tti_device_host_staged *b) { return b->computed_ns; }
int64_t tti_device_host_staged_summed(const tti_device_host_staged *b) { return b->summed_ns; }

float *tti_device_host_staged_sum(const tti_device_host_staged *b) { return b->partials[0]; }

tutti_status tti_device_host_staged_copy_sums(tti_device_host_staged *b, const double *sums) {
    tti_exec *x = b->x;
    const tti_setup *setup = tti_setup_of(x);
    size_t n = (size_t)tti_n_sums(setup), first = (size_t)setup->first_shard * n,
           last = (size_t)setup->last_shard * n;
    double *all = tti_exec_clear_sums(x);
    if (!tti_pipe_of(x) ||
        tti_instance_has_output(tti_exec_instance(x, 0, false),
                                "loss_sum")) /* else the slot belongs to another stage */
        TTI_TRY(b->ops->queues.copy(TTI_QUEUE_COMPUTE, all + first, sums + first,
                                    (last - first) * sizeof *sums));
    TTI_TRY(
        tti_profile_upto(x, TTI_ROW_COMPUTE, tti_span_of(TTI_SPAN_SUMS, "sums to the host"), -1));
    return b->ops->queues.sync();
}

tutti_status tti_device_host_staged_put_sums(tti_device_host_staged *b, double *sums) {
    tti_exec *x = b->x;
    TTI_TRY(tti_profile_from(x, TTI_ROW_COMPUTE));
    TTI_TRY(b->ops->queues.copy(TTI_QUEUE_COMPUTE, sums, tti_exec_sums(x),
                                tti_n_shard_sums(tti_setup_of(x)) * sizeof *sums));
    return tti_profile_upto(x, TTI_ROW_COMPUTE, tti_span_of(TTI_SPAN_SUMS, "sums to the device"),
                            -1);
}

tutti_status tti_device_host_staged_sums(tti_device_host_staged *b, double *sums, bool vote) {
    TTI_TRY(tti_device_host_staged_copy_sums(b, sums));
    TTI_TRY(tti_exec_reduce_sums(b->x, vote, NULL));
    b->summed_ns = tti_now_ns();
    return tti_device_host_staged_put_sums(b, sums);
}

/* Each rank fills the slots of its own shards; all others are zero. */
tutti_status tti_device_host_staged_joins(tti_device_host_staged *b, float *parts, size_t n) {
    tti_exec *x = b->x;
    const tti_setup *setup = tti_setup_of(x);
    tti_joins *joins = tti_joins_of(x);
    size_t n_all = n * (size_t)setup->desc.n_shards, first = n * (size_t)setup->first_shard;
    size_t n_own = n * (size_t)(setup->last_shard - setup->first_shard);
    if (setup->n_ranks == 1) return TUTTI_OK;
    memset(joins->parts, 0, n_all * sizeof *joins->parts);
    TTI_TRY(b->ops->queues.copy(TTI_QUEUE_COMPUTE, joins->parts + first, parts + first,
                                n_own * sizeof *parts));
    TTI_TRY(b->ops->queues.sync());
    int64_t start = tti_now_ns();
    TTI_TRY(tutti_comm_all_reduce(setup->desc.comm, joins->parts, joins->parts, n_all, TUTTI_F32,
                                  TUTTI_SUM, TUTTI_ALG_AUTO));
    int64_t end = tti_now_ns();
    tti_exec_waited(x, end - start);
    tti_profile_add(x, TTI_ROW_COMM, tti_instr_span(TTI_JOIN), -1, start, end);
    TTI_TRY(b->ops->queues.copy(TTI_QUEUE_COMPUTE, parts, joins->parts, n_all * sizeof *parts));
    return b->ops->queues.sync(); /* the next join reuses the host's copy */
}

tutti_status tti_device_host_staged_words(tti_device_host_staged *b, void *words, size_t n) {
    tti_exec *x = b->x;
    const tti_setup *setup = tti_setup_of(x);
    double *partials = tti_update_partials(tti_update_of(x));
    size_t n_bytes = n * sizeof(uint32_t), n_sums = n_bytes / sizeof(double);
    TTI_ASSERT(n_sums <= 2 * (size_t)setup->desc.plan->n_updates);
    TTI_TRY(b->ops->queues.copy(TTI_QUEUE_COMPUTE, partials, words, n_bytes));
    TTI_TRY(b->ops->queues.sync());
    int64_t start = tti_now_ns();
    if (tti_exec_has_partitions(setup))
        TTI_TRY(tutti_comm_all_reduce(setup->desc.comm, partials, partials, n_sums, TUTTI_F64,
                                      TUTTI_SUM, TUTTI_ALG_AUTO)); /* only one term is nonzero */
    if (setup->divided)
        TTI_TRY(tti_divided_partials(setup->divided, setup->desc.plan, tti_update_of(x), n_sums));
    tti_exec_waited(x, tti_now_ns() - start);
    TTI_TRY(b->ops->queues.copy(TTI_QUEUE_COMPUTE, words, partials, n_bytes));
    return b->ops->queues.sync();
}

/* Gathers parameters through the host's copy of the summed gradients. The partitions cover the flat
 * range. */
tutti_status tti_device_host_staged_gather(tti_device_host_staged *b) {
    tti_exec *x = b->x;
    const tti_setup *setup = tti_setup_of(x);
    tti_share_run run;
    for (int i = 0; tti_share_next(&setup->share, setup->desc.plan, &i, &run);)
        TTI_TRY(b->ops->queues.copy(TTI_QUEUE_COMPUTE, b->partials[0] + run.first,
                                    tti_exec_array(x, TTI_STATE_PARAMS) + run.first,
                                    run.n_elems * sizeof(float)));
    TTI_TRY(b->ops->queues.sync());
    int64_t start = tti_now_ns();
    TTI_TRY(tti_zero_gather(setup, b->partials[0], b->partials[0]));
    tti_exec_waited(x, tti_now_ns() - start);
    for (int i = 0; i < setup->desc.plan->n_slots; i++) {
        const tti_slot *slot = &setup->desc.plan->slots[i];
        TTI_TRY(b->ops->queues.copy(TTI_QUEUE_COMPUTE,
                                    tti_exec_array(x, TTI_STATE_PARAMS) + slot->first,
                                    b->partials[0] + slot->first, slot->n_elems * sizeof(float)));
    }
    return b->ops->queues.sync();
}
