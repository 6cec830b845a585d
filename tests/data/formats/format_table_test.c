/* format_table_test.c - the table of formats, and descriptions that no format accepts. */
#include "data/dataset.h"

#include "t.h"

T_CASE(table_is_complete) {
    T_UNUSED;
#define NAME(name) #name,
    static const char *const names[] = {TTI_FORMATS(NAME)};
#undef NAME
    int n = 0;
    for (; tti_format_at(n); n++) {
        const tti_format *format = tti_format_at(n);
        assert_string_equal(format->name, names[n]); /* data.json is checked against these */
        assert_true(format->doc && format->doc[0]);
        assert_non_null(format->open);
        for (int i = 0; i < n; i++) assert_string_not_equal(format->name, tti_format_at(i)->name);
    }
    assert_true(n >= 9);
    assert_null(tti_format_at(-1));
}

T_CASE(unknown_format) {
    T_UNUSED;
    tutti_dataset *ds = (tutti_dataset *)&ds; /* must become NULL */
    T_FAILS(tutti_dataset_open(&(tutti_dataset_desc){.format = "idy"}, &ds), TUTTI_E_INVALID,
            "unknown format 'idy' (there are: digits, idx, ");
    assert_null(ds);
    T_FAILS(tutti_dataset_open(&(tutti_dataset_desc){0}, &ds), TUTTI_E_INVALID,
            "unknown format ''");
}

T_CASE(bad_desc) {
    T_UNUSED;
    tutti_dataset *ds;
    tutti_dataset_desc desc = {.format = "digits", .split = (tutti_data_split)2};
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_INVALID, "split 2");
    desc = (tutti_dataset_desc){.format = "digits", .n_samples = -1};
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_INVALID, "out of range");
    desc = (tutti_dataset_desc){.format = "digits", .n_classes = INT64_MAX};
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_INVALID, "out of range");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(table_is_complete),
                                       cmocka_unit_test(unknown_format),
                                       cmocka_unit_test(bad_desc)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
