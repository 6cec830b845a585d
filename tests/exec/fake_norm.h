/* fake_norm.h - a norm between two collectives on devices that are the host: terms are read and
 * rows written where the ranks have them, and the norm is the host's kernel. */
#ifndef TTI_TESTS_EXEC_FAKE_NORM_H
#define TTI_TESTS_EXEC_FAKE_NORM_H

#include "exec/fake_tp.h"

/* Where row r of the own part is in the whole. */
static inline size_t fake_row_at(const fake_group *g, size_t n_rows, size_t r, int rank) {
    return (r / n_rows * (size_t)g->peers.n_ranks + (size_t)rank) * n_rows + r % n_rows;
}

/* The first of the n_rows rows that rank from sends to the inbox of rank to. */
static inline size_t fake_inbox_row(int to, int from, size_t n_rows) {
    return (size_t)(from < to ? from : from - 1) * n_rows;
}

/* What the terms of all ranks come to in a row of the own part. */
static inline double fake_row_sum(const fake_group *g, const tti_device_norm *n, size_t r,
                                  size_t column) {
    size_t at = fake_row_at(g, n->n_rows, r, g->peers.rank);
    tutti_dtype dtype = n->node->in[0]->type.dtype;
    double stack[32];
    int depth = 0;
    for (int t = 0; t < g->peers.n_terms; t++) {
        int rank = g->terms[t].rank;
        bool far = n->pushed && rank != g->peers.rank;
        const char *from = (const char *)g->sources[far ? g->peers.rank : rank][0];
        size_t sent = fake_inbox_row(g->peers.rank, rank, n->n_blocks * n->n_rows) + r;
        stack[depth++] = tti_load_elem(dtype, from + (far ? n->inbox : n->terms),
                                       (far ? sent : at) * n->width + column);
        for (int k = 0; k < g->terms[t].n_adds; k++, depth--)
            stack[depth - 2] = fake_add(dtype, stack[depth - 2], stack[depth - 1]);
    }
    return depth == 1 ? stack[0] : (double)NAN;
}

/* branch: [n_blocks * n_rows][width]. */
static inline void fake_branch(const fake_group *g, const tti_device_norm *n, void *branch) {
    tutti_dtype dtype = n->node->in[0]->type.dtype;
    for (size_t i = 0; i < n->n_blocks * n->n_rows * n->width; i++) {
        size_t column = i % n->width;
        tti_store_elem(dtype, branch, i, fake_row_sum(g, n, i / n->width, column));
        double sum = tti_load_elem(dtype, branch, i);
        if (n->bias)
            tti_store_elem(dtype, branch, i,
                           fake_add(dtype, sum, tti_load_elem(dtype, n->bias, column)));
    }
}

static inline tutti_status fake_run(const tti_node *node, const tti_backend *host, void *const *in,
                                    void *const *out) {
    const tti_kernel *kernel = host->select(node, false);
    void *state = NULL;
    if (kernel->prepare) TTI_TRY(kernel->prepare(node, &state));
    size_t n_scratch = kernel->scratch_bytes ? kernel->scratch_bytes(node, state) : 0;
    void *scratch = host->alloc(n_scratch + 64);
    const tti_kargs args = {.node = node, .in = in, .out = out, .scratch = scratch};
    tutti_status st = kernel->run(state, &args);
    host->release(scratch, n_scratch + 64);
    if (kernel->release) kernel->release(state);
    return st;
}

static inline tutti_status fake_normed(const tti_device_norm *n, const tti_backend *host,
                                       void *branch, void *y) {
    void *in[4] = {(void *)(uintptr_t)n->x, branch, (void *)(uintptr_t)n->gamma,
                   (void *)(uintptr_t)n->beta};
    void *out[4] = {y, n->sum, n->mean, n->rstd};
    if (n->branch == 0) in[0] = branch, in[1] = (void *)(uintptr_t)n->x;
    return fake_run(n->node, host, in, out);
}

static inline tutti_status fake_grads(const tti_device_norm *n, const tti_backend *host,
                                      size_t n_bytes, void *part, void *dx) {
    void *in[6] = {n->part, (void *)(uintptr_t)n->x,     n->mean,
                   n->rstd, (void *)(uintptr_t)n->gamma, (void *)(uintptr_t)n->residual};
    void *out[4] = {n->sum, n->dgamma, n->dbeta, n->dsums};
    memcpy(n->part, part, n_bytes);
    tutti_status st = fake_run(n->node, host, in, out);
    memcpy(dx, n->sum, n_bytes);
    return st;
}

static inline tutti_status fake_norm(void *group, const tti_device_norm *n,
                                     const tti_backend *host) {
    fake_group *g = group;
    size_t rows = n->n_blocks * n->n_rows;
    size_t row_bytes = n->width * tutti_dtype_bytes(n->node->in[0]->type.dtype);
    char *branch = host->alloc(rows * row_bytes + 64), *y = host->alloc(rows * row_bytes + 64);
    if (!branch || !y || g->peers.n_sources < 1) abort();
    tutti_status st = fake_barrier(g);
    if (st == TUTTI_OK) {
        fake_branch(g, n, branch);
        st = n->part ? fake_grads(n, host, rows * row_bytes, branch, y)
                     : fake_normed(n, host, branch, y);
    }
    if (st == TUTTI_OK && n->stays && !n->part) memcpy(n->y, y, rows * row_bytes);
    for (int r = 0; st == TUTTI_OK && !n->stays && r < g->peers.n_ranks; r++)
        for (size_t i = 0; (r == g->peers.rank || !n->kept) && i < rows; i++)
            memcpy((char *)g->sources[r][0] + n->whole +
                       fake_row_at(g, n->n_rows, i, g->peers.rank) * row_bytes,
                   y + i * row_bytes, row_bytes);
    host->release(branch, rows * row_bytes + 64);
    host->release(y, rows * row_bytes + 64);
    return st == TUTTI_OK ? fake_barrier(g) : st;
}

/* A barrier of all ranks; then the own rows are in the whole. */
static inline tutti_status fake_open_rows(void *group, const tti_device_norm *n) {
    fake_group *g = group;
    size_t row_bytes = n->width * tutti_dtype_bytes(n->node->in[0]->type.dtype);
    char *whole = (char *)g->sources[g->peers.rank][0] + n->whole;
    TTI_TRY(fake_barrier(g));
    for (size_t r = 0; r < n->n_blocks * n->n_rows; r++)
        memcpy(whole + fake_row_at(g, n->n_rows, r, g->peers.rank) * row_bytes,
               (const char *)n->x + r * row_bytes, row_bytes);
    return TUTTI_OK;
}

/* What was kept goes to the other ranks. */
static inline tutti_status fake_bring(void *group, const tti_device_norm *n) {
    fake_group *g = group;
    int rank = g->peers.rank;
    size_t row_bytes = n->width * tutti_dtype_bytes(n->node->in[0]->type.dtype);
    for (size_t r = 0; r < n->n_blocks * n->n_rows; r++) {
        size_t at = n->whole + fake_row_at(g, n->n_rows, r, rank) * row_bytes;
        for (int other = 0; other < g->peers.n_ranks; other++)
            if (other != rank)
                memcpy((char *)g->sources[other][0] + at, (char *)g->sources[rank][0] + at,
                       row_bytes);
    }
    return fake_barrier(g);
}

static inline void fake_push_to(const fake_group *g, const tti_device_norm *push, char *terms,
                                int to) {
    size_t row_bytes = push->width * tutti_dtype_bytes(push->node->out[0]->type.dtype);
    size_t n_rows = push->n_blocks * push->n_rows;
    char *inbox = (char *)g->sources[to][0] + push->inbox;
    for (size_t r = 0; r < n_rows; r++) {
        char *row = terms + fake_row_at(g, push->n_rows, r, to) * row_bytes;
        size_t at = fake_inbox_row(to, g->peers.rank, n_rows) + r;
        memcpy(inbox + at * row_bytes, row, row_bytes);
        memset(row, 0xff, row_bytes);
    }
}

/* The rows of other ranks go there, and whoever still looks for them here finds NaN. */
static inline void fake_push(void *group, const tti_device_norm *push, char *terms) {
    const fake_group *g = group;
    for (int r = 0; r < g->peers.n_ranks; r++)
        if (r != g->peers.rank) fake_push_to(g, push, terms, r);
}

#endif /* TTI_TESTS_EXEC_FAKE_NORM_H */
