/* fuse_sums_test.c - where the gradient of a bias comes from what makes its terms. */
#include "passes/nets.h"

static const tti_target apart = {.fuse = true,
                                 .fuse_residual_norm = true,
                                 .fuse_linear_grad = true,
                                 .compute_dtype = TUTTI_BF16};

static tutti_value *branch(tutti_graph *g, tutti_value *x, const char *norm, const char *linear) {
    return tutti_linear(g, tutti_layer_norm(g, x, &(tutti_norm_desc){0}, norm), 6, linear);
}

/* A residual stream in 16 bits. */
static tutti_graph *stream(void) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_linear(g, net_x(g), 6, "in");
    x = tutti_add(g, x, branch(g, x, "ln0", "fc0"));
    x = tutti_add(g, x, branch(g, x, "ln1", "fc1"));
    return net_finish(g, tutti_linear(g, x, NET_CLASSES, "head"));
}

static tutti_graph *after_fuse(tutti_graph *g, bool fuse_sums) {
    tti_target target = apart;
    target.fuse_sums = fuse_sums;
    T_OK(tutti_graph_check(g));
    T_OK(tti_pipeline_run(&g, &target, "fuse"));
    return g;
}

T_CASE(norms_sum_what_they_make) {
    T_UNUSED;
    tutti_graph *before = after_fuse(stream(), false), *g = after_fuse(stream(), true);
    T_EQ(net_count_ops(before, "layer_norm_grads_sums"), 0);
    T_EQ(net_count_ops(before, "linear_grad_w_wide"), 4);
    T_EQ(net_count_ops(g, "layer_norm_grads_sums"), 2);
    T_EQ(net_count_ops(g, "linear_grad_w_wide"), 2); /* of fc1 and head: no norm is above */
    T_EQ(net_count_ops(g, "matmul_wide"), 2);
    T_EQ(tti_graph_output(g, "grad.fc0.bias")->node->op->n_out, 4);
    net_expect_equal(before, g);
    tutti_graph_destroy(before);
    tutti_graph_destroy(g);
}

T_CASE(products_sum_what_goes_through_a_gelu) {
    T_UNUSED;
    tutti_graph *graphs[2];
    for (int i = 0; i < 2; i++) {
        tutti_graph *g = tutti_graph_create(true);
        tutti_value *x = tutti_gelu_tanh(g, tutti_linear(g, net_x(g), 6, "fc"));
        x = tutti_linear(g, x, NET_CLASSES, "head");
        graphs[i] = after_fuse(net_finish(g, x), i == 1);
    }
    T_EQ(net_count_ops(graphs[0], "matmul_gelu_grad"), 1);
    T_EQ(net_count_ops(graphs[1], "matmul_gelu_grad"), 0);
    T_EQ(net_count_ops(graphs[1], "matmul_gelu_grad_sums"), 1);
    T_EQ(net_count_ops(graphs[1], "linear_grad_w_wide"), 1); /* of head */
    net_expect_equal(graphs[0], graphs[1]);
    for (int i = 0; i < 2; i++) tutti_graph_destroy(graphs[i]);
}

static tutti_graph *with_loss(tutti_graph *g, tutti_value *x, tutti_value *labels, bool fuse_sums) {
    tutti_loss loss = tutti_cross_entropy(g, x, labels, 0, -1);
    tutti_output(g, "loss_sum", loss.sum);
    tutti_output(g, "count", loss.count);
    tutti_output(g, "correct", loss.correct);
    tti_target target = apart;
    target.fuse_loss = true;
    target.low_precision_residual = true;
    target.fuse_sums = fuse_sums;
    T_OK(tti_pipeline_run(&g, &target, "fuse"));
    return g;
}

/* Logits of n_classes for 3 rows of 2 positions each, which the loss has as 6 rows. */
static tutti_graph *classes(int64_t n_classes, bool fuse_sums) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(3, 2, 8));
    tutti_value *labels = tutti_input(g, "target", TUTTI_I32, &TUTTI_SHAPE(6));
    x = tutti_reshape(g, tutti_linear(g, x, n_classes, "head"), &TUTTI_SHAPE(6, n_classes));
    return with_loss(g, x, labels, fuse_sums);
}

/* From so many logits on that reading them again costs more than a pass of the product. */
T_CASE(a_loss_sums_for_the_bias_of_many_classes) {
    T_UNUSED;
    const int64_t n_classes = 175000;
    tutti_graph *before = classes(n_classes, false), *g = classes(n_classes, true);
    T_EQ(net_count_ops(before, "linear_grad_w_wide"), 1);
    T_EQ(net_count_ops(before, "cross_entropy_and_grad"), 1);
    T_EQ(net_count_ops(g, "cross_entropy_and_grad_sums"), 1);
    T_EQ(net_count_ops(g, "linear_grad_w_wide"), 0);
    T_EQ(net_count_ops(g, "matmul_wide"), 1);
    const tti_node *maker = tti_graph_output(g, "grad.head.bias")->node;
    assert_string_equal(maker->op->name, "cross_entropy_and_grad_sums");
    net_expect_equal(before, g);
    tutti_graph_destroy(before);
    tutti_graph_destroy(g);
    g = classes(600, true);
    T_EQ(net_count_ops(g, "cross_entropy_and_grad"), 1);
    T_EQ(net_count_ops(g, "linear_grad_w_wide"), 1);
    tutti_graph_destroy(g);
}

/* The table of words is the head too, as in BERT: its gradient stays in 16 bits until another is
 * added, that of the bias is f32 at once. */
T_CASE(a_loss_sums_for_a_head_that_is_tied) {
    T_UNUSED;
    tutti_graph *graphs[2];
    for (int i = 0; i < 2; i++) {
        const int64_t n_words = 175000;
        const tutti_embedding_desc table = {.n_rows = n_words, .n_out = 8};
        tutti_graph *g = tutti_graph_create(true);
        tutti_value *ids = tutti_input(g, "x", TUTTI_I32, &TUTTI_SHAPE(3, 2));
        tutti_value *labels = tutti_input(g, "target", TUTTI_I32, &TUTTI_SHAPE(6));
        tutti_value *bias = tutti_param(g, "bias", &TUTTI_SHAPE(n_words), &(tutti_init){0}, false);
        tutti_value *x = tutti_tanh(g, tutti_embedding(g, ids, &table, "words"));
        tutti_value *words = tti_graph_find_source(g, "words.weight")->out[0];
        x = tutti_add(g, tutti_matmul_with(g, x, words, false, true), bias);
        graphs[i] = with_loss(g, tutti_reshape(g, x, &TUTTI_SHAPE(6, n_words)), labels, i == 1);
    }
    T_EQ(net_count_ops(graphs[0], "linear_grad_w"), 1);
    T_EQ(net_count_ops(graphs[1], "linear_grad_w"), 0);
    T_EQ(net_count_ops(graphs[1], "cross_entropy_and_grad_sums"), 1);
    net_expect_equal(graphs[0], graphs[1]);
    for (int i = 0; i < 2; i++) tutti_graph_destroy(graphs[i]);
}

/* Queries, keys and values of n samples of 8 positions, by one layer. */
static tutti_graph *attending(int64_t n) {
    enum { TOKENS = 8, WIDTH = 352 };
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(n, TOKENS, WIDTH));
    tutti_value *labels = tutti_input(g, "target", TUTTI_I32, &TUTTI_SHAPE(n * TOKENS));
    tutti_value *qkv = tutti_linear(g, x, 3 * WIDTH, "qkv");
    x = tutti_attention(g, qkv, NULL, &(tutti_attention_desc){.heads = 2});
    return with_loss(g, tutti_reshape(g, x, &TUTTI_SHAPE(n * TOKENS, WIDTH)), labels, true);
}

T_CASE(attention_sums_for_the_bias_of_many_queries) {
    T_UNUSED;
    tutti_graph *few = attending(16), *many = attending(2048);
    T_EQ(net_count_ops(few, "attention_grad"), 1);
    T_EQ(net_count_ops(few, "linear_grad_w_wide"), 1);
    T_EQ(net_count_ops(many, "attention_grad_sums"), 1);
    T_EQ(net_count_ops(many, "linear_grad_w_wide"), 0);
    assert_string_equal(tti_graph_output(many, "grad.qkv.bias")->node->op->name,
                        "attention_grad_sums");
    tutti_graph_destroy(few);
    tutti_graph_destroy(many);
}

/* As of a layer in tensor shards, whose bias is added to a sum of terms. */
T_CASE(norms_sum_for_a_bias_that_is_added) {
    T_UNUSED;
    tutti_graph *graphs[2];
    for (int i = 0; i < 2; i++) {
        tutti_graph *g = tutti_graph_create(true);
        tutti_value *bias = tutti_param(g, "bias", &TUTTI_SHAPE(6), &(tutti_init){0}, false);
        tutti_value *x = tutti_linear(g, net_x(g), 6, "in");
        x = tutti_add(g, x, tutti_add(g, tutti_tanh(g, x), bias));
        x = tutti_add(g, x, branch(g, x, "ln", "fc"));
        graphs[i] = after_fuse(net_finish(g, tutti_linear(g, x, NET_CLASSES, "head")), i == 1);
    }
    T_EQ(net_count_ops(graphs[0], "sum_to"), net_count_ops(graphs[1], "sum_to") + 1);
    T_EQ(net_count_ops(graphs[1], "layer_norm_grads_sums"), 1);
    T_EQ(tti_graph_output(graphs[1], "grad.bias")->node->op->n_out, 4);
    net_expect_equal(graphs[0], graphs[1]);
    for (int i = 0; i < 2; i++) tutti_graph_destroy(graphs[i]);
}

T_CASE(sums_that_nobody_reads_are_not_made) {
    T_UNUSED;
    tutti_graph *graphs[2];
    for (int i = 0; i < 2; i++) {
        tutti_graph *g = tutti_graph_create(true);
        const tutti_linear_desc bare = {.n_out = 6, .no_bias = true};
        tutti_value *x = tutti_linear_with(g, net_x(g), &bare, "fc");
        graphs[i] = after_fuse(net_finish(g, tutti_linear(g, x, NET_CLASSES, "head")), i == 1);
    }
    T_EQ(net_count_ops(graphs[0], "linear_grad_w_wide"), 2);
    T_EQ(net_count_ops(graphs[1], "linear_grad_w_wide"), 1); /* of head */
    T_EQ(net_count_ops(graphs[1], "matmul_wide"), 1);
    net_expect_equal(graphs[0], graphs[1]);
    for (int i = 0; i < 2; i++) tutti_graph_destroy(graphs[i]);
}

/* Each gradient needs a result of its own. */
T_CASE(two_layers_of_one_stream_stay) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *x = net_x(g);
    x = tutti_add(g, tutti_linear(g, x, 6, "one"), tutti_linear(g, x, 6, "two"));
    x = tutti_add(g, x, branch(g, x, "ln", "fc"));
    g = after_fuse(net_finish(g, tutti_linear(g, x, NET_CLASSES, "head")), true);
    T_EQ(net_count_ops(g, "layer_norm_grads"), 1);
    T_EQ(net_count_ops(g, "layer_norm_grads_sums"), 0);
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_sum_what_they_make),
        cmocka_unit_test(products_sum_what_goes_through_a_gelu),
        cmocka_unit_test(a_loss_sums_for_the_bias_of_many_classes),
        cmocka_unit_test(a_loss_sums_for_a_head_that_is_tied),
        cmocka_unit_test(attention_sums_for_the_bias_of_many_queries),
        cmocka_unit_test(norms_sum_for_a_bias_that_is_added),
        cmocka_unit_test(sums_that_nobody_reads_are_not_made),
        cmocka_unit_test(two_layers_of_one_stream_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
