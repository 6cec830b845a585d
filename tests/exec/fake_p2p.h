/* fake_p2p.h - values between devices that are the host: through slots with a word each, on which
 * their two ends wait as kernels do. */
#ifndef TTI_TESTS_EXEC_FAKE_P2P_H
#define TTI_TESTS_EXEC_FAKE_P2P_H

#include <pthread.h>
#include <time.h>

#include "base/clock.h"
#include "exec/fake_peers.h"

/* What the ranks of a group have in common. */
typedef struct fake_box {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_users, n_slots;
    bool has_left[FAKE_MAX_RANKS];
    bool is_full[]; /* [n_slots] */
} fake_box;

/* The first rank makes it; called where a group with slots meets. */
static inline tutti_status fake_open_box(fake_group *g) {
    const tti_device_peers *p = &g->peers;
    fake_box *mine = NULL, *all[FAKE_MAX_RANKS];
    if (p->rank == 0) {
        mine = calloc(1, sizeof *mine + (size_t)p->n_slots * sizeof mine->is_full[0]);
        TTI_ASSERT(mine != NULL);
        pthread_mutex_init(&mine->lock, NULL);
        pthread_cond_init(&mine->changed, NULL);
        mine->n_slots = p->n_slots;
        mine->n_users = p->n_ranks;
    }
    TTI_TRY(p->all_gather(p->user, &mine, all, sizeof mine));
    g->box = all[0];
    return TUTTI_OK;
}

static inline void fake_close_box(fake_group *g) {
    fake_box *box = g->box;
    if (!box) return;
    pthread_mutex_lock(&box->lock);
    bool is_last = --box->n_users == 0;
    box->has_left[g->peers.rank] = true;
    pthread_mutex_unlock(&box->lock);
    if (!is_last) return;
    pthread_cond_destroy(&box->changed);
    pthread_mutex_destroy(&box->lock);
    free(box);
}

static inline bool fake_slot_is(const fake_group *g, int slot, bool full) {
    fake_box *box = g->box;
    TTI_ASSERT(slot >= 0 && slot < box->n_slots);
    pthread_mutex_lock(&box->lock);
    bool is = box->is_full[slot] == full;
    pthread_mutex_unlock(&box->lock);
    return is;
}

static inline void fake_set_slot(fake_group *g, int slot, bool full) {
    fake_box *box = g->box;
    pthread_mutex_lock(&box->lock);
    TTI_ASSERT(box->is_full[slot] != full); /* by the other end alone */
    box->is_full[slot] = full;
    pthread_cond_broadcast(&box->changed);
    pthread_mutex_unlock(&box->lock);
}

/* Until the slot is as wanted, a peer is lost, or the time is over: the group has failed then.
 * meanwhile: what goes on beside it; may be NULL. */
static inline void fake_wait_slot(fake_group *g, int slot, bool full, void (*meanwhile)(void)) {
    int64_t start = tti_now_ns();
    while (!g->has_failed && !fake_slot_is(g, slot, full)) {
        struct timespec until;
        if (meanwhile) meanwhile();
        bool late = tti_now_ns() - start > g->peers.timeout_ms * TTI_NS_PER_MS;
        tutti_status st = g->peers.check(g->peers.user);
        if (st != TUTTI_OK) tti_clear_error(); /* peers_await reports it */
        g->has_failed = (st != TUTTI_OK || late) && !fake_slot_is(g, slot, full);
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_mutex_lock(&g->box->lock);
        if (g->box->is_full[slot] != full)
            pthread_cond_timedwait(&g->box->changed, &g->box->lock, &until);
        pthread_mutex_unlock(&g->box->lock);
    }
}

/* A rank that has left took its memory along. */
static inline void fake_put_message(fake_group *g, const tti_device_message *l,
                                    void (*meanwhile)(void)) {
    fake_wait_slot(g, l->slot, false, meanwhile);
    if (g->has_failed) return;
    pthread_mutex_lock(&g->box->lock);
    g->has_failed = g->box->has_left[l->to];
    if (!g->has_failed) memcpy((char *)g->partials[l->to][0] + l->place, l->src, l->n_bytes);
    pthread_mutex_unlock(&g->box->lock);
    if (!g->has_failed) fake_set_slot(g, l->slot, true);
}

static inline void fake_fetch_message(fake_group *g, int slot, void (*meanwhile)(void)) {
    fake_wait_slot(g, slot, true, meanwhile);
}

static inline void fake_leave_message(fake_group *g, int slot) {
    if (!g->has_failed) fake_set_slot(g, slot, false);
}

/* Why the group has failed. */
static inline tutti_status fake_failure(fake_group *g) {
    if (!g->has_failed) return TUTTI_OK;
    TTI_TRY(g->peers.check(g->peers.user));
    return tti_fail(TUTTI_E_TIMEOUT,
                    "rank %d: its device waited %d ms (parallel.timeout_ms=%d) for the values of "
                    "another rank",
                    g->peers.shown, g->peers.timeout_ms, g->peers.timeout_ms);
}

#endif /* TTI_TESTS_EXEC_FAKE_P2P_H */
