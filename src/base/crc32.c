/* crc32.c - CRC-32 by carry-less multiplication, 64 bytes at a time, or by table.
 *
 * A CRC is a remainder of polynomials over GF(2).  64 bytes are four polynomials of 128 bits; each
 * is moved 512 bits ahead by two multiplications with powers of x mod P and added to the next 64
 * bytes.  The last 512 bits are folded to 128, 64 and then 32 bits (V. Gopal et al., "Fast CRC
 * Computation Using PCLMULQDQ", Intel 2009).  Polynomials are bit-reflected. */
#include "base/crc32.h"

#include <stdbool.h>

#include "base/crc_table.h"

#define POLYNOMIAL 0xEDB88320u

static const uint32_t table[256] = TTI_CRC_TABLE(0x77073096u, 0xEE0E612Cu, 0x076DC419u, 0x0EDB8832u,
                                                 0x1DB71064u, 0x3B6E20C8u, 0x76DC4190u, POLYNOMIAL);

uint32_t tti_crc32_portable(uint32_t crc, const void *data, size_t n_bytes) {
    return tti_crc_by_table(table, crc, data, n_bytes);
}

uint32_t tti_crc32_join(uint32_t crc_a, uint32_t crc_b, uint64_t n_bytes_b) {
    return tti_crc_join(POLYNOMIAL, crc_a, crc_b, n_bytes_b);
}

#if defined(__x86_64__)

#include <immintrin.h>

#define FAST __attribute__((target("sse4.1,pclmul")))

enum { BLOCK = 64 };

FAST static inline __m128i load(const uint8_t *p) {
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* x moved ahead by the two powers of x in by, plus the bytes there. */
FAST static inline __m128i fold(__m128i x, __m128i by, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(x, by, 0x00), high = _mm_clmulepi64_si128(x, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* The inverted CRC of a remainder of 128 bits. */
FAST static uint32_t reduce(__m128i x, __m128i by_128) {
    const __m128i words = _mm_setr_epi32(~0, 0, ~0, 0);
    const __m128i by_64 = _mm_set_epi64x(0, 0x163cd6124);
    const __m128i barrett = _mm_set_epi64x(0x1f7011641, 0x1db710641);
    x = _mm_xor_si128(_mm_srli_si128(x, 8), _mm_clmulepi64_si128(x, by_128, 0x10));
    x = _mm_xor_si128(_mm_srli_si128(x, 4),
                      _mm_clmulepi64_si128(_mm_and_si128(x, words), by_64, 0x00));
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(x, words), barrett, 0x10);
    quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, words), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x, quotient), 1);
}

/* n: a multiple of 16, at least BLOCK.  crc and the result are inverted. */
FAST static uint32_t crc_blocks(uint32_t crc, const uint8_t *p, size_t n) {
    const __m128i by_512 = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    const __m128i by_128 = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    __m128i a = _mm_xor_si128(load(p), _mm_cvtsi32_si128((int)crc));
    __m128i b = load(p + 16), c = load(p + 32), d = load(p + 48);
    for (p += BLOCK, n -= BLOCK; n >= BLOCK; p += BLOCK, n -= BLOCK) {
        a = fold(a, by_512, load(p));
        b = fold(b, by_512, load(p + 16));
        c = fold(c, by_512, load(p + 32));
        d = fold(d, by_512, load(p + 48));
    }
    a = fold(fold(fold(a, by_128, b), by_128, c), by_128, d);
    for (; n >= 16; p += 16, n -= 16) a = fold(a, by_128, load(p));
    return reduce(a, by_128);
}

uint32_t tti_crc32(uint32_t crc, const void *data, size_t n_bytes) {
    const uint8_t *p = data;
    size_t n_fast = n_bytes / 16 * 16;
    bool fast =
        n_fast >= BLOCK && __builtin_cpu_supports("sse4.1") && __builtin_cpu_supports("pclmul");
    if (!fast) return tti_crc32_portable(crc, data, n_bytes);
    return tti_crc32_portable(~crc_blocks(~crc, p, n_fast), p + n_fast, n_bytes - n_fast);
}

#else

uint32_t tti_crc32(uint32_t crc, const void *data, size_t n_bytes) {
    return tti_crc32_portable(crc, data, n_bytes);
}

#endif
