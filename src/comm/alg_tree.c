/* alg_tree.c - recursive halving up the canonical tree, then an all-gather.
 *
 * The sum of each tree node is distributed over owners, each with a range.  Two siblings with the
 * same distribution halve every range between them (recursive halving).  If they differ, at the
 * right edge of the tree, the right one adds its ranges to the owners of the left.  The additions
 * are exactly those of tti_sum_order, left operand first, so the bits are those of the direct
 * algorithm.  Partial sums of f16 and bf16 are sent as f32, unless each of them is rounded. */
#include <stdlib.h>
#include <string.h>

#include "comm/algorithm.h"

enum { TREE_BLOCK_ELEMS = 1 << 17 };

typedef struct owner {
    int rank, partial;
    size_t lo, hi; /* elements of the block */
} owner;

/* A range that one owner sends to another, which adds it to its own. */
typedef struct transfer {
    int round; /* transfers of one round run together */
    owner to;  /* the receiver, with the range */
    int from_rank, from_partial;
    bool is_left; /* the range sent is the left operand */
} transfer;

/* A node on the stack: its owners are owners[first .. first+n), ordered by range. */
typedef struct node {
    int first, n, round;
} node;

typedef struct plan {
    owner *owners;
    int n_owners;
    transfer *transfers;
    int n_transfers, n_rounds;
    int cap; /* capacity of both arrays, set by plan_create */
} plan;

static void plan_destroy(plan *p) {
    free(p->owners);
    free(p->transfers);
}

static tutti_status plan_create(int n_terms, plan *p) {
    *p = (plan){0};
    /* A level has at most n_terms owners and 2 * n_terms transfers. */
    size_t cap = (size_t)n_terms * 2 * TTI_SUM_DEPTH;
    p->owners = calloc(cap, sizeof *p->owners);
    p->transfers = calloc(cap, sizeof *p->transfers);
    p->cap = (int)cap;
    if (p->owners && p->transfers) return TUTTI_OK;
    plan_destroy(p);
    return tti_fail(TUTTI_E_NOMEM, "comm: out of memory for a tree of %d terms", n_terms);
}

static void add_owner(plan *p, owner o) {
    TTI_ASSERT(p->n_owners < p->cap);
    p->owners[p->n_owners++] = o;
}

static void add_transfer(plan *p, int round, const owner *from, owner to, bool is_left) {
    if (to.lo == to.hi) return;
    TTI_ASSERT(p->n_transfers < p->cap);
    p->transfers[p->n_transfers++] = (transfer){round, to, from->rank, from->partial, is_left};
}

static bool owners_alike(const owner *a, const owner *b, int n_a, int n_b) {
    if (n_a != n_b) return false;
    for (int i = 0; i < n_a; i++) {
        if (a[i].lo != b[i].lo || a[i].hi != b[i].hi) return false;
        for (int k = 0; k < n_b; k++)
            if (a[i].rank == b[k].rank) return false;
    }
    return true;
}

/* Left owners keep the lower half of each range, right owners the upper half. */
static void halve(plan *p, const node *a, const node *b, int round) {
    for (int i = 0; i < a->n; i++) {
        owner left = p->owners[a->first + i], right = p->owners[b->first + i];
        size_t mid =
            left.lo + TTI_MIN(((left.hi - left.lo) / 2 + 63) & ~(size_t)63, left.hi - left.lo);
        left.hi = right.lo = mid;
        add_transfer(p, round, &right, left, false);
        add_transfer(p, round, &left, right, true);
        add_owner(p, left);
        add_owner(p, right);
    }
}

/* The left owners add the ranges of the right owners. */
static void fold(plan *p, const node *a, const node *b, int round) {
    for (int i = 0; i < a->n; i++) {
        owner left = p->owners[a->first + i];
        add_owner(p, left);
        for (int k = 0; k < b->n; k++) {
            const owner *right = &p->owners[b->first + k];
            owner to = left;
            to.lo = TTI_MAX(left.lo, right->lo);
            to.hi = TTI_MAX(to.lo, TTI_MIN(left.hi, right->hi));
            add_transfer(p, round, right, to, false);
        }
    }
}

/* Runs the stack machine of order on sets of owners instead of numbers; *result holds the owners of
 * the sum. */
static void plan_build(plan *p, const tti_sum_order *order, size_t n_elems, node *result) {
    node stack[TTI_SUM_DEPTH] = {{0}};
    int n = 0;
    p->n_owners = p->n_transfers = p->n_rounds = 0;
    for (int t = 0; t < order->n_terms; t++) {
        stack[n++] = (node){p->n_owners, 1, 0};
        add_owner(p, (owner){order->terms[t].rank, order->terms[t].partial, 0, n_elems});
        for (int k = order->terms[t].n_adds; k > 0; k--, n--) {
            const node *a = &stack[n - 2], *b = &stack[n - 1];
            node sum = {p->n_owners, 0, TTI_MAX(a->round, b->round) + 1};
            if (owners_alike(p->owners + a->first, p->owners + b->first, a->n, b->n))
                halve(p, a, b, sum.round);
            else
                fold(p, a, b, sum.round);
            sum.n = p->n_owners - sum.first;
            p->n_rounds = TTI_MAX(p->n_rounds, sum.round);
            stack[n - 2] = sum;
        }
    }
    *result = stack[0];
}

/* The state during the run: one block of every partial sum of this rank, in the wide dtype. */
typedef struct tree {
    const tti_work *work;
    plan plan;
    node result;
    tutti_dtype wide;
    size_t elem, wide_elem;
    size_t first, n_elems;        /* the block                                          */
    char *sums[TTI_MAX_PARTIALS]; /* by partial sum                                           */
    unsigned char *inbox;         /* receive buffer of a round, n_partials blocks */
    unsigned char *blocks;        /* memory of the sums if the terms may not be changed */
} tree;

static char *range_of(const tree *t, const transfer *x, int partial) {
    return t->sums[partial] + x->to.lo * t->wide_elem;
}

static tutti_status run_round(const tree *t, int round) {
    tutti_comm *comm = t->work->comm;
    int rank = tutti_comm_rank(comm);
    tti_message *messages = tti_comm_messages(comm, t->plan.n_transfers);
    if (!messages) return TUTTI_E_NOMEM;
    unsigned char *inbox = t->inbox;
    int n = 0;
    for (int i = 0; i < t->plan.n_transfers; i++) {
        const transfer *x = &t->plan.transfers[i];
        size_t n_bytes = (x->to.hi - x->to.lo) * t->wide_elem;
        if (x->round != round || x->from_rank == x->to.rank) continue;
        if (x->from_rank == rank) {
            messages[n++] = (tti_message){
                .peer = x->to.rank, .out = range_of(t, x, x->from_partial), .n_bytes = n_bytes};
        } else if (x->to.rank == rank) {
            messages[n++] = (tti_message){.peer = x->from_rank, .in = inbox, .n_bytes = n_bytes};
            inbox += n_bytes;
        }
    }
    TTI_TRY(tti_comm_send_recv(comm, messages, n));
    inbox = t->inbox;
    for (int i = 0; i < t->plan.n_transfers; i++) {
        const transfer *x = &t->plan.transfers[i];
        size_t n_elems = x->to.hi - x->to.lo;
        if (x->round != round || x->to.rank != rank) continue;
        char *own = range_of(t, x, x->to.partial);
        const void *other = inbox;
        if (x->from_rank == rank)
            other = range_of(t, x, x->from_partial);
        else
            inbox += n_elems * t->wide_elem;
        tti_combine(t->wide, t->work->op, own, x->is_left ? other : own, x->is_left ? own : other,
                    n_elems);
    }
    return TUTTI_OK;
}

/* The part of an owner's range that rank needs, in elements of the block. */
static owner wanted(const tree *t, const owner *o, int rank) {
    const size_t *partition = t->work->bounds ? t->work->bounds + rank : NULL;
    owner want = *o;
    if (!partition) return want;
    want.lo = TTI_MAX(o->lo, TTI_MAX(partition[0], t->first) - t->first);
    want.hi = TTI_MAX(want.lo, TTI_MIN(o->hi, TTI_MAX(partition[1], t->first) - t->first));
    return want;
}

/* Owners write their ranges into dst and send each rank the elements that it needs. */
static tutti_status gather(const tree *t) {
    tutti_comm *comm = t->work->comm;
    int rank = tutti_comm_rank(comm), n_ranks = tutti_comm_n_ranks(comm);
    char *dst = (char *)t->work->dst + t->first * t->elem;
    tti_message *messages = tti_comm_messages(comm, t->result.n * n_ranks);
    if (!messages) return TUTTI_E_NOMEM;
    int n = 0;
    for (int i = 0; i < t->result.n; i++) {
        const owner *o = &t->plan.owners[t->result.first + i];
        if (o->rank != rank) {
            owner want = wanted(t, o, rank);
            messages[n++] = (tti_message){.peer = o->rank,
                                          .in = dst + want.lo * t->elem,
                                          .n_bytes = (want.hi - want.lo) * t->elem};
            continue;
        }
        const char *sum = t->sums[o->partial] + o->lo * t->wide_elem;
        if (sum != dst + o->lo * t->elem)
            tti_sum_result(t->work->dtypes, sum, dst + o->lo * t->elem, o->hi - o->lo);
        for (int k = 1; k < n_ranks; k++) {
            int peer = (rank + k) % n_ranks;
            owner want = wanted(t, o, peer);
            messages[n++] = (tti_message){.peer = peer,
                                          .out = dst + want.lo * t->elem,
                                          .n_bytes = (want.hi - want.lo) * t->elem};
        }
    }
    return tti_comm_send_recv(comm, messages, n);
}

/* Points sums at the block of every partial sum: at the terms themselves if they may be changed. */
static void load_block(tree *t) {
    const tti_work *w = t->work;
    for (int k = 0; k < w->n_partials; k++) {
        const char *term = (const char *)w->bufs[k] + t->first * t->elem;
        if (t->wide != w->dtypes.term) {
            t->sums[k] = (char *)t->blocks + (size_t)k * TREE_BLOCK_ELEMS * t->wide_elem;
            tti_widen(w->dtypes.term, term, t->sums[k], t->n_elems);
        } else if (w->keeps_terms) { /* a single partial sum can use dst */
            t->sums[k] = (char *)w->dst + t->first * t->elem;
            if (t->sums[k] != term) memcpy(t->sums[k], term, t->n_elems * t->elem);
        } else {
            t->sums[k] = (char *)w->bufs[k] + t->first * t->elem;
        }
    }
}

static tutti_status run_blocks(tree *t) {
    for (t->first = 0; t->first < t->work->n_elems; t->first += TREE_BLOCK_ELEMS) {
        size_t n_elems = TTI_MIN(t->work->n_elems - t->first, (size_t)TREE_BLOCK_ELEMS);
        if (n_elems != t->n_elems) plan_build(&t->plan, t->work->order, n_elems, &t->result);
        t->n_elems = n_elems;
        load_block(t);
        for (int round = 1; round <= t->plan.n_rounds; round++) TTI_TRY(run_round(t, round));
        TTI_TRY(gather(t));
    }
    return TUTTI_OK;
}

tutti_status tti_tree_reduce(const tti_work *work) {
    tree t = {.work = work, .wide = work->dtypes.sum};
    t.elem = tutti_dtype_bytes(work->dtypes.term);
    t.wide_elem = tutti_dtype_bytes(t.wide);
    size_t n_bytes = TTI_MIN(work->n_elems, (size_t)TREE_BLOCK_ELEMS) * t.wide_elem;
    size_t n_blocks = (size_t)work->n_partials;
    size_t n_own = t.wide != work->dtypes.term ? n_blocks * TREE_BLOCK_ELEMS * t.wide_elem : 0;
    t.inbox = tti_comm_scratch(work->comm, n_own + n_blocks * n_bytes);
    if (!t.inbox) return TUTTI_E_NOMEM;
    t.blocks = t.inbox + n_blocks * n_bytes;
    TTI_TRY(plan_create(work->order->n_terms, &t.plan));
    tutti_status st = run_blocks(&t);
    plan_destroy(&t.plan);
    return st;
}
