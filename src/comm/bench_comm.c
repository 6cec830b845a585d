/* bench_comm.c - times all_reduce by size on every rank at once, and memcpy for comparison.
 *
 * A round is n_repeats calls between two barriers.  The result is the slowest rank's time in the
 * fastest round.  The ceiling is measured the same way with memcpy in place of the all_reduce, in
 * the same memory, so both have the same cache contents and contention. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/progress.h"
#include "tutti/bench.h"

enum { N_ROUNDS = 5, MAX_REPEATS = 100000 };

typedef struct bench {
    tutti_comm *comm;
    tutti_bench_comm_desc desc;
    float *buf, *copy; /* max_bytes each */
    size_t n_elems, move_bytes;
} bench;

static tutti_status reduce_once(const bench *b) {
    return tutti_comm_all_reduce(b->comm, b->buf, b->buf, b->n_elems, TUTTI_F32, TUTTI_SUM,
                                 b->desc.alg);
}

/* Copies 2(n-1)/n times the bytes of the vector, in several copies, because this may exceed the
 * vector. */
static tutti_status copy_once(const bench *b) {
    size_t vector = b->n_elems * sizeof(float);
    for (size_t done = 0; done < b->move_bytes; done += vector)
        memcpy(b->copy, b->buf, TTI_MIN(vector, b->move_bytes - done));
    __asm__ volatile("" : : "r"(b->copy) : "memory");
    return TUTTI_OK;
}

typedef tutti_status (*work_fn)(const bench *b);

/* Measures the seconds of one call on the slowest rank, in the fastest of several rounds. */
static tutti_status time_work(const bench *b, work_fn work, int n_repeats, double *seconds) {
    double best = 0;
    for (int round = 0; round < N_ROUNDS; round++) {
        TTI_TRY(tutti_comm_barrier(b->comm));
        int64_t start = tti_now_ns();
        for (int i = 0; i < n_repeats; i++) TTI_TRY(work(b));
        double t = (double)(tti_now_ns() - start) * 1e-9 / n_repeats;
        TTI_TRY(tutti_comm_all_reduce(b->comm, &t, &t, 1, TUTTI_F64, TUTTI_MAX, TUTTI_ALG_AUTO));
        if (round == 0 || t < best) best = t;
    }
    *seconds = best;
    return TUTTI_OK;
}

/* Warms up and determines the number of repetitions, equal on every rank. */
static tutti_status find_repeats(const bench *b, work_fn work, int *n_repeats) {
    double seconds, budget = b->desc.min_ms * 1e-3 / N_ROUNDS;
    int n = 1;
    for (;; n *= 8) {
        TTI_TRY(time_work(b, work, n, &seconds));
        if (seconds * n * 4 > budget || n >= MAX_REPEATS) break;
    }
    *n_repeats = (int)TTI_MIN(TTI_MAX(budget / (seconds + 1e-9), 1.0), (double)MAX_REPEATS);
    return TUTTI_OK;
}

/* Checks one sum of the rank numbers, because the timed sums of zeros would hide an error. */
static tutti_status check_sum(const bench *b) {
    int n = tutti_comm_n_ranks(b->comm), rank = tutti_comm_rank(b->comm);
    for (size_t i = 0; i < b->n_elems; i++) b->buf[i] = (float)(rank + (int)(i % 16));
    TTI_TRY(reduce_once(b));
    for (size_t i = 0; i < b->n_elems; i++) {
        float want = (float)(n * (n - 1) / 2 + n * (int)(i % 16));
        if (b->buf[i] != want)
            return tti_fail(TUTTI_E_NUMERICS,
                            "bench: all_reduce of %zu elements: [%zu] is %g, not %g", b->n_elems, i,
                            (double)b->buf[i], (double)want);
    }
    memset(b->buf, 0,
           b->n_elems * sizeof(float)); /* sums of zeros do not overflow in many repetitions */
    return TUTTI_OK;
}

/* The bytes that one call moves, over all ranks. */
static tutti_status count_bytes(const bench *b, tutti_bench_comm_row *row) {
    tti_comm_bytes before = tti_comm_get_bytes(b->comm);
    TTI_TRY(reduce_once(b));
    tti_comm_bytes after = tti_comm_get_bytes(b->comm);
    double sums[2] = {(double)(after.inside - before.inside),
                      (double)(after.between - before.between)};
    TTI_TRY(tutti_comm_all_reduce(b->comm, sums, sums, 2, TUTTI_F64, TUTTI_SUM, TUTTI_ALG_AUTO));
    row->inside_bytes = sums[0];
    row->between_bytes = sums[1];
    return TUTTI_OK;
}

static tutti_status bench_size(bench *b, size_t n_bytes, tutti_bench_comm_row *row) {
    int n = tutti_comm_n_ranks(b->comm);
    double reduce_s, copy_s = 0;
    int n_copies;
    b->n_elems = n_bytes / sizeof(float);
    b->move_bytes = 2 * (n_bytes / (size_t)n) * (size_t)(n - 1);
    *row = (tutti_bench_comm_row){.n_ranks = n, .alg = b->desc.alg, .n_bytes = n_bytes};
    TTI_TRY(check_sum(b));
    TTI_TRY(count_bytes(b, row));
    TTI_TRY(find_repeats(b, reduce_once, &row->n_repeats));
    TTI_TRY(time_work(b, reduce_once, row->n_repeats, &reduce_s));
    if (b->move_bytes && !b->desc.no_memcpy) {
        TTI_TRY(find_repeats(b, copy_once, &n_copies));
        TTI_TRY(time_work(b, copy_once, n_copies, &copy_s));
    }
    row->latency_us = reduce_s * 1e6;
    row->alg_gb_s = (double)n_bytes / reduce_s * 1e-9;
    row->bus_gb_s = row->alg_gb_s * 2.0 * (n - 1) / n;
    row->memcpy_us = copy_s * 1e6;
    row->memcpy_ratio = copy_s > 0 ? reduce_s / copy_s : 0;
    return TUTTI_OK;
}

static tutti_status check_desc(tutti_bench_comm_desc *desc) {
    if (desc->min_bytes == 0) desc->min_bytes = 4;
    if (desc->max_bytes == 0) desc->max_bytes = (size_t)64 << 20;
    if (desc->min_ms == 0) desc->min_ms = 100;
    if (desc->min_bytes < 4 || desc->min_bytes > desc->max_bytes ||
        desc->max_bytes > (size_t)1 << 40)
        return tti_fail(TUTTI_E_INVALID, "bench: sizes must be 4 <= min <= max, got %zu and %zu",
                        desc->min_bytes, desc->max_bytes);
    if (desc->min_ms < 0 || desc->n_ranks < 0 || (unsigned)desc->alg >= TUTTI_N_ALGS)
        return tti_fail(TUTTI_E_INVALID, "bench: bad min_ms %d, n_ranks %d or algorithm %d",
                        desc->min_ms, desc->n_ranks, (int)desc->alg);
    return TUTTI_OK;
}

static tutti_status alloc_memory(bench *b) {
    size_t n_bytes = (b->desc.max_bytes + 63) & ~(size_t)63;
    void *buf = NULL;
    b->copy = aligned_alloc(64, n_bytes);
    if (b->desc.plain) b->buf = aligned_alloc(64, n_bytes);
    if (!b->copy || (b->desc.plain && !b->buf))
        return tti_fail(TUTTI_E_NOMEM, "bench: out of memory for %zu bytes", n_bytes);
    memset(b->copy, 1, n_bytes);
    if (b->desc.plain) return TUTTI_OK;
    TTI_TRY(tutti_comm_alloc(b->comm, n_bytes, &buf));
    b->buf = buf;
    return TUTTI_OK;
}

static tutti_status run_sizes(bench *b, tutti_bench_comm_fn report, void *user) {
    TTI_TRY(alloc_memory(b));
    for (size_t n_bytes = b->desc.min_bytes; n_bytes <= b->desc.max_bytes; n_bytes *= 4) {
        tutti_bench_comm_row row;
        TTI_TRY(bench_size(b, n_bytes & ~(size_t)3, &row));
        if (report && tutti_comm_rank(b->comm) == 0) report(&row, user);
    }
    return TUTTI_OK;
}

tutti_status tutti_bench_comm_run(tutti_comm *comm, const tutti_bench_comm_desc *desc,
                                  tutti_bench_comm_fn report, void *user) {
    if (!comm || !desc) return tti_fail(TUTTI_E_INVALID, "bench: comm or desc is NULL");
    bench b = {.comm = comm, .desc = *desc};
    TTI_TRY(check_desc(&b.desc));
    tutti_status st = run_sizes(&b, report, user);
    free(b.copy);
    if (b.desc.plain) free(b.buf);
    return st;
}

/* A rank that is a thread. */
typedef struct bench_rank {
    pthread_t thread;
    tutti_comm_group *group;
    const tutti_bench_comm_desc *desc;
    tutti_bench_comm_fn report;
    void *user;
    int rank;
    tutti_status status;
    char text[256];
} bench_rank;

static void *rank_main(void *arg) {
    bench_rank *r = arg;
    tutti_comm_desc desc = {.group = r->group, .rank = r->rank, .n_ranks = r->desc->n_ranks};
    tutti_comm *comm = NULL;
    r->status = tutti_comm_create(&desc, &comm);
    if (r->status == TUTTI_OK) r->status = tutti_bench_comm_run(comm, r->desc, r->report, r->user);
    if (r->status != TUTTI_OK) {
        strncpy(r->text, tutti_last_error(), sizeof r->text - 1);
        tutti_comm_group_abort(r->group, r->rank,
                               r->text); /* the other ranks must not wait for this one */
    }
    tutti_comm_destroy(comm);
    return NULL;
}

/* Starts the ranks and joins them; returns the first failure. */
static tutti_status run_threads(bench_rank *ranks, int n) {
    int n_started = 0;
    tutti_status st = TUTTI_OK;
    for (; n_started < n; n_started++)
        if (pthread_create(&ranks[n_started].thread, NULL, rank_main, &ranks[n_started]) != 0) {
            tutti_comm_group_abort(ranks[0].group, n_started, "a thread could not be started");
            st = tti_fail(TUTTI_E_NOMEM, "bench: cannot start thread %d", n_started);
            break;
        }
    for (int r = 0; r < n_started; r++) {
        pthread_join(ranks[r].thread, NULL);
        if (st == TUTTI_OK && ranks[r].status != TUTTI_OK)
            st = tti_fail(ranks[r].status, "%s", ranks[r].text);
    }
    return st;
}

tutti_status tutti_bench_comm(const tutti_bench_comm_desc *desc, tutti_bench_comm_fn report,
                              void *user) {
    if (!desc) return tti_fail(TUTTI_E_INVALID, "bench: desc is NULL");
    tutti_bench_comm_desc full = *desc;
    TTI_TRY(check_desc(&full));
    long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (full.n_ranks == 0) full.n_ranks = (int)TTI_MIN(TTI_MAX(n_cores, 1), 64);
    tutti_comm_group *group;
    TTI_TRY(tutti_comm_group_create(full.n_ranks, &group));
    tutti_status st = TUTTI_OK;
    bench_rank *ranks = calloc((size_t)full.n_ranks, sizeof *ranks);
    if (!ranks) {
        st = tti_fail(TUTTI_E_NOMEM, "bench: out of memory for %d ranks", full.n_ranks);
    } else {
        for (int r = 0; r < full.n_ranks; r++)
            ranks[r] = (bench_rank){
                .group = group, .desc = &full, .report = report, .user = user, .rank = r};
        st = run_threads(ranks, full.n_ranks);
    }
    free(ranks);
    tutti_comm_group_destroy(group);
    return st;
}
