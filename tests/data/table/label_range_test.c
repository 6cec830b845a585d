/* label_range_test.c - numbers of classes from labels, and labels that are none. */
#include "data/table/label_range.h"

#include "t.h"

static tutti_status check(const int64_t *label, int64_t n, int64_t *n_classes) {
    tti_label_range range = {0};
    for (int64_t i = 0; i < n; i++) tti_label_range_add(&range, label[i], i);
    return tti_label_range_check(&range, "f", "data.classes", 10, n_classes);
}

T_CASE(ranges) {
    T_UNUSED;
    int64_t n = 0;
    T_OK(check((int64_t[]){0, 3, 1}, 3, &n));
    T_EQ(n, 4);
    T_OK(check((int64_t[]){0, 3, 1}, 3, &n));
    T_FAILS(check((int64_t[]){0, 4, 1}, 3, &n), TUTTI_E_DATA,
            "f: label 4 of row 1 is out of range, 0 .. 3");
    n = 0;
    T_FAILS(check((int64_t[]){0, 4, -1}, 3, &n), TUTTI_E_DATA, "f: label -1 of row 2 is negative");
    T_FAILS(check((int64_t[]){0, 1, 12}, 3, &n), TUTTI_E_DATA,
            "f: label 12 of row 2 would make 13 classes of 3 labels");
    T_EQ(n, 0);
    T_OK(check((int64_t[]){0, 1, 11}, 3, &n)); /* below 4 for each label */
    T_EQ(n, 12);
    n = 0;
    T_OK(check((int64_t[]){9}, 1, &n)); /* below the floor */
    T_EQ(n, 10);
}

/* Labels counted from 1 make a class without samples, which is mentioned. */
T_CASE(labels_from_1) {
    T_UNUSED;
    tti_label_range range = {0};
    tti_str notices = {0};
    const tutti_dataset_desc train = {.split = TUTTI_TRAIN}, test = {.split = TUTTI_TEST},
                             given = {.split = TUTTI_TRAIN, .n_classes = 4};
    for (int64_t i = 0; i < 6; i++) tti_label_range_add(&range, 1 + i % 3, i);
    tti_label_range_note(&range, "f", &test, &notices);
    tti_label_range_note(&range, "f", &given, &notices);
    T_EQ(notices.n_bytes, 0);
    tti_label_range_note(&range, "f", &train, &notices);
    assert_string_equal(tti_str_text(&notices),
                        "f: labels begin at 1, so no sample has a class below; subtract 1 from "
                        "the labels to leave such classes out\n");
    tti_str_clear(&notices);
    tti_label_range_add(&range, 0, 6);
    tti_label_range_note(&range, "f", &train, &notices);
    T_EQ(notices.n_bytes, 0);
    tti_str_free(&notices);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranges), cmocka_unit_test(labels_from_1)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
