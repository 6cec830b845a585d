/* device_memory.h - the memory of a device: whether a step fits and what would make it fit; batches
 * of bytes, converted to floats on the device; samples that stay there. */
#ifndef TTI_EXEC_DEVICE_MEMORY_H
#define TTI_EXEC_DEVICE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "exec/worker/desc.h"

/* Zero-initialized; memory is allocated for the first batch of bytes. */
typedef struct tti_bytes {
    uint8_t *x;   /* device memory for all shards of the worker */
    float *value; /* device [TTI_MAX_BYTE_TABLES][256] */
    size_t n_bytes;
} tti_bytes;

typedef struct tti_bytes_desc {
    const tti_backend *backend; /* with an open device */
    const tti_step_desc *step;  /* has a table: step->value is not NULL */
    int n_shards;               /* shards of the worker */
    size_t x_bytes, target_bytes;
} tti_bytes_desc;

/* Enqueues the copies of the shards' bytes and of the table in the copy queue. */
tutti_status tti_bytes_copy(const tti_bytes_desc *desc, tti_bytes *bytes);

/* Enqueues the conversion of shard s in the copy queue: x [b][n_elems] floats on the device.  Rows
 * whose target [b] is below 0 become zeros; target is already on the device. */
tutti_status tti_bytes_unpack(const tti_bytes_desc *desc, const tti_bytes *bytes, int s,
                              const void *target, void *x);

void tti_bytes_release(const tti_backend *backend, tti_bytes *bytes);

/* ---- samples that stay on a device, and the memory for the batches made from them ---- */

typedef struct tti_resident {
    tti_gather gather; /* samples.x NULL: none are resident; the caller sets args_from and index for
                          each step */
    size_t n;          /* number of samples */
    bool lasts;        /* a tti_lasting_samples owns the samples */
} tti_resident;

typedef struct tti_resident_desc {
    const tti_backend *backend;          /* with an open device */
    const tti_resident_samples *samples; /* NULL: lasting has them */
    tti_lasting_samples *lasting; /* has or gets the samples; NULL: the tti_resident owns them */
    int n_shards;                 /* shards of the worker */
    size_t x_bytes, target_bytes; /* bytes of a shard's inputs */
    tti_step_args *args;          /* device */
} tti_resident_desc;

/* True if the samples take at most a quarter of the device's free memory, and a row of x is one
 * sample. */
bool tti_resident_fits(const tti_resident_desc *desc);

/* Copies the samples to the device.  Call tti_resident_release in any case. */
tutti_status tti_resident_create(const tti_resident_desc *desc, tti_resident *out);
void tti_resident_release(const tti_backend *backend, tti_resident *resident);

/* Number of elements of index, for all shards. */
size_t tti_resident_index_elems(const tti_resident *resident);
void tti_resident_note(const tti_resident *resident, const tti_step_desc *desc, int32_t *index);

/* ---- checks whether a step fits into the memory of a device, and what would make it fit ---- */

/* Input sets of a device whose batches are copied from the host. */
enum { TTI_N_INPUTS = 2 };

/* Bytes that a worker needs. flat: one array of all parameters; low_copies: their 16-bit copies;
 * state: one array of the optimizer. */
typedef struct tti_device_need {
    size_t flat, low_copies, state;
    size_t arena;         /* of one shard, including constants and values for other stages */
    size_t inputs;        /* of all shards, in both input sets */
    size_t residuals;     /* residuals and messages of compressed gradients; gradients in 16 bits */
    size_t scratch;       /* of kernels */
    size_t params, grads; /* of this worker's partitions; 0: unsharded */
    /* The sizes with parallel.zero=2 and 3; grads 0: sharded already, or not possible. */
    struct {
        size_t params, grads;
    } partitioned[2];
    int n_states, n_emas, n_grads, n_arenas;
    int n_shards, most_shards, n_ranks;
    bool offloads; /* the optimizer state could be moved to the host */
    int64_t rows;  /* rows per shard */
} tti_device_need;

size_t tti_device_need_bytes(const tti_device_need *need);

/* Fails with TUTTI_E_NOMEM if n_free bytes do not suffice.  The message has the sizes and suggests
 * what to shard, to offload, or how many shards to use. */
tutti_status tti_device_need_check(const tti_device_need *need, size_t n_free);

#endif /* TTI_EXEC_DEVICE_MEMORY_H */
