/* dtype.h - reading and writing one element of any dtype as double, and the 16-bit formats. */
#ifndef TTI_BASE_DTYPE_H
#define TTI_BASE_DTYPE_H

#include <stdint.h>
#include <string.h>

#include "tutti/types.h"

/* Element i of an array of dtype, as double (exact for every dtype but large i64). */
double tti_load_elem(tutti_dtype dtype, const void *base, size_t i);

/* Stores a double, rounded to nearest even for floating dtypes. */
void tti_store_elem(tutti_dtype dtype, void *base, size_t i, double x);

/* The dtype of a name such as "f32"; false if there is none. */
bool tti_dtype_find(const char *text, size_t n_bytes, tutti_dtype *out);

static inline float tti_bf16_to_f32(uint16_t h) {
    uint32_t bits = (uint32_t)h << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint16_t tti_f32_to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)((bits >> 16) | 0x40u); /* quiet NaN */
    bits += 0x7FFFu + ((bits >> 16) & 1u);
    return (uint16_t)(bits >> 16);
}

/* The bits of a double, where it travels or is written as an integer; and back. */
static inline uint64_t tti_f64_to_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double tti_f64_of_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* True if no element of x [n_elems] is infinite or NaN. */
bool tti_all_finite(const float *x, size_t n_elems);

float tti_f16_to_f32(uint16_t h);
uint16_t tti_f32_to_f16(float x);

#endif /* TTI_BASE_DTYPE_H */
