/* peak.c - computes the peak of live activation bytes without placing them.
 *
 * The rules are memplan.c's, the answer is its lower bound: packing may add a little fragmentation;
 * but values that neighbours.c finds are counted here and take no bytes there.  Two walks over the
 * order: the first finds the live ranges, the second lets ops write in place over dying inputs. */
#include "passes/memory/peak.h"

#include <stdlib.h>

#include "passes/passes.h"

enum { ALIGN = 64 };

typedef struct live_range {
    int first, last; /* places in the order */
    size_t n_bytes;  /* 0: has its bytes elsewhere */
} live_range;

typedef struct peak {
    const tutti_graph *g;
    live_range *ranges; /* by place of the node and output */
    int n_ranges;
    int *now;    /* [n_values]: the live_range that holds a value at this point of a walk */
    bool *fixed; /* [n_values]: an output of the graph */
} peak;

size_t tti_arena_bytes(const tutti_value *value) {
    return (tti_value_n_bytes(value) + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

/* Takes the next ranges, in the same order in every walk. */
static void name_results(peak *p, const tti_node *node) {
    for (int k = 0; k < node->op->n_out; k++) {
        bool view = (node->op->traits & TTI_VIEW) != 0;
        p->now[node->out[k]->id] = view ? p->now[node->in[0]->id] : p->n_ranges++;
    }
}

static bool runs(const tti_node *node) { return !(node->op->traits & (TTI_SOURCE | TTI_VIEW)); }

static void find_lives(peak *p, const tti_node *const *order, int n) {
    p->n_ranges = 0;
    for (int e = 0; e < n; e++) {
        const tti_node *node = order[e];
        for (int i = 0; runs(node) && i < node->n_in; i++)
            p->ranges[p->now[node->in[i]->id]].last = e;
        name_results(p, node);
        for (int k = 0; runs(node) && k < node->op->n_out; k++) {
            const tutti_value *out = node->out[k];
            size_t n_bytes = p->fixed[out->id] ? 0 : tti_arena_bytes(out);
            p->ranges[p->now[out->id]] = (live_range){.first = e, .last = e, .n_bytes = n_bytes};
        }
    }
}

/* The live_range of in 0, where the node at place e may write over it; else -1. */
static int range_to_reuse(const peak *p, const tti_node *node, int e) {
    if (!(node->op->traits & TTI_IN_PLACE)) return -1;
    const tutti_value *in = node->in[0], *out = node->out[0];
    int from = p->now[in->id];
    for (int i = 1; i < node->n_in; i++)
        if (p->now[node->in[i]->id] == from) return -1;
    bool fits = p->ranges[from].n_bytes == tti_arena_bytes(out) && !p->fixed[out->id] &&
                tti_value_n_bytes(in) == tti_value_n_bytes(out) && in->layout == out->layout;
    return fits && p->ranges[from].n_bytes > 0 && p->ranges[from].last == e ? from : -1;
}

static void share_in_place(peak *p, const tti_node *const *order, int n) {
    p->n_ranges = 0;
    for (int e = 0; e < n; e++) {
        const tti_node *node = order[e];
        int from = range_to_reuse(p, node, e);
        name_results(p, node);
        if (from < 0) continue;
        live_range *to = &p->ranges[p->now[node->out[0]->id]];
        p->ranges[from].last = to->last;
        to->n_bytes = 0;
        p->now[node->out[0]->id] = from;
    }
}

/* grown, freed [n + 1]: bytes that begin at a place, and that ended before it. */
static tti_peak highest(const peak *p, size_t *grown, size_t *freed, int n) {
    tti_peak top = {0};
    size_t live = 0;
    for (int i = 0; i < p->n_ranges; i++) {
        grown[p->ranges[i].first] += p->ranges[i].n_bytes;
        freed[p->ranges[i].last + 1] += p->ranges[i].n_bytes;
    }
    for (int e = 0; e < n; e++) {
        live += grown[e] - freed[e];
        if (live > top.n_bytes) top = (tti_peak){live, e};
    }
    return top;
}

static tti_peak find_peak(peak *p, const tti_node *const *order, int n, size_t *grown,
                          size_t *freed) {
    for (int i = 0; i < p->g->n_outputs; i++)
        p->fixed[tti_skip_views(p->g->outputs[i].value)->id] = true;
    find_lives(p, order, n);
    share_in_place(p, order, n);
    return highest(p, grown, freed, n);
}

tutti_status tti_peak_of(const tutti_graph *g, const tti_node *const *order, int n, tti_peak *out) {
    peak p = {.g = g};
    size_t n_results = 1, n_values = (size_t)g->n_values + 1, n_places = (size_t)n + 1;
    for (int e = 0; e < n; e++) n_results += (size_t)order[e]->op->n_out;
    p.ranges = calloc(n_results, sizeof *p.ranges);
    p.now = calloc(n_values, sizeof *p.now);
    p.fixed = calloc(n_values, sizeof *p.fixed);
    size_t *grown = calloc(n_places, sizeof *grown), *freed = calloc(n_places, sizeof *freed);
    bool ok = p.ranges && p.now && p.fixed && grown && freed;
    if (ok) *out = find_peak(&p, order, n, grown, freed);
    free(p.ranges);
    free(p.now);
    free(p.fixed);
    free(grown);
    free(freed);
    return ok ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "peak: out of memory");
}

tutti_status tti_graph_peak_bytes(const tutti_graph *g, size_t *n_bytes) {
    tti_peak top;
    TTI_TRY(tti_peak_of(g, (const tti_node *const *)g->nodes, g->n_nodes, &top));
    *n_bytes = top.n_bytes;
    return TUTTI_OK;
}
