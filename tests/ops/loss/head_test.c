/* head_test.c - the loss of a head without logits: that of the whole one, and what is far, broken
 * or does not count. */
#include <math.h>

#include "ops/loss/head.h"
#include "ops/op_table.h"
#include "reference_run.h"
#include "t.h"
#include "tutti/ops.h"

enum { CLASSES = 4, MOST_ROWS = 4 };

typedef struct outcome {
    double loss, count, correct, dz[MOST_ROWS * CLASSES]; /* dz: by logit, of dloss 0.5 */
} outcome;

/* A row for each label, all of the same logits: x is 1, and w a column of them. */
static outcome run_head(const double *logits, const int *labels, int n_rows, bool whole) {
    outcome got;
    tutti_value *out[TTI_MAX_OUT] = {NULL};
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *in[] = {tutti_input(g, "x", TUTTI_BF16, &TUTTI_SHAPE(n_rows, 1)),
                         tutti_input(g, "w", TUTTI_BF16, &TUTTI_SHAPE(CLASSES, 1)),
                         tutti_input(g, "labels", TUTTI_I32, &TUTTI_SHAPE(n_rows)),
                         tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 0.5)};
    tutti_value *z = tutti_matmul_with(g, in[0], in[1], false, true);
    if (whole)
        tti_emit_n(g, "cross_entropy_and_grad", NULL, (tutti_value *[]){z, in[2], in[3]}, 3, NULL,
                   out);
    else
        tti_emit_n(g, "cross_entropy_head", NULL, in, 4, NULL, out);
    T_OK(tutti_graph_check(g));
    t_reference *r = t_reference_create(g);
    memcpy(t_reference_of(r, in[1]), logits, CLASSES * sizeof *logits);
    for (int i = 0; i < n_rows; i++)
        t_reference_of(r, in[0])[i] = 1, t_reference_of(r, in[2])[i] = labels[i];
    t_reference_run(r, &(tti_run){0});
    for (int i = 0; i < n_rows * CLASSES; i++) {
        double factor = whole ? 1 : t_reference_of(r, out[1])[i / CLASSES];
        got.dz[i] = t_reference_of(r, out[0])[i] * factor;
    }
    got.loss = *t_reference_of(r, out[whole ? 1 : 2]);
    got.count = *t_reference_of(r, out[whole ? 2 : 3]);
    got.correct = *t_reference_of(r, out[whole ? 3 : 4]);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
    return got;
}

/* The loss of one row. */
static double loss_of(const double *logits, int label) {
    return run_head(logits, (int[]){label}, 1, false).loss;
}

static void expect_whole(const double *logits, const int *labels, int n_rows) {
    outcome want = run_head(logits, labels, n_rows, true);
    outcome got = run_head(logits, labels, n_rows, false);
    T_NEAR(got.loss, want.loss, 1e-12);
    T_NEAR(got.count, want.count, 0);
    T_NEAR(got.correct, want.correct, 0);
    for (int i = 0; i < n_rows * CLASSES; i++) T_NEAR(got.dz[i], want.dz[i], 1e-12);
}

T_CASE(loss_and_gradient_are_those_of_logits) {
    T_UNUSED;
    const double plain[] = {1, 2, -0.5, 0.25}, tied[] = {3, 3, 1, 3};
    const double wide[] = {-800, 5, -20, 40}, equal[] = {1e4, 1e4, 1e4, 1e4};
    expect_whole(plain, (int[]){0, 1, 2, 3}, 4);
    expect_whole(plain, (int[]){-1, 1, -1}, 3);
    expect_whole(tied, (int[]){0, 1, 3}, 3);
    expect_whole(wide, (int[]){1, 2, 3}, 3);
    expect_whole(equal, (int[]){2}, 1);
    expect_whole(plain, (int[]){-1, -1}, 2);
}

/* Beyond the most that e is raised to, all that beat the label push it alike. */
T_CASE(a_label_that_is_far_below_loses_so_much) {
    T_UNUSED;
    outcome far = run_head((double[]){0, 100, 70, -5}, (int[]){0}, 1, false);
    T_NEAR(far.loss, TTI_HEAD_MOST + log(2), 1e-9);
    T_NEAR(far.dz[0], -0.5, 1e-12);
    T_NEAR(far.dz[1], 0.25, 1e-12);
    T_NEAR(far.dz[2], 0.25, 1e-12);
    T_NEAR(far.correct, 0, 0);
}

T_CASE(what_is_broken_is_reported) {
    T_UNUSED;
    const double above[] = {0, INFINITY, 1, 2}, none[] = {0, NAN, 1, 2};
    const double below[] = {0, -INFINITY, 0, 0};
    assert_true(loss_of(above, 0) == INFINITY);
    assert_true(!isfinite(loss_of(above, 1)));
    assert_true(isnan(loss_of(none, 0)) && isnan(loss_of(none, 1)));
    T_NEAR(loss_of(below, 0), log(3), 1e-12);
    assert_true(isnan(loss_of((double[]){-INFINITY, NAN, 1, 2}, 0)));
    assert_true(isnan(loss_of((double[]){-INFINITY, INFINITY, 1, 2}, 0)));
    assert_true(isnan(loss_of((double[]){-INFINITY, -INFINITY, -INFINITY, -INFINITY}, 3)));
    for (int label = 4; label >= -5; label -= 9) {
        outcome odd = run_head((double[]){1, 2, 3, 4}, (int[]){0, label}, 2, false);
        assert_true(isnan(odd.loss) && isnan(odd.dz[CLASSES]) && !isnan(odd.dz[0]));
    }
}

static void expect_gradient(const double *logits, int label, const double *want) {
    for (int whole = 0; whole < 2; whole++) {
        outcome got = run_head(logits, &label, 1, whole);
        assert_true(got.loss == INFINITY && got.correct == 0);
        for (int i = 0; i < CLASSES; i++) T_NEAR(got.dz[i], 0.5 * want[i], 1e-12);
    }
}

/* Gradients of torch.nn.functional.cross_entropy in double. */
T_CASE(a_label_without_weight_has_an_infinite_loss_and_a_finite_gradient) {
    T_UNUSED;
    expect_gradient((double[]){0, -INFINITY, 0, 0}, 1, (double[]){1.0 / 3, -1, 1.0 / 3, 1.0 / 3});
    expect_gradient((double[]){-INFINITY, -INFINITY, -300, -INFINITY}, 0, (double[]){-1, 0, 1, 0});
    expect_gradient((double[]){-INFINITY, -INFINITY, 1, 2}, 1,
                    (double[]){0, -1, 0.2689414213699951, 0.7310585786300049});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_and_gradient_are_those_of_logits),
        cmocka_unit_test(a_label_that_is_far_below_loses_so_much),
        cmocka_unit_test(what_is_broken_is_reported),
        cmocka_unit_test(a_label_without_weight_has_an_infinite_loss_and_a_finite_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
