/* npy_array.c - NumPy's .npy: a line of Python with type, order and shape, then the elements.
 *
 * The line is not executed; only the three values that numpy.save writes are parsed.  Elements stay
 * in the file, except those of a deflated member of an .npz. */
#include "data/formats/npy_array.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/dtype.h"
#include "base/error.h"
#include "data/fields.h"
#include "data/files/byte_reader.h"
#include "data/files/zip_member.h"
#include "data/samples.h"

enum { MAX_HEADER = 1 << 16, BUFFER_BYTES = 8192 };
#define MAX_DIM ((int64_t)1 << 40)
#define MAX_ROW_BYTES ((size_t)1 << 28)

/* ---- the header ---- */

static tutti_status bad(const tti_npy_array *a, const char *what) {
    return tti_fail(TUTTI_E_DATA, "%s: bad .npy header: %s", a->name, what);
}

/* The text after 'key': in the header, NULL if it is missing. */
static const char *value_of(const char *header, const char *key) {
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s':", key);
    const char *at = strstr(header, quoted);
    if (!at) return NULL;
    at += strlen(quoted);
    while (*at == ' ') at++;
    return at;
}

static tutti_status bad_type(const tti_npy_array *a, const char *type) {
    return tti_fail(TUTTI_E_DATA,
                    "%s: bad .npy header: the type is not one of b1 u1 u2 u4 i1 i2 i4 i8 f2 f4 f8, "
                    "but '%.*s'; convert the array before it is saved, for example with "
                    ".astype('float32'), labels with .astype('int64')",
                    a->name, (int)TTI_MIN(strcspn(type, "'"), (size_t)16), type);
}

static tutti_status read_descr(const char *header, tti_npy_array *a) {
    const char *at = value_of(header, "descr");
    if (!at || *at++ != '\'') return bad(a, "'descr' is missing or not a plain type");
    char order = at[0], kind = order ? at[1] : '\0', width = kind ? at[2] : '\0';
    static const char *const known[] = {"b1", "u1", "u2", "u4", "i1", "i2",
                                        "i4", "i8", "f2", "f4", "f8"};
    bool found = false;
    for (size_t i = 0; i < TTI_COUNT(known); i++)
        found |= kind == known[i][0] && width == known[i][1];
    bool good_order = order == '<' || order == '>' || (order == '|' && width == '1');
    if (!found || at[3] != '\'' || !good_order) return bad_type(a, at);
    a->kind = kind;
    a->big_endian = order == '>' && width != '1';
    a->width = width - '0';
    return TUTTI_OK;
}

static tutti_status read_shape(const char *header, tti_npy_array *a) {
    const char *at = value_of(header, "shape"), *order = value_of(header, "fortran_order");
    if (!order || (strncmp(order, "False", 5) != 0 && strncmp(order, "True", 4) != 0))
        return bad(a, "'fortran_order' is neither True nor False");
    a->fortran = order[0] == 'T';
    if (!at || *at++ != '(') return bad(a, "'shape' is missing");
    while (*at != ')') {
        char *end;
        if (*at < '0' || *at > '9' || a->shape.n_dims == TUTTI_MAX_DIMS)
            return bad(a, "'shape' is not 1 .. 8 numbers");
        long long n = strtoll(at, &end, 10);
        if (n == 0)
            return bad(a, "a dimension is not in 1 .. 2^40: it is 0, so the array is empty");
        if (n > MAX_DIM) return bad(a, "a dimension is not in 1 .. 2^40");
        a->shape.dim[a->shape.n_dims++] = n;
        at = end + strspn(end, " ");
        if (*at != ',' && *at != ')') return bad(a, "'shape' is not 1 .. 8 numbers");
        at += *at == ',';
        at += strspn(at, " ");
    }
    return a->shape.n_dims > 0 ? TUTTI_OK : bad(a, "a single number is not an array of rows");
}

static tutti_status count_bytes(tti_npy_array *a, uint64_t *out) {
    size_t row = (size_t)a->width;
    a->row_elems = 1;
    for (int i = 1; i < a->shape.n_dims; i++) {
        size_t n = (size_t)a->shape.dim[i];
        if (__builtin_mul_overflow(row, n, &row) || row > MAX_ROW_BYTES)
            return bad(a, "a row is larger than 256 MiB");
        a->row_elems *= n;
    }
    if (__builtin_mul_overflow((uint64_t)row, (uint64_t)a->shape.dim[0], out) || *out > INT64_MAX)
        return bad(a, "the shape overflows");
    return TUTTI_OK;
}

static tutti_status read_header(tti_reader *reader, tti_npy_array *a) {
    uint8_t head[12];
    size_t n_head = 10, n_text;
    TTI_TRY(tti_reader_read(reader, head, 10, "header"));
    if (memcmp(head, "\x93NUMPY", 6) != 0 || head[6] < 1 || head[6] > 3)
        return tti_fail(TUTTI_E_DATA, "%s: not a .npy file of version 1, 2 or 3", a->name);
    n_text = (size_t)(head[8] | head[9] << 8);
    if (head[6] > 1) {
        TTI_TRY(tti_reader_read(reader, head + 10, 2, "header"));
        n_text |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
        n_head = 12;
    }
    if (n_text == 0 || n_text > MAX_HEADER) return bad(a, "its length is not in 1 .. 65536");
    char *text = calloc(n_text + 1, 1);
    if (!text) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", a->name);
    tutti_status st = tti_reader_read(reader, text, n_text, "header");
    if (st == TUTTI_OK) st = read_descr(text, a);
    if (st == TUTTI_OK) st = read_shape(text, a);
    free(text);
    a->offset += n_head + n_text;
    return st;
}

/* ---- opening ---- */

/* Elements of an array in Fortran's order, put in C's. */
static void make_row_major(const tti_npy_array *a, const uint8_t *from, size_t n, uint8_t *to) {
    size_t width = (size_t)a->width, index[TUTTI_MAX_DIMS] = {0};
    for (size_t i = 0; i < n; i++) {
        size_t at = 0, step = 1;
        for (int d = 0; d < a->shape.n_dims; d++) {
            at += index[d] * step;
            step *= (size_t)a->shape.dim[d];
        }
        memcpy(to + i * width, from + at * width, width);
        for (int d = a->shape.n_dims - 1; d >= 0 && ++index[d] == (size_t)a->shape.dim[d]; d--)
            index[d] = 0;
    }
}

static tutti_status turn_elems(uint64_t n_bytes, tti_npy_array *a) {
    uint8_t *from = a->bytes;
    a->bytes = malloc(n_bytes);
    if (a->bytes) make_row_major(a, from, n_bytes / (size_t)a->width, a->bytes);
    free(from);
    if (a->bytes) return TUTTI_OK;
    return tti_fail(TUTTI_E_NOMEM, "%s: out of memory for %llu bytes", a->name,
                    (unsigned long long)n_bytes);
}

static tutti_status take_elems(tti_reader *reader, uint64_t n_bytes, tti_npy_array *a) {
    bool is_kept = a->fortran && a->shape.n_dims > 1;
    if (!tti_reader_is_gzip(reader) && !is_kept)
        return tti_reader_release_fd(reader, n_bytes, &a->fd);
    TTI_TRY(tti_reader_expect(reader, n_bytes));
    a->bytes = malloc(n_bytes);
    if (!a->bytes)
        return tti_fail(TUTTI_E_NOMEM, "%s: out of memory for %llu bytes", a->name,
                        (unsigned long long)n_bytes);
    a->offset = 0;
    TTI_TRY(tti_reader_read(reader, a->bytes, n_bytes, "data"));
    TTI_TRY(tti_reader_finish(reader));
    return is_kept ? turn_elems(n_bytes, a) : TUTTI_OK;
}

static tutti_status open_reader(const char *path, const char *member, tti_npy_array *a,
                                tti_reader **out) {
    if (!member) return tti_reader_open(path, out);
    tti_file_part where;
    bool found;
    TTI_TRY(tti_zip_find(path, member, &found, &where));
    if (!found) return tti_fail(TUTTI_E_DATA, "%s: has no member %s", path, member);
    a->offset = where.offset;
    return tti_reader_open_part(path, &where, out);
}

tutti_status tti_npy_open(const char *path, const char *member, int64_t max_unpacked,
                          tti_npy_array *out) {
    tti_npy_array a = {.fd = -1, .name = malloc(strlen(path) + (member ? strlen(member) : 0) + 2)};
    if (!a.name) return tti_fail(TUTTI_E_NOMEM, "%s: out of memory", path);
    sprintf(a.name, "%s%s%s", path, member ? ":" : "", member ? member : "");
    tti_reader *reader = NULL;
    uint64_t n_bytes = 0;
    tutti_status st;
    TTI_TRY_GOTO(open_reader(path, member, &a, &reader), cleanup);
    tti_reader_allow(reader, max_unpacked);
    TTI_TRY_GOTO(read_header(reader, &a), cleanup);
    TTI_TRY_GOTO(count_bytes(&a, &n_bytes), cleanup);
    TTI_TRY_GOTO(take_elems(reader, n_bytes, &a), cleanup);
    *out = a;
cleanup:
    tti_reader_close(reader);
    if (st != TUTTI_OK) tti_npy_close(&a);
    return st;
}

void tti_npy_close(tti_npy_array *a) {
    if (a->fd >= 0) close(a->fd);
    if (!a->samples) free(a->bytes);
    free(a->name);
    *a = (tti_npy_array){.fd = -1};
}

/* ---- samples of the program ---- */

tutti_status tti_npy_of_samples(const tutti_samples *samples, int field, tti_npy_array *out) {
    static const char kinds[TUTTI_N_DTYPES] = {
        [TUTTI_F32] = 'f', [TUTTI_F64] = 'f', [TUTTI_F16] = 'f',
        [TUTTI_I32] = 'i', [TUTTI_I64] = 'i', [TUTTI_U8] = 'u',
    };
    const tutti_field *f = &samples->fields[field];
    tti_npy_array a = {.fd = -1,
                       .name = strdup(f->name),
                       .kind = kinds[f->type.dtype],
                       .width = (int)tutti_dtype_bytes(f->type.dtype),
                       .shape = {.n_dims = f->type.shape.n_dims + 1, .dim = {samples->n_samples}},
                       .row_elems = (size_t)tutti_shape_n_elems(&f->type.shape),
                       .samples = samples,
                       .field = field};
    if (!a.name) return tti_fail(TUTTI_E_NOMEM, "samples: out of memory");
    for (int i = 0; i < f->type.shape.n_dims; i++) a.shape.dim[i + 1] = f->type.shape.dim[i];
    if (samples->data) a.bytes = (uint8_t *)(uintptr_t)samples->data[field];
    *out = a;
    return TUTTI_OK;
}

tutti_status tti_npy_get_row(const tti_npy_array *arrays, int n, int64_t row, tti_npy_array *out,
                             void **memory) {
    const tutti_samples *samples = arrays[0].samples;
    void *fields[TTI_MAX_FIELDS];
    *memory = aligned_alloc(TTI_FIELD_ALIGN, tti_samples_bytes(samples) + TTI_FIELD_ALIGN);
    if (!*memory) return tti_fail(TUTTI_E_NOMEM, "samples: out of memory for a sample");
    tutti_status st = tti_samples_get(samples, row, *memory, fields);
    if (st != TUTTI_OK) {
        free(*memory);
        *memory = NULL;
        return st;
    }
    for (int i = 0; i < n; i++) {
        out[i] = arrays[i];
        out[i].bytes = fields[arrays[i].field];
    }
    return TUTTI_OK;
}

/* n elements from element at on, of one row. */
static tutti_status get_elems(const tti_npy_array *a, size_t at, size_t n, void *out) {
    tti_npy_array row;
    void *memory;
    size_t width = (size_t)a->width;
    TTI_TRY(tti_npy_get_row(a, 1, (int64_t)(at / a->row_elems), &row, &memory));
    memcpy(out, row.bytes + at % a->row_elems * width, n * width);
    free(memory);
    return TUTTI_OK;
}

/* ---- rows ---- */

static void swap_bytes(uint8_t *p, size_t n, size_t width) {
    for (size_t i = 0; i < n; i++, p += width)
        for (size_t k = 0; k < width / 2; k++) {
            uint8_t byte = p[k];
            p[k] = p[width - 1 - k];
            p[width - 1 - k] = byte;
        }
}

/* n elements from element at on, little endian. */
static tutti_status read_raw(const tti_npy_array *a, size_t at, size_t n, void *out) {
    size_t width = (size_t)a->width;
    if (a->samples && !a->bytes) return get_elems(a, at, n, out);
    if (a->fd >= 0)
        TTI_TRY(tti_pread_all(a->fd, a->name, out, n * width, a->offset + at * width));
    else
        memcpy(out, a->bytes + a->offset + at * width, n * width);
    if (a->big_endian) swap_bytes(out, n, width);
    return TUTTI_OK;
}

/* A whole number of any width, by its sign. */
static int64_t load_int(const uint8_t *p, char kind, int width) {
    uint64_t bits = 0;
    memcpy(&bits, p, (size_t)width); /* little endian, as this machine */
    int shift = 64 - 8 * width;
    return kind == 'i' ? (int64_t)(bits << shift) >> shift : (int64_t)bits;
}

static float load_float(const uint8_t *p, char kind, int width) {
    if (kind != 'f') return (float)load_int(p, kind, width);
    if (width == 2) return tti_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
    if (width == 4) {
        float x;
        memcpy(&x, p, sizeof x);
        return x;
    }
    double x;
    memcpy(&x, p, sizeof x);
    return (float)x;
}

static double load_double(const uint8_t *p, char kind, int width) {
    if (kind != 'f') return (double)load_int(p, kind, width);
    if (width < 8) return (double)load_float(p, kind, width);
    double x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* A row whose elements are as they are wanted. */
static bool is_same(const tti_npy_array *a, char kind, int width) {
    return a->kind == kind && a->width == width;
}

static tutti_status read_same(const tti_npy_array *a, int64_t row, void *out) {
    return read_raw(a, (size_t)row * a->row_elems, a->row_elems, out);
}

tutti_status tti_npy_read_u8(const tti_npy_array *a, int64_t row, uint8_t *out) {
    TTI_ASSERT(a->width == 1);
    return read_same(a, row, out);
}

tutti_status tti_npy_read_i32(const tti_npy_array *a, int64_t row, int32_t *out) {
    if (is_same(a, 'i', 4)) return read_same(a, row, out);
    uint8_t buffer[BUFFER_BYTES];
    size_t width = (size_t)a->width, most = BUFFER_BYTES / width;
    for (size_t done = 0, n; done < a->row_elems; done += n) {
        n = TTI_MIN(a->row_elems - done, most);
        TTI_TRY(read_raw(a, (size_t)row * a->row_elems + done, n, buffer));
        for (size_t i = 0; i < n; i++) {
            int64_t x = load_int(buffer + i * width, a->kind, a->width);
            if (x < INT32_MIN || x > INT32_MAX)
                return tti_fail(TUTTI_E_DATA,
                                "%s: element %zu of row %lld, %lld, does not fit in i32", a->name,
                                done + i, (long long)row, (long long)x);
            out[done + i] = (int32_t)x;
        }
    }
    return TUTTI_OK;
}

tutti_status tti_npy_read_f32(const tti_npy_array *a, int64_t row, float *out) {
    if (is_same(a, 'f', 4)) return read_same(a, row, out);
    uint8_t buffer[BUFFER_BYTES];
    size_t width = (size_t)a->width, most = BUFFER_BYTES / width;
    for (size_t done = 0, n; done < a->row_elems; done += n) {
        n = TTI_MIN(a->row_elems - done, most);
        TTI_TRY(read_raw(a, (size_t)row * a->row_elems + done, n, buffer));
        for (size_t i = 0; i < n; i++) {
            out[done + i] = load_float(buffer + i * width, a->kind, a->width);
            if (width < 8 || !isinf(out[done + i])) continue;
            double x = load_double(buffer + i * width, a->kind, a->width);
            if (isfinite(x))
                return tti_fail(TUTTI_E_DATA,
                                "%s: element %zu of row %lld, %g, is too large for a 32-bit float; "
                                "divide the values before they are saved",
                                a->name, done + i, (long long)row, x);
        }
    }
    return TUTTI_OK;
}

tutti_status tti_npy_read_f64(const tti_npy_array *a, int64_t row, double *out) {
    if (is_same(a, 'f', 8)) return read_same(a, row, out);
    uint8_t buffer[BUFFER_BYTES];
    size_t width = (size_t)a->width, most = BUFFER_BYTES / width;
    for (size_t done = 0, n; done < a->row_elems; done += n) {
        n = TTI_MIN(a->row_elems - done, most);
        TTI_TRY(read_raw(a, (size_t)row * a->row_elems + done, n, buffer));
        for (size_t i = 0; i < n; i++)
            out[done + i] = load_double(buffer + i * width, a->kind, a->width);
    }
    return TUTTI_OK;
}
