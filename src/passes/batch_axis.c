/* batch_axis.c - the dimensions of a value along which the samples of a shard lie.
 *
 * A model may put its samples anywhere: second, merged with other dimensions, or along two
 * dimensions at once, as in a matrix that compares all samples with each other.  A dimension of
 * samples is [outer, samples, inner] merged into one, so that its inner size describes it.  Ops
 * that move dimensions have a rule here; all others are asked by their split rules, one dimension
 * after the other.  Where no rule fits, rows of different samples were mixed, and the value keeps
 * the name of the node that did it. */
#include <string.h>

#include "passes/passes.h"

typedef struct tti_samples {
    tutti_batch at;
    tti_placement_kind kind; /* where at.n is 0: TTI_WHOLE, TTI_PARTIAL or TTI_OWN */
} tti_samples;

static const tutti_batch *batch_of(const tutti_value *value) { return &value->samples->at; }

/* False: the dimension holds samples in another way already. */
static bool put(tutti_batch *at, int dim, int64_t n, int64_t inner) {
    if (at->inner[dim] != 0 && at->inner[dim] != inner) return false;
    at->n = n;
    at->inner[dim] = inner;
    return true;
}

/* ---- rules: false where samples were mixed ---- */

/* All inputs aligned at their last dimension, except along dimension `axis` of the result. */
static bool aligned(const tti_node *node, int axis, tutti_batch *out) {
    const tutti_shape *to = &node->out[0]->type.shape;
    for (int k = 0; k < node->n_in; k++) {
        const tutti_shape *from = &node->in[k]->type.shape;
        const tutti_batch *in = batch_of(node->in[k]);
        for (int d = 0; d < from->n_dims; d++) {
            int e = d + to->n_dims - from->n_dims;
            if (in->inner[d] == 0 || e == axis) continue;
            if (from->dim[d] != to->dim[e] || !put(out, e, in->n, in->inner[d])) return false;
        }
    }
    return true;
}

static bool by_elements(const tti_node *node, tutti_batch *out) { return aligned(node, -1, out); }

/* The dimension of `to` with the samples that have so many elements before and after them. */
static bool put_between(const tutti_shape *to, int64_t before, int64_t n, int64_t after,
                        tutti_batch *out) {
    int64_t first = 1, rest = tutti_shape_n_elems(to);
    for (int e = 0; e < to->n_dims; first *= to->dim[e++]) {
        if (to->dim[e] < 1) return false;
        rest /= to->dim[e];
        bool fits = before % first == 0 && after % rest == 0 &&
                    to->dim[e] == before / first * n * (after / rest);
        if (fits && out->inner[e] == 0) return put(out, e, n, after / rest);
    }
    return false;
}

/* Without elements nothing is mixed: samples stay along a dimension that both shapes have. */
static bool by_empty_view(const tti_node *node, tutti_batch *out) {
    const tutti_shape *from = &node->in[0]->type.shape, *to = &node->out[0]->type.shape;
    const tutti_batch *in = batch_of(node->in[0]);
    for (int d = 0; d < from->n_dims && d < to->n_dims; d++)
        if (in->inner[d] != 0 && from->dim[d] == to->dim[d]) put(out, d, in->n, in->inner[d]);
    return true;
}

static bool by_view(const tti_node *node, tutti_batch *out) {
    const tutti_shape *from = &node->in[0]->type.shape;
    const tutti_batch *in = batch_of(node->in[0]);
    int64_t before = 1, after = tutti_shape_n_elems(from);
    if (after == 0) return by_empty_view(node, out);
    if (tti_shape_equal(from, &node->out[0]->type.shape)) return by_elements(node, out);
    for (int d = 0; d < from->n_dims && from->dim[d] > 0; before *= from->dim[d++]) {
        after /= from->dim[d];
        if (in->inner[d] == 0) continue;
        int64_t outer = from->dim[d] / (in->n * in->inner[d]);
        if (!put_between(&node->out[0]->type.shape, before * outer, in->n, after * in->inner[d],
                         out))
            return false;
    }
    return true;
}

static bool by_order(const tti_node *node, tutti_batch *out) {
    const tti_attr *perm = tti_attr_get(node, "perm");
    const tutti_batch *in = batch_of(node->in[0]);
    for (int d = 0; d < perm->n; d++)
        if (in->inner[perm->v[d]] != 0) put(out, d, in->n, in->inner[perm->v[d]]);
    return true;
}

/* Without the dimensions of the bits; keep: they stay as 1. */
static bool without(const tti_node *node, unsigned dims, bool keep, tutti_batch *out) {
    const tutti_batch *in = batch_of(node->in[0]);
    int e = 0;
    for (int d = 0; d < node->in[0]->type.shape.n_dims; d++) {
        bool is_joined = dims >> d & 1u;
        if (in->inner[d] != 0 && !is_joined) put(out, e, in->n, in->inner[d]);
        e += keep || !is_joined;
    }
    return true;
}

static int wrapped(int64_t axis, const tutti_value *x) {
    return (int)(axis < 0 ? axis + x->type.shape.n_dims : axis);
}

/* The importer leaves out the rows that are padding. */
static bool by_reduction(const tti_node *node, tutti_batch *out) {
    const tti_attr *axes = tti_attr_get(node, "axes");
    unsigned dims = axes->n ? 0 : ~0u;
    for (int i = 0; i < axes->n; i++) dims |= 1u << wrapped(axes->v[i], node->in[0]);
    return without(node, dims, tti_attr_int(node, "keep") != 0, out);
}

static bool by_place(const tti_node *node, tutti_batch *out) {
    return without(node, 1u << wrapped(tti_attr_int(node, "axis"), node->in[0]), false, out);
}

/* Whether places are those of the largest elements, of which each exists. */
static bool is_extreme(const tutti_value *places) {
    while (places->node->op->traits & TTI_VIEW) places = places->node->in[0];
    return strcmp(places->node->op->name, "argmax") == 0;
}

/* [..,M,K] times [..,K,N] */
static bool by_product(const tti_node *node, tutti_batch *out) {
    int n_dims = node->out[0]->type.shape.n_dims;
    for (int k = 0; k < 2; k++) {
        const tutti_batch *in = batch_of(node->in[k]);
        int own = node->in[k]->type.shape.n_dims;
        bool turned = tti_attr_int(node, k ? "trans_b" : "trans_a") != 0;
        int joined = own - 1 - (k == (turned ? 0 : 1)); /* the dimension K */
        for (int d = 0; d < own; d++) {
            int e = d < own - 2 ? d + n_dims - own : n_dims - 2 + k;
            if (in->inner[d] == 0 || d == joined) continue;
            if (!put(out, e, in->n, in->inner[d])) return false;
        }
    }
    return true;
}

/* Whole groups of samples, if along them. */
static bool by_slice(const tti_node *node, tutti_batch *out) {
    int axis = wrapped(tti_attr_int(node, "axis"), node->in[0]);
    const tutti_batch *in = batch_of(node->in[0]);
    int64_t group = in->n * in->inner[axis];
    bool whole = group == 0 || (tti_attr_int(node, "start") % group == 0 &&
                                tti_attr_int(node, "len") % group == 0);
    aligned(node, axis, out);
    if (group > 0 && whole && tti_attr_int(node, "len") > 0) put(out, axis, in->n, in->inner[axis]);
    return whole;
}

/* Along samples, only values that all hold them in the same way. */
static bool by_concat(const tti_node *node, tutti_batch *out) {
    int axis = wrapped(tti_attr_int(node, "axis"), node->out[0]);
    int64_t inner = batch_of(node->in[0])->inner[axis];
    for (int k = 0; k < node->n_in; k++) {
        const tutti_batch *in = batch_of(node->in[k]);
        if (in->inner[axis] != inner) return false;
        if (inner != 0) put(out, axis, in->n, inner);
    }
    return aligned(node, axis, out);
}

/* Elements put to places along an axis, whose rows the importer leaves out where they are padding;
 * and elements taken from places along one: the result has samples there where the places do. */
static bool by_put(const tti_node *node, tutti_batch *out) {
    return aligned(node, wrapped(tti_attr_int(node, "axis"), node->out[0]), out);
}

/* Whether a constant names for each row, along dimension dim, its own place. */
static bool is_diagonal(const tutti_value *places, int dim) {
    const tutti_shape *shape = &places->type.shape;
    if (!(places->node->op->traits & TTI_CONSTANT)) return false;
    int64_t inner = 1, n = tutti_shape_n_elems(shape);
    for (int d = dim + 1; d < shape->n_dims; d++) inner *= shape->dim[d];
    for (int64_t i = 0; i < n; i++)
        if (tti_constant_elem(places->node, (size_t)i) != (double)(i / inner % shape->dim[dim]))
            return false;
    return true;
}

static bool by_take(const tti_node *node, tutti_batch *out) {
    int axis = wrapped(tti_attr_int(node, "axis"), node->out[0]);
    const tutti_batch *x = batch_of(node->in[0]), *places = batch_of(node->in[1]);
    bool known = x->inner[axis] == 0 || is_extreme(node->in[1]);
    for (int d = 0; d < node->out[0]->type.shape.n_dims && !known; d++)
        known = d != axis && x->inner[d] == x->inner[axis] && is_diagonal(node->in[1], d);
    if (!known) return false;
    if (places->inner[axis] != 0) put(out, axis, places->n, places->inner[axis]);
    return aligned(node, axis, out);
}

/* A sum over rows of which labels leave out those that are padding. */
static bool by_loss(const tti_node *node, tutti_batch *out) {
    (void)node, (void)out;
    return true;
}

typedef bool (*sample_rule)(const tti_node *node, tutti_batch *out);

/* NULL: none but the split rule. */
static sample_rule rule_of(const tti_op *op) {
    static const struct {
        const char *name;
        sample_rule rule;
    } rules[] = {
        {"broadcast_to", by_elements}, {"cumsum", by_elements}, {"softmax", by_elements},
        {"log_softmax", by_elements},  {"sum", by_reduction},   {"mean", by_reduction},
        {"max_reduce", by_reduction},  {"argmax", by_place},    {"matmul", by_product},
        {"slice", by_slice},           {"concat", by_concat},   {"transpose", by_order},
        {"put_along", by_put},         {"take_along", by_take}, {"cross_entropy", by_loss}};
    if (op->traits & (TTI_ELEMENTWISE | TTI_BROADCAST)) return by_elements;
    if (op->traits & TTI_VIEW) return by_view;
    for (size_t i = 0; i < TTI_COUNT(rules); i++)
        if (strcmp(rules[i].name, op->name) == 0) return rules[i].rule;
    return NULL;
}

/* ---- split rules ---- */

typedef struct splits {
    const tti_node *node;
    int pick[TTI_MAX_IN];         /* a dimension of each input that holds samples, -1: none */
    unsigned covered[TTI_MAX_IN]; /* dimensions that some rule has accepted */
    tti_samples *out;
} splits;

static tutti_status ask(const splits *s, bool by_kind, tti_placement *placed) {
    tti_placement in[TTI_MAX_IN] = {0};
    for (int k = 0; k < s->node->n_in; k++) {
        const tti_samples *own = s->node->in[k]->samples;
        if (s->pick[k] >= 0)
            in[k] = (tti_placement){TTI_SPLIT, s->pick[k]};
        else if (by_kind && own->at.n == 0)
            in[k].kind = own->kind;
    }
    return tti_split_node(s->node, in, placed);
}

/* The first input whose dimension was chosen; -1: none, or several choices differ. */
static int first_choice(const splits *s) {
    int first = -1;
    for (int k = 0; k < s->node->n_in; k++) {
        if (s->pick[k] < 0) continue;
        const tutti_value *x = s->node->in[k], *y = first < 0 ? x : s->node->in[first];
        int d = s->pick[k], e = first < 0 ? d : s->pick[first];
        if (x->samples->at.inner[d] != y->samples->at.inner[e] ||
            x->type.shape.dim[d] != y->type.shape.dim[e])
            return -1;
        if (first < 0) first = k;
    }
    return first;
}

static void try_split(splits *s) {
    tti_placement placed[TTI_MAX_OUT] = {0};
    int first = first_choice(s);
    if (first < 0) return;
    if (ask(s, true, placed) != TUTTI_OK && ask(s, false, placed) != TUTTI_OK) return;
    const tutti_value *x = s->node->in[first];
    const tutti_batch *in = batch_of(x);
    int64_t size = x->type.shape.dim[s->pick[first]], inner = in->inner[s->pick[first]];
    for (int k = 0; k < s->node->op->n_out; k++) {
        if (placed[k].kind != TTI_SPLIT) {
            s->out[k].kind = placed[k].kind;
            continue;
        }
        int64_t now = s->node->out[k]->type.shape.dim[placed[k].dim];
        bool outermost = size == in->n * inner && now % in->n == 0;
        if (now != size && !outermost) return;
        if (!put(&s->out[k].at, placed[k].dim, in->n, now == size ? inner : now / in->n)) return;
    }
    for (int k = 0; k < s->node->n_in; k++)
        if (s->pick[k] >= 0) s->covered[k] |= 1u << s->pick[k];
}

/* The next combination of dimensions; false: all were tried. */
static bool next_pick(splits *s) {
    for (int k = 0; k < s->node->n_in; k++) {
        const tutti_batch *in = batch_of(s->node->in[k]);
        do s->pick[k]++;
        while (s->pick[k] < TUTTI_MAX_DIMS && in->inner[s->pick[k]] == 0);
        if (s->pick[k] < TUTTI_MAX_DIMS) return true;
        s->pick[k] = -1;
    }
    return false;
}

static bool by_splits(const tti_node *node, tti_samples *out) {
    enum { MAX_TRIES = 256 };
    splits s = {.node = node, .out = out};
    memset(s.pick, -1, sizeof s.pick);
    for (int i = 0; i < MAX_TRIES && next_pick(&s); i++) try_split(&s);
    for (int d = 0; d < TUTTI_MAX_DIMS; d++) { /* of many inputs: all alike */
        for (int k = 0; k < node->n_in; k++)
            s.pick[k] = batch_of(node->in[k])->inner[d] != 0 ? d : -1;
        try_split(&s);
    }
    for (int k = 0; k < node->n_in; k++)
        for (int d = 0; d < TUTTI_MAX_DIMS; d++)
            if (batch_of(node->in[k])->inner[d] != 0 && !(s.covered[k] >> d & 1u)) return false;
    return true;
}

/* For inputs without samples: whether the results are sums over samples, or statistics. */
static void find_kinds(const tti_node *node, tti_samples *out) {
    splits s = {.node = node};
    tti_placement placed[TTI_MAX_OUT] = {0};
    bool all_whole = true;
    memset(s.pick, -1, sizeof s.pick);
    for (int k = 0; k < node->n_in; k++)
        all_whole = all_whole && node->in[k]->samples->kind == TTI_WHOLE;
    if (all_whole || ask(&s, true, placed) != TUTTI_OK) return;
    for (int k = 0; k < node->op->n_out; k++)
        if (placed[k].kind != TTI_SPLIT) out[k].kind = placed[k].kind;
}

/* ---- the walk ---- */

static void find_results(tti_arena *arena, const tti_node *node, tti_samples *out) {
    bool any = false;
    for (int k = 0; k < node->n_in; k++) {
        const tutti_batch *in = batch_of(node->in[k]);
        any = any || in->n > 0;
        if (!in->mixed_by) continue;
        for (int i = 0; i < node->op->n_out; i++) out[i].at.mixed_by = in->mixed_by;
        return;
    }
    if (!any) {
        find_kinds(node, out);
        return;
    }
    sample_rule rule = rule_of(node->op);
    if (rule ? rule(node, &out[0].at) : by_splits(node, out)) return;
    char text[TTI_NODE_TEXT];
    const char *name = tti_arena_strdup(arena, tti_node_text(node, text));
    for (int k = 0; k < node->op->n_out; k++)
        out[k] = (tti_samples){.at.mixed_by = name ? name : node->op->name};
}

static bool visit(tti_arena *arena, tti_node *node) {
    int n_out = node->op->n_out;
    tti_samples *out = tti_arena_alloc(arena, (size_t)n_out * sizeof *out);
    if (!out) return false;
    memset(out, 0, (size_t)n_out * sizeof *out);
    const tutti_shape *shape = &node->out[0]->type.shape;
    if (node->op->traits & TTI_INPUT && shape->n_dims > 0)
        put(&out->at, 0, shape->dim[0], 1);
    else
        find_results(arena, node, out);
    for (int k = 0; k < n_out; k++) node->out[k]->samples = &out[k];
    return true;
}

void tutti_find_batch(tutti_graph *g, const tutti_value *value, tutti_batch *out) {
    *out = (tutti_batch){.mixed_by = "?"};
    if (!g || !value || tutti_graph_check(g) != TUTTI_OK) return;
    const tutti_graph *known = g;
    while (known->n_sampled <= value->node->id) {
        if (!visit(tti_graph_arena(g), known->nodes[known->n_sampled])) return;
        tti_graph_set_n_sampled(g, known->n_sampled + 1);
    }
    *out = *batch_of(value);
}

int tutti_batch_axis(tutti_graph *g, const tutti_value *value) {
    tutti_batch at;
    int found = -1;
    tutti_find_batch(g, value, &at);
    if (at.mixed_by) return -2;
    for (int d = 0; d < TUTTI_MAX_DIMS; d++)
        if (at.inner[d] != 0) found = found == -1 ? d : -2;
    return found;
}
