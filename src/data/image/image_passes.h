/* image_passes.h - the two passes of a resize, in plain C and in vectors: the same bytes. */
#ifndef TTI_DATA_IMAGE_PASSES_H
#define TTI_DATA_IMAGE_PASSES_H

#include "data/image/image.h"

enum { TTI_WEIGHT_BITS = 32 - 8 - 2, TTI_WEIGHT_HALF = 1 << (TTI_WEIGHT_BITS - 1) };

/* The weights of one axis: output i is the sum of weight[i*n_most + k] * input[start[i] + k] over
 * k < n[i], plus TTI_WEIGHT_HALF, shifted right by TTI_WEIGHT_BITS, clipped to u8.  Weights are
 * >= 0 and add up to about 1 << TTI_WEIGHT_BITS. */
typedef struct tti_weights {
    int64_t n_outputs, n_most;
    int32_t *start, *n, *weight;
    bool flip;        /* columns: outputs are written from right to left            */
    void *split;      /* vectors: the weights in their own form, 64-byte aligned    */
    int64_t n_blocks; /* of split, where outputs are computed in blocks; of prepare */
} tti_weights;

typedef struct tti_passes {
    /* Bytes that prepare wants at w->split, for an axis. */
    size_t (*split_bytes)(int64_t n_outputs, int64_t n_most);
    void (*prepare)(tti_weights *across);

    /* One row: in [W,3] with TTI_IMAGE_PAD_BYTES after the image, out [n_outputs,3]. */
    void (*columns)(const uint8_t *in, const tti_weights *across, uint8_t *out);

    /* Output row i of row_bytes; in: the input row start[i]. */
    void (*rows)(const uint8_t *in, int64_t row_bytes, const tti_weights *down, int64_t i,
                 uint8_t *out);
} tti_passes;

extern const tti_passes tti_passes_plain;

/* tti_image_resize with these passes. */
tutti_status tti_image_resize_with(const tti_passes *passes, const tti_image *image,
                                   const tti_resize *how, tti_workspace *ws, uint8_t *out);

/* The passes with x86 vectors; NULL if this processor, or this build, has none. */
const tti_passes *tti_passes_avx2(void);
const tti_passes *tti_passes_avx512(void);

#endif /* TTI_DATA_IMAGE_PASSES_H */
