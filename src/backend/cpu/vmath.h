/* vmath.h - exp, log, tanh, erf and f16 for float, branch-free, for loops that the compiler
 * vectorizes.
 *
 * Own polynomials (minimax fits in 40 digits), because the C library's bits differ by version and
 * processor.  The error is below 2 units in the last place over the whole range; NaN gives NaN, the
 * limits are exact (vmath_test).  Denormal results may become zero. */
#ifndef TTI_CPU_VMATH_H
#define TTI_CPU_VMATH_H

#include <stdint.h>
#include <string.h>

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
