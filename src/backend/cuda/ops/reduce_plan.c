/* reduce_plan.c - divides a reduction into blocks, threads and partial results.
 *
 * After joining loops x is rows that are reduced, or columns that are kept, whatever its shape was.
 * If there are too few results for the whole device, the reduced loops are split, and a second pass
 * adds the parts in order. */
#include "backend/cuda/ops/reduce.h"

enum { THREADS = 256, TARGET_BLOCKS = 528, ROW_LOADS = 512 };

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t parts_of(uint64_t n, uint64_t part) { return (n + part - 1) / part; }

/* The smallest power of two that is at least n; at most max, which is one. */
static int power_for(uint64_t n, int max) {
    int p = 1;
    while (p < max && (uint64_t)p < n) p *= 2;
    return p;
}

static void add_loop(tti_nest *to, const tti_nest *from, int d) {
    to->dim[to->n_dims] = from->dim[d];
    for (int k = 0; k < 2; k++) to->stride[k][to->n_dims] = from->stride[k][d];
    to->n_dims++;
}

/* A nest without loops runs once. */
static uint64_t close_nest(tti_nest *nest) {
    uint64_t n = 1;
    if (nest->n_dims == 0) nest->n_dims = 1, nest->dim[0] = 1;
    for (int d = 0; d < nest->n_dims; d++) n *= nest->dim[d];
    return n;
}

/* Whether every address of x is a multiple of v elements, if the innermost loop is processed v at a
 * time. */
static bool can_cut(const tti_nest *nest, bool has_inner, uint64_t v) {
    int last = nest->n_dims - 1;
    for (int d = 0; d < nest->n_dims; d++) {
        bool inner = has_inner && d == last;
        uint64_t multiple = inner ? nest->dim[d] : nest->stride[0][d];
        if (multiple % v || (inner && nest->stride[0][d] != 1)) return false;
    }
    return true;
}

static void cut_rows(tti_reduce_plan *p) {
    uint64_t n = p->n_folded / (uint64_t)p->width;
    p->n_lanes = n > ROW_LOADS ? THREADS : power_for(parts_of(n, 4), 32);
    p->n_splits = 1, p->chunk = n;
    if (p->n_lanes < THREADS || p->n_kept >= TARGET_BLOCKS) return;
    uint64_t splits = least(TARGET_BLOCKS / p->n_kept, parts_of(n, THREADS * 4));
    p->chunk = parts_of(n, splits);
    p->n_splits = parts_of(n, p->chunk);
}

static void cut_columns(tti_reduce_plan *p) {
    uint64_t inner = p->kept.dim[p->kept.n_dims - 1], across = inner / (uint64_t)p->width;
    int down = power_for(parts_of(p->n_folded, 4), 8);
    p->n_across = power_for(across, THREADS / down);
    p->n_down = power_for(p->n_folded, THREADS / p->n_across);
    p->n_splits = 1, p->chunk = p->n_folded;
    uint64_t n_blocks = parts_of(across, (uint64_t)p->n_across) * (p->n_kept / inner);
    if (n_blocks >= TARGET_BLOCKS || p->n_folded == 0) return;
    uint64_t splits =
        least(TARGET_BLOCKS / n_blocks, parts_of(p->n_folded, (uint64_t)p->n_down * 8));
    p->chunk = parts_of(p->n_folded, splits);
    p->n_splits = parts_of(p->n_folded, p->chunk);
}

/* Many narrow rows of columns with little to fold: a thread for each result. */
static bool is_narrow(const tti_reduce_plan *p) {
    return p->kept.dim[p->kept.n_dims - 1] < 32 && p->n_folded <= 256 && p->n_kept >= 4096;
}

void tti_cuda_reduce_make(tti_fold fold, tutti_dtype dtype, const tti_nest *nest,
                          tti_reduce_plan *plan) {
    tti_reduce_plan p = {
        .fold = fold, .dtype = dtype, .y_dtype = dtype, .divisor = 1, .width = 1, .n_lanes = 1};
    int last = nest->n_dims - 1;
    p.kept.n_operands = 2, p.folded.n_operands = 2;
    for (int d = 0; d <= last; d++)
        add_loop(nest->stride[1][d] || nest->dim[d] == 1 ? &p.kept : &p.folded, nest, d);
    p.by_columns = nest->stride[1][last] || nest->dim[last] == 1;
    p.n_kept = close_nest(&p.kept);
    p.n_folded = close_nest(&p.folded);
    *plan = p;
    if (p.n_kept == 0) return;
    if (p.by_columns && p.n_folded > 0 && is_narrow(&p)) plan->by_columns = false;
    bool columns = plan->by_columns, narrow = p.by_columns && !columns;
    uint64_t v = dtype == TUTTI_F64 ? 1 : dtype == TUTTI_F32 ? 4 : 8;
    bool cuts = fold != TTI_FOLD_COUNT && p.n_folded > 0 && !narrow &&
                can_cut(&p.kept, columns, v) && can_cut(&p.folded, !columns, v);
    plan->width = cuts ? (int)v : 1;
    if (columns)
        cut_columns(plan);
    else
        cut_rows(plan);
    if (narrow) plan->n_lanes = 1;
}

size_t tti_cuda_reduce_scratch(const tti_reduce_plan *plan) {
    size_t each = plan->dtype == TUTTI_F64 ? sizeof(double) : sizeof(float);
    return plan->n_splits > 1 ? (size_t)(plan->n_splits * plan->n_kept) * each : 0;
}
