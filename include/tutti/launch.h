/* launch.h - runs a program as N ranks on this host and watches them.
 *
 * Each worker is a process with RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE in its
 * environment, as torchrun sets them, and TUTTI_COMM_FD: the descriptor of a tutti_comm_group for
 * tutti_comm_group_open.  When a worker fails, the launcher ends the others and reports the first
 * cause.  When the launching process is killed, the workers die too.
 *
 * Output lines of the workers get a prefix "[rank 1] "; equal lines of several ranks are printed
 * once, as "[rank 0-3] ".  If standard error is a terminal, rank 0 writes to it directly, for a
 * progress line that redraws itself.
 *
 * SIGINT, SIGTERM and SIGHUP are forwarded once, so that workers stop at a step boundary; a second
 * one kills them at once.  Ignored signals (nohup) stay ignored.
 *
 * Threads: call from the main thread of a process that has no other threads.
 */
#ifndef TUTTI_LAUNCH_H
#define TUTTI_LAUNCH_H

#include "tutti/comm.h"

TUTTI_EXTERN_C_BEGIN

/* The program to run.  Zero is the default of every field except n_workers and argv.  Not kept. */
typedef struct tutti_launch_desc {
    int n_workers;          /* 1 .. 4096                                                     */
    char *const *argv;      /* NULL-terminated; argv[0] is looked up in PATH                 */
    const char *log_dir;    /* raw output of each worker in log_dir/rank-N.txt; NULL: none   */
    const char *error_file; /* JSON with the first cause, written on failure; NULL: none     */
    int grace_ms;           /* time for workers to end after a failure before they are killed;
                               0: 1000                                                       */
    int max_restarts;       /* restart all workers after a failure up to this many times, from
                               their last checkpoint.  Not after exit code 2, nor when restarts
                               make no progress (93, below)                                  */
    bool resume_stopped;    /* continue a worker that a signal stopped, instead of failing   */

    /* Called with one line of text before the workers are restarted. */
    void (*on_restart)(void *user, const char *text);
    void *user; /* borrowed for the call */

    /* Called with one line of text when a signal ended or stopped a worker that the others continue
     * without (asynchronous and backup workers); a stopped worker is killed.  May be NULL. */
    void (*on_leave)(void *user, const char *text);
} tutti_launch_desc;

/* How it ended. */
typedef struct tutti_launch_result {
    int exit_code;  /* for the launching program: 0; the code of the worker that failed first; 5 if
                       it was killed or stopped by a signal; 93 if restarts made no progress:
                       three starts without a new step, or workers of tutti train that came to
                       the same failure in the same step twice, with exit code 3, 7 or 9; 130 or
                       143 after Ctrl-C or SIGTERM                                            */
    int rank;       /* of the first cause, -1: none                                           */
    int n_restarts; /* made                                                                   */
    char text[512]; /* the first cause in one line, such as
                       "rank 2 (pid 71) was killed by signal 9 (Killed)"; "" if all is well;
                       and why there is no error_file, where it could not be written          */
} tutti_launch_result;

/* Runs the workers to their end.  TUTTI_OK: they ran, and *out says how they ended.  After any
 * other status no worker is running: TUTTI_E_INVALID (n_workers, argv), TUTTI_E_IO (the program
 * cannot be run, a folder cannot be written), TUTTI_E_NOMEM. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_launch(const tutti_launch_desc *desc,
                                                    tutti_launch_result *out);

/* Rank and number of ranks of this process, from the environment of tutti, torchrun, Open MPI,
 * MPICH, Intel MPI or Slurm. */
typedef struct tutti_worker_place {
    int rank, n_ranks;
    int local_rank, local_n_ranks; /* on this host; 0 of 1 if the launcher does not say */
    int comm_fd;                   /* for tutti_comm_group_open; -1: not under tutti    */
    char text[256];                /* one line: what was detected and by what           */
} tutti_worker_place;

/* TUTTI_E_CONFIG: a launcher's variables make no sense; the text names them. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_worker_detect(tutti_worker_place *out);

/* Joins all processes that the launcher has started, on one host or several; every one of them
 * calls it.  Works under tutti launch, torchrun, mpirun, srun, or with RANK, WORLD_SIZE and
 * MASTER_ADDR set (docs/clusters.md); without a launcher the process is the only rank.  Blocks
 * until all have joined, or timeout_ms (0: 60000).  Call it once per process, from its main thread
 * before other threads start; under tutti launch the process then dies with its supervisor.  On
 * success *out is owned by the caller.  TUTTI_E_CONFIG: variables are missing or contradictory;
 * else as tutti_comm_create. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_worker_join(int timeout_ms, tutti_comm **out);

/* For wrappers: executes the program argv so that it dies with the supervisor of this process.
 * Returns only on failure. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_worker_exec(char *const *argv);

TUTTI_EXTERN_C_END

#endif /* TUTTI_LAUNCH_H */
