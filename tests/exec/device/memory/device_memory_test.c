/* device_memory_test.c - what a step needs, and the number of shards that is named where it does
 * not fit. */
#include "exec/device/memory/device_memory.h"

#include "t.h"

enum { MIB = 1 << 20 };

/* 4 arrays of 100 MiB, 1000 MiB of activations for 64 rows, 10 MiB of samples: 1410 MiB. */
static const tti_device_need need = {.flat = 100 * (size_t)MIB,
                                     .state = 100 * (size_t)MIB,
                                     .arena = 1000 * (size_t)MIB,
                                     .inputs = 10 * (size_t)MIB,
                                     .n_states = 2,
                                     .n_grads = 1,
                                     .n_arenas = 1,
                                     .n_shards = 4,
                                     .most_shards = 64,
                                     .rows = 64};

static tutti_status check(size_t n_mib) { return tti_device_need_check(&need, n_mib * MIB); }

T_CASE(it_fits) {
    T_UNUSED;
    T_EQ(tti_device_need_bytes(&need), 1410 * (size_t)MIB);
    T_OK(check(1410));
    T_FAILS(check(1409), TUTTI_E_NOMEM,
            "the step needs 1.38 GiB of device memory, more than the "
            "free 1.38 GiB: activations of a shard 1000.0 MiB, "
            "parameters 100.0 MiB, optimizer state 200.0 MiB, "
            "gradients 100.0 MiB, samples 10.0 MiB.  ");
}

/* Half the activations and one buffer more: 1010 MiB; a quarter and two: 860. */
T_CASE(shards_that_would_do) {
    T_UNUSED;
    T_FAILS(check(1010), TUTTI_E_NOMEM, "parallel.shards=8 would need about 1010.0 MiB; a smaller");
    T_FAILS(check(1009), TUTTI_E_NOMEM, "parallel.shards=16 would need about 860.0 MiB");
    T_FAILS(check(835), TUTTI_E_NOMEM, "parallel.shards=32 would need about 835.0 MiB");
    T_FAILS(check(834), TUTTI_E_NOMEM,
            "No number of shards fits: use a smaller model or train.batch, train.recompute=block");
}

/* Two states of 100 MiB on four workers: 50 MiB in all instead of 200. */
T_CASE(state_in_parts) {
    T_UNUSED;
    tti_device_need of_four = need;
    of_four.n_ranks = 4;
    T_FAILS(tti_device_need_check(&of_four, 1260 * (size_t)MIB), TUTTI_E_NOMEM,
            "parallel.zero=1 would need about 1.23 GiB.  parallel.shards=8 would need about 1010");
    T_FAILS(tti_device_need_check(&of_four, 1259 * (size_t)MIB), TUTTI_E_NOMEM,
            "samples 10.0 MiB.  parallel.shards=8");
    of_four.state = need.flat / 4; /* it is so already */
    T_FAILS(tti_device_need_check(&of_four, 1200 * (size_t)MIB), TUTTI_E_NOMEM,
            "samples 10.0 MiB.  parallel.shards=8");
}

/* The least that must be partitioned: 150 MiB less with the state, 70 more with gradients, 60 more
 * with parameters. */
T_CASE(as_little_in_parts_as_does) {
    T_UNUSED;
    static const struct {
        size_t n_mib;
        const char *reported;
    } rows[] = {
        {1260, "parallel.zero=1 would need about 1.23 GiB.  parallel.shards"},
        {1259, "samples 10.0 MiB.  parallel.zero=2 would need about 1.16 GiB.  parallel.sh"},
        {1189, "samples 10.0 MiB.  parallel.zero=3 would need about 1.10 GiB.  parallel.sh"},
        {1129, "samples 10.0 MiB.  parallel.shards=8"}};
    tti_device_need of_four = need;
    of_four.n_ranks = 4;
    of_four.partitioned[0].params = 100 * (size_t)MIB,
    of_four.partitioned[0].grads = 30 * (size_t)MIB;
    of_four.partitioned[1].params = 40 * (size_t)MIB,
    of_four.partitioned[1].grads = 30 * (size_t)MIB;
    for (size_t i = 0; i < TTI_COUNT(rows); i++)
        T_FAILS(tti_device_need_check(&of_four, rows[i].n_mib * MIB), TUTTI_E_NOMEM,
                rows[i].reported);
}

/* 30 MiB of parameters and 40 of gradients instead of 100 each; a buffer more is a whole one. */
T_CASE(all_in_parts) {
    T_UNUSED;
    tti_device_need sharded = need;
    sharded.params = 30 * (size_t)MIB;
    sharded.grads = 40 * (size_t)MIB;
    sharded.state = 25 * (size_t)MIB;
    T_EQ(tti_device_need_bytes(&sharded), 1130 * (size_t)MIB);
    T_FAILS(tti_device_need_check(&sharded, 1129 * (size_t)MIB), TUTTI_E_NOMEM,
            "parameters 30.0 MiB, optimizer state 50.0 MiB, gradients 40.0 MiB, samples 10.0 MiB.  "
            "parallel.shards=8 would need about 730.0 MiB");
}

/* A workspace is as large for a shard of fewer rows. */
T_CASE(with_scratch) {
    T_UNUSED;
    tti_device_need known = need;
    known.scratch = 32 * (size_t)MIB;
    T_EQ(tti_device_need_bytes(&known), 1442 * (size_t)MIB);
    T_OK(tti_device_need_check(&known, 1442 * (size_t)MIB));
    T_FAILS(tti_device_need_check(&known, 1441 * (size_t)MIB), TUTTI_E_NOMEM,
            "samples 10.0 MiB, scratch of kernels 32.0 MiB.  parallel.shards=8 would need about "
            "1.02 GiB");
}

T_CASE(shards_that_there_cannot_be) {
    T_UNUSED;
    tti_device_need few = need;
    few.rows = 1;
    T_FAILS(tti_device_need_check(&few, 1200 * (size_t)MIB), TUTTI_E_NOMEM, "No number of shards");
    few = need;
    few.most_shards = 4;
    T_FAILS(tti_device_need_check(&few, 1200 * (size_t)MIB), TUTTI_E_NOMEM, "No number of shards");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(it_fits),
                                       cmocka_unit_test(shards_that_would_do),
                                       cmocka_unit_test(state_in_parts),
                                       cmocka_unit_test(as_little_in_parts_as_does),
                                       cmocka_unit_test(all_in_parts),
                                       cmocka_unit_test(with_scratch),
                                       cmocka_unit_test(shards_that_there_cannot_be)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
