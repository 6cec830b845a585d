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
static tti_range range_of(const tti_exec *x, int compute_thread) {
    return tti_compute_thread_range((size_t)x->share.n_blocks, 1, compute_thread,
                                    x->desc.n_compute_threads);
}

static const tti_update_step *step_of(const tti_exec *x, const tti_own_block *own) {
    return &x->desc.plan->updates[own->update];
}

static void square_lane(int compute_thread, void *arg) {
    tti_exec *x = arg;
    const tti_plan *plan = x->desc.plan;
    tti_range mine = range_of(x, compute_thread);
    for (size_t i = mine.first; i < mine.last; i++) {
        const tti_own_block *own = &x->share.blocks[i];
        const tti_update_step *step = step_of(x, own);
        bool counts = !plan->slots[step->slot].buffer && step->node &&
                      tti_divided_counts(x->divided, step->slot);
        x->partials[own->update] =
            counts ? x->desc.backend->sum_squares(tti_own_grads(x, own), step->n_elems) : 0;
    }
}

/* Norm of the mean gradient. */
static tutti_status global_norm(tti_exec *x, double inv_count, double *norm) {
    tti_compute_threads_run(x->compute_threads, square_lane, x);
    TTI_TRY(tti_zero_join(x, x->partials, 1));
    double sum = tti_divided_own_blocks(x);
    TTI_TRY(tti_divided_add(x->divided, &sum));
    *norm = sqrt(sum) * inv_count;
    return TUTTI_OK;
}

/* Pointers of a block as the update ops want them: w, states, g, hyper, norms. */
static int block_inputs(tti_exec *x, const tti_own_block *own, const tti_node *node, float *hyper,
                        float *norms, void **in) {
    const tti_update_step *step = step_of(x, own);
    bool buffer = x->desc.plan->slots[step->slot].buffer;
    int n = 0, n_states = buffer ? 0 : x->desc.plan->n_states;
    in[n++] = tti_own_params(x, own);
    for (int k = 0; k < n_states; k++) in[n++] = x->states[k] + own->state;
    in[n++] = tti_own_grads(x, own);
    in[n++] = hyper;
    if (tti_takes_norms(node->op)) in[n++] = norms;
    return n_states + 1;
}

static void block_hyper(const tti_exec *x, const tti_update_step *step, float *hyper) {
    memcpy(hyper, x->hyper, sizeof x->hyper);
    hyper[0] = (float)(x->hyper[0] * x->desc.plan->slots[step->slot].rule.lr_factor);
}

static tutti_status run_block(tti_exec *x, tti_compute_thread *compute_thread,
                              const tti_own_block *own, const tti_node *node, void **outs) {
    const tti_update_step *step = step_of(x, own);
    const tti_bound_update *bound = &compute_thread->updates[node->id];
    const double *norm = &x->norms[2 * step->slot];
    float hyper[TTI_N_HYPER], norms[2] = {(float)norm[0], (float)norm[1]};
    void *in[TTI_MAX_IN], *out[TTI_MAX_OUT];
    block_hyper(x, step, hyper);
    int n_out = block_inputs(x, own, node, hyper, norms, in);
    for (int k = 0; k < n_out; k++) out[k] = outs ? outs[k] : in[k];
    tti_run run = {.seed = x->desc.seed};
    tti_kargs args = {.node = node, .in = in, .out = out, .scratch = bound->scratch, .run = &run};
    return bound->kernel->run(bound->state, &args);
}

/* ---- norms of whole parameters, for optimizers that scale by them ---- */

/* Squares of a block of w, and of the optimizer's step for it, or of its gradient. */
static tutti_status square_block(tti_exec *x, tti_compute_thread *compute_thread,
                                 const tti_own_block *own, double *squares) {
    const tti_update_step *step = step_of(x, own);
    squares[0] = squares[1] = 0;
    if (!step->node || !tti_takes_norms(step->node->op)) return TUTTI_OK;
    const float *direction = tti_own_grads(x, own);
    double scale = (double)x->hyper[1] * x->hyper[2];
    float block[TTI_UPDATE_BLOCK];
    if (step->direction) {
        TTI_TRY(run_block(x, compute_thread, own, step->direction,
                          (void *[]){block, NULL, NULL, NULL}));
        direction = block;
        scale = 1;
    }
    squares[0] = x->desc.backend->sum_squares(tti_own_params(x, own), step->n_elems);
    squares[1] = x->desc.backend->sum_squares(direction, step->n_elems) * scale * scale;
    return TUTTI_OK;
}

static void norm_compute_thread(int index, void *arg) {
    tti_exec *x = arg;
    tti_range mine = range_of(x, index);
    for (size_t i = mine.first; i < mine.last; i++) {
        const tti_own_block *own = &x->share.blocks[i];
        tutti_status st =
            square_block(x, &x->compute_thread[index], own, &x->partials[2 * own->update]);
        if (st != TUTTI_OK) tti_exec_compute_thread_failed(x, &x->compute_thread[index], st);
    }
}

static tutti_status find_norms(tti_exec *x) {
    const tti_plan *plan = x->desc.plan;
    tti_compute_threads_run(x->compute_threads, norm_compute_thread, x);
    TTI_TRY(tti_zero_join(x, x->partials, 2));
    tti_divided_own_slots(x);
    TTI_TRY(tti_divided_squares(x->divided, x->norms));
    for (int i = 0; i < 2 * plan->n_slots; i++) x->norms[i] = sqrt(x->norms[i]);
    return TUTTI_OK;
}

/* ---- the update ---- */

/* Processes the sum of gradients before the optimizer reads it. */
static void prepare_gradient(tti_exec *x, const tti_own_block *own) {
    const tti_update_step *step = step_of(x, own);
    const tti_slot *slot = &x->desc.plan->slots[step->slot];
    float *g = tti_own_grads(x, own);
    const float *w = tti_own_params(x, own);
    float count = x->hyper[1] > 0 ? 1 / x->hyper[1] : 0; /* of nothing there is no gradient */
    float l1 = (float)x->desc.l1 * count;
    float most = (float)x->desc.clip_value * count;
    if (slot->buffer) return;
    for (size_t i = 0; l1 > 0 && slot->decay && i < step->n_elems; i++)
        g[i] += w[i] > 0 ? l1 : w[i] < 0 ? -l1 : 0;
    for (size_t i = 0; most > 0 && i < step->n_elems; i++)
        g[i] = g[i] > most ? most : g[i] < -most ? -most : g[i];
}

static void prepare_compute_thread(int index, void *arg) {
    tti_exec *x = arg;
    tti_range mine = range_of(x, index);
    for (size_t i = mine.first; i < mine.last; i++) prepare_gradient(x, &x->share.blocks[i]);
}

/* Running statistics are not averaged over steps: they are copied. */
static void average_block(tti_exec *x, const tti_own_block *own) {
    const tti_update_step *step = step_of(x, own);
    float decay = x->desc.plan->slots[step->slot].buffer ? 0 : (float)x->desc.ema;
    float *ema = x->ema + own->state;
    const float *w = tti_own_params(x, own);
    for (size_t i = 0; i < step->n_elems; i++) ema[i] = decay * ema[i] + (1 - decay) * w[i];
}

static uint64_t hash_block(const tti_exec *x, const tti_update_step *step, const float *w) {
    return x->desc.backend->hash(w, step->n_elems, step->first);
}

/* If no other worker has it for comparison, it must be as the last update left it. */
static tutti_status check_block(const tti_exec *x, size_t i) {
    const tti_own_block *own = &x->share.blocks[i];
    const tti_update_step *step = step_of(x, own);
    if (!x->has_block_hashes || hash_block(x, step, tti_own_params(x, own)) == x->block_hashes[i])
        return TUTTI_OK;
    return tti_fail(TUTTI_E_MISMATCH,
                    "step %llu: parameter '%s' changed in memory after the last update; a fault of "
                    "the memory is likely",
                    (unsigned long long)x->begun.step, x->desc.plan->slots[step->slot].param->name);
}

static tutti_status update_block(tti_exec *x, tti_compute_thread *compute_thread, size_t i) {
    const tti_own_block *own = &x->share.blocks[i];
    const tti_update_step *step = step_of(x, own);
    TTI_TRY(check_block(x, i));
    if (step->node) TTI_TRY(run_block(x, compute_thread, own, step->node, NULL));
    if (x->ema) average_block(x, own);
    uint64_t hash = hash_block(x, step, tti_own_params(x, own));
    compute_thread->hash += hash;
    if (x->block_hashes) x->block_hashes[i] = hash;
    if (tti_exec_has_parts(x) &&
        !x->sharded) /* where the others read it: its gradient did its work */
        memcpy(tti_exec_grads(x) + step->first, x->params + step->first,
               step->n_elems * sizeof(float));
    return TUTTI_OK;
}

static void update_lane(int index, void *arg) {
    tti_exec *x = arg;
    tti_compute_thread *compute_thread = &x->compute_thread[index];
    size_t first = x->stretch.first, n = x->stretch.last - first;
    tti_range mine = tti_compute_thread_range(n, 1, index, x->desc.n_compute_threads);
    for (size_t i = first + mine.first; i < first + mine.last; i++) {
        tutti_status st = update_block(x, compute_thread, i);
        if (st != TUTTI_OK) tti_exec_compute_thread_failed(x, compute_thread, st);
    }
}

/* Behind the last own block that lies in the bucket of block first. */
static size_t end_of_stretch(const tti_exec *x, size_t first) {
    const tti_plan *plan = x->desc.plan;
    int bucket = tti_plan_find_bucket(plan, step_of(x, &x->share.blocks[first])->first);
    size_t end = plan->buckets[bucket].first + plan->buckets[bucket].n_elems, i = first;
    while (i < (size_t)x->share.n_blocks && step_of(x, &x->share.blocks[i])->first < end) i++;
    return i;
}

/* The elements of the stretch, for updated or awaited. */
static tutti_status tell(const tti_exec *x, tutti_status (*whom)(void *, size_t, size_t)) {
    const tti_update_step *from = step_of(x, &x->share.blocks[x->stretch.first]);
    const tti_update_step *to = step_of(x, &x->share.blocks[x->stretch.last - 1]);
    return whom ? whom(x->updated_user, from->first, to->first + to->n_elems) : TUTTI_OK;
}

/* Updates all own blocks; bucket by bucket, if a consumer overlaps with this loop. */
static tutti_status update_own(tti_exec *x) {
    bool told = x->updated && !tti_exec_divides(x);
    size_t n = (size_t)x->share.n_blocks;
    for (int i = 0; i < x->desc.n_compute_threads; i++) x->compute_thread[i].hash = 0;
    for (size_t first = 0; first < n; first = x->stretch.last) {
        x->stretch = (tti_range){first, told ? end_of_stretch(x, first) : n};
        TTI_TRY(tell(x, x->awaited));
        tti_compute_threads_run(x->compute_threads, update_lane, x);
        TTI_TRY(tti_exec_compute_thread_status(x));
        if (told) TTI_TRY(tell(x, x->updated));
    }
    return tti_exec_compute_thread_status(x);
}

/* Hashes parameters of other workers as they are in this worker's memory. */
static void hash_compute_thread(int index, void *arg) {
    tti_exec *x = arg;
    tti_range mine = tti_compute_thread_range((size_t)x->desc.plan->n_updates, 1, index,
                                              x->desc.n_compute_threads);
    for (size_t i = mine.first; i < mine.last; i++)
        if (!x->share.is_own[i]) {
            const tti_update_step *step = &x->desc.plan->updates[i];
            x->compute_thread[index].hash += hash_block(x, step, x->params + step->first);
        }
}

static uint64_t hash_of_lanes(const tti_exec *x) {
    uint64_t hash = 0;
    for (int i = 0; i < x->desc.n_compute_threads; i++) hash += x->compute_thread[i].hash;
    return hash;
}

/* Per bucket, if a consumer overlaps with this loop. */
static tutti_status gather_params(tti_exec *x) {
    const tti_plan *plan = x->desc.plan;
    if (!x->updated) return tti_zero_gather_params(x);
    for (int b = 0; b < plan->n_buckets; b++) {
        const tti_bucket *bucket = &plan->buckets[b];
        TTI_TRY(tti_zero_gather_bucket(x, b));
        TTI_TRY(x->updated(x->updated_user, bucket->first, bucket->first + bucket->n_elems));
    }
    return TUTTI_OK;
}

tutti_status tti_exec_gather_params(tti_exec *x) {
    int64_t start = tti_now_ns();
    TTI_TRY(gather_params(x));
    int64_t end = tti_now_ns();
    x->gather_ns = end - start;
    tti_profile_add(x, TTI_ROW_COMM, tti_part_params("parameters of other workers"), -1, start,
                    end);
    tti_profile_rest(x, tti_part_wait("waiting for parameters"), end);
    return TUTTI_OK;
}

void tti_exec_hash_gathered(tti_exec *x) {
    tti_compute_threads_run(x->compute_threads, hash_compute_thread, x);
    x->last_hash = hash_of_lanes(x);
    tti_profile_rest(x, tti_part_work("hash of the parameters"), tti_now_ns());
}

static void set_hyper(tti_exec *x, const tti_step_desc *desc, double inv_count, double clip) {
    double t = (double)desc->step + 1;
    double hyper[TTI_N_HYPER] = {desc->lr,
                                 inv_count,
                                 clip,
                                 t,
                                 1 - pow(x->desc.beta1, t),
                                 1 - pow(x->desc.beta2, t),
                                 desc->n_rows > 0 ? 1.0 / (double)desc->n_rows : 0};
    for (int i = 0; i < TTI_N_HYPER; i++) x->hyper[i] = (float)hyper[i];
}

tutti_status tti_exec_update(tti_exec *x, const tti_step_desc *desc, double inv_count,
                             tti_step_result *result) {
    double clip = 1;
    inv_count /= x->loss_scale;
    set_hyper(x, desc, inv_count, clip);
    if (x->desc.l1 > 0 || x->desc.clip_value > 0)
        tti_compute_threads_run(x->compute_threads, prepare_compute_thread, x);
    if (x->desc.clip_norm > 0 || x->desc.watch_gradients) {
        TTI_TRY(global_norm(x, inv_count, &result->grad_norm));
        if (!isfinite(result->grad_norm)) {
            result->skipped = true;
            return tti_exec_report_bad_gradient(x, desc->step);
        }
        if (x->desc.clip_norm > 0 && result->grad_norm > x->desc.clip_norm)
            clip = x->desc.clip_norm / (result->grad_norm + 1e-6);
    }
    set_hyper(x, desc, inv_count, clip);
    if (x->desc.plan->takes_norms) TTI_TRY(find_norms(x));
    TTI_TRY(update_own(x));
    x->has_block_hashes = x->block_hashes != NULL;
    x->last_hash = hash_of_lanes(x);
    tti_profile_rest(x, tti_part_work("update"), tti_now_ns());
    return TUTTI_OK;
}

tutti_status tti_exec_apply(tti_exec *x, const tti_step_desc *desc, double inv_count,
                            tti_step_result *result) {
    TTI_TRY(tti_exec_update(x, desc, inv_count, result));
    if (tti_exec_has_parts(x)) {
        TTI_TRY(tti_exec_gather_params(x));
        tti_exec_hash_gathered(x);
    }
    x->has_hash = true;
    result->params_hash = x->last_hash;
    return TUTTI_OK;
}
