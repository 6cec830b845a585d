/* rewrite.h - makes a new graph from an old one, node by node.
 *
 * A pass that changes structure walks the old nodes in order, copies or replaces each, and keeps a
 * map from old values to new ones.  The map gives the new outputs at the end.  Passes use the
 * functions below, not the fields. */
#ifndef TTI_PASSES_REWRITE_H
#define TTI_PASSES_REWRITE_H

#include "ir/graph.h"

typedef struct tti_rewrite {
    const tutti_graph *from;
    tutti_graph *to;
    tutti_value **map; /* [from->n_values]: old value id -> new value, NULL: dropped */
    int *n_uses;       /* [from->n_values]: users, an output counts as one */
} tti_rewrite;

/* The graph that is read, and the graph that is built. */
static inline const tutti_graph *tti_old_graph(const tti_rewrite *rw) { return rw->from; }
static inline tutti_graph *tti_new_graph(const tti_rewrite *rw) { return rw->to; }

/* The new value of an old one; NULL: none yet, or its node was dropped. */
static inline tutti_value *tti_mapped(const tti_rewrite *rw, const tutti_value *old) {
    return rw->map[old->id];
}
static inline void tti_map(tti_rewrite *rw, const tutti_value *old, tutti_value *new_value) {
    rw->map[old->id] = new_value;
}

/* Uses of an old value; an output counts as one. */
static inline int tti_n_uses(const tti_rewrite *rw, const tutti_value *old) {
    return rw->n_uses[old->id];
}

/* Starts with an empty new graph. */
tutti_status tti_rewrite_begin(tti_rewrite *rw, const tutti_graph *from);

/* Copies a node with its inputs mapped; failures are sticky in the new graph. */
void tti_rewrite_copy(tti_rewrite *rw, const tti_node *node);

/* Copies a node with other inputs, values of the new graph: in [node->n_in]. */
void tti_rewrite_copy_with(tti_rewrite *rw, const tti_node *node, tutti_value *const *in);

/* Names the outputs, checks the new graph, replaces *g by it and destroys the old one.  On failure
 * the new graph is destroyed and *g stays as it was.  Frees rw either way. */
tutti_status tti_rewrite_finish(tti_rewrite *rw, tutti_graph **g);

/* The same with the outputs that the new graph was given, which may be others. */
tutti_status tti_rewrite_replace(tti_rewrite *rw, tutti_graph **g);

/* Users of every value, outputs included: [g->n_values], freed by the caller; NULL: no memory. */
int *tti_count_uses(const tutti_graph *g);

/* The only user of a value that has exactly one user node; NULL if there are none or several. */
const tti_node *tti_only_user(const tutti_graph *g, const tutti_value *value);

bool tti_is_output(const tutti_graph *g, const tutti_value *value);

/* Whether the node is of the op of that name; whether it has the value as an input. */
bool tti_is_op(const tti_node *node, const char *name);
bool tti_reads(const tti_node *node, const tutti_value *value);

#endif /* TTI_PASSES_REWRITE_H */
