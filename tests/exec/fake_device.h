/* fake_device.h - the plain calls of a device that is the host and does everything at once. */
#ifndef TTI_TESTS_EXEC_FAKE_DEVICE_H
#define TTI_TESTS_EXEC_FAKE_DEVICE_H

#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/dtype.h"

static inline tutti_status fake_open(const tti_device_desc *desc) {
    (void)desc;
    return TUTTI_OK;
}

static inline void fake_close(void) {}

static inline tutti_status fake_copy(tti_queue queue, void *dst, const void *src, size_t n_bytes) {
    (void)queue;
    memmove(dst, src, n_bytes);
    return TUTTI_OK;
}

static inline tutti_status fake_await(int mark) {
    (void)mark;
    return TUTTI_OK;
}

static inline tutti_status fake_note(tti_queue queue, int place) {
    (void)queue;
    return place >= 0 && place < TTI_N_GRAPH_EVENTS ? TUTTI_OK
                                                    : tti_fail(TUTTI_E_INTERNAL, "%d", place);
}

static inline tutti_status fake_sync(void) { return TUTTI_OK; }

static inline void *fake_alloc(size_t n_bytes) { return calloc(1, n_bytes + 1); }

static inline void fake_release(void *memory, size_t n_bytes) {
    (void)n_bytes;
    free(memory);
}

static inline void fake_accumulate(float *dst, const float *src, size_t n_elems) {
    for (size_t i = 0; i < n_elems; i++) dst[i] += src[i];
}

static inline void fake_accumulate_rounded(float *dst, const float *src, size_t n_elems) {
    for (size_t i = 0; i < n_elems; i++) {
        float a = tti_bf16_to_f32(tti_f32_to_bf16(dst[i]));
        float sum = src ? a + tti_bf16_to_f32(tti_f32_to_bf16(src[i])) : a;
        dst[i] = tti_bf16_to_f32(tti_f32_to_bf16(sum));
    }
}

#endif /* TTI_TESTS_EXEC_FAKE_DEVICE_H */
