/* golden_data.h - the inputs and labels of the golden runs, the same bits as make_golden.py makes.
 * Two batches take turns: step s uses batch s % 2.  Initial parameters are those of the library
 * itself, TUTTI_INIT_FAN_IN_UNIFORM with GOLDEN_SEED. */
#ifndef TTI_TESTS_GOLDEN_DATA_H
#define TTI_TESTS_GOLDEN_DATA_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/philox.h"
#include "golden/golden_losses.h"

/* 32 bits for element i of one of the golden streams. */
static inline uint32_t golden_draw(const char *stream, int step, size_t i) {
    uint64_t key = tti_mix64(GOLDEN_DATA_SEED, tti_hash_name(stream));
    return tti_philox_draw(key, (uint64_t)(step % 2), i / 4).v[i % 4];
}

/* x: n_elems = GOLDEN_BATCH * elements of a sample, row-major, uniform in [-1, 1). */
static inline void golden_x(int step, float *x, size_t n_elems) {
    uint64_t key = tti_mix64(GOLDEN_DATA_SEED, tti_hash_name("golden.x"));
    tti_philox draw = {{0}};
    for (size_t i = 0; i < n_elems; i++) {
        if (i % 4 == 0) draw = tti_philox_draw(key, (uint64_t)(step % 2), i / 4);
        x[i] = 2.0f * tti_philox_unit(draw.v[i % 4]) - 1.0f;
    }
}

/* labels: GOLDEN_BATCH of them, 0 .. GOLDEN_CLASSES-1. */
static inline void golden_labels(int step, int32_t *labels) {
    for (size_t i = 0; i < GOLDEN_BATCH; i++)
        labels[i] = (int32_t)(golden_draw("golden.labels", step, i) % GOLDEN_CLASSES);
}

/* FNV-1a over the bits of n_elems floats, taken as 32-bit words. */
static inline uint64_t golden_hash(const float *x, size_t n_elems) {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n_elems; i++) {
        uint32_t word;
        memcpy(&word, &x[i], sizeof word);
        h = (h ^ word) * 0x100000001B3u;
    }
    return h;
}

#endif /* TTI_TESTS_GOLDEN_DATA_H */
