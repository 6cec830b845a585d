/* draw_test.c - normal numbers: near those of a C library, and the bits that they always have. */
#include "ops/draw.h"

#include "t.h"

enum { N = 100003 };
static float drawn[N], part[N];
static const double turn = 6.28318530717958647692;

T_CASE(logarithms_are_those_of_the_library) {
    T_UNUSED;
    for (uint32_t i = 1; i <= 1u << 24; i += i < 4096 || i > (1u << 24) - 4096 ? 1 : 997) {
        double x = i * 0x1p-24, want = log(x), is = tti_draw_log(x);
        if (!(fabs(is - want) <= 4e-16 * fabs(want))) fail_msg("log %a is %a, not %a", x, is, want);
    }
}

T_CASE(turns_are_those_of_the_library) {
    T_UNUSED;
    for (uint32_t i = 0; i < 1u << 24; i += i % (1u << 21) < 64 ? 1 : 613) {
        double v = i * 0x1p-24, cosine, sine;
        tti_draw_turn(v, &cosine, &sine);
        /* the library's argument is rounded: by up to 4e-16 */
        T_NEAR(cosine, cos(turn * v), 2e-15);
        T_NEAR(sine, sin(turn * v), 2e-15);
        T_NEAR(cosine * cosine + sine * sine, 1, 1e-15);
    }
}

/* FNV-1a of the bits of all elements. */
static uint64_t hash_of(const float *x, size_t n) {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        h = (h ^ bits) * 0x100000001B3u;
    }
    return h;
}

T_CASE(bits_are_the_same_everywhere) {
    T_UNUSED;
    tti_draw(&(tti_draws){.key = 7, .n_elems = N, .scale = 0.02, .is_normal = true}, drawn);
    assert_true(hash_of(drawn, N) == 0x740fc9bcf7e8e8d3u);
    tti_draw(&(tti_draws){.key = 7, .n_elems = N, .offset = -0.5, .scale = 1}, drawn);
    assert_true(hash_of(drawn, N) == 0xd371e9d68cbe9887u);
}

T_CASE(parts_are_those_of_the_whole) {
    T_UNUSED;
    const size_t cuts[] = {0, 1, 2, 5, 9, 257, 258, 1000, 1259, 50000, N};
    tti_draws d = {.key = 3, .n_elems = N, .offset = 1, .scale = 2, .is_normal = true};
    tti_draw(&d, drawn);
    for (size_t i = 0; i + 1 < sizeof cuts / sizeof cuts[0]; i++) {
        d.first = d.at = cuts[i];
        d.n_elems = cuts[i + 1] - cuts[i];
        tti_draw(&d, part);
    }
    assert_memory_equal(drawn, part, sizeof drawn);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(logarithms_are_those_of_the_library),
                                       cmocka_unit_test(turns_are_those_of_the_library),
                                       cmocka_unit_test(bits_are_the_same_everywhere),
                                       cmocka_unit_test(parts_are_those_of_the_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
