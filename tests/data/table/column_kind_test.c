/* column_kind_test.c - columns of numbers, booleans and dates in other spellings: read, refused
 * with their place, or mentioned. */
#include "data/table/column_kind.h"

#include "base/error.h"

#include "data/dataset.h"
#include "data/table/csv_value.h"
#include "data/text_files.h"

T_CASE(cells_with_marks) {
    T_UNUSED;
    static const char *const marked[] = {
        "$1,234.50", "-$5",   "$-5",   "5%",        "93.5 %",         "(1.50)",
        "'5'",       "1 234", "1_234", "1 234 567", "\xE2\x82\xAC 7", "7\xC2\xA0"};
    static const char *const others[] = {"5",     "-5",  "-",      "%",     "10%-20%", "10-20",
                                         "12 kg", "1 2", "110 00", "12:30", "A5",      "",
                                         "0x1f",  "( )", "5%5",    "1_23",  "1.2.3%"};
    for (size_t i = 0; i < TTI_COUNT(marked); i++) assert_true(tti_value_has_marks(marked[i]));
    for (size_t i = 0; i < TTI_COUNT(others); i++) assert_false(tti_value_has_marks(others[i]));
    static const char *const missing[] = {"#N/A", "<NA>", "-nan", "-1.#IND", "#n/a n/a"};
    for (size_t i = 0; i < TTI_COUNT(missing); i++) assert_true(tti_value_is_missing(missing[i]));
    assert_string_equal(tti_value_unit("12 kg"), " kg");
    assert_true(!tti_value_unit("12") && !tti_value_unit("kg") && !tti_value_unit("12 m2"));
    assert_true(tti_value_is_rounded("9007199254740993") &&
                tti_value_is_rounded("-99999999999999999"));
    assert_false(tti_value_is_rounded("9007199254740991") || tti_value_is_rounded("1e30"));
}

T_CASE(dates_in_several_forms) {
    T_UNUSED;
    static const char *const same[] = {"2024-02-29T12:30:00",     "2024/02/29 12:30",
                                       "2024-02-29 12:30:00 UTC", "2024-02-29 12:30:00GMT",
                                       "2024-02-29 13:30 +0100",  "2024-02-29 12:30:00+00"};
    static const char *const alike[] = {"29/2/2024",        "02/29/24",        "29.02.2024",
                                        "29-Feb-2024",      "2024.2.29",       "Feb 29, 2024",
                                        "29 February 2024", "2/29/2024 12:30", "2024/2/29"};
    static const char *const others[] = {"1.2.3", "a b 2024",     "10/20", "192.168.1.1", "12-34",
                                         "",      "Feb Mar 2024", "1/2/3", "29/2/20245"};
    double x;
    for (size_t i = 0; i < TTI_COUNT(same); i++) {
        assert_true(tti_value_date(same[i], &x));
        assert_true(x == 1709209800);
    }
    for (size_t i = 0; i < TTI_COUNT(alike); i++) {
        assert_true(tti_value_looks_like_date(alike[i]));
        assert_false(tti_value_date(alike[i], &x));
    }
    for (size_t i = 0; i < TTI_COUNT(others); i++)
        assert_false(tti_value_looks_like_date(others[i]));
    assert_false(tti_value_date("2024-02/29", &x) || tti_value_date("2024-02-29 12:30 CET", &x));
}

/* Opens a table of 40 rows: a column c of the n cells in turn, and labels. */
static tutti_status open_column(const char *dir, const char *name, const char *const *cells,
                                size_t n, tutti_dataset **out) {
    tti_str text = {0};
    tti_str_printf(&text, "%s,x,label\n", name);
    for (size_t i = 0; i < 40; i++)
        tti_str_printf(&text, "%s,%zu.5,%s\n", cells[i % n], i, i % 2 ? "a" : "b");
    t_put_text(dir, "t.csv", text.text);
    tti_str_free(&text);
    return tutti_dataset_open(
        &(tutti_dataset_desc){.format = "csv", .dir = dir, .val_fraction = 0.1}, out);
}

static tti_column_kind kind_of(const tutti_dataset *ds) {
    return tti_dataset_spec(ds)->table->column[0].kind;
}

T_CASE(kinds_by_their_values) {
    T_UNUSED;
    static const struct {
        const char *cells[5];
        size_t n;
        tti_column_kind kind;
        const char *notice; /* NULL: none */
    } good[] = {
        {{"0", "1.0", "true", "False"}, 4, TTI_COLUMN_BOOLEAN, NULL},
        {{"0", "2", "4", "true", "False"},
         5,
         TTI_COLUMN_CATEGORY,
         "of 36 training rows and texts such as"},
        {{"1", "2", "#N/A"}, 3, TTI_COLUMN_NUMBER, "filled with the median"},
        {{"1", "2", "3", "-"}, 4, TTI_COLUMN_CATEGORY, "texts such as '-' in the others"},
        {{"1/2/2024", "3/2/2024"}, 2, TTI_COLUMN_CATEGORY, "has dates such as '"},
        {{"5 kg", "7 kg"}, 2, TTI_COLUMN_CATEGORY, "has numbers with a unit, such as '"},
        {{"5 kg", "7 cm"}, 2, TTI_COLUMN_CATEGORY, "begin with a number, such as '"},
        {{"12:30", "7:05"}, 2, TTI_COLUMN_CATEGORY, "begin with a number, such as '"},
        {{"1D3", "2d-2", "4"}, 3, TTI_COLUMN_CATEGORY, "begin with a number, such as '"},
        {{"1k", "2.5M", "10"}, 3, TTI_COLUMN_CATEGORY, "begin with a number, such as '"},
        {{"0x1F", "0x20"}, 2, TTI_COLUMN_CATEGORY, "begin with a number, such as '"},
        {{"USD 5", "EUR 7.5"}, 2, TTI_COLUMN_CATEGORY, "begin with a number, such as '"},
        {{"2024-02", "2023-12"}, 2, TTI_COLUMN_CATEGORY, "begin with a number, such as '"},
        {{"A1", "B2"}, 2, TTI_COLUMN_CATEGORY, NULL},
        {{"2024-01-01", "2023-02-29"}, 2, TTI_COLUMN_CATEGORY, "has dates such as '2023-02-29'"},
        {{"9007199254740993", "9007199254740995"}, 2, TTI_COLUMN_NUMBER, "numbers of 2^53 or more"},
        {{"red", "blue"}, 2, TTI_COLUMN_CATEGORY, NULL},
    };
    const char *dir = t_make_dir();
    tutti_dataset *ds;
    for (size_t i = 0; i < TTI_COUNT(good); i++) {
        T_OK(open_column(dir, "c", good[i].cells, good[i].n, &ds));
        T_EQ(kind_of(ds), good[i].kind);
        const char *notices = tutti_dataset_notices(ds);
        if (good[i].notice && !strstr(notices, good[i].notice))
            fail_msg("%s: %s", good[i].notice, notices);
        if (!good[i].notice) assert_null(strstr(notices, "column 'c'"));
        tutti_dataset_destroy(ds);
    }
    T_FAILS(open_column(dir, "c", (const char *[]){"$5", "$7.50"}, 2, &ds), TUTTI_E_DATA,
            "column 'c': '$7.50' is not a finite number");
    T_FAILS(open_column(dir, "c", (const char *[]){"5%", "7"}, 2, &ds), TUTTI_E_DATA,
            "column 'c': '5%' is not a finite number");
    T_FAILS(open_column(dir, "c", (const char *[]){"1.234.567", "2.000.001"}, 2, &ds), TUTTI_E_DATA,
            "column 'c': '2.000.001' is not a finite number");
    t_clear_dir(dir);
}

/* A shuffled or divided data frame keeps the numbers of its rows, which may give the labels away.
 */
T_CASE(row_numbers_in_any_order) {
    T_UNUSED;
    const char *cells[40], *dir = t_make_dir();
    char numbers[40][8];
    tutti_dataset *ds;
    for (int i = 0; i < 40; i++) {
        snprintf(numbers[i], sizeof numbers[i], "%d", i * 7 % 40 + (i % 2) * 100);
        cells[i] = numbers[i];
    }
    static const char *const names[] = {"", "Unnamed: 0", "ID"};
    for (size_t i = 0; i < TTI_COUNT(names); i++) {
        T_OK(open_column(dir, names[i], cells, 40, &ds));
        T_EQ(kind_of(ds), TTI_COLUMN_IGNORE);
        assert_non_null(strstr(tutti_dataset_notices(ds), "a different whole number in each row"));
        tutti_dataset_destroy(ds);
    }
    T_OK(open_column(dir, "age", cells, 40, &ds));
    T_EQ(kind_of(ds), TTI_COLUMN_NUMBER);
    tutti_dataset_destroy(ds);
    T_OK(open_column(dir, "id", cells, 20, &ds)); /* each number twice */
    T_EQ(kind_of(ds), TTI_COLUMN_NUMBER);
    tutti_dataset_destroy(ds);
    t_clear_dir(dir);
}

static void expect_notice(const char *dir, const char *text, const char *notice) {
    tutti_dataset *ds;
    t_put_text(dir, "t.csv", text);
    T_OK(tutti_dataset_open(&(tutti_dataset_desc){.format = "csv", .dir = dir, .val_fraction = 0.1},
                            &ds));
    assert_non_null(strstr(tutti_dataset_notices(ds), notice));
    tutti_dataset_destroy(ds);
}

T_CASE(labels_that_may_be_meant_otherwise) {
    T_UNUSED;
    const char *dir = t_make_dir();
    expect_notice(dir, "a,y\n1.5,Yes\n2,no\n3,TRUE\n4,Yes\n5,no\n1,TRUE\n2,Yes\n3,no\n",
                  "column 'y' has the classes 'true' and 'yes'; if they mean the same");
    expect_notice(dir, "a,b\n1.5,3\n2,4\n3,3\n4,4\n5,3\n", "column 'b' is taken for the label");
    t_clear_dir(dir);
}

T_CASE(files_that_are_no_text) {
    T_UNUSED;
    static const struct {
        const char *bytes, *why;
    } bad[] = {{"PK\x03\x04\x14\x01\xB5", "it is a ZIP archive or an Excel workbook"},
               {"PAR1\x15\x04", "it is a Parquet file"},
               {"BZh91AY", "it is compressed by bzip2"}};
    for (size_t i = 0; i < TTI_COUNT(bad); i++) {
        tti_csv_text t;
        T_FAILS(tti_csv_text_parse(&(tti_csv_desc){.name = "t"}, strdup(bad[i].bytes),
                                   strlen(bad[i].bytes), &t),
                TUTTI_E_DATA, bad[i].why);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_with_marks),
        cmocka_unit_test(dates_in_several_forms),
        cmocka_unit_test(kinds_by_their_values),
        cmocka_unit_test(row_numbers_in_any_order),
        cmocka_unit_test(labels_that_may_be_meant_otherwise),
        cmocka_unit_test(files_that_are_no_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
