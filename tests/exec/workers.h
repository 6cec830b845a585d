/* workers.h - ranks as threads that train a small network together, for the tests of exec. */
#ifndef TTI_TESTS_EXEC_WORKERS_H
#define TTI_TESTS_EXEC_WORKERS_H

#include "comm/ranks.h"
#include "exec/exec.h"
#include "passes/nets.h"

enum {
    WORKERS_MAX_RANKS = 8,
    WORKERS_MAX_STEPS = 8,
    WORKERS_SHARDS = 8,
    WORKERS_X = 3 * NET_SIDE * NET_SIDE
};

typedef struct workers workers;

/* What a rank does; NULL, or a text that stays valid. */
typedef const char *(*workers_fn)(workers *c, tti_exec *exec, int rank);

struct workers {
    net_fn net; /* NULL: plan is given */
    const tti_target *target;
    int n_ranks, n_compute_threads, n_steps;
    int timeout_ms;      /* of waits for each other; 0: 20 s */
    int n_shards;        /* 0: WORKERS_SHARDS */
    size_t bucket_bytes; /* 0: 1 MiB */
    tti_exec_desc exec;  /* alg, fast, reference, watch_gradients, clip_norm */
    workers_fn fn;       /* NULL: workers_train */
    tti_plan *plan;
    /* Results, by rank; params are owned, freed by workers_fini. */
    float *params[WORKERS_MAX_RANKS], *states[WORKERS_MAX_RANKS];
    tti_step_result result[WORKERS_MAX_RANKS][WORKERS_MAX_STEPS];
};

/* Layers of several blocks of the update beside small ones. */
static inline tutti_graph *net_wide(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_relu(g, tutti_linear(g, net_x(g), 260, "fc1"));
    x = tutti_relu(g, tutti_linear(g, x, 270, "fc2"));
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "fc3"));
}

/* The plan of a net with "sgd" of momentum 0.9, or with an optimizer that has Adam's numbers. */
static inline tti_plan *workers_plan(net_fn net, const char *optimizer, size_t bucket_bytes) {
    tti_attr_arg momentum[] = {TTI_FLOAT("momentum", 0.9), {0}};
    tti_attr_arg adam[] = {
        TTI_FLOAT("beta1", 0.9), TTI_FLOAT("beta2", 0.99), TTI_FLOAT("eps", 1e-8), {0}};
    tti_plan *plan = NULL;
    bool is_sgd = strcmp(optimizer, "sgd") == 0;
    T_OK(tti_plan_create(&(tti_plan_desc){.train = net(true),
                                          .eval = net(false),
                                          .target = &net_fast,
                                          .optimizer = optimizer,
                                          .optimizer_attrs = is_sgd ? momentum : adam,
                                          .weight_decay = 0.01,
                                          .bucket_bytes = bucket_bytes},
                         &plan));
    return plan;
}

/* Data of one step for all shards. */
typedef struct workers_batch {
    _Alignas(64) float x[WORKERS_SHARDS][NET_ROWS * WORKERS_X];
    _Alignas(64) int32_t target[WORKERS_SHARDS][NET_ROWS];
    tti_shard_data shards[WORKERS_SHARDS];
} workers_batch;

static inline void workers_fill(workers_batch *batch, int step) {
    for (uint64_t s = 0; s < WORKERS_SHARDS; s++) {
        for (uint64_t e = 0; e < NET_ROWS * WORKERS_X; e++)
            batch->x[s][e] =
                2 * tti_philox_unit(tti_philox_draw(17, (uint64_t)step, s << 32 | e).v[0]) - 1;
        for (int i = 0; i < NET_ROWS; i++)
            batch->target[s][i] = (int32_t)((s * 3 + (uint64_t)i + (uint64_t)step) % NET_CLASSES);
        batch->shards[s] = (tti_shard_data){batch->x[s], batch->target[s], NET_ROWS};
    }
}

static inline tti_step_desc workers_step(const workers_batch *batch, const tti_exec *exec,
                                         int step) {
    return (tti_step_desc){.step = (uint64_t)step,
                           .lr = 0.1,
                           .shards = batch->shards + tti_exec_first_shard(exec),
                           .shard_size = NET_ROWS,
                           .n_rows = NET_ROWS * WORKERS_SHARDS};
}

/* Aligned as the kernels want it; freed with free(). */
static inline workers_batch *workers_batch_new(void) {
    workers_batch *batch = aligned_alloc(64, (sizeof *batch + 63) / 64 * 64);
    if (!batch) abort();
    return batch;
}

static inline const char *workers_train(workers *c, tti_exec *exec, int rank) {
    workers_batch *batch = workers_batch_new();
    const char *failure = NULL;
    for (int step = 0; step < c->n_steps && !failure; step++) {
        workers_fill(batch, step);
        tti_step_desc desc = workers_step(batch, exec, step);
        if (tti_exec_step(exec, &desc, &c->result[rank][step]) != TUTTI_OK)
            failure = comm_text("step %d: %s", step, tutti_last_error());
    }
    free(batch);
    return failure;
}

static inline tutti_status workers_fetch(const workers *c, tti_exec *exec, int k, float **out) {
    *out = calloc(c->plan->n_flat + 1, sizeof(float));
    for (int i = 0; i < c->plan->n_slots; i++) {
        const tti_slot *slot = &c->plan->slots[i];
        const float *data;
        TTI_TRY(tti_exec_fetch(exec, k, slot->first, slot->n_elems, &data));
        memcpy(*out + slot->first, data, slot->n_elems * sizeof *data);
    }
    return TUTTI_OK;
}

/* The parameters and the first array of state, whole; if one is partitioned, only rank 0 gets it.
 */
static inline const char *workers_keep(workers *c, tti_exec *exec, int rank) {
    bool has_params = tti_exec_params(exec), has_state = tti_exec_state(exec, 0);
    if (rank == 0 || has_params)
        COMM_OK(workers_fetch(c, exec, TTI_STATE_PARAMS, &c->params[rank]));
    if (rank == 0 || has_state) COMM_OK(workers_fetch(c, exec, 0, &c->states[rank]));
    COMM_OK(rank == 0 ? tti_exec_serve_end(exec) : tti_exec_serve(exec));
    return NULL;
}

static inline const char *workers_rank(tutti_comm *comm, void *arg) {
    workers *c = arg;
    int rank = comm ? tutti_comm_rank(comm) : 0;
    tti_exec_desc desc = c->exec;
    desc.plan = c->plan;
    desc.backend = &tti_backend_cpu;
    desc.comm = comm;
    desc.n_shards = c->n_shards ? c->n_shards : WORKERS_SHARDS;
    desc.n_compute_threads = c->n_compute_threads;
    desc.server_worker = rank;
    desc.seed = 7;
    tti_exec *exec;
    COMM_OK(tti_exec_create(&desc, &exec));
    const char *failure = (c->fn ? c->fn : workers_train)(c, exec, rank);
    if (!failure) failure = workers_keep(c, exec, rank);
    tti_exec_destroy(exec);
    return failure;
}

static inline void workers_run(workers *c) {
    if (c->net) c->plan = net_plan(c->net, c->target, c->bucket_bytes ? c->bucket_bytes : 1 << 20);
    if (c->n_ranks > 1) {
        comm_run_with(c->n_ranks, false, c->timeout_ms, workers_rank, c);
        return;
    }
    const char *failure = workers_rank(NULL, c);
    if (failure) fail_msg("alone: %s", failure);
}

static inline tutti_status workers_memory_planned(const workers *c, int rank,
                                                  tti_exec_memory *planned) {
    tti_exec_desc desc = c->exec;
    desc.plan = c->plan;
    desc.backend = &tti_backend_cpu;
    desc.n_shards = c->n_shards ? c->n_shards : WORKERS_SHARDS;
    desc.n_compute_threads = c->n_compute_threads;
    return tti_exec_memory_plan(&desc, rank, c->n_ranks, planned);
}

/* What a worker has; fails where it is not what was planned. */
static inline const char *workers_memory(const workers *c, tti_exec *exec, int rank,
                                         tti_exec_memory *used) {
    tti_exec_memory planned;
    *used = tti_exec_memory_use(exec);
    COMM_OK(workers_memory_planned(c, rank, &planned));
    COMM_TRUE(memcmp(used, &planned, sizeof planned) == 0);
    return NULL;
}

static inline void workers_fini(workers *c) {
    for (int r = 0; r < WORKERS_MAX_RANKS; r++) {
        free(c->params[r]);
        free(c->states[r]);
    }
    tti_plan_destroy(c->plan);
}

/* The same bits of parameters, state and sums on every rank of c as on rank 0 of first. */
static inline void workers_expect_same(const workers *c, const workers *first) {
    size_t n_bytes = c->plan->n_flat * sizeof(float);
    for (int r = 0; r < c->n_ranks; r++) {
        for (int s = 0; s < c->n_steps; s++) {
            const tti_step_result *a = &c->result[r][s], *b = &first->result[0][s];
            bool same = a->loss_sum == b->loss_sum && a->count == b->count &&
                        a->correct == b->correct && a->grad_norm == b->grad_norm &&
                        a->params_hash == b->params_hash;
            if (!same)
                fail_msg("W %d, compute threads %d: rank %d, step %d differs: loss %.17g, %.17g",
                         c->n_ranks, c->n_compute_threads, r, s, a->loss_sum, b->loss_sum);
        }
        if (c->params[r]) assert_memory_equal(c->params[r], first->params[0], n_bytes);
        if (c->states[r]) assert_memory_equal(c->states[r], first->states[0], n_bytes);
    }
}

/* The largest difference between the parameters of two worker groups. */
static inline double workers_distance(const workers *a, const workers *b) {
    double distance = 0;
    for (int i = 0; i < a->plan->n_slots; i++) {
        const tti_slot *slot = &a->plan->slots[i];
        int other = tti_plan_find_slot(b->plan, slot->param->name);
        for (size_t e = 0; e < slot->n_elems; e++)
            distance = fmax(distance, fabs((double)a->params[0][slot->first + e] -
                                           (double)b->params[0][b->plan->slots[other].first + e]));
    }
    return distance;
}

/* Steps 0 and 2, and evaluations with the averages after each: the results of 1 and 3. */
static inline const char *workers_average(workers *c, tti_exec *exec, int rank) {
    workers_batch *batch = workers_batch_new();
    for (int step = 0; step < 4; step++) {
        workers_fill(batch, step);
        tti_step_desc desc = workers_step(batch, exec, step);
        tti_step_result *result = &c->result[rank][step];
        if (step % 2 == 0)
            COMM_OK(tti_exec_step(exec, &desc, result));
        else
            for (int i = 0; i < 2; i++) COMM_OK(tti_exec_eval(exec, &desc, result));
    }
    free(batch);
    return NULL;
}

/* Rebalanced before every step but the first, to more shards and to fewer; and evaluated. */
static inline const char *workers_train_rebalanced(workers *c, tti_exec *exec, int rank) {
    workers_batch *batch = workers_batch_new();
    COMM_TRUE(c->n_ranks == 1 || tti_exec_can_rebalance(exec));
    for (int step = 0; step < c->n_steps; step++) {
        tti_shard_map shard_map;
        const double weights[2][4] = {{1, 9, 1, 1}, {9, 1, 2, 1}};
        COMM_OK(tti_shard_map_by_weight(weights[step % 2], c->n_ranks, WORKERS_SHARDS, &shard_map));
        if (step > 0 && c->n_ranks > 1) {
            COMM_OK(tti_exec_rebalance(exec, &shard_map));
            COMM_TRUE(tti_exec_first_shard(exec) == tti_shard_map_first(&shard_map, rank));
            COMM_TRUE(tti_exec_last_shard(exec) == tti_shard_map_first(&shard_map, rank + 1));
        }
        tti_shard_map_free(&shard_map);
        workers_fill(batch, step);
        tti_step_desc desc = workers_step(batch, exec, step);
        COMM_OK(tti_exec_step(exec, &desc, &c->result[rank][step]));
        COMM_OK(tti_exec_eval(exec, &desc, &c->result[rank][step]));
    }
    free(batch);
    return NULL;
}

/* A worker alone, of seed 7, with averages. */
static inline tti_exec *workers_exec(const tti_plan *plan, int n_compute_threads) {
    tti_exec *exec;
    T_OK(tti_exec_create(&(tti_exec_desc){.plan = plan,
                                          .backend = &tti_backend_cpu,
                                          .n_shards = WORKERS_SHARDS,
                                          .n_compute_threads = n_compute_threads,
                                          .seed = 7,
                                          .ema = 0.5},
                         &exec));
    return exec;
}

/* Parameters of the whole of a divided model, in the places of its plan; others serve meanwhile. */
static inline const char *workers_keep_whole(tti_exec *exec, const tti_plan *whole, float *params) {
    for (int i = 0; i < whole->n_slots; i++) {
        const tti_slot *slot = &whole->slots[i];
        const float *data;
        COMM_OK(tti_exec_fetch_whole(exec, TTI_STATE_PARAMS, slot->param, &data));
        memcpy(params + slot->first, data, slot->n_elems * sizeof *data);
    }
    COMM_OK(tti_exec_serve_end(exec));
    return NULL;
}

#endif /* TTI_TESTS_EXEC_WORKERS_H */
