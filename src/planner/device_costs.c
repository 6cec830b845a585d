/* device_costs.c - simulates two queues of a device.
 *
 * Measured on two and four H200s: overlapping an all-reduce slows a step by about as much as the
 * all-reduce takes alone, because its blocks occupy multiprocessors that products need, and by
 * about 40 us per call. So overlapped bytes are not free. Their cost is proportional to the
 * device's memory bandwidth, because a slow link keeps fewer blocks busy. Data that products or
 * copy engines send occupies no multiprocessors. */
#include "planner/device_costs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/loader/resident.h"
#include "exec/program/exec_program.h"
#include "exec/worker/worker.h"

/* Slowdown of kernels per overlapped byte, in bytes of device memory traffic. */
static const double SLOWDOWN_PER_BYTE = 12;
/* Slowdown of kernels per overlapped all-reduce, independent of its size. */
static const double SLOWDOWN_PER_CALL_S = 40e-6;
/* Slowdown of kernels by an overlapped tensor-parallel collective, as a fraction of its time. Its
 * blocks occupy 32 of 132 multiprocessors, and products that use all of these lose more. */
static const double TP_SLOWDOWN = 0.4;
/* Sets of inputs on a device, and the most bytes of samples that stay on a device by default. */
enum { N_SETS = 2 };
static const double MAX_RESIDENT_BYTES = (double)((size_t)2 << 30);

static double slowdown_s(const tti_calibration *c, double sent) {
    return sent * SLOWDOWN_PER_BYTE / c->bytes;
}

/* ---- collectives of a tensor axis ---- */

/* The role of a program step in a norm that is fused with the collectives around it. */
typedef enum norm_role {
    NO_ROLE,
    SENDS_TERMS,
    RECEIVES_TERMS,
    SENDS_ROWS,
    RECEIVES_ROWS
} norm_role;

/* Finds the same roles as exec/device/comm/device_tp.c, except that it ignores where activations
 * are stored. */
static void find_roles(const tti_device_ops *ops, const tti_program *program, int n,
                       norm_role *roles) {
    tti_collective_norm joint;
    bool can =
        ops && ops->fusions.can_push && ops->fusions.gather_rows && tti_device_joins_norms(ops, n);
    for (int s = 0; can && s < program->n_steps; s++) {
        bool is_norm = tti_collective_norm_at(program, s, &joint);
        if (!is_norm && !tti_rows_gather_at(program, s, &joint)) continue;
        bool both = joint.scatter && joint.gather;
        if (!both && !ops->fusions.open_rows) continue;
        int product = is_norm ? tti_collective_norm_product(program, s) : -1;
        int next = s + joint.n_steps;
        size_t n_rows = (size_t)joint.n_rows;
        bool pushes = product >= 0 && ops->fusions.can_push(program->steps[product], n_rows, n);
        if (pushes) roles[product] = SENDS_TERMS, roles[s] = RECEIVES_TERMS;
        if (!joint.gather || (is_norm && !pushes)) continue;
        roles[next - 1] = SENDS_ROWS;
        if (next == program->n_steps) continue;
        const tti_node *reader = program->steps[next];
        bool pulls = ops->fusions.can_pull && reader->in[0] == joint.gather->out[0] &&
                     ops->fusions.can_pull(reader, n_rows, n);
        if (pulls) roles[next] = RECEIVES_ROWS;
    }
}

/* Two queues: the time that each has reached (compute, tp), the time of kernels alone, and the time
 * of all collectives. */
typedef struct queues {
    double compute, tp, alone, all;
    double by_blocks; /* part of all: collectives that occupy multiprocessors */
    double product;   /* start of the last product that sends its terms */
} queues;

static void add_collective(queues *q, const tti_calibration *c, double sent, norm_role role) {
    bool uses_copy_engine = role == RECEIVES_TERMS || role == SENDS_ROWS;
    double took =
        uses_copy_engine ? sent / c->message.bytes_s : c->tp.latency_s + sent / c->tp.bytes_s;
    q->tp = fmax(q->tp, role == RECEIVES_TERMS ? q->product : q->compute) + took;
    q->all += took;
    if (!uses_copy_engine) q->by_blocks += took;
}

/* A product that receives rows starts with its own rows and ends with those of the last of n
 * ranks. */
static void add_kernel(queues *q, double took, norm_role role, int n) {
    if (role == SENDS_TERMS) q->product = q->compute;
    q->compute += took, q->alone += took;
    if (role == RECEIVES_ROWS) q->compute = fmax(q->compute, q->tp + took / n);
}

tutti_status tti_overlapped_collectives(const tti_calibration *c, const tti_device_ops *ops,
                                        const tti_program *program, int n, double s_per_cost,
                                        tti_overlap *out) {
    queues q = {0};
    bool *waits = calloc((size_t)program->n_steps + 1, sizeof *waits);
    norm_role *roles = calloc((size_t)program->n_steps + 1, sizeof *roles);
    *out = (tti_overlap){0};
    if (!waits || !roles) {
        free(waits);
        free(roles);
        return tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    }
    tti_tp_waits(program, NULL, waits);
    find_roles(ops, program, n, roles);
    for (int s = 0; s < program->n_steps; s++) {
        double sent = tti_collective_bytes(program->steps[s], n);
        if (waits[s] && roles[s] != RECEIVES_ROWS) q.compute = fmax(q.compute, q.tp);
        if (sent < 0)
            add_kernel(&q, tti_steps_cost_s(c, program, s, s + 1) * s_per_cost, roles[s], n);
        else
            add_collective(&q, c, sent, roles[s]);
    }
    free(waits);
    free(roles);
    out->exposed_s = fmin(fmax(q.compute, q.tp) - q.alone, q.all);
    double hidden = q.all > 0 ? 1 - out->exposed_s / q.all : 0;
    out->slowdown_s = hidden * q.by_blocks * TP_SLOWDOWN;
    return TUTTI_OK;
}

tti_overlap tti_overlapped_sums(const tti_calibration *c, const tti_plan *plan, double shard_s,
                                double sent) {
    const tti_program *program = &plan->shard;
    double all = fmax(tti_program_cost_s(c, program), 1e-12), end = 0, sums = 0;
    for (int i = 0; i < plan->n_buckets; i++) {
        int n_steps = plan->buckets[i].ready_after + 1;
        double ready = shard_s * tti_steps_cost_s(c, program, 0, n_steps) / all;
        double share = (double)plan->buckets[i].n_elems / (double)plan->n_flat;
        double took = c->sum_latency_s + sent * share / c->sum_bytes_s;
        end = fmax(end, ready) + took;
        sums += took;
    }
    double exposed = fmax(end - shard_s, 0), hidden = sums > 0 ? fmax(1 - exposed / sums, 0) : 0;
    return (tti_overlap){
        .exposed_s = exposed,
        .slowdown_s = hidden * (slowdown_s(c, sent) + plan->n_buckets * SLOWDOWN_PER_CALL_S)};
}

tti_overlap tti_overlapped_gathers(const tti_calibration *c, double n_calls, double sent,
                                   double compute_s) {
    double took = n_calls * c->sum_latency_s + sent / c->sum_bytes_s;
    double first = n_calls > 0 ? took / n_calls : 0;
    double exposed = fmin(fmax(took - compute_s, first), took);
    double hidden = took > 0 ? 1 - exposed / took : 0;
    return (tti_overlap){
        .exposed_s = exposed,
        .slowdown_s = hidden * (slowdown_s(c, sent) + n_calls * SLOWDOWN_PER_CALL_S)};
}

/* ---- memory ---- */

double tti_device_resident_bytes(const tti_blueprint *b) {
    bool wanted = strcmp(b->config.data.resident, "no") != 0 && b->mesh.stage == 1;
    if (!wanted || b->config.data.mixup > 0 || tti_resident_why_not(b->train)) return 0;
    double bytes = (double)tti_resident_bytes(b->train);
    return bytes <= MAX_RESIDENT_BYTES ? bytes : 0;
}

int tti_device_in_flight(const tti_plan *plan, int n_own) {
    int n = 1;
    for (int s = 0; s < plan->shard.n_steps; s++)
        if (plan->shard.steps[s]->op->traits & TTI_SYNC) n = n_own;
    if (plan->stages && tti_pipe_count_in_flight(plan->stages, n_own, &n) != TUTTI_OK) {
        tti_clear_error();
        n = 1;
    }
    return n;
}

/* Bytes of message slots in an evaluation, which only runs forward: two slots, or two for each
 * stage if there are several chunks. */
static double eval_message_bytes(const tti_stages *s, int n_micro_groups) {
    int depth = TTI_MIN(s->n_chunks > 1 ? 2 * s->n_stages : 2, n_micro_groups);
    double bytes = 0;
    for (int i = 0; i < s->eval.n; i++)
        if (tti_sched_slot_stage(s, s->eval.of[i].to) == s->stage)
            bytes += (double)s->eval.of[i].n_bytes * depth;
    return bytes;
}

/* Bytes of message slots in training: each value has a slot for every micro-batch group that can be
 * between the two stages. */
static double message_bytes(const tti_stages *s, int n_micro_groups) {
    double bytes = s ? eval_message_bytes(s, n_micro_groups) : 0;
    int last = s ? 2 * tti_stages_n_all_chunks(s) - 1 : 0;
    for (int i = 0; s && i < s->train.n; i++) {
        const tti_stage_boundary *x = &s->train.of[i];
        int earlier = TTI_MIN(TTI_MIN(x->from, last - x->from), TTI_MIN(x->to, last - x->to));
        tti_stages at = {.stage = tti_sched_slot_stage(s, earlier),
                         .n_stages = s->n_stages,
                         .n_chunks = s->n_chunks,
                         .is_joined = s->is_joined};
        int depth = 1;
        if (tti_sched_slot_stage(s, x->to) != s->stage) continue;
        if (tti_pipe_count_in_flight(&at, n_micro_groups, &depth) != TUTTI_OK) tti_clear_error();
        bytes += (double)x->n_bytes * TTI_MIN(depth, n_micro_groups);
    }
    return bytes;
}

/* Bytes of the collectives' buffer, which has two halves of the size of the longest value. */
static double collective_bytes(const tti_program *program) {
    double most = 0;
    for (int i = 0; i < program->n_steps; i++) {
        const tti_node *node = program->steps[i];
        if (!(node->op->traits & TTI_COLLECTIVE)) continue;
        most = fmax(most, (double)tti_value_n_bytes(node->in[0]));
        most = fmax(most, (double)tti_value_n_bytes(node->out[0]));
    }
    return 2 * most;
}

double tti_device_extra_bytes(const tti_plan *plan, int n_own) {
    const tti_program *p = &plan->shard;
    double shard = (double)(tti_inputs_sample_bytes(p) + tti_inputs_target_bytes(p));
    double tp_bytes = fmax(collective_bytes(p), collective_bytes(&plan->eval));
    double own = (double)tti_plan_own_bytes(plan) * tti_device_in_flight(plan, n_own);
    return N_SETS * n_own * shard + own + message_bytes(plan->stages, n_own) + tp_bytes;
}
