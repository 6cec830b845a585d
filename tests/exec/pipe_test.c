/* pipe_test.c - stages of a pipeline train as one worker does: losses and parameters after some
 * steps, alone and with workers that divide the batch, and how long they wait for each other. */
#include "exec/pipe.h"

#include <stdlib.h>

#include "base/fault.h"
#include "comm/mesh.h"
#include "exec/crew.h"
#include "exec/worker.h"

enum { N_STEPS = 6 };

typedef struct pipeline {
    net_fn net;
    tti_mesh_at size;
    int n_chunks, n_lanes, n_shards;
    bool recompute;
    double clip_norm;
    tti_plan *plan[4]; /* by stage */
    float *params[CREW_MAX_RANKS];
    double loss[CREW_MAX_RANKS][N_STEPS], count[CREW_MAX_RANKS][N_STEPS];
    double bubble[CREW_MAX_RANKS], eval_loss[CREW_MAX_RANKS];
    tti_exec_memory planned[CREW_MAX_RANKS], used[CREW_MAX_RANKS];
} pipeline;

static tti_plan *plan_of(const pipeline *p, int stage) {
    tti_target target = net_fast;
    target.stage = stage;
    target.n_stages = p->size.stage;
    target.n_chunks = p->n_chunks;
    target.recompute = p->recompute ? TTI_RECOMPUTE_BLOCK : TTI_RECOMPUTE_NONE;
    return net_plan(p->net, &target, 1 << 20);
}

static const char *train(pipeline *p, tti_exec *exec, int rank) {
    crew_batch *batch = crew_batch_new();
    const char *failure = NULL;
    for (int step = 0; step < N_STEPS && !failure; step++) {
        tti_step_result result;
        crew_fill(batch, step);
        tti_step_desc desc = crew_step(batch, exec, step);
        if (tti_exec_step(exec, &desc, &result) != TUTTI_OK)
            failure = comm_text("step %d: %s", step, tutti_last_error());
        p->loss[rank][step] = result.loss_sum;
        p->count[rank][step] = result.count;
        p->bubble[rank] = result.bubble;
    }
    tti_step_result result = {0};
    tti_step_desc desc = crew_step(batch, exec, N_STEPS);
    if (!failure && tti_exec_eval(exec, &desc, &result) != TUTTI_OK)
        failure = comm_text("evaluation: %s", tutti_last_error());
    p->eval_loss[rank] = result.loss_sum;
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
                          .n_lanes = p->n_lanes,
                          .clip_norm = p->clip_norm,
                          .seed = 7};
    tti_exec *exec;
    COMM_OK(tti_exec_memory_plan(&desc, mesh.at.data, mesh.size.data, &p->planned[rank]));
    COMM_OK(tti_exec_create(&desc, &exec));
    const char *failure = train(p, exec, rank);
    p->used[rank] = tti_exec_memory_use(exec);
    size_t n_bytes = desc.plan->n_flat * sizeof(float);
    p->params[rank] = malloc(n_bytes + 1);
    memcpy(p->params[rank], tti_exec_params(exec), n_bytes);
    COMM_OK(tutti_comm_barrier(world));
    tti_exec_destroy(exec);
    tti_mesh_fini(&mesh);
    return failure;
}

static void run(pipeline *p) {
    if (p->n_chunks == 0) p->n_chunks = 1;
    if (p->n_lanes == 0) p->n_lanes = 1;
    if (p->n_shards == 0) p->n_shards = CREW_SHARDS;
    if (p->size.data == 0) p->size.data = 1;
    if (p->size.tensor == 0) p->size.tensor = 1;
    for (int s = 0; s < p->size.stage; s++) p->plan[s] = plan_of(p, s);
    comm_run(p->size.stage * p->size.data, rank_main, p);
}

static void fini(pipeline *p) {
    for (int s = 0; s < p->size.stage; s++) tti_plan_destroy(p->plan[s]);
    for (int r = 0; r < CREW_MAX_RANKS; r++) free(p->params[r]);
}

static crew alone(net_fn net) {
    crew c = {.net = net, .target = &net_fast, .n_ranks = 1, .n_lanes = 1, .n_steps = N_STEPS};
    crew_run(&c);
    return c;
}

/* Every parameter of every rank is as far from the one worker's as tol says. */
static void expect_params(const pipeline *p, const crew *one, double tol) {
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

/* The last stage has the losses. */
static void expect_losses(const pipeline *p, const crew *one, double tol) {
    for (int d = 0; d < p->size.data; d++) {
        int rank = d * p->size.stage + p->size.stage - 1;
        for (int s = 0; s < N_STEPS; s++) {
printf("step %d: %.9g %.9g\n", s, p->loss[rank][s], one->result[0][s].loss_sum);
            T_NEAR(p->loss[rank][s], one->result[0][s].loss_sum, tol);
            T_NEAR(p->count[rank][s], one->result[0][s].count, 0);
        }
    }
}

static tutti_graph *blocks(bool training) { return net_blocks(training, false); }

/* A model without shared parameters has the bits of one worker: a cut changes no operation. */
T_CASE(stages_have_the_bits_of_one_worker) {
    T_UNUSED;
    static const net_fn nets[] = {net_lenet, blocks};
    for (size_t i = 0; i < TTI_COUNT(nets); i++) {
        crew one = alone(nets[i]);
        static const pipeline all[] = {
            {.size = {.stage = 2}},
            {.size = {.stage = 4}},
            {.size = {.stage = 2}, .n_chunks = 2},
            {.size = {.stage = 2}, .n_lanes = 2},
            {.size = {.stage = 3}, .n_lanes = 3},
            {.size = {.stage = 2}, .recompute = true},
            {.size = {.stage = 2, .data = 2}},
            {.size = {.stage = 2, .data = 4}, .n_lanes = 2},
        };
        for (size_t k = 0; k < TTI_COUNT(all); k++) {
            pipeline p = all[k];
            p.net = nets[i];
            run(&p);
            expect_losses(&p, &one, 0);
            expect_params(&p, &one, 0);
            fini(&p);
        }
        crew_fini(&one);
    }
}

/* A shared parameter's gradients are added over shards first, then over stages. */
T_CASE(shared_parameters_stay_the_same_on_their_stages) {
    T_UNUSED;
    crew one = alone(net_knots);
    for (int data = 1; data <= 2; data++)
        for (int stages = 2; stages <= 4; stages++) {
            pipeline p = {.net = net_knots, .size = {.stage = stages, .data = data}};
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
    crew_fini(&one);
}

T_CASE(memory_is_as_it_was_planned) {
    T_UNUSED;
    pipeline p = {.net = blocks, .size = {.stage = 4}};
    crew one = alone(blocks);
    run(&p);
    for (int r = 0; r < 4; r++) {
        T_EQ(p.planned[r].params, p.used[r].params);
        T_EQ(p.planned[r].grads, p.used[r].grads);
        assert_true(p.planned[r].arena <= p.used[r].arena);
        assert_true(p.used[r].params < one.plan->n_flat * sizeof(float));
    }
    fini(&p);
    crew_fini(&one);
}

/* Parts that take time which is not the processor's: one third forward, two thirds backward. */
T_CASE(stages_wait_as_long_as_the_books_say) {
    T_UNUSED;
    T_OK(tti_fault_set("pipe.forward:delay_ms=4;pipe.backward:delay_ms=8"));
    pipeline p = {.net = blocks, .size = {.stage = 4}};
    run(&p);
    T_OK(tti_fault_set(NULL));
    double want = 3.0 / (8 + 3);
    print_message("bubble %.4f, by the books %.4f\n", p.bubble[0], want);
    for (int r = 0; r < 4; r++) T_NEAR(p.bubble[r] / want, 1, 0.05);
    fini(&p);
}

T_CASE(a_stage_that_fails_ends_the_others) {
    T_UNUSED;
    pipeline p = {
        .net = net_lenet, .size = {.stage = 2}, .n_chunks = 1, .n_lanes = 1, .n_shards = 8};
    (void)p;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_have_the_bits_of_one_worker),
        cmocka_unit_test(shared_parameters_stay_the_same_on_their_stages),
        cmocka_unit_test(memory_is_as_it_was_planned),
        cmocka_unit_test(stages_wait_as_long_as_the_books_say),
        cmocka_unit_test(a_stage_that_fails_ends_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
