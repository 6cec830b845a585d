/* skip_list_test.c - skipped samples are counted once each, from any thread; and buffers grow. */
#include "data/skip_list.h"

#include "base/error.h"
#include "data/workspace.h"
#include "t.h"

enum { N = 1000 };

T_CASE(each_counts_once) {
    T_UNUSED;
    tti_skip_list *list;
    T_OK(tti_skip_list_create(N, &list));
    T_EQ(tti_skip_list_count(list), 0);
    assert_null(tti_skip_list_text(list, 0));
    tti_skip_list_add(list, 999, "last");
    tti_skip_list_add(list, 0, "first");
    tti_skip_list_add(list, 999, "again");
    T_EQ(tti_skip_list_count(list), 2);
    assert_string_equal(tti_skip_list_text(list, 0), "last");
    assert_string_equal(tti_skip_list_text(list, 1), "first");
    assert_null(tti_skip_list_text(list, 2));
    assert_null(tti_skip_list_text(list, -1));
    tti_skip_list_destroy(list);
    tti_skip_list_destroy(NULL);
}

static const char *add_many(int rank, int n_ranks, void *arg) {
    (void)n_ranks;
    for (int i = 0; i < N; i++)
        if (i % 3 == rank || i % 2 == 0) tti_skip_list_add(arg, i, "bad");
    return NULL;
}

T_CASE(from_threads) {
    T_UNUSED;
    tti_skip_list *list;
    T_OK(tti_skip_list_create(N, &list));
    t_ranks(3, add_many, list);
    T_EQ(tti_skip_list_count(list), N);
    assert_non_null(tti_skip_list_text(list, TTI_MAX_SKIP_TEXTS - 1));
    assert_null(tti_skip_list_text(list, TTI_MAX_SKIP_TEXTS));
    tti_skip_list_destroy(list);
}

T_CASE(buffers_grow_and_stay) {
    T_UNUSED;
    tti_workspace ws = {0};
    T_OK(tti_buffer_reserve(&ws.file, 100));
    uint8_t *first = ws.file.bytes;
    T_EQ((uintptr_t)first % 64, 0);
    memset(first, 1, 100);
    T_OK(tti_buffer_reserve(&ws.file, 60));
    assert_ptr_equal(ws.file.bytes, first);
    T_EQ(ws.file.n_bytes, 60);
    T_OK(tti_buffer_reserve(&ws.file, 100000));
    memset(ws.file.bytes, 1, 100000);
    T_FAILS(tti_buffer_reserve(&ws.file, SIZE_MAX / 2), TUTTI_E_NOMEM, "cannot allocate");
    T_EQ(ws.file.n_bytes, 100000);
    tti_workspace_free(&ws);
    assert_null(ws.file.bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_counts_once),
        cmocka_unit_test(from_threads),
        cmocka_unit_test(buffers_grow_and_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
