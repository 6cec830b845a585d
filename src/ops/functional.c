/* functional.c - builders of layers whose weights are given; the builders that make their own are
 * in layers.c.
 *
 * The infer functions of the ops check shapes.  This file only builds what no single op
 * expresses: missing weights become constants, a transposed convolution is the gradient of a
 * convolution. */
#include "tutti/functional.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/rules.h"

static const double default_eps = 1e-5;

static double eps_or_default(double eps) { return eps != 0 ? eps : default_eps; }

/* f32 [n], all of one value. */
static tutti_value *filled(tutti_graph *g, int64_t n, double value) {
    return tutti_constant(g, TUTTI_F32, &TUTTI_SHAPE(n), value);
}

/* The last dimension of x, or its channels; 0 where there is none: the op then refuses it. */
static int64_t dim_of(const tutti_value *x, int dim) {
    int n_dims = x ? x->type.shape.n_dims : 0;
    if (dim < 0) dim += n_dims;
    return dim >= 0 && dim < n_dims ? x->type.shape.dim[dim] : 0;
}

tutti_value *tutti_linear_of(tutti_graph *g, tutti_value *x, tutti_value *weight,
                             tutti_value *bias) {
    return tti_emit(g, "linear", NULL, (tutti_value *[]){x, weight, bias}, bias ? 3 : 2, NULL);
}

/* ---- windows ---- */

static tti_attr_arg pair(const char *key, const int64_t v[2], int64_t zero_is) {
    int64_t x[2] = {v[0] ? v[0] : zero_is, v[1] ? v[1] : zero_is};
    return TTI_INTS(key, 2, x);
}

/* stride, pad, dilation and groups of a convolution, in attrs[0 .. 3]. */
static void conv_attrs(const tutti_window *window, tti_attr_arg *attrs) {
    attrs[0] = pair("stride", window->stride, 1);
    attrs[1] = pair("pad", window->pad, 0);
    attrs[2] = pair("dilation", window->dilation, 1);
    attrs[3] = TTI_INT("groups", window->groups ? window->groups : 1);
}

tutti_value *tutti_conv2d_of(tutti_graph *g, tutti_value *x, tutti_value *weight, tutti_value *bias,
                             const tutti_window *window) {
    tti_attr_arg attrs[5] = {{0}};
    conv_attrs(window ? window : &(tutti_window){0}, attrs);
    return tti_emit(g, "conv2d", NULL, (tutti_value *[]){x, weight, bias}, bias ? 3 : 2, attrs);
}

/* One dimension of the result; false where it is none. */
static bool transposed_extent(int64_t n, int64_t kernel, const tutti_window *w, int d,
                              int64_t extra, int64_t *out) {
    int64_t stride = w->stride[d] ? w->stride[d] : 1,
            dilation = w->dilation[d] ? w->dilation[d] : 1;
    const int64_t most = 1 << 24;
    if (n < 1 || n > most || kernel < 1 || kernel > most || stride < 1 || stride > most)
        return false;
    if (dilation < 1 || dilation > most || w->pad[d] < 0 || w->pad[d] > most) return false;
    if (extra < 0 || extra >= stride) return false;
    *out = (n - 1) * stride - 2 * w->pad[d] + dilation * (kernel - 1) + 1 + extra;
    return *out >= 1;
}

tutti_value *tutti_conv_transpose2d_of(tutti_graph *g, tutti_value *x, tutti_value *weight,
                                       tutti_value *bias, const tutti_window *window,
                                       const int64_t extra[2]) {
    const tutti_window none = {0}, *w = window ? window : &none;
    int64_t out[2];
    if (!x || !weight) return NULL;
    if (x->type.shape.n_dims != 4 || weight->type.shape.n_dims != 4)
        return tti_build_fail(g, "conv_transpose2d: x and the weight must have 4 dimensions");
    for (int d = 0; d < 2; d++)
        if (!transposed_extent(dim_of(x, 2 + d), dim_of(weight, 2 + d), w, d, extra ? extra[d] : 0,
                               &out[d]))
            return tti_build_fail(g, "conv_transpose2d: the window does not fit the input");
    tti_attr_arg attrs[6] = {{0}};
    conv_attrs(w, attrs);
    attrs[4] = TTI_INTS("in_hw", 2, out);
    tutti_value *y = tti_emit(g, "conv2d_grad_x", NULL, (tutti_value *[]){x, weight}, 2, attrs);
    if (!bias) return y;
    return tutti_add(g, y, tutti_reshape(g, bias, &TUTTI_SHAPE(1, dim_of(y, 1), 1, 1)));
}

/* kernel, stride and pad of pooling, in attrs[0 .. 2]. */
static void pool_attrs(const tutti_window *window, tti_attr_arg *attrs) {
    int64_t stride[2];
    for (int d = 0; d < 2; d++)
        stride[d] = window->stride[d] ? window->stride[d] : window->kernel[d];
    attrs[0] = pair("kernel", window->kernel, 0);
    attrs[1] = pair("stride", stride, 0);
    attrs[2] = pair("pad", window->pad, 0);
}

tutti_value *tutti_max_pool2d_of(tutti_graph *g, tutti_value *x, const tutti_window *window) {
    tti_attr_arg attrs[4] = {{0}};
    if (!window) return tti_build_fail(g, "max_pool2d: window is NULL");
    pool_attrs(window, attrs);
    return tti_build1(g, "max_pool2d", x, attrs);
}

tutti_value *tutti_avg_pool2d_of(tutti_graph *g, tutti_value *x, const tutti_window *window,
                                 bool exclude_pad) {
    tti_attr_arg attrs[5] = {{0}};
    if (!window) return tti_build_fail(g, "avg_pool2d: window is NULL");
    pool_attrs(window, attrs);
    attrs[3] = TTI_INT("count_pad", !exclude_pad);
    return tti_build1(g, "avg_pool2d", x, attrs);
}

/* ---- norms ---- */

tutti_value *tutti_layer_norm_of(tutti_graph *g, tutti_value *x, tutti_value *weight,
                                 tutti_value *bias, double eps) {
    tti_attr_arg attrs[] = {TTI_FLOAT("eps", eps_or_default(eps)), {0}};
    if (!weight) weight = filled(g, dim_of(x, -1), 1);
    return tti_emit(g, "layer_norm", NULL, (tutti_value *[]){x, weight, bias}, bias ? 3 : 2, attrs);
}

tutti_value *tutti_rms_norm_of(tutti_graph *g, tutti_value *x, tutti_value *weight, double eps) {
    tti_attr_arg attrs[] = {TTI_FLOAT("eps", eps_or_default(eps)), {0}};
    if (!weight) weight = filled(g, dim_of(x, -1), 1);
    return tti_build2(g, "rms_norm", x, weight, attrs);
}

tutti_value *tutti_group_norm_of(tutti_graph *g, tutti_value *x, int64_t groups,
                                 tutti_value *weight, tutti_value *bias, double eps) {
    tti_attr_arg attrs[] = {TTI_INT("groups", groups), TTI_FLOAT("eps", eps_or_default(eps)), {0}};
    if (!weight) weight = filled(g, dim_of(x, 1), 1);
    if (!bias) bias = filled(g, dim_of(x, 1), 0);
    return tti_emit(g, "group_norm", NULL, (tutti_value *[]){x, weight, bias}, 3, attrs);
}

/* ---- batch norm ---- */

/* Marks stat as the output that updates buffer. */
static void move_buffer(tutti_graph *g, const tutti_value *buffer, tutti_value *stat) {
    char text[TTI_MAX_NAME + 8];
    snprintf(text, sizeof text, "stat.%s", buffer->node->name);
    tutti_output(g, text, stat);
}

/* The input with the number of real samples of the shard, made by the first layer that asks. */
static tutti_value *rows_input(tutti_graph *g) {
    tti_node *known = tti_graph_find_source(g, "rows");
    return known ? known->out[0] : tutti_input(g, "rows", TUTTI_I32, &(tutti_shape){0});
}

void tutti_move_buffer(tutti_graph *g, tutti_value *buffer, tutti_value *value) {
    if (tti_graph_has_failed(g)) return;
    if (!buffer || !value || !(buffer->node->op->traits & TTI_BUFFER) ||
        value->type.dtype != TUTTI_F32 ||
        !tti_shape_equal(&buffer->type.shape, &value->type.shape)) {
        (void)tti_build_fail(g, "move_buffer: the value must be f32 of the shape of a buffer");
        return;
    }
    if (!g->training) return;
    tutti_value *n = tutti_cast(g, rows_input(g), TUTTI_F32);
    move_buffer(g, buffer, tutti_mul(g, value, n));
}

/* Adds what one of several calls leaves in the buffer that they share.  Each moves it in turn, so
 * later ones count more. */
static void move_in_turn(tutti_graph *g, const tutti_batch_norm_tensors *t,
                         const tutti_value *buffer, tutti_value *stat) {
    char text[TTI_MAX_NAME + 8];
    double kept = 1 - t->momentum, all = 1 - pow(kept, t->n_calls);
    stat = tutti_affine(g, stat, t->momentum * pow(kept, t->n_calls - 1 - t->call) / all, 0);
    snprintf(text, sizeof text, "stat.%s", buffer->node->name);
    for (int i = 0; i < g->n_outputs && stat; i++)
        if (strcmp(g->outputs[i].name, text) == 0) {
            g->outputs[i].value = tutti_add(g, g->outputs[i].value, stat);
            return;
        }
    if (stat) move_buffer(g, buffer, stat);
}

static void move_stat(tutti_graph *g, const tutti_batch_norm_tensors *t, const tutti_value *buffer,
                      tutti_value *stat) {
    if (t->n_calls > 1)
        move_in_turn(g, t, buffer, stat);
    else
        move_buffer(g, buffer, stat);
}

static tutti_value *train_norm(tutti_graph *g, tutti_value *x, const tutti_batch_norm_tensors *t,
                               const char *name) {
    tutti_value *rows = rows_input(g);
    tutti_value *stats = tti_emit(g, "bn_stats", name, (tutti_value *[]){x, rows}, 2, NULL);
    if (t->sync || g->sync_batch_norm) stats = tti_emit(g, "sync_moments", name, &stats, 1, NULL);
    tutti_value *running = tti_emit(g, "bn_running", name, (tutti_value *[]){stats, rows}, 2, NULL);
    if (running) {
        move_stat(g, t, t->running_mean, running->node->out[0]);
        move_stat(g, t, t->running_var, running->node->out[1]);
    }
    return tti_emit(g, "bn_apply", name, (tutti_value *[]){x, stats, t->weight, t->bias}, 4,
                    (tti_attr_arg[]){TTI_FLOAT("eps", t->eps), {0}});
}

tutti_value *tutti_batch_norm_of(tutti_graph *g, tutti_value *x,
                                 const tutti_batch_norm_tensors *tensors, const char *name) {
    char text[128];
    if (!tti_can_build(g, "batch_norm", x, name)) return NULL;
    if (x->type.shape.n_dims < 2)
        return tti_build_fail(g, "batch_norm '%s': input must be [N,C,..], is %s", name,
                              tti_type_text(&x->type, text, sizeof text));
    if (!tensors || !tensors->running_mean || !tensors->running_var ||
        !(tensors->running_mean->node->op->traits & TTI_BUFFER) ||
        !(tensors->running_var->node->op->traits & TTI_BUFFER))
        return tti_build_fail(g, "batch_norm '%s': running_mean and running_var must be buffers",
                              name);
    tutti_batch_norm_tensors t = *tensors;
    t.eps = eps_or_default(t.eps);
    if (!t.weight) t.weight = filled(g, dim_of(x, 1), 1);
    if (!t.bias) t.bias = filled(g, dim_of(x, 1), 0);
    if (g->training) return train_norm(g, x, &t, name);
    return tti_emit(g, "bn_eval", name,
                    (tutti_value *[]){x, t.running_mean, t.running_var, t.weight, t.bias}, 5,
                    (tti_attr_arg[]){TTI_FLOAT("eps", t.eps), {0}});
}

/* ---- recurrent ---- */

static tutti_value *recurrent(tutti_graph *g, const char *op, tutti_value *x,
                              const tutti_recurrent_tensors *t, bool has_cell) {
    if (!t || !t->weight_ih || !t->weight_hh || !x)
        return tti_build_fail(g, "%s: x and the weights are needed", op);
    int64_t n = dim_of(t->weight_ih, 0);
    if (!t->h0 != !t->c0 && has_cell) return tti_build_fail(g, "%s: h0 and c0 go together", op);
    tutti_value *in[7] = {x, t->weight_ih, t->weight_hh, t->bias_ih, t->bias_hh, t->h0, t->c0};
    for (int i = 3; i < 5; i++)
        if (!in[i]) in[i] = filled(g, n, 0);
    int n_in = !t->h0 ? 5 : has_cell ? 7 : 6;
    return tti_emit(g, op, NULL, in, n_in, NULL);
}

tutti_value *tutti_lstm_of(tutti_graph *g, tutti_value *x, const tutti_recurrent_tensors *tensors) {
    return recurrent(g, "lstm", x, tensors, true);
}

tutti_value *tutti_gru_of(tutti_graph *g, tutti_value *x, const tutti_recurrent_tensors *tensors) {
    return recurrent(g, "gru", x, tensors, false);
}
