/* first_params.c - initializes the parameters, block by block.
 *
 * A number depends on seed, name and position alone, so each worker, thread or device draws its own
 * part, and nothing is sent. */
#include "exec/first_params.h"
#include "exec/device/device.h"

#include <stdlib.h>
#include <string.h>

#include "exec/worker/worker.h"
#include "ops/init.h"

/* Part of a parameter, and its place among the parameters of this worker. */
typedef struct block {
    const tti_node *param;
    size_t first, last, at;
} block;

/* Only own parameters are sharded. */
static bool is_in_parts(const tti_exec *x) {
    return tti_exec_has_sharded_params(x) || tti_exec_has_range(x);
}

static int n_blocks(const tti_exec *x) {
    return is_in_parts(x) ? x->share.n_blocks : x->desc.plan->n_updates;
}

static block block_at(const tti_exec *x, int i) {
    const tti_plan *plan = x->desc.plan;
    bool in_parts = is_in_parts(x);
    const tti_update_step *step = &plan->updates[in_parts ? x->share.blocks[i].update : i];
    const tti_slot *slot = &plan->slots[step->slot];
    size_t first = step->first - slot->first;
    size_t at = in_parts ? x->share.blocks[i].state : step->first;
    return (block){slot->param, first, first + step->n_elems, at};
}

/* ---- by threads of the host ---- */

typedef struct drawing {
    const tti_exec *x;
    int n_threads;
} drawing;

static void draw_compute_thread(int compute_thread, void *arg) {
    const drawing *d = arg;
    const tti_exec *x = d->x;
    bool by_all = x->desc.shared_params && !is_in_parts(x); /* workers: each has its own blocks */
    for (int i = compute_thread; i < n_blocks(x); i += d->n_threads) {
        if (by_all && !x->share.is_own[i]) continue;
        block b = block_at(x, i);
        tti_init_param_range(b.param, x->desc.seed, b.first, b.last, x->params + b.at);
    }
}

/* With shared parameters only the own blocks; other workers may not have begun. */
static void begin_averages(tti_exec *x) {
    for (int i = 0; i < x->share.n_blocks; i++) {
        const tti_update_step *step = &x->desc.plan->updates[x->share.blocks[i].update];
        memcpy(x->ema + step->first, x->params + step->first, step->n_elems * sizeof *x->ema);
    }
}

static tutti_status draw_here(tti_exec *x) {
    drawing d = {x, TTI_MAX(1, TTI_MIN(x->n_threads, TTI_MAX_COMPUTE_THREADS))};
    tti_compute_threads *compute_threads;
    TTI_TRY(tti_compute_threads_create(d.n_threads, NULL, NULL, &compute_threads));
    tti_compute_threads_run(compute_threads, draw_compute_thread, &d);
    tti_compute_threads_destroy(compute_threads);
    if (x->ema && is_in_parts(x))
        memcpy(x->ema, x->params, x->share.n_elems * sizeof *x->ema);
    else if (x->ema && x->desc.shared_params)
        begin_averages(x);
    else if (x->ema)
        tti_exec_store(x, TTI_STATE_EMA, 0, x->desc.plan->n_flat, x->params);
    return TUTTI_OK;
}

/* ---- by the device ---- */

enum { MOST_DRAWS = 4096 /* sent to the device at once */ };

static tutti_status draw_blocks(const tti_exec *x, tti_draws *draws) {
    const tti_device_ops *ops = x->desc.backend->device;
    int n = 0;
    for (int i = 0; i < n_blocks(x); i++) {
        block b = block_at(x, i);
        size_t first = b.first;
        while (tti_init_next(b.param, x->desc.seed, &first, b.last, &draws[n])) {
            draws[n].at = b.at + (first - draws[n].n_elems - b.first);
            if (++n < MOST_DRAWS) continue;
            TTI_TRY(ops->step.draw(draws, n, x->params));
            n = 0;
        }
    }
    return n > 0 ? ops->step.draw(draws, n, x->params) : TUTTI_OK;
}

static tutti_status copy_averages(const tti_exec *x) {
    const tti_device_ops *ops = x->desc.backend->device;
    tti_share_run run;
    if (tti_exec_has_sharded_params(x))
        return ops->queues.copy(TTI_QUEUE_COMPUTE, x->ema, x->params,
                                x->share.n_elems * sizeof *x->ema);
    for (int i = 0; tti_share_next(&x->share, x->desc.plan, &i, &run);)
        TTI_TRY(ops->queues.copy(TTI_QUEUE_COMPUTE, x->ema + run.state, x->params + run.first,
                                 run.n_elems * sizeof *x->ema));
    return TUTTI_OK;
}

static tutti_status draw_there(tti_exec *x) {
    tti_draws *draws = malloc(MOST_DRAWS * sizeof *draws);
    if (!draws) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    tutti_status st = draw_blocks(x, draws);
    free(draws);
    if (st == TUTTI_OK && x->ema) st = copy_averages(x);
    return st == TUTTI_OK ? x->desc.backend->device->queues.sync() : st;
}

tutti_status tti_exec_first_params(tti_exec *x) {
    if (x->offload) return tti_offload_put_params(x->offload);
    return x->device ? draw_there(x) : draw_here(x);
}
