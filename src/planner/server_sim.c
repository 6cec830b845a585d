/* server_sim.c - simulates the workers and servers of an asynchronous job as discrete events.
 *
 * Transfers over a link share its bandwidth equally. So each link has a virtual clock that measures
 * the service that each transfer has received: it advances more slowly with more transfers, and a
 * message ends when the clock has advanced by the message's service time. A server's thread is
 * represented by the time at which it becomes free, first come, first served. The staleness bound
 * is checked against the oldest gradient in progress: a worker is blocked while that gradient
 * started before the start of the worker's step that the bound refers to. */
#include "planner/server_sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/philox.h"

/* Limits of the measured rounds (gradients per worker), of gradients, and of messages. */
enum { MAX_ROUNDS = 40, MIN_ROUNDS = 10, MIN_GRADIENTS = 256, MAX_MESSAGES = 1 << 23 };

static const double VARIATION = 0.05; /* of compute times, relative, in both directions */

/* ---- speeds of workers ---- */

tutti_status tti_speeds_parse(const char *text, tti_speeds *out) {
    size_t n_most = 1;
    if (!text) text = "1";
    for (const char *c = text; *c; c++) n_most += *c == ',';
    *out = (tti_speeds){.of = calloc(n_most, sizeof *out->of)};
    if (!out->of) return tti_fail(TUTTI_E_NOMEM, "simulate: out of memory");
    for (;; text++) {
        char number[TTI_NUMBER_TEXT];
        size_t n = strcspn(text, ",");
        double *speed = &out->of[out->n++];
        if (n >= sizeof number) break;
        memcpy(number, text, n);
        number[n] = '\0';
        if (tti_parse_double(number, speed) != TTI_NUMBER_OK || *speed < 1e-3 || *speed > 1e3)
            break;
        text += n;
        if (!*text) return TUTTI_OK;
    }
    tti_speeds_fini(out);
    return tti_fail(TUTTI_E_CONFIG,
                    "simulate: speeds are numbers from 0.001 to 1000 with commas between them, "
                    "such as 1,1,1,0.2");
}

void tti_speeds_fini(tti_speeds *speeds) {
    free(speeds->of);
    *speeds = (tti_speeds){0};
}

static double speed_of(const tti_speeds *s, int64_t i) { return s->of[i % s->n]; }

double tti_speeds_slowest(const tti_speeds *s, int64_t n) {
    double slowest = s->of[0];
    for (int64_t i = 1; i < n && i < s->n; i++) slowest = fmin(slowest, s->of[i]);
    return slowest;
}

double tti_speeds_sum(const tti_speeds *s, int64_t n) {
    double whole = 0, rest = 0;
    for (int i = 0; i < s->n; i++) {
        whole += s->of[i];
        if (i < n % s->n) rest += s->of[i];
    }
    return whole * (double)(n / s->n) + rest;
}

/* ---- the event queue ---- */

typedef enum event_kind { READY, COPIED, PULLED, COMPUTED, ARRIVED, MOVED } event_kind;

typedef struct event {
    double at; /* seconds; for a message: time on the virtual clock of its link; for a blocked
                  worker: the number of its bound */
    int64_t order;
    int32_t of; /* number of a worker; MOVED: number of a link */
    event_kind kind;
} event;

/* A binary heap, ordered by time. */
typedef struct event_queue {
    event *v;
    int n, cap;
} event_queue;

static bool comes_before(const event *a, const event *b) {
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

/* False: out of memory. */
static bool put(event_queue *a, event e) {
    if (a->n == a->cap) {
        int cap = 2 * a->cap + 16;
        event *v = realloc(a->v, (size_t)cap * sizeof *v);
        if (!v) return false;
        a->v = v, a->cap = cap;
    }
    int i = a->n++;
    for (; i > 0 && comes_before(&e, &a->v[(i - 1) / 2]); i = (i - 1) / 2)
        a->v[i] = a->v[(i - 1) / 2];
    a->v[i] = e;
    return true;
}

static event take(event_queue *a) {
    event first = a->v[0], last = a->v[--a->n];
    int i = 0, next;
    while ((next = 2 * i + 1) < a->n) {
        if (next + 1 < a->n && comes_before(&a->v[next + 1], &a->v[next])) next++;
        if (!comes_before(&a->v[next], &last)) break;
        a->v[i] = a->v[next];
        i = next;
    }
    a->v[i] = last;
    return first;
}

/* ---- participants ---- */

/* One direction of the link of a process. */
typedef struct sim_link {
    event_queue messages;
    double clock_s, at_s; /* virtual clock at time at_s: service that each message has received */
    double busy_s;
    int64_t next; /* order of its valid event; earlier events of the link are obsolete */
} sim_link;

/* A thread of a server. */
typedef struct thread {
    double free_s, busy_s;
} thread;

typedef struct worker {
    int64_t version; /* number of updates in its parameters */
    int64_t n_started;
    int last_start; /* number of its last start, counted over all workers; NONE */
    int bound;      /* number of its start `staleness` steps earlier, or of its first start; NONE */
    int older, younger; /* neighbours in the list of workers that compute; NONE */
    int n_pending;      /* messages for which it waits */
    double latency_s;
    event_kind then; /* the next event */
} worker;

enum { NONE = -1 };

typedef struct sim {
    const tti_server_sim_desc *d;
    event_queue events, blocked; /* future events; workers that the staleness bound blocks */
    sim_link *links;             /* [2 n]: into each worker, out of it */
    thread *threads;             /* [n_servers] */
    worker *workers;             /* [n] */
    int *next_start;             /* for each start: the number of the same worker's next start */
    bool failed;                 /* out of memory */
    int oldest, youngest, n_started;
    int64_t n_events, n_updates;
    int *arrived, n_arrived; /* [n], with backup workers: whose gradients have arrived */
    /* Measured since start_measuring: */
    double from_s, computed_s;
    int64_t n_pushed, n_dropped, n_applied;
    double stale_sum;
    int64_t stale[TTI_STALENESS_BINS], stale_max;
} sim;

static void schedule_event(sim *p, double at, int of, event_kind kind) {
    if (!put(&p->events, (event){at, p->n_events++, of, kind})) p->failed = true;
}

/* ---- links ---- */

static int level_between(const tti_server_sim_desc *d, int64_t a, int64_t b) {
    int64_t size = 1;
    for (int level = 0; level < TTI_N_LEVELS - 1; level++) {
        size *= d->network->levels[level].size;
        if (a * d->replica_stride / size == b * d->replica_stride / size) return level;
    }
    return TTI_N_LEVELS - 1;
}

static double latency_s(const tti_server_sim_desc *d, int64_t a, int64_t b) {
    return a == b ? 0 : d->network->levels[level_between(d, a, b)].latency_us * 1e-6;
}

static void advance_clock(sim_link *l, double at) {
    if (l->messages.n > 0) {
        l->clock_s += (at - l->at_s) / l->messages.n;
        l->busy_s += at - l->at_s;
    }
    l->at_s = at;
}

/* Schedules the end of the link's first message. Obsolete if another message starts or ends
 * before. */
static void schedule_link(sim *p, int i) {
    sim_link *l = &p->links[i];
    if (l->messages.n == 0) return;
    l->next = p->n_events;
    schedule_event(p, l->at_s + (l->messages.v[0].at - l->clock_s) * l->messages.n, i, MOVED);
}

/* Adds a transfer for worker w that needs the whole link for needs_s seconds. */
static void add_transfer(sim *p, int i, int w, double needs_s, double at) {
    sim_link *l = &p->links[i];
    advance_clock(l, at);
    if (!put(&l->messages, (event){l->clock_s + needs_s, p->n_events++, w, MOVED}))
        p->failed = true;
    p->workers[w].n_pending++;
    schedule_link(p, i);
}

static void end_message(sim *p, int w, double at) {
    worker *me = &p->workers[w];
    if (--me->n_pending == 0) schedule_event(p, at + me->latency_s, w, me->then);
}

static void end_transfers(sim *p, const event *e) {
    sim_link *l = &p->links[e->of];
    if (l->next != e->order) return;
    advance_clock(l, e->at);
    l->clock_s = l->messages.v[0].at;
    while (l->messages.n > 0 && l->messages.v[0].at <= l->clock_s)
        end_message(p, take(&l->messages).of, e->at);
    schedule_link(p, e->of);
}

/* Transfers a range of the parameters between each server and worker w, in either direction. With
 * ranges, the worker also exchanges messages with the first server, before a pull or after a
 * push. */
static void transfer(sim *p, int w, double at, bool to_worker, event_kind then) {
    worker *me = &p->workers[w];
    double range = p->d->n_bytes / (double)p->d->n_servers, own_s = 0;
    if (!to_worker) range *= p->d->gradient_ratio;
    me->then = then, me->n_pending = 1;
    me->latency_s = latency_s(p->d, 0, w) * (p->d->n_servers > 1 ? 3 : to_worker ? 2 : 1);
    for (int r = 0; r < (int)p->d->n_servers; r++) {
        const tti_level *level = &p->d->network->levels[level_between(p->d, r, w)];
        double needs_s = range / (level->gb_s * 1e9);
        if (r == w) continue;
        add_transfer(p, 2 * r + to_worker, w, needs_s, at);
        own_s += needs_s;
    }
    if (own_s > 0) add_transfer(p, 2 * w + !to_worker, w, own_s, at);
    end_message(p, w, at); /* counts the transfer as a whole, which ends after all its messages */
}

/* Occupies the threads of all servers, each for its range, concurrently; returns the time when all
 * are done. */
static double serve(sim *p, double at, double whole_s) {
    double end = at, each = whole_s / (double)p->d->n_servers;
    for (int64_t r = 0; r < p->d->n_servers; r++) {
        thread *t = &p->threads[r];
        t->free_s = fmax(t->free_s, at) + each;
        t->busy_s += each;
        end = fmax(end, t->free_s);
    }
    return end;
}

/* ---- the staleness bound ---- */

static void join_computing(sim *p, int w) {
    worker *me = &p->workers[w];
    me->older = p->youngest, me->younger = NONE;
    if (p->youngest != NONE) p->workers[p->youngest].younger = w;
    p->youngest = w;
    if (p->oldest == NONE) p->oldest = w;
}

static void leave_computing(sim *p, int w) {
    worker *me = &p->workers[w];
    *(me->older == NONE ? &p->oldest : &p->workers[me->older].younger) = me->younger;
    *(me->younger == NONE ? &p->youngest : &p->workers[me->younger].older) = me->older;
}

static bool has_bound(const tti_server_sim_desc *d) {
    return d->n_backup == 0 && d->staleness != TTI_UNBOUNDED;
}

/* True if starting a step of w would exceed the staleness bound of the oldest gradient in
 * progress. */
static bool is_blocked(const sim *p, int w) {
    const worker *me = &p->workers[w];
    if (!has_bound(p->d) || me->n_started < p->d->staleness || p->oldest == NONE) return false;
    return p->workers[p->oldest].last_start < me->bound;
}

static void release(sim *p, double at) {
    while (p->blocked.n > 0 && !is_blocked(p, p->blocked.v[0].of))
        schedule_event(p, at, take(&p->blocked).of, READY);
}

static void record_start(sim *p, int w) {
    worker *me = &p->workers[w];
    int begins = p->n_started++;
    if (me->last_start != NONE) p->next_start[me->last_start] = begins;
    if (me->n_started++ == 0)
        me->bound = begins;
    else if (me->n_started > p->d->staleness)
        me->bound = p->next_start[me->bound];
    me->last_start = begins;
    me->version = p->n_updates;
}

/* ---- actions of workers ---- */

static void begin(sim *p, int w, double at) {
    if (is_blocked(p, w)) {
        event e = {(double)p->workers[w].bound, p->n_events++, w, READY};
        if (!put(&p->blocked, e)) p->failed = true;
        return;
    }
    record_start(p, w);
    join_computing(p, w);
    schedule_event(p, serve(p, at, p->d->copy_s), w, COPIED);
}

static void pull(sim *p, int w, double at) { transfer(p, w, at, true, PULLED); }

/* Varies the compute time, because identical workers would run in lockstep, unlike real ones. */
static double variation(const sim *p, int w) {
    tti_philox draw = tti_philox_draw(0, (uint64_t)w, (uint64_t)p->workers[w].n_started);
    return 1 + VARIATION * (2 * tti_philox_unit(draw.v[0]) - 1);
}

static void compute(sim *p, int w, double at) {
    double needs_s = p->d->compute_s / speed_of(&p->d->speeds, w) * variation(p, w);
    p->computed_s += needs_s;
    schedule_event(p, at + needs_s, w, COMPUTED);
}

static void push(sim *p, int w, double at) { transfer(p, w, at, false, ARRIVED); }

/* Schedules the arrival of the answer at w, after its gradient is applied. */
static void answer(sim *p, int w, double at) {
    schedule_event(p, at + latency_s(p->d, 0, w), w, READY);
}

/* An update on all servers. The first server sends commands to the others and waits until all have
 * applied it. */
static double update(sim *p, double at) {
    double there_and_back_s = 2 * latency_s(p->d, 0, p->d->n_servers - 1);
    return serve(p, at, p->d->update_s + there_and_back_s * (double)p->d->n_servers);
}

static void apply(sim *p, int w, double at) {
    int64_t staleness = p->n_updates++ - p->workers[w].version;
    p->n_applied++;
    p->stale_sum += (double)staleness;
    p->stale_max = TTI_MAX(p->stale_max, staleness);
    p->stale[TTI_MIN(staleness, (int64_t)TTI_STALENESS_BINS - 1)]++;
    answer(p, w, update(p, at));
    release(p, at);
}

/* Applies one of the gradients that a step needs, or drops a late one. */
static void apply_step(sim *p, int w, double at) {
    if (p->workers[w].version != p->n_updates) {
        p->n_dropped++;
        answer(p, w, at);
        return;
    }
    p->arrived[p->n_arrived++] = w;
    if (p->n_arrived < TTI_MAX(p->d->n_workers - p->d->n_backup, 1)) return;
    p->n_updates++;
    p->n_applied++;
    double end = update(p, at);
    for (int i = 0; i < p->n_arrived; i++) answer(p, p->arrived[i], end);
    p->n_arrived = 0;
}

static void arrive(sim *p, int w, double at) {
    leave_computing(p, w);
    p->n_pushed++;
    if (p->d->n_backup > 0)
        apply_step(p, w, at);
    else
        apply(p, w, at);
}

static double step(sim *p) {
    static void (*const fns[])(sim *, int, double) = {[READY] = begin,
                                                      [COPIED] = pull,
                                                      [PULLED] = compute,
                                                      [COMPUTED] = push,
                                                      [ARRIVED] = arrive};
    event e = take(&p->events);
    if (e.kind == MOVED)
        end_transfers(p, &e);
    else
        fns[e.kind](p, e.of, e.at);
    return e.at;
}

/* ---- the simulation ---- */

/* Discards the statistics of the warm-up rounds. */
static void start_measuring(sim *p, double at) {
    p->from_s = at;
    p->computed_s = p->stale_sum = 0;
    p->n_pushed = p->n_dropped = p->n_applied = p->stale_max = 0;
    memset(p->stale, 0, sizeof p->stale);
    for (int64_t i = 0; i < 2 * p->d->n_servers; i++) {
        advance_clock(&p->links[i], at);
        p->links[i].busy_s = 0;
    }
    for (int64_t r = 0; r < p->d->n_servers; r++) p->threads[r].busy_s = 0;
}

/* Counts what the first process sends in a step: parameters to each worker, and its own worker's
 * gradient to the other servers. */
static void count_bytes(const tti_server_sim_desc *d, double sent[TTI_N_LEVELS]) {
    double range = d->n_bytes / (double)d->n_servers;
    for (int64_t w = 1; w < d->n_workers; w++)
        sent[level_between(d, 0, w)] += w < d->n_servers ? (1 + d->gradient_ratio) * range : range;
}

static void write_result(const sim *p, double end_s, tti_server_sim *out) {
    const tti_server_sim_desc *d = p->d;
    double all_s = end_s - p->from_s, n = (double)d->n_workers,
           n_pushed = (double)TTI_MAX(p->n_pushed, 1), n_applied = (double)TTI_MAX(p->n_applied, 1);
    *out = (tti_server_sim){.stale_max = p->stale_max, .stale_mean = p->stale_sum / n_applied};
    out->step_s = all_s / n_applied * (d->n_backup > 0 ? 1 : n);
    out->wait_s = fmax(0, (n * all_s - p->computed_s) / n_pushed);
    out->dropped = (double)p->n_dropped / n_pushed;
    for (int64_t r = 0; r < d->n_servers; r++) {
        double both_ways_s = fmax(p->links[2 * r].busy_s, p->links[2 * r + 1].busy_s);
        out->link_busy = fmax(out->link_busy, fmin(both_ways_s / all_s, 1));
        out->thread_busy = fmax(out->thread_busy, fmin(p->threads[r].busy_s / all_s, 1));
    }
    for (int i = 0; i < TTI_STALENESS_BINS; i++) out->stale[i] = (double)p->stale[i] / n_applied;
    count_bytes(d, out->sent);
}

static int64_t gradients_of(const tti_server_sim_desc *d, int n_rounds) {
    return TTI_MAX(n_rounds * d->n_workers, (int64_t)MIN_GRADIENTS);
}

/* Runs until enough gradients are pushed; returns the time of the last event. */
static double run_rounds(sim *p, int n_rounds) {
    int64_t n = gradients_of(p->d, n_rounds);
    double at = 0;
    while (p->n_pushed < n && !p->failed) at = step(p);
    return at;
}

/* The number of rounds that keeps the simulation within a few seconds. */
static int rounds_of(const tti_server_sim_desc *d) {
    int64_t rounds = MAX_MESSAGES / (2 * d->n_workers * d->n_servers);
    return (int)TTI_MIN(TTI_MAX(rounds, (int64_t)MIN_ROUNDS), (int64_t)MAX_ROUNDS);
}

static tutti_status run_all(sim *p, tti_server_sim *out) {
    int n_rounds = rounds_of(p->d), n_warm = n_rounds / 5;
    size_t n = (size_t)p->d->n_workers, n_servers = (size_t)p->d->n_servers;
    size_t n_begins = n + (size_t)(gradients_of(p->d, n_warm) + gradients_of(p->d, n_rounds));
    p->links = calloc(2 * n, sizeof *p->links);
    p->threads = calloc(n_servers, sizeof *p->threads);
    p->workers = calloc(n, sizeof *p->workers);
    p->next_start = calloc(n_begins, sizeof *p->next_start);
    p->arrived = calloc(n, sizeof *p->arrived);
    p->failed = !(p->links && p->threads && p->workers && p->next_start && p->arrived);
    p->oldest = p->youngest = NONE;
    for (int w = 0; w < (int)n && !p->failed; w++) {
        p->workers[w] = (worker){.last_start = NONE, .bound = NONE};
        schedule_event(p, 0, w, READY);
    }
    double warm_s = run_rounds(p, n_warm);
    if (!p->failed) start_measuring(p, warm_s);
    double end_s = run_rounds(p, n_rounds);
    if (p->failed) return tti_fail(TUTTI_E_NOMEM, "simulate: out of memory");
    write_result(p, end_s, out);
    return TUTTI_OK;
}

tutti_status tti_server_sim_run(const tti_server_sim_desc *desc, tti_server_sim *out) {
    tti_server_sim_desc d = *desc;
    if (d.n_workers > TTI_MAX_SIMULATED)
        return tti_fail(TUTTI_E_CONFIG,
                        "simulate: asynchronous workers are simulated one by one, at most %d of "
                        "them; give a smaller -n, or parallel.staleness=0",
                        TTI_MAX_SIMULATED);
    d.n_servers = TTI_MIN(d.n_servers, d.n_workers);
    if (d.gradient_ratio <= 0) d.gradient_ratio = 1;
    sim p = {.d = &d};
    tutti_status st = run_all(&p, out);
    for (int64_t i = 0; i < 2 * d.n_workers && p.links; i++) free(p.links[i].messages.v);
    free(p.events.v);
    free(p.blocked.v);
    free(p.links);
    free(p.threads);
    free(p.workers);
    free(p.next_start);
    free(p.arrived);
    return st;
}
