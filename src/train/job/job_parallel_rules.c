/* job_parallel_rules.c - rules between keys of parallelism: mesh, shards, compression, parameter
 * servers, local SGD, and mixed runs. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "train/job/devices.h"
#include "train/job/job_rules.h"
#include "train/job/load_weights.h"
#include "train/job/numerics.h"

static bool is(const char *text, const char *word) { return strcmp(text, word) == 0; }

static int64_t power_of_two_from(int64_t n) {
    int64_t power = 1;
    while (power < n) power *= 2;
    return power;
}

static void find_odd_shards(const tti_job_config *c, char why[TTI_WHY]) {
    int64_t shards = c->parallel.shards, above = power_of_two_from(shards);
    if (shards < 1 || shards == above) return;
    snprintf(why, TTI_WHY,
             "must be a power of two, got %" PRId64 "; the nearest are %" PRId64 " and %" PRId64,
             shards, above / 2, above);
}

static bool is_divided(const tti_job_config *c) { return tti_job_workers_of_model(c) > 1; }

/* Number of workers that divide the batch; 0: unknown, or not an integer. */
static int64_t workers_of_batch(const tti_job_config *c) {
    int64_t workers = c->parallel.workers, each = tti_job_workers_of_model(c);
    tti_load_weights weights;
    if (workers <= 0 && c->parallel.data > 0) return c->parallel.data;
    if (workers <= 0) {
        bool is_bad = tti_load_weights_parse(c->parallel.load_weights, &weights) != NULL;
        tti_load_weights_free(&weights);
        return is_bad ? 0 : weights.n;
    }
    return workers % each == 0 ? workers / each : 0;
}

static void find_odd_mesh(const tti_job_config *c, char why[TTI_WHY]) {
    int64_t workers = c->parallel.workers, each = tti_job_workers_of_model(c);
    int64_t below = workers / each * each;
    if (each > TTI_MAX_WORKERS)
        snprintf(why, TTI_WHY,
                 "%" PRId64 " tensor shards of %" PRId64 " stages need %" PRId64
                 " workers; at most %d are supported",
                 c->parallel.tensor, c->parallel.pipeline, each, TTI_MAX_WORKERS);
    else if (workers > 0 && below != workers)
        snprintf(why, TTI_WHY,
                 "workers are data x parallel.pipeline=%" PRId64 " x parallel.tensor=%" PRId64
                 ", and %" PRId64 " is not a multiple of %" PRId64
                 "; give parallel.workers=%" PRId64,
                 c->parallel.pipeline, c->parallel.tensor, workers, each, below > 0 ? below : each);
}

static void find_other_copies(const tti_job_config *c, char why[TTI_WHY]) {
    int64_t data = c->parallel.data, workers = c->parallel.workers,
            each = tti_job_workers_of_model(c);
    if (data < 1 || each > TTI_MAX_WORKERS) return;
    if (data * each > TTI_MAX_WORKERS)
        snprintf(why, TTI_WHY,
                 "%" PRId64 " copies of %" PRId64 " workers each are %" PRId64
                 "; at most %d are supported",
                 data, each, data * each, TTI_MAX_WORKERS);
    else if (workers > 0 && workers != data * each)
        snprintf(why, TTI_WHY,
                 "workers are data x pipeline x tensor = %" PRId64
                 ", but parallel.workers is %" PRId64
                 "; give parallel.data=auto, or parallel.workers=auto",
                 data * each, workers);
}

/* Checks pipeline chunks.  With several chunks, shards pass the stages in groups as large as the
 * number of stages.  An asynchronous worker computes all shards of a batch. */
static void find_odd_chunks(const tti_job_config *c, char why[TTI_WHY]) {
    int64_t workers = tti_job_is_async(c) ? 1 : workers_of_batch(c), stages = c->parallel.pipeline;
    int64_t shards = c->parallel.shards, n = workers > 0 ? shards / workers : 0;
    if (c->parallel.pipeline_chunks == 1) return;
    if (workers > 0 && n % stages == 0 && shards % workers > 0)
        n++; /* some workers have one more */
    if (stages == 1)
        snprintf(why, TTI_WHY,
                 "pipeline chunks need a pipeline; give parallel.pipeline too, or leave out "
                 "parallel.pipeline_chunks");
    else if (workers > 0 && shards > 0 && n % stages != 0)
        snprintf(why, TTI_WHY,
                 "with several chunks, shards pass the %" PRId64 " stages in groups of %" PRId64
                 ", but a worker has %" PRId64
                 "; give parallel.pipeline_chunks=1, or another "
                 "number of shards or stages",
                 stages, stages, n);
}

static void say_too_few_shards(const tti_job_config *c, int64_t n_copies, char why[TTI_WHY]) {
    int64_t shards = c->parallel.shards;
    snprintf(why, TTI_WHY,
             "%" PRId64 " workers%s for %" PRId64
             " shards: each worker needs at least one; give "
             "parallel.shards=%" PRId64 " (changes the result) or at most %" PRId64 " workers",
             n_copies, is_divided(c) ? " that divide the batch" : "", shards,
             power_of_two_from(n_copies), shards * tti_job_workers_of_model(c));
}

static void find_idle_workers(const tti_job_config *c, char why[TTI_WHY]) {
    int64_t workers = workers_of_batch(c), shards = c->parallel.shards;
    if (workers > shards && shards == power_of_two_from(shards))
        say_too_few_shards(c, workers, why);
}

static void find_odd_load_weights(const tti_job_config *c, char why[TTI_WHY]) {
    tti_load_weights weights;
    const char *wrong = tti_load_weights_parse(c->parallel.load_weights, &weights);
    int64_t workers = workers_of_batch(c);
    tti_load_weights_free(&weights);
    if (wrong)
        snprintf(why, TTI_WHY, "%s", wrong);
    else if (weights.kind == TTI_LOAD_WEIGHTS_GIVEN && workers > 0 && weights.n != workers)
        snprintf(why, TTI_WHY,
                 "%d weights for %" PRId64
                 " workers that divide the batch; give one weight for each, or "
                 "parallel.load_weights=measured",
                 weights.n, workers);
    else if (weights.n * tti_job_workers_of_model(c) > TTI_MAX_WORKERS)
        snprintf(why, TTI_WHY,
                 "%d weights for replicas of %" PRId64 " workers each are %" PRId64
                 " workers; at most %d are supported",
                 weights.n, tti_job_workers_of_model(c), weights.n * tti_job_workers_of_model(c),
                 TTI_MAX_WORKERS);
}

/* Returns why workers that do not wait for each other must have equal numbers of shards; NULL: they
 * wait. */
static const char *equal_by_server(const tti_job_config *c) {
    if (tti_job_is_async(c))
        return "an asynchronous worker computes all shards of a batch, and a fast one already "
               "computes more batches; give parallel.load_weights=equal";
    if (tti_job_has_server(c) && c->parallel.backup_workers > 0)
        return "with backup workers a step waits for a number of workers, so they need equal parts "
               "of the batch; give parallel.load_weights=equal";
    return NULL;
}

/* Refuses parallel.load_weights if workers do not share each batch by shards, or if the weights
 * cannot be applied. */
static void find_lost_shares(const tti_job_config *c, char why[TTI_WHY]) {
    tti_load_weights_kind kind = tti_load_weights_kind_of(c);
    if (kind == TTI_LOAD_WEIGHTS_AUTO || kind == TTI_LOAD_WEIGHTS_EQUAL) return;
    const char *by_server = equal_by_server(c);
    if (by_server)
        snprintf(why, TTI_WHY, "%s", by_server);
    else if (is(c->parallel.sync, "local"))
        snprintf(why, TTI_WHY,
                 "local SGD averages the parameters of all workers equally, so each needs as many "
                 "samples; give parallel.load_weights=equal, or parallel.sync=all-reduce");
    else if (c->parallel.pipeline_chunks > 1)
        snprintf(why, TTI_WHY,
                 "with several chunks each worker needs a multiple of parallel.pipeline shards; "
                 "give parallel.load_weights=equal, or parallel.pipeline_chunks=1");
    else if (is_divided(c) && kind == TTI_LOAD_WEIGHTS_MEASURED)
        snprintf(why, TTI_WHY,
                 "a worker with a part of the model cannot be measured alone; give weights of the "
                 "replicas such as 3,1, or parallel.load_weights=equal");
}

static void find_empty_shards(const tti_job_config *c, char why[TTI_WHY]) {
    int64_t batch = c->train.batch, shards = c->parallel.shards;
    if (shards < 1 || batch >= shards) return;
    snprintf(why, TTI_WHY,
             "a batch of %" PRId64 " is smaller than the %" PRId64
             " shards it is divided into; give at least %" PRId64 " samples or fewer shards",
             batch, shards, shards);
}

static void find_small_batch(const tti_job_config *c, char why[TTI_WHY]) {
    int64_t batch = c->train.batch, workers = workers_of_batch(c);
    if (c->parallel.shards > 0 || workers < 1 || batch >= power_of_two_from(workers)) return;
    snprintf(why, TTI_WHY,
             "a batch of %" PRId64 " is too small for %" PRId64
             " workers, which divide it into %" PRId64 " shards; give at least %" PRId64
             " samples or fewer workers",
             batch, workers, power_of_two_from(workers), power_of_two_from(workers));
}

static void find_ring_in_exact(const tti_job_config *c, char why[TTI_WHY]) {
    if (!is(c->parallel.mode, "exact") || !is(c->parallel.algorithm, "ring")) return;
    snprintf(why, TTI_WHY,
             "ring adds in an order that depends on the number of workers, which exact mode does "
             "not allow; give direct, tree or auto, or parallel.mode=fast");
}

/* True if parallel.compress is set, except to bf16, the deprecated name of parallel.wire=bf16. */
static bool compresses(const tti_job_config *c) {
    return !is(c->parallel.compress, "none") && !is(c->parallel.compress, "bf16");
}

tutti_dtype tti_job_wire(const tti_job_config *c) {
    if (is(c->parallel.wire, "bf16") || is(c->parallel.compress, "bf16")) return TUTTI_BF16;
    return is(c->parallel.compress, "f16") ? TUTTI_F16 : TUTTI_F32;
}

static void find_two_wires(const tti_job_config *c, char why[TTI_WHY]) {
    if (is(c->parallel.compress, "bf16") && is(c->parallel.wire, "f32"))
        snprintf(why, TTI_WHY,
                 "is f32, but parallel.compress=bf16 is the former name of bf16 here; "
                 "leave one of them out");
    else if (is(c->parallel.wire, "bf16") && compresses(c))
        snprintf(why, TTI_WHY,
                 "%s gives the gradients another form; give parallel.wire=auto, or "
                 "parallel.compress=none",
                 c->parallel.compress);
}

static bool has_residuals(const tti_job_config *c) {
    return is(c->parallel.compress, "topk") || is(c->parallel.compress, "powersgd");
}

static void find_lost_compression(const tti_job_config *c, char why[TTI_WHY]) {
    if (!compresses(c)) return;
    if (is(c->parallel.mode, "exact"))
        snprintf(why, TTI_WHY,
                 "%s changes each worker's sum, so the result depends on the number of workers; "
                 "give parallel.mode=fast%s",
                 c->parallel.compress,
                 is(c->parallel.compress, "f16") ? ", or parallel.wire=bf16" : "");
    else if (c->parallel.zero > 1 && has_residuals(c))
        snprintf(why, TTI_WHY,
                 "%s keeps a residual of the whole gradient on every worker, but with "
                 "parallel.zero=%d a worker has only its partition; give parallel.wire=bf16, or "
                 "zero=1",
                 c->parallel.compress, (int)c->parallel.zero);
}

const char *tti_job_ends_on_host(const tti_job_config *c) {
    if (tti_job_has_server(c)) return "parallel.sync=parameter-server";
    if (is(c->parallel.sync, "local")) return "parallel.sync=local";
    return has_residuals(c) ? "parallel.compress" : NULL;
}

bool tti_job_is_host_staged(const tti_job_config *c, int n_copies) {
    bool several = n_copies > 1, is_local = is(c->parallel.sync, "local");
    if (!is_divided(c)) return false;
    if (is_local || (several && (has_residuals(c) || c->parallel.zero > 1))) return true;
    return c->parallel.sync_batch_norm && (several || c->parallel.pipeline > 1);
}

static void find_lost_start(const tti_job_config *c, char why[TTI_WHY]) {
    if (has_residuals(c) || c->parallel.compress_after == 0) return;
    snprintf(why, TTI_WHY, "is for parallel.compress=topk and powersgd; leave it out");
}

static void find_lost_residuals(const tti_job_config *c, char why[TTI_WHY]) {
    if (!has_residuals(c)) return;
    if (is(c->train.on_nan, "skip"))
        snprintf(why, TTI_WHY,
                 "a skipped step would lose the residuals of %s; give train.on_nan=stop, or "
                 "parallel.wire=bf16",
                 c->parallel.compress);
    else if (is(c->train.precision, "f16"))
        snprintf(why, TTI_WHY,
                 "f16 skips steps to find its loss scale, and they would lose the residuals of %s; "
                 "give bf16 or f32",
                 c->parallel.compress);
}

static void find_lost_restarts(const tti_job_config *c, char why[TTI_WHY]) {
    if (c->run.restarts == 0 || is(c->parallel.place, "processes")) return;
    snprintf(why, TTI_WHY,
             "a failed thread ends its process; only processes can be restarted: give "
             "parallel.place=processes");
}

/* True if workers do not wait for all others in each step. */
static bool is_unsynchronized(const tti_job_config *c) {
    return tti_job_is_async(c) || (tti_job_has_server(c) && c->parallel.backup_workers > 0);
}

static void say_elastic_needs(const char *what, char why[TTI_WHY]) {
    snprintf(why, TTI_WHY, "an elastic run needs %s", what);
}

static void find_rigid_threads(const tti_job_config *c, char why[TTI_WHY]) {
    if (c->parallel.min_workers == 0 || is(c->parallel.place, "processes")) return;
    if (c->parallel.spares > 0)
        say_elastic_needs("processes for its spares: give parallel.place=processes", why);
    else if (tti_job_has_server(c) &&
             !is_divided(c)) /* in other jobs the first workers are the servers */
        say_elastic_needs("processes for its servers: give parallel.place=processes", why);
}

static void find_rigid_workers(const tti_job_config *c, char why[TTI_WHY]) {
    if (c->parallel.min_workers == 0) return;
    if (tti_devices_mixed_from(c->parallel.devices) > 0)
        say_elastic_needs("workers of one kind: give parallel.devices=gpu or cpu", why);
    else if (is(c->parallel.sync, "local"))
        say_elastic_needs("synchronous workers: give parallel.sync=all-reduce", why);
    else if (tti_job_has_server(c) && is_unsynchronized(c))
        say_elastic_needs(
            "synchronous workers: give parallel.staleness=0 and parallel.backup_workers=0", why);
    else if (compresses(c))
        say_elastic_needs("whole gradients: give parallel.compress=none", why);
    else if (c->parallel.workers > 0 && c->parallel.min_workers > c->parallel.workers)
        snprintf(why, TTI_WHY, "is more than parallel.workers=%" PRId64, c->parallel.workers);
}

/* Checks the limits of the number of workers, which only elastic runs have. */
static void find_odd_limits(const tti_job_config *c, char why[TTI_WHY]) {
    int64_t each = tti_job_workers_of_model(c), shards = c->parallel.shards;
    int64_t most = c->parallel.max_workers, n_copies = most / each;
    int64_t at_most = TTI_MAX(most, c->parallel.workers);
    bool is_elastic = c->parallel.min_workers > 0;
    if (!is_elastic && (most > 0 || c->parallel.spares > 0 || *c->parallel.hostfile))
        snprintf(why, TTI_WHY, "is for elastic runs; give parallel.min_workers too");
    else if (most > 0 && c->parallel.workers > most)
        snprintf(why, TTI_WHY, "is less than parallel.workers=%" PRId64, c->parallel.workers);
    else if (n_copies > shards && shards == power_of_two_from(shards))
        say_too_few_shards(c, n_copies, why);
    else if (shards <= 0 && most > 0 && c->train.batch < power_of_two_from(n_copies))
        snprintf(why, TTI_WHY,
                 "a batch of %" PRId64 " is too small for %" PRId64
                 " workers, which divide it into %" PRId64 " shards",
                 c->train.batch, most, power_of_two_from(n_copies));
    else if (is_elastic && at_most + c->parallel.spares > TTI_MAX_WORKERS)
        snprintf(why, TTI_WHY,
                 "%" PRId64 " workers and %" PRId64 " spares; at most %d are supported", at_most,
                 c->parallel.spares, TTI_MAX_WORKERS);
}

static void find_unverifiable(const tti_job_config *c, char why[TTI_WHY]) {
    if (c->parallel.verify_every == 0) {
        if (is(c->parallel.on_corruption, "exclude"))
            snprintf(why, TTI_WHY, "is for verified runs; give parallel.verify_every too");
        return;
    }
    const char *needs = NULL;
    if (!is(c->parallel.mode, "exact"))
        needs = "exact results: give parallel.mode=exact";
    else if (c->parallel.tensor > 1 || c->parallel.pipeline > 1)
        needs = "whole replicas: give parallel.tensor=1 and parallel.pipeline=1";
    else if (!is(c->parallel.sync, "all-reduce"))
        needs = "gradients that workers add: give parallel.sync=all-reduce";
    else if (c->parallel.zero > 1)
        needs = "whole gradients: give parallel.zero=0 or 1";
    else if (c->parallel.sync_batch_norm)
        needs = "shards that do not wait for each other: give parallel.sync_batch_norm=false";
    else if (is(c->parallel.on_corruption, "exclude") && c->parallel.min_workers == 0)
        needs = "an elastic run to exclude workers: give parallel.min_workers too";
    if (needs) snprintf(why, TTI_WHY, "a run that is verified needs %s", needs);
}

static void find_fixed_weights(const tti_job_config *c, char why[TTI_WHY]) {
    if (c->parallel.min_workers == 0) return;
    if (tti_load_weights_kind_of(c) == TTI_LOAD_WEIGHTS_GIVEN)
        say_elastic_needs(
            "weights for any number of workers: give parallel.load_weights=measured "
            "or parallel.load_weights=equal",
            why);
}

static void say_server_is_missing(char why[TTI_WHY]) {
    snprintf(why, TTI_WHY, "is for a parameter server; give parallel.sync=parameter-server too");
}

static void find_lost_backup(const tti_job_config *c, char why[TTI_WHY]) {
    int64_t n = c->parallel.backup_workers, workers = workers_of_batch(c);
    if (n == 0) return;
    if (!tti_job_has_server(c))
        say_server_is_missing(why);
    else if (c->parallel.staleness != 0)
        snprintf(why, TTI_WHY,
                 "asynchronous workers never wait for each other; give parallel.staleness=0, or "
                 "parallel.backup_workers=0");
    else if (!is(c->parallel.mode, "fast"))
        snprintf(why, TTI_WHY,
                 "the result depends on which gradients arrive in time, which exact mode does not "
                 "allow; give parallel.mode=fast");
    else if (workers >= 1 && n >= workers)
        snprintf(why, TTI_WHY,
                 "%" PRId64 " of %" PRId64
                 " workers%s leave none whose gradients would count; give at most %" PRId64,
                 n, workers, is_divided(c) ? " that divide the batch" : "", workers - 1);
    else if (c->parallel.sync_batch_norm)
        snprintf(why, TTI_WHY,
                 "parallel.sync_batch_norm joins all workers in every step; leave one of the two "
                 "out");
}

static void find_lost_staleness(const tti_job_config *c, char why[TTI_WHY]) {
    if (!tti_job_has_server(c) && c->parallel.staleness != 0) say_server_is_missing(why);
}

static void find_lost_servers(const tti_job_config *c, char why[TTI_WHY]) {
    if (!tti_job_has_server(c) && c->parallel.servers > 1) say_server_is_missing(why);
}

static void find_async_in_exact(const tti_job_config *c, char why[TTI_WHY]) {
    if (!tti_job_is_async(c) || is(c->parallel.mode, "fast")) return;
    snprintf(why, TTI_WHY,
             "asynchronous updates depend on the order in which workers finish, which exact mode "
             "does not allow; give parallel.mode=fast, or parallel.staleness=0");
}

/* Checks parallel.servers: the servers are the first worker processes; with a divided model, the
 * first ones of each part. */
static void find_server_elsewhere(const tti_job_config *c, char why[TTI_WHY]) {
    int64_t copies = workers_of_batch(c);
    if (!tti_job_has_server(c) || copies < 1 || c->parallel.servers <= copies) return;
    if (is_divided(c))
        snprintf(why, TTI_WHY,
                 "the first parallel.servers workers of each part of the model are the servers, "
                 "but it has only %" PRId64 "; give at most that many",
                 copies);
    else if (is(c->parallel.place, "processes"))
        snprintf(why, TTI_WHY,
                 "the first parallel.servers worker processes are the servers, but there are only "
                 "%" PRId64 "; give at most that many",
                 copies);
}

/* Checks asynchronous workers with a divided model, of which the first replica stores the model. */
static void find_loose_parts(const tti_job_config *c, char why[TTI_WHY]) {
    if (!is_divided(c) || !is_unsynchronized(c) || c->parallel.servers == 1) return;
    snprintf(
        why, TTI_WHY,
        "asynchronous workers that divide a model already have a server for each of its %" PRId64
        " parts; give parallel.servers=1",
        tti_job_workers_of_model(c));
}

static void find_server_with_parts(const tti_job_config *c, char why[TTI_WHY]) {
    if (!tti_job_has_server(c)) return;
    if (c->parallel.zero > 0)
        snprintf(why, TTI_WHY,
                 "the parameter server already keeps the only copy of the optimizer state; give "
                 "parallel.zero=0");
    else if (is_unsynchronized(c) && has_residuals(c))
        snprintf(why, TTI_WHY,
                 "%s keeps a residual of every gradient, which would be stale when it is sent and "
                 "lost at each checkpoint and evaluation; give parallel.wire=bf16 or f16, or "
                 "parallel.staleness=0 without backup workers",
                 c->parallel.compress);
    else if (!is_unsynchronized(c) && !is_divided(c) && is(c->parallel.place, "threads") &&
             compresses(c))
        snprintf(why, TTI_WHY,
                 "worker threads share memory with a synchronous server, so nothing is sent; give "
                 "none, or parallel.place=processes");
}

static void find_backup_scale(const tti_job_config *c, char why[TTI_WHY]) {
    bool follows = is(c->train.precision, "f16") && c->train.loss_scale < 0;
    if (!tti_job_has_server(c) || c->parallel.backup_workers == 0 || !follows) return;
    snprintf(why, TTI_WHY,
             "with backup workers all gradients of a step need the same loss scale, but the "
             "dynamic scale of f16 differs between workers; give a number such as "
             "train.loss_scale=1024, or train.precision=bf16 or f32");
}

static bool is_local(const tti_job_config *c) { return is(c->parallel.sync, "local"); }

static void say_local_is_missing(char why[TTI_WHY]) {
    snprintf(why, TTI_WHY, "is for local SGD; give parallel.sync=local too");
}

static void find_lost_averaging(const tti_job_config *c, char why[TTI_WHY]) {
    if (!is_local(c) && !is(c->parallel.average, "parameters")) say_local_is_missing(why);
}

static void find_late_averaging(const tti_job_config *c, char why[TTI_WHY]) {
    if (!is_local(c) && c->parallel.average_after > 0) say_local_is_missing(why);
}

static void find_local_in_exact(const tti_job_config *c, char why[TTI_WHY]) {
    if (!is_local(c) || is(c->parallel.mode, "fast")) return;
    snprintf(why, TTI_WHY,
             "local updates depend on the number of workers, which exact mode does not allow; give "
             "parallel.mode=fast");
}

static void find_local_with_parts(const tti_job_config *c, char why[TTI_WHY]) {
    if (!is_local(c)) return;
    if (c->parallel.zero > 0)
        snprintf(why, TTI_WHY,
                 "each worker of local SGD has its own optimizer state; give parallel.zero=0");
    else if (tti_job_wire(c) != TUTTI_F32 || compresses(c))
        snprintf(why, TTI_WHY, "local SGD sends parameters, not gradients; give none");
}

static void find_local_skips(const tti_job_config *c, char why[TTI_WHY]) {
    if (!is_local(c)) return;
    if (is(c->train.on_nan, "skip"))
        snprintf(why, TTI_WHY,
                 "all workers must skip a step together, which local SGD workers cannot; give "
                 "train.on_nan=stop");
    else if (is(c->train.precision, "f16"))
        snprintf(why, TTI_WHY,
                 "all workers must share the loss scale of f16, which local SGD workers cannot; "
                 "give bf16 or f32");
    else if (c->parallel.sync_batch_norm)
        snprintf(why, TTI_WHY,
                 "parallel.sync_batch_norm joins all workers in every step, but local SGD workers "
                 "do not synchronize; leave it out");
}

static void find_lost_replay(const tti_job_config *c, char why[TTI_WHY]) {
    if (!*c->parallel.replay || tti_job_is_async(c)) return;
    snprintf(why, TTI_WHY,
             "repeats the order of an asynchronous run; give parallel.sync=parameter-server and "
             "the parallel.staleness of that run, or leave it out");
}

/* ---- GPUs and the host in one run ---- */

static bool is_mixed(const tti_job_config *c) {
    return tti_devices_mixed_from(c->parallel.devices) > 0;
}

static void find_mixture_in_exact(const tti_job_config *c, char why[TTI_WHY]) {
    if (!is_mixed(c) || is(c->parallel.mode, "fast")) return;
    snprintf(why, TTI_WHY,
             "the kernels of GPUs and of the host do not give the same bits, which exact mode "
             "promises for every worker; give parallel.mode=fast, or GPUs of one kind only");
}

static void find_lonely_mixture(const tti_job_config *c, char why[TTI_WHY]) {
    int from = tti_devices_mixed_from(c->parallel.devices);
    if (from == 0 || c->parallel.workers <= 0 || c->parallel.workers >= from) return;
    snprintf(why, TTI_WHY,
             "the list has GPUs and the host, but the parallel.workers=%" PRId64
             " workers use only its beginning, which has one kind; give at least "
             "parallel.workers=%d, or one kind in parallel.devices",
             c->parallel.workers, from);
}

static void find_mixture_in_parts(const tti_job_config *c, char why[TTI_WHY]) {
    const char *what = NULL, *instead = NULL;
    if (!is_mixed(c)) return;
    if (!is(c->parallel.sync, "all-reduce"))
        what = "parallel.sync", instead = "parallel.sync=all-reduce";
    else if (c->parallel.zero > 0)
        what = "parallel.zero", instead = "parallel.zero=0";
    else if (is(c->parallel.compress, "topk") || is(c->parallel.compress, "powersgd"))
        what = "parallel.compress", instead = "parallel.compress=none or f16";
    else if (is_divided(c))
        what = "a divided model", instead = "parallel.tensor=1 parallel.pipeline=1";
    if (!what) return;
    snprintf(why, TTI_WHY,
             "a run with workers on GPUs and on the host needs whole models and adds whole "
             "gradients in every step, which excludes %s; give %s, or workers of one kind",
             what, instead);
}

static void find_resident_mixture(const tti_job_config *c, char why[TTI_WHY]) {
    if (!is_mixed(c) || !is(c->data.resident, "yes")) return;
    snprintf(why, TTI_WHY,
             "resident samples need all workers on GPUs; with workers on the host batches are "
             "copied in every step; give data.resident=auto");
}

static const tti_job_rule rules[] = {
    {{"parallel.shards"}, find_odd_shards},
    {{"parallel.tensor", "parallel.pipeline", "parallel.workers"}, find_odd_mesh},
    {{"parallel.data", "parallel.workers", "parallel.tensor", "parallel.pipeline"},
     find_other_copies},
    {{"parallel.pipeline_chunks", "parallel.pipeline", "parallel.workers", "parallel.shards",
      "parallel.data", "parallel.load_weights", "parallel.sync", "parallel.staleness"},
     find_odd_chunks},
    {{"parallel.workers", "parallel.shards", "parallel.tensor", "parallel.pipeline",
      "parallel.load_weights"},
     find_idle_workers},
    {{"parallel.load_weights", "parallel.workers", "parallel.data", "parallel.tensor",
      "parallel.pipeline"},
     find_odd_load_weights},
    {{"parallel.load_weights", "parallel.sync", "parallel.pipeline_chunks", "parallel.tensor",
      "parallel.pipeline", "parallel.staleness", "parallel.backup_workers"},
     find_lost_shares},
    {{"train.batch", "parallel.shards"}, find_empty_shards},
    {{"train.batch", "parallel.workers", "parallel.shards", "parallel.tensor", "parallel.pipeline",
      "parallel.load_weights"},
     find_small_batch},
    {{"parallel.algorithm", "parallel.mode"}, find_ring_in_exact},
    {{"run.restarts", "parallel.place"}, find_lost_restarts},
    {{"parallel.min_workers", "parallel.place", "parallel.spares", "parallel.sync",
      "parallel.tensor", "parallel.pipeline"},
     find_rigid_threads},
    {{"parallel.min_workers", "parallel.devices", "parallel.sync", "parallel.staleness",
      "parallel.backup_workers", "parallel.compress", "parallel.workers"},
     find_rigid_workers},
    {{"parallel.min_workers", "parallel.load_weights"}, find_fixed_weights},
    {{"parallel.max_workers", "parallel.spares", "parallel.hostfile", "parallel.min_workers",
      "parallel.workers", "parallel.shards", "train.batch"},
     find_odd_limits},
    {{"parallel.verify_every", "parallel.on_corruption", "parallel.min_workers", "parallel.mode",
      "parallel.tensor", "parallel.pipeline", "parallel.sync", "parallel.zero",
      "parallel.sync_batch_norm"},
     find_unverifiable},
    {{"parallel.compress", "parallel.mode", "parallel.zero"}, find_lost_compression},
    {{"parallel.wire", "parallel.compress"}, find_two_wires},
    {{"parallel.compress_after", "parallel.compress"}, find_lost_start},
    {{"parallel.compress", "train.on_nan", "train.precision"}, find_lost_residuals},
    {{"parallel.staleness", "parallel.sync"}, find_lost_staleness},
    {{"parallel.servers", "parallel.sync"}, find_lost_servers},
    {{"parallel.staleness", "parallel.mode", "parallel.sync"}, find_async_in_exact},
    {{"parallel.sync", "parallel.place", "parallel.workers", "parallel.servers", "parallel.tensor",
      "parallel.pipeline", "parallel.data"},
     find_server_elsewhere},
    {{"parallel.servers", "parallel.tensor", "parallel.pipeline", "parallel.sync",
      "parallel.staleness", "parallel.backup_workers"},
     find_loose_parts},
    {{"parallel.sync", "parallel.zero", "parallel.compress", "parallel.place", "parallel.staleness",
      "parallel.backup_workers", "parallel.tensor", "parallel.pipeline"},
     find_server_with_parts},
    {{"parallel.backup_workers", "parallel.sync", "train.precision", "train.loss_scale"},
     find_backup_scale},
    {{"parallel.backup_workers", "parallel.sync", "parallel.staleness", "parallel.mode",
      "parallel.workers", "parallel.tensor", "parallel.pipeline", "parallel.data",
      "parallel.sync_batch_norm"},
     find_lost_backup},
    {{"parallel.average", "parallel.sync"}, find_lost_averaging},
    {{"parallel.average_after", "parallel.sync"}, find_late_averaging},
    {{"parallel.sync", "parallel.mode"}, find_local_in_exact},
    {{"parallel.sync", "parallel.zero", "parallel.wire", "parallel.compress"},
     find_local_with_parts},
    {{"parallel.sync", "train.on_nan", "train.precision", "parallel.sync_batch_norm"},
     find_local_skips},
    {{"parallel.replay", "parallel.sync", "parallel.staleness"}, find_lost_replay},
    {{"parallel.devices", "parallel.mode"}, find_mixture_in_exact},
    {{"parallel.devices", "parallel.workers"}, find_lonely_mixture},
    {{"parallel.devices", "parallel.sync", "parallel.zero", "parallel.compress", "parallel.tensor",
      "parallel.pipeline"},
     find_mixture_in_parts},
    {{"parallel.devices", "data.resident"}, find_resident_mixture},
};

void tti_job_find_parallel_conflicts(tutti_job *job) {
    tti_job_apply_rules(rules, TTI_COUNT(rules), job);
}
