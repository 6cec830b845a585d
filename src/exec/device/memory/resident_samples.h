/* resident_samples.h - samples that stay on a device, and the memory for the batches made from
 * them. */
#ifndef TTI_EXEC_RESIDENT_H
#define TTI_EXEC_RESIDENT_H

#include "exec/worker/desc.h"

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

#endif /* TTI_EXEC_RESIDENT_H */
