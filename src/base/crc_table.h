/* crc_table.h - the parts that the checksums of 32 bits have in common: the table of a polynomial,
 * the CRC by table, and the CRC of two texts together.
 *
 * A CRC is a remainder of polynomials over GF(2), so the CRC of a text followed by n bytes is the
 * CRC times x^(8n) mod P, plus that of the bytes.  Polynomials are bit-reflected: bit 31 is the
 * coefficient of x^0. */
#ifndef TTI_BASE_CRC_TABLE_H
#define TTI_BASE_CRC_TABLE_H

#include <stddef.h>
#include <stdint.h>

#define TTI_CRC_BIT(byte, k, crc) (((byte) >> (k)&1) ? (crc) : 0u)
#define TTI_CRC_ENTRY(b, c0, c1, c2, c3, c4, c5, c6, c7)                     \
    (TTI_CRC_BIT(b, 0, c0) ^ TTI_CRC_BIT(b, 1, c1) ^ TTI_CRC_BIT(b, 2, c2) ^ \
     TTI_CRC_BIT(b, 3, c3) ^ TTI_CRC_BIT(b, 4, c4) ^ TTI_CRC_BIT(b, 5, c5) ^ \
     TTI_CRC_BIT(b, 6, c6) ^ TTI_CRC_BIT(b, 7, c7))
#define TTI_CRC_ENTRIES_4(b, ...)                                       \
    TTI_CRC_ENTRY(b, __VA_ARGS__), TTI_CRC_ENTRY((b) + 1, __VA_ARGS__), \
        TTI_CRC_ENTRY((b) + 2, __VA_ARGS__), TTI_CRC_ENTRY((b) + 3, __VA_ARGS__)
#define TTI_CRC_ENTRIES_16(b, ...)                                              \
    TTI_CRC_ENTRIES_4(b, __VA_ARGS__), TTI_CRC_ENTRIES_4((b) + 4, __VA_ARGS__), \
        TTI_CRC_ENTRIES_4((b) + 8, __VA_ARGS__), TTI_CRC_ENTRIES_4((b) + 12, __VA_ARGS__)
#define TTI_CRC_ENTRIES_64(b, ...)                                                 \
    TTI_CRC_ENTRIES_16(b, __VA_ARGS__), TTI_CRC_ENTRIES_16((b) + 16, __VA_ARGS__), \
        TTI_CRC_ENTRIES_16((b) + 32, __VA_ARGS__), TTI_CRC_ENTRIES_16((b) + 48, __VA_ARGS__)

/* The 256 entries of a table from the CRCs, without inversions, of the bytes 1, 2, 4 ... 128: such
 * CRCs are linear.  That of 128 is the polynomial. */
#define TTI_CRC_TABLE(...)                                                             \
    {                                                                                  \
        TTI_CRC_ENTRIES_64(0, __VA_ARGS__), TTI_CRC_ENTRIES_64(64, __VA_ARGS__),       \
            TTI_CRC_ENTRIES_64(128, __VA_ARGS__), TTI_CRC_ENTRIES_64(192, __VA_ARGS__) \
    }

/* The CRC of some bytes followed by the n_bytes at data; crc is that of the bytes before. */
static inline uint32_t tti_crc_by_table(const uint32_t table[256], uint32_t crc, const void *data,
                                        size_t n_bytes) {
    const uint8_t *p = data;
    crc = ~crc;
    for (size_t i = 0; i < n_bytes; i++) crc = table[(crc ^ p[i]) & 0xFF] ^ (crc >> 8);
    return ~crc;
}

static inline uint32_t tti_crc_multiply(uint32_t polynomial, uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (; a; a <<= 1) {
        if (a & 0x80000000u) product ^= b;
        b = (b >> 1) ^ (b & 1 ? polynomial : 0u);
    }
    return product;
}

/* The CRC of A followed by B, from those of A and of the n_bytes of B. */
static inline uint32_t tti_crc_join(uint32_t polynomial, uint32_t crc_a, uint32_t crc_b,
                                    uint64_t n_bytes_b) {
    uint32_t power = 0x00800000u; /* x^8 */
    for (uint64_t n = n_bytes_b; n; n >>= 1) {
        if (n & 1) crc_a = tti_crc_multiply(polynomial, power, crc_a);
        power = tti_crc_multiply(polynomial, power, power);
    }
    return crc_a ^ crc_b;
}

#endif /* TTI_BASE_CRC_TABLE_H */
