/* device_failure_test.c - the report of a failed device, by the number of steps in flight, and
 * what is not its doing. */
#include "exec/device/state/device_state.h"

#include <stdio.h>

#include "t.h"

static tutti_status fine(void) { return TUTTI_OK; }
static tutti_status lost(void) { return tti_fail(TUTTI_E_DEVICE, "an error that comes back"); }

static const tti_device_ops sound = {.queues.sync = fine}, gone = {.queues.sync = lost};

static tutti_status report(uint64_t done, uint64_t newest, const tti_device_ops *ops,
                           tutti_status status) {
    const tti_device_work work = {.name = "GPU", .index = 3, .done = done, .newest = newest};
    tti_fail(status, "no answer");
    return tti_device_failure_context(&work, ops, status);
}

T_CASE(steps_at_work) {
    T_UNUSED;
    T_FAILS(report(6, 7, NULL, TUTTI_E_DEVICE), TUTTI_E_DEVICE,
            "step 7: device 3 (GPU) failed: no answer");
    T_FAILS(report(6, 9, &gone, TUTTI_E_DEVICE), TUTTI_E_DEVICE,
            "steps 7 to 9: device 3 (GPU) failed: no answer");
    T_FAILS(report(7, 7, &sound, TUTTI_E_DEVICE), TUTTI_E_DEVICE,
            "after step 7: device 3 (GPU) failed: no answer");
}

static void expect_untouched(const tti_device_ops *ops, tutti_status status) {
    T_EQ(report(6, 7, ops, status), status);
    assert_string_equal(tutti_last_error(), "no answer");
}

T_CASE(failures_of_others) {
    T_UNUSED;
    expect_untouched(&gone, TUTTI_E_PEER);
    expect_untouched(&gone, TUTTI_E_NUMERICS);
    expect_untouched(NULL, TUTTI_E_NOMEM);
}

/* A library that was refused a call says so in its own way. */
T_CASE(libraries) {
    T_UNUSED;
    T_FAILS(report(6, 7, &gone, TUTTI_E_UNSUPPORTED), TUTTI_E_DEVICE,
            "step 7: device 3 (GPU) failed: no answer");
    expect_untouched(&sound, TUTTI_E_UNSUPPORTED);
    expect_untouched(NULL, TUTTI_E_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_at_work),
                                       cmocka_unit_test(failures_of_others),
                                       cmocka_unit_test(libraries)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
