/* bytes.h - batches of bytes: copied unchanged, converted to floats on the device. */
#ifndef TTI_EXEC_BYTES_H
#define TTI_EXEC_BYTES_H

#include "exec/worker/desc.h"

/* Zero at first; memory is allocated for the first such batch. */
typedef struct tti_bytes {
    uint8_t *x;   /* device, every shard of the worker */
    float *value; /* device [TTI_MAX_BYTE_TABLES][256] */
    size_t n_bytes;
} tti_bytes;

typedef struct tti_bytes_desc {
    const tti_backend *backend; /* with a device that is open */
    const tti_step_desc *step;  /* with a table: step->value is not NULL */
    int n_shards;               /* of the worker */
    size_t x_bytes, target_bytes;
} tti_bytes_desc;

/* Puts the bytes of the shards and the table into the copy queue. */
tutti_status tti_bytes_copy(const tti_bytes_desc *desc, tti_bytes *bytes);

/* Puts the making of shard s into the copy queue: x [b][n_elems] floats on the device, zeros where
 * target [b], which is there, is below 0. */
tutti_status tti_bytes_unpack(const tti_bytes_desc *desc, const tti_bytes *bytes, int s,
                              const void *target, void *x);

void tti_bytes_release(const tti_backend *backend, tti_bytes *bytes);

#endif /* TTI_EXEC_BYTES_H */
