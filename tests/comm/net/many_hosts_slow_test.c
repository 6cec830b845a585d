/* many_hosts_slow_test.c - as many processes as a small machine can have, over several hosts. */
#include "comm/net/many_hosts.h"

T_CASE(many_processes_of_several_hosts) {
    T_UNUSED;
    many_over_hosts(256, 4);
    many_over_hosts(256, 32);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(many_processes_of_several_hosts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
