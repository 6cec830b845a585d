/* fake_tp.h - TP collectives of devices that are the host, as kernels make them: into memory
 * that the others read, a meeting, and out of theirs; two halves take turns. */
#ifndef TTI_TESTS_EXEC_FAKE_TP_H
#define TTI_TESTS_EXEC_FAKE_TP_H

#include "base/dtype.h"
#include "exec/fake_peers.h"

/* Where a rank has put what it gives in this collective. */
static inline const char *fake_given(const fake_group *g, int rank) {
    return (const char *)g->partials[rank][0] + (g->n_collectives & 1) * g->peers.tp_half_bytes;
}

static inline double fake_add(tutti_dtype dtype, double a, double b) {
    return dtype == TUTTI_F64 ? a + b : (double)((float)a + (float)b);
}

/* Element i of what all ranks gave. */
static inline double fake_added(const fake_group *g, tutti_dtype dtype, size_t i) {
    double stack[32];
    int n = 0;
    for (int t = 0; t < g->peers.n_terms; t++) {
        stack[n++] = tti_load_elem(dtype, fake_given(g, g->terms[t].rank), i);
        for (int k = 0; k < g->terms[t].n_adds; k++, n--)
            stack[n - 2] = fake_add(dtype, stack[n - 2], stack[n - 1]);
    }
    return n == 1 ? stack[0] : (double)NAN;
}

static inline void fake_take(const fake_group *g, const tti_tp_collective *t) {
    size_t n_ranks = (size_t)g->peers.n_ranks, rank = (size_t)g->peers.rank;
    size_t elem = tutti_dtype_bytes(t->dtype), part = t->part_bytes / elem;
    bool sum = t->kind == TTI_COLLECTIVE_SUM;
    for (size_t row = 0; row < t->n_rows; row++) {
        size_t from = sum ? 0 : (row * n_ranks + rank) * part;
        for (size_t i = 0; t->kind != TTI_COLLECTIVE_GATHER && i < part; i++)
            tti_store_elem(t->dtype, t->out, row * part + i, fake_added(g, t->dtype, from + i));
        for (size_t r = 0; t->kind == TTI_COLLECTIVE_GATHER && r < n_ranks; r++)
            memcpy((char *)t->out + (row * n_ranks + r) * t->part_bytes,
                   fake_given(g, (int)r) + row * t->part_bytes, t->part_bytes);
    }
}

static inline tutti_status fake_tp(void *group, const tti_tp_collective *t) {
    fake_group *g = group;
    bool scatters = t->kind == TTI_COLLECTIVE_SCATTER;
    size_t n_bytes = t->n_rows * t->part_bytes * (scatters ? (size_t)g->peers.n_ranks : 1);
    if (n_bytes > g->peers.tp_half_bytes || t->part_bytes % tutti_dtype_bytes(t->dtype))
        return tti_fail(TUTTI_E_INTERNAL, "a collective of %zu bytes", n_bytes);
    memcpy((char *)g->partials[g->peers.rank][0] + (g->n_collectives & 1) * g->peers.tp_half_bytes,
           t->in, n_bytes);
    TTI_TRY(fake_barrier(g));
    fake_take(g, t);
    g->n_collectives++;
    return fake_barrier(g); /* a rank that fails takes its memory with it */
}

static inline void fake_fold(const double *values, const tti_device_lists *lists, double *sums) {
    for (int l = 0; l < lists->n; l++) {
        double compute_thread[TTI_LIST_LANES] = {0};
        int begin = lists->begin[l];
        for (int i = begin; i < lists->begin[l + 1]; i++)
            compute_thread[(i - begin) % TTI_LIST_LANES] += values[lists->member[i]];
        for (int d = TTI_LIST_LANES / 2; d > 0; d /= 2)
            for (int t = 0; t < d; t++) compute_thread[t] += compute_thread[t + d];
        sums[l] = compute_thread[0];
    }
}

static inline void fake_unfold(double *values, size_t n_values, const tti_device_lists *lists,
                               const double *sums) {
    memset(values, 0, n_values * sizeof *values);
    for (int l = 0; l < lists->n; l++) values[lists->home[l]] = sums[l];
}

#endif /* TTI_TESTS_EXEC_FAKE_TP_H */
