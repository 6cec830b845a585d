/* worker.c - one worker: what it has, where it lies, and how its compute threads and shards are
 * told of it.
 *
 * Everything a result depends on is indexed by shard, never by rank or compute thread. */
#include "exec/worker/worker.h"

#include <stdio.h>

#include "comm/progress.h"
#include "comm/transport.h"

tti_run tti_exec_shard_run(const tti_exec *x, const tti_step_desc *desc, int shard) {
    return (tti_run){.seed = x->desc.seed,
                     .step = desc->step,
                     .sample0 = (uint64_t)shard * (uint64_t)desc->shard_size};
}

void tti_exec_compute_thread_failed(tti_exec *x, tti_compute_thread *compute_thread,
                                    tutti_status status) {
    if (compute_thread->status != TUTTI_OK) return;
    compute_thread->status = status;
    snprintf(compute_thread->error, sizeof compute_thread->error, "%s", tutti_last_error());
    for (int i = 0; x->compute_thread_comms && i < x->n_compute_thread_comms; i++)
        tti_comm_abort(x->compute_thread_comms[i], compute_thread->error);
}

tutti_status tti_exec_compute_thread_status(tti_exec *x) {
    for (int i = 0; i < x->n_in_flight; i++)
        if (x->compute_thread[i].status != TUTTI_OK)
            return tti_fail(x->compute_thread[i].status, "%s", x->compute_thread[i].error);
    return TUTTI_OK;
}

void tti_exec_waited(tti_exec *x, int64_t t_ns) {
    atomic_fetch_add_explicit(&x->waited_ns, t_ns, memory_order_relaxed);
}

void tti_exec_compute_thread_waited(tti_exec *x, int64_t t_ns) {
    tti_exec_waited(x, t_ns / x->desc.n_compute_threads);
}

int tti_exec_number(const tti_exec *x) { return x->desc.comm ? x->rank : x->desc.server_worker; }

void tti_exec_note(tti_exec *x, const tti_step_desc *desc, const char *phase) {
    tutti_comm *comm = x->desc.mesh ? x->desc.mesh->world : x->desc.comm;
    if (comm) tti_comm_note(comm, desc->step, phase);
}

int tti_exec_n_pieces(const tti_exec *x) { return x->divided ? 1 : x->acc.n_pieces; }

bool tti_exec_divides(const tti_exec *x) { return x->share.n_ranks > 1; }

bool tti_exec_has_parts(const tti_exec *x) { return tti_exec_divides(x) && !x->desc.shared_params; }

bool tti_exec_has_range(const tti_exec *x) { return x->desc.n_ranges > 1; }

bool tti_local_is_on(const tti_exec *x) {
    return x->desc.local && x->n_ranks > 1 && x->begun.step >= (uint64_t)x->desc.local_after;
}

int64_t tti_local_rows(const tti_exec *x, const tti_step_desc *desc) {
    int64_t n = 0;
    for (int i = 0; i < x->last_shard - x->first_shard; i++) n += desc->shards[i].n_rows;
    return n;
}

/* ---- a shard and its instance ---- */

void tti_exec_keep_sums(tti_exec *x, tti_instance *instance, int shard) {
    double *sums = x->sums + (size_t)shard * TTI_SUMS;
    static const char *const names[TTI_SUMS] = {"loss_sum", "count", "correct"};
    for (int i = 0; i < TTI_SUMS; i++)
        if (tti_instance_has_output(instance, names[i])) /* else it is another stage's */
            sums[i] = *(const float *)tti_instance_output(instance, names[i]);
}

/* A stage of a pipeline has only the inputs that it reads. */
static void feed_one(tti_instance *instance, int input, const void *data) {
    if (input >= 0) tti_instance_set_input(instance, input, data);
}

void tti_exec_feed(tti_exec *x, tti_instance *instance, const tti_inputs *inputs,
                   const tti_shard_data *data) {
    feed_one(instance, inputs->x, data->x);
    feed_one(instance, inputs->target, data->target);
    feed_one(instance, inputs->rows, &data->n_rows);
    feed_one(instance, inputs->loss_scale, &x->loss_scale);
}

void tti_exec_point_at_buffer(const tti_exec *x, tti_instance *instance, int buffer) {
    if (x->sharded && x->sharded->is_short[buffer])
        tti_instance_set_grad_places(instance, x->buffers[buffer], &x->sharded->grads);
    else
        tti_instance_set_grads(instance, x->buffers[buffer]);
}

/* ---- where parameters and gradients lie ---- */

bool tti_exec_has_sharded_params(const tti_exec *x) { return x->sharded && x->sharded->params; }

float *tti_exec_grads_at(const tti_exec *x, int buffer, size_t first) {
    bool is_short = x->sharded && x->sharded->is_short[buffer];
    return x->buffers[buffer] + (is_short ? tti_window_at(&x->sharded->grads, -1, first) : first);
}

float *tti_own_params(const tti_exec *x, const tti_own_block *own) {
    if (tti_exec_has_sharded_params(x) || tti_exec_has_range(x)) return x->params + own->state;
    return x->params + x->desc.plan->updates[own->update].first;
}

float *tti_own_grads(tti_exec *x, const tti_own_block *own) {
    if (x->sharded && x->sharded->own_grads) return x->sharded->own_grads + own->state;
    if (tti_exec_has_range(x)) return tti_exec_grads(x) + own->state;
    return tti_exec_grads(x) + x->desc.plan->updates[own->update].first;
}

void tti_exec_merge(tti_exec *x, const tti_shard_group *shard_group, size_t first, size_t last) {
    if (first >= last) return;
    for (int i = 0; i < shard_group->n_merges; i++) {
        const tti_merge *m = &x->acc.merges[shard_group->first_merge + i];
        x->desc.backend->accumulate(tti_exec_grads_at(x, m->dst, first),
                                    tti_exec_grads_at(x, m->src, first), last - first);
    }
}

float *tti_exec_grads(tti_exec *x) { return x->buffers[x->acc.piece_buffer[0]]; }

bool tti_exec_has_wire(const tti_exec *x) {
    return x->desc.fast && x->n_ranks > 1 && x->desc.wire != TUTTI_F32 && !x->device;
}

double tti_exec_reduce_bytes(const tti_exec *x, size_t n_bytes) {
    return 2.0 * (double)n_bytes * (x->n_ranks - 1) / x->n_ranks;
}

void tti_exec_count_pieces(tti_exec *x, size_t n_elems, bool in_parts) {
    double n_vectors = x->acc.n_pieces + (in_parts ? 0 : 1);
    x->sent_bytes += n_vectors * tti_exec_reduce_bytes(x, n_elems * sizeof(float)) / 2;
}

uint64_t tti_exec_flat_hash(const tti_exec *x) {
    uint64_t hash = 0;
    for (int i = 0; i < x->desc.plan->n_updates; i++) {
        const tti_update_step *step = &x->desc.plan->updates[i];
        hash += x->desc.backend->hash(x->params + step->first, step->n_elems, step->first);
    }
    return hash;
}
