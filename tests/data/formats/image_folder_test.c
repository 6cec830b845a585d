/* image_folder_test.c - folders of classes: numbering, splits, damaged files and policies; and what
 * every format of images shares (image_set.c): the same batches for any workers and threads. */
#include <sys/stat.h>

#include "base/error.h"
#include "base/fault.h"
#include "data/dataset.h"
#include "data/image/image_set.h"
#include "data/image_files.h"
#include "data/loader/loader.h"
#include "data/root_folder.h"
#include "t.h"

static void make_folder(const char *below) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", root, below);
    assert_int_equal(mkdir(path, 0777), 0);
}

static void add_jpeg(const char *below, int h, int w, int phase) {
    t_write_jpeg(below_root(below), h, w, phase);
}

static void add_png(const char *below, int h, int w) {
    uint8_t bytes[20000];
    size_t n = t_png(h, w, false, false, bytes, sizeof bytes);
    t_write(below_root(below), bytes, n);
}

/* cat: 3 images, one of them deep; dog: 2; train and val. */
static void make_train_and_val(void) {
    make_folder("train"), make_folder("val");
    make_folder("train/dog"), make_folder("train/cat"), make_folder("train/cat/deep");
    make_folder("val/dog");
    add_jpeg("train/cat/b.jpg", 40, 60, 1);
    add_jpeg("train/cat/a.JPEG", 60, 40, 2);
    add_png("train/cat/deep/z.png", 20, 31);
    add_jpeg("train/dog/2.jpg", 33, 33, 3);
    add_jpeg("train/dog/1.jpg", 50, 34, 4);
    add_jpeg("val/dog/0.jpg", 50, 34, 5);
    t_write(below_root("train/cat/notes.txt"), "x", 1);
    t_write(below_root("train/readme"), "x", 1);
    t_write(below_root("train/cat/.hidden.jpg"), "x", 1);
}

static tutti_dataset_desc describe(tutti_data_split split) {
    return (tutti_dataset_desc){
        .format = "images", .dir = root, .split = split, .image_size = 24, .augment = "none"};
}

T_CASE(classes_and_samples) {
    T_UNUSED;
    make_train_and_val();
    tutti_dataset *ds;
    tutti_dataset_desc desc = describe(TUTTI_TRAIN);
    T_OK(tutti_dataset_open(&desc, &ds));
    const tutti_dataset_info *info = tutti_dataset_get_info(ds);
    T_EQ(info->n_samples, 5);
    T_EQ(info->n_classes, 2);
    T_EQ(info->x.dtype, TUTTI_F32);
    T_EQ(tutti_shape_n_elems(&info->x.shape), 3 * 24 * 24);
    assert_string_equal(tutti_dataset_class_name(ds, 0), "cat");
    assert_string_equal(tutti_dataset_class_name(ds, 1), "dog");
    assert_null(tutti_dataset_class_name(ds, 2));
    static float x[3 * 24 * 24], other[3 * 24 * 24];
    int32_t y;
    const int wanted[] = {0, 0, 0, 1, 1};
    for (int i = 0; i < 5; i++) {
        T_OK(tutti_dataset_get(ds, i, x, &y));
        T_EQ(y, wanted[i]);
        for (int k = 0; k < 3 * 24 * 24; k++) assert_true(x[k] > -3 && x[k] < 3);
    }
    T_OK(tutti_dataset_get(ds, 3, other, &y));
    assert_memory_not_equal(x, other, sizeof x);
    tutti_dataset_destroy(ds);
    desc = describe(TUTTI_TEST);
    desc.n_classes = 2;
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_samples, 1);
    T_OK(tutti_dataset_get(ds, 0, x, &y));
    T_EQ(y, 1); /* dog is the second class of train/, the only one of val/ */
    tutti_dataset_destroy(ds);
}

/* The sample is what the parts give: head, decode, resize of the shorter side, middle, floats. */
T_CASE(evaluation_takes_the_middle) {
    T_UNUSED;
    make_train_and_val();
    tutti_dataset *ds;
    tutti_dataset_desc desc = describe(TUTTI_TEST);
    desc.image_size = 7; /* 8/7 of it: 8; 50 x 34 becomes 11 x 8, the middle is at (2, 0) */
    desc.channel_mean = "0,0,0", desc.channel_std = "1,1,1";
    T_OK(tutti_dataset_open(&desc, &ds));
    float x[3 * 7 * 7];
    int32_t y;
    T_OK(tutti_dataset_get(ds, 0, x, &y));
    tutti_dataset_destroy(ds);
    tti_workspace ws = {0}, ws_resize = {0};
    T_OK(tti_fetch_bytes(below_root("val/dog/0.jpg"), 0, 0, &ws));
    tti_blob blob = {ws.file.bytes, ws.file.n_bytes, "test", 0};
    tti_image_head head;
    tti_image image;
    uint8_t all[11 * 8 * 3];
    T_OK(tti_image_read_head(&blob, &head));
    T_OK(tti_image_decode(&blob, &head, &(tti_box){0, 0, 50, 34}, &ws, &image));
    tti_resize how = {{0, 0, 50, 34}, 11, 8, {0, 0, 11, 8}, false};
    T_OK(tti_image_resize(&image, &how, &ws_resize, all));
    for (int i = 0; i < 3 * 7 * 7; i++) {
        int c = i / 49, row = i / 7 % 7, column = i % 7;
        T_NEAR(x[i], all[((row + 2) * 8 + column) * 3 + c] / 255.0, 1e-6);
    }
    tti_workspace_free(&ws);
    tti_workspace_free(&ws_resize);
}

T_CASE(split_by_hash) {
    T_UNUSED;
    make_folder("a"), make_folder("b");
    for (int i = 0; i < 30; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s/%d.png", i % 2 ? "a" : "b", i);
        add_png(name, 5 + i, 6);
    }
    int64_t n[2];
    for (int split = 0; split < 2; split++) {
        tutti_dataset *ds;
        tutti_dataset_desc desc = describe((tutti_data_split)split);
        desc.val_fraction = 0.3;
        T_OK(tutti_dataset_open(&desc, &ds));
        n[split] = tutti_dataset_get_info(ds)->n_samples;
        T_EQ(tutti_dataset_get_info(ds)->n_classes, 2);
        tutti_dataset_destroy(ds);
    }
    T_EQ(n[0] + n[1], 30);
    assert_in_range(n[1], 3, 15);
}

T_CASE(fewer_samples_are_of_all_classes) {
    T_UNUSED;
    make_train_and_val();
    tutti_dataset *ds;
    tutti_dataset_desc desc = describe(TUTTI_TRAIN);
    desc.n_samples = 2;
    T_OK(tutti_dataset_open(&desc, &ds));
    static float x[3 * 24 * 24];
    int32_t y;
    T_OK(tutti_dataset_get(ds, 0, x, &y));
    T_EQ(y, 0);
    T_OK(tutti_dataset_get(ds, 1, x, &y));
    tutti_dataset_destroy(ds);
    desc.n_samples = 6;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "6 samples are requested, there are 5");
}

T_CASE(bad_folders) {
    T_UNUSED;
    tutti_dataset *ds;
    tutti_dataset_desc desc = describe(TUTTI_TRAIN);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "needs one folder per class");
    desc.dir = "/nonexistent";
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "/nonexistent: cannot open the folder");
    desc.dir = "";
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_INVALID, "data.dir is missing");
    desc.dir = root;
    make_train_and_val();
    make_folder("train/empty");
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "train/empty: the class folder holds no .jpg, .jpeg or .png");
    assert_int_equal(rmdir(below_root("train/empty")), 0);
    make_folder("val/owl");
    add_png("val/owl/0.png", 3, 3);
    desc.split = TUTTI_TEST;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "val/owl: there is no such class in the training data");
    desc.split = TUTTI_TRAIN;
    desc.n_classes = 3;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "2 classes, 3 are expected");
    desc.n_classes = 0;
    desc.augment = "spin";
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_INVALID, "unknown step 'spin'");
    desc.augment = "none", desc.image_size = 5000;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_INVALID, "data.image_size: expected 1 .. 4096");
    desc.image_size = 24, desc.channel_std = "1,0,1";
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_INVALID, "std > 0");
}

T_CASE(bad_names) {
    T_UNUSED;
    tutti_dataset *ds;
    make_train_and_val();
    tutti_dataset_desc desc = describe(TUTTI_TRAIN);
    t_write(below_root("train/dog/caf\xE9.jpg"), "x", 1);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "is not printable UTF-8");
    assert_int_equal(unlink(below_root("train/dog/caf\xE9.jpg")), 0);
    t_write(below_root("train/dog/a\nb.jpg"), "x", 1);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "is not printable UTF-8");
}

static void link_to(const char *target, const char *below) {
    assert_int_equal(symlink(target, below_root(below)), 0);
}

/* The cache of Hugging Face: blobs without endings, and links with the names. */
T_CASE(links_are_followed) {
    T_UNUSED;
    tutti_dataset *ds;
    make_train_and_val();
    make_folder("blobs"), make_folder("elsewhere"), make_folder("elsewhere/emus");
    add_jpeg("blobs/0123", 30, 30, 1);
    add_jpeg("elsewhere/emus/1.jpg", 30, 30, 1);
    link_to("../../blobs/0123", "train/cat/link.jpg");
    link_to("../elsewhere/emus", "train/emu");
    tutti_dataset_desc desc = describe(TUTTI_TRAIN);
    desc.dir = below_root("train");
    T_OK(tutti_dataset_open(&desc, &ds));
    int64_t counts[3];
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 3);
    tutti_dataset_destroy(ds);
    char dir[512];
    snprintf(dir, sizeof dir, "%s", below_root("mirror"));
    assert_int_equal(symlink(root, dir), 0);
    desc.dir = dir;
    T_OK(tutti_dataset_open(&desc, &ds));
    T_OK(tutti_dataset_count_classes(ds, counts));
    T_EQ(counts[0], 4), T_EQ(counts[1], 2), T_EQ(counts[2], 1);
    static float x[3 * 24 * 24];
    int32_t y;
    for (int i = 0; i < 7; i++) T_OK(tutti_dataset_get(ds, i, x, &y));
    tutti_dataset_destroy(ds);
}

T_CASE(links_that_lead_nowhere) {
    T_UNUSED;
    tutti_dataset *ds;
    make_train_and_val();
    tutti_dataset_desc desc = describe(TUTTI_TRAIN);
    link_to("../../blobs/none", "train/cat/none.jpg");
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "train/cat/none.jpg: is a symbolic link to '../../blobs/none', which does not exist");
    desc.skip_bad = true;
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_samples, 5);
    tutti_dataset_destroy(ds);
    desc.skip_bad = false;
    assert_int_equal(unlink(below_root("train/cat/none.jpg")), 0);
    link_to("none", "train/emu");
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "train/emu: is a symbolic link to 'none'");
    assert_int_equal(unlink(below_root("train/emu")), 0);
    link_to("..", "train/cat/deep/up");
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "train/cat/deep/up: is a symbolic link to a folder above it, a loop");
    assert_int_equal(unlink(below_root("train/cat/deep/up")), 0);
    link_to("self", "train/self");
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "train/self: is part of a loop");
}

/* ---- what is there beside samples ---- */

T_CASE(hidden_and_system_files_are_no_data) {
    T_UNUSED;
    tutti_dataset *ds;
    make_folder("cat"), make_folder("dog");
    make_folder("__MACOSX"), make_folder(".ipynb_checkpoints"), make_folder("dog/.thumbs");
    add_jpeg("cat/1.jpg", 30, 30, 1), add_jpeg("dog/1.jpg", 30, 30, 1);
    add_jpeg("cat/2.jpg", 30, 30, 1), add_jpeg("dog/2.jpg", 30, 30, 1);
    t_write(below_root("cat/._1.jpg"), "x", 1);
    t_write(below_root("cat/Thumbs.db"), "x", 1);
    t_write(below_root(".DS_Store"), "x", 1);
    t_write(below_root("__MACOSX/._2.jpg"), "x", 1);
    tutti_dataset_desc desc = describe(TUTTI_TRAIN);
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 2);
    T_EQ(tutti_dataset_get_info(ds)->n_ignored, 6);
    tutti_dataset_destroy(ds);
    assert_int_equal(mkfifo(below_root("dog/3.jpg"), 0600), 0);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "dog/3.jpg: is not a regular file");
    assert_int_equal(unlink(below_root("dog/3.jpg")), 0);
    t_write(below_root("dog/3.webp"), "x", 1);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "dog/3.webp: only JPEG and PNG");
    desc.skip_bad = true;
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_ignored, 7);
    tutti_dataset_destroy(ds);
}

static void make_class(const char *split, const char *name) {
    char below[64];
    make_folder(split);
    snprintf(below, sizeof below, "%s/%s", split, name);
    make_folder(below);
    snprintf(below, sizeof below, "%s/%s/1.jpg", split, name);
    add_jpeg(below, 30, 30, 1);
}

T_CASE(folders_that_divide_the_set) {
    T_UNUSED;
    static const char *const pairs[][2] = {{"Training", "Testing"},
                                           {"TRAIN", "Val"},
                                           {"Train", "dev"},
                                           {"train", "Validation"},
                                           {"training", "TEST"}};
    char command[600];
    for (size_t i = 0; i < TTI_COUNT(pairs); i++) {
        make_class(pairs[i][0], "train"); /* below a split this is a class */
        make_class(pairs[i][1], "train");
        make_folder("notes");
        for (int split = 0; split < 2; split++) {
            tutti_dataset *ds;
            tutti_dataset_desc desc = describe((tutti_data_split)split);
            T_OK(tutti_dataset_open(&desc, &ds));
            T_EQ(tutti_dataset_get_info(ds)->n_classes, 1);
            T_EQ(tutti_dataset_get_info(ds)->n_samples, 1);
            T_EQ(tutti_dataset_get_info(ds)->n_ignored, 1); /* notes/ */
            assert_string_equal(tutti_dataset_class_name(ds, 0), "train");
            tutti_dataset_destroy(ds);
        }
        snprintf(command, sizeof command, "rm -rf '%s'/*", root);
        T_EQ(system(command), 0);
    }
}

/* A folder with the name of a split is never a class without a word. */
T_CASE(doubtful_folders) {
    T_UNUSED;
    tutti_dataset *ds;
    tutti_dataset_desc desc = describe(TUTTI_TRAIN);
    make_class("Testing", "cat");
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "there is no train/ next to it");
    make_class("Train", "cat");
    T_OK(tutti_dataset_open(&desc, &ds));
    tutti_dataset_destroy(ds);
    make_class("training", "cat");
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "are both for training; keep one");
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s/training'", root);
    T_EQ(system(command), 0);
    make_folder("owl");
    add_jpeg("owl/1.jpg", 30, 30, 1);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "'Train' divides the set, and 'owl' next to it has images of a class");
}

/* ---- damaged images ---- */

static void make_damaged(void) {
    make_train_and_val();
    t_write(below_root("train/cat/c.jpg"), "\xFF\xD8\xFF\xE0 no more", 12);
}

/* A disk that fails ends the run, also where damaged images are left out. */
T_CASE(a_file_that_cannot_be_read) {
    T_UNUSED;
    make_train_and_val();
    tutti_dataset *ds;
    tutti_dataset_desc desc = describe(TUTTI_TRAIN);
    desc.skip_bad = true;
    T_OK(tutti_dataset_open(&desc, &ds));
    static float x[3 * 24 * 24];
    int32_t y;
    T_OK(tti_fault_set("data.read:fail"));
    T_FAILS(tutti_dataset_get(ds, 0, x, &y), TUTTI_E_DATA,
            "train/cat/a.JPEG: cannot read: Input/output error");
    T_OK(tti_fault_set(NULL));
    T_EQ(tutti_dataset_n_skipped(ds), 0);
    T_OK(tutti_dataset_get(ds, 0, x, &y));
    tutti_dataset_destroy(ds);
}

T_CASE(stop_at_a_damaged_image) {
    T_UNUSED;
    make_damaged();
    tutti_dataset *ds;
    tutti_dataset_desc desc = describe(TUTTI_TRAIN);
    T_OK(tutti_dataset_open(&desc, &ds));
    static float x[3 * 24 * 24];
    int32_t y;
    T_FAILS(tutti_dataset_get(ds, 2, x, &y), TUTTI_E_DATA, "train/cat/c.jpg: damaged JPEG");
    T_EQ(tutti_dataset_n_skipped(ds), 0);
    tutti_dataset_destroy(ds);
}

T_CASE(skip_a_damaged_image) {
    T_UNUSED;
    make_damaged();
    tutti_dataset *ds;
    tutti_dataset_desc desc = describe(TUTTI_TRAIN);
    desc.skip_bad = true;
    T_OK(tutti_dataset_open(&desc, &ds));
    static float x[3 * 24 * 24];
    int32_t y = 7;
    for (int i = 0; i < 2; i++) T_OK(tutti_dataset_get(ds, 2, x, &y));
    T_EQ(y, -1);
    for (int i = 0; i < 3 * 24 * 24; i++) assert_true(x[i] == 0);
    T_EQ(tutti_dataset_n_skipped(ds), 1);
    assert_non_null(strstr(tutti_dataset_skip_reason(ds, 0), "train/cat/c.jpg: damaged JPEG"));
    assert_null(tutti_dataset_skip_reason(ds, 1));
    tti_loader *loader;
    tti_batch batch;
    T_OK(tti_loader_create(
        &(tti_loader_desc){
            .dataset = ds, .batch = 6, .n_shards = 1, .last_shard = 1, .sequential = true},
        &loader));
    T_OK(tti_loader_next(loader, &batch));
    const int wanted[] = {0, 0, -1, 0, 1, 1};
    for (int i = 0; i < 6; i++) T_EQ(tti_batch_y(&batch, 0)[i], wanted[i]);
    tti_loader_destroy(loader);
    tutti_dataset_destroy(ds);
}

/* ---- the same for any workers and threads ---- */

enum { BATCH = 4, SHARDS = 4, STEPS = 5 };

/* Hash of all shards of all steps, in order of steps and shards. */
static uint64_t load_all(const tutti_dataset *ds, int n_workers, int n_threads) {
    uint64_t hash[STEPS * SHARDS];
    for (int worker = 0; worker < n_workers; worker++) {
        int first = worker * SHARDS / n_workers, last = (worker + 1) * SHARDS / n_workers;
        tti_loader *loader;
        T_OK(tti_loader_create(&(tti_loader_desc){.dataset = ds,
                                                  .batch = BATCH,
                                                  .n_shards = SHARDS,
                                                  .first_shard = first,
                                                  .last_shard = last,
                                                  .seed = 11,
                                                  .n_threads = n_threads,
                                                  .n_prefetch = 2},
                               &loader));
        for (int step = 0; step < STEPS; step++) {
            tti_batch batch;
            T_OK(tti_loader_next(loader, &batch));
            for (int s = first; s < last; s++)
                hash[step * SHARDS + s] = t_hash(tti_batch_x(&batch, s - first), 3 * 24 * 24 * 4) ^
                                          (uint64_t)tti_batch_y(&batch, s - first)[0] << 7;
        }
        tti_loader_destroy(loader);
    }
    return t_hash(hash, sizeof hash);
}

T_CASE(same_for_workers_and_threads) {
    T_UNUSED;
    make_damaged();
    tutti_dataset *ds;
    tutti_dataset_desc desc = describe(TUTTI_TRAIN);
    desc.augment = "random_resized_crop, flip, colour_jitter, cutout=4";
    desc.skip_bad = true;
    T_OK(tutti_dataset_open(&desc, &ds));
    uint64_t one = load_all(ds, 1, 0);
    for (int n_workers = 1; n_workers <= 4; n_workers *= 2)
        for (int n_threads = 0; n_threads <= 3; n_threads++)
            assert_true(load_all(ds, n_workers, n_threads) == one);
    T_EQ(tutti_dataset_n_skipped(ds), 1);
    tutti_dataset_destroy(ds);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(classes_and_samples),
        IN_FOLDER(evaluation_takes_the_middle),
        IN_FOLDER(split_by_hash),
        IN_FOLDER(fewer_samples_are_of_all_classes),
        IN_FOLDER(bad_folders),
        IN_FOLDER(bad_names),
        IN_FOLDER(links_are_followed),
        IN_FOLDER(links_that_lead_nowhere),
        IN_FOLDER(hidden_and_system_files_are_no_data),
        IN_FOLDER(folders_that_divide_the_set),
        IN_FOLDER(doubtful_folders),
        IN_FOLDER(a_file_that_cannot_be_read),
        IN_FOLDER(stop_at_a_damaged_image),
        IN_FOLDER(skip_a_damaged_image),
        IN_FOLDER(same_for_workers_and_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
