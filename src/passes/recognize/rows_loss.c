/* rows_loss.c - softmax, its logarithm, and cross entropy. */
#include "ops/op_table.h"
#include "passes/recognize/pattern_rows.h"

/* ---- softmax ---- */

/* The only axis of a reduction that keeps it; -1: there are others. */
static int kept_axis(const tti_node *reduced) {
    const tti_attr *axes = tti_attr_get(reduced, "axes");
    int n_dims = reduced->in[0]->type.shape.n_dims;
    if (axes->n != 1 || !tti_attr_int(reduced, "keep")) return -1;
    return (int)(axes->v[0] < 0 ? axes->v[0] + n_dims : axes->v[0]);
}

/* max@1 and max@3, where they are there, and sum@2 go over one axis. */
static bool softmax_fits(tti_match *m) {
    int axis = kept_axis(m->node[2]);
    for (int i = 1; i <= 3; i += 2)
        if (m->node[i] && kept_axis(m->node[i]) != axis) return false;
    return axis >= 0 && tti_shape_equal(&TTI_VAR(m, 'x')->type.shape, &m->root->out[0]->type.shape);
}

static tutti_value *emit_softmax(tti_rewrite *rw, const tti_match *m, const char *op, int axis) {
    tutti_value *x = tti_mapped(rw, TTI_VAR(m, 'x'));
    return tti_emit(tti_new_graph(rw), op, NULL, &x, 1,
                    (tti_attr_arg[]){TTI_INT("axis", axis), {0}});
}

static tutti_value *build_softmax(tti_rewrite *rw, const tti_match *m) {
    return emit_softmax(rw, m, "softmax", kept_axis(m->node[2]));
}

static tutti_value *build_log_softmax(tti_rewrite *rw, const tti_match *m) {
    return emit_softmax(rw, m, "log_softmax", kept_axis(m->node[2]));
}

static bool always_fits(tti_match *m) {
    (void)m;
    return true;
}

static tutti_value *build_log_of_softmax(tti_rewrite *rw, const tti_match *m) {
    return emit_softmax(rw, m, "log_softmax", (int)tti_attr_int(m->node[1], "axis"));
}

/* ---- cross entropy ---- */

/* alpha times the sum over rows of weight ln softmax(x)[label]. */
typedef struct entropy {
    const tutti_value *x;      /* [R,C] */
    const tutti_value *labels; /* i32, [R] elements */
    const tutti_value *weight; /* 0 or 1, broadcasts to rows; NULL: 1 */
    tutti_shape rows;          /* of R elements, where there is a weight */
    double alpha;
} entropy;

/* True if x is a whole number for any data, because it is computed from integers. */
static bool is_whole(tti_match *m, const tutti_value *x) {
    const tti_node *node = x->node;
    double c;
    if (x->type.dtype == TUTTI_I32) return true;
    if (tti_is_uniform(m->scene, x, &c)) return c == (double)(int64_t)c;
    if (tti_is_op(node, "cast") || tti_is_op(node, "reshape") || tti_is_op(node, "abs"))
        return is_whole(m, node->in[0]);
    if (!tti_is_op(node, "affine")) return false;
    double a = tti_attr_float(node, "alpha"), b = tti_attr_float(node, "beta");
    return a == (double)(int64_t)a && b == (double)(int64_t)b && is_whole(m, node->in[0]);
}

/* True if x is 0 or 1 for any data. */
static bool is_choice(tti_match *m, const tutti_value *x) {
    const tti_node *node = x->node;
    double c;
    if (tti_is_op(node, "equal") || tti_is_op(node, "less") || tti_is_op(node, "less_equal"))
        return true;
    if (tti_is_op(node, "reshape") || tti_is_op(node, "broadcast_to"))
        return is_choice(m, node->in[0]);
    if (tti_is_op(node, "mul")) return is_choice(m, node->in[0]) && is_choice(m, node->in[1]);
    if (tti_is_op(node, "affine"))
        return tti_attr_float(node, "alpha") == -1 && tti_attr_float(node, "beta") == 1 &&
               is_choice(m, node->in[0]);
    return tti_is_op(node, "minimum") && tti_is_op(node->in[0]->node, "abs") &&
           tti_is_uniform(m->scene, node->in[1], &c) && c == 1 && is_whole(m, node->in[0]);
}

static bool reduces_all(const tti_node *node) {
    if (!tti_is_op(node, "sum") && !tti_is_op(node, "mean")) return false;
    const tti_attr *axes = tti_attr_get(node, "axes");
    return node->out[0]->type.shape.n_dims == 0 &&
           (axes->n == 0 || axes->n == node->in[0]->type.shape.n_dims);
}

static bool is_log_softmax(const tti_node *node) {
    int n = node->out[0]->type.shape.n_dims;
    int64_t axis = tti_is_op(node, "log_softmax") ? tti_attr_int(node, "axis") : 0;
    return tti_is_op(node, "log_softmax") && n >= 2 && (axis == n - 1 || axis == -1);
}

static const tti_node *skip_reshapes(tti_match *m, const tutti_value *x) {
    while (tti_is_op(x->node, "reshape") && tti_match_take(m, x->node)) x = x->node->in[0];
    return x->node;
}

static int64_t width_of(const tutti_value *x) {
    const tutti_shape *s = &x->type.shape;
    return s->n_dims > 0 ? s->dim[s->n_dims - 1] : 0;
}

/* Skips views that keep the rows. */
static const tti_node *skip_views(tti_match *m, const tutti_value *x) {
    while (tti_is_op(x->node, "reshape") && width_of(x) == width_of(x->node->in[0]) &&
           tti_match_take(m, x->node))
        x = x->node->in[0];
    return x->node;
}

static bool is_over_last(const tti_node *reduced) {
    const tti_attr *axes = tti_attr_get(reduced, "axes");
    int n = reduced->in[0]->type.shape.n_dims;
    return axes->n == 1 && (axes->v[0] == n - 1 || axes->v[0] == -1);
}

static bool picks_of_last(const tti_node *node) {
    if (!tti_is_op(node, "take_along")) return false;
    int64_t axis = tti_attr_int(node, "axis");
    return axis == -1 || axis == node->in[0]->type.shape.n_dims - 1;
}

/* The node that computes the maximum of each row, with or without a gradient; NULL: value is
 * something else. */
static const tti_node *read_top(tti_match *m, const tutti_value *value) {
    const tti_node *node = skip_reshapes(m, value);
    if (tti_is_op(node, "stop_gradient") && tti_match_take(m, node)) node = node->in[0]->node;
    bool is_top = tti_is_op(node, "max_reduce") && is_over_last(node) && tti_match_take(m, node);
    return is_top ? node : NULL;
}

/* x, where value is top + ln of the sum of e^(x - top) of its rows; NULL: it is something else. */
static const tutti_value *read_log_sum(tti_match *m, const tutti_value *value) {
    const tti_node *add = skip_reshapes(m, value);
    if (!tti_is_op(add, "add") || !tti_match_take(m, add)) return NULL;
    for (int side = 0; side < 2; side++) {
        const tti_node *log = skip_reshapes(m, add->in[side]);
        if (!tti_is_op(log, "log") || !tti_match_take(m, log)) continue;
        const tti_node *sum = skip_reshapes(m, log->in[0]);
        if (!tti_is_op(sum, "sum") || !is_over_last(sum) || !tti_match_take(m, sum)) return NULL;
        const tti_node *exp = sum->in[0]->node, *less = exp->n_in ? exp->in[0]->node : NULL;
        if (!tti_is_op(exp, "exp") || !tti_is_op(less, "sub") || !tti_match_take(m, exp) ||
            !tti_match_take(m, less))
            return NULL;
        const tti_node *top = read_top(m, less->in[1]);
        bool same = top && top->in[0] == less->in[0] && read_top(m, add->in[1 - side]) == top;
        return same ? less->in[0] : NULL;
    }
    return NULL;
}

/* The sum's logarithm less the label's element, or the opposite. */
static bool read_difference(tti_match *m, const tti_node *node, entropy *out) {
    const int n_before = m->n_inner;
    for (int side = 0; side < 2; side++) {
        m->n_inner = n_before;
        const tutti_value *x = read_log_sum(m, node->in[side]);
        const tti_node *picked = skip_reshapes(m, node->in[1 - side]);
        if (!x || !picks_of_last(picked) || picked->in[0] != x || x->type.shape.n_dims < 2)
            continue;
        out->x = x, out->labels = picked->in[1];
        out->alpha *= side == 0 ? -1 : 1;
        return out->labels->type.dtype == TUTTI_I32 &&
               tti_value_n_elems(out->labels) * width_of(x) == tti_value_n_elems(x) &&
               tti_match_take(m, node) && tti_match_take(m, picked);
    }
    m->n_inner = n_before;
    return false;
}

/* ln softmax at the label of each row: by one_hot and a sum, or by a gather. */
static bool read_picked(tti_match *m, const tti_node *node, entropy *out) {
    const tti_node *log = NULL;
    if (tti_is_op(node, "sub")) return read_difference(m, node, out);
    if (picks_of_last(node)) {
        log = skip_views(m, node->in[0]);
        out->labels = node->in[1];
    } else if (tti_is_op(node, "sum") && tti_is_op(node->in[0]->node, "mul")) {
        const tti_node *mul = node->in[0]->node;
        const tti_attr *axes = tti_attr_get(node, "axes");
        int n = mul->out[0]->type.shape.n_dims;
        int hot = tti_is_op(mul->in[0]->node, "one_hot") ? 0 : 1;
        const tti_node *one_hot = mul->in[hot]->node;
        if (!tti_is_op(one_hot, "one_hot") || axes->n != 1 || axes->v[0] != n - 1 ||
            !tti_shape_equal(&mul->in[0]->type.shape, &mul->in[1]->type.shape) ||
            !tti_match_take(m, mul) || !tti_match_take(m, one_hot))
            return false;
        out->labels = one_hot->in[0];
        log = skip_views(m, mul->in[1 - hot]);
    }
    if (!log || !is_log_softmax(log)) return false;
    out->x = log->in[0];
    int64_t n_classes = out->x->type.shape.dim[out->x->type.shape.n_dims - 1];
    return out->labels->type.dtype == TUTTI_I32 && n_classes > 0 &&
           tti_value_n_elems(out->labels) * n_classes == tti_value_n_elems(out->x) &&
           tti_match_take(m, node) && tti_match_take(m, log);
}

/* The factor that is 0 or 1, the weight of a row; NULL: neither factor is. */
static const tutti_value *weight_of(tti_match *m, const tti_node *mul, int *side) {
    for (*side = 0; *side < 2; ++*side)
        if (is_choice(m, mul->in[*side])) return mul->in[*side];
    return NULL;
}

static bool find_entropy(tti_match *m) {
    entropy *e = tti_arena_alloc(&m->scene->arena, sizeof *e);
    const tti_node *root = m->root;
    if (!e || !reduces_all(root) || !tti_match_take(m, root)) return false;
    m->found = e;
    const tutti_value *at = root->in[0];
    *e = (entropy){.alpha = tti_is_op(root, "mean") ? 1 / (double)tti_value_n_elems(at) : 1};
    for (int i = 0; i < 12; i++) {
        const tti_node *node = at->node;
        double a, b;
        int side;
        if (read_picked(m, node, e)) return true;
        if (!tti_match_take(m, node)) return false;
        const tutti_value *x = tti_linear_step(m->scene, at, &a, &b);
        if (x && b == 0) {
            e->alpha *= a;
        } else if (tti_is_op(node, "reshape")) {
            x = node->in[0];
        } else if (tti_is_op(node, "mul") && !e->weight &&
                   (e->weight = weight_of(m, node, &side))) {
            x = node->in[1 - side];
            if (!tti_shape_equal(&x->type.shape, &at->type.shape)) return false;
            e->rows = at->type.shape;
        } else {
            return false;
        }
        at = x;
    }
    return false;
}

/* Labels where the weight is 1, -1 elsewhere. */
static tutti_value *weighted_labels(tti_rewrite *rw, const entropy *e, int64_t n) {
    tutti_graph *g = tti_new_graph(rw);
    tutti_value *labels = tti_new_reshape(rw, tti_mapped(rw, e->labels), &TUTTI_SHAPE(n));
    if (!e->weight) return labels;
    tutti_value *weight = tti_mapped(rw, e->weight);
    if (!tti_shape_equal(&e->weight->type.shape, &e->rows))
        weight = tti_emit(g, "broadcast_to", NULL, &weight, 1,
                          (tti_attr_arg[]){TTI_INTS("dims", e->rows.n_dims, e->rows.dim), {0}});
    weight = tti_new_reshape(rw, weight, &TUTTI_SHAPE(n));
    const tti_attr_arg wide[] = {TTI_INT("dtype", TUTTI_F32), {0}};
    const tti_attr_arg whole[] = {TTI_INT("dtype", TUTTI_I32), {0}};
    labels = tti_emit(g, "cast", NULL, &labels, 1, wide);
    labels = tti_new_affine(rw, labels, 1, 1);
    labels = tti_emit(g, "mul", NULL, (tutti_value *[]){labels, weight}, 2, NULL);
    labels = tti_new_affine(rw, labels, 1, -1);
    return tti_emit(g, "cast", NULL, &labels, 1, whole);
}

static tutti_value *build_entropy(tti_rewrite *rw, const tti_match *m) {
    const entropy *e = m->found;
    const tutti_shape *s = &e->x->type.shape;
    int64_t n_classes = s->dim[s->n_dims - 1], n = tti_value_n_elems(e->labels);
    tutti_value *in[2] = {tti_new_reshape(rw, tti_mapped(rw, e->x), &TUTTI_SHAPE(n, n_classes)),
                          weighted_labels(rw, e, n)};
    tutti_value *sum = tti_emit(tti_new_graph(rw), "cross_entropy", NULL, in, 2, NULL);
    return tti_new_affine(rw, sum, -e->alpha, 0);
}

/* ---- the layer before it ---- */

/* A linear layer without bias whose result cross entropy alone reads is a product: passes and
 * backends fuse that with the loss. */
static bool find_head(tti_match *m) {
    const tti_scene *s = m->scene;
    if (!tti_is_op(m->root, "linear") || m->root->n_in != 2 || tti_attr_int(m->root, "act"))
        return false;
    const tutti_value *at = m->root->out[0];
    for (;;) {
        int first = s->first_user[at->id];
        if (s->first_user[at->id + 1] - first != 1 || s->is_output[at->id]) return false;
        const tti_node *user = s->user[first];
        if (tti_is_op(user, "cross_entropy")) return user->in[0] == at;
        if (!tti_is_op(user, "reshape")) return false;
        at = user->out[0];
    }
}

static tutti_value *build_head(tti_rewrite *rw, const tti_match *m) {
    tutti_value *in[2] = {tti_mapped(rw, m->root->in[0]), tti_mapped(rw, m->root->in[1])};
    return tti_emit(tti_new_graph(rw), "matmul", m->root->name, in, 2,
                    (tti_attr_arg[]){TTI_INT("trans_b", 1), {0}});
}

#define MAX "max_reduce@1(x)"
#define SUM "sum@2(exp(sub(x, max_reduce@3(x))))"

const tti_row tti_rows_loss[] = {
    {.name = "cross entropy", .find = find_entropy, .build = build_entropy},
    {.name = "output layer of a cross entropy", .find = find_head, .build = build_head},
    {.name = "log softmax",
     .spellings = {"log(softmax@1(x))"},
     .fits = always_fits,
     .build = build_log_of_softmax},
    {.name = "log softmax",
     .spellings = {"sub(sub(x, " MAX "), log(" SUM "))", "sub(x, add(" MAX ", log(" SUM ")))",
                   "sub(x, log(sum@2(exp(x))))"},
     .fits = softmax_fits,
     .build = build_log_softmax},
    {.name = "softmax",
     .spellings = {"div(exp(sub(x, " MAX ")), " SUM ")", "div(exp(x), sum@2(exp(x)))"},
     .fits = softmax_fits,
     .build = build_softmax},
    {0},
};
