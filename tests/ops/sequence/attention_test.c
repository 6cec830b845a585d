/* attention_test.c - decoding one position at a time gives what the whole sequence gives, rotary
 * positions depend on distance alone, masked keys are never read, bad heads are named. */
#include "ir/graph.h"
#include "reference_run.h"
#include "t.h"
#include "tutti/ops.h"

enum { B = 2, T = 4, H = 4, KV = 2, D = 2, WIDTH = (H + 2 * KV) * D, STEP = KV * D };

static double some(int b, int t, int i) { return sin(0.7 * i + 1.3 * t + 2.9 * b); }

static const tutti_attention_desc heads = {.heads = H, .kv_heads = KV, .causal = true};
static const tutti_rotary_desc turn = {.heads = H + KV, .dim = D, .base = 50};

/* y[B,T,H*D] of the whole sequence; lengths NULL: all. */
static void run_whole(const int *lengths, double bad, double *y) {
    tutti_graph *g = tutti_graph_create(false);
    tutti_value *qkv = tutti_input(g, "qkv", TUTTI_F32, &TUTTI_SHAPE(B, T, WIDTH)), *len = NULL;
    if (lengths) len = tutti_input(g, "lengths", TUTTI_I32, &TUTTI_SHAPE(B));
    tutti_value *out = tutti_attention(g, tutti_rotary(g, qkv, NULL, &turn), len, &heads);
    T_OK(tutti_graph_check(g));
    t_reference *r = t_reference_create(g);
    for (int i = 0; i < B * T * WIDTH; i++) {
        int b = i / (T * WIDTH), t = i / WIDTH % T;
        bool masked = lengths && t >= lengths[b] && i % WIDTH >= H * D;
        t_reference_of(r, qkv)[i] = masked ? bad : some(b, t, i % WIDTH);
    }
    for (int b = 0; lengths && b < B; b++) t_reference_of(r, len)[b] = lengths[b];
    t_reference_run(r, &(tti_run){0});
    memcpy(y, t_reference_of(r, out), B * T * H * D * sizeof *y);
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

T_CASE(decoding_gives_what_the_whole_sequence_gives) {
    T_UNUSED;
    double whole[B * T * H * D];
    run_whole(NULL, 0, whole);
    tutti_graph *g = tutti_graph_create(false);
    tutti_value *qkv = tutti_input(g, "qkv", TUTTI_F32, &TUTTI_SHAPE(B, 1, WIDTH));
    tutti_value *k = tutti_input(g, "k", TUTTI_F32, &TUTTI_SHAPE(B, T, STEP));
    tutti_value *v = tutti_input(g, "v", TUTTI_F32, &TUTTI_SHAPE(B, T, STEP));
    tutti_value *pos = tutti_input(g, "pos", TUTTI_I32, &TUTTI_SHAPE(1));
    tutti_cached_attention out =
        tutti_attention_cached(g, tutti_rotary(g, qkv, pos, &turn), k, v, pos, &heads);
    T_OK(tutti_graph_check(g));
    t_reference *r = t_reference_create(g);
    for (int i = 0; i < B * T * STEP; i++) /* what lies beyond pos is never read */
        t_reference_of(r, k)[i] = t_reference_of(r, v)[i] = NAN;
    for (int t = 0; t < T; t++) {
        for (int i = 0; i < B * WIDTH; i++)
            t_reference_of(r, qkv)[i] = some(i / WIDTH, t, i % WIDTH);
        *t_reference_of(r, pos) = t;
        t_reference_run(r, &(tti_run){0});
        for (int i = 0; i < B * H * D; i++)
            T_NEAR(t_reference_of(r, out.y)[i], whole[(i / (H * D) * T + t) * H * D + i % (H * D)],
                   1e-13);
        memcpy(t_reference_of(r, k), t_reference_of(r, out.k_cache), sizeof(double) * B * T * STEP);
        memcpy(t_reference_of(r, v), t_reference_of(r, out.v_cache), sizeof(double) * B * T * STEP);
    }
    t_reference_destroy(r);
    tutti_graph_destroy(g);
}

T_CASE(masked_keys_are_never_read) {
    T_UNUSED;
    double zeros[B * T * H * D], nans[B * T * H * D], all[B * T * H * D];
    run_whole((int[]){2, 0}, 0, zeros);
    run_whole((int[]){2, 0}, NAN, nans);
    run_whole(NULL, 0, all);
    for (int i = 0; i < B * T * H * D; i++) {
        T_NEAR(zeros[i], nans[i], 0);
        if (i >= T * H * D) T_NEAR(zeros[i], 0, 0);         /* a sample without keys */
        if (i < 2 * H * D) T_NEAR(zeros[i], all[i], 1e-15); /* causal: both keys are there */
    }
}

/* The product of a turned query and a turned key is that of their distance. */
T_CASE(rotary_products_depend_on_distance) {
    T_UNUSED;
    double products[2];
    for (int trial = 0; trial < 2; trial++) {
        tutti_graph *g = tutti_graph_create(false);
        tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(1, 3, 6));
        tutti_value *y = tutti_rotary(
            g, x, NULL, &(tutti_rotary_desc){.heads = 1, .dim = 6, .start = 11 * trial});
        T_OK(tutti_graph_check(g));
        t_reference *r = t_reference_create(g);
        for (int i = 0; i < 18; i++) t_reference_of(r, x)[i] = some(0, 0, i);
        t_reference_run(r, &(tti_run){0});
        const double *turned = t_reference_of(r, y);
        products[trial] = 0;
        for (int i = 0; i < 6; i++) products[trial] += turned[i] * turned[12 + i];
        t_reference_destroy(r);
        tutti_graph_destroy(g);
    }
    T_NEAR(products[0], products[1], 1e-12);
}

T_CASE(bad_heads_are_named) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(false);
    tutti_value *x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(2, 4, 12));
    assert_null(tutti_attention(g, x, NULL, &(tutti_attention_desc){.heads = 5}));
    T_FAILS(tutti_graph_check(g), TUTTI_E_INVALID,
            "attention: 12 elements do not divide into 5 + 2 * 5 heads");
    tutti_graph_destroy(g);
    g = tutti_graph_create(false);
    x = tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(2, 4, 12));
    assert_null(tutti_rotary(g, x, NULL, &(tutti_rotary_desc){.heads = 4, .dim = 4}));
    T_FAILS(tutti_graph_check(g), TUTTI_E_INVALID, "rotary: 4 heads of width 4 are more than 12");
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_gives_what_the_whole_sequence_gives),
        cmocka_unit_test(masked_keys_are_never_read),
        cmocka_unit_test(rotary_products_depend_on_distance),
        cmocka_unit_test(bad_heads_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
