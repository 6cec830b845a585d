/* cuda_draw_test.c - numbers that parameters start with: a device draws the host's bits, and writes
 * nothing else.  Exit code 77 without a device. */
#include <stdio.h>

#include "backend/gpus.h"
#include "t.h"

enum { MOST = 1 << 22, GUARD = 64, N_SHORT = 3000 };

static float here[MOST + 2 * GUARD], there[MOST + 2 * GUARD];

/* Both with a guard on either side. */
static void compare(const tti_draws *draws, int n, size_t n_elems) {
    const tti_device_ops *ops = cuda->device;
    size_t n_bytes = (n_elems + 2 * GUARD) * sizeof *here;
    for (size_t i = 0; i < n_elems + 2 * GUARD; i++) here[i] = -77;
    float *memory = cuda->alloc(n_bytes);
    assert_non_null(memory);
    T_OK(ops->queues.copy(TTI_QUEUE_COMPUTE, memory, here, n_bytes));
    T_OK(ops->step.draw(draws, n, memory + GUARD));
    T_OK(ops->queues.copy(TTI_QUEUE_COMPUTE, there, memory, n_bytes));
    T_OK(ops->queues.sync());
    for (int i = 0; i < n; i++) tti_draw(&draws[i], here + GUARD);
    cuda->release(memory, n_bytes);
    for (size_t i = 0; i < n_elems + 2 * GUARD; i++)
        if (memcmp(&here[i], &there[i], sizeof *here) != 0)
            fail_msg("element %zu is %a, not %a", i - GUARD, (double)there[i], (double)here[i]);
}

T_CASE(long_runs_have_the_bits_of_the_host) {
    T_UNUSED;
    const tti_draws kinds[] = {{1, 0, MOST, 0, 0, 0.02, true},
                               {2, 3, MOST, 0, 1.5, 3, true},
                               {3, 1000001, MOST - 7, 5, -0.25, 0.5, false},
                               {4, (size_t)1 << 40, MOST, 0, 0, 1, true},
                               {5, 0, MOST, 0, 0.125, 0, false}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) compare(&kinds[i], 1, MOST);
}

T_CASE(short_runs_have_the_bits_of_the_host) {
    T_UNUSED;
    static tti_draws draws[N_SHORT];
    size_t at = 0;
    for (int i = 0; i < N_SHORT; i++) {
        size_t n = (size_t)(i % 37) + (i % 5 == 0 ? 900 : 1), first = (size_t)i * 977 % 100000;
        draws[i] = (tti_draws){(uint64_t)i / 8, first, n, at, 0, 0.01 * i, i % 3 != 0};
        at += n + (size_t)(i % 2);
    }
    compare(draws, N_SHORT, at);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(long_runs_have_the_bits_of_the_host),
                                       cmocka_unit_test(short_runs_have_the_bits_of_the_host)};
    int code = find_gpus(1);
    if (code) return code;
    if (cuda->device->open(&(tti_device_desc){.exact = true}) != TUTTI_OK) return 2;
    int n = cmocka_run_group_tests(tests, NULL, NULL);
    cuda->device->close();
    return n ? 1 : 0;
}
