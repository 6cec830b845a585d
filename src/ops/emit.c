/* emit.c - adds a node to a graph by the name of its op.
 *
 * The graph knows how to find an op, so that the families, which emit each other's ops, do not
 * depend on the table of all families. */
#include "ops/op_table.h"

void tti_emit_n(tutti_graph *g, const char *op, const char *name, tutti_value *const *in, int n_in,
                const tti_attr_arg *attrs, tutti_value **out) {
    if (!g) return;
    const tti_op *found = tti_graph_find_op(g, op);
    TTI_ASSERT(found);
    tti_node *node = tti_graph_add(
        g, &(tti_node_desc){.op = found, .name = name, .in = in, .n_in = n_in, .attrs = attrs});
    for (int k = 0; k < found->n_out; k++) out[k] = node ? node->out[k] : NULL;
}

tutti_value *tti_emit(tutti_graph *g, const char *op, const char *name, tutti_value *const *in,
                      int n_in, const tti_attr_arg *attrs) {
    tutti_value *out[TTI_MAX_OUT] = {NULL};
    tti_emit_n(g, op, name, in, n_in, attrs, out);
    return out[0];
}
