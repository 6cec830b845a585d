/* optim.c - one optimizer step: new weights and state from old ones and a summed gradient.
 *
 * Every output k replaces input k in memory (TTI_UPDATE).  Values that change from step to step
 * come in the input hyper, so that the plan stays the same: hyper = {lr, inv_count, clip_scale,
 * step, bias1, bias2, inv_rows, 0} bias1 = 1 - beta1^step, bias2 = 1 - beta2^step, step counts from
 * 1.  The gradient is a sum over samples; it is multiplied by inv_count and by clip_scale first.
 * The order of inputs is: weights, states, gradient, hyper, norms. norms (TTI_NORMS) is f32[2],
 * {|w|, |step|} over the whole tensor, of which a block here is a part: the step is the scaled
 * gradient (lars) or the result of lamb_direction (lamb).  Every optimizer has the attribute decay.
 */
#include <math.h>

#include "ops/rules.h"

enum { LR, INV_COUNT, CLIP_SCALE, STEP, BIAS1, BIAS2, INV_ROWS, N_HYPER = 8 };

static const tti_attr_spec sgd_attrs[] = {
    {"momentum", TTI_ATTR_FLOAT, 0, "0 <= momentum < 1"},
    {"nesterov", TTI_ATTR_INT, 0, "1: Nesterov momentum"},
    {"decay", TTI_ATTR_FLOAT, 0, "weight decay: times w, added to the gradient"},
    {0},
};
static const tti_attr_spec adam_attrs[] = {
    {"beta1", TTI_ATTR_FLOAT, 0.9, "decay of the mean of the gradient"},
    {"beta2", TTI_ATTR_FLOAT, 0.999, "decay of the mean of its square"},
    {"eps", TTI_ATTR_FLOAT, 1e-8, "added to the square root"},
    {"decay", TTI_ATTR_FLOAT, 0, "adam: times w, added to the gradient; adamw: times lr w"},
    {0},
};

static bool has_norms(const tti_node *node) { return (node->op->traits & TTI_NORMS) != 0; }

/* The input index of hyper. */
static int hyper_at(const tti_node *node) { return node->n_in - (has_norms(node) ? 2 : 1); }

/* Input i is f32[n]. */
static tutti_status need_vector(const tti_node *node, int i, const char *name, int n) {
    TTI_TRY(tti_need_dtype(node, i, TUTTI_F32));
    TTI_TRY(tti_need_n_dims(node, i, 1));
    if (tti_in_dim(node, i, 0) == n) return TUTTI_OK;
    return tti_node_fail(node, "%s needs %d elements, has %lld", name, n,
                         (long long)tti_in_dim(node, i, 0));
}

/* Weights, states and gradient have the same type; output k has the type of input k. */
static tutti_status update_infer(const tti_node *node, tutti_type *out) {
    int hyper = hyper_at(node);
    TTI_TRY(tti_need_floats(node, 0, hyper));
    for (int i = 1; i < hyper; i++) TTI_TRY(tti_need_same_shape(node, 0, i));
    TTI_TRY(need_vector(node, hyper, "hyper", N_HYPER));
    if (has_norms(node)) TTI_TRY(need_vector(node, hyper + 1, "norms", 2));
    for (int k = 0; k < node->op->n_out; k++) out[k] = node->in[k]->type;
    return TUTTI_OK;
}

/* lo <= the attribute < hi, and not NaN. */
static tutti_status check_attr(const tti_node *node, const char *name, double lo, double hi) {
    double x = tti_attr_float(node, name);
    if (x >= lo && x < hi) return TUTTI_OK;
    return tti_node_fail(node, "%s must be >= %g and < %g, is %g", name, lo, hi, x);
}

static tutti_status sgd_infer(const tti_node *node, tutti_type *out) {
    int64_t nesterov = tti_attr_int(node, "nesterov");
    TTI_TRY(check_attr(node, "momentum", 0, 1));
    TTI_TRY(check_attr(node, "decay", 0, INFINITY));
    if (nesterov != 0 && nesterov != 1)
        return tti_node_fail(node, "nesterov must be 0 or 1, is %lld", (long long)nesterov);
    return update_infer(node, out);
}

static tutti_status adam_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_attr(node, "beta1", 0, 1));
    TTI_TRY(check_attr(node, "beta2", 0, 1));
    TTI_TRY(check_attr(node, "eps", 0, INFINITY));
    TTI_TRY(check_attr(node, "decay", 0, INFINITY));
    return update_infer(node, out);
}

/* Inputs w, m, g, hyper. */
static void sgd_reference(const tti_args *a) {
    const double *w = a->in[0], *m = a->in[1], *hyper = a->in[3];
    double momentum = tti_attr_float(a->node, "momentum"), decay = tti_attr_float(a->node, "decay");
    bool nesterov = tti_attr_int(a->node, "nesterov") != 0;
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++) {
        double g = a->in[2][i] * hyper[INV_COUNT] * hyper[CLIP_SCALE] + decay * w[i];
        double mean = momentum * m[i] + g;
        a->out[0][i] = w[i] - hyper[LR] * (nesterov ? g + momentum * mean : mean);
        a->out[1][i] = mean;
    }
}

/* Inputs w, m, v, g, hyper.  decoupled: decay acts on w itself (Loshchilov & Hutter 2019). */
static void adam_update(const tti_args *a, bool decoupled) {
    const double *m = a->in[1], *v = a->in[2], *hyper = a->in[4];
    double b1 = tti_attr_float(a->node, "beta1"), b2 = tti_attr_float(a->node, "beta2");
    double eps = tti_attr_float(a->node, "eps"), decay = tti_attr_float(a->node, "decay");
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++) {
        double w = a->in[0][i], g = a->in[3][i] * hyper[INV_COUNT] * hyper[CLIP_SCALE];
        if (decoupled)
            w *= 1 - hyper[LR] * decay;
        else
            g += decay * w;
        double mean = b1 * m[i] + (1 - b1) * g, square = b2 * v[i] + (1 - b2) * g * g;
        double root = sqrt(square) / sqrt(hyper[BIAS2]) + eps;
        a->out[0][i] = w - hyper[LR] / hyper[BIAS1] * mean / root;
        a->out[1][i] = mean;
        a->out[2][i] = square;
    }
}

static void adam_reference(const tti_args *a) { adam_update(a, false); }
static void adamw_reference(const tti_args *a) { adam_update(a, true); }

/* ---- rmsprop (Tieleman & Hinton 2012), PyTorch's: eps outside the root ---- */

static const tti_attr_spec rmsprop_attrs[] = {
    {"alpha", TTI_ATTR_FLOAT, 0.99, "decay of the mean of the gradient's square"},
    {"eps", TTI_ATTR_FLOAT, 1e-8, "added to the square root"},
    {"momentum", TTI_ATTR_FLOAT, 0, "0 <= momentum < 1"},
    {"decay", TTI_ATTR_FLOAT, 0, "weight decay: times w, added to the gradient"},
    {0},
};

static tutti_status rmsprop_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_attr(node, "alpha", 0, 1));
    TTI_TRY(check_attr(node, "eps", 0, INFINITY));
    TTI_TRY(check_attr(node, "momentum", 0, 1));
    TTI_TRY(check_attr(node, "decay", 0, INFINITY));
    return update_infer(node, out);
}

/* Inputs w, v, m, g, hyper. */
static void rmsprop_reference(const tti_args *a) {
    const double *hyper = a->in[4];
    double alpha = tti_attr_float(a->node, "alpha"), eps = tti_attr_float(a->node, "eps");
    double momentum = tti_attr_float(a->node, "momentum"), decay = tti_attr_float(a->node, "decay");
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++) {
        double w = a->in[0][i];
        double g = a->in[3][i] * hyper[INV_COUNT] * hyper[CLIP_SCALE] + decay * w;
        double square = alpha * a->in[1][i] + (1 - alpha) * g * g;
        double mean = momentum * a->in[2][i] + g / (sqrt(square) + eps);
        a->out[0][i] = w - hyper[LR] * mean;
        a->out[1][i] = square;
        a->out[2][i] = mean;
    }
}

/* ---- adagrad (Duchi, Hazan & Singer 2011) ---- */

static const tti_attr_spec adagrad_attrs[] = {
    {"eps", TTI_ATTR_FLOAT, 1e-10, "added to the square root"},
    {"lr_decay", TTI_ATTR_FLOAT, 0, "the rate is lr / (1 + (step - 1) lr_decay)"},
    {"decay", TTI_ATTR_FLOAT, 0, "weight decay: times w, added to the gradient"},
    {0},
};

static tutti_status adagrad_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_attr(node, "eps", 0, INFINITY));
    TTI_TRY(check_attr(node, "lr_decay", 0, INFINITY));
    TTI_TRY(check_attr(node, "decay", 0, INFINITY));
    return update_infer(node, out);
}

/* Inputs w, v, g, hyper; v is the sum of squares. */
static void adagrad_reference(const tti_args *a) {
    const double *hyper = a->in[3];
    double eps = tti_attr_float(a->node, "eps"), decay = tti_attr_float(a->node, "decay");
    double lr = hyper[LR] / (1 + (hyper[STEP] - 1) * tti_attr_float(a->node, "lr_decay"));
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++) {
        double w = a->in[0][i];
        double g = a->in[2][i] * hyper[INV_COUNT] * hyper[CLIP_SCALE] + decay * w;
        double sum = a->in[1][i] + g * g;
        a->out[0][i] = w - lr * g / (sqrt(sum) + eps);
        a->out[1][i] = sum;
    }
}

/* ---- lion (Chen et al. 2023): only the sign of a mean is used ---- */

static const tti_attr_spec lion_attrs[] = {
    {"beta1", TTI_ATTR_FLOAT, 0.9, "weight of the mean in the step, which is the sign of the sum"},
    {"beta2", TTI_ATTR_FLOAT, 0.99, "decay of the stored mean"},
    {"decay", TTI_ATTR_FLOAT, 0, "weight decay: times lr w, subtracted from the weights"},
    {0},
};

static tutti_status lion_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_attr(node, "beta1", 0, 1));
    TTI_TRY(check_attr(node, "beta2", 0, 1));
    TTI_TRY(check_attr(node, "decay", 0, INFINITY));
    return update_infer(node, out);
}

/* Inputs w, m, g, hyper. */
static void lion_reference(const tti_args *a) {
    const double *m = a->in[1], *hyper = a->in[3];
    double b1 = tti_attr_float(a->node, "beta1"), b2 = tti_attr_float(a->node, "beta2");
    double decay = tti_attr_float(a->node, "decay");
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++) {
        double g = a->in[2][i] * hyper[INV_COUNT] * hyper[CLIP_SCALE];
        double mean = b1 * m[i] + (1 - b1) * g, w = a->in[0][i] * (1 - hyper[LR] * decay);
        double sign = mean > 0 ? 1 : mean < 0 ? -1 : mean; /* NaN stays NaN */
        a->out[0][i] = w - hyper[LR] * sign;
        a->out[1][i] = b2 * m[i] + (1 - b2) * g;
    }
}

/* ---- lars (You, Gitman & Ginsburg 2017): momentum with a separate rate for each tensor ---- */

static const tti_attr_spec lars_attrs[] = {
    {"momentum", TTI_ATTR_FLOAT, 0.9, "0 <= momentum < 1"},
    {"decay", TTI_ATTR_FLOAT, 0, "weight decay: times w, added to the gradient"},
    {"trust", TTI_ATTR_FLOAT, 0.001, "factor of |w| / (|g| + decay |w| + eps)"},
    {"eps", TTI_ATTR_FLOAT, 1e-8, "added to the norms"},
    {0},
};

static tutti_status lars_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_attr(node, "momentum", 0, 1));
    TTI_TRY(check_attr(node, "decay", 0, INFINITY));
    TTI_TRY(check_attr(node, "trust", 0, INFINITY));
    TTI_TRY(check_attr(node, "eps", 0, INFINITY));
    return update_infer(node, out);
}

/* Inputs w, m, g, hyper, norms; norms[1] = |g inv_count clip_scale|. */
static void lars_reference(const tti_args *a) {
    const double *hyper = a->in[3], *norms = a->in[4];
    double momentum = tti_attr_float(a->node, "momentum"), decay = tti_attr_float(a->node, "decay");
    double trust = tti_attr_float(a->node, "trust"), eps = tti_attr_float(a->node, "eps");
    double rate =
        norms[0] > 0 && norms[1] > 0 ? trust * norms[0] / (norms[1] + decay * norms[0] + eps) : 1;
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++) {
        double w = a->in[0][i];
        double g = a->in[2][i] * hyper[INV_COUNT] * hyper[CLIP_SCALE] + decay * w;
        double mean = momentum * a->in[1][i] + rate * g;
        a->out[0][i] = w - hyper[LR] * mean;
        a->out[1][i] = mean;
    }
}

/* ---- lamb (You et al. 2020): Adam's direction with a separate rate for each tensor ---- */

static const tti_attr_spec lamb_attrs[] = {
    {"beta1", TTI_ATTR_FLOAT, 0.9, "decay of the mean of the gradient"},
    {"beta2", TTI_ATTR_FLOAT, 0.999, "decay of the mean of its square"},
    {"eps", TTI_ATTR_FLOAT, 1e-6, "added to the square root"},
    {"decay", TTI_ATTR_FLOAT, 0, "weight decay: times w, added to the direction"},
    {0},
};

/* The new states of element i and the direction r of its step. */
static double lamb_element(const tti_args *a, size_t i, double *mean, double *square) {
    const double *hyper = a->in[4];
    double b1 = tti_attr_float(a->node, "beta1"), b2 = tti_attr_float(a->node, "beta2");
    double g = a->in[3][i] * hyper[INV_COUNT] * hyper[CLIP_SCALE];
    *mean = b1 * a->in[1][i] + (1 - b1) * g;
    *square = b2 * a->in[2][i] + (1 - b2) * g * g;
    double root = sqrt(*square / hyper[BIAS2]) + tti_attr_float(a->node, "eps");
    return *mean / hyper[BIAS1] / root + tti_attr_float(a->node, "decay") * a->in[0][i];
}

/* Inputs w, m, v, g, hyper, norms; norms[1] = |r|. */
static void lamb_reference(const tti_args *a) {
    const double *norms = a->in[5];
    double ratio = norms[0] > 0 && norms[1] > 0 ? norms[0] / norms[1] : 1;
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++)
        a->out[0][i] =
            a->in[0][i] - a->in[4][LR] * ratio * lamb_element(a, i, &a->out[1][i], &a->out[2][i]);
}

/* Inputs w, m, v, g, hyper; changes nothing. */
static void lamb_direction_reference(const tti_args *a) {
    double mean, square;
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++) a->out[0][i] = lamb_element(a, i, &mean, &square);
}

/* ---- what follows the weights: buffers and averages ---- */

static const tti_attr_spec buffer_attrs[] = {
    {"momentum", TTI_ATTR_FLOAT, 0.1, "weight of the new value, 0 <= momentum <= 1"},
    {0},
};
static const tti_attr_spec ema_attrs[] = {
    {"decay", TTI_ATTR_FLOAT, 0.999, "weight of the old value, 0 <= decay <= 1"}, {0}};

static tutti_status buffer_update_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_attr(node, "momentum", 0, nextafter(1, 2)));
    return update_infer(node, out);
}

/* Inputs w, g, hyper. */
static void buffer_update_reference(const tti_args *a) {
    double momentum = tti_attr_float(a->node, "momentum"), inv_rows = a->in[2][INV_ROWS];
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++)
        a->out[0][i] = (1 - momentum) * a->in[0][i] + momentum * a->in[1][i] * inv_rows;
}

static tutti_status ema_infer(const tti_node *node, tutti_type *out) {
    TTI_TRY(check_attr(node, "decay", 0, nextafter(1, 2)));
    return tti_infer_same(node, out);
}

/* Inputs the average and w. */
static void ema_reference(const tti_args *a) {
    double decay = tti_attr_float(a->node, "decay");
    size_t n = tti_in_n(a->node, 0);
    for (size_t i = 0; i < n; i++) a->out[0][i] = decay * a->in[0][i] + (1 - decay) * a->in[1][i];
}

/* ---- shard and cost ---- */

/* Weights, states and gradient may be divided in the same way; hyper and norms are whole. */
static tutti_status update_shard(const tti_node *node, const tti_placement *in,
                                 tti_placement *out) {
    char codes[TTI_MAX_IN + 1] = "";
    const tti_shard_rule rule = {codes, "aaaaaaaa"};
    for (int i = 0; i < node->n_in; i++) codes[i] = i < hyper_at(node) ? 'a' : 'W';
    return tti_shard_match(
        node, &rule, 1, in, out,
        "weights, state and gradient must be split alike, and the gradient summed");
}

static void update_cost(const tti_node *node, tti_cost *cost) {
    tti_cost_flops(node, (node->n_in == 4 ? 7.0 : 15.0) * (double)tti_out_n(node, 0), cost);
}

/* ---- records ---- */

static const tti_sample sgd_samples[] = {
    {.in = "f32[4,6] f32[4,6] f32[4,6] f32[8]",
     .lo = 0.1,
     .hi = 1,
     .attrs = "momentum=0.9 decay=0.01"},
    {.in = "f32[5] f32[5] f32[5] f32[8]", .lo = 0.1, .hi = 1, .attrs = "momentum=0.5 nesterov=1"},
    {.in = "f32[1] f32[1] f32[1] f32[8]", .lo = 0.1, .hi = 1},
    {.in = "f32[0] f32[0] f32[0] f32[8]", .lo = 0.1, .hi = 1},
    {.in = "f32[4] f32[4] f32[5] f32[8]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4] f32[4] f32[4] f32[7]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4] f32[4] f32[4] f32[8]", .attrs = "momentum=1", .expect = TUTTI_E_INVALID},
    {.in = "f32[4] f32[4] f32[4] f32[8]", .attrs = "nesterov=2", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample adam_samples[] = {
    {.in = "f32[4,6] f32[4,6] f32[4,6] f32[4,6] f32[8]", .lo = 0.1, .hi = 1, .attrs = "decay=0.01"},
    {.in = "f32[5] f32[5] f32[5] f32[5] f32[8]",
     .lo = 0.1,
     .hi = 1,
     .attrs = "beta1=0.8 beta2=0.95 eps=1e-6"},
    {.in = "f32[1] f32[1] f32[1] f32[1] f32[8]", .lo = 0.1, .hi = 1},
    {.in = "f32[0] f32[0] f32[0] f32[0] f32[8]", .lo = 0.1, .hi = 1},
    {.in = "f32[4] f32[4] f32[5] f32[4] f32[8]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4] f32[4] f32[4] f32[4] f32[]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4] f32[4] f32[4] f32[4] f32[8]", .attrs = "beta2=1", .expect = TUTTI_E_INVALID},
    {.in = "f32[4] f32[4] f32[4] f32[4] f32[8]", .attrs = "eps=-1", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample rmsprop_samples[] = {
    {.in = "f32[4,6] f32[4,6] f32[4,6] f32[4,6] f32[8]",
     .lo = 0.1,
     .hi = 1,
     .attrs = "momentum=0.9 decay=0.01"},
    {.in = "f32[5] f32[5] f32[5] f32[5] f32[8]", .lo = 0.1, .hi = 1, .attrs = "alpha=0.9 eps=0.1"},
    {.in = "f32[0] f32[0] f32[0] f32[0] f32[8]", .lo = 0.1, .hi = 1},
    {.in = "f32[4] f32[4] f32[4] f32[8]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4] f32[4] f32[4] f32[4] f32[8]", .attrs = "alpha=1", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample adagrad_samples[] = {
    {.in = "f32[4,6] f32[4,6] f32[4,6] f32[8]",
     .lo = 0.1,
     .hi = 1,
     .attrs = "decay=0.01 lr_decay=0.1"},
    {.in = "f32[1] f32[1] f32[1] f32[8]", .lo = 0.1, .hi = 1},
    {.in = "f32[4] f32[4] f32[4,1] f32[8]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4] f32[4] f32[4] f32[8]", .attrs = "lr_decay=-1", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample lion_samples[] = {
    {.in = "f32[4,6] f32[4,6] f32[4,6] f32[8]", .attrs = "decay=0.01"},
    {.in = "f32[5] f32[5] f32[5] f32[8]", .attrs = "beta1=0.5 beta2=0.5"},
    {.in = "f32[0] f32[0] f32[0] f32[8]"},
    {.in = "f32[4] f32[4] f32[4] f32[2]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4] f32[4] f32[4] f32[8]", .attrs = "beta1=1", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample lars_samples[] = {
    {.in = "f32[4,6] f32[4,6] f32[4,6] f32[8] f32[2]",
     .lo = 0.1,
     .hi = 1,
     .attrs = "decay=0.01 trust=0.1"},
    {.in = "f32[5] f32[5] f32[5] f32[8] f32[2]", .lo = -1, .hi = -0.1}, /* no norms: plain sgd */
    {.in = "f32[4] f32[4] f32[4] f32[8] f32[3]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4] f32[4] f32[4] f32[8]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4] f32[4] f32[4] f32[8] f32[2]", .attrs = "trust=-1", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample lamb_samples[] = {
    {.in = "f32[4,6] f32[4,6] f32[4,6] f32[4,6] f32[8] f32[2]",
     .lo = 0.1,
     .hi = 1,
     .attrs = "decay=0.01"},
    {.in = "f32[5] f32[5] f32[5] f32[5] f32[8] f32[2]",
     .lo = 0.1,
     .hi = 1,
     .attrs = "beta1=0.8 beta2=0.95"},
    {.in = "f32[4] f32[4] f32[4] f32[4] f32[8]", .expect = TUTTI_E_INVALID},
    {.in = "f32[4] f32[4] f32[4] f32[4] f32[8] f32[2]",
     .attrs = "beta2=1",
     .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample buffer_update_samples[] = {
    {.in = "f32[4,6] f32[4,6] f32[8]"},
    {.in = "f32[5] f32[5] f32[8]", .attrs = "momentum=1"},
    {.in = "f32[5] f32[5] f32[8]", .attrs = "momentum=1.5", .expect = TUTTI_E_INVALID},
    {.in = "f32[5] f32[6] f32[8]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample ema_samples[] = {
    {.in = "f32[4,6] f32[4,6]"},
    {.in = "f32[5] f32[5]", .attrs = "decay=0"},
    {.in = "f32[5] f32[5]", .attrs = "decay=1.01", .expect = TUTTI_E_INVALID},
    {.in = "f32[5] f32[6]", .expect = TUTTI_E_INVALID},
    {0},
};

enum { UPDATE_TRAITS = TTI_UPDATE | TTI_ELEMENTWISE };

/* The common fields of optimizer records; n inputs, the first `outputs` of which are replaced. */
#define UPDATE(op_name, op_doc, n, outputs)                                          \
    .name = #op_name, .doc = op_doc, .n_in_min = n, .n_in_max = n, .n_out = outputs, \
    .shard = update_shard, .cost = update_cost, .reference = op_name##_reference

const tti_op tti_ops_optim[] = {
    {UPDATE(sgd, "m = momentum m + g; w -= lr m, or lr (g + momentum m) (Nesterov)", 4, 2),
     .attrs = sgd_attrs, .traits = UPDATE_TRAITS, .infer = sgd_infer, .samples = sgd_samples},
    {UPDATE(adam, "Adam (Kingma & Ba 2015); weight decay is added to the gradient", 5, 3),
     .attrs = adam_attrs, .traits = UPDATE_TRAITS, .infer = adam_infer, .samples = adam_samples},
    {UPDATE(adamw, "AdamW: Adam with weight decay apart from the gradient", 5, 3),
     .attrs = adam_attrs, .traits = UPDATE_TRAITS, .infer = adam_infer, .samples = adam_samples},
    {UPDATE(rmsprop, "v = mean g^2; m = momentum m + g / (sqrt v + eps); w -= lr m", 5, 3),
     .attrs = rmsprop_attrs, .traits = UPDATE_TRAITS, .infer = rmsprop_infer,
     .samples = rmsprop_samples},
    {UPDATE(adagrad, "v += g^2; w -= lr g / (sqrt v + eps)", 4, 2), .attrs = adagrad_attrs,
     .traits = UPDATE_TRAITS, .infer = adagrad_infer, .samples = adagrad_samples},
    {UPDATE(lion, "w -= lr sign(mean of beta1) + lr decay w; m = mean of beta2", 4, 2),
     .attrs = lion_attrs, .traits = UPDATE_TRAITS, .infer = lion_infer, .samples = lion_samples},
    {UPDATE(lars,
            "m = momentum m + rate (g + decay w), rate = trust |w| / (|g| + decay |w| + eps); "
            "w -= lr m; the last input is {|w|, |g|}",
            5, 2),
     .attrs = lars_attrs, .traits = UPDATE_TRAITS | TTI_NORMS, .infer = lars_infer,
     .samples = lars_samples},
    {UPDATE(lamb, "w -= lr |w| / |r| r, r by lamb_direction; the last input is {|w|, |r|}", 6, 3),
     .attrs = lamb_attrs, .traits = UPDATE_TRAITS | TTI_NORMS, .infer = adam_infer,
     .samples = lamb_samples},
    {UPDATE(lamb_direction,
            "r = mhat / (sqrt vhat + eps) + decay w of new m and v, which are not stored", 5, 1),
     .attrs = lamb_attrs, .traits = TTI_ELEMENTWISE, .infer = adam_infer, .samples = adam_samples},
    {UPDATE(buffer_update, "w = (1 - momentum) w + momentum g inv_rows", 3, 1),
     .attrs = buffer_attrs, .traits = UPDATE_TRAITS, .infer = buffer_update_infer,
     .samples = buffer_update_samples},
    {.name = "ema",
     .doc = "a = decay a + (1 - decay) w; inputs a, w",
     .n_in_min = 2,
     .n_in_max = 2,
     .n_out = 1,
     .shard = tti_shard_same,
     .cost = tti_cost_elementwise,
     .reference = ema_reference,
     .attrs = ema_attrs,
     .traits = UPDATE_TRAITS,
     .infer = ema_infer,
     .samples = ema_samples},
    {0},
};
