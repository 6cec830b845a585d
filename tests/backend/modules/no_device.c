/* no_device.c - what the files that open libraries call once there is a device: there is none. */
#include "backend/cuda/gemm/gemm.h"
#include "backend/cuda/runtime/cuda.h"
#include "backend/cuda/runtime/timing.h"
#include "base/error.h"

tti_cuda *tti_cuda_device(void) { return NULL; }

int tti_cuda_index(void) { return 0; }

cudaStream_t tti_cuda_stream(void) { return NULL; }

tutti_status tti_cuda_check(cudaError_t error, const char *what) {
    return error == cudaSuccess ? TUTTI_OK : tti_fail(TUTTI_E_DEVICE, "%s: no device", what);
}

cudaError_t tti_cuda_gemm(const tti_cuda_gemm_desc *desc, cudaStream_t stream) {
    (void)desc, (void)stream;
    return cudaErrorNoDevice;
}

bool tti_trial_open(tti_trial *trial) {
    (void)trial;
    return false;
}

void tti_trial_close(tti_trial *trial) { (void)trial; }

bool tti_trial_alloc(tti_trial *trial, int i, size_t n_bytes) {
    (void)trial, (void)i, (void)n_bytes;
    return false;
}

bool tti_trial_fill(tti_trial *trial, int i, tutti_dtype dtype, size_t n_elems) {
    (void)trial, (void)i, (void)dtype, (void)n_elems;
    return false;
}

double tti_trial_us(const tti_trial *trial, int n, tti_trial_run run, const void *user) {
    (void)trial, (void)n, (void)run, (void)user;
    return -1;
}
