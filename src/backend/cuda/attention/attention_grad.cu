/* attention_grad.cu - the gradient of attention on Hopper's tensor cores, D = 64.
 *
 * A block processes one head of a sample after the other.  It keeps a block of 128 keys and loops
 * over the blocks of 128 queries that see it; one warp feeds the copy engine, which prefetches
 * queries and dy two deep, and three prepare row values for the next head.  Two warpgroups have 64
 * keys each: scores and their gradients are computed transposed, so that they are in registers in
 * the form that dV += P^T dy and dK += dS^T q need, and dS goes through shared memory for dQ = dS
 * k.
 *
 * dQ is summed in f32 over the blocks of keys, in memory that belongs to the block and stays in the
 * L2 cache, each element by one thread in the order of keys: always the same bits.  So are the sums
 * of dqkv's columns, a bias' gradient, if requested: each warp writes those of its rows.  Where
 * several query heads read one key head, each writes its own dK and dV in f32, and a second kernel
 * adds these in the order of heads. */
#include "backend/cuda/attention/attention_grad.h"

#include "backend/cuda/gemm/tensor_map.cuh"

namespace {

enum {
    DIM = 64,
    BLOCK = 128, /* keys, and queries, of a tile */
    STAGES = 2,  /* of queries and dy; keys and values, dS, what rows need */
    TILE_BYTES = BLOCK * DIM * 2,
    TEAM = 128, /* threads of a warpgroup */
    TEAMS = 2,  /* that multiply */
    THREADS = (TEAMS + 1) * TEAM,
    WARPS = THREADS / 32,
    LOADER_REGISTERS = 40, /* of 168 that each thread starts with */
    WORKER_REGISTERS = 232,
    MAX_T = 2048
};
#define LOG2E 1.4426950408889634f

struct grad_job {
    const tti_bf16 *y, *dy;
    const float *lse;
    tti_bf16 *dqkv;
    float4 *sums;    /* of dQ: [blocks of the grid][n_blocks][TEAMS][8][TEAM] */
    float *columns;  /* [samples][TEAMS * 4 warps][3 heads DIM]: of dqkv's columns; NULL: none */
    float *of_heads; /* [dK, dV][rows][heads DIM], where several query heads read a key head */
    int64_t n_rows;  /* of all samples */
    int n_t, heads, n_tasks, n_blocks; /* n_tasks: heads of all samples; n_blocks: of queries */
    int kv_heads, group;               /* query heads of each key head */
    float scale;
};

/* A row's lse LOG2E and delta, of each query in the order of place_of. */
struct row_values {
    float lse[MAX_T], delta[MAX_T];
};

struct grad_shared {
    alignas(1024) uint8_t k[STAGES][TILE_BYTES];
    uint8_t v[STAGES][TILE_BYTES];
    uint8_t q[STAGES][TILE_BYTES], dy[STAGES][TILE_BYTES];
    uint8_t ds[STAGES][TEAMS][TILE_BYTES]; /* of 64 queries each: [128 keys][64] */
    row_values rows[2];
    uint64_t full[STAGES], empty[STAGES], kv_full[STAGES], kv_empty[STAGES], rows_full[2],
        rows_empty[2];
};

/* A thread needs of 16 columns 16 i .. four: 2 t, 2 t + 1, 2 t + 8 and 2 t + 9.  They lie side by
 * side. */
__device__ __forceinline__ int place_of(int query) {
    return query / 16 * 16 + query % 8 / 2 * 4 + query / 8 % 2 * 2 + query % 2;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* ---- products ---- */

#define TTI_D_32                                                             \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define TTI_D_64                                                                         \
    TTI_D_32                                                                             \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

/* d[64][128] (+)= a[64][16] b[16][128], both with rows along k. */
#define TTI_PRODUCT_128(as, adds)                                          \
    asm volatile(                                                          \
        "{\n"                                                              \
        ".reg .pred adds;\n"                                               \
        "setp.ne.b32 adds, %66, 0;\n"                                      \
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" TTI_D_64 \
        "}, %64, %65, adds, 1, 1, 0, 0;\n"                                 \
        "}\n"                                                              \
        : TTI_32(as, d, 0), TTI_32(as, d, 32)                              \
        : "l"(a), "l"(b), "n"(adds))

template <bool ADDS>
__device__ __forceinline__ void product_128(float (&d)[64], uint64_t a, uint64_t b) {
    if constexpr (ADDS)
        TTI_PRODUCT_128(TTI_ADD, 1);
    else
        TTI_PRODUCT_128(TTI_SET, 0);
}

/* d[64][64] += a[64][16] b[16][64], a in registers, of b the rows across k. */
__device__ __forceinline__ void product_64(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" TTI_D_32
                 "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;\n"
                 : TTI_32(TTI_ADD, d, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/* d[64][64] (+)= a[64][16] b[16][64], of both the rows across k. */
#define TTI_PRODUCT_64(as, adds)                                          \
    asm volatile(                                                         \
        "{\n"                                                             \
        ".reg .pred adds;\n"                                              \
        "setp.ne.b32 adds, %34, 0;\n"                                     \
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" TTI_D_32 \
        "}, %32, %33, adds, 1, 1, 1, 1;\n"                                \
        "}\n"                                                             \
        : TTI_32(as, d, 0)                                                \
        : "l"(a), "l"(b), "n"(adds))

template <bool ADDS>
__device__ __forceinline__ void product_64_across(float (&d)[32], uint64_t a, uint64_t b) {
    if constexpr (ADDS)
        TTI_PRODUCT_64(TTI_ADD, 1);
    else
        TTI_PRODUCT_64(TTI_SET, 0);
}

/* ---- tasks ---- */

/* A head of a sample: its first row, its first column of y. */
struct place {
    int row, col;
};

__device__ __forceinline__ place place_of_task(const grad_job &job, int task) {
    place p = {task / job.heads * job.n_t, task % job.heads * DIM};
    return p;
}

/* The first column of a head's keys (part 1) or values (2) in qkv. */
template <bool GROUPED>
__device__ __forceinline__ int column_of_part(const grad_job &job, const place &p, int part) {
    if (!GROUPED) return p.col + part * job.heads * DIM;
    return (job.heads + (part - 1) * job.kv_heads + p.col / DIM / job.group) * DIM;
}

__device__ __forceinline__ int first_query_block(bool causal, int key_block) {
    return causal ? key_block : 0;
}

/* ---- what rows need ---- */

__device__ __forceinline__ float dot_two(uint32_t x, uint32_t y, float sum) {
    sum = fmaf(__uint_as_float(x << 16), __uint_as_float(y << 16), sum);
    return fmaf(__uint_as_float(x & 0xffff0000u), __uint_as_float(y & 0xffff0000u), sum);
}

/* Eight lanes for a row, AT_ONCE rows of each at a time. */
template <int AT_ONCE>
__device__ __forceinline__ void fill_rows(const grad_job &job, int task, row_values &out, int warp,
                                          int n_warps) {
    place p = place_of_task(job, task);
    int lane = threadIdx.x % 32;
    int64_t width = (int64_t)job.heads * DIM;
    const float *lse = job.lse + (int64_t)task * job.n_t;
#pragma unroll 2
    for (int row = warp * 32 + lane; row < job.n_t; row += n_warps * 32)
        out.lse[place_of(row)] = __ldg(lse + row) * LOG2E;
    for (int row = (warp * 4 + lane / 8) * AT_ONCE; row < job.n_t; row += n_warps * 4 * AT_ONCE) {
        uint4 y[AT_ONCE], dy[AT_ONCE];
        int64_t at = (p.row + row) * width + p.col + lane % 8 * 8;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            y[i] = __ldg((const uint4 *)(job.y + at + i * width));
            dy[i] = __ldg((const uint4 *)(job.dy + at + i * width));
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            float sum = dot_two(y[i].x, dy[i].x, 0);
            sum = dot_two(y[i].y, dy[i].y, sum);
            sum = dot_two(y[i].z, dy[i].z, sum);
            sum = dot_two(y[i].w, dy[i].w, sum);
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            sum += __shfl_xor_sync(0xffffffffu, sum, 4);
            if (lane % 8 == 0) out.delta[place_of(row + i)] = sum;
        }
    }
}

/* Row values of the next head, by the warps next to the loader; those of the first head exist
 * already. */
__device__ __forceinline__ void fill_ahead(grad_shared &s, const grad_job &job, int warp) {
    uint32_t n = 0;
    for (int task = blockIdx.x; task < job.n_tasks; task += gridDim.x, n++) {
        barrier_wait(&s.rows_empty[n % 2], n / 2 % 2 ^ 1);
        if (n > 0) fill_rows<2>(job, task, s.rows[n % 2], warp - 1, TEAM / 32 - 1);
        barrier_arrive(&s.rows_full[n % 2]);
    }
}

/* ---- the loader: one thread ---- */

template <bool CAUSAL, bool GROUPED>
__device__ __forceinline__ void load_tiles(grad_shared &s, const CUtensorMap *qkv,
                                           const CUtensorMap *dy, const grad_job &job) {
    uint32_t turn = 0, kv = 0;
    for (int task = blockIdx.x; task < job.n_tasks; task += gridDim.x) {
        place p = place_of_task(job, task);
        int k = column_of_part<GROUPED>(job, p, 1), v = column_of_part<GROUPED>(job, p, 2);
        for (int j = 0; j < job.n_blocks; j++, kv++) {
            uint64_t *both = &s.kv_full[kv % STAGES];
            barrier_wait(&s.kv_empty[kv % STAGES], kv / STAGES % 2 ^ 1);
            barrier_expect(both, 2 * TILE_BYTES);
            copy_in(s.k[kv % STAGES], qkv, k, p.row + j * BLOCK, both, L2_SHORT);
            copy_in(s.v[kv % STAGES], qkv, v, p.row + j * BLOCK, both, L2_SHORT);
            for (int i = first_query_block(CAUSAL, j); i < job.n_blocks; i++, turn++) {
                uint32_t stage = turn % STAGES;
                barrier_wait(&s.empty[stage], turn / STAGES % 2 ^ 1);
                barrier_expect(&s.full[stage], 2 * TILE_BYTES);
                copy_in(s.q[stage], qkv, p.col, p.row + i * BLOCK, &s.full[stage], L2_NORMAL);
                copy_in(s.dy[stage], dy, p.col, p.row + i * BLOCK, &s.full[stage], L2_NORMAL);
            }
        }
    }
}

/* ---- the workers ---- */

/* The position of this thread: the warpgroup, and its place in it. */
struct worker {
    int team, thread, warp, lane;
};

__device__ __forceinline__ void give_back(uint64_t *barrier, int lane) {
    __syncwarp();
    if (lane == 0) barrier_arrive(barrier);
}

/* Transposes a 4 x 4 matrix of words between four lanes. */
__device__ __forceinline__ void turn_quad(uint32_t (&r)[4], int lane) {
    bool odd = lane % 2, upper = lane / 2 % 2;
#pragma unroll
    for (int i = 0; i < 4; i += 2) {
        uint32_t got = __shfl_xor_sync(0xffffffffu, odd ? r[i] : r[i + 1], 1);
        if (odd)
            r[i] = got;
        else
            r[i + 1] = got;
    }
#pragma unroll
    for (int i = 0; i < 2; i++) {
        uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? r[i] : r[i + 2], 2);
        if (upper)
            r[i] = got;
        else
            r[i + 2] = got;
    }
}

/* 64 rows of sum times factor, to the rows from `to` on. */
__device__ __forceinline__ void store_rows(const float (&sum)[32], float factor, const worker &w,
                                           tti_bf16 *to, int64_t step) {
    to += (w.warp * 16 + w.lane / 4) * step + w.lane % 4 * 8;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t r[4];
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int at = (half * 4 + i) * 4 + h * 2;
                r[i] = tti_pack(sum[at] * factor, sum[at + 1] * factor, tti_bf16());
            }
            turn_quad(r, w.lane);
            *reinterpret_cast<uint4 *>(to + h * 8 * step + half * 32) =
                make_uint4(r[0], r[1], r[2], r[3]);
        }
}

/* A step of a walk: task, block of keys, block of queries. */
struct step_of_walk {
    int task, j, i;
};

/* Adds the columns of a warp's 16 rows of sum times factor to those of the head's previous blocks,
 * each element by one thread.  Lane l has columns 2 l and 2 l + 1. */
__device__ __forceinline__ void add_columns(const float (&sum)[32], float factor, bool first,
                                            const worker &w, float *to) {
    float total[16];
#pragma unroll
    for (int i = 0; i < 16; i++) total[i] = sum[i / 2 * 4 + i % 2] + sum[i / 2 * 4 + 2 + i % 2];
    float2 two = tti_sum_columns(total, w.lane);
    two.x *= factor, two.y *= factor;
    to += w.lane * 2;
    if (first)
        *reinterpret_cast<float2 *>(to) = two;
    else
        asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(two.x),
                     "f"(two.y)
                     : "memory");
}

/* The same in f32. */
__device__ __forceinline__ void store_rows_f32(const float (&sum)[32], float factor,
                                               const worker &w, float *to, int64_t step) {
    to += (w.warp * 16 + w.lane / 4) * step + w.lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int h = 0; h < 2; h++)
            *reinterpret_cast<float2 *>(to + h * 8 * step + i * 8) =
                make_float2(sum[i * 4 + h * 2] * factor, sum[i * 4 + h * 2 + 1] * factor);
}

/* 64 rows of dqkv from this team's first of a block on, part 0: dQ, 1: dK, 2: dV. */
template <bool GROUPED>
__device__ __forceinline__ void store_part(const grad_job &job, int task, int part, int block,
                                           const float (&sum)[32], float factor, const worker &w) {
    place p = place_of_task(job, task);
    int width = job.heads * DIM, step = GROUPED ? width + 2 * job.kv_heads * DIM : 3 * width;
    int64_t row = p.row + block * BLOCK + w.team * 64;
    if (GROUPED && part > 0) {
        float *to = job.of_heads + ((part - 1) * job.n_rows + row) * width + p.col;
        store_rows_f32(sum, factor, w, to, width);
        return;
    }
    store_rows(sum, factor, w, job.dqkv + row * step + (p.col + part * width), step);
    if (GROUPED || !job.columns) return;
    int at = (p.row / job.n_t * TEAMS + w.team) * (TEAM / 32) + w.warp;
    add_columns(sum, factor, block == 0, w,
                job.columns + (int64_t)at * step + (p.col + part * width));
}

/* dq of a step joins the sum of the blocks of keys before; the last one stores it.  Sums are
 * to stay in the L2 cache, before queries and dy, which are only read. */
template <bool CAUSAL, bool GROUPED>
__device__ __forceinline__ void add_dq(const grad_job &job, const step_of_walk &at, const worker &w,
                                       float (&dq)[32]) {
    float4 *sums =
        job.sums +
        (uint32_t)(((blockIdx.x * job.n_blocks + at.i) * TEAMS + w.team) * 8 * TEAM + w.thread);
    bool last = CAUSAL ? at.i == at.j : at.j == job.n_blocks - 1;
    if (last) {
        if (at.j > 0)
#pragma unroll
            for (int r = 0; r < 8; r++) {
                float x, y, z, t;
                asm volatile(
                    "ld.relaxed.gpu.global.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
                    : "=f"(x), "=f"(y), "=f"(z), "=f"(t)
                    : "l"(sums + r * TEAM), "l"(L2_SHORT)
                    : "memory");
                dq[r * 4] += x, dq[r * 4 + 1] += y, dq[r * 4 + 2] += z, dq[r * 4 + 3] += t;
            }
        store_part<GROUPED>(job, at.task, 0, at.i, dq, job.scale, w);
    } else if (at.j == 0) {
#pragma unroll
        for (int r = 0; r < 8; r++)
            asm volatile(
                "st.relaxed.gpu.global.L2::cache_hint.v4.f32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(
                    sums + r * TEAM),
                "f"(dq[r * 4]), "f"(dq[r * 4 + 1]), "f"(dq[r * 4 + 2]), "f"(dq[r * 4 + 3]),
                "l"(L2_LONG)
                : "memory");
    } else {
#pragma unroll
        for (int r = 0; r < 8; r++)
            asm volatile(
                "red.relaxed.gpu.global.add.L2::cache_hint.v4.f32 [%0], {%1, %2, %3, %4}, %5;" ::
                    "l"(sums + r * TEAM),
                "f"(dq[r * 4]), "f"(dq[r * 4 + 1]), "f"(dq[r * 4 + 2]), "f"(dq[r * 4 + 3]),
                "l"(L2_LONG)
                : "memory");
    }
}

/* p = 2^(s scale2 - lse) in 16 bits, zero where the query does not see the key. */
template <bool CAUSAL>
__device__ __forceinline__ void weigh(float (&s)[64], const float *lse, float scale2,
                                      const worker &w, bool diagonal, uint32_t (&p)[8][4]) {
#pragma unroll
    for (int n = 0; n < 8; n++) {
        float4 four = *reinterpret_cast<const float4 *>(lse + n * 16 + w.lane % 4 * 4);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float of = i / 4 ? (i % 2 ? four.w : four.z) : (i % 2 ? four.y : four.x);
            s[n * 8 + i] = tti_exp2(fmaf(s[n * 8 + i], scale2, -of));
        }
    }
    if (CAUSAL && diagonal) {
        int key = w.team * 64 + w.warp * 16 + w.lane / 4 - w.lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 64; i++)
            if (key > i / 4 * 8 + i % 2 - i / 2 % 2 * 8) s[i] = 0;
    }
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            p[n][i] = tti_pack(s[n * 8 + i * 2], s[n * 8 + i * 2 + 1], tti_bf16());
}

/* ds = p (dp - delta), which is also left in shared memory. */
__device__ __forceinline__ void finish_scores(const uint32_t (&p)[8][4], const float (&dp)[64],
                                              const float *delta, const worker &w,
                                              uint8_t (&panels)[TEAMS][TILE_BYTES],
                                              uint32_t (&ds)[8][4]) {
    int row = w.team * 64 + w.warp * 16 + w.lane % 16;
    uint32_t unit = (w.lane / 16) ^ (w.lane % 8);
    uint8_t *to = panels[0] + row * 128;
#pragma unroll
    for (int n = 0; n < 8; n++) {
        float4 four = *reinterpret_cast<const float4 *>(delta + n * 16 + w.lane % 4 * 4);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float x = __uint_as_float(p[n][i] << 16), y = __uint_as_float(p[n][i] & 0xffff0000u);
            x *= dp[n * 8 + i * 2] - (i / 2 ? four.z : four.x);
            y *= dp[n * 8 + i * 2 + 1] - (i / 2 ? four.w : four.y);
            ds[n][i] = tti_pack(x, y, tti_bf16());
        }
        tti_stmatrix(to + n / 4 * TILE_BYTES + ((unit * 16) ^ (n % 4 * 32)), ds[n]);
    }
}

/* The ring positions of a step, by the number of previous steps and blocks of keys. */
struct turns {
    uint32_t step, kv;
};

/* x = k q^T. */
__device__ __forceinline__ void begin_scores(grad_shared &s, const worker &w, const turns &t,
                                             float (&x)[64]) {
    uint64_t a = describe_k_rows(s.k[t.kv % STAGES] + w.team * 64 * 128);
    uint64_t b = describe_k_rows(s.q[t.step % STAGES]);
    product_begin();
    product_128<false>(x, a, b);
#pragma unroll
    for (int k = 1; k < 4; k++) product_128<true>(x, a + 2 * k, b + 2 * k);
    product_commit();
}

/* dp = v dy^T. */
__device__ __forceinline__ void begin_grads(grad_shared &s, const worker &w, const turns &t,
                                            float (&dp)[64]) {
    uint64_t a = describe_k_rows(s.v[t.kv % STAGES] + w.team * 64 * 128);
    uint64_t b = describe_k_rows(s.dy[t.step % STAGES]);
    product_begin();
    product_128<false>(dp, a, b);
#pragma unroll
    for (int k = 1; k < 4; k++) product_128<true>(dp, a + 2 * k, b + 2 * k);
    product_commit();
}

/* sum += weights tile, whose rows are the weights' columns. */
__device__ __forceinline__ void begin_sum(float (&sum)[32], const uint32_t (&weights)[8][4],
                                          const uint8_t *tile) {
    uint64_t b = describe_k_columns(tile, TILE_BYTES);
    product_begin();
#pragma unroll
    for (int n = 0; n < 8; n++) product_64(sum, weights[n], b + n * 128);
    product_commit();
}

/* dq = ds k, of the team's 64 queries. */
__device__ __forceinline__ void begin_dq(grad_shared &s, const worker &w, const turns &t,
                                         float (&dq)[32]) {
    uint64_t a = describe_k_columns(s.ds[t.step % STAGES][w.team], TILE_BYTES);
    uint64_t b = describe_k_columns(s.k[t.kv % STAGES], TILE_BYTES);
    product_begin();
    product_64_across<false>(dq, a, b);
#pragma unroll
    for (int n = 1; n < 8; n++) product_64_across<true>(dq, a + n * 128, b + n * 128);
    product_commit();
}

/* A block of keys against all blocks of queries that see it.  While one team processes its
 * registers the tensor cores serve the other. */
template <bool CAUSAL, bool GROUPED>
__device__ __forceinline__ void walk_queries(grad_shared &s, const worker &w, const grad_job &job,
                                             const row_values &rows, step_of_walk at, turns &t,
                                             float (&dk)[32], float (&dv)[32]) {
#pragma unroll 1
    for (at.i = first_query_block(CAUSAL, at.j); at.i < job.n_blocks; at.i++, t.step++) {
        float x[64], dp[64], dq[32];
        uint32_t p[8][4], ds[8][4], stage = t.step % STAGES;
        barrier_wait(&s.full[stage], t.step / STAGES % 2);
        begin_scores(s, w, t, x);
        begin_grads(s, w, t, dp);
        product_wait<1>();
        product_done(x);
        weigh<CAUSAL>(x, rows.lse + at.i * BLOCK, job.scale * LOG2E, w, at.i == at.j, p);
        begin_sum(dv, p, s.dy[stage]);
        product_wait<1>();
        product_done(dp);
        finish_scores(p, dp, rows.delta + at.i * BLOCK, w, s.ds[stage], ds);
        before_copy();
        begin_sum(dk, ds, s.q[stage]);
        threads_sync(1, TEAMS * TEAM);
        begin_dq(s, w, t, dq);
        product_wait<0>();
        product_done(dk);
        product_done(dv);
        product_done(dq);
        give_back(&s.empty[stage], w.lane);
        add_dq<CAUSAL, GROUPED>(job, at, w, dq);
    }
    give_back(&s.kv_empty[t.kv % STAGES], w.lane);
}

template <bool CAUSAL, bool GROUPED>
__device__ __forceinline__ void work(grad_shared &s, const worker &w, const grad_job &job) {
    turns t = {0, 0};
    step_of_walk at = {(int)blockIdx.x, 0, 0};
#pragma unroll 1
    for (uint32_t n = 0; at.task < job.n_tasks; at.task += gridDim.x, n++) {
        barrier_wait(&s.rows_full[n % 2], n / 2 % 2);
#pragma unroll 1
        for (at.j = 0; at.j < job.n_blocks; at.j++, t.kv++) {
            float dk[32], dv[32];
#pragma unroll
            for (int i = 0; i < 32; i++) dk[i] = dv[i] = 0;
            barrier_wait(&s.kv_full[t.kv % STAGES], t.kv / STAGES % 2);
            walk_queries<CAUSAL, GROUPED>(s, w, job, s.rows[n % 2], at, t, dk, dv);
            store_part<GROUPED>(job, at.task, 1, at.j, dk, job.scale, w);
            store_part<GROUPED>(job, at.task, 2, at.j, dv, 1, w);
        }
        give_back(&s.rows_empty[n % 2], w.lane);
    }
}

__device__ __forceinline__ void open_barriers(grad_shared &s) {
    const int workers = TEAMS * TEAM / 32;
    if (threadIdx.x != 0) return;
    for (int i = 0; i < 2; i++) {
        barrier_init(&s.full[i], 1);
        barrier_init(&s.empty[i], workers);
        barrier_init(&s.kv_full[i], 1);
        barrier_init(&s.kv_empty[i], workers);
        barrier_init(&s.rows_full[i], TEAM - 32);
        barrier_init(&s.rows_empty[i], workers);
    }
    barrier_init_done();
}

#endif

template <bool CAUSAL, bool GROUPED>
__global__ void __launch_bounds__(THREADS, 1)
    grad_kernel(const __grid_constant__ CUtensorMap qkv, const __grid_constant__ CUtensorMap dy,
                const __grid_constant__ grad_job job) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(1024) uint8_t memory[];
    grad_shared &s = *reinterpret_cast<grad_shared *>(memory);
    open_barriers(s);
    fill_rows<4>(job, blockIdx.x, s.rows[0], threadIdx.x / 32, WARPS);
    __syncthreads();
    if (threadIdx.x < TEAM) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)LOADER_REGISTERS));
        if (threadIdx.x == 0) load_tiles<CAUSAL, GROUPED>(s, &qkv, &dy, job);
        if (threadIdx.x >= 32) fill_ahead(s, job, threadIdx.x / 32);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)WORKER_REGISTERS));
        int thread = threadIdx.x % TEAM;
        worker w = {(int)threadIdx.x / TEAM - 1, thread, thread / 32, thread % 32};
        work<CAUSAL, GROUPED>(s, w, job);
    }
#endif
}

/* dK and dV of the key heads: the sums of those of their query heads, four elements a thread. */
__global__ void __launch_bounds__(256) add_heads_kernel(const grad_job job, int64_t n) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int each = job.kv_heads * DIM / 4, at = (int)(i % each), head = at / (DIM / 4);
    int64_t row = i / each % job.n_rows, part = i / each / job.n_rows;
    const float4 *from = (const float4 *)job.of_heads +
                         (part * job.n_rows + row) * (job.heads * DIM / 4) +
                         head * job.group * (DIM / 4) + at % (DIM / 4);
    float4 sum = from[0];
    for (int g = 1; g < job.group; g++) {
        float4 next = from[g * (DIM / 4)];
        sum.x += next.x, sum.y += next.y, sum.z += next.z, sum.w += next.w;
    }
    int64_t step = (job.heads + 2 * job.kv_heads) * DIM;
    tti_bf16 *to = job.dqkv + row * step + (job.heads + part * job.kv_heads) * DIM + at * 4;
    *reinterpret_cast<uint2 *>(to) =
        make_uint2(tti_pack(sum.x, sum.y, tti_bf16()), tti_pack(sum.z, sum.w, tti_bf16()));
}

/* ---- the host's side ---- */

static int64_t count_tasks(const tti_cuda_heads *heads) { return heads->n_batch * heads->heads; }

/* Blocks of the grid: at most one for each multiprocessor. */
static cudaError_t count_blocks(const tti_cuda_heads *heads, int *n) {
    int device = 0, n_sms = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&n_sms, cudaDevAttrMultiProcessorCount, device);
    *n = count_tasks(heads) < n_sms ? (int)count_tasks(heads) : n_sms;
    return error;
}

/* Bytes of the sums of dQ. */
static size_t bytes_of_sums(const tti_cuda_heads *heads) {
    int n_grid = 0;
    count_blocks(heads, &n_grid);
    return (size_t)n_grid * (size_t)heads->n_t * DIM * sizeof(float);
}

template <bool CAUSAL, bool GROUPED>
static cudaError_t launch(const tti_cuda_attention *a, void *scratch, cudaStream_t stream) {
    const tti_cuda_heads *v = &a->heads;
    int64_t n_rows = v->n_batch * v->n_t, width = (int64_t)v->heads * DIM;
    int64_t kv_width = (int64_t)v->kv_heads * DIM;
    int n_grid = 0;
    grad_job job = {};
    job.y = (const tti_bf16 *)a->y, job.dy = (const tti_bf16 *)a->dy, job.lse = a->lse;
    job.dqkv = (tti_bf16 *)a->dqkv, job.sums = (float4 *)scratch, job.scale = v->scale;
    job.columns = a->columns;
    job.of_heads = (float *)((char *)scratch + bytes_of_sums(v));
    job.n_rows = n_rows, job.kv_heads = v->kv_heads, job.group = v->heads / v->kv_heads;
    job.n_t = (int)v->n_t, job.heads = v->heads, job.n_tasks = (int)count_tasks(v);
    job.n_blocks = job.n_t / BLOCK;
    CUtensorMap qkv, dy;
    if (!tti_make_map(&qkv, TUTTI_BF16, a->qkv, n_rows, width + 2 * kv_width, BLOCK) ||
        !tti_make_map(&dy, TUTTI_BF16, a->dy, n_rows, width, BLOCK))
        return cudaErrorInvalidValue;
    auto *kernel = grad_kernel<CAUSAL, GROUPED>;
    cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             (int)sizeof(grad_shared));
    if (error == cudaSuccess) error = count_blocks(v, &n_grid);
    if (error != cudaSuccess) return error;
    kernel<<<n_grid, THREADS, sizeof(grad_shared), stream>>>(qkv, dy, job);
    error = cudaGetLastError();
    if (error != cudaSuccess || !GROUPED) return error;
    int64_t n = 2 * n_rows * kv_width / 4;
    add_heads_kernel<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(job, n);
    return cudaGetLastError();
}

template <bool CAUSAL>
static cudaError_t launch_of(const tti_cuda_attention *a, void *scratch, cudaStream_t stream) {
    return a->heads.heads == a->heads.kv_heads ? launch<CAUSAL, false>(a, scratch, stream)
                                               : launch<CAUSAL, true>(a, scratch, stream);
}

}  // namespace

/* A multiprocessor has a head at a time: of the last round at least a good part is at work. */
extern "C" bool tti_cuda_attention_grad_can(tutti_dtype dtype, const tti_cuda_heads *heads) {
    const int64_t n_sms = 132;
    int64_t n = count_tasks(heads), rounds = (n + n_sms - 1) / n_sms;
    bool fits = dtype == TUTTI_BF16 && heads->dim == DIM && heads->n_t > 0 &&
                heads->n_t % BLOCK == 0 && heads->n_t <= MAX_T;
    return fits && heads->n_batch * heads->n_t < INT32_MAX / 2 && heads->heads < 1 << 16 &&
           4 * n >= 3 * rounds * n_sms;
}

extern "C" int64_t tti_cuda_attention_grad_parts(const tti_cuda_heads *heads) {
    return heads->n_batch * TEAMS * (TEAM / 32);
}

extern "C" size_t tti_cuda_attention_grad_bytes(const tti_cuda_heads *heads) {
    size_t n_rows = (size_t)(heads->n_batch * heads->n_t), width = (size_t)heads->heads * DIM;
    bool grouped = heads->kv_heads != heads->heads;
    return bytes_of_sums(heads) + (grouped ? 2 * n_rows * width * sizeof(float) : 0);
}

extern "C" cudaError_t tti_cuda_attention_grad(const tti_cuda_attention *a, void *scratch,
                                               cudaStream_t stream) {
    return a->heads.causal ? launch_of<true>(a, scratch, stream)
                           : launch_of<false>(a, scratch, stream);
}
