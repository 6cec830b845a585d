/* philox.h - counter-based random numbers: Philox4x32-10.
 *
 * Salmon, Moraes, Dror, Shaw: Parallel Random Numbers: As Easy as 1, 2, 3 (SC'11).  A draw
 * is a pure function of (key, counter): no state to save, none per worker, any draw can be
 * made anywhere.  Keys are (seed, op); counters are (step, global sample index, element/4).
 * Checked against the paper's known answers in tests/base/philox_test.c. */
#ifndef TTI_BASE_PHILOX_H
#define TTI_BASE_PHILOX_H

#include <stdint.h>

/* The same draws on a device: nvcc compiles these functions for both sides. */
#ifdef __CUDACC__
#define TTI_BOTH_SIDES __host__ __device__
#else
#define TTI_BOTH_SIDES
#endif

typedef struct tti_philox {
    uint32_t v[4];
} tti_philox;

/* 128 random bits for a 64-bit key and a 128-bit counter. */
TTI_BOTH_SIDES static inline tti_philox tti_philox_draw(uint64_t key, uint64_t counter_hi,
                                                        uint64_t counter_lo) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter_lo, c1 = (uint32_t)(counter_lo >> 32);
    uint32_t c2 = (uint32_t)counter_hi, c3 = (uint32_t)(counter_hi >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c0 = n0, c1 = (uint32_t)p1, c2 = n2, c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    tti_philox draw = {{c0, c1, c2, c3}};
    return draw;
}

/* Uniform in [0, 1) with 24 bits, exact in float and double. */
TTI_BOTH_SIDES static inline float tti_philox_unit(uint32_t bits) {
    return (float)(bits >> 8) * 0x1p-24f;
}

/* Mixes two 64-bit words into a key (splitmix64's finaliser). */
TTI_BOTH_SIDES static inline uint64_t tti_mix64(uint64_t a, uint64_t b) {
    uint64_t x = a + 0x9E3779B97F4A7C15u * (b + 1);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* FNV-1a of a name, for keys that follow names and not positions. */
static inline uint64_t tti_hash_name(const char *name) {
    uint64_t h = 0xCBF29CE484222325u;
    for (; *name; name++) h = (h ^ (uint8_t)*name) * 0x100000001B3u;
    return h;
}

#endif /* TTI_BASE_PHILOX_H */
