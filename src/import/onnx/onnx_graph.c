/* onnx_graph.c - converts the nodes of an ONNX graph to calls.
 *
 * Every name is resolved here: a node may only use values of earlier nodes, so a graph has neither
 * cycles nor undefined values. Constants become tensors of the file. Calls of functions that the
 * model defines are inlined. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "import/onnx/onnx.h"

enum { NO_VALUE = 1 << 30, MAX_ARGS = 1 << 16, MAX_WHAT = 400 };

/* ---- growing lists ---- */

bool tti_onnx_grow(void *list, int n, int *cap, size_t size) {
    void **v = list;
    if (n < *cap) return true;
    int to = *cap ? 2 * *cap : 64;
    void *grown = realloc(*v, (size_t)to * size);
    if (!grown) return false;
    *v = grown;
    *cap = to;
    return true;
}

tutti_status tti_onnx_add_value(tti_onnx *m, const char *name, int *out) {
    if (!tti_onnx_grow(&m->block->value_names, m->block->n_values, &m->block->cap_values,
                       sizeof *m->block->value_names))
        return tti_onnx_no_memory(m);
    m->block->value_names[m->block->n_values] = name;
    *out = m->block->n_values++;
    return TUTTI_OK;
}

/* ---- values of enclosing graphs ---- */

static tutti_status capture(tti_onnx *m, tti_onnx_block *b, int outer, int *out) {
    tti_onnx_block *at_hand = m->block;
    if (!tti_onnx_grow(&b->captured, b->n_captured, &b->cap_captured, sizeof *b->captured) ||
        !tti_onnx_grow(&b->captured_as, b->n_captured, &b->cap_captured_as, sizeof *b->captured_as))
        return tti_onnx_no_memory(m);
    m->block = b;
    tutti_status st = tti_onnx_add_value(m, b->around->value_names[outer], out);
    m->block = at_hand;
    if (st != TUTTI_OK) return st;
    b->captured[b->n_captured] = outer;
    b->captured_as[b->n_captured++] = *out;
    return TUTTI_OK;
}

/* Finds the number in block b of a value of the model's graph. */
static tutti_status from_main(tti_onnx *m, tti_onnx_block *b, int value, int *out) {
    *out = value;
    if (!b->around) return TUTTI_OK;
    TTI_TRY(from_main(m, b->around, value, &value));
    return capture(m, b, value, out);
}

static tutti_status find_in(tti_onnx *m, tti_onnx_block *b, const char *name, int *out) {
    *out = tti_onnx_names_find(&b->values, name);
    if (*out >= 0 || !b->around || b->is_closed) return TUTTI_OK;
    int outer;
    TTI_TRY(find_in(m, b->around, name, &outer));
    *out = outer;
    if (outer < 0 || outer == NO_VALUE) return TUTTI_OK;
    TTI_TRY(capture(m, b, outer, out));
    return tti_onnx_names_put(&b->values, name, *out) ? TUTTI_OK : tti_onnx_no_memory(m);
}

tutti_status tti_onnx_find_value(tti_onnx *m, const char *name, int *out) {
    return find_in(m, m->block, name, out);
}

/* Adds a tensor of the file as an input of the model, even if it is defined in a graph inside a
 * node. */
tutti_status tti_onnx_add_spec(tti_onnx *m, const tti_input_spec *spec, int *value) {
    int cap = m->cap_specs;
    tti_onnx_block *at_hand = m->block;
    if (!tti_onnx_grow(&m->specs, m->n_specs, &cap, sizeof *m->specs)) return tti_onnx_no_memory(m);
    if (!tti_onnx_grow(&m->spec_values, m->n_specs, &m->cap_specs, sizeof *m->spec_values))
        return tti_onnx_no_memory(m);
    m->block = &m->main;
    tutti_status st = tti_onnx_add_value(m, spec->name, value);
    m->block = at_hand;
    if (st != TUTTI_OK) return st;
    m->specs[m->n_specs] = *spec;
    m->spec_values[m->n_specs++] = *value;
    return from_main(m, m->block, *value, value);
}

tutti_status tti_onnx_define(tti_onnx *m, const char *name, int value) {
    char why[MAX_WHAT];
    if (tti_onnx_names_find(&m->block->values, name) >= 0) {
        snprintf(why, sizeof why, "value '%.300s' is defined twice", name);
        return tti_onnx_damaged(m, "the graph", why);
    }
    return tti_onnx_names_put(&m->block->values, name, value) ? TUTTI_OK : tti_onnx_no_memory(m);
}

/* ---- nodes ---- */

typedef struct node {
    const char *op, *domain, *name;
    char what[MAX_WHAT]; /* name of the node in messages */
    tti_pb message;
    int n_inputs, n_outputs, n_attrs;
    /* PyTorch's annotations of the node. */
    bool trains;        /* the batch norm was in training mode */
    bool detaches;      /* the identity stops gradients: detach() */
    int64_t padding;    /* embedding: row without gradient; -1: none */
    const char *module; /* NULL: unknown */
} node;

/* The attributes of the function call whose nodes are being inlined. */
typedef struct outer_call {
    const tti_named_arg *args;
    int n_args;
} outer_call;

static tutti_status add_nodes(tti_onnx *m, tti_pb message, uint32_t number,
                              const outer_call *outer);

/* Returns the last but one text of "['', 'layer1.0', 'conv1', 'conv2d']". */
static const char *module_of(const tti_onnx *m, const char *scopes) {
    const char *from[2] = {NULL, NULL};
    int n[2] = {0, 0};
    for (const char *p = strchr(scopes, '\''); p;) {
        const char *end = strchr(p + 1, '\'');
        if (!end) break;
        from[0] = from[1], n[0] = n[1];
        from[1] = p + 1, n[1] = (int)(end - p - 1);
        p = strchr(end + 1, '\'');
    }
    return from[0] && n[0] > 0 ? tti_arena_printf(m->arena, "%.*s", n[0], from[0]) : NULL;
}

static bool holds(const tti_pb *bytes, const char *text) {
    return memmem(bytes->at, tti_pb_n_bytes(bytes), text, strlen(text)) != NULL;
}

/* Returns the third argument of "...aten.embedding.default](args = (%weight, %x, 0), ...". */
static int64_t padding_of(const tti_pb *text) {
    static const char start[] = "aten.embedding.default](args = (";
    const char *at = memmem(text->at, tti_pb_n_bytes(text), start, sizeof start - 1);
    const char *end = (const char *)text->end;
    int n_commas = 0;
    int64_t row = -1;
    for (at = at ? at + sizeof start - 1 : end; at < end && *at != ')'; at++) {
        n_commas += *at == ',';
        if (n_commas != 2 || *at < '0' || *at > '9') continue;
        row = (row < 0 ? 0 : row) * 10 + (*at - '0');
        if (row > INT32_MAX) return -1;
    }
    return row;
}

static tutti_status read_metadata(tti_onnx *m, tti_pb entry, node *n) {
    static const char scopes_key[] = "pkg.torch.onnx.name_scopes",
                      call_key[] = "pkg.torch.onnx.fx_node";
    tti_pb key = {0}, value = {0};
    tti_pb_field f;
    bool more;
    for (;;) {
        TTI_TRY(tti_onnx_next_field(m, &entry, n->what, &f, &more));
        if (!more) break;
        if (f.number == 1 && f.wire == TTI_PB_BYTES) key = f.bytes;
        if (f.number == 2 && f.wire == TTI_PB_BYTES) value = f.bytes;
    }
    if (!key.at || !value.at) return TUTTI_OK;
    if (holds(&key, scopes_key)) {
        const char *text;
        TTI_TRY(tti_onnx_text(m, &value, n->what, &text));
        n->module = module_of(m, text);
    }
    if (holds(&key, call_key)) {
        n->trains = holds(&value, "batch_norm_legit_functional");
        n->detaches = holds(&value, "aten.detach");
        n->padding = padding_of(&value);
    }
    return TUTTI_OK;
}

static tutti_status read_head(tti_onnx *m, tti_pb message, node *n) {
    tti_pb_field f;
    bool more;
    *n = (node){.op = "", .domain = "", .name = "", .padding = -1, .message = message};
    snprintf(n->what, sizeof n->what, "a node");
    for (tti_pb p = message;;) {
        TTI_TRY(tti_onnx_next_field(m, &p, n->what, &f, &more));
        if (!more) break;
        if (f.wire != TTI_PB_BYTES) continue;
        n->n_inputs += f.number == 1;
        n->n_outputs += f.number == 2;
        n->n_attrs += f.number == 5;
        if (f.number == 3) TTI_TRY(tti_onnx_text(m, &f.bytes, n->what, &n->name));
        if (f.number == 4) TTI_TRY(tti_onnx_text(m, &f.bytes, n->what, &n->op));
        if (f.number == 7) TTI_TRY(tti_onnx_text(m, &f.bytes, n->what, &n->domain));
        if (f.number == 9) TTI_TRY(read_metadata(m, f.bytes, n));
    }
    if (strcmp(n->domain, "ai.onnx") == 0) n->domain = "";
    snprintf(n->what, sizeof n->what, "node '%.200s' (%.100s)", n->name, n->op);
    if (n->n_inputs > MAX_ARGS || n->n_outputs > MAX_ARGS || n->n_attrs > MAX_ARGS)
        return tti_onnx_damaged(m, n->what, "it has too many inputs, outputs or attributes");
    return n->op[0] ? TUTTI_OK : tti_onnx_damaged(m, n->what, "it has no operator");
}

/* ---- attributes ---- */

typedef struct attribute {
    const char *name, *reference;
    tti_arg arg;
    tti_pb tensor, graph;
    bool has_tensor, has_graph;
} attribute;

static bool add_item(tti_onnx *m, tti_arg *list, int *cap, tti_arg item) {
    tti_arg *items = (tti_arg *)(uintptr_t)list->items;
    if (list->n == MAX_ARGS) return false;
    if (list->n == *cap) {
        int to = *cap ? 2 * *cap : 8;
        tti_arg *grown = tti_arena_alloc(m->arena, (size_t)to * sizeof *grown);
        if (!grown) return false;
        if (list->n > 0) memcpy(grown, items, (size_t)list->n * sizeof *grown);
        list->items = items = grown;
        *cap = to;
    }
    items[list->n++] = item;
    return true;
}

/* Adds floats or ints, packed or not. */
static tutti_status add_numbers(tti_onnx *m, const char *what, const tti_pb_field *f, tti_arg *list,
                                int *cap) {
    bool is_float = f->number == 7;
    tti_pb_wire wire = is_float ? TTI_PB_FIXED32 : TTI_PB_VARINT;
    tti_pb rest = f->bytes;
    uint64_t x = f->value;
    bool good = true;
    list->kind = TTI_ARG_LIST;
    for (bool more = f->wire == wire || tti_pb_read_packed(&rest, wire, &x); more && good;
         more = f->wire != wire && tti_pb_read_packed(&rest, wire, &x)) {
        tti_arg item = {.kind = is_float ? TTI_ARG_FLOAT : TTI_ARG_INT, .i = (int64_t)x};
        if (is_float) item.f = tti_pb_float(x);
        good = add_item(m, list, cap, item);
    }
    if (good && rest.at == rest.end) return TUTTI_OK;
    return tti_onnx_damaged(m, what, "a list of numbers in an attribute");
}

/* Reads a text attribute. Custom operators may have attributes that are not text, which only fail
 * if an operator reads them. */
static tutti_status read_text_arg(const tti_onnx *m, const char *what, const tti_pb *bytes,
                                  tti_arg *out) {
    *out = (tti_arg){.kind = TTI_ARG_OTHER, .text = "bytes"};
    if (!tti_onnx_is_text(bytes)) return TUTTI_OK;
    out->kind = TTI_ARG_TEXT;
    return tti_onnx_text(m, bytes, what, &out->text);
}

static tutti_status read_attribute(tti_onnx *m, const char *what, tti_pb message, attribute *out) {
    enum { UNKNOWN, FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS };
    uint64_t type = UNKNOWN;
    tti_arg scalar = {0}, list = {.kind = TTI_ARG_LIST};
    int cap = 0;
    tti_pb_field f;
    bool more;
    *out = (attribute){.name = ""};
    for (;;) {
        TTI_TRY(tti_onnx_next_field(m, &message, what, &f, &more));
        if (!more) break;
        bool is_bytes = f.wire == TTI_PB_BYTES;
        if (f.number == 1 && is_bytes) TTI_TRY(tti_onnx_text(m, &f.bytes, what, &out->name));
        if (f.number == 2 && f.wire == TTI_PB_FIXED32)
            scalar = (tti_arg){.kind = TTI_ARG_FLOAT, .f = tti_pb_float(f.value)};
        if (f.number == 3 && f.wire == TTI_PB_VARINT)
            scalar = (tti_arg){.kind = TTI_ARG_INT, .i = (int64_t)f.value};
        if (f.number == 4 && is_bytes) {
            TTI_TRY(read_text_arg(m, what, &f.bytes, &scalar));
        }
        if (f.number == 5 && is_bytes) out->tensor = f.bytes, out->has_tensor = true;
        if (f.number == 6 && is_bytes) out->graph = f.bytes, out->has_graph = true;
        if (f.number == 7 || f.number == 8) TTI_TRY(add_numbers(m, what, &f, &list, &cap));
        if (f.number == 9 && is_bytes) {
            tti_arg item;
            TTI_TRY(read_text_arg(m, what, &f.bytes, &item));
            if (!add_item(m, &list, &cap, item)) return tti_onnx_no_memory(m);
        }
        if (f.number == 20 && f.wire == TTI_PB_VARINT) type = f.value;
        if (f.number == 21 && is_bytes) TTI_TRY(tti_onnx_text(m, &f.bytes, what, &out->reference));
    }
    switch (type) {
        case FLOAT: /* the exporter may omit a zero */
            out->arg = scalar.kind ? scalar : (tti_arg){.kind = TTI_ARG_FLOAT};
            break;
        case INT:
            out->arg = scalar.kind ? scalar : (tti_arg){.kind = TTI_ARG_INT};
            break;
        case STRING:
            out->arg = scalar.kind ? scalar : (tti_arg){.kind = TTI_ARG_TEXT, .text = ""};
            break;
        case FLOATS:
        case INTS:
        case STRINGS:
            out->arg = list;
            break;
        case TENSOR:
            break;
        case UNKNOWN:
            out->arg = list.n ? list : scalar;
            break;
        default: /* read_args reads graphs; no operator has attributes of other types */
            out->has_graph &= type == GRAPH;
            out->arg = (tti_arg){.kind = TTI_ARG_OTHER, .text = "graph"};
    }
    return TUTTI_OK;
}

/* Adds a tensor attribute of a node as a tensor of the file. */
static tutti_status add_constant(tti_onnx *m, const char *what, const attribute *a,
                                 const char *name, int *value) {
    tti_input_spec spec;
    const tti_arg *list = &a->arg, *items = list->kind == TTI_ARG_LIST ? list->items : list;
    int n = list->kind == TTI_ARG_LIST ? list->n : 1;
    if (a->has_tensor) {
        TTI_TRY(tti_onnx_tensor(m, a->tensor, name, &spec));
    } else {
        bool is_float = n > 0 ? items[0].kind == TTI_ARG_FLOAT : strstr(a->name, "float") != NULL;
        size_t size = is_float ? sizeof(float) : sizeof(int64_t);
        uint8_t *bytes = tti_arena_alloc(m->arena, ((size_t)n + 1) * size);
        if (!bytes) return tti_onnx_no_memory(m);
        for (int i = 0; i < n; i++) {
            float f = (float)items[i].f;
            if (items[i].kind != TTI_ARG_FLOAT && items[i].kind != TTI_ARG_INT)
                return tti_fail(TUTTI_E_UNSUPPORTED, "%s: %s: a constant '%s' is not supported",
                                m->path, what, a->name);
            memcpy(bytes + (size_t)i * size, is_float ? (void *)&f : (void *)&items[i].i, size);
        }
        spec = (tti_input_spec){.name = name,
                                .elem = is_float ? TTI_ELEM_F32 : TTI_ELEM_I64,
                                .bytes = bytes,
                                .entry = -1};
        if (list->kind == TTI_ARG_LIST) {
            spec.shape.n_dims = 1;
            spec.shape.dim[0] = n;
            spec.stride[0] = 1;
        }
    }
    spec.kind = TTI_SPEC_CONSTANT;
    return tti_onnx_add_spec(m, &spec, value);
}

static const tti_arg *find_named(const tti_named_arg *args, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (strcmp(args[i].name, name) == 0) return &args[i].arg;
    return NULL;
}

/* ---- calls ---- */

static tutti_status input_arg(tti_onnx *m, const node *n, const tti_pb *bytes, tti_arg *out) {
    const char *name;
    char why[MAX_WHAT];
    *out = (tti_arg){0};
    TTI_TRY(tti_onnx_text(m, bytes, n->what, &name));
    if (!name[0]) return TUTTI_OK;
    int value;
    TTI_TRY(tti_onnx_find_value(m, name, &value));
    if (value < 0) {
        snprintf(why, sizeof why, "value '%.300s' is used before it is defined", name);
        return tti_onnx_damaged(m, n->what, why);
    }
    if (value != NO_VALUE) *out = (tti_arg){.kind = TTI_ARG_VALUE, .value = value};
    return TUTTI_OK;
}

/* Adds a graph as an argument, followed by the values that it captures. *args has room for *most
 * arguments. */
static tutti_status add_inner(tti_onnx *m, const node *n, const attribute *a, tti_named_arg **args,
                              int *at, int *most) {
    const int *captured;
    tti_named_arg block = {.name = a->name};
    int n_captured;
    TTI_TRY(tti_onnx_inner(m, n->what, a->graph, &block.arg, &captured, &n_captured));
    if (n_captured > MAX_ARGS) return tti_onnx_damaged(m, n->what, "it has too many inputs");
    tti_named_arg *grown =
        tti_arena_alloc(m->arena, ((size_t)*most + (size_t)n_captured) * sizeof *grown);
    if (!grown) return tti_onnx_no_memory(m);
    memcpy(grown, *args, (size_t)*at * sizeof *grown);
    *args = grown;
    *most += n_captured;
    grown[(*at)++] = block;
    for (int i = 0; i < n_captured; i++)
        grown[(*at)++] =
            (tti_named_arg){TTI_CAPTURED, {.kind = TTI_ARG_VALUE, .value = captured[i]}};
    return TUTTI_OK;
}

/* Reads inputs as positional arguments, then attributes as named ones. */
static tutti_status read_args(tti_onnx *m, const node *n, const outer_call *outer,
                              tti_op_call *out) {
    int at = 0, most = n->n_inputs + n->n_attrs + 3;
    tti_named_arg *args = tti_arena_alloc(m->arena, (size_t)most * sizeof *args);
    tti_pb_field f;
    bool more;
    if (!args) return tti_onnx_no_memory(m);
    for (tti_pb p = n->message;;) {
        TTI_TRY(tti_onnx_next_field(m, &p, n->what, &f, &more));
        if (!more) break;
        if (f.number != 1 || f.wire != TTI_PB_BYTES) continue;
        args[at].name = "";
        TTI_TRY(input_arg(m, n, &f.bytes, &args[at++].arg));
    }
    while (at > 0 && args[at - 1].arg.kind == TTI_ARG_NONE) at--;
    for (tti_pb p = n->message;;) {
        attribute a;
        TTI_TRY(tti_onnx_next_field(m, &p, n->what, &f, &more));
        if (!more) break;
        if (f.number != 5 || f.wire != TTI_PB_BYTES) continue;
        TTI_TRY(read_attribute(m, n->what, f.bytes, &a));
        if (a.has_graph) {
            TTI_TRY(add_inner(m, n, &a, &args, &at, &most));
            continue;
        }
        args[at].name = a.name;
        args[at].arg = a.arg;
        if (a.reference && a.reference[0]) {
            const tti_arg *given = outer ? find_named(outer->args, outer->n_args, a.reference) : 0;
            if (!given) continue;
            args[at].arg = *given;
        } else if (a.has_tensor && a.arg.kind == TTI_ARG_NONE) {
            args[at].arg.kind = TTI_ARG_VALUE;
            TTI_TRY(add_constant(m, n->what, &a, a.name, &args[at].arg.value));
        }
        at++;
    }
    if (n->trains && strcmp(n->op, "BatchNormalization") == 0 &&
        !find_named(args, at, "training_mode"))
        args[at++] = (tti_named_arg){"training_mode", {.kind = TTI_ARG_INT, .i = 1}};
    if (n->detaches && strcmp(n->op, "Identity") == 0)
        args[at++] = (tti_named_arg){"detach", {.kind = TTI_ARG_INT, .i = 1}};
    if (n->padding >= 0 && strcmp(n->op, "Gather") == 0)
        args[at++] = (tti_named_arg){"padding_idx", {.kind = TTI_ARG_INT, .i = n->padding}};
    out->args = args;
    out->n_args = at;
    return TUTTI_OK;
}

static tutti_status define_outputs(tti_onnx *m, const node *n, tti_op_call *out) {
    int *outs = tti_arena_alloc(m->arena, ((size_t)n->n_outputs + 1) * sizeof *outs);
    tti_pb_field f;
    bool more;
    if (!outs) return tti_onnx_no_memory(m);
    for (tti_pb p = n->message;;) {
        const char *name;
        TTI_TRY(tti_onnx_next_field(m, &p, n->what, &f, &more));
        if (!more) break;
        if (f.number != 2 || f.wire != TTI_PB_BYTES) continue;
        int *value = &outs[out->n_outs++];
        *value = -1;
        TTI_TRY(tti_onnx_text(m, &f.bytes, n->what, &name));
        if (!name[0]) continue;
        TTI_TRY(tti_onnx_add_value(m, name, value));
        TTI_TRY(tti_onnx_define(m, name, *value));
    }
    out->outs = outs;
    return TUTTI_OK;
}

static tutti_status first_output(tti_onnx *m, const node *n, const char **out) {
    tti_pb_field f;
    bool more;
    *out = "";
    for (tti_pb p = n->message;;) {
        TTI_TRY(tti_onnx_next_field(m, &p, n->what, &f, &more));
        if (!more) return TUTTI_OK;
        if (f.number == 2 && f.wire == TTI_PB_BYTES)
            return tti_onnx_text(m, &f.bytes, n->what, out);
    }
}

/* Adds a Constant node: a tensor or numbers. */
static tutti_status add_constant_node(tti_onnx *m, const node *n, const outer_call *outer) {
    tti_pb_field f;
    bool more;
    const char *name;
    TTI_TRY(first_output(m, n, &name));
    for (tti_pb p = n->message;;) {
        attribute a;
        int value;
        TTI_TRY(tti_onnx_next_field(m, &p, n->what, &f, &more));
        if (!more) return tti_onnx_damaged(m, n->what, "it has no value");
        if (f.number != 5 || f.wire != TTI_PB_BYTES) continue;
        TTI_TRY(read_attribute(m, n->what, f.bytes, &a));
        const tti_arg *given =
            a.reference && outer ? find_named(outer->args, outer->n_args, a.reference) : NULL;
        if (given) a.arg = *given;
        if (!given && a.reference && a.reference[0])
            return tti_onnx_damaged(m, n->what, "an attribute of its function is missing");
        if (given && given->kind == TTI_ARG_VALUE)
            value = given->value;
        else
            TTI_TRY(add_constant(m, n->what, &a, name, &value));
        return tti_onnx_define(m, name, value);
    }
}

static tutti_status add_call(tti_onnx *m, const node *n, const outer_call *outer) {
    tti_op_call call = {.kind = ""};
    if (m->block->n_calls >= TTI_ONNX_MAX_NODES)
        return tti_fail(TUTTI_E_UNSUPPORTED, "%s: the graph has more than %d nodes", m->path,
                        TTI_ONNX_MAX_NODES);
    if (!tti_onnx_grow(&m->block->calls, m->block->n_calls, &m->block->cap_calls,
                       sizeof *m->block->calls))
        return tti_onnx_no_memory(m);
    const char *domain = n->domain[0] ? n->domain : "onnx";
    call.target = tti_arena_printf(m->arena, "%s.%s", domain, n->op);
    call.module = n->module ? n->module : n->name;
    if (!call.module[0]) TTI_TRY(first_output(m, n, &call.module));
    if (!call.target) return tti_onnx_no_memory(m);
    TTI_TRY(read_args(m, n, outer, &call));
    TTI_TRY(define_outputs(m, n, &call));
    m->block->calls[m->block->n_calls++] = call;
    return TUTTI_OK;
}

/* ---- functions ---- */

/* Adds defaults of the function's attributes that the call does not give. */
static tutti_status add_defaults(tti_onnx *m, const node *n, tti_pb body, tti_op_call *call) {
    tti_pb_field f;
    bool more;
    int n_defaults = 0;
    for (tti_pb p = body;;) {
        TTI_TRY(tti_onnx_next_field(m, &p, n->what, &f, &more));
        if (!more) break;
        n_defaults += f.number == 11;
    }
    tti_named_arg *args =
        tti_arena_alloc(m->arena, ((size_t)call->n_args + (size_t)n_defaults + 1) * sizeof *args);
    if (!args) return tti_onnx_no_memory(m);
    if (call->n_args > 0) memcpy(args, call->args, (size_t)call->n_args * sizeof *args);
    for (tti_pb p = body;;) {
        attribute a;
        TTI_TRY(tti_onnx_next_field(m, &p, n->what, &f, &more));
        if (!more) break;
        if (f.number != 11 || f.wire != TTI_PB_BYTES) continue;
        TTI_TRY(read_attribute(m, n->what, f.bytes, &a));
        if (find_named(args, call->n_args, a.name)) continue;
        tti_named_arg *arg = &args[call->n_args++];
        *arg = (tti_named_arg){a.name, a.arg};
        if (!a.has_tensor || a.arg.kind != TTI_ARG_NONE) continue;
        arg->arg.kind = TTI_ARG_VALUE;
        TTI_TRY(add_constant(m, n->what, &a, a.name, &arg->arg.value));
    }
    call->args = args;
    return TUTTI_OK;
}

/* Binds the names of the function's inputs to the values of the call's arguments. */
static tutti_status bind_inputs(tti_onnx *m, const node *n, tti_pb body, const tti_op_call *call,
                                tti_onnx_names *scope) {
    tti_pb_field f;
    bool more;
    for (int k = 0;;) {
        const char *name;
        TTI_TRY(tti_onnx_next_field(m, &body, n->what, &f, &more));
        if (!more) return TUTTI_OK;
        if (f.number != 4 || f.wire != TTI_PB_BYTES) continue;
        TTI_TRY(tti_onnx_text(m, &f.bytes, n->what, &name));
        bool given =
            k < call->n_args && !call->args[k].name[0] && call->args[k].arg.kind == TTI_ARG_VALUE;
        if (!tti_onnx_names_put(scope, name, given ? call->args[k].arg.value : NO_VALUE))
            return tti_onnx_no_memory(m);
        k++;
    }
}

/* Binds the call's outputs to the values that the function computed. */
static tutti_status bind_outputs(tti_onnx *m, const node *n, tti_pb body,
                                 const tti_onnx_names *scope) {
    tti_pb_field f, g;
    bool more, has_name = true;
    for (tti_pb p = n->message;;) {
        const char *outer, *inner;
        do {
            TTI_TRY(tti_onnx_next_field(m, &p, n->what, &f, &more));
        } while (more && (f.number != 2 || f.wire != TTI_PB_BYTES));
        if (!more) return TUTTI_OK;
        do {
            TTI_TRY(tti_onnx_next_field(m, &body, n->what, &g, &has_name));
        } while (has_name && (g.number != 5 || g.wire != TTI_PB_BYTES));
        if (!has_name) return tti_onnx_damaged(m, n->what, "its function has fewer outputs");
        TTI_TRY(tti_onnx_text(m, &f.bytes, n->what, &outer));
        TTI_TRY(tti_onnx_text(m, &g.bytes, n->what, &inner));
        int value = tti_onnx_names_find(scope, inner);
        if (value < 0 || value == NO_VALUE)
            return tti_onnx_damaged(m, n->what, "its function does not compute an output");
        if (outer[0]) TTI_TRY(tti_onnx_define(m, outer, value));
    }
}

static tutti_status add_function(tti_onnx *m, const node *n, tti_pb body, const outer_call *outer) {
    tti_op_call call = {0};
    tti_onnx_names own = {0}, around = m->block->values;
    if (m->n_expanded++ == TTI_ONNX_MAX_NODES)
        return tti_fail(TUTTI_E_UNSUPPORTED, "%s: functions are called more than %d times", m->path,
                        TTI_ONNX_MAX_NODES);
    if (m->depth == TTI_ONNX_MAX_DEPTH)
        return tti_fail(TUTTI_E_UNSUPPORTED, "%s: %s: functions call each other more than %d deep",
                        m->path, n->what, TTI_ONNX_MAX_DEPTH);
    TTI_TRY(read_args(m, n, outer, &call));
    TTI_TRY(add_defaults(m, n, body, &call));
    tutti_status st = bind_inputs(m, n, body, &call, &own);
    outer_call inside = {call.args, call.n_args};
    bool was_closed = m->block->is_closed;
    m->depth++;
    m->block->values = own;
    m->block->is_closed = true;
    if (st == TUTTI_OK) st = add_nodes(m, body, 7, &inside);
    own = m->block->values;
    m->block->values = around;
    m->block->is_closed = was_closed;
    m->depth--;
    if (st == TUTTI_OK) st = bind_outputs(m, n, body, &own);
    tti_onnx_names_free(&own);
    return st;
}

static tutti_status add_node(tti_onnx *m, tti_pb message, const outer_call *outer) {
    node n;
    char key[MAX_WHAT];
    TTI_TRY(read_head(m, message, &n));
    snprintf(key, sizeof key, "%.190s.%.190s", n.domain, n.op);
    int function = tti_onnx_names_find(&m->function_names, key);
    if (function >= 0) return add_function(m, &n, m->functions[function], outer);
    if (!n.domain[0] && strcmp(n.op, "Constant") == 0) return add_constant_node(m, &n, outer);
    return add_call(m, &n, outer);
}

/* Adds the nodes of a graph or a function, which are the fields with that number. */
static tutti_status add_nodes(tti_onnx *m, tti_pb message, uint32_t number,
                              const outer_call *outer) {
    tti_pb_field f;
    bool more;
    for (;;) {
        TTI_TRY(tti_onnx_next_field(m, &message, "the graph", &f, &more));
        if (!more) return TUTTI_OK;
        if (f.number == number && f.wire == TTI_PB_BYTES) TTI_TRY(add_node(m, f.bytes, outer));
    }
}

tutti_status tti_onnx_nodes(tti_onnx *m, tti_pb graph) { return add_nodes(m, graph, 1, NULL); }
