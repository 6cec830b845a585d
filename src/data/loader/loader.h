/* loader.h - the batches of one worker: its run of virtual shards, step after step.
 *
 * The global batch of B samples is divided into V shards of b = ceil(B/V) rows: shard s of step t
 * covers positions t*B + s*b .. of the epoch's order, as far as the batch and the epoch reach.  A
 * loader delivers shards first_shard .. last_shard-1.  Missing rows (a short last batch, a B that V
 * does not divide) are zeros with label -1, so every shard has the same shape; where samples have
 * fields they are copies of the first sample of the batch, with target -1.
 *
 * The contents depend on data set, seed, B, V, epoch and step alone: never on the number of workers
 * or threads, nor on time.  A sample that the data set skips (data.h, skip_bad) is also a row of
 * zeros with label -1.  Threads: one loader is used by one thread at a time; its own threads are
 * internal. */
#ifndef TTI_DATA_LOADER_H
#define TTI_DATA_LOADER_H

#include "base/flight.h"
#include "data/dataset.h"

typedef struct tti_loader tti_loader;

enum { TTI_LOADER_SLOW_MS = 200 };

/* Zero is the default of every field except dataset, batch, n_shards and last_shard. */
typedef struct tti_loader_desc {
    const tutti_dataset *dataset; /* borrowed, must outlive the loader                           */
    int64_t batch;                /* B, global                                                   */
    int n_shards;                 /* V                                                           */
    int first_shard, last_shard;  /* this worker's: first <= s < last                            */
    uint64_t seed;                /* of the job: keys the epochs' orders and random transforms   */
    bool sequential;              /* evaluation: every sample once, in order; ends after an epoch */
    int64_t epoch, step;          /* where to start: step in the epoch, 0 <= step < steps        */
    int64_t n_steps;              /* end after so many; 0: never, sequential: with the epoch     */
    int n_threads;                /* 0: a batch is made while the caller waits for it, by the    */
                                  /* caller, or with timeout_ms by a thread beside it            */
    int n_prefetch;               /* batches made ahead with threads, 0: 1                       */
    int timeout_ms;               /* longest wait for a batch; 0: 60000, endless without threads */
    /* Called now and then while the caller waits for a batch, after the first TTI_LOADER_SLOW_MS:
     * what is being read, and for how long.  Return false to stop waiting.  May be NULL. */
    bool (*on_wait)(void *user, const char *what, int64_t waited_ms);
    void *user;
    tti_flight *flight;   /* borrowed: records what the loader's threads do; may be NULL */
    const char *where;    /* the data, for texts, where the file is not known; may be NULL */
    tti_chain transforms; /* after the data set's own; steps borrowed like dataset       */
    double mixup;         /* alpha: samples are mixed (mixup.h), y is i32 [b,3]; 0: off  */
    int64_t only_target;  /* k > 0: of a row's targets all but the k-th are missing, -1  */
    bool bytes; /* a last step that is a table (transform.h) is left to the caller, if there is one
                 */
} tti_loader_desc;

/* One step of this worker. */
typedef struct tti_batch {
    int64_t epoch, step;                 /* step in its epoch                                    */
    int64_t n_rows_global;               /* real samples in the whole batch, over all V shards   */
    int64_t n_rows;                      /* real samples in these shards                         */
    int64_t rows_per_shard;              /* b                                                    */
    int n_shards;                        /* last_shard - first_shard                             */
    const uint8_t *x;                    /* shard i at x + i*x_shard_bytes: [b, ...], or the     */
                                         /* blocks of its fields (data/fields.h)                 */
    const uint8_t *y;                    /* shard i at y + i*y_shard_bytes: i32 [b, ...]         */
    size_t x_shard_bytes, y_shard_bytes; /* from shard to shard, multiples of 64     */
    int64_t wait_ns;                     /* how long the caller waited; without threads: loaded  */
} tti_batch;

/* Checks desc, takes the memory and starts the threads.  *out is NULL on failure. */
tutti_status tti_loader_create(const tti_loader_desc *desc, tti_loader **out);

/* The next batch; its memory, 64-byte aligned, is valid until the next call.  After a failure
 * every later call fails in the same way; past the end it is TUTTI_E_INVALID. */
tutti_status tti_loader_next(tti_loader *loader, tti_batch *out);

/* The next batch becomes that of step `step` of `epoch`. Only for a loader without threads, which
 * makes no batches ahead; n_steps counts from there. */
void tti_loader_seek(tti_loader *loader, int64_t epoch, int64_t step);

/* Calls fn for each piece of memory that batches are delivered in, such as to pin it for copies. */
typedef void (*tti_loader_memory_fn)(void *memory, size_t n_bytes, void *user);
void tti_loader_memory(const tti_loader *loader, tti_loader_memory_fn fn, void *user);

/* With bytes: the value of each byte of x; missing rows (label -1) are 0 in every element.  NULL: x
 * is the model input.  Valid as long as the loader. */
const tti_pixel_table *tti_loader_pixels(const tti_loader *loader);

int64_t tti_loader_steps_per_epoch(const tti_loader *loader);

/* Stops the threads, at any moment, and frees everything.  NULL is a no-op.  After a batch did not
 * come in time, threads that are still in a read are left alone, with the memory and the data set
 * that they use. */
void tti_loader_destroy(tti_loader *loader);

/* Rows of one shard: ceil(batch / n_shards). */
int64_t tti_rows_per_shard(int64_t batch, int n_shards);

/* Shard i (0 .. n_shards-1) of a batch. */
static inline const void *tti_batch_x(const tti_batch *batch, int i) {
    return batch->x + (size_t)i * batch->x_shard_bytes;
}
static inline const int32_t *tti_batch_y(const tti_batch *batch, int i) {
    return (const int32_t *)(const void *)(batch->y + (size_t)i * batch->y_shard_bytes);
}

#endif /* TTI_DATA_LOADER_H */
