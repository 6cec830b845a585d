/* norm_16bit_grad.cuh - gradients of layer norm of rows whose values all have 16 bits, with the
 * sums of columns, in one pass over memory.
 *
 * A team of warps has ROWS rows at a time, a thread the same vector of 16 bytes in each of them:
 * its column sums take few registers, so a multiprocessor is full, and the sums over rows, which go
 * through shared memory, cost one barrier of the team.  A thread copies its inputs into shared
 * memory some turns ahead, in words of two elements, and widens them where they are used, twice.
 * Rows run from the last ones down: the end of a product that was just written is in the cache.
 * The order of all additions depends on the shape alone.
 *
 * A type R of rows defines the source of dy and the destination of dx: one value, or two terms, one
 * of which is another device's.  The bits are the same. */
#ifndef TTI_CUDA_NORM_16BIT_GRAD_CUH
#define TTI_CUDA_NORM_16BIT_GRAD_CUH

#include "backend/cuda/norm/norm_16bit.h"
#include "backend/cuda/norm/norm_row.cuh"
#include "backend/cuda/runtime/early.cuh"

namespace {

enum {
    ROWS = 2,           /* of a turn */
    MOST_THREADS = 512, /* of a block; a multiprocessor has one block */
    BLOCKS = 132,       /* the bits depend on it */
    MOST_STAGES = 4, /* turns of a thread in shared memory: one at work, the others on their way; */
    LEAST_STAGES = 2, /* so many and more where there is less of it: no bits depend on that */
    MOST_WARPS = 8,   /* of a team */
    SUM_THREADS = WARP * WARP
};

enum { X, RESIDUAL, DY }; /* and the second term of dy */
enum { DGAMMA, DBETA, DSUM, N_SUMS };

/* Blocks of teams of W warps; R::TERMS: of dy. */
template <int W, class R>
struct row_team {
    enum {
        TEAMS = MOST_THREADS / (W * WARP),
        THREADS = TEAMS * W * WARP,
        N_READ = DY + R::TERMS,
        SLOT = N_READ * ROWS * THREADS, /* vectors of a turn */
        TEAM_FLOATS = 2 * W * 2 * ROWS  /* floats of a team: [turn % 2][W][2 ROWS] */
    };
};

/* A thread's number in its team, and the team's in the block; vectors of a row, and of all. */
struct seat {
    int thread, team;
    int n, end;
};

/* Rows [row, row + ROWS), below 0: no more; at: this thread's vector of the first row. */
struct turn_at {
    int row, at;
};

__device__ __forceinline__ bool has(const seat &t, int at) { return t.thread < t.n && at < t.end; }

/* Which inputs of a turn to copy: those available before the first barrier, those after it, or all.
 */
enum { NEAR = 1, FAR = 2, ALL = NEAR | FAR };

/* slot: [N_READ][ROWS] vectors that lie THREADS apart. */
template <int THREADS, int WHAT, class R>
__device__ __forceinline__ void copy_rows(const tti_cuda_norm_grad &a, const R &rows, const seat &t,
                                          turn_at turn, uint4 *slot) {
    if (turn.row < 0) return;
#pragma unroll
    for (int r = 0, at = turn.at; r < ROWS; r++, at += t.n) {
#pragma unroll
        for (int k = 0; k < R::TERMS; k++)
            if (WHAT & (rows.is_far(k) ? FAR : NEAR))
                copy_vector(slot + ((DY + k) * ROWS + r) * THREADS, rows.term(a, k),
                            rows.place(k, turn.row + r, at, t.n), has(t, at));
        if (!(WHAT & NEAR)) continue;
        copy_vector(slot + (X * ROWS + r) * THREADS, a.x.at, at, has(t, at));
        if (a.residual.at)
            copy_vector(slot + (RESIDUAL * ROWS + r) * THREADS, a.residual.at, at, has(t, at));
    }
}

/* The copies so far, since the last group, are one. */
__device__ __forceinline__ void end_group() { asm volatile("cp.async.commit_group;"); }

/* The first turns, each a group. */
template <int THREADS, class R>
__device__ __forceinline__ auto begin_copies(const tti_cuda_norm_grad &a, const R &rows,
                                             const seat &t, turn_at &ahead, turn_at step,
                                             uint4 *slots, int n) {
    enum { SLOT = (DY + R::TERMS) * ROWS * THREADS, REST = R::HAS_BARRIER ? FAR : ALL };
    turn_at first = ahead;
    if constexpr (R::HAS_BARRIER)
        for (int s = 0; s < n; s++, first.row -= step.row, first.at -= step.at)
            copy_rows<THREADS, NEAR>(a, rows, t, first, slots + s * SLOT);
    auto begun = rows.begin();
    for (int s = 0; s < n; s++, ahead.row -= step.row, ahead.at -= step.at) {
        copy_rows<THREADS, REST>(a, rows, t, ahead, slots + s * SLOT);
        end_group();
    }
    return begun;
}

/* Until the oldest of stages groups is there. */
__device__ __forceinline__ void wait_copies(int stages) {
    static_assert(MOST_STAGES == 4 && LEAST_STAGES == 2, "these groups");
    if (stages == MOST_STAGES)
        asm volatile("cp.async.wait_group 3;" ::: "memory");
    else if (stages == 3)
        asm volatile("cp.async.wait_group 2;" ::: "memory");
    else
        asm volatile("cp.async.wait_group 1;" ::: "memory");
}

struct scales {
    float mean[ROWS], rstd[ROWS];
};

/* For missing rows those of another one: their values are zeros. */
__device__ __forceinline__ void read_scales(const tti_cuda_norm_grad &a, int row, scales &s) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        int at = min(max(row, 0) + r, (int)a.rows.n_rows - 1);
        s.mean[r] = a.mean[at], s.rstd[r] = a.rstd[at];
    }
}

/* N sums over a warp at once: x[0] of lane l becomes that of x[l / (32 / N)]. */
template <int N>
__device__ __forceinline__ void warp_sums(int lane, float (&x)[N]) {
    int d = WARP / 2;
#pragma unroll
    for (int n = N / 2; n > 0; n /= 2, d /= 2) {
        bool upper = lane & d;
#pragma unroll
        for (int j = 0; j < n; j++) {
            float send = upper ? x[j] : x[j + n], keep = upper ? x[j + n] : x[j];
            x[j] = keep + __shfl_xor_sync(0xffffffffu, send, d);
        }
    }
#pragma unroll
    for (; d > 0; d /= 2) x[0] += __shfl_xor_sync(0xffffffffu, x[0], d);
}

/* All threads of a team. */
template <int W>
__device__ __forceinline__ void team_barrier(const seat &t) {
    if (W == 1)
        __syncwarp();
    else
        asm volatile("bar.sync %0, %1;" ::"r"(t.team + 1), "n"(W * WARP) : "memory");
}

/* The sums over the threads of the team; shared: [W][N], last used two turns ago. */
template <int W, int N>
__device__ __forceinline__ void team_sums(const seat &t, float *shared, float (&x)[N]) {
    static_assert(N == 4, "one vector of a warp");
    int lane = t.thread % WARP, each = WARP / N;
    warp_sums(lane, x);
    if (lane % each == 0) shared[t.thread / WARP * N + lane / each] = x[0];
    team_barrier<W>(t);
    const float4 *of_warp = reinterpret_cast<const float4 *>(shared);
    float4 sum = of_warp[0];
#pragma unroll
    for (int w = 1; w < W; w++) {
        float4 v = of_warp[w];
        sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    x[0] = sum.x, x[1] = sum.y, x[2] = sum.z, x[3] = sum.w;
}

struct pair_rows {
    row_of<ROWS> dy, x;
};

/* Adds, for each row, the sums of d = dy gamma and of d (x - mean). */
template <class T>
__device__ __forceinline__ void add_rows(const pair_rows &raw, const scales &scale,
                                         const float (&gamma)[V], float (&sums)[2 * ROWS]) {
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        float dy[V], x[V], sum = 0, dot = 0;
        widen<T>(raw.dy.v[r], dy);
        widen<T>(raw.x.v[r], x);
#pragma unroll
        for (int i = 0; i < V; i++) {
            float d = dy[i] * gamma[i];
            sum += d;
            dot += d * (x[i] - scale.mean[r]);
        }
        sums[2 * r] = sum, sums[2 * r + 1] = dot;
    }
}

/* The coefficients of dx in a row: dx = dy rstd gamma + (x - mean) slope + level + residual. */
struct line {
    float mean, rstd, slope, level;
};

/* dx of a vector, and its contribution to the columns. */
template <class T>
__device__ __forceinline__ tti_vec<T, V> grad_vector(uint4 raw_dy, uint4 raw_x, uint4 raw_residual,
                                                     line l, const float (&gamma)[V],
                                                     float (&sums)[N_SUMS][V]) {
    float dy[V], x[V], residual[V];
    tti_vec<T, V> out;
    widen<T>(raw_dy, dy);
    widen<T>(raw_x, x);
    widen<T>(raw_residual, residual);
#pragma unroll
    for (int i = 0; i < V; i++) {
        float off = x[i] - l.mean, scaled = dy[i] * l.rstd;
        float dx = scaled * gamma[i] + (off * l.slope + l.level) + residual[i];
        sums[DGAMMA][i] += scaled * off;
        sums[DBETA][i] += dy[i];
        sums[DSUM][i] += dx;
        out.v[i] = tti_from_f32<T>(dx);
    }
    return out;
}

/* The vector of dy of row r of a turn, the terms added in their order. */
template <class T, int TERMS, int APART>
__device__ __forceinline__ uint4 read_dy(const uint4 *from, int r) {
    uint4 first = from[(DY * ROWS + r) * APART];
    if constexpr (TERMS == 1) return first;
    float a[V], b[V];
    tti_vec<T, V> sum;
    widen<T>(first, a);
    widen<T>(from[((DY + 1) * ROWS + r) * APART], b);
#pragma unroll
    for (int i = 0; i < V; i++) sum.v[i] = tti_from_f32<T>(a[i] + b[i]);
    return *reinterpret_cast<const uint4 *>(&sum);
}

/* A turn, whose copies are there.  from: as copy_rows; team_floats: as team_sums. */
template <class T, int W, class R>
__device__ __forceinline__ void do_rows(const tti_cuda_norm_grad &a, const R &rows, const seat &t,
                                        turn_at turn, const uint4 *from, float *team_floats,
                                        const scales &scale, const float (&gamma)[V],
                                        float (&sums)[N_SUMS][V]) {
    const int APART = row_team<W, R>::THREADS;
    float inverse = 1.0f / (float)a.rows.width, both[2 * ROWS];
    pair_rows raw;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        raw.dy.v[r] = read_dy<T, R::TERMS, APART>(from, r);
        raw.x.v[r] = from[(X * ROWS + r) * APART];
    }
    add_rows<T>(raw, scale, gamma, both);
    team_sums<W>(t, team_floats, both);
    forget(raw.dy);
    forget(raw.x);
#pragma unroll
    for (int r = 0, at = turn.at; r < ROWS; r++, at += t.n) {
        float rstd = scale.rstd[r];
        line l = {scale.mean[r], rstd, -rstd * rstd * rstd * (both[2 * r + 1] * inverse),
                  -rstd * (both[2 * r] * inverse)};
        uint4 residual = make_uint4(0, 0, 0, 0);
        if (a.residual.at) residual = from[(RESIDUAL * ROWS + r) * APART];
        tti_vec<T, V> dx = grad_vector<T>(raw.dy.v[r], raw.x.v[r], residual, l, gamma, sums);
        if (has(t, at)) rows.put(a, dx, turn.row + r, at, t.n);
    }
}

/* The teams of a block add theirs in order: shared [N_SUMS][TEAMS][W * 32 * V], own
 * [N_SUMS][width]. */
template <int W, class R>
__device__ __forceinline__ void leave(const float (&sums)[N_SUMS][V], const seat &t, float *shared,
                                      float *own) {
    enum { TEAMS = row_team<W, R>::TEAMS, TEAM_WIDTH = W * WARP * V };
    int width = t.n * V;
#pragma unroll
    for (int s = 0; s < N_SUMS; s++)
#pragma unroll
        for (int i = 0; i < V; i++)
            shared[(s * TEAMS + t.team) * TEAM_WIDTH + t.thread * V + i] = sums[s][i];
    __syncthreads();
    for (int e = threadIdx.x; e < width; e += row_team<W, R>::THREADS)
#pragma unroll
        for (int s = 0; s < N_SUMS; s++) {
            float sum = 0;
#pragma unroll
            for (int k = 0; k < TEAMS; k++) sum += shared[(s * TEAMS + k) * TEAM_WIDTH + e];
            own[s * width + e] = sum;
        }
}

/* Shared memory: vectors [stages][SLOT], then floats [TEAMS][TEAM_FLOATS]. */
template <class T, int W, class R>
__global__ void __launch_bounds__(row_team<W, R>::THREADS, 1)
    norm_16bit_grad(tti_cuda_norm_grad a, const __grid_constant__ R rows, int stages) {
    typedef row_team<W, R> c;
    extern __shared__ uint4 memory[];
    int n_rows = (int)a.rows.n_rows, n = (int)(a.rows.width / V);
    seat t = {(int)threadIdx.x % (W * WARP), (int)threadIdx.x / (W * WARP), n, n_rows * n};
    int first = t.team * (int)gridDim.x + (int)blockIdx.x; /* of all turns, from the last rows */
    int row_step = (int)gridDim.x * c::TEAMS * ROWS, at_step = row_step * n;
    turn_at turn, ahead;
    turn.row = ((n_rows + ROWS - 1) / ROWS - 1 - first) * ROWS;
    turn.at = turn.row * n + t.thread;
    ahead = turn;
    uint4 *mine = memory + threadIdx.x;
    float *team_floats =
        reinterpret_cast<float *>(memory + stages * c::SLOT) + t.team * c::TEAM_FLOATS;
    float sums[N_SUMS][V] = {}, gamma[V];
    scales now, next;
    tti_let_next_start();
    auto begun = begin_copies<c::THREADS>(a, rows, t, ahead, {row_step, at_step}, mine, stages - 1);
    load_params(a.gamma, {(unsigned)t.thread, (unsigned)n}, 0, gamma);
    read_scales(a, turn.row, now);
    /* The first team has the most turns.  A team without turns still takes part in barriers,
     * because racecheck assumes that teams with equal barrier counts were there together.
     */
    int most = turn.row + t.team * (int)gridDim.x * ROWS;
    for (int slot = 0, odd = 0; most >= 0; odd ^= 1, most -= row_step) {
        int free = slot == 0 ? stages - 1 : slot - 1;
        copy_rows<c::THREADS, ALL>(a, rows, t, ahead, mine + free * c::SLOT);
        end_group();
        read_scales(a, turn.row - row_step, next);
        wait_copies(stages);
        if (turn.row >= 0)
            do_rows<T, W>(a, rows, t, turn, mine + slot * c::SLOT,
                          team_floats + odd * (c::TEAM_FLOATS / 2), now, gamma, sums);
        else
            team_barrier<W>(t);
        now = next;
        turn.row -= row_step, turn.at -= at_step;
        ahead.row -= row_step, ahead.at -= at_step;
        slot = slot + 1 == stages ? 0 : slot + 1;
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads(); /* the slots of all threads have been read */
    leave<W, R>(sums, t, reinterpret_cast<float *>(memory),
                a.partials + (size_t)blockIdx.x * N_SUMS * a.rows.width);
    rows.end(begun);
}

/* Sums of columns over the blocks, in order of 32 runs. */
__global__ void add_blocks(const float *partials, int n_blocks, tti_cuda_norm_grad a) {
    __shared__ float runs[WARP][WARP + 1];
    int lane = threadIdx.x % WARP, run = threadIdx.x / WARP;
    size_t width = a.rows.width, n_cols = N_SUMS * width, col = (size_t)blockIdx.x * WARP + lane;
    float sum = 0;
    tti_wait_for_before();
    if (col < n_cols)
#pragma unroll 8
        for (int p = run; p < n_blocks; p += WARP) sum += partials[p * n_cols + col];
    runs[run][lane] = sum;
    __syncthreads();
    if (run || col >= n_cols) return;
    sum = 0;
#pragma unroll
    for (int y = 0; y < WARP; y++) sum += runs[y][lane];
    float *to = col < width ? a.dgamma : col < 2 * width ? a.dbeta : a.dsums;
    if (to) to[col % width] = sum;
}

unsigned blocks_of(size_t n_rows) {
    size_t n = (n_rows + ROWS - 1) / ROWS;
    return (unsigned)(n < BLOCKS ? n : BLOCKS);
}

template <class T, int W, class R>
cudaError_t launch(const tti_cuda_norm_grad *a, const R &rows, cudaStream_t stream) {
    typedef row_team<W, R> c;
    size_t slot = c::SLOT * sizeof(uint4), team_floats = c::TEAMS * c::TEAM_FLOATS * sizeof(float);
    static_assert(c::SLOT * sizeof(uint4) * LEAST_STAGES >= N_SUMS * c::THREADS * V * sizeof(float),
                  "sums fit where rows were");
    int stages = MOST_STAGES;
    while (stages > LEAST_STAGES && most_shared() < stages * slot + team_floats) stages--;
    size_t n_bytes = (size_t)stages * slot + team_floats;
    unsigned n_blocks = blocks_of(a->rows.n_rows);
    cudaError_t error = tti_make_room((const void *)norm_16bit_grad<T, W, R>, n_bytes);
    if (error != cudaSuccess) return error;
    norm_16bit_grad<T, W, R><<<n_blocks, c::THREADS, n_bytes, stream>>>(*a, rows, stages);
    error = cudaGetLastError();
    if (error != cudaSuccess) return error;
    unsigned n_cols = (unsigned)(N_SUMS * a->rows.width);
    return tti_launch_early(add_blocks, dim3((n_cols + WARP - 1) / WARP), SUM_THREADS, 0, 1, stream,
                            (const float *)a->partials, (int)n_blocks, *a);
}

template <class T, class R>
cudaError_t launch_width(const tti_cuda_norm_grad *a, const R &rows, cudaStream_t stream) {
    switch ((a->rows.width + V * WARP - 1) / (V * WARP)) {
        case 1:
            return launch<T, 1>(a, rows, stream);
        case 2:
            return launch<T, 2>(a, rows, stream);
        case 3:
            return launch<T, 3>(a, rows, stream);
        case 4:
            return launch<T, 4>(a, rows, stream);
        case 5:
        case 6:
        case 7:
            return launch<T, 7>(a, rows, stream);
        default:
            return launch<T, MOST_WARPS>(a, rows, stream);
    }
}

/* Vectors are counted in an int, and some more than there are. */
inline bool rows_fit(const tti_rows *v) {
    return v->groups == 1 && v->inner == 1 && v->centred && v->width % V == 0 && v->width > 0 &&
           v->width <= MOST_WARPS * V * WARP && v->n_rows > 0 &&
           v->n_rows < ((size_t)1 << 30) / (v->width / V);
}

}  // namespace

#endif /* TTI_CUDA_NORM_16BIT_GRAD_CUH */
