/* optim.cuh - one element of one optimizer step: the rules of src/ops/optim.c in f32.
 *
 * The operations and their order are those of src/backend/cpu/optim.c, and nothing is contracted
 * (cmake/cuda.cmake), so that a state may be on either side with the same bits.  The update of all
 * parameters at once (update.cu) and the single ops (optim.c) share them. */
#ifndef TTI_OPTIM_CUH
#define TTI_OPTIM_CUH

#include "backend/cuda/optim/update.h"

/* The numbers of a step, and of the block's slot. */
typedef struct tti_element {
    float w, s0, s1; /* weight and states, old and then new */
    float g;         /* the summed gradient */
    float direction; /* TTI_RULE_LAMB: of the step, also without taking it */
} tti_element;

__device__ __forceinline__ void tti_rule_adam(const tti_rule &r, const tti_hyper &h, float decay,
                                              bool decoupled, tti_element &e) {
    float g = e.g * (h.inv_count * h.clip) + (decoupled ? 0.0f : decay) * e.w;
    e.s0 = r.beta1 * e.s0 + r.rest1 * g;
    e.s1 = r.beta2 * e.s1 + r.rest2 * (g * g);
    float root = sqrtf(e.s1) * (1.0f / sqrtf(h.bias2)) + r.eps;
    float shrink = decoupled ? 1.0f - h.lr * decay : 1.0f;
    e.w = shrink * e.w - h.lr / h.bias1 * (e.s0 / root);
}

__device__ __forceinline__ void tti_rule_sgd(const tti_rule &r, const tti_hyper &h, float decay,
                                             tti_element &e) {
    float g = e.g * (h.inv_count * h.clip) + decay * e.w;
    e.s0 = r.momentum * e.s0 + g;
    e.w -= h.lr * (r.nesterov ? g + r.momentum * e.s0 : e.s0);
}

__device__ __forceinline__ void tti_rule_rmsprop(const tti_rule &r, const tti_hyper &h, float decay,
                                                 tti_element &e) {
    float g = e.g * (h.inv_count * h.clip) + decay * e.w;
    e.s0 = r.alpha * e.s0 + r.rest1 * (g * g);
    e.s1 = r.momentum * e.s1 + g / (sqrtf(e.s0) + r.eps);
    e.w -= h.lr * e.s1;
}

__device__ __forceinline__ void tti_rule_adagrad(const tti_rule &r, const tti_hyper &h, float decay,
                                                 tti_element &e) {
    float g = e.g * (h.inv_count * h.clip) + decay * e.w;
    float lr = h.lr / (1.0f + (h.step - 1.0f) * r.lr_decay);
    e.s0 += g * g;
    e.w -= lr * (g / (sqrtf(e.s0) + r.eps));
}

__device__ __forceinline__ void tti_rule_lion(const tti_rule &r, const tti_hyper &h, float decay,
                                              tti_element &e) {
    float g = e.g * (h.inv_count * h.clip);
    float mean = r.beta1 * e.s0 + r.rest1 * g;
    float sign = mean > 0 ? 1.0f : mean < 0 ? -1.0f : mean; /* NaN stays NaN */
    e.w = e.w * (1.0f - h.lr * decay) - h.lr * sign;
    e.s0 = r.beta2 * e.s0 + r.rest2 * g;
}

/* norms: |w| and |g| of the whole tensor, the gradient scaled. */
__device__ __forceinline__ void tti_rule_lars(const tti_rule &r, const tti_hyper &h, float decay,
                                              const float *norms, tti_element &e) {
    float rate = norms[0] > 0 && norms[1] > 0
                     ? r.trust * norms[0] / (norms[1] + decay * norms[0] + r.eps)
                     : 1.0f;
    float g = e.g * (h.inv_count * h.clip) + decay * e.w;
    e.s0 = r.momentum * e.s0 + rate * g;
    e.w -= h.lr * e.s0;
}

/* norms: |w| and |direction| of the whole tensor; NULL: only computes the direction. */
__device__ __forceinline__ void tti_rule_lamb(const tti_rule &r, const tti_hyper &h, float decay,
                                              const float *norms, tti_element &e) {
    float g = e.g * (h.inv_count * h.clip);
    e.s0 = r.beta1 * e.s0 + r.rest1 * g;
    e.s1 = r.beta2 * e.s1 + r.rest2 * (g * g);
    float root = sqrtf(e.s1) * (1.0f / sqrtf(h.bias2)) + r.eps;
    e.direction = 1.0f / h.bias1 * e.s0 / root + decay * e.w;
    if (!norms) return;
    float ratio = norms[0] > 0 && norms[1] > 0 ? norms[0] / norms[1] : 1.0f;
    e.w -= h.lr * ratio * e.direction;
}

template <int KIND>
__device__ __forceinline__ void tti_rule_step(const tti_rule &r, const tti_hyper &h, float decay,
                                              const float *norms, tti_element &e) {
    if (KIND == TTI_RULE_ADAM) tti_rule_adam(r, h, decay, false, e);
    if (KIND == TTI_RULE_ADAMW) tti_rule_adam(r, h, decay, true, e);
    if (KIND == TTI_RULE_SGD) tti_rule_sgd(r, h, decay, e);
    if (KIND == TTI_RULE_RMSPROP) tti_rule_rmsprop(r, h, decay, e);
    if (KIND == TTI_RULE_ADAGRAD) tti_rule_adagrad(r, h, decay, e);
    if (KIND == TTI_RULE_LION) tti_rule_lion(r, h, decay, e);
    if (KIND == TTI_RULE_LARS) tti_rule_lars(r, h, decay, norms, e);
    if (KIND == TTI_RULE_LAMB) tti_rule_lamb(r, h, decay, norms, e);
}

#endif /* TTI_OPTIM_CUH */
