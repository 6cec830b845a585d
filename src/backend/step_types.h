/* step_types.h - step data shared by host and device; plain C and C++. */
#ifndef TTI_STEP_TYPES_H
#define TTI_STEP_TYPES_H

#include <stdint.h>

/* Values that change from step to step: set by the host, read by the device. */
typedef struct tti_step_args {
    uint64_t step; /* updates done before this one */
    float lr, loss_scale;
    float correction1, correction2; /* 1 - beta^t of Adam, t = step + 1 */
    float inv_rows;                 /* 1 / real samples of the global batch; 0: none */
    uint32_t keep_bad;              /* after a bad step no other is applied */
    uint32_t vote;                  /* of this worker */
} tti_step_args;

/* The results of a step, written by the device. */
typedef struct tti_step_report {
    double grad_norm;     /* of the mean gradient; 0 unless it was needed */
    uint64_t params_hash; /* after the update */
    uint32_t bad;         /* TTI_BAD_*: the update was left out */
    uint32_t reserved;
    uint64_t
        reported_ns; /* time of report_sums, by the device's clock; 0: there are no other workers */
    uint64_t waited_ns; /* from then until the update: the others, and sums, were waited for */
} tti_step_report;

/* Up to TTI_COLLECTED results of a shard, f32 scalars on the device. */
enum { TTI_COLLECTED = 8 };
typedef struct tti_collected {
    const float *from[TTI_COLLECTED];
    int n;
} tti_collected;

/* Samples that stay on a device: bytes, and a table that maps them to floats.  With several
 * channels, pixels of n_channels bytes become planes. */
typedef struct tti_samples {
    const uint8_t *x;   /* [n][n_elems] */
    const int32_t *y;   /* [n] */
    const float *value; /* [n_channels][256] */
    int32_t n_elems, n_channels;
} tti_samples;

/* The start of a step over resident samples.  args_from and index are pinned host memory; all
 * other pointers are device memory. */
typedef struct tti_gather {
    tti_samples samples;
    const tti_step_args *args_from;
    tti_step_args *args;
    const int32_t *index; /* [n_shards][1 + b]: real rows, then samples, -1: none */
    int32_t n_shards, b;
    float *x; /* of shard s at s * x_stride: [b][n_elems]; strides in elements */
    int32_t *y, *rows;
    int64_t x_stride, y_stride, rows_stride;
} tti_gather;

/* Converts a batch of bytes to floats; device pointers. */
typedef struct tti_unpack {
    const uint8_t *x;   /* [n_rows][n_elems], channels last */
    const int32_t *y;   /* [n_rows]: below 0: the row is zeros */
    const float *value; /* [n_channels][256] */
    int32_t n_rows, n_elems, n_channels;
    float *out; /* [n_rows][n_elems], a plane per channel */
} tti_unpack;

/* A range of the flat gradients that is sent as a low-rank product: [rows][cols] as P [r][rows]
 * and Q [r][cols].  r 0: it is sent uncompressed, as one row. */
typedef struct tti_powersgd_slot {
    uint64_t grads;       /* from this element of gradients and residuals on */
    uint64_t left, right; /* P, or all of it; Q: from these elements of the message on */
    uint64_t scratch;     /* from this one of scratch on, tti_powersgd_scratch elements */
    uint64_t key;         /* of Philox, for random directions of Q: see exec/worker/compress.h */
    uint32_t rows, cols, r;
    uint32_t reserved;
} tti_powersgd_slot;

/* Products of a matrix are computed in tiles of this many rows and columns, and then added. */
enum { TTI_POWERSGD_ROWS = 128, TTI_POWERSGD_COLS = 256 };

static inline uint64_t tti_powersgd_scratch(const tti_powersgd_slot *s) {
    uint64_t down = ((uint64_t)s->rows + TTI_POWERSGD_ROWS - 1) / TTI_POWERSGD_ROWS;
    uint64_t across = ((uint64_t)s->cols + TTI_POWERSGD_COLS - 1) / TTI_POWERSGD_COLS;
    uint64_t left = across * s->rows, right = down * s->cols;
    return s->r * (left > right ? left : right);
}

/* A range of the flat gradients whose k largest elements are sent. */
typedef struct tti_topk_slot {
    uint64_t grads; /* from this element of gradients and residuals on */
    uint64_t pairs; /* from this one of the pairs on, of all buckets */
    uint32_t n, k;  /* of n elements k, 1 <= k <= n */
} tti_topk_slot;

/* One element as it is sent. */
typedef struct tti_topk_pair {
    uint32_t index; /* in the slot */
    float value;
} tti_topk_pair;

/* TTI_BAD_PEER: a peer was lost, so the sums of the step are not valid. */
enum { TTI_BAD_LOSS = 1, TTI_BAD_GRADIENT = 2, TTI_BAD_PEER = 4 };

typedef enum tti_block_kind {
    TTI_BLOCK_TRAINED,
    TTI_BLOCK_BUFFER,
    TTI_BLOCK_FROZEN
} tti_block_kind;

/* A block of the flat arrays, for the update of all parameters at once. */
typedef struct tti_update_block {
    uint64_t hash_at, hash_weight; /* as in tti_update_step */
    uint64_t state;         /* element of the arrays of state and averages, a multiple of 16 */
    uint64_t params, grads; /* and its offset in those of parameters and gradients */
    uint32_t n_elems;       /* at most 16 Ki */
    int32_t slot;
    float lr_factor;
    float decay;   /* weight decay; of a buffer: its momentum */
    uint32_t kind; /* of tti_block_kind */
    uint32_t takes_l1;
    uint32_t is_own;       /* 0: another worker has its state, and updates it */
    uint32_t is_here;      /* its parameters are */
    uint32_t has_low_copy; /* there are 16-bit copies of its parameters, */
    uint32_t is_sent_low;  /* and workers that have partitions send each other only those */
    uint64_t low_copy;     /* from this element on, a multiple of 16 */
} tti_update_block;

#endif /* TTI_STEP_TYPES_H */
