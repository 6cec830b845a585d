/* attention_scores_test.c - attention that is written out, in many spellings: one op with the same
 * results and gradients; and near misses, which stay as they are. */
#include "passes/recognize/patterns.h"

#define ATTENTION(name, ...) \
    static V *name(G *g, V *x) { return attention(g, x, &(spelled){__VA_ARGS__}); }

/* Biases, of scores [B,H,T,T]. */
static V *bias_by_head(G *g, V *s) {
    return add(g, s, weights(g, "bias", &TUTTI_SHAPE(1, H, T, T)));
}
static V *bias_with_mask(G *g, V *s) { /* T5: shared by layers, the mask is a part of it */
    return add(g, s,
               add(g, weights(g, "bias", &TUTTI_SHAPE(H, T, T)), mask_of(g, CAUSAL, 0, -1e9)));
}
static V *bias_then_scaled(G *g, V *s) { return affine(g, bias_by_head(g, s), 0.7, 0); }
static V *bias_by_distance(G *g, V *s) { /* ALiBi */
    float x[H * T * T];
    for (int i = 0; i < H * T * T; i++)
        x[i] = (float)(i / T % T - i % T) * 0.25f / (float)(1 + i / (T * T));
    return add(g, s, tutti_constant_array(g, TUTTI_F32, &TUTTI_SHAPE(H, T, T), x));
}
static V *bias_of_windows(G *g, V *s) { /* Swin: another mask for each of two windows of a sample */
    float x[2 * T * T];
    for (int i = 0; i < 2 * T * T; i++) x[i] = i % T + i / T % T < 3 + i / (T * T) ? 0 : -100;
    s = tutti_reshape(g, bias_by_head(g, s), &TUTTI_SHAPE(B / 2, 2, H, T, T));
    s = add(g, s, tutti_constant_array(g, TUTTI_F32, &TUTTI_SHAPE(1, 2, 1, T, T), x));
    return tutti_reshape(g, s, &TUTTI_SHAPE(B, H, T, T));
}
static V *bias_in_blocks(G *g, V *s) { /* rows 0 and 1 share one: no row repeats */
    s = tutti_reshape(g, s, &TUTTI_SHAPE(B / 2, 2, H / 2, 2, T, T));
    s = add(g, s, weights(g, "bias", &TUTTI_SHAPE(1, 1, H / 2, 1, T, T)));
    return tutti_reshape(g, s, &TUTTI_SHAPE(B, H, T, T));
}
static V *seen_keys(G *g) { /* 1 of the keys that count, [B,1,1,T] */
    V *n = tutti_input(g, "lengths", TUTTI_F32, &TUTTI_SHAPE(B, T));
    return tutti_reshape(g, tutti_less(g, number(g, 0), n), &TUTTI_SHAPE(B, 1, 1, T));
}
static V *bias_of_padding(G *g, V *s) {
    return add(g, s, affine(g, affine(g, seen_keys(g), -1, 1), -3e4, 0));
}
static V *filled_padding(G *g, V *s) { return tutti_where(g, seen_keys(g), s, number(g, -1e9)); }
static V *filled_weakly(G *g, V *s) { return tutti_where(g, seen_keys(g), s, number(g, -50)); }
static V *filled_elsewhere(G *g, V *s) { /* what is set to 0 is not what is hidden */
    V *other =
        tutti_less(g, tutti_input(g, "at", TUTTI_F32, &TUTTI_SHAPE(B, 1, 1, T)), number(g, 0));
    return add(g, tutti_keep(g, number(g, -1e9), other), tutti_keep(g, s, seen_keys(g)));
}
static V *seen_pairs(G *g) { /* 1 of the keys that count for a query, [B,1,T,T] */
    V *n = tutti_input(g, "pairs", TUTTI_F32, &TUTTI_SHAPE(B, T, T));
    return tutti_reshape(g, tutti_less(g, number(g, 0), n), &TUTTI_SHAPE(B, 1, T, T));
}
static V *filled_pairs(G *g, V *s) { return tutti_where(g, seen_pairs(g), s, number(g, -1e9)); }
static V *filled_causal(G *g, V *s) {
    return tutti_where(g, mask_of(g, CAUSAL, 1, 0), s, number(g, -1e9));
}
static V *causal_then_padding(G *g, V *s) { return filled_padding(g, filled_causal(g, s)); }
static V *padding_then_causal(G *g, V *s) { return filled_causal(g, filled_padding(g, s)); }
static V *bias_then_padding(G *g, V *s) { return filled_padding(g, bias_by_head(g, s)); }
static V *distance_then_padding(G *g, V *s) { return filled_padding(g, bias_by_distance(g, s)); }
static V *causal_then_added(G *g, V *s) { return bias_of_padding(g, filled_causal(g, s)); }
static V *padding_then_added(G *g, V *s) { return bias_of_padding(g, filled_pairs(g, s)); }
static V *padding_then_lower(G *g, V *s) { /* the order counts where both hide */
    return tutti_where(g, mask_of(g, CAUSAL, 1, 0), filled_padding(g, s), number(g, -4e9));
}
static V *bias_between_masks(G *g, V *s) {
    return filled_padding(g, bias_by_head(g, filled_causal(g, s)));
}
static V *added_causal(G *g, V *s) {
    return bias_of_padding(g, add(g, s, mask_of(g, CAUSAL, 0, -3e4)));
}
static V *masks_in_turns(G *g, V *s) { return filled_causal(g, causal_then_padding(g, s)); }
static V *added_pairs(G *g, V *s) {
    return add(g, s, affine(g, affine(g, seen_pairs(g), -1, 1), -1e9, 0));
}
static V *capped(G *g, V *s) {
    s = affine(g, tutti_tanh(g, over(g, s, number(g, 1.5))), 1.5, 0);
    return add(g, s, mask_of(g, WINDOW, 0, -INFINITY));
}
static V *capped_bias(G *g, V *s) { /* the bias is capped too */
    return affine(g, tutti_tanh(g, bias_by_head(g, s)), 1.5, 0);
}

ATTENTION(attend_bias, .s_scale = 0.4, .biased = bias_by_head)
ATTENTION(attend_bias_flat, .s_scale = 0.4, .flat = true, .mask = CAUSAL)
ATTENTION(attend_bias_causal, .q_scale = 0.4, .biased = bias_with_mask)
ATTENTION(attend_bias_scaled, .s_scale = 0.4, .biased = bias_then_scaled)
ATTENTION(attend_bias_keep, .s_scale = 0.4, .mask = CAUSAL, .by_keep = true, .biased = bias_by_head)
ATTENTION(attend_by_distance, .kv = 2, .s_scale = 0.4, .mask = CAUSAL, .biased = bias_by_distance)
ATTENTION(attend_windows, .q_scale = 0.4, .biased = bias_of_windows, .dropout = true)
ATTENTION(attend_in_blocks, .q_scale = 0.4, .biased = bias_in_blocks)
ATTENTION(attend_padding, .s_scale = 0.4, .mask = CAUSAL, .biased = bias_of_padding)
ATTENTION(attend_filled, .s_scale = 0.4, .biased = filled_padding)
ATTENTION(attend_filled_weakly, .s_scale = 0.4, .biased = filled_weakly)
ATTENTION(attend_filled_elsewhere, .s_scale = 0.4, .biased = filled_elsewhere)
ATTENTION(attend_filled_pairs, .s_scale = 0.4, .biased = filled_pairs)
ATTENTION(attend_causal_then_padding, .s_scale = 0.4, .biased = causal_then_padding)
ATTENTION(attend_padding_then_causal, .s_scale = 0.4, .biased = padding_then_causal)
ATTENTION(attend_bias_then_padding, .s_scale = 0.4, .biased = bias_then_padding)
ATTENTION(attend_distance_then_padding, .s_scale = 0.4, .biased = distance_then_padding)
ATTENTION(attend_causal_then_added, .s_scale = 0.4, .biased = causal_then_added)
ATTENTION(attend_padding_then_added, .s_scale = 0.4, .biased = padding_then_added)
ATTENTION(attend_padding_then_lower, .s_scale = 0.4, .biased = padding_then_lower)
ATTENTION(attend_bias_between_masks, .s_scale = 0.4, .biased = bias_between_masks)
ATTENTION(attend_added_causal, .s_scale = 0.4, .biased = added_causal)
ATTENTION(attend_masks_in_turns, .s_scale = 0.4, .biased = masks_in_turns)
ATTENTION(attend_added_pairs, .s_scale = 0.4, .biased = added_pairs)
ATTENTION(attend_capped, .s_scale = 0.4, .biased = capped)
ATTENTION(attend_capped_bias, .s_scale = 0.4, .biased = capped_bias)
ATTENTION(attend_band, .s_scale = 0.4, .mask = BAND)
ATTENTION(attend_plain, .s_scale = 0.4)
ATTENTION(attend_unscaled, .mask = CAUSAL)
ATTENTION(attend_causal, .s_scale = 0.4, .mask = CAUSAL)
ATTENTION(attend_keep, .q_scale = 0.4, .mask = CAUSAL, .by_keep = true)
ATTENTION(attend_both_scales, .q_scale = 0.5, .s_scale = 0.7, .mask = CAUSAL)
ATTENTION(attend_open_mask, .s_scale = 0.4, .mask = FULL)
ATTENTION(attend_flat, .s_scale = 0.4, .flat = true)
ATTENTION(attend_flat_causal, .q_scale = 0.4, .mask = CAUSAL, .flat = true)
ATTENTION(attend_grouped, .kv = 2, .s_scale = 0.4, .mask = CAUSAL)
ATTENTION(attend_one_kv, .kv = 1, .s_scale = 0.4)
ATTENTION(attend_window, .s_scale = 0.4, .mask = WINDOW)
ATTENTION(attend_strict, .s_scale = 0.4, .mask = STRICT)
ATTENTION(attend_per_head, .s_scale = 0.4, .mask = PER_HEAD)
ATTENTION(attend_dropout, .s_scale = 0.4, .dropout = true)
ATTENTION(attend_spilled, .s_scale = 0.4, .spills = true)
ATTENTION(attend_other_softmax, .s_scale = 0.4, .other_softmax = true)
ATTENTION(attend_negative, .s_scale = -0.4)
ATTENTION(attend_wide_values, .s_scale = 0.4, .wide_values = true)

static V *attend_tiled(G *g, V *x) { /* head h uses key head h % 2 */
    return attention(g, x, &(spelled){.kv = 2, .s_scale = 0.4, .tiled = true});
}

/* queries, keys and values of one layer, taken apart as timm does */
static V *attend_packed(G *g, V *x) {
    V *y = tutti_reshape(g, tutti_linear(g, x, 3 * H * D, "qkv"), &TUTTI_SHAPE(B, T, 3, H, D));
    V *part[3];
    y = tutti_permute(g, y, (int[]){2, 0, 3, 1, 4}, 5);
    for (int i = 0; i < 3; i++)
        part[i] = tutti_reshape(g, tutti_slice(g, y, 0, i, 1), &TUTTI_SHAPE(B, H, T, D));
    V *s = tutti_matmul(g, affine(g, part[0], 0.4, 0), tutti_transpose(g, part[1], 2, 3));
    y = tutti_matmul(g, tutti_softmax(g, s, -1), part[2]);
    return tutti_reshape(g, tutti_transpose(g, y, 1, 2), &TUTTI_SHAPE(B, T, H * D));
}

/* As in nn.MultiheadAttention: positions come first, and layers are taken apart twice. */
static V *attend_positions_first(G *g, V *x) {
    V *y = tutti_permute(g, x, (int[]){1, 0, 2}, 3), *part[3];
    y = tutti_reshape(g, tutti_linear(g, y, 3 * H * D, "qkv"), &TUTTI_SHAPE(1, T, B, 3, H * D));
    y = tutti_permute(g, y, (int[]){3, 1, 2, 0, 4}, 5);
    for (int i = 0; i < 3; i++) {
        part[i] = tutti_reshape(g, tutti_slice(g, y, 0, i, 1), &TUTTI_SHAPE(T, B * H, D));
        part[i] = tutti_reshape(g, tutti_transpose(g, part[i], 0, 1), &TUTTI_SHAPE(B, H, T, D));
    }
    V *s = tutti_matmul(g, affine(g, part[0], 0.4, 0), tutti_transpose(g, part[1], 2, 3));
    y = tutti_permute(g, tutti_matmul(g, tutti_softmax(g, s, -1), part[2]), (int[]){2, 0, 1, 3}, 4);
    y = tutti_linear(g, tutti_reshape(g, y, &TUTTI_SHAPE(T * B, H * D)), K, "out");
    return tutti_transpose(g, tutti_reshape(g, y, &TUTTI_SHAPE(T, B, K)), 0, 1);
}

/* ---- views ---- */

static V *turned_layer(G *g, V *x) { /* through a layer, an activation and a part of its columns */
    V *y = tutti_linear(g, tutti_permute(g, x, (int[]){1, 0, 2}, 3), 6, "a");
    y = tutti_slice(g, tutti_gelu(g, y), 2, 2, 4);
    y = tutti_reshape(g, y, &TUTTI_SHAPE(T, B, 2, 2));
    return tutti_tanh(g, tutti_permute(g, y, (int[]){1, 0, 2, 3}, 4));
}
static V *turned_once(G *g, V *x) { /* one reader wants the other order */
    V *y = tutti_linear(g, tutti_permute(g, x, (int[]){1, 0, 2}, 3), 6, "a");
    V *z = tutti_reshape(g, tutti_tanh(g, y), &TUTTI_SHAPE(B, T, 6));
    return add(g, tutti_permute(g, y, (int[]){1, 0, 2}, 3), z);
}
static V *turned_apart(G *g, V *x) { /* the factors of a dimension come back in their order */
    V *y = tutti_reshape(g, x, &TUTTI_SHAPE(B, T, 2, K / 2));
    y = tutti_reshape(g, tutti_permute(g, y, (int[]){2, 0, 3, 1}, 4),
                      &TUTTI_SHAPE(2 * B, K / 2, T));
    y = tutti_reshape(g, tutti_transpose(g, y, 1, 2), &TUTTI_SHAPE(2, B * T, K / 2));
    return tutti_tanh(g, tutti_transpose(g, y, 0, 1));
}

/* The op with a window, of keys whose heads were repeated for it. */
static V *attend_op_grouped(G *g, V *x) {
    V *part[3];
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"q", "k", "v"};
        V *y = heads_of(g, x, i == 0 ? H : 2, names[i]);
        if (i > 0) y = repeat(g, y, 2, false);
        part[i] = tutti_reshape(g, tutti_transpose(g, y, 1, 2), &TUTTI_SHAPE(B, T, H * D));
    }
    return tutti_sdpa(g, part[0], part[1], part[2],
                      &(tutti_sdpa_desc){.heads = H, .causal = true, .window = 2});
}

/* ---- the cases ---- */

static const pattern_case cases[] = {
    {"attend_plain", attend_plain, "attention", "softmax"},
    {"attend_unscaled", attend_unscaled, "attention", "softmax"},
    {"attend_causal", attend_causal, "attention", "transpose"},
    {"attend_keep", attend_keep, "attention", "affine"},
    {"attend_both_scales", attend_both_scales, "attention", "div"},
    {"attend_open_mask", attend_open_mask, "attention", "add"},
    {"attend_flat", attend_flat, "attention", "transpose"},
    {"attend_flat_causal", attend_flat_causal, "attention", "transpose"},
    {"attend_grouped", attend_grouped, "attention", "broadcast_to"},
    {"attend_one_kv", attend_one_kv, "attention", "broadcast_to"},
    {"attend_packed", attend_packed, "attention", "concat"},
    {"attend_positions_first", attend_positions_first, "attention", "transpose"},
    {"turned_layer", turned_layer, "linear", "transpose"},
    {"turned_once", turned_once, NULL, NULL},
    {"turned_apart", turned_apart, "tanh", "transpose"},
    {"attend_tiled", attend_tiled, "attention", "softmax"}, /* of 4 heads: repeated as they are */
    {"attend_window", attend_window, "sdpa", "softmax"},
    {"attend_op_grouped", attend_op_grouped, "sdpa", "broadcast_to"},
    {"attend_band", attend_band, "sdpa", "softmax"},
    {"attend_strict", attend_strict, "sdpa", "softmax"},
    {"attend_per_head", attend_per_head, "sdpa", "softmax"},
    {"attend_dropout", attend_dropout, "sdpa", "dropout"},
    {"attend_bias", attend_bias, "sdpa", "add"},
    {"attend_bias_flat", attend_bias_flat, "attention", "add"},
    {"attend_bias_causal", attend_bias_causal, "sdpa", "add"},
    {"attend_bias_scaled", attend_bias_scaled, "sdpa", "softmax"},
    {"attend_bias_keep", attend_bias_keep, "sdpa", "keep"},
    {"attend_by_distance", attend_by_distance, "sdpa", "broadcast_to"},
    {"attend_windows", attend_windows, "sdpa", "dropout"},
    {"attend_in_blocks", attend_in_blocks, "softmax", "sdpa"},
    {"attend_padding", attend_padding, "sdpa", "softmax"},
    {"attend_filled", attend_filled, "sdpa", "softmax"},
    {"attend_filled_weakly", attend_filled_weakly, "softmax", "sdpa"},
    {"attend_filled_elsewhere", attend_filled_elsewhere, "softmax", "sdpa"},
    {"attend_filled_pairs", attend_filled_pairs, "sdpa", "softmax"},
    {"attend_causal_then_padding", attend_causal_then_padding, "sdpa", "softmax"},
    {"attend_padding_then_causal", attend_padding_then_causal, "sdpa", "softmax"},
    {"attend_bias_then_padding", attend_bias_then_padding, "sdpa", "softmax"},
    {"attend_distance_then_padding", attend_distance_then_padding, "sdpa", "softmax"},
    {"attend_causal_then_added", attend_causal_then_added, "softmax", "sdpa"},
    {"attend_padding_then_added", attend_padding_then_added, "softmax", "sdpa"},
    {"attend_padding_then_lower", attend_padding_then_lower, "softmax", "sdpa"},
    {"attend_bias_between_masks", attend_bias_between_masks, "softmax", "sdpa"},
    {"attend_added_causal", attend_added_causal, "sdpa", "softmax"},
    {"attend_masks_in_turns", attend_masks_in_turns, "softmax", "sdpa"},
    {"attend_added_pairs", attend_added_pairs, "sdpa", "softmax"},
    {"attend_capped", attend_capped, "sdpa", "tanh"},
    {"attend_capped_bias", attend_capped_bias, "softmax", "sdpa"},
    {"attend_spilled", attend_spilled, "softmax", "attention"},
    {"attend_other_softmax", attend_other_softmax, "softmax", "attention"},
    {"attend_negative", attend_negative, "softmax", "attention"},
    {"attend_wide_values", attend_wide_values, "sdpa", "softmax"},
};

T_CASE(attention_becomes_an_op_and_near_misses_stay) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(cases); i++) check_case(&cases[i], true);
}

T_CASE(evaluation_has_the_same_results) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(cases); i++) check_case(&cases[i], false);
}

/* Dropout of the weights is nothing in an evaluation. */
T_CASE(dropout_is_no_reason_in_an_evaluation) {
    T_UNUSED;
    const pattern_case c = {"attend_dropout", attend_dropout, NULL, NULL};
    tutti_graph *g = graph_of(&c, false);
    T_OK(tti_recognize(&g, NULL));
    T_EQ(net_count_ops(g, "attention"), 1);
    tutti_graph_destroy(g);
}

static double float_attr(const tutti_graph *g, const char *op, const char *attr) {
    for (int i = 0; i < g->n_nodes; i++)
        if (tti_is_op(g->nodes[i], op)) return tti_attr_float(g->nodes[i], attr);
    return NAN;
}

static int64_t int_attr(const tutti_graph *g, const char *op, const char *attr) {
    for (int i = 0; i < g->n_nodes; i++)
        if (tti_is_op(g->nodes[i], op)) return tti_attr_int(g->nodes[i], attr);
    return -1;
}

/* The op hides by position what a mask hides, and has no bias for it. */
T_CASE(masks_become_positions) {
    T_UNUSED;
    static const struct {
        V *(*build)(G *g, V *x);
        int64_t causal, window, bias_period, with, replaces;
        double softcap, p;
    } rows[] = {
        {attend_window, 1, 2, 0, 0, 0, 0, 0},
        {attend_band, 0, 2, 0, 0, 0, 0, 0},
        {attend_bias_causal, 1, 0, 0, 1, 0, 0, 0},
        {attend_strict, 0, 0, 0, 1, 0, 0, 0},
        {attend_windows, 0, 0, B, 1, 0, 0, 0.3},
        {attend_padding, 1, 0, 0, 1, 0, 0, 0},
        {attend_capped, 1, 2, 0, 0, 0, 1.5, 0},
        {attend_dropout, 0, 0, 0, 0, 0, 0, 0.3},
        {attend_by_distance, 1, 0, 0, 1, 0, 0, 0},
        {attend_filled, 0, 0, 0, 1, 1, 0, 0},
        {attend_filled_pairs, 0, 0, 0, 1, 1, 0, 0},
        {attend_causal_then_padding, 0, 0, 0, 1, 1, 0, 0},
        {attend_added_causal, 0, 0, 0, 1, 0, 0, 0},
    };
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        const pattern_case c = {"masks", rows[i].build, NULL, NULL};
        tutti_graph *g = graph_of(&c, true);
        T_OK(tti_recognize(&g, NULL));
        T_EQ(net_count_ops(g, "sdpa"), 1);
        T_EQ(int_attr(g, "sdpa", "causal"), rows[i].causal);
        T_EQ(int_attr(g, "sdpa", "window"), rows[i].window);
        T_EQ(int_attr(g, "sdpa", "bias_period"), rows[i].bias_period);
        T_EQ(int_attr(g, "sdpa", "with"), rows[i].with);
        T_EQ(int_attr(g, "sdpa", "replaces"), rows[i].replaces);
        assert_true(fabs(float_attr(g, "sdpa", "softcap") - rows[i].softcap) < 1e-6);
        assert_true(fabs(float_attr(g, "sdpa", "p") - rows[i].p) < 1e-6);
        tutti_graph_destroy(g);
    }
}

T_CASE(the_report_says_why) {
    T_UNUSED;
    static const struct {
        V *(*build)(G *g, V *x);
        const char *why;
    } rows[] = {
        {attend_in_blocks, "a bias repeats within heads or samples"},
        {attend_filled_weakly, "the scores are more than a product with masks and biases"},
        {attend_causal_then_added, "one mask is added, another one replaces scores"},
        {attend_padding_then_added, "one mask from inputs is added, another one replaces scores"},
        {attend_padding_then_lower, "a constant mask replaces a mask from inputs"},
        {attend_bias_between_masks, "constant masks and masks from inputs replace biases"},
        {attend_masks_in_turns, "constant masks and masks from inputs take turns"},
        {attend_spilled, "its scores or weights are used elsewhere too"},
        {attend_negative, "the scale is not positive"},
    };
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        tti_findings found;
        assert_string_equal(why_of(rows[i].build, &found), rows[i].why);
        tti_findings_fini(&found);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_becomes_an_op_and_near_misses_stay),
        cmocka_unit_test(evaluation_has_the_same_results),
        cmocka_unit_test(dropout_is_no_reason_in_an_evaluation),
        cmocka_unit_test(masks_become_positions),
        cmocka_unit_test(the_report_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
