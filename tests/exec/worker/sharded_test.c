/* sharded_test.c - partitioned gradients and parameters: the bits of a run where each worker has
 * all of them, for any number of workers and compute threads; and the memory that this was about.
 */
#include "exec/worker/zero.h"

#include "base/fault.h"
#include "exec/worker/worker.h"
#include "exec/workers.h"

/* Layers of several blocks beside small ones; the first one's weights are the last one's too. */
static tutti_graph *net_deep(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_init init = {.kind = TUTTI_INIT_NORMAL, .b = 0.3};
    tutti_value *w = tutti_param(g, "tied", &TUTTI_SHAPE(6, 6), &init, true);
    tutti_value *x = tutti_tanh(g, tutti_matmul(g, net_x(g), w));
    x = tutti_relu(g, tutti_linear(g, x, 260, "fc1"));
    x = tutti_relu(g, tutti_linear(g, x, 70, "fc2"));
    x = tutti_dropout(g, x, 0.2, "drop");
    x = tutti_relu(g, tutti_linear(g, x, 270, "fc3"));
    x = tutti_relu(g, tutti_linear(g, x, 80, "fc4"));
    x = tutti_matmul(g, tutti_tanh(g, tutti_linear(g, x, 6, "fc5")), w);
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "out"));
}

static tutti_graph *net_norms(bool training) { return net_blocks_of(3, training, false); }

static workers new_workers(net_fn net, const char *optimizer, size_t bucket_bytes, int n_ranks,
                           int zero) {
    workers c = {.plan = workers_plan(net, optimizer, bucket_bytes),
                 .n_ranks = n_ranks,
                 .n_compute_threads = 1,
                 .n_steps = 3};
    c.exec.zero = zero;
    c.exec.beta1 = 0.9;
    c.exec.beta2 = 0.99;
    return c;
}

T_CASE(parts_change_no_bit) {
    T_UNUSED;
    static const char *const optimizers[] = {"sgd", "adamw", "lamb"};
    static const size_t bytes[] = {1, 1 << 12, 1 << 16, 1 << 20};
    for (size_t i = 0; i < TTI_COUNT(optimizers); i++) {
        workers whole = new_workers(net_deep, optimizers[i], 1 << 20, 1, 0);
        whole.exec.clip_norm = 0.01;
        whole.exec.l1 = 0.001;
        workers_run(&whole);
        assert_true(whole.result[0][0].grad_norm > 0.01);
        for (int w = 2; w <= 8; w++)
            for (int zero = 2; zero <= 3; zero++) {
                size_t size = bytes[((size_t)w + i + (size_t)zero) % TTI_COUNT(bytes)];
                workers c = new_workers(net_deep, optimizers[i], size, w, zero);
                c.n_compute_threads = 1 + (w + zero + (int)i) % 3;
                c.exec.clip_norm = 0.01;
                c.exec.l1 = 0.001;
                c.exec.alg = w % 3 ? TUTTI_ALG_AUTO : TUTTI_ALG_TREE;
                workers_run(&c);
                workers_expect_same(&c, &whole);
                workers_fini(&c);
            }
        workers_fini(&whole);
    }
}

/* Parameters used twice, gradients of two, buffers. */
T_CASE(every_kind_of_parameter) {
    T_UNUSED;
    static const net_fn nets[] = {net_knots, net_lenet, net_norms};
    for (size_t i = 0; i < TTI_COUNT(nets); i++) {
        workers whole = new_workers(nets[i], "sgd", 1 << 20, 1, 0);
        workers_run(&whole);
        for (int zero = 2; zero <= 3; zero++)
            for (int w = 2; w <= 3; w++) {
                workers c = new_workers(nets[i], "sgd", 1, w, zero);
                c.n_compute_threads = w;
                workers_run(&c);
                workers_expect_same(&c, &whole);
                workers_fini(&c);
            }
        workers_fini(&whole);
    }
}

T_CASE(any_order_of_sums_is_near) {
    T_UNUSED;
    workers whole = new_workers(net_deep, "sgd", 1 << 12, 1, 0);
    workers_run(&whole);
    for (int zero = 2; zero <= 3; zero++) {
        workers c = new_workers(net_deep, "sgd", 1 << 12, 3, zero);
        c.exec.fast = true;
        c.exec.alg = TUTTI_ALG_RING;
        workers_run(&c);
        assert_true(workers_distance(&c, &whole) < 1e-5);
        workers_fini(&c);
    }
    workers_fini(&whole);
}

T_CASE(evaluation_with_averages_and_without) {
    T_UNUSED;
    for (int with = 0; with < 2; with++) {
        workers whole = new_workers(net_deep, "adamw", 1 << 12, 1, 0);
        whole.n_steps = 4;
        whole.exec.ema = with ? 0.9 : 0;
        whole.fn = workers_average;
        workers_run(&whole);
        for (int w = 2; w <= 4; w++)
            for (int zero = 2; zero <= 3; zero++) {
                workers c = new_workers(net_deep, "adamw", 1 << 12, w, zero);
                c.n_steps = 4;
                c.n_compute_threads = 1 + w % 2;
                c.exec.ema = whole.exec.ema;
                c.fn = workers_average;
                workers_run(&c);
                workers_expect_same(&c, &whole);
                workers_fini(&c);
            }
        workers_fini(&whole);
    }
}

static float reported(int k, size_t i) { return (float)(i % 100000) + 0.25f * (float)k; }

/* Numbers between those of parameters and averages mean nothing. */
static bool is_kept(int k) { return k == TTI_STATE_PARAMS || k >= TTI_STATE_EMA; }

/* What is stored comes back, whole, and the hash is of what was stored. */
static const char *store_and_fetch(workers *c, tti_exec *exec, int rank) {
    float *data = malloc(c->plan->n_flat * sizeof *data);
    for (int k = TTI_STATE_PARAMS; k < c->plan->n_states; k++) {
        for (size_t i = 0; i < c->plan->n_flat; i++) data[i] = reported(k, i);
        for (int s = 0; s < c->plan->n_slots && is_kept(k); s++) {
            const tti_slot *slot = &c->plan->slots[s];
            tti_exec_store(exec, k, slot->first, slot->n_elems, data + slot->first);
        }
    }
    free(data);
    COMM_OK(tti_exec_push(exec));
    COMM_OK(tti_exec_params_hash(exec, &c->result[rank][0].params_hash));
    if (rank > 0) {
        COMM_OK(tti_exec_serve(exec));
        return NULL;
    }
    for (int k = TTI_STATE_PARAMS; k < c->plan->n_states; k++)
        for (int s = c->plan->n_slots - 1; s >= 0 && is_kept(k); s--) {
            const tti_slot *slot = &c->plan->slots[s];
            const float *got;
            COMM_OK(tti_exec_fetch(exec, k, slot->first, slot->n_elems, &got));
            for (size_t i = 0; i < slot->n_elems; i++)
                COMM_TRUE(got[i] == reported(k, slot->first + i));
        }
    COMM_OK(tti_exec_serve_end(exec));
    return NULL;
}

T_CASE(all_is_stored_and_fetched) {
    T_UNUSED;
    uint64_t hash = 0;
    for (int w = 1; w <= 5; w++)
        for (int zero = 2; zero <= 3; zero++) {
            workers c = new_workers(net_deep, "adamw", 1 << 12, w, zero);
            c.exec.ema = 0.5;
            c.fn = store_and_fetch;
            workers_run(&c);
            if (hash == 0) hash = c.result[0][0].params_hash;
            for (int r = 0; r < w; r++) assert_true(c.result[r][0].params_hash == hash);
            workers_fini(&c);
        }
}

static const char *compare_memory(workers *c, tti_exec *exec, int rank) {
    tti_exec_memory used;
    const char *failure = workers_memory(c, exec, rank, &used);
    if (failure) return failure;
    double share = (double)c->plan->n_flat * sizeof(float) / c->n_ranks;
    double block = TTI_UPDATE_BLOCK * sizeof(float);
    COMM_TRUE(fabs((double)used.states - 2 * share) <= 2 * block);
    if (c->exec.zero == 3) COMM_TRUE(fabs((double)used.params - share) <= block);
    return NULL;
}

T_CASE(memory_is_as_planned) {
    T_UNUSED;
    for (int w = 2; w <= 5; w++)
        for (int zero = 2; zero <= 3; zero++)
            for (int n_compute_threads = 1; n_compute_threads <= 2; n_compute_threads++) {
                workers c = new_workers(net_deep, "adamw", 1 << 12, w, zero);
                c.n_compute_threads = n_compute_threads;
                c.exec.ema = w % 2 ? 0.5 : 0;
                c.fn = compare_memory;
                workers_run(&c);
                workers_fini(&c);
            }
}

/* With a shard for each worker its part of the gradients and the places of a few buckets; with more
 * a whole buffer for each level of its own tree but the last. */
T_CASE(gradients_take_what_is_promised) {
    T_UNUSED;
    for (int n_each = 1; n_each <= 4; n_each *= 2) {
        workers c = new_workers(net_deep, "adamw", 1 << 12, 4, 2);
        tti_bucket_memory w;
        c.n_shards = 4 * n_each;
        T_OK(tti_bucket_memory_init(c.plan, &c.plan->shard, TTI_SPACE_GRAD, &w));
        double flat = (double)c.plan->n_flat * sizeof(float);
        double places = (double)w.n_elems * sizeof(float);
        int n_whole = n_each == 1 ? 0 : n_each == 2 ? 1 : 2;
        double part = n_whole ? 0 : flat / 4;
        tti_exec_memory planned;
        T_OK(workers_memory_planned(&c, 0, &planned));
        double grads = (double)planned.grads;
        assert_true(fabs(grads - (n_whole * flat + places + part)) <=
                    TTI_UPDATE_BLOCK * sizeof(float));
        assert_true(places < 0.8 * flat);
        tti_bucket_memory_fini(&w);
        workers_fini(&c);
    }
}

/* A bad step names the shard, on all workers, and the next one is as if it had not been. */
static const char *spoil(workers *c, tti_exec *exec, int rank) {
    workers_batch *batch = workers_batch_new();
    for (int step = 0; step < 3; step++) {
        workers_fill(batch, step);
        if (step == 1) batch->x[5][0] = NAN;
        tti_step_desc desc = workers_step(batch, exec, step);
        tti_step_result *result = &c->result[rank][step];
        if (step == 1)
            COMM_FAILS(tti_exec_step(exec, &desc, result), TUTTI_E_NUMERICS,
                       "step 2: the loss is not finite (shard 5 of 8");
        else
            COMM_OK(tti_exec_step(exec, &desc, result));
    }
    for (int step = 1; step < c->n_steps; step++) c->result[rank][step] = c->result[rank][2];
    free(batch);
    return NULL;
}

T_CASE(a_bad_step_changes_nothing) {
    T_UNUSED;
    workers whole = new_workers(net_knots, "adamw", 1, 1, 0);
    whole.fn = spoil;
    workers_run(&whole);
    for (int zero = 2; zero <= 3; zero++) {
        workers c = new_workers(net_knots, "adamw", 1, 3, zero);
        c.fn = spoil;
        workers_run(&c);
        workers_expect_same(&c, &whole);
        workers_fini(&c);
    }
    workers_fini(&whole);
}

/* What changes in memory of an own part is seen when it is read again. */
static const char *disturb(workers *c, tti_exec *exec, int rank) {
    uint64_t before, after;
    COMM_OK(tti_exec_params_hash(exec, &before));
    COMM_TRUE(tti_exec_params(exec) == NULL);
    const tti_slot *slot = &c->plan->slots[tti_plan_find_slot(c->plan, "fc3.weight")];
    float *zeros = calloc(slot->n_elems, sizeof *zeros);
    tti_exec_store(exec, TTI_STATE_PARAMS, slot->first, slot->n_elems, zeros);
    free(zeros);
    COMM_OK(tti_exec_params_hash(exec, &after));
    COMM_OK(tti_exec_check_params(exec, 1));
    c->result[rank][0].grad_norm = before != after;
    return NULL;
}

T_CASE(a_part_that_changed_is_seen) {
    T_UNUSED;
    workers c = new_workers(net_deep, "sgd", 1 << 12, 2, 3);
    c.fn = disturb;
    workers_run(&c);
    assert_true(c.result[0][0].grad_norm + c.result[1][0].grad_norm > 0);
    workers_fini(&c);
}

/* One of its own numbers, between two steps. */
static const char *flip_own(workers *c, tti_exec *exec, int rank) {
    workers_batch *batch = workers_batch_new();
    if (workers_train(c, exec, rank)) return "the first steps failed";
    workers_fill(batch, 0);
    tti_step_desc desc = workers_step(batch, exec, c->n_steps);
    COMM_OK(tti_exec_step(exec, &desc, &c->result[rank][0]));
    tti_exec_array(exec, TTI_STATE_PARAMS)[0] = -tti_exec_array(exec, TTI_STATE_PARAMS)[0] - 1;
    desc.step++;
    COMM_FAILS(tti_exec_step(exec, &desc, &c->result[rank][0]), TUTTI_E_MISMATCH,
               "changed in memory after the last update");
    free(batch);
    return NULL;
}

T_CASE(the_next_update_sees_it_too) {
    T_UNUSED;
    workers c = new_workers(net_deep, "adamw", 1 << 12, 2, 3);
    c.fn = flip_own;
    workers_run(&c);
    workers_fini(&c);
}

static tutti_graph *net_joined(bool training) { return net_blocks_of(3, training, true); }

static tutti_graph *net_first(bool training) { return net_straight(training, true); }

static void expect_joined_parts(const workers *whole, net_fn net, int n_ranks, int zero) {
    static const size_t bytes[] = {1, 256, 1 << 20};
    workers c = new_workers(net, "adamw", bytes[(n_ranks + zero) % 3], n_ranks, zero);
    c.n_steps = 4;
    c.n_compute_threads = 1 + (n_ranks + zero) % 3;
    c.exec.ema = 0.9;
    c.fn = workers_average;
    workers_run(&c);
    workers_expect_same(&c, whole);
    workers_fini(&c);
}

/* Shards that wait for each other at norms, several of them on a compute thread, overlapped moves.
 */
T_CASE(joined_shards_have_parts_too) {
    T_UNUSED;
    static const net_fn nets[] = {net_joined, net_first};
    workers own = new_workers(net_norms, "adamw", 1 << 20, 1, 0);
    own.n_steps = 4;
    own.fn = workers_average;
    workers_run(&own);
    for (size_t i = 0; i < TTI_COUNT(nets); i++) {
        workers whole = new_workers(nets[i], "adamw", 1 << 20, 1, 0);
        whole.n_steps = 4;
        whole.exec.ema = 0.9;
        whole.fn = workers_average;
        workers_run(&whole);
        assert_true(whole.result[0][2].loss_sum != own.result[0][2].loss_sum);
        for (int w = 2; w <= 8; w += w < 4 ? 1 : 4)
            for (int zero = 2; zero <= 3; zero++) expect_joined_parts(&whole, nets[i], w, zero);
        workers_fini(&whole);
    }
    workers_fini(&own);
}

/* Who cannot compute a shard keeps nobody at a join or a move. */
static const char *fail_at_a_join(workers *c, tti_exec *exec, int rank) {
    workers_batch *batch = workers_batch_new();
    workers_fill(batch, 0);
    tti_step_desc desc = workers_step(batch, exec, 0);
    tutti_status st = tti_exec_step(exec, &desc, &c->result[rank][0]);
    free(batch);
    if (st == TUTTI_OK) return "no failure";
    if (rank == 1) COMM_TRUE(strstr(tutti_last_error(), "cannot compute a shard"));
    return "as it should";
}

static const char *fail_in_parts(tutti_comm *comm, void *arg) {
    workers *c = arg;
    const char *failure = workers_rank(comm, c);
    return failure && strcmp(failure, "as it should") == 0 ? NULL : failure;
}

T_CASE(a_shard_that_fails_keeps_nobody_at_a_join) {
    T_UNUSED;
    for (int zero = 2; zero <= 3; zero++) {
        workers c = new_workers(net_joined, "sgd", 256, 3, zero);
        c.fn = fail_at_a_join;
        T_OK(tti_fault_set("exec.shard:fail@rank=1,step=0"));
        comm_run(c.n_ranks, fail_in_parts, &c);
        T_OK(tti_fault_set(NULL));
        workers_fini(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_change_no_bit),
        cmocka_unit_test(every_kind_of_parameter),
        cmocka_unit_test(any_order_of_sums_is_near),
        cmocka_unit_test(evaluation_with_averages_and_without),
        cmocka_unit_test(all_is_stored_and_fetched),
        cmocka_unit_test(memory_is_as_planned),
        cmocka_unit_test(gradients_take_what_is_promised),
        cmocka_unit_test(a_bad_step_changes_nothing),
        cmocka_unit_test(a_part_that_changed_is_seen),
        cmocka_unit_test(the_next_update_sees_it_too),
        cmocka_unit_test(joined_shards_have_parts_too),
        cmocka_unit_test(a_shard_that_fails_keeps_nobody_at_a_join),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
