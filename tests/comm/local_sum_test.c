/* local_sum_test.c - conversions over all 16-bit values, sums in order, NaN rules, wrapping. */
#include "comm/local_sum.h"

#include <stdlib.h>

#include "base/dtype.h"
#include "t.h"

enum { N_HALVES = 1 << 16 };

T_CASE(halves_convert_as_in_base) {
    T_UNUSED;
    uint16_t *h = malloc(N_HALVES * 2), *back = malloc(N_HALVES * 2);
    float *x = malloc(N_HALVES * 4);
    for (int i = 0; i < N_HALVES; i++) h[i] = (uint16_t)i;
    tti_widen(TUTTI_F16, h, x, N_HALVES);
    tti_narrow(TUTTI_F16, x, back, N_HALVES);
    for (int i = 0; i < N_HALVES; i++) {
        float want = tti_f16_to_f32(h[i]);
        assert_true(isnan(want) ? isnan(x[i]) : memcmp(&want, &x[i], 4) == 0);
        if (!isnan(want))
            T_EQ(back[i], h[i]);
        else
            assert_true(isnan(tti_f16_to_f32(back[i])));
    }
    tti_widen(TUTTI_BF16, h, x, N_HALVES);
    tti_narrow(TUTTI_BF16, x, back, N_HALVES);
    for (int i = 0; i < N_HALVES; i++)
        T_EQ(back[i], isnan(tti_bf16_to_f32(h[i])) ? (h[i] | 0x40) : h[i]);
    free(h);
    free(back);
    free(x);
}

T_CASE(floats_round_as_in_base) {
    T_UNUSED;
    uint64_t seed = 1;
    for (int i = 0; i < 400000; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        uint32_t bits = (uint32_t)(seed >> 32);
        if (i % 2)
            bits = (bits & 0x80001FFFu) | (uint32_t)((100 + i % 50) << 23) | ((bits & 7) << 13);
        float x;
        uint16_t half, bhalf;
        memcpy(&x, &bits, 4);
        if (isnan(x)) continue;
        tti_narrow(TUTTI_F16, &x, &half, 1);
        tti_narrow(TUTTI_BF16, &x, &bhalf, 1);
        T_EQ(half, tti_f32_to_f16(x));
        T_EQ(bhalf, tti_f32_to_bf16(x));
    }
}

T_CASE(terms_are_added_in_tree_order) {
    T_UNUSED;
    /* (big + small) + (-big + small) is 0; any other order gives 1 or 2 */
    float big = 1e9f, terms[4][3] = {{big, 1, 2}, {1, 2, 3}, {-big, 3, 4}, {1, 4, 5}};
    const void *srcs[4] = {terms[0], terms[1], terms[2], terms[3]};
    tti_sum_order order;
    void *scratch = malloc(tti_sum_scratch_bytes());
    T_OK(tti_sum_order_ranks(4, &order));
    const float *sum =
        tti_sum_block(&order, srcs, 0, tti_sum_dtypes_of(TUTTI_F32), TUTTI_SUM, 3, scratch);
    assert_true(sum[0] == 0 && sum[1] == 10 && sum[2] == 14);
    sum = tti_sum_block(&order, srcs, 4, tti_sum_dtypes_of(TUTTI_F32), TUTTI_MAX, 2, scratch);
    assert_true(sum[0] == 4 && sum[1] == 5);
    tti_sum_order_free(&order);
    T_OK(tti_sum_order_ranks(5, &order));
    const int adds[5] = {0, 1, 0, 2, 1}; /* ((0+1)+(2+3))+4 */
    for (int t = 0; t < 5; t++) T_EQ(order.terms[t].n_adds, adds[t]);
    tti_sum_order_free(&order);
    tti_shard_map shard_map;
    tti_shard_map_equally(3, 4, &shard_map); /* 0 | 1 | 2 3 */
    T_OK(tti_sum_order_shards(&shard_map, &order));
    T_EQ(order.n_terms, 3);
    T_EQ(order.terms[1].n_adds, 1);
    T_EQ(order.terms[2].n_adds, 1);
    T_EQ(tti_sum_order_n_partials(&order, 2), 1);
    tti_sum_order_free(&order);
    free(scratch);
}

T_CASE(halves_accumulate_in_f32) {
    T_UNUSED;
    /* 256 + 1 + 1 + 1 in bf16 stays 256 if every sum is rounded to bf16 */
    uint16_t terms[4] = {tti_f32_to_bf16(256), tti_f32_to_bf16(1), tti_f32_to_bf16(1),
                         tti_f32_to_bf16(2)};
    const void *srcs[4] = {&terms[0], &terms[1], &terms[2], &terms[3]};
    tti_sum_order order;
    void *scratch = malloc(tti_sum_scratch_bytes());
    T_OK(tti_sum_order_ranks(4, &order));
    const uint16_t *sum =
        tti_sum_block(&order, srcs, 0, tti_sum_dtypes_of(TUTTI_BF16), TUTTI_SUM, 1, scratch);
    T_EQ(*sum, tti_f32_to_bf16(260));
    tti_sum_order_free(&order);
    free(scratch);
}

/* The same terms, each sum of two rounded: 256 + 1 is 256, and 1 + 2 is 3; in both storages. */
T_CASE(partial_sums_are_rounded) {
    T_UNUSED;
    const float values[4] = {256, 1, 1, 2};
    uint16_t terms[4];
    const void *srcs[4], *wide[4];
    for (int i = 0; i < 4; i++) {
        terms[i] = tti_f32_to_bf16(values[i]);
        srcs[i] = &terms[i];
        wide[i] = &values[i];
    }
    tti_sum_order order;
    void *scratch = malloc(tti_sum_scratch_bytes());
    T_OK(tti_sum_order_ranks(4, &order));
    const tti_sum_dtypes half = {TUTTI_BF16, TUTTI_BF16}, whole = {TUTTI_F32, TUTTI_BF16};
    const uint16_t *sum = tti_sum_block(&order, srcs, 0, half, TUTTI_SUM, 1, scratch);
    T_EQ(*sum, tti_f32_to_bf16(260)); /* 259 lies between 258 and 260: to even */
    const float *same = tti_sum_block(&order, wide, 0, whole, TUTTI_SUM, 1, scratch);
    assert_true(*same == 260);
    tti_sum_order_free(&order);
    free(scratch);
}

/* Nearest even; NaN stays NaN, also one whose payload would be rounded to infinity; what is too
 * large becomes infinite. */
T_CASE(rounded_sums_keep_nan_and_infinity) {
    T_UNUSED;
    enum { N = 37 };
    const uint32_t small_nan = 0x7F800001u, full_nan = 0xFFFFFFFFu;
    float x[N], back[N];
    uint16_t a[N], b[N];
    for (int i = 0; i < N; i++) x[i] = (float)i * 1.00390625f;
    memcpy(&x[3], &small_nan, sizeof x[3]);
    memcpy(&x[20], &full_nan, sizeof x[20]);
    x[4] = INFINITY, x[5] = -INFINITY, x[6] = 3.4e38f, x[7] = 0x1.01p0f, x[8] = 0x1.03p0f;
    memcpy(back, x, sizeof x);
    tti_narrow(TUTTI_BF16, x, a, N);
    tti_narrow_in_place(TUTTI_BF16, back, N);
    assert_memory_equal(a, back, sizeof a);
    for (int i = 0; i < N; i++) T_EQ(a[i], tti_f32_to_bf16(x[i]));
    tti_widen_in_place(TUTTI_BF16, back, 0, N);
    assert_true(isnan(back[3]) && isnan(back[20]) && back[4] == INFINITY && back[5] == -INFINITY);
    assert_true(back[6] == INFINITY && back[7] == 1 && back[8] == 0x1.04p0f);
    for (int i = 0; i < N; i++) b[i] = tti_f32_to_bf16(1);
    b[4] = tti_f32_to_bf16(-INFINITY);
    tti_combine(TUTTI_BF16, TUTTI_SUM, b, a, b, N);
    for (int i = 0; i < N; i++) {
        float sum = tti_bf16_to_f32(a[i]) + (i == 4 ? -INFINITY : 1);
        if (isnan(sum))
            assert_true(isnan(tti_bf16_to_f32(b[i])));
        else
            T_EQ(b[i], tti_f32_to_bf16(sum));
    }
}

/* Longer than a block, and from an element on that is not the first. */
T_CASE(conversion_in_place_reads_before_it_writes) {
    T_UNUSED;
    enum { N = 5 * TTI_SUM_BLOCK + 13, FIRST = 700 };
    float *x = malloc(N * sizeof *x);
    for (int i = 0; i < N; i++) x[i] = (float)(i % 251) - 100;
    tti_narrow_in_place(TUTTI_BF16, x, N);
    tti_widen_in_place(TUTTI_BF16, x, FIRST, N);
    for (int i = FIRST; i < N; i++) assert_true(x[i] == (float)(i % 251) - 100);
    tti_widen_in_place(TUTTI_BF16, x, 0, FIRST);
    for (int i = 0; i < N; i++) assert_true(x[i] == (float)(i % 251) - 100);
    free(x);
}

T_CASE(nan_and_wrapping) {
    T_UNUSED;
    float a[3] = {NAN, 1, 2}, b[3] = {1, NAN, 3}, c[3];
    tti_combine(TUTTI_F32, TUTTI_MIN, c, a, b, 3);
    assert_true(isnan(c[0]) && isnan(c[1]) && c[2] == 2);
    tti_combine(TUTTI_F32, TUTTI_MAX, c, a, b, 3);
    assert_true(isnan(c[0]) && isnan(c[1]) && c[2] == 3);
    uint8_t x = 200, y = 100, z;
    tti_combine(TUTTI_U8, TUTTI_SUM, &z, &x, &y, 1);
    T_EQ(z, 44);
    int64_t p = INT64_MAX, q = 1, r;
    tti_combine(TUTTI_I64, TUTTI_SUM, &r, &p, &q, 1);
    assert_true(r == INT64_MIN);
    int32_t s = -5, t = 3, u;
    tti_combine(TUTTI_I32, TUTTI_MIN, &u, &s, &t, 1);
    T_EQ(u, -5);
}

T_CASE(dst_may_be_an_operand) {
    T_UNUSED;
    float a[100], b[100];
    for (int i = 0; i < 100; i++) a[i] = (float)i, b[i] = (float)(2 * i);
    tti_combine(TUTTI_F32, TUTTI_SUM, a, a, b, 100);
    tti_combine(TUTTI_F32, TUTTI_SUM, b, a, b, 100);
    for (int i = 0; i < 100; i++) assert_true(a[i] == (float)(3 * i) && b[i] == (float)(5 * i));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(halves_convert_as_in_base),
        cmocka_unit_test(floats_round_as_in_base),
        cmocka_unit_test(terms_are_added_in_tree_order),
        cmocka_unit_test(halves_accumulate_in_f32),
        cmocka_unit_test(partial_sums_are_rounded),
        cmocka_unit_test(rounded_sums_keep_nan_and_infinity),
        cmocka_unit_test(conversion_in_place_reads_before_it_writes),
        cmocka_unit_test(nan_and_wrapping),
        cmocka_unit_test(dst_may_be_an_operand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
