/* neighbours.c - places parameters next to each other if their gradients are slices of one value.
 *
 * If they are adjacent in the flat arrays, in the order of the slices, the value can be made in
 * place.  Then no slice is copied, and joining the parameters is free too: bucket.c gives them
 * neighbouring slots, memplan.c places the values, plan.c leaves the slices and the concat out of
 * the program.  Slots are padded to 16 elements, so parts must be multiples of that. */
#include "passes/memory/neighbours.h"

#include <stdlib.h>
#include <string.h>

#include "ops/op_table.h"
#include "passes/rewrite.h"

enum { SLOT_ELEMS = 16 };

typedef struct finder {
    const tutti_graph *g;
    const tti_op *slice;
    int *n_uses; /* [n_values] */
    tti_neighbours *out;
} finder;

static bool is_along_rows(const tti_node *node) { return tti_attr_int(node, "axis") == 0; }

bool tti_joins_params(const tti_node *node) {
    if (strcmp(node->op->name, "concat") != 0 || !is_along_rows(node)) return false;
    for (int i = 0; i < node->n_in; i++)
        if (!(node->in[i]->node->op->traits & TTI_PARAM) || node->in[i]->type.dtype != TUTTI_F32)
            return false;
    return true;
}

size_t tti_slice_offset(const tti_node *slice) {
    int64_t rows = slice->in[0]->type.shape.dim[0];
    if (rows == 0) return 0;
    return tti_value_n_bytes(slice->in[0]) / (size_t)rows * (size_t)tti_attr_int(slice, "start");
}

/* The parameter whose gradient this slice is, and nothing else; NULL: none. */
static const tti_node *param_of(const finder *f, const tti_node *slice) {
    const tutti_value *grad = slice->out[0];
    if (f->n_uses[grad->id] != 1 || tti_value_n_elems(grad) % SLOT_ELEMS) return NULL;
    for (int i = 0; i < f->g->n_outputs; i++)
        if (f->g->outputs[i].value == grad && strncmp(f->g->outputs[i].name, "grad.", 5) == 0)
            return tti_graph_find_source(f->g, f->g->outputs[i].name + 5);
    return NULL;
}

/* The part of whole that begins at that row; NULL: none. */
static const tti_node *part_at(const finder *f, const tutti_value *whole, int64_t start) {
    for (int i = whole->node->id + 1; i < f->g->n_nodes; i++) {
        const tti_node *node = f->g->nodes[i];
        if (node->op == f->slice && node->in[0] == whole && is_along_rows(node) &&
            tti_attr_int(node, "start") == start && tti_attr_int(node, "len") > 0)
            return param_of(f, node) ? node : NULL;
    }
    return NULL;
}

/* The number of slices that make up the whole, in order; 0: they do not, or it has another reader.
 */
static int count_parts(const finder *f, const tutti_value *whole) {
    int64_t row = 0, n_rows = whole->type.shape.dim[0];
    int n = 0;
    for (; row < n_rows; n++) {
        const tti_node *part = part_at(f, whole, row);
        if (!part) return 0;
        row += tti_attr_int(part, "len");
    }
    return n == f->n_uses[whole->id] ? n : 0;
}

static void note_group(const finder *f, const tutti_value *whole, int n) {
    const tti_node *first = NULL;
    int64_t row = 0;
    for (int i = 0; i < n; i++) {
        const tti_node *part = part_at(f, whole, row), *param = param_of(f, part);
        if (!first) first = param;
        f->out->cut_from[part->id] = whole;
        f->out->first[param->id] = first;
        f->out->place[param->id] = i;
        row += tti_attr_int(part, "len");
    }
}

static void find_group(const finder *f, const tti_node *slice) {
    const tutti_value *whole = slice->in[0];
    bool own_bytes = !(whole->node->op->traits & (TTI_SOURCE | TTI_VIEW));
    if (tti_attr_int(slice, "start") != 0 || !own_bytes || whole->type.dtype != TUTTI_F32 ||
        whole->layout != TTI_PLAIN)
        return;
    int n = count_parts(f, whole);
    if (n > 1) note_group(f, whole, n);
}

static bool is_joined(const tti_neighbours *parts, const tti_node *node) {
    if (!tti_joins_params(node)) return false;
    const tti_node *first = parts->first[node->in[0]->node->id];
    for (int i = 0; i < node->n_in; i++) {
        int id = node->in[i]->node->id;
        if (!first || parts->first[id] != first) return false;
        if (i > 0 && parts->place[id] != parts->place[node->in[i - 1]->node->id] + 1) return false;
    }
    return true;
}

static void find_all(const finder *f) {
    for (int i = 0; i < f->g->n_nodes; i++) {
        const tti_node *node = f->g->nodes[i];
        if (node->op == f->slice && is_along_rows(node)) find_group(f, node);
    }
    for (int i = 0; i < f->g->n_nodes; i++) f->out->joined[i] = is_joined(f->out, f->g->nodes[i]);
}

tutti_status tti_neighbours_find(const tutti_graph *g, bool wanted, tti_neighbours *out) {
    size_t n = (size_t)g->n_nodes + 1;
    finder f = {.g = g, .slice = tti_op_find("slice"), .n_uses = tti_count_uses(g), .out = out};
    *out = (tti_neighbours){calloc(n, sizeof *out->cut_from), calloc(n, sizeof *out->first),
                            calloc(n, sizeof *out->place), calloc(n, sizeof *out->joined)};
    bool ready = f.n_uses && out->cut_from && out->first && out->place && out->joined;
    if (ready && wanted) find_all(&f);
    free(f.n_uses);
    return ready ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
}

void tti_neighbours_fini(tti_neighbours *parts) {
    free(parts->cut_from);
    free(parts->first);
    free(parts->place);
    free(parts->joined);
    *parts = (tti_neighbours){0};
}
