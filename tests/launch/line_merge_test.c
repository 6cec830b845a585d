/* line_merge_test.c - prefixes, merging, order, partial and over-long lines. */
#include "launch/line_merge.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "t.h"

static tti_str given;
static tti_line_merge *merge;

static void collect(void *user, int output, const char *bytes, size_t n_bytes) {
    (void)user;
    tti_str_add(&given, output == TTI_STDERR ? "!" : "");
    tti_str_add_bytes(&given, bytes, n_bytes);
}

static void start(int n_ranks) {
    tti_str_clear(&given);
    T_OK(tti_line_merge_create(n_ranks, collect, NULL, &merge));
}

static void feed(int rank, const char *text, int t_ms) {
    tti_line_merge_feed(merge, rank, TTI_STDOUT, text, strlen(text), t_ms * TTI_NS_PER_MS);
}

/* Everything given so far, after the rest was given too. */
static void finish(const char *expected) {
    tti_line_merge_tick(merge, INT64_MAX);
    assert_string_equal(tti_str_text(&given), expected);
    tti_line_merge_destroy(merge);
    merge = NULL;
}

T_CASE(all_ranks_merge_at_once) {
    T_UNUSED;
    start(4);
    for (int r = 0; r < 4; r++) feed(r, "hello\n", r);
    assert_string_equal(tti_str_text(&given), "[rank 0-3] hello\n");
    finish("[rank 0-3] hello\n");
}

T_CASE(some_ranks_merge_after_the_window) {
    T_UNUSED;
    start(5);
    assert_true(tti_line_merge_deadline_ns(merge) == INT64_MAX);
    feed(3, "a\n", 10);
    feed(0, "a\n", 20);
    feed(2, "a\n", 30);
    assert_true(tti_line_merge_deadline_ns(merge) == 110 * TTI_NS_PER_MS);
    tti_line_merge_tick(merge, 109 * TTI_NS_PER_MS);
    assert_string_equal(tti_str_text(&given), "");
    tti_line_merge_tick(merge, 110 * TTI_NS_PER_MS);
    assert_string_equal(tti_str_text(&given), "[rank 0,2-3] a\n");
    feed(1, "a\n", 120); /* too late */
    finish("[rank 0,2-3] a\n[rank 1] a\n");
}

T_CASE(a_rank_keeps_its_order) {
    T_UNUSED;
    start(3);
    feed(0, "x\ny\n", 0);
    feed(1, "y\nx\n", 1); /* joins y, must not join the older x */
    feed(1, "x\n", 2);
    finish("[rank 0] x\n[rank 0-1] y\n[rank 1] x\n[rank 1] x\n");
}

T_CASE(a_common_line_after_own_lines) {
    T_UNUSED;
    start(3);
    for (int r = 0; r < 3; r++) {
        feed(r, r == 0 ? "i am 0\n" : r == 1 ? "i am 1\n" : "i am 2\n", r);
        feed(r, "same\n", r);
    }
    finish("[rank 0] i am 0\n[rank 1] i am 1\n[rank 2] i am 2\n[rank 0-2] same\n");
    start(3);
    feed(0, "same\nmore\n", 0); /* cannot move after "more" */
    feed(1, "own\nsame\n", 0);
    finish("[rank 0] same\n[rank 0] more\n[rank 1] own\n[rank 1] same\n");
}

T_CASE(one_rank_has_no_prefix_and_no_delay) {
    T_UNUSED;
    start(1);
    feed(0, "a\n\nb", 0);
    assert_string_equal(tti_str_text(&given), "a\n\n");
    tti_line_merge_end(merge, 0, TTI_STDOUT, 0);
    tti_line_merge_end(merge, 0, TTI_STDOUT, 0);
    finish("a\n\nb\n");
}

T_CASE(any_boundaries) {
    T_UNUSED;
    const char *text = "one\r\ntwo 10%\rtwo 100%\nthree\r\r\n\rfour";
    for (size_t cut = 0; cut <= strlen(text); cut++) {
        start(2);
        tti_line_merge_feed(merge, 1, TTI_STDERR, text, cut, 0);
        tti_line_merge_feed(merge, 1, TTI_STDERR, text + cut, strlen(text) - cut, 0);
        tti_line_merge_end(merge, 1, TTI_STDERR, 0);
        finish("![rank 1] one\n![rank 1] two 100%\n![rank 1] three\n![rank 1] four\n");
    }
}

T_CASE(streams_do_not_merge) {
    T_UNUSED;
    start(2);
    feed(0, "a\n", 0);
    tti_line_merge_feed(merge, 1, TTI_STDERR, "a\n", 2, 0);
    finish("[rank 0] a\n![rank 1] a\n");
}

T_CASE(memory_is_bounded) {
    T_UNUSED;
    start(2);
    size_t n_bytes = 5 << 20, n_lines = 0;
    char *big = malloc(n_bytes);
    assert_non_null(big);
    memset(big, 'x', n_bytes);
    big[7] = '\0'; /* NUL is a byte like any other */
    tti_line_merge_feed(merge, 0, TTI_STDOUT, big, n_bytes, 0);
    assert_true(given.n_bytes >= n_bytes - (2 << 20)); /* before any time has passed */
    tti_line_merge_tick(merge, INT64_MAX);
    for (size_t i = 0; i < given.n_bytes; i++) n_lines += given.text[i] == '\n';
    T_EQ(n_lines, n_bytes / (64 << 10));
    T_EQ(given.n_bytes, n_bytes + n_lines * strlen("[rank 0] \n"));
    tti_line_merge_destroy(merge);
    free(big);
}

T_CASE(many_ranks) {
    T_UNUSED;
    start(200);
    for (int r = 0; r < 200; r++)
        if (r != 64 && r != 199) feed(r, "z\n", 0);
    finish("[rank 0-63,65-198] z\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_merge_at_once),
        cmocka_unit_test(some_ranks_merge_after_the_window),
        cmocka_unit_test(a_rank_keeps_its_order),
        cmocka_unit_test(a_common_line_after_own_lines),
        cmocka_unit_test(one_rank_has_no_prefix_and_no_delay),
        cmocka_unit_test(any_boundaries),
        cmocka_unit_test(streams_do_not_merge),
        cmocka_unit_test(memory_is_bounded),
        cmocka_unit_test(many_ranks),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tti_str_free(&given);
    return failed;
}
