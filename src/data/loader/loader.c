/* loader.c - a ring of batches that loader threads fill in advance.
 *
 * A batch is divided into chunks of rows, every chunk is a separate job, and threads always take
 * the first free chunk of the earliest unfinished batch.  So all threads together make the next
 * batch, and a chunk writes only its own rows: the result does not depend on which thread makes it.
 * With mixup one job per shard follows, which waits until all rows are there.
 *
 * Batch number k uses slot k % n_slots of the ring as soon as the previous batch in it has been
 * returned.  One mutex guards the numbers; rows are written outside of it. */
#include "data/loader/loader.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/blocked.h"
#include "base/error.h"
#include "base/fault.h"
#include "base/patience.h"
#include "base/thread.h"
#include "data/fields.h"
#include "data/loader/mixup.h"
#include "data/loader/sampler.h"

enum {
    CHUNK_ROWS = 16,
    ALIGN_BYTES = 64,
    MAX_THREADS = 256,
    MAX_PREFETCH = 1024,
    TEXT_BYTES = 1024,
    MAX_BATCH = 1 << 30,
    DEFAULT_LIMIT_MS = 60000,
    LOOK_MS = 50, /* from look to look while a batch does not come */
    /* Time for threads to return from a read before they are abandoned. */
    LEAVE_MS = 2000,
    LEAVE_LATE_MS = 300
};

typedef struct slot {
    uint8_t *x, *y;
    tti_permutation order; /* of the batch's epoch, unless sequential           */
    tti_batch batch;
    int64_t n_chunks, n_jobs; /* chunks of rows come first, then shards to be mixed */
    int64_t next_job, n_done;
    int64_t failed_job; /* the first one that failed, so that the text does not depend on time */
    tutti_status status;
    char text[TEXT_BYTES];
} slot;

typedef struct scratch {
    uint8_t *memory; /* two buffers of the chain */
    tti_workspace workspace;
    tti_loader *loader;
    bool is_at_work;       /* in a job; guarded by the mutex of the loader */
    _Atomic int tid;       /* of the thread, 0: not started */
    _Atomic int64_t reads; /* the sample that it reads */
} scratch;

struct tti_loader {
    tti_loader_desc desc;
    tti_chain chain; /* the data set's own steps and the loader's; all borrowed */
    tutti_type x_type;
    size_t chain_bytes, x_row_bytes, y_row_elems, stored_bytes;
    int64_t rows_per_shard, steps_per_epoch, end; /* end: number of batches, INT64_MAX: endless */
    tti_pixel_table pixels;                       /* no channels: x is the model input */

    int n_slots;
    slot *slots;
    int n_scratch, n_started; /* threads, or one scratch for the caller */
    scratch *scratches;
    pthread_t *threads;

    pthread_mutex_t mutex;              /* guards the next line, stop and the slots' counters */
    bool is_late;                       /* a batch did not come in time */
    bool is_awaited;                    /* the caller waits for a batch */
    int64_t n_opened, n_given, n_freed; /* batches that got a slot; the caller got; gave back */
    atomic_bool stop;
    pthread_cond_t work, ready; /* for the threads; for the caller */

    tutti_status failed; /* the caller's: what every later call returns */
    char text[TEXT_BYTES];
};

int64_t tti_rows_per_shard(int64_t batch, int n_shards) {
    return batch / n_shards + (batch % n_shards != 0);
}

/* ---- making a batch ---- */

/* Prepares the slot of batch number k: no row is there yet. */
static void open_slot(tti_loader *l, int64_t k) {
    slot *s = &l->slots[k % l->n_slots];
    int64_t at = l->desc.step + k;
    tti_batch *b = &s->batch;
    int n_shards = l->desc.last_shard - l->desc.first_shard;
    *b = (tti_batch){.epoch = l->desc.epoch + at / l->steps_per_epoch,
                     .step = at % l->steps_per_epoch,
                     .rows_per_shard = l->rows_per_shard,
                     .n_shards = n_shards,
                     .x = s->x,
                     .y = s->y,
                     .x_shard_bytes = b->x_shard_bytes,
                     .y_shard_bytes = b->y_shard_bytes};
    int64_t n = tutti_dataset_get_info(l->desc.dataset)->n_samples;
    b->n_rows_global = tti_batch_n_rows(n, l->desc.batch, b->step);
    int64_t first = TTI_MIN(l->desc.first_shard * l->rows_per_shard, b->n_rows_global);
    int64_t last = TTI_MIN(l->desc.last_shard * l->rows_per_shard, b->n_rows_global);
    b->n_rows = last - first;
    if (!l->desc.sequential)
        s->order = tti_sampler_epoch((uint64_t)n, l->desc.seed, (uint64_t)b->epoch);
    s->next_job = s->n_done = 0;
    s->status = TUTTI_OK;
    s->failed_job = INT64_MAX;
}

/* The sample at a place of the batch, counted over all shards. */
static tti_sample_key key_of(const tti_loader *l, const slot *s, int64_t in_batch) {
    const tti_batch *b = &s->batch;
    uint64_t position = (uint64_t)(b->step * l->desc.batch + in_batch);
    uint64_t index = l->desc.sequential ? position : tti_permutation_at(&s->order, position);
    return (tti_sample_key){l->desc.seed, (uint64_t)b->epoch, index};
}

/* The memory of a row of this worker's shards. */
typedef struct row_place {
    uint8_t *shard, *x; /* x: of the row, unless samples have fields */
    int32_t *y;
    int64_t row; /* of the shard */
} row_place;

static bool has_fields(const tti_loader *l) {
    return tutti_dataset_get_info(l->desc.dataset)->n_fields > 0;
}

static void put_fields(const tti_loader *l, const void *sample, const row_place *to) {
    const tutti_dataset_info *info = tutti_dataset_get_info(l->desc.dataset);
    tti_fields_put(info->fields, info->n_fields, sample, to->row, l->rows_per_shard, to->shard);
}

/* Row in_batch of the batch, counted over all shards, is not there: zeros, or the fields of the
 * first sample of the shard, or else of the batch, so that a model computes of it what it computes
 * of that sample too. */
static tutti_status clear_row(const tti_loader *l, const slot *s, const row_place *to,
                              int64_t in_batch, scratch *mine) {
    int64_t first = in_batch - in_batch % s->batch.rows_per_shard;
    if (has_fields(l)) {
        tti_sample_key key = key_of(l, s, first < s->batch.n_rows_global ? first : 0);
        bool skipped;
        TTI_TRY(tti_dataset_read(l->desc.dataset, &key, &mine->workspace, mine->memory, to->y,
                                 &skipped));
        if (atomic_load_explicit(&l->stop, memory_order_relaxed)) return TUTTI_OK;
        if (skipped) memset(mine->memory, 0, l->x_row_bytes);
        put_fields(l, mine->memory, to);
    } else {
        memset(to->x, 0, l->x_row_bytes);
    }
    for (size_t i = 0; i < l->y_row_elems; i++) to->y[i] = -1;
    return TUTTI_OK;
}

static row_place place_of(const tti_loader *l, const slot *s, int64_t i) {
    const tti_batch *b = &s->batch;
    int64_t shard = i / b->rows_per_shard, row = i % b->rows_per_shard;
    uint8_t *x = s->x + (size_t)shard * b->x_shard_bytes;
    int32_t *y = (int32_t *)(void *)(s->y + (size_t)shard * b->y_shard_bytes);
    return (row_place){x, x + (size_t)row * l->x_row_bytes, y + (size_t)row * l->y_row_elems, row};
}

/* Row i of the slot, counted over the worker's shards. */
static tutti_status load_row(const tti_loader *l, slot *s, int64_t i, scratch *mine) {
    void *const buffers[2] = {mine->memory, mine->memory + l->chain_bytes};
    const row_place to = place_of(l, s, i);
    int64_t in_batch = l->desc.first_shard * s->batch.rows_per_shard + i;
    if (in_batch >= s->batch.n_rows_global) return clear_row(l, s, &to, in_batch, mine);
    tti_sample_key key = key_of(l, s, in_batch);
    bool skipped, as_stored = l->chain.n == 0 && !has_fields(l); /* written to its place directly */
    atomic_store_explicit(&mine->reads, (int64_t)key.index, memory_order_relaxed);
    (void)TTI_FAULT_AT("loader.read", l->desc.first_shard, s->batch.step);
    TTI_TRY(tti_dataset_read(l->desc.dataset, &key, &mine->workspace, as_stored ? to.x : buffers[0],
                             to.y, &skipped));
    if (atomic_load_explicit(&l->stop, memory_order_relaxed)) return TUTTI_OK; /* it was left */
    if (skipped) return clear_row(l, s, &to, in_batch, mine);
    if (has_fields(l))
        put_fields(l, buffers[0], &to);
    else if (!as_stored)
        tti_chain_apply(&l->chain, &key, buffers, l->stored_bytes, to.x);
    for (int64_t k = 0; l->desc.only_target > 0 && k < (int64_t)l->y_row_elems; k++)
        if (k + 1 != l->desc.only_target) to.y[k] = -1;
    return TUTTI_OK;
}

static tutti_status load_chunk(const tti_loader *l, slot *s, int64_t chunk, scratch *mine) {
    int64_t n = s->batch.rows_per_shard * s->batch.n_shards;
    int64_t end = TTI_MIN((chunk + 1) * CHUNK_ROWS, n);
    for (int64_t i = chunk * CHUNK_ROWS; i < end; i++) TTI_TRY(load_row(l, s, i, mine));
    return TUTTI_OK;
}

/* Shard i of this worker; all rows of the batch are loaded. */
static void mix_shard(const tti_loader *l, const slot *s, int64_t i) {
    const tti_batch *b = &s->batch;
    int64_t first = (l->desc.first_shard + i) * b->rows_per_shard;
    int64_t n_rows = TTI_MAX(0, TTI_MIN(b->n_rows_global - first, b->rows_per_shard));
    tti_mixup_apply(&(tti_mixup){.alpha = l->desc.mixup,
                                 .seed = l->desc.seed,
                                 .epoch = (uint64_t)b->epoch,
                                 .position = (uint64_t)(b->step * l->desc.batch + first),
                                 .n_rows = n_rows,
                                 .row_elems = l->x_row_bytes / sizeof(float),
                                 .x = (float *)(void *)(s->x + (size_t)i * b->x_shard_bytes),
                                 .y = (int32_t *)(void *)(s->y + (size_t)i * b->y_shard_bytes)});
}

/* ---- threads ---- */

static void open_slots(tti_loader *l) {
    while (l->n_opened < l->end && l->n_opened < l->n_freed + l->n_slots) {
        open_slot(l, l->n_opened);
        l->n_opened++;
    }
}

/* A shard can be mixed when every chunk is done, a chunk can always be loaded. */
static bool has_work(const slot *s) {
    return s->next_job < s->n_chunks || (s->next_job < s->n_jobs && s->n_done >= s->n_chunks);
}

/* Without threads of its own a loader makes no batch ahead.  Where the wait for one is limited, a
 * thread makes it while the caller waits, since a read that blocks cannot be ended. */
static int count_threads(const tti_loader_desc *d) {
    bool needs_one = d->timeout_ms > 0 && !tti_dataset_is_drawn(d->dataset);
    return d->n_threads == 0 && needs_one ? 1 : d->n_threads;
}

/* The earliest batch with something to do, NULL if there is none. */
static slot *find_work(tti_loader *l) {
    if (l->desc.n_threads == 0 && !l->is_awaited) return NULL;
    for (int64_t k = l->n_given; k < l->n_opened; k++) {
        slot *s = &l->slots[k % l->n_slots];
        if (has_work(s)) return s;
    }
    return NULL;
}

/* Copies the last error of this thread. */
static void keep_text(char text[TEXT_BYTES]) {
    size_t n = strnlen(tutti_last_error(), TEXT_BYTES - 1);
    memcpy(text, tutti_last_error(), n);
    text[n] = '\0';
}

/* Called with the mutex held, which is let go while rows are loaded. */
static void run_job(tti_loader *l, slot *s, scratch *mine) {
    int64_t job = s->next_job++;
    bool is_good = s->status == TUTTI_OK; /* what failed to load is not mixed */
    tutti_status st = TUTTI_OK;
    mine->is_at_work = true;
    pthread_mutex_unlock(&l->mutex);
    if (job < s->n_chunks)
        st = load_chunk(l, s, job, mine);
    else if (is_good)
        mix_shard(l, s, job - s->n_chunks);
    pthread_mutex_lock(&l->mutex);
    mine->is_at_work = false;
    if (st != TUTTI_OK && job < s->failed_job) {
        s->status = st;
        s->failed_job = job;
        keep_text(s->text);
    }
    if (++s->n_done == s->n_jobs)
        pthread_cond_signal(&l->ready);
    else if (s->n_done == s->n_chunks)
        pthread_cond_broadcast(&l->work);
}

/* The recorder may be gone when a read ends after the loader was destroyed. */
static void run_recorded_job(tti_loader *l, slot *s, scratch *mine) {
    int thread = TTI_THREAD_LOAD + (int)(mine - l->scratches);
    uint64_t step = (uint64_t)(s->batch.epoch * l->steps_per_epoch + s->batch.step);
    tti_flight_begin(l->desc.flight, thread,
                     &(tti_flight_op){.name = "read samples", .step = step});
    run_job(l, s, mine);
    if (!l->stop) tti_flight_end(l->desc.flight, thread);
}

static void *thread_main(void *arg) {
    scratch *mine = arg;
    tti_loader *l = mine->loader;
    atomic_store(&mine->tid, (int)syscall(SYS_gettid));
    pthread_mutex_lock(&l->mutex);
    while (!l->stop) {
        slot *s = find_work(l);
        if (s)
            run_recorded_job(l, s, mine);
        else
            pthread_cond_wait(&l->work, &l->mutex); /* until next or destroy */
    }
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}

static tutti_status start_threads(tti_loader *l) {
    int code = 0;
    while (l->n_started < count_threads(&l->desc) && code == 0) {
        code = tti_thread_start(&l->threads[l->n_started], NULL, thread_main,
                                &l->scratches[l->n_started]);
        if (code == 0) l->n_started++;
    }
    if (code != 0)
        return tti_fail(TUTTI_E_NOMEM, "loader: cannot start thread %d: %s", l->n_started,
                        strerror(code));
    return TUTTI_OK;
}

/* ---- create and destroy ---- */

static tutti_status check_desc(const tti_loader_desc *d) {
    if (!d->dataset || d->batch < 1 || d->batch > MAX_BATCH || d->n_shards < 1)
        return tti_fail(TUTTI_E_INVALID,
                        "loader: a data set, batch >= 1 and n_shards >= 1 are "
                        "needed, got batch %lld and %d shards",
                        (long long)d->batch, d->n_shards);
    if (d->first_shard < 0 || d->first_shard > d->last_shard || d->last_shard > d->n_shards)
        return tti_fail(TUTTI_E_INVALID, "loader: shards %d .. %d of %d do not exist",
                        d->first_shard, d->last_shard, d->n_shards);
    if (d->n_threads < 0 || d->n_threads > MAX_THREADS || d->n_prefetch < 0 ||
        d->n_prefetch > MAX_PREFETCH)
        return tti_fail(TUTTI_E_INVALID, "loader: %d threads (0 .. %d), prefetch %d (0 .. %d)",
                        d->n_threads, MAX_THREADS, d->n_prefetch, MAX_PREFETCH);
    if (d->epoch < 0 || d->n_steps < 0 || d->timeout_ms < 0)
        return tti_fail(TUTTI_E_INVALID, "loader: epoch, n_steps or timeout_ms is negative");
    if (!(d->mixup >= 0 && isfinite(d->mixup)))
        return tti_fail(TUTTI_E_INVALID, "loader: mixup %g is not a number >= 0", d->mixup);
    int64_t steps = tti_steps_per_epoch(tutti_dataset_get_info(d->dataset)->n_samples, d->batch);
    if (d->step < 0 || d->step >= steps)
        return tti_fail(TUTTI_E_INVALID, "loader: step %lld of an epoch of %lld steps",
                        (long long)d->step, (long long)steps);
    return TUTTI_OK;
}

/* The table at the end of the chain becomes the caller's business, where one label says which rows
 * there are and nothing of ours needs the floats. */
static void leave_table(tti_loader *l) {
    const tti_transform *last = l->chain.n > 0 ? l->chain.step[l->chain.n - 1] : NULL;
    bool fits = l->desc.bytes && l->desc.mixup == 0 &&
                tutti_dataset_get_info(l->desc.dataset)->y.shape.n_dims == 0;
    if (fits && last && last->table && last->table(last, &l->pixels))
        l->chain.n--;
    else
        l->pixels.n_channels = 0;
}

static tutti_status plan(tti_loader *l) {
    const tti_loader_desc *d = &l->desc;
    const tutti_dataset *ds = d->dataset;
    TTI_TRY(tti_chain_append(&l->chain, tti_dataset_decode(ds)));
    TTI_TRY(tti_chain_append(&l->chain, &d->transforms));
    leave_table(l);
    TTI_TRY(tti_chain_infer(&l->chain, tti_dataset_stored(ds), &l->x_type, &l->chain_bytes));
    l->stored_bytes = tti_type_bytes(tti_dataset_stored(ds));
    l->x_row_bytes = tti_type_bytes(&l->x_type);
    l->y_row_elems = (size_t)tutti_shape_n_elems(&tutti_dataset_get_info(ds)->y.shape);
    if (tutti_dataset_get_info(ds)->n_fields > 0 && l->chain.n > 0)
        return tti_fail(TUTTI_E_INVALID, "loader: samples with fields have no transforms");
    if (d->mixup > 0) {
        if (l->x_type.dtype != TUTTI_F32 || tutti_dataset_get_info(ds)->y.shape.n_dims != 0)
            return tti_fail(TUTTI_E_INVALID,
                            "loader: mixup needs samples of f32 with one label each");
        l->y_row_elems = TTI_MIXUP_LABELS;
    }
    l->rows_per_shard = tti_rows_per_shard(d->batch, d->n_shards);
    l->steps_per_epoch = tti_steps_per_epoch(tutti_dataset_get_info(ds)->n_samples, d->batch);
    l->end = d->sequential ? l->steps_per_epoch - d->step : INT64_MAX;
    if (d->n_steps > 0) l->end = TTI_MIN(l->end, d->n_steps);
    l->n_slots = d->n_threads == 0 ? 1 : TTI_MAX(d->n_prefetch, 1) + 1;
    return TUTTI_OK;
}

/* n_rows * row_bytes, rounded up to the alignment. */
static bool shard_bytes(int64_t n_rows, size_t row_bytes, size_t *out) {
    size_t n;
    if (__builtin_mul_overflow((size_t)n_rows, row_bytes, &n) || n > SIZE_MAX - ALIGN_BYTES)
        return false;
    *out = (n + ALIGN_BYTES - 1) & ~(size_t)(ALIGN_BYTES - 1);
    return true;
}

/* At least one shard's bytes, so that a worker without shards has valid pointers too. */
static uint8_t *alloc_shards(size_t n_bytes, int n_shards) {
    size_t n;
    if (__builtin_mul_overflow(n_bytes, (size_t)TTI_MAX(n_shards, 1), &n)) return NULL;
    return aligned_alloc(ALIGN_BYTES, TTI_MAX(n, (size_t)ALIGN_BYTES));
}

/* With the gaps between the blocks of fields. */
static bool sample_bytes(const tti_loader *l, size_t *out) {
    const tutti_dataset_info *info = tutti_dataset_get_info(l->desc.dataset);
    bool fits = shard_bytes(l->rows_per_shard, l->x_row_bytes, out);
    if (fits && info->n_fields > 0)
        *out = tti_field_offset(info->fields, info->n_fields, l->rows_per_shard);
    return fits;
}

static tutti_status alloc_slots(tti_loader *l) {
    int n_shards = l->desc.last_shard - l->desc.first_shard;
    size_t x_bytes, y_bytes;
    bool fits = sample_bytes(l, &x_bytes) &&
                shard_bytes(l->rows_per_shard, l->y_row_elems * sizeof(int32_t), &y_bytes);
    l->slots = fits ? calloc((size_t)l->n_slots, sizeof *l->slots) : NULL;
    for (int i = 0; l->slots && i < l->n_slots; i++) {
        slot *s = &l->slots[i];
        s->x = alloc_shards(x_bytes, n_shards);
        s->y = alloc_shards(y_bytes, n_shards);
        if (!s->x || !s->y) fits = false;
        if (!fits) break;
        s->batch.x_shard_bytes = x_bytes;
        s->batch.y_shard_bytes = y_bytes;
        int64_t n_rows = l->rows_per_shard * n_shards;
        s->n_chunks = (n_rows + CHUNK_ROWS - 1) / CHUNK_ROWS;
        s->n_jobs = s->n_chunks + (l->desc.mixup > 0 ? n_shards : 0);
    }
    if (!l->slots || !fits)
        return tti_fail(TUTTI_E_NOMEM, "loader: out of memory for %d batches of %d shards of %lld",
                        l->n_slots, n_shards, (long long)l->rows_per_shard);
    return TUTTI_OK;
}

void tti_loader_memory(const tti_loader *l, tti_loader_memory_fn fn, void *user) {
    size_t n = (size_t)(l->desc.last_shard - l->desc.first_shard);
    for (int i = 0; n > 0 && i < l->n_slots; i++) {
        const slot *s = &l->slots[i];
        fn(s->x, n * s->batch.x_shard_bytes, user);
        fn(s->y, n * s->batch.y_shard_bytes, user);
    }
}

static tutti_status alloc_scratch(tti_loader *l) {
    l->n_scratch = TTI_MAX(l->desc.n_threads, 1);
    l->scratches = calloc((size_t)l->n_scratch, sizeof *l->scratches);
    l->threads = calloc((size_t)l->n_scratch, sizeof *l->threads);
    bool fits = l->scratches && l->threads;
    for (int i = 0; fits && i < l->n_scratch; i++) {
        l->scratches[i].loader = l;
        l->scratches[i].memory =
            aligned_alloc(ALIGN_BYTES, 2 * TTI_MAX(l->chain_bytes, (size_t)64));
        fits = l->scratches[i].memory != NULL;
    }
    return fits ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "loader: out of memory");
}

static void init_sync(tti_loader *l) {
    pthread_mutex_init(&l->mutex, NULL);
    pthread_cond_init(&l->work, NULL);
    tti_cond_init(&l->ready);
}

tutti_status tti_loader_create(const tti_loader_desc *desc, tti_loader **out) {
    *out = NULL;
    TTI_TRY(check_desc(desc));
    tti_loader *l = calloc(1, sizeof *l);
    if (!l) return tti_fail(TUTTI_E_NOMEM, "loader: out of memory");
    l->desc = *desc;
    init_sync(l);
    tutti_status st;
    TTI_TRY_GOTO(plan(l), cleanup);
    TTI_TRY_GOTO(alloc_slots(l), cleanup);
    TTI_TRY_GOTO(alloc_scratch(l), cleanup);
    open_slots(l);
    TTI_TRY_GOTO(start_threads(l), cleanup);
    *out = l;
cleanup:
    if (st != TUTTI_OK) tti_loader_destroy(l);
    return st;
}

/* With the mutex held: the first thread that works on a job; NULL: none. */
static scratch *find_busy(tti_loader *l) {
    for (int i = 0; i < l->n_started; i++)
        if (l->scratches[i].is_at_work) return &l->scratches[i];
    return NULL;
}

/* True if threads are stuck in reads.  The loader and the data set, which they use, are then not
 * freed. */
static bool leave_stuck(tti_loader *l) {
    int64_t t_ms = l->is_late ? LEAVE_LATE_MS : LEAVE_MS;
    int64_t end_ns = tti_now_ns() + t_ms * TTI_NS_PER_MS;
    pthread_mutex_lock(&l->mutex);
    while (find_busy(l) && tti_now_ns() < end_ns) {
        pthread_mutex_unlock(&l->mutex);
        tti_sleep_ms(1);
        pthread_mutex_lock(&l->mutex);
    }
    bool is_stuck = find_busy(l) != NULL;
    pthread_mutex_unlock(&l->mutex);
    if (!is_stuck) return false;
    tti_dataset_keep(l->desc.dataset);
    for (int i = 0; i < l->n_started; i++) pthread_detach(l->threads[i]);
    return true;
}

void tti_loader_destroy(tti_loader *l) {
    if (!l) return;
    pthread_mutex_lock(&l->mutex);
    l->stop = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->mutex);
    if (leave_stuck(l)) return;
    for (int i = 0; i < l->n_started; i++) pthread_join(l->threads[i], NULL);
    for (int i = 0; l->slots && i < l->n_slots; i++) {
        free(l->slots[i].x);
        free(l->slots[i].y);
    }
    for (int i = 0; l->scratches && i < l->n_scratch; i++) {
        free(l->scratches[i].memory);
        tti_workspace_free(&l->scratches[i].workspace);
    }
    free(l->slots);
    free(l->scratches);
    free(l->threads);
    pthread_cond_destroy(&l->work);
    pthread_cond_destroy(&l->ready);
    pthread_mutex_destroy(&l->mutex);
    free(l);
}

/* ---- the caller's side ---- */

/* With the mutex held: "epoch 1 step 3, reading sample 17 from '/data/a.bin'". */
static void describe_wait(tti_loader *l, const slot *s, char *out, size_t n_bytes) {
    char file[512] = "";
    const scratch *busy = find_busy(l);
    int n = snprintf(out, n_bytes, "epoch %lld step %lld", (long long)s->batch.epoch,
                     (long long)s->batch.step);
    if (!busy) return;
    tti_blocked_file(0, atomic_load(&busy->tid), file, sizeof file);
    const char *from = file[0] ? file : l->desc.where ? l->desc.where : "";
    snprintf(out + n, n_bytes - (size_t)n, ", reading sample %lld%s%s%s",
             (long long)atomic_load(&busy->reads), from[0] ? " from '" : "", from,
             from[0] ? "'" : "");
}

static int limit_of(const tti_loader *l) {
    return l->desc.timeout_ms > 0 ? l->desc.timeout_ms : DEFAULT_LIMIT_MS;
}

static tutti_status fail_late(tti_loader *l, const slot *s, int64_t waited_ns) {
    char what[700];
    describe_wait(l, s, what, sizeof what);
    l->is_late = true;
    return tti_fail(TUTTI_E_TIMEOUT, "loader: waited %lld ms for a batch (the limit is %d ms): %s",
                    (long long)(waited_ns / TTI_NS_PER_MS), limit_of(l), what);
}

/* Asks the caller whether to continue waiting.  It is called without the mutex. */
static bool goes_on(tti_loader *l, const slot *s, int64_t waited_ns) {
    char what[700];
    if (!l->desc.on_wait || waited_ns < TTI_LOADER_SLOW_MS * TTI_NS_PER_MS) return true;
    describe_wait(l, s, what, sizeof what);
    pthread_mutex_unlock(&l->mutex);
    bool on = l->desc.on_wait(l->desc.user, what, waited_ns / TTI_NS_PER_MS);
    pthread_mutex_lock(&l->mutex);
    return on;
}

/* With the mutex held: waits until all jobs of the slot are done. */
static tutti_status wait_for(tti_loader *l, slot *s) {
    int limit_ms = limit_of(l);
    tti_patience patience = tti_patience_begin(tti_now_ns());
    int64_t waited_ns = 0;
    while (l->n_started == 0 && s->next_job < s->n_jobs) run_job(l, s, &l->scratches[0]);
    while (s->n_done < s->n_jobs) {
        int64_t next_ns = tti_now_ns() + TTI_MIN(LOOK_MS, limit_ms) * TTI_NS_PER_MS;
        tti_cond_wait_until(&l->ready, &l->mutex, next_ns);
        waited_ns += tti_patience_look(&patience, tti_now_ns());
        if (s->n_done == s->n_jobs) break;
        bool is_over = waited_ns >= limit_ms * TTI_NS_PER_MS;
        if (is_over || !goes_on(l, s, waited_ns)) return fail_late(l, s, waited_ns);
    }
    if (s->status != TUTTI_OK)
        return tti_fail(s->status, "loader: epoch %lld step %lld: %s", (long long)s->batch.epoch,
                        (long long)s->batch.step, s->text);
    return TUTTI_OK;
}

static tutti_status take(tti_loader *l, tti_batch *out) {
    if (l->n_given >= l->end)
        return tti_fail(TUTTI_E_INVALID, "loader: all %lld batches were taken", (long long)l->end);
    l->n_freed = l->n_given; /* the batch that the caller held until now */
    open_slots(l);
    slot *s = &l->slots[l->n_given % l->n_slots];
    if (s->n_done < s->n_jobs) {
        l->is_awaited = true;
        pthread_cond_broadcast(&l->work);
    }
    tutti_status st = wait_for(l, s);
    l->is_awaited = false;
    TTI_TRY(st);
    l->n_given++;
    *out = s->batch;
    return TUTTI_OK;
}

/* Batches count on from here: slots are opened by their distance to desc.step. */
void tti_loader_seek(tti_loader *l, int64_t epoch, int64_t step) {
    TTI_ASSERT(l->desc.n_threads == 0);
    TTI_ASSERT(epoch >= 0 && step >= 0 && step < l->steps_per_epoch);
    pthread_mutex_lock(&l->mutex);
    l->desc.epoch = epoch;
    l->desc.step = step;
    l->n_opened = l->n_given = l->n_freed = 0;
    pthread_mutex_unlock(&l->mutex);
}

tutti_status tti_loader_next(tti_loader *l, tti_batch *out) {
    if (l->failed != TUTTI_OK) return tti_fail(l->failed, "%s", l->text);
    int64_t start_ns = tti_now_ns();
    pthread_mutex_lock(&l->mutex);
    tutti_status st = take(l, out);
    bool is_due = l->n_started > 0 && find_work(l);
    pthread_mutex_unlock(&l->mutex);
    /* A thread fills the freed slot.  It is woken after the mutex is free, which it takes first. */
    if (is_due) pthread_cond_broadcast(&l->work);
    if (st != TUTTI_OK) {
        l->failed = st;
        keep_text(l->text);
        return st;
    }
    out->wait_ns = tti_now_ns() - start_ns;
    return TUTTI_OK;
}

const tti_pixel_table *tti_loader_pixels(const tti_loader *l) {
    return l->pixels.n_channels > 0 ? &l->pixels : NULL;
}

int64_t tti_loader_steps_per_epoch(const tti_loader *l) { return l->steps_per_epoch; }
