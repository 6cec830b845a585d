/* recurrent.c - LSTM and GRU over whole sequences, with gradients; f32, on our own product.
 *
 * The inputs' part of the gates is one product for all steps; then each step adds the product of
 * the states of all samples with w_hh, which lies transposed in scratch, and runs the functions of
 * the gates along the hidden elements.  Gates stand as in src/ops/sequence/recurrent.c: of an LSTM
 * i f g o, of a GRU r z n and w_hn h + b_hn. */
#include "backend/cpu/simd.h"
#include "backend/cpu/vmath.h"

typedef struct sizes {
    size_t b, t, in, h, n_gates; /* n_gates: rows of w_hh over h */
    bool given;                  /* the first states are inputs */
} sizes;

static bool can_run(const tti_node *node) { return tti_all_f32(node); }

/* From x, w_ih, w_hh, .. */
static sizes forward_sizes(const tti_node *node) {
    const int64_t *x = node->in[0]->type.shape.dim, *w = node->in[2]->type.shape.dim;
    sizes s = {(size_t)x[0], (size_t)x[1], (size_t)x[2], (size_t)w[1], 0, node->n_in > 5};
    s.n_gates = (size_t)w[0] / s.h;
    return s;
}

/* From dy, w_hh, .. */
static sizes backward_sizes(const tti_node *node) {
    const int64_t *dy = node->in[0]->type.shape.dim;
    sizes s = {(size_t)dy[0], (size_t)dy[1], 0, (size_t)dy[2], 0, node->n_in > 4};
    s.n_gates = (size_t)node->in[1]->type.shape.dim[0] / s.h;
    return s;
}

/* Scratch: of the product, then w_hh^T[h][n_gates h], then h zeros. */
static float *own_scratch(void *scratch) {
    return (float *)((char *)scratch + (TTI_VARIANT(tti_gemm_scratch_bytes)() + 63) / 64 * 64);
}

static size_t forward_bytes(const tti_node *node, const void *state) {
    sizes s = forward_sizes(node);
    (void)state;
    return TTI_VARIANT(tti_gemm_scratch_bytes)() + 64 + (s.n_gates * s.h + 1) * s.h * sizeof(float);
}

static size_t backward_bytes(const tti_node *node, const void *state) {
    (void)state;
    return TTI_VARIANT(tti_gemm_scratch_bytes)() + 64 +
           (size_t)node->in[0]->type.shape.dim[2] * sizeof(float);
}

/* A state of all samples: sample b at from + b * step; NULL: zeros. */
typedef struct states {
    const float *from;
    size_t step;
} states;

/* The states before step t: of the step before in all[B,T,H], or first[B,H], or none. */
static states states_before(const sizes *s, const float *all, const float *first, size_t t) {
    if (t > 0) return (states){all + (t - 1) * s->h, s->t * s->h};
    return (states){s->given ? first : NULL, s->h};
}

static const float *state_of(states all, const float *zeros, size_t b) {
    return all.from ? all.from + b * all.step : zeros;
}

/* gates[B,T,4H] = x w_ih^T in the first n_gates quarters; w_hh^T and zeros go to scratch. */
static void start(const sizes *s, const tti_kargs *a, float *gates) {
    const float *w_hh = a->in[2];
    float *turned = own_scratch(a->scratch);
    size_t n_rows = s->n_gates * s->h;
    TTI_VARIANT(tti_gemm_run)
    (&(tti_gemm){.m = s->b * s->t,
                 .n = n_rows,
                 .k = s->in,
                 .a = a->in[0],
                 .a_row = s->in,
                 .a_col = 1,
                 .b = a->in[1],
                 .b_row = 1,
                 .b_col = s->in,
                 .c = gates,
                 .ldc = 4 * s->h},
     a->scratch);
    for (size_t r = 0; r < n_rows; r++)
        for (size_t j = 0; j < s->h; j++) turned[j * n_rows + r] = w_hh[r * s->h + j];
    memset(turned + n_rows * s->h, 0, s->h * sizeof *turned);
}

/* gates of step t, from column `to` on (+)= h times the n rows of w_hh from row `first` on. */
static void add_states(const sizes *s, const tti_kargs *a, states h, size_t first, size_t n,
                       float *to, bool add) {
    TTI_VARIANT(tti_gemm_run)
    (&(tti_gemm){.m = s->b,
                 .n = n,
                 .k = s->h,
                 .a = h.from,
                 .a_row = h.step,
                 .a_col = 1,
                 .b = own_scratch(a->scratch) + first,
                 .b_row = s->n_gates * s->h,
                 .b_col = 1,
                 .c = to,
                 .ldc = s->t * 4 * s->h,
                 .add = add},
     a->scratch);
}

static void sigmoids(float *z, const float *b_ih, const float *b_hh, size_t n) {
    TTI_IVDEP
    for (size_t k = 0; k < n; k++) z[k] = tti_vsigmoid(z[k] + b_ih[k] + b_hh[k]);
}

/* ---- LSTM ---- */

static void lstm_cell(size_t n, float *gates, const float *b_ih, const float *b_hh,
                      const float *before, float *cell, float *y) {
    sigmoids(gates, b_ih, b_hh, 2 * n);
    sigmoids(gates + 3 * n, b_ih + 3 * n, b_hh + 3 * n, n);
    TTI_IVDEP
    for (size_t j = 0; j < n; j++) {
        float g = tti_vtanh(gates[2 * n + j] + b_ih[2 * n + j] + b_hh[2 * n + j]);
        float c = gates[n + j] * before[j] + gates[j] * g;
        gates[2 * n + j] = g;
        cell[j] = c;
        y[j] = gates[3 * n + j] * tti_vtanh(c);
    }
}

static tutti_status lstm_run(void *state, const tti_kargs *a) {
    sizes s = forward_sizes(a->node);
    float *y = a->out[0], *cell = a->out[1], *gates = a->out[2];
    const float *zeros = own_scratch(a->scratch) + 4 * s.h * s.h;
    (void)state;
    start(&s, a, gates);
    for (size_t t = 0; t < s.t; t++) {
        states h = states_before(&s, y, s.given ? a->in[5] : NULL, t);
        states c = states_before(&s, cell, s.given ? a->in[6] : NULL, t);
        if (h.from) add_states(&s, a, h, 0, 4 * s.h, gates + t * 4 * s.h, true);
        for (size_t b = 0; b < s.b; b++) {
            size_t at = (b * s.t + t) * s.h;
            lstm_cell(s.h, gates + 4 * at, a->in[3], a->in[4], state_of(c, zeros, b), cell + at,
                      y + at);
        }
    }
    return TUTTI_OK;
}

/* One step of one sample on the way back: of n elements each, gates and dz of 4 n. */
typedef struct lstm_step {
    const float *dy, *cell, *gates, *before;
    float *dz, *dh, *dc;
} lstm_step;

static void lstm_cell_grad(size_t n, const lstm_step *step) {
    const float *dy = step->dy, *cell = step->cell, *gates = step->gates, *before = step->before;
    float *dz = step->dz, *dh = step->dh, *dc = step->dc;
    TTI_IVDEP
    for (size_t j = 0; j < n; j++) {
        float i = gates[j], f = gates[n + j], g = gates[2 * n + j], o = gates[3 * n + j];
        float th = tti_vtanh(cell[j]), dhj = dh[j] + dy[j];
        float dcj = dc[j] + dhj * o * (1.0f - th * th);
        dz[j] = dcj * g * i * (1.0f - i);
        dz[n + j] = dcj * before[j] * f * (1.0f - f);
        dz[2 * n + j] = dcj * i * (1.0f - g * g);
        dz[3 * n + j] = dhj * th * o * (1.0f - o);
        dc[j] = dcj * f;
    }
}

/* dh[B,H] (+)= dz of step t times w_hh. */
static void back_to_states(const sizes *s, const tti_kargs *a, const float *dz, float *dh,
                           bool add) {
    size_t n_rows = s->n_gates * s->h;
    TTI_VARIANT(tti_gemm_run)
    (&(tti_gemm){.m = s->b,
                 .n = s->h,
                 .k = n_rows,
                 .a = dz,
                 .a_row = s->t * n_rows,
                 .a_col = 1,
                 .b = a->in[1],
                 .b_row = s->h,
                 .b_col = 1,
                 .c = dh,
                 .ldc = s->h,
                 .add = add},
     a->scratch);
}

static tutti_status lstm_grad_run(void *state, const tti_kargs *a) {
    sizes s = backward_sizes(a->node);
    const float *dy = a->in[0], *cell = a->in[2], *gates = a->in[3];
    float *dz = a->out[0], *dh = a->out[1], *dc = a->out[2], *zeros = own_scratch(a->scratch);
    (void)state;
    memset(zeros, 0, s.h * sizeof *zeros);
    memset(dh, 0, s.b * s.h * sizeof *dh);
    memset(dc, 0, s.b * s.h * sizeof *dc);
    for (size_t t = s.t; t-- > 0;) {
        states c = states_before(&s, cell, s.given ? a->in[4] : NULL, t);
        for (size_t b = 0; b < s.b; b++) {
            size_t at = (b * s.t + t) * s.h;
            lstm_step step = {dy + at,     cell + at,    gates + 4 * at, state_of(c, zeros, b),
                              dz + 4 * at, dh + b * s.h, dc + b * s.h};
            lstm_cell_grad(s.h, &step);
        }
        back_to_states(&s, a, dz + t * 4 * s.h, dh, false);
    }
    return TUTTI_OK;
}

/* ---- GRU ---- */

static void gru_cell(size_t n, float *gates, const float *b_ih, const float *b_hh,
                     const float *before, float *y) {
    sigmoids(gates, b_ih, b_hh, 2 * n);
    TTI_IVDEP
    for (size_t j = 0; j < n; j++) {
        float hidden = gates[3 * n + j] + b_hh[2 * n + j], z = gates[n + j];
        float new = tti_vtanh(gates[2 * n + j] + b_ih[2 * n + j] + gates[j] * hidden);
        gates[2 * n + j] = new;
        gates[3 * n + j] = hidden;
        y[j] = (1.0f - z) * new + z *before[j];
    }
}

static tutti_status gru_run(void *state, const tti_kargs *a) {
    sizes s = forward_sizes(a->node);
    size_t n = s.h;
    float *y = a->out[0], *gates = a->out[1];
    const float *zeros = own_scratch(a->scratch) + 3 * n * n;
    (void)state;
    start(&s, a, gates);
    for (size_t t = 0; t < s.t; t++) {
        states h = states_before(&s, y, s.given ? a->in[5] : NULL, t);
        if (h.from) {
            add_states(&s, a, h, 0, 2 * n, gates + t * 4 * n, true);
            add_states(&s, a, h, 2 * n, n, gates + t * 4 * n + 3 * n, false);
        }
        for (size_t b = 0; b < s.b; b++) {
            size_t at = (b * s.t + t) * n;
            if (!h.from) memset(gates + 4 * at + 3 * n, 0, n * sizeof *gates);
            gru_cell(n, gates + 4 * at, a->in[3], a->in[4], state_of(h, zeros, b), y + at);
        }
    }
    return TUTTI_OK;
}

/* di on the side of x, dz on the side of h: they differ in n. */
static void gru_cell_grad(size_t n, const float *dy, const float *gates, const float *before,
                          float *di, float *dz, float *dh) {
    TTI_IVDEP
    for (size_t j = 0; j < n; j++) {
        float r = gates[j], z = gates[n + j], new = gates[2 * n + j], hidden = gates[3 * n + j];
        float dhj = dh[j] + dy[j], dn = dhj * (1.0f - z) * (1.0f - new *new);
        di[j] = dz[j] = dn * hidden * r * (1.0f - r);
        di[n + j] = dz[n + j] = dhj * (before[j] - new) * z * (1.0f - z);
        di[2 * n + j] = dn;
        dz[2 * n + j] = dn * r;
        dh[j] = dhj * z;
    }
}

static tutti_status gru_grad_run(void *state, const tti_kargs *a) {
    sizes s = backward_sizes(a->node);
    const float *dy = a->in[0], *y = a->in[2], *gates = a->in[3];
    float *di = a->out[0], *dz = a->out[1], *dh = a->out[2], *zeros = own_scratch(a->scratch);
    (void)state;
    memset(zeros, 0, s.h * sizeof *zeros);
    memset(dh, 0, s.b * s.h * sizeof *dh);
    for (size_t t = s.t; t-- > 0;) {
        states h = states_before(&s, y, s.given ? a->in[4] : NULL, t);
        for (size_t b = 0; b < s.b; b++) {
            size_t at = (b * s.t + t) * s.h;
            gru_cell_grad(s.h, dy + at, gates + 4 * at, state_of(h, zeros, b), di + 3 * at,
                          dz + 3 * at, dh + b * s.h);
        }
        back_to_states(&s, a, dz + t * 3 * s.h, dh, true);
    }
    return TUTTI_OK;
}

#define ROW(op_name, bytes_fn, run_fn)                                                      \
    {                                                                                       \
        .op = op_name, .name = TTI_ISA_TEXT, .can_run = can_run, .scratch_bytes = bytes_fn, \
        .run = run_fn                                                                       \
    }

extern const tti_kernel TTI_VARIANT(tti_kernels_recurrent)[];
const tti_kernel TTI_VARIANT(tti_kernels_recurrent)[] = {
    ROW("lstm", forward_bytes, lstm_run),
    ROW("lstm_grad", backward_bytes, lstm_grad_run),
    ROW("gru", forward_bytes, gru_run),
    ROW("gru_grad", backward_bytes, gru_grad_run),
    {0},
};
