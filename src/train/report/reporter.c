/* reporter.c - collects the figures of a run and writes them to metrics.jsonl and events. */
#include "train/report/reporter.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/memory_room.h"
#include "data/dataset.h"

static const double ns = 1e-9;

void tti_reporter_init(tti_reporter *r, int64_t call_ns) {
    *r = (tti_reporter){
        .call_ns = call_ns, .metrics = {.fd = -1}, .tfevents = {.fd = -1}, .evaluated_step = -1};
}

tutti_status tti_reporter_open(tti_reporter *r, const tutti_train_desc *train,
                               const tti_blueprint *b, const char *run_dir, const char *given_dir,
                               bool active) {
    r->train = train;
    r->b = b;
    r->run_dir = run_dir;
    r->given_dir = given_dir;
    tti_step_metrics_init(&r->own, b->plan);
    if (!active) return TUTTI_OK;
    TTI_TRY(tti_metrics_open(&r->metrics, run_dir));
    TTI_TRY(tti_tfevents_open(&r->tfevents, run_dir));
    r->active = true;
    return TUTTI_OK;
}

void tti_reporter_close(tti_reporter *r) {
    tti_metrics_close(&r->metrics);
    tti_tfevents_close(&r->tfevents);
    free(r->place);
    r->place = NULL;
}

void tti_reporter_emit(const tti_reporter *r, const tutti_event *event) {
    if (r->train->on_event) r->train->on_event(r->train->user, event);
}

tutti_event tti_reporter_event(const tti_reporter *r, tutti_event_kind kind, int64_t step) {
    return (tutti_event){.kind = kind,
                         .step = step,
                         .n_steps = r->b->n_steps,
                         .epoch = step > 0 ? (step - 1) / r->b->steps_per_epoch : 0};
}

tutti_status tti_reporter_go_on(tti_reporter *r, tutti_status st) {
    if (st != TUTTI_E_IO) return st;
    if (r->n_lost++ > 0) return TUTTI_OK;
    char text[1024];
    snprintf(text, sizeof text, "%s/%s; training continues without these records", r->given_dir,
             tutti_last_error());
    tti_reporter_emit(r, &(tutti_event){.kind = TUTTI_EVENT_WARNING, .text = text});
    return TUTTI_OK;
}

tutti_status tti_reporter_rewind(tti_reporter *r, int64_t step) {
    bool evaluates_again = step >= r->b->n_steps, had_evaluation = false;
    if (!r->active) return TUTTI_OK;
    TTI_TRY(tti_reporter_go_on(
        r, tti_metrics_rewind(&r->metrics, r->run_dir, step, evaluates_again, &had_evaluation)));
    if (evaluates_again && had_evaluation) r->evaluated_step = step;
    return tti_reporter_go_on(r, tti_tfevents_restart(&r->tfevents, step + 1));
}

/* Ends a record; a full disk does not end the run (tti_reporter_go_on). */
static tutti_status end_record(tti_reporter *r) {
    return tti_reporter_go_on(r, tti_metrics_end(&r->metrics));
}

static bool record_is_due(const tti_reporter *r, int64_t step) {
    int64_t every = r->b->config.run.log_every;
    if (every > 0) return step % every == 0 || step == r->b->n_steps;
    return r->window_ns > 500 * TTI_NS_PER_MS || step == r->b->n_steps ||
           r->n_samples == r->window_samples;
}

static const tti_target_spec *target_of(const tti_reporter *r) {
    return &tti_dataset_spec(r->b->train)->target;
}

/* Returns the root of the mean squared error, in standard deviations of each target. */
static double nrmse_of(const tti_reporter *r, const tti_step_result *sums) {
    return target_of(r)->n == 0 ? 0 : sqrt(sums->correct / TTI_MAX(sums->count, 1));
}

/* Returns the name, in metrics.jsonl and TensorBoard, of the score that training measures besides
 * the loss; NULL: none. */
static const char *score_name(const tti_reporter *r) {
    int64_t n = target_of(r)->n;
    if (n == 0 && !r->b->has_accuracy) return NULL;
    return n == 0 ? "accuracy" : n == 1 ? "rmse" : "nrmse";
}

static double score_of(const tutti_event *e) {
    return !e->is_regression ? e->accuracy : e->n_targets == 1 ? e->rmse : e->nrmse;
}

static void write_errors(tti_json *j, const tutti_value_result *v) {
    tti_json_double(j, "rmse", v->rmse);
    tti_json_double(j, "mae", v->mae);
    tti_json_double(j, "r2", v->r2);
}

/* True if an evaluation measures the errors of each target. */
static bool has_errors(const tti_reporter *r) {
    return target_of(r)->n > 0 && target_of(r)->n <= TTI_EVALUATED_TARGETS;
}

static void write_score(const tti_reporter *r, tti_json *j, const tutti_event *e) {
    int64_t n = target_of(r)->n;
    if (!score_name(r)) return;
    if (n != 1 || e->kind == TUTTI_EVENT_STEP) tti_json_double(j, score_name(r), score_of(e));
    if (e->kind == TUTTI_EVENT_STEP || !has_errors(r)) return;
    write_errors(j, &r->eval_mean);
    if (n == 1) return;
    tti_json_array(j, "values"); /* same format as `tutti eval --json` */
    for (int64_t k = 0; k < n; k++) {
        const char *name = tti_data_spec_target_name(tti_dataset_spec(r->b->train), k);
        tti_json_object(j, NULL);
        if (name) tti_json_text(j, "name", name);
        write_errors(j, &r->eval_each[k]);
        tti_json_end(j);
    }
    tti_json_end(j);
}

/* The accuracy of a step.  A row of text has many targets, whose number is the count of the
 * loss. */
static double accuracy_of(const tti_reporter *r, const tti_step_result *sums, int64_t n_rows) {
    if (target_of(r)->n > 0) return 0;
    if (!r->b->has_accuracy) return NAN;
    const tutti_dataset_info *info = tutti_dataset_get_info(r->b->train);
    bool by_count = info->y.shape.n_dims > 0 || info->n_fields > 0;
    return sums->correct / TTI_MAX(by_count ? sums->count : (double)n_rows, 1.0);
}

static tutti_status write_step_curves(tti_reporter *r, const tutti_event *e) {
    tti_scalar point[4 + TTI_MAX_OWN_METRICS];
    char score[32], tag[TTI_MAX_OWN_METRICS][128];
    const char *name = score_name(r);
    int n = 0;
    point[n++] = (tti_scalar){"train/loss", e->loss};
    if (name) {
        snprintf(score, sizeof score, "train/%s", name);
        point[n++] = (tti_scalar){score, score_of(e)};
    }
    point[n++] = (tti_scalar){"train/lr", e->lr};
    point[n++] = (tti_scalar){"perf/samples_per_s", e->samples_per_s};
    for (int64_t i = 0; i < e->n_metrics; i++) {
        if (!isfinite(e->metrics[i].value)) continue;
        snprintf(tag[i], sizeof tag[i], "train/%s", e->metrics[i].name);
        point[n++] = (tti_scalar){tag[i], e->metrics[i].value};
    }
    return tti_reporter_go_on(r, tti_tfevents_write(&r->tfevents, e->step, point, n));
}

static void write_metrics(tti_json *j, const tutti_event *e) {
    if (e->n_metrics == 0) return;
    tti_json_object(j, "metrics");
    for (int64_t i = 0; i < e->n_metrics; i++)
        tti_json_double(j, e->metrics[i].name, e->metrics[i].value);
    tti_json_end(j);
}

/* TensorBoard values of one evaluation: loss and score; rmse, mae and r2 of each target, and the
 * means of these. */
typedef struct eval_curves {
    tti_scalar point[2 + 3 * (TTI_EVALUATED_TARGETS + 1) + TTI_MAX_METRICS];
    char tag[3 * (TTI_EVALUATED_TARGETS + 1) + TTI_MAX_METRICS][128];
    int n, n_tags;
} eval_curves;

/* Adds the errors of a target; name "": the means over the targets. */
static void add_errors(eval_curves *c, const char *name, const tutti_value_result *v) {
    const char *const kinds[] = {"rmse", "mae", "r2"};
    const double values[] = {v->rmse, v->mae, v->r2};
    for (int i = 0; i < 3; i++) {
        if (!isfinite(values[i])) continue;
        char *tag = c->tag[c->n_tags++];
        snprintf(tag, sizeof c->tag[0], "test/%s%s%s", kinds[i], *name ? "/" : "", name);
        c->point[c->n++] = (tti_scalar){tag, values[i]};
    }
}

static tutti_status write_eval_curves(tti_reporter *r, const tutti_event *e) {
    int64_t n = target_of(r)->n;
    char number[32];
    eval_curves c = {.point = {{"test/loss", e->loss}}, .n = 1};
    if (e->step == r->evaluated_step) return TUTTI_OK; /* the curve already has this point */
    if (n != 1 && score_name(r))
        c.point[c.n++] = (tti_scalar){n ? "test/nrmse" : "test/accuracy", score_of(e)};
    if (has_errors(r)) add_errors(&c, "", &r->eval_mean);
    for (int64_t k = 0; has_errors(r) && n > 1 && k < n; k++) {
        const char *name = tti_data_spec_target_name(tti_dataset_spec(r->b->train), k);
        snprintf(number, sizeof number, "%lld", (long long)k);
        add_errors(&c, name ? name : number, &r->eval_each[k]);
    }
    for (int64_t i = 0; i < e->n_metrics; i++) {
        if (!isfinite(e->metrics[i].value)) continue;
        char *tag = c.tag[c.n_tags++];
        snprintf(tag, sizeof c.tag[0], "test/%s", e->metrics[i].name);
        c.point[c.n++] = (tti_scalar){tag, e->metrics[i].value};
    }
    return tti_reporter_go_on(r, tti_tfevents_write(&r->tfevents, e->step, c.point, c.n));
}

/* Writes the mean bubble of the steps since the last record, and for each stage the fraction of the
 * last step in which it computed. */
static void write_stages(tti_reporter *r, double bubble) {
    tti_json *j = &r->metrics.json;
    tti_json_double(j, "bubble", bubble);
    if (!r->stages_busy) return;
    tti_json_array(j, "stages_busy");
    for (int s = 0; s < r->b->mesh.stage; s++) tti_json_float(j, NULL, (float)r->stages_busy[s]);
    tti_json_end(j);
}

/* Writes the slowest worker. found: NULL: not known. */
static void write_slowest(tti_json *j, const tti_slowest_finding *found) {
    if (!found || !found->known) return;
    tti_json_int(j, "slowest_rank", found->rank);
    tti_json_text(j, "slowest_why", found->why);
    tti_json_double(j, "slowest_late_share", found->late_share);
}

/* Writes a step record. shares: fractions of time for computing and for updating, and the fraction
 * of computing in which pipeline stages wait for each other. */
static tutti_status write_step(tti_reporter *r, const tutti_event *e, const tti_step_result *result,
                               const double shares[3]) {
    tti_json *j = &r->metrics.json;
    tti_metrics_begin(&r->metrics, "step");
    tti_json_int(j, "step", e->step);
    tti_json_int(j, "epoch", e->epoch);
    tti_json_text(j, "split", "train");
    tti_json_double(j, "loss", e->loss);
    write_score(r, j, e);
    write_metrics(j, e);
    tti_json_double(j, "lr", e->lr);
    if (r->window_sent > 0)
        tti_json_int(j, "sent_bytes", (int64_t)(r->window_sent / (double)r->window_steps));
    if (result->grad_norm > 0) tti_json_double(j, "grad_norm", result->grad_norm);
    tti_json_double(j, "samples_per_s", e->samples_per_s);
    tti_json_double(j, "wait_share", e->wait_share);
    tti_json_double(j, "comm_share", e->comm_share);
    tti_json_double(j, "compute_share", shares[0]);
    tti_json_double(j, "update_share", shares[1]);
    if (r->expected_bubble > 0) write_stages(r, shares[2]);
    write_slowest(j, r->slowest);
    tti_json_hex64(j, "params_hash", result->params_hash);
    return end_record(r);
}

tutti_status tti_reporter_step(tti_reporter *r, int64_t step, double lr,
                               const tti_step_result *result, const tti_batch *batch) {
    if (!r->active) return TUTTI_OK;
    int64_t now = tti_now_ns(), spent = now - r->mark_ns;
    if (r->first_step_ns == 0) r->first_step_ns = now - r->call_ns;
    r->mark_ns = now;
    r->train_ns += spent;
    r->n_samples += batch->n_rows_global;
    r->window_ns += spent;
    r->window_samples += batch->n_rows_global;
    r->window_wait_ns += batch->wait_ns;
    r->window_comm_ns += result->comm_ns;
    r->window_compute_ns += result->compute_ns;
    r->window_update_ns += result->update_ns;
    r->window_bubble += result->bubble * (double)result->compute_ns;
    r->bubble += result->bubble * (double)result->compute_ns;
    r->compute_ns += result->compute_ns;
    r->window_steps++;
    r->window_sent += result->sent_bytes;
    r->sent_bytes += result->sent_bytes;
    r->is_due |= record_is_due(r, step);
    if (!r->is_due || result->partial) return TUTTI_OK;
    r->is_due = false;
    TTI_TRY(tti_reporter_check_folder(r));
    double window = (double)(r->window_ns > 0 ? r->window_ns : 1);
    tutti_event e = tti_reporter_event(r, TUTTI_EVENT_STEP, step);
    e.loss = result->count > 0 ? result->loss_sum / result->count : 0;
    e.accuracy = accuracy_of(r, result, batch->n_rows_global);
    e.is_regression = target_of(r)->n > 0;
    e.n_targets = target_of(r)->n;
    e.nrmse = nrmse_of(r, result);
    tti_step_metrics_set(&r->own, result);
    e.n_metrics = r->own.n;
    e.metrics = r->own.list;
    if (e.n_targets == 1) e.rmse = target_of(r)->std[0] * e.nrmse;
    e.lr = lr;
    e.samples_per_s = (double)r->window_samples / (window * ns);
    e.eta_s = (double)(r->b->n_steps - step) * (double)r->b->config.train.batch /
              TTI_MAX(e.samples_per_s, 1e-9);
    e.wait_share = (double)r->window_wait_ns / window;
    e.comm_share = (double)r->window_comm_ns / window;
    if (r->slowest && r->slowest->known) {
        e.slowest_rank = r->slowest->rank;
        e.slowest_late_share = r->slowest->late_share;
        e.slowest_why = r->slowest->late_share >= TTI_LATE_SHARE ? r->slowest->why : NULL;
    }
    double compute_ns = (double)TTI_MAX(r->window_compute_ns, 1);
    double shares[3] = {compute_ns / window, (double)r->window_update_ns / window,
                        r->window_bubble / compute_ns};
    r->window_ns = r->window_samples = r->window_wait_ns = r->window_comm_ns = 0;
    r->window_compute_ns = r->window_update_ns = 0;
    r->window_bubble = 0;
    tti_reporter_emit(r, &e);
    TTI_TRY(write_step_curves(r, &e));
    TTI_TRY(write_step(r, &e, result, shares));
    r->window_steps = 0;
    r->window_sent = 0;
    return TUTTI_OK;
}

static void fill_values(const tti_reporter *r, tutti_event *e) {
    e->is_regression = target_of(r)->n > 0;
    e->n_targets = target_of(r)->n;
    e->nrmse = r->eval_nrmse;
    e->rmse = r->eval_mean.rmse, e->mae = r->eval_mean.mae, e->r2 = r->eval_mean.r2;
}

tutti_status tti_reporter_eval(tti_reporter *r, int64_t step, const tti_eval_sums *result) {
    const tti_step_result *sums = &result->all;
    if (!r->active) return TUTTI_OK;
    r->eval_loss = sums->count > 0 ? sums->loss_sum / sums->count : 0;
    r->eval_accuracy = accuracy_of(r, sums, result->n_rows);
    r->eval_nrmse = nrmse_of(r, sums);
    r->eval_mean = (tutti_value_result){.rmse = NAN, .mae = NAN, .r2 = NAN};
    if (has_errors(r))
        TTI_TRY(tti_value_errors(r->b->test, (double)result->n_rows, result->squares, result->sizes,
                                 r->eval_each, &r->eval_mean));
    tutti_event e = tti_reporter_event(r, TUTTI_EVENT_EVAL, step);
    e.loss = r->eval_loss;
    e.accuracy = r->eval_accuracy;
    fill_values(r, &e);
    int n_metrics = 0;
    if (result->metrics) TTI_TRY(tti_metric_set_finish(result->metrics, &e.metrics, &n_metrics));
    e.n_metrics = n_metrics;
    tti_reporter_emit(r, &e);
    tti_json *j = &r->metrics.json;
    tti_metrics_begin(&r->metrics, "eval");
    tti_json_int(j, "step", step);
    tti_json_int(j, "epoch", e.epoch);
    tti_json_text(j, "split", "test");
    tti_json_double(j, "loss", e.loss);
    write_score(r, j, &e);
    write_metrics(j, &e);
    tti_json_int(j, "samples", result->n_rows);
    TTI_TRY(write_eval_curves(r, &e));
    r->mark_ns = tti_now_ns();
    return end_record(r);
}

tutti_status tti_reporter_times(tti_reporter *r, int64_t step, const tti_times *times) {
    static const char *const keys[] = {"data_s", "compute_s", "comm_s", "update_s", "spent_s"};
    if (!r->active) return TUTTI_OK;
    tti_json *j = &r->metrics.json;
    tti_metrics_begin(&r->metrics, "times");
    tti_json_int(j, "step", step);
    for (int part = 0; part < TTI_N_TIME_PARTS; part++) {
        tti_json_array(j, keys[part]);
        for (int rank = 0; rank < times->n_ranks; rank++)
            tti_json_float(j, NULL, (float)times->all[rank][part]);
        tti_json_end(j);
    }
    return end_record(r);
}

tutti_status tti_reporter_staleness(tti_reporter *r, int64_t step,
                                    const int64_t bins[TTI_STALENESS_BINS], int64_t n_left_out) {
    int64_t n = 0, sum = 0;
    if (!r->active) return TUTTI_OK;
    for (int i = 0; i < TTI_STALENESS_BINS; i++) {
        n += bins[i];
        sum += bins[i] * i;
        if (bins[i] > 0) r->stale_max = i;
    }
    r->stale_mean = n > 0 ? (double)sum / (double)n : 0;
    tti_json *j = &r->metrics.json;
    tti_metrics_begin(&r->metrics, "staleness");
    tti_json_int(j, "step", step);
    tti_json_double(j, "mean", r->stale_mean);
    tti_json_int(j, "max", r->stale_max);
    if (n_left_out > 0) tti_json_int(j, "left_out", n_left_out);
    tti_json_array(j, "counts");
    for (int i = 0; i <= r->stale_max; i++) tti_json_int(j, NULL, bins[i]);
    tti_json_end(j);
    return end_record(r);
}

tutti_status tti_reporter_range_servers(tti_reporter *r, int64_t step,
                                        const tti_range_traffic *held, int n) {
    if (!r->active) return TUTTI_OK;
    tti_json *j = &r->metrics.json;
    tti_metrics_begin(&r->metrics, "servers");
    tti_json_int(j, "step", step);
    tti_json_array(j, "ranges");
    for (int i = 0; i < n; i++) {
        tti_json_object(j, NULL);
        tti_json_int(j, "worker", i);
        tti_json_int(j, "first", (int64_t)held[i].keys.first);
        tti_json_int(j, "elements", (int64_t)(held[i].keys.last - held[i].keys.first));
        tti_json_int(j, "bytes", held[i].n_bytes);
        tti_json_end(j);
    }
    tti_json_end(j);
    return end_record(r);
}

tutti_status tti_reporter_dropped(tti_reporter *r, int64_t step, const int64_t *counts) {
    if (!r->active) return TUTTI_OK;
    tti_json *j = &r->metrics.json;
    tti_metrics_begin(&r->metrics, "dropped");
    tti_json_int(j, "step", step);
    tti_json_array(j, "counts");
    r->n_dropped = 0;
    for (int w = 0; w < r->b->mesh.data; w++) {
        tti_json_int(j, NULL, counts[w]);
        r->n_dropped += counts[w];
    }
    tti_json_end(j);
    return end_record(r);
}

tutti_status tti_reporter_left(tti_reporter *r, const tti_leave *left) {
    char text[640];
    if (!r->active) return TUTTI_OK;
    snprintf(text, sizeof text, "%s %d left after %lld updates; the others continue: %s",
             r->b->n_model_ranks > 0 ? "replica" : "worker", left->worker, (long long)left->step,
             left->why);
    TTI_TRY(tti_reporter_warn(r, text));
    tti_json *j = &r->metrics.json;
    tti_metrics_begin(&r->metrics, "left");
    tti_json_int(j, "step", left->step);
    tti_json_int(j, "worker", left->worker);
    if (left->batch >= 0) tti_json_int(j, "batch", left->batch);
    tti_json_text(j, "text", left->why);
    return end_record(r);
}

void tti_reporter_pause(tti_reporter *r, int64_t t_ns) { r->mark_ns += t_ns; }

tutti_status tti_reporter_check_folder(const tti_reporter *r) {
    struct stat here, opened;
    char path[700];
    if (!r->active) return TUTTI_OK;
    snprintf(path, sizeof path, "%s/metrics.jsonl", r->run_dir);
    bool is_gone = stat(path, &here) != 0
                       ? errno == ENOENT || errno == ENOTDIR
                       : fstat(r->metrics.fd, &opened) == 0 &&
                             (here.st_ino != opened.st_ino || here.st_dev != opened.st_dev);
    if (!is_gone) return TUTTI_OK;
    return tti_fail(TUTTI_E_CHECKPOINT,
                    "the run folder %s was removed, moved or replaced; the run ends, because it "
                    "can no longer be saved",
                    r->given_dir);
}

tutti_status tti_reporter_checkpoint(tti_reporter *r, int64_t step) {
    if (!r->active) return TUTTI_OK;
    char path[700];
    snprintf(path, sizeof path, "%s/checkpoints/step-%09lld", r->given_dir, (long long)step);
    tutti_event e = tti_reporter_event(r, TUTTI_EVENT_CHECKPOINT, step);
    e.text = path;
    tti_reporter_emit(r, &e);
    tti_metrics_begin(&r->metrics, "checkpoint");
    tti_json_int(&r->metrics.json, "step", step);
    tti_json_text(&r->metrics.json, "path", path);
    return end_record(r);
}

tutti_status tti_reporter_warn(tti_reporter *r, const char *text) {
    if (!r->active) return TUTTI_OK;
    tutti_event e = {.kind = TUTTI_EVENT_WARNING, .text = text};
    tti_reporter_emit(r, &e);
    tti_metrics_begin(&r->metrics, "warning");
    tti_json_text(&r->metrics.json, "text", text);
    return end_record(r);
}

tutti_status tti_reporter_skip(tti_reporter *r, int64_t *n, const char *text) {
    bool is_due = (*n & (*n + 1)) == 0;
    ++*n;
    return is_due ? tti_reporter_warn(r, text) : TUTTI_OK;
}

static void fill_result(const tti_reporter *r, int64_t step, uint64_t params_hash, int stop_signal,
                        tutti_train_result *result) {
    result->n_steps = step;
    result->n_params = (int64_t)r->b->plan->n_params;
    result->loss = r->eval_loss;
    result->accuracy = r->eval_accuracy;
    result->is_regression = target_of(r)->n > 0;
    result->n_targets = target_of(r)->n;
    result->nrmse = r->eval_nrmse;
    result->rmse = r->eval_mean.rmse, result->mae = r->eval_mean.mae, result->r2 = r->eval_mean.r2;
    result->samples_per_s = (double)r->n_samples / TTI_MAX((double)r->train_ns * ns, 1e-9);
    result->wall_s = (double)(tti_now_ns() - r->call_ns) * ns;
    result->first_step_s = (double)r->first_step_ns * ns;
    result->params_hash = params_hash;
    result->peak_host_bytes = tti_memory_peak();
    result->stop_signal = stop_signal;
    result->staleness_mean = r->stale_mean;
    result->staleness_max = r->stale_max;
    result->bubble = r->bubble / (double)TTI_MAX(r->compute_ns, 1);
    result->bubble_expected = r->expected_bubble;
    result->n_dropped = r->n_dropped;
    bool is_less = strcmp(r->b->config.parallel.compress, "none") != 0 ||
                   tti_job_wire(&r->b->config) != TUTTI_F32 || tti_job_is_local(&r->b->config);
    result->sent_bytes = is_less ? r->sent_bytes : 0;
    const tti_slowest_finding *found = r->slowest_overall;
    if (!found || !found->known || found->late_share < TTI_LATE_OVERALL) return;
    result->slowest_rank = found->rank;
    result->slowest_late_share = found->late_share;
    result->slowest_why = found->why;
}

static tutti_status warn_lost_records(tti_reporter *r) {
    char text[128];
    if (r->n_lost == 0) return TUTTI_OK;
    snprintf(text, sizeof text,
             "%lld records of metrics.jsonl, the curves or arrivals.txt are missing",
             (long long)r->n_lost);
    return tti_reporter_warn(r, text);
}

/* Reports the number of samples left out under data.on_error=skip, with reasons for the first few.
 */
static tutti_status report_skipped(tti_reporter *r, const tutti_dataset *ds, const char *split) {
    enum { REASONS = 5 };
    int64_t n = tutti_dataset_n_skipped(ds);
    tti_str text = {0};
    if (n == 0) return TUTTI_OK;
    tti_str_printf(&text, "%lld %s sample%s skipped", (long long)n, split, n == 1 ? "" : "s");
    for (int64_t i = 0; i < n && i < REASONS; i++) {
        const char *reason = tutti_dataset_skip_reason(ds, i);
        if (reason) tti_str_printf(&text, "%s %s", i ? ";" : ":", reason);
    }
    tutti_status st = tti_reporter_warn(r, tti_str_text(&text));
    tti_str_free(&text);
    return st;
}

tutti_status tti_reporter_end(tti_reporter *r, int64_t step, uint64_t params_hash, int stop_signal,
                              tutti_train_result *result) {
    if (!r->active) return TUTTI_OK;
    TTI_TRY(report_skipped(r, r->b->train, "training"));
    TTI_TRY(report_skipped(r, r->b->test, "test"));
    TTI_TRY(warn_lost_records(r));
    fill_result(r, step, params_hash, stop_signal, result);
    tutti_event e = tti_reporter_event(r, TUTTI_EVENT_END, step);
    e.loss = result->loss;
    e.accuracy = result->accuracy;
    fill_values(r, &e);
    e.samples_per_s = result->samples_per_s;
    tti_reporter_emit(r, &e);
    tti_json *j = &r->metrics.json;
    tti_metrics_begin(&r->metrics, "end");
    tti_json_int(j, "step", step);
    tti_json_bool(j, "stopped", stop_signal != 0);
    tti_json_hex64(j, "params_hash", params_hash);
    if (!stop_signal) {
        tti_json_double(j, "loss", result->loss);
        write_score(r, j, &e);
    }
    tti_json_double(j, "samples_per_s", result->samples_per_s);
    tti_json_double(j, "wall_s", result->wall_s);
    tti_json_double(j, "first_step_s", result->first_step_s);
    write_slowest(j, r->slowest_overall);
    tti_json_int(j, "peak_rss", (int64_t)result->peak_host_bytes);
    if (result->peak_device_bytes > 0)
        tti_json_int(j, "peak_device_bytes", (int64_t)result->peak_device_bytes);
    if (result->most_device_bytes > 0) {
        tti_json_int(j, "most_device_bytes", (int64_t)result->most_device_bytes);
        tti_json_int(j, "least_device_bytes", (int64_t)result->least_device_bytes);
    }
    if (r->sent_bytes > 0) tti_json_int(j, "sent_bytes", (int64_t)r->sent_bytes);
    if (r->expected_bubble > 0) {
        tti_json_double(j, "bubble", result->bubble);
        tti_json_double(j, "bubble_expected", result->bubble_expected);
    }
    if (r->b->config.parallel.backup_workers > 0) tti_json_int(j, "dropped", r->n_dropped);
    if (r->b->config.parallel.staleness != 0) {
        tti_json_double(j, "staleness_mean", r->stale_mean);
        tti_json_int(j, "staleness_max", r->stale_max);
    }
    return end_record(r);
}

void tti_reporter_failed(tti_reporter *r, int64_t step, tutti_status status) {
    if (!r->active) return;
    char text[2048];
    snprintf(text, sizeof text, "%s", tutti_last_error());
    tti_metrics_begin(&r->metrics, "failed");
    tti_json_int(&r->metrics.json, "step", step);
    tti_json_text(&r->metrics.json, "status", tutti_status_text(status));
    tti_json_text(&r->metrics.json, "text", text);
    tutti_status st = tti_metrics_end(&r->metrics);
    (void)st; /* the first failure is the one to report */
    tti_fail(status, "%s", text);
}
