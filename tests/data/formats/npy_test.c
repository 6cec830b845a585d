/* npy_test.c - NumPy arrays, plain and in archives, stored and deflated, as NumPy itself wrote them
 * (tests/golden/make_npz.py), and damaged ones. */
#include "data/formats/npy_array.h"

#include <math.h>
#include <stdio.h>

#include "data/dataset.h"
#include "data/target.h"
#include "data/text_files.h"
#include "golden/npz_files.h"

/* A .npy file of version 1 in memory. */
static size_t npy(uint8_t *out, const char *descr, const char *shape, const void *data, size_t n) {
    int n_text = sprintf((char *)out + 10,
                         "{'descr': '%s', 'fortran_order': False, 'shape': %s, }\n", descr, shape);
    memcpy(out, "\x93NUMPY\1\0", 8);
    out[8] = (uint8_t)n_text;
    out[9] = 0;
    if (n) memcpy(out + 10 + n_text, data, n);
    return 10 + (size_t)n_text + n;
}

static void put_npy(const char *dir, const char *name, const char *descr, const char *shape,
                    const void *data, size_t n) {
    uint8_t bytes[4096];
    t_put(dir, name, bytes, npy(bytes, descr, shape, data, n));
}

T_CASE(every_type) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tti_npy_array a;
    float f[2];
    int32_t i[2];
    static const struct {
        const char *descr;
        uint8_t bytes[16];
        size_t width;
        float f;
        int32_t i;
    } types[] = {
        {"|u1", {1, 200}, 1, 200, 200},
        {"|b1", {1, 1}, 1, 1, 1},
        {"|i1", {1, 200}, 1, -56, -56},
        {"<u2", {0, 0, 1, 2}, 2, 513, 513},
        {"<i2", {0, 0, 0xFE, 0xFF}, 2, -2, -2},
        {"<i4", {0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF}, 4, -1, -1},
        {"<i8", {0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0}, 8, 7, 7},
        {"<f2", {0, 0, 0, 0x3C}, 2, 1, 0},
        {"<f4", {0, 0, 0, 0, 0, 0, 0xC0, 0x3F}, 4, 1.5f, 0},
        {"<f8", {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xF8, 0x3F}, 8, 1.5f, 0},
    };
    static const double large[2] = {1, -1e39};
    put_npy(dir, "a.npy", "<f8", "(1, 2)", large, sizeof large);
    T_OK(tti_npy_open(t_path(dir, "a.npy"), NULL, 0, &a));
    T_FAILS(tti_npy_read_f32(&a, 0, f), TUTTI_E_DATA,
            "a.npy: element 1 of row 0, -1e+39, is too large for a 32-bit float");
    tti_npy_close(&a);
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        put_npy(dir, "a.npy", types[k].descr, "(1, 2)", types[k].bytes, 2 * types[k].width);
        T_OK(tti_npy_open(t_path(dir, "a.npy"), NULL, 0, &a));
        T_OK(tti_npy_read_f32(&a, 0, f));
        assert_true(f[1] == types[k].f);
        if (a.kind != 'f') {
            T_OK(tti_npy_read_i32(&a, 0, i));
            T_EQ(i[1], types[k].i);
        }
        tti_npy_close(&a);
    }
    t_clear_dir(dir);
}

typedef struct bad_array {
    const char *descr, *shape;
    size_t n_bytes;
    const char *why;
} bad_array;

T_CASE(bad_arrays) {
    T_UNUSED;
    static const bad_array bad[] = {
        {"=f4", "(2,)", 8, "the type is not one of"},
        {"<c8", "(2,)", 16, "the type is not one of"},
        {"|O", "(2,)", 16, "the type is not one of"},
        {"<f4", "()", 4, "a single number"},
        {"<f4", "(2", 8, "'shape' is not"},
        {"<f4", "(2 3)", 24, "'shape' is not"},
        {"<f4", "(2,,3)", 24, "'shape' is not"},
        {"<f4", "(-2,)", 8, "'shape' is not"},
        {"<f4", "(0,)", 0, "a dimension is not in"},
        {"<f4", "(1,1,1,1,1,1,1,1,1)", 4, "'shape' is not 1 .. 8"},
        {"<f4", "(99999999999999,)", 8, "a dimension is not in"},
        {"<f8", "(2,1000000000000)", 8, "a row is larger"},
        {"<f8", "(1099511627776,33554432)", 8, "overflows"},
        {"<f4", "(3,)", 8, "truncated: 12 bytes expected after the header, 8 found"},
        {"<f4", "(1,)", 8, "4 trailing bytes"},
    };
    const char *dir = t_make_dir();
    static const uint8_t zeros[64];
    tti_npy_array a;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        put_npy(dir, "a.npy", bad[i].descr, bad[i].shape, zeros, bad[i].n_bytes);
        T_FAILS(tti_npy_open(t_path(dir, "a.npy"), NULL, 0, &a), TUTTI_E_DATA, bad[i].why);
    }
    t_put_text(dir, "a.npy", "\x93NUMPX\1");
    T_FAILS(tti_npy_open(t_path(dir, "a.npy"), NULL, 0, &a), TUTTI_E_DATA,
            "truncated in the header");
    t_put_text(dir, "a.npy", "no array at all");
    T_FAILS(tti_npy_open(t_path(dir, "a.npy"), NULL, 0, &a), TUTTI_E_DATA, "not a .npy file");
    t_put(dir, "a.npy", "\x93NUMPY\1\0\0\0", 10);
    T_FAILS(tti_npy_open(t_path(dir, "a.npy"), NULL, 0, &a), TUTTI_E_DATA, "its length is not");
    t_clear_dir(dir);
}

/* The contents by make_npz.py: x[i,j] = 10 i + j, y[i] = i % 3, 12 rows of 2. */
static void check_rows(const tutti_dataset *ds, int64_t n_wanted, double *sum) {
    T_EQ(tutti_dataset_get_info(ds)->n_samples, n_wanted);
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 3);
    for (int64_t i = 0; i < n_wanted; i++) {
        float x[2];
        int32_t y;
        T_OK(tutti_dataset_get(ds, i, x, &y));
        assert_true(x[1] == x[0] + 1);
        T_EQ(y, (int)(x[0] / 10) % 3);
        *sum += (double)x[0];
    }
}

static void check_archive(const uint8_t *bytes, size_t n_bytes) {
    const char *dir = t_make_dir();
    t_put(dir, "set.npz", bytes, n_bytes);
    tutti_dataset_desc desc = {.format = "npy", .dir = dir, .val_fraction = 0.25};
    tutti_dataset *ds;
    double sum = 0;
    T_OK(tutti_dataset_open(&desc, &ds));
    check_rows(ds, 9, &sum);
    tutti_dataset_destroy(ds);
    desc.split = TUTTI_TEST;
    desc.n_classes = 3;
    T_OK(tutti_dataset_open(&desc, &ds));
    check_rows(ds, 3, &sum);
    tutti_dataset_destroy(ds);
    T_NEAR(sum, 660, 0);
    t_clear_dir(dir);
}

T_CASE(archives_of_numpy) {
    T_UNUSED;
    check_archive(npz_stored, sizeof npz_stored);
    check_archive(npz_deflated, sizeof npz_deflated);
}

T_CASE(damaged_archives) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_dataset_desc desc = {.format = "npy", .dir = dir, .val_fraction = 0.25};
    tutti_dataset *ds;
    static uint8_t bytes[sizeof npz_deflated];
    size_t n_failed = 0;
    for (size_t cut = 0; cut < sizeof bytes; cut += 7) {
        t_put(dir, "set.npz", npz_deflated, cut);
        T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
                "set.npz: cannot be read as a zip archive");
    }
    for (size_t at = 0; at < sizeof bytes; at++) {
        memcpy(bytes, npz_deflated, sizeof bytes);
        bytes[at] ^= 0x55;
        t_put(dir, "set.npz", bytes, sizeof bytes);
        tutti_status st = tutti_dataset_open(&desc, &ds);
        if (st == TUTTI_OK) tutti_dataset_destroy(ds);
        n_failed += st != TUTTI_OK;
    }
    assert_true(n_failed > sizeof bytes / 3);
    t_clear_dir(dir);
}

/* Changes each bit of an archive: it is refused, or the bit had no meaning (a date) and the rows
 * are as before. */
static void flip_bits(const uint8_t *good, size_t n_bytes) {
    const char *dir = t_make_dir();
    tutti_dataset_desc desc = {.format = "npy", .dir = dir, .val_fraction = 0.25};
    tutti_dataset *ds;
    uint8_t *bytes = malloc(n_bytes);
    size_t n_accepted = 0;
    for (size_t at = 0; at < n_bytes; at++) {
        memcpy(bytes, good, n_bytes);
        bytes[at] ^= (uint8_t)(1 << at % 8);
        t_put(dir, "set.npz", bytes, n_bytes);
        if (tutti_dataset_open(&desc, &ds) != TUTTI_OK) continue;
        double sum = 0;
        check_rows(ds, 9, &sum);
        tutti_dataset_destroy(ds);
        n_accepted++;
    }
    assert_in_range(n_accepted, 1, 100);
    free(bytes);
    t_clear_dir(dir);
}

T_CASE(every_bit_of_an_archive) {
    T_UNUSED;
    flip_bits(npz_stored, sizeof npz_stored);
    flip_bits(npz_deflated, sizeof npz_deflated);
}

T_CASE(names_in_any_case) {
    T_UNUSED;
    static const char *const pairs[][4] = {
        {"X_train.npy", "y_train.npy", "X_Test.npy", "y_Test.npy"},
        {"TRAIN_X.npy", "TRAIN_Y.npy", "dev_x.npy", "dev_y.npy"},
        {"x_training.npy", "Y_Training.npy", "x_validation.npy", "y_validation.npy"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const char *dir = t_make_dir();
        tutti_dataset_desc desc = {.format = "npy", .dir = dir};
        tutti_dataset *ds;
        for (int k = 0; k < 4; k++)
            put_npy(dir, pairs[i][k], "|u1", k < 2 ? "(2,)" : "(1,)", "\0\1", k < 2 ? 2 : 1);
        for (int split = 0; split < 2; split++) {
            desc.split = (tutti_data_split)split;
            T_OK(tutti_dataset_open(&desc, &ds));
            T_EQ(tutti_dataset_get_info(ds)->n_samples, split ? 1 : 2);
            tutti_dataset_destroy(ds);
        }
        put_npy(dir, "x_Train.npy", "|u1", "(2,)", "\0\1", 2);
        desc.split = TUTTI_TRAIN;
        if (i == 0) T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "two files are called");
        t_put_text(dir, "more.npz", "");
        T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "has archives (.npz) and arrays (");
        t_clear_dir(dir);
    }
}

/* One wrong label makes no million outputs. */
T_CASE(labels_far_from_the_others) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_dataset_desc desc = {.format = "npy", .dir = dir};
    tutti_dataset *ds;
    put_npy(dir, "x_train.npy", "|u1", "(2,)", "\0\1", 2);
    put_npy(dir, "y_train.npy", "<i4", "(2,)", "\1\0\0\0\0\0\x10\0", 8);
    put_npy(dir, "x_test.npy", "|u1", "(1,)", "\0", 1);
    put_npy(dir, "y_test.npy", "<i4", "(1,)", "\0\0\0\0", 4);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "y_train.npy: label 1048576 of row 1 would make 1048577 classes of 2 labels; if it is "
            "right, give data.classes=1048577");
    desc.n_classes = 1048577;
    T_OK(tutti_dataset_open(&desc, &ds));
    tutti_dataset_destroy(ds);
    desc.n_classes = 0;
    put_npy(dir, "y_train.npy", "<i4", "(2,)", "\1\0\0\0\xFF\xFF\xFF\xFF", 8);
    desc.n_classes = 2;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "y_train.npy: label -1 of row 1 is negative");
    desc.n_classes = 0; /* then they are the classes */
    float x;
    int32_t y;
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 2);
    assert_string_equal(tutti_dataset_class_name(ds, 0), "-1");
    assert_string_equal(tutti_dataset_class_name(ds, 1), "1");
    T_OK(tutti_dataset_get(ds, 0, &x, &y));
    T_EQ(y, 1);
    T_OK(tutti_dataset_get(ds, 1, &x, &y));
    T_EQ(y, 0);
    tutti_dataset_destroy(ds);
    put_npy(dir, "y_train.npy", "<i4", "(2,)", "\1\0\0\0\xFF\3\0\0", 8);
    T_OK(tutti_dataset_open(&desc, &ds)); /* 1024 classes are nothing unusual */
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 1024);
    tutti_dataset_destroy(ds);
    t_clear_dir(dir);
}

T_CASE(arrays_in_a_folder) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_dataset_desc desc = {.format = "npy", .dir = dir, .mean = 0.5, .std = 0.5};
    tutti_dataset *ds;
    float x[4];
    int32_t y[2], tokens[4];
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "no arrays were found");
    put_npy(dir, "x_train.npy", "|u1", "(2, 1, 2, 2)", "\0\xFF\0\0\xFF\xFF\0\0", 8);
    put_npy(dir, "y_train.npy", "<i8", "(2,)", "\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
    put_npy(dir, "x_test.npy", "|u1", "(1, 1, 2, 2)", "\1\2\3\4", 4);
    put_npy(dir, "y_test.npy", "|u1", "(1,)", "\2", 1);
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->x.shape.n_dims, 3);
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 2);
    T_OK(tutti_dataset_get(ds, 0, x, y));
    assert_true(x[0] == -1 && x[1] == 1);
    T_EQ(y[0], 1);
    tutti_dataset_destroy(ds);
    desc.split = TUTTI_TEST;
    desc.n_classes = 2;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "y_test.npy: label 2 of row 0 is out of range, 0 .. 1");
    put_npy(dir, "y_test.npy", "<f4", "(1,)", "\0\0\0\0", 4);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "labels are floats");
    put_npy(dir, "y_test.npy", "|u1", "(3,)", "\0\0\0", 3);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "3 labels for the 1 samples of");
    /* Whole numbers are tokens, and each may have its own label. */
    put_npy(dir, "x_test.npy", "<u2", "(1, 2)", "\1\0\2\0", 4);
    put_npy(dir, "y_test.npy", "<u2", "(1, 2)", "\1\0\0\0", 4);
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->x.dtype, TUTTI_I32);
    T_EQ(tutti_dataset_get_info(ds)->n_tokens, 3);
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 2);
    T_OK(tutti_dataset_get(ds, 0, tokens, y));
    T_EQ(tokens[1], 2);
    T_EQ(y[0], 1);
    tutti_dataset_destroy(ds);
    /* Targets that are tokens have as many classes as there are tokens; labels do not. */
    desc.n_classes = 0;
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 3);
    tutti_dataset_destroy(ds);
    put_npy(dir, "y_test.npy", "<u2", "(1,)", "\1\0", 2);
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 2);
    tutti_dataset_destroy(ds);
    put_npy(dir, "x_test.npy", "<i2", "(1, 2)", "\1\0\xFE\xFF", 4);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "x_test.npy: -2 of row 0 is not a token");
    t_clear_dir(dir);
}

/* Writes targets of n values each, as floats or as whole numbers. */
static void put_y(const char *dir, const char *name, const char *shape, const double *y, size_t n) {
    put_npy(dir, name, "<f8", shape, y, n * sizeof *y);
}

T_CASE(values_to_predict) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_dataset_desc desc = {.format = "npy", .dir = dir, .target = "auto"};
    tutti_dataset *ds, *test;
    float x;
    int32_t y[2];
    static const float xs[4] = {1, 2, 3, 4};
    put_npy(dir, "x_train.npy", "<f4", "(4, 1)", xs, sizeof xs);
    put_npy(dir, "x_test.npy", "<f4", "(2, 1)", xs, 2 * sizeof *xs);
    put_y(dir, "y_test.npy", "(2, 2)", (double[]){1e12 + 4, -3e-9, 0, 1e-9}, 4);
    /* Values that are equal in f32, and small ones. */
    put_y(dir, "y_train.npy", "(4, 2)",
          (double[]){1e12, 1e-9, 1e12 + 2, 3e-9, 1e12, 1e-9, 1e12 + 2, 3e-9}, 8);
    T_OK(tutti_dataset_open(&desc, &ds));
    const tutti_dataset_info *info = tutti_dataset_get_info(ds);
    assert_true(info->is_value && info->n_classes == 2 && info->y.shape.dim[0] == 2);
    assert_true(tti_dataset_spec(ds)->target.mean[0] == 1e12 + 1 &&
                tti_dataset_spec(ds)->target.std[0] == 1);
    T_NEAR(tti_dataset_spec(ds)->target.mean[1] * 1e9, 2, 1e-12);
    T_NEAR(tti_dataset_spec(ds)->target.std[1] * 1e9, 1, 1e-12);
    T_OK(tutti_dataset_get(ds, 1, &x, y));
    assert_true(x == 2 && tti_target_decode(y[0]) == 1 && tti_target_decode(y[1]) == 1);
    /* The test split is standardized by the training rows, with their specification or without. */
    desc.split = TUTTI_TEST;
    for (int i = 0; i < 2; i++) {
        desc.spec = i ? tti_dataset_spec(ds) : NULL;
        T_FAILS(tutti_dataset_open(&desc, &test), TUTTI_E_DATA,
                "y_test.npy: row 1 has a label that is not a finite number, or farther than 500");
        desc.skip_bad = true;
        T_OK(tutti_dataset_open(&desc, &test));
        T_OK(tutti_dataset_get(test, 0, &x, y));
        assert_true(tti_target_decode(y[0]) == 3 && tti_target_decode(y[1]) == -5);
        tutti_dataset_destroy(test);
        desc.skip_bad = false;
    }
    put_y(dir, "y_test.npy", "(2,)", (double[]){1, 2}, 2);
    T_FAILS(tutti_dataset_open(&desc, &test), TUTTI_E_DATA,
            "1 values for each sample, and the model predicts 2");
    tutti_dataset_destroy(ds);
    t_clear_dir(dir);
}

T_CASE(odd_values) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_dataset_desc desc = {.format = "npy", .dir = dir, .target = "value"};
    tutti_dataset *ds;
    float x;
    int32_t y;
    static const float xs[3] = {1, 2, 3};
    put_npy(dir, "x_train.npy", "<f4", "(3, 1)", xs, sizeof xs);
    put_npy(dir, "x_test.npy", "<f4", "(1, 1)", xs, sizeof *xs);
    put_npy(dir, "y_test.npy", "|b1", "(1,)", "\1", 1);
    /* A column is one value; so are booleans and whole numbers, if they are asked for. */
    put_npy(dir, "y_train.npy", "|b1", "(3, 1)", "\0\1\1", 3);
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->y.shape.n_dims, 0);
    T_NEAR(tti_dataset_spec(ds)->target.mean[0], 2.0 / 3, 1e-15);
    tutti_dataset_destroy(ds);
    desc.target = "auto"; /* then they are classes */
    put_npy(dir, "y_train.npy", "|b1", "(3,)", "\0\1\1", 3);
    T_OK(tutti_dataset_open(&desc, &ds));
    assert_true(!tutti_dataset_get_info(ds)->is_value);
    tutti_dataset_destroy(ds);
    put_y(dir, "y_train.npy", "(3,)", (double[]){0.1, 0.1, 0.1}, 3);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "target 0 has only one value");
    put_y(dir, "y_train.npy", "(3,)", (double[]){0, NAN, 2}, 3);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "y_train.npy: row 1 has a label that is");
    desc.skip_bad = true;
    T_OK(tutti_dataset_open(&desc, &ds));
    assert_true(tti_dataset_spec(ds)->target.mean[0] == 1 &&
                tti_dataset_spec(ds)->target.std[0] == 1);
    T_OK(tutti_dataset_get(ds, 1, &x, &y));
    T_EQ(y, -1);
    tutti_dataset_destroy(ds);
    put_y(dir, "y_train.npy", "(3,)", (double[]){INFINITY, NAN, NAN}, 3);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "no training row has finite values");
    desc.n_classes = 2;
    put_y(dir, "y_train.npy", "(3,)", (double[]){1, 2, 3}, 3);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_INVALID, "data.classes: the targets of this");
    t_clear_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type),         cmocka_unit_test(bad_arrays),
        cmocka_unit_test(archives_of_numpy),  cmocka_unit_test(damaged_archives),
        cmocka_unit_test(arrays_in_a_folder), cmocka_unit_test(every_bit_of_an_archive),
        cmocka_unit_test(names_in_any_case),  cmocka_unit_test(labels_far_from_the_others),
        cmocka_unit_test(values_to_predict),  cmocka_unit_test(odd_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
