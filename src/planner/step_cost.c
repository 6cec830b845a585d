/* step_cost.c - adds up the costs of the instructions of a step. */
#include "planner/step_cost.h"

#include <math.h>
#include <string.h>

#include "exec/worker/worker.h"
#include "train/setup/worker_exec.h"

/* ---- the list ---- */

static tti_exec_desc desc_of(const tti_step_worker *w) {
    tti_exec_desc desc = tti_worker_exec_desc(w->b);
    desc.plan = tti_blueprint_plan(w->b, w->position);
    desc.n_shards = w->n_shards;
    desc.n_compute_threads = w->n_compute_threads;
    if (tti_worker_serves_in_ranks(w->b)) tti_worker_serve_in_ranks(w->b, &desc);
    if (w->n_owners > 0) desc.zero = 1, desc.n_owners = w->n_owners;
    return desc;
}

tutti_status tti_step_worker_lists(const tti_step_worker *w, tti_step_lists **out) {
    tti_exec_desc desc = desc_of(w);
    tti_shard_map map;
    int rank = 0;
    tti_shard_map_equally(w->n_ranks, w->n_shards, &map);
    while (tti_shard_map_n_of(&map, rank) < tti_shard_map_most(&map)) rank++;
    bool has_server = tti_job_has_server(&w->b->config) && !tti_worker_serves_in_ranks(w->b);
    return tti_step_lists_create(&(tti_list_desc){.exec = &desc,
                                                  .rank = rank,
                                                  .n_ranks = w->n_ranks,
                                                  .is_divided = tti_mesh_n_model(&w->b->mesh) > 1,
                                                  .has_server = has_server},
                                 out);
}

int tti_step_shares(const tti_blueprint *b, tti_step_share shares[TTI_MAX_STEP_SHARES]) {
    const tti_job_config *c = &b->config;
    bool state = strcmp(c->parallel.average, "all") == 0;
    double every = (double)TTI_MAX(c->parallel.average_every, 1);
    shares[0] = (tti_step_share){TTI_FORM_STEP, 1};
    if (!tti_job_is_local(c)) return 1;
    shares[0] = (tti_step_share){TTI_FORM_LOCAL, 1 - 1 / every};
    shares[1] = (tti_step_share){state ? TTI_FORM_MEAN_ALL : TTI_FORM_MEAN, 1 / every};
    return 2;
}

/* ---- costs ---- */

double tti_program_share(const tti_calibration *c, const tti_program *program, int end) {
    double all = fmax(tti_program_cost_s(c, program), 1e-12);
    return tti_steps_cost_s(c, program, 0, end) / all;
}

/* Bytes that a worker sends in an all-reduce of the instruction's range in f32. A reduce-scatter
 * and an all-gather send half as many each. */
static double all_reduce_bytes(const tti_step_worker *w, const tti_instr *in) {
    double n = w->n_ranks;
    return 2 * (n - 1) / n * (double)(in->range.last - in->range.first) * sizeof(float);
}

/* Bytes that a worker sends to reduce gradients, which may be rounded or compressed. */
static double reduced_bytes(const tti_step_worker *w, const tti_instr *in) {
    double whole = all_reduce_bytes(w, in);
    tti_exec_desc desc = desc_of(w);
    if (in->method == TTI_REDUCE_COMPRESS)
        return tti_compress_sent(&desc, w->n_ranks) * (double)(in->range.last - in->range.first) /
               (double)desc.plan->n_flat;
    if (in->kind == TTI_REDUCE_SCATTER || in->kind == TTI_PUSH_GRADS) whole /= 2;
    return whole * (double)tti_exec_wire_bytes(&desc) / sizeof(float);
}

static double run_share(const tti_calibration *c, const tti_program *program, const tti_instr *in) {
    if (in->first == 0 && in->last == program->n_steps) return 1;
    return tti_program_share(c, program, in->last) - tti_program_share(c, program, in->first);
}

static bool is_between_replicas(const tti_instr *in) {
    return in->axis == TTI_AXIS_DATA || in->axis == TTI_AXIS_ALL;
}

static void add_instr(const tti_step_worker *w, const tti_calibration *c,
                      const tti_step_program *list, const tti_instr *in, double share,
                      tti_step_cost *cost) {
    const tti_plan *plan = tti_blueprint_plan(w->b, w->position);
    double n = (double)(in->range.last - in->range.first);
    switch (in->kind) {
        case TTI_RUN:
            if (in->n_shards > 0) cost->n_runs += share * run_share(c, list->program, in);
            return;
        case TTI_MERGE:
            cost->merged += share * n * in->merges->n_merges;
            return;
        case TTI_ADD_PARTIALS:
        case TTI_REDUCE_SCATTER:
        case TTI_ALL_REDUCE:
            if (in->method != TTI_REDUCE_TREE && in->method != TTI_REDUCE_TREE_ROUNDED)
                cost->merged += share * n * (list->n_partials - 1);
            if (in->kind == TTI_ADD_PARTIALS) return;
            cost->n_reductions += share;
            cost->reduced_bytes += share * reduced_bytes(w, in);
            return;
        case TTI_PUSH_GRADS:
            cost->n_updates += share;
            cost->n_reductions += share;
            cost->reduced_bytes += share * reduced_bytes(w, in);
            return;
        case TTI_AVERAGE:
            cost->n_gathers += share;
            cost->gathered_bytes +=
                share * 2 * (w->n_ranks - 1.0) / w->n_ranks * (double)plan->n_flat * sizeof(float);
            return;
        case TTI_ALL_GATHER:
        case TTI_PULL_PARAMS:
            cost->n_gathers += share * (in->bucket < 0 && w->is_device ? plan->n_buckets : 1);
            cost->gathered_bytes += share * all_reduce_bytes(w, in) / 2;
            return;
        case TTI_REPORT:
        case TTI_SUM_HASHES:
            if (is_between_replicas(in)) cost->n_small += share;
            return;
        case TTI_UPDATE_BLOCKS:
            cost->n_updates += share;
            return;
        case TTI_REDUCE_TIED_GRADS:
            cost->reduces_tied = true;
            return;
        default: /* SEND and RECV: stage_sim.c; JOIN and TIME_STAGES are small; HASH is in UPDATE */
            return;
    }
}

tutti_status tti_step_cost_of(const tti_step_worker *w, const tti_calibration *c,
                              tti_step_cost *out) {
    tti_step_share shares[TTI_MAX_STEP_SHARES];
    tti_step_lists *lists;
    *out = (tti_step_cost){0};
    TTI_TRY(tti_step_worker_lists(w, &lists));
    int n = w->n_ranks > 1 ? tti_step_shares(w->b, shares) : 1;
    if (w->n_ranks == 1) shares[0] = (tti_step_share){TTI_FORM_STEP, 1};
    for (int i = 0; i < n; i++) {
        const tti_step_program *list = tti_step_lists_program(lists, shares[i].form);
        for (int k = 0; k < list->n_instrs; k++)
            add_instr(w, c, list, &list->instrs[k], shares[i].share, out);
    }
    tti_step_lists_destroy(lists);
    return TUTTI_OK;
}
