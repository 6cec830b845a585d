/* tar_test.c - shards as a data set: the same samples as from a folder, splits, bad images; and
 * packing (packed.c): what was packed reads back to the same pixels. */
#include <sys/stat.h>

#include "base/error.h"
#include "data/dataset.h"
#include "data/image_files.h"
#include "data/root_folder.h"
#include "data/tar_files.h"
#include "t.h"

enum { SIDE = 32, ELEMS = 3 * SIDE * SIDE };

static t_tar tar;

/* n samples with labels i % 3, also as files of a folder if asked. */
static void write_shard(const char *name, int first, int n, bool bad) {
    tar.n = 0;
    for (int i = first; i < first + n; i++) {
        char member[64], label[16];
        uint8_t *bytes;
        size_t n_bytes =
            t_jpeg(&(t_jpeg_kind){.h = 40 + i, .w = 55, .quality = 80, .phase = i, .h_sampling = 2},
                   &bytes);
        snprintf(member, sizeof member, "%04d.jpg", i);
        t_tar_add(&tar, member, '0', bytes, bad && i == first ? 100 : n_bytes);
        snprintf(member, sizeof member, "%04d.cls", i);
        snprintf(label, sizeof label, "%d", i % 3);
        t_tar_add(&tar, member, '0', label, strlen(label));
        free(bytes);
    }
    t_tar_end(&tar);
    t_write(below_root(name), tar.bytes, tar.n);
}

static tutti_dataset *open_set(const char *format, const char *dir, tutti_data_split split) {
    tutti_dataset *ds;
    T_OK(tutti_dataset_open(&(tutti_dataset_desc){.format = format,
                                                  .dir = dir,
                                                  .split = split,
                                                  .image_size = SIDE,
                                                  .augment = "none",
                                                  .val_fraction = 0.4},
                            &ds));
    return ds;
}

static int64_t count(const char *dir, tutti_data_split split) {
    tutti_dataset *ds = open_set("tar", dir, split);
    int64_t n = tutti_dataset_get_info(ds)->n_samples;
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 3);
    tutti_dataset_destroy(ds);
    return n;
}

T_CASE(by_names_and_by_hash) {
    T_UNUSED;
    char pattern[512];
    write_shard("s-00.tar", 0, 6, false);
    write_shard("s-01.tar", 6, 4, false);
    int64_t n_train = count(root, TUTTI_TRAIN);
    T_EQ(n_train + count(root, TUTTI_TEST), 10);
    assert_in_range(n_train, 2, 9);
    snprintf(pattern, sizeof pattern, "%s/s-{00..01}.tar", root);
    T_EQ(count(pattern, TUTTI_TRAIN), n_train);
    write_shard("train-0.tar", 0, 5, false);
    write_shard("val-0.tar", 0, 3, false);
    assert_int_equal(unlink(below_root("s-00.tar")), 0);
    assert_int_equal(unlink(below_root("s-01.tar")), 0);
    T_EQ(count(root, TUTTI_TRAIN), 5);
    T_EQ(count(root, TUTTI_TEST), 3);
}

T_CASE(same_as_from_a_folder) {
    T_UNUSED;
    static float a[ELEMS], b[ELEMS];
    int32_t label, other;
    write_shard("train-0.tar", 0, 3, false);
    write_shard("train-1.tar", 3, 3, false);
    write_shard("val-0.tar", 0, 1, false);
    for (int c = 0; c < 3; c++) {
        char name[64];
        snprintf(name, sizeof name, "%d", c);
        assert_int_equal(mkdir(below_root(name), 0777), 0);
        for (int i = c; i < 6; i += 3) {
            snprintf(name, sizeof name, "%d/%04d.jpg", c, i);
            uint8_t *bytes;
            size_t n = t_jpeg(
                &(t_jpeg_kind){.h = 40 + i, .w = 55, .quality = 80, .phase = i, .h_sampling = 2},
                &bytes);
            t_write(below_root(name), bytes, n);
            free(bytes);
        }
    }
    tutti_dataset *shards = open_set("tar", root, TUTTI_TRAIN), *files;
    T_OK(tutti_dataset_open(&(tutti_dataset_desc){.format = "images",
                                                  .dir = root,
                                                  .image_size = SIDE,
                                                  .augment = "none",
                                                  .val_fraction = 1e-9},
                            &files));
    T_EQ(tutti_dataset_get_info(files)->n_samples, 6);
    T_EQ(tutti_dataset_get_info(shards)->n_samples, 6);
    for (int i = 0; i < 6; i++) {
        T_OK(tutti_dataset_get(shards, i, a, &label));
        T_EQ(label, i % 3);
        T_OK(tutti_dataset_get(files, i % 3 * 2 + i / 3, b, &other));
        T_EQ(other, label);
        assert_memory_equal(a, b, sizeof a);
    }
    tutti_dataset_destroy(files);
    tutti_dataset_destroy(shards);
}

T_CASE(names_with_braces_decide_the_split_too) {
    T_UNUSED;
    char pattern[512];
    write_shard("train-0.tar", 0, 5, false);
    write_shard("train-1.tar", 5, 4, false);
    write_shard("val-0.tar", 0, 3, false);
    snprintf(pattern, sizeof pattern, "%s/{train-{0..1},val-0}.tar", root);
    tutti_dataset *ds;
    T_FAILS(tutti_dataset_open(&(tutti_dataset_desc){.format = "tar", .dir = pattern}, &ds),
            TUTTI_E_INVALID, "nested");
    snprintf(pattern, sizeof pattern, "%s/{train-0,train-1,val-0}.tar", root);
    for (int test = 0; test < 2; test++) {
        ds = open_set("tar", pattern, test ? TUTTI_TEST : TUTTI_TRAIN);
        T_EQ(tutti_dataset_get_info(ds)->n_samples, test ? 3 : 9);
        tutti_dataset_destroy(ds);
    }
    snprintf(pattern, sizeof pattern, "%s/train-{0..1}.tar", root); /* none says test: of all */
    int64_t n = 0;
    for (int test = 0; test < 2; test++) {
        ds = open_set("tar", pattern, test ? TUTTI_TEST : TUTTI_TRAIN);
        n += tutti_dataset_get_info(ds)->n_samples;
        tutti_dataset_destroy(ds);
    }
    T_EQ(n, 9);
}

T_CASE(bad_archives_and_images) {
    T_UNUSED;
    char pattern[512];
    static float x[ELEMS];
    int32_t y;
    tutti_dataset *ds;
    tutti_dataset_desc desc = {.format = "tar", .dir = root, .image_size = SIDE};
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "no file was found");
    write_shard("train-0.tar", 0, 3, true);
    write_shard("val-0.tar", 0, 3, false);
    ds = open_set("tar", root, TUTTI_TRAIN);
    T_FAILS(tutti_dataset_get(ds, 0, x, &y), TUTTI_E_DATA, "train-0.tar: member '0000.jpg'");
    tutti_dataset_destroy(ds);
    desc.n_classes = 2;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "train-0.tar: member '0002.jpg': label 2 of row 2 is out of range, 0 .. 1");
    desc.n_classes = 0;
    snprintf(pattern, sizeof pattern, "%s/s-{0..1.tar", root);
    desc.dir = pattern;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_INVALID, "braces: ");
    snprintf(pattern, sizeof pattern, "%s/s-{0..1}.tar", root);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "s-0.tar: cannot open");
    desc.dir = root;
    assert_int_equal(truncate(below_root("train-0.tar"), 2000), 0);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "truncated");
}

/* Evaluation of the packed set sees the pixels of evaluation without packing. */
T_CASE(packed_as_unpacked) {
    T_UNUSED;
    static float a[ELEMS], b[ELEMS];
    char packed[512], *report = NULL;
    int32_t label, other;
    write_shard("train-0.tar", 0, 5, false);
    write_shard("val-0.tar", 0, 3, false);
    snprintf(packed, sizeof packed, "%s/packed", root);
    tutti_dataset_desc source = {.format = "tar", .dir = root, .image_size = 28};
    T_OK(tutti_dataset_pack(&source, &(tutti_pack_desc){.dir = packed}, &report));
    assert_non_null(strstr(report, "train.pack: 5 images of 32 x 32, 3 classes, 0 skipped"));
    free(report);
    tutti_dataset *ds, *direct;
    tutti_dataset_desc desc = {
        .format = "packed", .dir = packed, .split = TUTTI_TEST, .image_size = 28};
    T_OK(tutti_dataset_open(&desc, &ds));
    source.split = TUTTI_TEST;
    T_OK(tutti_dataset_open(&source, &direct));
    T_EQ(tutti_dataset_get_info(ds)->n_samples, 3);
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 3);
    for (int i = 0; i < 3; i++) {
        T_OK(tutti_dataset_get(ds, i, a, &label));
        T_OK(tutti_dataset_get(direct, i, b, &other));
        T_EQ(label, other);
        assert_memory_equal(a, b, 3 * 28 * 28 * sizeof(float));
    }
    tutti_dataset_destroy(ds);
    tutti_dataset_destroy(direct);
    desc.image_size = 0;
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_shape_n_elems(&tutti_dataset_get_info(ds)->x.shape), ELEMS);
    tutti_dataset_destroy(ds);
}

/* Makes train.pack with 3 samples and val.pack with one. */
static void pack_three(void) {
    char *report = NULL;
    write_shard("train-0.tar", 0, 3, false);
    write_shard("val-0.tar", 0, 1, false);
    T_OK(tutti_dataset_pack(&(tutti_dataset_desc){.format = "tar", .dir = root, .image_size = 28},
                            &(tutti_pack_desc){.dir = root}, &report));
    free(report);
}

T_CASE(bad_packed_files) {
    T_UNUSED;
    static float x[ELEMS];
    int32_t y;
    pack_three();
    tutti_dataset *ds;
    tutti_dataset_desc desc = {.format = "packed", .dir = root, .n_samples = 4};
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "4 samples are requested, the file has 3");
    desc.n_samples = 0, desc.n_classes = 4;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "3 classes, 4 are expected");
    desc.n_classes = 0;
    FILE *f = fopen(below_root("train.pack"), "r+b");
    assert_int_equal(fseek(f, 32 * 32 * 3 + 3, SEEK_SET), 0);
    assert_int_equal(fputc(0x7F, f), 0x7F); /* the label of sample 0 */
    fclose(f);
    T_OK(tutti_dataset_open(&desc, &ds));
    T_FAILS(tutti_dataset_get(ds, 0, x, &y), TUTTI_E_DATA,
            "train.pack: damaged: the checksum of sample 0 is wrong");
    T_OK(tutti_dataset_get(ds, 1, x, &y));
    tutti_dataset_destroy(ds);
    f = fopen(below_root("train.pack"), "r+b");
    assert_int_equal(fseek(f, -64 + 12, SEEK_END), 0);
    assert_int_equal(fputc(25, f), 25); /* the side */
    fclose(f);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "the checksum at its end is wrong");
    assert_int_equal(truncate(below_root("train.pack"), 3000), 0);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "train.pack: truncated, or not a file of packed");
    assert_int_equal(truncate(below_root("train.pack"), 10), 0);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "train.pack: truncated");
    assert_int_equal(unlink(below_root("train.pack")), 0);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "train.pack: cannot open");
    desc.dir = NULL;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_INVALID, "data.dir is missing");
}

/* Every 97th bit of the records, and every bit of what stands at the end. */
T_CASE(every_bit_of_a_packed_file) {
    T_UNUSED;
    static float x[ELEMS];
    enum { RECORD = 32 * 32 * 3 + 8, N = 3 * RECORD + 64 };
    static uint8_t good[N], bad[N];
    int32_t y;
    pack_three();
    FILE *f = fopen(below_root("train.pack"), "rb");
    T_EQ(fread(good, 1, N, f), N);
    T_EQ(fgetc(f), EOF);
    fclose(f);
    const tutti_dataset_desc desc = {.format = "packed", .dir = root};
    for (size_t bit = 0; bit < 8 * N; bit += bit < 8 * (N - 64) ? 97 : 1) {
        memcpy(bad, good, N);
        bad[bit / 8] ^= (uint8_t)(1 << bit % 8);
        t_write(below_root("train.pack"), bad, N);
        tutti_dataset *ds;
        int n_refused = 1;
        if (tutti_dataset_open(&desc, &ds) == TUTTI_OK) {
            for (int i = n_refused = 0; i < 3; i++)
                n_refused += tutti_dataset_get(ds, i, x, &y) == TUTTI_E_DATA;
            tutti_dataset_destroy(ds);
        }
        T_EQ(n_refused, 1);
    }
    memcpy(bad, good + RECORD, RECORD); /* records in each other's places */
    memcpy(bad + RECORD, good, RECORD);
    memcpy(bad + 2 * RECORD, good + 2 * RECORD, RECORD + 64);
    t_write(below_root("train.pack"), bad, N);
    tutti_dataset *ds;
    T_OK(tutti_dataset_open(&desc, &ds));
    T_FAILS(tutti_dataset_get(ds, 0, x, &y), TUTTI_E_DATA, "checksum of sample 0");
    T_OK(tutti_dataset_get(ds, 2, x, &y));
    tutti_dataset_destroy(ds);
    memcpy(bad, good, N);
    bad[N - 64 + 8] = 1; /* version */
    t_write(below_root("train.pack"), bad, N);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "pack it again with tutti data pack");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(by_names_and_by_hash),
        IN_FOLDER(same_as_from_a_folder),
        IN_FOLDER(names_with_braces_decide_the_split_too),
        IN_FOLDER(bad_archives_and_images),
        IN_FOLDER(packed_as_unpacked),
        IN_FOLDER(bad_packed_files),
        IN_FOLDER(every_bit_of_a_packed_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
