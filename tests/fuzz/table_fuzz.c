/* table_fuzz.c - any bytes as CSV, as a .npy file, as an .npz archive and as a file of tokens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "data/dataset.h"
#include "data/files/zip_member.h"
#include "data/formats/npy_array.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void as_csv(const char *path, const char *label, const char *target) {
    tutti_dataset *ds;
    tutti_dataset_desc desc = {
        .format = "csv", .dir = path, .target = target, .val_fraction = 0.5, .label = label};
    if (tutti_dataset_open(&desc, &ds) != TUTTI_OK) return;
    const tutti_dataset_info *info = tutti_dataset_get_info(ds);
    size_t n = (size_t)info->x.shape.dim[0]; /* elements, or bytes of fields */
    float *x = malloc(n * sizeof *x);
    int32_t y[2];
    TTI_ASSERT(x && tutti_shape_n_elems(&info->y.shape) <= 2);
    tutti_status st = tutti_dataset_get(ds, 0, x, y);
    TTI_ASSERT(st == TUTTI_OK);
    TTI_ASSERT(info->is_value || (y[0] >= 0 && y[0] < (info->n_fields > 0 ? 1 : info->n_classes)));
    free(x);
    tutti_dataset_destroy(ds);
}

static void as_array(const char *path, const char *member) {
    tti_npy_array a;
    if (tti_npy_open(path, member, 0, &a) != TUTTI_OK) return;
    float *row = malloc(a.row_elems * sizeof *row);
    if (row && a.row_elems < 1 << 20) {
        tutti_status st = tti_npy_read_f32(&a, a.shape.dim[0] - 1, row);
        TTI_ASSERT(st == TUTTI_OK); /* the size was checked */
        st = tti_npy_read_f32(&a, 0, row);
        TTI_ASSERT(st == TUTTI_OK);
    }
    double *values = malloc(a.row_elems * sizeof *values);
    if (values && a.row_elems < 1 << 20) {
        tutti_status st = tti_npy_read_f64(&a, a.shape.dim[0] - 1, values);
        TTI_ASSERT(st == TUTTI_OK);
    }
    free(values);
    free(row);
    tti_npy_close(&a);
}

static void as_tokens(const char *path) {
    tutti_dataset *ds;
    int32_t x[4], y[4];
    tutti_dataset_desc desc = {.format = "tokens", .dir = path, .context = 4};
    if (tutti_dataset_open(&desc, &ds) != TUTTI_OK) return;
    int64_t n = tutti_dataset_get_info(ds)->n_samples;
    tutti_status st = tutti_dataset_get(ds, n - 1, x, y);
    TTI_ASSERT(st == TUTTI_OK && x[1] == y[0]); /* the vocabulary came from the file */
    tutti_dataset_destroy(ds);
}

static char path[64];

static void remove_file(void) { unlink(path); }

static void make_file(void) {
    snprintf(path, sizeof path, "/tmp/tutti-fuzz-XXXXXX");
    TTI_ASSERT(mkstemp(path) >= 0);
    atexit(remove_file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
    if (!path[0]) make_file();
    FILE *file = fopen(path, "wb");
    TTI_ASSERT(file && fwrite(data, 1, n_bytes, file) == n_bytes);
    fclose(file);
    as_array(path, NULL);
    as_array(path, "x.npy");
    as_csv(path, NULL, "auto");
    as_csv(path, "0, 1", "auto");
    as_csv(path, "0, 1", "labels");
    as_tokens(path);
    return 0;
}
