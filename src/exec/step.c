/* step.c - one step of training on the host: compute, reduce, sums, update; and evaluation.
 *
 * Every input of a result is indexed by shard, never by rank or thread. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "comm/local_sum.h"
#include "comm/progress.h"
#include "comm/transport.h"
#include "exec/worker/worker.h"

tti_run tti_exec_shard_run(const tti_exec *x, const tti_step_desc *desc, int shard) {
    return (tti_run){.seed = x->desc.seed,
                     .step = desc->step,
                     .sample0 = (uint64_t)shard * (uint64_t)desc->shard_size};
}

void tti_exec_lane_failed(tti_exec *x, tti_lane *lane, tutti_status status) {
    if (lane->status != TUTTI_OK) return;
    lane->status = status;
    snprintf(lane->error, sizeof lane->error, "%s", tutti_last_error());
    for (int i = 0; x->lane_comms && i < x->n_lane_comms; i++)
        tti_comm_abort(x->lane_comms[i], lane->error);
}

tutti_status tti_exec_lane_status(tti_exec *x) {
    for (int i = 0; i < x->n_in_flight; i++)
        if (x->lane[i].status != TUTTI_OK)
            return tti_fail(x->lane[i].status, "%s", x->lane[i].error);
    return TUTTI_OK;
}

/* ---- compute ---- */

void tti_exec_waited(tti_exec *x, int64_t t_ns) {
    atomic_fetch_add_explicit(&x->waited_ns, t_ns, memory_order_relaxed);
}

void tti_exec_lane_waited(tti_exec *x, int64_t t_ns) { tti_exec_waited(x, t_ns / x->desc.n_lanes); }

tutti_status tti_exec_get_spent(tti_exec *x, tti_exec_spent *spent) {
    *spent =
        (tti_exec_spent){.known = true,
                         .waited_ns = atomic_load_explicit(&x->waited_ns, memory_order_relaxed),
                         .copied_ns = x->copied_ns};
    return x->device ? tti_exec_device_get_waits(x, spent) : TUTTI_OK;
}

void tti_exec_keep_sums(tti_exec *x, tti_instance *instance, int shard) {
    double *sums = x->sums + (size_t)shard * TTI_SUMS;
    static const char *const names[TTI_SUMS] = {"loss_sum", "count", "correct"};
    for (int i = 0; i < TTI_SUMS; i++)
        if (tti_instance_has_output(instance, names[i])) /* else it is another stage's */
            sums[i] = *(const float *)tti_instance_output(instance, names[i]);
}

/* A stage of a pipeline has only the inputs that it reads. */
static void feed_one(tti_instance *instance, int input, const void *data) {
    if (input >= 0) tti_instance_set_input(instance, input, data);
}

void tti_exec_feed(tti_exec *x, tti_instance *instance, const tti_fed_inputs *inputs,
                   const tti_shard_data *data) {
    feed_one(instance, inputs->x, data->x);
    feed_one(instance, inputs->target, data->target);
    feed_one(instance, inputs->rows, &data->n_rows);
    feed_one(instance, inputs->loss_scale, &x->loss_scale);
}

int tti_exec_number(const tti_exec *x) { return x->desc.comm ? x->rank : x->desc.server_worker; }

void tti_exec_merge(tti_exec *x, const tti_wave *wave, size_t first, size_t last) {
    if (first >= last) return;
    for (int i = 0; i < wave->n_merges; i++) {
        const tti_merge *m = &x->acc.merges[wave->first_merge + i];
        x->desc.backend->accumulate(tti_exec_grads_at(x, m->dst, first),
                                    tti_exec_grads_at(x, m->src, first), last - first);
    }
}

void tti_exec_point_at_buffer(const tti_exec *x, tti_instance *instance, int buffer) {
    if (x->lean && x->lean->is_short[buffer])
        tti_instance_set_grad_places(instance, x->buffers[buffer], &x->lean->grads);
    else
        tti_instance_set_grads(instance, x->buffers[buffer]);
}

static tutti_status compute(tti_exec *x, const tti_step_desc *desc, bool eval) {
    int worker = tti_exec_number(x);
    for (int i = 0; i < x->n_in_flight; i++) x->lane[i].status = TUTTI_OK;
    if (TTI_FAULT_AT(eval ? "exec.evaluate" : "exec.compute", worker, (int64_t)desc->step))
        tti_exec_lane_failed(x, &x->lane[0],
                             tti_fail(TUTTI_E_INTERNAL, "exec: worker %d cannot compute", worker));
    x->loss_scale = desc->loss_scale > 0 ? (float)desc->loss_scale : 1.0f;
    memset(x->sums, 0, x->n_sums * sizeof *x->sums);
    return tti_host_compute(x, desc, eval);
}

/* ---- reduce ---- */

float *tti_exec_grads(tti_exec *x) { return x->buffers[x->acc.piece_buffer[0]]; }

bool tti_exec_has_wire(const tti_exec *x) {
    return x->desc.fast && x->n_ranks > 1 && x->desc.wire != TUTTI_F32 && !x->device;
}

double tti_exec_reduce_bytes(const tti_exec *x, size_t n_bytes) {
    return 2.0 * (double)n_bytes * (x->n_ranks - 1) / x->n_ranks;
}

/* Parts are summed along the tree in fast mode too, where a ring would not know of them. */
static tutti_comm_alg alg_of_tree(const tti_exec *x) {
    return x->desc.fast && x->desc.alg == TUTTI_ALG_RING ? TUTTI_ALG_AUTO : x->desc.alg;
}

/* Half the bytes: rounded to the wire's dtype, added in f32, and the sum rounded once more. */
tutti_status tti_exec_reduce_rounded(tti_exec *x, float *sum, uint16_t *wire, size_t n_elems) {
    x->sent_bytes += tti_exec_reduce_bytes(x, n_elems * sizeof *wire);
    tti_narrow(x->desc.wire, sum, wire, n_elems);
    TTI_TRY(tutti_comm_all_reduce(x->desc.comm, wire, wire, n_elems, x->desc.wire, TUTTI_SUM,
                                  x->desc.alg));
    tti_widen(x->desc.wire, wire, sum, n_elems);
    return TUTTI_OK;
}

/* The part of a sum that its owner needs, the same bits as above: a worker's sum is one subtree of
 * a tree over the workers. */
static tutti_status reduce_rounded_part(tti_exec *x, float *sum, size_t first, size_t n_elems) {
    uint16_t *wire = x->wire + first;
    size_t bounds[TTI_MAX_RANKS + 1];
    tti_deal deal;
    tti_piece piece[TTI_MAX_PIECES];
    tti_zero_bounds(x, first, bounds);
    tti_deal_subtrees(x->n_ranks, &deal);
    int n = tti_shard_pieces(deal.first[x->rank], deal.first[x->rank + 1], piece);
    piece[0].data = wire;
    x->sent_bytes += tti_exec_reduce_bytes(x, n_elems * sizeof *wire) / 2;
    tti_narrow(x->desc.wire, sum, wire, n_elems);
    const tti_reduce_desc desc = {.pieces = piece,
                                  .n_pieces = n,
                                  .dst = wire,
                                  .n_elems = n_elems,
                                  .dtype = x->desc.wire,
                                  .n_shards = tti_deal_n_shards(&deal),
                                  .alg = alg_of_tree(x),
                                  .bounds = bounds,
                                  .deal = &deal};
    TTI_TRY(tti_comm_reduce_shards(x->desc.comm, &desc));
    size_t own = bounds[x->rank];
    tti_widen(x->desc.wire, wire + own, sum + own, bounds[x->rank + 1] - own);
    return TUTTI_OK;
}

tti_reduction tti_exec_reduction(const tti_exec *x) {
    const tti_plan *plan = x->desc.plan;
    /* Joins inside the step use the communicator, which one thread may use at a time. */
    bool joins = x->n_syncs > 0 || (plan->stages && plan->stages->is_joined);
    if (x->desc.server || (!x->desc.fast && x->n_ranks == 1)) return TTI_REDUCE_NOTHING;
    if (x->lean || (x->n_ranks > 1 && plan->n_buckets > 1 && !joins)) return TTI_REDUCE_OVERLAPPED;
    return tti_exec_divides(x) || x->desc.mixed ? TTI_REDUCE_BUCKETS : TTI_REDUCE_WHOLE;
}

bool tti_exec_is_scattered(const void *user, size_t first, size_t n_elems) {
    const tti_exec *x = user;
    return tti_exec_divides(x) && !tti_pipe_has_tied(x, first, n_elems);
}

/* Fast mode: one sum per worker in any order, then the chosen all-reduce. */
static tutti_status reduce_fast(tti_exec *x, size_t first, size_t n_elems, bool scatter) {
    float *sum = tti_exec_grads_at(x, x->acc.piece_buffer[0], first);
    for (int i = 1; i < x->acc.n_pieces; i++)
        x->desc.backend->accumulate(sum, tti_exec_grads_at(x, x->acc.piece_buffer[i], first),
                                    n_elems);
    if (x->n_ranks == 1 || tti_local_is_on(x)) return TUTTI_OK;
    if (tti_compress_is_on(x)) return tti_compress_reduce(x, sum, first, n_elems);
    if (tti_exec_has_wire(x) && scatter) return reduce_rounded_part(x, sum, first, n_elems);
    if (tti_exec_has_wire(x)) return tti_exec_reduce_rounded(x, sum, x->wire + first, n_elems);
    x->sent_bytes += tti_exec_reduce_bytes(x, n_elems * sizeof *sum);
    return tutti_comm_all_reduce(x->desc.comm, sum, sum, n_elems, TUTTI_F32, TUTTI_SUM,
                                 x->desc.alg);
}

void tti_exec_count_pieces(tti_exec *x, size_t n_elems, bool in_parts) {
    double n_vectors = x->acc.n_pieces + (in_parts ? 0 : 1);
    x->sent_bytes += n_vectors * tti_exec_reduce_bytes(x, n_elems * sizeof(float)) / 2;
}

/* Alone the merges have left one piece: the whole tree. */
static tutti_status reduce_exact(tti_exec *x, size_t first, size_t n_elems, bool scatter) {
    size_t bounds[TTI_MAX_RANKS + 1];
    if (scatter) tti_zero_bounds(x, first, bounds);
    tti_piece pieces[TTI_MAX_PIECES];
    for (int i = 0; i < x->acc.n_pieces; i++) {
        pieces[i] = x->acc.pieces[i];
        pieces[i].data = tti_exec_grads_at(x, x->acc.piece_buffer[i], first);
    }
    tti_exec_count_pieces(x, n_elems, scatter);
    return tti_comm_reduce_shards(x->desc.comm,
                                  &(tti_reduce_desc){.pieces = pieces,
                                                     .n_pieces = x->acc.n_pieces,
                                                     .dst = pieces[0].data,
                                                     .n_elems = n_elems,
                                                     .dtype = TUTTI_F32,
                                                     .n_shards = x->desc.n_shards,
                                                     .alg = alg_of_tree(x),
                                                     .bounds = scatter ? bounds : NULL,
                                                     .deal = &x->deal});
}

tutti_status tti_exec_reduce(tti_exec *x, tti_range range, bool scatter) {
    size_t first = range.first, n = range.last - range.first;
    int64_t start = tti_now_ns();
    bool is_less = tti_exec_has_wire(x) || tti_compress_is_on(x); /* than f32 of all elements */
    bool by_tree = !x->desc.fast || (tti_exec_has_parts(x) && !is_less);
    TTI_TRY(by_tree ? reduce_exact(x, first, n, scatter) : reduce_fast(x, first, n, scatter));
    if (x->n_ranks > 1 && !tti_local_is_on(x))
        tti_profile_add(x, TTI_ROW_COMM, tti_part_grads("sum of gradients"), -1, start,
                        tti_now_ns());
    return TUTTI_OK;
}

/* Sums and hashes of all workers in one small vector.  Every entry is set by one rank and zero on
 * the others (votes are small integers), so the order of the additions does not matter. */
tutti_status tti_exec_exchange_sums(tti_exec *x, bool vote) {
    double *hashes = x->sums + (size_t)x->desc.n_shards * TTI_SUMS;
    hashes[2 * x->rank] = (double)(uint32_t)(x->last_hash >> 32);
    hashes[2 * x->rank + 1] = (double)(uint32_t)x->last_hash;
    x->sums[x->n_sums - 1] = vote ? 1 : 0;
    if (x->n_ranks == 1 && !x->divided) return TUTTI_OK;
    int64_t start = tti_now_ns();
    if (x->n_ranks > 1)
        TTI_TRY(tutti_comm_all_reduce(x->desc.comm, x->sums, x->sums, x->n_sums, TUTTI_F64,
                                      TUTTI_SUM, TUTTI_ALG_AUTO));
    TTI_TRY(tti_divided_sums(x->divided, x->sums, (size_t)x->desc.n_shards * TTI_SUMS,
                             &x->sums[x->n_sums - 1]));
    int64_t end = tti_now_ns();
    tti_exec_waited(x, end - start);
    tti_profile_add(x, TTI_ROW_COMM, tti_part_sums("sums of the step"), -1, start, end);
    return TUTTI_OK;
}

void tti_exec_add_sums(const tti_exec *x, tti_step_result *result) {
    result->n_votes = (int)x->sums[x->n_sums - 1];
    for (int s = 0; s < x->desc.n_shards; s++) {
        result->loss_sum += x->sums[s * TTI_SUMS];
        result->count += x->sums[s * TTI_SUMS + 1];
        result->correct += x->sums[s * TTI_SUMS + 2];
    }
}

/* ---- the two calls ---- */

void tti_exec_note(tti_exec *x, const tti_step_desc *desc, const char *phase) {
    tutti_comm *comm = x->desc.mesh ? x->desc.mesh->world : x->desc.comm;
    if (comm) tti_comm_note(comm, desc->step, phase);
}

static tutti_status step_on_host(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    *result = (tti_step_result){0};
    int64_t start = tti_now_ns();
    x->sent_bytes = 0;
    tti_exec_note(x, desc, "compute");
    tti_profile_next_step(x);
    tutti_status st = compute(x, desc, false);
    int64_t computed = tti_now_ns();
    tti_exec_note(x, desc, "reduce");
    tutti_status reduced = tti_host_finish(x, false);
    TTI_TRY(tti_exec_lane_status(x));
    TTI_TRY(st);
    TTI_TRY(reduced);
    tti_exec_waited(x, tti_now_ns() - computed);
    if (tti_local_is_on(x)) return tti_local_step(x, desc, start, computed, result);
    result->sent_bytes = x->sent_bytes;
    if (x->pipe) TTI_TRY(tti_pipe_sum_tied(x, tti_exec_grads(x)));
    TTI_TRY(tti_exec_exchange_sums(x, desc->vote));
    int64_t exchanged = tti_now_ns();
    if (x->n_ranks > 1 || x->divided)
        tti_profile_add(x, TTI_ROW_COMPUTE, tti_part_wait("waiting for sums"), -1, computed,
                        exchanged);
    tti_profile_mark(x, exchanged);
    TTI_TRY(tti_exec_compare_hashes(x, desc->step));
    tti_exec_add_sums(x, result);
    int bad = tti_exec_first_bad_shard(x);
    if (bad >= 0) {
        result->skipped = true;
        return tti_exec_report_bad_loss(x, desc, bad);
    }
    tti_exec_note(x, desc, "update");
    double inv_count = result->count > 0 ? 1.0 / result->count : 0;
    TTI_TRY(x->desc.server ? tti_calls_of(x->desc.server)->step(x, desc, inv_count, result)
                           : tti_exec_apply(x, desc, inv_count, result));
    result->own_hash = result->params_hash;
    TTI_TRY(tti_divided_hash(x->divided, &result->params_hash));
    result->compute_ns = computed - start;
    result->bubble = x->pipe ? tti_pipe_bubble_measured(x->pipe) : 0;
    int64_t updated = tti_now_ns();
    result->comm_ns = exchanged - computed + x->gather_ns;
    tti_exec_waited(x, x->gather_ns);
    result->update_ns = updated - exchanged - x->gather_ns;
    tti_profile_rest(x, tti_part_work(x->gather_ns > 0 ? "hash of the parameters" : "update"),
                     updated);
    if (x->n_ranks > 1)
        tti_exec_profile_wait(x, tti_part_wait("waiting for sums"), computed, exchanged);
    return TUTTI_OK;
}

/* For a part of the model a gradient is one partial sum: contributions of several stages are added
 * when all shards here are complete. */
static tutti_status sum_pieces(tti_exec *x) {
    for (int i = 1; i < x->acc.n_pieces; i++)
        x->desc.backend->accumulate(tti_exec_grads(x), x->buffers[x->acc.piece_buffer[i]],
                                    x->desc.plan->n_flat);
    return x->pipe ? tti_pipe_sum_tied(x, tti_exec_grads(x)) : TUTTI_OK;
}

tutti_status tti_exec_gradient(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    *result = (tti_step_result){0};
    x->has_whole_ema = false;
    tti_exec_note(x, desc, "compute");
    if (x->device) return tti_exec_device_gradient(x, desc, result);
    TTI_TRY(compute(x, desc, false));
    if (x->divided) TTI_TRY(sum_pieces(x));
    TTI_TRY(tti_exec_exchange_sums(x, false));
    tti_exec_add_sums(x, result);
    result->bubble = x->pipe ? tti_pipe_bubble_measured(x->pipe) : 0;
    int bad = tti_exec_first_bad_shard(x);
    return bad < 0 ? TUTTI_OK : tti_exec_report_bad_loss(x, desc, bad);
}

int tti_exec_depth(const tti_exec *x) { return x->device ? tti_exec_device_depth(x) : 1; }

int tti_exec_steps_per_launch(const tti_exec *x) {
    return x->device ? tti_exec_device_steps_per_launch(x) : 1;
}

bool tti_exec_takes_bytes(const tti_exec *x) {
    const tti_device_ops *ops = x->desc.backend->device;
    return ops && ops->step.unpack;
}

const char *tti_exec_way(const tti_exec *x) { return x->device ? tti_exec_device_way(x) : ""; }

tutti_status tti_exec_keep(tti_exec *x, const tti_kept_samples *samples, int ahead, bool *kept) {
    *kept = false;
    return x->device ? tti_exec_device_keep(x, samples, ahead, kept) : TUTTI_OK;
}

tutti_status tti_exec_begin(tti_exec *x, const tti_step_desc *desc) {
    x->has_whole_ema = false;
    if (x->device) return tti_exec_device_begin(x, desc);
    TTI_ASSERT(!x->has_begun);
    x->begun = *desc;
    x->has_begun = true;
    return TUTTI_OK;
}

tutti_status tti_exec_end(tti_exec *x, tti_step_result *result) {
    if (x->device) return tti_exec_device_end(x, result);
    TTI_ASSERT(x->has_begun);
    x->has_begun = false;
    return step_on_host(x, &x->begun, result);
}

tutti_status tti_exec_step(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    *result = (tti_step_result){0};
    TTI_TRY(tti_exec_begin(x, desc));
    return tti_exec_end(x, result);
}

tutti_status tti_exec_eval(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    tti_exec_note(x, desc, "evaluate");
    if (x->ema && tti_exec_has_parts(x) && !tti_exec_has_lean_params(x))
        TTI_TRY(tti_zero_gather_ema(x));
    if (x->device && x->desc.server) TTI_TRY(tti_calls_of(x->desc.server)->bring_averages(x));
    if (x->offload) TTI_TRY(tti_offload_put_averages(x->offload));
    if (x->device) return tti_exec_device_eval(x, desc, result);
    tutti_status st = compute(x, desc, true), gathered = tti_host_finish(x, true);
    TTI_TRY(tti_exec_lane_status(x));
    TTI_TRY(st);
    TTI_TRY(gathered);
    TTI_TRY(tti_exec_exchange_sums(x, desc->vote));
    tti_exec_add_sums(x, result);
    return TUTTI_OK;
}
