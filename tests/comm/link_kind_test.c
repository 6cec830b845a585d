/* link_kind_test.c - links of many ranks are sparse, and those of few where a test asks for it. */
#include "base/error.h"
#include "base/fault.h"
#include "comm/link.h"
#include "t.h"

T_CASE(many_ranks_or_a_fault) {
    T_UNUSED;
    assert_false(tti_link_is_sparse(2));
    assert_false(tti_link_is_sparse(TTI_FULL_RANKS));
    assert_true(tti_link_is_sparse(TTI_FULL_RANKS + 1));
    T_OK(tti_fault_set("link.sparse:fail"));
    assert_true(tti_link_is_sparse(2));
    T_OK(tti_fault_set(NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_ranks_or_a_fault)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
