/* shared_params_test.c - workers that have parameters and state in common: the bits, the averages
 * and the memory of workers that have all of it for themselves; and what they read from a file. */
#include "exec/worker/worker.h"

#include <sched.h>
#include <stdatomic.h>

#include "exec/workers.h"

static workers new_workers(const char *optimizer, int n_ranks) {
    workers c = {.plan = workers_plan(net_wide, optimizer, n_ranks % 2 ? 1 << 20 : 1 << 14),
                 .n_ranks = n_ranks,
                 .n_compute_threads = 2,
                 .n_steps = 4};
    c.exec.beta1 = 0.9;
    c.exec.beta2 = 0.99;
    c.exec.clip_norm = 0.01;
    c.exec.ema = 0.9;
    return c;
}

/* As new_workers, and with one copy for all ranks if they are several. */
static void run_workers(workers *c) {
    tti_exec_desc desc = c->exec;
    desc.plan = c->plan;
    desc.backend = &tti_backend_cpu;
    c->exec.shares = c->n_ranks > 1;
    if (c->exec.shares) T_OK(tti_shared_params_create(&desc, &c->exec.shared_params));
    workers_run(c);
    tti_shared_params_destroy(c->exec.shared_params);
}

/* Steps, and evaluations with the averages between them. */
static const char *train_and_evaluate(workers *c, tti_exec *exec, int rank) {
    workers_batch *batch = workers_batch_new();
    for (int step = 0; step < 4; step++) {
        workers_fill(batch, step);
        tti_step_desc desc = workers_step(batch, exec, step);
        tti_step_result *result = &c->result[rank][step];
        if (step != 2)
            COMM_OK(tti_exec_step(exec, &desc, result));
        else
            for (int i = 0; i < 2; i++) COMM_OK(tti_exec_eval(exec, &desc, result));
    }
    free(batch);
    return NULL;
}

T_CASE(shared_params_change_no_bit) {
    T_UNUSED;
    static const char *const optimizers[] = {"sgd", "adamw", "lamb"};
    for (size_t i = 0; i < TTI_COUNT(optimizers); i++) {
        workers alone = new_workers(optimizers[i], 1);
        alone.fn = train_and_evaluate;
        run_workers(&alone);
        assert_true(alone.result[0][0].grad_norm > 0.01);
        for (int w = 2; w <= 8; w++) {
            workers c = new_workers(optimizers[i], w);
            c.fn = train_and_evaluate;
            c.exec.alg = w % 3 ? TUTTI_ALG_AUTO : TUTTI_ALG_TREE;
            run_workers(&c);
            workers_expect_same(&c, &alone);
            workers_fini(&c);
        }
        workers_fini(&alone);
    }
}

T_CASE(any_order_of_sums_is_near) {
    T_UNUSED;
    workers alone = new_workers("sgd", 1), c = new_workers("sgd", 3);
    c.exec.fast = true;
    c.exec.alg = TUTTI_ALG_RING;
    run_workers(&alone);
    run_workers(&c);
    assert_true(workers_distance(&c, &alone) < 1e-5);
    workers_fini(&alone);
    workers_fini(&c);
}

static float reported(int k, size_t i) { return (float)(i % 100000) + 0.25f * (float)k; }

/* As a checkpoint is read: every worker reads everything, and after the push all have it. */
static const char *fill_and_look(workers *c, tti_exec *exec, int rank) {
    size_t n = c->plan->n_flat;
    float *data = malloc(n * sizeof *data);
    (void)rank;
    COMM_OK(tti_exec_pull(exec));
    for (int k = TTI_STATE_PARAMS; k < c->plan->n_states; k++) {
        for (size_t i = 0; i < n; i++) data[i] = reported(k, i);
        for (int s = 0; s < c->plan->n_slots; s++) {
            const tti_slot *slot = &c->plan->slots[s];
            COMM_OK(tti_exec_store_whole(exec, k, slot->param, data + slot->first));
        }
    }
    free(data);
    COMM_OK(tti_exec_push(exec));
    for (int k = TTI_STATE_PARAMS; k < c->plan->n_states; k++)
        for (int s = 0; s < c->plan->n_slots; s++) {
            const tti_slot *slot = &c->plan->slots[s];
            const float *got;
            COMM_OK(tti_exec_fetch_whole(exec, k, slot->param, &got));
            for (size_t i = 0; i < slot->n_elems; i++)
                COMM_TRUE(got[i] == reported(k, slot->first + i));
        }
    return NULL;
}

T_CASE(what_was_read_is_for_all) {
    T_UNUSED;
    for (int w = 2; w <= 5; w++) {
        workers c = new_workers("adamw", w);
        c.fn = fill_and_look;
        run_workers(&c);
        workers_fini(&c);
    }
}

/* Each worker's part of what they have in common; the parts come to one copy. */
static const char *compare_memory(workers *c, tti_exec *exec, int rank) {
    tti_exec_memory used;
    const char *failure = workers_memory(c, exec, rank, &used);
    if (failure) return failure;
    size_t flat = c->plan->n_flat * sizeof(float), n = (size_t)c->n_ranks;
    COMM_TRUE(used.params == flat / n && used.ema == flat / n && used.states == 2 * flat / n);
    COMM_TRUE(used.grads % flat == 0);
    return NULL;
}

T_CASE(memory_is_as_planned) {
    T_UNUSED;
    for (int w = 2; w <= 4; w++) {
        workers c = new_workers("adamw", w);
        c.fn = compare_memory;
        run_workers(&c);
        workers_fini(&c);
    }
}

static atomic_bool is_flipped;
static atomic_int n_failed;

/* The sign of a number that all read, after steps that were well. */
static const char *flip_and_train(workers *c, tti_exec *exec, int rank) {
    workers_batch *batch = workers_batch_new();
    if (workers_train(c, exec, rank)) return "the first steps failed";
    workers_fill(batch, 0);
    tti_step_desc desc = workers_step(batch, exec, c->n_steps);
    COMM_OK(tti_exec_step(exec, &desc, &c->result[rank][0]));
    const tti_slot *slot = &c->plan->slots[tti_plan_find_slot(c->plan, "fc2.weight")];
    if (rank == 0) {
        float *w = tti_exec_params(exec) + slot->first + slot->n_elems / 2;
        *w = -*w;
        atomic_store(&is_flipped, true);
    }
    while (!atomic_load(&is_flipped)) sched_yield();
    desc.step++;
    bool fails = tti_exec_step(exec, &desc, &c->result[rank][0]) != TUTTI_OK;
    COMM_TRUE(fails);
    bool names = strstr(tutti_last_error(), "step 5: parameter 'fc2.weight' changed in memory");
    c->result[rank][1].skipped = names;
    if (names) tti_comm_abort(tti_setup_of(exec)->desc.comm, "a parameter changed in memory");
    atomic_fetch_add(&n_failed, 1); /* some still update, and what follows reads */
    while (atomic_load(&n_failed) < c->n_ranks) sched_yield();
    free(batch);
    return NULL;
}

T_CASE(a_flipped_bit_is_found_by_its_owner) {
    T_UNUSED;
    workers c = new_workers("adamw", 3);
    int n = 0;
    c.fn = flip_and_train;
    run_workers(&c);
    for (int r = 0; r < c.n_ranks; r++) n += c.result[r][1].skipped;
    assert_true(n > 0);
    workers_fini(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_params_change_no_bit),
        cmocka_unit_test(any_order_of_sums_is_near),
        cmocka_unit_test(what_was_read_is_for_all),
        cmocka_unit_test(memory_is_as_planned),
        cmocka_unit_test(a_flipped_bit_is_found_by_its_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
