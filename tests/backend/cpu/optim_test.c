/* optim_test.c - twenty steps of each optimizer go where PyTorch's do, by what its op means
 * and by the fast kernel.
 *
 * The problem is the one of make_optim.py: a quadratic with noise, its numbers exact in float. */
#include <stdio.h>

#include "backend/backend.h"
#include "golden/optim_steps.h"
#include "ops/op_table.h"
#include "reference_run.h"
#include "t.h"

enum { N = GOLDEN_OPTIM_N, MAX_TENSORS = 5 };

static double fraction(int i, int salt) {
    return (double)((i * 7919 + salt * 104729 + 13) % 1021) / 512 - 1;
}

/* The gradient at w in step, times n_samples, since an optimizer divides the sum. */
static void make_gradient(int step, const double *w, double n_samples, double *g) {
    for (int i = 0; i < N; i++) {
        double a = 0.25 + (double)(i * 37 % 64) / 64;
        g[i] = n_samples * (a * (w[i] - fraction(i, 101)) + fraction(i, step) / 4);
    }
}

/* One op in a graph: w, states, g, hyper, norms where it takes them. */
typedef struct trial {
    tutti_graph *g;
    tti_node *node;
    tutti_value *in[MAX_TENSORS + 1];
    int n_states;
    bool fast;
    t_reference *r; /* also the memory of the fast kernel's inputs */
} trial;

static bool has_attr(const tti_op *op, const char *name) {
    const tti_attr_spec *spec = op->attrs;
    while (spec->name && strcmp(spec->name, name) != 0) spec++;
    return spec->name != NULL;
}

static void fill_attrs(const golden_optim *c, const tti_op *op, tti_attr_arg *attrs) {
    const tti_attr_arg all[] = {
        TTI_FLOAT("momentum", c->momentum), TTI_FLOAT("beta1", c->beta1),
        TTI_FLOAT("beta2", c->beta2),       TTI_FLOAT("alpha", c->alpha),
        TTI_FLOAT("eps", c->eps),           TTI_FLOAT("trust", c->trust),
        TTI_FLOAT("decay", c->decay),       TTI_INT("nesterov", (int64_t)c->nesterov)};
    int n = 0;
    for (size_t i = 0; i < TTI_COUNT(all); i++)
        if (has_attr(op, all[i].name)) attrs[n++] = all[i];
}

static trial begin(const golden_optim *c, const char *name, int n_states, bool fast) {
    static const char *const names[] = {"0", "1", "2", "3", "hyper", "norms"};
    const tti_op *op = tti_op_find(name);
    if (!op) fail_msg("there is no op %s", name);
    trial t = {.g = tutti_graph_create(true), .n_states = n_states, .fast = fast};
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1] = {0};
    int n = 0;
    fill_attrs(c, op, attrs);
    for (; n < n_states + 2; n++) t.in[n] = tutti_input(t.g, names[n], TUTTI_F32, &TUTTI_SHAPE(N));
    t.in[n++] = tutti_input(t.g, "hyper", TUTTI_F32, &TUTTI_SHAPE(8));
    if (op->traits & TTI_NORMS) t.in[n++] = tutti_input(t.g, "norms", TUTTI_F32, &TUTTI_SHAPE(2));
    t.node = tti_graph_add(
        t.g, &(tti_node_desc){.op = op, .name = "step", .in = t.in, .n_in = n, .attrs = attrs});
    T_OK(tutti_graph_check(t.g));
    t.r = t_reference_create(t.g);
    return t;
}

static void end(trial *t) {
    t_reference_destroy(t->r);
    tutti_graph_destroy(t->g);
}

static double *input(const trial *t, int k) { return t_reference_of(t->r, t->in[k]); }
static double *hyper_of(const trial *t) { return input(t, t->n_states + 2); }

/* The fast kernel in place, over floats. */
static void run_fast(trial *t) {
    static _Alignas(64) float values[MAX_TENSORS + 1][32], direction[32];
    const tti_kernel *kernel = tti_backend_cpu.select(t->node, false);
    void *in[MAX_TENSORS + 1], *out[TTI_MAX_OUT];
    if (strcmp(kernel->name, "reference") == 0) fail_msg("%s has no kernel", t->node->op->name);
    assert_null(kernel->prepare);
    for (int k = 0; k < t->node->n_in; k++) {
        in[k] = values[k];
        for (int64_t i = 0; i < tutti_shape_n_elems(&t->in[k]->type.shape); i++)
            values[k][i] = (float)input(t, k)[i];
    }
    bool updates = (t->node->op->traits & TTI_UPDATE) != 0;
    for (int k = 0; k < t->node->op->n_out; k++) out[k] = updates ? values[k] : direction;
    T_OK(kernel->run(NULL,
                     &(tti_kargs){.node = t->node, .in = in, .out = out, .run = &(tti_run){0}}));
    for (int k = 0; k < t->node->op->n_out; k++)
        for (int i = 0; i < N; i++)
            t_reference_of(t->r, t->node->out[k])[i] = ((const float *)out[k])[i];
}

static void run(trial *t) {
    if (t->fast)
        run_fast(t);
    else
        t_reference_run(t->r, &(tti_run){0});
}

static double norm(const double *x) {
    double sum = 0;
    for (int i = 0; i < N; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

/* The norms of w and of what NAME_direction gives, or of the scaled gradient. */
static void find_norms(const golden_optim *c, const trial *t, double *norms) {
    char name[64];
    const double *hyper = hyper_of(t);
    snprintf(name, sizeof name, "%s_direction", c->op);
    norms[0] = norm(input(t, 0));
    norms[1] = norm(input(t, t->n_states + 1)) * hyper[1] * hyper[2];
    if (!tti_op_find(name)) return;
    trial d = begin(c, name, t->n_states, t->fast);
    for (int k = 0; k < t->n_states + 2; k++) memcpy(input(&d, k), input(t, k), N * sizeof *norms);
    memcpy(hyper_of(&d), hyper, 8 * sizeof *norms);
    run(&d);
    norms[1] = norm(t_reference_of(d.r, d.node->out[0]));
    end(&d);
}

static void check_case(const golden_optim *c, bool fast, double n_samples, double clip) {
    int n_states = tti_op_find(c->op)->n_out - 1;
    trial t = begin(c, c->op, n_states, fast);
    for (int i = 0; i < N; i++) input(&t, 0)[i] = fraction(i, 202);
    for (int s = 0; s < GOLDEN_OPTIM_STEPS; s++) {
        double bias1 = 1 - pow(c->beta1, s + 1), bias2 = 1 - pow(c->beta2, s + 1);
        double hyper[8] = {c->lr, 1 / n_samples, clip, s + 1, bias1, bias2};
        make_gradient(s, input(&t, 0), n_samples / clip, input(&t, n_states + 1));
        memcpy(hyper_of(&t), hyper, sizeof hyper);
        if (t.node->op->traits & TTI_NORMS) find_norms(c, &t, input(&t, n_states + 3));
        run(&t);
        for (int k = 0; k <= n_states; k++)
            memcpy(input(&t, k), t_reference_of(t.r, t.node->out[k]), N * sizeof(double));
    }
    for (int i = 0; i < N; i++)
        if (!(fabs(input(&t, 0)[i] - c->w[i]) <= 1e-5))
            fail_msg("%s (lr %g, decay %g), %s: w[%d] = %.9g, PyTorch %.9g", c->op, c->lr, c->decay,
                     fast ? "kernel" : "reference", i, input(&t, 0)[i], c->w[i]);
    end(&t);
}

T_CASE(by_reference) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(golden_optims); i++)
        check_case(&golden_optims[i], false, 1, 1);
}

T_CASE(by_kernel) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(golden_optims); i++) check_case(&golden_optims[i], true, 1, 1);
}

/* Sums over samples, and gradients clipped by norm, come scaled. */
T_CASE(scaled_by_count_and_clip) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(golden_optims); i++) {
        check_case(&golden_optims[i], false, 96, 0.25);
        check_case(&golden_optims[i], true, 96, 0.25);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_reference),
        cmocka_unit_test(by_kernel),
        cmocka_unit_test(scaled_by_count_and_clip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
