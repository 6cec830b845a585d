/* graph_model.c - models that are complete graphs, whose nodes are copied into the graph of a
 * shard. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "ir/graph.h"
#include "tutti/job.h"
#include "tutti/losses.h"

static bool has_type(const tutti_value *value, const tutti_type *type) {
    return value->type.dtype == type->dtype && tti_shape_equal(&value->type.shape, &type->shape);
}

static tutti_value *refuse(tutti_graph *g, const char *name, const tutti_type *has,
                           const tutti_type *wants) {
    char why[512], a[128], b[128];
    snprintf(
        why, sizeof why,
        "the finished graph reads '%.100s' as %s, and a shard has %s (its rows are train.batch "
        "/ parallel.shards)",
        name, tti_type_text(has, a, sizeof a), tti_type_text(wants, b, sizeof b));
    return tutti_graph_refuse(g, why);
}

/* Finds the input of a node.  "rows" is the number of rows of a shard that are not padding; batch
 * norms read it. */
static tutti_value *find_input(void *user, tutti_graph *g, const tti_node *node) {
    tutti_value *x = user;
    const tutti_type *type = &node->out[0]->type;
    if (strcmp(node->name, "x") == 0) return has_type(x, type) ? x : refuse(g, "x", type, &x->type);
    if (strcmp(node->name, "rows") == 0) {
        tti_node *rows = tti_graph_find_source(g, "rows");
        return rows ? rows->out[0] : tutti_input(g, "rows", type->dtype, &type->shape);
    }
    tutti_value *field = tutti_find_field(g, node->name);
    if (!field) return NULL;
    return has_type(field, type) ? field : refuse(g, node->name, type, &field->type);
}

tutti_value *tutti_model_from_graph(tutti_graph *g, tutti_value *x, const void *user) {
    const tutti_model_graphs *graphs = user;
    if (!x) return NULL;
    if (!graphs || !graphs->train)
        return tutti_graph_refuse(g,
                                  "tutti_model_from_graph: user is not a tutti_model_graphs with a "
                                  "graph for training");
    bool training = tutti_graph_is_training(g);
    const tutti_graph *from = training || !graphs->eval ? graphs->train : graphs->eval;
    if (tutti_graph_check(from) != TUTTI_OK) return tutti_graph_refuse(g, tutti_last_error());
    if (!training && !graphs->eval && tti_graph_differs_in_evaluation(from))
        return tutti_graph_refuse(g,
                                  "the finished graph has dropout or running statistics, which "
                                  "differ in evaluation; give tutti_model_graphs.eval");
    return tti_graph_insert(g, from, "logits", find_input, x);
}
