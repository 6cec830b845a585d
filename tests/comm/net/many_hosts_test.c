/* many_hosts_test.c - more ranks than connect in pairs: over a few hosts, over one host, and with a
 * tree of hosts that has three levels. */
#include "comm/net/many_hosts.h"

T_CASE(a_few_hosts) {
    T_UNUSED;
    many_over_hosts(66, 3);
}

T_CASE(one_host) {
    T_UNUSED;
    many_over_hosts(66, 1);
}

T_CASE(three_levels_of_hosts) {
    T_UNUSED;
    many_over_hosts(75, 75);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_few_hosts),
        cmocka_unit_test(one_host),
        cmocka_unit_test(three_levels_of_hosts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
