/* csv_test.c - tables: columns, labels, scale, splits, and what is refused with which words. */
#include "data/csv_table.h"

#include <stdlib.h>

#include "data/dataset.h"
#include "data/text_files.h"

static tutti_status parse(const char *text, const char *label, tti_csv_table *out) {
    char copy[1024];
    strcpy(copy, text);
    return tti_csv_parse("t", copy, strlen(text), label, out);
}

typedef struct good_table {
    const char *text, *label;
    int64_t n_rows;
    int n_columns;
    float last; /* feature of the last row */
    int32_t y;  /* its label */
} good_table;

T_CASE(what_is_a_table) {
    T_UNUSED;
    static const good_table good[] = {
        {"1,2,0\n3,4.5,1\n", "", 2, 2, 4.5f, 1},
        {"1,2,0\r\n\r\n3,-4e1,7", "", 2, 2, -40, 7},
        {"a,label,b\n1,5,2\n", "", 1, 2, 2, 5},
        {"Class,b\n3,0.25\n", "", 1, 1, 0.25f, 3},
        {"a,b,c\n1,2,3\n", "b", 1, 2, 3, 2},
        {"a,b,c\n1,2,3\n", "0", 1, 2, 3, 1},
        {"1;2\n 3 ;\t4\n", "0", 2, 1, 4, 3},
        {"\xEF\xBB\xBF"
         "1,2\n",
         "0", 1, 1, 2, 1},
        {"\"a \"\"x\"\", b\",y\n\"1.5\",\"2\"\n", "", 1, 1, 1.5f, 2},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        tti_csv_table t;
        T_OK(parse(good[i].text, good[i].label, &t));
        T_EQ(t.n_rows, good[i].n_rows);
        T_EQ(t.n_columns, good[i].n_columns);
        assert_true(t.x[t.n_rows * t.n_columns - 1] == good[i].last);
        T_EQ(t.y[t.n_rows - 1], good[i].y);
        tti_csv_table_free(&t);
    }
}

typedef struct bad_table {
    const char *text, *label, *why;
} bad_table;

T_CASE(what_is_none) {
    T_UNUSED;
    static const bad_table bad[] = {
        {"", "", "t: 0 columns, a feature and a label"},
        {"1\n2\n", "", "t: 1 columns"},
        {"a,b\n", "", "t: there are no rows"},
        {"1,2\n3\n", "", "t:2: 1 fields, the first line has 2"},
        {"1,2\n\n3,4,5\n", "", "t:3: 3 fields"},
        {"a,b\n1,x\n", "", "t:2: column 1: a label, a whole number >= 0, is expected, got 'x'"},
        {"1,2\n1,-1\n", "", "t:2: column 1: a label"},
        {"1,2\n1,1.5\n", "", "t:2: column 1: a label"},
        {"1,2\n,1\n", "", "t:2: column 0: a number is expected, got ''"},
        {"1,2\nnan,1\n", "", "column 0: a number"},
        {"1,2\n1e99,1\n", "", "column 0: a number"},
        {"a,b\n1,2\n", "c", "no column is called 'c', and it is no number below 2"},
        {"1,2\n", "2", "no column is called '2'"},
        {"1,2\n\"3,4\n", "", "a quote is not closed"},
        {"1,2\n\"3\"x,4\n", "", "t:2: text after a closed quote"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        tti_csv_table t;
        T_FAILS(parse(bad[i].text, bad[i].label, &t), TUTTI_E_DATA, bad[i].why);
    }
    char nul[] = "1,2\n3\0,4\n";
    tti_csv_table t;
    T_FAILS(tti_csv_parse("t", nul, sizeof nul - 1, "", &t), TUTTI_E_DATA, "t:2: a NUL byte");
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
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "2 features for training, 3 for testing");
    t_put_text(dir, "test.csv", "1,2,5\n");
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA,
            "label 5 of row 0 is out of range, 0 .. 1");
    put_rows(dir, "test2.csv", 5, 3);
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "2 files for a split");
    desc.split = TUTTI_TRAIN;
    desc.n_samples = 12;
    T_FAILS(tutti_dataset_open(&desc, &ds), TUTTI_E_DATA, "12 samples are asked for, there are 11");
    t_clear_dir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_a_table),
        cmocka_unit_test(what_is_none),
        cmocka_unit_test(columns_are_standardised_over_the_training_rows),
        cmocka_unit_test(two_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
