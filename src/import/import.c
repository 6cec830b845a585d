/* import.c - opens model files, describes them, builds graphs from them and loads their tensors. */
#include "import/import.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/error.h"
#include "import/folder/folder.h"
#include "import/onnx/onnx.h"
#include "import/operators.h"
#include "import/program/program_parts.h"
#include "import/pt2/pt2.h"

enum { MAX_OUTPUT_NAME = 200 };

struct tti_import {
    tti_program_file *program;
    int n_inputs, n_outputs; /* inputs and outputs of forward() */
    const char **outputs;    /* [n_outputs]: their names */
};

/* ---- operators ---- */

typedef struct op_count {
    const char *target, *module; /* module: the first one that calls the operator */
    int n;
    bool known, always; /* always: some call is outside of branches, so it is certainly executed */
} op_count;

typedef struct op_counts {
    op_count *v;
    int n, cap;
    bool failed;
} op_counts;

static bool is_known(const char *target) {
    bool in_place;
    return tti_runs_block(target) || tti_operator_find(target, &in_place);
}

static void count_call(op_counts *c, const tti_op_call *call, bool always) {
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->v[i].target, call->target) == 0) {
            c->v[i].n++;
            c->v[i].always |= always;
            return;
        }
    if (c->n == c->cap) {
        int cap = c->cap ? 2 * c->cap : 64;
        op_count *v = realloc(c->v, (size_t)cap * sizeof *v);
        c->failed |= !v;
        if (!v) return;
        c->v = v;
        c->cap = cap;
    }
    c->v[c->n++] = (op_count){call->target, call->module, 1, is_known(call->target), always};
}

static void count_block(op_counts *c, const tti_block *block, bool always) {
    for (int i = 0; i < block->n_calls; i++) {
        const tti_op_call *call = &block->calls[i];
        bool branches = strcmp(call->target, "onnx.If") == 0;
        count_call(c, call, always);
        for (int k = 0; k < call->n_args; k++)
            if (call->args[k].arg.kind == TTI_ARG_BLOCK)
                count_block(c, call->args[k].arg.block, always && !branches);
    }
}

static int by_target(const void *x, const void *y) {
    return strcmp(((const op_count *)x)->target, ((const op_count *)y)->target);
}

static tutti_status count_operators(const tti_program_file *p, op_counts *out) {
    *out = (op_counts){0};
    count_block(out, &p->main, true);
    if (out->n > 0) qsort(out->v, (size_t)out->n, sizeof *out->v, by_target);
    return out->failed ? tti_fail(TUTTI_E_NOMEM, "%s: out of memory", p->path) : TUTTI_OK;
}

/* Reports all unsupported operators in one message. */
static tutti_status check_operators(const tti_program_file *p) {
    op_counts counts;
    int n_unknown = 0;
    tti_str text = {0};
    tutti_status st = count_operators(p, &counts);
    for (int i = 0; st == TUTTI_OK && i < counts.n; i++) {
        const op_count *c = &counts.v[i];
        if (c->known || !c->always) continue;
        tti_str_printf(&text, "%s%s (%d, first in '%s')", n_unknown++ ? ", " : "", c->target, c->n,
                       c->module[0] ? c->module : "the model");
    }
    free(counts.v);
    if (st == TUTTI_OK && n_unknown > 0)
        st = tti_fail(TUTTI_E_UNSUPPORTED, "%s: %d operator%s not supported: %s", p->path,
                      n_unknown, n_unknown > 1 ? "s are" : " is", tti_str_text(&text));
    tti_str_free(&text);
    return st;
}

/* ---- opening ---- */

/* True if none of the first n outputs has that name. */
static bool is_free(const tti_import *m, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (strcmp(m->outputs[i], name) == 0) return false;
    return true;
}

/* Names the outputs. Output i is called output_i if it has no name or the name of another
 * output. */
static tutti_status name_outputs(tti_import *m) {
    tti_program_file *p = m->program;
    m->outputs = tti_arena_alloc(&p->arena, ((size_t)m->n_outputs + 1) * sizeof *m->outputs);
    if (!m->outputs) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", p->path);
    for (int i = 0, k = 0; i < p->main.n_outputs; i++) {
        if (!tti_is_user_output(&p->outputs[i])) continue;
        const char *name = p->outputs[i].name;
        bool good = strlen(name) <= MAX_OUTPUT_NAME && is_free(m, k, name) &&
                    tti_ckpt_check_name(p->path, name) == TUTTI_OK;
        for (int at = k; !good; at += m->n_outputs) {
            name = tti_arena_printf(&p->arena, "output_%d", at);
            if (!name) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", p->path);
            good = is_free(m, k, name);
        }
        m->outputs[k++] = name;
    }
    return TUTTI_OK;
}

static tutti_status check_interface(tti_import *m) {
    const tti_program_file *p = m->program;
    for (int i = 0; i < p->main.n_inputs; i++) m->n_inputs += p->inputs[i].kind == TTI_SPEC_INPUT;
    for (int i = 0; i < p->main.n_outputs; i++) m->n_outputs += tti_is_user_output(&p->outputs[i]);
    if (m->n_inputs < 1 || m->n_outputs < 1)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "%s: the model has %d inputs and %d outputs; it needs "
                        "one of each at least",
                        p->path, m->n_inputs, m->n_outputs);
    return name_outputs(m);
}

static tutti_status wrap(tti_program_file *program, tti_import **out) {
    tti_import *m = calloc(1, sizeof *m);
    *out = m;
    if (!m) {
        tti_program_close(program);
        return tti_fail(TUTTI_E_NOMEM, "model.file: out of memory");
    }
    m->program = program;
    tutti_status st = check_interface(m);
    if (st == TUTTI_OK) return TUTTI_OK;
    tti_import_close(m);
    *out = NULL;
    return st;
}

/* Decides by the first bytes or, if these are ambiguous, by the file name. */
static bool is_onnx(const char *path) {
    unsigned char first[4] = {0};
    size_t n_name = strlen(path);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd >= 0 ? pread(fd, first, sizeof first, 0) : 0;
    if (fd >= 0) close(fd);
    if (n == 4 && memcmp(first, "PK", 2) == 0) return false;
    return (n > 0 && first[0] == 8) || (n_name > 5 && strcmp(path + n_name - 5, ".onnx") == 0);
}

tutti_status tti_import_open(const char *path, tti_import **out) {
    struct stat info;
    tti_program_file *program;
    *out = NULL;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        TTI_TRY(tti_folder_open(path, &program));
    else
        TTI_TRY(is_onnx(path) ? tti_onnx_open(path, &program) : tti_pt2_open(path, &program));
    return wrap(program, out);
}

const char *tti_import_path(const tti_import *m) { return m->program->path; }
bool tti_import_is_archive(const tti_import *m) { return m->program->archive != NULL; }
const char *tti_import_note(const tti_import *m) { return m->program->note; }
tutti_status tti_import_save(const tti_import *m, const char *dir) {
    return tti_folder_save(m->program, dir);
}

tutti_status tti_import_check(const tti_import *m) { return check_operators(m->program); }

void tti_import_close(tti_import *m) {
    if (!m) return;
    tti_program_close(m->program);
    free(m);
}

/* ---- inputs and outputs ---- */

static const tti_input_spec *input_at(const tti_import *m, int i) {
    const tti_program_file *p = m->program;
    for (int k = 0; k < p->main.n_inputs; k++)
        if (p->inputs[k].kind == TTI_SPEC_INPUT && i-- == 0) return &p->inputs[k];
    return NULL;
}

int tti_import_n_inputs(const tti_import *m) { return m->n_inputs; }
int tti_import_n_outputs(const tti_import *m) { return m->n_outputs; }
const char *tti_import_output_name(const tti_import *m, int i) { return m->outputs[i]; }
const char *tti_import_input_name(const tti_import *m, int i) { return input_at(m, i)->name; }
tutti_type tti_import_input_type(const tti_import *m, int i, int64_t n_samples) {
    const tti_input_spec *spec = input_at(m, i);
    tutti_type type = {tti_elem_is_float(spec->elem) ? TUTTI_F32 : TUTTI_I32,
                       {.n_dims = spec->shape.n_dims}};
    for (int d = 0; d < spec->shape.n_dims; d++)
        type.shape.dim[d] = spec->shape.symbol[d] ? n_samples : spec->shape.dim[d];
    return type;
}

int64_t tti_import_fixed_rows(const tti_import *m, int i) {
    const tti_import_shape *shape = &input_at(m, i)->shape;
    return shape->n_dims < 1 || shape->symbol[0] ? 0 : shape->dim[0];
}

bool tti_import_input_is_float(const tti_import *m, int i) {
    return tti_elem_is_float(input_at(m, i)->elem);
}

bool tti_import_input_is_bool(const tti_import *m, int i) {
    return input_at(m, i)->elem == TTI_ELEM_BOOL;
}

tutti_status tti_import_build(const tti_import *m, tutti_graph *g,
                              const tti_import_samples *samples, tutti_value **outputs) {
    TTI_TRY(check_operators(m->program));
    return tti_program_build(m->program, tti_operator_find, g, samples->inputs, samples->present,
                             samples->labels, outputs);
}

/* ---- tensors ---- */

static int find_tensor(const tti_program_file *p, const char *name) {
    for (int i = 0; i < p->main.n_inputs; i++) {
        tti_spec_kind kind = p->inputs[i].kind;
        if ((kind == TTI_SPEC_PARAM || kind == TTI_SPEC_BUFFER) &&
            strcmp(p->inputs[i].name, name) == 0)
            return i;
    }
    return -1;
}

/* Loads the elements of a tensor as f32 or as i64. */
static tutti_status load(const tti_program_file *p, const tti_input_spec *spec, tutti_dtype dtype,
                         void *dst) {
    size_t n = (size_t)tti_import_n_elems(&spec->shape);
    if (dtype == TUTTI_F32) return tti_program_load_f32(p, spec, dst);
    double *wide = malloc((n + 1) * sizeof *wide);
    if (!wide) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", p->path);
    tutti_status st = tti_program_load(p, spec, wide);
    for (size_t i = 0; st == TUTTI_OK && i < n; i++) tti_store_elem(dtype, dst, i, wide[i]);
    free(wide);
    return st;
}

static tutti_status find_spec(const tti_program_file *p, const tti_import_wanted *wanted,
                              const tti_input_spec **out) {
    int at = find_tensor(p, wanted->name);
    if (at < 0 || tti_import_n_elems(&p->inputs[at].shape) != wanted->n_elems)
        return tti_fail(TUTTI_E_INTERNAL, "%s: there is no tensor '%s' of %" PRId64 " elements",
                        p->path, wanted->name, wanted->n_elems);
    *out = &p->inputs[at];
    return TUTTI_OK;
}

tutti_status tti_import_load(const tti_import *m, const tti_import_wanted *wanted, int n,
                             const tti_readers *readers, tti_take_part_fn take, void *user) {
    const tti_program_file *p = m->program;
    const tti_input_spec **specs = malloc(((size_t)n + 1) * sizeof *specs);
    if (!specs) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", p->path);
    tutti_status st = TUTTI_OK;
    for (int i = 0; st == TUTTI_OK && i < n; i++) st = find_spec(p, &wanted[i], &specs[i]);
    if (st == TUTTI_OK) st = tti_program_read_parts(p, specs, n, readers, take, user);
    free(specs);
    return st;
}

/* ---- state_dict ---- */

/* Returns tensor i of the state_dict; i -1: sets *n to their number. */
static const tti_input_spec *state_spec(const tti_program_file *p, int i, int *n) {
    *n = 0;
    for (int k = 0; k < p->main.n_inputs; k++) {
        const tti_input_spec *spec = &p->inputs[k];
        bool stored =
            spec->kind == TTI_SPEC_PARAM || (spec->kind == TTI_SPEC_BUFFER && spec->persistent);
        if (stored && (*n)++ == i) return spec;
    }
    for (int k = 0; k < p->n_extras; k++)
        if ((*n)++ == i) return &p->extras[k];
    return NULL;
}

static bool trains_any(const tti_program_file *p) {
    for (int i = 0; i < p->main.n_inputs; i++)
        if (p->inputs[i].kind == TTI_SPEC_PARAM && !p->inputs[i].fixed) return true;
    return false;
}

bool tti_import_is_fixed(const tti_import *m, const char *name) {
    const tti_program_file *p = m->program;
    for (int i = 0; i < p->main.n_inputs; i++)
        if (p->inputs[i].fixed && strcmp(p->inputs[i].name, name) == 0) return trains_any(p);
    return false;
}

int tti_import_n_state(const tti_import *m) {
    int n;
    state_spec(m->program, -1, &n);
    return n;
}

tti_import_tensor tti_import_state_at(const tti_import *m, int i) {
    const tti_program_file *p = m->program;
    int n;
    const tti_input_spec *spec = state_spec(p, i, &n);
    tti_import_tensor tensor = {.name = spec->name, .in_graph = spec->name};
    tensor.type.dtype = tti_elem_is_float(spec->elem) ? TUTTI_F32 : TUTTI_I64;
    tensor.type.shape.n_dims = spec->shape.n_dims;
    for (int d = 0; d < spec->shape.n_dims; d++) tensor.type.shape.dim[d] = spec->shape.dim[d];
    for (int k = 0; k < p->main.n_inputs; k++)
        if (tti_is_same_tensor(&p->inputs[k], spec)) {
            tensor.in_graph = p->inputs[k].name;
            break;
        }
    return tensor;
}

tutti_status tti_import_read_state(const tti_import *m, int i, void *dst) {
    int n;
    const tti_input_spec *spec = state_spec(m->program, i, &n);
    return load(m->program, spec, tti_elem_is_float(spec->elem) ? TUTTI_F32 : TUTTI_I64, dst);
}

/* ---- description ---- */

static void add_shape(tti_str *out, const tti_input_spec *spec) {
    tti_str_printf(out, "%s[", tti_elem_text(spec->elem));
    for (int d = 0; d < spec->shape.n_dims; d++) {
        tti_str_add(out, d ? "," : "");
        if (spec->shape.symbol[d])
            tti_str_add(out, spec->shape.symbol[d]);
        else
            tti_str_printf(out, "%" PRId64, spec->shape.dim[d]);
    }
    tti_str_add(out, "]");
}

static void add_tensors(const tti_program_file *p, tti_spec_kind kind, const char *title,
                        tti_str *out) {
    int n = 0;
    int64_t n_elems = 0;
    bool trains = trains_any(p);
    for (int i = 0; i < p->main.n_inputs; i++) {
        if (p->inputs[i].kind != kind) continue;
        n++;
        if (kind != TTI_SPEC_INPUT) n_elems += tti_import_n_elems(&p->inputs[i].shape);
    }
    if (n == 0) return;
    tti_str_printf(out, "%s: %d", title, n);
    if (kind != TTI_SPEC_INPUT) tti_str_printf(out, ", %" PRId64 " elements", n_elems);
    tti_str_add(out, "\n");
    for (int i = 0; i < p->main.n_inputs; i++) {
        if (p->inputs[i].kind != kind) continue;
        tti_str_printf(out, "  %s  ", p->inputs[i].name);
        add_shape(out, &p->inputs[i]);
        tti_str_add(out, p->inputs[i].fixed && trains ? "  frozen (requires_grad=False)\n" : "\n");
    }
}

static void add_operators(const tti_program_file *p, tti_str *out) {
    op_counts counts;
    int n_calls = 0, n_unknown = 0;
    if (count_operators(p, &counts) == TUTTI_OK) {
        for (int i = 0; i < counts.n; i++) {
            n_calls += counts.v[i].n;
            n_unknown += !counts.v[i].known;
        }
        tti_str_printf(out, "operators: %d, %d calls, %d not supported\n", counts.n, n_calls,
                       n_unknown);
        for (int i = 0; i < counts.n; i++)
            tti_str_printf(out, "  %5d  %s%s\n", counts.v[i].n, counts.v[i].target,
                           counts.v[i].known ? "" : "  NOT SUPPORTED");
    }
    free(counts.v);
}

void tti_import_describe(const tti_import *m, tti_str *out) {
    const tti_program_file *p = m->program;
    tti_str_printf(out, "%s: exported by %s\n", p->path, p->exporter);
    if (p->note) tti_str_printf(out, "note: %s\n", p->note);
    add_tensors(p, TTI_SPEC_INPUT, "inputs", out);
    tti_str_printf(out, "outputs: %d\n", m->n_outputs);
    for (int i = 0; i < m->n_outputs; i++) tti_str_printf(out, "  %s\n", m->outputs[i]);
    add_tensors(p, TTI_SPEC_PARAM, "parameters", out);
    add_tensors(p, TTI_SPEC_BUFFER, "buffers", out);
    add_tensors(p, TTI_SPEC_CONSTANT, "constants", out);
    add_operators(p, out);
}
