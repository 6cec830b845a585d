/* watch.c - a thread that waits for the death of the other processes of this host, and looks
 * whether the next one is stopped.
 *
 * A rank that sleeps in shared memory hears nothing of a peer that was killed; a pidfd does, at
 * once.  A rank that has left in order before it ends is no failure.  Of a stop (SIGSTOP, a batch
 * system's, Ctrl-Z) only the parent hears, so each rank looks at the next one's state: wherever
 * some are stopped and some run, one that runs stands before one that is stopped. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process.h"
#include "base/thread.h"
#include "comm/net/net.h"

enum {
    LOOK_MS = 100,    /* from look to look */
    LATE_MS = 300,    /* a look that comes so long after the last one proves nothing */
    STOPPED_MS = 500, /* a rank that is seen stopped for so long does not go on by itself */
    NO_RANK = -1
};

/* At the state of one rank. */
typedef struct stop_look {
    int rank;         /* NO_RANK: of nobody any more */
    int64_t last_ns;  /* when it was looked at */
    int64_t since_ns; /* since when it has been seen stopped, INT64_MAX: it runs */
} stop_look;

/* Breaks the group of this host, unless the rank had left or another is named already. */
static void note_loss(net_state *s, int rank, const char *how) {
    tti_progress page;
    char text[256];
    if (tti_comm_group_progress(s->group, s->index_of[rank], &page) == TUTTI_OK && page.left)
        return;
    snprintf(text, sizeof text, "comm: rank %d (pid %d on %s) %s", rank, s->peers[rank].pid,
             s->peers[rank].host, how);
    if (atomic_load(&s->lost) < 0) {
        s->how_lost = how;
        atomic_store(&s->lost, rank);
    }
    tutti_comm_group_abort(s->group, rank, text);
}

/* The descriptors that tell of each other process of this host; what cannot be had is left out. */
static int open_watches(net_state *s, struct pollfd *watches, int *ranks) {
    int n = 0;
    for (int i = 0; i < s->n_local; i++) {
        int rank = s->rank_of[i], pid = s->peers[rank].pid;
        if (pid == (int)getpid()) continue;
        int fd = (int)syscall(SYS_pidfd_open, pid, 0);
        if (fd < 0 && errno == ESRCH) note_loss(s, rank, "died"); /* it met us, and was gone */
        if (fd < 0) continue;
        watches[n] = (struct pollfd){.fd = fd, .events = POLLIN};
        ranks[n++] = rank;
    }
    return n;
}

/* The next process of this host in the circle of its ranks. */
static int next_rank(const net_state *s) {
    for (int i = 1; i < s->n_local; i++) {
        int rank = s->rank_of[(s->index_of[s->rank] + i) % s->n_local];
        if (s->peers[rank].pid != (int)getpid()) return rank;
    }
    return NO_RANK;
}

/* A look that comes late is of a process that was stopped too, with all of its job: whoever goes on
 * first must not blame the others. */
static void look(net_state *s, stop_look *at) {
    int64_t now_ns = tti_now_ns();
    bool late = now_ns - at->last_ns > LATE_MS * TTI_NS_PER_MS;
    at->last_ns = now_ns;
    if (tti_process_state(s->peers[at->rank].pid) != 'T')
        at->since_ns = INT64_MAX;
    else if (late || at->since_ns == INT64_MAX)
        at->since_ns = now_ns;
    else if (now_ns - at->since_ns >= STOPPED_MS * TTI_NS_PER_MS) {
        note_loss(s, at->rank, "was stopped by a signal");
        at->rank = NO_RANK;
    }
}

/* Ends with the communicator. */
static void *watch(void *arg) {
    net_state *s = arg;
    struct pollfd watches[TTI_MAX_RANKS + 1];
    int ranks[TTI_MAX_RANKS], n = open_watches(s, watches, ranks);
    stop_look next = {.rank = next_rank(s), .last_ns = tti_now_ns(), .since_ns = INT64_MAX};
    watches[n] = (struct pollfd){.fd = s->stop_fd, .events = POLLIN};
    while (!watches[n].revents) {
        if (poll(watches, (nfds_t)n + 1, next.rank == NO_RANK ? -1 : LOOK_MS) < 0 && errno != EINTR)
            break;
        for (int i = 0; i < n; i++) {
            if (!watches[i].revents || watches[i].fd < 0) continue;
            note_loss(s, ranks[i], "died");
            close(watches[i].fd);
            watches[i].fd = -1; /* poll passes it over */
        }
        if (next.rank != NO_RANK) look(s, &next);
    }
    for (int i = 0; i < n; i++)
        if (watches[i].fd >= 0) close(watches[i].fd);
    return NULL;
}

tutti_status tti_net_watch(net_state *s) {
    if (s->n_local < 2) return TUTTI_OK;
    s->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (s->stop_fd < 0) return tti_fail(TUTTI_E_IO, "comm_create: eventfd: %s", strerror(errno));
    int error = tti_thread_start(&s->watcher, NULL, watch, s);
    if (error == 0) return TUTTI_OK;
    close(s->stop_fd);
    s->stop_fd = -1;
    return tti_fail(TUTTI_E_NOMEM, "comm_create: no thread to watch peers: %s", strerror(error));
}

void tti_net_unwatch(net_state *s) {
    uint64_t one = 1;
    if (s->stop_fd < 0) return;
    while (write(s->stop_fd, &one, sizeof one) < 0 && errno == EINTR) continue;
    pthread_join(s->watcher, NULL);
    close(s->stop_fd);
    s->stop_fd = -1;
}
