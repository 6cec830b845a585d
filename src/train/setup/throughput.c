/* throughput.c - times the shard program on every worker.  Measured times may decide which worker
 * computes a shard but never change the result, because the reduction tree follows the shards.  All
 * workers use the same times, so they get the same shard map. */
#include "train/setup/throughput.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/affinity.h"
#include "base/clock.h"
#include "train/job/load_weights.h"
#include "train/setup/feeding.h"

/* A smaller gain does not justify unequal runs, because of measurement errors. */
static const double WORTH = 1.1;
/* The smallest gain that justifies the cost of rebalancing during a run. */
static const double WORTH_NOW = 1.25;
static const double SHORTEST_S = 1e-6;
enum { WHY_BYTES = 240, MIN_STEPS = 3, MAX_STEPS = 16 };

/* ---- the trial ---- */

/* One worker alone, with as many shards as it computes in parallel. */
typedef struct trial {
    tti_blueprint b; /* a shallow copy; pointers are borrowed */
    tti_worker_desc worker;
    tti_exec *exec;
    tti_loader *loader;
    tti_shard_data *shards; /* [b.n_shards] */
    int64_t most_ns;        /* time limit */
} trial;

static int n_compute_threads_of(const tti_blueprint *b, const tti_worker_desc *worker) {
    tti_core_share share;
    tti_worker_cores(b, worker->local_rank, worker->local_n_ranks, &share);
    tti_exec_desc desc = tti_worker_exec_desc(b);
    desc.n_compute_threads = share.n_threads;
    return tti_exec_n_compute_threads(&desc, b->n_shards);
}

static tutti_status open_trial(trial *t, const tti_blueprint *b, int n_compute_threads) {
    int n = 1;
    while (2 * n <= n_compute_threads && 2 * n <= b->n_shards) n *= 2;
    t->b.n_shards = n;
    t->b.config.parallel.zero = 0;
    t->shards = calloc((size_t)n, sizeof *t->shards);
    if (!t->shards) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    TTI_TRY(tti_worker_exec_create(&t->b, &t->worker, &t->exec));
    return tti_feeding_open(&(tti_loader_desc){.dataset = b->train,
                                               .batch = b->config.train.batch,
                                               .n_shards = b->n_shards,
                                               .last_shard = n,
                                               .seed = (uint64_t)b->config.train.seed,
                                               .mixup = b->config.data.mixup},
                            t->exec, &t->loader);
}

/* Returns the seconds of computing; a loss that is not finite is not an error here. */
static tutti_status run_step(trial *t, const tti_batch *batch, uint64_t step, double *seconds) {
    tti_step_result result;
    tti_step_desc desc = {.step = step,
                          .lr = 0,
                          .shards = t->shards,
                          .shard_size = t->b.rows_per_shard,
                          .n_rows = batch->n_rows_global};
    tti_feeding_describe(t->loader, &desc);
    int64_t start = tti_now_ns();
    tutti_status st = tti_exec_step(t->exec, &desc, &result);
    int64_t took = tti_now_ns() - start;
    if (st == TUTTI_E_NUMERICS) tti_clear_error();
    if (st == TUTTI_OK && result.compute_ns > 0) took = TTI_MIN(took, result.compute_ns);
    *seconds = TTI_MAX((double)took * 1e-9, SHORTEST_S);
    return st == TUTTI_E_NUMERICS ? TUTTI_OK : st;
}

/* The fastest step counts, because other processes can only slow a step down; the first one warms
 * up. */
static tutti_status time_steps(trial *t, double *group_s) {
    tti_batch batch;
    double seconds;
    TTI_TRY(tti_loader_next(t->loader, &batch));
    for (int i = 0; i < batch.n_shards; i++) t->shards[i] = tti_shard_of(&batch, i, 0);
    int64_t start = tti_now_ns();
    TTI_TRY(run_step(t, &batch, 0, &seconds));
    for (int n = 0; n < MAX_STEPS; n++) {
        int64_t spent = tti_now_ns() - start;
        if (n > 0 && (spent > t->most_ns || (n >= MIN_STEPS && spent > t->most_ns / 10))) break;
        TTI_TRY(run_step(t, &batch, (uint64_t)n + 1, &seconds));
        *group_s = n == 0 ? seconds : TTI_MIN(*group_s, seconds);
    }
    return TUTTI_OK;
}

static tutti_status measure(const tti_blueprint *b, const tti_worker_desc *worker,
                            tti_throughput *out) {
    trial t = {.b = *b,
               .worker = {.rank = worker->rank,
                          .local_rank = worker->local_rank,
                          .device_place = worker->device_place,
                          .local_n_ranks = worker->local_n_ranks}};
    t.most_ns = TTI_MIN(b->config.parallel.timeout_ms / 8, 2000) * TTI_NS_PER_MS;
    out->n_compute_threads = n_compute_threads_of(b, worker);
    tutti_status st = open_trial(&t, b, out->n_compute_threads);
    if (st == TUTTI_OK) st = time_steps(&t, &out->group_s);
    tti_loader_destroy(t.loader);
    tti_exec_destroy(t.exec);
    free(t.shards);
    return st;
}

/* ---- the shard map ---- */

static double per_shard(const tti_throughput *p) { return p->group_s / p->n_compute_threads; }

void tti_throughputs_free(tti_throughputs *throughputs) {
    free(throughputs->of);
    tti_shard_map_free(&throughputs->shard_map);
    throughputs->of = NULL;
    throughputs->n = 0;
}

tutti_status tti_throughput_shard_map(const tti_throughput *throughputs, int n, int n_shards,
                                      tti_shard_map *shard_map, tti_str *text) {
    tti_shard_map equal;
    int fast = 0, slow = 0;
    tti_shard_map_equally(n, n_shards, &equal);
    TTI_TRY(tti_shard_map_by_throughput(throughputs, n, n_shards, shard_map));
    for (int r = 1; r < n; r++) {
        if (per_shard(&throughputs[r]) < per_shard(&throughputs[fast])) fast = r;
        if (per_shard(&throughputs[r]) > per_shard(&throughputs[slow])) slow = r;
    }
    bool is_worth = tti_shard_map_seconds(&equal, throughputs) >
                    WORTH * tti_shard_map_seconds(shard_map, throughputs);
    if (!is_worth) {
        tti_shard_map_free(shard_map);
        *shard_map = equal;
    }
    tti_str_printf(text, "rank %d takes %.1f times as long as rank %d for a shard: ", slow,
                   per_shard(&throughputs[slow]) / per_shard(&throughputs[fast]), fast);
    tti_load_weights_print(shard_map, text);
    tti_str_printf(text, " of %d shards%s", n_shards,
                   is_worth ? "" : ", because no other shard map would make a step 10 % shorter");
    return TUTTI_OK;
}

static tutti_status alloc_throughputs(int n, tti_throughputs *out) {
    *out = (tti_throughputs){.of = calloc((size_t)n, sizeof *out->of)};
    return out->of ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "train: out of memory");
}

tutti_status tti_throughput_drifted(const tti_throughputs *before, const double *compute_s,
                                    int64_t n_steps, tti_throughputs *now, bool *has_drifted) {
    tti_str text = {0};
    int n = before->n, n_shards = tti_shard_map_n_shards(&before->shard_map);
    TTI_TRY(alloc_throughputs(n, now));
    now->n = n;
    for (int r = 0; r < n; r++) {
        int n_compute_threads = before->of[r].n_compute_threads,
            n_own = tti_shard_map_n_of(&before->shard_map, r);
        double n_micro_groups = (double)((n_own + n_compute_threads - 1) / n_compute_threads);
        now->of[r] =
            (tti_throughput){compute_s[r] / ((double)n_steps * n_micro_groups), n_compute_threads};
        if (!(now->of[r].group_s > SHORTEST_S)) now->of[r].group_s = SHORTEST_S;
    }
    tutti_status st = tti_throughput_shard_map(now->of, n, n_shards, &now->shard_map, &text);
    snprintf(now->text, sizeof now->text, "speeds have changed: %s", tti_str_text(&text));
    tti_str_free(&text);
    if (st != TUTTI_OK) return st;
    double as_it_is = tti_shard_map_seconds(&before->shard_map, now->of);
    *has_drifted = as_it_is > WORTH_NOW * tti_shard_map_seconds(&now->shard_map, now->of);
    return TUTTI_OK;
}

/* A worker's message to the others. why: the reason if it could not be measured, else "". */
typedef struct word {
    tti_throughput throughput;
    char why[WHY_BYTES];
} word;

static tutti_status conclude(const word *words, int n, int n_shards, tti_throughputs *out) {
    TTI_TRY(alloc_throughputs(n, out));
    for (int r = 0; r < n; r++) {
        out->of[r] = words[r].throughput;
        if (!words[r].why[0]) continue;
        tti_shard_map_equally(n, n_shards, &out->shard_map);
        snprintf(out->text, sizeof out->text,
                 "parallel.load_weights=measured: rank %d could not be measured, so shards are "
                 "distributed evenly: %.*s",
                 r, WHY_BYTES - 1, words[r].why);
        return TUTTI_OK;
    }
    tti_str text = {0};
    out->n = n;
    tutti_status st = tti_throughput_shard_map(out->of, n, n_shards, &out->shard_map, &text);
    snprintf(out->text, sizeof out->text, "%s", tti_str_text(&text));
    tti_str_free(&text);
    return st;
}

/* Checks values from other processes before they determine the shard map. */
static tutti_status check_words(const word *words, int n) {
    for (int r = 0; r < n; r++) {
        const tti_throughput *p = &words[r].throughput;
        if (!(p->group_s >= SHORTEST_S && isfinite(p->group_s)) || p->n_compute_threads < 1)
            return tti_fail(TUTTI_E_MISMATCH,
                            "parallel.load_weights: rank %d reports %g s for %d shards at a time",
                            r, p->group_s, p->n_compute_threads);
    }
    return TUTTI_OK;
}

tutti_status tti_throughput_measure(const tti_blueprint *b, const tti_worker_desc *worker,
                                    tti_throughputs *out) {
    int n = tutti_comm_n_ranks(worker->comm);
    *out = (tti_throughputs){0};
    word mine = {.throughput = {SHORTEST_S, 1}}, *all = calloc((size_t)n, sizeof *all);
    if (!all) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    tutti_status st =
        tutti_comm_barrier(worker->comm); /* all workers measure at the same time, as in the run */
    if (st == TUTTI_OK && measure(b, worker, &mine.throughput) != TUTTI_OK) {
        snprintf(mine.why, sizeof mine.why, "%s", tutti_last_error());
        tti_clear_error();
        mine.throughput = (tti_throughput){SHORTEST_S, 1};
    }
    if (st == TUTTI_OK) st = tutti_comm_all_gather(worker->comm, &mine, all, sizeof mine, TUTTI_U8);
    if (st == TUTTI_OK) st = check_words(all, n);
    if (st == TUTTI_OK) st = conclude(all, n, b->n_shards, out);
    free(all);
    return st;
}

/* ---- an elastic run ---- */

static int by_size(const void *a, const void *b) {
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Computes the median of the known times; 0: none is known. */
static tutti_status median_group_s(const word *words, int n, double *median) {
    double *known = calloc((size_t)n, sizeof *known);
    size_t n_known = 0;
    if (!known) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    for (int r = 0; r < n; r++)
        if (words[r].throughput.group_s > 0) known[n_known++] = words[r].throughput.group_s;
    qsort(known, n_known, sizeof *known, by_size);
    *median = n_known > 0 ? known[(n_known - 1) / 2] : 0;
    free(known);
    return TUTTI_OK;
}

tutti_status tti_throughput_share(const tti_blueprint *b, const tti_worker_desc *worker,
                                  double group_s, tti_throughputs *out) {
    int n = tutti_comm_n_ranks(worker->comm);
    *out = (tti_throughputs){0};
    word mine = {.throughput = {group_s, n_compute_threads_of(b, worker)}},
         *all = calloc((size_t)n, sizeof *all);
    if (!all) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    tutti_status st = tutti_comm_all_gather(worker->comm, &mine, all, sizeof mine, TUTTI_U8);
    double median = 0;
    if (st == TUTTI_OK) st = median_group_s(all, n, &median);
    for (int r = 0; r < n && median > 0; r++)
        if (!(all[r].throughput.group_s > 0)) all[r].throughput.group_s = median;
    if (st == TUTTI_OK && median > 0) st = check_words(all, n);
    if (st == TUTTI_OK && median > 0) st = conclude(all, n, b->n_shards, out);
    free(all);
    return st;
}
