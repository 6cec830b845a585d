/* image_planes.c - converts pixels to planes of floats.
 *
 * AVX-512 with VBMI looks up 64 bytes at once, but only bytes.  So a float is looked up as its four
 * bytes, which are then combined: no bit is lost, whatever the values are. */
#include "data/image/image_planes.h"

#include <stdbool.h>
#include <string.h>

#include "base/error.h"

void tti_plane_table_split(tti_plane_table *table) {
    for (int i = 0; i < 256; i++) {
        uint32_t bits;
        memcpy(&bits, &table->value[i], sizeof bits);
        for (int k = 0; k < 4; k++) table->byte[k][i] = (uint8_t)(bits >> (8 * k));
    }
}

/* Pixels first .. n_pixels-1. */
static void convert_plain(const uint8_t *rgb, int64_t first, int64_t n_pixels,
                          const tti_plane_table table[3], float *out) {
    float *r = out, *g = r + n_pixels, *b = g + n_pixels;
    for (int64_t i = first; i < n_pixels; i++) {
        r[i] = table[0].value[rgb[3 * i]];
        g[i] = table[1].value[rgb[3 * i + 1]];
        b[i] = table[2].value[rgb[3 * i + 2]];
    }
}

void tti_to_planes_plain(const uint8_t *rgb, int64_t n_pixels, const tti_plane_table table[3],
                         float *out) {
    convert_plain(rgb, 0, n_pixels, table, out);
}

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi")))

/* STRETCH: pixels whose bytes stay in the nearest cache while each channel takes its own. */
enum { GROUP = 64, STRETCH = 64 * GROUP };

static bool can_vectors(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi");
}

/* Byte `at` of a vector of one channel's bytes belongs to this pixel of 64: join_bytes puts floats
 * together in quarters of vectors, which brings them into order. */
static int pixel_of(int at) { return at / 4 % 4 * 16 + at / 16 * 4 + at % 4; }

/* 256 entries. */
typedef struct lookup {
    __m512i part[4];
} lookup;

AVX512 static inline lookup load_lookup(const uint8_t byte[256]) {
    return (lookup){{_mm512_loadu_si512(byte), _mm512_loadu_si512(byte + 64),
                     _mm512_loadu_si512(byte + 128), _mm512_loadu_si512(byte + 192)}};
}

AVX512 static inline __m512i look_up(const lookup *t, __m512i x) {
    __m512i low = _mm512_permutex2var_epi8(t->part[0], x, t->part[1]);
    __m512i high = _mm512_permutex2var_epi8(t->part[2], x, t->part[3]);
    return _mm512_mask_mov_epi8(low, _mm512_movepi8_mask(x), high);
}

/* Four bytes of 64 floats, lowest first, to out. */
AVX512 static inline void join_bytes(__m512i a, __m512i b, __m512i c, __m512i d, float *out) {
    __m512i ab = _mm512_unpacklo_epi8(a, b), cd = _mm512_unpacklo_epi8(c, d);
    _mm512_storeu_si512(out, _mm512_unpacklo_epi16(ab, cd));
    _mm512_storeu_si512(out + 16, _mm512_unpackhi_epi16(ab, cd));
    ab = _mm512_unpackhi_epi8(a, b), cd = _mm512_unpackhi_epi8(c, d);
    _mm512_storeu_si512(out + 32, _mm512_unpacklo_epi16(ab, cd));
    _mm512_storeu_si512(out + 48, _mm512_unpackhi_epi16(ab, cd));
}

/* One channel of n pixels, a multiple of GROUP. */
AVX512 static void convert_channel(const uint8_t *rgb, int64_t n, int channel,
                                   const tti_plane_table *table, float *out) {
    uint8_t place[GROUP];
    for (int i = 0; i < GROUP; i++) place[i] = (uint8_t)(pixel_of(i) * 3 + channel);
    /* Places from 128 on are in the third vector. */
    __m512i places = _mm512_loadu_si512(place);
    __mmask64 is_third = _mm512_movepi8_mask(places);
    lookup byte0 = load_lookup(table->byte[0]), byte1 = load_lookup(table->byte[1]);
    lookup byte2 = load_lookup(table->byte[2]), byte3 = load_lookup(table->byte[3]);
    for (int64_t i = 0; i < n; i += GROUP, rgb += 3 * GROUP) {
        __m512i x =
            _mm512_permutex2var_epi8(_mm512_loadu_si512(rgb), places, _mm512_loadu_si512(rgb + 64));
        x = _mm512_mask_permutexvar_epi8(x, is_third, places, _mm512_loadu_si512(rgb + 128));
        join_bytes(look_up(&byte0, x), look_up(&byte1, x), look_up(&byte2, x), look_up(&byte3, x),
                   out + i);
    }
}

void tti_to_planes(const uint8_t *rgb, int64_t n_pixels, const tti_plane_table table[3],
                   float *out) {
    int64_t n = can_vectors() ? n_pixels / GROUP * GROUP : 0;
    for (int64_t i = 0; i < n; i += STRETCH)
        for (int c = 0; c < 3; c++)
            convert_channel(rgb + 3 * i, TTI_MIN(n - i, STRETCH), c, &table[c],
                            out + c * n_pixels + i);
    convert_plain(rgb, n, n_pixels, table, out);
}

#else

void tti_to_planes(const uint8_t *rgb, int64_t n_pixels, const tti_plane_table table[3],
                   float *out) {
    convert_plain(rgb, 0, n_pixels, table, out);
}

#endif
