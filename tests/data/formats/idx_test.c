/* idx_test.c - IDX files, plain and gzipped: the same samples; every kind of damage is named. */
#include "data/formats/idx.h"

#include "data/dataset.h"
#include "data/idx_files.h"
#include "t.h"

enum { N = 30, H = 5, W = 4 };

static char dir[256];
static uint8_t file[4096], packed[8192];

static const uint32_t image_dims[] = {N, H, W}, label_dims[] = {N};

static void put(const char *name, const void *bytes, size_t n_bytes, int gzip) {
    char gz_name[128];
    snprintf(gz_name, sizeof gz_name, "%s.gz", name);
    unlink(t_path(dir, name));
    unlink(t_path(dir, gz_name));
    if (gzip)
        t_write(t_path(dir, gz_name), packed, t_gzip(bytes, n_bytes, packed));
    else
        t_write(t_path(dir, name), bytes, n_bytes);
}

/* Good files of both splits. */
static int set_up(void **state) {
    (void)state;
    snprintf(dir, sizeof dir, "%s", t_make_dir());
    for (int gzip = 0; gzip < 2; gzip++) { /* train plain, test gzipped */
        put(gzip ? "t10k-images-idx3-ubyte" : "train-images-idx3-ubyte", file,
            t_idx(3, image_dims, 251, file), gzip);
        put(gzip ? "t10k-labels-idx1-ubyte" : "train-labels-idx1-ubyte", file,
            t_idx(1, label_dims, 10, file), gzip);
    }
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    t_remove_dir(dir);
    return 0;
}

static tutti_dataset_desc desc_of(tutti_data_split split) {
    return (tutti_dataset_desc){.format = "idx", .dir = dir, .split = split};
}

static tutti_status open_only(tutti_dataset_desc desc) {
    tutti_dataset *ds = NULL;
    tutti_status st = tutti_dataset_open(&desc, &ds);
    assert_int_equal(st == TUTTI_OK, ds != NULL);
    tutti_dataset_destroy(ds);
    return st;
}

T_CASE(samples_are_read) {
    T_UNUSED;
    for (int split = 0; split < 2; split++) {
        tutti_dataset_desc desc = desc_of((tutti_data_split)split);
        desc.mean = 0.25;
        desc.std = 0.5;
        tutti_dataset *ds;
        T_OK(tutti_dataset_open(&desc, &ds));
        const tutti_dataset_info *info = tutti_dataset_get_info(ds);
        T_EQ(info->n_samples, N);
        T_EQ(info->n_classes, 10);
        T_EQ(info->x.dtype, TUTTI_F32);
        T_EQ(info->x.shape.n_dims, 3);
        assert_memory_equal(info->x.shape.dim, ((int64_t[]){1, H, W}), 3 * sizeof(int64_t));
        T_EQ(info->y.dtype, TUTTI_I32);
        T_EQ(info->y.shape.n_dims, 0);
        for (int k = 0; k < N; k++) {
            float x[H * W];
            int32_t y;
            T_OK(tutti_dataset_get(ds, k, x, &y));
            T_EQ(y, (k * 7 + 3) % 10);
            for (int i = 0; i < H * W; i++) {
                double pixel = ((k * H * W + i) * 7 + 3) % 251;
                T_NEAR(x[i], (pixel / 255 - 0.25) / 0.5, 1e-6);
            }
        }
        tutti_dataset_destroy(ds);
    }
}

T_CASE(first_samples_only) {
    T_UNUSED;
    tutti_dataset_desc desc = desc_of(TUTTI_TEST);
    desc.n_samples = 7;
    tutti_dataset *ds;
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_samples, 7);
    float x[H * W];
    int32_t y;
    T_OK(tutti_dataset_get(ds, 6, x, &y));
    T_FAILS(tutti_dataset_get(ds, 7, x, &y), TUTTI_E_INVALID, "sample 7 does not exist");
    tutti_dataset_destroy(ds);
    desc.n_samples = N + 1;
    T_FAILS(open_only(desc), TUTTI_E_DATA, "31 samples are requested, the file has 30");
}

/* The bad content is tried in a plain and in a gzipped file. */
static void expect_bad(const char *name, size_t n_bytes, const char *text) {
    for (int gzip = 0; gzip < 2; gzip++) {
        put(name, file, n_bytes, gzip);
        T_FAILS(open_only(desc_of(TUTTI_TRAIN)), TUTTI_E_DATA, text);
        T_FAILS(open_only(desc_of(TUTTI_TRAIN)), TUTTI_E_DATA, t_path(dir, name));
        T_OK(open_only(desc_of(TUTTI_TEST))); /* the other split is not looked at */
    }
}

T_CASE(bad_images) {
    T_UNUSED;
    const char *name = "train-images-idx3-ubyte";
    size_t n = t_idx(3, image_dims, 251, file);
    file[2] = 0x0D;
    expect_bad(name, n, "wrong magic 00 00 0d 03, expected 00 00 08 03");
    t_idx(3, image_dims, 251, file);
    file[3] = 1;
    expect_bad(name, n, "wrong magic 00 00 08 01");
    t_idx(3, image_dims, 251, file);
    expect_bad(name, n - 1, "truncated");
    expect_bad(name, 16, "truncated");
    expect_bad(name, 15, "truncated in the header");
    expect_bad(name, 3, "truncated in the header");
    expect_bad(name, 0, "truncated in the header");
    file[n] = 0;
    expect_bad(name, n + 1, "trailing bytes");
}

T_CASE(bad_dimensions) {
    T_UNUSED;
    const char *name = "train-images-idx3-ubyte";
    t_idx(3, (const uint32_t[]){0, H, W}, 251, file);
    expect_bad(name, 16, "a dimension is 0");
    t_idx(3, (const uint32_t[]){0, H, 0}, 251, file);
    memset(file + 4, 0xFF, 12);
    expect_bad(name, 700, "the dimensions overflow");
    memcpy(file + 12, (uint8_t[]){0, 0, 0, 1}, 4); /* 2^32-1 images of 2^32-1 bytes */
    expect_bad(name, 700, "the dimensions overflow");
    memcpy(file + 8, (uint8_t[]){0, 1, 0, 0}, 4); /* fits 64 bits, not the file */
    put(name, file, 700, 0);
    T_FAILS(open_only(desc_of(TUTTI_TRAIN)), TUTTI_E_DATA, "bytes expected after the header");
    put(name, file, 700, 1);
    T_FAILS(open_only(desc_of(TUTTI_TRAIN)), TUTTI_E_DATA, "gzipped bytes can hold");
}

T_CASE(bad_labels) {
    T_UNUSED;
    const char *name = "train-labels-idx1-ubyte";
    size_t n = t_idx(1, (const uint32_t[]){N - 1}, 10, file);
    expect_bad(name, n, "29 labels for the 30 images of");
    n = t_idx(1, label_dims, 10, file);
    expect_bad(name, n - 1, "truncated");
    tutti_dataset_desc desc = desc_of(TUTTI_TRAIN);
    file[8 + 17] = 200;
    put(name, file, n, 0);
    T_OK(open_only(desc)); /* 201 classes, since the job does not give a number */
    desc.n_classes = 10;
    T_FAILS(open_only(desc), TUTTI_E_DATA, "label 200 of sample 17 is out of range, 0 .. 9");
    file[3] = 3;
    expect_bad(name, n, "wrong magic 00 00 08 03, expected 00 00 08 01");
}

T_CASE(missing_files) {
    T_UNUSED;
    unlink(t_path(dir, "train-labels-idx1-ubyte"));
    T_FAILS(open_only(desc_of(TUTTI_TRAIN)), TUTTI_E_DATA,
            "neither train-labels-idx1-ubyte nor train-labels-idx1-ubyte.gz exists");
    T_FAILS(open_only(desc_of(TUTTI_TRAIN)), TUTTI_E_DATA, dir);
    tutti_dataset_desc desc = desc_of(TUTTI_TRAIN);
    desc.dir = "/no such/folder";
    T_FAILS(open_only(desc), TUTTI_E_DATA, "/no such/folder: neither train-images");
    T_FAILS(open_only(desc), TUTTI_E_DATA, "https://");
    desc.dir = NULL;
    T_FAILS(open_only(desc), TUTTI_E_INVALID, "data.dir is missing");
    char long_dir[5000];
    memset(long_dir, 'a', sizeof long_dir - 1);
    long_dir[sizeof long_dir - 1] = '\0';
    desc.dir = long_dir;
    T_FAILS(open_only(desc), TUTTI_E_INVALID, "too long");
}

T_CASE(bad_normalisation) {
    T_UNUSED;
    tutti_dataset_desc desc = desc_of(TUTTI_TRAIN);
    desc.std = -1;
    T_FAILS(open_only(desc), TUTTI_E_INVALID, "normalise");
}

/* A plain file is read sample by sample, so it may be cut under our feet. */
T_CASE(cut_while_in_use) {
    T_UNUSED;
    tutti_dataset_desc desc = desc_of(TUTTI_TRAIN);
    tutti_dataset *ds;
    T_OK(tutti_dataset_open(&desc, &ds));
    float x[H * W];
    int32_t y;
    assert_int_equal(truncate(t_path(dir, "train-images-idx3-ubyte"), 16 + 3 * H * W + 5), 0);
    T_OK(tutti_dataset_get(ds, 2, x, &y));
    T_FAILS(tutti_dataset_get(ds, 3, x, &y), TUTTI_E_DATA, "truncated while in use: image 3");
    tutti_dataset_destroy(ds);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(samples_are_read),  CASE(first_samples_only), CASE(bad_images),
        CASE(bad_dimensions),    CASE(bad_labels),         CASE(missing_files),
        CASE(bad_normalisation), CASE(cut_while_in_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
