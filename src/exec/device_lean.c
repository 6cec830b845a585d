/* device_lean.c - fetches before the steps that read, waits before the steps that write.
 *
 * The order of the moves follows from the plan and is the same on all workers.  Outside of a
 * recording a kernel that waits for a peer must not meet one that is still being loaded, so there
 * each fetch is waited for by all; an evaluation does so once.
 *
 * Where devices do not reach each other the host fetches: own parts come to memory that the others
 * read once in a pass, and each bucket goes from there to its place in the queue of the kernels. */
#include "exec/device_lean.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "comm/parts.h"
#include "comm/transport.h"
#include "exec/worker.h"

struct tti_device_lean {
    tti_exec *x;
    tti_device_reduce *reduce; /* NULL: by way of the host, which has: */
    float *own;                /* [share.n_most]: own parts, which others read */
    float *bucket;             /* [longest]: on its way to the device */
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

/* Whatever is fetched at all. */
static tutti_status take_host(tti_device_lean *l) {
    const tti_plan *plan = l->x->desc.plan;
    void *memory = NULL;
    size_t n = 0;
    if (l->reduce || (!l->x->lean->params && !l->x->lean->averages)) return TUTTI_OK;
    for (int b = 0; b < plan->n_buckets; b++) n = TTI_MAX(n, plan->buckets[b].n_elems);
    TTI_TRY(tutti_comm_alloc(l->x->desc.comm, l->x->share.n_most * sizeof(float) + 64, &memory));
    l->own = memory;
    l->bucket = malloc(n * sizeof *l->bucket + 1);
    return l->bucket ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "exec: %zu floats of the host", n);
}

tutti_status tti_device_lean_create(tti_exec *x, tti_device_reduce *reduce, tti_device_lean **out) {
    tti_device_lean *l = calloc(1, sizeof *l);
    *out = l;
    if (!l) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    *l = (tti_device_lean){.x = x, .reduce = reduce, .ops = x->desc.backend->device};
    size_t n = (size_t)TTI_MAX(x->lean->train.n_uses, x->lean->eval.n_uses);
    l->noted = calloc(n + 1, sizeof *l->noted);
    return l->noted ? take_host(l) : tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
}

void tti_device_lean_destroy(tti_device_lean *l) {
    if (!l) return;
    free(l->bucket);
    free(l->noted);
    free(l);
}

/* ---- moves by the host ---- */

/* Own parts as they are on the device; nobody reads those of before any more, since the sums of a
 * step, or of an evaluation, lie between. */
static tutti_status bring_own(tti_device_lean *l, const float *from) {
    if (!l->own) return TUTTI_OK;
    TTI_TRY(l->ops->copy(TTI_QUEUE_COMPUTE, l->own, from, l->x->share.n_elems * sizeof *from));
    return l->ops->sync();
}

/* A bucket of all workers' parts to dst on. */
static tutti_status fetch_by_host(tti_device_lean *l, int which, float *dst) {
    tti_exec *x = l->x;
    const tti_bucket *bucket = &x->desc.plan->buckets[which];
    const size_t *from = x->share.from + which * x->n_ranks;
    size_t bounds[TTI_MAX_RANKS + 1];
    int64_t start = tti_now_ns();
    tti_zero_bounds(x, bucket->first, bounds);
    size_t first = bounds[x->rank], n = bounds[x->rank + 1] - first;
    memcpy(l->bucket + first, l->own + from[x->rank], n * sizeof *l->bucket);
    const tti_parts_desc desc = {.src = l->own,
                                 .dst = l->bucket,
                                 .bounds = bounds,
                                 .n_groups = 1,
                                 .from = from,
                                 .dtype = TUTTI_F32};
    TTI_TRY(tti_comm_gather_parts(x->desc.comm, &desc));
    int64_t end = tti_now_ns();
    tti_exec_waited(x, end - start);
    tti_profile_add(x, TTI_ROW_COMM, tti_part_params("parameters of other workers"), -1, start,
                    end);
    TTI_TRY(l->ops->copy(TTI_QUEUE_COMPUTE, dst, l->bucket, bucket->n_elems * sizeof *dst));
    TTI_TRY(l->ops->sync()); /* the next bucket comes to the same memory */
    return tti_profile_upto(x, TTI_ROW_COMPUTE, tti_part_work("parameters to the device"), -1);
}

/* ---- moves ---- */

static tutti_status fetch(tti_device_lean *l, int i) {
    const tti_use *use = &l->params->uses[i];
    float *dst = l->x->lean->gathered + use->offset;
    if (!l->reduce) return fetch_by_host(l, use->bucket, dst);
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
    return tti_profile_upto(l->x, TTI_ROW_COMPUTE, tti_part_wait("waiting for parameters"), -1);
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
    return tti_profile_upto(l->x, TTI_ROW_COMPUTE, tti_part_wait("waiting for sums"), -1);
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

/* Each part of a shard fetches what it reads: none of its uses is in two of them. */
void tti_device_lean_begin_part(tti_device_lean *l, bool eval, int first) {
    l->params = eval ? &l->x->lean->eval : &l->x->lean->train;
    l->next = 0;
    while (l->next < l->params->n_uses && l->params->uses[l->next].first < first) l->next++;
}

/* Waves that others of a stage have are in its schedule. */
tutti_status tti_device_lean_step(tti_device_lean *l, bool beside) {
    int n_idle = l->x->pipe ? 0 : tti_lean_idle_waves(l->x);
    l->step_beside = beside;
    l->status = bring_own(l, l->x->params);
    for (int i = 0; i < n_idle; i++) {
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
    l->beside = l->reduce && l->has_evaluated;
    l->is_last = false;
    l->next = 0;
    l->status = TUTTI_OK;
}

tutti_status tti_device_lean_eval_begin(tti_device_lean *l) {
    l->status = TUTTI_OK;
    return l->x->lean->params ? bring_own(l, l->x->ema ? l->x->ema : l->x->params) : TUTTI_OK;
}

static void after_step(int step, void *user) { tti_device_lean_before(user, step + 1); }

tutti_status tti_device_lean_eval(tti_device_lean *l, tti_instance *instance, const tti_run *run) {
    begin_eval(l);
    tti_device_lean_before(l, 0);
    TTI_TRY(tti_instance_run(instance, run, after_step, l));
    return l->status;
}

/* One shard after the other is evaluated, also where those of a step are joined. */
static int n_idle_evaluations(const tti_exec *x) {
    int most = 0;
    for (int r = 0; r < x->n_ranks; r++) most = TTI_MAX(most, tti_deal_n_of(&x->deal, r));
    return most - (x->last_shard - x->first_shard);
}

tutti_status tti_device_lean_eval_rest(tti_device_lean *l) {
    for (int i = n_idle_evaluations(l->x); i > 0; i--) {
        begin_eval(l);
        play(l, l->x->desc.plan->eval.n_steps);
        TTI_TRY(l->status);
    }
    l->has_evaluated = true;
    return TUTTI_OK;
}

tutti_status tti_device_lean_rest(tti_device_lean *l) {
    return l->reduce ? tti_device_reduce_rest(l->reduce) : l->ops->sync();
}

tutti_status tti_device_lean_averages(tti_device_lean *l) {
    const tti_plan *plan = l->x->desc.plan;
    TTI_TRY(l->reduce ? tti_device_reduce_meet(l->reduce) : bring_own(l, l->x->ema));
    for (int b = 0; b < plan->n_buckets; b++) {
        float *dst = l->x->lean->averages + plan->buckets[b].first;
        if (!l->reduce) TTI_TRY(fetch_by_host(l, b, dst));
        if (!l->reduce) continue;
        TTI_TRY(tti_device_reduce_fetch(l->reduce, b, TTI_FROM_AVERAGES, dst, false));
    }
    return tti_device_lean_rest(l);
}
