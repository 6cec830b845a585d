/* graph.c - builds a graph: nodes in one arena, failures kept for tutti_graph_check.
 *
 * Builder calls do not return errors.  The first failure is stored with its message, later calls
 * return NULL, and tutti_graph_check reports it. */
#include "ir/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"

tutti_graph *tti_graph_new(bool training, tti_op_finder find) {
    tutti_graph *g = calloc(1, sizeof *g);
    if (g) g->training = training, g->find_op = find, g->module = "";
    return g;
}

void tutti_graph_destroy(tutti_graph *g) {
    if (!g) return;
    tti_arena_free(&g->arena);
    free(g->nodes);
    free(g->outputs);
    free(g);
}

bool tutti_graph_is_training(const tutti_graph *g) { return g->training; }

void tutti_graph_set_sync_batch_norm(tutti_graph *g, bool sync) { g->sync_batch_norm = sync; }
void tutti_graph_set_shards(tutti_graph *g, int n_shards) { g->n_shards = n_shards; }

/* Nodes of one module share the text. */
void tutti_graph_set_module(tutti_graph *g, const char *module) {
    if (!g || strcmp(g->module, module ? module : "") == 0) return;
    const char *copy = module && module[0] ? tti_arena_strdup(&g->arena, module) : "";
    g->module = copy ? copy : "";
}

tutti_status tutti_graph_check(const tutti_graph *g) {
    if (g->failed == TUTTI_OK) return TUTTI_OK;
    return tti_fail(g->failed, "%s", g->failed_text ? g->failed_text : "graph: out of memory");
}

const tutti_value *tti_skip_views(const tutti_value *value) {
    while (value->node->op->traits & TTI_VIEW) value = value->node->in[0];
    return value;
}

void tti_graph_set_stage(tutti_graph *g, int stage) { g->stage = stage; }
void tti_graph_set_n_sampled(tutti_graph *g, int n) { g->n_sampled = n; }
void tti_graph_set_joins_samples(tutti_graph *g, bool joins) { g->joins_samples = joins; }
void tti_graph_set_mixes_labels(tutti_graph *g, bool mixes) { g->mixes_labels = mixes; }
bool tti_graph_mixes_labels(const tutti_graph *g) { return g->mixes_labels; }
bool tti_graph_joins_samples(const tutti_graph *g) { return g->joins_samples; }
bool tti_graph_is_training(const tutti_graph *g) { return g->training; }
int tti_graph_n_shards(const tutti_graph *g) { return TTI_MAX(g->n_shards, 1); }
tti_arena *tti_graph_arena(tutti_graph *g) { return &g->arena; }
bool tti_graph_has_failed(const tutti_graph *g) { return !g || g->failed != TUTTI_OK; }

const tti_op *tti_graph_find_op(const tutti_graph *g, const char *name) { return g->find_op(name); }

void tti_graph_fail(tutti_graph *g, tutti_status status) {
    if (g->failed != TUTTI_OK) return;
    g->failed = status;
    g->failed_text = tti_arena_strdup(&g->arena, tutti_last_error());
}

tutti_value *tutti_graph_refuse(tutti_graph *g, const char *why) {
    if (g && g->failed == TUTTI_OK)
        tti_graph_fail(g, tti_fail(TUTTI_E_INVALID, "%s", why ? why : "model: it cannot be built"));
    return NULL;
}

tutti_type tutti_value_type(const tutti_value *value) {
    return value ? value->type : (tutti_type){TUTTI_F32, {0}};
}

/* Room for one more element in a growing array. */
static void *grow(void *array, int n, int *capacity, size_t elem_bytes) {
    if (n < *capacity) return array;
    int wanted = *capacity ? *capacity * 2 : 32;
    void *bigger = realloc(array, (size_t)wanted * elem_bytes);
    if (bigger) *capacity = wanted;
    return bigger;
}

/* ---- attributes ---- */

int tti_n_attrs(const tti_op *op) {
    int n = 0;
    while (op->attrs && op->attrs[n].name) n++;
    return n;
}

tti_attr_arg TTI_INTS(const char *key, int n, const int64_t *v) {
    tti_attr_arg arg = {key, {.n = n}};
    TTI_ASSERT(n >= 0 && n <= TUTTI_MAX_DIMS);
    for (int i = 0; i < n; i++) arg.value.v[i] = v[i];
    return arg;
}

/* Called so often that a comparison of the first letter is worthwhile. */
static bool is_named(const tti_attr_spec *attr, const char *name) {
    return attr->name == name || (attr->name[0] == name[0] && strcmp(attr->name, name) == 0);
}

static int find_attr(const tti_op *op, const char *name) {
    for (int i = 0; op->attrs && op->attrs[i].name; i++)
        if (is_named(&op->attrs[i], name)) return i;
    return -1;
}

bool tti_attr_has(const tti_node *node, const char *name) { return find_attr(node->op, name) >= 0; }

const tti_attr *tti_attr_get(const tti_node *node, const char *name) {
    int i = find_attr(node->op, name);
    TTI_ASSERT(i >= 0);
    return &node->attrs[i];
}

void tti_attr_set_int(tti_node *node, const char *name, int64_t value) {
    int i = find_attr(node->op, name);
    TTI_ASSERT(i >= 0);
    node->attrs[i].i = value;
}

int64_t tti_attr_int(const tti_node *node, const char *name) { return tti_attr_get(node, name)->i; }

double tti_attr_float(const tti_node *node, const char *name) {
    return tti_attr_get(node, name)->f;
}

/* Attributes may come from another graph: bytes are copied.  False when out of memory. */
static bool own_bytes(tutti_graph *g, const tti_op *op, tti_attr *attrs) {
    for (int i = 0; op->attrs && op->attrs[i].name; i++) {
        if (op->attrs[i].kind != TTI_ATTR_BYTES) continue;
        attrs[i].bytes = tti_arena_copy(&g->arena, attrs[i].bytes, (size_t)attrs[i].i);
        if (!attrs[i].bytes) return false;
    }
    return true;
}

static tti_attr *make_attrs(tutti_graph *g, const tti_op *op, const tti_attr_arg *args) {
    tti_attr *attrs = tti_arena_alloc(&g->arena, (size_t)tti_n_attrs(op) * sizeof *attrs);
    if (!attrs) return NULL;
    for (int i = 0; op->attrs && op->attrs[i].name; i++) {
        attrs[i].i = op->attrs[i].kind == TTI_ATTR_INT ? (int64_t)op->attrs[i].fallback : 0;
        attrs[i].f = op->attrs[i].kind == TTI_ATTR_FLOAT ? op->attrs[i].fallback : 0;
    }
    for (; args && args->name; args++) {
        int i = find_attr(op, args->name);
        TTI_ASSERT(i >= 0);
        attrs[i] = args->value;
    }
    return own_bytes(g, op, attrs) ? attrs : NULL;
}

/* ---- nodes ---- */

tutti_status tti_node_fail(const tti_node *node, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!node->name[0]) return tti_fail(TUTTI_E_INVALID, "%s: %s", node->op->name, text);
    return tti_fail(TUTTI_E_INVALID, "%s '%s': %s", node->op->name, node->name, text);
}

const char *tti_node_text(const tti_node *node, char out[TTI_NODE_TEXT]) {
    bool has_name = node->name[0], has_module = node->module && node->module[0];
    snprintf(out, TTI_NODE_TEXT, "%s%s%s%s%s%s%s", node->op->name, has_name ? " '" : "", node->name,
             has_name ? "'" : "", has_module ? " in module '" : " of the model",
             has_module ? node->module : "", has_module ? "'" : "");
    return out;
}

static bool inputs_present(tutti_graph *g, const tti_node_desc *desc) {
    for (int i = 0; i < desc->n_in; i++)
        if (!desc->in[i]) {
            tti_fail(TUTTI_E_INVALID, "%s '%s': input %d is missing (NULL)", desc->op->name,
                     desc->name ? desc->name : "", i);
            tti_graph_fail(g, TUTTI_E_INVALID);
            return false;
        }
    return true;
}

static bool name_is_short(tutti_graph *g, const tti_node_desc *desc) {
    if (!desc->name || strlen(desc->name) <= TTI_MAX_NAME) return true;
    tti_graph_fail(
        g, tti_fail(TUTTI_E_INVALID, "%s '%.40s...': the name is too long, %d bytes are allowed",
                    desc->op->name, desc->name, TTI_MAX_NAME));
    return false;
}

static tti_node *make_node(tutti_graph *g, const tti_node_desc *desc) {
    tti_node *node = tti_arena_alloc(&g->arena, sizeof *node);
    if (!node) return NULL;
    node->op = desc->op;
    node->name = tti_arena_strdup(&g->arena, desc->name ? desc->name : "");
    node->stage = g->stage;
    node->module = g->module;
    node->n_in = desc->n_in;
    node->in = tti_arena_copy(&g->arena, desc->in, (size_t)desc->n_in * sizeof(tutti_value *));
    node->attrs = make_attrs(g, desc->op, desc->attrs);
    return node->name && node->in && node->attrs ? node : NULL;
}

static tutti_status check_arity(const tti_node *node) {
    const tti_op *op = node->op;
    if (node->n_in >= op->n_in_min && node->n_in <= op->n_in_max) return TUTTI_OK;
    return tti_node_fail(node, "%d inputs, %d to %d are allowed", node->n_in, op->n_in_min,
                         op->n_in_max);
}

static tutti_status add_outputs(tutti_graph *g, tti_node *node) {
    tutti_type types[TTI_MAX_OUT] = {0};
    TTI_TRY(check_arity(node));
    TTI_TRY(node->op->infer(node, types));
    for (int k = 0; k < node->op->n_out; k++) {
        if (tti_shape_check(&types[k].shape) != TUTTI_OK)
            return tti_node_fail(node, "output %d: %s", k, tutti_last_error());
        tutti_value *value = tti_arena_alloc(&g->arena, sizeof *value);
        if (!value) return tti_fail(TUTTI_E_NOMEM, "graph: out of memory");
        *value = (tutti_value){.type = types[k], .node = node, .out = k, .id = g->n_values + k};
        node->out[k] = value;
    }
    return TUTTI_OK;
}

tti_node *tti_graph_add(tutti_graph *g, const tti_node_desc *desc) {
    if (!g || g->failed != TUTTI_OK || !inputs_present(g, desc)) return NULL;
    if (!name_is_short(g, desc)) return NULL;
    tti_node **nodes = grow(g->nodes, g->n_nodes, &g->cap_nodes, sizeof *g->nodes);
    if (nodes) g->nodes = nodes;
    tti_node *node = nodes ? make_node(g, desc) : NULL;
    if (!node) {
        tti_graph_fail(g, tti_fail(TUTTI_E_NOMEM, "graph: out of memory"));
        return NULL;
    }
    tutti_status st = add_outputs(g, node);
    if (st != TUTTI_OK) {
        tti_graph_fail(g, st);
        return NULL;
    }
    node->id = g->n_nodes;
    g->nodes[g->n_nodes++] = node;
    g->n_values += node->op->n_out;
    return node;
}

/* A part of a chain: its value is in no list of the graph, and in map only for the parts after. */
static tti_node *clone_part(tutti_graph *g, const tti_node *part, tutti_value **in) {
    tti_node *copy = tti_arena_copy(&g->arena, part, sizeof *part);
    tutti_value *out = tti_arena_copy(&g->arena, part->out[0], sizeof *out);
    char *name = tti_arena_strdup(&g->arena, part->name);
    tti_attr *attrs =
        tti_arena_copy(&g->arena, part->attrs, (size_t)tti_n_attrs(part->op) * sizeof *attrs);
    tutti_value **ins = tti_arena_copy(&g->arena, in, (size_t)part->n_in * sizeof *ins);
    if (!copy || !out || !name || !attrs || !ins || !own_bytes(g, part->op, attrs)) return NULL;
    copy->name = name;
    copy->module = g->module;
    copy->attrs = attrs;
    copy->in = ins;
    copy->out[0] = out;
    out->node = copy;
    return copy;
}

/* The value that a part of from reads, in the chain that is being made from it. */
static tutti_value *part_input(const tti_node *from, tti_node *const *body, int n_done,
                               const tutti_value *in, tutti_value *const *map) {
    for (int b = 0; b < n_done; b++)
        if (from->body[b]->out[0] == in) return body[b]->out[0];
    return map[in->id];
}

static bool clone_body(tutti_graph *g, const tti_node *from, tutti_value *const *map,
                       tti_node *copy) {
    copy->body = tti_arena_alloc(&g->arena, (size_t)from->n_body * sizeof *copy->body);
    for (int b = 0; copy->body && b < from->n_body; b++) {
        tutti_value *in[TTI_MAX_IN] = {0};
        const tti_node *part = from->body[b];
        for (int i = 0; i < part->n_in; i++)
            in[i] = part_input(from, copy->body, b, part->in[i], map);
        copy->body[b] = clone_part(g, part, in);
        if (!copy->body[b]) return false;
    }
    copy->n_body = from->n_body;
    return copy->body != NULL;
}

tti_node *tti_graph_clone_node(tutti_graph *g, const tti_node *node, tutti_value **map) {
    tutti_value *in[TTI_MAX_IN] = {0};
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1] = {0};
    tutti_graph_set_module(g, node->module);
    for (int i = 0; i < node->n_in; i++) in[i] = map[node->in[i]->id];
    for (int i = 0; i < tti_n_attrs(node->op); i++)
        attrs[i] = (tti_attr_arg){node->op->attrs[i].name, node->attrs[i]};
    tti_node *copy = tti_graph_add(
        g, &(tti_node_desc){
               .op = node->op, .name = node->name, .in = in, .n_in = node->n_in, .attrs = attrs});
    if (!copy) return NULL;
    copy->stage = node->stage;
    if (node->n_body && !clone_body(g, node, map, copy)) {
        tti_graph_fail(g, tti_fail(TUTTI_E_NOMEM, "graph: out of memory"));
        return NULL;
    }
    for (int k = 0; k < node->op->n_out; k++) {
        copy->out[k]->layout = node->out[k]->layout;
        if (node->n_body) copy->out[k]->type = node->out[k]->type; /* its body came after infer */
        map[node->out[k]->id] = copy->out[k];
    }
    return copy;
}

/* ---- a graph inside another ---- */

static bool insert_nodes(tutti_graph *g, const tutti_graph *from, tti_input_finder find, void *user,
                         tutti_value **map) {
    for (int i = 0; i < from->n_nodes; i++) {
        const tti_node *node = from->nodes[i];
        if (strcmp(node->op->name, "input") != 0) {
            if (!tti_graph_clone_node(g, node, map)) return false;
            continue;
        }
        map[node->out[0]->id] = find(user, g, node);
        if (!map[node->out[0]->id]) return false;
    }
    tutti_graph_set_module(g, NULL);
    return true;
}

static tutti_value *insert_outputs(tutti_graph *g, const tutti_graph *from, const char *result,
                                   tutti_value **map) {
    char why[256];
    tutti_value *value = NULL;
    for (int i = 0; i < from->n_outputs; i++) {
        const tti_output *out = &from->outputs[i];
        if (strcmp(out->name, result) == 0)
            value = map[out->value->id];
        else
            tutti_output(g, out->name, map[out->value->id]);
    }
    snprintf(why, sizeof why, "the finished graph has no output '%s' (tutti_output)", result);
    return value ? value : tutti_graph_refuse(g, why);
}

tutti_value *tti_graph_insert(tutti_graph *g, const tutti_graph *from, const char *result,
                              tti_input_finder find, void *user) {
    tutti_value **map = calloc((size_t)from->n_values + 1, sizeof *map), *value = NULL;
    if (!map)
        tti_graph_fail(g, tti_fail(TUTTI_E_NOMEM, "graph: out of memory"));
    else if (insert_nodes(g, from, find, user, map))
        value = insert_outputs(g, from, result, map);
    free(map);
    return value;
}

bool tti_graph_differs_in_evaluation(const tutti_graph *g) {
    for (int i = 0; i < g->n_nodes; i++)
        if (g->nodes[i]->op->traits & TTI_RANDOM) return true;
    for (int i = 0; i < g->n_outputs; i++)
        if (strncmp(g->outputs[i].name, "stat.", 5) == 0) return true;
    return false;
}

/* ---- copies of all of it ---- */

/* Copies the node without inferring its types again. */
static bool copy_node(tutti_graph *to, const tti_node *node, tutti_value **map) {
    tti_arena *arena = &to->arena;
    tti_node *copy = tti_arena_copy(arena, node, sizeof *copy);
    if (!copy) return false;
    to->nodes[to->n_nodes++] = copy;
    tutti_graph_set_module(to, node->module);
    copy->module = to->module;
    copy->name = tti_arena_strdup(arena, node->name);
    copy->attrs =
        tti_arena_copy(arena, node->attrs, (size_t)tti_n_attrs(node->op) * sizeof *copy->attrs);
    if (!copy->attrs || !own_bytes(to, node->op, copy->attrs)) return false;
    copy->in = tti_arena_alloc(arena, (size_t)node->n_in * sizeof *copy->in);
    for (int i = 0; copy->in && i < node->n_in; i++) copy->in[i] = map[node->in[i]->id];
    for (int k = 0; k < node->op->n_out; k++) {
        tutti_value *out = tti_arena_copy(arena, node->out[k], sizeof *out);
        if (!out) return false;
        out->node = copy;
        copy->out[k] = map[out->id] = out;
    }
    return !node->n_body || clone_body(to, node, map, copy);
}

static void copy_all(const tutti_graph *g, tutti_graph *to, tutti_value **map) {
    bool done = true;
    for (int i = 0; done && i < g->n_nodes; i++) done = copy_node(to, g->nodes[i], map);
    for (int i = 0; done && i < g->n_outputs; i++) {
        const tti_output *output = &g->outputs[i];
        const char *name = tti_arena_strdup(&to->arena, output->name);
        to->outputs[to->n_outputs++] = (tti_output){name, map[output->value->id]};
    }
}

tutti_status tti_graph_copy(const tutti_graph *g, tutti_graph **out) {
    *out = NULL;
    TTI_TRY(tutti_graph_check(g));
    tutti_graph *to = tti_graph_new(g->training, g->find_op);
    tutti_value **map = calloc((size_t)g->n_values + 1, sizeof *map);
    if (to) {
        *to = (tutti_graph){.cap_nodes = g->n_nodes + 1,
                            .n_values = g->n_values,
                            .cap_outputs = g->n_outputs + 1,
                            .stage = g->stage,
                            .module = "",
                            .training = g->training,
                            .find_op = g->find_op,
                            .sync_batch_norm = g->sync_batch_norm,
                            .n_shards = g->n_shards,
                            .joins_samples = g->joins_samples};
        to->nodes = calloc((size_t)to->cap_nodes, sizeof *to->nodes);
        to->outputs = calloc((size_t)to->cap_outputs, sizeof *to->outputs);
    }
    bool ready = to && map && to->nodes && to->outputs;
    if (ready) copy_all(g, to, map);
    free(map);
    if (ready && !tti_arena_failed(&to->arena)) {
        *out = to;
        return TUTTI_OK;
    }
    tutti_graph_destroy(to);
    return tti_fail(TUTTI_E_NOMEM, "graph: out of memory");
}

/* ---- names ---- */

void tutti_output(tutti_graph *g, const char *name, tutti_value *value) {
    if (!g || g->failed != TUTTI_OK || !value) return;
    if (tti_graph_output(g, name)) {
        tti_graph_fail(g, tti_fail(TUTTI_E_INVALID, "output '%s' is named twice", name));
        return;
    }
    tti_output *outputs = grow(g->outputs, g->n_outputs, &g->cap_outputs, sizeof *outputs);
    if (outputs) g->outputs = outputs;
    char *copy = outputs ? tti_arena_strdup(&g->arena, name) : NULL;
    if (!copy) {
        tti_graph_fail(g, tti_fail(TUTTI_E_NOMEM, "graph: out of memory"));
        return;
    }
    g->outputs[g->n_outputs++] = (tti_output){copy, value};
}

tutti_value *tti_graph_output(const tutti_graph *g, const char *name) {
    for (int i = 0; i < g->n_outputs; i++)
        if (strcmp(g->outputs[i].name, name) == 0) return g->outputs[i].value;
    return NULL;
}

tti_node *tti_graph_find_source(const tutti_graph *g, const char *name) {
    for (int i = 0; i < g->n_nodes; i++)
        if ((g->nodes[i]->op->traits & TTI_SOURCE) && strcmp(g->nodes[i]->name, name) == 0)
            return g->nodes[i];
    return NULL;
}

double tti_constant_elem(const tti_node *node, size_t i) {
    if (!tti_attr_has(node, "data")) return tti_attr_float(node, "value");
    return tti_load_elem(node->out[0]->type.dtype, tti_attr_get(node, "data")->bytes, i);
}

int64_t tti_value_n_elems(const tutti_value *value) {
    return tutti_shape_n_elems(&value->type.shape);
}

size_t tti_value_n_bytes(const tutti_value *value) {
    return (size_t)tti_value_n_elems(value) * tutti_dtype_bytes(value->type.dtype);
}
