/* patience_test.c - time in which a waiter could not look is not counted. */
#include "base/patience.h"

#include "t.h"

T_CASE(long_gaps_are_cut) {
    T_UNUSED;
    tti_patience p = tti_patience_begin(1000);
    T_EQ(tti_patience_look(&p, 1000 + 100 * TTI_NS_PER_MS), 100 * TTI_NS_PER_MS);
    /* stopped for an hour */
    int64_t later_ns = 1000 + 3600000 * TTI_NS_PER_MS;
    T_EQ(tti_patience_look(&p, later_ns), TTI_PATIENCE_LOOK_MS * TTI_NS_PER_MS);
    T_EQ(tti_patience_look(&p, later_ns + 1), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(long_gaps_are_cut)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
