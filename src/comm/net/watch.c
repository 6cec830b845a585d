/* watch.c - a thread that waits for the death of the other processes of this host, and checks
 * whether the next one is stopped.
 *
 * A rank that sleeps in shared memory does not notice that a peer was killed; a pidfd reports the
 * death at once.  A rank that leaves before its process ends is not a failure. ¶ Only the parent of
 * a process is notified of a stop (SIGSTOP, a batch system, Ctrl-Z).  So each rank reads the state
 * of the next rank in a circle: if some ranks are stopped and some run, a running rank precedes a
 * stopped one. ¶ Asynchronous workers do not check the group, but wait for a stopped rank on their
 * own connection, which reports only the end of a process.  Therefore a stopped rank is killed, but
 * only after this rank has reported it to the other hosts, which otherwise see only a closed
 * connection.  The report is delayed if the thread that uses the connections is computing. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/process.h"
#include "base/thread.h"
#include "comm/net/net.h"

enum {
    LOOK_MS = 100, /* interval between two checks */
    LATE_MS = 300, /* a check this long after the previous one proves nothing */
    STOPPED_MS =
        500, /* a rank that was stopped for this long is assumed not to continue by itself */
    GIVEN_UP_MS = 800, /* time by which a report has reached all ranks that check the group */
    UNHEARD_MS = 8000  /* time after which no rank is assumed to check the group */
};

/* The observation of the next process. */
typedef struct stop_look {
    net_watched *at;  /* NULL: no process is left */
    int64_t last_ns;  /* time of the last check */
    int64_t since_ns; /* time since which the process is stopped, INT64_MAX: it runs */
    bool is_reported;
} stop_look;

/* Breaks the group of this host, unless a lost rank was recorded already.  False: the rank had left
 * in order. */
static bool note_loss(net_state *s, int rank, const char *how) {
    tti_progress page;
    char text[256];
    if (tti_comm_group_progress(s->group, s->index_of[rank], &page) == TUTTI_OK && page.left)
        return false;
    snprintf(text, sizeof text, "comm: rank %d (pid %d on %s) %s", rank, s->peers[rank].pid,
             tti_net_host_name(s->host_names, &s->peers[rank]), how);
    if (atomic_load(&s->lost) < 0) {
        s->how_lost = how;
        atomic_store(&s->lost, rank);
    }
    tti_shm_lose(s->group, text);
    return true;
}

void tti_net_break(void *state) {
    net_state *s = state;
    (void)note_loss(s, s->rank, "left this group: the membership changes");
}

/* Lists the other processes in the order of the circle, starting after this rank.  Processes
 * without a pidfd are still checked for stops. */
static int find_others(net_state *s, net_watched *others) {
    int n = 0;
    for (int i = 1; i < s->n_local; i++) {
        int rank = s->rank_of[(s->index_of[s->rank] + i) % s->n_local], pid = s->peers[rank].pid;
        if (pid == (int)getpid()) continue;
        int fd = (int)syscall(SYS_pidfd_open, pid, 0);
        bool is_gone = fd < 0 && errno == ESRCH;
        if (is_gone) note_loss(s, rank, "died"); /* the process died after it had connected */
        others[n++] = (net_watched){rank, fd, is_gone};
    }
    return n;
}

static void look_at_next(net_watched *others, int n, stop_look *look) {
    *look = (stop_look){.last_ns = tti_now_ns(), .since_ns = INT64_MAX};
    for (int i = n - 1; i >= 0; i--)
        if (!others[i].is_gone) look->at = &others[i];
}

/* A late check means that this process was stopped too, with the whole job.  Then the first process
 * that continues must not report the others. */
static void look(net_state *s, stop_look *l) {
    int64_t now_ns = tti_now_ns();
    bool late = now_ns - l->last_ns > LATE_MS * TTI_NS_PER_MS;
    l->last_ns = now_ns;
    if (tti_process_state(s->peers[l->at->rank].pid) != 'T') {
        l->since_ns = INT64_MAX;
        l->is_reported = false;
        return;
    }
    if (late || l->since_ns == INT64_MAX) l->since_ns = now_ns;
    if (!l->is_reported && now_ns - l->since_ns >= STOPPED_MS * TTI_NS_PER_MS)
        l->is_reported = note_loss(s, l->at->rank, "was stopped by a signal");
    bool is_reported = atomic_load(&s->has_reported) || TTI_FAULT("watch.reported");
    int64_t wait_ms = is_reported ? GIVEN_UP_MS : UNHEARD_MS;
    if (l->is_reported && now_ns - l->since_ns >= wait_ms * TTI_NS_PER_MS && l->at->fd >= 0)
        syscall(SYS_pidfd_send_signal, l->at->fd, SIGKILL, NULL, 0);
}

static void note_death(net_state *s, net_watched *w) {
    note_loss(s, w->rank, "died");
    close(w->fd);
    w->fd = -1;
    w->is_gone = true;
}

/* The thread of the watcher; it ends with the communicator. */
static void *watch(void *arg) {
    net_state *s = arg;
    net_watched *others = s->watched;
    struct pollfd *polls = s->watched_polls;
    int n = find_others(s, others);
    stop_look next;
    look_at_next(others, n, &next);
    for (;;) {
        for (int i = 0; i < n; i++) /* poll ignores -1 */
            polls[i] = (struct pollfd){.fd = others[i].fd, .events = POLLIN};
        polls[n] = (struct pollfd){.fd = s->stop_fd, .events = POLLIN};
        int n_ready = poll(polls, (nfds_t)n + 1, next.at ? LOOK_MS : -1);
        if ((n_ready < 0 && errno != EINTR) || (n_ready > 0 && polls[n].revents)) break;
        for (int i = 0; i < n && n_ready > 0; i++)
            if (polls[i].revents) note_death(s, &others[i]);
        if (next.at && next.at->is_gone) look_at_next(others, n, &next);
        if (next.at) look(s, &next);
    }
    for (int i = 0; i < n; i++)
        if (others[i].fd >= 0) close(others[i].fd);
    return NULL;
}

tutti_status tti_net_watch(net_state *s) {
    if (s->n_local < 2) return TUTTI_OK;
    s->watched = calloc((size_t)s->n_local, sizeof *s->watched);
    s->watched_polls = calloc((size_t)s->n_local, sizeof *s->watched_polls);
    if (!s->watched || !s->watched_polls)
        return tti_fail(TUTTI_E_NOMEM, "comm_create: out of memory for %d ranks", s->n_local);
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
    if (s->stop_fd >= 0) {
        while (write(s->stop_fd, &one, sizeof one) < 0 && errno == EINTR) continue;
        pthread_join(s->watcher, NULL);
        close(s->stop_fd);
    }
    s->stop_fd = -1;
    free(s->watched);
    free(s->watched_polls);
    s->watched = NULL;
    s->watched_polls = NULL;
}
