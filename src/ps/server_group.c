/* server_group.c - what the workers of a replica do together: collectives, and leaving. */
#include "ps/server_group.h"

#include <stdio.h>
#include <stdlib.h>

#include "comm/progress.h"
#include "comm/subgroup.h"
#include "exec/worker/worker.h"

bool tti_server_speaks(const tti_server *s) {
    const tti_replica_group *t = tti_server_group(s);
    return !t || t->part == 0;
}

int tti_replica_group_n_parts(const tti_replica_group *t) { return t->n_parts; }

tti_range tti_replica_group_keys(const tti_replica_group *t, int part) {
    tti_range keys = {0, t->n_keys[0]};
    for (int i = 1; i <= part; i++) keys = (tti_range){keys.last, keys.last + t->n_keys[i]};
    return keys;
}

/* ---- inside a replica ---- */

void tti_replica_group_request_stop(tti_replica_group *t) { t->wants_stop = true; }

tutti_status tti_replica_group_ask_stop(tti_replica_group *t, bool *stops) {
    int32_t requested = t && t->wants_stop;
    if (!t) return TUTTI_OK;
    TTI_TRY(tutti_comm_all_reduce(t->mesh.model, &requested, &requested, 1, TUTTI_I32, TUTTI_MAX,
                                  TUTTI_ALG_AUTO));
    *stops = requested > 0;
    return TUTTI_OK;
}

tutti_status tti_replica_group_barrier(tti_replica_group *t) {
    return t ? tutti_comm_barrier(t->mesh.model) : TUTTI_OK;
}

tutti_status tti_replica_group_broadcast(tti_replica_group *t, void *data, size_t n_bytes) {
    if (!t || n_bytes == 0) return TUTTI_OK;
    return tutti_comm_broadcast(t->mesh.model, data, n_bytes, TUTTI_U8, 0);
}

tutti_status tti_replica_group_combine(tti_replica_group *t, tti_combine_op op, void *values,
                                       int n) {
    if (!t || n == 0) return tti_replica_group_barrier(t);
    bool adds = op == TTI_COMBINE_SUM;
    return tutti_comm_all_reduce(t->mesh.model, values, values, (size_t)n,
                                 adds ? TUTTI_F64 : TUTTI_I64, adds ? TUTTI_SUM : TUTTI_MAX,
                                 TUTTI_ALG_AUTO);
}

/* ---- coming and going ---- */

void tti_replica_group_destroy(tti_replica_group *t) {
    if (!t) return;
    tti_mesh_fini(&t->updates);
    tutti_comm_destroy(t->state_owners);
    tti_mesh_fini(&t->mesh);
    free(t);
}

void tti_replica_group_abort(tti_replica_group *t, const char *text) {
    if (t) tti_comm_abort(t->mesh.world, text);
}

/* ---- a replica that leaves ---- */

enum { MAX_COMMS = 4 };

/* The communicators of this replica: of the server's calls, and of the executor's. */
static int find_comms(const tti_replica_group *t, const tti_mesh *of_exec, tutti_comm **comms) {
    tutti_comm *all[MAX_COMMS] = {t->mesh.model, of_exec->model, of_exec->pipeline,
                                  of_exec->tensor};
    int n = 0;
    for (int i = 0; i < MAX_COMMS; i++)
        if (all[i]) comms[n++] = all[i];
    return n;
}

/* A failure of this worker is that of the replica; a failure of a call only if the connections
 * inside the replica broke, and not because another worker ended the run for all. */
static bool is_of_replica(const tti_replica_group *t, tutti_comm *const *comms, int n,
                          tutti_status st) {
    bool is_broken = false;
    for (int i = 0; i < n && st == TUTTI_E_PEER; i++)
        is_broken = is_broken || tti_comm_check(comms[i]) != TUTTI_OK;
    return (is_broken && tti_comm_heard(t->mesh.world) == TUTTI_OK) || st == TUTTI_E_INTERNAL ||
           st == TUTTI_E_NOMEM || st == TUTTI_E_IO;
}

/* The worker that sends requests reports for all; a report from another one names it already. */
static bool send_farewell(tti_server *s, tutti_status st, const char *why) {
    char text[512];
    int rank = tutti_comm_rank(tti_server_group(s)->mesh.world);
    if (st == TUTTI_E_PEER) return tti_client_leave(s, why);
    snprintf(text, sizeof text, "rank %d failed: %s", rank, why);
    return tti_client_leave(s, text);
}

bool tti_server_leave_replica(tti_exec *x, tutti_status st, const char *why) {
    tutti_comm *comms[MAX_COMMS];
    tti_server *s = tti_exec_server(x);
    tti_replica_group *t = tti_server_group(s);
    if (!t || t->mesh.at.data == 0 || t->has_disconnected || t->stays) return t && t->has_left;
    int n = find_comms(t, tti_setup_of(x)->desc.mesh, comms);
    t->stays = !is_of_replica(t, comms, n, st);
    if (t->stays) return false;
    for (int i = 0; i < n; i++) tti_comm_abort(comms[i], why);
    t->has_disconnected = true;
    t->has_left = t->part > 0 || send_farewell(s, st, why);
    return t->has_left;
}
