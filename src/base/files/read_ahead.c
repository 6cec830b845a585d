/* read_ahead.c - a ring of buffers between the threads that read and the thread that uses.
 *
 * Item i goes through buffer i modulo their number.  A thread takes the next item as soon as the
 * buffer's previous item has been used, so memory is bounded and items are used in order. */
#include "base/files/read_ahead.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/thread.h"

enum { MAX_THREADS = 32, ALIGNMENT = 64 };

typedef struct buffer {
    int64_t ready; /* number of the item in it plus 1; 0: none yet */
    tutti_status st;
    char *text; /* of a failure */
} buffer;

typedef struct ring {
    const tti_read_ahead_desc *desc;
    pthread_mutex_t mutex;
    pthread_cond_t read, used; /* an item has been read or used, or there are no more */
    buffer *buffers;           /* [n_buffers] */
    char *memory;              /* [n_buffers][stride] */
    size_t stride;
    int n_buffers;
    int64_t next, n_used; /* the next item to read; those used so far */
    bool ends;
} ring;

static void *memory_of(const ring *r, int64_t item) {
    return r->memory + (size_t)(item % r->n_buffers) * r->stride;
}

static void read_item(ring *r, int64_t item) {
    buffer *b = &r->buffers[item % r->n_buffers];
    b->st = r->desc->read(r->desc->user, item, memory_of(r, item));
    if (b->st != TUTTI_OK) b->text = strdup(tutti_last_error());
}

static void *run_reader(void *arg) {
    ring *r = arg;
    pthread_mutex_lock(&r->mutex);
    for (;;) {
        while (!r->ends && r->next < r->desc->n_items && r->next >= r->n_used + r->n_buffers)
            pthread_cond_wait(&r->used, &r->mutex);
        if (r->ends || r->next >= r->desc->n_items) break;
        int64_t item = r->next++;
        pthread_mutex_unlock(&r->mutex);
        read_item(r, item);
        pthread_mutex_lock(&r->mutex);
        r->buffers[item % r->n_buffers].ready = item + 1;
        if (item == r->n_used) pthread_cond_signal(&r->read);
    }
    pthread_mutex_unlock(&r->mutex);
    return NULL;
}

/* Waits until the item has been read, or reads it where no thread does. */
static tutti_status await_item(ring *r, int64_t item, bool has_threads) {
    const buffer *b = &r->buffers[item % r->n_buffers];
    if (!has_threads) read_item(r, item);
    pthread_mutex_lock(&r->mutex);
    while (has_threads && b->ready != item + 1) pthread_cond_wait(&r->read, &r->mutex);
    pthread_mutex_unlock(&r->mutex);
    return b->st == TUTTI_OK ? TUTTI_OK
                             : tti_fail(b->st, "%s", b->text ? b->text : "out of memory");
}

static tutti_status use_items(ring *r, bool has_threads) {
    for (int64_t i = 0; i < r->desc->n_items; i++) {
        TTI_TRY(await_item(r, i, has_threads));
        TTI_TRY(r->desc->use(r->desc->user, i, memory_of(r, i)));
        pthread_mutex_lock(&r->mutex);
        r->n_used = i + 1;
        pthread_cond_signal(&r->used);
        pthread_mutex_unlock(&r->mutex);
    }
    return TUTTI_OK;
}

static int start_threads(ring *r, int n_wanted, pthread_t *threads) {
    const tti_readers *readers = r->desc->readers;
    tti_cores before;
    int n = 0;
    if (n_wanted < 1) return 0;
    tti_cores_widen(&readers->cores, &before);
    while (n < n_wanted && tti_thread_start(&threads[n], NULL, run_reader, r) == 0) n++;
    tti_cores_return(&before);
    return n;
}

static tutti_status run(ring *r, int n_wanted) {
    pthread_t threads[MAX_THREADS];
    pthread_mutex_init(&r->mutex, NULL);
    tti_cond_init(&r->read);
    tti_cond_init(&r->used);
    int n_threads = start_threads(r, n_wanted, threads);
    tutti_status st = use_items(r, n_threads > 0);
    pthread_mutex_lock(&r->mutex);
    r->ends = true;
    pthread_cond_broadcast(&r->used);
    pthread_mutex_unlock(&r->mutex);
    for (int i = 0; i < n_threads; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < r->n_buffers; i++) free(r->buffers[i].text);
    pthread_cond_destroy(&r->used);
    pthread_cond_destroy(&r->read);
    pthread_mutex_destroy(&r->mutex);
    return st;
}

tutti_status tti_read_ahead(const tti_read_ahead_desc *desc) {
    const tti_readers *readers = desc->readers;
    int64_t n_most = TTI_MIN(desc->n_items - 1, MAX_THREADS);
    int n_threads = readers ? (int)TTI_MIN(readers->n_threads, n_most) : 0;
    ring r = {.desc = desc, .n_buffers = TTI_MAX(2 * n_threads, 1)};
    r.stride = (desc->item_bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    size_t n_bytes = (size_t)r.n_buffers * r.stride;
    if (desc->n_items < 1) return TUTTI_OK;
    bool own = !readers || !readers->alloc;
    r.buffers = calloc((size_t)r.n_buffers, sizeof *r.buffers);
    r.memory = own ? aligned_alloc(ALIGNMENT, n_bytes) : readers->alloc(n_bytes);
    tutti_status st = r.buffers && r.memory
                          ? run(&r, n_threads)
                          : tti_fail(TUTTI_E_NOMEM, "out of memory for %zu bytes", n_bytes);
    if (own)
        free(r.memory);
    else if (r.memory)
        readers->release(r.memory);
    free(r.buffers);
    return st;
}

/* ---- parts of tensors ---- */

typedef struct reading {
    tti_part_size_fn size;
    tti_part_read_fn read;
    tti_part_use_fn use;
    void *user;
    tti_part *parts; /* NULL: they are only counted */
} reading;

/* Fills r->parts; returns their number. */
static int64_t cut(const reading *r, int n) {
    int64_t n_parts = 0;
    for (int t = 0; t < n; t++) {
        bool is_whole = false;
        size_t n_elems = r->size(r->user, t, &is_whole);
        size_t most = is_whole ? n_elems : (size_t)TTI_PART_ELEMS;
        for (size_t first = 0; first < n_elems; first += most, n_parts++)
            if (r->parts)
                r->parts[n_parts] = (tti_part){.tensor = t,
                                               .is_whole = is_whole,
                                               .first = first,
                                               .n_elems = TTI_MIN(n_elems - first, most)};
    }
    return n_parts;
}

static tutti_status read_part(void *user, int64_t item, void *memory) {
    const reading *r = user;
    tti_part *part = &r->parts[item];
    return part->is_whole ? TUTTI_OK : r->read(r->user, part, memory);
}

static tutti_status use_part(void *user, int64_t item, void *memory) {
    const reading *r = user;
    return r->use(r->user, &r->parts[item], memory);
}

tutti_status tti_read_parts(const tti_readers *readers, int n, tti_part_size_fn size,
                            tti_part_read_fn read, tti_part_use_fn use, void *user) {
    reading r = {.size = size, .read = read, .use = use, .user = user};
    int64_t n_parts = cut(&r, n);
    r.parts = malloc((size_t)(n_parts + 1) * sizeof *r.parts);
    if (!r.parts) return tti_fail(TUTTI_E_NOMEM, "out of memory for %d tensors", n);
    cut(&r, n);
    tutti_status st =
        tti_read_ahead(&(tti_read_ahead_desc){.readers = readers,
                                              .n_items = n_parts,
                                              .item_bytes = TTI_PART_ELEMS * sizeof(float),
                                              .read = read_part,
                                              .use = use_part,
                                              .user = &r});
    free(r.parts);
    return st;
}
