/* ranks.h - ranks of one group as threads: each gets its own communicator. */
#ifndef TTI_TESTS_COMM_RANKS_H
#define TTI_TESTS_COMM_RANKS_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/progress.h"
#include "comm/shards.h"
#include "t.h"

/* A rank's part of a test; returns NULL, or a text that stays valid (comm_text). */
typedef const char *(*comm_fn)(tutti_comm *comm, void *arg);

typedef struct comm_ranks {
    tutti_comm_group *group;
    comm_fn fn;
    void *arg;
    int timeout_ms;
    bool apart; /* each rank opens the group by itself, as a process would */
} comm_ranks;

/* A formatted text, kept per thread slot; good enough for a failing test. */
__attribute__((format(printf, 1, 2))) static inline const char *comm_text(const char *format, ...) {
    static char texts[64][512];
    static _Atomic unsigned next;
    char *text = texts[next++ % 64];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof texts[0], format, args);
    va_end(args);
    return text;
}

#define COMM_OK(call)                                                                         \
    do {                                                                                      \
        if ((call) != TUTTI_OK)                                                               \
            return comm_text("%s:%d: %s: %s", __FILE__, __LINE__, #call, tutti_last_error()); \
    } while (0)

#define COMM_FAILS(call, status, text)                                                         \
    do {                                                                                       \
        tutti_status t_st = (call);                                                            \
        if (t_st != (status) || !strstr(tutti_last_error(), (text)))                           \
            return comm_text("%s:%d: %s: got '%s' (%s), want '%s'", __FILE__, __LINE__, #call, \
                             tutti_status_text(t_st), tutti_last_error(), (text));             \
    } while (0)

#define COMM_TRUE(condition)                                                             \
    do {                                                                                 \
        if (!(condition)) return comm_text("%s:%d: %s", __FILE__, __LINE__, #condition); \
    } while (0)

/* How long the last call of this thread waited, by its message; -1: it states no time. */
static inline int comm_waited_ms(void) {
    const char *at = strstr(tutti_last_error(), " waited ");
    int ms;
    return at && sscanf(at, " waited %d ms", &ms) == 1 ? ms : -1;
}

/* Time passes for the waits of all ranks, which are threads, while they look and send as often as
 * before. */
static inline void comm_let_time_pass(int ms) {
    tti_sleep_ms(5);
    tti_clock_advance_ms(ms);
}

/* The same tests over another transport: TUTTI_TEST_TRANSPORT=tcp, a socket without a name. */
static inline bool comm_over_net(int rank, int n_ranks, const comm_ranks *c, tutti_comm_desc *desc,
                                 char address[64]) {
    const char *transport = getenv("TUTTI_TEST_TRANSPORT");
    if (!transport) return false;
    snprintf(address, 64, "unix:t%d-%p", getpid(), (void *)c->group);
    *desc = (tutti_comm_desc){.transport = transport,
                              .rank = rank,
                              .n_ranks = n_ranks,
                              .timeout_ms = c->timeout_ms,
                              .address = address};
    return true;
}

/* Ranks do not come by the group then, and how they open it makes no difference. */
static inline bool comm_is_over_net(void) { return getenv("TUTTI_TEST_TRANSPORT") != NULL; }

static inline const char *comm_rank_main(int rank, int n_ranks, void *arg) {
    const comm_ranks *c = arg;
    tutti_comm_group *group = c->group;
    if (c->apart) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", tutti_comm_group_fd(c->group));
        FILE *file = fopen(path, "r+"); /* another descriptor of the same memory */
        COMM_TRUE(file);
        COMM_OK(tutti_comm_group_open(dup(fileno(file)), &group));
        fclose(file);
    }
    tutti_comm_desc desc = {
        .group = group, .rank = rank, .n_ranks = n_ranks, .timeout_ms = c->timeout_ms};
    tutti_comm *comm;
    char address[64];
    (void)comm_over_net(rank, n_ranks, c, &desc, address);
    COMM_OK(tutti_comm_create(&desc, &comm));
    const char *failure = c->fn(comm, c->arg);
    tutti_comm_destroy(comm);
    if (c->apart) tutti_comm_group_destroy(group);
    return failure;
}

/* The number in the first of two variables that is set; -1: in none. */
static inline int comm_number_in(const char *a, const char *b) {
    const char *text = getenv(a) ? getenv(a) : getenv(b);
    return text ? atoi(text) : -1;
}

/* Under mpirun this process is one rank: the cases of another number of ranks are passed over. */
static inline bool comm_run_under_mpi(int n_ranks, comm_ranks *c) {
    const char *transport = getenv("TUTTI_TEST_TRANSPORT");
    if (!transport || strncmp(transport, "mpi", 3) != 0) return false;
    int rank = comm_number_in("OMPI_COMM_WORLD_RANK", "PMI_RANK");
    if (comm_number_in("OMPI_COMM_WORLD_SIZE", "PMI_SIZE") != n_ranks || n_ranks == 1) return true;
    const char *failure = comm_rank_main(rank, n_ranks, c);
    if (failure) fail_msg("rank %d of %d: %s", rank, n_ranks, failure);
    printf("ran a case of %d ranks as rank %d\n", n_ranks, rank);
    return true;
}

/* Runs fn on n_ranks communicators; timeout_ms 0: 20 s. */
static inline void comm_run_with(int n_ranks, bool apart, int timeout_ms, comm_fn fn, void *arg) {
    comm_ranks c = {
        .fn = fn, .arg = arg, .apart = apart, .timeout_ms = timeout_ms ? timeout_ms : 20000};
    T_OK(tutti_comm_group_create(n_ranks, &c.group));
    if (!comm_run_under_mpi(n_ranks, &c)) t_ranks(n_ranks, comm_rank_main, &c);
    tutti_comm_group_destroy(c.group);
}

static inline void comm_run(int n_ranks, comm_fn fn, void *arg) {
    comm_run_with(n_ranks, false, 0, fn, arg);
}

#endif /* TTI_TESTS_COMM_RANKS_H */
