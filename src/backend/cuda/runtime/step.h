/* step.h - launchers of step.cu: kernels between the programs of a step. */
#ifndef TTI_CUDA_STEP_H
#define TTI_CUDA_STEP_H

#include <cuda_runtime_api.h>

#include "backend/step_types.h"
#include "base/run.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether the device has code of these kernels: loads one, runs none. */
cudaError_t tti_launch_step_load(void);

/* runs[i] = fixed[i] with the step of args. */
cudaError_t tti_launch_begin_step(const tti_step_args *args, const tti_run *fixed, tti_run *runs,
                                  int n_runs, cudaStream_t stream);

/* See collect of tti_device_step_ops. */
cudaError_t tti_launch_collect(const tti_collected *collected, double *sums, cudaStream_t stream);

/* See gather, unpack and report of tti_device_step_ops. */
cudaError_t tti_launch_begin_gather(const tti_gather *gather, const tti_run *fixed, tti_run *runs,
                                    cudaStream_t stream);
cudaError_t tti_launch_unpack(const tti_unpack *unpack, cudaStream_t stream);
cudaError_t tti_launch_report(const tti_step_report *report, const double *sums, int n_sums,
                              void *host_report, cudaStream_t stream);

/* Waits for earlier work and does nothing: later kernels that start early have then waited, too. */
cudaError_t tti_launch_nothing(cudaStream_t stream);

/* dst[i] += src[i]. */
cudaError_t tti_launch_accumulate(float *dst, const float *src, size_t n_elems,
                                  cudaStream_t stream);

/* The same of values rounded to bf16, and the sum rounded again; src NULL: dst is rounded. */
cudaError_t tti_launch_accumulate_rounded(float *dst, const float *src, size_t n_elems,
                                          cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_STEP_H */
