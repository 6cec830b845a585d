/* optim.c - optimizers in one pass over parameter, state and gradient, in place.
 *
 * hyper: {lr, inv_count, clip_scale, step, bias1, bias2, inv_rows}. Follows PyTorch's formulas.
 * The loops vectorize, since square root and division are exact in every instruction set, and
 * nothing is summed: the norms by which LARS and LAMB scale are an input. */
#include "backend/cpu/simd.h"

static bool can_run(const tti_node *node) { return tti_all_f32(node) && tti_one_layout(node); }

/* The values of one step of the Adam family, in f32. */
typedef struct adam_step {
    float beta1, beta2, rest1, rest2, eps; /* rest = 1 - beta */
    float scale, decay, shrink;            /* of g; L2 in the gradient; of w */
    float rate, root_bias2;
} adam_step;

static adam_step read_adam(const tti_node *node, const float *hyper, bool decoupled) {
    double beta1 = tti_attr_float(node, "beta1"), beta2 = tti_attr_float(node, "beta2");
    float decay = (float)tti_attr_float(node, "decay");
    return (adam_step){
        .beta1 = (float)beta1,
        .beta2 = (float)beta2,
        .rest1 = (float)(1.0 - beta1),
        .rest2 = (float)(1.0 - beta2),
        .eps = (float)tti_attr_float(node, "eps"),
        .scale = hyper[1] * hyper[2],
        .decay = decoupled ? 0.0f : decay,
        .shrink = decoupled ? 1.0f - hyper[0] * decay : 1.0f,
        .rate = hyper[0] / hyper[4],
        .root_bias2 = 1.0f / __builtin_sqrtf(hyper[5]),
    };
}

static void adam_loop(adam_step s, float *w, float *m, float *v, const float *grad, size_t n) {
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] * s.scale + s.decay * w[i];
        float m1 = s.beta1 * m[i] + s.rest1 * g;
        float v1 = s.beta2 * v[i] + s.rest2 * (g * g);
        m[i] = m1, v[i] = v1;
        w[i] = s.shrink * w[i] - s.rate * (m1 / (__builtin_sqrtf(v1) * s.root_bias2 + s.eps));
    }
}

/* Makes out k the same bytes as in k where the plan did not. */
static void copy_input_to_output(const tti_kargs *a, int k) {
    if (a->out[k] != a->in[k])
        memcpy(a->out[k], a->in[k], tti_n_elems(a->node->out[k]) * sizeof(float));
}

static tutti_status adam_any(const tti_kargs *a, bool decoupled) {
    for (int k = 0; k < 3; k++) copy_input_to_output(a, k);
    adam_loop(read_adam(a->node, a->in[4], decoupled), a->out[0], a->out[1], a->out[2], a->in[3],
              tti_n_elems(a->node->out[0]));
    return TUTTI_OK;
}

static tutti_status adam_run(void *state, const tti_kargs *a) {
    (void)state;
    return adam_any(a, false);
}

static tutti_status adamw_run(void *state, const tti_kargs *a) {
    (void)state;
    return adam_any(a, true);
}

typedef struct sgd_step {
    float scale, decay, momentum, rate;
} sgd_step;

static void sgd_loop(sgd_step s, float *w, float *m, const float *grad, size_t n) {
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) {
        m[i] = s.momentum * m[i] + (grad[i] * s.scale + s.decay * w[i]);
        w[i] -= s.rate * m[i];
    }
}

static void nesterov_loop(sgd_step s, float *w, float *m, const float *grad, size_t n) {
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] * s.scale + s.decay * w[i];
        float m1 = s.momentum * m[i] + g;
        m[i] = m1;
        w[i] -= s.rate * (g + s.momentum * m1);
    }
}

static tutti_status sgd_run(void *state, const tti_kargs *a) {
    const float *hyper = a->in[3];
    sgd_step s = {hyper[1] * hyper[2], (float)tti_attr_float(a->node, "decay"),
                  (float)tti_attr_float(a->node, "momentum"), hyper[0]};
    (void)state;
    for (int k = 0; k < 2; k++) copy_input_to_output(a, k);
    (tti_attr_int(a->node, "nesterov") ? nesterov_loop : sgd_loop)(
        s, a->out[0], a->out[1], a->in[2], tti_n_elems(a->node->out[0]));
    return TUTTI_OK;
}

/* ---- one mean square ---- */

typedef struct rms_step {
    float scale, decay, alpha, rest, eps, momentum, rate; /* rest = 1 - alpha */
} rms_step;

static void rmsprop_loop(rms_step s, float *w, float *v, float *m, const float *grad, size_t n) {
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] * s.scale + s.decay * w[i];
        float v1 = s.alpha * v[i] + s.rest * (g * g);
        float m1 = s.momentum * m[i] + g / (__builtin_sqrtf(v1) + s.eps);
        v[i] = v1, m[i] = m1;
        w[i] -= s.rate * m1;
    }
}

static tutti_status rmsprop_run(void *state, const tti_kargs *a) {
    const float *hyper = a->in[4];
    double alpha = tti_attr_float(a->node, "alpha");
    rms_step s = {.scale = hyper[1] * hyper[2],
                  .decay = (float)tti_attr_float(a->node, "decay"),
                  .alpha = (float)alpha,
                  .rest = (float)(1.0 - alpha),
                  .eps = (float)tti_attr_float(a->node, "eps"),
                  .momentum = (float)tti_attr_float(a->node, "momentum"),
                  .rate = hyper[0]};
    (void)state;
    for (int k = 0; k < 3; k++) copy_input_to_output(a, k);
    rmsprop_loop(s, a->out[0], a->out[1], a->out[2], a->in[3], tti_n_elems(a->node->out[0]));
    return TUTTI_OK;
}

static void adagrad_loop(rms_step s, float *w, float *sum, const float *grad, size_t n) {
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] * s.scale + s.decay * w[i];
        float s1 = sum[i] + g * g;
        sum[i] = s1;
        w[i] -= s.rate * (g / (__builtin_sqrtf(s1) + s.eps));
    }
}

static tutti_status adagrad_run(void *state, const tti_kargs *a) {
    const float *hyper = a->in[3], lr_decay = (float)tti_attr_float(a->node, "lr_decay");
    rms_step s = {.scale = hyper[1] * hyper[2],
                  .decay = (float)tti_attr_float(a->node, "decay"),
                  .eps = (float)tti_attr_float(a->node, "eps"),
                  .rate = hyper[0] / (1.0f + (hyper[3] - 1.0f) * lr_decay)};
    (void)state;
    for (int k = 0; k < 2; k++) copy_input_to_output(a, k);
    adagrad_loop(s, a->out[0], a->out[1], a->in[2], tti_n_elems(a->node->out[0]));
    return TUTTI_OK;
}

/* ---- the sign of a mean ---- */

typedef struct lion_step {
    float scale, shrink, beta1, rest1, beta2, rest2, rate;
} lion_step;

static void lion_loop(lion_step s, float *w, float *m, const float *grad, size_t n) {
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] * s.scale, c = s.beta1 * m[i] + s.rest1 * g;
        float sign = c > 0 ? 1.0f : c < 0 ? -1.0f : c; /* NaN stays NaN */
        m[i] = s.beta2 * m[i] + s.rest2 * g;
        w[i] = s.shrink * w[i] - s.rate * sign;
    }
}

static tutti_status lion_run(void *state, const tti_kargs *a) {
    const float *hyper = a->in[3];
    double beta1 = tti_attr_float(a->node, "beta1"), beta2 = tti_attr_float(a->node, "beta2");
    lion_step s = {.scale = hyper[1] * hyper[2],
                   .shrink = 1.0f - hyper[0] * (float)tti_attr_float(a->node, "decay"),
                   .beta1 = (float)beta1,
                   .rest1 = (float)(1.0 - beta1),
                   .beta2 = (float)beta2,
                   .rest2 = (float)(1.0 - beta2),
                   .rate = hyper[0]};
    (void)state;
    for (int k = 0; k < 2; k++) copy_input_to_output(a, k);
    lion_loop(s, a->out[0], a->out[1], a->in[2], tti_n_elems(a->node->out[0]));
    return TUTTI_OK;
}

/* ---- steps as long as the weights: norms = {|w|, |g| or |direction|} of the whole tensor ---- */

static void lars_loop(sgd_step s, float local, float *w, float *m, const float *grad, size_t n) {
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) {
        m[i] = s.momentum * m[i] + local * (grad[i] * s.scale + s.decay * w[i]);
        w[i] -= s.rate * m[i];
    }
}

static tutti_status lars_run(void *state, const tti_kargs *a) {
    const float *hyper = a->in[3], *norms = a->in[4];
    sgd_step s = {hyper[1] * hyper[2], (float)tti_attr_float(a->node, "decay"),
                  (float)tti_attr_float(a->node, "momentum"), hyper[0]};
    float eps = (float)tti_attr_float(a->node, "eps"), local = 1;
    if (norms[0] > 0 && norms[1] > 0)
        local = (float)tti_attr_float(a->node, "trust") * norms[0] /
                (norms[1] + s.decay * norms[0] + eps);
    (void)state;
    for (int k = 0; k < 2; k++) copy_input_to_output(a, k);
    lars_loop(s, local, a->out[0], a->out[1], a->in[2], tti_n_elems(a->node->out[0]));
    return TUTTI_OK;
}

/* The direction of LAMB, for its norm: writes r and does not change w, m and v. */
static void lamb_direction_loop(adam_step s, float *r, const float *const *in, size_t n) {
    const float *w = in[0], *m = in[1], *v = in[2], *grad = in[3];
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] * s.scale;
        float m1 = s.beta1 * m[i] + s.rest1 * g;
        float v1 = s.beta2 * v[i] + s.rest2 * (g * g);
        r[i] = s.rate * m1 / (__builtin_sqrtf(v1) * s.root_bias2 + s.eps) + s.decay * w[i];
    }
}

/* Computes lamb_direction and the step; s.shrink is the length of a step along r. */
static void lamb_loop(adam_step s, float *w, float *m, float *v, const float *grad, size_t n) {
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) {
        float g = grad[i] * s.scale;
        float m1 = s.beta1 * m[i] + s.rest1 * g;
        float v1 = s.beta2 * v[i] + s.rest2 * (g * g);
        float r = s.rate * m1 / (__builtin_sqrtf(v1) * s.root_bias2 + s.eps) + s.decay * w[i];
        m[i] = m1, v[i] = v1;
        w[i] -= s.shrink * r;
    }
}

static adam_step read_lamb(const tti_node *node, const float *hyper) {
    adam_step s = read_adam(node, hyper, false);
    s.rate = 1.0f / hyper[4];
    return s;
}

static tutti_status lamb_direction_run(void *state, const tti_kargs *a) {
    (void)state;
    lamb_direction_loop(read_lamb(a->node, a->in[4]), a->out[0], (const float *const *)a->in,
                        tti_n_elems(a->node->out[0]));
    return TUTTI_OK;
}

static tutti_status lamb_run(void *state, const tti_kargs *a) {
    const float *hyper = a->in[4], *norms = a->in[5];
    adam_step s = read_lamb(a->node, hyper);
    s.shrink = hyper[0] * (norms[0] > 0 && norms[1] > 0 ? norms[0] / norms[1] : 1.0f);
    (void)state;
    for (int k = 0; k < 3; k++) copy_input_to_output(a, k);
    lamb_loop(s, a->out[0], a->out[1], a->out[2], a->in[3], tti_n_elems(a->node->out[0]));
    return TUTTI_OK;
}

/* ---- running means ---- */

/* w = keep w + take x */
static void mean_loop(float keep, float take, float *w, const float *x, size_t n) {
    TTI_IVDEP
    for (size_t i = 0; i < n; i++) w[i] = keep * w[i] + take * x[i];
}

static tutti_status buffer_update_run(void *state, const tti_kargs *a) {
    const float *hyper = a->in[2];
    float momentum = (float)tti_attr_float(a->node, "momentum");
    (void)state;
    copy_input_to_output(a, 0);
    mean_loop(1 - momentum, momentum * hyper[6], a->out[0], a->in[1], tti_n_elems(a->node->out[0]));
    return TUTTI_OK;
}

static tutti_status ema_run(void *state, const tti_kargs *a) {
    double decay = tti_attr_float(a->node, "decay");
    (void)state;
    copy_input_to_output(a, 0);
    mean_loop((float)decay, (float)(1.0 - decay), a->out[0], a->in[1],
              tti_n_elems(a->node->out[0]));
    return TUTTI_OK;
}

extern const tti_kernel TTI_VARIANT(tti_kernels_optim)[];
const tti_kernel TTI_VARIANT(tti_kernels_optim)[] = {
    {.op = "adamw", .name = TTI_ISA_TEXT, .can_run = can_run, .run = adamw_run},
    {.op = "adam", .name = TTI_ISA_TEXT, .can_run = can_run, .run = adam_run},
    {.op = "sgd", .name = TTI_ISA_TEXT, .can_run = can_run, .run = sgd_run},
    {.op = "rmsprop", .name = TTI_ISA_TEXT, .can_run = can_run, .run = rmsprop_run},
    {.op = "adagrad", .name = TTI_ISA_TEXT, .can_run = can_run, .run = adagrad_run},
    {.op = "lion", .name = TTI_ISA_TEXT, .can_run = can_run, .run = lion_run},
    {.op = "lars", .name = TTI_ISA_TEXT, .can_run = can_run, .run = lars_run},
    {.op = "lamb", .name = TTI_ISA_TEXT, .can_run = can_run, .run = lamb_run},
    {.op = "lamb_direction", .name = TTI_ISA_TEXT, .can_run = can_run, .run = lamb_direction_run},
    {.op = "buffer_update", .name = TTI_ISA_TEXT, .can_run = can_run, .run = buffer_update_run},
    {.op = "ema", .name = TTI_ISA_TEXT, .can_run = can_run, .run = ema_run},
    {0},
};
