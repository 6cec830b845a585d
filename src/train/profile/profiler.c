/* profiler.c - tutti_profile: times a few ordinary steps of a job, part by part.
 *
 * Workers are threads or processes, as in training, each with its part of the batch and the model.
 * Rank 0 prints their spans when all have ended. */
#include "tutti/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/affinity.h"
#include "base/files/atomic_file.h"
#include "base/files/plain_file.h"
#include "launch/supervised.h"
#include "train/job/load_weights.h"
#include "train/job/numerics.h"
#include "train/loop/async.h"
#include "train/loop/worker_threads.h"
#include "train/profile/profile_trace.h"
#include "train/profile/profile_worker.h"
#include "train/setup/command.h"
#include "train/setup/init_config.h"
#include "train/setup/worker_exec.h"
#include "tutti/launch.h"

enum { N_WARM = 4, N_TIMED = 3 };

/* The common data of all workers; rank 0 writes the figures. */
typedef struct profiler {
    tutti_job *job;
    const tutti_profile_desc *desc;
    tutti_worker_place place;
    bool is_worker; /* this process is one rank of several */
    const tti_blueprint *b;
    tutti_comm_group *group; /* NULL: a single worker */
    tti_job_server server;   /* server of worker threads */
    tti_shared_params *shared_params;
    tti_profiled profile;
} profiler;

/* ---- one worker ---- */

static tti_profile_worker_desc describe(const profiler *p, tutti_comm *comm, int rank) {
    int n_warm = p->desc->n_warm > 0 ? p->desc->n_warm : N_WARM;
    return (tti_profile_worker_desc){.b = p->b,
                                     .comm = comm,
                                     .server = p->server.server,
                                     .shared_params = p->shared_params,
                                     .rank = rank,
                                     .n_warm = n_warm,
                                     .n_steps = p->desc->n_steps > 0 ? p->desc->n_steps : N_TIMED};
}

/* Runs a worker with a server; on failure sends its error text to the other workers of the
 * server. */
static tutti_status run_served(profiler *p, tutti_comm *comm, int rank) {
    tti_profile_worker_desc desc = describe(p, comm, rank);
    tti_job_server server;
    tutti_status st = tti_job_server_join(p->b, comm, &server);
    desc.server = server.server;
    if (st == TUTTI_OK)
        st = tti_profile_worker_run(&desc, &p->profile.ranks[rank], &p->profile.ceilings);
    if (st != TUTTI_OK && server.server) tti_server_abort(server.server, st, tutti_last_error());
    tti_job_server_destroy(&server);
    return st;
}

static tutti_status run_rank(profiler *p, int rank) {
    tutti_comm *comm;
    TTI_TRY(tti_worker_threads_join(p->group, rank, p->b->n_workers, &p->b->config, &comm));
    const tti_profile_worker_desc desc = describe(p, comm, rank);
    tutti_status st =
        tti_job_server_is_joined(p->b, p->is_worker)
            ? run_served(p, comm, rank)
            : tti_profile_worker_run(&desc, &p->profile.ranks[rank], &p->profile.ceilings);
    if (st == TUTTI_OK && p->is_worker) st = tti_spans_gather(comm, p->profile.ranks);
    if (st != TUTTI_OK && p->group) tutti_comm_group_abort(p->group, rank, tutti_last_error());
    if (st != TUTTI_OK && p->server.server)
        tti_server_abort(p->server.server, st, tutti_last_error());
    tutti_comm_destroy(comm);
    return st;
}

/* ---- workers as threads ---- */

static tutti_status run_worker(void *user, int rank) { return run_rank(user, rank); }

static tutti_status run_threads(profiler *p) {
    int n = p->b->n_workers;
    tutti_status st = tti_job_server_create(p->b, &p->server);
    if (st == TUTTI_OK) st = tti_worker_shared_params_create(p->b, &p->shared_params);
    if (st == TUTTI_OK && n > 1) st = tutti_comm_group_create(n, &p->group);
    if (st == TUTTI_OK)
        st = tti_worker_threads_run(&(tti_worker_threads_desc){
            .who = "profile", .n = n, .group = p->group, .run = run_worker, .user = p});
    tti_job_server_destroy(&p->server);
    tti_shared_params_destroy(p->shared_params);
    return st;
}

/* ---- workers as processes ---- */

static tutti_status read_text(const char *path, char **text) {
    tti_str out = {0};
    char part[4096];
    int fd;
    TTI_TRY(tti_plain_file_open(path, O_RDONLY, &fd));
    FILE *file = fdopen(fd, "r");
    if (!file) {
        close(fd);
        return tti_fail(TUTTI_E_IO, "profile: no table in %s: %s", path, strerror(errno));
    }
    for (size_t n; (n = fread(part, 1, sizeof part, file)) > 0;) tti_str_add_bytes(&out, part, n);
    bool ok = !ferror(file) && !out.failed && out.text;
    fclose(file);
    if (!ok) tti_str_free(&out);
    *text = out.text;
    return ok ? TUTTI_OK : tti_fail(TUTTI_E_IO, "profile: %s cannot be read", path);
}

static tutti_status launch(const profiler *p, char *const *more) {
    char *argv[TTI_MAX_ARGV];
    tutti_launch_result ended;
    TTI_TRY(tti_command_make("profile", p->desc->worker_argv, more, argv));
    TTI_TRY(tutti_launch(
        &(tutti_launch_desc){.n_workers = (int)tti_job_config_of(p->job)->parallel.workers,
                             .argv = argv},
        &ended));
    if (ended.exit_code == 0) return TUTTI_OK;
    /* Return the status of the worker that failed first; its message was printed before. */
    for (int st = 1; st < TUTTI_N_STATUS; st++)
        if (tutti_status_exit_code((tutti_status)st) == ended.exit_code)
            return tti_fail((tutti_status)st, "profile: %s", ended.text);
    return tti_fail(TUTTI_E_PEER, "profile: %s", ended.text);
}

static tutti_status run_and_read(const profiler *p, char *const *more, const char *table,
                                 char **text) {
    TTI_TRY(launch(p, more));
    return read_text(table, text);
}

static tutti_status supervise(const profiler *p, char **text) {
    const char *tmp = getenv("TMPDIR");
    char path[512], option[] = "--table", *more[] = {option, path, NULL};
    if (p->desc->table_path) /* the command already has this option */
        return run_and_read(p, &more[2], p->desc->table_path, text);
    snprintf(path, sizeof path, "%.480s/tutti-profile-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    int fd = mkstemp(path);
    if (fd < 0) return tti_fail(TUTTI_E_IO, "profile: %s: %s", path, strerror(errno));
    close(fd);
    tutti_status st = run_and_read(p, more, path, text);
    unlink(path);
    return st;
}

/* ---- printing ---- */

static tutti_status save_trace(const profiler *p, const char *path) {
    tti_str trace = {0};
    tti_profile_trace(&p->profile, &trace);
    tutti_status st = trace.failed ? tti_fail(TUTTI_E_NOMEM, "profile: out of memory")
                                   : tti_atomic_file_save(path, trace.text, trace.n_bytes);
    tti_str_free(&trace);
    return st;
}

static tutti_status write_profile(const profiler *p, char **text) {
    tti_str out = {0};
    tutti_status st = tti_profile_table(&p->profile, &out);
    if (st == TUTTI_OK && p->desc->trace_path) st = save_trace(p, p->desc->trace_path);
    if (st == TUTTI_OK && out.failed) st = tti_fail(TUTTI_E_NOMEM, "profile: out of memory");
    if (st == TUTTI_OK && p->desc->table_path)
        st = tti_atomic_file_save(p->desc->table_path, out.text, out.n_bytes);
    bool is_read = p->is_worker &&
                   p->desc->table_path; /* the process that started the workers reads this file */
    if (st != TUTTI_OK || is_read) tti_str_free(&out);
    *text = out.text;
    return st;
}

/* ---- the call ---- */

/* True if another key sets the number of workers. */
static bool has_workers(const tti_job_config *c) {
    return c->parallel.workers != -1 || c->parallel.data > 0 ||
           tti_load_weights_kind_of(c) == TTI_LOAD_WEIGHTS_GIVEN;
}

/* Resolves the job, with one replica unless the job sets the number of workers. */
static tutti_status resolve(tutti_job *job) {
    tti_devices devices;
    char workers[24];
    TTI_TRY(tutti_job_check(job));
    TTI_TRY(tti_init_config_apply(job));
    if (*tti_job_config_of(job)->parallel.replay)
        return tti_fail(TUTTI_E_CONFIG, "profile: cannot replay a run; leave out parallel.replay");
    bool mixed = tti_devices_mixed_from(tti_job_config_of(job)->parallel.devices) > 0;
    int n_model =
        (int)(tti_job_config_of(job)->parallel.tensor * tti_job_config_of(job)->parallel.pipeline);
    snprintf(workers, sizeof workers, "%d", n_model);
    if (!has_workers(tti_job_config_of(job)) && !mixed)
        tti_options_put(tti_job_options(job), "parallel.workers", workers,
                        "profile, unless -n gives more");
    TTI_TRY(tti_devices_resolve(job, &devices));
    TTI_TRY(tti_job_resolve(job, mixed ? devices.n : n_model));
    return tti_devices_check_sharing(tti_job_config_of(job), &devices,
                                     (int)tti_job_config_of(job)->parallel.workers, devices.n);
}

static tutti_status find_place(profiler *p) {
    TTI_TRY(tutti_worker_detect(&p->place));
    p->is_worker = p->place.n_ranks > 1;
    if (!p->is_worker) return TUTTI_OK;
    if (p->place.comm_fd < 0)
        return tti_fail(TUTTI_E_CONFIG,
                        "profile: it starts its own workers on this machine; give -n %d "
                        "parallel.place=processes without a launcher (%s)",
                        p->place.n_ranks, p->place.text);
    return tti_worker_init();
}

static tutti_status profile_here(profiler *p, char **text) {
    int rank = p->place.rank;
    TTI_TRY(p->is_worker ? tti_blueprint_create_for_rank(p->job, rank, rank, NULL, &p->b)
                         : tti_blueprint_create(p->job, &p->b));
    int n = p->b->n_workers;
    p->profile.max_rows = p->desc->max_rows > 0 ? p->desc->max_rows : 25;
    p->profile.n_ranks = n;
    p->profile.shown = p->desc->rank;
    p->profile.devices = &p->b->places;
    p->profile.mesh = p->b->mesh;
    p->profile.ranks = calloc((size_t)n, sizeof *p->profile.ranks);
    if (!p->profile.ranks) return tti_fail(TUTTI_E_NOMEM, "profile: out of memory");
    if (p->profile.shown < 0 || p->profile.shown >= n)
        return tti_fail(TUTTI_E_CONFIG, "profile: there is no rank %d of %d", p->profile.shown, n);
    if (p->is_worker) {
        if (n != p->place.n_ranks)
            return tti_fail(TUTTI_E_CONFIG, "parallel.workers is %d, but the launcher reports: %s",
                            n, p->place.text);
        TTI_TRY(tutti_comm_group_open(p->place.comm_fd, &p->group));
        TTI_TRY(run_rank(p, p->place.rank));
    } else
        TTI_TRY(run_threads(p));
    return p->is_worker && rank > 0 ? TUTTI_OK : write_profile(p, text);
}

tutti_status tutti_profile(tutti_job *job, const tutti_profile_desc *desc, char **text) {
    TTI_TRY(tti_need(job, __func__, "job"));
    TTI_TRY(tti_need(text, __func__, "text"));
    static const tutti_profile_desc defaults;
    profiler p = {.job = job, .desc = desc ? desc : &defaults};
    *text = NULL;
    tutti_status st = find_place(&p);
    if (st == TUTTI_OK) st = resolve(job);
    bool processes = strcmp(tti_job_config_of(job)->parallel.place, "processes") == 0;
    bool supervises = processes && tti_job_config_of(job)->parallel.workers > 1 && !p.is_worker;
    if (st == TUTTI_OK) st = supervises ? supervise(&p, text) : profile_here(&p, text);
    for (int r = 0; p.profile.ranks && r < p.profile.n_ranks; r++)
        tti_spans_free(&p.profile.ranks[r]);
    free(p.profile.ranks);
    tutti_comm_group_destroy(p.group);
    tti_blueprint_destroy(p.b);
    return tti_job_say_where(job, st);
}

static tutti_status measure_ceilings(tutti_job *job, double *flops, double *bytes) {
    tti_devices devices;
    tti_target target = {0};
    tti_ceilings ceilings;
    TTI_TRY(tti_devices_resolve(job, &devices));
    TTI_TRY(tti_job_resolve(job, devices.n ? devices.n : tti_cores_usable()));
    tti_numerics_target(tti_job_config_of(job), &target);
    const tti_device_ops *ops = devices.backend->device;
    bool tf32 = strcmp(tti_job_config_of(job)->train.precision, "tf32") == 0;
    if (ops)
        TTI_TRY(ops->open(&(tti_device_desc){.index = tti_devices_first(&devices), .tf32 = tf32}));
    tutti_status st = tti_ceilings_measure(devices.backend, target.compute_dtype, &ceilings);
    if (ops) ops->close();
    *flops = ceilings.flops, *bytes = ceilings.bytes;
    return st;
}

tutti_status tutti_measure_ceilings(tutti_job *job, double *flops, double *bytes) {
    TTI_TRY(tti_need(job, __func__, "job"));
    TTI_TRY(tti_need(flops, __func__, "flops"));
    TTI_TRY(tti_need(bytes, __func__, "bytes"));
    return tti_job_say_where(job, measure_ceilings(job, flops, bytes));
}
