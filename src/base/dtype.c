/* dtype.c - element types: sizes, names, conversion to and from double. */
#include "base/dtype.h"

#include <math.h>

static const struct {
    const char *text;
    size_t n_bytes;
} dtypes[] = {
#define DTYPE_ROW(name, text, bytes, is_float) {text, bytes},
    TUTTI_DTYPE_MAP(DTYPE_ROW)
#undef DTYPE_ROW
};

size_t tutti_dtype_bytes(tutti_dtype dtype) {
    return (unsigned)dtype < TUTTI_N_DTYPES ? dtypes[dtype].n_bytes : 0;
}

const char *tutti_dtype_text(tutti_dtype dtype) {
    return (unsigned)dtype < TUTTI_N_DTYPES ? dtypes[dtype].text : "?";
}

int64_t tutti_shape_n_elems(const tutti_shape *shape) {
    int64_t n = 1;
    for (int i = 0; i < shape->n_dims; i++) n *= shape->dim[i];
    return n;
}

bool tti_dtype_find(const char *text, size_t n_bytes, tutti_dtype *out) {
    for (int i = 0; i < TUTTI_N_DTYPES; i++)
        if (strlen(dtypes[i].text) == n_bytes && memcmp(dtypes[i].text, text, n_bytes) == 0) {
            *out = (tutti_dtype)i;
            return true;
        }
    return false;
}

float tti_f16_to_f32(uint16_t h) {
    int exponent = (h >> 10) & 31, mantissa = h & 1023;
    float sign = h & 0x8000 ? -1.0f : 1.0f;
    if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexpf((float)mantissa, -24);
    return sign * ldexpf((float)(mantissa | 1024), exponent - 25);
}

uint16_t tti_f32_to_f16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint16_t sign = (uint16_t)((bits >> 16) & 0x8000u);
    float a = fabsf(x);
    if (isnan(x)) return (uint16_t)(sign | 0x7E00u);
    if (a >= 65520.0f) return (uint16_t)(sign | 0x7C00u);
    if (a < 0x1p-14f) return (uint16_t)(sign | (uint16_t)lrintf(a * 0x1p24f));
    uint32_t magnitude = bits & 0x7FFFFFFFu;
    magnitude += 0xFFFu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | ((magnitude >> 13) - (112u << 10)));
}

double tti_load_elem(tutti_dtype dtype, const void *base, size_t i) {
    switch (dtype) {
        case TUTTI_F32:
            return ((const float *)base)[i];
        case TUTTI_F64:
            return ((const double *)base)[i];
        case TUTTI_F16:
            return tti_f16_to_f32(((const uint16_t *)base)[i]);
        case TUTTI_BF16:
            return tti_bf16_to_f32(((const uint16_t *)base)[i]);
        case TUTTI_I32:
            return ((const int32_t *)base)[i];
        case TUTTI_I64:
            return (double)((const int64_t *)base)[i];
        case TUTTI_U8:
            return ((const uint8_t *)base)[i];
        case TUTTI_N_DTYPES:
            break;
    }
    return 0;
}

void tti_store_elem(tutti_dtype dtype, void *base, size_t i, double x) {
    switch (dtype) {
        case TUTTI_F32:
            ((float *)base)[i] = (float)x;
            break;
        case TUTTI_F64:
            ((double *)base)[i] = x;
            break;
        case TUTTI_F16:
            ((uint16_t *)base)[i] = tti_f32_to_f16((float)x);
            break;
        case TUTTI_BF16:
            ((uint16_t *)base)[i] = tti_f32_to_bf16((float)x);
            break;
        case TUTTI_I32:
            ((int32_t *)base)[i] = (int32_t)x;
            break;
        case TUTTI_I64:
            ((int64_t *)base)[i] = (int64_t)x;
            break;
        case TUTTI_U8:
            ((uint8_t *)base)[i] = (uint8_t)x;
            break;
        case TUTTI_N_DTYPES:
            break;
    }
}

/* In blocks that are tested as a whole, so that compilers vectorize them. */
bool tti_all_finite(const float *x, size_t n_elems) {
    enum { BLOCK = 4096 };
    for (size_t first = 0; first < n_elems; first += BLOCK) {
        size_t n = n_elems - first < BLOCK ? n_elems - first : BLOCK;
        uint32_t n_bad = 0;
        for (size_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, x + first + i, sizeof bits);
            n_bad += (bits & 0x7F800000u) == 0x7F800000u;
        }
        if (n_bad) return false;
    }
    return true;
}
