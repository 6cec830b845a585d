/* supervisor_state.h - the state of a supervisor, for the files that share its work: supervisor.c
 * (events), members.c (who is a member of an elastic run). */
#ifndef TTI_LAUNCH_SUPERVISOR_STATE_H
#define TTI_LAUNCH_SUPERVISOR_STATE_H

#include <poll.h>
#include <signal.h>

#include "base/patience.h"
#include "launch/cause.h"
#include "launch/host_file.h"
#include "launch/hosts.h"
#include "launch/relay.h"
#include "launch/supervisor.h"

typedef struct tti_supervised {
    pid_t pid;
    int pidfd;   /* -1: not supported here, SIGCHLD does */
    int control; /* our end of the socket pair, -1: closed */
    bool alive;
    bool is_left;    /* the others continue without it, and that has been said */
    bool is_stopped; /* by a signal, for stopped_ns so far */
    siginfo_t stop;
    tti_patience patience;
    int64_t stopped_ns;
    tti_reported_failure reported;
    int64_t started_ns; /* when its process was started, .. */
    int64_t ready_ns;   /* .. and when it was first ready */
    bool is_ready;      /* waits for the next epoch */
    bool trains;        /* has loaded what it needs in the current one */
    bool joins;         /* is not a member yet */
    bool is_dropped;    /* the user asks for fewer workers */
    bool is_excluded;   /* it computes wrongly, as reported says, and is not started again */
    int place;          /* of a member: selects its device, as long as it lives; -1: none yet */
    uint64_t seniority; /* lower: has been a member for longer */
    int64_t respawn_ns; /* time of the next start; INT64_MAX: none */
} tti_supervised;

/* The epochs of a run on several hosts, as this host knows them. */
typedef struct tti_host_epochs {
    uint64_t epoch;        /* the current one; 0: the first has not begun */
    int64_t begun_ns;      /* when it began */
    int n_short;           /* epochs one after the other that ended soon, with no worker lost */
    int n_ranks;           /* of the current epoch */
    int n_asked, n_more;   /* as users asked, which the leader has not heard; 0: nothing */
    int64_t leaderless_ns; /* when this host lost its leader; 0: never */
    int64_t suspended_ns;  /* since when this host waits for others; 0: it does not */
    tti_host_message said; /* the last STATUS */
    tti_host_file file;    /* how many workers each host should have .. */
    char *file_text;       /* .. by its last version; NULL: there was none; owned */
    int32_t *numbers;      /* room for numbers of each host (host_members.c); owned */
    bool joins;            /* the others train, and this host was in no epoch yet */
    bool trains;           /* all members of the current epoch do, on all hosts */
    bool has_left;         /* this host has no worker, and the others continue */
    bool has_ended;        /* the others know that the run of this host has ended */
} tti_host_epochs;

typedef struct tti_supervisor {
    const tti_supervisor_desc *desc;
    tti_supervisor_report report;
    tti_supervised *workers; /* [n_slots] */
    int n_slots;             /* most workers at once, with spares */
    int n_target;            /* members, as far as there are workers */
    int n_more;              /* as signals ask for: more than n_target, or less */
    int n_alive;
    const sigset_t *worker_mask;
    bool changes;       /* members are leaving the broken group */
    int64_t changes_ns; /* since when */
    bool is_done;       /* a worker has ended, with success or stopped: no worker joins any more */
    int n_respawned;
    int n_doubled;        /* of the pause before the last one */
    int64_t respawned_ns; /* when that was planned */
    uint64_t n_joined;    /* members so far */
    tti_relay *relay;
    struct pollfd *fds;
    int signal_fd;
    int64_t grace_ns, give_up_ns, most_stopped_ns;

    tti_severity severity; /* of the cause in report */
    uint64_t batch;        /* counts looks at the workers */
    uint64_t cause_batch;  /* batch of events in which the cause was found */
    int64_t failed_ns;     /* INT64_MAX: no failure */
    bool term_sent, kill_sent;
    int64_t kill_ns;      /* when SIGKILL was sent to all */
    int forwarded;        /* signal that was passed on, 0: none */
    int64_t stop_ns;      /* when the user asked first, INT64_MAX: never */
    int stop_exit_code;   /* of the first worker that stopped in order */
    int user_kill;        /* the second signal of the user, 0: none */
    bool was_left;        /* a signal that we forwarded ended a worker, and the others know */
    int n_needed;         /* workers from this one on may die */
    int64_t oom_kills[2]; /* of this machine one to two OOM_EVERY_MS ago, and since then */
    int64_t oom_ns;       /* when the latter was read */
    int64_t looked_ns;    /* when on_look was called */
    tti_host_epochs host; /* of a run on several hosts */
} tti_supervisor;

/* Sends sig to the process group of a worker that lives. */
void tti_supervisor_signal(const tti_supervised *w, int sig);
void tti_supervisor_close(int *fd);
/* The run fails with exit code 5 and this text, although no worker failed. */
void tti_supervisor_fail(tti_supervisor *s, const char *text);
/* Starts the worker of a slot, which joins others that train. */
TUTTI_NODISCARD tutti_status tti_supervisor_start(tti_supervisor *s, int rank, bool joins);

/* ---- members.c ---- */

/* True if the others can continue without a worker that a signal ended or stopped; lose: they do.
 */
bool tti_members_may_lose(const tti_supervisor *s, int rank);
void tti_members_lose(tti_supervisor *s, int rank, const siginfo_t *info);

/* Ends the newest workers, or starts others, until there are as many as a user asks for. */
void tti_members_scale(tti_supervisor *s);
/* Starts workers again whose pause is over. */
void tti_members_respawn(tti_supervisor *s);
/* Starts the next epoch once all members have left the group, with those that join. */
void tti_members_change(tti_supervisor *s);
/* Breaks the group, so that its members leave it. */
void tti_members_begin_change(tti_supervisor *s, int rank, const char *text);
/* Whether every member has left its group; kills late ones. */
bool tti_members_have_left(tti_supervisor *s);
/* Spares take free places until there are n_most members; true if one did. */
bool tti_members_admit(tti_supervisor *s, int n_most);
/* The newest members become spares until there are n_most; all wait for an epoch. */
void tti_members_retire(tti_supervisor *s, int n_most);
/* Members that this host cannot have without others become spares. */
void tti_members_retire_parts(tti_supervisor *s);
/* n without the workers that a host cannot have without others: those of a part of a replica that
 * is on one host. */
int tti_members_on_host(const tti_supervisor *s, int n);
/* n without the workers that cannot form a whole replica. */
int tti_members_in_replicas(const tti_supervisor *s, int n);
/* Gives each member its rank, from that of epoch on. */
void tti_members_start_epoch(tti_supervisor *s, const tti_epoch_message *epoch);
int tti_members_count(const tti_supervisor *s);
/* Members that train: the others still load what they need in the current epoch. */
int tti_members_training(const tti_supervisor *s);
/* Workers that are loaded and wait for a place. */
int tti_members_spares(const tti_supervisor *s);
/* Whether those of them that could join wait for others that are still loading, so that one change
 * is enough for all. */
bool tti_members_gather(const tti_supervisor *s);
/* For other hosts: workers that are loading, and whether one that is loaded would still wait. */
int tti_members_starting(const tti_supervisor *s);
bool tti_members_are_patient(const tti_supervisor *s);
/* True if no worker joins any more: the run ends. */
bool tti_members_are_final(const tti_supervisor *s);
/* Tells the workers that wait for an epoch that the run ends. */
void tti_members_dismiss(tti_supervisor *s);

/* ---- host_members.c: for runs on several hosts ---- */

/* Before the first worker is started. */
TUTTI_NODISCARD tutti_status tti_host_members_begin(tti_supervisor *s);
/* How many workers this host should have.  n_asked: as many a user of this host asks for on all
 * hosts, or for n_more replicas than so far; 0: for neither.  The host that leads decides. */
int tti_host_members_scale(tti_supervisor *s, int n_asked, int n_more);
/* Follows the host file when it changes; on the host that leads.  Others keep its text. */
void tti_host_slots_look(tti_supervisor *s);
/* tti_members_change */
void tti_host_members_change(tti_supervisor *s);
/* Members on other hosts, without those that become spares, as far as they are known; 0: there are
 * no other hosts. */
int tti_host_members_elsewhere(const tti_supervisor *s);
/* Whether a host without workers waits for one that is started again. */
bool tti_host_members_wait(const tti_supervisor *s);
/* Tells the other hosts how the run of this one ended. */
void tti_host_members_end(tti_supervisor *s);

#endif /* TTI_LAUNCH_SUPERVISOR_STATE_H */
