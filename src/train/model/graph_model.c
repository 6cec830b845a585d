/* graph_model.c - models that are finished graphs: their nodes are copied into the graph of a
 * shard.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ir/graph.h"
#include "tutti/job.h"
#include "tutti/losses.h"

static bool is_input(const tti_node *node) { return strcmp(node->op->name, "input") == 0; }

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

/* "rows" is the number of real rows of a shard, which batch norms read. */
static tutti_value *find_input(tutti_graph *g, tutti_value *x, const tti_node *node) {
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

static bool copy_nodes(tutti_graph *g, tutti_value *x, const tutti_graph *from, tutti_value **map) {
    for (int i = 0; i < from->n_nodes; i++) {
        const tti_node *node = from->nodes[i];
        if (!is_input(node)) {
            if (!tti_graph_clone_node(g, node, map)) return false;
            continue;
        }
        map[node->out[0]->id] = find_input(g, x, node);
        if (!map[node->out[0]->id]) return false;
    }
    tutti_graph_set_module(g, NULL);
    return true;
}

static bool differs_in_evaluation(const tutti_graph *g) {
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op->traits & TTI_RANDOM) return true;
    for (int i = 0; i < g->n_outputs; i++)
        if (strncmp(g->outputs[i].name, "stat.", 5) == 0) return true;
    return false;
}

static tutti_value *copy_outputs(tutti_graph *g, const tutti_graph *from, tutti_value **map) {
    tutti_value *logits = NULL;
    for (int i = 0; i < from->n_outputs; i++) {
        tutti_value *value = map[from->outputs[i].value->id];
        if (strcmp(from->outputs[i].name, "logits") == 0)
            logits = value;
        else
            tutti_output(g, from->outputs[i].name, value);
    }
    return logits ? logits
                  : tutti_graph_refuse(g,
                                       "the finished graph has no output 'logits' "
                                       "(tutti_output)");
}

static tutti_value *copy(tutti_graph *g, tutti_value *x, const tutti_graph *from) {
    tutti_value **map = calloc((size_t)from->n_values + 1, sizeof *map);
    if (!map) {
        tti_graph_fail(g, tti_fail(TUTTI_E_NOMEM, "graph: out of memory"));
        return NULL;
    }
    tutti_value *logits = copy_nodes(g, x, from, map) ? copy_outputs(g, from, map) : NULL;
    free(map);
    return logits;
}

tutti_value *tutti_model_from_graph(tutti_graph *g, tutti_value *x, const void *user) {
    const tutti_model_graphs *graphs = user;
    if (!x) return NULL;
    if (!graphs || !graphs->train)
        return tutti_graph_refuse(g,
                                  "tutti_model_from_graph: user is no tutti_model_graphs with a "
                                  "graph for training");
    bool training = tutti_graph_is_training(g);
    const tutti_graph *from = training || !graphs->eval ? graphs->train : graphs->eval;
    if (tutti_graph_check(from) != TUTTI_OK) return tutti_graph_refuse(g, tutti_last_error());
    if (!training && !graphs->eval && differs_in_evaluation(from))
        return tutti_graph_refuse(g,
                                  "the finished graph has dropout or running statistics, which "
                                  "differ in evaluation; give tutti_model_graphs.eval");
    return copy(g, x, from);
}
