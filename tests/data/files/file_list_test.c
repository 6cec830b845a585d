/* file_list_test.c - which files are for what, by their names. */
#include "data/files/file_list.h"

#include <sys/stat.h>

#include "data/text_files.h"

typedef struct listing {
    const char *files; /* to make, with blanks between */
    const char *train, *test;
    bool both;
} listing;

static const listing listings[] = {
    {"b.txt a.txt c.bin .d.txt", "a.txt b.txt", "a.txt b.txt", true},
    {"train.txt val.txt", "train.txt", "val.txt", false},
    {"x_train_2.txt x_train_1.txt x_test.txt notes.txt", "x_train_1.txt x_train_2.txt",
     "x_test.txt", false},
    {"all.txt test.txt.gz", "all.txt", "test.txt.gz", false},
    {"train.txt notes.txt", "train.txt", "train.txt", true},
    {"latest.txt trainer.txt validate.txt", "latest.txt trainer.txt validate.txt",
     "latest.txt trainer.txt validate.txt", true},
    {"Training-1.txt", "Training-1.txt", "Training-1.txt", true},
    {"my.validation.txt my.training.txt", "my.training.txt", "my.validation.txt", false},
    {"Train.txt Test.txt", "Train.txt", "Test.txt", false},
    {"TRAIN.txt DEV.txt", "TRAIN.txt", "DEV.txt", false},
    {"my-Testing.txt my-Training.txt", "my-Training.txt", "my-Testing.txt", false},
    {"Valid.txt a.txt ._a.txt", "a.txt", "Valid.txt", false},
};

static void check(const char *dir, tutti_data_split split, const char *wanted, bool both) {
    tutti_dataset_desc desc = {.dir = dir, .split = split};
    tti_file_list list;
    char found[512] = "";
    T_OK(tti_file_list_make(&desc, "t", ".txt", &list));
    for (size_t i = 0; i < list.n; i++) {
        if (i) strcat(found, " ");
        strcat(found, strrchr(list.path[i], '/') + 1);
    }
    assert_string_equal(found, wanted);
    T_EQ(list.both, both);
    tti_file_list_free(&list);
}

T_CASE(names_decide) {
    T_UNUSED;
    for (size_t i = 0; i < sizeof listings / sizeof *listings; i++) {
        const char *dir = t_make_dir();
        char names[256], *rest = names;
        strcpy(names, listings[i].files);
        for (char *name; (name = strsep(&rest, " "));) t_put_text(dir, name, "x");
        check(dir, TUTTI_TRAIN, listings[i].train, listings[i].both);
        check(dir, TUTTI_TEST, listings[i].test, listings[i].both);
        unlink(t_path(dir, ".d.txt"));
        unlink(t_path(dir, "._a.txt"));
        t_clear_dir(dir);
    }
}

T_CASE(patterns_and_single_files) {
    T_UNUSED;
    const char *dir = t_make_dir();
    char path[512];
    t_put_text(dir, "s_train_1.any", "x");
    t_put_text(dir, "s_val_1.any", "x");
    snprintf(path, sizeof path, "%s/s_*", dir);
    check(path, TUTTI_TRAIN, "s_train_1.any", false);
    check(path, TUTTI_TEST, "s_val_1.any", false);
    snprintf(path, sizeof path, "%s/s_train_1.any", dir);
    check(path, TUTTI_TEST, "s_train_1.any", true);
    t_clear_dir(dir);
}

static void put_below(const char *dir, const char *folder, const char *file) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, folder);
    mkdir(path, 0777);
    t_put_text(path, file, "x");
}

/* Folders named like a split are looked into and reported; so are those of patterns. */
T_CASE(folders_decide) {
    T_UNUSED;
    char dir[256], path[512], command[300];
    snprintf(dir, sizeof dir, "%s", t_make_dir());
    put_below(dir, "Training", "a.txt");
    put_below(dir, "Testing", "train-of-thought.txt");
    put_below(dir, "notes", "c.txt");
    t_put_text(dir, "README.md", "x");
    check(dir, TUTTI_TRAIN, "a.txt", false);
    check(dir, TUTTI_TEST, "train-of-thought.txt", false);
    tutti_dataset_desc desc = {.dir = dir};
    tti_file_list list;
    T_OK(tti_file_list_make(&desc, "t", ".txt", &list));
    T_EQ(list.n_ignored, 2); /* notes/ and README.md */
    tti_file_list_free(&list);
    snprintf(path, sizeof path, "%s/T*/*.txt", dir);
    check(path, TUTTI_TRAIN, "a.txt", false);
    snprintf(path, sizeof path, "%s/Training/*.txt", dir); /* the user chose this folder */
    check(path, TUTTI_TEST, "a.txt", true);
    put_below(dir, "train", "d.txt");
    T_FAILS(tti_file_list_make(&desc, "t", ".txt", &list), TUTTI_E_DATA,
            "are both for training; keep one");
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    T_EQ(system(command), 0);
}

T_CASE(nothing_to_find) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tti_file_list list;
    tutti_dataset_desc desc = {.dir = dir};
    T_FAILS(tti_file_list_make(&desc, "t", ".txt", &list), TUTTI_E_DATA, "no file was found");
    t_put_text(dir, "test.txt", "x");
    T_FAILS(tti_file_list_make(&desc, "t", ".txt", &list), TUTTI_E_DATA,
            "the names mark every file as test data");
    t_put_text(dir, "bad\xFFname.txt", "x");
    T_FAILS(tti_file_list_make(&desc, "t", ".txt", &list), TUTTI_E_DATA,
            "a file's name is not printable UTF-8");
    t_clear_dir(dir);
    desc.dir = "/nonexistent/*.txt";
    T_FAILS(tti_file_list_make(&desc, "t", ".txt", &list), TUTTI_E_DATA, "no file was found");
}

T_CASE(the_cut) {
    T_UNUSED;
    tutti_dataset_desc desc = {0};
    T_EQ(tti_split_at(&desc, 100), 90);
    T_EQ(tti_split_at(&desc, 2), 1);
    T_EQ(tti_split_at(&desc, 1), 1);
    T_EQ(tti_split_at(&desc, 0), 0);
    desc.val_fraction = 0.999;
    T_EQ(tti_split_at(&desc, 10), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_decide),   cmocka_unit_test(patterns_and_single_files),
        cmocka_unit_test(folders_decide), cmocka_unit_test(nothing_to_find),
        cmocka_unit_test(the_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
