/* apply.c - the update program: clip by the global norm, optimizer, hash, on all compute threads.
 *
 * The plan fixes the blocks and the order of sums over them, so neither threads nor workers change
 * a bit; nor does it matter which worker updates a block: with zero each updates its own, then all
 * gather all parameters; with shared parameters each updates its own, then all have them. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "exec/worker/worker.h"

/* The own blocks that a compute thread takes. */
static tti_range range_of(const tti_setup *setup, int compute_thread) {
    return tti_compute_thread_range((size_t)setup->share.n_blocks, 1, compute_thread,
                                    setup->desc.n_compute_threads);
}

static const tti_update_step *step_of(const tti_setup *setup, const tti_own_block *own) {
    return &setup->desc.plan->updates[own->update];
}

static void square_lane(int compute_thread, void *arg) {
    tti_exec *x = arg;
    const tti_setup *setup = tti_setup_of(x);
    const tti_plan *plan = setup->desc.plan;
    tti_range mine = range_of(setup, compute_thread);
    for (size_t i = mine.first; i < mine.last; i++) {
        const tti_own_block *own = &setup->share.blocks[i];
        const tti_update_step *step = step_of(setup, own);
        bool counts = !plan->slots[step->slot].buffer && step->node &&
                      tti_divided_counts(setup->divided, step->slot);
        tti_update_of(x)->partials[own->update] =
            counts ? setup->desc.backend->sum_squares(tti_own_grads(x, own), step->n_elems) : 0;
    }
}

/* Norm of the mean gradient. */
static tutti_status global_norm(tti_exec *x, double inv_count, double *norm) {
    const tti_setup *setup = tti_setup_of(x);
    tti_compute_threads_run(tti_threads_of(x)->pool, square_lane, x);
    TTI_TRY(tti_zero_join(setup, tti_update_of(x)->partials, 1));
    double sum = tti_divided_own_blocks(x);
    TTI_TRY(tti_divided_add(setup->divided, &sum));
    *norm = sqrt(sum) * inv_count;
    return TUTTI_OK;
}

/* Pointers of a block as the update ops want them: w, states, g, hyper, norms. */
static int block_inputs(tti_exec *x, const tti_own_block *own, const tti_node *node, float *hyper,
                        float *norms, void **in) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_update_step *step = step_of(setup, own);
    bool buffer = setup->desc.plan->slots[step->slot].buffer;
    int n = 0, n_states = buffer ? 0 : setup->desc.plan->n_states;
    in[n++] = tti_own_params(x, own);
    for (int k = 0; k < n_states; k++) in[n++] = tti_arrays_of(x)->states[k] + own->state;
    in[n++] = tti_own_grads(x, own);
    in[n++] = hyper;
    if (tti_takes_norms(node->op)) in[n++] = norms;
    return n_states + 1;
}

static void block_hyper(const tti_setup *setup, const tti_update *update,
                        const tti_update_step *step, float *hyper) {
    memcpy(hyper, update->hyper, sizeof update->hyper);
    hyper[0] = (float)(update->hyper[0] * setup->desc.plan->slots[step->slot].rule.lr_factor);
}

static tutti_status run_block(tti_exec *x, tti_compute_thread *compute_thread,
                              const tti_own_block *own, const tti_node *node, void **outs) {
    const tti_setup *setup = tti_setup_of(x);
    tti_update *update = tti_update_of(x);
    const tti_update_step *step = step_of(setup, own);
    const tti_bound_update *bound = &compute_thread->updates[node->id];
    const double *norm = &update->norms[2 * step->slot];
    float hyper[TTI_N_HYPER], norms[2] = {(float)norm[0], (float)norm[1]};
    void *in[TTI_MAX_IN], *out[TTI_MAX_OUT];
    block_hyper(setup, update, step, hyper);
    int n_out = block_inputs(x, own, node, hyper, norms, in);
    for (int k = 0; k < n_out; k++) out[k] = outs ? outs[k] : in[k];
    tti_run run = {.seed = setup->desc.seed};
    tti_kargs args = {.node = node, .in = in, .out = out, .scratch = bound->scratch, .run = &run};
    return bound->kernel->run(bound->state, &args);
}

/* ---- norms of whole parameters, for optimizers that scale by them ---- */

/* Squares of a block of w, and of the optimizer's step for it, or of its gradient. */
static tutti_status square_block(tti_exec *x, tti_compute_thread *compute_thread,
                                 const tti_own_block *own, double *squares) {
    const tti_setup *setup = tti_setup_of(x);
    tti_update *update = tti_update_of(x);
    const tti_update_step *step = step_of(setup, own);
    squares[0] = squares[1] = 0;
    if (!step->node || !tti_takes_norms(step->node->op)) return TUTTI_OK;
    const float *direction = tti_own_grads(x, own);
    double scale = (double)update->hyper[1] * update->hyper[2];
    float block[TTI_UPDATE_BLOCK];
    if (step->direction) {
        TTI_TRY(run_block(x, compute_thread, own, step->direction,
                          (void *[]){block, NULL, NULL, NULL}));
        direction = block;
        scale = 1;
    }
    squares[0] = setup->desc.backend->sum_squares(tti_own_params(x, own), step->n_elems);
    squares[1] = setup->desc.backend->sum_squares(direction, step->n_elems) * scale * scale;
    return TUTTI_OK;
}

static void norm_compute_thread(int index, void *arg) {
    tti_exec *x = arg;
    const tti_setup *setup = tti_setup_of(x);
    tti_thread_set *threads = tti_threads_of(x);
    tti_range mine = range_of(setup, index);
    for (size_t i = mine.first; i < mine.last; i++) {
        const tti_own_block *own = &setup->share.blocks[i];
        tutti_status st = square_block(x, &threads->thread[index], own,
                                       &tti_update_of(x)->partials[2 * own->update]);
        if (st != TUTTI_OK) tti_exec_compute_thread_failed(threads, &threads->thread[index], st);
    }
}

static tutti_status find_norms(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_update *update = tti_update_of(x);
    const tti_plan *plan = setup->desc.plan;
    tti_compute_threads_run(tti_threads_of(x)->pool, norm_compute_thread, x);
    TTI_TRY(tti_zero_join(setup, update->partials, 2));
    tti_divided_own_slots(x);
    TTI_TRY(tti_divided_squares(setup->divided, update->norms));
    for (int i = 0; i < 2 * plan->n_slots; i++) update->norms[i] = sqrt(update->norms[i]);
    return TUTTI_OK;
}

/* ---- the update ---- */

/* Processes the sum of gradients before the optimizer reads it. */
static void prepare_gradient(tti_exec *x, const tti_own_block *own) {
    const tti_setup *setup = tti_setup_of(x);
    tti_update *update = tti_update_of(x);
    const tti_update_step *step = step_of(setup, own);
    const tti_slot *slot = &setup->desc.plan->slots[step->slot];
    float *g = tti_own_grads(x, own);
    const float *w = tti_own_params(x, own);
    float count =
        update->hyper[1] > 0 ? 1 / update->hyper[1] : 0; /* of nothing there is no gradient */
    float l1 = (float)setup->desc.l1 * count;
    float most = (float)setup->desc.clip_value * count;
    if (slot->buffer) return;
    for (size_t i = 0; l1 > 0 && slot->decay && i < step->n_elems; i++)
        g[i] += w[i] > 0 ? l1 : w[i] < 0 ? -l1 : 0;
    for (size_t i = 0; most > 0 && i < step->n_elems; i++)
        g[i] = g[i] > most ? most : g[i] < -most ? -most : g[i];
}

static void prepare_compute_thread(int index, void *arg) {
    tti_exec *x = arg;
    const tti_setup *setup = tti_setup_of(x);
    tti_range mine = range_of(setup, index);
    for (size_t i = mine.first; i < mine.last; i++) prepare_gradient(x, &setup->share.blocks[i]);
}

/* Running statistics are not averaged over steps: they are copied. */
static void average_block(tti_exec *x, const tti_own_block *own) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_update_step *step = step_of(setup, own);
    float decay = setup->desc.plan->slots[step->slot].buffer ? 0 : (float)setup->desc.ema;
    float *ema = tti_arrays_of(x)->ema + own->state;
    const float *w = tti_own_params(x, own);
    for (size_t i = 0; i < step->n_elems; i++) ema[i] = decay * ema[i] + (1 - decay) * w[i];
}

static uint64_t hash_block(const tti_setup *setup, const tti_update_step *step, const float *w) {
    return setup->desc.backend->hash(w, step->n_elems, step->first);
}

/* If no other worker has it for comparison, it must be as the last update left it. */
static tutti_status check_block(const tti_exec *x, size_t i) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_update *update = tti_update_of(x);
    const tti_own_block *own = &setup->share.blocks[i];
    const tti_update_step *step = step_of(setup, own);
    if (!update->has_block_hashes ||
        hash_block(setup, step, tti_own_params(x, own)) == update->block_hashes[i])
        return TUTTI_OK;
    return tti_fail(TUTTI_E_MISMATCH,
                    "step %llu: parameter '%s' changed in memory after the last update; a fault of "
                    "the memory is likely",
                    (unsigned long long)tti_tally_of(x)->begun.step,
                    setup->desc.plan->slots[step->slot].param->name);
}

static tutti_status update_block(tti_exec *x, tti_compute_thread *compute_thread, size_t i) {
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    tti_update *update = tti_update_of(x);
    const tti_own_block *own = &setup->share.blocks[i];
    const tti_update_step *step = step_of(setup, own);
    TTI_TRY(check_block(x, i));
    if (step->node) TTI_TRY(run_block(x, compute_thread, own, step->node, NULL));
    if (arrays->ema) average_block(x, own);
    uint64_t hash = hash_block(setup, step, tti_own_params(x, own));
    compute_thread->hash += hash;
    if (update->block_hashes) update->block_hashes[i] = hash;
    if (tti_exec_has_parts(setup) &&
        !arrays->sharded) /* where the others read it: its gradient did its work */
        memcpy(tti_exec_grads(x) + step->first, arrays->params + step->first,
               step->n_elems * sizeof(float));
    return TUTTI_OK;
}

static void update_lane(int index, void *arg) {
    tti_exec *x = arg;
    tti_thread_set *threads = tti_threads_of(x);
    tti_update *update = tti_update_of(x);
    tti_compute_thread *compute_thread = &threads->thread[index];
    size_t first = update->stretch.first, n = update->stretch.last - first;
    tti_range mine = tti_compute_thread_range(n, 1, index, tti_setup_of(x)->desc.n_compute_threads);
    for (size_t i = first + mine.first; i < first + mine.last; i++) {
        tutti_status st = update_block(x, compute_thread, i);
        if (st != TUTTI_OK) tti_exec_compute_thread_failed(threads, compute_thread, st);
    }
}

/* Behind the last own block that lies in the bucket of block first. */
static size_t end_of_stretch(const tti_setup *setup, size_t first) {
    const tti_plan *plan = setup->desc.plan;
    int bucket = tti_plan_find_bucket(plan, step_of(setup, &setup->share.blocks[first])->first);
    size_t end = plan->buckets[bucket].first + plan->buckets[bucket].n_elems, i = first;
    while (i < (size_t)setup->share.n_blocks &&
           step_of(setup, &setup->share.blocks[i])->first < end)
        i++;
    return i;
}

/* The elements of the stretch, for updated or awaited. */
static tutti_status tell(const tti_setup *setup, const tti_update *update,
                         tutti_status (*whom)(void *, size_t, size_t)) {
    const tti_update_step *from = step_of(setup, &setup->share.blocks[update->stretch.first]);
    const tti_update_step *to = step_of(setup, &setup->share.blocks[update->stretch.last - 1]);
    return whom ? whom(update->updated_user, from->first, to->first + to->n_elems) : TUTTI_OK;
}

/* Updates all own blocks; bucket by bucket, if a consumer overlaps with this loop. */
static tutti_status update_own(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_thread_set *threads = tti_threads_of(x);
    tti_update *update = tti_update_of(x);
    bool told = update->updated && !tti_exec_divides(setup);
    size_t n = (size_t)setup->share.n_blocks;
    for (int i = 0; i < setup->desc.n_compute_threads; i++) threads->thread[i].hash = 0;
    for (size_t first = 0; first < n; first = update->stretch.last) {
        update->stretch = (tti_range){first, told ? end_of_stretch(setup, first) : n};
        TTI_TRY(tell(setup, update, update->awaited));
        tti_compute_threads_run(threads->pool, update_lane, x);
        TTI_TRY(tti_exec_compute_thread_status(x));
        if (told) TTI_TRY(tell(setup, update, update->updated));
    }
    return tti_exec_compute_thread_status(x);
}

/* Hashes parameters of other workers as they are in this worker's memory. */
static void hash_compute_thread(int index, void *arg) {
    tti_exec *x = arg;
    const tti_setup *setup = tti_setup_of(x);
    tti_range mine = tti_compute_thread_range((size_t)setup->desc.plan->n_updates, 1, index,
                                              setup->desc.n_compute_threads);
    for (size_t i = mine.first; i < mine.last; i++)
        if (!setup->share.is_own[i]) {
            const tti_update_step *step = &setup->desc.plan->updates[i];
            tti_threads_of(x)->thread[index].hash +=
                hash_block(setup, step, tti_arrays_of(x)->params + step->first);
        }
}

static uint64_t hash_of_lanes(const tti_setup *setup, const tti_thread_set *threads) {
    uint64_t hash = 0;
    for (int i = 0; i < setup->desc.n_compute_threads; i++) hash += threads->thread[i].hash;
    return hash;
}

/* Per bucket, if a consumer overlaps with this loop. */
static tutti_status gather_params(tti_exec *x) {
    tti_update *update = tti_update_of(x);
    const tti_plan *plan = tti_setup_of(x)->desc.plan;
    if (!update->updated) return tti_zero_gather_params(x);
    for (int b = 0; b < plan->n_buckets; b++) {
        const tti_bucket *bucket = &plan->buckets[b];
        TTI_TRY(tti_zero_gather_bucket(x, b));
        TTI_TRY(
            update->updated(update->updated_user, bucket->first, bucket->first + bucket->n_elems));
    }
    return TUTTI_OK;
}

tutti_status tti_exec_gather_params(tti_exec *x) {
    int64_t start = tti_now_ns();
    TTI_TRY(gather_params(x));
    int64_t end = tti_now_ns();
    tti_tally_of(x)->gather_ns = end - start;
    tti_profile_add(x, TTI_ROW_COMM, tti_part_params("parameters of other workers"), -1, start,
                    end);
    tti_profile_rest(x, tti_part_wait("waiting for parameters"), end);
    return TUTTI_OK;
}

void tti_exec_hash_gathered(tti_exec *x) {
    tti_thread_set *threads = tti_threads_of(x);
    tti_compute_threads_run(threads->pool, hash_compute_thread, x);
    tti_tally_of(x)->last_hash = hash_of_lanes(tti_setup_of(x), threads);
    tti_profile_rest(x, tti_part_work("hash of the parameters"), tti_now_ns());
}

static void set_hyper(const tti_setup *setup, tti_update *update, const tti_step_desc *desc,
                      double inv_count, double clip) {
    double t = (double)desc->step + 1;
    double hyper[TTI_N_HYPER] = {desc->lr,
                                 inv_count,
                                 clip,
                                 t,
                                 1 - pow(setup->desc.beta1, t),
                                 1 - pow(setup->desc.beta2, t),
                                 desc->n_rows > 0 ? 1.0 / (double)desc->n_rows : 0};
    for (int i = 0; i < TTI_N_HYPER; i++) update->hyper[i] = (float)hyper[i];
}

tutti_status tti_exec_update(tti_exec *x, const tti_step_desc *desc, double inv_count,
                             tti_step_result *result) {
    const tti_setup *setup = tti_setup_of(x);
    tti_tally *tally = tti_tally_of(x);
    tti_thread_set *threads = tti_threads_of(x);
    tti_update *update = tti_update_of(x);
    double clip = 1;
    inv_count /= tally->loss_scale;
    set_hyper(setup, update, desc, inv_count, clip);
    if (setup->desc.l1 > 0 || setup->desc.clip_value > 0)
        tti_compute_threads_run(threads->pool, prepare_compute_thread, x);
    if (setup->desc.clip_norm > 0 || setup->desc.watch_gradients) {
        TTI_TRY(global_norm(x, inv_count, &result->grad_norm));
        if (!isfinite(result->grad_norm)) {
            result->skipped = true;
            return tti_exec_report_bad_gradient(x, desc->step);
        }
        if (setup->desc.clip_norm > 0 && result->grad_norm > setup->desc.clip_norm)
            clip = setup->desc.clip_norm / (result->grad_norm + 1e-6);
    }
    set_hyper(setup, update, desc, inv_count, clip);
    if (setup->desc.plan->takes_norms) TTI_TRY(find_norms(x));
    TTI_TRY(update_own(x));
    update->has_block_hashes = update->block_hashes != NULL;
    tally->last_hash = hash_of_lanes(setup, threads);
    tti_profile_rest(x, tti_part_work("update"), tti_now_ns());
    return TUTTI_OK;
}

tutti_status tti_exec_apply(tti_exec *x, const tti_step_desc *desc, double inv_count,
                            tti_step_result *result) {
    tti_tally *tally = tti_tally_of(x);
    TTI_TRY(tti_exec_update(x, desc, inv_count, result));
    if (tti_exec_has_parts(tti_setup_of(x))) {
        TTI_TRY(tti_exec_gather_params(x));
        tti_exec_hash_gathered(x);
    }
    tally->has_hash = true;
    result->params_hash = tally->last_hash;
    return TUTTI_OK;
}
