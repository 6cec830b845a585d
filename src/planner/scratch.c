/* scratch.c - queries the scratch memory of a program, which is that of its largest kernel.
 *
 * Scratch memory is not proportional to costs: with half of the channels a kernel may need more,
 * with half of the rows just as much. So each kernel is prepared and queried; a run reuses the
 * prepared kernels. */
#include "planner/scratch.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "exec/program/exec_program.h"
#include "train/setup/worker_exec.h"

/* Adds constants and results on a host, where each is a separate array. On devices
 * tti_device_extra_bytes counts these. */
static double with_results(const tti_exec_desc *desc, const tti_program *program, double scratch) {
    if (desc->backend->device) return scratch;
    return tti_page_bytes(scratch, 1) + tti_page_bytes((double)program->const_bytes, 1) +
           tti_page_bytes((double)program->result_bytes, 1);
}

static tutti_status query_program(const tti_blueprint *b, const tti_program *program,
                                  double *bytes) {
    tti_prepared *prepared;
    tti_exec_desc desc = tti_worker_exec_desc(b);
    if (!program->graph) return TUTTI_OK;
    TTI_TRY(tti_prepared_create(program, desc.backend, desc.reference, &prepared));
    *bytes += with_results(&desc, program, (double)tti_prepared_scratch(prepared));
    tti_prepared_destroy(prepared);
    return TUTTI_OK;
}

tutti_status tti_scratch_query(const tti_blueprint *b, const tti_plan *plan, double *bytes) {
    double wanted = 0;
    TTI_TRY(query_program(b, &plan->shard, &wanted));
    TTI_TRY(query_program(b, &plan->eval, &wanted));
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
    tti_calibrated_micro_group(c, b->rows_per_shard, b->config.train.recompute,
                               tti_program_cost_s(c, &b->plan->shard), &is_measured);
    return is_measured && b->n_model_ranks == 0;
}

static tutti_status query_plan(const tti_blueprint *b, const tti_plan *plan, tti_calibration *c) {
    double bytes;
    if (find(c, plan) || c->n_scratch == TTI_MAX_SCRATCH) return TUTTI_OK;
    TTI_TRY(tti_scratch_query(b, plan, &bytes));
    c->scratch[c->n_scratch++] = (tti_scratch){plan, bytes};
    return TUTTI_OK;
}

static tutti_status query_on_device(const tti_blueprint *b, tti_calibration *c) {
    const tti_device_ops *ops = b->devices.backend->device;
    tti_device_desc desc = tti_worker_device_desc(b, tti_devices_first(&b->devices));
    tutti_status st = TUTTI_OK;
    TTI_TRY(ops->open(&desc));
    for (int i = 0; st == TUTTI_OK && i < tti_mesh_n_model(&b->mesh); i++)
        st = query_plan(b, tti_blueprint_plan(b, i), c);
    ops->close();
    return st;
}

/* Queries the first tensor rank of each stage, and the undivided model, whose shards were measured.
 */
static tutti_status query_on_host(const tti_blueprint *b, tti_calibration *c) {
    TTI_TRY(query_plan(b, b->plan, c));
    for (int i = 0; i < b->mesh.stage; i++)
        TTI_TRY(query_plan(b, tti_blueprint_plan(b, i * b->mesh.tensor), c));
    return TUTTI_OK;
}

tutti_status tti_scratch_query_all(const tti_blueprint *b, tti_calibration *c, double left_s,
                                   double *spent_s) {
    bool on_device = b->devices.backend->device != NULL;
    *spent_s = 0;
    if (left_s <= 0 || has_run(b, c) || (!on_device && b->n_model_ranks == 0)) return TUTTI_OK;
    int64_t start = tti_now_ns();
    tutti_status st = on_device ? query_on_device(b, c) : query_on_host(b, c);
    *spent_s = (double)(tti_now_ns() - start) * 1e-9;
    /* Without an answer the estimate from the micro-batch group is used. */
    if (st == TUTTI_E_NOMEM || st == TUTTI_E_UNSUPPORTED) {
        tti_clear_error();
        return TUTTI_OK;
    }
    return st;
}

/* ---- stored figures ---- */

/* Multiprocessors of an H200; channels to which an image is padded in scratch memory; columns of
 * the output layer per pair of numbers that a row stores. */
enum { N_MULTIPROCESSORS = 132, CHANNELS = 8, HEAD_COLUMNS = 192 };

/* Elements of the attention gradient: tutti's own kernel needs none and is used if the heads fill
 * at least three quarters of the multiprocessors. The other kernel stores a [T,T] matrix for each
 * head. */
static double squares_of(const tti_node *node) {
    const int64_t *dim = node->in[0]->type.shape.dim; /* [N,T,(heads + 2 kv) D] */
    double n = (double)dim[0] * (double)tti_attr_int(node, "heads");
    double rounds = ceil(n / N_MULTIPROCESSORS);
    if (4 * n >= 3 * rounds * N_MULTIPROCESSORS) return 0;
    return 2 * n * (double)dim[1] * (double)dim[1];
}

static double images_of(const tti_node *node) {
    const tutti_shape *x = &node->in[0]->type.shape; /* [N,C,H,W] */
    double bytes = (double)tutti_shape_n_elems(x) / (double)x->dim[1] * CHANNELS;
    return bytes * (double)tutti_dtype_bytes(node->in[0]->type.dtype);
}

/* A row of the output layer stores two numbers per part and four for the whole row. */
static double rows_of_head(const tti_node *node) {
    double n_rows = (double)node->in[0]->type.shape.dim[0];
    double n_parts = ceil((double)node->in[1]->type.shape.dim[0] / HEAD_COLUMNS);
    return (4 + 2 * n_parts) * n_rows * (double)sizeof(float);
}

static double estimate_scratch(const tti_calibration *c, const tti_program *program) {
    double most = 0;
    for (int s = 0; program->graph && s < program->n_steps; s++) {
        const tti_node *node = program->steps[s];
        const char *op = node->op->name;
        if (strncmp(op, "attention_grad", 14) == 0) most = fmax(most, squares_of(node));
        if (strcmp(op, "cross_entropy_head") == 0) most = fmax(most, rows_of_head(node));
        if (tti_is_padded(c, node)) most = fmax(most, images_of(node));
    }
    return most;
}

double tti_scratch_difference(const tti_calibration *c, const tti_blueprint *b, int stage,
                              int n_in_flight, int n_compute_threads) {
    const tti_scratch *whole = find(c, b->plan);
    const tti_scratch *part = find(c, tti_blueprint_plan(b, stage * b->mesh.tensor));
    if (c->is_device || b->n_model_ranks == 0 || !whole || !part) return 0;
    return part->bytes * n_in_flight - whole->bytes * n_compute_threads;
}

double tti_scratch_bytes(const tti_calibration *c, const tti_plan *plan,
                         const tti_group_cost *micro_group, double cost_s) {
    const tti_scratch *known = find(c, plan);
    if (!c->is_device) return 0;
    if (known)
        return known->bytes + fmax(micro_group->hidden_bytes - micro_group->scratch_bytes, 0);
    if (c->stored_scratch > 0)
        return fmax(c->stored_scratch, estimate_scratch(c, &plan->shard)) +
               estimate_scratch(c, &plan->eval);
    return micro_group->hidden_bytes * cost_s / micro_group->cost_s;
}
