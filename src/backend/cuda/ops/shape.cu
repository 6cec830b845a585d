/* shape.cu - transposition by tiles in shared memory, and copies of runs of bytes.
 *
 * A permutation is first reduced to its minimal dimensions (tti_launch_turn).  If the last one
 * stays, runs are copied in the widest words that fit; else x's last dimension and y's last one
 * span a plane, which is transposed tile by tile, and the others are a batch of planes.  A tile has
 * rows of 128 bytes and one word more, so that both sides move 16 bytes a thread and columns of
 * shared memory lie in different banks. */
#include "backend/cuda/ops/shape.h"
#include "backend/cuda/runtime/device.cuh"

namespace {

enum { THREADS = 256, MOST_BLOCKS = 0x7fffffff, SMALL_SIDE = 16, SMALL_BYTES = 16384 };

/* Dimensions other than those of the plane, innermost first, strides in elements. */
struct batch {
    int n_dims;
    tti_divisor size[TUTTI_MAX_DIMS];
    size_t x_stride[TUTTI_MAX_DIMS], y_stride[TUTTI_MAX_DIMS];
};

__device__ __forceinline__ void batch_offsets(const batch &b, uint32_t index, size_t &x,
                                              size_t &y) {
    x = y = 0;
    for (int d = 0; d < b.n_dims; d++) {
        uint32_t rest = index, q = tti_split_index(rest, b.size[d]);
        x += rest * b.x_stride[d];
        y += rest * b.y_stride[d];
        index = q;
    }
}

/* ---- planes: y[b, a] = x[a, b] ---- */

struct plane {
    uint32_t n_a, n_b; /* a: y's last dimension, b: x's last dimension */
    size_t x_stride_a, y_stride_b;
    tti_divisor tiles_a, tiles_b; /* tiles along them */
    batch rest;
};

template <class E>
struct tile {
    enum {
        V = 16 / sizeof(E),
        SIDE = 8 * V,
        PITCH = sizeof(E) == 8 ? 34 : 33, /* words */
        N_THREADS = SIDE * 8 < THREADS ? SIDE * 8 : THREADS
    };
};

template <class E>
__global__ void __launch_bounds__(THREADS) turn_vectors(const E *x, E *y, plane p) {
    enum { V = tile<E>::V, SIDE = tile<E>::SIDE, N = tile<E>::N_THREADS };
    __shared__ alignas(16) uint32_t words[SIDE][tile<E>::PITCH];
    uint32_t index = blockIdx.x, q = tti_split_index(index, p.tiles_b), first_b = index * SIDE;
    index = tti_split_index(q, p.tiles_a);
    uint32_t first_a = q * SIDE;
    size_t x_at, y_at;
    batch_offsets(p.rest, index, x_at, y_at);
#pragma unroll
    for (unsigned k = threadIdx.x; k < SIDE * 8; k += N) {
        uint32_t r = k / 8, l = k % 8, a = first_a + r, b = first_b + l * V;
        if (a >= p.n_a || b >= p.n_b) continue;
        uint4 v = *reinterpret_cast<const uint4 *>(x + x_at + a * p.x_stride_a + b);
        words[r][4 * l] = v.x, words[r][4 * l + 1] = v.y;
        words[r][4 * l + 2] = v.z, words[r][4 * l + 3] = v.w;
    }
    __syncthreads();
#pragma unroll
    for (unsigned k = threadIdx.x; k < SIDE * 8; k += N) {
        uint32_t r = k / 8, l = k % 8, b = first_b + r, a = first_a + l * V;
        if (a >= p.n_a || b >= p.n_b) continue;
        tti_vec<E, V> v;
#pragma unroll
        for (int i = 0; i < V; i++) v.v[i] = reinterpret_cast<const E *>(words[l * V + i])[r];
        *reinterpret_cast<tti_vec<E, V> *>(y + y_at + b * p.y_stride_b + a) = v;
    }
}

enum { SIDE1 = 32, ROWS1 = THREADS / SIDE1 };

template <class E>
__global__ void __launch_bounds__(THREADS) turn_elements(const E *x, E *y, plane p) {
    __shared__ E elems[SIDE1][SIDE1 + 1];
    uint32_t index = blockIdx.x, q = tti_split_index(index, p.tiles_b), first_b = index * SIDE1;
    index = tti_split_index(q, p.tiles_a);
    uint32_t first_a = q * SIDE1, lane = threadIdx.x % SIDE1, row = threadIdx.x / SIDE1;
    size_t x_at, y_at;
    batch_offsets(p.rest, index, x_at, y_at);
#pragma unroll
    for (uint32_t r = row; r < SIDE1; r += ROWS1) {
        uint32_t a = first_a + r, b = first_b + lane;
        if (a < p.n_a && b < p.n_b) elems[r][lane] = x[x_at + a * p.x_stride_a + b];
    }
    __syncthreads();
#pragma unroll
    for (uint32_t r = row; r < SIDE1; r += ROWS1) {
        uint32_t b = first_b + r, a = first_a + lane;
        if (a < p.n_a && b < p.n_b) y[y_at + b * p.y_stride_b + a] = elems[lane][r];
    }
}

/* ---- planes with a short side: [c,s] to [s,c] (mixes) or back, c <= SMALL_SIDE ---- */

struct narrow {
    uint32_t n_c, n_s, chunk_shift; /* a block has 1 << chunk_shift of s */
    tti_divisor chunks, by_c;
    bool mixes, wide; /* rows of s are whole 16 bytes */
};

template <class E>
__device__ __forceinline__ void narrow_rows(const narrow &t, E *plane, E *mixed, uint32_t first,
                                            bool to_plane) {
    enum { W = 8 / sizeof(E) }; /* 8 bytes: few bank conflicts for 3 channels */
    uint32_t chunk = 1u << t.chunk_shift, step = t.wide ? W : 1;
    uint32_t shift = t.chunk_shift - (t.wide ? 31 - __clz(W) : 0);
    for (uint32_t k = threadIdx.x; k < t.n_c << shift; k += THREADS) {
        uint32_t c = k >> shift, s = (k << (t.chunk_shift - shift)) & (chunk - 1);
        if (first + s >= t.n_s) continue;
        E *row = plane + (size_t)c * t.n_s + first + s, *m = mixed + s * t.n_c + c;
        if (step == 1) {
            if (to_plane)
                *row = *m;
            else
                *m = *row;
            continue;
        }
        tti_vec<E, W> v;
        if (!to_plane) v = *reinterpret_cast<const tti_vec<E, W> *>(row);
#pragma unroll
        for (int i = 0; i < W; i++) {
            if (to_plane)
                v.v[i] = m[i * t.n_c];
            else
                m[i * t.n_c] = v.v[i];
        }
        if (to_plane) *reinterpret_cast<tti_vec<E, W> *>(row) = v;
    }
}

/* Both are n elements, 16 bytes aligned if wide. */
template <class E>
__device__ __forceinline__ void narrow_copy(const E *from, E *to, uint32_t n, bool wide) {
    enum { V = 16 / sizeof(E) };
    if (wide)
        for (uint32_t k = threadIdx.x; k < n / V; k += THREADS)
            reinterpret_cast<uint4 *>(to)[k] = reinterpret_cast<const uint4 *>(from)[k];
    else
        for (uint32_t k = threadIdx.x; k < n; k += THREADS) to[k] = from[k];
}

template <class E>
__global__ void __launch_bounds__(THREADS) turn_narrow(const E *x, E *y, narrow t) {
    extern __shared__ uint4 shared[];
    E *mixed = reinterpret_cast<E *>(shared);
    uint32_t index = blockIdx.x, b = tti_split_index(index, t.chunks);
    uint32_t first = index << t.chunk_shift, left = t.n_s - first, chunk = 1u << t.chunk_shift;
    size_t plane = (size_t)b * t.n_c * t.n_s, run = plane + (size_t)first * t.n_c;
    uint32_t n = (left < chunk ? left : chunk) * t.n_c;
    if (t.mixes)
        narrow_rows(t, const_cast<E *>(x) + plane, mixed, first, false);
    else
        narrow_copy(x + run, mixed, n, t.wide);
    __syncthreads();
    if (t.mixes)
        narrow_copy(mixed, y + run, n, t.wide);
    else
        narrow_rows(t, y + plane, mixed, first, true);
}

/* ---- runs that stay together ---- */

template <class U>
__global__ void __launch_bounds__(THREADS)
    turn_runs(const U *x, U *y, uint32_t n_units, tti_divisor inner, batch rest) {
    uint32_t i = blockIdx.x * THREADS + threadIdx.x, at = i;
    size_t from, unused;
    if (i >= n_units) return;
    uint32_t run = tti_split_index(at, inner);
    batch_offsets(rest, run, from, unused);
    y[i] = x[from + at];
}

struct unit_strip {
    const void *src;
    void *dst;
    size_t src_pitch, dst_pitch;
    tti_divisor n; /* d 0: nothing */
    uint32_t lo, hi;
};

struct unit_strips {
    unit_strip at[TTI_MAX_STRIPS];
};

template <class U>
__global__ void __launch_bounds__(THREADS) copy_strips(unit_strips strips, uint32_t n_outer) {
    const unit_strip &s = strips.at[blockIdx.y];
    uint32_t at = blockIdx.x * THREADS + threadIdx.x;
    if (s.n.d == 0 || at >= n_outer * s.n.d) return; /* fits: below 2^31 */
    uint32_t o = tti_split_index(at, s.n);
    U value = {};
    if (at >= s.lo && at < s.hi) value = ((const U *)s.src)[o * s.src_pitch + at - s.lo];
    ((U *)s.dst)[o * s.dst_pitch + at] = value;
}

/* ---- launches ---- */

unsigned blocks_for(size_t n) { return (unsigned)((n + THREADS - 1) / THREADS); }

/* Without dimensions of 1, and with adjacent ones joined. */
tti_turn least(const tti_turn *t) {
    tti_turn out = {0, {0}, {0}, t->elem};
    int order[TUTTI_MAX_DIMS], place[TUTTI_MAX_DIMS], n = 0; /* x dimensions in y's order */
    int64_t dim[TUTTI_MAX_DIMS];
    for (int d = 0; d < t->n_dims; d++)
        if (t->dim[t->perm[d]] != 1) order[n++] = t->perm[d];
    for (int d = 0; d < n; d++) {
        int last = d ? order[d - 1] : -2, next = last + 1;
        while (d && next < t->n_dims && t->dim[next] == 1) next++;
        if (d && next == order[d]) { /* continues the previous one */
            dim[out.n_dims - 1] *= t->dim[order[d]];
            continue;
        }
        place[out.n_dims] = order[d];
        dim[out.n_dims++] = t->dim[order[d]];
    }
    for (int e = 0; e < out.n_dims; e++) {
        int rank = 0;
        for (int k = 0; k < out.n_dims; k++) rank += place[k] < place[e];
        out.perm[e] = rank;
        out.dim[rank] = dim[e];
    }
    return out;
}

/* All dimensions of t but two as a batch; strides in units of `unit` elements. */
size_t batch_of(const tti_turn *t, int skip_a, int skip_b, size_t unit, batch *b) {
    size_t x_stride[TUTTI_MAX_DIMS], y_step = 1, x_step = 1, n = 1;
    b->n_dims = 0;
    for (int d = t->n_dims - 1; d >= 0; d--) x_stride[d] = x_step, x_step *= (size_t)t->dim[d];
    for (int e = t->n_dims - 1; e >= 0; e--) {
        int d = t->perm[e];
        size_t size = (size_t)t->dim[d];
        if (d != skip_a && d != skip_b) {
            b->size[b->n_dims] = tti_make_divisor((uint32_t)size);
            b->x_stride[b->n_dims] = x_stride[d] / unit;
            b->y_stride[b->n_dims++] = y_step / unit;
            n *= size;
        }
        y_step *= size;
    }
    return n;
}

template <class U>
cudaError_t launch_runs(const tti_turn *t, const void *x, void *y, cudaStream_t stream) {
    batch rest;
    size_t unit = sizeof(U) / t->elem; /* elements, where units are wider */
    int last = t->n_dims - 1;
    size_t inner = (size_t)t->dim[last] / unit, n = batch_of(t, last, last, unit, &rest) * inner;
    if (n > MOST_BLOCKS) return cudaErrorInvalidValue;
    turn_runs<U><<<blocks_for(n), THREADS, 0, stream>>>((const U *)x, (U *)y, (uint32_t)n,
                                                        tti_make_divisor((uint32_t)inner), rest);
    return cudaGetLastError();
}

cudaError_t turn_by_runs(const tti_turn *t, const void *x, void *y, cudaStream_t stream) {
    size_t bytes = (size_t)t->dim[t->n_dims - 1] * t->elem;
    if (bytes % 16 == 0) return launch_runs<uint4>(t, x, y, stream);
    if (bytes % 8 == 0) return launch_runs<uint64_t>(t, x, y, stream);
    if (bytes % 4 == 0) return launch_runs<uint32_t>(t, x, y, stream);
    if (bytes % 2 == 0) return launch_runs<uint16_t>(t, x, y, stream);
    return launch_runs<uint8_t>(t, x, y, stream);
}

/* [B,c,s] to [B,s,c] or back. */
template <class E>
cudaError_t launch_narrow(const tti_turn *t, const void *x, void *y, cudaStream_t stream) {
    int last = t->n_dims - 1;
    int64_t n_p = t->dim[last - 1], n_q = t->dim[last];
    narrow h = {};
    h.mixes = n_p <= n_q;
    h.n_c = (uint32_t)(h.mixes ? n_p : n_q);
    h.n_s = (uint32_t)(h.mixes ? n_q : n_p);
    h.wide = h.n_s * sizeof(E) % 16 == 0;
    h.chunk_shift = 4;
    while (h.chunk_shift < 11 && ((size_t)h.n_c * sizeof(E) << (h.chunk_shift + 1)) <= SMALL_BYTES)
        h.chunk_shift++;
    size_t chunks = ((size_t)h.n_s + (1u << h.chunk_shift) - 1) >> h.chunk_shift;
    size_t n = chunks * (last == 2 ? (size_t)t->dim[0] : 1);
    if (n > MOST_BLOCKS) return cudaErrorInvalidValue;
    h.chunks = tti_make_divisor((uint32_t)chunks);
    size_t bytes = (size_t)h.n_c * sizeof(E) << h.chunk_shift;
    turn_narrow<E><<<(unsigned)n, THREADS, bytes, stream>>>((const E *)x, (E *)y, h);
    return cudaGetLastError();
}

template <class E>
cudaError_t launch_planes(const tti_turn *t, const void *x, void *y, cudaStream_t stream) {
    int last = t->n_dims - 1, a = t->perm[last];
    size_t x_stride = 1, y_stride = 1;
    plane p = {};
    for (int d = last; d > a; d--) x_stride *= (size_t)t->dim[d];
    for (int e = last; t->perm[e] != last; e--) y_stride *= (size_t)t->dim[t->perm[e]];
    p.n_a = (uint32_t)t->dim[a], p.n_b = (uint32_t)t->dim[last];
    p.x_stride_a = x_stride, p.y_stride_b = y_stride;
    bool vectors = p.n_a % tile<E>::V == 0 && p.n_b % tile<E>::V == 0;
    uint32_t side = vectors ? (uint32_t)tile<E>::SIDE : (uint32_t)SIDE1;
    size_t tiles_a = ((size_t)p.n_a + side - 1) / side, tiles_b = ((size_t)p.n_b + side - 1) / side;
    p.tiles_a = tti_make_divisor((uint32_t)tiles_a);
    p.tiles_b = tti_make_divisor((uint32_t)tiles_b);
    size_t n = batch_of(t, a, last, 1, &p.rest) * tiles_a * tiles_b;
    if (n > MOST_BLOCKS) return cudaErrorInvalidValue;
    if (vectors)
        turn_vectors<E><<<(unsigned)n, tile<E>::N_THREADS, 0, stream>>>((const E *)x, (E *)y, p);
    else
        turn_elements<E><<<(unsigned)n, THREADS, 0, stream>>>((const E *)x, (E *)y, p);
    return cudaGetLastError();
}

/* Planes alone, or one after the other in both arrays, with a short side. */
bool is_narrow(const tti_turn *t) {
    int last = t->n_dims - 1;
    bool in_order = t->n_dims == 2 || (t->n_dims == 3 && t->perm[0] == 0);
    return in_order && (t->dim[last] <= SMALL_SIDE || t->dim[last - 1] <= SMALL_SIDE);
}

template <class E>
cudaError_t turn_planes(const tti_turn *t, const void *x, void *y, cudaStream_t stream) {
    return is_narrow(t) ? launch_narrow<E>(t, x, y, stream) : launch_planes<E>(t, x, y, stream);
}

/* The widest unit, in bytes, that divides all runs. */
size_t unit_of(const tti_strips *strips, int n_strips) {
    size_t all = 16;
    for (int i = 0; i < n_strips; i++) {
        const tti_strips *s = &strips[i];
        if (s->n > 0)
            all |= (uintptr_t)s->src | (uintptr_t)s->dst | s->src_pitch | s->dst_pitch | s->n |
                   s->lo | s->hi;
    }
    return all & (~all + 1); /* the lowest bit */
}

template <class U>
void launch_strips(const tti_strips *strips, int n_strips, size_t first, size_t n_outer,
                   cudaStream_t stream) {
    unit_strips u = {};
    size_t most = 0;
    for (int i = 0; i < n_strips; i++) {
        const tti_strips *s = &strips[i];
        unit_strip *to = &u.at[i];
        if (s->n == 0) continue;
        to->src = (const char *)s->src + first * s->src_pitch;
        to->dst = (char *)s->dst + first * s->dst_pitch;
        to->src_pitch = s->src_pitch / sizeof(U);
        to->dst_pitch = s->dst_pitch / sizeof(U);
        to->n = tti_make_divisor((uint32_t)(s->n / sizeof(U)));
        to->lo = (uint32_t)(s->lo / sizeof(U)), to->hi = (uint32_t)(s->hi / sizeof(U));
        if (to->n.d > most) most = to->n.d;
    }
    dim3 grid(blocks_for(most * n_outer), (unsigned)n_strips);
    copy_strips<U><<<grid, THREADS, 0, stream>>>(u, (uint32_t)n_outer);
}

}  // namespace

extern "C" cudaError_t tti_launch_turn(const tti_turn *turn, const void *x, void *y,
                                       cudaStream_t stream) {
    tti_turn t = least(turn);
    size_t bytes = t.elem;
    bool fits = true;
    for (int d = 0; d < t.n_dims; d++) {
        bytes *= (size_t)t.dim[d];
        fits = fits && t.dim[d] <= MOST_BLOCKS;
    }
    if (t.n_dims < 2)
        return x == y ? cudaSuccess
                      : cudaMemcpyAsync(y, x, bytes, cudaMemcpyDeviceToDevice, stream);
    if (!fits) return cudaErrorInvalidValue;
    if (t.perm[t.n_dims - 1] == t.n_dims - 1) return turn_by_runs(&t, x, y, stream);
    switch (t.elem) {
        case 1:
            return turn_planes<uint8_t>(&t, x, y, stream);
        case 2:
            return turn_planes<uint16_t>(&t, x, y, stream);
        case 4:
            return turn_planes<uint32_t>(&t, x, y, stream);
        default:
            return turn_planes<uint64_t>(&t, x, y, stream);
    }
}

extern "C" cudaError_t tti_launch_strips(const tti_strips *strips, int n_strips, size_t n_outer,
                                         cudaStream_t stream) {
    size_t unit = unit_of(strips, n_strips), most = 0;
    for (int i = 0; i < n_strips; i++) most = strips[i].n > most ? strips[i].n : most;
    if (most == 0 || n_outer == 0) return cudaSuccess;
    if (most / unit > MOST_BLOCKS) return cudaErrorInvalidValue;
    size_t at_once = MOST_BLOCKS / (most / unit);
    for (size_t o = 0; o < n_outer; o += at_once) {
        size_t n = n_outer - o < at_once ? n_outer - o : at_once;
        if (unit == 16) launch_strips<uint4>(strips, n_strips, o, n, stream);
        if (unit == 8) launch_strips<uint64_t>(strips, n_strips, o, n, stream);
        if (unit == 4) launch_strips<uint32_t>(strips, n_strips, o, n, stream);
        if (unit == 2) launch_strips<uint16_t>(strips, n_strips, o, n, stream);
        if (unit == 1) launch_strips<uint8_t>(strips, n_strips, o, n, stream);
    }
    return cudaGetLastError();
}
