/* gzip_stored.h - gzip without compression, so that tests need no library to write what they read:
 * RFC 1952 around the stored blocks of RFC 1951. */
#ifndef TTI_TESTS_GZIP_STORED_H
#define TTI_TESTS_GZIP_STORED_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t t_crc32(const uint8_t *bytes, size_t n_bytes) {
    uint32_t crc = 0xFFFFFFFFu;
    for (size_t i = 0; i < n_bytes; i++) {
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++) crc = crc & 1 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
    }
    return ~crc;
}

static inline size_t t_put_le(uint8_t *out, uint32_t value, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i++) out[i] = (uint8_t)(value >> 8 * i);
    return n_bytes;
}

/* Returns the bytes written to out: at most n_bytes + 5 for each 65535 + 28. */
static inline size_t t_gzip(const uint8_t *bytes, size_t n_bytes, uint8_t *out) {
    static const uint8_t head[10] = {0x1F, 0x8B, 8, 0, 0, 0, 0, 0, 0, 255};
    memcpy(out, head, sizeof head);
    size_t n = sizeof head, at = 0;
    do {
        size_t block = n_bytes - at < 65535 ? n_bytes - at : 65535;
        out[n++] = at + block == n_bytes; /* the last one? */
        n += t_put_le(out + n, (uint32_t)block, 2);
        n += t_put_le(out + n, ~(uint32_t)block, 2);
        if (block > 0) memcpy(out + n, bytes + at, block);
        n += block;
        at += block;
    } while (at < n_bytes);
    n += t_put_le(out + n, t_crc32(bytes, n_bytes), 4);
    n += t_put_le(out + n, (uint32_t)n_bytes, 4);
    return n;
}

#endif /* TTI_TESTS_GZIP_STORED_H */
