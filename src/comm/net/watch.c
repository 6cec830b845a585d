/* watch.c - a thread that waits for the death of the other processes of this host.
 *
 * A rank that sleeps in shared memory hears nothing of a peer that was killed; a pidfd does, at
 * once.  A rank that has left in order before it ends is no failure. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/thread.h"
#include "comm/net/net.h"

/* Breaks the group of this host, unless the rank had left. */
static void note_death(net_state *s, int rank) {
    tti_progress page;
    char text[256];
    if (tti_comm_group_progress(s->group, s->index_of[rank], &page) == TUTTI_OK && page.left)
        return;
    snprintf(text, sizeof text, "comm: rank %d (pid %d on %s) died", rank, s->peers[rank].pid,
             s->peers[rank].host);
    int none = -1;
    atomic_compare_exchange_strong(&s->dead, &none, rank);
    tutti_comm_group_abort(s->group, rank, text);
}

/* The descriptors that tell of each other process of this host; what cannot be had is left out. */
static int open_watches(net_state *s, struct pollfd *watches, int *ranks) {
    int n = 0;
    for (int i = 0; i < s->n_local; i++) {
        int rank = s->rank_of[i], pid = s->peers[rank].pid;
        if (pid == (int)getpid()) continue;
        int fd = (int)syscall(SYS_pidfd_open, pid, 0);
        if (fd < 0 && errno == ESRCH) note_death(s, rank); /* it met us, and was gone */
        if (fd < 0) continue;
        watches[n] = (struct pollfd){.fd = fd, .events = POLLIN};
        ranks[n++] = rank;
    }
    return n;
}

/* Ends with the communicator. */
static void *watch(void *arg) {
    net_state *s = arg;
    struct pollfd watches[TTI_MAX_RANKS + 1];
    int ranks[TTI_MAX_RANKS], n = open_watches(s, watches, ranks);
    watches[n] = (struct pollfd){.fd = s->stop_fd, .events = POLLIN};
    while (!watches[n].revents) {
        if (poll(watches, (nfds_t)n + 1, -1) < 0 && errno != EINTR) break;
        for (int i = 0; i < n; i++) {
            if (!watches[i].revents || watches[i].fd < 0) continue;
            note_death(s, ranks[i]);
            close(watches[i].fd);
            watches[i].fd = -1; /* poll passes it over */
        }
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
