/* supervisor.h - starts N worker processes, watches them, and ends all of them when one fails.
 *
 * Guarantees: it detects a death or a stop (SIGSTOP) at once, without polling; it reports the first
 * cause, not its victims; no worker is alive grace_ms after a failure; if the supervisor itself is
 * killed, workers that called tti_worker_init die with it.
 *
 * A worker that stays stopped for half a second is a failure; a shorter stop is not.  A worker that
 * SIGKILL does not end is abandoned after give_up_ms, and named in the report.
 *
 * After a failure, on_failure is called at once.  It breaks the communicator, so that workers can
 * report their progress and exit.  After grace_ms/4 the remaining workers get SIGTERM, after
 * grace_ms SIGKILL.  A worker that exits with 5, peer lost, is a victim: a better cause within
 * grace_ms replaces it.  A worker that a signal ends or stops is not a failure if rank 0 has
 * reported that the others continue without it (tti_worker_report_needed).  Then on_leave is
 * called, and a stopped worker is killed, because it holds its current work.
 *
 * SIGINT, SIGTERM and SIGHUP are forwarded once (SIGHUP as SIGTERM), for a stop at a step boundary;
 * a second one, at least 100 ms later, kills at once.  Signals that were ignored before (nohup)
 * stay ignored.  A worker that exits with 75, 130 or 143 has stopped in order, and the others are
 * asked to stop too.  If the signal ends a worker before it has installed its handler, on_failure
 * is called for it, and workers that exit as its victims count as stopped in order.
 *
 * Elastic runs (min_workers > 0): if a signal ends or stops a worker and at least min_workers are
 * left, membership changes. on_failure breaks the communicator, the others report that they are
 * ready (tti_worker_next_epoch), and get their ranks in a new group from new_group.  The dead
 * worker is restarted after a pause that doubles, up to n_respawns times in total; once it is
 * ready, membership changes again.  Ranks are assigned by seniority, so rank 0 changes only if its
 * worker dies.  A worker that is ready when all places are taken waits as a spare, and takes the
 * place of the next lost member.
 *
 * SIGUSR1 adds one worker, SIGUSR2 removes one, within the limits.
 *
 * Exit codes: 0 success; the code of the worker that failed first; 5 if it was killed by a signal
 * or stopped; 128+n after a second signal n or when workers ended by the signal n that was
 * forwarded. */
#ifndef TTI_LAUNCH_SUPERVISOR_H
#define TTI_LAUNCH_SUPERVISOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/str.h"
#include "launch/spawn.h"
#include "launch/supervised.h"

typedef struct tti_supervisor_desc {
    int n_workers;     /* workers at the start, 1 .. 4096 */
    char *const *argv; /* NULL-terminated */
    int restart;       /* number of earlier starts, passed to the workers */
    int grace_ms;      /* 0: 1000 */
    int give_up_ms;    /* after SIGKILL, for a worker that the kernel does not end; 0: 10000 */
    int stopped_ms;    /* after this time a stopped worker has failed; 0: 500 */
    int out_fd, err_fd;
    const char *log_dir;     /* NULL: no logs */
    const tti_spawn_fd *fds; /* inherited by every worker */
    int n_fds;
    bool resume_stopped; /* sends SIGCONT to a stopped worker instead of failing */
    int min_workers;     /* 0: not elastic */
    int max_workers;     /* with min_workers; a value below n_workers means n_workers */
    int n_spares;        /* with min_workers: workers that wait for a place, in addition */
    int n_per_replica;   /* with min_workers: the number of members is a multiple of this; 0: 1 */
    int n_respawns;      /* with min_workers: maximum number of restarts of workers */
    /* Returns the number of workers that a user has requested since the last call, up to
     * max_workers; 0: no request.  With min_workers. */
    int (*wanted)(void *user);

    /* Called for the first failure when it is detected, or for the first worker that a forwarded
     * signal ended. text is one line.  May be NULL. */
    void (*on_failure)(void *user, int rank, const char *text);
    /* Appends the last action of the rank, such as ", last call: all_reduce".  May be NULL. */
    void (*describe)(void *user, int rank, tti_str *text);
    /* Called when a signal ended or stopped a worker and the others continue without it. text is
     * one line.  May be NULL. */
    void (*on_leave)(void *user, const char *text);
    /* Called after the process of a worker has ended and the cause was recorded.  May be NULL. */
    void (*on_gone)(void *user, int rank);
    /* Creates the group of an epoch of n_ranks ranks, which replaces the previous group.  Returns
     * its descriptor, owned by the callee, or -1 with the error text set.  With min_workers. */
    int (*new_group)(void *user, int n_here, int n_ranks);
    /* On several hosts: called after new_group, when all members of the epoch train.  May be
     * NULL. */
    void (*on_training)(void *user);
    /* On several hosts: called before each epoch that this host begins.  May be NULL. */
    void (*on_lead)(void *user);
    /* Called at least every look_ms.  May be NULL. */
    void (*on_look)(void *user);
    int look_ms;
    void *user;
    struct tti_hosts
        *hosts; /* set if the run has workers on other hosts; with min_workers. NULL: one host */
    const char
        *host_file; /* with hosts: file with the number of workers of each host; NULL: none */
} tti_supervisor_desc;

/* A worker's report of its failure (tti_worker_report_failure). */
typedef struct tti_reported_failure {
    bool any;
    uint64_t step;
    char words[TTI_WORDS_BYTES];
} tti_reported_failure;

typedef struct tti_supervisor_report {
    int exit_code;        /* exit code of the run, see above */
    int rank;             /* rank of the first cause; -1: none */
    pid_t pid;            /* its process */
    int worker_code;      /* its exit code, -1 if it has none */
    int worker_signal;    /* signal that killed or stopped it, 0: none */
    int n_left;           /* workers that SIGKILL did not end; text names them */
    bool stopped_by_user; /* by a signal, or by a worker that stopped in order; independent of
                             failures */
    int64_t noticed_ns;   /* tti_now_ns when the first cause was detected, 0: none */
    int64_t gone_ns;      /* tti_now_ns when no worker was left */
    uint64_t last_step;   /* highest step reported by tti_worker_report_step */
    tti_reported_failure reported; /* report of the rank of the first cause */
    char text[512]; /* "rank 2 (pid 71) was killed by signal 9 (Killed)"; "" without cause */
} tti_supervisor_report;

/* Runs the workers until all have ended.  Call it from the main thread, because workers die with
 * the thread that started them.  During the call SIGINT, SIGTERM, SIGHUP (unless ignored), SIGCHLD
 * and SIGPIPE are blocked on the calling thread; if the process has other threads, they must block
 * them too.  TUTTI_OK: the workers ran, and *out has the result.  On failure no worker is left
 * running: TUTTI_E_IO (the program cannot be run, or the log folder cannot be written),
 * TUTTI_E_INVALID, TUTTI_E_NOMEM. */
TUTTI_NODISCARD tutti_status tti_supervisor_run(const tti_supervisor_desc *desc,
                                                tti_supervisor_report *out);

#endif /* TTI_LAUNCH_SUPERVISOR_H */
