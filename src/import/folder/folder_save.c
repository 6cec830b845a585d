/* folder_save.c - writes a program as a folder: graph.json in the format of PyTorch's exports,
 * which pt2_graph.c reads, and model.safetensors.
 *
 * Every tensor is stored once, under its first name. "tensors" in graph.json maps inputs to stored
 * tensors. */
#include "import/folder/folder.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/json.h"
#include "ckpt/safetensors.h"
#include "import/onnx/onnx.h"
#include "import/pt2/pt2.h"

enum {
    MAX_DEPTH = 2,
    MAX_PATH = 4096
}; /* MAX_DEPTH: of nested graphs, limited by the depth of tti_json */

/* ---- names of values, unique in each block ---- */

typedef struct labels {
    const char **label; /* [n_values] */
    tti_arena arena;
} labels;

static tutti_status make_labels(const tti_block *block, labels *out) {
    tti_onnx_names seen = {0};
    *out = (labels){0};
    out->label = calloc((size_t)block->n_values + 1, sizeof *out->label);
    bool good = out->label != NULL;
    for (int i = 0; good && i < block->n_values; i++) {
        const char *name = block->names[i];
        if (!name[0] || tti_onnx_names_find(&seen, name) >= 0)
            name = tti_arena_printf(&out->arena, "%s#%d", name, i);
        good = name && tti_onnx_names_put(&seen, name, i);
        out->label[i] = name;
    }
    tti_onnx_names_free(&seen);
    return good ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "model.file: out of memory");
}

static void free_labels(labels *l) {
    free(l->label);
    tti_arena_free(&l->arena);
}

/* ---- arguments ---- */

static tutti_status put_block(tti_json *j, const char *path, const tti_block *block, int depth);

static void put_name(tti_json *j, const char *key, const char *name) {
    tti_json_object(j, key);
    tti_json_text(j, "name", name);
    tti_json_end(j);
}

static void put_float(tti_json *j, double x) {
    if (isfinite(x))
        tti_json_double(j, "as_float", x);
    else
        tti_json_text(j, "as_float", isnan(x) ? "NaN" : x > 0 ? "Infinity" : "-Infinity");
}

/* Writes an argument as an object with one member. key: NULL inside a list. */
static tutti_status put_arg(tti_json *j, const char *key, const char *path, const tti_arg *arg,
                            const labels *l, int depth) {
    tutti_status st = TUTTI_OK;
    tti_json_object(j, key);
    switch (arg->kind) {
        case TTI_ARG_VALUE:
            put_name(j, "as_tensor", l->label[arg->value]);
            break;
        case TTI_ARG_INT:
            tti_json_int(j, "as_int", arg->i);
            break;
        case TTI_ARG_FLOAT:
            put_float(j, arg->f);
            break;
        case TTI_ARG_BOOL:
            tti_json_bool(j, "as_bool", arg->i != 0);
            break;
        case TTI_ARG_TEXT:
            tti_json_text(j, "as_string", arg->text);
            break;
        case TTI_ARG_DTYPE:
            tti_json_int(j, "as_scalar_type", tti_pt2_elem_code((tti_elem)arg->i));
            break;
        case TTI_ARG_LIST:
            tti_json_array(j, "as_optional_tensors"); /* items may be of any kind */
            for (int i = 0; i < arg->n && st == TUTTI_OK; i++)
                st = put_arg(j, NULL, path, &arg->items[i], l, depth);
            tti_json_end(j);
            break;
        case TTI_ARG_BLOCK:
            if (depth == MAX_DEPTH)
                return tti_fail(TUTTI_E_UNSUPPORTED,
                                "%s: graphs inside graphs are written %d deep at most", path,
                                MAX_DEPTH);
            tti_json_object(j, "as_graph");
            tti_json_object(j, "graph");
            st = put_block(j, path, arg->block, depth + 1);
            tti_json_end(j);
            tti_json_end(j);
            break;
        case TTI_ARG_OTHER:
            tti_json_text(j, "as_device", "");
            break;
        case TTI_ARG_NONE:
        case TTI_ARG_OPERAND:
            tti_json_bool(j, "as_none", true);
    }
    tti_json_end(j);
    return st;
}

/* ---- graphs ---- */

static tutti_status put_call(tti_json *j, const char *path, const tti_op_call *call,
                             const labels *l, int depth) {
    tutti_status st = TUTTI_OK;
    tti_json_object(j, NULL);
    tti_json_text(j, "target", call->target);
    tti_json_array(j, "inputs");
    for (int i = 0; i < call->n_args && st == TUTTI_OK; i++) {
        tti_json_object(j, NULL);
        tti_json_text(j, "name", call->args[i].name);
        st = put_arg(j, "arg", path, &call->args[i].arg, l, depth);
        tti_json_end(j);
    }
    tti_json_end(j);
    tti_json_array(j, "outputs");
    for (int i = 0; i < call->n_outs; i++) {
        tti_json_object(j, NULL);
        if (call->outs[i] >= 0)
            put_name(j, "as_tensor", l->label[call->outs[i]]);
        else
            tti_json_bool(j, "as_none", true);
        tti_json_end(j);
    }
    tti_json_end(j);
    tti_json_object(j, "metadata");
    tti_json_text(j, "module", call->module);
    tti_json_text(j, "kind", call->kind);
    tti_json_end(j);
    tti_json_end(j);
    return st;
}

/* Writes the members of a graph into an open object. */
static tutti_status put_graph(tti_json *j, const char *path, const tti_block *block,
                              const labels *l, int depth) {
    tutti_status st = TUTTI_OK;
    tti_json_array(j, "inputs");
    for (int i = 0; i < block->n_inputs; i++) {
        tti_json_object(j, NULL);
        if (block->inputs[i] >= 0)
            put_name(j, "as_tensor", l->label[block->inputs[i]]);
        else
            tti_json_bool(j, "as_none", true);
        tti_json_end(j);
    }
    tti_json_end(j);
    tti_json_array(j, "nodes");
    for (int i = 0; i < block->n_calls && st == TUTTI_OK; i++)
        st = put_call(j, path, &block->calls[i], l, depth);
    tti_json_end(j);
    if (st != TUTTI_OK) return st;
    tti_json_array(j, "outputs");
    for (int i = 0; i < block->n_outputs && st == TUTTI_OK; i++)
        st = put_arg(j, NULL, path, &block->outputs[i], l, depth);
    tti_json_end(j);
    return st;
}

static tutti_status put_block(tti_json *j, const char *path, const tti_block *block, int depth) {
    labels l;
    tutti_status st = make_labels(block, &l);
    if (st == TUTTI_OK) st = put_graph(j, path, block, &l, depth);
    free_labels(&l);
    return st;
}

/* ---- signature ---- */

/* Writes a size. Symbols are only for readers, so one that is not an identifier is replaced. */
static void put_size(tti_json *j, int64_t dim, const char *symbol) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    tti_json_object(j, NULL);
    if (symbol) {
        bool plain = symbol[0] && symbol[strspn(symbol, letters)] == '\0' && strlen(symbol) < 64;
        tti_json_object(j, "as_expr");
        tti_json_text(j, "expr_str", plain ? symbol : "dynamic");
        tti_json_end(j);
    } else {
        tti_json_int(j, "as_int", dim);
    }
    tti_json_end(j);
}

/* Writes the type of a user input. */
static void put_type(tti_json *j, const char *name, const tti_input_spec *spec) {
    int64_t stride = 1, strides[TUTTI_MAX_DIMS];
    for (int d = spec->shape.n_dims - 1; d >= 0; d--) {
        strides[d] = stride;
        if (__builtin_mul_overflow(stride, TTI_MAX(spec->shape.dim[d], 1), &stride)) stride = 1;
    }
    tti_json_object(j, name);
    tti_json_int(j, "dtype", tti_pt2_elem_code(spec->elem));
    tti_json_array(j, "sizes");
    for (int d = 0; d < spec->shape.n_dims; d++)
        put_size(j, spec->shape.dim[d], spec->shape.symbol[d]);
    tti_json_end(j);
    tti_json_array(j, "strides");
    for (int d = 0; d < spec->shape.n_dims; d++) put_size(j, strides[d], NULL);
    tti_json_end(j);
    tti_json_object(j, "storage_offset");
    tti_json_int(j, "as_int", 0);
    tti_json_end(j);
    tti_json_end(j);
}

/* Writes the known dimensions of values that are not inputs, one character each: "b" the batch, "n"
 * a number, "?" unknown. */
static tutti_status put_dims(tti_json *j, const char *path, const tti_block *block,
                             const labels *l) {
    if (!block->dims) return TUTTI_OK;
    bool *is_input = calloc((size_t)block->n_values + 1, sizeof *is_input);
    if (!is_input) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    for (int i = 0; i < block->n_inputs; i++)
        if (block->inputs[i] >= 0) is_input[block->inputs[i]] = true;
    tti_json_object(j, "dims");
    for (int i = 0; i < block->n_values; i++) {
        const tti_known_dims *known = &block->dims[i];
        char text[TUTTI_MAX_DIMS + 1] = {0};
        for (int d = 0; d < known->n_dims; d++)
            text[d] = known->of_batch >> d & 1 ? 'b' : known->fixed >> d & 1 ? 'n' : '?';
        if (known->n_dims > 0 && !is_input[i]) tti_json_text(j, l->label[i], text);
    }
    tti_json_end(j);
    free(is_input);
    return TUTTI_OK;
}

static void put_input_spec(tti_json *j, const tti_input_spec *spec, const char *name) {
    static const char *const keys[] = {[TTI_SPEC_PARAM] = "parameter",
                                       [TTI_SPEC_BUFFER] = "buffer",
                                       [TTI_SPEC_CONSTANT] = "tensor_constant",
                                       [TTI_SPEC_INPUT] = "user_input",
                                       [TTI_SPEC_NOTHING] = "nothing"};
    static const char *const name_keys[] = {[TTI_SPEC_PARAM] = "parameter_name",
                                            [TTI_SPEC_BUFFER] = "buffer_name",
                                            [TTI_SPEC_CONSTANT] = "tensor_constant_name",
                                            [TTI_SPEC_INPUT] = "name",
                                            [TTI_SPEC_NOTHING] = "name"};
    tti_json_object(j, NULL);
    tti_json_object(j, keys[spec->kind]);
    tti_json_text(j, name_keys[spec->kind], name);
    tti_json_bool(j, "persistent", spec->persistent);
    if (spec->fixed) tti_json_bool(j, "requires_grad", false);
    tti_json_end(j);
    tti_json_end(j);
}

static void put_output_spec(tti_json *j, const tti_output_spec *spec) {
    static const char *const keys[] = {[TTI_RESULT_OUTPUT] = "user_output",
                                       [TTI_RESULT_LOSS] = "loss_output",
                                       [TTI_RESULT_MUTATION] = "buffer_mutation",
                                       [TTI_RESULT_OTHER] = "other"};
    tti_json_object(j, NULL);
    tti_json_object(j, keys[spec->kind]);
    tti_json_text(j, spec->kind == TTI_RESULT_MUTATION ? "buffer_name" : "name", spec->name);
    tti_json_end(j);
    tti_json_end(j);
}

/* ---- tensors ---- */

typedef struct saving {
    const tti_program_file *program;
    const tti_input_spec **specs; /* inputs that are tensors, then extras */
    const char **names, **stored; /* [n]: name of the spec; name of the tensor in the file */
    int n;
    tti_ckpt_tensor *tensors; /* [n_tensors]: data is the spec */
    size_t n_tensors;
    char *bytes; /* bytes of the current tensor */
    tti_arena arena;
} saving;

/* The element type in the file, which is one of Tutti's types. */
static tutti_dtype stored_dtype(tti_elem elem) {
    switch (elem) {
        case TTI_ELEM_F16:
            return TUTTI_F16;
        case TTI_ELEM_F32:
            return TUTTI_F32;
        case TTI_ELEM_F64:
            return TUTTI_F64;
        case TTI_ELEM_BF16:
            return TUTTI_BF16;
        case TTI_ELEM_I64:
            return TUTTI_I64;
        case TTI_ELEM_I8:
        case TTI_ELEM_I16:
        case TTI_ELEM_I32:
            return TUTTI_I32;
        default:
            return TUTTI_U8;
    }
}

static tutti_status add_spec(saving *s, const tti_input_spec *spec) {
    int twin = 0;
    const char *name = spec->name;
    if (spec->kind == TTI_SPEC_CONSTANT) name = tti_arena_printf(&s->arena, "constants.%d", s->n);
    if (!name) return tti_fail(TUTTI_E_NOMEM, "model.file: out of memory");
    while (twin < s->n &&
           (spec->kind == TTI_SPEC_CONSTANT || !tti_is_same_tensor(s->specs[twin], spec)))
        twin++;
    s->specs[s->n] = spec;
    s->names[s->n] = name;
    s->stored[s->n] = twin < s->n ? s->stored[twin] : name;
    if (twin == s->n) {
        tti_ckpt_tensor *t = &s->tensors[s->n_tensors++];
        *t = (tti_ckpt_tensor){.name = name, .data = (void *)(uintptr_t)spec};
        t->type.dtype = stored_dtype(spec->elem);
        t->type.shape.n_dims = spec->shape.n_dims;
        for (int d = 0; d < spec->shape.n_dims; d++) t->type.shape.dim[d] = spec->shape.dim[d];
    }
    s->n++;
    return TUTTI_OK;
}

static tutti_status collect(saving *s) {
    const tti_program_file *p = s->program;
    size_t most = (size_t)p->main.n_inputs + (size_t)p->n_extras + 1;
    s->specs = calloc(most, sizeof *s->specs);
    s->names = calloc(most, sizeof *s->names);
    s->stored = calloc(most, sizeof *s->stored);
    s->tensors = calloc(most, sizeof *s->tensors);
    if (!s->specs || !s->names || !s->stored || !s->tensors)
        return tti_fail(TUTTI_E_NOMEM, "model.file: out of memory");
    for (int i = 0; i < p->main.n_inputs; i++)
        if (p->inputs[i].kind != TTI_SPEC_INPUT && p->inputs[i].kind != TTI_SPEC_NOTHING)
            TTI_TRY(add_spec(s, &p->inputs[i]));
    for (int i = 0; i < p->n_extras; i++) TTI_TRY(add_spec(s, &p->extras[i]));
    return TUTTI_OK;
}

static tutti_status get_tensor(void *user, const tti_ckpt_tensor *tensor, const void **bytes) {
    saving *s = user;
    const tti_input_spec *spec = tensor->data;
    int64_t n = tti_import_n_elems(&spec->shape);
    free(s->bytes);
    s->bytes = malloc(((size_t)n + 1) * sizeof(double));
    if (!s->bytes) return tti_fail(TUTTI_E_NOMEM, "model.file: out of memory");
    *bytes = s->bytes;
    bool widens = spec->elem == TTI_ELEM_I8 || spec->elem == TTI_ELEM_I16;
    if (!widens) return tti_program_copy(s->program, spec, s->bytes);
    double *wide = malloc(((size_t)n + 1) * sizeof *wide);
    tutti_status st = wide ? tti_program_load(s->program, spec, wide)
                           : tti_fail(TUTTI_E_NOMEM, "model.file: out of memory");
    for (int64_t i = 0; st == TUTTI_OK && i < n; i++)
        tti_store_elem(TUTTI_I32, s->bytes, (size_t)i, wide[i]);
    free(wide);
    return st;
}

static void put_tensor(tti_json *j, const saving *s, int i) {
    tti_elem elem = s->specs[i]->elem;
    if (elem == TTI_ELEM_I8 || elem == TTI_ELEM_I16) elem = TTI_ELEM_I32;
    tti_json_object(j, s->names[i]);
    tti_json_text(j, "path_name", s->stored[i]);
    tti_json_int(j, "dtype", tti_pt2_elem_code(elem));
    tti_json_bool(j, "is_param", s->specs[i]->kind == TTI_SPEC_PARAM);
    tti_json_end(j);
}

/* ---- the folder ---- */

static tutti_status put_program(tti_json *j, const saving *s) {
    const tti_program_file *p = s->program;
    labels l;
    int at = 0;
    TTI_TRY(make_labels(&p->main, &l));
    tti_json_object(j, NULL);
    tti_json_text(j, "format", "tutti graph");
    tti_json_int(j, "version", 1);
    tti_json_text(j, "exporter", p->exporter);
    if (p->note) tti_json_text(j, "note", p->note);
    tti_json_object(j, "graph");
    tutti_status st = put_graph(j, p->path, &p->main, &l, 0);
    if (st == TUTTI_OK) {
        tti_json_object(j, "tensor_values");
        for (int i = 0; i < p->main.n_inputs; i++)
            if (p->inputs[i].kind == TTI_SPEC_INPUT)
                put_type(j, l.label[p->main.inputs[i]], &p->inputs[i]);
        tti_json_end(j);
        st = put_dims(j, p->path, &p->main, &l);
        tti_json_end(j);
        tti_json_object(j, "signature");
        tti_json_array(j, "input_specs");
        for (int i = 0; i < p->main.n_inputs; i++) {
            bool stored =
                p->inputs[i].kind != TTI_SPEC_INPUT && p->inputs[i].kind != TTI_SPEC_NOTHING;
            put_input_spec(j, &p->inputs[i], stored ? s->names[at++] : p->inputs[i].name);
        }
        tti_json_end(j);
        tti_json_array(j, "output_specs");
        for (int i = 0; i < p->main.n_outputs; i++) put_output_spec(j, &p->outputs[i]);
        tti_json_end(j);
        tti_json_end(j);
        tti_json_object(j, "tensors");
        for (int i = 0; i < s->n; i++) put_tensor(j, s, i);
        tti_json_end(j);
        tti_json_end(j);
    }
    free_labels(&l);
    return st;
}

static tutti_status save_files(saving *s, const char *path) {
    char file[MAX_PATH];
    tti_str text = {0};
    tti_safetensors *written = NULL;
    const tti_ckpt_access access = {.get = get_tensor, .user = s};
    tti_json j = tti_json_begin(&text, 1);
    TTI_TRY(collect(s));
    tutti_status st = put_program(&j, s);
    if (snprintf(file, sizeof file, "%s/model.safetensors", path) >= (int)sizeof file)
        st = tti_fail(TUTTI_E_CONFIG, "%.100s...: the path is too long", path);
    if (st == TUTTI_OK)
        st = tti_safetensors_write_by(file, s->tensors, s->n_tensors, &access, &written);
    tti_safetensors_close(written);
    if (st == TUTTI_OK) tti_str_add(&text, "\n");
    if (st == TUTTI_OK && text.failed) st = tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    snprintf(file, sizeof file, "%s/graph.json", path);
    if (st == TUTTI_OK) st = tti_atomic_file_save(file, text.text, text.n_bytes);
    tti_str_free(&text);
    return st;
}

tutti_status tti_folder_save(const tti_program_file *program, const char *path) {
    saving s = {.program = program};
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return tti_fail(TUTTI_E_IO, "%s: cannot create: %s", path, strerror(errno));
    tutti_status st = save_files(&s, path);
    free(s.specs);
    free(s.names);
    free(s.stored);
    free(s.tensors);
    free(s.bytes);
    tti_arena_free(&s.arena);
    return st;
}
