/* recompute.c - recomputes activations in the backward pass instead of keeping them.
 *
 * This is the last pass: it copies the nodes that will run, fused and in their layouts, so the
 * second run has the bits of the first (random ops draw by key, not by turn).  A set of "dropped"
 * nodes determines everything.  Before a backward node reads a dropped result, its producer is
 * repeated, after those of its inputs that are dropped too.  Sets are evaluated without a graph
 * (peak.c); only the chosen one becomes a graph.
 *
 * By block (Chen et al. 2016): finds boundaries that few bytes cross by counting, keeps the
 * stage boundary values, and drops the rest except for the last block.  By budget: drops the nodes
 * that are idle at the peak one after the other, the most bytes per operation first.  Light:
 * likewise, but only nodes that do little more than move bytes, without a target size. */
#include <stdlib.h>
#include <string.h>

#include "passes/memory/peak.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

/* Light: operations and bytes moved for each byte saved, including the node's dropped inputs.  A
 * batch norm with its activation takes 4, a layer norm or a GELU up to 9, a product hundreds. */
static const double LIGHT = 16;

typedef struct recompute {
    const tutti_graph *g;
    bool *forward;          /* [n_nodes]: an output other than the gradients depends on it */
    bool *fixed;            /* [n_nodes]: must not run twice, or has its bytes elsewhere */
    bool *dropped;          /* [n_nodes]: the set; a view is dropped with its base */
    bool *barred;           /* [n_nodes]: did no good in the set */
    bool *is_again;         /* [n_nodes]: has been made again while the order is written */
    const tti_node **order; /* [2 n_nodes] */
    bool *second;           /* [2 n_nodes]: this place is the second run of its node */
    int n_order;
    tti_peak peak; /* of the order */
} recompute;

/* ---- the order that follows from a set ---- */

static void append(recompute *r, const tti_node *node, bool second) {
    r->second[r->n_order] = second;
    r->order[r->n_order++] = node;
}

static void make_again(recompute *r, const tti_node *node) {
    if (!r->dropped[node->id] || r->is_again[node->id]) return;
    r->is_again[node->id] = true;
    for (int i = 0; i < node->n_in; i++) make_again(r, node->in[i]->node);
    append(r, node, true);
}

static tutti_status write_order(recompute *r) {
    const tutti_graph *g = r->g;
    r->n_order = 0;
    memset(r->is_again, 0, (size_t)g->n_nodes * sizeof *r->is_again);
    for (int n = 0; n < g->n_nodes; n++) {
        const tti_node *node = g->nodes[n];
        if (node->op->traits & TTI_VIEW) r->dropped[n] = r->dropped[node->in[0]->node->id];
        for (int i = 0; !r->forward[n] && i < node->n_in; i++) make_again(r, node->in[i]->node);
        append(r, node, false);
    }
    return tti_peak_of(g, r->order, r->n_order, &r->peak);
}

static tutti_status apply(const recompute *r, tutti_graph **g) {
    tti_rewrite rw;
    TTI_TRY(tti_rewrite_begin(&rw, *g));
    for (int e = 0; e < r->n_order; e++) tti_rewrite_copy(&rw, r->order[e]);
    return tti_rewrite_finish(&rw, g);
}

/* ---- properties of the graph ---- */

static void find_forward(recompute *r) {
    const tutti_graph *g = r->g;
    for (int i = 0; i < g->n_outputs; i++) {
        r->fixed[tti_skip_views(g->outputs[i].value)->node->id] = true;
        if (strncmp(g->outputs[i].name, "grad.", 5) != 0 &&
            strncmp(g->outputs[i].name, "back.", 5) != 0)
            r->forward[g->outputs[i].value->node->id] = true;
    }
    for (int n = g->n_nodes - 1; n >= 0; n--) {
        const tti_node *node = g->nodes[n];
        for (int i = 0; r->forward[n] && i < node->n_in; i++)
            r->forward[node->in[i]->node->id] = true;
        if (node->op->traits & (TTI_SOURCE | TTI_VIEW | TTI_UPDATE | TTI_SYNC | TTI_COLLECTIVE))
            r->fixed[n] = true;
    }
}

static bool can_drop(const recompute *r, int n) { return r->forward[n] && !r->fixed[n]; }

static size_t node_bytes(const tti_node *node) {
    size_t n_bytes = 0;
    for (int k = 0; k < node->op->n_out; k++) n_bytes += tti_arena_bytes(node->out[k]);
    return n_bytes;
}

/* Positions in the order at which a node's results are made, last read forward and first read
 * backward; -1 and INT32_MAX: nowhere. */
typedef struct reads {
    int made, last_forward, first_backward;
} reads;

static void find_reads(const recompute *r, reads *of) {
    for (int n = 0; n < r->g->n_nodes; n++) of[n] = (reads){-1, -1, INT32_MAX};
    for (int e = 0; e < r->n_order; e++) {
        const tti_node *node = r->order[e];
        bool forward = r->forward[node->id] && !r->second[e];
        if (!r->second[e]) of[node->id].made = e;
        if (node->op->traits & TTI_VIEW) continue;
        for (int i = 0; i < node->n_in; i++) {
            reads *in = &of[tti_skip_views(node->in[i])->node->id];
            if (forward)
                in->last_forward = e;
            else
                in->first_backward = TTI_MIN(in->first_backward, e);
        }
    }
}

/* ---- by block ---- */

/* Bytes that cross from each node to those after it, in the forward pass; and bytes that the
 * backward pass reads, summed up to each node. */
static void find_boundaries(const recompute *r, const reads *of, size_t *cross, size_t *kept) {
    int n_nodes = r->g->n_nodes;
    for (int n = 0; n < n_nodes; n++) {
        size_t n_bytes = can_drop(r, n) ? node_bytes(r->g->nodes[n]) : 0;
        bool read_later = of[n].first_backward != INT32_MAX;
        kept[n] = (n ? kept[n - 1] : 0) + (read_later ? n_bytes : 0);
        for (int i = n; n_bytes && i < of[n].last_forward; i++) cross[i] += n_bytes;
    }
}

/* Keeps what crosses from node cut on. */
static void keep_boundary(recompute *r, const reads *of, int cut) {
    for (int n = 0; n <= cut; n++)
        if (of[n].last_forward > cut) r->dropped[n] = false;
}

/* Drops all but the ends of blocks of about block_bytes, and the last block. */
static void cut_blocks(recompute *r, const reads *of, const size_t *cross, const size_t *kept,
                       size_t block_bytes) {
    int n_nodes = r->g->n_nodes, best = -1, last_cut = -1;
    size_t before = 0;
    for (int n = 0; n < n_nodes; n++) r->dropped[n] = can_drop(r, n);
    for (int n = 0; n < n_nodes; n++) {
        if (!can_drop(r, n)) continue;
        size_t n_bytes = kept[n] - before;
        if (n_bytes >= block_bytes / 2 && (best < 0 || cross[n] <= cross[best])) best = n;
        if (n_bytes < block_bytes || best < 0) continue;
        keep_boundary(r, of, best);
        before = kept[best];
        last_cut = best;
        best = -1;
    }
    for (int n = last_cut + 1; n < n_nodes; n++) r->dropped[n] = false;
}

/* The block size with the lowest peak; none where no size is lower than keeping everything. */
static tutti_status choose_blocks(recompute *r, const reads *of, const size_t *cross,
                                  const size_t *kept) {
    static const size_t n_blocks[] = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};
    size_t total = r->g->n_nodes ? kept[r->g->n_nodes - 1] : 0, best_bytes = 0;
    tti_peak best = r->peak;
    for (size_t i = 0; i < TTI_COUNT(n_blocks); i++) {
        cut_blocks(r, of, cross, kept, total / n_blocks[i] + 1);
        TTI_TRY(write_order(r));
        if (r->peak.n_bytes >= best.n_bytes) continue;
        best = r->peak;
        best_bytes = total / n_blocks[i] + 1;
    }
    if (best_bytes)
        cut_blocks(r, of, cross, kept, best_bytes);
    else
        memset(r->dropped, 0, (size_t)r->g->n_nodes * sizeof *r->dropped);
    return write_order(r);
}

static tutti_status by_block(recompute *r) {
    size_t n = (size_t)r->g->n_nodes + 1;
    reads *of = calloc(n, sizeof *of);
    size_t *cross = calloc(n, sizeof *cross), *kept = calloc(n, sizeof *kept);
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "recompute: out of memory");
    if (of && cross && kept) {
        find_reads(r, of); /* of the order with nothing dropped: places are node ids */
        find_boundaries(r, of, cross, kept);
        st = choose_blocks(r, of, cross, kept);
    }
    free(of);
    free(cross);
    free(kept);
    return st;
}

/* ---- by budget ---- */

/* Operations and bytes moved to recompute node, with the dropped nodes it needs; paid marks nodes
 * that are counted already. */
static double cost_again(const recompute *r, const tti_node *node, bool *paid) {
    tti_cost cost = {0};
    if (paid[node->id]) return 0;
    paid[node->id] = true;
    if (node->op->cost) node->op->cost(node, &cost);
    double sum = cost.flops + cost.bytes;
    for (int i = 0; i < node->n_in; i++)
        if (r->dropped[node->in[i]->node->id]) sum += cost_again(r, node->in[i]->node, paid);
    return sum;
}

/* The node that lies idle over the peak with the most bytes per operation, at least min_gain; -1:
 * there is none. */
static int next_to_drop(const recompute *r, const reads *of, double min_gain, bool *paid) {
    int best = -1, at = r->peak.at;
    double best_gain = min_gain;
    for (int n = 0; n < r->g->n_nodes; n++) {
        bool idle = of[n].made < at && of[n].last_forward < at && of[n].first_backward > at &&
                    of[n].first_backward != INT32_MAX;
        if (!idle || !can_drop(r, n) || r->dropped[n] || r->barred[n]) continue;
        memset(paid, 0, (size_t)r->g->n_nodes * sizeof *paid);
        double bytes = (double)node_bytes(r->g->nodes[n]);
        double gain = bytes / (cost_again(r, r->g->nodes[n], paid) + 1);
        if (gain > best_gain) best_gain = gain, best = n;
    }
    return best;
}

static tutti_status drop_until(recompute *r, size_t budget, size_t *least, reads *of, bool *paid) {
    while (r->peak.n_bytes > budget) {
        find_reads(r, of);
        int n = next_to_drop(r, of, 0, paid);
        if (n < 0) return TUTTI_OK;
        r->dropped[n] = true;
        TTI_TRY(write_order(r));
        *least = TTI_MIN(*least, r->peak.n_bytes);
    }
    return TUTTI_OK;
}

/* Products are never light, however small. */
static void bar_products(recompute *r) {
    for (int n = 0; n < r->g->n_nodes; n++)
        r->barred[n] = (r->g->nodes[n]->op->traits & TTI_COMPUTE) != 0;
}

/* A node that does not lower the peak is kept until another one is dropped: otherwise its inputs
 * would live longer instead. */
static tutti_status drop_light(recompute *r, reads *of, bool *paid) {
    bar_products(r);
    for (;;) {
        size_t before = r->peak.n_bytes;
        find_reads(r, of);
        int n = next_to_drop(r, of, 1 / LIGHT, paid);
        if (n < 0) return TUTTI_OK;
        r->dropped[n] = true;
        TTI_TRY(write_order(r));
        if (r->peak.n_bytes < before) {
            bar_products(r);
            continue;
        }
        r->dropped[n] = false;
        r->barred[n] = true;
        TTI_TRY(write_order(r));
    }
}

/* Blocks are the way out where the greedy choice gets stuck above the budget. */
static tutti_status by_budget(recompute *r, size_t budget, reads *of, bool *paid) {
    size_t n = (size_t)r->g->n_nodes + 1, least = r->peak.n_bytes;
    tutti_status st = drop_until(r, budget, &least, of, paid);
    if (st != TUTTI_OK || r->peak.n_bytes <= budget) return st;
    memset(r->dropped, 0, n * sizeof *r->dropped);
    TTI_TRY(write_order(r));
    TTI_TRY(by_block(r));
    least = TTI_MIN(least, r->peak.n_bytes);
    if (r->peak.n_bytes <= budget) return TUTTI_OK;
    return tti_fail(TUTTI_E_INVALID,
                    "train.recompute: the activations of a shard cannot be reduced to %zu bytes; "
                    "give at least %zu",
                    budget, least);
}

/* ---- the pass ---- */

static tutti_status choose(recompute *r, const tti_target *target) {
    find_forward(r);
    TTI_TRY(write_order(r));
    if (target->recompute == TTI_RECOMPUTE_BLOCK) return by_block(r);
    size_t n = (size_t)r->g->n_nodes + 1;
    reads *of = calloc(n, sizeof *of);
    bool *paid = calloc(n, sizeof *paid);
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "recompute: out of memory");
    if (of && paid && target->recompute == TTI_RECOMPUTE_LIGHT)
        st = drop_light(r, of, paid);
    else if (of && paid)
        st = by_budget(r, target->recompute_bytes, of, paid);
    free(of);
    free(paid);
    return st;
}

tutti_status tti_pass_recompute(tutti_graph **g, const tti_target *target) {
    const tutti_graph *from = *g;
    if (target->recompute == TTI_RECOMPUTE_NONE || !from->training) return TUTTI_OK;
    size_t n = (size_t)from->n_nodes + 1;
    recompute r = {.g = *g};
    r.forward = calloc(n, sizeof *r.forward);
    r.fixed = calloc(n, sizeof *r.fixed);
    r.dropped = calloc(n, sizeof *r.dropped);
    r.barred = calloc(n, sizeof *r.barred);
    r.is_again = calloc(n, sizeof *r.is_again);
    r.order = calloc(2 * n, sizeof *r.order);
    r.second = calloc(2 * n, sizeof *r.second);
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "recompute: out of memory");
    if (r.forward && r.fixed && r.dropped && r.barred && r.is_again && r.order && r.second)
        st = choose(&r, target);
    if (st == TUTTI_OK && r.n_order > from->n_nodes) st = apply(&r, g);
    free(r.forward);
    free(r.fixed);
    free(r.dropped);
    free(r.barred);
    free(r.is_again);
    free(r.order);
    free(r.second);
    return st;
}
