/* fuse_loss_test.c - when a loss and its gradient become one op, and that the results stay. */
#include "passes/nets.h"

static const tti_target plain = {.fuse = true, .compute_dtype = TUTTI_F32};
static const tti_target joint = {.fuse = true, .fuse_loss = true, .compute_dtype = TUTTI_F32};

static tutti_graph *net(bool training) {
    tutti_graph *g = tutti_graph_create(training);
    return net_finish(g, tutti_linear(g, net_x(g), NET_CLASSES, "head"));
}

static tutti_graph *after_fuse(tutti_graph *g, const tti_target *target) {
    T_OK(tutti_graph_check(g));
    T_OK(tti_pipeline_run(&g, target, "fuse"));
    return g;
}

T_CASE(a_loss_takes_its_gradient) {
    T_UNUSED;
    tutti_graph *before = after_fuse(net(true), &plain), *g = after_fuse(net(true), &joint);
    T_EQ(net_count_ops(before, "cross_entropy_and_grad"), 0);
    T_EQ(net_count_ops(g, "cross_entropy_and_grad"), 1);
    T_EQ(net_count_ops(g, "cross_entropy"), 0);
    T_EQ(net_count_ops(g, "cross_entropy_grad"), 0);
    net_expect_equal(before, g);
    tutti_graph_destroy(before);
    tutti_graph_destroy(g);
}

T_CASE(the_scale_of_the_loss_is_a_source_too) {
    T_UNUSED;
    tti_target scaled = joint;
    scaled.loss_scale = true;
    tutti_graph *g = after_fuse(net(true), &scaled);
    T_EQ(net_count_ops(g, "cross_entropy_and_grad"), 1);
    tutti_graph_destroy(g);
}

T_CASE(without_training_there_is_no_gradient) {
    T_UNUSED;
    tutti_graph *g = after_fuse(net(false), &joint);
    T_EQ(net_count_ops(g, "cross_entropy"), 1);
    tutti_graph_destroy(g);
}

/* The gradient depends on the loss, so it has to wait for it. */
T_CASE(a_loss_that_is_read_stays_alone) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *logits = tutti_linear(g, net_x(g), NET_CLASSES, "head");
    tutti_value *target = tutti_input(g, "target", TUTTI_I32, &TUTTI_SHAPE(NET_ROWS));
    tutti_loss loss = tutti_cross_entropy(g, logits, target, 0, -1);
    tutti_output(g, "loss_sum", tutti_add(g, loss.sum, loss.sum));
    tutti_output(g, "count", loss.count);
    tutti_output(g, "correct", loss.correct);
    g = after_fuse(g, &joint);
    T_EQ(net_count_ops(g, "cross_entropy"), 1);
    T_EQ(net_count_ops(g, "cross_entropy_and_grad"), 0);
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loss_takes_its_gradient),
        cmocka_unit_test(the_scale_of_the_loss_is_a_source_too),
        cmocka_unit_test(without_training_there_is_no_gradient),
        cmocka_unit_test(a_loss_that_is_read_stays_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
