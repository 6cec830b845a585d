/* session_tickets.h - the steps in flight of a session and their results. */
#ifndef TTI_SESSION_SESSION_TICKETS_H
#define TTI_SESSION_SESSION_TICKETS_H

#include "session/session_state.h"

/* number: one of the last TUTTI_SESSION_N_RESULTS. */
tti_ticket *tti_ticket_of(const tutti_session *session, int64_t number);
int64_t tti_tickets_n_in_flight(const tutti_session *session);

/* Allocates them at the first call. */
tutti_status tti_tickets_make(tutti_session *session);

/* A new ticket, for the step that leads to session->step. */
void tti_tickets_add(tutti_session *session, int64_t n_rows, double lr);

/* The oldest step in flight has ended with st, and with the text of the last error. */
void tti_tickets_end(tutti_session *session, tutti_status st, const tti_step_result *result);

/* On every worker: ends the oldest step if ends, then calls begin (NULL: nothing), which begins
 * one.  A failure of the oldest is in tickets.n_failed; others are returned. */
tutti_status tti_tickets_advance(tutti_session *session, bool ends, tti_session_fn begin,
                                 void *arg);

/* Fails as the step of tickets.n_failed did, which no later call returns again. */
tutti_status tti_tickets_failure(tutti_session *session, const char *who);

/* 1 / (rows x loss scale) of a result. */
double tti_step_grad_scale(const tutti_session *session, const tti_step_result *result);

#endif /* TTI_SESSION_SESSION_TICKETS_H */
