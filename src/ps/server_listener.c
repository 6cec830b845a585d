/* server_listener.c - a server thread for each worker process, which executes its requests.
 *
 * The server treats such a thread as the worker. So waiting, ordering and leaving work the same for
 * worker processes as for worker threads. */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "comm/channel.h"
#include "comm/local_sum.h"
#include "ps/server_state.h"

typedef struct request_thread {
    tti_server *s;
    int worker;
    tti_channel *channel;
    float *grads;   /* the received gradient: widened, or the channel's area */
    float *widened; /* owned; NULL: gradients are sent as f32 */
    const atomic_bool *is_closing;
    pthread_t thread;
    bool has_thread;
} request_thread;

struct tti_listener {
    request_thread *threads; /* [n], owned; worker 0 has none */
    int n;
    atomic_bool is_closing;
};

bool tti_server_has_processes(const tti_server *s) {
    return s->client || s->listener || s->replica_group;
}

void tti_server_rate(tti_server *s, double (*lr)(void *user, int64_t step), void *user) {
    pthread_mutex_lock(&s->mutex);
    s->lr = lr;
    s->lr_user = user;
    pthread_mutex_unlock(&s->mutex);
}

/* ---- requests ---- */

/* True if the parameters are divided into ranges, of which the first process owns only one. */
static bool in_ranges(const tti_server *s) { return tti_server_n_ranges(&s->desc) > 1; }

/* Executes request m and replaces m by the answer; sets *areas to the areas of the answer. */
static tutti_status serve(request_thread *a, tti_wire_message *m, unsigned *areas) {
    /* Each leased batch is either pushed or returned. */
    pthread_mutex_lock(&a->s->mutex);
    bool computes = a->s->worker[a->worker].computes;
    pthread_mutex_unlock(&a->s->mutex);
    bool pushes = m->kind == TTI_WIRE_GRADIENT || m->kind == TTI_WIRE_PUSH;
    if (pushes ? !computes : m->kind == TTI_WIRE_LEASE && computes)
        return tti_fail(TUTTI_E_MISMATCH, "parameter server: worker %d is out of turn", a->worker);
    switch (m->kind) {
        case TTI_WIRE_OPEN:
            return tti_server_open(a->s, m->number[0], m->number[1]);
        case TTI_WIRE_STOP:
            return tti_server_stop(a->s);
        case TTI_WIRE_LEASE: {
            tti_lease leased;
            float *params = tti_channel_area(a->channel, TTI_WIRE_PARAMS);
            TTI_TRY(tti_server_lease_for(a->s, a->worker, params, &leased));
            m->number[0] = leased.any;
            m->number[1] = leased.batch;
            m->number[2] = leased.version;
            memcpy(&m->number[3], &leased.loss_scale, sizeof leased.loss_scale);
            /* With several range servers the worker gets parameters from each of them. */
            if (leased.any && !in_ranges(a->s)) *areas = 1u << TTI_WIRE_PARAMS;
            return TUTTI_OK;
        }
        case TTI_WIRE_GRADIENT: {
            const tti_arrival *sent = &m->more.arrival;
            tti_push b = {.partials = {a->grads},
                          .n_partials = 1,
                          .step = {.loss_scale = sent->loss_scale, .n_rows = sent->n_rows},
                          .n_rows = sent->n_rows,
                          .n_own_rows = m->number[0],
                          .wait_ns = sent->wait_ns,
                          .result = {.loss_sum = sent->result.loss_sum,
                                     .count = sent->result.count,
                                     .correct = sent->result.correct,
                                     .metrics = sent->result.metrics,
                                     .skipped = sent->result.skipped,
                                     .bubble = sent->result.bubble,
                                     .compute_ns = sent->result.compute_ns}};
            m->number[0] = 0;
            return tti_server_push_for(a->s, a->worker, &b, &m->more.arrival);
        }
        case TTI_WIRE_PUSH:
            return TUTTI_OK; /* the areas arrived with the message */
        case TTI_WIRE_PULL: {
            bool has_ema = a->s->desc.exec.ema > 0;
            float *ema = has_ema ? tti_channel_area(a->channel, TTI_WIRE_EMA) : NULL;
            if (!in_ranges(a->s))
                *areas = 1u << TTI_WIRE_PARAMS | (has_ema ? 1u << TTI_WIRE_EMA : 0);
            return tti_server_pull_for(
                a->s, a->worker, tti_channel_area(a->channel, TTI_WIRE_PARAMS), ema, &m->number[0]);
        }
        case TTI_WIRE_KEYS: {
            /* Sends the parameters of the last lease or pull. */
            bool with_ema = m->number[1] && a->s->desc.exec.ema > 0;
            if (!in_ranges(a->s))
                return tti_fail(TUTTI_E_MISMATCH,
                                "parameter server: the keys are not divided into ranges");
            *areas = 1u << TTI_WIRE_PARAMS | (with_ema ? 1u << TTI_WIRE_EMA : 0);
            return TUTTI_OK;
        }
        case TTI_WIRE_LEAVE:
            m->number[0] = tti_server_leave_for(a->s, a->worker, m->more.text);
            return TUTTI_OK;
        case TTI_WIRE_WATCH: {
            bool over;
            TTI_TRY(tti_server_watch_for(a->s, a->worker, &m->number[0], &over));
            m->number[1] = over;
            return TUTTI_OK;
        }
        case TTI_WIRE_COMBINE: {
            tti_members members;
            tti_combine_op op = m->number[1] == TTI_COMBINE_SUM ? TTI_COMBINE_SUM : TTI_COMBINE_MAX;
            TTI_TRY(tti_server_combine_for(a->s, a->worker, op, m->more.values, (int)m->number[0],
                                           &members));
            tti_wire_put_members(m, &members, a->s->desc.n_workers);
            return TUTTI_OK;
        }
        case TTI_WIRE_REPORT:
            return tti_server_report_error(a->s, m->more.text);
        default:
            return tti_fail(TUTTI_E_MISMATCH,
                            "parameter server: the request is for another process");
    }
}

/* ---- the thread ---- */

static void send_failure(request_thread *a, tti_wire_message *m, tutti_status st,
                         const char *text) {
    tti_wire_fail(m, st, text);
    /* a closed connection is detected at its next message */
    if (tti_wire_send(a->channel, m, 0) != TUTTI_OK) tti_clear_error();
}

/* Handles one request and sends its answer; false: no other request follows. */
static bool serve_once(request_thread *a, tti_wire_message *m) {
    unsigned areas = 0;
    tutti_status st = tti_wire_recv(a->channel, m, 1u << TTI_WIRE_GRADS, TTI_NO_TIMEOUT, NULL);
    if (st != TUTTI_OK) {
        if (!atomic_load(a->is_closing))
            tti_server_remove_worker(a->s, a->worker, tutti_last_error());
        return false;
    }
    if (m->kind == TTI_WIRE_DISCONNECT) {
        /* The worker process has finished. */
        pthread_mutex_lock(&a->s->mutex);
        a->s->worker[a->worker].has_left = true; /* not reported as a loss */
        pthread_mutex_unlock(&a->s->mutex);
        tti_server_remove_worker(a->s, a->worker, NULL);
        return false;
    }
    if (m->kind == TTI_WIRE_FAIL) {
        /* A worker's own failure ends the run and this process. */
        pthread_mutex_lock(&a->s->mutex);
        tti_server_fail(a->s, tti_wire_status(m), m->more.text);
        pthread_mutex_unlock(&a->s->mutex);
        return false;
    }
    /* Converts a 16-bit gradient that arrived with m to f32. */
    bool has_gradient =
        m->kind == TTI_WIRE_PUSH ||
        (m->kind == TTI_WIRE_GRADIENT && !in_ranges(a->s) && !m->more.arrival.result.skipped);
    if (a->widened && has_gradient) {
        tti_widen(a->s->desc.exec.wire, tti_channel_area(a->channel, TTI_WIRE_GRADS), a->widened,
                  a->s->n_own);
    }
    st = serve(a, m, &areas);
    if (st != TUTTI_OK)
        send_failure(a, m, st, tutti_last_error());
    else if (tti_wire_send(a->channel, m, areas) != TUTTI_OK)
        tti_clear_error(); /* a lost connection is detected at its next message */
    return true;
}

/* Sends the reason of a failed run to the worker, whatever the worker is doing. */
static void *serve_all(void *arg) {
    request_thread *a = arg;
    tti_wire_message m;
    while (serve_once(a, &m)) continue;
    pthread_mutex_lock(&a->s->mutex);
    bool failed = a->s->failed;
    pthread_mutex_unlock(&a->s->mutex);
    if (failed) send_failure(a, &m, TUTTI_E_PEER, a->s->error);
    tti_channel_end(a->channel);
    return NULL;
}

static tutti_status start_thread(request_thread *a) {
    bool widens = a->s->desc.exec.wire != TUTTI_F32;
    if (widens) a->widened = calloc(a->s->n_own + 1, sizeof *a->widened);
    if (widens && !a->widened) return tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
    a->grads = widens ? a->widened : tti_channel_area(a->channel, TTI_WIRE_GRADS);
    a->has_thread = tti_thread_start(&a->thread, NULL, serve_all, a) == 0;
    if (a->has_thread) return TUTTI_OK;
    return tti_fail(TUTTI_E_NOMEM, "parameter server: cannot start a thread for worker %d",
                    a->worker);
}

tutti_status tti_listener_open(tti_server *s, tti_channel *const *channels) {
    tti_listener *listener = calloc(1, sizeof *listener);
    tutti_status st = TUTTI_OK;
    s->barrier.values = calloc((size_t)s->desc.n_workers * TTI_COMBINE_VALUES, sizeof(int64_t));
    request_thread *threads = calloc((size_t)s->desc.n_workers, sizeof *threads);
    if (!listener || !threads || !s->barrier.values) {
        for (int w = 1; w < s->desc.n_workers; w++) tti_channel_close(channels[w]);
        free(threads);
        free(listener);
        return tti_fail(TUTTI_E_NOMEM, "parameter server: out of memory");
    }
    s->listener = listener;
    listener->n = s->desc.n_workers;
    listener->threads = threads;
    for (int w = 1; w < listener->n; w++)
        listener->threads[w] = (request_thread){
            .s = s, .worker = w, .channel = channels[w], .is_closing = &listener->is_closing};
    for (int w = 1; w < listener->n && st == TUTTI_OK; w++)
        st = start_thread(&listener->threads[w]);
    return st; /* the caller destroys the threads that were started */
}

void tti_listener_close(tti_listener *listener) {
    if (!listener) return;
    atomic_store(&listener->is_closing, true);
    for (int w = 1; w < listener->n; w++) tti_channel_stop_receiving(listener->threads[w].channel);
    for (int w = 1; w < listener->n; w++) {
        if (listener->threads[w].has_thread) pthread_join(listener->threads[w].thread, NULL);
        tti_channel_close(listener->threads[w].channel);
        free(listener->threads[w].widened);
    }
    free(listener->threads);
    free(listener);
}
