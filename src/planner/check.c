/* check.c - tutti_plan_check: what a run took, beside what its job is predicted to take here. */
#include "tutti/planner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/mixture.h"
#include "planner/scratch.h"
#include "train/devices.h"
#include "train/history.h"

static const double BUDGET_S = 8;

typedef struct checked {
    tti_history history;
    tti_blueprint *b;
    tti_prediction predicted;
} checked;

/* The run's own job: resolved, so that its layout is what it says. */
static tutti_status open_run(const char *run_dir, checked *c) {
    char path[4096];
    tti_devices devices;
    tutti_job *job;
    snprintf(path, sizeof path, "%s/job.yaml", run_dir);
    TTI_TRY(tutti_job_create(&job));
    tutti_status st = tutti_job_load(job, path);
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
    TTI_TRY(tti_mixture_wave(c->b, &m, budget, &spent));
    return tti_mixture_predict(c->b, layout, &m, &c->predicted);
}

static tutti_status predict(checked *c, const tutti_plan_desc *desc) {
    tti_calibration calibration;
    tti_scheme layout = tti_scheme_of(&c->b->config);
    double spent, budget = desc->budget_s > 0 ? desc->budget_s : BUDGET_S;
    if (c->b->devices.mixed) return predict_mixture(c, &layout, desc->device, budget);
    if (!tti_is_measured(desc->device)) {
        TTI_TRY(tti_calibration_of(desc->device, c->b->n_workers, &calibration));
    } else {
        TTI_TRY(tti_calibrate_machine(c->b, c->b->n_workers, budget, tti_process_bytes(NULL),
                                      &calibration));
        TTI_TRY(tti_calibrate_wave(c->b, &calibration, budget, &spent));
        TTI_TRY(tti_scratch_ask(c->b, &calibration, budget, &spent));
    }
    return tti_predict(c->b, &layout, &calibration, &c->predicted);
}

static void print_memory(const char *what, double predicted, double measured, tti_str *out) {
    const double mib = 1048576;
    tti_str_printf(out, "%-22s %12.1f %12.1f %+7.1f%%\n", what, predicted / mib, measured / mib,
                   100 * (predicted / measured - 1));
}

static void print(const checked *c, tti_str *out) {
    const tti_prediction *p = &c->predicted;
    const tti_history *h = &c->history;
    double batch = (double)c->b->config.train.batch, step_s = batch / h->samples_per_s;
    bool threads = strcmp(c->b->config.parallel.place, "threads") == 0 && !c->b->devices.n;
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
                   p->load_s * 1e3, p->bubble_s * 1e3, p->exchange_s * 1e3);
    if (threads && h->peak_rss > 0)
        print_memory("peak memory, MiB", p->host_bytes, h->peak_rss, out);
    if (h->peak_device > 0)
        print_memory("of worker 0's GPU, MiB", p->first_bytes, h->peak_device, out);
    tti_str_free(&name);
}

static tutti_status run(const char *run_dir, const tutti_plan_desc *desc, checked *c,
                        tti_str *out) {
    if (!c->history.ended || c->history.samples_per_s <= 0)
        return tti_fail(TUTTI_E_CONFIG, "plan: %s has not come to its end", run_dir);
    TTI_TRY(open_run(run_dir, c));
    TTI_TRY(predict(c, desc));
    print(c, out);
    return out->failed ? tti_fail(TUTTI_E_NOMEM, "plan: out of memory") : TUTTI_OK;
}

tutti_status tutti_plan_check(const char *run_dir, const tutti_plan_desc *desc, char **text) {
    static const tutti_plan_desc defaults;
    checked c = {0};
    tti_str out = {0};
    *text = NULL;
    TTI_TRY(tti_history_read(run_dir, &c.history));
    tutti_status st = run(run_dir, desc ? desc : &defaults, &c, &out);
    tti_blueprint_destroy(c.b);
    tti_history_free(&c.history);
    if (st == TUTTI_OK)
        *text = out.text;
    else
        tti_str_free(&out);
    return st;
}
