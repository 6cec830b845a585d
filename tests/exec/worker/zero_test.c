/* zero_test.c - partitioned state: the bits, the averages and the state of a run where each worker
 * has all of it, for any number of workers. */
#include "exec/worker/zero.h"

#include "exec/workers.h"

static workers new_workers(const char *optimizer, size_t bucket_bytes, int n_ranks, int zero) {
    workers c = {.plan = workers_plan(net_wide, optimizer, bucket_bytes),
                 .n_ranks = n_ranks,
                 .n_compute_threads = 2,
                 .n_steps = 3};
    c.exec.zero = zero;
    c.exec.beta1 = 0.9;
    c.exec.beta2 = 0.99;
    return c;
}

T_CASE(parts_change_no_bit) {
    T_UNUSED;
    static const char *const optimizers[] = {"sgd", "adamw", "lamb"};
    for (size_t i = 0; i < TTI_COUNT(optimizers); i++) {
        workers whole = new_workers(optimizers[i], 1 << 20, 1, false);
        whole.exec.clip_norm = 0.01;
        workers_run(&whole);
        assert_true(whole.result[0][0].grad_norm > 0.01);
        for (int w = 2; w <= 8; w++) {
            workers c = new_workers(optimizers[i], w % 2 ? 1 << 20 : 1 << 14, w, true);
            c.exec.clip_norm = 0.01;
            c.exec.alg = w % 3 ? TUTTI_ALG_AUTO : TUTTI_ALG_TREE;
            workers_run(&c);
            workers_expect_same(&c, &whole);
            workers_fini(&c);
        }
        workers_fini(&whole);
    }
}

T_CASE(any_order_of_sums_is_near) {
    T_UNUSED;
    workers whole = new_workers("sgd", 1 << 16, 1, false), c = new_workers("sgd", 1 << 16, 3, true);
    c.exec.fast = true;
    c.exec.alg = TUTTI_ALG_RING;
    workers_run(&whole);
    workers_run(&c);
    assert_true(workers_distance(&c, &whole) < 1e-5);
    workers_fini(&whole);
    workers_fini(&c);
}

T_CASE(averages_are_evaluated) {
    T_UNUSED;
    workers whole = new_workers("adamw", 1 << 16, 1, false),
            plain = new_workers("adamw", 1 << 16, 3, true);
    whole.n_steps = plain.n_steps = 4;
    whole.exec.ema = 0.9;
    whole.fn = plain.fn = workers_average;
    workers_run(&whole);
    workers_run(&plain);
    assert_true(plain.result[0][3].loss_sum != whole.result[0][3].loss_sum);
    for (int w = 2; w <= 4; w++) {
        workers c = new_workers("adamw", 1 << 16, w, true);
        c.n_steps = 4;
        c.exec.ema = 0.9;
        c.fn = workers_average;
        workers_run(&c);
        workers_expect_same(&c, &whole);
        workers_fini(&c);
    }
    workers_fini(&whole);
    workers_fini(&plain);
}

static float reported(int k, size_t i) { return (float)(i % 100000) + 0.25f * (float)k; }

/* What is stored comes back, whole, and nothing of it is another's. */
static const char *store_and_fetch(workers *c, tti_exec *exec, int rank) {
    float *data = malloc(c->plan->n_flat * sizeof *data);
    for (int k = TTI_STATE_EMA; k < c->plan->n_states; k++) {
        for (size_t i = 0; i < c->plan->n_flat; i++) data[i] = reported(k, i);
        for (int s = 0; s < c->plan->n_slots; s++) {
            const tti_slot *slot = &c->plan->slots[s];
            tti_exec_store(exec, k, slot->first, slot->n_elems, data + slot->first);
        }
    }
    free(data);
    if (rank > 0) {
        COMM_OK(tti_exec_serve(exec));
        return NULL;
    }
    for (int k = TTI_STATE_EMA; k < c->plan->n_states; k++)
        for (int s = c->plan->n_slots - 1; s >= 0; s--) {
            const tti_slot *slot = &c->plan->slots[s];
            const float *got;
            COMM_OK(tti_exec_fetch(exec, k, slot->first, slot->n_elems, &got));
            for (size_t i = 0; i < slot->n_elems; i++)
                COMM_TRUE(got[i] == reported(k, slot->first + i));
        }
    COMM_OK(tti_exec_serve_end(exec));
    return NULL;
}

T_CASE(state_is_stored_and_fetched) {
    T_UNUSED;
    for (int w = 1; w <= 5; w++) {
        workers c = new_workers("adamw", 1 << 16, w, true);
        c.exec.ema = 0.5;
        c.fn = store_and_fetch;
        workers_run(&c);
        workers_fini(&c);
    }
}

static const char *compare_memory(workers *c, tti_exec *exec, int rank) {
    tti_exec_memory used;
    const char *failure = workers_memory(c, exec, rank, &used);
    if (failure) return failure;
    double share = (double)c->plan->n_flat * sizeof(float) / (c->exec.zero ? c->n_ranks : 1);
    double block = TTI_UPDATE_BLOCK * sizeof(float);
    COMM_TRUE(fabs((double)used.ema - share) <= block);
    COMM_TRUE(fabs((double)used.states - 2 * share) <= 2 * block);
    COMM_TRUE(used.params == c->plan->n_flat * sizeof(float));
    COMM_TRUE(used.grads % used.params == (c->exec.wire == TUTTI_F32 ? 0 : used.params / 2));
    return NULL;
}

T_CASE(memory_is_as_planned) {
    T_UNUSED;
    for (int w = 1; w <= 4; w++)
        for (int zero = 0; zero < 2; zero++) {
            workers c = new_workers("adamw", 1 << 16, w, zero);
            c.exec.ema = 0.5;
            c.fn = compare_memory;
            workers_run(&c);
            workers_fini(&c);
        }
    workers c = new_workers("adamw", 1 << 16, 2, false); /* gradients as they travel, too */
    c.exec.fast = true;
    c.exec.wire = TUTTI_BF16;
    c.exec.ema = 0.5;
    c.fn = compare_memory;
    workers_run(&c);
    workers_fini(&c);
}

/* A parameter that was changed behind its owner's back is found with the next step. */
static const char *disturb(workers *c, tti_exec *exec, int rank) {
    workers_batch *batch = workers_batch_new();
    workers_fill(batch, 0);
    tti_step_desc desc = workers_step(batch, exec, 0);
    COMM_OK(tti_exec_step(exec, &desc, &c->result[rank][0]));
    uint64_t hash;
    COMM_OK(tti_exec_params_hash(exec, &hash));
    COMM_TRUE(hash == c->result[rank][0].params_hash);
    const tti_slot *slot = &c->plan->slots[tti_plan_find_slot(c->plan, "fc2.weight")];
    if (rank == 2) tti_exec_params(exec)[slot->first + 7] += 1;
    COMM_FAILS(tti_exec_check_params(exec, 1), TUTTI_E_MISMATCH,
               "parameter 'fc2.weight' of rank 2 differs");
    free(batch);
    return NULL;
}

T_CASE(every_worker_vouches_for_its_copy) {
    T_UNUSED;
    workers c = new_workers("sgd", 1 << 16, 3, true);
    c.fn = disturb;
    workers_run(&c);
    workers_fini(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_change_no_bit),
        cmocka_unit_test(any_order_of_sums_is_near),
        cmocka_unit_test(averages_are_evaluated),
        cmocka_unit_test(state_is_stored_and_fetched),
        cmocka_unit_test(memory_is_as_planned),
        cmocka_unit_test(every_worker_vouches_for_its_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
