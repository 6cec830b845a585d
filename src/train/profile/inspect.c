/* inspect.c - prints what a job would run: steps, kernels and memory, or the graph after a pass. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/affinity.h"
#include "exec/exec.h"
#include "exec/program/exec_program.h"
#include "passes/recognize/recognize.h"
#include "train/setup/blueprint.h"
#include "train/setup/init_config.h"
#include "train/setup/whole_layers.h"
#include "train/setup/worker_exec.h"
#include "tutti/train.h"

static double mib(size_t n_bytes) { return (double)n_bytes / 1048576.0; }

static void print_steps(tti_str *out, const tti_program *program, const tti_instance *instance) {
    tti_str_printf(out, "%-4s %-26s %-14s %-10s %-26s %10s %9s\n", "step", "op", "name", "kernel",
                   "result", "MFLOP", "MiB");
    for (int i = 0; i < program->n_steps; i++) {
        const tti_node *node = program->steps[i];
        char type[64];
        tti_cost cost = {.flops = (double)tti_value_n_elems(node->out[0])};
        if (node->op->cost) node->op->cost(node, &cost);
        tti_type_text(&node->out[0]->type, type, sizeof type);
        tti_str_printf(out, "%-4d %-26s %-14s %-10s %-26s %10.3f %9.3f\n", i, node->op->name,
                       node->name, tti_instance_kernel(instance, i), type, cost.flops / 1e6,
                       cost.bytes / 1048576.0);
    }
}

/* True if a server stores parameters and state separately from the workers. */
static bool has_separate_server(const tti_blueprint *b) {
    return tti_job_has_server(&b->config) && !tti_worker_serves_in_ranks(b);
}

/* Prints the memory of a server.  Each worker has its own copy of the parameters; asynchronous
 * workers compute all shards of a batch. */
static tutti_status print_server(tti_str *out, const tti_blueprint *b, const tti_exec_desc *desc) {
    tti_exec_memory m, held;
    int n_ranks = b->config.parallel.staleness != 0 ? 1 : b->n_workers;
    bool processes = strcmp(b->config.parallel.place, "processes") == 0;
    tti_exec_desc server = *desc;
    server.n_ranges = processes ? tti_worker_n_range_servers(b) : 0;
    TTI_TRY(tti_exec_memory_plan(desc, 0, n_ranks, &m));
    TTI_TRY(tti_exec_memory_plan(&server, 0, n_ranks, &held));
    if (server.n_ranges > 1)
        tti_str_printf(out, "each of %2d servers %9.3f MiB  ", server.n_ranges,
                       mib(held.params + held.states + held.ema));
    else
        tti_str_printf(out, "the server, peak  %10.3f MiB  ",
                       mib(held.params + held.states + held.ema));
    tti_str_printf(out,
                   "of parameters, %.3f of state and %.3f of averages, once for %d worker%s\n"
                   "a worker, peak    %10.3f MiB  of parameters, %.3f of gradients and %.3f of "
                   "activations\n",
                   mib(held.states), mib(held.ema), b->n_workers, b->n_workers == 1 ? "" : "s",
                   mib(m.params + m.grads + m.arena), mib(m.grads), mib(m.arena));
    return TUTTI_OK;
}

/* Prints n_bytes of one worker and how they are partitioned. */
static void print_part(tti_str *out, const tti_exec_desc *desc, int n_workers, const char *what,
                       size_t n_bytes, size_t whole) {
    tti_str_printf(out, "%-17s %10.3f MiB", what, mib(n_bytes));
    if (desc->n_owners > 0 && n_workers > 1)
        tti_str_printf(out, "  of %.3f, on the first %d of %d workers (parallel.servers)",
                       mib(whole), desc->n_owners, n_workers);
    else if (desc->zero && n_workers > 1)
        tti_str_printf(out, "  of %.3f, partitioned over %d workers (parallel.zero=%d)", mib(whole),
                       n_workers, desc->zero);
    tti_str_add(out, "\n");
}

/* The largest number of shards of a worker if weights distribute them, else that of the first
 * worker. */
static int most_shards(const tti_blueprint *b) {
    int most = 0;
    for (int r = 1; b->has_shard_map && r < b->shard_map.n_ranks; r++)
        if (tti_shard_map_n_of(&b->shard_map, r) > tti_shard_map_n_of(&b->shard_map, most))
            most = r;
    return most;
}

/* Computes the memory that the executor of a worker allocates. part: its part of the model, -1: the
 * whole model. */
static tutti_status plan_worker(const tti_blueprint *b, int part, tti_exec_desc *desc,
                                tti_exec_memory *m) {
    tti_core_share share;
    tti_worker_cores(b, 0, b->n_workers, &share);
    *desc = tti_worker_exec_desc(b);
    desc->n_compute_threads = share.n_threads;
    if (tti_worker_serves_in_ranks(b)) tti_worker_serve_in_ranks(b, desc);
    if (part >= 0) desc->plan = tti_blueprint_plan(b, part);
    if (b->has_shard_map) desc->shard_map = &b->shard_map;
    int n_ranks = part < 0 ? b->n_workers : tti_job_is_async(&b->config) ? 1 : b->mesh.data;
    return tti_exec_memory_plan(desc, most_shards(b), n_ranks, m);
}

static void print_whole(tti_str *out, const tti_blueprint *b) {
    if (b->mesh.tensor < 2) return;
    if (b->mesh.stage == 1) {
        tti_whole_params_text(b, out);
        tti_str_add(out, "\n");
    }
    if (tti_whole_heads_text(b, out)) tti_str_add(out, "\n");
}

/* Prints the memory of one worker per part, because workers with the same part differ only in the
 * batch. */
static tutti_status print_parts(tti_str *out, const tti_blueprint *b) {
    tti_str_printf(
        out,
        "\n%d workers are data %d x stages %d x tensor %d; MiB of one worker of each part:\nstage  "
        "  tp  tensors  parameters       state   gradients activations         sum\n",
        b->n_workers, b->mesh.data, b->mesh.stage, b->mesh.tensor);
    size_t gathered = 0, kept = 0;
    bool apart = has_separate_server(b);
    for (int i = 0; i < b->n_model_ranks; i++) {
        tti_mesh_at at = tti_mesh_at_rank(&b->mesh, i);
        tti_exec_desc desc;
        tti_exec_memory m;
        TTI_TRY(plan_worker(b, i, &desc, &m));
        gathered = TTI_MAX(gathered, m.gathered);
        kept = TTI_MAX(kept, m.params + m.states + m.ema);
        if (apart) m.states = 0;
        tti_str_printf(out, "%5d %5d %8d %11.3f %11.3f %11.3f %11.3f %11.3f\n", at.stage, at.tensor,
                       desc.plan->n_slots, mib(m.params), mib(m.states + m.ema), mib(m.grads),
                       mib(m.arena),
                       mib(m.params + m.states + m.ema + m.grads + m.gathered + m.arena));
    }
    if (gathered > 0)
        tti_str_printf(out,
                       "included in the sums: gathered parameters of other replicas while they are "
                       "used, at most %.3f MiB\n",
                       mib(gathered));
    if (apart)
        tti_str_printf(out,
                       "parameters, state and averages of each part are stored once, in the "
                       "process of the first replica's worker: at most %.3f MiB\n",
                       mib(kept));
    if (tti_worker_serves_in_ranks(b))
        tti_str_printf(out,
                       "optimizer state is on the first %d of the %d workers of each part "
                       "(parallel.servers)\n",
                       (int)TTI_MIN(b->config.parallel.servers, b->mesh.data), b->mesh.data);
    print_whole(out, b);
    return TUTTI_OK;
}

/* Prints the memory of the first worker. */
static tutti_status print_worker(tti_str *out, const tti_blueprint *b) {
    tti_exec_desc desc;
    tti_exec_memory m;
    if (b->n_model_ranks > 0) return print_parts(out, b);
    TTI_TRY(plan_worker(b, -1, &desc, &m));
    if (has_separate_server(b)) return print_server(out, b, &desc);
    size_t flat = b->plan->n_flat * sizeof(float), n_states = (size_t)b->plan->n_states;
    if (desc.zero > 2) print_part(out, &desc, b->n_workers, "a worker's params", m.params, flat);
    if (desc.offload)
        tti_str_printf(out,
                       "at the host       %10.3f MiB  of parameters, gradients and optimizer state "
                       "(%s)\n",
                       mib(m.offloaded),
                       desc.mixed ? "some workers are on the host" : "parallel.offload");
    else
        print_part(out, &desc, b->n_workers, "optimizer state", m.states, flat * n_states);
    if (desc.shares)
        tti_str_printf(out,
                       "of %d threads      one copy of parameters and state; a worker's part:\n",
                       b->n_workers);
    if (m.ema) tti_str_printf(out, "averages          %10.3f MiB\n", mib(m.ema));
    if (m.gathered)
        tti_str_printf(out, "gathered, peak    %10.3f MiB  of other workers' parameters\n",
                       mib(m.gathered));
    tti_str_printf(out,
                   "a worker, peak    %10.3f MiB  of parameters, state, %.3f of gradients and "
                   "%.3f of activations\n",
                   mib(m.params + m.states + m.ema + m.grads + m.gathered + m.arena), mib(m.grads),
                   mib(m.arena));
    return TUTTI_OK;
}

static tutti_status print_memory(tti_str *out, const tti_blueprint *b, const tti_plan *plan) {
    size_t flat = plan->n_flat * sizeof(float);
    tti_str_printf(out,
                   "\nparameters        %10.3f MiB  (%zu in %d tensors)\n"
                   "gradients         %10.3f MiB  per shard in flight, in %d bucket%s",
                   mib(flat), plan->n_params, plan->n_slots, mib(flat), plan->n_buckets,
                   plan->n_buckets == 1 ? "" : "s");
    tti_bucket_link_describe(&b->link, &b->config, plan->bucket_bytes, out);
    tti_str_printf(out,
                   "\nactivations, peak %10.3f MiB  per shard in flight (%.3f without reuse)\n"
                   "evaluation, peak  %10.3f MiB\n",
                   mib(plan->shard.arena_bytes), mib(plan->shard.unshared_bytes),
                   mib(plan->eval.arena_bytes));
    return print_worker(out, b);
}

/* Computes the bytes of activations of a shard, and the number of nodes, with another recomputation
 * setting. */
static tutti_status predict(const tutti_job *job, const tti_blueprint *b, tti_recompute recompute,
                            size_t *n_bytes, int *n_nodes) {
    tutti_graph *g;
    tti_target target = tti_blueprint_target(b);
    target.recompute = recompute;
    TTI_TRY(tti_blueprint_graph(job, b, true, &g));
    tutti_status st = tti_pipeline_run(&g, &target, NULL);
    if (st == TUTTI_OK) st = tti_graph_peak_bytes(g, n_bytes);
    const tutti_graph *made = g;
    *n_nodes = made->n_nodes;
    tutti_graph_destroy(g);
    return st;
}

static tutti_status print_recompute(const tutti_job *job, const tti_blueprint *b, tti_str *out) {
    size_t none, light, block;
    int n_none, n_light, n_block;
    TTI_TRY(predict(job, b, TTI_RECOMPUTE_NONE, &none, &n_none));
    TTI_TRY(predict(job, b, TTI_RECOMPUTE_LIGHT, &light, &n_light));
    TTI_TRY(predict(job, b, TTI_RECOMPUTE_BLOCK, &block, &n_block));
    tti_str_printf(out,
                   "train.recompute is %s; alive at once, before packing:\n"
                   "  none            %10.3f MiB\n"
                   "  light           %10.3f MiB  %d of %d nodes run again\n"
                   "  block           %10.3f MiB  %d of %d nodes run again\n",
                   b->config.train.recompute, mib(none), mib(light), n_light - n_none, n_none,
                   mib(block), n_block - n_none, n_none);
    return TUTTI_OK;
}

/* Prints groups of operations in the model that the passes replace with single ops. */
static tutti_status print_recognized(const tutti_job *job, const tti_blueprint *b, tti_str *out) {
    tutti_graph *g;
    TTI_TRY(tti_blueprint_graph(job, b, true, &g));
    tutti_status st = tti_recognize_report(&g, b->rows_per_shard, out);
    tutti_graph_destroy(g);
    return st;
}

/* The subject of the description: the whole model, or the part of one worker. */
typedef struct view {
    const tutti_job *job;
    const tti_blueprint *b;
    const tti_plan *plan;
    int part; /* position in the model group, -1: the whole model */
} view;

static void print_title(tti_str *out, const view *v) {
    const tti_blueprint *b = v->b;
    tti_str_printf(out, "shard program of %s", b->model_name);
    if (v->part >= 0) {
        tti_mesh_at at = tti_mesh_at_rank(&b->mesh, v->part);
        tti_str_printf(out, ", stage %d of %d, tensor shard %d of %d", at.stage, b->mesh.stage,
                       at.tensor, b->mesh.tensor);
    }
    tti_str_printf(out, ": %lld rows, %d shards per step\n\n", (long long)b->rows_per_shard,
                   b->n_shards);
}

static tutti_status print_plan(const view *v, tti_str *out) {
    const tti_blueprint *b = v->b;
    const tti_plan *plan = v->plan;
    const tti_backend *backend = b->devices.backend;
    if (backend->device)
        TTI_TRY(backend->device->open(&(tti_device_desc){.index = tti_devices_first(&b->devices)}));
    void *arena = backend->alloc(plan->shard.arena_bytes + 64);
    void *params = backend->alloc(plan->n_flat * sizeof(float) + 64);
    tti_instance *instance = NULL;
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "inspect: out of memory");
    if (arena && params)
        st = tti_instance_create(
            &(tti_instance_desc){.program = &plan->shard,
                                 .backend = backend,
                                 .reference = strcmp(b->config.parallel.backend, "reference") == 0,
                                 .arena = arena,
                                 .params = params},
            &instance);
    if (st == TUTTI_OK) {
        print_title(out, v);
        print_steps(out, &plan->shard, instance);
        st = print_memory(out, b, plan);
        if (st == TUTTI_OK && v->part < 0) st = print_recompute(v->job, b, out);
        if (st == TUTTI_OK) st = print_recognized(v->job, b, out);
    }
    tti_instance_destroy(instance);
    backend->release(arena, plan->shard.arena_bytes + 64);
    backend->release(params, plan->n_flat * sizeof(float) + 64);
    if (backend->device) backend->device->close();
    return st;
}

static tutti_status print_graph(const view *v, const char *after, tti_str *out) {
    tutti_graph *g;
    tti_target target =
        v->part < 0 ? tti_blueprint_target(v->b) : tti_blueprint_target_at(v->b, v->part);
    tti_stages stages = {.stage = target.stage,
                         .n_stages = target.n_stages,
                         .n_chunks = TTI_MAX(1, target.n_chunks)};
    if (target.n_stages > 1) target.stages = &stages;
    TTI_TRY(tti_blueprint_graph(v->job, v->b, true, &g));
    tutti_status st = TUTTI_OK;
    if (strcmp(after, "none") != 0) st = tti_pipeline_run(&g, &target, after);
    if (st == TUTTI_OK) tti_graph_print(g, out);
    tutti_graph_destroy(g);
    tti_stages_fini(&stages);
    return st;
}

/* Finds the part of a worker.  Workers of an undivided model have the whole model. */
static tutti_status choose_part(const tti_blueprint *b, const char *worker, int *part) {
    char *end;
    *part = -1;
    if (!worker) return TUTTI_OK;
    long rank = strtol(worker, &end, 10);
    if (end == worker || *end || rank < 0 || rank >= b->n_workers)
        return tti_fail(TUTTI_E_CONFIG, "inspect: worker '%.40s': there are 0 to %d", worker,
                        b->n_workers - 1);
    if (b->n_model_ranks > 0) *part = (int)(rank % b->n_model_ranks);
    return TUTTI_OK;
}

static tutti_status inspect(const tutti_job *job, const tti_blueprint *b,
                            const tutti_inspect_desc *desc, tti_str *out) {
    view v = {.job = job, .b = b, .plan = b->plan};
    TTI_TRY(choose_part(b, desc->worker, &v.part));
    if (v.part >= 0) v.plan = tti_blueprint_plan(b, v.part);
    return desc->after_pass ? print_graph(&v, desc->after_pass, out) : print_plan(&v, out);
}

static tutti_status inspect_resolved(tutti_job *job, const tutti_inspect_desc *desc, tti_str *out) {
    const tti_blueprint *b;
    tti_devices devices;
    TTI_TRY(tutti_job_check(job));
    TTI_TRY(tti_init_config_apply(job));
    TTI_TRY(tti_devices_resolve(job, &devices));
    TTI_TRY(tti_job_resolve(job, devices.n ? devices.n : tti_cores_usable()));
    TTI_TRY(tti_blueprint_create(job, &b));
    tutti_status st = inspect(job, b, desc, out);
    tti_blueprint_destroy(b);
    return st;
}

tutti_status tutti_inspect_job(tutti_job *job, const tutti_inspect_desc *desc, char **text) {
    TTI_TRY(tti_need(job, __func__, "job"));
    TTI_TRY(tti_need(text, __func__, "text"));
    static const tutti_inspect_desc defaults;
    tti_str out = {0};
    tti_options_kept kept;
    *text = NULL;
    TTI_TRY(tti_options_keep(tti_job_options(job), &kept));
    tutti_status st = inspect_resolved(job, desc ? desc : &defaults, &out);
    tti_options_restore(tti_job_options(job), &kept);
    st = tti_job_say_where(job, st);
    if (st == TUTTI_OK && out.failed) st = tti_fail(TUTTI_E_NOMEM, "inspect: out of memory");
    if (st != TUTTI_OK) tti_str_free(&out);
    *text = out.text;
    return st;
}
