/* lists.c - the step programs that a worker would execute, without creating the worker. */
#include <stdlib.h>

#include "exec/host/host.h"
#include "exec/memory.h"
#include "exec/worker/worker.h"

struct tti_step_lists {
    tti_step_basis basis;
    tti_accumulation acc;
    tti_share share;
    tti_sharded sharded;
    tti_pipe *pipe;
    int *joins;
    tti_step_program *programs[TTI_N_FORMS];
};

static int find_joins(const tti_program *program, int *joins) {
    int n = 0;
    for (int s = 0; program->graph && s < program->n_steps; s++)
        if (program->steps[s]->op->traits & TTI_SYNC) joins[n++] = s;
    return n;
}

static tutti_status plan_worker(const tti_list_desc *d, tti_step_lists *p) {
    tti_shard_map map;
    TTI_TRY(tti_exec_shard_map(d->exec, d->n_ranks, &map));
    int n_local = tti_shard_map_n_of(&map, d->rank);
    TTI_TRY(tti_planned_accumulation(d->exec, d->rank, d->n_ranks, &p->acc));
    TTI_TRY(tti_exec_init_share(d->exec, d->rank, d->n_ranks, &p->share));
    p->basis = (tti_step_basis){.desc = d->exec,
                                .n_ranks = d->n_ranks,
                                .is_divided = d->is_divided,
                                .has_server = d->has_server,
                                .divides = p->share.n_ranks > 1,
                                .acc = &p->acc,
                                .n_compute_threads = tti_exec_n_compute_threads(d->exec, n_local)};
    const tti_program *train = &d->exec->plan->shard, *eval = &d->exec->plan->eval;
    p->joins = calloc((size_t)train->n_steps + (size_t)eval->n_steps + 1, sizeof *p->joins);
    if (!p->joins) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    p->basis.n_joins = find_joins(train, p->joins);
    p->basis.n_eval_joins = find_joins(eval, p->joins + train->n_steps);
    p->basis.joins = p->joins;
    p->basis.eval_joins = p->joins + train->n_steps;
    if (d->exec->zero >= 2 && p->share.n_ranks > 1) {
        p->sharded.params = d->exec->zero > 2;
        TTI_TRY(tti_sharded_plan_memory(d->exec->plan, &p->sharded));
        p->basis.sharded = &p->sharded;
        /* Micro-batch groups without a shard, which make all workers gather parameters equally
         * often (ZeRO-3). */
        int most = p->acc.n_micro_groups;
        int n_kinds = tti_shard_map_is_uniform(&map) ? 1 : d->n_ranks;
        for (int r = 0; p->sharded.params && r < n_kinds; r++) {
            tti_accumulation theirs;
            TTI_TRY(tti_planned_accumulation(d->exec, r, d->n_ranks, &theirs));
            most = TTI_MAX(most, theirs.n_micro_groups);
            tti_accumulation_fini(&theirs);
        }
        p->basis.n_idle = most - p->acc.n_micro_groups;
    }
    const tti_plan *plan = d->exec->plan;
    int n_compute_threads = p->basis.n_compute_threads, n_micro_groups;
    if (!plan->stages) return TUTTI_OK;
    TTI_TRY(tti_planned_micro_groups(d->exec, n_local, d->n_ranks, &n_micro_groups));
    p->basis.n_idle = n_micro_groups - tti_micro_groups_of(n_local, n_compute_threads);
    TTI_TRY(tti_pipe_plan(plan, n_compute_threads, n_micro_groups, p->basis.n_idle, &p->pipe));
    p->basis.train = &p->pipe->train;
    p->basis.eval = &p->pipe->eval;
    return TUTTI_OK;
}

static const char *const headings[TTI_N_FORMS] = {
    [TTI_FORM_STEP] = "a step of training",
    [TTI_FORM_WARMUP] = "a step of training before average_after or compress_after",
    [TTI_FORM_LOCAL] = "a step of training between two averages",
    [TTI_FORM_MEAN] = "a step of training that ends with the mean of the parameters",
    [TTI_FORM_MEAN_ALL] = "a step of training that ends with the mean of parameters and state",
    [TTI_FORM_GRADIENT] = "a step of training, after which the server takes the gradient",
    [TTI_FORM_EVAL] = "a batch of evaluation"};

tutti_status tti_step_lists_create(const tti_list_desc *d, tti_step_lists **out) {
    *out = NULL;
    tti_step_lists *p = calloc(1, sizeof *p);
    if (!p) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    tutti_status st = plan_worker(d, p);
    tti_step_form other = d->is_async ? TTI_FORM_STEP : TTI_FORM_GRADIENT;
    for (tti_step_form form = 0; st == TUTTI_OK && form < TTI_N_FORMS; form++)
        if (form != other && tti_step_has_form(&p->basis, form))
            st = tti_step_build(&p->basis, form, &p->programs[form]);
    if (st != TUTTI_OK) {
        tti_step_lists_destroy(p);
        return st;
    }
    *out = p;
    return TUTTI_OK;
}

void tti_step_lists_destroy(tti_step_lists *p) {
    if (!p) return;
    for (int form = 0; form < TTI_N_FORMS; form++) tti_step_program_destroy(p->programs[form]);
    tti_pipe_destroy(p->pipe);
    tti_sharded_fini_memory(&p->sharded);
    tti_accumulation_fini(&p->acc);
    tti_share_fini(&p->share);
    free(p->joins);
    free(p);
}

const tti_step_program *tti_step_lists_program(const tti_step_lists *p, tti_step_form form) {
    return p->programs[form];
}

void tti_step_lists_print(const tti_step_lists *p, tti_str *out) {
    for (int form = 0; form < TTI_N_FORMS; form++) {
        if (!p->programs[form]) continue;
        tti_str_printf(out, "%s%s:\n", out->n_bytes > 0 ? "\n" : "", headings[form]);
        tti_step_program_print(p->programs[form], out);
    }
}
