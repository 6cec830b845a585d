/* gemm_small.cu - small matrix products on tensor cores in tf32, one launch each.
 *
 * Optimized for latency, not throughput: a block loads everything at once, its eight warps divide
 * k, and the blocks of a cluster divide k again and add through each other's shared memory.  So the
 * longest chain is one memory access, some products, two sums.  Every sum has one order, that of k8
 * steps in a warp, then of warps, then of blocks. */
#include "backend/cuda/gemm/gemm_small.h"
#include "backend/cuda/gemm/mma.cuh"
#include "backend/cuda/runtime/cluster.cuh"
#include "backend/cuda/runtime/early.cuh"

namespace {

/* SIDE: size of a warp's part of d; a block has T x T of those, and the warps that share one
 * alternate in the eight k8 steps of STEP. RED: floats from row to row of partial sums, so that a
 * warp uses all banks. */
enum {
    SIDE = 32,
    STEP = 64,
    WARPS = 8,
    THREADS = WARPS * 32,
    MOST_STAGES = 8,
    FEW_STAGES = 4, /* for large tiles; two blocks of a cluster then fit on a multiprocessor */
    MOST_SPLIT = 8,
    ALONG = STEP + 4, /* floats from row to row where k is contiguous in memory */
    RED = SIDE + 8,
    PART = SIDE * RED + SIDE, /* of a warp: sums of products, sums of a */
    MANY_TILES = 64,          /* of the larger size: enough of them */
    MOST_PRODUCTS = 1 << 26,
    MOST_K = 8192
};

/* Floats of an operand's STEP by T SIDE in shared memory: from row to row where k is not
 * contiguous, and in all, in either order. */
template <int T>
struct tile_of {
    enum { ROWS = T * SIDE, ACROSS = ROWS + 8, ALL = STEP * ACROSS };
};
static_assert(SIDE * ALONG <= tile_of<1>::ALL && 2 * SIDE * ALONG <= tile_of<2>::ALL, "both fit");

/* One operand: rows of the product's side as stored. */
struct operand {
    const float *from;
    int side, k;  /* elements along either */
    int first;    /* of the side: the block's */
    bool is_wide; /* 16 bytes at once */
};

/* Bytes of a copy that lie inside, of up to n elements at i of size. */
__device__ __forceinline__ int bytes_inside(int i, int size, int n) {
    int left = (size - i) * 4;
    return left < 0 ? 0 : left < 4 * n ? left : 4 * n;
}

template <int BYTES>
__device__ __forceinline__ void copy_part(float *to, const float *from, int n_bytes) {
    uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from),
                     "r"(n_bytes)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from),
                     "r"(n_bytes)
                     : "memory");
}

/* Four elements at column col of row as stored [n_rows][n_cols]; zeros outside. */
__device__ __forceinline__ void copy_four(const operand &o, int row, int n_rows, int col,
                                          int n_cols, float *to) {
    int most = row < n_rows ? bytes_inside(col, n_cols, 4) : 0;
    const float *from = most ? o.from + (size_t)row * n_cols + col : o.from;
    if (o.is_wide) {
        copy_part<16>(to, from, most);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        copy_part<4>(to + i, 4 * i < most ? from + i : o.from, 4 * i < most ? 4 : 0);
}

/* STEP of k from k0 on by T SIDE of the side.  BY_K: stored [k][side], and so in shared memory. */
template <int T, bool BY_K>
__device__ __forceinline__ void load_tile(const operand &o, int k0, float *tile) {
    enum { VECS = BY_K ? T * SIDE / 4 : STEP / 4, ROWS = BY_K ? STEP : T * SIDE };
#pragma unroll
    for (int j = 0; j < VECS * ROWS / THREADS; j++) {
        int i = threadIdx.x + j * THREADS, row = i / VECS, col = i % VECS * 4;
        if (BY_K)
            copy_four(o, k0 + row, o.k, o.first + col, o.side,
                      tile + row * tile_of<T>::ACROSS + col);
        else
            copy_four(o, o.first + row, o.side, k0 + col, o.k, tile + row * ALONG + col);
    }
}

template <int T, bool BY_K>
__device__ __forceinline__ float at(const float *tile, int side, int k) {
    return tile[BY_K ? k * tile_of<T>::ACROSS + side : side * ALONG + k];
}

/* Waits until at most n groups of copies are pending. */
__device__ __forceinline__ void wait_for_all_but(int n) {
    switch (n) {
        case 0:
            asm volatile("cp.async.wait_group 0;" ::: "memory");
            break;
        case 1:
            asm volatile("cp.async.wait_group 1;" ::: "memory");
            break;
        case 2:
            asm volatile("cp.async.wait_group 2;" ::: "memory");
            break;
        case 3:
            asm volatile("cp.async.wait_group 3;" ::: "memory");
            break;
        case 4:
            asm volatile("cp.async.wait_group 4;" ::: "memory");
            break;
        case 5:
            asm volatile("cp.async.wait_group 5;" ::: "memory");
            break;
        case 6:
            asm volatile("cp.async.wait_group 6;" ::: "memory");
            break;
        default:
            asm volatile("cp.async.wait_group 7;" ::: "memory");
            break;
    }
}

/* A warp's part of the block's SIDE x SIDE: m16n8 fragments, and its lanes' part of the sums of a.
 */
struct sums_of {
    float acc[2][4][4];
    float a[2][2];
};

/* m, n: the warp's row of the one and of the other, k: of both. */
template <int T, bool A_BY_K, bool B_BY_K>
__device__ __forceinline__ void add_step(const float *a_tile, const float *b_tile, int m0, int n0,
                                         int k, sums_of &s) {
    float a[2][4];
    uint32_t a_tf32[2][4], b_tf32[4][2];
#pragma unroll
    for (int m = 0; m < 2; m++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            a[m][i] = at<T, A_BY_K>(a_tile, m0 + 16 * m + i % 2 * 8, k + i / 2 * 4);
            a_tf32[m][i] = tti_to_tf32(a[m][i]);
        }
        if (A_BY_K) { /* they are not needed otherwise */
            s.a[m][0] += a[m][0] + a[m][2];
            s.a[m][1] += a[m][1] + a[m][3];
        }
    }
#pragma unroll
    for (int n = 0; n < 4; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            b_tf32[n][i] = tti_to_tf32(at<T, B_BY_K>(b_tile, n0 + 8 * n, k + 4 * i));
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int n = 0; n < 4; n++) tti_mma_tf32(s.acc[m][n], a_tf32[m], b_tf32[n]);
}

/* Writes the sums of a warp to shared memory: [SIDE][RED], then those of a. */
__device__ __forceinline__ void put_part(float *part, int g, int t, sums_of &s) {
#pragma unroll
    for (int m = 0; m < 2; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int row = 16 * m + 8 * half + g;
#pragma unroll
            for (int n = 0; n < 4; n++) {
                float pair[2] = {s.acc[m][n][2 * half], s.acc[m][n][2 * half + 1]};
                tti_store<float, 2>(part + row * RED + 8 * n + 2 * t, pair);
            }
            float sum = s.a[m][half];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            if (t == 0) part[SIDE * RED + row] = sum;
        }
}

__device__ __forceinline__ float4 add(float4 x, const float4 &y) {
    return make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w);
}

/* Four neighbours of the block's tile of d, or of its sums of a, which follow. */
template <int T>
struct quads_of {
    enum { ROW = T * SIDE / 4, TILE = T * SIDE * ROW, ALL = TILE + T * SIDE / 4 };

    static __device__ __forceinline__ int row(int quad) {
        return quad < TILE ? quad / ROW : (quad - TILE) * 4;
    }
    static __device__ __forceinline__ int col(int quad) { return quad < TILE ? quad % ROW * 4 : 0; }
    /* Their position in the parts of the first warps. */
    static __device__ __forceinline__ int place(int quad) {
        int r = row(quad), c = col(quad), part = r / SIDE * T + c / SIDE;
        return part * PART + (quad < TILE ? r % SIDE * RED + c % SIDE : SIDE * RED + r % SIDE);
    }
};

template <int T>
__device__ __forceinline__ float4 add_warps(const float *parts, int quad) {
    const float *from = parts + quads_of<T>::place(quad);
    float4 sum = *reinterpret_cast<const float4 *>(from);
#pragma unroll
    for (int w = T * T; w < WARPS; w += T * T)
        sum = add(sum, *reinterpret_cast<const float4 *>(from + w * PART));
    return sum;
}

/* Four neighbours of d, or of the sums of a, with what follows the sum. */
template <int T>
__device__ __forceinline__ void finish(const tti_small_product &p, int m0, int n0, int quad,
                                       const float4 &sum) {
    float v[4] = {sum.x, sum.y, sum.z, sum.w};
    int m = m0 + quads_of<T>::row(quad), n = n0 + quads_of<T>::col(quad);
    if (quad >= quads_of<T>::TILE) {
        for (int i = 0; i < 4 && n0 == 0; i++)
            if (m + i < p.m) p.sums[m + i] = v[i];
        return;
    }
    if (m >= p.m || n >= p.n) return;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (p.bias && n + i < p.n) v[i] += p.bias[n + i];
        if (p.relu) v[i] = v[i] < 0 ? 0.0f : v[i]; /* NaN stays NaN */
    }
    float *to = p.d + (size_t)m * p.n + n;
    if (p.n % 4 == 0) {
        tti_store<float, 4>(to, v);
        return;
    }
    for (int i = 0; i < 4; i++)
        if (n + i < p.n) to[i] = v[i];
}

/* Block x of a cluster has the steps x * n / split .. of k; blockIdx.y: the tile. */
template <int T, bool A_BY_K, bool B_BY_K>
__global__ void __launch_bounds__(THREADS)
    small_product_kernel(const __grid_constant__ tti_small_product p, int tiles_n, int n_stages,
                         int n_split) {
    enum { TILE = tile_of<T>::ALL, TURNS = T * T };
    extern __shared__ float4 memory[];
    float *shared = reinterpret_cast<float *>(memory);
    int m0 = blockIdx.y / tiles_n * T * SIDE, n0 = blockIdx.y % tiles_n * T * SIDE;
    int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    int turn = warp / TURNS, part = warp % TURNS;
    int n_all = (p.k + STEP - 1) / STEP, rank = blockIdx.x;
    int first = rank * n_all / n_split, n_steps = (rank + 1) * n_all / n_split - first;
    operand a = {p.a, p.m, p.k, m0, (A_BY_K ? p.m : p.k) % 4 == 0};
    operand b = {p.b, p.n, p.k, n0, (B_BY_K ? p.n : p.k) % 4 == 0};
    sums_of s = {};
    tti_let_next_start();
    tti_wait_for_before();
    for (int i = 0; i < n_steps + n_stages - 1; i++) {
        if (i >= n_stages && i < n_steps)
            __syncthreads(); /* the stage to be filled again has been read */
        if (i < n_steps) {
            float *stage = shared + i % n_stages * 2 * TILE;
            load_tile<T, A_BY_K>(a, (first + i) * STEP, stage);
            load_tile<T, B_BY_K>(b, (first + i) * STEP, stage + TILE);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
        int step = i - (n_stages - 1);
        if (step < 0) continue;
        wait_for_all_but(n_stages - 1);
        __syncthreads();
        const float *stage = shared + step % n_stages * 2 * TILE;
#pragma unroll
        for (int k = 0; k < TURNS; k++)
            add_step<T, A_BY_K, B_BY_K>(stage, stage + TILE, part / T * SIDE + g,
                                        part % T * SIDE + g, (turn * TURNS + k) * 8 + t, s);
    }
    __syncthreads();
    put_part(shared + warp * PART, g, t, s);
    __syncthreads();
    int n_quads = p.sums ? quads_of<T>::ALL : quads_of<T>::TILE;
    if (n_split == 1) {
        for (int quad = threadIdx.x; quad < n_quads; quad += THREADS)
            finish<T>(p, m0, n0, quad, add_warps<T>(shared, quad));
        return;
    }
    for (int quad = threadIdx.x; quad < n_quads; quad += THREADS)
        *reinterpret_cast<float4 *>(shared + quads_of<T>::place(quad)) = add_warps<T>(shared, quad);
    tti_sync_cluster();
    int each = (n_quads + n_split - 1) / n_split, end = min(n_quads, (rank + 1) * each);
    for (int quad = rank * each + threadIdx.x; quad < end; quad += THREADS) {
        const float4 *place = reinterpret_cast<const float4 *>(shared + quads_of<T>::place(quad));
        float4 sum = tti_load_remote(place, 0);
        for (int r = 1; r < n_split; r++) sum = add(sum, tti_load_remote(place, r));
        finish<T>(p, m0, n0, quad, sum);
    }
    tti_sync_cluster(); /* no block exits while others read */
}

/* Blocks that share k: as many as bring the device to work, but not for less than three steps. */
int split_of(int n_tiles, int n_steps) {
    int split = 1;
    while (split < MOST_SPLIT && n_tiles * split * 2 <= 160 && n_steps >= 6 * split) split *= 2;
    return split;
}

int tiles_of(int n, int t) { return (n + t * SIDE - 1) / (t * SIDE); }

typedef void (*product_kernel)(tti_small_product, int, int, int);

/* Bytes of n stages, or of the parts that reuse their memory. */
template <int T>
size_t shared_of(int n_stages) {
    size_t stages = (size_t)n_stages * 2 * tile_of<T>::ALL, parts = (size_t)WARPS * PART;
    return (stages > parts ? stages : parts) * sizeof(float);
}

template <int T>
cudaError_t launch(const tti_small_product *p, int capability, size_t shared_optin,
                   cudaStream_t stream) {
    product_kernel kernels[2][2] = {
        {small_product_kernel<T, false, true>, small_product_kernel<T, false, false>},
        {small_product_kernel<T, true, true>, small_product_kernel<T, true, false>}};
    product_kernel kernel = kernels[p->trans_a][p->trans_b];
    int tiles_n = tiles_of(p->n, T), n_tiles = tiles_of(p->m, T) * tiles_n;
    int n_all = (p->k + STEP - 1) / STEP, split = capability >= 90 ? split_of(n_tiles, n_all) : 1;
    int n_steps = (n_all + split - 1) / split, most = T > 1 || split > 1 ? FEW_STAGES : MOST_STAGES;
    int n_stages = n_steps < most ? n_steps : most;
    while (n_stages > 1 && shared_of<T>(n_stages) > shared_optin) n_stages--;
    size_t n_bytes = shared_of<T>(n_stages);
    cudaError_t error = tti_allow_shared((const void *)kernel, n_bytes);
    if (error != cudaSuccess) return error;
    return tti_launch_early(kernel, dim3((unsigned)split, (unsigned)n_tiles), THREADS, n_bytes,
                            (unsigned)split, stream, *p, tiles_n, n_stages, split);
}

}  // namespace

extern "C" bool tti_small_product_fits(const tti_small_product *p) {
    if (p->m < 1 || p->n < 1 || p->k < 1 || p->k > MOST_K) return false;
    int64_t tiles = (int64_t)tiles_of(p->m, 1) * tiles_of(p->n, 1);
    return tiles <= UINT16_MAX && (int64_t)p->m * p->n <= MOST_PRODUCTS / p->k;
}

extern "C" cudaError_t tti_launch_small_product(const tti_small_product *p, int capability,
                                                size_t shared_optin, cudaStream_t stream) {
    bool many = tiles_of(p->m, 2) * tiles_of(p->n, 2) >= MANY_TILES;
    return many ? launch<2>(p, capability, shared_optin, stream)
                : launch<1>(p, capability, shared_optin, stream);
}
