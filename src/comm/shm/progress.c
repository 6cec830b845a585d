/* progress.c - the progress page of each rank: written by it, readable by all, also after its
 * death. */
#include "comm/progress.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "comm/shm/shm.h"

static void put(_Atomic uint64_t *to, uint64_t x) {
    atomic_store_explicit(to, x, memory_order_release);
}

static uint64_t get(const _Atomic uint64_t *from) {
    return atomic_load_explicit(from, memory_order_acquire);
}

static void put_words(_Atomic uint64_t *to, const void *from, size_t n_words) {
    uint64_t words[8];
    memcpy(words, from, n_words * 8);
    for (size_t i = 0; i < n_words; i++) put(&to[i], words[i]);
}

static void get_words(const _Atomic uint64_t *from, void *to, size_t n_words) {
    uint64_t words[8];
    for (size_t i = 0; i < n_words; i++) words[i] = get(&from[i]);
    memcpy(to, words, n_words * 8);
}

static void turn_version(shm_progress *p) {
    put(&p->version, atomic_load_explicit(&p->version, memory_order_relaxed) + 1);
}

void tti_shm_note_call(void *state, const tti_call *call) {
    shm_state *s = state;
    shm_progress *p = &s->me->progress;
    turn_version(p);
    put(&p->in_call, call != NULL);
    if (call) {
        s->call = *call;
        put_words(p->call, call, TTI_COUNT(p->call));
        put(&p->n_calls, ++s->n_calls);
        put(&p->entered_ns, (uint64_t)tti_now_ns());
    }
    turn_version(p);
}

void tti_shm_note_step(void *state, uint64_t step, const char *phase) {
    shm_state *s = state;
    shm_progress *p = &s->me->progress;
    turn_version(p);
    put(&p->step, step);
    if (phase) {
        char text[sizeof p->phase] = {0};
        snprintf(text, sizeof text, "%s", phase);
        put_words(p->phase, text, TTI_COUNT(p->phase));
    }
    turn_version(p);
}

/* Does not take the lock of the page, which the calling thread holds: a reader that catches half of
 * a text shows it. */
void tti_shm_declare(void *state, const char *activity) {
    shm_state *s = state;
    shm_progress *p = &s->me->progress;
    if (activity) {
        char text[sizeof p->activity] = {0};
        snprintf(text, sizeof text, "%s", activity);
        put_words(p->activity, text, TTI_COUNT(p->activity));
    }
    put(&p->busy_ns, activity ? (uint64_t)tti_now_ns() : 0);
}

int tti_shm_find_busy(const shm_header *header) {
    for (int r = 0; r < (int)header->n_ranks; r++) {
        const shm_rank *rank = shm_rank_of(header, r);
        if (get(&rank->progress.busy_ns) != 0 || atomic_load(&rank->joined) == 0) return r;
    }
    return -1;
}

static void read_page(const shm_progress *p, tti_progress *out) {
    tti_call call;
    get_words(p->call, &call, TTI_COUNT(p->call));
    get_words(p->phase, out->phase, TTI_COUNT(p->phase));
    out->phase[sizeof out->phase - 1] = '\0';
    out->in_call = get(&p->in_call) != 0;
    out->n_calls = get(&p->n_calls);
    out->entered_ns = get(&p->entered_ns);
    out->step = get(&p->step);
    out->since_ns = get(&p->busy_ns);
    if (out->since_ns) get_words(p->activity, out->activity, TTI_COUNT(p->activity));
    out->activity[sizeof out->activity - 1] = '\0';
    out->call[0] = '\0';
    if (out->n_calls > 0) tti_call_text(&call, out->call, sizeof out->call);
}

tutti_status tti_comm_group_progress(const tutti_comm_group *group, int rank, tti_progress *out) {
    if (!group || rank < 0 || rank >= (int)group->header->n_ranks)
        return tti_fail(TUTTI_E_INVALID, "group_progress: no rank %d in this group", rank);
    const shm_rank *r = shm_rank_of(group->header, rank);
    tti_progress page = {0};
    for (int tries = 0; tries < 1000; tries++) {
        uint64_t before = get(&r->progress.version);
        read_page(&r->progress, &page);
        if (before % 2 == 0 && get(&r->progress.version) == before) break;
    }
    page.joined = atomic_load(&r->joined) != 0;
    page.left = atomic_load(&r->left) != 0;
    page.pid = atomic_load(&r->pid);
    *out = page;
    return TUTTI_OK;
}

/* ---- ranks that block the others ---- */

/* Higher: more likely the reason why the others wait. */
static int suspicion(const tti_progress *p) {
    if (p->left) return 0;
    if (!p->joined) return 3;
    if (p->since_ns) return 4;
    return p->in_call ? 1 : 2;
}

static uint64_t ms_since(uint64_t ns) { return ((uint64_t)tti_now_ns() - ns) / 1000000; }

static void describe_activity(const tti_progress *p, tti_str *out) {
    if (!p->joined)
        tti_str_add(out, "has not joined");
    else if (p->since_ns)
        tti_str_printf(out, "has been %s for %llu ms", p->activity,
                       (unsigned long long)ms_since(p->since_ns));
    else if (p->in_call)
        tti_str_printf(out, "has been in %s for %llu ms", p->call,
                       (unsigned long long)ms_since(p->entered_ns));
    else
        tti_str_printf(out, "is in no call; its last was %s", p->n_calls ? p->call : "none");
    if (p->phase[0]) tti_str_printf(out, " (step %llu, %s)", (unsigned long long)p->step, p->phase);
}

int tti_comm_group_find_culprit(const tutti_comm_group *group, tti_str *out) {
    int found = -1;
    bool any_waits = false;
    tti_progress p, most = {0};
    for (int r = 0; r < (int)group->header->n_ranks; r++) {
        if (tti_comm_group_progress(group, r, &p) != TUTTI_OK) continue;
        any_waits |= p.joined && !p.left && (p.in_call || p.n_calls == 0);
        int more = suspicion(&p) - (found < 0 ? 0 : suspicion(&most));
        if (more < 0 || (more == 0 && (found < 0 || p.entered_ns <= most.entered_ns))) continue;
        found = r;
        most = p;
    }
    if (!any_waits || found < 0) return -1;
    describe_activity(&most, out);
    return found;
}
