/* onnx_ops_recurrent.c - LSTM and GRU of ONNX. Compared with PyTorch, their gates are in another
 * order, weights have a dimension for directions, and both biases are in one tensor. */
#include <string.h>

#include "base/error.h"
#include "import/onnx/onnx_ops.h"

/* PyTorch's gates as indices of ONNX gates: i,o,f,c becomes i,f,c,o, and z,r,h becomes r,z,h. */
static const int lstm_order[] = {0, 2, 3, 1}, gru_order[] = {1, 0, 2};

typedef struct layer {
    const char *target;
    const int *order;
    int n_gates;
    int64_t hidden;
    bool reverse;
    int direction;
} layer;

/* Takes rows [start, start + n_gates * hidden) of direction d, with gates in PyTorch's order. */
static void take_gates(tti_building *b, const layer *l, const tti_operand *x, int64_t start,
                       tti_operand *out) {
    tutti_shape s = tti_shape_of(x);
    tti_operand own = {0}, parts[4] = {{0}};
    tti_arg items[4] = {{0}};
    int64_t size = l->n_gates * l->hidden;
    if (s.n_dims < 2 || start + size > s.dim[1]) tti_refuse(b, "a weight does not fit hidden_size");
    if (tti_good(b))
        tti_call_row(b, "aten.select.int",
                     (tti_arg[]){tti_operand_arg(x), tti_int_arg(0), tti_int_arg(l->direction)}, 3,
                     (tti_operand *[]){&own}, 1);
    for (int g = 0; g < l->n_gates && tti_good(b); g++) {
        tti_do_slice(b, &own, 0, start + l->order[g] * l->hidden, l->hidden, 1, &parts[g]);
        items[g] = tti_operand_arg(&parts[g]);
    }
    tti_arg list = {.kind = TTI_ARG_LIST, .items = items, .n = l->n_gates};
    if (tti_good(b))
        tti_call_row(b, "aten.cat.default", (tti_arg[]){list, tti_int_arg(0)}, 2, &out, 1);
}

/* Takes the state [1,B,H] of one direction; zeros if there is none. */
static void take_state(tti_building *b, const layer *l, const tti_call *c, int k,
                       tti_operand *out) {
    tti_host zero, zeros;
    if (tti_has(c, k)) {
        tti_do_slice(b, tti_operand_at(b, c, k), 0, l->direction, 1, 1, out);
        return;
    }
    int64_t rows = tti_shape_of(tti_operand_at(b, c, 0)).dim[1];
    if (tti_host_new(b, TTI_ELEM_F32, &(tutti_shape){0}, &zero) &&
        tti_host_expand(b, &zero, &TUTTI_SHAPE(1, rows, l->hidden), &zeros))
        tti_set_host(out, &zeros);
}

static void flip_time(tti_building *b, tti_operand *x) {
    tti_operand transpose_of = {0};
    tti_call_row(b, "aten.flip.default", (tti_arg[]){tti_operand_arg(x), tti_int_arg(0)}, 2,
                 (tti_operand *[]){&transpose_of}, 1);
    *x = transpose_of;
}

/* Runs one direction: out [T,B,H], in order of time. */
static void run_direction(tti_building *b, const tti_call *c, const layer *l, tti_operand *out) {
    tti_operand x = *tti_operand_at(b, c, 0), w[4] = {{0}}, state[2] = {{0}};
    tti_arg weights[4] = {{0}}, states[2];
    bool has_bias = tti_has(c, 3), is_lstm = l->n_gates == 4;
    take_gates(b, l, tti_operand_at(b, c, 1), 0, &w[0]);
    take_gates(b, l, tti_operand_at(b, c, 2), 0, &w[1]);
    for (int i = 0; i < 2 && has_bias && tti_good(b); i++)
        take_gates(b, l, tti_operand_at(b, c, 3), i * l->n_gates * l->hidden, &w[2 + i]);
    for (int i = 0; i < 1 + is_lstm && tti_good(b); i++) take_state(b, l, c, 5 + i, &state[i]);
    for (int i = 0; i < 4; i++) weights[i] = tti_operand_arg(&w[i]);
    for (int i = 0; i < 2; i++) states[i] = tti_operand_arg(&state[i]);
    if (l->reverse && tti_good(b)) flip_time(b, &x);
    tti_arg list = {.kind = TTI_ARG_LIST, .items = weights, .n = has_bias ? 4 : 2};
    tti_arg initial = {.kind = TTI_ARG_LIST, .items = states, .n = 2};
    if (!tti_good(b)) return;
    tti_call_row(b, l->target,
                 (tti_arg[]){tti_operand_arg(&x), is_lstm ? initial : states[0], list,
                             tti_bool_arg(has_bias), tti_int_arg(1), tti_float_arg(0),
                             tti_bool_arg(true), tti_bool_arg(false), tti_bool_arg(false)},
                 9, &out, 1);
    if (l->reverse && tti_good(b)) flip_time(b, out);
}

/* Takes the state that a direction computed last. */
static void last_state(tti_building *b, const layer *l, const tti_operand *y, int64_t n_steps,
                       tti_operand *out) {
    tti_do_slice(b, y, 0, l->reverse ? 0 : n_steps - 1, 1, 1, out);
}

/* X W R B sequence_lens initial_h initial_c ...: out Y [T,D,B,H], Y_h [D,B,H]. */
static void recurrent(tti_building *b, const tti_call *c, layer l, const char *direction) {
    tutti_shape s = tti_shape_of(tti_operand_at(b, c, 0)),
                sr = tti_shape_of(tti_operand_at(b, c, 2));
    tti_operand y[2] = {{0}}, wide[2] = {{0}}, last[2] = {{0}};
    tti_arg items[2], ends[2];
    int n = strcmp(direction, "bidirectional") == 0 ? 2 : 1;
    if (n == 1 && strcmp(direction, "forward") != 0 && strcmp(direction, "reverse") != 0)
        tti_refuse(b, "direction '%s' is not supported", direction);
    if (tti_has(c, 4)) tti_refuse(b, "sequences of several lengths are not supported");
    if (s.n_dims != 3 || sr.n_dims != 3 || sr.dim[0] != n) tti_refuse(b, "the shapes do not match");
    l.hidden = sr.n_dims == 3 ? sr.dim[2] : 0;
    for (int d = 0; d < n && tti_good(b); d++) {
        l.direction = d;
        l.reverse = d == 1 || strcmp(direction, "reverse") == 0;
        run_direction(b, c, &l, &y[d]);
        tti_operand *to = &wide[d];
        if (tti_good(b))
            tti_call_row(b, "aten.unsqueeze.default",
                         (tti_arg[]){tti_operand_arg(&y[d]), tti_int_arg(1)}, 2, &to, 1);
        if (tti_good(b) && c->out[1]) last_state(b, &l, &y[d], s.dim[0], &last[d]);
        items[d] = tti_operand_arg(&wide[d]);
        ends[d] = tti_operand_arg(&last[d]);
    }
    if (!tti_good(b)) return;
    if (c->out[0])
        tti_call_row(b, "aten.cat.default",
                     (tti_arg[]){{.kind = TTI_ARG_LIST, .items = items, .n = n}, tti_int_arg(1)}, 2,
                     c->out, 1);
    if (c->out[1] && tti_good(b))
        tti_call_row(b, "aten.cat.default",
                     (tti_arg[]){{.kind = TTI_ARG_LIST, .items = ends, .n = n}, tti_int_arg(0)}, 2,
                     &c->out[1], 1);
}

/* X W R B sequence_lens initial_h initial_c P activations clip direction input_forget layout */
static void lstm(tti_building *b, const tti_call *c) {
    if (tti_has(c, 7) || tti_has(c, 9) || tti_bool_at(b, c, 11) || tti_bool_at(b, c, 12))
        tti_refuse(b, "peepholes, clip, input_forget and layout=1 are not supported");
    for (int i = 0; tti_good(b) && tti_has(c, 8) && i < c->arg[8]->n; i++)
        if (strcmp(c->arg[8]->items[i].text, i % 3 == 0 ? "Sigmoid" : "Tanh") != 0)
            tti_refuse(b, "activations other than Sigmoid, Tanh, Tanh are not supported");
    if (tti_good(b))
        recurrent(b, c, (layer){.target = "aten.lstm.input", .order = lstm_order, .n_gates = 4},
                  tti_text_at(b, c, 10));
}

/* X W R B sequence_lens initial_h activations clip direction layout linear_before_reset */
static void gru(tti_building *b, const tti_call *c) {
    if (tti_has(c, 7) || tti_bool_at(b, c, 9)) tti_refuse(b, "clip and layout=1 are not supported");
    if (!tti_bool_at(b, c, 10))
        tti_refuse(b, "linear_before_reset=0 is not supported (Keras: reset_after=True)");
    for (int i = 0; tti_good(b) && tti_has(c, 6) && i < c->arg[6]->n; i++)
        if (strcmp(c->arg[6]->items[i].text, i % 2 == 0 ? "Sigmoid" : "Tanh") != 0)
            tti_refuse(b, "activations other than Sigmoid, Tanh are not supported");
    if (tti_good(b))
        recurrent(b, c, (layer){.target = "aten.gru.input", .order = gru_order, .n_gates = 3},
                  tti_text_at(b, c, 8));
}

const tti_operator tti_operators_onnx_recurrent[] = {
    {.target = "onnx.LSTM",
     .signature = "X W R B=None sequence_lens=None initial_h=None initial_c=None P=None "
                  "activation_alpha! activation_beta! activations=None clip=None "
                  "direction=forward hidden_size! input_forget=0 layout=0",
     .build = lstm},
    {.target = "onnx.GRU",
     .signature = "X W R B=None sequence_lens=None initial_h=None activation_alpha! "
                  "activation_beta! activations=None clip=None direction=forward hidden_size! "
                  "layout=0 linear_before_reset=0",
     .build = gru},
    {0},
};
