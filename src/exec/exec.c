/* exec.c - creates a worker: compute threads, kernels, memory. */
#include "exec/exec.h"
#include "exec/device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/first_params.h"
#include "exec/program/collective.h"
#include "exec/worker/mixed.h"
#include "exec/worker/worker.h"

/* Averages are copied to where evaluation reads them. */
static bool is_brought(const tti_exec *x) {
    return tti_exec_has_parts(x) || (x->device && tti_exec_state_owner(x) != x);
}

static tutti_status bind_update(tti_exec *x, tti_compute_thread *compute_thread) {
    const tutti_graph *g = x->desc.plan->update_graph;
    compute_thread->updates = calloc((size_t)g->n_nodes + 1, sizeof *compute_thread->updates);
    if (!compute_thread->updates) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        tti_bound_update *u = &compute_thread->updates[i];
        if (node->op->traits & TTI_SOURCE) continue;
        u->kernel = x->desc.backend->select(node, x->desc.reference);
        if (u->kernel->prepare) TTI_TRY(u->kernel->prepare(node, &u->state));
        if (u->kernel->scratch_bytes) u->scratch_bytes = u->kernel->scratch_bytes(node, u->state);
        u->scratch = x->desc.backend->alloc(u->scratch_bytes + 64);
        if (!u->scratch) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    }
    return TUTTI_OK;
}

static tutti_status build_compute_thread(tti_exec *x, int index) {
    tti_compute_thread *compute_thread = &x->compute_thread[index];
    const tti_plan *plan = x->desc.plan;
    if (x->desc.serves) return bind_update(x, compute_thread);
    compute_thread->arena = tti_device_exchange_arena(x->exchange);
    if (!compute_thread->arena) compute_thread->arena = x->desc.backend->alloc(x->arena_bytes + 64);
    if (!compute_thread->arena)
        return tti_fail(TUTTI_E_NOMEM, "exec: %zu bytes of activations", x->arena_bytes);
    tti_instance_desc desc = {
        .program = &plan->shard,
        .backend = x->desc.backend,
        .reference = x->desc.reference,
        .arena = compute_thread->arena,
        .params = x->params,
        .low = x->low,
        .tensor = x->compute_thread_comms
                      ? x->compute_thread_comms[index % x->desc.n_compute_threads]
                      : NULL,
        .exchange = x->exchange,
        .prepared = index == 0 ? x->ready[0] : NULL};
    if (tti_exec_has_sharded_params(x)) {
        desc.params = x->sharded->gathered;
        desc.window = &x->sharded->train;
    }
    TTI_TRY(tti_instance_create(&desc, &compute_thread->shard));
    if (plan->eval.graph) {
        desc.program = &plan->eval;
        desc.prepared = index == 0 ? x->ready[1] : NULL;
        if (desc.window)
            desc.window = &x->sharded->eval;
        else if (tti_exec_state_owner(x)->ema)
            desc.params = is_brought(x) ? tti_zero_averages(x) : tti_exec_state_owner(x)->ema;
        TTI_TRY(tti_instance_create(&desc, &compute_thread->eval));
    }
    return x->device || x->desc.server ? TUTTI_OK : bind_update(x, compute_thread);
}

/* Buffers that peers read directly; all ranks must ask for equally many. */
static tutti_status count_buffers(const tti_exec *x, int32_t *n_most) {
    int32_t n = *n_most = x->acc.n_buffers;
    if (x->n_ranks == 1 || x->desc.serves) return TUTTI_OK;
    return tutti_comm_all_reduce(x->desc.comm, &n, n_most, 1, TUTTI_I32, TUTTI_MAX, TUTTI_ALG_AUTO);
}

static size_t buffer_bytes(const tti_exec *x, int b) {
    bool is_short = x->sharded && x->sharded->is_short[b];
    size_t n_elems = is_short ? x->sharded->grads.n_elems : x->desc.plan->n_flat;
    return n_elems * sizeof(float) + 64;
}

/* Allocates up to n buffers, if there are fewer. */
static tutti_status grow_buffers(tti_exec *x, int n) {
    if (x->buffers && n <= x->n_buffers) return TUTTI_OK;
    float **buffers = realloc(x->buffers, ((size_t)n + 1) * sizeof *buffers);
    if (!buffers) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    buffers[n] = NULL; /* a server without shards uses it for its workers' buffers */
    x->buffers = buffers;
    for (int b = x->n_buffers; b < n; b++) {
        void *memory = NULL;
        size_t n_bytes = buffer_bytes(x, b);
        if (x->n_ranks > 1 && !x->device)
            TTI_TRY(tutti_comm_alloc(x->desc.comm, n_bytes, &memory));
        else
            memory = x->desc.backend->alloc(n_bytes);
        if (!memory) return tti_fail(TUTTI_E_NOMEM, "exec: %zu bytes of gradients", n_bytes);
        x->buffers[b] = memory;
        x->n_buffers = b + 1;
        if (x->n_ranks == 1 || x->device) x->n_own_buffers = b + 1;
    }
    return TUTTI_OK;
}

/* In mixed CPU+GPU runs device buffers stay local; the memory that peers read is on their host. */
static tutti_status agree_buffers(tti_exec *x, int32_t *n) {
    TTI_TRY(count_buffers(x, n));
    x->n_agreed = *n;
    if (x->device && x->desc.mixed) *n = x->acc.n_buffers;
    return TUTTI_OK;
}

static tutti_status alloc_buffers(tti_exec *x) {
    int32_t n = 0;
    TTI_TRY(agree_buffers(x, &n));
    TTI_TRY(tti_sharded_buffers(x, n));
    if (tti_exec_has_wire(x)) {
        size_t n_bytes = x->desc.plan->n_flat * sizeof(uint16_t) + 64;
        void *memory = NULL;
        TTI_TRY(tutti_comm_alloc(x->desc.comm, n_bytes, &memory));
        x->wire = memory;
    }
    return grow_buffers(x, n);
}

/* Bytes of one array of state, of this worker or its server. */
static size_t state_bytes(const tti_exec *x) { return x->share.n_elems * sizeof(float); }

static size_t param_bytes(const tti_exec *x) {
    bool in_parts = tti_exec_has_sharded_params(x) || tti_exec_has_range(x);
    return (in_parts ? x->share.n_elems : x->desc.plan->n_flat) * sizeof(float);
}

/* Parameters or averages: memory that other workers read where they are in parts there. */
static tutti_status alloc_shared(tti_exec *x, bool is_shared, size_t n_bytes, float **out) {
    void *memory = NULL;
    size_t most = tti_exec_has_sharded_params(x) ? x->share.n_most * sizeof(float) : n_bytes;
    if (is_shared && !x->device)
        TTI_TRY(tutti_comm_alloc(x->desc.comm, most + 64, &memory));
    else
        memory = x->desc.backend->alloc(n_bytes + 64);
    *out = memory;
    return memory ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: %zu bytes of parameters", n_bytes);
}

static tutti_status alloc_states(tti_exec *x) {
    size_t n_bytes = state_bytes(x) + 64;
    bool ok = true;
    if (tti_exec_state_owner(x) != x) return TUTTI_OK;
    if (x->desc.shared_params) {
        memcpy(x->states, x->desc.shared_params->states, sizeof x->states);
        x->ema = x->desc.shared_params->ema;
        return TUTTI_OK;
    }
    for (int k = 0; k < x->desc.plan->n_states && !x->desc.server; k++) {
        x->states[k] = x->desc.backend->alloc(n_bytes);
        ok = ok && x->states[k];
    }
    if (x->desc.ema > 0)
        TTI_TRY(alloc_shared(x, tti_exec_has_sharded_params(x), state_bytes(x), &x->ema));
    return ok ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: %zu bytes of state", n_bytes);
}

static tutti_status alloc_block_hashes(tti_exec *x) {
    if (!x->desc.shared_params && !tti_exec_has_sharded_params(x)) return TUTTI_OK;
    x->block_hashes = calloc((size_t)x->share.n_blocks + 1, sizeof *x->block_hashes);
    return x->block_hashes ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
}

/* Only plans for devices that keep 16-bit copies read them. */
static tutti_status alloc_low(tti_exec *x) {
    size_t n_bytes = tti_plan_low_bytes(x->desc.plan);
    if (n_bytes == 0 || x->desc.serves) return TUTTI_OK;
    if (!x->device || !x->desc.backend->device->update.narrow || tti_exec_has_sharded_params(x))
        return tti_fail(TUTTI_E_INTERNAL, "exec: nobody keeps the parameters in 16 bits");
    x->low = x->desc.backend->alloc(n_bytes + 64); /* the last ones may be written by fours */
    return x->low ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: %zu bytes of parameters", n_bytes);
}

static tutti_status alloc_flat(tti_exec *x) {
    const tti_plan *plan = x->desc.plan;
    TTI_TRY(alloc_block_hashes(x));
    if (x->desc.shared_params)
        x->params = x->desc.shared_params->params;
    else
        TTI_TRY(alloc_shared(x, x->sharded != NULL, param_bytes(x), &x->params));
    TTI_TRY(alloc_low(x));
    TTI_TRY(alloc_states(x));
    x->n_sums = (size_t)x->desc.n_shards * TTI_SUMS + 2 * (size_t)x->n_ranks + 1;
    x->sums = calloc(x->n_sums, sizeof *x->sums);
    x->partials = calloc(2 * (size_t)plan->n_updates + 2, sizeof *x->partials);
    x->compute_thread = calloc((size_t)x->n_in_flight, sizeof *x->compute_thread);
    x->norms = calloc(2 * (size_t)plan->n_slots + 2, sizeof *x->norms);
    if (!x->sums || !x->partials || !x->compute_thread || !x->norms)
        return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    return tti_exec_first_params(x);
}

static tutti_status find_inputs(const tti_plan *plan, const tti_program *program, tti_inputs *out) {
    *out = (tti_inputs){.x = tti_program_input(program, "x"),
                        .target = tti_program_input(program, "target"),
                        .rows = tti_program_input(program, "rows"),
                        .loss_scale = tti_program_input(program, "loss_scale")};
    if ((out->x >= 0 && out->target >= 0) || plan->stages) return TUTTI_OK;
    return tti_fail(TUTTI_E_INVALID, "exec: the graph needs the inputs 'x' and 'target'");
}

static tutti_status count_in_flight(tti_exec *x) {
    int n_local = x->last_shard - x->first_shard;
    x->n_in_flight = x->n_syncs > 0 && !x->desc.serves ? n_local : x->desc.n_compute_threads;
    if (x->desc.plan->stages && !x->desc.serves) {
        int own = tti_shard_groups_of(n_local, x->desc.n_compute_threads);
        TTI_TRY(tti_pipe_count_in_flight(x->desc.plan->stages, x->n_pipe_groups, &x->n_in_flight));
        x->n_in_flight = TTI_MIN(x->n_in_flight, own) * x->desc.n_compute_threads;
    }
    if (x->n_in_flight <= TTI_MAX_COMPUTE_THREADS) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED,
                    "exec: %d shards of one worker at a time, at most %d are possible; use more "
                    "workers or fewer shards",
                    x->n_in_flight, TTI_MAX_COMPUTE_THREADS);
}

/* As many compute threads as all workers of the model group can have. */
static tutti_status agree_compute_threads(tti_exec *x) {
    if (x->desc.serves) return TUTTI_OK; /* a server does not compute shards */
    tutti_comm *tensor = x->desc.mesh && !x->desc.backend->device ? x->desc.mesh->tensor : NULL;
    TTI_TRY(tti_compute_thread_comms_create(tensor, &x->desc.n_compute_threads,
                                            &x->compute_thread_comms));
    x->n_compute_thread_comms = x->desc.n_compute_threads;
    return tti_pipe_agree_compute_threads(x);
}

static void forget_ready(tti_exec *x) {
    for (size_t i = 0; i < TTI_COUNT(x->ready); i++) {
        tti_prepared_destroy(x->ready[i]);
        x->ready[i] = NULL;
    }
}

static tutti_status build_compute_threads(tti_exec *x) {
    TTI_TRY(tti_compute_threads_create(x->desc.n_compute_threads, x->desc.cores,
                                       x->desc.backend->thread_init, &x->compute_threads));
    for (int i = 0; i < x->n_in_flight; i++) TTI_TRY(build_compute_thread(x, i));
    forget_ready(x);
    return TUTTI_OK;
}

/* Keeps the cores, because compute threads are recreated when shards are redistributed. */
static tutti_status keep_cores(tti_exec *x) {
    size_t n_bytes = (size_t)x->n_threads * sizeof *x->cores;
    if (!x->desc.cores) return TUTTI_OK;
    x->cores = malloc(n_bytes);
    if (!x->cores) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    memcpy(x->cores, x->desc.cores, n_bytes);
    x->desc.cores = x->cores;
    return TUTTI_OK;
}

static tutti_status prepare_kernels(tti_exec *x, size_t *scratch) {
    const tti_plan *plan = x->desc.plan;
    const tti_program *programs[] = {&plan->shard, &plan->eval};
    *scratch = 0;
    for (size_t i = 0; !x->desc.serves && i < TTI_COUNT(programs); i++) {
        if (!programs[i]->graph) continue;
        TTI_TRY(tti_prepared_create(programs[i], x->desc.backend, x->desc.reference, &x->ready[i]));
        *scratch += tti_prepared_scratch(x->ready[i]) * (size_t)x->n_in_flight;
    }
    return TUTTI_OK;
}

/* Includes the scratch of kernels, unless there is no kernel for such a large step. */
static tutti_status check_device_memory(tti_exec *x) {
    size_t scratch;
    tutti_status prepared = prepare_kernels(x, &scratch);
    TTI_TRY(tti_exec_check_memory(x, scratch));
    return prepared;
}

/* The host has parameters and state of a device, and makes its update. */
static tutti_status make_offload(tti_exec *x) {
    tti_exec *host;
    if (x->divided)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "exec: the optimizer's state of a part of a model stays on its device");
    tti_exec_desc desc = tti_offload_desc(x);
    TTI_TRY(tti_exec_create(&desc, &host));
    tutti_status st = tti_offload_create(x, host, &x->offload);
    if (st != TUTTI_OK) tti_exec_destroy(host);
    return st;
}

static void end_offload(tti_exec *x) {
    tti_exec *host = tti_offload_host(x->offload);
    tti_offload_destroy(x->offload);
    x->offload = NULL;
    tti_exec_destroy(host);
}

static tutti_status build(tti_exec *x) {
    const tti_plan *plan = x->desc.plan;
    int n_local = x->last_shard - x->first_shard;
    bool has_pipe = plan->stages && !x->desc.serves;
    TTI_TRY(keep_cores(x));
    TTI_TRY(tti_mixed_check(x));
    TTI_TRY(tti_exec_device_open(x));
    TTI_TRY(tti_divided_create(plan, x->desc.mesh, &x->divided));
    TTI_TRY(find_inputs(plan, &plan->shard, &x->shard_inputs));
    if (plan->eval.graph) TTI_TRY(find_inputs(plan, &plan->eval, &x->eval_inputs));
    TTI_TRY(tti_collective_check(&plan->shard, x->desc.mesh ? x->desc.mesh->tensor : NULL));
    TTI_TRY(tti_exec_init_sync(x));
    TTI_TRY(agree_compute_threads(x));
    TTI_TRY(count_in_flight(x));
    TTI_TRY(tti_accumulation_init(
        &x->acc, x->first_shard, x->last_shard,
        has_pipe ? tti_pipe_width(plan->stages, x->desc.n_compute_threads, n_local)
                 : x->n_in_flight));
    if (has_pipe) TTI_TRY(tti_pipe_create(x, &x->pipe));
    TTI_TRY(tti_exec_init_share(&x->desc, x->rank, x->n_ranks, &x->share));
    if (x->device) TTI_TRY(check_device_memory(x));
    if (!x->desc.serves) x->arena_bytes = TTI_MAX(plan->shard.arena_bytes, plan->eval.arena_bytes);
    TTI_TRY(tti_device_exchange_create(x, &x->exchange));
    if (x->device && x->desc.offload) TTI_TRY(make_offload(x));
    TTI_TRY(tti_sharded_init(x));
    TTI_TRY(alloc_flat(x));
    TTI_TRY(alloc_buffers(x));
    TTI_TRY(build_compute_threads(x));
    if (x->device) TTI_TRY(tti_exec_device_prepare(x));
    if (!x->device && tti_compress_wanted(&x->desc, x->n_ranks))
        TTI_TRY(tti_compress_create(x, &x->compress));
    if (!x->device) TTI_TRY(tti_host_create(x));
    return tti_exec_has_sharded_params(x) ? tti_sharded_rehash(x) : TUTTI_OK;
}

static tutti_status check_shards(const tti_exec_desc *desc) {
    int n_ranks = desc->comm ? tutti_comm_n_ranks(desc->comm) : 1, v = desc->n_shards;
    if (v >= n_ranks && v >= 1 && v <= TTI_MAX_SHARDS && (v & (v - 1)) == 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_INVALID,
                    "exec: %d shards for %d ranks: want a power of two, at least one for each", v,
                    n_ranks);
}

tutti_status tti_exec_create(const tti_exec_desc *desc, tti_exec **out) {
    *out = NULL;
    tti_shard_map shard_map;
    TTI_TRY(check_shards(desc));
    TTI_TRY(tti_exec_shard_map(desc, desc->comm ? tutti_comm_n_ranks(desc->comm) : 1, &shard_map));
    tti_exec *x = calloc(1, sizeof *x);
    if (!x) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    x->desc = *desc;
    x->desc.shard_map = NULL;
    x->shard_map = shard_map;
    x->rank = desc->comm ? tutti_comm_rank(desc->comm) : 0;
    x->n_ranks = desc->comm ? tutti_comm_n_ranks(desc->comm) : 1;
    if (!desc->serves) {
        x->first_shard = shard_map.first[x->rank];
        x->last_shard = shard_map.first[x->rank + 1];
        if (desc->server)
            tti_calls_of(desc->server)
                ->shards(desc->server, desc->server_worker, desc->n_shards, &x->first_shard,
                         &x->last_shard);
    }
    /* Values that fit f32 would become infinite when sent. */
    if (desc->fast && x->n_ranks > 1 && desc->wire == TUTTI_F16) x->desc.watch_gradients = true;
    /* Non-finite values would stay in the residuals. */
    if (tti_compress_wanted(desc, x->n_ranks)) x->desc.watch_gradients = true;
    x->desc.mixed = desc->mixed && x->n_ranks > 1;
    /* The ring's order of additions depends on an element's position in the vector, and parameters
     * that several workers of a model have may have a different position on each. */
    if (desc->mesh && desc->mesh->model && desc->alg == TUTTI_ALG_RING)
        x->desc.alg = TUTTI_ALG_AUTO;
    x->n_threads = desc->n_compute_threads;
    x->desc.n_compute_threads = tti_exec_n_compute_threads(
        desc, desc->serves ? desc->n_compute_threads : x->last_shard - x->first_shard);
    tutti_status st = build(x);
    if (st != TUTTI_OK) {
        tti_exec_destroy(x);
        return st;
    }
    *out = x;
    return TUTTI_OK;
}

static void destroy_compute_thread(tti_exec *x, tti_compute_thread *compute_thread) {
    tti_instance_destroy(compute_thread->shard);
    tti_instance_destroy(compute_thread->eval);
    if (compute_thread->arena != tti_device_exchange_arena(x->exchange))
        x->desc.backend->release(compute_thread->arena, x->arena_bytes + 64);
    for (int i = 0; compute_thread->updates && i < x->desc.plan->update_graph->n_nodes; i++) {
        tti_bound_update *u = &compute_thread->updates[i];
        if (u->kernel && u->kernel->release) u->kernel->release(u->state);
        x->desc.backend->release(u->scratch, u->scratch_bytes + 64);
    }
    free(compute_thread->updates);
}

/* Frees memory that depends on this worker's shards. */
static void release_compute_threads(tti_exec *x) {
    tti_host_destroy(x);
    tti_compute_threads_destroy(x->compute_threads);
    for (int i = 0; x->compute_thread && i < x->n_in_flight; i++)
        destroy_compute_thread(x, &x->compute_thread[i]);
    forget_ready(x);
    free(x->compute_thread);
    tti_accumulation_fini(&x->acc);
    x->compute_threads = NULL;
    x->compute_thread = NULL;
    x->n_in_flight = 0;
}

bool tti_exec_can_rebalance(const tti_exec *x) {
    bool has_way = !x->device || x->desc.mixed;
    bool is_plain = has_way && !x->sharded && !x->pipe && !x->divided;
    return is_plain && x->n_ranks > 1 && !x->compress && !x->desc.local && !x->desc.serves;
}

tutti_status tti_exec_rebalance(tti_exec *x, const tti_shard_map *shard_map) {
    int32_t n_buffers = 0;
    if (!tti_exec_can_rebalance(x))
        return tti_fail(TUTTI_E_UNSUPPORTED, "exec: shards of this worker cannot be rebalanced");
    TTI_TRY(tti_shard_map_check(shard_map, x->n_ranks, x->desc.n_shards));
    if (x->device) TTI_TRY(tti_exec_device_let_go(x));
    release_compute_threads(x);
    x->shard_map = *shard_map;
    x->first_shard = shard_map->first[x->rank];
    x->last_shard = shard_map->first[x->rank + 1];
    x->desc.n_compute_threads = x->n_threads;
    x->desc.n_compute_threads =
        tti_exec_n_compute_threads(&x->desc, x->last_shard - x->first_shard);
    x->has_whole_ema = false; /* it was in a buffer of gradients */
    TTI_TRY(count_in_flight(x));
    TTI_TRY(tti_accumulation_init(&x->acc, x->first_shard, x->last_shard, x->n_in_flight));
    x->compute_thread = calloc((size_t)x->n_in_flight, sizeof *x->compute_thread);
    if (!x->compute_thread) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    TTI_TRY(agree_buffers(x, &n_buffers));
    TTI_TRY(grow_buffers(x, n_buffers));
    TTI_TRY(build_compute_threads(x));
    return x->device ? tti_exec_device_take_up(x) : tti_host_create(x);
}

static void release_flat(tti_exec *x) {
    x->desc.backend->release(x->low, tti_plan_low_bytes(x->desc.plan) + 64);
    bool is_sharded = x->sharded && !x->device; /* then the communicator's */
    if (!is_sharded) x->desc.backend->release(x->params, param_bytes(x) + 64);
    if (!is_sharded || !x->sharded->params) x->desc.backend->release(x->ema, state_bytes(x) + 64);
    for (int k = 0; k < TTI_MAX_OUT; k++)
        x->desc.backend->release(x->states[k], state_bytes(x) + 64);
}

static void destroy(tti_exec *x) {
    tti_profile_drop(x);
    tti_exec_device_release(x);
    release_compute_threads(x); /* with it the threads that use what follows */
    end_offload(x);
    tti_compress_destroy(x->compress);
    tti_pipe_destroy(x->pipe);
    for (int b = 0; b < x->n_own_buffers; b++)
        x->desc.backend->release(x->buffers[b], buffer_bytes(x, b));
    if (!x->desc.shared_params) release_flat(x);
    tti_device_exchange_destroy(x->exchange);
    if (x->device) tti_sharded_fini(x);
    tti_exec_device_close(x);
    tti_sharded_fini(x);
    tti_share_fini(&x->share);
    tti_exec_fini_sync(x);
    tti_divided_destroy(x->divided);
    tti_compute_thread_comms_destroy(x->compute_thread_comms, x->n_compute_thread_comms);
    free(x->norms);
    free(x->cores);
    free(x->buffers);
    free(x->sums);
    free(x->partials);
    free(x->block_hashes);
    free(x);
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

double tti_exec_expected_bubble(const tti_exec *x) {
    return x->pipe ? tti_pipe_bubble_expected(x->pipe) : 0;
}

const double *tti_exec_stages_busy(const tti_exec *x) {
    return x->pipe ? tti_pipe_busy(x->pipe) : NULL;
}

tti_server *tti_exec_server(const tti_exec *x) { return x->desc.server; }
int tti_exec_server_worker(const tti_exec *x) { return x->desc.server_worker; }

int tti_exec_first_shard(const tti_exec *x) { return x->first_shard; }
int tti_exec_last_shard(const tti_exec *x) { return x->last_shard; }

void tti_exec_cores(const tti_exec *x, tti_cores *out) {
    out->n = x->cores ? TTI_MIN(x->n_threads, TTI_MAX_CORES) : 0;
    for (int i = 0; i < out->n; i++) out->id[i] = x->cores[i];
}

static size_t grad_bytes(const tti_exec *x) {
    if (x->sharded)
        return tti_sharded_grads(x->sharded, &x->acc, &x->share, x->desc.plan) * sizeof(float);
    return x->desc.plan->n_flat * (size_t)x->acc.n_buffers * sizeof(float);
}

/* Bytes of the host: parameters, state, averages and summed gradients. */
static size_t offloaded_bytes(const tti_exec *x) {
    if (!x->offload) return 0;
    const tti_exec_memory m = tti_exec_memory_use(tti_offload_host(x->offload));
    return m.params + m.states + m.ema + x->desc.plan->n_flat * sizeof(float);
}

/* Constants and results of the programs of each compute thread on the host. */
static size_t beside_bytes(const tti_exec *x) {
    const tti_plan *plan = x->desc.plan;
    if (x->device || x->desc.serves) return 0;
    return (plan->shard.const_bytes + plan->shard.result_bytes + plan->eval.const_bytes +
            plan->eval.result_bytes) *
           (size_t)x->n_in_flight;
}

tti_exec_memory tti_exec_memory_use(const tti_exec *x) {
    size_t flat = x->desc.plan->n_flat * sizeof(float);
    size_t n_now = 0, n_peak = 0, n_free = 0;
    size_t n_sharing = x->desc.shared_params ? (size_t)x->n_ranks : 1;
    if (x->device) x->desc.backend->device->memory.get_usage(&n_now, &n_peak, &n_free);
    return (tti_exec_memory){
        .params = param_bytes(x) / n_sharing + tti_plan_low_bytes(x->desc.plan),
        .states = x->offload ? 0 : state_bytes(x) * (size_t)x->desc.plan->n_states / n_sharing,
        .ema = tti_exec_state_owner(x)->ema && !x->offload ? state_bytes(x) / n_sharing : 0,
        .offloaded = offloaded_bytes(x),
        .grads = grad_bytes(x) + (x->wire ? flat / 2 : 0) +
                 (x->device     ? tti_exec_device_compress_bytes(x)
                  : x->compress ? tti_compress_bytes(&x->desc, x->n_ranks)
                                : 0),
        .gathered = tti_sharded_gathered(x->sharded) * sizeof(float),
        .arena = x->arena_bytes * (size_t)x->n_in_flight,
        .mail = x->pipe ? tti_pipe_bytes(x->pipe) : 0,
        .beside = beside_bytes(x),
        .device_peak = n_peak};
}

/* A copy from memory that cannot be pinned is slower, but still correct. */
void tti_exec_pin(tti_exec *x, void *memory, size_t n_bytes) {
    if (x->device && x->desc.backend->device->memory.pin(memory, n_bytes) != TUTTI_OK)
        tti_clear_error();
}

void tti_exec_unpin(tti_exec *x, void *memory) {
    if (x->device) x->desc.backend->device->memory.unpin(memory);
}
