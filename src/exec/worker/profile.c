/* profile.c - records where the time of a step goes.
 *
 * A device records timestamps in its queues, which are read at the end; on the host each thread
 * reads the clock.  So profiling adds no waits. */
#include "exec/worker/profile.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "exec/worker/worker_state.h"

enum { ZERO_NS = 20000 }; /* initial bound of the error between the two clocks */

/* A span; a span of a queue has no times until the timestamps are read. */
typedef struct entry {
    tti_span span;
    int from, to; /* timestamps; to 0: the host's clock was used */
} entry;

struct tti_profile {
    pthread_mutex_t
        mutex; /* guards what follows: compute threads and the thread of the sums add spans */
    entry *entries;
    int n, capacity, n_timestamps, step;
    int last[TTI_N_ROWS]; /* the timestamp at which the next span of the queue begins */
    bool failed;          /* out of memory */
    int64_t zero_ns, mark_ns;
    int64_t earliest_ns; /* lower bound of the time of a device's timestamp 0 */
};

static void add(tti_profile *p, const entry *e) {
    pthread_mutex_lock(&p->mutex);
    if (p->n == p->capacity) {
        int capacity = p->capacity ? 2 * p->capacity : 1024;
        entry *more = realloc(p->entries, (size_t)capacity * sizeof *more);
        p->failed = p->failed || !more;
        if (more) p->entries = more, p->capacity = capacity;
    }
    if (p->n < p->capacity) {
        p->entries[p->n] = *e;
        p->entries[p->n++].span.step = p->step;
    }
    pthread_mutex_unlock(&p->mutex);
}

/* ---- queues of a device ---- */

static tti_queue queue_of(tti_row row) {
    static const tti_queue queues[TTI_N_ROWS] = {
        [TTI_ROW_HOST] = TTI_QUEUE_COMPUTE,     [TTI_ROW_COMPUTE] = TTI_QUEUE_COMPUTE,
        [TTI_ROW_COPY] = TTI_QUEUE_COPY,        [TTI_ROW_COMM] = TTI_QUEUE_COMM,
        [TTI_ROW_TP] = TTI_QUEUE_PEER,          [TTI_ROW_STAGES] = TTI_QUEUE_PEER,
        [TTI_ROW_SEGMENTS] = TTI_QUEUE_COMPUTE, [TTI_ROW_SERVER] = TTI_QUEUE_COMPUTE};
    return queues[row];
}

tutti_status tti_profile_from(tti_exec *x, tti_row row) {
    tti_profile *p = x->profile;
    if (!p) return TUTTI_OK;
    p->last[row] = p->n_timestamps++;
    return x->setup.desc.backend->device->queues.record_timestamp(queue_of(row), p->last[row]);
}

tutti_status tti_profile_upto(tti_exec *x, tti_row row, tti_span_id id, int shard) {
    tti_profile *p = x->profile;
    if (!p) return TUTTI_OK;
    int from = p->last[row];
    TTI_TRY(tti_profile_from(x, row));
    add(p,
        &(entry){.span = {.id = id, .shard = shard, .row = row}, .from = from, .to = p->last[row]});
    return TUTTI_OK;
}

int tti_profile_take(tti_exec *x, int n) {
    tti_profile *p = x->profile;
    if (!p) return 0;
    p->n_timestamps += n;
    return p->n_timestamps - n;
}

void tti_profile_between(tti_exec *x, tti_row row, tti_span_id id, int shard, int from) {
    if (!x->profile) return;
    add(x->profile,
        &(entry){.span = {.id = id, .shard = shard, .row = row}, .from = from, .to = from + 1});
}

void tti_profile_next_step(tti_exec *x) {
    if (!x->profile) return;
    x->profile->step++;
    x->profile->mark_ns = 0;
}

tutti_status tti_profile_zero(tti_exec *x, int n_timestamps) {
    const tti_device_ops *ops = x->setup.desc.backend->device;
    tti_profile *p = x->profile;
    TTI_TRY(ops->queues.record_timestamp(TTI_QUEUE_COMPUTE, n_timestamps));
    TTI_TRY(ops->queues.sync());
    p->n_timestamps = TTI_MAX(p->n_timestamps, 1);
    /* A row has spans of both clocks.  If the thread was delayed between reading the two, it reads
     * again. */
    for (int64_t most_ns = ZERO_NS;; most_ns *= 2) {
        p->earliest_ns = tti_now_ns();
        TTI_TRY(ops->queues.record_timestamp(TTI_QUEUE_COMPUTE, 0));
        TTI_TRY(ops->queues.sync());
        p->zero_ns = tti_now_ns();
        if (p->zero_ns - p->earliest_ns <= most_ns) return TUTTI_OK;
    }
}

static tutti_status try_capture(const tti_device_ops *ops, double *us) {
    void *captured_graph = NULL;
    TTI_TRY(ops->queues.capture_begin());
    tutti_status st = ops->queues.record_timestamp(TTI_QUEUE_COMPUTE, 1);
    if (st == TUTTI_OK) st = ops->queues.record_timestamp(TTI_QUEUE_COMPUTE, 2);
    tutti_status ended = ops->queues.capture_end(&captured_graph);
    if (st == TUTTI_OK) st = ended;
    if (st == TUTTI_OK) st = ops->queues.replay(captured_graph);
    if (st == TUTTI_OK) st = ops->queues.read_timestamps(3, us);
    ops->queues.release_captured_graph(captured_graph);
    return st;
}

/* Timestamps that are out of order or in the future are invalid. */
bool tti_profile_records(tti_exec *x) {
    double us[3] = {0};
    bool ok = try_capture(x->setup.desc.backend->device, us) == TUTTI_OK;
    double now = (double)(tti_now_ns() - x->profile->earliest_ns) * 1e-3;
    if (!ok) tti_clear_error();
    return ok && us[0] <= us[1] && us[1] <= us[2] && us[2] <= now;
}

/* ---- the host ---- */

void tti_profile_add(tti_exec *x, tti_row row, tti_span_id id, int shard, int64_t start_ns,
                     int64_t end_ns) {
    tti_profile *p = x->profile;
    if (!p) return;
    add(p, &(entry){.span = {.id = id,
                             .shard = shard,
                             .row = row,
                             .start_us = (double)(start_ns - p->zero_ns) * 1e-3,
                             .us = (double)(end_ns - start_ns) * 1e-3}});
}

void tti_profile_stall(tti_exec *x, const tti_span *what, const char *waiting, int64_t start_ns,
                       int64_t end_ns) {
    tti_profile_add(x, what->row, what->id, what->shard, start_ns, end_ns);
    tti_profile_add(x, TTI_ROW_COMPUTE, tti_span_of(TTI_SPAN_WAIT, waiting), what->shard, start_ns,
                    end_ns);
}

void tti_profile_mark(tti_exec *x, int64_t now_ns) {
    if (x->profile) x->profile->mark_ns = now_ns;
}

void tti_profile_rest(tti_exec *x, tti_span_id id, int64_t now_ns) {
    tti_profile *p = x->profile;
    if (!p) return;
    if (p->mark_ns > 0 && now_ns > p->mark_ns)
        tti_profile_add(x, TTI_ROW_COMPUTE, id, -1, p->mark_ns, now_ns);
    p->mark_ns = now_ns;
}

/* ---- a window of steps ---- */

tutti_status tti_profile_open(tti_exec *x) {
    TTI_ASSERT(!x->profile);
    x->profile = calloc(1, sizeof *x->profile);
    if (!x->profile) return tti_fail(TUTTI_E_NOMEM, "profile: out of memory");
    pthread_mutex_init(&x->profile->mutex, NULL);
    x->profile->step = -1;
    x->profile->zero_ns = tti_now_ns();
    return TUTTI_OK;
}

static tutti_status read_timestamps(tti_exec *x) {
    tti_profile *p = x->profile;
    double *us = calloc((size_t)p->n_timestamps + 1, sizeof *us);
    if (!us || p->failed) {
        free(us);
        return tti_fail(TUTTI_E_NOMEM, "profile: out of memory");
    }
    tutti_status st =
        x->device ? x->setup.desc.backend->device->queues.read_timestamps(p->n_timestamps, us)
                  : TUTTI_OK;
    for (int i = 0; st == TUTTI_OK && i < p->n; i++) {
        entry *e = &p->entries[i];
        if (e->to == 0) continue;
        e->span.start_us = us[e->from];
        e->span.us = us[e->to] - us[e->from];
    }
    free(us);
    return st;
}

tutti_status tti_profile_read(tti_exec *x, tti_timeline *out) {
    tti_profile *p = x->profile;
    *out = (tti_timeline){0};
    TTI_ASSERT(p != NULL);
    TTI_TRY(read_timestamps(x));
    out->spans = calloc((size_t)p->n + 1, sizeof *out->spans);
    if (!out->spans) return tti_fail(TUTTI_E_NOMEM, "profile: out of memory");
    for (int i = 0; i < p->n; i++) out->spans[i] = p->entries[i].span;
    out->n = p->n;
    out->zero_ns = p->zero_ns;
    return TUTTI_OK;
}

void tti_profile_close(tti_exec *x) {
    tti_profile *p = x->profile;
    if (!p) return;
    pthread_mutex_destroy(&p->mutex);
    free(p->entries);
    free(p);
    x->profile = NULL;
}
