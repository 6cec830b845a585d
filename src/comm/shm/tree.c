/* tree.c - barrier and agreement of a large group: up a tree of the ranks and down again.
 *
 * The parent of a rank is the rank without its lowest set bit, so rank r stands for the ranks r ..
 * r + 2^k - 1, k zeros at the end of r, and has at most k children.  A rank looks at its children
 * and its parent only: log2 of the ranks at most, where every rank of a small group looks at every
 * other.  Sums on the way up are those of tti_sum_order_ranks: its subtrees are these, and subtrees
 * that are missing at the right end are missing in both. */
#include <string.h>

#include "comm/local_sum.h"
#include "comm/shm/shm.h"

static bool has_gathered(const shm_state *s, const void *arg) {
    const shm_arrival *a = arg;
    return atomic_load(&shm_rank_of(s->header, a->rank)->gathered) >= a->count;
}

static bool has_released(const shm_state *s, const void *arg) {
    const shm_arrival *a = arg;
    return atomic_load(&shm_rank_of(s->header, a->rank)->released) >= a->count;
}

static int parent_of(int rank) { return rank & (rank - 1); }

/* The distance of the first child that does not exist. */
static int end_of_children(const shm_state *s) {
    int step = 1;
    while (!(s->rank & step) && s->rank + step < s->n_ranks) step *= 2;
    return step;
}

/* Adds the subtree of a child to the record of this rank. */
static void merge(const shm_state *s, const tti_offer *mine, int child) {
    shm_record *own = tti_shm_record_of(s, s->rank);
    const shm_record *other = tti_shm_record_of(s, child);
    bool differs = memcmp(&own->call, &other->call, sizeof own->call) != 0;
    if (own->odd_rank < 0) own->odd_rank = differs ? child : other->odd_rank;
    own->is_seen &= other->is_seen;
    if (mine->n_sum)
        tti_combine(mine->wide, mine->sum_op, own->sum, own->sum, other->sum, mine->n_sum);
}

/* Waits for the subtree of this rank; mine NULL: a barrier. */
static tutti_status gather(shm_state *s, const tti_offer *mine) {
    s->n_arrived++;
    atomic_store(&s->me->arrived, s->n_arrived);
    int end = end_of_children(s);
    for (int step = 1; step < end; step *= 2) {
        TTI_TRY(tti_shm_wait_for_arrival(s, has_gathered, s->rank + step));
        if (mine) merge(s, mine, s->rank + step);
    }
    if (s->rank == 0) return TUTTI_OK;
    atomic_store(&s->me->gathered, s->n_arrived);
    tti_shm_ring(s->header, s->rank, parent_of(s->rank));
    return TUTTI_OK;
}

/* The largest subtree first, which takes the longest. */
static tutti_status release(shm_state *s) {
    if (s->rank > 0) TTI_TRY(tti_shm_wait_for_arrival(s, has_released, parent_of(s->rank)));
    atomic_store(&s->me->released, s->n_arrived);
    for (int step = end_of_children(s) / 2; step > 0; step /= 2)
        tti_shm_ring(s->header, s->rank, s->rank + step);
    return TUTTI_OK;
}

tutti_status tti_shm_tree_barrier(shm_state *s) {
    TTI_TRY(gather(s, NULL));
    return release(s);
}

tutti_status tti_shm_tree_agree(shm_state *s, const tti_offer *mine, tti_agreement *out) {
    shm_record *own = tti_shm_record_of(s, s->rank);
    own->odd_rank = -1;
    own->is_seen = true;
    for (int i = 0; i < mine->n_bufs; i++) own->is_seen &= own->bufs[i] != 0;
    if (mine->n_sum) memcpy(own->sum, mine->inline_data, mine->inline_bytes);
    TTI_TRY(gather(s, mine));
    if (mine->conclude && s->rank == 0 && own->odd_rank < 0) mine->conclude(mine->user, own->sum);
    TTI_TRY(release(s));
    const shm_record *root = tti_shm_record_of(s, 0);
    *out = (tti_agreement){.direct = root->is_seen, .odd_rank = root->odd_rank};
    if (out->odd_rank < 0 || out->odd_rank >= s->n_ranks) return TUTTI_OK;
    out->first = root->call;
    out->odd = tti_shm_record_of(s, out->odd_rank)->call;
    return TUTTI_OK;
}
