/* onnx_tensor.c - reads tensors of ONNX models: type, shape and position of the elements. Elements
 * are in the model's bytes, in lists of numbers that are converted here, or in files of its
 * folder. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "import/onnx/onnx.h"

enum { MAX_PATH = 2048, MAX_FILES = 1024 };

/* ---- element types ---- */

static const struct {
    const char *text;
    tti_elem elem; /* NONE: not supported */
} types[] = {
    [0] = {"undefined", TTI_ELEM_NONE},  [1] = {"float32", TTI_ELEM_F32},
    [2] = {"uint8", TTI_ELEM_U8},        [3] = {"int8", TTI_ELEM_I8},
    [4] = {"uint16", TTI_ELEM_NONE},     [5] = {"int16", TTI_ELEM_I16},
    [6] = {"int32", TTI_ELEM_I32},       [7] = {"int64", TTI_ELEM_I64},
    [8] = {"string", TTI_ELEM_NONE},     [9] = {"bool", TTI_ELEM_BOOL},
    [10] = {"float16", TTI_ELEM_F16},    [11] = {"float64", TTI_ELEM_F64},
    [12] = {"uint32", TTI_ELEM_NONE},    [13] = {"uint64", TTI_ELEM_NONE},
    [14] = {"complex64", TTI_ELEM_NONE}, [15] = {"complex128", TTI_ELEM_NONE},
    [16] = {"bfloat16", TTI_ELEM_BF16},
};

tti_elem tti_onnx_elem_of(uint64_t code) {
    return code < TTI_COUNT(types) ? types[code].elem : TTI_ELEM_NONE;
}

tutti_status tti_onnx_elem(const tti_onnx *m, const char *what, uint64_t code, tti_elem *out) {
    *out = tti_onnx_elem_of(code);
    if (*out != TTI_ELEM_NONE) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED,
                    "%s: %s: element type %llu (%s) is not supported; use float32, bfloat16, "
                    "float16, float64, int8 to int64, uint8 or bool",
                    m->path, what, (unsigned long long)code,
                    code < TTI_COUNT(types) ? types[code].text : "8 bits or fewer");
}

/* ---- the message ---- */

typedef struct raw_tensor {
    const char *name;
    int64_t dims[TUTTI_MAX_DIMS];
    int n_dims;
    uint64_t type;
    tti_pb raw;
    tti_pb numbers; /* the first packed list, or one number of a list that is not packed */
    tti_pb_wire wire;
    int n_lists, n_single;
    uint64_t single; /* the number, if the list has only one */
    bool has_raw, is_external;
    const char *location;
    uint64_t offset, length;
    bool has_length;
} raw_tensor;

static tutti_status add_dim(const tti_onnx *m, raw_tensor *t, uint64_t dim) {
    if (dim > INT64_MAX) return tti_onnx_damaged(m, "a tensor", "a dimension is negative");
    if (t->n_dims == TUTTI_MAX_DIMS)
        return tti_fail(TUTTI_E_UNSUPPORTED, "%s: a tensor has more than %d dimensions", m->path,
                        TUTTI_MAX_DIMS);
    t->dims[t->n_dims++] = (int64_t)dim;
    return TUTTI_OK;
}

static tutti_status read_dims(const tti_onnx *m, const tti_pb_field *f, raw_tensor *t) {
    uint64_t dim;
    tti_pb list = f->bytes;
    if (f->wire == TTI_PB_VARINT) return add_dim(m, t, f->value);
    while (tti_pb_read_packed(&list, TTI_PB_VARINT, &dim)) TTI_TRY(add_dim(m, t, dim));
    return list.at == list.end ? TUTTI_OK : tti_onnx_damaged(m, "a tensor", "its dimensions");
}

static bool read_number(const char *text, uint64_t *out) {
    char *end;
    if (*text < '0' || *text > '9') return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0';
}

static tutti_status read_external(const tti_onnx *m, tti_pb entry, raw_tensor *t) {
    const char *key = "", *value = "";
    tti_pb_field f;
    bool more;
    for (;;) {
        TTI_TRY(tti_onnx_next_field(m, &entry, "external data", &f, &more));
        if (!more) break;
        if (f.number == 1 && f.wire == TTI_PB_BYTES)
            TTI_TRY(tti_onnx_text(m, &f.bytes, "external data", &key));
        if (f.number == 2 && f.wire == TTI_PB_BYTES)
            TTI_TRY(tti_onnx_text(m, &f.bytes, "external data", &value));
    }
    bool good = true;
    if (strcmp(key, "location") == 0) t->location = value;
    if (strcmp(key, "offset") == 0) good = read_number(value, &t->offset);
    if (strcmp(key, "length") == 0) good = t->has_length = read_number(value, &t->length);
    return good ? TUTTI_OK : tti_onnx_damaged(m, "external data", "an offset is not a number");
}

/* Reads float_data, int32_data, int64_data, double_data or uint64_data. */
static void read_list(const tti_pb_field *f, raw_tensor *t) {
    static const struct {
        uint32_t number;
        tti_pb_wire wire;
    } lists[] = {{4, TTI_PB_FIXED32},
                 {5, TTI_PB_VARINT},
                 {7, TTI_PB_VARINT},
                 {10, TTI_PB_FIXED64},
                 {11, TTI_PB_VARINT}};
    for (size_t i = 0; i < TTI_COUNT(lists); i++) {
        if (lists[i].number != f->number) continue;
        t->wire = lists[i].wire;
        if (f->wire == TTI_PB_BYTES) {
            t->numbers = f->bytes;
            t->n_lists += tti_pb_n_bytes(&f->bytes) > 0;
        } else {
            t->single = f->value;
            t->n_single++;
        }
    }
}

static tutti_status read_message(const tti_onnx *m, tti_pb message, raw_tensor *t) {
    tti_pb_field f;
    bool more;
    *t = (raw_tensor){0};
    for (;;) {
        TTI_TRY(tti_onnx_next_field(m, &message, "a tensor", &f, &more));
        if (!more) return TUTTI_OK;
        bool is_bytes = f.wire == TTI_PB_BYTES;
        if (f.number == 1) TTI_TRY(read_dims(m, &f, t));
        if (f.number == 2 && !is_bytes) t->type = f.value;
        if (f.number == 8 && is_bytes) TTI_TRY(tti_onnx_text(m, &f.bytes, "a tensor", &t->name));
        if (f.number == 9 && is_bytes) t->raw = f.bytes, t->has_raw = true;
        if (f.number == 13 && is_bytes) TTI_TRY(read_external(m, f.bytes, t));
        if (f.number == 14 && !is_bytes) t->is_external = f.value == 1;
        read_list(&f, t);
    }
}

/* ---- elements ---- */

static void store(tti_elem elem, uint64_t x, tti_pb_wire wire, uint8_t *to) {
    int n_bytes = tti_elem_bytes(elem);
    (void)wire; /* floats and doubles are stored as their bits, f16 and bf16 as the bits of an int32
                 */
    for (int i = 0; i < n_bytes; i++) to[i] = (uint8_t)(x >> 8 * i);
}

static tutti_status take_list(const tti_onnx *m, const char *what, const raw_tensor *t, uint64_t n,
                              tti_input_spec *out) {
    bool wide = t->wire == TTI_PB_FIXED32 ? out->elem == TTI_ELEM_F32
                : t->wire == TTI_PB_FIXED64
                    ? out->elem == TTI_ELEM_F64
                    : out->elem != TTI_ELEM_F32 && out->elem != TTI_ELEM_F64;
    uint64_t most = t->n_lists ? tti_pb_n_bytes(&t->numbers) : (uint64_t)t->n_single, x;
    if (!wide) return tti_onnx_damaged(m, what, "its elements are in a list of another type");
    if (t->n_lists + t->n_single != 1)
        return tti_onnx_damaged(m, what, "its elements are in several lists");
    if (n > most) return tti_onnx_damaged(m, what, "it has fewer elements than its shape");
    size_t size = (size_t)tti_elem_bytes(out->elem);
    uint8_t *bytes = tti_arena_alloc(m->arena, (size_t)(n + 1) * size);
    if (!bytes) return tti_onnx_no_memory(m);
    tti_pb list = t->numbers;
    for (uint64_t i = 0; i < n; i++) {
        x = t->single;
        if (t->n_lists && !tti_pb_read_packed(&list, t->wire, &x))
            return tti_onnx_damaged(m, what, "it has fewer elements than its shape");
        store(out->elem, x, t->wire, bytes + i * size);
    }
    if (list.at != list.end)
        return tti_onnx_damaged(m, what, "it has more elements than its shape");
    out->bytes = bytes;
    return TUTTI_OK;
}

/* True for a path inside of the folder: it is relative, and no component is "..". */
static bool stays_inside(const char *path) {
    if (path[0] == '/' || path[0] == '\0') return false;
    for (const char *p = path; p;) {
        size_t n = strcspn(p, "/\\");
        if (n == 2 && memcmp(p, "..", 2) == 0) return false;
        p = p[n] ? p + n + 1 : NULL;
    }
    return true;
}

/* Opens a file of the folder once. Links must not lead out of the folder. */
static tutti_status open_file(tti_onnx *m, const char *what, const char *location, int *out) {
    char path[MAX_PATH], real[PATH_MAX], home[PATH_MAX];
    struct stat info;
    *out = tti_onnx_names_find(&m->file_names, location);
    if (*out >= 0) return TUTTI_OK;
    if (!m->folder || !stays_inside(location))
        return tti_onnx_damaged(m, what, "its data is not inside of the model's folder");
    int n = snprintf(path, sizeof path, "%s/%s", m->folder, location);
    if (n >= (int)sizeof path) return tti_onnx_damaged(m, what, "the path of its data is too long");
    if (!realpath(m->folder, home) || !realpath(path, real))
        return tti_fail(TUTTI_E_CHECKPOINT,
                        "%s: %s: its data file '%s' is not there: %s; copy it beside the model",
                        m->path, what, location, strerror(errno));
    size_t n_home = strlen(home);
    if (strncmp(real, home, n_home) != 0 || (real[n_home] != '/' && n_home > 1))
        return tti_onnx_damaged(m, what, "its data is not inside of the model's folder");
    if (m->program->n_files == MAX_FILES)
        return tti_onnx_damaged(m, what, "its data lies in too many files");
    int *files = realloc(m->program->files, (size_t)(m->program->n_files + 1) * sizeof *files);
    if (!files) return tti_onnx_no_memory(m);
    m->program->files = files;
    int fd = open(real, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        if (fd >= 0) close(fd);
        return tti_onnx_damaged(m, what, "its data file cannot be read");
    }
    *out = m->program->n_files++;
    files[*out] = fd;
    return tti_onnx_names_put(&m->file_names, location, *out) ? TUTTI_OK : tti_onnx_no_memory(m);
}

static tutti_status place_external(tti_onnx *m, const char *what, const raw_tensor *t,
                                   uint64_t n_bytes, tti_input_spec *out) {
    struct stat info;
    char text[160];
    if (!t->location) return tti_onnx_damaged(m, what, "its data has no location");
    if (t->has_length && t->length != n_bytes) {
        snprintf(text, sizeof text, "its data has %llu bytes, its shape needs %llu",
                 (unsigned long long)t->length, (unsigned long long)n_bytes);
        return tti_onnx_damaged(m, what, text);
    }
    TTI_TRY(open_file(m, what, t->location, &out->entry));
    if (fstat(m->program->files[out->entry], &info) != 0 || t->offset > (uint64_t)info.st_size ||
        n_bytes > (uint64_t)info.st_size - t->offset)
        return tti_onnx_damaged(m, what, "its data file is shorter than the model says");
    out->at = t->offset;
    return TUTTI_OK;
}

tutti_status tti_onnx_tensor(tti_onnx *m, tti_pb message, const char *name, tti_input_spec *out) {
    raw_tensor t;
    char what[300];
    uint64_t n = 1, n_bytes;
    TTI_TRY(read_message(m, message, &t));
    if (!name) name = t.name ? t.name : "";
    snprintf(what, sizeof what, "tensor '%.250s'", name);
    *out = (tti_input_spec){.name = name, .persistent = true, .entry = -1};
    TTI_TRY(tti_onnx_elem(m, what, t.type, &out->elem));
    out->shape.n_dims = t.n_dims;
    bool overflow = false;
    int64_t stride = 1;
    for (int d = t.n_dims - 1; d >= 0; d--) {
        out->shape.dim[d] = t.dims[d];
        out->stride[d] = stride;
        overflow |= __builtin_mul_overflow(n, (uint64_t)t.dims[d], &n) ||
                    __builtin_mul_overflow(stride, TTI_MAX(t.dims[d], 1), &stride);
    }
    overflow |= __builtin_mul_overflow(n, (uint64_t)tti_elem_bytes(out->elem), &n_bytes);
    if (overflow || n > TTI_MAX_TENSOR_BYTES / sizeof(double))
        return tti_onnx_damaged(m, what, "the shape has too many elements");
    if (t.is_external) return place_external(m, what, &t, n_bytes, out);
    if (!t.has_raw && n > 0) return take_list(m, what, &t, n, out);
    if (tti_pb_n_bytes(&t.raw) != n_bytes) {
        char text[120];
        snprintf(text, sizeof text, "it has %llu bytes of data, its shape needs %llu",
                 (unsigned long long)tti_pb_n_bytes(&t.raw), (unsigned long long)n_bytes);
        return tti_onnx_damaged(m, what, text);
    }
    out->bytes = t.raw.at;
    return TUTTI_OK;
}
