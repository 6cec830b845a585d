/* share.c - divides buckets into partitions at block boundaries.
 *
 * A bucket has few blocks, and each partition is longer or shorter than its exact share by up to
 * half a block.  To keep these errors from adding up, shares are counted over all buckets so far.
 */
#include "exec/update/share.h"

#include <stdlib.h>

/* One pass over the updates of a bucket: rank after rank takes blocks until it has its share. */
typedef struct cutter {
    const tti_plan *plan;
    size_t *given; /* [n_ranks]: elements that ranks 0 .. r together have of the buckets before */
    int n_ranks, n_owners;
    int next; /* update */
} cutter;

/* The begin of block i; after the last one of the bucket: its end. */
static size_t begin_of(const tti_plan *plan, int i, size_t end) {
    return i < plan->n_updates ? TTI_MIN(plan->updates[i].first, end) : end;
}

static void cut(cutter *c, const tti_bucket *bucket, size_t *bounds) {
    size_t end = bucket->first + bucket->n_elems, n = (size_t)c->n_owners;
    bounds[0] = bucket->first;
    for (int r = 0; r < c->n_ranks; r++) {
        size_t due = TTI_MIN((size_t)r + 1, n) * end / n, at = bounds[r];
        while (at < end) { /* at least half of the next block is due */
            size_t next = begin_of(c->plan, c->next + 1, end);
            if (c->given[r] + (at - bucket->first) + (next - at) / 2 >= due) break;
            at = next;
            c->next++;
        }
        if (r == c->n_owners - 1) {
            while (begin_of(c->plan, c->next, end) < end) c->next++;
            at = end;
        }
        bounds[r + 1] = at;
        c->given[r] += at - bucket->first;
    }
}

static tutti_status cut_all(const tti_plan *plan, int n_owners, tti_share *share) {
    cutter c = {.plan = plan, .n_ranks = share->n_ranks, .n_owners = n_owners};
    c.given = calloc((size_t)share->n_ranks, sizeof *c.given);
    if (!c.given) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (int b = 0; b < plan->n_buckets; b++)
        cut(&c, &plan->buckets[b], share->bounds + (size_t)b * (size_t)(share->n_ranks + 1));
    free(c.given);
    return TUTTI_OK;
}

/* Partitions are adjacent, since they and blocks have multiples of 16 elements. */
static void find_places(const tti_plan *plan, tti_share *share) {
    size_t n = (size_t)share->n_ranks;
    for (int r = 0; r < share->n_ranks; r++) {
        size_t at = 0;
        for (size_t b = 0; b < (size_t)plan->n_buckets; b++) {
            const size_t *bound = share->bounds + b * (n + 1) + r;
            share->from[b * n + (size_t)r] = at;
            at += bound[1] - bound[0];
        }
        share->n_most = TTI_MAX(share->n_most, at);
    }
}

/* State lies in the order of the blocks, each at a multiple of 16 elements as its slot is. */
static void take_blocks(const tti_plan *plan, int rank, tti_share *share) {
    for (int i = 0; i < plan->n_updates; i++) {
        const tti_update_step *step = &plan->updates[i];
        const size_t *bound = tti_share_bounds(share, plan, step->first) + rank;
        if (step->first < bound[0] || step->first >= bound[1]) continue;
        share->is_own[i] = true;
        share->blocks[share->n_blocks++] = (tti_own_block){i, share->n_elems};
        share->n_elems += (step->n_elems + 15) & ~(size_t)15;
    }
}

tutti_status tti_share_init(const tti_plan *plan, int rank, int n_ranks, tti_share *share) {
    return tti_share_init_among(plan, rank, n_ranks, n_ranks, share);
}

tutti_status tti_share_init_among(const tti_plan *plan, int rank, int n_ranks, int n_owners,
                                  tti_share *share) {
    TTI_ASSERT(n_owners >= 1 && n_owners <= n_ranks);
    *share = (tti_share){.n_ranks = n_ranks};
    size_t n = (size_t)plan->n_updates + 1;
    share->bounds = calloc((size_t)plan->n_buckets * (size_t)(n_ranks + 1) + 1, sizeof(size_t));
    share->from = calloc((size_t)plan->n_buckets * (size_t)n_ranks + 1, sizeof(size_t));
    share->blocks = calloc(n, sizeof *share->blocks);
    share->is_own = calloc(n, sizeof *share->is_own);
    if (!share->bounds || !share->from || !share->blocks || !share->is_own)
        return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    TTI_TRY(cut_all(plan, n_owners, share));
    find_places(plan, share);
    take_blocks(plan, rank, share);
    return TUTTI_OK;
}

void tti_share_make_whole(const tti_plan *plan, tti_share *share) {
    for (int i = 0; i < share->n_blocks; i++)
        share->blocks[i].state = plan->updates[share->blocks[i].update].first;
    share->n_elems = plan->n_flat;
}

/* The end of the block that is nearest to the exact boundary. */
static size_t cut_near(const tti_plan *plan, size_t due) {
    size_t before = 0;
    for (int i = 0; i < plan->n_updates; i++) {
        size_t first = plan->updates[i].first;
        if (first >= due) return first - due < due - before ? first : before;
        before = first;
    }
    return plan->n_flat - due < due - before ? plan->n_flat : before;
}

tti_range tti_share_range(const tti_plan *plan, int r, int n) {
    size_t step = plan->n_flat / (size_t)n;
    return (tti_range){r == 0 ? 0 : cut_near(plan, step * (size_t)r),
                       r == n - 1 ? plan->n_flat : cut_near(plan, step * ((size_t)r + 1))};
}

tutti_status tti_share_init_range(const tti_plan *plan, int r, int n, tti_share *share) {
    tti_range keys = tti_share_range(plan, r, n);
    int n_own = 0;
    TTI_TRY(tti_share_init(plan, 0, 1, share));
    for (int i = 0; i < share->n_blocks; i++) {
        tti_own_block own = share->blocks[i];
        size_t first = plan->updates[own.update].first;
        share->is_own[own.update] = first >= keys.first && first < keys.last;
        own.state = first - keys.first;
        if (share->is_own[own.update]) share->blocks[n_own++] = own;
    }
    share->n_blocks = n_own;
    share->n_elems = share->n_most = keys.last - keys.first;
    return TUTTI_OK;
}

void tti_share_fini(tti_share *share) {
    free(share->bounds);
    free(share->from);
    free(share->blocks);
    free(share->is_own);
    *share = (tti_share){0};
}

bool tti_share_next(const tti_share *share, const tti_plan *plan, int *at, tti_share_run *run) {
    if (*at >= share->n_blocks) return false;
    const tti_own_block *own = &share->blocks[*at];
    *run = (tti_share_run){plan->updates[own->update].first, own->state, 0};
    for (; *at < share->n_blocks; ++*at, ++own) {
        const tti_update_step *step = &plan->updates[own->update];
        if (step->first - run->first != own->state - run->state) break;
        run->n_elems = step->first + step->n_elems - run->first;
    }
    return true;
}

const size_t *tti_share_bounds(const tti_share *share, const tti_plan *plan, size_t first) {
    size_t bucket = (size_t)tti_plan_find_bucket(plan, first);
    return share->bounds + bucket * (size_t)(share->n_ranks + 1);
}
