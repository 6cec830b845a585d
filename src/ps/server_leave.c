/* server_leave.c - workers that leave, or whose process has ended. */
#include <stdio.h>
#include <string.h>

#include "ps/server_state.h"

static bool may_leave(const tti_server *s, int w, bool is_dead) {
    int n_present = s->desc.n_workers - s->n_left;
    int n_needed = s->desc.n_backup > 0 ? s->desc.n_workers - s->desc.n_backup : 1;
    bool computes = s->worker[w].computes;
    bool keeps_parts = s->replica_group && w == 0;
    if (s->failed || s->desc.replay || keeps_parts || n_present <= n_needed) return false;
    if (!computes) return is_dead;
    for (int i = 0; i < s->n_left && s->desc.n_backup == 0; i++)
        if (s->left[i].batch == s->worker[w].batch) return false;
    return true;
}

static bool let_go(tti_server *s, int w, const char *why, bool is_dead) {
    tti_served *me = &s->worker[w];
    if (!may_leave(s, w, is_dead)) return false;
    tti_leave *report = &s->left[s->n_left++];
    *report = (tti_leave){.worker = w, .step = s->n_updates, .batch = -1};
    snprintf(report->why, sizeof report->why, "%s", why);
    if (s->desc.n_backup == 0 && me->computes)
        report->batch = s->returned[s->n_returned++] = me->batch;
    me->computes = false;
    me->has_left = true;
    pthread_cond_broadcast(&s->news);
    return true;
}

/* Why the others cannot do without a process that has gone. */
static const char *need_of(const tti_server *s, bool held_keys) {
    if (held_keys) return "no other process has its range of the parameters";
    return s->desc.replay ? "an order that is repeated needs all" : "the others need it";
}

void tti_server_remove_worker(tti_server *s, int w, const char *why) {
    bool held_keys = why && tti_server_has_ranges(s) && w < s->desc.n_ranges;
    pthread_mutex_lock(&s->mutex);
    tti_served *dead = &s->worker[w];
    bool may_go = !held_keys && (dead->has_left || let_go(s, w, why, true));
    dead->is_dead = true;
    if (may_go)
        tti_server_end_round(s);
    else if (!s->failed) {
        char text[512];
        snprintf(text, sizeof text, "parameter server: %s %d has left, and %s: %s",
                 tti_server_kind(s), w, need_of(s, held_keys), why);
        tti_server_fail(s, TUTTI_E_PEER, text);
    }
    pthread_mutex_unlock(&s->mutex);
}

/* A replica whose workers have separated counts as gone: synchronizations do not wait for it. */
bool tti_server_leave_for(tti_server *s, int w, const char *why) {
    if (s->replica_group) {
        tti_server_remove_worker(s, w, why);
        return tti_server_has_left_for(s, w);
    }
    pthread_mutex_lock(&s->mutex);
    bool may = let_go(s, w, why, false);
    pthread_mutex_unlock(&s->mutex);
    return may;
}

bool tti_server_leave(tti_exec *x, const char *why) {
    tti_server *s = tti_exec_server(x);
    if (s->replica_group)
        return false; /* the others of its replica need it: tti_server_leave_replica */
    if (s->client) return tti_client_leave(s, why);
    return tti_server_leave_for(s, tti_exec_server_worker(x), why);
}

bool tti_server_has_left_for(tti_server *s, int w) {
    pthread_mutex_lock(&s->mutex);
    bool has = s->worker[w].has_left;
    pthread_mutex_unlock(&s->mutex);
    return has;
}

bool tti_server_has_left(const tti_exec *x) {
    tti_server *s = tti_exec_server(x);
    if (s->client) return tti_client_has_left(s);
    return tti_server_has_left_for(s, tti_exec_server_worker(x));
}

void tti_server_place(const tti_exec *x, int *index, int *n_present) {
    tti_server *s = tti_exec_server(x);
    pthread_mutex_lock(&s->mutex);
    *index = 0;
    for (int w = 0; w < tti_exec_server_worker(x); w++) *index += !s->worker[w].has_left;
    if (s->worker[tti_exec_server_worker(x)].has_left) *index = -1;
    *n_present = s->desc.n_workers - s->n_left;
    if (s->desc.n_backup > 0) *index = 0, *n_present = 1;
    pthread_mutex_unlock(&s->mutex);
}

bool tti_server_next_leave(tti_server *s, tti_leave *out) {
    pthread_mutex_lock(&s->mutex);
    bool any = s->n_left_reported < s->n_left;
    if (any) *out = s->left[s->n_left_reported++];
    pthread_mutex_unlock(&s->mutex);
    return any;
}
