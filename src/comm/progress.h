/* progress.h - publishes what each rank is doing, readable while it runs and after its death.
 *
 * Each rank writes a page in the group's shared memory at the begin and end of every call; the page
 * survives the rank, so a post-mortem never depends on the victim. */
#ifndef TTI_COMM_PROGRESS_H
#define TTI_COMM_PROGRESS_H

#include "base/flight.h"
#include "base/str.h"
#include "tutti/comm.h"

typedef struct tti_progress {
    bool joined, left;    /* has called tutti_comm_create; tutti_comm_destroy               */
    bool in_call;         /* is inside the call below, since entered_ns                     */
    uint64_t n_calls;     /* communicator calls begun; 0: none, and call is ""              */
    char call[96];        /* the last one: "all_reduce(n_elems=20, f32, sum, auto)"         */
    uint64_t entered_ns;  /* when it began, CLOCK_MONOTONIC                                 */
    uint64_t step;        /* last value passed to tti_comm_note, 0 before */
    char phase[32];       /* the same, "" before */
    int pid;              /* pid of the rank's process, 0 before it joined */
    char activity[64];    /* its long phase, such as "saving a checkpoint"; "": none */
    uint64_t since_ns;    /* when activity began, CLOCK_MONOTONIC; 0: no activity */
    uint64_t in_subgroup; /* number of current waits in mailboxes and of current calls of
                             communicators that were split from this one */
} tti_progress;

/* Reads the progress page with this index, 0, 1, ..., of the ranks of this host, in any order.
 * False: there are no more pages.  Allowed until comm is destroyed, also after a failure. */
bool tti_comm_get_progress_here(const tutti_comm *comm, int index, tti_progress *out);

/* Makes the flight recorder record the waits inside calls of this communicator; NULL: stops
 * recording. */
void tti_comm_record(tutti_comm *comm, tti_flight *flight);

/* Publishes what the rank does between calls: the training step and a word such as "backward",
 * truncated to 31 bytes.  Costs about ten stores; comm may be NULL. */
void tti_comm_note(tutti_comm *comm, uint64_t step, const char *phase);

/* Declares that this rank is in a long phase, such as "saving a checkpoint" (at most 63 bytes),
 * until a call with NULL.  During the phase all ranks wait for phase_timeout_ms instead of
 * timeout_ms, and the message of a timeout names the phase.  Ranks of other hosts receive the
 * declaration within 250 ms or a sixteenth of timeout_ms.  Any thread; comm may be NULL. */
void tti_comm_declare(tutti_comm *comm, const char *activity);

/* Returns the rank that the other ranks wait for, as a rank of the whole group, and appends a
 * description of its activity.  If it is not known, returns blame, a rank of comm.  Any thread. */
int tti_comm_find_culprit(tutti_comm *comm, int blame, tti_str *what);

/* Returns true if a rank of comm, or of a group, is in a long phase or has not joined yet.  Appends
 * a description to what unless it is NULL: "rank 1 has been evaluating for 2031 ms (step 40,
 * evaluate)".  Any thread. */
bool tti_comm_find_busy(tutti_comm *comm, tti_str *what);
bool tti_comm_group_find_busy(const tutti_comm_group *group, tti_str *what);

/* Lets waits outside of calls, such as those for a parameter server, ask if a rank is in a long
 * phase.  If so, they last up to timeout_ms of this struct. find_busy: as above, called by any
 * thread; NULL: no rank is ever in a long phase. */
typedef struct tti_phase_watch {
    bool (*find_busy)(void *user, tti_str *what);
    void *user;
    int timeout_ms;
} tti_phase_watch;

/* Waits up to phase_timeout_ms until all ranks have ended their long phase.  Needed before calls of
 * devices, whose kernels do not see the phases that ranks declare.  A collective: errors as in
 * tutti/comm.h. */
TUTTI_NODISCARD tutti_status tti_comm_end_phase(tutti_comm *comm);

/* Returns the rank that the other ranks wait for, judging by the progress pages [n] only: a rank in
 * a long phase that does not wait itself, else one that has not joined, else one in no call, else
 * the one whose call began last.  Returns -1 if no rank is in a call. */
int tti_progress_find_culprit(const tti_progress *pages, int n);

/* The same search page by page: start with {.found = -1}, call tti_culprit_look for each rank in
 * order, then tti_culprit_found. */
typedef struct tti_culprit {
    bool any_waits;
    int found, suspicion;
    uint64_t entered_ns;
} tti_culprit;

void tti_culprit_look(tti_culprit *search, int rank, const tti_progress *page);
int tti_culprit_found(const tti_culprit *search);

/* A summary of the pages of many ranks, of fixed size: the rank that the others wait for and the
 * rank that has been busy for the longest time, with their pages.  The summaries of two sets of
 * ranks can be merged. */
typedef struct tti_suspects {
    int32_t any_waits;
    int32_t culprit, busiest; /* -1: none */
    int32_t unused;
    tti_progress culprit_page, busiest_page;
} tti_suspects;

/* Starts a summary of no ranks; adds the page of one rank; adds the summary of other ranks. */
void tti_suspects_begin(tti_suspects *suspects);
void tti_suspects_look(tti_suspects *suspects, int rank, const tti_progress *page);
void tti_suspects_merge(tti_suspects *suspects, const tti_suspects *more);

/* Like tti_progress_find_culprit and tti_progress_find_busy, for a summary. global_rank: number of
 * the busiest rank in messages. */
int tti_suspects_find_culprit(const tti_suspects *suspects);
bool tti_suspects_find_busy(const tti_suspects *suspects, int global_rank, tti_str *what);

/* Appends a description of the rank's activity: "has been saving a checkpoint for 2031 ms (step 40,
 * compute)". */
void tti_progress_describe(const tti_progress *page, tti_str *out);

/* Returns true if a rank in pages [n] is in a long phase or has not joined.  Appends a description
 * of the rank for which this has lasted longest to what, unless it is NULL. global_ranks [n]: rank
 * numbers for messages. */
bool tti_progress_find_busy(const tti_progress *pages, const int *global_ranks, int n,
                            tti_str *what);

/* Returns true if the rank of page is in a long phase or has not joined, and this has lasted longer
 * than for the rank of `than`. than NULL: no other rank is busy. */
bool tti_progress_is_busier(const tti_progress *page, const tti_progress *than);

/* Returns TUTTI_OK, or the reason why the group cannot continue: its first failure, or TUTTI_E_PEER
 * if a rank has left.  Not collective and non-blocking, so that a rank can call it while it waits
 * for something else. */
TUTTI_NODISCARD tutti_status tti_comm_check(tutti_comm *comm);

/* Returns TUTTI_OK, or the failure that a rank has reported to the whole group, by tti_comm_abort
 * or by a call that failed.  Ranks that left, or died without a report, do not count. */
TUTTI_NODISCARD tutti_status tti_comm_check_reported(tutti_comm *comm);

/* For use after a timeout during which this rank called tti_comm_check: appends the known ranks
 * that block it: "rank 3 (pid 71), which a signal has stopped, rank 4 ...". */
void tti_comm_describe_late(tutti_comm *comm, tti_str *out);

/* The placement of the ranks: number of hosts, this rank's host and its rank there. */
typedef struct tti_comm_place {
    const char *transport; /* "shm", "tcp", ... */
    int n_hosts, host, local_rank, local_n_ranks;
} tti_comm_place;

void tti_comm_get_place(const tutti_comm *comm, tti_comm_place *out);

/* Writes the host of each rank, 0, 1, ..., to host_of [n_ranks]. */
void tti_comm_get_hosts(const tutti_comm *comm, int *host_of);

/* Bytes that this rank has moved in calls of comm. */
typedef struct tti_comm_bytes {
    uint64_t inside;  /* read from, written to, or sent to memory of ranks of its host */
    uint64_t between; /* sent to ranks of other hosts, including the agreements on calls */
} tti_comm_bytes;

tti_comm_bytes tti_comm_get_bytes(const tutti_comm *comm);

/* For a rank that fails outside of calls: reports the reason to the others, whose calls end with
 * TUTTI_E_PEER and this text. tutti_last_error() of the calling thread stays as it is. */
void tti_comm_abort(tutti_comm *comm, const char *text);

/* For a communicator over several hosts: this rank stops taking part; its current or next call ends
 * with TUTTI_E_PEER.  Any thread. */
void tti_comm_break(tutti_comm *comm);

/* Passes ownership of the group that comm joined to comm, which destroys it at its own end. */
void tti_comm_keep_group(tutti_comm *comm, tutti_comm_group *group);

/* The longest wait for a peer, as given to tutti_comm_create. */
int tti_comm_timeout_ms(const tutti_comm *comm);

/* Sets another timeout, also for groups that are split from comm later: a subgroup whose waits
 * delay other ranks must time out before those ranks do.  The same on all ranks. */
void tti_comm_set_timeout(tutti_comm *comm, int timeout_ms);

/* Reads the page of a rank of the group, from any process and at any time.
 * TUTTI_E_INVALID if there is no such rank. */
TUTTI_NODISCARD tutti_status tti_comm_group_progress(const tutti_comm_group *group, int rank,
                                                     tti_progress *out);

#endif /* TTI_COMM_PROGRESS_H */
