/* session_calls.c - the begin and the end of a call on a session, and the devices of its workers.
 */
#include <errno.h>
#include <unistd.h>

#include "session/session_state.h"

bool tti_session_is_inherited(const tutti_session *s) { return s->owner != getpid(); }

tutti_status tti_session_enter(tutti_session *s, const char *who) {
    if (!s) return tti_fail(TUTTI_E_INVALID, "%s: session is NULL", who);
    if (tti_session_is_inherited(s))
        return tti_fail(TUTTI_E_INVALID,
                        "%s: the session belongs to the process that this one was forked from; "
                        "create one after fork",
                        who);
    if (pthread_mutex_lock(&s->mutex) == EDEADLK)
        return tti_fail(TUTTI_E_INVALID, "%s: called from a callback of the same session", who);
    tutti_status st = TUTTI_OK;
    if (!s->is_open)
        st = tti_fail(TUTTI_E_INVALID, "%s: the session is closed", who);
    else if (s->failed != TUTTI_OK)
        st = tti_fail(s->failed, "%s: the session has failed before: %s", who, s->failure);
    s->has_flat = s->gives_flat;
    s->gives_flat = false;
    if (st == TUTTI_OK) st = tti_session_accept_views(s);
    if (st != TUTTI_OK) pthread_mutex_unlock(&s->mutex);
    return st;
}

tutti_status tti_session_leave(tutti_session *s, tutti_status st) {
    if (st == TUTTI_OK) tti_clear_error();
    pthread_mutex_unlock(&s->mutex);
    return st;
}
