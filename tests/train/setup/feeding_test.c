/* feeding_test.c - rows and places of the shards of a batch: a short last batch, another worker's
 * shards, a batch without memory; which cores the threads of a loader have. */
#include "train/setup/feeding.h"

#include <stdatomic.h>
#include <string.h>

#include "base/affinity.h"
#include "data/dataset_state.h"
#include "t.h"
#include "train/setup/worker_exec.h"
#include "train/small_job.h"

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
    tti_feeding_describe(NULL, &step);
    assert_null(step.value);
    T_EQ(step.n_channels, 7);
}

static atomic_int least_cores;

static tutti_status read_and_note(const tti_source *source, int64_t index, void *sample,
                                  int32_t *label) {
    tti_cores found;
    (void)source, (void)index;
    tti_cores_allowed(&found);
    if (found.n < atomic_load(&least_cores)) atomic_store(&least_cores, found.n);
    memset(sample, 0, 784 * sizeof(float));
    *label = 0;
    return TUTTI_OK;
}

/* Loading many images beside a GPU wants as many cores as threads; the caller is bound to one. */
T_CASE(threads_have_all_cores_of_the_worker) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("parallel.devices=cpu");
    const tti_blueprint *b;
    tti_exec *exec;
    tti_loader *loader;
    tti_core_share share;
    tti_batch batch;
    T_OK(tti_job_resolve(job, 1));
    T_OK(tti_blueprint_create(job, &b));
    tti_worker_cores(b, 0, 1, &share);
    T_OK(tti_worker_exec_create(b, &(tti_worker_desc){.local_n_ranks = 1}, &exec));
    tutti_dataset ds = {
        .source = {.info = *tutti_dataset_get_info(b->train), .read = read_and_note}};
    ds.source.stored = ds.source.info.x;
    atomic_store(&least_cores, share.cores.n);
    tti_loader_desc desc = {
        .dataset = &ds, .batch = 32, .n_shards = 4, .last_shard = 4, .n_threads = 3};
    T_OK(tti_feeding_open(&desc, exec, &loader));
    for (int i = 0; i < 4; i++) T_OK(tti_loader_next(loader, &batch));
    tti_loader_destroy(loader);
    T_EQ(atomic_load(&least_cores), share.cores.n);
    tti_exec_destroy(exec);
    tti_blueprint_destroy(b);
    tutti_job_destroy(job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_end_where_the_batch_ends),
        cmocka_unit_test(memory_is_counted_from_the_workers_own_shards),
        cmocka_unit_test(kept_samples_have_rows_and_no_memory),
        cmocka_unit_test(floats_need_no_table),
        cmocka_unit_test(threads_have_all_cores_of_the_worker)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
