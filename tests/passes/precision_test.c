/* precision_test.c - who computes in 16 bits and who does not; networks that learn all the same. */
#include <stdlib.h>

#include "base/dtype.h"
#include "passes/deep_nets.h"

static tutti_graph *lowered(tutti_graph *g, tutti_dtype dtype, bool loss_scale) {
    tti_target target = {.compute_dtype = dtype, .loss_scale = loss_scale};
    T_OK(tti_pass_simplify(&g, &target));
    T_OK(tti_pass_precision(&g, &target));
    T_OK(tti_graph_verify(g));
    T_OK(tti_pass_autodiff(&g, &target));
    T_OK(tti_graph_verify(g));
    return g;
}

static tutti_dtype in_of(const tutti_graph *g, const char *op, const char *name, int i) {
    const tti_node *node = net_find(g, op, name);
    if (!node) fail_msg("there is no %s '%s'", op, name);
    return node->in[i]->type.dtype;
}

static const tutti_dtype low_dtypes[] = {TUTTI_BF16, TUTTI_F16};

/* Out 0 may be as in 0 is; statistics, their readers' other inputs and losses are f32. */
static void expect_sums_in_f32(const tti_node *node) {
    for (int k = 1; k < node->op->n_out; k++) T_EQ(node->out[k]->type.dtype, TUTTI_F32);
    for (int i = 1; i < node->n_in; i++)
        if (node->in[i]->type.dtype != TUTTI_I32) T_EQ(node->in[i]->type.dtype, TUTTI_F32);
    if (node->out[0]->type.dtype != TUTTI_F32)
        T_EQ(node->out[0]->type.dtype, node->in[0]->type.dtype);
}

T_CASE(products_are_low_and_the_rest_is_not) {
    T_UNUSED;
    for (size_t n = 0; n < TTI_COUNT(net_deep); n++)
        for (size_t d = 0; d < 2; d++) {
            tutti_graph *g = lowered(net_deep[n](true), low_dtypes[d], false);
            for (int i = 0; i < g->n_nodes; i++) {
                const tti_node *node = g->nodes[i];
                if (node->op->traits & TTI_SOURCE)
                    T_EQ(node->out[0]->type.dtype == low_dtypes[d], false);
                if (node->op->traits & TTI_READS_LOW) expect_sums_in_f32(node);
                if (!(node->op->traits & TTI_COMPUTE)) continue;
                T_EQ(node->out[0]->type.dtype, low_dtypes[d]);
                for (int k = 0; k < node->n_in; k++) T_EQ(node->in[k]->type.dtype, low_dtypes[d]);
            }
            for (int i = 0; i < g->n_outputs; i++) T_EQ(g->outputs[i].value->type.dtype, TUTTI_F32);
            tutti_graph_destroy(g);
        }
}

/* Activations, dropout and pooling between two products do not go up and down again. */
T_CASE(what_lies_between_follows) {
    T_UNUSED;
    tutti_graph *g = lowered(net_lenet(true), TUTTI_BF16, false);
    T_EQ(in_of(g, "relu", "", 0), TUTTI_BF16);
    T_EQ(in_of(g, "max_pool2d", "", 0), TUTTI_BF16);
    T_EQ(in_of(g, "dropout", "drop1", 0), TUTTI_BF16);
    T_EQ(in_of(g, "cross_entropy", "", 0), TUTTI_BF16); /* which widens it itself */
    for (int i = 0; i < g->n_nodes;
         i++) { /* the gradient too: what goes up is a sum's or a loss's */
        const tti_node *node = g->nodes[i];
        if (strcmp(node->op->name, "relu_grad") == 0) T_EQ(node->out[0]->type.dtype, TUTTI_BF16);
        if (strstr(node->op->name, "linear_grad") || strstr(node->op->name, "conv2d_grad"))
            T_EQ(node->in[0]->type.dtype, TUTTI_BF16);
    }
    tutti_graph_destroy(g);
}

/* x = table[ids] + (the first positions + what all have in common); x + linear(x): in f32, or under
 * low_precision_residual in 16 bits. */
static tutti_dtype stream_dtype(bool low_precision_residual) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *ids = tutti_input(g, "x", TUTTI_I32, &TUTTI_SHAPE(4, 3));
    tutti_value *x =
        tutti_embedding(g, ids, &(tutti_embedding_desc){.n_rows = 10, .n_out = 8}, "wte");
    const tutti_init zeros = {.kind = TUTTI_INIT_ZEROS};
    tutti_value *positions = tutti_param(g, "wpe", &TUTTI_SHAPE(5, 8), &zeros, false);
    tutti_value *common = tutti_param(g, "common", &TUTTI_SHAPE(1, 8), &zeros, false);
    x = tutti_add(g, x, tutti_add(g, tutti_slice(g, positions, 0, 0, 3), common));
    tutti_output(g, "sum", tutti_add(g, x, tutti_linear(g, x, 8, "fc")));
    tti_target target = {.compute_dtype = TUTTI_BF16,
                         .low_precision_residual = low_precision_residual};
    T_OK(tti_pass_precision(&g, &target));
    T_EQ(tti_graph_output(g, "sum")->type.dtype, TUTTI_F32);
    const tutti_value *sum = tti_graph_output(g, "sum");
    if (strcmp(sum->node->op->name, "cast") == 0) sum = sum->node->in[0];
    tutti_dtype dtype = sum->type.dtype;
    tutti_graph_destroy(g);
    return dtype;
}

T_CASE(the_stream_is_wide_unless_asked_otherwise) {
    T_UNUSED;
    T_EQ(stream_dtype(false), TUTTI_F32);
    T_EQ(stream_dtype(true), TUTTI_BF16);
}

T_CASE(one_cast_serves_all_users) {
    T_UNUSED;
    tutti_graph *g = net_knots(true); /* w is used by two products */
    tti_target target = {.compute_dtype = TUTTI_F16};
    T_OK(tti_pass_precision(&g, &target));
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < i; k++) {
            const tti_node *a = g->nodes[i], *b = g->nodes[k];
            bool casts = strcmp(a->op->name, "cast") == 0 && a->op == b->op;
            assert_false(casts && a->in[0] == b->in[0]);
        }
    T_EQ(net_find(g, "param", "w")->out[0]->type.dtype, TUTTI_F32);
    tutti_graph_destroy(g);
}

static tutti_value *low_value(tutti_graph *g, const char *name) {
    return tutti_linear(g, net_x(g), 6, name);
}

T_CASE(wide_ops_and_wide_inputs_stay_wide) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(false);
    tutti_value *y = low_value(g, "fc");
    tutti_value *wide = tutti_input(g, "wide", TUTTI_F32, &TUTTI_SHAPE(NET_ROWS, 6));
    tutti_value *b = tutti_param(g, "b", &TUTTI_SHAPE(6), NULL, true);
    tutti_output(g, "exp", tutti_exp(g, y));
    tutti_output(g, "softmax", tutti_softmax(g, y, 1));
    tutti_output(g, "sum", tutti_sum(g, y, NULL));
    tutti_output(g, "sub", tutti_sub(g, y, wide));
    tutti_output(g, "add", tutti_add(g, y, b));
    tutti_output(g, "double", tutti_cast(g, y, TUTTI_F64));
    T_OK(tti_pass_precision(&g, &(tti_target){.compute_dtype = TUTTI_BF16}));
    T_OK(tti_graph_verify(g));
    static const char *const wides[] = {"exp", "softmax", "sum", "sub"};
    for (size_t i = 0; i < TTI_COUNT(wides); i++) T_EQ(in_of(g, wides[i], "", 0), TUTTI_F32);
    T_EQ(in_of(g, "add", "", 0), TUTTI_BF16); /* the parameter gives way */
    T_EQ(in_of(g, "add", "", 1), TUTTI_BF16);
    T_EQ(tti_graph_output(g, "double")->type.dtype, TUTTI_F64);
    T_EQ(tti_graph_output(g, "add")->type.dtype, TUTTI_F32);
    tutti_graph_destroy(g);
}

T_CASE(f32_changes_nothing) {
    T_UNUSED;
    tutti_graph *g = net_lenet(true);
    int n_nodes = g->n_nodes;
    T_OK(tti_pass_precision(&g, &net_plain));
    T_EQ(g->n_nodes, n_nodes);
    T_FAILS(tti_pass_precision(&g, &(tti_target){.compute_dtype = TUTTI_I32}), TUTTI_E_INVALID,
            "f32, bf16 or f16");
    tutti_graph_destroy(g);
}

/* ---- numbers ---- */

/* As t_reference_run, with every result rounded to its dtype, as in memory. */
static void run_rounded(const t_reference *r) {
    for (int i = 0; i < r->g->n_nodes; i++) {
        const tti_node *node = r->g->nodes[i];
        const double *in[TTI_MAX_IN];
        double *out[TTI_MAX_OUT], element;
        if (node->op->traits & TTI_SOURCE) continue;
        for (int k = 0; k < node->n_in; k++) in[k] = t_reference_of(r, node->in[k]);
        for (int k = 0; k < node->op->n_out; k++) out[k] = t_reference_of(r, node->out[k]);
        node->op->reference(&(tti_args){.node = node, .in = in, .out = out, .run = &net_run});
        for (int k = 0; k < node->op->n_out; k++)
            for (int64_t e = 0; e < tti_value_n_elems(node->out[k]); e++) {
                tti_store_elem(node->out[k]->type.dtype, &element, 0, out[k][e]);
                out[k][e] = tti_load_elem(node->out[k]->type.dtype, &element, 0);
            }
    }
}

static void descend(const t_reference *r, double rate) {
    for (int i = 0; i < r->g->n_nodes; i++) {
        const tti_node *param = r->g->nodes[i];
        char name[64];
        if (!(param->op->traits & TTI_PARAM)) continue;
        snprintf(name, sizeof name, "grad.%s", param->name);
        const double *grad = t_reference_of(r, tti_graph_output(r->g, name));
        double *w = t_reference_of(r, param->out[0]);
        for (int64_t e = 0; e < tti_value_n_elems(param->out[0]); e++)
            w[e] = (double)(float)(w[e] - rate * grad[e]);
    }
}

enum { STEPS = 40 };

/* Losses of a network that learns its batch by heart. */
static void learn(tutti_graph *g, double scale, double *losses) {
    t_reference *r = t_reference_create(g);
    net_fill(r);
    const tti_node *input = tti_graph_find_source(g, "loss_scale");
    if (input) *t_reference_of(r, input->out[0]) = scale;
    for (int s = 0; s < STEPS; s++) {
        run_rounded(r);
        losses[s] = *t_reference_of(r, tti_graph_output(g, "loss_sum")) / NET_ROWS;
        descend(r, 0.05 / NET_ROWS / scale);
    }
    t_reference_destroy(r);
}

T_CASE(networks_learn_as_well) {
    T_UNUSED;
    static const struct {
        tutti_dtype dtype;
        double scale, tolerance;
    } rows[] = {{TUTTI_BF16, 1, 0.02}, {TUTTI_F16, 1024, 0.004}};
    static const net_fn nets[] = {net_mlp, net_lenet};
    for (size_t n = 0; n < TTI_COUNT(nets); n++) {
        double want[STEPS], got[STEPS];
        tutti_graph *g = lowered(nets[n](true), TUTTI_F32, false);
        learn(g, 1, want);
        tutti_graph_destroy(g);
        assert_true(want[STEPS - 1] < 0.8 * want[0]);
        for (size_t i = 0; i < TTI_COUNT(rows); i++) {
            g = lowered(nets[n](true), rows[i].dtype, rows[i].scale > 1);
            learn(g, rows[i].scale, got);
            double far = 0;
            for (int s = 0; s < STEPS; s++) far = fmax(far, fabs(got[s] / want[s] - 1));
            assert_true(far > 0 && far < rows[i].tolerance);
            tutti_graph_destroy(g);
        }
    }
}

/* ---- the loss scale ---- */

T_CASE(gradients_are_multiplied_and_the_loss_is_not) {
    T_UNUSED;
    for (size_t n = 0; n < TTI_COUNT(net_deep); n++) {
        tutti_graph *one = lowered(net_deep[n](true), TUTTI_F32, false);
        tutti_graph *scaled = lowered(net_deep[n](true), TUTTI_F32, true);
        t_reference *r = net_evaluate(one), *s = t_reference_create(scaled);
        net_fill(s);
        *t_reference_of(s, tti_graph_find_source(scaled, "loss_scale")->out[0]) = 256;
        t_reference_run(s, &net_run);
        for (int i = 0; i < one->n_outputs; i++) {
            const tutti_value *a = one->outputs[i].value;
            const tutti_value *b = tti_graph_output(scaled, one->outputs[i].name);
            double factor = strncmp(one->outputs[i].name, "grad.", 5) == 0 ? 256 : 1;
            for (int64_t e = 0; e < tti_value_n_elems(a); e++)
                T_NEAR(t_reference_of(s, b)[e], factor * t_reference_of(r, a)[e], 1e-13);
        }
        t_reference_destroy(r);
        t_reference_destroy(s);
        tutti_graph_destroy(one);
        tutti_graph_destroy(scaled);
    }
}

/* Gradients of 1e-6 and below vanish in f16, whose smallest number is 6e-8; times 2^16 they stay.
 */
static double norm_with(double scale) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *y = tutti_linear(g, net_x(g), 3, "fc");
    tutti_value *small = tutti_constant(g, TUTTI_F32, &TUTTI_SHAPE(1), 1e-9);
    tutti_output(g, "loss_sum",
                 tutti_sum(g, tutti_mul(g, tutti_cast(g, y, TUTTI_F32), small), NULL));
    g = lowered(g, TUTTI_F16, true);
    t_reference *r = t_reference_create(g);
    net_fill(r);
    *t_reference_of(r, tti_graph_find_source(g, "loss_scale")->out[0]) = scale;
    run_rounded(r);
    double sum = 0;
    const tutti_value *grad = tti_graph_output(g, "grad.fc.weight");
    for (int64_t e = 0; e < tti_value_n_elems(grad); e++)
        sum += fabs(t_reference_of(r, grad)[e]) / scale;
    t_reference_destroy(r);
    tutti_graph_destroy(g);
    return sum;
}

T_CASE(small_gradients_survive_by_the_scale) {
    T_UNUSED;
    T_NEAR(norm_with(1), 0, 0);
    double sum = norm_with(65536);
    assert_true(sum > 1e-9 && sum < 1e-7);
    assert_true(!isfinite(norm_with(1e14))); /* and too much of it shows */
}

T_CASE(an_evaluation_has_no_scale) {
    T_UNUSED;
    tutti_graph *g = net_mlp(false);
    T_OK(tti_pass_precision(&g, &(tti_target){.compute_dtype = TUTTI_F16, .loss_scale = true}));
    assert_null(tti_graph_find_source(g, "loss_scale"));
    assert_true(net_count_ops(g, "cast") > 0);
    tutti_graph_destroy(g);
}

T_CASE(plans_are_made_of_it) {
    T_UNUSED;
    for (size_t n = 0; n < TTI_COUNT(net_deep); n++)
        for (int mode = 0; mode < 2; mode++) {
            tti_target target = net_fast;
            target.compute_dtype = low_dtypes[mode];
            target.loss_scale = true;
            target.recompute = (tti_recompute)mode;
            tti_plan *plan = net_plan(net_deep[n], &target, 1 << 20);
            assert_true(tti_program_input(&plan->shard, "loss_scale") >= 0);
            T_EQ(tti_program_input(&plan->eval, "loss_scale"), -1);
            tti_plan_destroy(plan);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_low_and_the_rest_is_not),
        cmocka_unit_test(what_lies_between_follows),
        cmocka_unit_test(the_stream_is_wide_unless_asked_otherwise),
        cmocka_unit_test(one_cast_serves_all_users),
        cmocka_unit_test(wide_ops_and_wide_inputs_stay_wide),
        cmocka_unit_test(f32_changes_nothing),
        cmocka_unit_test(networks_learn_as_well),
        cmocka_unit_test(gradients_are_multiplied_and_the_loss_is_not),
        cmocka_unit_test(small_gradients_survive_by_the_scale),
        cmocka_unit_test(an_evaluation_has_no_scale),
        cmocka_unit_test(plans_are_made_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
