/* objective_test.c - the loss of two labels by hand: its value, its gradient, missing rows. */
#include "train/job/objective.h"

#include "data/target.h"
#include "passes/passes.h"
#include "reference_run.h"
#include "t.h"
#include "tutti/ops.h"

enum { ROWS = 3, CLASSES = 4, HALF = 1 << 23, QUARTER = 1 << 22 };

static const double logits[ROWS][CLASSES] = {{0.5, -1, 2, 0}, {1, 1, -0.5, 3}, {9, 9, 9, 9}};

/* 3/4 of class 2 and 1/4 of class 0; class 3 twice, so whatever the weight; a missing row. */
static const double mixed[ROWS][3] = {{2, 0, 3 * QUARTER}, {3, 3, HALF}, {-1, -1, -1}};
static const double wanted[ROWS][CLASSES] = {{0.25, 0, 0.75, 0}, {0, 0, 0, 1}, {0}};

typedef struct outcome {
    double loss, count, correct, dlogits[ROWS][CLASSES];
} outcome;

static double output(const t_reference *r, const char *name, int i) {
    return t_reference_of(r, tti_graph_output(r->g, name))[i];
}

/* The objective of parameters "logits", with their gradient. */
static outcome run(const char *loss, double smoothing) {
    static tti_job_config c;
    static const tti_target target;
    c.train.label_smoothing = smoothing;
    strcpy(c.train.loss, loss);
    tutti_graph *g = tutti_graph_create(true);
    tutti_shape shape = TUTTI_SHAPE(ROWS, CLASSES);
    tutti_value *x = tutti_param(g, "logits", &shape, &(tutti_init){0}, false);
    tutti_value *y = tutti_input(g, "target", TUTTI_I32, &TUTTI_SHAPE(ROWS, 3));
    tti_objective_add(g, &c, x, y);
    T_OK(tutti_graph_check(g));
    T_OK(tti_pass_autodiff(&g, &target));
    t_reference *r = t_reference_create(g);
    memcpy(t_reference_of(r, tti_graph_find_source(g, "logits")->out[0]), logits, sizeof logits);
    memcpy(t_reference_of(r, tti_graph_find_source(g, "target")->out[0]), mixed, sizeof mixed);
    t_reference_run(r, &(tti_run){0});
    outcome o = {output(r, "loss_sum", 0), output(r, "count", 0), output(r, "correct", 0), {{0}}};
    for (int i = 0; i < ROWS * CLASSES; i++)
        o.dlogits[i / CLASSES][i % CLASSES] = output(r, "grad.logits", i);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
    return o;
}

static double softmax(int row, int c) {
    double sum = 0;
    for (int k = 0; k < CLASSES; k++) sum += exp(logits[row][k]);
    return exp(logits[row][c]) / sum;
}

static void check_entropy(double smoothing) {
    outcome o = run("cross-entropy", smoothing);
    double loss = 0;
    for (int row = 0; row < ROWS; row++) {
        for (int c = 0; c < CLASSES; c++) {
            bool kept = row < 2;
            double t = kept ? (1 - smoothing) * wanted[row][c] + smoothing / CLASSES : 0;
            loss -= t * log(softmax(row, c));
            T_NEAR(o.dlogits[row][c], kept ? softmax(row, c) - t : 0, 1e-12);
        }
    }
    T_NEAR(o.loss, loss, 1e-12);
    T_NEAR(o.count, 2, 0);
    T_NEAR(o.correct, 2, 0); /* both first labels are the highest */
}

T_CASE(cross_entropy_of_both_labels) {
    T_UNUSED;
    check_entropy(0);
    check_entropy(0.1);
    /* lambda CE(y1) + (1 - lambda) CE(y2), written out */
    double by_hand = -0.75 * log(softmax(0, 2)) - 0.25 * log(softmax(0, 0)) - log(softmax(1, 3));
    T_NEAR(run("cross-entropy", 0).loss, by_hand, 1e-12);
}

T_CASE(mse_to_the_mixed_target) {
    T_UNUSED;
    outcome o = run("mse", 0);
    double loss = 0;
    for (int row = 0; row < 2; row++) {
        for (int c = 0; c < CLASSES; c++) {
            double off = logits[row][c] - wanted[row][c];
            loss += off * off;
            T_NEAR(o.dlogits[row][c], 2 * off, 1e-12);
            T_NEAR(o.dlogits[2][c], 0, 0);
        }
    }
    T_NEAR(o.loss, loss, 1e-12);
    T_NEAR(o.count, 2 * CLASSES, 0);
    T_NEAR(o.correct, 2, 0);
}

/* ---- values ---- */

enum { VALUES = 6 }; /* the last one is missing */

typedef struct value_outcome {
    double loss, count, squares, slope[VALUES];
} value_outcome;

static value_outcome run_values(const char *loss, double bend, bool training) {
    static tti_job_config c;
    static const tti_target target;
    const double predicted[VALUES] = {0.3, -2, 1, 0.5, 4, 9}, y[] = {0.5, 1, 1, -0.25, -0.5};
    c.train.huber_delta = c.train.smooth_l1_beta = bend;
    strcpy(c.train.loss, loss);
    tutti_graph *g = tutti_graph_create(training);
    tutti_value *x = tutti_param(g, "x", &TUTTI_SHAPE(VALUES, 1), &(tutti_init){0}, false);
    tti_objective_add_values(g, &c, x, tutti_input(g, "y", TUTTI_I32, &TUTTI_SHAPE(VALUES)));
    T_OK(tutti_graph_check(g));
    if (training) T_OK(tti_pass_autodiff(&g, &target));
    t_reference *r = t_reference_create(g);
    memcpy(t_reference_of(r, tti_graph_find_source(g, "x")->out[0]), predicted, sizeof predicted);
    double *stored = t_reference_of(r, tti_graph_find_source(g, "y")->out[0]);
    for (int i = 0; i < VALUES - 1; i++) stored[i] = y[i] * TTI_TARGET_ONE;
    stored[VALUES - 1] = -1;
    t_reference_run(r, &(tti_run){0});
    value_outcome o = {
        output(r, "loss_sum", 0), output(r, "count", 0), output(r, "correct", 0), {0}};
    for (int i = 0; training && i < VALUES; i++) o.slope[i] = output(r, "grad.x", i);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
    return o;
}

/* Values of torch.nn.functional.smooth_l1_loss, huber_loss and l1_loss, reduction="sum", in double.
 */
T_CASE(losses_of_values_are_those_of_pytorch) {
    T_UNUSED;
    static const struct {
        const char *loss;
        double bend, sum, slope[VALUES];
    } golden[] = {
        {"smooth_l1", 1, 6.80125, {-0.2, -1, 0, 0.75, 1}},
        {"smooth_l1", 0.5, 7.54, {-0.4, -1, 0, 1, 1}},
        {"smooth_l1", 2, 5.650625, {-0.1, -1, 0, 0.375, 1}},
        {"huber", 0.5, 3.77, {-0.2, -0.5, 0, 0.5, 0.5}},
        {"mae", 1, 8.45, {-1, -1, 0, 1, 1}},
    };
    for (size_t i = 0; i < TTI_COUNT(golden); i++)
        for (int training = 0; training < 2; training++) {
            value_outcome o = run_values(golden[i].loss, golden[i].bend, training);
            T_NEAR(o.loss, golden[i].sum, 1e-12);
            T_NEAR(o.count, training ? 5 : 8.45, 1e-12); /* values, or sizes of their errors */
            T_NEAR(o.squares, 29.8525, 1e-12);
            for (int k = 0; training && k < VALUES; k++)
                T_NEAR(o.slope[k], golden[i].slope[k], 1e-12);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cross_entropy_of_both_labels),
        cmocka_unit_test(mse_to_the_mixed_target),
        cmocka_unit_test(losses_of_values_are_those_of_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
