/* divided_test.c - a model that lies on several workers: in tensor shards, whole on each tensor
 * index, on two stages.  Counts, checkpoints and comparisons are those of the whole model. */
#include "exec/worker/divided.h"

#include "exec/worker/worker.h"
#include "exec/workers.h"

/* ---- a network of which each place of a 2 x 2 model group has its part ---- */

typedef struct part {
    int stage, tensor; /* -1: the whole network */
    tutti_init_kind init;
} part;

static tutti_value *cut_param(tutti_graph *g, const part *p, const char *name, tutti_shape shape,
                              int dim, int64_t groups) {
    bool is_whole = p->tensor < 0;
    if (!is_whole) shape.dim[dim] /= 2;
    return tti_emit(g, "param", name, &(tutti_value *){NULL}, 0,
                    (tti_attr_arg[]){TTI_INTS("dims", shape.n_dims, shape.dim),
                                     TTI_INT("init", p->init),
                                     TTI_FLOAT("b", 0.5),
                                     TTI_INT("decay", 1),
                                     TTI_INT("cut_dim", is_whole ? -1 : dim),
                                     TTI_INT("cut_n", is_whole ? 1 : 2),
                                     TTI_INT("cut_index", is_whole ? 0 : p->tensor),
                                     TTI_INT("cut_groups", is_whole ? 1 : groups),
                                     {0}});
}

static tutti_value *add_sum(tutti_graph *g, tutti_value *x, tutti_value *of) {
    return tutti_add(g, x, tutti_sum_to(g, of, &TUTTI_SHAPE(1)));
}

/* Parameters of stage 0 are a, of stage 1 b; both have "tied".  What is cut only adds its sum to
 * the logits, so that tensor shards that begin as zeros have the gradients of the whole. */
static tutti_graph *net_part(bool training, const part *p) {
    tutti_graph *g = tutti_graph_create(training);
    const tutti_init init = {.kind = p->init, .b = 0.5};
    tutti_value *x = tutti_linear(g, net_x(g), NET_CLASSES, "tied");
    if (p->stage != 1) {
        x = add_sum(g, x, cut_param(g, p, "a.packed", TUTTI_SHAPE(3, 12, 5), 1, 3));
        x = tutti_add(g, x, tutti_param(g, "a.bias", &TUTTI_SHAPE(NET_CLASSES), &init, false));
    }
    if (p->stage != 0) x = add_sum(g, x, cut_param(g, p, "b.rows", TUTTI_SHAPE(10, 7), 0, 1));
    return net_finish(g, x);
}

static tti_plan *plan_of(const part *p) {
    static const tti_attr_arg adam[] = {
        TTI_FLOAT("beta1", 0.9), TTI_FLOAT("beta2", 0.99), TTI_FLOAT("eps", 1e-8), {0}};
    tti_plan *plan = NULL;
    T_OK(tti_plan_create(&(tti_plan_desc){.train = net_part(true, p),
                                          .eval = net_part(false, p),
                                          .target = &net_fast,
                                          .optimizer = "lamb",
                                          .optimizer_attrs = adam,
                                          .weight_decay = 0.01,
                                          .bucket_bytes = 1 << 10},
                         &plan));
    return plan;
}

/* ---- its workers ---- */

typedef struct grid grid;
typedef const char *(*grid_fn)(grid *g, tti_exec *exec, const tti_mesh *mesh);

struct grid {
    tti_mesh_at size;
    tti_plan *whole, *parts[4]; /* parts: by rank in the model group */
    tti_exec_desc exec;
    grid_fn fn;
    tti_step_result result[WORKERS_MAX_RANKS];
    float *params; /* of the whole, in the places of its plan, after fn */
};

static const char *grid_rank(tutti_comm *comm, void *arg) {
    grid *g = arg;
    tti_mesh mesh;
    tti_exec *exec;
    tti_exec_desc desc = g->exec;
    COMM_OK(tti_mesh_init(comm, &g->size, &mesh));
    desc.mesh = &mesh;
    desc.comm = mesh.data;
    desc.plan = g->parts[tti_mesh_model_rank(&mesh.size, &mesh.at)];
    COMM_OK(tti_exec_create(&desc, &exec));
    const char *failure = g->fn ? g->fn(g, exec, &mesh) : NULL;
    if (!failure && tti_mesh_rank(&mesh.size, &mesh.at) == 0)
        failure = workers_keep_whole(exec, g->whole, g->params);
    else if (!failure && tti_exec_serve(exec) != TUTTI_OK)
        failure = comm_text("serve: %s", tutti_last_error());
    tti_exec_destroy(exec);
    tti_mesh_fini(&mesh);
    return failure;
}

static grid new_grid(tti_mesh_at size, tutti_init_kind init) {
    grid g = {.size = size,
              .exec = {.backend = &tti_backend_cpu,
                       .n_shards = WORKERS_SHARDS,
                       .n_compute_threads = 1,
                       .seed = 7,
                       .beta1 = 0.9,
                       .beta2 = 0.99}};
    g.whole = plan_of(&(part){-1, -1, init});
    for (int i = 0; i < tti_mesh_n_model(&size); i++) {
        tti_mesh_at at = tti_mesh_at_rank(&size, i);
        g.parts[i] = plan_of(
            &(part){size.stage > 1 ? at.stage : -1, size.tensor > 1 ? at.tensor : -1, init});
    }
    g.params = calloc(g.whole->n_flat, sizeof *g.params);
    return g;
}

static void run_grid(grid *g) {
    int n = g->size.data * tti_mesh_n_model(&g->size);
    comm_run(n, grid_rank, g);
}

static void free_grid(grid *g) {
    tti_plan_destroy(g->whole);
    for (int i = 0; i < 4; i++) tti_plan_destroy(g->parts[i]);
    free(g->params);
}

static const tti_mesh_at sizes[] = {{1, 1, 2}, {1, 2, 1}, {1, 2, 2}, {2, 1, 2}, {2, 2, 2}};

/* ---- first values, saving, loading ---- */

T_CASE(tensor_shards_begin_as_the_whole) {
    T_UNUSED;
    grid alone = new_grid((tti_mesh_at){1, 1, 1}, TUTTI_INIT_NORMAL);
    const char *failure = grid_rank(NULL, &alone);
    if (failure) fail_msg("alone: %s", failure);
    for (size_t i = 0; i < TTI_COUNT(sizes); i++) {
        grid g = new_grid(sizes[i], TUTTI_INIT_NORMAL);
        run_grid(&g);
        assert_memory_equal(g.params, alone.params, alone.whole->n_flat * sizeof(float));
        free_grid(&g);
    }
    free_grid(&alone);
}

static float reported(int k, const tti_slot *slot, size_t i) {
    return (float)(slot->first + i) + 0.25f * (float)k;
}

/* All workers load the whole state, as from a checkpoint; the first worker reads it back. */
static const char *store_and_fetch(grid *g, tti_exec *exec, const tti_mesh *mesh) {
    float data[512];
    for (int k = TTI_STATE_PARAMS; k < g->whole->n_states; k++)
        for (int s = 0; s < g->whole->n_slots; s++) {
            const tti_slot *slot = &g->whole->slots[s];
            COMM_TRUE(slot->n_elems <= TTI_COUNT(data));
            for (size_t i = 0; i < slot->n_elems; i++) data[i] = reported(k, slot, i);
            COMM_OK(tti_exec_store_whole(exec, k, slot->param, data));
        }
    COMM_OK(tti_exec_check_params(exec, 0));
    if (tti_mesh_rank(&mesh->size, &mesh->at) != 0) return NULL;
    for (int k = g->whole->n_states - 1; k >= TTI_STATE_PARAMS; k--)
        for (int s = 0; s < g->whole->n_slots; s++) {
            const tti_slot *slot = &g->whole->slots[s];
            const float *got;
            COMM_OK(tti_exec_fetch_whole(exec, k, slot->param, &got));
            for (size_t i = 0; i < slot->n_elems; i++) COMM_TRUE(got[i] == reported(k, slot, i));
        }
    return NULL;
}

T_CASE(the_whole_is_stored_and_fetched) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(sizes); i++)
        for (int zero = 0; zero < 2; zero++) {
            grid g = new_grid(sizes[i], TUTTI_INIT_NORMAL);
            g.exec.zero = zero;
            g.exec.ema = 0.5;
            g.fn = store_and_fetch;
            run_grid(&g);
            free_grid(&g);
        }
}

/* ---- a step ---- */

static const char *one_step(grid *g, tti_exec *exec, const tti_mesh *mesh) {
    int rank = tti_mesh_rank(&mesh->size, &mesh->at);
    workers_batch *batch = workers_batch_new();
    workers_fill(batch, 0);
    tti_step_desc desc = workers_step(batch, exec, 0);
    desc.vote = rank % 2 == 0;
    tutti_status st = tti_exec_step(exec, &desc, &g->result[rank]);
    free(batch);
    COMM_OK(st);
    uint64_t hash;
    COMM_OK(tti_exec_params_hash(exec, &hash));
    COMM_TRUE(hash == g->result[rank].own_hash);
    COMM_OK(tti_exec_whole_hash(exec, &hash));
    COMM_TRUE(hash == g->result[rank].params_hash);
    COMM_OK(tti_exec_check_params(exec, 1));
    return NULL;
}

/* Clipped by the norm over all tensor shards, in which what is tied counts once; scaled by the
 * norms of whole parameters. */
static void expect_step(grid *g, const grid *alone) {
    int n = g->size.data * tti_mesh_n_model(&g->size);
    for (int r = 0; r < n; r++) {
        T_EQ(g->result[r].n_votes, (n + 1) / 2);
        assert_true(g->result[r].loss_sum == g->result[0].loss_sum);
        assert_true(g->result[r].count == alone->result[0].count);
        assert_true(g->result[r].correct == g->result[0].correct);
        assert_true(g->result[r].grad_norm == g->result[0].grad_norm);
        assert_true(g->result[r].params_hash == g->result[0].params_hash);
    }
    T_NEAR(g->result[0].loss_sum, alone->result[0].loss_sum, 1e-6);
    T_NEAR(g->result[0].grad_norm, alone->result[0].grad_norm, 1e-6);
    for (size_t i = 0; i < alone->whole->n_flat; i++) T_NEAR(g->params[i], alone->params[i], 1e-6);
}

T_CASE(a_step_is_that_of_the_whole) {
    T_UNUSED;
    grid alone = new_grid((tti_mesh_at){1, 1, 1}, TUTTI_INIT_ZEROS);
    alone.exec.clip_norm = 0.01;
    alone.fn = one_step;
    const char *failure = grid_rank(NULL, &alone);
    if (failure) fail_msg("alone: %s", failure);
    assert_true(alone.result[0].grad_norm > 0.01);
    for (size_t i = 0; i < TTI_COUNT(sizes); i++) {
        grid g = new_grid(sizes[i], TUTTI_INIT_ZEROS);
        g.exec.clip_norm = 0.01;
        g.exec.zero = i % 2;
        g.fn = one_step;
        run_grid(&g);
        expect_step(&g, &alone);
        free_grid(&g);
    }
    free_grid(&alone);
}

/* ---- sums of squares of blocks, as a device's update hands them over ---- */

/* Each square is 1, of steps 2. */
static void fill_partials(tti_exec *x, size_t n_each) {
    const tti_plan *plan = tti_setup_of(x)->desc.plan;
    for (int i = 0; i < plan->n_updates; i++)
        for (size_t k = 0; k < n_each; k++)
            tti_update_partials(tti_update_of(x))[(size_t)i * n_each + k] =
                (double)(k + 1) * (double)plan->updates[i].n_elems;
}

static double sum_of_slot(const tti_exec *x, int slot, int k) {
    double sum = 0;
    for (int i = 0; i < tti_setup_of(x)->desc.plan->n_updates; i++)
        if (tti_setup_of(x)->desc.plan->updates[i].slot == slot)
            sum += tti_update_partials(tti_update_of(x))[2 * i + k];
    return sum;
}

static const char *complete_partials(grid *g, tti_exec *x, const tti_mesh *mesh) {
    const tti_plan *plan = tti_setup_of(x)->desc.plan;
    double want = 0, sum = 0;
    (void)mesh;
    for (int i = 0; i < g->whole->n_slots; i++) want += (double)g->whole->slots[i].n_elems;
    fill_partials(x, 1);
    COMM_OK(tti_divided_partials(tti_setup_of(x)->divided, plan, tti_update_of(x),
                                 (size_t)plan->n_updates));
    for (int i = 0; i < plan->n_updates; i++) sum += tti_update_partials(tti_update_of(x))[i];
    COMM_TRUE(sum == want);
    fill_partials(x, 2);
    COMM_OK(tti_divided_partials(tti_setup_of(x)->divided, plan, tti_update_of(x),
                                 2 * (size_t)plan->n_updates));
    for (int i = 0; i < plan->n_slots; i++) {
        int whole = tti_plan_find_slot(g->whole, plan->slots[i].param->name);
        double n_elems = (double)g->whole->slots[whole].n_elems;
        COMM_TRUE(sum_of_slot(x, i, 0) == n_elems && sum_of_slot(x, i, 1) == 2 * n_elems);
    }
    return NULL;
}

T_CASE(squares_of_blocks_become_those_of_the_whole) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(sizes); i++) {
        grid g = new_grid(sizes[i], TUTTI_INIT_NORMAL);
        g.fn = complete_partials;
        run_grid(&g);
        free_grid(&g);
    }
}

/* ---- faults ---- */

/* The bias is whole on both tensor indices: a bit of one of them flips. */
static const char *flip_and_check(grid *g, tti_exec *exec, const tti_mesh *mesh) {
    const tti_plan *plan = g->parts[tti_mesh_model_rank(&mesh->size, &mesh->at)];
    const tti_slot *slot = &plan->slots[tti_plan_find_slot(plan, "a.bias")];
    float *w = tti_exec_params(exec) + slot->first;
    if (mesh->at.tensor == 1) w[2] += 1;
    COMM_FAILS(tti_exec_check_params(exec, 3), TUTTI_E_MISMATCH,
               mesh->at.tensor ? "'a.bias' differs between rank 1 and rank 0"
                               : "'a.bias' differs between rank 0 and rank 1");
    if (mesh->at.tensor == 1) w[2] -= 1;
    return NULL;
}

T_CASE(equal_tensor_shards_are_compared) {
    T_UNUSED;
    grid g = new_grid((tti_mesh_at){1, 1, 2}, TUTTI_INIT_NORMAL);
    g.fn = flip_and_check;
    run_grid(&g);
    free_grid(&g);
}

/* Not finite on one tensor rank is a step left out on all. */
static const char *not_finite(grid *g, tti_exec *exec, const tti_mesh *mesh) {
    int rank = tti_mesh_rank(&mesh->size, &mesh->at);
    const tti_plan *plan = g->parts[rank];
    workers_batch *batch = workers_batch_new();
    workers_fill(batch, 0);
    for (int s = 0; s < WORKERS_SHARDS; s++) batch->x[s][1] = INFINITY;
    tti_step_desc desc = workers_step(batch, exec, 0);
    tutti_status st = tti_exec_step(exec, &desc, &g->result[rank]);
    free(batch);
    COMM_FAILS(st, TUTTI_E_NUMERICS,
               "the loss is not finite (shard 0 of 8, first in linear 'tied')");
    COMM_TRUE(g->result[rank].skipped && plan->n_slots > 0);
    return NULL;
}

T_CASE(what_is_not_finite_is_left_out_by_all) {
    T_UNUSED;
    grid g = new_grid((tti_mesh_at){1, 2, 2}, TUTTI_INIT_NORMAL);
    g.fn = not_finite;
    run_grid(&g);
    free_grid(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensor_shards_begin_as_the_whole),
        cmocka_unit_test(the_whole_is_stored_and_fetched),
        cmocka_unit_test(a_step_is_that_of_the_whole),
        cmocka_unit_test(squares_of_blocks_become_those_of_the_whole),
        cmocka_unit_test(equal_tensor_shards_are_compared),
        cmocka_unit_test(what_is_not_finite_is_left_out_by_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
