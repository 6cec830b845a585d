/* supervised.h - the worker's side of the supervisor: prevents orphans and reports progress.
 *
 * TUTTI_CONTROL_FD is one end of a socket pair.  The supervisor holds the other end, so its death
 * appears here as end of file. */
#ifndef TTI_LAUNCH_SUPERVISED_H
#define TTI_LAUNCH_SUPERVISED_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/status.h"

enum { TTI_WORDS_BYTES = 320 };

/* A message of a worker on the control socket, one record each. */
typedef struct tti_control_message {
    uint64_t magic; /* TTI_CONTROL_MAGIC, .._NEEDED, .._FAILED, .._EXCLUDED, .._READY, .._TRAINS */
    uint64_t step;  /* steps committed so far; NEEDED: number of needed workers; FAILED: the step of
                       the failure */
    char words[TTI_WORDS_BYTES]; /* FAILED, EXCLUDED: the reason, truncated; else "" */
} tti_control_message;

#define TTI_CONTROL_MAGIC UINT64_C(0x5455545449435431)    /* "TUTTICT1" */
#define TTI_CONTROL_NEEDED UINT64_C(0x5455545449434e31)   /* "TUTTICN1" */
#define TTI_CONTROL_FAILED UINT64_C(0x5455545449434631)   /* "TUTTICF1" */
#define TTI_CONTROL_EXCLUDED UINT64_C(0x5455545449435831) /* "TUTTICX1" */
#define TTI_CONTROL_READY UINT64_C(0x5455545449435231)    /* "TUTTICR1" */
#define TTI_CONTROL_TRAINS UINT64_C(0x5455545449434731)   /* "TUTTICG1" */
#define TTI_CONTROL_EPOCH UINT64_C(0x5455545449434531)    /* "TUTTICE1" */

/* The supervisor's answer to TTI_CONTROL_READY, with the descriptor of the group (SCM_RIGHTS). */
typedef struct tti_epoch_message {
    uint64_t magic;              /* TTI_CONTROL_EPOCH */
    int32_t rank, n_ranks;       /* n_ranks 0: the run ends, and there is no descriptor */
    int32_t local_rank, n_local; /* among the members of this host */
    int32_t place, reserved;     /* place: selects the device, and stays the same for a member */
    uint64_t number;             /* on several hosts: number of the epoch, from 1 */
    char address[320], job[128], token[256]; /* on several hosts: for tutti_comm_desc; else "" */
} tti_epoch_message;

/* A worker's place among the members of an epoch, the time between two changes of membership. */
typedef struct tti_epoch {
    int rank, n_ranks;
    int group_fd; /* for tutti_comm_group_open, which takes ownership; on several hosts a pipe that
                     hangs up when the epoch is over, closed by the caller */
    int local_rank, n_local;
    int place;       /* selects the device; the same in all epochs of a worker */
    uint64_t number; /* on several hosts, like the next fields: as in tti_epoch_message */
    char address[320], job[128], token[256];
} tti_epoch;

/* Ties this process to its supervisor: it is killed when the supervisor dies.  Call it once, from
 * the main thread, before other threads start.  No-op without a supervisor.  TUTTI_E_PEER: the
 * supervisor is already dead, so this process should exit. */
TUTTI_NODISCARD tutti_status tti_worker_init(void);

/* Reports to the supervisor that a step is saved in a checkpoint, so that a restart after it does
 * not count as a crash loop.  Never blocks; no-op without a supervisor. */
void tti_worker_report_step(uint64_t step);

/* Reports to the supervisor that from now on the other workers continue if a signal ends or stops a
 * worker, unless it is one of the first n_needed.  Never blocks; no-op without a supervisor. */
void tti_worker_report_needed(int n_needed);

/* Reports the step and the reason of a failure before this worker ends.  If the next start fails at
 * the same step for the same reason, the workers are not restarted again.  No-op without a
 * supervisor. */
void tti_worker_report_failure(uint64_t step, const char *text);

/* Reports that this worker of an elastic run computes wrong results: it ends itself by a signal,
 * and is not restarted. */
void tti_worker_report_excluded(uint64_t step, const char *text);

/* Reports that this worker of an elastic run has loaded data and kernels and trains, until it
 * reports that it is ready for the next epoch.  Never blocks; no-op without a supervisor. */
void tti_worker_report_training(void);

/* For a worker of an elastic run that has left its group: reports that it is ready for the next
 * epoch, and waits up to timeout_ms (-1: no limit) for the supervisor, which waits for all members.
 * TUTTI_E_PEER: the run ends.  TUTTI_E_TIMEOUT: no answer. */
TUTTI_NODISCARD tutti_status tti_worker_next_epoch(int timeout_ms, tti_epoch *out);

/* Returns the descriptor in an environment variable of Tutti's supervisor; -1: none. */
int tti_worker_fd(const char *name);

/* tti_worker_joins: true if this worker was started to join others in a later epoch.
 * tti_worker_slot: its slot among all workers of the supervisor if it joins, else rank. */
bool tti_worker_joins(void);
int tti_worker_slot(int rank);

/* True if the supervisor has started the workers before, so that this one must resume. */
bool tti_worker_restarted(void);

/* True if torchrun, or Slurm after requeueing the job, reports that it has started this rank
 * before.  Other ranks of the same start may get no such report. */
bool tti_launcher_restarted(void);

#endif /* TTI_LAUNCH_SUPERVISED_H */
