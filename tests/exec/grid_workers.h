/* grid_workers.h - workers of every place of a divided model that train a small network together,
 * for the tests of exec. */
#ifndef TTI_TESTS_EXEC_GRID_WORKERS_H
#define TTI_TESTS_EXEC_GRID_WORKERS_H

#include "exec/workers.h"

enum { GRID_STEPS = 4, GRID_MOST = 8 };

/* The part of a place of the model, trained with Adam, or another optimizer without attributes. */
static inline tti_plan *grid_plan(net_fn net, const tti_mesh_at *size, const tti_mesh_at *at,
                                  const char *other, int n_chunks) {
    static const tti_attr_arg attrs[] = {
        TTI_FLOAT("beta1", 0.9), TTI_FLOAT("beta2", 0.99), TTI_FLOAT("eps", 1e-5), {0}};
    tti_target target = net_fast;
    tti_plan *plan = NULL;
    target.n_tensor = size->tensor, target.tensor = at->tensor;
    if (size->stage > 1) target.n_stages = size->stage, target.stage = at->stage;
    target.n_chunks = n_chunks;
    T_OK(tti_plan_create(&(tti_plan_desc){.train = net(true),
                                          .eval = net(false),
                                          .target = &target,
                                          .optimizer = other ? other : "adam",
                                          .optimizer_attrs = other ? NULL : attrs,
                                          .weight_decay = 0.01,
                                          .bucket_bytes = 1 << 10},
                         &plan));
    return plan;
}

typedef struct grid {
    tti_mesh_at size;
    const tti_backend *devices; /* each worker has one of its own; NULL: on the host */
    const char *optimizer;      /* NULL: Adam */
    int n_compute_threads;      /* 0: 3 */
    int n_chunks;               /* of stages; 0: 1 */
    bool uneven;                /* every other worker can have two compute threads more */
    tti_exec_desc exec;         /* zero, fast, wire, compression, local and what belongs to them */
    int average_every;          /* with exec.local */
    bool may_differ;            /* memory from what is planned: compute threads do */
    bool may_fail;              /* a step; then why: */
    const char *failure[GRID_MOST];
    tti_plan *plans[GRID_MOST]; /* by rank in the model group */
    const tti_plan *whole;
    tti_step_result result[GRID_MOST][GRID_STEPS + 1]; /* the last one of evaluation */
    float *params;                                     /* of the whole, in the places of its plan */
} grid;

static inline const char *grid_train(grid *g, tti_exec *exec, int rank) {
    workers_batch *batch = workers_batch_new();
    const char *failure = NULL;
    for (int step = 0; step <= GRID_STEPS && !failure; step++) {
        workers_fill(batch, step);
        tti_step_desc desc = workers_step(batch, exec, step);
        desc.lr = 0.01;
        desc.average = g->average_every > 0 && (step + 1) % g->average_every == 0;
        tutti_status st = step < GRID_STEPS ? tti_exec_step(exec, &desc, &g->result[rank][step])
                                            : tti_exec_eval(exec, &desc, &g->result[rank][step]);
        if (st != TUTTI_OK) failure = comm_text("step %d: %s", step, tutti_last_error());
    }
    if (!failure && tti_exec_check_params(exec, GRID_STEPS) != TUTTI_OK)
        failure = comm_text("%s", tutti_last_error());
    free(batch);
    return failure;
}

static inline const char *grid_compare_memory(const tti_exec *exec, const tti_exec_desc *desc) {
    tti_exec_memory used = tti_exec_memory_use(exec), planned;
    COMM_OK(tti_exec_memory_plan(desc, tutti_comm_rank(desc->comm), tutti_comm_n_ranks(desc->comm),
                                 &planned));
    COMM_TRUE(used.arena == planned.arena && used.mailbox == planned.mailbox);
    COMM_TRUE(used.params == planned.params && used.states == planned.states);
    COMM_TRUE(used.grads == planned.grads && used.gathered == planned.gathered);
    return NULL;
}

static inline const char *grid_rank(tutti_comm *comm, void *arg) {
    grid *g = arg;
    tti_mesh mesh;
    tti_exec *exec;
    tti_exec_desc desc = g->exec;
    desc.backend = &tti_backend_cpu;
    desc.n_shards = WORKERS_SHARDS;
    desc.n_compute_threads = g->n_compute_threads ? g->n_compute_threads : 3;
    desc.seed = 7;
    desc.clip_norm = 0.5;
    desc.beta1 = 0.9;
    desc.beta2 = 0.99;
    int rank = comm ? tutti_comm_rank(comm) : 0;
    if (g->devices) {
        desc.backend = g->devices;
        desc.device.index = rank;
        desc.n_compute_threads = 1;
    }
    COMM_OK(tti_mesh_init(comm, &g->size, &mesh));
    desc.mesh = &mesh;
    desc.comm = mesh.data;
    desc.plan = g->plans[tti_mesh_model_rank(&mesh.size, &mesh.at)];
    if (g->uneven && rank % 2) desc.n_compute_threads += 2;
    COMM_OK(tti_exec_create(&desc, &exec));
    const char *failure = grid_train(g, exec, rank);
    if (g->may_fail) {
        g->failure[rank] = failure;
        tti_exec_destroy(exec);
        tti_mesh_fini(&mesh);
        return NULL;
    }
    if (!failure && tti_exec_pull(exec) != TUTTI_OK) failure = comm_text("%s", tutti_last_error());
    if (!failure && rank == 0) failure = workers_keep_whole(exec, g->whole, g->params);
    if (!failure && rank > 0 && tti_exec_serve(exec) != TUTTI_OK)
        failure = comm_text("serve: %s", tutti_last_error());
    if (!failure && desc.comm && !g->may_differ) failure = grid_compare_memory(exec, &desc);
    tti_exec_destroy(exec);
    tti_mesh_fini(&mesh);
    return failure;
}

/* whole: of the undivided model, NULL: this is one. */
static inline void grid_run(grid *g, net_fn net, const tti_plan *whole) {
    int n_model = tti_mesh_n_model(&g->size);
    for (int i = 0; i < n_model; i++) {
        tti_mesh_at at = tti_mesh_at_rank(&g->size, i);
        g->plans[i] = grid_plan(net, &g->size, &at, g->optimizer, TTI_MAX(g->n_chunks, 1));
    }
    g->whole = whole ? whole : g->plans[0];
    g->params = calloc(g->whole->n_flat, sizeof *g->params);
    comm_run(g->size.data * n_model, grid_rank, g);
}

static inline void grid_fini(grid *g) {
    for (int i = 0; i < tti_mesh_n_model(&g->size); i++) tti_plan_destroy(g->plans[i]);
    free(g->params);
}

/* The losses, norms and parameters of one, within rounding; one hash on all workers. */
static inline void grid_expect_near(const grid *g, const grid *one) {
    for (int rank = 0; rank < g->size.data * tti_mesh_n_model(&g->size); rank++)
        for (int s = 0; s <= GRID_STEPS; s++) {
            const tti_step_result *a = &g->result[rank][s], *b = &one->result[0][s];
            T_NEAR(a->loss_sum, b->loss_sum, 1e-5);
            T_NEAR(a->grad_norm, b->grad_norm, 1e-4);
            T_EQ((int)a->count, (int)b->count);
            T_EQ((int)a->correct, (int)b->correct);
            T_EQ(a->params_hash == g->result[0][s].params_hash, true);
        }
    for (size_t i = 0; i < one->whole->n_flat; i++) T_NEAR(g->params[i], one->params[i], 1e-4);
}

/* The bits of another run of the same parts; own_steps: workers of it have steps of their own. */
static inline void grid_expect_bits(const grid *g, const grid *other, bool own_steps) {
    for (int rank = 0; rank < g->size.data * tti_mesh_n_model(&g->size); rank++)
        for (int s = 0; s <= GRID_STEPS; s++) {
            const tti_step_result *a = &g->result[rank][s];
            const tti_step_result *b = &other->result[own_steps ? rank : 0][s];
            assert_true(a->loss_sum == b->loss_sum && a->grad_norm == b->grad_norm);
            assert_true(a->params_hash == b->params_hash);
        }
    assert_memory_equal(g->params, other->params, g->whole->n_flat * sizeof *g->params);
}

static inline void grid_expect_same(const grid *g, const grid *other) {
    grid_expect_bits(g, other, false);
}

#endif /* TTI_TESTS_EXEC_GRID_WORKERS_H */
