/* feeding_test.c - rows and places of the shards of a batch: a short last batch, another worker's
 * shards, a batch without memory. */
#include "train/feeding.h"

#include "t.h"

static const uint8_t x[4 * 64], y[4 * 64];

static tti_batch batch_of(int64_t n_rows_global) {
    return (tti_batch){.n_rows_global = n_rows_global,
                       .rows_per_shard = 3,
                       .n_shards = 4,
                       .x = x,
                       .y = y,
                       .x_shard_bytes = 64,
                       .y_shard_bytes = 32};
}

static void expect_rows(const tti_batch *batch, int first_shard, const int want[4]) {
    for (int i = 0; i < 4; i++) T_EQ(tti_shard_of(batch, i, first_shard).n_rows, want[i]);
}

T_CASE(rows_end_where_the_batch_ends) {
    T_UNUSED;
    tti_batch full = batch_of(24), last = batch_of(7);
    expect_rows(&full, 0, (const int[]){3, 3, 3, 3});
    expect_rows(&full, 4, (const int[]){3, 3, 3, 3});
    expect_rows(&last, 0, (const int[]){3, 3, 1, 0});
    expect_rows(&last, 2, (const int[]){1, 0, 0, 0});
}

T_CASE(memory_is_counted_from_the_workers_own_shards) {
    T_UNUSED;
    tti_batch batch = batch_of(24);
    tti_shard_data shard = tti_shard_of(&batch, 2, 4);
    assert_ptr_equal(shard.x, x + 128);
    assert_ptr_equal(shard.target, y + 64);
}

T_CASE(kept_samples_have_rows_and_no_memory) {
    T_UNUSED;
    tti_batch batch = batch_of(7);
    batch.x = batch.y = NULL;
    tti_shard_data shard = tti_shard_of(&batch, 1, 0);
    assert_null(shard.x);
    assert_null(shard.target);
    T_EQ(shard.n_rows, 3);
}

T_CASE(floats_need_no_table) {
    T_UNUSED;
    tti_step_desc step = {.n_channels = 7};
    tti_feeding_tell(NULL, &step);
    assert_null(step.value);
    T_EQ(step.n_channels, 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_end_where_the_batch_ends),
        cmocka_unit_test(memory_is_counted_from_the_workers_own_shards),
        cmocka_unit_test(kept_samples_have_rows_and_no_memory),
        cmocka_unit_test(floats_need_no_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
