/* embed.cu - one_hot, gather, scatter_add, rotary.
 *
 * Scattering adds no floats atomically.  Positions are sorted by row: counted by integer atomics,
 * whose order does not matter, assigned places, and ordered by position within each row, short rows
 * by their ranks, long ones by a scan over all ids.  A row is summed in runs of RUN positions; the
 * runs of a long row are summed concurrently and then added in order, so that a very frequent row
 * takes no longer than others. */
#include "backend/cuda/ops/embed.h"
#include "backend/cuda/runtime/device.cuh"

namespace {

enum { THREADS = 256, SORT_THREADS = 1024, RUN = 64, WALK = 8, MOST_BLOCKS = 0x7fffffff };

/* ---- one_hot, gather ---- */

__global__ void __launch_bounds__(THREADS)
    one_hot_kernel(const int32_t *labels, size_t n_elems, size_t n, float *y) {
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n_elems) return;
    size_t row = i / n;
    y[i] = labels[row] >= 0 && (size_t)labels[row] == i - row * n ? 1.0f : 0.0f;
}

/* Units of U; units: of one picked run. */
template <class U>
__global__ void __launch_bounds__(THREADS)
    gather_kernel(const U *x, const int32_t *ids, U *y, uint32_t n_units, tti_divisor units,
                  tti_divisor n_ids, uint32_t n) {
    uint32_t i = blockIdx.x * THREADS + threadIdx.x, at = i;
    if (i >= n_units) return;
    uint32_t j = tti_split_index(at, units), outer = tti_split_index(j, n_ids);
    int32_t id = ids[j];
    U value = {};
    if (id >= 0 && (uint32_t)id < n) value = x[((size_t)outer * n + id) * units.d + at];
    y[i] = value;
}

/* ---- positions in order of row ---- */

/* The results of the sort in scratch. */
struct sorted {
    int32_t *left;     /* [n]: ids that have no place yet */
    int32_t *first;    /* [n + 1]: places of a row's positions in list */
    int32_t *list;     /* [n_ids]: positions by row, in order within a row */
    int32_t *long_row; /* [most_long]: rows with more than RUN positions */
    int32_t *long_run; /* [most_long + 1]: where their runs begin */
    int32_t *n_long;   /* [1] */
};

__global__ void __launch_bounds__(THREADS)
    count_ids(const int32_t *ids, uint32_t n_ids, uint32_t n, int32_t *count) {
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i < n_ids && ids[i] >= 0 && (uint32_t)ids[i] < n) atomicAdd(&count[ids[i]], 1);
}

__device__ __forceinline__ int32_t runs_of(int32_t count) {
    return count > RUN ? (count + RUN - 1) / RUN : 0;
}

/* One block of SORT_THREADS; each thread has a run of rows. */
__global__ void __launch_bounds__(SORT_THREADS) place_rows(uint32_t n, sorted s) {
    __shared__ int32_t shared[32];
    uint32_t each = (n + SORT_THREADS - 1) / SORT_THREADS;
    uint32_t begin = min(n, threadIdx.x * each), end = min(n, begin + each);
    int32_t count = 0, n_long = 0, n_runs = 0, all, all_long, all_runs;
    for (uint32_t r = begin; r < end; r++) {
        count += s.left[r];
        n_long += s.left[r] > RUN;
        n_runs += runs_of(s.left[r]);
    }
    count = tti_block_sum_before(count, shared, &all);
    n_long = tti_block_sum_before(n_long, shared, &all_long);
    n_runs = tti_block_sum_before(n_runs, shared, &all_runs);
    for (uint32_t r = begin; r < end; r++) {
        int32_t here = s.left[r];
        s.first[r] = count;
        count += here;
        if (here <= RUN) continue;
        s.long_row[n_long] = (int32_t)r;
        s.long_run[n_long++] = n_runs;
        n_runs += runs_of(here);
    }
    if (threadIdx.x) return;
    s.first[n] = all;
    *s.n_long = all_long;
    s.long_run[all_long] = all_runs;
}

/* Any place of its row. */
__global__ void __launch_bounds__(THREADS)
    place_ids(const int32_t *ids, uint32_t n_ids, uint32_t n, sorted s) {
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= n_ids || ids[i] < 0 || (uint32_t)ids[i] >= n) return;
    int32_t id = ids[i];
    s.list[s.first[id] + atomicSub(&s.left[id], 1) - 1] = (int32_t)i;
}

/* A warp has a row of at most RUN positions, two a lane: each goes to its rank. */
__device__ __forceinline__ void order_short(int32_t *list, int32_t count, unsigned lane) {
    const int32_t none = 0x7fffffff;
    int32_t a = (int32_t)lane < count ? list[lane] : none;
    int32_t b = (int32_t)lane + 32 < count ? list[lane + 32] : none;
    int rank_a = 0, rank_b = 0;
    for (int i = 0; i < 32; i++) {
        int32_t x = __shfl_sync(0xffffffffu, a, i), y = __shfl_sync(0xffffffffu, b, i);
        rank_a += (x < a) + (y < a);
        rank_b += (x < b) + (y < b);
    }
    if (a != none) list[rank_a] = a;
    if (b != none) list[rank_b] = b;
}

/* A block finds the positions of one row in order. */
__device__ __forceinline__ void order_long(const int32_t *ids, uint32_t n_ids, int32_t row,
                                           int32_t *list, int32_t count) {
    __shared__ int32_t shared[32];
    int32_t found = 0, here;
    for (uint32_t base = 0; base < n_ids && found < count; base += SORT_THREADS * WALK) {
        uint32_t first = base + threadIdx.x * WALK;
        int32_t mine = 0;
        unsigned which = 0;
#pragma unroll
        for (int k = 0; k < WALK; k++)
            if (first + k < n_ids && ids[first + k] == row) which |= 1u << k, mine++;
        int32_t at = found + tti_block_sum_before(mine, shared, &here);
        for (int k = 0; k < WALK; k++)
            if (which >> k & 1) list[at++] = (int32_t)(first + k);
        found += here;
    }
}

/* Blocks below most_long have a long row each, the others 32 rows each. */
__global__ void __launch_bounds__(SORT_THREADS)
    order_rows(const int32_t *ids, uint32_t n_ids, uint32_t n, uint32_t most_long, sorted s) {
    if (blockIdx.x < most_long) {
        if (blockIdx.x >= (uint32_t)*s.n_long) return;
        int32_t row = s.long_row[blockIdx.x], first = s.first[row];
        return order_long(ids, n_ids, row, s.list + first, s.first[row + 1] - first);
    }
    uint32_t row = (blockIdx.x - most_long) * 32 + threadIdx.x / 32;
    if (row >= n) return; /* whole warps */
    int32_t first = s.first[row], count = s.first[row + 1] - first;
    if (count > 1 && count <= RUN) order_short(s.list + first, count, threadIdx.x % 32);
}

/* ---- sums ---- */

/* The places list[begin .. end-1] of dy, V elements at `at`. */
template <class T, int V, class A>
__device__ __forceinline__ void sum_run(const T *dy, const int32_t *list, int32_t begin,
                                        int32_t end, size_t inner, size_t at, A (&sum)[V]) {
#pragma unroll
    for (int k = 0; k < V; k++) sum[k] = 0;
#pragma unroll 4
    for (int32_t p = begin; p < end; p++) {
        A x[V];
        tti_load(dy + (size_t)list[p] * inner + at, x);
#pragma unroll
        for (int k = 0; k < V; k++) sum[k] += x[k];
    }
}

struct scatter_sizes {
    uint32_t n, n_ids, most_runs;
    size_t outer, inner;
    tti_divisor lanes; /* threads that share an item, each V elements and then some */
};

/* The long row that a run belongs to: the last one whose runs begin at or before it. */
__device__ __forceinline__ int32_t row_of_run(const sorted &s, int32_t run) {
    int32_t lo = 0, hi = *s.n_long - 1;
    while (lo < hi) {
        int32_t mid = (lo + hi + 1) / 2;
        if (s.long_run[mid] <= run)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

/* Items of an outer index: n rows, except the long ones, and most_runs runs of long rows, whose
 * sums go to partials [outer,most_runs,inner]. */
template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    sum_rows(const T *dy, T *dx, typename tti_acc<T>::type *partials, sorted s, scatter_sizes z) {
    typedef typename tti_acc<T>::type A;
    uint32_t lane = threadIdx.x, group = tti_split_index(lane, z.lanes);
    uint32_t per_outer = z.n + z.most_runs, groups = THREADS / z.lanes.d;
    size_t item = (size_t)blockIdx.x * groups + group, outer = item / per_outer;
    if (group >= groups || outer >= z.outer) return;
    uint32_t row = (uint32_t)(item - outer * per_outer);
    const T *from = dy + outer * z.n_ids * z.inner;
    int32_t begin, end;
    T *to = dx + (outer * z.n + row) * z.inner;
    A *part = NULL;
    if (row < z.n) {
        begin = s.first[row], end = s.first[row + 1];
        if (end - begin > RUN) return;
    } else {
        int32_t run = (int32_t)(row - z.n), n_long = *s.n_long;
        if (run >= s.long_run[n_long]) return;
        int32_t k = row_of_run(s, run), owner = s.long_row[k];
        begin = s.first[owner] + (run - s.long_run[k]) * RUN;
        end = min(begin + RUN, s.first[owner + 1]);
        part = partials + (outer * z.most_runs + run) * z.inner;
    }
    for (size_t at = (size_t)lane * V; at < z.inner; at += (size_t)z.lanes.d * V) {
        A sum[V];
        sum_run<T, V>(from, s.list, begin, end, z.inner, at, sum);
        if (part)
            tti_store(part + at, sum);
        else
            tti_store(to + at, sum);
    }
}

/* A block for each long row and outer index: its runs in order. */
template <class T>
__global__ void __launch_bounds__(THREADS)
    sum_runs(T *dx, const typename tti_acc<T>::type *partials, sorted s, scatter_sizes z,
             uint32_t most_long) {
    typedef typename tti_acc<T>::type A;
    size_t outer = blockIdx.x / most_long;
    uint32_t k = blockIdx.x % most_long;
    if (k >= (uint32_t)*s.n_long) return;
    int32_t row = s.long_row[k], begin = s.long_run[k], end = s.long_run[k + 1];
    const A *part = partials + outer * z.most_runs * z.inner;
    for (size_t at = threadIdx.x; at < z.inner; at += THREADS) {
        A sum = 0;
#pragma unroll 8
        for (int32_t r = begin; r < end; r++) sum += part[(size_t)r * z.inner + at];
        tti_from_acc(dx + (outer * z.n + row) * z.inner + at, sum);
    }
}

/* ---- rotary ---- */

/* A cosine and a sine. */
template <class A>
struct alignas(2 * sizeof(A)) turn {
    A c, s;
};

/* table [n_t,half]: of each position and pair; the angles need more than f32. */
template <class A>
__global__ void __launch_bounds__(THREADS)
    rotary_table(turn<A> *table, size_t n_t, uint32_t half, double base, double sign, int64_t start,
                 const int32_t *pos) {
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n_t * half) return;
    size_t t = i / half;
    double place = (double)start + (pos ? (double)*pos : 0) + (double)t;
    double angle = sign * place * pow(base, -(double)(i - t * half) / (double)half), c, s;
    sincos(angle, &s, &c);
    table[i].c = (A)c, table[i].s = (A)s;
}

struct turned {
    uint32_t width, dim, half;          /* elements */
    uint32_t pairs;                     /* units of V pairs in the heads of a row */
    tti_divisor units, half_units, n_t; /* units of a row: pairs, then elements that stay */
};

/* A thread has V pairs, or V elements that stay as they are. */
template <class T, int V>
__global__ void __launch_bounds__(THREADS)
    rotary_kernel(const T *x, T *y, const turn<typename tti_acc<T>::type> *table, uint32_t n_items,
                  turned z) {
    typedef typename tti_acc<T>::type A;
    uint32_t u = blockIdx.x * THREADS + threadIdx.x;
    if (u >= n_items) return;
    uint32_t row = tti_split_index(u, z.units), t = row;
    tti_split_index(t, z.n_t);
    A a[V], b[V];
    if (u >= z.pairs) {
        size_t at = (size_t)row * z.width + z.pairs * 2 * V + (u - z.pairs) * V;
        tti_load(x + at, a);
        tti_store(y + at, a);
        return;
    }
    uint32_t i = u, head = tti_split_index(i, z.half_units);
    size_t at = (size_t)row * z.width + (size_t)head * z.dim + i * V;
    const turn<A> *p = table + (size_t)t * z.half + i * V;
    tti_load(x + at, a);
    tti_load(x + at + z.half, b);
#pragma unroll
    for (int k = 0; k < V; k++) {
        A c = p[k].c, s = p[k].s, first = a[k];
        a[k] = first * c - b[k] * s;
        b[k] = b[k] * c + first * s;
    }
    tti_store(y + at, a);
    tti_store(y + at + z.half, b);
}

/* ---- launches ---- */

unsigned blocks_for(size_t n, size_t per_block) {
    return (unsigned)((n + per_block - 1) / per_block);
}

template <class U>
cudaError_t launch_gather(const tti_lookup *l, size_t run_bytes, const void *x, void *y,
                          cudaStream_t stream) {
    size_t units = run_bytes / sizeof(U), per_outer = units * l->n_ids;
    if (per_outer > MOST_BLOCKS) return cudaErrorInvalidValue;
    size_t at_once = MOST_BLOCKS / per_outer;
    tti_divisor by_units = tti_make_divisor((uint32_t)units);
    tti_divisor by_ids = tti_make_divisor((uint32_t)l->n_ids);
    for (size_t o = 0; o < l->outer; o += at_once) {
        size_t n = (l->outer - o < at_once ? l->outer - o : at_once) * per_outer;
        gather_kernel<U><<<blocks_for(n, THREADS), THREADS, 0, stream>>>(
            (const U *)x + o * l->n * units, l->ids, (U *)y + o * per_outer, (uint32_t)n, by_units,
            by_ids, (uint32_t)l->n);
    }
    return cudaGetLastError();
}

/* Rows with more than RUN positions, and their runs, at most. */
size_t most_long(const tti_lookup *l) { return l->n_ids / (RUN + 1); }
size_t most_runs(const tti_lookup *l) { return l->n_ids / RUN + most_long(l); }

size_t round_up(size_t n_bytes) { return (n_bytes + 63) / 64 * 64; }

size_t acc_bytes(tutti_dtype dtype) { return dtype == TUTTI_F64 ? sizeof(double) : sizeof(float); }

/* Divides scratch into the arrays of the sort; returns the end. */
char *cut_scratch(const tti_lookup *l, char *at, sorted *s) {
    size_t m = most_long(l);
    s->left = (int32_t *)at, at += round_up(l->n * 4);
    s->first = (int32_t *)at, at += round_up((l->n + 1) * 4);
    s->list = (int32_t *)at, at += round_up(l->n_ids * 4);
    s->long_row = (int32_t *)at, at += round_up((m + 1) * 4);
    s->long_run = (int32_t *)at, at += round_up((m + 1) * 4);
    s->n_long = (int32_t *)at, at += 64;
    return at;
}

cudaError_t sort_positions(const tti_lookup *l, const sorted &s, cudaStream_t stream) {
    uint32_t n = (uint32_t)l->n, n_ids = (uint32_t)l->n_ids, m = (uint32_t)most_long(l);
    cudaError_t error = cudaMemsetAsync(s.left, 0, l->n * 4, stream);
    if (error != cudaSuccess) return error;
    count_ids<<<blocks_for(n_ids, THREADS), THREADS, 0, stream>>>(l->ids, n_ids, n, s.left);
    place_rows<<<1, SORT_THREADS, 0, stream>>>(n, s);
    place_ids<<<blocks_for(n_ids, THREADS), THREADS, 0, stream>>>(l->ids, n_ids, n, s);
    order_rows<<<m + blocks_for(n, 32), SORT_THREADS, 0, stream>>>(l->ids, n_ids, n, m, s);
    return cudaGetLastError();
}

template <class T, int V>
cudaError_t launch_sums(const tti_lookup *l, const void *dy, void *dx, const sorted &s,
                        char *partials, cudaStream_t stream) {
    typedef typename tti_acc<T>::type A;
    size_t units = (l->inner + V - 1) / V, m = most_long(l);
    scatter_sizes z = {(uint32_t)l->n, (uint32_t)l->n_ids, (uint32_t)most_runs(l), l->outer,
                       l->inner};
    z.lanes = tti_make_divisor((uint32_t)(units < THREADS ? units : THREADS));
    size_t items = l->outer * (l->n + z.most_runs), groups = THREADS / z.lanes.d;
    if (items / groups >= MOST_BLOCKS || m * l->outer > MOST_BLOCKS) return cudaErrorInvalidValue;
    sum_rows<T, V><<<blocks_for(items, groups), THREADS, 0, stream>>>((const T *)dy, (T *)dx,
                                                                      (A *)partials, s, z);
    if (m > 0)
        sum_runs<T><<<(unsigned)(m * l->outer), THREADS, 0, stream>>>((T *)dx, (const A *)partials,
                                                                      s, z, (uint32_t)m);
    return cudaGetLastError();
}

template <class T>
cudaError_t sum_positions(const tti_lookup *l, const void *dy, void *dx, const sorted &s,
                          char *partials, cudaStream_t stream) {
    if (l->inner % (16 / sizeof(T)) == 0)
        return launch_sums<T, 16 / sizeof(T)>(l, dy, dx, s, partials, stream);
    return launch_sums<T, 1>(l, dy, dx, s, partials, stream);
}

template <class T, int V>
cudaError_t launch_rotary(const tti_rotation *r, const void *x, void *y, void *scratch,
                          cudaStream_t stream) {
    typedef turn<typename tti_acc<T>::type> entry;
    entry *table = (entry *)scratch;
    uint32_t half = (uint32_t)r->dim / 2, pairs = (uint32_t)(r->heads * half / V);
    size_t units = pairs + (r->width - r->heads * r->dim) / V, n = r->n_rows * units;
    if (n > MOST_BLOCKS) return cudaErrorInvalidValue;
    turned z = {(uint32_t)r->width,
                (uint32_t)r->dim,
                half,
                pairs,
                tti_make_divisor((uint32_t)units),
                tti_make_divisor(half / V),
                tti_make_divisor((uint32_t)r->n_t)};
    rotary_table<<<blocks_for(r->n_t * half, THREADS), THREADS, 0, stream>>>(
        table, r->n_t, half, r->base, r->sign, r->start, r->pos);
    rotary_kernel<T, V><<<blocks_for(n, THREADS), THREADS, 0, stream>>>((const T *)x, (T *)y, table,
                                                                        (uint32_t)n, z);
    return cudaGetLastError();
}

template <class T>
cudaError_t turn_rows(const tti_rotation *r, const void *x, void *y, void *scratch,
                      cudaStream_t stream) {
    enum { V = 16 / sizeof(T) };
    if (r->dim % (2 * V) == 0 && r->width % V == 0)
        return launch_rotary<T, V>(r, x, y, scratch, stream);
    return launch_rotary<T, 1>(r, x, y, scratch, stream);
}

}  // namespace

extern "C" cudaError_t tti_launch_one_hot(const int32_t *labels, size_t n_labels, size_t n,
                                          float *y, cudaStream_t stream) {
    if (n_labels * n == 0) return cudaSuccess;
    one_hot_kernel<<<blocks_for(n_labels * n, THREADS), THREADS, 0, stream>>>(labels, n_labels * n,
                                                                              n, y);
    return cudaGetLastError();
}

extern "C" cudaError_t tti_launch_gather(const tti_lookup *l, const void *x, void *y,
                                         cudaStream_t stream) {
    size_t run_bytes = l->inner * tutti_dtype_bytes(l->dtype);
    if (l->outer * l->n_ids * l->inner == 0) return cudaSuccess;
    if (run_bytes % 16 == 0) return launch_gather<uint4>(l, run_bytes, x, y, stream);
    if (run_bytes % 8 == 0) return launch_gather<uint64_t>(l, run_bytes, x, y, stream);
    if (run_bytes % 4 == 0) return launch_gather<uint32_t>(l, run_bytes, x, y, stream);
    return launch_gather<uint16_t>(l, run_bytes, x, y, stream);
}

extern "C" size_t tti_scatter_scratch(const tti_lookup *l) {
    sorted s;
    size_t sort_bytes = (size_t)(cut_scratch(l, (char *)0, &s) - (char *)0);
    return sort_bytes + l->outer * most_runs(l) * l->inner * acc_bytes(l->dtype);
}

extern "C" cudaError_t tti_launch_scatter(const tti_lookup *l, const void *dy, void *dx,
                                          void *scratch, cudaStream_t stream) {
    sorted s;
    size_t n = l->outer * l->n * l->inner;
    if (n == 0) return cudaSuccess;
    if (l->n_ids == 0) return cudaMemsetAsync(dx, 0, n * tutti_dtype_bytes(l->dtype), stream);
    char *partials = cut_scratch(l, (char *)scratch, &s);
    cudaError_t error = sort_positions(l, s, stream);
    if (error != cudaSuccess) return error;
    TTI_FLOAT_DISPATCH(l->dtype, return sum_positions<T>(l, dy, dx, s, partials, stream));
    return cudaErrorInvalidValue;
}

extern "C" size_t tti_rotary_scratch(const tti_rotation *r) {
    return r->n_t * (r->dim / 2) * 2 * acc_bytes(r->dtype);
}

extern "C" cudaError_t tti_launch_rotary(const tti_rotation *r, const void *x, void *y,
                                         void *scratch, cudaStream_t stream) {
    if (r->n_rows * r->width == 0) return cudaSuccess;
    TTI_FLOAT_DISPATCH(r->dtype, return turn_rows<T>(r, x, y, scratch, stream));
    return cudaErrorInvalidValue;
}
