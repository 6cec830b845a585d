/* launch.c - the public calls: one communicator group and one supervisor per start, with restarts.
 *
 * Each start of the workers gets a new group, because a broken group stays broken.  A start has
 * made progress if a higher step was committed; three starts without progress are a crash loop.  A
 * failure caused by job, data or parameters recurs in every start, so its second occurrence ends
 * the run. */
#include "tutti/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/fault.h"
#include "comm/progress.h"
#include "launch/cause.h"
#include "launch/host_file.h"
#include "launch/hosts.h"
#include "launch/live.h"
#include "launch/rendezvous.h"
#include "launch/supervised.h"
#include "launch/supervisor.h"
#include "launch/watch.h"
#include "launch/worker_env.h"

enum { MAX_IDLE_STARTS = 3, BACK_OFF_MS = 100, EXIT_DO_NOT_REQUEUE = 93 };

/* The context of a supervisor's callbacks. */
typedef struct start {
    const tutti_launch_desc *desc;
    tutti_comm_group *group; /* group of the current epoch */
    tti_flight_memory *flight;
    tti_watch *watch;
    int comm_fd; /* descriptor of the current group; its number never changes */
    tti_host_file slots;
    int mirror_fd;     /* mirror memory for the workers of an elastic run, empty at first */
    int n_here;        /* members of the current group on this host */
    int n_members;     /* members of the current group on all hosts */
    bool has_changed;  /* the current group is not the first one */
    bool is_live;      /* RUN/live names this process */
    bool is_live_host; /* RUN/live-host-K names this process too */
    tti_hosts *hosts;  /* set if the run has workers on other hosts; NULL: one host */
    int alive_fd;      /* on several hosts: closing it ends the epoch; -1: closed */
} start;

static void end_host_epoch(start *s) {
    if (s->alive_fd >= 0) close(s->alive_fd);
    s->alive_fd = -1;
}

/* Begins an epoch on several hosts.  The supervisor creates no group for it, only a pipe that hangs
 * up when the epoch ends. */
static int begin_host_epoch(start *s) {
    int ends[2];
    end_host_epoch(s);
    if (pipe2(ends, O_CLOEXEC) != 0) return -1;
    s->alive_fd = ends[1];
    int fd = dup3(ends[0], s->comm_fd, O_CLOEXEC);
    close(ends[0]);
    return fd;
}

static void break_group(void *user, int rank, const char *text) {
    start *s = user;
    tti_flight_set_members(s->flight, 0, 0);
    end_host_epoch(s);
    if (s->group) tutti_comm_group_abort(s->group, rank, text);
}

static int new_group(void *user, int n_here, int n_ranks) {
    start *s = user;
    s->n_here = n_here;
    s->n_members = n_ranks;
    /* This memory does not show whether workers on other hosts train. */
    if (!s->hosts) tti_flight_set_members(s->flight, n_here, n_ranks);
    tutti_comm_group_destroy(s->group);
    s->group = NULL;
    s->has_changed = true;
    if (s->hosts) return begin_host_epoch(s);
    if (tutti_comm_group_create(n_ranks, &s->group) != TUTTI_OK) return -1;
    return dup3(tutti_comm_group_fd(s->group), s->comm_fd, O_CLOEXEC);
}

static void note_training(void *user) {
    const start *s = user;
    tti_flight_set_members(s->flight, s->n_here, s->n_members);
}

static void forget_rank(void *user, int rank) {
    const start *s = user;
    tti_flight_forget(tti_flight_of(s->flight, rank));
}

static void report_leave(void *user, const char *text) {
    const start *s = user;
    if (s->desc->on_leave) s->desc->on_leave(s->desc->user, text);
}

/* Appends ", 12 ms in all_reduce(...), call 7, step 40 backward". */
static void describe_rank(void *user, int rank, tti_str *text) {
    const start *s = user;
    tti_progress p;
    /* After a change of membership, ranks of the group differ from those of the processes. */
    if (!s->group || s->has_changed) return;
    if (tti_comm_group_progress(s->group, rank, &p) != TUTTI_OK || !p.joined) return;
    if (p.step > 0 || p.phase[0])
        tti_str_printf(text, ", step %llu %s", (unsigned long long)p.step, p.phase);
    if (p.n_calls == 0) return;
    tti_str_printf(text, ", %s %s, call %llu", p.in_call ? "in" : "after", p.call,
                   (unsigned long long)p.n_calls);
}

static void report_hang(void *user, const char *text) {
    const start *s = user;
    if (s->desc->on_hang) s->desc->on_hang(s->desc->user, text);
}

static void look(void *user) {
    const start *s = user;
    tti_watch_look(s->watch);
}

static tutti_status write_live(start *s) {
    if (!s->desc->run_dir || s->is_live) return TUTTI_OK;
    s->is_live = true;
    return tti_live_write(s->desc->run_dir, -1, s->flight);
}

static tutti_status write_live_of_host(start *s) {
    int node = tti_hosts_place(s->hosts)->node;
    if (!s->desc->run_dir) return TUTTI_OK;
    s->is_live_host = true;
    return tti_live_write(s->desc->run_dir, node, s->flight);
}

/* Called when this host becomes the leader: makes tutti ps and tutti scale find the run here. */
static void take_lead(void *user) {
    start *s = user;
    if (write_live(s) != TUTTI_OK) report_leave(s, tutti_last_error());
}

/* Publishes the range of workers, of all hosts together, that a user may request. */
static void set_range(start *s, int most) {
    int n = s->hosts ? tti_hosts_place(s->hosts)->n_all : s->desc->n_workers;
    tti_flight_set_range(s->flight, s->desc->min_workers, TTI_MAX(most, n),
                         s->desc->workers_per_replica);
    if (!s->hosts) tti_flight_set_members(s->flight, n, n);
}

/* Opens the flight recorder of all ranks, publishes it for tutti ps, and starts its watcher. */
static tutti_status open_watch(start *s) {
    s->comm_fd = fcntl(tutti_comm_group_fd(s->group), F_DUPFD_CLOEXEC, 0);
    if (s->comm_fd < 0) return tti_fail(TUTTI_E_IO, "launch: %s", strerror(errno));
    const tutti_launch_desc *desc = s->desc;
    int most = TTI_MAX(desc->n_workers, desc->max_workers);
    bool is_elastic = desc->min_workers > 0;
    TTI_TRY(tti_flight_create(is_elastic ? most + desc->spares : desc->n_workers, &s->flight));
    if (is_elastic) set_range(s, most);
    if (is_elastic) s->mirror_fd = memfd_create("tutti-mirror", MFD_CLOEXEC);
    bool leads = !s->hosts || tti_hosts_leader(s->hosts) == tti_hosts_place(s->hosts)->node;
    TTI_TRY(leads ? write_live(s) : write_live_of_host(s));
    return tti_watch_create(&(tti_watch_desc){.memory = s->flight,
                                              .phase_ms = s->desc->slow_phase_ms,
                                              .report = report_hang,
                                              .user = s},
                            &s->watch);
}

static int wanted(void *user) {
    start *s = user;
    const tti_host_file_range may = {s->desc->min_workers,
                                     TTI_MAX(s->desc->n_workers, s->desc->max_workers),
                                     TTI_MAX(s->desc->workers_per_replica, 1)};
    char text[800];
    int n = tti_host_file_workers(&s->slots, &may, text, sizeof text);
    if (text[0]) report_leave(s, text);
    return n > 0 ? n : tti_flight_take_wanted(s->flight);
}

static void close_start(start *s) {
    bool leads = !s->hosts || tti_hosts_leader(s->hosts) == tti_hosts_place(s->hosts)->node;
    if (s->is_live && leads) tti_live_remove(s->desc->run_dir, -1);
    if (s->is_live_host) tti_live_remove(s->desc->run_dir, tti_hosts_place(s->hosts)->node);
    tti_watch_destroy(s->watch);
    tti_flight_close(s->flight);
    end_host_epoch(s);
    if (s->comm_fd >= 0) close(s->comm_fd);
    if (s->mirror_fd >= 0) close(s->mirror_fd);
    tutti_comm_group_destroy(s->group);
}

/* Starts all workers once and waits until all have ended. */
static tutti_status run_once(const tutti_launch_desc *desc, tti_hosts *hosts, int restart,
                             tti_supervisor_report *out) {
    start s = {.desc = desc,
               .comm_fd = -1,
               .mirror_fd = -1,
               .alive_fd = -1,
               .hosts = hosts,
               .slots.path = hosts ? NULL : desc->host_file};
    TTI_TRY(tutti_comm_group_create(desc->n_workers, &s.group));
    tutti_status st = open_watch(&s);
    if (st != TUTTI_OK) {
        close_start(&s);
        return st;
    }
    tti_spawn_fd fds[3] = {{"TUTTI_COMM_FD", s.comm_fd}};
    int n_fds = 1;
    if (tti_flight_fd(s.flight) >= 0)
        fds[n_fds++] = (tti_spawn_fd){"TUTTI_FLIGHT_FD", tti_flight_fd(s.flight)};
    if (s.mirror_fd >= 0) fds[n_fds++] = (tti_spawn_fd){"TUTTI_MIRROR_FD", s.mirror_fd};
    tti_supervisor_desc run = {.n_workers = desc->n_workers,
                               .argv = desc->argv,
                               .restart = restart,
                               .grace_ms = desc->grace_ms,
                               .out_fd = STDOUT_FILENO,
                               .err_fd = STDERR_FILENO,
                               .log_dir = desc->log_dir,
                               .fds = fds,
                               .n_fds = n_fds,
                               .resume_stopped = desc->resume_stopped,
                               .min_workers = desc->min_workers,
                               .max_workers = desc->max_workers,
                               .n_spares = desc->spares,
                               .n_per_replica = desc->workers_per_replica,
                               .n_respawns = desc->max_restarts,
                               .wanted = wanted,
                               .new_group = new_group,
                               .on_training = note_training,
                               .on_lead = take_lead,
                               .on_failure = break_group,
                               .describe = describe_rank,
                               .on_leave = report_leave,
                               .on_gone = forget_rank,
                               .on_look = look,
                               .look_ms = TTI_WATCH_EVERY_MS,
                               .hosts = hosts,
                               .host_file = hosts ? desc->host_file : NULL,
                               .user = &s};
    st = tti_supervisor_run(&run, out);
    close_start(&s);
    return st;
}

/* Do not restart after a wrong configuration, which stays wrong, or after a requested stop. */
static bool may_restart(const tti_supervisor_report *report) {
    return report->exit_code != 0 && report->exit_code != tutti_status_exit_code(TUTTI_E_CONFIG) &&
           !report->stopped_by_user && report->n_left == 0;
}

static void back_off(const tutti_launch_desc *desc, int n_restarts, const char *cause) {
    int t_ms = BACK_OFF_MS << TTI_MIN(n_restarts, 7);
    char text[700];
    snprintf(text, sizeof text, "%s; starting again in %d ms (%d of %d)", cause, t_ms,
             n_restarts + 1, desc->max_restarts);
    if (desc->on_restart) desc->on_restart(desc->user, text);
    if (!TTI_FAULT("launch.back_off")) tti_sleep_ms(t_ms);
}

/* The history of the starts. */
typedef struct attempts {
    uint64_t best_step;            /* highest committed step */
    int n_idle;                    /* number of starts since then */
    tti_reported_failure reported; /* the last failure that would recur */
} attempts;

/* True if another start would fail again.  The first failure may be a memory fault.  If it recurs
 * at the same step for the same reason, its cause is the state from which every start begins, even
 * if a worker was killed in between. */
static bool is_futile(tti_supervisor_report *report, attempts *a) {
    char cause[400];
    const tti_reported_failure before = a->reported, *now = &report->reported;
    int code = report->worker_code;
    bool from_job = now->any && (code == tutti_status_exit_code(TUTTI_E_DATA) ||
                                 code == tutti_status_exit_code(TUTTI_E_NUMERICS) ||
                                 code == tutti_status_exit_code(TUTTI_E_MISMATCH));
    bool again =
        from_job && before.any && before.step == now->step && strcmp(before.words, now->words) == 0;
    if (from_job) a->reported = *now;
    a->n_idle = report->last_step > a->best_step ? 1 : a->n_idle + 1;
    a->best_step = TTI_MAX(a->best_step, report->last_step);
    if (!again && a->n_idle < MAX_IDLE_STARTS) return false;
    snprintf(cause, sizeof cause, "%s", report->text);
    if (again)
        snprintf(report->text, sizeof report->text,
                 "2 starts with the same failure in the same step, the last: rank %d (pid %d) "
                 "exited with code %d: %s",
                 report->rank, (int)report->pid, report->worker_code, report->reported.words);
    else
        snprintf(report->text, sizeof report->text, "%d starts without a new step, the last: %s",
                 a->n_idle, cause);
    report->exit_code = EXIT_DO_NOT_REQUEUE;
    return true;
}

static tutti_status run_with_restarts(const tutti_launch_desc *desc, tti_hosts *hosts,
                                      tti_supervisor_report *report, int *n_restarts) {
    attempts a = {0};
    for (*n_restarts = 0;; ++*n_restarts) {
        TTI_TRY(run_once(desc, hosts, *n_restarts, report));
        if (hosts) return TUTTI_OK; /* a run on several hosts is not restarted here */
        if (!may_restart(report)) return TUTTI_OK;
        if (is_futile(report, &a) || *n_restarts >= desc->max_restarts) return TUTTI_OK;
        back_off(desc, *n_restarts, report->text);
    }
}

tutti_status tti_launch_on_hosts(const tutti_launch_desc *desc, tti_hosts *hosts,
                                 tutti_launch_result *out) {
    if (desc->n_workers < 1 || desc->n_workers > 4096)
        return tti_fail(TUTTI_E_INVALID, "launch: %d workers: expected 1 to 4096", desc->n_workers);
    tti_supervisor_report report;
    tutti_launch_result result = {.rank = -1};
    TTI_TRY(run_with_restarts(desc, hosts, &report, &result.n_restarts));
    result.exit_code = report.exit_code;
    result.rank = report.rank;
    memcpy(result.text, report.text, sizeof result.text);
    /* Logs how the workers ended, even if a full disk keeps the file from being written. */
    if (desc->error_file && report.noticed_ns != 0 &&
        tti_cause_write(&report, desc->error_file) != TUTTI_OK) {
        size_t n = strlen(result.text);
        snprintf(result.text + n, sizeof result.text - n, "; %s", tutti_last_error());
    }
    *out = result;
    return TUTTI_OK;
}

tutti_status tutti_launch(const tutti_launch_desc *desc, tutti_launch_result *out) {
    return tti_launch_on_hosts(desc, NULL, out);
}

/* Returns the inherited descriptor, only if Tutti's launcher started this process and the
 * descriptor is open. */
static int inherited_comm_fd(const tti_worker_env *env) {
    const char *text = getenv("TUTTI_COMM_FD");
    char *end;
    if (strcmp(env->launcher, "tutti") != 0 || !text || !*text) return -1;
    long fd = strtol(text, &end, 10);
    if (*end || fd < 0 || fd > 1 << 20) return -1;
    return fcntl((int)fd, F_GETFD) >= 0 ? (int)fd : -1;
}

tutti_status tutti_worker_detect(tutti_worker_place *out) {
    tti_worker_env env;
    TTI_TRY(tti_worker_env_detect(NULL, NULL, NULL, &env));
    *out = (tutti_worker_place){.rank = env.rank,
                                .n_ranks = env.n_ranks,
                                .local_rank = env.local_rank,
                                .local_n_ranks = env.local_n_ranks,
                                .comm_fd = inherited_comm_fd(&env)};
    memcpy(out->text, env.text, sizeof out->text);
    return TUTTI_OK;
}

/* Joins the supervisor's group, which the communicator then owns. */
static tutti_status join_group(const tutti_worker_place *place, int timeout_ms, tutti_comm **out) {
    tutti_comm_group *group;
    TTI_TRY(tutti_comm_group_open(place->comm_fd, &group));
    tutti_status st = tutti_comm_create(&(tutti_comm_desc){.group = group,
                                                           .rank = place->rank,
                                                           .n_ranks = place->n_ranks,
                                                           .timeout_ms = timeout_ms},
                                        out);
    if (st == TUTTI_OK)
        tti_comm_keep_group(*out, group);
    else
        tutti_comm_group_destroy(group);
    return st;
}

tutti_status tutti_worker_join(int timeout_ms, tutti_comm **out) {
    tutti_worker_place place;
    if (!out) return tti_fail(TUTTI_E_INVALID, "worker_join: out is NULL");
    *out = NULL;
    TTI_TRY(tutti_worker_detect(&place));
    TTI_TRY(tti_worker_init());
    if (place.comm_fd >= 0) return join_group(&place, timeout_ms, out);
    if (place.n_ranks > 1) return tti_rendezvous_join(timeout_ms, 0, out);
    return tutti_comm_create(&(tutti_comm_desc){.n_ranks = 1, .timeout_ms = timeout_ms}, out);
}
