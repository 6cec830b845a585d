/* session_ranks_test.c - sessions whose workers are ranks of a process group, each with the rows of
 * its own worker. */
#include "session/batches.h"

enum { MAX_RANKS = 4 };

typedef struct ranks {
    tutti_comm_group *group;
    uint64_t hash[MAX_RANKS];
    const char *layout;
    char error[MAX_RANKS][300];
} ranks;

static void take_rows(batch *b, int64_t first, int64_t n) {
    b->tensors[0].data = b->x + first * X;
    b->tensors[1].data = b->y + first;
    b->tensors[0].type.shape.dim[0] = b->tensors[1].type.shape.dim[0] = n;
}

static tutti_status step_rank(tutti_session *s, ranks *all, int rank) {
    tutti_session_info info;
    tutti_session_get_info(s, &info);
    for (unsigned i = 0; i < 3; i++) {
        int64_t n = i == 2 ? 13 : BATCH, first = TTI_MIN(info.first_row, n);
        batch *b = make_batch(i, n);
        take_rows(b, first, TTI_MIN(first + info.n_rows, n) - first);
        /* A rank that the short batch gives no row takes part with none. */
        tutti_status st = tutti_session_step(s, b->tensors, 2, 0.01, NULL);
        free(b);
        if (st != TUTTI_OK) return st;
    }
    return tutti_session_hash(s, &all->hash[rank]);
}

/* All ranks refuse a batch that one of them has too few rows of, and go on. */
static bool refuses_rows(tutti_session *s, int rank) {
    tutti_session_info info;
    tutti_session_get_info(s, &info);
    batch *b = make_batch(7, BATCH);
    take_rows(b, info.first_row, info.n_rows - (rank == 1));
    tutti_status st = tutti_session_step(s, b->tensors, 2, 0.01, NULL);
    free(b);
    return st == TUTTI_E_INVALID && strstr(tutti_last_error(), "rows");
}

static const char *run_rank(int rank, int n_ranks, void *arg) {
    ranks *all = arg;
    tutti_comm *comm = NULL;
    tutti_session *s = NULL;
    tutti_job *job = NULL;
    const tutti_comm_desc group = {.group = all->group, .rank = rank, .n_ranks = n_ranks};
    tutti_status st = tutti_comm_create(&group, &comm);
    if (st == TUTTI_OK) st = tutti_job_create(&job);
    static const char *const keys[] = {"model.name=mlp", "model.hidden=[8]", "train.batch=32",
                                       "parallel.shards=4", "optimizer.name=adamw"};
    for (size_t i = 0; i < TTI_COUNT(keys); i++) tutti_job_set(job, keys[i], "test");
    tutti_job_set(job, all->layout, "test");
    const tutti_session_desc desc = {
        .inputs = inputs, .n_inputs = 2, .n_classes = CLASSES, .comm = comm};
    if (st == TUTTI_OK) st = tutti_session_create(job, &desc, &s);
    /* The second of two replicas may have the short batch. */
    bool is_short = n_ranks == 2 && strcmp(all->layout, "parallel.pipeline=2") != 0;
    if (st == TUTTI_OK && !is_short && !refuses_rows(s, rank)) {
        snprintf(all->error[rank], sizeof all->error[0], "not refused: %s", tutti_last_error());
        st = TUTTI_E_INTERNAL;
    } else {
        if (st == TUTTI_OK) st = step_rank(s, all, rank);
        if (st != TUTTI_OK)
            snprintf(all->error[rank], sizeof all->error[0], "%s", tutti_last_error());
    }
    tutti_session_destroy(s);
    tutti_job_destroy(job);
    tutti_comm_destroy(comm);
    return st == TUTTI_OK ? NULL : all->error[rank];
}

static uint64_t hash_of_three(void) {
    tutti_job *job = SMALL_JOB("optimizer.name=adamw");
    tutti_session *s = open_session(job);
    uint64_t hash;
    for (unsigned i = 0; i < 3; i++) {
        batch *b = make_batch(i, i == 2 ? 13 : BATCH);
        T_OK(tutti_session_step(s, b->tensors, 2, 0.01, NULL));
        free(b);
    }
    T_OK(tutti_session_hash(s, &hash));
    tutti_session_destroy(s);
    tutti_job_destroy(job);
    return hash;
}

T_CASE(ranks_of_a_group_have_the_bits_of_threads) {
    static const struct {
        const char *layout;
        int n_ranks;
    } cases[] = {{"parallel.zero=0", 2},
                 {"parallel.zero=1", 2},
                 {"parallel.pipeline=2", 2},
                 {"parallel.zero=0", 4},
                 {"parallel.pipeline=2", 4}};
    T_UNUSED;
    uint64_t one = hash_of_three();
    for (size_t i = 0; i < TTI_COUNT(cases); i++) {
        ranks all = {.layout = cases[i].layout};
        T_OK(tutti_comm_group_create(cases[i].n_ranks, &all.group));
        t_ranks(cases[i].n_ranks, run_rank, &all);
        tutti_comm_group_destroy(all.group);
        for (int r = 0; r < cases[i].n_ranks; r++) T_EQ(all.hash[r], one);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_of_a_group_have_the_bits_of_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
