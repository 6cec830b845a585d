/* dataset_test.c - reading single samples. */
#include "data/dataset.h"

#include "t.h"

T_CASE(get_checks_the_index) {
    T_UNUSED;
    tutti_dataset *ds;
    float x[784];
    int32_t y = 77;
    T_OK(tutti_dataset_open(&(tutti_dataset_desc){.format = "digits", .n_samples = 3}, &ds));
    T_FAILS(tutti_dataset_get(ds, -1, x, &y), TUTTI_E_INVALID, "sample -1 does not exist");
    T_FAILS(tutti_dataset_get(ds, 3, x, &y), TUTTI_E_INVALID, "there are 3");
    T_EQ(y, 77);
    T_OK(tutti_dataset_get(ds, 2, x, &y));
    assert_in_range(y, 0, 9);
    tutti_dataset_destroy(ds);
    tutti_dataset_destroy(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(get_checks_the_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
