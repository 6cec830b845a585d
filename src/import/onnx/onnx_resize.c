/* onnx_resize.c - Resize of ONNX, computed one dimension at a time with the formulas of its
 * reference.
 *
 * The forms that PyTorch's exporters usually write are replaced by PyTorch's image operators, which
 * are faster. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "import/onnx/onnx.h"
#include "import/onnx/onnx_ops.h"

/* Arguments of Resize, in order. */
enum { X, SCALES, SIZES, ANTIALIAS, AXES, HOW, CUBIC_A, EXCLUDES, POLICY, MODE, NEAREST_MODE };

typedef struct resizing {
    const char *how, *mode, *nearest;
    bool antialias, excludes;
    double a; /* coefficient of the cubic kernel */
} resizing;

/* One dimension. scale: from the file, or the ratio of the sizes. */
typedef struct axis {
    int64_t n, n_out;
    double scale;
} axis;

static bool is(const char *text, const char *other) { return strcmp(text, other) == 0; }

/* Returns the position of output o, in elements of x. */
static double source_of(const resizing *r, const axis *m, int64_t o) {
    double wide = m->scale * (double)m->n, at = (double)o;
    if (is(r->how, "align_corners")) return wide == 1 ? 0 : at * (double)(m->n - 1) / (wide - 1);
    if (is(r->how, "asymmetric")) return at / m->scale;
    double shift =
        is(r->how, "half_pixel_symmetric") ? (double)m->n / 2 * (1 - (double)m->n_out / wide) : 0;
    if (is(r->how, "pytorch_half_pixel") && wide == 1) return -0.5;
    return shift + (at + 0.5) / m->scale - 0.5;
}

static int64_t within(const axis *m, double place) {
    return tti_to_int(fmin(fmax(place, 0), (double)(m->n - 1)));
}

static int32_t nearest_of(const resizing *r, const axis *m, int64_t o) {
    double at = source_of(r, m, o), low = floor(at), part = at - low;
    bool up = is(r->nearest, "ceil")                 ? part > 0
              : is(r->nearest, "floor")              ? false
              : is(r->nearest, "round_prefer_floor") ? part > 0.5
                                                     : part >= 0.5;
    return (int32_t)within(m, low + up);
}

/* Fills row o of the matrix: the weights of the elements around its position. */
static void fill_row(const resizing *r, const axis *m, int64_t o, float *row) {
    bool cubic = is(r->mode, "cubic");
    double at = source_of(r, m, o), base = ceil(at) - 1, ratio = at - base, sum = 0;
    double width = r->antialias ? fmin(m->scale, 1) : 1;
    int64_t first = tti_to_int(floor(-(cubic ? 2 : 1) / width)) + 1;
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = first; i <= 1 - first; i++) {
            double x = ((double)i - ratio) * width, place = base + (double)i;
            double w = cubic ? tti_cubic_weight(x, r->a) : fmax(1 - fabs(x), 0);
            if (r->excludes && (place < 0 || place > (double)(m->n - 1))) continue;
            if (pass == 0) sum += w;
            if (pass == 1 && sum != 0) row[within(m, place)] += (float)(w / sum);
        }
}

static tutti_value *resize_axis(tti_building *b, tutti_value *x, int dim, const resizing *r,
                                const axis *m) {
    if (is(r->mode, "nearest")) {
        int32_t *places = tti_build_alloc(b, ((size_t)m->n_out + 1) * sizeof *places);
        for (int64_t o = 0; places && o < m->n_out; o++) places[o] = nearest_of(r, m, o);
        return places ? tti_gather_along(b, x, dim, places, m->n_out) : NULL;
    }
    float *matrix = tti_build_alloc(b, (size_t)(m->n * m->n_out + 1) * sizeof *matrix);
    for (int64_t o = 0; matrix && o < m->n_out; o++) fill_row(r, m, o, matrix + o * m->n);
    return matrix ? tti_weigh_along(b, x, dim, matrix, m->n_out) : NULL;
}

/* Reads the sizes and scales of all dimensions. */
static bool read_axes(tti_building *b, const tti_call *c, const tutti_shape *s,
                      axis out[TUTTI_MAX_DIMS]) {
    int n = 0, n_axes = 0;
    const int64_t *axes = tti_has(c, AXES) ? tti_list_at(b, c, AXES, &n_axes) : NULL;
    const int64_t *sizes = tti_has(c, SIZES) ? tti_list_at(b, c, SIZES, &n) : NULL;
    const tti_operand *scales = tti_has(c, SCALES) && n == 0 ? tti_operand_at(b, c, SCALES) : NULL;
    if (scales && scales->kind != TTI_OPERAND_HOST)
        tti_refuse(b, "scales that depend on inputs are not supported");
    if (tti_good(b) && scales) n = (int)tti_host_n(&scales->host);
    for (int d = 0; d < s->n_dims; d++) out[d] = (axis){s->dim[d], s->dim[d], 1};
    if (tti_good(b) && n != (axes ? n_axes : s->n_dims))
        tti_refuse(b, "%d sizes or scales for %d dimensions", n, axes ? n_axes : s->n_dims);
    for (int i = 0; i < n && tti_good(b); i++) {
        int d = axes ? tti_wrap_dim(b, axes[i], s->n_dims) : i;
        if (!tti_good(b)) break;
        double scale =
            scales ? tti_host_at(&scales->host, i) : (double)sizes[i] / (double)s->dim[d];
        double wide = scales ? floor((double)s->dim[d] * scale) : (double)sizes[i];
        if (!(wide >= 1 && wide <= 1 << 20 && s->dim[d] >= 1 && s->dim[d] <= 1 << 20))
            tti_refuse(b, "a dimension would be %g", wide);
        else
            out[d] = (axis){s->dim[d], tti_to_int(wide), scale};
    }
    return tti_good(b);
}

static void check_modes(tti_building *b, const tti_call *c, const resizing *r) {
    static const char *const hows[] = {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",
                                       "align_corners", "asymmetric"};
    static const char *const modes[] = {"nearest", "linear", "cubic"};
    static const char *const roundings[] = {"round_prefer_floor", "round_prefer_ceil", "floor",
                                            "ceil"};
    bool known[3] = {false, false, false};
    for (size_t i = 0; i < TTI_COUNT(hows); i++) known[0] |= is(r->how, hows[i]);
    for (size_t i = 0; i < TTI_COUNT(modes); i++) known[1] |= is(r->mode, modes[i]);
    for (size_t i = 0; i < TTI_COUNT(roundings); i++) known[2] |= is(r->nearest, roundings[i]);
    if (!known[0] || !known[1] || !known[2])
        tti_refuse(b, "mode '%s' with coordinates '%s' and rounding '%s' is not supported", r->mode,
                   r->how, r->nearest);
    if (!is(tti_text_at(b, c, POLICY), "stretch"))
        tti_refuse(b, "keep_aspect_ratio_policy='%s' is not supported", tti_text_at(b, c, POLICY));
}

/* Uses PyTorch's operators on images if the sizes are products of the scales; false: not
 * possible. */
static bool resized_as_images(tti_building *b, const tti_call *c, const resizing *r,
                              const tutti_shape *s, const axis *m) {
    bool whole = s->n_dims == 4, up = true;
    for (int d = 0; d < s->n_dims && whole; d++) {
        whole = (double)m[d].n_out == m[d].scale * (double)m[d].n && (d > 1 || m[d].scale == 1);
        if (d > 1) up &= m[d].n_out % m[d].n == 0;
    }
    bool half = is(r->how, "half_pixel") || is(r->how, "half_pixel_symmetric") ||
                (is(r->how, "pytorch_half_pixel") && whole && m[2].n_out > 1 && m[3].n_out > 1);
    bool corners = is(r->how, "align_corners"), rounds = strncmp(r->nearest, "round", 5) == 0;
    bool repeats =
        up && ((half && rounds) || (is(r->how, "asymmetric") && is(r->nearest, "floor")));
    if (!whole || r->antialias || tti_on_host(tti_operand_at(b, c, X))) return false;
    tti_arg to = tti_ints_arg(b, (int64_t[]){m[2].n_out, m[3].n_out}, 2);
    if (is(r->mode, "linear") && (half || corners))
        tti_call_row(b, "aten.upsample_bilinear2d.vec",
                     (tti_arg[]){*c->arg[X], to, tti_bool_arg(corners), {0}}, 4, c->out, 1);
    else if (is(r->mode, "nearest") && repeats)
        tti_call_row(b, "aten.upsample_nearest2d.vec", (tti_arg[]){*c->arg[X], to, {0}}, 3, c->out,
                     1);
    else
        return false;
    return true;
}

static void resize(tti_building *b, const tti_call *c) {
    const tti_operand own = tti_repeat_over_batch(b, tti_operand_at(b, c, X)), *x = &own;
    tutti_shape s = tti_shape_of(x);
    axis axes[TUTTI_MAX_DIMS];
    resizing r = {.how = tti_text_at(b, c, HOW),
                  .mode = tti_text_at(b, c, MODE),
                  .nearest = tti_text_at(b, c, NEAREST_MODE),
                  .antialias = tti_bool_at(b, c, ANTIALIAS),
                  .excludes = tti_bool_at(b, c, EXCLUDES),
                  .a = tti_number_at(b, c, CUBIC_A)};
    if (tti_good(b)) check_modes(b, c, &r);
    if (!tti_good(b) || !read_axes(b, c, &s, axes)) return;
    if (tti_of_batch(x) && (axes[0].n != axes[0].n_out || axes[0].scale != 1))
        tti_refuse(b, "the batch dimension cannot be resized");
    if (!tti_good(b) || resized_as_images(b, c, &r, &s, axes)) return;
    tutti_value *value = tti_as_float(b, tti_value_of(b, x));
    for (int d = 0; d < s.n_dims && tti_good(b); d++)
        if (axes[d].n != axes[d].n_out || axes[d].scale != 1)
            value = resize_axis(b, value, d, &r, &axes[d]);
    if (tti_good(b)) tti_set_value(b, c->out[0], value, tti_elem_of(x), tti_of_batch(x));
}

const tti_operator tti_operators_onnx_resize[] = {
    {.target = "onnx.Resize",
     .signature = "X roi!=None scales=None sizes=None antialias=0 axes=None "
                  "coordinate_transformation_mode=half_pixel cubic_coeff_a=-0.75 "
                  "exclude_outside=0 extrapolation_value! keep_aspect_ratio_policy=stretch "
                  "mode=nearest nearest_mode=round_prefer_floor",
     .build = resize},
    {0},
};
