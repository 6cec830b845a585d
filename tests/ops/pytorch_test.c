/* pytorch_test.c - ops, their gradients and twenty steps of each optimizer against PyTorch, in
 * double. The numbers and how they were made: tests/golden/ops3_make.py. */
#include "ops/op_samples.h"
#include "ops/op_table.h"
#include "reference_run.h"
#include "t.h"
#include "tutti/ops.h"

typedef struct ops3_case {
    const char *op, *in, *attrs;
    double mid, half; /* of floating inputs */
    int lo, hi;       /* of integer inputs  */
    int n_want;
    const double *want; /* outputs, then the gradients of floating inputs */
} ops3_case;

typedef struct ops3_optimizer {
    const char *op, *attrs;
    const double *want; /* the weights after the last step */
} ops3_optimizer;

#include "golden/ops3_numbers.h"

static const double tolerance = 1e-11;

static bool is_float(const tutti_value *value) { return value->type.dtype <= TUTTI_BF16; }

static bool flows(const tti_node *node, int k) {
    return is_float(node->out[k]) && !(node->op->saved_out >> k & 1);
}

static double input_elem(const ops3_case *c, const tutti_value *value, int i, int e) {
    if (!is_float(value)) return c->lo + (7 * e + 3) % (c->hi - c->lo + 1);
    return c->mid + c->half * sin(0.9 * e + 1.7 * i);
}

/* Compares the elements of value with the next wanted numbers. */
static void expect_next(const ops3_case *c, const t_reference *r, const tutti_value *value,
                        int *at) {
    const double *got = t_reference_of(r, value);
    for (int64_t e = 0; e < tti_value_n_elems(value); e++, (*at)++) {
        assert_true(*at < c->n_want);
        if (!(fabs(got[e] - c->want[*at]) <= tolerance * fmax(1, fabs(c->want[*at]))))
            fail_msg("%s(%s){%s}: number %d is %.15g, PyTorch has %.15g", c->op, c->in, c->attrs,
                     *at, got[e], c->want[*at]);
    }
}

static void run_case(const ops3_case *c) {
    tutti_graph *g = tutti_graph_create(true);
    const tti_op *op = tti_op_find(c->op);
    const tti_sample sample = {.in = c->in, .attrs = c->attrs};
    tutti_type types[TTI_MAX_IN];
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1];
    tutti_value *dy[TTI_MAX_OUT] = {NULL}, *dx[TTI_MAX_IN] = {NULL};
    bool need[TTI_MAX_IN];
    int n_in = t_parse_sample(op, &sample, types, attrs), at = 0;
    tti_node *node = t_add_node(g, op, types, n_in, attrs);
    T_OK(tutti_graph_check(g));
    for (int k = 0; k < op->n_out; k++) {
        char name[16];
        snprintf(name, sizeof name, "dy%d", k);
        if (flows(node, k))
            dy[k] = tutti_input(g, name, node->out[k]->type.dtype, &node->out[k]->type.shape);
    }
    for (int i = 0; i < n_in; i++) need[i] = is_float(node->in[i]);
    if (op->grad) T_OK(op->grad(g, node, dy, need, dx));
    t_reference *r = t_reference_create(g);
    for (int i = 0; i < n_in; i++)
        for (int e = 0; e < tti_value_n_elems(node->in[i]); e++)
            t_reference_of(r, node->in[i])[e] = input_elem(c, node->in[i], i, e);
    for (int k = 0; k < op->n_out; k++)
        for (int e = 0; dy[k] && e < tti_value_n_elems(dy[k]); e++)
            t_reference_of(r, dy[k])[e] = cos(0.6 * e + k);
    t_reference_run(r, &(tti_run){0});
    for (int k = 0; k < op->n_out; k++)
        if (flows(node, k)) expect_next(c, r, node->out[k], &at);
    for (int i = 0; op->grad && i < n_in; i++)
        if (need[i]) expect_next(c, r, dx[i], &at);
    T_EQ(at, c->n_want);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

T_CASE(ops_and_gradients_are_those_of_pytorch) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(ops3_cases); i++) run_case(&ops3_cases[i]);
}

/* One training step of the layer, its buffers moved as the update does. */
T_CASE(batch_norm_is_that_of_pytorch) {
    T_UNUSED;
    const ops3_case c = {.op = "batch_norm",
                         .in = "",
                         .attrs = "",
                         .half = 1,
                         .n_want = (int)TTI_COUNT(ops3_batch_norm),
                         .want = ops3_batch_norm};
    static const char *const buffers[] = {"running_mean", "running_var"};
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(3, 2, 2));
    tutti_value *dy = tutti_input(g, "dy", TUTTI_F32, &TUTTI_SHAPE(3, 2, 2)), *dx[4] = {NULL};
    tutti_value *y =
        tutti_batch_norm2d(g, x, &(tutti_batch_norm_desc){.momentum = 0.1, .eps = 1e-3}, "bn");
    T_OK(tutti_graph_check(g));
    tutti_value *in[3] = {x, y->node->in[2], y->node->in[3]};
    T_OK(y->node->op->grad(g, y->node, &dy, (bool[]){true, false, true, true}, dx));
    t_reference *r = t_reference_create(g);
    for (int i = 0; i < 3; i++)
        for (int e = 0; e < tti_value_n_elems(in[i]); e++)
            t_reference_of(r, in[i])[e] = input_elem(&c, in[i], i, e);
    for (int e = 0; e < 12; e++) t_reference_of(r, dy)[e] = cos(0.6 * e);
    *t_reference_of(r, tti_graph_find_source(g, "rows")->out[0]) = 3;
    t_reference_run(r, &(tti_run){0});
    int at = 0;
    expect_next(&c, r, y, &at);
    expect_next(&c, r, dx[0], &at);
    expect_next(&c, r, dx[2], &at);
    expect_next(&c, r, dx[3], &at);
    for (int b = 0; b < 2; b++) { /* by hand what buffer_update does, from 0 and from 1 */
        char name[32];
        snprintf(name, sizeof name, "stat.bn.%s", buffers[b]);
        const double *stat = t_reference_of(r, tti_graph_output(g, name));
        for (int e = 0; e < 2; e++) T_NEAR(0.9 * b + 0.1 * stat[e] / 3, c.want[at++], tolerance);
    }
    T_EQ(at, c.n_want);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

/* ---- optimizers ---- */

enum { N = 5, N_STEPS = 20, MAX_TENSORS = 4 };
static const double lr = 0.05;

/* The update as a graph, its direction beside it where there is one. */
typedef struct trial {
    tutti_graph *g;
    tti_node *update, *direction;
    tutti_value *in[TTI_MAX_IN];
    int n_tensors; /* weights, states, gradient */
    t_reference *r;
} trial;

static trial make_trial(const ops3_optimizer *o) {
    trial t = {.g = tutti_graph_create(true)};
    const tti_op *op = tti_op_find(o->op);
    char name[32];
    snprintf(name, sizeof name, "%s_direction", o->op);
    const tti_op *direction = tti_op_find(name);
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1] = {{0}};
    const char *text = o->attrs;
    T_OK(tti_attrs_parse(op, &text, &t.g->arena, attrs, TTI_MAX_ATTRS));
    bool norms = (op->traits & TTI_NORMS) != 0;
    t.n_tensors = op->n_in_max - (norms ? 2 : 1);
    for (int i = 0; i < op->n_in_max; i++) {
        int64_t n = i < t.n_tensors ? N : i == t.n_tensors ? 8 : 2;
        snprintf(name, sizeof name, "x%d", i);
        t.in[i] = tutti_input(t.g, name, TUTTI_F32, &TUTTI_SHAPE(n));
    }
    tti_node_desc desc = {.op = op, .name = "w", .in = t.in, .n_in = op->n_in_max, .attrs = attrs};
    t.update = tti_graph_add(t.g, &desc);
    desc.op = direction, desc.n_in--;
    if (direction) t.direction = tti_graph_add(t.g, &desc);
    T_OK(tutti_graph_check(t.g));
    t.r = t_reference_create(t.g);
    return t;
}

static double norm_of(const double *x) {
    double sum = 0;
    for (int i = 0; i < N; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

static void step_trial(trial *t, int step) {
    double *w = t_reference_of(t->r, t->in[0]), *g = t_reference_of(t->r, t->in[t->n_tensors - 1]);
    const double hyper[8] = {lr, 0.125, 1, step, 1 - pow(0.9, step), 1 - pow(0.999, step)};
    double true_g[N];
    for (int i = 0; i < N; i++) {
        true_g[i] = (i + 1) * w[i] / 4 + sin(1.3 * step + 0.7 * i);
        g[i] = true_g[i] / 0.125; /* a sum over 8 samples */
    }
    memcpy(t_reference_of(t->r, t->in[t->n_tensors]), hyper, sizeof hyper);
    if (t->update->op->traits & TTI_NORMS) {
        double *norms = t_reference_of(t->r, t->in[t->n_tensors + 1]);
        t_reference_run(t->r, &(tti_run){0});
        norms[0] = norm_of(w);
        norms[1] = norm_of(t->direction ? t_reference_of(t->r, t->direction->out[0]) : true_g);
    }
    t_reference_run(t->r, &(tti_run){0});
    for (int k = 0; k < t->update->op->n_out; k++)
        memcpy(t_reference_of(t->r, t->in[k]), t_reference_of(t->r, t->update->out[k]),
               N * sizeof(double));
}

T_CASE(twenty_steps_of_every_optimizer) {
    T_UNUSED;
    for (size_t o = 0; o < TTI_COUNT(ops3_optimizers); o++) {
        trial t = make_trial(&ops3_optimizers[o]);
        double *w = t_reference_of(t.r, t.in[0]);
        for (int i = 0; i < N; i++) w[i] = 1 - 0.4 * i;
        for (int step = 1; step <= N_STEPS; step++) step_trial(&t, step);
        for (int i = 0; i < N; i++)
            if (!(fabs(w[i] - ops3_optimizers[o].want[i]) <= tolerance))
                fail_msg("%s {%s}: w[%d] is %.15g, not %.15g", ops3_optimizers[o].op,
                         ops3_optimizers[o].attrs, i, w[i], ops3_optimizers[o].want[i]);
        t_reference_destroy(t.r);
        tutti_graph_destroy(t.g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ops_and_gradients_are_those_of_pytorch),
        cmocka_unit_test(batch_norm_is_that_of_pytorch),
        cmocka_unit_test(twenty_steps_of_every_optimizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
