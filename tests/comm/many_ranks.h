/* many_ranks.h - hundreds or thousands of ranks on one machine that compute nothing: they start, do
 * steps of small collectives, lose one of them, and end.  As threads and as processes. */
#ifndef TTI_TESTS_COMM_MANY_RANKS_H
#define TTI_TESTS_COMM_MANY_RANKS_H

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "comm/local_sum.h"
#include "comm/ranks.h"
#include "comm/sum_order.h"
#include "comm/transport.h"

enum { MANY_STEPS = 10, MANY_ELEMS = 7, MANY_STACK_BYTES = 512 << 10 };

/* Times of a run, in memory that all ranks share.  The clock is CLOCK_MONOTONIC. */
typedef struct many_times {
    _Atomic int64_t begun_ns, started_ns, stepped_ns, died_ns, received_ns; /* of the last rank */
    _Atomic int n_failed, n_ready;
    char failure[512]; /* of the first rank that failed */
} many_times;

typedef struct many {
    tutti_comm_group *group;
    many_times *times;
    const float *want; /* [MANY_ELEMS], the sum in the order of tti_sum_order_ranks */
    int n_ranks, victim;
} many;

static inline void many_note(_Atomic int64_t *at_ns) {
    int64_t now = tti_now_ns(), before = atomic_load(at_ns);
    while (before < now && !atomic_compare_exchange_weak(at_ns, &before, now)) continue;
}

/* Terms whose sum depends on the order. */
static inline float many_term(int rank, int i) {
    return (float)(((unsigned)rank * 2654435761u + (unsigned)i * 40503u) % 100003u) * 1e-3f - 50.0f;
}

/* One of these steps is all that a step of training makes ranks wait for. */
static inline const char *many_step(tutti_comm *comm, const many *m, uint64_t step) {
    float mine[MANY_ELEMS];
    tti_comm_note(comm, step, "steps");
    for (int i = 0; i < MANY_ELEMS; i++) mine[i] = many_term(tutti_comm_rank(comm), i);
    COMM_OK(
        tutti_comm_all_reduce(comm, mine, mine, MANY_ELEMS, TUTTI_F32, TUTTI_SUM, TUTTI_ALG_AUTO));
    COMM_TRUE(memcmp(mine, m->want, sizeof mine) == 0);
    COMM_OK(tutti_comm_barrier(comm));
    return NULL;
}

/* Messages with a few other ranks, in both directions, and one from the last rank to all. */
static inline const char *many_messages(tutti_comm *comm, const many *m) {
    int rank = tutti_comm_rank(comm), got = -1, root = m->n_ranks - 1;
    for (int step = 1; step < m->n_ranks; step *= 8) {
        int peer = rank ^ step;
        if (peer >= m->n_ranks) continue;
        if (rank < peer) COMM_OK(tutti_comm_send(comm, &rank, 1, TUTTI_I32, peer));
        COMM_OK(tutti_comm_recv(comm, &got, 1, TUTTI_I32, peer));
        if (rank > peer) COMM_OK(tutti_comm_send(comm, &rank, 1, TUTTI_I32, peer));
        COMM_TRUE(got == peer);
    }
    got = rank;
    COMM_OK(tutti_comm_broadcast(comm, &got, 1, TUTTI_I32, root));
    COMM_TRUE(got == root);
    return NULL;
}

static inline const char *many_life(tutti_comm *comm, const many *m) {
    COMM_OK(tutti_comm_barrier(comm));
    many_note(&m->times->started_ns);
    for (uint64_t step = 0; step < MANY_STEPS; step++) {
        const char *failure = many_step(comm, m, step);
        if (failure) return failure;
    }
    many_note(&m->times->stepped_ns);
    const char *failure = many_messages(comm, m);
    if (failure) return failure;
    /* The death must not meet a rank whose last call is not over. */
    atomic_fetch_add(&m->times->n_ready, 1);
    if (tutti_comm_rank(comm) == m->victim) {
        while (atomic_load(&m->times->n_ready) < m->n_ranks && tti_comm_check(comm) == TUTTI_OK)
            tti_sleep_ms(1);
        many_note(&m->times->died_ns);
        return NULL;
    }
    COMM_FAILS(tutti_comm_barrier(comm), TUTTI_E_PEER, "is gone");
    many_note(&m->times->received_ns);
    return NULL;
}

/* The victim's communicator is left behind in *comm. */
static inline void many_rank(const many *m, int rank, tutti_comm **comm) {
    tutti_comm_desc desc = {
        .group = m->group, .rank = rank, .n_ranks = m->n_ranks, .timeout_ms = 120000};
    const char *failure;
    *comm = NULL;
    if (tutti_comm_create(&desc, comm) != TUTTI_OK)
        failure = comm_text("%s", tutti_last_error());
    else
        failure = many_life(*comm, m);
    if (failure && atomic_fetch_add(&m->times->n_failed, 1) == 0)
        snprintf(m->times->failure, sizeof m->times->failure, "rank %d: %s", rank, failure);
    if (failure) tutti_comm_group_abort(m->group, rank, failure);
    if (rank == m->victim) return;
    tutti_comm_destroy(*comm);
    *comm = NULL;
}

static inline void many_begin(int n_ranks, many *m, float *want) {
    *m = (many){.n_ranks = n_ranks, .victim = n_ranks / 3, .want = want};
    m->times =
        mmap(NULL, sizeof *m->times, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(m->times != MAP_FAILED);
    many_note(&m->times->begun_ns);
    T_OK(tutti_comm_group_create(n_ranks, &m->group));
    tti_sum_order order;
    T_OK(tti_sum_order_ranks(n_ranks, &order));
    float *terms = calloc((size_t)n_ranks * MANY_ELEMS, sizeof *terms);
    const void **srcs = calloc((size_t)n_ranks, sizeof *srcs);
    void *scratch = malloc(tti_sum_scratch_bytes());
    assert_true(terms && srcs && scratch);
    for (int r = 0; r < n_ranks; r++) {
        srcs[r] = terms + r * MANY_ELEMS;
        for (int i = 0; i < MANY_ELEMS; i++) terms[r * MANY_ELEMS + i] = many_term(r, i);
    }
    const void *sum = tti_sum_block(&order, srcs, 0, tti_sum_dtypes_of(TUTTI_F32), TUTTI_SUM,
                                    MANY_ELEMS, scratch);
    memcpy(want, sum, MANY_ELEMS * sizeof *want);
    free(scratch);
    free(srcs);
    free(terms);
    tti_sum_order_free(&order);
}

/* n_bytes: of all ranks together. */
static inline void many_end(const many *m, const char *kind, size_t n_bytes) {
    const many_times *t = m->times;
    printf(
        "%d ranks as %s: start %.0f ms, step %.2f ms, death heard by all after %.0f ms, %.0f KB "
        "per rank\n",
        m->n_ranks, kind, (double)(t->started_ns - t->begun_ns) * 1e-6,
        (double)(t->stepped_ns - t->started_ns) * 1e-6 / MANY_STEPS,
        (double)(t->received_ns - t->died_ns) * 1e-6, (double)n_bytes / m->n_ranks / 1024);
    int n_failed = atomic_load(&t->n_failed);
    char failure[sizeof t->failure];
    memcpy(failure, t->failure, sizeof failure);
    tutti_comm_group_destroy(m->group);
    munmap(m->times, sizeof *m->times);
    if (n_failed) fail_msg("%d ranks failed; %s", n_failed, failure);
}

/* The number in kB after a key of a file of /proc. */
static inline size_t many_proc_bytes(const char *path, const char *key) {
    char line[256];
    size_t kb = 0;
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0) kb = strtoull(line + strlen(key), NULL, 10);
    if (file) fclose(file);
    return kb * 1024;
}

typedef struct many_thread {
    pthread_t thread;
    const many *m;
    tutti_comm *comm; /* of the victim */
    int rank;
} many_thread;

static inline void *many_thread_main(void *arg) {
    many_thread *t = arg;
    many_rank(t->m, t->rank, &t->comm);
    return NULL;
}

static inline void many_threads(int n_ranks) {
    many m;
    float want[MANY_ELEMS];
    size_t before = many_proc_bytes("/proc/self/status", "VmRSS:");
    many_begin(n_ranks, &m, want);
    many_thread *threads = calloc((size_t)n_ranks, sizeof *threads);
    pthread_attr_t attr;
    assert_true(threads && pthread_attr_init(&attr) == 0);
    pthread_attr_setstacksize(&attr, MANY_STACK_BYTES);
    for (int r = 0; r < n_ranks; r++) {
        threads[r] = (many_thread){.m = &m, .rank = r};
        assert_int_equal(pthread_create(&threads[r].thread, &attr, many_thread_main, &threads[r]),
                         0);
    }
    pthread_join(threads[m.victim].thread, NULL); /* what a launcher does with its workers */
    size_t n_bytes = many_proc_bytes("/proc/self/status", "VmRSS:");
    tutti_comm_group_abort(m.group, m.victim, NULL);
    for (int r = 0; r < n_ranks; r++)
        if (r != m.victim) pthread_join(threads[r].thread, NULL);
    tutti_comm_destroy(threads[m.victim].comm);
    pthread_attr_destroy(&attr);
    free(threads);
    many_end(&m, "threads", n_bytes > before ? n_bytes - before : 0);
}

static inline void many_processes(int n_ranks) {
    many m;
    float want[MANY_ELEMS];
    many_begin(n_ranks, &m, want);
    pid_t *pids = calloc((size_t)n_ranks, sizeof *pids);
    assert_non_null(pids);
    fflush(stdout);
    for (int r = 0; r < n_ranks; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] > 0) continue;
        tutti_comm *comm;
        many_rank(&m, r, &comm);
        _exit(0);
    }
    size_t n_bytes = 0;
    assert_int_equal(waitpid(pids[m.victim], NULL, 0), pids[m.victim]);
    for (int r = 0; r < n_ranks; r++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pids[r]);
        if (r % 16 == 0 && r != m.victim) n_bytes += 16 * many_proc_bytes(path, "Pss:");
    }
    many_note(&m.times->died_ns); /* measuring took time */
    tutti_comm_group_abort(m.group, m.victim, NULL);
    for (int r = 0; r < n_ranks; r++)
        if (r != m.victim) waitpid(pids[r], NULL, 0);
    free(pids);
    many_end(&m, "processes", n_bytes);
}

#endif /* TTI_TESTS_COMM_MANY_RANKS_H */
