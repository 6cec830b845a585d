/* trainer.c - tutti_train: places workers as threads or processes, starts and ends them.
 *
 *   threads    this process runs all ranks, which share data sets and plan
 *   processes  this process supervises; each worker calls tutti_train again and finds its rank and
 *              its communicator in the environment
 * Under another launcher (mpirun, srun, torchrun) this process is a rank already. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/levels.h"
#include "base/affinity.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/files/atomic_file.h"
#include "comm/progress.h"
#include "data/dataset.h"
#include "launch/live.h"
#include "launch/rendezvous.h"
#include "launch/stop.h"
#include "launch/supervised.h"
#include "launch/watch.h"
#include "train/loop/async.h"
#include "train/loop/host_epoch.h"
#include "train/loop/mirror.h"
#include "train/loop/neighbors.h"
#include "train/loop/resume.h"
#include "train/loop/thread_epochs.h"
#include "train/loop/worker_loop.h"
#include "train/loop/worker_threads.h"
#include "train/model/model_choice.h"
#include "train/model/model_file.h"
#include "train/report/report.h"
#include "train/setup/agreement.h"
#include "train/setup/command.h"
#include "train/setup/host_group.h"
#include "train/setup/init_config.h"
#include "train/setup/kernels.h"
#include "train/setup/memory_check.h"
#include "train/setup/rehearsal.h"
#include "train/setup/resolved.h"
#include "train/setup/run_dir.h"
#include "train/setup/run_limits.h"
#include "train/setup/samples_record.h"
#include "train/setup/worker_exec.h"
#include "tutti/launch.h"

enum { DEVICE_GRACE_MS = 2000 }; /* NCCL needs this long to abort */

typedef struct trainer {
    tutti_job *job;
    const tutti_train_desc *desc;
    tutti_train_result *result;
    int64_t start_ns;
    tutti_worker_place place;
    bool on_devices;
    bool is_worker; /* started by a supervisor: this process is one rank */
    bool made_dir;  /* the run folder is new */
    char dir[512];  /* its full path: the program may change its current folder during the run */
    int lock;       /* lock of the run folder; -1: none */
    bool continues; /* continues from the newest checkpoint of the folder */
    char *yaml;     /* the resolved job */
    tti_model_copy *model_copy; /* copy of model.file that is being written to the run folder */
    tti_job_server server;      /* used by a job with a parameter server */
    tti_shared_params *shared_params; /* shared by worker threads; NULL: each worker has its own */
    tutti_comm *comm;                 /* under another launcher: connected before anything else */
    int core_rank, core_n_ranks;      /* under another launcher: this rank's part of its cores */
    int n_devices;                    /* devices of the workers of this machine together */
    int n_cores;               /* cores usable by this process, before its threads are pinned */
    tti_flight_memory *flight; /* the recorder of all ranks */
    tti_carry *carry;          /* set in a worker of an elastic run; else NULL */
    int slot;                  /* rank of this process on its host when it was started */
    int device_place;          /* selects the device of a worker of an elastic run */
    tti_host_layout hosts;     /* used by an elastic run on several hosts */
    tti_hosts *links;          /* links of its supervisor to the other supervisors; NULL: none */
} trainer;

/* ---- the run folder ---- */

static void run_name(const tutti_job *job, char *out, size_t n_bytes) {
    const char *base = tti_job_path(job) ? strrchr(tti_job_path(job), '/') : NULL;
    if (!tti_job_path(job)) {
        tutti_job_model_name(job, out, n_bytes);
        return;
    }
    snprintf(out, n_bytes, "%s", base ? base + 1 : tti_job_path(job));
    char *dot = strrchr(out, '.');
    if (dot && dot != out) *dot = '\0';
}

static tutti_status write_job(const trainer *t) {
    char path[700];
    snprintf(path, sizeof path, "%s/job.yaml", t->dir);
    return tti_atomic_file_save(path, t->yaml, strlen(t->yaml));
}

/* Checks the folder that the supervisor has created; a rank of `tutti launch` has none. */
static tutti_status find_own_dir(trainer *t) {
    const char *dir = tti_job_config_of(t->job)->run.dir;
    snprintf(t->result->run_dir, sizeof t->result->run_dir, "%s", dir);
    if (access(dir, F_OK) == 0) return TUTTI_OK;
    return tti_fail(
        TUTTI_E_CONFIG,
        "run.dir: there is no folder '%s', and tutti launch does not create it; start the run with "
        "tutti train -n %d parallel.place=processes, which starts its own ranks",
        dir, t->place.n_ranks);
}

/* Creates the folder, unless a supervisor has done so or the run is resumed. */
static tutti_status find_or_make_dir(trainer *t, bool *is_new) {
    char *dir = t->result->run_dir;
    size_t n_bytes = sizeof t->result->run_dir;
    *is_new = false;
    if (t->desc->resume) {
        if (!tti_run_dir_exists(t->desc->resume) || strlen(t->desc->resume) >= n_bytes)
            return tti_fail(TUTTI_E_CONFIG, "--resume %s: no run there (no metrics.jsonl)",
                            t->desc->resume);
        snprintf(dir, n_bytes, "%s", t->desc->resume);
        return TUTTI_OK;
    }
    bool found = t->comm && t->continues;
    if ((t->is_worker && !t->comm) || found) return find_own_dir(t);
    char name[128];
    run_name(t->job, name, sizeof name);
    *is_new = true;
    return tti_run_dir_create(tti_job_config_of(t->job)->run.dir, name, dir, n_bytes);
}

/* Finds the full path; messages use the path as given.  A path that is too long stays relative. */
static void find_full_dir(trainer *t) {
    char here[sizeof t->dir] = "";
    const char *dir = t->result->run_dir;
    bool joins = dir[0] != '/' && getcwd(here, sizeof here) &&
                 strlen(here) + 1 + strlen(dir) < sizeof t->dir;
    snprintf(t->dir, sizeof t->dir, "%s", joins ? here : dir);
    if (joins) strcat(strcat(t->dir, "/"), dir);
}

/* Creates and locks the folder, before anything is written to or removed from it.  The process that
 * starts workers holds the lock for them. */
static tutti_status make_own_dir(trainer *t) {
    const char *dir = t->result->run_dir;
    bool is_kept = t->is_worker && !t->comm, is_new;
    TTI_TRY(find_or_make_dir(t, &is_new));
    if (!is_kept) TTI_TRY(tti_run_dir_lock(dir, &t->lock));
    if (!is_new) return TUTTI_OK;
    if (tti_run_dir_exists(dir)) return tti_run_dir_refuse(dir); /* a run has just ended */
    t->made_dir = true;
    find_full_dir(t);
    return write_job(t);
}

/* Host 0 creates the folder for all hosts. */
static tutti_status make_dir_of_hosts(trainer *t, const tti_devices *devices) {
    const tti_job_config *c = tti_job_config_of(t->job);
    char *dir = t->result->run_dir;
    bool is_first = t->hosts.node == 0;
    if (is_first) TTI_TRY(make_own_dir(t));
    if (is_first) find_full_dir(t);
    char *yaml = tutti_job_print(t->job, false); /* with paths as the user wrote them */
    if (!yaml) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    tutti_status st = tti_host_group_open(&t->hosts, c, devices, yaml, dir, &t->links);
    free(yaml);
    if (st != TUTTI_OK) return st;
    if (is_first) return TUTTI_OK;
    snprintf(dir, sizeof t->result->run_dir, "%s", tti_hosts_run_dir(t->links));
    find_full_dir(t);
    if (access(dir, F_OK) == 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_CONFIG,
                    "run.dir: there is no folder '%s' on this host: give a path of storage that "
                    "all hosts share",
                    dir);
}

/* Under another launcher, rank 0 creates the folder for all ranks. */
static tutti_status make_run_dir(trainer *t) {
    tutti_status st = !t->comm || t->place.rank == 0 ? make_own_dir(t) : TUTTI_OK;
    if (t->comm) st = tti_agree_on_dir(t->comm, st, t->result->run_dir, sizeof t->result->run_dir);
    find_full_dir(t);
    return st;
}

/* ---- one rank ---- */

/* 0 disables the flight recorder, to measure its cost (bench/elastic_cost.py). */
#ifndef TUTTI_FLIGHT
#define TUTTI_FLIGHT 1
#endif

static tti_flight *flight_of(const trainer *t, int slot) {
    return TUTTI_FLIGHT ? tti_flight_of(t->flight, slot) : NULL;
}

/* From here on asynchronous workers in other processes may continue without this one. */
static tutti_status run_worker(const trainer *t, const tti_blueprint *b, tutti_comm *comm,
                               tutti_comm *progress, tti_server *server, int rank) {
    int local_rank = t->comm ? t->core_rank : rank;
    return tti_worker_loop_run(
        &(tti_worker_loop_desc){.blueprint = tti_blueprint_of(b, local_rank),
                                .train = t->desc,
                                .comm = comm,
                                .progress = progress,
                                .server = server,
                                .flight = flight_of(t, t->carry ? t->slot : rank),
                                .carry = t->carry,
                                .shared_params = t->shared_params,
                                .rank = rank,
                                .local_rank = local_rank,
                                .device_place = t->carry ? t->device_place : local_rank,
                                .local_n_ranks = t->comm ? t->core_n_ranks : b->n_workers,
                                .local_n_devices = t->n_devices,
                                .local_n_cores = t->n_cores,
                                .by_launcher = t->comm != NULL,
                                .run_dir = t->dir,
                                .given_dir = t->result->run_dir,
                                .job_yaml = t->yaml,
                                .model_copy = t->model_copy,
                                .resume = t->continues,
                                .start_ns = t->start_ns},
        t->result);
}

/* Runs a worker whose server is in the process of rank 0.  Workers with whole models have no other
 * connection. */
static tutti_status run_served(const trainer *t, const tti_blueprint *b, tutti_comm *comm,
                               int rank) {
    tti_job_server server;
    bool divided = b->n_model_ranks > 0;
    tutti_status st = tti_job_server_join(b, comm, &server);
    int n_needed = divided ? tti_mesh_n_model(&b->mesh) : tti_worker_n_range_servers(b);
    if (st == TUTTI_OK && comm && rank == 0) tti_worker_report_needed(n_needed);
    if (st == TUTTI_OK) st = run_worker(t, b, divided ? comm : NULL, comm, server.server, rank);
    if (st != TUTTI_OK && server.server) tti_server_abort(server.server, st, tutti_last_error());
    tti_job_server_destroy(&server);
    return st;
}

static tutti_status run_rank(const trainer *t, const tti_blueprint *b, tutti_comm_group *group,
                             int rank) {
    const tti_job_config *c = tti_job_config_of(t->job);
    tutti_comm *comm = t->comm;
    if (!comm && t->carry && b->n_workers == 1) /* gets notice of a worker that joins */
        TTI_TRY(tutti_comm_create(&(tutti_comm_desc){.group = group, .n_ranks = 1}, &comm));
    else if (!comm)
        TTI_TRY(tti_worker_threads_join(group, rank, b->n_workers, c, &comm));
    tutti_status st = TUTTI_OK;
    tti_comm_declare(comm, "loading the data");
    if (t->is_worker && comm) st = tti_agree_on_data(comm, b->train, b->test);
    if (st == TUTTI_OK)
        st = tti_job_server_is_joined(b, t->is_worker)
                 ? run_served(t, b, comm, rank)
                 : run_worker(t, b, comm, comm, t->server.server, rank);
    /* Report the failure to the other ranks, which wait for this one. */
    if (st != TUTTI_OK && group) tutti_comm_group_abort(group, rank, tutti_last_error());
    if (st != TUTTI_OK && t->server.server)
        tti_server_abort(t->server.server, st, tutti_last_error());
    if (comm != t->comm) tutti_comm_destroy(comm);
    return st;
}

static void warn(void *user, const char *text) {
    const trainer *t = user;
    tutti_event warning = {.kind = TUTTI_EVENT_WARNING, .text = text};
    if (t->desc->on_event) t->desc->on_event(t->desc->user, &warning);
}

/* ---- workers as threads ---- */

typedef struct threads {
    const trainer *t;
    const tti_blueprint *b;
    tutti_comm_group *group;
} threads;

static tutti_status run_thread(void *user, int rank) {
    const threads *all = user;
    return run_rank(all->t, all->b, all->group, rank);
}

static void report_stuck(void *user, tutti_status status, const char *text) {
    const trainer *t = ((const threads *)user)->t;
    t->desc->on_stuck(t->desc->user, status, text);
}

static bool find_busy(void *group, tti_str *what) { return tti_comm_group_find_busy(group, what); }

static tutti_status run_threads(const trainer *t, const tti_blueprint *b) {
    threads all = {.t = t, .b = b};
    TTI_TRY(tutti_comm_group_create(b->n_workers, &all.group));
    tti_server_watch_phases(
        t->server.server,
        &(tti_phase_watch){find_busy, all.group,
                           (int)tti_job_config_of(t->job)->parallel.phase_timeout_ms});
    tutti_status st = tti_worker_threads_run(
        &(tti_worker_threads_desc){.who = "train",
                                   .n = b->n_workers,
                                   .group = all.group,
                                   .run = run_thread,
                                   .user = &all,
                                   .on_stuck = t->desc->on_stuck ? report_stuck : NULL,
                                   .grace_ms = tti_job_config_of(t->job)->parallel.timeout_ms});
    tutti_comm_group_destroy(all.group);
    return st;
}

/* Runs one epoch of a worker thread in a run whose number of threads changes. */
static tutti_status run_thread_epoch(void *user, const tti_blueprint *b, tutti_comm_group *group,
                                     int rank, tti_carry *carry) {
    trainer own = *(const trainer *)user;
    own.carry = carry;
    own.slot = own.device_place = rank;
    return run_rank(&own, b, group, rank);
}

/* ---- workers as processes ---- */

static tutti_status run_as_worker(const trainer *t, const tti_blueprint *b) {
    tutti_comm_group *group;
    if (t->comm) return run_rank(t, b, NULL, t->place.rank);
    TTI_TRY(tutti_comm_group_open(t->place.comm_fd, &group));
    tutti_status st = run_rank(t, b, group, t->place.rank);
    tutti_comm_group_destroy(group);
    return st;
}

static tutti_status run_host_epoch(trainer *t, const tti_blueprint *b, const tti_epoch *epoch) {
    tti_host_epoch joined;
    t->carry->has_changed = epoch->number > 1;
    t->carry->epoch = epoch->number;
    t->carry->host_first = epoch->rank - epoch->local_rank;
    TTI_TRY(tti_host_epoch_join(epoch, tti_job_config_of(t->job), &joined));
    t->comm = joined.comm;
    t->core_rank = epoch->local_rank;
    t->core_n_ranks = epoch->n_local;
    tutti_status st = run_rank(t, b, NULL, epoch->rank);
    if (st != TUTTI_OK) tti_comm_abort(joined.comm, tutti_last_error());
    t->comm = NULL;
    tti_host_epoch_leave(&joined);
    return st;
}

/* Runs one epoch of an elastic run, in which the members and the group stay the same. */
static tutti_status run_epoch(trainer *t, const tti_blueprint *whole, const tti_epoch *epoch) {
    tutti_comm_group *group;
    const tti_blueprint b = tti_carry_blueprint(whole, epoch->n_ranks);
    t->place.rank = epoch->rank;
    t->device_place = epoch->place;
    if (t->hosts.n_nodes > 0) return run_host_epoch(t, &b, epoch);
    TTI_TRY(tutti_comm_group_open(epoch->group_fd, &group));
    tutti_status st = run_rank(t, &b, group, epoch->rank);
    tutti_comm_group_destroy(group);
    return st;
}

/* Waits for a place.  A worker that has joined no group, or whose replica has lost another worker,
 * waits until the run ends.  On several hosts the supervisor decides how long any worker waits. */
static tutti_status wait_for_place(const trainer *t, const tti_carry *carry, tti_epoch *epoch) {
    tti_flight *flight = flight_of(t, t->slot);
    int wait_ms = (int)tti_job_config_of(t->job)->parallel.phase_timeout_ms;
    bool may_be_left_over = tti_job_workers_of_model(tti_job_config_of(t->job)) > 1;
    bool may_be_spare =
        (tti_worker_joins() && !carry->at.has) || may_be_left_over || t->hosts.n_nodes > 0;
    tti_flight_enter(flight, may_be_spare ? TTI_FLIGHT_SPARE : "waiting for the next group");
    tutti_status st = tti_worker_next_epoch(may_be_spare ? -1 : wait_ms, epoch);
    tti_flight_leave(flight);
    return st;
}

/* After a loss every member leaves the group, and the supervisor creates the next one. */
static tutti_status run_elastic(trainer *t, const tti_blueprint *b) {
    tti_carry carry = {.has_changed = tti_worker_joins(),
                       .slot = t->slot,
                       .has_partitions = tti_worker_has_partitions(b)};
    int rank = t->place.rank, fd = t->place.comm_fd;
    tti_epoch epoch = {.rank = rank, .n_ranks = b->n_workers, .place = rank, .group_fd = fd};
    bool waits = carry.has_changed || t->hosts.n_nodes > 0; /* also before the first epoch */
    tutti_status st = TUTTI_OK;
    if (carry.has_partitions && b->config.parallel.mirror)
        TTI_TRY(tti_mirror_open(tti_worker_fd("TUTTI_MIRROR_FD"), b, &carry.mirror));
    t->carry = &carry;
    if (carry.has_changed) tti_rehearse(b, b->config.parallel.spares > 0 ? -1 : t->slot, warn, t);
    do {
        if (waits) st = wait_for_place(t, &carry, &epoch);
        if (st != TUTTI_OK) break;
        st = run_epoch(t, b, &epoch);
        carry.has_changed = waits = true;
    } while (st == TUTTI_E_PEER);
    tti_neighbors_destroy(carry.neighbors);
    tti_mirror_close(carry.mirror);
    tti_carry_end(&carry);
    t->carry = NULL;
    return st;
}

/* Half of the time after which the other workers time out. */
static int slow_phase_ms(const trainer *t) {
    return (int)(tti_job_config_of(t->job)->parallel.phase_timeout_ms / 2);
}

static tutti_status supervise(trainer *t) {
    char run_dir[600], log_dir[600], error_file[600], shards[48];
    char *argv[TTI_MAX_ARGV], *more[] = {run_dir, shards, NULL};
    TTI_TRY(tti_command_make("train", t->desc->worker_argv, more, argv));
    snprintf(run_dir, sizeof run_dir, "run.dir=%s", t->result->run_dir);
    snprintf(shards, sizeof shards, "parallel.shards=%d",
             (int)tti_job_config_of(t->job)->parallel.shards);
    char host[16] = "";
    bool is_other = t->hosts.n_nodes > 0 && t->hosts.node > 0;
    int n_here = t->hosts.n_nodes > 0 ? t->hosts.n_workers[t->hosts.node]
                                      : (int)tti_job_config_of(t->job)->parallel.workers;
    if (is_other) snprintf(host, sizeof host, "-host-%d", t->hosts.node);
    snprintf(log_dir, sizeof log_dir, "%s/log%s", t->dir, host);
    snprintf(error_file, sizeof error_file, "%s/error%s.json", t->dir, host);
    tutti_launch_result ended;
    TTI_TRY(tti_launch_on_hosts(
        &(tutti_launch_desc){
            .n_workers = n_here,
            .argv = argv,
            .grace_ms = t->on_devices ? DEVICE_GRACE_MS : 0,
            .log_dir = log_dir,
            .error_file = error_file,
            .max_restarts = (int)tti_job_config_of(t->job)->run.restarts,
            .min_workers = (int)tti_job_least_workers(tti_job_config_of(t->job)),
            .max_workers = (int)tti_job_most_workers(tti_job_config_of(t->job)),
            .host_file = *tti_job_config_of(t->job)->parallel.hostfile
                             ? tti_job_config_of(t->job)->parallel.hostfile
                             : NULL,
            .spares = (int)tti_job_config_of(t->job)->parallel.spares,
            .workers_per_replica = (int)tti_job_workers_of_model(tti_job_config_of(t->job)),
            .on_restart = warn,
            .on_leave = warn,
            .run_dir = t->dir,
            .on_hang = warn,
            .slow_phase_ms = slow_phase_ms(t),
            .user = t},
        t->links, &ended));
    t->result->exit_code = ended.exit_code;
    if (ended.exit_code == 130) t->result->stop_signal = SIGINT;
    if (ended.exit_code == 143) t->result->stop_signal = SIGTERM;
    if (ended.exit_code == 0 || t->result->stop_signal) return TUTTI_OK;
    if (!tti_run_dir_exists(t->dir)) return tti_fail(TUTTI_E_PEER, "%s", ended.text);
    return tti_fail(TUTTI_E_PEER, "%s; its last output is in %s/log", ended.text,
                    t->result->run_dir);
}

static tutti_status run_here(const trainer *t, const tti_blueprint *b) {
    if (b->config.parallel.min_workers > 0)
        return tti_thread_epochs_run(&(tti_thread_epochs_desc){.blueprint = b,
                                                               .flight = t->flight,
                                                               .run = run_thread_epoch,
                                                               .warn = warn,
                                                               .user = (void *)(uintptr_t)t});
    return b->n_workers > 1 ? run_threads(t, b) : run_rank(t, b, NULL, 0);
}

/* If there is no supervisor, a thread watches the ranks of this process. */
static tutti_status run_watched(trainer *t, const tti_blueprint *b) {
    tti_watch *watch;
    TTI_TRY(tti_watch_create(
        &(tti_watch_desc){
            .memory = t->flight, .phase_ms = slow_phase_ms(t), .report = warn, .user = t},
        &watch));
    tutti_status st = tti_watch_start(watch);
    if (st == TUTTI_OK) {
        st = run_here(t, b);
        tti_watch_stop(watch);
    }
    tti_watch_destroy(watch);
    return st;
}

/* ---- the call ---- */

/* Writes the report page.  A failure to write it does not fail the run. */
static void write_report(const trainer *t, const tti_blueprint *b) {
    if (t->desc->trial_ms > 0 || (t->is_worker && t->place.rank != 0)) return;
    const char *run_dir = t->dir;
    bool hurry = t->result->stop_signal != 0;
    tutti_status st =
        hurry ? tti_report_when_stopped(run_dir) : tti_report_at_end(t->job, b, run_dir);
    if (st == TUTTI_OK) return;
    tutti_event warning = {.kind = TUTTI_EVENT_WARNING, .text = tutti_last_error()};
    if (t->desc->on_event) t->desc->on_event(t->desc->user, &warning);
}

/* Ranks of another launcher may be on several hosts, so the link between hosts matters. */
static tutti_status make_blueprint(const trainer *t, const tti_blueprint **out) {
    int local_rank = t->comm ? t->core_rank : t->place.rank;
    tti_bucket_link link;
    if (!t->is_worker) return tti_blueprint_create(t->job, out);
    if (t->comm) TTI_TRY(tti_agree_on_link(t->comm, tti_job_config_of(t->job), &link));
    return tti_blueprint_create_for_rank(t->job, t->place.rank, local_rank, t->comm ? &link : NULL,
                                         out);
}

/* Rank 0 stores the data specification in the run folder before the first step.  A resumed run
 * compares its data with the stored one. */
static tutti_status keep_data_spec(const trainer *t, const tti_blueprint *b) {
    const char *dir = t->dir;
    char path[700];
    tti_data_spec *was;
    if (t->is_worker && t->place.rank != 0) return TUTTI_OK;
    snprintf(path, sizeof path, "%s/" TTI_DATA_SPEC_FILE, dir);
    if (access(path, F_OK) != 0) return tti_data_spec_save(tti_dataset_spec(b->train), dir);
    TTI_TRY(tti_data_spec_load(dir, &was));
    tutti_status st = tti_data_spec_compare(was, tti_dataset_spec(b->train));
    tti_data_spec_release(was);
    return st;
}

/* Rank 0 warns if sample files changed between two parts of the run. */
static tutti_status keep_samples_record(trainer *t, const tti_blueprint *b) {
    const tutti_samples *const *given = tti_job_config_of(t->job)->data.samples;
    char note[512];
    if ((t->is_worker && t->place.rank != 0) || given[TUTTI_TRAIN] || given[TUTTI_TEST])
        return TUTTI_OK;
    TTI_TRY(tti_samples_record_keep(t->dir, b->train, b->test, note, sizeof note));
    if (note[0]) warn(t, note);
    return TUTTI_OK;
}

/* Checks memory before any worker allocates; workers of other processes wait for this one. */
static tutti_status check_memory(const trainer *t, const tti_blueprint *b) {
    tti_memory_room room;
    int n_here = t->comm                ? t->core_n_ranks
                 : t->hosts.n_nodes > 0 ? t->hosts.n_workers[t->hosts.node]
                                        : b->n_workers;
    tti_memory_find_room("", &room);
    return tti_memory_check(b, t->is_worker ? t->place.rank : -1, n_here, &room);
}

static tutti_status print_job(trainer *t, const tti_blueprint *b) {
    char *yaml;
    TTI_TRY(tti_job_print_resolved(t->job, b, b ? t->dir : NULL, &yaml));
    free(t->yaml);
    t->yaml = yaml;
    return TUTTI_OK;
}

/* Writes the resolved job to the folder and keeps it for checkpoints.  Values of auto are known
 * once the data is open.  A resumed run keeps its job file. */
static tutti_status keep_job(trainer *t, const tti_blueprint *b) {
    TTI_TRY(print_job(t, b));
    if (t->continues || t->place.rank != 0 || tti_worker_joins()) return TUTTI_OK;
    char note[512];
    TTI_TRY(tti_model_file_keep(t->job, t->dir, note, sizeof note, &t->model_copy));
    if (note[0]) warn(t, note);
    return write_job(t);
}

static tutti_status train_here(trainer *t) {
    const tti_blueprint *b = NULL;
    tti_stop stop;
    TTI_TRY(tti_stop_shield(&stop));
    tti_comm_declare(t->comm, "loading the data");
    (void)TTI_FAULT_AT("train.load", t->place.rank, -1);
    tutti_status st = make_blueprint(t, &b);
    if (st == TUTTI_OK) st = tti_blueprint_check_trains(b);
    if (st == TUTTI_OK) st = check_memory(t, b);
    if (st == TUTTI_OK) st = keep_data_spec(t, b);
    if (st == TUTTI_OK) st = keep_samples_record(t, b);
    if (st == TUTTI_OK) st = keep_job(t, b);
    if (st != TUTTI_OK) {
        tti_model_copy_destroy(t->model_copy);
        tti_blueprint_destroy(b);
        tti_worker_report_failure(0, tutti_last_error());
        tti_stop_remove(&stop);
        return st;
    }
    t->result->n_workers = b->n_workers;
    t->result->n_shards = b->n_shards;
    t->result->step_flops = tti_program_flops(&b->plan->shard) * b->n_shards;
    /* Worker processes share no memory, so the first workers are the servers. */
    st = t->is_worker ? TUTTI_OK : tti_job_server_create(b, &t->server);
    if (st == TUTTI_OK && !t->is_worker) st = tti_worker_shared_params_create(b, &t->shared_params);
    if (st == TUTTI_OK) st = tti_stop_install(&stop);
    bool is_elastic = tti_job_config_of(t->job)->parallel.min_workers > 0 && t->place.comm_fd >= 0;
    if (st == TUTTI_OK)
        st = !t->is_worker ? run_watched(t, b)
             : is_elastic  ? run_elastic(t, b)
                           : run_as_worker(t, b);
    tti_stop_remove(&stop);
    tti_job_server_destroy(&t->server);
    tti_shared_params_destroy(t->shared_params);
    t->shared_params = NULL;
    if (st == TUTTI_OK) st = tti_model_copy_wait(t->model_copy);
    tti_model_copy_destroy(t->model_copy);
    if (st == TUTTI_OK) write_report(t, b);
    tti_blueprint_destroy(b);
    return st;
}

/* Connects the ranks of another launcher, prints the launcher and the transport in one line, and
 * checks that the ranks run the same job. */
static tutti_status connect_ranks(trainer *t, const tti_devices *devices) {
    tti_comm_place place;
    uint64_t identity = 0;
    char text[400];
    TTI_TRY(tti_rendezvous_join((int)tti_job_config_of(t->job)->parallel.timeout_ms,
                                (int)tti_job_config_of(t->job)->parallel.phase_timeout_ms,
                                &t->comm));
    tti_comm_get_place(t->comm, &place);
    snprintf(text, sizeof text, "%s; %d host%s, over %s", t->place.text, place.n_hosts,
             place.n_hosts == 1 ? "" : "s", place.transport);
    tutti_event event = {.kind = TUTTI_EVENT_START, .text = text};
    if (t->place.rank == 0 && t->desc->on_event) t->desc->on_event(t->desc->user, &event);
    TTI_TRY(tti_agree_on_job(t->comm, t->yaml));
    TTI_TRY(tti_agree_on_cores(t->comm, &t->core_rank, &t->core_n_ranks));
    if (devices->n > 0) { /* the local rank selects the device, independently of cores */
        t->core_rank = place.local_rank;
        t->core_n_ranks = place.local_n_ranks;
        int device = tti_devices_place(devices, place.local_rank);
        if (device != TTI_ON_HOST) identity = devices->backend->device->identity(device);
    }
    return tti_agree_on_devices(t->comm, identity, &t->n_devices);
}

/* True if this process only supervises: its workers are processes. */
static bool supervises(const trainer *t) {
    const tti_job_config *c = tti_job_config_of(t->job);
    bool many = c->parallel.workers > 1 || c->run.restarts > 0 || c->parallel.min_workers > 0;
    return many && !t->is_worker && strcmp(c->parallel.place, "processes") == 0;
}

/* Ranks of another launcher have their own recorders, because no process watches them. */
static tutti_status open_flight(trainer *t) {
    if (supervises(t)) return TUTTI_OK;
    TTI_TRY(tti_live_inherit(&t->flight));
    if (t->flight) return TUTTI_OK;
    const tti_job_config *c = tti_job_config_of(t->job);
    int most = (int)tti_job_most_workers(c);
    TTI_TRY(tti_flight_create(most, &t->flight));
    if (c->parallel.min_workers > 0)
        tti_flight_set_range(t->flight, (int)tti_job_least_workers(c), most,
                             (int)tti_job_workers_of_model(c));
    return t->place.rank == 0 ? tti_live_write(t->dir, -1, t->flight) : TUTTI_OK;
}

/* True in the process that prints warnings; with a supervisor that is the worker of rank 0. */
static bool prints_warnings(const trainer *t) { return !supervises(t) && t->place.rank == 0; }

/* Chooses the kernel level, before any kernel is prepared.  Processes of Tutti's supervisor run on
 * one machine, so each makes the same choice from the checkpoint. */
static tutti_status choose_kernels(const trainer *t, const tti_devices *devices) {
    const tti_job_config *c = tti_job_config_of(t->job);
    const char *run_dir = t->desc->resume ? t->desc->resume : t->continues ? c->run.dir : NULL;
    char notice[1024];
    TTI_TRY(tti_agree_on_kernels(&(tti_kernel_query){.comm = t->comm,
                                                     .devices = devices,
                                                     .local_rank = t->core_rank,
                                                     .n_workers = (int)c->parallel.workers,
                                                     .exact = tti_job_is_exact(c),
                                                     .run_dir = run_dir},
                                 notice, sizeof notice));
    if (!*notice || !prints_warnings(t) || !t->desc->on_event) return TUTTI_OK;
    tutti_event event = {.kind = TUTTI_EVENT_WARNING, .text = notice};
    t->desc->on_event(t->desc->user, &event);
    return TUTTI_OK;
}

/* Compares the job with the checkpoint before anything is written, because the job in the run
 * folder may have been edited or damaged. */
static tutti_status check_resumed_job(trainer *t) {
    tti_str notice = {0}, text = {0};
    if (!t->desc->resume) return TUTTI_OK;
    tutti_status st = tti_resume_check(t->job, t->desc->resume, &notice);
    if (st == TUTTI_OK && notice.n_bytes > 0 && prints_warnings(t)) {
        tti_str_printf(&text, "the run continues with other values than its checkpoint:%s",
                       tti_str_text(&notice));
        warn(t, tti_str_text(&text));
    }
    tti_str_free(&notice);
    tti_str_free(&text);
    return st;
}

/* Resumes if the folder has a run of exactly this job, because a launcher restarts its ranks with
 * the same command.  Only rank 0 checks, because other ranks may not have the folder yet. */
static tutti_status look_for_own_run(trainer *t) {
    double found[2] = {tti_launcher_restarted(), 0};
    found[1] = t->place.rank == 0 && tti_resume_is_own(tti_job_config_of(t->job)->run.dir, t->yaml);
    TTI_TRY(tutti_comm_all_reduce(t->comm, found, found, 2, TUTTI_F64, TUTTI_MAX, TUTTI_ALG_AUTO));
    t->continues = found[0] > 0 && found[1] > 0;
    return TUTTI_OK;
}

/* Uses the launcher's number of workers if the job sets none, and in a resumed run instead of the
 * number in its folder. */
static tutti_status take_workers_of_launcher(const trainer *t) {
    char text[24];
    int n_all = t->hosts.n_all;
    if (n_all > 0) {
        snprintf(text, sizeof text, "%d", n_all);
        if (tti_job_config_of(t->job)->parallel.workers <= 0)
            tti_options_put(tti_job_options(t->job), "parallel.workers", text, "TUTTI_NODES");
        return TUTTI_OK;
    }
    TTI_TRY(tti_run_limits_check_launcher(t->place.n_ranks, t->place.text));
    if (tti_job_config_of(t->job)->parallel.workers > 0 && !t->desc->resume) return TUTTI_OK;
    snprintf(text, sizeof text, "%d", t->place.n_ranks);
    tti_options_put(tti_job_options(t->job), "parallel.workers", text, "the launcher");
    tti_job_free_copies(t->job, "the launcher");
    return TUTTI_OK;
}

/* Checks that this process can start and replace the workers, as an elastic run requires. */
static tutti_status check_elastic(const trainer *t, bool foreign) {
    bool on_hosts = t->hosts.n_nodes > 0;
    if (tti_job_config_of(t->job)->parallel.min_workers == 0 && !on_hosts) return TUTTI_OK;
    if (foreign)
        return tti_fail(TUTTI_E_CONFIG,
                        "parallel.min_workers: an elastic run starts its workers itself (tutti "
                        "train -n N), and another launcher started this one: %s",
                        t->place.text);
    return on_hosts ? tti_host_group_check(&t->hosts, tti_job_config_of(t->job)) : TUTTI_OK;
}

static tutti_status prepare(trainer *t) {
    TTI_TRY(tutti_worker_detect(&t->place));
    bool foreign = t->place.n_ranks > 1 && t->place.comm_fd < 0;
    TTI_TRY(tti_host_layout_find(NULL, NULL, &t->hosts));
    if (foreign || t->hosts.n_nodes > 0) TTI_TRY(take_workers_of_launcher(t));
    tti_devices devices;
    TTI_TRY(tti_devices_resolve(t->job, &devices));
    t->on_devices = devices.n > 0;
    TTI_TRY(tutti_job_check(t->job));
    /* A resumed run has its weights and no longer needs the folder of model.init. */
    bool has_init = access(tti_job_config_of(t->job)->model.init, F_OK) == 0;
    if (!t->desc->resume || has_init) TTI_TRY(tti_init_config_apply(t->job));
    TTI_TRY(tti_job_resolve(t->job, foreign     ? t->place.n_ranks
                                    : devices.n ? devices.n
                                                : tti_cores_usable()));
    const tti_job_config *c = tti_job_config_of(t->job);
    TTI_TRY(tti_run_limits_check(c, !foreign && t->hosts.n_nodes == 0));
    TTI_TRY(check_elastic(t, foreign));
    bool alone_too = c->run.restarts > 0 || c->parallel.min_workers > 0;
    t->is_worker = t->place.n_ranks > 1 || (alone_too && t->place.comm_fd >= 0);
    t->continues = t->desc->resume || tti_worker_restarted();
    t->slot = tti_worker_slot(t->place.rank - t->hosts.first_rank);
    TTI_TRY(tti_worker_init());
    if (t->is_worker && tti_job_config_of(t->job)->parallel.workers != t->place.n_ranks)
        return tti_fail(TUTTI_E_CONFIG, "parallel.workers is %lld, but the launcher says: %s",
                        (long long)tti_job_config_of(t->job)->parallel.workers, t->place.text);
    t->yaml = tutti_job_print(t->job, false);
    if (!t->yaml) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    TTI_TRY(tti_cpu_check_levels());
    t->n_devices = devices.n;
    t->n_cores = tti_cores_usable();
    if (foreign) TTI_TRY(connect_ranks(t, &devices));
    /* Not earlier: ranks compare the job with paths as given, but the run folder gets absolute
     * paths, because ranks may run in different directories.  Messages keep the paths as given. */
    TTI_TRY(print_job(t, NULL));
    TTI_TRY(check_resumed_job(t));
    int n_here = foreign                ? t->core_n_ranks
                 : t->hosts.n_nodes > 0 ? t->hosts.n_workers[t->hosts.node]
                                        : (int)c->parallel.workers;
    TTI_TRY(tti_devices_check_sharing(c, &devices, n_here, t->n_devices));
    if (foreign && !t->desc->resume) TTI_TRY(look_for_own_run(t));
    TTI_TRY(choose_kernels(t, &devices));
    if (t->hosts.n_nodes > 0 && !t->is_worker) return make_dir_of_hosts(t, &devices);
    return make_run_dir(t);
}

tutti_status tutti_train(tutti_job *job, const tutti_train_desc *desc, tutti_train_result *result) {
    TTI_TRY(tti_need(job, __func__, "job"));
    TTI_TRY(tti_need(result, __func__, "result"));
    static const tutti_train_desc defaults;
    *result = (tutti_train_result){0};
    trainer t = {.job = job,
                 .desc = desc ? desc : &defaults,
                 .result = result,
                 .lock = -1,
                 .start_ns = tti_now_ns()};
    (void)TTI_FAULT("train.begin");
    tutti_status st = prepare(&t);
    if (st == TUTTI_OK) st = open_flight(&t);
    if (st == TUTTI_OK) st = supervises(&t) ? supervise(&t) : train_here(&t);
    st = tti_job_say_where(job, st);
    if (st != TUTTI_OK && t.comm) tti_comm_abort(t.comm, tutti_last_error());
    tutti_comm_destroy(t.comm);
    if (t.flight && t.lock >= 0) tti_live_remove(t.dir, -1);
    tti_flight_close(t.flight);
    if (st != TUTTI_OK && t.made_dir) tti_run_dir_discard(t.dir);
    if (st != TUTTI_OK && result->exit_code == 0) result->exit_code = tutti_status_exit_code(st);
    if (st == TUTTI_OK && result->stop_signal) result->exit_code = 128 + result->stop_signal;
    tti_hosts_close(t.links);
    tti_host_layout_free(&t.hosts);
    tti_run_dir_unlock(t.lock);
    free(t.yaml);
    (void)TTI_FAULT(t.is_worker ? "train.worker_ended" : "train.ended");
    return st;
}
