/* server_sim.c - simulates workers and servers as events in time.
 *
 * Transfers over a link share its bandwidth equally, as connections do.  So a link has its own
 * clock, which measures the service that each transfer has received: it runs slower with more
 * transfers, and a message ends when the clock has advanced by its need.  A server's thread is the
 * time from which it is free, first come, first served.  The bound of staleness is checked against
 * the oldest gradient in progress: a worker is held back while that one began before its own last
 * begin minus the bound. */
#include "planner/server_sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/philox.h"

/* Gradients for each worker before the simulation is looked at, and while it is. */
enum { MOST_ROUNDS = 40, LEAST_ROUNDS = 10, LEAST_GRADIENTS = 256, MOST_MESSAGES = 1 << 23 };

static const double VARIATION = 0.05; /* of the time for a gradient, either way */

/* ---- how fast workers are ---- */

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

/* ---- what happens when ---- */

typedef enum event_kind { READY, COPIED, PULLED, COMPUTED, ARRIVED, MOVED } event_kind;

typedef struct event {
    double
        at; /* seconds; of a message: by the clock of its link; of a worker held back: its begin */
    int64_t order;
    int32_t of; /* a worker; MOVED: a link */
    event_kind kind;
} event;

/* A heap, the first one first. */
typedef struct agenda {
    event *v;
    int n, cap;
} agenda;

static bool comes_before(const event *a, const event *b) {
    return a->at != b->at ? a->at < b->at : a->order < b->order;
}

/* False: out of memory. */
static bool put(agenda *a, event e) {
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

static event take(agenda *a) {
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
typedef struct line {
    agenda messages;
    double clock_s, at_s; /* what each message has had by the moment at_s */
    double busy_s;
    int64_t next; /* its event; others of it are of no use any more */
} line;

/* A thread of a server. */
typedef struct thread {
    double free_s, busy_s;
} thread;

typedef struct worker {
    int64_t version; /* updates that its parameters have */
    int64_t n_begun;
    int began;          /* its last begin, by number over all workers; NONE */
    int bound;          /* its last but the bound of staleness, or its first; NONE */
    int older, younger; /* neighbours in the list of workers that compute; NONE */
    int n_under_way;    /* messages that it waits for */
    double latency_s;
    event_kind then; /* the next event */
} worker;

enum { NONE = -1 };

typedef struct sim {
    const tti_server_sim_desc *d;
    agenda agenda, held; /* events to come; workers that the bound holds back */
    line *links;         /* [2 n]: into each worker, out of it */
    thread *threads;     /* [n_servers] */
    worker *workers;     /* [n] */
    int *next_begin;     /* of the same worker, by the number of a begin */
    bool failed;         /* out of memory */
    int oldest, youngest, n_begun;
    int64_t n_events, n_updates;
    int *came, n_came; /* backup workers: whose gradients of this step are there, [n] */
    /* Since the simulation is looked at: */
    double from_s, computed_s;
    int64_t n_pushed, n_dropped, n_applied;
    double stale_sum;
    int64_t stale[TTI_STALENESS_BINS], stale_most;
} sim;

static void plan_event(sim *p, double at, int of, event_kind kind) {
    if (!put(&p->agenda, (event){at, p->n_events++, of, kind})) p->failed = true;
}

/* ---- links ---- */

static int level_between(const tti_server_sim_desc *d, int64_t a, int64_t b) {
    int64_t size = 1;
    for (int level = 0; level < TTI_N_LEVELS - 1; level++) {
        size *= d->network->levels[level].size;
        if (a * d->apart / size == b * d->apart / size) return level;
    }
    return TTI_N_LEVELS - 1;
}

static double latency_s(const tti_server_sim_desc *d, int64_t a, int64_t b) {
    return a == b ? 0 : d->network->levels[level_between(d, a, b)].latency_us * 1e-6;
}

static void wind(line *l, double at) {
    if (l->messages.n > 0) {
        l->clock_s += (at - l->at_s) / l->messages.n;
        l->busy_s += at - l->at_s;
    }
    l->at_s = at;
}

/* When the first of its messages ends, if nothing else comes or ends. */
static void plan_link(sim *p, int i) {
    line *l = &p->links[i];
    if (l->messages.n == 0) return;
    l->next = p->n_events;
    plan_event(p, l->at_s + (l->messages.v[0].at - l->clock_s) * l->messages.n, i, MOVED);
}

/* Adds a transfer for worker w that needs the whole link for needs_s seconds. */
static void load(sim *p, int i, int w, double needs_s, double at) {
    line *l = &p->links[i];
    wind(l, at);
    if (!put(&l->messages, (event){l->clock_s + needs_s, p->n_events++, w, MOVED}))
        p->failed = true;
    p->workers[w].n_under_way++;
    plan_link(p, i);
}

static void end_message(sim *p, int w, double at) {
    worker *me = &p->workers[w];
    if (--me->n_under_way == 0) plan_event(p, at + me->latency_s, w, me->then);
}

static void move(sim *p, const event *e) {
    line *l = &p->links[e->of];
    if (l->next != e->order) return;
    wind(l, e->at);
    l->clock_s = l->messages.v[0].at;
    while (l->messages.n > 0 && l->messages.v[0].at <= l->clock_s)
        end_message(p, take(&l->messages).of, e->at);
    plan_link(p, e->of);
}

/* Moves a range of the parameters between each server and w: to the worker, after its request; or
 * from it.  With ranges, the worker asks the first server for its turn before, or notifies it
 * afterwards. */
static void transfer(sim *p, int w, double at, bool to_worker, event_kind then) {
    worker *me = &p->workers[w];
    double range = p->d->n_bytes / (double)p->d->n_servers, own_s = 0;
    if (!to_worker) range *= p->d->of_grads;
    me->then = then, me->n_under_way = 1;
    me->latency_s = latency_s(p->d, 0, w) * (p->d->n_servers > 1 ? 3 : to_worker ? 2 : 1);
    for (int r = 0; r < (int)p->d->n_servers; r++) {
        const tti_level *level = &p->d->network->levels[level_between(p->d, r, w)];
        double needs_s = range / (level->gb_s * 1e9);
        if (r == w) continue;
        load(p, 2 * r + to_worker, w, needs_s, at);
        own_s += needs_s;
    }
    if (own_s > 0) load(p, 2 * w + !to_worker, w, own_s, at);
    end_message(p, w, at); /* that none was needed, or all have begun */
}

/* All servers do the same for their range, side by side. */
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

/* ---- the bound of staleness ---- */

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

/* A gradient that began before that begin of w would miss too many of its steps. */
static bool is_held(const sim *p, int w) {
    const worker *me = &p->workers[w];
    if (!has_bound(p->d) || me->n_begun < p->d->staleness || p->oldest == NONE) return false;
    return p->workers[p->oldest].began < me->bound;
}

static void release(sim *p, double at) {
    while (p->held.n > 0 && !is_held(p, p->held.v[0].of))
        plan_event(p, at, take(&p->held).of, READY);
}

static void note_begin(sim *p, int w) {
    worker *me = &p->workers[w];
    int begins = p->n_begun++;
    if (me->began != NONE) p->next_begin[me->began] = begins;
    if (me->n_begun++ == 0)
        me->bound = begins;
    else if (me->n_begun > p->d->staleness)
        me->bound = p->next_begin[me->bound];
    me->began = begins;
    me->version = p->n_updates;
}

/* ---- what workers do ---- */

static void begin(sim *p, int w, double at) {
    if (is_held(p, w)) {
        event e = {(double)p->workers[w].bound, p->n_events++, w, READY};
        if (!put(&p->held, e)) p->failed = true;
        return;
    }
    note_begin(p, w);
    join_computing(p, w);
    plan_event(p, serve(p, at, p->d->copy_s), w, COPIED);
}

static void pull(sim *p, int w, double at) { transfer(p, w, at, true, PULLED); }

/* Varies the durations: identical workers would run in lockstep, which real ones do not. */
static double chance(const sim *p, int w) {
    tti_philox draw = tti_philox_draw(0, (uint64_t)w, (uint64_t)p->workers[w].n_begun);
    return 1 + VARIATION * (2 * tti_philox_unit(draw.v[0]) - 1);
}

static void compute(sim *p, int w, double at) {
    double needs_s = p->d->compute_s / speed_of(&p->d->speeds, w) * chance(p, w);
    p->computed_s += needs_s;
    plan_event(p, at + needs_s, w, COMPUTED);
}

static void push(sim *p, int w, double at) { transfer(p, w, at, false, ARRIVED); }

/* The answer to w that its gradient is applied. */
static void answer(sim *p, int w, double at) {
    plan_event(p, at + latency_s(p->d, 0, w), w, READY);
}

/* The first server orders an update of the others, and does nothing else until all have made it. */
static double update(sim *p, double at) {
    double there_and_back_s = 2 * latency_s(p->d, 0, p->d->n_servers - 1);
    return serve(p, at, p->d->update_s + there_and_back_s * (double)p->d->n_servers);
}

static void apply(sim *p, int w, double at) {
    int64_t lacks = p->n_updates++ - p->workers[w].version;
    p->n_applied++;
    p->stale_sum += (double)lacks;
    p->stale_most = TTI_MAX(p->stale_most, lacks);
    p->stale[TTI_MIN(lacks, (int64_t)TTI_STALENESS_BINS - 1)]++;
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
    p->came[p->n_came++] = w;
    if (p->n_came < TTI_MAX(p->d->n_workers - p->d->n_backup, 1)) return;
    p->n_updates++;
    p->n_applied++;
    double end = update(p, at);
    for (int i = 0; i < p->n_came; i++) answer(p, p->came[i], end);
    p->n_came = 0;
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
    event e = take(&p->agenda);
    if (e.kind == MOVED)
        move(p, &e);
    else
        fns[e.kind](p, e.of, e.at);
    return e.at;
}

/* ---- the simulation ---- */

/* Counts from now on. */
static void look_from(sim *p, double at) {
    p->from_s = at;
    p->computed_s = p->stale_sum = 0;
    p->n_pushed = p->n_dropped = p->n_applied = p->stale_most = 0;
    memset(p->stale, 0, sizeof p->stale);
    for (int64_t i = 0; i < 2 * p->d->n_servers; i++) {
        wind(&p->links[i], at);
        p->links[i].busy_s = 0;
    }
    for (int64_t r = 0; r < p->d->n_servers; r++) p->threads[r].busy_s = 0;
}

/* The first server sends parameters to each worker, and its own worker's gradient to the other
 * servers. */
static void count_bytes(const tti_server_sim_desc *d, double sent[TTI_N_LEVELS]) {
    double range = d->n_bytes / (double)d->n_servers;
    for (int64_t w = 1; w < d->n_workers; w++)
        sent[level_between(d, 0, w)] += w < d->n_servers ? (1 + d->of_grads) * range : range;
}

static void write_result(const sim *p, double end_s, tti_server_sim *out) {
    const tti_server_sim_desc *d = p->d;
    double all_s = end_s - p->from_s, n = (double)d->n_workers,
           n_pushed = (double)TTI_MAX(p->n_pushed, 1), n_applied = (double)TTI_MAX(p->n_applied, 1);
    *out = (tti_server_sim){.stale_most = p->stale_most, .stale_mean = p->stale_sum / n_applied};
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
    return TTI_MAX(n_rounds * d->n_workers, (int64_t)LEAST_GRADIENTS);
}

/* Until enough gradients were given: the time of the last. */
static double run_rounds(sim *p, int n_rounds) {
    int64_t n = gradients_of(p->d, n_rounds);
    double at = 0;
    while (p->n_pushed < n && !p->failed) at = step(p);
    return at;
}

/* A number of rounds that limits the simulation to some seconds. */
static int rounds_of(const tti_server_sim_desc *d) {
    int64_t rounds = MOST_MESSAGES / (2 * d->n_workers * d->n_servers);
    return (int)TTI_MIN(TTI_MAX(rounds, (int64_t)LEAST_ROUNDS), (int64_t)MOST_ROUNDS);
}

static tutti_status run_all(sim *p, tti_server_sim *out) {
    int n_rounds = rounds_of(p->d), n_warm = n_rounds / 5;
    size_t n = (size_t)p->d->n_workers, n_servers = (size_t)p->d->n_servers;
    size_t n_begins = n + (size_t)(gradients_of(p->d, n_warm) + gradients_of(p->d, n_rounds));
    p->links = calloc(2 * n, sizeof *p->links);
    p->threads = calloc(n_servers, sizeof *p->threads);
    p->workers = calloc(n, sizeof *p->workers);
    p->next_begin = calloc(n_begins, sizeof *p->next_begin);
    p->came = calloc(n, sizeof *p->came);
    p->failed = !(p->links && p->threads && p->workers && p->next_begin && p->came);
    p->oldest = p->youngest = NONE;
    for (int w = 0; w < (int)n && !p->failed; w++) {
        p->workers[w] = (worker){.began = NONE, .bound = NONE};
        plan_event(p, 0, w, READY);
    }
    double warm_s = run_rounds(p, n_warm);
    if (!p->failed) look_from(p, warm_s);
    double end_s = run_rounds(p, n_rounds);
    if (p->failed) return tti_fail(TUTTI_E_NOMEM, "simulate: out of memory");
    write_result(p, end_s, out);
    return TUTTI_OK;
}

tutti_status tti_server_sim_run(const tti_server_sim_desc *desc, tti_server_sim *out) {
    tti_server_sim_desc d = *desc;
    if (d.n_workers > TTI_MAX_PLAYED)
        return tti_fail(TUTTI_E_CONFIG,
                        "simulate: asynchronous workers are simulated one by one, at most %d of "
                        "them; give a smaller -n, or parallel.staleness=0",
                        TTI_MAX_PLAYED);
    d.n_servers = TTI_MIN(d.n_servers, d.n_workers);
    if (d.of_grads <= 0) d.of_grads = 1;
    sim p = {.d = &d};
    tutti_status st = run_all(&p, out);
    for (int64_t i = 0; i < 2 * d.n_workers && p.links; i++) free(p.links[i].messages.v);
    free(p.agenda.v);
    free(p.held.v);
    free(p.links);
    free(p.threads);
    free(p.workers);
    free(p.next_begin);
    free(p.came);
    return st;
}
