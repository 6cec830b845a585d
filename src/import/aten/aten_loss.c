/* aten_loss.c - PyTorch's loss functions, for models that compute their own loss.
 *
 * A mean is over the present rows of the shard; padding adds nothing to a sum. */
#include "base/error.h"
#include "import/aten/aten.h"

enum { NONE, MEAN, SUM }; /* reduction */

static int reduction_at(tti_building *b, const tti_call *c, int k) {
    int64_t reduction = tti_int_at(b, c, k);
    if (reduction < NONE || reduction > SUM) tti_refuse(b, "the reduction is not 0, 1 or 2");
    return (int)reduction;
}

static unsigned all_dims(const tutti_value *x) {
    return (1u << tutti_value_type(x).shape.n_dims) - 1;
}

/* Sums the elements of x that belong to present samples. */
static tutti_value *present_sum(tti_building *b, tutti_value *x) {
    return tutti_sum(tti_graph_of(b), tti_present_in(b, x, all_dims(x)), NULL);
}

/* Divides sum by the sum of weight. */
static tutti_value *per_weight(tti_building *b, tutti_value *sum, tutti_value *weight) {
    tutti_graph *g = tti_graph_of(b);
    tutti_value *least = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1e-30);
    return tutti_div(g, sum, tutti_maximum(g, tutti_sum(g, weight, NULL), least));
}

/* Divides the sum of terms by the sum of weight, which has their shape, or (NULL) by their
 * number. */
static tutti_value *mean_of(tti_building *b, tutti_value *sum, const tutti_value *terms,
                            tutti_value *weight) {
    const tutti_batch at = tti_batch_of(b, terms);
    if (weight) return per_weight(b, sum, tti_present_at(b, weight, &at, all_dims(terms)));
    return tti_per_present(b, sum, terms, all_dims(terms));
}

/* Sets the result to the terms, their sum or their mean. weight: of each term; NULL: 1. */
static void reduce_terms(tti_building *b, const tti_call *c, tutti_value *terms,
                         tutti_value *weight, int reduction) {
    if (!tti_good(b) || !terms) return;
    if (reduction == NONE) {
        tti_set_value(b, c->out[0], terms, TTI_ELEM_F32, true);
        return;
    }
    tutti_value *sum = present_sum(b, terms);
    if (reduction == MEAN) sum = mean_of(b, sum, terms, weight);
    tti_set_value(b, c->out[0], sum, TTI_ELEM_F32, false);
}

/* ---- losses of two values ---- */

static bool same_shape(const tti_operand *x, const tti_operand *y) {
    tutti_shape a = tti_shape_of(x), b = tti_shape_of(y);
    bool same = a.n_dims == b.n_dims;
    for (int d = 0; d < a.n_dims && same; d++) same = a.dim[d] == b.dim[d];
    return same;
}

/* Returns the value of an operand. A constant may differ between samples if it is compared between
 * them, such as row indices. */
static tutti_value *compared(tti_building *b, const tti_operand *x) {
    bool joins = x->kind == TTI_OPERAND_HOST && tti_has_padding(b);
    return tti_as_float(b, joins ? tti_value_of(b, x) : tti_batch_value(b, x));
}

typedef struct pair {
    tutti_value *x, *t;
} pair;

static pair pair_at(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *t = tti_operand_at(b, c, 1);
    pair p = {compared(b, x), compared(b, t)};
    if (tti_good(b) && !same_shape(x, t))
        tti_refuse(b, "the prediction and its target differ in shape");
    return p;
}

static void mse_loss(tti_building *b, const tti_call *c) {
    pair p = pair_at(b, c);
    reduce_terms(b, c, tutti_square(tti_graph_of(b), tutti_sub(tti_graph_of(b), p.x, p.t)), NULL,
                 reduction_at(b, c, 2));
}

static void l1_loss(tti_building *b, const tti_call *c) {
    pair p = pair_at(b, c);
    reduce_terms(b, c, tutti_abs(tti_graph_of(b), tutti_sub(tti_graph_of(b), p.x, p.t)), NULL,
                 reduction_at(b, c, 2));
}

/* e^2/2 for errors below `bend`, and a line above. */
static tutti_value *huber(tti_building *b, const tti_call *c, double bend) {
    tutti_graph *g = tti_graph_of(b);
    pair p = pair_at(b, c);
    tutti_value *size = tutti_abs(g, tutti_sub(g, p.x, p.t));
    tutti_value *inner =
        tutti_minimum(g, size, tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, bend));
    return tutti_mul(g, inner, tutti_sub(g, size, tutti_affine(g, inner, 0.5, 0)));
}

static void huber_loss(tti_building *b, const tti_call *c) {
    reduce_terms(b, c, huber(b, c, tti_number_at(b, c, 3)), NULL, reduction_at(b, c, 2));
}

static void smooth_l1_loss(tti_building *b, const tti_call *c) {
    double beta = tti_number_at(b, c, 3);
    if (!(beta > 0)) {
        if (tti_good(b)) l1_loss(b, c);
        return;
    }
    tutti_value *terms = tutti_affine(tti_graph_of(b), huber(b, c, beta), 1 / beta, 0);
    reduce_terms(b, c, terms, NULL, reduction_at(b, c, 2));
}

/* ln(1 + e^x) without overflow. */
static tutti_value *softplus(tutti_graph *g, tutti_value *x) {
    tutti_value *tail = tutti_exp(g, tutti_neg(g, tutti_abs(g, x)));
    return tutti_add(g, tutti_maximum(g, x, tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 0)),
                     tutti_log(g, tutti_affine(g, tail, 1, 1)));
}

/* weight ((1 - t) x + (1 + (pos_weight - 1) t) ln(1 + e^-x)) */
static void bce_with_logits(tti_building *b, const tti_call *c) {
    tutti_graph *g = tti_graph_of(b);
    pair p = pair_at(b, c);
    tutti_value *log = softplus(g, tutti_neg(g, p.x));
    if (tti_has(c, 3)) {
        tutti_value *w = tti_as_float(b, tti_value_of(b, tti_operand_at(b, c, 3)));
        tutti_value *scale = tutti_mul(g, p.t, tutti_affine(g, w, 1, -1));
        log = tutti_mul(g, log, tutti_affine(g, scale, 1, 1));
    }
    tutti_value *terms = tutti_add(g, tutti_mul(g, tutti_affine(g, p.t, -1, 1), p.x), log);
    if (tti_has(c, 2))
        terms = tutti_mul(g, terms, tti_as_float(b, tti_value_of(b, tti_operand_at(b, c, 2))));
    reduce_terms(b, c, terms, NULL, reduction_at(b, c, 4));
}

/* t (ln t - x); with log_target: e^t (t - x). */
static void kl_div(tti_building *b, const tti_call *c) {
    tutti_graph *g = tti_graph_of(b);
    pair p = pair_at(b, c);
    tutti_value *least = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1e-38);
    bool is_log = tti_bool_at(b, c, 3);
    tutti_value *t = is_log ? tutti_exp(g, p.t) : p.t;
    tutti_value *log_t = is_log ? p.t : tutti_log(g, tutti_maximum(g, p.t, least));
    reduce_terms(b, c, tutti_mul(g, t, tutti_sub(g, log_t, p.x)), NULL, reduction_at(b, c, 2));
}

/* ---- losses of classes ---- */

/* Converts values [N,C,..] to rows [R,C] with the classes last. */
static tutti_value *class_rows(tti_building *b, tutti_value *x) {
    tutti_graph *g = tti_graph_of(b);
    const tutti_shape shape = tutti_value_type(x).shape;
    int perm[TUTTI_MAX_DIMS] = {0};
    if (!x || shape.n_dims < 2) return NULL;
    for (int d = 1; d < shape.n_dims; d++) perm[d] = d + 1 < shape.n_dims ? d + 1 : 1;
    if (shape.n_dims > 2) x = tutti_permute(g, x, perm, shape.n_dims);
    int64_t n_classes = shape.dim[1];
    return tutti_reshape(
        g, x, &TUTTI_SHAPE(tutti_shape_n_elems(&shape) / TTI_MAX(n_classes, 1), n_classes));
}

/* Reshapes sums over the classes [R] to [N,..]. */
static tutti_value *sum_classes(tutti_graph *g, tutti_value *x, const tutti_shape *to) {
    return tutti_reshape(g, tutti_sum(g, x, &(tutti_axes){.n = 1, .axis = {1}}), to);
}

/* Returns labels [N,..] as floats, with the shape of the operand; NULL: they are not supported. */
static tutti_value *labels_of(tti_building *b, const tti_call *c) {
    const tti_operand *t = tti_operand_at(b, c, 1);
    if (!tti_good(b)) return NULL;
    if (!tti_elem_is_float(tti_elem_of(t)) && tti_shape_of(t).n_dims >= 1) return compared(b, t);
    tti_refuse(b,
               "targets that are probabilities of another shape, or a single sample, are not "
               "supported");
    return NULL;
}

/* Returns 1 for rows whose label is not left_out, else 0. */
static tutti_value *kept_rows(tutti_graph *g, tutti_value *label, double left_out) {
    tutti_value *one = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1);
    return tutti_minimum(g, tutti_abs(g, tutti_affine(g, label, 1, -left_out)), one);
}

/* Returns i32 [R]: the label for rows whose kept is 1, else -1. */
static tutti_value *kept_labels(tutti_graph *g, tutti_value *label, tutti_value *kept, int64_t n) {
    label = tutti_affine(g, tutti_mul(g, tutti_affine(g, label, 1, 1), kept), 1, -1);
    return tutti_reshape(g, tutti_cast(g, label, TUTTI_I32), &TUTTI_SHAPE(n));
}

/* Returns the sum of a loss, or infinity if a kept label is not a class and the labels were not
 * checked before, so that the run ends instead of ignoring the label. label: f32 [R], -1 if kept is
 * 0. */
static tutti_value *checked(tti_building *b, const tti_call *c, tutti_value *sum,
                            tutti_value *label, tutti_value *kept, int64_t n_classes, int ignore) {
    tutti_graph *g = tti_graph_of(b);
    if (!tti_good(b) ||
        tti_record_labels(b, tti_operand_at(b, c, 1), n_classes, tti_int_at(b, c, ignore)))
        return sum;
    tutti_value *none = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 0);
    tutti_value *below = tutti_maximum(g, tutti_neg(g, label), none);
    tutti_value *above = tutti_maximum(g, tutti_affine(g, label, 1, 1 - (double)n_classes), none);
    tutti_value *bad = tutti_mul(g, tutti_add(g, below, above), kept);
    tutti_value *n_bad = present_sum(b, bad);
    tutti_value *log = tutti_log(g, tutti_maximum(g, tutti_affine(g, n_bad, -1, 1), none));
    return tutti_sub(g, sum, tutti_stop_gradient(g, log));
}

/* -sum(target log_p). Label smoothing distributes a fraction of the target over all classes. */
static void negative_likelihood(tti_building *b, const tti_call *c, tutti_value *log_p, int ignore,
                                int reduction, double smoothing) {
    tutti_graph *g = tti_graph_of(b);
    tutti_value *label = labels_of(b, c);
    if (!label || !log_p) return;
    tutti_shape shape = tutti_value_type(label).shape;
    int64_t n_classes = tutti_value_type(log_p).shape.dim[1], n = tutti_shape_n_elems(&shape);
    tutti_value *kept = kept_rows(g, label, (double)tti_int_at(b, c, ignore)), *given = label;
    label = kept_labels(g, label, kept, n);
    tutti_value *hot = tutti_one_hot(g, label, n_classes), *target = hot;
    tutti_value *column = tutti_reshape(g, kept, &TUTTI_SHAPE(n, 1));
    if (smoothing > 0)
        target = tutti_add(g, tutti_affine(g, hot, 1 - smoothing, 0),
                           tutti_affine(g, column, smoothing / (double)n_classes, 0));
    tutti_value *weight = kept;
    if (tti_has(c, 2)) {
        tutti_value *w = tti_as_float(b, tti_value_of(b, tti_operand_at(b, c, 2)));
        target = tutti_mul(g, target, w);
        weight = sum_classes(g, tutti_mul(g, hot, w), &shape);
    }
    tutti_value *terms = tutti_neg(g, sum_classes(g, tutti_mul(g, target, log_p), &shape));
    terms = checked(b, c, terms, given, kept, n_classes, ignore);
    reduce_terms(b, c, terms, weight, reduction);
}

/* Cross entropy without class weights, with the graph's op. The mean divides by the number of kept
 * rows, which is counted separately, so that the gradient is known before the loss. */
static void entropy_of_rows(tti_building *b, const tti_call *c, tutti_value *rows, int reduction) {
    tutti_graph *g = tti_graph_of(b);
    tutti_value *label = labels_of(b, c);
    if (!label || !rows) return;
    int64_t n = tutti_value_type(rows).shape.dim[0];
    const tutti_batch at = tti_batch_of(b, rows);
    tutti_value *kept = kept_rows(g, label, (double)tti_int_at(b, c, 4));
    tutti_value *there = tutti_reshape(g, kept, &TUTTI_SHAPE(n));
    there = tti_present_at(b, there, &at, 1u << 0);
    tutti_value *labels = kept_labels(g, tutti_reshape(g, label, &TUTTI_SHAPE(n)), there, n);
    tutti_value *sum = tutti_cross_entropy(g, rows, labels, tti_number_at(b, c, 5), -1).sum;
    sum = checked(b, c, sum, label, kept, tutti_value_type(rows).shape.dim[1], 4);
    if (reduction == MEAN) sum = per_weight(b, sum, there);
    tti_set_value(b, c->out[0], sum, TTI_ELEM_F32, false);
}

static bool has_probabilities(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *t = tti_operand_at(b, c, 1);
    return tti_elem_is_float(tti_elem_of(t)) && same_shape(x, t) && tti_shape_of(t).n_dims > 1;
}

/* Cross entropy with class probabilities as targets. The mean is over the rows, independent of
 * weights. */
static void entropy_of_probabilities(tti_building *b, const tti_call *c, tutti_value *rows,
                                     int reduction, double smoothing) {
    tutti_graph *g = tti_graph_of(b);
    tutti_shape shape = tti_shape_of(tti_operand_at(b, c, 0)), to = {0};
    for (int d = 0; d < shape.n_dims; d++)
        if (d != 1) to.dim[to.n_dims++] = shape.dim[d];
    tutti_value *target = class_rows(b, compared(b, tti_operand_at(b, c, 1)));
    if (smoothing > 0)
        target = tutti_affine(g, target, 1 - smoothing, smoothing / (double)shape.dim[1]);
    if (tti_has(c, 2))
        target = tutti_mul(g, target, tti_as_float(b, tti_value_of(b, tti_operand_at(b, c, 2))));
    tutti_value *terms = tutti_mul(g, target, tutti_log_softmax(g, rows, 1));
    reduce_terms(b, c, tutti_neg(g, sum_classes(g, terms, &to)), NULL, reduction);
}

/* Cross entropy. If the classes are the samples of the batch, padding has no weight. */
static void cross_entropy_loss(tti_building *b, const tti_call *c) {
    tutti_value *x = tti_as_float(b, tti_batch_value(b, tti_operand_at(b, c, 0)));
    int reduction = reduction_at(b, c, 3);
    double smoothing = tti_number_at(b, c, 5);
    if (!tti_good(b)) return;
    tutti_value *rows = class_rows(b, x);
    if (smoothing != 0 && tti_has_padding(b) && tti_sample_dims(b, rows, 1u << 1) != 0)
        tti_refuse(b, "label smoothing over the samples of the batch is not supported");
    rows = tti_fill_padding(b, rows, 1u << 1, -1e30);
    if (has_probabilities(b, c))
        entropy_of_probabilities(b, c, rows, reduction, smoothing);
    else if (reduction != NONE && !tti_has(c, 2))
        entropy_of_rows(b, c, rows, reduction);
    else
        negative_likelihood(b, c, tutti_log_softmax(tti_graph_of(b), rows, 1), 4, reduction,
                            smoothing);
}

static void nll_loss(tti_building *b, const tti_call *c) {
    tutti_value *x = tti_as_float(b, tti_batch_value(b, tti_operand_at(b, c, 0)));
    if (!tti_good(b)) return;
    negative_likelihood(b, c, class_rows(b, x), 4, reduction_at(b, c, 3), 0);
}

/* ---- the table ---- */

#define LOSS(name, arguments, fn) \
    { .target = "aten." name, .signature = arguments, .build = fn }

const tti_operator tti_operators_loss[] = {
    LOSS("mse_loss.default", "self target reduction=1", mse_loss),
    LOSS("l1_loss.default", "self target reduction=1", l1_loss),
    LOSS("huber_loss.default", "self target reduction=1 delta=1.0", huber_loss),
    LOSS("smooth_l1_loss.default", "self target reduction=1 beta=1.0", smooth_l1_loss),
    LOSS("binary_cross_entropy_with_logits.default",
         "self target weight=None pos_weight=None reduction=1", bce_with_logits),
    LOSS("kl_div.default", "self target reduction=1 log_target=False", kl_div),
    LOSS("cross_entropy_loss.default",
         "self target weight=None reduction=1 ignore_index=-100 label_smoothing=0.0",
         cross_entropy_loss),
    LOSS("nll_loss_nd.default", "self target weight=None reduction=1 ignore_index=-100", nll_loss),
    LOSS("nll_loss.default", "self target weight=None reduction=1 ignore_index=-100", nll_loss),
    {0},
};
