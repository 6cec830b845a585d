/* wait.c - waits that always end, and the group's failure, which ends all of them.
 *
 * A waiter spins for a short time, then sleeps on its bell (a futex) until a rank that it waits for
 * wakes it, the group fails, or the deadline passes.  Ranks of a large group wait for the end of an
 * agreement on the bell of the group, so that one wake reaches all of them.  A waiter first
 * publishes the rank for which it sleeps, then increments the count of sleepers, then checks its
 * condition again.  A poster first stores its new state, then reads the count.  With sequential
 * consistency at least one of the two sees the other's store, so no wake is lost.  If a rank is
 * killed between the store and the wake, the waiter loses one slice of sleep and does not hang. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/patience.h"
#include "comm/shm/shm.h"

#if defined(__x86_64__)
#define PAUSE() __builtin_ia32_pause()
#else
#define PAUSE() (void)0
#endif

/* Slices of sleep.  They are longer in large groups, because many ranks that wake every 100 ms
 * would keep the cores busy. */
enum { SLICE_MS = 100, SLICE_OF_LARGE_MS = 500, SPINS_PER_YIELD = 48 };

static void futex_sleep(_Atomic uint32_t *word, uint32_t value, int64_t n_ns) {
    struct timespec t = {.tv_sec = n_ns / 1000000000, .tv_nsec = n_ns % 1000000000};
    syscall(SYS_futex, word, FUTEX_WAIT, value, &t, NULL, 0);
}

static void ring_bell(shm_rank *r) {
    atomic_fetch_add(&r->bell, 1);
    syscall(SYS_futex, &r->bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void tti_shm_ring_release(shm_header *header) {
    if (atomic_load(&header->n_waiting) == 0) return;
    atomic_fetch_add(&header->bell, 1);
    syscall(SYS_futex, &header->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void tti_shm_ring(shm_header *header, int from, int to) {
    if (to < 0) tti_shm_ring_release(header);
    if (atomic_load(&header->n_sleepers) == 0) return;
    int last = to >= 0 ? to : (int)header->n_ranks - 1;
    for (int r = TTI_MAX(to, 0); r <= last; r++) {
        shm_rank *rank = shm_rank_of(header, r);
        int on = atomic_load(&rank->sleeping_on);
        if (on == from || on == SHM_ANY_RANK) ring_bell(rank);
    }
}

static void set_cause(shm_header *header, tutti_status status, bool was_seen, const char *text) {
    shm_cause *cause = &header->cause;
    uint32_t none = 0;
    if (!atomic_compare_exchange_strong(&cause->state, &none, 1)) return;
    cause->status = (int32_t)status;
    cause->was_seen = was_seen;
    snprintf(cause->text, sizeof cause->text, "%s", text);
    atomic_store(&cause->state, 2);
    for (int r = 0; r < (int)header->n_ranks; r++) ring_bell(shm_rank_of(header, r));
    tti_shm_ring_release(header);
}

void tti_shm_set_cause(shm_header *header, tutti_status status, const char *text) {
    set_cause(header, status, false, text);
}

void tti_shm_set_loss(shm_header *header, const char *text) {
    set_cause(header, TUTTI_E_PEER, true, text);
}

static tutti_status check_cause(const shm_cause *cause) {
    if (atomic_load_explicit(&cause->state, memory_order_acquire) == 0) return TUTTI_OK;
    /* The cause is being written, which takes microseconds unless the writer was killed. */
    for (int i = 0; i < 50 && atomic_load(&cause->state) != 2; i++) tti_sleep_ms(1);
    if (atomic_load(&cause->state) != 2 || (unsigned)cause->status >= TUTTI_N_STATUS)
        return tti_fail(TUTTI_E_PEER, "comm: a rank failed and died before it could say why");
    return tti_fail((tutti_status)cause->status, "%.*s", (int)sizeof cause->text - 1, cause->text);
}

tutti_status tti_shm_check_cause(const shm_state *s) {
    for (; s; s = s->parent) TTI_TRY(check_cause(&s->header->cause));
    return TUTTI_OK;
}

tutti_status tti_shm_reported(void *state) {
    for (const shm_state *s = state; s; s = s->parent) {
        const shm_cause *cause = &s->header->cause;
        tutti_status st = check_cause(cause);
        if (st != TUTTI_OK && (atomic_load(&cause->state) != 2 || !cause->was_seen)) return st;
        if (st != TUTTI_OK) tti_clear_error();
    }
    return TUTTI_OK;
}

tutti_status tti_shm_check_alive(const shm_state *s, int rank) {
    int pid = atomic_load(&shm_rank_of(s->header, rank)->pid);
    if (!s->parent || pid <= 0 || kill(pid, 0) == 0 || errno != ESRCH) return TUTTI_OK;
    return tti_fail(TUTTI_E_PEER, "comm: rank %d (pid %d) died", tti_shm_global_rank(s, rank), pid);
}

bool tti_shm_has_busy(const shm_state *s) {
    for (; s; s = s->parent)
        if (tti_shm_is_busy(s->header)) return true;
    return false;
}

tti_delay tti_shm_delay(void *state) {
    const shm_state *s = state;
    if (tti_shm_has_busy(s)) return (tti_delay){.kind = TTI_DELAY_PHASE};
    return s->remote.delay ? s->remote.delay(s->remote.arg) : (tti_delay){0};
}

/* If the rank that this one waits for itself waits for another rank, returns that rank. */
int tti_shm_find_culprit(void *state, int blame, tti_str *what) {
    const shm_state *s = state;
    tti_progress page = {0};
    int found = s->remote.find_culprit ? s->remote.find_culprit(s->remote.arg, what) : -1;
    if (found >= 0) return found;
    tti_culprit search = {.found = -1};
    for (int r = 0; r < s->n_ranks; r++) {
        if (!tti_shm_get_progress(s, r, &page)) page = (tti_progress){.left = true};
        tti_culprit_look(&search, r, &page);
    }
    found = tti_culprit_found(&search);
    if (found < 0 || found == s->rank) found = blame;
    if (!tti_shm_get_progress(s, found, &page)) page = (tti_progress){.left = true};
    tti_progress_describe(&page, what);
    return tti_shm_global_rank(s, found);
}

/* The first rank that has not reached the current agreement or barrier. */
static int find_late(const shm_state *s) {
    for (int r = 0; r < s->n_ranks; r++)
        if (atomic_load(&shm_rank_of(s->header, r)->arrived) < s->n_arrived) return r;
    return 0;
}

static tutti_status fail_timeout(shm_state *s, int blame, const tti_wait_clock *clock) {
    char call[128], waited[TTI_WAIT_TEXT_BYTES];
    tti_str what = {0};
    if (blame == SHM_NO_RANK) blame = find_late(s);
    int culprit = tti_shm_find_culprit(s, blame, &what);
    bool joining = s->call.kind == TTI_CALL_NONE;
    tutti_status st = tti_fail(TUTTI_E_TIMEOUT, "%s: rank %d waited %s for rank %d, which %s%s",
                               joining ? "comm_create" : tti_call_text(&s->call, call, sizeof call),
                               tti_shm_global_rank(s, s->rank), tti_wait_clock_text(clock, waited),
                               culprit, tti_str_text(&what), tti_wait_clock_reason(clock));
    tti_str_free(&what);
    return st;
}

/* A peer that waits for this rank in an agreement cannot take part in its send or receive. */
static tutti_status check_deadlock(shm_state *s, const shm_wait *wait) {
    tti_progress p;
    char call[128];
    bool alone = s->call.kind == TTI_CALL_SEND || s->call.kind == TTI_CALL_RECV;
    if (!alone || wait->blame == SHM_NO_RANK ||
        atomic_load(&shm_rank_of(s->header, wait->blame)->arrived) <= s->n_arrived ||
        wait->ready(s, wait->arg) || tti_comm_group_progress(s->group, wait->blame, &p) != TUTTI_OK)
        return TUTTI_OK;
    return tti_fail(TUTTI_E_MISMATCH, "rank %d called %s where rank %d called %s",
                    tti_shm_global_rank(s, wait->blame), p.call, tti_shm_global_rank(s, s->rank),
                    tti_call_text(&s->call, call, sizeof call));
}

/* TUTTI_OK, or a failure if rank has left the group, or in a subgroup has died. */
static tutti_status check_peer(const shm_state *s, int rank) {
    char call[128];
    if (!atomic_load(&shm_rank_of(s->header, rank)->left)) return tti_shm_check_alive(s, rank);
    return tti_fail(TUTTI_E_PEER, "%s: rank %d waits for rank %d, which left the group",
                    tti_call_text(&s->call, call, sizeof call), tti_shm_global_rank(s, s->rank),
                    tti_shm_global_rank(s, rank));
}

/* Checks the rank that this one waits for.  A rank that waits for all ranks checks only its
 * neighbors in the tree; together the ranks check all ranks. */
static tutti_status check_peers(const shm_state *s, const shm_wait *wait) {
    if (wait->blame != SHM_NO_RANK) return check_peer(s, wait->blame);
    if (!s->parent && atomic_load(&s->header->n_left) == 0) return TUTTI_OK;
    int end = tti_shm_end_of_children(s, s->rank);
    if (s->rank > 0) TTI_TRY(check_peer(s, tti_shm_parent_of(s->rank)));
    for (int step = 1; step < end; step *= 2) TTI_TRY(check_peer(s, s->rank + step));
    return TUTTI_OK;
}

/* Returns true if the wait is over, and sets *st. */
static bool is_over(shm_state *s, const shm_wait *wait, tti_wait_clock *clock, tutti_status *st) {
    *st = TUTTI_OK;
    if (wait->ready(s, wait->arg)) return true;
    if ((*st = tti_shm_check_cause(s)) != TUTTI_OK) return true;
    if (s->remote.listen && (*st = s->remote.listen(s->remote.arg)) != TUTTI_OK) return true;
    if ((*st = check_peers(s, wait)) != TUTTI_OK) {
        if (wait->ready(s, wait->arg)) {
            tti_clear_error();
            *st = TUTTI_OK;
        }
        return true;
    }
    if ((*st = check_deadlock(s, wait)) != TUTTI_OK) return true;
    if (!tti_wait_clock_look(clock, tti_shm_delay(s))) return false;
    *st = fail_timeout(s, wait->blame, clock);
    return true;
}

static tutti_status sleep_for(shm_state *s, const shm_wait *wait) {
    tti_wait_clock clock = tti_wait_clock_begin(s->timeout_ms, s->phase_timeout_ms);
    int slice_ms =
        TTI_MAX(1, TTI_MIN(s->timeout_ms, tti_shm_is_large(s) ? SLICE_OF_LARGE_MS : SLICE_MS));
    tutti_status st;
    bool by_release = wait->on == SHM_RELEASE;
    _Atomic uint32_t *bell = by_release ? &s->header->bell : &s->me->bell;
    _Atomic uint32_t *n_asleep = by_release ? &s->header->n_waiting : &s->header->n_sleepers;
    if (!by_release) atomic_store(&s->me->sleeping_on, wait->on);
    atomic_fetch_add(n_asleep, 1);
    for (;;) {
        uint32_t rung = atomic_load(bell);
        if (is_over(s, wait, &clock, &st)) break;
        futex_sleep(bell, rung, slice_ms * TTI_NS_PER_MS);
    }
    atomic_fetch_sub(n_asleep, 1);
    if (!by_release) atomic_store(&s->me->sleeping_on, SHM_NO_RANK);
    return st;
}

tutti_status tti_shm_wait_for(shm_state *s, const shm_wait *wait) {
    for (int i = 0; i < s->n_spins; i++) {
        if (wait->ready(s, wait->arg)) return TUTTI_OK;
        if (atomic_load_explicit(&s->header->cause.state, memory_order_relaxed)) break;
        /* If both ranks are on one core, spinning would keep the peer from running. */
        if (i % SPINS_PER_YIELD == SPINS_PER_YIELD - 1) sched_yield();
        PAUSE();
    }
    return sleep_for(s, wait);
}
