/* async.c - an asynchronous worker: takes a batch and pushes its gradient, until all workers
 * synchronize at the end of a stretch. */
#include "train/loop/async.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "train/loop/arrivals.h"
#include "train/setup/worker_exec.h"

/* ---- the server of a job ---- */

static tutti_status read_replay(const tti_blueprint *b, tti_job_server *out, int64_t *n) {
    const char *replay = b->config.parallel.replay;
    *n = 0;
    if (!*replay) return TUTTI_OK;
    return tti_arrivals_read(b, replay, tti_async_next_stop, &out->replay, n);
}

static bool find_busy(void *comm, tti_str *what) { return tti_comm_find_busy(comm, what); }

static tti_phase_watch watch(const tti_blueprint *b, tutti_comm *comm) {
    return (tti_phase_watch){find_busy, comm, (int)b->config.parallel.phase_timeout_ms};
}

static tutti_status create(const tti_blueprint *b, bool spans, tti_job_server *out) {
    int64_t n;
    *out = (tti_job_server){0};
    if (!tti_job_has_server(&b->config) || b->n_model_ranks > 0) return TUTTI_OK;
    TTI_TRY(read_replay(b, out, &n));
    tutti_status st = tti_worker_server_create(b, spans, out->replay, n, &out->server);
    if (st != TUTTI_OK) tti_job_server_destroy(out);
    return st;
}

tutti_status tti_job_server_create(const tti_blueprint *b, tti_job_server *out) {
    return create(b, false, out);
}

bool tti_job_server_is_joined(const tti_blueprint *b, bool by_processes) {
    return tti_worker_n_range_servers(b) > 0 && (by_processes || b->n_model_ranks > 0);
}

/* Rank 0, which orders the updates, reads the arrivals to replay. */
static tutti_status join_divided(const tti_blueprint *b, tutti_comm *comm, tti_job_server *out) {
    int64_t n = 0;
    int rank = tutti_comm_rank(comm);
    if (rank == 0) TTI_TRY(read_replay(b, out, &n));
    tti_server_desc desc = tti_worker_server_desc(b, true, out->replay, n);
    desc.exec.plan = tti_blueprint_plan(b, rank % tti_mesh_n_model(&b->mesh));
    desc.watch = watch(b, comm);
    tutti_status st = tti_server_create_divided(&desc, comm, &b->mesh, &out->server);
    if (st != TUTTI_OK) tti_job_server_destroy(out);
    return st;
}

tutti_status tti_job_server_join(const tti_blueprint *b, tutti_comm *comm, tti_job_server *out) {
    *out = (tti_job_server){0};
    if (b->n_model_ranks > 0) return join_divided(b, comm, out);
    if (!comm) return tti_job_server_create(b, out);
    if (tutti_comm_rank(comm) != 0) {
        tti_server_desc desc = tti_worker_server_desc(b, true, NULL, 0);
        desc.watch = watch(b, comm);
        return tti_server_connect(&desc, comm, &out->server);
    }
    const tti_phase_watch watched = watch(b, comm);
    TTI_TRY(create(b, true, out));
    tti_server_watch_phases(out->server, &watched);
    return tti_server_admit(out->server, comm);
}

void tti_job_server_destroy(tti_job_server *s) {
    tti_server_destroy(s->server);
    free(s->replay);
    *s = (tti_job_server){0};
}

/* ---- stretches ---- */

static int64_t next_multiple(int64_t step, int64_t every) { return (step / every + 1) * every; }

int64_t tti_async_next_stop(const tti_blueprint *b, int64_t step) {
    const tti_job_config *c = &b->config;
    int64_t next = b->n_steps, every = c->run.checkpoint_every;
    if (every > 0) next = TTI_MIN(next, next_multiple(step, every));
    if (every == 0) next = TTI_MIN(next, next_multiple(step, b->steps_per_epoch));
    if (c->train.eval_every > 0)
        next = TTI_MIN(next, next_multiple(step, b->steps_per_epoch * c->train.eval_every));
    return next;
}

/* Removes this worker after its own failure, without ending the run: the others continue. */
static tutti_status leave(const tti_async_desc *d, tutti_status st) {
    char why[512];
    bool is_own = st == TUTTI_E_INTERNAL || st == TUTTI_E_NOMEM || st == TUTTI_E_IO;
    snprintf(why, sizeof why, "%s", tutti_last_error());
    if (!is_own || !tti_server_leave(d->exec, why)) return tti_fail(st, "%s", why);
    tti_clear_error();
    return TUTTI_OK;
}

/* Handles a skipped update: if neither the loss scale caused it nor train.on_nan=skip allows it,
 * the run fails. */
static tutti_status handle_skipped(const tti_async_desc *d, double scale, const tti_arrival *a) {
    bool skipped = a->result.skipped, overflow = false;
    if (d->scale) {
        d->scale->scale = scale; /* a replayed step may have had another scale */
        overflow = tti_loss_scale_handles(d->scale, skipped);
    }
    if (!skipped || overflow || strcmp(d->b->config.train.on_nan, "skip") == 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_NUMERICS,
                    "step %lld: the loss or the gradient of batch %lld is not finite; the "
                    "parameters are as before this step.  train.on_nan=skip skips such steps",
                    (long long)a->step, (long long)a->batch);
}

/* Computes and pushes the gradient of a batch, and measures its time. */
static tutti_status one_batch(const tti_async_desc *d, const tti_lease *lease) {
    tti_batch batch;
    tti_arrival arrival;
    int64_t start = tti_now_ns();
    double scale = lease->loss_scale > 0 ? lease->loss_scale : d->scale ? d->scale->scale : 1;
    tti_loader_seek(d->loader, lease->batch / d->b->steps_per_epoch,
                    lease->batch % d->b->steps_per_epoch);
    TTI_TRY(tti_phases_next_batch(d->phases, d->loader, &batch));
    int first = tti_exec_first_shard(d->exec);
    for (int i = 0; i < batch.n_shards; i++) d->shards[i] = tti_shard_of(&batch, i, first);
    tti_step_desc step = {.step = (uint64_t)lease->batch,
                          .shards = d->shards,
                          .shard_size = d->b->rows_per_shard,
                          .n_rows = batch.n_rows_global,
                          .loss_scale = scale};
    tti_feeding_describe(d->loader, &step);
    tti_pushed_gradient pushed = {&step, batch.wait_ns, d->lr, d->user};
    TTI_TRY(tti_server_push_gradient(d->exec, &pushed, &arrival));
    int64_t spent = tti_now_ns() - start;
    if (arrival.step == 0) return TUTTI_OK; /* the gradient arrived too late and was dropped */
    tti_step_result *r = &arrival.result;
    r->comm_ns = spent - batch.wait_ns - r->compute_ns - r->update_ns;
    tti_times_add(d->times, r, batch.wait_ns, spent);
    return handle_skipped(d, scale, &arrival);
}

/* Reports skipped updates of all workers.  Updates that were skipped because of the loss scale are
 * only counted. */
static tutti_status report_skipped(const tti_async_desc *d, const tti_arrival *a) {
    char text[160];
    const tti_loss_scale own = {.scale = a->loss_scale, .dynamic = d->scale && d->scale->dynamic};
    if (!a->result.skipped) return TUTTI_OK;
    ++*d->n_left_out;
    bool is_wanted = strcmp(d->b->config.train.on_nan, "skip") == 0;
    if (!is_wanted || !tti_loss_scale_is_blameless(&own)) return TUTTI_OK;
    snprintf(text, sizeof text,
             "step %lld: the loss or the gradient of batch %lld is not finite, and was left out",
             (long long)a->step, (long long)a->batch);
    return tti_reporter_skip(d->reporter, d->n_skipped, text);
}

/* Rank 0 reports the updates of all workers, with fractions of time averaged over workers. */
static tutti_status report_updates(const tti_async_desc *d) {
    tti_arrival a;
    tti_leave left;
    if (!d->reporter->active) return TUTTI_OK;
    while (tti_server_next(tti_exec_server(d->exec), &a)) {
        tti_batch batch = {.n_rows_global = a.n_rows, .wait_ns = a.wait_ns / d->b->mesh.data};
        a.result.compute_ns /= d->b->mesh.data;
        TTI_TRY(tti_reporter_go_on(d->reporter, tti_arrivals_write(d->b, d->arrivals, &a)));
        TTI_TRY(report_skipped(d, &a));
        TTI_TRY(tti_reporter_step(d->reporter, a.step, a.lr, &a.result, &batch));
    }
    while (tti_server_next_leave(tti_exec_server(d->exec), &left))
        TTI_TRY(tti_reporter_left(d->reporter, &left));
    return TUTTI_OK;
}

static tutti_status max_of_all(const tti_async_desc *d, int64_t *values, size_t n) {
    tti_members members;
    if (tti_server_has_processes(tti_exec_server(d->exec)))
        return tti_server_combine(d->exec, TTI_COMBINE_MAX, values, (int)n, &members);
    if (!d->comm) return TUTTI_OK;
    return tutti_comm_all_reduce(d->comm, values, values, n, TUTTI_I64, TUTTI_MAX, TUTTI_ALG_AUTO);
}

tutti_status tti_async_connect(tti_exec *exec, tutti_comm *comm) {
    tti_members members;
    if (tti_server_has_processes(tti_exec_server(exec)))
        return tti_server_combine(exec, TTI_COMBINE_MAX, NULL, 0, &members);
    return comm ? tutti_comm_barrier(comm) : TUTTI_OK;
}

/* Sends the current parameters and optimizer state to all workers, and sets the lowest of their
 * loss scales, a power of two, on all of them. */
static tutti_status synchronize(const tti_async_desc *d, int64_t *step, int64_t *requested) {
    uint64_t hash;
    TTI_TRY(max_of_all(d, requested, 1)); /* after this all pushed gradients are applied */
    TTI_TRY(tti_server_pull(d->exec, step));
    TTI_TRY(tti_exec_whole_hash(d->exec, &hash));
    bool dynamic = d->scale && d->scale->dynamic;
    int64_t ends[4] = {(int64_t)hash, (int64_t)~hash};
    if (dynamic) ends[2] = -ilogb(d->scale->scale), ends[3] = -d->scale->n_good;
    TTI_TRY(max_of_all(d, ends, 4));
    if (dynamic) d->scale->scale = ldexp(1, (int)-ends[2]), d->scale->n_good = (int)-ends[3];
    if (ends[0] == ~ends[1]) return TUTTI_OK;
    return tti_fail(TUTTI_E_MISMATCH,
                    "step %lld: the parameters pulled from the server differ between workers",
                    (long long)*step);
}

static tutti_status ask_to_stop(const tti_async_desc *d, int64_t *requested) {
    *requested = *requested || d->wants_stop(d->user);
    /* In a replay, checks that it has reached the end of its stretch. */
    if (!*requested || *d->b->config.parallel.replay) return TUTTI_OK;
    return tti_server_stop(tti_exec_server(d->exec));
}

static tutti_status take_batches(const tti_async_desc *d, int64_t *requested) {
    while (!tti_server_has_left(d->exec)) {
        tti_lease lease;
        TTI_TRY(ask_to_stop(d, requested));
        TTI_TRY(tti_server_lease(d->exec, &lease));
        if (!lease.any) return TUTTI_OK;
        tutti_status st = one_batch(d, &lease);
        if (st != TUTTI_OK) TTI_TRY(leave(d, st));
        TTI_TRY(report_updates(d));
    }
    return TUTTI_OK;
}

/* Called by a worker that has left: on rank 0 it reports for the others, then it takes part in the
 * synchronization. */
static tutti_status report_until_stop(const tti_async_desc *d, int64_t *requested) {
    int64_t n_updates = -1;
    for (bool over = false; !over;) {
        TTI_TRY(ask_to_stop(d, requested));
        TTI_TRY(tti_server_watch(d->exec, &n_updates, &over));
        TTI_TRY(report_updates(d));
    }
    return TUTTI_OK;
}

/* Reports the range and the traffic of each server. */
static tutti_status report_range_servers(const tti_async_desc *d, int64_t step) {
    tti_server *server = tti_exec_server(d->exec);
    tti_range_traffic *held;
    int n;
    if (!tti_server_has_processes(server)) return TUTTI_OK;
    TTI_TRY(tti_server_range_traffic(server, &held, &n));
    tutti_status st = tti_reporter_range_servers(d->reporter, step, held, n);
    free(held);
    return st;
}

/* Reports counters other than steps. */
static tutti_status report_counts(const tti_async_desc *d, int64_t step) {
    tti_server *server = tti_exec_server(d->exec);
    int64_t bins[TTI_STALENESS_BINS];
    if (!d->reporter->active) return TUTTI_OK;
    TTI_TRY(report_range_servers(d, step));
    if (d->b->config.parallel.backup_workers > 0) {
        int64_t *dropped = calloc((size_t)d->b->n_workers, sizeof *dropped);
        if (!dropped) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
        tti_server_dropped(server, dropped);
        tutti_status st = tti_reporter_dropped(d->reporter, step, dropped);
        free(dropped);
        return st;
    }
    tti_server_staleness(server, bins);
    return tti_reporter_staleness(d->reporter, step, bins, *d->n_left_out);
}

static tutti_status train_stretch(const tti_async_desc *d, int64_t *step, bool *stopped) {
    int64_t requested = 0;
    tti_server *server = tti_exec_server(d->exec);
    tti_server_rate(server, d->lr, d->user);
    TTI_TRY(
        tti_async_connect(d->exec, d->comm)); /* afterwards the server has the initial parameters */
    TTI_TRY(tti_server_open(server, *step, tti_async_next_stop(d->b, *step)));
    TTI_TRY(take_batches(d, &requested));
    if (tti_server_has_left(d->exec)) TTI_TRY(report_until_stop(d, &requested));
    TTI_TRY(synchronize(d, step, &requested));
    *stopped = requested;
    TTI_TRY(report_updates(d));
    TTI_TRY(tti_reporter_go_on(d->reporter, tti_arrivals_flush(d->arrivals)));
    return report_counts(d, *step);
}

tutti_status tti_async_run(const tti_async_desc *d, int64_t *step, bool *stopped) {
    tti_server *server = tti_exec_server(d->exec);
    tutti_status st = train_stretch(d, step, stopped);
    /* Workers of other processes continue to update until they receive the stop, so d keeps
     * reporting their rate. */
    if (st != TUTTI_OK && tti_server_has_processes(server) && !tti_async_leaves(d->exec, st))
        tti_server_abort(server, st, tutti_last_error());
    return st;
}

bool tti_async_leaves(tti_exec *exec, tutti_status st) {
    char why[512];
    snprintf(why, sizeof why, "%s", tutti_last_error());
    if (!exec || !tti_exec_server(exec)) return false;
    bool leaves = tti_server_leave_replica(exec, st, why);
    (void)tti_fail(st, "%s", why);
    return leaves;
}

/* ---- evaluation ---- */

/* Sums f64 values over all workers. */
static tutti_status sum_of_all(tti_exec *exec, tutti_comm *comm, double *all, size_t n,
                               tti_worker_set *members) {
    memset(members, 0xff, sizeof *members);
    if (!exec || !tti_server_has_processes(tti_exec_server(exec))) {
        if (!comm) return TUTTI_OK;
        return tutti_comm_all_reduce(comm, all, all, n, TUTTI_F64, TUTTI_SUM, TUTTI_ALG_AUTO);
    }
    for (size_t at = 0; at < n; at += TTI_COMBINE_VALUES) {
        tti_members there;
        int n_now = (int)TTI_MIN(n - at, (size_t)TTI_COMBINE_VALUES);
        TTI_TRY(tti_server_combine(exec, TTI_COMBINE_SUM, all + at, n_now, &there));
        tti_set_intersect(members, &there.all);
    }
    return TUTTI_OK;
}

tutti_status tti_async_add_sums(tti_exec *exec, tutti_comm *comm, tti_step_result *sums,
                                int64_t n_batches, tti_step_result *total,
                                tti_worker_set *members) {
    size_t n = (size_t)n_batches * 3;
    double *all = calloc(n + 1, sizeof *all);
    if (!all) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    bool adds_sums = !exec || tti_server_sends_requests(tti_exec_server(exec));
    for (int64_t i = 0; i < n_batches && adds_sums; i++) {
        all[3 * i] = sums[i].loss_sum;
        all[3 * i + 1] = sums[i].count;
        all[3 * i + 2] = sums[i].correct;
    }
    /* only one term of each sum is not 0 */
    tutti_status st = sum_of_all(exec, comm, all, n, members);
    *total = (tti_step_result){0};
    for (int64_t i = 0; i < n_batches; i++) {
        total->loss_sum += all[3 * i];
        total->count += all[3 * i + 1];
        total->correct += all[3 * i + 2];
    }
    free(all);
    return st;
}

tutti_status tti_async_place(tti_exec *exec, tti_async_assignment *out) {
    tti_server *server = tti_exec_server(exec);
    tti_members members;
    int worker = tti_exec_server_worker(exec);
    if (!tti_server_has_processes(server)) {
        *out = (tti_async_assignment){0};
        tti_server_eval_batches(exec, &out->index, &out->n_present);
        return TUTTI_OK;
    }
    TTI_TRY(tti_server_combine(exec, TTI_COMBINE_MAX, NULL, 0, &members));
    *out = (tti_async_assignment){0, 1, true, members.all};
    /* With backup workers each worker, even one that has left, is assigned its shards of every
     * batch. */
    int first, last;
    if (tti_server_shards(server, 0, 1, &first, &last)) return TUTTI_OK;
    out->live = members.live;
    out->n_present = tti_set_count(&members.live);
    out->index =
        tti_set_has(&members.live, worker) ? tti_set_count_below(&members.live, worker) : -1;
    return TUTTI_OK;
}
