/* objective_test.c - the loss of two labels by hand: its value, its gradient, missing rows. */
#include "train/job/objective.h"

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cross_entropy_of_both_labels),
        cmocka_unit_test(mse_to_the_mixed_target),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
