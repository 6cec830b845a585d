/* wgmma.cu - matrix products on Hopper's tensor cores, overlapped with the operations that follow
 * them.
 *
 * A block stays on its multiprocessor and takes tile after tile of 128 rows and 192 or 160 columns,
 * whichever keeps the multiprocessors busier at the end.  One warp feeds the copy engine, which
 * fills a ring of stages with 64 of k.  Two warpgroups alternate: while one multiplies, the other
 * processes its registers, so that bias, gelu and sums are free if they take less time than a
 * product.  The blocks of a cluster work on neighbouring rows and the same columns, and each loads
 * half of b for both.  A b larger than the L2 cache is processed in strips of columns, each with
 * all rows before the next.
 *
 * Every tile is summed in the same order, and column sums tile by tile: nothing depends on which
 * block takes which tile. */
#include "backend/cuda/gemm/wgmma.h"

#include <type_traits>

#include "backend/cuda/gemm/tensor_map.cuh"
#include "backend/cuda/gemm/wgmma_ends.cuh"
#include "backend/cuda/runtime/clock.cuh"

enum {
    ROWS = 128,
    DEPTH = 64,
    STAGES = 4,
    CLUSTER = 2, /* blocks */
    HALF = 64,   /* rows of a part, which is finished and stored at once */
    SPAN = 64,   /* columns of b that are copied at once where its rows lie across k */
    A_BYTES = ROWS * DEPTH * 2,
    TEAM = 128, /* threads of a warpgroup */
    THREADS = 3 * TEAM,
    LOADER_REGISTERS = 24, /* of 168 that each thread starts with */
    WORKER_REGISTERS = 240
};

/* A tile of so many columns.  COLS, SLICE: of a tile and of a part, in bytes a row of the copy
 * engine's 128-byte or 64-byte swizzle. */
template <int N>
struct wide {
    static constexpr int COLS = N, SLICE = N % 64 == 0 ? 64 : 32, N_SLICES = COLS / SLICE;
    static constexpr int N_PARTS = ROWS / HALF * N_SLICES; /* of a tile */
    static constexpr int N_PLACES = 256 / SLICE;           /* for parts of a warpgroup */
    static constexpr int PART_BYTES = HALF * SLICE * 2;
    static constexpr int N_SPANS = (COLS + SPAN - 1) / SPAN;
    static constexpr int B_BYTES = N_SPANS * SPAN * DEPTH * 2;
    typedef float sums[2][COLS / 2]; /* of a thread: [half], of rows */
};

typedef struct wgmma_job {
    const void *bias; /* [n] or NULL */
    float *partials;  /* [tiles of rows][n]; NULL: no sums */
    int m, n;
    int n_blocks, n_cols, n_tiles; /* of k; of n; all, of CLUSTER * ROWS rows each */
    int strip;                     /* columns of tiles that all rows go through before the next */
    int rank, part;                /* if rows belong to two ranks: rows of a part, in clusters */
    float most;                    /* EXPS, as in tti_cuda_wgmma_desc */
    const float *base;
    const int32_t *labels;
    float *row_sums, *row_bests, *own;
    const uint64_t *rows_arrived, *wanted;
    volatile uint32_t *state;
    uint64_t timeout_ns;
} wgmma_job;

template <class W>
struct wgmma_shared {
    alignas(1024) uint8_t a[STAGES][A_BYTES];
    uint8_t b[STAGES][W::B_BYTES];
    uint8_t parts[2][W::N_PLACES][W::PART_BYTES]; /* of each warpgroup */
    float sums[2][TEAM / 32][W::SLICE];
    uint64_t full[STAGES], empty[STAGES], aux[2][W::N_PLACES];
};

/* ---- the order of tiles ---- */

struct tile_place {
    int unit, col; /* of CLUSTER * ROWS rows; of the columns of a tile */
};

/* Strip after strip, in it row after row of tiles: the strip of b stays in the L2 cache. */
__device__ __forceinline__ tile_place place_of(const wgmma_job &job, int tile) {
    int n_units = job.n_tiles / job.n_cols, first = tile / (n_units * job.strip) * job.strip;
    int at = tile - n_units * first, width = min(job.strip, job.n_cols - first);
    return {at / width, first + at % width};
}

template <class W>
__device__ __forceinline__ int col_of(const wgmma_job &job, int tile) {
    return place_of(job, tile).col * W::COLS;
}

/* ---- kinds ---- */

constexpr bool is_push(int kind) { return kind >= TTI_WGMMA_PUSH; }
constexpr bool is_across(int kind) {
    return kind == TTI_WGMMA_GELU_GRAD || kind == TTI_WGMMA_PUSH_BACK;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* Rows of a tile in the whole and, where they are the other rank's, among these; else -1. */
struct tile_rows {
    int row, far;
};

/* Whether rows of the other rank come meanwhile, which then are the last. */
template <int KIND>
__device__ __forceinline__ bool is_pulled(const wgmma_job &job) {
    return (KIND == TTI_WGMMA_BIAS || KIND == TTI_WGMMA_GELU) && job.rows_arrived;
}

/* Until they are there. */
__device__ __forceinline__ void await_rows(const wgmma_job &job) {
    uint64_t wanted = *job.wanted, seen, start = tti_now_ns();
    for (uint32_t n = 1;; n++) {
        asm volatile("ld.acquire.sys.global.u64 %0, [%1];"
                     : "=l"(seen)
                     : "l"(job.rows_arrived)
                     : "memory");
        if (seen >= wanted) break;
        if (n % 1024 != 0) continue;
        if (*job.state) break;
        if (tti_now_ns() - start > job.timeout_ns) *job.state = 1;
    }
    asm volatile("fence.proxy.async;" ::: "memory");
}

/* Rows of the other rank and own rows alternate, so that the load of the link is even: if the
 * other's came first, a multiprocessor that cannot store them fast enough would stall.  The last
 * ones are own rows. */
template <int KIND>
__device__ __forceinline__ tile_rows rows_of(const wgmma_job &job, int tile) {
    int unit = place_of(job, tile).unit, own = (int)cluster_rank() * ROWS;
    if constexpr (!is_push(KIND)) {
        if (!is_pulled<KIND>(job)) return {unit * CLUSTER * ROWS + own, -1};
        int half = job.m / (CLUSTER * ROWS) / 2, i = unit < half ? unit : unit - half;
        int rank = unit < half ? job.rank : job.rank ^ 1;
        return {((i / job.part * 2 + rank) * job.part + i % job.part) * CLUSTER * ROWS + own, -1};
    }
    int next = (unit + 1) / 2, half = job.m / (CLUSTER * ROWS) / 2;
    bool far = unit == 0 || (unit % 2 == 1 && next < half);
    int i = far             ? next
            : unit % 2 == 1 ? half - 1
                            : unit / 2 - 1,
        rank = far ? job.rank ^ 1 : job.rank;
    int at = (i / job.part * 2 + rank) * job.part + i % job.part;
    return {at * CLUSTER * ROWS + own, far ? i * CLUSTER * ROWS + own : -1};
}

/* ---- the loader: one thread ---- */

template <class W, bool B_ACROSS>
__device__ __forceinline__ void load_b(wgmma_shared<W> &s, const CUtensorMap *b, int stage, int col,
                                       int k, uint32_t rank) {
    const uint16_t all = (1 << CLUSTER) - 1;
    if constexpr (B_ACROSS) {
#pragma unroll
        for (int i = 0; i < W::N_SPANS; i++)
            copy_in_many(s.b[stage] + i * DEPTH * 128 + rank * (DEPTH / CLUSTER) * 128, b,
                         col + i * SPAN, k + rank * (DEPTH / CLUSTER), &s.full[stage], L2_LONG,
                         all);
    } else {
        copy_in_many(s.b[stage] + rank * (W::COLS / CLUSTER) * 128, b, k,
                     col + rank * (W::COLS / CLUSTER), &s.full[stage], L2_LONG, all);
    }
}

template <class W, int KIND>
__device__ __forceinline__ void load_tiles(wgmma_shared<W> &s, const CUtensorMap *a,
                                           const CUtensorMap *b, const wgmma_job &job) {
    uint32_t rank = cluster_rank(), turn = 0;
    const int b_bytes = is_across(KIND) ? W::B_BYTES : W::COLS * DEPTH * 2;
    bool waits = is_pulled<KIND>(job);
    for (int tile = blockIdx.x / CLUSTER; tile < job.n_tiles; tile += gridDim.x / CLUSTER) {
        int row = rows_of<KIND>(job, tile).row, col = col_of<W>(job, tile);
        if (waits && place_of(job, tile).unit >= job.m / (CLUSTER * ROWS) / 2) {
            await_rows(job);
            waits = false;
        }
        for (int i = 0; i < job.n_blocks; i++, turn++) {
            uint32_t stage = turn % STAGES;
            barrier_wait(&s.empty[stage], turn / STAGES % 2 ^ 1);
            barrier_expect(&s.full[stage], A_BYTES + b_bytes);
            copy_in(s.a[stage], a, i * DEPTH, row, &s.full[stage], L2_NORMAL);
            load_b<W, is_across(KIND)>(s, b, stage, col, i * DEPTH, rank);
        }
    }
}

/* ---- the workers: two warpgroups ---- */

/* The position of this thread: the warpgroup, and its place in it; and the outputs of all. */
struct worker {
    int team, thread, warp, lane;
    const CUtensorMap *d, *aux;
};

template <class W>
__device__ __forceinline__ void give_back(wgmma_shared<W> &s, uint32_t stage, int lane) {
    if (lane < CLUSTER) barrier_arrive_at(&s.empty[stage], lane);
}

/* A stage of k.  FIRST: of a tile. */
template <class T, class W, bool B_ACROSS, bool FIRST>
__device__ __forceinline__ void multiply_stage(wgmma_shared<W> &s, uint32_t turn,
                                               typename W::sums &sum) {
    uint32_t stage = turn % STAGES;
    uint64_t a = describe_k_rows(s.a[stage]);
    uint64_t b =
        B_ACROSS ? describe_k_columns(s.b[stage], DEPTH * 128) : describe_k_rows(s.b[stage]);
    const int lower = HALF * 128 / 16, b_step = B_ACROSS ? 16 * 128 / 16 : 32 / 16;
    barrier_wait(&s.full[stage], turn / STAGES % 2);
    product_begin();
    product_wide<T, B_ACROSS, !FIRST>(sum[0], a, b);
    product_wide<T, B_ACROSS, !FIRST>(sum[1], a + lower, b);
#pragma unroll
    for (int k = 1; k < DEPTH / 16; k++) {
        product_wide<T, B_ACROSS, true>(sum[0], a + 2 * k, b + k * b_step);
        product_wide<T, B_ACROSS, true>(sum[1], a + 2 * k + lower, b + k * b_step);
    }
    product_commit();
}

/* sum[half][..] = rows half * 64 .. of the tile.  turn: the first of its stages. */
template <class T, class W, bool B_ACROSS>
__device__ __forceinline__ void multiply(wgmma_shared<W> &s, const worker &w, int n_blocks,
                                         uint32_t turn, bool more, typename W::sums &sum) {
    multiply_stage<T, W, B_ACROSS, true>(s, turn, sum);
    for (int i = 1; i < n_blocks; i++) {
        multiply_stage<T, W, B_ACROSS, false>(s, turn + i, sum);
        product_wait<1>();
        give_back(s, (turn + i - 1) % STAGES, w.lane);
    }
    if (more) threads_arrive(1 + (w.team ^ 1), 2 * TEAM);
    product_wait<0>();
    give_back(s, (turn + n_blocks - 1) % STAGES, w.lane);
    product_done(sum[0]);
    product_done(sum[1]);
}

/* The row address of this lane in the 16 x 16 blocks of a warp's 16 rows, for ldmatrix and
 * stmatrix: 8 x 8 blocks rows 0-7, rows 8-15, then the same for the next 8 columns.  The block of
 * columns 16 p ..: xor 32 p. */
template <class W>
__device__ __forceinline__ uint32_t row_place(int lane, int first_row) {
    int row = first_row + lane % 16, turned = W::SLICE == 64 ? row % 8 : row / 2 % 4;
    return row * W::SLICE * 2 + (lane / 16 ^ turned) * 16;
}

__device__ __forceinline__ uint8_t *block_of(uint8_t *part, uint32_t place, int pair) {
    return part + (place ^ pair * 32);
}

__device__ __forceinline__ void team_sync(const worker &w) { threads_sync(3 + w.team, TEAM); }

/* Adds the bias to the columns of a slice. */
template <class T, class W>
__device__ __forceinline__ void add_bias(typename W::sums &sum, int slice, const worker &w,
                                         const wgmma_job &job, int col) {
    if (!job.bias) return;
#pragma unroll
    for (int j = 0; j < W::SLICE / 8; j++) {
        int at = col + j * 8;
        uint32_t two = 0;
        if (at < job.n) two = __ldg((const uint32_t *)((const T *)job.bias + at) + w.lane % 4);
        float2 bias = unpack(two, T());
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                sum[half][slice * (W::SLICE / 2) + j * 4 + h * 2] += bias.x;
                sum[half][slice * (W::SLICE / 2) + j * 4 + h * 2 + 1] += bias.y;
            }
    }
}

/* Rounds a slice and stores it at column x of both halves. */
template <class T, class W>
__device__ __forceinline__ void store_slice(wgmma_shared<W> &s, const worker &w,
                                            const CUtensorMap *to, int slice, int row, int x,
                                            const typename W::sums &sum) {
    uint32_t place = row_place<W>(w.lane, w.warp * 16);
    if (w.thread == 0) {
        if (slice == 0)
            copy_out_read<0>(); /* the tile before ended in the same places */
        else
            copy_out_read<1>();
    }
    team_sync(w);
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int pair = 0; pair < W::SLICE / 16; pair++) {
            const float *z = sum[half] + slice * (W::SLICE / 2) + pair * 8;
            uint32_t r[4];
#pragma unroll
            for (int i = 0; i < 4; i++) r[i] = tti_pack(z[i * 2], z[i * 2 + 1], T());
            tti_stmatrix(block_of(s.parts[w.team][slice % 2 * 2 + half], place, pair), r);
        }
    before_copy();
    team_sync(w);
    if (w.thread == 0) {
        copy_out(to, s.parts[w.team][slice % 2 * 2], x, row, L2_SHORT);
        copy_out(to, s.parts[w.team][slice % 2 * 2 + 1], x, row + HALF, L2_SHORT);
        copy_out_commit();
    }
}

/* ---- z + bias ---- */

template <class T, class W>
__device__ __forceinline__ void finish_bias(wgmma_shared<W> &s, const worker &w,
                                            const wgmma_job &job, tile_rows at, int col,
                                            typename W::sums &sum) {
    const CUtensorMap *to = at.far >= 0 ? w.aux : w.d;
    int row = at.far >= 0 ? at.far : at.row;
#pragma unroll
    for (int slice = 0; slice < W::N_SLICES; slice++) {
        int x = col + slice * W::SLICE;
        add_bias<T, W>(sum, slice, w, job, x);
        store_slice<T, W>(s, w, to, slice, row, x, sum);
    }
}

/* ---- e^(z - base), and the results of rows ---- */

enum { ROWS_OF_THREAD = 4 }; /* i: of half i / 2, h i % 2 */

/* Row i of this thread in the tile. */
__device__ __forceinline__ int row_in_tile(const worker &w, int i) {
    return i / 2 * HALF + w.warp * 16 + i % 2 * 8 + w.lane / 4;
}

/* z in column `at` of the tile; NaN if an earlier one is as large, or a later one larger. half: of
 * the sums, with row h in pairs of columns. */
template <class W>
__device__ __forceinline__ float own_of(const float (&half)[W::COLS / 2], int h, int at, int n_cols,
                                        int lane) {
    auto max = [](float a, float b) { return fmaxf(a, b); };
    float own = -INFINITY, beaten = 0;
#pragma unroll
    for (int i = 0; i < W::COLS / 4; i++)
        if (i / 2 * 8 + lane % 4 * 2 + i % 2 == at) own = half[i / 2 * 4 + h * 2 + i % 2];
    own = join_row(own, max);
#pragma unroll
    for (int i = 0; i < W::COLS / 4; i++) {
        int c = i / 2 * 8 + lane % 4 * 2 + i % 2;
        float z = half[i / 2 * 4 + h * 2 + i % 2];
        if (c < n_cols && (z > own || (z == own && c < at))) beaten = 1;
    }
    return join_row(beaten, max) > 0 ? NAN : own;
}

/* The labels' z of a tile; few rows have theirs in it. */
template <class W>
__device__ __forceinline__ void find_labels(const worker &w, const wgmma_job &job, int row, int col,
                                            const typename W::sums &sum) {
    int n_cols = min(W::COLS, job.n - col);
#pragma unroll
    for (int i = 0; i < ROWS_OF_THREAD; i++) {
        int r = row + row_in_tile(w, i);
        uint32_t at = r < job.m ? (uint32_t)__ldg(job.labels + r) - (uint32_t)col : ~0u;
        bool here = at < (uint32_t)n_cols;
        if (!__any_sync(0xffffffffu, here)) continue;
        float own = own_of<W>(sum[i / 2], i % 2, (int)at, n_cols, w.lane);
        if (here && w.lane % 4 == 0) job.own[r] = own;
    }
}

template <class T, class W>
__device__ __forceinline__ void finish_exps(wgmma_shared<W> &s, const worker &w,
                                            const wgmma_job &job, int row, int col,
                                            typename W::sums &sum) {
    const float log2_e = 1.4426950408889634f, most = job.most * log2_e;
    float base[ROWS_OF_THREAD], total[ROWS_OF_THREAD], best[ROWS_OF_THREAD];
    find_labels<W>(w, job, row, col, sum);
#pragma unroll
    for (int i = 0; i < ROWS_OF_THREAD; i++) {
        int r = row + row_in_tile(w, i);
        base[i] = r < job.m ? __ldg(job.base + r) * log2_e : 0;
        total[i] = 0, best[i] = -INFINITY;
    }
#pragma unroll
    for (int slice = 0; slice < W::N_SLICES; slice++) {
        int x = col + slice * W::SLICE;
#pragma unroll
        for (int j = 0; j < W::SLICE / 8; j++) {
            if (x + j * 8 >= job.n) break; /* n is a multiple of 8 */
#pragma unroll
            for (int i = 0; i < 2 * ROWS_OF_THREAD; i++) {
                float &z = sum[i / 4][slice * (W::SLICE / 2) + j * 4 + i % 4];
                best[i / 2] = fmaxf(best[i / 2], z);
                z = raise_two(fmaf(z, log2_e, -base[i / 2]), most);
                total[i / 2] += z;
            }
        }
        store_slice<T, W>(s, w, w.d, slice, row, x, sum);
    }
    int64_t part = (int64_t)(col / W::COLS) * job.m;
#pragma unroll
    for (int i = 0; i < ROWS_OF_THREAD; i++) {
        int r = row + row_in_tile(w, i);
        total[i] = join_row(total[i], [](float a, float b) { return a + b; });
        best[i] = join_row(best[i], [](float a, float b) { return fmaxf(a, b); });
        if (r < job.m && w.lane % 4 == 0)
            job.row_sums[part + r] = total[i], job.row_bests[part + r] = best[i];
    }
}

/* ---- gelu of z + bias ---- */

template <class T, class W, bool EXACT>
__device__ __forceinline__ void finish_gelu(wgmma_shared<W> &s, const worker &w,
                                            const wgmma_job &job, int row, int col,
                                            typename W::sums &sum) {
    uint32_t place = row_place<W>(w.lane, w.warp * 16);
#pragma unroll
    for (int part = 0; part < W::N_PARTS; part++) {
        int slice = part / 2, half = part % 2, x = col + slice * W::SLICE, y = row + half * HALF;
        uint8_t *to = s.parts[w.team][part % 2 * 2];
        uint32_t z[W::SLICE / 16][4], g[W::SLICE / 16][4];
        if (half == 0) add_bias<T, W>(sum, slice, w, job, x);
#pragma unroll
        for (int pair = 0; pair < W::SLICE / 16; pair++) {
            float v[8], y[8];
#pragma unroll
            for (int i = 0; i < 8; i++) v[i] = sum[half][slice * (W::SLICE / 2) + pair * 8 + i];
            gelus<8, EXACT>(v, y);
#pragma unroll
            for (int i = 0; i < 4; i++) {
                z[pair][i] = tti_pack(v[i * 2], v[i * 2 + 1], T());
                g[pair][i] = tti_pack(y[i * 2], y[i * 2 + 1], T());
            }
        }
        if (w.thread == 0) copy_out_read<1>();
        team_sync(w);
#pragma unroll
        for (int pair = 0; pair < W::SLICE / 16; pair++) {
            tti_stmatrix(block_of(to, place, pair), z[pair]);
            tti_stmatrix(block_of(to + W::PART_BYTES, place, pair), g[pair]);
        }
        before_copy();
        team_sync(w);
        if (w.thread == 0) {
            copy_out(w.aux, to, x, y, L2_SHORT);
            copy_out(w.d, to + W::PART_BYTES, x, y, L2_SHORT);
            copy_out_commit();
        }
    }
}

/* ---- gelu's gradient ---- */

/* The prefetched values of a warpgroup: its parts of aux, of this tile and the next. */
struct ahead {
    int row, col, next_row, next_col; /* next_row -1: there is none */
    uint32_t n_done;                  /* tiles */
};

/* Part n of this tile, or n - W::N_PARTS of the next, by one thread. */
template <class W>
__device__ __forceinline__ void load_part(wgmma_shared<W> &s, const worker &w, const ahead &it,
                                          int n) {
    bool next = n >= W::N_PARTS;
    int part = next ? n - W::N_PARTS : n, row = next ? it.next_row : it.row;
    int place = (it.n_done * W::N_PARTS + n) % W::N_PLACES;
    if (row < 0) return;
    barrier_expect(&s.aux[w.team][place], W::PART_BYTES);
    copy_in(s.parts[w.team][place], w.aux, (next ? it.next_col : it.col) + part / 2 * W::SLICE,
            row + part % 2 * HALF, &s.aux[w.team][place], L2_SHORT);
}

/* aux in shared memory becomes sum gelu'(aux); total adds what thread t has of columns
 * 8 j + t % 4 * 2 + e in total[2 j + e]. */
template <class T, class W, bool EXACT>
__device__ __forceinline__ void grad_part(uint8_t *part, uint32_t place, const float *sum,
                                          float (&total)[W::SLICE / 4]) {
    uint32_t r[2][4];
    tti_ldmatrix(r[0], block_of(part, place, 0));
#pragma unroll
    for (int pair = 0; pair < W::SLICE / 16; pair++) {
        uint32_t(&two)[4] = r[pair % 2];
        float z[8], slope[8];
        if (pair + 1 < W::SLICE / 16)
            tti_ldmatrix(r[(pair + 1) % 2], block_of(part, place, pair + 1));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float2 both = unpack(two[i], T());
            z[i * 2] = both.x, z[i * 2 + 1] = both.y;
        }
        gelu_slopes<8, EXACT>(z, slope);
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float x = sum[pair * 8 + i * 2] * slope[i * 2];
            float y = sum[pair * 8 + i * 2 + 1] * slope[i * 2 + 1];
            total[pair * 4 + i / 2 * 2] += x;
            total[pair * 4 + i / 2 * 2 + 1] += y;
            two[i] = tti_pack(x, y, T());
        }
        tti_stmatrix(block_of(part, place, pair), two);
    }
}

/* The sums of a warp's rows: of lane l, columns 2 l and 2 l + 1 of the slice. */
template <class W>
__device__ __forceinline__ void leave_sums(wgmma_shared<W> &s, const worker &w,
                                           float (&total)[W::SLICE / 4]) {
    static_assert(W::SLICE == 64, "two columns of a lane");
    *(float2 *)&s.sums[w.team][w.warp][w.lane * 2] = tti_sum_columns(total, w.lane);
}

/* The values of the tile, from its warps' in order. */
template <class W>
__device__ __forceinline__ void store_sums(const wgmma_shared<W> &s, const worker &w,
                                           const wgmma_job &job, int row, int col) {
    if (w.thread < W::SLICE && col + w.thread < job.n && row < job.m) {
        float all = s.sums[w.team][0][w.thread];
#pragma unroll
        for (int i = 1; i < TEAM / 32; i++) all += s.sums[w.team][i][w.thread];
        job.partials[(int64_t)(row / ROWS) * job.n + col + w.thread] = all;
    }
    __syncwarp();
}

template <class T, class W, bool EXACT>
__device__ __forceinline__ void finish_grad(wgmma_shared<W> &s, const worker &w,
                                            const wgmma_job &job, const ahead &it,
                                            typename W::sums &sum) {
    uint32_t place = row_place<W>(w.lane, w.warp * 16), first = it.n_done * W::N_PARTS;
    float total[W::SLICE / 4];
#pragma unroll
    for (int n = 0; n < W::N_PARTS; n++) {
        int slice = n / 2, half = n % 2, x = it.col + slice * W::SLICE;
        uint32_t turn = first + n;
        uint8_t *part = s.parts[w.team][turn % W::N_PLACES];
        if (half == 0)
#pragma unroll
            for (int i = 0; i < W::SLICE / 4; i++) total[i] = 0;
        barrier_wait(&s.aux[w.team][turn % W::N_PLACES], turn / W::N_PLACES % 2);
        grad_part<T, W, EXACT>(part, place, sum[half] + slice * (W::SLICE / 2), total);
        if (half == 1 && job.partials) leave_sums(s, w, total);
        before_copy();
        team_sync(w);
        if (w.thread == 0) {
            copy_out(w.d, part, x, it.row + half * HALF, L2_SHORT);
            copy_out_commit();
            if (turn > 0) { /* the part before was stored */
                copy_out_read<1>();
                load_part(s, w, it, n + W::N_PLACES - 1);
            }
        }
        __syncwarp();
        if (half == 1 && job.partials) store_sums(s, w, job, it.row, x);
    }
}

/* ---- tile after tile ---- */

/* A tile and the one after it. */
template <class W>
__device__ __forceinline__ ahead look_ahead(const wgmma_job &job, int tile, int step,
                                            uint32_t n_done) {
    bool more = tile + step < job.n_tiles;
    ahead it = {rows_of<TTI_WGMMA_GELU_GRAD>(job, tile).row, col_of<W>(job, tile), -1, 0, n_done};
    if (more) it.next_row = rows_of<TTI_WGMMA_GELU_GRAD>(job, tile + step).row;
    if (more) it.next_col = col_of<W>(job, tile + step);
    return it;
}

template <class T, class W, int KIND, bool EXACT>
__device__ __forceinline__ void work(wgmma_shared<W> &s, const worker &w, const wgmma_job &job) {
    int step = gridDim.x / CLUSTER, block = blockIdx.x / CLUSTER, tile = block + w.team * step;
    uint32_t turn = w.team * job.n_blocks, n_done = 0;
    if (KIND == TTI_WGMMA_GELU_GRAD && w.thread == 0 && tile < job.n_tiles)
        for (int i = 0; i < W::N_PLACES; i++)
            load_part(s, w, look_ahead<W>(job, tile, 2 * step, 0), i);
    __syncwarp();
    for (; tile < job.n_tiles; tile += 2 * step, turn += 2 * job.n_blocks, n_done++) {
        typename W::sums sum;
        if (tile != block) threads_sync(1 + w.team, 2 * TEAM); /* after the other team's */
        multiply<T, W, is_across(KIND)>(s, w, job.n_blocks, turn, tile + step < job.n_tiles, sum);
        tile_rows at = rows_of<KIND>(job, tile);
        int col = col_of<W>(job, tile);
        if constexpr (KIND == TTI_WGMMA_BIAS || is_push(KIND))
            finish_bias<T, W>(s, w, job, at, col, sum);
        else if constexpr (KIND == TTI_WGMMA_EXPS)
            finish_exps<T, W>(s, w, job, at.row, col, sum);
        else if constexpr (KIND == TTI_WGMMA_GELU)
            finish_gelu<T, W, EXACT>(s, w, job, at.row, col, sum);
        else
            finish_grad<T, W, EXACT>(s, w, job, look_ahead<W>(job, tile, 2 * step, n_done), sum);
    }
    if (w.thread == 0 && is_push(KIND))
        copy_out_far();
    else if (w.thread == 0)
        copy_out_read<0>();
}

template <class W>
__device__ __forceinline__ void open_barriers(wgmma_shared<W> &s) {
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            barrier_init(&s.full[i], 1);
            barrier_init(&s.empty[i], CLUSTER * (TEAM / 32)); /* the warps of one of the teams */
        }
        for (int i = 0; i < 2 * W::N_PLACES; i++)
            barrier_init(&s.aux[i / W::N_PLACES][i % W::N_PLACES], 1);
        barrier_init_done();
    }
    cluster_sync();
}

#endif

template <class T, class W, int KIND, bool EXACT>
__global__ void __launch_bounds__(THREADS, 1)
    wgmma_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                 const __grid_constant__ CUtensorMap d, const __grid_constant__ CUtensorMap aux,
                 wgmma_job job) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(1024) uint8_t memory[];
    wgmma_shared<W> &s = *reinterpret_cast<wgmma_shared<W> *>(memory);
    open_barriers(s);
    if (threadIdx.x < TEAM) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)LOADER_REGISTERS));
        if (threadIdx.x == 0) load_tiles<W, KIND>(s, &a, &b, job);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)WORKER_REGISTERS));
        int thread = threadIdx.x % TEAM;
        worker w = {(int)threadIdx.x / TEAM - 1, thread, thread / 32, thread % 32, &d, &aux};
        work<T, W, KIND, EXACT>(s, w, job);
    }
    __syncwarp();
    cluster_sync(); /* no block exits while others still arrive at its barriers */
#endif
}

/* ---- the host's side ---- */

enum { SUM_LANES = 32, SUM_ROWS = 32, STRIP_BYTES = 16 << 20 };

/* Row y of threads takes parts y, y + 32, .., then y by y. */
__global__ void __launch_bounds__(SUM_LANES *SUM_ROWS)
    wgmma_sums_kernel(const float *partials, int n_parts, int n, float *sums) {
    __shared__ float shared[SUM_ROWS][SUM_LANES];
    int col = blockIdx.x * SUM_LANES + threadIdx.x;
    float sum = 0;
    if (col < n)
        for (int i = threadIdx.y; i < n_parts; i += SUM_ROWS) sum += partials[(int64_t)i * n + col];
    shared[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || col >= n) return;
    for (int y = 1; y < SUM_ROWS; y++) sum += shared[y][threadIdx.x];
    sums[col] = sum;
}

/* Strips of equal width with at most STRIP_BYTES of b.  If rows move concurrently, or belong to two
 * ranks, there is one: rows must then end in order. */
static int strip_of(const tti_cuda_wgmma_desc &g, int n_cols) {
    bool rows_first = g.rows_arrived || is_push(g.kind);
    int64_t n_strips = rows_first ? 1 : (g.n * g.k * 2 + STRIP_BYTES - 1) / STRIP_BYTES;
    return (int)((n_cols + n_strips - 1) / n_strips);
}

static wgmma_job job_of(const tti_cuda_wgmma_desc &g, int cols) {
    wgmma_job job = {g.bias, g.summed ? g.partials : nullptr, (int)g.m, (int)g.n};
    job.rank = g.rank;
    job.part = (int)(g.part_rows / (CLUSTER * ROWS));
    job.rows_arrived = g.rows_arrived, job.wanted = g.wanted;
    job.state = g.state, job.timeout_ns = g.timeout_ns;
    job.most = g.most, job.base = g.base, job.labels = g.labels;
    job.row_sums = g.row_sums, job.row_bests = g.row_bests, job.own = g.own;
    job.n_blocks = (int)((g.k + DEPTH - 1) / DEPTH);
    job.n_cols = (int)((g.n + cols - 1) / cols);
    job.strip = strip_of(g, job.n_cols);
    job.n_tiles = (int)((g.m + CLUSTER * ROWS - 1) / (CLUSTER * ROWS)) * job.n_cols;
    return job;
}

static int64_t tiles_of(int64_t m, int64_t n, int64_t cols) {
    return (m + CLUSTER * ROWS - 1) / (CLUSTER * ROWS) * ((n + cols - 1) / cols);
}

/* Columns of a tile: the narrow one if the last cluster then ends earlier. */
static int cols_of(int64_t m, int64_t n) {
    const int64_t n_clusters = 66; /* of the kind of device that has these kernels */
    int64_t rounds[2] = {(tiles_of(m, n, 192) + n_clusters - 1) / n_clusters,
                         (tiles_of(m, n, 160) + n_clusters - 1) / n_clusters};
    return rounds[1] * 160 * 100 < rounds[0] * 192 * 97 ? 160 : 192;
}

static cudaError_t count_sms(int *n) {
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    return error != cudaSuccess ? error
                                : cudaDeviceGetAttribute(n, cudaDevAttrMultiProcessorCount, device);
}

/* As many clusters as fit, or as there is work for. */
template <class T, class W, int KIND, bool EXACT>
static cudaError_t start(const wgmma_job &job, const CUtensorMap (&maps)[4], cudaStream_t stream) {
    auto *kernel = wgmma_kernel<T, W, KIND, EXACT>;
    int n_sms = 0;
    cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             (int)sizeof(wgmma_shared<W>));
    if (error == cudaSuccess) error = count_sms(&n_sms);
    if (error != cudaSuccess) return error;
    int n_clusters = n_sms / CLUSTER < job.n_tiles ? n_sms / CLUSTER : job.n_tiles;
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = CLUSTER, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(n_clusters * CLUSTER), config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = sizeof(wgmma_shared<W>), config.stream = stream;
    config.attrs = &cluster, config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, maps[0], maps[1], maps[2], maps[3], job);
}

template <class T, class W, int KIND, bool EXACT>
static cudaError_t launch_wide(const tti_cuda_wgmma_desc &g, cudaStream_t stream) {
    const bool across = is_across(KIND);
    const void *second = KIND == TTI_WGMMA_BIAS || KIND == TTI_WGMMA_EXPS ? g.d : g.aux;
    CUtensorMap maps[4]; /* a, b, d, aux */
    if (!tti_make_map(&maps[0], g.dtype, g.a, g.m, g.k, ROWS) ||
        !tti_make_map(&maps[1], g.dtype, g.b, across ? g.k : g.n, across ? g.n : g.k,
                      (across ? DEPTH : W::COLS) / CLUSTER) ||
        !tti_make_map(&maps[2], g.dtype, g.d, g.m, g.n, HALF, W::SLICE) ||
        !tti_make_map(&maps[3], g.dtype, second, is_push(KIND) ? g.m / 2 : g.m, g.n, HALF,
                      W::SLICE))
        return cudaErrorInvalidValue;
    cudaError_t error = start<T, W, KIND, EXACT>(job_of(g, W::COLS), maps, stream);
    if (error != cudaSuccess || !g.summed) return error;
    dim3 block(SUM_LANES, SUM_ROWS);
    wgmma_sums_kernel<<<(unsigned)((g.n + SUM_LANES - 1) / SUM_LANES), block, 0, stream>>>(
        g.partials, (int)tti_cuda_wgmma_parts(g.m), (int)g.n, g.sums);
    return cudaGetLastError();
}

/* A gelu takes as long as the product in front of it: narrow tiles save nothing there. */
template <class T, int KIND, bool EXACT>
static cudaError_t launch(const tti_cuda_wgmma_desc &g, cudaStream_t stream) {
    constexpr bool plain = KIND == TTI_WGMMA_BIAS || is_push(KIND);
    if constexpr (plain)
        if (cols_of(g.m, g.n) == 160) return launch_wide<T, wide<160>, KIND, EXACT>(g, stream);
    return launch_wide<T, wide<192>, KIND, EXACT>(g, stream);
}

/* f16 has not the range. */
template <class T>
static cudaError_t launch_exps(const tti_cuda_wgmma_desc &g, cudaStream_t stream) {
    if constexpr (std::is_same<T, tti_bf16>::value)
        return launch_wide<T, wide<TTI_WGMMA_COLS>, TTI_WGMMA_EXPS, false>(g, stream);
    return cudaErrorInvalidValue;
}

template <class T>
static cudaError_t launch_kind(const tti_cuda_wgmma_desc &g, cudaStream_t stream) {
    if ((is_push(g.kind) || g.rows_arrived) &&
        (g.part_rows <= 0 || g.part_rows % TTI_WGMMA_UNIT != 0 || g.m % (2 * g.part_rows) != 0))
        return cudaErrorInvalidValue;
    if (g.kind == TTI_WGMMA_PUSH) return launch<T, TTI_WGMMA_PUSH, false>(g, stream);
    if (g.kind == TTI_WGMMA_PUSH_BACK) return launch<T, TTI_WGMMA_PUSH_BACK, false>(g, stream);
    if (g.kind == TTI_WGMMA_BIAS) return launch<T, TTI_WGMMA_BIAS, false>(g, stream);
    if (g.kind == TTI_WGMMA_EXPS) return launch_exps<T>(g, stream);
    if (g.kind == TTI_WGMMA_GELU)
        return g.exact ? launch<T, TTI_WGMMA_GELU, true>(g, stream)
                       : launch<T, TTI_WGMMA_GELU, false>(g, stream);
    return g.exact ? launch<T, TTI_WGMMA_GELU_GRAD, true>(g, stream)
                   : launch<T, TTI_WGMMA_GELU_GRAD, false>(g, stream);
}

extern "C" bool tti_cuda_wgmma_has(int capability) {
#ifdef TTI_HAVE_WGMMA
    return capability == 90 && tti_encode_of();
#else
    (void)capability;
    return false;
#endif
}

extern "C" int64_t tti_cuda_wgmma_parts(int64_t m) { return (m + ROWS - 1) / ROWS; }

extern "C" double tti_cuda_wgmma_use(int64_t m, int64_t n) {
    double all = (double)(tiles_of(m, n, 192) * CLUSTER * ROWS * 192);
    return (double)m * (double)n / all;
}

extern "C" cudaError_t tti_cuda_wgmma(const tti_cuda_wgmma_desc *g, cudaStream_t stream) {
    if (g->m == 0 || g->n == 0) return cudaSuccess;
    if (g->dtype == TUTTI_BF16) return launch_kind<tti_bf16>(*g, stream);
    return launch_kind<tti_f16>(*g, stream);
}
