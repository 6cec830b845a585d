/* hosts.h - connects the supervisors of an elastic run on several hosts.
 *
 * One host is the leader, at first host 0, which listens at MASTER_ADDR:MASTER_PORT; each other
 * host keeps one connection to it.  A host that has lost its leader looks for another one among the
 * hosts that it knows, and accepts connections of hosts that look for one.  Both sides prove that
 * they know the token of the job.  Later messages are neither encrypted nor signed.  Only the
 * leader decides which workers are members (host_members.c).
 *
 * A host has one leader at a time: it follows another one only after it has abandoned the
 * connection to the previous one.  An abandoned connection is not closed while its process lives,
 * so that the end of a connection always means the end of a process.
 *
 * Threads: used by the supervisor's thread only. */
#ifndef TTI_LAUNCH_HOSTS_H
#define TTI_LAUNCH_HOSTS_H

#include "launch/host_file.h"
#include "launch/host_link.h"
#include "launch/worker_env.h"
#include "tutti/launch.h"

/* The hosts of a run, from TUTTI_NODES and TUTTI_NODE_RANK. */
typedef struct tti_host_layout {
    int node, n_nodes; /* n_nodes 0: a run on one host */
    int *n_workers;    /* [n_nodes], owned */
    int n_all;         /* sum of n_workers */
    int first_rank;    /* sum of n_workers of the hosts before this one */
    int n_together; /* the members of each host are a multiple of this; set by the caller; 0: 1 */
} tti_host_layout;

/* Reads the place from the environment.  On success the caller frees *out.  TUTTI_E_CONFIG: the
 * variables are invalid; the message names them. get NULL: getenv. */
TUTTI_NODISCARD tutti_status tti_host_layout_find(tti_getenv_fn get, void *user,
                                                  tti_host_layout *out);
void tti_host_layout_free(tti_host_layout *place);

enum { TTI_HOST_NAME_BYTES = 256 };

typedef enum tti_host_loss {
    TTI_HOST_NOT_LOST,
    TTI_HOST_ENDED, /* its supervisor's connection has ended: its workers are dead */
    TTI_HOST_SILENT /* no messages: its workers may be alive */
} tti_host_loss;

/* The known state of another host.  A host that is not the leader knows only the state of its
 * leader. */
typedef struct tti_host {
    tti_host_link link;
    tti_host_message status; /* the last STATUS, PULSE or EPOCH; kind 0: none on this connection */
    tti_host_message epoch;  /* the last EPOCH; epoch 0: none */
    tti_host_table table;    /* table of the last message that had one; n 0: none; owned */
    tti_host_loss loss;      /* set since the last check of host_members.c */
    bool has_left;           /* it has reported this, or its workers are done */
    bool has_ended;          /* it has reported that the run has failed, with this text: */
    char text[TTI_HOST_TEXT_BYTES];
    char name[TTI_HOST_NAME_BYTES],
        address[TTI_HOST_PEER_BYTES]; /* "": it has never connected to this host */
    bool is_renamed;     /* the name has changed since the last check of host_slots.c */
    bool is_dead;        /* the host and its workers have ended */
    uint64_t granted;    /* epoch that this leader has sent on this connection; 0: none */
    bool sent_changes;   /* value of `changes` in the last PULSE to it */
    int n_sent_training; /* value of n_training in the last PULSE to it */
    int n_asked, n_more; /* from ASK messages since the last check of host_members.c; 0: none */
} tti_host;

typedef struct tti_hosts tti_hosts;

/* Place and texts are copied by tti_hosts_open. */
typedef struct tti_hosts_desc {
    tti_host_layout place;
    const char *host; /* MASTER_ADDR */
    int port;         /* MASTER_PORT; rank 0 of an epoch uses one of the 16 after it */
    const char *token;
    const char *job;     /* the job's text, equal on all hosts */
    const char *machine; /* kernels and libraries; equal on all hosts */
    const char *run_dir; /* run folder of host 0 */
} tti_hosts_desc;

/* Host 0 listens; the others connect to it and receive the run folder, within timeout_ms.  On
 * success *out is owned by the caller.  TUTTI_E_CONFIG: the address is unusable, or host 0 refuses
 * this host; TUTTI_E_TIMEOUT: host 0 did not answer. */
TUTTI_NODISCARD tutti_status tti_hosts_open(const tti_hosts_desc *desc, int timeout_ms,
                                            tti_hosts **out);
void tti_hosts_close(tti_hosts *hosts);

const tti_host_layout *tti_hosts_place(const tti_hosts *hosts);
const char *tti_hosts_run_dir(const tti_hosts *hosts);
const char *tti_hosts_token(const tti_hosts *hosts);

/* Returns another host: on the leader any host, on other hosts only the leader. */
tti_host *tti_hosts_get(tti_hosts *hosts, int node);

/* The names by which a host file may refer to a host.  They are known for this host, and for others
 * once they have connected. */
tti_host_names tti_hosts_names(const tti_hosts *hosts, int node);

/* Returns the time in ms that the workers of a host wait for hosts that do not answer, before the
 * run fails. */
int tti_hosts_wait_ms(const tti_hosts *hosts);

/* The reason why another host has refused this host; "": none has. */
const char *tti_hosts_refusal(const tti_hosts *hosts);

/* The node of this host's leader; its own node: it is the leader, or has lost its leader. */
int tti_hosts_leader(const tti_hosts *hosts);
/* Makes this host the leader of the hosts that accept it, after the leader was lost. */
void tti_hosts_lead(tti_hosts *hosts);
/* Sets whether this host seeks a leader.  Then it follows a leader, or a host that has also lost
 * its leader and has a later epoch, or the same epoch and a smaller node number. */
void tti_hosts_seek(tti_hosts *hosts, bool seeks, uint64_t epoch);

/* Writes the address at which rank 0 of an epoch listens if it is on that node:
 * "HOST:FIRST-LAST". */
void tti_hosts_address(const tti_hosts *hosts, int node, char *out, size_t n_bytes);

/* Writes a text that is unique for each epoch of each run, for tutti_comm_desc.job. */
void tti_hosts_job(const tti_hosts *hosts, uint64_t epoch, char out[128]);

/* The table of this host: members of the epoch, at first 0, and targets, at first those of
 * TUTTI_NODES, [n_nodes] each.  Messages from the leader contain both, messages to the leader only
 * members. */
const tti_host_table *tti_hosts_table(const tti_hosts *hosts);
void tti_hosts_set_members(tti_hosts *hosts, const int32_t *members);
void tti_hosts_set_targets(tti_hosts *hosts, const int32_t *targets);

/* Sends without blocking; fills magic and node.  If the buffer of the connection is full, the host
 * is lost. */
void tti_hosts_send(tti_hosts *hosts, tti_host *to, tti_host_message *m);
/* True if a message to this host is due, as a sign of life or because the table has changed. */
bool tti_hosts_is_due(const tti_hosts *hosts, const tti_host *to);

/* Adds a request of a user to earlier ones: n workers unless n is 0, then `more` additional ones
 * (negative: fewer). */
void tti_host_request(int *n_asked, int *n_more, int n, int more);

/* Fills fds with the descriptors to poll and returns their number, at most tti_hosts_most_fds. */
int tti_hosts_poll_fds(const tti_hosts *hosts, struct pollfd *fds);
int tti_hosts_most_fds(const tti_hosts *hosts);
/* Like tutti_launch, for the workers of this host, which start and end together with those of the
 * other hosts. desc->n_workers counts workers of this host, min_workers those of all hosts. hosts
 * NULL: a run on this host only. */
TUTTI_NODISCARD tutti_status tti_launch_on_hosts(const tutti_launch_desc *desc, tti_hosts *hosts,
                                                 tutti_launch_result *out);

/* Accepts connections, connects, reads messages, and detects lost hosts.  Never blocks. */
void tti_hosts_move(tti_hosts *hosts);

#endif /* TTI_LAUNCH_HOSTS_H */
