/* optim.c - SGD, Adam and AdamW in one pass over parameter, state and gradient, in place.
 *
 * hyper: {lr, inv_count, clip_scale, step, bias1, bias2}.  Follows PyTorch's formulas.  The loops
 * vectorise, since square root and division are exact in every instruction set. */
#include "backend/cpu/simd.h"

static bool can_run(const tti_node *node) { return tti_all_f32(node) && tti_one_layout(node); }

/* What one step of the Adam family needs, in f32. */
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
static void bring(const tti_kargs *a, int k) {
    if (a->out[k] != a->in[k])
        memcpy(a->out[k], a->in[k], tti_n_elems(a->node->out[k]) * sizeof(float));
}

static tutti_status adam_any(const tti_kargs *a, bool decoupled) {
    for (int k = 0; k < 3; k++) bring(a, k);
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
    for (int k = 0; k < 2; k++) bring(a, k);
    (tti_attr_int(a->node, "nesterov") ? nesterov_loop : sgd_loop)(
        s, a->out[0], a->out[1], a->in[2], tti_n_elems(a->node->out[0]));
    return TUTTI_OK;
}

extern const tti_kernel TTI_VARIANT(tti_kernels_optim)[];
const tti_kernel TTI_VARIANT(tti_kernels_optim)[] = {
    {.op = "adamw", .name = TTI_ISA_TEXT, .can_run = can_run, .run = adamw_run},
    {.op = "adam", .name = TTI_ISA_TEXT, .can_run = can_run, .run = adam_run},
    {.op = "sgd", .name = TTI_ISA_TEXT, .can_run = can_run, .run = sgd_run},
    {0},
};
