/* init_test.c - initial values: bounds, moments, fans, and what they depend on. */
#include "ops/init.h"

#include "base/philox.h"
#include "t.h"

enum { MAX_ELEMS = 64 * 50 * 3 * 3 };
static float drawn[MAX_ELEMS], again[MAX_ELEMS];

typedef struct moments {
    double mean, std, min, max;
} moments;

/* Draws a parameter into drawn. */
static moments draw(const char *name, const tutti_shape *shape, const tutti_init *init,
                    uint64_t seed) {
    tutti_graph *g = tutti_graph_create(true);
    tutti_value *w = tutti_param(g, name, shape, init, true);
    T_OK(tutti_graph_check(g));
    size_t n = (size_t)tutti_shape_n_elems(shape);
    assert_true(n <= MAX_ELEMS);
    tti_init_param(w->node, seed, drawn);
    tutti_graph_destroy(g);
    moments m = {0, 0, INFINITY, -INFINITY};
    for (size_t i = 0; i < n; i++) {
        m.mean += drawn[i] / (double)n;
        m.min = fmin(m.min, drawn[i]), m.max = fmax(m.max, drawn[i]);
    }
    for (size_t i = 0; i < n; i++) m.std += pow(drawn[i] - m.mean, 2) / (double)n;
    m.std = sqrt(m.std);
    return m;
}

/* mean and std within 4.5 deviations of what n draws give; bound 0: none. */
static void check(moments m, double n, double mean, double std, double bound) {
    T_NEAR(m.mean, mean, 4.5 * std / sqrt(n));
    if (fabs(m.std - std) > 4.5 * std / sqrt(n)) fail_msg("std %g, not %g", m.std, std);
    if (bound > 0) {
        assert_true(m.min >= mean - bound * 1.000001 && m.max <= mean + bound * 1.000001);
        assert_true(m.max > mean + 0.99 * bound && m.min < mean - 0.99 * bound);
    }
}

T_CASE(kinds_have_their_bounds_and_moments) {
    T_UNUSED;
    const tutti_shape conv = TUTTI_SHAPE(64, 50, 3, 3); /* fan in 450, fan out 576 */
    const double n = MAX_ELEMS, in = 450, out = 576, root3 = sqrt(3);
    const struct {
        tutti_init init;
        double mean, std, bound;
    } rows[] = {
        {{TUTTI_INIT_UNIFORM, -1, 3, 0}, 1, 2 / root3, 2},
        {{TUTTI_INIT_NORMAL, 0.5, 2, 0}, 0.5, 2, 0},
        {{TUTTI_INIT_HE_NORMAL, 0, 0, 0}, 0, sqrt(2 / in), 0},
        {{TUTTI_INIT_HE_UNIFORM, 0, 0, 0}, 0, sqrt(2 / in), sqrt(6 / in)},
        {{TUTTI_INIT_XAVIER_NORMAL, 0, 0, 0}, 0, sqrt(2 / (in + out)), 0},
        {{TUTTI_INIT_XAVIER_UNIFORM, 0, 0, 0}, 0, sqrt(2 / (in + out)), sqrt(6 / (in + out))},
        {{TUTTI_INIT_FAN_IN_UNIFORM, 0, 0, 0}, 0, 1 / sqrt(3 * in), 1 / sqrt(in)},
        {{TUTTI_INIT_FAN_IN_UNIFORM, 0, 0, 16}, 0, 0.25 / root3, 0.25},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check(draw("w", &conv, &rows[i].init, 1), n, rows[i].mean, rows[i].std, rows[i].bound);
}

T_CASE(zeros_and_constants_are_exact) {
    T_UNUSED;
    moments m = draw("w", &TUTTI_SHAPE(7, 3), NULL, 1);
    assert_true(m.min == 0 && m.max == 0);
    m = draw("w", &TUTTI_SHAPE(7, 3), &(tutti_init){TUTTI_INIT_CONSTANT, 0.1, 9, 0}, 1);
    assert_true((float)m.min == 0.1f && (float)m.max == 0.1f);
    draw("w", &TUTTI_SHAPE(0, 3), &(tutti_init){.kind = TUTTI_INIT_HE_NORMAL}, 1);
}

T_CASE(bits_follow_seed_and_name_and_position) {
    T_UNUSED;
    const tutti_init init = {.kind = TUTTI_INIT_FAN_IN_UNIFORM};
    draw("a.weight", &TUTTI_SHAPE(10, 4), &init, 7);
    memcpy(again, drawn, sizeof drawn);
    draw("a.weight", &TUTTI_SHAPE(10, 4), &init, 7);
    assert_memory_equal(drawn, again, 40 * sizeof *drawn);
    draw("a.weight", &TUTTI_SHAPE(20, 4), &init, 7); /* a longer one starts the same */
    assert_memory_equal(drawn, again, 40 * sizeof *drawn);
    uint64_t key = tti_mix64(7, tti_hash_name("a.weight"));
    for (size_t i = 0; i < 40; i++) {
        double unit = (double)tti_philox_unit(tti_philox_draw(key, 0, i / 4).v[i % 4]);
        assert_true(again[i] == (float)(-0.5 + 1.0 * unit));
    }
    draw("b.weight", &TUTTI_SHAPE(10, 4), &init, 7);
    assert_memory_not_equal(drawn, again, 40 * sizeof *drawn);
    draw("a.weight", &TUTTI_SHAPE(10, 4), &init, 8);
    assert_memory_not_equal(drawn, again, 40 * sizeof *drawn);
}

T_CASE(normals_are_uncorrelated_and_finite) {
    T_UNUSED;
    draw("w", &TUTTI_SHAPE(64, 50, 3, 3), &(tutti_init){TUTTI_INIT_NORMAL, 0, 1, 0}, 3);
    double lag = 0, beyond2 = 0;
    for (size_t i = 0; i < MAX_ELEMS; i++) {
        assert_true(isfinite(drawn[i]));
        beyond2 += fabsf(drawn[i]) > 2;
        if (i > 0) lag += (double)drawn[i] * (double)drawn[i - 1];
    }
    T_NEAR(lag / MAX_ELEMS, 0, 4.5 / sqrt(MAX_ELEMS));
    T_NEAR(beyond2 / MAX_ELEMS, 0.0455, 0.004);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_have_their_bounds_and_moments),
        cmocka_unit_test(zeros_and_constants_are_exact),
        cmocka_unit_test(bits_follow_seed_and_name_and_position),
        cmocka_unit_test(normals_are_uncorrelated_and_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
