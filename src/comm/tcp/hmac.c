/* hmac.c - SHA-256 (FIPS 180-4) and HMAC (RFC 2104) for the handshake; for short inputs, not
 * optimized. */
#include <string.h>

#include "comm/tcp/tcp.h"

enum { BLOCK_BYTES = 64 };

typedef struct sha256 {
    uint32_t h[8];
    unsigned char block[BLOCK_BYTES];
    size_t n_block;
    uint64_t n_bytes;
} sha256;

static const uint32_t rounds[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void take_block(sha256 *s) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)s->block[4 * i] << 24 | (uint32_t)s->block[4 * i + 1] << 16 |
               (uint32_t)s->block[4 * i + 2] << 8 | s->block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t b = turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + a + w[i - 7] + b;
    }
    memcpy(v, s->h, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t e = turn(v[4], 6) ^ turn(v[4], 11) ^ turn(v[4], 25);
        uint32_t t = v[7] + e + ((v[4] & v[5]) ^ (~v[4] & v[6])) + rounds[i] + w[i];
        uint32_t a = turn(v[0], 2) ^ turn(v[0], 13) ^ turn(v[0], 22);
        uint32_t u = a + ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t;
        v[0] = t + u;
    }
    for (int i = 0; i < 8; i++) s->h[i] += v[i];
}

static void begin(sha256 *s) {
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    *s = (sha256){.n_block = 0};
    memcpy(s->h, first, sizeof first);
}

static void add(sha256 *s, const void *bytes, size_t n_bytes) {
    const unsigned char *p = bytes;
    s->n_bytes += n_bytes;
    for (size_t i = 0; i < n_bytes; i++) {
        s->block[s->n_block++] = p[i];
        if (s->n_block == BLOCK_BYTES) {
            take_block(s);
            s->n_block = 0;
        }
    }
}

static void end(sha256 *s, unsigned char out[TCP_MAC_BYTES]) {
    uint64_t n_bits = s->n_bytes * 8;
    unsigned char one = 0x80, zero = 0, length[8];
    add(s, &one, 1);
    while (s->n_block != BLOCK_BYTES - 8) add(s, &zero, 1);
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(n_bits >> (56 - 8 * i));
    add(s, length, sizeof length);
    for (int i = 0; i < TCP_MAC_BYTES; i++)
        out[i] = (unsigned char)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void tti_sha256(const void *bytes, size_t n_bytes, unsigned char out[TCP_MAC_BYTES]) {
    sha256 s;
    begin(&s);
    add(&s, bytes, n_bytes);
    end(&s, out);
}

void tti_hmac(const char *key, const void *bytes, size_t n_bytes,
              unsigned char out[TCP_MAC_BYTES]) {
    unsigned char pad[BLOCK_BYTES] = {0}, inner[TCP_MAC_BYTES];
    sha256 s;
    if (strlen(key) > BLOCK_BYTES)
        tti_sha256(key, strlen(key), pad);
    else
        memcpy(pad, key, strlen(key));
    for (int i = 0; i < BLOCK_BYTES; i++) pad[i] ^= 0x36;
    begin(&s);
    add(&s, pad, sizeof pad);
    add(&s, bytes, n_bytes);
    end(&s, inner);
    for (int i = 0; i < BLOCK_BYTES; i++) pad[i] ^= 0x36 ^ 0x5c;
    begin(&s);
    add(&s, pad, sizeof pad);
    add(&s, inner, sizeof inner);
    end(&s, out);
}

bool tti_mac_equal(const unsigned char *a, const unsigned char *b) {
    unsigned char differ = 0;
    for (int i = 0; i < TCP_MAC_BYTES; i++) differ |= (unsigned char)(a[i] ^ b[i]);
    return differ == 0;
}
