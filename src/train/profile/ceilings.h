/* ceilings.h - measures the peak throughput of a device with a large matrix product and a large
 * copy. */
#ifndef TTI_TRAIN_CEILINGS_H
#define TTI_TRAIN_CEILINGS_H

#include "backend/backend.h"

typedef struct tti_ceilings {
    double flops; /* operations per second of a matrix product of dtype */
    double bytes; /* read and written per second by a copy */
    tutti_dtype dtype;
    int64_t side; /* side of the square matrices */
} tti_ceilings;

/* Measures the device that the calling thread has open, or one core of the host, on random data.
 * Takes at most a second. */
tutti_status tti_ceilings_measure(const tti_backend *backend, tutti_dtype dtype, tti_ceilings *out);

#endif /* TTI_TRAIN_CEILINGS_H */
