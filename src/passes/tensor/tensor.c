/* tensor.c - the graph of one worker of a tensor axis: tensor shards of parameters, parts of
 * values, and the collectives between them.
 *
 * Runs before autodiff.  A whole value has a whole gradient, a part has that part of it, a partial
 * sum has the gradient of the sum; the gradients of the collectives (ops/tensor_collectives.c)
 * preserve this. In one case there is communication only backward: a value that all workers have
 * and whose readers divide the work (tensor_copy).  Where parts along a sample's elements suffice,
 * as for the norms, dropouts and sums between two layers, values stay divided (Korthikanti et al.
 * 2022): a reduce-scatter gives each worker its part, an all-gather joins the parts.  Graphs of all
 * workers differ in attributes only. */
#include "passes/tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

#include "ops/op_table.h"
#include "passes/passes.h"
#include "passes/rewrite.h"

typedef struct cutting {
    tti_rewrite rw;
    const tti_division *division;
    tti_axis axis;
    tutti_value **whole, **copied; /* [n_values]; NULL: not made */
    tutti_value **parts;           /* [n_values][TTI_N_CODES] */
} cutting;

/* ---- collectives ---- */

static tutti_value *add_collective(cutting *c, const char *op, tutti_value *x, int dim) {
    tti_attr_arg attrs[] = {
        TTI_INT("n", c->axis.n), TTI_INT("index", c->axis.index), TTI_INT("dim", dim), {0}};
    if (dim < 0) attrs[2] = (tti_attr_arg){0};
    return tti_emit(tti_new_graph(&c->rw), op, x ? x->node->name : NULL, &x, 1, attrs);
}

static tutti_value *get_whole(cutting *c, const tutti_value *old) {
    tutti_value **whole = &c->whole[old->id], *own = tti_mapped(&c->rw, old);
    tti_cut_code have = c->division->lie[old->id];
    if (*whole) return *whole;
    if (have == TTI_CODE_WHOLE)
        *whole = own;
    else if (have == TTI_CODE_PARTIAL)
        *whole = add_collective(c, "tensor_all_reduce", own, -1);
    else
        *whole = add_collective(c, "tensor_all_gather", own, tti_cut_of(have).dim);
    return *whole;
}

/* Gathers a divided value for readers that divide the work: its gradient is divided again. */
static tutti_value *gather_for_work(cutting *c, const tutti_value *old) {
    tutti_value *own = tti_mapped(&c->rw, old);
    tti_attr_arg attrs[] = {TTI_INT("n", c->axis.n),
                            TTI_INT("index", c->axis.index),
                            TTI_INT("dim", tti_cut_of(c->division->lie[old->id]).dim),
                            TTI_INT("terms", 1),
                            {0}};
    return tti_emit(tti_new_graph(&c->rw), "tensor_all_gather", own ? own->node->name : NULL, &own,
                    1, attrs);
}

static tutti_value *get_part(cutting *c, const tutti_value *old, tti_cut_code need) {
    tutti_value **part = &c->parts[(size_t)old->id * TTI_N_CODES + need];
    int dim = tti_cut_of(need).dim;
    bool from_terms = c->division->lie[old->id] == TTI_CODE_PARTIAL && !c->whole[old->id];
    if (*part) return *part;
    *part = from_terms ? add_collective(c, "tensor_reduce_scatter", tti_mapped(&c->rw, old), dim)
                       : add_collective(c, "tensor_slice", get_whole(c, old), dim);
    return *part;
}

/* An old value as a reader needs it; divided: its readers' work is, so that their gradients of a
 * whole value are terms of a sum. */
static tutti_value *get(cutting *c, const tutti_value *old, tti_cut_code need, bool divided) {
    if (need != TTI_CODE_WHOLE && c->division->lie[old->id] == need) return tti_mapped(&c->rw, old);
    if (tti_code_is_split(need)) return get_part(c, old, need);
    if (!divided || !c->division->wanted[old->id]) return get_whole(c, old);
    tutti_value **copied = &c->copied[old->id];
    if (!*copied && tti_code_is_split(c->division->lie[old->id]) && !c->whole[old->id])
        *copied = gather_for_work(c, old);
    else if (!*copied)
        *copied = add_collective(c, "tensor_copy", get_whole(c, old), -1);
    return *copied;
}

/* ---- nodes ---- */

static tutti_shape part_shape(const tutti_shape *whole, tti_cut_code code, int n) {
    tutti_shape shape = *whole;
    if (tti_code_is_split(code)) shape.dim[tti_cut_of(code).dim] /= n;
    return shape;
}

/* All attributes of node; a separate output shape replaces that of the whole. */
static void list_attrs(const tti_node *node, const tutti_shape *dims, tti_attr_arg *out) {
    int n = tti_n_attrs(node->op);
    for (int a = 0; a < n; a++) {
        out[a] = (tti_attr_arg){node->op->attrs[a].name, node->attrs[a]};
        if (strcmp(out[a].name, "dims") == 0) out[a] = TTI_INTS("dims", dims->n_dims, dims->dim);
    }
    out[n] = (tti_attr_arg){0};
}

static void set_attr(tti_attr_arg *attrs, const char *name, int64_t value) {
    for (int a = 0; attrs[a].name; a++)
        if (strcmp(attrs[a].name, name) == 0) attrs[a] = TTI_INT(name, value);
}

static void cut_source(cutting *c, const tti_node *node) {
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1];
    tti_cut_code code = c->division->lie[node->out[0]->id];
    if (!tti_code_is_split(code)) {
        tti_rewrite_copy(&c->rw, node);
        return;
    }
    tutti_shape dims = part_shape(&node->out[0]->type.shape, code, c->axis.n);
    tti_cut cut = tti_cut_of(code);
    tutti_value *none = NULL;
    list_attrs(node, &dims, attrs);
    set_attr(attrs, "cut_dim", cut.dim);
    set_attr(attrs, "cut_n", c->axis.n);
    set_attr(attrs, "cut_index", c->axis.index);
    set_attr(attrs, "cut_groups", cut.groups);
    tti_map(&c->rw, node->out[0],
            tti_emit(tti_new_graph(&c->rw), node->op->name, node->name, &none, 0, attrs));
}

static void emit_same(cutting *c, const tti_node *node, int n_in, tutti_value *const *in,
                      tutti_value **out) {
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1];
    tti_cut_code code = c->division->lie[node->out[0]->id];
    tutti_shape dims = part_shape(&node->out[0]->type.shape, code, c->axis.n);
    list_attrs(node, &dims, attrs);
    tti_emit_n(tti_new_graph(&c->rw), node->op->name, node->name, in, n_in, attrs, out);
}

/* Terms of a product: their sum, whole or in parts, and then the bias. */
static tutti_value *emit_bias_after(cutting *c, const tti_node *node, const tti_strategy *strategy,
                                    tutti_value *const *in) {
    tutti_value *terms[TTI_MAX_OUT], *bias = in[node->n_in - 1], *sum;
    int n_dims = node->out[0]->type.shape.n_dims, dim = tti_cut_of(strategy->out[0]).dim;
    bool whole = strategy->out[0] == TTI_CODE_WHOLE;
    emit_same(c, node, node->n_in - 1, in, terms);
    sum = whole ? add_collective(c, "tensor_all_reduce", terms[0], -1)
                : add_collective(c, "tensor_reduce_scatter", terms[0], dim);
    if (bias && (node->op->traits & TTI_CHANNELS_LAST) && n_dims > 2) {
        tutti_shape planes = {.n_dims = n_dims - 1, .dim = {bias->type.shape.dim[0]}};
        for (int d = 1; d < planes.n_dims; d++) planes.dim[d] = 1;
        bias = tti_emit(tti_new_graph(&c->rw), "reshape", node->name, &bias, 1,
                        (tti_attr_arg[]){TTI_INTS("dims", planes.n_dims, planes.dim), {0}});
    }
    return tti_emit(tti_new_graph(&c->rw), "add", node->name, (tutti_value *[]){sum, bias}, 2,
                    NULL);
}

/* An output is as large as its part should be. */
static void check_output(cutting *c, const tti_node *node, int k, const tutti_value *made) {
    tti_cut_code code = c->division->lie[node->out[k]->id];
    tutti_shape want = part_shape(&node->out[k]->type.shape, code, c->axis.n);
    if (!made || code == TTI_CODE_OWN || tti_shape_equal(&made->type.shape, &want)) return;
    tti_graph_fail(tti_new_graph(&c->rw),
                   tti_fail(TUTTI_E_INTERNAL, "tensor: %s '%s' does not have the expected part",
                            node->op->name, node->name));
}

static void cut_node(cutting *c, const tti_node *node) {
    const tti_strategy *strategy = &c->division->strategies[node->id];
    tutti_value *in[TTI_MAX_IN] = {0}, *out[TTI_MAX_OUT] = {0};
    tti_cut cut[TTI_MAX_IN];
    bool divided = false;
    for (int k = 0; k < node->op->n_out; k++)
        divided = divided || strategy->out[k] != TTI_CODE_WHOLE;
    for (int i = 0; i < node->n_in; i++) {
        in[i] = get(c, node->in[i], strategy->in[i], divided);
        cut[i] = tti_cut_of(strategy->in[i]);
    }
    if (strategy->adds_bias)
        out[0] = emit_bias_after(c, node, strategy, in);
    else if (strategy->by_cut && node->op->emit_cut)
        node->op->emit_cut(tti_new_graph(&c->rw), node, &c->axis, cut, in, out);
    else
        emit_same(c, node, node->n_in, in, out);
    for (int k = 0; k < node->op->n_out; k++) {
        check_output(c, node, k, out[k]);
        tti_map(&c->rw, node->out[k], out[k]);
    }
}

/* Results must be whole, except for contributions to running statistics, which are placed as these
 * are. */
static void cut_output(cutting *c, const tti_output *output) {
    bool stat = strncmp(output->name, "stat.", 5) == 0;
    const tutti_value *old = output->value;
    if (stat && tti_code_is_split(c->division->lie[old->id])) return;
    tti_map(&c->rw, old, get(c, old, TTI_CODE_WHOLE, false));
}

static tutti_status cut_graph(tutti_graph **g, const tti_division *division, tti_axis axis) {
    const tutti_graph *from = *g;
    cutting c = {.division = division, .axis = axis};
    size_t n = (size_t)from->n_values + 1;
    TTI_TRY(tti_rewrite_begin(&c.rw, *g));
    tutti_graph_set_sync_batch_norm(tti_new_graph(&c.rw), from->sync_batch_norm);
    c.whole = calloc(n, sizeof *c.whole);
    c.copied = calloc(n, sizeof *c.copied);
    c.parts = calloc(n * TTI_N_CODES, sizeof *c.parts);
    bool ready = c.whole && c.copied && c.parts;
    if (!ready)
        tti_graph_fail(tti_new_graph(&c.rw), tti_fail(TUTTI_E_NOMEM, "tensor: out of memory"));
    for (int i = 0; ready && i < from->n_nodes; i++)
        (from->nodes[i]->op->traits & TTI_SOURCE ? cut_source : cut_node)(&c, from->nodes[i]);
    for (int i = 0; ready && i < from->n_outputs; i++) cut_output(&c, &from->outputs[i]);
    free(c.whole);
    free(c.copied);
    free(c.parts);
    return tti_rewrite_finish(&c.rw, g);
}

/* ---- the pass ---- */

void tti_cuts_fini(tti_cuts *cuts) {
    for (int i = 0; i < cuts->n; i++) free(cuts->of[i].name);
    free(cuts->of);
    *cuts = (tti_cuts){0};
}

static tutti_status note_cuts(const tutti_graph *g, const tti_division *division, tti_cuts *cuts) {
    cuts->of = calloc((size_t)g->n_nodes + 1, sizeof *cuts->of);
    if (!cuts->of) return tti_fail(TUTTI_E_NOMEM, "tensor: out of memory");
    for (int i = 0; i < g->n_nodes; i++) {
        const tti_node *node = g->nodes[i];
        if (!(node->op->traits & (TTI_PARAM | TTI_BUFFER))) continue;
        char *name = strdup(node->name);
        if (!name) return tti_fail(TUTTI_E_NOMEM, "tensor: out of memory");
        tti_cut cut = tti_cut_of(division->lie[node->out[0]->id]);
        cuts->of[cuts->n++] = (struct tti_cut_of_param){name, cut};
    }
    return TUTTI_OK;
}

/* ---- heads that share keys ---- */

/* Packed side by side, queries and keys of different numbers have no common parts: a worker's heads
 * would not be those that use its keys.  Apart, each of the three is divided by its own heads. */
typedef struct packed {
    const tti_node *attention, *rotary, *concat; /* rotary NULL: none */
    int64_t heads, kv;
} packed;

static bool joins_along(const tti_node *node, const char *op, int n_dims, int axis) {
    if (!tti_is_op(node, op) || node->n_in != 3) return false;
    int64_t at = tti_attr_int(node, "axis");
    return (at < 0 ? at + n_dims : at) == axis;
}

/* The node that holds queries, keys and values one after the other; NULL: there is none.  layers:
 * one layer with three weights is one too. */
static const tti_node *parts_of(const tti_node *node, bool layers) {
    if (joins_along(node, "concat", 3, 2)) return node;
    if (!layers || !tti_is_op(node, "linear")) return NULL;
    return joins_along(node->in[1]->node, "concat", 2, 0) ? node->in[1]->node : NULL;
}

static bool has_sizes(const packed *p, int dim, int64_t width) {
    const int64_t want[3] = {p->heads * width, p->kv * width, p->kv * width};
    for (int i = 0; i < 3; i++)
        if (p->concat->in[i]->type.shape.dim[dim] != want[i]) return false;
    return true;
}

/* Whether the heads of an attention that shares keys can be divided by n when they are apart. */
static bool comes_apart(const tti_node *node, const int *n_uses, int n, bool layers, packed *p) {
    *p = (packed){.attention = node};
    if (!tti_is_op(node, "attention") || node->n_in != 1) return false;
    p->heads = tti_attr_int(node, "heads"), p->kv = tti_attr_int(node, "kv_heads");
    if (p->kv == 0 || p->kv == p->heads || p->kv % n != 0) return false;
    const tutti_value *x = node->in[0];
    int64_t width = x->type.shape.dim[2] / (p->heads + 2 * p->kv);
    if (n_uses[x->id] != 1 || (!layers && n_uses[node->out[1]->id] != 0)) return false;
    if (tti_is_op(x->node, "rotary")) {
        p->rotary = x->node;
        x = x->node->in[0];
        if (p->rotary->n_in != 1 || n_uses[x->id] != 1 ||
            tti_attr_int(p->rotary, "heads") != p->heads + p->kv ||
            tti_attr_int(p->rotary, "dim") != width)
            return false;
    }
    p->concat = parts_of(x->node, layers);
    return p->concat && has_sizes(p, x->node == p->concat ? 2 : 0, width);
}

/* Whether that is so, or was so before passes joined layers. */
static bool may_come_apart(const tti_node *attention, const int *n_uses, int n) {
    packed p;
    return comes_apart(attention, n_uses, n, true, &p);
}

static tutti_value *part(const tti_rewrite *rw, const packed *p, int i, int64_t heads) {
    tutti_value *x = tti_mapped(rw, p->concat->in[i]);
    if (!p->rotary || i == 2) return x;
    const tti_node *r = p->rotary;
    return tti_emit(tti_new_graph(rw), "rotary", r->name, &x, 1,
                    (tti_attr_arg[]){TTI_INT("heads", heads),
                                     TTI_INT("dim", tti_attr_int(r, "dim")),
                                     TTI_FLOAT("base", tti_attr_float(r, "base")),
                                     TTI_INT("start", tti_attr_int(r, "start")),
                                     TTI_INT("inverse", tti_attr_int(r, "inverse")),
                                     {0}});
}

static void emit_apart(tti_rewrite *rw, const packed *p) {
    const tti_node *node = p->attention;
    tti_graph_set_stage(tti_new_graph(rw), node->stage);
    tutti_graph_set_module(tti_new_graph(rw), node->module);
    tutti_value *in[3] = {part(rw, p, 0, p->heads), part(rw, p, 1, p->kv), part(rw, p, 2, p->kv)};
    tti_map(rw, node->out[0],
            tti_emit(tti_new_graph(rw), "sdpa", node->name, in, 3,
                     (tti_attr_arg[]){TTI_INT("heads", p->heads),
                                      TTI_INT("kv_heads", p->kv),
                                      TTI_INT("causal", tti_attr_int(node, "causal")),
                                      TTI_FLOAT("scale", tti_attr_float(node, "scale")),
                                      {0}}));
}

/* Replaces such attention by the op that has them apart. */
static tutti_status put_heads_apart(tutti_graph **g, const tti_target *target) {
    const tutti_graph *from = *g;
    tti_rewrite rw;
    packed p;
    bool any = false;
    TTI_TRY(tti_rewrite_begin(&rw, *g));
    for (int i = 0; i < from->n_nodes; i++) {
        const tti_node *node = from->nodes[i];
        if (comes_apart(node, rw.n_uses, target->n_tensor, false, &p)) {
            emit_apart(&rw, &p);
            any = true;
        } else {
            tti_rewrite_copy(&rw, node);
        }
    }
    TTI_TRY(tti_rewrite_finish(&rw, g));
    return any ? tti_pass_simplify(g, target) : TUTTI_OK;
}

int64_t tti_tensor_whole_heads(const tutti_graph *g, int n) {
    int *n_uses = tti_count_uses(g);
    int64_t whole = 0;
    for (int i = 0; i < g->n_nodes && whole == 0; i++) {
        const tti_node *node = g->nodes[i];
        if (strcmp(node->op->name, "attention") != 0) continue;
        int64_t heads = tti_attr_int(node, "heads"), kv = tti_attr_int(node, "kv_heads");
        bool packs = heads % n == 0 && (kv == 0 || kv == heads);
        if (!packs && !(n_uses && may_come_apart(node, n_uses, n))) whole = heads;
    }
    free(n_uses);
    return whole;
}

/* The reader of the largest parameter that every worker has as a whole. */
static const tti_node *largest_whole(const tutti_graph *g, const tti_division *division) {
    const tti_node *found = g->nodes[g->n_nodes - 1];
    int64_t most = -1;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++) {
            const tutti_value *x = g->nodes[i]->in[k];
            bool is_whole =
                (x->node->op->traits & TTI_PARAM) && !tti_code_is_split(division->lie[x->id]);
            if (!is_whole || tti_value_n_elems(x) <= most) continue;
            most = tti_value_n_elems(x);
            found = g->nodes[i];
        }
    return found;
}

/* So little is divided that every worker would have almost the whole model: names numbers that
 * work. */
static tutti_status refuse(const tutti_graph *g, int n, const tti_division *division) {
    tti_str even = {0}, uneven = {0};
    char text[TTI_NODE_TEXT];
    tti_node_text(largest_whole(g, division), text);
    tutti_status st = tti_tensor_numbers(g, true, &even);
    if (st == TUTTI_OK) st = tti_tensor_numbers(g, false, &uneven);
    if (st == TUTTI_OK)
        st = tti_fail(
            TUTTI_E_INVALID,
            "parallel.tensor=%d: %d must divide the features, channels, heads or classes of "
            "the layers, but does so for %.0f %% of the parameters only; numbers that "
            "work: %s; with some layers whole: %s; the largest layer that is not divided is %s",
            n, n, 100 * division->share, tti_str_text(&even), tti_str_text(&uneven), text);
    tti_str_free(&even);
    tti_str_free(&uneven);
    return st;
}

tutti_status tti_pass_tensor(tutti_graph **g, const tti_target *target) {
    tti_division division;
    if (target->n_tensor <= 1) return TUTTI_OK;
    tti_axis axis = {target->n_tensor, target->tensor};
    TTI_TRY(put_heads_apart(g, target));
    TTI_TRY(tti_tensor_divide(*g, axis.n, target->cuts, &division));
    tutti_status st = TUTTI_OK;
    if (!tti_tensor_suffices(&division) && tti_graph_is_training(*g))
        st = refuse(*g, axis.n, &division);
    bool is_first = target->cuts && target->cuts->n == 0;
    if (st == TUTTI_OK && is_first) st = note_cuts(*g, &division, target->cuts);
    if (st == TUTTI_OK) st = cut_graph(g, &division, axis);
    tti_tensor_division_fini(&division);
    return st;
}
