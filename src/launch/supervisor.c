/* supervisor.c - one event loop for all events of workers.
 *
 * Deaths are reported by pidfd and SIGCHLD, stops by SIGCHLD, output by pipes, and the user's
 * signals by signalfd.  All use one poll, so nothing is sampled and nothing blocks.  Each step of a
 * shutdown has its own time (failed_ns + a constant), so no state machine is needed.  Each worker
 * leads a process group.  Signals go to the group, including the children of a shell in it.  The
 * group of a dead leader is killed before the leader is reaped, while its process id cannot be
 * reused. */
#include "launch/supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/patience.h"
#include "base/process.h"
#include "launch/cause.h"
#include "launch/hosts.h"
#include "launch/own_signals.h"
#include "launch/relay.h"
#include "launch/supervisor_state.h"

enum {
    MAX_WORKERS = 4096,
    DEFAULT_GRACE_MS = 1000,
    OOM_EVERY_MS = 5000,
    WANTED_EVERY_MS = 50, /* in elastic runs: interval of checks for requests of a user */
    LOOK_EVERY_MS = 1000, /* interval of checks in case a SIGCHLD went to another thread */
    DOUBLE_MS = 100,      /* two signals within this time count as one */
    DRAIN_MS = 2000,
    DEFAULT_GIVE_UP_MS = 10000,
    DEFAULT_STOPPED_MS =
        500, /* a worker that is stopped for longer is assumed not to resume by itself */
    STOP_LOOK_MS = 50
};

/* ---- signals to workers ---- */

void tti_supervisor_signal(const tti_supervised *w, int sig) {
    if (w->alive && kill(-w->pid, sig) != 0) kill(w->pid, sig);
}

static void signal_all(const tti_supervisor *s, int sig) {
    for (int r = 0; r < s->n_slots; r++) tti_supervisor_signal(&s->workers[r], sig);
}

static void kill_all(tti_supervisor *s) {
    if (s->kill_sent) return;
    signal_all(s, SIGKILL);
    s->kill_sent = true;
    s->kill_ns = tti_now_ns();
}

static void forward(tti_supervisor *s, int sig) {
    if (s->forwarded) return;
    s->forwarded = sig;
    signal_all(s, sig);
}

/* ---- messages of workers ---- */

void tti_supervisor_close(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static void note_words(tti_supervised *w, const tti_control_message *m) {
    w->reported = (tti_reported_failure){.any = true, .step = m->step};
    memcpy(w->reported.words, m->words, sizeof m->words - 1);
}

/* Records the first time that a worker is ready.  A former member is first ready when it leaves a
 * group, which does not measure its loading time. */
static void note_ready(tti_supervised *w) {
    if (w->ready_ns == 0) w->ready_ns = w->joins ? tti_now_ns() : w->started_ns;
    w->is_ready = true;
    w->trains = false;
}

static void read_control(tti_supervisor *s, tti_supervised *w) {
    tti_control_message m;
    while (w->control >= 0) {
        ssize_t n = recv(w->control, &m, sizeof m, MSG_DONTWAIT);
        if (n == (ssize_t)sizeof m && m.magic == TTI_CONTROL_MAGIC)
            s->report.last_step = TTI_MAX(s->report.last_step, m.step);
        else if (n == (ssize_t)sizeof m && m.magic == TTI_CONTROL_NEEDED)
            s->n_needed = (int)TTI_MIN(TTI_MAX(m.step, UINT64_C(1)), (uint64_t)s->n_needed);
        else if (n == (ssize_t)sizeof m && m.magic == TTI_CONTROL_FAILED)
            note_words(w, &m);
        else if (n == (ssize_t)sizeof m && m.magic == TTI_CONTROL_EXCLUDED)
            note_words(w, &m), w->is_excluded = true;
        else if (n == (ssize_t)sizeof m && m.magic == TTI_CONTROL_READY)
            note_ready(w);
        else if (n == (ssize_t)sizeof m && m.magic == TTI_CONTROL_TRAINS)
            w->trains = true;
        else if (n == 0)
            tti_supervisor_close(&w->control);
        else if (n < 0)
            return;
    }
}

static void read_controls(tti_supervisor *s) {
    for (int r = 0; r < s->n_slots; r++) read_control(s, &s->workers[r]);
}

/* True if the run needs the worker.  Reads pending messages first, because the worker may have sent
 * one just before it ended. */
static bool is_needed(tti_supervisor *s, int rank) {
    if (rank < s->n_needed && s->failed_ns == INT64_MAX) read_controls(s);
    return rank < s->n_needed;
}

/* ---- events of a worker ---- */

/* Records a failure.  On the first failure notifies the other workers and gives them time to
 * end. */
static void note_cause(tti_supervisor *s, int rank, const siginfo_t *info, tti_severity severity) {
    bool first = s->failed_ns == INT64_MAX;
    bool better =
        severity > s->severity && (s->severity == TTI_VICTIM || s->cause_batch == s->batch);
    if (!first && !better) return;
    s->severity = severity;
    s->cause_batch = s->batch;
    tti_supervisor_report *report = &s->report;
    tti_cause_fill(info, rank, report);
    tti_cause_name_killer(report, s->oom_kills[0], tti_cause_oom_kills());
    if (s->desc->describe) {
        tti_str more = {0};
        s->desc->describe(s->desc->user, rank, &more);
        size_t n = strlen(report->text);
        strncat(report->text, tti_str_text(&more), sizeof report->text - 1 - n);
        tti_str_free(&more);
    }
    if (!first) return;
    tti_members_dismiss(s);
    s->failed_ns = report->noticed_ns = tti_now_ns();
    if (s->desc->on_failure) s->desc->on_failure(s->desc->user, rank, report->text);
}

void tti_supervisor_fail(tti_supervisor *s, const char *text) {
    if (s->failed_ns != INT64_MAX) return;
    s->severity = TTI_VICTIM;
    s->report.exit_code = tutti_status_exit_code(TUTTI_E_PEER);
    snprintf(s->report.text, sizeof s->report.text, "%s", text);
    tti_members_dismiss(s);
    s->failed_ns = s->report.noticed_ns = tti_now_ns();
    if (s->desc->on_failure) s->desc->on_failure(s->desc->user, -1, text);
}

/* Records that the other workers continue without this one, and reports its failure once. */
static void note_leave(tti_supervisor *s, int rank, const siginfo_t *info) {
    tti_supervisor_report end = {0};
    if (s->workers[rank].is_left) return;
    s->workers[rank].is_left = true;
    tti_cause_fill(info, rank, &end);
    if (s->desc->on_leave) s->desc->on_leave(s->desc->user, end.text);
}

/* True if a signal of the supervisor ended the worker. */
static bool was_our_signal(const tti_supervisor *s, const siginfo_t *info) {
    if (info->si_code == CLD_EXITED || info->si_code == CLD_STOPPED) return false;
    int sig = info->si_status;
    return (sig == SIGKILL && s->kill_sent) || (sig == SIGTERM && s->term_sent) ||
           (sig == s->forwarded && sig != 0);
}

/* Handles a worker that the stop signal ended before it connected: breaks the communicator, so that
 * the others do not wait for it until the timeout. */
static void leave_without(tti_supervisor *s, int rank, const siginfo_t *info) {
    char text[128];
    if (s->was_left) return;
    s->was_left = true;
    snprintf(text, sizeof text, "stopped by signal %d (%s) before rank %d (pid %d) was ready",
             info->si_status, strsignal(info->si_status), rank, (int)info->si_pid);
    if (s->desc->on_failure) s->desc->on_failure(s->desc->user, rank, text);
}

static void note_end(tti_supervisor *s, int rank, const siginfo_t *info) {
    tti_severity severity = tti_cause_severity(info);
    bool by_us = was_our_signal(s, info);
    int code = by_us ? 128 + info->si_status : info->si_status;
    bool is_stopping = s->was_left || s->stop_exit_code != 0;
    if (s->workers[rank].joins && tti_members_are_final(s)) return;
    s->is_done |= severity == TTI_FINE;
    if (by_us || (is_stopping && severity == TTI_VICTIM)) severity = TTI_ORDERLY;
    if (severity == TTI_KILLED && !is_needed(s, rank)) {
        note_leave(s, rank, info);
        return;
    }
    /* A worker that fails before it is a member does not affect the others. */
    bool is_lost = severity == TTI_KILLED || tti_cause_is_device(info) ||
                   (severity >= TTI_VICTIM && s->workers[rank].joins);
    if (is_lost && tti_members_may_lose(s, rank)) {
        read_control(s, &s->workers[rank]); /* it may have reported the reason */
        tti_members_lose(s, rank, info);
        return;
    }
    if (severity >= TTI_VICTIM) note_cause(s, rank, info, severity);
    if (severity != TTI_ORDERLY || s->failed_ns != INT64_MAX || s->kill_sent) return;
    s->report.stopped_by_user = true;
    if (s->stop_exit_code == 0) s->stop_exit_code = code;
    s->is_done = true;
    forward(s, SIGTERM); /* stop the others too */
    if (by_us) leave_without(s, rank, info);
}

/* Kills the group, then reaps its leader: the zombie reserves the number of the group until
 * then. */
static void reap(tti_supervisor *s, int rank, const siginfo_t *info) {
    tti_supervised *w = &s->workers[rank];
    siginfo_t ignored;
    kill(-w->pid, SIGKILL);
    waitid(P_PID, (id_t)w->pid, &ignored, WEXITED | WNOHANG);
    w->alive = false;
    s->n_alive--;
    tti_supervisor_close(&w->pidfd);
    note_end(s, rank, info);
    if (s->desc->on_gone) s->desc->on_gone(s->desc->user, rank);
}

/* Records a stop.  It is no failure yet, because all processes of a job, including this one, may be
 * stopped for a while and continue in any order. */
static void note_stop(tti_supervisor *s, int rank, const siginfo_t *info) {
    tti_supervised *w = &s->workers[rank];
    if (s->desc->resume_stopped) {
        tti_supervisor_signal(w, SIGCONT);
        return;
    }
    w->is_stopped = true;
    w->stop = *info;
    w->patience = tti_patience_begin(tti_now_ns());
    w->stopped_ns = 0;
}

/* Kills a worker that stays stopped, because it holds its current work. */
static void look_at_stopped(tti_supervisor *s, int rank) {
    tti_supervised *w = &s->workers[rank];
    if (!w->alive || !w->is_stopped) return;
    w->is_stopped = tti_process_state(w->pid) == 'T';
    w->stopped_ns += tti_patience_look(&w->patience, tti_now_ns());
    if (!w->is_stopped || w->stopped_ns < s->most_stopped_ns) return;
    w->is_stopped = false;
    if (!is_needed(s, rank))
        note_leave(s, rank, &w->stop);
    else if (!tti_members_may_lose(s, rank)) /* otherwise its death is handled like any other */
        note_cause(s, rank, &w->stop, TTI_KILLED);
    tti_supervisor_signal(w, SIGKILL);
}

static void look_at(tti_supervisor *s, int rank) {
    tti_supervised *w = &s->workers[rank];
    siginfo_t info = {0};
    if (!w->alive) return;
    (void)TTI_FAULT_AT("supervisor.look", rank, -1);
    if (TTI_FAULT_AT("supervisor.unkillable", rank, -1)) return;
    int failed = waitid(P_PID, (id_t)w->pid, &info, WEXITED | WNOHANG | WNOWAIT);
    if (failed &&
        errno == ECHILD) { /* another part of the program has reaped it, so the exit code is lost */
        info = (siginfo_t){.si_code = CLD_EXITED};
        info.si_pid = w->pid;
        info.si_status = 1;
    }
    if (info.si_pid == w->pid) {
        reap(s, rank, &info);
        return;
    }
    info = (siginfo_t){0};
    if (waitid(P_PID, (id_t)w->pid, &info, WSTOPPED | WNOHANG) == 0 && info.si_pid == w->pid)
        note_stop(s, rank, &info);
}

static void look_at_all(tti_supervisor *s) {
    s->batch++;
    for (int r = 0; r < s->n_slots; r++) look_at(s, r);
    if (s->n_alive == 0 && s->report.gone_ns == 0) s->report.gone_ns = tti_now_ns();
}

/* ---- signals of the user ---- */

static void note_user(tti_supervisor *s, int sig) {
    (void)TTI_FAULT("supervisor.signal");
    int64_t now_ns = tti_now_ns();
    s->report.stopped_by_user = true;
    if (s->stop_ns == INT64_MAX) {
        int sent = sig == SIGHUP ? SIGTERM : sig;
        /* Without members, no worker of this host would return the code of a stopped run. */
        bool is_idle = s->desc->hosts && s->host.epoch > 0 && tti_members_count(s) == 0;
        if (is_idle && !s->is_done && s->stop_exit_code == 0) s->stop_exit_code = 128 + sent;
        s->stop_ns = now_ns;
        forward(s, sent);
    } else if (now_ns - s->stop_ns >= DOUBLE_MS * TTI_NS_PER_MS && !s->kill_sent) {
        s->user_kill = sig;
        kill_all(s);
    }
}

/* Returns true if a child changed. */
static bool read_signals(tti_supervisor *s) {
    struct signalfd_siginfo info;
    bool child = false;
    while (read(s->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGCHLD) child = true;
        if (info.ssi_signo == SIGUSR1) s->n_more++;
        if (info.ssi_signo == SIGUSR2) s->n_more--;
        if (info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM || info.ssi_signo == SIGHUP)
            note_user(s, (int)info.ssi_signo);
    }
    return child;
}

/* ---- start ---- */

/* Starts a worker with one end of the control socket, which it inherits by number. */
static tutti_status start_worker(tti_supervisor *s, int rank, tti_spawn_desc *spawn,
                                 tti_spawn_fd *fds) {
    tti_supervised *w = &s->workers[rank];
    int ends[2], out[TTI_N_OUTPUTS];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
        return tti_fail(TUTTI_E_IO, "launch: cannot create a socket for rank %d: %s", rank,
                        strerror(errno));
    w->control = ends[0];
    tutti_status st = tti_relay_open(s->relay, rank, out);
    if (st == TUTTI_OK) {
        fds[0] = (tti_spawn_fd){"TUTTI_CONTROL_FD", ends[1]};
        spawn->rank =
            TTI_MIN(rank, spawn->n_ranks - 1); /* joining workers get another rank later */
        spawn->out_fd = out[TTI_STDOUT];
        spawn->err_fd = out[TTI_STDERR] >= 0 ? out[TTI_STDERR] : s->desc->err_fd;
        st = tti_spawn(spawn, &w->pid);
        for (int o = 0; o < TTI_N_OUTPUTS; o++) tti_supervisor_close(&out[o]);
    }
    close(ends[1]);
    if (st != TUTTI_OK) return st;
    w->alive = true;
    s->n_alive++;
    w->pidfd = (int)syscall(SYS_pidfd_open, w->pid, 0);
    return TUTTI_OK;
}

tutti_status tti_supervisor_start(tti_supervisor *s, int rank, bool joins) {
    const tti_supervisor_desc *desc = s->desc;
    tti_spawn_fd *fds = calloc((size_t)desc->n_fds + 1, sizeof *fds);
    if (!fds) return tti_fail(TUTTI_E_NOMEM, "launch: out of memory");
    for (int i = 0; i < desc->n_fds; i++) fds[i + 1] = desc->fds[i];
    tti_spawn_desc spawn = {.argv = desc->argv,
                            .n_ranks = desc->n_workers,
                            .place = desc->hosts ? tti_hosts_place(desc->hosts) : NULL,
                            .restart = desc->restart,
                            .joins = joins ? rank + 1 : 0,
                            .fds = fds,
                            .n_fds = desc->n_fds + 1,
                            .signal_mask = s->worker_mask};
    s->workers[rank].started_ns = tti_now_ns();
    s->workers[rank].ready_ns = 0;
    s->workers[rank].trains = false;
    tutti_status st = start_worker(s, rank, &spawn, fds);
    free(fds);
    return st;
}

static tutti_status start_workers(tti_supervisor *s, const sigset_t *worker_mask) {
    const tti_supervisor_desc *desc = s->desc;
    int n = desc->n_workers, n_spares = desc->min_workers > 0 ? desc->n_spares : 0;
    tutti_status st = TUTTI_OK;
    s->worker_mask = worker_mask;
    s->changes =
        desc->hosts != NULL; /* on several hosts the first epoch begins when all hosts are ready */
    s->changes_ns = INT64_MAX;
    TTI_TRY(tti_host_members_begin(s));
    for (int r = 0; r < n + n_spares && st == TUTTI_OK; r++) {
        s->workers[r].joins = r >= n;
        st = tti_supervisor_start(s, r, r >= n);
        s->workers[r].seniority = s->n_joined = (uint64_t)r;
        if (r < n) s->workers[r].place = r;
    }
    return st;
}

/* ---- the loop ---- */

static int64_t next_deadline_ns(const tti_supervisor *s) {
    int64_t next = tti_now_ns() + LOOK_EVERY_MS * TTI_NS_PER_MS;
    next = TTI_MIN(next, tti_relay_deadline_ns(s->relay));
    if (s->desc->on_look) next = TTI_MIN(next, s->looked_ns + s->desc->look_ms * TTI_NS_PER_MS);
    for (int r = 0; r < s->n_slots; r++) {
        const tti_supervised *w = &s->workers[r];
        next = TTI_MIN(next, w->respawn_ns);
        if (w->alive && w->is_stopped)
            next = TTI_MIN(next, tti_now_ns() + STOP_LOOK_MS * TTI_NS_PER_MS);
    }
    if (s->desc->min_workers > 0)
        next = TTI_MIN(next, tti_now_ns() + WANTED_EVERY_MS * TTI_NS_PER_MS);
    if (s->kill_sent) next = TTI_MIN(next, s->kill_ns + s->give_up_ns);
    if (s->failed_ns == INT64_MAX) return next;
    if (!s->term_sent) next = TTI_MIN(next, s->failed_ns + s->grace_ns / 4);
    if (!s->kill_sent) next = TTI_MIN(next, s->failed_ns + s->grace_ns);
    return next;
}

static void wind_down(tti_supervisor *s) {
    if (s->failed_ns == INT64_MAX) return;
    int64_t since_ns = tti_now_ns() - s->failed_ns;
    if (since_ns >= s->grace_ns / 4 && !s->term_sent) {
        s->term_sent = true;
        signal_all(s, SIGTERM);
    }
    if (since_ns >= s->grace_ns) kill_all(s);
}

/* Abandons workers that SIGKILL did not end, because they are in a frozen cgroup or wait for a
 * device (state D). */
static void abandon_workers(tti_supervisor *s) {
    if (!s->kill_sent || tti_now_ns() - s->kill_ns < s->give_up_ns) return;
    look_at_all(s);
    for (int r = 0; r < s->n_slots; r++) {
        tti_supervised *w = &s->workers[r];
        if (!w->alive) continue;
        size_t n = strlen(s->report.text);
        int state = tti_process_state(w->pid);
        snprintf(
            s->report.text + n, sizeof s->report.text - n,
            "%srank %d (pid %d, state %c) has not ended %lld ms after SIGKILL and was abandoned",
            n ? "; " : "", r, (int)w->pid, state ? state : '?',
            (long long)(s->give_up_ns / TTI_NS_PER_MS));
        w->alive = false;
        s->n_alive--;
        s->report.n_left++;
        tti_supervisor_close(&w->pidfd);
    }
    if (s->report.gone_ns == 0) s->report.gone_ns = tti_now_ns();
}

/* Waits for an event; true if a worker may have died. */
static bool wait_for_event(tti_supervisor *s) {
    int n = 0, n_pidfds = 0;
    s->fds[n++] = (struct pollfd){.fd = s->signal_fd, .events = POLLIN};
    for (int r = 0; r < s->n_slots; r++)
        if (s->workers[r].alive && s->workers[r].pidfd >= 0)
            s->fds[n++] = (struct pollfd){.fd = s->workers[r].pidfd, .events = POLLIN};
    n_pidfds = n - 1;
    for (int r = 0; r < s->n_slots; r++)
        if (s->workers[r].control >= 0)
            s->fds[n++] = (struct pollfd){.fd = s->workers[r].control, .events = POLLIN};
    n += tti_relay_poll_fds(s->relay, s->fds + n);
    if (s->desc->hosts) n += tti_hosts_poll_fds(s->desc->hosts, s->fds + n);
    int n_ready = poll(s->fds, (nfds_t)n, tti_ms_until(next_deadline_ns(s)));
    bool ended = n_ready == 0;
    for (int i = 1; i <= n_pidfds && n_ready > 0; i++) ended |= s->fds[i].revents != 0;
    return ended;
}

/* Keeps recent counts of OOM kills, so that only a kill in the last seconds explains the death
 * of a worker: in a run of days other processes may run out of memory long before a user kills a
 * worker. */
static void count_oom_kills(tti_supervisor *s) {
    if (tti_now_ns() - s->oom_ns < OOM_EVERY_MS * TTI_NS_PER_MS) return;
    s->oom_kills[0] = s->oom_kills[1];
    s->oom_kills[1] = tti_cause_oom_kills();
    s->oom_ns = tti_now_ns();
}

static void call_look(tti_supervisor *s) {
    int64_t now = tti_now_ns();
    if (!s->desc->on_look || now - s->looked_ns < s->desc->look_ms * TTI_NS_PER_MS) return;
    s->looked_ns = now;
    s->desc->on_look(s->desc->user);
}

static void run_to_the_end(tti_supervisor *s) {
    while (s->n_alive > 0 || tti_host_members_wait(s)) {
        bool look = wait_for_event(s);
        look |= read_signals(s);
        read_controls(s);
        if (look) look_at_all(s);
        count_oom_kills(s);
        call_look(s);
        for (int r = 0; r < s->n_slots; r++) look_at_stopped(s, r);
        tti_members_scale(s);
        tti_members_respawn(s);
        tti_members_change(s);
        tti_relay_move(s->relay);
        wind_down(s);
        abandon_workers(s);
    }
    tti_host_members_end(s);
    read_controls(s);
    tti_relay_finish(s->relay, DRAIN_MS);
}

/* A worker that timed out is not the cause: reports its own message, which names the worker that it
 * waited for. */
static void name_awaited_rank(tti_supervisor_report *report) {
    char rest[160] = "";
    if (report->worker_code != tutti_status_exit_code(TUTTI_E_TIMEOUT) || !report->reported.any)
        return;
    const char *left = report->n_left ? strstr(report->text, "; rank ") : NULL;
    if (left) snprintf(rest, sizeof rest, "%s", left);
    snprintf(report->text, sizeof report->text, "rank %d (pid %d) exited with code %d: %s%s",
             report->rank, (int)report->pid, report->worker_code, report->reported.words, rest);
}

static void finish_report(tti_supervisor *s) {
    if (s->report.rank >= 0) s->report.reported = s->workers[s->report.rank].reported;
    name_awaited_rank(&s->report);
    if (s->failed_ns == INT64_MAX) s->report.exit_code = s->stop_exit_code;
    /* No worker failed by itself: one that could not stop in order ended the others. */
    else if (s->severity == TTI_VICTIM && s->stop_ns != INT64_MAX)
        s->report.exit_code = 128 + s->forwarded;
    /* A worker that got the stop from its peers before its own SIGINT exits as after a SIGTERM. */
    if (s->report.exit_code == 128 + SIGTERM && s->stop_ns != INT64_MAX)
        s->report.exit_code = 128 + s->forwarded;
    if (s->user_kill) s->report.exit_code = 128 + s->user_kill;
}

static tutti_status supervise(tti_supervisor *s, const sigset_t *blocked,
                              const sigset_t *old_mask) {
    const tti_supervisor_desc *desc = s->desc;
    s->n_target = s->n_slots = desc->n_workers;
    if (desc->min_workers > 0)
        s->n_slots = TTI_MAX(desc->n_workers, desc->max_workers) + desc->n_spares;
    size_t n = (size_t)s->n_slots;
    tti_relay_desc relay = {s->n_slots, {desc->out_fd, desc->err_fd}, desc->log_dir};
    tutti_status st = TUTTI_OK;
    s->workers = calloc(n, sizeof *s->workers);
    size_t n_host_fds = desc->hosts ? (size_t)tti_hosts_most_fds(desc->hosts) : 0;
    s->fds = calloc(4 * n + 3 + n_host_fds, sizeof *s->fds);
    if (!s->workers || !s->fds) return tti_fail(TUTTI_E_NOMEM, "launch: out of memory");
    for (size_t r = 0; r < n; r++)
        s->workers[r] =
            (tti_supervised){.pidfd = -1, .control = -1, .place = -1, .respawn_ns = INT64_MAX};
    s->signal_fd = signalfd(-1, blocked, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->signal_fd < 0) return tti_fail(TUTTI_E_IO, "launch: signalfd: %s", strerror(errno));
    TTI_TRY(tti_relay_create(&relay, &s->relay));
    st = start_workers(s, old_mask);
    if (st != TUTTI_OK) kill_all(s);
    run_to_the_end(s);
    finish_report(s);
    return st;
}

static void free_supervisor(tti_supervisor *s) {
    for (int r = 0; s->workers && r < s->n_slots; r++) {
        tti_supervisor_close(&s->workers[r].pidfd);
        tti_supervisor_close(&s->workers[r].control);
    }
    tti_supervisor_close(&s->signal_fd);
    tti_relay_destroy(s->relay);
    free(s->workers);
    free(s->fds);
    free(s->host.numbers);
    free(s->host.file_text);
}

static tutti_status check(const tti_supervisor_desc *desc) {
    if (desc->n_workers < 1 || desc->n_workers > MAX_WORKERS)
        return tti_fail(TUTTI_E_INVALID, "launch: %d workers: expected 1 to %d", desc->n_workers,
                        MAX_WORKERS);
    if (!desc->argv || !desc->argv[0] || !*desc->argv[0])
        return tti_fail(TUTTI_E_INVALID, "launch: there is no program to run");
    if (desc->grace_ms < 0)
        return tti_fail(TUTTI_E_INVALID, "launch: the grace period is %d ms; it must be at least 0",
                        desc->grace_ms);
    return TUTTI_OK;
}

tutti_status tti_supervisor_run(const tti_supervisor_desc *desc, tti_supervisor_report *out) {
    TTI_TRY(check(desc));
    tti_supervisor s = {.desc = desc,
                        .oom_ns = tti_now_ns(),
                        .report = {.rank = -1, .worker_code = -1},
                        .signal_fd = -1,
                        .n_needed = MAX_WORKERS,
                        .failed_ns = INT64_MAX,
                        .stop_ns = INT64_MAX};
    s.oom_kills[0] = s.oom_kills[1] = tti_cause_oom_kills();
    s.grace_ns = (desc->grace_ms ? desc->grace_ms : DEFAULT_GRACE_MS) * TTI_NS_PER_MS;
    s.most_stopped_ns = (desc->stopped_ms ? desc->stopped_ms : DEFAULT_STOPPED_MS) * TTI_NS_PER_MS;
    s.give_up_ns = (desc->give_up_ms ? desc->give_up_ms : DEFAULT_GIVE_UP_MS) * TTI_NS_PER_MS;
    tti_taken_signals taken;
    tti_signals_take(&taken, desc->min_workers > 0);
    tutti_status st = supervise(&s, &taken.blocked, &taken.old_mask);
    free_supervisor(&s);
    tti_signals_restore(&taken, s.report.stopped_by_user);
    if (st == TUTTI_OK) *out = s.report;
    return st;
}
