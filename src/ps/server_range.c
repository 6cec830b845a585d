/* server_range.c - a process that owns a range of the parameters: executes commands of the first
 * process, and serves workers.
 *
 * One thread executes the commands of the first process in order. For each worker of another
 * process another thread receives gradients and sends parameters. This thread owns the worker's
 * buffers until a gradient has been pushed, and again after parameters are ready. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"
#include "comm/local_sum.h"
#include "exec/worker/worker.h"
#include "ps/server_state.h"

/* The buffers and the connection of a worker of this or another process. */
typedef struct range_worker {
    tti_range_server *h;
    int worker;
    tti_channel *channel; /* NULL: a worker of this process */
    float *params, *grads, *ema;
    float *widened;  /* f32 memory of grads if they arrive in 16 bits, owned; else NULL */
    bool has_pushed; /* a gradient has arrived and is not applied yet */
    bool is_copied;  /* parameters are ready and not pulled yet */
    int64_t version;
    pthread_t thread;
    bool has_thread;
} range_worker;

struct tti_range_server {
    tti_server_desc desc;
    const char *kind; /* how messages call the workers, see tti_server_worker_noun */
    int rank;
    size_t n_keys;
    tti_channel *control;
    tti_exec *x;
    range_worker *workers; /* [n_workers], owned */
    range_worker *
        *update_workers; /* [n_workers], owned: scratch, the workers of the current update */
    float *memory;       /* buffers of this process's worker */
    pthread_t thread;
    bool has_thread;
    atomic_bool is_closing;
    int64_t n_bytes; /* bytes sent to and received from workers of other processes; used by the
                        range's thread */
    pthread_mutex_t mutex; /* guards everything below and the flags of the workers */
    pthread_cond_t news;
    bool is_up, has_ended; /* has_ended: no more commands are executed */
    tutti_status start_status;
    char error[1024]; /* error message if the start failed */
};

/* ---- commands ---- */

static void copy_compute_thread(int compute_thread, void *arg) {
    void **p = arg;
    const tti_range_server *h = p[0];
    const range_worker *to = p[1];
    tti_range mine = tti_compute_thread_range(h->n_keys, 16, compute_thread,
                                              tti_setup_of(h->x)->desc.n_compute_threads);
    if (mine.first >= mine.last) return;
    size_t n_bytes = (mine.last - mine.first) * sizeof(float);
    memcpy(to->params + mine.first, tti_exec_array(h->x, TTI_STATE_PARAMS) + mine.first, n_bytes);
    if (p[2])
        memcpy(to->ema + mine.first, tti_exec_array(h->x, TTI_STATE_EMA) + mine.first, n_bytes);
}

static void count(tti_range_server *h, const range_worker *s, size_t n_arrays, tutti_dtype of) {
    if (s->channel) h->n_bytes += (int64_t)(n_arrays * h->n_keys * tutti_dtype_bytes(of));
}

/* The gradients of an update, in the order of the workers. */
typedef struct terms {
    tti_range_server *h;
    range_worker **of;
    int n;
} terms;

static void add_compute_thread(int compute_thread, void *arg) {
    const terms *t = arg;
    const tti_setup *setup = tti_setup_of(t->h->x);
    tti_range mine =
        tti_compute_thread_range(t->h->n_keys, 16, compute_thread, setup->desc.n_compute_threads);
    for (int i = 1; i < t->n && mine.first < mine.last; i++)
        setup->desc.backend->accumulate(t->of[0]->grads + mine.first, t->of[i]->grads + mine.first,
                                        mine.last - mine.first);
}

static tutti_status apply_terms(tti_range_server *h, const tti_wire_message *m, uint64_t *hash) {
    tti_exec *x = h->x;
    const tti_wire_update *u = &m->more.update;
    tti_step_desc step = {
        .step = u->step, .lr = u->lr, .loss_scale = u->loss_scale, .n_rows = m->number[1]};
    tti_step_result result = {0};
    terms t = {.h = h, .of = h->update_workers};
    tti_worker_set workers = {0};
    memcpy(workers.words, u->workers, (size_t)m->number[2] * sizeof u->workers[0]);
    pthread_mutex_lock(&h->mutex);
    for (int w = 0; w < h->desc.n_workers; w++) {
        range_worker *s = &h->workers[w];
        if (!tti_set_has(&workers, w) || !s->has_pushed) continue;
        s->has_pushed = false;
        t.of[t.n++] = s;
    }
    pthread_mutex_unlock(&h->mutex);
    if (t.n == 0 || t.n != tti_set_count(&workers)) {
        return tti_fail(TUTTI_E_MISMATCH,
                        "parameter server: expected gradients of %d workers, %d have arrived",
                        tti_set_count(&workers), t.n);
    }
    for (int i = 0; i < t.n; i++) count(h, t.of[i], 1, h->desc.exec.wire);
    tti_exec_run_threads(x, add_compute_thread, &t);
    tti_exec_lend_grads(x, t.of[0]->grads);
    tti_exec_scale_loss(x, u->loss_scale);
    TTI_TRY(tti_exec_apply(x, &step, u->inv_count, &result));
    *hash = result.params_hash;
    return TUTTI_OK;
}

static tutti_status answer(tti_range_server *h, const tti_wire_message *m, unsigned areas) {
    return tti_wire_send(h->control, m, areas);
}

static tutti_status receive_message(tti_range_server *h, unsigned allowed_areas,
                                    tti_wire_message *m) {
    return tti_wire_recv(h->control, m, allowed_areas, TTI_NO_TIMEOUT, NULL);
}

static tutti_status join_range(void *range_server, double *values, size_t n_each) {
    tti_range_server *h = range_server;
    size_t n_bytes = (size_t)h->desc.exec.plan->n_updates * n_each * sizeof *values;
    tti_wire_message m = {.kind = TTI_WIRE_JOIN, .number = {(int64_t)n_each}};
    double *area = tti_channel_area(h->control, TTI_WIRE_JOINED);
    memcpy(area, values, n_bytes);
    TTI_TRY(answer(h, &m, 1u << TTI_WIRE_JOINED));
    TTI_TRY(receive_message(h, 1u << TTI_WIRE_JOINED, &m));
    if (m.kind != TTI_WIRE_JOIN || m.number[0] != (int64_t)n_each)
        return tti_fail(TUTTI_E_PEER, "parameter server: the sum over all ranges did not arrive");
    memcpy(values, area, n_bytes);
    return TUTTI_OK;
}

/* Executes one command of the first process and answers it. */
static tutti_status execute_command(tti_range_server *h, tti_wire_message *m) {
    switch (m->kind) {
        case TTI_WIRE_COPY: {
            if (m->number[0] >= h->desc.n_workers)
                return tti_fail(TUTTI_E_MISMATCH, "there is no worker %lld",
                                (long long)m->number[0]);
            range_worker *s = &h->workers[m->number[0]];
            bool with_ema = m->number[2] && tti_exec_array(h->x, TTI_STATE_EMA);
            tti_exec_run_threads(h->x, copy_compute_thread, (void *[]){h, s, with_ema ? h : NULL});
            count(h, s, with_ema ? 2 : 1, TUTTI_F32);
            pthread_mutex_lock(&h->mutex);
            s->is_copied = true;
            s->version = m->number[1];
            pthread_cond_broadcast(&h->news);
            pthread_mutex_unlock(&h->mutex);
            return TUTTI_OK;
        }
        case TTI_WIRE_UPDATE: {
            /* A failure is sent in the same way as a result. */
            tti_wire_message done = {.kind = TTI_WIRE_UPDATE};
            uint64_t hash = 0;
            tutti_status st = apply_terms(h, m, &hash);
            done.number[0] = (int64_t)hash;
            if (st != TUTTI_OK) tti_wire_fail(&done, st, tutti_last_error());
            return answer(h, &done, 0);
        }
        case TTI_WIRE_FETCH: {
            const float *from = tti_exec_array(h->x, m->number[0]);
            size_t first = (size_t)m->number[1], n = (size_t)m->number[2];
            if (!from || first > h->n_keys ||
                n > TTI_MIN(h->n_keys - first, (size_t)TTI_FETCH_ELEMS))
                return tti_fail(TUTTI_E_MISMATCH, "parameter server: unknown state was requested");
            memcpy(tti_channel_area(h->control, TTI_WIRE_FETCHED), from + first, n * sizeof *from);
            m->number[3] = h->n_bytes;
            return answer(h, m, 1u << TTI_WIRE_FETCHED);
        }
        default:
            return tti_fail(TUTTI_E_MISMATCH,
                            "parameter server: unknown command from the first process");
    }
}

/* ---- the range's thread, which is compute thread 0 ---- */

/* Runs until the first process ends the run or is lost. */
static void execute_commands(tti_range_server *h) {
    tti_wire_message m;
    tutti_status st;
    do {
        st = receive_message(h, 0, &m);
        if (st == TUTTI_OK && m.kind == TTI_WIRE_DISCONNECT) return;
        if (st == TUTTI_OK) st = execute_command(h, &m);
    } while (st == TUTTI_OK);
    tti_wire_fail(&m, st, tutti_last_error());
    /* sending fails if the first process is lost */
    if (answer(h, &m, 0) != TUTTI_OK) tti_clear_error();
}

static void *run_range(void *arg) {
    tti_range_server *h = arg;
    tti_exec_desc *d = &h->desc.exec;
    d->serves = true;
    d->comm = NULL;
    d->cores = NULL;
    d->range = h->rank;
    d->n_ranges = h->desc.n_ranges;
    d->join = join_range;
    d->join_user = h;
    tutti_status st = tti_exec_create(d, &h->x);
    pthread_mutex_lock(&h->mutex);
    h->start_status = st;
    if (st != TUTTI_OK) snprintf(h->error, sizeof h->error, "%s", tutti_last_error());
    h->is_up = true;
    pthread_cond_broadcast(&h->news);
    pthread_mutex_unlock(&h->mutex);
    if (st == TUTTI_OK) execute_commands(h);
    pthread_mutex_lock(&h->mutex);
    h->has_ended = true;
    pthread_cond_broadcast(&h->news);
    pthread_mutex_unlock(&h->mutex);
    tti_exec_destroy(h->x);
    return NULL;
}

/* ---- workers ---- */

/* With the mutex held: waits at most wait_ms until *condition is true (if not NULL) or the range is
 * no longer served. */
static void wait_for(tti_range_server *h, const bool *condition, int64_t wait_ms) {
    int64_t end_ns = tti_now_ns() + wait_ms * TTI_NS_PER_MS;
    while (!h->has_ended && !(condition && *condition))
        if (tti_cond_wait_until(&h->news, &h->mutex, end_ns) != 0 && tti_now_ns() >= end_ns) break;
}

/* With the mutex held: waits until the buffers of s contain parameters of that version. */
static tutti_status wait_copied(tti_range_server *h, range_worker *s, int64_t version) {
    wait_for(h, &s->is_copied, tti_wire_answer_timeout_ms(&h->desc));
    if (!s->is_copied)
        return tti_fail(
            TUTTI_E_PEER,
            "parameter server: parameters of version %lld for %s %d did not reach their owner",
            (long long)version, h->kind, s->worker);
    if (s->version != version)
        return tti_fail(TUTTI_E_MISMATCH,
                        "parameter server: parameters have version %lld, not %lld, for %s %d",
                        (long long)s->version, (long long)version, h->kind, s->worker);
    s->is_copied = false;
    return TUTTI_OK;
}

static void mark_pushed(range_worker *s) {
    if (s->widened)
        tti_widen(s->h->desc.exec.wire, tti_channel_area(s->channel, TTI_WIRE_GRADS), s->widened,
                  s->h->n_keys);
    pthread_mutex_lock(&s->h->mutex);
    s->has_pushed = true;
    pthread_mutex_unlock(&s->h->mutex);
}

/* Handles one request and sends its answer; false: no other request follows. A lost worker is
 * handled by the first process, which is notified too. */
static bool serve_once(range_worker *s, tti_wire_message *m) {
    unsigned areas = 0;
    tutti_status st = tti_wire_recv(s->channel, m, 1u << TTI_WIRE_GRADS, TTI_NO_TIMEOUT, NULL);
    if (st != TUTTI_OK) return false;
    if (m->kind == TTI_WIRE_PUSH) {
        mark_pushed(s);
    } else if (m->kind == TTI_WIRE_KEYS) {
        pthread_mutex_lock(&s->h->mutex);
        st = wait_copied(s->h, s, m->number[0]);
        pthread_mutex_unlock(&s->h->mutex);
        areas = 1u << TTI_WIRE_PARAMS | (s->ema && m->number[1] ? 1u << TTI_WIRE_EMA : 0);
        if (st != TUTTI_OK) tti_wire_fail(m, st, tutti_last_error());
    } else {
        return false;
    }
    return tti_wire_send(s->channel, m, st == TUTTI_OK ? areas : 0) == TUTTI_OK;
}

static void *serve_worker(void *arg) {
    range_worker *s = arg;
    tti_wire_message m;
    while (serve_once(s, &m)) continue;
    tti_clear_error();
    tti_channel_end(s->channel);
    return NULL;
}

static tutti_status start_thread(pthread_t *thread, void *(*run)(void *), void *arg, bool *has) {
    *has = tti_thread_start(thread, NULL, run, arg) == 0;
    return *has ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "parameter server: cannot start a thread");
}

/* ---- the worker of this process ---- */

float *tti_range_server_grads(tti_range_server *h) { return h->workers[h->rank].grads; }

void tti_range_server_push(tti_range_server *h) { mark_pushed(&h->workers[h->rank]); }

tutti_status tti_range_server_pull(tti_range_server *h, int64_t version, const float **params,
                                   const float **ema) {
    range_worker *own = &h->workers[h->rank];
    pthread_mutex_lock(&h->mutex);
    tutti_status st = wait_copied(h, own, version);
    pthread_mutex_unlock(&h->mutex);
    *params = own->params;
    *ema = own->ema;
    return st;
}

void tti_exec_store_range(tti_exec *x, int k, tti_range keys, const float *data) {
    const tti_setup *setup = tti_setup_of(x);
    tti_range own =
        tti_share_range(setup->desc.plan, setup->desc.range, TTI_MAX(1, setup->desc.n_ranges));
    float *to = tti_exec_array(x, k);
    size_t first = TTI_MAX(keys.first, own.first), last = TTI_MIN(keys.last, own.last);
    if (!to || first >= last) return;
    memcpy(to + (first - own.first), data + (first - keys.first), (last - first) * sizeof *to);
}

void tti_range_server_store(tti_range_server *h, int k, tti_range keys, const float *data) {
    pthread_mutex_lock(&h->mutex);
    tti_exec_store_range(h->x, k, keys, data);
    pthread_mutex_unlock(&h->mutex);
}

void tti_range_server_fetch(tti_range_server *h, int k, tti_range keys, float *to) {
    pthread_mutex_lock(&h->mutex);
    memcpy(to, tti_exec_array(h->x, k) + keys.first, (keys.last - keys.first) * sizeof *to);
    pthread_mutex_unlock(&h->mutex);
}

/* ---- create and close ---- */

static tutti_status start_threads(tti_range_server *h) {
    range_worker *own = &h->workers[h->rank];
    size_t n = (h->n_keys + 15) & ~(size_t)15;
    h->memory = aligned_alloc(64, TTI_N_KEY_AREAS * n * sizeof(float) + 64);
    if (!h->memory) return tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
    own->params = h->memory;
    own->grads = h->memory + n;
    own->ema = h->desc.exec.ema > 0 ? h->memory + 2 * n : NULL;
    /* For each worker of another process, if gradients arrive in 16 bits. */
    if (h->desc.exec.wire != TUTTI_F32) {
        for (int w = 0; w < h->desc.n_workers; w++) {
            range_worker *s = &h->workers[w];
            if (!s->channel) continue;
            s->grads = s->widened = calloc(h->n_keys + 1, sizeof *s->widened);
            if (!s->widened) return tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
        }
    }
    TTI_TRY(start_thread(&h->thread, run_range, h, &h->has_thread));
    pthread_mutex_lock(&h->mutex);
    while (!h->is_up)
        pthread_cond_wait(&h->news, &h->mutex); /* until the thread has started or failed */
    tutti_status st = h->start_status;
    pthread_mutex_unlock(&h->mutex);
    if (st != TUTTI_OK) return tti_fail(st, "%s", h->error);
    for (int w = 0; w < h->desc.n_workers; w++) {
        range_worker *s = &h->workers[w];
        if (s->channel) TTI_TRY(start_thread(&s->thread, serve_worker, s, &s->has_thread));
    }
    return TUTTI_OK;
}

tutti_status tti_range_server_create(const tti_server_desc *desc, const char *kind, int rank,
                                     tti_channel *control, tti_channel *const *channels,
                                     tti_range_server **out) {
    tti_range_server *h = calloc(1, sizeof *h);
    range_worker *workers = calloc((size_t)desc->n_workers, sizeof *workers);
    range_worker **update_workers = calloc((size_t)desc->n_workers, sizeof(range_worker *));
    *out = NULL;
    if (!h || !workers || !update_workers) {
        free(h);
        free(workers);
        free(update_workers);
        for (int w = 0; w < desc->n_workers; w++) tti_channel_close(channels[w]);
        tti_channel_close(control);
        return tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
    }
    tti_range keys = tti_server_range(desc, rank);
    *h = (tti_range_server){.desc = *desc,
                            .kind = kind,
                            .rank = rank,
                            .n_keys = keys.last - keys.first,
                            .control = control,
                            .workers = workers,
                            .update_workers = update_workers};
    pthread_mutex_init(&h->mutex, NULL);
    tti_cond_init(&h->news);
    for (int w = 0; w < h->desc.n_workers; w++) {
        range_worker *s = &h->workers[w];
        *s = (range_worker){.h = h, .worker = w, .channel = channels[w]};
        if (!s->channel) continue;
        s->params = tti_channel_area(s->channel, TTI_WIRE_PARAMS);
        s->grads = tti_channel_area(s->channel, TTI_WIRE_GRADS);
        s->ema = h->desc.exec.ema > 0 ? tti_channel_area(s->channel, TTI_WIRE_EMA) : NULL;
    }
    tutti_status st = start_threads(h);
    if (st == TUTTI_OK) {
        *out = h;
        return st;
    }
    tti_channel_stop_receiving(control);
    tti_range_server_close(h, TTI_NO_TIMEOUT);
    return st;
}

void tti_range_server_close(tti_range_server *h, int timeout_ms) {
    if (!h) return;
    if (h->has_thread && timeout_ms != TTI_NO_TIMEOUT) {
        /* Limits the wait: a first process that hangs must not block this one forever. */
        pthread_mutex_lock(&h->mutex);
        wait_for(h, NULL, timeout_ms);
        bool has_ended = h->has_ended;
        pthread_mutex_unlock(&h->mutex);
        if (!has_ended) tti_channel_stop_receiving(h->control);
    }
    if (h->has_thread) pthread_join(h->thread, NULL);
    for (int w = 0; w < h->desc.n_workers; w++)
        if (h->workers[w].channel) tti_channel_stop_receiving(h->workers[w].channel);
    for (int w = 0; w < h->desc.n_workers; w++) {
        if (h->workers[w].has_thread) pthread_join(h->workers[w].thread, NULL);
        tti_channel_close(h->workers[w].channel);
        free(h->workers[w].widened);
    }
    tti_channel_close(h->control);
    pthread_cond_destroy(&h->news);
    pthread_mutex_destroy(&h->mutex);
    free(h->memory);
    free(h->workers);
    free(h->update_workers);
    free(h);
}

/* ---- the first process of several servers: sends commands to the range servers ---- */

/* Only the server's thread communicates with the range servers, one request after the other.  It
 * sends each command to all of them before it waits for any answer. */

struct tti_ranges {
    const tti_server_desc *desc;
    int n;
    bool is_lost;
    char why[768];              /* reason of the loss */
    tti_channel **range_server; /* [n], owned; entry 0, the first process, is NULL */
    uint64_t *hashes;           /* [n], owned: hashes of an update, one per range */
    int *first_update;          /* [n + 1]: range r has blocks first .. next-1 */
    bool by_model_rank; /* the ranges are parts of a divided model, each with its own plan */
};

/* ---- create and close ---- */

tti_ranges *tti_ranges_create(const tti_server_desc *desc, int n, tti_channel *const *channels) {
    tti_ranges *g = calloc(1, sizeof *g);
    int *first_update = calloc((size_t)n + 1, sizeof *first_update);
    tti_channel **range_server = calloc((size_t)n, sizeof(tti_channel *));
    uint64_t *hashes = calloc((size_t)n, sizeof *hashes);
    if (!g || !first_update || !range_server || !hashes) {
        free(g);
        free(first_update);
        free(range_server);
        free(hashes);
        return NULL;
    }
    *g = (tti_ranges){.desc = desc,
                      .n = n,
                      .range_server = range_server,
                      .hashes = hashes,
                      .first_update = first_update};
    g->by_model_rank = n != tti_server_n_ranges(desc);
    for (int r = 1; r < n; r++) g->range_server[r] = channels[r];
    if (!g->by_model_rank) {
        const tti_plan *plan = g->desc->exec.plan;
        int at = 0;
        for (int r = 0; r < g->n; r++) {
            size_t last = tti_server_range(g->desc, r).last;
            g->first_update[r] = at;
            while (at < plan->n_updates && plan->updates[at].first < last) at++;
        }
        g->first_update[g->n] = plan->n_updates;
    }
    return g;
}

void tti_ranges_close(tti_ranges *g) {
    tti_wire_message m = {.kind = TTI_WIRE_DISCONNECT};
    char kept[4096]; /* the original error message, which later failures must not replace */
    if (!g) return;
    snprintf(kept, sizeof kept, "%s", tutti_last_error());
    tutti_status st = TUTTI_OK;
    for (int r = 1; r < g->n; r++) {
        st |= tti_wire_send(g->range_server[r], &m, 0);
        tti_channel_close(g->range_server[r]);
    }
    if (st != TUTTI_OK) tti_fail(st, "%s", kept);
    free(g->first_update);
    free(g->range_server);
    free(g->hashes);
    free(g);
}

bool tti_ranges_is_lost(const tti_ranges *g) { return g && g->is_lost; }

/* ---- commands and answers ---- */

/* Records the last failure, after which no command is executed. */
static void record_loss(tti_ranges *g) {
    if (!g->is_lost) snprintf(g->why, sizeof g->why, "%s", tutti_last_error());
    g->is_lost = true;
}

static tutti_status fail_if_lost(const tti_ranges *g) {
    return g->is_lost ? tti_fail(TUTTI_E_PEER, "%s", g->why) : TUTTI_OK;
}

/* Adds the name of the range server to the text of the last failure. */
static tutti_status report_loss(tti_ranges *g, int r) {
    char text[512];
    snprintf(text, sizeof text, "%s", tutti_last_error());
    tutti_status st = tti_fail(
        TUTTI_E_PEER, "parameter server: rank %d, which owns %s %d of %d, cannot continue: %s", r,
        g->by_model_rank ? "part" : "range", r, g->n, text);
    record_loss(g);
    return st;
}

static tutti_status send_command(tti_ranges *g, int r, const tti_wire_message *m, unsigned areas) {
    tutti_status st = tti_wire_send(g->range_server[r], m, areas);
    return st == TUTTI_OK ? st : report_loss(g, r);
}

static tutti_status send_command_to_all(tti_ranges *g, const tti_wire_message *m) {
    TTI_TRY(fail_if_lost(g));
    for (int r = 1; r < g->n; r++) TTI_TRY(send_command(g, r, m, 0));
    return TUTTI_OK;
}

/* Receives a message of that kind, or returns the failure that range server r reports. */
static tutti_status receive_answer(tti_ranges *g, int r, int64_t kind, unsigned allowed_areas,
                                   tti_wire_message *m) {
    int timeout_ms = g->by_model_rank ? g->desc->timeout_ms : tti_wire_answer_timeout_ms(g->desc);
    tutti_status st =
        tti_wire_recv(g->range_server[r], m, allowed_areas, timeout_ms, &g->desc->watch);
    if (st == TUTTI_OK && m->kind != kind && m->kind != TTI_WIRE_FAIL)
        st = tti_fail(TUTTI_E_MISMATCH, "the answer does not match the request");
    if (st != TUTTI_OK) return report_loss(g, r);
    if (m->kind == kind) return TUTTI_OK;
    return tti_fail(tti_wire_status(m), "%s", m->more.text);
}

tutti_status tti_ranges_copy(tti_ranges *g, const tti_request *r) {
    if (!g) return TUTTI_OK;
    tti_wire_message m = {.kind = TTI_WIRE_COPY,
                          .number = {r->worker, r->arrival.version, r->ema != NULL}};
    return send_command_to_all(g, &m);
}

tutti_status tti_ranges_update(tti_ranges *g, const tti_request *r, const tti_worker_set *workers) {
    if (!g) return TUTTI_OK;
    int n_words = tti_set_n_words(g->desc->n_workers);
    tti_wire_message m = {.kind = TTI_WIRE_UPDATE,
                          .number = {0, r->step.n_rows, n_words},
                          .more.update = {.step = r->step.step,
                                          .lr = r->step.lr,
                                          .loss_scale = r->step.loss_scale,
                                          .inv_count = r->inv_count}};
    memcpy(m.more.update.workers, workers->words, (size_t)n_words * sizeof workers->words[0]);
    return send_command_to_all(g, &m);
}

tutti_status tti_ranges_end_update(tti_ranges *g, uint64_t *hash) {
    tutti_status st = TUTTI_OK;
    if (!g) return st;
    uint64_t *hashes = g->hashes;
    memset(hashes, 0, (size_t)g->n * sizeof *hashes);
    hashes[0] = *hash;
    for (int r = 1; r < g->n && !g->is_lost; r++) {
        tti_wire_message m;
        tutti_status own = receive_answer(g, r, TTI_WIRE_UPDATE, 0, &m);
        if (own == TUTTI_OK)
            hashes[r] = (uint64_t)m.number[0];
        else if (st == TUTTI_OK || g->is_lost)
            st = own;
    }
    *hash = 0;
    for (int r = 0; r < g->n; r++) *hash += hashes[r];
    if (g->by_model_rank) *hash = tti_divided_join_hashes(&g->desc->exec.mesh->size, hashes, g->n);
    return st;
}

/* ---- values of all blocks ---- */

static tutti_status join_ranges(tti_ranges *g, double *values, size_t n_each) {
    size_t n_bytes = (size_t)g->desc->exec.plan->n_updates * n_each * sizeof *values;
    tti_wire_message m = {.kind = TTI_WIRE_JOIN, .number = {(int64_t)n_each}};
    for (int r = 1; r < g->n; r++) {
        TTI_TRY(receive_answer(g, r, TTI_WIRE_JOIN, 1u << TTI_WIRE_JOINED, &m));
        size_t first = (size_t)g->first_update[r] * n_each;
        size_t last = (size_t)g->first_update[r + 1] * n_each;
        const double *from = tti_channel_area(g->range_server[r], TTI_WIRE_JOINED);
        if (m.number[0] != (int64_t)n_each)
            return tti_fail(TUTTI_E_MISMATCH,
                            "parameter server: rank %d adds a different number of values", r);
        if (last > first) memcpy(values + first, from + first, (last - first) * sizeof *values);
    }
    for (int r = 1; r < g->n; r++) {
        memcpy(tti_channel_area(g->range_server[r], TTI_WIRE_JOINED), values, n_bytes);
        TTI_TRY(send_command(g, r, &m, 1u << TTI_WIRE_JOINED));
    }
    return TUTTI_OK;
}

tutti_status tti_ranges_join(tti_ranges *g, double *values, size_t n_each) {
    tutti_status st = join_ranges(g, values, n_each);
    if (st != TUTTI_OK)
        record_loss(g); /* the other servers now wait for a message that is never sent */
    return st;
}

/* ---- state ---- */

static tutti_status send_request(tti_ranges *g, int r, tti_wire_message *m) {
    TTI_TRY(send_command(g, r, m, 0));
    return receive_answer(g, r, TTI_WIRE_FETCH, 1u << TTI_WIRE_FETCHED, m);
}

tutti_status tti_ranges_fetch(tti_ranges *g, int k, tti_range keys, float *to) {
    TTI_TRY(fail_if_lost(g));
    for (int r = 1; r < g->n && !g->by_model_rank; r++) {
        tti_range theirs = tti_server_range(g->desc, r);
        size_t first = TTI_MAX(keys.first, theirs.first), last = TTI_MIN(keys.last, theirs.last);
        for (size_t n; first < last; first += n) {
            n = TTI_MIN(last - first, (size_t)TTI_FETCH_ELEMS);
            tti_wire_message m = {.kind = TTI_WIRE_FETCH,
                                  .number = {k, (int64_t)(first - theirs.first), (int64_t)n}};
            TTI_TRY(send_request(g, r, &m));
            memcpy(to + (first - keys.first),
                   tti_channel_area(g->range_server[r], TTI_WIRE_FETCHED), n * sizeof *to);
        }
    }
    return TUTTI_OK;
}

tutti_status tti_ranges_traffic(tti_ranges *g, int64_t *bytes) {
    if (!g) return TUTTI_OK;
    TTI_TRY(fail_if_lost(g));
    for (int r = 1; r < g->n; r++) {
        tti_wire_message m = {.kind = TTI_WIRE_FETCH, .number = {TTI_STATE_PARAMS, 0, 0}};
        TTI_TRY(send_request(g, r, &m));
        bytes[r] = m.number[3];
    }
    return TUTTI_OK;
}
