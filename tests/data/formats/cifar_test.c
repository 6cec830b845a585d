/* cifar_test.c - the binary files of CIFAR-10 and CIFAR-100: planes, labels, bad files. */
#include <sys/stat.h>

#include "base/error.h"
#include "data/dataset.h"
#include "data/image_files.h"
#include "data/root_folder.h"
#include "t.h"

enum { PIXELS = 3 * 1024 };

/* n records: labels (first + i) % modulus, pixels from t_pixel of another row each. */
static void write_records(const char *name, int n, int n_labels, int first, int modulus) {
    char path[512];
    static uint8_t bytes[8 * (2 + PIXELS)];
    uint8_t *at = bytes;
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < n_labels; k++) *at++ = (uint8_t)((first + i) % modulus);
        for (int c = 0; c < 3; c++)
            for (int p = 0; p < 1024; p++) *at++ = t_pixel(p / 32 + first + i, p % 32, c);
    }
    t_write(path, bytes, (size_t)(at - bytes));
}

static void write_cifar10(void) {
    for (int i = 1; i <= 5; i++) {
        char name[64];
        snprintf(name, sizeof name, "data_batch_%d.bin", i);
        write_records(name, 2, 1, 2 * (i - 1), 10);
    }
    write_records("test_batch.bin", 3, 1, 5, 10);
}

T_CASE(cifar10) {
    T_UNUSED;
    write_cifar10();
    tutti_dataset *ds;
    tutti_dataset_desc desc = {.format = "cifar10",
                               .dir = root,
                               .augment = "none",
                               .channel_mean = "0,0,0",
                               .channel_std = "1,1,1"};
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_samples, 10);
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 10);
    assert_string_equal(tutti_dataset_class_name(ds, 3), "cat");
    static float x[PIXELS];
    int32_t y;
    for (int i = 0; i < 10; i++) {
        T_OK(tutti_dataset_get(ds, i, x, &y));
        T_EQ(y, i);
        for (int k = 0; k < PIXELS; k++)
            T_NEAR(x[k], t_pixel(k % 1024 / 32 + i, k % 32, k / 1024) / 255.0, 1e-6);
    }
    tutti_dataset_destroy(ds);
    desc.split = TUTTI_TEST;
    desc.n_classes = 10;
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_samples, 3);
    T_OK(tutti_dataset_get(ds, 2, x, &y));
    T_EQ(y, 7);
    tutti_dataset_destroy(ds);
}

/* The fine label, and other sizes on demand. */
T_CASE(cifar100) {
    T_UNUSED;
    write_records("train.bin", 4, 2, 96, 100);
    tutti_dataset *ds;
    tutti_dataset_desc desc = {.format = "cifar100", .dir = root, .image_size = 16, .n_samples = 3};
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_samples, 3);
    T_EQ(tutti_shape_n_elems(&tutti_dataset_get_info(ds)->x.shape), 3 * 256);
    float x[3 * 256];
    int32_t y;
    T_OK(tutti_dataset_get(ds, 1, x, &y));
    T_EQ(y, 97);
    tutti_dataset_destroy(ds);
}

T_CASE(bad_files) {
    T_UNUSED;
    char path[512];
    tutti_dataset *ds;
    tutti_dataset_desc desc = {.format = "cifar10", .dir = root};
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "neither data_batch_1.bin nor");
    write_cifar10();
    desc.n_samples = 11;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "11 samples are requested");
    desc.n_samples = 0, desc.n_classes = 9;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_INVALID, "there are 10 classes, not 9");
    desc.n_classes = 0;
    write_records("data_batch_3.bin", 2, 1, 9, 256);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "data_batch_3.bin: label 10 of record 1 is out of range, 0 .. 9");
    snprintf(path, sizeof path, "%s/data_batch_3.bin", root);
    assert_int_equal(truncate(path, 4000), 0);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "4000 bytes are not a multiple of the record size, 3073: truncated");
    assert_int_equal(truncate(path, 0), 0);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "data_batch_3.bin: 0 bytes");
    desc.dir = NULL;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_INVALID, "data.dir is missing");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(cifar10),
        IN_FOLDER(cifar100),
        IN_FOLDER(bad_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
