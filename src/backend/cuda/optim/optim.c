/* optim.c - the optimizer ops one by one, for tests of the update program and other callers. */
#include <string.h>

#include "backend/cuda/optim/optim_rule.h"
#include "backend/cuda/runtime/cuda.h"

static const struct {
    const char *op;
    tti_rule_kind kind;
    int n_states;
} rules[] = {
    {"sgd", TTI_RULE_SGD, 1},
    {"adam", TTI_RULE_ADAM, 2},
    {"adamw", TTI_RULE_ADAMW, 2},
    {"rmsprop", TTI_RULE_RMSPROP, 2},
    {"adagrad", TTI_RULE_ADAGRAD, 1},
    {"lion", TTI_RULE_LION, 1},
    {"lars", TTI_RULE_LARS, 1},
    {"lamb", TTI_RULE_LAMB, 2},
    {"lamb_direction", TTI_RULE_LAMB, 2},
};

/* An attribute that not every optimizer has. */
static float attr(const tti_node *node, const char *name) {
    return tti_attr_has(node, name) ? (float)tti_attr_float(node, name) : 0.0f;
}

/* 1 - x in double, as the reference has it. */
static float rest(const tti_node *node, const char *name) {
    return tti_attr_has(node, name) ? (float)(1.0 - tti_attr_float(node, name)) : 0.0f;
}

tutti_status tti_cuda_rule(const tti_node *node, tti_rule *out) {
    for (size_t i = 0; i < TTI_COUNT(rules); i++) {
        if (strcmp(node->op->name, rules[i].op) != 0) continue;
        bool rms = rules[i].kind == TTI_RULE_RMSPROP;
        *out = (tti_rule){
            .kind = (int)rules[i].kind,
            .n_states = rules[i].n_states,
            .nesterov = tti_attr_has(node, "nesterov") && tti_attr_int(node, "nesterov") != 0,
            .beta1 = attr(node, "beta1"),
            .beta2 = attr(node, "beta2"),
            .rest1 = rest(node, rms ? "alpha" : "beta1"),
            .rest2 = rest(node, "beta2"),
            .eps = attr(node, "eps"),
            .momentum = attr(node, "momentum"),
            .alpha = attr(node, "alpha"),
            .trust = attr(node, "trust"),
            .lr_decay = attr(node, "lr_decay"),
        };
        return TUTTI_OK;
    }
    return tti_fail(TUTTI_E_UNSUPPORTED, "cuda: no optimizer '%s'", node->op->name);
}

static bool can_run(const tti_node *node) {
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i]->type.dtype != TUTTI_F32 || node->in[i]->layout != node->in[0]->layout)
            return false;
    return true;
}

/* Makes out k the same bytes as in k where the plan did not. */
static tutti_status copy_input_to_output(const tti_kargs *a, int k) {
    size_t n_bytes = tti_value_n_bytes(a->node->out[k]);
    if (a->out[k] == a->in[k] || n_bytes == 0) return TUTTI_OK;
    return tti_cuda_check(
        cudaMemcpyAsync(a->out[k], a->in[k], n_bytes, cudaMemcpyDeviceToDevice, tti_cuda_stream()),
        "cudaMemcpyAsync");
}

/* Inputs: w, states, g, hyper, norms. */
static tutti_status optimizer_run(void *state, const tti_kargs *a) {
    tti_update_tensor t = {.decay = (float)tti_attr_float(a->node, "decay"),
                           .n_elems = (size_t)tti_value_n_elems(a->node->out[0])};
    (void)state;
    TTI_TRY(tti_cuda_rule(a->node, &t.rule));
    bool only_direction = !(a->node->op->traits & TTI_UPDATE);
    for (int k = 0; k <= t.rule.n_states && !only_direction; k++)
        TTI_TRY(copy_input_to_output(a, k));
    void *const *from = only_direction ? a->in : a->out;
    t.w = from[0];
    for (int k = 0; k < t.rule.n_states; k++) t.states[k] = from[k + 1];
    t.g = a->in[t.rule.n_states + 1];
    t.hyper = a->in[t.rule.n_states + 2];
    t.norms = a->node->op->traits & TTI_NORMS ? a->in[t.rule.n_states + 3] : NULL;
    t.direction = only_direction ? a->out[0] : NULL;
    return tti_cuda_check(tti_launch_update_tensor(&t, tti_cuda_stream()), "optimizer");
}

static tutti_status buffer_run(void *state, const tti_kargs *a) {
    (void)state;
    TTI_TRY(copy_input_to_output(a, 0));
    return tti_cuda_check(
        tti_launch_buffer_update(a->out[0], a->in[1], a->in[2],
                                 (float)tti_attr_float(a->node, "momentum"),
                                 (size_t)tti_value_n_elems(a->node->out[0]), tti_cuda_stream()),
        "buffer_update");
}

static tutti_status average_run(void *state, const tti_kargs *a) {
    (void)state;
    TTI_TRY(copy_input_to_output(a, 0));
    return tti_cuda_check(
        tti_launch_average(a->out[0], a->in[1], tti_attr_float(a->node, "decay"),
                           (size_t)tti_value_n_elems(a->node->out[0]), tti_cuda_stream()),
        "ema");
}

#define OPTIMIZER(op_name) \
    { .op = op_name, .name = "cuda", .can_run = can_run, .run = optimizer_run }

const tti_kernel tti_cuda_optim_kernels[] = {
    OPTIMIZER("sgd"),
    OPTIMIZER("adam"),
    OPTIMIZER("adamw"),
    OPTIMIZER("rmsprop"),
    OPTIMIZER("adagrad"),
    OPTIMIZER("lion"),
    OPTIMIZER("lars"),
    OPTIMIZER("lamb"),
    OPTIMIZER("lamb_direction"),
    {.op = "buffer_update", .name = "cuda", .can_run = can_run, .run = buffer_run},
    {.op = "ema", .name = "cuda", .can_run = can_run, .run = average_run},
    {0},
};
