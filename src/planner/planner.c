/* planner.c - tutti_plan_job: predicts every layout, and prints them, the best first, with the
 * reason why the others are slower.
 *
 * Calibration takes most of the time and has a budget. The time of programs that exceed the budget
 * is scaled from other programs by their costs. */
#include "tutti/planner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

#include "base/affinity.h"
#include "base/json.h"
#include "planner/mixture.h"
#include "planner/scratch.h"
#include "train/job/devices.h"
#include "train/job/load_weights.h"
#include "train/setup/init_config.h"

static const double BUDGET_S = 8;
/* Calibration and scratch queries together take at most this many seconds, except that queries may
 * always take this fraction of the budget. */
static const double CALIBRATION_S = 10, QUERY_SHARE = 0.25;
enum { MAX_ROWS = 10 };

typedef struct planner {
    tutti_job *job;
    const tutti_plan_desc *desc;
    tti_schemes layouts;
    const tti_blueprint **blueprints; /* [layouts.n]; the first blueprint owns the data sets */
    bool *is_shared;                  /* [n]: the blueprint belongs to an earlier layout */
    tti_plan_cache *cache; /* used by all blueprints but the first, which is created as in a run */
    bool on_device, is_mixed; /* is_mixed: there are workers on devices and on the host */
    tti_calibration calibration;
    tti_mixture mixture;         /* is_mixed: used instead of calibration */
    tti_prediction *predictions; /* [n], the best first after sort */
    double memory_bytes, spent_s, base_bytes;
    int n_fit; /* number of layouts that fit in memory; they come first */
} planner;

/* ---- blueprints and calibration ---- */

static bool is_measured(const planner *p) { return tti_is_measured(p->desc->device); }

/* True if the programs are not those of a backend of this machine. */
static bool uses_stored_figures(const planner *p) { return tti_is_known_device(p->desc->device); }

/* True if layouts a and b have the same programs although their ZeRO stages differ. ZeRO only
 * changes 16-bit parameter copies on devices, and the sizes of buckets. */
static bool is_same_zero(const planner *p, int a, int b) {
    return !p->on_device || a == b || (a > 1 && b > 1);
}

static bool is_same_mesh(const tti_scheme *a, const tti_scheme *b) {
    return a->data == b->data && a->tensor == b->tensor && a->pipeline == b->pipeline &&
           a->chunks == b->chunks && a->shards == b->shards;
}

/* Returns the blueprint of an earlier layout with the same programs; NULL: none. */
static const tti_blueprint *find_blueprint(const planner *p, int i) {
    const tti_scheme *a = &p->layouts.of[i];
    for (int k = 0; k < i; k++) {
        const tti_scheme *b = &p->layouts.of[k];
        if (is_same_mesh(a, b) && strcmp(a->recompute, b->recompute) == 0 &&
            is_same_zero(p, a->zero, b->zero))
            return p->blueprints[k];
    }
    return NULL;
}

static bool are_alike(const tti_blueprint *a, const tti_blueprint *b) {
    for (int i = 0; i < TTI_MAX(1, a->n_model_ranks); i++) {
        const tti_program *x = &tti_blueprint_plan(a, i)->shard,
                          *y = &tti_blueprint_plan(b, i)->shard;
        if (x->n_steps != y->n_steps || x->arena_bytes != y->arena_bytes) return false;
    }
    return true;
}

/* True if an earlier layout has the same programs and differs only in the recomputation key. */
static bool is_repeated(const planner *p, int i) {
    const tti_scheme *a = &p->layouts.of[i];
    for (int k = 0; k < i; k++) {
        const tti_scheme *b = &p->layouts.of[k];
        if (is_same_mesh(a, b) && a->zero == b->zero &&
            are_alike(p->blueprints[i], p->blueprints[k]))
            return true;
    }
    return false;
}

static void drop(planner *p, int i) {
    if (!p->is_shared[i]) tti_blueprint_destroy(p->blueprints[i]);
    p->blueprints[i] = NULL;
    tti_schemes_drop(&p->layouts, i);
}

static tutti_status make_blueprint(planner *p, int i) {
    tutti_job *job;
    p->blueprints[i] = find_blueprint(p, i);
    p->is_shared[i] = p->blueprints[i] != NULL;
    if (p->is_shared[i]) return TUTTI_OK;
    TTI_TRY(tti_scheme_job(p->job, &p->layouts.of[i], uses_stored_figures(p), &job));
    tutti_status st = tti_blueprint_create_like(
        job, i ? p->blueprints[0] : NULL, uses_stored_figures(p) ? tti_planning_device() : NULL,
        i ? p->cache : NULL, &p->blueprints[i]);
    tutti_job_destroy(job);
    if (i == 0) p->base_bytes = tti_process_bytes(NULL); /* as in a run, with one blueprint */
    return st;
}

/* Creates the blueprints. Some layouts turn out to be impossible only here, such as those with more
 * stages than layers. */
static tutti_status make_blueprints(planner *p) {
    size_t n = (size_t)p->layouts.n;
    p->blueprints = calloc(n, sizeof(const tti_blueprint *));
    p->is_shared = calloc(n, sizeof *p->is_shared);
    p->predictions = calloc(n, sizeof *p->predictions);
    if (!p->blueprints || !p->is_shared || !p->predictions)
        return tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    TTI_TRY(tti_plan_cache_create(&p->cache));
    for (int i = 0; i < p->layouts.n;) {
        tutti_status st = make_blueprint(p, i);
        if (st == TUTTI_OK && is_repeated(p, i))
            drop(p, i);
        else if (st == TUTTI_OK)
            i++;
        else if (st == TUTTI_E_CONFIG || st == TUTTI_E_INVALID || st == TUTTI_E_UNSUPPORTED)
            TTI_TRY(tti_schemes_refuse(&p->layouts, i));
        else
            return st;
    }
    return TUTTI_OK;
}

/* recomputes: measures layouts with recomputation, else those without. The latter are measured
 * first, because the former can be scaled from them more reliably. */
static tutti_status run_micro_groups(planner *p, double budget, bool recomputes) {
    for (int i = 0; i < p->layouts.n; i++) {
        double spent, left = budget - p->spent_s;
        if (recomputes != (strcmp(p->layouts.of[i].recompute, "none") != 0)) continue;
        TTI_TRY(p->is_mixed
                    ? tti_mixture_micro_group(p->blueprints[i], &p->mixture, left, &spent)
                    : tti_calibrate_micro_group(p->blueprints[i], &p->calibration, left, &spent));
        p->spent_s += spent;
    }
    return TUTTI_OK;
}

/* Queries scratch memory. Preparing kernels may take longer than running them, so kernels beyond
 * the budget are scaled. */
static tutti_status query_scratch(planner *p, double budget) {
    double spent, left = fmax(CALIBRATION_S - p->spent_s, QUERY_SHARE * budget);
    for (int i = 0; i < p->layouts.n && !p->is_mixed; i++) {
        TTI_TRY(tti_scratch_query_all(p->blueprints[i], &p->calibration, left, &spent));
        left -= spent, p->spent_s += spent;
    }
    return TUTTI_OK;
}

static tutti_status calibrate_machine(planner *p, int n_workers, double budget) {
    const tti_blueprint *b = p->blueprints[0];
    if (!p->is_mixed)
        return tti_calibrate_machine(b, n_workers, budget, p->base_bytes, &p->calibration);
    TTI_TRY(tti_mixture_calibrate(b, budget, p->base_bytes, &p->mixture));
    p->calibration = p->mixture.devices;
    p->calibration.n_ranks = n_workers;
    return TUTTI_OK;
}

static tutti_status calibrate(planner *p, int n_workers) {
    if (!is_measured(p)) {
        TTI_TRY(tti_calibration_of(p->desc->device, n_workers, &p->calibration));
        tti_calibration_for(tti_job_config_of(p->job), &p->calibration);
        p->calibration.base_bytes = p->calibration.is_device ? 0 : p->base_bytes;
        return TUTTI_OK;
    }
    double budget = p->desc->budget_s > 0 ? p->desc->budget_s : BUDGET_S;
    TTI_TRY(calibrate_machine(p, n_workers, budget));
    TTI_TRY(run_micro_groups(p, budget, false));
    TTI_TRY(run_micro_groups(p, budget, true));
    return query_scratch(p, budget);
}

/* ---- order ---- */

static double bytes_wanted(const planner *p, const tti_prediction *x) {
    return p->calibration.is_device ? x->worker_bytes : x->host_bytes;
}

static bool fits(const planner *p, const tti_prediction *x) {
    return bytes_wanted(p, x) <= p->memory_bytes;
}

static int recomputes(const tti_prediction *x) { return strcmp(x->layout.recompute, "none") != 0; }

/* Among equally fast layouts, the one with less memory comes first, then the one without
 * recomputation. */
static int by_time(const void *a, const void *b) {
    const tti_prediction *x = a, *y = b;
    if (x->step_s != y->step_s) return x->step_s > y->step_s ? 1 : -1;
    if (x->worker_bytes != y->worker_bytes) return x->worker_bytes > y->worker_bytes ? 1 : -1;
    return recomputes(x) - recomputes(y);
}

/* Layouts that fit come first, the fastest one first; then the others. */
static void sort(planner *p) {
    tti_prediction *all = p->predictions;
    int n = p->layouts.n;
    qsort(all, (size_t)n, sizeof *all, by_time);
    for (int i = 0; i < n; i++) {
        tti_prediction x = all[i];
        if (!fits(p, &x)) continue;
        memmove(all + p->n_fit + 1, all + p->n_fit, (size_t)(i - p->n_fit) * sizeof *all);
        all[p->n_fit++] = x;
    }
}

static double memory_here(void) {
    struct sysinfo info;
    double bytes = sysinfo(&info) == 0 ? (double)info.totalram * info.mem_unit : INFINITY, limit;
    FILE *file = fopen("/sys/fs/cgroup/memory.max", "r"); /* "max": no limit */
    if (file && fscanf(file, "%lf", &limit) == 1 && limit < bytes) bytes = limit;
    if (file) fclose(file);
    return 0.9 * bytes;
}

static tutti_status predict(planner *p, int i) {
    const tti_scheme *l = &p->layouts.of[i];
    if (p->is_mixed)
        return tti_mixture_predict(p->blueprints[i], l, &p->mixture, &p->predictions[i]);
    return tti_predict(p->blueprints[i], l, &p->calibration, &p->predictions[i]);
}

static tutti_status predict_all(planner *p, int n_workers) {
    TTI_TRY(tti_schemes_find(p->job, n_workers, p->on_device, uses_stored_figures(p), &p->layouts));
    TTI_TRY(make_blueprints(p));
    TTI_TRY(calibrate(p, n_workers));
    for (int i = 0; i < p->layouts.n; i++) TTI_TRY(predict(p, i));
    p->memory_bytes = p->desc->memory_bytes > 0  ? p->desc->memory_bytes
                      : p->calibration.is_device ? 141e9
                                                 : memory_here();
    sort(p);
    return TUTTI_OK;
}

/* ---- printing ---- */

/* Prints the main reason why a layout is slower than the best one. */
static void print_reason(const planner *p, const tti_prediction *x, tti_str *out) {
    const tti_prediction *best = &p->predictions[0];
    const struct {
        const char *what;
        double s;
    } parts[] = {{"computing", x->compute_s - best->compute_s},
                 {"stages that wait", x->bubble_s - best->bubble_s},
                 {"sums and messages inside shards", x->model_parallel_s - best->model_parallel_s},
                 {"adding its own shards", x->add_s - best->add_s},
                 {"sums between workers", x->reduce_s - best->reduce_s},
                 {"the update", x->update_s - best->update_s},
                 {"loading", x->load_s - best->load_s}};
    size_t worst = 0;
    if (!fits(p, x)) {
        tti_str_printf(out, "does not fit: needs %.3g GB", bytes_wanted(p, x) / 1e9);
        return;
    }
    if (x == best) {
        tti_str_add(out, "the best");
        if (x->layout.pipeline > 1) tti_str_printf(out, "; bubble %.1f %%", 100 * x->bubble);
        return;
    }
    for (size_t i = 1; i < TTI_COUNT(parts); i++)
        if (parts[i].s > parts[worst].s) worst = i;
    if (parts[worst].s <= 0)
        tti_str_add(out, "as fast");
    else
        tti_str_printf(out, "%s: %+.3g ms", parts[worst].what, parts[worst].s * 1e3);
    if (x->layout.pipeline > 1) tti_str_printf(out, "; bubble %.1f %%", 100 * x->bubble);
}

/* Length of the longest name among the first n layouts. */
static int name_width(const planner *p, int n) {
    size_t width = 0;
    for (int i = 0; i < n; i++) {
        tti_str name = {0};
        tti_scheme_text(&p->predictions[i].layout, &name);
        width = TTI_MAX(width, strlen(tti_str_text(&name)));
        tti_str_free(&name);
    }
    return (int)width;
}

static void print_row(const planner *p, const tti_prediction *x, int width, tti_str *out) {
    tti_str name = {0};
    tti_scheme_text(&x->layout, &name);
    double batch = (double)p->blueprints[0]->config.train.batch;
    tti_str_printf(out, "%-*s %9.3f %11.0f %8.1f %8.1f %8.1f  ", width, tti_str_text(&name),
                   x->step_s * 1e3, batch / x->step_s, x->worker_bytes / 1048576.0,
                   x->host_bytes / 1048576.0, x->sent_bytes / 1048576.0);
    print_reason(p, x, out);
    tti_str_add(out, x->is_measured ? "\n" : "  (by its costs)\n");
    tti_str_free(&name);
}

/* The prediction assumes equal workers, so it ignores load weights. */
static bool ignores_load_weights(const planner *p) {
    tti_load_weights_kind kind = tti_load_weights_kind_of(tti_job_config_of(p->job));
    return !p->is_mixed && (kind == TTI_LOAD_WEIGHTS_MEASURED || kind == TTI_LOAD_WEIGHTS_GIVEN);
}

static void print_table(const planner *p, tti_str *out) {
    int n_rows = TTI_MIN(p->desc->max_rows > 0 ? p->desc->max_rows : MAX_ROWS, p->layouts.n);
    int width = name_width(p, n_rows);
    tti_str_printf(out,
                   "%d layouts of %d workers; %.1f s of calibration; %.2f GB available\n%-*s %9s "
                   "%11s %8s %8s %8s  %s\n",
                   p->layouts.n, p->calibration.n_ranks, p->spent_s, p->memory_bytes / 1e9, width,
                   "layout", "step, ms", "samples/s", "worker", "host", "sent", "against the best");
    for (int i = 0; i < n_rows; i++) print_row(p, &p->predictions[i], width, out);
    tti_str_add(out,
                "worker, host, sent: MiB of one worker's arrays, of the process with all "
                "workers as threads, and sent by a worker each step\n");
    if (ignores_load_weights(p))
        tti_str_printf(out,
                       "parallel.load_weights=%s is ignored: all workers are assumed to have the "
                       "same speed and equal shards\n",
                       tti_job_config_of(p->job)->parallel.load_weights);
    if (p->layouts.refused.n_bytes)
        tti_str_printf(out, "not possible:\n%s", tti_str_text(&p->layouts.refused));
}

static void put_row(tti_json *j, const planner *p, const tti_prediction *x) {
    tti_str name = {0};
    tti_scheme_text(&x->layout, &name);
    tti_json_object(j, NULL);
    tti_json_text(j, "layout", tti_str_text(&name));
    tti_json_int(j, "data", x->layout.data);
    tti_json_int(j, "tensor", x->layout.tensor);
    tti_json_int(j, "pipeline", x->layout.pipeline);
    tti_json_int(j, "pipeline_chunks", x->layout.chunks);
    tti_json_int(j, "zero", x->layout.zero);
    tti_json_int(j, "shards", x->layout.shards);
    tti_json_text(j, "recompute", x->layout.recompute);
    tti_json_double(j, "step_s", x->step_s);
    tti_json_double(j, "compute_s", x->compute_s);
    tti_json_double(j, "bubble_s", x->bubble_s);
    tti_json_double(j, "bubble", x->bubble);
    tti_json_double(j, "model_parallel_s", x->model_parallel_s);
    tti_json_double(j, "add_s", x->add_s);
    tti_json_double(j, "reduce_s", x->reduce_s);
    tti_json_double(j, "update_s", x->update_s);
    tti_json_double(j, "load_s", x->load_s);
    tti_json_double(j, "worker_bytes", x->worker_bytes);
    tti_json_double(j, "first_bytes", x->first_bytes);
    tti_json_double(j, "host_bytes", x->host_bytes);
    tti_json_double(j, "sent_bytes", x->sent_bytes);
    tti_json_bool(j, "fits", fits(p, x));
    tti_json_bool(j, "measured", x->is_measured);
    tti_json_end(j);
    tti_str_free(&name);
}

static void print_json(const planner *p, tti_str *out) {
    tti_json j = tti_json_begin(out, 0);
    tti_json_object(&j, NULL);
    tti_json_int(&j, "workers", p->calibration.n_ranks);
    tti_json_double(&j, "calibration_s", p->spent_s);
    tti_json_double(&j, "memory_bytes", p->memory_bytes);
    if (ignores_load_weights(p)) tti_json_text(&j, "left_out", "parallel.load_weights");
    tti_json_array(&j, "layouts");
    for (int i = 0; i < p->layouts.n; i++) put_row(&j, p, &p->predictions[i]);
    tti_json_end(&j);
    tti_json_end(&j);
    tti_str_add(out, "\n");
}

static double least_wanted(const planner *p) {
    double least = INFINITY;
    for (int i = 0; i < p->layouts.n; i++) least = fmin(least, bytes_wanted(p, &p->predictions[i]));
    return least;
}

/* Writes the job as it was given, with the keys of the best layout. */
static tutti_status write_best(planner *p, char **best) {
    *best = NULL;
    if (p->n_fit == 0)
        return tti_fail(TUTTI_E_CONFIG,
                        "plan: none of %d layouts fits in %.3g GB; the smallest needs %.3g",
                        p->layouts.n, p->memory_bytes / 1e9, least_wanted(p) / 1e9);
    tutti_job *job;
    TTI_TRY(tti_scheme_job(p->job, &p->predictions[0].layout, uses_stored_figures(p), &job));
    *best = tutti_job_print(job, false);
    tutti_job_destroy(job);
    return *best ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
}

static void destroy(planner *p) {
    for (int i = p->layouts.n - 1; i >= 0 && p->blueprints && p->is_shared; i--)
        if (!p->is_shared[i]) tti_blueprint_destroy(p->blueprints[i]);
    tti_plan_cache_destroy(p->cache);
    free(p->blueprints);
    free(p->is_shared);
    free(p->predictions);
    tti_schemes_fini(&p->layouts);
}

/* Finds the devices of this machine. With stored figures none are needed. */
static tutti_status find_devices(const planner *p, tti_devices *devices) {
    tutti_status st = tti_devices_find(tti_job_config_of(p->job), devices);
    if (st != TUTTI_E_CONFIG || !uses_stored_figures(p)) return st;
    tti_clear_error();
    return TUTTI_OK;
}

/* Sets *n to the default number of workers: the listed or found devices, or the usable cores. */
static tutti_status count_default_workers(const planner *p, const tti_devices *here, int *n) {
    int listed = tti_devices_listed(tti_job_config_of(p->job)->parallel.devices);
    *n = uses_stored_figures(p) && listed > 0 ? listed : here->n > 0 ? here->n : tti_cores_usable();
    if (!uses_stored_figures(p) || listed > 0 || here->n > 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_CONFIG,
                    "plan: --device %s needs the number of GPUs, and this machine has none; give "
                    "-n, or a list such as parallel.devices=0,1",
                    p->desc->device);
}

/* The number of workers in the job, or the one that it would choose. */
static tutti_status count_workers(planner *p, int *n) {
    tti_devices devices;
    p->is_mixed = tti_devices_mixed_from(tti_job_config_of(p->job)->parallel.devices) > 0;
    if (p->is_mixed) TTI_TRY(tti_mixture_check_device(tti_job_config_of(p->job), p->desc->device));
    TTI_TRY(find_devices(p, &devices));
    p->on_device = (uses_stored_figures(p) || devices.n > 0) && !p->is_mixed;
    *n = p->desc->n_workers > 0 ? p->desc->n_workers
                                : (int)tti_job_given_workers(tti_job_config_of(p->job));
    if (*n <= 0) TTI_TRY(count_default_workers(p, &devices, n));
    if (*n > TTI_MAX_WORKERS)
        return tti_fail(TUTTI_E_CONFIG, "plan: of 1 to %d workers, got %d", TTI_MAX_WORKERS, *n);
    return TUTTI_OK;
}

static tutti_status plan_layouts(planner *p, char **text, char **best) {
    tti_str out = {0};
    int n_workers;
    TTI_TRY(tutti_job_check(p->job));
    TTI_TRY(tti_init_config_apply(p->job));
    if (!is_measured(p)) TTI_TRY(tti_scheme_move_machine(p->job, uses_stored_figures(p)));
    TTI_TRY(count_workers(p, &n_workers));
    TTI_TRY(predict_all(p, n_workers));
    if (p->desc->json)
        print_json(p, &out);
    else
        print_table(p, &out);
    tutti_status st = out.failed ? tti_fail(TUTTI_E_NOMEM, "plan: out of memory") : TUTTI_OK;
    if (st == TUTTI_OK && best) st = write_best(p, best);
    if (st == TUTTI_OK)
        *text = out.text;
    else
        tti_str_free(&out);
    return st;
}

tutti_status tutti_plan_job(tutti_job *job, const tutti_plan_desc *desc, char **text, char **best) {
    static const tutti_plan_desc defaults;
    planner p = {.job = job, .desc = desc ? desc : &defaults};
    tti_options_kept kept;
    *text = NULL;
    if (best) *best = NULL;
    TTI_TRY(tti_options_keep(tti_job_options(job), &kept));
    tutti_status st = plan_layouts(&p, text, best);
    destroy(&p);
    tti_options_restore(tti_job_options(job), &kept);
    return tti_job_say_where(job, st);
}
