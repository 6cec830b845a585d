/* share_test.c - parts of buckets: every block has one owner, and owners have as much as is fair.
 */
#include "exec/update/flat_update.h"

#include <stdlib.h>

#include "base/philox.h"
#include "t.h"

enum { MAX_SLOTS = 40, MAX_UPDATES = 4000 };

/* A plan with nothing but slots, buckets and blocks. */
typedef struct paper {
    tti_plan plan;
    tti_slot slots[MAX_SLOTS];
    tti_bucket buckets[MAX_SLOTS];
    tti_update_step updates[MAX_UPDATES];
} paper;

static void add_slot(paper *p, size_t n_elems) {
    tti_plan *plan = &p->plan;
    for (size_t done = 0; done < n_elems; done += TTI_UPDATE_BLOCK)
        p->updates[plan->n_updates++] =
            (tti_update_step){.slot = plan->n_slots,
                              .first = plan->n_flat + done,
                              .n_elems = TTI_MIN(n_elems - done, (size_t)TTI_UPDATE_BLOCK)};
    assert_true(plan->n_updates < MAX_UPDATES);
    p->slots[plan->n_slots++] = (tti_slot){.first = plan->n_flat, .n_elems = n_elems};
    plan->n_flat += (n_elems + 15) & ~(size_t)15;
}

/* Slots of 1 .. most elements; a bucket ends after about every third one. */
static paper *draw_plan(uint64_t seed, size_t most) {
    paper *p = calloc(1, sizeof *p);
    p->plan.slots = p->slots;
    p->plan.buckets = p->buckets;
    p->plan.updates = p->updates;
    for (uint64_t i = 0; i < MAX_SLOTS; i++) {
        tti_philox draw = tti_philox_draw(seed, 1, i);
        tti_bucket *bucket = &p->buckets[p->plan.n_buckets];
        if (bucket->n_elems == 0) bucket->first = p->plan.n_flat;
        add_slot(p, draw.v[0] % 3 ? 1 + draw.v[1] % 400 : 1 + draw.v[1] % most);
        bucket->n_elems = p->plan.n_flat - bucket->first;
        if (draw.v[2] % 3 == 0 || i + 1 == MAX_SLOTS) p->plan.n_buckets++;
    }
    return p;
}

/* Owners of the bytes between the blocks of rank: none of another's. */
static void check_rank(const paper *p, const tti_share *share, int rank, int *owner) {
    size_t state = 0;
    for (int i = 0; i < share->n_blocks; i++) {
        const tti_own_block *own = &share->blocks[i];
        const tti_update_step *step = &p->updates[own->update];
        const size_t *bounds = tti_share_bounds(share, &p->plan, step->first);
        T_EQ(owner[own->update], -1);
        owner[own->update] = rank;
        assert_true(share->is_own[own->update]);
        assert_true(own->state == state && state % 16 == 0);
        assert_true(step->first >= bounds[rank] && step->first + step->n_elems <= bounds[rank + 1]);
        state += (step->n_elems + 15) & ~(size_t)15;
        if (share->n_ranks == 1) T_EQ(own->state, step->first);
    }
    T_EQ(share->n_elems, state);
}

static void check_bounds(const paper *p, const tti_share *share) {
    size_t n = (size_t)share->n_ranks;
    for (int b = 0; b < p->plan.n_buckets; b++) {
        const size_t *bounds = share->bounds + (size_t)b * (n + 1);
        T_EQ(bounds[0], p->buckets[b].first);
        T_EQ(bounds[n], p->buckets[b].first + p->buckets[b].n_elems);
        for (size_t r = 0; r < n; r++) assert_true(bounds[r] <= bounds[r + 1]);
    }
}

static void check_division(const paper *p, int n_ranks, int n_owners) {
    int owner[MAX_UPDATES];
    size_t n_all = 0;
    for (int i = 0; i < p->plan.n_updates; i++) owner[i] = -1;
    for (int r = 0; r < n_ranks; r++) {
        tti_share share;
        T_OK(tti_share_init_among(&p->plan, r, n_ranks, n_owners, &share));
        check_bounds(p, &share);
        check_rank(p, &share, r, owner);
        double fair = r < n_owners ? (double)p->plan.n_flat / n_owners : 0;
        if (r >= n_owners) T_EQ(share.n_blocks, 0);
        if (fabs((double)share.n_elems - fair) > TTI_UPDATE_BLOCK)
            fail_msg("W %d: rank %d has %zu elements instead of %.0f", n_ranks, r, share.n_elems,
                     fair);
        n_all += share.n_elems;
        tti_share_fini(&share);
    }
    T_EQ(n_all, p->plan.n_flat);
    for (int i = 0; i < p->plan.n_updates; i++) assert_true(owner[i] >= 0);
}

T_CASE(every_block_has_one_owner) {
    T_UNUSED;
    static const int ranks[] = {1, 2, 3, 4, 5, 7, 8, 16, 61, 64};
    for (uint64_t seed = 0; seed < 6; seed++) {
        paper *p = draw_plan(seed, seed % 2 ? 3000000 : 30000);
        for (size_t i = 0; i < TTI_COUNT(ranks); i++) {
            check_division(p, ranks[i], ranks[i]);
            check_division(p, ranks[i], 1 + (int)seed % ranks[i]);
        }
        free(p);
    }
}

T_CASE(one_small_parameter) {
    T_UNUSED;
    paper *p = calloc(1, sizeof *p);
    p->plan.slots = p->slots;
    p->plan.buckets = p->buckets;
    p->plan.updates = p->updates;
    add_slot(p, 1);
    p->buckets[0] = (tti_bucket){.n_elems = p->plan.n_flat};
    p->plan.n_buckets = 1;
    for (int w = 1; w <= 64; w++) {
        check_division(p, w, w);
        check_division(p, w, 1);
    }
    free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_block_has_one_owner),
        cmocka_unit_test(one_small_parameter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
