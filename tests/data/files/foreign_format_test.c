/* foreign_format_test.c - files of other programs are named by their first bytes. */
#include "data/files/foreign_format.h"

#include <string.h>

#include "t.h"

T_CASE(formats_are_named) {
    T_UNUSED;
    static const struct {
        const char *bytes, *wanted;
    } rows[] = {{"\x93NUMPY\x01", "NumPy"},
                {"PK\x03\x04\x14", "ZIP"},
                {"\xD0\xCF\x11\xE0\xA1", ".xls"},
                {"PAR1\x15", "Parquet"},
                {"ARROW1", "Arrow"},
                {"BZh91AY", "bzip2"},
                {"\x28\xB5\x2F\xFD\x04", "zstd"},
                {"SQLite format 3", "SQLite"},
                {"%PDF-1.7", "PDF"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *name = tti_foreign_format(rows[i].bytes, strlen(rows[i].bytes));
        assert_non_null(name);
        assert_non_null(strstr(name, rows[i].wanted));
    }
}

T_CASE(own_formats_and_short_files_are_not) {
    T_UNUSED;
    static const char *const rows[] = {"", "a,b\n1,2\n", "P", "PAR", "{\"x\": 1}"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_null(tti_foreign_format(rows[i], strlen(rows[i])));
}

T_CASE(texts_that_are_none) {
    T_UNUSED;
    T_OK(tti_check_plain_text("t", "", 0));
    T_OK(tti_check_plain_text("t", "one NUL \0 of many", 17));
    T_FAILS(tti_check_plain_text("t", "a\0b\0c\0d\0", 8), TUTTI_E_DATA,
            "t: 4 of the first 8 bytes are NUL, as in UTF-16");
    T_FAILS(tti_check_plain_text("t", "%PDF-1.7 ...", 12), TUTTI_E_DATA, "t: it is a PDF file");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_are_named),
        cmocka_unit_test(own_formats_and_short_files_are_not),
        cmocka_unit_test(texts_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
