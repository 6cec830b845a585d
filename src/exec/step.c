/* step.c - one step of training on the host: compute, reduce, sums, update; and evaluation.
 *
 * Everything a result depends on is indexed by shard, never by rank or lane. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "comm/local_sum.h"
#include "comm/progress.h"
#include "comm/transport.h"
#include "exec/worker.h"

typedef struct dispatch {
    tti_exec *x;
    const tti_step_desc *desc;
    bool eval;
    tti_traffic *moves; /* of this wave */
} dispatch;

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

void tti_exec_lane_waited(tti_exec *x, int64_t t_ns) {
    tti_exec_waited(x, t_ns / TTI_MAX(x->n_in_flight, 1));
}

tutti_status tti_exec_get_spent(tti_exec *x, tti_exec_spent *spent) {
    *spent =
        (tti_exec_spent){.known = true,
                         .waited_ns = atomic_load_explicit(&x->waited_ns, memory_order_relaxed),
                         .copied_ns = x->copied_ns};
    return x->device ? tti_exec_device_get_waits(x, spent) : TUTTI_OK;
}

/* A wait that is told of. */
enum { SHORT_NS = 1000 };

/* user is the shard in flight. */
typedef struct flight {
    tti_exec *x;
    tti_lane *lane;
    int shard;
    bool report, timed;
    tti_traffic *moves;
    int last;        /* behind the steps of this range */
    int64_t last_ns; /* end of the step before */
} flight;

void tti_exec_time_step(tti_exec *x, const tti_lane *lane, int step, int shard, int64_t *last_ns) {
    int64_t now = tti_now_ns();
    const tti_node *node = x->desc.plan->shard.steps[step];
    bool exchanges = node->op->traits & TTI_COLLECTIVE;
    tti_span_kind kind = exchanges ? TTI_SPAN_LAYERS : TTI_SPAN_WORK;
    const tti_span what = {
        .part = tti_part_node(kind, node, tti_instance_kernel(lane->shard, step)),
        .shard = shard,
        .row = TTI_ROW_TRADE};
    if (exchanges)
        tti_profile_stall(x, &what, "waiting for an exchange", *last_ns, now);
    else
        tti_profile_add(x, TTI_ROW_COMPUTE, what.part, shard, *last_ns, now);
    *last_ns = tti_now_ns();
}

void tti_exec_await(tti_exec *x, tti_traffic *moves, int step, int shard, int64_t *last_ns) {
    int64_t start = tti_now_ns();
    tti_traffic_await(moves, step);
    int64_t now = tti_now_ns();
    tti_exec_lane_waited(x, now - start);
    if (!last_ns) return;
    if (now - *last_ns > SHORT_NS)
        tti_profile_add(x, TTI_ROW_COMPUTE, tti_part_wait("waiting for parameters or places"),
                        shard, *last_ns, now);
    *last_ns = now;
}

static void await(flight *f, int step) {
    tti_exec_await(f->x, f->moves, step, f->shard, f->timed ? &f->last_ns : NULL);
}

static void arrive(const flight *f, int step) {
    tti_traffic_arrive(f->moves, f->lane->reached = step);
}

/* At the end of its range the shards behind it have their turn first. */
static void reach(flight *f, int step) {
    arrive(f, step);
    if (step < f->last) await(f, step);
}

static void after_step(int step, void *user) {
    flight *f = user;
    if (f->timed) tti_exec_time_step(f->x, f->lane, step, f->shard, &f->last_ns);
    if (f->moves) reach(f, step + 1);
    if (f->report) tti_exec_tell_buckets(f->x, f->lane, step);
}

void tti_exec_tell_buckets(tti_exec *x, tti_lane *lane, int step) {
    const tti_plan *plan = x->desc.plan;
    while (lane->next_bucket < plan->n_buckets &&
           plan->buckets[lane->next_bucket].ready_after == step)
        tti_overlap_arrive(x->overlap, lane->next_bucket++);
}

void tti_exec_tell_rest(tti_exec *x, tti_lane *lane) {
    while (lane->next_bucket < x->desc.plan->n_buckets)
        tti_overlap_arrive(x->overlap, lane->next_bucket++);
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

/* As faults name it. */
static int number_of(const tti_exec *x) { return x->desc.comm ? x->rank : x->desc.server_worker; }

static void pass_fault(tti_exec *x, tti_lane *lane, uint64_t step) {
    if (TTI_FAULT_AT("exec.shard", number_of(x), (int64_t)step))
        tti_exec_lane_failed(x, lane,
                             tti_fail(TUTTI_E_INTERNAL,
                                      "exec: worker %d cannot compute a "
                                      "shard",
                                      number_of(x)));
}

/* A part of the program for one shard; the first part is fed, the last one leaves the sums. */
static void run_part(dispatch *d, tti_lane *lane, int shard, tti_range steps, bool report) {
    tti_exec *x = d->x;
    tti_instance *instance = d->eval ? lane->eval : lane->shard;
    int n_steps = d->eval ? x->desc.plan->eval.n_steps : x->desc.plan->shard.n_steps;
    if (steps.first == 0) {
        tti_exec_feed(x, instance, d->eval ? &x->eval_inputs : &x->shard_inputs,
                      &d->desc->shards[shard - x->first_shard]);
        lane->next_bucket = 0;
        if (!d->eval) pass_fault(x, lane, d->desc->step);
    }
    if (lane->status != TUTTI_OK) return;
    tti_run run = tti_exec_shard_run(x, d->desc, shard);
    flight f = {.x = x, .lane = lane, .shard = shard, .report = report, .moves = d->moves};
    f.timed = x->profile && !d->eval && lane == &x->lane[0];
    f.last_ns = f.timed ? tti_now_ns() : 0;
    f.last = (int)steps.last;
    if (f.moves && lane->reached < 0) arrive(&f, 0);
    if (f.moves) await(&f, (int)steps.first);
    bool looks = report || f.timed || f.moves;
    tutti_status st = tti_instance_run_range(instance, &run, (int)steps.first, (int)steps.last,
                                             looks ? after_step : NULL, &f);
    tti_exec_lane_waited(x, tti_instance_take_exchanged(instance));
    if (st != TUTTI_OK)
        tti_exec_lane_failed(x, lane, st);
    else if ((int)steps.last == n_steps)
        tti_exec_keep_sums(x, instance, shard);
}

void tti_exec_merge(tti_exec *x, const tti_wave *wave, size_t first, size_t last) {
    if (first >= last) return;
    for (int i = 0; i < wave->n_merges; i++) {
        const tti_merge *m = &x->acc.merges[wave->first_merge + i];
        x->desc.backend->accumulate(tti_exec_grads_at(x, m->dst, first),
                                    tti_exec_grads_at(x, m->src, first), last - first);
    }
}

/* Nor for its moves. */
static void leave_moves(const dispatch *d, const tti_lane *lane) {
    if (d->moves) tti_traffic_leave(d->moves, lane->reached + 1);
}

void tti_exec_point_at_buffer(const tti_exec *x, tti_instance *instance, int buffer) {
    if (x->lean && x->lean->is_short[buffer])
        tti_instance_set_grad_places(instance, x->buffers[buffer], &x->lean->grads);
    else
        tti_instance_set_grads(instance, x->buffers[buffer]);
}

/* Part p of the shard program lies between two joins. */
static tti_range part_steps(const tti_exec *x, int p) {
    size_t first = p > 0 ? (size_t)x->syncs[p - 1] + 1 : 0;
    size_t last = p < x->n_syncs ? (size_t)x->syncs[p] : (size_t)x->desc.plan->shard.n_steps;
    return (tti_range){first, last};
}

/* One that failed, or has nothing to do, keeps no move from being made. */
static void arrive_upto(const dispatch *d, tti_lane *lane, int step) {
    while (lane->reached < step) tti_traffic_arrive(d->moves, ++lane->reached);
}

/* Shards that are joined, with moves beside them: all shards of the lane come to where one of them
 * would wait before any does; joins are moves too. */
static void run_in_turns(dispatch *d, const tti_wave *wave, int lane) {
    tti_exec *x = d->x;
    int n_steps = d->eval ? x->desc.plan->eval.n_steps : x->desc.plan->shard.n_steps;
    for (int i = lane; i < wave->n_shards; i += x->desc.n_lanes) arrive_upto(d, &x->lane[i], 0);
    for (int first = 0, last; first < n_steps; first = last) {
        last = tti_traffic_next_stop(d->moves, first);
        bool is_join = !d->eval && tti_exec_is_join(x, first);
        for (int i = lane; i < wave->n_shards; i += x->desc.n_lanes) {
            if (!d->eval) tti_exec_point_at_buffer(x, x->lane[i].shard, wave->buffer[i]);
            tti_range steps = {(size_t)first, (size_t)last};
            if (!is_join) run_part(d, &x->lane[i], wave->first + i, steps, false);
            arrive_upto(d, &x->lane[i], last);
        }
    }
}

/* The wave's shards, dealt out to the lanes; all of them come to a join before any goes on. */
static void train_wave(dispatch *d, const tti_wave *wave, int lane, bool overlapped) {
    tti_exec *x = d->x;
    if (d->moves && x->n_syncs > 0) {
        run_in_turns(d, wave, lane);
        return;
    }
    for (int p = 0; p <= x->n_syncs; p++) {
        for (int i = lane; i < wave->n_shards; i += x->desc.n_lanes) {
            tti_exec_point_at_buffer(x, x->lane[i].shard, wave->buffer[i]);
            run_part(d, &x->lane[i], wave->first + i, part_steps(x, p), overlapped);
            if (overlapped) tti_exec_tell_rest(x, &x->lane[i]);
            leave_moves(d, &x->lane[i]);
        }
        if (p == x->n_syncs) return;
        tti_lanes_barrier(x->lanes);
        if (lane == 0) {
            tutti_status st = tti_exec_join(x, p);
            if (st != TUTTI_OK) tti_exec_lane_failed(x, &x->lane[0], st);
        }
        tti_lanes_barrier(x->lanes);
    }
}

static void eval_wave(dispatch *d, const tti_wave *wave, int lane) {
    tti_exec *x = d->x;
    tti_range all = {0, (size_t)x->desc.plan->eval.n_steps};
    if (d->moves && x->n_syncs > 0) {
        run_in_turns(d, wave, lane);
        return;
    }
    for (int i = lane; i < wave->n_shards; i += x->desc.n_lanes) {
        run_part(d, &x->lane[i], wave->first + i, all, false);
        leave_moves(d, &x->lane[i]);
    }
}

/* Shards of a wave, and what is added after it. */
static void run_wave(dispatch *d, const tti_wave *wave, int lane, bool is_last) {
    tti_exec *x = d->x;
    for (int i = lane; i < wave->n_shards; i += x->desc.n_lanes) x->lane[i].reached = -1;
    tti_range mine = tti_lane_range(x->desc.plan->n_flat, 16, lane, x->desc.n_lanes);
    if (d->eval) {
        eval_wave(d, wave, lane);
        return;
    }
    bool overlapped = x->overlap && is_last, moved = d->moves && is_last;
    train_wave(d, wave, lane, overlapped);
    tti_lanes_barrier(x->lanes);
    if (!overlapped && !moved) tti_exec_merge(x, wave, mine.first, mine.last);
    tti_lanes_barrier(x->lanes);
}

/* Every lane comes here: moves between workers go on beside a wave, from its begin to its end. */
static void run_moved_wave(dispatch *d, const tti_wave *wave, int lane, bool is_last) {
    tti_exec *x = d->x;
    if (lane == 0) d->moves = tti_lean_begin(x, d->eval, wave->n_shards, is_last);
    tti_lanes_barrier(x->lanes);
    run_wave(d, wave, lane, is_last);
    tti_lanes_barrier(x->lanes);
    if (lane > 0) return;
    int64_t start = tti_now_ns();
    tutti_status st = tti_lean_finish(x, d->eval);
    int64_t end = tti_now_ns();
    tti_exec_waited(x, end - start);
    tti_profile_add(x, TTI_ROW_COMPUTE, tti_part_wait("waiting for sums"), -1, start, end);
    if (st != TUTTI_OK) tti_exec_lane_failed(x, &x->lane[0], st);
}

static void compute_lane(int lane, void *arg) {
    static const tti_wave idle = {.n_shards = 0};
    dispatch *d = arg;
    tti_exec *x = d->x;
    for (int w = -tti_lean_idle_waves(x); w < x->acc.n_waves; w++) {
        const tti_wave *wave = w < 0 ? &idle : &x->acc.waves[w];
        bool is_last = w == x->acc.n_waves - 1;
        if (x->lean)
            run_moved_wave(d, wave, lane, is_last);
        else
            run_wave(d, wave, lane, is_last);
    }
}

static tutti_status compute(tti_exec *x, const tti_step_desc *desc, bool eval) {
    dispatch d = {.x = x, .desc = desc, .eval = eval};
    int worker = number_of(x);
    for (int i = 0; i < x->n_in_flight; i++) x->lane[i].status = TUTTI_OK;
    if (!eval && TTI_FAULT_AT("exec.compute", worker, (int64_t)desc->step))
        tti_exec_lane_failed(x, &x->lane[0],
                             tti_fail(TUTTI_E_INTERNAL, "exec: worker %d cannot compute", worker));
    x->loss_scale = desc->loss_scale > 0 ? (float)desc->loss_scale : 1.0f;
    memset(x->sums, 0, x->n_sums * sizeof *x->sums);
    if (x->overlap && !eval)
        tti_overlap_begin(x->overlap, x->acc.waves[x->acc.n_waves - 1].n_shards);
    if (x->pipe) return tti_pipe_compute(x, desc, eval);
    tti_lanes_run(x->lanes, compute_lane, &d);
    return tti_exec_lane_status(x);
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

/* Owners of parts need these alone, but of parameters that several stages add. */
static bool is_in_parts(const tti_exec *x, size_t first, size_t n_elems) {
    return tti_exec_divides(x) && !tti_pipe_has_tied(x, first, n_elems);
}

/* Fast mode: one sum per worker in any order, then the chosen all-reduce. */
static tutti_status reduce_fast(tti_exec *x, size_t first, size_t n_elems) {
    float *sum = tti_exec_grads_at(x, x->acc.piece_buffer[0], first);
    for (int i = 1; i < x->acc.n_pieces; i++)
        x->desc.backend->accumulate(sum, tti_exec_grads_at(x, x->acc.piece_buffer[i], first),
                                    n_elems);
    if (x->n_ranks == 1 || tti_local_is_on(x)) return TUTTI_OK;
    if (tti_compress_is_on(x)) return tti_compress_reduce(x, sum, first, n_elems);
    if (tti_exec_has_wire(x) && is_in_parts(x, first, n_elems))
        return reduce_rounded_part(x, sum, first, n_elems);
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
static tutti_status reduce_exact(tti_exec *x, size_t first, size_t n_elems) {
    bool in_parts = is_in_parts(x, first, n_elems);
    size_t bounds[TTI_MAX_RANKS + 1];
    if (in_parts) tti_zero_bounds(x, first, bounds);
    tti_piece pieces[TTI_MAX_PIECES];
    for (int i = 0; i < x->acc.n_pieces; i++) {
        pieces[i] = x->acc.pieces[i];
        pieces[i].data = tti_exec_grads_at(x, x->acc.piece_buffer[i], first);
    }
    tti_exec_count_pieces(x, n_elems, in_parts);
    return tti_comm_reduce_shards(x->desc.comm,
                                  &(tti_reduce_desc){.pieces = pieces,
                                                     .n_pieces = x->acc.n_pieces,
                                                     .dst = pieces[0].data,
                                                     .n_elems = n_elems,
                                                     .dtype = TUTTI_F32,
                                                     .n_shards = x->desc.n_shards,
                                                     .alg = alg_of_tree(x),
                                                     .bounds = in_parts ? bounds : NULL,
                                                     .deal = &x->deal});
}

tutti_status tti_exec_reduce(tti_exec *x, size_t first, size_t n_elems) {
    if (!x->desc.fast && x->n_ranks == 1) return TUTTI_OK;
    int64_t start = tti_now_ns();
    bool is_less = tti_exec_has_wire(x) || tti_compress_is_on(x); /* than f32 of all elements */
    bool by_tree = !x->desc.fast || (tti_exec_has_parts(x) && !is_less);
    TTI_TRY(by_tree ? reduce_exact(x, first, n_elems) : reduce_fast(x, first, n_elems));
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

static tutti_status reduce_all(tti_exec *x) {
    const tti_plan *plan = x->desc.plan;
    if (x->desc.server) return TUTTI_OK; /* it adds the pieces */
    if (x->lean) return TUTTI_OK;        /* done beside the last wave */
    if (x->overlap) return tti_overlap_finish(x->overlap);
    if (!tti_exec_divides(x) && !x->desc.mixed) return tti_exec_reduce(x, 0, plan->n_flat);
    for (int b = 0; b < plan->n_buckets; b++)
        TTI_TRY(tti_exec_reduce(x, plan->buckets[b].first, plan->buckets[b].n_elems));
    return TUTTI_OK;
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
    tutti_status reduced = reduce_all(x);
    if (st != TUTTI_OK) return tti_exec_lane_status(x);
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
    TTI_TRY(x->desc.server ? tti_server_step(x, desc, inv_count, result)
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

/* Of a part of the model a gradient is one piece: what several stages have is added up between them
 * when all shards here are. */
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
    return ops && ops->unpack;
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
    if (x->device && x->desc.server) TTI_TRY(tti_server_bring_averages(x));
    if (x->offload) TTI_TRY(tti_offload_put_averages(x->offload));
    if (x->device) return tti_exec_device_eval(x, desc, result);
    TTI_TRY(compute(x, desc, true));
    TTI_TRY(tti_exec_exchange_sums(x, desc->vote));
    tti_exec_add_sums(x, result);
    return TUTTI_OK;
}
