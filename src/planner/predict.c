/* predict.c - a step is waves of shards, additions, sums between workers, the update, and loading.
 *
 * On a host all of these take turns on the same cores, so they add up; on devices sums go on beside
 * the backward pass and samples come beside everything, so only what is left over counts. */
#include "planner/predict.h"

#include <math.h>
#include <string.h>

#include "data/dataset.h"
#include "exec/pipe_schedule.h"
#include "train/worker_exec.h"

/* Of the time of a shard program, what the backward pass takes: twice the forward's products. */
static const double BACKWARD = 2.0 / 3.0;

static int at_least_one(int n) { return n > 1 ? n : 1; }

tti_scheme tti_scheme_of(const tti_job_config *config) {
    int tensor = (int)config->parallel.tensor, pipeline = (int)config->parallel.pipeline;
    return (tti_scheme){.data = (int)config->parallel.workers / (tensor * pipeline),
                        .tensor = tensor,
                        .pipeline = pipeline,
                        .zero = (int)config->parallel.zero,
                        .shards = config->parallel.shards,
                        .recompute = config->train.recompute};
}

/* ---- time ---- */

/* Lanes of a worker, and how many of all lanes share a core. */
typedef struct crew {
    int n_workers, n_lanes;
    double crowd;
} crew;

static crew crew_of(const tti_scheme *l, const tti_calibration *c) {
    crew w = {.n_workers = l->data * l->tensor * l->pipeline};
    w.n_lanes = c->is_device ? 1 : at_least_one(c->n_cores / w.n_workers);
    double lanes = (double)w.n_workers * w.n_lanes;
    w.crowd = lanes > c->n_cores ? lanes / c->n_cores : 1;
    return w;
}

/* 2 (n-1)/n of the bytes pass each worker's link. */
static double sum_s(const tti_calibration *c, double n_bytes, int n_ranks, int n_calls) {
    if (n_ranks < 2) return 0;
    return n_calls * c->sum_latency_s + 2.0 * (n_ranks - 1) / n_ranks * n_bytes / c->sum_bytes_s;
}

/* What the parts of a model cost, by their place in a model group. */
typedef struct parts {
    double cost_s[TTI_MAX_WORKERS];
    double n_flat; /* of the largest */
    double most, sum;
    int n;
} parts;

static parts parts_of(const tti_blueprint *b, const tti_calibration *c) {
    parts x = {.n = tti_mesh_n_model(&b->mesh)};
    for (int i = 0; i < x.n; i++) {
        const tti_plan *plan = tti_blueprint_plan(b, i);
        x.cost_s[i] = tti_program_cost_s(c, &plan->shard);
        x.most = fmax(x.most, x.cost_s[i]);
        x.sum += x.cost_s[i];
        x.n_flat = fmax(x.n_flat, (double)plan->n_flat);
    }
    return x;
}

/* Stages that wait lose a share of their time, and so does the slowest, which all wait for. */
static tutti_status predict_compute(tti_prediction *p, const tti_wave *wave, const parts *x,
                                    const crew *w) {
    const tti_scheme *l = &p->layout;
    double waves = ceil((double)(l->shards / l->data) / w->n_lanes), bubble = 0;
    double second = wave->s / wave->cost_s * waves * w->crowd; /* for one of cost */
    tti_pipe_shape shape = {
        .n_stages = l->pipeline, .n_chunks = 1, .n_waves = (int)waves, .training = true};
    double stages[TTI_MAX_WORKERS];
    p->compute_s = x->most * second;
    for (int i = 0; i < l->pipeline; i++) stages[i] = x->cost_s[i * l->tensor];
    if (l->pipeline > 1) TTI_TRY(tti_pipe_bubble(&shape, stages, &bubble));
    p->bubble_s = fmax(0, x->sum / x->n * second / (1 - bubble) - p->compute_s);
    return TUTTI_OK;
}

static void predict_sums(tti_prediction *p, const tti_plan *plan, const parts *x,
                         const tti_calibration *c, const crew *w) {
    const tti_scheme *l = &p->layout;
    double n_elems = x->n_flat;
    double own = (double)(l->shards / l->data);
    p->add_s = (own - 1) * n_elems * c->add_s / w->n_lanes * w->crowd;
    double s = sum_s(c, n_elems * sizeof(float), l->data, plan->n_buckets + 1);
    /* Zero 2 and 3 move as many bytes; 3 fetches parameters twice more. */
    if (l->zero == 3) s *= 1.5;
    double hidden = c->is_device ? BACKWARD * p->compute_s / own : 0;
    p->reduce_s = fmax(s - hidden, c->sum_latency_s);
    if (l->data < 2) p->reduce_s = 0;
    p->sent_bytes = 2.0 * (l->data - 1) / l->data * n_elems * sizeof(float);
}

/* All cores together make the one update that was measured; workers make one each. */
static void predict_update(tti_prediction *p, const tti_plan *plan, const parts *x,
                           const tti_wave *wave, const tti_calibration *c, const crew *w) {
    const tti_scheme *l = &p->layout;
    /* Not measured: parameters, gradients and states read, all but gradients written. */
    double bytes = (double)plan->n_flat * sizeof(float) * (3 + 2 * plan->n_states);
    double once = wave->update_s > 0 ? wave->update_s : bytes / c->bytes;
    double whole = once * (c->is_device ? 1 : (double)c->n_cores / w->n_lanes) * w->crowd;
    p->update_s = whole * x->n_flat / (double)plan->n_flat / (l->zero ? l->data : 1);
}

static void predict_load(tti_prediction *p, const tti_blueprint *b, const tti_wave *wave,
                         const tti_calibration *c) {
    if (!c->is_device) p->load_s = wave->load_s * (double)b->config.train.batch / c->n_cores;
}

/* ---- memory ---- */

static tutti_status predict_memory(tti_prediction *p, const tti_blueprint *b, const tti_wave *wave,
                                   const tti_calibration *c, const crew *w) {
    tti_exec_desc desc = tti_worker_exec_desc(b);
    const tutti_dataset_info *info = tutti_dataset_get_info(b->train);
    desc.n_lanes = w->n_lanes;
    p->worker_bytes = p->host_bytes = 0;
    for (int r = 0; r < w->n_workers; r++) {
        tti_exec_memory m;
        tti_mesh_at at = tti_mesh_at_rank(&b->mesh, r);
        desc.plan = tti_blueprint_plan(b, tti_mesh_model_rank(&b->mesh, &at));
        TTI_TRY(tti_exec_memory_plan(&desc, at.data, p->layout.data, &m));
        double own = (double)(m.params + m.states + m.grads + m.arena + m.ema);
        p->worker_bytes = fmax(p->worker_bytes, own);
        p->host_bytes += own + wave->hidden_bytes * w->n_lanes;
    }
    double batch = (double)tutti_shape_n_elems(&info->x.shape) *
                   (double)tutti_dtype_bytes(info->x.dtype) * (double)b->config.train.batch;
    double late = (double)(b->train->late_bytes + b->test->late_bytes);
    p->host_bytes += c->base_bytes + late + batch * (double)(b->config.data.prefetch + 1);
    return TUTTI_OK;
}

tutti_status tti_predict(const tti_blueprint *b, const tti_scheme *layout, const tti_calibration *c,
                         tti_prediction *out) {
    *out = (tti_prediction){.layout = *layout};
    crew w = crew_of(layout, c);
    tti_wave wave = tti_calibrated_wave(c, b->rows_per_shard, layout->recompute,
                                        tti_program_cost_s(c, &b->plan->shard), &out->is_measured);
    parts x = parts_of(b, c);
    TTI_TRY(predict_compute(out, &wave, &x, &w));
    predict_sums(out, b->plan, &x, c, &w);
    predict_update(out, b->plan, &x, &wave, c, &w);
    predict_load(out, b, &wave, c);
    out->step_s =
        out->compute_s + out->bubble_s + out->add_s + out->reduce_s + out->update_s + out->load_s;
    return predict_memory(out, b, &wave, c, &w);
}
