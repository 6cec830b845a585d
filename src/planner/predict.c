/* predict.c - costs the instructions of a step: runs of the shard program, merges, reductions
 * between workers and the update. Adds the loading of samples.
 *
 * On a host all of these use the same cores, so their times add up. On devices reductions overlap
 * with kernels (device_costs.h), and loading overlaps with everything. */
#include "planner/predict.h"

#include <math.h>
#include <string.h>

#include "data/dataset.h"
#include "exec/device/device.h"
#include "exec/program/exec_program.h"
#include "exec/update/flat_update.h"
#include "exec/worker/worker.h"
#include "planner/device_costs.h"
#include "planner/scratch.h"
#include "planner/stage_sim.h"
#include "planner/step_cost.h"
#include "train/setup/worker_exec.h"

/* The backward pass's fraction of a shard program's time: it has twice as many products as the
 * forward pass. */
static const double BACKWARD = 2.0 / 3.0;

static int at_least_one(int n) { return n > 1 ? n : 1; }

tti_scheme tti_scheme_of(const tti_job_config *config) {
    int tensor = (int)config->parallel.tensor, pipeline = (int)config->parallel.pipeline;
    return (tti_scheme){.data = (int)config->parallel.workers / (tensor * pipeline),
                        .tensor = tensor,
                        .pipeline = pipeline,
                        .chunks = (int)config->parallel.pipeline_chunks,
                        .zero = (int)config->parallel.zero,
                        .shards = config->parallel.shards,
                        .recompute = config->train.recompute};
}

/* ---- computation ---- */

/* A worker: its shards, its compute threads, and the number of compute threads per core (at least
 * 1). */
typedef struct worker {
    int n_workers, n_own, n_compute_threads, n_micro_groups;
    double threads_per_core;
} worker;

/* The worker with the most shards, for which all others wait. */
static worker slowest_worker(const tti_blueprint *b, const tti_scheme *l,
                             const tti_calibration *c) {
    worker w = {.n_workers = l->data * l->tensor * l->pipeline};
    tti_exec_desc desc = tti_worker_exec_desc(b);
    desc.plan = tti_blueprint_plan(b, 0);
    desc.n_compute_threads = at_least_one(c->n_cores / w.n_workers);
    w.n_own = at_least_one((int)((l->shards + l->data - 1) / l->data));
    w.n_compute_threads = c->is_device ? 1 : tti_exec_n_compute_threads(&desc, w.n_own);
    w.n_micro_groups = tti_micro_groups_of(w.n_own, w.n_compute_threads);
    double compute_threads = (double)w.n_workers * w.n_compute_threads;
    w.threads_per_core = compute_threads > c->n_cores ? compute_threads / c->n_cores : 1;
    return w;
}

/* The maximum of each quantity over the workers of a replica. */
typedef struct replica_max {
    double n_flat;
    double most;                               /* estimated seconds of its shard program */
    double model_parallel_s, collective_bytes; /* tensor-parallel collectives, per shard */
    double tied_bytes;
    tti_step_cost step; /* cost of its list of instructions */
} replica_max;

/* Seconds and *bytes of a tensor rank's collectives per shard. On a host they are part of the
 * program and run one after the other. */
static double collective_seconds(const tti_program *program, const tti_calibration *c, int n,
                                 double *bytes) {
    double seconds = 0;
    *bytes = 0;
    for (int i = 0; i < program->n_steps; i++) {
        double sent = tti_collective_bytes(program->steps[i], n);
        if (sent < 0) continue;
        *bytes += sent;
        seconds += c->tp.latency_s + sent / c->tp.bytes_s;
    }
    return seconds;
}

/* True if workers share a device, if stages are on a kind of device without peer-to-peer memory, or
 * if the job needs the host. */
static bool is_host_staged(const tti_blueprint *b, const tti_calibration *c) {
    bool shares = b->n_workers > c->n_cores;
    bool lacks = b->mesh.stage > 1 && !c->has_p2p;
    return c->is_device && (shares || lacks || tti_job_is_host_staged(&b->config, b->mesh.data));
}

/* Seconds *s and *bytes of tensor-parallel collectives per shard. Devices overlap them with
 * kernels. */
static tutti_status collectives_s(const tti_blueprint *b, const tti_calibration *c,
                                  const tti_plan *plan, double s_per_cost, double *s,
                                  double *bytes) {
    tti_overlap overlap;
    *s = collective_seconds(&plan->shard, c, b->mesh.tensor, bytes);
    if (!c->is_device) return TUTTI_OK;
    if (is_host_staged(b, c)) {
        *s = *bytes * c->host_staged_s_per_byte;
        return TUTTI_OK;
    }
    const tti_device_ops *ops = tti_blueprint_devices(b)->backend->device;
    TTI_TRY(tti_overlapped_collectives(c, ops, &plan->shard, b->mesh.tensor, s_per_cost, &overlap));
    *s = overlap.exposed_s + overlap.slowdown_s;
    return TUTTI_OK;
}

static void take_maximum(const tti_step_cost *cost, tti_step_cost *most) {
    most->n_runs = fmax(most->n_runs, cost->n_runs);
    most->merged = fmax(most->merged, cost->merged);
    most->n_reductions = fmax(most->n_reductions, cost->n_reductions);
    most->reduced_bytes = fmax(most->reduced_bytes, cost->reduced_bytes);
    most->n_gathers = fmax(most->n_gathers, cost->n_gathers);
    most->gathered_bytes = fmax(most->gathered_bytes, cost->gathered_bytes);
    most->n_small = fmax(most->n_small, cost->n_small);
    most->n_updates = fmax(most->n_updates, cost->n_updates);
    most->reduces_tied = most->reduces_tied || cost->reduces_tied;
}

/* s_per_cost: measured seconds of kernels per estimated second. */
static tutti_status find_replica_max(const tti_blueprint *b, const tti_scheme *l, const worker *w,
                                     const tti_calibration *c, double s_per_cost, replica_max *x) {
    *x = (replica_max){0};
    for (int i = 0; i < tti_mesh_n_model(&b->mesh); i++) {
        const tti_plan *plan = tti_blueprint_plan(b, i);
        double seconds, bytes;
        TTI_TRY(collectives_s(b, c, plan, s_per_cost, &seconds, &bytes));
        x->most = fmax(x->most, tti_program_cost_s(c, &plan->shard));
        x->n_flat = fmax(x->n_flat, (double)plan->n_flat);
        x->model_parallel_s = fmax(x->model_parallel_s, seconds);
        x->collective_bytes = fmax(x->collective_bytes, bytes);
        const tti_step_worker position = {.b = b,
                                          .position = i,
                                          .n_ranks = l->data,
                                          .n_shards = (int)l->shards,
                                          .is_device = c->is_device,
                                          .n_compute_threads = w->n_compute_threads};
        tti_step_cost step;
        TTI_TRY(tti_step_cost_of(&position, c, &step));
        take_maximum(&step, &x->step);
        if (step.reduces_tied) x->tied_bytes = fmax(x->tied_bytes, tti_tied_bytes(plan));
    }
    return TUTTI_OK;
}

/* ---- time ---- */

/* Simulates the pipeline schedule with and without the time of messages. */
static tutti_status simulate_stages(const tti_blueprint *b, const tti_calibration *c,
                                    double s_per_cost, const worker *w, tti_stage_sim *silent,
                                    tti_stage_sim *with_messages) {
    double *slot_s;
    TTI_TRY(tti_stage_costs(b, c, &slot_s));
    tti_stage_sim_desc desc = {.stages = tti_blueprint_plan(b, 0)->stages,
                               .n_micro_groups = w->n_micro_groups,
                               .n_compute_threads = w->n_compute_threads,
                               .slot_s = slot_s};
    for (int i = 0; i < 2 * tti_stages_n_all_chunks(desc.stages); i++) slot_s[i] *= s_per_cost;
    tutti_status st = tti_stage_sim_run(&desc, silent);
    desc.latency_s = c->message.latency_s;
    desc.s_per_byte = 1 / c->message.bytes_s;
    if (st == TUTTI_OK) st = tti_stage_sim_run(&desc, with_messages);
    free(slot_s);
    return st;
}

/* With more workers than cores, other workers use the core of a worker that waits. */
static tutti_status predict_stages(tti_prediction *p, const tti_blueprint *b,
                                   const tti_calibration *c, double s_per_cost, const worker *w) {
    double most = 0, all = 0;
    const tti_plan *plan = tti_blueprint_plan(b, 0);
    tti_stage_sim silent = {0}, with_messages = {0};
    tutti_status st = simulate_stages(b, c, s_per_cost, w, &silent, &with_messages);
    for (int i = 0; st == TUTTI_OK && i < p->layout.pipeline; i++) {
        double out = 0;
        for (int k = 0; k < p->layout.pipeline; k++) out += tti_stage_bytes(plan->stages, i, k);
        p->sent_bytes = fmax(p->sent_bytes, out * w->n_own);
        most = fmax(most, silent.busy_s[i]), all += silent.busy_s[i];
    }
    all *= (double)p->layout.data * p->layout.tensor * w->n_compute_threads / c->n_cores;
    double whole = w->threads_per_core > 1 ? fmax(silent.step_s, all) : silent.step_s;
    p->compute_s = fmin(whole, most * w->threads_per_core);
    p->bubble_s = whole - p->compute_s;
    p->bubble = silent.bubble;
    p->model_parallel_s += with_messages.step_s - silent.step_s;
    tti_stage_sim_fini(&silent);
    tti_stage_sim_fini(&with_messages);
    return st;
}

static tutti_status predict_compute(tti_prediction *p, const tti_blueprint *b,
                                    const tti_calibration *c, const tti_group_cost *micro_group,
                                    const replica_max *x, const worker *w) {
    double s_per_cost = micro_group->s / micro_group->cost_s;
    p->sent_bytes = 0;
    p->model_parallel_s = x->model_parallel_s * w->n_own * w->threads_per_core;
    p->compute_s = x->most * s_per_cost * x->step.n_runs * w->threads_per_core;
    if (p->layout.pipeline > 1) TTI_TRY(predict_stages(p, b, c, s_per_cost, w));
    p->sent_bytes += x->collective_bytes * w->n_own;
    return TUTTI_OK;
}

/* The measured bandwidth of an all-reduce tells whether links are fast. */
static bool reduces_after_backward(const tti_scheme *l, const tti_calibration *c,
                                   const tti_plan *plan) {
    static const double FAST = 1e11;
    bool is_plain = l->zero < 2 && l->tensor * l->pipeline == 1 && c->sum_bytes_s > FAST;
    return is_plain && tti_device_sums_after(plan, &tti_weights_gpu, l->zero == 1);
}

/* For devices with peer access. Gradients overlap with the last shard. Parameters overlap with the
 * first shard's forward pass for ZeRO 1 and 2, and with all shards for ZeRO 3. */
static double overlapped_sums(const tti_prediction *p, const tti_calibration *c,
                              const tti_plan *plan, const tti_step_cost *step, const worker *w) {
    const tti_scheme *l = &p->layout;
    double shard_s = p->compute_s / w->n_own;
    double hides_s = reduces_after_backward(l, c, plan) ? 0 : shard_s;
    tti_overlap sums = {0}, gathers = {0};
    if (step->n_reductions > 0) sums = tti_overlapped_sums(c, plan, hides_s, step->reduced_bytes);
    if (step->n_gathers > 0)
        gathers = tti_overlapped_gathers(c, step->n_gathers, step->gathered_bytes,
                                         l->zero < 3 ? shard_s * (1 - BACKWARD) : p->compute_s);
    return sums.exposed_s + sums.slowdown_s + gathers.exposed_s + gathers.slowdown_s +
           c->sum_latency_s;
}

/* Seconds to all-reduce the gradients of tied parameters, `bytes` in total. */
static double tied_s(const tti_blueprint *b, const tti_calibration *c, double bytes) {
    if (bytes <= 0) return 0;
    if (is_host_staged(b, c)) return bytes * c->host_staged_s_per_byte;
    return c->sum_latency_s + 2 * bytes / c->sum_bytes_s;
}

static void predict_sums(tti_prediction *p, const tti_blueprint *b, const replica_max *x,
                         const tti_calibration *c, const worker *w) {
    const tti_scheme *l = &p->layout;
    const tti_step_cost *step = &x->step;
    p->add_s = step->merged * c->add_s / w->n_compute_threads * w->threads_per_core;
    p->reduce_s = tied_s(b, c, x->tied_bytes);
    p->sent_bytes += x->tied_bytes;
    if (l->data < 2) return;
    double sent = step->reduced_bytes + step->gathered_bytes;
    double n_calls = step->n_reductions + step->n_gathers + step->n_small;
    double n_rounds = l->zero == 3 ? 2 : 1; /* ZeRO 3: parameters pass the host too */
    if (is_host_staged(b, c))
        p->reduce_s += x->n_flat * sizeof(float) * c->host_staged_s_per_byte * n_rounds;
    else if (c->is_device)
        p->reduce_s += overlapped_sums(p, c, tti_blueprint_plan(b, 0), step, w);
    else
        p->reduce_s += n_calls * c->sum_latency_s + sent / c->sum_bytes_s;
    p->sent_bytes += sent;
}

/* The update was measured with all cores together. In a run each worker executes an update, or the
 * threads or ranks of a server execute one for all workers. */
static void predict_update(tti_prediction *p, const tti_blueprint *b, const replica_max *x,
                           const tti_group_cost *micro_group, const tti_calibration *c,
                           const worker *w) {
    const tti_scheme *l = &p->layout;
    const tti_plan *plan = b->plan;
    bool in_ranks = tti_worker_serves_in_ranks(b);
    bool served = tti_job_has_server(&b->config) && !in_ranks;
    int n_servers = (int)b->config.parallel.servers,
        n_compute_threads = served ? n_servers : w->n_compute_threads;
    int n_updates =
        n_compute_threads * (b->n_model_ranks > 0 ? b->n_model_ranks : 1); /* concurrent threads */
    double threads_per_core =
        served ? fmax(1, (double)n_updates / c->n_cores) : w->threads_per_core;
    double once = micro_group->update_s > 0 ? micro_group->update_s : tti_update_cost_s(c, plan);
    double whole =
        once * (c->is_device ? 1 : (double)c->n_cores / n_compute_threads) * threads_per_core;
    bool is_partitioned = l->zero > 0 || (!served && tti_workers_share(b));
    int n_parts = in_ranks ? TTI_MIN(n_servers, l->data) : is_partitioned ? l->data : 1;
    p->update_s = x->step.n_updates * whole * x->n_flat / (double)plan->n_flat / n_parts;
}

static void predict_load(tti_prediction *p, const tti_blueprint *b,
                         const tti_group_cost *micro_group, const tti_calibration *c) {
    if (!c->is_device) p->load_s = micro_group->load_s * (double)b->config.train.batch / c->n_cores;
}

/* ---- memory ---- */

/* Arrays that are stored once for all workers. */
typedef struct shared_arrays {
    tti_exec_memory common; /* stored by a server, or shared by threads */
    bool has_common;
} shared_arrays;

/* Moves state and averages of the workers to the server, which also has its own copy of the
 * parameters. It reads gradients in the workers' memory. */
static void move_to_server(tti_exec_memory *m, shared_arrays *h) {
    h->common = (tti_exec_memory){.params = m->params, .states = m->states, .ema = m->ema};
    h->has_common = true;
    m->states = m->ema = 0;
}

/* Moves the state of each part to the worker of the first replica, which stores it once. */
static void move_to_state_owner(tti_exec_memory *m, shared_arrays *h, bool is_first) {
    if (is_first) {
        h->common.params += m->params;
        h->common.states += m->states;
        h->common.ema += m->ema;
    }
    h->has_common = true;
    m->states = 0;
}

/* Sums the workers' partitions into one shared copy. */
static void move_to_shared(tti_exec_memory *m, shared_arrays *h, size_t n) {
    h->common =
        (tti_exec_memory){.params = m->params * n, .states = m->states * n, .ema = m->ema * n};
    h->has_common = true;
    m->params = m->states = m->ema = 0;
}

/* Bytes of the longest tensor. A checkpoint is written one tensor at a time, from a copy. */
static double longest_slot(const tti_plan *plan) {
    size_t longest = 0;
    for (int i = 0; i < plan->n_slots; i++) longest = TTI_MAX(longest, plan->slots[i].n_elems);
    return (double)(longest * sizeof(float));
}

/* Host bytes in addition for a divided model. Each worker loads the batches of all of its shards,
 * for training and evaluation; worker 0 assembles checkpoints from the parts. */
static double bytes_of_division(const tti_blueprint *b, double batches) {
    double longest = 0;
    for (int i = 0; i < b->n_model_ranks; i++)
        longest = fmax(longest, longest_slot(tti_blueprint_plan(b, i)));
    return longest + 2 * batches * TTI_MAX(b->n_model_ranks - 1, 0);
}

/* The size of a channel's areas, in f32 arrays of the keys: parameters, gradient and averages. A
 * gradient in 16 bits needs half an array, and a whole one for its f32 copy. */
static double arrays_of_channel(const tti_job_config *c) {
    bool rounds = tti_job_wire(c) != TUTTI_F32;
    return 2 + (c->train.ema > 0) + (rounds ? 0.5 : 0);
}

/* Adds the channels to the owner of each part. An owner's own worker has such arrays too, except
 * the first owner's. If workers are threads of one process, both ends of a channel count. */
static void add_channels_of_parts(tti_prediction *p, const tti_blueprint *b) {
    bool processes = strcmp(b->config.parallel.place, "processes") == 0;
    double most = 0, arrays = arrays_of_channel(&b->config);
    int n_far = b->mesh.data - 1;
    for (int i = 0; i < b->n_model_ranks; i++) {
        double of = arrays * (double)(tti_blueprint_plan(b, i)->n_flat * sizeof(float));
        int n_own = i > 0;
        most = fmax(most, of * (n_far + n_own));
        p->host_bytes += of * (n_far * (processes ? 1 : 2) + n_own);
        if (i == 0) p->first_bytes += of * n_far;
    }
    p->worker_bytes += most;
}

/* Adds the channels of range servers: parameters, gradient and averages of each range, in memory
 * shared with each worker of another process. */
static void add_channels(tti_prediction *p, const tti_blueprint *b, int n_workers) {
    bool processes = strcmp(b->config.parallel.place, "processes") == 0;
    int n_range_servers = processes ? tti_worker_n_range_servers(b) : 0;
    double first = 0, all = 0, widest = 0;
    if (n_range_servers == 0 || n_workers < 2) return;
    for (int r = 0; r < n_range_servers; r++) {
        tti_range keys = tti_share_range(b->plan, r, n_range_servers);
        double bytes = (double)((keys.last - keys.first) * sizeof(float));
        bytes *= arrays_of_channel(&b->config);
        if (r == 0) first = bytes;
        if (r < n_workers) widest = fmax(widest, bytes);
        all += bytes;
    }
    p->worker_bytes += all + (n_workers - 2) * widest;
    p->first_bytes += all + (n_workers - 2) * first;
    p->host_bytes += all * (n_workers - 1);
}

/* Bytes of host copies of a device's arrays: arrays for checkpoints (first replica, or all workers
 * if the state is sharded), a gradient if the host reduces it, and data exchanged with a server or
 * averaged. */
static double copies_of_device(const tti_blueprint *b, const tti_calibration *c,
                               const tti_exec_desc *desc, const tti_exec_memory *m, bool is_first) {
    double flat = (double)desc->plan->n_flat * sizeof(float), bytes = 0;
    bool saves = is_first || desc->zero > 0;
    if (saves) bytes += (double)(m->params + m->states + m->ema);
    if (b->mesh.data > 1 && is_host_staged(b, c)) bytes += flat;
    if (tti_job_has_server(&b->config)) bytes += 2 * flat;
    if (desc->local && !saves) bytes += flat;
    return bytes;
}

/* The number of shards whose activations exist at the same time. */
static int in_flight(const tti_plan *plan, const tti_exec_memory *m) {
    size_t each = TTI_MAX(plan->shard.arena_bytes, plan->eval.arena_bytes);
    return each > 0 ? (int)(m->arena / each) : 0;
}

/* The inputs from which the memory of a worker is computed. */
typedef struct memory_case {
    const tti_blueprint *b;
    const tti_group_cost *micro_group;
    const tti_calibration *c;
    const worker *w;
    tti_exec_desc desc;
    double max_shard_s;    /* estimated seconds of the longest shard program */
    double resident_bytes; /* bytes of samples that stay on a device */
    int n_data;
    bool is_async, has_server; /* is_async: each worker computes whole batches; has_server: a server
                          stores the state */
} memory_case;

/* Adds the memory of the worker at a mesh position, which represents n_alike equal workers. */
static tutti_status add_worker(const memory_case *k, const tti_mesh_at *at, double n_alike,
                               shared_arrays *h, tti_prediction *p) {
    tti_exec_memory m;
    const tti_blueprint *b = k->b;
    tti_exec_desc desc = k->desc;
    bool is_device = k->c->is_device, is_first = at->data == 0;
    desc.plan = tti_blueprint_plan(b, tti_mesh_model_rank(&b->mesh, at));
    TTI_TRY(
        tti_exec_memory_plan(&desc, k->is_async ? 0 : at->data, k->is_async ? 1 : k->n_data, &m));
    double extra =
        is_device ? tti_device_extra_bytes(desc.plan, k->w->n_own) + k->resident_bytes : 0;
    double scratch = tti_scratch_bytes(k->c, desc.plan, k->micro_group, k->max_shard_s);
    double bytes =
        tti_bytes_of_arrays(&m) + extra + scratch * tti_device_in_flight(desc.plan, k->w->n_own);
    if (!is_device) bytes += (double)m.mailbox;
    p->worker_bytes = fmax(p->worker_bytes, bytes);
    if (is_first && at->stage == 0 && at->tensor == 0) p->first_bytes = bytes;
    if (k->has_server && b->n_model_ranks > 0) move_to_state_owner(&m, h, is_first);
    if (k->has_server && b->n_model_ranks == 0) move_to_server(&m, h);
    if (desc.shares) move_to_shared(&m, h, (size_t)k->w->n_workers);
    double host =
        is_device ? copies_of_device(b, k->c, &desc, &m, is_first)
                  : tti_resident_page_bytes(&m, desc.plan) +
                        tti_working_page_bytes(&m, desc.plan, k->is_async || k->w->n_workers == 1);
    host += (double)(m.offloaded + m.mailbox) +
            k->micro_group->hidden_bytes * k->w->n_compute_threads +
            tti_scratch_difference(k->c, b, at->stage, in_flight(desc.plan, &m),
                                   k->w->n_compute_threads);
    if (desc.zero > 2) host += longest_slot(b->plan); /* gathered state, for a checkpoint */
    p->host_bytes += host * n_alike;
    return TUTTI_OK;
}

/* The most replicas whose memory is computed individually. With more replicas, the first and
 * equally spaced others are computed, and each represents those up to the next. */
enum { MAX_REPLICAS = 64 };

static tutti_status add_workers(const memory_case *k, shared_arrays *h, tti_prediction *p) {
    int n = k->n_data, n_model = tti_mesh_n_model(&k->b->mesh);
    int n_computed = TTI_MIN(n, MAX_REPLICAS);
    for (int i = 0; i < n_computed; i++) {
        int data = i < 2 ? i : 1 + (int)((int64_t)(i - 1) * (n - 1) / (n_computed - 1));
        int next = i == 0 ? 1 : 1 + (int)((int64_t)i * (n - 1) / (n_computed - 1));
        for (int model = 0; model < n_model; model++) {
            tti_mesh_at at = tti_mesh_at_rank(&k->b->mesh, data * n_model + model);
            TTI_TRY(add_worker(k, &at, next - data, h, p));
        }
    }
    return TUTTI_OK;
}

static tutti_status predict_memory(tti_prediction *p, const tti_blueprint *b, const replica_max *x,
                                   const tti_group_cost *micro_group, const tti_calibration *c,
                                   const worker *w) {
    const tutti_dataset_info *info = tutti_dataset_get_info(b->train);
    shared_arrays h = {0};
    bool in_ranks = tti_worker_serves_in_ranks(b);
    memory_case k = {.b = b,
                     .micro_group = micro_group,
                     .c = c,
                     .w = w,
                     .desc = tti_worker_exec_desc(b),
                     .max_shard_s = x->most,
                     .resident_bytes = tti_device_resident_bytes(b),
                     .n_data = p->layout.data,
                     .is_async = tti_job_is_async(&b->config),
                     .has_server = tti_job_has_server(&b->config) && !in_ranks};
    if (in_ranks) tti_worker_serve_in_ranks(b, &k.desc);
    k.desc.n_compute_threads = at_least_one(c->n_cores / w->n_workers);
    p->worker_bytes = p->host_bytes = 0;
    TTI_TRY(add_workers(&k, &h, p));
    if (k.has_server && b->n_model_ranks > 0)
        add_channels_of_parts(p, b);
    else
        add_channels(p, b, w->n_workers);
    if (h.has_common) p->host_bytes += tti_resident_page_bytes(&h.common, b->plan);
    double batch = (double)tutti_shape_n_elems(&info->x.shape) *
                   (double)tutti_dtype_bytes(info->x.dtype) * (double)b->config.train.batch;
    double batches = batch * (double)(b->config.data.prefetch + 1);
    double late = (double)(tti_dataset_late_bytes(b->train) + tti_dataset_late_bytes(b->test));
    p->host_bytes += c->base_bytes + c->code_bytes + late + longest_slot(b->plan) + batches +
                     bytes_of_division(b, batches);
    return TUTTI_OK;
}

tutti_status tti_predict(const tti_blueprint *like, const tti_scheme *layout,
                         const tti_calibration *c, tti_prediction *out) {
    tti_blueprint own = *like, *b = &own;
    own.config.parallel.zero = layout->zero;
    *out = (tti_prediction){.layout = *layout};
    worker w = slowest_worker(b, layout, c);
    tti_group_cost micro_group =
        tti_calibrated_micro_group(c, b->rows_per_shard, layout->recompute,
                                   tti_program_cost_s(c, &b->plan->shard), &out->is_measured);
    replica_max x;
    TTI_TRY(find_replica_max(b, layout, &w, c, micro_group.s / micro_group.cost_s, &x));
    TTI_TRY(predict_compute(out, b, c, &micro_group, &x, &w));
    predict_sums(out, b, &x, c, &w);
    predict_update(out, b, &x, &micro_group, c, &w);
    predict_load(out, b, &micro_group, c);
    out->step_s = out->compute_s + out->bubble_s + out->model_parallel_s + out->add_s +
                  out->reduce_s + out->update_s + out->load_s;
    return predict_memory(out, b, &x, &micro_group, c, &w);
}
