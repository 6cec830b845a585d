/* file_names_test.c - words that divide a set, and names that are never data. */
#include "data/files/file_names.h"

#include "t.h"

T_CASE(words) {
    T_UNUSED;
    T_EQ(tti_split_of_path("Train"), TTI_SPLIT_TRAIN);
    T_EQ(tti_split_of_path("x_TRAINING.npy"), TTI_SPLIT_TRAIN);
    T_EQ(tti_split_of_path("Valid-01.tar"), TTI_SPLIT_TEST);
    T_EQ(tti_split_of_path("a/dev/b.txt"), TTI_SPLIT_TEST);
    T_EQ(tti_split_of_path("Testing/train.txt"), TTI_SPLIT_TEST); /* the first one */
    T_EQ(tti_split_of_path("latest trainer validate"), TTI_SPLIT_NONE);
    T_EQ(tti_split_of_word("testing", 4), TTI_SPLIT_TEST);
    T_EQ(tti_split_of_word("tes", 3), TTI_SPLIT_NONE);
}

T_CASE(ignored) {
    T_UNUSED;
    static const char *const never[] = {".DS_Store", "._1.jpg",     ".ipynb_checkpoints",
                                        "THUMBS.DB", "desktop.ini", "__MACOSX"};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        assert_true(tti_is_ignored_name(never[i]));
    assert_false(tti_is_ignored_name("cat"));
    assert_false(tti_is_ignored_name("_1.jpg"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(words), cmocka_unit_test(ignored)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
