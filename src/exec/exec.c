/* exec.c - creates workers (compute threads, kernels, memory) and runs their steps. */
#include "exec/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/device/device.h"
#include "exec/first_params.h"
#include "exec/host/host.h"
#include "exec/program/exec_program.h"
#include "exec/worker/worker.h"
#include "exec/worker/worker_state.h"

static tutti_status build_compute_thread(tti_exec *x, int index) {
    tti_compute_thread *compute_thread = &x->threads->thread[index];
    const tti_plan *plan = x->setup.desc.plan;
    if (x->setup.desc.serves) return TUTTI_OK;
    compute_thread->arena = tti_device_tp_arena(x->tp);
    if (!compute_thread->arena)
        compute_thread->arena = x->setup.desc.backend->alloc(x->setup.arena_bytes + 64);
    if (!compute_thread->arena)
        return tti_fail(TUTTI_E_NOMEM, "exec: cannot allocate %zu bytes of activations",
                        x->setup.arena_bytes);
    tti_instance_desc desc = {
        .program = &plan->shard,
        .backend = x->setup.desc.backend,
        .reference = x->setup.desc.reference,
        .arena = compute_thread->arena,
        .params = x->arrays->params,
        .low_copies = x->arrays->low_copies,
        .tensor =
            x->threads->comms ? x->threads->comms[index % x->setup.desc.n_compute_threads] : NULL,
        .tp = x->tp,
        .prepared = index == 0 ? x->threads->ready[0] : NULL};
    if (tti_exec_has_sharded_params(x)) {
        desc.params = x->sharded->gathered;
        desc.bucket_memory = &x->sharded->train;
    }
    TTI_TRY(tti_instance_create(&desc, &compute_thread->shard));
    if (plan->eval.graph) {
        desc.program = &plan->eval;
        desc.prepared = index == 0 ? x->threads->ready[1] : NULL;
        /* Averages are copied to where evaluation reads them. */
        if (desc.bucket_memory)
            desc.bucket_memory = &x->sharded->eval;
        else if (tti_exec_state_owner(x)->arrays->ema)
            desc.params =
                (tti_exec_has_partitions(&x->setup) || (x->device && tti_exec_state_owner(x) != x))
                    ? tti_zero_averages(x)
                    : tti_exec_state_owner(x)->arrays->ema;
        TTI_TRY(tti_instance_create(&desc, &compute_thread->eval));
    }
    return TUTTI_OK;
}

static size_t buffer_bytes(const tti_exec *x, int b) {
    bool is_short = x->sharded && x->sharded->is_short[b];
    size_t n_elems = is_short ? x->sharded->grads.n_elems : x->setup.desc.plan->n_flat;
    return n_elems * sizeof(float) + 64;
}

/* Allocates up to n buffers, if there are fewer. */
static tutti_status grow_buffers(tti_exec *x, int n) {
    if (x->arrays->buffers && n <= x->arrays->n_buffers) return TUTTI_OK;
    float **buffers = realloc(x->arrays->buffers, ((size_t)n + 1) * sizeof *buffers);
    if (!buffers) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    buffers[n] = NULL; /* a server without shards uses it for its workers' buffers */
    x->arrays->buffers = buffers;
    for (int b = x->arrays->n_buffers; b < n; b++) {
        void *memory = NULL;
        size_t n_bytes = buffer_bytes(x, b);
        if (x->setup.n_ranks > 1 && !x->device)
            TTI_TRY(tutti_comm_alloc(x->setup.desc.comm, n_bytes, &memory));
        else
            memory = x->setup.desc.backend->alloc(n_bytes);
        if (!memory)
            return tti_fail(TUTTI_E_NOMEM, "exec: cannot allocate %zu bytes of gradients", n_bytes);
        x->arrays->buffers[b] = memory;
        x->arrays->n_buffers = b + 1;
        if (x->setup.n_ranks == 1 || x->device) x->arrays->n_own_buffers = b + 1;
    }
    return TUTTI_OK;
}

/* Peers read buffers directly, so all ranks allocate the same number. In mixed CPU+GPU runs device
 * buffers stay local; the memory that peers read is on their host. */
static tutti_status agree_buffers(tti_exec *x, int32_t *n) {
    int32_t own = *n = x->setup.acc.n_buffers;
    if (x->setup.n_ranks > 1 && !x->setup.desc.serves)
        TTI_TRY(tutti_comm_all_reduce(x->setup.desc.comm, &own, n, 1, TUTTI_I32, TUTTI_MAX,
                                      TUTTI_ALG_AUTO));
    x->setup.n_agreed = *n;
    if (x->device && x->setup.desc.mixed) *n = x->setup.acc.n_buffers;
    return TUTTI_OK;
}

static tutti_status alloc_buffers(tti_exec *x) {
    int32_t n = 0;
    TTI_TRY(agree_buffers(x, &n));
    TTI_TRY(tti_sharded_buffers(x, x->sharded, n));
    if (tti_exec_has_wire(x)) {
        size_t n_bytes = x->setup.desc.plan->n_flat * sizeof(uint16_t) + 64;
        void *memory = NULL;
        TTI_TRY(tutti_comm_alloc(x->setup.desc.comm, n_bytes, &memory));
        x->arrays->wire = memory;
    }
    return grow_buffers(x, n);
}

/* Bytes of one array of state, of this worker or its server. */
static size_t state_bytes(const tti_exec *x) { return x->setup.share.n_elems * sizeof(float); }

static size_t param_bytes(const tti_exec *x) {
    bool is_partitioned = tti_exec_has_sharded_params(x) || tti_exec_has_range(&x->setup);
    return (is_partitioned ? x->setup.share.n_elems : x->setup.desc.plan->n_flat) * sizeof(float);
}

/* Parameters or averages: memory that other workers read if they are partitioned. */
static tutti_status alloc_shared(tti_exec *x, bool is_shared, size_t n_bytes, float **out) {
    void *memory = NULL;
    size_t most = tti_exec_has_sharded_params(x) ? x->setup.share.n_most * sizeof(float) : n_bytes;
    if (is_shared && !x->device)
        TTI_TRY(tutti_comm_alloc(x->setup.desc.comm, most + 64, &memory));
    else
        memory = x->setup.desc.backend->alloc(n_bytes + 64);
    *out = memory;
    return memory
               ? TUTTI_OK
               : tti_fail(TUTTI_E_NOMEM, "exec: cannot allocate %zu bytes of parameters", n_bytes);
}

static tutti_status alloc_states(tti_exec *x) {
    size_t n_bytes = state_bytes(x) + 64;
    bool ok = true;
    if (tti_exec_state_owner(x) != x) return TUTTI_OK;
    if (x->setup.desc.shared_params) {
        memcpy(x->arrays->states, x->setup.desc.shared_params->states, sizeof x->arrays->states);
        x->arrays->ema = x->setup.desc.shared_params->ema;
        return TUTTI_OK;
    }
    for (int k = 0; k < x->setup.desc.plan->n_states && !x->setup.desc.server; k++) {
        x->arrays->states[k] = x->setup.desc.backend->alloc(n_bytes);
        ok = ok && x->arrays->states[k];
    }
    if (x->setup.desc.ema > 0)
        TTI_TRY(alloc_shared(x, tti_exec_has_sharded_params(x), state_bytes(x), &x->arrays->ema));
    return ok ? TUTTI_OK
              : tti_fail(TUTTI_E_NOMEM, "exec: cannot allocate %zu bytes of state", n_bytes);
}

static tutti_status alloc_flat(tti_exec *x) {
    const tti_exec_desc *d = &x->setup.desc;
    int n_slots = d->plan->n_slots;
    bool *counts = malloc((size_t)n_slots + 1);
    if (!counts) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (int i = 0; i < n_slots; i++) counts[i] = tti_divided_counts(x->setup.divided, i);
    const tti_flat_update_desc desc = {
        .plan = d->plan,
        .backend = d->backend,
        .share = &x->setup.share,
        .counts = counts,
        .reference = d->reference,
        .keeps_hashes = d->shared_params || tti_exec_has_sharded_params(x),
        .seed = d->seed,
        .beta1 = d->beta1,
        .beta2 = d->beta2,
        .l1 = d->l1,
        .clip_value = d->clip_value,
        .ema = d->ema};
    tutti_status st = tti_update_create(&desc, &x->update);
    free(counts);
    TTI_TRY(st);
    if (x->setup.desc.shared_params)
        x->arrays->params = x->setup.desc.shared_params->params;
    else
        TTI_TRY(alloc_shared(x, x->sharded != NULL, param_bytes(x), &x->arrays->params));
    /* Only plans for devices that keep 16-bit copies read them. */
    size_t n_bytes = tti_plan_low_copies_bytes(x->setup.desc.plan);
    if (n_bytes != 0 && !x->setup.desc.serves) {
        if (!x->device || !x->setup.desc.backend->device->update.low_copies ||
            tti_exec_has_sharded_params(x))
            return tti_fail(TUTTI_E_INTERNAL,
                            "exec: the plan reads 16-bit parameters, which no device keeps");
        x->arrays->low_copies =
            x->setup.desc.backend->alloc(n_bytes + 64); /* the last ones may be written by fours */
        TTI_TRY(x->arrays->low_copies
                    ? TUTTI_OK
                    : tti_fail(TUTTI_E_NOMEM, "exec: cannot allocate %zu bytes of parameters",
                               n_bytes));
    }
    TTI_TRY(alloc_states(x));
    TTI_TRY(tti_exec_alloc_sums(x));
    x->threads->thread = calloc((size_t)x->setup.n_in_flight, sizeof *x->threads->thread);
    if (!x->threads->thread) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    return tti_exec_first_params(x);
}

static tutti_status find_inputs(const tti_plan *plan, const tti_program *program, tti_inputs *out) {
    TTI_TRY(tti_inputs_find(program, out));
    if ((out->n_fields > 0 && out->target >= 0) || plan->stages) return TUTTI_OK;
    return tti_fail(TUTTI_E_INVALID, "exec: the graph needs samples ('x') and the input 'target'");
}

static tutti_status count_in_flight(tti_exec *x) {
    int n_local = x->setup.last_shard - x->setup.first_shard;
    bool joins = x->setup.syncs.n + x->setup.eval_syncs.n > 0;
    x->setup.n_in_flight =
        joins && !x->setup.desc.serves ? n_local : x->setup.desc.n_compute_threads;
    if (x->setup.desc.plan->stages && !x->setup.desc.serves) {
        int own = tti_micro_groups_of(n_local, x->setup.desc.n_compute_threads);
        TTI_TRY(tti_pipe_count_in_flight(x->setup.desc.plan->stages, x->setup.n_pipe_groups,
                                         &x->setup.n_in_flight));
        x->setup.n_in_flight = TTI_MIN(x->setup.n_in_flight, own) * x->setup.desc.n_compute_threads;
    }
    if (x->setup.n_in_flight <= TTI_MAX_COMPUTE_THREADS) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED,
                    "exec: %d shards of one worker at a time, at most %d are supported; use more "
                    "workers or fewer shards",
                    x->setup.n_in_flight, TTI_MAX_COMPUTE_THREADS);
}

static void forget_ready(tti_exec *x) {
    for (size_t i = 0; i < TTI_COUNT(x->threads->ready); i++) {
        tti_prepared_destroy(x->threads->ready[i]);
        x->threads->ready[i] = NULL;
    }
}

/* Names the steps of the shard program, then those of the evaluation program. */
static void name_layers(const tti_exec *x) {
    const tti_plan *plan = x->setup.desc.plan;
    const tti_program *programs[] = {&plan->shard, &plan->eval};
    for (int i = 0, layer = 0; i < 2 && x->setup.desc.flight; i++)
        for (int s = 0; programs[i]->graph && s < programs[i]->n_steps; s++, layer++) {
            const tti_node *node = programs[i]->steps[s];
            tti_flight_name_layer(x->setup.desc.flight, layer, node->op->name, node->name,
                                  node->op->traits & TTI_COLLECTIVE);
        }
}

static tutti_status build_compute_threads(tti_exec *x) {
    name_layers(x);
    TTI_TRY(tti_compute_threads_create(x->setup.desc.n_compute_threads, x->setup.desc.cores,
                                       x->setup.desc.backend->thread_init, &x->threads->pool));
    for (int i = 0; i < x->setup.n_in_flight; i++) TTI_TRY(build_compute_thread(x, i));
    bool updates = x->setup.desc.serves || (!x->device && !x->setup.desc.server);
    if (updates) TTI_TRY(tti_update_bind(x->update, x->setup.desc.n_compute_threads));
    forget_ready(x);
    return TUTTI_OK;
}

static tutti_status prepare_kernels(tti_exec *x, size_t *scratch) {
    const tti_plan *plan = x->setup.desc.plan;
    const tti_program *programs[] = {&plan->shard, &plan->eval};
    *scratch = 0;
    for (size_t i = 0; !x->setup.desc.serves && i < TTI_COUNT(programs); i++) {
        if (!programs[i]->graph) continue;
        TTI_TRY(tti_prepared_create(programs[i], x->setup.desc.backend, x->setup.desc.reference,
                                    &x->threads->ready[i]));
        *scratch += tti_prepared_scratch(x->threads->ready[i]) * (size_t)x->setup.n_in_flight;
    }
    return TUTTI_OK;
}

static tutti_status build_worker(tti_exec *x) {
    const tti_plan *plan = x->setup.desc.plan;
    int n_local = x->setup.last_shard - x->setup.first_shard;
    bool has_pipe = plan->stages && !x->setup.desc.serves;
    /* Keeps the cores, because compute threads are recreated when shards are redistributed. */
    size_t n_bytes = (size_t)x->setup.n_threads * sizeof *x->setup.cores;
    if (x->setup.desc.cores) {
        x->setup.cores = malloc(n_bytes);
        if (!x->setup.cores) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
        memcpy(x->setup.cores, x->setup.desc.cores, n_bytes);
        x->setup.desc.cores = x->setup.cores;
    }
    TTI_TRY(tti_mixed_check(&x->setup));
    TTI_TRY(tti_exec_device_open(&x->setup, &x->device));
    TTI_TRY(tti_divided_create(plan, x->setup.desc.mesh, &x->setup.divided));
    TTI_TRY(find_inputs(plan, &plan->shard, &x->setup.shard_inputs));
    if (plan->eval.graph) TTI_TRY(find_inputs(plan, &plan->eval, &x->setup.eval_inputs));
    TTI_TRY(
        tti_collective_check(&plan->shard, x->setup.desc.mesh ? x->setup.desc.mesh->tensor : NULL));
    TTI_TRY(tti_exec_init_sync(&x->setup, x->joins));
    /* As many compute threads as all workers of the model group can have. */
    if (!x->setup.desc.serves) {
        /* a server does not compute shards */
        tutti_comm *tensor = x->setup.desc.mesh && !x->setup.desc.backend->device
                                 ? x->setup.desc.mesh->tensor
                                 : NULL;
        TTI_TRY(tti_compute_thread_comms_create(tensor, &x->setup.desc.n_compute_threads,
                                                &x->threads->comms));
        x->threads->n_comms = x->setup.desc.n_compute_threads;
        TTI_TRY(tti_pipe_agree_compute_threads(&x->setup));
    }
    TTI_TRY(count_in_flight(x));
    TTI_TRY(tti_exec_plan_merges(
        &x->setup.desc, x->setup.first_shard, x->setup.last_shard,
        has_pipe ? tti_pipe_width(plan->stages, x->setup.desc.n_compute_threads, n_local)
                 : x->setup.n_in_flight,
        &x->setup.acc));
    if (has_pipe) TTI_TRY(tti_pipe_create(&x->setup, &x->pipe));
    TTI_TRY(tti_exec_init_share(&x->setup.desc, x->setup.rank, x->setup.n_ranks, &x->setup.share));
    if (x->device) {
        /* Includes the scratch of kernels, unless there is no kernel for such a large step. */
        size_t scratch;
        tutti_status prepared = prepare_kernels(x, &scratch);
        TTI_TRY(tti_exec_check_memory(x, scratch));
        TTI_TRY(prepared);
    }
    if (!x->setup.desc.serves)
        x->setup.arena_bytes = TTI_MAX(plan->shard.arena_bytes, plan->eval.arena_bytes);
    TTI_TRY(tti_device_tp_create(x, &x->tp));
    if (x->device && x->setup.desc.offload) {
        /* The host stores the parameters and state of the device, and runs its update. */
        tti_exec *host;
        if (x->setup.divided)
            return tti_fail(TUTTI_E_UNSUPPORTED,
                            "exec: the optimizer's state of a part of a model stays on its device");
        tti_exec_desc desc = tti_offload_desc(&x->setup);
        TTI_TRY(tti_exec_create(&desc, &host));
        tutti_status st = tti_offload_create(x, host, &x->offload);
        if (st != TUTTI_OK) tti_exec_destroy(host);
        TTI_TRY(st);
    }
    TTI_TRY(tti_sharded_init(x, &x->sharded));
    TTI_TRY(alloc_flat(x));
    TTI_TRY(alloc_buffers(x));
    TTI_TRY(build_compute_threads(x));
    if (x->device) TTI_TRY(tti_exec_device_prepare(x));
    if (!x->device && tti_compress_wanted(&x->setup.desc, x->setup.n_ranks))
        TTI_TRY(tti_exec_create_compress(x));
    if (!x->device) TTI_TRY(tti_host_create(x, &x->host));
    return tti_exec_has_sharded_params(x) ? tti_sharded_rehash(x) : TUTTI_OK;
}

tutti_status tti_exec_create(const tti_exec_desc *desc, tti_exec **out) {
    *out = NULL;
    tti_shard_map shard_map;
    int n_ranks = desc->comm ? tutti_comm_n_ranks(desc->comm) : 1, v = desc->n_shards;
    if (v < n_ranks || v < 1 || v > TTI_MAX_SHARDS || (v & (v - 1)) != 0) {
        return tti_fail(
            TUTTI_E_INVALID,
            "exec: %d shards for %d ranks: expected a power of two, at least one for each", v,
            n_ranks);
    }
    TTI_TRY(tti_exec_shard_map(desc, desc->comm ? tutti_comm_n_ranks(desc->comm) : 1, &shard_map));
    tti_exec *x = tti_exec_alloc();
    if (!x) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    x->setup.desc = *desc;
    x->setup.desc.shard_map = NULL;
    x->setup.rank = desc->comm ? tutti_comm_rank(desc->comm) : 0;
    x->setup.n_ranks = desc->comm ? tutti_comm_n_ranks(desc->comm) : 1;
    if (!desc->serves) {
        x->setup.first_shard = tti_shard_map_first(&shard_map, x->setup.rank);
        x->setup.last_shard = tti_shard_map_first(&shard_map, x->setup.rank + 1);
        if (desc->server)
            tti_calls_of(desc->server)
                ->shards(desc->server, desc->server_worker, desc->n_shards, &x->setup.first_shard,
                         &x->setup.last_shard);
    }
    /* Values that fit f32 would become infinite when sent. */
    if (desc->fast && x->setup.n_ranks > 1 && desc->wire == TUTTI_F16)
        x->setup.desc.watch_gradients = true;
    /* Non-finite values would stay in the residuals. */
    if (tti_compress_wanted(desc, x->setup.n_ranks)) x->setup.desc.watch_gradients = true;
    x->setup.desc.mixed = desc->mixed && x->setup.n_ranks > 1;
    /* The ring's order of additions depends on an element's position in the vector, and parameters
     * that several workers of a model have may have a different position on each. */
    if (desc->mesh && desc->mesh->model && desc->alg == TUTTI_ALG_RING)
        x->setup.desc.alg = TUTTI_ALG_AUTO;
    x->setup.n_threads = desc->n_compute_threads;
    x->setup.desc.n_compute_threads = tti_exec_n_compute_threads(
        desc, desc->serves ? desc->n_compute_threads : x->setup.last_shard - x->setup.first_shard);
    tutti_status st = tti_shard_map_copy(&shard_map, &x->setup.shard_map);
    if (st == TUTTI_OK) st = build_worker(x);
    if (st != TUTTI_OK) {
        tti_exec_destroy(x);
        return st;
    }
    *out = x;
    return TUTTI_OK;
}

/* Frees memory that depends on this worker's shards. */
static void release_compute_threads(tti_exec *x) {
    tti_host_destroy(x, x->host);
    x->host = NULL;
    tti_compute_threads_destroy(x->threads->pool);
    for (int i = 0; x->threads->thread && i < x->setup.n_in_flight; i++) {
        tti_instance_destroy(x->threads->thread[i].shard);
        tti_instance_destroy(x->threads->thread[i].eval);
        if (x->threads->thread[i].arena != tti_device_tp_arena(x->tp))
            x->setup.desc.backend->release(x->threads->thread[i].arena, x->setup.arena_bytes + 64);
    }
    forget_ready(x);
    free(x->threads->thread);
    tti_accumulation_fini(&x->setup.acc);
    x->threads->pool = NULL;
    x->threads->thread = NULL;
    x->setup.n_in_flight = 0;
}

bool tti_exec_can_rebalance(const tti_exec *x) {
    bool has_way = !x->device || tti_exec_device_can_rebalance(x);
    bool is_plain = has_way && !x->sharded && !x->pipe && !x->setup.divided;
    return is_plain && x->setup.n_ranks > 1 && !x->compress && !x->setup.desc.local &&
           !x->setup.desc.serves;
}

tutti_status tti_exec_rebalance(tti_exec *x, const tti_shard_map *shard_map) {
    int32_t n_buffers = 0;
    if (!tti_exec_can_rebalance(x))
        return tti_fail(TUTTI_E_UNSUPPORTED, "exec: shards of this worker cannot be rebalanced");
    TTI_TRY(tti_shard_map_check(shard_map, x->setup.n_ranks, x->setup.desc.n_shards));
    if (x->device) TTI_TRY(tti_exec_device_release_idle(x));
    release_compute_threads(x);
    TTI_TRY(tti_shard_map_copy(shard_map, &x->setup.shard_map));
    x->setup.first_shard = tti_shard_map_first(shard_map, x->setup.rank);
    x->setup.last_shard = tti_shard_map_first(shard_map, x->setup.rank + 1);
    x->setup.desc.n_compute_threads = x->setup.n_threads;
    x->setup.desc.n_compute_threads =
        tti_exec_n_compute_threads(&x->setup.desc, x->setup.last_shard - x->setup.first_shard);
    x->arrays->has_whole_ema = false; /* it was in a buffer of gradients */
    TTI_TRY(count_in_flight(x));
    TTI_TRY(tti_exec_plan_merges(&x->setup.desc, x->setup.first_shard, x->setup.last_shard,
                                 x->setup.n_in_flight, &x->setup.acc));
    x->threads->thread = calloc((size_t)x->setup.n_in_flight, sizeof *x->threads->thread);
    if (!x->threads->thread) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    TTI_TRY(tti_exec_alloc_sums(x));
    TTI_TRY(agree_buffers(x, &n_buffers));
    TTI_TRY(grow_buffers(x, n_buffers));
    TTI_TRY(build_compute_threads(x));
    return x->device ? tti_exec_device_regain(x) : tti_host_create(x, &x->host);
}

static void destroy(tti_exec *x) {
    tti_profile_close(x);
    tti_exec_device_release(x);
    release_compute_threads(x); /* also ends the threads that use the memory below */
    tti_exec *host = tti_offload_host(x->offload);
    tti_offload_destroy(x->offload);
    x->offload = NULL;
    tti_exec_destroy(host);
    tti_compress_destroy(x->compress);
    tti_pipe_destroy(x->pipe);
    for (int b = 0; b < x->arrays->n_own_buffers; b++)
        x->setup.desc.backend->release(x->arrays->buffers[b], buffer_bytes(x, b));
    if (!x->setup.desc.shared_params) {
        x->setup.desc.backend->release(x->arrays->low_copies,
                                       tti_plan_low_copies_bytes(x->setup.desc.plan) + 64);
        bool is_sharded = x->sharded && !x->device; /* then the communicator owns the parameters */
        if (!is_sharded) x->setup.desc.backend->release(x->arrays->params, param_bytes(x) + 64);
        if (!is_sharded || !x->sharded->params)
            x->setup.desc.backend->release(x->arrays->ema, state_bytes(x) + 64);
        for (int k = 0; k < TTI_MAX_OUT; k++)
            x->setup.desc.backend->release(x->arrays->states[k], state_bytes(x) + 64);
    }
    tti_device_tp_destroy(x->tp);
    if (x->device) tti_sharded_fini(&x->setup, &x->sharded);
    tti_exec_device_close(x->device);
    x->device = NULL;
    tti_sharded_fini(&x->setup, &x->sharded);
    tti_share_fini(&x->setup.share);
    tti_exec_fini_sync(&x->setup, x->joins);
    tti_divided_destroy(x->setup.divided);
    tti_compute_thread_comms_destroy(x->threads->comms, x->threads->n_comms);
    free(x->setup.cores);
    tti_shard_map_free(&x->setup.shard_map);
    free(x->arrays->buffers);
    free(x->tally->sums);
    free(x->tally->totals);
    tti_update_destroy(x->update);
    tti_exec_free(x);
}

/* Keep the original error; ignore errors during teardown: after a lost device all of this fails
 * too. */
void tti_exec_destroy(tti_exec *x) {
    tti_str failure = {0};
    if (!x) return;
    tti_str_add(&failure, tutti_last_error());
    destroy(x);
    if (failure.n_bytes > 0) tti_fail(TUTTI_E_INTERNAL, "%s", tti_str_text(&failure));
    tti_str_free(&failure);
}

double tti_exec_expected_bubble(const tti_exec *x) { return x->pipe ? x->pipe->expected : 0; }

const double *tti_exec_stages_busy(const tti_exec *x) { return x->pipe ? x->pipe->busy : NULL; }

tti_server *tti_exec_server(const tti_exec *x) { return x->setup.desc.server; }
int tti_exec_server_worker(const tti_exec *x) { return x->setup.desc.server_worker; }

int tti_exec_first_shard(const tti_exec *x) { return x->setup.first_shard; }
int tti_exec_last_shard(const tti_exec *x) { return x->setup.last_shard; }

void tti_exec_cores(const tti_exec *x, tti_cores *out) {
    out->n = x->setup.cores ? TTI_MIN(x->setup.n_threads, TTI_MAX_CORES) : 0;
    for (int i = 0; i < out->n; i++) out->id[i] = x->setup.cores[i];
}

enum { MAX_READERS = 16 }; /* more do not read faster */

void tti_exec_readers(const tti_exec *x, tti_readers *out) {
    bool pinned = tti_exec_writes_to_device(x);
    int n = TTI_MIN(x->setup.n_threads, MAX_READERS);
    *out = (tti_readers){.n_threads = n > 1 || pinned ? n : 0};
    tti_exec_cores(x, &out->cores);
    if (!pinned) return;
    out->alloc = x->setup.desc.backend->device->memory.alloc_host;
    out->release = x->setup.desc.backend->device->memory.release_host;
}

tti_exec_memory tti_exec_memory_use(const tti_exec *x) {
    const tti_plan *plan = x->setup.desc.plan;
    size_t flat = plan->n_flat * sizeof(float), offloaded = 0, program_values = 0;
    size_t grads = flat * (size_t)x->setup.acc.n_buffers;
    size_t n_now = 0, n_peak = 0, n_free = 0;
    size_t n_sharing = x->setup.desc.shared_params ? (size_t)x->setup.n_ranks : 1;
    if (x->device) x->setup.desc.backend->device->memory.get_usage(&n_now, &n_peak, &n_free);
    if (x->sharded)
        grads = tti_sharded_grads(x->sharded, &x->setup.acc, &x->setup.share, plan) * sizeof(float);
    if (x->offload) { /* averages are on the host, with the summed gradients */
        const tti_exec_memory m = tti_exec_memory_use(tti_offload_host(x->offload));
        offloaded = m.params + m.states + m.ema + flat;
    }
    if (!x->device && !x->setup.desc.serves) /* for each compute thread on the host */
        program_values = (plan->shard.const_bytes + plan->shard.result_bytes +
                          plan->eval.const_bytes + plan->eval.result_bytes) *
                         (size_t)x->setup.n_in_flight;
    return (tti_exec_memory){
        .params = param_bytes(x) / n_sharing + tti_plan_low_copies_bytes(plan),
        .states = x->offload ? 0 : state_bytes(x) * (size_t)plan->n_states / n_sharing,
        .ema = tti_exec_state_owner(x)->arrays->ema && !x->offload ? state_bytes(x) / n_sharing : 0,
        .offloaded = offloaded,
        .grads = grads + (x->arrays->wire ? flat / 2 : 0) +
                 (x->device     ? tti_exec_device_sent_bytes(x->device)
                  : x->compress ? tti_compress_bytes(&x->setup.desc, x->setup.n_ranks)
                                : 0),
        .gathered = tti_sharded_gathered(x->sharded) * sizeof(float),
        .arena = x->setup.arena_bytes * (size_t)x->setup.n_in_flight,
        .mailbox = x->pipe ? tti_mailbox_bytes(x->pipe->box) : 0,
        .program_values = program_values,
        .device_peak = n_peak};
}

/* A copy from memory that cannot be pinned is slower, but still correct. */
void tti_exec_pin(tti_exec *x, void *memory, size_t n_bytes) {
    if (x->device && x->setup.desc.backend->device->memory.pin(memory, n_bytes) != TUTTI_OK)
        tti_clear_error();
}

void tti_exec_unpin(tti_exec *x, void *memory) {
    if (x->device) x->setup.desc.backend->device->memory.unpin(memory);
}

tutti_status tti_exec_wait_for_copies(tti_exec *x) {
    return x->device ? tti_exec_device_wait_for_copies(x) : TUTTI_OK;
}

/* ---- steps of training and evaluation: on the host by the step program, else by the device */

tutti_status tti_exec_get_spent(tti_exec *x, tti_exec_spent *spent) {
    tti_tally *tally = tti_tally_of(x);
    *spent =
        (tti_exec_spent){.known = true,
                         .waited_ns = atomic_load_explicit(&tally->waited_ns, memory_order_relaxed),
                         .copied_ns = tally->copied_ns};
    return tti_device_of(x) ? tti_exec_device_get_waits(x, spent) : TUTTI_OK;
}

tutti_status tti_exec_gradient(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    tti_exec_device *device = tti_device_of(x);
    *result = (tti_step_result){0};
    tti_arrays_of(x)->has_whole_ema = false;
    if (device) tti_exec_note(tti_setup_of(x), desc, "compute");
    if (device) return tti_exec_name_difference(x, tti_exec_device_gradient(x, desc, result));
    return tti_host_run(x, desc, TTI_FORM_GRADIENT, result);
}

int tti_exec_depth(const tti_exec *x) { return tti_device_of(x) ? tti_exec_device_depth(x) : 1; }

int tti_exec_steps_per_launch(const tti_exec *x) {
    tti_exec_device *device = tti_device_of(x);
    return device ? tti_exec_device_steps_per_launch(device) : 1;
}

bool tti_exec_takes_bytes(const tti_exec *x) {
    const tti_device_ops *ops = tti_setup_of(x)->desc.backend->device;
    return ops && ops->step.unpack;
}

const char *tti_exec_transport(const tti_exec *x) {
    tti_exec_device *device = tti_device_of(x);
    return device ? tti_exec_device_transport(device) : "";
}

tutti_status tti_exec_keep(tti_exec *x, const tti_resident_samples *samples,
                           tti_lasting_samples *lasting, int ahead, bool *resident) {
    *resident = false;
    if (!tti_device_of(x)) return TUTTI_OK;
    return tti_exec_device_keep(x, samples, lasting, ahead, resident);
}

tutti_status tti_exec_begin(tti_exec *x, const tti_step_desc *desc) {
    tti_tally *tally = tti_tally_of(x);
    tti_arrays_of(x)->has_whole_ema = false;
    if (tti_device_of(x)) return tti_exec_name_difference(x, tti_exec_device_begin(x, desc));
    TTI_ASSERT(!tally->has_begun);
    tally->begun = *desc;
    tally->has_begun = true;
    return TUTTI_OK;
}

tutti_status tti_exec_end(tti_exec *x, tti_step_result *result) {
    const tti_setup *setup = tti_setup_of(x);
    tti_tally *tally = tti_tally_of(x);
    if (tti_device_of(x)) return tti_exec_name_difference(x, tti_exec_device_end(x, result));
    TTI_ASSERT(tally->has_begun);
    tally->has_begun = false;
    *result = (tti_step_result){0};
    tti_profile_next_step(x);
    tti_step_form form = tti_step_form_of(&setup->desc, setup->n_ranks, &tally->begun);
    return tti_exec_name_difference(x, tti_host_run(x, &tally->begun, form, result));
}

tutti_status tti_exec_salvage(tti_exec *x, tti_step_result *result, bool *ended) {
    *ended = false;
    return tti_device_of(x) ? tti_exec_device_salvage(x, result, ended) : TUTTI_OK;
}

tutti_status tti_exec_step(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    *result = (tti_step_result){0};
    TTI_TRY(tti_exec_begin(x, desc));
    return tti_exec_end(x, result);
}

tutti_status tti_exec_compute_gradients(tti_exec *x, const tti_step_desc *desc,
                                        tti_step_result *result) {
    const tti_setup *setup = tti_setup_of(x);
    TTI_ASSERT(!setup->desc.server);
    *result = (tti_step_result){0};
    tti_arrays_of(x)->has_whole_ema = false;
    if (tti_device_of(x))
        return tti_exec_name_difference(x, tti_exec_device_compute_gradients(x, desc, result));
    tti_profile_next_step(x);
    tti_step_form form = tti_step_form_of(&setup->desc, setup->n_ranks, desc);
    tutti_status st = tti_host_compute_gradients(x, desc, form);
    *result = *tti_host_begun_result(tti_host_of(x));
    return tti_exec_name_difference(x, st);
}

tutti_status tti_exec_watch_shard(tti_exec *x, int shard) {
    if (!tti_host_of(x))
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "parallel.verify_every: workers on GPUs cannot be "
                        "verified; give parallel.devices=cpu or 0");
    return tti_layer_hashes_watch(x, shard, tti_host_layer_hashes(tti_host_of(x)));
}

int tti_exec_n_layers(const tti_exec *x) {
    return tti_instance_n_steps(tti_exec_instance(x, 0, false));
}

const uint64_t *tti_exec_layer_hashes(const tti_exec *x) {
    return tti_host_layer_hashes(tti_host_of(x))->hashes;
}

tutti_status tti_exec_recompute(tti_exec *x, const tti_step_desc *desc, int shard,
                                const tti_shard_data *data, uint64_t *hashes) {
    return tti_layer_hashes_again(x, desc, shard, data, hashes);
}

void tti_exec_layer_name(const tti_exec *x, int layer, char *out, size_t n_bytes) {
    char name[TTI_LAYER_TEXT];
    tti_exec_print_layer(tti_instance_node(tti_exec_instance(x, 0, false), layer), name);
    snprintf(out, n_bytes, "%s", name);
}

tutti_status tti_exec_apply_gradients(tti_exec *x, double lr, bool keeps_params,
                                      tti_step_result *result) {
    *result = (tti_step_result){0};
    if (tti_device_of(x))
        return tti_exec_name_difference(
            x, tti_exec_device_apply_gradients(x, lr, keeps_params, result));
    tutti_status st = tti_host_apply_gradients(x, lr, keeps_params);
    *result = *tti_host_begun_result(tti_host_of(x));
    return tti_exec_name_difference(x, st);
}

tutti_status tti_exec_eval(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    tti_offload *offload = tti_offload_of(x);
    tti_exec_note(setup, desc, "evaluate");
    if (!tti_device_of(x)) return tti_host_run(x, desc, TTI_FORM_EVAL, result);
    if (arrays->ema && tti_exec_has_partitions(setup) && !tti_exec_has_sharded_params(x))
        TTI_TRY(tti_exec_gather_averages(x));
    if (setup->desc.server) TTI_TRY(tti_calls_of(setup->desc.server)->pull_averages(x));
    if (offload) TTI_TRY(tti_offload_put_averages(offload));
    return tti_exec_device_eval(x, desc, result);
}

/* ---- a profile ---- */

tutti_status tti_exec_profile_begin(tti_exec *x, int n_steps) {
    TTI_TRY(tti_profile_open(x));
    return tti_device_of(x) ? tti_exec_device_profile_begin(x, n_steps) : TUTTI_OK;
}

tutti_status tti_exec_profile_end(tti_exec *x, tti_timeline *out) {
    tti_exec_device *device = tti_device_of(x);
    tutti_status st = tti_profile_read(x, out);
    if (device) tti_exec_device_profile_end(device);
    tti_profile_close(x);
    return st;
}

void tti_exec_profile_wait(tti_exec *x, tti_span_id id, int64_t start_ns, int64_t end_ns) {
    tti_profile_add(x, TTI_ROW_HOST, id, -1, start_ns, end_ns);
}
