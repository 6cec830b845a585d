/* wait_clock_test.c - waits count apart for each reason, and texts state what was waited. */
#include "comm/wait_clock.h"

#include <stdio.h>
#include <string.h>

#include "t.h"

static const tti_delay none = {TTI_DELAY_NONE, 0}, phase = {TTI_DELAY_PHASE, 0},
                       outage = {TTI_DELAY_OUTAGE, 1000};

/* Looks as if at least ms had passed since the last look.  On a busy machine more may be counted,
 * at most TTI_PATIENCE_LOOK_MS. */
static bool look_after(tti_wait_clock *c, int ms, tti_delay delay) {
    c->patience.last_ns = tti_now_ns() - ms * TTI_NS_PER_MS;
    return tti_wait_clock_look(c, delay);
}

/* n looks of at least LEAST_MS; the result of the last one. */
static bool look_for(tti_wait_clock *c, int n, tti_delay delay) {
    enum { LEAST_MS = 300 };
    bool is_over = false;
    for (int i = 0; i < n; i++) is_over = look_after(c, LEAST_MS, delay);
    return is_over;
}

T_CASE(each_reason_has_its_limit) {
    T_UNUSED;
    char text[TTI_WAIT_TEXT_BYTES];
    long long ms;
    tti_wait_clock c = tti_wait_clock_begin(2000, 4000);
    assert_false(look_for(&c, 4, none));
    assert_false(look_for(&c, 9, phase));
    assert_false(look_for(&c, 7, outage)); /* past the limit, and not 1000 ms past it */
    assert_true(look_for(&c, 3, outage));
    T_EQ(sscanf(tti_wait_clock_text(&c, text), "%lld ms (parallel.timeout_ms=2000)", &ms), 1);
    assert_in_range(ms, 3000, 10 * TTI_PATIENCE_LOOK_MS);
    assert_non_null(strstr(tti_wait_clock_reason(&c), "another host does not answer"));
    assert_true(look_for(&c, 3, none));
    assert_string_equal(tti_wait_clock_reason(&c), "");
    assert_true(look_for(&c, 5, phase));
    T_EQ(sscanf(tti_wait_clock_text(&c, text), "%lld ms (parallel.phase_timeout_ms=4000)", &ms), 1);
    assert_in_range(ms, 4000, 14 * TTI_PATIENCE_LOOK_MS);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_reason_has_its_limit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
