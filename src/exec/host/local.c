/* local.c - local SGD: each worker's own update, and averages over the workers.
 *
 * Parameters are averaged in the buffer of the summed gradients, which peers see and which is free
 * after the update.  Frozen parameters are not averaged, since a mean of equal numbers need not be
 * that number. */
#include "exec/host/local.h"

#include <string.h>

#include "base/clock.h"
#include "exec/worker/worker.h"

/* ---- means ---- */

typedef struct mean {
    tti_exec *x;
    float *values; /* [n_flat] */
    bool back;     /* the mean is copied back, else values are copied to the buffer */
} mean;

/* A lane's range of the blocks of the update. */
static void mean_lane(int lane, void *arg) {
    const mean *m = arg;
    const tti_plan *plan = m->x->desc.plan;
    float share = 1 / (float)m->x->n_ranks, *buffer = tti_exec_grads(m->x);
    tti_range mine = tti_lane_range((size_t)plan->n_updates, 1, lane, m->x->desc.n_lanes);
    for (size_t i = mine.first; i < mine.last; i++) {
        const tti_update_step *u = &plan->updates[i];
        float *v = m->values + u->first, *b = buffer + u->first;
        if (!m->back) memcpy(b, v, u->n_elems * sizeof *b);
        for (size_t e = 0; m->back && u->node && e < u->n_elems; e++) v[e] = b[e] * share;
    }
}

static tutti_status average(tti_exec *x, float *values) {
    size_t n = x->desc.plan->n_flat;
    float *buffer = tti_exec_grads(x);
    tti_lanes_run(x->lanes, mean_lane, &(mean){x, values, false});
    x->sent_bytes += tti_exec_reduce_bytes(x, n * sizeof *buffer);
    TTI_TRY(
        tutti_comm_all_reduce(x->desc.comm, buffer, buffer, n, TUTTI_F32, TUTTI_SUM, x->desc.alg));
    tti_lanes_run(x->lanes, mean_lane, &(mean){x, values, true});
    return TUTTI_OK;
}

/* Afterwards all workers agree, also in values that differ between averagings. */
static tutti_status average_all(tti_exec *x, const tti_step_desc *desc) {
    TTI_TRY(average(x, x->params));
    for (int k = 0; desc->average_state && k < x->desc.plan->n_states; k++)
        TTI_TRY(average(x, x->states[k]));
    return desc->average_state && x->ema ? average(x, x->ema) : TUTTI_OK;
}

/* ---- a step ---- */

/* Uses this worker's samples only; a worker without samples in a short batch does not change. */
static tutti_status apply_alone(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    tti_step_desc own = *desc;
    own.n_rows = tti_local_rows(x, desc);
    if (own.n_rows > 0)
        return tti_exec_apply(x, &own, result->count > 0 ? 1 / result->count : 0, result);
    x->last_hash = tti_exec_flat_hash(x);
    x->has_hash = true;
    result->params_hash = x->last_hash;
    return TUTTI_OK;
}

/* With a divided model the workers of a replica act as one, and add their parts of the sums. */
static tutti_status add_parts(tti_exec *x) {
    double no_votes = 0;
    if (x->pipe) TTI_TRY(tti_pipe_sum_tied(x, tti_exec_grads(x)));
    return tti_divided_sums(x->divided, x->sums, (size_t)x->desc.n_shards * TTI_SUMS, &no_votes);
}

static tutti_status update_alone(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    TTI_TRY(add_parts(x));
    tti_exec_add_sums(x, result); /* other workers' sums are 0 */
    int bad = tti_exec_first_bad_shard(x);
    if (bad >= 0) {
        char layer[TTI_LAYER_TEXT];
        result->skipped = true;
        tti_exec_find_bad_layer(x, desc, bad, layer);
        return tti_exec_bad_loss(x, desc->step, bad, layer);
    }
    tti_exec_note(x, desc, "update");
    return apply_alone(x, desc, result);
}

/* Replaces the parameters of all workers by their mean, and the sums of the step by their totals.
 */
static tutti_status meet(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    tti_exec_note(x, desc, "average");
    int64_t start = tti_now_ns();
    TTI_TRY(average_all(x, desc));
    int64_t averaged = tti_now_ns();
    const tti_span move = {
        .part = tti_part_params("mean of parameters"), .shard = -1, .row = TTI_ROW_COMM};
    tti_exec_waited(x, averaged - start);
    tti_profile_stall(x, &move, "waiting for parameters", start, averaged);
    tti_profile_mark(x, averaged);
    x->last_hash = tti_exec_flat_hash(x);
    result->params_hash = x->last_hash;
    tti_profile_rest(x, tti_part_work("hash of the parameters"), tti_now_ns());
    TTI_TRY(tti_exec_exchange_sums(x, desc->vote));
    tti_profile_rest(x, tti_part_wait("waiting for sums"), tti_now_ns());
    TTI_TRY(tti_exec_compare_hashes(x, desc->step));
    result->loss_sum = result->count = result->correct = 0;
    tti_exec_add_sums(x, result);
    return TUTTI_OK;
}

tutti_status tti_local_step(tti_exec *x, const tti_step_desc *desc, int64_t start_ns,
                            int64_t computed_ns, tti_step_result *result) {
    TTI_TRY(update_alone(x, desc, result));
    int64_t updated = tti_now_ns(), end = updated;
    result->partial = !desc->average;
    if (desc->average) {
        TTI_TRY(meet(x, desc, result));
        end = tti_now_ns();
    }
    result->own_hash = result->params_hash;
    TTI_TRY(tti_divided_hash(x->divided, &result->params_hash));
    result->bubble = x->pipe ? tti_pipe_bubble_measured(x->pipe) : 0;
    result->sent_bytes = x->sent_bytes;
    result->compute_ns = computed_ns - start_ns;
    result->update_ns = updated - computed_ns;
    result->comm_ns = end - updated;
    tti_profile_add(x, TTI_ROW_COMPUTE, tti_part_work("update"), -1, computed_ns, updated);
    return TUTTI_OK;
}
