/* losses.c - losses as graphs of other operations (tutti/losses.h).
 *
 * Terms are added to one number per sample.  Samples are added by kl_div, which with target 1
 * sums its input over the samples that are not padding.  The terms of padding are ignored,
 * whatever they are, and their gradient is 0. */
#include "tutti/losses.h"

#include <stdio.h>
#include <string.h>

#include "ops/loss/losses.h"
#include "ops/op_table.h"
#include "ops/rules.h"

typedef struct loss_args {
    tutti_graph *g;
    const char *name;
    tutti_value *predicted, *target, *present;
    const tutti_loss_desc *desc;
} loss_args;

static const tutti_loss nothing;

static tutti_loss refuse(const loss_args *a, const char *why) {
    char text[256], x[96], t[96];
    snprintf(text, sizeof text, "%s: %s; the prediction is %s, the target %s", a->name, why,
             tti_type_text(&a->predicted->type, x, sizeof x),
             tti_type_text(&a->target->type, t, sizeof t));
    tutti_graph_refuse(a->g, text);
    return nothing;
}

static double or_default(double value, double fallback) { return value != 0 ? value : fallback; }

static int64_t rows_of(const tutti_value *x) { return x->type.shape.dim[0]; }

/* ---- sums over samples ---- */

static tutti_value *number(tutti_graph *g, double x) {
    return tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, x);
}

/* All dimensions but the first, added up: [N]. */
static tutti_value *by_sample(tutti_graph *g, tutti_value *x) {
    tutti_axes axes = {0};
    if (!x || x->type.shape.n_dims == 1) return x;
    for (int d = 1; d < x->type.shape.n_dims; d++) axes.axis[axes.n++] = d;
    return tutti_sum(g, x, &axes);
}

/* The sum of x[N,...] over the samples that are there; count is of these samples. */
static tutti_loss sum_samples(const loss_args *a, tutti_value *x) {
    tutti_value *row = by_sample(a->g, x);
    tutti_value *ones = tutti_stop_gradient(a->g, tutti_affine(a->g, row, 0, 1));
    if (a->present) /* finite, whatever the row is */
        ones = tutti_affine(a->g, tutti_cast(a->g, a->present, TUTTI_F32), 0, 1);
    return tutti_kl_div(a->g, tutti_neg(a->g, row), ones, a->present, -1);
}

/* The mean over all elements of x[N,...]: its sum, and their number. */
static tutti_loss sum_elements(const loss_args *a, tutti_value *x) {
    if (!x) return nothing;
    double width = (double)tutti_shape_n_elems(&x->type.shape) / (double)TTI_MAX(rows_of(x), 1);
    tutti_loss loss = sum_samples(a, x);
    loss.count = tutti_affine(a->g, loss.count, width, 0);
    return loss;
}

/* ---- shapes ---- */

/* A target of the prediction's type; [N] goes with [N,1], and [N,H,W] with [N,1,H,W]. */
static tutti_value *like_prediction(const loss_args *a) {
    tutti_value *t = tutti_cast(a->g, a->target, TUTTI_F32);
    const tutti_shape *x = &a->predicted->type.shape, *y = &a->target->type.shape;
    if (tti_shape_equal(x, y)) return t;
    bool is_column = (x->n_dims == y->n_dims + 1 && x->dim[y->n_dims] == 1) ||
                     (y->n_dims == x->n_dims + 1 && y->dim[x->n_dims] == 1) ||
                     (x->n_dims == y->n_dims + 1 && x->dim[1] == 1 && x->dim[0] == y->dim[0]);
    if (is_column && tutti_shape_n_elems(x) == tutti_shape_n_elems(y))
        return tutti_reshape(a->g, t, x);
    refuse(a, "both must have one shape");
    return NULL;
}

int tti_loss_class_axis(const tutti_shape *logits, const tutti_shape *target) {
    bool last = logits->n_dims == target->n_dims + 1, second = last && target->n_dims >= 1;
    for (int d = 0; last && d < target->n_dims; d++)
        last = last && logits->dim[d] == target->dim[d];
    for (int d = 0; second && d < target->n_dims; d++)
        second = second && logits->dim[d ? d + 1 : 0] == target->dim[d];
    if (second && (!last || logits->n_dims == 4)) return 1; /* images: N,C,H,W */
    return last ? logits->n_dims - 1 : -1;
}

tutti_value *tti_classes_last(tutti_graph *g, tutti_value *x, int axis) {
    int perm[TUTTI_MAX_DIMS], n = 0, n_dims = x->type.shape.n_dims;
    if (axis == n_dims - 1) return x;
    for (int d = 0; d < n_dims; d++)
        if (d != axis) perm[n++] = d;
    perm[n++] = axis;
    return tutti_permute(g, x, perm, n);
}

/* 1 where x differs from the number, else 0; for whole numbers. */
static tutti_value *differs(tutti_graph *g, tutti_value *x, double from) {
    return tutti_minimum(g, tutti_abs(g, tutti_affine(g, x, 1, -from)), number(g, 1));
}

/* f32 [N,1,..] with as many dimensions as like: 1 where the sample is there. */
static tutti_value *presence_like(const loss_args *a, const tutti_value *like) {
    tutti_shape shape = {.n_dims = like->type.shape.n_dims};
    for (int d = 0; d < shape.n_dims; d++) shape.dim[d] = d ? 1 : rows_of(like);
    tutti_value *is_there = differs(a->g, tutti_cast(a->g, a->present, TUTTI_F32), -1);
    return tutti_reshape(a->g, is_there, &shape);
}

/* A target of classes, flattened: labels i32 [R], -1 where a row does not count, and logits [R,C].
 */
typedef struct class_rows {
    tutti_value *logits, *labels;
    int64_t n_classes;
} class_rows;

static bool class_rows_of(const loss_args *a, class_rows *out) {
    tutti_graph *g = a->g;
    const tutti_shape *shape = &a->target->type.shape;
    int axis = tti_loss_class_axis(&a->predicted->type.shape, shape);
    if (axis < 0 || a->target->type.dtype != TUTTI_I32) {
        refuse(a, "logits [N,C,...] and classes i32 [N,...] are needed");
        return false;
    }
    out->n_classes = a->predicted->type.shape.dim[axis];
    int64_t n_rows = tutti_shape_n_elems(shape);
    out->logits = tutti_reshape(g, tti_classes_last(g, a->predicted, axis),
                                &TUTTI_SHAPE(n_rows, out->n_classes));
    tutti_value *labels = a->target;
    bool masks = a->present && a->present != a->target;
    if (a->desc->ignores || masks) { /* (label + 1) kept - 1, exact below 2^24 */
        tutti_value *wide = tutti_cast(g, labels, TUTTI_F32), *plus = tutti_affine(g, wide, 1, 1);
        if (a->desc->ignores) plus = tutti_mul(g, plus, differs(g, wide, (double)a->desc->ignore));
        if (masks) plus = tutti_mul(g, plus, presence_like(a, wide));
        labels = tutti_cast(g, tutti_affine(g, plus, 1, -1), TUTTI_I32);
    }
    out->labels = tutti_reshape(g, labels, &TUTTI_SHAPE(n_rows));
    return out->labels && out->logits;
}

/* ---- cross entropy ---- */

static tutti_value *weights_of(const loss_args *a, int64_t n) {
    float *w = tti_arena_alloc(tti_graph_arena(a->g), (size_t)n * sizeof *w);
    if (!w) return NULL;
    for (int64_t i = 0; i < n; i++) w[i] = (float)a->desc->weight[a->desc->n_weights == 1 ? 0 : i];
    return tutti_constant_array(a->g, TUTTI_F32, &TUTTI_SHAPE(n), w);
}

/* Without fused kernels: - sum of w t log p, and the weights of the targets. */
static tutti_loss weighted_entropy(const loss_args *a, const class_rows *rows) {
    tutti_graph *g = a->g;
    double s = a->desc->smoothing;
    if (a->desc->n_weights != rows->n_classes)
        return refuse(a, "there must be a weight for each class");
    tutti_value *w = weights_of(a, rows->n_classes),
                *hot = tutti_one_hot(g, rows->labels, rows->n_classes);
    tutti_value *target = hot;
    if (s > 0) {
        tutti_value *kept = tutti_sum(g, hot, &(tutti_axes){.n = 1, .axis = {1}, .keep = true});
        target = tutti_add(g, tutti_affine(g, hot, 1 - s, 0),
                           tutti_affine(g, kept, s / (double)rows->n_classes, 0));
    }
    const loss_args by_row = {g, a->name, a->predicted, a->target, rows->labels, a->desc};
    tutti_value *log_p = tutti_log_softmax(g, rows->logits, 1);
    tutti_value *terms = tutti_neg(g, tutti_mul(g, tutti_mul(g, target, w), log_p));
    tutti_loss loss = sum_samples(&by_row, terms);
    loss.count = sum_samples(&by_row, tutti_mul(g, hot, w)).sum;
    return loss;
}

static tutti_loss cross_entropy(const loss_args *a) {
    class_rows rows;
    if (!class_rows_of(a, &rows)) return nothing;
    tutti_loss loss = tutti_cross_entropy(a->g, rows.logits, rows.labels, a->desc->smoothing, -1);
    return a->desc->n_weights == 0 ? loss : weighted_entropy(a, &rows);
}

/* ---- values ---- */

/* |e|; e^2/2 up to delta and a line from there on; the same over delta. */
static tutti_loss mae(const loss_args *a) {
    tutti_value *t = like_prediction(a);
    return sum_elements(a, tutti_abs(a->g, tutti_sub(a->g, a->predicted, t)));
}

static tutti_value *huber_of(const loss_args *a) {
    tutti_graph *g = a->g;
    tutti_value *size = tutti_abs(g, tutti_sub(g, a->predicted, like_prediction(a)));
    tutti_value *inner = tutti_minimum(g, size, number(g, or_default(a->desc->delta, 1)));
    return tutti_mul(g, inner, tutti_sub(g, size, tutti_affine(g, inner, 0.5, 0)));
}

static tutti_loss huber(const loss_args *a) { return sum_elements(a, huber_of(a)); }
static tutti_loss smooth_l1(const loss_args *a) {
    return sum_elements(a, tutti_affine(a->g, huber_of(a), 1 / or_default(a->desc->delta, 1), 0));
}

static tutti_loss mse(const loss_args *a) {
    tutti_value *t = like_prediction(a);
    return tutti_mse(a->g, a->predicted, t, a->present, -1);
}

/* ---- yes or no ---- */

/* ln(1 + e^x) without overflow. */
static tutti_value *softplus(tutti_graph *g, tutti_value *x) {
    tutti_value *tail = tutti_exp(g, tutti_neg(g, tutti_abs(g, x)));
    return tutti_add(g, tutti_maximum(g, x, number(g, 0)),
                     tutti_log(g, tutti_affine(g, tail, 1, 1)));
}

/* (1 - t) x + (1 + (w - 1) t) ln(1 + e^-x). */
static tutti_loss bce(const loss_args *a) {
    tutti_graph *g = a->g;
    tutti_value *t = like_prediction(a), *x = a->predicted;
    if (!t || a->desc->n_weights == 0) return tutti_bce_with_logits(g, x, t, a->present, -1);
    int64_t n = x->type.shape.dim[x->type.shape.n_dims - 1];
    if (a->desc->n_weights != 1 && a->desc->n_weights != n)
        return refuse(a, "there must be one weight of positives, or one for each column");
    tutti_value *w = tutti_affine(g, weights_of(a, n), 1, -1);
    tutti_value *scale = tutti_affine(g, tutti_mul(g, t, w), 1, 1);
    tutti_value *terms = tutti_add(g, tutti_mul(g, tutti_affine(g, t, -1, 1), x),
                                   tutti_mul(g, scale, softplus(g, tutti_neg(g, x))));
    return sum_elements(a, terms);
}

/* x^gamma of x in 0 .. 1. */
static tutti_value *power(tutti_graph *g, tutti_value *x, double gamma) {
    if (gamma == 2) return tutti_square(g, x);
    if (gamma == 1) return x;
    tutti_value *log_x = tutti_log(g, tutti_maximum(g, x, number(g, 1e-30)));
    return tutti_exp(g, tutti_affine(g, log_x, gamma, 0));
}

/* -(1 - p)^gamma ln p of the target's class. */
static tutti_loss focal_of_classes(const loss_args *a) {
    tutti_graph *g = a->g;
    class_rows rows;
    if (!class_rows_of(a, &rows)) return nothing;
    tutti_value *hot = tutti_one_hot(g, rows.labels, rows.n_classes);
    tutti_value *log_p = tutti_sum(g, tutti_mul(g, hot, tutti_log_softmax(g, rows.logits, 1)),
                                   &(tutti_axes){.n = 1, .axis = {1}});
    tutti_value *rest = tutti_affine(g, tutti_exp(g, log_p), -1, 1);
    tutti_value *terms =
        tutti_neg(g, tutti_mul(g, power(g, rest, or_default(a->desc->gamma, 2)), log_p));
    const loss_args by_row = {g, a->name, a->predicted, a->target, rows.labels, a->desc};
    tutti_loss loss = sum_samples(&by_row, terms);
    loss.correct = tutti_cross_entropy(g, rows.logits, rows.labels, 0, -1).correct;
    return loss;
}

/* ce (1 - p_t)^gamma, times alpha where the target is 1 and 1 - alpha where it is 0. */
static tutti_loss focal(const loss_args *a) {
    tutti_graph *g = a->g;
    bool are_classes = a->target->type.dtype == TUTTI_I32 &&
                       a->predicted->type.shape.n_dims == a->target->type.shape.n_dims + 1;
    if (are_classes && a->predicted->type.shape.dim[a->target->type.shape.n_dims] != 1)
        return focal_of_classes(a);
    tutti_value *t = like_prediction(a), *x = a->predicted;
    tutti_value *ce =
        tutti_add(g, tutti_mul(g, tutti_affine(g, t, -1, 1), x), softplus(g, tutti_neg(g, x)));
    tutti_value *p = tutti_sigmoid(g, x);
    tutti_value *rest = tutti_sub(g, tutti_add(g, p, t), tutti_affine(g, tutti_mul(g, p, t), 2, 0));
    tutti_value *terms = tutti_mul(g, ce, power(g, rest, or_default(a->desc->gamma, 2)));
    double alpha = a->desc->alpha;
    if (alpha > 0) terms = tutti_mul(g, terms, tutti_affine(g, t, 2 * alpha - 1, 1 - alpha));
    return sum_elements(a, terms);
}

/* ---- dice ---- */

/* p and t [N,C,pixels]: the mean over the classes of 1 - (2 sum p t + s) / (sum p + sum t + s). */
static tutti_loss dice_of(const loss_args *a, tutti_value *p, tutti_value *t) {
    tutti_graph *g = a->g;
    const tutti_axes pixels = {.n = 1, .axis = {2}};
    double s = or_default(a->desc->smooth, 1);
    if (!p || !t) return nothing;
    double n_classes = (double)p->type.shape.dim[1];
    tutti_value *both = tutti_sum(g, tutti_mul(g, p, t), &pixels);
    tutti_value *all = tutti_sum(g, tutti_add(g, p, t), &pixels);
    tutti_value *score = tutti_div(g, tutti_affine(g, both, 2, s), tutti_affine(g, all, 1, s));
    return sum_samples(a, tutti_affine(g, score, -1 / n_classes, 1 / n_classes));
}

static tutti_loss dice(const loss_args *a) {
    tutti_graph *g = a->g;
    const tutti_shape *x = &a->predicted->type.shape;
    int axis =
        a->target->type.dtype == TUTTI_I32 ? tti_loss_class_axis(x, &a->target->type.shape) : -1;
    if (axis < 0 || x->dim[axis] == 1) { /* one question for each element */
        tutti_value *t = like_prediction(a);
        tutti_shape flat = TUTTI_SHAPE(x->dim[0], 1, -1);
        return dice_of(a, tutti_reshape(g, tutti_sigmoid(g, a->predicted), &flat),
                       tutti_reshape(g, t, &flat));
    }
    class_rows rows;
    if (!class_rows_of(a, &rows)) return nothing;
    int64_t n = x->dim[0], n_pixels = tutti_shape_n_elems(&a->target->type.shape) / TTI_MAX(n, 1);
    const tutti_shape by_pixel = TUTTI_SHAPE(n, n_pixels, rows.n_classes);
    tutti_value *hot = tutti_one_hot(g, rows.labels, rows.n_classes);
    tutti_value *p = tutti_softmax(g, rows.logits, 1);
    if (a->desc->ignores) /* pixels without a class count in neither sum */
        p = tutti_mul(g, p, tutti_sum(g, hot, &(tutti_axes){.n = 1, .axis = {1}, .keep = true}));
    return dice_of(a, tutti_transpose(g, tutti_reshape(g, p, &by_pixel), 1, 2),
                   tutti_transpose(g, tutti_reshape(g, hot, &by_pixel), 1, 2));
}

/* ---- distributions and directions ---- */

/* One number for each row of the last axis. */
static tutti_loss sum_rows(const loss_args *a, tutti_value *x) {
    return x && x->type.shape.n_dims > 1 ? sum_elements(a, x) : sum_samples(a, x);
}

static tutti_loss kl(const loss_args *a) {
    tutti_graph *g = a->g;
    int last = a->predicted->type.shape.n_dims - 1;
    if (last < 1 || !tti_shape_equal(&a->predicted->type.shape, &a->target->type.shape))
        return refuse(a, "logits [N,...,C] and probabilities of the same shape are needed");
    tutti_value *t = tutti_cast(g, a->target, TUTTI_F32);
    tutti_loss loss = tutti_kl_div(g, tutti_log_softmax(g, a->predicted, last), t, a->present, -1);
    double n_rows = 1;
    for (int d = 1; d < last; d++) n_rows *= (double)a->predicted->type.shape.dim[d];
    loss.count = tutti_affine(g, loss.count, n_rows, 0);
    return loss;
}

static tutti_loss cosine(const loss_args *a) {
    if (!tti_shape_equal(&a->predicted->type.shape, &a->target->type.shape) ||
        a->predicted->type.shape.n_dims < 2)
        return refuse(a, "vectors [N,...,D] of one shape are needed");
    tutti_value *t = tutti_cast(a->g, a->target, TUTTI_F32);
    tutti_value *cos = tutti_cosine_similarity(a->g, a->predicted, t, -1);
    return sum_rows(a, tutti_affine(a->g, cos, -1, 1));
}

/* ---- contrast with the other samples of the batch ---- */

/* One number: a value with one element, or a constant. */
static tutti_value *one_number(tutti_graph *g, tutti_value *value, double fallback) {
    return value ? tutti_reshape(g, value, &(tutti_shape){0}) : number(g, fallback);
}

static tutti_value *unit_rows(tutti_graph *g, tutti_value *x) {
    tutti_value *square =
        tutti_sum(g, tutti_square(g, x), &(tutti_axes){.n = 1, .axis = {1}, .keep = true});
    return tutti_div(g, x, tutti_sqrt(g, tutti_maximum(g, square, number(g, 1e-16))));
}

/* The embeddings of the shard and of the batch. */
typedef struct views {
    tutti_value *a, *b, *all_a, *all_b; /* [n,D], [N,D]: of length 1 */
    tutti_value *is_out;                /* [1,N]: -1e30 for rows of padding, else 0 */
    tutti_value *labels;                /* i32 [n] */
    tutti_value *scale;
} views;

/* Gathers both embeddings, and which rows are there, in one value. */
static bool views_of(const loss_args *a, double temperature, views *v) {
    tutti_graph *g = a->g;
    const tutti_shape *shape = &a->predicted->type.shape;
    const tutti_loss_desc *d = a->desc;
    bool fits = shape->n_dims == 2 && tti_shape_equal(shape, &a->target->type.shape);
    for (int i = 0; i < 2; i++) {
        const tutti_value *value = i ? d->bias : d->scale;
        fits = fits && (!value || (value->type.dtype == TUTTI_F32 &&
                                   tutti_shape_n_elems(&value->type.shape) == 1));
    }
    if (!fits) {
        refuse(a, "two embeddings f32 [N,D] of one shape are needed, and scale and bias f32 [1]");
        return false;
    }
    int64_t n = rows_of(a->predicted), width = shape->dim[1];
    tutti_value *zeros = tutti_affine(g, by_sample(g, tutti_stop_gradient(g, a->predicted)), 0, 0);
    tutti_value *present = a->present ? a->present : tutti_cast(g, zeros, TUTTI_I32);
    tutti_value *is_there = differs(g, tutti_cast(g, present, TUTTI_F32), -1);
    is_there = tutti_reshape(g, is_there, &TUTTI_SHAPE(n, 1));
    v->a = unit_rows(g, tutti_keep(g, a->predicted, is_there));
    v->b = unit_rows(g, tutti_keep(g, tutti_cast(g, a->target, TUTTI_F32), is_there));
    tutti_value *own[] = {v->a, v->b, is_there};
    tutti_value *all = tutti_gather_rows(g, tutti_concat(g, own, 3, 1));
    v->all_a = tutti_slice(g, all, 1, 0, width);
    v->all_b = tutti_slice(g, all, 1, width, width);
    tutti_value *known = tutti_stop_gradient(g, tutti_slice(g, all, 1, 2 * width, 1));
    v->is_out = tutti_affine(g, tutti_reshape(g, known, &TUTTI_SHAPE(1, -1)), 1e30, -1e30);
    v->labels = tutti_batch_rows(g, present);
    v->scale = one_number(g, d->scale, 1 / or_default(d->temperature, temperature));
    return tutti_graph_check(g) == TUTTI_OK;
}

/* [n,N]: how similar each row of the shard is to the rows of the batch. */
static tutti_value *similarities(tutti_graph *g, const views *v, tutti_value *own,
                                 tutti_value *all) {
    return tutti_mul(g, tutti_matmul_with(g, own, all, false, true), v->scale);
}

static tutti_loss infonce(const loss_args *a) {
    tutti_graph *g = a->g;
    views v;
    if (!views_of(a, 0.07, &v)) return nothing;
    tutti_value *of_a = tutti_add(g, similarities(g, &v, v.a, v.all_b), v.is_out);
    tutti_value *of_b = tutti_add(g, similarities(g, &v, v.b, v.all_a), v.is_out);
    tutti_loss loss = tutti_cross_entropy(g, of_a, v.labels, 0, -1);
    tutti_loss back = tutti_cross_entropy(g, of_b, v.labels, 0, -1);
    loss.sum = tutti_affine(g, tutti_add(g, loss.sum, back.sum), 0.5, 0);
    return loss;
}

static tutti_loss sigmoid(const loss_args *a) {
    tutti_graph *g = a->g;
    views v;
    if (!views_of(a, 0.1, &v)) return nothing;
    tutti_value *bias = one_number(g, a->desc->bias, a->desc->logit_bias);
    tutti_value *logits = tutti_add(g, similarities(g, &v, v.a, v.all_b), bias);
    logits = tutti_add(g, logits, v.is_out);
    tutti_value *own = tutti_one_hot(g, v.labels, rows_of(v.all_b));
    tutti_loss loss = tutti_cross_entropy(g, logits, v.labels, 0, -1);
    loss.sum = tutti_bce_with_logits(g, logits, own, v.labels, -1).sum;
    return loss;
}

/* ---- the table ---- */

static const struct loss_row {
    const char *name;
    tutti_loss (*build)(const loss_args *args);
} losses[] = {
    {"cross_entropy", cross_entropy},
    {"focal", focal},
    {"dice", dice},
    {"bce", bce},
    {"mse", mse},
    {"mae", mae},
    {"huber", huber},
    {"smooth_l1", smooth_l1},
    {"kl", kl},
    {"cosine", cosine},
    {"infonce", infonce},
    {"sigmoid", sigmoid},
};

const char *tutti_loss_name_at(int i) {
    return i >= 0 && i < (int)TTI_COUNT(losses) ? losses[i].name : NULL;
}

static bool has_rows(const tutti_value *x) { return x->type.shape.n_dims >= 1; }

tutti_loss tutti_loss_named(tutti_graph *g, const char *name, tutti_value *predicted,
                            tutti_value *target, tutti_value *present,
                            const tutti_loss_desc *desc) {
    static const tutti_loss_desc defaults;
    loss_args a = {g, name, predicted, target, present, desc ? desc : &defaults};
    if (!g || !predicted || !target || tutti_graph_check(g) != TUTTI_OK) return nothing;
    if (!has_rows(predicted) || !has_rows(target) || rows_of(predicted) != rows_of(target) ||
        predicted->type.dtype != TUTTI_F32)
        return refuse(&a, "an f32 prediction with a row for each sample is needed");
    if (present && (present->type.dtype != TUTTI_I32 || present->type.shape.n_dims != 1 ||
                    rows_of(present) != rows_of(predicted)))
        return refuse(&a, "present must be i32 [N]");
    for (size_t i = 0; i < TTI_COUNT(losses); i++)
        if (strcmp(name, losses[i].name) == 0) return losses[i].build(&a);
    return refuse(&a, "no loss has this name");
}

/* ---- metrics ---- */

/* f32 [2]. */
static tutti_value *pair(tutti_graph *g, tutti_value *sum, tutti_value *count) {
    tutti_value *both[] = {tutti_reshape(g, sum, &TUTTI_SHAPE(1)),
                           tutti_reshape(g, count, &TUTTI_SHAPE(1))};
    return tutti_concat(g, both, 2, 0);
}

/* The K of "topK"; 0: another name. */
static int64_t top_of(const char *name) {
    int64_t k = 0;
    if (strncmp(name, "top", 3) != 0 || !name[3] || strlen(name) > 9) return 0;
    for (const char *at = name + 3; *at; at++) {
        if (*at < '0' || *at > '9') return 0;
        k = 10 * k + (*at - '0');
    }
    return k;
}

/* Whether predicted and target answer the same questions, and are no classes. */
static bool are_questions(const loss_args *a) {
    const tutti_shape *x = &a->predicted->type.shape, *y = &a->target->type.shape;
    bool of_class = a->target->type.dtype == TUTTI_I32 && x->n_dims == y->n_dims + 1;
    return !of_class || x->dim[y->n_dims] == 1 || x->dim[1] == 1;
}

/* The fraction of questions that are answered right. */
static tutti_value *answers(const loss_args *a) {
    tutti_graph *g = a->g;
    tutti_value *t = like_prediction(a), *half = number(g, 0.5), *zero = number(g, 0);
    tutti_value *right = tutti_equal(g, tutti_less(g, zero, a->predicted), tutti_less(g, half, t));
    tutti_loss sum = sum_elements(a, right);
    return pair(g, sum.sum, sum.count);
}

static tutti_value *of_classes(const loss_args *a, const char *name) {
    class_rows rows;
    tutti_value *out[TTI_MAX_OUT] = {0};
    int64_t k = top_of(name);
    bool is_ratio = k > 0 || strcmp(name, "accuracy") == 0;
    if (!class_rows_of(a, &rows)) return NULL;
    if (rows.n_classes < 2) return refuse(a, "a logit for each class is needed").sum;
    tti_emit_n(a->g, "class_counts", NULL, (tutti_value *[]){rows.logits, rows.labels}, 2,
               (tti_attr_arg[]){TTI_INT("k", k > 0 ? k : 1), {0}}, out);
    return out[is_ratio ? 1 : 0];
}

/* i32 [N]: -1 where a row is missing. */
static tutti_value *presence_of(const loss_args *a) {
    tutti_value *row = by_sample(a->g, tutti_stop_gradient(a->g, a->predicted));
    if (a->present) return a->present;
    return tutti_cast(a->g, tutti_affine(a->g, row, 0, 0), TUTTI_I32);
}

/* Columns of values [R,T], and present [R]: other dimensions than two are one column. */
static bool columns_of(const loss_args *a, tutti_value **x, tutti_value **t, tutti_value **there) {
    tutti_graph *g = a->g;
    const tutti_shape *shape = &a->predicted->type.shape;
    int64_t n = tutti_shape_n_elems(shape), rows = TTI_MAX(rows_of(a->predicted), 1);
    int64_t width = shape->n_dims == 2 ? shape->dim[1] : 1, per_row = n / rows / TTI_MAX(width, 1);
    const tutti_shape flat = TUTTI_SHAPE(rows * per_row, width);
    tutti_value *target = like_prediction(a), *present = presence_of(a);
    *x = tutti_reshape(g, a->predicted, &flat);
    *t = tutti_reshape(g, target, &flat);
    if (per_row > 1) { /* each row of the batch has several */
        tutti_value *wide =
            tutti_reshape(g, tutti_cast(g, present, TUTTI_F32), &TUTTI_SHAPE(rows, 1));
        wide = tutti_broadcast_to(g, wide, &TUTTI_SHAPE(rows, per_row));
        present = tutti_cast(g, tutti_reshape(g, wide, &TUTTI_SHAPE(rows * per_row)), TUTTI_I32);
    }
    *there = present;
    return *x && *t && *there;
}

static tutti_value *of_values(const loss_args *a) {
    tutti_value *in[3];
    if (!columns_of(a, &in[0], &in[1], &in[2])) return NULL;
    return tti_emit(a->g, "value_sums", NULL, in, 3, NULL);
}

/* Scores and targets of all rows [R,2L]; the target of a missing row is -1. */
static tutti_value *of_curve(const loss_args *a) {
    tutti_graph *g = a->g;
    tutti_value *x, *t, *there;
    class_rows rows;
    if (are_questions(a)) {
        if (!columns_of(a, &x, &t, &there)) return NULL;
    } else {
        if (!class_rows_of(a, &rows)) return NULL;
        if (rows.n_classes != 2)
            return refuse(a, "auc needs two classes or yes-or-no questions").sum;
        tutti_value *no = tutti_slice(g, rows.logits, 1, 0, 1);
        x = tutti_sub(g, tutti_slice(g, rows.logits, 1, 1, 1), no);
        t = tutti_reshape(g, tutti_cast(g, rows.labels, TUTTI_F32), &TUTTI_SHAPE(-1, 1));
        there = rows.labels;
    }
    int64_t n = x ? rows_of(x) : 0;
    tutti_value *is_there = differs(g, tutti_cast(g, there, TUTTI_F32), -1);
    is_there = tutti_reshape(g, is_there, &TUTTI_SHAPE(n, 1));
    t = tutti_affine(g, tutti_keep(g, tutti_affine(g, t, 1, 1), is_there), 1, -1);
    return tutti_concat(g, (tutti_value *[]){x, t}, 2, 1);
}

/* The sum and the count of the plain cross entropy: [2]. */
static tutti_value *perplexity_of(const loss_args *a) {
    const tutti_loss_desc plain = {.ignores = a->desc->ignores, .ignore = a->desc->ignore};
    tutti_loss loss =
        tutti_loss_named(a->g, "cross_entropy", a->predicted, a->target, a->present, &plain);
    return pair(a->g, loss.sum, loss.count);
}

static tutti_value *metric_of(const loss_args *a) {
    static const char *const values[] = {"mae", "rmse", "r2"};
    for (size_t i = 0; i < TTI_COUNT(values); i++)
        if (strcmp(a->name, values[i]) == 0) return of_values(a);
    if (strcmp(a->name, "auc") == 0) return of_curve(a);
    if (strcmp(a->name, "perplexity") == 0) return perplexity_of(a);
    if (strcmp(a->name, "accuracy") == 0 && are_questions(a)) return answers(a);
    if (strcmp(a->name, "accuracy") == 0 || strcmp(a->name, "class_accuracy") == 0 ||
        strcmp(a->name, "miou") == 0 || top_of(a->name) > 0)
        return of_classes(a, a->name);
    return refuse(a,
                  "no metric has this name; there are accuracy, topK, class_accuracy, miou, auc, "
                  "mae, rmse, r2, perplexity")
        .sum;
}

bool tti_is_own_metric(const char *output) {
    return strncmp(output, TTI_OWN_METRIC, sizeof TTI_OWN_METRIC - 1) == 0;
}

int tti_n_own_metrics(const tutti_graph *g) {
    int n = 0;
    for (int i = 0; i < g->n_outputs; i++) n += tti_is_own_metric(g->outputs[i].name);
    return n;
}

bool tti_is_step_sum(const char *output) {
    static const char *const names[] = {"loss_sum", "count", "correct"};
    for (size_t i = 0; i < TTI_COUNT(names); i++)
        if (strcmp(output, names[i]) == 0) return true;
    return tti_is_own_metric(output);
}

/* Adds the output prefix + name. */
static void give_metric(tutti_graph *g, const char *prefix, const char *name, tutti_value *value) {
    char text[TTI_MAX_NAME];
    size_t n = strlen(name);
    bool is_text = n > 0 && n <= 64;
    for (const char *at = name; *at; at++)
        is_text = is_text && (unsigned char)*at > ' ' && *at != ',' && *at != '=';
    if (!value) return; /* sticky */
    snprintf(text, sizeof text, "%s%s", prefix, name);
    if (!is_text)
        tutti_graph_refuse(g, "a metric needs a name of 1 to 64 characters without spaces");
    else if (tti_graph_output(g, text))
        tti_build_fail(g, "two metrics have the name '%s'", name);
    else
        tutti_output(g, text, value);
}

void tutti_add_metric_named(tutti_graph *g, const char *name, tutti_value *predicted,
                            tutti_value *target, tutti_value *present,
                            const tutti_loss_desc *desc) {
    static const tutti_loss_desc defaults;
    loss_args a = {g, name, predicted, target, present, desc ? desc : &defaults};
    if (!g || tti_graph_is_training(g) || !predicted || !target || tutti_graph_check(g) != TUTTI_OK)
        return;
    if (!has_rows(predicted) || !has_rows(target) || rows_of(predicted) != rows_of(target) ||
        predicted->type.dtype != TUTTI_F32)
        refuse(&a, "an f32 prediction with a row for each sample is needed");
    else
        give_metric(g, "metric.", name, metric_of(&a));
}

void tutti_add_metric(tutti_graph *g, const char *name, tutti_value *sum, tutti_value *count) {
    if (!g || !sum || !count) return;
    if (sum->type.dtype != TUTTI_F32 || count->type.dtype != TUTTI_F32 ||
        tutti_shape_n_elems(&sum->type.shape) != 1 || tutti_shape_n_elems(&count->type.shape) != 1)
        tti_build_fail(g, "metric '%s': sum and count must be f32 with one element", name);
    else if (tti_n_own_metrics(g) == TTI_MAX_OWN_METRICS)
        tti_build_fail(g, "metric '%s': a model has at most %d metrics of its own", name,
                       TTI_MAX_OWN_METRICS);
    else
        give_metric(g, TTI_OWN_METRIC, name, pair(g, sum, count));
}

/* ---- a model's own ---- */

void tutti_set_loss(tutti_graph *g, tutti_loss loss) {
    if (!loss.sum || !loss.count) return;
    tutti_output(g, "loss_sum", loss.sum);
    tutti_output(g, "count", loss.count);
    tutti_output(g, "correct", loss.correct ? loss.correct : loss.count);
}

tutti_value *tutti_find_field(tutti_graph *g, const char *name) {
    char text[TTI_MAX_NAME];
    if (!g || !name) return NULL;
    snprintf(text, sizeof text, "field.%s", name);
    const tti_node *node = tti_graph_find_source(g, text);
    const tti_node *x = tti_graph_find_source(g, "x"); /* there are no fields */
    if (x && strcmp(name, "x") == 0) node = x;
    if (x && strcmp(name, "y") == 0) node = tti_graph_find_source(g, "target");
    if (node && strcmp(node->name, "target") == 0 && tti_graph_mixes_labels(g))
        return tutti_graph_refuse(g,
                                  "data.mixup: the model reads the labels y, but a mixed sample "
                                  "has those of two samples; give data.mixup=0");
    if (node) return node->out[0];
    snprintf(text, sizeof text, "samples have no field '%s'", name);
    return tutti_graph_refuse(g, text);
}

tutti_value *tutti_find_present(tutti_graph *g) {
    const tti_node *node = g ? tti_graph_find_source(g, "target") : NULL;
    if (!node) return NULL;
    tutti_value *target = node->out[0];
    tutti_axes rest = {0};
    for (int d = 1; d < target->type.shape.n_dims; d++) rest.axis[rest.n++] = d;
    if (rest.n == 0) return target;
    tutti_value *zero = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 0);
    tutti_value *largest = tutti_max(g, tutti_cast(g, target, TUTTI_F32), &rest);
    return tutti_cast(g, tutti_minimum(g, largest, zero), TUTTI_I32);
}
