/* wait_clock_test.c - waits count apart for each reason, and texts state what was waited. */
#include "comm/wait_clock.h"

#include <stdio.h>
#include <string.h>

#include "t.h"

static const tti_delay none = {TTI_DELAY_NONE, 0}, phase = {TTI_DELAY_PHASE, 0},
                       outage = {TTI_DELAY_OUTAGE, 50};

/* Looks as if ms had passed since the last look. */
static bool look_after(tti_wait_clock *c, int ms, tti_delay delay) {
    c->patience.last_ns = tti_now_ns() - ms * TTI_NS_PER_MS;
    return tti_wait_clock_look(c, delay);
}

T_CASE(each_reason_has_its_limit) {
    T_UNUSED;
    char text[TTI_WAIT_TEXT_BYTES];
    long long ms;
    tti_wait_clock c = tti_wait_clock_begin(200, 1000);
    assert_false(look_after(&c, 150, none));
    assert_false(look_after(&c, 300, phase));
    assert_false(look_after(&c, 300, phase));
    assert_false(look_after(&c, 220, outage)); /* the limit and 50 ms */
    assert_true(look_after(&c, 60, outage));
    T_EQ(sscanf(tti_wait_clock_text(&c, text), "%lld ms (parallel.timeout_ms=200)", &ms), 1);
    assert_true(ms >= 280 && ms < 400);
    assert_non_null(strstr(tti_wait_clock_reason(&c), "another host does not answer"));
    assert_true(look_after(&c, 60, none));
    assert_string_equal(tti_wait_clock_reason(&c), "");
    assert_true(look_after(&c, 400, phase));
    T_EQ(sscanf(tti_wait_clock_text(&c, text), "%lld ms (parallel.phase_timeout_ms=1000)", &ms), 1);
    assert_true(ms >= 1000 && ms < 1300);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_reason_has_its_limit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
