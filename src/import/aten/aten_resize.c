/* aten_resize.c - interpolation, padding, windows as a dimension, and pixel shuffling.
 *
 * Interpolation along a dimension is a product with a constant matrix that has the weights of
 * PyTorch's kernels. Nearest-neighbour interpolation is a gather with constant indices. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "import/aten/aten.h"

static tutti_value *float_at(tti_building *b, const tti_call *c, int k) {
    return tti_as_float(b, tti_value_of(b, tti_operand_at(b, c, k)));
}

static void set_result(tti_building *b, const tti_call *c, tutti_value *value) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    if (tti_good(b)) tti_set_value(b, c->out[0], value, tti_elem_of(x), tti_of_batch(x));
}

tutti_value *tti_gather_along(tti_building *b, tutti_value *x, int dim, const int32_t *places,
                              int64_t n) {
    tutti_value *ids = tutti_constant_array(b->graph, TUTTI_I32, &TUTTI_SHAPE(n), places);
    return tutti_gather(b->graph, x, ids, dim);
}

static void *arena_of(tti_building *b, int64_t n, size_t size) {
    void *memory =
        n >= 0 && n < (int64_t)1 << 28 ? tti_arena_alloc(&b->arena, ((size_t)n + 1) * size) : NULL;
    if (!memory && tti_good(b))
        tti_refuse(b, "a table of %lld elements is too large", (long long)n);
    return memory;
}

/* ---- interpolation ---- */

typedef enum kernel_kind { NEAREST, NEAREST_EXACT, LINEAR, CUBIC } kernel_kind;

typedef struct axis_map {
    kernel_kind kind;
    bool align, antialias;
    int64_t n, n_out;
    double scale; /* the scale argument; 0: use the ratio of the sizes */
} axis_map;

double tti_cubic_weight(double x, double a) {
    x = fabs(x);
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

/* Returns the first element of x that output o reads. */
static double source_of(const axis_map *m, int64_t o) {
    double step = m->scale > 0 ? 1 / m->scale : (double)m->n / (double)m->n_out;
    if (m->align) return m->n_out > 1 ? (double)o * (double)(m->n - 1) / (double)(m->n_out - 1) : 0;
    if (m->kind == NEAREST) return (double)o * step;
    if (m->kind == NEAREST_EXACT) return ((double)o + 0.5) * step;
    double at = ((double)o + 0.5) * step - 0.5;
    return m->kind == LINEAR ? fmax(at, 0) : at;
}

/* Fills row o of the matrix, the weights of the n elements. */
static void fill_row(const axis_map *m, int64_t o, float *row) {
    int64_t last = m->n - 1;
    double at = source_of(m, o), low = floor(at), part = at - low;
    if (m->antialias) {
        double step = m->align       ? (m->n_out > 1 ? (double)last / (double)(m->n_out - 1) : 0)
                      : m->scale > 0 ? 1 / m->scale
                                     : (double)m->n / (double)m->n_out;
        double width = fmax(step, 1), reach = (m->kind == CUBIC ? 2 : 1) * width, sum = 0;
        double center = step * ((double)o + 0.5);
        int64_t first = tti_to_int(fmax(floor(center - reach + 0.5), 0));
        int64_t end = tti_to_int(fmin(floor(center + reach + 0.5), (double)m->n));
        for (int pass = 0; pass < 2; pass++)
            for (int64_t i = first; i < end; i++) {
                double x = ((double)i - center + 0.5) / width;
                double w = m->kind == CUBIC ? tti_cubic_weight(x, -0.5) : fmax(1 - fabs(x), 0);
                if (pass == 0) sum += w;
                if (pass == 1 && sum != 0) row[i] = (float)(w / sum);
            }
        return;
    }
    for (int k = m->kind == CUBIC ? -1 : 0; k <= (m->kind == CUBIC ? 2 : 1); k++) {
        double w = m->kind == CUBIC ? tti_cubic_weight(part - k, -0.75) : k ? part : 1 - part;
        int64_t i = tti_to_int(low) + k;
        row[TTI_MAX(0, TTI_MIN(i, last))] += (float)w;
    }
}

tutti_value *tti_weigh_along(tti_building *b, tutti_value *x, int dim, const float *matrix,
                             int64_t n_out) {
    tutti_graph *g = b->graph;
    tutti_shape shape = tutti_value_type(x).shape;
    bool is_last = dim == shape.n_dims - 1;
    tutti_value *weights =
        tutti_constant_array(g, TUTTI_F32, &TUTTI_SHAPE(n_out, shape.dim[dim]), matrix);
    if (!is_last) x = tutti_transpose(g, x, dim, shape.n_dims - 1);
    x = tutti_matmul_with(g, x, weights, false, true);
    return is_last ? x : tutti_transpose(g, x, dim, shape.n_dims - 1);
}

static tutti_value *resize_axis(tti_building *b, tutti_value *x, int dim, const axis_map *m) {
    if (!tti_good(b)) return NULL;
    bool same_place = m->n == m->n_out && (m->scale == 0 || m->scale == 1);
    if (same_place) return x;
    if (m->kind == NEAREST || m->kind == NEAREST_EXACT) {
        int32_t *places = arena_of(b, m->n_out, sizeof *places);
        for (int64_t o = 0; places && o < m->n_out; o++)
            places[o] = (int32_t)fmin(floor((double)(float)source_of(m, o)), (double)(m->n - 1));
        return places ? tti_gather_along(b, x, dim, places, m->n_out) : NULL;
    }
    float *matrix = arena_of(b, m->n * m->n_out, sizeof *matrix);
    if (!matrix) return NULL;
    memset(matrix, 0, (size_t)(m->n * m->n_out) * sizeof *matrix);
    for (int64_t o = 0; o < m->n_out; o++) fill_row(m, o, matrix + o * m->n);
    return tti_weigh_along(b, x, dim, matrix, m->n_out);
}

/* A copy of a call whose argument 0, a constant that repeats for the samples, is expanded to an
 * image for each sample. */
typedef struct over_batch {
    tti_operand x;
    tti_arg arg;
    tti_call call;
} over_batch;

static const tti_call *take_samples(tti_building *b, const tti_call *c, over_batch *own) {
    own->x = tti_repeat_over_batch(b, tti_operand_at(b, c, 0));
    own->arg = tti_operand_arg(&own->x);
    own->call = *c;
    own->call.arg[0] = &own->arg;
    return &own->call;
}

/* input output_size [align_corners] scales...: interpolates the n dimensions after the channels.
 * list: index of the argument with all scales; -1: separate arguments from index `scales` on. */
static void interpolate(tti_building *b, const tti_call *c, axis_map kind, int n, int scales,
                        bool is_list) {
    over_batch own;
    c = take_samples(b, c, &own);
    tutti_shape shape = tti_shape_of(&own.x);
    int64_t size[TUTTI_MAX_DIMS] = {0};
    if (tti_good(b) && shape.n_dims != n + 2)
        tti_refuse(b, "a tensor of %d dimensions is expected", n + 2);
    bool has_size = tti_has(c, 1);
    if (has_size && tti_good(b) && tti_ints_at(b, c, 1, size) != n)
        tti_refuse(b, "output_size does not fit");
    tutti_value *x = float_at(b, c, 0);
    for (int d = 0; d < n && tti_good(b); d++) {
        axis_map m = kind;
        m.n = shape.dim[2 + d];
        const tti_arg *arg = is_list ? c->arg[scales] : c->arg[scales + d];
        if (is_list && arg->kind == TTI_ARG_LIST) arg = d < arg->n ? &arg->items[d] : c->arg[1];
        m.scale = arg->kind == TTI_ARG_FLOAT ? arg->f
                  : arg->kind == TTI_ARG_INT ? (double)arg->i
                                             : 0;
        if (!has_size && !(m.scale > 0 && m.scale < 4096)) tti_refuse(b, "a scale is out of range");
        m.n_out = has_size ? size[d] : tti_to_int((double)m.n * m.scale);
        if (m.n < 1 || m.n_out < 1 || m.n_out > 1 << 20) tti_refuse(b, "a size is out of range");
        if (tti_good(b)) x = resize_axis(b, x, 2 + d, &m);
    }
    set_result(b, c, x);
}

static axis_map kind_of(tti_building *b, const tti_call *c, kernel_kind kind, bool antialias) {
    return (axis_map){.kind = kind, .align = tti_bool_at(b, c, 2), .antialias = antialias};
}

static void linear1d(tti_building *b, const tti_call *c) {
    interpolate(b, c, kind_of(b, c, LINEAR, false), 1, 3, false);
}
static void linear1d_vec(tti_building *b, const tti_call *c) {
    interpolate(b, c, kind_of(b, c, LINEAR, false), 1, 3, true);
}
static void bicubic(tti_building *b, const tti_call *c) {
    interpolate(b, c, kind_of(b, c, CUBIC, false), 2, 3, false);
}
static void bicubic_vec(tti_building *b, const tti_call *c) {
    interpolate(b, c, kind_of(b, c, CUBIC, false), 2, 3, true);
}
static void bilinear_aa(tti_building *b, const tti_call *c) {
    interpolate(b, c, kind_of(b, c, LINEAR, true), 2, 3, false);
}
static void bilinear_aa_vec(tti_building *b, const tti_call *c) {
    interpolate(b, c, kind_of(b, c, LINEAR, true), 2, 3, true);
}
static void bicubic_aa(tti_building *b, const tti_call *c) {
    interpolate(b, c, kind_of(b, c, CUBIC, true), 2, 3, false);
}
static void bicubic_aa_vec(tti_building *b, const tti_call *c) {
    interpolate(b, c, kind_of(b, c, CUBIC, true), 2, 3, true);
}

/* Uses a dedicated op if the scale is the ratio of the sizes. */
static void bilinear_of(tti_building *b, const tti_call *c, bool is_list) {
    over_batch own;
    c = take_samples(b, c, &own);
    tutti_shape s = tti_shape_of(&own.x);
    int64_t size[2];
    bool by_size = tti_has(c, 1) && !tti_has(c, 3) && (is_list || !tti_has(c, 4)) && s.n_dims == 4;
    if (!by_size) {
        interpolate(b, c, kind_of(b, c, LINEAR, false), 2, 3, is_list);
        return;
    }
    tti_pair_at(b, c, 1, size);
    bool align = tti_bool_at(b, c, 2);
    if (tti_good(b))
        set_result(b, c,
                   tutti_upsample_bilinear2d(b->graph, float_at(b, c, 0), size[0], size[1], align));
}
static void bilinear(tti_building *b, const tti_call *c) { bilinear_of(b, c, false); }
static void bilinear_vec(tti_building *b, const tti_call *c) { bilinear_of(b, c, true); }

static void nearest1d(tti_building *b, const tti_call *c) {
    interpolate(b, c, (axis_map){.kind = NEAREST}, 1, 2, false);
}
static void nearest1d_vec(tti_building *b, const tti_call *c) {
    interpolate(b, c, (axis_map){.kind = NEAREST}, 1, 2, true);
}
static void linear3d(tti_building *b, const tti_call *c) {
    interpolate(b, c, kind_of(b, c, LINEAR, false), 3, 3, false);
}
static void linear3d_vec(tti_building *b, const tti_call *c) {
    interpolate(b, c, kind_of(b, c, LINEAR, false), 3, 3, true);
}
static void nearest3d(tti_building *b, const tti_call *c) {
    interpolate(b, c, (axis_map){.kind = NEAREST}, 3, 2, false);
}
static void nearest3d_vec(tti_building *b, const tti_call *c) {
    interpolate(b, c, (axis_map){.kind = NEAREST}, 3, 2, true);
}
static void nearest_exact(tti_building *b, const tti_call *c) {
    interpolate(b, c, (axis_map){.kind = NEAREST_EXACT}, 2, 2, false);
}
static void nearest_exact_vec(tti_building *b, const tti_call *c) {
    interpolate(b, c, (axis_map){.kind = NEAREST_EXACT}, 2, 2, true);
}

/* Uses a dedicated op for an integer factor that is equal for both dimensions. */
static void nearest_of(tti_building *b, const tti_call *c, bool is_list) {
    over_batch own;
    c = take_samples(b, c, &own);
    tutti_shape s = tti_shape_of(&own.x);
    int64_t size[2] = {0};
    bool whole = s.n_dims == 4 && tti_has(c, 1) && s.dim[2] > 0 && s.dim[3] > 0;
    if (whole) {
        tti_pair_at(b, c, 1, size);
        whole = size[0] % s.dim[2] == 0 && size[1] % s.dim[3] == 0 && size[0] > 0 &&
                size[0] / s.dim[2] == size[1] / s.dim[3];
    }
    const tti_arg *scale = is_list ? c->arg[2] : NULL;
    if (s.n_dims == 4 && !tti_has(c, 1) && scale && scale->kind == TTI_ARG_LIST && scale->n == 2 &&
        scale->items[0].kind == TTI_ARG_FLOAT && scale->items[1].kind == TTI_ARG_FLOAT) {
        double f = scale->items[0].f;
        whole = f == scale->items[1].f && f >= 1 && f <= 4096 && f == floor(f);
        if (whole) size[0] = (int64_t)f * s.dim[2];
    }
    if (whole && tti_good(b))
        set_result(b, c, tutti_upsample_nearest2d(b->graph, float_at(b, c, 0), size[0] / s.dim[2]));
    else
        interpolate(b, c, (axis_map){.kind = NEAREST}, 2, 2, is_list);
}
static void nearest(tti_building *b, const tti_call *c) { nearest_of(b, c, false); }
static void nearest_vec(tti_building *b, const tti_call *c) { nearest_of(b, c, true); }

/* ---- padding ---- */

typedef enum pad_mode { PAD_REFLECT, PAD_REPLICATE, PAD_CIRCULAR } pad_mode;

/* Returns the element, 0 .. n-1, at position i, which may be outside; -1: none. */
static int64_t inside(pad_mode mode, int64_t i, int64_t n) {
    if (mode == PAD_REPLICATE) return TTI_MAX(0, TTI_MIN(i, n - 1));
    if (mode == PAD_CIRCULAR) return i < 0 ? i + n : i >= n ? i - n : i;
    return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}

static tutti_value *pad_by_places(tti_building *b, tutti_value *x, int dim, int64_t before,
                                  int64_t after, pad_mode mode) {
    int64_t n = tutti_value_type(x).shape.dim[dim], n_out = n + before + after;
    if (!tti_good(b)) return NULL;
    if (before == 0 && after == 0) return x;
    if (n_out < 1) tti_refuse(b, "pad removes more than the tensor has");
    int32_t *places = tti_good(b) ? arena_of(b, n_out, sizeof *places) : NULL;
    for (int64_t o = 0; places && o < n_out; o++) {
        int64_t at = inside(mode, o - before, n);
        if (at < 0 || at >= n) tti_refuse(b, "the padding is larger than the tensor");
        places[o] = (int32_t)at;
    }
    return tti_good(b) ? tti_gather_along(b, x, dim, places, n_out) : NULL;
}

/* Pads dimension dim with `before` and `after` elements of a value. */
static tutti_value *pad_by_value(tti_building *b, tutti_value *x, int dim, int64_t before,
                                 int64_t after, double value) {
    tutti_graph *g = b->graph;
    tutti_shape shape = tutti_value_type(x).shape;
    int64_t size = shape.dim[dim];
    if (!tti_good(b)) return NULL;
    if (before < -size || after < -size || size + before + after < 0) {
        tti_refuse(b, "pad removes more than the tensor has");
        return NULL;
    }
    if (before < 0 || after < 0) {
        int64_t left = size + TTI_MIN(before, 0) + TTI_MIN(after, 0);
        x = tutti_slice(g, x, dim, -TTI_MIN(before, 0), left);
        before = TTI_MAX(before, 0), after = TTI_MAX(after, 0);
    }
    if (before == 0 && after == 0) return x;
    if (value == 0) return tutti_pad(g, x, dim, before, after);
    tutti_value *parts[3];
    int n = 0;
    if (before > 0) {
        shape.dim[dim] = before;
        parts[n++] = tutti_constant(g, TUTTI_F32, &shape, value);
    }
    parts[n++] = x;
    if (after > 0) {
        shape.dim[dim] = after;
        parts[n++] = tutti_constant(g, TUTTI_F32, &shape, value);
    }
    return tutti_concat(g, parts, n, dim);
}

/* Reads the pairs of argument 1 to list[2 n], the last dimension first; returns n. */
static int read_pads(tti_building *b, const tti_call *c, int64_t list[2 * TUTTI_MAX_DIMS]) {
    const tti_arg *pads = c->arg[1];
    int n_dims = tti_shape_of(tti_operand_at(b, c, 0)).n_dims;
    int n = pads->kind == TTI_ARG_LIST ? pads->n : -1;
    if (n < 0 || n % 2 != 0 || n > 2 * n_dims) tti_refuse(b, "pad does not fit the tensor");
    for (int i = 0; i < n && tti_good(b); i++) {
        if (pads->items[i].kind != TTI_ARG_INT || pads->items[i].i > 1 << 24 ||
            pads->items[i].i < -(1 << 24))
            tti_refuse(b, "pad is not a list of numbers");
        list[i] = pads->items[i].i;
    }
    return tti_good(b) ? n / 2 : 0;
}

static void pad_values(tti_building *b, const tti_call *c, double value) {
    int64_t list[2 * TUTTI_MAX_DIMS] = {0};
    int n = read_pads(b, c, list), n_dims = tti_shape_of(tti_operand_at(b, c, 0)).n_dims;
    tutti_value *x = float_at(b, c, 0);
    for (int i = 0; i < n && tti_good(b); i++)
        x = pad_by_value(b, x, n_dims - 1 - i, list[2 * i], list[2 * i + 1], value);
    set_result(b, c, x);
}

static void pad_places(tti_building *b, const tti_call *c, pad_mode mode) {
    int64_t list[2 * TUTTI_MAX_DIMS] = {0};
    int n = read_pads(b, c, list), n_dims = tti_shape_of(tti_operand_at(b, c, 0)).n_dims;
    tutti_value *x = float_at(b, c, 0);
    for (int i = 0; i < n && tti_good(b); i++)
        x = pad_by_places(b, x, n_dims - 1 - i, list[2 * i], list[2 * i + 1], mode);
    set_result(b, c, x);
}

static void pad_reflect(tti_building *b, const tti_call *c) { pad_places(b, c, PAD_REFLECT); }
static void pad_replicate(tti_building *b, const tti_call *c) { pad_places(b, c, PAD_REPLICATE); }

/* self pad value */
static void constant_pad(tti_building *b, const tti_call *c) {
    pad_values(b, c, tti_number_at(b, c, 2));
}

/* self pad mode value */
static void pad(tti_building *b, const tti_call *c) {
    const char *mode = tti_text_at(b, c, 2);
    if (!tti_good(b)) return;
    if (strcmp(mode, "constant") == 0)
        pad_values(b, c, tti_has(c, 3) ? tti_number_at(b, c, 3) : 0);
    else if (strcmp(mode, "reflect") == 0)
        pad_places(b, c, PAD_REFLECT);
    else if (strcmp(mode, "replicate") == 0)
        pad_places(b, c, PAD_REPLICATE);
    else if (strcmp(mode, "circular") == 0)
        pad_places(b, c, PAD_CIRCULAR);
    else
        tti_refuse(b, "mode '%s'", mode);
}

/* ---- windows ---- */

/* self dimension size step: the windows of a dimension, with their elements in a new last
 * dimension. */
static void unfold(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape shape = tti_shape_of(x);
    int dim = tti_dim_at(b, c, 1, shape.n_dims), perm[TUTTI_MAX_DIMS], n = 0;
    int64_t size = tti_int_at(b, c, 2), step = tti_int_at(b, c, 3);
    if (tti_good(b) && (shape.n_dims < 1 || shape.n_dims == TUTTI_MAX_DIMS || size < 1 ||
                        size > shape.dim[dim] || step < 1))
        tti_refuse(b, "size or step does not fit the tensor");
    if (!tti_good(b)) return;
    int64_t n_windows = (shape.dim[dim] - size) / step + 1;
    int32_t *places = arena_of(b, n_windows * size, sizeof *places);
    if (!places) return;
    for (int64_t w = 0; w < n_windows; w++)
        for (int64_t i = 0; i < size; i++) places[w * size + i] = (int32_t)(w * step + i);
    tutti_value *ids =
        tutti_constant_array(b->graph, TUTTI_I32, &TUTTI_SHAPE(n_windows, size), places);
    tutti_value *value = tutti_gather(b->graph, float_at(b, c, 0), ids, dim);
    for (int d = 0; d <= shape.n_dims; d++)
        if (d != dim + 1) perm[n++] = d;
    perm[n++] = dim + 1;
    set_result(b, c, tutti_permute(b->graph, value, perm, n));
}

/* The same for a constant, as a view of its memory. */
static void fold_unfold(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    int64_t size = tti_int_at(b, c, 2), step = tti_int_at(b, c, 3);
    if (tti_good(b) && x->kind != TTI_OPERAND_HOST) tti_refuse(b, "a number is not a tensor");
    if (!tti_good(b)) return;
    tti_host made = x->host;
    int n = made.shape.n_dims, dim = tti_dim_at(b, c, 1, n);
    if (tti_good(b) &&
        (n < 1 || n == TUTTI_MAX_DIMS || size < 1 || size > made.shape.dim[dim] || step < 1))
        tti_refuse(b, "size or step does not fit the tensor");
    if (!tti_good(b)) return;
    made.of_batch = made.of_batch && dim > 0;
    if (made.batch_dim == dim) made.batch_dim = 0;
    made.shape.n_dims = n + 1;
    made.shape.dim[n] = size;
    made.stride[n] = made.stride[dim];
    made.shape.dim[dim] = (made.shape.dim[dim] - size) / step + 1;
    made.stride[dim] *= step;
    x->host.use->shared = true;
    tti_set_host(c->out[0], &made);
}

/* self kernel_size dilation padding stride: [N,C,H,W] -> [N, C kernel, windows]. */
static void im2col(tti_building *b, const tti_call *c) {
    int64_t kernel[2], dilation[2], padding[2], stride[2], count[2];
    tutti_shape s = tti_shape_of(tti_operand_at(b, c, 0));
    tti_pair_at(b, c, 1, kernel);
    tti_pair_at(b, c, 2, dilation);
    tti_pair_at(b, c, 3, padding);
    tti_pair_at(b, c, 4, stride);
    if (tti_good(b) && s.n_dims != 4) tti_refuse(b, "a tensor of 4 dimensions is expected");
    tutti_value *x = float_at(b, c, 0);
    for (int d = 0; d < 2 && tti_good(b); d++) {
        int64_t reach = dilation[d] * (kernel[d] - 1) + 1;
        if (kernel[d] < 1 || stride[d] < 1 || dilation[d] < 1 || padding[d] < 0 ||
            s.dim[2 + d] + 2 * padding[d] < reach)
            tti_refuse(b, "the window does not fit the tensor");
        if (!tti_good(b)) return;
        x = pad_by_value(b, x, 2 + d, padding[d], padding[d], 0);
        count[d] = (s.dim[2 + d] + 2 * padding[d] - reach) / stride[d] + 1;
    }
    if (!tti_good(b)) return;
    int64_t n_windows = count[0] * count[1], n = kernel[0] * kernel[1] * n_windows;
    int64_t width = s.dim[3] + 2 * padding[1], height = s.dim[2] + 2 * padding[0];
    int32_t *places = arena_of(b, n, sizeof *places);
    for (int64_t i = 0; places && i < n; i++) {
        int64_t k = i / n_windows, w = i % n_windows;
        int64_t row = w / count[1] * stride[0] + k / kernel[1] * dilation[0];
        int64_t column = w % count[1] * stride[1] + k % kernel[1] * dilation[1];
        places[i] = (int32_t)(row * width + column);
    }
    if (!places) return;
    x = tutti_reshape(b->graph, x, &TUTTI_SHAPE(s.dim[0], s.dim[1], height * width));
    x = tti_gather_along(b, x, 2, places, n);
    set_result(b, c,
               tutti_reshape(b->graph, x,
                             &TUTTI_SHAPE(s.dim[0], s.dim[1] * kernel[0] * kernel[1], n_windows)));
}

/* ---- pixel shuffling ---- */

/* [N, C r r, H, W] -> [N, C, H r, W r] */
static void pixel_shuffle(tti_building *b, const tti_call *c) {
    tutti_graph *g = b->graph;
    tutti_shape s = tti_shape_of(tti_operand_at(b, c, 0));
    int64_t r = tti_int_at(b, c, 1);
    if (tti_good(b) && (s.n_dims != 4 || r < 1 || r > 4096 || s.dim[1] % (r * r) != 0))
        tti_refuse(b, "upscale_factor does not fit the tensor");
    if (!tti_good(b)) return;
    int64_t channels = s.dim[1] / (r * r);
    tutti_value *x = tutti_reshape(g, float_at(b, c, 0),
                                   &TUTTI_SHAPE(s.dim[0], channels, r, r, s.dim[2], s.dim[3]));
    x = tutti_permute(g, x, (int[]){0, 1, 4, 2, 5, 3}, 6);
    set_result(b, c,
               tutti_reshape(g, x, &TUTTI_SHAPE(s.dim[0], channels, s.dim[2] * r, s.dim[3] * r)));
}

/* [N, C, H r, W r] -> [N, C r r, H, W] */
static void pixel_unshuffle(tti_building *b, const tti_call *c) {
    tutti_graph *g = b->graph;
    tutti_shape s = tti_shape_of(tti_operand_at(b, c, 0));
    int64_t r = tti_int_at(b, c, 1);
    if (tti_good(b) && (s.n_dims != 4 || r < 1 || s.dim[2] % r != 0 || s.dim[3] % r != 0))
        tti_refuse(b, "downscale_factor does not fit the tensor");
    if (!tti_good(b)) return;
    int64_t h = s.dim[2] / r, w = s.dim[3] / r;
    tutti_value *x =
        tutti_reshape(g, float_at(b, c, 0), &TUTTI_SHAPE(s.dim[0], s.dim[1], h, r, w, r));
    x = tutti_permute(g, x, (int[]){0, 1, 3, 5, 2, 4}, 6);
    set_result(b, c, tutti_reshape(g, x, &TUTTI_SHAPE(s.dim[0], s.dim[1] * r * r, h, w)));
}

static void channel_shuffle(tti_building *b, const tti_call *c) {
    tutti_graph *g = b->graph;
    tutti_shape s = tti_shape_of(tti_operand_at(b, c, 0));
    int64_t groups = tti_int_at(b, c, 1);
    if (tti_good(b) && (s.n_dims < 3 || groups < 1 || s.dim[1] % groups != 0))
        tti_refuse(b, "groups do not fit the tensor");
    if (!tti_good(b)) return;
    tutti_value *x =
        tutti_reshape(g, float_at(b, c, 0), &TUTTI_SHAPE(s.dim[0], groups, s.dim[1] / groups, -1));
    set_result(b, c, tutti_reshape(g, tutti_transpose(g, x, 1, 2), &s));
}

#define ROW(op, args, fn) \
    { .target = "aten." op, .signature = args, .build = fn }
#define ALIGNED "input output_size align_corners"

const tti_operator tti_operators_resize[] = {
    ROW("upsample_linear1d.default", ALIGNED " scales=None", linear1d),
    ROW("upsample_linear1d.vec", ALIGNED " scale_factors", linear1d_vec),
    ROW("upsample_bilinear2d.default", ALIGNED " scales_h=None scales_w=None", bilinear),
    ROW("upsample_bilinear2d.vec", ALIGNED " scale_factors", bilinear_vec),
    ROW("_upsample_bilinear2d_aa.default", ALIGNED " scales_h=None scales_w=None", bilinear_aa),
    ROW("_upsample_bilinear2d_aa.vec", ALIGNED " scale_factors", bilinear_aa_vec),
    ROW("upsample_bicubic2d.default", ALIGNED " scales_h=None scales_w=None", bicubic),
    ROW("upsample_bicubic2d.vec", ALIGNED " scale_factors", bicubic_vec),
    ROW("_upsample_bicubic2d_aa.default", ALIGNED " scales_h=None scales_w=None", bicubic_aa),
    ROW("_upsample_bicubic2d_aa.vec", ALIGNED " scale_factors", bicubic_aa_vec),
    ROW("upsample_nearest1d.default", "input output_size scales=None", nearest1d),
    ROW("upsample_nearest1d.vec", "input output_size scale_factors", nearest1d_vec),
    ROW("upsample_nearest2d.default", "input output_size scales_h=None scales_w=None", nearest),
    ROW("upsample_nearest2d.vec", "input output_size scale_factors", nearest_vec),
    ROW("upsample_trilinear3d.default", ALIGNED " scales_d=None scales_h=None scales_w=None",
        linear3d),
    ROW("upsample_trilinear3d.vec", ALIGNED " scale_factors", linear3d_vec),
    ROW("upsample_nearest3d.default", "input output_size scales_d=None scales_h=None scales_w=None",
        nearest3d),
    ROW("upsample_nearest3d.vec", "input output_size scale_factors", nearest3d_vec),
    ROW("_upsample_nearest_exact2d.default", "input output_size scales_h=None scales_w=None",
        nearest_exact),
    ROW("_upsample_nearest_exact2d.vec", "input output_size scale_factors", nearest_exact_vec),
    ROW("pad.default", "self pad mode=constant value=None", pad),
    ROW("constant_pad_nd.default", "self pad value=0", constant_pad),
    ROW("reflection_pad1d.default", "self padding", pad_reflect),
    ROW("reflection_pad2d.default", "self padding", pad_reflect),
    ROW("replication_pad1d.default", "self padding", pad_replicate),
    ROW("replication_pad2d.default", "self padding", pad_replicate),
    {.target = "aten.unfold.default",
     .signature = "self dimension size step",
     .build = unfold,
     .fold = fold_unfold,
     .view = true},
    ROW("im2col.default", "self kernel_size dilation padding stride", im2col),
    ROW("pixel_shuffle.default", "self upscale_factor", pixel_shuffle),
    ROW("pixel_unshuffle.default", "self downscale_factor", pixel_unshuffle),
    ROW("channel_shuffle.default", "self groups", channel_shuffle),
    ROW("native_channel_shuffle.default", "self groups", channel_shuffle),
    {0},
};
