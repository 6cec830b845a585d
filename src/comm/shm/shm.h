/* shm.h - the layout of a group's shared memory, and the parts of this transport.
 *
 *   offset 0                 header: magic, sizes, the first failure, how many ranks sleep
 *   HEADER_BYTES             area of rank 0: flags, progress page, two agreement records, and
 *   + area_bytes             area of rank 1  channels to peers, each with two bounce slots
 *   ...
 *   heap                     allocation 0: part of rank 0, part of rank 1, ...; allocation 1; ...
 *
 * One memfd, sparse: an untouched page takes no memory.  A rank writes its own area only, with
 * four exceptions: any rank may ring its bell, a receiver writes `taken` of the sender's channel,
 * any rank may set the first failure, and in a large group the last rank of a subtree to arrive
 * completes the record of the subtree's first rank (tree.c).
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
    SHM_N_CHANNELS = 64, /* of a rank, at most */
    SHM_MAX_FLAT = 64,   /* ranks of a group in which each looks at each other */
    SHM_NO_RANK = -1,    /* sleeping_on: not asleep */
    SHM_ANY_RANK = -2,   /* sleeping_on: any rank's news */
    SHM_RELEASE = -3     /* shm_wait.on: the end of an agreement or barrier of a large group */
};

/* The first failure of the group.  state: 0 none, 1 being written, 2 written. */
typedef struct shm_cause {
    _Atomic uint32_t state;
    int32_t status;
    bool was_seen; /* a rank was found dead, and no rank has reported it */
    char text[1024];
} shm_cause;

typedef struct shm_header {
    uint64_t magic;
    uint32_t version, n_ranks;
    uint64_t area_bytes, slot_bytes, heap_offset;
    shm_cause cause;
    _Atomic uint32_t remote_busy; /* a rank of another host is in a long phase */
    /* Sums over ranks, so that no rank has to look at all others. */
    _Atomic uint32_t n_joined, n_left, n_busy; /* n_busy: in a long phase */
    _Atomic uint64_t process;                  /* pid and group object of the first to join */
    _Atomic uint32_t several_processes;
    _Atomic uint64_t cores[16];              /* union of the affinity masks */
    alignas(64) _Atomic uint32_t n_sleepers; /* on bells of their own */
    /* In a large group: how many agreements and barriers all ranks have reached, and have left. */
    alignas(64) _Atomic uint64_t gathered;
    _Atomic uint64_t released;
    alignas(64) _Atomic uint32_t bell; /* futex: rung for all that wait for the end of one */
    _Atomic uint32_t n_waiting;        /* on this bell */
} shm_header;

/* Written by its rank under a sequence lock; a reader that meets a half-written page of a dead
 * rank takes it as it is. */
typedef struct shm_progress {
    _Atomic uint64_t version; /* odd while being written */
    _Atomic uint64_t call[sizeof(tti_call) / 8];
    _Atomic uint64_t n_calls, in_call, entered_ns, step;
    _Atomic uint64_t phase[4];
    _Atomic uint64_t busy_ns; /* since when it is in a long phase, 0: it is in none */
    _Atomic uint64_t activity[8];
    _Atomic uint64_t in_subgroup; /* waits in mailboxes, and calls of groups split from this one */
} shm_progress;

typedef struct shm_record {
    tti_call call;
    int32_t odd_rank; /* of this subtree the lowest whose call differs from this one; -1: none */
    uint32_t is_seen; /* all buffers of this subtree can be viewed */
    uint32_t n_bufs;
    uint64_t bufs[TTI_MAX_BUFS]; /* address in one process, else offset in the memfd; 0: hidden */
    alignas(64) unsigned char payload[TTI_INLINE_BYTES];
    unsigned char sum[TTI_INLINE_BYTES]; /* of this subtree; or what rank 0 concluded */
} shm_record;

/* A piece of a message: in the bounce slot, or where the sender has it. */
typedef struct shm_slot {
    uint64_t address; /* 0: in the bounce slot; else as shm_record.bufs */
    uint64_t n_bytes; /* of this piece */
    uint64_t n_total; /* of the message */
} shm_slot;

typedef struct shm_channel {
    alignas(64) _Atomic uint64_t posted; /* by the sender: receiver << 48 | pieces */
    shm_slot slots[SHM_N_SLOTS];
    alignas(64) _Atomic uint64_t taken; /* pieces, by the receiver */
} shm_channel;

typedef struct shm_rank {
    alignas(64) _Atomic uint64_t arrived; /* agreements and barriers reached */
    alignas(64) _Atomic uint32_t bell;    /* futex: rung when news for this rank are there */
    _Atomic int32_t sleeping_on;
    alignas(64) _Atomic uint64_t n_gathered; /* arrivals of this rank and of its children's
                                                subtrees, over all agreements and barriers */
    alignas(64) _Atomic uint32_t joined;
    _Atomic uint32_t left;
    _Atomic int32_t pid;
    _Atomic int32_t rank_in_root; /* of the group that this one was split from, else its own rank */
    alignas(64) shm_progress progress;
    alignas(64) shm_record records[2];  /* by parity of the agreement */
    alignas(64) shm_channel channels[]; /* tti_shm_n_channels; then the bounce slots */
} shm_rank;

typedef struct shm_segment {
    uint64_t offset;
    size_t part_bytes; /* of each rank */
    unsigned char *base;
} shm_segment;

struct tutti_comm_group {
    int fd;
    shm_header *header;
    size_t n_bytes;       /* mapped at header */
    uint64_t token;       /* random: distinguishes group objects of different processes */
    pthread_mutex_t lock; /* over segments */
    shm_segment *segments;
    int n_segments;
    tti_commons commons;  /* of the ranks that have this object */
    _Atomic int n_owners; /* number of owners that will destroy it: 1, or more if ranks of a process
                             share a subgroup */
};

/* A rank's side.  Used by one thread at a time. */
typedef struct shm_state {
    tutti_comm_group *group;
    tutti_comm_group *own_group;    /* of a subgroup, destroyed with this state; else NULL */
    const struct shm_state *parent; /* whose failure is this one's too; NULL: none */
    shm_header *header;
    shm_rank *me;
    int rank, n_ranks, timeout_ms, phase_timeout_ms;
    int *shown;     /* [n_ranks] owned, what texts call rank i; NULL: i */
    uint64_t *busy; /* owned, two bits per rank for tti_shm_send_recv; NULL: up to 64 ranks */
    int n_spins;
    tti_shm_remote remote;
    bool one_process, in_call;
    uint64_t n_arrived, n_agreed, n_calls, heap_end;
    tti_call call; /* the current one, for texts */
    shm_segment *segments;
    int n_segments;
} shm_state;

static inline shm_rank *shm_rank_of(const shm_header *header, int rank) {
    return (shm_rank *)((uintptr_t)header + SHM_HEADER_BYTES +
                        (size_t)rank * (size_t)header->area_bytes);
}

static inline int tti_shm_shown(const shm_state *s, int rank) {
    return s->shown ? s->shown[rank] : rank;
}

/* A group this large agrees along a tree. */
static inline bool tti_shm_is_large(const shm_state *s) { return s->n_ranks > SHM_MAX_FLAT; }

/* Channels of each rank, and which of them a rank uses to send to another. */
int tti_shm_n_channels(int n_ranks);
int tti_shm_channel_of(const shm_header *header, int from, int to);

/* The bounce slot of a piece in a channel of a rank. */
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

/* tti_transport.barrier and agree of a large group. */
tutti_status tti_shm_tree_barrier(shm_state *s);
tutti_status tti_shm_tree_agree(shm_state *s, const tti_offer *mine, tti_agreement *out);

/* ---- wait.c: waits that always end ---- */

/* Whether a rank is in a long phase, or has not joined yet, in s or in what it was split from. */
bool tti_shm_has_busy(const shm_state *s);

/* tti_transport.delay, find_culprit */
tti_delay tti_shm_delay(void *state);
int tti_shm_find_culprit(void *state, int blame, tti_str *what);

typedef struct shm_wait {
    bool (*ready)(const shm_state *s, const void *arg);
    const void *arg;
    int on;    /* rank whose news end the wait, or SHM_ANY_RANK or SHM_RELEASE */
    int blame; /* rank to name on a timeout; SHM_NO_RANK: the first that has not arrived */
} shm_wait;

/* Until ready; else the group's failure, a rank that left, or the timeout. */
tutti_status tti_shm_wait_for(shm_state *s, const shm_wait *wait);

/* Wakes rank `to` if it waits for rank `from`; to -1: all ranks that do, or that wait for a
 * release.  The caller must have stored the new state with sequential consistency before. */
void tti_shm_ring(shm_header *header, int from, int to);

/* Wakes all ranks that wait for a release; likewise. */
void tti_shm_ring_release(shm_header *header);

/* Sets the first failure, if there is none yet, and wakes all ranks. */
void tti_shm_set_cause(shm_header *header, tutti_status status, const char *text);

/* The same of a rank that was seen to be gone. */
void tti_shm_set_loss(shm_header *header, const char *text);

/* TUTTI_OK, or the first failure with its text: of the group, then of those it was split from. */
tutti_status tti_shm_check_cause(const shm_state *s);

/* For a subgroup: TUTTI_OK, or a failure if the process of rank has ended without a message.
 * For the whole group its launcher detects this, but a subgroup may continue without the other
 * ranks.
 */
tutti_status tti_shm_check_alive(const shm_state *s, int rank);

/* ---- group.c ---- */

/* Maps an allocation, once per group object. */
tutti_status tti_shm_group_map(tutti_comm_group *group, uint64_t offset, size_t part_bytes,
                               shm_segment *out);

/* ---- subgroup.c ---- */

tutti_status tti_shm_split(void *state, const int *members, int n_members, int index,
                           const tti_transport **on, void **subgroup);

/* ---- transport.c ---- */

/* As join, below parent (or NULL); own_group is destroyed with the state, not on failure. */
tutti_status tti_shm_join_below(const tutti_comm_desc *desc, const int *shown,
                                const shm_state *parent, void **state);
tutti_status tti_shm_barrier(void *state);

/* The record of rank in the last agreement. */
static inline shm_record *tti_shm_record_of(const shm_state *s, int rank) {
    return &shm_rank_of(s->header, rank)->records[s->n_agreed % 2];
}

/* How a peer can find n_bytes at memory of this rank; 0: not at all. */
uint64_t tti_shm_address(const shm_state *s, const void *memory, size_t n_bytes);

/* The reverse, for memory of rank; NULL if that is no memory of the rank. */
void *tti_shm_locate(const shm_state *s, int rank, uint64_t address, size_t n_bytes);

/* ---- send_recv.c ---- */

tutti_status tti_shm_send_recv(void *state, tti_message *messages, int n_messages);

/* ---- progress.c ---- */

void tti_shm_note_call(void *state, const tti_call *call);
void tti_shm_note_step(void *state, uint64_t step, const char *phase);
void tti_shm_declare(void *state, const char *activity);
void tti_shm_note_wait(void *state, bool waits);
bool tti_shm_find_busy(void *state, tti_str *what);

/* Whether a rank is in a long phase, or has not joined yet. */
bool tti_shm_is_busy(const shm_header *header);

/* The first group that s was split from, through others or not; s itself if it was not split. */
const shm_state *tti_shm_root(const shm_state *s);

#endif /* TTI_COMM_SHM_H */
