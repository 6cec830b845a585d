/* blueprint.h - the data sets and the plan that all workers of a process share.
 *
 * Created once from a job and read-only afterwards, so any number of worker threads may use it. */
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
    tti_devices devices;   /* devices on which the plan runs */
    tti_devices places; /* places of all workers: devices, and the host if some workers run on it */
    char kinds[256];    /* kinds of the devices of this machine that are used; "" on the host */
    /* Blueprint for workers on the host in a mixed run, if this process may have some; owned;
     * borrows the data sets.  NULL: not a mixed run. */
    const struct tti_blueprint *on_host;
    tutti_dataset *train, *test;
    tti_bucket_link link;   /* the link that carries gradient sums */
    const tti_plan *plan;   /* plan of the whole model */
    tti_mesh_at mesh;       /* sizes of the axes data, pipeline and tensor */
    const tti_plan **plans; /* [n_model_ranks] by rank in a model group; an entry is NULL if only
                               another process needs it */
    int n_model_ranks;      /* 0: every worker has the whole model */
    tutti_model_params model_params;
    tti_import *import; /* model of model.file; NULL: the job has none */
    bool borrows_import;
    char model_name[128];              /* result of tutti_job_model_name */
    char model_identity[160];          /* result of tti_model_identity */
    bool has_accuracy;                 /* the loss counts correct predictions */
    bool compares_samples;             /* the loss compares samples of all shards */
    bool gives_logits, borrows_data;   /* see tti_blueprint_create_for_use */
    bool gives_outputs, has_host_loss; /* see tti_blueprint_session */
    int n_workers, n_shards;           /* n_workers = mesh.data x ranks of a model group */
    bool has_shard_map; /* the job sets the shard map; else runs are equal or measured at the start
                         */
    tti_shard_map shard_map; /* the shard map of the job */
    int64_t rows_per_shard;
    bool one_row_is_proven; /* shards of one row: it was checked that longer shards can be split
                               along the batch */
    int64_t steps_per_epoch, n_steps; /* n_steps: steps of the whole run */
    int64_t schedule_steps;           /* length of the learning rate schedule */
    tti_plan_cache *cache;            /* owns the plans; NULL: the blueprint owns them */
} tti_blueprint;

/* Creates the blueprint of all workers.  The job must be resolved (tti_job_resolve).  On success
 * *out is owned by the caller. */
tutti_status tti_blueprint_create(const tutti_job *job, const tti_blueprint **out);

/* Returns TUTTI_E_CONFIG if no parameter is trained: the model has none, all are frozen by patterns
 * other than "*", or no gradient reaches any. */
tutti_status tti_blueprint_check_trains(const tti_blueprint *b);

/* Appends one line that names the parameters of an imported model that no gradient of the loss
 * reaches and that optimizer.freeze does not name; nothing if there are none. */
void tti_blueprint_unreached_text(const tti_blueprint *b, tti_str *out);

/* Creates the blueprint of a process that is one worker, number local_rank on its machine.  Plans
 * only its part of a divided model, and in mixed runs only for its place. link: the link that
 * carries gradient sums, equal for all workers; NULL: all workers are on this machine. */
tutti_status tti_blueprint_create_for_rank(const tutti_job *job, int rank, int local_rank,
                                           const tti_bucket_link *link, const tti_blueprint **out);

/* Describes in one line where all kinds of workers compute. */
void tti_blueprint_describe(const tti_blueprint *blueprint, tti_str *out);

/* The blueprint of a worker: blueprint itself, or its variant for workers on the host. */
const tti_blueprint *tti_blueprint_of(const tti_blueprint *blueprint, int local_rank);

/* The plan of the worker at position model_rank of a model group (tti_mesh_model_rank). */
const tti_plan *tti_blueprint_plan(const tti_blueprint *blueprint, int model_rank);

/* The resolved job. */
const tti_job_config *tti_blueprint_config(const tti_blueprint *blueprint);

/* The backend of its workers, and their devices. */
const tti_backend *tti_blueprint_backend(const tti_blueprint *blueprint);
const tti_devices *tti_blueprint_devices(const tti_blueprint *blueprint);

/* Creates a blueprint that is inspected but not run. like lends its data sets; it must use the
 * same files and outlive the new one (NULL: data sets are opened). backend NULL: the backend
 * that the job selects. cache owns the plans and must outlive the blueprint (NULL: the blueprint
 * owns them). */
tutti_status tti_blueprint_create_like(const tutti_job *job, const tti_blueprint *like,
                                       const tti_backend *backend, tti_plan_cache *cache,
                                       const tti_blueprint **out);

/* The same for workers whose gradient sums use a link that this machine does not have. */
tutti_status tti_blueprint_create_linked(const tutti_job *job, const tti_backend *backend,
                                         const tti_bucket_link *link, const tti_blueprint **out);

/* The use of a trained model.  Either like or spec is set. */
typedef struct tti_blueprint_use {
    const tti_blueprint *like; /* blueprint of the same job, which lends its data sets */
    const tti_data_spec *spec; /* specification of the run, shared: the training data is not read */
    bool reads_test;           /* with spec: the test split is opened, else it has no samples */
    bool is_other_data; /* with reads_test: data.dir is not the training data, so all of it is test
                           data unless file names define splits */
    bool one_row;       /* a shard has one row instead of as many as in training */
} tti_blueprint_use;

/* Creates a blueprint whose evaluation program also has the output "logits", f32 [targets of a
 * shard, classes], and the outputs of tti_shard_graph_desc.names_outputs. */
tutti_status tti_blueprint_create_for_use(const tutti_job *job, const tti_blueprint_use *use,
                                          const tti_blueprint **out);

/* A blueprint for a session: the evaluation program has the outputs that the model names. */
typedef struct tti_blueprint_session {
    const tti_data_spec *spec; /* describes the samples that the caller passes; no data is opened;
                                  NULL: the data of the job */
    bool has_host_loss;        /* see tti_shard_graph_desc */
    int rank, local_rank;      /* ranks of this process; -1: workers are threads */
    const tti_bucket_link *link;
} tti_blueprint_session;
tutti_status tti_blueprint_create_for_session(const tutti_job *job,
                                              const tti_blueprint_session *session,
                                              const tti_blueprint **out);
void tti_blueprint_destroy(const tti_blueprint *blueprint);

/* Builds the graph of one shard, before any pass; owned by the caller. */
tutti_status tti_blueprint_graph(const tutti_job *job, const tti_blueprint *blueprint,
                                 bool training, tutti_graph **out);

/* The same for evaluation of samples of n_t tokens, if samples are sequences. */
tutti_status tti_blueprint_graph_for_length(const tutti_job *job, const tti_blueprint *blueprint,
                                            int64_t n_t, tutti_graph **out);

/* The same with another number of rows per shard; n_t 0: samples as long as those of the data. */
tutti_status tti_blueprint_graph_for_rows(const tutti_job *job, const tti_blueprint *blueprint,
                                          int64_t n_rows, int64_t n_t, tutti_graph **out);

/* Returns the target of the passes for this job: for the whole model, or for a position of a model
 * group. */
tti_target tti_blueprint_target(const tti_blueprint *blueprint);
tti_target tti_blueprint_target_at(const tti_blueprint *blueprint, int model_rank);

#endif /* TTI_TRAIN_BLUEPRINT_H */
