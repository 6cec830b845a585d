/* draw.h - the random numbers of initial parameters, with the same bits on every machine: on the
 * host and on a device, with any library.
 *
 * Uses only double operations of IEEE 754, none contracted to a fused multiply-add (a .cu that
 * includes this must say so, cmake/cuda.cmake), and no function of a C library, whose last bits
 * differ between libraries.  Series end where their terms are below the last bit. */
#ifndef TTI_OPS_DRAW_H
#define TTI_OPS_DRAW_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/philox.h"

/* Elements that follow each other in a parameter: offset + scale * a number in [0, 1), or a normal
 * one around offset with deviation scale.  Element i has lane i % 4 of draw i / 4. */
typedef struct tti_draws {
    uint64_t key;          /* of seed and parameter */
    size_t first, n_elems; /* the first one, in the whole parameter */
    size_t at;             /* its place in the array that they go to */
    double offset, scale;  /* scale 0: all are offset */
    bool is_normal;
} tti_draws;

/* The natural logarithm of a normal number above 0.  With x = 2^e m, m in [sqrt(1/2), sqrt(2)), and
 * s = (m - 1) / (m + 1): log m = 2 atanh s = 2 (s + s^3 / 3 + s^5 / 5 ...), |s| < 0.172. */
TTI_BOTH_SIDES static inline double tti_draw_log(double x) {
    uint64_t bits, mantissa, exponent;
    memcpy(&bits, &x, sizeof bits);
    mantissa = (bits & 0xFFFFFFFFFFFFFu) | 0x3FF0000000000000u; /* as a double in [1, 2) */
    exponent = bits >> 52 | 0x4330000000000000u;                /* as a double 2^52 + e + 1023 */
    double m, e;
    memcpy(&m, &mantissa, sizeof m);
    memcpy(&e, &exponent, sizeof e);
    bool is_high = m > 1.4142135623730951;
    m = is_high ? 0.5 * m : m;
    e = e - (is_high ? 0x1p52 + 1022 : 0x1p52 + 1023);
    double s = (m - 1) / (m + 1), z = s * s, sum = 1.0 / 23;
    sum = sum * z + 1.0 / 21, sum = sum * z + 1.0 / 19, sum = sum * z + 1.0 / 17;
    sum = sum * z + 1.0 / 15, sum = sum * z + 1.0 / 13, sum = sum * z + 1.0 / 11;
    sum = sum * z + 1.0 / 9, sum = sum * z + 1.0 / 7, sum = sum * z + 1.0 / 5;
    sum = sum * z + 1.0 / 3;
    return e * 0.69314718055994531 + (2 * s + 2 * s * (z * sum));
}

/* cos and sin of 2 pi v for v in [0, 1): of the rest within an eighth of a turn by their series,
 * then by the quarter. */
TTI_BOTH_SIDES static inline void tti_draw_turn(double v, double *cosine, double *sine) {
    int quarter = (int)(4 * v + 0.5);
    double t = 6.2831853071795865 * (v - 0.25 * quarter), z = t * t;
    double s = 1.0 / 355687428096000, c = 1.0 / 20922789888000; /* 17!, 16! */
    s = s * z - 1.0 / 1307674368000, c = c * z - 1.0 / 87178291200;
    s = s * z + 1.0 / 6227020800, c = c * z + 1.0 / 479001600;
    s = s * z - 1.0 / 39916800, c = c * z - 1.0 / 3628800;
    s = s * z + 1.0 / 362880, c = c * z + 1.0 / 40320;
    s = s * z - 1.0 / 5040, c = c * z - 1.0 / 720;
    s = s * z + 1.0 / 120, c = c * z + 1.0 / 24;
    s = s * z - 1.0 / 6, c = c * z - 0.5;
    s = t + t * (z * s), c = 1 + z * c;
    double across = quarter & 1 ? s : c, up = quarter & 1 ? c : s;
    *cosine = (quarter + 1) & 2 ? -across : across;
    *sine = quarter & 2 ? -up : up;
}

/* Two normal numbers of two random words: Box and Muller (1958).  1 - u lies in (0, 1]. */
TTI_BOTH_SIDES static inline void tti_draw_normals(uint32_t u, uint32_t v, double *x, double *y) {
    double cosine, sine;
    double radius = sqrt(-2 * tti_draw_log(1 - (double)tti_philox_unit(u)));
    tti_draw_turn(tti_philox_unit(v), &cosine, &sine);
    *x = radius * cosine;
    *y = radius * sine;
}

/* params[d->at + i] for i from 0 up to d->n_elems - 1, by the calling thread. */
void tti_draw(const tti_draws *d, float *params);

#endif /* TTI_OPS_DRAW_H */
