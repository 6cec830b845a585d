/* fuse_head_test.c - when a head, its loss and the gradients of both go without logits, and that
 * the results stay. */
#include "passes/nets.h"

enum { SAMPLES = 2, TOKENS = 3, WORDS = 7, WIDTH = 5, IGNORED = 4 };

static bool any(const tti_node *logits) { return logits != NULL; }
static bool none(const tti_node *logits) { return logits == NULL; }

static const tti_target plain = {.fuse = true, .fuse_loss = true, .compute_dtype = TUTTI_BF16};
static const tti_target joint = {
    .fuse = true, .fuse_loss = true, .joins_head = any, .compute_dtype = TUTTI_BF16};

/* Differences of a net from a language model whose head is its word table. */
typedef struct requested {
    double smoothing;
    bool bias, logits_out, own_table;
} requested;

static tutti_graph *words_net(const requested *w) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_init normal = {.kind = TUTTI_INIT_NORMAL, .b = 0.5};
    tutti_value *tokens = tutti_input(g, "x", TUTTI_I32, &TUTTI_SHAPE(SAMPLES, TOKENS));
    tutti_value *table = tutti_param(g, "words", &TUTTI_SHAPE(WORDS, WIDTH), &normal, true);
    tutti_value *x = tutti_layer_norm(g, tutti_lookup(g, table, tokens), NULL, "norm");
    if (w->own_table) table = tutti_param(g, "head", &TUTTI_SHAPE(WORDS, WIDTH), &normal, true);
    tutti_value *logits =
        w->bias ? tutti_linear(g, x, WORDS, "head") : tutti_matmul_with(g, x, table, false, true);
    logits = tutti_reshape(g, logits, &TUTTI_SHAPE(SAMPLES * TOKENS, WORDS));
    tutti_value *target = tutti_input(g, "target", TUTTI_I32, &TUTTI_SHAPE(SAMPLES * TOKENS));
    tutti_loss loss = tutti_cross_entropy(g, logits, target, w->smoothing, IGNORED);
    tutti_output(g, "loss_sum", loss.sum);
    tutti_output(g, "count", loss.count);
    tutti_output(g, "correct", loss.correct);
    if (w->logits_out) tutti_output(g, "logits", logits);
    return g;
}

static tutti_graph *after_fuse(const requested *w, const tti_target *target) {
    tutti_graph *g = words_net(w);
    T_OK(tutti_graph_check(g));
    T_OK(tti_pipeline_run(&g, target, "fuse"));
    return g;
}

static void expect_joined(const requested *w) {
    tutti_graph *before = after_fuse(w, &plain), *g = after_fuse(w, &joint);
    T_EQ(net_count_ops(before, "cross_entropy_head"), 0);
    T_EQ(net_count_ops(g, "cross_entropy_head"), 1);
    T_EQ(net_count_ops(g, "scale_rows"), 2);
    T_EQ(net_count_ops(g, "matmul"), 2);
    T_EQ(net_count_ops(g, "cross_entropy_and_grad"), 0);
    net_expect_equal(before, g);
    tutti_graph_destroy(before);
    tutti_graph_destroy(g);
}

T_CASE(a_head_goes_without_logits) {
    T_UNUSED;
    expect_joined(&(requested){0});
    expect_joined(&(requested){.own_table = true});
}

T_CASE(the_scale_of_the_loss_is_a_factor_of_rows) {
    T_UNUSED;
    tti_target scaled = joint;
    scaled.loss_scale = true;
    tutti_graph *g = after_fuse(&(requested){0}, &scaled);
    T_EQ(net_count_ops(g, "cross_entropy_head"), 1);
    tutti_graph_destroy(g);
}

static void expect_apart(const requested *w, const tti_target *target) {
    tutti_graph *g = after_fuse(w, target);
    T_EQ(net_count_ops(g, "cross_entropy_head"), 0);
    T_EQ(net_count_ops(g, "scale_rows"), 0);
    tutti_graph_destroy(g);
}

T_CASE(what_needs_logits_keeps_them) {
    T_UNUSED;
    tti_target wide = joint, unasked = joint;
    wide.compute_dtype = TUTTI_F32;
    unasked.joins_head = none;
    expect_apart(&(requested){.smoothing = 0.1}, &joint);
    expect_apart(&(requested){.bias = true}, &joint);
    expect_apart(&(requested){.logits_out = true}, &joint);
    expect_apart(&(requested){0}, &wide);
    expect_apart(&(requested){0}, &unasked);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_goes_without_logits),
        cmocka_unit_test(the_scale_of_the_loss_is_a_factor_of_rows),
        cmocka_unit_test(what_needs_logits_keeps_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
