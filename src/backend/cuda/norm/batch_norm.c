/* batch_norm.c - batch norm's chain of ops, and the joining of statistics over shards. */
#include "backend/cuda/norm/batch_norm.h"

#include <string.h>

#include "backend/cuda/norm/bn_stats.h"
#include "backend/cuda/runtime/cuda.h"

static tti_cuda_planes planes_of_value(const tutti_value *value) {
    const tutti_type *x = &value->type;
    tti_cuda_planes p = {(size_t)x->shape.dim[0], (size_t)x->shape.dim[1], 1, false, x->dtype};
    for (int d = 2; d < x->shape.n_dims; d++) p.s *= (size_t)x->shape.dim[d];
    p.last = value->layout == TTI_CHANNELS_LAST_BYTES || p.s == 1;
    return p;
}

/* For input 0. */
static tti_cuda_planes planes_of(const tti_node *node) { return planes_of_value(node->in[0]); }

static bool is_like_first(const tti_node *node, const tutti_value *value) {
    return tti_shape_equal(&value->type.shape, &node->in[0]->type.shape);
}

/* Everything like x lies as x does; with one channel or one place both layouts are one. */
bool tti_cuda_bn_lies_alike(const tti_node *node) {
    tti_layout layout = node->in[0]->layout;
    tti_cuda_planes p = planes_of(node);
    if (p.c == 1 || p.s == 1) return true;
    for (int i = 1; i < node->n_in; i++)
        if ((is_like_first(node, node->in[i]) || node->in[i]->type.dtype == TUTTI_U8) &&
            node->in[i]->layout != layout)
            return false;
    for (int k = 0; k < node->op->n_out; k++)
        if ((is_like_first(node, node->out[k]) || node->out[k]->type.dtype == TUTTI_U8) &&
            node->out[k]->layout != layout)
            return false;
    return true;
}

static bool has_act(const tti_node *node) { return tti_attr_int(node, "act") == TTI_EPILOGUE_RELU; }

static size_t sums_scratch(const tti_node *node, const void *state) {
    tti_cuda_planes p = planes_of(node);
    (void)state;
    return tti_cuda_bn_scratch(&p);
}

size_t tti_cuda_stats_bytes(const tutti_value *value) {
    tti_cuda_planes p = planes_of_value(value);
    return tti_cuda_bn_scratch(&p);
}

tutti_status tti_cuda_stats_run(const tutti_value *value, const void *x, const int32_t *rows,
                                const float *sums, void *scratch, float *stats) {
    tti_cuda_planes p = planes_of_value(value);
    TTI_CUDA(tti_cuda_bn_stats(&p, x, rows, sums, scratch, stats, tti_cuda_stream()));
    return TUTTI_OK;
}

static tutti_status stats_run(void *state, const tti_kargs *a) {
    const int32_t *rows = a->node->n_in > 1 ? a->in[1] : NULL;
    (void)state;
    return tti_cuda_stats_run(a->node->in[0], a->in[0], rows, NULL, a->scratch, a->out[0]);
}

/* The residual, if there is one, is input r. */
static tutti_status forward(const tti_kargs *a, tti_cuda_bn_apply *f, int r) {
    tti_cuda_planes p = planes_of(a->node);
    f->x = a->in[0];
    f->y = a->out[0];
    f->add = a->node->n_in > r ? a->in[r] : NULL;
    f->own.eps = tti_attr_float(a->node, "eps");
    TTI_CUDA(tti_cuda_bn_forward(&p, f, tti_cuda_stream()));
    return TUTTI_OK;
}

/* in: stats, gamma, beta */
static tti_cuda_bn_affine affine_of(void *const *in, size_t n_channels) {
    const float *stats = in[0];
    tti_cuda_bn_affine f = {.count = stats, .mean = stats + 1, .m2 = stats + 1 + n_channels};
    f.gamma = in[1];
    f.beta = in[2];
    return f;
}

/* x, stats, gamma, beta, residual? */
static tutti_status apply_run(void *state, const tti_kargs *a) {
    tti_cuda_bn_apply f = {.own = affine_of(a->in + 1, planes_of(a->node).c),
                           .relu = has_act(a->node)};
    (void)state;
    return forward(a, &f, 4);
}

/* x, stats, gamma, beta, r, its stats, gamma, beta */
static tutti_status apply_pair_run(void *state, const tti_kargs *a) {
    size_t n_channels = planes_of(a->node).c;
    tti_cuda_bn_apply f = {.own = affine_of(a->in + 1, n_channels),
                           .of_add = affine_of(a->in + 5, n_channels)};
    (void)state;
    f.of_add.eps = tti_attr_float(a->node, "eps_r");
    f.relu = tti_attr_int(a->node, "relu") != 0;
    return forward(a, &f, 4);
}

/* x, stats, gamma, beta, r, its stats? gamma? beta? */
static tutti_status apply_mask_run(void *state, const tti_kargs *a) {
    size_t n_channels = planes_of(a->node).c;
    tti_cuda_bn_apply f = {
        .own = affine_of(a->in + 1, n_channels), .mask = a->out[1], .relu = true};
    (void)state;
    if (a->node->n_in == 8) f.of_add = affine_of(a->in + 5, n_channels);
    f.of_add.eps = tti_attr_float(a->node, "eps_r");
    return forward(a, &f, 4);
}

/* x, mean, variance, gamma, beta, residual? */
static tutti_status eval_run(void *state, const tti_kargs *a) {
    tti_cuda_bn_apply f = {
        .own = {.mean = a->in[1], .m2 = a->in[2], .gamma = a->in[3], .beta = a->in[4]},
        .relu = has_act(a->node)};
    (void)state;
    return forward(a, &f, 5);
}

/* dy, x, stats first; rows, if they are there, input `rows`; where there is an act y last, or
 * n_made values that make it, with beta the last of them. */
static tti_cuda_bn_grad grad_of(const tti_kargs *a, int rows, int n_made) {
    const tti_node *node = a->node;
    tti_cuda_bn_grad grad = {.dy = a->in[0], .x = a->in[1], .stats = a->in[2]};
    int last = node->n_in - 1;
    bool act = has_act(node), makes_y = act && node->in[last]->type.shape.n_dims == 1;
    grad.y = act && !makes_y ? a->in[last] : NULL;
    grad.beta = makes_y ? a->in[last] : NULL;
    grad.gamma = makes_y ? a->in[last - 1] : NULL; /* sums; dx has its own place for it */
    grad.rows = node->n_in - (makes_y ? n_made : act) > rows ? a->in[rows] : NULL;
    grad.eps = tti_attr_float(node, "eps");
    return grad;
}

static tutti_status grad_sums_run(void *state, const tti_kargs *a) {
    tti_cuda_planes p = planes_of(a->node);
    tti_cuda_bn_grad grad = grad_of(a, 3, 2);
    tti_cuda_bn_sums_out out = {a->out[0], a->out[1], a->out[2]};
    (void)state;
    TTI_CUDA(tti_cuda_bn_sums(&p, &grad, a->scratch, &out, tti_cuda_stream()));
    return TUTTI_OK;
}

/* rows? and more? from input `next` on. */
static tutti_status join_run(const tti_kargs *a, tti_cuda_bn_grad *grad, int next) {
    tti_cuda_planes p = planes_of(a->node);
    const tti_node *node = a->node;
    tti_cuda_bn_sums_out out = {a->out[1], a->out[2], a->out[3]};
    if (next < node->n_in && node->in[next]->type.dtype == TUTTI_I32) grad->rows = a->in[next++];
    if (next < node->n_in) grad->more = a->in[next];
    grad->dz = a->out[0];
    grad->eps = tti_attr_float(node, "eps");
    TTI_CUDA(tti_cuda_bn_sums(&p, grad, a->scratch, &out, tti_cuda_stream()));
    return TUTTI_OK;
}

/* dy, y or mask, x, stats, rows?, more? */
static tutti_status grad_join_run(void *state, const tti_kargs *a) {
    tti_cuda_bn_grad grad = {.dy = a->in[0], .x = a->in[2], .stats = a->in[3]};
    (void)state;
    if (a->node->in[1]->type.dtype == TUTTI_U8)
        grad.mask = a->in[1];
    else
        grad.y = a->in[1];
    return join_run(a, &grad, 4);
}

/* x, mask, stats, dy, w, rows?, more? */
tutti_status tti_cuda_join_product(const tti_kargs *a) {
    tti_cuda_bn_grad grad = {.dy = a->out[0], .x = a->in[0], .mask = a->in[1], .stats = a->in[2]};
    return join_run(a, &grad, 5);
}

/* x, stats, gamma, beta, dy, w, rows? */
tutti_status tti_cuda_sum_product(const tti_kargs *a) {
    tti_cuda_planes p = planes_of(a->node);
    tti_cuda_bn_grad grad = {.dy = a->out[0], .x = a->in[0], .stats = a->in[1]};
    tti_cuda_bn_sums_out out = {a->out[1], a->out[2], a->out[3]};
    grad.gamma = a->in[2], grad.beta = a->in[3];
    grad.rows = a->node->n_in > 6 ? a->in[6] : NULL;
    grad.eps = tti_attr_float(a->node, "eps");
    TTI_CUDA(tti_cuda_bn_sums(&p, &grad, a->scratch, &out, tti_cuda_stream()));
    return TUTTI_OK;
}

static tutti_status grad_apply_run(void *state, const tti_kargs *a) {
    tti_cuda_planes p = planes_of(a->node);
    tti_cuda_bn_grad grad = grad_of(a, 5, 1);
    (void)state;
    grad.gamma = a->in[3];
    grad.sums = a->in[4];
    TTI_CUDA(tti_cuda_bn_backward(&p, &grad, a->out[0], tti_cuda_stream()));
    return TUTTI_OK;
}

static tutti_status running_run(void *state, const tti_kargs *a) {
    size_t n_channels = (size_t)(tti_value_n_elems(a->node->in[0]) - 1) / 2;
    (void)state;
    TTI_CUDA(tti_cuda_bn_running(a->in[0], a->in[1], n_channels, a->out[0], a->out[1],
                                 tti_cuda_stream()));
    return TUTTI_OK;
}

/* A single shard: the joined value is its own, and zeros where those of others would be. */
static tutti_status sync_run(void *state, const tti_kargs *a) {
    size_t n_in = tti_value_n_bytes(a->node->in[0]), n_out = tti_value_n_bytes(a->node->out[0]);
    (void)state;
    TTI_CUDA(cudaMemcpyAsync(a->out[0], a->in[0], TTI_MIN(n_in, n_out), cudaMemcpyDeviceToDevice,
                             tti_cuda_stream()));
    if (n_out > n_in)
        TTI_CUDA(cudaMemsetAsync((char *)a->out[0] + n_in, 0, n_out - n_in, tti_cuda_stream()));
    return TUTTI_OK;
}

tutti_status tti_cuda_join(const char *op, const float *parts, size_t n_parts, size_t n_elems,
                           float *out) {
    bool moments = strcmp(op, "sync_moments") == 0;
    if (strcmp(op, "gather_rows") == 0) {
        TTI_CUDA(cudaMemcpyAsync(out, parts, n_parts * n_elems * sizeof *out,
                                 cudaMemcpyDeviceToDevice, tti_cuda_stream()));
        return TUTTI_OK;
    }
    if (!moments && strcmp(op, "sync_sum") != 0 && strcmp(op, "sum_rows") != 0)
        return tti_fail(TUTTI_E_INTERNAL, "cuda: op '%s' is not joined", op);
    TTI_CUDA(tti_cuda_bn_join(moments, parts, n_parts, n_elems, out, tti_cuda_stream()));
    return TUTTI_OK;
}

const tti_kernel tti_cuda_batch_norm_kernels[] = {
    {.op = "bn_stats",
     .name = "cuda",
     .can_run = tti_cuda_bn_lies_alike,
     .scratch_bytes = sums_scratch,
     .run = stats_run},
    {.op = "sync_moments", .name = "cuda", .run = sync_run},
    {.op = "sync_sum", .name = "cuda", .run = sync_run},
    {.op = "gather_rows", .name = "cuda", .run = sync_run},
    {.op = "sum_rows", .name = "cuda", .run = sync_run},
    {.op = "bn_apply", .name = "cuda", .can_run = tti_cuda_bn_lies_alike, .run = apply_run},
    {.op = "bn_apply_pair",
     .name = "cuda",
     .can_run = tti_cuda_bn_lies_alike,
     .run = apply_pair_run},
    {.op = "bn_apply_mask",
     .name = "cuda",
     .can_run = tti_cuda_bn_lies_alike,
     .run = apply_mask_run},
    {.op = "bn_grad_sums",
     .name = "cuda",
     .can_run = tti_cuda_bn_lies_alike,
     .scratch_bytes = sums_scratch,
     .run = grad_sums_run},
    {.op = "bn_grad_join",
     .name = "cuda",
     .can_run = tti_cuda_bn_lies_alike,
     .scratch_bytes = sums_scratch,
     .run = grad_join_run},
    {.op = "bn_grad_apply",
     .name = "cuda",
     .can_run = tti_cuda_bn_lies_alike,
     .run = grad_apply_run},
    {.op = "bn_running", .name = "cuda", .run = running_run},
    {.op = "bn_eval", .name = "cuda", .can_run = tti_cuda_bn_lies_alike, .run = eval_run},
    {0},
};
