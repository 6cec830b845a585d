/* loss_test.c - special values of the losses: smoothing, ignored rows, infinite logits, bad labels.
 * Numbers of PyTorch 1.13 in double. */
#include "ir/graph.h"
#include "ops/op_table.h"
#include "reference_run.h"
#include "t.h"
#include "tutti/ops.h"

enum { N_ROWS = 3, N_CLASSES = 3 };
static const double logits3[N_ROWS * N_CLASSES] = {1, 2, -0.5, 0.25, 0.25, 0, 3, -1, 0.5};

typedef struct entropy {
    double loss, count, correct, dx[N_ROWS * N_CLASSES];
} entropy;

static entropy run_entropy(const double *x, const int *labels, double smoothing, int64_t ignore) {
    entropy result;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *in = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(N_ROWS, N_CLASSES));
    tutti_value *label = tutti_input(g, "labels", TUTTI_I32, &TUTTI_SHAPE(N_ROWS));
    tutti_value *dloss = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1);
    tutti_loss loss = tutti_cross_entropy(g, in, label, smoothing, ignore);
    tutti_value *dy[3] = {dloss, NULL, NULL}, *dx[2] = {NULL, NULL};
    T_OK(tutti_graph_check(g));
    T_OK(loss.sum->node->op->grad(g, loss.sum->node, dy, (bool[]){true, false}, dx));
    t_reference *r = t_reference_create(g);
    memcpy(t_reference_of(r, in), x, sizeof result.dx);
    for (int i = 0; i < N_ROWS; i++) t_reference_of(r, label)[i] = labels[i];
    t_reference_run(r, &(tti_run){0});
    result.loss = *t_reference_of(r, loss.sum);
    result.count = *t_reference_of(r, loss.count);
    result.correct = *t_reference_of(r, loss.correct);
    memcpy(result.dx, t_reference_of(r, dx[0]), sizeof result.dx);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
    return result;
}

T_CASE(cross_entropy_is_that_of_pytorch) {
    T_UNUSED;
    entropy plain = run_entropy(logits3, (int[]){1, 0, 2}, 0, -1);
    T_NEAR(plain.loss, 3.9892328229056173, 1e-14);
    T_NEAR(plain.count, 3, 0);
    T_NEAR(plain.correct, 2, 0); /* the first of two equal maxima counts */
    T_NEAR(run_entropy(logits3, (int[]){1, 0, 2}, 0.1, -1).loss, 4.0808994895722845, 1e-14);
    T_NEAR(run_entropy(logits3, (int[]){1, 1, 2}, 0, -1).correct, 1, 0);
}

T_CASE(ignored_rows_are_exactly_nothing) {
    T_UNUSED;
    entropy all = run_entropy(logits3, (int[]){-1, -1, -1}, 0.1, -1);
    T_NEAR(all.loss, 0, 0);
    T_NEAR(all.count, 0, 0);
    T_NEAR(all.correct, 0, 0);
    for (int i = 0; i < N_ROWS * N_CLASSES; i++) assert_true(all.dx[i] == 0);
    entropy two = run_entropy(logits3, (int[]){1, 2, 2}, 0, 2);
    T_NEAR(two.count, 1, 0);
    for (int i = N_CLASSES; i < N_ROWS * N_CLASSES; i++) assert_true(two.dx[i] == 0);
    assert_true(two.dx[0] != 0);
    double nan_row[N_ROWS * N_CLASSES] = {NAN, NAN, NAN, 1, 2, 3, 4, 5, 6};
    entropy padded = run_entropy(nan_row, (int[]){-1, 1, 1}, 0, -1);
    assert_true(isfinite(padded.loss));
    for (int i = 0; i < N_CLASSES; i++) assert_true(padded.dx[i] == 0);
}

T_CASE(infinite_and_huge_logits_stay_finite) {
    T_UNUSED;
    double x[N_ROWS * N_CLASSES] = {1e4, 0, -1e4, -INFINITY, 0, 0, 700, 710, 720};
    entropy e = run_entropy(x, (int[]){0, 1, 2}, 0, -1);
    T_NEAR(e.loss, log(2) + log1p(exp(-10) + exp(-20)), 1e-12);
    for (int i = 0; i < N_ROWS * N_CLASSES; i++) assert_true(isfinite(e.dx[i]));
}

/* Two workers have two classes each, and one of them none with any weight: the loss and the
 * gradient are those of the whole row. */
T_CASE(a_worker_whose_classes_have_no_weight_changes_nothing) {
    T_UNUSED;
    const double x[2][2] = {{-INFINITY, -INFINITY}, {1, 2}};
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *in[2], *part[2], *out[4], *dx[2];
    tutti_value *label = tutti_input(g, "labels", TUTTI_I32, &TUTTI_SHAPE(1));
    tutti_value *parts = tutti_input(g, "parts", TUTTI_F32, &TUTTI_SHAPE(1, 10));
    tutti_value *dloss = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1);
    for (int w = 0; w < 2; w++) {
        in[w] = tutti_input(g, w ? "x1" : "x0", TUTTI_F32, &TUTTI_SHAPE(1, 2));
        part[w] = tti_emit(g, "entropy_part", NULL, (tutti_value *[]){in[w], label}, 2,
                           (tti_attr_arg[]){TTI_INT("first", 2 * w), {0}});
    }
    tti_emit_n(g, "entropy_join", NULL, (tutti_value *[]){in[0], parts, label}, 3,
               (tti_attr_arg[]){TTI_INT("n", 2), {0}}, out);
    for (int w = 0; w < 2; w++)
        dx[w] =
            tti_emit(g, "entropy_join_grad", NULL, (tutti_value *[]){in[w], label, dloss, out[3]},
                     4, (tti_attr_arg[]){TTI_INT("n", 2), TTI_INT("first", 2 * w), {0}});
    T_OK(tutti_graph_check(g));
    t_reference *r = t_reference_create(g);
    for (int at = 0; at < 4; at += 3) {
        t_reference_of(r, label)[0] = at;
        for (int w = 0; w < 2; w++) memcpy(t_reference_of(r, in[w]), x[w], sizeof x[w]);
        t_reference_run(r, &(tti_run){0});
        for (int w = 0; w < 2; w++) /* what the workers gather */
            memcpy(t_reference_of(r, parts) + 5 * w, t_reference_of(r, part[w]),
                   5 * sizeof(double));
        t_reference_run(r, &(tti_run){0});
        const double want[4] = {at == 0 ? -1 : 0, 0, 0.2689414213699951,
                                0.7310585786300049 - (at == 3)}; /* of PyTorch */
        if (at == 0) assert_true(*t_reference_of(r, out[0]) == INFINITY);
        if (at == 3) T_NEAR(*t_reference_of(r, out[0]), 0.31326168751822286, 1e-14);
        for (int c = 0; c < 4; c++) T_NEAR(t_reference_of(r, dx[c / 2])[c % 2], want[c], 1e-14);
    }
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

T_CASE(labels_that_are_no_class_give_nan) {
    T_UNUSED;
    entropy high = run_entropy(logits3, (int[]){1, 3, 2}, 0, -1);
    assert_true(isnan(high.loss));
    assert_true(isnan(high.dx[3]) && !isnan(high.dx[0]));
    assert_true(isnan(run_entropy(logits3, (int[]){1, -5, 2}, 0, -1).loss));
    assert_true(isnan(run_entropy(logits3, (int[]){1, -1, 2}, 0, 0).loss));
}

T_CASE(rows_with_nan_are_not_correct) {
    T_UNUSED;
    const double bad[N_ROWS * N_CLASSES] = {NAN, NAN, NAN, 1, NAN, 0, 3, -1, 0.5};
    entropy got = run_entropy(bad, (int[]){0, 0, 0}, 0, -1);
    assert_true(isnan(got.loss));
    T_NEAR(got.count, 3, 0);
    T_NEAR(got.correct, 1, 0);
}

/* By the target ln t + 1 - x; 0 at 0, and NaN where there is no logarithm. */
T_CASE(divergence_of_no_share_has_no_slope) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(1, 4));
    tutti_value *t = tutti_input(g, "t", TUTTI_F32, &TUTTI_SHAPE(1, 4)), *dx[2] = {NULL, NULL};
    tutti_value *dloss = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1);
    tutti_loss loss = tutti_kl_div(g, x, t, NULL, -1);
    T_OK(tutti_graph_check(g));
    T_OK(loss.sum->node->op->grad(g, loss.sum->node, (tutti_value *[]){dloss, NULL},
                                  (bool[]){true, true}, dx));
    t_reference *r = t_reference_create(g);
    memcpy(t_reference_of(r, t), (double[]){NAN, 0, -1, 0.5}, 4 * sizeof(double));
    t_reference_run(r, &(tti_run){0});
    assert_true(isnan(t_reference_of(r, dx[1])[0]) && isnan(t_reference_of(r, dx[1])[2]));
    T_NEAR(t_reference_of(r, dx[1])[1], 0, 0);
    T_NEAR(t_reference_of(r, dx[1])[3], 0.30685281944, 1e-9);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

T_CASE(squared_error_counts_kept_elements) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *pred = tutti_input(g, "pred", TUTTI_F32, &TUTTI_SHAPE(2, 2));
    tutti_value *target = tutti_input(g, "target", TUTTI_F32, &TUTTI_SHAPE(2, 2));
    tutti_value *labels = tutti_input(g, "labels", TUTTI_I32, &TUTTI_SHAPE(2));
    tutti_loss loss = tutti_mse(g, pred, target, labels, -1);
    T_OK(tutti_graph_check(g));
    t_reference *r = t_reference_create(g);
    memcpy(t_reference_of(r, pred), (double[]){1, 2, NAN, 4}, 4 * sizeof(double));
    memcpy(t_reference_of(r, target), (double[]){0, 4, 0, 0}, 4 * sizeof(double));
    t_reference_of(r, labels)[1] = -1;
    t_reference_run(r, &(tti_run){0});
    T_NEAR(*t_reference_of(r, loss.sum), 5, 0);
    T_NEAR(*t_reference_of(r, loss.count), 2, 0);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

/* Two rows of two, the second one padding with NaN. */
static void run_pair(bool kl, double *sum, double *count) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(2, 2));
    tutti_value *t = tutti_input(g, "t", TUTTI_F32, &TUTTI_SHAPE(2, 2));
    tutti_value *labels = tutti_input(g, "labels", TUTTI_I32, &TUTTI_SHAPE(2));
    tutti_loss loss =
        kl ? tutti_kl_div(g, x, t, labels, -1) : tutti_bce_with_logits(g, x, t, labels, -1);
    T_OK(tutti_graph_check(g));
    t_reference *r = t_reference_create(g);
    memcpy(t_reference_of(r, x), (double[]){800, -800, NAN, NAN}, 4 * sizeof(double));
    memcpy(t_reference_of(r, t), (double[]){1, 0, NAN, NAN}, 4 * sizeof(double));
    t_reference_of(r, labels)[1] = -1;
    t_reference_run(r, &(tti_run){0});
    *sum = *t_reference_of(r, loss.sum), *count = *t_reference_of(r, loss.count);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

T_CASE(huge_logits_and_zero_shares_stay_finite) {
    T_UNUSED;
    double sum, count;
    run_pair(false, &sum, &count);
    T_NEAR(sum, 0, 1e-12);
    T_NEAR(count, 2, 0); /* elements */
    run_pair(true, &sum, &count);
    T_NEAR(sum, -800, 0); /* 1 (ln 1 - 800), and 0 ln 0 is 0 */
    T_NEAR(count, 1, 0);  /* rows */
}

T_CASE(cosine_is_that_of_vectors) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *a = tutti_input(g, "a", TUTTI_F32, &TUTTI_SHAPE(3, 2));
    tutti_value *b = tutti_input(g, "b", TUTTI_F32, &TUTTI_SHAPE(3, 2));
    tutti_value *y = tutti_cosine_similarity(g, a, b, -1);
    T_OK(tutti_graph_check(g));
    assert_true(tti_shape_equal(&y->type.shape, &TUTTI_SHAPE(3)));
    t_reference *r = t_reference_create(g);
    memcpy(t_reference_of(r, a), (double[]){1, 0, 3, 4, 0, 0}, 6 * sizeof(double));
    memcpy(t_reference_of(r, b), (double[]){0, 2, -3, -4, 1, 1}, 6 * sizeof(double));
    t_reference_run(r, &(tti_run){0});
    const double want[3] = {0, -1, 0}; /* a zero vector is like nothing */
    for (int i = 0; i < 3; i++) T_NEAR(t_reference_of(r, y)[i], want[i], 1e-15);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cross_entropy_is_that_of_pytorch),
        cmocka_unit_test(ignored_rows_are_exactly_nothing),
        cmocka_unit_test(infinite_and_huge_logits_stay_finite),
        cmocka_unit_test(a_worker_whose_classes_have_no_weight_changes_nothing),
        cmocka_unit_test(labels_that_are_no_class_give_nan),
        cmocka_unit_test(rows_with_nan_are_not_correct),
        cmocka_unit_test(divergence_of_no_share_has_no_slope),
        cmocka_unit_test(squared_error_counts_kept_elements),
        cmocka_unit_test(huge_logits_and_zero_shares_stay_finite),
        cmocka_unit_test(cosine_is_that_of_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
