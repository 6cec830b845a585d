/* supervised.c - makes a worker die with its supervisor, by two methods that complement each other.
 *
 * PR_SET_PDEATHSIG acts at once and survives exec, but only for a direct child.  A thread that
 * waits for the end of the control socket also serves a process below a shell or a wrapper. */
#include "launch/supervised.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "tutti/launch.h"

/* Returns the number in an environment variable, -1 if there is none. */
static int env_number(const char *name) {
    const char *text = getenv(name);
    char *end;
    if (!text || !*text) return -1;
    errno = 0;
    long n = strtol(text, &end, 10);
    return errno || *end || n < 0 || n > INT_MAX ? -1 : (int)n;
}

/* Returns the control socket; -1 unless the variable names a socket that the supervisor created.
 * Variables are inherited further than descriptors, so the number may refer to another file now. */
static int control_fd(void) {
    int fd = env_number("TUTTI_CONTROL_FD"), pid = env_number("TUTTI_SUPERVISOR_PID");
    struct ucred maker;
    socklen_t n_bytes = sizeof maker;
    if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &maker, &n_bytes) != 0) return -1;
    return maker.pid == pid ? fd : -1;
}

/* Waits t_ms (-1: no limit) for the end of the supervisor; returns the poll events, 0: none. */
static int wait_for_end(int fd, int t_ms) {
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    return poll(&p, 1, t_ms) == 1 ? p.revents : 0;
}

/* The only wait without a limit in this folder; it ends with the process.  If the program has
 * closed the descriptor (POLLNVAL), the supervisor may still be alive. */
static void *watch(void *arg) {
    int fd = (int)(intptr_t)arg, events;
    while ((events = wait_for_end(fd, -1)) == 0) continue;
    if (!(events & POLLNVAL)) kill(getpid(), SIGKILL);
    return NULL;
}

/* Starts the watching thread, with a small stack. */
static int start_watch(int fd) {
    pthread_attr_t attr;
    pthread_t thread;
    int e = pthread_attr_init(&attr);
    if (e) return e;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, 256 << 10);
    e = tti_thread_start(&thread, &attr, watch, (void *)(intptr_t)fd);
    pthread_attr_destroy(&attr);
    return e;
}

/* Ties this process to its parent.  If the supervisor died before the prctl, the socket has
 * ended. */
static tutti_status tie(int fd) {
    if (env_number("TUTTI_SUPERVISOR_PID") == (int)getppid()) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (wait_for_end(fd, 0) == 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_PEER, "worker: the supervisor is gone");
}

tutti_status tti_worker_init(void) {
    int fd = control_fd();
    if (fd < 0) return TUTTI_OK;
    fcntl(fd, F_SETFD, FD_CLOEXEC); /* children of this worker must not inherit it */
    TTI_TRY(tie(fd));
    int e = start_watch(fd);
    if (e) return tti_fail(TUTTI_E_INTERNAL, "worker: cannot start a thread: %s", strerror(e));
    return TUTTI_OK;
}

tutti_status tutti_worker_exec(char *const *argv) {
    int fd = control_fd();
    if (fd >= 0) TTI_TRY(tie(fd));
    execvp(argv[0], argv);
    return tti_fail(TUTTI_E_IO, "launch: cannot run '%s': %s", argv[0], strerror(errno));
}

static void report(uint64_t magic, uint64_t number, const char *words) {
    tti_control_message message = {.magic = magic, .step = number};
    snprintf(message.words, sizeof message.words, "%s", words);
    int fd = control_fd();
    if (fd >= 0) send(fd, &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void tti_worker_report_step(uint64_t step) { report(TTI_CONTROL_MAGIC, step, ""); }

void tti_worker_report_needed(int n_needed) { report(TTI_CONTROL_NEEDED, (uint64_t)n_needed, ""); }

void tti_worker_report_failure(uint64_t step, const char *text) {
    report(TTI_CONTROL_FAILED, step, text);
}

void tti_worker_report_training(void) { report(TTI_CONTROL_TRAINS, 0, ""); }

int tti_worker_fd(const char *name) {
    int fd = env_number(name);
    return fd >= 0 && fcntl(fd, F_GETFD) >= 0 ? fd : -1;
}

void tti_worker_report_excluded(uint64_t step, const char *text) {
    report(TTI_CONTROL_EXCLUDED, step, text);
}

bool tti_worker_joins(void) { return env_number("TUTTI_JOINS") > 0; }

int tti_worker_slot(int rank) { return tti_worker_joins() ? env_number("TUTTI_JOINS") - 1 : rank; }

/* Returns the descriptor that was sent with a message; -1: none. */
static int passed_fd(struct msghdr *m) {
    int fd = -1;
    struct cmsghdr *c = CMSG_FIRSTHDR(m);
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
        c->cmsg_len == CMSG_LEN(sizeof fd))
        memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
}

static tutti_status receive_epoch(int fd, tti_epoch *out) {
    tti_epoch_message m = {0};
    alignas(struct cmsghdr) char room[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&m, sizeof m};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    int group_fd = n >= 0 ? passed_fd(&message) : -1;
    bool ok = n == (ssize_t)sizeof m && m.magic == TTI_CONTROL_EPOCH && group_fd >= 0 &&
              m.rank >= 0 && m.rank < m.n_ranks;
    if (ok) {
        *out = (tti_epoch){.rank = m.rank,
                           .n_ranks = m.n_ranks,
                           .group_fd = group_fd,
                           .local_rank = m.local_rank,
                           .n_local = m.n_local,
                           .place = m.place,
                           .number = m.number};
        memcpy(out->address, m.address, sizeof out->address);
        memcpy(out->job, m.job, sizeof out->job);
        memcpy(out->token, m.token, sizeof out->token);
        return TUTTI_OK;
    }
    if (group_fd >= 0) close(group_fd);
    return tti_fail(TUTTI_E_PEER, "worker: the supervisor ends the run");
}

tutti_status tti_worker_next_epoch(int timeout_ms, tti_epoch *out) {
    int fd = control_fd();
    int64_t end_ns = timeout_ms < 0 ? INT64_MAX : tti_now_ns() + timeout_ms * TTI_NS_PER_MS;
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (fd < 0) return tti_fail(TUTTI_E_PEER, "worker: there is no supervisor");
    report(TTI_CONTROL_READY, 0, "");
    while (poll(&p, 1, tti_ms_until(end_ns)) != 1)
        if (tti_now_ns() >= end_ns)
            return tti_fail(TUTTI_E_TIMEOUT,
                            "worker: waited %d ms for the other workers of the next epoch",
                            timeout_ms);
    return receive_epoch(fd, out);
}

bool tti_worker_restarted(void) { return env_number("TUTTI_RESTART_COUNT") > 0; }

bool tti_launcher_restarted(void) {
    bool in_step = env_number("SLURM_STEP_ID") >= 0; /* started by srun, not by the batch script */
    return env_number("TORCHELASTIC_RESTART_COUNT") > 0 ||
           (in_step && env_number("SLURM_RESTART_COUNT") > 0);
}
