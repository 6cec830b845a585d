/* tree.c - barrier and agreement of a large group: arrivals go up a tree of ranks, one wake
 * releases all ranks.
 *
 * The parent of a rank is the rank without its lowest set bit, so the subtree of rank r consists of
 * ranks r .. r + 2^k - 1, if r ends with k zero bits, and r has at most k children.  No rank waits
 * on the way up: among a rank and its children's subtrees, the last to arrive merges their records
 * into the rank's record and continues at the parent.  So each rank sleeps once, until rank 0 wakes
 * all of them through their shared bell.  With more ranks than cores, sleeping and waking is nearly
 * the whole cost.
 *
 * Sums on the way up use the order of tti_sum_order_ranks, which has the same subtrees, also where
 * subtrees are missing at the right end.  The result does not depend on the rank that performs an
 * addition. */
#include <string.h>

#include "comm/local_sum.h"
#include "comm/shm/shm.h"

static bool has_gathered(const shm_state *s, const void *unused) {
    (void)unused;
    return atomic_load(&s->header->gathered) >= s->n_arrived;
}

static bool is_released(const shm_state *s, const void *unused) {
    (void)unused;
    return atomic_load(&s->header->released) >= s->n_arrived;
}

/* Merges the record of a child's subtree into the record of its parent. */
static void merge(const shm_state *s, const tti_offer *mine, int parent, int child) {
    shm_record *own = tti_shm_record_of(s, parent);
    const shm_record *other = tti_shm_record_of(s, child);
    bool differs = memcmp(&own->call, &other->call, sizeof own->call) != 0;
    if (own->odd_rank < 0) own->odd_rank = differs ? child : other->odd_rank;
    own->is_seen &= other->is_seen;
    if (mine->n_sum)
        tti_combine(mine->wide, mine->sum_op, own->sum, own->sum, other->sum, mine->n_sum);
}

/* Counts an arrival at a rank.  Returns true if it was the last one of this round. */
static bool completes(const shm_state *s, int rank) {
    int end = tti_shm_end_of_children(s, rank);
    uint64_t n_arrivals = 1;
    for (int step = 1; step < end; step *= 2) n_arrivals++;
    uint64_t before = atomic_fetch_add(&shm_rank_of(s->header, rank)->n_gathered, 1);
    return before + 1 == n_arrivals * s->n_arrived;
}

/* Goes up the tree as long as all ranks below have arrived. mine NULL: a barrier. */
static void arrive(shm_state *s, const tti_offer *mine) {
    s->n_arrived++;
    atomic_store(&s->me->arrived, s->n_arrived);
    for (int rank = s->rank; completes(s, rank); rank = tti_shm_parent_of(rank)) {
        int end = tti_shm_end_of_children(s, rank);
        for (int step = 1; mine && step < end; step *= 2) merge(s, mine, rank, rank + step);
        if (rank > 0) continue;
        atomic_store(&s->header->gathered, s->n_arrived);
        if (s->rank > 0) tti_shm_ring(s->header, s->rank, 0);
        return;
    }
}

/* Rank 0 waits for all ranks and releases them; other ranks wait for the release. mine NULL: a
 * barrier. */
static tutti_status wait_for_all(shm_state *s, const tti_offer *mine) {
    const shm_wait all = {has_gathered, NULL, SHM_ANY_RANK, SHM_NO_RANK};
    const shm_wait end = {is_released, NULL, SHM_RELEASE, SHM_NO_RANK};
    arrive(s, mine);
    if (s->rank > 0) return is_released(s, NULL) ? TUTTI_OK : tti_shm_wait_for(s, &end);
    if (!has_gathered(s, NULL)) TTI_TRY(tti_shm_wait_for(s, &all));
    shm_record *own = tti_shm_record_of(s, 0);
    if (mine && mine->conclude && own->odd_rank < 0) mine->conclude(mine->user, own->sum);
    atomic_store(&s->header->released, s->n_arrived);
    tti_shm_ring_release(s->header);
    return TUTTI_OK;
}

tutti_status tti_shm_tree_barrier(shm_state *s) { return wait_for_all(s, NULL); }

tutti_status tti_shm_tree_agree(shm_state *s, const tti_offer *mine, tti_agreement *out) {
    shm_record *own = tti_shm_record_of(s, s->rank);
    own->odd_rank = -1;
    own->is_seen = true;
    for (int i = 0; i < mine->n_bufs; i++) own->is_seen &= own->bufs[i] != 0;
    if (mine->n_sum) memcpy(own->sum, mine->inline_data, mine->inline_bytes);
    TTI_TRY(wait_for_all(s, mine));
    const shm_record *root = tti_shm_record_of(s, 0);
    *out = (tti_agreement){.direct = root->is_seen, .odd_rank = root->odd_rank};
    if (out->odd_rank < 0 || out->odd_rank >= s->n_ranks) return TUTTI_OK;
    out->first = root->call;
    out->odd = tti_shm_record_of(s, out->odd_rank)->call;
    return TUTTI_OK;
}
