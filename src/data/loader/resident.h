/* resident.h - a data set whose samples stay on a device, and the samples of each batch.
 *
 * If a sample consists of bytes, is the same in every epoch, and becomes floats byte by byte
 * through a table, the host need not make batches: the indices of the samples are enough.  The
 * result is that of a loader, bit for bit. */
#ifndef TTI_DATA_RESIDENT_H
#define TTI_DATA_RESIDENT_H

#include "data/loader/loader.h"

/* Every sample as it is stored, with its label. */
typedef struct tti_resident {
    uint8_t *x; /* [n][n_elems] */
    int32_t *y; /* [n] */
    int64_t n;
    int32_t n_elems;
    tti_pixel_table table;
} tti_resident;

/* NULL, or why samples of the set must be made one by one: a text for people. */
const char *tti_resident_why_not(const tutti_dataset *ds);

/* Bytes of all samples, stored. */
size_t tti_resident_bytes(const tutti_dataset *ds);

/* Reads every sample, with n_threads in addition to the caller (0: none); the set must be able to
 * be resident.  Call tti_resident_free in any case. */
tutti_status tti_resident_load(const tutti_dataset *ds, int n_threads, tti_resident *out);
void tti_resident_free(tti_resident *set);

/* Batch number `step` of the run, counted over epochs, of a loader like desc (not sequential):
 * fills out but for its memory, and index [shards of the worker][rows per shard], -1 for rows that
 * do not exist. */
void tti_resident_batch(const tti_loader_desc *desc, int64_t step, tti_batch *out, int32_t *index);

#endif /* TTI_DATA_RESIDENT_H */
