/* many_hosts.h - many processes of several hosts, which connect through sockets: they start, do
 * steps of small collectives, send messages, lose one rank to SIGKILL, and end.  Hosts are names
 * here (TUTTI_TEST_HOSTS). */
#ifndef TTI_TESTS_COMM_MANY_HOSTS_H
#define TTI_TESTS_COMM_MANY_HOSTS_H

#include <dirent.h>
#include <signal.h>

#include "comm/many_ranks.h"
#include "comm/sockets.h"
#include "comm/subgroup.h"

typedef struct many_hosts {
    many ranks;
    int n_hosts;
    char address[64];
} many_hosts;

static inline int many_host_of(const many_hosts *m, int rank) {
    return (int)((int64_t)rank * m->n_hosts / m->ranks.n_ranks);
}

static inline void many_name_hosts(const many_hosts *m) {
    size_t cap = (size_t)m->ranks.n_ranks * 8 + 1, n = 0;
    char *names = malloc(cap);
    assert_non_null(names);
    for (int r = 0; r < m->ranks.n_ranks; r++)
        n += (size_t)snprintf(names + n, cap - n, "%sh%d", r ? "," : "", many_host_of(m, r));
    setenv("TUTTI_TEST_HOSTS", names, 1);
    free(names);
}

static inline void many_choose_address(many_hosts *m) {
    tcp_address any;
    tcp_place place;
    int n;
    T_OK(tti_tcp_parse("127.0.0.1:1", &any));
    T_OK(tti_tcp_resolve(&any, 0, &place, 1, &n));
    int fd = tti_tcp_listen(&place);
    assert_true(fd >= 0);
    place.n_bytes = sizeof place.at;
    T_EQ(getsockname(fd, (struct sockaddr *)&place.at, &place.n_bytes), 0);
    tti_tcp_place_text(&place, m->address, sizeof m->address);
    close(fd);
}

/* A subgroup with a rank of each host, and one inside each host. */
static inline const char *many_subgroups(tutti_comm *comm, const many_hosts *m) {
    int rank = tutti_comm_rank(comm), host = many_host_of(m, rank), one = 1;
    int colors[2] = {host, rank % 3};
    for (int i = 0; i < 2; i++) {
        tutti_comm *part;
        COMM_OK(tti_comm_split(comm, colors[i], &part));
        int32_t sum = one;
        if (part)
            COMM_OK(
                tutti_comm_all_reduce(part, &sum, &sum, 1, TUTTI_I32, TUTTI_SUM, TUTTI_ALG_AUTO));
        if (part) COMM_TRUE(sum == tutti_comm_n_ranks(part));
        COMM_OK(tutti_comm_barrier(comm));
        tutti_comm_destroy(part);
    }
    return NULL;
}

/* A vector that goes inside each host first and then between hosts. */
static inline const char *many_sum(tutti_comm *comm) {
    enum { N = 5000 };
    int n = tutti_comm_n_ranks(comm);
    void *memory;
    COMM_OK(tutti_comm_alloc(comm, N * sizeof(float), &memory));
    float *x = memory;
    for (int i = 0; i < N; i++) x[i] = (float)(tutti_comm_rank(comm) % 8 + i % 4);
    COMM_OK(tutti_comm_all_reduce(comm, x, x, N, TUTTI_F32, TUTTI_SUM, TUTTI_ALG_AUTO));
    float want = 0;
    for (int r = 0; r < n; r++) want += (float)(r % 8);
    for (int i = 0; i < N; i++) COMM_TRUE(x[i] == want + (float)(n * (i % 4)));
    return NULL;
}

static inline const char *many_host_life(tutti_comm *comm, many_hosts *m) {
    const many *ranks = &m->ranks;
    int rank = tutti_comm_rank(comm);
    char victim[64], host[16];
    COMM_OK(tutti_comm_barrier(comm));
    many_note(&ranks->times->started_ns);
    for (uint64_t step = 0; step < MANY_STEPS; step++) {
        const char *failure = many_step(comm, ranks, step);
        if (failure) return failure;
    }
    many_note(&ranks->times->stepped_ns);
    const char *failure = many_messages(comm, ranks);
    if (!failure) failure = many_subgroups(comm, m);
    if (!failure) failure = many_sum(comm);
    if (failure) return failure;
    atomic_fetch_add(&ranks->times->n_ready, 1);
    if (rank == ranks->victim) {
        while (atomic_load(&ranks->times->n_ready) < ranks->n_ranks + 1) tti_sleep_ms(1);
        many_note(&ranks->times->died_ns);
        raise(SIGKILL);
    }
    snprintf(victim, sizeof victim, "rank %d ", ranks->victim);
    snprintf(host, sizeof host, " on h%d)", many_host_of(m, ranks->victim));
    COMM_FAILS(tutti_comm_barrier(comm), TUTTI_E_PEER, victim);
    COMM_TRUE(strstr(tutti_last_error(), host) != NULL);
    many_note(&ranks->times->received_ns);
    return NULL;
}

static inline void many_host_rank(many_hosts *m, int rank) {
    tutti_comm_desc desc = {.transport = "tcp",
                            .rank = rank,
                            .n_ranks = m->ranks.n_ranks,
                            .timeout_ms = 120000,
                            .address = m->address,
                            .token = "sixteen and more",
                            .job = "many"};
    const char *failure;
    tutti_comm *comm = NULL;
    if (tutti_comm_create(&desc, &comm) != TUTTI_OK)
        failure = comm_text("%s", tutti_last_error());
    else
        failure = many_host_life(comm, m);
    if (failure && atomic_fetch_add(&m->ranks.times->n_failed, 1) == 0)
        snprintf(m->ranks.times->failure, sizeof m->ranks.times->failure, "rank %d: %s", rank,
                 failure);
    tutti_comm_destroy(comm);
}

/* Sockets that a process has open. */
static inline int many_sockets(pid_t pid) {
    char path[64], target[64];
    int n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);
    for (struct dirent *e; folder && (e = readdir(folder));) {
        ssize_t n_bytes = readlinkat(dirfd(folder), e->d_name, target, sizeof target - 1);
        n += n_bytes > 7 && strncmp(target, "socket:", 7) == 0;
    }
    if (folder) closedir(folder);
    return n;
}

static inline void many_over_hosts(int n_ranks, int n_hosts) {
    many_hosts m = {.n_hosts = n_hosts};
    float want[MANY_ELEMS];
    many_begin(n_ranks, &m.ranks, want);
    many_choose_address(&m);
    many_name_hosts(&m);
    many_times *times = m.ranks.times;
    pid_t *pids = calloc((size_t)n_ranks, sizeof *pids);
    assert_non_null(pids);
    fflush(stdout);
    for (int r = 0; r < n_ranks; r++) {
        pids[r] = fork();
        assert_true(pids[r] >= 0);
        if (pids[r] > 0) continue;
        many_host_rank(&m, r);
        _exit(0);
    }
    while (atomic_load(&times->n_ready) < n_ranks && atomic_load(&times->n_failed) == 0)
        tti_sleep_ms(1);
    size_t n_bytes = 0;
    int n_sockets = 0, n_looks = 0, most_sockets = 0;
    for (int r = 0; r < n_ranks; r += 16, n_looks++) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pids[r]);
        n_bytes += 16 * many_proc_bytes(path, "Pss:");
        int n = many_sockets(pids[r]) + many_sockets(pids[TTI_MIN(r + 1, n_ranks - 1)]);
        n_sockets += n;
        most_sockets = TTI_MAX(most_sockets, many_sockets(pids[r]));
    }
    atomic_fetch_add(&times->n_ready, 1); /* all is measured: the victim may die */
    if (atomic_load(&times->n_failed) > 0) kill(pids[m.ranks.victim], SIGKILL);
    for (int r = 0; r < n_ranks; r++) waitpid(pids[r], NULL, 0);
    free(pids);
    unsetenv("TUTTI_TEST_HOSTS");
    printf("%d hosts, sockets per rank: %.1f on average, %d at most\n", n_hosts,
           (double)n_sockets / (2 * n_looks), most_sockets);
    many_end(&m.ranks, "processes over sockets", n_bytes);
}

#endif /* TTI_TESTS_COMM_MANY_HOSTS_H */
