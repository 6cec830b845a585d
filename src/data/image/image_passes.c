/* image_passes.c - the passes of a resize with x86 vectors (AVX2).
 *
 * A weight of 22 bits is hi * 2^11 + lo, both of which fit the 16-bit multiply-and-add that
 * computes sixteen products at once; the sums are combined at the end.  All arithmetic is exact, so
 * the bytes are those of the plain pass (vectors_as_plain in tests/data/image/image_resize_test.c).
 */
#include "data/image/image_passes.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <string.h>

enum { GROUP = 4, LOW_BITS = 11, LOW_MASK = (1 << LOW_BITS) - 1 };

#define AVX2 __attribute__((target("avx2")))

/* Four inputs of one output: inputs 0, 1 in the first half, 2, 3 in the second, each pair once per
 * channel. */
typedef struct group {
    int16_t hi[16], lo[16];
} group;

static int64_t groups_of(int64_t n) { return (n + GROUP - 1) / GROUP; }

static size_t split_bytes(int64_t n_outputs, int64_t n_most) {
    return (size_t)(n_outputs * groups_of(n_most)) * sizeof(group);
}

static void prepare(tti_weights *w) {
    group *groups = w->split;
    int64_t n_groups = groups_of(w->n_most);
    memset(groups, 0, split_bytes(w->n_outputs, w->n_most));
    for (int64_t i = 0; i < w->n_outputs; i++)
        for (int32_t k = 0; k < w->n[i]; k++) {
            group *g = &groups[i * n_groups + k / GROUP];
            int32_t weight = w->weight[i * w->n_most + k];
            int at = k % GROUP / 2 * 8 + k % 2;
            for (int c = 0; c < 3; c++) {
                g->hi[at + 2 * c] = (int16_t)(weight >> LOW_BITS);
                g->lo[at + 2 * c] = (int16_t)(weight & LOW_MASK);
            }
        }
}

/* (hi * 2^11 + lo + half) >> 22 */
AVX2 static inline __m256i finish(__m256i hi, __m256i lo) {
    __m256i sum = _mm256_add_epi32(_mm256_slli_epi32(hi, LOW_BITS), lo);
    sum = _mm256_add_epi32(sum, _mm256_set1_epi32(TTI_WEIGHT_HALF));
    return _mm256_srai_epi32(sum, TTI_WEIGHT_BITS);
}

AVX2 static void columns(const uint8_t *in, const tti_weights *w, uint8_t *out) {
    /* RGBRGBRGBRGB to RRGGBB of two pixels and of the next two. */
    const __m128i order = _mm_setr_epi8(0, 3, 1, 4, 2, 5, -1, -1, 6, 9, 7, 10, 8, 11, -1, -1);
    const group *groups = w->split;
    int64_t n_groups = groups_of(w->n_most);
    for (int64_t i = 0; i < w->n_outputs; i++) {
        const uint8_t *pixel = in + (int64_t)w->start[i] * 3;
        const group *g = groups + i * n_groups, *end = g + (w->n[i] + GROUP - 1) / GROUP;
        __m256i hi = _mm256_setzero_si256(), lo = hi;
        for (; g < end; g++, pixel += 3 * GROUP) {
            __m128i bytes = _mm_shuffle_epi8(_mm_loadu_si128((const void *)pixel), order);
            __m256i pairs = _mm256_cvtepu8_epi16(bytes);
            hi = _mm256_add_epi32(hi,
                                  _mm256_madd_epi16(pairs, _mm256_load_si256((const void *)g->hi)));
            lo = _mm256_add_epi32(lo,
                                  _mm256_madd_epi16(pairs, _mm256_load_si256((const void *)g->lo)));
        }
        hi = _mm256_add_epi32(hi, _mm256_permute2x128_si256(hi, hi, 1));
        lo = _mm256_add_epi32(lo, _mm256_permute2x128_si256(lo, lo, 1));
        __m128i rgb = _mm256_castsi256_si128(finish(hi, lo));
        rgb = _mm_packus_epi16(_mm_packs_epi32(rgb, rgb), rgb);
        uint32_t value = (uint32_t)_mm_cvtsi128_si32(rgb);
        uint8_t *to = out + (w->flip ? w->n_outputs - 1 - i : i) * 3;
        memcpy(to, &value, 2);
        to[2] = (uint8_t)(value >> 16);
    }
}

/* Two weights as the pair that multiplies two rows. */
AVX2 static inline __m256i pair(int32_t first, int32_t second) {
    return _mm256_set1_epi32(first | (int32_t)((uint32_t)second << 16));
}

AVX2 static void rows_16(const uint8_t *in, int64_t row_bytes, const int32_t *weight, int32_t n,
                         uint8_t *out) {
    __m256i hi[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()}, lo[2] = {hi[0], hi[0]};
    for (int32_t k = 0; k < n; k += 2) {
        bool both = k + 1 < n; /* else the row itself again, with weight 0 */
        int32_t w0 = weight[k], w1 = both ? weight[k + 1] : 0;
        __m128i a = _mm_loadu_si128((const void *)(in + k * row_bytes));
        __m128i b = _mm_loadu_si128((const void *)(in + (both ? k + 1 : k) * row_bytes));
        __m256i high = pair(w0 >> LOW_BITS, w1 >> LOW_BITS);
        __m256i low = pair(w0 & LOW_MASK, w1 & LOW_MASK);
        __m256i pairs[2] = {_mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b)),
                            _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(a, b))};
        for (int half = 0; half < 2; half++) {
            hi[half] = _mm256_add_epi32(hi[half], _mm256_madd_epi16(pairs[half], high));
            lo[half] = _mm256_add_epi32(lo[half], _mm256_madd_epi16(pairs[half], low));
        }
    }
    /* Packing works in halves of vectors: put the quarters back in order. */
    __m256i words = _mm256_packs_epi32(finish(hi[0], lo[0]), finish(hi[1], lo[1]));
    words = _mm256_permute4x64_epi64(words, 0xD8);
    __m256i bytes = _mm256_packus_epi16(words, words);
    bytes = _mm256_permute4x64_epi64(bytes, 0xD8);
    _mm_storeu_si128((void *)out, _mm256_castsi256_si128(bytes));
}

static void rows(const uint8_t *in, int64_t row_bytes, const tti_weights *down, int64_t i,
                 uint8_t *out) {
    const int32_t *weight = down->weight + i * down->n_most;
    int64_t x = 0;
    for (; x + 16 <= row_bytes; x += 16) rows_16(in + x, row_bytes, weight, down->n[i], out + x);
    for (; x < row_bytes; x++) {
        int32_t sum = TTI_WEIGHT_HALF;
        for (int32_t k = 0; k < down->n[i]; k++) sum += in[k * row_bytes + x] * weight[k];
        sum >>= TTI_WEIGHT_BITS;
        out[x] = (uint8_t)(sum > 255 ? 255 : sum);
    }
}

const tti_passes *tti_passes_avx2(void) {
    static const tti_passes passes = {split_bytes, prepare, columns, rows};
    return __builtin_cpu_supports("avx2") ? &passes : NULL;
}

#else

const tti_passes *tti_passes_avx2(void) { return NULL; }

#endif
