/* pipe_test.c - stages of a pipeline train as one worker does: losses and parameters after some
 * steps, alone and with workers that divide the batch, and how long they wait for each other. */
#include "exec/worker/pipe.h"

#include <math.h>
#include <stdlib.h>

#include "base/fault.h"
#include "comm/mesh.h"
#include "exec/host/host.h"
#include "exec/worker/worker.h"
#include "exec/workers.h"

enum { N_STEPS = 6 };

typedef struct pipeline {
    net_fn net;
    int nan_step; /* a sample of shard 5 is a NaN in that step, > 0; 0: none */
    tti_mesh_at size;
    int n_chunks, n_compute_threads, n_shards, n_steps; /* 0: as most */
    bool recompute, bf16, may_fail, zero;
    size_t
        bucket_bytes; /* 0: one bucket; else they are reduced beside the last micro-batch group */
    double clip_norm;
    tti_plan *plan[4]; /* by stage */
    float *params[WORKERS_MAX_RANKS];
    tti_step_result result[WORKERS_MAX_RANKS][N_STEPS], eval[WORKERS_MAX_RANKS];
    double expected_bubble;
    const char *failure[WORKERS_MAX_RANKS];
    tti_exec_memory planned[WORKERS_MAX_RANKS], used[WORKERS_MAX_RANKS];
} pipeline;

static tti_plan *plan_of(const pipeline *p, int stage) {
    tti_target target = p->bf16 ? net_plain : net_fast;
    target.stage = stage;
    target.n_stages = p->size.stage;
    target.n_chunks = p->n_chunks;
    if (p->bf16) target.compute_dtype = TUTTI_BF16;
    target.recompute = p->recompute ? TTI_RECOMPUTE_BLOCK : TTI_RECOMPUTE_NONE;
    return net_plan(p->net, &target, p->bucket_bytes ? p->bucket_bytes : 1 << 20);
}

static const char *train(pipeline *p, tti_exec *exec, int rank) {
    workers_batch *batch = workers_batch_new();
    const char *failure = NULL;
    for (int step = 0; step < p->n_steps && !failure; step++) {
        workers_fill(batch, step);
        bool bad = p->nan_step > 0 && step == p->nan_step;
        if (bad) batch->x[5][8] = NAN;
        tti_step_desc desc = workers_step(batch, exec, step);
        tutti_status st = tti_exec_step(exec, &desc, &p->result[rank][step]);
        const char *want = "the loss is not finite (shard 5 of 8, first in ", *text = "";
        if (bad && st == TUTTI_E_NUMERICS) text = tutti_last_error();
        if (bad ? !strstr(text, want) || !strstr(text, "linear 'fc0')") : st != TUTTI_OK)
            failure = comm_text("step %d: %s", step, tutti_last_error());
    }
    tti_step_desc desc = workers_step(batch, exec, N_STEPS);
    if (!failure && tti_exec_eval(exec, &desc, &p->eval[rank]) != TUTTI_OK)
        failure = comm_text("evaluation: %s", tutti_last_error());
    if (rank == 0) p->expected_bubble = tti_exec_expected_bubble(exec);
    free(batch);
    return failure;
}

static const char *rank_main(tutti_comm *world, void *arg) {
    pipeline *p = arg;
    tti_mesh mesh;
    COMM_OK(tti_mesh_init(world, &p->size, &mesh));
    int rank = tutti_comm_rank(world);
    tti_exec_desc desc = {.plan = p->plan[mesh.at.stage],
                          .backend = &tti_backend_cpu,
                          .comm = mesh.data,
                          .mesh = &mesh,
                          .n_shards = p->n_shards,
                          .n_compute_threads = p->n_compute_threads,
                          .clip_norm = p->clip_norm,
                          .zero = p->zero,
                          .seed = 7};
    tti_exec *exec;
    COMM_OK(tti_exec_memory_plan(&desc, mesh.at.data, mesh.size.data, &p->planned[rank]));
    COMM_OK(tti_exec_create(&desc, &exec));
    COMM_TRUE(tti_host_program(tti_host_of(exec), TTI_FORM_STEP)->has_comm ==
              (desc.plan->n_buckets > 1 && p->size.data > 1));
    COMM_TRUE(desc.plan->n_buckets > 1 || p->bucket_bytes == 0);
    const char *failure = train(p, exec, rank);
    p->used[rank] = tti_exec_memory_use(exec);
    size_t n_bytes = desc.plan->n_flat * sizeof(float);
    p->params[rank] = malloc(n_bytes + 1);
    memcpy(p->params[rank], tti_exec_params(exec), n_bytes);
    tti_exec_destroy(exec);
    tti_mesh_fini(&mesh);
    p->failure[rank] = failure;
    return p->may_fail ? NULL : failure;
}

static void run(pipeline *p) {
    if (p->n_chunks == 0) p->n_chunks = 1;
    if (p->n_compute_threads == 0) p->n_compute_threads = 1;
    if (p->n_steps == 0) p->n_steps = N_STEPS;
    if (p->n_shards == 0) p->n_shards = WORKERS_SHARDS;
    if (p->size.data == 0) p->size.data = 1;
    if (p->size.tensor == 0) p->size.tensor = 1;
    for (int s = 0; s < p->size.stage; s++) p->plan[s] = plan_of(p, s);
    comm_run(p->size.stage * p->size.data, rank_main, p);
}

static void fini(pipeline *p) {
    for (int s = 0; s < p->size.stage; s++) tti_plan_destroy(p->plan[s]);
    for (int r = 0; r < WORKERS_MAX_RANKS; r++) free(p->params[r]);
}

/* The last result is that of an evaluation. */
static const char *train_alone(workers *c, tti_exec *exec, int rank) {
    const char *failure = workers_train(c, exec, rank);
    workers_batch *batch = workers_batch_new();
    workers_fill(batch, N_STEPS - 1);
    tti_step_desc desc = workers_step(batch, exec, N_STEPS);
    if (!failure && tti_exec_eval(exec, &desc, &c->result[rank][N_STEPS]) != TUTTI_OK)
        failure = comm_text("evaluation: %s", tutti_last_error());
    free(batch);
    return failure;
}

static workers alone(net_fn net, const tti_target *target, double clip_norm) {
    workers c = {
        .net = net, .target = target, .n_ranks = 1, .n_compute_threads = 1, .n_steps = N_STEPS};
    c.exec.clip_norm = clip_norm;
    c.fn = train_alone;
    workers_run(&c);
    return c;
}

/* Every parameter of every rank is as far from the one worker's as tol says. */
static void expect_params(const pipeline *p, const workers *one, double tol) {
    int n_slots = 0;
    for (int rank = 0; rank < p->size.data * p->size.stage; rank++) {
        const tti_plan *plan = p->plan[rank % p->size.stage];
        for (int i = 0; i < plan->n_slots; i++) {
            const tti_slot *slot = &plan->slots[i];
            int other = tti_plan_find_slot(one->plan, slot->param->name);
            assert_true(other >= 0);
            for (size_t e = 0; e < slot->n_elems; e++)
                T_NEAR(p->params[rank][slot->first + e],
                       one->params[0][one->plan->slots[other].first + e], tol);
            n_slots += rank < p->size.stage && !slot->is_copy;
        }
    }
    T_EQ(n_slots, one->plan->n_slots);
}

static void expect_losses(const pipeline *p, const workers *one, double tol) {
    for (int rank = 0; rank < p->size.data * p->size.stage; rank++)
        for (int s = 0; s < N_STEPS; s++) {
            T_NEAR(p->result[rank][s].loss_sum, one->result[0][s].loss_sum, tol);
            T_NEAR(p->result[rank][s].grad_norm, one->result[0][s].grad_norm, 1e-6);
            T_NEAR(p->result[rank][s].count, one->result[0][s].count, 0);
            T_NEAR(p->result[rank][s].correct, one->result[0][s].correct, 0);
        }
    for (int rank = 0; rank < p->size.data * p->size.stage; rank++) {
        T_NEAR(p->eval[rank].loss_sum, one->result[0][N_STEPS].loss_sum, tol);
        T_NEAR(p->eval[rank].count, one->result[0][N_STEPS].count, 0);
    }
}

static tutti_graph *blocks(bool training) { return net_blocks(training, false); }

/* A model without shared parameters has the bits of one worker: a cut changes no operation. */
T_CASE(stages_have_the_bits_of_one_worker) {
    T_UNUSED;
    static const net_fn nets[] = {net_lenet, blocks};
    for (size_t i = 0; i < TTI_COUNT(nets); i++) {
        workers one = alone(nets[i], &net_fast, 0);
        static const pipeline all[] = {
            {.size = {.stage = 2}},
            {.size = {.stage = 4}},
            {.size = {.stage = 2}, .n_chunks = 2},
            {.size = {.stage = 2}, .n_compute_threads = 2},
            {.size = {.stage = 3}, .n_compute_threads = 3},
            {.size = {.stage = 2}, .recompute = true},
            {.size = {.stage = 2, .data = 2}},
            {.size = {.stage = 2, .data = 4}, .n_compute_threads = 2},
            {.size = {.stage = 2, .data = 2}, .zero = true},
            {.size = {.stage = 2, .data = 2}, .bucket_bytes = 64},
            {.size = {.stage = 2, .data = 2}, .bucket_bytes = 64, .zero = true},
            {.size = {.stage = 2, .data = 2},
             .bucket_bytes = 64,
             .n_chunks = 2,
             .n_compute_threads = 2},
            {.size = {.stage = 2, .data = 2}, .bucket_bytes = 64, .n_compute_threads = 3},
        };
        for (size_t k = 0; k < TTI_COUNT(all); k++) {
            pipeline p = all[k];
            p.net = nets[i];
            run(&p);
            expect_losses(&p, &one, 0);
            expect_params(&p, &one, 0);
            fini(&p);
        }
        workers_fini(&one);
    }
}

/* A shared parameter's gradients are added over shards first, then over stages. */
T_CASE(shared_parameters_stay_the_same_on_their_stages) {
    T_UNUSED;
    workers one = alone(net_knots, &net_fast, 0);
    for (int data = 1; data <= 2; data++)
        for (int stages = 2; stages <= 4; stages++) {
            pipeline p = {
                .net = net_knots, .size = {.stage = stages, .data = data}, .zero = data > 1};
            run(&p);
            expect_losses(&p, &one, 1e-6);
            expect_params(&p, &one, 1e-6);
            int slot[2], first = -1;
            for (int s = 0; s < stages; s++) {
                slot[first >= 0] = tti_plan_find_slot(p.plan[s], "w");
                if (slot[first >= 0] < 0) continue;
                if (first >= 0)
                    assert_memory_equal(p.params[first] + p.plan[first]->slots[slot[0]].first,
                                        p.params[s] + p.plan[s]->slots[slot[1]].first,
                                        36 * sizeof(float));
                else
                    first = s;
            }
            fini(&p);
        }
    workers_fini(&one);
}

T_CASE(memory_is_as_it_was_planned) {
    T_UNUSED;
    pipeline p = {.net = blocks, .size = {.stage = 4}};
    workers one = alone(blocks, &net_fast, 0);
    run(&p);
    for (int r = 0; r < 4; r++) {
        T_EQ(p.planned[r].params, p.used[r].params);
        T_EQ(p.planned[r].grads, p.used[r].grads);
        T_EQ(p.planned[r].arena, p.used[r].arena);
        T_EQ(p.planned[r].mailbox, p.used[r].mailbox);
        assert_true(p.used[r].mailbox > 0);
        assert_true(p.used[r].params < one.plan->n_flat * sizeof(float));
    }
    fini(&p);
    workers_fini(&one);
}

/* Parts that take time which is not the processor's: one third forward, two thirds backward. */
static double least_bubble(pipeline *p) {
    double least = 1;
    T_OK(tti_fault_set("pipe.forward:delay_ms=10;pipe.backward:delay_ms=20"));
    run(p);
    T_OK(tti_fault_set(NULL));
    for (int step = 0; step < p->n_steps; step++) least = fmin(least, p->result[0][step].bubble);
    for (int r = 1; r < 4; r++) T_NEAR(p->result[r][0].bubble, p->result[0][0].bubble, 0);
    return least;
}

/* One shard: no two stages compute at once, however busy the machine is.  With more, the test only
 * prints how near a run comes to the model: a loaded machine delays threads arbitrarily. */
T_CASE(stages_wait_as_long_as_predicted) {
    T_UNUSED;
    double want = 3.0 / (8 + 3);
    pipeline one = {.net = blocks, .size = {.stage = 4}, .n_steps = 3, .n_shards = 1};
    assert_true(least_bubble(&one) >= 3.0 / 4 - 1e-9);
    assert_true(one.expected_bubble >= 3.0 / 4 - 1e-9);
    fini(&one);
    pipeline many = {.net = blocks, .size = {.stage = 4}, .n_steps = 2};
    double got = least_bubble(&many);
    printf("bubble %.3f, by the books %.3f\n", got, want);
    assert_true(got >= 0 && got < 1);
    assert_true(many.expected_bubble >= want); /* the stages of this model are not all alike */
    fini(&many);
}

/* So many layers that four stages of them are nearly alike. */
static tutti_graph *tower(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = net_x(g);
    for (int i = 0; i < 127; i++) {
        char name[16];
        snprintf(name, sizeof name, "fc%d", i);
        x = tutti_tanh(g, tutti_linear(g, x, 32, name));
    }
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "out"));
}

/* The order that stages go by, played with the costs of the chunks that the plan has made: no clock
 * has a part in it. */
T_CASE(alike_stages_wait_as_the_formula_says) {
    T_UNUSED;
    double want = 3.0 / (WORKERS_SHARDS + 3);
    pipeline p = {.net = tower, .size = {.stage = 4}, .n_steps = 1};
    run(&p);
    T_NEAR(p.expected_bubble, want, 0.05 * want);
    fini(&p);
}

/* The norm is that of all stages, and shared parameters are in it once. */
T_CASE(all_stages_are_clipped_alike) {
    T_UNUSED;
    static const net_fn nets[] = {net_lenet, net_knots};
    for (size_t i = 0; i < TTI_COUNT(nets); i++) {
        workers one = alone(nets[i], &net_fast, 0.05);
        pipeline p = {.net = nets[i], .size = {.stage = 3}, .clip_norm = 0.05};
        run(&p);
        assert_true(one.result[0][0].grad_norm > 0.05);
        expect_losses(&p, &one, 1e-6);
        expect_params(&p, &one, 1e-6);
        fini(&p);
        workers_fini(&one);
    }
}

/* Not fused: a chain of elementwise nodes rounds at its ends alone, and a cut makes two of one. */
T_CASE(values_of_16_bits_cross_as_they_are) {
    T_UNUSED;
    tti_target low = net_plain;
    low.compute_dtype = TUTTI_BF16;
    workers one = alone(blocks, &low, 0);
    pipeline p = {.net = blocks, .size = {.stage = 3}, .bf16 = true};
    run(&p);
    expect_losses(&p, &one, 0);
    expect_params(&p, &one, 0);
    fini(&p);
    workers_fini(&one);
}

/* Every layer hands on what is not finite. */
static tutti_graph *smooth(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = net_x(g);
    static const char *const names[] = {"fc0", "fc1", "fc2"};
    for (size_t i = 0; i < TTI_COUNT(names); i++)
        x = tutti_tanh(g, tutti_linear(g, x, 7, names[i]));
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "out"));
}

/* All stages of the copy look, and are ready for the next step. */
T_CASE(a_nan_is_reported_with_its_layer) {
    T_UNUSED;
    for (int n_chunks = 1; n_chunks <= 2; n_chunks++) {
        pipeline p = {.net = smooth,
                      .size = {.stage = 2, .data = 2},
                      .n_chunks = n_chunks,
                      .n_compute_threads = 2,
                      .nan_step = 2};
        run(&p);
        for (int r = 0; r < 4; r++) {
            assert_true(p.result[r][2].skipped);
            assert_true(!p.result[r][3].skipped && isfinite(p.result[r][3].loss_sum));
        }
        fini(&p);
    }
}

/* Everyone ends at once, with the cause; also who adds gradients beside the stages. */
T_CASE(a_stage_that_fails_ends_the_others) {
    T_UNUSED;
    static const tti_mesh_at sizes[] = {{.stage = 4}, {.stage = 2, .data = 2}};
    for (size_t i = 0; i < TTI_COUNT(sizes); i++) {
        T_OK(tti_fault_set("pipe.backward:fail@rank=1,step=2"));
        pipeline p = {.net = net_lenet, .size = sizes[i], .bucket_bytes = 64, .may_fail = true};
        run(&p);
        T_OK(tti_fault_set(NULL));
        for (int r = 0; r < 4; r++) {
            assert_non_null(p.failure[r]);
            assert_non_null(strstr(p.failure[r], "step 2: "));
            if (!strstr(p.failure[r], "stage 1 cannot compute"))
                fail_msg("rank %d: %s", r, p.failure[r]);
        }
        fini(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_have_the_bits_of_one_worker),
        cmocka_unit_test(shared_parameters_stay_the_same_on_their_stages),
        cmocka_unit_test(memory_is_as_it_was_planned),
        cmocka_unit_test(stages_wait_as_long_as_predicted),
        cmocka_unit_test(alike_stages_wait_as_the_formula_says),
        cmocka_unit_test(all_stages_are_clipped_alike),
        cmocka_unit_test(values_of_16_bits_cross_as_they_are),
        cmocka_unit_test(a_nan_is_reported_with_its_layer),
        cmocka_unit_test(a_stage_that_fails_ends_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
