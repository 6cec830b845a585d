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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
