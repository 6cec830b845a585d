/* local_sum.c - vectorised sums, minima and maxima of arrays, and the f16/bf16 conversions.
 *
 * Every loop is elementwise, so wider vectors change no bits.  Each kernel is compiled for the
 * baseline and for AVX2; the CPU decides at run time which one is used.  Terms are never copied:
 * the stack of tti_sum_block holds pointers, and only sums are stored in blocks. */
#include "comm/local_sum.h"

#include <string.h>

#include "base/error.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#define NO_ALIAS _Pragma("GCC ivdep") /* dst may be a or b, but only with the same index */
#else
#define NO_ALIAS
#endif

#if defined(__x86_64__)
#define WITH_AVX2 1
#define AVX2 __attribute__((target("avx2")))
#else
#define WITH_AVX2 0
#define AVX2
#endif

#define INLINE static inline __attribute__((always_inline))

INLINE float float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

INLINE uint32_t bits_of_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Rounds to bf16, nearest even; NaN stays NaN, and infinities stay infinite. */
INLINE uint16_t f32_to_bf16(float x) {
    uint32_t bits = bits_of_float(x);
    uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    uint32_t nan = (bits >> 16) | 0x40u;
    return (uint16_t)((bits & 0x7FFFFFFFu) > 0x7F800000u ? nan : rounded);
}

INLINE float bf16_to_f32(uint16_t h) { return float_of_bits((uint32_t)h << 16); }

typedef void (*combine_fn)(void *dst, const void *a, const void *b, size_t n_elems);
typedef void (*convert_fn)(const void *src, void *dst, size_t n_elems);

#define ADD_FLOAT(T, x, y) ((x) + (y))
#define ADD_INT(T, x, y) ((T)((x) + (y))) /* T is unsigned: wraps */
#define MIN_OF(T, x, y) ((x) < (y) || (x) != (x) ? (x) : (y))
#define MAX_OF(T, x, y) ((x) > (y) || (x) != (x) ? (x) : (y))

/* Defines one kernel: name_base and, with AVX2, name_wide. */
#define COMBINE(name, T, EXPR)                                                              \
    INLINE void name##_body(T *dst, const T *a, const T *b, size_t n_elems) {               \
        NO_ALIAS                                                                            \
        for (size_t i = 0; i < n_elems; i++) dst[i] = EXPR(T, a[i], b[i]);                  \
    }                                                                                       \
    static void name##_base(void *dst, const void *a, const void *b, size_t n_elems) {      \
        name##_body(dst, a, b, n_elems);                                                    \
    }                                                                                       \
    AVX2 static void name##_wide(void *dst, const void *a, const void *b, size_t n_elems) { \
        name##_body(dst, a, b, n_elems);                                                    \
    }

COMBINE(sum_f32, float, ADD_FLOAT)
COMBINE(min_f32, float, MIN_OF)
COMBINE(max_f32, float, MAX_OF)
COMBINE(sum_f64, double, ADD_FLOAT)
COMBINE(min_f64, double, MIN_OF)
COMBINE(max_f64, double, MAX_OF)
COMBINE(sum_i32, uint32_t, ADD_INT)
COMBINE(min_i32, int32_t, MIN_OF)
COMBINE(max_i32, int32_t, MAX_OF)
COMBINE(sum_i64, uint64_t, ADD_INT)
COMBINE(min_i64, int64_t, MIN_OF)
COMBINE(max_i64, int64_t, MAX_OF)
COMBINE(sum_u8, uint8_t, ADD_INT)
COMBINE(min_u8, uint8_t, MIN_OF)
COMBINE(max_u8, uint8_t, MAX_OF)

/* Rounded sums of two bf16 values: stored in 16 bits, and stored as f32. */
#define ADD_BF16(T, x, y) f32_to_bf16(bf16_to_f32(x) + bf16_to_f32(y))
#define ADD_ROUNDED(T, x, y) bf16_to_f32(f32_to_bf16((x) + (y)))

COMBINE(sum_bf16, uint16_t, ADD_BF16)
COMBINE(sum_rounded, float, ADD_ROUNDED)

#define ROW(type)                                                                       \
    {                                                                                   \
        {sum_##type##_base, sum_##type##_wide}, {min_##type##_base, min_##type##_wide}, \
            {max_##type##_base, max_##type##_wide},                                     \
    }
static const combine_fn combines[TUTTI_N_DTYPES][TUTTI_N_REDUCE_OPS][2] = {
    [TUTTI_F32] = ROW(f32), [TUTTI_F64] = ROW(f64), [TUTTI_I32] = ROW(i32),
    [TUTTI_I64] = ROW(i64), [TUTTI_U8] = ROW(u8),   [TUTTI_BF16] = {{sum_bf16_base, sum_bf16_wide}},
};

/* 1 if the CPU has AVX2. */
static int variant(void) {
#if WITH_AVX2
    return __builtin_cpu_supports("avx2") != 0;
#else
    return 0;
#endif
}

/* Branch-free.  All intermediate values are normal numbers, so that flush-to-zero modes do not
 * change the result. */
INLINE float f16_to_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, magnitude = (uint32_t)(h & 0x7FFFu) << 13;
    uint32_t normal = magnitude + (112u << 23);
    uint32_t infinite = magnitude | 0x7F800000u | (magnitude > 0x0F800000u ? 0x400000u : 0);
    float tiny = float_of_bits(magnitude + (113u << 23)) - 0x1p-14f;
    uint32_t bits = magnitude >= 0x0F800000u ? infinite : normal;
    bits = magnitude < (1u << 23) ? bits_of_float(tiny) : bits;
    return float_of_bits(bits | sign);
}

INLINE uint16_t f32_to_f16(float x) {
    uint32_t bits = bits_of_float(x), sign = (bits >> 16) & 0x8000u, a = bits & 0x7FFFFFFFu;
    uint32_t normal = (a + 0xFFFu + ((a >> 13) & 1u) - (112u << 23)) >> 13;
    uint32_t tiny = bits_of_float(float_of_bits(a) + 0.5f) - 0x3F000000u; /* ulp of 0.5 is 2^-24 */
    uint32_t h = a < 0x38800000u ? tiny : normal;                         /* 2^-14 */
    h = a >= 0x477FF000u ? 0x7C00u : h;                                   /* 65520 */
    h = a > 0x7F800000u ? 0x7E00u : h;
    return (uint16_t)(h | sign);
}

#define CONVERT(name, FROM, TO)                                                           \
    INLINE void name##_body(const FROM *restrict src, TO *restrict dst, size_t n_elems) { \
        for (size_t i = 0; i < n_elems; i++) dst[i] = name(src[i]);                       \
    }                                                                                     \
    static void name##_base(const void *src, void *dst, size_t n_elems) {                 \
        name##_body(src, dst, n_elems);                                                   \
    }                                                                                     \
    AVX2 static void name##_wide(const void *src, void *dst, size_t n_elems) {            \
        name##_body(src, dst, n_elems);                                                   \
    }

CONVERT(f16_to_f32, uint16_t, float)
CONVERT(f32_to_f16, float, uint16_t)
CONVERT(bf16_to_f32, uint16_t, float)
CONVERT(f32_to_bf16, float, uint16_t)

tutti_dtype tti_wide_dtype(tutti_dtype dtype) {
    return dtype == TUTTI_F16 || dtype == TUTTI_BF16 ? TUTTI_F32 : dtype;
}

void tti_combine(tutti_dtype wide, tutti_reduce_op op, void *dst, const void *a, const void *b,
                 size_t n_elems) {
    combines[wide][op][variant()](dst, a, b, n_elems);
}

void tti_widen(tutti_dtype dtype, const void *src, void *dst, size_t n_elems) {
    static const convert_fn f16[2] = {f16_to_f32_base, f16_to_f32_wide};
    static const convert_fn bf16[2] = {bf16_to_f32_base, bf16_to_f32_wide};
    if (dtype == TUTTI_F16)
        f16[variant()](src, dst, n_elems);
    else if (dtype == TUTTI_BF16)
        bf16[variant()](src, dst, n_elems);
    else
        memmove(dst, src, n_elems * tutti_dtype_bytes(dtype));
}

void tti_narrow(tutti_dtype dtype, const void *src, void *dst, size_t n_elems) {
    static const convert_fn f16[2] = {f32_to_f16_base, f32_to_f16_wide};
    static const convert_fn bf16[2] = {f32_to_bf16_base, f32_to_bf16_wide};
    if (dtype == TUTTI_F16)
        f16[variant()](src, dst, n_elems);
    else if (dtype == TUTTI_BF16)
        bf16[variant()](src, dst, n_elems);
    else
        memmove(dst, src, n_elems * tutti_dtype_bytes(dtype));
}

/* Converts each block in a separate buffer, because writing it may overwrite values that were not
 * read yet. */
void tti_narrow_in_place(tutti_dtype dtype, float *x, size_t n_elems) {
    uint16_t block[TTI_SUM_BLOCK];
    for (size_t i = 0; i < n_elems; i += TTI_SUM_BLOCK) {
        size_t n = TTI_MIN(n_elems - i, (size_t)TTI_SUM_BLOCK);
        tti_narrow(dtype, x + i, block, n);
        memcpy((uint16_t *)(void *)x + i, block, n * sizeof *block);
    }
}

void tti_widen_in_place(tutti_dtype dtype, float *x, size_t first, size_t last) {
    uint16_t block[TTI_SUM_BLOCK];
    for (size_t end = last, n; end > first; end -= n) {
        n = TTI_MIN(end - first, (size_t)TTI_SUM_BLOCK);
        memcpy(block, (uint16_t *)(void *)x + (end - n), n * sizeof *block);
        tti_widen(dtype, block, x + (end - n), n);
    }
}

enum { STACK_BLOCK_BYTES = TTI_SUM_BLOCK * 8 };

size_t tti_sum_scratch_bytes(void) { return (size_t)(TTI_SUM_DEPTH + 1) * STACK_BLOCK_BYTES; }

tti_sum_dtypes tti_sum_dtypes_of(tutti_dtype dtype) {
    return (tti_sum_dtypes){dtype, tti_wide_dtype(dtype)};
}

void tti_sum_result(tti_sum_dtypes dtypes, const void *sum, void *dst, size_t n_elems) {
    if (dtypes.sum == dtypes.term)
        memmove(dst, sum, n_elems * tutti_dtype_bytes(dtypes.term));
    else
        tti_narrow(dtypes.term, sum, dst, n_elems);
}

tti_adder tti_adder_begin(tti_sum_dtypes dtypes, tutti_reduce_op op, size_t n_elems,
                          void *scratch) {
    static const combine_fn rounded[2] = {sum_rounded_base, sum_rounded_wide};
    bool rounds = dtypes.term == TUTTI_F32 && dtypes.sum == TUTTI_BF16;
    tti_adder adder = {.dtypes = dtypes, .n_elems = n_elems, .blocks = scratch};
    adder.combine = rounds ? rounded[variant()] : combines[dtypes.sum][op][variant()];
    TTI_ASSERT(adder.combine != NULL);
    return adder;
}

static bool widens(const tti_adder *a) {
    return a->dtypes.term != TUTTI_F32 && a->dtypes.term != a->dtypes.sum;
}

void tti_adder_add(tti_adder *a, const void *term, int n_adds) {
    a->stack[a->n] = term;
    if (widens(a)) {
        void *wide = a->blocks + a->n * STACK_BLOCK_BYTES;
        tti_widen(a->dtypes.term, term, wide, a->n_elems);
        a->stack[a->n] = wide;
    }
    a->n++;
    for (; n_adds > 0; n_adds--, a->n--) {
        void *sum = a->blocks + (a->n - 2) * STACK_BLOCK_BYTES;
        a->combine(sum, a->stack[a->n - 2], a->stack[a->n - 1], a->n_elems);
        a->stack[a->n - 2] = sum;
    }
}

const void *tti_adder_end(tti_adder *a) {
    if (!widens(a)) return a->stack[0];
    void *result = a->blocks + TTI_SUM_DEPTH * STACK_BLOCK_BYTES;
    tti_narrow(a->dtypes.term, a->stack[0], result, a->n_elems);
    return result;
}

const void *tti_sum_block(const tti_sum_order *order, const void *const *srcs, size_t offset_bytes,
                          tti_sum_dtypes dtypes, tutti_reduce_op op, size_t n_elems,
                          void *scratch) {
    if (order->n_terms == 1) return (const char *)srcs[0] + offset_bytes;
    tti_adder adder = tti_adder_begin(dtypes, op, n_elems, scratch);
    for (int t = 0; t < order->n_terms; t++)
        tti_adder_add(&adder, (const char *)srcs[t] + offset_bytes, order->terms[t].n_adds);
    return tti_adder_end(&adder);
}
