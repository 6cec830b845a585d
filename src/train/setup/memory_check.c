/* memory_check.c - compares the memory that the executor will allocate with the available memory.
 * The operating system grants memory that it does not have and later kills the process that uses
 * it, so a run that cannot fit must be refused before it begins.
 */
#include "train/setup/memory_check.h"

#include <string.h>

#include "exec/exec.h"
#include "train/setup/worker_exec.h"

/* Memory in bytes; params includes averages and copies. */
typedef struct need {
    uint64_t params, states, grads, activations, scratch, batches;
    int n_workers;
} need;

/* A lower bound for the program, its libraries and their caches, which nothing else counts. */
static const uint64_t room_of_program = (uint64_t)32 << 20;

/* Extra room under a limit on the address space: kernels are compiled while workers allocate, and
 * some libraries crash when an allocation fails. */
static const uint64_t room_of_kernels = (uint64_t)96 << 20;

/* Preparing kernels to learn their scratch memory takes time, so it is done only if the rest needs
 * more than this fraction of the available memory.  Convolutions without oneDNN have the largest
 * scratch memory: up to half of the rest. */
static const double far_from_full = 0.125;

/* Stacks of the loader's threads, of the threads that reduce and write, and of the worker itself.
 */
static uint64_t room_of_threads(const tti_blueprint *b, int n_workers) {
    enum { STACK_BYTES = 8 << 20, THREADS_OF_WORKER = 2 };
    return (uint64_t)n_workers * (uint64_t)(b->config.data.threads + THREADS_OF_WORKER) *
           STACK_BYTES;
}

static uint64_t total(const need *n) {
    return n->params + n->states + n->grads + n->activations + n->scratch + n->batches;
}

/* Bytes of the batches of one split that n_local workers hold at a time. */
static double batches_of(const tti_blueprint *b, const tutti_dataset *ds, int n_local) {
    const tutti_dataset_info *info = tutti_dataset_get_info(ds);
    double of_sample =
        (double)tutti_shape_n_elems(&info->x.shape) * (double)tutti_dtype_bytes(info->x.dtype) +
        (double)tutti_shape_n_elems(&info->y.shape) * (double)sizeof(int32_t);
    int64_t rows = b->rows_per_shard * b->n_shards;
    double share = tti_job_is_async(&b->config) ? n_local : (double)n_local / b->n_workers;
    int64_t n = b->config.data.threads > 0 ? TTI_MAX(b->config.data.prefetch, 1) + 1 : 1;
    int64_t n_there =
        (info->n_samples + rows - 1) / rows; /* memory is used only when it is filled */
    return of_sample * (double)rows * share * (double)TTI_MIN(n, n_there);
}

/* Bytes of the batches of one process.  Those of training stay allocated while the test split is
 * evaluated. */
static uint64_t bytes_of_batches(const tti_blueprint *b, int n_local) {
    return (uint64_t)(batches_of(b, b->train, n_local) + batches_of(b, b->test, n_local));
}

static bool is_on_host(const tti_blueprint *b, int local_rank) {
    return tti_devices_place(&b->places, local_rank) == TTI_ON_HOST;
}

/* Describes a worker; false: its plan belongs to another process. */
static bool describe(const tti_blueprint *all, int rank, int local_rank, int n_local,
                     const tti_blueprint **b, tti_mesh_at *at, tti_exec_desc *desc) {
    tti_core_share share;
    *b = all->on_host && is_on_host(all, local_rank) ? all->on_host : all;
    *desc = tti_worker_exec_desc(*b);
    tti_worker_cores(*b, local_rank, n_local, &share);
    desc->n_compute_threads = share.n_threads;
    *at = tti_mesh_at_rank(&(*b)->mesh, rank);
    if ((*b)->n_model_ranks > 0) desc->plan = (*b)->plans[tti_mesh_model_rank(&(*b)->mesh, at)];
    return desc->plan != NULL;
}

/* In an elastic run, a worker's part of the mirror, of which each host has a complete one. */
static uint64_t mirrored(const tti_blueprint *b, int n_workers) {
    const tti_job_config *c = &b->config;
    bool has = c->parallel.min_workers > 0 && tti_worker_has_partitions(b) && c->parallel.mirror;
    size_t n_arrays = 1 + (size_t)b->plan->n_states + (c->train.ema > 0);
    enum { N_VERSIONS = 2 };
    size_t n_bytes = N_VERSIONS * n_arrays * b->plan->n_flat * sizeof(float);
    return has ? n_bytes / (uint64_t)n_workers : 0;
}

/* Adds the need of one worker. scratch: include the scratch memory of kernels. */
static tutti_status add_worker(const tti_blueprint *all, int rank, int local_rank, int n_local,
                               bool scratch, need *out) {
    const tti_blueprint *b;
    tti_exec_desc desc;
    tti_exec_memory m;
    tti_mesh_at at;
    size_t n_scratch = 0;
    if (!describe(all, rank, local_rank, n_local, &b, &at, &desc)) return TUTTI_OK;
    bool loose = tti_job_is_async(&b->config); /* asynchronous: each worker loads whole batches */
    int data = loose ? 0 : at.data, n_data = loose ? 1 : b->mesh.data;
    TTI_TRY(tti_exec_memory_plan(&desc, data, n_data, &m));
    if (desc.backend
            ->device) { /* the device checks its own memory; the following is in host memory */
        out->states += m.offloaded;
        out->activations += m.mailbox;
        return TUTTI_OK;
    }
    if (scratch) TTI_TRY(tti_exec_scratch_plan(&desc, data, n_data, &n_scratch));
    out->params += m.params + m.ema + m.gathered + m.mailbox;
    out->states += m.states + mirrored(b, TTI_MAX(TTI_MIN(n_local, n_data), 1));
    out->grads += m.grads;
    out->activations += m.arena;
    out->scratch += m.program_values + n_scratch;
    return TUTTI_OK;
}

/* Adds the need of workers first .. first+n-1 of a process, on a machine with n_local workers. */
static tutti_status find_need(const tti_blueprint *b, int first, int n, int n_local, bool scratch,
                              need *out) {
    *out = (need){.n_workers = n, .batches = bytes_of_batches(b, n)};
    for (int i = 0; i < n; i++)
        TTI_TRY(add_worker(b, first + i, (first + i) % n_local, n_local, scratch, out));
    return TUTTI_OK;
}

static need times(const need *each, uint64_t n) {
    return (need){.params = each->params * n,
                  .states = each->states * n,
                  .grads = each->grads * n,
                  .activations = each->activations * n,
                  .scratch = each->scratch * n,
                  .batches = each->batches * n,
                  .n_workers = each->n_workers * (int)n};
}

/* The number of workers of this machine that need as much as this one; in a mixed run only workers
 * of the same kind. */
static int n_alike(const tti_blueprint *b, int rank, int n_local) {
    int n = 0;
    for (int i = 0; i < n_local; i++) n += is_on_host(b, i) == is_on_host(b, rank % n_local);
    return n;
}

static double gb(uint64_t n_bytes) { return (double)n_bytes * 1e-9; }

static tutti_status refuse(const tti_blueprint *b, const need *n, uint64_t beside, uint64_t room,
                           const char *limit) {
    bool large = n->activations + n->scratch + n->batches > n->params + n->states + n->grads;
    return tti_fail(
        TUTTI_E_NOMEM,
        "train: %d worker%s would take at least %.3g GB of memory (parameters %.3g, optimizer "
        "state %.3g, gradients %.3g, activations %.3g, kernels %.3g, batches %.3g, program %.3g), "
        "and %s leaves %.3g GB; %s",
        n->n_workers, n->n_workers == 1 ? "" : "s", gb(total(n) + beside), gb(n->params),
        gb(n->states), gb(n->grads), gb(n->activations), gb(n->scratch), gb(n->batches), gb(beside),
        limit, gb(room),
        !large ? "raise the limit, use fewer workers, or parallel.zero=1 or 2 with several hosts"
        : b->config.train.batch > b->n_shards
            ? "give a smaller train.batch, more parallel.shards, train.recompute=block or "
              "train.precision=bf16"
            : "give train.recompute=block, train.precision=bf16 or a smaller model");
}

/* Checks the memory; includes scratch memory if the result may depend on it. */
static tutti_status check(const tti_blueprint *b, int rank, int n_local,
                          const tti_memory_room *room, bool scratch, bool *is_near) {
    bool all_here = rank < 0;
    need own;
    TTI_TRY(find_need(b, all_here ? 0 : rank, all_here ? n_local : 1, n_local, scratch, &own));
    need here = times(&own, all_here ? 1 : (uint64_t)n_alike(b, rank, n_local));
    if (total(&here) + room_of_program > room->n_bytes)
        return refuse(b, &here, room_of_program, room->n_bytes, room->limit);
    uint64_t space = room_of_kernels + room_of_threads(b, own.n_workers);
    if (room->own < total(&own) + space)
        return refuse(b, &own, space, room->own,
                      "the limit of this process's address space (ulimit -v)");
    *is_near = (double)total(&here) > far_from_full * (double)room->n_bytes ||
               (double)total(&own) > far_from_full * (double)room->own;
    return TUTTI_OK;
}

tutti_status tti_memory_check(const tti_blueprint *b, int rank, int n_local,
                              const tti_memory_room *room) {
    bool is_near;
    TTI_TRY(check(b, rank, n_local, room, false, &is_near));
    return is_near ? check(b, rank, n_local, room, true, &is_near) : TUTTI_OK;
}
