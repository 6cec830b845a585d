/* device_lean.c - fetches before the steps that read, waits before the steps that write.
 *
 * The order of the moves follows from the plan and is the same on all workers.  Outside of a
 * recording a kernel that waits for a peer must not meet one that is still being loaded, so there
 * each fetch is waited for by all; an evaluation does so once. */
#include "exec/device_lean.h"

#include <stdlib.h>

#include "exec/worker.h"

struct tti_device_lean {
    tti_exec *x;
    tti_device_reduce *reduce;
    const tti_device_ops *ops;
    /* Of the run of a program. */
    const tti_window *params; /* NULL: they are whole */
    int *noted; /* [uses of the longer window]: where their fetches are in the queue */
    int next;   /* use to be fetched */
    int source;
    bool beside, is_last;
    bool step_beside, has_evaluated;
    tutti_status status;
};

tutti_status tti_device_lean_create(tti_exec *x, tti_device_reduce *reduce, tti_device_lean **out) {
    tti_device_lean *l = calloc(1, sizeof *l);
    *out = l;
    if (!l) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    *l = (tti_device_lean){.x = x, .reduce = reduce, .ops = x->desc.backend->device};
    size_t n = (size_t)TTI_MAX(x->lean->train.n_uses, x->lean->eval.n_uses);
    l->noted = calloc(n + 1, sizeof *l->noted);
    return l->noted ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
}

void tti_device_lean_destroy(tti_device_lean *l) {
    if (!l) return;
    free(l->noted);
    free(l);
}

/* ---- moves ---- */

static tutti_status fetch(tti_device_lean *l, int i) {
    const tti_use *use = &l->params->uses[i];
    float *dst = l->x->lean->gathered + use->offset;
    if (!l->beside) TTI_TRY(tti_device_reduce_meet(l->reduce));
    TTI_TRY(tti_device_reduce_fetch(l->reduce, use->bucket, l->source, dst, l->beside));
    if (!l->beside) return tti_device_reduce_rest(l->reduce);
    return tti_device_reduce_note(l->reduce, &l->noted[i]);
}

/* A place is free once the steps that are in the queue so far have been done. */
static tutti_status fetch_upto(tti_device_lean *l, int step) {
    int first = l->next;
    while (l->next < l->params->n_uses && l->params->uses[l->next].taken <= step) {
        if (l->beside && l->next == first) TTI_TRY(tti_device_reduce_fetch_begin(l->reduce));
        TTI_TRY(fetch(l, l->next++));
    }
    return TUTTI_OK;
}

static tutti_status await_params(tti_device_lean *l, int step) {
    bool waits = false;
    for (int i = 0; i < l->next; i++) {
        if (l->params->uses[i].first != step || !l->beside) continue;
        TTI_TRY(l->ops->follow(TTI_QUEUE_COMPUTE, l->noted[i]));
        waits = true;
    }
    if (!waits) return TUTTI_OK;
    return tti_profile_upto(l->x, TTI_ROW_COMPUTE, NULL, "waiting for parameters", -1);
}

/* What lay there before has been summed: the newest of it, since sums come one after the other. */
static tutti_status await_place(tti_device_lean *l, const tti_use *use) {
    const tti_window *w = &l->x->lean->grads;
    int newest = -1;
    for (int i = 0; i < w->n_uses; i++)
        if (w->uses[i].last < use->first && tti_window_shares(w, &w->uses[i], use))
            newest = TTI_MAX(newest, w->uses[i].bucket);
    if (newest < 0) return TUTTI_OK;
    TTI_TRY(tti_device_reduce_follow(l->reduce, newest));
    return tti_profile_upto(l->x, TTI_ROW_COMPUTE, NULL, "waiting for sums", -1);
}

static tutti_status come_to(tti_device_lean *l, int step) {
    const tti_window *grads = &l->x->lean->grads;
    if (l->params) TTI_TRY(fetch_upto(l, step));
    if (l->params) TTI_TRY(await_params(l, step));
    for (int i = 0; l->is_last && l->beside && i < grads->n_uses; i++)
        if (grads->uses[i].first == step) TTI_TRY(await_place(l, &grads->uses[i]));
    return TUTTI_OK;
}

void tti_device_lean_before(tti_device_lean *l, int step) {
    if (l->status == TUTTI_OK) l->status = come_to(l, step);
}

/* The same moves without a shard. */
static void play(tti_device_lean *l, int n_steps) {
    for (int s = 0; s < n_steps; s++) tti_device_lean_before(l, s);
}

/* ---- a step ---- */

void tti_device_lean_begin(tti_device_lean *l, bool is_last) {
    l->params = l->x->lean->params ? &l->x->lean->train : NULL;
    l->source = TTI_FROM_PARAMS;
    l->beside = l->step_beside;
    l->is_last = is_last;
    l->next = 0;
}

tutti_status tti_device_lean_step(tti_device_lean *l, bool beside) {
    l->step_beside = beside;
    l->status = TUTTI_OK;
    for (int i = tti_lean_idle_waves(l->x); i > 0; i--) {
        tti_device_lean_begin(l, false);
        play(l, l->x->desc.plan->shard.n_steps);
    }
    return l->status;
}

tutti_status tti_device_lean_finish(tti_device_lean *l) { return l->status; }

/* ---- evaluation ---- */

static void begin_eval(tti_device_lean *l) {
    l->params = l->x->lean->params ? &l->x->lean->eval : NULL;
    l->source = l->x->ema ? TTI_FROM_AVERAGES : TTI_FROM_PARAMS;
    l->beside = l->has_evaluated;
    l->is_last = false;
    l->next = 0;
    l->status = TUTTI_OK;
}

static void after_step(int step, void *user) { tti_device_lean_before(user, step + 1); }

tutti_status tti_device_lean_eval(tti_device_lean *l, tti_instance *instance, const tti_run *run) {
    begin_eval(l);
    tti_device_lean_before(l, 0);
    TTI_TRY(tti_instance_run(instance, run, after_step, l));
    return l->status;
}

tutti_status tti_device_lean_eval_rest(tti_device_lean *l) {
    for (int i = tti_lean_idle_waves(l->x); i > 0; i--) {
        begin_eval(l);
        play(l, l->x->desc.plan->eval.n_steps);
        TTI_TRY(l->status);
    }
    l->has_evaluated = true;
    return TUTTI_OK;
}

tutti_status tti_device_lean_averages(tti_device_lean *l) {
    const tti_plan *plan = l->x->desc.plan;
    TTI_TRY(tti_device_reduce_meet(l->reduce));
    for (int b = 0; b < plan->n_buckets; b++) {
        float *dst = l->x->lean->averages + plan->buckets[b].first;
        TTI_TRY(tti_device_reduce_fetch(l->reduce, b, TTI_FROM_AVERAGES, dst, false));
    }
    return tti_device_reduce_rest(l->reduce);
}
