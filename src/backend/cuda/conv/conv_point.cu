/* conv_point.cu - 1x1 convolutions on Hopper's tensor cores that compute the sums of the following
 * batch norm before the values leave the multiprocessor.
 *
 * Such a convolution is a product of pixels by channels that is limited by memory, so merging a
 * pass over its result saves its time.  As in wgmma.cu a block takes tile after tile of 128 pixels,
 * the copy engine fills a ring of stages with 64 channels each, and two warpgroups alternate: one
 * multiplies, the other finishes its tile.  The blocks of a cluster work on two times 128 pixels
 * and 1 or 2 ranges of channels, and load common data for each other.
 *
 * Forward the tile is rounded, stored from shared memory, and read there again for mean and M2 of
 * its columns.  Backward two warps prefetch the other inputs of the gradient (the other gradient
 * and x) and store the result; sums are computed in registers.  Tiles run from the last to the
 * first: the input's end was written last, and the reader of the result begins with its start.  A
 * tile writes its sums to memory, where conv_point_end.cu joins them: the order depends on the
 * shape alone. */
#include "backend/cuda/conv/conv_point.h"

#include "backend/cuda/conv/conv_point.cuh"
#include "backend/cuda/gemm/tensor_map.cuh"
#include "backend/cuda/norm/bn_scale.cuh"

namespace {

enum {
    ROWS = POINT_ROWS,
    DEPTH = 64,
    CLUSTER = 2, /* blocks */
    SLICE = 64,  /* columns of a part */
    HALF = 64,   /* rows of a part */
    A_BYTES = ROWS * DEPTH * 2,
    PART_BYTES = HALF * SLICE * 2,
    MAX_SUMS = TTI_POINT_MAX_SUMS,
    TEAM = 128, /* threads of a warpgroup */
    TEAM_WARPS = TEAM / 32,
    THREADS = 3 * TEAM,
    LOADER_REGISTERS = 56, /* of 168 that each thread starts with */
    WORKER_REGISTERS = 224
};

enum { STATS = TTI_POINT_STATS, JOIN = TTI_POINT_JOIN, SUMS = TTI_POINT_SUMS };

struct point_job {
    const int32_t *rows;
    const uint8_t *mask;
    const float *stats;        /* {count, mean[n], M2[n]} of x */
    const float *gamma, *beta; /* [n] */
    float eps;
    float *partials; /* [tiles of rows][2][n] */
    int m, n, per_sample;
    int n_blocks, n_cols, n_tiles; /* of k; of n; all, of a cluster each */
    bool more;
};

/* COLS: of a tile. */
template <int COLS, int KIND>
struct point_shared {
    static const bool BACK = KIND != STATS; /* rows of b lie across k, and there is an x */
    static const int STAGES = BACK ? 3 : 4, N_SLICES = COLS / SLICE;
    static const int N_PARTS = ROWS / HALF * N_SLICES, N_PLACES = BACK ? 3 : N_PARTS;
    static const int B_BYTES = COLS * DEPTH * 2;
    alignas(1024) uint8_t a[STAGES][A_BYTES];
    uint8_t b[STAGES][B_BYTES];
    uint8_t parts[2][N_PLACES][PART_BYTES]; /* of each warpgroup: values to store, or more */
    uint8_t x[BACK ? 2 : 1][BACK ? N_PLACES : 1][BACK ? PART_BYTES : 16];
    float factors[3][KIND == SUMS ? MAX_SUMS : 2]; /* of the columns: mean, scale, beta */
    float sums[2][TEAM_WARPS][2][COLS];
    uint64_t full[STAGES], empty[STAGES], brought[2][N_PLACES], ready[2][N_PLACES];
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* ---- tiles ---- */

template <int COLS>
struct place {
    int row, col;
    __device__ __forceinline__ place(const point_job &job, int tile) {
        tile = job.n_tiles - 1 - tile;
        row = (tile / job.n_cols * CLUSTER + (int)cluster_rank()) * ROWS;
        col = tile % job.n_cols * COLS;
    }
};

/* ---- the loaders: a thread each ---- */

template <int COLS, int KIND>
__device__ __forceinline__ void load_tiles(point_shared<COLS, KIND> &s, const CUtensorMap *a,
                                           const CUtensorMap *b, const point_job &job) {
    typedef point_shared<COLS, KIND> S;
    const uint16_t all = (1 << CLUSTER) - 1;
    const int b_rows = (S::BACK ? DEPTH : COLS) / CLUSTER, first = (int)cluster_rank() * b_rows;
    uint32_t turn = 0;
    for (int tile = blockIdx.x / CLUSTER; tile < job.n_tiles; tile += gridDim.x / CLUSTER) {
        place<COLS> at(job, tile);
        for (int i = 0; i < job.n_blocks; i++, turn++) {
            uint32_t stage = turn % S::STAGES;
            uint64_t *full = &s.full[stage];
            barrier_wait(&s.empty[stage], turn / S::STAGES % 2 ^ 1);
            barrier_expect(full, A_BYTES + S::B_BYTES);
            copy_in(s.a[stage], a, i * DEPTH, at.row, full, L2_NORMAL);
            if constexpr (S::BACK) {
#pragma unroll
                for (int k = 0; k < S::N_SLICES; k++)
                    copy_in_many(s.b[stage] + (k * DEPTH + first) * 128, b, at.col + k * SLICE,
                                 i * DEPTH + first, full, L2_LONG, all);
            } else {
                copy_in_many(s.b[stage] + first * 128, b, i * DEPTH, at.col + first, full, L2_LONG,
                             all);
            }
        }
    }
}

/* The tiles of a warpgroup of this cluster, and the parts of them. */
template <int COLS>
struct part_list {
    static const int OF_TILE = ROWS / HALF * COLS / SLICE;
    int first, step, n;
    __device__ __forceinline__ part_list(const point_job &job, int team) {
        int n_clusters = gridDim.x / CLUSTER;
        first = blockIdx.x / CLUSTER + team * n_clusters, step = 2 * n_clusters;
        n = first < job.n_tiles ? ((job.n_tiles - first - 1) / step + 1) * OF_TILE : 0;
    }
    __device__ __forceinline__ place<COLS> at(const point_job &job, int part) const {
        place<COLS> at(job, first + part / OF_TILE * step);
        at.row += part % 2 * HALF, at.col += part % OF_TILE / 2 * SLICE;
        return at;
    }
};

template <int COLS, int KIND>
__device__ __forceinline__ void load_part(point_shared<COLS, KIND> &s, int team, int to,
                                          const CUtensorMap *more, const CUtensorMap *x, bool both,
                                          place<COLS> at) {
    uint64_t *brought = &s.brought[team][to];
    barrier_expect(brought, both ? 2 * PART_BYTES : PART_BYTES);
    if (both) copy_in(s.parts[team][to], more, at.col, at.row, brought, L2_SHORT);
    copy_in(s.x[team][to], x, at.col, at.row, brought, L2_NORMAL);
}

/* Loads the other inputs of a warpgroup's tiles, and stores the results. */
template <int COLS, int KIND>
__device__ __forceinline__ void tend_parts(point_shared<COLS, KIND> &s, int team,
                                           const CUtensorMap *more, const CUtensorMap *x,
                                           const CUtensorMap *d, const point_job &job) {
    typedef point_shared<COLS, KIND> S;
    part_list<COLS> list(job, team);
    for (int part = 0; part < S::N_PLACES && part < list.n; part++)
        load_part<COLS, KIND>(s, team, part, more, x, job.more, list.at(job, part));
    for (int part = 0; part < list.n; part++) {
        int from = part % S::N_PLACES, next = part + S::N_PLACES;
        place<COLS> at = list.at(job, part);
        barrier_wait(&s.ready[team][from], part / S::N_PLACES % 2);
        copy_out(d, s.parts[team][from], at.col, at.row, L2_NORMAL);
        copy_out_commit();
        copy_out_read<0>();
        if (next < list.n)
            load_part<COLS, KIND>(s, team, from, more, x, job.more, list.at(job, next));
    }
}

/* ---- the workers: two warpgroups ---- */

/* The position of this thread: the warpgroup, and its place in it. */
struct worker {
    int team, thread, warp, lane;
};

__device__ __forceinline__ void team_sync(const worker &w) { threads_sync(3 + w.team, TEAM); }

__device__ __forceinline__ void give_back(uint64_t *empty, int lane) {
    if (lane < CLUSTER) barrier_arrive_at(empty, (uint32_t)lane);
}

/* A stage of k.  FIRST: of a tile. */
template <int COLS, int KIND, bool FIRST>
__device__ __forceinline__ void multiply_stage(point_shared<COLS, KIND> &s, uint32_t turn,
                                               float (&sum)[2][COLS / 2]) {
    typedef point_shared<COLS, KIND> S;
    uint32_t stage = turn % S::STAGES;
    uint64_t a = describe_k_rows(s.a[stage]);
    uint64_t b =
        S::BACK ? describe_k_columns(s.b[stage], DEPTH * 128) : describe_k_rows(s.b[stage]);
    const int lower = HALF * 128 / 16, b_step = S::BACK ? 16 * 128 / 16 : 32 / 16;
    barrier_wait(&s.full[stage], turn / S::STAGES % 2);
    product_begin();
    product<S::BACK, !FIRST>(sum[0], a, b);
    product<S::BACK, !FIRST>(sum[1], a + lower, b);
#pragma unroll
    for (int k = 1; k < DEPTH / 16; k++) {
        product<S::BACK, true>(sum[0], a + 2 * k, b + k * b_step);
        product<S::BACK, true>(sum[1], a + 2 * k + lower, b + k * b_step);
    }
    product_commit();
}

/* sum[half][..] = rows half * 64 .. of the tile.  turn: the first of its stages. */
template <int COLS, int KIND>
__device__ __forceinline__ void multiply(point_shared<COLS, KIND> &s, const worker &w, int n_blocks,
                                         uint32_t turn, bool more, float (&sum)[2][COLS / 2]) {
    typedef point_shared<COLS, KIND> S;
    multiply_stage<COLS, KIND, true>(s, turn, sum);
    for (int i = 1; i < n_blocks; i++) {
        multiply_stage<COLS, KIND, false>(s, turn + i, sum);
        product_wait<1>();
        give_back(&s.empty[(turn + i - 1) % S::STAGES], w.lane);
    }
    if (more) threads_arrive(1 + (w.team ^ 1), 2 * TEAM);
    product_wait<0>();
    give_back(&s.empty[(turn + n_blocks - 1) % S::STAGES], w.lane);
    product_done(sum[0]);
    product_done(sum[1]);
}

/* The row address of this lane in the 16 x 16 blocks of a warp's 16 rows, for ldmatrix and
 * stmatrix: 8 x 8 blocks rows 0-7, rows 8-15, then the same for the next 8 columns.  The block of
 * columns 16 p ..: xor 32 p. */
__device__ __forceinline__ uint32_t row_place(int lane, int first_row) {
    return (first_row + lane % 16) * 128 + ((lane / 16) ^ lane % 8) * 16;
}

__device__ __forceinline__ uint8_t *block_of(uint8_t *part, uint32_t place, int pair) {
    return part + (place ^ pair * 32);
}

__device__ __forceinline__ float2 unpack(uint32_t two) {
    return make_float2(__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000u));
}

/* ---- mean and M2 of columns ---- */

/* Two columns of n values: sums of x - k and (x - k)^2 for the first value k. */
struct two_columns {
    float2 k, sum, squares;
};

__device__ __forceinline__ void add_two(two_columns &c, uint32_t two) {
    float2 x = unpack(two), d = make_float2(x.x - c.k.x, x.y - c.k.y);
    c.sum.x += d.x, c.sum.y += d.y;
    c.squares.x = fmaf(d.x, d.x, c.squares.x), c.squares.y = fmaf(d.y, d.y, c.squares.y);
}

/* Columns 2 lane and 2 lane + 1 of a row. */
__device__ __forceinline__ uint32_t two_of(const uint8_t *part, int row, int lane) {
    return *(const uint32_t *)(part + row * 128 + (lane / 4 ^ row % 8) * 16 + lane % 4 * 4);
}

/* Adds rows first .. of a part, at most 16. */
__device__ __forceinline__ void add_rows(two_columns &c, const uint8_t *part, int first, int n,
                                         int lane) {
    if (n == 16) {
#pragma unroll
        for (int i = 0; i < 16; i++) add_two(c, two_of(part, first + i, lane));
        return;
    }
    for (int i = 0; i < n; i++) add_two(c, two_of(part, first + i, lane));
}

/* Rows that count, of the first n of a tile, of the 16 in each half that a warp has. */
__device__ __forceinline__ int rows_of_warp(int n, int warp) {
    return clip(n, warp * 16, 16) + clip(n, HALF + warp * 16, 16);
}

/* Writes mean and M2 of this warp's rows, from the parts of a slice, to to[2][..]. */
__device__ __forceinline__ void leave_moments(const uint8_t *upper, const uint8_t *lower, int n,
                                              const worker &w, float *mean, float *m2) {
    two_columns c = {unpack(two_of(upper, w.warp * 16, w.lane)), {0, 0}, {0, 0}};
    add_rows(c, upper, w.warp * 16, clip(n, w.warp * 16, 16), w.lane);
    add_rows(c, lower, w.warp * 16, clip(n, HALF + w.warp * 16, 16), w.lane);
    int own = rows_of_warp(n, w.warp);
    float part = 1.0f / (ROWS / TEAM_WARPS);
    if (own < ROWS / TEAM_WARPS) part = own > 0 ? 1.0f / (float)own : 0;
    float2 d = make_float2(c.sum.x * part, c.sum.y * part);
    *(float2 *)&mean[2 * w.lane] = make_float2(c.k.x + d.x, c.k.y + d.y);
    float2 sum = make_float2(c.squares.x - c.sum.x * d.x, c.squares.y - c.sum.y * d.y);
    *(float2 *)&m2[2 * w.lane] = /* NaN stays NaN */
        make_float2(sum.x < 0 ? 0.0f : sum.x, sum.y < 0 ? 0.0f : sum.y);
}

/* The values of a tile's column, from its warps' in order: of four equal counts, which saves
 * divisions, or by Chan's formula. */
template <int COLS>
__device__ __forceinline__ float2 join_moments(const float (&sums)[TEAM_WARPS][2][COLS], int col,
                                               int n) {
    float mean = 0, m2 = 0, count = 0;
#pragma unroll
    for (int i = 0; i < TEAM_WARPS; i++) {
        float more = n == ROWS ? ROWS / TEAM_WARPS : (float)rows_of_warp(n, i);
        if (more == 0) continue;
        float part = n == ROWS ? 1.0f / (float)(i + 1) : more / (count + more);
        float d = sums[i][0][col] - mean;
        m2 += sums[i][1][col] + d * d * count * part;
        mean += d * part;
        count += more;
    }
    return make_float2(mean, m2);
}

template <int COLS>
__device__ __forceinline__ void store_moments(const float (&sums)[TEAM_WARPS][2][COLS],
                                              const worker &w, const point_job &job, int n, int row,
                                              int col) {
    if (w.thread < COLS && row < job.m) {
        float2 all = n == ROWS ? join_moments<COLS>(sums, w.thread, ROWS)
                               : join_moments<COLS>(sums, w.thread, n);
        float *to = job.partials + (int64_t)(row / ROWS) * 2 * job.n + col + w.thread;
        to[0] = all.x, to[job.n] = all.y;
    }
    __syncwarp();
}

template <int COLS>
__device__ __forceinline__ void finish_stats(point_shared<COLS, STATS> &s, const worker &w,
                                             const CUtensorMap *to, const point_job &job,
                                             int n_real, place<COLS> at,
                                             float (&sum)[2][COLS / 2]) {
    typedef point_shared<COLS, STATS> S;
    uint32_t place = row_place(w.lane, w.warp * 16);
    int n = clip(n_real, at.row, ROWS);
    if (w.thread == 0) copy_out_read<0>(); /* the tile before lay in the same places */
    team_sync(w);
#pragma unroll
    for (int part = 0; part < S::N_PARTS; part++)
#pragma unroll
        for (int pair = 0; pair < SLICE / 16; pair++) {
            const float *z = sum[part % 2] + part / 2 * 32 + pair * 8;
            uint32_t r[4];
#pragma unroll
            for (int i = 0; i < 4; i++) r[i] = tti_pack(z[i * 2], z[i * 2 + 1], tti_bf16());
            tti_stmatrix(block_of(s.parts[w.team][part], place, pair), r);
        }
    before_copy();
    team_sync(w);
    if (w.thread == 0) {
#pragma unroll
        for (int part = 0; part < S::N_PARTS; part++)
            copy_out(to, s.parts[w.team][part], at.col + part / 2 * SLICE, at.row + part % 2 * HALF,
                     L2_NORMAL);
        copy_out_commit();
    }
    __syncwarp();
#pragma unroll
    for (int slice = 0; slice < S::N_SLICES; slice++)
        leave_moments(s.parts[w.team][slice * 2], s.parts[w.team][slice * 2 + 1], n, w,
                      s.sums[w.team][w.warp][0] + slice * SLICE,
                      s.sums[w.team][w.warp][1] + slice * SLICE);
    team_sync(w);
    store_moments<COLS>(s.sums[w.team], w, job, n, at.row, at.col);
}

/* ---- the gradient is added to the other one ---- */

/* Bits of the mask for this thread's rows of a tile: [half][h][slice], 64 columns each. */
template <int COLS>
struct tile_bits {
    uint2 of[2][2][COLS / SLICE];
};

template <int COLS>
__device__ __forceinline__ void read_bits(tile_bits<COLS> &bits, const worker &w,
                                          const point_job &job, place<COLS> at) {
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = at.row + half * HALF + w.warp * 16 + w.lane / 4 + 8 * h;
            const uint8_t *from = job.mask + ((int64_t)row * job.n + at.col) / 8;
#pragma unroll
            for (int slice = 0; slice < COLS / SLICE; slice++)
                bits.of[half][h][slice] = row < job.m
                                              ? __ldg((const uint2 *)(from + slice * (SLICE / 8)))
                                              : make_uint2(0, 0);
        }
}

/* Sets both halves according to two bits. */
__device__ __forceinline__ uint32_t expand_bits(uint32_t two_bits) {
    return (two_bits & 1 ? 0x0000ffffu : 0) | (two_bits & 2 ? 0xffff0000u : 0);
}

/* The factors of a thread's 16 columns of a slice, those of [j]: 8 j + t % 4 * 2 and the next; and
 * which of its rows h count. */
struct known {
    float2 mean[8], scale[8], beta[8]; /* SUMS: bn(x) = (x - mean) scale + beta */
    uint2 bits[2];                     /* JOIN: the mask, of row h */
    bool counted[2];
};

template <int COLS, int KIND>
__device__ __forceinline__ void know_columns(known &k, const point_shared<COLS, KIND> &s, int lane,
                                             const point_job &job, int col) {
#pragma unroll
    for (int j = 0; j < 8; j++) {
        int at = col + j * 8 + lane % 4 * 2;
        if constexpr (KIND == SUMS) {
            k.mean[j] = *(const float2 *)&s.factors[0][at];
            k.scale[j] = *(const float2 *)&s.factors[1][at];
            k.beta[j] = *(const float2 *)&s.factors[2][at];
        } else {
            const float *two = job.stats + 1 + at; /* of odd address */
            k.mean[j] = make_float2(__ldg(two), __ldg(two + 1));
        }
    }
}

/* By both warpgroups. */
__device__ __forceinline__ void fill_factors(float (&factors)[3][MAX_SUMS], const point_job &job) {
    for (int i = (int)threadIdx.x - TEAM; i < job.n; i += 2 * TEAM) {
        factors[0][i] = job.stats[1 + i];
        factors[1][i] = job.gamma[i] * rstd_of<float>(job.stats, job.stats[1 + job.n + i], job.eps);
        factors[2][i] = job.beta[i];
    }
    threads_sync(5, 2 * TEAM);
}

/* The bits of two of a thread's columns [j] in row h that pass. */
template <int KIND>
__device__ __forceinline__ uint32_t passing(const known &k, int j, int h, int lane, float2 x) {
    if constexpr (KIND == JOIN)
        return expand_bits((j < 4 ? k.bits[h].x : k.bits[h].y) >> (j % 4 * 8 + lane % 4 * 2));
    bool first = !((x.x - k.mean[j].x) * k.scale[j].x + k.beta[j].x <= 0);
    bool second = !((x.y - k.mean[j].y) * k.scale[j].y + k.beta[j].y <= 0);
    return expand_bits((first ? 1u : 0u) | (second ? 2u : 0u));
}

/* Sums of a thread's columns at [2 j + e]. */
struct column_sums {
    float total[16], dot[16];
};

/* Part becomes the stored value: JOIN: z + more where the mask passes; SUMS: z.  Adds it, where it
 * passes and counts, and times x - mean, to the sums. */
template <int KIND>
__device__ __forceinline__ void join_part(uint8_t *part, uint8_t *of_x, uint32_t place,
                                          const float *sum, const known &k, bool with_more,
                                          int lane, column_sums &sums) {
#pragma unroll
    for (int pair = 0; pair < SLICE / 16; pair++) {
        uint32_t more[4] = {0, 0, 0, 0}, x[4];
        if (KIND == JOIN && with_more) tti_ldmatrix(more, block_of(part, place, pair));
        tti_ldmatrix(x, block_of(of_x, place, pair));
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int j = pair * 2 + i / 2, h = i % 2;
            uint32_t two = tti_pack(sum[pair * 8 + i * 2], sum[pair * 8 + i * 2 + 1], tti_bf16());
            float2 at = unpack(x[i]);
            if constexpr (KIND == JOIN) {
                float2 z = unpack(two), other = unpack(more[i]);
                two = tti_pack(z.x + other.x, z.y + other.y, tti_bf16());
            } else {
                more[i] = two;
            }
            two &= passing<KIND>(k, j, h, lane, at);
            if constexpr (KIND == JOIN) more[i] = two;
            if (!k.counted[h]) two = 0;
            float2 v = unpack(two);
            sums.total[j * 2] += v.x, sums.total[j * 2 + 1] += v.y;
            sums.dot[j * 2] = fmaf(v.x, at.x - k.mean[j].x, sums.dot[j * 2]);
            sums.dot[j * 2 + 1] = fmaf(v.y, at.y - k.mean[j].y, sums.dot[j * 2 + 1]);
        }
        tti_stmatrix(block_of(part, place, pair), more);
    }
}

/* The sums of a warp's rows: of lane l, columns 2 l and 2 l + 1 of the slice. */
__device__ __forceinline__ void leave_sums(float (&total)[16], int lane, float *to) {
    *(float2 *)&to[lane * 2] = tti_sum_columns(total, lane);
}

/* Both kinds of sums of a slice, from the warps' in order. */
template <int COLS>
__device__ __forceinline__ void store_sums(const float (&sums)[TEAM_WARPS][2][COLS],
                                           const worker &w, const point_job &job, int slice,
                                           int row, int col) {
    int kind = w.thread / SLICE, c = w.thread % SLICE, at = slice * SLICE + c;
    if (row < job.m) {
        float all = sums[0][kind][at];
#pragma unroll
        for (int i = 1; i < TEAM_WARPS; i++) all += sums[i][kind][at];
        job.partials[((int64_t)(row / ROWS) * 2 + kind) * job.n + col + c] = all;
    }
    __syncwarp();
}

/* turn: the first of the tile's parts. */
template <int COLS, int KIND>
__device__ __forceinline__ void finish_join(point_shared<COLS, KIND> &s, const worker &w,
                                            const point_job &job, int n_real, place<COLS> at,
                                            const tile_bits<COLS> &bits, uint32_t turn,
                                            float (&sum)[2][COLS / 2]) {
    typedef point_shared<COLS, KIND> S;
    uint32_t place = row_place(w.lane, w.warp * 16);
    column_sums sums;
    known k;
#pragma unroll
    for (int part = 0; part < S::N_PARTS; part++, turn++) {
        int slice = part / 2, half = part % 2, col = at.col + slice * SLICE;
        int own = at.row + half * HALF + w.warp * 16 + w.lane / 4;
        uint32_t from = turn % S::N_PLACES;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            k.counted[h] = own + 8 * h < n_real;
            k.bits[h] = bits.of[half][h][slice];
        }
        if (half == 0) {
            know_columns<COLS, KIND>(k, s, w.lane, job, col);
#pragma unroll
            for (int i = 0; i < 16; i++) sums.total[i] = sums.dot[i] = 0;
        }
        barrier_wait(&s.brought[w.team][from], turn / S::N_PLACES % 2);
        join_part<KIND>(s.parts[w.team][from], s.x[w.team][from], place, sum[half] + slice * 32, k,
                        job.more, w.lane, sums);
        before_copy();
        __syncwarp();
        if (w.lane == 0) barrier_arrive(&s.ready[w.team][from]);
        if (half == 0) continue;
        leave_sums(sums.total, w.lane, s.sums[w.team][w.warp][0] + slice * SLICE);
        leave_sums(sums.dot, w.lane, s.sums[w.team][w.warp][1] + slice * SLICE);
        team_sync(w); /* the values stay there until this slice of the next tile */
        store_sums<COLS>(s.sums[w.team], w, job, slice, at.row, col);
    }
}

/* ---- tile after tile ---- */

template <int COLS, int KIND>
__device__ __forceinline__ void work(point_shared<COLS, KIND> &s, const worker &w,
                                     const CUtensorMap *to, const point_job &job) {
    typedef point_shared<COLS, KIND> S;
    int step = gridDim.x / CLUSTER, block = blockIdx.x / CLUSTER;
    int n_real = real_rows(job.rows, job.m, job.per_sample);
    if constexpr (KIND == SUMS) fill_factors(s.factors, job);
    uint32_t turn = w.team * job.n_blocks, n_done = 0;
    for (int tile = block + w.team * step; tile < job.n_tiles;
         tile += 2 * step, turn += 2 * job.n_blocks, n_done++) {
        float sum[2][COLS / 2];
        place<COLS> at(job, tile);
        tile_bits<COLS> bits;
        if constexpr (KIND == JOIN) read_bits<COLS>(bits, w, job, at);
        if (tile != block) threads_sync(1 + w.team, 2 * TEAM); /* after the other team's */
        multiply<COLS, KIND>(s, w, job.n_blocks, turn, tile + step < job.n_tiles, sum);
        if constexpr (S::BACK)
            finish_join<COLS, KIND>(s, w, job, n_real, at, bits, n_done * S::N_PARTS, sum);
        else
            finish_stats<COLS>(s, w, to, job, n_real, at, sum);
    }
    if (w.thread == 0) copy_out_read<0>();
}

template <int COLS, int KIND>
__device__ __forceinline__ void open_barriers(point_shared<COLS, KIND> &s) {
    typedef point_shared<COLS, KIND> S;
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::STAGES; i++) {
            barrier_init(&s.full[i], 1);
            barrier_init(&s.empty[i], CLUSTER * TEAM_WARPS); /* the warps of one of the teams */
        }
        for (int i = 0; i < 2 * S::N_PLACES; i++) {
            barrier_init(&s.brought[i / S::N_PLACES][i % S::N_PLACES], 1);
            barrier_init(&s.ready[i / S::N_PLACES][i % S::N_PLACES], TEAM_WARPS);
        }
        barrier_init_done();
    }
    cluster_sync();
}

#endif

template <int COLS, int KIND>
__global__ void __launch_bounds__(THREADS, 1)
    point_kernel(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                 const __grid_constant__ CUtensorMap d, const __grid_constant__ CUtensorMap more,
                 const __grid_constant__ CUtensorMap x, point_job job) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ __align__(1024) uint8_t memory[];
    point_shared<COLS, KIND> &s = *reinterpret_cast<point_shared<COLS, KIND> *>(memory);
    open_barriers<COLS, KIND>(s);
    int warp = (int)threadIdx.x / 32;
    if (threadIdx.x < TEAM) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"((int)LOADER_REGISTERS));
        bool first = threadIdx.x % 32 == 0;
        if (first && warp == 0) load_tiles<COLS, KIND>(s, &a, &b, job);
        if constexpr (KIND != STATS)
            if (first && (warp == 1 || warp == 2))
                tend_parts<COLS, KIND>(s, warp - 1, &more, &x, &d, job);
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"((int)WORKER_REGISTERS));
        int thread = threadIdx.x % TEAM;
        worker w = {(int)threadIdx.x / TEAM - 1, thread, thread / 32, thread % 32};
        work<COLS, KIND>(s, w, &d, job);
    }
    __syncwarp();
    cluster_sync(); /* no block exits while others still arrive at its barriers */
#endif
}

/* ---- the host's side ---- */

cudaError_t count_sms(int *n) {
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    return error != cudaSuccess ? error
                                : cudaDeviceGetAttribute(n, cudaDevAttrMultiProcessorCount, device);
}

/* As many clusters as fit, or as there is work for. */
template <int COLS, int KIND>
cudaError_t start(const point_job &job, const CUtensorMap (&maps)[5], cudaStream_t stream) {
    typedef point_shared<COLS, KIND> S;
    auto *kernel = point_kernel<COLS, KIND>;
    int n_sms = 0;
    cudaError_t error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(S));
    if (error == cudaSuccess) error = count_sms(&n_sms);
    if (error != cudaSuccess) return error;
    int n_clusters = n_sms / CLUSTER < job.n_tiles ? n_sms / CLUSTER : job.n_tiles;
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = CLUSTER, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)(n_clusters * CLUSTER)), config.blockDim = dim3(THREADS);
    config.dynamicSmemBytes = sizeof(S), config.stream = stream;
    config.attrs = &cluster, config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, maps[0], maps[1], maps[2], maps[3], maps[4], job);
}

template <int COLS, int KIND>
cudaError_t launch(const tti_cuda_point_desc &g, cudaStream_t stream) {
    CUtensorMap maps[5]; /* a, b, d, more, x */
    const bool back = KIND != STATS;
    const void *more = KIND == JOIN && g.more ? g.more : g.d, *x = back ? g.x : g.d;
    int64_t rows_of_b = back ? g.k : g.n, cols_of_b = back ? g.n : g.k;
    if (!tti_make_map(&maps[0], TUTTI_BF16, g.a, g.m, g.k, ROWS) ||
        !tti_make_map(&maps[1], TUTTI_BF16, g.b, rows_of_b, cols_of_b,
                      (back ? DEPTH : COLS) / CLUSTER) ||
        !tti_make_map(&maps[2], TUTTI_BF16, g.d, g.m, g.n, HALF) ||
        !tti_make_map(&maps[3], TUTTI_BF16, more, g.m, g.n, HALF) ||
        !tti_make_map(&maps[4], TUTTI_BF16, x, g.m, g.n, HALF))
        return cudaErrorInvalidValue;
    point_job job = {g.rows, g.mask, g.stats, g.gamma, g.beta, (float)g.eps, g.partials};
    job.m = (int)g.m, job.n = (int)g.n, job.per_sample = (int)g.per_sample;
    job.n_blocks = (int)ceil_div(g.k, DEPTH), job.n_cols = (int)(g.n / COLS);
    job.n_tiles = (int)ceil_div(g.m, CLUSTER * ROWS) * job.n_cols;
    job.more = KIND == JOIN && g.more;
    cudaError_t error = start<COLS, KIND>(job, maps, stream);
    return error == cudaSuccess ? tti_cuda_point_end(&g, stream) : error;
}

}  // namespace

extern "C" cudaError_t tti_cuda_point(const tti_cuda_point_desc *g, cudaStream_t stream) {
    if (g->m == 0 || g->n == 0) return cudaErrorInvalidValue;
    bool wide = g->n % 128 == 0;
    if (g->kind == TTI_POINT_JOIN)
        return wide ? launch<128, JOIN>(*g, stream) : launch<64, JOIN>(*g, stream);
    if (g->kind == TTI_POINT_SUMS)
        return wide ? launch<128, SUMS>(*g, stream) : launch<64, SUMS>(*g, stream);
    return wide ? launch<128, STATS>(*g, stream) : launch<64, STATS>(*g, stream);
}
