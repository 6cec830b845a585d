/* split_test.c - which graphs may be cut along the batch, and where every value then lies. */
#include <stdlib.h>

#include "passes/nets.h"
#include "tutti/losses.h"

static void expect_refused(tutti_graph *g, tutti_status status, const char *text) {
    T_OK(tutti_graph_check(g));
    T_FAILS(tti_pass_split(&g, &net_plain), status, text);
    tutti_graph_destroy(g);
}

T_CASE(networks_may_be_cut) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(net_all); i++) {
        tutti_graph *g = net_all[i](true);
        T_OK(tti_pass_autodiff(&g, &net_plain));
        T_OK(tti_pass_split(&g, &net_plain));
        tutti_graph_destroy(g);
    }
}

/* As many shards as samples: the batch of one row stays apart from the axis after it, in the
 * gradients too. */
T_CASE(one_sequence_per_shard) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(1, 6, 3));
    tutti_value *target = tutti_input(g, "target", TUTTI_I32, &TUTTI_SHAPE(1, 6));
    x = tutti_reshape(g, tutti_linear(g, x, 4, "fc"), &TUTTI_SHAPE(6, 4));
    target = tutti_reshape(g, target, &TUTTI_SHAPE(6));
    tutti_output(g, "loss_sum", tutti_cross_entropy(g, x, target, 0, -1).sum);
    T_OK(tti_pass_autodiff(&g, &net_plain));
    T_OK(tti_pass_split(&g, &net_plain));
    tutti_graph_destroy(g);
}

T_CASE(an_op_that_mixes_samples_is_named) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_linear(g, net_x(g), 3, "fc");
    tutti_output(g, "loss_sum", tutti_sum(g, tutti_softmax(g, x, 0), NULL));
    expect_refused(g, TUTTI_E_UNSUPPORTED, "softmax");

    g = tutti_graph_create(true);
    tutti_output(g, "loss_sum", tutti_mean(g, tutti_linear(g, net_x(g), 3, "fc"), NULL));
    expect_refused(g, TUTTI_E_UNSUPPORTED, "mean");

    g = tutti_graph_create(true); /* relu of a sum is not the sum of the relus */
    tutti_output(g, "loss_sum", tutti_relu(g, tutti_sum(g, net_x(g), NULL)));
    expect_refused(g, TUTTI_E_UNSUPPORTED, "relu");
}

T_CASE(a_result_that_is_no_sum_is_named) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *w = tutti_param(g, "w", &TUTTI_SHAPE(3), NULL, true);
    tutti_output(g, "penalty", tutti_sum(g, tutti_square(g, w), NULL));
    expect_refused(g, TUTTI_E_INVALID, "split: output 'penalty' is not a sum over samples");

    g = tutti_graph_create(true);
    tutti_output(g, "grad.w", tutti_tanh(g, net_x(g)));
    expect_refused(g, TUTTI_E_INVALID, "split: output 'grad.w' is not a sum over samples");
}

T_CASE(metrics_of_the_model_may_mix_the_samples_of_a_shard) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_linear(g, net_x(g), 3, "fc");
    tutti_value *one = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1);
    tutti_output(g, "loss_sum", tutti_sum(g, x, NULL));
    tutti_add_metric(g, "peak", tutti_max(g, tutti_softmax(g, x, 0), NULL), one);
    T_OK(tti_pass_autodiff(&g, &net_plain));
    T_OK(tti_pass_split(&g, &net_plain));
    tutti_graph_destroy(g);

    g = tutti_graph_create(true); /* the loss may not */
    x = tutti_softmax(g, tutti_linear(g, net_x(g), 3, "fc"), 0);
    one = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1);
    tutti_output(g, "loss_sum", tutti_sum(g, x, NULL));
    tutti_add_metric(g, "peak", tutti_max(g, x, NULL), one);
    expect_refused(g, TUTTI_E_UNSUPPORTED, "softmax");
}

T_CASE(results_by_sample_are_fine) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(false);
    tutti_output(g, "logits", tutti_linear(g, net_x(g), 3, "fc"));
    T_OK(tti_pass_split(&g, &net_plain));
    tutti_graph_destroy(g);
}

static tti_placement batch_axis(const tti_node *source, const void *user) {
    T_EQ(*(const int *)user, 42);
    bool fed = (source->op->traits & TTI_INPUT) != 0;
    return (tti_placement){fed ? TTI_SPLIT : TTI_WHOLE, 0};
}

T_CASE(lenet_along_the_batch) {
    T_UNUSED;
    tutti_graph *g = net_lenet(true);
    T_OK(tti_pass_autodiff(&g, &net_plain));
    tti_placement *placed = calloc((size_t)g->n_values, sizeof *placed);
    int user = 42;
    T_OK(tti_split_placements(g, batch_axis, &user, placed));
    for (int i = 0; i < g->n_nodes; i++) {
        const tutti_value *out = g->nodes[i]->out[0];
        tti_placement p = placed[out->id];
        if (g->nodes[i]->op->traits & TTI_PARAM) T_EQ(p.kind, TTI_WHOLE);
        if (p.kind == TTI_SPLIT) {
            T_EQ(p.dim, 0);
            T_EQ(out->type.shape.dim[0], NET_ROWS);
        }
    }
    T_EQ(placed[net_find(g, "conv2d", "conv2")->out[0]->id].kind, TTI_SPLIT);
    T_EQ(placed[net_find(g, "linear", "fc2")->out[0]->id].kind, TTI_SPLIT);
    for (int i = 0; i < g->n_outputs; i++) T_EQ(placed[g->outputs[i].value->id].kind, TTI_PARTIAL);
    free(placed);
    tutti_graph_destroy(g);
}

/* The same walk for a tensor axis: the first layer's weight cut by columns, the second's by rows,
 * as in Shoeybi et al. 2019; only the end is a sum over the workers. */
static tti_placement tensor_axis(const tti_node *source, const void *user) {
    (void)user;
    bool cut = strcmp(source->name, "fc1.weight") == 0 || strcmp(source->name, "fc1.bias") == 0;
    if (cut) return (tti_placement){TTI_SPLIT, 0};
    if (strcmp(source->name, "fc2.weight") == 0) return (tti_placement){TTI_SPLIT, 1};
    return (tti_placement){TTI_WHOLE, 0};
}

static tutti_graph *two_layers(bool bias) {
    tutti_graph *g = tutti_graph_create(false);
    tutti_value *x = tutti_gelu(g, tutti_linear(g, net_x(g), 8, "fc1"));
    tutti_linear_desc desc = {.n_out = 3, .no_bias = !bias};
    tutti_output(g, "y", tutti_linear_with(g, x, &desc, "fc2"));
    T_OK(tutti_graph_check(g));
    return g;
}

T_CASE(two_layers_along_a_tensor_axis) {
    T_UNUSED;
    tti_placement placed[16] = {0};
    tutti_graph *g = two_layers(false);
    T_OK(tti_split_placements(g, tensor_axis, NULL, placed));
    tti_placement hidden = placed[net_find(g, "linear", "fc1")->out[0]->id];
    T_EQ(hidden.kind, TTI_SPLIT);
    T_EQ(hidden.dim, 1);
    T_EQ(placed[net_find(g, "gelu", "")->out[0]->id].dim, 1);
    T_EQ(placed[tti_graph_output(g, "y")->id].kind, TTI_PARTIAL);
    tutti_graph_destroy(g);
    g = two_layers(true); /* the bias would be added once per worker */
    T_FAILS(tti_split_placements(g, tensor_axis, NULL, placed), TUTTI_E_UNSUPPORTED, "fc2");
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(networks_may_be_cut),
        cmocka_unit_test(one_sequence_per_shard),
        cmocka_unit_test(an_op_that_mixes_samples_is_named),
        cmocka_unit_test(a_result_that_is_no_sum_is_named),
        cmocka_unit_test(metrics_of_the_model_may_mix_the_samples_of_a_shard),
        cmocka_unit_test(results_by_sample_are_fine),
        cmocka_unit_test(lenet_along_the_batch),
        cmocka_unit_test(two_layers_along_a_tensor_axis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
