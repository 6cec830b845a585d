/* comm.h - collective communication between ranks.
 *
 * A communicator joins n_ranks peers, numbered 0 .. n_ranks-1; each peer holds its own tutti_comm.
 * All ranks must issue the same collectives in the same order, with equal n_elems, dtype and op.  A
 * call that differs fails on every rank with TUTTI_E_MISMATCH; the message names the rank and both
 * calls.
 *
 * Sums:     bf16 and f16 accumulate in f32.  There is no average: reduce counts along with sums and
 *           divide once.
 * Order:    TUTTI_ALG_DIRECT adds the ranks' terms in one fixed binary tree, whatever the
 *           transport; so does TUTTI_ALG_TREE. The order of TUTTI_ALG_RING depends on n_ranks.
 * Threads:  one tutti_comm is used by one thread at a time.  Different tutti_comm objects may be
 *           used concurrently, also by threads of one process.
 * Errors:   tutti_last_error() has the message.  Every wait ends after timeout_ms.
 *           A collective that fails with anything but TUTTI_E_INVALID breaks the group: every later
 *           collective on this tutti_comm returns the same status, and only destroy remains.
 */
#ifndef TUTTI_COMM_H
#define TUTTI_COMM_H

#include "tutti/types.h"

typedef struct tutti_comm tutti_comm;
typedef struct tutti_comm_group tutti_comm_group;

typedef enum tutti_reduce_op {
    TUTTI_SUM,
    TUTTI_MIN,
    TUTTI_MAX,
    TUTTI_N_REDUCE_OPS
} tutti_reduce_op;

typedef enum tutti_comm_alg {
    TUTTI_ALG_AUTO, /* chosen by size */
    TUTTI_ALG_RING,
    TUTTI_ALG_TREE,
    TUTTI_ALG_DIRECT,
    TUTTI_N_ALGS
} tutti_comm_alg;

/* A group connects ranks of one host through shared memory (a memfd without a name).  Create it
 * before the ranks start; threads share the object, processes inherit its descriptor. */
TUTTI_EXTERN_C_BEGIN

/* Creates a group for n_ranks ranks of this host, 1 .. 4096.  On success *out is owned by the
 * caller. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_comm_group_create(int n_ranks, tutti_comm_group **out);

/* The descriptor that child processes inherit (close-on-exec is set: dup2 it in the child). */
TUTTI_API int tutti_comm_group_fd(const tutti_comm_group *group);

/* Opens the group of an inherited descriptor, which the group then owns. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_comm_group_open(int fd, tutti_comm_group **out);

/* Marks the group as broken from outside, such as by a supervisor that saw `rank` die: every wait
 * of every rank ends at once with TUTTI_E_PEER and text.  rank -1: no particular rank. */
TUTTI_API void tutti_comm_group_abort(tutti_comm_group *group, int rank, const char *text);

/* The number of ranks of the group. */
TUTTI_API int tutti_comm_group_n_ranks(const tutti_comm_group *group);

/* Unmaps and closes.  NULL is a no-op.  Every tutti_comm of the group must be gone before. */
TUTTI_API void tutti_comm_group_destroy(tutti_comm_group *group);

/* Describes the group to join.  Zero is the default of every field except group and n_ranks. */
typedef struct tutti_comm_desc {
    const char *transport;   /* "shm", "tcp", "mpi-openmpi", "mpi-mpich"; NULL: shm, the default */
    tutti_comm_group *group; /* shm only; borrowed, outlives the tutti_comm; NULL: n_ranks is 1 */
    int rank;                /* 0 .. n_ranks-1, unique in the group      */
    int n_ranks;             /* 1 .. 4096 on one host (group), 1 .. 65536 over several */
    int timeout_ms;          /* longest wait for a peer, in ms; 0: 60000 */
    int phase_timeout_ms;    /* longest wait for a peer that has not joined yet, or that has
                                declared a long phase such as saving; 0: timeout_ms */
    /* tcp: where rank 0 listens, the same on every rank: "HOST:PORT", "HOST:FIRST-LAST" (the
     * first port that is free) or "unix:NAME" (ranks of one host, checked by user id). */
    const char *address;
    const char *token; /* tcp: a secret that every rank knows.  With "unix:NAME" it is optional; it
                          makes the name of the socket impossible to guess */
    const char *job;   /* tcp: distinguishes jobs that use one address; may be NULL */
    /* tcp: a pipe or socket; when its other end is closed, tutti_comm_create stops waiting for
     * other ranks and fails with TUTTI_E_PEER.  Not used later.  NULL: none. */
    const int *stop_fd;
} tutti_comm_desc;

/* Joins the group; blocks until all n_ranks ranks have called, or desc->timeout_ms.
 * On success *out is owned by the caller; on failure *out is NULL.  desc is not kept.
 * Returns TUTTI_E_INVALID (bad desc), TUTTI_E_UNSUPPORTED (no transport can run here),
 * TUTTI_E_TIMEOUT (a rank is missing), TUTTI_E_NOMEM or TUTTI_E_PEER. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_comm_create(const tutti_comm_desc *desc,
                                                         tutti_comm **out);

/* Leaves the group and frees comm.  NULL is a no-op.  Does not wait for the peers. */
TUTTI_API void tutti_comm_destroy(tutti_comm *comm);

/* Transports in order of preference, i = 0, 1, ...: "shm", and one line about it; NULL after the
 * last. */
TUTTI_API const char *tutti_comm_transport_name(int i);
TUTTI_API const char *tutti_comm_transport_doc(int i);

TUTTI_API int tutti_comm_rank(const tutti_comm *comm);
TUTTI_API int tutti_comm_n_ranks(const tutti_comm *comm);

/* Allocates memory that peers can read without a copy.  Collective: every rank calls with the same
 * n_bytes in the same order.  64-byte aligned, zeroed, freed with the comm.  Collectives are
 * fastest on such buffers; any other buffer works too. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_comm_alloc(tutti_comm *comm, size_t n_bytes,
                                                        void **out);

/* dst[i] = op over all ranks of src[i], 0 <= i < n_elems; the same bits on every rank.
 *   src, dst  n_elems elements of dtype, contiguous; src == dst (in place) or no overlap
 *   n_elems   0 is allowed: the call is matched with the peers', and nothing moves
 * With TUTTI_ALG_AUTO and DIRECT, a vector of up to 4 KiB costs as much as one barrier. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_comm_all_reduce(tutti_comm *comm, const void *src,
                                                             void *dst, size_t n_elems,
                                                             tutti_dtype dtype, tutti_reduce_op op,
                                                             tutti_comm_alg alg);

/* Rank r receives dst[0 .. n_elems) = op over all ranks of src[r*n_elems .. (r+1)*n_elems).
 *   src  n_ranks*n_elems elements; dst may be src + rank*n_elems, else no overlap */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_comm_reduce_scatter(tutti_comm *comm, const void *src,
                                                                 void *dst, size_t n_elems,
                                                                 tutti_dtype dtype,
                                                                 tutti_reduce_op op);

/* dst[r*n_elems ..) = src of rank r.  dst has n_ranks*n_elems elements; src may be the part of dst
 * that belongs to this rank. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_comm_all_gather(tutti_comm *comm, const void *src,
                                                             void *dst, size_t n_elems,
                                                             tutti_dtype dtype);

/* Copies buf of rank root to every rank. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_comm_broadcast(tutti_comm *comm, void *buf,
                                                            size_t n_elems, tutti_dtype dtype,
                                                            int root);

/* Rank r sends src[p*n_elems ..) to rank p, which stores it at dst[r*n_elems ..).  No overlap. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_comm_all_to_all(tutti_comm *comm, const void *src,
                                                             void *dst, size_t n_elems,
                                                             tutti_dtype dtype);

/* Sends to or receives from one peer, which makes the opposite call with the same n_elems and
 * dtype.  Both block. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_comm_send(tutti_comm *comm, const void *src,
                                                       size_t n_elems, tutti_dtype dtype, int peer);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_comm_recv(tutti_comm *comm, void *dst, size_t n_elems,
                                                       tutti_dtype dtype, int peer);

/* Returns when every rank has called it. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_comm_barrier(tutti_comm *comm);

TUTTI_EXTERN_C_END

#endif /* TUTTI_COMM_H */
