/* report.c - writes report.html with figures, curves, mistakes and the job.
 *
 * The page is one file that contains its style and charts.  It uses no network and no script, so it
 * can be sent by mail. */
#include "train/report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/files/atomic_file.h"
#include "data/files/byte_reader.h"
#include "train/infer/generator.h"
#include "train/job/job.h"
#include "train/report/chart.h"
#include "train/report/history.h"
#include "tutti/eval.h"

/* Limits at the end of a run; `tutti report` searches longer and opens larger models. */
enum {
    END_TIME_MS = 2000,
    ASKED_TIME_MS = 60000,
    END_MAX_PARAMS = 50 * 1000 * 1000,
    MAX_JOB_BYTES = 1 << 20,
    STOPPED_MAX_BYTES = 1 << 28 /* reading this much takes seconds from a network file system */
};
/* Limit of operations per shard, half a second on a few host cores, because a model that was
 * trained on devices may take much longer on the host. */
static const double end_max_flops = 1e11;

static const char style[] =
    ":root{color-scheme:light dark;--bg:#f6f7f9;--card:#fff;--ink:#1c2330;--soft:#667085;"
    "--grid:#e6e9ef;--c0:#2f6fed;--c1:#e8762d;--c2:#1f9d6b;--c3:#b04ac9;--c4:#9aa4b5;--c5:#d6a419}"
    "@media(prefers-color-scheme:dark){:root{--bg:#12151c;--card:#1b202a;--ink:#e8ebf1;"
    "--soft:#98a2b3;--grid:#2b3240;--c0:#6b9bff;--c1:#ff9d5c;--c2:#45c893;--c3:#d583ea;"
    "--c4:#6b7689;--c5:#ebc04d}}"
    "*{box-sizing:border-box}body{margin:0 auto;padding:28px 20px 60px;max-width:1220px;"
    "background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,'Segoe UI',"
    "Roboto,'DejaVu Sans',sans-serif}"
    "h1{font-size:26px;margin:0}h2{font-size:18px;margin:34px 0 12px}"
    "p{margin:4px 0 12px;color:var(--soft)}"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:12px;"
    "margin:22px 0}.tile,figure,pre,.notes{background:var(--card);border-radius:10px;"
    "padding:14px 16px;margin:0;border:1px solid var(--grid)}"
    ".tile b{display:block;font-size:23px;font-variant-numeric:tabular-nums}"
    ".tile span{color:var(--soft);font-size:13px}"
    ".grid2{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));"
    "gap:16px}figcaption{display:flex;flex-wrap:wrap;align-items:center;gap:4px 14px;"
    "margin-bottom:8px}figcaption small{color:var(--soft)}.key{display:inline-flex;"
    "align-items:center;gap:6px;font-size:13px;color:var(--soft)}"
    ".key i{width:14px;height:4px;border-radius:2px;background:var(--k)}"
    "svg{width:100%;height:auto;display:block}svg text{font-size:11.5px;fill:var(--soft);"
    "font-variant-numeric:tabular-nums}.y{text-anchor:end}.x{text-anchor:middle}"
    "svg "
    ".bar{font-size:13px;fill:var(--ink)}.grid{stroke:var(--grid);fill:none}.area~.grid{stroke-"
    "opacity:.25}"
    ".line{fill:none;stroke:var(--k);stroke-width:2;stroke-linejoin:round}"
    ".line.faint{stroke-width:1.2;opacity:.3}.area,.dot{fill:var(--k)}.dot{stroke:var(--card);"
    "stroke-width:1.5}.c0{--k:var(--c0)}.c1{--k:var(--c1)}.c2{--k:var(--c2)}.c3{--k:var(--c3)}"
    ".c4{--k:var(--c4)}.c5{--k:var(--c5)}"
    ".wrong{display:grid;grid-template-columns:repeat(auto-fill,minmax(104px,1fr));gap:12px}"
    ".wrong div{background:var(--card);border:1px solid var(--grid);border-radius:10px;"
    "padding:10px;text-align:center;overflow:hidden}.wrong img{width:84px;height:84px;"
    "object-fit:contain;image-rendering:pixelated;border-radius:4px;display:block;"
    "margin:0 auto 6px}.wrong b,.wrong span{display:block;font-size:13px;line-height:1.35;"
    "overflow-wrap:anywhere}.wrong span,.wrong small{color:var(--soft);font-weight:400}"
    "details summary{cursor:pointer;font-size:18px;font-weight:600;margin:34px 0 12px}"
    "pre{overflow:auto;font:13px/1.45 ui-monospace,'DejaVu Sans Mono',monospace}"
    "pre.text{white-space:pre-wrap;overflow-wrap:anywhere;margin:0 0 12px}"
    ".text span{color:var(--soft)}"
    ".notes p{margin:4px 0;color:var(--ink)}.notes .failed{color:#d0342c;font-weight:600}";

typedef struct page {
    tti_str out;
    tti_history h;
    const char *run_dir;
    tti_report_extras extras;
    tti_arena arena; /* memory for columns of the history */
} page;

/* ---- the head ---- */

static void tile(page *p, const char *name, const char *value) {
    tti_str_add(&p->out, "<div class=\"tile\"><b>");
    tti_html_text(&p->out, value);
    tti_str_printf(&p->out, "</b><span>%s</span></div>", name);
}

static const char *duration(double s, char text[32]) {
    if (s < 100)
        snprintf(text, 32, "%.1f s", s);
    else if (s < 5400)
        snprintf(text, 32, "%.0f min %02.0f s", (double)(int)(s / 60), s - 60 * (int)(s / 60));
    else
        snprintf(text, 32, "%.1f h", s / 3600);
    return text;
}

static const char *state_of(const tti_history *h) {
    for (int i = 0; i < h->n_notes; i++)
        if (h->notes[i].failed && !h->ended) return "failed";
    return h->stopped ? "stopped, can be continued" : h->ended ? "done" : "running, or was killed";
}

static bool is_accuracy(const page *p) { return p->h.score && strcmp(p->h.score, "accuracy") == 0; }

static void add_score(page *p, const tti_eval_point *last) {
    char text[64], title[32];
    if (!p->h.score) return;
    snprintf(title, sizeof title, "test %s", p->h.score);
    if (is_accuracy(p))
        snprintf(text, sizeof text, "%.2f %%", 100 * last->score);
    else
        snprintf(text, sizeof text, "%.6g", last->score);
    tile(p, title, text);
    if (is_accuracy(p)) return;
    snprintf(text, sizeof text, isnan(last->r2) ? "undefined" : "%.4f", last->r2);
    tile(p, "test r2", text);
}

static void add_tiles(page *p) {
    const tti_history *h = &p->h;
    char text[64], number[32];
    tti_str_add(&p->out, "<div class=\"tiles\">");
    if (h->n_evals > 0) {
        const tti_eval_point *last = &h->evals[h->n_evals - 1];
        add_score(p, last);
        snprintf(text, sizeof text, "%.4f", last->loss);
        tile(p, "test loss", text);
    } else if (h->n_steps > 0) {
        snprintf(text, sizeof text, "%.4f", h->steps[h->n_steps - 1].loss);
        tile(p, "training loss", text);
    }
    snprintf(text, sizeof text, "%.0f / %.0f", h->last_step, h->planned_steps);
    tile(p, "steps", text);
    if (h->samples_per_s > 0) tile(p, "samples/s", tti_chart_number(h->samples_per_s, number));
    if (h->wall_s > 0) tile(p, "wall time", duration(h->wall_s, number));
    tile(p, "parameters", tti_chart_number(h->params, number));
    if (h->peak_rss > 0) tile(p, "peak memory", tti_chart_bytes(h->peak_rss, number));
    tti_str_add(&p->out, "</div>\n");
}

static void add_head(page *p) {
    const tti_history *h = &p->h;
    const char *slash = strrchr(p->run_dir, '/');
    const char *name = slash && slash[1] ? slash + 1 : p->run_dir;
    tti_str_add(&p->out,
                "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                "<meta name=\"viewport\" content=\"width=device-width\"><title>");
    tti_html_text(&p->out, name);
    tti_str_printf(&p->out, "</title><style>%s</style></head>\n<body><h1>", style);
    tti_html_text(&p->out, name);
    tti_str_printf(&p->out, "</h1><p>%s &middot; %.0f worker%s, %.0f shard%s &middot; ",
                   state_of(h), h->workers, h->workers == 1 ? "" : "s", h->shards,
                   h->shards == 1 ? "" : "s");
    tti_html_text(&p->out, h->backend);
    tti_str_add(&p->out, " &middot; Tutti ");
    tti_html_text(&p->out, h->version);
    tti_str_add(&p->out, "</p>\n");
}

/* ---- curves ---- */

/* Extracts one field of every record, given by its offset in the struct. */
static double *column(page *p, const void *records, size_t stride, size_t offset, int n) {
    double *values = tti_arena_alloc(&p->arena, ((size_t)n + 1) * sizeof *values);
    for (int i = 0; values && i < n; i++)
        memcpy(&values[i], (const char *)records + (size_t)i * stride + offset, sizeof *values);
    return values;
}

#define STEP_COLUMN(p, field)                                                          \
    column((p), (p)->h.steps, sizeof(tti_step_point), offsetof(tti_step_point, field), \
           (p)->h.n_steps)
#define EVAL_COLUMN(p, field)                                                          \
    column((p), (p)->h.evals, sizeof(tti_eval_point), offsetof(tti_eval_point, field), \
           (p)->h.n_evals)

/* Returns a centred moving average over a twentieth of the curve. */
static double *smooth(page *p, const double *y, int n) {
    double *values = tti_arena_alloc(&p->arena, ((size_t)n + 1) * sizeof *values);
    double sum = 0;
    int reach = n / 40, first = 0, last = 0; /* sum covers first .. last-1 */
    for (int i = 0; values && i < n; i++) {
        while (last < n && last <= i + reach) sum += y[last++];
        while (first < i - reach) sum -= y[first++];
        values[i] = sum / (last - first);
    }
    return values;
}

/* Draws training as a faint line with its moving average, and the test split as dots. */
static void add_learning(page *p, const char *title, double *train, double *test, bool percent) {
    int n = p->h.n_steps, n_evals = p->h.n_evals;
    double *x = STEP_COLUMN(p, step), *x_eval = EVAL_COLUMN(p, step), *mean = NULL;
    if (x && train) mean = smooth(p, train, n);
    if (!mean || !x_eval || !test) return; /* out of memory, which is reported at the end */
    const tti_series series[] = {
        {.colour = 0, .x = x, .y = train, .n = n, .faint = n > 4},
        {.name = "training", .colour = 0, .x = x, .y = mean, .n = n},
        {.name = "test", .colour = 1, .x = x_eval, .y = test, .n = n_evals, .dots = true}};
    tti_chart_draw(&p->out, &(tti_chart){.title = title,
                                         .unit = percent ? "%" : "",
                                         .series = series,
                                         .n_series = 3,
                                         .log_y = !percent});
}

static void add_single(page *p, const char *title, const char *unit, double *y, int colour) {
    double *x = STEP_COLUMN(p, step);
    if (!x || !y) return;
    const tti_series series = {.colour = colour, .x = x, .y = y, .n = p->h.n_steps};
    tti_chart_draw(
        &p->out,
        &(tti_chart){
            .title = title, .unit = unit, .series = &series, .n_series = 1, .from_zero = true});
}

static void add_time_split(page *p) {
    int n = p->h.n_steps;
    double *x = STEP_COLUMN(p, step), *wait = STEP_COLUMN(p, wait), *comm = STEP_COLUMN(p, comm);
    double *compute = STEP_COLUMN(p, compute), *update = STEP_COLUMN(p, update);
    if (!x || !wait || !comm || !compute || !update) return;
    const tti_series series[] = {
        {.name = "computing", .colour = 0, .x = x, .y = compute, .n = n},
        {.name = "updating", .colour = 2, .x = x, .y = update, .n = n},
        {.name = "reducing, waiting for workers", .colour = 3, .x = x, .y = comm, .n = n},
        {.name = "waiting for data", .colour = 1, .x = x, .y = wait, .n = n}};
    tti_chart_draw(&p->out, &(tti_chart){.title = "Time of rank 0, step by step",
                                         .unit = "%",
                                         .series = series,
                                         .n_series = 4,
                                         .stacked = true});
}

/* A training step ends at the same time for all workers.  So the shortest time that any worker
 * spends in reductions is their cost, and the rest of the other workers' time in them is
 * waiting. */
enum { COMPUTE, UPDATE, COMM, WAIT, DATA, OTHER, N_SHARES };

static double shortest_comm(const tti_time_point *t, int n) {
    double least = t[0].comm;
    for (int i = 1; i < n; i++) least = TTI_MIN(least, t[i].comm);
    return least;
}

static void add_time_point(double *share, const tti_time_point *t, double comm) {
    share[COMPUTE] += t->compute;
    share[UPDATE] += t->update;
    share[COMM] += comm;
    share[WAIT] += t->comm - comm;
    share[DATA] += t->data;
    share[OTHER] += TTI_MAX(0, t->spent - t->compute - t->update - t->comm - t->data);
}

static void add_times_of_ranks(page *p) {
    static const char *const names[] = {"computing",           "updating",         "reducing",
                                        "waiting for workers", "waiting for data", "other"};
    static const int colours[] = {0, 2, 3, 5, 1, 4};
    const tti_history *h = &p->h;
    int n_ranks = 0;
    for (int i = 0; i < h->n_times; i++) n_ranks = TTI_MAX(n_ranks, h->times[i].rank + 1);
    double *seconds = calloc((size_t)n_ranks * N_SHARES + 1, sizeof *seconds);
    if (!seconds) return; /* the page is complete without this chart */
    for (int i = 0, n; i < h->n_times; i += n) {
        for (n = 1; i + n < h->n_times && h->times[i + n].rank == n;) n++;
        double comm = shortest_comm(&h->times[i], n);
        for (int r = 0; r < n; r++) add_time_point(&seconds[r * N_SHARES], &h->times[i + r], comm);
    }
    tti_chart_stacks(&p->out, &(tti_stacks){.title = "Time of every rank",
                                            .row = "rank",
                                            .parts = names,
                                            .colours = colours,
                                            .n_parts = N_SHARES,
                                            .n_rows = n_ranks,
                                            .seconds = seconds});
    free(seconds);
}

static void add_memory(page *p) {
    const tti_history *h = &p->h;
    static const char *const names[] = {"parameters", "optimizer states", "gradients",
                                        "activations", "whole process, peak"};
    double bytes[] = {h->bytes_params, h->bytes_states, h->bytes_grads, h->bytes_activations,
                      h->peak_rss};
    tti_chart_bars(&p->out, "Memory of a worker", names, bytes, 5);
}

static const char *score_title(const page *p) {
    if (is_accuracy(p)) return "Accuracy";
    return strcmp(p->h.score, "rmse") == 0 ? "RMSE" : "RMSE in standard deviations of each target";
}

static void add_curves(page *p) {
    tti_str_add(&p->out, "<div class=\"grid2\">\n");
    if (p->h.n_steps > 0) {
        add_learning(p, "Loss", STEP_COLUMN(p, loss), EVAL_COLUMN(p, loss), false);
        if (p->h.score)
            add_learning(p, score_title(p), STEP_COLUMN(p, score), EVAL_COLUMN(p, score),
                         is_accuracy(p));
        add_single(p, "Learning rate", "", STEP_COLUMN(p, lr), 3);
        add_single(p, "Throughput", "samples per second", STEP_COLUMN(p, samples_per_s), 2);
        add_time_split(p);
    }
    add_times_of_ranks(p);
    add_memory(p);
    tti_str_add(&p->out, "</div>\n");
    if (p->h.steps_each > 1)
        tti_str_printf(&p->out, "<p>The training curves show one of every %lld records.</p>\n",
                       (long long)p->h.steps_each);
}

/* ---- the rest ---- */

static void add_notes(page *p) {
    const tti_history *h = &p->h;
    if (h->n_notes == 0 && h->n_bad_lines == 0) return;
    tti_str_add(&p->out, "<h2>Warnings</h2><div class=\"notes\">");
    for (int i = 0; i < h->n_notes; i++) {
        tti_str_printf(&p->out, "<p%s>", h->notes[i].failed ? " class=\"failed\"" : "");
        tti_html_text(&p->out, h->notes[i].text);
        tti_str_add(&p->out, "</p>");
    }
    if (h->n_notes_left_out > 0) tti_str_printf(&p->out, "<p>and %d more</p>", h->n_notes_left_out);
    if (h->n_bad_lines > 0)
        tti_str_printf(&p->out, "<p>%lld lines of metrics.jsonl are damaged</p>",
                       (long long)h->n_bad_lines);
    tti_str_add(&p->out, "</div>\n");
}

/* Adds the job file, unless it cannot be read. */
static void add_job(page *p) {
    char path[4096], *text = NULL;
    size_t n_bytes;
    snprintf(path, sizeof path, "%s/job.yaml", p->run_dir);
    if (tti_read_file(path, MAX_JOB_BYTES, &text, &n_bytes) != TUTTI_OK) return;
    tti_str_add(&p->out, "<details><summary>Job</summary><pre>");
    tti_html_text(&p->out, text);
    tti_str_add(&p->out, "</pre></details>\n");
    free(text);
}

static void add_all(page *p) {
    add_head(p);
    add_tiles(p);
    add_curves(p);
    const tti_mistakes *mistakes = p->extras.mistakes;
    if (mistakes && mistakes->n_seen > 0) {
        tti_str_add(&p->out, "<h2>Mistakes</h2>");
        tti_mistakes_draw(&p->out, mistakes, p->extras.names);
    }
    if (p->extras.no_mistakes)
        tti_str_add(&p->out,
                    "<h2>Mistakes</h2><p>Not computed, because the model is slow on this "
                    "processor; run 'tutti report RUN'.</p>");
    if (p->extras.texts) tti_text_samples_draw(&p->out, p->extras.texts);
    add_notes(p);
    add_job(p);
    tti_str_add(&p->out, "</body></html>\n");
}

tutti_status tti_report_write(const char *run_dir, const tti_report_extras *extras) {
    page p = {.run_dir = run_dir};
    char path[4096];
    if (extras) p.extras = *extras;
    TTI_TRY(tti_history_read(run_dir, &p.h));
    add_all(&p);
    tutti_status st = TUTTI_OK;
    if (p.out.failed || tti_arena_failed(&p.arena) || tti_arena_failed(&p.h.arena))
        st = tti_fail(TUTTI_E_NOMEM, "report: out of memory");
    if (snprintf(path, sizeof path, "%s/report.html", run_dir) >= (int)sizeof path)
        st = tti_fail(TUTTI_E_IO, "report: the name of the run folder is too long");
    if (st == TUTTI_OK) st = tti_atomic_file_save(path, p.out.text, p.out.n_bytes);
    tti_str_free(&p.out);
    tti_arena_free(&p.arena);
    tti_history_free(&p.h);
    return st;
}

tutti_status tti_report_when_stopped(const char *run_dir) {
    char path[4096];
    struct stat info;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run_dir);
    if (stat(path, &info) != 0 || info.st_size <= STOPPED_MAX_BYTES)
        return tti_report_write(run_dir, NULL);
    return tti_fail(
        TUTTI_E_UNSUPPORTED,
        "report.html was not written, because metrics.jsonl has %lld MB; tutti report %s writes it",
        (long long)(info.st_size / 1000000), run_dir);
}

/* ---- parts that need the model ---- */

static tutti_status write_with(const tutti_job *job, tti_predictor *p, int time_ms,
                               const char *run_dir) {
    const tti_blueprint *b = tti_predictor_blueprint(p);
    tti_mistakes mistakes = {0};
    tti_text_samples texts = {0};
    bool images = tti_shows_images(b);
    if (images) TTI_TRY(tti_mistakes_find(p, time_ms, &mistakes));
    tti_text_samples_make(job, p, (int)b->config.run.text_samples, time_ms, &texts);
    tutti_status st = tti_report_write(
        run_dir, &(tti_report_extras){
                     .mistakes = images ? &mistakes : NULL, .names = b->test, .texts = &texts});
    tti_text_samples_free(&texts);
    tti_mistakes_free(&mistakes);
    return st;
}

/* Writes the page without parts that need the model, because opening a large model again takes as
 * long as several steps. */
static tutti_status write_without(const tti_blueprint *b, const char *run_dir) {
    tti_text_samples texts = {0};
    if (b->config.run.text_samples > 0 && tti_writes_text(b))
        snprintf(texts.note, sizeof texts.note,
                 "No texts, because the model is large; run 'tutti report RUN'.");
    return tti_report_write(
        run_dir, &(tti_report_extras){.texts = &texts, .no_mistakes = tti_shows_images(b)});
}

tutti_status tti_report_at_end(const tutti_job *job, const tti_blueprint *b, const char *run_dir) {
    tti_predictor *predictor;
    bool has_texts = tti_writes_text(b) && b->config.run.text_samples > 0;
    if (!has_texts && !tti_shows_images(b)) return tti_report_write(run_dir, NULL);
    if (b->plan->n_params > END_MAX_PARAMS || tti_program_flops(&b->plan->eval) > end_max_flops)
        return write_without(b, run_dir);
    if (tti_predictor_open_like(job, b, run_dir, &predictor) != TUTTI_OK)
        return tti_report_write(run_dir, NULL);
    tutti_status st = write_with(job, predictor, END_TIME_MS, run_dir);
    tti_predictor_close(predictor);
    return st;
}

tutti_status tutti_report(tutti_job *job, const char *run_dir) {
    TTI_TRY(tti_need(job, __func__, "job"));
    TTI_TRY(tti_need(run_dir, __func__, "run_dir"));
    tti_predictor *predictor;
    tutti_status st = tti_predictor_open_with_test(job, run_dir, NULL, NULL, &predictor);
    bool no_run = st == TUTTI_E_CONFIG;
    if (no_run) return st;
    /* without data or checkpoint, writes only the curves */
    if (st != TUTTI_OK) return tti_report_write(run_dir, NULL);
    st = write_with(job, predictor, ASKED_TIME_MS, run_dir);
    tti_predictor_close(predictor);
    return st;
}
