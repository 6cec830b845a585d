/* wgmma.cuh - Hopper's instructions: barriers in shared memory, the tensor copy engine, matrix
 * products of a warpgroup.  For sm_90a only; see the PTX ISA for the meaning of each one.
 *
 * Tiles in shared memory have rows of 128 bytes whose eight 16-byte units are permuted by the row
 * (the copy engine's 128-byte swizzle), and start at multiples of 1024 bytes. */
#ifndef TTI_CUDA_WGMMA_CUH
#define TTI_CUDA_WGMMA_CUH

#include <cuda.h>

#include "backend/cuda/gemm/mma.cuh"

__device__ __forceinline__ uint32_t shared_address(const void *x) {
    return (uint32_t)__cvta_generic_to_shared(x);
}

/* ---- barriers ---- */

__device__ __forceinline__ void barrier_init(uint64_t *barrier, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(count)
                 : "memory");
}

/* Makes the initialization visible to the copy engine and to the other blocks of the cluster. */
__device__ __forceinline__ void barrier_init_done() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_expect(uint64_t *barrier, uint32_t n_bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(n_bytes)
        : "memory");
}

__device__ __forceinline__ void barrier_arrive(uint64_t *barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}

/* On the same barrier of a block of the cluster. */
__device__ __forceinline__ void barrier_arrive_at(uint64_t *barrier, uint32_t block) {
    asm volatile(
        "{\n"
        ".reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
        "}\n" ::"r"(shared_address(barrier)),
        "r"(block)
        : "memory");
}

/* Until the phase of this parity is over. */
__device__ __forceinline__ void barrier_wait(uint64_t *barrier, uint32_t parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra over;\n"
        "bra again;\n"
        "over:\n"
        "}\n" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

/* The numbered barriers of a block, for n of its threads; 0 is __syncthreads. */
__device__ __forceinline__ void threads_sync(int id, int n) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory");
}
__device__ __forceinline__ void threads_arrive(int id, int n) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory");
}

/* All threads of all blocks of the cluster. */
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* ---- the copy engine; x is the place in a row, y the row ---- */

/* How long accessed data should stay in the L2 cache. */
static const uint64_t L2_NORMAL = 0x1000000000000000, L2_SHORT = 0x12F0000000000000,
                      L2_LONG = 0x14F0000000000000;

__device__ __forceinline__ void copy_in(void *to, const CUtensorMap *from, int x, int y,
                                        uint64_t *barrier, uint64_t l2) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
        "l"(from), "r"(x), "r"(y), "r"(shared_address(barrier)), "l"(l2)
        : "memory");
}

/* To the same place of every block in blocks, a bit each, and its same barrier. */
__device__ __forceinline__ void copy_in_many(void *to, const CUtensorMap *from, int x, int y,
                                             uint64_t *barrier, uint64_t l2, uint16_t blocks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"(
            shared_address(to)),
        "l"(from), "r"(x), "r"(y), "r"(shared_address(barrier)), "h"(blocks), "l"(l2)
        : "memory");
}

__device__ __forceinline__ void copy_out(const CUtensorMap *to, const void *from, int x, int y,
                                         uint64_t l2) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group.L2::cache_hint"
        " [%0, {%1, %2}], [%3], %4;" ::"l"(to),
        "r"(x), "r"(y), "r"(shared_address(from)), "l"(l2)
        : "memory");
}
__device__ __forceinline__ void copy_out_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/* Until all but the newest N groups of this thread have read their shared memory. */
template <int N>
__device__ __forceinline__ void copy_out_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
/* Waits until all data that this thread gave to the copy engine has arrived, also on other devices.
 */
__device__ __forceinline__ void copy_out_far() {
    asm volatile("cp.async.bulk.wait_group 0;\nfence.proxy.async;" ::: "memory");
    __threadfence_system();
}
/* Makes this thread's writes to shared memory visible to the copy engine after the next barrier. */
__device__ __forceinline__ void before_copy() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Four blocks of 8 x 8 from a warp: lane l gives the address of row l % 8 of block l / 8. */
__device__ __forceinline__ void tti_stmatrix(void *row, const uint32_t (&r)[4]) {
    asm volatile(
        "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(row)),
        "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
        : "memory");
}

/* ---- products ---- */

/* A tile whose rows of 64 elements lie along k: next 8 rows after 1024 bytes. */
__device__ __forceinline__ uint64_t describe_k_rows(const void *tile) {
    return (uint64_t)1 << 62 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 16 |
           (shared_address(tile) & 0x3FFFF) >> 4;
}

/* A matrix whose rows of 64 elements run across k: the next 8 of k after 1024 bytes, the next 64
 * after step. */
__device__ __forceinline__ uint64_t describe_k_columns(const void *tile, uint32_t step) {
    return (uint64_t)1 << 62 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)(step >> 4) << 16 |
           (shared_address(tile) & 0x3FFFF) >> 4;
}

__device__ __forceinline__ void product_begin() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void product_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int N>
__device__ __forceinline__ void product_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

#define TTI_8(as, d, i)                                                                           \
    as(d[i]), as(d[i + 1]), as(d[i + 2]), as(d[i + 3]), as(d[i + 4]), as(d[i + 5]), as(d[i + 6]), \
        as(d[i + 7])
#define TTI_32(as, d, i) \
    TTI_8(as, d, i), TTI_8(as, d, i + 8), TTI_8(as, d, i + 16), TTI_8(as, d, i + 24)
#define TTI_D_OF_32                                                          \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TTI_D_OF_64                                                                      \
    TTI_D_OF_32                                                                          \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define TTI_D_OF_80 \
    TTI_D_OF_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define TTI_D_OF_96 \
    TTI_D_OF_80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define TTI_PRODUCT_160(type, b_across, as, adds)                                     \
    asm volatile(                                                                     \
        "{\n"                                                                         \
        ".reg .pred adds;\n"                                                          \
        "setp.ne.b32 adds, %82, 0;\n"                                                 \
        "wgmma.mma_async.sync.aligned.m64n160k16.f32." type "." type " {" TTI_D_OF_80 \
        "}, %80, %81, adds, 1, 1, 0, %83;\n"                                          \
        "}\n"                                                                         \
        : TTI_32(as, d, 0), TTI_32(as, d, 32), TTI_8(as, d, 64), TTI_8(as, d, 72)     \
        : "l"(a), "l"(b), "n"(adds), "n"(b_across))
#define TTI_PRODUCT_192(type, b_across, as, adds)                                     \
    asm volatile(                                                                     \
        "{\n"                                                                         \
        ".reg .pred adds;\n"                                                          \
        "setp.ne.b32 adds, %98, 0;\n"                                                 \
        "wgmma.mma_async.sync.aligned.m64n192k16.f32." type "." type " {" TTI_D_OF_96 \
        "}, %96, %97, adds, 1, 1, 0, %99;\n"                                          \
        "}\n"                                                                         \
        : TTI_32(as, d, 0), TTI_32(as, d, 32), TTI_32(as, d, 64)                      \
        : "l"(a), "l"(b), "n"(adds), "n"(b_across))
#define TTI_SET(x) "=f"(x)
#define TTI_ADD(x) "+f"(x)

template <class T>
struct is_bf16 {
    static const bool value = false;
};
template <>
struct is_bf16<tti_bf16> {
    static const bool value = true;
};

/* A product of T. */
#define TTI_PRODUCT_BY_TYPE(PRODUCT)                   \
    if constexpr (is_bf16<T>::value && ADDS)           \
        PRODUCT("bf16", B_ACROSS ? 1 : 0, TTI_ADD, 1); \
    else if constexpr (is_bf16<T>::value)              \
        PRODUCT("bf16", B_ACROSS ? 1 : 0, TTI_SET, 0); \
    else if constexpr (ADDS)                           \
        PRODUCT("f16", B_ACROSS ? 1 : 0, TTI_ADD, 1);  \
    else                                               \
        PRODUCT("f16", B_ACROSS ? 1 : 0, TTI_SET, 0)

/* d[64][N] (+)= a[64][16] b[16][N] by the 128 threads of a warpgroup, N 192 or 160; ADDS: adds to
 * d; B_ACROSS: rows of b run across k, in runs of 64, of which the last one may be read partially.
 * Thread t has of row t / 32 * 16 + t % 32 / 4 + 8 h, column 8 j + t % 4 * 2 + e in d[4 j + 2 h +
 * e]. */
template <class T, bool B_ACROSS, bool ADDS>
__device__ __forceinline__ void product_wide(float (&d)[96], uint64_t a, uint64_t b) {
    TTI_PRODUCT_BY_TYPE(TTI_PRODUCT_192);
}
template <class T, bool B_ACROSS, bool ADDS>
__device__ __forceinline__ void product_wide(float (&d)[80], uint64_t a, uint64_t b) {
    TTI_PRODUCT_BY_TYPE(TTI_PRODUCT_160);
}

#define TTI_PRODUCT_OF_64(as, adds, across)                                  \
    asm volatile(                                                            \
        "{\n"                                                                \
        ".reg .pred adds;\n"                                                 \
        "setp.ne.b32 adds, %34, 0;\n"                                        \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" TTI_D_OF_32 \
        "}, %32, %33, adds, 1, 1, 0, %35;\n"                                 \
        "}\n"                                                                \
        : TTI_32(as, d, 0)                                                   \
        : "l"(a), "l"(b), "n"(adds), "n"(across))
#define TTI_PRODUCT_OF_128(as, adds, across)                                  \
    asm volatile(                                                             \
        "{\n"                                                                 \
        ".reg .pred adds;\n"                                                  \
        "setp.ne.b32 adds, %66, 0;\n"                                         \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" TTI_D_OF_64 \
        "}, %64, %65, adds, 1, 1, 0, %67;\n"                                  \
        "}\n"                                                                 \
        : TTI_32(as, d, 0), TTI_32(as, d, 32)                                 \
        : "l"(a), "l"(b), "n"(adds), "n"(across))

/* d[64][2 N] (+)= a[64][16] b[16][2 N] of bf16, N elements of d; else as product_wide. */
template <bool ACROSS, bool ADDS>
__device__ __forceinline__ void product(float (&d)[32], uint64_t a, uint64_t b) {
    if constexpr (ADDS)
        TTI_PRODUCT_OF_64(TTI_ADD, 1, ACROSS ? 1 : 0);
    else
        TTI_PRODUCT_OF_64(TTI_SET, 0, ACROSS ? 1 : 0);
}
template <bool ACROSS, bool ADDS>
__device__ __forceinline__ void product(float (&d)[64], uint64_t a, uint64_t b) {
    if constexpr (ADDS)
        TTI_PRODUCT_OF_128(TTI_ADD, 1, ACROSS ? 1 : 0);
    else
        TTI_PRODUCT_OF_128(TTI_SET, 0, ACROSS ? 1 : 0);
}

/* The compiler must not read d before this line. */
template <int N>
__device__ __forceinline__ void product_done(float (&d)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory");
}

#endif /* TTI_CUDA_WGMMA_CUH */
