/* device_p2p_test.c - values that devices put into each other's memory, on devices that are the
 * host, whose queues come as late or as early as they may; a peer that does not come, or is lost.
 * Whole steps of a pipeline: tests/cli/device_layouts_test.py. */
#include <stdlib.h>

#include "exec/p2p_workers.h"

static p2p_workers workers_of(const char *says) {
    const tti_backend *devices;
    T_EQ(setenv("TUTTI_TEST_DEVICE", says, 1), 0);
    T_OK(tti_backend_find("cuda", &devices));
    return (p2p_workers){.backend = devices, .n_bytes = {1, 16, 1000, 4097, 64}};
}

/* Who does nothing before it is asked may put all at once. */
T_CASE(every_value_comes) {
    T_UNUSED;
    static const char *const says[] = {"peers=1,devices=4", "peers=1,devices=4,late=1",
                                       "peers=1,devices=4,late=2", "peers=1,devices=4,late=3"};
    for (int late = 0; late < 4; late++) {
        p2p_workers c = workers_of(says[late]);
        c.ahead = late == 1 || late == 2;
        for (int n = 2; n <= P2P_MAX_RANKS; n++) {
            c.record = n != 3;
            p2p_run(&c, n);
        }
    }
}

T_CASE(who_waits_alone_is_reported) {
    T_UNUSED;
    static const char *const says[] = {"peers=1", "peers=1,late=1"};
    for (int late = 0; late < 2; late++) {
        p2p_workers c = workers_of(says[late]);
        c.timeout_ms = 2000;
        comm_run(2, p2p_wait_alone, &c);
    }
}

T_CASE(who_waits_for_a_lost_one_is_reported) {
    T_UNUSED;
    static const char *const says[] = {"peers=1,devices=3", "peers=1,devices=3,late=1"};
    for (int late = 0; late < 2; late++) {
        p2p_workers c = workers_of(says[late]);
        p2p_lose(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_comes),
        cmocka_unit_test(who_waits_alone_is_reported),
        cmocka_unit_test(who_waits_for_a_lost_one_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
