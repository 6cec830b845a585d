/* onnx_rules_test.c - epilogues: what the fuse pass puts into a node is in the file too. */
#include <stdlib.h>

#include "ops/op_table.h"
#include "t.h"
#include "train/export/onnx_emit.h"

/* The ONNX ops that a node becomes, in order, each with " " after it; of these ones. */
static void reported(const tti_onnx_emit *e, tti_str *out) {
    static const char *const ops[] = {"BatchNormalization", "Add", "Relu", "Gemm", "Conv"};
    const char *text = e->file.nodes.text, *end = text + e->file.nodes.n_bytes;
    for (const char *at = text; at < end; at++)
        for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
            size_t n = strlen(ops[i]); /* field 4, op_type, and the length go before the text */
            if (end - at >= (ptrdiff_t)n + 2 && at[0] == 0x22 && at[1] == (char)n &&
                memcmp(at + 2, ops[i], n) == 0)
                tti_str_printf(out, "%s ", ops[i]);
        }
}

/* op with n_in inputs of the types in the text, an attribute act. */
static void expect(const char *op, const char *types, int act, const char *want) {
    tutti_graph *g = tutti_graph_create(false);
    tutti_value *in[TTI_MAX_IN];
    const char *names[16] = {"a", "b", "c", "d", "e", "f"}, *out = NULL, *text = types;
    int n_in = 0;
    for (; *text; n_in++) {
        tutti_type type;
        while (*text == ' ') text++;
        T_OK(tti_type_parse(&text, &type));
        in[n_in] = tutti_input(g, names[n_in], type.dtype, &type.shape);
    }
    tti_attr_arg attrs[] = {TTI_INT("act", act), {0}};
    tti_node *node = tti_graph_add(
        g, &(tti_node_desc){
               .op = tti_op_find(op), .name = "it", .in = in, .n_in = n_in, .attrs = attrs});
    if (!node) fail_msg("%s: %s", op, tutti_last_error());
    tti_onnx_emit e = {.names = names};
    tti_str got = {0};
    T_OK(tti_onnx_find(op)(&e, node, &out));
    assert_non_null(out);
    reported(&e, &got);
    assert_string_equal(tti_str_text(&got), want);
    tti_str_free(&got);
    tti_onnx_free(&e.file);
    tti_arena_free(&e.arena);
    tutti_graph_destroy(g);
}

#define BN "f32[2,3,4,4] f32[3] f32[3] f32[3] f32[3]"

T_CASE(epilogues) {
    T_UNUSED;
    expect("bn_eval", BN, TTI_EPILOGUE_NONE, "BatchNormalization ");
    expect("bn_eval", BN, TTI_EPILOGUE_RELU, "BatchNormalization Relu ");
    expect("bn_eval", BN " f32[2,3,4,4]", TTI_EPILOGUE_NONE, "BatchNormalization Add ");
    expect("bn_eval", BN " f32[2,3,4,4]", TTI_EPILOGUE_RELU, "BatchNormalization Add Relu ");
    expect("linear", "f32[2,3] f32[4,3] f32[4]", TTI_EPILOGUE_RELU, "Gemm Relu ");
    expect("conv2d", "f32[1,3,4,4] f32[2,3,1,1] f32[2]", TTI_EPILOGUE_RELU, "Conv Relu ");
}

/* Nodes that only a fused training graph has are not guessed at. */
T_CASE(unknown_ops) {
    T_UNUSED;
    static const char *const ops[] = {"bn_apply", "fused", "add_layer_norm", "linear_gelu", "no"};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) assert_null(tti_onnx_find(ops[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(epilogues), cmocka_unit_test(unknown_ops)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
