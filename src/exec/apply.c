/* apply.c - the update program: clip by the global norm, optimizer, hash, over all lanes.
 *
 * Blocks are fixed by the plan, and sums over blocks are made in block order, so neither lanes nor
 * workers change a bit. */
#include <math.h>

#include "exec/worker.h"

static void square_lane(int lane, void *arg) {
    tti_exec *x = arg;
    const tti_plan *plan = x->desc.plan;
    tti_range mine = tti_lane_range((size_t)plan->n_updates, 1, lane, x->desc.n_lanes);
    const float *grads = tti_exec_grads(x);
    for (size_t i = mine.first; i < mine.last; i++)
        x->partials[i] =
            x->desc.backend->sum_squares(grads + plan->updates[i].first, plan->updates[i].n_elems);
}

/* Norm of the mean gradient. */
static double global_norm(tti_exec *x, double inv_count) {
    double sum = 0;
    tti_lanes_run(x->lanes, square_lane, x);
    for (int i = 0; i < x->desc.plan->n_updates; i++) sum += x->partials[i];
    return sqrt(sum) * inv_count;
}

static tutti_status update_block(tti_exec *x, tti_lane *lane, const tti_update_step *step) {
    const tti_bound_update *bound = &lane->updates[step->node->id];
    void *in[TTI_MAX_IN], *out[TTI_MAX_OUT];
    int n = 0;
    in[n++] = x->params + step->first;
    for (int k = 0; k < x->desc.plan->n_states; k++) in[n++] = x->states[k] + step->first;
    for (int k = 0; k < n; k++) out[k] = in[k];
    in[n++] = tti_exec_grads(x) + step->first;
    in[n++] = x->hyper;
    tti_run run = {.seed = x->desc.seed};
    tti_kargs args = {
        .node = step->node, .in = in, .out = out, .scratch = bound->scratch, .run = &run};
    return bound->kernel->run(bound->state, &args);
}

static void update_lane(int index, void *arg) {
    tti_exec *x = arg;
    tti_lane *lane = &x->lane[index];
    const tti_plan *plan = x->desc.plan;
    tti_range mine = tti_lane_range((size_t)plan->n_updates, 1, index, x->desc.n_lanes);
    lane->hash = 0;
    for (size_t i = mine.first; i < mine.last; i++) {
        const tti_update_step *step = &plan->updates[i];
        tutti_status st = update_block(x, lane, step);
        if (st != TUTTI_OK) tti_exec_lane_failed(lane, st);
        lane->hash += x->desc.backend->hash(x->params + step->first, step->n_elems, step->first);
    }
}

static void set_hyper(tti_exec *x, const tti_step_desc *desc, double inv_count, double clip) {
    double t = (double)desc->step + 1;
    double hyper[TTI_N_HYPER] = {
        desc->lr, inv_count, clip, t, 1 - pow(x->desc.beta1, t), 1 - pow(x->desc.beta2, t)};
    for (int i = 0; i < TTI_N_HYPER; i++) x->hyper[i] = (float)hyper[i];
}

tutti_status tti_exec_apply(tti_exec *x, const tti_step_desc *desc, double inv_count,
                            tti_step_result *result) {
    double clip = 1;
    if (x->desc.clip_norm > 0 || x->desc.watch_gradients) {
        result->grad_norm = global_norm(x, inv_count);
        if (!isfinite(result->grad_norm)) {
            result->skipped = true;
            return tti_fail(TUTTI_E_NUMERICS,
                            "step %llu: the gradient is not finite; the parameters are as before "
                            "this step",
                            (unsigned long long)desc->step + 1);
        }
        if (x->desc.clip_norm > 0 && result->grad_norm > x->desc.clip_norm)
            clip = x->desc.clip_norm / (result->grad_norm + 1e-6);
    }
    set_hyper(x, desc, inv_count, clip);
    tti_lanes_run(x->lanes, update_lane, x);
    TTI_TRY(tti_exec_lane_status(x));
    x->last_hash = 0;
    for (int i = 0; i < x->desc.n_lanes; i++) x->last_hash += x->lane[i].hash;
    x->has_hash = true;
    result->params_hash = x->last_hash;
    return TUTTI_OK;
}
