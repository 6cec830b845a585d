/* shm.h - the layout of a group's shared memory, and the parts of this transport.
 *
 *   offset 0                 header: magic, sizes, the first failure, how many ranks sleep
 *   HEADER_BYTES             area of rank 0: flags, progress page, two agreement records, and
 *   + area_bytes             area of rank 1  channels to peers, each with two bounce slots
 *   ...
 *   heap                     allocation 0: part of rank 0, part of rank 1, ...; allocation 1; ...
 *
 * The memory is one sparse memfd: an untouched page takes no memory.  A rank writes only its own
 * area, with four exceptions: any rank may wake it through its bell, a receiver writes `taken` of
 * the sender's channel, any rank may set the first failure, and in a large group the last rank of a
 * subtree to arrive completes the record of the subtree's first rank (tree.c).
 *
 * The size of an area does not grow with the group: from SHM_N_CHANNELS ranks on, peers share
 * channels (send_recv.c).  A group of more ranks than SHM_MAX_FLAT agrees along a tree (tree.c). */
#ifndef TTI_COMM_SHM_H
#define TTI_COMM_SHM_H

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

#include "base/error.h"
#include "comm/progress.h"
#include "comm/transport.h"

enum {
    SHM_HEADER_BYTES = 4096,
    SHM_PAGE_BYTES = 4096,
    SHM_N_SLOTS = 2,
    SHM_N_CHANNELS = 64, /* maximum per rank */
    SHM_MAX_FLAT = 64,   /* largest group in which each rank reads the record of every other */
    SHM_NO_RANK = -1,    /* sleeping_on: not asleep */
    SHM_ANY_RANK = -2,   /* sleeping_on: any rank may wake this one */
    SHM_RELEASE = -3     /* shm_wait.on: the end of an agreement or barrier of a large group */
};

/* The first failure of the group.  state: 0 none, 1 being written, 2 written. */
typedef struct shm_cause {
    _Atomic uint32_t state;
    int32_t status;
    bool was_seen; /* the cause is a rank that was found dead and had reported no failure */
    char text[1024];
} shm_cause;

typedef struct shm_header {
    uint64_t magic;
    uint32_t version, n_ranks;
    uint64_t area_bytes, slot_bytes, heap_offset;
    shm_cause cause;
    _Atomic uint32_t remote_busy; /* a rank of another host is in a long phase */
    /* Sums over ranks, so that no rank has to read the areas of all others. */
    _Atomic uint32_t n_joined, n_left, n_busy; /* n_busy: in a long phase */
    _Atomic uint64_t process; /* pid and group object of the first rank that joined */
    _Atomic uint32_t several_processes;
    _Atomic uint64_t cores[16];              /* union of the affinity masks */
    alignas(64) _Atomic uint32_t n_sleepers; /* ranks that sleep on their own bell */
    /* In a large group: the number of agreements and barriers that all ranks have reached, and the
     * number that were released. */
    alignas(64) _Atomic uint64_t gathered;
    _Atomic uint64_t released;
    alignas(64) _Atomic uint32_t bell; /* futex: wakes all ranks that wait for a release */
    _Atomic uint32_t n_waiting;        /* ranks that sleep on this bell */
} shm_header;

/* Written by its rank under a sequence lock.  A reader accepts a half-written page if its rank is
 * dead. */
typedef struct shm_progress {
    _Atomic uint64_t version; /* odd while being written */
    _Atomic uint64_t call[sizeof(tti_call) / 8];
    _Atomic uint64_t n_calls, in_call, entered_ns, step;
    _Atomic uint64_t phase[4];
    _Atomic uint64_t busy_ns; /* start of the long phase, 0: none */
    _Atomic uint64_t activity[8];
    _Atomic uint64_t in_subgroup; /* number of current waits in mailboxes and of current calls of
                                     groups split from this one */
} shm_progress;

typedef struct shm_record {
    tti_call call;
    int32_t odd_rank; /* lowest rank of this subtree whose call differs from `call`; -1: none */
    uint32_t is_seen; /* all buffers of this subtree can be viewed */
    uint32_t n_bufs;
    uint64_t bufs[TTI_MAX_BUFS]; /* address in one process, else offset in the memfd; 0: hidden */
    alignas(64) unsigned char payload[TTI_INLINE_BYTES];
    unsigned char sum[TTI_INLINE_BYTES]; /* sum of this subtree, or the conclusion of rank 0 */
} shm_record;

/* A chunk of a message: in the bounce slot, or in the memory of the sender. */
typedef struct shm_slot {
    uint64_t address; /* 0: in the bounce slot; else as shm_record.bufs */
    uint64_t n_bytes; /* bytes of this chunk */
    uint64_t n_total; /* bytes of the whole message */
} shm_slot;

typedef struct shm_channel {
    alignas(
        64) _Atomic uint64_t posted; /* written by the sender: receiver << 48 | number of chunks */
    shm_slot slots[SHM_N_SLOTS];
    alignas(64) _Atomic uint64_t taken; /* number of chunks, written by the receiver */
} shm_channel;

typedef struct shm_rank {
    alignas(64) _Atomic uint64_t arrived; /* agreements and barriers reached */
    alignas(64) _Atomic uint32_t
        bell; /* futex: wakes this rank when something that it waits for has changed */
    _Atomic int32_t sleeping_on;
    alignas(64) _Atomic uint64_t n_gathered; /* arrivals of this rank and of its children's
                                                subtrees, in all agreements and barriers */
    alignas(64) _Atomic uint32_t joined;
    _Atomic uint32_t left;
    _Atomic int32_t pid;
    _Atomic int32_t
        rank_in_root; /* rank in the group that this group was split from, else its own rank */
    alignas(64) shm_progress progress;
    alignas(64) shm_record records[2];  /* by parity of the agreement */
    alignas(64) shm_channel channels[]; /* tti_shm_n_channels; then the bounce slots */
} shm_rank;

typedef struct shm_segment {
    uint64_t offset;
    size_t part_bytes; /* bytes of each rank's part */
    unsigned char *base;
} shm_segment;

struct tutti_comm_group {
    int fd;
    shm_header *header;
    size_t n_bytes;       /* mapped at header */
    uint64_t token;       /* random: distinguishes group objects of different processes */
    pthread_mutex_t lock; /* guards segments */
    shm_segment *segments;
    int n_segments;
    tti_commons commons;  /* objects shared by the ranks that use this group object */
    _Atomic int n_owners; /* number of owners: 1, or more if ranks of a process share a subgroup;
                             the last one destroys it */
};

/* The state of one rank.  Used by one thread at a time. */
typedef struct shm_state {
    tutti_comm_group *group;
    tutti_comm_group *own_group;    /* group of a subgroup, destroyed with this state; else NULL */
    const struct shm_state *parent; /* its failures are failures of this state too; NULL: none */
    shm_header *header;
    shm_rank *me;
    int rank, n_ranks, timeout_ms, phase_timeout_ms;
    int *global_ranks; /* [n_ranks] owned: the number of rank i in messages; NULL: i */
    uint64_t *busy;    /* owned, two bits per rank for tti_shm_send_recv; NULL: up to 64 ranks */
    int n_spins;
    tti_shm_remote remote;
    bool one_process, in_call;
    uint64_t n_arrived, n_agreed, n_calls, heap_end;
    tti_call call; /* the call in progress, for messages */
    shm_segment *segments;
    int n_segments;
} shm_state;

static inline shm_rank *shm_rank_of(const shm_header *header, int rank) {
    return (shm_rank *)((uintptr_t)header + SHM_HEADER_BYTES +
                        (size_t)rank * (size_t)header->area_bytes);
}

static inline int tti_shm_global_rank(const shm_state *s, int rank) {
    return s->global_ranks ? s->global_ranks[rank] : rank;
}

/* True if the group is so large that it agrees along a tree. */
static inline bool tti_shm_is_large(const shm_state *s) { return s->n_ranks > SHM_MAX_FLAT; }

/* The number of channels of each rank, and the channel that rank `from` uses to send to rank
 * `to`. */
int tti_shm_n_channels(int n_ranks);
int tti_shm_channel_of(const shm_header *header, int from, int to);

/* The bounce slot of a chunk (piece) in a channel of rank from. */
unsigned char *tti_shm_bounce(const shm_header *header, int from, int channel, uint64_t piece);

/* ---- tree.c ---- */

/* The distance from a rank to its first child that does not exist: children are 1, 2, 4, ... away.
 * Its parent is the rank without its lowest set bit. */
static inline int tti_shm_end_of_children(const shm_state *s, int rank) {
    int step = 1;
    while (!(rank & step) && rank + step < s->n_ranks) step *= 2;
    return step;
}

static inline int tti_shm_parent_of(int rank) { return rank & (rank - 1); }

/* Implement tti_transport.barrier and agree for a large group. */
tutti_status tti_shm_tree_barrier(shm_state *s);
tutti_status tti_shm_tree_agree(shm_state *s, const tti_offer *mine, tti_agreement *out);

/* ---- wait.c: waits that always end ---- */

/* True if a rank is in a long phase or has not joined yet, in s or in the group that s was split
 * from. */
bool tti_shm_has_busy(const shm_state *s);

/* Implement tti_transport.delay and find_culprit. */
tti_delay tti_shm_delay(void *state);
int tti_shm_find_culprit(void *state, int blame, tti_str *what);

typedef struct shm_wait {
    bool (*ready)(const shm_state *s, const void *arg);
    const void *arg;
    int on;    /* the rank that ends the wait, or SHM_ANY_RANK or SHM_RELEASE */
    int blame; /* rank to name on a timeout; SHM_NO_RANK: the first that has not arrived */
} shm_wait;

/* Waits until wait->ready returns true.  Fails with the group's failure, TUTTI_E_PEER if a rank
 * left, or TUTTI_E_TIMEOUT. */
tutti_status tti_shm_wait_for(shm_state *s, const shm_wait *wait);

/* Wakes rank `to` if it waits for rank `from`. to -1: wakes all ranks that wait for `from` or for a
 * release.  Before the call, the caller must store the new state with sequential consistency. */
void tti_shm_ring(shm_header *header, int from, int to);

/* Wakes all ranks that wait for a release; the same rule for the caller. */
void tti_shm_ring_release(shm_header *header);

/* Sets the first failure, if there is none yet, and wakes all ranks. */
void tti_shm_set_cause(shm_header *header, tutti_status status, const char *text);

/* The same for a rank that was found dead. */
void tti_shm_set_loss(shm_header *header, const char *text);

/* Returns TUTTI_OK, or the first failure with its text: of the group, or else of the groups from
 * which it was split. */
tutti_status tti_shm_check_cause(const shm_state *s);

/* For a subgroup: returns TUTTI_OK, or a failure if the process of rank has ended without a report.
 * In the whole group the launcher detects this, but a subgroup may run while other ranks do not. */
tutti_status tti_shm_check_alive(const shm_state *s, int rank);

/* ---- group.c ---- */

/* Maps an allocation, once per group object. */
tutti_status tti_shm_group_map(tutti_comm_group *group, uint64_t offset, size_t part_bytes,
                               shm_segment *out);

/* ---- subgroup.c ---- */

tutti_status tti_shm_split(void *state, const int *members, int n_members, int index,
                           const tti_transport **on, void **subgroup);

/* ---- transport.c ---- */

/* Like tti_transport.join, for a group split from parent (NULL: none).  The state takes ownership
 * of desc's own group only on success. */
tutti_status tti_shm_join_below(const tutti_comm_desc *desc, const int *global_ranks,
                                const shm_state *parent, void **state);
tutti_status tti_shm_barrier(void *state);

/* The record of rank in the last agreement. */
static inline shm_record *tti_shm_record_of(const shm_state *s, int rank) {
    return &shm_rank_of(s->header, rank)->records[s->n_agreed % 2];
}

/* The address by which a peer can find n_bytes at memory of this rank; 0: peers cannot see this
 * memory. */
uint64_t tti_shm_address(const shm_state *s, const void *memory, size_t n_bytes);

/* The inverse of tti_shm_address, for memory of rank.  NULL: the address is not in memory of that
 * rank. */
void *tti_shm_locate(const shm_state *s, int rank, uint64_t address, size_t n_bytes);

/* ---- send_recv.c ---- */

tutti_status tti_shm_send_recv(void *state, tti_message *messages, int n_messages);

/* ---- progress.c ---- */

void tti_shm_note_call(void *state, const tti_call *call);
void tti_shm_note_step(void *state, uint64_t step, const char *phase);
void tti_shm_declare(void *state, const char *activity);
void tti_shm_note_wait(void *state, bool waits);
bool tti_shm_find_busy(void *state, tti_str *what);

/* True if a rank is in a long phase or has not joined yet. */
bool tti_shm_is_busy(const shm_header *header);

/* The state of the group from which s was split, directly or through other groups; s itself if it
 * was not split. */
const shm_state *tti_shm_root(const shm_state *s);

#endif /* TTI_COMM_SHM_H */
