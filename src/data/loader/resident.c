/* resident.c - reads a whole data set for the device, and the indices of batches. */
#include "data/loader/resident.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/thread.h"
#include "data/loader/sampler.h"

const char *tti_resident_why_not(const tutti_dataset *ds) {
    tti_pixel_table table;
    if (tti_dataset_stored(ds)->dtype != TUTTI_U8 ||
        tutti_dataset_get_info(ds)->x.dtype != TUTTI_F32)
        return "its samples are not images of bytes";
    if (!tti_dataset_is_fixed(ds)) return "a sample is not the same in every epoch";
    if (tutti_dataset_get_info(ds)->y.shape.n_dims > 0) return "a sample has more than one label";
    const tti_transform *step =
        tti_dataset_decode(ds)->n == 1 ? tti_dataset_decode(ds)->step[0] : NULL;
    if (!step || !step->table || !step->table(step, &table))
        return "its images are changed at random";
    if (tutti_dataset_get_info(ds)->n_samples > INT32_MAX ||
        tti_type_bytes(tti_dataset_stored(ds)) > INT32_MAX)
        return "it is too large";
    return NULL;
}

size_t tti_resident_bytes(const tutti_dataset *ds) {
    return (size_t)tutti_dataset_get_info(ds)->n_samples * tti_type_bytes(tti_dataset_stored(ds));
}

/* ---- reading ---- */

/* Threads take blocks of samples as they become free. */
typedef struct reading {
    const tutti_dataset *ds;
    tti_resident *to;
    atomic_llong next;   /* the next sample that no thread has taken */
    atomic_llong failed; /* of the first one, n: none */
} reading;

enum { BLOCK = 256, MAX_READERS = 64 };

static tutti_status read_one(const reading *r, int64_t i, tti_workspace *ws) {
    tti_sample_key key = {.index = (uint64_t)i};
    bool skipped;
    return tti_dataset_read(r->ds, &key, ws, r->to->x + (size_t)i * (size_t)r->to->n_elems,
                            &r->to->y[i], &skipped);
}

/* Keeps the lowest index that failed; samples after it need not be read. */
static void record_failure(reading *r, long long i) {
    long long first = atomic_load(&r->failed);
    while (i < first && !atomic_compare_exchange_weak(&r->failed, &first, i)) continue;
}

static void *read_blocks(void *arg) {
    reading *r = arg;
    tti_workspace ws = {0};
    for (;;) {
        long long i = atomic_fetch_add(&r->next, BLOCK), end = TTI_MIN(i + BLOCK, r->to->n);
        if (i >= atomic_load(&r->failed)) break;
        while (i < end && read_one(r, i, &ws) == TUTTI_OK) i++;
        if (i < end) record_failure(r, i);
    }
    tti_workspace_free(&ws);
    return NULL;
}

/* Reads with n_threads in addition to the caller, or as many as can be started. */
static void read_all(reading *r, int n_threads) {
    pthread_t threads[MAX_READERS];
    int n = 0;
    while (n < TTI_MIN(n_threads, MAX_READERS) &&
           tti_thread_start(&threads[n], NULL, read_blocks, r) == 0)
        n++;
    read_blocks(r);
    while (n > 0) pthread_join(threads[--n], NULL);
}

tutti_status tti_resident_load(const tutti_dataset *ds, int n_threads, tti_resident *out) {
    const tti_transform *step = tti_dataset_decode(ds)->step[0];
    TTI_ASSERT(!tti_resident_why_not(ds));
    *out = (tti_resident){.n = tutti_dataset_get_info(ds)->n_samples,
                          .n_elems = (int32_t)tti_type_bytes(tti_dataset_stored(ds))};
    step->table(step, &out->table);
    out->x = malloc(tti_resident_bytes(ds) + 1);
    out->y = malloc((size_t)out->n * sizeof *out->y + 1);
    if (!out->x || !out->y)
        return tti_fail(TUTTI_E_NOMEM, "data.resident: out of memory for %zu bytes of samples",
                        tti_resident_bytes(ds));
    reading r = {.ds = ds, .to = out, .failed = out->n};
    read_all(&r, n_threads);
    tti_workspace ws = {0}; /* from there once more: the words of a failure are the thread's own */
    tutti_status st = TUTTI_OK;
    for (long long i = atomic_load(&r.failed); i < out->n && st == TUTTI_OK; i++)
        st = read_one(&r, i, &ws);
    tti_workspace_free(&ws);
    return st;
}

void tti_resident_free(tti_resident *set) {
    free(set->x);
    free(set->y);
    *set = (tti_resident){0};
}

/* ---- batches ---- */

void tti_resident_batch(const tti_loader_desc *d, int64_t step, tti_batch *out, int32_t *index) {
    int64_t n = tutti_dataset_get_info(d->dataset)->n_samples,
            steps = tti_steps_per_epoch(n, d->batch);
    int64_t b = tti_rows_per_shard(d->batch, d->n_shards);
    *out = (tti_batch){.epoch = step / steps,
                       .step = step % steps,
                       .rows_per_shard = b,
                       .n_shards = d->last_shard - d->first_shard};
    out->n_rows_global = tti_batch_n_rows(n, d->batch, out->step);
    out->n_rows = TTI_MIN(d->last_shard * b, out->n_rows_global) -
                  TTI_MIN(d->first_shard * b, out->n_rows_global);
    tti_permutation order = tti_sampler_epoch((uint64_t)n, d->seed, (uint64_t)out->epoch);
    for (int64_t i = 0; i < out->n_shards * b; i++) {
        int64_t in_batch = d->first_shard * b + i;
        uint64_t position = (uint64_t)(out->step * d->batch + in_batch);
        bool exists = in_batch < out->n_rows_global;
        index[i] = exists ? (int32_t)tti_permutation_at(&order, position) : -1;
    }
}
