/* collective_test.c - workers of a tensor axis train what one worker would have: losses, norms and
 * parameters, alone and with workers that divide the batch. */
#include "exec/collective.h"

#include "exec/crew.h"

enum { STEPS = 4, MOST = 8, SIDE_CHANNELS = 8 };

static tutti_graph *blocks(bool training) { return net_blocks_of(SIDE_CHANNELS, training, false); }

static tutti_graph *mlp(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_gelu(g, tutti_linear(g, net_x(g), 16, "fc1"));
    x = tutti_dropout(g, x, 0.3, "drop");
    x = tutti_layer_norm(g, tutti_linear(g, x, 8, "fc2"), NULL, "norm");
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "fc3"));
}

/* Classes divide too. */
static tutti_graph *wide(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_relu(g, tutti_linear(g, net_x(g), 16, "fc1"));
    x = tutti_linear(g, x, 512, "fc2");
    return net_finish(g, x);
}

static tti_plan *plan_at(net_fn net, const tti_mesh_at *size, const tti_mesh_at *at) {
    static const tti_attr_arg attrs[] = {
        TTI_FLOAT("beta1", 0.9), TTI_FLOAT("beta2", 0.99), TTI_FLOAT("eps", 1e-5), {0}};
    tti_target target = net_fast;
    tti_plan *plan = NULL;
    target.n_tensor = size->tensor, target.tensor = at->tensor;
    if (size->stage > 1) target.n_stages = size->stage, target.stage = at->stage;
    target.n_chunks = 1;
    T_OK(tti_plan_create(&(tti_plan_desc){.train = net(true),
                                          .eval = net(false),
                                          .target = &target,
                                          .optimizer = "adam",
                                          .optimizer_attrs = attrs,
                                          .weight_decay = 0.01,
                                          .bucket_bytes = 1 << 10},
                         &plan));
    return plan;
}

static tti_plan *plan_of(net_fn net, int n, int index) {
    return plan_at(net, &(tti_mesh_at){1, 1, n}, &(tti_mesh_at){0, 0, index});
}

typedef struct grid {
    tti_mesh_at size;
    int n_lanes;           /* 0: 3 */
    bool uneven;           /* every other worker can have two lanes more */
    tti_plan *plans[MOST]; /* by rank in the model group */
    const tti_plan *whole;
    tti_step_result result[MOST][STEPS + 1]; /* the last one of evaluation */
    float *params;                           /* of the whole, in the places of its plan */
} grid;

static const char *train(grid *g, tti_exec *exec, int rank) {
    crew_batch *batch = crew_batch_new();
    const char *failure = NULL;
    for (int step = 0; step <= STEPS && !failure; step++) {
        crew_fill(batch, step);
        tti_step_desc desc = crew_step(batch, exec, step);
        desc.lr = 0.01;
        tutti_status st = step < STEPS ? tti_exec_step(exec, &desc, &g->result[rank][step])
                                       : tti_exec_eval(exec, &desc, &g->result[rank][step]);
        if (st != TUTTI_OK) failure = comm_text("step %d: %s", step, tutti_last_error());
    }
    if (!failure && tti_exec_check_params(exec, STEPS) != TUTTI_OK)
        failure = comm_text("%s", tutti_last_error());
    free(batch);
    return failure;
}

static const char *keep_whole(grid *g, tti_exec *exec) {
    for (int i = 0; i < g->whole->n_slots; i++) {
        const tti_slot *slot = &g->whole->slots[i];
        const float *data;
        COMM_OK(tti_exec_fetch_whole(exec, TTI_STATE_PARAMS, slot->param, &data));
        memcpy(g->params + slot->first, data, slot->n_elems * sizeof *data);
    }
    COMM_OK(tti_exec_serve_end(exec));
    return NULL;
}

static const char *grid_rank(tutti_comm *comm, void *arg) {
    grid *g = arg;
    tti_mesh mesh;
    tti_exec *exec;
    tti_exec_desc desc = {.backend = &tti_backend_cpu,
                          .n_shards = CREW_SHARDS,
                          .n_lanes = g->n_lanes ? g->n_lanes : 3,
                          .seed = 7,
                          .clip_norm = 0.5,
                          .beta1 = 0.9,
                          .beta2 = 0.99};
    int rank = comm ? tutti_comm_rank(comm) : 0;
    COMM_OK(tti_mesh_init(comm, &g->size, &mesh));
    desc.mesh = &mesh;
    desc.comm = mesh.data;
    desc.plan = g->plans[tti_mesh_model_rank(&mesh.size, &mesh.at)];
    if (g->uneven && rank % 2) desc.n_lanes += 2;
    COMM_OK(tti_exec_create(&desc, &exec));
    const char *failure = train(g, exec, rank);
    if (!failure && rank == 0) failure = keep_whole(g, exec);
    if (!failure && rank > 0 && tti_exec_serve(exec) != TUTTI_OK)
        failure = comm_text("serve: %s", tutti_last_error());
    tti_exec_destroy(exec);
    tti_mesh_fini(&mesh);
    return failure;
}

static void run(grid *g, net_fn net, const tti_plan *whole) {
    int n_model = tti_mesh_n_model(&g->size);
    for (int i = 0; i < n_model; i++) {
        tti_mesh_at at = tti_mesh_at_rank(&g->size, i);
        g->plans[i] = plan_at(net, &g->size, &at);
    }
    g->whole = whole ? whole : g->plans[0];
    g->params = calloc(g->whole->n_flat, sizeof *g->params);
    comm_run(g->size.data * n_model, grid_rank, g);
}

static grid run_grid(net_fn net, int n_data, int n_tensor, const tti_plan *whole) {
    grid g = {.size = {n_data, 1, n_tensor}};
    run(&g, net, whole);
    return g;
}

static void fini_grid(grid *g) {
    for (int i = 0; i < tti_mesh_n_model(&g->size); i++) tti_plan_destroy(g->plans[i]);
    free(g->params);
}

static void expect_same(const grid *g, const grid *one) {
    for (int rank = 0; rank < g->size.data * g->size.tensor; rank++)
        for (int s = 0; s <= STEPS; s++) {
            const tti_step_result *a = &g->result[rank][s], *b = &one->result[0][s];
            T_NEAR(a->loss_sum, b->loss_sum, 1e-5);
            T_NEAR(a->grad_norm, b->grad_norm, 1e-4);
            T_EQ((int)a->count, (int)b->count);
            T_EQ((int)a->correct, (int)b->correct);
            T_EQ(a->params_hash == g->result[0][s].params_hash, true);
        }
    for (size_t i = 0; i < one->whole->n_flat; i++) T_NEAR(g->params[i], one->params[i], 1e-4);
}

T_CASE(they_train_as_one) {
    T_UNUSED;
    static const net_fn nets[] = {mlp, blocks, wide};
    static const int sizes[][2] = {{1, 2}, {1, 4}, {2, 2}, {2, 4}};
    for (size_t i = 0; i < TTI_COUNT(nets); i++) {
        grid one = run_grid(nets[i], 1, 1, NULL);
        for (size_t s = 0; s < TTI_COUNT(sizes); s++) {
            grid g = run_grid(nets[i], sizes[s][0], sizes[s][1], one.whole);
            expect_same(&g, &one);
            assert_true(g.plans[0]->n_params < one.plans[0]->n_params);
            fini_grid(&g);
        }
        fini_grid(&one);
    }
}

/* The same sums in the same order, whatever comes between: the same bits again. */
T_CASE(they_do_so_again_with_the_same_bits) {
    T_UNUSED;
    tti_plan *whole = plan_of(blocks, 1, 0);
    grid a = run_grid(blocks, 1, 4, whole), b = run_grid(blocks, 2, 4, whole);
    for (int s = 0; s < STEPS; s++)
        assert_true(a.result[0][s].params_hash == b.result[0][s].params_hash);
    fini_grid(&a);
    fini_grid(&b);
    tti_plan_destroy(whole);
}

/* A shard on each lane, and each lane exchanges with its like: the bits of one lane, also where
 * workers could have unequally many, and in stages. */
T_CASE(lanes_exchange_beside_each_other) {
    T_UNUSED;
    static const tti_mesh_at sizes[] = {{1, 1, 2}, {2, 1, 2}, {1, 2, 2}};
    tti_plan *whole = plan_of(blocks, 1, 0);
    for (size_t i = 0; i < TTI_COUNT(sizes); i++) {
        grid one = {.size = sizes[i], .n_lanes = 1};
        run(&one, blocks, whole);
        static const grid others[] = {{.n_lanes = 4}, {.n_lanes = 2, .uneven = true}};
        for (size_t k = 0; k < TTI_COUNT(others); k++) {
            grid g = others[k];
            g.size = sizes[i];
            run(&g, blocks, whole);
            for (int s = 0; s <= STEPS; s++) {
                T_EQ(g.result[0][s].params_hash == one.result[0][s].params_hash, true);
                T_EQ(g.result[0][s].loss_sum == one.result[0][s].loss_sum, true);
            }
            assert_memory_equal(g.params, one.params, whole->n_flat * sizeof *g.params);
            fini_grid(&g);
        }
        fini_grid(&one);
    }
    tti_plan_destroy(whole);
}

T_CASE(a_plan_of_another_axis_is_refused) {
    T_UNUSED;
    tti_plan *plan = plan_of(mlp, 2, 1);
    tti_exec *exec;
    tti_exec_desc desc = {
        .plan = plan, .backend = &tti_backend_cpu, .n_shards = 1, .n_lanes = 1, .seed = 7};
    T_FAILS(tti_exec_create(&desc, &exec), TUTTI_E_INVALID, "wants to be worker 1 of 2 of an axis");
    tti_plan_destroy(plan);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_train_as_one),
        cmocka_unit_test(they_do_so_again_with_the_same_bits),
        cmocka_unit_test(lanes_exchange_beside_each_other),
        cmocka_unit_test(a_plan_of_another_axis_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
