/* progress.c - the progress page of each rank, which only that rank writes and every rank can read,
 * even after its death. */
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

const shm_state *tti_shm_root(const shm_state *s) {
    while (s->parent) s = s->parent;
    return s;
}

/* Counts the waits, because several threads of a rank may wait at the same time. */
void tti_shm_note_wait(void *state, bool waits) {
    const shm_state *s = state;
    atomic_fetch_add(&tti_shm_root(s)->me->progress.in_subgroup, waits ? 1 : UINT64_MAX);
}

static void count_in_root(shm_state *s, bool in_call) {
    if (!s->parent || s->in_call == in_call) return;
    tti_shm_note_wait(s, in_call);
    s->in_call = in_call;
}

void tti_shm_note_call(void *state, const tti_call *call) {
    shm_state *s = state;
    shm_progress *p = &s->me->progress;
    count_in_root(s, call != NULL);
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

/* Does not use the page's sequence lock, because any thread may call this: a reader may therefore
 * see a half-written text. */
void tti_shm_declare(void *state, const char *activity) {
    shm_state *s = state;
    shm_progress *p = &s->me->progress;
    if (activity) {
        char text[sizeof p->activity] = {0};
        snprintf(text, sizeof text, "%s", activity);
        put_words(p->activity, text, TTI_COUNT(p->activity));
    }
    uint64_t now = activity ? (uint64_t)tti_now_ns() : 0,
             before = atomic_exchange(&p->busy_ns, now);
    if (!before != !now) atomic_fetch_add(&s->header->n_busy, now ? 1 : UINT32_MAX);
}

bool tti_shm_is_busy(const shm_header *header) {
    return atomic_load(&header->n_busy) != 0 || atomic_load(&header->n_joined) < header->n_ranks ||
           atomic_load(&header->remote_busy) != 0;
}

void tti_shm_set_remote_busy(void *state, bool is_busy) {
    atomic_store(&((shm_state *)state)->header->remote_busy, is_busy);
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
    out->in_subgroup = get(&p->in_subgroup);
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

bool tti_shm_get_progress(const void *state, int rank, tti_progress *out) {
    const shm_state *s = state, *root = tti_shm_root(s);
    int in_root = atomic_load(&shm_rank_of(s->header, rank)->rank_in_root);
    tti_progress whole;
    if (tti_comm_group_progress(s->group, rank, out) != TUTTI_OK) return false;
    if (root == s || !out->joined ||
        tti_comm_group_progress(root->group, in_root, &whole) != TUTTI_OK)
        return true;
    out->step = whole.step;
    out->since_ns = whole.since_ns;
    memcpy(out->phase, whole.phase, sizeof out->phase);
    memcpy(out->activity, whole.activity, sizeof out->activity);
    return true;
}

static bool find_busy(const tutti_comm_group *group, const int *global_ranks, tti_str *what) {
    tti_progress page = {0}, longest = {0};
    int found = -1;
    for (int r = 0; r < (int)group->header->n_ranks; r++) {
        if (tti_comm_group_progress(group, r, &page) != TUTTI_OK) continue;
        if (!tti_progress_is_busier(&page, found < 0 ? NULL : &longest)) continue;
        longest = page;
        found = r;
    }
    if (found < 0) return false;
    tti_str_printf(what, "rank %d ", global_ranks ? global_ranks[found] : found);
    tti_progress_describe(&longest, what);
    return true;
}

bool tti_comm_group_find_busy(const tutti_comm_group *group, tti_str *what) {
    return what ? find_busy(group, NULL, what) : tti_shm_is_busy(group->header);
}

bool tti_shm_find_busy(void *state, tti_str *what) {
    const shm_state *root = tti_shm_root(state);
    return what ? find_busy(root->group, root->global_ranks, what) : tti_shm_has_busy(state);
}
