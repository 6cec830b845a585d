/* mma.cuh - the tensor core instructions (sm_80 and later) that our kernels use.
 *
 * m16n8k16: c[16,8] += a[16,16] b[16,8].  With g = lane / 4 and t = lane % 4 a thread holds of a
 * rows g, g+8 at columns 2t, 2t+1 (registers 0, 1) and 2t+8, 2t+9 (2, 3); of b rows 2t, 2t+1 (0)
 * and 2t+8, 2t+9 (1) at column g; of c rows g (0, 1) and g+8 (2, 3) at columns 2t, 2t+1. */
#ifndef TTI_MMA_CUH
#define TTI_MMA_CUH

#include "backend/cuda/runtime/device.cuh"

template <class T>
__device__ __forceinline__ void tti_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                        uint32_t b1);

template <>
__device__ __forceinline__ void tti_mma<tti_bf16>(float (&c)[4], const uint32_t (&a)[4],
                                                  uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void tti_mma<tti_f16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                                 uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* ---- tf32: m16n8k8 ----
 * a: (g, t), (g+8, t), (g, t+4), (g+8, t+4); b: (t, g), (t+4, g); c: (g, 2t), (g, 2t+1), (g+8, ..)
 */

__device__ __forceinline__ uint32_t tti_to_tf32(float x) {
    uint32_t r;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
}

__device__ __forceinline__ void tti_mma_tf32(float (&c)[4], const uint32_t (&a)[4],
                                             const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
        "{%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four 8x8 matrices of 16 bits: lane l gives the address of row l % 8 of matrix l / 8, and gets of
 * each matrix row g, columns 2t, 2t+1 (transposed: rows 2t, 2t+1 of column g). */
__device__ __forceinline__ void tti_ldmatrix(uint32_t (&r)[4], const void *row) {
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

__device__ __forceinline__ void tti_ldmatrix_transposed(uint32_t (&r)[4], const void *row) {
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* 16 bytes into shared memory without a register, zeros where !inside (from is not read). */
__device__ __forceinline__ void tti_copy_async(void *to, const void *from, bool inside) {
    uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    int n = inside ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(n)
                 : "memory");
}
__device__ __forceinline__ void tti_copy_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
__device__ __forceinline__ void tti_copy_wait() {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
}

/* 2^x to about 2 ulp; denormal results are 0. */
__device__ __forceinline__ float tti_exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Two values of 16 bits, the first in the low half. */
__device__ __forceinline__ uint32_t tti_pack(float lo, float hi, tti_bf16) {
    __nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
    return *reinterpret_cast<uint32_t *>(&v);
}
__device__ __forceinline__ uint32_t tti_pack(float lo, float hi, tti_f16) {
    __half2 v = __floats2half2_rn(lo, hi);
    return *reinterpret_cast<uint32_t *>(&v);
}

/* A step of adding over the 8 lanes that share columns: of 2 N columns this lane keeps the half
 * that its bit selects. */
template <int N>
__device__ __forceinline__ void tti_add_lanes(float (&total)[16], int lane, int bit) {
    bool upper = (lane & bit) != 0;
#pragma unroll
    for (int i = 0; i < N; i++) {
        float mine = upper ? total[i + N] : total[i];
        float other = upper ? total[i] : total[i + N];
        total[i] = mine + __shfl_xor_sync(0xffffffffu, other, bit);
    }
}

/* The sums over a warp of its threads' parts of 64 columns, thread t columns 8 j + t % 4 * 2 + e in
 * total[2 j + e]: lane l gets those of columns 2 l and 2 l + 1. */
__device__ __forceinline__ float2 tti_sum_columns(float (&total)[16], int lane) {
    tti_add_lanes<8>(total, lane, 16);
    tti_add_lanes<4>(total, lane, 8);
    tti_add_lanes<2>(total, lane, 4);
    return make_float2(total[0], total[1]);
}

#endif /* TTI_MMA_CUH */
