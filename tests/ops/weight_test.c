/* weight_test.c - times of nodes by the weights of a core and of a GPU. */
#include "ops/weight.h"

#include "ops/op_table.h"
#include "t.h"
#include "tutti/ops.h"

enum { SIDE = 4096 };

/* A product of two inputs of that type. */
static const tti_node *product(tutti_graph *g, tutti_dtype dtype, int64_t side) {
    tutti_value *a = tutti_input(g, "a", dtype, &TUTTI_SHAPE(side, side));
    tutti_value *b = tutti_input(g, "b", dtype, &TUTTI_SHAPE(side, side));
    tutti_value *y = tutti_matmul(g, a, b);
    T_OK(tutti_graph_check(g));
    return y->node;
}

static double weight_of(const tti_weights *w, tutti_dtype dtype, int64_t side, bool tf32) {
    tutti_graph *g = tutti_graph_create(false);
    double weight = tti_node_weight(w, product(g, dtype, side), tf32);
    tutti_graph_destroy(g);
    return weight;
}

/* Operations and bytes one after the other, in operations. */
T_CASE(a_core_adds_what_it_computes_and_what_it_moves) {
    T_UNUSED;
    double n = 64, expected = 2 * n * n * n + 6 * (3 * n * n * 4);
    assert_true(weight_of(&tti_weights_host, TUTTI_F32, 64, false) == expected);
    assert_true(weight_of(&tti_weights_host, TUTTI_F32, 64, true) == expected);
}

/* Seconds: of a large product by its type, of a small one by its bytes and its kernel. */
T_CASE(a_gpu_computes_while_it_moves) {
    T_UNUSED;
    const tti_weights *w = &tti_weights_gpu;
    double flops = 2.0 * SIDE * SIDE * SIDE;
    double low = weight_of(w, TUTTI_BF16, SIDE, false) - w->kernel;
    double tf32 = weight_of(w, TUTTI_F32, SIDE, true) - w->kernel;
    double full = weight_of(w, TUTTI_F32, SIDE, false) - w->kernel;
    T_NEAR(low / (flops * w->op_16_bit), 1, 1e-9);
    T_NEAR(tf32 / (flops * w->tf32_op), 1, 1e-9);
    T_NEAR(full / (flops * w->op), 1, 1e-9);
    double small = weight_of(w, TUTTI_BF16, 8, false) - w->kernel;
    T_NEAR(small / (3 * 8 * 8 * 2 * w->byte), 1, 1e-9);
}

/* Weights of a large product, a small one, and an addition. */
T_CASE(products_are_operations_where_they_are_large) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(false);
    tti_node *large = product(g, TUTTI_BF16, SIDE)->out[0]->node;
    tutti_value *more = tutti_add(g, large->out[0], large->out[0]);
    T_OK(tutti_graph_check(g));
    const tti_weights *w = &tti_weights_gpu;
    tti_node *nodes[] = {large, more->node};
    double ops = tti_node_weight(w, nodes[0], false) - w->kernel;
    double moved = tti_node_weight(w, nodes[1], false) - w->kernel;
    T_NEAR(tti_share_of_operations(w, nodes, 2, false), ops / (ops + moved), 1e-9);
    assert_true(tti_share_of_operations(w, nodes + 1, 1, false) == 0);
    assert_true(tti_share_of_operations(w, nodes, 1, false) == 1);
    assert_true(tti_share_of_operations(w, nodes, 0, false) == 0);
    tutti_graph_destroy(g);
    g = tutti_graph_create(false);
    nodes[0] = product(g, TUTTI_BF16, 8)->out[0]->node;
    assert_true(tti_share_of_operations(w, nodes, 1, false) == 0);
    tutti_graph_destroy(g);
}

T_CASE(attention_takes_longer_than_products_of_as_many_operations) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(false);
    tutti_value *qkv = tutti_input(g, "qkv", TUTTI_BF16, &TUTTI_SHAPE(8, 2048, 3 * 512));
    tutti_value *y =
        tutti_attention(g, qkv, NULL, &(tutti_attention_desc){.heads = 8, .causal = true});
    T_OK(tutti_graph_check(g));
    tti_cost cost = {0};
    y->node->op->cost(y->node, &cost);
    const tti_weights *w = &tti_weights_gpu;
    double plain = w->kernel + cost.flops * w->op_16_bit;
    assert_true(tti_node_weight(w, y->node, false) > 1.5 * plain);
    T_NEAR(tti_node_weight(&tti_weights_host, y->node, false), cost.flops + 6 * cost.bytes, 1);
    tutti_graph_destroy(g);
}

T_CASE(inputs_and_other_views_take_no_time) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(false);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(8, 8));
    tutti_value *flat = tutti_reshape(g, x, &TUTTI_SHAPE(64));
    assert_true(tti_node_weight(&tti_weights_gpu, x->node, false) == 0);
    assert_true(tti_node_weight(&tti_weights_gpu, flat->node, false) == 0);
    tutti_graph_destroy(g);
}

/* Bytes between workers cost more than local ones; as many arrive as are sent. */
T_CASE(an_exchange_goes_between_workers) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(false);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(1024, 1024));
    tutti_value *sum = tti_emit(g, "tensor_all_reduce", NULL, &x, 1, NULL);
    T_OK(tutti_graph_check(g));
    const tti_weights *w = &tti_weights_gpu;
    double moved = tti_node_weight(w, sum->node, false) - w->kernel;
    T_NEAR(moved / ((4 << 20) * w->byte_between), 1, 1e-9);
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_core_adds_what_it_computes_and_what_it_moves),
        cmocka_unit_test(a_gpu_computes_while_it_moves),
        cmocka_unit_test(products_are_operations_where_they_are_large),
        cmocka_unit_test(attention_takes_longer_than_products_of_as_many_operations),
        cmocka_unit_test(inputs_and_other_views_take_no_time),
        cmocka_unit_test(an_exchange_goes_between_workers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
