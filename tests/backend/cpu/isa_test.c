/* isa_test.c - the parameter hash (definition, what it must notice), sums of squares and
 * accumulation, the same in every instruction set. */
#include <math.h>
#include <stdlib.h>

#include "backend/cpu/cpu.h"
#include "base/dtype.h"
#include "base/philox.h"
#include "t.h"

enum { N = 1000 };

static void fill(float *w, size_t n) {
    for (size_t i = 0; i < n; i++) w[i] = tti_philox_unit(tti_philox_draw(5, 0, i).v[0]) - 0.5f;
}

/* The definition, one element at a time: 64 lanes by Horner's rule, missing elements are 0, then
 * rows of 16 joined by another factor, and the lanes mixed in order. */
static uint64_t plain_hash(const float *w, size_t n, uint64_t first) {
    uint32_t lane[64] = {0};
    for (size_t i = 0; i < (n + 63) / 64 * 64; i++) {
        uint32_t bits = 0;
        if (i < n) memcpy(&bits, &w[i], sizeof bits);
        lane[i % 64] = lane[i % 64] * 0x9E3779B1u + bits;
    }
    uint64_t hash = tti_mix64(first, n);
    for (int k = 16; k < 64; k++) lane[k % 16] = lane[k % 16] * 0x85EBCA6Bu + lane[k];
    for (uint64_t k = 0; k < 16; k += 2)
        hash = tti_mix64(hash ^ ((uint64_t)lane[k] << 32 | lane[k + 1]), k);
    return hash;
}

T_CASE(every_instruction_set_follows_the_definition) {
    T_UNUSED;
    float w[N];
    const tti_cpu_isa *isa;
    fill(w, N);
    for (int k = 0; (isa = tti_cpu_isa_at(k)) != NULL; k++)
        for (size_t n = 0; n <= N; n += n < 70 ? 1 : 93) {
            assert_true(isa->hash_params(w, n, 0) == plain_hash(w, n, 0));
            assert_true(isa->hash_params(w, n, 0x123456789ABu) == plain_hash(w, n, 0x123456789ABu));
        }
}

T_CASE(place_and_length_change_it) {
    T_UNUSED;
    float w[N] = {0};
    uint64_t before = tti_cpu_hash_params(w, N, 7);
    assert_true(tti_cpu_hash_params(w, N, 8) != before);
    assert_true(tti_cpu_hash_params(w, N - 1, 7) != before);
}

T_CASE(any_flipped_bit_changes_it) {
    T_UNUSED;
    float w[N];
    fill(w, N);
    uint64_t before = tti_cpu_hash_params(w, N, 0);
    for (size_t i = 0; i < N; i++)
        for (int b = 0; b < 32; b++) {
            float kept = w[i];
            uint32_t bits;
            memcpy(&bits, &w[i], sizeof bits);
            bits ^= 1u << b;
            memcpy(&w[i], &bits, sizeof bits);
            assert_true(tti_cpu_hash_params(w, N, 0) != before);
            w[i] = kept;
        }
}

T_CASE(any_exchange_of_unequal_elements_changes_it) {
    T_UNUSED;
    float w[N];
    fill(w, N);
    uint64_t before = tti_cpu_hash_params(w, N, 0);
    for (size_t i = 0; i < N; i += 3)
        for (size_t j = i + 1; j < N; j += 17) {
            float a = w[i], b = w[j];
            if (a == b) continue;
            w[i] = b, w[j] = a;
            assert_true(tti_cpu_hash_params(w, N, 0) != before);
            w[i] = a, w[j] = b;
        }
}

T_CASE(sums_of_squares_are_exact_to_double_and_the_same_everywhere) {
    T_UNUSED;
    float w[N];
    const tti_cpu_isa *isa;
    fill(w, N);
    for (size_t n = 0; n <= N; n += n < 40 ? 1 : 93) {
        double want = 0;
        for (size_t i = 0; i < n; i++) want += (double)w[i] * (double)w[i];
        double first = tti_backend_cpu.sum_squares(w, n);
        T_NEAR(first, want, 1e-13);
        for (int k = 0; (isa = tti_cpu_isa_at(k)) != NULL; k++)
            assert_true(isa->sum_squares(w, n) == first);
    }
}

T_CASE(accumulate_adds_elementwise) {
    T_UNUSED;
    float a[N], b[N];
    const tti_cpu_isa *isa;
    fill(b, N);
    for (int k = 0; (isa = tti_cpu_isa_at(k)) != NULL; k++) {
        for (size_t i = 0; i < N; i++) a[i] = (float)i;
        isa->accumulate(a, b, N - 1);
        for (size_t i = 0; i + 1 < N; i++) assert_true(a[i] == (float)i + b[i]);
        assert_true(a[N - 1] == (float)(N - 1));
    }
}

/* With every set: operands and sum to nearest even, NaN stays NaN; without src only dst. */
T_CASE(accumulate_rounds_to_bf16) {
    T_UNUSED;
    const uint32_t small_nan = 0x7F800001u;
    float a[N], b[N], first[N];
    const tti_cpu_isa *isa;
    fill(b, N);
    fill(first, N);
    memcpy(&first[1], &small_nan, sizeof first[1]);
    first[2] = INFINITY, first[3] = 3.4e38f, first[4] = 1 + 0x1p-8f;
    for (int k = 0; (isa = tti_cpu_isa_at(k)) != NULL; k++)
        for (int adds = 0; adds < 2; adds++) {
            memcpy(a, first, sizeof a);
            isa->accumulate_rounded(a, adds ? b : NULL, N - 1);
            for (size_t i = 0; i + 1 < N; i++) {
                float x = tti_bf16_to_f32(tti_f32_to_bf16(first[i])),
                      y = tti_bf16_to_f32(tti_f32_to_bf16(b[i]));
                float want = adds ? tti_bf16_to_f32(tti_f32_to_bf16(x + y)) : x;
                assert_true(isnan(want) ? isnan(a[i]) : a[i] == want);
            }
            assert_true(a[N - 1] == first[N - 1] && isnan(a[1]) && a[2] == INFINITY);
        }
}

T_CASE(the_backend_hashes_with_the_best_set) {
    T_UNUSED;
    float w[N];
    fill(w, N);
    assert_true(tti_backend_cpu.hash(w, N, 5) == plain_hash(w, N, 5));
    tti_backend_cpu.accumulate(w, w, 1);
    assert_true(tti_backend_cpu.hash(w, N, 5) == plain_hash(w, N, 5));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_set_follows_the_definition),
        cmocka_unit_test(place_and_length_change_it),
        cmocka_unit_test(any_flipped_bit_changes_it),
        cmocka_unit_test(any_exchange_of_unequal_elements_changes_it),
        cmocka_unit_test(sums_of_squares_are_exact_to_double_and_the_same_everywhere),
        cmocka_unit_test(accumulate_adds_elementwise),
        cmocka_unit_test(accumulate_rounds_to_bf16),
        cmocka_unit_test(the_backend_hashes_with_the_best_set),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
