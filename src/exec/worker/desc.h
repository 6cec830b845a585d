/* desc.h - what a worker is created from, what a step is given and what it returns. */
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

/* The parts of a worker: worker.h, and the headers of host/ and device/. */
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
    TTI_COMPRESS_NONE, /* all of it, rounded to wire */
    TTI_COMPRESS_TOPK,
    TTI_COMPRESS_POWERSGD
} tti_compression;

typedef struct tti_exec_desc {
    const tti_plan *plan;       /* borrowed */
    const tti_backend *backend; /* borrowed */
    tti_device_desc device;     /* of a backend with devices; opened by the calling thread */
    tutti_comm *comm;           /* borrowed; the workers that divide the batch; NULL: alone */
    const tti_mesh *mesh;       /* borrowed; the model is divided too: plan is the part of this
                                   place, comm is mesh->data; NULL: it is not */
    int n_shards;               /* V, a power of two, >= the number of ranks */
    const tti_shard_map
        *shard_map;        /* which of them each rank of comm has; copied; NULL: equal runs */
    int n_compute_threads; /* shards computed side by side, >= 1 */
    const int *cores;      /* [n_compute_threads]; copied; NULL: not pinned */
    tutti_comm_alg alg;    /* of the reduction */
    bool fast;             /* any order of sums; false: exact mode */
    tutti_dtype wire;      /* bf16; in fast mode also f16: gradients are rounded before they travel,
                              in exact mode each partial sum; f32: they are not */
    tti_compression compression; /* fast mode, several workers on the host; wire is f32 then */
    double topk;                 /* 0 .. 1: share of a matrix that is sent */
    int low_rank;                /* >= 1: columns of the low-rank matrices of PowerSGD */
    int64_t compress_after;      /* steps before are sent whole */
    bool local; /* fast mode on the host: each worker updates its own parameters (host.h) */
    int64_t local_after; /* number of first steps with an all-reduce */
    int zero;            /* partitioned over the workers: 1: state; 2: gradients; 3: parameters */
    int n_owners; /* with zero 1: the first so many workers have the parts, as servers; 0: all */
    bool shares;  /* workers are threads that have parameters and state in common */
    tti_shared_params *shared_params; /* then: borrowed, the same for all of them (worker.h) */
    tti_server *server;  /* borrowed; keeps parameters and state for workers (server.h) */
    int server_worker;   /* the number of this one there, or of a worker without comm */
    bool serves;         /* the server's own: an update without shards */
    int range, n_ranges; /* then: of this range of the keys alone (flat_update.h); 0 of 0: of all */
    /* For ranges: values [n_updates][n_each] by block, of which each server has those of its own
     * blocks, become those of all; called by the thread that makes updates. */
    tutti_status (*join)(void *user, double *values, size_t n_each);
    void *join_user;
    bool reference;       /* plain-C kernels */
    bool watch_gradients; /* look for NaN in gradients, not only in the loss */
    bool offload;         /* of devices: the host has the optimizer's state (offload.h) */
    bool mixed;   /* fast mode: of the ranks of comm some compute on devices, with offload, and some
                     on the host; plans have one digest (tti_plan_digest) */
    bool elastic; /* if a peer is lost, parameters and state stay those of a completed step, and can
                     be taken from the worker (tti_exec_salvage) */
    tti_flight *flight; /* borrowed; the recorder of this worker; NULL: nothing is recorded */
    uint64_t seed;
    double clip_norm;    /* of the mean gradient; 0: off */
    double clip_value;   /* largest element of the mean gradient; 0: off */
    double l1;           /* times sign(w) is added to the mean gradient of weights with decay */
    double ema;          /* decay of averaged parameters, which evaluation then uses; 0: off */
    double beta1, beta2; /* of Adam, for the bias corrections */
} tti_exec_desc;

/* A data set that a device may keep: bytes, and the float that each stands for.  More than one
 * channel: pixels of so many bytes become planes. */
typedef struct tti_resident_samples {
    const uint8_t *x;          /* [n][n_elems] */
    const int32_t *y;          /* [n] */
    const float (*value)[256]; /* [n_channels] */
    int64_t n;
    int32_t n_elems, n_channels;
} tti_resident_samples;

enum { TTI_MAX_AHEAD = 8, TTI_MAX_BYTE_TABLES = 4 };

/* The data of one shard: samples x and targets [b, ...], with "ignore" labels on missing rows.  x
 * is the input "x" [b, ...], or has the blocks of the fields one after the other, each an input
 * [b, ...] with an offset (op "input").
 * The graph may also have the scalar inputs "rows" (i32) and "loss_scale" (f32). */
typedef struct tti_shard_data {
    const void *x, *target;
    int32_t n_rows; /* real samples, the first ones; the others are padding */
} tti_shard_data;

/* An output of the program that is copied to host memory: that of shard i of this worker to `to` +
 * i * n_bytes.  Workers on devices copy those of
 * an evaluation and of tti_exec_compute_gradients. */
typedef struct tti_output_copy {
    const char *name;
    size_t n_bytes;
    void *to;
} tti_output_copy;

typedef struct tti_step_desc {
    uint64_t step; /* updates done before this one */
    double lr;
    const tti_shard_data *shards; /* [last - first] of this worker */
    const int32_t *index;         /* [last - first][b] of kept samples, -1: padding; or NULL */
    /* [n_channels]: x of the shards is bytes that stand for these values (as in
     * tti_resident_samples), rows with a target below 0 are zeros.  Only if tti_exec_takes_bytes;
     * NULL: x is as in the graph */
    const float (*value)[256];
    int32_t n_channels; /* 1 .. TTI_MAX_BYTE_TABLES */
    int64_t shard_size; /* rows per shard, b */
    int64_t n_rows;     /* real samples of the global batch */
    double loss_scale;  /* gradients come multiplied by it; 0: 1 */
    bool stop_on_bad;   /* a step that was begun after a bad one is left out too */
    bool average;       /* desc.local: parameters are averaged after this step, on all workers */
    bool average_state; /* and so are state and averages of parameters */
    bool vote;          /* this worker wants something done, such as a stop */
    const tti_output_copy *outputs; /* [n_outputs], of the programs that have them */
    int n_outputs;
    bool keeps_params; /* tti_exec_apply_gradients: the caller has updated the parameters, and only
                          buffers change */
} tti_step_desc;

/* Sum and count of each metric of the model's own, [plan->n_metrics][2]. */
typedef struct tti_metric_sums {
    double of[2 * TTI_MAX_OWN_METRICS];
} tti_metric_sums;

typedef struct tti_step_result {
    double loss_sum, count, correct; /* over the global batch */
    tti_metric_sums metrics;
    double grad_norm;     /* of the mean gradient; 0 unless it was needed */
    uint64_t params_hash; /* after the update, of the whole model */
    uint64_t own_hash;    /* the same of what this worker has of it */
    int n_votes;          /* workers that voted, the same number on all of them */
    bool partial;         /* a step of local SGD: sums and hash are this worker's own */
    bool skipped;         /* the update was left out: a gradient or loss is not finite */
    int64_t compute_ns, comm_ns, update_ns;
    double sent_bytes; /* of gradients that this worker sent to others, by the algorithms' count;
                          0 where devices or a server add */
    double bubble; /* share of compute_ns that the stages of a pipeline waited; 0: there is none */
} tti_step_result;

/* How the time in tti_exec_begin and tti_exec_end of all steps so far was spent. */
typedef struct tti_exec_spent {
    bool known;        /* waited_ns includes all waits, which some devices do not measure */
    int64_t waited_ns; /* for other workers, and the traffic with them */
    int64_t copied_ns; /* samples to a device, gradients from it */
} tti_exec_spent;

/* Bytes that this worker allocated: parameters, state, gradients, activations. */
typedef struct tti_exec_memory {
    size_t params, states, grads, arena;
    size_t device_peak; /* all of the device's at their most so far; 0 on the host */
    size_t ema;         /* averaged parameters */
    size_t gathered;    /* parameters of others, while they are used */
    size_t mailbox;     /* of the host: places of values that other stages send */
    size_t offloaded;   /* of the host, for a device that has no state (desc.offload) */
    size_t
        program_values; /* on the host: constants and results of the programs of compute threads */
} tti_exec_memory;

/* The shared memory of the workers of desc: plan, backend and ema are read.  On success *out is
 * owned by the caller, who destroys it after the last worker. */
tutti_status tti_shared_params_create(const tti_exec_desc *desc, tti_shared_params **out);
void tti_shared_params_destroy(tti_shared_params *copy);

#endif /* TTI_EXEC_DESC_H */
