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

void t_ranks(int n_ranks, t_rank_fn fn, void *arg) {
    rank_run *runs = calloc((size_t)n_ranks, sizeof *runs);
    assert_non_null(runs);
    for (int r = 0; r < n_ranks; r++) {
        runs[r] = (rank_run){.fn = fn, .arg = arg, .rank = r, .n_ranks = n_ranks};
        assert_int_equal(pthread_create(&runs[r].thread, NULL, run_rank, &runs[r]), 0);
    }
    for (int r = 0; r < n_ranks; r++) pthread_join(runs[r].thread, NULL);
    for (int r = 0; r < n_ranks; r++)
        if (runs[r].failure) fail_msg("rank %d of %d: %s", r, n_ranks, runs[r].failure);
    free(runs);
}
