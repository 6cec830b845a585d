/* image_resize.c - antialiased bilinear, bit for bit as PIL: a triangle filter as wide as the
 * shrink, columns first, then rows, each rounded to u8, weights in fixed point with 22 bits.
 *
 * All arithmetic on pixels is on integers, so vectors of any width give the same bits; the weights
 * come from a few exactly rounded operations on doubles.  Only what the window needs is computed,
 * and a flip costs nothing: the first pass writes from right to left. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "data/image.h"

enum { PRECISION_BITS = 32 - 8 - 2, HALF = 1 << (PRECISION_BITS - 1) };

/* The weights of one axis: output i is a sum over n[i] inputs from start[i] on. */
typedef struct weights {
    int64_t n_outputs, n_most; /* inputs of an output, at most */
    int32_t *start, *n;
    int32_t *weight; /* [n_outputs, n_most] */
} weights;

typedef struct axis {
    int64_t n_in, n_out, first, n_window; /* outputs first .. first+n_window-1 are wanted */
} axis;

static int64_t count_most(const axis *a) {
    double scale = fmax((double)a->n_in / (double)a->n_out, 1.0);
    return (int64_t)ceil(scale) * 2 + 1;
}

static size_t weights_elems(const axis *a) { return (size_t)(a->n_window * (2 + count_most(a))); }

/* Output i in doubles first: they must add up to 1 before they are rounded. */
static void fill_output(const axis *a, int64_t i, weights *out) {
    double scale = (double)a->n_in / (double)a->n_out, widen = fmax(scale, 1.0);
    double center = ((double)(a->first + i) + 0.5) * scale, sum = 0, inverse = 1.0 / widen;
    int64_t start = TTI_MAX((int64_t)(center - widen + 0.5), 0);
    int64_t n = TTI_MIN((int64_t)(center + widen + 0.5), a->n_in) - start;
    int32_t *weight = out->weight + i * out->n_most;
    for (int64_t k = 0; k < n; k++)
        sum += fmax(1.0 - fabs(((double)(k + start) - center + 0.5) * inverse), 0.0);
    for (int64_t k = 0; k < n; k++) {
        double w = fmax(1.0 - fabs(((double)(k + start) - center + 0.5) * inverse), 0.0);
        weight[k] = (int32_t)(0.5 + w / sum * (double)(1 << PRECISION_BITS));
    }
    out->start[i] = (int32_t)start;
    out->n[i] = (int32_t)n;
}

/* memory holds weights_elems(a) numbers. */
static weights make_weights(const axis *a, int32_t *memory) {
    weights w = {.n_outputs = a->n_window, .n_most = count_most(a)};
    w.start = memory;
    w.n = memory + a->n_window;
    w.weight = memory + 2 * a->n_window;
    for (int64_t i = 0; i < a->n_window; i++) fill_output(a, i, &w);
    return w;
}

static inline uint8_t clip(int32_t x) { return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x); }

/* ---- the two passes, as plain C that a compiler makes vectors of ---- */

#define INLINE static inline __attribute__((always_inline))

typedef uint8_t u8x4 __attribute__((vector_size(4)));
typedef int32_t i32x4 __attribute__((vector_size(16)));
typedef uint8_t u8x8 __attribute__((vector_size(8)));
typedef int32_t i32x8 __attribute__((vector_size(32)));

/* One row: in [W,3] with readable bytes after it, out [n_outputs,3]. */
INLINE void columns_body(const uint8_t *in, const weights *w, bool flip, uint8_t *out) {
    for (int64_t i = 0; i < w->n_outputs; i++) {
        const uint8_t *pixel = in + (int64_t)w->start[i] * 3;
        const int32_t *weight = w->weight + i * w->n_most;
        i32x4 sum = {HALF, HALF, HALF, HALF}; /* R, G, B, and a byte of the next pixel */
        for (int32_t k = 0; k < w->n[i]; k++, pixel += 3) {
            u8x4 bytes;
            memcpy(&bytes, pixel, 4);
            sum += __builtin_convertvector(bytes, i32x4) * weight[k];
        }
        sum >>= PRECISION_BITS;
        uint8_t *to = out + (flip ? w->n_outputs - 1 - i : i) * 3;
        for (int c = 0; c < 3; c++) to[c] = clip(sum[c]);
    }
}

/* One output row: n rows of row_bytes at in, weighted. */
INLINE void rows_body(const uint8_t *in, int64_t row_bytes, const int32_t *weight, int32_t n,
                      uint8_t *out) {
    int64_t x = 0;
    for (; x + 8 <= row_bytes; x += 8) {
        i32x8 sum = {HALF, HALF, HALF, HALF, HALF, HALF, HALF, HALF};
        for (int32_t k = 0; k < n; k++) {
            u8x8 bytes;
            memcpy(&bytes, in + k * row_bytes + x, 8);
            sum += __builtin_convertvector(bytes, i32x8) * weight[k];
        }
        sum >>= PRECISION_BITS;
        sum = (sum | (sum > 255)) & ~(sum < 0) & 255; /* clip: comparisons give 0 or -1 */
        u8x8 bytes = __builtin_convertvector(sum, u8x8);
        memcpy(out + x, &bytes, 8);
    }
    for (; x < row_bytes; x++) {
        int32_t sum = HALF;
        for (int32_t k = 0; k < n; k++) sum += in[k * row_bytes + x] * weight[k];
        out[x] = clip(sum >> PRECISION_BITS);
    }
}

typedef struct passes {
    void (*columns)(const uint8_t *in, const weights *w, bool flip, uint8_t *out);
    void (*rows)(const uint8_t *in, int64_t row_bytes, const int32_t *weight, int32_t n,
                 uint8_t *out);
} passes;

static void columns_plain(const uint8_t *in, const weights *w, bool flip, uint8_t *out) {
    columns_body(in, w, flip, out);
}
static void rows_plain(const uint8_t *in, int64_t row_bytes, const int32_t *weight, int32_t n,
                       uint8_t *out) {
    rows_body(in, row_bytes, weight, n, out);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void columns_avx2(const uint8_t *in, const weights *w,
                                                         bool flip, uint8_t *out) {
    columns_body(in, w, flip, out);
}
__attribute__((target("avx2"))) static void rows_avx2(const uint8_t *in, int64_t row_bytes,
                                                      const int32_t *weight, int32_t n,
                                                      uint8_t *out) {
    rows_body(in, row_bytes, weight, n, out);
}

static passes pick_passes(void) {
    if (__builtin_cpu_supports("avx2")) return (passes){columns_avx2, rows_avx2};
    return (passes){columns_plain, rows_plain};
}
#else
static passes pick_passes(void) { return (passes){columns_plain, rows_plain}; }
#endif

/* ---- both together ---- */

static bool is_inside(const tti_box *box, int64_t h, int64_t w) {
    return box->y >= 0 && box->x >= 0 && box->h >= 1 && box->w >= 1 && box->y + box->h <= h &&
           box->x + box->w <= w;
}

/* Rows of the source that the window needs, from *first on; into ws->rows, shrunk sideways. */
static void run_columns(const tti_image *image, const tti_resize *how, const weights *across,
                        int64_t first, int64_t n_rows, uint8_t *out) {
    passes p = pick_passes();
    for (int64_t y = 0; y < n_rows; y++) {
        const uint8_t *row = image->rgb + ((how->from.y + first + y) * image->w + how->from.x) * 3;
        p.columns(row, across, how->flip, out + y * how->window.w * 3);
    }
}

static void run_rows(const uint8_t *in, const tti_resize *how, const weights *down, int64_t first,
                     uint8_t *out) {
    passes p = pick_passes();
    int64_t row_bytes = how->window.w * 3;
    for (int64_t y = 0; y < down->n_outputs; y++)
        p.rows(in + (down->start[y] - first) * row_bytes, row_bytes,
               down->weight + y * down->n_most, down->n[y], out + y * row_bytes);
}

tutti_status tti_image_resize(const tti_image *image, const tti_resize *how, tti_workspace *ws,
                              uint8_t *out) {
    TTI_ASSERT(is_inside(&how->from, image->h, image->w));
    TTI_ASSERT(is_inside(&how->window, how->h, how->w));
    axis x = {how->from.w, how->w, how->window.x, how->window.w};
    axis y = {how->from.h, how->h, how->window.y, how->window.h};
    size_t n_x = weights_elems(&x), n_y = weights_elems(&y);
    TTI_TRY(tti_buffer_reserve(&ws->coefs, (n_x + n_y) * sizeof(int32_t)));
    int32_t *memory = (int32_t *)(void *)ws->coefs.bytes;
    weights across = make_weights(&x, memory), down = make_weights(&y, memory + n_x);
    int64_t last_y = down.n_outputs - 1, first = down.start[0];
    int64_t n_rows = down.start[last_y] + down.n[last_y] - first;
    TTI_TRY(tti_buffer_reserve(&ws->rows, (size_t)(n_rows * how->window.w * 3)));
    run_columns(image, how, &across, first, n_rows, ws->rows.bytes);
    run_rows(ws->rows.bytes, how, &down, first, out);
    return TUTTI_OK;
}
