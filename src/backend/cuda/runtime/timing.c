/* timing.c - memory for a comparison of kernels, and their times.
 *
 * Random numbers, since zeros draw less power and would run 10 % faster. */
#include "backend/cuda/runtime/timing.h"

#include "backend/cuda/runtime/cuda.h"
#include "backend/cuda/runtime/fill.h"

bool tti_trial_open(tti_trial *t) {
    *t = (tti_trial){0};
    return cudaEventCreate(&t->from) == cudaSuccess && cudaEventCreate(&t->to) == cudaSuccess;
}

void tti_trial_close(tti_trial *t) {
    for (size_t i = 0; i < TTI_COUNT(t->memory); i++) cudaFree(t->memory[i]);
    if (t->from) cudaEventDestroy(t->from);
    if (t->to) cudaEventDestroy(t->to);
    (void)cudaGetLastError();
}

bool tti_trial_alloc(tti_trial *t, int i, size_t n_bytes) {
    TTI_ASSERT(i < TTI_TRIAL_PLACES && !t->memory[i]);
    return cudaMalloc(&t->memory[i], n_bytes) == cudaSuccess;
}

bool tti_trial_fill(tti_trial *t, int i, tutti_dtype dtype, size_t n_elems) {
    return tti_trial_alloc(t, i, n_elems * tutti_dtype_bytes(dtype)) &&
           tti_cuda_fill_random(dtype, t->memory[i], n_elems, (uint32_t)i, tti_cuda_stream()) ==
               cudaSuccess;
}

static bool run_all(const tti_trial *t, int n, tti_trial_run run, const void *user, float *ms) {
    cudaStream_t stream = tti_cuda_stream();
    if (cudaEventRecord(t->from, stream) != cudaSuccess) return false;
    for (int i = 0; i < n; i++)
        if (!run(user)) return false;
    return cudaEventRecord(t->to, stream) == cudaSuccess &&
           cudaEventSynchronize(t->to) == cudaSuccess &&
           cudaEventElapsedTime(ms, t->from, t->to) == cudaSuccess;
}

double tti_trial_us(const tti_trial *t, int n, tti_trial_run run, const void *user) {
    float ms = 0;
    if (run_all(t, n, run, user, &ms)) return (double)ms * 1e3 / n;
    (void)cudaGetLastError();
    return -1;
}

double tti_trial_least_us(const tti_trial *t, int n_warm, int n_timed, tti_trial_run run,
                          const void *user) {
    double least = -1;
    for (int i = 0; i < n_warm + n_timed; i++) {
        double us = tti_trial_us(t, 1, run, user);
        if (us < 0) return us;
        if (i >= n_warm && (least < 0 || us < least)) least = us;
    }
    return least;
}
