/* kept.h - samples that stay on a device, and the memory for the batches made from them. */
#ifndef TTI_EXEC_KEPT_H
#define TTI_EXEC_KEPT_H

#include "exec/exec.h"

typedef struct tti_kept {
    tti_gather
        gather; /* samples.x NULL: none are kept; args_from, index: of a step, set by the caller */
    size_t n;   /* samples */
} tti_kept;

typedef struct tti_kept_desc {
    const tti_backend *backend; /* with a device that is open */
    const tti_kept_samples *samples;
    int n_shards;                 /* of the worker */
    size_t x_bytes, target_bytes; /* of a shard's inputs */
    tti_step_args *args;          /* device */
} tti_kept_desc;

/* They are at most a quarter of the device's free memory, and a row of x is a sample. */
bool tti_kept_fits(const tti_kept_desc *desc);

/* Copies them to the device.  tti_kept_release in any case. */
tutti_status tti_kept_create(const tti_kept_desc *desc, tti_kept *out);
void tti_kept_release(const tti_backend *backend, tti_kept *kept);

/* Elements of index, for all shards; and the length of a step's numbers. */
size_t tti_kept_index_elems(const tti_kept *kept);
void tti_kept_note(const tti_kept *kept, const tti_step_desc *desc, int32_t *index);

#endif /* TTI_EXEC_KEPT_H */
