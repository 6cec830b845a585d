/* p2p.cu - copies values from one device into the memory of another.
 *
 * The sender writes: the data is then in the reader's memory when its kernels begin, and writes
 * over the link are pipelined, unlike reads.  The last block of a put that has written notifies the
 * reader.  A wait ends when the host aborts it or the time is over, as in peers.cu; nothing is then
 * written into memory of others.
 *
 * Slots are counted on the device, in 64 bits, so that a captured graph can be replayed. */
#include "backend/cuda/comm/p2p.h"
#include "backend/cuda/comm/peers.cuh"
#include "backend/cuda/runtime/load.cuh"

/* OVERLAPPED_BLOCKS: as for a sum that overlaps with matrix products; enough to saturate a link. */
enum { THREADS = 512, OVERLAPPED_BLOCKS = 16, MOST_BLOCKS = 64, UNROLL = 4 };

/* Waits until a count has reached wanted; false: aborted. */
__device__ __forceinline__ bool wait_for(const tti_peers_view &v, const uint64_t *count,
                                         uint64_t wanted) {
    uint64_t seen, start = tti_now_ns();
    for (uint32_t n = 1;; n++) {
        asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(seen) : "l"(count) : "memory");
        if (seen >= wanted) return true;
        if (n % TTI_PEERS_PATIENCE == 0 && tti_is_hopeless(v, start)) return false;
    }
}

__device__ __forceinline__ void store_release(uint64_t *count, uint64_t value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(count), "l"(value) : "memory");
}

/* Copies in units of R, and the rest in bytes. */
template <class R>
__device__ __forceinline__ void copy_units(const void *from, void *to, size_t n_bytes) {
    const R *src = (const R *)from;
    R *dst = (R *)to;
    size_t n = n_bytes / sizeof(R), step = (size_t)gridDim.x * blockDim.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + (UNROLL - 1) * step < n; i += UNROLL * step) {
        R unit[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) unit[u] = src[i + u * step];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) dst[i + u * step] = unit[u];
    }
    for (; i < n; i += step) dst[i] = src[i];
    size_t done = n * sizeof(R);
    if (blockIdx.x == 0 && threadIdx.x < n_bytes - done)
        ((char *)to)[done + threadIdx.x] = ((const char *)from)[done + threadIdx.x];
}

template <class R>
__global__ void __launch_bounds__(THREADS)
    put_kernel(const __grid_constant__ tti_peers_view v, int to, int slot, const void *src,
               void *dst, size_t n_bytes) {
    tti_peers_p2p *mine = &v.arena[v.rank]->p2p;
    __shared__ bool good;
    uint64_t n_sent = 0;
    if (threadIdx.x == 0) {
        n_sent = mine->sent[slot]; /* which the last block to come writes */
        good = wait_for(v, &mine->emptied[slot], n_sent);
    }
    __syncthreads();
    if (!good) return;
    copy_units<R>(src, dst, n_bytes);
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x != 0) return;
    if (atomicAdd(&mine->arrived[slot], 1u) != gridDim.x - 1) return;
    mine->arrived[slot] = 0;
    mine->sent[slot] = n_sent + 1;
    __threadfence_system();
    store_release(&v.arena[to]->p2p.filled[slot], n_sent + 1);
}

__global__ void take_kernel(const __grid_constant__ tti_peers_view v, int slot) {
    tti_peers_p2p *mine = &v.arena[v.rank]->p2p;
    wait_for(v, &mine->filled[slot], mine->taken[slot] + 1);
}

/* In a group that has failed it may not have been full. */
__global__ void leave_kernel(const __grid_constant__ tti_peers_view v, int slot, int from) {
    uint64_t *taken = &v.arena[v.rank]->p2p.taken[slot], n = *taken + 1;
    if (*(volatile uint32_t *)v.state) return;
    *taken = n;
    store_release(&v.arena[from]->p2p.emptied[slot], n);
}

/* ---- launchers ---- */

extern "C" cudaError_t tti_launch_send(const tti_peers_view *view,
                                       const tti_device_message *message, void *dst,
                                       bool overlapped, cudaStream_t stream) {
    size_t n_blocks = message->n_bytes / (16 * THREADS) + 1;
    size_t most = overlapped ? (size_t)OVERLAPPED_BLOCKS : (size_t)MOST_BLOCKS;
    unsigned grid = (unsigned)(n_blocks < most ? n_blocks : most);
    if (((uintptr_t)message->src | (uintptr_t)dst) % 16 == 0)
        put_kernel<uint4><<<grid, THREADS, 0, stream>>>(*view, message->to, message->slot,
                                                        message->src, dst, message->n_bytes);
    else
        put_kernel<unsigned char><<<grid, THREADS, 0, stream>>>(
            *view, message->to, message->slot, message->src, dst, message->n_bytes);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_recv(const tti_peers_view *view, int slot, cudaStream_t stream) {
    take_kernel<<<1, 1, 0, stream>>>(*view, slot);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_release(const tti_peers_view *view, int slot, int from,
                                          cudaStream_t stream) {
    leave_kernel<<<1, 1, 0, stream>>>(*view, slot, from);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_p2p_load(void) {
    return tti_load_kernels(put_kernel<uint4>, put_kernel<unsigned char>, take_kernel,
                            leave_kernel);
}
