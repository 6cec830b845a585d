/* npy.c - the format "npy": NumPy arrays of samples and labels, as .npy files in a folder or in an
 * .npz archive.
 *
 * Names: x_train y_train x_test y_test (or val), train_x ...; or x and y, which are cut in two; or
 * archives with train and test in their names, each with x and y.  u8 is taken for pixels. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "data/file_list.h"
#include "data/npy_array.h"
#include "data/row_split.h"
#include "data/zip_member.h"
#include "ir/graph.h"

enum { PATH_BYTES = 4096 };

typedef struct npy_state {
    tti_npy_array x, y;
    tti_row_split rows;
    int64_t n_classes;
} npy_state;

/* ---- which arrays ---- */

typedef struct names {
    const char *x, *y;
} names;

static const names train_names[] = {{"x_train", "y_train"}, {"train_x", "train_y"}, {"x", "y"}};
static const names test_names[] = {
    {"x_test", "y_test"}, {"x_val", "y_val"}, {"test_x", "test_y"}, {"val_x", "val_y"}};

/* A folder, or an archive. */
typedef struct place {
    char path[PATH_BYTES];
    bool archive;
} place;

static tutti_status array_path(const place *where, const char *name, char out[PATH_BYTES]) {
    int n = where->archive ? snprintf(out, PATH_BYTES, "%s.npy", name)
                           : snprintf(out, PATH_BYTES, "%s/%s.npy", where->path, name);
    if (n >= 0 && n < PATH_BYTES) return TUTTI_OK;
    return tti_fail(TUTTI_E_INVALID, "npy: the name of the folder is too long");
}

static tutti_status is_there(const place *where, const char *name, bool *out) {
    char path[PATH_BYTES];
    struct stat info;
    tti_zip_member member;
    TTI_TRY(array_path(where, name, path));
    if (where->archive) TTI_TRY(tti_zip_find(where->path, path, &member));
    *out = where->archive ? member.found : stat(path, &info) == 0;
    return TUTTI_OK;
}

static tutti_status open_array(const place *where, const char *name, tti_npy_array *out) {
    char path[PATH_BYTES];
    TTI_TRY(array_path(where, name, path));
    return where->archive ? tti_npy_open(where->path, path, out) : tti_npy_open(path, NULL, out);
}

/* The first of the pairs whose x is there; NULL: none. */
static tutti_status first_of(const place *where, const names *list, size_t n, const names **out) {
    *out = NULL;
    for (size_t i = 0; i < n && !*out; i++) {
        bool there;
        TTI_TRY(is_there(where, list[i].x, &there));
        if (there) *out = &list[i];
    }
    return TUTTI_OK;
}

/* *both: the arrays hold both splits. */
static tutti_status choose(const tutti_dataset_desc *desc, const place *where, const names **out,
                           bool *both) {
    const names *train, *test;
    TTI_TRY(first_of(where, train_names, TTI_COUNT(train_names), &train));
    TTI_TRY(first_of(where, test_names, TTI_COUNT(test_names), &test));
    *both = !test;
    *out = test && desc->split == TUTTI_TEST ? test : train;
    if (*out) return TUTTI_OK;
    return tti_fail(TUTTI_E_DATA,
                    "%s: no arrays are there; wanted are x_train and y_train, or train_x and "
                    "train_y, or x and y, and the same with test or val",
                    where->path);
}

static bool is_folder(const char *path) {
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static tutti_status set_path(place *where, const char *path, bool archive) {
    where->archive = archive;
    if ((size_t)snprintf(where->path, PATH_BYTES, "%s", path) < PATH_BYTES) return TUTTI_OK;
    return tti_fail(TUTTI_E_INVALID, "npy: the name of the folder is too long");
}

/* A folder without archives is searched for .npy files.  *by_name: the archive is of one split. */
static tutti_status find_place(const tutti_dataset_desc *desc, place *where, bool *by_name) {
    tti_file_list list = {0};
    *by_name = false;
    bool folder = desc->dir && is_folder(desc->dir);
    tutti_status st = tti_file_list_make(desc, "npy", ".npz", &list);
    if (st == TUTTI_E_DATA && folder) return set_path(where, desc->dir, false);
    TTI_TRY(st);
    *by_name = !list.both;
    st = list.n == 1 ? set_path(where, list.path[0], true)
                     : tti_fail(TUTTI_E_DATA, "%s: npy: %zu archives for a split, one is possible",
                                desc->dir, list.n);
    tti_file_list_free(&list);
    return st;
}

/* ---- the data set ---- */

static tutti_status npy_read(const tutti_dataset *ds, int64_t index, void *x, int32_t *y) {
    const npy_state *s = ds->state;
    int64_t row = tti_row_at(&s->rows, index);
    TTI_TRY(tti_npy_read_i32(&s->y, row, y));
    for (size_t i = 0; i < s->y.row_elems; i++)
        if (y[i] < 0 || y[i] >= s->n_classes)
            return tti_fail(TUTTI_E_DATA, "%s: label %d of row %lld is out of range, 0 .. %lld",
                            s->y.name, y[i], (long long)row, (long long)s->n_classes - 1);
    if (ds->stored.dtype == TUTTI_U8) return tti_npy_read_u8(&s->x, row, x);
    if (ds->stored.dtype == TUTTI_I32) return tti_npy_read_i32(&s->x, row, x);
    return tti_npy_read_f32(&s->x, row, x);
}

static void npy_close(tutti_dataset *ds) {
    npy_state *s = ds->state;
    tti_npy_close(&s->x);
    tti_npy_close(&s->y);
    free(s);
}

/* One more than the largest number, at least 1, and the smallest. */
static tutti_status range_of(const tti_npy_array *a, int64_t *above, int32_t *least) {
    int32_t *row = malloc(a->row_elems * sizeof *row);
    int32_t most = 0;
    if (!row) return tti_fail(TUTTI_E_NOMEM, "npy: out of memory");
    tutti_status st = TUTTI_OK;
    *least = 0;
    for (int64_t i = 0; i < a->shape.dim[0] && st == TUTTI_OK; i++) {
        st = tti_npy_read_i32(a, i, row);
        for (size_t k = 0; st == TUTTI_OK && k < a->row_elems; k++) {
            most = TTI_MAX(most, row[k]);
            *least = TTI_MIN(*least, row[k]);
        }
    }
    free(row);
    *above = (int64_t)most + 1;
    return st;
}

static tutti_status count_classes(const tutti_dataset_desc *desc, npy_state *s) {
    int32_t least; /* some labels may be no target; reading says which cannot be */
    s->n_classes = desc->n_classes;
    return s->n_classes > 0 ? TUTTI_OK : range_of(&s->y, &s->n_classes, &least);
}

/* Whole numbers are tokens.  Targets of the same shape are tokens too, of the same vocabulary. */
static tutti_status count_tokens(const tutti_dataset_desc *desc, tutti_dataset *ds) {
    npy_state *s = ds->state;
    int32_t least;
    if (ds->stored.dtype != TUTTI_I32) return TUTTI_OK;
    TTI_TRY(range_of(&s->x, &ds->info.n_tokens, &least));
    if (least < 0)
        return tti_fail(TUTTI_E_DATA, "%s: %d is no token, these are 0 or more", s->x.name, least);
    if (desc->n_classes == 0 && tti_shape_equal(&ds->stored.shape, &ds->info.y.shape))
        s->n_classes = ds->info.n_classes = TTI_MAX(s->n_classes, ds->info.n_tokens);
    return TUTTI_OK;
}

static tutti_status check_arrays(const npy_state *s) {
    if (s->y.kind == 'f')
        return tti_fail(TUTTI_E_DATA, "%s: labels are floats, whole numbers are expected",
                        s->y.name);
    if (s->x.shape.dim[0] != s->y.shape.dim[0])
        return tti_fail(TUTTI_E_DATA, "%s: %lld labels for the %lld samples of %s", s->y.name,
                        (long long)s->y.shape.dim[0], (long long)s->x.shape.dim[0], s->x.name);
    return TUTTI_OK;
}

/* Of a row. */
static tutti_type type_of(const tti_npy_array *a, tutti_dtype dtype) {
    tutti_type type = {.dtype = dtype, .shape.n_dims = a->shape.n_dims - 1};
    for (int i = 0; i < type.shape.n_dims; i++) type.shape.dim[i] = a->shape.dim[i + 1];
    return type;
}

static tutti_status describe(const tutti_dataset_desc *desc, tutti_dataset *ds) {
    npy_state *s = ds->state;
    bool pixels = s->x.kind == 'u' && s->x.width == 1;
    TTI_TRY(check_arrays(s));
    TTI_TRY(tti_count_samples(desc, s->rows.n, &ds->info.n_samples));
    TTI_TRY(count_classes(desc, s));
    ds->info.n_classes = s->n_classes;
    ds->info.y = type_of(&s->y, TUTTI_I32);
    ds->stored = type_of(&s->x, pixels ? TUTTI_U8 : s->x.kind == 'f' ? TUTTI_F32 : TUTTI_I32);
    if (!pixels) return count_tokens(desc, ds);
    TTI_TRY(tti_dataset_normalise(desc, ds));
    return TUTTI_OK;
}

static tutti_status npy_open(const tutti_dataset_desc *desc, tutti_dataset *ds) {
    place where;
    const names *pair;
    bool by_name, both;
    TTI_TRY(find_place(desc, &where, &by_name));
    TTI_TRY(choose(desc, &where, &pair, &both));
    npy_state *s = calloc(1, sizeof *s);
    if (!s) return tti_fail(TUTTI_E_NOMEM, "npy: out of memory");
    s->x.fd = s->y.fd = -1;
    ds->state = s;
    ds->read = npy_read;
    ds->close = npy_close;
    tutti_status st;
    TTI_TRY_GOTO(open_array(&where, pair->x, &s->x), cleanup);
    TTI_TRY_GOTO(open_array(&where, pair->y, &s->y), cleanup);
    s->rows = tti_row_split_make(desc, s->x.shape.dim[0], by_name || !both);
    st = describe(desc, ds);
cleanup:
    if (st != TUTTI_OK) npy_close(ds);
    return st;
}

const tti_format tti_format_npy = {
    .name = "npy",
    .doc = "NumPy arrays x and y, as .npy files or in an .npz",
    .open = npy_open,
};
