/* scratch.c - scratch of a program is that of its largest kernel, which costs say nothing of: half
 * of the channels may want more of it, and a shard of half the rows as much.  So the kernels are
 * asked, which prepares them; what they find out then is kept for the run. */
#include "planner/scratch.h"

#include <math.h>

#include "base/clock.h"
#include "exec/prepared.h"
#include "train/worker_exec.h"

static tutti_status want_of(const tti_blueprint *b, const tti_program *program, double *bytes) {
    tti_prepared *prepared;
    tti_exec_desc desc = tti_worker_exec_desc(b);
    if (!program->graph) return TUTTI_OK;
    TTI_TRY(tti_prepared_create(program, desc.backend, desc.reference, &prepared));
    *bytes += (double)tti_prepared_scratch(prepared);
    tti_prepared_destroy(prepared);
    return TUTTI_OK;
}

tutti_status tti_scratch_want(const tti_blueprint *b, const tti_plan *plan, double *bytes) {
    double wanted = 0;
    TTI_TRY(want_of(b, &plan->shard, &wanted));
    TTI_TRY(want_of(b, &plan->eval, &wanted));
    *bytes = wanted;
    return TUTTI_OK;
}

static const tti_scratch *find(const tti_calibration *c, const tti_plan *plan) {
    for (int i = 0; i < c->n_scratch; i++)
        if (c->scratch[i].plan == plan) return &c->scratch[i];
    return NULL;
}

static bool has_run(const tti_blueprint *b, const tti_calibration *c) {
    bool is_measured;
    tti_calibrated_wave(c, b->rows_per_shard, b->config.train.recompute,
                        tti_program_cost_s(c, &b->plan->shard), &is_measured);
    return is_measured && b->n_parts == 0;
}

static tutti_status ask_all(const tti_blueprint *b, tti_calibration *c) {
    for (int i = 0; i < tti_mesh_n_model(&b->mesh); i++) {
        const tti_plan *plan = tti_blueprint_plan(b, i);
        double bytes;
        if (find(c, plan) || c->n_scratch == TTI_MAX_SCRATCH) continue;
        TTI_TRY(tti_scratch_want(b, plan, &bytes));
        c->scratch[c->n_scratch++] = (tti_scratch){plan, bytes};
    }
    return TUTTI_OK;
}

tutti_status tti_scratch_ask(const tti_blueprint *b, tti_calibration *c, double left_s,
                             double *spent_s) {
    const tti_device_ops *ops = b->devices.backend->device;
    *spent_s = 0;
    if (!ops || left_s <= 0 || has_run(b, c)) return TUTTI_OK;
    int64_t start = tti_now_ns();
    tti_device_desc desc = tti_worker_device_desc(b, tti_devices_first(&b->devices));
    TTI_TRY(ops->open(&desc));
    tutti_status st = ask_all(b, c);
    ops->close();
    *spent_s = (double)(tti_now_ns() - start) * 1e-9;
    if (st == TUTTI_E_NOMEM || st == TUTTI_E_UNSUPPORTED) { /* the wave says what it can */
        tti_clear_error();
        return TUTTI_OK;
    }
    return st;
}

double tti_scratch_bytes(const tti_calibration *c, const tti_plan *plan, const tti_wave *wave,
                         double cost_s) {
    const tti_scratch *known = find(c, plan);
    if (!c->is_device) return 0;
    if (known) return known->bytes + fmax(wave->hidden_bytes - wave->scratch_bytes, 0);
    return c->paper_scratch + wave->hidden_bytes * cost_s / wave->cost_s;
}
