/* optim_test.c - three steps of each optimizer against PyTorch 1.13 in double. */
#include "ops/op_table.h"
#include "reference_run.h"
#include "t.h"

enum { N = 3, N_STEPS = 3 };
static const double grads[N_STEPS][N] = {{0.5, -1.25, 2.0}, {-0.75, 0.5, 1.0}, {0.25, 0.125, -3.0}};
static const double lr = 0.1;

typedef struct trial {
    const char *op;
    int n_state;
    tti_attr_arg attrs[5];
    double beta1, beta2;
    double expect[N];
} trial;

/* Runs N_STEPS steps from w = {1, -2, 0.5}; the gradient comes scaled by 1/inv_count/clip_scale. */
static void run_trial(const trial *t, double inv_count, double clip_scale, double *w) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *in[5];
    int n_in = 0;
    for (; n_in < t->n_state + 2; n_in++)
        in[n_in] =
            tutti_input(g, (const char *[]){"w", "m", "v", "g"}[n_in], TUTTI_F32, &TUTTI_SHAPE(N));
    in[n_in++] = tutti_input(g, "hyper", TUTTI_F32, &TUTTI_SHAPE(8));
    tti_node *node = tti_graph_add(
        g, &(tti_node_desc){
               .op = tti_op_find(t->op), .name = "w", .in = in, .n_in = n_in, .attrs = t->attrs});
    T_OK(tutti_graph_check(g));
    t_reference *r = t_reference_create(g);
    memcpy(t_reference_of(r, in[0]), (double[]){1, -2, 0.5}, N * sizeof *w);
    for (int s = 0; s < N_STEPS; s++) {
        for (int i = 0; i < N; i++)
            t_reference_of(r, in[n_in - 2])[i] = grads[s][i] / inv_count / clip_scale;
        double hyper[8] = {
            lr, inv_count, clip_scale, s + 1, 1 - pow(t->beta1, s + 1), 1 - pow(t->beta2, s + 1)};
        memcpy(t_reference_of(r, in[n_in - 1]), hyper, sizeof hyper);
        t_reference_run(r, &(tti_run){0});
        for (int k = 0; k < node->op->n_out; k++)
            memcpy(t_reference_of(r, in[k]), t_reference_of(r, node->out[k]), N * sizeof *w);
    }
    memcpy(w, t_reference_of(r, in[0]), N * sizeof *w);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

static const trial trials[] = {
    {"sgd",
     1,
     {{"momentum", {.f = 0.9}}, {"decay", {.f = 0.01}}},
     0,
     0,
     {0.976509749, -1.757964473, 0.0660571994999999}},
    {"sgd",
     1,
     {{"momentum", {.f = 0.9}}, {"decay", {.f = 0.01}}, {"nesterov", {.i = 1}}},
     0,
     0,
     {0.976008708191, -1.714410694907, 0.1096016787705}},
    {"sgd", 1, {{0}}, 0, 0, {1, -1.9375, 0.5}},
    {"adam",
     2,
     {{"beta1", {.f = 0.8}}, {"beta2", {.f = 0.95}}, {"eps", {.f = 1e-6}}, {"decay", {.f = 0.01}}},
     0.8,
     0.95,
     {0.929494874685336, -1.85160194642821, 0.325020898247349}},
    {"adamw",
     2,
     {{"beta1", {.f = 0.8}}, {"beta2", {.f = 0.95}}, {"eps", {.f = 1e-6}}, {"decay", {.f = 0.01}}},
     0.8,
     0.95,
     {0.92982000648317, -1.85002200788768, 0.324021359341067}},
};

T_CASE(steps_are_those_of_pytorch) {
    T_UNUSED;
    double w[N];
    for (size_t t = 0; t < TTI_COUNT(trials); t++) {
        run_trial(&trials[t], 1, 1, w);
        for (int i = 0; i < N; i++) T_NEAR(w[i], trials[t].expect[i], 1e-13);
    }
}

T_CASE(gradients_are_scaled_by_count_and_clip) {
    T_UNUSED;
    double w[N];
    for (size_t t = 0; t < TTI_COUNT(trials); t++) {
        run_trial(&trials[t], 1.0 / 128, 0.25, w);
        for (int i = 0; i < N; i++) T_NEAR(w[i], trials[t].expect[i], 1e-13);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_those_of_pytorch),
        cmocka_unit_test(gradients_are_scaled_by_count_and_clip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
