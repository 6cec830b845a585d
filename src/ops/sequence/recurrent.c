/* recurrent.c - LSTM (Hochreiter & Schmidhuber 1997) and GRU (Cho et al. 2014) over whole
 * sequences, with PyTorch's equations, order of gates and names.
 *
 * The gradient ops contain only the recurrence, and output the gradients of the gates before their
 * non-linearity for all steps; from these, existing ops compute the gradients of x and of the
 * weights as plain products over all steps at once. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ops/rules.h"
#include "tutti/ops.h"

/* Sizes of any op here.  An LSTM has 4 gates (i, f, g, o), a GRU 3 (r, z, n). */
typedef struct sizes {
    size_t b, t, in, h;
} sizes;

/* ---- infer ---- */

/* Input i has these dimensions, and the dtype of all. */
static tutti_status need_shape(const tti_node *node, int i, const tutti_shape *shape) {
    return tti_need_type(node, i, &(tutti_type){node->in[0]->type.dtype, *shape});
}

/* x[B,T,I], w_ih[n H,I], w_hh[n H,H], b_ih, b_hh [n H], and n_states of [B,H], all or none. */
static tutti_status check_forward(const tti_node *node, int64_t n_gates, int n_states, sizes *s) {
    TTI_TRY(tti_need_floats(node, 0, node->n_in));
    TTI_TRY(tti_need_n_dims(node, 0, 3));
    TTI_TRY(tti_need_n_dims(node, 2, 2));
    if (node->n_in != 5 && node->n_in != 5 + n_states)
        return tti_node_fail(node, "5 or %d inputs are needed, not %d", 5 + n_states, node->n_in);
    const int64_t *x = tti_in_shape(node, 0)->dim;
    int64_t h = tti_in_dim(node, 2, 1), rows;
    if (h < 1 || __builtin_mul_overflow(h, n_gates, &rows))
        return tti_node_fail(node, "at least one hidden element is needed");
    TTI_TRY(need_shape(node, 1, &TUTTI_SHAPE(rows, x[2])));
    TTI_TRY(need_shape(node, 2, &TUTTI_SHAPE(rows, h)));
    for (int i = 3; i < 5; i++) TTI_TRY(need_shape(node, i, &TUTTI_SHAPE(rows)));
    for (int i = 5; i < node->n_in; i++) TTI_TRY(need_shape(node, i, &TUTTI_SHAPE(x[0], h)));
    *s = (sizes){(size_t)x[0], (size_t)x[1], (size_t)x[2], (size_t)h};
    return TUTTI_OK;
}

static tutti_type sequence_type(const tti_node *node, size_t n) {
    return (tutti_type){node->in[0]->type.dtype,
                        TUTTI_SHAPE(tti_in_dim(node, 0, 0), tti_in_dim(node, 0, 1), (int64_t)n)};
}

static tutti_status lstm_infer(const tti_node *node, tutti_type *out) {
    sizes s;
    TTI_TRY(check_forward(node, 4, 2, &s));
    out[0] = out[1] = sequence_type(node, s.h);
    out[2] = sequence_type(node, 4 * s.h);
    return TUTTI_OK;
}

static tutti_status gru_infer(const tti_node *node, tutti_type *out) {
    sizes s;
    TTI_TRY(check_forward(node, 3, 1, &s));
    out[0] = sequence_type(node, s.h);
    out[1] = sequence_type(node, 4 * s.h);
    return TUTTI_OK;
}

/* dy[B,T,H], w_hh[n H,H], c or y [B,T,H], gates[B,T,4 H], c0 or h0 [B,H]? */
static tutti_status check_backward(const tti_node *node, int64_t n_gates, sizes *s) {
    TTI_TRY(tti_need_floats(node, 0, node->n_in));
    TTI_TRY(tti_need_n_dims(node, 0, 3));
    const int64_t *dy = tti_in_shape(node, 0)->dim;
    if (dy[2] < 1 || dy[2] > 1 << 30)
        return tti_node_fail(node, "hidden elements must be 1 .. 2^30");
    TTI_TRY(need_shape(node, 1, &TUTTI_SHAPE(n_gates * dy[2], dy[2])));
    TTI_TRY(need_shape(node, 2, tti_in_shape(node, 0)));
    TTI_TRY(need_shape(node, 3, &TUTTI_SHAPE(dy[0], dy[1], 4 * dy[2])));
    if (node->n_in == 5) TTI_TRY(need_shape(node, 4, &TUTTI_SHAPE(dy[0], dy[2])));
    *s = (sizes){(size_t)dy[0], (size_t)dy[1], 0, (size_t)dy[2]};
    return TUTTI_OK;
}

static tutti_type state_type(const tti_node *node) {
    return (tutti_type){node->in[0]->type.dtype,
                        TUTTI_SHAPE(tti_in_dim(node, 0, 0), tti_in_dim(node, 0, 2))};
}

static tutti_status lstm_grad_infer(const tti_node *node, tutti_type *out) {
    sizes s;
    TTI_TRY(check_backward(node, 4, &s));
    out[0] = sequence_type(node, 4 * s.h);
    out[1] = out[2] = state_type(node);
    return TUTTI_OK;
}

static tutti_status gru_grad_infer(const tti_node *node, tutti_type *out) {
    sizes s;
    TTI_TRY(check_backward(node, 3, &s));
    out[0] = out[1] = sequence_type(node, 3 * s.h);
    out[2] = state_type(node);
    return TUTTI_OK;
}

/* ---- references ---- */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static double dot(const double *a, const double *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Row `row` of w_ih x + b_ih. */
static double from_input(const tti_args *a, const sizes *s, const double *x, size_t row) {
    return a->in[3][row] + dot(a->in[1] + row * s->in, x, s->in);
}

/* Row `row` of w_hh h + b_hh; h NULL: zeros. */
static double from_state(const tti_args *a, const sizes *s, const double *h, size_t row) {
    return a->in[4][row] + (h ? dot(a->in[2] + row * s->h, h, s->h) : 0);
}

/* The state before step t of sample b: of the step before in all[B,T,H], or first[B,H], or NULL. */
static const double *state_before(const sizes *s, const double *all, const double *first, size_t b,
                                  size_t t) {
    if (t > 0) return all + (b * s->t + t - 1) * s->h;
    return first ? first + b * s->h : NULL;
}

static void lstm_step(const tti_args *a, const sizes *s, size_t b, size_t t) {
    bool given = a->node->n_in == 7;
    const double *x = a->in[0] + (b * s->t + t) * s->in;
    const double *h = state_before(s, a->out[0], given ? a->in[5] : NULL, b, t);
    const double *c = state_before(s, a->out[1], given ? a->in[6] : NULL, b, t);
    double *y = a->out[0] + (b * s->t + t) * s->h, *cell = a->out[1] + (b * s->t + t) * s->h;
    double *gates = a->out[2] + (b * s->t + t) * 4 * s->h;
    for (size_t k = 0; k < 4 * s->h; k++) {
        double z = from_input(a, s, x, k) + from_state(a, s, h, k);
        gates[k] = k / s->h == 2 ? tanh(z) : sigmoid(z);
    }
    for (size_t j = 0; j < s->h; j++) {
        double before = c ? c[j] : 0;
        cell[j] = gates[s->h + j] * before + gates[j] * gates[2 * s->h + j];
        y[j] = gates[3 * s->h + j] * tanh(cell[j]);
    }
}

static void lstm_reference(const tti_args *a) {
    sizes s;
    TTI_ASSERT(check_forward(a->node, 4, 2, &s) == TUTTI_OK);
    for (size_t b = 0; b < s.b; b++)
        for (size_t t = 0; t < s.t; t++) lstm_step(a, &s, b, t);
}

/* The fourth quarter of gates is w_hn h + b_hn, which r multiplies. */
static void gru_step(const tti_args *a, const sizes *s, size_t b, size_t t) {
    const double *x = a->in[0] + (b * s->t + t) * s->in;
    const double *h = state_before(s, a->out[0], a->node->n_in == 6 ? a->in[5] : NULL, b, t);
    double *y = a->out[0] + (b * s->t + t) * s->h;
    double *gates = a->out[1] + (b * s->t + t) * 4 * s->h;
    for (size_t k = 0; k < 2 * s->h; k++)
        gates[k] = sigmoid(from_input(a, s, x, k) + from_state(a, s, h, k));
    for (size_t j = 0; j < s->h; j++) {
        double hidden = from_state(a, s, h, 2 * s->h + j), z = gates[s->h + j];
        double n = tanh(from_input(a, s, x, 2 * s->h + j) + gates[j] * hidden);
        gates[2 * s->h + j] = n;
        gates[3 * s->h + j] = hidden;
        y[j] = (1 - z) * n + z * (h ? h[j] : 0);
    }
}

static void gru_reference(const tti_args *a) {
    sizes s;
    TTI_ASSERT(check_forward(a->node, 3, 1, &s) == TUTTI_OK);
    for (size_t b = 0; b < s.b; b++)
        for (size_t t = 0; t < s.t; t++) gru_step(a, &s, b, t);
}

/* dh[j] += sum over rows of w_hh of dz[row] w_hh[row,j] */
static void add_state_grad(const double *w_hh, const double *dz, size_t n_rows, size_t n_h,
                           double *dh) {
    for (size_t k = 0; k < n_rows; k++)
        for (size_t j = 0; j < n_h; j++) dh[j] += dz[k] * w_hh[k * n_h + j];
}

/* Out: dgates[B,T,4H], dh0, dc0; the last two hold dh and dc on the way back. */
static void lstm_grad_step(const tti_args *a, const sizes *s, size_t b, size_t t) {
    size_t n = s->h, at = b * s->t + t;
    const double *dy = a->in[0] + at * n, *c = a->in[2] + at * n, *gates = a->in[3] + at * 4 * n;
    const double *before = state_before(s, a->in[2], a->node->n_in == 5 ? a->in[4] : NULL, b, t);
    double *dz = a->out[0] + at * 4 * n, *dh = a->out[1] + b * n, *dc = a->out[2] + b * n;
    for (size_t j = 0; j < n; j++) {
        double i = gates[j], f = gates[n + j], g = gates[2 * n + j], o = gates[3 * n + j];
        double th = tanh(c[j]), dhj = dh[j] + dy[j], dcj = dc[j] + dhj * o * (1 - th * th);
        dz[j] = dcj * g * i * (1 - i);
        dz[n + j] = dcj * (before ? before[j] : 0) * f * (1 - f);
        dz[2 * n + j] = dcj * i * (1 - g * g);
        dz[3 * n + j] = dhj * th * o * (1 - o);
        dc[j] = dcj * f;
        dh[j] = 0;
    }
    add_state_grad(a->in[1], dz, 4 * n, n, dh);
}

static void lstm_grad_reference(const tti_args *a) {
    sizes s;
    TTI_ASSERT(check_backward(a->node, 4, &s) == TUTTI_OK);
    memset(a->out[1], 0, s.b * s.h * sizeof(double));
    memset(a->out[2], 0, s.b * s.h * sizeof(double));
    for (size_t b = 0; b < s.b; b++)
        for (size_t t = s.t; t-- > 0;) lstm_grad_step(a, &s, b, t);
}

/* Out: the gates' gradients on the side of x and of h (they differ in n), dh0, which holds dh. */
static void gru_grad_step(const tti_args *a, const sizes *s, size_t b, size_t t) {
    size_t n = s->h, at = b * s->t + t;
    const double *dy = a->in[0] + at * n, *gates = a->in[3] + at * 4 * n;
    const double *before = state_before(s, a->in[2], a->node->n_in == 5 ? a->in[4] : NULL, b, t);
    double *di = a->out[0] + at * 3 * n, *dz = a->out[1] + at * 3 * n, *dh = a->out[2] + b * n;
    for (size_t j = 0; j < n; j++) {
        double r = gates[j], z = gates[n + j], new = gates[2 * n + j], hidden = gates[3 * n + j];
        double dhj = dh[j] + dy[j], dn = dhj * (1 - z) * (1 - new *new);
        di[j] = dz[j] = dn * hidden * r * (1 - r);
        di[n + j] = dz[n + j] = dhj * ((before ? before[j] : 0) - new) * z * (1 - z);
        di[2 * n + j] = dn;
        dz[2 * n + j] = dn * r;
        dh[j] = dhj * z;
    }
    add_state_grad(a->in[1], dz, 3 * n, n, dh);
}

static void gru_grad_reference(const tti_args *a) {
    sizes s;
    TTI_ASSERT(check_backward(a->node, 3, &s) == TUTTI_OK);
    memset(a->out[2], 0, s.b * s.h * sizeof(double));
    for (size_t b = 0; b < s.b; b++)
        for (size_t t = s.t; t-- > 0;) gru_grad_step(a, &s, b, t);
}

/* ---- gradients ---- */

/* The state before each step: h0 or zeros, then y without its last step. */
static tutti_value *states_before(tutti_graph *g, const tti_node *node, tutti_value *h0) {
    tutti_value *y = node->out[0];
    const int64_t *dim = y->type.shape.dim;
    if (dim[1] == 0) return y;
    tutti_value *in[2] = {h0};
    in[1] = tti_grad_emit(g, node, "slice", &y, 1,
                          (tti_attr_arg[]){TTI_INT("axis", 1), TTI_INT("len", dim[1] - 1), {0}});
    if (!h0)
        return tti_grad_emit(
            g, node, "slice_grad", &in[1], 1,
            (tti_attr_arg[]){
                TTI_INT("axis", 1), TTI_INT("start", 1), TTI_INT("total", dim[1]), {0}});
    in[0] =
        tti_grad_emit(g, node, "reshape", &h0, 1,
                      (tti_attr_arg[]){TTI_INTS("dims", 3, (int64_t[]){dim[0], 1, dim[2]}), {0}});
    return tti_grad_emit(g, node, "concat", in, 2, (tti_attr_arg[]){TTI_INT("axis", 1), {0}});
}

/* dx[0..4] of x, w_ih, w_hh, b_ih, b_hh from the gates' gradients on both sides. */
static void emit_products(tutti_graph *g, const tti_node *node, tutti_value *const d[2],
                          const bool *need, tutti_value **dx) {
    tutti_value *dw[TTI_MAX_OUT] = {NULL}, *du[TTI_MAX_OUT] = {NULL};
    if (need[0])
        dx[0] = tti_grad_emit(g, node, "matmul", (tutti_value *[]){d[0], node->in[1]}, 2, NULL);
    if (need[1] || need[3])
        tti_emit_n(g, "linear_grad_w", node->name, (tutti_value *[]){d[0], node->in[0]}, 2, NULL,
                   dw);
    if (need[2] || need[4])
        tti_emit_n(
            g, "linear_grad_w", node->name,
            (tutti_value *[]){d[1], states_before(g, node, node->n_in > 5 ? node->in[5] : NULL)}, 2,
            NULL, du);
    if (need[1]) dx[1] = dw[0];
    if (need[3]) dx[3] = dw[1];
    if (need[2]) dx[2] = du[0];
    if (need[4]) dx[4] = du[1];
}

static tutti_status lstm_gradient(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                  const bool *need, tutti_value **dx) {
    bool given = node->n_in == 7;
    tutti_value *d[TTI_MAX_OUT];
    if (!dy[0]) return TUTTI_OK;
    tti_emit_n(g, "lstm_grad", node->name,
               (tutti_value *[]){dy[0], node->in[2], node->out[1], node->out[2],
                                 given ? node->in[6] : NULL},
               given ? 5 : 4, NULL, d);
    emit_products(g, node, (tutti_value *[]){d[0], d[0]}, need, dx);
    if (given && need[5]) dx[5] = d[1];
    if (given && need[6]) dx[6] = d[2];
    return tutti_graph_check(g);
}

static tutti_status gru_gradient(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                                 const bool *need, tutti_value **dx) {
    bool given = node->n_in == 6;
    tutti_value *d[TTI_MAX_OUT];
    if (!dy[0]) return TUTTI_OK;
    tti_emit_n(g, "gru_grad", node->name,
               (tutti_value *[]){dy[0], node->in[2], node->out[0], node->out[1],
                                 given ? node->in[5] : NULL},
               given ? 5 : 4, NULL, d);
    emit_products(g, node, d, need, dx);
    if (given && need[5]) dx[5] = d[2];
    return tutti_graph_check(g);
}

/* ---- shard and cost ---- */

static const char samples_why[] = "only samples can be split";

static tutti_status forward_shard(const tti_node *node, const tti_placement *in,
                                  tti_placement *out) {
    static const tti_shard_rule rules[] = {{"0WWWW00", "000"}};
    return tti_shard_match(node, rules, 1, in, out, samples_why);
}

static tutti_status backward_shard(const tti_node *node, const tti_placement *in,
                                   tti_placement *out) {
    static const tti_shard_rule rules[] = {{"0W000", "000"}};
    return tti_shard_match(node, rules, 1, in, out, samples_why);
}

/* Two flops for each weight and step. */
static void forward_cost(const tti_node *node, tti_cost *cost) {
    double steps = (double)tti_in_dim(node, 0, 0) * (double)tti_in_dim(node, 0, 1);
    tti_cost_flops(node, 2 * steps * (double)(tti_in_n(node, 1) + tti_in_n(node, 2)), cost);
}

static void backward_cost(const tti_node *node, tti_cost *cost) {
    double steps = (double)tti_in_dim(node, 0, 0) * (double)tti_in_dim(node, 0, 1);
    tti_cost_flops(node, 2 * steps * (double)tti_in_n(node, 1), cost);
}

/* ---- builders ---- */

/* One kind of cell. */
typedef struct cell_kind {
    const char *op;
    int64_t n_gates;
} cell_kind;

/* Layer `index`: PyTorch's names and initialisation, all uniform within 1 / sqrt(H). */
static tutti_value *build_layer(tutti_graph *g, const cell_kind *kind, tutti_value *x,
                                int64_t n_hidden, int index, const char *name) {
    static const char *const parts[4] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    const tutti_init init = {.kind = TUTTI_INIT_FAN_IN_UNIFORM, .fan_in = n_hidden};
    int64_t rows = kind->n_gates * n_hidden, n_in = x ? x->type.shape.dim[2] : 0;
    const tutti_shape shapes[4] = {TUTTI_SHAPE(rows, n_in), TUTTI_SHAPE(rows, n_hidden),
                                   TUTTI_SHAPE(rows), TUTTI_SHAPE(rows)};
    tutti_value *in[5] = {x};
    for (int i = 0; i < 4; i++) {
        char suffix[32];
        snprintf(suffix, sizeof suffix, "%s_l%d", parts[i], index);
        in[1 + i] = tti_layer_param(g, name, suffix, &shapes[i], &init);
    }
    return tti_emit(g, kind->op, name, in, 5, NULL);
}

static tutti_value *build_layers(tutti_graph *g, const cell_kind *kind, tutti_value *x,
                                 const tutti_recurrent_desc *desc, const char *name) {
    char text[TTI_MAX_LAYER_NAME + 32];
    if (!tti_can_build(g, kind->op, x, name)) return NULL;
    int n_layers = desc && desc->n_layers ? desc->n_layers : 1;
    if (!desc || desc->n_hidden < 1 || desc->n_hidden > 1 << 24 || n_layers < 1)
        return tti_build_fail(g, "%s '%s': n_hidden and n_layers must be >= 1", kind->op, name);
    if (x->type.shape.n_dims != 3)
        return tti_build_fail(g, "%s '%s': input must be [B,T,I], is %s", kind->op, name,
                              tti_type_text(&x->type, text, sizeof text));
    for (int i = 0; i < n_layers; i++) {
        if (i > 0 && desc->dropout > 0) {
            snprintf(text, sizeof text, "%s.dropout_l%d", name, i - 1);
            x = tutti_dropout(g, x, desc->dropout, text);
        }
        x = build_layer(g, kind, x, desc->n_hidden, i, name);
    }
    return x;
}

tutti_value *tutti_lstm(tutti_graph *g, tutti_value *x, const tutti_recurrent_desc *desc,
                        const char *name) {
    return build_layers(g, &(cell_kind){"lstm", 4}, x, desc, name);
}

tutti_value *tutti_gru(tutti_graph *g, tutti_value *x, const tutti_recurrent_desc *desc,
                       const char *name) {
    return build_layers(g, &(cell_kind){"gru", 3}, x, desc, name);
}

/* ---- records ---- */

static const tti_sample lstm_samples[] = {
    {.in = "f32[2,4,3] f32[8,3] f32[8,2] f32[8] f32[8]"},
    {.in = "f32[2,3,5] f32[12,5] f32[12,3] f32[12] f32[12] f32[2,3] f32[2,3]", .lo = -2, .hi = 2},
    {.in = "f32[1,1,1] f32[4,1] f32[4,1] f32[4] f32[4]"},
    {.in = "f32[9,2,5] f32[68,5] f32[68,17] f32[68] f32[68]"},
    {.in = "f32[0,3,2] f32[8,2] f32[8,2] f32[8] f32[8]"},
    {.in = "f32[2,0,2] f32[8,2] f32[8,2] f32[8] f32[8]"},
    {.in = "f32[2,4,3] f32[8,3] f32[8,2] f32[8] f32[8] f32[2,2]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,3] f32[8,2] f32[8,2] f32[8] f32[8]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,3] f32[6,3] f32[6,2] f32[6] f32[6]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,3] f32[0,3] f32[0,0] f32[0] f32[0]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,3] f32[8,3] f32[8,2] f32[8] f32[8]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample lstm_grad_samples[] = {
    {.in = "f32[2,4,2] f32[8,2] f32[2,4,2] f32[2,4,8]"},
    {.in = "f32[2,3,3] f32[12,3] f32[2,3,3] f32[2,3,12] f32[2,3]"},
    {.in = "f32[9,3,48] f32[192,48] f32[9,3,48] f32[9,3,192]"},
    {.in = "f32[2,0,2] f32[8,2] f32[2,0,2] f32[2,0,8]"},
    {.in = "f32[2,4,2] f32[6,2] f32[2,4,2] f32[2,4,8]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,2] f32[8,2] f32[2,4,2] f32[2,4,6]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample gru_samples[] = {
    {.in = "f32[2,4,3] f32[6,3] f32[6,2] f32[6] f32[6]"},
    {.in = "f32[2,3,5] f32[9,5] f32[9,3] f32[9] f32[9] f32[2,3]", .lo = -2, .hi = 2},
    {.in = "f32[1,1,1] f32[3,1] f32[3,1] f32[3] f32[3]"},
    {.in = "f32[9,2,5] f32[51,5] f32[51,17] f32[51] f32[51]"},
    {.in = "f32[0,3,2] f32[6,2] f32[6,2] f32[6] f32[6]"},
    {.in = "f32[2,4,3] f32[6,3] f32[6,2] f32[6] f32[5]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,3] f32[8,3] f32[8,2] f32[8] f32[8]", .expect = TUTTI_E_INVALID},
    {0},
};

static const tti_sample gru_grad_samples[] = {
    {.in = "f32[2,4,2] f32[6,2] f32[2,4,2] f32[2,4,8]"},
    {.in = "f32[9,3,48] f32[144,48] f32[9,3,48] f32[9,3,192]"},
    {.in = "f32[2,3,3] f32[9,3] f32[2,3,3] f32[2,3,12] f32[2,3]"},
    {.in = "f32[2,4,2] f32[8,2] f32[2,4,2] f32[2,4,8]", .expect = TUTTI_E_INVALID},
    {.in = "f32[2,4,2] f32[6,2] f32[2,4,2] f32[2,4,8] f32[2,4]", .expect = TUTTI_E_INVALID},
    {0},
};

const tti_op tti_ops_recurrent[] = {
    {.name = "lstm",
     .doc =
         "y, c, gates (i, f, g, o) of an LSTM; inputs x[B,T,I], w_ih, w_hh, b_ih, b_hh, (h0, c0)?",
     .n_in_min = 5,
     .n_in_max = 7,
     .n_out = 3,
     .saved_out = 6,
     .infer = lstm_infer,
     .grad = lstm_gradient,
     .shard = forward_shard,
     .cost = forward_cost,
     .reference = lstm_reference,
     .samples = lstm_samples},
    {.name = "lstm_grad",
     .doc = "dgates, dh0, dc0 before the non-linearities; inputs dy, w_hh, c, gates, c0?",
     .n_in_min = 4,
     .n_in_max = 5,
     .n_out = 3,
     .infer = lstm_grad_infer,
     .shard = backward_shard,
     .cost = backward_cost,
     .reference = lstm_grad_reference,
     .samples = lstm_grad_samples},
    {.name = "gru",
     .doc =
         "y, gates (r, z, n, w_hn h + b_hn) of a GRU; inputs x[B,T,I], w_ih, w_hh, b_ih, b_hh, h0?",
     .n_in_min = 5,
     .n_in_max = 6,
     .n_out = 2,
     .saved_out = 2,
     .infer = gru_infer,
     .grad = gru_gradient,
     .shard = forward_shard,
     .cost = forward_cost,
     .reference = gru_reference,
     .samples = gru_samples},
    {.name = "gru_grad",
     .doc = "dgates of x's side and of h's side, dh0; inputs dy, w_hh, y, gates, h0?",
     .n_in_min = 4,
     .n_in_max = 5,
     .n_out = 3,
     .infer = gru_grad_infer,
     .shard = backward_shard,
     .cost = backward_cost,
     .reference = gru_grad_reference,
     .samples = gru_grad_samples},
    {0},
};
