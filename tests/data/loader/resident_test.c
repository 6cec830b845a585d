/* resident_test.c - what indices and tables give is what the loader delivers, bit for bit. */
#include "data/loader/resident.h"

#include <stdlib.h>

#include "base/error.h"
#include "data/dataset_state.h"
#include "data/image/augment.h"
#include "t.h"

enum { STEPS = 9, SIDE = 5, PIXELS = SIDE * SIDE };

/* Sample i (-1: zeros, label -1) as the model sees it: x [n_elems]. */
static void sample_of(const tti_resident *set, int64_t i, float *x, int32_t *y) {
    size_t n = (size_t)set->n_elems, n_channels = (size_t)set->table.n_channels;
    *y = i < 0 ? -1 : set->y[i];
    for (size_t e = 0; e < n; e++) {
        size_t c = e % n_channels, at = c * (n / n_channels) + e / n_channels;
        x[at] = i < 0 ? 0.0f : set->table.value[c][set->x[(size_t)i * n + e]];
    }
}

/* Every row of every batch of both, for V shards of which one worker has first .. last-1. */
static void expect_same(const tutti_dataset *ds, tti_loader_desc desc) {
    tti_resident set;
    tti_loader *loader;
    desc.dataset = ds;
    assert_null(tti_resident_why_not(ds));
    T_OK(tti_resident_load(ds, (int)(desc.seed % 4), &set));
    T_OK(tti_loader_create(&desc, &loader));
    int64_t b = tti_rows_per_shard(desc.batch, desc.n_shards);
    int n_shards = desc.last_shard - desc.first_shard;
    int32_t *index = calloc((size_t)(n_shards * b), sizeof *index), y;
    float *x = calloc((size_t)set.n_elems, sizeof *x);
    assert_true(index && x);
    for (int64_t step = 0; step < STEPS; step++) {
        tti_batch want, got;
        T_OK(tti_loader_next(loader, &want));
        tti_resident_batch(&desc, step, &got, index);
        T_EQ(got.epoch, want.epoch);
        T_EQ(got.step, want.step);
        T_EQ(got.n_rows, want.n_rows);
        T_EQ(got.n_rows_global, want.n_rows_global);
        T_EQ(got.rows_per_shard, want.rows_per_shard);
        for (int64_t i = 0; i < n_shards * b; i++) {
            const float *row = tti_batch_x(&want, (int)(i / b));
            sample_of(&set, index[i], x, &y);
            T_EQ(y, tti_batch_y(&want, (int)(i / b))[i % b]);
            assert_memory_equal(x, row + (size_t)(i % b) * (size_t)set.n_elems,
                                (size_t)set.n_elems * sizeof *x);
        }
    }
    tti_loader_destroy(loader);
    tti_resident_free(&set);
    free(index);
    free(x);
}

T_CASE(grey_images) {
    T_UNUSED;
    tutti_dataset *ds;
    T_OK(tutti_dataset_open(
        &(tutti_dataset_desc){
            .format = "digits", .split = TUTTI_TRAIN, .n_samples = 50, .mean = 0.13, .std = 0.3},
        &ds));
    T_EQ(tti_resident_bytes(ds), 50 * 28 * 28);
    expect_same(ds, (tti_loader_desc){.batch = 16, .n_shards = 1, .last_shard = 1, .seed = 3});
    expect_same(ds, (tti_loader_desc){.batch = 13, .n_shards = 4, .last_shard = 2, .seed = 4});
    expect_same(ds,
                (tti_loader_desc){.batch = 5, .n_shards = 8, .first_shard = 4, .last_shard = 8});
    tutti_dataset_destroy(ds);
}

static tutti_status colours_read(const tti_source *source, int64_t index, void *x, int32_t *y) {
    (void)source;
    for (int i = 0; i < 3 * PIXELS; i++) ((uint8_t *)x)[i] = (uint8_t)(index * 31 + i * 7);
    *y = (int32_t)(index % 4);
    return TUTTI_OK;
}

static tutti_dataset colours(int64_t cutout) {
    static const double mean[3] = {0.4, 0.5, 0.6}, std[3] = {0.2, 0.3, 0.4};
    tutti_dataset ds = {
        .source = {.info = {20, 4, {TUTTI_F32, {3, {3, SIDE, SIDE}}}, {TUTTI_I32, {0}}},
                   .stored = {TUTTI_U8, {3, {SIDE, SIDE, 3}}},
                   .is_fixed = true,
                   .read = colours_read}};
    T_OK(tti_to_float_create(SIDE, mean, std, cutout, &ds.source.decode.step[0]));
    ds.source.decode.n = 1;
    return ds;
}

T_CASE(images_with_colours_become_planes) {
    T_UNUSED;
    tutti_dataset ds = colours(0);
    expect_same(&ds, (tti_loader_desc){.batch = 6, .n_shards = 2, .last_shard = 2, .seed = 1});
    tti_chain_destroy(&ds.source.decode);
}

static tutti_status broken_read(const tti_source *source, int64_t index, void *x, int32_t *y) {
    if (index == 1501 || index == 1700)
        return tti_fail(TUTTI_E_IO, "sample %lld is broken", (long long)index);
    return colours_read(source, index, x, y);
}

/* The first one is named, whichever thread reads it and whatever else is broken. */
T_CASE(the_first_broken_sample_is_named) {
    T_UNUSED;
    tutti_dataset ds = colours(0);
    ds.source.info.n_samples = 2000, ds.source.read = broken_read;
    for (int n_threads = 0; n_threads < 5; n_threads++) {
        tti_resident set;
        T_FAILS(tti_resident_load(&ds, n_threads, &set), TUTTI_E_DATA, "sample 1501 is broken");
        tti_resident_free(&set);
    }
    tti_chain_destroy(&ds.source.decode);
}

T_CASE(what_is_random_stays_on_the_host) {
    T_UNUSED;
    tutti_dataset ds = colours(2);
    assert_non_null(tti_resident_why_not(&ds));
    tti_chain_destroy(&ds.source.decode);
    ds = colours(0);
    assert_null(tti_resident_why_not(&ds));
    ds.source.is_fixed = false;
    assert_non_null(tti_resident_why_not(&ds));
    tti_chain_destroy(&ds.source.decode);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(grey_images),
                                       cmocka_unit_test(images_with_colours_become_planes),
                                       cmocka_unit_test(the_first_broken_sample_is_named),
                                       cmocka_unit_test(what_is_random_stays_on_the_host)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
