/* server_group.h - workers that hold a replica together, and are one worker to the server.
 *
 *              part 0                     part 1
 *   replica 0  the queue; owns part 0     owns part 1      an owner of each part, ordered by the
 *   replica 1  worker                     worker           queue: the server, and owners of all
 *   replica 2  worker                     worker           elements of a plan (server_range.c)
 *
 * The worker with part 0 sends the requests of its replica, and distributes the answers.  The
 * workers push gradients to the owner of their part, and pull parameters from it, as with several
 * range servers.  A gradient is complete when all workers of the replica have pushed theirs.  So a
 * replica never computes with parameters of two versions, and the queue's versions, order and
 * staleness hold for all parts.  The updates of the owners are connected like those of workers of
 * one replica: over a separate communicator they add the norms of whole models.  NULL stands for a
 * worker with a whole model, in every function. */
#ifndef TTI_EXEC_SERVER_REPLICA_GROUP_H
#define TTI_EXEC_SERVER_REPLICA_GROUP_H

#include "comm/mesh.h"
#include "ps/server_state.h"

struct tti_replica_group {
    tti_mesh mesh;
    int part, n_parts;
    uint64_t n_keys[TTI_MAX_RANKS]; /* [n_parts] */
    tutti_comm *state_owners;       /* in replica 0: of the threads that update; NULL: in others */
    tti_mesh updates;               /* theirs, of one replica */
    bool wants_stop;
    bool has_disconnected, has_left; /* separated from the others of the replica; left with them */
    bool stays;                      /* its failure ends the run */
};

void tti_replica_group_destroy(tti_replica_group *replica_group);

/* Every wait of the others ends, with the text. */
void tti_replica_group_abort(tti_replica_group *replica_group, const char *text);

int tti_replica_group_n_parts(const tti_replica_group *replica_group);
/* The elements of one part among those of all parts, which are concatenated. */
tti_range tti_replica_group_keys(const tti_replica_group *replica_group, int part);

/* A worker of the replica wants the run to end; whether one did, asked by all of them. */
void tti_replica_group_request_stop(tti_replica_group *replica_group);
tutti_status tti_replica_group_ask_stop(tti_replica_group *replica_group, bool *stops);

/* ---- collective over the workers of the replica ---- */

tutti_status tti_replica_group_barrier(tti_replica_group *replica_group);

/* Broadcasts data of the requesting worker to the others of the replica. */
tutti_status tti_replica_group_broadcast(tti_replica_group *replica_group, void *data,
                                         size_t n_bytes);

/* Combines values [n] of all workers, as tti_server_combine does; a barrier even if n is 0. */
tutti_status tti_replica_group_combine(tti_replica_group *replica_group, tti_combine_op op,
                                       void *values, int n);

#endif /* TTI_EXEC_SERVER_REPLICA_GROUP_H */
