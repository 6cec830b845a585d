/* device_parts.c - which bucket is fetched when.
 *
 * Fetches stand one behind the other at the head of their queue and wait for nothing but each
 * other, so each is put there only when a step of the program asks for it: what this step then
 * waits for is that bucket and no later one.  All of them come before the first sum of gradients,
 * so that every worker has the same order of calls, however many shards it has. */
#include "exec/device_parts.h"

#include <limits.h>
#include <stdlib.h>

#include "exec/worker.h"

/* A bucket, and the first step that reads of it. */
typedef struct turn {
    int bucket, step;
} turn;

struct tti_device_parts {
    tti_exec *x;
    tti_device_reduce *reduce;
    tti_device_update *const *update;
    turn *turns; /* [n_buckets] in the order in which they are fetched */
    int n_turns, next;
    bool behind; /* a step was begun since parameters were whole */
    tutti_status status;
};

/* ---- the order ---- */

static void note_reads(const tti_exec *x, turn *turns) {
    const tti_program *program = &x->desc.plan->shard;
    for (int s = program->n_steps - 1; s >= 0; s--)
        for (int i = 0; i < program->steps[s]->n_in; i++) {
            tti_buf buf = program->bufs[program->steps[s]->in[i]->id];
            if (buf.space == TTI_SPACE_PARAM)
                turns[tti_plan_find_bucket(x->desc.plan, buf.offset / sizeof(float))].step = s;
        }
}

static int by_step(const void *a, const void *b) {
    const turn *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    return (x->bucket > y->bucket) - (x->bucket < y->bucket);
}

/* What only evaluation reads comes last, with what is read after the first gradients are there. */
static void find_order(tti_device_parts *p) {
    const tti_plan *plan = p->x->desc.plan;
    int latest = INT_MAX;
    for (int b = 0; b < plan->n_buckets; b++) {
        p->turns[b] = (turn){b, INT_MAX};
        latest = TTI_MIN(latest, plan->buckets[b].ready_after);
    }
    note_reads(p->x, p->turns);
    for (int b = 0; b < plan->n_buckets; b++)
        p->turns[b].step = TTI_MIN(p->turns[b].step, TTI_MAX(latest, 0));
    qsort(p->turns, (size_t)plan->n_buckets, sizeof *p->turns, by_step);
}

tutti_status tti_device_parts_create(tti_exec *x, tti_device_reduce *reduce,
                                     tti_device_update *const *update, tti_device_parts **out) {
    tti_device_parts *p = calloc(1, sizeof *p);
    *out = p;
    if (!p) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    *p = (tti_device_parts){
        .x = x, .reduce = reduce, .update = update, .n_turns = x->desc.plan->n_buckets};
    p->turns = calloc((size_t)p->n_turns + 1, sizeof *p->turns);
    if (!p->turns) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    find_order(p);
    return TUTTI_OK;
}

void tti_device_parts_destroy(tti_device_parts *p) {
    if (!p) return;
    free(p->turns);
    free(p);
}

/* ---- a step ---- */

static tutti_status fetch(const tti_device_parts *p, int bucket, bool beside) {
    float *dst = p->x->params + p->x->desc.plan->buckets[bucket].first;
    return tti_device_reduce_fetch(p->reduce, bucket, TTI_FROM_PARAMS, dst, beside);
}

static tutti_status fetch_all(tti_device_parts *p) {
    TTI_TRY(tti_device_reduce_meet(p->reduce));
    for (int i = 0; i < p->n_turns; i++) TTI_TRY(fetch(p, p->turns[i].bucket, false));
    return tti_device_reduce_fetched(p->reduce, false);
}

/* The hash of the step before is of all parameters now. */
static tutti_status complete(const tti_device_parts *p) {
    TTI_TRY(tti_device_update_complete(*p->update));
    return tti_profile_upto(p->x, TTI_ROW_COMPUTE,
                            tti_part_work("hash of the parameters of others"), -1);
}

tutti_status tti_device_parts_begin(tti_device_parts *p, bool beside) {
    p->status = TUTTI_OK;
    p->next = beside ? 0 : p->n_turns;
    if (beside) return tti_device_reduce_fetch_begin(p->reduce);
    TTI_TRY(fetch_all(p));
    return complete(p);
}

bool tti_device_parts_are_due(const tti_device_parts *p) {
    return p->status == TUTTI_OK && p->next < p->n_turns;
}

static tutti_status fetch_upto(tti_device_parts *p, int step) {
    bool is_asked = tti_device_parts_are_due(p) && p->turns[p->next].step <= step;
    if (!is_asked) return TUTTI_OK;
    while (p->next < p->n_turns && p->turns[p->next].step <= step)
        TTI_TRY(fetch(p, p->turns[p->next++].bucket, true));
    TTI_TRY(tti_device_reduce_fetched(p->reduce, true));
    return p->next == p->n_turns ? complete(p) : TUTTI_OK;
}

void tti_device_parts_before(tti_device_parts *p, int step) {
    if (p->status == TUTTI_OK) p->status = fetch_upto(p, step);
}

tutti_status tti_device_parts_finish(tti_device_parts *p) {
    TTI_TRY(p->status);
    return fetch_upto(p, INT_MAX);
}

/* ---- between steps ---- */

tutti_status tti_device_parts_settle(tti_device_parts *p) {
    if (!p->behind) return TUTTI_OK;
    TTI_TRY(fetch_all(p));
    p->behind = false;
    return TUTTI_OK;
}

void tti_device_parts_written(tti_device_parts *p, bool whole) { p->behind = !whole; }
