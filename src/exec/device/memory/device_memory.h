/* device_memory.h - the memory of a device: whether a step fits and what would make it fit; batches
 * of bytes, converted to floats on the device; samples that stay there. */
#ifndef TTI_EXEC_DEVICE_MEMORY_H
#define TTI_EXEC_DEVICE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
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

/* ---- samples that stay on a device, and the memory for the batches made from them ---- */

typedef struct tti_resident {
    tti_gather
        gather; /* samples.x NULL: none are kept; args_from, index: of a step, set by the caller */
    size_t n;   /* samples */
} tti_resident;

typedef struct tti_resident_desc {
    const tti_backend *backend; /* with a device that is open */
    const tti_resident_samples *samples;
    int n_shards;                 /* of the worker */
    size_t x_bytes, target_bytes; /* of a shard's inputs */
    tti_step_args *args;          /* device */
} tti_resident_desc;

/* They are at most a quarter of the device's free memory, and a row of x is a sample. */
bool tti_resident_fits(const tti_resident_desc *desc);

/* Copies them to the device.  tti_resident_release in any case. */
tutti_status tti_resident_create(const tti_resident_desc *desc, tti_resident *out);
void tti_resident_release(const tti_backend *backend, tti_resident *resident);

/* Elements of index, for all shards; and the length of a step's numbers. */
size_t tti_resident_index_elems(const tti_resident *resident);
void tti_resident_note(const tti_resident *resident, const tti_step_desc *desc, int32_t *index);

/* ---- checks whether a step fits into the memory of a device, and what would make it fit ---- */

/* Input sets of a device whose batches are copied from the host. */
enum { TTI_N_INPUTS = 2 };

/* Bytes of a worker; flat: of one array of all parameters; low_copies: of them in 16 bits; state:
 * of one of the optimizer. */
typedef struct tti_device_need {
    size_t flat, low_copies, state;
    size_t arena;         /* of one shard, and its memory besides: constants, values for others */
    size_t inputs;        /* of all shards in both sets */
    size_t residuals;     /* of gradients, with their messages; and gradients in 16 bits */
    size_t scratch;       /* of kernels */
    size_t params, grads; /* bytes of the worker's shards of them; 0: they are whole */
    /* The sizes with parallel.zero=2 and 3; grads 0: already so, or impossible. */
    struct {
        size_t params, grads;
    } partitioned[2];
    int n_states, n_emas, n_grads, n_arenas;
    int n_shards, most_shards, n_ranks;
    bool offloads; /* the host may have the state instead */
    int64_t rows;  /* of a shard */
} tti_device_need;

size_t tti_device_need_bytes(const tti_device_need *need);

/* TUTTI_E_NOMEM with the numbers where n_free bytes do not suffice: which arrays to partition, or
 * to keep on the host, would, how many shards, or that no number of them does. */
tutti_status tti_device_need_check(const tti_device_need *need, size_t n_free);

#endif /* TTI_EXEC_DEVICE_MEMORY_H */
