/* placement.c - warnings and reports about cores, devices, memory and reductions at the start and
 * end of a run. */
#include "train/loop/placement.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/files/cache.h"
#include "data/dataset.h"
#include "data/loader/resident.h"
#include "passes/rewrite.h"
#include "train/job/load_weights.h"
#include "train/loop/averaging.h"

static tutti_status warn_of_few_cores(tti_reporter *reporter, const tti_worker_loop_desc *desc) {
    int n = desc->local_n_ranks, n_cores = desc->local_n_cores;
    char text[200];
    if (n_cores == 0 || n <= n_cores || desc->blueprint->places.n > 0) return TUTTI_OK;
    snprintf(text, sizeof text,
             "%d workers share %d core%s: more workers than cores slow a run down; "
             "parallel.workers=%d is enough",
             n, n_cores, n_cores == 1 ? "" : "s", n_cores);
    return tti_reporter_warn(reporter, text);
}

int tti_count_loader_threads(const tti_worker_loop_desc *desc, const tutti_dataset *ds) {
    enum { CROWDED = 8 }; /* workers per core */
    int n_cores = desc->local_n_cores;
    bool is_crowded = n_cores > 0 && desc->local_n_ranks >= CROWDED * n_cores;
    return is_crowded && tti_dataset_is_drawn(ds) ? 0 : (int)desc->blueprint->config.data.threads;
}

/* Warns of shared devices, which are allowed because the bits are the same, but are slow. */
static tutti_status warn_sharing(tti_reporter *reporter, const tti_worker_loop_desc *desc) {
    int n = desc->local_n_ranks, n_devices = desc->local_n_devices;
    char text[280];
    if (!tti_devices_are_shared(&desc->blueprint->devices, n, n_devices)) return TUTTI_OK;
    snprintf(text, sizeof text,
             "%d workers share %d GPU%s: they take turns and reduce through the host; "
             "parallel.workers=%d is faster, and parallel.share_devices=false refuses such a run",
             n, n_devices, n_devices == 1 ? "" : "s", n_devices);
    return tti_reporter_warn(reporter, text);
}

static bool has_batch_norm(const tutti_graph *g) {
    for (int i = 0; i < g->n_nodes; i++)
        if (tti_is_op(g->nodes[i], "bn_running")) return true;
    return false;
}

/* Warns of batch norm in small shards, because statistics of a few samples are too noisy.
 * parallel.shards=auto follows the number of cores, so a job may get such shards without setting
 * them. */
static tutti_status warn_of_small_shards(tti_reporter *reporter, const tti_worker_loop_desc *desc) {
    enum { ENOUGH = 8 }; /* samples */
    const tti_blueprint *b = desc->blueprint;
    int64_t rows = b->rows_per_shard, n_shards = b->n_shards;
    char text[300];
    if (rows >= ENOUGH || n_shards == 1 || b->config.parallel.sync_batch_norm ||
        !has_batch_norm(b->plan->shard.graph))
        return TUTTI_OK;
    while (n_shards > 1 && b->config.train.batch / n_shards < ENOUGH) n_shards /= 2;
    snprintf(
        text, sizeof text,
        "batch norm computes its statistics over the %lld sample%s of a shard, which may train "
        "badly; parallel.sync_batch_norm=true uses the whole batch, parallel.shards=%lld "
        "larger shards",
        (long long)rows, rows == 1 ? "" : "s", (long long)n_shards);
    return tti_reporter_warn(reporter, text);
}

void tti_find_damaged_cache(const tti_worker_loop_desc *desc, char names[TTI_DAMAGED_TEXT]) {
    tti_str list = {0};
    names[0] = '\0';
    if (desc->rank != 0 || desc->blueprint->places.n == 0) return;
    if (tti_cache_find_damaged(&list) > 0)
        snprintf(names, TTI_DAMAGED_TEXT, "%s", tti_str_text(&list));
    tti_str_free(&list);
}

static tutti_status warn_of_cache(tti_reporter *reporter, const char *damaged) {
    char text[TTI_DAMAGED_TEXT + 1200];
    if (!damaged[0]) return TUTTI_OK;
    snprintf(text, sizeof text,
             "files in %s are damaged and are not used: %s; what they had is measured again",
             tti_cache_dir(), damaged);
    return tti_reporter_warn(reporter, text);
}

tutti_status tti_warn_of_placement(tti_reporter *reporter, const tti_worker_loop_desc *desc,
                                   const char *damaged) {
    TTI_TRY(warn_of_cache(reporter, damaged));
    TTI_TRY(warn_of_few_cores(reporter, desc));
    TTI_TRY(warn_of_small_shards(reporter, desc));
    return warn_sharing(reporter, desc);
}

/* True if parallel.load_weights applies and each weight belongs to one worker. */
static bool takes_weights(const tti_blueprint *b) {
    const tti_job_config *c = &b->config;
    tti_load_weights_kind kind = tti_load_weights_kind_of(c);
    bool is_even = kind == TTI_LOAD_WEIGHTS_AUTO || kind == TTI_LOAD_WEIGHTS_EQUAL;
    return is_even && b->places.n > 0 && b->n_model_ranks == 0 && !tti_job_has_server(c) &&
           !tti_job_is_local(c);
}

tutti_status tti_advise_load_weights(tti_reporter *reporter, const tti_worker_loop_desc *desc,
                                     const tti_slowest *slowest, const tti_shard_map *now) {
    const tti_blueprint *b = desc->blueprint;
    tti_shard_map even;
    tti_str text = {0};
    if (desc->rank != 0 || !takes_weights(b)) return TUTTI_OK;
    tti_shard_map_equally(slowest->n_ranks, b->n_shards, &even);
    tutti_status st =
        tti_slowest_advise(slowest, now ? now : &even, tti_job_is_exact(&b->config), &text);
    if (st == TUTTI_OK && text.n_bytes > 0) st = tti_reporter_warn(reporter, tti_str_text(&text));
    tti_str_free(&text);
    return st;
}

/* Sets the peak of this rank, and the extremes over all ranks unless workers are asynchronous or
 * mixed. */
tutti_status tti_report_memory(const tti_worker_loop_desc *desc, tti_exec *exec,
                               tutti_train_result *result) {
    const tti_blueprint *b = desc->blueprint;
    bool is_async = desc->server && tti_server_is_async(desc->server);
    bool is_alone = !desc->comm || tutti_comm_n_ranks(desc->comm) == 1;
    int64_t mine = (int64_t)tti_exec_memory_use(exec).device_peak, *all;
    bool together = b->places.n > 0 && !b->places.mixed && !is_async;
    if (desc->rank == 0) result->peak_device_bytes = (uint64_t)mine; /* threads share the result */
    if (!together || is_alone) return TUTTI_OK;
    int n = tutti_comm_n_ranks(desc->comm);
    all = calloc((size_t)n, sizeof *all);
    if (!all) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    tutti_status st = tutti_comm_all_gather(desc->comm, &mine, all, 1, TUTTI_I64);
    int64_t most = mine, least = mine;
    for (int r = 0; st == TUTTI_OK && r < n; r++)
        most = TTI_MAX(most, all[r]), least = TTI_MIN(least, all[r]);
    if (desc->rank == 0) {
        result->most_device_bytes = (uint64_t)most;
        result->least_device_bytes = (uint64_t)least;
    }
    free(all);
    return st;
}

const char *tti_reductions_text(const tti_worker_loop_desc *desc, const tti_exec *exec) {
    const tti_job_config *c = &desc->blueprint->config;
    if (tti_job_is_local(c)) return "replaced by averages of the parameters";
    if (!desc->server && tti_job_has_server(c)) return "by the first workers, as parameter servers";
    if (!desc->server) return tti_exec_transport(exec);
    if (c->parallel.backup_workers > 0)
        return "by a parameter server, from the first gradients to arrive";
    return tti_server_is_async(desc->server)
               ? "replaced by a parameter server, which applies each gradient"
               : "by a parameter server";
}

/* Only mixed runs gather the places; in other runs they follow from the rank. */
tutti_status tti_report_places(tti_reporter *reporter, const tti_worker_loop_desc *desc) {
    const tti_blueprint *b = desc->blueprint;
    int32_t mine = tti_devices_place(&b->places, desc->device_place);
    if (!b->places.mixed) return TUTTI_OK;
    int n = desc->comm ? tutti_comm_n_ranks(desc->comm) : 1;
    free(reporter->place);
    reporter->place = calloc((size_t)TTI_MAX(n, b->n_workers), sizeof *reporter->place);
    if (!reporter->place) return tti_fail(TUTTI_E_NOMEM, "train: out of memory");
    reporter->place[0] = mine;
    if (n == 1) return TUTTI_OK;
    return tutti_comm_all_gather(desc->comm, &mine, reporter->place, 1, TUTTI_I32);
}

const char *tti_why_not_resident(const tti_blueprint *b, bool is_async) {
    if (b->config.data.mixup > 0) return "data.mixup mixes samples";
    if (b->devices.mixed) return "some of the workers compute on the host";
    if (!b->devices.backend->device) return "there is no GPU";
    if (b->mesh.stage > 1) return "a stage of a pipeline reads only samples or only targets";
    if (is_async) return "asynchronous workers take batches in any order";
    return tti_resident_why_not(b->train);
}
