/* crc32c.c - CRC-32C by the SSE4.2 instruction, three streams at a time, or by table.
 *
 * A CRC is a remainder of polynomials over GF(2), so the CRC of a text followed by n bytes is the
 * CRC times x^(8n) mod P, plus that of the bytes.  The instruction has a latency of three cycles
 * and a throughput of one, so three neighbouring blocks are processed interleaved and then joined
 * by two carry-less multiplications.  Polynomials are bit-reflected: bit 31 is the coefficient of
 * x^0. */
#include "base/crc32c.h"

#include <stdbool.h>
#include <string.h>

#include "base/crc_table.h"

#define POLYNOMIAL 0x82F63B78u

static const uint32_t table[256] = TTI_CRC_TABLE(0xF26B8303u, 0xE13B70F7u, 0xC79A971Fu, 0x8AD958CFu,
                                                 0x105EC76Fu, 0x20BD8EDEu, 0x417B1DBCu, POLYNOMIAL);

uint32_t tti_crc32c_portable(uint32_t crc, const void *data, size_t n_bytes) {
    return tti_crc_by_table(table, crc, data, n_bytes);
}

uint32_t tti_crc32c_join(uint32_t crc_a, uint32_t crc_b, uint64_t n_bytes_b) {
    return tti_crc_join(POLYNOMIAL, crc_a, crc_b, n_bytes_b);
}

#if defined(__x86_64__)

#include <immintrin.h>

enum { LONG_BLOCK = 2048, SHORT_BLOCK = 256 };

/* x^(8n - 33) mod P: a carry-less product with it, reduced by the instruction, appends n bytes. */
#define SHIFT_SHORT 0xB9E02B86u
#define SHIFT_SHORT_2 0xDD7E3B0Cu
#define SHIFT_LONG 0xA51B6135u
#define SHIFT_LONG_2 0x82F89C77u

__attribute__((target("sse4.2,pclmul"))) static uint32_t shift(uint32_t crc, uint32_t power) {
    __m128i product =
        _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)crc), _mm_cvtsi32_si128((int)power), 0);
    return (uint32_t)_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

static inline uint64_t load(const uint8_t *p) {
    uint64_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* Three blocks of n_bytes, a multiple of 8. */
__attribute__((target("sse4.2,pclmul"))) static uint32_t three_blocks(uint32_t crc,
                                                                      const uint8_t *p,
                                                                      size_t n_bytes, uint32_t once,
                                                                      uint32_t twice) {
    uint64_t a = crc, b = 0, c = 0;
    for (const uint8_t *end = p + n_bytes; p < end; p += 8) {
        a = _mm_crc32_u64(a, load(p));
        b = _mm_crc32_u64(b, load(p + n_bytes));
        c = _mm_crc32_u64(c, load(p + 2 * n_bytes));
    }
    return shift((uint32_t)a, twice) ^ shift((uint32_t)b, once) ^ (uint32_t)c;
}

__attribute__((target("sse4.2,pclmul"))) static uint32_t crc32c_sse42(uint32_t crc,
                                                                      const uint8_t *p, size_t n) {
    crc = ~crc;
    for (; n >= 3 * LONG_BLOCK; p += 3 * LONG_BLOCK, n -= 3 * LONG_BLOCK)
        crc = three_blocks(crc, p, LONG_BLOCK, SHIFT_LONG, SHIFT_LONG_2);
    for (; n >= 3 * SHORT_BLOCK; p += 3 * SHORT_BLOCK, n -= 3 * SHORT_BLOCK)
        crc = three_blocks(crc, p, SHORT_BLOCK, SHIFT_SHORT, SHIFT_SHORT_2);
    for (; n >= 8; p += 8, n -= 8) crc = (uint32_t)_mm_crc32_u64(crc, load(p));
    for (; n; p++, n--) crc = _mm_crc32_u8(crc, *p);
    return ~crc;
}

uint32_t tti_crc32c(uint32_t crc, const void *data, size_t n_bytes) {
    bool fast = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
    return fast ? crc32c_sse42(crc, data, n_bytes) : tti_crc32c_portable(crc, data, n_bytes);
}

#else

uint32_t tti_crc32c(uint32_t crc, const void *data, size_t n_bytes) {
    return tti_crc32c_portable(crc, data, n_bytes);
}

#endif
