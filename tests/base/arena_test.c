/* arena_test.c - blocks are zeroed, aligned and apart; a failed arena stays failed. */
#include "base/arena.h"

#include "t.h"

T_CASE(pieces_are_zeroed_aligned_and_apart) {
    T_UNUSED;
    tti_arena arena = {0};
    unsigned char *blocks[2000];
    for (size_t i = 0; i < 2000; i++) {
        size_t n_bytes = (i * 37) % 513;
        blocks[i] = tti_arena_alloc(&arena, n_bytes);
        assert_non_null(blocks[i]);
        T_EQ((uintptr_t)blocks[i] % 16, 0);
        for (size_t k = 0; k < n_bytes; k++) T_EQ(blocks[i][k], 0);
        memset(blocks[i], (int)(i & 255), n_bytes);
    }
    for (size_t i = 0; i < 2000; i++)
        for (size_t k = 0; k < (i * 37) % 513; k++) T_EQ(blocks[i][k], i & 255);
    tti_arena_free(&arena);
    assert_null(arena.head);
}

T_CASE(larger_than_a_block) {
    T_UNUSED;
    tti_arena arena = {0};
    char *big = tti_arena_alloc(&arena, 1 << 20);
    assert_non_null(big);
    big[(1 << 20) - 1] = 1;
    assert_non_null(tti_arena_alloc(&arena, 1));
    tti_arena_free(&arena);
}

T_CASE(texts) {
    T_UNUSED;
    tti_arena arena = {0};
    char source[] = "conv1";
    char *copy = tti_arena_strdup(&arena, source);
    source[0] = 'X';
    assert_string_equal(copy, "conv1");
    assert_string_equal(tti_arena_printf(&arena, "%s.%s=%d", copy, "weight", 7), "conv1.weight=7");
    assert_string_equal(tti_arena_printf(&arena, "%s", ""), "");
    tti_arena_free(&arena);
}

T_CASE(too_much_fails_for_good) {
    T_UNUSED;
    tti_arena arena = {0};
    assert_non_null(tti_arena_alloc(&arena, 8));
    assert_null(tti_arena_alloc(&arena, SIZE_MAX - 8));
    assert_true(arena.failed);
    assert_null(tti_arena_alloc(&arena, 8));
    assert_null(tti_arena_strdup(&arena, "x"));
    tti_arena_free(&arena);
    assert_non_null(tti_arena_alloc(&arena, 8)); /* empty again, and usable */
    tti_arena_free(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_zeroed_aligned_and_apart),
        cmocka_unit_test(larger_than_a_block),
        cmocka_unit_test(texts),
        cmocka_unit_test(too_much_fails_for_good),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
