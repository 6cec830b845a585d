/* simulate.c - tutti_simulate_job: the schedule of a step on a cluster that is only described.
 *
 * The workers that have one copy of the model between them are one, or the stages and pieces of the
 * job, played by the planner; copies follow each other on the network.
 *
 * Two things go on side by side in each worker: computing, from which buckets of gradients come at
 * the moments that the plan says, and sums, one bucket after the other in the order of the plan.
 * What the sums still need after the last gradient, every worker waits for.  With zero 1 and 2
 * parameters come after the update, on devices beside the next forward pass; with 3 they come
 * beside computing, over the links of the sums. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "planner/network.h"
#include "planner/predict.h"
#include "planner/stage_play.h"
#include "planner/sums.h"
#include "train/devices.h"
#include "tutti/planner.h"

static const double BUDGET_S = 5;
enum { MAX_POINTS = 40 };

/* What a worker of a stage has to be summed, and when; without stages there is one. */
typedef struct stage {
    double end_s;    /* of its last shard, from the begin of the step */
    double *ready_s; /* [n_buckets] likewise, owned */
    double *n_bytes; /* [n_buckets] owned */
    int n_buckets;
} stage;

/* The step of those who have the model between them, before any other copy is there. */
typedef struct solo {
    double compute_s, update_s, bubble, exchange_s, sent_bytes;
    stage *stages; /* [n_stages], owned */
    int n_stages, n_workers;
    double forward_s;  /* of the first shards: what can hide parameters that come */
    double sums_bytes; /* of the small all-reduce at the end of a step */
} solo;

typedef struct point {
    int64_t n;
    double step_s, exposed_s, sums_s;
    double sent[TTI_N_LEVELS]; /* bytes per worker */
} point;

typedef struct simulation {
    const tutti_simulate_desc *desc;
    tti_blueprint *b;
    tti_network network;
    tti_sums sums;
    solo solo;
    point points[MAX_POINTS];
    int n_points;
} simulation;

/* Whose programs are not those of a backend of this machine. */
static bool is_on_paper(const simulation *s) { return tti_is_known_device(s->desc->device); }

/* ---- one worker ---- */

/* When each bucket comes, by the costs of what runs before it in the last shard. */
static tutti_status time_buckets(const tti_plan *plan, const tti_calibration *c, double shard_s,
                                 stage *w) {
    tti_program part = plan->shard;
    double all = fmax(tti_program_cost_s(c, &plan->shard), 1e-12);
    w->n_buckets = plan->n_buckets;
    w->ready_s = calloc((size_t)w->n_buckets + 1, sizeof *w->ready_s);
    w->n_bytes = calloc((size_t)w->n_buckets + 1, sizeof *w->n_bytes);
    if (!w->ready_s || !w->n_bytes) return tti_fail(TUTTI_E_NOMEM, "simulate: out of memory");
    for (int i = 0; i < w->n_buckets; i++) {
        part.n_steps = plan->buckets[i].ready_after + 1;
        w->ready_s[i] = w->end_s - shard_s * (1 - tti_program_cost_s(c, &part) / all);
        w->n_bytes[i] = (double)plan->buckets[i].n_elems * sizeof(float);
    }
    return TUTTI_OK;
}

/* Each worker is a machine like this one, and neighbours speak over the network. */
static void spread(const simulation *s, tti_calibration *c) {
    int n = s->solo.n_workers;
    const tti_level *level = &s->network.levels[tti_network_level(&s->network, n)];
    c->n_cores = c->is_device ? n : c->n_cores * n;
    c->n_ranks = n;
    c->sum_latency_s = level->latency_us * 1e-6;
    c->sum_bytes_s = level->gb_s * 1e9;
    c->trade = c->message = (tti_way){c->sum_latency_s, c->sum_bytes_s};
}

static tutti_status calibrate(simulation *s, tti_calibration *c) {
    double spent;
    if (!tti_is_measured(s->desc->device)) return tti_calibration_of(s->desc->device, 1, c);
    TTI_TRY(tti_calibrate_machine(s->b, 1, BUDGET_S, 0, c));
    return tti_calibrate_wave(s->b, c, BUDGET_S, &spent);
}

/* Stages behind the first end earlier; the shares of the schedule say when. */
static tutti_status time_stages(simulation *s, const tti_calibration *c, int64_t n_waves) {
    solo *w = &s->solo;
    double moment_s[TTI_MAX_MOMENTS];
    tti_stage_play told = {.step_s = 1, .busy_s = {1}, .end_s = {1}};
    if (w->n_stages > 1) {
        tti_stage_costs(s->b, c, moment_s);
        TTI_TRY(
            tti_stage_play_run(&(tti_stage_play_desc){.stages = tti_blueprint_plan(s->b, 0)->stages,
                                                      .n_waves = (int)n_waves,
                                                      .n_lanes = 1,
                                                      .moment_s = moment_s},
                               &told));
    }
    for (int i = 0; i < w->n_stages; i++) {
        const tti_plan *plan = tti_blueprint_plan(s->b, i * s->b->mesh.tensor);
        w->stages[i].end_s = w->compute_s * told.end_s[i] / told.step_s;
        double shard_s = w->compute_s * told.busy_s[i] / told.step_s / (double)n_waves;
        TTI_TRY(time_buckets(plan, c, shard_s, &w->stages[i]));
    }
    return TUTTI_OK;
}

/* A device computes one shard at a time, a host one on each core. */
static int64_t n_waves_of(const tti_calibration *c, int64_t n_shards) {
    int64_t side_by_side = c->is_device ? 1 : TTI_MAX(c->n_cores, 1);
    return (n_shards + side_by_side - 1) / side_by_side;
}

static tutti_status time_worker(simulation *s) {
    tti_calibration c;
    tti_prediction alone;
    tti_scheme scheme = tti_scheme_of(&s->b->config);
    solo *w = &s->solo;
    w->n_stages = scheme.pipeline, w->n_workers = scheme.tensor * scheme.pipeline;
    w->stages = calloc((size_t)w->n_stages, sizeof *w->stages);
    if (!w->stages) return tti_fail(TUTTI_E_NOMEM, "simulate: out of memory");
    TTI_TRY(calibrate(s, &c));
    int64_t n_waves = n_waves_of(&c, scheme.shards);
    tti_sums_of(s->b, n_waves, &s->sums);
    spread(s, &c);
    TTI_TRY(tti_predict(s->b, &scheme, &c, &alone));
    double scale = s->desc->step_ms > 0 ? s->desc->step_ms * 1e-3 / alone.step_s : 1;
    w->compute_s = (alone.step_s - alone.update_s) * scale;
    w->update_s = alone.update_s * scale;
    w->exchange_s = alone.exchange_s * scale;
    w->bubble = alone.bubble;
    w->forward_s = c.is_device ? w->compute_s / (double)n_waves / 3 : 0;
    w->sent_bytes = alone.sent_bytes;
    w->sums_bytes = 4 * sizeof(double);
    return time_stages(s, &c, scheme.shards);
}

/* ---- many of them ---- */

/* The events of a stage in order: a bucket is ready, the sums before it are done.  When they are,
 * and what they took. */
static double sum_stage(const simulation *s, const stage *w, const int64_t *members, double *sent,
                        double *sums_s) {
    double free_s = 0;
    for (int i = 0; i < w->n_buckets; i++) {
        double begin = fmax(free_s, w->ready_s[i]);
        double took = tti_sums_bucket_s(&s->sums, &s->network, members, w->n_bytes[i], sent);
        free_s = begin + took;
        *sums_s += took;
    }
    return free_s;
}

static double fetch_stage(const simulation *s, const stage *w, const int64_t *members,
                          double *sent) {
    double all = 0;
    for (int i = 0; i < w->n_buckets; i++)
        all += tti_sums_fetch_s(&s->sums, &s->network, members, w->n_bytes[i], sent);
    return all;
}

/* The small sums at the end of a step: loss, norm, votes; of local SGD with its means. */
static double tell(const simulation *s, int64_t n, double *sent) {
    double once[TTI_N_LEVELS] = {0}, every = s->sums.mean_every;
    int64_t members[TTI_N_LEVELS];
    tti_network_members(&s->network, n, 1, members);
    double told = tti_network_sum_s(&s->network, members, s->solo.sums_bytes * (double)n, once);
    for (int i = 0; i < TTI_N_LEVELS; i++) sent[i] += once[i] / every;
    return told / every;
}

/* All stages sum at the same time, each between the copies of the model. */
static point play(const simulation *s, int64_t n) {
    point p = {.n = n};
    const solo *w = &s->solo;
    int64_t members[TTI_N_LEVELS];
    double end = w->compute_s, after = 0, n_copies = (double)(n / w->n_workers);
    tti_network_members(&s->network, n / w->n_workers, w->n_workers, members);
    for (int i = 0; i < w->n_stages; i++) {
        double sent[TTI_N_LEVELS] = {0}, sums_s = 0;
        end = fmax(end, sum_stage(s, &w->stages[i], members, sent, &sums_s));
        double fetch_s = fetch_stage(s, &w->stages[i], members, sent);
        if (s->sums.zero == 3)
            end = fmax(end, fetch_s + sums_s);
        else
            after = fmax(after, fetch_s - w->forward_s);
        p.sums_s = fmax(p.sums_s, sums_s + fetch_s);
        for (int k = 0; k < TTI_N_LEVELS; k++) p.sent[k] = fmax(p.sent[k], sent[k]);
    }
    double mean_s = tti_sums_mean_s(&s->sums, &s->network, members, p.sent);
    p.sums_s += mean_s;
    p.sent[tti_network_level(&s->network, w->n_workers)] += w->sent_bytes;
    p.exposed_s = end - w->compute_s + after + mean_s + tell(s, n, p.sent);
    p.step_s = w->compute_s + p.exposed_s + w->update_s / (s->sums.zero > 0 ? n_copies : 1);
    return p;
}

static void play_all(simulation *s) {
    for (int64_t n = s->solo.n_workers; s->n_points < MAX_POINTS; n *= 2) {
        if (n > s->desc->n_workers) n = s->desc->n_workers;
        s->points[s->n_points++] = play(s, n);
        if (n == s->desc->n_workers) break;
    }
}

/* ---- what is told ---- */

/* Samples of a step of n workers. */
static double samples(const simulation *s, int64_t n) {
    return (double)s->b->config.train.batch * (double)(n / s->solo.n_workers);
}

static int count_buckets(const simulation *s) {
    int n = 0;
    for (int i = 0; i < s->solo.n_stages; i++) n += s->solo.stages[i].n_buckets;
    return n;
}

static void print_head(const simulation *s, tti_str *out) {
    double flat = (double)s->b->plan->n_flat * sizeof(float) / 1048576.0;
    int n_buckets = count_buckets(s);
    tti_str_printf(out, "%g samples on each %s, %d buckets of %.1f MiB together; ",
                   samples(s, s->solo.n_workers),
                   s->solo.n_workers > 1 ? "copy of the model" : "worker", n_buckets, flat);
    if (s->solo.n_workers == 1)
        tti_str_printf(out, "a worker alone takes %.3f ms\n", s->points[0].step_s * 1e3);
    else
        tti_str_printf(out,
                       "%d workers with one copy take %.3f ms\nbubble %.1f %% of the time of the "
                       "stages; %.3f ms of sums and messages inside shards, %.1f MiB by a worker\n",
                       s->solo.n_workers, s->points[0].step_s * 1e3, 100 * s->solo.bubble,
                       s->solo.exchange_s * 1e3, s->solo.sent_bytes / 1048576.0);
    tti_sums_text(&s->sums, out);
}

static void print_table(const simulation *s, tti_str *out) {
    double one = s->points[0].step_s;
    print_head(s, out);
    tti_str_printf(out, "%8s %11s %14s %8s %10s %10s   %s\n", "workers", "step, ms", "samples/s",
                   "of n x 1", "sums, ms", "exposed", "sent, MiB: host, rack, spine");
    for (int i = 0; i < s->n_points; i++) {
        const point *p = &s->points[i];
        tti_str_printf(out, "%8lld %11.3f %14.0f %7.1f%% %10.3f %10.3f   %.1f, %.1f, %.1f\n",
                       (long long)p->n, p->step_s * 1e3, samples(s, p->n) / p->step_s,
                       100 * one / p->step_s, p->sums_s * 1e3, p->exposed_s * 1e3,
                       p->sent[0] / 1048576.0, p->sent[1] / 1048576.0, p->sent[2] / 1048576.0);
    }
}

static void put_point(tti_json *j, const simulation *s, const point *p) {
    tti_json_object(j, NULL);
    tti_json_int(j, "workers", p->n);
    tti_json_double(j, "step_s", p->step_s);
    tti_json_double(j, "samples_per_s", samples(s, p->n) / p->step_s);
    tti_json_double(j, "efficiency", s->points[0].step_s / p->step_s);
    tti_json_double(j, "sums_s", p->sums_s);
    tti_json_double(j, "exposed_s", p->exposed_s);
    tti_json_array(j, "sent_bytes");
    for (int i = 0; i < TTI_N_LEVELS; i++) tti_json_double(j, NULL, p->sent[i]);
    tti_json_end(j);
    tti_json_end(j);
}

static void print_json(const simulation *s, tti_str *out) {
    tti_json j = tti_json_begin(out, 0);
    tti_json_object(&j, NULL);
    tti_json_double(&j, "bubble", s->solo.bubble);
    tti_json_double(&j, "exchange_s", s->solo.exchange_s);
    tti_json_int(&j, "buckets", count_buckets(s));
    tti_json_array(&j, "points");
    for (int i = 0; i < s->n_points; i++) put_point(&j, s, &s->points[i]);
    tti_json_end(&j);
    tti_json_end(&j);
    tti_str_add(out, "\n");
}

/* Stages want more shards than they are, as far as the batch goes. */
static int64_t shards_of(const tti_job_config *c) {
    int64_t shards = 1;
    if (c->parallel.shards > 0) return c->parallel.shards;
    while (c->parallel.pipeline > 1 && shards < 2 * c->parallel.pipeline &&
           2 * shards <= c->train.batch)
        shards *= 2;
    return shards;
}

/* Buckets are as long as sums between all copies of the model want them; where gradients go to the
 * host first, as that way does. */
static tutti_status link_of(const simulation *s, const tutti_job *job, int n_model,
                            tti_bucket_link *link) {
    tti_devices devices = {.backend = tti_paper_device()};
    int64_t members[TTI_N_LEVELS], n = s->desc->n_workers / n_model;
    if (!is_on_paper(s)) TTI_TRY(tti_devices_find(&job->config, &devices));
    tti_network_members(&s->network, n, n_model, members);
    tti_bucket_link_of(&job->config, &devices, n_model, 1, link);
    if (strcmp(job->config.parallel.offload, "none") == 0)
        tti_network_link(&s->network, members, link);
    return TUTTI_OK;
}

/* The job of those who have one copy of the model. */
static tutti_status open_worker(tutti_job *job, simulation *s) {
    const tti_job_config *c = &job->config;
    int tensor = (int)c->parallel.tensor, pipeline = (int)c->parallel.pipeline;
    tti_scheme one = {.data = 1, .tensor = tensor, .pipeline = pipeline};
    tutti_job *alone;
    one.chunks = (int)c->parallel.pipeline_chunks;
    one.shards = shards_of(c);
    one.recompute = c->train.recompute;
    one.zero = (int)c->parallel.zero;
    if (s->desc->n_workers % (tensor * pipeline) != 0)
        return tti_fail(TUTTI_E_CONFIG,
                        "simulate: %d stages of %d pieces are %d workers for each copy of the "
                        "model; give -n a multiple of it, got %d",
                        pipeline, tensor, tensor * pipeline, s->desc->n_workers);
    TTI_TRY(tti_scheme_job(job, &one, &alone));
    const tti_backend *backend = is_on_paper(s) ? tti_paper_device() : NULL;
    tti_bucket_link link;
    tutti_status st = link_of(s, alone, tensor * pipeline, &link);
    if (st == TUTTI_OK) st = tti_blueprint_create_linked(alone, backend, &link, &s->b);
    tutti_job_destroy(alone);
    return st;
}

static tutti_status run(tutti_job *job, simulation *s, tti_str *out) {
    if (s->desc->n_workers < 1 || s->desc->n_workers > 1 << 20)
        return tti_fail(TUTTI_E_INVALID, "simulate: workers must be in 1 .. %d, got %d", 1 << 20,
                        s->desc->n_workers);
    TTI_TRY(tutti_job_check(job));
    TTI_TRY(tti_sums_check(&job->config));
    if (!tti_is_measured(s->desc->device)) tti_scheme_elsewhere(job, is_on_paper(s));
    TTI_TRY(tti_network_read(s->desc->network ? s->desc->network : "h200", &s->network));
    if (s->desc->n_workers > tti_network_room(&s->network))
        return tti_fail(TUTTI_E_CONFIG, "simulate: the network has room for %g workers, not for %d",
                        tti_network_room(&s->network), s->desc->n_workers);
    TTI_TRY(open_worker(job, s));
    TTI_TRY(time_worker(s));
    play_all(s);
    if (s->desc->json)
        print_json(s, out);
    else
        print_table(s, out);
    return out->failed ? tti_fail(TUTTI_E_NOMEM, "simulate: out of memory") : TUTTI_OK;
}

tutti_status tutti_simulate_job(tutti_job *job, const tutti_simulate_desc *desc, char **text) {
    simulation s = {.desc = desc};
    tti_str out = {0};
    *text = NULL;
    tutti_status st = run(job, &s, &out);
    tti_blueprint_destroy(s.b);
    for (int i = 0; i < s.solo.n_stages && s.solo.stages; i++) {
        free(s.solo.stages[i].ready_s);
        free(s.solo.stages[i].n_bytes);
    }
    free(s.solo.stages);
    if (st == TUTTI_OK)
        *text = out.text;
    else
        tti_str_free(&out);
    return st;
}
