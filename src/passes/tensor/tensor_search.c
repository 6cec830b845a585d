/* tensor_search.c - finds the cheapest division of a graph over a tensor axis.
 *
 * Dynamic programming over the nodes in their order.  A state holds the placement of every value
 * with later readers; networks have few such values at a time, so there are few states, and of
 * equal states the cheapest is kept.  Parameters are undecided until their first reader.  All
 * numbers follow from the graph, so every worker finds the same division. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "passes/tensor/tensor.h"

enum { MOST_STATES = 64, MOST_WAYS = 1024 };

/* Flags of a value in a state, in addition to its code: it was gathered; its gradient is summed
 * already. */
enum { HAS_WHOLE = 0x40, HAS_COPY = 0x80, CODE = 0x3f };

/* Operations that a byte of a parameter on every worker is worth: memory, and its update. */
static const double param_per_byte = 64;

typedef struct state {
    double cost;
    int trace;          /* of the last node; -1: none */
    tti_cut_code *lies; /* [n_values]; 0: undecided, or without later readers */
} state;

/* How a state was reached. */
typedef struct trace {
    int before, strategy;
} trace;

typedef struct search {
    const tutti_graph *g;
    int n;
    size_t n_values;
    bool *wanted;
    int *last_use;            /* [n_values]: node; n_nodes: an output */
    uint32_t *may;            /* [n_values]: codes that the value may be had as */
    tti_strategy *strategies; /* of all nodes, one after the other */
    int *first_way;           /* [n_nodes + 1] */
    int n_strategies, cap_strategies;
    state now[MOST_STATES], next[MOST_STATES];
    int n_now, n_next;
    tti_cut_code *pool, *draft;
    trace *traces;
    int n_traces, cap_traces;
} search;

/* ---- what values may be ---- */

static bool is_param(const tti_node *node) {
    return (node->op->traits & (TTI_PARAM | TTI_BUFFER)) != 0;
}

/* Including placements that a collective can make.  Samples, dimension 0, are never divided. */
static uint32_t reachable(uint32_t may, const tutti_shape *shape, int n) {
    bool whole = may >> TTI_CODE_WHOLE & 1, terms = may >> TTI_CODE_PARTIAL & 1;
    for (int d = 0; d < shape->n_dims; d++) {
        tti_cut_code code = tti_code_split(d, 1);
        if (may >> code & 1) whole = true;
    }
    if (whole || terms) may |= 1u << TTI_CODE_WHOLE;
    for (int d = 1; d < shape->n_dims; d++)
        if ((whole || terms) && tti_code_divides(tti_code_split(d, 1), shape, n))
            may |= 1u << tti_code_split(d, 1);
    return may;
}

/* The initial placement of a source; 0: its first reader decides. */
static tti_cut_code first_code(const tti_node *source, const tti_cuts *like) {
    if (!is_param(source)) return TTI_CODE_WHOLE;
    for (int i = 0; like && i < like->n; i++)
        if (strcmp(like->of[i].name, source->name) == 0) return tti_code_of(like->of[i].cut);
    return TTI_CODE_NONE;
}

static void find_wanted(search *s) {
    for (int i = 0; s->g->training && i < s->g->n_nodes; i++) {
        const tti_node *node = s->g->nodes[i];
        bool wanted = (node->op->traits & TTI_PARAM) != 0;
        for (int k = 0; k < node->n_in; k++) wanted = wanted || s->wanted[node->in[k]->id];
        for (int k = 0; k < node->op->n_out; k++)
            s->wanted[node->out[k]->id] = wanted && node->out[k]->type.dtype <= TUTTI_BF16;
    }
}

static void find_last_uses(search *s) {
    for (size_t v = 0; v < s->n_values; v++) s->last_use[v] = -1;
    for (int i = 0; i < s->g->n_nodes; i++)
        for (int k = 0; k < s->g->nodes[i]->n_in; k++) s->last_use[s->g->nodes[i]->in[k]->id] = i;
    for (int i = 0; i < s->g->n_outputs; i++)
        s->last_use[s->g->outputs[i].value->id] = s->g->n_nodes;
}

static tutti_status list_ways(search *s, const tti_node *node) {
    uint32_t may[TTI_MAX_IN];
    if (s->n_strategies + MOST_WAYS > s->cap_strategies) {
        int cap = 2 * s->cap_strategies + MOST_WAYS;
        tti_strategy *grown = realloc(s->strategies, (size_t)cap * sizeof *grown);
        if (!grown) return tti_fail(TUTTI_E_NOMEM, "tensor: out of memory");
        s->strategies = grown, s->cap_strategies = cap;
    }
    for (int i = 0; i < node->n_in; i++) may[i] = s->may[node->in[i]->id];
    tti_strategy *strategies = s->strategies + s->n_strategies;
    int n = tti_tensor_strategies(node, s->n, s->g->training, may, strategies, MOST_WAYS);
    s->n_strategies += n;
    for (int k = 0; k < node->op->n_out; k++) {
        uint32_t made = 0;
        for (int w = 0; w < n; w++) made |= 1u << strategies[w].out[k];
        s->may[node->out[k]->id] = reachable(made, &node->out[k]->type.shape, s->n);
    }
    return TUTTI_OK;
}

/* Separate statistics and packed parts cannot be converted: a reader must accept them. */
static bool is_stuck(tti_cut_code code) {
    return code == TTI_CODE_OWN || (tti_code_is_split(code) && tti_cut_of(code).groups > 1);
}

/* Excludes strategies with a result that no reader accepts, which would cost too much time.  From
 * the end, so that readers only have useful strategies. */
static void close_dead_ends(search *s, uint32_t *taken) {
    for (size_t v = 0; v < s->n_values; v++) taken[v] = UINT32_MAX;
    for (int i = 0; i < s->g->n_outputs; i++) taken[s->g->outputs[i].value->id] = 0;
    for (int i = s->g->n_nodes - 1; i >= 0; i--) {
        const tti_node *node = s->g->nodes[i];
        uint32_t wants[TTI_MAX_IN] = {0};
        for (int w = s->first_way[i]; w < s->first_way[i + 1]; w++) {
            tti_strategy *strategy = &s->strategies[w];
            for (int k = 0; k < node->op->n_out; k++)
                if (is_stuck(strategy->out[k]) &&
                    !(taken[node->out[k]->id] >> strategy->out[k] & 1))
                    strategy->cost = INFINITY;
            for (int k = 0; k < node->n_in && strategy->cost < INFINITY; k++)
                wants[k] |= 1u << strategy->in[k];
        }
        for (int k = 0; k < node->n_in; k++) taken[node->in[k]->id] &= wants[k];
    }
}

static tutti_status find_strategies(search *s, const tti_cuts *like) {
    for (int i = 0; i < s->g->n_nodes; i++) {
        const tti_node *node = s->g->nodes[i];
        s->first_way[i] = s->n_strategies;
        if (node->op->traits & TTI_SOURCE) {
            const tutti_shape *shape = &node->out[0]->type.shape;
            tti_cut_code code = first_code(node, like);
            s->now[0].lies[node->out[0]->id] = code;
            s->may[node->out[0]->id] =
                code ? reachable(1u << code, shape, s->n) : tti_tensor_codes(shape, 0, s->n);
        } else {
            TTI_TRY(list_ways(s, node));
        }
    }
    s->first_way[s->g->n_nodes] = s->n_strategies;
    close_dead_ends(s, s->may);
    return TUTTI_OK;
}

/* ---- from state to state ---- */

/* The cost of converting value to the needed placement, and its new code in the state; infinite:
 * impossible. */
static double convert(const search *s, const tutti_value *value, tti_cut_code need,
                      tti_cut_code *lies) {
    tti_cut_code have = *lies & CODE;
    double n_bytes = (double)tti_value_n_bytes(value), move = tti_tensor_move_cost(n_bytes, s->n);
    bool back = s->wanted[value->id];
    if (have == TTI_CODE_NONE) {
        *lies = need;
        return param_per_byte * n_bytes / (tti_code_is_split(need) ? s->n : 1);
    }
    if (have == need) return 0;
    bool plain = tti_code_is_split(have) && tti_cut_of(have).groups == 1;
    if (need == TTI_CODE_WHOLE) {
        if (*lies & HAS_WHOLE) return 0;
        if (have == TTI_CODE_PARTIAL) {
            *lies = TTI_CODE_WHOLE;
            return 2 * move;
        }
        *lies |= HAS_WHOLE;
        return plain ? move : INFINITY;
    }
    if (!tti_code_is_split(need) || tti_cut_of(need).groups != 1 || tti_cut_of(need).dim == 0)
        return INFINITY;
    if (have == TTI_CODE_WHOLE || *lies & HAS_WHOLE) return back ? move : 0;
    if (plain && *lies & HAS_COPY) {
        *lies |= HAS_WHOLE;
        return (back ? 2 : 1) * move;
    }
    return have == TTI_CODE_PARTIAL ? (back ? 2 : 1) * move : INFINITY;
}

/* The cost of input i: if all workers have it and divide the work, its gradient is a sum over the
 * workers; a gathered value used only for that gets its parts of the sum. */
static double input_cost(const search *s, const tti_node *node, int i, const tti_strategy *strategy,
                         tti_cut_code *lies) {
    const tutti_value *value = node->in[i];
    tti_cut_code need = strategy->in[i], have = *lies & CODE;
    double move = tti_tensor_move_cost((double)tti_value_n_bytes(value), s->n);
    bool divided = false, is_partitioned = tti_code_is_split(have) && tti_cut_of(have).groups == 1;
    for (int k = 0; k < node->op->n_out; k++)
        divided = divided || strategy->out[k] != TTI_CODE_WHOLE;
    if (need != TTI_CODE_WHOLE || !divided || !s->wanted[value->id])
        return convert(s, value, need, lies);
    if (*lies & HAS_COPY) return 0;
    if (is_partitioned && !(*lies & HAS_WHOLE)) {
        *lies |= HAS_COPY;
        return 2 * move;
    }
    double cost = convert(s, value, need, lies);
    *lies |= HAS_COPY;
    return cost + 2 * move;
}

/* The cost that node adds with that strategy to the state in draft. */
static double step_cost(search *s, const tti_node *node, const tti_strategy *strategy) {
    double cost = strategy->cost;
    for (int i = 0; i < node->n_in && cost < INFINITY; i++) {
        tti_cut_code *lies = &s->draft[node->in[i]->id];
        cost += input_cost(s, node, i, strategy, lies);
    }
    for (int k = 0; k < node->op->n_out; k++) s->draft[node->out[k]->id] = strategy->out[k];
    for (int i = 0; i < node->n_in; i++)
        if (s->last_use[node->in[i]->id] == node->id) s->draft[node->in[i]->id] = 0;
    for (int k = 0; k < node->op->n_out; k++)
        if (s->last_use[node->out[k]->id] < 0) s->draft[node->out[k]->id] = 0;
    return cost;
}

/* The position of the draft among the next states; NULL: it is not kept. */
static state *place_of(search *s, double cost) {
    int worst = 0;
    for (int i = 0; i < s->n_next; i++) {
        if (memcmp(s->next[i].lies, s->draft, s->n_values) == 0)
            return cost < s->next[i].cost ? &s->next[i] : NULL;
        if (s->next[i].cost > s->next[worst].cost) worst = i;
    }
    if (s->n_next < MOST_STATES) return &s->next[s->n_next++];
    return cost < s->next[worst].cost ? &s->next[worst] : NULL;
}

static tutti_status keep_draft(search *s, double cost, int before, int strategy) {
    state *to = place_of(s, cost);
    if (!to) return TUTTI_OK;
    if (s->n_traces == s->cap_traces) {
        int cap = 2 * s->cap_traces + MOST_STATES;
        trace *grown = realloc(s->traces, (size_t)cap * sizeof *grown);
        if (!grown) return tti_fail(TUTTI_E_NOMEM, "tensor: out of memory");
        s->traces = grown, s->cap_traces = cap;
    }
    s->traces[s->n_traces] = (trace){before, strategy};
    to->cost = cost, to->trace = s->n_traces++;
    memcpy(to->lies, s->draft, s->n_values);
    return TUTTI_OK;
}

static tutti_status advance(search *s, const tti_node *node) {
    s->n_next = 0;
    for (int i = 0; i < s->n_now; i++)
        for (int w = s->first_way[node->id]; w < s->first_way[node->id + 1]; w++) {
            memcpy(s->draft, s->now[i].lies, s->n_values);
            double cost = s->now[i].cost + step_cost(s, node, &s->strategies[w]);
            if (cost < INFINITY) TTI_TRY(keep_draft(s, cost, s->now[i].trace, w));
        }
    for (int i = 0; i < s->n_next; i++) { /* the memory changes hands */
        state made = s->next[i];
        s->next[i].lies = s->now[i].lies;
        s->now[i] = made;
    }
    s->n_now = s->n_next;
    if (s->n_now > 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_INTERNAL, "tensor: cannot divide %s '%s'", node->op->name, node->name);
}

/* ---- the end ---- */

/* Running statistics are placed as their buffers; all other results must be whole. */
static double output_cost(search *s, const tti_output *output) {
    tti_cut_code *lies = &s->draft[output->value->id], have = *lies & CODE;
    if (strncmp(output->name, "stat.", 5) == 0 && have == tti_code_split(0, 1)) return 0;
    return convert(s, output->value, TTI_CODE_WHOLE, lies);
}

static const state *cheapest(search *s) {
    const state *best = NULL;
    double least = INFINITY;
    for (int i = 0; i < s->n_now; i++) {
        double cost = s->now[i].cost;
        memcpy(s->draft, s->now[i].lies, s->n_values);
        for (int k = 0; k < s->g->n_outputs; k++) cost += output_cost(s, &s->g->outputs[k]);
        if (cost < least) best = &s->now[i], least = cost;
    }
    return best;
}

/* The code of a source without readers, such as a running statistic in training. */
static tti_cut_code unread_code(const search *s, const tti_node *source, const tti_division *d) {
    char name[TTI_MAX_NAME + 8] = "stat.";
    strncat(name, source->name, TTI_MAX_NAME);
    const tutti_value *stat = tti_graph_output(s->g, name);
    bool cut = stat && d->lie[stat->id] == tti_code_split(0, 1);
    return cut ? tti_code_split(0, 1) : TTI_CODE_WHOLE;
}

/* Walks back to the first reader of every parameter, which asked for it. */
static void write_strategies(const search *s, const state *end, tti_division *out) {
    int t = end->trace;
    for (int i = s->g->n_nodes - 1; i >= 0; i--) {
        const tti_node *node = s->g->nodes[i];
        if (node->op->traits & TTI_SOURCE) continue;
        out->strategies[i] = s->strategies[s->traces[t].strategy];
        for (int k = node->n_in - 1; k >= 0; k--)
            if (node->in[k]->node->op->traits & TTI_SOURCE)
                out->lie[node->in[k]->id] = out->strategies[i].in[k];
        for (int k = 0; k < node->op->n_out; k++)
            out->lie[node->out[k]->id] = out->strategies[i].out[k];
        t = s->traces[t].before;
    }
}

static void write_division(const search *s, const state *end, const tti_cuts *like,
                           tti_division *out) {
    double n_cut = 0, n_all = 0;
    write_strategies(s, end, out);
    for (int i = 0; i < s->g->n_nodes; i++) {
        const tti_node *node = s->g->nodes[i];
        if (!(node->op->traits & TTI_SOURCE)) continue;
        tti_cut_code *lie = &out->lie[node->out[0]->id], first = first_code(node, like);
        if (first != TTI_CODE_NONE) *lie = first;
        if (*lie == TTI_CODE_NONE) *lie = unread_code(s, node, out);
        if (!(node->op->traits & TTI_PARAM)) continue;
        double n = (double)tti_value_n_elems(node->out[0]);
        n_all += n;
        n_cut += tti_code_is_split(*lie) ? n : 0;
    }
    out->share = n_all > 0 ? n_cut / n_all : 0;
}

static tutti_status allocate(search *s, tti_division *out) {
    size_t n = s->n_values + 1, n_nodes = (size_t)s->g->n_nodes + 1;
    s->last_use = calloc(n, sizeof *s->last_use);
    s->may = calloc(n, sizeof *s->may);
    s->first_way = calloc(n_nodes, sizeof *s->first_way);
    s->pool = calloc(n, (size_t)2 * MOST_STATES + 1);
    out->strategies = calloc(n_nodes, sizeof *out->strategies);
    out->lie = calloc(n, sizeof *out->lie);
    out->wanted = calloc(n, sizeof *out->wanted);
    if (!s->last_use || !s->may || !s->first_way || !s->pool || !out->strategies || !out->lie ||
        !out->wanted)
        return tti_fail(TUTTI_E_NOMEM, "tensor: out of memory");
    s->wanted = out->wanted;
    for (int i = 0; i < MOST_STATES; i++) {
        s->now[i].lies = s->pool + (size_t)(2 * i) * n;
        s->next[i].lies = s->pool + (size_t)(2 * i + 1) * n;
    }
    s->draft = s->pool + (size_t)2 * MOST_STATES * n;
    return TUTTI_OK;
}

static tutti_status divide(search *s, const tti_cuts *like, tti_division *out) {
    TTI_TRY(allocate(s, out));
    find_wanted(s);
    find_last_uses(s);
    s->n_now = 1;
    s->now[0].trace = -1;
    TTI_TRY(find_strategies(s, like));
    for (int i = 0; i < s->g->n_nodes; i++)
        if (!(s->g->nodes[i]->op->traits & TTI_SOURCE)) TTI_TRY(advance(s, s->g->nodes[i]));
    const state *end = cheapest(s);
    if (!end) return tti_fail(TUTTI_E_INTERNAL, "tensor: the results cannot be combined");
    write_division(s, end, like, out);
    return TUTTI_OK;
}

tutti_status tti_tensor_divide(const tutti_graph *g, int n, const tti_cuts *like,
                               tti_division *out) {
    *out = (tti_division){0};
    search *s = calloc(1, sizeof *s);
    if (!s) return tti_fail(TUTTI_E_NOMEM, "tensor: out of memory");
    s->g = g, s->n = n, s->n_values = (size_t)g->n_values;
    tutti_status st = divide(s, like, out);
    free(s->last_use);
    free(s->may);
    free(s->first_way);
    free(s->pool);
    free(s->strategies);
    free(s->traces);
    free(s);
    if (st != TUTTI_OK) tti_tensor_division_fini(out);
    return st;
}

void tti_tensor_division_fini(tti_division *division) {
    free(division->strategies);
    free(division->lie);
    free(division->wanted);
    *division = (tti_division){0};
}
