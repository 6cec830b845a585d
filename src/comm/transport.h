/* transport.h - the interface between algorithms and transports.
 *
 * A transport is a folder with one or more tti_transport records: shm/ for one host, net/ for
 * several.  It offers four services, and algorithms use nothing else:
 *   agree     a barrier that also shows every rank's call and a small payload to all;
 *   send_recv a list of sends and receives done together (NCCL group, MPI Isend/Irecv/Waitall);
 *   barrier;
 *   view      a pointer directly into a peer's buffer, if the transport can give one.
 * A transport over hosts also reports which ranks can view each other, for sums in two levels
 * (alg_hosts.c).  Every wait in a transport ends: on success, when the group fails, or at the
 * deadline.  Any failure except TUTTI_E_INVALID marks the group as failed, so that all ranks get
 * the first cause at once.
 */
#ifndef TTI_COMM_TRANSPORT_H
#define TTI_COMM_TRANSPORT_H

#include "base/str.h"
#include "comm/common.h"
#include "comm/progress.h"
#include "comm/shards.h"
#include "comm/wait_clock.h"

typedef enum tti_call_kind {
    TTI_CALL_NONE,
    TTI_CALL_ALLOC,
    TTI_CALL_BARRIER,
    TTI_CALL_ALL_REDUCE,
    TTI_CALL_REDUCE_SCATTER,
    TTI_CALL_ALL_GATHER,
    TTI_CALL_BROADCAST,
    TTI_CALL_ALL_TO_ALL,
    TTI_CALL_REDUCE_SHARDS,
    TTI_CALL_GATHER_PARTITIONS,
    TTI_CALL_SEND,
    TTI_CALL_RECV,
    TTI_CALL_SPLIT,
    TTI_CALL_MAILBOX,  /* n_elems: bytes */
    TTI_CALL_CONCLUDE, /* n_elems: bytes */
    TTI_N_CALLS
} tti_call_kind;

/* The values on which ranks must agree; fields that a kind does not use are 0. */
typedef struct tti_call {
    int32_t kind, dtype, op, alg; /* op: for calls with partitions, the digest of the bounds */
    int32_t peer;      /* root of a broadcast, peer of send and recv, V of reduce_shards */
    int32_t shard_map; /* digest of the shard map of reduce_shards, 0: equal runs */
    uint64_t n_elems;  /* ALLOC: bytes */
} tti_call;

/* Writes a call to buf, such as "broadcast(n_elems=10, f32, root=0)".  Returns buf. */
const char *tti_call_text(const tti_call *call, char *buf, size_t n_bytes);

enum { TTI_MAX_BUFS = TTI_MAX_PARTIALS + 1, TTI_INLINE_BYTES = 4096 };

/* Bytes in which send and recv exchange their calls.  An agreement between hosts sends the same
 * number of bytes and also begins with the call, so that a mismatch between the two is detected. */
enum { TTI_CALL_BYTES = 1000 };

/* A rank's input to agree. */
typedef struct tti_offer {
    tti_call call;
    const void *inline_data; /* visible to every rank until its next agree but one; NULL: none    */
    size_t inline_bytes;     /* <= TTI_INLINE_BYTES */
    void *bufs[TTI_MAX_BUFS]; /* buffers that peers may view */
    int n_bufs;
    size_t buf_bytes;  /* bytes of each buffer */
    size_t last_bytes; /* bytes of the last buffer if its size differs; else 0 */
    /* If transport.sums and n_sum > 0: inline_data is n_sum elements of the dtype wide, which are
     * combined by sum_op over all ranks in the order of tti_sum_order_ranks. */
    size_t n_sum;
    tutti_dtype wide;
    tutti_reduce_op sum_op;
    /* If transport.sums and n_sum is 0: rank 0 calls conclude when it can read every payload,
     * before any rank leaves the agreement.  It writes TTI_INLINE_BYTES at result, which every rank
     * gets from transport.sum. */
    void (*conclude)(void *user, void *result);
    void *user;
} tti_offer;

/* The outcome of an agreement, the same on every rank. */
typedef struct tti_agreement {
    bool direct;         /* view works for every buffer of every rank */
    int odd_rank;        /* the lowest rank whose call differs from that of rank 0; -1: none */
    tti_call first, odd; /* calls of rank 0 and of odd_rank; set if odd_rank >= 0 */
} tti_agreement;

/* One send (out) or one receive (in) of a send_recv.  Messages between two ranks match in order;
 * both sides state the same n_bytes.  n_bytes 0: nothing is sent. */
typedef struct tti_message {
    int peer;
    const void *out; /* NULL: a receive */
    void *in;        /* NULL: a send    */
    size_t n_bytes;
    size_t done; /* used by the transport, like begun; 0 at first */
    bool begun;
} tti_message;

/* The messages of one call, in memory that later calls reuse.  Initialize with zeros. */
typedef struct tti_message_list {
    tti_message *of;
    int capacity;
} tti_message_list;

/* Makes room for n messages; previous contents are lost.  NULL: out of memory, with the error text
 * set. */
tti_message *tti_message_list_room(tti_message_list *list, int n);
void tti_message_list_free(tti_message_list *list);

typedef struct tti_transport tti_transport;

struct tti_transport {
    const char *name;
    const char *doc; /* one line, for tutti transports */
    /* Returns NULL if the transport can serve this desc, else the reason why not. */
    const char *(*refusal)(const tutti_comm_desc *desc);
    tutti_status (*join)(const tutti_comm_desc *desc, void **state);
    void (*leave)(void *state); /* NULL is a no-op */
    /* Allocates symmetric memory, zeroed.  Collective, with the same n_bytes on every rank (already
     * checked).  In shared memory the ranks' parts are contiguous, each rounded up to pages of 4096
     * bytes. */
    tutti_status (*alloc)(void *state, size_t n_bytes, void **out);
    /* Waits for all ranks and compares their calls; writes *out on success.  A call that differs is
     * reported in *out and is not a failure. */
    tutti_status (*agree)(void *state, const tti_offer *mine, tti_agreement *out);
    tutti_status (*barrier)(void *state);
    tutti_status (*send_recv)(void *state, tti_message *messages, int n_messages);
    /* Returns buffer buf of rank, as offered in the last agree; writable.  Allowed only if `direct`
     * was true. */
    void *(*view)(void *state, int rank, int buf);
    /* Returns the payload of rank in the last agree. */
    const void *(*payload)(void *state, int rank);
    /* Returns true if agree can compute sums; equal on every rank.  NULL: it cannot. */
    bool (*sums)(void *state);
    /* Returns the sum of the last agree, in its wide dtype, or the result of conclude. */
    const void *(*sum)(void *state);
    /* Returns the objects that ranks of this process share; NULL: each rank has its own. */
    tti_commons *(*commons)(void *state);
    /* Marks the group as failed with this cause, unless it has one, and wakes all ranks.  The
     * text is tutti_last_error() of the calling thread. */
    void (*fail)(void *state, tutti_status status);
    /* TUTTI_OK, the group's failure, or TUTTI_E_PEER when a rank has left.  Does not block. */
    tutti_status (*check)(void *state);
    /* Returns TUTTI_OK, or the failure that a rank has reported to all; ranks that left, or died
     * without a report, do not count.  Does not block. */
    tutti_status (*check_reported)(void *state);
    /* For a rank that called check during a wait that timed out: appends the ranks that are
     * stopped, or that sent nothing for half of the timeout: ", rank 3 (pid 71), which ...". */
    void (*describe_late)(void *state, tti_str *out);
    /* Returns the current reason why waits may last longer.  Does not block.  Same threads as
     * check. */
    tti_delay (*delay)(void *state);
    /* Sets the timeout of later waits and subgroups. */
    void (*set_timeout)(void *state, int timeout_ms);
    /* Publish the progress of this rank. call NULL: the last call has ended. phase NULL: step and
     * phase stay. */
    void (*note_call)(void *state, const tti_call *call);
    void (*note_step)(void *state, uint64_t step, const char *phase);
    /* Declares the long phase of this rank; NULL: the phase has ended.  Any thread. */
    void (*declare)(void *state, const char *activity);
    /* Records that this rank begins, or ends, a wait outside of calls, as in a mailbox.  Any
     * thread. */
    void (*note_wait)(void *state, bool waits);
    /* Returns the rank that the others wait for, as numbered in messages, and appends a description
     * of its activity.  If the pages do not show it, returns that of blame, a rank of state.  Any
     * thread. */
    int (*find_culprit)(void *state, int blame, tti_str *what);
    /* Returns true if a rank is in a long phase or has not joined yet; appends its number and phase
     * to what, unless it is NULL.  Any thread. */
    bool (*find_busy)(void *state, tti_str *what);
    /* For a transport over hosts, else NULL. Fills host_of[n_ranks] with 0, 1, ... and returns the
     * number of hosts; ranks of one host may view each other. */
    int (*hosts)(void *state, int *host_of);
    /* After agree: returns true if, on every host, view works for every buffer of the ranks of that
     * host.  Equal on every rank. */
    bool (*near)(void *state);
    tutti_status (*near_barrier)(void *state); /* waits for this host's ranks only */
    /* Returns the shared memory of this host's ranks, owned by the state. */
    const tutti_comm_group *(*host_group)(void *state);
    /* For a transport over hosts, else NULL.  Returns true if ranks connect with their first
     * message; then algorithms with few partners per rank are faster.  Equal on every rank. */
    bool (*is_sparse)(void *state);
    /* Returns the largest payload of agree; NULL: TTI_INLINE_BYTES.  Equal on every rank. */
    size_t (*inline_bytes)(void *state);
    /* Called by every rank: connects the n_members ranks of this ascending list, in which this rank
     * has the given index. *subgroup is a state of the transport *on, or NULL if the rank is the
     * only member.  The subgroup fails when this group fails, and must be left before it.  Its
     * messages use the rank numbers of this group. */
    tutti_status (*split)(void *state, const int *members, int n_members, int index,
                          const tti_transport **on, void **subgroup);
    /* For a transport over hosts, else NULL.  Moves messages with ranks of other hosts for one
     * round: starts new messages and moves all available bytes.  If there are none, sleeps for some
     * milliseconds, or until wake_fd is readable.  Unfinished messages stay in place until a later
     * round has finished them.  Until then no other call is allowed. */
    tutti_status (*stream)(void *state, tti_message *messages, int n_messages, int wake_fd);
    /* For a transport over hosts, else NULL.  Ends the waits of this rank, and of the ranks of its
     * host, with TUTTI_E_PEER.  Any thread. */
    void (*break_off)(void *state);
};

extern const tti_transport tti_transport_shm;

/* Joins shared memory as a subgroup of a larger group. global_ranks [n_ranks]: the ranks in the
 * larger group, for messages. */
tutti_status tti_shm_join_as(const tutti_comm_desc *desc, const int *global_ranks, void **state);

/* The same for a subgroup that fails when whole, the state of another group, fails. */
tutti_status tti_shm_join_subgroup(const tutti_comm_desc *desc, const int *global_ranks,
                                   void *whole, void **state);

/* Like tti_transport_shm.describe_late. host: name of the host for messages, NULL: not
 * mentioned. */
void tti_shm_report_stopped(void *state, const char *host, tti_str *out);

/* Lets waits inside the group check ranks of other hosts.  Zero: there are none. */
typedef struct tti_shm_remote {
    tutti_status (*listen)(void *arg); /* called from time to time; a failure ends the wait */
    tti_delay (*delay)(void *arg);     /* returns the reason why remote ranks may be late */
    /* Returns the rank that the others wait for, as numbered in messages, and appends a description
     * of its activity; -1: unknown. */
    int (*find_culprit)(void *arg, tti_str *what);
    void *arg;
} tti_shm_remote;

void tti_shm_listen(void *state, const tti_shm_remote *remote);

/* Sets whether a rank of another host is in a long phase.  Waits in this group treat it like a rank
 * of their own. */
void tti_shm_set_remote_busy(void *state, bool is_busy);

/* Reads the page of a rank of the group of state.  In a subgroup, the call is the subgroup's, but
 * step and activity are those of the group that the subgroup was split from.  False: there is no
 * such rank. */
bool tti_shm_get_progress(const void *state, int rank, tti_progress *out);

/* Returns TUTTI_OK, or the first failure of the group of state, or of a group from which it was
 * split. */
tutti_status tti_shm_cause(void *state);
/* Returns TUTTI_OK, or the failure that a rank or its launcher has reported; ranks that were found
 * dead (tti_shm_lose) do not count. */
tutti_status tti_shm_reported(void *state);

/* Like tti_comm_group_abort, for a rank that was found dead. */
void tti_shm_lose(tutti_comm_group *group, const char *text);

/* Opens the group whose descriptor is fd in process pid of this host.  On success *out is owned by
 * the caller. */
tutti_status tti_shm_open_group(int pid, int fd, tutti_comm_group **out);

extern const tti_transport tti_transport_tcp, tti_transport_openmpi, tti_transport_mpich;

#endif /* TTI_COMM_TRANSPORT_H */
