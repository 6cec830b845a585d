/* simulate.c - tutti_simulate_job: the schedule of a step on a described cluster.
 *
 * The planner predicts one replica, which is one worker or the stages and tensor ranks of the job.
 * Replicas have consecutive ranks on the network.
 *
 * The instructions of a worker's list are costed on the network (step_cost.h). Reductions run one
 * after the other and overlap with the computation that completes later buckets; every worker waits
 * for those that end after the last gradient. With ZeRO 1 and 2 parameters are gathered after the
 * update, on devices during the next forward pass. With ZeRO 3 they are gathered during
 * computation, over the links that reductions use. server_sim.h simulates workers of an
 * asynchronous parameter server. In all other cases everyone waits for the slowest worker. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/simulation.h"
#include "planner/stage_sim.h"
#include "train/job/devices.h"
#include "train/setup/init_config.h"
#include "train/setup/worker_exec.h"
#include "tutti/planner.h"

static const double BUDGET_S = 5;

/* True if the programs are planned for a device that this machine need not have. */
static bool uses_stored_figures(const tti_simulation *s) {
    return tti_is_known_device(s->desc->device);
}

/* ---- one worker ---- */

/* Creates the list of instructions of a worker that has other replicas. Finds when its reductions
 * can start, from the costs of the preceding steps of the last shard. */
static tutti_status time_list(const tti_simulation *s, const tti_calibration *c, int stage,
                              double shard_s, tti_simulated_stage *w) {
    int position = stage * s->b->mesh.tensor;
    const tti_plan *plan = tti_blueprint_plan(s->b, position);
    const tti_step_worker worker = {.b = s->b,
                                    .position = position,
                                    .n_ranks = 2,
                                    .n_shards = 2 * s->b->n_shards,
                                    .is_device = c->is_device,
                                    .n_compute_threads = c->is_device ? 1 : TTI_MAX(c->n_cores, 1),
                                    .n_owners = (int)s->param_server.n_servers};
    TTI_TRY(tti_step_worker_lists(&worker, &w->lists));
    w->n_buckets = plan->n_buckets;
    w->ready_s = calloc((size_t)w->n_buckets + 1, sizeof *w->ready_s);
    if (!w->ready_s) return tti_fail(TUTTI_E_NOMEM, "simulate: out of memory");
    const tti_step_program *list =
        tti_step_lists_program(w->lists, s->shares[s->n_shares - 1].form);
    for (int i = 0; i < list->n_instrs; i++)
        if (list->instrs[i].kind == TTI_AVERAGE)
            w->averaged_bytes += (double)plan->n_flat * sizeof(float);
    list = tti_step_lists_program(w->lists, s->shares[0].form);
    for (int i = 0; i < w->n_buckets; i++) w->ready_s[i] = w->end_s;
    for (int i = 0; i < list->n_instrs; i++) {
        const tti_instr *in = &list->instrs[i];
        if (in->kind == TTI_ALL_GATHER)
            w->gathered += (double)(in->range.last - in->range.first) / (double)plan->n_flat;
        if (!tti_is_reduction(in->kind) || in->queue != TTI_ON_COMM || in->after == TTI_AT_END)
            continue;
        w->ready_s[in->bucket] -= shard_s * (1 - tti_program_share(c, list->program, in->after));
    }
    return TUTTI_OK;
}

/* Sets the links of c to those of the network. Simulated workers have this machine's compute
 * speed. */
static void use_network(const tti_simulation *s, tti_calibration *c) {
    int n = s->replica.n_workers;
    const tti_level *level = &s->network.levels[tti_network_level(&s->network, n)];
    c->n_cores = c->is_device ? n : c->n_cores * n;
    c->n_ranks = n;
    c->sum_latency_s = level->latency_us * 1e-6;
    c->sum_bytes_s = level->gb_s * 1e9;
    c->tp = c->message = (tti_link_speed){c->sum_latency_s, c->sum_bytes_s};
}

static tutti_status calibrate(tti_simulation *s, tti_calibration *c) {
    double spent;
    if (!tti_is_measured(s->desc->device)) {
        TTI_TRY(tti_calibration_of(s->desc->device, 1, c));
        tti_calibration_for(&s->b->config, c);
        return TUTTI_OK;
    }
    TTI_TRY(tti_calibrate_machine(s->b, 1, BUDGET_S, 0, c));
    return tti_calibrate_micro_group(s->b, c, BUDGET_S, &spent);
}

static tutti_status run_schedule(const tti_simulation *s, const tti_calibration *c,
                                 int64_t n_micro_groups, tti_stage_sim *schedule) {
    double *slot_s;
    TTI_TRY(tti_stage_costs(s->b, c, &slot_s));
    tutti_status st =
        tti_stage_sim_run(&(tti_stage_sim_desc){.stages = tti_blueprint_plan(s->b, 0)->stages,
                                                .n_micro_groups = (int)n_micro_groups,
                                                .n_compute_threads = 1,
                                                .slot_s = slot_s},
                          schedule);
    free(slot_s);
    return st;
}

/* Stages after the first end earlier, so the schedule is simulated for the end of each stage. */
static tutti_status time_stages(tti_simulation *s, const tti_calibration *c,
                                int64_t n_micro_groups) {
    tti_simulated_replica *w = &s->replica;
    tti_stage_sim schedule = {0};
    if (w->n_stages > 1) TTI_TRY(run_schedule(s, c, n_micro_groups, &schedule));
    tutti_status st = TUTTI_OK;
    for (int i = 0; st == TUTTI_OK && i < w->n_stages; i++) {
        bool is_only = w->n_stages == 1;
        double ends = is_only ? 1 : schedule.end_s[i] / schedule.step_s;
        double busy = is_only ? 1 : schedule.busy_s[i] / schedule.step_s;
        w->stages[i].end_s = w->compute_s * ends;
        double shard_s = w->compute_s * busy / (double)n_micro_groups;
        st = time_list(s, c, i, shard_s, &w->stages[i]);
    }
    tti_stage_sim_fini(&schedule);
    return st;
}

/* A server is a host thread even if workers compute on devices, so its update is timed on the
 * host. */
static tutti_status time_thread(tti_simulation *s, const tti_calibration *c) {
    tti_calibration host = *c;
    const tti_plan *plan = s->b->plan;
    tti_simulated_replica *w = &s->replica;
    double flat = (double)plan->n_flat;
    for (int i = 0; i < s->b->n_model_ranks; i++)
        flat = fmax(flat, (double)tti_blueprint_plan(s->b, i)->n_flat);
    if (c->is_device) TTI_TRY(tti_calibration_of("cpu", 1, &host));
    bool is_measured =
        !c->is_device && host.n_micro_groups > 0 && host.micro_groups[0].update_s > 0;
    double once = is_measured ? host.micro_groups[0].update_s : tti_update_cost_s(&host, plan);
    w->flat_bytes = flat * sizeof(float);
    w->thread_update_s = once * host.n_cores * flat / (double)plan->n_flat;
    w->thread_copy_s = 2 * w->flat_bytes / host.bytes;
    return TUTTI_OK;
}

/* The number of micro-batch groups: a device computes one shard at a time, a host one shard on each
 * core. */
static int64_t n_micro_groups_of(const tti_calibration *c, int64_t n_shards) {
    int64_t side_by_side = c->is_device ? 1 : TTI_MAX(c->n_cores, 1);
    return (n_shards + side_by_side - 1) / side_by_side;
}

static tutti_status time_worker(tti_simulation *s) {
    tti_calibration c;
    tti_prediction alone;
    tti_scheme scheme = tti_scheme_of(&s->b->config);
    tti_simulated_replica *w = &s->replica;
    w->n_stages = scheme.pipeline, w->n_workers = scheme.tensor * scheme.pipeline;
    w->stages = calloc((size_t)w->n_stages, sizeof *w->stages);
    if (!w->stages) return tti_fail(TUTTI_E_NOMEM, "simulate: out of memory");
    TTI_TRY(calibrate(s, &c));
    int64_t n_micro_groups = n_micro_groups_of(&c, scheme.shards);
    const tti_exec_desc desc = tti_worker_exec_desc(s->b);
    tti_sums_of(&desc, s->param_server.n_servers, &s->sums);
    s->n_shares = tti_step_shares(s->b, s->shares);
    TTI_TRY(time_thread(s, &c));
    use_network(s, &c);
    TTI_TRY(tti_predict(s->b, &scheme, &c, &alone));
    double scale = s->desc->step_ms > 0 ? s->desc->step_ms * 1e-3 / alone.step_s : 1;
    w->compute_s = (alone.step_s - alone.update_s) * scale;
    w->update_s = alone.update_s * scale;
    w->model_parallel_s = alone.model_parallel_s * scale;
    w->bubble = alone.bubble;
    w->forward_s = c.is_device ? w->compute_s / (double)n_micro_groups / 3 : 0;
    w->sent_bytes = alone.sent_bytes;
    w->sums_bytes = 4 * sizeof(double);
    return time_stages(s, &c, scheme.shards);
}

/* ---- many replicas ---- */

/* Times of the instructions of a stage, averaged over the forms of step. */
typedef struct list_time {
    double reduced_s;          /* end of the last reduction, from the start of the step */
    double reduce_s, gather_s; /* time of all reductions, and of all gathers */
    double rest_s;             /* time of averages, reports and hashes */
    double sent[TTI_N_LEVELS];
} list_time;

/* Seconds of a gather. A gather of all parameters is costed bucket by bucket, because it overlaps
 * bucket by bucket. */
static double gather_s(const tti_simulation *s, const tti_plan *plan, const tti_instr *in,
                       const int64_t *members, double *sent) {
    double all = 0;
    if (in->bucket >= 0)
        return tti_sums_instr_s(&s->sums, &s->network, members, in, in->range, sent);
    for (int i = 0; i < plan->n_buckets; i++) {
        size_t first = plan->buckets[i].first;
        const tti_range range = {first, first + plan->buckets[i].n_elems};
        all += tti_sums_instr_s(&s->sums, &s->network, members, in, range, sent);
    }
    return all;
}

static double small_s(const tti_simulation *s, const tti_instr *in, int64_t n, double *sent) {
    int64_t members[TTI_N_LEVELS];
    if (in->axis == TTI_AXIS_MODEL) return 0;
    tti_network_members(&s->network, n, 1, members);
    return tti_network_sum_s(&s->network, members, s->replica.sums_bytes * (double)n, sent);
}

/* Adds up the instructions of a stage in order: a reduction starts when its bucket is ready and the
 * previous reduction has ended. slowness: time of the slowest worker relative to speed 1; members:
 * members of the data axis on each network level. */
static void time_instrs(const tti_simulation *s, int stage, tti_step_share form, double slowness,
                        const int64_t *members, int64_t n, list_time *out) {
    const tti_simulated_stage *w = &s->replica.stages[stage];
    const tti_plan *plan = tti_blueprint_plan(s->b, stage * s->b->mesh.tensor);
    const tti_step_program *list = tti_step_lists_program(w->lists, form.form);
    const tti_range all = {0, plan->n_flat};
    double free_s = 0, sent[TTI_N_LEVELS] = {0};
    for (int i = 0; i < list->n_instrs; i++) {
        const tti_instr *in = &list->instrs[i];
        double ready_s = w->end_s, took;
        switch (in->kind) {
            case TTI_REDUCE_SCATTER:
            case TTI_ALL_REDUCE:
                if (in->bucket >= 0) ready_s = w->ready_s[in->bucket];
                took = tti_sums_instr_s(&s->sums, &s->network, members, in, in->range, sent);
                free_s = fmax(free_s, ready_s * slowness) + took;
                out->reduce_s += form.share * took;
                break;
            case TTI_ALL_GATHER:
                out->gather_s += form.share * gather_s(s, plan, in, members, sent);
                break;
            case TTI_AVERAGE:
                out->rest_s +=
                    form.share * tti_sums_instr_s(&s->sums, &s->network, members, in, all, sent);
                break;
            case TTI_REPORT:
            case TTI_SUM_HASHES:
                out->rest_s += form.share * small_s(s, in, n, sent);
                break;
            default: /* already included in the step of a single replica */
                break;
        }
    }
    out->reduced_s = fmax(out->reduced_s, free_s);
    for (int i = 0; i < TTI_N_LEVELS; i++) out->sent[i] += form.share * sent[i];
}

/* The number of workers that each update a partition of the parameters. */
static double n_owners(const tti_simulation *s, double n_copies) {
    if (s->param_server.n_servers > 0) return fmin((double)s->param_server.n_servers, n_copies);
    return s->sums.zero > 0 ? n_copies : 1;
}

/* Simulates n synchronous workers. All stages reduce at the same time, each between its
 * replicas. */
static tti_simulated_point simulate(const tti_simulation *s, int64_t n) {
    tti_simulated_point p = {.n = n};
    const tti_simulated_replica *w = &s->replica;
    int64_t members[TTI_N_LEVELS], n_copies = n / w->n_workers;
    double slowness = 1 / tti_speeds_slowest(&s->speeds, n_copies);
    double compute_s = w->compute_s * slowness, end = compute_s, after = 0, rest_s = 0;
    tti_network_members(&s->network, n_copies, w->n_workers, members);
    for (int i = 0; i < w->n_stages; i++) {
        list_time t = {0};
        for (int k = 0; k < s->n_shares; k++)
            time_instrs(s, i, s->shares[k], slowness, members, n, &t);
        end = fmax(end, t.reduced_s);
        if (s->sums.zero == 3)
            end = fmax(end, t.gather_s + t.reduce_s);
        else
            after = fmax(after, t.gather_s - w->forward_s * slowness);
        p.sums_s = fmax(p.sums_s, t.reduce_s + t.gather_s);
        rest_s = fmax(rest_s, t.rest_s);
        for (int k = 0; k < TTI_N_LEVELS; k++) p.sent[k] = fmax(p.sent[k], t.sent[k]);
    }
    p.sent[tti_network_level(&s->network, w->n_workers)] += w->sent_bytes;
    p.exposed_s = end - compute_s + after + rest_s;
    p.step_s = compute_s + p.exposed_s + w->update_s * slowness / n_owners(s, (double)n_copies);
    return p;
}

/* Seconds of a gradient in an asynchronous run, without server work. */
static double async_compute_s(const tti_simulation *s) {
    const tti_simulated_replica *w = &s->replica;
    if (s->desc->step_ms <= 0) return w->compute_s;
    return fmax(s->desc->step_ms * 1e-3 - w->thread_update_s - w->thread_copy_s, 0);
}

/* Simulates n asynchronous workers. Each part of a model has its own servers, all with the same
 * load, so one part is simulated. */
static tutti_status simulate_async(const tti_simulation *s, int64_t n, tti_simulated_point *p) {
    const tti_simulated_replica *w = &s->replica;
    tti_server_sim_desc desc = {.network = &s->network,
                                .n_workers = n / w->n_workers,
                                .replica_stride = w->n_workers,
                                .n_servers = s->param_server.n_servers,
                                .staleness = s->param_server.staleness,
                                .n_backup = s->param_server.n_backup,
                                .speeds = s->speeds,
                                .n_bytes = w->flat_bytes,
                                .gradient_ratio = s->sums.reduced_share,
                                .compute_s = async_compute_s(s),
                                .update_s = w->thread_update_s,
                                .copy_s = w->thread_copy_s};
    TTI_TRY(tti_server_sim_run(&desc, &p->server));
    p->n = n;
    p->step_s = p->server.step_s;
    p->sums_s = p->server.link_busy * p->step_s;
    p->exposed_s = p->server.wait_s;
    memcpy(p->sent, p->server.sent, sizeof p->sent);
    p->sent[tti_network_level(&s->network, w->n_workers)] += w->sent_bytes;
    return TUTTI_OK;
}

static tutti_status simulate_all(tti_simulation *s) {
    for (int64_t n = s->replica.n_workers; s->n_points < TTI_MAX_POINTS; n *= 2) {
        if (n > s->desc->n_workers) n = s->desc->n_workers;
        tti_simulated_point *p = &s->points[s->n_points++];
        if (s->param_server.is_async)
            TTI_TRY(simulate_async(s, n, p));
        else
            *p = simulate(s, n);
        if (n == s->desc->n_workers) break;
    }
    return TUTTI_OK;
}

/* ---- the job ---- */

/* The number of shards: a pipeline needs more shards than stages, as far as the batch allows. */
static int64_t shards_of(const tti_job_config *c) {
    int64_t shards = 1;
    if (c->parallel.shards > 0) return c->parallel.shards;
    while (c->parallel.pipeline > 1 && shards < 2 * c->parallel.pipeline &&
           2 * shards <= c->train.batch)
        shards *= 2;
    return shards;
}

/* Finds the link that determines the length of buckets: that between all replicas, or the
 * host-staged path if gradients are reduced through the host. */
static tutti_status link_of(const tti_simulation *s, const tutti_job *job, int n_model,
                            tti_bucket_link *link) {
    tti_devices devices = {.backend = tti_planning_device()};
    int64_t members[TTI_N_LEVELS], n = s->desc->n_workers / n_model;
    if (!uses_stored_figures(s)) TTI_TRY(tti_devices_find(tti_job_config_of(job), &devices));
    tti_network_members(&s->network, n, n_model, members);
    tti_bucket_link_of(tti_job_config_of(job), &devices, n_model, 1, link);
    if (strcmp(tti_job_config_of(job)->parallel.offload, "none") == 0)
        tti_network_link(&s->network, members, link);
    return TUTTI_OK;
}

/* Opens the job of the workers of one replica. */
static tutti_status open_worker(tutti_job *job, tti_simulation *s) {
    const tti_job_config *c = tti_job_config_of(job);
    int tensor = (int)c->parallel.tensor, pipeline = (int)c->parallel.pipeline;
    tti_scheme one = {.data = 1, .tensor = tensor, .pipeline = pipeline};
    tutti_job *alone;
    one.chunks = (int)c->parallel.pipeline_chunks;
    one.shards = shards_of(c);
    one.recompute = c->train.recompute;
    one.zero = (int)c->parallel.zero;
    if (s->desc->n_workers % (tensor * pipeline) != 0)
        return tti_fail(TUTTI_E_CONFIG,
                        "simulate: %d stages of %d tensor shards are %d workers per replica; -n "
                        "must be a multiple of that, got %d",
                        pipeline, tensor, tensor * pipeline, s->desc->n_workers);
    TTI_TRY(tti_scheme_job(job, &one, uses_stored_figures(s), &alone));
    const tti_backend *backend = uses_stored_figures(s) ? tti_planning_device() : NULL;
    tti_bucket_link link;
    tutti_status st = link_of(s, alone, tensor * pipeline, &link);
    if (st == TUTTI_OK) st = tti_blueprint_create_linked(alone, backend, &link, &s->b);
    tutti_job_destroy(alone);
    return st;
}

/* Moves the parameter server settings out of the job, which becomes one without a server. */
static void remove_server(tutti_job *job, tti_simulated_server *out) {
    const tti_job_config *c = tti_job_config_of(job);
    if (!tti_job_has_server(c)) return;
    *out = (tti_simulated_server){.n_servers = c->parallel.servers,
                                  .staleness = c->parallel.staleness,
                                  .n_backup = c->parallel.backup_workers};
    out->is_async = out->staleness != 0 || out->n_backup > 0;
    tti_scheme_remove_server(job);
}

static tutti_status simulate_job(tutti_job *job, tti_simulation *s, tti_str *out) {
    if (s->desc->n_workers < 1 || s->desc->n_workers > 1 << 20)
        return tti_fail(TUTTI_E_INVALID, "simulate: workers must be in 1 .. %d, got %d", 1 << 20,
                        s->desc->n_workers);
    TTI_TRY(tutti_job_check(job));
    TTI_TRY(tti_init_config_apply(job));
    TTI_TRY(tti_speeds_parse(s->desc->speeds, &s->speeds));
    remove_server(job, &s->param_server);
    if (!tti_is_measured(s->desc->device))
        TTI_TRY(tti_scheme_move_machine(job, uses_stored_figures(s)));
    TTI_TRY(tti_network_read(s->desc->network ? s->desc->network : "h200", &s->network));
    if (s->desc->n_workers > tti_network_capacity(&s->network))
        return tti_fail(TUTTI_E_CONFIG, "simulate: the network has at most %g workers, not %d",
                        tti_network_capacity(&s->network), s->desc->n_workers);
    TTI_TRY(open_worker(job, s));
    TTI_TRY(time_worker(s));
    TTI_TRY(simulate_all(s));
    tti_simulation_print(s, out);
    return out->failed ? tti_fail(TUTTI_E_NOMEM, "simulate: out of memory") : TUTTI_OK;
}

tutti_status tutti_simulate_job(tutti_job *job, const tutti_simulate_desc *desc, char **text) {
    tti_simulation s = {.desc = desc};
    tti_str out = {0};
    tti_options_kept kept;
    *text = NULL;
    TTI_TRY(tti_options_keep(tti_job_options(job), &kept));
    tutti_status st = simulate_job(job, &s, &out);
    tti_options_restore(tti_job_options(job), &kept);
    st = tti_job_say_where(job, st);
    tti_blueprint_destroy(s.b);
    for (int i = 0; i < s.replica.n_stages && s.replica.stages; i++) {
        free(s.replica.stages[i].ready_s);
        tti_step_lists_destroy(s.replica.stages[i].lists);
    }
    free(s.replica.stages);
    tti_speeds_fini(&s.speeds);
    if (st == TUTTI_OK)
        *text = out.text;
    else
        tti_str_free(&out);
    return st;
}
