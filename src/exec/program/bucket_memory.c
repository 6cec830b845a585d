/* bucket_memory.c - memory for buckets, by live range.
 *
 * Slots are assigned greedily, largest first, as memplan.c does for values. */
#include "exec/program/bucket_memory.h"

#include <stdlib.h>

#include "base/error.h"

/* If two other buckets are accessed in between, it is better to release the memory. */
enum { FAR = 2, FREE = -1 };

typedef struct builder {
    tti_bucket_memory *w;
    const tti_program *program;
    int *open;      /* [n_buckets]: index of its newest live range; FREE: none yet */
    int *last_seen; /* [n_buckets]: step of the last access */
    bool splits;    /* a bucket may have several live ranges */
    int cap;
} builder;

/* The first step of the segment that contains step. */
static int segment_begin(const tti_program *program, int step) {
    int segment = 0;
    while (segment + 1 < program->n_segments && program->segment_first[segment + 1] <= step)
        segment++;
    return segment > 0 ? program->segment_first[segment] : 0;
}

/* The number of other buckets that were accessed after this live range. */
static int n_between(const builder *b, const tti_live_range *live) {
    int n = 0;
    for (int i = 0; i < b->w->plan->n_buckets; i++)
        n += i != live->bucket && b->last_seen[i] > live->last;
    return n;
}

/* True if a step extends a live range. A live range ends with its segment, because segments of
 * other shards may run in between. */
static bool is_extended_by(const builder *b, const tti_live_range *live, int step) {
    if (!b->splits) return true;
    return n_between(b, live) < FAR && segment_begin(b->program, step) <= live->last;
}

/* A value lies in one bucket, because bucket.c does not split values. */
static int bucket_of(const tti_plan *plan, tti_buf buf, const tutti_value *value) {
    size_t first = buf.offset / sizeof(float);
    int index = tti_plan_find_bucket(plan, first);
    const tti_bucket *bucket = &plan->buckets[index];
    size_t end = bucket->first + bucket->n_elems;
    TTI_ASSERT(first + (size_t)tti_value_n_elems(value) <= end);
    return index;
}

static tutti_status look_at(builder *b, tti_space space, const tutti_value *value, int step) {
    tti_buf buf = b->program->bufs[value->id];
    if (buf.space != space) return TUTTI_OK;
    int bucket = bucket_of(b->w->plan, buf, value);
    tti_live_range *live = b->open[bucket] == FREE ? NULL : &b->w->live[b->open[bucket]];
    b->last_seen[bucket] = step;
    if (!live || !is_extended_by(b, live, step)) {
        tti_bucket_memory *w = b->w;
        if (w->n_live == b->cap) {
            int cap = 2 * b->cap + 16;
            tti_live_range *grown = realloc(w->live, (size_t)cap * sizeof *live);
            if (!grown) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
            w->live = grown;
            b->cap = cap;
        }
        b->open[bucket] = w->n_live;
        w->live[w->n_live++] = (tti_live_range){.bucket = bucket, .first = step, .last = step};
        return TUTTI_OK;
    }
    live->last = step;
    return TUTTI_OK;
}

static tutti_status find_uses(builder *b, tti_space space) {
    const tti_program *program = b->program;
    for (int s = 0; s < program->n_steps; s++) {
        const tti_node *node = program->steps[s];
        for (int i = 0; i < node->n_in; i++) TTI_TRY(look_at(b, space, node->in[i], s));
        for (int k = 0; k < node->op->n_out; k++) TTI_TRY(look_at(b, space, node->out[k], s));
    }
    return TUTTI_OK;
}

static int by_first(const void *a, const void *b) {
    const tti_live_range *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return (x->bucket > y->bucket) - (x->bucket < y->bucket);
}

/* A bucket is filled during the steps of the previous live range in the same segment. */
static void begin_early(tti_bucket_memory *w, const tti_program *program) {
    for (int i = 0; i < w->n_live; i++) {
        int k = i - 1;
        while (k >= 0 && w->live[k].first == w->live[i].first) k--;
        int before = k < 0 ? 0 : w->live[k].first;
        w->live[i].taken = TTI_MAX(before, segment_begin(program, w->live[i].first));
        w->live[i].released = w->live[i].last;
    }
}

/* A bucket is emptied while the next one is live, except for that one's last step, which may be the
 * first of another. */
static void release_late(tti_bucket_memory *w) {
    for (int i = 0; i < w->n_live; i++) {
        tti_live_range *live = &w->live[i];
        live->taken = live->first;
        live->released = live->last;
        int next = -1; /* the end of the live range that completes next */
        for (int k = 0; k < w->n_live; k++)
            if (w->live[k].last > live->last && (next < 0 || w->live[k].last < next))
                next = w->live[k].last;
        if (next >= 0) live->released = TTI_MAX(live->last, next - 1);
    }
}

static size_t size_of(const tti_bucket_memory *w, const tti_live_range *live) {
    return w->plan->buckets[live->bucket].n_elems;
}

bool tti_bucket_memory_shares(const tti_bucket_memory *w, const tti_live_range *a,
                              const tti_live_range *b) {
    return a->offset < b->offset + size_of(w, b) && b->offset < a->offset + size_of(w, a);
}

/* Finds the lowest offset for a live range among the n placed ones. */
static void assign_offset(const tti_bucket_memory *w, tti_live_range *live,
                          tti_live_range *const *placed, int n) {
    live->offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < n; i++) {
            if ((live->taken > placed[i]->released || placed[i]->taken > live->released) ||
                !tti_bucket_memory_shares(w, live, placed[i]))
                continue;
            live->offset = placed[i]->offset + size_of(w, placed[i]);
            moved = true;
        }
    }
}

tutti_status tti_bucket_memory_init(const tti_plan *plan, const tti_program *program,
                                    tti_space space, tti_bucket_memory *out) {
    size_t n = (size_t)plan->n_buckets + 1;
    *out = (tti_bucket_memory){.plan = plan};
    builder b = {.w = out, .program = program, .splits = space == TTI_SPACE_PARAM};
    b.open = calloc(n, sizeof *b.open);
    b.last_seen = calloc(n, sizeof *b.last_seen);
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (size_t i = 0; b.open && b.last_seen && i < n; i++) b.open[i] = b.last_seen[i] = FREE;
    if (b.open && b.last_seen) st = find_uses(&b, space);
    free(b.open);
    free(b.last_seen);
    TTI_TRY(st);
    if (out->n_live == 0) return TUTTI_OK;
    qsort(out->live, (size_t)out->n_live, sizeof *out->live, by_first);
    if (space == TTI_SPACE_PARAM)
        begin_early(out, program);
    else
        release_late(out);
    tti_live_range **order = calloc((size_t)out->n_live + 1, sizeof *order);
    if (!order) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (int i = 0; i < out->n_live; i++) { /* by insertion: equal sizes stay in order */
        int k = i;
        for (; k > 0 && size_of(out, order[k - 1]) < size_of(out, &out->live[i]); k--)
            order[k] = order[k - 1];
        order[k] = &out->live[i];
    }
    for (int i = 0; i < out->n_live; i++) {
        assign_offset(out, order[i], order, i);
        out->n_elems = TTI_MAX(out->n_elems, order[i]->offset + size_of(out, order[i]));
    }
    free(order);
    return TUTTI_OK;
}

void tti_bucket_memory_fini(tti_bucket_memory *w) {
    free(w->live);
    *w = (tti_bucket_memory){0};
}

size_t tti_bucket_memory_at(const tti_bucket_memory *w, int step, size_t at) {
    int bucket = tti_plan_find_bucket(w->plan, at);
    for (int i = 0; i < w->n_live; i++) {
        const tti_live_range *live = &w->live[i];
        bool is_it =
            live->bucket == bucket && (step < 0 || (live->first <= step && step <= live->last));
        if (is_it) return live->offset + (at - w->plan->buckets[bucket].first);
    }
    tti_assert_failed("an element that no step of the program uses", __FILE__, __LINE__);
}

int tti_bucket_memory_next_change(const tti_bucket_memory *w, int step, int last) {
    for (int i = 0; i < w->n_live; i++) {
        const tti_live_range *live = &w->live[i];
        if (live->taken > step) last = TTI_MIN(last, live->taken);
        if (live->first > step) last = TTI_MIN(last, live->first);
    }
    return last;
}
