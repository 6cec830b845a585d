/* cuda_link_test.c - what each device reads from each other one is true, and comes at a rate that a
 * link can have.  Exit code 77 with fewer than two. */
#include <stdio.h>

#include "backend/gpus.h"
#include "t.h"

T_CASE(every_pair_is_linked) {
    T_UNUSED;
    for (int i = 0; i < n_devices; i++) {
        T_OK(cuda->device->open(&(tti_device_desc){.index = i}));
        for (int k = 0; k < n_devices; k++) {
            tti_device_link link;
            if (k == i) continue;
            T_OK(cuda->device->link(k, &link));
            printf("device %d from %d: %.1f GB/s, %.1f us, %s\n", i, k, link.bytes_per_s * 1e-9,
                   link.latency_us, link.is_direct ? "direct" : "by the host");
            assert_true(link.is_right);
            assert_true(link.bytes_per_s > 1e9 && link.bytes_per_s < 2e12);
            assert_true(link.latency_us > 0.1 && link.latency_us < 1000);
        }
        cuda->device->close();
    }
}

int main(void) {
    int code = find_gpus(2);
    if (code) return code;
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_pair_is_linked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
