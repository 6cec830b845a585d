/* supervisor_state.h - the state of a supervisor, shared by supervisor.c (events), members.c
 * (members of an elastic run), host_members.c and host_slots.c (the same on several hosts). */
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
    int pidfd;   /* -1: not supported by the kernel, SIGCHLD is used */
    int control; /* the supervisor's end of the socket pair, -1: closed */
    bool alive;
    bool is_left;    /* the others continue without it, and this was reported */
    bool is_stopped; /* stopped by a signal, for stopped_ns so far */
    siginfo_t stop;
    tti_patience patience;
    int64_t stopped_ns;
    tti_reported_failure reported;
    int64_t started_ns; /* when its process was started */
    int64_t ready_ns;   /* when it was first ready */
    bool is_ready;      /* waits for the next epoch */
    bool trains;        /* has loaded data and kernels for the current epoch */
    bool joins;         /* is not a member yet */
    bool is_dropped;    /* must leave because the user requested fewer workers */
    bool is_excluded;   /* computes wrong results, see reported, and is not restarted */
    int place;          /* place of a member: selects its device during its life; -1: none yet */
    uint64_t seniority; /* lower: has been a member for longer */
    int64_t respawn_ns; /* time of the next start; INT64_MAX: none */
} tti_supervised;

/* The state of a run on several hosts, as known on this host. */
typedef struct tti_host_epochs {
    uint64_t epoch;   /* the current one; 0: the first has not begun */
    int64_t begun_ns; /* when it began */
    int n_short;      /* number of consecutive epochs that ended soon although no worker was lost */
    int n_ranks;      /* ranks of the current epoch */
    int n_asked, n_more;   /* requests of users that were not sent to the leader yet; 0: none */
    int64_t leaderless_ns; /* when this host lost its leader; 0: never */
    int64_t suspended_ns;  /* time since which this host waits for others; 0: it does not wait */
    tti_host_message last_status; /* the last STATUS */
    tti_host_file file;           /* the host file */
    char *file_text;              /* text of its last version; NULL: none; owned */
    int32_t *numbers;             /* arrays with a number per host (host_members.c); owned */
    bool joins;                   /* the other hosts train, and this host was in no epoch yet */
    bool trains;                  /* all members of the current epoch, on all hosts, train */
    bool has_left;                /* this host has no worker, and the others continue */
    bool has_ended;               /* the other hosts know that the run of this host has ended */
} tti_host_epochs;

typedef struct tti_supervisor {
    const tti_supervisor_desc *desc;
    tti_supervisor_report report;
    tti_supervised *workers; /* [n_slots] */
    int n_slots;             /* maximum number of workers at a time, including spares */
    int n_target;            /* wanted number of members */
    int n_more;              /* change of n_target requested by signals */
    int n_alive;
    const sigset_t *worker_mask;
    bool changes;       /* members are leaving the broken group */
    int64_t changes_ns; /* time since which changes is set */
    bool is_done;       /* a worker has finished or stopped, so no worker joins any more */
    int n_respawned;
    int n_doubled;        /* doublings of the pause before the last restart */
    int64_t respawned_ns; /* when the last restart was planned */
    uint64_t n_joined;    /* number of members so far */
    tti_relay *relay;
    struct pollfd *fds;
    int signal_fd;
    int64_t grace_ns, give_up_ns, most_stopped_ns;

    tti_severity severity; /* severity of the cause in report */
    uint64_t batch;        /* counts checks of the workers */
    uint64_t cause_batch;  /* batch of events in which the cause was found */
    int64_t failed_ns;     /* INT64_MAX: no failure */
    bool term_sent, kill_sent;
    int64_t kill_ns;    /* when SIGKILL was sent to all */
    int forwarded;      /* forwarded signal, 0: none */
    int64_t stop_ns;    /* time of the user's first stop request, INT64_MAX: none */
    int stop_exit_code; /* exit code of the first worker that stopped in order */
    int user_kill;      /* the user's second signal, 0: none */
    bool was_left;      /* a forwarded signal ended a worker, and on_failure was called for it */
    int n_needed;       /* workers with this rank or a higher one may die */
    int64_t
        oom_kills[2];  /* counts of this machine: one to two OOM_EVERY_MS ago, and the latest one */
    int64_t oom_ns;    /* when the latest count was read */
    int64_t looked_ns; /* when on_look was last called */
    tti_host_epochs host; /* used in a run on several hosts */
} tti_supervisor;

/* Sends sig to the process group of a worker if it is alive. */
void tti_supervisor_signal(const tti_supervised *w, int sig);
void tti_supervisor_close(int *fd);
/* Fails the run with exit code 5 and this text, although no worker failed. */
void tti_supervisor_fail(tti_supervisor *s, const char *text);
/* Starts the worker of a slot. joins: it joins a group that already trains. */
TUTTI_NODISCARD tutti_status tti_supervisor_start(tti_supervisor *s, int rank, bool joins);

/* ---- members.c ---- */

/* tti_members_may_lose: true if the others can continue without a worker that a signal ended or
 * stopped. tti_members_lose: continues without it. */
bool tti_members_may_lose(const tti_supervisor *s, int rank);
void tti_members_lose(tti_supervisor *s, int rank, const siginfo_t *info);

/* Ends the newest workers, or starts new ones, until their number is the requested one. */
void tti_members_scale(tti_supervisor *s);
/* Restarts workers whose pause is over. */
void tti_members_respawn(tti_supervisor *s);
/* Starts the next epoch, with joining workers, once all members have left the group. */
void tti_members_change(tti_supervisor *s);
/* Breaks the group, so that its members leave it. rank and text: the reason. */
void tti_members_begin_change(tti_supervisor *s, int rank, const char *text);
/* True if every member has left its group; kills late ones. */
bool tti_members_have_left(tti_supervisor *s);
/* Makes spares members until there are n_most members; true if a spare became a member. */
bool tti_members_admit(tti_supervisor *s, int n_most);
/* Makes the newest members spares until there are n_most members; all wait for an epoch. */
void tti_members_retire(tti_supervisor *s, int n_most);
/* Makes members spares if their replica or tensor group on this host is incomplete. */
void tti_members_retire_parts(tti_supervisor *s);
/* Rounds n down to complete units that must be on one host: replicas or tensor groups. */
int tti_members_on_host(const tti_supervisor *s, int n);
/* Rounds n down to whole replicas. */
int tti_members_in_replicas(const tti_supervisor *s, int n);
/* Sends each member its rank, counting from the rank in epoch. */
void tti_members_start_epoch(tti_supervisor *s, const tti_epoch_message *epoch);
int tti_members_count(const tti_supervisor *s);
/* The number of members that train; the others still load data and kernels for the current epoch.
 */
int tti_members_training(const tti_supervisor *s);
/* The number of workers that are loaded and wait for a place. */
int tti_members_spares(const tti_supervisor *s);
/* True if spares that could join wait for workers that are still loading, so that one change of
 * membership is enough for all. */
bool tti_members_gather(const tti_supervisor *s);
/* For reports to other hosts: the number of workers that are loading, and true if a loaded worker
 * would still wait. */
int tti_members_starting(const tti_supervisor *s);
bool tti_members_are_patient(const tti_supervisor *s);
/* True if the run is ending and no worker joins any more. */
bool tti_members_are_final(const tti_supervisor *s);
/* Notifies the workers that wait for an epoch that the run ends. */
void tti_members_dismiss(tti_supervisor *s);

/* ---- host_members.c: for runs on several hosts ---- */

/* Initializes s->host.  Call it before the first worker is started. */
TUTTI_NODISCARD tutti_status tti_host_members_begin(tti_supervisor *s);
/* Returns the number of workers that this host should have; the leader decides. n_asked: total
 * number that a user of this host requests for all hosts; n_more: replicas to add; 0: no
 * request. */
int tti_host_members_scale(tti_supervisor *s, int n_asked, int n_more);
/* On the leader, applies the host file when it changes.  Other hosts only keep its text. */
void tti_host_slots_look(tti_supervisor *s);
/* tti_members_change */
void tti_host_members_change(tti_supervisor *s);
/* The known number of members on other hosts, without those that become spares; 0: there are no
 * other hosts. */
int tti_host_members_elsewhere(const tti_supervisor *s);
/* True if a host without workers waits for one that is being restarted. */
bool tti_host_members_wait(const tti_supervisor *s);
/* Reports to the other hosts how the run of this host ended. */
void tti_host_members_end(tti_supervisor *s);

#endif /* TTI_LAUNCH_SUPERVISOR_STATE_H */
