/* vmath_test.c - exp, log, tanh, erf against the C library in double: below 2 units in the last
 * place over a dense walk through all magnitudes, and right at the limits; f16 bit for bit. */
#include "backend/cpu/vmath.h"

#include <float.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/dtype.h"
#include "base/error.h"
#include "t.h"

typedef float (*float_fn)(float x);
typedef double (*double_fn)(double x);

/* |got - want| in units of the last place of want; those below FLT_MIN may be zero. */
static double ulp_error(float got, double want) {
    if (isnan(want)) return isnan(got) ? 0 : 1e9;
    if (fabs(want) > FLT_MAX) return isinf(got) && (got > 0) == (want > 0) ? 0 : 1e9;
    if (fabs(want) < FLT_MIN && fabs(got) <= FLT_MIN) return 0;
    int exponent;
    frexp(want, &exponent);
    return fabs((double)got - want) / ldexp(1.0, exponent - 24);
}

/* Every step-th float in [lo, hi], 0 < lo, and with sign its negative. */
static void check(const char *name, float_fn fn, double_fn exact, float lo, float hi, bool both) {
    double worst = 0;
    float worst_at = 0;
    for (uint32_t u = tti_bits_of(lo); u <= tti_bits_of(hi); u += 997)
        for (int sign = 0; sign <= (both ? 1 : 0); sign++) {
            float x = sign ? -tti_of_bits(u) : tti_of_bits(u);
            double error = ulp_error(fn(x), exact((double)x));
            if (error > worst) worst = error, worst_at = x;
        }
    if (worst > 2.0) fail_msg("%s: %.3g ulp at %.9g", name, worst, (double)worst_at);
}

static double exact_sigmoid(double x) { return 1 / (1 + exp(-x)); }

T_CASE(errors_are_below_two_ulp) {
    T_UNUSED;
    check("exp", tti_vexp, exp, 1e-20f, 120.0f, true);
    check("log", tti_vlog, log, FLT_MIN, FLT_MAX, false);
    check("tanh", tti_vtanh, tanh, 1e-20f, 100.0f, true);
    check("erf", tti_verf, erf, 1e-20f, 100.0f, true);
    check("sigmoid", tti_vsigmoid, exact_sigmoid, 1e-20f, 80.0f, false);
}

T_CASE(sigmoid_is_close_where_it_vanishes) {
    T_UNUSED;
    for (float x = -85.0f; x < 0.0f; x += 0.37f)
        assert_true(ulp_error(tti_vsigmoid(x), exact_sigmoid((double)x)) <= 3.0);
}

T_CASE(limits_are_right) {
    T_UNUSED;
    float inf = __builtin_inff(), nan = __builtin_nanf("");
    assert_true(tti_vexp(-inf) == 0.0f && tti_vexp(inf) == inf && tti_vexp(0.0f) == 1.0f);
    assert_true(tti_vlog(0.0f) == -inf && tti_vlog(-0.0f) == -inf && tti_vlog(inf) == inf);
    assert_true(tti_vlog(1.0f) == 0.0f && isnan(tti_vlog(-1.0f)));
    assert_true(tti_vtanh(inf) == 1.0f && tti_vtanh(-inf) == -1.0f && tti_vtanh(0.0f) == 0.0f);
    assert_true(tti_verf(inf) == 1.0f && tti_verf(-inf) == -1.0f && tti_verf(0.0f) == 0.0f);
    assert_true(tti_vsigmoid(inf) == 1.0f && tti_vsigmoid(-inf) == 0.0f);
    const float_fn all[] = {tti_vexp, tti_vlog, tti_vtanh, tti_verf, tti_vsigmoid};
    for (size_t i = 0; i < TTI_COUNT(all); i++) assert_true(isnan(all[i](nan)));
}

T_CASE(log_takes_denormals) {
    T_UNUSED;
    T_NEAR(tti_vlog(0x1p-149f), log(0x1p-149), 1e-6);
    T_NEAR(tti_vlog(0x1.8p-130f), log(0x1.8p-130), 1e-6);
}

T_CASE(f16_is_converted_as_by_base) {
    T_UNUSED;
    for (uint32_t h = 0; h <= 0xFFFF; h++) {
        float want = tti_f16_to_f32((uint16_t)h), got = tti_vf16_to_f32((uint16_t)h);
        assert_true(isnan(want) ? isnan(got) : tti_bits_of(got) == tti_bits_of(want));
    }
    for (uint64_t u = 0; u <= UINT32_MAX; u += 4099) {
        float x = tti_of_bits((uint32_t)u);
        assert_int_equal(tti_vf32_to_f16(x), tti_f32_to_f16(x));
    }
    const float edges[] = {65519.0f,     65520.0f, 65536.0f,  0x1p-14f,
                           0x1.ffcp-15f, 0x1p-25f, 0x1.8p-25f};
    for (size_t i = 0; i < TTI_COUNT(edges); i++)
        assert_int_equal(tti_vf32_to_f16(edges[i]), tti_f32_to_f16(edges[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_below_two_ulp),
        cmocka_unit_test(sigmoid_is_close_where_it_vanishes),
        cmocka_unit_test(limits_are_right),
        cmocka_unit_test(log_takes_denormals),
        cmocka_unit_test(f16_is_converted_as_by_base),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
