/* worker.c - one worker: its parts, its arrays, and the inputs of its compute threads and shards.
 *
 * Everything a result depends on is indexed by shard, never by rank or compute thread. */
#include "exec/worker/worker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "comm/partitions.h"
#include "comm/progress.h"
#include "comm/transport.h"
#include "exec/worker/worker_state.h"

/* ---- parts of a worker ---- */

/* A worker and its parts in one allocation. */
typedef struct worker_memory {
    tti_exec exec;
    tti_arrays arrays;
    tti_thread_set threads;
    tti_tally tally;
    tti_joins joins;
} worker_memory;

tti_exec *tti_exec_alloc(void) {
    worker_memory *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->exec.arrays = &w->arrays;
    w->exec.threads = &w->threads;
    w->exec.tally = &w->tally;
    w->exec.joins = &w->joins;
    return &w->exec;
}

void tti_exec_free(tti_exec *x) { free(x); }

const tti_setup *tti_setup_of(const tti_exec *x) { return &x->setup; }
tti_arrays *tti_arrays_of(const tti_exec *x) { return x->arrays; }
const tti_sharded *tti_sharded_of(const tti_exec *x) { return x->sharded; }
tti_thread_set *tti_threads_of(const tti_exec *x) { return x->threads; }
tti_tally *tti_tally_of(const tti_exec *x) { return x->tally; }
tti_joins *tti_joins_of(const tti_exec *x) { return x->joins; }
tti_update *tti_update_of(const tti_exec *x) { return x->update; }
tti_pipe *tti_pipe_of(const tti_exec *x) { return x->pipe; }
tti_compress *tti_compress_of(const tti_exec *x) { return x->compress; }
tti_profile *tti_profile_of(const tti_exec *x) { return x->profile; }
tti_host *tti_host_of(const tti_exec *x) { return x->host; }
tti_exec_device *tti_device_of(const tti_exec *x) { return x->device; }
tti_device_tp *tti_tp_of(const tti_exec *x) { return x->tp; }
tti_offload *tti_offload_of(const tti_exec *x) { return x->offload; }

tutti_status tti_exec_create_compress(tti_exec *x) {
    return tti_compress_create(&x->setup, &x->compress);
}

/* ---- the worker in a step ---- */

tti_run tti_exec_shard_run(const tti_setup *setup, const tti_step_desc *desc, int shard) {
    return (tti_run){.seed = setup->desc.seed,
                     .step = desc->step,
                     .sample0 = (uint64_t)shard * (uint64_t)desc->shard_size};
}

void tti_exec_run_threads(const tti_exec *x, void (*fn)(int index, void *arg), void *arg) {
    tti_compute_threads_run(tti_threads_of(x)->pool, fn, arg);
}

tti_instance *tti_exec_instance(const tti_exec *x, int in_flight, bool eval) {
    const tti_compute_thread *thread = &tti_threads_of(x)->thread[in_flight];
    return eval ? thread->eval : thread->shard;
}

tutti_status tti_exec_compute_thread_failed(tti_exec *x, int in_flight, tutti_status status) {
    tti_thread_set *threads = tti_threads_of(x);
    tti_compute_thread *compute_thread = &threads->thread[in_flight];
    if (compute_thread->status != TUTTI_OK) return compute_thread->status;
    compute_thread->status = status;
    snprintf(compute_thread->error, sizeof compute_thread->error, "%s", tutti_last_error());
    for (int i = 0; threads->comms && i < threads->n_comms; i++)
        tti_comm_abort(threads->comms[i], compute_thread->error);
    return status;
}

tutti_status tti_exec_compute_thread_status(tti_exec *x) {
    tti_thread_set *threads = tti_threads_of(x);
    for (int i = 0; i < tti_setup_of(x)->n_in_flight; i++)
        if (threads->thread[i].status != TUTTI_OK)
            return tti_fail(threads->thread[i].status, "%s", threads->thread[i].error);
    return TUTTI_OK;
}

void tti_exec_begin_step(tti_exec *x, const tti_step_desc *desc) {
    x->tally->begun = *desc;
    x->tally->sent_bytes = 0;
    tti_exec_scale_loss(x, desc->loss_scale);
}

const tti_step_desc *tti_exec_begun(const tti_exec *x) { return &x->tally->begun; }

void tti_exec_scale_loss(tti_exec *x, double scale) {
    x->tally->loss_scale = scale > 0 ? (float)scale : 1.0f;
}

float tti_exec_loss_scale(const tti_exec *x) { return x->tally->loss_scale; }

void tti_exec_count_sent(tti_exec *x, double n_bytes) { x->tally->sent_bytes += n_bytes; }

double tti_exec_sent_bytes(const tti_exec *x) { return x->tally->sent_bytes; }

double *tti_exec_sums(const tti_exec *x) { return x->tally->sums; }

void tti_exec_set_votes(tti_exec *x, double n) { x->tally->sums[x->tally->n_sums - 1] = n; }

double *tti_exec_clear_sums(tti_exec *x) {
    tti_tally *tally = x->tally;
    memset(tally->sums, 0, tally->n_sums * sizeof *tally->sums);
    if (tally->totals) tally->totals->is_set = false;
    return tally->sums;
}

void tti_exec_set_hash(tti_exec *x, uint64_t hash) { x->tally->last_hash = hash; }

void tti_exec_report_hash(tti_exec *x, tti_step_result *result) {
    x->tally->has_hash = true;
    result->params_hash = result->own_hash = x->tally->last_hash;
}

void tti_exec_copied(tti_exec *x, int64_t t_ns) { x->tally->copied_ns += t_ns; }

void tti_exec_waited(tti_exec *x, int64_t t_ns) {
    atomic_fetch_add_explicit(&x->tally->waited_ns, t_ns, memory_order_relaxed);
}

void tti_exec_compute_thread_waited(tti_exec *x, int64_t t_ns) {
    tti_exec_waited(x, t_ns / tti_setup_of(x)->desc.n_compute_threads);
}

int tti_exec_number(const tti_setup *setup) {
    return setup->desc.comm ? setup->rank : setup->desc.server_worker;
}

void tti_exec_note(const tti_setup *setup, const tti_step_desc *desc, const char *phase) {
    tutti_comm *comm = setup->desc.mesh ? setup->desc.mesh->world : setup->desc.comm;
    if (comm) tti_comm_note(comm, desc->step, phase);
}

int tti_exec_n_partials(const tti_setup *setup) {
    return setup->divided ? 1 : setup->acc.n_partials;
}

bool tti_exec_divides(const tti_setup *setup) { return setup->share.n_ranks > 1; }

bool tti_exec_has_partitions(const tti_setup *setup) {
    return tti_exec_divides(setup) && !setup->desc.shared_params;
}

bool tti_exec_has_range(const tti_setup *setup) { return setup->desc.n_ranges > 1; }

bool tti_local_is_on(const tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    return setup->desc.local && setup->n_ranks > 1 &&
           tti_exec_begun(x)->step >= (uint64_t)setup->desc.local_after;
}

int64_t tti_local_rows(const tti_setup *setup, const tti_step_desc *desc) {
    int64_t n = 0;
    for (int i = 0; i < setup->last_shard - setup->first_shard; i++) n += desc->shards[i].n_rows;
    return n;
}

/* ---- a shard and its instance ---- */

int tti_n_sums(const tti_setup *setup) { return tti_plan_n_sums(setup->desc.plan); }

size_t tti_n_shard_sums(const tti_setup *setup) {
    return (size_t)setup->desc.n_shards * (size_t)tti_n_sums(setup);
}

void tti_exec_keep_sums(tti_exec *x, tti_instance *instance, int shard, int n_sums) {
    double *sums = x->tally->sums + (shard - x->tally->first_shard) * tti_n_sums(tti_setup_of(x));
    for (int i = 0; i < n_sums; i++) {
        const float *sum = tti_instance_sum(instance, i);
        if (sum) sums[i] = *sum;
    }
}

void tti_exec_copy_outputs(const tti_step_desc *desc, const tti_instance *instance, int index) {
    for (int i = 0; i < desc->n_outputs; i++) {
        const tti_output_copy *copy = &desc->outputs[i];
        if (!tti_instance_has_output(instance, copy->name)) continue;
        memcpy((char *)copy->to + (size_t)index * copy->n_bytes,
               tti_instance_output(instance, copy->name), copy->n_bytes);
    }
}

/* Sets an input, unless the pipeline stage does not have it. */
static void feed_one(tti_instance *instance, int input, const void *data) {
    if (input >= 0) tti_instance_set_input(instance, input, data);
}

void tti_exec_feed(tti_exec *x, tti_instance *instance, const tti_inputs *inputs,
                   const tti_shard_data *data) {
    tti_inputs_point_at_samples(instance, inputs, data->x);
    feed_one(instance, inputs->target, data->target);
    feed_one(instance, inputs->rows, &data->n_rows);
    feed_one(instance, inputs->loss_scale, &x->tally->loss_scale);
}

bool tti_exec_has_bad_samples(const tti_setup *setup, const tti_shard_data *data) {
    const tti_node *node = tti_graph_find_source(setup->desc.plan->shard.graph, "x");
    const tutti_type *type = node ? &node->out[0]->type : NULL;
    if (!type || type->dtype != TUTTI_F32 || !data->x || setup->shard_inputs.n_fields != 1)
        return false;
    int64_t rows = type->shape.n_dims > 0 ? type->shape.dim[0] : 1;
    int64_t n = tutti_shape_n_elems(&type->shape) / TTI_MAX(rows, (int64_t)1) * data->n_rows;
    const float *x = data->x;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return true;
    return false;
}

float *tti_exec_array(const tti_exec *x, int64_t k) {
    const tti_arrays *arrays = x->arrays;
    if (k == TTI_STATE_PARAMS) return arrays->params;
    if (k == TTI_STATE_EMA) return arrays->ema;
    return k >= 0 && k < TTI_MAX_OUT ? arrays->states[k] : NULL;
}

void *tti_exec_low_copies(const tti_exec *x) { return x->arrays->low_copies; }

float *tti_exec_buffer(const tti_exec *x, int buffer) { return x->arrays->buffers[buffer]; }

void tti_exec_lend_grads(tti_exec *x, float *grads) { x->arrays->buffers[0] = grads; }

void tti_exec_point_at_buffer(const tti_exec *x, tti_instance *instance, int buffer) {
    const tti_sharded *sharded = tti_sharded_of(x);
    if (sharded && sharded->is_short[buffer])
        tti_instance_set_grad_places(instance, tti_exec_buffer(x, buffer), &sharded->grads);
    else
        tti_instance_set_grads(instance, tti_exec_buffer(x, buffer));
}

/* ---- locations of parameters and gradients ---- */

bool tti_exec_has_sharded_params(const tti_exec *x) { return x->sharded && x->sharded->params; }

float *tti_exec_grads_at(const tti_exec *x, int buffer, size_t first) {
    const tti_sharded *sharded = tti_sharded_of(x);
    bool is_short = sharded && sharded->is_short[buffer];
    return tti_exec_buffer(x, buffer) +
           (is_short ? tti_bucket_memory_at(&sharded->grads, -1, first) : first);
}

float *tti_own_params(const tti_exec *x, const tti_own_block *own) {
    const tti_setup *setup = tti_setup_of(x);
    if (tti_exec_has_sharded_params(x) || tti_exec_has_range(setup))
        return tti_exec_array(x, TTI_STATE_PARAMS) + own->state;
    return tti_exec_array(x, TTI_STATE_PARAMS) + setup->desc.plan->updates[own->update].first;
}

float *tti_own_grads(tti_exec *x, const tti_own_block *own) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_sharded *sharded = tti_sharded_of(x);
    if (sharded && sharded->own_grads) return sharded->own_grads + own->state;
    if (tti_exec_has_range(setup)) return tti_exec_grads(x) + own->state;
    return tti_exec_grads(x) + setup->desc.plan->updates[own->update].first;
}

void tti_exec_merge(tti_exec *x, const tti_micro_group *micro_group, size_t first, size_t last) {
    const tti_setup *setup = tti_setup_of(x);
    if (first >= last) return;
    for (int i = 0; i < micro_group->n_merges; i++) {
        const tti_merge *m = &setup->acc.merges[micro_group->first_merge + i];
        float *dst = tti_exec_grads_at(x, m->dst, first);
        const float *src = m->src < 0 ? NULL : tti_exec_grads_at(x, m->src, first);
        if (tti_exec_rounds_partials(&setup->desc))
            setup->desc.backend->accumulate_rounded(dst, src, last - first);
        else
            setup->desc.backend->accumulate(dst, src, last - first);
    }
}

float *tti_exec_grads(tti_exec *x) {
    return tti_exec_buffer(x, tti_setup_of(x)->acc.partial_buffer[0]);
}

bool tti_exec_rounds_partials(const tti_exec_desc *desc) {
    return !desc->fast && desc->wire == TUTTI_BF16;
}

size_t tti_exec_wire_bytes(const tti_exec_desc *desc) {
    return desc->fast || tti_exec_rounds_partials(desc) ? tutti_dtype_bytes(desc->wire)
                                                        : sizeof(float);
}

tutti_status tti_exec_plan_merges(const tti_exec_desc *desc, int first, int last, int width,
                                  tti_accumulation *acc) {
    TTI_TRY(tti_accumulation_init(acc, first, last, width));
    if (desc->n_shards == 1 && last > first && tti_exec_rounds_partials(desc))
        tti_accumulation_round_alone(acc);
    return TUTTI_OK;
}

bool tti_exec_has_wire(const tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    return setup->desc.fast && setup->n_ranks > 1 && setup->desc.wire != TUTTI_F32 &&
           !tti_device_of(x);
}

double tti_exec_reduce_bytes(const tti_setup *setup, size_t n_bytes) {
    return 2.0 * (double)n_bytes * (setup->n_ranks - 1) / setup->n_ranks;
}

void tti_exec_count_partials(tti_exec *x, size_t n_elems, bool is_partitioned) {
    const tti_setup *setup = tti_setup_of(x);
    double n_vectors = setup->acc.n_partials + (is_partitioned ? 0 : 1);
    size_t each = tti_exec_rounds_partials(&setup->desc) ? sizeof(uint16_t) : sizeof(float);
    size_t n_bytes = n_elems * each;
    tti_exec_count_sent(x, n_vectors * tti_exec_reduce_bytes(setup, n_bytes) / 2);
}

uint64_t tti_exec_flat_hash(const tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    uint64_t hash = 0;
    for (int i = 0; i < setup->desc.plan->n_updates; i++) {
        const tti_update_step *step = &setup->desc.plan->updates[i];
        hash += tti_hash_block(setup->desc.backend, step,
                               tti_exec_array(x, TTI_STATE_PARAMS) + step->first);
    }
    return hash;
}

/* ---- checks that workers with plans for different backends can train together ----
 *
 * Their common actions follow from their plans (which ranges are summed, which values are joined,
 * which blocks are updated), so these are compared first. */

/* Devices divide sharded state, divided models and sums along the tree differently. */
static tutti_status check_desc(const tti_exec_desc *desc) {
    bool whole = !desc->mesh && desc->zero == 0 && !desc->server && !desc->shared_params;
    bool joins = desc->fast && !desc->local && desc->compression == TTI_COMPRESS_NONE;
    if (whole && joins && (!desc->backend->device || desc->offload)) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED,
                    "exec: workers on devices and on the host add whole gradients in every step, "
                    "in fast mode, and the host makes the update");
}

tutti_status tti_mixed_check(const tti_setup *setup) {
    uint64_t *all;
    int odd = 1;
    /* Bucket sizes between devices come from a table of this machine, which may have been measured
     * again while workers were starting. */
    bool by_table = setup->desc.backend->device && !setup->desc.mesh && setup->n_ranks > 1;
    if (!setup->desc.mixed && !by_table) return TUTTI_OK;
    if (setup->desc.mixed) TTI_TRY(check_desc(&setup->desc));
    TTI_TRY(tti_comm_gather_words(setup->desc.comm, tti_plan_digest(setup->desc.plan), &all));
    while (odd < setup->n_ranks && all[odd] == all[0]) odd++;
    free(all);
    if (odd >= setup->n_ranks) return TUTTI_OK;
    return tti_fail(
        TUTTI_E_MISMATCH,
        "exec: rank %d has another plan than rank 0: parameters lie in other places, or "
        "other values are joined inside a step; %s",
        odd,
        setup->desc.mixed ? "give parallel.devices=cpu, or GPUs alone" : "start the run again");
}

/* ---- the memory that workers of one process share ---- */

static bool alloc_all(tti_shared_params *c, int n_states, bool ema) {
    c->params = c->backend->alloc(c->n_bytes);
    bool ok = c->params != NULL;
    for (int k = 0; k < n_states; k++) {
        c->states[k] = c->backend->alloc(c->n_bytes);
        ok = ok && c->states[k];
    }
    if (ema) c->ema = c->backend->alloc(c->n_bytes);
    return ok && (!ema || c->ema);
}

tutti_status tti_shared_params_create(const tti_exec_desc *desc, tti_shared_params **out) {
    *out = NULL;
    tti_shared_params *c = calloc(1, sizeof *c);
    if (!c) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    c->backend = desc->backend;
    c->n_bytes = desc->plan->n_flat * sizeof(float) + 64;
    if (!alloc_all(c, desc->plan->n_states, desc->ema > 0)) {
        tti_shared_params_destroy(c);
        return tti_fail(TUTTI_E_NOMEM, "exec: arrays of %zu bytes for parameters and state",
                        desc->plan->n_flat * sizeof(float));
    }
    *out = c;
    return TUTTI_OK;
}

void tti_shared_params_destroy(tti_shared_params *c) {
    if (!c) return;
    c->backend->release(c->params, c->n_bytes);
    for (int k = 0; k < TTI_MAX_OUT; k++) c->backend->release(c->states[k], c->n_bytes);
    c->backend->release(c->ema, c->n_bytes);
    free(c);
}
