/* timing.h - compares kernels on the device: memory with random numbers, and a clock.
 *
 * A failure only means that nothing is timed: no call leaves an error behind. */
#ifndef TTI_CUDA_TIMING_H
#define TTI_CUDA_TIMING_H

#include <cuda_runtime_api.h>
#include <stdbool.h>

#include "tutti/types.h"

enum { TTI_TRIAL_PLACES = 72 };

typedef struct tti_trial {
    void *memory[TTI_TRIAL_PLACES]; /* device; NULL: not allocated yet */
    cudaEvent_t from, to;
} tti_trial;

/* False: it cannot be.  tti_trial_close in any case. */
bool tti_trial_open(tti_trial *trial);
void tti_trial_close(tti_trial *trial);

/* memory[i]: bytes; or elements, floats at random and zeros of any other type. */
bool tti_trial_alloc(tti_trial *trial, int i, size_t n_bytes);
bool tti_trial_fill(tti_trial *trial, int i, tutti_dtype dtype, size_t n_elems);

/* Puts the work into the compute queue; false: it does not run. */
typedef bool (*tti_trial_run)(const void *user);

/* Microseconds of one of n runs; below 0: it does not run. */
double tti_trial_us(const tti_trial *trial, int n, tti_trial_run run, const void *user);

/* The least of n_timed runs by themselves, after n_warm of them; below 0: it does not run. */
double tti_trial_least_us(const tti_trial *trial, int n_warm, int n_timed, tti_trial_run run,
                          const void *user);

#endif /* TTI_CUDA_TIMING_H */
