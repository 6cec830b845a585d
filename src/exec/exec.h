/* exec.h - one worker: a plan bound to compute threads, memory and a communicator.
 *
 * The same code runs every worker, whether it is a thread or a process, alone or one of many.  A
 * step is: shards in parallel on the compute threads; gradients added along the fixed tree, first
 * inside the worker, then between workers; one small all-reduce of sums and counts; the update on
 * every worker.  In exact mode everything that is logged or stored is the same on all of them, bit
 * for bit. */
#ifndef TTI_EXEC_EXEC_H
#define TTI_EXEC_EXEC_H

#include "backend/backend.h"
#include "base/affinity.h"
#include "comm/mesh.h"
#include "comm/shard_map.h"
#include "exec/program/timeline.h"
#include "passes/plan.h"
#include "tutti/comm.h"

typedef struct tti_exec tti_exec;
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
    tutti_dtype wire;      /* fast mode: bf16, f16: gradients are rounded before they travel */
    tti_compression compression; /* fast mode, several workers on the host; wire is f32 then */
    double topk;                 /* 0 .. 1: share of a matrix that is sent */
    int low_rank;                /* >= 1: columns of the thin matrices of PowerSGD */
    int64_t compress_after;      /* steps before are sent whole */
    bool local; /* fast mode on the host: each worker updates its own parameters (local.h) */
    int64_t local_after; /* number of first steps with an all-reduce */
    int zero;            /* in parts on the workers: 1: state; 2: gradients; 3: parameters */
    int n_owners; /* with zero 1: the first so many workers have the parts, as servers; 0: all */
    bool shares;  /* workers are threads that have parameters and state in common */
    tti_shared_params
        *shared_params;  /* then: borrowed, the same for all of them (shared_params.h) */
    tti_server *server;  /* borrowed; keeps parameters and state for workers (server.h) */
    int server_worker;   /* the number of this one there, or of a worker without comm */
    bool serves;         /* the server's own: an update without shards */
    int range, n_ranges; /* then: of this range of the keys alone (share.h); 0 of 0: of all */
    /* For ranges: values [n_updates][n_each] by block, of which each server has those of its own
     * blocks, become those of all; called by the thread that makes updates. */
    tutti_status (*join)(void *user, double *values, size_t n_each);
    void *join_user;
    bool reference;       /* plain-C kernels */
    bool watch_gradients; /* look for NaN in gradients, not only in the loss */
    bool offload;         /* of devices: the host has the optimizer's state (offload.h) */
    bool mixed; /* fast mode: of the ranks of comm some compute on devices, with offload, and some
                   on the host; plans have one digest (tti_plan_digest) */
    uint64_t seed;
    double clip_norm;    /* of the mean gradient; 0: off */
    double clip_value;   /* largest element of the mean gradient; 0: off */
    double l1;           /* times sign(w) is added to the mean gradient of weights with decay */
    double ema;          /* decay of averaged parameters, which evaluation then uses; 0: off */
    double beta1, beta2; /* of Adam, for the bias corrections */
} tti_exec_desc;

/* Prepares everything and initializes the parameters from the seed.  Collective.  On success *out
 * is owned by the caller. */
tutti_status tti_exec_create(const tti_exec_desc *desc, tti_exec **out);
void tti_exec_destroy(tti_exec *exec);

/* desc.server, desc.server_worker. */
tti_server *tti_exec_server(const tti_exec *exec);
int tti_exec_server_worker(const tti_exec *exec);

/* Shards of this worker: first .. last-1 of V. */
int tti_exec_first_shard(const tti_exec *exec);
int tti_exec_last_shard(const tti_exec *exec);
/* The worker's cores, to one of which its calling thread is bound; n 0: not bound. */
void tti_exec_cores(const tti_exec *exec, tti_cores *out);

/* Whether the shards may be redistributed between two steps: on the host, or with desc.mixed, if
 * gradients and parameters are unsharded and there are no residuals.  The same on all workers. */
bool tti_exec_can_rebalance(const tti_exec *exec);

/* Redistributes the shards to the ranks of the same communicator; parameters and state do not
 * change.  Memory for computation is made again; memory that peers read only grows.  Collective.
 * After a failure only tti_exec_destroy is allowed. */
tutti_status tti_exec_rebalance(tti_exec *exec, const tti_shard_map *shard_map);

/* If the arrays below are copies of device memory: pull updates them, and push copies them to the
 * device.  On the host both do nothing, except that with desc.shared_params push waits for all
 * workers.
 */
tutti_status tti_exec_pull(tti_exec *exec);
tutti_status tti_exec_push(tti_exec *exec);

/* Pins host memory of batches, so that copies to a device overlap with computation, until it is
 * unpinned, before it is freed.  Optional: everything works without it. */
void tti_exec_pin(tti_exec *exec, void *memory, size_t n_bytes);
void tti_exec_unpin(tti_exec *exec, void *memory);

/* The flat parameters and state arrays (plan->n_flat elements each): read them after tti_exec_pull,
 * and call tti_exec_push after writing.  With desc.zero and several workers there are no whole
 * arrays of state: NULL; with 3 none of parameters either.  With desc.server state is the server's,
 * and only its worker 0 writes it. */
float *tti_exec_params(tti_exec *exec);
float *tti_exec_state(tti_exec *exec, int k);
float *tti_exec_ema(tti_exec *exec); /* NULL: there are no averages */

/* The averaged parameters, and the parameters, as numbers of a state array. */
enum { TTI_STATE_EMA = -1, TTI_STATE_PARAMS = -2 };
bool tti_exec_has_ema(const tti_exec *exec);

/* State of one slot of the plan, whole, wherever its parts are: elements first .. of array k.
 * After tti_exec_pull.  Rank 0 fetches any number of times and then ends the others'
 * tti_exec_serve, which answers; data are valid until the next call.  Overwrites the gradients of
 * the last step. */
tutti_status tti_exec_fetch(tti_exec *exec, int k, size_t first, size_t n_elems,
                            const float **data);

/* The same for a parameter of the whole model, of which plan may have a tensor shard or nothing:
 * param is its node in a plan of the whole; k may also be TTI_STATE_PARAMS. */
tutti_status tti_exec_fetch_whole(tti_exec *exec, int k, const tti_node *param, const float **data);
tutti_status tti_exec_serve(tti_exec *exec);
tutti_status tti_exec_serve_end(tti_exec *exec);

/* The opposite, on every worker: stores the part of data that this worker owns.  Before
 * tti_exec_push.  With shared parameters (desc.shared_params) rank 0's call counts. */
void tti_exec_store(tti_exec *exec, int k, size_t first, size_t n_elems, const float *data);
tutti_status tti_exec_store_whole(tti_exec *exec, int k, const tti_node *param, const float *data);

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

/* Copies the samples to the device, before the first step; steps of training then give their index
 * alone.  ahead: as tti_exec_depth then says, 1 .. TTI_MAX_AHEAD; less: as is best.  *resident
 * false: there is no device, they take more than a quarter of its free memory, or the graph wants
 * other inputs.
 */
tutti_status tti_exec_keep(tti_exec *exec, const tti_resident_samples *samples, int ahead,
                           bool *resident);

/* Whether steps may have tables of bytes: if a device converts bytes to floats. */
bool tti_exec_takes_bytes(const tti_exec *exec);

/* The data of one shard: x [b, ...] and targets [b, ...], with "ignore" labels on missing rows.
 * The graph may also have the scalar inputs "rows" (i32) and "loss_scale" (f32). */
typedef struct tti_shard_data {
    const void *x, *target;
    int32_t n_rows; /* real samples, the first ones; the others are padding */
} tti_shard_data;

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
} tti_step_desc;

typedef struct tti_step_result {
    double loss_sum, count, correct; /* over the global batch */
    double grad_norm;                /* of the mean gradient; 0 unless it was needed */
    uint64_t params_hash;            /* after the update, of the whole model */
    uint64_t own_hash;               /* the same of what this worker has of it */
    int n_votes;                     /* workers that voted, the same number on all of them */
    bool partial;                    /* a step of local SGD: sums and hash are this worker's own */
    bool skipped;                    /* the update was left out: a gradient or loss is not finite */
    int64_t compute_ns, comm_ns, update_ns;
    double sent_bytes; /* of gradients that this worker sent to others, by the algorithms' count;
                          0 where devices or a server add */
    double bubble; /* share of compute_ns that the stages of a pipeline waited; 0: there is none */
} tti_step_result;

/* One step of training.  A non-finite loss or gradient leaves the parameters unchanged and gives
 * TUTTI_E_NUMERICS with the step and the first layer.  Parameters that differ between workers give
 * TUTTI_E_MISMATCH with tensor, rank and step.  Collective. */
tutti_status tti_exec_step(tti_exec *exec, const tti_step_desc *desc, tti_step_result *result);

/* The same in two halves, so that a device can begin a step before the previous one has reported:
 * up to tti_exec_depth steps are in flight.  Data of desc must stay valid until the end of that
 * step, except for indices. */
tutti_status tti_exec_begin(tti_exec *exec, const tti_step_desc *desc);
tutti_status tti_exec_end(tti_exec *exec, tti_step_result *result);
/* Steps that may be at work together: 1, on a device that works alone 2, or more over kept samples.
 */
int tti_exec_depth(const tti_exec *exec);
/* How many of those steps one launch contains: 1, or half of tti_exec_depth if steps over resident
 * samples are small. */
int tti_exec_steps_per_launch(const tti_exec *exec);

/* How devices add between workers, in words; "" where none do.  Valid as long as exec. */
const char *tti_exec_way(const tti_exec *exec);

/* Sums over one batch of evaluation data, added to loss_sum, count and correct.  Collective. */
tutti_status tti_exec_eval(tti_exec *exec, const tti_step_desc *desc, tti_step_result *result);

/* Between the two calls n_steps steps are begun and ended as in training, after at least one, and
 * their parts timed; nothing waits that does not wait in training.  Devices play captured graphs of
 * their own meanwhile, with moments in them; on the host it is the first compute thread that is
 * looked at. Collective. */
tutti_status tti_exec_profile_begin(tti_exec *exec, int n_steps);
tutti_status tti_exec_profile_end(tti_exec *exec, tti_timeline *out);

/* Something that the worker's thread did besides: waiting for samples. */
void tti_exec_profile_wait(tti_exec *exec, tti_part part, int64_t start_ns, int64_t end_ns);

/* The hash of this worker's parameters as they are in memory now: own_hash of the last step.  Fails
 * only where a device does. */
tutti_status tti_exec_params_hash(tti_exec *exec, uint64_t *hash);

/* The same of the whole model, as params_hash.  Collective where it is divided. */
tutti_status tti_exec_whole_hash(tti_exec *exec, uint64_t *hash);

/* Compares parameters between all workers by a full read.  Collective. */
tutti_status tti_exec_check_params(tti_exec *exec, uint64_t step);

/* The expected tti_step_result.bubble from the costs of the stages; 0: there are none. */
double tti_exec_expected_bubble(const tti_exec *exec);
/* The share of the last step that each stage computed, [stages], which lives as long as the worker;
 * NULL: there are none. */
const double *tti_exec_stages_busy(const tti_exec *exec);

/* How the time in tti_exec_begin and tti_exec_end of all steps so far was spent. */
typedef struct tti_exec_spent {
    bool known;        /* waited_ns includes all waits, which some devices do not measure */
    int64_t waited_ns; /* for other workers, and the traffic with them */
    int64_t copied_ns; /* samples to a device, gradients from it */
} tti_exec_spent;

/* TUTTI_E_DEVICE and the like when the device has failed. */
tutti_status tti_exec_get_spent(tti_exec *exec, tti_exec_spent *spent);

/* Bytes that this worker allocated: parameters, state, gradients, activations. */
typedef struct tti_exec_memory {
    size_t params, states, grads, arena;
    size_t device_peak; /* all of the device's at their most so far; 0 on the host */
    size_t ema;         /* averaged parameters */
    size_t gathered;    /* parameters of others, while they are used */
    size_t mail;        /* of the host: places of values that other stages send */
    size_t offloaded;   /* of the host, for a device that has no state (desc.offload) */
    size_t beside; /* of the host: constants and results of the programs of its compute threads */
} tti_exec_memory;
tti_exec_memory tti_exec_memory_use(const tti_exec *exec);

/* The same before there is a worker: for rank of n_ranks, from plan, backend, n_shards,
 * n_compute_threads, shard_map, zero, ema, fast and wire of desc. */
tutti_status tti_exec_memory_plan(const tti_exec_desc *desc, int rank, int n_ranks,
                                  tti_exec_memory *out);

/* Scratch memory of the kernels of that worker on the host, for all its compute threads.  Prepares
 * the kernels to learn it, which takes as long as the first part of tti_exec_create. */
tutti_status tti_exec_scratch_plan(const tti_exec_desc *desc, int rank, int n_ranks,
                                   size_t *n_bytes);

/* A worker on the host that is not created yet. */
typedef struct tti_list_desc {
    const tti_exec_desc *exec; /* as for tti_exec_memory_plan, and what the job says of steps */
    int rank, n_ranks;         /* of the data axis */
    bool is_divided;           /* other workers have other parts of the model */
    bool has_server, is_async; /* a parameter server makes the updates; of every gradient alone */
} tti_list_desc;

/* Prints the worker's step programs, one for each form of step: the lists that it would execute. */
tutti_status tti_exec_print_lists(const tti_list_desc *desc, tti_str *out);

/* Threads that compute n_local shards side by side: desc->n_compute_threads of them, but one where
 * shards take turns at a device or at the communicator of a tensor axis. */
int tti_exec_n_compute_threads(const tti_exec_desc *desc, int n_local);

#endif /* TTI_EXEC_EXEC_H */
