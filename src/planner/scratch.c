/* scratch.c - scratch of a program is that of its largest kernel, which costs say nothing of: half
 * of the channels may want more of it, and a shard of half the rows as much.  So the kernels are
 * asked, which prepares them; what they find out then is kept for the run. */
#include "planner/scratch.h"

#include <math.h>
#include <string.h>

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

/* ---- on paper ---- */

/* Of an H200; and channels that a picture has in scratch where it has fewer. */
enum { N_MULTIPROCESSORS = 132, CHANNELS = 8 };

/* The own kernel of attention's gradient is taken where heads fill the multiprocessors to three
 * quarters; the other one has a square for each head. */
static double squares_of(const tti_node *node) {
    const int64_t *dim = node->in[0]->type.shape.dim; /* [N,T,(heads + 2 kv) D] */
    double n = (double)dim[0] * (double)tti_attr_int(node, "heads");
    double rounds = ceil(n / N_MULTIPROCESSORS);
    if (4 * n >= 3 * rounds * N_MULTIPROCESSORS) return 0;
    return 2 * n * (double)dim[1] * (double)dim[1];
}

static double pictures_of(const tti_node *node) {
    const tutti_shape *x = &node->in[0]->type.shape; /* [N,C,H,W] */
    double bytes = (double)tutti_shape_n_elems(x) / (double)x->dim[1] * CHANNELS;
    return bytes * (double)tutti_dtype_bytes(node->in[0]->type.dtype);
}

static double on_paper(const tti_calibration *c, const tti_program *program) {
    double most = 0;
    for (int s = 0; program->graph && s < program->n_steps; s++) {
        const tti_node *node = program->steps[s];
        if (strcmp(node->op->name, "attention_grad") == 0) most = fmax(most, squares_of(node));
        if (tti_is_padded(c, node)) most = fmax(most, pictures_of(node));
    }
    return most;
}

double tti_scratch_bytes(const tti_calibration *c, const tti_plan *plan, const tti_wave *wave,
                         double cost_s) {
    const tti_scratch *known = find(c, plan);
    if (!c->is_device) return 0;
    if (known) return known->bytes + fmax(wave->hidden_bytes - wave->scratch_bytes, 0);
    if (c->paper_scratch > 0)
        return fmax(c->paper_scratch, on_paper(c, &plan->shard)) + on_paper(c, &plan->eval);
    return wave->hidden_bytes * cost_s / wave->cost_s;
}
