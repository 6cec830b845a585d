/* check.c - tutti_plan_check: compares a finished run with the prediction for its job on this
 * machine. */
#include "tutti/planner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "planner/mixture.h"
#include "planner/scratch.h"
#include "train/job/devices.h"
#include "train/report/history.h"

static const double BUDGET_S = 8;

typedef struct checked {
    tti_history history;
    const tti_blueprint *b;
    tti_prediction predicted;
} checked;

/* Opens the run's own job: it is resolved, so its layout is explicit. */
static tutti_status open_run(const char *run_dir, bool allow_plugin, checked *c) {
    tti_devices devices;
    tutti_job *job;
    TTI_TRY(tutti_job_create(&job));
    if (allow_plugin) tutti_job_allow_plugin(job);
    tutti_status st = tutti_job_load_run(job, run_dir);
    if (st == TUTTI_OK) st = tutti_job_check(job);
    if (st == TUTTI_OK) st = tti_devices_resolve(job, &devices);
    if (st == TUTTI_OK) st = tti_job_resolve(job, 1);
    if (st == TUTTI_OK) st = tti_blueprint_create(job, &c->b);
    tutti_job_destroy(job);
    return st;
}

static tutti_status predict_mixture(checked *c, const tti_scheme *layout, const char *device,
                                    double budget) {
    tti_mixture m;
    double spent;
    TTI_TRY(tti_mixture_check_device(&c->b->config, device));
    TTI_TRY(tti_mixture_calibrate(c->b, budget, tti_process_bytes(NULL), &m));
    TTI_TRY(tti_mixture_micro_group(c->b, &m, budget, &spent));
    return tti_mixture_predict(c->b, layout, &m, &c->predicted);
}

/* Uses the stored figures of a machine of the run's kind. */
static tutti_status calibrate_from_figures(const checked *c, const char *device,
                                           tti_calibration *out) {
    bool on_devices = c->b->devices.n > 0;
    TTI_TRY(tti_calibration_of(device, c->b->n_workers, out));
    tti_calibration_for(&c->b->config, out);
    if (out->is_device != on_devices)
        return tti_fail(
            TUTTI_E_CONFIG,
            "plan: the run was on %s, for which --device %.20s has no figures; leave it out",
            on_devices ? "GPUs" : "the host", device);
    if (!out->is_device) out->base_bytes = tti_process_bytes(NULL);
    return TUTTI_OK;
}

static tutti_status predict(checked *c, const tutti_plan_desc *desc) {
    tti_calibration calibration;
    tti_scheme layout = tti_scheme_of(&c->b->config);
    double spent, budget = desc->budget_s > 0 ? desc->budget_s : BUDGET_S;
    if (c->b->devices.mixed) return predict_mixture(c, &layout, desc->device, budget);
    if (!tti_is_measured(desc->device)) {
        TTI_TRY(calibrate_from_figures(c, desc->device, &calibration));
    } else {
        TTI_TRY(tti_calibrate_machine(c->b, c->b->n_workers, budget, tti_process_bytes(NULL),
                                      &calibration));
        TTI_TRY(tti_calibrate_micro_group(c->b, &calibration, budget, &spent));
        TTI_TRY(tti_scratch_query_all(c->b, &calibration, budget, &spent));
    }
    return tti_predict(c->b, &layout, &calibration, &c->predicted);
}

/* True if the record has the memory of all workers: the system reports memory per process, so
 * workers must be threads of one process. */
static bool has_host_peak(const checked *c) {
    return strcmp(c->b->config.parallel.place, "threads") == 0 && !c->b->devices.n &&
           c->history.peak_rss > 0;
}

static double measured_step_s(const checked *c) {
    return (double)c->b->config.train.batch / c->history.samples_per_s;
}

static void put_pair(tti_json *j, const char *name, double predicted, double measured) {
    tti_json_object(j, name);
    tti_json_double(j, "predicted", predicted);
    tti_json_double(j, "measured", measured);
    tti_json_end(j);
}

static void print_json(const checked *c, tti_str *out) {
    const tti_prediction *p = &c->predicted;
    tti_json j = tti_json_begin(out, 0);
    tti_str name = {0};
    tti_scheme_text(&p->layout, &name);
    tti_json_object(&j, NULL);
    tti_json_text(&j, "layout", tti_str_text(&name));
    put_pair(&j, "step_s", p->step_s, measured_step_s(c));
    if (has_host_peak(c)) put_pair(&j, "host_bytes", p->host_bytes, c->history.peak_rss);
    if (c->history.peak_device > 0)
        put_pair(&j, "first_bytes", p->first_bytes, c->history.peak_device);
    tti_json_end(&j);
    tti_str_add(out, "\n");
    tti_str_free(&name);
}

static void print_memory(const char *what, double predicted, double measured, tti_str *out) {
    const double mib = 1048576;
    tti_str_printf(out, "%-22s %12.1f %12.1f %+7.1f%%\n", what, predicted / mib, measured / mib,
                   100 * (predicted / measured - 1));
}

static void print(const checked *c, tti_str *out) {
    const tti_prediction *p = &c->predicted;
    const tti_history *h = &c->history;
    double step_s = measured_step_s(c);
    tti_str name = {0};
    tti_scheme_text(&p->layout, &name);
    tti_str_printf(out, "%s\n%-22s %12s %12s %8s\n", tti_str_text(&name), "", "predicted",
                   "measured", "error");
    tti_str_printf(out, "%-22s %12.3f %12.3f %+7.1f%%\n", "step, ms", p->step_s * 1e3, step_s * 1e3,
                   100 * (p->step_s / step_s - 1));
    tti_str_printf(out,
                   "  computing            %12.3f\n  adding own shards    %12.3f\n"
                   "  sums between workers %12.3f\n  the update           %12.3f\n"
                   "  loading              %12.3f\n  stages that wait     %12.3f\n"
                   "  inside shards        %12.3f\n",
                   p->compute_s * 1e3, p->add_s * 1e3, p->reduce_s * 1e3, p->update_s * 1e3,
                   p->load_s * 1e3, p->bubble_s * 1e3, p->model_parallel_s * 1e3);
    if (has_host_peak(c)) print_memory("peak memory, MiB", p->host_bytes, h->peak_rss, out);
    if (h->peak_device > 0)
        print_memory("of worker 0's GPU, MiB", p->first_bytes, h->peak_device, out);
    tti_str_free(&name);
}

/* Clamps a number of workers from a record, which may contain any number. */
static int n_of(double recorded) { return (int)TTI_MIN(TTI_MAX(recorded, 1), TTI_MAX_WORKERS); }

/* Rejects a run that was continued in another layout, because its job no longer describes it. */
static tutti_status check_layout(const char *run_dir, const checked *c) {
    const tti_history *h = &c->history;
    const tti_scheme of_job = tti_scheme_of(&c->b->config);
    tti_scheme of_run = of_job;
    tti_str text = {0};
    of_run.tensor = n_of(h->tensor), of_run.pipeline = n_of(h->pipeline);
    of_run.data = n_of(h->workers / ((double)of_run.tensor * of_run.pipeline));
    of_run.zero = h->zero >= 1 ? n_of(h->zero) : 0;
    if (of_run.data == of_job.data && of_run.tensor == of_job.tensor &&
        of_run.pipeline == of_job.pipeline && of_run.zero == of_job.zero)
        return TUTTI_OK;
    tti_scheme_text(&of_run, &text);
    tti_str_add(&text, ", and its job.yaml says ");
    tti_scheme_text(&of_job, &text);
    tutti_status st =
        tti_fail(TUTTI_E_CONFIG,
                 "plan: %s was last resumed as %s; the prediction is for the layout of its job",
                 run_dir, tti_str_text(&text));
    tti_str_free(&text);
    return st;
}

static tutti_status check_run(const char *run_dir, const tutti_plan_desc *desc, checked *c,
                              tti_str *out) {
    if (!c->history.ended) return tti_fail(TUTTI_E_CONFIG, "plan: %s is not finished", run_dir);
    if (c->history.samples_per_s <= 0)
        return tti_fail(TUTTI_E_CONFIG, "plan: %s did no step after it was last continued",
                        run_dir);
    TTI_TRY(open_run(run_dir, desc->allow_plugin, c));
    TTI_TRY(check_layout(run_dir, c));
    TTI_TRY(predict(c, desc));
    if (desc->json)
        print_json(c, out);
    else
        print(c, out);
    return out->failed ? tti_fail(TUTTI_E_NOMEM, "plan: out of memory") : TUTTI_OK;
}

tutti_status tutti_plan_check(const char *run_dir, const tutti_plan_desc *desc, char **text) {
    static const tutti_plan_desc defaults;
    checked c = {0};
    tti_str out = {0};
    *text = NULL;
    TTI_TRY(tti_history_read(run_dir, &c.history));
    tutti_status st = check_run(run_dir, desc ? desc : &defaults, &c, &out);
    tti_blueprint_destroy(c.b);
    tti_history_free(&c.history);
    if (st == TUTTI_OK)
        *text = out.text;
    else
        tti_str_free(&out);
    return st;
}
