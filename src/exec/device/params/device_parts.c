/* device_parts.c - gathers updated parameters bucket by bucket during the next forward pass.
 *
 * Fetches run one after the other in their queue and wait only for each other, so each is launched
 * when a step of the program needs it: that step then waits for that bucket and no later one.  All
 * fetches come before the first sum of gradients, so that every worker has the same order of calls,
 * however many shards it has. */
#include "exec/device/params/device_parts.h"

#include <limits.h>
#include <stdlib.h>

#include "exec/worker/worker.h"

/* A bucket, the first step that reads of it, and its blocks (plan->updates). */
typedef struct turn {
    int bucket, step;
    int first_block, n_blocks;
} turn;

struct tti_device_parts {
    tti_exec *x;
    tti_device_reduce *reduce;
    tti_device_update *const *update;
    turn *turns; /* [n_buckets] in the order of the fetches */
    int n_turns, next;
    bool is_stale; /* a step was begun since parameters were whole */
    tutti_status status;
};

/* ---- the order ---- */

/* The flat index of a parameter that is read in 16 bits. */
static size_t flat_of_low(const tti_plan *plan, size_t at) {
    int i = 0;
    while (!plan->slots[i].is_low || at - plan->slots[i].low >= plan->slots[i].n_elems) i++;
    return plan->slots[i].first + (at - plan->slots[i].low);
}

/* The bucket of a value that a step reads; -1: not a parameter. */
static int bucket_of(const tti_plan *plan, tti_buf buf) {
    if (buf.space == TTI_SPACE_PARAM) return tti_plan_find_bucket(plan, buf.offset / sizeof(float));
    if (buf.space != TTI_SPACE_LOW) return -1;
    return tti_plan_find_bucket(plan, flat_of_low(plan, buf.offset / sizeof(uint16_t)));
}

static void note_reads(const tti_plan *plan, turn *turns) {
    const tti_program *program = &plan->shard;
    for (int s = program->n_steps - 1; s >= 0; s--)
        for (int i = 0; i < program->steps[s]->n_in; i++) {
            int b = bucket_of(plan, program->bufs[program->steps[s]->in[i]->id]);
            if (b >= 0) turns[b].step = s;
        }
}

/* Blocks stand in the order of the flat arrays. */
static void note_blocks(const tti_plan *plan, turn *turns) {
    for (int i = plan->n_updates - 1; i >= 0; i--) {
        turn *t = &turns[tti_plan_find_bucket(plan, plan->updates[i].first)];
        t->first_block = i;
        t->n_blocks++;
    }
}

static int by_step(const void *a, const void *b) {
    const turn *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    return (x->bucket > y->bucket) - (x->bucket < y->bucket);
}

/* Parameters that only evaluation reads come last, with those read after the first gradients are
 * ready. */
static void find_order(tti_device_parts *p) {
    const tti_plan *plan = tti_setup_of(p->x)->desc.plan;
    int latest = INT_MAX;
    for (int b = 0; b < plan->n_buckets; b++) {
        p->turns[b] = (turn){.bucket = b, .step = INT_MAX};
        latest = TTI_MIN(latest, plan->buckets[b].ready_after);
    }
    note_reads(plan, p->turns);
    note_blocks(plan, p->turns);
    for (int b = 0; b < plan->n_buckets; b++)
        p->turns[b].step = TTI_MIN(p->turns[b].step, TTI_MAX(latest, 0));
    qsort(p->turns, (size_t)plan->n_buckets, sizeof *p->turns, by_step);
}

tutti_status tti_device_parts_create(tti_exec *x, tti_device_reduce *reduce,
                                     tti_device_update *const *update, tti_device_parts **out) {
    tti_device_parts *p = calloc(1, sizeof *p);
    *out = p;
    if (!p) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    *p = (tti_device_parts){.x = x,
                            .reduce = reduce,
                            .update = update,
                            .n_turns = tti_setup_of(x)->desc.plan->n_buckets};
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

static tutti_status fetch(const tti_device_parts *p, int bucket, bool overlapped) {
    float *dst = tti_arrays_of(p->x)->params + tti_setup_of(p->x)->desc.plan->buckets[bucket].first;
    return tti_device_reduce_fetch(p->reduce, bucket, TTI_FROM_PARAMS, dst, overlapped);
}

static tutti_status fetch_all(tti_device_parts *p) {
    TTI_TRY(tti_device_reduce_meet(p->reduce));
    for (int i = 0; i < p->n_turns; i++) TTI_TRY(fetch(p, p->turns[i].bucket, false));
    return tti_device_reduce_fetched(p->reduce, false);
}

/* Adds the received parameters, which are read in 16 bits from here on, to the hash of the previous
 * step. */
static tutti_status complete(const tti_device_parts *p, int first, int n) {
    TTI_TRY(tti_device_update_complete(*p->update, first, n));
    return tti_profile_upto(p->x, TTI_ROW_COMPUTE,
                            tti_part_work("hash of the parameters of others"), -1);
}

tutti_status tti_device_parts_begin(tti_device_parts *p, bool overlapped) {
    p->status = TUTTI_OK;
    p->next = overlapped ? 0 : p->n_turns;
    if (overlapped) return tti_device_reduce_fetch_begin(p->reduce);
    TTI_TRY(fetch_all(p));
    return complete(p, 0, tti_setup_of(p->x)->desc.plan->n_updates);
}

bool tti_device_parts_are_due(const tti_device_parts *p) {
    return p->status == TUTTI_OK && p->next < p->n_turns;
}

/* No kernels overlap with the first bucket, which uses all multiprocessors. */
static tutti_status fetch_upto(tti_device_parts *p, int step) {
    int first = p->next;
    bool is_asked = tti_device_parts_are_due(p) && p->turns[first].step <= step;
    if (!is_asked) return TUTTI_OK;
    for (; p->next < p->n_turns && p->turns[p->next].step <= step; p->next++)
        TTI_TRY(fetch(p, p->turns[p->next].bucket, p->next > 0));
    TTI_TRY(tti_device_reduce_fetched(p->reduce, true));
    for (int i = first; i < p->next; i++)
        TTI_TRY(complete(p, p->turns[i].first_block, p->turns[i].n_blocks));
    return TUTTI_OK;
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
    if (!p->is_stale) return TUTTI_OK;
    TTI_TRY(fetch_all(p));
    p->is_stale = false;
    return TUTTI_OK;
}

void tti_device_parts_written(tti_device_parts *p, bool whole) { p->is_stale = !whole; }
