/* link.c - measures a device's reads from another one: bandwidth, latency and correctness.
 *
 * Copies use the driver's best path, NVLink or PCIe, or the host if the devices do not reach each
 * other. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/runtime/device.h"

enum { N_LONG = 4, N_SHORT = 32, CHECKED = 1 << 20, MOST_DEVICES = 64 };
static const size_t long_bytes = (size_t)256 << 20;

typedef struct link_test {
    int here, there;
    void *dst, *src;
    cudaEvent_t begin, end;
    cudaStream_t stream;
} link_test;

/* A pattern that no fault leaves as it is; differs between links. */
static void fill(const link_test *t, uint32_t *words) {
    uint32_t x = 0x9E3779B9u ^ (uint32_t)(t->here * 64 + t->there + 1);
    for (size_t i = 0; i < CHECKED / sizeof *words; i++) {
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        words[i] = x;
    }
}

/* On the other device: memory that starts with a pattern. */
static cudaError_t make_source(link_test *t, const void *pattern) {
    cudaError_t error = cudaSetDevice(t->there);
    if (error == cudaSuccess) error = cudaMalloc(&t->src, long_bytes);
    if (error == cudaSuccess) error = cudaMemset(t->src, 0x5A, long_bytes);
    if (error == cudaSuccess) error = cudaMemcpy(t->src, pattern, CHECKED, cudaMemcpyHostToDevice);
    if (error == cudaSuccess) error = cudaDeviceSynchronize();
    cudaError_t back = cudaSetDevice(t->here);
    return error == cudaSuccess ? back : error;
}

static cudaError_t make_target(link_test *t) {
    cudaError_t error = cudaMalloc(&t->dst, long_bytes);
    if (error == cudaSuccess) error = cudaMemset(t->dst, 0, long_bytes);
    if (error == cudaSuccess) error = cudaStreamCreateWithFlags(&t->stream, cudaStreamNonBlocking);
    if (error == cudaSuccess) error = cudaEventCreate(&t->begin);
    if (error == cudaSuccess) error = cudaEventCreate(&t->end);
    return error == cudaSuccess ? cudaDeviceSynchronize() : error;
}

static cudaError_t time_copies(const link_test *t, size_t n_bytes, int n, double *seconds) {
    float ms = 0;
    cudaError_t error = cudaSuccess;
    for (int i = 0; i <= n && error == cudaSuccess; i++) { /* the first one is not timed */
        if (i == 1) error = cudaEventRecord(t->begin, t->stream);
        if (error == cudaSuccess)
            error = cudaMemcpyPeerAsync(t->dst, t->here, t->src, t->there, n_bytes, t->stream);
    }
    if (error == cudaSuccess) error = cudaEventRecord(t->end, t->stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(t->stream);
    if (error == cudaSuccess) error = cudaEventElapsedTime(&ms, t->begin, t->end);
    *seconds = (double)ms * 1e-3 / n;
    return error;
}

static cudaError_t measure(link_test *t, const void *pattern, void *got, tti_device_link *out) {
    double long_s = 0, short_s = 0;
    cudaError_t error = make_source(t, pattern);
    if (error == cudaSuccess) error = make_target(t);
    if (error == cudaSuccess) error = time_copies(t, long_bytes, N_LONG, &long_s);
    if (error == cudaSuccess) error = time_copies(t, sizeof(uint32_t), N_SHORT, &short_s);
    if (error == cudaSuccess) error = cudaMemcpy(got, t->dst, CHECKED, cudaMemcpyDeviceToHost);
    out->bytes_per_s = long_s > 0 ? (double)long_bytes / long_s : 0;
    out->latency_us = short_s * 1e6;
    out->is_right = memcmp(got, pattern, CHECKED) == 0;
    return error;
}

static void unmake(link_test *t) {
    if (t->begin) cudaEventDestroy(t->begin);
    if (t->end) cudaEventDestroy(t->end);
    if (t->stream) cudaStreamDestroy(t->stream);
    cudaFree(t->dst);
    if (t->src && cudaSetDevice(t->there) == cudaSuccess) cudaFree(t->src);
    if (cudaSetDevice(t->here) != cudaSuccess) cudaGetLastError();
}

/* Whether peer access is enabled: enabling it twice is an error of the driver, which is harmless
 * but reported by tools. */
static atomic_bool reached[MOST_DEVICES][MOST_DEVICES];

bool tti_cuda_reach(int there) {
    int can = 0, here = tti_cuda_index();
    if (here >= MOST_DEVICES || there < 0 || there >= MOST_DEVICES) return false;
    if (atomic_load(&reached[here][there])) return true;
    cudaError_t error = cudaDeviceCanAccessPeer(&can, here, there);
    if (error == cudaSuccess && can) error = cudaDeviceEnablePeerAccess(there, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) error = cudaSuccess;
    cudaGetLastError();
    bool is_open = error == cudaSuccess && can;
    if (is_open) atomic_store(&reached[here][there], true);
    return is_open;
}

/* Atomics of the hardware go over NVLink, and not over PCIe. */
bool tti_cuda_has_link(const unsigned char uuid[16]) {
    int n = 0, here = tti_cuda_index(), has = 0;
    struct cudaDeviceProp p;
    cudaGetDeviceCount(&n);
    for (int there = 0; there < n && !has; there++) {
        if (there == here || cudaGetDeviceProperties(&p, there) != cudaSuccess) continue;
        if (memcmp(&p.uuid, uuid, sizeof p.uuid) != 0) continue;
        cudaDeviceGetP2PAttribute(&has, cudaDevP2PAttrNativeAtomicSupported, here, there);
    }
    cudaGetLastError();
    return has != 0;
}

tutti_status tti_cuda_link(int other, tti_device_link *out) {
    link_test t = {.here = tti_cuda_index(), .there = other};
    uint32_t *pattern = malloc(CHECKED), *got = calloc(1, CHECKED);
    tutti_status st = TUTTI_OK;
    *out = (tti_device_link){.is_direct = tti_cuda_reach(other)};
    if (!pattern || !got) {
        st = tti_fail(TUTTI_E_NOMEM, "cuda: out of memory");
    } else {
        fill(&t, pattern);
        cudaError_t error = measure(&t, pattern, got, out);
        unmake(&t);
        st = tti_cuda_check(error, "a copy between devices");
    }
    free(pattern);
    free(got);
    return st;
}
