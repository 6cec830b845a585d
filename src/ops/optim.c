/* optim.c - one optimizer step: new weights and state from old ones and a summed gradient.
 *
 * Every output k replaces input k in memory (TTI_UPDATE).  What changes from step to step comes in
 * the input hyper, so that the plan stays the same:
 *   hyper = {lr, inv_count, clip_scale, step, bias1, bias2, 0, 0}
 *   bias1 = 1 - beta1^step, bias2 = 1 - beta2^step, step counts from 1
 * The gradient is a sum over samples; it is multiplied by inv_count and by clip_scale first. */
#include <math.h>

#include "ops/rules.h"

enum { LR, INV_COUNT, CLIP_SCALE, STEP, BIAS1, BIAS2, N_HYPER = 8 };

static const tti_attr_spec sgd_attrs[] = {
    {"momentum", TTI_ATTR_FLOAT, 0, "0 <= momentum < 1"},
    {"nesterov", TTI_ATTR_INT, 0, "1: look ahead along the momentum"},
    {"decay", TTI_ATTR_FLOAT, 0, "times w, added to the gradient"},
    {0},
};
static const tti_attr_spec adam_attrs[] = {
    {"beta1", TTI_ATTR_FLOAT, 0.9, "of the mean of the gradient"},
    {"beta2", TTI_ATTR_FLOAT, 0.999, "of the mean of its square"},
    {"eps", TTI_ATTR_FLOAT, 1e-8, "added to the root"},
    {"decay", TTI_ATTR_FLOAT, 0, "adam: times w, added to the gradient; adamw: times lr w"},
    {0},
};

/* All but the last input alike; out k has the type of in k. */
static tutti_status update_infer(const tti_node *node, tutti_type *out) {
    int last = node->n_in - 1;
    TTI_TRY(tti_need_floats(node, 0, last));
    for (int i = 1; i < last; i++) TTI_TRY(tti_need_same_shape(node, 0, i));
    TTI_TRY(tti_need_dtype(node, last, TUTTI_F32));
    TTI_TRY(tti_need_n_dims(node, last, 1));
    if (tti_in_dim(node, last, 0) != N_HYPER)
        return tti_node_fail(node, "hyper needs %d elements, has %lld", N_HYPER,
                             (long long)tti_in_dim(node, last, 0));
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

/* Weights, state and gradient may be cut alike; everybody has hyper. */
static tutti_status update_shard(const tti_node *node, const tti_placement *in,
                                 tti_placement *out) {
    static const tti_shard_rule sgd[] = {{"aaaW", "aa"}}, adam[] = {{"aaaaW", "aaa"}};
    return tti_shard_match(node, node->n_in == 4 ? sgd : adam, 1, in, out,
                           "weights, state and gradient must be cut alike, the gradient summed");
}

static void update_cost(const tti_node *node, tti_cost *cost) {
    tti_cost_flops(node, (node->n_in == 4 ? 7.0 : 15.0) * (double)tti_out_n(node, 0), cost);
}

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

const tti_op tti_ops_optim[] = {
    {.name = "sgd",
     .doc = "m = momentum m + g; w -= lr m, or lr (g + momentum m) (Nesterov)",
     .n_in_min = 4,
     .n_in_max = 4,
     .n_out = 2,
     .attrs = sgd_attrs,
     .traits = TTI_UPDATE | TTI_ELEMENTWISE,
     .infer = sgd_infer,
     .shard = update_shard,
     .cost = update_cost,
     .reference = sgd_reference,
     .samples = sgd_samples},
    {.name = "adam",
     .doc = "Kingma & Ba 2015, decay inside the gradient",
     .n_in_min = 5,
     .n_in_max = 5,
     .n_out = 3,
     .attrs = adam_attrs,
     .traits = TTI_UPDATE | TTI_ELEMENTWISE,
     .infer = adam_infer,
     .shard = update_shard,
     .cost = update_cost,
     .reference = adam_reference,
     .samples = adam_samples},
    {.name = "adamw",
     .doc = "Adam with decay of the weights themselves",
     .n_in_min = 5,
     .n_in_max = 5,
     .n_out = 3,
     .attrs = adam_attrs,
     .traits = TTI_UPDATE | TTI_ELEMENTWISE,
     .infer = adam_infer,
     .shard = update_shard,
     .cost = update_cost,
     .reference = adamw_reference,
     .samples = adam_samples},
    {0},
};
