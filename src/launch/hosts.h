/* hosts.h - the connections between the supervisors of one elastic run on several hosts.
 *
 * Host 0 listens at MASTER_ADDR:MASTER_PORT, and each other host keeps one connection to it. Both
 * sides prove that they know the token of the job.  Later messages are neither encrypted nor
 * signed.  Which workers are members is decided by host 0 alone (host_members.c).
 *
 * Threads: used by the supervisor's thread only. */
#ifndef TTI_LAUNCH_HOSTS_H
#define TTI_LAUNCH_HOSTS_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/patience.h"
#include "launch/worker_env.h"
#include "tutti/launch.h"

enum {
    TTI_MAX_HOSTS = 16,
    TTI_HOST_TEXT_BYTES = 512,
    TTI_HOST_LOST_MS = 2000, /* without a message, a host is lost */
    TTI_HOST_SAY_MS = 200    /* from message to message */
};

/* The hosts of a run, from TUTTI_NODES and TUTTI_NODE_RANK. */
typedef struct tti_host_place {
    int node, n_nodes; /* n_nodes 0: one host, as usual */
    int n_workers[TTI_MAX_HOSTS];
    int first_rank; /* sum of n_workers of the hosts before this one */
} tti_host_place;

/* TUTTI_E_CONFIG: the variables make no sense; the message names them.  get NULL: getenv. */
TUTTI_NODISCARD tutti_status tti_host_place_find(tti_getenv_fn get, void *user,
                                                 tti_host_place *out);

typedef enum tti_host_kind {
    TTI_HOST_CHALLENGE, /* by host 0, when a connection is accepted */
    TTI_HOST_HELLO,     /* the answer: node, job, machine */
    TTI_HOST_WELCOME,   /* by host 0: run, and the run folder as text */
    TTI_HOST_REFUSAL,   /* by host 0, instead: why, as text */
    TTI_HOST_STATUS,    /* to host 0: the state of the workers of a host */
    TTI_HOST_PULSE,     /* by host 0, when there is nothing else */
    TTI_HOST_EPOCH,     /* by host 0: the next epoch begins */
    TTI_HOST_END        /* either way: the run has failed, or this host leaves; why, as text */
} tti_host_kind;

/* Every message has this form and size.  Hosts have the same byte order: magic differs if not. */
typedef struct tti_host_message {
    uint64_t magic;
    uint32_t kind; /* tti_host_kind */
    int32_t node;
    uint64_t epoch; /* STATUS: the epoch of the workers; PULSE: the current one; EPOCH: the next */
    int32_t n_members, n_ready, n_spares; /* STATUS */
    int32_t changes;                      /* STATUS: the workers leave their group; PULSE: all
                                             workers leave the group of this epoch */
    int32_t is_done;                      /* STATUS: workers have ended with success; END: only
                                             this host leaves, and the others may go on */
    int32_t first_rank, n_here, n_ranks;  /* EPOCH */
    int32_t n_elsewhere;                  /* PULSE: members on hosts other than the receiver */
    int32_t n_target;                     /* PULSE, EPOCH: workers that the receiver shall have */
    unsigned char nonce[32], mac[32], job[32], run[32];
    char machine[256];              /* HELLO: kernels and libraries */
    char text[TTI_HOST_TEXT_BYTES]; /* EPOCH: where rank 0 listens */
} tti_host_message;

/* One connection. */
typedef struct tti_host_link {
    int fd;             /* -1: none */
    bool is_connecting; /* the kernel has not connected it yet */
    bool is_open;       /* both sides have proved who they are */
    int node;           /* of the other side, once it is open */
    unsigned char nonce[32];
    tti_patience patience;
    int64_t silent_ns, said_ns;
    size_t n_in;
    tti_host_message in;
    char peer[64]; /* address of the other side, for people and for rank 0's host */
} tti_host_link;

typedef enum tti_host_loss {
    TTI_HOST_NOT_LOST,
    TTI_HOST_ENDED, /* its supervisor closed the connection: its workers are dead */
    TTI_HOST_SILENT /* its workers may live */
} tti_host_loss;

/* The state of another host as far as this one knows it.  Hosts other than 0 know only host 0. */
typedef struct tti_host {
    tti_host_link link;
    tti_host_message status; /* the last STATUS, PULSE or EPOCH; kind 0: none on this connection */
    tti_host_message epoch;  /* the last EPOCH; epoch 0: none */
    tti_host_loss loss;      /* since the last look of host_members.c */
    bool has_left;           /* it said so, or its workers are done */
    bool has_ended;          /* it said that the run has failed, with the text: */
    char text[TTI_HOST_TEXT_BYTES];
    uint64_t granted;  /* of host 0: the epoch that was sent on this connection; 0: none */
    int n_granted;     /* members of the current epoch on that host */
    bool said_changes; /* in the last PULSE to it, .. */
    int said_target;   /* .. and how many workers it shall have */
    int n_unknown;     /* of them, those that may live although their host does not answer */
} tti_host;

typedef struct tti_hosts tti_hosts;

/* Texts are copied. */
typedef struct tti_hosts_desc {
    tti_host_place place;
    const char *host; /* MASTER_ADDR */
    int port;         /* MASTER_PORT; rank 0 of an epoch uses one of the 16 after it */
    const char *token;
    const char *job;     /* the job's text, equal on all hosts */
    const char *machine; /* equal on all hosts */
    const char *run_dir; /* of host 0 */
} tti_hosts_desc;

/* Host 0 listens; the others connect to it and learn the folder of the run, within timeout_ms. On
 * success *out is owned by the caller.  TUTTI_E_CONFIG: an address that cannot be used, or host 0
 * refuses this one; TUTTI_E_TIMEOUT: it did not answer. */
TUTTI_NODISCARD tutti_status tti_hosts_open(const tti_hosts_desc *desc, int timeout_ms,
                                            tti_hosts **out);
void tti_hosts_close(tti_hosts *hosts);

const tti_host_place *tti_hosts_place(const tti_hosts *hosts);
const char *tti_hosts_run_dir(const tti_hosts *hosts);
const char *tti_hosts_token(const tti_hosts *hosts);

/* Another host: of host 0 any node above 0; of the others node 0. */
tti_host *tti_hosts_get(tti_hosts *hosts, int node);

/* How long the workers of a host wait for hosts that do not answer, before the run fails. */
int tti_hosts_wait_ms(const tti_hosts *hosts);

/* Why host 0 does not let this host in again; "": it has not refused it. */
const char *tti_hosts_refusal(const tti_hosts *hosts);

/* Where rank 0 of an epoch listens if it is on that node: "HOST:FIRST-LAST". */
void tti_hosts_address(const tti_hosts *hosts, int node, char *out, size_t n_bytes);

/* Distinguishes epochs of all runs: for tutti_comm_desc.job. */
void tti_hosts_job(const tti_hosts *hosts, uint64_t epoch, char out[128]);

/* Sends without waiting; fills magic and node.  A connection that takes no more is lost. */
void tti_hosts_send(tti_hosts *hosts, tti_host *to, tti_host_message *m);
/* Whether a message to this host is due, so that it does not miss this one. */
bool tti_hosts_is_due(const tti_host *to);

/* The descriptors to wait for; at most TTI_MAX_HOSTS + 9.  Returns their number. */
int tti_hosts_poll_fds(const tti_hosts *hosts, struct pollfd *fds);
/* tutti_launch for the workers of this host, which begin and end with those of the other hosts.
 * desc->n_workers are those of this host, and min_workers those of all.  hosts NULL: this host is
 * alone. */
TUTTI_NODISCARD tutti_status tti_launch_on_hosts(const tutti_launch_desc *desc, tti_hosts *hosts,
                                                 tutti_launch_result *out);

/* Accepts, connects, reads; finds lost hosts.  Never blocks. */
void tti_hosts_move(tti_hosts *hosts);

#endif /* TTI_LAUNCH_HOSTS_H */
