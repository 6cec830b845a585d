/* blueprint.h - the data sets and the plan that all workers of a process share.
 *
 * Made once from a job; read-only afterwards, so any number of worker threads may use it. */
#ifndef TTI_TRAIN_BLUEPRINT_H
#define TTI_TRAIN_BLUEPRINT_H

#include "comm/mesh.h"
#include "comm/shard_map.h"
#include "data/data_spec.h"
#include "import/import.h"
#include "passes/plan.h"
#include "train/job/devices.h"
#include "train/job/job.h"
#include "train/setup/bucket_link.h"
#include "train/setup/plan_cache.h"
#include "tutti/data.h"
#include "tutti/models.h"

typedef struct tti_blueprint {
    tti_job_config config; /* resolved */
    tti_devices devices;   /* where the plan is for */
    tti_devices
        places;      /* of all workers: as devices, including the host if some workers are there */
    char kinds[256]; /* of the devices of this machine that compute; "" on the host */
    /* devices.mixed: the same for workers on the host, where there may be some in this process;
     * owned, its data sets are of this one; its devices have none.  NULL: it is for the host. */
    struct tti_blueprint *on_host;
    tutti_dataset *train, *test;
    tti_bucket_link link; /* what carries sums of gradients */
    tti_plan *plan;       /* of the whole model */
    tti_mesh_at mesh;     /* how workers divide batch, layers and pieces: extents */
    tti_plan **parts; /* [n_parts], of the places of a model group; one of another process: NULL */
    int n_parts;      /* 0: every worker has the whole model */
    tutti_model_params model_params;
    tti_import *import; /* of model.file; NULL: the job has none */
    bool borrows_import;
    char model_name[128];            /* as tti_model_name has it */
    char model_identity[160];        /* as tti_model_identity has it */
    bool gives_logits, borrows_data; /* see tti_blueprint_create_for_use */
    int n_workers, n_shards;         /* n_workers: mesh.data x the ranks of a model group */
    bool has_shard_map;              /* the job determines the shard map; else equal runs, */
    tti_shard_map shard_map;         /* or as is measured */
    int64_t rows_per_shard;
    int64_t steps_per_epoch, n_steps; /* n_steps: of the whole run */
    int64_t schedule_steps;           /* of the learning rate's curve */
    tti_plan_cache *cache;            /* whose the plans are; NULL: owned */
} tti_blueprint;

/* job must have passed tti_job_resolve.  On success *out is owned by the caller. */
tutti_status tti_blueprint_create(const tutti_job *job, tti_blueprint **out);

/* The same for a process that is one worker, local_rank of its machine: plans only its part of a
 * divided model, and in mixed runs only for the place where it computes. link: carries the sums,
 * the same for all workers; NULL: they are all on this machine. */
tutti_status tti_blueprint_create_for_rank(const tutti_job *job, int rank, int local_rank,
                                           const tti_bucket_link *link, tti_blueprint **out);

/* One line that describes where all kinds of workers compute. */
void tti_blueprint_describe(const tti_blueprint *blueprint, tti_str *out);

/* The blueprint of a worker: blueprint itself, or its variant for workers on the host. */
const tti_blueprint *tti_blueprint_of(const tti_blueprint *blueprint, int local_rank);

/* The plan of the worker at that position of a model group (tti_mesh_model_rank). */
const tti_plan *tti_blueprint_plan(const tti_blueprint *blueprint, int model_rank);

/* The same with the data sets of like, which reads the same files and outlives it (NULL: opened),
 * for another backend (NULL: the one the job finds), and with plans from a cache, which outlives it
 * (NULL: its own): to look at, not to run. */
tutti_status tti_blueprint_create_like(const tutti_job *job, const tti_blueprint *like,
                                       const tti_backend *backend, tti_plan_cache *cache,
                                       tti_blueprint **out);

/* The same for workers whose sums use a link that this machine does not have. */
tutti_status tti_blueprint_create_linked(const tutti_job *job, const tti_backend *backend,
                                         const tti_bucket_link *link, tti_blueprint **out);

/* How a trained model is used; either like or spec is given. */
typedef struct tti_blueprint_use {
    const tti_blueprint *like; /* of the same job: its data sets are borrowed */
    tti_data_spec *spec;       /* of the run, shared: the training data is not read */
    bool reads_test;           /* with spec: the test split is opened, else it has no samples */
    bool is_other_data; /* with reads_test: data.dir is not the training data, so all of it is for
                           testing unless its names say otherwise */
    bool one_row;       /* a shard has one row instead of as many as in training */
} tti_blueprint_use;

/* The same, but the evaluation program also gives the logits, f32 [targets of a shard, classes], as
 * the output "logits". */
tutti_status tti_blueprint_create_for_use(const tutti_job *job, const tti_blueprint_use *use,
                                          tti_blueprint **out);
void tti_blueprint_destroy(tti_blueprint *blueprint);

/* The graph of one shard before any pass; owned by the caller. */
tutti_status tti_blueprint_graph(const tutti_job *job, const tti_blueprint *blueprint,
                                 bool training, tutti_graph **out);

/* The same of a model whose samples are sequences, for evaluation of samples of n_t tokens. */
tutti_status tti_blueprint_graph_for_length(const tutti_job *job, const tti_blueprint *blueprint,
                                            int64_t n_t, tutti_graph **out);

/* The target of the passes for this job where it computes: for the whole model, and for a position
 * of a model group. */
tti_target tti_blueprint_target(const tti_blueprint *blueprint);
tti_target tti_blueprint_target_at(const tti_blueprint *blueprint, int model_rank);

#endif /* TTI_TRAIN_BLUEPRINT_H */
