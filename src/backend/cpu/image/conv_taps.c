/* conv_taps.c - convolutions of many channels over small planes, as products by tap of the kernel.
 *
 * On a 4x4 plane, a third of a 3x3 kernel's products is padding, and a direct convolution has only
 * 4 outputs in a row to keep its registers busy.  With activations in H,W,N,C order the rows of all
 * samples at neighbouring positions are one matrix.  A tap (i, j) then is y[p, q0..q1] += x[p+i,
 * q0+j..q1+j] W_ij^T of (q1-q0) N rows, without any padding, for each row p of the plane, and the
 * gradients are the same loop with other roles.  Taps and rows are added in one order.  N,H,W,C is
 * read and written in whole rows of channels; W is [tap][O][C].  Products are oneDNN's, or the tile
 * unit's if there is one. */
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/gemm/amx.h"

#if TUTTI_HAVE_ONEDNN

/* Sizes for which this is faster than oneDNN's convolutions, as measured
 * (docs/lab/2026-11-performance.md): positions of a plane, of y's in the forward pass; channels;
 * rows of a product.  MAX_WEIGHTS: floats of a block by taps. */
enum { MAX_PLANE = 64, MAX_FORWARD = 49, MIN_CHANNELS = 128, MIN_ROWS = 32 };
enum { MAX_PLANE_TILES = 256 }; /* of all three, where there is a tile unit */
enum { MAX_WEIGHTS = 640 * 1024 };

typedef struct taps {
    size_t n, c, o;
    size_t in[2], out[2], kernel[2], stride[2], pad[2], dilation[2]; /* down, across */
} taps;

/* ---- the sizes of a node ---- */

static void read_pair(const tti_node *node, const char *name, size_t fallback, size_t out[2]) {
    const tti_attr *attr = tti_attr_get(node, name);
    out[0] = attr->n > 0 ? (size_t)attr->v[0] : fallback;
    out[1] = attr->n > 1 ? (size_t)attr->v[1] : out[0];
}

/* The values in their forward roles. */
static taps read_taps(const tti_node *node, const tutti_value *x, const tutti_value *w,
                      const tutti_value *y) {
    const int64_t *xd = x->type.shape.dim, *wd = w->type.shape.dim, *yd = y->type.shape.dim;
    taps t = {.n = (size_t)xd[0], .c = (size_t)xd[1], .o = (size_t)yd[1]};
    for (int d = 0; d < 2; d++) {
        t.in[d] = (size_t)xd[2 + d];
        t.out[d] = (size_t)yd[2 + d];
        t.kernel[d] = (size_t)wd[2 + d];
    }
    read_pair(node, "stride", 1, t.stride);
    read_pair(node, "pad", 0, t.pad);
    read_pair(node, "dilation", 1, t.dilation);
    return t;
}

static taps of_forward(const tti_node *node) {
    return read_taps(node, node->in[0], node->in[1], node->out[0]);
}
static taps of_grad_x(const tti_node *node) {
    return read_taps(node, node->out[0], node->in[1], node->in[0]);
}
static taps of_grad_w(const tti_node *node) {
    return read_taps(node, node->in[1], node->out[0], node->in[0]);
}

static bool is_f32(const tutti_value *value) { return value->type.dtype == TUTTI_F32; }

static bool is_last(const tutti_value *value) {
    return is_f32(value) && value->layout == TTI_CHANNELS_LAST_BYTES;
}

/* x and y in N,H,W,C order, w plain, and sizes at which it pays.  most_out: places of y without a
 * tile unit. */
static bool pays(const tti_node *node, const tutti_value *x, const tutti_value *w,
                 const tutti_value *y, size_t most_out) {
    if (!is_last(x) || !is_last(y) || !is_f32(w) || w->layout != TTI_PLAIN) return false;
    if (node->n_in > 2 && !is_f32(node->in[2])) return false;
    if (tti_attr_int(node, "groups") != 1) return false;
    taps t = read_taps(node, x, w, y);
    size_t across = t.stride[1] == 1 ? t.out[1] : 1;
    size_t n_in = t.in[0] * t.in[1], n_out = t.out[0] * t.out[1];
    if (t.kernel[0] * t.kernel[1] == 1 || t.c < MIN_CHANNELS || t.o < MIN_CHANNELS) return false;
    if (t.n * across < MIN_ROWS || TTI_MAX(n_in, n_out) > MAX_PLANE_TILES) return false;
    return (n_in <= MAX_PLANE && n_out <= most_out) || tti_amx_is_usable();
}

static bool forward_can_run(const tti_node *node) {
    return pays(node, node->in[0], node->in[1], node->out[0], MAX_FORWARD);
}
static bool grad_x_can_run(const tti_node *node) {
    return pays(node, node->out[0], node->in[1], node->in[0], MAX_PLANE);
}
static bool grad_w_can_run(const tti_node *node) {
    return pays(node, node->in[1], node->out[0], node->in[0], MAX_PLANE);
}

/* ---- the state of a kernel: whether there is a tile unit ---- */

typedef struct choice {
    bool tiles;
} choice;

static tutti_status prepare(const tti_node *node, void **state) {
    choice *c = calloc(1, sizeof *c);
    if (!c) return tti_fail(TUTTI_E_NOMEM, "%s '%s': out of memory", node->op->name, node->name);
    c->tiles = tti_amx_is_usable();
    *state = c;
    return TUTTI_OK;
}

/* ---- scratch: x and y in H,W,N,C order, a block of w by taps ---- */

static size_t plane_of(const size_t size[2]) { return size[0] * size[1]; }
static size_t n_x(const taps *t) { return plane_of(t->in) * t->n * t->c; }
static size_t n_y(const taps *t) { return plane_of(t->out) * t->n * t->o; }
static size_t lines(size_t n_floats) { return (n_floats + 15) / 16 * 16; }

/* Output channels at a time: whole tiles of a product, so that the taps of 512 channels do not need
 * the memory of a second whole weight. */
static size_t block_of(const taps *t) {
    size_t n = MAX_WEIGHTS / (plane_of(t->kernel) * t->c) / MIN_CHANNELS * MIN_CHANNELS;
    return TTI_MIN(TTI_MAX(n, (size_t)MIN_CHANNELS), t->o);
}

typedef struct places {
    float *x, *y, *w;
    void *tiles; /* scratch of their products; NULL: oneDNN's */
} places;

static size_t n_w(const taps *t) { return plane_of(t->kernel) * block_of(t) * t->c; }

static places place(const taps *t, void *scratch, const choice *c) {
    places p = {.x = scratch};
    p.y = p.x + lines(n_x(t));
    p.w = p.y + lines(n_y(t));
    p.tiles = c->tiles ? p.w + lines(n_w(t)) : NULL;
    return p;
}

static size_t total_bytes(const taps *t, const choice *c) {
    size_t n_bytes = (lines(n_x(t)) + lines(n_y(t)) + lines(n_w(t))) * sizeof(float);
    if (!c->tiles) return n_bytes;
    size_t forward = tti_amx_scratch_bytes(block_of(t), t->c);
    size_t grad_x = tti_amx_scratch_bytes(t->c, block_of(t));
    size_t grad_w = tti_amx_scratch_bytes(t->c, t->out[1] * t->n);
    return n_bytes + TTI_MAX(forward, TTI_MAX(grad_x, grad_w));
}

static size_t forward_scratch(const tti_node *node, const void *state) {
    taps t = of_forward(node);
    return total_bytes(&t, state);
}
static size_t grad_x_scratch(const tti_node *node, const void *state) {
    taps t = of_grad_x(node);
    return total_bytes(&t, state);
}
static size_t grad_w_scratch(const tti_node *node, const void *state) {
    taps t = of_grad_w(node);
    return total_bytes(&t, state);
}

/* to[b][a] = from[a][b] of rows of c floats. */
static void turn_rows(const float *from, size_t n_a, size_t n_b, size_t c, float *to) {
    for (size_t b = 0; b < n_b; b++)
        for (size_t a = 0; a < n_a; a++, to += c)
            memcpy(to, from + (a * n_b + b) * c, c * sizeof *to);
}

/* w[o][c][tap] of n_out outputs to [tap][o][c]. */
static void weights_to_taps(const taps *t, const float *w, size_t n_out, float *by_tap) {
    size_t n_taps = plane_of(t->kernel), n = n_out * t->c;
    for (size_t i = 0; i < n; i += t->c, w += t->c * n_taps)
        for (size_t k = 0; k < n_taps; k++)
            for (size_t c = 0; c < t->c; c++) by_tap[k * n + i + c] = w[c * n_taps + k];
}

static void weights_from_taps(const taps *t, const float *by_tap, size_t n_out, float *w) {
    size_t n_taps = plane_of(t->kernel), n = n_out * t->c;
    for (size_t i = 0; i < n; i += t->c, w += t->c * n_taps)
        for (size_t k = 0; k < n_taps; k++)
            for (size_t c = 0; c < t->c; c++) w[c * n_taps + k] = by_tap[k * n + i + c];
}

/* ---- the walk ---- */

/* Outputs first .. last-1 of dimension d see a place inside x through tap i. */
typedef struct span {
    size_t first, last;
} span;

static span seen_by(const taps *t, int d, size_t i) {
    size_t at = i * t->dilation[d], pad = t->pad[d], stride = t->stride[d];
    size_t end = t->in[d] + pad > at ? (t->in[d] + pad - at - 1) / stride + 1 : 0;
    span s = {at < pad ? (pad - at + stride - 1) / stride : 0, TTI_MIN(end, t->out[d])};
    return s;
}

/* One product: n_rows rows of x and of n_out channels of y, and the tap. */
typedef struct part {
    float *x, *y, *w;
    void *tiles; /* as in places */
    size_t n_rows, n_out;
    bool first; /* of its tap */
} part;

typedef tutti_status (*part_fn)(const taps *t, const part *p);

static tutti_status multiply(const part *p, const tti_product *product) {
    if (!p->tiles || !tti_amx_pays(product)) return tti_onednn_product(product);
    tti_amx_run(&(tti_amx_product){.g = *product}, p->tiles);
    return TUTTI_OK;
}

/* Neighbouring outputs of a row are one matrix unless a stride lies between them. */
static tutti_status run_tap(const taps *t, const places *p, size_t i, size_t j, part one,
                            part_fn fn) {
    span down = seen_by(t, 0, i), across = seen_by(t, 1, j);
    size_t step = 1;
    if (t->stride[1] == 1 && across.last > across.first) step = across.last - across.first;
    one.w = p->w + (i * t->kernel[1] + j) * one.n_out * t->c;
    one.n_rows = step * t->n;
    one.first = true;
    for (size_t row = down.first; row < down.last; row++)
        for (size_t q = across.first; q < across.last; q += step, one.first = false) {
            size_t h = row * t->stride[0] + i * t->dilation[0] - t->pad[0];
            size_t v = q * t->stride[1] + j * t->dilation[1] - t->pad[1];
            part now = one;
            now.x = p->x + (h * t->in[1] + v) * t->n * t->c;
            now.y = one.y + (row * t->out[1] + q) * t->n * t->o;
            TTI_TRY(fn(t, &now));
        }
    if (one.first) memset(one.w, 0, one.n_out * t->c * sizeof *one.w); /* as a gradient it is 0 */
    return TUTTI_OK;
}

/* All taps of the outputs first .. first + n_out - 1. */
static tutti_status run_taps(const taps *t, const places *p, size_t first, size_t n_out,
                             part_fn fn) {
    part one = {.y = p->y + first, .tiles = p->tiles, .n_out = n_out};
    for (size_t i = 0; i < t->kernel[0]; i++)
        for (size_t j = 0; j < t->kernel[1]; j++) TTI_TRY(run_tap(t, p, i, j, one, fn));
    return TUTTI_OK;
}

/* The same with the weights brought to taps before. */
static tutti_status run_blocks(const taps *t, const places *p, const float *w, part_fn fn) {
    size_t block = block_of(t), n_filter = plane_of(t->kernel) * t->c;
    for (size_t o = 0; o < t->o; o += block) {
        size_t n = TTI_MIN(block, t->o - o);
        weights_to_taps(t, w + o * n_filter, n, p->w);
        TTI_TRY(run_taps(t, p, o, n, fn));
    }
    return TUTTI_OK;
}

/* ---- forward ---- */

/* y += x w^T */
static tutti_status forward_part(const taps *t, const part *p) {
    tti_product product = {.m = p->n_rows,
                           .n = p->n_out,
                           .k = t->c,
                           .a = p->x,
                           .b = p->w,
                           .c = p->y,
                           .a_row = t->c,
                           .b_row = t->c,
                           .c_row = t->o,
                           .trans_b = true,
                           .add = true};
    return multiply(p, &product);
}

/* b: NULL for none. */
static void start_rows(float *y, size_t n_rows, size_t o, const float *b) {
    if (!b) memset(y, 0, n_rows * o * sizeof *y);
    for (size_t r = 0; b && r < n_rows; r++) memcpy(y + r * o, b, o * sizeof *y);
}

static tutti_status forward_run(void *state, const tti_kargs *a) {
    taps t = of_forward(a->node);
    places p = place(&t, a->scratch, state);
    float *y = a->out[0];
    size_t n_places = plane_of(t.out);
    turn_rows(a->in[0], t.n, plane_of(t.in), t.c, p.x);
    start_rows(p.y, n_places * t.n, t.o, a->node->n_in > 2 ? a->in[2] : NULL);
    TTI_TRY(run_blocks(&t, &p, a->in[1], forward_part));
    turn_rows(p.y, n_places, t.n, t.o, y);
    if (tti_attr_int(a->node, "act") == TTI_EPILOGUE_RELU)
        for (size_t i = 0; i < n_y(&t); i++) y[i] = y[i] < 0.0f ? 0.0f : y[i];
    return TUTTI_OK;
}

/* ---- gradients ---- */

/* dx += dy w */
static tutti_status grad_x_part(const taps *t, const part *p) {
    tti_product product = {.m = p->n_rows,
                           .n = t->c,
                           .k = p->n_out,
                           .a = p->y,
                           .b = p->w,
                           .c = p->x,
                           .a_row = t->o,
                           .b_row = t->c,
                           .c_row = t->c,
                           .add = true};
    return multiply(p, &product);
}

static tutti_status grad_x_run(void *state, const tti_kargs *a) {
    taps t = of_grad_x(a->node);
    places p = place(&t, a->scratch, state);
    turn_rows(a->in[0], t.n, plane_of(t.out), t.o, p.y);
    memset(p.x, 0, n_x(&t) * sizeof *p.x);
    TTI_TRY(run_blocks(&t, &p, a->in[1], grad_x_part));
    turn_rows(p.x, plane_of(t.in), t.n, t.c, a->out[0]);
    return TUTTI_OK;
}

/* dw += dy^T x; the first product of a tap overwrites. */
static tutti_status grad_w_part(const taps *t, const part *p) {
    tti_product product = {.m = p->n_out,
                           .n = t->c,
                           .k = p->n_rows,
                           .a = p->y,
                           .b = p->x,
                           .c = p->w,
                           .a_row = t->o,
                           .b_row = t->c,
                           .c_row = t->c,
                           .trans_a = true,
                           .add = !p->first};
    return multiply(p, &product);
}

static tutti_status grad_w_run(void *state, const tti_kargs *a) {
    taps t = of_grad_w(a->node);
    places p = place(&t, a->scratch, state);
    float *dw = a->out[0];
    size_t block = block_of(&t);
    turn_rows(a->in[0], t.n, plane_of(t.out), t.o, p.y);
    turn_rows(a->in[1], t.n, plane_of(t.in), t.c, p.x);
    for (size_t o = 0; o < t.o; o += block) {
        size_t n = TTI_MIN(block, t.o - o);
        TTI_TRY(run_taps(&t, &p, o, n, grad_w_part));
        weights_from_taps(&t, p.w, n, dw + o * plane_of(t.kernel) * t.c);
    }
    tti_cpu_isa_at(0)->sum_columns(a->in[0], plane_of(t.out) * t.n, t.o, a->out[1]);
    return TUTTI_OK;
}

#define ROW(op_name, role)                                                               \
    {                                                                                    \
        .op = op_name, .name = "by taps", .can_run = role##_can_run, .prepare = prepare, \
        .scratch_bytes = role##_scratch, .run = role##_run, .release = free              \
    }

const tti_kernel tti_conv_taps_kernels[] = {
    ROW("conv2d", forward),
    ROW("conv2d_grad_x", grad_x),
    ROW("conv2d_grad_w", grad_w),
    {0},
};

#else

const tti_kernel tti_conv_taps_kernels[] = {{0}};

#endif
