/* low_rank_test.c - products of thin matrices, and directions that are orthonormal. */
#include "exec/worker/compress.h"

#include "base/philox.h"
#include "t.h"

enum { ROWS = 37, COLS = 53, R = 3 };

static void draw(float *to, size_t n, uint64_t seed) {
    for (size_t i = 0; i < n; i++)
        to[i] = 2 * tti_philox_unit(tti_philox_draw(seed, 0, i).v[0]) - 1;
}

static double dot(const float *a, const float *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += (double)a[i] * (double)b[i];
    return sum;
}

static const tti_low_rank shape = {ROWS, COLS, R};
static float m[ROWS * COLS], p[R * ROWS], q[R * COLS], out[ROWS * COLS];

T_CASE(products_are_those_of_matrices) {
    T_UNUSED;
    draw(m, ROWS * COLS, 1);
    draw(q, R * COLS, 2);
    tti_low_rank_left(&shape, m, q, p);
    for (size_t k = 0; k < R; k++)
        for (size_t i = 0; i < ROWS; i++)
            T_NEAR(p[k * ROWS + i], dot(m + i * COLS, q + k * COLS, COLS), 1e-5);
    tti_low_rank_right(&shape, m, p, q);
    for (size_t k = 0; k < R; k++)
        for (size_t j = 0; j < COLS; j++) {
            double sum = 0;
            for (size_t i = 0; i < ROWS; i++)
                sum += (double)p[k * ROWS + i] * (double)m[i * COLS + j];
            T_NEAR(q[k * COLS + j], sum, 1e-5);
        }
}

T_CASE(vectors_become_orthonormal) {
    T_UNUSED;
    draw(p, R * ROWS, 3);
    for (size_t i = 0; i < ROWS; i++) p[i] *= 1e20f;
    for (size_t i = 0; i < ROWS; i++) p[ROWS + i] *= 1e-20f;
    tti_low_rank_orthonormalize(p, R, ROWS);
    for (size_t k = 0; k < R; k++)
        for (size_t l = 0; l < R; l++)
            T_NEAR(dot(p + k * ROWS, p + l * ROWS, ROWS), k == l ? 1 : 0, 1e-5);
}

T_CASE(what_depends_on_others_becomes_nothing) {
    T_UNUSED;
    draw(p, R * ROWS, 4);
    for (size_t i = 0; i < ROWS; i++) p[ROWS + i] = -3 * p[i];
    for (size_t i = 0; i < ROWS; i++) p[2 * ROWS + i] = 0;
    tti_low_rank_orthonormalize(p, R, ROWS);
    T_NEAR(tti_low_rank_norm(p, ROWS), 1, 1e-6);
    for (size_t i = 0; i < 2 * ROWS; i++) assert_true(p[ROWS + i] == 0);
}

T_CASE(what_is_no_number_stays_none) {
    T_UNUSED;
    draw(p, R * ROWS, 5);
    p[5] = INFINITY;
    tti_low_rank_orthonormalize(p, 1, ROWS);
    assert_true(isnan(p[0]) && isnan(p[5]));
}

/* A matrix of rank R is its projection on R of its own directions. */
T_CASE(a_matrix_of_low_rank_is_met) {
    T_UNUSED;
    draw(p, R * ROWS, 6);
    draw(q, R * COLS, 7);
    tti_low_rank_product(&shape, p, q, m);
    T_NEAR(m[5 * COLS + 8],
           (double)p[5] * (double)q[8] + (double)p[ROWS + 5] * (double)q[COLS + 8] +
               (double)p[2 * ROWS + 5] * (double)q[2 * COLS + 8],
           1e-6);
    draw(q, R * COLS, 8);
    tti_low_rank_left(&shape, m, q, p);
    tti_low_rank_orthonormalize(p, R, ROWS);
    tti_low_rank_right(&shape, m, p, q);
    tti_low_rank_product(&shape, p, q, out);
    for (size_t i = 0; i < ROWS * COLS; i++) T_NEAR(out[i], m[i], 1e-4);
    double before = tti_low_rank_norm(m, ROWS * COLS);
    tti_low_rank_subtract(&shape, p, q, m);
    T_NEAR(tti_low_rank_norm(m, ROWS * COLS) / before, 0, 1e-4);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(products_are_those_of_matrices),
                                       cmocka_unit_test(vectors_become_orthonormal),
                                       cmocka_unit_test(what_depends_on_others_becomes_nothing),
                                       cmocka_unit_test(what_is_no_number_stays_none),
                                       cmocka_unit_test(a_matrix_of_low_rank_is_met)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
