/* rows_rotary.c - rotary positions with tables of cosines and sines that are constants.
 *
 * The tables must be those of our op: of angle t base^(-2 i / D) for pair (i, i + D/2) of position
 * t, up to rounding of the angle in f32.  Pairs of neighbours (2i, 2i + 1) and stretched angles are
 * other rotations. */
#include <math.h>

#include "ops/op_table.h"
#include "passes/recognize/pattern_rows.h"

/* A rotation of x[B,H,T,D], [B,T,H,D] or [B,T,D]. */
typedef struct rotation {
    const tutti_value *x;
    int t_axis;
    double base;
} rotation;

/* ---- tables ---- */

typedef struct tables {
    const double *cos, *sin; /* [n_t,width], row-major */
    int64_t n_t, width;      /* D, or D/2 */
} tables;

/* The tables' sizes, and which axis of x is that of positions; false: they are not of that form. */
static bool read_tables(tti_match *m, const tutti_value *x, int64_t width, tables *out,
                        int *t_axis) {
    const tutti_value *of[2] = {TTI_VAR(m, 'c'), TTI_VAR(m, 's')};
    const tutti_shape *c = &of[0]->type.shape;
    int n = c->n_dims, wide = x->type.shape.n_dims;
    if (!tti_shape_equal(c, &of[1]->type.shape) || n < 2 || n > wide) return false;
    *t_axis = -1;
    for (int d = 0; d < n - 1; d++) {
        if (c->dim[d] == 1) continue;
        if (*t_axis >= 0 || c->dim[d] != x->type.shape.dim[wide - n + d]) return false;
        *t_axis = wide - n + d;
    }
    *out = (tables){tti_constant_of(m->scene, of[0]), tti_constant_of(m->scene, of[1]), 0, width};
    if (*t_axis < 1 || c->dim[n - 1] != width || !out->cos || !out->sin) return false;
    out->n_t = x->type.shape.dim[*t_axis];
    return true;
}

/* By the smallest angle of position 1, whose sine is most exact; near an integer it is that. */
static double base_of(const tables *t, int64_t dim) {
    int64_t i = dim / 2 - 1;
    double angle = atan2(t->sin[t->width + i], t->cos[t->width + i]);
    if (i < 1) return 10000; /* D is 2: the angle is 1 whatever the base */
    double base = pow(angle, -(double)dim / (2.0 * (double)i));
    double whole = nearbyint(base);
    return fabs(base - whole) <= 1e-4 * whole ? whole : base;
}

/* Whether all elements are those of base, up to the rounding of an angle in f32. */
static bool are_of_base(const tables *t, int64_t dim, double base) {
    if (!(base > 1 && isfinite(base))) return false;
    for (int64_t i = 0; i < t->width; i++) {
        double speed = pow(base, -2.0 * (double)(i % (dim / 2)) / (double)dim);
        for (int64_t at = 0; at < t->n_t; at++) {
            double angle = (double)at * speed, most = 1e-6 + 3e-7 * angle;
            if (!(fabs(t->cos[at * t->width + i] - cos(angle)) <= most) ||
                !(fabs(t->sin[at * t->width + i] - sin(angle)) <= most))
                return false;
        }
    }
    return true;
}

/* Tables are compared once for each pair of them in a graph. */
static double find_base(tti_match *m, const tables *t, int64_t dim) {
    tti_scene *s = m->scene;
    const tutti_value *c = TTI_VAR(m, 'c'), *sin = TTI_VAR(m, 's');
    if (s->cos == c && s->sin == sin) return s->base;
    double base = base_of(t, dim);
    s->cos = c, s->sin = sin, s->base = are_of_base(t, dim, base) ? base : 0;
    return s->base;
}

/* ---- spellings ---- */

static bool is_part(const tti_node *slice, int64_t start, int64_t len) {
    int last = slice->in[0]->type.shape.n_dims - 1;
    int64_t axis = tti_attr_int(slice, "axis");
    return (axis == last || axis == -1) && tti_attr_int(slice, "start") == start &&
           tti_attr_int(slice, "len") == len;
}

static bool joins_last(const tti_node *concat) {
    int64_t axis = tti_attr_int(concat, "axis");
    return axis == concat->out[0]->type.shape.n_dims - 1 || axis == -1;
}

static bool read_rotation(tti_match *m, const tutti_value *x, bool halves, rotation *out) {
    tables t;
    int n = x->type.shape.n_dims;
    if (n < 3 || n > 4 || x->type.dtype != TUTTI_F32) return false;
    int64_t dim = x->type.shape.dim[n - 1];
    *out = (rotation){.x = x};
    if (dim < 2 || dim % 2 || !tti_batch_is_first(m->scene, x) ||
        !tti_shape_equal(&x->type.shape, &m->root->out[0]->type.shape) ||
        !read_tables(m, x, halves ? dim / 2 : dim, &t, &out->t_axis) || t.n_t < 2)
        return false;
    out->base = find_base(m, &t, dim);
    return out->base > 0;
}

/* Keeps what it reads in the match, for build. */
static bool keep(tti_match *m, const tutti_value *x, bool halves) {
    rotation *r = tti_arena_alloc(&m->scene->arena, sizeof *r);
    m->found = r;
    return r && read_rotation(m, x, halves, r);
}

/* x cos + (-x2, x1) sin: 1: the concat; 2: x2; 3: x1. */
static bool turned_fits(tti_match *m) {
    const tutti_value *x = TTI_VAR(m, 'x');
    int64_t n = x->type.shape.n_dims ? x->type.shape.dim[x->type.shape.n_dims - 1] : 0;
    return n % 2 == 0 && joins_last(m->node[1]) && is_part(m->node[2], n / 2, n / 2) &&
           is_part(m->node[3], 0, n / 2) && m->factor[1] == -1 && m->shift[1] == 0 &&
           keep(m, x, false);
}

/* (x1 cos - x2 sin, x2 cos + x1 sin), with the halves a and b of x. */
static bool halves_fit(tti_match *m) {
    const tti_node *a = TTI_VAR(m, 'a')->node, *b = TTI_VAR(m, 'b')->node;
    if (!tti_is_op(a, "slice") || !tti_is_op(b, "slice") || a->in[0] != b->in[0]) return false;
    const tutti_value *x = a->in[0];
    int64_t n = x->type.shape.n_dims ? x->type.shape.dim[x->type.shape.n_dims - 1] : 0;
    return n % 2 == 0 && joins_last(m->node[1]) && is_part(a, 0, n / 2) &&
           is_part(b, n / 2, n / 2) && keep(m, x, true);
}

/* As one sequence of heads, which is what the op takes. */
static tutti_value *build_rotary(tti_rewrite *rw, const tti_match *m) {
    static const int order[4] = {0, 2, 1, 3};
    const rotation *r = m->found;
    const tutti_shape *s = &r->x->type.shape;
    int n = s->n_dims;
    bool turned = n == 4 && r->t_axis == 2;
    int64_t dim = s->dim[n - 1], n_t = s->dim[r->t_axis];
    int64_t heads = n == 3 ? 1 : s->dim[turned ? 1 : 2];
    tutti_value *x = tti_mapped(rw, r->x);
    if (turned) x = tti_new_permute(rw, x, order, 4);
    x = tti_new_reshape(rw, x, &TUTTI_SHAPE(s->dim[0], n_t, heads * dim));
    x = tti_emit(
        tti_new_graph(rw), "rotary", NULL, &x, 1,
        (tti_attr_arg[]){
            TTI_INT("heads", heads), TTI_INT("dim", dim), TTI_FLOAT("base", r->base), {0}});
    if (n == 3) return x;
    x = tti_new_reshape(rw, x, &TUTTI_SHAPE(s->dim[0], n_t, heads, dim));
    return turned ? tti_new_permute(rw, x, order, 4) : x;
}

/* ---- queries and keys side by side ---- */

static bool turns_all(const tti_node *node) {
    return tti_is_op(node, "rotary") && node->n_in == 1 &&
           tti_attr_int(node, "heads") * tti_attr_int(node, "dim") ==
               node->out[0]->type.shape.dim[2];
}

static bool turn_alike(const tti_node *a, const tti_node *b) {
    return tti_attr_int(a, "dim") == tti_attr_int(b, "dim") &&
           tti_attr_float(a, "base") == tti_attr_float(b, "base") &&
           tti_attr_int(a, "start") == tti_attr_int(b, "start") &&
           tti_attr_int(a, "inverse") == tti_attr_int(b, "inverse");
}

/* concat(rotary(q), rotary(k), v) is a rotation of the first heads of concat(q, k, v). */
static bool find_two(tti_match *m) {
    const tti_node *concat = m->root;
    if (!tti_is_op(concat, "concat") || concat->n_in != 3 || !joins_last(concat)) return false;
    const tti_node *q = concat->in[0]->node, *k = concat->in[1]->node;
    return turns_all(q) && turns_all(k) && turn_alike(q, k) && tti_match_take(m, concat) &&
           tti_match_take(m, q) && tti_match_take(m, k);
}

static tutti_value *build_two(tti_rewrite *rw, const tti_match *m) {
    const tti_node *q = m->root->in[0]->node, *k = m->root->in[1]->node;
    tutti_value *in[3] = {tti_mapped(rw, q->in[0]), tti_mapped(rw, k->in[0]),
                          tti_mapped(rw, m->root->in[2])};
    tutti_value *x = tti_emit(tti_new_graph(rw), "concat", NULL, in, 3,
                              (tti_attr_arg[]){TTI_INT("axis", 2), {0}});
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1] = {0};
    int n = tti_n_attrs(q->op);
    for (int i = 0; i < n; i++) attrs[i] = (tti_attr_arg){q->op->attrs[i].name, q->attrs[i]};
    attrs[n] = TTI_INT("heads", tti_attr_int(q, "heads") + tti_attr_int(k, "heads"));
    return tti_emit(tti_new_graph(rw), "rotary", NULL, &x, 1, attrs);
}

const tti_row tti_rows_rotary[] = {
    {.name = "rotary positions",
     .spellings = {"add(mul(x, c), mul(concat@1(L1(slice@2(x)), slice@3(x)), s))"},
     .fits = turned_fits,
     .build = build_rotary},
    {.name = "rotary positions",
     .spellings = {"concat@1(sub(mul(a, c), mul(b, s)), add(mul(b, c), mul(a, s)))"},
     .fits = halves_fit,
     .build = build_rotary},
    {.find = find_two, .build = build_two},
    {0},
};
