/* supervised.h - the worker's side of the supervisor: no orphans, and progress reports.
 *
 * TUTTI_CONTROL_FD is one end of a socket pair; the supervisor holds the other end, so the death of
 * the supervisor is an end of file here. */
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
    char words[TTI_WORDS_BYTES]; /* FAILED, EXCLUDED: why, cut to this; else "" */
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
    uint64_t number;             /* on several hosts: of the epoch, 1 for the first .. */
    char address[320], job[128], token[256]; /* .. and for tutti_comm_desc; else "" */
} tti_epoch_message;

/* A worker's place among the members of an epoch, the time between two changes of membership. */
typedef struct tti_epoch {
    int rank, n_ranks;
    int group_fd; /* for tutti_comm_group_open, which takes it over; on several hosts the epoch is
                     over when it hangs up, and the caller closes it */
    int local_rank, n_local;
    int place;       /* selects the device; the same in all epochs of a worker */
    uint64_t number; /* on several hosts, as in the message: .. */
    char address[320], job[128], token[256];
} tti_epoch;

/* Ties this process to its supervisor: when that dies, this is killed.  Once, from the main thread,
 * before other threads start.  A process without a supervisor gets TUTTI_OK and nothing happens.
 * TUTTI_E_PEER: the supervisor is dead already, so this process should end. */
TUTTI_NODISCARD tutti_status tti_worker_init(void);

/* Tells the supervisor that a step is safe in a checkpoint: a restart after it is not a crash loop.
 * Never waits; without a supervisor nothing happens. */
void tti_worker_report_step(uint64_t step);

/* Tells the supervisor that from now on the others continue without a worker that a signal ends or
 * stops, unless it is one of the first n_needed.  Likewise. */
void tti_worker_report_needed(int n_needed);

/* Reports to the supervisor at which step, and why, this worker is about to fail: if the next start
 * fails at the same step for the same reason, further starts would as well.  Does nothing without a
 * supervisor. */
void tti_worker_report_failure(uint64_t step, const char *text);

/* Reports that this worker computes wrongly in an elastic run: it ends itself by a signal, and is
 * not started again. */
void tti_worker_report_excluded(uint64_t step, const char *text);

/* Reports that this worker of an elastic run has loaded what it needs and trains, until it reports
 * that it is ready for the next epoch. */
void tti_worker_report_training(void);

/* For a worker of an elastic run that has left its group: reports that it is ready for the next
 * epoch and waits up to timeout_ms (-1: forever) for the supervisor, which waits for all members.
 * TUTTI_E_PEER: the run ends; TUTTI_E_TIMEOUT: no answer. */
TUTTI_NODISCARD tutti_status tti_worker_next_epoch(int timeout_ms, tti_epoch *out);

/* The descriptor that a variable of our supervisor names; -1: there is none. */
int tti_worker_fd(const char *name);

/* True if this worker was started to join others in a later epoch; its slot among all workers of
 * the supervisor, else its rank. */
bool tti_worker_joins(void);
int tti_worker_slot(int rank);

/* True if the supervisor has started the workers before, so that this one must resume. */
bool tti_worker_restarted(void);

/* True if torchrun, or Slurm that has put the job into its queue again, says that it has started
 * this rank before.  Other ranks of the same start may not hear of it. */
bool tti_launcher_restarted(void);

#endif /* TTI_LAUNCH_SUPERVISED_H */
