/* supervisor.h - starts N worker processes, watches them, and ends them all when one fails.
 *
 * Guarantees: a death or a stop (SIGSTOP) is noticed at once, without polling intervals; the first
 * cause is reported, not its victims; after a failure no worker is alive after grace_ms; when the
 * supervisor itself is killed, workers that called tti_worker_init die with it.
 *
 * A worker that stays stopped for half a second is a failure; a shorter stop is not.  A worker that
 * SIGKILL does not end is abandoned after give_up_ms, and named.
 *
 * After a failure, at time 0 on_failure is called (it breaks the communicator, so that workers can
 * report what they were doing and leave), at grace_ms/4 the rest get SIGTERM, at grace_ms SIGKILL.
 * A worker that leaves with 5, peer lost, is a victim: a better cause in that time replaces it.  A
 * worker that is ended or stopped by a signal is not a failure if rank 0 has reported that the
 * others continue without it (tti_worker_report_needed): on_leave is called, and a stopped one is
 * killed, since it holds on to its current work.
 *
 * SIGINT, SIGTERM and SIGHUP are forwarded once (SIGHUP as SIGTERM), for a stop at a step boundary;
 * a second one, at least 100 ms later, kills at once; signals that were ignored before (nohup) stay
 * ignored.  A worker that leaves with 75, 130 or 143 stops in an orderly way, and the others are
 * asked to stop too.  If the signal ends a worker before it has installed its handler, on_failure
 * is called for it, and workers that leave as its victims count as stopped in an orderly way.
 *
 * Elastic runs (min_workers > 0): if a signal ends or stops a worker and at least min_workers are
 * left, membership changes: on_failure breaks the communicator, the others report that they are
 * ready (tti_worker_next_epoch), and get the group that new_group makes and their ranks in it.  The
 * dead worker is started again after a pause that doubles, up to n_respawns times in all; once it
 * is ready, membership changes again.  Ranks follow seniority, so that rank 0 changes only if its
 * worker dies.  A worker that is ready and finds all places taken waits as a spare, and takes the
 * place of the next member that is lost.
 *
 * SIGUSR1 asks for one worker more, SIGUSR2 for one less, within the limits.
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
    int n_workers;     /* at the start, 1 .. 4096 */
    char *const *argv; /* NULL-terminated */
    int restart;       /* passed to the workers */
    int grace_ms;      /* 0: 1000 */
    int give_up_ms;    /* after SIGKILL, for a worker that the kernel does not end; 0: 10000 */
    int stopped_ms;    /* after this time a stopped worker has failed; 0: 500 */
    int out_fd, err_fd;
    const char *log_dir;     /* NULL: no logs */
    const tti_spawn_fd *fds; /* inherited by every worker */
    int n_fds;
    bool resume_stopped; /* SIGCONT for a stopped worker instead of failing */
    int min_workers;     /* 0: the workers stay the same, or all end */
    int max_workers;     /* with min_workers; less than n_workers: n_workers */
    int n_spares;        /* with min_workers: workers that wait for a place, in addition */
    int n_per_replica;   /* with min_workers: members are a multiple of it; 0: 1 */
    int n_respawns;      /* with min_workers */
    /* How many workers a user asks for since the last call, up to max_workers; 0: nothing new.
     * With min_workers. */
    int (*wanted)(void *user);

    /* The first failure, when it is noticed, or the first worker that a forwarded signal ended;
     * text is one line.  May be NULL. */
    void (*on_failure)(void *user, int rank, const char *text);
    /* Adds the last action of the rank, such as ", last call: all_reduce".  May be NULL. */
    void (*describe)(void *user, int rank, tti_str *text);
    /* A worker without which the others continue was ended or stopped by a signal; text is one
     * line. May be NULL. */
    void (*on_leave)(void *user, const char *text);
    /* The process of a worker has ended, and its end has been judged.  May be NULL. */
    void (*on_gone)(void *user, int rank);
    /* Makes the group of an epoch of n_ranks ranks in place of the former one; its descriptor,
     * which stays the callee's, or -1 with the text set.  With min_workers. */
    int (*new_group)(void *user, int n_here, int n_ranks);
    /* On several hosts, after new_group, when all members of the epoch train.  May be NULL. */
    void (*on_training)(void *user);
    /* On several hosts, before each epoch that this host begins.  May be NULL. */
    void (*on_lead)(void *user);
    /* Called at least every look_ms.  May be NULL. */
    void (*on_look)(void *user);
    int look_ms;
    void *user;
    struct tti_hosts *hosts; /* the run has workers on other hosts; with min_workers.  NULL: no */
    const char *host_file;   /* with hosts: how many workers each should have; NULL: none */
} tti_supervisor_desc;

/* A worker's report of its failure (tti_worker_report_failure). */
typedef struct tti_reported_failure {
    bool any;
    uint64_t step;
    char words[TTI_WORDS_BYTES];
} tti_reported_failure;

typedef struct tti_supervisor_report {
    int exit_code;        /* of the whole, see above */
    int rank;             /* of the first cause; -1: none */
    pid_t pid;            /* its process */
    int worker_code;      /* its exit code, -1 if it has none */
    int worker_signal;    /* what killed or stopped it, 0: nothing did */
    int n_left;           /* workers that SIGKILL did not end; text names them */
    bool stopped_by_user; /* by a signal, or a worker that stopped in order; failed or not */
    int64_t noticed_ns;   /* tti_now_ns when the first cause was seen, 0: none */
    int64_t gone_ns;      /* tti_now_ns when no worker was left */
    uint64_t last_step;   /* highest step reported by tti_worker_report_step */
    tti_reported_failure reported; /* by the rank of the first cause */
    char text[512]; /* "rank 2 (pid 71) was killed by signal 9 (Killed)"; "" without cause */
} tti_supervisor_report;

/* Runs the workers until all have ended.  Call from the main thread: workers die with the thread
 * that started them.  During the call SIGINT, SIGTERM, SIGHUP (unless ignored), SIGCHLD and SIGPIPE
 * are blocked on the calling thread; if the process has other threads, they must block them too.
 * TUTTI_OK: they ran, *out says how it ended.  Otherwise no worker is left running: TUTTI_E_IO (a
 * program that cannot be run, no log folder), TUTTI_E_INVALID, TUTTI_E_NOMEM. */
TUTTI_NODISCARD tutti_status tti_supervisor_run(const tti_supervisor_desc *desc,
                                                tti_supervisor_report *out);

#endif /* TTI_LAUNCH_SUPERVISOR_H */
