/* link.h - the interface between the multi-host transport (net/) and the layer that moves its
 * bytes.
 *
 * A link connects every rank of a job with every other rank, or connects two ranks when they have a
 * message (tti_link_is_sparse).  It moves messages whose length both sides know, and has no
 * collectives. tcp/ is built in; MPI is a module (mpi/), one file per implementation, because their
 * binary interfaces differ.  No call blocks longer than it states; the caller measures the time.
 * Used by one thread at a time. */
#ifndef TTI_COMM_LINK_H
#define TTI_COMM_LINK_H

#include "base/str.h"
#include "comm/transport.h"

/* In a sparse link two ranks connect when they have their first message.  Data for all ranks goes
 * along a tree in which the parent of rank r is rank (r - 1) / TTI_FAN_OUT. */
enum { TTI_FULL_RANKS = 64, TTI_FAN_OUT = 8 };

/* True if a link, or a group over hosts, with n_ranks ranks is sparse.  Equal on every rank. */
bool tti_link_is_sparse(int n_ranks);

typedef struct tti_link_desc {
    int rank, n_ranks, timeout_ms;
    int phase_timeout_ms; /* the longest wait; connections survive an outage of this length */
    const char *address;  /* tcp: the address of rank 0 (comm.h); mpi: NULL */
    const char *token;    /* tcp: the secret of the job; NULL only with "unix:"               */
    const char *job;      /* tcp: distinguishes jobs and restarts that use one address; NULL */
    const int *stop_fd;   /* tcp: as in tutti_comm_desc; NULL */
} tti_link_desc;

/* A subset of the ranks of a link that forms a separate link. */
typedef struct tti_link_subgroup {
    const int *members; /* [n_members]: their ranks in the parent link, ascending; they are ranks 0,
                           1, ... here */
    const int
        *global_ranks; /* [n_members]: their ranks in the link that was opened, for messages */
    const bool *with;  /* [n_members]: true for the members that exchange messages with this one;
                          symmetric */
    int n_members, index, timeout_ms, phase_timeout_ms;
    uint32_t serial; /* 1, 2, ...: counts the splits of the parent link; equal on all ranks */
} tti_link_subgroup;

/* Writes the location of a rank, such as "pid 71 on node3". global_rank: its rank in the link that
 * was opened. */
typedef void (*tti_rank_place)(const void *arg, int global_rank, char *text, size_t n_bytes);

typedef struct tti_link {
    const char *name; /* "tcp", "mpi-openmpi", "mpi-mpich" */
    const char *doc;  /* one line */
    /* Connects; waits at most timeout_ms for all ranks.  TUTTI_E_TIMEOUT names the missing
     * ranks. */
    tutti_status (*open)(const tti_link_desc *desc, void **state);
    /* NULL is a no-op. in_order: the ranks have no more messages for each other. */
    void (*close)(void *state, bool in_order);
    /* Starts moving n messages (transport.h).  The link uses the array until test reports that all
     * are done.  One batch at a time: a call before the batch is done passes the same array, with
     * new messages in place of finished ones.  Messages between two ranks match in order. */
    tutti_status (*post)(void *state, tti_message *messages, int n);
    /* Moves all bytes that can be moved now. *blame: -1 when the batch is done, else a rank that it
     * waits for.  Fails with TUTTI_E_PEER if a rank is gone, or with the failure that another rank
     * has reported. */
    tutti_status (*test)(void *state, int *blame);
    /* Sleeps until test may make progress, or wake_fd (-1: none) is readable, at most n_ns. */
    void (*pause)(void *state, int64_t n_ns, int wake_fd);
    /* Reports to every rank that this one has failed, without waiting.  In a sparse link only ranks
     * that have exchanged messages with this one get the report.  A further call may do nothing. */
    void (*report_failure)(void *state, tutti_status status, const char *text);
    /* Cancels the batch after a failure: the link no longer writes to the memory of its messages.
     * NULL: the link writes to memory only inside calls, so nothing has to be cancelled. */
    void (*cancel)(void *state);
    /* Returns TUTTI_OK, or the failure of a rank that has failed or died, or, if left_too, that has
     * left in order.  Moves no messages. */
    tutti_status (*check)(void *state, bool left_too);
    /* Returns TUTTI_OK, or a failure reported by another rank (report_failure) that has arrived.
     * Moves no messages. */
    tutti_status (*check_reported)(void *state);
    /* Writes silent_ns [n_ranks]: the time since a rank last sent bytes; 0 if it is less than n_ns.
     * Ranks send and receive signs of life only while they wait for a message or call check.  NULL:
     * the link does not know. */
    void (*get_silence)(void *state, int64_t n_ns, int64_t *silent_ns);
    /* Returns 0 if every rank's host answers.  Otherwise the network is, or recently was, down:
     * returns the time in ms within which lost bytes are sent again.  NULL: the link does not
     * know. */
    int (*outage)(void *state);
    /* Called by all members: creates their own link.  It must be closed before the parent link, and
     * is used by one thread at a time, which may differ from the thread of the parent link. */
    tutti_status (*split)(void *state, const tti_link_subgroup *subgroup, void **out);
    /* From now on messages about lost ranks, also those of links split from this one, include their
     * location.  NULL: messages have no location. */
    void (*set_places)(void *state, tti_rank_place place, const void *arg);
    /* A started send cannot be cancelled (MPI).  So a rank that closes in order first receives
     * everything that its peers have sent. */
    bool receives_to_end;
} tti_link;

extern const tti_link tti_link_tcp;

/* ---- links in modules ---- */

enum { TTI_LINK_ABI = 8, TTI_FAILURE_BYTES = 1024 };

typedef struct tti_link_host {
    int abi;             /* TTI_LINK_ABI */
    const char *version; /* version of the library; must equal that of the module */
    void (*fail)(tutti_status code, const char *text); /* tti_fail of the program */
} tti_link_host;

/* The only symbol that a module exports, "tutti_link_module".  Returns NULL, after host->fail, if
 * the link cannot be used. */
typedef const tti_link *(*tti_link_module)(const tti_link_host *host);

/* Appends one line for each possible module: its version, or the reason why it cannot be used. */
void tti_link_describe(tti_str *out);

/* Finds a link by name: "tcp", "mpi-openmpi" or "mpi-mpich".  TUTTI_E_UNSUPPORTED: the message
 * lists the files that were tried. */
tutti_status tti_link_find(const char *name, const tti_link **out);

#endif /* TTI_COMM_LINK_H */
