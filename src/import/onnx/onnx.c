/* onnx.c - reads an ONNX model: its versions, and the tensors, inputs and outputs of its graph.
 *
 * Field numbers are those of onnx.proto. Unknown fields are ignored. */
#include "import/onnx/onnx.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json_read.h"

enum { MAX_FUNCTIONS = 1 << 16 };
#define MAX_FILE ((int64_t)1 << 31) /* largest size of a protobuf message */

static const char kind_key[] = "pkg.torch.export.graph_signature.InputSpec.kind";
static const char persistent_key[] = "pkg.torch.export.graph_signature.InputSpec.persistent";
static const char signature_key[] = "pkg.torch.export.ExportedProgram.graph_signature";

static bool is_text(const tti_pb *bytes, const char *text) {
    size_t n = tti_pb_n_bytes(bytes);
    return n == strlen(text) && memcmp(bytes->at, text, n) == 0;
}

/* ---- StringStringEntryProto ---- */

static tutti_status read_entry(const tti_onnx *m, tti_pb entry, tti_pb *key, tti_pb *value) {
    tti_pb_field f;
    bool more;
    *key = *value = (tti_pb){0};
    for (;;) {
        TTI_TRY(tti_onnx_next_field(m, &entry, "metadata", &f, &more));
        if (!more) return TUTTI_OK;
        if (f.number == 1 && f.wire == TTI_PB_BYTES) *key = f.bytes;
        if (f.number == 2 && f.wire == TTI_PB_BYTES) *value = f.bytes;
    }
}

/* ---- ValueInfoProto ---- */

typedef struct value_info {
    const char *name;
    bool has_type, has_mark;
    unsigned marks; /* TTI_ONNX_PARAM .. */
    tti_elem elem;
    tti_import_shape shape;
} value_info;

static tutti_status read_dim(const tti_onnx *m, const char *what, tti_pb message,
                             tti_import_shape *shape) {
    tti_pb_field f;
    bool more;
    int d = shape->n_dims++;
    shape->dim[d] = -1;
    shape->symbol[d] = "?";
    for (;;) {
        TTI_TRY(tti_onnx_next_field(m, &message, what, &f, &more));
        if (!more) return TUTTI_OK;
        if (f.number == 2 && f.wire == TTI_PB_BYTES && tti_pb_n_bytes(&f.bytes) > 0)
            TTI_TRY(tti_onnx_text(m, &f.bytes, what, &shape->symbol[d]));
        if (f.number != 1 || f.wire != TTI_PB_VARINT) continue;
        if (f.value > INT64_MAX) return tti_onnx_damaged(m, what, "a dimension is negative");
        shape->dim[d] = (int64_t)f.value;
        shape->symbol[d] = NULL;
    }
}

static tutti_status read_shape(const tti_onnx *m, const char *what, tti_pb message,
                               tti_import_shape *shape) {
    tti_pb_field f;
    bool more;
    for (;;) {
        TTI_TRY(tti_onnx_next_field(m, &message, what, &f, &more));
        if (!more) return TUTTI_OK;
        if (f.number != 1 || f.wire != TTI_PB_BYTES) continue;
        if (shape->n_dims == TUTTI_MAX_DIMS)
            return tti_fail(TUTTI_E_UNSUPPORTED, "%s: %s has more than %d dimensions", m->path,
                            what, TUTTI_MAX_DIMS);
        TTI_TRY(read_dim(m, what, f.bytes, shape));
    }
}

static tutti_status read_tensor_type(const tti_onnx *m, const char *what, tti_pb message,
                                     value_info *v) {
    tti_pb_field f;
    bool more;
    for (;;) {
        TTI_TRY(tti_onnx_next_field(m, &message, what, &f, &more));
        if (!more) return TUTTI_OK;
        if (f.number == 1 && f.wire == TTI_PB_VARINT)
            TTI_TRY(tti_onnx_elem(m, what, f.value, &v->elem));
        if (f.number == 2 && f.wire == TTI_PB_BYTES)
            TTI_TRY(read_shape(m, what, f.bytes, &v->shape));
    }
}

/* with_type: the type is required and checked, as for inputs; other values may have any type. */
static tutti_status read_info(const tti_onnx *m, tti_pb message, bool with_type, value_info *v) {
    char what[300] = "an input";
    tti_pb type = {0}, key, value;
    tti_pb_field f;
    bool more, has_type = false;
    *v = (value_info){.name = ""};
    for (;;) {
        TTI_TRY(tti_onnx_next_field(m, &message, what, &f, &more));
        if (!more) break;
        if (f.wire != TTI_PB_BYTES) continue;
        if (f.number == 1) TTI_TRY(tti_onnx_text(m, &f.bytes, what, &v->name));
        if (f.number == 2) type = f.bytes, has_type = true;
        if (f.number != 4) continue;
        TTI_TRY(read_entry(m, f.bytes, &key, &value));
        if (!key.at || !value.at) continue;
        if (is_text(&key, persistent_key) && is_text(&value, "False"))
            v->marks |= TTI_ONNX_NOT_STORED;
        if (!is_text(&key, kind_key)) continue;
        bool is_param = is_text(&value, "PARAMETER");
        v->has_mark = is_param || is_text(&value, "BUFFER") || is_text(&value, "CONSTANT_TENSOR");
        if (is_param) v->marks |= TTI_ONNX_PARAM;
    }
    snprintf(what, sizeof what, "input '%.250s'", v->name);
    while (has_type && with_type) {
        TTI_TRY(tti_onnx_next_field(m, &type, what, &f, &more));
        if (!more) break;
        if (f.number != 1 || f.wire != TTI_PB_BYTES) continue;
        v->has_type = true;
        TTI_TRY(read_tensor_type(m, what, f.bytes, v));
    }
    return TUTTI_OK;
}

/* Returns the symbol of the batch size, which is dimension 0 of the first input with a symbol
 * there; "": none. */
static const char *batch_symbol(const tti_onnx *m) {
    for (int i = 0; i < m->n_specs; i++) {
        const tti_import_shape *shape = &m->specs[i].shape;
        if (m->specs[i].kind == TTI_SPEC_INPUT && shape->n_dims > 0 && shape->symbol[0])
            return strcmp(shape->symbol[0], "?") == 0 ? "" : shape->symbol[0];
    }
    return "";
}

/* Adds a dimension of a TensorShapeProto to the known dimensions. */
static tutti_status add_known_dim(const tti_onnx *m, tti_pb message, const char *symbol,
                                  tti_known_dims *known) {
    tti_pb_field f;
    bool more;
    uint8_t bit = (uint8_t)(1u << known->n_dims++);
    for (;;) {
        TTI_TRY(tti_onnx_next_field(m, &message, "a value's type", &f, &more));
        if (!more) return TUTTI_OK;
        if (f.number == 1 && f.wire == TTI_PB_VARINT) known->fixed |= bit;
        if (f.number == 2 && f.wire == TTI_PB_BYTES && is_text(&f.bytes, symbol))
            known->of_batch |= bit;
    }
}

/* Reads the message in field `number` of a TypeProto or a TensorTypeProto; *found: whether there is
 * one. */
static tutti_status message_at(const tti_onnx *m, tti_pb message, uint32_t number, tti_pb *out,
                               bool *found) {
    tti_pb_field f;
    bool more;
    *found = false;
    for (;;) {
        TTI_TRY(tti_onnx_next_field(m, &message, "a value's type", &f, &more));
        if (!more) return TUTTI_OK;
        if (f.number != number || f.wire != TTI_PB_BYTES) continue;
        *out = f.bytes;
        *found = true;
    }
}

/* Reads the dimensions in a ValueInfoProto of the graph, and skips one without a tensor type. */
static tutti_status read_known(tti_onnx *m, tti_pb message, const char *name) {
    tti_known_dims known = {0};
    tti_pb_field f;
    bool more, found;
    tti_pb part = message;
    const char *symbol = batch_symbol(m);
    static const uint32_t path[] = {2, 1, 2}; /* type, tensor_type, shape */
    if (!symbol[0]) return TUTTI_OK;          /* a fixed batch */
    for (size_t i = 0; i < TTI_COUNT(path); i++) {
        TTI_TRY(message_at(m, part, path[i], &part, &found));
        if (!found) return TUTTI_OK;
    }
    for (;;) {
        TTI_TRY(tti_onnx_next_field(m, &part, "a value's type", &f, &more));
        if (!more) break;
        if (f.number != 1 || f.wire != TTI_PB_BYTES) continue;
        if (known.n_dims == TUTTI_MAX_DIMS) return TUTTI_OK;
        TTI_TRY(add_known_dim(m, f.bytes, symbol, &known));
    }
    int number = known.n_dims | known.of_batch << 8 | known.fixed << 16;
    return tti_onnx_names_put(&m->dims, name, number) ? TUTTI_OK : tti_onnx_no_memory(m);
}

/* Stores the known dimensions of the values of the main block. */
static tutti_status store_known_dims(tti_onnx *m) {
    tti_block *main = &m->program->main;
    const tti_onnx_names *names = &m->main.values;
    tti_known_dims *dims = tti_arena_alloc(m->arena, ((size_t)main->n_values + 1) * sizeof *dims);
    if (!dims) return tti_onnx_no_memory(m);
    for (int i = 0; i < names->n; i++) {
        int known = tti_onnx_names_find(&m->dims, names->name[i]), value = names->number[i];
        if (known >= 0 && value >= 0 && value < main->n_values)
            dims[value] = (tti_known_dims){(uint8_t)(known & 0xff), (uint8_t)(known >> 8 & 0xff),
                                           (uint8_t)(known >> 16 & 0xff)};
    }
    main->dims = dims;
    return TUTTI_OK;
}

static tutti_status add_mark(tti_onnx *m, const value_info *v) {
    if (!v->has_mark) return TUTTI_OK;
    return tti_onnx_names_put(&m->marked, v->name, (int)v->marks) ? TUTTI_OK
                                                                  : tti_onnx_no_memory(m);
}

/* ---- GraphProto ---- */

static tutti_status add_tensor(tti_onnx *m, tti_pb message) {
    tti_input_spec spec;
    int value;
    TTI_TRY(tti_onnx_tensor(m, message, NULL, &spec));
    if (!spec.name[0]) return tti_onnx_damaged(m, "the graph", "a tensor has no name");
    TTI_TRY(tti_ckpt_check_name(m->path, spec.name));
    spec.kind = TTI_SPEC_BUFFER; /* see tti_onnx_classify */
    TTI_TRY(tti_onnx_add_spec(m, &spec, &value));
    return tti_onnx_define(m, spec.name, value);
}

/* Adds a user input, unless a tensor of the file has the same name and is its default. */
static tutti_status add_input(tti_onnx *m, tti_pb message) {
    value_info v;
    int value;
    TTI_TRY(read_info(m, message, true, &v));
    TTI_TRY(add_mark(m, &v));
    if (!v.name[0]) return tti_onnx_damaged(m, "the graph", "an input has no name");
    if (tti_onnx_names_find(&m->block->values, v.name) >= 0) return TUTTI_OK;
    if (!v.has_type || v.elem == TTI_ELEM_NONE)
        return tti_fail(TUTTI_E_UNSUPPORTED, "%s: input '%s' is not a tensor", m->path, v.name);
    tti_input_spec spec = {
        .kind = TTI_SPEC_INPUT, .name = v.name, .elem = v.elem, .shape = v.shape, .entry = -1};
    TTI_TRY(tti_onnx_add_spec(m, &spec, &value));
    return tti_onnx_define(m, v.name, value);
}

static tutti_status read_outputs(tti_onnx *m, tti_pb graph) {
    tti_program_file *p = m->program;
    int n;
    TTI_TRY(tti_onnx_outputs(m, "the graph", graph, &p->main, &n));
    p->outputs = tti_arena_alloc(m->arena, ((size_t)n + 1) * sizeof *p->outputs);
    if (!p->outputs) return tti_onnx_no_memory(m);
    for (int i = 0; i < n;) {
        value_info v;
        tti_pb_field f;
        bool more;
        TTI_TRY(tti_onnx_next_field(m, &graph, "the graph", &f, &more));
        if (!more) break;
        if (f.number != 12 || f.wire != TTI_PB_BYTES) continue;
        TTI_TRY(read_info(m, f.bytes, false, &v));
        p->outputs[i++] = (tti_output_spec){TTI_RESULT_OUTPUT, v.name};
    }
    return TUTTI_OK;
}

/* Reads tensors and inputs first, whatever their order in the file. */
static tutti_status read_graph(tti_onnx *m, tti_pb graph) {
    static const uint32_t passes[] = {5, 11, 13}; /* initializer, input, value_info */
    tti_pb_field f;
    bool more;
    for (size_t k = 0; k < TTI_COUNT(passes); k++)
        for (tti_pb g = graph;;) {
            value_info v;
            tti_pb key, value;
            TTI_TRY(tti_onnx_next_field(m, &g, "the graph", &f, &more));
            if (!more) break;
            if (f.wire != TTI_PB_BYTES) continue;
            if (k == 0 && f.number == 15)
                return tti_fail(TUTTI_E_UNSUPPORTED, "%s: sparse tensors are not supported",
                                m->path);
            if (k == 0 && f.number == 16) {
                TTI_TRY(read_entry(m, f.bytes, &key, &value));
                if (key.at && value.at && is_text(&key, signature_key))
                    m->signature = tti_arena_printf(m->arena, "%.*s", (int)tti_pb_n_bytes(&value),
                                                    (const char *)value.at);
            }
            if (f.number != passes[k]) continue;
            if (f.number == 5) TTI_TRY(add_tensor(m, f.bytes));
            if (f.number == 11) TTI_TRY(add_input(m, f.bytes));
            if (f.number != 13) continue;
            TTI_TRY(read_info(m, f.bytes, false, &v));
            TTI_TRY(add_mark(m, &v));
            TTI_TRY(read_known(m, f.bytes, v.name));
        }
    TTI_TRY(tti_onnx_nodes(m, graph));
    return read_outputs(m, graph);
}

/* ---- FunctionProto, OperatorSetIdProto ---- */

static tutti_status add_function(tti_onnx *m, tti_pb body) {
    const char *name = "", *domain = "";
    tti_pb_field f;
    bool more;
    for (tti_pb p = body;;) {
        TTI_TRY(tti_onnx_next_field(m, &p, "a function", &f, &more));
        if (!more) break;
        if (f.wire != TTI_PB_BYTES) continue;
        if (f.number == 1) TTI_TRY(tti_onnx_text(m, &f.bytes, "a function", &name));
        if (f.number == 10) TTI_TRY(tti_onnx_text(m, &f.bytes, "a function", &domain));
    }
    if (strcmp(domain, "ai.onnx") == 0) domain = "";
    const char *key = tti_arena_printf(m->arena, "%.190s.%.190s", domain, name);
    if (m->n_functions == MAX_FUNCTIONS)
        return tti_onnx_damaged(m, "the model", "it has too many functions");
    tti_pb *functions = realloc(m->functions, ((size_t)m->n_functions + 1) * sizeof *functions);
    if (!key || !functions) return tti_onnx_no_memory(m);
    m->functions = functions;
    functions[m->n_functions] = body;
    return tti_onnx_names_put(&m->function_names, key, m->n_functions++) ? TUTTI_OK
                                                                         : tti_onnx_no_memory(m);
}

/* *version is 0 if the standard ONNX operator set is not imported. */
static tutti_status read_opset(const tti_onnx *m, tti_pb message, uint64_t *version) {
    const char *domain = "";
    uint64_t own = 0;
    tti_pb_field f;
    bool more;
    for (;;) {
        TTI_TRY(tti_onnx_next_field(m, &message, "the opset", &f, &more));
        if (!more) break;
        if (f.number == 1 && f.wire == TTI_PB_BYTES)
            TTI_TRY(tti_onnx_text(m, &f.bytes, "the opset", &domain));
        if (f.number == 2 && f.wire == TTI_PB_VARINT) own = f.value;
    }
    if (!domain[0] || strcmp(domain, "ai.onnx") == 0) *version = own;
    return TUTTI_OK;
}

/* ---- ModelProto ---- */

typedef struct model {
    tti_pb graph;
    bool has_graph;
    uint64_t opset;
    const char *producer, *version;
} model;

static tutti_status read_model(tti_onnx *m, tti_pb message, model *out) {
    tti_pb_field f;
    bool more;
    *out = (model){.producer = "", .version = ""};
    for (;;) {
        TTI_TRY(tti_onnx_next_field(m, &message, "the model", &f, &more));
        if (!more) break;
        if (f.wire != TTI_PB_BYTES) continue;
        if (f.number == 2) TTI_TRY(tti_onnx_text(m, &f.bytes, "the producer", &out->producer));
        if (f.number == 3) TTI_TRY(tti_onnx_text(m, &f.bytes, "the producer", &out->version));
        if (f.number == 7) out->graph = f.bytes, out->has_graph = true;
        if (f.number == 8) TTI_TRY(read_opset(m, f.bytes, &out->opset));
        if (f.number == 25) TTI_TRY(add_function(m, f.bytes));
    }
    if (!out->has_graph) return tti_onnx_damaged(m, "the model", "it has no graph");
    if (out->opset >= TTI_ONNX_MIN_OPSET && out->opset <= TTI_ONNX_MAX_OPSET) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED,
                    "%s: opset %llu is not supported, only %d to %d; export the model with "
                    "opset_version=18, or convert it with onnx.version_converter",
                    m->path, (unsigned long long)out->opset, TTI_ONNX_MIN_OPSET,
                    TTI_ONNX_MAX_OPSET);
}

/* Moves the reader's lists to the program. */
static tutti_status finish(tti_onnx *m) {
    tti_program_file *p = m->program;
    size_t n = (size_t)m->n_specs;
    p->inputs = tti_arena_copy(m->arena, m->specs, n * sizeof *p->inputs);
    if (!p->inputs && n > 0) return tti_onnx_no_memory(m);
    TTI_TRY(tti_onnx_finish_block(m, &m->main, m->spec_values, m->n_specs, &p->main));
    return store_known_dims(m);
}

static tutti_status read_program(tti_onnx *m, tti_pb message) {
    model found;
    TTI_TRY(read_model(m, message, &found));
    m->is_torch = strcmp(found.producer, "pytorch") == 0;
    m->program->exporter = tti_arena_printf(m->arena, "%.100s %.100s (ONNX, opset %d)",
                                            m->is_torch         ? "PyTorch"
                                            : found.producer[0] ? found.producer
                                                                : "an unknown program",
                                            found.version, (int)found.opset);
    if (!m->program->exporter) return tti_onnx_no_memory(m);
    TTI_TRY(read_graph(m, found.graph));
    TTI_TRY(tti_onnx_restore(m));
    TTI_TRY(finish(m));
    return tti_onnx_classify(m);
}

tutti_status tti_onnx_read(const uint8_t *bytes, size_t n_bytes, const char *path,
                           const char *folder, tti_program_file **out) {
    tti_onnx m = {.path = path, .folder = folder};
    *out = NULL;
    m.program = calloc(1, sizeof *m.program);
    if (!m.program) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    m.arena = &m.program->arena;
    m.block = &m.main;
    m.program->path = tti_arena_strdup(m.arena, path);
    tutti_status st = m.program->path ? read_program(&m, (tti_pb){bytes, bytes + n_bytes})
                                      : tti_onnx_no_memory(&m);
    tti_onnx_free_block(&m.main);
    tti_onnx_names_free(&m.inner_tensors);
    tti_onnx_names_free(&m.function_names);
    tti_onnx_names_free(&m.file_names);
    tti_onnx_names_free(&m.marked);
    tti_onnx_names_free(&m.dims);
    free(m.specs);
    free(m.spec_values);
    free(m.functions);
    if (st == TUTTI_OK)
        *out = m.program;
    else
        tti_program_close(m.program);
    return st;
}

/* ---- files ---- */

static tutti_status read_file(const char *path, uint8_t **out, size_t *n_bytes) {
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    tutti_status st = TUTTI_OK;
    *out = NULL;
    if (fd < 0 || fstat(fd, &info) != 0)
        st = tti_fail(TUTTI_E_CHECKPOINT, "%s: cannot open: %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode))
        st = tti_fail(TUTTI_E_CHECKPOINT, "%s: is not a regular file", path);
    else if (info.st_size > MAX_FILE)
        st = tti_fail(TUTTI_E_UNSUPPORTED, "%s: is larger than 2 GiB; no ONNX model is", path);
    *n_bytes = st == TUTTI_OK ? (size_t)info.st_size : 0;
    if (st == TUTTI_OK && !(*out = malloc(*n_bytes + 1)))
        st = tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    for (size_t done = 0; st == TUTTI_OK && done < *n_bytes;) {
        ssize_t n = read(fd, *out + done, *n_bytes - done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            st = tti_fail(TUTTI_E_CHECKPOINT, "%s: cannot read: %s", path,
                          n < 0 ? strerror(errno) : "it became shorter while it was read");
        else
            done += (size_t)n;
    }
    if (fd >= 0) close(fd);
    return st;
}

tutti_status tti_onnx_open(const char *path, tti_program_file **out) {
    uint8_t *bytes;
    size_t n_bytes;
    char folder[4096];
    const char *slash = strrchr(path, '/');
    *out = NULL;
    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1,
             slash ? path : ".");
    tutti_status st = read_file(path, &bytes, &n_bytes);
    if (st == TUTTI_OK) st = tti_onnx_read(bytes, n_bytes, path, folder, out);
    if (st == TUTTI_OK)
        (*out)->owned = bytes;
    else
        free(bytes);
    return st;
}
