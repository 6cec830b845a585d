/* image_passes_avx512.c - the passes of a resize for processors that multiply and add groups of
 * four bytes and look up bytes anywhere in a vector (AVX-512 with VBMI and VNNI).
 *
 * A weight of 22 bits is three signed digits of 8 bits, low + 2^8 mid + 2^16 high, so pixels stay
 * bytes and one instruction computes 64 products.  Up to five outputs of three channels fit in one
 * vector; which bytes they need is the same in every row, so the positions are computed once.  All
 * arithmetic is exact: the bytes are those of the plain pass
 * (tests/data/image/image_resize_test.c). */
#include "data/image/image_passes.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

#include "base/error.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")))

enum {
    TAPS = 4,            /* inputs of one multiply-and-add            */
    WIDTH = 64,          /* bytes of a vector                         */
    MOST_OUTPUTS = 5,    /* of a block: 15 of 16 sums                 */
    N_DIGITS = 3,        /* of a weight                               */
    MOST_ROW_GROUPS = 16 /* beyond, rows are added by the plain pass  */
};

/* Outputs side by side whose first inputs are at most this many pixels apart: then all TAPS inputs
 * of each are in one vector. */
enum { MOST_APART = WIDTH / 3 - TAPS };

typedef struct digits {
    int8_t at[N_DIGITS][WIDTH]; /* 4 inputs of each sum; low first */
} digits;

/* Outputs that are computed together.  Sum 3*j + c is channel c of the block's j-th output. */
typedef struct block {
    int64_t from, to; /* bytes in the rows: first input, first output */
    int64_t n_groups; /* of TAPS inputs; so many digits follow        */
    uint64_t mask;    /* the bytes that are written                   */
    uint64_t unused[4];
    uint8_t place[WIDTH]; /* of each byte, from the group's first input */
    digits group[];
} block;

static int64_t groups_of(int64_t n) { return (n + TAPS - 1) / TAPS; }

static size_t block_bytes(int64_t n_most) {
    return sizeof(block) + (size_t)groups_of(n_most) * sizeof(digits);
}

static size_t split_bytes(int64_t n_outputs, int64_t n_most) {
    return (size_t)n_outputs * block_bytes(n_most);
}

/* Removes and returns the lowest digit of *weight. */
static int8_t take_digit(int32_t *weight) {
    int32_t digit = ((*weight + 128) & 255) - 128;
    *weight = (*weight - digit) / 256;
    return (int8_t)digit;
}

static void fill_sums(const tti_weights *w, int64_t i, int64_t first, int64_t sum, block *b) {
    for (int c = 0; c < 3; c++)
        for (int k = 0; k < TAPS; k++)
            b->place[(sum + c) * TAPS + k] = (uint8_t)((w->start[i] - first + k) * 3 + c);
    for (int32_t k = 0; k < w->n[i]; k++) {
        int32_t weight = w->weight[i * w->n_most + k];
        for (int d = 0; d < N_DIGITS; d++) {
            int8_t digit = take_digit(&weight);
            int8_t *at = &b->group[k / TAPS].at[d][sum * TAPS + k % TAPS];
            for (int c = 0; c < 3; c++) at[c * TAPS] = digit;
        }
    }
}

/* The block that begins with output i.  How many outputs it has. */
static int64_t fill_block(const tti_weights *w, int64_t i, block *b) {
    int64_t n = 1, first = w->start[i], most = w->n[i];
    for (; n < MOST_OUTPUTS && i + n < w->n_outputs; n++) {
        if (w->start[i + n] - first > MOST_APART) break;
        most = TTI_MAX(most, w->n[i + n]);
    }
    *b = (block){.from = first * 3,
                 .to = (w->flip ? w->n_outputs - i - n : i) * 3,
                 .n_groups = groups_of(most),
                 .mask = (1U << (3 * n)) - 1};
    memset(b->group, 0, (size_t)b->n_groups * sizeof(digits));
    for (int64_t j = 0; j < n; j++) fill_sums(w, i + j, first, 3 * (w->flip ? n - 1 - j : j), b);
    return n;
}

static block *block_at(void *split, size_t stride, int64_t i) {
    return (block *)(void *)((uint8_t *)split + (size_t)i * stride);
}

static void prepare(tti_weights *w) {
    size_t stride = block_bytes(w->n_most);
    w->n_blocks = 0;
    for (int64_t i = 0; i < w->n_outputs; w->n_blocks++)
        i += fill_block(w, i, block_at(w->split, stride, w->n_blocks));
}

/* Sixteen sums, one digit of the weights each. */
typedef struct sums {
    __m512i low, mid, high;
} sums;

AVX512 static inline sums begin(void) {
    return (sums){_mm512_set1_epi32(TTI_WEIGHT_HALF), _mm512_setzero_si512(),
                  _mm512_setzero_si512()};
}

/* (high * 2^16 + mid * 2^8 + low) >> 22; low began with the half. */
AVX512 static inline __m512i finish(const sums *s) {
    __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(s->high, 16), _mm512_slli_epi32(s->mid, 8));
    return _mm512_srli_epi32(_mm512_add_epi32(sum, s->low), TTI_WEIGHT_BITS);
}

AVX512 static void columns(const uint8_t *in, const tti_weights *w, uint8_t *out) {
    size_t stride = block_bytes(w->n_most);
    for (int64_t i = 0; i < w->n_blocks; i++) {
        const block *b = block_at(w->split, stride, i);
        const uint8_t *from = in + b->from;
        __m512i place = _mm512_load_si512(b->place);
        sums s = begin();
        for (int64_t g = 0; g < b->n_groups; g++, from += 3 * TAPS) {
            const digits *d = &b->group[g];
            __m512i bytes = _mm512_permutexvar_epi8(place, _mm512_loadu_si512(from));
            s.low = _mm512_dpbusd_epi32(s.low, bytes, _mm512_load_si512(d->at[0]));
            s.mid = _mm512_dpbusd_epi32(s.mid, bytes, _mm512_load_si512(d->at[1]));
            s.high = _mm512_dpbusd_epi32(s.high, bytes, _mm512_load_si512(d->at[2]));
        }
        __m128i result = _mm512_cvtusepi32_epi8(finish(&s));
        _mm_mask_storeu_epi8(out + b->to, (__mmask16)b->mask, result);
    }
}

/* The weights of one output row, four digits in each number. */
typedef struct row_digits {
    int64_t n_rows, n_groups;
    int32_t group[MOST_ROW_GROUPS][N_DIGITS];
} row_digits;

static void split_row(const int32_t *weight, int64_t n, row_digits *out) {
    int8_t digit[MOST_ROW_GROUPS][N_DIGITS][TAPS] = {0};
    for (int64_t k = 0; k < n; k++) {
        int32_t w = weight[k];
        for (int d = 0; d < N_DIGITS; d++) digit[k / TAPS][d][k % TAPS] = take_digit(&w);
    }
    out->n_rows = n;
    out->n_groups = groups_of(n);
    memcpy(out->group, digit, sizeof digit);
}

AVX512 static inline void add(sums *s, __m512i bytes, const int32_t digit[N_DIGITS]) {
    s->low = _mm512_dpbusd_epi32(s->low, bytes, _mm512_set1_epi32(digit[0]));
    s->mid = _mm512_dpbusd_epi32(s->mid, bytes, _mm512_set1_epi32(digit[1]));
    s->high = _mm512_dpbusd_epi32(s->high, bytes, _mm512_set1_epi32(digit[2]));
}

/* Row k; one that does not exist is the last one: its weight is 0. */
AVX512 static inline __m512i row_at(const uint8_t *in, int64_t row_bytes, const row_digits *r,
                                    int64_t k, __mmask64 mask) {
    return _mm512_maskz_loadu_epi8(mask, in + TTI_MIN(k, r->n_rows - 1) * row_bytes);
}

/* 64 bytes.  Unpacking mixes four rows in such an order that packing takes it back. */
AVX512 static inline void rows_64(const uint8_t *in, int64_t row_bytes, const row_digits *r,
                                  __mmask64 mask, uint8_t *out) {
    sums a = begin(), b = a, c = a, d = a;
    for (int64_t g = 0; g < r->n_groups; g++) {
        __m512i row0 = row_at(in, row_bytes, r, g * TAPS, mask);
        __m512i row1 = row_at(in, row_bytes, r, g * TAPS + 1, mask);
        __m512i row2 = row_at(in, row_bytes, r, g * TAPS + 2, mask);
        __m512i row3 = row_at(in, row_bytes, r, g * TAPS + 3, mask);
        __m512i lo01 = _mm512_unpacklo_epi8(row0, row1), hi01 = _mm512_unpackhi_epi8(row0, row1);
        __m512i lo23 = _mm512_unpacklo_epi8(row2, row3), hi23 = _mm512_unpackhi_epi8(row2, row3);
        add(&a, _mm512_unpacklo_epi16(lo01, lo23), r->group[g]);
        add(&b, _mm512_unpackhi_epi16(lo01, lo23), r->group[g]);
        add(&c, _mm512_unpacklo_epi16(hi01, hi23), r->group[g]);
        add(&d, _mm512_unpackhi_epi16(hi01, hi23), r->group[g]);
    }
    __m512i ab = _mm512_packus_epi32(finish(&a), finish(&b));
    __m512i cd = _mm512_packus_epi32(finish(&c), finish(&d));
    _mm512_mask_storeu_epi8(out, mask, _mm512_packus_epi16(ab, cd));
}

AVX512 static void rows(const uint8_t *in, int64_t row_bytes, const tti_weights *down, int64_t i,
                        uint8_t *out) {
    if (down->n[i] > MOST_ROW_GROUPS * TAPS) {
        tti_passes_plain.rows(in, row_bytes, down, i, out);
        return;
    }
    row_digits r;
    split_row(down->weight + i * down->n_most, down->n[i], &r);
    for (int64_t x = 0; x < row_bytes; x += WIDTH) {
        int64_t n = TTI_MIN(row_bytes - x, WIDTH);
        rows_64(in + x, row_bytes, &r, ~(__mmask64)0 >> (WIDTH - n), out + x);
    }
}

const tti_passes *tti_passes_avx512(void) {
    static const tti_passes passes = {split_bytes, prepare, columns, rows};
    bool can = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
               __builtin_cpu_supports("avx512vnni");
    return can ? &passes : NULL;
}

#else

const tti_passes *tti_passes_avx512(void) { return NULL; }

#endif
