/* link.h - the interface between the multi-host transport (net/) and the layer that moves its
 * bytes.
 *
 * A link connects every rank of a job with every other rank, or lets them connect when they have a
 * message (tti_link_is_sparse), and moves messages whose length both sides know.  It knows nothing
 * of collectives. tcp/ is built in; MPI is a module (mpi/), one file per implementation, because
 * their binary interfaces differ.  No call blocks longer than it states; the caller measures the
 * time.  Used by one thread at a time. */
#ifndef TTI_COMM_LINK_H
#define TTI_COMM_LINK_H

#include "base/str.h"
#include "comm/transport.h"

/* In a sparse link pairs of ranks connect with their first message, and what all ranks must learn
 * goes along a tree in which rank r is below rank (r - 1) / TTI_FAN_OUT. */
enum { TTI_FULL_RANKS = 64, TTI_FAN_OUT = 8 };

/* Whether a link, or a group over hosts, of so many ranks is sparse: the same on every rank. */
bool tti_link_is_sparse(int n_ranks);

typedef struct tti_link_desc {
    int rank, n_ranks, timeout_ms;
    int phase_timeout_ms; /* no wait is longer: until then connections outlast an outage      */
    const char *address;  /* tcp: the address of rank 0 (comm.h); mpi: NULL */
    const char *token;    /* tcp: the secret of the job; NULL only with "unix:"               */
    const char *job;      /* tcp: distinguishes jobs and restarts that use one address; NULL */
    const int *stop_fd;   /* tcp: as in tutti_comm_desc; NULL */
} tti_link_desc;

/* Some ranks of a link that form a link of their own. */
typedef struct tti_link_subgroup {
    const int *members; /* [n_members]: their ranks in the whole, rising; ranks 0, 1, ... here */
    const int *shown;   /* [n_members]: their ranks in the link that was opened, for texts     */
    const bool *with;   /* [n_members]: whom this one speaks with; both say the same           */
    int n_members, index, timeout_ms, phase_timeout_ms;
    uint32_t serial; /* 1, 2, ...: which division of the whole, the same number on all ranks */
} tti_link_subgroup;

/* Writes where a rank runs, "pid 71 on node3", by the number that texts call it. */
typedef void (*tti_rank_place)(const void *arg, int shown, char *text, size_t n_bytes);

typedef struct tti_link {
    const char *name; /* "tcp", "mpi-openmpi", "mpi-mpich" */
    const char *doc;  /* one line */
    /* Waits at most timeout_ms until all ranks are there.  TUTTI_E_TIMEOUT names the missing ranks.
     */
    tutti_status (*open)(const tti_link_desc *desc, void **state);
    /* Takes NULL.  in_order: the ranks have nothing more to say to each other. */
    void (*close)(void *state, bool in_order);
    /* Starts moving n messages (transport.h), which belong to the link until test reports that all
     * are done.  One batch at a time: a call before the batch is done passes the same array, with
     * new messages in place of finished ones.  Messages between two ranks match in order. */
    tutti_status (*post)(void *state, tti_message *messages, int n);
    /* Moves all bytes that can be moved now. *blame: -1 when the batch is done, else a rank that it
     * waits for.  TUTTI_E_PEER: a rank is gone; or the failure that another rank has reported. */
    tutti_status (*test)(void *state, int *blame);
    /* Sleeps until test may get further, or wake_fd (-1: none) can be read, at most n_ns. */
    void (*pause)(void *state, int64_t n_ns, int wake_fd);
    /* Tells every rank that this one has failed, without waiting; in a sparse link those with which
     * it has exchanged messages.  A further call may do nothing. */
    void (*cry)(void *state, tutti_status status, const char *text);
    /* After a failure: nothing is received into the memory of the batch any more.  NULL: nothing is
     * received outside of calls anyway. */
    void (*give_up)(void *state);
    /* TUTTI_OK, or why a rank has failed or died, or (too) has left in order; moves nothing. */
    tutti_status (*check)(void *state, bool left_too);
    /* TUTTI_OK, or the failure that a rank has reported (cry), if it has arrived; moves nothing. */
    tutti_status (*heard)(void *state);
    /* quiet_ns: [n_ranks], for how long nothing was heard of a rank, 0: for less than n_ns.  Ranks
     * are heard while they wait, for a message or by calls of check, and by ranks that do the same.
     * NULL: not known. */
    void (*quiet)(void *state, int64_t n_ns, int64_t *quiet_ns);
    /* 0: every rank's host answers.  Else the network is, or recently was, down: the time in ms
     * within which lost bytes are sent again.  NULL: unknown. */
    int (*outage)(void *state);
    /* Called by all members: makes their own link, which must be closed before the whole and is
     * used by one thread at a time, possibly another one than the whole's. */
    tutti_status (*split)(void *state, const tti_link_subgroup *subgroup, void **out);
    /* From now on texts about lost ranks say where they ran; subgroups that are split from this
     * link too.  NULL: texts do without. */
    void (*set_places)(void *state, tti_rank_place place, const void *arg);
    /* A send that was begun cannot be given up (MPI): the rank that closes in order first receives
     * all that its peers have sent. */
    bool receives_to_end;
} tti_link;

extern const tti_link tti_link_tcp;

/* ---- links in modules ---- */

enum { TTI_LINK_ABI = 8, TTI_CRY_BYTES = 1024 };

typedef struct tti_link_host {
    int abi;             /* TTI_LINK_ABI */
    const char *version; /* of the library: must be the module's own */
    void (*fail)(tutti_status code, const char *text); /* tti_fail of the program */
} tti_link_host;

/* The one symbol that a module exports, "tutti_link_module".  NULL, after host->fail, when it
 * cannot be used. */
typedef const tti_link *(*tti_link_module)(const tti_link_host *host);

/* One line for each possible module: what it is, or why it cannot be used. */
void tti_link_describe(tti_str *out);

/* Finds the link of a name: "tcp", "mpi-openmpi", "mpi-mpich".  TUTTI_E_UNSUPPORTED: the message
 * says what was tried. */
tutti_status tti_link_find(const char *name, const tti_link **out);

#endif /* TTI_COMM_LINK_H */
