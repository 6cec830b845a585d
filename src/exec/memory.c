/* memory.c - computes the memory of a worker before it is created. */
#include "exec/memory.h"

#include <stdlib.h>

#include "comm/common.h"
#include "exec/device/device.h"
#include "exec/exec.h"
#include "exec/program/exec_program.h"
#include "exec/worker/worker.h"

tutti_status tti_exec_shard_map(const tti_exec_desc *desc, int n_ranks, tti_shard_map *out) {
    if (!desc->shard_map) {
        tti_shard_map_equally(n_ranks, desc->n_shards, out);
        return TUTTI_OK;
    }
    *out = *desc->shard_map;
    return tti_shard_map_check(out, n_ranks, desc->n_shards);
}

static bool has_joins(const tti_program *program) {
    for (int s = 0; s < program->n_steps; s++)
        if (program->steps[s]->op->traits & TTI_SYNC) return true;
    return false;
}

int tti_exec_n_compute_threads(const tti_exec_desc *desc, int n_local) {
    if (desc->backend->device) return 1;
    int n = TTI_MAX(1, TTI_MIN(TTI_MIN(desc->n_compute_threads, n_local), TTI_MAX_COMPUTE_THREADS));
    return desc->plan->stages ? tti_pipe_fit_compute_threads(desc->plan->stages, n, n_local) : n;
}

tutti_status tti_planned_micro_groups(const tti_exec_desc *desc, int n_local, int n_ranks, int *n) {
    tti_shard_map shard_map;
    *n = tti_micro_groups_of(n_local, tti_exec_n_compute_threads(desc, n_local));
    if (desc->zero < 3 || desc->backend->device) return TUTTI_OK;
    TTI_TRY(tti_exec_shard_map(desc, n_ranks, &shard_map));
    int n_kinds = tti_shard_map_is_uniform(&shard_map) ? 1 : n_ranks;
    for (int r = 0; r < n_kinds; r++) {
        int theirs = tti_shard_map_n_of(&shard_map, r);
        *n = TTI_MAX(*n, tti_micro_groups_of(theirs, tti_exec_n_compute_threads(desc, theirs)));
    }
    return TUTTI_OK;
}

/* Counts the shards whose activations are live at the same time. */
static tutti_status count_in_flight(const tti_exec_desc *desc, int n_local, int n_ranks, int *n) {
    int n_compute_threads = tti_exec_n_compute_threads(desc, n_local), n_micro_groups;
    bool joins =
        has_joins(&desc->plan->shard) || (desc->plan->eval.graph && has_joins(&desc->plan->eval));
    *n = joins ? n_local : n_compute_threads;
    if (!desc->plan->stages) return TUTTI_OK;
    TTI_TRY(tti_planned_micro_groups(desc, n_local, n_ranks, &n_micro_groups));
    TTI_TRY(tti_pipe_count_in_flight(desc->plan->stages, n_micro_groups, n));
    *n = TTI_MIN(*n, tti_micro_groups_of(n_local, n_compute_threads)) * n_compute_threads;
    return TUTTI_OK;
}

tutti_status tti_planned_accumulation(const tti_exec_desc *desc, int rank, int n_ranks,
                                      tti_accumulation *acc) {
    tti_shard_map shard_map;
    TTI_TRY(tti_exec_shard_map(desc, n_ranks, &shard_map));
    int first = tti_shard_map_first(&shard_map, rank), width;
    int last = tti_shard_map_first(&shard_map, rank + 1);
    TTI_TRY(count_in_flight(desc, last - first, n_ranks, &width));
    if (desc->plan->stages)
        width = tti_pipe_width(desc->plan->stages, tti_exec_n_compute_threads(desc, last - first),
                               last - first);
    return tti_exec_plan_merges(desc, first, last,
                                TTI_MAX(1, TTI_MIN(width, TTI_MAX_COMPUTE_THREADS)), acc);
}

/* If a buffer must be whole on one worker, it is whole on all of them. */
static tutti_status find_short(const tti_exec_desc *desc, int n_ranks, tti_sharded *sharded) {
    tti_shard_map shard_map;
    TTI_TRY(tti_exec_shard_map(desc, n_ranks, &shard_map));
    int n_kinds = tti_shard_map_is_uniform(&shard_map) ? 1 : n_ranks;
    size_t n = (size_t)desc->n_shards + 1;
    bool *theirs = calloc(n, sizeof *theirs);
    sharded->is_short = calloc(n, sizeof *sharded->is_short);
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    if (theirs && sharded->is_short) st = TUTTI_OK;
    for (size_t b = 0; st == TUTTI_OK && b < n; b++) sharded->is_short[b] = true;
    for (int r = 0; st == TUTTI_OK && r < n_kinds; r++) {
        tti_accumulation acc;
        st = tti_planned_accumulation(desc, r, n_ranks, &acc);
        if (st != TUTTI_OK) break;
        tti_sharded_find_short(&acc, desc->plan, theirs);
        for (int b = 0; b < acc.n_buffers; b++)
            sharded->is_short[b] = sharded->is_short[b] && theirs[b];
        tti_accumulation_fini(&acc);
    }
    free(theirs);
    return st;
}

/* Memory for gradients in the wire dtype: on the host in fast mode, on a device in both modes. */
static size_t wire_bytes(const tti_exec_desc *desc, int n_ranks, const tti_accumulation *acc,
                         const tti_sharded *sharded) {
    if (desc->backend->device) return tti_device_rounded_bytes(desc, n_ranks, acc, sharded);
    bool rounds = desc->fast && n_ranks > 1 && desc->wire != TUTTI_F32;
    return rounds ? desc->plan->n_flat * sizeof(uint16_t) : 0;
}

/* The partitions of n_ranks workers. */
typedef struct table_desc {
    const tti_plan *plan;
    int n_ranks, n_owners;
} table_desc;

static tutti_status make_table(const void *user, void **out) {
    const table_desc *d = user;
    tti_share_table *table;
    TTI_TRY(tti_share_table_create(d->plan, d->n_ranks, d->n_owners, &table));
    *out = table;
    return TUTTI_OK;
}

static void release_table(void *table) { tti_share_table_destroy(table); }

/* Workers of one process share one table of partitions. */
static tutti_status init_share(const tti_exec_desc *desc, int rank, int n_ranks, int n_owners,
                               tti_share *share) {
    const table_desc d = {desc->plan, n_ranks, n_owners};
    const tti_common_desc common = {
        .kind = "partitions",
        .key = tti_plan_digest(desc->plan) ^ ((uint64_t)n_ranks << 32 | (uint32_t)n_owners),
        .make = make_table,
        .release = release_table,
        .user = &d};
    const void *table;
    bool is_group = desc->comm && tutti_comm_n_ranks(desc->comm) == n_ranks;
    if (!is_group) return tti_share_init_among(desc->plan, rank, n_ranks, n_owners, share);
    *share = (tti_share){0};
    TTI_TRY(tti_comm_common(desc->comm, &common, &table));
    return tti_share_init_by(desc->plan, rank, table, share);
}

tutti_status tti_exec_init_share(const tti_exec_desc *desc, int rank, int n_ranks,
                                 tti_share *share) {
    if (desc->shares) {
        TTI_TRY(init_share(desc, rank, n_ranks, n_ranks, share));
        tti_share_make_whole(desc->plan, share);
        return TUTTI_OK;
    }
    if (desc->n_ranges > 1)
        return tti_share_init_range(desc->plan, desc->range, desc->n_ranges, share);
    if (!desc->zero) return tti_share_init_among(desc->plan, 0, 1, 1, share);
    int n_owners = desc->n_owners > 0 ? TTI_MIN(desc->n_owners, n_ranks) : n_ranks;
    return init_share(desc, rank, n_ranks, n_owners, share);
}

tutti_status tti_exec_memory_plan(const tti_exec_desc *desc, int rank, int n_ranks,
                                  tti_exec_memory *out) {
    const tti_plan *plan = desc->plan;
    tti_shard_map shard_map;
    int n_in_flight;
    TTI_TRY(tti_exec_shard_map(desc, n_ranks, &shard_map));
    TTI_TRY(count_in_flight(desc, tti_shard_map_n_of(&shard_map, rank), n_ranks, &n_in_flight));
    size_t flat = plan->n_flat * sizeof(float);
    tti_accumulation acc;
    TTI_TRY(tti_planned_accumulation(desc, rank, n_ranks, &acc));
    tti_share share;
    tutti_status st = tti_exec_init_share(desc, rank, n_ranks, &share);
    size_t state = share.n_elems * sizeof(float);
    size_t n_sharing = desc->shares ? (size_t)n_ranks : 1;
    *out = (tti_exec_memory){
        .params = desc->n_ranges > 1 ? state : flat / n_sharing + tti_plan_low_copies_bytes(plan),
        .states = state * (size_t)plan->n_states / n_sharing,
        .ema = desc->ema > 0 ? state / n_sharing : 0,
        .grads = flat * (size_t)acc.n_buffers + wire_bytes(desc, n_ranks, &acc, NULL) +
                 (desc->backend->device ? tti_device_compress_bytes(desc, n_ranks)
                                        : tti_compress_bytes(desc, n_ranks)),
        .arena = TTI_MAX(plan->shard.arena_bytes, plan->eval.arena_bytes) * (size_t)n_in_flight};
    if (!desc->backend->device)
        out->program_values = (plan->shard.const_bytes + plan->shard.result_bytes +
                               plan->eval.const_bytes + plan->eval.result_bytes) *
                              (size_t)n_in_flight;
    if (desc->offload) {
        out->offloaded = 2 * flat + out->states + out->ema; /* parameters and gradients too */
        out->states = out->ema = 0;
    }
    if (st == TUTTI_OK && desc->zero > 1 && n_ranks > 1) {
        /* With sharded gradients and parameters: replaces the unsharded sizes in out. */
        tti_sharded sharded = {.params = desc->zero > 2};
        st = tti_sharded_plan_memory(desc->plan, &sharded);
        if (st == TUTTI_OK) st = find_short(desc, n_ranks, &sharded);
        if (st == TUTTI_OK) {
            if (!sharded.params && desc->ema > 0) sharded.n_averages = desc->plan->n_flat;
            out->grads = tti_sharded_grads(&sharded, &acc, &share, desc->plan) * sizeof(float) +
                         wire_bytes(desc, n_ranks, &acc, &sharded);
            out->gathered = tti_sharded_gathered(&sharded) * sizeof(float);
            if (sharded.params) out->params = share.n_elems * sizeof(float);
        }
        tti_sharded_fini_memory(&sharded);
        free(sharded.is_short);
    }
    if (st == TUTTI_OK && plan->stages) {
        int n_local = tti_shard_map_n_of(&shard_map, rank), n_micro_groups;
        st = tti_planned_micro_groups(desc, n_local, n_ranks, &n_micro_groups);
        if (st == TUTTI_OK)
            st = tti_pipe_slot_bytes(desc->plan, n_micro_groups,
                                     tti_exec_n_compute_threads(desc, n_local), &out->mailbox);
    }
    tti_accumulation_fini(&acc);
    tti_share_fini(&share);
    return st;
}

tutti_status tti_exec_scratch_plan(const tti_exec_desc *desc, int rank, int n_ranks,
                                   size_t *n_bytes) {
    const tti_program *programs[] = {&desc->plan->shard, &desc->plan->eval};
    tti_shard_map shard_map;
    int n_in_flight;
    size_t scratch = 0;
    TTI_TRY(tti_exec_shard_map(desc, n_ranks, &shard_map));
    TTI_TRY(count_in_flight(desc, tti_shard_map_n_of(&shard_map, rank), n_ranks, &n_in_flight));
    for (size_t i = 0; i < TTI_COUNT(programs); i++) {
        tti_prepared *prepared;
        if (!programs[i]->graph) continue;
        TTI_TRY(tti_prepared_create(programs[i], desc->backend, desc->reference, &prepared));
        scratch += tti_prepared_scratch(prepared);
        tti_prepared_destroy(prepared);
    }
    *n_bytes = scratch * (size_t)n_in_flight;
    return TUTTI_OK;
}

/* ---- checks whether a worker fits into the memory of its device, before it allocates any ---- */

/* False for workers that update separately, or together with workers on the host. */
static bool may_have_partitions(const tti_setup *setup) {
    const tti_exec_desc *d = &setup->desc;
    return setup->n_ranks > 1 && !d->server && !d->local && !d->mixed &&
           setup->desc.backend->device->update.complete;
}

/* Computes the memory with sharded gradients, and with sharded parameters too. */
static tutti_status find_parts(const tti_setup *setup, tti_exec_desc desc, tti_device_need *need) {
    bool may = may_have_partitions(setup) && !desc.offload && desc.compression == TTI_COMPRESS_NONE;
    for (int level = TTI_MAX(2, desc.zero + 1); may && level <= 3; level++) {
        tti_exec_memory m;
        desc.zero = level;
        TTI_TRY(tti_exec_memory_plan(&desc, setup->rank, setup->n_ranks, &m));
        need->partitioned[level - 2].params = m.params + m.gathered;
        /* 16-bit gradients become shorter too, but residuals do not. */
        need->partitioned[level - 2].grads = m.grads - TTI_MIN(need->residuals, m.grads - 1);
    }
    return TUTTI_OK;
}

tutti_status tti_exec_check_memory(const tti_exec *x, size_t scratch) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_plan *plan = setup->desc.plan;
    size_t n_now, n_peak, n_free;
    tti_exec_desc desc = setup->desc;
    tti_exec_memory sharded = {0};
    desc.shard_map = &setup->shard_map;
    bool is_sharded = desc.zero > 1 && setup->n_ranks > 1;
    if (is_sharded) TTI_TRY(tti_exec_memory_plan(&desc, setup->rank, setup->n_ranks, &sharded));
    size_t inputs = tti_inputs_sample_bytes(&plan->shard) + tti_inputs_target_bytes(&plan->shard);
    bool is_server_kept =
        setup->desc.server && tti_calls_of(setup->desc.server)->state_owner(setup->desc.server);
    tti_device_need need = {
        .flat = plan->n_flat * sizeof(float),
        .low_copies = tti_plan_low_copies_bytes(plan),
        .state = setup->share.n_elems * sizeof(float),
        .arena =
            TTI_MAX(plan->shard.arena_bytes, plan->eval.arena_bytes) + tti_plan_own_bytes(plan),
        .inputs = TTI_N_INPUTS * (size_t)(setup->last_shard - setup->first_shard) * inputs +
                  tti_device_p2p_bytes(x) + tti_device_tp_bytes(setup),
        .params = is_sharded ? sharded.params + sharded.gathered : 0,
        .grads = sharded.grads,
        .residuals = tti_device_compress_bytes(&desc, setup->n_ranks) +
                     (is_sharded ? 0 : wire_bytes(&desc, setup->n_ranks, &setup->acc, NULL)),
        .scratch = scratch,
        .n_states = setup->desc.server || setup->desc.offload ? 0 : plan->n_states,
        .n_emas = !is_server_kept && !setup->desc.offload && setup->desc.ema > 0,
        .offloads = !setup->desc.server && !setup->divided,
        .n_grads = setup->acc.n_buffers,
        .n_arenas = setup->n_in_flight,
        .n_shards = setup->desc.n_shards,
        .most_shards = TTI_MAX_SHARDS,
        .n_ranks = may_have_partitions(setup) ? setup->n_ranks : 1,
        .rows = tti_inputs_most_rows(&plan->shard)};
    setup->desc.backend->device->memory.get_usage(&n_now, &n_peak, &n_free);
    TTI_TRY(find_parts(setup, desc, &need));
    return tti_device_need_check(&need, n_free);
}
