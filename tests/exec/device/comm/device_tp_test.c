/* device_tp_test.c - TP collectives of devices inside a step, on devices that are the host: rows
 * and parts of every kind, in the order of additions of the host's collective. */
#include "exec/fake_tp.h"
#include "exec/tp_workers.h"

static tutti_status tp(void *group, const tti_tp_collective *t, bool overlapped) {
    (void)overlapped;
    return fake_tp(group, t);
}

static tutti_status fold(const double *values, const tti_device_lists *lists, double *sums) {
    fake_fold(values, lists, sums);
    return TUTTI_OK;
}

static tutti_status unfold(double *values, size_t n, const tti_device_lists *lists,
                           const double *sums) {
    fake_unfold(values, n, lists, sums);
    return TUTTI_OK;
}

static const tti_device_ops fake_ops = {.open = fake_open,
                                        .close = fake_close,
                                        .queues.copy = fake_copy,
                                        .queues.order = fake_order,
                                        .queues.sync = fake_sync,
                                        .collectives.connect = fake_connect,
                                        .collectives.disconnect = fake_disconnect,
                                        .collectives.tp_collective = tp,
                                        .step.fold = fold,
                                        .step.unfold = unfold};

static const tti_backend fake = {
    .name = "fake", .device = &fake_ops, .alloc = fake_alloc, .release = fake_release};

T_CASE(any_number_of_ranks_has_the_bits_of_the_host) {
    T_UNUSED;
    tp_workers c = {
        .backend = &fake, .cases = tp_small_cases, .n_cases = TTI_COUNT(tp_small_cases)};
    for (int n_ranks = 2; n_ranks <= TP_MAX_RANKS; n_ranks++) tp_run(&c, n_ranks);
}

T_CASE(lists_are_added_in_their_order) {
    T_UNUSED;
    tp_fold(&fake);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_ranks_has_the_bits_of_the_host),
        cmocka_unit_test(lists_are_added_in_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
