/* tensor_strategies.c - lists the strategies to divide one node over a tensor axis.
 *
 * Tries all placements of the inputs against the op's own rules: tti_op.cut first, which has the
 * additional rules of such an axis, then tti_op.shard.  Nothing here knows a layer; that a weight
 * divided by columns is followed by one divided by rows, as in Shoeybi et al. 2019, results from
 * the rules and the costs. */
#include <string.h>

#include "ops/op_table.h"
#include "passes/tensor/tensor.h"

/* Operations that one byte between workers is worth. */
static const double comm_per_byte = 16;

enum { MOST_COMBINATIONS = 4096 };

/* ---- codes ---- */

tti_cut_code tti_code_split(int dim, int groups) {
    return (tti_cut_code)(TTI_CODE_SPLIT + dim + TUTTI_MAX_DIMS * (groups - 1));
}

bool tti_code_is_split(tti_cut_code code) { return code >= TTI_CODE_SPLIT; }

tti_cut_code tti_code_of(tti_cut cut) {
    if (cut.kind == TTI_WHOLE) return TTI_CODE_WHOLE;
    if (cut.kind == TTI_PARTIAL) return TTI_CODE_PARTIAL;
    return cut.kind == TTI_OWN ? TTI_CODE_OWN : tti_code_split(cut.dim, cut.groups);
}

tti_cut tti_cut_of(tti_cut_code code) {
    if (code == TTI_CODE_PARTIAL) return (tti_cut){TTI_PARTIAL, 0, 1};
    if (code == TTI_CODE_OWN) return (tti_cut){TTI_OWN, 0, 1};
    if (!tti_code_is_split(code)) return (tti_cut){TTI_WHOLE, 0, 1};
    int at = code - TTI_CODE_SPLIT;
    return (tti_cut){TTI_SPLIT, at % TUTTI_MAX_DIMS, at / TUTTI_MAX_DIMS + 1};
}

bool tti_code_divides(tti_cut_code code, const tutti_shape *shape, int n) {
    tti_cut cut = tti_cut_of(code);
    if (cut.kind != TTI_SPLIT) return true;
    return cut.dim < shape->n_dims && shape->dim[cut.dim] > 0 &&
           shape->dim[cut.dim] % ((int64_t)n * cut.groups) == 0;
}

uint32_t tti_tensor_codes(const tutti_shape *shape, int first_dim, int n) {
    uint32_t may = 1u << TTI_CODE_WHOLE;
    for (int d = first_dim; d < shape->n_dims; d++)
        for (int groups = 1; groups <= TTI_MAX_GROUPS; groups++)
            if (tti_code_divides(tti_code_split(d, groups), shape, n))
                may |= 1u << tti_code_split(d, groups);
    return may;
}

double tti_tensor_move_cost(double n_bytes, int n) { return comm_per_byte * n_bytes * (n - 1) / n; }

/* ---- strategies ---- */

typedef struct strategies {
    const tti_node *node;
    int n, n_strategies, max;
    bool training;
    double work; /* of the whole node */
    tti_strategy *out;
} strategies;

static double work_of(const tti_node *node, bool training) {
    tti_cost cost = {0};
    node->op->cost(node, &cost);
    return (cost.flops + cost.bytes) * (training ? 3 : 1);
}

static void keep(strategies *w, const tti_strategy *strategy) {
    const tti_node *node = w->node;
    for (int k = 0; k < node->op->n_out; k++)
        if (!tti_code_divides(strategy->out[k], &node->out[k]->type.shape, w->n)) return;
    if (w->n_strategies < w->max) w->out[w->n_strategies++] = *strategy;
}

/* How the outputs lie; false: node cannot be made of such inputs. */
static bool ask(const tti_node *node, int n, const tti_cut *in, tti_strategy *strategy) {
    tti_cut cut[TTI_MAX_OUT] = {{0}};
    tti_placement placed_in[TTI_MAX_IN] = {{0}}, placed[TTI_MAX_OUT] = {{0}};
    strategy->by_cut = node->op->cut && node->op->cut(node, n, in, cut);
    bool fits = strategy->by_cut;
    if (!fits) {
        for (int i = 0; i < node->n_in; i++) {
            if (in[i].groups != 1 && !(node->op->traits & TTI_ELEMENTWISE)) return false;
            if (in[i].groups != in[0].groups) return false;
            placed_in[i] = (tti_placement){in[i].kind, in[i].dim};
        }
        fits = node->op->shard(node, placed_in, placed) == TUTTI_OK;
        for (int k = 0; fits && k < node->op->n_out; k++)
            cut[k] = (tti_cut){placed[k].kind, placed[k].dim, in[0].groups};
    }
    for (int k = 0; fits && k < node->op->n_out; k++) strategy->out[k] = tti_code_of(cut[k]);
    return fits;
}

/* The node without its bias, if it has one. */
static bool without_bias(const tti_node *node, tti_node *out) {
    unsigned traits = node->op->traits;
    int last = node->n_in - 1;
    *out = *node;
    out->n_in = last;
    return (traits & TTI_TAKES_EPILOGUE) && !(traits & TTI_TAKES_RESIDUAL) &&
           node->n_in == node->op->n_in_max && node->op->n_out == 1 && last >= 1 &&
           node->in[last]->type.shape.n_dims == 1 && tti_attr_int(node, "act") == TTI_EPILOGUE_NONE;
}

static int channel_dim(const tti_node *node) {
    return node->op->traits & TTI_CHANNELS_LAST ? 1 : node->out[0]->type.shape.n_dims - 1;
}

/* Terms of a sum become whole or parts, then the bias is added. */
static void add_bias_ways(strategies *w, const tti_strategy *terms) {
    const tti_node *node = w->node;
    int n_dims = node->out[0]->type.shape.n_dims, bias = node->n_in - 1;
    double move = tti_tensor_move_cost((double)tti_value_n_bytes(node->out[0]), w->n);
    for (int d = 0; d < n_dims; d++) {
        tti_strategy strategy = *terms;
        strategy.adds_bias = true;
        strategy.divides = true;
        strategy.in[bias] = d == channel_dim(node) ? tti_code_split(0, 1) : TTI_CODE_WHOLE;
        strategy.out[0] = d == 0 ? TTI_CODE_WHOLE : tti_code_split(d, 1);
        if (d == 0) strategy.in[bias] = TTI_CODE_WHOLE;
        strategy.cost = w->work / w->n + (d == 0 || w->training ? 2 : 1) * move;
        keep(w, &strategy);
    }
}

/* Somebody has a part; terms of sums alone are as much work as the sums. */
static bool is_divided(const tti_node *node, const tti_strategy *strategy) {
    for (int i = 0; i < node->n_in; i++)
        if (strategy->in[i] >= TTI_CODE_OWN) return true;
    for (int k = 0; k < node->op->n_out; k++)
        if (strategy->out[k] >= TTI_CODE_OWN) return true;
    return false;
}

static void try_combination(strategies *w, const tti_cut *in) {
    const tti_node *node = w->node;
    tti_strategy strategy = {.cost = w->work / w->n, .divides = true};
    bool whole = true;
    for (int i = 0; i < node->n_in; i++) {
        strategy.in[i] = tti_code_of(in[i]);
        whole = whole && in[i].kind == TTI_WHOLE;
    }
    if (whole) {
        strategy.cost = w->work, strategy.divides = false;
        memset(strategy.out, TTI_CODE_WHOLE, sizeof strategy.out);
        keep(w, &strategy);
        return;
    }
    if (!ask(node, w->n, in, &strategy)) return;
    if (!is_divided(node, &strategy)) strategy.cost = w->work;
    keep(w, &strategy);
}

static void try_without_bias(strategies *w, const tti_cut *in) {
    tti_node bare;
    tti_strategy strategy = {0};
    if (!without_bias(w->node, &bare)) return;
    for (int i = 0; i < bare.n_in; i++) strategy.in[i] = tti_code_of(in[i]);
    if (ask(&bare, w->n, in, &strategy) && strategy.out[0] == TTI_CODE_PARTIAL)
        add_bias_ways(w, &strategy);
}

static int list_codes(uint32_t may, tti_cut_code *out) {
    int n = 0;
    for (int code = 1; code < TTI_N_CODES; code++)
        if (may >> code & 1) out[n++] = (tti_cut_code)code;
    return n;
}

/* With too many inputs for all combinations, tries the same placement for all. */
static void try_alike(strategies *w, const uint32_t *may) {
    uint32_t common = UINT32_MAX;
    tti_cut_code codes[TTI_N_CODES];
    for (int i = 0; i < w->node->n_in; i++) common &= may[i];
    int n = list_codes(common, codes);
    for (int c = 0; c < n; c++) {
        tti_cut in[TTI_MAX_IN];
        for (int i = 0; i < w->node->n_in; i++) in[i] = tti_cut_of(codes[c]);
        try_combination(w, in);
    }
}

int tti_tensor_strategies(const tti_node *node, int n, bool training, const uint32_t *may,
                          tti_strategy *out, int max) {
    strategies w = {node, n, 0, max, training, work_of(node, training), out};
    tti_cut_code codes[TTI_MAX_IN][TTI_N_CODES];
    int n_codes[TTI_MAX_IN], n_all = 1;
    for (int i = 0; i < node->n_in; i++) {
        n_codes[i] = list_codes(may[i], codes[i]);
        if (n_all <= MOST_COMBINATIONS) n_all *= n_codes[i];
    }
    if (n_all > MOST_COMBINATIONS) {
        try_alike(&w, may);
        return w.n_strategies;
    }
    for (int c = 0; c < n_all; c++) {
        tti_cut in[TTI_MAX_IN];
        int rest = c;
        for (int i = 0; i < node->n_in; rest /= n_codes[i++])
            in[i] = tti_cut_of(codes[i][rest % n_codes[i]]);
        try_combination(&w, in);
        if (node->n_in > 0 && c < n_all / n_codes[node->n_in - 1]) try_without_bias(&w, in);
    }
    return w.n_strategies;
}
