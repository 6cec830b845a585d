/* program.c - element types, and loading of tensors, which are stored in an archive, in memory, or
 * in files next to the model. */
#include "import/program/program.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/error.h"

bool tti_runs_block(const char *target) {
    static const char *const targets[] = {"higher_order.wrap_with_set_grad_enabled",
                                          "higher_order.wrap_with_autocast", "onnx.If", "onnx.Loop",
                                          "onnx.Scan"};
    for (size_t i = 0; i < TTI_COUNT(targets); i++)
        if (strcmp(target, targets[i]) == 0) return true;
    return false;
}

/* ---- element types ---- */

static const struct {
    const char *text;
    tutti_dtype dtype; /* TUTTI_N_DTYPES: converted in this file */
    int n_bytes;
    bool is_float;
} elems[TTI_N_ELEMS] = {
    [TTI_ELEM_NONE] = {"none", TUTTI_N_DTYPES, 0, false},
    [TTI_ELEM_U8] = {"uint8", TUTTI_U8, 1, false},
    [TTI_ELEM_I8] = {"int8", TUTTI_N_DTYPES, 1, false},
    [TTI_ELEM_I16] = {"int16", TUTTI_N_DTYPES, 2, false},
    [TTI_ELEM_I32] = {"int32", TUTTI_I32, 4, false},
    [TTI_ELEM_I64] = {"int64", TUTTI_I64, 8, false},
    [TTI_ELEM_F16] = {"float16", TUTTI_F16, 2, true},
    [TTI_ELEM_F32] = {"float32", TUTTI_F32, 4, true},
    [TTI_ELEM_F64] = {"float64", TUTTI_F64, 8, true},
    [TTI_ELEM_BF16] = {"bfloat16", TUTTI_BF16, 2, true},
    [TTI_ELEM_BOOL] = {"bool", TUTTI_U8, 1, false},
};

const char *tti_elem_text(tti_elem elem) { return elems[elem].text; }
int tti_elem_bytes(tti_elem elem) { return elems[elem].n_bytes; }
bool tti_is_user_output(const tti_output_spec *spec) {
    return spec->kind == TTI_RESULT_OUTPUT || spec->kind == TTI_RESULT_LOSS;
}

bool tti_elem_is_float(tti_elem elem) { return elems[elem].is_float; }

static double load_elem(tti_elem elem, const char *base, uint64_t i) {
    int16_t x;
    if (elem == TTI_ELEM_I8) return (double)((const int8_t *)base)[i];
    if (elem == TTI_ELEM_I16) {
        memcpy(&x, base + 2 * i, sizeof x);
        return x;
    }
    return tti_load_elem(elems[elem].dtype, base, i);
}

/* ---- tensors ---- */

int64_t tti_import_n_elems(const tti_import_shape *shape) {
    int64_t n = 1;
    for (int d = 0; d < shape->n_dims; d++) n *= shape->dim[d];
    return n;
}

bool tti_is_same_tensor(const tti_input_spec *x, const tti_input_spec *y) {
    return x->kind == y->kind && (x->entry >= 0 || x->bytes) && x->entry == y->entry &&
           x->bytes == y->bytes && x->at == y->at && x->own == y->own && x->offset == y->offset &&
           x->elem == y->elem && memcmp(&x->shape, &y->shape, sizeof x->shape) == 0 &&
           memcmp(x->stride, y->stride, sizeof x->stride) == 0;
}

tutti_status tti_program_read_bytes(const tti_program_file *p, const tti_input_spec *spec,
                                    size_t first, size_t n_bytes, void *dst) {
    if (spec->bytes) memcpy(dst, spec->bytes + first, n_bytes);
    for (size_t done = 0; done < n_bytes && !spec->bytes;) {
        ssize_t n = pread(p->files[spec->entry], (char *)dst + done, n_bytes - done,
                          (off_t)(spec->at + first + done));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return tti_fail(TUTTI_E_CHECKPOINT, "%s: tensor '%s': cannot read its data file: %s",
                            p->path, spec->name, n < 0 ? strerror(errno) : "it became shorter");
        done += (size_t)n;
    }
    return TUTTI_OK;
}

/* Reads all bytes of a tensor from a file next to the model. */
static tutti_status read_whole(const tti_program_file *p, const tti_input_spec *spec,
                               size_t n_bytes, char **out) {
    char *bytes = malloc(n_bytes + 1);
    *out = NULL;
    if (!bytes) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", p->path);
    tutti_status st = tti_program_read_bytes(p, spec, 0, n_bytes, bytes);
    if (st == TUTTI_OK)
        *out = bytes;
    else
        free(bytes);
    return st;
}

bool tti_program_is_dense(const tti_input_spec *spec) {
    int64_t n = 1;
    for (int d = spec->shape.n_dims - 1; d >= 0; d--) {
        if (spec->shape.dim[d] != 1 && spec->stride[d] != n) return false;
        n *= spec->shape.dim[d];
    }
    return true;
}

tutti_status tti_program_copy(const tti_program_file *p, const tti_input_spec *spec, char *out) {
    int64_t n = tti_import_n_elems(&spec->shape), at[TUTTI_MAX_DIMS] = {0};
    char *owned = NULL;
    size_t size = (size_t)tti_elem_bytes(spec->elem), n_bytes = (size_t)n * size;
    if (n == 0) return TUTTI_OK;
    if (!spec->bytes && p->archive)
        TTI_TRY(tti_archive_read(p->archive, spec->entry, TTI_MAX_TENSOR_BYTES, &owned, &n_bytes));
    else if (!spec->bytes)
        TTI_TRY(read_whole(p, spec, n_bytes, &owned));
    const char *bytes = owned ? owned : (const char *)spec->bytes;
    bool dense = tti_program_is_dense(spec);
    if (dense) memcpy(out, bytes + (size_t)spec->offset * size, (size_t)n * size);
    for (int64_t i = 0; i < n && !dense; i++) {
        int64_t place = spec->offset;
        for (int d = 0; d < spec->shape.n_dims; d++) place += at[d] * spec->stride[d];
        memcpy(out + (size_t)i * size, bytes + (size_t)place * size, size);
        for (int d = spec->shape.n_dims - 1; d >= 0 && ++at[d] == spec->shape.dim[d]; d--)
            at[d] = 0;
    }
    free(owned);
    return TUTTI_OK;
}

void tti_program_convert(tti_elem elem, const char *bytes, size_t n_elems, float *out) {
    for (size_t i = 0; i < n_elems; i++)
        tti_store_elem(TUTTI_F32, out, i, load_elem(elem, bytes, i));
}

tutti_status tti_program_load_f32(const tti_program_file *p, const tti_input_spec *spec,
                                  float *out) {
    size_t n = (size_t)tti_import_n_elems(&spec->shape);
    if (spec->elem == TTI_ELEM_F32) return tti_program_copy(p, spec, (char *)out);
    char *bytes = malloc(n * (size_t)tti_elem_bytes(spec->elem) + 1);
    if (!bytes) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", p->path);
    tutti_status st = tti_program_copy(p, spec, bytes);
    if (st == TUTTI_OK) tti_program_convert(spec->elem, bytes, n, out);
    free(bytes);
    return st;
}

tutti_status tti_program_load(const tti_program_file *p, const tti_input_spec *spec, double *out) {
    int64_t n = tti_import_n_elems(&spec->shape);
    char *bytes = malloc((size_t)n * (size_t)tti_elem_bytes(spec->elem) + 1);
    if (!bytes) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", p->path);
    tutti_status st = tti_program_copy(p, spec, bytes);
    for (int64_t i = 0; st == TUTTI_OK && i < n; i++)
        out[i] = load_elem(spec->elem, bytes, (uint64_t)i);
    free(bytes);
    return st;
}

void tti_program_close(tti_program_file *p) {
    if (!p) return;
    tti_archive_close(p->archive);
    for (int i = 0; i < p->n_files; i++) close(p->files[i]);
    free(p->files);
    free(p->owned);
    tti_arena_free(&p->arena);
    free(p);
}
