/* simulate.c - tutti_simulate_job: the schedule of a step on a cluster that is only described.
 *
 * Two things go on side by side in each worker: computing, from which buckets of gradients come at
 * the moments that the plan says, and sums, one bucket after the other in the order of the plan.
 * What the sums still need after the last gradient, every worker waits for. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "planner/network.h"
#include "planner/predict.h"
#include "train/devices.h"
#include "tutti/planner.h"

static const double BUDGET_S = 5;
enum { MAX_POINTS = 40 };

/* One worker's step, before any other is there. */
typedef struct solo {
    double compute_s, update_s;
    double *ready_s; /* [n_buckets] from the begin of the step, owned */
    double *n_bytes; /* [n_buckets] owned */
    int n_buckets;
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
    solo solo;
    point points[MAX_POINTS];
    int n_points;
} simulation;

static bool is_measured(const tutti_simulate_desc *desc) {
    return !desc->device || strcmp(desc->device, "measured") == 0;
}

/* ---- one worker ---- */

/* When each bucket comes, by the costs of what runs before it. */
static tutti_status time_buckets(simulation *s, const tti_calibration *c, double shard_s,
                                 double before_s) {
    const tti_plan *plan = s->b->plan;
    solo *w = &s->solo;
    tti_program part = plan->shard;
    double all = tti_program_cost_s(c, &plan->shard);
    w->n_buckets = plan->n_buckets;
    w->ready_s = calloc((size_t)w->n_buckets + 1, sizeof *w->ready_s);
    w->n_bytes = calloc((size_t)w->n_buckets + 1, sizeof *w->n_bytes);
    if (!w->ready_s || !w->n_bytes) return tti_fail(TUTTI_E_NOMEM, "simulate: out of memory");
    for (int i = 0; i < w->n_buckets; i++) {
        part.n_steps = plan->buckets[i].ready_after + 1;
        w->ready_s[i] = before_s + shard_s * tti_program_cost_s(c, &part) / all;
        w->n_bytes[i] = (double)plan->buckets[i].n_elems * sizeof(float);
    }
    return TUTTI_OK;
}

static tutti_status calibrate(simulation *s, tti_calibration *c) {
    double spent;
    if (!is_measured(s->desc)) return tti_calibration_of(s->desc->device, 1, c);
    TTI_TRY(tti_calibrate_machine(s->b, 1, BUDGET_S, c));
    return tti_calibrate_wave(s->b, c, BUDGET_S, &spent);
}

static tutti_status time_worker(simulation *s) {
    tti_calibration c;
    tti_prediction alone;
    tti_scheme scheme = tti_scheme_of(&s->b->config);
    TTI_TRY(calibrate(s, &c));
    TTI_TRY(tti_predict(s->b, &scheme, &c, &alone));
    double scale = s->desc->step_ms > 0 ? s->desc->step_ms * 1e-3 / alone.step_s : 1;
    s->solo.compute_s = (alone.step_s - alone.update_s) * scale;
    s->solo.update_s = alone.update_s * scale;
    s->solo.sums_bytes = 4 * sizeof(double);
    double shard_s = s->solo.compute_s / (double)scheme.shards;
    return time_buckets(s, &c, shard_s, s->solo.compute_s - shard_s);
}

/* ---- many of them ---- */

/* The events in order: a bucket is ready, the sums before it are done. */
static point play(const simulation *s, int64_t n) {
    point p = {.n = n};
    int64_t members[TTI_N_LEVELS];
    double free_s = 0;
    tti_network_members(&s->network, n, members);
    for (int i = 0; i < s->solo.n_buckets; i++) {
        double begin = fmax(free_s, s->solo.ready_s[i]);
        double took = tti_network_sum_s(&s->network, members, s->solo.n_bytes[i], p.sent);
        free_s = begin + took;
        p.sums_s += took;
    }
    double told = tti_network_sum_s(&s->network, members, s->solo.sums_bytes * (double)n, p.sent);
    double end = fmax(free_s, s->solo.compute_s);
    p.exposed_s = end - s->solo.compute_s + told;
    p.step_s = end + told + s->solo.update_s;
    return p;
}

static void play_all(simulation *s) {
    for (int64_t n = 1; s->n_points < MAX_POINTS; n *= 2) {
        if (n > s->desc->n_workers) n = s->desc->n_workers;
        s->points[s->n_points++] = play(s, n);
        if (n == s->desc->n_workers) break;
    }
}

/* ---- what is told ---- */

static void print_table(const simulation *s, tti_str *out) {
    double batch = (double)s->b->config.train.batch, one = s->points[0].step_s;
    tti_str_printf(out,
                   "%g samples on each worker, %d buckets of %.1f MiB together; a worker alone "
                   "takes %.3f ms\n%8s %11s %14s %8s %10s %10s   %s\n",
                   batch, s->solo.n_buckets, (double)s->b->plan->n_flat * sizeof(float) / 1048576.0,
                   one * 1e3, "workers", "step, ms", "samples/s", "of n x 1", "sums, ms", "exposed",
                   "sent, MiB: host, rack, spine");
    for (int i = 0; i < s->n_points; i++) {
        const point *p = &s->points[i];
        tti_str_printf(out, "%8lld %11.3f %14.0f %7.1f%% %10.3f %10.3f   %.1f, %.1f, %.1f\n",
                       (long long)p->n, p->step_s * 1e3, batch * (double)p->n / p->step_s,
                       100 * one / p->step_s, p->sums_s * 1e3, p->exposed_s * 1e3,
                       p->sent[0] / 1048576.0, p->sent[1] / 1048576.0, p->sent[2] / 1048576.0);
    }
}

static void put_point(tti_json *j, const simulation *s, const point *p) {
    double batch = (double)s->b->config.train.batch;
    tti_json_object(j, NULL);
    tti_json_int(j, "workers", p->n);
    tti_json_double(j, "step_s", p->step_s);
    tti_json_double(j, "samples_per_s", batch * (double)p->n / p->step_s);
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
    tti_json_array(&j, "points");
    for (int i = 0; i < s->n_points; i++) put_point(&j, s, &s->points[i]);
    tti_json_end(&j);
    tti_json_end(&j);
    tti_str_add(out, "\n");
}

/* The job as one worker has it. */
static tutti_status open_worker(tutti_job *job, simulation *s) {
    tti_scheme one = {.data = 1, .tensor = 1, .pipeline = 1};
    tutti_job *alone;
    one.shards = job->config.parallel.shards > 0 ? job->config.parallel.shards : 1;
    one.recompute = job->config.train.recompute;
    TTI_TRY(tti_scheme_job(job, &one, &alone));
    const tti_backend *backend = is_measured(s->desc) ? NULL : tti_paper_device();
    tutti_status st = tti_blueprint_create_like(alone, NULL, backend, &s->b);
    tutti_job_destroy(alone);
    return st;
}

static tutti_status run(tutti_job *job, simulation *s, tti_str *out) {
    if (s->desc->n_workers < 1 || s->desc->n_workers > 1 << 20)
        return tti_fail(TUTTI_E_INVALID, "simulate: workers must be in 1 .. %d, got %d", 1 << 20,
                        s->desc->n_workers);
    TTI_TRY(tutti_job_check(job));
    if (!is_measured(s->desc)) tti_scheme_on_device(job);
    TTI_TRY(tti_network_read(s->desc->network ? s->desc->network : "h200", &s->network));
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
    free(s.solo.ready_s);
    free(s.solo.n_bytes);
    if (st == TUTTI_OK)
        *text = out.text;
    else
        tti_str_free(&out);
    return st;
}
