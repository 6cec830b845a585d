/* scene.c - facts about the values of a graph that patterns need: the readers of a value, the
 * values that it depends on, and the elements of constants. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"
#include "passes/recognize/match.h"

/* Larger constants are not looked at. */
enum { MAX_ELEMS = 1 << 22 };

struct tti_constant_elems {
    const double *x; /* NULL: unknown so far, or too large */
    bool known, uniform;
};

static void find_users(tti_scene *s) {
    const tutti_graph *g = s->g;
    for (int i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < g->nodes[i]->n_in; k++) s->first_user[g->nodes[i]->in[k]->id + 1]++;
    for (int v = 0; v < g->n_values; v++) s->first_user[v + 1] += s->first_user[v];
    for (int i = g->n_nodes - 1; i >= 0; i--) /* fills each part from its end */
        for (int k = 0; k < g->nodes[i]->n_in; k++)
            s->user[--s->first_user[g->nodes[i]->in[k]->id + 1]] = g->nodes[i];
    /* first_user[v + 1] is now where v's users begin */
    for (int v = 0; v < g->n_values; v++) s->first_user[v] = s->first_user[v + 1];
    int n = 0;
    for (int i = 0; i < g->n_nodes; i++) n += g->nodes[i]->n_in;
    s->first_user[g->n_values] = n;
    for (int i = 0; i < g->n_outputs; i++) s->is_output[g->outputs[i].value->id] = true;
}

static void find_origins(tti_scene *s) {
    for (int i = 0; i < s->g->n_nodes; i++) {
        const tti_node *node = s->g->nodes[i];
        bool of_input = (node->op->traits & (TTI_INPUT | TTI_RANDOM)) != 0;
        bool is_constant = !(node->op->traits & TTI_SOURCE) || (node->op->traits & TTI_CONSTANT);
        for (int k = 0; k < node->n_in; k++) {
            of_input = of_input || s->of_input[node->in[k]->id];
            is_constant = is_constant && s->is_constant[node->in[k]->id];
        }
        for (int k = 0; k < node->op->n_out; k++) {
            s->of_input[node->out[k]->id] = of_input;
            s->is_constant[node->out[k]->id] = is_constant && !of_input;
        }
    }
}

tutti_status tti_scene_begin(tti_scene *s, const tutti_graph *g) {
    size_t n_values = (size_t)g->n_values + 2, n_nodes = (size_t)g->n_nodes + 1, n_reads = 1;
    *s = (tti_scene){.g = g};
    for (int i = 0; i < g->n_nodes; i++) n_reads += (size_t)g->nodes[i]->n_in;
    s->first_user = tti_arena_alloc(&s->arena, n_values * sizeof *s->first_user);
    s->user = tti_arena_alloc(&s->arena, n_reads * sizeof *s->user);
    s->is_output = tti_arena_alloc(&s->arena, n_values);
    s->of_input = tti_arena_alloc(&s->arena, n_values);
    s->is_constant = tti_arena_alloc(&s->arena, n_values);
    s->elems = tti_arena_alloc(&s->arena, n_values * sizeof *s->elems);
    s->placed = tti_arena_alloc(&s->arena, n_values * sizeof *s->placed);
    s->taken = tti_arena_alloc(&s->arena, n_nodes);
    s->mark = tti_arena_alloc(&s->arena, n_nodes * sizeof *s->mark);
    if (tti_arena_failed(&s->arena)) {
        tti_scene_end(s);
        return tti_fail(TUTTI_E_NOMEM, "recognize: out of memory");
    }
    find_users(s);
    find_origins(s);
    /* A graph that cannot be divided is computed as one shard, or refused by a later pass. */
    if (tti_split_batch(g, s->placed) != TUTTI_OK) s->placed = NULL;
    return TUTTI_OK;
}

void tti_scene_end(tti_scene *s) { tti_arena_free(&s->arena); }

bool tti_batch_is_first(const tti_scene *s, const tutti_value *value) {
    if (!s->placed) return true;
    const tti_placement *at = &s->placed[value->id];
    return at->kind == TTI_WHOLE || (at->kind == TTI_SPLIT && at->dim == 0);
}

int64_t tti_scene_samples(const tti_scene *s) {
    int64_t n = 0;
    for (int i = 0; s->placed && i < s->g->n_nodes; i++) {
        const tutti_value *value = s->g->nodes[i]->out[0];
        const tti_placement *at = &s->placed[value->id];
        if (!(value->node->op->traits & TTI_INPUT) || at->kind != TTI_SPLIT || at->dim != 0)
            continue;
        if (n == 0 || value->type.shape.dim[0] < n) n = value->type.shape.dim[0];
    }
    return n;
}

/* ---- constants ---- */

static const double *elems_of(tti_scene *s, const tutti_value *value);

/* By the op's own meaning, rounded as a kernel stores it. */
static void compute(tti_scene *s, const tti_node *node) {
    const double *in[TTI_MAX_IN] = {NULL};
    double *out[TTI_MAX_OUT] = {NULL};
    if (!node->op->reference || (node->op->traits & (TTI_UPDATE | TTI_SYNC))) return;
    for (int k = 0; k < node->n_in; k++)
        if (!(in[k] = elems_of(s, node->in[k]))) return;
    for (int k = 0; k < node->op->n_out; k++) {
        int64_t n = tti_value_n_elems(node->out[k]);
        if (n > MAX_ELEMS) return;
        out[k] = tti_arena_alloc(&s->arena, (size_t)(n + 1) * sizeof *out[k]);
        if (!out[k]) return;
    }
    const tti_run run = {0};
    node->op->reference(&(tti_args){.node = node, .in = in, .out = out, .run = &run});
    for (int k = 0; k < node->op->n_out; k++) {
        bool is_f32 = node->out[k]->type.dtype == TUTTI_F32;
        for (int64_t i = 0; is_f32 && i < tti_value_n_elems(node->out[k]); i++)
            out[k][i] = (double)(float)out[k][i];
        s->elems[node->out[k]->id].x = out[k];
    }
}

static const double *elems_of(tti_scene *s, const tutti_value *value) {
    struct tti_constant_elems *e = &s->elems[value->id];
    int64_t n = tti_value_n_elems(value);
    if (e->known || !s->is_constant[value->id] || n > MAX_ELEMS) return e->x;
    e->known = true;
    if (value->node->op->traits & TTI_CONSTANT) {
        double *x = tti_arena_alloc(&s->arena, (size_t)(n + 1) * sizeof *x);
        for (int64_t i = 0; x && i < n; i++) x[i] = tti_constant_elem(value->node, (size_t)i);
        e->x = x;
    } else {
        compute(s, value->node);
    }
    e->uniform = e->x && n > 0;
    for (int64_t i = 1; e->uniform && i < n; i++) e->uniform = e->x[i] == e->x[0];
    return e->x;
}

const double *tti_constant_of(tti_scene *s, const tutti_value *value) { return elems_of(s, value); }

bool tti_is_uniform(tti_scene *s, const tutti_value *value, double *x) {
    if (!s->is_constant[value->id] || tti_value_n_elems(value) < 1) return false;
    if (tti_attr_has(value->node, "value") && (value->node->op->traits & TTI_CONSTANT)) {
        *x = tti_attr_float(value->node, "value");
        return true;
    }
    const double *elems = elems_of(s, value);
    if (!elems || !s->elems[value->id].uniform) return false;
    *x = elems[0];
    return true;
}

/* ---- alpha x + beta ---- */

/* mul, div, add or sub of x and a number on the side `at`. */
static bool pair_step(const tti_node *node, int at, double c, double *alpha, double *beta) {
    *alpha = 1, *beta = 0;
    if (tti_is_op(node, "mul"))
        *alpha = c;
    else if (tti_is_op(node, "add"))
        *beta = c;
    else if (tti_is_op(node, "sub"))
        *alpha = at ? 1 : -1, *beta = at ? -c : c;
    else if (tti_is_op(node, "div") && at == 1 && c != 0)
        *alpha = 1 / c;
    else
        return false;
    return isfinite(c);
}

tutti_value *tti_linear_step(tti_scene *s, const tutti_value *value, double *alpha, double *beta) {
    const tti_node *node = value->node;
    if (tti_is_op(node, "affine")) {
        *alpha = tti_attr_float(node, "alpha"), *beta = tti_attr_float(node, "beta");
        return node->in[0];
    }
    if (tti_is_op(node, "neg")) {
        *alpha = -1, *beta = 0;
        return node->in[0];
    }
    if (!(node->op->traits & TTI_BROADCAST) || node->n_in != 2) return NULL;
    for (int at = 1; at >= 0; at--) {
        double c;
        tutti_value *x = node->in[1 - at];
        if (!tti_shape_equal(&x->type.shape, &value->type.shape)) continue;
        if (tti_is_uniform(s, node->in[at], &c) && pair_step(node, at, c, alpha, beta)) return x;
    }
    return NULL;
}
