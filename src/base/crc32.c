/* crc32.c - CRC-32 by carry-less multiplication, 64 bytes at a time, or by table.
 *
 * A CRC is a remainder of polynomials over GF(2).  64 bytes are four polynomials of 128 bits; each
 * is moved 512 bits ahead by two multiplications with powers of x mod P and added to the next 64
 * bytes.  What is left at the end is folded to 128, 64 and then 32 bits (V. Gopal et al., "Fast CRC
 * Computation Using PCLMULQDQ", Intel 2009).  Polynomials are bit-reflected. */
#include "base/crc32.h"

#include <stdbool.h>
#include <string.h>

#define POLYNOMIAL 0xEDB88320u

/* CRCs of the bytes 1, 2, 4 ... 128; a CRC without inversions is linear, so they give all 256. */
#define BIT(byte, k, crc) (((byte) >> (k)&1) ? (crc) : 0u)
#define ENTRY(b)                                                                \
    (BIT(b, 0, 0x77073096u) ^ BIT(b, 1, 0xEE0E612Cu) ^ BIT(b, 2, 0x076DC419u) ^ \
     BIT(b, 3, 0x0EDB8832u) ^ BIT(b, 4, 0x1DB71064u) ^ BIT(b, 5, 0x3B6E20C8u) ^ \
     BIT(b, 6, 0x76DC4190u) ^ BIT(b, 7, 0xEDB88320u))
#define ENTRIES_4(b) ENTRY(b), ENTRY((b) + 1), ENTRY((b) + 2), ENTRY((b) + 3)
#define ENTRIES_16(b) ENTRIES_4(b), ENTRIES_4((b) + 4), ENTRIES_4((b) + 8), ENTRIES_4((b) + 12)
#define ENTRIES_64(b) \
    ENTRIES_16(b), ENTRIES_16((b) + 16), ENTRIES_16((b) + 32), ENTRIES_16((b) + 48)

static const uint32_t table[256] = {ENTRIES_64(0), ENTRIES_64(64), ENTRIES_64(128),
                                    ENTRIES_64(192)};

uint32_t tti_crc32_portable(uint32_t crc, const void *data, size_t n_bytes) {
    const uint8_t *p = data;
    crc = ~crc;
    for (size_t i = 0; i < n_bytes; i++) crc = table[(crc ^ p[i]) & 0xFF] ^ (crc >> 8);
    return ~crc;
}

static uint32_t times_x(uint32_t a) { return (a >> 1) ^ (a & 1 ? POLYNOMIAL : 0u); }

static uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (; a; a <<= 1) {
        if (a & 0x80000000u) product ^= b;
        b = times_x(b);
    }
    return product;
}

uint32_t tti_crc32_join(uint32_t crc_a, uint32_t crc_b, uint64_t n_bytes_b) {
    uint32_t power = 0x00800000u; /* x^8 */
    for (uint64_t n = n_bytes_b; n; n >>= 1) {
        if (n & 1) crc_a = multiply(power, crc_a);
        power = multiply(power, power);
    }
    return crc_a ^ crc_b;
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
