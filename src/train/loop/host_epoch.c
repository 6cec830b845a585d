/* host_epoch.c - joins the members of an epoch over sockets, and breaks the group when the
 * supervisor closes its pipe.  A thread watches the pipe, because the worker may be computing or
 * waiting in a call. */
#include "train/loop/host_epoch.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error.h"
#include "base/thread.h"
#include "comm/progress.h"

/* All members wait for the epoch, so they connect quickly or not at all. */
enum { MOST_JOIN_MS = 10000 };

static void *watch(void *arg) {
    tti_host_epoch *e = arg;
    struct pollfd fds[2] = {{.fd = e->alive_fd, .events = POLLIN},
                            {.fd = e->stop_fd, .events = POLLIN}};
    int n;
    while ((n = poll(fds, 2, -1)) < 0 && errno == EINTR) continue;
    if (n < 0 || fds[1].revents) return NULL;
    if (e->group)
        tutti_comm_group_abort(e->group, -1, "the membership changes");
    else
        tti_comm_break(e->comm);
    return NULL;
}

static tutti_status connect_members(const tti_epoch *epoch, const tti_job_config *c,
                                    tti_host_epoch *e) {
    int timeout_ms = (int)c->parallel.timeout_ms;
    tutti_comm_desc desc = {.rank = epoch->rank,
                            .n_ranks = epoch->n_ranks,
                            .timeout_ms = TTI_MIN(timeout_ms, MOST_JOIN_MS),
                            .phase_timeout_ms = (int)c->parallel.phase_timeout_ms};
    if (epoch->n_ranks == 1) {
        TTI_TRY(tutti_comm_group_create(1, &e->group));
        desc.group = e->group;
    } else {
        desc.transport = "tcp";
        desc.address = epoch->address;
        desc.token = epoch->token;
        desc.job = epoch->job;
        desc.stop_fd = &e->alive_fd; /* a member may be lost before all have joined */
    }
    tutti_status st = tutti_comm_create(&desc, &e->comm);
    if (st == TUTTI_E_TIMEOUT) return tti_fail(TUTTI_E_PEER, "%s", tutti_last_error());
    if (st == TUTTI_OK) tti_comm_set_timeout(e->comm, timeout_ms);
    return st;
}

static tutti_status start_watch(tti_host_epoch *e) {
    e->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (e->stop_fd < 0) return tti_fail(TUTTI_E_IO, "train: eventfd: %s", strerror(errno));
    int error = tti_thread_start(&e->watcher, NULL, watch, e);
    e->is_watched = error == 0;
    if (error) return tti_fail(TUTTI_E_NOMEM, "train: cannot start a thread: %s", strerror(error));
    return TUTTI_OK;
}

tutti_status tti_host_epoch_join(const tti_epoch *epoch, const tti_job_config *c,
                                 tti_host_epoch *out) {
    *out = (tti_host_epoch){.alive_fd = epoch->group_fd, .stop_fd = -1};
    tutti_status st = connect_members(epoch, c, out);
    if (st == TUTTI_OK) st = start_watch(out);
    if (st != TUTTI_OK) tti_host_epoch_leave(out);
    return st;
}

void tti_host_epoch_leave(tti_host_epoch *e) {
    uint64_t one = 1;
    if (e->is_watched) {
        while (write(e->stop_fd, &one, sizeof one) < 0 && errno == EINTR) continue;
        pthread_join(e->watcher, NULL);
    }
    tutti_comm_destroy(e->comm);
    tutti_comm_group_destroy(e->group);
    if (e->stop_fd >= 0) close(e->stop_fd);
    if (e->alive_fd >= 0) close(e->alive_fd);
}
