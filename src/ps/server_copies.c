/* server_copies.c - copies a worker's parameters and gradients to and from its message buffers.
 *
 * If gradients are sent in 16 bits every worker rounds its gradient before it pushes it, including
 * a worker whose gradient stays in place; so the bits do not depend on the placement of workers. */
#include <string.h>

#include "comm/local_sum.h"
#include "exec/worker/worker.h"
#include "ps/server_state.h"

typedef struct copying {
    tti_exec *x;
    void *dst;
    const float *const *pieces; /* the first is copied, the others are added */
    int n_pieces;
    tti_range range;  /* of pieces, to dst on */
    tutti_dtype wire; /* of dst */
    bool widens;      /* dst is f32 all the same */
} copying;

static void copy_compute_thread(int compute_thread, void *arg) {
    const copying *c = arg;
    float *dst = c->dst;
    size_t n_all = c->range.last - c->range.first;
    tti_range mine = tti_compute_thread_range(n_all, 16, compute_thread,
                                              tti_setup_of(c->x)->desc.n_compute_threads);
    if (mine.first >= mine.last) return;
    size_t n = mine.last - mine.first, from = c->range.first + mine.first;
    memcpy(dst + mine.first, c->pieces[0] + from, n * sizeof *dst);
    for (int i = 1; i < c->n_pieces; i++)
        tti_backend_cpu.accumulate(dst + mine.first, c->pieces[i] + from, n);
}

static void round_compute_thread(int compute_thread, void *arg) {
    const copying *c = arg;
    tti_range mine = tti_compute_thread_range(c->range.last - c->range.first, 16, compute_thread,
                                              tti_setup_of(c->x)->desc.n_compute_threads);
    for (size_t at = mine.first; at < mine.last; at += TTI_SUM_BLOCK) {
        float sum[TTI_SUM_BLOCK];
        uint16_t rounded[TTI_SUM_BLOCK];
        size_t n = TTI_MIN(mine.last - at, (size_t)TTI_SUM_BLOCK), from = c->range.first + at;
        memcpy(sum, c->pieces[0] + from, n * sizeof *sum);
        for (int i = 1; i < c->n_pieces; i++)
            tti_backend_cpu.accumulate(sum, c->pieces[i] + from, n);
        tti_narrow(c->wire, sum, rounded, n);
        if (c->widens)
            tti_widen(c->wire, rounded, (float *)c->dst + at, n);
        else
            memcpy((uint16_t *)c->dst + at, rounded, n * sizeof *rounded);
    }
}

static void run(tti_exec *x, void *dst, float *const *pieces, int n_pieces, tti_range range,
                tutti_dtype wire, bool widens) {
    const float *from[TTI_MAX_PIECES];
    for (int i = 0; i < n_pieces; i++) from[i] = pieces[i];
    copying c = {x, dst, from, n_pieces, range, wire, widens};
    tti_compute_threads_run(tti_threads_of(x)->pool,
                            wire == TUTTI_F32 ? copy_compute_thread : round_compute_thread, &c);
}

static tutti_dtype wire_of(const tti_setup *setup) { return tti_server_wire(setup->desc.server); }

void tti_server_round(tti_exec *x, float *const *pieces, int *n_pieces) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_range all = {0, setup->desc.plan->n_flat};
    if (wire_of(setup) == TUTTI_F32) return;
    run(x, pieces[0], pieces, *n_pieces, all, wire_of(setup), true);
    *n_pieces = 1;
}

void tti_server_copy_sum(tti_exec *x, float *dst, float *const *pieces, int n_pieces,
                         tti_range range) {
    run(x, dst, pieces, n_pieces, range, TUTTI_F32, true);
}

void tti_server_pack(tti_exec *x, void *area, float *const *pieces, int n_pieces, tti_range range) {
    run(x, area, pieces, n_pieces, range, wire_of(tti_setup_of(x)), false);
}

void tti_server_copy(tti_exec *x, float *dst, const float *from, size_t n) {
    copying c = {x, dst, &from, 1, {0, n}, TUTTI_F32, true};
    tti_compute_threads_run(tti_threads_of(x)->pool, copy_compute_thread, &c);
}
