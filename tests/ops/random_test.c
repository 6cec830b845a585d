/* random_test.c - masks of dropout and drop_path: rates, what they depend on, and what not. */
#include "base/philox.h"
#include "ir/graph.h"
#include "reference_run.h"
#include "t.h"
#include "tutti/ops.h"

enum { WIDTH = 1001, MAX_ROWS = 64 };

/* Dropout of ones in rows of WIDTH, with the gradient of ones; y and dx may be NULL. */
static void run_dropout(int n_rows, double p, const char *name, const tti_run *run, double *y,
                        double *dx) {
    size_t n = (size_t)n_rows * WIDTH;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_constant(g, TUTTI_F32, &TUTTI_SHAPE(n_rows, WIDTH), 1);
    tutti_value *out = tutti_dropout(g, x, p, name), *grad = NULL;
    T_OK(tutti_graph_check(g));
    T_OK(out->node->op->grad(g, out->node, &x, (bool[]){true}, &grad));
    t_reference *r = t_reference_create(g);
    t_reference_run(r, run);
    if (y) memcpy(y, t_reference_of(r, out), n * sizeof *y);
    if (dx) memcpy(dx, t_reference_of(r, grad), n * sizeof *dx);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

static double whole[MAX_ROWS * WIDTH], part[MAX_ROWS * WIDTH];
static const tti_run base = {.seed = 1, .step = 2, .sample0 = 0};

static size_t n_equal(size_t n) {
    size_t equal = 0;
    for (size_t i = 0; i < n; i++) equal += whole[i] == part[i];
    return equal;
}

T_CASE(keeps_the_right_share_and_the_mean) {
    T_UNUSED;
    static const double rates[] = {0.1, 0.5, 0.9};
    for (size_t k = 0; k < 3; k++) {
        double p = rates[k], sum = 0, kept = 0, n = MAX_ROWS * WIDTH;
        run_dropout(MAX_ROWS, p, "drop", &base, whole, NULL);
        for (size_t i = 0; i < MAX_ROWS * WIDTH; i++) {
            sum += whole[i];
            kept += whole[i] != 0;
            if (whole[i] != 0) T_NEAR(whole[i], 1 / (1 - p), 1e-15);
        }
        double deviation = sqrt(n * p * (1 - p));
        if (fabs(kept - n * (1 - p)) > 4.5 * deviation)
            fail_msg("p = %g: %g of %g are kept", p, kept, n);
        T_NEAR(sum / n, 1, 0.05);
    }
}

T_CASE(nothing_is_dropped_at_zero) {
    T_UNUSED;
    run_dropout(4, 0, "drop", &base, whole, NULL);
    for (size_t i = 0; i < 4 * WIDTH; i++) assert_true(whole[i] == 1);
}

T_CASE(mask_follows_the_sample_and_not_the_batch) {
    T_UNUSED;
    run_dropout(MAX_ROWS, 0.5, "drop", &base, whole, NULL);
    for (int first = 0, n_rows = 1; first + n_rows <= MAX_ROWS; first += n_rows, n_rows++) {
        tti_run run = base;
        run.sample0 = (uint64_t)first;
        run_dropout(n_rows, 0.5, "drop", &run, part, NULL);
        assert_memory_equal(part, whole + first * WIDTH, (size_t)n_rows * WIDTH * sizeof *part);
    }
}

T_CASE(mask_of_the_gradient_is_that_of_the_value) {
    T_UNUSED;
    run_dropout(MAX_ROWS, 0.3, "drop", &base, whole, part);
    T_EQ(n_equal(MAX_ROWS * WIDTH), MAX_ROWS * WIDTH);
}

T_CASE(mask_changes_with_seed_step_and_layer) {
    T_UNUSED;
    size_t n = MAX_ROWS * WIDTH;
    tti_run seed = base, step = base;
    seed.seed++, step.step++;
    run_dropout(MAX_ROWS, 0.5, "drop", &base, whole, NULL);
    run_dropout(MAX_ROWS, 0.5, "drop2", &base, part, NULL);
    assert_true(n_equal(n) < n * 6 / 10 && n_equal(n) > n * 4 / 10);
    run_dropout(MAX_ROWS, 0.5, "drop", &seed, part, NULL);
    assert_true(n_equal(n) < n * 6 / 10 && n_equal(n) > n * 4 / 10);
    run_dropout(MAX_ROWS, 0.5, "drop", &step, part, NULL);
    assert_true(n_equal(n) < n * 6 / 10 && n_equal(n) > n * 4 / 10);
}

/* The formula that every backend must follow. */
T_CASE(bits_are_counted_as_written_down) {
    T_UNUSED;
    tti_run run = {.seed = 9, .step = 4, .sample0 = 1000};
    run_dropout(2, 0.5, "drop", &run, whole, NULL);
    uint64_t key = tti_mix64(9, tti_hash_name("drop"));
    for (size_t e = 0; e < WIDTH; e++) {
        uint64_t counter = ((uint64_t)1001 << 28) + e / 4;
        float unit = tti_philox_unit(tti_philox_draw(key, 4, counter).v[e % 4]);
        T_EQ(whole[WIDTH + e] != 0, unit >= 0.5f);
    }
}

/* drop_path: whole samples, by place in the global batch; the gradient has the same mask. */
static void run_path(int n_rows, const tti_run *run, double *y, double *dx) {
    enum { N = 3 };
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_constant(g, TUTTI_F32, &TUTTI_SHAPE(n_rows, N), 1), *grad = NULL;
    tutti_value *out = tutti_drop_path(g, x, 0.25, "path");
    T_OK(tutti_graph_check(g));
    T_OK(out->node->op->grad(g, out->node, &x, (bool[]){true}, &grad));
    t_reference *r = t_reference_create(g);
    t_reference_run(r, run);
    for (int i = 0; i < n_rows; i++) {
        y[i] = t_reference_of(r, out)[i * N];
        dx[i] = t_reference_of(r, grad)[i * N];
        for (int e = 1; e < N; e++) T_NEAR(t_reference_of(r, out)[i * N + e], y[i], 0);
    }
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

/* As in PyTorch, where a mask is multiplied: NaN and infinity times 0 are NaN. */
T_CASE(nan_is_not_dropped) {
    T_UNUSED;
    enum { N = 64 };
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(N, 1));
    tutti_value *y[2] = {tutti_dropout(g, x, 0.5, "drop"), tutti_drop_path(g, x, 0.5, "path")};
    t_reference *r = t_reference_create(g);
    for (int i = 0; i < N; i++) t_reference_of(r, x)[i] = i % 2 ? NAN : INFINITY;
    t_reference_run(r, &base);
    for (int k = 0; k < 2; k++) {
        int n_infinite = 0;
        for (int i = 0; i < N; i++) {
            double got = t_reference_of(r, y[k])[i];
            assert_true(isnan(got) || (got == INFINITY && i % 2 == 0));
            n_infinite += got == INFINITY;
        }
        assert_true(n_infinite > 0 && n_infinite < N / 2);
    }
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

T_CASE(paths_drop_whole_samples) {
    T_UNUSED;
    enum { N_ROWS = 4000 };
    static double all[N_ROWS], slopes[N_ROWS], some[N_ROWS], more[N_ROWS];
    double kept = 0;
    run_path(N_ROWS, &base, all, slopes);
    for (int i = 0; i < N_ROWS; i++) {
        kept += all[i] != 0;
        if (all[i] != 0) T_NEAR(all[i], 4.0 / 3, 1e-15);
        T_NEAR(slopes[i], all[i], 0);
    }
    assert_true(fabs(kept - 0.75 * N_ROWS) < 4.5 * sqrt(N_ROWS * 0.25 * 0.75));
    tti_run run = base;
    run.sample0 = 1234;
    run_path(100, &run, some, more);
    assert_memory_equal(some, all + 1234, 100 * sizeof *some);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_the_right_share_and_the_mean),
        cmocka_unit_test(nothing_is_dropped_at_zero),
        cmocka_unit_test(mask_follows_the_sample_and_not_the_batch),
        cmocka_unit_test(mask_of_the_gradient_is_that_of_the_value),
        cmocka_unit_test(mask_changes_with_seed_step_and_layer),
        cmocka_unit_test(bits_are_counted_as_written_down),
        cmocka_unit_test(nan_is_not_dropped),
        cmocka_unit_test(paths_drop_whole_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
