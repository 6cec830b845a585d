/* file_list_test.c - which files are for what, by their names. */
#include "data/file_list.h"

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

T_CASE(nothing_to_find) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tti_file_list list;
    tutti_dataset_desc desc = {.dir = dir};
    T_FAILS(tti_file_list_make(&desc, "t", ".txt", &list), TUTTI_E_DATA, "no file is there");
    t_put_text(dir, "test.txt", "x");
    T_FAILS(tti_file_list_make(&desc, "t", ".txt", &list), TUTTI_E_DATA,
            "every file is for testing by its name");
    t_put_text(dir, "bad\xFFname.txt", "x");
    T_FAILS(tti_file_list_make(&desc, "t", ".txt", &list), TUTTI_E_DATA,
            "a file's name is not printable UTF-8");
    t_clear_dir(dir);
    desc.dir = "/nonexistent/*.txt";
    T_FAILS(tti_file_list_make(&desc, "t", ".txt", &list), TUTTI_E_DATA, "no file is there");
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
        cmocka_unit_test(names_decide),
        cmocka_unit_test(patterns_and_single_files),
        cmocka_unit_test(nothing_to_find),
        cmocka_unit_test(the_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
