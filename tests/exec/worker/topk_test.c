/* topk_test.c - the largest elements, against a sort. */
#include "exec/worker/compress.h"

#include <stdlib.h>

#include "base/philox.h"
#include "t.h"

enum { MOST = 5000 };

static uint32_t counts[TTI_TOPK_COUNTS], chosen[MOST];
static float x[MOST];

static int compare(const void *a, const void *b) {
    float p = fabsf(*(const float *)a), q = fabsf(*(const float *)b);
    return (p < q) - (p > q);
}

/* n values, of few kinds where kinds is small. */
static void draw(uint64_t seed, size_t n, uint32_t kinds) {
    for (size_t i = 0; i < n; i++) {
        tti_philox d = tti_philox_draw(seed, 3, i);
        x[i] = kinds ? (float)(d.v[0] % kinds) - (float)(kinds / 2)
                     : ldexpf(2 * tti_philox_unit(d.v[0]) - 1, (int)(d.v[1] % 200) - 100);
    }
}

static void check(size_t n, size_t k) {
    static float sorted[MOST], got[MOST];
    tti_topk_select(x, n, k, counts, chosen);
    memcpy(sorted, x, n * sizeof *x);
    qsort(sorted, n, sizeof *sorted, compare);
    for (size_t i = 0; i < k; i++) {
        assert_true(chosen[i] < n && (i == 0 || chosen[i] > chosen[i - 1]));
        got[i] = x[chosen[i]];
    }
    qsort(got, k, sizeof *got, compare);
    for (size_t i = 0; i < k; i++) assert_true(fabsf(got[i]) == fabsf(sorted[i]));
}

T_CASE(largest_of_many) {
    T_UNUSED;
    for (uint64_t seed = 0; seed < 40; seed++) {
        size_t n = 1 + tti_philox_draw(seed, 1, 0).v[0] % MOST;
        draw(seed, n, seed % 2 ? 0 : 7);
        check(n, 1 + tti_philox_draw(seed, 1, 1).v[0] % n);
        check(n, 1);
        check(n, n);
    }
}

T_CASE(first_of_equal_ones) {
    T_UNUSED;
    memset(x, 0, sizeof x);
    x[7] = -1;
    x[3] = 1;
    x[9] = 1;
    tti_topk_select(x, 20, 2, counts, chosen);
    T_EQ(chosen[0], 3);
    T_EQ(chosen[1], 7);
    tti_topk_select(x, 20, 5, counts, chosen);
    for (uint32_t i = 0; i < 5; i++) T_EQ(chosen[i], ((uint32_t[]){0, 1, 3, 7, 9})[i]);
}

T_CASE(what_is_no_number_is_chosen) {
    T_UNUSED;
    draw(1, 100, 0);
    x[50] = NAN;
    x[60] = -INFINITY;
    tti_topk_select(x, 100, 2, counts, chosen);
    T_EQ(chosen[0], 50);
    T_EQ(chosen[1], 60);
}

T_CASE(nothing_is_chosen) {
    T_UNUSED;
    chosen[0] = 77;
    tti_topk_select(x, 0, 0, counts, chosen);
    tti_topk_select(x, 10, 0, counts, chosen);
    T_EQ(chosen[0], 77);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(largest_of_many), cmocka_unit_test(first_of_equal_ones),
        cmocka_unit_test(what_is_no_number_is_chosen), cmocka_unit_test(nothing_is_chosen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
