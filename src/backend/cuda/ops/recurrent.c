/* recurrent.c - LSTM and GRU over whole sequences, and their gradients.
 *
 * The inputs' part of the gates is one product for all steps.  Then each step is one product of the
 * state of all samples with w_hh, and one kernel for the functions of the gates (recurrent.cu).
 * The state between steps, and every sum of products, is f32 (f64 for f64): in 16 bits only stored
 * values, and the input of the next product, are rounded. */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/gemm/blas.h"
#include "backend/cuda/ops/recurrent.h"
#include "backend/cuda/runtime/cuda.h"

/* Parts of scratch: gates and state are wide, LOW is the next left factor. */
enum { X_PART, H_PART, CARRY, CARRY_C, LOW, WORKSPACE, N_REGIONS, REGION_ALIGNMENT = 256 };

typedef struct sequence {
    tti_cuda_cell cell;
    tutti_dtype wide;             /* type of the state */
    int n_gates;                  /* 4 of an LSTM, 3 of a GRU */
    bool given;                   /* the first states are inputs */
    tti_blas_plan *input, *step;  /* of x, of each step; NULL: nothing to multiply */
    size_t region[N_REGIONS + 1]; /* where each region of scratch begins; [N_REGIONS]: the end */
} sequence;

static tutti_dtype wide_of(tutti_dtype dtype) { return dtype == TUTTI_F64 ? TUTTI_F64 : TUTTI_F32; }

/* ---- prepare ---- */

static void release(void *state) {
    sequence *s = state;
    if (s) tti_blas_plan_destroy(s->input);
    if (s) tti_blas_plan_destroy(s->step);
    free(s);
}

static tti_blas_problem problem_of(const sequence *s, int64_t m, int64_t n, int64_t k) {
    tti_blas_problem p;
    memset(&p, 0, sizeof p); /* its bytes are a key */
    p.m = m, p.n = n, p.k = k, p.n_batch = 1;
    p.lda = k, p.ldb = n, p.ldd = n;
    p.in = (int32_t)s->cell.dtype, p.out = (int32_t)s->wide;
    return p;
}

/* From the bytes of each region to the place of every region. */
static void place_regions(sequence *s, const size_t n_bytes[N_REGIONS]) {
    s->region[0] = 0;
    for (int i = 0; i < N_REGIONS; i++)
        s->region[i + 1] = s->region[i] + (n_bytes[i] + REGION_ALIGNMENT - 1) / REGION_ALIGNMENT *
                                              REGION_ALIGNMENT;
}

static size_t workspace_of(const tti_blas_plan *plan) {
    return plan ? tti_blas_workspace(plan) : 0;
}

/* x_part[B T][4H] = x w_ih^T in the first n H columns; h_part[B][n H] = h w_hh^T. */
static tutti_status plan_forward(sequence *s, int64_t n_in) {
    const tti_cuda_cell *c = &s->cell;
    int64_t rows = s->n_gates * c->h;
    tti_blas_problem input = problem_of(s, c->b * c->t, rows, n_in);
    tti_blas_problem step = problem_of(s, c->b, rows, c->h);
    input.trans_b = step.trans_b = 1;
    input.ldb = n_in, step.ldb = c->h;
    input.ldd = 4 * c->h;
    if (c->b * c->t == 0) return TUTTI_OK;
    if (n_in > 0) TTI_TRY(tti_blas_plan_create(&input, &s->input));
    return tti_blas_plan_create(&step, &s->step);
}

/* dh[B][H] (+)= dz[B][n H] w_hh; a GRU adds to what z let through. */
static tutti_status plan_backward(sequence *s) {
    const tti_cuda_cell *c = &s->cell;
    tti_blas_problem step = problem_of(s, c->b, c->h, s->n_gates * c->h);
    step.add = s->n_gates == 3;
    return c->b * c->t == 0 ? TUTTI_OK : tti_blas_plan_create(&step, &s->step);
}

static void place_forward(sequence *s) {
    const tti_cuda_cell *c = &s->cell;
    size_t e = tutti_dtype_bytes(s->wide), n = (size_t)(c->b * c->h);
    size_t n_workspace = TTI_MAX(workspace_of(s->input), workspace_of(s->step));
    bool own_x_part = c->dtype != s->wide; /* else it comes into being in gates */
    place_regions(
        s, (size_t[]){own_x_part ? (size_t)c->t * n * 4 * e : 0, (size_t)s->n_gates * n * e, n * e,
                      0, n * tutti_dtype_bytes(c->dtype), n_workspace});
}

static void place_backward(sequence *s) {
    const tti_cuda_cell *c = &s->cell;
    size_t e = tutti_dtype_bytes(s->wide), n = (size_t)(c->b * c->h);
    place_regions(
        s, (size_t[]){0, 0, n * e, n * e, (size_t)s->n_gates * n * tutti_dtype_bytes(c->dtype),
                      workspace_of(s->step)});
}

/* NULL: no memory, which was reported by tti_fail. */
static sequence *sequence_of(const tti_node *node, int n_gates) {
    sequence *s = calloc(1, sizeof *s);
    if (!s) {
        tti_fail(TUTTI_E_NOMEM, "%s: out of memory for its state", node->op->name);
        return NULL;
    }
    s->cell.dtype = node->in[0]->type.dtype;
    s->wide = wide_of(s->cell.dtype);
    s->n_gates = n_gates;
    return s;
}

static tutti_status prepare_forward(const tti_node *node, int n_gates, void **state) {
    const int64_t *x = node->in[0]->type.shape.dim;
    sequence *s = sequence_of(node, n_gates);
    if (!s) return TUTTI_E_NOMEM;
    s->cell.b = x[0], s->cell.t = x[1], s->cell.h = node->in[2]->type.shape.dim[1];
    s->given = node->n_in > 5;
    tutti_status st = plan_forward(s, x[2]);
    place_forward(s);
    if (st == TUTTI_OK)
        *state = s;
    else
        release(s);
    return st;
}

static tutti_status prepare_backward(const tti_node *node, int n_gates, void **state) {
    const int64_t *dy = node->in[0]->type.shape.dim;
    sequence *s = sequence_of(node, n_gates);
    if (!s) return TUTTI_E_NOMEM;
    s->cell.b = dy[0], s->cell.t = dy[1], s->cell.h = dy[2];
    s->given = node->n_in > 4;
    tutti_status st = plan_backward(s);
    place_backward(s);
    if (st == TUTTI_OK)
        *state = s;
    else
        release(s);
    return st;
}

static tutti_status prepare_lstm(const tti_node *node, void **state) {
    return prepare_forward(node, 4, state);
}
static tutti_status prepare_gru(const tti_node *node, void **state) {
    return prepare_forward(node, 3, state);
}
static tutti_status prepare_lstm_grad(const tti_node *node, void **state) {
    return prepare_backward(node, 4, state);
}
static tutti_status prepare_gru_grad(const tti_node *node, void **state) {
    return prepare_backward(node, 3, state);
}

static size_t scratch_bytes(const tti_node *node, const void *state) {
    const sequence *s = state;
    (void)node;
    return s->region[N_REGIONS] + REGION_ALIGNMENT;
}

/* A region of scratch; scratch itself is aligned to less. */
static void *region(const sequence *s, const tti_kargs *a, int which) {
    uintptr_t at = (uintptr_t)a->scratch + REGION_ALIGNMENT - 1;
    return (char *)(at / REGION_ALIGNMENT * REGION_ALIGNMENT) + s->region[which];
}

/* ---- run ---- */

static tutti_status multiply(const sequence *s, const tti_kargs *a, tti_blas_plan *plan,
                             const void *left, const void *right, void *to) {
    return tti_blas_run(
        plan, &(tti_blas_args){
                  .a = left, .b = right, .c = to, .d = to, .workspace = region(s, a, WORKSPACE)});
}

/* The product of all inputs; without any it is zeros. */
static tutti_status multiply_inputs(const sequence *s, const tti_kargs *a, void *x_part) {
    const tti_cuda_cell *c = &s->cell;
    size_t n_bytes = (size_t)(c->b * c->t * 4 * c->h) * tutti_dtype_bytes(s->wide);
    if (s->input) return multiply(s, a, s->input, a->in[0], a->in[1], x_part);
    TTI_CUDA(cudaMemsetAsync(x_part, 0, n_bytes, tti_cuda_stream()));
    return TUTTI_OK;
}

typedef cudaError_t (*cell_fn)(const tti_cuda_cell *cell, const tti_cuda_cell_args *args,
                               cudaStream_t stream);

/* out: y, c of an LSTM, gates. */
static tutti_status run_forward(const sequence *s, const tti_kargs *a, cell_fn run_cell) {
    bool lstm = s->n_gates == 4;
    tti_cuda_cell cell = s->cell;
    int64_t n = cell.b * cell.h;
    tti_cuda_cell_args args = {.h_part = region(s, a, H_PART),
                               .b_ih = a->in[3],
                               .b_hh = a->in[4],
                               .y = a->out[0],
                               .c = lstm ? a->out[1] : NULL,
                               .gates = a->out[lstm ? 2 : 1],
                               .carry = region(s, a, CARRY),
                               .h_copy = region(s, a, LOW)};
    void *x_part = s->wide == cell.dtype ? args.gates : region(s, a, X_PART);
    const void *h0 = s->given ? a->in[5] : NULL, *c0 = s->given && lstm ? a->in[6] : NULL;
    if (n * cell.t == 0) return TUTTI_OK;
    args.x_part = x_part;
    TTI_TRY(multiply_inputs(s, a, x_part));
    TTI_CUDA(tti_cuda_cell_start(cell.dtype, n, h0, lstm ? NULL : args.carry, args.h_copy,
                                 tti_cuda_stream()));
    if (lstm) TTI_CUDA(tti_cuda_cell_start(cell.dtype, n, c0, args.carry, NULL, tti_cuda_stream()));
    for (cell.step = 0; cell.step < cell.t; cell.step++) {
        TTI_TRY(multiply(s, a, s->step, args.h_copy, a->in[2], region(s, a, H_PART)));
        TTI_CUDA(run_cell(&cell, &args, tti_cuda_stream()));
    }
    return TUTTI_OK;
}

static tutti_status lstm_run(void *state, const tti_kargs *a) {
    return run_forward(state, a, tti_cuda_lstm_cell);
}
static tutti_status gru_run(void *state, const tti_kargs *a) {
    return run_forward(state, a, tti_cuda_gru_cell);
}

typedef cudaError_t (*cell_grad_fn)(const tti_cuda_cell *cell, const tti_cuda_cell_grad_args *args,
                                    cudaStream_t stream);

/* out: dz, dh0, dc0 of an LSTM; di, dz, dh0 of a GRU. The last are the remaining dh and dc. */
static tutti_status run_backward(const sequence *s, const tti_kargs *a, cell_grad_fn run_cell) {
    bool lstm = s->n_gates == 4;
    tti_cuda_cell cell = s->cell;
    int64_t n = cell.b * cell.h;
    cudaStream_t stream = tti_cuda_stream();
    tti_cuda_cell_grad_args args = {.dy = a->in[0],
                                    .gates = a->in[3],
                                    .states = a->in[2],
                                    .first = s->given ? a->in[4] : NULL,
                                    .di = lstm ? NULL : a->out[0],
                                    .dz = a->out[lstm ? 0 : 1],
                                    .dz_copy = region(s, a, LOW),
                                    .dh = region(s, a, CARRY),
                                    .dc = region(s, a, CARRY_C)};
    TTI_CUDA(tti_cuda_cell_start(cell.dtype, n, NULL, args.dh, NULL, stream));
    if (lstm) TTI_CUDA(tti_cuda_cell_start(cell.dtype, n, NULL, args.dc, NULL, stream));
    for (cell.step = cell.t - 1; cell.step >= 0 && n > 0; cell.step--) {
        TTI_CUDA(run_cell(&cell, &args, stream));
        TTI_TRY(multiply(s, a, s->step, args.dz_copy, a->in[1], args.dh));
    }
    TTI_CUDA(tti_cuda_cell_end(cell.dtype, n, args.dh, a->out[lstm ? 1 : 2], stream));
    if (lstm) TTI_CUDA(tti_cuda_cell_end(cell.dtype, n, args.dc, a->out[2], stream));
    return TUTTI_OK;
}

static tutti_status lstm_grad_run(void *state, const tti_kargs *a) {
    return run_backward(state, a, tti_cuda_lstm_cell_grad);
}
static tutti_status gru_grad_run(void *state, const tti_kargs *a) {
    return run_backward(state, a, tti_cuda_gru_cell_grad);
}

#define ROW(op_name, prepare_fn, run_fn)                                                          \
    {                                                                                             \
        .op = op_name, .name = "cublaslt", .prepare = prepare_fn, .scratch_bytes = scratch_bytes, \
        .run = run_fn, .release = release                                                         \
    }

const tti_kernel tti_cuda_recurrent_kernels[] = {
    ROW("lstm", prepare_lstm, lstm_run),
    ROW("lstm_grad", prepare_lstm_grad, lstm_grad_run),
    ROW("gru", prepare_gru, gru_run),
    ROW("gru_grad", prepare_gru_grad, gru_grad_run),
    {0},
};
