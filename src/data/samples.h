/* samples.h - samples in the memory of the program (tutti_samples): checks and copies. */
#ifndef TTI_DATA_SAMPLES_H
#define TTI_DATA_SAMPLES_H

#include "tutti/data.h"

/* Copies the struct with its lists and names, not the arrays.  TUTTI_E_INVALID for samples that
 * cannot be.  On success *out is owned by the caller; freed by tti_samples_free. */
tutti_status tti_samples_copy(const tutti_samples *samples, tutti_samples **out);
void tti_samples_free(tutti_samples *samples); /* NULL is a no-op */

/* Bytes of a sample with each field at a multiple of 64. */
size_t tti_samples_bytes(const tutti_samples *samples);

/* Writes sample index into memory [tti_samples_bytes], field i at fields[i].  Only with get.
 * TUTTI_E_DATA if it fails. */
tutti_status tti_samples_get(const tutti_samples *samples, int64_t index, void *memory,
                             void **fields);

#endif /* TTI_DATA_SAMPLES_H */
