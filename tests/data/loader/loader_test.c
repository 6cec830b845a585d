/* loader_test.c - what is delivered does not depend on workers, threads, or where it started. */
#include "data/loader/loader.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/philox.h"
#include "data/dataset_state.h"
#include "data/image/augment.h"
#include "data/loader/sampler.h"
#include "t.h"

/* ---- a data set for tests: sample i is {i, i+1, i+2} as i32, label i % 7 ---- */

enum { DIM = 3 };

typedef struct counting {
    int64_t bad_index;  /* this sample cannot be read; -1: none */
    int64_t slow_index; /* reading this one takes slow_ms       */
    int slow_ms;        /* STUCK: it does not end       */
    atomic_int n_reads;
    _Atomic pthread_t reader; /* of the last sample */
} counting;

enum { STUCK = -1, TIMEOUT_MS = 2000 };

/* Time passes only now, so that no waiter gives up before the sample is being read. */
static void be_stuck(void) {
    for (int ms = 0; ms < 2 * TIMEOUT_MS; ms += 75) {
        tti_sleep_ms(5);
        tti_clock_advance_ms(75);
    }
    tti_sleep_ms(60000);
}

static tutti_status counting_read(const tti_source *source, int64_t index, void *x, int32_t *y) {
    counting *state = source->state;
    atomic_fetch_add(&state->n_reads, 1);
    state->reader = pthread_self();
    if (index == state->bad_index)
        return tti_fail(TUTTI_E_DATA, "sample %lld is rotten", (long long)index);
    if (index == state->slow_index && state->slow_ms == STUCK) be_stuck();
    if (index == state->slow_index && state->slow_ms > 0) tti_sleep_ms(state->slow_ms);
    for (int i = 0; i < DIM; i++) ((int32_t *)x)[i] = (int32_t)index + i;
    *y = (int32_t)(index % 7);
    return TUTTI_OK;
}

static const tutti_type three_ints = {TUTTI_I32, {1, {DIM}}};

static tutti_dataset make_dataset(int64_t n, counting *state) {
    *state = (counting){.bad_index = -1, .slow_index = -1};
    return (tutti_dataset){.source = {.info = {n, 7, three_ints, {TUTTI_I32, {0}}},
                                      .stored = three_ints,
                                      .read = counting_read,
                                      .state = state}};
}

/* A random transform: x += a number drawn from the sample's key. */
static tutti_status jitter_infer(const tti_transform *self, const tutti_type *in, tutti_type *out) {
    (void)self;
    *out = *in;
    return TUTTI_OK;
}

static void jitter_apply(const tti_transform *self, const tti_sample_key *key, const void *in,
                         void *out) {
    (void)self;
    tti_philox draw = tti_philox_draw(key->seed, key->epoch, key->index);
    for (int i = 0; i < DIM; i++)
        ((int32_t *)out)[i] = ((const int32_t *)in)[i] + (int32_t)(draw.v[i] % 1000);
}

static void jitter_destroy(tti_transform *self) { (void)self; }

static tti_transform jitter = {"jitter", jitter_infer, jitter_apply, jitter_destroy, NULL};

/* ---- what should come, made the slow way ---- */

/* Row of shard `shard` in step `step`; x_out is zeros and the label -1 where there is none. */
static int32_t expected_row(const tti_loader_desc *d, int64_t epoch, int64_t step, int64_t shard,
                            int64_t row, int32_t x_out[DIM]) {
    int64_t n = tutti_dataset_get_info(d->dataset)->n_samples,
            b = (d->batch + d->n_shards - 1) / d->n_shards;
    int64_t in_batch = shard * b + row, position = step * d->batch + in_batch;
    memset(x_out, 0, DIM * sizeof *x_out);
    if (in_batch >= d->batch || position >= n) return -1;
    uint64_t index =
        d->sequential ? (uint64_t)position
                      : tti_sampler_at((uint64_t)n, d->seed, (uint64_t)epoch, (uint64_t)position);
    for (int i = 0; i < DIM; i++) x_out[i] = (int32_t)index + i;
    if (d->transforms.n > 0) {
        int32_t in[DIM];
        memcpy(in, x_out, sizeof in);
        jitter_apply(&jitter, &(tti_sample_key){d->seed, (uint64_t)epoch, index}, in, x_out);
    }
    return (int32_t)(index % 7);
}

static int64_t assert_batch(const tti_loader_desc *d, const tti_batch *batch, int64_t epoch,
                            int64_t step) {
    T_EQ(batch->epoch, epoch);
    T_EQ(batch->step, step);
    T_EQ(batch->n_shards, d->last_shard - d->first_shard);
    int64_t n_rows = 0;
    for (int s = 0; s < batch->n_shards; s++) {
        const int32_t *x = tti_batch_x(batch, s), *y = tti_batch_y(batch, s);
        T_EQ((uintptr_t)x % 64, 0);
        T_EQ((uintptr_t)y % 64, 0);
        for (int64_t r = 0; r < batch->rows_per_shard; r++) {
            int32_t row[DIM];
            T_EQ(y[r], expected_row(d, epoch, step, d->first_shard + s, r, row));
            assert_memory_equal(x + r * DIM, row, sizeof row);
            n_rows += y[r] >= 0;
        }
    }
    T_EQ(batch->n_rows, n_rows);
    return n_rows;
}

/* All W workers over two epochs, compared row by row; every sample comes once per epoch. */
static void check_workers(tti_loader_desc d, int n_workers) {
    int64_t n = tutti_dataset_get_info(d.dataset)->n_samples,
            steps = tti_steps_per_epoch(n, d.batch);
    int64_t n_epochs = d.sequential ? 1 : 2, n_rows = 0;
    for (int w = 0; w < n_workers; w++) {
        d.first_shard = w * d.n_shards / n_workers;
        d.last_shard = (w + 1) * d.n_shards / n_workers;
        tti_loader *loader;
        T_OK(tti_loader_create(&d, &loader));
        T_EQ(tti_loader_steps_per_epoch(loader), steps);
        for (int64_t t = 0; t < n_epochs * steps; t++) {
            tti_batch batch;
            T_OK(tti_loader_next(loader, &batch));
            T_EQ(batch.n_rows_global, tti_batch_n_rows(n, d.batch, t % steps));
            n_rows += assert_batch(&d, &batch, t / steps, t % steps);
        }
        tti_loader_destroy(loader);
    }
    T_EQ(n_rows, n * n_epochs);
}

T_CASE(any_workers_any_threads) {
    T_UNUSED;
    counting how;
    static const struct {
        int64_t n, batch;
        int n_shards;
    } sizes[] = {{100, 32, 8}, {97, 24, 8}, {50, 64, 8}, {5, 1, 1}, {64, 13, 8}, {33, 3, 8}};
    static const int workers[] = {1, 2, 3, 4, 8}, threads[] = {0, 1, 2};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
        for (size_t w = 0; w < 5; w++)
            for (size_t t = 0; t < 3; t++)
                for (int sequential = 0; sequential < 2; sequential++) {
                    tutti_dataset ds = make_dataset(sizes[k].n, &how);
                    tti_loader_desc d = {.dataset = &ds,
                                         .batch = sizes[k].batch,
                                         .seed = 11,
                                         .n_shards = sizes[k].n_shards,
                                         .sequential = sequential,
                                         .n_threads = threads[t],
                                         .n_prefetch = 3,
                                         .transforms = {1, {&jitter}}};
                    check_workers(d, workers[w]);
                }
}

static tti_loader_desc small_desc(const tutti_dataset *ds) {
    return (tti_loader_desc){.dataset = ds,
                             .batch = 20,
                             .n_shards = 4,
                             .last_shard = 4,
                             .seed = 1,
                             .n_threads = 2,
                             .n_prefetch = 4};
}

T_CASE(starts_anywhere) {
    T_UNUSED;
    counting how;
    tutti_dataset ds = make_dataset(90, &how);
    for (int64_t at = 0; at < 12; at++) {
        tti_loader_desc d = small_desc(&ds);
        d.epoch = at / 5;
        d.step = at % 5;
        tti_loader *loader;
        T_OK(tti_loader_create(&d, &loader));
        for (int64_t t = at; t < at + 7; t++) {
            tti_batch batch;
            T_OK(tti_loader_next(loader, &batch));
            assert_batch(&d, &batch, t / 5, t % 5);
        }
        tti_loader_destroy(loader);
    }
}

T_CASE(sought_anywhere) {
    T_UNUSED;
    static const int64_t order[] = {3, 0, 4, 4, 11, 5, 1};
    counting how;
    tutti_dataset ds = make_dataset(90, &how);
    tti_loader_desc d = small_desc(&ds);
    d.n_threads = 0;
    tti_loader *loader;
    T_OK(tti_loader_create(&d, &loader));
    for (size_t i = 0; i < TTI_COUNT(order); i++) {
        tti_loader_seek(loader, order[i] / 5, order[i] % 5);
        for (int64_t t = order[i]; t < order[i] + 3; t++) {
            tti_batch batch;
            T_OK(tti_loader_next(loader, &batch));
            assert_batch(&d, &batch, t / 5, t % 5);
        }
    }
    tti_loader_destroy(loader);
}

T_CASE(ends_where_reported) {
    T_UNUSED;
    counting how;
    tutti_dataset ds = make_dataset(90, &how);
    for (int k = 0; k < 4; k++) {
        tti_loader_desc d = small_desc(&ds);
        d.sequential = k < 2;
        d.n_steps = k % 2 ? 3 : d.sequential ? 0 : 7;
        d.n_threads = k;
        int64_t end = d.n_steps ? d.n_steps : 5;
        tti_loader *loader;
        tti_batch batch;
        T_OK(tti_loader_create(&d, &loader));
        for (int64_t t = 0; t < end; t++) T_OK(tti_loader_next(loader, &batch));
        T_FAILS(tti_loader_next(loader, &batch), TUTTI_E_INVALID, "batches were taken");
        T_FAILS(tti_loader_next(loader, &batch), TUTTI_E_INVALID, "batches were taken");
        tti_loader_destroy(loader);
        T_EQ(atomic_exchange(&how.n_reads, 0), end == 5 ? 90 : end == 3 ? 60 : 130);
    }
}

T_CASE(prefetch_is_bounded_and_used) {
    T_UNUSED;
    counting how;
    tutti_dataset ds = make_dataset(100000, &how);
    tti_loader_desc d = small_desc(&ds);
    tti_loader *loader;
    tti_batch batch;
    T_OK(tti_loader_create(&d, &loader));
    for (int t = 1; t <= 3; t++) {
        T_OK(tti_loader_next(loader, &batch));
        int n_expected = 20 * (t + 4);
        assert_true(t_wait_asleep());
        T_EQ(atomic_load(&how.n_reads), n_expected);
    }
    tti_loader_destroy(loader);
}

/* The held batch stays as it is while the next ones are made. */
T_CASE(held_batch_is_stable) {
    T_UNUSED;
    counting how;
    tutti_dataset ds = make_dataset(1000, &how);
    tti_loader_desc d = small_desc(&ds);
    d.n_prefetch = 1;
    tti_loader *loader;
    tti_batch batch;
    T_OK(tti_loader_create(&d, &loader));
    for (int64_t t = 0; t < 20; t++) {
        T_OK(tti_loader_next(loader, &batch));
        if (t % 5 == 0) assert_true(t_wait_asleep());
        assert_batch(&d, &batch, 0, t);
    }
    tti_loader_destroy(loader);
}

/* The error comes with its step, after all good batches before it, and stays. */
T_CASE(errors_arrive_in_order) {
    T_UNUSED;
    for (int n_threads = 0; n_threads < 4; n_threads++) {
        counting how;
        tutti_dataset ds = make_dataset(1000, &how);
        how.bad_index = 67;
        tti_loader_desc d = small_desc(&ds);
        d.sequential = true;
        d.n_threads = n_threads;
        tti_loader *loader;
        tti_batch batch;
        T_OK(tti_loader_create(&d, &loader));
        for (int64_t t = 0; t < 3; t++) {
            T_OK(tti_loader_next(loader, &batch));
            assert_batch(&d, &batch, 0, t);
        }
        const char *text = "loader: epoch 0 step 3: sample 67 is rotten";
        T_FAILS(tti_loader_next(loader, &batch), TUTTI_E_DATA, text);
        T_FAILS(tti_loader_next(loader, &batch), TUTTI_E_DATA, text);
        tti_loader_destroy(loader);
    }
}

T_CASE(waiting_is_measured) {
    T_UNUSED;
    counting how;
    tutti_dataset ds = make_dataset(1000, &how);
    how.slow_index = 25;
    how.slow_ms = 20;
    tti_loader_desc d = small_desc(&ds);
    d.sequential = true;
    d.n_threads = 0;
    tti_loader *loader;
    tti_batch batch;
    T_OK(tti_loader_create(&d, &loader));
    T_OK(tti_loader_next(loader, &batch));
    T_OK(tti_loader_next(loader, &batch));
    assert_true(batch.wait_ns >= 20 * TTI_NS_PER_MS);
    tti_loader_destroy(loader);
}

/* The thread that is stuck in the read is left with what it uses. */
static void wait_in_vain(tutti_dataset *ds, counting *how, int n_threads) {
    *ds = make_dataset(1000, how);
    how->slow_index = 5;
    how->slow_ms = STUCK;
    tti_loader_desc d = small_desc(ds);
    d.n_threads = n_threads;
    d.sequential = true;
    d.timeout_ms = TIMEOUT_MS;
    tti_loader *loader;
    tti_batch batch;
    long long waited_ms;
    T_OK(tti_loader_create(&d, &loader));
    T_FAILS(tti_loader_next(loader, &batch), TUTTI_E_TIMEOUT,
            " ms for a batch (the limit is 2000 ms): epoch 0 step 0, reading sample 5");
    T_EQ(sscanf(tutti_last_error(), "loader: waited %lld ms", &waited_ms), 1);
    assert_in_range(waited_ms, TIMEOUT_MS, 30000);
    int64_t start_ns = tti_now_ns();
    tti_loader_destroy(loader);
    assert_true(tti_now_ns() - start_ns < 30000 * TTI_NS_PER_MS);
    assert_true(ds->is_kept);
}

T_CASE(waiting_is_limited) {
    T_UNUSED;
    static counting how[2]; /* the thread that is left uses them */
    static tutti_dataset ds[2];
    wait_in_vain(&ds[0], &how[0], 2);
    wait_in_vain(&ds[1], &how[1], 0);
}

/* Any batch can be requested at any time; one thread makes it, and none is made ahead. */
T_CASE(batches_on_demand) {
    T_UNUSED;
    counting how;
    tutti_dataset ds = make_dataset(1000, &how);
    tti_loader_desc d = small_desc(&ds);
    tti_loader *plain, *limited;
    tti_batch a, b;
    d.n_threads = 0;
    T_OK(tti_loader_create(&d, &plain));
    d.timeout_ms = 60000;
    T_OK(tti_loader_create(&d, &limited));
    for (int64_t step = 5; step >= 0; step -= 2) {
        tti_loader_seek(plain, 2, step);
        tti_loader_seek(limited, 2, step);
        T_OK(tti_loader_next(plain, &a));
        int64_t n_read = how.n_reads;
        T_OK(tti_loader_next(limited, &b));
        T_EQ(how.n_reads - n_read, a.n_rows);
        T_EQ(b.step, step);
        assert_memory_equal(a.x, b.x, (size_t)a.n_shards * a.x_shard_bytes);
        assert_memory_equal(a.y, b.y, (size_t)a.n_shards * a.y_shard_bytes);
    }
    tti_loader_destroy(plain);
    tti_loader_destroy(limited);
}

static bool give_up_waiting(void *user, const char *what, int64_t waited_ms) {
    int *n_calls = user;
    if (!strstr(what, "reading sample 5 from 'somewhere'")) return true; /* not yet */
    return waited_ms < 0 || ++*n_calls < 2;
}

/* A read of a file may block, so another thread makes it; one that is computed cannot. */
T_CASE(drawn_samples_are_made_by_the_caller) {
    T_UNUSED;
    for (int is_drawn = 0; is_drawn < 2; is_drawn++) {
        counting how;
        tti_batch batch;
        tutti_dataset ds = make_dataset(90, &how);
        ds.source.is_drawn = is_drawn;
        tti_loader_desc d = small_desc(&ds);
        d.n_threads = 0;
        d.timeout_ms = 60000;
        tti_loader *l;
        T_OK(tti_loader_create(&d, &l));
        T_OK(tti_loader_next(l, &batch));
        T_EQ(pthread_equal(how.reader, pthread_self()) != 0, is_drawn);
        tti_loader_destroy(l);
    }
}

/* As a stop does. */
T_CASE(a_wait_can_be_ended) {
    T_UNUSED;
    static counting how;
    static tutti_dataset ds;
    int n_calls = 0;
    ds = make_dataset(1000, &how);
    how.slow_index = 5;
    how.slow_ms = STUCK;
    tti_loader_desc d = small_desc(&ds);
    d.sequential = true;
    d.on_wait = give_up_waiting;
    d.user = &n_calls;
    d.where = "somewhere";
    tti_loader *loader;
    tti_batch batch;
    T_OK(tti_loader_create(&d, &loader));
    T_FAILS(tti_loader_next(loader, &batch), TUTTI_E_TIMEOUT, " ms for a batch (the limit is ");
    T_EQ(n_calls, 2);
    tti_loader_destroy(loader);
}

T_CASE(can_be_stopped_at_any_time) {
    T_UNUSED;
    counting how;
    tutti_dataset ds = make_dataset(100000, &how);
    for (int k = 0; k < 200; k++) {
        tti_loader_desc d = small_desc(&ds);
        d.n_threads = 1 + k % 3;
        tti_loader *loader;
        tti_batch batch;
        T_OK(tti_loader_create(&d, &loader));
        for (int t = 0; t < k % 5; t++) T_OK(tti_loader_next(loader, &batch));
        tti_loader_destroy(loader);
    }
    tti_loader_destroy(NULL);
}

T_CASE(a_worker_without_shards) {
    T_UNUSED;
    counting how;
    tutti_dataset ds = make_dataset(50, &how);
    tti_loader_desc d = small_desc(&ds);
    d.first_shard = d.last_shard = 2;
    tti_loader *loader;
    tti_batch batch;
    T_OK(tti_loader_create(&d, &loader));
    T_OK(tti_loader_next(loader, &batch));
    T_EQ(batch.n_shards, 0);
    T_EQ(batch.n_rows, 0);
    T_EQ(batch.n_rows_global, 20);
    tti_loader_destroy(loader);
}

T_CASE(real_data_set) {
    T_UNUSED;
    tutti_dataset *ds;
    T_OK(tutti_dataset_open(
        &(tutti_dataset_desc){.format = "digits", .n_samples = 40, .mean = 0.1, .std = 0.3}, &ds));
    tti_loader_desc d = {
        .dataset = ds, .batch = 16, .n_shards = 2, .last_shard = 2, .seed = 9, .n_threads = 2};
    tti_loader *loader;
    T_OK(tti_loader_create(&d, &loader));
    for (int64_t t = 0; t < 3; t++) {
        tti_batch batch;
        T_OK(tti_loader_next(loader, &batch));
        for (int64_t p = 0; p < batch.n_rows_global; p++) {
            float x[784];
            int32_t y;
            uint64_t index = tti_sampler_at(40, 9, 0, (uint64_t)(t * 16 + p));
            T_OK(tutti_dataset_get(ds, (int64_t)index, x, &y));
            const float *got = tti_batch_x(&batch, (int)(p / 8));
            assert_memory_equal(got + p % 8 * 784, x, sizeof x);
            T_EQ(tti_batch_y(&batch, (int)(p / 8))[p % 8], y);
        }
    }
    tti_loader_destroy(loader);
    tutti_dataset_destroy(ds);
}

/* ---- mixup ---- */

/* Samples of floats: index, index + 1/2, ...; label index % 7, or -1 by a rotten sample. */
static tutti_status floats_read(const tti_source *source, int64_t index, void *x, int32_t *y) {
    TTI_TRY(counting_read(source, index, x, y));
    for (int i = 0; i < DIM; i++) ((float *)x)[i] = (float)index + 0.5F * (float)i;
    return TUTTI_OK;
}

static tutti_dataset make_floats(int64_t n, counting *state) {
    tutti_dataset ds = make_dataset(n, state);
    ds.source.stored = ds.source.info.x = (tutti_type){TUTTI_F32, {1, {DIM}}};
    ds.source.read = floats_read;
    return ds;
}

/* Every row is made of two samples of its shard by the weight that stands beside the labels. */
static void assert_mixed(const tti_loader_desc *d, const tti_batch *batch, int s) {
    const float *x = tti_batch_x(batch, s);
    const int32_t *y = tti_batch_y(batch, s);
    int64_t b = batch->rows_per_shard, first = (d->first_shard + s) * b;
    for (int64_t r = 0; r < b; r++, x += DIM, y += 3) {
        if (first + r >= batch->n_rows_global) {
            T_EQ(y[0], -1);
            T_EQ(y[1], -1);
            for (int i = 0; i < DIM; i++) T_NEAR(x[i], 0, 0);
            continue;
        }
        uint64_t n = (uint64_t)tutti_dataset_get_info(d->dataset)->n_samples,
                 epoch = (uint64_t)batch->epoch;
        int64_t start = batch->step * d->batch + first;
        double own = (double)tti_sampler_at(n, d->seed, epoch, (uint64_t)(start + r)), w, other;
        T_EQ(y[0], (int64_t)own % 7);
        w = y[2] / 16777216.0;
        bool found = false;
        for (int64_t k = 0; k < b && first + k < batch->n_rows_global && !found; k++) {
            other = (double)tti_sampler_at(n, d->seed, epoch, (uint64_t)(start + k));
            found = (int64_t)other % 7 == y[1] && fabs(w * own + (1 - w) * other - x[0]) < 1e-4;
        }
        if (!found) fail_msg("row %d is not made of two samples", (int)r);
        for (int i = 1; i < DIM; i++) T_NEAR(x[i], x[0] + 0.5F * (float)i, 1e-6);
    }
}

/* Batches of all workers, shard after shard, as one run of bytes. */
static void collect_mixed(tti_loader_desc d, int n_workers, uint8_t *out) {
    enum { SHARD_BYTES = 8 * (DIM + 3) * 4 };
    int64_t steps = tti_steps_per_epoch(tutti_dataset_get_info(d.dataset)->n_samples, d.batch);
    for (int w = 0; w < n_workers; w++) {
        d.first_shard = w * d.n_shards / n_workers;
        d.last_shard = (w + 1) * d.n_shards / n_workers;
        tti_loader *loader;
        T_OK(tti_loader_create(&d, &loader));
        for (int64_t t = 0; t < 2 * steps; t++) {
            tti_batch batch;
            T_OK(tti_loader_next(loader, &batch));
            T_EQ(batch.rows_per_shard, 8);
            for (int s = 0; s < batch.n_shards; s++) {
                uint8_t *to = out + (t * d.n_shards + d.first_shard + s) * SHARD_BYTES;
                assert_mixed(&d, &batch, s);
                memcpy(to, tti_batch_x(&batch, s), 8 * DIM * 4);
                memcpy(to + 8 * DIM * 4, tti_batch_y(&batch, s), 8 * 3 * 4);
            }
        }
        tti_loader_destroy(loader);
    }
}

T_CASE(mixed_by_any_workers_any_threads) {
    T_UNUSED;
    enum { BYTES = 2 * 4 * 4 * 8 * (DIM + 3) * 4 }; /* epochs, steps, shards, rows */
    static uint8_t first[BYTES], other[BYTES];
    counting how;
    tutti_dataset ds = make_floats(109, &how); /* the last batch: 8 rows, 5, and none twice */
    tti_loader_desc d = {.dataset = &ds, .batch = 32, .n_shards = 4, .seed = 5, .mixup = 0.4};
    collect_mixed(d, 1, first);
    T_EQ(how.n_reads, 2 * 109); /* no sample is read twice for being mixed */
    for (int n_workers = 1; n_workers <= 4; n_workers *= 2) {
        for (d.n_threads = 0; d.n_threads < 4; d.n_threads++) {
            memset(other, 0xEE, sizeof other);
            collect_mixed(d, n_workers, other);
            assert_memory_equal(first, other, sizeof first);
        }
    }
}

/* ---- bytes ---- */

enum { SIDE = 4, BYTES = SIDE * SIDE * 3 };

/* Sample 5 cannot be read. */
static tutti_status images_read(const tti_source *source, int64_t index, void *x, int32_t *y) {
    (void)source;
    if (index == 5) return tti_fail(TUTTI_E_DATA, "a rotten image");
    for (int i = 0; i < BYTES; i++) ((uint8_t *)x)[i] = (uint8_t)(index * 37 + i * 11);
    *y = (int32_t)(index % 7);
    return TUTTI_OK;
}

static tutti_dataset make_images(int64_t cutout, tti_skip_list *skips) {
    static const double mean[3] = {0.4, 0.5, 0.6}, std[3] = {0.2, 0.3, 0.4};
    tutti_dataset ds = {
        .source = {.info = {21, 7, {TUTTI_F32, {3, {3, SIDE, SIDE}}}, {TUTTI_I32, {0}}},
                   .stored = {TUTTI_U8, {3, {SIDE, SIDE, 3}}},
                   .read = images_read},
        .skips = skips};
    T_OK(tti_pad_crop_create(SIDE, 1, &ds.source.decode.step[0]));
    T_OK(tti_to_float_create(SIDE, mean, std, cutout, &ds.source.decode.step[1]));
    ds.source.decode.n = 2;
    return ds;
}

/* The values that a device computes from a row of bytes. */
static void expect_row(const tti_pixel_table *table, const uint8_t *bytes, int32_t y,
                       const float *want) {
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < SIDE * SIDE; i++) {
            float x = y < 0 ? 0.0F : table->value[c][bytes[i * 3 + c]];
            assert_memory_equal(&x, &want[c * SIDE * SIDE + i], sizeof x);
        }
}

T_CASE(bytes_and_their_table_make_the_floats) {
    T_UNUSED;
    tti_skip_list *skips;
    T_OK(tti_skip_list_create(21, &skips));
    tutti_dataset ds = make_images(0, skips);
    tti_loader_desc d = {.dataset = &ds, .batch = 10, .n_shards = 4, .last_shard = 4, .seed = 3};
    tti_loader *bytes, *floats;
    T_OK(tti_loader_create(&d, &floats));
    d.bytes = true;
    d.n_threads = 2;
    T_OK(tti_loader_create(&d, &bytes));
    assert_null(tti_loader_pixels(floats));
    assert_non_null(tti_loader_pixels(bytes));
    int n_missing = 0;
    for (int step = 0; step < 6; step++) {
        tti_batch want, got;
        T_OK(tti_loader_next(floats, &want));
        T_OK(tti_loader_next(bytes, &got));
        for (int s = 0; s < 4; s++)
            for (int64_t r = 0; r < want.rows_per_shard; r++) {
                int32_t y = tti_batch_y(&got, s)[r];
                T_EQ(y, tti_batch_y(&want, s)[r]);
                n_missing += y < 0;
                expect_row(tti_loader_pixels(bytes),
                           (const uint8_t *)tti_batch_x(&got, s) + r * BYTES, y,
                           (const float *)tti_batch_x(&want, s) + r * BYTES);
            }
    }
    assert_true(n_missing > 2); /* padding, and the one that cannot be read, in two epochs */
    tti_loader_destroy(bytes);
    tti_loader_destroy(floats);
    tti_chain_destroy(&ds.source.decode);
    tti_skip_list_destroy(skips);
}

T_CASE(floats_where_bytes_do_not_tell_all) {
    T_UNUSED;
    tutti_dataset ds = make_images(2, NULL); /* squares of zeros are cut out */
    tti_loader_desc d = {.dataset = &ds, .batch = 3, .n_shards = 1, .last_shard = 1, .bytes = true};
    tti_loader *loader;
    T_OK(tti_loader_create(&d, &loader));
    assert_null(tti_loader_pixels(loader));
    tti_loader_destroy(loader);
    tti_chain_destroy(&ds.source.decode);
    ds = make_images(0, NULL);
    d.mixup = 0.4;
    T_OK(tti_loader_create(&d, &loader));
    assert_null(tti_loader_pixels(loader));
    tti_loader_destroy(loader);
    tti_chain_destroy(&ds.source.decode);
}

T_CASE(mixup_hears_of_failures) {
    T_UNUSED;
    for (int n_threads = 0; n_threads < 3; n_threads++) {
        counting how;
        tutti_dataset ds = make_floats(90, &how);
        how.bad_index = 20;
        tti_loader_desc d = {.dataset = &ds,
                             .batch = 90,
                             .n_shards = 2,
                             .last_shard = 2,
                             .n_threads = n_threads,
                             .mixup = 1};
        tti_loader *loader;
        tti_batch batch;
        T_OK(tti_loader_create(&d, &loader));
        T_FAILS(tti_loader_next(loader, &batch), TUTTI_E_DATA, "sample 20 is rotten");
        tti_loader_destroy(loader);
    }
}

static void expect_bad(tti_loader_desc d, tutti_status status, const char *text) {
    tti_loader *loader = (tti_loader *)&d; /* must become NULL */
    T_FAILS(tti_loader_create(&d, &loader), status, text);
    assert_null(loader);
}

T_CASE(bad_desc) {
    T_UNUSED;
    counting how;
    tutti_dataset ds = make_dataset(90, &how);
    tti_loader_desc d = small_desc(&ds);
#define BAD(field, value, text)                 \
    do {                                        \
        tti_loader_desc bad = d;                \
        bad.field = value;                      \
        expect_bad(bad, TUTTI_E_INVALID, text); \
    } while (0)
    BAD(dataset, NULL, "a data set");
    BAD(batch, 0, "got batch 0");
    BAD(batch, INT64_MAX, "got batch 9223372036854775807");
    BAD(n_shards, 0, "0 shards");
    BAD(first_shard, -1, "shards -1 .. 4 of 4");
    BAD(last_shard, 5, "shards 0 .. 5 of 4");
    BAD(first_shard, 5, "do not exist");
    BAD(n_threads, -1, "-1 threads");
    BAD(n_threads, 1000000, "1000000 threads");
    BAD(n_prefetch, 1000000, "prefetch 1000000");
    BAD(epoch, -1, "negative");
    BAD(n_steps, -1, "negative");
    BAD(timeout_ms, -1, "negative");
    BAD(step, 5, "step 5 of an epoch of 5 steps");
    BAD(step, -1, "step -1");
    BAD(mixup, -0.5, "mixup -0.5 is not a number");
    BAD(mixup, (double)INFINITY, "mixup inf");
    BAD(mixup, 1, "mixup needs samples of f32 with one label each");
    d.transforms.n = TTI_MAX_TRANSFORMS + 1;
    expect_bad(d, TUTTI_E_INVALID, "9 steps");
}

T_CASE(too_large_for_memory) {
    T_UNUSED;
    counting how;
    tutti_dataset ds = make_dataset(90, &how);
    ds.source.stored.shape.dim[0] = INT64_C(1) << 58;
    tti_loader_desc d = small_desc(&ds);
    d.batch = 1 << 30;
    expect_bad(d, TUTTI_E_NOMEM, "out of memory for 5 batches of 4 shards");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_workers_any_threads),
        cmocka_unit_test(starts_anywhere),
        cmocka_unit_test(sought_anywhere),
        cmocka_unit_test(ends_where_reported),
        cmocka_unit_test(prefetch_is_bounded_and_used),
        cmocka_unit_test(held_batch_is_stable),
        cmocka_unit_test(errors_arrive_in_order),
        cmocka_unit_test(waiting_is_measured),
        cmocka_unit_test(waiting_is_limited),
        cmocka_unit_test(batches_on_demand),
        cmocka_unit_test(drawn_samples_are_made_by_the_caller),
        cmocka_unit_test(a_wait_can_be_ended),
        cmocka_unit_test(can_be_stopped_at_any_time),
        cmocka_unit_test(a_worker_without_shards),
        cmocka_unit_test(real_data_set),
        cmocka_unit_test(mixed_by_any_workers_any_threads),
        cmocka_unit_test(bytes_and_their_table_make_the_floats),
        cmocka_unit_test(floats_where_bytes_do_not_tell_all),
        cmocka_unit_test(mixup_hears_of_failures),
        cmocka_unit_test(bad_desc),
        cmocka_unit_test(too_large_for_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
