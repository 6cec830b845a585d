/* image_resize.c - antialiased bilinear, bit for bit as PIL: a triangle filter as wide as the
 * reduction, columns first, then rows, each rounded to u8, weights in fixed point with 22 bits.
 *
 * All arithmetic on pixels is on integers, so vectors of any width give the same bits; the weights
 * come from a few exactly rounded operations on doubles.  Only the window is computed, and a flip
 * is free: the first pass writes from right to left. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "data/image/image.h"
#include "data/image/image_passes.h"

typedef struct axis {
    int64_t n_in, n_out, first, n_window; /* outputs first .. first+n_window-1 are needed */
} axis;

static int64_t count_most(const axis *a) {
    double scale = fmax((double)a->n_in / (double)a->n_out, 1.0);
    return (int64_t)ceil(scale) * 2 + 1;
}

static size_t weights_elems(const axis *a) { return (size_t)(a->n_window * (2 + count_most(a))); }

/* Output i in doubles first: they must add up to 1 before they are rounded. */
static void fill_output(const axis *a, int64_t i, tti_weights *out) {
    double scale = (double)a->n_in / (double)a->n_out, widen = fmax(scale, 1.0);
    double center = ((double)(a->first + i) + 0.5) * scale, sum = 0, inverse = 1.0 / widen;
    int64_t start = TTI_MAX((int64_t)(center - widen + 0.5), 0);
    int64_t n = TTI_MIN((int64_t)(center + widen + 0.5), a->n_in) - start;
    int32_t *weight = out->weight + i * out->n_most;
    for (int64_t k = 0; k < n; k++)
        sum += fmax(1.0 - fabs(((double)(k + start) - center + 0.5) * inverse), 0.0);
    for (int64_t k = 0; k < n; k++) {
        double w = fmax(1.0 - fabs(((double)(k + start) - center + 0.5) * inverse), 0.0);
        weight[k] = (int32_t)(0.5 + w / sum * (double)(1 << TTI_WEIGHT_BITS));
    }
    out->start[i] = (int32_t)start;
    out->n[i] = (int32_t)n;
}

/* memory holds weights_elems(a) numbers. */
static tti_weights make_weights(const axis *a, int32_t *memory) {
    tti_weights w = {.n_outputs = a->n_window, .n_most = count_most(a)};
    w.start = memory;
    w.n = memory + a->n_window;
    w.weight = memory + 2 * a->n_window;
    for (int64_t i = 0; i < a->n_window; i++) fill_output(a, i, &w);
    return w;
}

/* ---- the passes in plain C ---- */

static uint8_t clip(int32_t x) { return (uint8_t)(x > 255 ? 255 : x); }

static size_t no_split_bytes(int64_t n_outputs, int64_t n_most) {
    (void)n_outputs, (void)n_most;
    return 0;
}

static void no_prepare(tti_weights *across) { (void)across; }

static void columns_plain(const uint8_t *in, const tti_weights *w, uint8_t *out) {
    for (int64_t i = 0; i < w->n_outputs; i++) {
        const uint8_t *pixel = in + (int64_t)w->start[i] * 3;
        const int32_t *weight = w->weight + i * w->n_most;
        int32_t sum[3] = {TTI_WEIGHT_HALF, TTI_WEIGHT_HALF, TTI_WEIGHT_HALF};
        for (int32_t k = 0; k < w->n[i]; k++, pixel += 3)
            for (int c = 0; c < 3; c++) sum[c] += pixel[c] * weight[k];
        uint8_t *to = out + (w->flip ? w->n_outputs - 1 - i : i) * 3;
        for (int c = 0; c < 3; c++) to[c] = clip(sum[c] >> TTI_WEIGHT_BITS);
    }
}

static void rows_plain(const uint8_t *in, int64_t row_bytes, const tti_weights *down, int64_t i,
                       uint8_t *out) {
    const int32_t *weight = down->weight + i * down->n_most;
    for (int64_t x = 0; x < row_bytes; x++) {
        int32_t sum = TTI_WEIGHT_HALF;
        for (int32_t k = 0; k < down->n[i]; k++) sum += in[k * row_bytes + x] * weight[k];
        out[x] = clip(sum >> TTI_WEIGHT_BITS);
    }
}

const tti_passes tti_passes_plain = {no_split_bytes, no_prepare, columns_plain, rows_plain};

/* ---- both together ---- */

static bool is_inside(const tti_box *box, int64_t h, int64_t w) {
    return box->y >= 0 && box->x >= 0 && box->h >= 1 && box->w >= 1 && box->y + box->h <= h &&
           box->x + box->w <= w;
}

static size_t round_up(size_t n) { return (n + 63) & ~(size_t)63; }

/* Both axes' weights in ws->coefs. */
static tutti_status prepare(const tti_passes *passes, const axis *x, const axis *y, bool flip,
                            tti_workspace *ws, tti_weights *across, tti_weights *down) {
    size_t x_bytes = round_up(weights_elems(x) * sizeof(int32_t));
    size_t y_bytes = round_up(weights_elems(y) * sizeof(int32_t));
    size_t split_bytes = passes->split_bytes(x->n_window, count_most(x));
    TTI_TRY(tti_buffer_reserve(&ws->coefs, x_bytes + y_bytes + split_bytes));
    uint8_t *memory = ws->coefs.bytes;
    *across = make_weights(x, (int32_t *)(void *)memory);
    *down = make_weights(y, (int32_t *)(void *)(memory + x_bytes));
    across->flip = flip;
    across->split = memory + x_bytes + y_bytes;
    passes->prepare(across);
    return TUTTI_OK;
}

tutti_status tti_image_resize_with(const tti_passes *passes, const tti_image *image,
                                   const tti_resize *how, tti_workspace *ws, uint8_t *out) {
    TTI_ASSERT(is_inside(&how->from, image->h, image->w));
    TTI_ASSERT(is_inside(&how->window, how->h, how->w));
    axis x = {how->from.w, how->w, how->window.x, how->window.w};
    axis y = {how->from.h, how->h, how->window.y, how->window.h};
    tti_weights across, down;
    TTI_TRY(prepare(passes, &x, &y, how->flip, ws, &across, &down));
    int64_t last = down.n_outputs - 1, first = down.start[0], row_bytes = how->window.w * 3;
    int64_t n_rows = down.start[last] + down.n[last] - first;
    TTI_TRY(tti_buffer_reserve(&ws->rows, (size_t)(n_rows * row_bytes)));
    const uint8_t *rgb = image->rgb + ((how->from.y + first) * image->w + how->from.x) * 3;
    for (int64_t i = 0; i < n_rows; i++)
        passes->columns(rgb + i * image->w * 3, &across, ws->rows.bytes + i * row_bytes);
    for (int64_t i = 0; i < down.n_outputs; i++)
        passes->rows(ws->rows.bytes + (down.start[i] - first) * row_bytes, row_bytes, &down, i,
                     out + i * row_bytes);
    return TUTTI_OK;
}

tutti_status tti_image_resize(const tti_image *image, const tti_resize *how, tti_workspace *ws,
                              uint8_t *out) {
    const tti_passes *passes = tti_passes_avx512();
    if (!passes) passes = tti_passes_avx2();
    return tti_image_resize_with(passes ? passes : &tti_passes_plain, image, how, ws, out);
}
