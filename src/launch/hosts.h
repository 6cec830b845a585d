/* hosts.h - the connections between the supervisors of one elastic run on several hosts.
 *
 * One host leads, at first host 0, which listens at MASTER_ADDR:MASTER_PORT; each other host keeps
 * one connection to it.  A host that has lost its leader looks for another one among the hosts that
 * it knows, and accepts hosts that look for one.  Both sides prove that they know the token of the
 * job.  Later messages are neither encrypted nor signed.  Which workers are members is decided by
 * the leader alone (host_members.c).
 *
 * A host has one leader at a time: it follows another one only after it has given up the connection
 * to the former.  A connection that is given up while its host lives is not closed, so that the end
 * of a connection means the end of a process.
 *
 * Threads: used by the supervisor's thread only. */
#ifndef TTI_LAUNCH_HOSTS_H
#define TTI_LAUNCH_HOSTS_H

#include "launch/host_file.h"
#include "launch/host_link.h"
#include "launch/worker_env.h"
#include "tutti/launch.h"

/* The hosts of a run, from TUTTI_NODES and TUTTI_NODE_RANK. */
typedef struct tti_host_offset {
    int node, n_nodes; /* n_nodes 0: one host, as usual */
    int *n_workers;    /* [n_nodes], owned */
    int n_all;         /* their sum */
    int first_rank;    /* sum of those of the hosts before this one */
    int n_together;    /* each host has a multiple of so many members; set by the caller; 0: 1 */
} tti_host_offset;

/* On success the caller frees *out.  TUTTI_E_CONFIG: the variables are invalid; the message names
 * them.  get NULL: getenv. */
TUTTI_NODISCARD tutti_status tti_host_place_find(tti_getenv_fn get, void *user,
                                                 tti_host_offset *out);
void tti_host_place_free(tti_host_offset *place);

enum { TTI_HOST_NAME_BYTES = 256 };

typedef enum tti_host_loss {
    TTI_HOST_NOT_LOST,
    TTI_HOST_ENDED, /* its supervisor closed the connection: its workers are dead */
    TTI_HOST_SILENT /* its workers may live */
} tti_host_loss;

/* The state of another host as far as this one knows it.  A host that does not lead knows only its
 * leader. */
typedef struct tti_host {
    tti_host_link link;
    tti_host_message status; /* the last STATUS, PULSE or EPOCH; kind 0: none on this connection */
    tti_host_message epoch;  /* the last EPOCH; epoch 0: none */
    tti_host_table table;    /* of the last message that had one; n 0: there was none; owned */
    tti_host_loss loss;      /* since the last look of host_members.c */
    bool has_left;           /* it said so, or its workers are done */
    bool has_ended;          /* it said that the run has failed, with the text: */
    char text[TTI_HOST_TEXT_BYTES];
    char name[TTI_HOST_NAME_BYTES], address[TTI_HOST_PEER_BYTES]; /* "": never connected here */
    bool is_renamed;                                              /* since host_slots.c looked */
    bool is_dead;        /* it has ended, and its workers with it */
    uint64_t granted;    /* by this leader: the epoch that was sent on this connection; 0: none */
    bool said_changes;   /* in the last PULSE to it */
    int n_said_training; /* likewise */
    int n_asked, n_more; /* of the ASKs since the last look of host_members.c; 0: there was none */
} tti_host;

typedef struct tti_hosts tti_hosts;

/* Place and texts are copied. */
typedef struct tti_hosts_desc {
    tti_host_offset place;
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

const tti_host_offset *tti_hosts_place(const tti_hosts *hosts);
const char *tti_hosts_run_dir(const tti_hosts *hosts);
const char *tti_hosts_token(const tti_hosts *hosts);

/* Another host: on the leader any; on others the leader. */
tti_host *tti_hosts_get(tti_hosts *hosts, int node);

/* How a host file may name a host; this one is known at once, others since they have connected. */
tti_host_names tti_hosts_names(const tti_hosts *hosts, int node);

/* How long the workers of a host wait for hosts that do not answer, before the run fails. */
int tti_hosts_wait_ms(const tti_hosts *hosts);

/* Why another host does not let this host in; "": none has refused it. */
const char *tti_hosts_refusal(const tti_hosts *hosts);

/* The host that leads this one; its own node: it leads, or has lost its leader. */
int tti_hosts_leader(const tti_hosts *hosts);
/* Once the leader is lost: this host leads those that accept it. */
void tti_hosts_lead(tti_hosts *hosts);
/* Whether this host would follow another one that leads, or that has lost its leader as well and
 * has a later epoch, or the same one and a smaller number. */
void tti_hosts_seek(tti_hosts *hosts, bool seeks, uint64_t epoch);

/* The address at which rank 0 of an epoch listens if it is on that node: "HOST:FIRST-LAST". */
void tti_hosts_address(const tti_hosts *hosts, int node, char *out, size_t n_bytes);

/* Distinguishes epochs of all runs: for tutti_comm_desc.job. */
void tti_hosts_job(const tti_hosts *hosts, uint64_t epoch, char out[128]);

/* The numbers of this host: members of the epoch and targets, [n_nodes], at first 0 and those of
 * TUTTI_NODES.  Messages of the leader have both, and those to the leader the former. */
const tti_host_table *tti_hosts_table(const tti_hosts *hosts);
void tti_hosts_set_members(tti_hosts *hosts, const int32_t *members);
void tti_hosts_set_targets(tti_hosts *hosts, const int32_t *targets);

/* Sends without waiting; fills magic and node.  A connection that takes no more is lost. */
void tti_hosts_send(tti_hosts *hosts, tti_host *to, tti_host_message *m);
/* Whether a message to this host is due: so that it does not miss this one, or because the table
 * has changed. */
bool tti_hosts_is_due(const tti_hosts *hosts, const tti_host *to);

/* Adds a wish of a user to those before: n workers, if not 0, then more of them, or less. */
void tti_host_ask(int *n_asked, int *n_more, int n, int more);

/* The descriptors to wait for.  Returns their number, at most that of the second function. */
int tti_hosts_poll_fds(const tti_hosts *hosts, struct pollfd *fds);
int tti_hosts_most_fds(const tti_hosts *hosts);
/* tutti_launch for the workers of this host, which begin and end with those of the other hosts.
 * desc->n_workers are those of this host, and min_workers those of all.  hosts NULL: this host is
 * alone. */
TUTTI_NODISCARD tutti_status tti_launch_on_hosts(const tutti_launch_desc *desc, tti_hosts *hosts,
                                                 tutti_launch_result *out);

/* Accepts, connects, reads; finds lost hosts.  Never blocks. */
void tti_hosts_move(tti_hosts *hosts);

#endif /* TTI_LAUNCH_HOSTS_H */
