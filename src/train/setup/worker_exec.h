/* worker_exec.h - the executor of one worker of a job. */
#ifndef TTI_TRAIN_WORKER_EXEC_H
#define TTI_TRAIN_WORKER_EXEC_H

#include "base/affinity.h"
#include "exec/worker/one_copy.h"
#include "ps/server.h"
#include "train/setup/blueprint.h"

typedef struct tti_worker_desc {
    tutti_comm *comm;     /* borrowed; NULL: computes all shards alone */
    const tti_mesh *mesh; /* borrowed; NULL: has the whole model; else comm is not read */
    const tti_deal *deal; /* who has which shards; NULL: as blueprint says */
    int rank; /* among all workers; at a server its number, or that of its copy of the model */
    int local_rank, local_n_ranks; /* on this host: its share of the cores, or its device */
    bool serves_in_ranks;   /* of a parameter server without threads: the first workers are it */
    tti_server *server;     /* borrowed; NULL: it makes the update itself */
    tti_one_copy *one_copy; /* borrowed; NULL: it has its own parameters */
} tti_worker_desc;

/* What the job says of computing and does not depend on who computes; borrows from blueprint. */
tti_exec_desc tti_worker_exec_desc(const tti_blueprint *blueprint);

/* How the job wants device number index of the machine to be opened. */
tti_device_desc tti_worker_device_desc(const tti_blueprint *blueprint, int index);

/* The cores of a worker: an equal part of its machine's, but beside devices most of them are for
 * the workers on the host, which compute on them; those on devices update there alone. */
void tti_worker_cores(const tti_blueprint *blueprint, int local_rank, int local_n_ranks,
                      tti_core_share *out);

/* Collective.  On success *out is owned by the caller. */
tutti_status tti_worker_exec_create(const tti_blueprint *blueprint, const tti_worker_desc *worker,
                                    tti_exec **out);

/* Whether workers have parameters and state in common, where they are threads; then what they
 * have, else NULL.  On success *out is owned by the caller. */
bool tti_workers_share(const tti_blueprint *blueprint);
tutti_status tti_worker_one_copy_create(const tti_blueprint *blueprint, tti_one_copy **out);

/* Whether the updates of a parameter server are made by the first parallel.servers workers of each
 * part of the model, for their like: where workers wait for each other, and are processes or divide
 * the model.  Then desc becomes that of such a worker. */
bool tti_worker_serves_in_ranks(const tti_blueprint *blueprint);
void tti_worker_serve_in_ranks(const tti_blueprint *blueprint, tti_exec_desc *desc);

/* Where workers do not wait for each other, and are processes, the first so many hold a range of
 * the parameters each; 0: the job has no such server. */
int tti_worker_n_holders(const tti_blueprint *blueprint);

/* What the job says of its parameter server; replay as in tti_server_desc.  spans: workers are
 * processes, of which the first parallel.servers hold a range of the parameters each, or divide the
 * model; else these are threads. */
tti_server_desc tti_worker_server_desc(const tti_blueprint *blueprint, bool spans,
                                       const tti_arrival *replay, int64_t n_replay);

/* The parameter server of the job; spans and replay as above.  On success *out is owned by the
 * caller. */
tutti_status tti_worker_server_create(const tti_blueprint *blueprint, bool spans,
                                      const tti_arrival *replay, int64_t n_replay,
                                      tti_server **out);

#endif /* TTI_TRAIN_WORKER_EXEC_H */
