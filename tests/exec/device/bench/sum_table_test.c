/* sum_table_test.c - tables of ways to add: text and back, what is no table, which way they say,
 * and the file, for whom it is good. */
#include "exec/device/bench/sum_table.h"

#include <stdio.h>

#include "base/cache_folder.h"
#include "base/error.h"

static const char head[] = "library NCCL 2.28.9\nbytes direct tree ring\n";

static tutti_status parse(const char *rows, tti_sum_table *table) {
    char text[1024];
    snprintf(text, sizeof text, "%s%s", head, rows);
    return tti_sum_table_parse(text, strlen(text), table);
}

T_CASE(text_and_back) {
    T_UNUSED;
    tti_sum_table table = {.n_rows = 0}, again = {.n_rows = 0};
    tti_str text = {0};
    T_OK(parse("4096 5.4 14.8 9.2\n65536 6.25 - 1e1\n", &table));
    T_EQ(table.n_rows, 2);
    assert_string_equal(table.library, "NCCL 2.28.9");
    T_EQ(table.rows[1].n_bytes, 65536);
    assert_true(table.rows[0].us[TTI_SUM_TREE] == 14.8 && table.rows[1].us[TTI_SUM_RING] == 10);
    assert_true(table.rows[1].us[TTI_SUM_TREE] == 0);
    tti_sum_table_print(&table, &text);
    T_OK(tti_sum_table_parse(text.text, text.n_bytes, &again));
    assert_memory_equal(&again, &table, sizeof table);
    tti_str_free(&text);
}

T_CASE(what_is_no_table) {
    T_UNUSED;
    static const char *const rows[][2] = {
        {"", "line 2: no sizes"},
        {"4096 1 2 3", "line 3: it does not end"},
        {"4096 1 2\n", "line 3: want a time for each algorithm"},
        {"4096 1 2 3 4\n", "line 3: more than"},
        {"4096 1 2 3 \n", "line 3: more than"},
        {"4096 1  3\n", "line 3: want microseconds"},
        {"4096 1 2 nan\n", "line 3: want microseconds or -"},
        {"4096 1 2 inf\n", "line 3: want microseconds or -"},
        {"4096 1 2 -3\n", "line 3: want microseconds or -"},
        {"4096 1 0 3\n", "line 3: want microseconds or -"},
        {"4096 1 2 1e13\n", "line 3: want microseconds or -"},
        {"0 1 2 3\n", "line 3: want a number of bytes"},
        {"-1 1 2 3\n", "line 3: want a number of bytes"},
        {"\n", "line 3: want a number of bytes"},
        {"99999999999999999999 1 2 3\n", "line 3: want a number of bytes"},
        {"4096 1 2 3\n4096 1 2 3\n", "line 4: sizes must increase"},
    };
    tti_sum_table table;
    for (size_t i = 0; i < TTI_COUNT(rows); i++)
        T_FAILS(parse(rows[i][0], &table), TUTTI_E_INVALID, rows[i][1]);
    T_FAILS(tti_sum_table_parse("", 0, &table), TUTTI_E_INVALID, "line 1");
    T_FAILS(tti_sum_table_parse("other\n", 6, &table), TUTTI_E_INVALID, "name of the library");
    T_FAILS(tti_sum_table_parse("library x\nbytes\n", 16, &table), TUTTI_E_INVALID,
            "of the algorithms");
    T_FAILS(tti_sum_table_parse("library \0x\n", 11, &table), TUTTI_E_INVALID, "a zero byte");
}

T_CASE(too_many_sizes) {
    T_UNUSED;
    tti_sum_table table;
    tti_str rows = {0};
    for (int i = 1; i <= TTI_SUM_ROWS; i++) tti_str_printf(&rows, "%d 1 2 3\n", i);
    T_OK(parse(rows.text, &table));
    tti_str_add(&rows, "99 1 2 3\n");
    T_FAILS(parse(rows.text, &table), TUTTI_E_INVALID, "too many sizes");
    tti_str_free(&rows);
}

/* As four GPUs were measured: in a fixed order direct is always faster, in any order not for large
 * sums. */
T_CASE(which_way_by_size_and_mode) {
    T_UNUSED;
    tti_sum_table table;
    T_OK(parse("4096 5 15 9\n1048576 10 27 17\n67108864 330 383 310\n", &table));
    for (int64_t n = 1; n < (int64_t)1 << 40; n *= 2)
        assert_false(tti_sum_table_prefers_library(&table, n, false));
    assert_false(tti_sum_table_prefers_library(&table, 1, true));
    assert_false(tti_sum_table_prefers_library(&table, 1048576, true));
    assert_true(tti_sum_table_prefers_library(&table, 67108864, true));
    assert_true(tti_sum_table_prefers_library(&table, (int64_t)1 << 40, true));
    /* 7 us behind at 1 MiB, 20 ahead at 64 MiB: even after 7/27 of the way */
    int64_t even = 1048576 + (67108864 - 1048576) / 27 * 7;
    assert_false(tti_sum_table_prefers_library(&table, even - 100000, true));
    assert_true(tti_sum_table_prefers_library(&table, even + 100000, true));
}

/* Also between a size that has a way and one that has not. */
T_CASE(a_way_that_is_not_there_is_not_taken) {
    T_UNUSED;
    tti_sum_table table;
    T_OK(parse("4096 - 1 1\n8192 - 1 1\n16384 9 1 -\n32768 9 1 1\n", &table));
    for (int64_t n = 1; n < 16384; n += 1000)
        assert_false(tti_sum_table_prefers_library(&table, n, true));
    assert_false(tti_sum_table_prefers_library(&table, 16384, true));
    assert_false(tti_sum_table_prefers_library(&table, 20000, true));
    assert_true(tti_sum_table_prefers_library(&table, 32768, true));
    assert_true(tti_sum_table_prefers_library(&table, 16384, false));
}

/* ---- the file ---- */

static const char *version = "driver 13";

static void describe(tti_str *str) { tti_str_add(str, version); }

static void kind(int index, tti_str *str) { tti_str_add(str, index < 2 ? "new" : "old"); }

static const tti_device_ops ops = {.kind = kind};
static const tti_backend backend = {.name = "fake", .device = &ops, .describe = describe};

static void key_of(int first, int n, char key[TTI_SUM_KEY]) {
    tti_sum_kind kinds[TTI_SUM_DEVICES];
    for (int i = 0; i < n; i++) tti_sum_table_kind(&backend, first + i, &kinds[i]);
    tti_sum_table_key(&backend, kinds, n, key);
}

T_CASE(for_whom_a_file_is_good) {
    T_UNUSED;
    char key[TTI_SUM_KEY], other[TTI_SUM_KEY];
    tti_sum_table table, again;
    memset(&table, 0, sizeof table);
    T_OK(parse("4096 1 2 3\n", &table));
    key_of(1, 3, key);
    assert_non_null(strstr(key, "driver 13; 1 x new; 2 x old"));
    T_EQ(tti_sum_table_load(key, 3, &again), TTI_CACHE_ABSENT);
    assert_true(tti_sum_table_save(key, 3, &table));
    T_EQ(tti_sum_table_load(key, 3, &again), TTI_CACHE_GOOD);
    T_EQ(again.n_rows, 1);
    T_EQ(tti_sum_table_load(key, 2, &again), TTI_CACHE_ABSENT);
    key_of(0, 3, other);
    T_EQ(tti_sum_table_load(other, 3, &again), TTI_CACHE_FOREIGN);
    version = "driver 14";
    key_of(1, 3, other);
    T_EQ(tti_sum_table_load(other, 3, &again), TTI_CACHE_FOREIGN);
}

/* A good checksum of what is no table. */
T_CASE(a_file_that_is_no_table) {
    T_UNUSED;
    tti_sum_table table;
    char name[64];
    tti_sum_table_name(5, name);
    assert_true(tti_cache_write(name, "key", "library\n", 8));
    tti_clear_error();
    T_EQ(tti_sum_table_load("key", 5, &table), TTI_CACHE_DAMAGED);
    assert_string_equal(tutti_last_error(), "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_and_back),
        cmocka_unit_test(what_is_no_table),
        cmocka_unit_test(too_many_sizes),
        cmocka_unit_test(which_way_by_size_and_mode),
        cmocka_unit_test(a_way_that_is_not_there_is_not_taken),
        cmocka_unit_test(for_whom_a_file_is_good),
        cmocka_unit_test(a_file_that_is_no_table),
    };
    return cmocka_run_group_tests(tests, cache_folder_enter, cache_folder_leave);
}
