/* reporter_start.c - reports the start of a run: places, shard map and stages, and warnings about
 * settings without effect. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "data/dataset.h"
#include "train/job/load_weights.h"
#include "train/job/optimizer.h"
#include "train/report/reporter.h"
#include "train/setup/whole_layers.h"

/* Writes the kind of workers, such as "threads", and how they divide the model. */
static const char *place_text(const tti_reporter *r, char *out, size_t n_bytes) {
    const tti_blueprint *b = r->b;
    const tti_mesh_at *m = &b->mesh;
    int n = snprintf(out, n_bytes, "%s", r->by_launcher ? "processes" : b->config.parallel.place);
    if (b->n_model_ranks > 0)
        snprintf(out + n, n_bytes - (size_t)n, ", data %d x pipeline %d x tensor %d", m->data,
                 m->stage, m->tensor);
    return out;
}

/* Reports the division of the model into stages, and the expected bubble. */
static tutti_status report_pipeline(tti_reporter *r) {
    const tti_stages *s = r->b->n_model_ranks > 0 ? tti_blueprint_plan(r->b, 0)->stages : NULL;
    if (!s || r->expected_bubble <= 0) return TUTTI_OK;
    int n_chunks = tti_stages_n_all_chunks(s), n_shards = r->b->n_shards / r->b->mesh.data;
    if (r->shard_map)
        n_shards = tti_shard_map_n_of(
            r->shard_map, 0); /* shards of rank 0, for which expected_bubble is computed */
    double sum = 0;
    for (int q = 0; q < n_chunks; q++) sum += s->cost[q];
    tti_json *j = &r->metrics.json;
    tti_metrics_begin(&r->metrics, "pipeline");
    tti_json_int(j, "stages", s->n_stages);
    tti_json_int(j, "chunks", s->n_chunks);
    tti_json_int(j, "shards", n_shards);
    tti_json_double(j, "bubble_expected", r->expected_bubble);
    tti_json_array(j, "stage_costs"); /* fractions of the operations, by chunk of the model */
    for (int q = 0; q < n_chunks; q++) tti_json_float(j, NULL, (float)(s->cost[q] / sum));
    tti_json_end(j);
    TTI_TRY(tti_metrics_end(&r->metrics));
    if (n_shards >= s->n_stages) return TUTTI_OK;
    char text[256];
    snprintf(text, sizeof text,
             "parallel.pipeline=%d: with %d shard%s the stages wait for each other %.0f %% of the "
             "time; more parallel.shards reduce the waits",
             s->n_stages, n_shards, n_shards == 1 ? "" : "s", 100 * r->expected_bubble);
    return tti_reporter_warn(r, text);
}

/* Prints the shard map with the measured throughputs or the weights of the job; nothing if runs are
 * equal. */
static void print_shares(const tti_reporter *r, tti_str *out) {
    if (!r->shard_map) return;
    tti_str_add(out, "\n");
    if (*r->throughputs->text) {
        tti_str_add(out, r->throughputs->text);
        return;
    }
    tti_str_add(out, "shards of each worker, by parallel.load_weights: ");
    tti_load_weights_print(r->shard_map, out);
}

/* Reports the shard map and the figures that determine it. */
static tutti_status report_shard_map(tti_reporter *r, int64_t step) {
    tti_json *j = &r->metrics.json;
    if (!r->shard_map) return TUTTI_OK;
    tti_metrics_begin(&r->metrics, "shard_map");
    tti_json_int(j, "step", step);
    tti_json_bool(j, "measured", r->throughputs->n > 0);
    tti_json_array(j, "shards");
    for (int i = 0; i < r->shard_map->n_ranks; i++)
        tti_json_int(j, NULL, tti_shard_map_n_of(r->shard_map, i));
    tti_json_end(j);
    if (r->throughputs->n > 0) {
        tti_json_array(j, "group_s");
        for (int i = 0; i < r->throughputs->n; i++)
            tti_json_double(j, NULL, r->throughputs->of[i].group_s);
        tti_json_end(j);
        tti_json_array(j, "compute_threads");
        for (int i = 0; i < r->throughputs->n; i++)
            tti_json_int(j, NULL, r->throughputs->of[i].n_compute_threads);
        tti_json_end(j);
    }
    if (*r->throughputs->text) tti_json_text(j, "text", r->throughputs->text);
    return tti_metrics_end(&r->metrics);
}

tutti_status tti_reporter_shares(tti_reporter *r, int64_t step) {
    if (!r->active) return TUTTI_OK;
    tutti_event e = tti_reporter_event(r, TUTTI_EVENT_WARNING, step);
    e.text = r->throughputs->text;
    tti_reporter_emit(r, &e);
    return report_shard_map(r, step);
}

/* Warns if tensor parallelism leaves layers undivided. */
static tutti_status report_whole_layers(tti_reporter *r) {
    tti_str text = {0};
    tutti_status st = TUTTI_OK;
    if (tti_whole_heads_text(r->b, &text)) {
        if (r->b->mesh.stage == 1) tti_str_add(&text, "; ");
        tti_whole_params_text(r->b, &text);
        st = tti_reporter_warn(r, tti_str_text(&text));
    }
    tti_str_free(&text);
    return st;
}

static tutti_status report_unreached(tti_reporter *r) {
    tti_str text = {0};
    tti_blueprint_unreached_text(r->b, &text);
    tutti_status st = text.n_bytes > 0 ? tti_reporter_warn(r, tti_str_text(&text)) : TUTTI_OK;
    tti_str_free(&text);
    return st;
}

/* Reports what the data sets filled in or left out. */
static tutti_status report_notices(tti_reporter *r, const tutti_dataset *ds) {
    char line[1024];
    const char *text = tutti_dataset_notices(ds);
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        TTI_TRY(tti_reporter_warn(r, line));
    }
    return TUTTI_OK;
}

static tutti_status warn_large_batch(tti_reporter *r) {
    int64_t batch = r->b->config.train.batch;
    int64_t n = tutti_dataset_get_info(r->b->train)->n_samples;
    char text[256];
    if (batch <= n) return TUTTI_OK;
    snprintf(text, sizeof text,
             "train.batch=%lld is larger than the %lld training samples, so the rest of each batch "
             "is empty and only costs memory and time; give train.batch=%lld",
             (long long)batch, (long long)n, (long long)n);
    return tti_reporter_warn(r, text);
}

tutti_status tti_reporter_nothing_to_train(tti_reporter *r, int64_t step) {
    const tti_blueprint *b = r->b;
    bool by_steps = b->config.train.steps > 0;
    const char *key = by_steps ? "train.steps" : "train.epochs";
    int64_t value = by_steps ? b->config.train.steps : b->config.train.epochs;
    char epochs[64] = "", text[512];
    if (step < b->n_steps) return TUTTI_OK;
    if (!by_steps)
        snprintf(epochs, sizeof epochs, " (%.4g epochs)",
                 (double)step / (double)b->steps_per_epoch);
    snprintf(text, sizeof text,
             "nothing to train: the run already has %lld steps%s, and %s=%lld ends it after %lld, "
             "counted from its start; give a larger %s to train it for longer",
             (long long)step, epochs, key, (long long)value, (long long)b->n_steps, key);
    return tti_reporter_warn(r, text);
}

/* In a mixed run, lists the place of each worker. */
static void print_places(const tti_reporter *r, tti_str *out) {
    for (int i = 0; r->b->places.mixed && i < r->b->n_workers; i++) {
        tti_str_add(out, i == 0 ? "; workers on " : ", ");
        if (r->place[i] == TTI_ON_HOST)
            tti_str_add(out, "the host");
        else
            tti_str_printf(out, "device %d", (int)r->place[i]);
    }
}

/* Describes for which numbers of workers the result is the same, and how to extend that range. */
static void print_range(const tti_reporter *r, tti_str *out) {
    const tti_job_config *c = &r->b->config;
    int n = r->b->n_shards;
    if (!tti_job_is_exact(c)) return;
    const char *what = r->b->n_model_ranks > 0 ? "copies of the model" : "workers";
    if (n == 1)
        tti_str_printf(out, ", no identical result with more %s", what);
    else
        tti_str_printf(out, ", identical results with 1 to %d %s", n, what);
    if (n < TTI_MAX_WORKERS && 2 * (int64_t)n <= c->train.batch)
        tti_str_printf(out, " (parallel.shards=%d: 1 to %d)", 2 * n, 2 * n);
}

tutti_status tti_reporter_start(tti_reporter *r, tti_exec_memory memory, int64_t step) {
    if (!r->active) return TUTTI_OK;
    tti_str backend = {0}, lr = {0}, shares = {0}, range = {0};
    tti_blueprint_describe(r->b, &backend);
    print_places(r, &backend);
    if (r->sums && *r->sums) tti_str_printf(&backend, ", sums %s", r->sums);
    bool mixed = r->b->places.mixed; /* in mixed runs every worker's state is on the host */
    if (memory.offloaded || mixed) tti_str_add(&backend, ", optimizer state on the host");
    tti_peak_lr_explain(&r->b->config, &lr);
    tti_json *j = &r->metrics.json;
    tti_metrics_begin(&r->metrics, "start");
    tti_json_int(j, "step", step);
    tti_json_int(j, "n_steps", r->b->n_steps);
    tti_json_int(j, "workers", r->b->n_workers);
    if (r->b->n_model_ranks > 0) tti_json_int(j, "pipeline", r->b->mesh.stage);
    if (r->b->n_model_ranks > 0) tti_json_int(j, "tensor", r->b->mesh.tensor);
    if (r->b->config.parallel.zero > 0) tti_json_int(j, "zero", r->b->config.parallel.zero);
    tti_json_int(j, "shards", r->b->n_shards);
    tti_json_int(j, "params", (int64_t)r->b->plan->n_params);
    tti_json_int(j, "bytes_params", (int64_t)memory.params);
    tti_json_int(j, "bytes_states", (int64_t)memory.states);
    tti_json_int(j, "bytes_grads", (int64_t)memory.grads);
    tti_json_int(j, "bytes_activations", (int64_t)(memory.arena + memory.mailbox));
    if (memory.ema) tti_json_int(j, "bytes_ema", (int64_t)memory.ema);
    if (memory.offloaded) tti_json_int(j, "bytes_offloaded", (int64_t)memory.offloaded);
    if (memory.gathered) tti_json_int(j, "bytes_gathered", (int64_t)memory.gathered);
    tti_json_bool(j, "resident", r->is_resident);
    if (r->is_resident) tti_json_int(j, "steps_per_launch", r->n_launched);
    if (r->b->places.mixed) {
        tti_json_array(j, "devices"); /* -1: the host */
        for (int i = 0; i < r->b->n_workers; i++) tti_json_int(j, NULL, r->place[i]);
        tti_json_end(j);
    }
    tti_json_text(j, "backend", tti_str_text(&backend));
    tti_json_text(j, "version", TUTTI_VERSION);
    if (lr.n_bytes) tti_json_text(j, "lr_scaling", tti_str_text(&lr));
    char text[1400], place[128];
    print_shares(r, &shares);
    print_range(r, &range);
    snprintf(
        text, sizeof text, "%s: %zu parameters, %d worker%s (%s), %d shard%s of %lld%s, %s%s%s%s",
        r->b->model_name, r->b->plan->n_params, r->b->n_workers, r->b->n_workers == 1 ? "" : "s",
        place_text(r, place, sizeof place), r->b->n_shards, r->b->n_shards == 1 ? "" : "s",
        (long long)r->b->rows_per_shard, tti_str_text(&range), tti_str_text(&backend),
        lr.n_bytes ? "\n" : "", tti_str_text(&lr), tti_str_text(&shares));
    tti_str_free(&backend);
    tti_str_free(&lr);
    tti_str_free(&shares);
    tti_str_free(&range);
    tutti_event event = tti_reporter_event(r, TUTTI_EVENT_START, step);
    event.text = text;
    tti_reporter_emit(r, &event);
    TTI_TRY(tti_metrics_end(&r->metrics));
    TTI_TRY(report_pipeline(r));
    TTI_TRY(report_whole_layers(r));
    TTI_TRY(report_unreached(r));
    TTI_TRY(report_shard_map(r, step));
    if (strcmp(r->b->config.parallel.offload, "none") != 0 && r->b->places.n == 0)
        TTI_TRY(tti_reporter_warn(r,
                                  "parallel.offload has no effect: workers on CPUs already have "
                                  "their optimizer state in host memory"));
    TTI_TRY(report_notices(r, r->b->train));
    TTI_TRY(report_notices(r, r->b->test));
    TTI_TRY(warn_large_batch(r));
    r->mark_ns = tti_now_ns();
    return TUTTI_OK;
}
