/* mixture.c - predicts a step of workers on devices and on the host: the slowest worker's compute
 * time, then the work of the host for all workers.
 *
 * These phases do not overlap (exec/device/comm/device_host_staged.c, params/offload.c): gradients
 * are copied from devices to pinned memory, all workers reduce them, every worker executes the
 * whole update on its own cores, and parameters are copied back. */
#include "planner/mixture.h"

#include <math.h>
#include <string.h>

#include "data/dataset.h"
#include "planner/device_costs.h"
#include "train/job/load_weights.h"
#include "train/setup/throughput.h"
#include "train/setup/worker_exec.h"

/* Bytes per second between pinned memory and an H200. */
static const double COPIED_BYTES_S = 50e9;

tutti_status tti_mixture_check_device(const tti_job_config *config, const char *device) {
    if (!device || strcmp(device, "measured") == 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_CONFIG,
                    "plan: predicting workers on GPUs and on the host (parallel.devices=%.60s) "
                    "needs measurements of both; leave out --device %.20s",
                    config->parallel.devices, device);
}

tutti_status tti_mixture_calibrate(const tti_blueprint *b, double budget_s, double base_bytes,
                                   tti_mixture *m) {
    TTI_TRY(tti_calibrate_machine(b, 1, budget_s, base_bytes, &m->devices));
    TTI_TRY(tti_calibrate_machine(b->on_host, b->n_workers, budget_s, base_bytes, &m->host));
    return TUTTI_OK;
}

tutti_status tti_mixture_micro_group(const tti_blueprint *b, tti_mixture *m, double left_s,
                                     double *spent_s) {
    return tti_calibrate_micro_groups(b, b->n_workers, &m->devices, &m->host, left_s, spent_s);
}

/* ---- workers ---- */

typedef struct mixed_worker {
    const tti_blueprint *b; /* blueprint of its kind, device or host */
    bool on_device;
    int n_threads; /* threads of its update */
    tti_group_cost micro_group;
} mixed_worker;

static mixed_worker mixed_worker_of(const tti_blueprint *b, const tti_mixture *m,
                                    const tti_scheme *l, int rank, bool *is_measured) {
    mixed_worker w = {.b = tti_blueprint_of(b, rank)};
    tti_core_share share;
    w.on_device = tti_devices_place(&b->places, rank) != TTI_ON_HOST;
    const tti_calibration *c = w.on_device ? &m->devices : &m->host;
    w.micro_group = tti_calibrated_micro_group(
        c, b->rows_per_shard, l->recompute, tti_program_cost_s(c, &w.b->plan->shard), is_measured);
    tti_worker_cores(w.b, rank, b->n_workers, &share);
    w.n_threads = TTI_MAX(share.n_threads, 1);
    return w;
}

static int n_compute_threads_of(const mixed_worker *w, int n_shards) {
    tti_exec_desc desc = tti_worker_exec_desc(w->b);
    desc.n_compute_threads = w->n_threads;
    return tti_exec_n_compute_threads(&desc, n_shards);
}

static tutti_status shard_map(const tti_blueprint *b, const tti_scheme *l,
                              const tti_throughput *throughputs, tti_shard_map *out) {
    tti_str text = {0};
    int n_shards = (int)l->shards;
    bool is_given;
    tti_load_weights_kind kind = tti_load_weights_kind_of(&b->config);
    TTI_TRY(tti_load_weights_given(&b->config, b->n_workers, n_shards, &is_given, out));
    if (is_given) return TUTTI_OK;
    tti_shard_map_equally(b->n_workers, n_shards, out);
    if (kind == TTI_LOAD_WEIGHTS_EQUAL) return TUTTI_OK;
    tutti_status st = tti_throughput_shard_map(throughputs, b->n_workers, n_shards, out, &text);
    tti_str_free(&text);
    return st;
}

/* ---- a step ---- */

static void predict_times(const tti_blueprint *b, const tti_mixture *m, const mixed_worker *workers,
                          const tti_shard_map *d, const tti_throughput *throughputs,
                          tti_prediction *p) {
    const tti_calibration *host = &m->host;
    double flat = (double)b->plan->n_flat, n = b->n_workers, slowest = 0;
    bool any_device = false;
    for (int r = 0; r < b->n_workers; r++) {
        const mixed_worker *w = &workers[r];
        double n_own = tti_shard_map_n_of(d, r);
        double add =
            w->on_device ? m->devices.add_s : host->add_s / throughputs[r].n_compute_threads;
        any_device = any_device || w->on_device;
        p->add_s = fmax(p->add_s, (n_own - 1) * flat * add);
        slowest = fmax(slowest, 1.0 / w->n_threads);
    }
    p->compute_s = tti_shard_map_seconds(d, throughputs);
    p->sent_bytes = 2 * (n - 1) / n * flat * sizeof(float);
    p->reduce_s =
        (b->plan->n_buckets + 1) * host->sum_latency_s + p->sent_bytes / host->sum_bytes_s;
    if (any_device) p->reduce_s += 2 * flat * sizeof(float) / COPIED_BYTES_S;
    for (int r = 0; r < b->n_workers; r++)
        if (!workers[r].on_device) /* measured with the threads of this worker */
            p->update_s = workers[r].micro_group.update_s * workers[r].n_threads * slowest;
    p->load_s = 0; /* samples are loaded by other threads */
    p->step_s = p->compute_s + p->add_s + p->reduce_s + p->update_s;
}

/* The host stores the optimizer state of a device, and a copy of its gradients. */
static tutti_status predict_memory(const tti_blueprint *b, const tti_mixture *m,
                                   const mixed_worker *workers, const tti_shard_map *d,
                                   tti_prediction *p) {
    for (int r = 0; r < b->n_workers; r++) {
        const mixed_worker *w = &workers[r];
        tti_exec_desc desc = tti_worker_exec_desc(w->b);
        tti_exec_memory memory;
        desc.shard_map = d;
        desc.n_compute_threads = w->n_threads;
        TTI_TRY(tti_exec_memory_plan(&desc, r, b->n_workers, &memory));
        double bytes = tti_bytes_of_arrays(&memory);
        if (w->on_device) {
            int n_own = tti_shard_map_n_of(d, r);
            bytes += tti_device_extra_bytes(w->b->plan, n_own) + w->micro_group.hidden_bytes;
            p->worker_bytes = fmax(p->worker_bytes, bytes);
            p->host_bytes += (double)(memory.offloaded + memory.grads);
        } else {
            p->host_bytes += tti_resident_page_bytes(&memory, desc.plan) +
                             tti_working_page_bytes(&memory, desc.plan, false) +
                             w->micro_group.hidden_bytes * n_compute_threads_of(w, b->n_shards);
        }
        if (r == 0) p->first_bytes = bytes;
    }
    p->host_bytes += m->host.base_bytes + m->host.code_bytes +
                     (double)tti_dataset_late_bytes(b->train) +
                     (double)tti_dataset_late_bytes(b->test);
    return TUTTI_OK;
}

tutti_status tti_mixture_predict(const tti_blueprint *b, const tti_scheme *l, const tti_mixture *m,
                                 tti_prediction *out) {
    size_t n = (size_t)b->n_workers;
    mixed_worker *workers = calloc(n, sizeof *workers);
    tti_throughput *throughputs = calloc(n, sizeof *throughputs);
    tti_shard_map d = {0};
    tutti_status st = TUTTI_OK;
    *out = (tti_prediction){.layout = *l, .is_measured = true};
    if (!workers || !throughputs) st = tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    for (int r = 0; st == TUTTI_OK && r < b->n_workers; r++) {
        bool is_measured;
        workers[r] = mixed_worker_of(b, m, l, r, &is_measured);
        out->is_measured = out->is_measured && is_measured;
        throughputs[r] = (tti_throughput){fmax(workers[r].micro_group.s, 1e-9),
                                          n_compute_threads_of(&workers[r], b->n_shards)};
    }
    if (st == TUTTI_OK) st = shard_map(b, l, throughputs, &d);
    if (st == TUTTI_OK) {
        predict_times(b, m, workers, &d, throughputs, out);
        st = predict_memory(b, m, workers, &d, out);
    }
    tti_shard_map_free(&d);
    free(workers);
    free(throughputs);
    return st;
}
