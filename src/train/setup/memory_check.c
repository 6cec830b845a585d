/* memory_check.c - compares the memory that the executor will allocate with the available memory.
 *
 * The kernel grants memory that it does not have and later kills a process that uses it, so a run
 * that cannot fit must be refused before it begins. */
#include "train/setup/memory_check.h"

#include <string.h>

#include "exec/exec.h"
#include "train/setup/worker_exec.h"

/* Bytes; params with averages and copies. */
typedef struct need {
    uint64_t params, states, grads, activations, batches;
    int n_workers;
} need;

/* Minimum for the program, its libraries and their caches, in addition to what is counted. */
static const uint64_t room_of_program = (uint64_t)32 << 20;

/* Extra room under a limit on the address space: kernels are compiled while workers allocate, and
 * some libraries crash when an allocation fails. */
static const uint64_t room_of_kernels = (uint64_t)96 << 20;

/* Stacks of the loader's threads, of those that add and write, and of a worker itself. */
static uint64_t room_of_threads(const tti_blueprint *b, int n_workers) {
    enum { STACK_BYTES = 8 << 20, THREADS_OF_WORKER = 2 };
    return (uint64_t)n_workers * (uint64_t)(b->config.data.threads + THREADS_OF_WORKER) *
           STACK_BYTES;
}

static uint64_t total(const need *n) {
    return n->params + n->states + n->grads + n->activations + n->batches;
}

/* Batches of one process, made ahead for n_local of the run's workers. */
static uint64_t bytes_of_batches(const tti_blueprint *b, int n_local) {
    const tutti_dataset_info *info = tutti_dataset_get_info(b->train);
    double of_sample =
        (double)tutti_shape_n_elems(&info->x.shape) * (double)tutti_dtype_bytes(info->x.dtype);
    double rows = (double)b->rows_per_shard * b->n_shards;
    double share = tti_job_is_async(&b->config) ? n_local : (double)n_local / b->n_workers;
    return (uint64_t)(of_sample * rows * share * (double)(b->config.data.prefetch + 1));
}

static tutti_status add_worker(const tti_blueprint *b, tti_exec_desc *desc, int rank, need *out) {
    tti_exec_memory m;
    tti_mesh_at at = tti_mesh_at_rank(&b->mesh, rank);
    bool loose = tti_job_is_async(&b->config); /* has whole batches */
    if (b->n_parts > 0) {
        desc->plan = b->parts[tti_mesh_model_rank(&b->mesh, &at)];
        if (!desc->plan) return TUTTI_OK; /* of another process */
    }
    TTI_TRY(tti_exec_memory_plan(desc, loose ? 0 : at.data, loose ? 1 : b->mesh.data, &m));
    if (desc->backend
            ->device) { /* a device reports its own lack of memory; these buffers are on its host */
        out->states += m.offloaded;
        out->activations += m.mail;
        return TUTTI_OK;
    }
    out->params += m.params + m.ema + m.gathered + m.mail;
    out->states += m.states;
    out->grads += m.grads;
    out->activations += m.arena;
    return TUTTI_OK;
}

/* Workers first .. first+n-1 of a process, on a machine with n_local workers. */
static tutti_status find_need(const tti_blueprint *b, int first, int n, int n_local, need *out) {
    tti_exec_desc desc = tti_worker_exec_desc(b);
    *out = (need){.n_workers = n, .batches = bytes_of_batches(b, n)};
    if (b->devices.mixed) return TUTTI_OK; /* which worker computes where is not known yet */
    for (int i = 0; i < n; i++) {
        tti_core_share share;
        tti_worker_cores(b, i, n_local, &share);
        desc.n_lanes = share.n_threads;
        TTI_TRY(add_worker(b, &desc, first + i, out));
    }
    return TUTTI_OK;
}

static need times(const need *each, uint64_t n) {
    return (need){.params = each->params * n,
                  .states = each->states * n,
                  .grads = each->grads * n,
                  .activations = each->activations * n,
                  .batches = each->batches * n,
                  .n_workers = each->n_workers * (int)n};
}

static double gb(uint64_t n_bytes) { return (double)n_bytes * 1e-9; }

static tutti_status refuse(const tti_blueprint *b, const need *n, uint64_t beside, uint64_t room,
                           const char *limit) {
    bool large = n->activations + n->batches > n->params + n->states + n->grads;
    return tti_fail(
        TUTTI_E_NOMEM,
        "train: %d worker%s would take at least %.3g GB of memory (parameters %.3g, optimizer "
        "state "
        "%.3g, gradients %.3g, activations %.3g, batches %.3g, program %.3g), and %s leaves %.3g "
        "GB; %s",
        n->n_workers, n->n_workers == 1 ? "" : "s", gb(total(n) + beside), gb(n->params),
        gb(n->states), gb(n->grads), gb(n->activations), gb(n->batches), gb(beside), limit,
        gb(room),
        !large ? "raise the limit, use fewer workers, or parallel.zero=1 or 2 with several hosts"
        : b->config.train.batch > b->n_shards
            ? "give a smaller train.batch, more parallel.shards, train.recompute=block or "
              "train.precision=bf16"
            : "give train.recompute=block, train.precision=bf16 or a smaller model");
}

tutti_status tti_memory_check(const tti_blueprint *b, int rank, int n_local,
                              const tti_memory_room *room) {
    bool all_here = rank < 0;
    need own;
    TTI_TRY(find_need(b, all_here ? 0 : rank, all_here ? n_local : 1, n_local, &own));
    need here = times(&own, all_here ? 1 : (uint64_t)n_local);
    if (total(&here) + room_of_program > room->n_bytes)
        return refuse(b, &here, room_of_program, room->n_bytes, room->limit);
    uint64_t space = room_of_kernels + room_of_threads(b, own.n_workers);
    if (room->own < total(&own) + space)
        return refuse(b, &own, space, room->own,
                      "the limit of this process's address space (ulimit -v)");
    return TUTTI_OK;
}
