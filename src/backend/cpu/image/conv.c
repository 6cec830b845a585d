/* conv.c - conv2d and its gradients as matrix products (im2col, gemm.c), without oneDNN.
 *
 * One sample and group at a time: col[C/g*Kh*Kw][Ho*Wo] holds every window as a column. y = W col
 * dcol = W^T dy      dW += dy col^T A sample in N,H,W,C order is first converted to C,H,W order in
 * scratch; samples are added in order. */
#include "backend/cpu/simd.h"

typedef struct conv_2d {
    size_t n, c, h, w, o, oh, ow, kh, kw;
    size_t stride[2], pad[2], dilation[2], groups;
    size_t k, p;         /* rows and columns of col */
    bool x_last, y_last; /* in N,H,W,C order */
    bool relu;
} conv_2d;

static void read_pair(const tti_node *node, const char *name, size_t fallback, size_t out[2]) {
    const tti_attr *attr = tti_attr_get(node, name);
    out[0] = attr->n > 0 ? (size_t)attr->v[0] : fallback;
    out[1] = attr->n > 1 ? (size_t)attr->v[1] : out[0];
}

static conv_2d read_conv(const tti_node *node, const tutti_value *x, const tutti_value *w,
                         const tutti_value *y) {
    const int64_t *xd = x->type.shape.dim, *wd = w->type.shape.dim, *yd = y->type.shape.dim;
    conv_2d s = {.n = (size_t)xd[0], .c = (size_t)xd[1], .h = (size_t)xd[2], .w = (size_t)xd[3]};
    s.o = (size_t)yd[1], s.oh = (size_t)yd[2], s.ow = (size_t)yd[3];
    s.kh = (size_t)wd[2], s.kw = (size_t)wd[3];
    read_pair(node, "stride", 1, s.stride);
    read_pair(node, "pad", 0, s.pad);
    read_pair(node, "dilation", 1, s.dilation);
    s.groups = (size_t)tti_attr_int(node, "groups");
    s.k = s.c / s.groups * s.kh * s.kw, s.p = s.oh * s.ow;
    s.x_last = tti_is_last(x), s.y_last = tti_is_last(y);
    s.relu = tti_attr_has(node, "act") && tti_attr_int(node, "act") == TTI_EPILOGUE_RELU;
    return s;
}

static conv_2d of_forward(const tti_node *node) {
    return read_conv(node, node->in[0], node->in[1], node->out[0]);
}

static conv_2d of_grad_x(const tti_node *node) {
    return read_conv(node, node->out[0], node->in[1], node->in[0]);
}

static conv_2d of_grad_w(const tti_node *node) {
    return read_conv(node, node->in[1], node->out[0], node->in[0]);
}

/* Weights are plain whatever the activations are. */
static bool plain_weights(const tti_node *node, const tutti_value *w) {
    return tti_all_f32(node) && w->layout == TTI_PLAIN;
}

static bool forward_can_run(const tti_node *node) { return plain_weights(node, node->in[1]); }
static bool grad_w_can_run(const tti_node *node) { return plain_weights(node, node->out[0]); }

/* Scratch: product, one sample of x and of y in C,H,W order, col. */
typedef struct places {
    void *gemm;
    float *x, *y, *col;
} places;

static size_t rounded(size_t n_floats) { return (n_floats + 15) / 16 * 16 * sizeof(float); }

static places place(const conv_2d *s, void *scratch) {
    char *at = scratch;
    places p = {.gemm = at};
    at += TTI_VARIANT(tti_gemm_scratch_bytes)();
    p.x = (void *)at, at += rounded(s->c * s->h * s->w);
    p.y = (void *)at, at += rounded(s->o * s->p);
    p.col = (void *)at;
    return p;
}

static size_t total_bytes(const conv_2d *s) {
    return TTI_VARIANT(tti_gemm_scratch_bytes)() + rounded(s->c * s->h * s->w) +
           rounded(s->o * s->p) + rounded(s->k * s->p);
}

/* to[j*n_i + i] = from[i*n_j + j]: one sample between H,W,C and C,H,W. */
static void turn(const float *from, float *to, size_t n_i, size_t n_j) {
    for (size_t i0 = 0; i0 < n_i; i0 += 16)
        for (size_t j = 0; j < n_j; j++)
            for (size_t i = i0; i < TTI_MIN(i0 + 16, n_i); i++) to[j * n_i + i] = from[i * n_j + j];
}

/* The columns of output o for which input o*stride + off - pad is inside 0 .. n-1. */
static void valid_range(size_t n, size_t n_out, size_t stride, size_t pad, size_t off, size_t *lo,
                        size_t *hi) {
    size_t first = off >= pad ? 0 : (pad - off + stride - 1) / stride;
    size_t end = off >= n + pad ? 0 : (n + pad - off - 1) / stride + 1;
    *hi = TTI_MIN(end, n_out);
    *lo = TTI_MIN(first, *hi);
}

/* One row of col (one tap of one channel): calls for each run of valid columns. */
static void tap_to_col(const conv_2d *s, const float *plane, size_t i, size_t j, float *row) {
    size_t lo_h, hi_h, lo, hi;
    valid_range(s->h, s->oh, s->stride[0], s->pad[0], i * s->dilation[0], &lo_h, &hi_h);
    valid_range(s->w, s->ow, s->stride[1], s->pad[1], j * s->dilation[1], &lo, &hi);
    memset(row, 0, s->p * sizeof *row);
    for (size_t o = lo_h; o < hi_h; o++) {
        const float *from = plane + (o * s->stride[0] + i * s->dilation[0] - s->pad[0]) * s->w;
        size_t at = j * s->dilation[1] + lo * s->stride[1] - s->pad[1];
        for (size_t q = lo; q < hi; q++, at += s->stride[1]) row[o * s->ow + q] = from[at];
    }
}

static void tap_from_col(const conv_2d *s, float *plane, size_t i, size_t j, const float *row) {
    size_t lo_h, hi_h, lo, hi;
    valid_range(s->h, s->oh, s->stride[0], s->pad[0], i * s->dilation[0], &lo_h, &hi_h);
    valid_range(s->w, s->ow, s->stride[1], s->pad[1], j * s->dilation[1], &lo, &hi);
    for (size_t o = lo_h; o < hi_h; o++) {
        float *to = plane + (o * s->stride[0] + i * s->dilation[0] - s->pad[0]) * s->w;
        size_t at = j * s->dilation[1] + lo * s->stride[1] - s->pad[1];
        for (size_t q = lo; q < hi; q++, at += s->stride[1]) to[at] += row[o * s->ow + q];
    }
}

static void im2col(const conv_2d *s, const float *x, float *col) {
    size_t area = s->kh * s->kw;
    for (size_t r = 0; r < s->k; r++)
        tap_to_col(s, x + r / area * s->h * s->w, r % area / s->kw, r % s->kw, col + r * s->p);
}

static void col2im(const conv_2d *s, const float *col, float *x) {
    size_t area = s->kh * s->kw;
    for (size_t r = 0; r < s->k; r++)
        tap_from_col(s, x + r / area * s->h * s->w, r % area / s->kw, r % s->kw, col + r * s->p);
}

/* y[o][p] = act(y + b[o]) */
static void epilogue(const conv_2d *s, float *y, const float *b) {
    for (size_t o = 0; o < s->o && (b || s->relu); o++, y += s->p) {
        float bias = b ? b[o] : 0.0f, floor_at = s->relu ? 0.0f : -__builtin_inff();
        TTI_IVDEP
        for (size_t p = 0; p < s->p; p++) {
            float v = y[p] + bias;
            y[p] = v < floor_at ? floor_at : v;
        }
    }
}

static size_t forward_scratch(const tti_node *node, const void *state) {
    conv_2d s = of_forward(node);
    (void)state;
    return total_bytes(&s);
}

static tutti_status forward_run(void *state, const tti_kargs *a) {
    conv_2d s = of_forward(a->node);
    places at = place(&s, a->scratch);
    const float *x = a->in[0], *w = a->in[1], *b = a->node->n_in > 2 ? a->in[2] : NULL;
    size_t x_size = s.c * s.h * s.w, y_size = s.o * s.p, og = s.o / s.groups;
    float *y = a->out[0];
    (void)state;
    for (size_t n = 0; n < s.n; n++, x += x_size, y += y_size) {
        float *ys = s.y_last ? at.y : y;
        if (s.x_last) turn(x, at.x, s.h * s.w, s.c);
        const float *xs = s.x_last ? at.x : x;
        for (size_t g = 0; g < s.groups; g++) {
            im2col(&s, xs + g * (x_size / s.groups), at.col);
            TTI_VARIANT(tti_gemm_run)
            (&(tti_gemm){.m = og,
                         .n = s.p,
                         .k = s.k,
                         .a = w + g * og * s.k,
                         .a_row = s.k,
                         .a_col = 1,
                         .b = at.col,
                         .b_row = s.p,
                         .b_col = 1,
                         .c = ys + g * og * s.p,
                         .ldc = s.p},
             at.gemm);
        }
        epilogue(&s, ys, b);
        if (s.y_last) turn(ys, y, s.o, s.p);
    }
    return TUTTI_OK;
}

static size_t grad_x_scratch(const tti_node *node, const void *state) {
    conv_2d s = of_grad_x(node);
    (void)state;
    return total_bytes(&s);
}

static tutti_status grad_x_run(void *state, const tti_kargs *a) {
    conv_2d s = of_grad_x(a->node);
    places at = place(&s, a->scratch);
    const float *dy = a->in[0], *w = a->in[1];
    size_t x_size = s.c * s.h * s.w, y_size = s.o * s.p, og = s.o / s.groups;
    float *dx = a->out[0];
    (void)state;
    for (size_t n = 0; n < s.n; n++, dx += x_size, dy += y_size) {
        float *xs = s.x_last ? at.x : dx;
        if (s.y_last) turn(dy, at.y, s.p, s.o);
        const float *ys = s.y_last ? at.y : dy;
        memset(xs, 0, x_size * sizeof *xs);
        for (size_t g = 0; g < s.groups; g++) {
            TTI_VARIANT(tti_gemm_run)
            (&(tti_gemm){.m = s.k,
                         .n = s.p,
                         .k = og,
                         .a = w + g * og * s.k,
                         .a_row = 1,
                         .a_col = s.k,
                         .b = ys + g * og * s.p,
                         .b_row = s.p,
                         .b_col = 1,
                         .c = at.col,
                         .ldc = s.p},
             at.gemm);
            col2im(&s, at.col, xs + g * (x_size / s.groups));
        }
        if (s.x_last) turn(xs, dx, s.c, s.h * s.w);
    }
    return TUTTI_OK;
}

static size_t grad_w_scratch(const tti_node *node, const void *state) {
    conv_2d s = of_grad_w(node);
    (void)state;
    return total_bytes(&s);
}

static tutti_status grad_w_run(void *state, const tti_kargs *a) {
    conv_2d s = of_grad_w(a->node);
    places at = place(&s, a->scratch);
    const float *dy = a->in[0], *x = a->in[1];
    size_t x_size = s.c * s.h * s.w, y_size = s.o * s.p, og = s.o / s.groups;
    float *dw = a->out[0], *db = a->out[1];
    (void)state;
    memset(dw, 0, s.o * s.k * sizeof *dw);
    memset(db, 0, s.o * sizeof *db);
    for (size_t n = 0; n < s.n; n++, x += x_size, dy += y_size) {
        if (s.x_last) turn(x, at.x, s.h * s.w, s.c);
        if (s.y_last) turn(dy, at.y, s.p, s.o);
        const float *xs = s.x_last ? at.x : x, *ys = s.y_last ? at.y : dy;
        for (size_t g = 0; g < s.groups; g++) {
            im2col(&s, xs + g * (x_size / s.groups), at.col);
            TTI_VARIANT(tti_gemm_run)
            (&(tti_gemm){.m = og,
                         .n = s.k,
                         .k = s.p,
                         .a = ys + g * og * s.p,
                         .a_row = s.p,
                         .a_col = 1,
                         .b = at.col,
                         .b_row = 1,
                         .b_col = s.p,
                         .c = dw + g * og * s.k,
                         .ldc = s.k,
                         .add = true},
             at.gemm);
        }
        for (size_t o = 0; o < s.o; o++) db[o] += tti_sum_n(ys + o * s.p, s.p);
    }
    return TUTTI_OK;
}

extern const tti_kernel TTI_VARIANT(tti_kernels_conv)[];
const tti_kernel TTI_VARIANT(tti_kernels_conv)[] = {
    {.op = "conv2d",
     .name = TTI_ISA_TEXT,
     .can_run = forward_can_run,
     .scratch_bytes = forward_scratch,
     .run = forward_run},
    {.op = "conv2d_grad_x",
     .name = TTI_ISA_TEXT,
     .can_run = forward_can_run,
     .scratch_bytes = grad_x_scratch,
     .run = grad_x_run},
    {.op = "conv2d_grad_w",
     .name = TTI_ISA_TEXT,
     .can_run = grad_w_can_run,
     .scratch_bytes = grad_w_scratch,
     .run = grad_w_run},
    {0},
};
