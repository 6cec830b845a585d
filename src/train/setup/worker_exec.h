/* worker_exec.h - the executor of one worker of a job. */
#ifndef TTI_TRAIN_WORKER_EXEC_H
#define TTI_TRAIN_WORKER_EXEC_H

#include "base/affinity.h"
#include "exec/exec.h"
#include "ps/server.h"
#include "train/setup/blueprint.h"

typedef struct tti_worker_desc {
    tutti_comm *comm;     /* borrowed; NULL: the worker computes all shards */
    const tti_mesh *mesh; /* borrowed; NULL: the worker has the whole model; else comm is ignored */
    const tti_shard_map *shard_map; /* NULL: the shard map of the blueprint */
    int rank; /* rank among all workers; with a server the number of the worker or of its replica */
    int local_rank, local_n_ranks; /* on this host: selects its cores */
    int device_place;     /* selects its device; equals local_rank except in elastic runs */
    bool serves_in_ranks; /* parameter server without threads: the first workers are the servers */
    tti_server *server;   /* borrowed; NULL: the worker runs the update itself */
    tti_flight *flight;   /* borrowed; NULL: nothing is recorded */
    tti_shared_params *shared_params; /* borrowed; NULL: the worker has its own parameters */
} tti_worker_desc;

/* Returns the settings of the job that do not depend on the worker; borrows from blueprint. */
tti_exec_desc tti_worker_exec_desc(const tti_blueprint *blueprint);

/* Describes how to open device number index of the machine for this job. */
tti_device_desc tti_worker_device_desc(const tti_blueprint *blueprint, int index);

/* Returns the cores of a worker: an equal part of the cores of its machine.  In mixed runs workers
 * on the host, which compute on their cores, get more than workers on devices, which need them only
 * for the update. */
void tti_worker_cores(const tti_blueprint *blueprint, int local_rank, int local_n_ranks,
                      tti_core_share *out);

/* Creates the executor of a worker.  Collective.  On success *out is owned by the caller. */
tutti_status tti_worker_exec_create(const tti_blueprint *blueprint, const tti_worker_desc *worker,
                                    tti_exec **out);

/* tti_workers_share: true if worker threads share parameters and optimizer state.
 * tti_worker_shared_params_create: creates the shared memory, or sets *out to NULL if they do not
 * share.  On success *out is owned by the caller. */
bool tti_workers_share(const tti_blueprint *blueprint);
tutti_status tti_worker_shared_params_create(const tti_blueprint *blueprint,
                                             tti_shared_params **out);

/* True if the first parallel.servers workers of each part of the model run the updates of a
 * parameter server: workers are synchronous, and are processes or divide the model.  Then
 * tti_worker_serve_in_ranks changes desc to that of such a worker. */
bool tti_worker_serves_in_ranks(const tti_blueprint *blueprint);
/* True if each worker has a partition of the optimizer state, by ZeRO or by such servers. */
bool tti_worker_has_partitions(const tti_blueprint *blueprint);
void tti_worker_serve_in_ranks(const tti_blueprint *blueprint, tti_exec_desc *desc);

/* Returns the number of range servers of asynchronous worker processes: the first workers, each
 * with a range of the parameters; 0: none. */
int tti_worker_n_range_servers(const tti_blueprint *blueprint);

/* The parameter server settings of the job; replay as in tti_server_desc. spans: workers are
 * processes, and each of the first parallel.servers workers owns a range of the parameters, or
 * workers divide the model. spans false: the servers are threads. */
tti_server_desc tti_worker_server_desc(const tti_blueprint *blueprint, bool spans,
                                       const tti_arrival *replay, int64_t n_replay);

/* Creates the parameter server of the job; spans and replay as above.  On success *out is owned by
 * the caller. */
tutti_status tti_worker_server_create(const tti_blueprint *blueprint, bool spans,
                                      const tti_arrival *replay, int64_t n_replay,
                                      tti_server **out);

#endif /* TTI_TRAIN_WORKER_EXEC_H */
