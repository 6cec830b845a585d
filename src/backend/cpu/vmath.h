/* vmath.h - exp, log, tanh, erf, sin, cos and f16 for float, branch-free, for loops that the
 * compiler vectorizes; powers.
 *
 * Own polynomials (minimax fits in 40 digits), because the C library's bits differ by version and
 * processor.  The error is below 2 units in the last place over the whole range; NaN gives NaN, the
 * limits are exact (vmath_test).  Denormal results may become zero. */
#ifndef TTI_CPU_VMATH_H
#define TTI_CPU_VMATH_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "ops/draw.h"

static inline uint32_t tti_bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float tti_of_bits(uint32_t u) {
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* e^x.  x = n ln 2 + r; the magic number rounds to an integer in its low bits. */
static inline float tti_vexp(float x) {
    const float magic = 12582912.0f; /* 1.5 * 2^23 */
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    float t = x * 1.44269504f + magic;
    uint32_t n = tti_bits_of(t) - tti_bits_of(magic);
    float nf = t - magic;
    float r = (x - nf * 0.693359375f) - nf * -0x1.bd0106p-13f;
    float p = 0x1.6db3d2p-10f;
    p = p * r + 0x1.123b5p-7f;
    p = p * r + 0x1.55545ep-5f;
    p = p * r + 0x1.55549p-3f;
    p = p * r + 0.5f;
    float y = 1.0f + (r + r * r * p);
    uint32_t n1 = (uint32_t)((int32_t)n >> 1); /* two steps reach the ends of the range */
    return y * tti_of_bits((n1 + 127) << 23) * tti_of_bits((n - n1 + 127) << 23);
}

/* ln x.  x = m 2^e with m in [sqrt(1/2), sqrt(2)). */
static inline float tti_vlog(float x) {
    float small = x < 0x1p-126f ? 1.0f : 0.0f;
    float scaled = small > 0.0f ? x * 0x1p25f : x;
    uint32_t u = tti_bits_of(scaled) - 0x3F3504F3u; /* sqrt(1/2) */
    float e = (float)((int32_t)u >> 23) - small * 25.0f;
    float f = tti_of_bits((u & 0x007FFFFFu) + 0x3F3504F3u) - 1.0f;
    float z = f * f;
    float p = 0x1.1b07fep-4f;
    p = p * f + -0x1.e2568p-4f;
    p = p * f + 0x1.e6190ep-4f;
    p = p * f + -0x1.fb5a74p-4f;
    p = p * f + 0x1.2338bp-3f;
    p = p * f + -0x1.55625ap-3f;
    p = p * f + 0x1.99a4e8p-3f;
    p = p * f + -0x1.fffffp-3f;
    p = p * f + 0x1.555546p-2f;
    float y = f * z * p + e * -0x1.bd0106p-13f;
    y = f + (y - 0.5f * z) + e * 0.693359375f;
    y = x == 0.0f ? -__builtin_inff() : y;
    y = x == __builtin_inff() ? x : y;
    return x >= 0.0f ? y : __builtin_nanf("");
}

static inline float tti_vabs(float x) { return tti_of_bits(tti_bits_of(x) & 0x7FFFFFFFu); }

/* y >= 0 with the sign of x. */
static inline float tti_vsign(float y, float x) {
    return tti_of_bits(tti_bits_of(y) | (tti_bits_of(x) & 0x80000000u));
}

static inline float tti_vtanh(float x) {
    float a = tti_vabs(x), z = x * x;
    float p = -0x1.75f7c4p-8f;
    p = p * z + 0x1.524f5ap-6f;
    p = p * z + -0x1.b849cep-5f;
    p = p * z + 0x1.1107dcp-3f;
    p = p * z + -0x1.555538p-2f;
    float near = x + x * (z * p);
    float far = tti_vsign(1.0f - 2.0f / (tti_vexp(2.0f * a) + 1.0f), x);
    return a < 0.632f ? near : far;
}

/* erf.  Near zero x P(x^2), else 1 - exp(-t Q(t)), which is 1 from t = 4 on. */
static inline float tti_verf(float x) {
    float a = tti_vabs(x), z = x * x;
    float p = 0x1.5e0612p-14f;
    p = p * z + -0x1.aaa2cep-11f;
    p = p * z + 0x1.54d42ap-8f;
    p = p * z + -0x1.b80ff2p-6f;
    p = p * z + 0x1.ce2e1cp-4f;
    p = p * z + -0x1.812744p-2f;
    p = p * z + 0.128379167f;
    float t = a > 4.0f ? 4.0f : a;
    float q = -0x1.2a5fbep-19f;
    q = q * t + 0x1.2a3b1ap-15f;
    q = q * t + -0x1.d94a96p-13f;
    q = q * t + 0x1.1c0c2ep-11f;
    q = q * t + 0x1.c945b4p-10f;
    q = q * t + -0x1.5b1e76p-6f;
    q = q * t + 0x1.aa7b7p-4f;
    q = q * t + 0x1.45b0d8p-1f;
    q = q * t + 0x1.20e2dep+0f;
    float far = tti_vsign(1.0f - tti_vexp(-t * q), x);
    return a < 0.93f ? x + x * p : far;
}

/* sin x with quarter 0, cos x with 1: the rest of x within an eighth of a turn in double, exact to
 * f32 for |x| < 2^30, then a polynomial by the quarter.  NaN for infinities. */
static inline float tti_vturn(float x, int32_t quarter) {
    const double q = 0.63661977236758134308, hi = 1.57079632673412561417,
                 lo = 6.07710050650619224932e-11;
    double k = ((double)x * q + 0x1.8p52) - 0x1.8p52; /* to the nearest integer */
    double r = ((double)x - k * hi) - k * lo, z = r * r;
    double s = 2.7557319223985893e-6, c = -2.7557319223985888e-7;
    s = s * z - 1.9841269841269841e-4, c = c * z + 2.4801587301587302e-5;
    s = s * z + 8.3333333333333332e-3, c = c * z - 1.3888888888888889e-3;
    s = s * z - 1.6666666666666666e-1, c = c * z + 4.1666666666666664e-2;
    s = r + r * (z * s), c = 1 + z * (c * z - 0.5);
    double bounded = __builtin_fabs(k) < 0x1p30 ? k : 0;
    int32_t at = (int32_t)bounded + quarter;
    double y = at & 1 ? c : s;
    y = __builtin_fabs(k) < 0x1p30 ? y : x - x + 0.0f * x;
    return (float)(at & 2 ? -y : y);
}

/* ln(1 + x), e^x - 1: the rounding of 1 + x and of e^x is taken back (Kahan). */
static inline float tti_vlog1p(float x) {
    float u = 1.0f + x, log = tti_vlog(u);
    float scaled = log * (x / (u - 1.0f));
    return u == 1.0f ? x : u > 0.0f && u <= 3.4e38f ? scaled : log;
}
static inline float tti_vexpm1(float x) {
    float u = tti_vexp(x), small = u - 1.0f;
    float scaled = small * (x / tti_vlog(u));
    return u == 1.0f ? x : small == -1.0f || !(u <= 3.4e38f) ? small : scaled;
}

/* x^y in double: 2^(y log2 x), by series. */
static inline double tti_vexp2_wide(double t) {
    double k = (t + 0x1.8p52) - 0x1.8p52, r = (t - k) * 0.69314718055994530942;
    double y = 1.0 / 3628800;
    y = y * r + 1.0 / 362880, y = y * r + 1.0 / 40320, y = y * r + 1.0 / 5040;
    y = y * r + 1.0 / 720, y = y * r + 1.0 / 120, y = y * r + 1.0 / 24;
    y = y * r + 1.0 / 6, y = y * r + 0.5, y = y * r + 1, y = y * r + 1;
    uint64_t bits = (uint64_t)((int64_t)k + 1023) << 52;
    double scale;
    __builtin_memcpy(&scale, &bits, sizeof scale);
    return y * scale;
}
static inline float tti_vpow(float x, float y) {
    float size = tti_vabs(x), half = 0.5f * y, odd = half - __builtin_floorf(half);
    bool is_whole = __builtin_floorf(y) == y, is_odd = is_whole && odd == 0.5f;
    double power;
    if (y == 0.0f || x == 1.0f) return 1.0f;
    if (x != x || y != y) return x + y;
    if (size == 0.0f || !(size <= 3.4028235e38f)) {
        bool grows = (size == 0.0f) == (y < 0.0f);
        power = grows ? __builtin_inf() : 0.0;
    } else if (!(tti_vabs(y) <= 3.4028235e38f)) {
        power = size == 1.0f ? 1.0 : (size > 1.0f) == (y > 0.0f) ? __builtin_inf() : 0.0;
    } else {
        double t = (double)y * (tti_draw_log((double)size) * 1.44269504088896340736);
        power = tti_vexp2_wide(t > 1000 ? 1000 : t < -1000 ? -1000 : t);
    }
    if (tti_bits_of(x) >> 31 && is_odd) power = -power;
    return x < 0.0f && size <= 3.4028235e38f && !is_whole ? __builtin_nanf("") : (float)power;
}

static inline float tti_vsigmoid(float x) { return 1.0f / (1.0f + tti_vexp(-x)); }

/* ---- f16, rounded as in base/dtype.h, without branches and without denormal floats ---- */

static inline float tti_vf16_to_f32(uint16_t h) {
    uint32_t rest = h & 0x7FFFu, exponent = rest >> 10;
    uint32_t usual = (rest << 13) + (exponent == 31 ? 224u << 23 : 112u << 23);
    uint32_t small = tti_bits_of((float)(int32_t)rest * 0x1p-24f);
    return tti_of_bits((exponent == 0 ? small : usual) | (uint32_t)(h & 0x8000u) << 16);
}

static inline uint16_t tti_vf32_to_f16(float x) {
    uint32_t a = tti_bits_of(x) & 0x7FFFFFFFu, sign = tti_bits_of(x) >> 16 & 0x8000u;
    uint32_t usual = (a + 0xFFFu + (a >> 13 & 1u) - (112u << 23)) >> 13;
    uint32_t small = tti_bits_of(tti_of_bits(a) + 0.5f) - 0x3F000000u; /* in steps of 2^-24 */
    uint32_t h = a < 0x38800000u ? small : usual;
    h = a >= 0x477FF000u ? 0x7C00u : h;
    h = a > 0x7F800000u ? 0x7E00u : h;
    return (uint16_t)(h | sign);
}

#endif /* TTI_CPU_VMATH_H */
