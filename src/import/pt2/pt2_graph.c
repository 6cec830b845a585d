/* pt2_graph.c - converts the JSON of an exported graph to a block of calls.
 *
 * Every name is resolved here: a call may only use values of earlier calls, so a block has neither
 * cycles nor undefined values. Unknown fields are ignored; unknown kinds of arguments are
 * refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "import/pt2/pt2.h"

typedef struct names {
    const char **name; /* [n], borrowed from the arena */
    int n, cap;
    int *slot; /* hash table [n_slots], a power of two: value + 1, 0: free */
    size_t n_slots;
} names;

typedef struct scope {
    const char *what; /* the file and the call, for messages */
    tti_arena *arena;
    names values;
    int depth;
} scope;

static tutti_status no_memory(const char *what) {
    return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", what);
}

static size_t hash_of(const char *text) {
    size_t hash = 5381;
    for (; *text; text++) hash = hash * 33 + (unsigned char)*text;
    return hash;
}

/* Returns the slot of a name, or the free slot where it belongs. */
static int *slot_of(const names *v, const char *name) {
    size_t at = hash_of(name) & (v->n_slots - 1);
    while (v->slot[at] && strcmp(v->name[v->slot[at] - 1], name) != 0)
        at = (at + 1) & (v->n_slots - 1);
    return &v->slot[at];
}

static bool grow(names *v) {
    int cap = v->cap ? 2 * v->cap : 64;
    const char **name = realloc(v->name, (size_t)cap * sizeof *name);
    if (!name) return false;
    v->name = name;
    int *slot = calloc((size_t)cap * 2, sizeof *slot);
    if (!slot) return false;
    free(v->slot);
    v->slot = slot;
    v->n_slots = (size_t)cap * 2;
    v->cap = cap;
    for (int i = 0; i < v->n; i++) *slot_of(v, v->name[i]) = i + 1;
    return true;
}

static tutti_status define(scope *s, const char *name, int *out) {
    if (s->values.n == s->values.cap && !grow(&s->values)) return no_memory(s->what);
    int *slot = slot_of(&s->values, name);
    if (*slot)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: value '%s' is defined twice", s->what, name);
    const char *copy = tti_arena_strdup(s->arena, name);
    if (!copy) return no_memory(s->what);
    s->values.name[s->values.n++] = copy;
    *slot = s->values.n;
    *out = s->values.n - 1;
    return TUTTI_OK;
}

static tutti_status find(const scope *s, const char *name, int *out) {
    int number = s->values.n_slots ? *slot_of(&s->values, name) : 0;
    if (number == 0)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: value '%s' is used before it is defined", s->what,
                        name);
    *out = number - 1;
    return TUTTI_OK;
}

tutti_status tti_pt2_union(const char *what, const json_t *object, const char **key,
                           json_t **value) {
    void *it = json_is_object(object) ? json_object_iter((json_t *)(uintptr_t)object) : NULL;
    if (!it || json_object_size(object) != 1)
        return tti_fail(TUTTI_E_CHECKPOINT, "%s: expected an object with one member", what);
    *key = json_object_iter_key(it);
    *value = json_object_iter_value(it);
    return TUTTI_OK;
}

static const int elem_codes[TTI_N_ELEMS] = {
    [TTI_ELEM_U8] = 1,    [TTI_ELEM_I8] = 2,   [TTI_ELEM_I16] = 3, [TTI_ELEM_I32] = 4,
    [TTI_ELEM_I64] = 5,   [TTI_ELEM_F16] = 6,  [TTI_ELEM_F32] = 7, [TTI_ELEM_F64] = 8,
    [TTI_ELEM_BOOL] = 12, [TTI_ELEM_BF16] = 13};

int tti_pt2_elem_code(tti_elem elem) { return elem_codes[elem]; }

tutti_status tti_pt2_elem(const char *what, int64_t code, tti_elem *out) {
    for (int i = TTI_ELEM_NONE + 1; i < TTI_N_ELEMS; i++)
        if (elem_codes[i] == code) {
            *out = (tti_elem)i;
            return TUTTI_OK;
        }
    bool is_complex = code >= 9 && code <= 11;
    return tti_fail(TUTTI_E_UNSUPPORTED,
                    "%s: element type %lld of PyTorch%s is not supported; use float32, bfloat16, "
                    "float16, float64, integers or bool",
                    what, (long long)code, is_complex ? " (complex numbers)" : "");
}

/* ---- arguments ---- */

static tutti_status read_arg(scope *s, const json_t *object, tti_arg *out);

static tutti_status wrong(const scope *s, const char *key) {
    return tti_fail(TUTTI_E_CHECKPOINT, "%s: an argument '%s' has a value of another type", s->what,
                    key);
}

static tutti_status read_value(const scope *s, const json_t *tensor, tti_arg *out) {
    const char *name;
    TTI_TRY(tti_json_read_text(s->what, tensor, "name", &name));
    out->kind = TTI_ARG_VALUE;
    return find(s, name, &out->value);
}

/* Reads a float. Infinite numbers are stored as text. */
static tutti_status read_float(const scope *s, const json_t *value, tti_arg *out) {
    static const struct {
        const char *text;
        double x;
    } words[] = {
        {"Infinity", __builtin_inf()}, {"-Infinity", -__builtin_inf()}, {"NaN", __builtin_nan("")}};
    out->kind = TTI_ARG_FLOAT;
    if (json_is_number(value)) {
        out->f = json_number_value(value);
        return TUTTI_OK;
    }
    for (size_t i = 0; json_is_string(value) && i < TTI_COUNT(words); i++)
        if (strcmp(json_string_value(value), words[i].text) == 0) {
            out->f = words[i].x;
            return TUTTI_OK;
        }
    return wrong(s, "as_float");
}

/* {"as_name": "s"} or a number. */
static tutti_status read_symbolic(scope *s, const json_t *object, tti_arg *out) {
    const char *key;
    json_t *value;
    TTI_TRY(tti_pt2_union(s->what, object, &key, &value));
    if (strcmp(key, "as_name") != 0) return read_arg(s, object, out);
    if (!json_is_string(value)) return wrong(s, key);
    out->kind = TTI_ARG_VALUE;
    return find(s, json_string_value(value), &out->value);
}

typedef tutti_status (*item_reader)(scope *s, const json_t *item, tti_arg *out);

static tutti_status read_list(scope *s, const json_t *list, item_reader read, tti_arg *out) {
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > TTI_PT2_MAX_LIST) return wrong(s, "list");
    tti_arg *items = tti_arena_alloc(s->arena, (n + 1) * sizeof *items);
    if (!items) return no_memory(s->what);
    for (size_t i = 0; i < n; i++) TTI_TRY(read(s, json_array_get(list, i), &items[i]));
    *out = (tti_arg){.kind = TTI_ARG_LIST, .items = items, .n = (int)n};
    return TUTTI_OK;
}

static tutti_status read_tensor(scope *s, const json_t *item, tti_arg *out) {
    return read_value(s, item, out);
}
static tutti_status read_int(scope *s, const json_t *item, tti_arg *out) {
    if (!json_is_integer(item)) return wrong(s, "as_int");
    *out = (tti_arg){.kind = TTI_ARG_INT, .i = json_integer_value(item)};
    return TUTTI_OK;
}
static tutti_status read_bool(scope *s, const json_t *item, tti_arg *out) {
    if (!json_is_boolean(item)) return wrong(s, "as_bool");
    *out = (tti_arg){.kind = TTI_ARG_BOOL, .i = json_is_true(item)};
    return TUTTI_OK;
}
static tutti_status read_number(scope *s, const json_t *item, tti_arg *out) {
    return read_float(s, item, out);
}
static tutti_status read_text(scope *s, const json_t *item, tti_arg *out) {
    if (!json_is_string(item)) return wrong(s, "as_string");
    const char *copy = tti_arena_strdup(s->arena, json_string_value(item));
    if (!copy) return no_memory(s->what);
    *out = (tti_arg){.kind = TTI_ARG_TEXT, .text = copy};
    return TUTTI_OK;
}
static tutti_status read_int_list(scope *s, const json_t *item, tti_arg *out) {
    return read_list(s, item, read_int, out);
}
static tutti_status read_tensor_list(scope *s, const json_t *item, tti_arg *out) {
    return read_list(s, item, read_tensor, out);
}
static tutti_status read_none(scope *s, const json_t *item, tti_arg *out) {
    (void)s, (void)item;
    *out = (tti_arg){.kind = TTI_ARG_NONE};
    return TUTTI_OK;
}
static tutti_status read_dtype(scope *s, const json_t *item, tti_arg *out) {
    tti_elem elem;
    if (!json_is_integer(item)) return wrong(s, "as_scalar_type");
    if (json_integer_value(item) == 10 || json_integer_value(item) == 11) {
        *out = (tti_arg){.kind = TTI_ARG_OTHER, .text = "complex type"};
        return TUTTI_OK;
    }
    TTI_TRY(tti_pt2_elem(s->what, json_integer_value(item), &elem));
    *out = (tti_arg){.kind = TTI_ARG_DTYPE, .i = elem};
    return TUTTI_OK;
}
/* Accepts and ignores devices and memory formats, which Tutti chooses itself. */
static tutti_status read_other(scope *s, const json_t *item, tti_arg *out) {
    (void)s, (void)item;
    *out = (tti_arg){.kind = TTI_ARG_OTHER, .text = "device"};
    return TUTTI_OK;
}
static tutti_status read_graph(scope *s, const json_t *item, tti_arg *out) {
    json_t *graph;
    TTI_TRY(tti_json_member(s->what, item, "graph", JSON_OBJECT, &graph));
    tti_block *block = tti_arena_alloc(s->arena, sizeof *block);
    if (!block) return no_memory(s->what);
    TTI_TRY(tti_pt2_block(s->what, s->arena, graph, s->depth + 1, block));
    *out = (tti_arg){.kind = TTI_ARG_BLOCK, .block = block};
    return TUTTI_OK;
}

static const struct {
    const char *key;
    item_reader one, each; /* each: for the items of a list */
} readers[] = {
    {"as_none", read_none, NULL},
    {"as_tensor", read_tensor, NULL},
    {"as_tensors", NULL, read_tensor},
    {"as_int", read_int, NULL},
    {"as_ints", NULL, read_int},
    {"as_float", read_number, NULL},
    {"as_floats", NULL, read_number},
    {"as_bool", read_bool, NULL},
    {"as_bools", NULL, read_bool},
    {"as_string", read_text, NULL},
    {"as_strings", NULL, read_text},
    {"as_sym_int", read_symbolic, NULL},
    {"as_sym_ints", NULL, read_symbolic},
    {"as_sym_float", read_symbolic, NULL},
    {"as_sym_floats", NULL, read_symbolic},
    {"as_sym_bool", read_symbolic, NULL},
    {"as_sym_bools", NULL, read_symbolic},
    {"as_scalar_type", read_dtype, NULL},
    {"as_memory_format", read_other, NULL},
    {"as_layout", read_other, NULL},
    {"as_device", read_other, NULL},
    {"as_optional_tensor", read_arg, NULL},
    {"as_optional_tensors", NULL, read_arg},
    {"as_nested_tensors", NULL, read_tensor_list},
    {"as_int_lists", NULL, read_int_list},
    {"as_graph", read_graph, NULL},
};

static tutti_status read_arg(scope *s, const json_t *object, tti_arg *out) {
    const char *key;
    json_t *value;
    TTI_TRY(tti_pt2_union(s->what, object, &key, &value));
    *out = (tti_arg){0};
    for (size_t i = 0; i < TTI_COUNT(readers); i++) {
        if (strcmp(readers[i].key, key) != 0) continue;
        if (readers[i].one) return readers[i].one(s, value, out);
        return read_list(s, value, readers[i].each, out);
    }
    return tti_fail(TUTTI_E_UNSUPPORTED, "%s: an argument of the kind '%s' is not supported",
                    s->what, key);
}

/* ---- calls ---- */

static tutti_status read_args(scope *s, const json_t *list, tti_op_call *out) {
    size_t n = json_array_size(list);
    if (n > TTI_PT2_MAX_LIST) return wrong(s, "inputs");
    tti_named_arg *args = tti_arena_alloc(s->arena, (n + 1) * sizeof *args);
    if (!args) return no_memory(s->what);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, i);
        json_t *arg;
        const char *name;
        TTI_TRY(tti_json_read_text(s->what, item, "name", &name));
        TTI_TRY(tti_json_member(s->what, item, "arg", JSON_OBJECT, &arg));
        args[i].name = tti_arena_strdup(s->arena, name);
        if (!args[i].name) return no_memory(s->what);
        TTI_TRY(read_arg(s, arg, &args[i].arg));
    }
    out->args = args;
    out->n_args = (int)n;
    return TUTTI_OK;
}

/* "aten.div.out" writes to its last argument, out. It becomes "aten.div_.out", which writes to its
 * first argument like all in-place calls. */
static tutti_status convert_out_variant(scope *s, tti_op_call *call) {
    size_t n = strlen(call->target);
    const char *dot = strchr(call->target, '.');
    tti_named_arg *args = (tti_named_arg *)(uintptr_t)call->args, last;
    bool is_out = n > 4 && strcmp(call->target + n - 4, ".out") == 0 && call->n_args > 1 && dot &&
                  dot < call->target + n - 4 && call->target[n - 5] != '_';
    if (!is_out || strcmp(args[call->n_args - 1].name, "out") != 0) return TUTTI_OK;
    last = args[call->n_args - 1];
    memmove(args + 1, args, (size_t)(call->n_args - 1) * sizeof *args);
    args[0] = last;
    call->target = tti_arena_printf(s->arena, "%.*s_.out", (int)(n - 4), call->target);
    return call->target ? TUTTI_OK : no_memory(s->what);
}

/* Defines the values of one output: a tensor, a number, or a list of tensors. */
static tutti_status define_output(scope *s, const json_t *object, int *outs, int *n) {
    const char *key, *name;
    json_t *value;
    TTI_TRY(tti_pt2_union(s->what, object, &key, &value));
    if (strcmp(key, "as_tensor") == 0) {
        TTI_TRY(tti_json_read_text(s->what, value, "name", &name));
        return define(s, name, &outs[(*n)++]);
    }
    if (strcmp(key, "as_tensors") == 0 && json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value); i++) {
            TTI_TRY(tti_json_read_text(s->what, json_array_get(value, i), "name", &name));
            TTI_TRY(define(s, name, &outs[(*n)++]));
        }
        return TUTTI_OK;
    }
    if (strncmp(key, "as_sym_", 7) == 0 && json_is_object(value)) {
        TTI_TRY(tti_json_read_text(s->what, value, "as_name", &name));
        return define(s, name, &outs[(*n)++]);
    }
    if (strcmp(key, "as_none") == 0) {
        outs[(*n)++] = -1;
        return TUTTI_OK;
    }
    return tti_fail(TUTTI_E_UNSUPPORTED, "%s: a result of the kind '%s' is not supported", s->what,
                    key);
}

static size_t count_outputs(const json_t *list) {
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *tensors = json_object_get(json_array_get(list, i), "as_tensors");
        n += tensors ? json_array_size(tensors) : 1;
    }
    return n;
}

static tutti_status define_outputs(scope *s, const json_t *list, tti_op_call *out) {
    size_t n_most = count_outputs(list);
    if (n_most > TTI_PT2_MAX_LIST) return wrong(s, "outputs");
    int *outs = tti_arena_alloc(s->arena, (n_most + 1) * sizeof *outs);
    if (!outs) return no_memory(s->what);
    for (size_t i = 0; i < json_array_size(list); i++)
        TTI_TRY(define_output(s, json_array_get(list, i), outs, &out->n_outs));
    out->outs = outs;
    return TUTTI_OK;
}

/* Reads the last module of "ID,PATH,CLASS;ID,PATH,CLASS". In older files the path of the model is
 * "L['self']...". */
static tutti_status read_module(scope *s, const json_t *node, tti_op_call *out) {
    const json_t *metadata = json_object_get(node, "metadata");
    const char *own = json_string_value(json_object_get(metadata, "module"));
    if (own) { /* folders that Tutti wrote have separate members */
        const char *own_kind = json_string_value(json_object_get(metadata, "kind"));
        out->module = tti_arena_strdup(s->arena, own);
        out->kind = tti_arena_strdup(s->arena, own_kind ? own_kind : "");
        return out->module && out->kind ? TUTTI_OK : no_memory(s->what);
    }
    const char *text = json_string_value(json_object_get(metadata, "nn_module_stack"));
    const char *last = text ? strrchr(text, ';') : NULL;
    last = last ? last + 1 : text;
    const char *path = last ? strchr(last, ',') : NULL;
    const char *kind = path ? strchr(path + 1, ',') : NULL;
    if (!kind) {
        out->module = out->kind = "";
        return TUTTI_OK;
    }
    out->module = tti_arena_printf(s->arena, "%.*s", (int)(kind - path - 1), path + 1);
    out->kind = tti_arena_strdup(s->arena, kind + 1);
    return out->module && out->kind ? TUTTI_OK : no_memory(s->what);
}

/* "torch.ops.aten.relu.default" without "torch.ops.". Names of Python operators are unchanged. */
static const char *short_target(const char *target) {
    static const char prefix[] = "torch.ops.";
    return strncmp(target, prefix, sizeof prefix - 1) == 0 ? target + sizeof prefix - 1 : target;
}

static tutti_status read_call(scope *s, const json_t *node, tti_op_call *out) {
    const char *target, *file = s->what;
    json_t *inputs, *outputs;
    char what[512];
    TTI_TRY(tti_json_read_text(s->what, node, "target", &target));
    out->target = tti_arena_strdup(s->arena, short_target(target));
    if (!out->target) return no_memory(s->what);
    TTI_TRY(tti_json_member(s->what, node, "inputs", JSON_ARRAY, &inputs));
    TTI_TRY(tti_json_member(s->what, node, "outputs", JSON_ARRAY, &outputs));
    TTI_TRY(read_module(s, node, out));
    int n = snprintf(what, sizeof what, "%.300s: %.100s", file, out->target);
    if (out->module[0] && n > 0 && (size_t)n < sizeof what)
        snprintf(what + n, sizeof what - (size_t)n, " of '%.90s'", out->module);
    s->what = what;
    tutti_status st = read_args(s, inputs, out);
    if (st == TUTTI_OK) st = convert_out_variant(s, out);
    if (st == TUTTI_OK) st = define_outputs(s, outputs, out);
    s->what = file;
    return st;
}

/* Returns the name of an input that has a value: a tensor, or a size passed to an inner graph.
 * NULL: it has no value. */
static const json_t *input_name(const scope *s, const json_t *input) {
    const char *key;
    json_t *value;
    if (tti_pt2_union(s->what, input, &key, &value) != TUTTI_OK) return NULL;
    if (strcmp(key, "as_tensor") == 0) return json_object_get(value, "name");
    bool is_size = s->depth > 0 && strncmp(key, "as_sym_", 7) == 0;
    return is_size ? json_object_get(value, "as_name") : NULL;
}

/* Defines the inputs. Inputs that are None, numbers or tokens are counted, but have no value. */
static tutti_status define_inputs(scope *s, const json_t *list, tti_block *out) {
    size_t n = json_array_size(list);
    if (n > TTI_PT2_MAX_LIST) return wrong(s, "inputs");
    int *values = tti_arena_alloc(s->arena, (n + 1) * sizeof *values);
    if (!values) return no_memory(s->what);
    for (size_t i = 0; i < n; i++) {
        const char *name = json_string_value(input_name(s, json_array_get(list, i)));
        values[i] = -1;
        if (name) TTI_TRY(define(s, name, &values[i]));
    }
    out->inputs = values;
    out->n_inputs = (int)n;
    return TUTTI_OK;
}

static tutti_status read_calls(scope *s, const json_t *list, tti_block *out) {
    size_t n = json_array_size(list);
    if (n > TTI_PT2_MAX_NODES)
        return tti_fail(TUTTI_E_UNSUPPORTED, "%s: the graph has %zu nodes, at most %d are read",
                        s->what, n, TTI_PT2_MAX_NODES);
    tti_op_call *calls = tti_arena_alloc(s->arena, (n + 1) * sizeof *calls);
    if (!calls) return no_memory(s->what);
    for (size_t i = 0; i < n; i++) TTI_TRY(read_call(s, json_array_get(list, i), &calls[i]));
    out->calls = calls;
    out->n_calls = (int)n;
    return TUTTI_OK;
}

static tutti_status read_block(scope *s, const json_t *graph, tti_block *out) {
    json_t *inputs, *nodes, *outputs;
    tti_arg list;
    TTI_TRY(tti_json_member(s->what, graph, "inputs", JSON_ARRAY, &inputs));
    TTI_TRY(tti_json_member(s->what, graph, "nodes", JSON_ARRAY, &nodes));
    TTI_TRY(tti_json_member(s->what, graph, "outputs", JSON_ARRAY, &outputs));
    TTI_TRY(define_inputs(s, inputs, out));
    TTI_TRY(read_calls(s, nodes, out));
    TTI_TRY(read_list(s, outputs, read_arg, &list));
    out->outputs = list.items;
    out->n_outputs = list.n;
    out->n_values = s->values.n;
    out->names = tti_arena_copy(s->arena, s->values.name, (size_t)s->values.n * sizeof(char *));
    return out->names || s->values.n == 0 ? TUTTI_OK : no_memory(s->what);
}

tutti_status tti_pt2_block(const char *what, tti_arena *arena, const json_t *graph, int depth,
                           tti_block *out) {
    if (depth > TTI_PT2_MAX_DEPTH)
        return tti_fail(TUTTI_E_UNSUPPORTED, "%s: graphs inside graphs, more than %d deep", what,
                        TTI_PT2_MAX_DEPTH);
    scope s = {.what = what, .arena = arena, .depth = depth};
    *out = (tti_block){0};
    tutti_status st = read_block(&s, graph, out);
    free(s.values.name);
    free(s.values.slot);
    return st;
}
