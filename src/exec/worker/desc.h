/* desc.h - the description of a worker, and the inputs and results of a step. */
#ifndef TTI_EXEC_DESC_H
#define TTI_EXEC_DESC_H

#include "backend/backend.h"
#include "base/affinity.h"
#include "base/flight.h"
#include "comm/mesh.h"
#include "comm/shard_map.h"
#include "exec/program/timeline.h"
#include "ops/loss/losses.h"
#include "passes/plan.h"
#include "tutti/comm.h"

typedef struct tti_exec tti_exec;

/* The parts of a worker, which worker.h and the headers of host/ and device/ define. */
typedef struct tti_setup tti_setup;
typedef struct tti_arrays tti_arrays;
typedef struct tti_thread_set tti_thread_set;
typedef struct tti_tally tti_tally;
typedef struct tti_joins tti_joins;
typedef struct tti_update tti_update;
typedef struct tti_host tti_host;
typedef struct tti_exec_device tti_exec_device;
typedef struct tti_device_tp tti_device_tp;
typedef struct tti_offload tti_offload;

typedef struct tti_server tti_server;
typedef struct tti_shared_params tti_shared_params;

/* The compression of sent gradients; compress.h. */
typedef enum tti_compression {
    TTI_COMPRESS_NONE, /* the whole gradient, rounded to wire */
    TTI_COMPRESS_TOPK,
    TTI_COMPRESS_POWERSGD
} tti_compression;

typedef struct tti_exec_desc {
    const tti_plan *plan;       /* borrowed */
    const tti_backend *backend; /* borrowed */
    tti_device_desc device;     /* for a backend with devices; the calling thread opens it */
    tutti_comm *comm;           /* borrowed; the workers that divide the batch; NULL: alone */
    const tti_mesh *mesh; /* borrowed; the model is divided: plan is this worker's part, comm is
                             mesh->data; NULL: it is not divided */
    int n_shards;         /* V, a power of two, >= the number of ranks */
    const tti_shard_map *shard_map; /* the shards of each rank of comm; copied; NULL: equal runs */
    int n_compute_threads;          /* shards computed in parallel, >= 1 */
    const int *cores;               /* [n_compute_threads]; copied; NULL: not pinned */
    tutti_comm_alg alg;             /* algorithm of all-reduce */
    bool fast;                      /* sums in any order; false: exact mode */
    tutti_dtype wire; /* bf16, or in fast mode f16: gradients are rounded before they are sent, in
                         exact mode each partial sum; f32: not rounded */
    tti_compression compression; /* fast mode, several workers on the host; wire must be f32 */
    double topk;                 /* 0 .. 1: fraction of a matrix that is sent */
    int low_rank;                /* >= 1: columns of the low-rank matrices of PowerSGD */
    int64_t compress_after;      /* earlier steps send whole gradients */
    bool local; /* fast mode on the host: each worker updates its own parameters (host.h) */
    int64_t local_after; /* number of first steps with an all-reduce */
    int zero;     /* sharded over the workers: 1: state; 2: gradients too; 3: parameters too */
    int n_owners; /* with zero 1: number of workers, from the first on, that own the state; 0: all
                   */
    bool shares;  /* workers are threads that share parameters and state */
    tti_shared_params
        *shared_params; /* with shares: borrowed, the same for all workers (worker.h) */
    tti_server *server; /* borrowed; stores parameters and state for workers (server.h) */
    int server_worker; /* this worker's number at the server, or the number of a worker without comm
                        */
    bool serves;       /* the server's own executor: an update without shards */
    int range, n_ranges; /* with serves: updates only this range of the keys (flat_update.h); 0 of
                            0: all keys */
    /* For ranges: completes values [n_updates][n_each], one row per block, of which each server has
     * its own blocks. The thread that runs updates calls it. */
    tutti_status (*join)(void *user, double *values, size_t n_each);
    void *join_user;
    bool reference;       /* use plain-C kernels */
    bool watch_gradients; /* checks gradients for NaN, not only the loss */
    bool offload;         /* for devices: the host has the optimizer state (offload.h) */
    bool mixed;   /* fast mode: some ranks of comm compute on devices, with offload, and some on the
                     host; their plans have equal digests (tti_plan_digest) */
    bool elastic; /* after a peer is lost, parameters and state are those of a completed step and
                     can be read from the worker (tti_exec_salvage) */
    tti_flight *flight; /* borrowed; the recorder of this worker; NULL: nothing is recorded */
    uint64_t seed;
    double clip_norm;    /* limit of the norm of the mean gradient; 0: off */
    double clip_value;   /* limit of elements of the mean gradient; 0: off */
    double l1;           /* lambda of the L1 term lambda * sign(w), for weights with decay */
    double ema;          /* decay of averaged parameters, which evaluation uses; 0: off */
    double beta1, beta2; /* of Adam, for the bias corrections */
} tti_exec_desc;

/* A data set that stays on a device, and the float value of each byte. With several channels,
 * pixels of n_channels bytes become planes. */
typedef struct tti_resident_samples {
    const uint8_t *x;          /* [n][n_elems] */
    const int32_t *y;          /* [n] */
    const float (*value)[256]; /* [n_channels] */
    int64_t n;
    int32_t n_elems, n_channels;
} tti_resident_samples;

/* Samples on a device, in memory that outlives the executor that copied them. */
typedef struct tti_lasting_samples {
    const tti_device_ops *device; /* NULL: there are none */
    tti_samples samples;
    size_t n;
} tti_lasting_samples;

void tti_lasting_samples_free(tti_lasting_samples *lasting); /* from any thread */

enum { TTI_MAX_AHEAD = 8, TTI_MAX_BYTE_TABLES = 4 };

/* The data of one shard: samples x and targets [b, ...], with "ignore" labels on missing rows.  x
 * is the input "x" [b, ...], or has the blocks of the fields one after the other, each an input
 * [b, ...] with an offset (op "input").
 * The graph may also have the scalar inputs "rows" (i32) and "loss_scale" (f32). */
typedef struct tti_shard_data {
    const void *x, *target;
    int32_t n_rows; /* number of real samples, which come first; the others are padding */
} tti_shard_data;

/* A program output that is copied to host memory: that of shard i of this worker to `to` + i *
 * n_bytes.  Workers on devices copy outputs of an evaluation and of tti_exec_compute_gradients. */
typedef struct tti_output_copy {
    const char *name;
    size_t n_bytes;
    void *to;
} tti_output_copy;

typedef struct tti_step_desc {
    uint64_t step; /* updates before this one */
    double lr;
    const tti_shard_data *shards; /* [last - first]: this worker's shards */
    const int32_t *index; /* [last - first][b]: indices of resident samples, -1: padding; or NULL */
    /* [n_channels]: x of the shards is bytes with these values (see tti_resident_samples); rows
     * with a target below 0 are zeros.  Requires tti_exec_takes_bytes.  NULL: x is as in the
     * graph */
    const float (*value)[256];
    int32_t n_channels; /* 1 .. TTI_MAX_BYTE_TABLES */
    int64_t shard_size; /* rows per shard, b */
    int64_t n_rows;     /* real samples of the global batch */
    double loss_scale;  /* gradients are scaled by this factor; 0: 1 */
    bool stop_on_bad;   /* also skip a step that was begun after a bad one */
    bool average;       /* desc.local: parameters are averaged after this step, on all workers */
    bool average_state; /* and so are state and averages of parameters */
    bool vote;          /* this worker votes for some action, such as a stop */
    const tti_output_copy *outputs; /* [n_outputs], for programs that have them */
    int n_outputs;
    bool keeps_params; /* tti_exec_apply_gradients: the caller has updated the parameters, and only
                          buffers change */
} tti_step_desc;

/* Sum and count of each of the model's own metrics, [plan->n_metrics][2]. */
typedef struct tti_metric_sums {
    double of[2 * TTI_MAX_OWN_METRICS];
} tti_metric_sums;

typedef struct tti_step_result {
    double loss_sum, count, correct; /* over the global batch */
    tti_metric_sums metrics;
    double grad_norm;     /* of the mean gradient; 0 unless the norm was needed */
    uint64_t params_hash; /* of the whole model, after the update */
    uint64_t own_hash;    /* of this worker's part of the model */
    int n_votes;          /* number of workers that voted, equal on all of them */
    bool partial;         /* a step of local SGD: sums and hash are this worker's own */
    bool skipped;         /* the update was skipped: a gradient or loss is not finite */
    int64_t compute_ns, comm_ns, update_ns;
    double sent_bytes; /* gradient bytes that this worker sent, as counted by the algorithms; 0 if
                          devices or a server add */
    double bubble;     /* fraction of compute_ns that pipeline stages waited; 0: no stages */
} tti_step_result;

/* How the time of all tti_exec_begin and tti_exec_end calls so far was spent. */
typedef struct tti_exec_spent {
    bool known;        /* waited_ns includes all waits; some devices do not measure them */
    int64_t waited_ns; /* waiting for other workers, and communication with them */
    int64_t copied_ns; /* copying samples to a device, gradients from it */
} tti_exec_spent;

/* Bytes that this worker has allocated. */
typedef struct tti_exec_memory {
    size_t params, states, grads, arena;
    size_t device_peak;    /* peak use of device memory so far; 0 on the host */
    size_t ema;            /* averaged parameters */
    size_t gathered;       /* parameters of other workers, while they are used */
    size_t mailbox;        /* on the host: slots for values of other stages */
    size_t offloaded;      /* on the host, for a device without optimizer state (desc.offload) */
    size_t program_values; /* on the host: constants and results of the compute threads' programs */
} tti_exec_memory;

/* Creates the memory that the workers of desc share; reads plan, backend and ema.  On success *out
 * is owned by the caller, who destroys it after the last worker. */
tutti_status tti_shared_params_create(const tti_exec_desc *desc, tti_shared_params **out);
void tti_shared_params_destroy(tti_shared_params *copy);

#endif /* TTI_EXEC_DESC_H */
