/* evaluation.c - sums over the test split, and the errors of each target of a regression.  The sums
 * of a batch add all targets together.  So, if there are few targets, each one is evaluated in a
 * separate pass in which the others are marked as missing. */
#include "train/loop/evaluation.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "data/dataset.h"
#include "ps/server.h"
#include "train/loop/async.h"
#include "train/loop/placement.h"
#include "train/setup/feeding.h"

static bool is_async(const tti_evaluation *e) {
    return e->server && tti_server_is_async(e->server);
}

/* ---- metrics ---- */

/* The metric inputs (words) of metric i in shard s. */
static int32_t *words_at(const tti_evaluation *e, int i, int s) {
    const tti_metric_set *set = e->sums.metrics;
    int32_t *at = e->words;
    for (int k = 0; k < i; k++)
        at += tti_metric_set_n_bytes(set, k) / sizeof *at * (size_t)e->b->n_shards;
    return at + tti_metric_set_n_bytes(set, i) / sizeof *at * (size_t)s;
}

static size_t n_words(const tti_evaluation *e) {
    return tti_metric_set_n_words(e->sums.metrics) * (size_t)e->b->n_shards;
}

/* Requests the outputs of this worker's shards; entries of all other shards are zeros. */
static void request_outputs(tti_evaluation *e, tti_output_copy *copies, tti_step_desc *desc) {
    const tti_metric_set *set = e->sums.metrics;
    if (!set) return;
    memset(e->words, 0, n_words(e) * sizeof *e->words);
    for (int i = 0; i < tti_metric_set_n(set); i++)
        copies[i] = (tti_output_copy){tti_metric_set_output(set, i), tti_metric_set_n_bytes(set, i),
                                      words_at(e, i, tti_exec_first_shard(e->exec))};
    desc->outputs = copies;
    desc->n_outputs = tti_metric_set_n(set);
}

/* Every word is set by one worker and 0 on the others, so the integer sum over workers is that
 * word.  Workers along a tensor axis have equal values; only the first one sets them. */
static tutti_status add_metrics(tti_evaluation *e) {
    tti_metric_set *set = e->sums.metrics;
    const void *values[TTI_MAX_METRICS];
    if (!set) return TUTTI_OK;
    if (e->comm && tutti_comm_n_ranks(e->comm) > 1) {
        int rank = tutti_comm_rank(e->comm) % tti_mesh_n_model(&e->b->mesh);
        if (tti_mesh_at_rank(&e->b->mesh, rank).tensor > 0)
            memset(e->words, 0, n_words(e) * sizeof *e->words);
        TTI_TRY(tutti_comm_all_reduce(e->comm, e->words, e->words, n_words(e), TUTTI_I32, TUTTI_SUM,
                                      TUTTI_ALG_AUTO));
    }
    for (int s = 0; s < e->b->n_shards; s++) {
        for (int i = 0; i < tti_metric_set_n(set); i++) values[i] = words_at(e, i, s);
        TTI_TRY(tti_metric_set_add(set, values));
    }
    return TUTTI_OK;
}

/* ---- batches ---- */

static tutti_status eval_shards(tti_evaluation *e, tti_loader *loader, tti_step_result *sums) {
    tti_step_desc desc = {.step = e->step, .shards = e->shards, .shard_size = e->b->rows_per_shard};
    tti_output_copy copies[TTI_MAX_METRICS];
    tti_feeding_describe(loader, &desc);
    request_outputs(e, copies, &desc);
    TTI_TRY(tti_exec_eval(e->exec, &desc, sums)); /* adds to *sums */
    return add_metrics(e);
}

static tutti_status eval_batch(tti_evaluation *e, tti_loader *loader, tti_step_result *sums) {
    tti_batch batch;
    TTI_TRY(tti_phases_next_batch(e->phases, loader, &batch));
    int first = tti_exec_first_shard(e->exec);
    for (int i = 0; i < batch.n_shards; i++) e->shards[i] = tti_shard_of(&batch, i, first);
    e->sums.n_rows += batch.n_rows_global;
    return eval_shards(e, loader, sums);
}

/* Opens a loader for shards first .. last-1 of the test data. */
static tutti_status open_test(tti_evaluation *e, int first, int last, tti_loader **out) {
    return tti_feeding_open(
        &(tti_loader_desc){
            .dataset = e->b->test,
            .batch = e->b->config.train.batch,
            .n_shards = e->b->n_shards,
            .first_shard = first,
            .last_shard = last,
            .sequential = true,
            .only_target = e->only_target,
            .n_threads = is_async(e) ? 0 : tti_count_loader_threads(e->phases->desc, e->b->test),
            .n_prefetch = (int)e->b->config.data.prefetch,
            .timeout_ms = (int)e->b->config.parallel.phase_timeout_ms,
            .on_wait = tti_phases_wait,
            .user = e->phases,
            .flight = e->phases->desc->flight,
            .where = e->b->config.data.dir},
        e->exec, out);
}

/* Evaluates shards first .. last-1 of each batch, at most as many as this worker owns.  The
 * executor always runs its own number of shards; the surplus ones are not counted. */
static tutti_status eval_run(tti_evaluation *e, int first, int last, tti_step_result *sums) {
    int n_own = tti_exec_last_shard(e->exec) - tti_exec_first_shard(e->exec);
    int from = TTI_MIN(first, e->b->n_shards - n_own);
    tti_loader *loader;
    tti_batch batch;
    int32_t *labels = NULL;
    TTI_TRY(open_test(e, from, from + n_own, &loader));
    tutti_status st = TUTTI_OK;
    for (int64_t t = 0; st == TUTTI_OK && t < tti_loader_steps_per_epoch(loader); t++) {
        tti_loader_seek(loader, 0, t);
        TTI_TRY_GOTO(tti_phases_next_batch(e->phases, loader, &batch), cleanup);
        if (!labels) { /* rows that are not counted have -1 */
            labels = aligned_alloc(64, (batch.y_shard_bytes + 63) & ~(size_t)63);
            if (!labels) TTI_TRY_GOTO(tti_fail(TUTTI_E_NOMEM, "train: out of memory"), cleanup);
            memset(labels, 0xff, batch.y_shard_bytes);
        }
        for (int i = 0; i < n_own; i++) {
            e->shards[i] = tti_shard_of(&batch, i, from);
            if (from + i >= first && from + i < last) continue;
            e->shards[i].target = labels;
            e->shards[i].n_rows = 0;
        }
        st = eval_shards(e, loader, &sums[t]);
    }
cleanup:
    free(labels);
    tti_loader_destroy(loader);
    return st;
}

/* Evaluates the shards of backup workers that have left; the others divide them. */
static tutti_status eval_for_dead(tti_evaluation *e, const tti_worker_set *there,
                                  tti_step_result *sums) {
    int n_own = tti_exec_last_shard(e->exec) - tti_exec_first_shard(e->exec), first, last;
    int n_there = tti_set_count(there);
    int n_below = tti_set_count_below(there, tti_exec_server_worker(e->exec));
    for (int w = 0; w < e->b->mesh.data; w++) {
        bool is_mine = w % n_there == n_below;
        if (tti_set_has(there, w) || !is_mine) continue;
        if (!tti_server_shards(e->server, w, e->b->n_shards, &first, &last)) return TUTTI_OK;
        for (; first < last; first += n_own)
            TTI_TRY(eval_run(e, first, TTI_MIN(last, first + n_own), sums));
    }
    return TUTTI_OK;
}

/* An asynchronous worker evaluates whole batches, a backup worker its shards of all batches. */
static tutti_status eval_own_batches(tti_evaluation *e, tti_loader *loader) {
    int64_t n = tti_loader_steps_per_epoch(loader);
    tti_async_assignment seat;
    tti_worker_set members = {0};
    tti_step_result *sums = calloc((size_t)n + 1, sizeof *sums);
    if (!sums) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    tutti_status st;
    do { /* repeats if a worker that evaluated some of them has left */
        memset(sums, 0, (size_t)n * sizeof *sums);
        st = tti_async_place(e->exec, &seat);
        for (int64_t t = 0; st == TUTTI_OK && t < n; t++) {
            if (t % seat.n_present != seat.index) continue;
            tti_loader_seek(loader, 0, t);
            st = eval_batch(e, loader, &sums[t]);
        }
        if (st == TUTTI_OK && seat.has_processes) st = eval_for_dead(e, &seat.live, sums);
        if (st == TUTTI_OK)
            st = tti_async_add_sums(e->exec, e->comm, sums, n, &e->sums.all, &members);
    } while (st == TUTTI_OK && !tti_set_is_within(&seat.live, &members));
    free(sums);
    e->sums.n_rows = tutti_dataset_get_info(e->b->test)->n_samples;
    return st;
}

static tutti_status eval_pass(tti_evaluation *e) {
    tti_loader *loader;
    e->sums.all = (tti_step_result){0};
    e->sums.n_rows = 0;
    TTI_TRY(open_test(e, tti_exec_first_shard(e->exec), tti_exec_last_shard(e->exec), &loader));
    int64_t n_steps = is_async(e) ? 0 : tti_loader_steps_per_epoch(loader);
    tutti_status st = is_async(e) ? eval_own_batches(e, loader) : TUTTI_OK;
    for (int64_t t = 0; st == TUTTI_OK && t < n_steps; t++)
        st = eval_batch(e, loader, &e->sums.all);
    tti_loader_destroy(loader);
    return st;
}

/* Evaluates each target separately if there are few. */
static tutti_status eval_each_target(tti_evaluation *e, int64_t n_targets) {
    if (n_targets == 1) {
        e->sums.squares[0] = e->sums.all.correct, e->sums.sizes[0] = e->sums.all.count;
        return TUTTI_OK;
    }
    if (n_targets > TTI_EVALUATED_TARGETS) return TUTTI_OK;
    tti_step_result all = e->sums.all;
    tutti_status st = TUTTI_OK;
    for (int64_t k = 0; k < n_targets && st == TUTTI_OK; k++) {
        e->only_target = k + 1;
        st = eval_pass(e);
        e->sums.squares[k] = e->sums.all.correct, e->sums.sizes[k] = e->sums.all.count;
    }
    e->sums.all = all;
    return st;
}

/* Creates the metrics.  Workers that evaluate separate batches have none. */
static tutti_status prepare_metrics(tti_evaluation *e) {
    e->sums.metrics = NULL;
    if (is_async(e)) return TUTTI_OK;
    TTI_TRY(tti_metric_set_create(e->b->plan->eval.graph, &e->sums.metrics));
    if (!e->sums.metrics) return TUTTI_OK;
    e->words = malloc(n_words(e) * sizeof *e->words + 1);
    return e->words ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "train: out of memory for metrics");
}

/* The passes over single targets keep the metrics of the first pass. */
static tutti_status eval_targets(tti_evaluation *e, int64_t n_targets) {
    tti_metric_set *metrics = e->sums.metrics;
    if (n_targets == 0) return TUTTI_OK;
    e->sums.metrics = NULL;
    tutti_status st = eval_each_target(e, n_targets);
    e->sums.metrics = metrics;
    e->sums.all.count = (double)(e->sums.n_rows * n_targets);
    return st;
}

tutti_status tti_evaluation_run(tti_evaluation *e) {
    tutti_status st = prepare_metrics(e);
    if (st == TUTTI_OK) st = eval_pass(e);
    if (st == TUTTI_OK) st = eval_targets(e, tti_dataset_spec(e->b->train)->target.n);
    free(e->words);
    e->words = NULL;
    if (st == TUTTI_OK) return TUTTI_OK;
    tti_metric_set_destroy(e->sums.metrics);
    e->sums.metrics = NULL;
    return st;
}
