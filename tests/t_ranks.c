/* t_ranks.c - ranks as threads for tests. */
#include <pthread.h>
#include <stdlib.h>

#include "t.h"

typedef struct rank_run {
    pthread_t thread;
    t_rank_fn fn;
    void *arg;
    int rank, n_ranks;
    const char *failure;
} rank_run;

static void *run_rank(void *arg) {
    rank_run *run = arg;
    run->failure = run->fn(run->rank, run->n_ranks, run->arg);
    return NULL;
}

/* The first rank that failed, and in failure its text; -1: none. */
static int find_failure(int n_ranks, t_rank_fn fn, void *arg, const char **failure) {
    rank_run *runs = calloc((size_t)n_ranks, sizeof *runs);
    int failed = -1;
    assert_non_null(runs);
    for (int r = 0; r < n_ranks; r++) {
        runs[r] = (rank_run){.fn = fn, .arg = arg, .rank = r, .n_ranks = n_ranks};
        assert_int_equal(pthread_create(&runs[r].thread, NULL, run_rank, &runs[r]), 0);
    }
    for (int r = 0; r < n_ranks; r++) pthread_join(runs[r].thread, NULL);
    for (int r = 0; r < n_ranks && failed < 0; r++) {
        *failure = runs[r].failure;
        if (*failure) failed = r;
    }
    free(runs);
    return failed;
}

void t_ranks(int n_ranks, t_rank_fn fn, void *arg) {
    const char *failure;
    int failed = find_failure(n_ranks, fn, arg, &failure);
    if (failed >= 0) fail_msg("rank %d of %d: %s", failed, n_ranks, failure);
}

void t_ranks_in_vain(int n_ranks, t_rank_fn fn) {
    const char *failure;
    int limit_ms = 300;
    for (; limit_ms < 4800; limit_ms *= 4)
        if (find_failure(n_ranks, fn, &limit_ms, &failure) < 0) return;
    t_ranks(n_ranks, fn, &limit_ms);
}
