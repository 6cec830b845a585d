/* culprit_test.c - the rank that the others wait for is found in the pages of all ranks. */
#include <string.h>

#include "base/clock.h"
#include "comm/progress.h"
#include "t.h"

/* Long ago, so that texts begin with the same digit on a busy machine, but at most 9 s, which is
 * after the start of the machine, too. */
static uint64_t hundredths_ago(int64_t n) {
    return (uint64_t)(tti_now_ns() - n * INT64_C(10000000));
}

static tti_progress in_call(int64_t for_hundredths) {
    tti_progress p = {.joined = true,
                      .in_call = true,
                      .n_calls = 3,
                      .entered_ns = hundredths_ago(for_hundredths),
                      .step = 7,
                      .call = "barrier()",
                      .phase = "reduce"};
    return p;
}

static tti_progress computing(void) {
    tti_progress p = in_call(900);
    p.in_call = false;
    strcpy(p.phase, "compute");
    return p;
}

static tti_progress saving(bool waits) {
    tti_progress p = waits ? in_call(200) : computing();
    strcpy(p.activity, "saving a checkpoint");
    p.since_ns = hundredths_ago(800);
    return p;
}

/* The culprit among n pages, and what is said of it. */
static int find(const tti_progress *pages, int n, const char *what) {
    tti_str text = {0};
    int found = tti_progress_find_culprit(pages, n);
    if (found >= 0) tti_progress_describe(&pages[found], &text);
    bool is_said = strstr(tti_str_text(&text), what) != NULL;
    if (!is_said) print_error("'%s' is not in '%s'\n", what, tti_str_text(&text));
    tti_str_free(&text);
    return is_said ? found : -2;
}

T_CASE(a_rank_in_no_call) {
    T_UNUSED;
    const tti_progress pages[] = {in_call(500), computing(), in_call(10)};
    T_EQ(find(pages, 3, "is in no call; its last was barrier() (step 7, compute)"), 1);
}

T_CASE(a_rank_in_a_phase) {
    T_UNUSED;
    const tti_progress pages[] = {in_call(500), computing(), saving(false)};
    T_EQ(find(pages, 3, "has been saving a checkpoint for 8"), 2);
}

/* One that saves and waits for another is not the one that all wait for. */
T_CASE(a_rank_in_a_phase_that_waits) {
    T_UNUSED;
    const tti_progress pages[] = {saving(true), computing(), in_call(900)};
    T_EQ(find(pages, 3, "is in no call"), 1);
    tti_progress below = saving(false);
    below.in_subgroup = 1;
    const tti_progress parts[] = {below, saving(false), in_call(900)};
    T_EQ(find(parts, 3, "saving"), 1);
}

T_CASE(a_rank_that_has_not_come) {
    T_UNUSED;
    const tti_progress pages[] = {in_call(500), {0}, computing()};
    T_EQ(find(pages, 3, "has not joined"), 1);
}

T_CASE(the_last_one_to_come) {
    T_UNUSED;
    const tti_progress pages[] = {in_call(500), in_call(100), in_call(900)};
    T_EQ(find(pages, 3, "has been in barrier() for 1"), 1);
}

T_CASE(one_that_left_is_none) {
    T_UNUSED;
    tti_progress gone = computing();
    gone.left = true;
    const tti_progress pages[] = {in_call(500), gone};
    T_EQ(find(pages, 2, "barrier()"), 0);
}

T_CASE(nobody_waits) {
    T_UNUSED;
    const tti_progress pages[] = {computing(), saving(false)};
    T_EQ(find(pages, 2, ""), -1);
}

T_CASE(which_one_is_in_a_phase) {
    T_UNUSED;
    const tti_progress pages[] = {computing(), in_call(3), saving(true)};
    const int global_ranks[] = {4, 5, 6};
    tti_str what = {0};
    assert_false(tti_progress_find_busy(pages, global_ranks, 2, &what));
    assert_true(tti_progress_find_busy(pages, global_ranks, 3, NULL));
    assert_true(tti_progress_find_busy(pages, global_ranks, 3, &what));
    assert_non_null(strstr(tti_str_text(&what), "rank 6 has been saving a checkpoint for 8"));
    tti_str_free(&what);
}

/* Suspects of parts, merged in any order, are those of all pages. */
T_CASE(suspects_of_parts) {
    T_UNUSED;
    tti_progress gone = computing();
    gone.left = true;
    const tti_progress kinds[] = {in_call(500), in_call(100), saving(true), saving(false),
                                  gone,         computing(),  {0}};
    enum { N = 5 };
    const int global_ranks[N] = {0, 1, 2, 3, 4};
    for (unsigned code = 0; code < 16807; code++) { /* 7^N */
        tti_progress pages[N];
        tti_suspects parts[2];
        tti_str one = {0}, other = {0};
        unsigned rest = code;
        for (int r = 0; r < N; r++, rest /= 7) {
            pages[r] = kinds[rest % 7];
            pages[r].entered_ns += (uint64_t)r; /* no two are equal */
            if (pages[r].since_ns) pages[r].since_ns += (uint64_t)r;
        }
        for (int p = 0; p < 2; p++) tti_suspects_begin(&parts[p]);
        for (int r = 0; r < N; r++) tti_suspects_look(&parts[(code >> r) % 2], r, &pages[r]);
        tti_suspects_merge(&parts[0], &parts[1]);
        bool is_busy = tti_progress_find_busy(pages, global_ranks, N, &one);
        T_EQ(tti_suspects_find_culprit(&parts[0]), tti_progress_find_culprit(pages, N));
        T_EQ(tti_suspects_find_busy(&parts[0], 0, &other), is_busy);
        /* Of several that have not joined any one is named. */
        const char *what = strstr(tti_str_text(&one), " has"), *same = tti_str_text(&other) + 6;
        if (is_busy) T_EQ(strncmp(what, same, strlen(" has been")), 0);
        if (is_busy && parts[0].busiest_page.since_ns)
            T_EQ(tti_str_text(&one)[5] - '0', parts[0].busiest);
        tti_str_free(&one);
        tti_str_free(&other);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(suspects_of_parts),        cmocka_unit_test(a_rank_in_no_call),
        cmocka_unit_test(a_rank_in_a_phase),        cmocka_unit_test(a_rank_in_a_phase_that_waits),
        cmocka_unit_test(a_rank_that_has_not_come), cmocka_unit_test(the_last_one_to_come),
        cmocka_unit_test(one_that_left_is_none),    cmocka_unit_test(nobody_waits),
        cmocka_unit_test(which_one_is_in_a_phase),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
