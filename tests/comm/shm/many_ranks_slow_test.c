/* As many ranks as a group of one host can have, and as many processes as a small machine can. */
#include "comm/many_ranks.h"

T_CASE(processes) {
    T_UNUSED;
    many_processes(256);
}

T_CASE(threads) {
    T_UNUSED;
    many_threads(1024);
    many_threads(TTI_MAX_HOST_RANKS);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(processes), cmocka_unit_test(threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
