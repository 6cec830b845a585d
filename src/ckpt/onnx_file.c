/* onnx_file.c - writes the part of protobuf that an ONNX model needs.
 *
 * A message consists of fields.  Each field is a key (number << 3 | kind) and a value: kind 0 is a
 * varint, kind 2 a length and that many bytes, kind 5 four bytes.  Field numbers are those of
 * onnx.proto. */
#include "ckpt/onnx_file.h"

#include <limits.h>
#include <string.h>

#include "base/error.h"
#include "base/files/atomic_file.h"

enum { VARINT = 0, BYTES = 2, FIXED32 = 5 };

/* Fields, by message. */
enum { MODEL_IR = 1, MODEL_PRODUCER = 2, MODEL_GRAPH = 7, MODEL_OPSET = 8 };
enum { MODEL_METADATA = 14, OPSET_VERSION = 2, ENTRY_KEY = 1, ENTRY_VALUE = 2 };
enum { GRAPH_NODE = 1, GRAPH_NAME = 2, GRAPH_TENSOR = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12 };
enum { NODE_IN = 1, NODE_OUT = 2, NODE_OP = 4, NODE_ATTR = 5 };
enum { ATTR_NAME = 1, ATTR_F = 2, ATTR_I = 3, ATTR_INTS = 8, ATTR_TYPE = 20 };
enum { TENSOR_DIM = 1, TENSOR_DTYPE = 2, TENSOR_NAME = 8, TENSOR_RAW = 9 };
enum { VALUE_NAME = 1, VALUE_TYPE = 2, TYPE_TENSOR = 1, TENSOR_TYPE_ELEM = 1, TENSOR_TYPE_SHAPE };
enum { SHAPE_DIM = 1, DIM_VALUE = 1, DIM_PARAM = 2 };

static void add_varint(tti_str *out, uint64_t x) {
    uint8_t bytes[10];
    size_t n = 0;
    for (; x >= 0x80; x >>= 7) bytes[n++] = (uint8_t)(x | 0x80);
    bytes[n++] = (uint8_t)x;
    tti_str_add_bytes(out, bytes, n);
}

static void add_key(tti_str *out, int field, int kind) {
    add_varint(out, (uint64_t)(field << 3 | kind));
}

static void add_int(tti_str *out, int field, int64_t x) {
    add_key(out, field, VARINT);
    add_varint(out, (uint64_t)x);
}

static void add_bytes(tti_str *out, int field, const void *bytes, size_t n_bytes) {
    add_key(out, field, BYTES);
    add_varint(out, n_bytes);
    tti_str_add_bytes(out, bytes, n_bytes);
}

static void add_text(tti_str *out, int field, const char *text) {
    add_bytes(out, field, text, strlen(text));
}

/* Adds a message as a field and empties it. */
static void add_message(tti_str *out, int field, tti_str *message) {
    if (message->failed) out->failed = true;
    add_bytes(out, field, tti_str_text(message), message->n_bytes);
    tti_str_free(message);
}

int64_t tti_onnx_dtype(tutti_dtype dtype) {
    static const int64_t numbers[TUTTI_N_DTYPES] = {
        [TUTTI_F32] = 1, [TUTTI_F64] = 11, [TUTTI_F16] = 10, [TUTTI_BF16] = 16,
        [TUTTI_I32] = 6, [TUTTI_I64] = 7,  [TUTTI_U8] = 2};
    return numbers[dtype];
}

static void add_attr(tti_str *node, const tti_onnx_attr *a) {
    tti_str m = {0};
    add_text(&m, ATTR_NAME, a->name);
    if (a->kind == TTI_ONNX_FLOAT) {
        float f = (float)a->f; /* little-endian, as the processors that we run on */
        add_key(&m, ATTR_F, FIXED32);
        tti_str_add_bytes(&m, &f, sizeof f);
    }
    if (a->kind == TTI_ONNX_INT) add_int(&m, ATTR_I, a->i);
    for (int i = 0; i < a->n && a->kind == TTI_ONNX_INTS; i++) add_int(&m, ATTR_INTS, a->v[i]);
    add_int(&m, ATTR_TYPE, a->kind);
    add_message(node, NODE_ATTR, &m);
}

void tti_onnx_add_node(tti_onnx_file *file, const tti_onnx_node *node) {
    tti_str m = {0};
    for (int i = 0; i < node->n_in; i++) add_text(&m, NODE_IN, node->in[i]);
    for (int i = 0; i < node->n_out; i++) add_text(&m, NODE_OUT, node->out[i]);
    add_text(&m, NODE_OP, node->op);
    for (const tti_onnx_attr *a = node->attrs; a && a->name; a++) add_attr(&m, a);
    add_message(&file->nodes, GRAPH_NODE, &m);
}

void tti_onnx_add_tensor(tti_onnx_file *file, const char *name, const tutti_type *type,
                         const void *data) {
    tti_str m = {0};
    size_t n_bytes = (size_t)tutti_shape_n_elems(&type->shape) * tutti_dtype_bytes(type->dtype);
    for (int i = 0; i < type->shape.n_dims; i++) add_int(&m, TENSOR_DIM, type->shape.dim[i]);
    add_int(&m, TENSOR_DTYPE, tti_onnx_dtype(type->dtype));
    add_text(&m, TENSOR_NAME, name);
    add_bytes(&m, TENSOR_RAW, data, n_bytes);
    add_message(&file->tensors, GRAPH_TENSOR, &m);
}

static void add_value(tti_str *out, int field, const char *name, const tutti_type *type,
                      unsigned open) {
    tti_str shape = {0}, tensor = {0}, wrap = {0}, value = {0};
    for (int i = 0; i < type->shape.n_dims; i++) {
        tti_str dim = {0};
        if (open >> i & 1)
            add_text(&dim, DIM_PARAM, i == 0 ? "N" : "T");
        else
            add_int(&dim, DIM_VALUE, type->shape.dim[i]);
        add_message(&shape, SHAPE_DIM, &dim);
    }
    add_int(&tensor, TENSOR_TYPE_ELEM, tti_onnx_dtype(type->dtype));
    add_message(&tensor, TENSOR_TYPE_SHAPE, &shape);
    add_message(&wrap, TYPE_TENSOR, &tensor);
    add_text(&value, VALUE_NAME, name);
    add_message(&value, VALUE_TYPE, &wrap);
    add_message(out, field, &value);
}

void tti_onnx_add_input(tti_onnx_file *file, const char *name, const tutti_type *type,
                        unsigned open) {
    add_value(&file->inputs, GRAPH_INPUT, name, type, open);
}

void tti_onnx_add_output(tti_onnx_file *file, const char *name, const tutti_type *type,
                         unsigned open) {
    add_value(&file->outputs, GRAPH_OUTPUT, name, type, open);
}

void tti_onnx_add_metadata(tti_onnx_file *file, const char *key, const char *text) {
    tti_str entry = {0};
    add_text(&entry, ENTRY_KEY, key);
    add_text(&entry, ENTRY_VALUE, text);
    add_message(&file->metadata, MODEL_METADATA, &entry);
}

tutti_status tti_onnx_save(const tti_onnx_file *file, const char *graph_name, const char *path,
                           int64_t *n_bytes) {
    enum { IR_VERSION = 8, OPSET = 17 };
    const tti_str *parts[] = {&file->nodes, &file->tensors, &file->inputs, &file->outputs};
    tti_str graph = {0}, opset = {0}, model = {0};
    add_text(&graph, GRAPH_NAME, graph_name);
    for (size_t i = 0; i < TTI_COUNT(parts); i++) {
        tti_str_add_bytes(&graph, tti_str_text(parts[i]), parts[i]->n_bytes);
        if (parts[i]->failed) graph.failed = true;
    }
    add_int(&model, MODEL_IR, IR_VERSION);
    add_text(&model, MODEL_PRODUCER, "tutti");
    add_message(&model, MODEL_GRAPH, &graph);
    add_int(&opset, OPSET_VERSION, OPSET);
    add_message(&model, MODEL_OPSET, &opset);
    tti_str_add_bytes(&model, tti_str_text(&file->metadata), file->metadata.n_bytes);
    if (file->metadata.failed) model.failed = true;
    tutti_status st = TUTTI_OK;
    if (model.failed)
        st = tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    else if (model.n_bytes > INT_MAX)
        st = tti_fail(TUTTI_E_UNSUPPORTED, "%s: %zu bytes, ONNX files are below 2 GiB", path,
                      model.n_bytes);
    else
        st = tti_atomic_file_save(path, model.text, model.n_bytes);
    if (st == TUTTI_OK) *n_bytes = (int64_t)model.n_bytes;
    tti_str_free(&model);
    return st;
}

void tti_onnx_free(tti_onnx_file *file) {
    tti_str_free(&file->nodes);
    tti_str_free(&file->tensors);
    tti_str_free(&file->inputs);
    tti_str_free(&file->outputs);
    tti_str_free(&file->metadata);
}
