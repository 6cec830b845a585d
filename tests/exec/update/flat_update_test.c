/* flat_update_test.c - clip by the global norm, the optimizer, and gradients that are not finite.
 */
#include "exec/workers.h"

static workers new_workers(net_fn net, int n_ranks) {
    return (workers){
        .net = net, .target = &net_fast, .n_ranks = n_ranks, .n_compute_threads = 2, .n_steps = 1};
}

/* Elements that belong to parameters; the others of the flat arrays are padding. */
static double norm_of(const workers *c, const float *x) {
    double sum = 0;
    for (int i = 0; i < c->plan->n_slots; i++)
        for (size_t e = 0; e < c->plan->slots[i].n_elems; e++) {
            double v = (double)x[c->plan->slots[i].first + e];
            sum += v * v;
        }
    return sqrt(sum);
}

/* After one step of sgd with momentum the state is the (clipped) mean gradient plus decay. */
static tutti_graph *net_no_decay(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_init init = {.kind = TUTTI_INIT_NORMAL, .b = 0.5};
    tutti_value *w = tutti_param(g, "w", &TUTTI_SHAPE(NET_CLASSES, 6), &init, false);
    tutti_value *y = tti_emit(g, "linear", "fc", (tutti_value *[]){net_x(g), w}, 2, NULL);
    return net_finish(g, y);
}

T_CASE(the_norm_is_that_of_the_mean_gradient) {
    T_UNUSED;
    workers c = new_workers(net_no_decay, 1);
    c.exec.watch_gradients = true; /* asks for the norm without clipping */
    workers_run(&c);
    assert_true(c.result[0][0].grad_norm > 0);
    T_NEAR(norm_of(&c, c.states[0]), c.result[0][0].grad_norm, 1e-5);
    workers_fini(&c);
}

T_CASE(a_long_gradient_is_cut_to_the_limit) {
    T_UNUSED;
    workers free_run = new_workers(net_no_decay, 1);
    free_run.exec.watch_gradients = true;
    workers_run(&free_run);
    double norm = free_run.result[0][0].grad_norm;
    static const double parts[] = {0.01, 0.5, 0.9, 1.1, 100};
    for (size_t i = 0; i < TTI_COUNT(parts); i++) {
        workers c = new_workers(net_no_decay, 3);
        c.exec.clip_norm = norm * parts[i];
        workers_run(&c);
        T_NEAR(c.result[0][0].grad_norm, norm, 0); /* as it was before, the same bits */
        T_NEAR(norm_of(&c, c.states[0]) / norm, fmin(parts[i], 1), 1e-4);
        if (parts[i] > 1) /* nothing to cut: nothing is changed */
            assert_memory_equal(c.params[0], free_run.params[0], c.plan->n_flat * sizeof(float));
        workers_fini(&c);
    }
    workers_fini(&free_run);
}

static const char *train_on_nothing(workers *c, tti_exec *exec, int rank) {
    workers_batch *batch = workers_batch_new();
    workers_fill(batch, 0);
    for (int s = 0; s < WORKERS_SHARDS; s++) batch->shards[s].n_rows = 0;
    tti_step_desc desc = workers_step(batch, exec, 0);
    desc.n_rows = 0;
    COMM_OK(tti_exec_step(exec, &desc, &c->result[rank][0]));
    free(batch);
    return NULL;
}

/* As where no token of a batch is masked. */
T_CASE(l1_of_a_step_that_counts_nothing) {
    T_UNUSED;
    workers c = new_workers(net_mlp, 1);
    c.exec.l1 = 0.01;
    c.fn = train_on_nothing;
    workers_run(&c);
    assert_true(isfinite(norm_of(&c, c.params[0])));
    workers_fini(&c);
}

T_CASE(no_norm_is_computed_unless_requested) {
    T_UNUSED;
    workers c = new_workers(net_mlp, 2);
    workers_run(&c);
    T_NEAR(c.result[1][0].grad_norm, 0, 0);
    workers_fini(&c);
}

/* w <- w - lr (g + decay w), first step of sgd, where decay applies. */
T_CASE(one_step_of_sgd) {
    T_UNUSED;
    for (int decay = 0; decay < 2; decay++) {
        workers before = new_workers(decay ? net_mlp : net_no_decay, 1);
        workers after = new_workers(decay ? net_mlp : net_no_decay, 1);
        before.n_steps = 0;
        workers_run(&before);
        workers_run(&after);
        for (size_t i = 0; i < after.plan->n_flat; i++)
            T_NEAR(after.params[0][i], before.params[0][i] - 0.1f * after.states[0][i], 1e-6);
        assert_true(norm_of(&after, after.states[0]) > 0);
        workers_fini(&before);
        workers_fini(&after);
    }
}

/* sqrt at 0: the loss is finite, the gradient is not. */
static tutti_graph *net_cliff(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    tutti_init zeros = {0};
    tutti_linear_desc desc = {.n_out = 6, .init = &zeros};
    tutti_value *x = tutti_linear_with(g, net_x(g), &desc, "fc1");
    x = tutti_sqrt(g, tutti_square(g, x));
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "fc2"));
}

static const char *compute_cliff(workers *c, tti_exec *exec, int rank) {
    workers_batch *batch = workers_batch_new();
    workers_fill(batch, 0);
    size_t n_bytes = c->plan->n_flat * sizeof(float);
    float *before = malloc(n_bytes);
    memcpy(before, tti_exec_params(exec), n_bytes);
    tti_step_desc desc = workers_step(batch, exec, 6);
    tti_step_result *result = &c->result[rank][0];
    COMM_FAILS(tti_exec_step(exec, &desc, result), TUTTI_E_NUMERICS,
               "step 7: the gradient is not finite (first in 'fc1.weight')");
    COMM_TRUE(result->skipped && isfinite(result->loss_sum));
    COMM_TRUE(memcmp(before, tti_exec_params(exec), n_bytes) == 0);
    free(before);
    free(batch);
    return NULL;
}

T_CASE(a_gradient_that_is_not_finite_leaves_the_parameters) {
    T_UNUSED;
    for (int clip = 0; clip < 2; clip++)
        for (int n_ranks = 1; n_ranks <= 3; n_ranks += 2) {
            workers c = new_workers(net_cliff, n_ranks);
            c.exec.watch_gradients = !clip;
            c.exec.clip_norm = clip;
            c.fn = compute_cliff;
            workers_run(&c);
            workers_fini(&c);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_norm_is_that_of_the_mean_gradient),
        cmocka_unit_test(a_long_gradient_is_cut_to_the_limit),
        cmocka_unit_test(l1_of_a_step_that_counts_nothing),
        cmocka_unit_test(no_norm_is_computed_unless_requested),
        cmocka_unit_test(one_step_of_sgd),
        cmocka_unit_test(a_gradient_that_is_not_finite_leaves_the_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
