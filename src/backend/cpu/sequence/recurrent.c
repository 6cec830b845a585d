/* recurrent.c - LSTM and GRU over whole sequences, with gradients; f32.
 *
 * One product for all steps computes the part of the gates that comes from the inputs.  Each step
 * then adds the product of the states of all samples with w_hh and runs the functions of the gates
 * along the hidden elements.  A weight is packed once per call into panels of PANEL columns, which
 * the products of all steps read from front to back.  The factors of a step are copied to rows that
 * follow each other: in the sequence they lie so far apart that they compete for few sets of the
 * cache.  While a step computes, the data of the next one are prefetched.  Gates are stored as in
 * src/ops/sequence/recurrent.c: i f g o of an LSTM, r z n and w_hn h + b_hn of a GRU. */
#include "backend/cpu/sequence/tiles.h"
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

/* ---- products with packed weights ---- */

enum { PANEL = 2 * TTI_LANES, EDGE_ROWS = 8 };

/* A matrix [k][n] in panels [k][PANEL], zeros beyond column n; edge: [EDGE_ROWS][PANEL]. */
typedef struct panels {
    size_t k, n;
    float *data, *edge;
} panels;

static size_t n_panels(size_t n) { return (n + PANEL - 1) / PANEL; }

/* Scratch: the panels, the edge, h zeros, then the rows of a step. */
static size_t scratch_floats(const sizes *s, size_t panel_floats, size_t width) {
    return panel_floats + (size_t)EDGE_ROWS * PANEL + padded(s->h) + s->b * (width + TTI_LANES);
}

static panels place_panels(size_t k, size_t n, size_t panel_floats, void *scratch) {
    return (panels){k, n, scratch, (float *)scratch + panel_floats};
}

static float *clear_zeros(const panels *p, size_t h) {
    float *zeros = p->edge + (size_t)EDGE_ROWS * PANEL;
    memset(zeros, 0, h * sizeof *zeros);
    return zeros;
}

/* A matrix with one row for each sample: sample b at from + b * step. */
typedef struct step_rows {
    float *from;
    size_t step;
} step_rows;

/* The rows behind the zeros.  One more vector in each, so that they begin in different places of
 * the cache. */
static step_rows place_rows(float *zeros, size_t h, size_t width) {
    return (step_rows){zeros + padded(h), width + TTI_LANES};
}

static void fetch(const float *x, size_t n) {
    for (size_t i = 0; i < n; i += TTI_LANES) __builtin_prefetch(x + i, 0, 2);
}

/* Packs the transpose of w[n][k]. */
static void pack_transposed(const panels *p, const float *w) {
    for (size_t j = 0; j < p->n; j += PANEL)
        transpose_rows_to(w + j * p->k, p->k, TTI_MIN((size_t)PANEL, p->n - j), p->k, PANEL,
                          p->data + j * p->k);
}

/* Packs w[k][n]. */
static void pack(const panels *p, const float *w) {
    for (size_t j = 0; j < p->n; j += PANEL) {
        float *to = p->data + j * p->k;
        size_t n = TTI_MIN((size_t)PANEL, p->n - j);
        for (size_t k = 0; k < p->k; k++, to += PANEL) {
            copy_row(w + k * p->n + j, n, to);
            for (size_t i = n; i < PANEL; i++) to[i] = 0.0f;
        }
    }
}

/* One product of rows with the panels: c[m][n] (+)= a[m][k] times the matrix. */
typedef struct product {
    const float *a;
    size_t m, a_row;
    float *c;
    size_t ldc;
    bool add;
} product;

/* A panel with fewer columns than whole vectors: its columns of c go through the edge. */
static void multiply_edge(const panels *p, tti_tile_product g, size_t n) {
    float *c = g.c;
    size_t m = g.m, ldc = g.ldc;
    g.n = PANEL, g.c = p->edge, g.ldc = PANEL;
    for (size_t i = 0; i < m; i += EDGE_ROWS, g.a += EDGE_ROWS * g.a_row) {
        g.m = TTI_MIN((size_t)EDGE_ROWS, m - i);
        memset(p->edge, 0, (size_t)EDGE_ROWS * PANEL * sizeof *p->edge);
        for (size_t r = 0; r < g.m; r++)
            memcpy(p->edge + r * PANEL, c + (i + r) * ldc, n * sizeof *c);
        TTI_VARIANT(tti_tile_multiply)(&g);
        for (size_t r = 0; r < g.m; r++)
            memcpy(c + (i + r) * ldc, p->edge + r * PANEL, n * sizeof *c);
    }
}

static void multiply(const panels *p, const product *r) {
    for (size_t j = 0; j < p->n; j += PANEL) {
        size_t n = TTI_MIN((size_t)PANEL, p->n - j);
        tti_tile_product g = {.m = r->m,
                              .n = n,
                              .k = p->k,
                              .a = r->a,
                              .a_row = r->a_row,
                              .a_col = 1,
                              .b = p->data + j * p->k,
                              .ldb = PANEL,
                              .c = r->c + j,
                              .ldc = r->ldc,
                              .add = r->add};
        if (n % TTI_LANES == 0)
            TTI_VARIANT(tti_tile_multiply)(&g);
        else
            multiply_edge(p, g, n);
    }
}

/* w_ih and w_hh are packed one after the other at the same place; of a GRU's w_hh the rows of n are
 * a matrix of their own. */
static size_t forward_panel_floats(const sizes *s) {
    return s->n_gates * n_panels(s->h) * PANEL * TTI_MAX(s->in, s->h);
}

static size_t backward_panel_floats(const sizes *s) {
    return n_panels(s->h) * PANEL * s->n_gates * s->h;
}

static size_t forward_bytes(const tti_node *node, const void *state) {
    sizes s = forward_sizes(node);
    (void)state;
    return scratch_floats(&s, forward_panel_floats(&s), s.h) * sizeof(float);
}

static size_t backward_bytes(const tti_node *node, const void *state) {
    sizes s = backward_sizes(node);
    (void)state;
    return scratch_floats(&s, backward_panel_floats(&s), s.n_gates * s.h) * sizeof(float);
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

/* gates[B,T,4H] = x w_ih^T in the first n_gates quarters. */
static void multiply_inputs(const sizes *s, const tti_kargs *a, float *gates) {
    panels w = place_panels(s->in, s->n_gates * s->h, forward_panel_floats(s), a->scratch);
    pack_transposed(&w, a->in[1]);
    multiply(&w, &(product){a->in[0], s->b * s->t, s->in, gates, 4 * s->h, false});
}

/* The gates of a step, from column `to` on, (+)= the states times the matrix. */
static void multiply_states(const sizes *s, const panels *w, step_rows h, float *to, bool add) {
    multiply(w, &(product){h.from, s->b, h.step, to, s->t * 4 * s->h, add});
}

/* Takes the first states into the rows; false: there are none. */
static bool copy_first(const sizes *s, const float *first, step_rows h) {
    for (size_t b = 0; s->given && b < s->b; b++)
        copy_row(first + b * s->h, s->h, h.from + b * h.step);
    return s->given;
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
    panels w_hh = place_panels(s.h, 4 * s.h, forward_panel_floats(&s), a->scratch);
    float *zeros = clear_zeros(&w_hh, s.h);
    step_rows h = place_rows(zeros, s.h, s.h);
    bool has_states = copy_first(&s, s.given ? a->in[5] : NULL, h);
    (void)state;
    multiply_inputs(&s, a, gates);
    pack_transposed(&w_hh, a->in[2]);
    for (size_t t = 0; t < s.t; t++, has_states = true) {
        states c = states_before(&s, cell, s.given ? a->in[6] : NULL, t);
        if (has_states) multiply_states(&s, &w_hh, h, gates + t * 4 * s.h, true);
        for (size_t b = 0; b < s.b; b++) {
            size_t at = (b * s.t + t) * s.h;
            if (t + 1 < s.t) fetch(gates + 4 * (at + s.h), 4 * s.h);
            lstm_cell(s.h, gates + 4 * at, a->in[3], a->in[4], state_of(c, zeros, b), cell + at,
                      y + at);
            copy_row(y + at, s.h, h.from + b * h.step);
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

/* w_hh in panels of hidden elements. */
static panels pack_backward(const sizes *s, const tti_kargs *a) {
    panels w = place_panels(s->n_gates * s->h, s->h, backward_panel_floats(s), a->scratch);
    pack(&w, a->in[1]);
    return w;
}

/* dh[B,H] (+)= dz of a step times w_hh. */
static void back_to_states(const sizes *s, const panels *w_hh, step_rows dz, float *dh, bool add) {
    multiply(w_hh, &(product){dz.from, s->b, dz.step, dh, s->h, add});
}

/* The values of sample b that the step before step t reads and writes. */
static void fetch_before(const sizes *s, const tti_kargs *a, size_t b, size_t t, float *dz) {
    size_t at = (b * s->t + t - 1) * s->h;
    const float *dy = a->in[0], *before = a->in[2], *gates = a->in[3];
    if (t == 0) return;
    fetch(dy + at, s->h);
    fetch(gates + 4 * at, 4 * s->h);
    fetch(dz + s->n_gates * at, s->n_gates * s->h);
    if (t > 1) fetch(before + at - s->h, s->h);
}

static tutti_status lstm_grad_run(void *state, const tti_kargs *a) {
    sizes s = backward_sizes(a->node);
    const float *dy = a->in[0], *cell = a->in[2], *gates = a->in[3];
    float *dz = a->out[0], *dh = a->out[1], *dc = a->out[2];
    panels w_hh = pack_backward(&s, a);
    float *zeros = clear_zeros(&w_hh, s.h);
    step_rows rows = place_rows(zeros, s.h, 4 * s.h);
    (void)state;
    memset(dh, 0, s.b * s.h * sizeof *dh);
    memset(dc, 0, s.b * s.h * sizeof *dc);
    for (size_t t = s.t; t-- > 0;) {
        states c = states_before(&s, cell, s.given ? a->in[4] : NULL, t);
        for (size_t b = 0; b < s.b; b++) {
            size_t at = (b * s.t + t) * s.h;
            lstm_step step = {dy + at,     cell + at,    gates + 4 * at, state_of(c, zeros, b),
                              dz + 4 * at, dh + b * s.h, dc + b * s.h};
            fetch_before(&s, a, b, t, dz);
            lstm_cell_grad(s.h, &step);
            copy_row(dz + 4 * at, 4 * s.h, rows.from + b * rows.step);
        }
        back_to_states(&s, &w_hh, rows, dh, false);
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
    panels to_rz = place_panels(n, 2 * n, forward_panel_floats(&s), a->scratch), to_n = to_rz;
    float *zeros = clear_zeros(&to_rz, n);
    const float *w_hh = a->in[2];
    step_rows h = place_rows(zeros, n, n);
    bool has_states = copy_first(&s, s.given ? a->in[5] : NULL, h);
    (void)state;
    multiply_inputs(&s, a, gates);
    to_n.n = n, to_n.data += n_panels(2 * n) * PANEL * n;
    pack_transposed(&to_rz, w_hh);
    pack_transposed(&to_n, w_hh + 2 * n * n);
    for (size_t t = 0; t < s.t; t++, has_states = true) {
        if (has_states) {
            multiply_states(&s, &to_rz, h, gates + t * 4 * n, true);
            multiply_states(&s, &to_n, h, gates + t * 4 * n + 3 * n, false);
        }
        for (size_t b = 0; b < s.b; b++) {
            size_t at = (b * s.t + t) * n;
            float *row = h.from + b * h.step;
            if (!has_states) memset(gates + 4 * at + 3 * n, 0, n * sizeof *gates);
            if (t + 1 < s.t) fetch(gates + 4 * (at + n), 4 * n);
            gru_cell(n, gates + 4 * at, a->in[3], a->in[4], has_states ? row : zeros, y + at);
            copy_row(y + at, n, row);
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
    float *di = a->out[0], *dz = a->out[1], *dh = a->out[2];
    panels w_hh = pack_backward(&s, a);
    float *zeros = clear_zeros(&w_hh, s.h);
    step_rows rows = place_rows(zeros, s.h, 3 * s.h);
    (void)state;
    memset(dh, 0, s.b * s.h * sizeof *dh);
    for (size_t t = s.t; t-- > 0;) {
        states h = states_before(&s, y, s.given ? a->in[4] : NULL, t);
        for (size_t b = 0; b < s.b; b++) {
            size_t at = (b * s.t + t) * s.h;
            fetch_before(&s, a, b, t, dz);
            gru_cell_grad(s.h, dy + at, gates + 4 * at, state_of(h, zeros, b), di + 3 * at,
                          dz + 3 * at, dh + b * s.h);
            copy_row(dz + 3 * at, 3 * s.h, rows.from + b * rows.step);
        }
        back_to_states(&s, &w_hh, rows, dh, true);
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
