/* server_team.h - workers that hold a copy of the model between them, and are one to the server.
 *
 *              part 0                     part 1
 *   copy 0     the queue; keeps part 0    keeps part 1      a keeper of each part, in order of the
 *   copy 1     worker                     worker            queue: the server, and holders of all
 *   copy 2     worker                     worker            keys of a plan (server_holder.c)
 *
 * Who has part 0 speaks: it asks for its copy, and what it hears goes to the others of the copy.
 * They bring gradients to the keeper of their part, and take parameters there, as workers do whose
 * keys several processes hold.  A gradient is given when all of the copy have brought theirs.  So a
 * copy never computes on parameters of two versions, and what the queue says of versions, order and
 * staleness is true of all parts.  The updates of the keepers know each other as those of workers
 * of one copy do: over a communicator of their own they add the norms of whole models.
 * NULL stands for a worker with a whole model, in every function. */
#ifndef TTI_EXEC_SERVER_TEAM_H
#define TTI_EXEC_SERVER_TEAM_H

#include "ps/server_state.h"

void tti_team_destroy(tti_team *team);

/* Every wait of the others ends, with the text. */
void tti_team_abort(tti_team *team, const char *text);

int tti_team_n_parts(const tti_team *team);
/* Of all keys of all parts, one behind the other, those of one. */
tti_range tti_team_keys(const tti_team *team, int part);

/* A worker of the copy wants the run to end; whether one did, asked by all of them. */
void tti_team_request_stop(tti_team *team);
tutti_status tti_team_ask_stop(tti_team *team, bool *stops);

/* ---- collective over the workers of the copy ---- */

tutti_status tti_team_meet(tti_team *team);

/* What the one who speaks has there, comes to the others. */
tutti_status tti_team_hear(tti_team *team, void *data, size_t n_bytes);

/* Values [n] of all become one, as tti_server_meet says; all have come, also with none. */
tutti_status tti_team_combine(tti_team *team, tti_meet_op op, void *values, int n);

#endif /* TTI_EXEC_SERVER_TEAM_H */
