/* worker_loop.h - the loop of one worker: runs the steps, evaluations and checkpoints.
 *
 * Every worker runs the same loop and makes the same decisions, because their inputs (sums, votes,
 * counts) are the same on all of them.  The worker of rank 0 also writes metrics, checkpoints and
 * events. */
#ifndef TTI_TRAIN_WORKER_LOOP_H
#define TTI_TRAIN_WORKER_LOOP_H

#include "exec/exec.h"
#include "ps/server.h"
#include "train/loop/carry.h"
#include "train/model/model_copy.h"
#include "train/setup/blueprint.h"
#include "tutti/comm.h"
#include "tutti/train.h"

typedef struct tti_worker_loop_desc {
    const tti_blueprint *blueprint; /* borrowed, shared by the workers of a process */
    const tutti_train_desc *train;  /* borrowed: events */
    tutti_comm *comm; /* borrowed; NULL: a single worker, or connected to others only by server */
    tutti_comm *progress; /* borrowed: shows this worker's phases to others; NULL: none */
    tti_server *server;   /* borrowed; NULL: workers run the update themselves */
    tti_flight *flight;   /* borrowed; the recorder of this rank; NULL: none */
    tti_carry *carry;     /* borrowed; set in an elastic run; NULL: the workers stay the same */
    tti_shared_params *shared_params; /* borrowed; NULL: workers have their own parameters */
    int rank, local_rank, local_n_ranks;
    int device_place;    /* selects the device */
    int local_n_devices; /* number of devices that the workers of this machine use */
    int local_n_cores;   /* number of cores that the workers of this machine share; 0: unknown */
    bool by_launcher; /* started by another launcher: workers are processes, and parallel.place is
                         ignored */
    const char *run_dir;        /* full path */
    const char *given_dir;      /* the same folder as the caller gave it, for messages */
    const char *job_yaml;       /* the resolved job, kept in checkpoints */
    tti_model_copy *model_copy; /* checkpoints wait for this copy; NULL: none */
    bool resume;                /* continue from the newest valid checkpoint of run_dir */
    int64_t start_ns;           /* time of the call of tutti_train */
} tti_worker_loop_desc;

/* Trains until the end.  In an elastic run returns TUTTI_E_PEER when a member is lost; then
 * desc->carry has the state of this worker.  On rank 0, sets the known fields of result, also after
 * a failure. */
tutti_status tti_worker_loop_run(const tti_worker_loop_desc *desc, tutti_train_result *result);

#endif /* TTI_TRAIN_WORKER_LOOP_H */
