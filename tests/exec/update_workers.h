/* update_workers.h - ranks as threads whose devices add gradients and update parameters, in two
 * ways: in separate kernels, and in one kernel as small models do.  Both must give the same bytes.
 */
#ifndef TTI_TESTS_EXEC_UPDATE_WORKERS_H
#define TTI_TESTS_EXEC_UPDATE_WORKERS_H

#include <math.h>
#include <stddef.h>

#include "base/philox.h"
#include "exec/peers_workers.h"
#include "ops/op_table.h"

enum {
    UPDATE_MAX_RANKS = 4,
    UPDATE_MAX_SHARDS = 16,
    UPDATE_MAX_PARTIALS = 8,
    UPDATE_MAX_TERMS = 32,
    UPDATE_MAX_SLOTS = 256,
    UPDATE_MAX_BLOCKS = 512,
    UPDATE_BLOCK = 16384,
    UPDATE_STEPS = 4,
    UPDATE_BAD_STEP = 2,
    UPDATE_STATES = 2
};

typedef struct update_workers {
    const tti_backend *backend;
    const char *optimizer;
    const double *attrs; /* of the op, in its order; NULL: as the op says */
    tti_shard_map shard_map;
    int n_slots;
    size_t n_elems[8];     /* of slots, over again where these are more */
    bool ema, bad;         /* bad: the loss of one step is not finite */
    tutti_dtype low_dtype; /* bf16, f16: every other slot is kept in that too; f32: none is */
    tutti_dtype wire;      /* bf16: every partial sum is rounded */
    int n_summed;          /* slots that are summed before the update */
    bool stays;            /* the device may say that it cannot: then nothing is compared */
} update_workers;

/* What one way comes to; all on the device. */
typedef struct update_side {
    float *params, *ema, *states[UPDATE_STATES];
    void *low_copies;
    double *sums;
    tti_step_report *report;
    void *update;
} update_side;

typedef struct update_rank {
    const update_workers *c;
    const tti_device_ops *ops;
    tutti_comm *comm;
    int rank, n_ranks, n_partials, n_terms, n_shards, n_reported;
    tti_device_term terms[UPDATE_MAX_TERMS];
    float *partials[UPDATE_MAX_PARTIALS];
    tti_step_args *args;
    tti_update_block blocks[UPDATE_MAX_BLOCKS];
    int n_blocks;
    size_t n_flat, n_bytes;
    tti_attr attrs[TTI_MAX_ATTRS];
    tti_node node;
    float *host;
    update_side sides[2]; /* in steps; in one go */
    void *group;
} update_rank;

/* ---- the model ---- */

static inline tti_block_kind update_kind(int slot) {
    if (slot % 7 == 3) return TTI_BLOCK_BUFFER;
    return slot % 7 == 5 ? TTI_BLOCK_FROZEN : TTI_BLOCK_TRAINED;
}

static inline void update_lay_out(update_rank *r) {
    for (int s = 0; s < r->c->n_slots; s++) {
        size_t n_elems = r->c->n_elems[s % 8], n_low = r->n_flat;
        for (size_t at = 0; at < n_elems; at += UPDATE_BLOCK) {
            size_t n = TTI_MIN(n_elems - at, (size_t)UPDATE_BLOCK), first = r->n_flat + at;
            TTI_ASSERT(r->n_blocks < UPDATE_MAX_BLOCKS);
            r->blocks[r->n_blocks++] =
                (tti_update_block){.hash_at = first,
                                   .hash_weight = (uint64_t)s % 3 - 1,
                                   .state = first,
                                   .params = first,
                                   .grads = first,
                                   .n_elems = (uint32_t)n,
                                   .slot = s,
                                   .lr_factor = s % 3 == 0 ? 0.5f : 1.0f,
                                   .decay = update_kind(s) == TTI_BLOCK_BUFFER ? 0.1f : 0.01f,
                                   .kind = update_kind(s),
                                   .is_own = 1,
                                   .is_here = 1,
                                   .has_low_copy = r->c->low_dtype != TUTTI_F32 && s % 2 == 0,
                                   .low_copy = n_low + at};
        }
        r->n_flat += (n_elems + 15) / 16 * 16;
    }
    r->n_bytes = r->n_flat * sizeof(float);
}

static inline void update_fill_node(update_rank *r) {
    const tti_op *op = tti_op_find(r->c->optimizer);
    TTI_ASSERT(op);
    for (int i = 0; op->attrs[i].name; i++) {
        double value = r->c->attrs ? r->c->attrs[i] : op->attrs[i].fallback;
        r->attrs[i] = (tti_attr){.i = (int64_t)value, .f = value};
    }
    r->node = (tti_node){.op = op, .attrs = r->attrs};
}

static inline const char *update_find_terms(update_rank *r) {
    tti_sum_order order;
    COMM_OK(tti_sum_order_shards(&r->c->shard_map, &order));
    r->n_terms = order.n_terms;
    r->n_partials = tti_sum_order_n_partials(&order, r->rank);
    COMM_TRUE(r->n_terms <= UPDATE_MAX_TERMS && r->n_partials <= UPDATE_MAX_PARTIALS);
    tti_device_terms(&order, r->terms);
    tti_sum_order_free(&order);
    return NULL;
}

/* ---- memory ---- */

static inline float update_value(uint64_t what, uint64_t where, size_t i) {
    tti_philox draw = tti_philox_draw(71, what * 1000 + where, i);
    return ldexpf(tti_philox_unit(draw.v[0]) - 0.5f, (int)(draw.v[1] % 12) - 6);
}

static inline const char *update_upload(const update_rank *r, float *array, uint64_t what,
                                        uint64_t where) {
    for (size_t i = 0; i < r->n_flat; i++) r->host[i] = update_value(what, where, i);
    COMM_OK(r->ops->queues.copy(TTI_QUEUE_COMPUTE, array, r->host, r->n_bytes));
    COMM_OK(r->ops->queues.sync());
    return NULL;
}

static inline const char *update_make_side(update_rank *r, update_side *s) {
    const tti_backend *b = r->c->backend;
    float **arrays[] = {&s->params, &s->states[0], &s->states[1], &s->ema};
    for (size_t i = 0; i < TTI_COUNT(arrays); i++) COMM_TRUE(*arrays[i] = b->alloc(r->n_bytes));
    COMM_TRUE(s->low_copies = b->alloc(r->n_bytes));
    COMM_TRUE(s->sums = b->alloc((size_t)r->n_reported * sizeof *s->sums));
    COMM_TRUE(s->report = b->alloc(sizeof *s->report));
    const char *failure = update_upload(r, s->params, 1, 0);
    if (!failure && r->c->ema) failure = update_upload(r, s->ema, 1, 0);
    if (failure) return failure;
    COMM_OK(r->ops->update.create(
        &(tti_update_desc){.node = &r->node,
                           .blocks = r->blocks,
                           .n_blocks = r->n_blocks,
                           .n_slots = r->c->n_slots,
                           .n_states = r->node.op->n_out - 1,
                           .n_sums = TTI_LOSS_SUMS,
                           .n_shards = r->n_shards,
                           .params = s->params,
                           .grads = r->partials[0],
                           .ema = r->c->ema ? s->ema : NULL,
                           .low_copies = r->c->low_dtype ? s->low_copies : NULL,
                           .low_dtype = r->c->low_dtype,
                           .states = s->states,
                           .args = r->args,
                           .sums = s->sums,
                           .report = s->report,
                           .ema_decay = r->c->ema ? 0.9 : 0},
        &s->update));
    return NULL;
}

static inline void update_free_side(update_rank *r, update_side *s) {
    const tti_backend *b = r->c->backend;
    r->ops->update.destroy(s->update);
    float *arrays[] = {s->params, s->states[0], s->states[1], s->ema};
    for (size_t i = 0; i < TTI_COUNT(arrays); i++) b->release(arrays[i], r->n_bytes);
    b->release(s->low_copies, r->n_bytes);
    b->release(s->sums, (size_t)r->n_reported * sizeof *s->sums);
    b->release(s->report, sizeof *s->report);
}

static inline const char *update_meet(update_rank *r) {
    COMM_OK(r->ops->collectives.connect(&(tti_device_peers){.rank = r->rank,
                                                            .n_ranks = r->n_ranks,
                                                            .timeout_ms = 20000,
                                                            .shown = r->rank,
                                                            .terms = r->terms,
                                                            .n_terms = r->n_terms,
                                                            .partials = r->partials,
                                                            .n_partials = r->n_partials,
                                                            .n_flat = r->n_flat,
                                                            .n_most = r->n_flat,
                                                            .n_words = 2 * (size_t)r->n_reported,
                                                            .wire = r->c->wire,
                                                            .algorithm = TTI_DEVICE_PEERS,
                                                            .user = r->comm,
                                                            .all_gather = workers_gather,
                                                            .check = workers_look},
                                        &r->group));
    return NULL;
}

static inline const char *update_make(update_rank *r) {
    const tti_backend *b = r->c->backend;
    r->n_shards = tti_shard_map_n_shards(&r->c->shard_map);
    r->n_reported = 3 * (r->n_shards + r->n_ranks);
    update_lay_out(r);
    update_fill_node(r);
    const char *failure = update_find_terms(r);
    if (failure) return failure;
    COMM_TRUE(r->host = calloc(1, r->n_bytes));
    COMM_TRUE(r->args = b->alloc(sizeof *r->args));
    for (int k = 0; k < r->n_partials; k++) COMM_TRUE(r->partials[k] = b->alloc(r->n_bytes));
    for (int i = 0; i < 2 && !failure; i++) failure = update_make_side(r, &r->sides[i]);
    return failure ? failure : update_meet(r);
}

static inline void update_free(update_rank *r) {
    const tti_backend *b = r->c->backend;
    r->ops->collectives.disconnect(r->group);
    for (int i = 0; i < 2; i++) update_free_side(r, &r->sides[i]);
    for (int k = 0; k < r->n_partials; k++) b->release(r->partials[k], r->n_bytes);
    b->release(r->args, sizeof *r->args);
    free(r->host);
}

/* ---- a step ---- */

/* What a rank has before the others are asked. */
static inline const char *update_feed(update_rank *r, update_side *s, int step) {
    double sums[3 * UPDATE_MAX_SHARDS];
    float t = (float)step + 1;
    tti_step_args args = {.step = (uint64_t)step,
                          .lr = 0.05f,
                          .loss_scale = 2,
                          .correction1 = 1 - powf(0.9f, t),
                          .correction2 = 1 - powf(0.999f, t),
                          .inv_rows = 1.0f / 24,
                          .vote = (uint32_t)r->rank % 2};
    for (int i = 0; i < 3 * r->n_shards; i++) sums[i] = i % 3 == 1 ? 3 : i + 0.25 * step;
    if (r->c->bad && step == UPDATE_BAD_STEP) sums[3 * (r->n_shards - 1)] = NAN;
    COMM_OK(r->ops->queues.copy(TTI_QUEUE_COMPUTE, r->args, &args, sizeof args));
    COMM_OK(r->ops->queues.copy(TTI_QUEUE_COMPUTE, s->sums, sums,
                                sizeof *sums * 3 * (size_t)r->n_shards));
    COMM_OK(r->ops->queues.sync());
    for (int k = 0; k < r->n_partials; k++) {
        uint64_t where = (uint64_t)(100 * step + 10 * r->rank + k);
        const char *failure = update_upload(r, r->partials[k], 2, where);
        if (failure) return failure;
    }
    COMM_OK(tutti_comm_barrier(r->comm));
    return NULL;
}

static inline tti_device_step_sums update_reported(const update_rank *r, const update_side *s) {
    return (tti_device_step_sums){.sums = s->sums,
                                  .args = r->args,
                                  .report = s->report,
                                  .n_sums = TTI_LOSS_SUMS,
                                  .n_shards = r->n_shards,
                                  .first_shard = tti_shard_map_first(&r->c->shard_map, r->rank),
                                  .last_shard = tti_shard_map_first(&r->c->shard_map, r->rank + 1),
                                  .rank = r->rank,
                                  .n_ranks = r->n_ranks};
}

/* Elements that are summed before the update of side 1. */
static inline size_t update_first(const update_rank *r) {
    for (int b = 0; b < r->n_blocks; b++)
        if (r->blocks[b].slot == r->c->n_summed) return r->blocks[b].grads;
    return 0;
}

static inline tutti_status update_joint(update_rank *r, const tti_device_step_sums *reported) {
    size_t first = update_first(r);
    if (first > 0) {
        TTI_TRY(r->ops->queues.order(TTI_QUEUE_COMM, TTI_QUEUE_COMPUTE));
        TTI_TRY(r->ops->collectives.all_reduce(r->group, 0, first, true));
        TTI_TRY(r->ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COMM));
    }
    return r->ops->fusions.update(r->group, r->sides[1].update, reported, first);
}

/* Side 0 in steps, side 1 in one go.  alone: not in a captured graph; then kernels of the update
 * may have to be loaded, which a kernel that waits for a peer must not see. */
static inline tutti_status update_put(update_rank *r, int side, bool alone) {
    const tti_device_ops *ops = r->ops;
    update_side *s = &r->sides[side];
    size_t n_words = 2 * (size_t)r->n_reported;
    tti_device_step_sums reported = update_reported(r, s);
    if (side == 1) return update_joint(r, &reported);
    TTI_TRY(ops->queues.order(TTI_QUEUE_COMM, TTI_QUEUE_COMPUTE));
    TTI_TRY(ops->collectives.all_reduce(r->group, 0, r->n_flat, false));
    TTI_TRY(ops->collectives.report_sums(&reported));
    TTI_TRY(ops->collectives.all_gather_words(r->group, s->sums, n_words, 0, n_words));
    TTI_TRY(ops->queues.order(TTI_QUEUE_COMPUTE, TTI_QUEUE_COMM));
    if (alone) TTI_TRY(ops->queues.sync());
    return ops->update.run(s->update);
}

static inline const char *update_record(update_rank *r, int side, int n_times,
                                        void **captured_graph) {
    tutti_status st = TUTTI_OK;
    COMM_OK(r->ops->queues.capture_begin());
    for (int i = 0; i < n_times && st == TUTTI_OK; i++) st = update_put(r, side, false);
    COMM_OK(r->ops->queues.capture_end(captured_graph));
    COMM_OK(st);
    return NULL;
}

static inline const char *update_settle(update_rank *r) {
    COMM_OK(r->ops->queues.record_host_event(TTI_QUEUE_COMPUTE, 0));
    COMM_OK(r->ops->collectives.await(r->group, 0));
    COMM_OK(r->ops->queues.sync());
    COMM_OK(tutti_comm_barrier(r->comm));
    return NULL;
}

static inline const char *update_compare(update_rank *r, const char *what, const void *a,
                                         const void *b, size_t n_bytes) {
    char *bytes[2] = {calloc(1, n_bytes + 1), calloc(1, n_bytes + 1)};
    const char *failure = NULL;
    size_t at = 0;
    COMM_TRUE(bytes[0] && bytes[1]);
    COMM_OK(r->ops->queues.copy(TTI_QUEUE_COMPUTE, bytes[0], a, n_bytes));
    COMM_OK(r->ops->queues.copy(TTI_QUEUE_COMPUTE, bytes[1], b, n_bytes));
    COMM_OK(r->ops->queues.sync());
    while (at < n_bytes && bytes[0][at] == bytes[1][at]) at++;
    if (at < n_bytes)
        failure = comm_text("rank %d: %s: byte %zu of %zu differs", r->rank, what, at, n_bytes);
    free(bytes[0]);
    free(bytes[1]);
    return failure;
}

/* Slots alone: what lies between them is nobody's. */
static inline const char *update_compare_arrays(update_rank *r, const char *what, const float *a,
                                                const float *b) {
    const char *failure = NULL;
    for (int i = 0; i < r->n_blocks && !failure; i++)
        failure = update_compare(r, what, a + r->blocks[i].params, b + r->blocks[i].params,
                                 r->blocks[i].n_elems * sizeof *a);
    return failure;
}

static inline const char *update_check(update_rank *r, int step) {
    const update_side *a = &r->sides[0], *b = &r->sides[1];
    const char *failure =
        update_compare(r, "report", a->report, b->report,
                       offsetof(tti_step_report, reported_ns)); /* not its times */
    size_t n_reported = (size_t)r->n_reported * sizeof *a->sums;
    tti_step_report report;
    if (!failure) failure = update_compare(r, "sums", a->sums, b->sums, n_reported);
    if (!failure) failure = update_compare_arrays(r, "parameters", a->params, b->params);
    for (int k = 0; k < r->node.op->n_out - 1 && !failure; k++)
        failure = update_compare_arrays(r, "state", a->states[k], b->states[k]);
    if (!failure && r->c->ema) failure = update_compare_arrays(r, "averages", a->ema, b->ema);
    if (!failure) failure = update_compare(r, "low", a->low_copies, b->low_copies, r->n_flat * 2);
    if (failure) return failure;
    COMM_OK(r->ops->queues.copy(TTI_QUEUE_COMPUTE, &report, b->report, sizeof report));
    COMM_OK(r->ops->queues.sync());
    bool is_bad = r->c->bad && step == UPDATE_BAD_STEP;
    COMM_TRUE(report.bad == (is_bad ? TTI_BAD_LOSS : 0));
    COMM_TRUE((report.params_hash == 0) == is_bad);
    return NULL;
}

/* The first step as it is, the others recorded. */
static inline const char *update_steps(update_rank *r) {
    void *captured_graphs[2] = {NULL, NULL};
    const char *failure = NULL;
    for (int step = 0; step < UPDATE_STEPS && !failure; step++) {
        for (int side = 0; side < 2 && !failure; side++) {
            if (step == 1) failure = update_record(r, side, 1, &captured_graphs[side]);
            if (!failure) failure = update_feed(r, &r->sides[side], step);
            if (failure) break;
            COMM_OK(step ? r->ops->queues.replay(captured_graphs[side])
                         : update_put(r, side, true));
            failure = update_settle(r);
        }
        if (!failure) failure = update_check(r, step);
        if (!failure) COMM_OK(tutti_comm_barrier(r->comm));
    }
    for (int side = 0; side < 2; side++)
        r->ops->queues.release_captured_graph(captured_graphs[side]);
    return failure;
}

static inline const char *update_rank_open(update_rank *r, tutti_comm *comm, void *arg) {
    const update_workers *c = arg;
    *r = (update_rank){.c = c,
                       .ops = c->backend->device,
                       .comm = comm,
                       .rank = tutti_comm_rank(comm),
                       .n_ranks = tutti_comm_n_ranks(comm)};
    COMM_OK(r->ops->open(&(tti_device_desc){.index = r->rank, .exact = true}));
    return update_make(r);
}

static inline const char *update_rank_main(tutti_comm *comm, void *arg) {
    update_rank r;
    const char *failure = update_rank_open(&r, comm, arg);
    bool can = false;
    if (!failure)
        COMM_OK(r.ops->fusions.can_update(r.group, r.sides[1].update, update_first(&r), &can));
    if (!failure && !can && !r.c->stays) failure = "peers_can_update says no";
    if (!failure && can && r.c->stays) failure = "peers_can_update says yes";
    if (!failure && can) failure = update_steps(&r);
    if (!failure) COMM_OK(tutti_comm_barrier(comm));
    update_free(&r);
    r.ops->close();
    return failure;
}

static inline void update_run_workers(update_workers *c, int n_ranks, int n_shards) {
    if (c->shard_map.n_ranks == 0) tti_shard_map_equally(n_ranks, n_shards, &c->shard_map);
    comm_run(n_ranks, update_rank_main, c);
}

#endif /* TTI_TESTS_EXEC_UPDATE_WORKERS_H */
