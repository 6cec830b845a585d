/* flight_test.c - the recorder shows the last operations, layers, phases and steps of a rank, to
 * this process and to another that maps the memory; what is no recorder is refused. */
#include "base/flight.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "t.h"

T_CASE(records_and_lanes) {
    T_UNUSED;
    tti_flight_memory *m, *other;
    tti_flight_view ops[TTI_FLIGHT_RECORDS], op;
    tti_flight_state before, now;
    int tid;
    T_OK(tti_flight_create(2, &m));
    tti_flight *f = tti_flight_of(m, 1);
    assert_null(tti_flight_of(m, 2));
    assert_null(tti_flight_of(NULL, 0));
    T_OK(tti_flight_open(tti_flight_fd(m), &other));
    const tti_flight *seen = tti_flight_of(other, 1);
    tti_flight_read(seen, &now);
    T_EQ(now.pid, 0);

    tti_flight_enter(f, "loading");
    tti_flight_name_layer(f, 3, "conv2d", "conv1", false);
    tti_flight_name_layer(f, 4, "all_reduce", "", true);
    tti_flight_read(seen, &before);
    T_EQ(before.pid, getpid());
    assert_string_equal(before.phase, "loading");
    tti_flight_phase(f, NULL);
    for (int i = 0; i < 300; i++) {
        tti_flight_begin(f, TTI_THREAD_COMM,
                         &(tti_flight_op){.name = "all_reduce",
                                          .step = (uint64_t)i,
                                          .n_bytes = 8,
                                          .n_peers = 3,
                                          .waits_for_peers = true});
        tti_flight_end(f, TTI_THREAD_COMM);
    }
    tti_flight_begin(f, TTI_THREAD_COMPUTE, &(tti_flight_op){.name = "a name of many bytes"});
    _Atomic int32_t *place = tti_flight_layer_place(f, TTI_THREAD_COMPUTE);
    tti_flight_read(seen, &before);
    tti_flight_layer(place, 3);
    tti_flight_read(seen, &now);
    assert_true(now.progress != before.progress);
    assert_string_equal(now.phase, "");

    assert_true(tti_flight_open_op(seen, TTI_THREAD_COMPUTE, &op, &tid));
    T_EQ(tid, gettid());
    assert_string_equal(op.name, "a name of many ");
    assert_string_equal(op.layer, "conv1 (conv2d)");
    assert_false(op.waits_for_peers);
    tti_flight_layer(place, 4);
    assert_true(tti_flight_open_op(seen, TTI_THREAD_COMPUTE, &op, &tid));
    assert_true(op.waits_for_peers);
    assert_false(tti_flight_open_op(seen, TTI_THREAD_COMM, &op, &tid));

    T_EQ(tti_flight_last(seen, ops, TTI_FLIGHT_RECORDS), TTI_FLIGHT_RECORDS);
    T_EQ(ops[255].seq, 301);
    T_EQ(ops[254].step, 299);
    T_EQ(ops[254].n_peers, 3);
    assert_true(ops[254].end_ns >= ops[254].start_ns && ops[254].waits_for_peers);
    for (int i = 1; i <= 5; i++) tti_flight_commit(f, (uint64_t)i, i == 3 ? 900 : 100 * i);
    tti_flight_read(seen, &now);
    T_EQ(now.steps, 5);
    T_EQ(now.median_ns, 400);
    tti_flight_leave(f);
    tti_flight_read(seen, &now);
    T_EQ(now.pid, 0);
    tti_flight_close(other);
    tti_flight_close(m);
}

T_CASE(no_recorder_records_nothing) {
    T_UNUSED;
    tti_flight_enter(NULL, NULL);
    tti_flight_begin(NULL, TTI_THREAD_MAIN, &(tti_flight_op){.name = "run"});
    tti_flight_end(NULL, TTI_THREAD_MAIN);
    tti_flight_phase(NULL, "saving");
    tti_flight_commit(NULL, 1, 1);
    tti_flight_serve_stacks(NULL);
    tti_flight_leave(NULL);
    assert_null(tti_flight_layer_place(NULL, 0));
}

T_CASE(other_descriptors_are_refused) {
    T_UNUSED;
    tti_flight_memory *m;
    int fd = memfd_create("other", MFD_ALLOW_SEALING);
    T_FAILS(tti_flight_open(fd, &m), TUTTI_E_INVALID, "flight recorder");
    T_EQ(ftruncate(fd, 100000), 0);
    T_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    T_FAILS(tti_flight_open(fd, &m), TUTTI_E_INVALID, "another version");
    close(fd);
    T_FAILS(tti_flight_open(-1, &m), TUTTI_E_INVALID, "flight recorder");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(records_and_lanes),
                                       cmocka_unit_test(no_recorder_records_nothing),
                                       cmocka_unit_test(other_descriptors_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
