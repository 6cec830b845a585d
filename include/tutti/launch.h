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
    char *const *argv;      /* NULL-terminated; argv[0] is searched for in PATH */
    const char *log_dir;    /* raw output of each worker in log_dir/rank-N.txt; NULL: none   */
    const char *error_file; /* JSON with the first cause, written on failure; NULL: none     */
    int grace_ms;           /* time for workers to end after a failure before they are killed;
                               0: 1000                                                       */
    int max_restarts; /* restart all workers after a failure, from their last checkpoint, up to this
                         many times.  They are not restarted after exit code 2, or when restarts
                         make no progress (93, below) */
    int min_workers;  /* for programs that are `tutti train`: if a signal ends a worker and at least
                         this many are left, they continue without it, and max_restarts counts the
                         workers that are started again; 0: all workers end together */
    int max_workers;  /* with min_workers: as many as tutti_run_scale may ask for; 0: n_workers */
    int spares; /* with min_workers: workers that are loaded and take the place of a lost one */
    int workers_per_replica; /* with min_workers: only whole multiples of this many train together;
                                0: 1 */
    const char *host_file;   /* with min_workers: lines "HOST slots=N", read again when it changes;
                                the slots of a host are its number of workers; NULL: none */
    bool resume_stopped; /* continue a worker that was stopped by a signal, instead of failing */

    /* Called with one line of text before the workers are restarted. */
    void (*on_restart)(void *user, const char *text);
    void *user; /* borrowed for the call */

    const char *run_dir; /* tutti_run_ps finds the ranks by this folder; NULL: no folder */
    /* Called with one line of text when a rank of a run makes no progress, or makes progress again.
     * May be NULL. */
    void (*on_hang)(void *user, const char *text);
    int slow_phase_ms; /* a rank that loads, evaluates or saves for longer is reported as slow;
                          0: 300000 */

    /* Called with one line of text when a signal ended or stopped a worker that the others continue
     * without (asynchronous and backup workers); a stopped worker is killed.  May be NULL. */
    void (*on_leave)(void *user, const char *text);
} tutti_launch_desc;

/* How the run ended. */
typedef struct tutti_launch_result {
    int exit_code;  /* exit code for the launching program: 0; the code of the worker that failed
                       first; 5 if a signal killed or stopped it; 93 if restarts made no progress
                       (three starts without a new step, or tutti train failed twice at the same
                       step with exit code 3, 7 or 9); 130 or 143 after Ctrl-C or SIGTERM */
    int rank;       /* rank of the first cause, -1: none */
    int n_restarts; /* number of restarts made */
    char text[512]; /* the first cause in one line, such as "rank 2 (pid 71) was killed by signal 9
                       (Killed)"; "" after a success.  If error_file could not be written, also the
                       reason */
} tutti_launch_result;

/* Runs the workers until all have ended.  TUTTI_OK: they ran, and *out says how they ended.  No
 * worker is running after any other status: TUTTI_E_INVALID (n_workers, argv), TUTTI_E_IO (the
 * program cannot be run, a folder cannot be written), TUTTI_E_NOMEM. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_launch(const tutti_launch_desc *desc,
                                                    tutti_launch_result *out);

/* Rank and number of ranks of this process, from the environment of tutti, torchrun, Open MPI,
 * MPICH, Intel MPI or Slurm. */
typedef struct tutti_worker_place {
    int rank, n_ranks;
    int local_rank, local_n_ranks; /* rank on this host; 0 of 1 if the launcher does not say */
    int comm_fd;                   /* pass it to tutti_comm_group_open; -1: not started by tutti */
    char text[256];                /* one line: what was detected and by what           */
} tutti_worker_place;

/* Returns TUTTI_E_CONFIG if a launcher's variables make no sense; the message names them. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_worker_detect(tutti_worker_place *out);

/* Connects all processes that the launcher has started, on one host or several; each of them must
 * call it.  Works under tutti launch, torchrun, mpirun, srun, or with RANK, WORLD_SIZE and
 * MASTER_ADDR set (docs/clusters.md); without a launcher the process is the only rank.  Blocks
 * until all have joined, or timeout_ms (0: 60000).  Call it once per process, from its main thread
 * before other threads start; under tutti launch, the process is from then on killed when its
 * supervisor dies.  On success *out is owned by the caller.  TUTTI_E_CONFIG: variables are missing
 * or contradictory; else as tutti_comm_create. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_worker_join(int timeout_ms, tutti_comm **out);

/* Reports the ranks of this host that train in run_dir: tutti_run_ps one line for each rank with
 * its current activity, tutti_run_stacks the native stack of each of their threads. TUTTI_E_CONFIG:
 * no process of this host trains there.  On success free *out. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_run_ps(const char *run_dir, char **out);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_run_stacks(const char *run_dir, char **out);

/* Changes the number of workers of the elastic run that trains in run_dir on this host, and maybe
 * on others, between parallel.min_workers and parallel.max_workers, which count those of all hosts.
 * Waits up to wait_ms until that many train.
 * TUTTI_E_CONFIG: there is no such run, or the number is outside these limits;
 * TUTTI_E_TIMEOUT: another number of workers trains after wait_ms. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_run_scale(const char *run_dir, int n_workers,
                                                       int wait_ms);

/* For wrappers: executes the program argv so that it dies with the supervisor of this process.
 * Returns only on failure. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_worker_exec(char *const *argv);

TUTTI_EXTERN_C_END

#endif /* TUTTI_LAUNCH_H */
