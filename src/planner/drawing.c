/* drawing.c - tutti_draw_layout: finds what each worker stores and sends; drawing_text.c and
 * drawing_svg.c print it. */
#include "planner/drawing.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/affinity.h"
#include "exec/program/exec_program.h"
#include "exec/update/flat_update.h"
#include "exec/worker/worker.h"
#include "train/job/devices.h"
#include "train/setup/init_config.h"
#include "train/setup/worker_exec.h"
#include "tutti/planner.h"

/* ---- a parameter server ---- */

bool tti_drawing_has_processes(const tti_drawing *d) {
    return strcmp(d->b->config.parallel.place, "processes") == 0;
}

bool tti_drawing_has_server(const tti_drawing *d) {
    return tti_job_has_server(&d->b->config) && !tti_worker_serves_in_ranks(d->b);
}

bool tti_drawing_has_state_owners(const tti_drawing *d) {
    return tti_drawing_has_server(d) && d->b->n_model_ranks > 0;
}

/* The number of workers that divide a batch. */
static int n_batch_workers(const tti_drawing *d) {
    return tti_job_is_async(&d->b->config) ? 1 : d->scheme.data;
}

int tti_drawing_n_ranges(const tti_drawing *d) {
    return tti_drawing_has_processes(d) ? tti_worker_n_range_servers(d->b)
                                        : (int)d->b->config.parallel.servers;
}

/* The first element of block i of the update. */
static size_t block_begin(const tti_plan *plan, size_t i) {
    return i < (size_t)plan->n_updates ? plan->updates[i].first : plan->n_flat;
}

tutti_status tti_drawing_range(const tti_drawing *d, int r, tti_resident_range *out) {
    tti_exec_desc desc = d->exec;
    const tti_plan *plan = desc.plan;
    tti_exec_memory m;
    desc.range = r;
    desc.n_ranges = tti_drawing_n_ranges(d);
    if (tti_drawing_has_processes(d)) {
        TTI_TRY(tti_exec_memory_plan(&desc, 0, 1, &m));
        *out = (tti_resident_range){tti_share_range(plan, r, desc.n_ranges), m.params, m.states};
        return TUTTI_OK;
    }
    tti_range blocks = tti_compute_thread_range((size_t)plan->n_updates, 1, r, desc.n_ranges);
    out->keys = (tti_range){block_begin(plan, blocks.first), block_begin(plan, blocks.last)};
    out->params = (out->keys.last - out->keys.first) * sizeof(float);
    out->states = out->params * (size_t)plan->n_states;
    return TUTTI_OK;
}

/* ---- gradients ---- */

bool tti_drawing_is_compressed(const tti_drawing *d) {
    const tti_job_config *c = &d->b->config;
    return d->scheme.data > 1 &&
           (strcmp(c->parallel.compress, "none") != 0 || tti_job_wire(c) != TUTTI_F32);
}

const char *tti_drawing_compression(const tti_drawing *d) {
    const tti_job_config *c = &d->b->config;
    return tti_job_wire(c) == TUTTI_BF16 ? "bf16" : c->parallel.compress;
}

size_t tti_drawing_message_bytes(const tti_drawing *d, const tti_plan *plan, size_t first,
                                 size_t n_elems) {
    tti_exec_desc desc = d->exec;
    desc.plan = plan;
    if (tti_compress_wanted(&desc, d->scheme.data))
        return tti_compress_message_bytes(&desc, first, n_elems);
    return n_elems * tti_exec_wire_bytes(&desc);
}

/* ---- a worker ---- */

/* The shard map of a batch for n workers; borrows the array of the blueprint. */
static tti_shard_map shard_map_of(const tti_drawing *d, int n) {
    tti_shard_map shard_map;
    tti_shard_map_equally(n, d->b->n_shards, &shard_map);
    return d->b->has_shard_map && d->b->shard_map.n_ranks == n ? d->b->shard_map : shard_map;
}

bool tti_drawing_has_no_state(const tti_drawing *d, const tti_worker_storage *h) {
    return tti_drawing_has_server(d) && !(tti_drawing_has_state_owners(d) && h->at.data == 0);
}

tutti_status tti_drawing_find_storage(const tti_drawing *d, int rank, tti_worker_storage *h) {
    const tti_blueprint *b = tti_blueprint_of(d->b, rank);
    tti_exec_desc desc = tti_worker_exec_desc(b);
    if (tti_worker_serves_in_ranks(d->b)) tti_worker_serve_in_ranks(d->b, &desc);
    h->at = tti_mesh_at_rank(&d->b->mesh, rank);
    h->plan = desc.plan = tti_blueprint_plan(b, tti_mesh_model_rank(&d->b->mesh, &h->at));
    desc.n_compute_threads = 1;
    int n = n_batch_workers(d), at = n == 1 ? 0 : h->at.data; /* n 1: whole batches */
    tti_shard_map shard_map = shard_map_of(d, n);
    desc.shard_map = &shard_map;
    h->first_shard = tti_shard_map_first(&shard_map, at);
    h->last_shard = tti_shard_map_first(&shard_map, at + 1);
    h->first = h->plan->n_slots ? h->plan->slots[h->plan->n_slots - 1].param->name : "";
    h->last = h->plan->n_slots ? h->plan->slots[0].param->name : "";
    TTI_TRY(tti_exec_memory_plan(&desc, at, n, &h->bytes));
    if (tti_drawing_has_no_state(d, h)) h->bytes.states = h->bytes.ema = 0;
    h->is_offloaded = desc.offload;
    return TUTTI_OK;
}

void tti_drawing_print_place(const tti_drawing *d, int rank) {
    int place = tti_devices_place(&d->b->places, rank);
    if (!d->b->places.mixed) return;
    tti_str_add(d->out, place == TTI_ON_HOST ? "  on the host" : "  on device ");
    if (place != TTI_ON_HOST) tti_str_printf(d->out, "%d", place);
}

tti_schedule_drawing tti_drawing_schedule(const tti_drawing *d) {
    tti_exec_desc desc = d->exec;
    tti_core_share share;
    tti_shard_map shard_map = shard_map_of(d, n_batch_workers(d));
    int n_own = TTI_MAX(1, tti_shard_map_n_of(&shard_map, 0));
    tti_worker_cores(d->b, 0, d->n_workers, &share);
    desc.plan = tti_blueprint_plan(d->b, 0);
    desc.n_compute_threads = share.n_threads;
    int n_compute_threads = tti_exec_n_compute_threads(&desc, n_own);
    return (tti_schedule_drawing){
        desc.plan->stages, (n_own + n_compute_threads - 1) / n_compute_threads, n_compute_threads};
}

int tti_drawing_collectives(const tti_drawing *d, const tti_plan *plan, double *bytes) {
    int n = 0;
    *bytes = 0;
    for (int i = 0; i < plan->shard.n_steps; i++) {
        double sent = tti_collective_bytes(plan->shard.steps[i], d->scheme.tensor);
        if (sent < 0) continue;
        *bytes += sent;
        n++;
    }
    return n;
}

/* One all-reduce per joined value, over the values of all shards. */
int tti_drawing_joins(const tti_drawing *d, const tti_plan *plan, double *bytes) {
    int n = 0;
    *bytes = 0;
    for (int i = 0; i < plan->shard.n_steps; i++) {
        const tti_node *node = plan->shard.steps[i];
        if (!(node->op->traits & TTI_SYNC)) continue;
        *bytes += (double)tti_value_n_elems(node->out[0]) * d->b->n_shards * (double)sizeof(float);
        n++;
    }
    return n;
}

/* ---- text and SVG ---- */

static tutti_status resolve(tutti_job *job) {
    tti_devices devices;
    TTI_TRY(tutti_job_check(job));
    TTI_TRY(tti_init_config_apply(job));
    TTI_TRY(tti_devices_resolve(job, &devices));
    return tti_job_resolve(job, devices.n ? devices.n : tti_cores_usable());
}

static tutti_status open_job(tutti_job *job, const tti_blueprint **b) {
    tti_options_kept kept;
    TTI_TRY(tti_options_keep(tti_job_options(job), &kept));
    tutti_status st = resolve(job);
    if (st == TUTTI_OK) st = tti_blueprint_create(job, b);
    tti_options_restore(tti_job_options(job), &kept);
    return tti_job_say_where(job, st);
}

/* The workers of one replica all use the smallest number of compute threads that any of them
 * has. */
static int threads_of(const tti_drawing *d, const tti_mesh_at *at) {
    int n = INT_MAX;
    for (int r = 0; r < d->n_workers; r++) {
        tti_core_share share;
        if (tti_mesh_at_rank(&d->b->mesh, r).data != at->data) continue;
        tti_worker_cores(d->b, r, d->n_workers, &share);
        n = TTI_MIN(n, share.n_threads);
    }
    return n;
}

static tutti_status list_steps_of(const tti_drawing *d, int rank) {
    const tti_blueprint *b = tti_blueprint_of(d->b, rank);
    tti_exec_desc desc = tti_worker_exec_desc(b);
    tti_mesh_at at = tti_mesh_at_rank(&d->b->mesh, rank);
    int n = d->b->config.parallel.backup_workers > 0 ? d->n_workers : n_batch_workers(d);
    if (tti_worker_serves_in_ranks(d->b)) tti_worker_serve_in_ranks(d->b, &desc);
    if (desc.backend->device)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "inspect: worker %d computes on a device; only workers on the host execute "
                        "a list of instructions",
                        rank);
    tti_shard_map map = shard_map_of(d, n);
    desc.plan = tti_blueprint_plan(b, tti_mesh_model_rank(&d->b->mesh, &at));
    desc.shard_map = &map;
    desc.n_compute_threads = threads_of(d, &at);
    tti_step_lists *lists;
    TTI_TRY(tti_step_lists_create(&(tti_list_desc){.exec = &desc,
                                                   .rank = n == 1 ? 0 : at.data,
                                                   .n_ranks = n,
                                                   .is_divided = tti_mesh_n_model(&d->b->mesh) > 1,
                                                   .has_server = tti_drawing_has_server(d),
                                                   .is_async = tti_job_is_async(&d->b->config)},
                                  &lists));
    tti_step_lists_print(lists, d->out);
    tti_step_lists_destroy(lists);
    return TUTTI_OK;
}

static tutti_status list_steps(const tti_drawing *d, const char *worker) {
    char *end;
    long rank = strtol(worker, &end, 10);
    if (end == worker || *end || rank < 0 || rank >= d->n_workers)
        return tti_fail(TUTTI_E_CONFIG, "inspect: worker '%.40s': there are 0 to %d", worker,
                        d->n_workers - 1);
    return list_steps_of(d, (int)rank);
}

/* worker: the rank whose steps are listed; NULL: draws the layout of all workers. */
static tutti_status describe(tutti_job *job, bool svg, const char *worker, char **text) {
    const tti_blueprint *b;
    tti_str out = {0};
    *text = NULL;
    TTI_TRY(open_job(job, &b));
    tti_drawing d = {.b = b,
                     .exec = tti_worker_exec_desc(b),
                     .scheme = tti_scheme_of(&b->config),
                     .n_workers = b->n_workers,
                     .out = &out};
    tutti_status st;
    if (worker)
        st = list_steps(&d, worker);
    else
        st = svg ? tti_draw_svg(&d) : tti_draw_text(&d);
    tti_blueprint_destroy(b);
    if (st == TUTTI_OK && out.failed) st = tti_fail(TUTTI_E_NOMEM, "inspect: out of memory");
    if (st == TUTTI_OK)
        *text = out.text;
    else
        tti_str_free(&out);
    return st;
}

tutti_status tutti_draw_layout(tutti_job *job, bool svg, char **text) {
    return describe(job, svg, NULL, text);
}

tutti_status tutti_list_steps(tutti_job *job, const char *worker, char **text) {
    return describe(job, false, worker, text);
}
