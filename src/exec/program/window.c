/* window.c - buffer slots for buckets, by live range.
 *
 * Slots are assigned greedily, largest first, as memplan.c does for values. */
#include "exec/program/window.h"

#include <stdlib.h>

#include "base/error.h"

/* Two others between: so far apart that the place is worth more to them. */
enum { FAR = 2, FREE = -1 };

typedef struct builder {
    tti_window *w;
    const tti_program *program;
    int *open;      /* [n_buckets]: its newest use; FREE: none yet */
    int *last_seen; /* [n_buckets]: step */
    bool splits;    /* a bucket may have several uses */
    int cap;
} builder;

/* The first step of the part that step is of. */
static int part_begin(const tti_program *program, int step) {
    int part = 0;
    while (part + 1 < program->n_parts && program->part_first[part + 1] <= step) part++;
    return part > 0 ? program->part_first[part] : 0;
}

/* Others that were looked at since the use was. */
static int n_between(const builder *b, const tti_use *use) {
    int n = 0;
    for (int i = 0; i < b->w->plan->n_buckets; i++)
        n += i != use->bucket && b->last_seen[i] > use->last;
    return n;
}

/* Between parts other shards may run theirs. */
static bool goes_on(const builder *b, const tti_use *use, int step) {
    if (!b->splits) return true;
    return n_between(b, use) < FAR && part_begin(b->program, step) <= use->last;
}

/* A value is in one place, and so in one bucket: bucket.c ends none inside of it. */
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
    tti_use *use = b->open[bucket] == FREE ? NULL : &b->w->uses[b->open[bucket]];
    b->last_seen[bucket] = step;
    if (!use || !goes_on(b, use, step)) {
        tti_window *w = b->w;
        if (w->n_uses == b->cap) {
            int cap = 2 * b->cap + 16;
            tti_use *uses = realloc(w->uses, (size_t)cap * sizeof *uses);
            if (!uses) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
            w->uses = uses;
            b->cap = cap;
        }
        b->open[bucket] = w->n_uses;
        w->uses[w->n_uses++] = (tti_use){.bucket = bucket, .first = step, .last = step};
        return TUTTI_OK;
    }
    use->last = step;
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
    const tti_use *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return (x->bucket > y->bucket) - (x->bucket < y->bucket);
}

/* Filled while the steps of the use before run, of the same part. */
static void begin_uses_early(tti_window *w, const tti_program *program) {
    for (int i = 0; i < w->n_uses; i++) {
        int k = i - 1;
        while (k >= 0 && w->uses[k].first == w->uses[i].first) k--;
        int before = k < 0 ? 0 : w->uses[k].first;
        w->uses[i].taken = TTI_MAX(before, part_begin(program, w->uses[i].first));
        w->uses[i].released = w->uses[i].last;
    }
}

/* Emptied while the steps of the next one run, but for its last, which may be another's first. */
static void release_late(tti_window *w) {
    for (int i = 0; i < w->n_uses; i++) {
        tti_use *use = &w->uses[i];
        use->taken = use->first;
        use->released = use->last;
        int next = -1; /* the end of the one that is complete next */
        for (int k = 0; k < w->n_uses; k++)
            if (w->uses[k].last > use->last && (next < 0 || w->uses[k].last < next))
                next = w->uses[k].last;
        if (next >= 0) use->released = TTI_MAX(use->last, next - 1);
    }
}

static size_t size_of(const tti_window *w, const tti_use *use) {
    return w->plan->buckets[use->bucket].n_elems;
}

bool tti_window_shares(const tti_window *w, const tti_use *a, const tti_use *b) {
    return a->offset < b->offset + size_of(w, b) && b->offset < a->offset + size_of(w, a);
}

/* The lowest offset for use among the n placed ones. */
static void place(const tti_window *w, tti_use *use, tti_use *const *placed, int n) {
    use->offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < n; i++) {
            if ((use->taken > placed[i]->released || placed[i]->taken > use->released) ||
                !tti_window_shares(w, use, placed[i]))
                continue;
            use->offset = placed[i]->offset + size_of(w, placed[i]);
            moved = true;
        }
    }
}

tutti_status tti_window_init(const tti_plan *plan, const tti_program *program, tti_space space,
                             tti_window *out) {
    size_t n = (size_t)plan->n_buckets + 1;
    *out = (tti_window){.plan = plan};
    builder b = {.w = out, .program = program, .splits = space == TTI_SPACE_PARAM};
    b.open = calloc(n, sizeof *b.open);
    b.last_seen = calloc(n, sizeof *b.last_seen);
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (size_t i = 0; b.open && b.last_seen && i < n; i++) b.open[i] = b.last_seen[i] = FREE;
    if (b.open && b.last_seen) st = find_uses(&b, space);
    free(b.open);
    free(b.last_seen);
    TTI_TRY(st);
    if (out->n_uses == 0) return TUTTI_OK;
    qsort(out->uses, (size_t)out->n_uses, sizeof *out->uses, by_first);
    if (space == TTI_SPACE_PARAM)
        begin_uses_early(out, program);
    else
        release_late(out);
    tti_use **order = calloc((size_t)out->n_uses + 1, sizeof *order);
    if (!order) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (int i = 0; i < out->n_uses; i++) { /* by insertion: equal sizes stay in order */
        int k = i;
        for (; k > 0 && size_of(out, order[k - 1]) < size_of(out, &out->uses[i]); k--)
            order[k] = order[k - 1];
        order[k] = &out->uses[i];
    }
    for (int i = 0; i < out->n_uses; i++) {
        place(out, order[i], order, i);
        out->n_elems = TTI_MAX(out->n_elems, order[i]->offset + size_of(out, order[i]));
    }
    free(order);
    return TUTTI_OK;
}

void tti_window_fini(tti_window *w) {
    free(w->uses);
    *w = (tti_window){0};
}

size_t tti_window_at(const tti_window *w, int step, size_t at) {
    int bucket = tti_plan_find_bucket(w->plan, at);
    for (int i = 0; i < w->n_uses; i++) {
        const tti_use *use = &w->uses[i];
        bool is_it =
            use->bucket == bucket && (step < 0 || (use->first <= step && step <= use->last));
        if (is_it) return use->offset + (at - w->plan->buckets[bucket].first);
    }
    tti_assert_failed("an element that no step of the program uses", __FILE__, __LINE__);
}

int tti_window_next_change(const tti_window *w, int step, int last) {
    for (int i = 0; i < w->n_uses; i++) {
        const tti_use *use = &w->uses[i];
        if (use->taken > step) last = TTI_MIN(last, use->taken);
        if (use->first > step) last = TTI_MIN(last, use->first);
    }
    return last;
}
