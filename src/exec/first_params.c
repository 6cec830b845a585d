/* first_params.c - initializes the parameters, block by block.
 *
 * A number depends only on seed, name and position. So each worker, thread or device draws its own
 * part, and nothing is sent. */
#include "exec/first_params.h"
#include "exec/exec.h"

#include <stdlib.h>
#include <string.h>

#include "exec/device/device.h"
#include "exec/worker/worker.h"
#include "ops/init.h"

/* A block of a parameter, and its position among the parameters of this worker. */
typedef struct block {
    const tti_node *param;
    size_t first, last, at;
} block;

/* True if the worker has only its partition of the parameters. */
static bool is_partitioned(const tti_setup *setup, const tti_exec *x) {
    return tti_exec_has_sharded_params(x) || tti_exec_has_range(setup);
}

static int n_blocks(const tti_setup *setup, const tti_exec *x) {
    return is_partitioned(setup, x) ? setup->share.n_blocks : setup->desc.plan->n_updates;
}

static block block_at(const tti_setup *setup, const tti_exec *x, int i) {
    const tti_plan *plan = setup->desc.plan;
    bool has_blocks = is_partitioned(setup, x);
    const tti_update_step *step = &plan->updates[has_blocks ? setup->share.blocks[i].update : i];
    const tti_slot *slot = &plan->slots[step->slot];
    size_t first = step->first - slot->first;
    size_t at = has_blocks ? setup->share.blocks[i].state : step->first;
    return (block){slot->param, first, first + step->n_elems, at};
}

/* ---- on threads of the host ---- */

typedef struct drawing {
    const tti_exec *x;
    int n_threads;
} drawing;

static void draw_compute_thread(int compute_thread, void *arg) {
    const drawing *d = arg;
    const tti_exec *x = d->x;
    const tti_setup *setup = tti_setup_of(x);
    bool by_all = setup->desc.shared_params &&
                  !is_partitioned(setup, x); /* false: workers write only their own blocks */
    for (int i = compute_thread; i < n_blocks(setup, x); i += d->n_threads) {
        if (by_all && !setup->share.is_own[i]) continue;
        block b = block_at(setup, x, i);
        tti_init_param_range(b.param, setup->desc.seed, b.first, b.last,
                             tti_exec_array(x, TTI_STATE_PARAMS) + b.at);
    }
}

/* With shared parameters only this worker's blocks are copied, because other workers may not have
 * drawn theirs. */
static void begin_averages(const tti_setup *setup, const tti_exec *x) {
    for (int i = 0; i < setup->share.n_blocks; i++) {
        const tti_update_step *step = &setup->desc.plan->updates[setup->share.blocks[i].update];
        memcpy(tti_exec_array(x, TTI_STATE_EMA) + step->first,
               tti_exec_array(x, TTI_STATE_PARAMS) + step->first,
               step->n_elems * sizeof *tti_exec_array(x, TTI_STATE_EMA));
    }
}

/* Starting a thread costs more than drawing fewer blocks. */
enum { BLOCKS_PER_THREAD = 8 };

static tutti_status draw_here(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    int n_useful = TTI_MIN(n_blocks(setup, x) / BLOCKS_PER_THREAD, TTI_MAX_COMPUTE_THREADS);
    drawing d = {x, TTI_MAX(1, TTI_MIN(setup->n_threads, n_useful))};
    tti_compute_threads *compute_threads;
    TTI_TRY(tti_compute_threads_create(d.n_threads, NULL, NULL, &compute_threads));
    tti_compute_threads_run(compute_threads, draw_compute_thread, &d);
    tti_compute_threads_destroy(compute_threads);
    if (tti_exec_array(x, TTI_STATE_EMA) && is_partitioned(setup, x))
        memcpy(tti_exec_array(x, TTI_STATE_EMA), tti_exec_array(x, TTI_STATE_PARAMS),
               setup->share.n_elems * sizeof *tti_exec_array(x, TTI_STATE_EMA));
    else if (tti_exec_array(x, TTI_STATE_EMA) && setup->desc.shared_params)
        begin_averages(setup, x);
    else if (tti_exec_array(x, TTI_STATE_EMA))
        tti_exec_store(x, TTI_STATE_EMA, 0, setup->desc.plan->n_flat,
                       tti_exec_array(x, TTI_STATE_PARAMS));
    return TUTTI_OK;
}

/* ---- on the device ---- */

enum { MAX_DRAWS = 4096 /* parameters per copy to the device */ };

static tutti_status copy_averages(const tti_setup *setup, const tti_exec *x) {
    const tti_device_ops *ops = setup->desc.backend->device;
    tti_share_run run;
    if (tti_exec_has_sharded_params(x))
        return ops->queues.copy(TTI_QUEUE_COMPUTE, tti_exec_array(x, TTI_STATE_EMA),
                                tti_exec_array(x, TTI_STATE_PARAMS),
                                setup->share.n_elems * sizeof *tti_exec_array(x, TTI_STATE_EMA));
    for (int i = 0; tti_share_next(&setup->share, setup->desc.plan, &i, &run);)
        TTI_TRY(ops->queues.copy(TTI_QUEUE_COMPUTE, tti_exec_array(x, TTI_STATE_EMA) + run.state,
                                 tti_exec_array(x, TTI_STATE_PARAMS) + run.first,
                                 run.n_elems * sizeof *tti_exec_array(x, TTI_STATE_EMA)));
    return TUTTI_OK;
}

static tutti_status draw_there(const tti_setup *setup, const tti_exec *x) {
    tti_draws *draws = malloc(MAX_DRAWS * sizeof *draws);
    if (!draws) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    const tti_device_ops *ops = setup->desc.backend->device;
    tutti_status st = TUTTI_OK;
    int n = 0;
    for (int i = 0; i < n_blocks(setup, x); i++) {
        block b = block_at(setup, x, i);
        size_t first = b.first;
        while (tti_init_next(b.param, setup->desc.seed, &first, b.last, &draws[n])) {
            draws[n].at = b.at + (first - draws[n].n_elems - b.first);
            if (++n < MAX_DRAWS) continue;
            TTI_TRY_GOTO(ops->step.draw(draws, n, tti_exec_array(x, TTI_STATE_PARAMS)), cleanup);
            n = 0;
        }
    }
    if (n > 0) st = ops->step.draw(draws, n, tti_exec_array(x, TTI_STATE_PARAMS));
cleanup:
    free(draws);
    if (st == TUTTI_OK && tti_exec_array(x, TTI_STATE_EMA)) st = copy_averages(setup, x);
    return st == TUTTI_OK ? setup->desc.backend->device->queues.sync() : st;
}

tutti_status tti_exec_first_params(tti_exec *x) {
    tti_offload *offload = tti_offload_of(x);
    if (offload) return tti_offload_put_params(offload);
    return tti_device_of(x) ? draw_there(tti_setup_of(x), x) : draw_here(x);
}
