/* csv_test.c - tables: columns, labels, scale, splits, and what is refused with which words. */
#include "data/table/csv_text.h"

#include <stdlib.h>

#include "data/dataset.h"
#include "data/table/csv_value.h"
#include "data/target.h"
#include "data/text_files.h"

static tutti_status parse(const char *text, tti_csv_text *out) {
    return tti_csv_text_parse(&(tti_csv_desc){.name = "t"}, strdup(text), strlen(text), out);
}

typedef struct cut_text {
    const char *text;
    int64_t n_rows;
    int n_columns;
    bool has_header;
    const char *last; /* cell */
} cut_text;

T_CASE(texts_are_cut_into_cells) {
    T_UNUSED;
    static const cut_text good[] = {
        {"1,2,0\n3,4.5,1\n", 2, 3, false, "1"},
        {"1,2,0\r\n\r\n3,-4e1,7", 2, 3, false, "7"},
        {"1,2,0\r3,4,5\r\r", 2, 3, false, "5"},
        {"a,label,b\n1,5,2\n\n  \n,,\n", 1, 3, true, "2"},
        {"1;2\n 3 ;\t4\n", 2, 2, false, "4"},
        {"a\tb\n1,5\t2\n", 1, 2, true, "2"},
        {"a|b\n1|2\n", 1, 2, true, "2"},
        {"\"a;b\",\"c;d\"\n1,2\n", 1, 2, true, "2"},
        {"\"a, b\";c\n1,5;2\n", 1, 2, true, "2"},
        {"1,5;2,5;0\n3,5;1,5;1\n", 2, 3, false, "1"},
        {"\xEF\xBB\xBF"
         "1,2\n",
         1, 2, false, "2"},
        {"\"a \"\"x\"\", b\",y\n\"1.5\", \"2\" \n", 1, 2, true, "2"},
        {"a,b\n\"x\ny\",z\n", 1, 2, true, "z"},
        {"5.1,3.5,setosa\n4.9,3.0,virginica\n", 2, 3, false, "virginica"},
        {"5,3,setosa\n4,2,virginica\n", 2, 3, false, "virginica"},
        {"red,S,yes\nblue,M,no\nred,L,no\n", 3, 3, false, "no"},
        {"colour,size,buys\nred,S,yes\nblue,M,no\n", 2, 3, true, "no"},
        {"0,1,label\n5,6,1\n", 1, 3, true, "1"},
        {",a,y\n0,5,1\n", 1, 3, true, "1"},
        {"t,f\n5,1\n", 1, 2, true, "1"},
        {"yes,t\nno,t\n", 2, 2, false, "t"},
        {"sep=;\na;b\n1,5;2\n", 1, 2, true, "2"},
        {"\xEF\xBB\xBFsep=\t\r\na\tb\r\n1\t2\r\n", 1, 2, true, "2"},
        {"sep=x,b\n1,2\n", 1, 2, true, "2"},
        /* names that count: those of pandas and years; but not every first row of small numbers */
        {",0,1\n0,5,1\n1,6,0\n", 2, 3, true, "0"},
        {"0,1,2,3\n5,6,7,1\n4,4,4,0\n", 2, 4, true, "0"},
        {"0,1,2\n5.5,6,1\n4,4,0\n", 2, 3, true, "0"},
        {"0,1,2\n5,6,1\n4,4,0\n", 3, 3, false, "0"},
        {"0,1\n0.5,1\n", 2, 2, false, "1"},
        {"1,2,3,4\n0.5,1,1,0\n", 2, 4, false, "0"},
        {"2019,2020,kind\n1,2,a\n3,4,a\n", 2, 3, true, "a"},
        {"5,6,setosa\n4,2,virginica\n7,7,virginica\n", 3, 3, false, "virginica"},
        {"2019,2020,kind\n1,2,kind\n3,4,a\n", 3, 3, false, "a"},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        tti_csv_text t;
        T_OK(parse(good[i].text, &t));
        T_EQ(t.n_rows, good[i].n_rows);
        T_EQ(t.n_columns, good[i].n_columns);
        T_EQ(t.header != NULL, good[i].has_header);
        assert_string_equal(tti_csv_cell(&t, t.n_rows - 1, t.n_columns - 1), good[i].last);
        tti_csv_text_free(&t);
    }
}

typedef struct bad_text {
    const char *text, *why;
} bad_text;

T_CASE(texts_that_are_no_table) {
    T_UNUSED;
    static const bad_text bad[] = {
        {"", "t: there are no rows"},
        {"a,b\n\n", "t: there are no rows"},
        {"1,2\n3\n", "t:2: 1 fields, the first line has 2"},
        {"1,2\n\n3,4,5\n", "t:3: 3 fields"},
        {"1,2\n\"3,4\n", "t:2: a quote is not closed"},
        {"1,2\n\"3\"x,4\n", "t:2: text after a closed quote"},
        {"a,b,a\n1,2,3\n", "t:1: columns 0 and 2 are both called 'a'"},
        {"\xFF\xFE"
         "1,2\n",
         "t: the text is UTF-16"},
        {"a,b\n1,x\n2,caf\xE9\n", "t:3: the byte 0xE9 is not UTF-8; convert the file"},
        {"\"a\n\xC0\xAF\",b\n1,2\n", "t:2: the byte 0xC0 is not UTF-8"},
        {"a;b\n1,5;1.234\n", "t: numbers have a decimal comma (1,5) and a decimal point (1.234)"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tti_csv_text t;
        T_FAILS(parse(bad[i].text, &t), TUTTI_E_DATA, bad[i].why);
    }
    tti_csv_text t;
    T_FAILS(tti_csv_text_parse(&(tti_csv_desc){.name = "t"}, memcpy(calloc(1, 8), "1,2\n3\0,4", 8),
                               7, &t),
            TUTTI_E_DATA, "t:2: a NUL byte");
}

/* Every row of a file to predict has a prediction; rows for training need a value. */
T_CASE(rows_of_empty_cells) {
    T_UNUSED;
    static const char text[] = ",\na,b\n1,2\n,\n\n3,4\n, \n";
    for (int keeps = 0; keeps < 2; keeps++) {
        tti_csv_text t;
        T_OK(tti_csv_text_parse(&(tti_csv_desc){.name = "t", .keeps_empty = keeps}, strdup(text),
                                strlen(text), &t));
        T_EQ(t.n_rows, keeps ? 4 : 2);
        T_EQ(t.n_empty, keeps ? 0 : 2);
        T_EQ(t.line[keeps ? 2 : 1], 6);
        tti_csv_text_free(&t);
    }
}

/* However many columns there are. */
T_CASE(names_of_wide_tables_are_unique) {
    T_UNUSED;
    tti_str text = {0};
    tti_csv_text t;
    for (int i = 0; i < 5000; i++) tti_str_printf(&text, "%sc%d", i ? "," : "", i % 4999);
    tti_str_add(&text, "\n");
    for (int i = 0; i < 5000; i++) tti_str_add(&text, i ? ",1" : "1");
    T_FAILS(tti_csv_text_parse(&(tti_csv_desc){.name = "t"}, text.text, text.n_bytes, &t),
            TUTTI_E_DATA, "t:1: columns 0 and 4999 are both called 'c0'");
}

T_CASE(values_of_cells) {
    T_UNUSED;
    static const struct {
        const char *text;
        double seconds;
    } dates[] = {{"1970-01-01", 0},
                 {"2000-02-29", 951782400},
                 {"2024-02-29T12:30:00Z", 1709209800},
                 {"2024-02-29 12:30", 1709209800},
                 {"2024-02-29T12:30:00.25+01:00", 1709206200.25},
                 {"1969-12-31T23:59:59", -1}};
    static const char *const no_dates[] = {"2023-02-29",  "2024-13-01",       "24-01-01",
                                           "2024-01-01T", "2024-01-01T25:00", "2024-01-01x",
                                           "20240101"};
    double x;
    for (size_t i = 0; i < sizeof dates / sizeof *dates; i++) {
        assert_true(tti_value_date(dates[i].text, &x));
        assert_true(x == dates[i].seconds);
    }
    for (size_t i = 0; i < sizeof no_dates / sizeof *no_dates; i++)
        assert_false(tti_value_date(no_dates[i], &x));
    assert_true(tti_value_number("-1,5", true, &x) && x == -1.5);
    assert_false(tti_value_number("1,5", false, &x));
    assert_true(tti_value_is_odd_number("1,234.5") && tti_value_is_odd_number("-inf"));
    assert_true(tti_value_is_odd_number("1e400") && tti_value_is_odd_number("1e-400"));
    static const char *const odd[] = {"1'234.5",
                                      "-1'234",
                                      "1\xC2\xA0"
                                      "234",
                                      "12\xE2\x80\xAF"
                                      "345\xE2\x80\xAF"
                                      "678,5",
                                      "1\xE2\x80\x89"
                                      "234",
                                      "1\xE2\x80\x99"
                                      "234",
                                      "\xE2\x88\x92"
                                      "7.5"};
    static const char *const texts[] = {"12'34",  "O'Hara",       "'123",   "1'2345", "555 123",
                                        "1''234", "\xE2\x88\x92", "1'234x", "5'"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        assert_true(tti_value_is_odd_number(odd[i]));
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_false(tti_value_is_odd_number(texts[i]));
    assert_true(tti_value_is_tiny("-1,5e-400") && tti_value_is_tiny("1e-400"));
    assert_false(tti_value_is_tiny("0e-400") || tti_value_is_tiny("5e-324"));
    assert_false(tti_value_number("1e-400", false, &x));
    assert_true(tti_value_is_missing("") && tti_value_is_missing("NaN"));
    assert_false(tti_value_is_missing("0"));
}

/* ---- columns ---- */

static const tti_column *column_of(const tutti_dataset *ds, int i) {
    return &tti_dataset_spec(ds)->table->column[i];
}

static tutti_status open_text(const char *dir, const char *text, const char *columns,
                              tutti_dataset **out) {
    t_put_text(dir, "train.csv", text);
    t_put_text(dir, "test.csv", text);
    tutti_dataset_desc desc = {.format = "csv", .dir = dir, .columns = columns};
    return tutti_dataset_open(&desc, out);
}

static const char mixed[] =
    "id,age,member,since,colour,note,empty,y\n"
    "1,20,yes,2024-01-01,red,a,,cat\n"
    "2,30,no,2024-01-02,blue,a,NA,dog\n"
    "3,,True,2024-01-03,red,a,,cat\n"
    "4,70,,2024-01-04,?,a,null,dog\n";

T_CASE(kinds_of_columns) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_dataset *ds;
    float x[5];
    int32_t y;
    T_OK(open_text(dir, mixed, NULL, &ds));
    static const tti_column_kind kinds[] = {
        TTI_COLUMN_IGNORE,   TTI_COLUMN_NUMBER, TTI_COLUMN_BOOLEAN, TTI_COLUMN_DATE,
        TTI_COLUMN_CATEGORY, TTI_COLUMN_IGNORE, TTI_COLUMN_IGNORE,  TTI_COLUMN_LABEL};
    for (int i = 0; i < 8; i++) T_EQ(column_of(ds, i)->kind, kinds[i]);
    T_EQ(column_of(ds, 1)->fill, 30); /* the median of 20, 30, 70 */
    T_NEAR(column_of(ds, 1)->std, sqrt(1400.0 / 3), 1e-9);
    T_EQ(column_of(ds, 3)->min, 1704067200);
    T_EQ(tutti_dataset_get_info(ds)->x.shape.dim[0], 5);
    assert_string_equal(tutti_dataset_class_name(ds, 0), "cat");
    assert_string_equal(tutti_dataset_class_name(ds, 1), "dog");
    T_OK(tutti_dataset_get(ds, 3, x, &y));
    T_NEAR(x[0], 30 / sqrt(1400.0 / 3), 1e-6);
    T_NEAR(x[1], (1 - 2.0 / 3) / sqrt(2.0 / 9), 1e-6); /* most are true */
    T_NEAR(x[2], 1.5 / sqrt(1.25), 1e-6);
    assert_true(x[3] == 0 && x[4] == 1); /* red is the most frequent */
    T_EQ(y, 1);
    const char *notices = tutti_dataset_notices(ds);
    assert_non_null(strstr(notices, "column 'id' is ignored: it only counts the rows"));
    assert_non_null(
        strstr(notices, "column 'age' has no value in 1 training row; filled with the median 30"));
    assert_non_null(strstr(notices, "column 'note' is ignored: 1 different text in "));
    assert_non_null(strstr(notices, "column 'empty' is ignored: it has no values"));
    tutti_dataset_destroy(ds);
    T_OK(open_text(dir, mixed, "age: category, 3: ignore", &ds));
    T_EQ(column_of(ds, 1)->n_categories, 3);
    T_EQ(column_of(ds, 3)->kind, TTI_COLUMN_IGNORE);
    tutti_dataset_destroy(ds);
    T_FAILS(open_text(dir, mixed, "age: text", &ds), TUTTI_E_INVALID, "'text' is not a kind");
    T_FAILS(open_text(dir, mixed, "ag: date", &ds), TUTTI_E_DATA, "there is no column 'ag'");
    T_FAILS(open_text(dir, mixed, "age: date", &ds), TUTTI_E_DATA, "'20' is not a date");
    t_clear_dir(dir);
}

typedef struct label_case {
    const char *text;
    int n_classes;
    const char *names[4];
    int32_t last;
} label_case;

T_CASE(labels_of_any_form) {
    T_UNUSED;
    static const label_case good[] = {
        {"1,1\n2,2\n", 2, {"1", "2"}, 1},
        {"1,1\n2,-1\n3,1.0\n", 2, {"-1", "1"}, 1},
        {"1,10\n2,9\n", 2, {"9", "10"}, 0},
        {"1,12345678901\n2,-0\n", 2, {"0", "12345678901"}, 0},
        {"1,0\n2,7\n", 2, {"0", "7"}, 1},
        {"1,TRUE\n2,false\n3,True\n", 2, {"false", "true"}, 1},
        {"1,setosa\n2,b\n3,a c\n", 3, {"a c", "b", "setosa"}, 0},
        {"x,y,label,class\n1,5,b,3\n2,6,a,4\n", 2, {"a", "b"}, 0},
        {"x,TARGET ,z\n1,b,3\n2,a,4\n", 2, {"a", "b"}, 0},
        {"1,2,4,\n1,3,5,\n", 2, {"4", "5"}, 1},
    };
    const char *dir = t_make_dir();
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        tutti_dataset *ds;
        float x[8];
        int32_t y;
        T_OK(open_text(dir, good[i].text, NULL, &ds));
        T_EQ(tutti_dataset_get_info(ds)->n_classes, good[i].n_classes);
        for (int k = 0; k < good[i].n_classes; k++)
            assert_string_equal(tutti_dataset_class_name(ds, k), good[i].names[k]);
        T_OK(tutti_dataset_get(ds, tutti_dataset_get_info(ds)->n_samples - 1, x, &y));
        T_EQ(y, good[i].last);
        tutti_dataset_destroy(ds);
    }
    t_clear_dir(dir);
}

/* Columns without a name are not mistaken for each other. */
T_CASE(labels_that_look_alike) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_dataset *ds;
    T_OK(open_text(dir, "x,y\n1,dog\n2,Dog\n3,cat\n4,dog\n", NULL, &ds));
    assert_non_null(
        strstr(tutti_dataset_notices(ds), "the classes 'Dog' and 'dog' differ only in"));
    tutti_dataset_destroy(ds);
    T_OK(open_text(dir, "x,y\n1,dog\n2,cat\n3,cat\n4,dog\n", NULL, &ds));
    assert_null(strstr(tutti_dataset_notices(ds), "differ only"));
    tutti_dataset_destroy(ds);
    t_clear_dir(dir);
}

T_CASE(several_columns_without_a_name) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_dataset *ds;
    float x[3];
    int32_t y;
    T_OK(open_text(dir, ",a,,y\n3,5,1,0\n5,6,4,1\n9,6,7,1\n", NULL, &ds));
    T_OK(tutti_dataset_get(ds, 0, x, &y));
    T_NEAR(x[2], -3 / sqrt(6.0), 1e-6);
    tutti_dataset_destroy(ds);
    t_clear_dir(dir);
}

/* Whole numbers that are the same double stay different classes. */
T_CASE(labels_beyond_f64) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_dataset *ds;
    T_OK(open_text(dir, "1,9007199254740993\n2,9007199254740992\n3,5\n", NULL, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 3);
    assert_string_equal(tutti_dataset_class_name(ds, 2), "9007199254740993");
    tutti_dataset_destroy(ds);
    t_clear_dir(dir);
}

T_CASE(columns_that_are_refused) {
    T_UNUSED;
    static const bad_text bad[] = {
        {"1\n2\n", "one column: the first line has no comma"},
        {"1,0\n2,\n", "train.csv:2: column 1: the label is missing"},
        {"1,0.5\n2,1\n", "train.loss=mse data.target=value"},
        {"1,0\n2,0\n3,0\n4,0\nx,1\n", "train.csv:5: column 0: 'x' is not a finite number"},
        {"1,0\n2,0\n3,0\n4,0\ninf,1\n", "train.csv:5: column 0: 'inf'"},
        {"1,0\n2,0\n3,0\n4,0\n1e-400,1\n",
         "train.csv:5: column 0: '1e-400' is too small and would be read as 0; write 0 if"},
        {"1e-400,0\n2,0\n3,1\n4,0\n5,1\n", "train.csv:1: column 0: '1e-400' is too small"},
        {"a,y\n\"1,234\",0\n\"5,678\",1\n", "train.csv:3: column 'a': '5,678'"},
        {"a,y\n1'234.5,0\n5'678.5,1\n",
         "train.csv:3: column 'a': '5'678.5' is not a finite number"},
        {"1e308,0\n-1e308,1\n", "the numbers are too large"},
        {"a,b\n,1\n,0\n", "the columns have 0 features"},
    };
    const char *dir = t_make_dir();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tutti_dataset *ds;
        T_FAILS(open_text(dir, bad[i].text, NULL, &ds), TUTTI_E_DATA, bad[i].why);
    }
    tutti_dataset *ds;
    tutti_dataset_desc desc = {.format = "csv", .dir = dir, .refuse_missing = true};
    t_put_text(dir, "train.csv", "1,0\n2,1\n,1\n");
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "train.csv:3: column 0 has no value");
    desc = (tutti_dataset_desc){.format = "csv", .dir = dir, .label = " c "};
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "no column is called 'c'");
    desc.label = "0";
    desc.n_classes = 3;
    t_put_text(dir, "train.csv", "1,0\n2,1\n");
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "2 different labels, and 3 classes");
    t_clear_dir(dir);
}

T_CASE(seconds_stay_apart) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_dataset *ds;
    float x;
    int32_t y;
    T_OK(open_text(dir, "t,y\n1700000001,0\n1700000002,1\n1700000003,0\n", NULL, &ds));
    for (int i = 0; i < 3; i++) {
        T_OK(tutti_dataset_get(ds, i, &x, &y));
        T_NEAR(x, (i - 1) / sqrt(2.0 / 3), 1e-6);
    }
    tutti_dataset_destroy(ds);
    t_clear_dir(dir);
}

T_CASE(a_target_is_standardised) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_dataset *ds;
    float x;
    int32_t y;
    tutti_dataset_desc desc = {.format = "csv", .dir = dir, .target = "auto"};
    t_put_text(dir, "test.csv", "");
    t_put_text(dir, "train.csv", "x,y\n1,10.5\n2,12.5\n3,14.5\n");
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 1);
    T_EQ(tti_dataset_spec(ds)->target.mean[0], 12.5);
    T_NEAR(tti_dataset_spec(ds)->target.std[0], sqrt(8.0 / 3), 1e-12);
    T_OK(tutti_dataset_get(ds, 2, &x, &y));
    T_NEAR(tti_target_decode(y), 2 / sqrt(8.0 / 3), 1e-6);
    tutti_dataset_destroy(ds);
    t_put_text(dir, "train.csv", "x,y\n1,10\n2,12\n3,14\n");
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 3);
    tutti_dataset_destroy(ds);
    desc.target = "value";
    t_put_text(dir, "train.csv", "x,y\n1,a\n2,b\n3,c\n");
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "train.csv:2: column 'y': the label 'a' is not a finite number");
    t_clear_dir(dir);
}

static void expect_target(const tutti_dataset *ds, int64_t k, double mean, double std) {
    assert_true(tti_dataset_spec(ds)->target.mean[k] == mean);
    T_NEAR(tti_dataset_spec(ds)->target.std[k] / std, 1, 1e-12);
}

typedef struct yes_no_sample {
    float x, y[2];
} yes_no_sample;

static void expect_labels(const tutti_dataset *ds, int64_t i, float a, float b) {
    yes_no_sample sample;
    int32_t y = -1;
    T_OK(tutti_dataset_get(ds, i, &sample, &y));
    assert_true(y == 0 && sample.y[0] == a && sample.y[1] == b);
}

/* Each label is a question of its own: the fields x and y of a sample. */
T_CASE(labels_of_0_and_1) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_dataset *ds, *test;
    tti_str text = {0};
    tti_data_spec *spec;
    bool has_tokenizer;
    tutti_dataset_desc desc = {
        .format = "csv", .dir = dir, .target = "labels", .label = "b, a", .skip_bad = true};
    t_put_text(dir, "test.csv", "b,x,a\n1,3,no\n");
    t_put_text(dir, "train.csv", "a,x,b\n1,1,True\n0.0,2,no\n1.0,3,0\n,4,1\n1,5,2\n");
    T_OK(tutti_dataset_open(&desc, &ds));
    const tutti_dataset_info *info = tutti_dataset_get_info(ds);
    assert_true(info->n_fields == 2 && info->n_classes == 0 && !info->is_value);
    assert_string_equal(info->fields[1].name, "y");
    assert_true(info->fields[1].type.dtype == TUTTI_F32 && info->fields[1].type.shape.dim[0] == 2);
    T_NEAR(column_of(ds, 0)->mean, 2.0 / 3, 1e-12); /* of the rows that have both labels */
    expect_labels(ds, 0, 1, 1);
    expect_labels(ds, 1, 0, 0);
    expect_labels(ds, 2, 0, 1);
    yes_no_sample sample;
    int32_t y = 0;
    T_OK(tutti_dataset_get(ds, 3, &sample, &y));
    T_EQ(y, -1);
    T_OK(tutti_dataset_get(ds, 4, &sample, &y));
    assert_true(y == -1 && tutti_dataset_n_skipped(ds) == 2);
    char *columns = tutti_dataset_print_columns(ds);
    assert_non_null(strstr(columns, "a: 0 or 1, 66.67 % are 1"));
    assert_non_null(strstr(columns, "y                 f32[2]                0 .. 1"));
    free(columns);
    T_OK(tti_data_spec_print(tti_dataset_spec(ds), &text));
    T_OK(tti_data_spec_parse("data.json", text.text, text.n_bytes, &spec, &has_tokenizer));
    T_OK(tti_data_spec_compare(tti_dataset_spec(ds), spec));
    tutti_dataset_desc other = {.format = "csv", .dir = dir, .split = TUTTI_TEST, .spec = spec};
    T_OK(tutti_dataset_open(&other, &test)); /* its columns have another order */
    expect_labels(test, 0, 1, 0);
    tutti_dataset_destroy(test);
    t_put_text(dir, "test.csv", "b,x,a\n1,3,0.5\n");
    T_FAILS(tutti_dataset_open(&other, &test), TUTTI_E_DATA,
            "test.csv:2: column 'a': '0.5' is not 0 or 1");
    t_put_text(dir, "test.csv", "b,x\n1,3\n");
    T_FAILS(tutti_dataset_open(&other, &test), TUTTI_E_DATA, "column 'a' of the training rows");
    tti_data_spec_release(spec);
    /* Fields of other sizes than the columns are a damaged file. */
    const char *at = strstr(text.text, "\"kind\": \"number\"");
    memcpy((char *)(uintptr_t)at + 9, "\"ignore\"", 8);
    const char *body = strchr(text.text, '\n'); /* the line after it begins the object */
    T_FAILS(tti_data_spec_parse("data.json", body, strlen(body), &spec, &has_tokenizer),
            TUTTI_E_CHECKPOINT, "data.json");
    tti_str_free(&text);
    tutti_dataset_destroy(ds);
    desc.skip_bad = false;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "train.csv:5: column 'a': the label is");
    t_put_text(dir, "train.csv", "a,x,b\n1,1,1\n0,2,2\n");
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "train.csv:3: column 'b': the label '2' is not 0 or 1");
    desc.n_classes = 2;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_INVALID, "data.classes");
    t_put_text(dir, "train.csv", "a,x,b\n1,1,1\n1,2,0\n");
    desc.n_classes = 0, desc.label = "a";
    T_OK(tutti_dataset_open(&desc, &ds)); /* one label is a question too */
    assert_non_null(strstr(tutti_dataset_notices(ds), "column 'a' is 1 in all training rows"));
    T_EQ(tutti_dataset_get_info(ds)->fields[1].type.shape.dim[0], 1);
    tutti_dataset_destroy(ds);
    t_clear_dir(dir);
}

/* In the order of data.label; a row without one of its labels is none. */
T_CASE(several_targets) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_dataset *ds, *test;
    tti_str text = {0};
    tti_data_spec *spec;
    bool has_tokenizer;
    float x;
    int32_t y[2];
    tutti_dataset_desc desc = {
        .format = "csv", .dir = dir, .target = "auto", .label = " b ,0", .skip_bad = true};
    t_put_text(dir, "test.csv", "a,x,b\n3,0,5e12\n");
    t_put_text(dir, "train.csv", "a,x,b\n1,1,1e12\n3,2,3e12\n,3,9e12\n9,4,\n");
    T_OK(tutti_dataset_open(&desc, &ds));
    const tutti_dataset_info *info = tutti_dataset_get_info(ds);
    assert_true(info->is_value && info->n_classes == 2 && info->y.shape.dim[0] == 2);
    T_EQ(info->x.shape.dim[0], 1);
    expect_target(ds, 0, 2e12, 1e12);
    expect_target(ds, 1, 2, 1);
    assert_string_equal(tti_data_spec_target_name(tti_dataset_spec(ds), 0), "b");
    T_OK(tutti_dataset_get(ds, 1, &x, y));
    assert_true(tti_target_decode(y[0]) == 1 && tti_target_decode(y[1]) == 1);
    T_OK(tutti_dataset_get(ds, 2, &x, y));
    assert_true(y[0] == -1 && y[1] == -1 && tutti_dataset_n_skipped(ds) == 1);
    /* The stored specification reads other files. */
    T_OK(tti_data_spec_print(tti_dataset_spec(ds), &text));
    T_OK(tti_data_spec_parse("data.json", text.text, text.n_bytes, &spec, &has_tokenizer));
    T_OK(tti_data_spec_compare(tti_dataset_spec(ds), spec));
    tutti_dataset_desc other = {
        .format = "csv", .dir = dir, .split = TUTTI_TEST, .spec = spec, .rows_only = false};
    T_OK(tutti_dataset_open(&other, &test));
    T_OK(tutti_dataset_get(test, 0, &x, y));
    assert_true(tti_target_decode(y[0]) == 3 && tti_target_decode(y[1]) == 1);
    tutti_dataset_destroy(test);
    tti_data_spec_release(spec);
    tti_str_free(&text);
    tutti_dataset_destroy(ds);
    desc.skip_bad = false;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "train.csv:4: column 'a': the label is missing");
    desc.label = "a, b, a";
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_INVALID, "column 'a' is named twice");
    desc.label = "a,x,b";
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "none is a feature");
    desc.label = "a, c";
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "no column is called 'c'");
    desc.label = "a,b", desc.target = "class", desc.skip_bad = true;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_INVALID,
            "several targets must be values or 0 and 1");
    /* A name with a comma is still one column. */
    t_put_text(dir, "train.csv", "a,x,\"b,a\"\n1,1,0.5\n3,2,1.5\n");
    desc.label = "b,a", desc.target = "value";
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 1);
    tutti_dataset_destroy(ds);
    t_clear_dir(dir);
}

typedef struct target_case {
    const char *labels[5]; /* of the training rows */
    double mean, std;
    const char *why; /* NULL: they are accepted */
} target_case;

T_CASE(odd_targets) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_dataset *ds;
    static const target_case cases[] = {
        {{"1e12", "1000000000002"}, 1000000000001, 1, NULL},
        {{"1e-9", "3e-9"}, 2e-9, 1e-9, NULL},
        {{"1e-200", "3e-200"}, 2e-200, 1e-200, NULL},
        {{"-1e200", "1e200"}, 0, 1e200, NULL},
        {{"-0.0", "0.5", "0", "0.5"}, 0.25, 0.25, NULL},
        {{"0.1", "0.1", "0.1"}, 0, 0, "column 'y': the target has only one value"},
        {{"1e308", "1.1e308", "1.2e308"}, 0, 0, "numbers that are too large"},
        {{"0.5", "1e-400", "1", "2", "3"}, 0, 0, "the label '1e-400' is too small and would"},
        {{"0.5", "inf", "1", "2", "3"}, 0, 0, "train.csv:3: column 'y': the label 'inf' is not a "},
        {{"0.5", "1,5", "1", "2", "3"}, 0, 0, "the label '1,5' is not a finite number"},
        {{"true", "false"}, 0, 0, "the label 'true' is not a finite number"},
        {{"0.5", "NA"}, 0, 0, "train.csv:3: column 'y': the label is missing"},
    };
    t_put_text(dir, "test.csv", "x,y\n1,1\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tti_str text = {0};
        const target_case *c = &cases[i];
        bool auto_too = c->labels[4] != NULL;
        tti_str_add(&text, "x,y\n");
        for (int k = 0; k < 5 && c->labels[k]; k++)
            tti_str_printf(&text, "%d,\"%s\"\n", k, c->labels[k]);
        t_put_text(dir, "train.csv", text.text);
        for (int k = 0; k <= auto_too; k++) {
            tutti_dataset_desc desc = {.format = "csv", .dir = dir, .target = k ? "auto" : "value"};
            if (c->why) {
                T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, c->why);
                continue;
            }
            T_OK(tutti_dataset_open(&desc, &ds));
            expect_target(ds, 0, c->mean, c->std);
            tutti_dataset_destroy(ds);
        }
        tti_str_free(&text);
    }
    t_clear_dir(dir);
}

/* data.on_error=skip leaves out rows whose labels are no finite numbers, everywhere. */
T_CASE(labels_that_are_skipped) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_dataset *ds;
    tutti_dataset_desc desc = {.format = "csv", .dir = dir, .skip_bad = true};
    float x;
    int32_t y;
    t_put_text(dir, "test.csv", "x,y\n1,1\n");
    t_put_text(dir, "train.csv", "x,y\n1,0.5\n2,inf\n3,1.5\n4,0.5\n5,1.5\n6,\n");
    for (int k = 0; k < 2; k++) {
        desc.target = k ? "auto" : "value";
        T_OK(tutti_dataset_open(&desc, &ds));
        expect_target(ds, 0, 1, 0.5);
        T_OK(tutti_dataset_get(ds, 1, &x, &y));
        T_EQ(y, -1);
        T_OK(tutti_dataset_get(ds, 5, &x, &y));
        T_EQ(tutti_dataset_n_skipped(ds), 2);
        tutti_dataset_destroy(ds);
    }
    t_clear_dir(dir);
}

/* r2 of one value, or of equal ones, is undefined, as in scikit-learn. */
T_CASE(r2_of_few_values) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_dataset *ds;
    double r2, none = 0;
    tutti_dataset_desc desc = {.format = "csv", .dir = dir, .target = "auto"};
    static const struct {
        const char *text;
        bool defined;
    } cases[] = {{"x,y\n1,0.3\n", false},
                 {"x,y\n1,0.3\n1,0.3\n1,0.3\n", false},
                 {"x,y\n1,0.3\n1,0.31\n", true}};
    t_put_text(dir, "train.csv", "x,y\n1,0.1\n2,0.7\n");
    t_put_text(dir, "test.csv", cases[0].text);
    tutti_dataset *train;
    T_OK(tutti_dataset_open(&desc, &train));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        t_put_text(dir, "test.csv", cases[i].text);
        tutti_dataset_desc test = desc;
        test.split = TUTTI_TEST;
        test.spec = tti_dataset_spec(train);
        T_OK(tutti_dataset_open(&test, &ds));
        T_OK(tti_target_r2(ds, &none, &r2));
        T_EQ(!isnan(r2), cases[i].defined);
        if (cases[i].defined) assert_true(r2 == 1);
        tutti_dataset_destroy(ds);
    }
    tutti_dataset_destroy(train);
    t_clear_dir(dir);
}

/* A stored specification reads back equal, and other rows are read by it. */
T_CASE(a_stored_specification_reads_other_rows) {
    T_UNUSED;
    const char *dir = t_make_dir();
    tutti_dataset *ds, *test;
    tti_str text = {0};
    tti_data_spec *spec;
    bool has_tokenizer;
    float x[5], z[5];
    int32_t y;
    T_OK(open_text(dir, mixed, NULL, &ds));
    T_OK(tti_data_spec_print(tti_dataset_spec(ds), &text));
    T_OK(tti_data_spec_parse("data.json", text.text, text.n_bytes, &spec, &has_tokenizer));
    T_OK(tti_data_spec_compare(tti_dataset_spec(ds), spec));
    T_OK(tutti_dataset_get(ds, 0, x, &y));
    /* Columns in another order, one more, one category more, and what is ignored is not there. */
    t_put_text(dir, "test.csv",
               "y,colour,more,since,age,member\ncat,red,9,2024-01-01,20,yes\n"
               "dog,green,9,2024-01-01,,no\n");
    tutti_dataset_desc desc = {.format = "csv", .dir = dir, .split = TUTTI_TEST, .spec = spec};
    T_OK(tutti_dataset_open(&desc, &test));
    T_OK(tutti_dataset_get(test, 0, z, &y));
    assert_memory_equal(x, z, sizeof x);
    T_OK(tutti_dataset_get(test, 1, z, &y));
    assert_true(z[3] == 0 && z[4] == 0);
    const char *notices = tutti_dataset_notices(test);
    assert_non_null(strstr(notices, "column 'more' is ignored"));
    assert_non_null(strstr(notices, "column 'colour': 1 of 2 rows have a category"));
    assert_non_null(strstr(notices, "'green', line 3"));
    assert_non_null(strstr(notices, "column 'age' has no value in 1 of 2 rows"));
    tutti_dataset_destroy(test);
    static const bad_text bad[] = {
        {"y,colour,since,age\ncat,red,2024-01-01,20\n",
         "column 'member' of the training rows is missing"},
        {"1,2,3\n4,5,6\n", "no column has a name of the training table"},
        {"y,colour,since,age,member\ncow,red,2024-01-01,20,yes\n",
         "test.csv:2: column 'y': 'cow' is not a class of the training rows"},
        {"y,colour,since,age,member\ncat,red,2024-01-01,old,yes\n",
         "test.csv:2: column 'age': 'old' is not a finite number"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        t_put_text(dir, "test.csv", bad[i].text);
        T_FAILS(tutti_dataset_open(&desc, &test), TUTTI_E_DATA, bad[i].why);
    }
    tutti_dataset_destroy(ds);
    tti_data_spec_release(spec);
    tti_str_free(&text);
    t_clear_dir(dir);
}

/* 40 rows, x = i, y = i % 2. */
static void put_rows(const char *dir, const char *name, int first, int n) {
    char text[4096];
    int at = sprintf(text, "x,const,y\n");
    for (int i = first; i < first + n; i++) at += sprintf(text + at, "%d,5,%d\n", i, i % 2);
    t_put_text(dir, name, text);
}

static double sum_of(const tutti_dataset *ds, double *squares, int *n_ones) {
    double sum = 0;
    *squares = 0;
    for (int64_t i = 0; i < tutti_dataset_get_info(ds)->n_samples; i++) {
        float x[2];
        int32_t y;
        T_OK(tutti_dataset_get(ds, i, x, &y));
        assert_true(x[1] == 0); /* a constant column */
        sum += (double)x[0];
        *squares += (double)x[0] * (double)x[0];
        *n_ones += y;
    }
    return sum;
}

T_CASE(columns_are_standardised_over_the_training_rows) {
    T_UNUSED;
    const char *dir = t_make_dir();
    put_rows(dir, "all.csv", 0, 40);
    tutti_dataset_desc desc = {.format = "csv", .dir = dir, .val_fraction = 0.25};
    tutti_dataset *ds;
    double squares;
    int n_ones = 0;
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_samples, 30);
    T_EQ(tutti_dataset_get_info(ds)->n_classes, 2);
    T_EQ(tutti_dataset_get_info(ds)->x.shape.dim[0], 2);
    T_NEAR(sum_of(ds, &squares, &n_ones), 0, 1e-4);
    T_NEAR(squares, 30, 1e-4);
    tutti_dataset_destroy(ds);
    desc.split = TUTTI_TEST;
    desc.n_classes = 2;
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_samples, 10);
    sum_of(ds, &squares, &n_ones);
    T_EQ(n_ones, 20); /* both splits together are all rows */
    tutti_dataset_destroy(ds);
    t_clear_dir(dir);
}

T_CASE(two_files) {
    T_UNUSED;
    const char *dir = t_make_dir();
    put_rows(dir, "train.csv", 0, 11); /* mean 5, variance 10 */
    put_rows(dir, "test.csv", 5, 3);
    tutti_dataset_desc desc = {.format = "csv", .dir = dir, .split = TUTTI_TEST, .n_classes = 2};
    tutti_dataset *ds;
    float x[2];
    int32_t y;
    T_OK(tutti_dataset_open(&desc, &ds));
    T_EQ(tutti_dataset_get_info(ds)->n_samples, 3);
    T_OK(tutti_dataset_get(ds, 2, x, &y));
    T_NEAR(x[0], 2 / sqrt(10), 1e-6);
    T_EQ(y, 1);
    tutti_dataset_destroy(ds);
    t_put_text(dir, "test.csv", "1,2,3,0\n");
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "no column has a name of the training table");
    t_put_text(dir, "test.csv", "x,const,y\n1,2,5\n");
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "test.csv:2: column 'y': '5' is not a class of the training rows; to predict "
            "numbers give train.loss=mse data.target=value");
    put_rows(dir, "test2.csv", 5, 3);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "2 files for a split");
    desc.split = TUTTI_TRAIN;
    desc.n_samples = 12;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "12 samples are requested, there are 11");
    t_clear_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_cut_into_cells),
        cmocka_unit_test(texts_that_are_no_table),
        cmocka_unit_test(rows_of_empty_cells),
        cmocka_unit_test(names_of_wide_tables_are_unique),
        cmocka_unit_test(values_of_cells),
        cmocka_unit_test(kinds_of_columns),
        cmocka_unit_test(labels_of_any_form),
        cmocka_unit_test(several_columns_without_a_name),
        cmocka_unit_test(labels_beyond_f64),
        cmocka_unit_test(labels_that_look_alike),
        cmocka_unit_test(columns_that_are_refused),
        cmocka_unit_test(seconds_stay_apart),
        cmocka_unit_test(a_target_is_standardised),
        cmocka_unit_test(labels_of_0_and_1),
        cmocka_unit_test(several_targets),
        cmocka_unit_test(odd_targets),
        cmocka_unit_test(labels_that_are_skipped),
        cmocka_unit_test(r2_of_few_values),
        cmocka_unit_test(a_stored_specification_reads_other_rows),
        cmocka_unit_test(columns_are_standardised_over_the_training_rows),
        cmocka_unit_test(two_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
