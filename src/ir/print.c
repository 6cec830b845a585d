/* print.c - the text form of a graph, which read.c reads back.
 *
 *   graph training
 *   %0 = input "x" () {dtype=0 dims=[16,1,28,28]} : f32[16,1,28,28]
 *   %2 = conv2d "conv1" (%0, %1) {pad=[1,1]} : f32[16,32,28,28] channels_last
 *   output "logits" %2
 *
 * Attributes at their default are left out; numbers are printed so that they read back exactly. */
#include <math.h>
#include <stdlib.h>

#include "ir/graph.h"

static void print_name(tti_str *str, const char *name) {
    tti_str_add(str, "\"");
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;
        if (c == '"' || c == '\\')
            tti_str_printf(str, "\\%c", c);
        else if (c < 0x20 || c == 0x7F)
            tti_str_printf(str, "\\x%02x", c);
        else
            tti_str_add_bytes(str, name, 1);
    }
    tti_str_add(str, "\"");
}

static bool print_attr(tti_str *str, const tti_attr_spec *spec, const tti_attr *attr,
                       const char *separator) {
    switch (spec->kind) {
        case TTI_ATTR_INT:
            if (attr->i == (int64_t)spec->fallback) return false;
            tti_str_printf(str, "%s%s=%lld", separator, spec->name, (long long)attr->i);
            return true;
        case TTI_ATTR_FLOAT:
            if (attr->f == spec->fallback) return false;
            tti_str_printf(str, "%s%s=%.17g", separator, spec->name, attr->f);
            return true;
        case TTI_ATTR_INTS:
            if (attr->n == 0) return false;
            tti_str_printf(str, "%s%s=", separator, spec->name);
            tutti_shape list = {.n_dims = attr->n};
            for (int i = 0; i < attr->n; i++) list.dim[i] = attr->v[i];
            tti_shape_print(str, &list);
            return true;
        case TTI_ATTR_BYTES:
            if (attr->i == 0) return false;
            tti_str_printf(str, "%s%s=", separator, spec->name);
            for (int64_t i = 0; i < attr->i; i++)
                tti_str_printf(str, "%02x", ((const uint8_t *)attr->bytes)[i]);
            return true;
    }
    return false;
}

static void print_attrs(tti_str *str, const tti_node *node) {
    tti_str_add(str, " {");
    const char *separator = "";
    for (int i = 0; i < tti_n_attrs(node->op); i++)
        if (print_attr(str, &node->op->attrs[i], &node->attrs[i], separator)) separator = " ";
    tti_str_add(str, "}");
}

static void print_node(tti_str *str, const tti_node *node) {
    for (int k = 0; k < node->op->n_out; k++)
        tti_str_printf(str, "%s%%%d", k ? ", " : "", node->out[k]->id);
    tti_str_printf(str, " = %s ", node->op->name);
    print_name(str, node->name);
    tti_str_add(str, " (");
    for (int i = 0; i < node->n_in; i++)
        tti_str_printf(str, "%s%%%d", i ? ", " : "", node->in[i]->id);
    tti_str_add(str, ")");
    print_attrs(str, node);
    for (int k = 0; k < node->op->n_out; k++) {
        tti_str_add(str, k ? ", " : " : ");
        tti_type_print(str, &node->out[k]->type);
        if (node->out[k]->layout != TTI_PLAIN) tti_str_add(str, " channels_last");
    }
    if (node->n_body > 0) {
        tti_str_add(str, " # body:");
        for (int i = 0; i < node->n_body; i++) tti_str_printf(str, " %s", node->body[i]->op->name);
    }
    tti_str_add(str, "\n");
}

void tti_graph_print(const tutti_graph *g, tti_str *str) {
    tti_str_add(str, g->training ? "graph training\n" : "graph inference\n");
    for (int i = 0; i < g->n_nodes; i++) print_node(str, g->nodes[i]);
    for (int i = 0; i < g->n_outputs; i++) {
        tti_str_add(str, "output ");
        print_name(str, g->outputs[i].name);
        tti_str_printf(str, " %%%d\n", g->outputs[i].value->id);
    }
}

char *tutti_graph_print(const tutti_graph *g) {
    tti_str str = {0};
    tti_graph_print(g, &str);
    if (str.failed) tti_str_free(&str);
    return str.text;
}
