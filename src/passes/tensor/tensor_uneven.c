/* tensor_uneven.c - finds layers that a number of workers cannot divide, and numbers that can.
 *
 * The rules of the ops decide, as for the division itself (tensor_strategies.c): a layer is uneven
 * for n workers if no strategy divides its weights, or its heads, by n, and some strategy divides
 * them by another number.  So a layer whose columns do not divide is even if its rows do, and a
 * layer that no number divides is ignored. */
#include "passes/tensor/tensor.h"

enum { MOST_WAYS = 1024 };

/* A layer that only a larger number cuts, as one of 17 features from 19, is whole in any case. */
enum { MOST_OTHER = 16 };

/* Smallest fraction of the parameters that must be divided. */
static const double least_share = 0.1;

/* The input that is a parameter matrix, or has the heads; -1: node is not a layer.  Nodes that add
 * a table or read some of its rows do not count: dividing them matters little. */
static int divided_input(const tti_node *node) {
    bool may_have = (node->op->traits & (TTI_COMPUTE | TTI_STREAM)) != 0;
    for (int i = 0; i < node->n_in && may_have; i++)
        if ((node->in[i]->node->op->traits & TTI_PARAM) && node->in[i]->type.shape.n_dims > 1)
            return i;
    return tti_attr_has(node, "heads") ? 0 : -1;
}

static bool cuts_input(const tti_node *node, const tti_strategy *strategy, int i) {
    if (!strategy->divides || !tti_code_is_split(strategy->in[i])) return false;
    bool is_param = (node->in[i]->node->op->traits & TTI_PARAM) != 0;
    int last = node->in[i]->type.shape.n_dims - 1;
    return is_param ||
           tti_cut_of(strategy->in[i]).dim == last; /* heads lie in the last dimension */
}

static bool can_cut(const tti_node *node, int n, int i) {
    tti_strategy strategies[MOST_WAYS];
    uint32_t may[TTI_MAX_IN];
    for (int k = 0; k < node->n_in; k++) {
        bool is_param = (node->in[k]->node->op->traits & (TTI_PARAM | TTI_BUFFER)) != 0;
        may[k] = tti_tensor_codes(&node->in[k]->type.shape, is_param ? 0 : 1, n);
    }
    int n_strategies = tti_tensor_strategies(node, n, true, may, strategies, MOST_WAYS);
    for (int w = 0; w < n_strategies; w++)
        if (cuts_input(node, &strategies[w], i)) return true;
    return false;
}

static bool is_uneven(const tti_node *node, int n) {
    int i = divided_input(node);
    if (i < 0 || can_cut(node, n, i)) return false;
    for (int other = 2; other <= MOST_OTHER; other++)
        if (can_cut(node, other, i)) return true;
    return false;
}

int tti_tensor_uneven(const tutti_graph *g, int n, const tti_node **first) {
    int n_found = 0;
    *first = NULL;
    for (int i = 0; i < g->n_nodes; i++) {
        if (!is_uneven(g->nodes[i], n)) continue;
        if (n_found++ == 0) *first = g->nodes[i];
    }
    return n_found;
}

static bool divides_all(const tutti_graph *g, int n) {
    for (int i = 0; i < g->n_nodes; i++)
        if (is_uneven(g->nodes[i], n)) return false;
    return true;
}

bool tti_tensor_suffices(const tti_division *division) { return division->share >= least_share; }

tutti_status tti_tensor_numbers(const tutti_graph *g, bool even, tti_str *out) {
    int n_listed = 0;
    for (int n = 2; n <= TTI_TENSOR_MOST_TRIED; n++) {
        tti_division d;
        if (divides_all(g, n) != even) continue;
        TTI_TRY(tti_tensor_divide(g, n, NULL, &d));
        if (tti_tensor_suffices(&d)) tti_str_printf(out, "%s%d", n_listed++ ? ", " : "", n);
        tti_tensor_division_fini(&d);
    }
    if (n_listed == 0) tti_str_printf(out, "none up to %d", TTI_TENSOR_MOST_TRIED);
    return TUTTI_OK;
}

static int64_t channels_of(const tti_node *node, const tutti_value *value) {
    const tutti_shape *shape = &value->type.shape;
    return shape->dim[node->op->traits & TTI_CHANNELS_LAST ? 1 : shape->n_dims - 1];
}

/* Unnamed layers use the name of their weights, or of a preceding layer. */
static void name_layer(const tti_node *node, tti_str *out) {
    const tti_node *before = node->in[divided_input(node)]->node;
    const char *how = before->op->traits & TTI_PARAM ? "of" : "after";
    while (!*before->name && before->n_in > 0) before = before->in[0]->node;
    tti_str_printf(out, "%s ", node->op->name);
    if (*node->name)
        tti_str_printf(out, "'%s'", node->name);
    else
        tti_str_printf(out, "%s '%s'", how, before->name);
}

void tti_tensor_layer_text(const tti_node *node, tti_str *out) {
    const tutti_shape *weight = &node->in[divided_input(node)]->type.shape;
    bool on_floats = node->in[0]->type.dtype <= TUTTI_BF16;
    name_layer(node, out);
    if (tti_attr_has(node, "heads"))
        tti_str_printf(out, " with %lld heads", (long long)tti_attr_int(node, "heads"));
    else if ((node->op->traits & TTI_COMPUTE) && on_floats)
        tti_str_printf(out, " with %lld %s from %lld", (long long)channels_of(node, node->out[0]),
                       node->op->traits & TTI_CHANNELS_LAST ? "channels" : "features",
                       (long long)channels_of(node, node->in[0]));
    else
        tti_str_printf(out, " with %lld x %lld weights", (long long)weight->dim[0],
                       (long long)weight->dim[1]);
}
