/* device_state.h - the state of a worker on a device: its memory, the steps in flight, and the
 * objects of the files in exec/device/. */
#ifndef TTI_EXEC_DEVICE_STATE_H
#define TTI_EXEC_DEVICE_STATE_H

#include "backend/backend.h"
#include "exec/device/memory/device_memory.h"
#include "exec/worker/worker.h"

typedef struct tti_device_work {
    const char *name;      /* of the device */
    int index;             /* index of the device */
    uint64_t done, newest; /* the last step known to be complete, and the last step begun */
} tti_device_work;

/* Returns st; for TUTTI_E_DEVICE adds the steps in flight to the message. ops: the device may be
 * asked what caused another failure; NULL: it may not, because it waits for other devices. */
tutti_status tti_device_failure_context(const tti_device_work *work, const tti_device_ops *ops,
                                        tutti_status status);

typedef struct tti_device_axis tti_device_axis;
typedef struct tti_device_host_staged tti_device_host_staged;
typedef struct tti_device_p2p tti_device_p2p;
typedef struct tti_device_param_gather tti_device_param_gather;
typedef struct tti_device_pipe tti_device_pipe;
typedef struct tti_device_reduce tti_device_reduce;
typedef struct tti_device_server tti_device_server;
typedef struct tti_device_sharded tti_device_sharded;
typedef struct tti_device_update tti_device_update;

/* Events of a device's queues.  The first TTI_MAX_AHEAD are those of steps in flight. */
enum {
    TTI_EVENT_INPUTS = TTI_MAX_AHEAD, /* the batch of a step has been copied */
    TTI_EVENT_TP,                     /* device_tp.c */
    TTI_EVENT_OFFLOADED =
        TTI_EVENT_TP, /* offload.c, for a worker without peers; uses this event and the next five */
    TTI_EVENT_PIPE_IN,                          /* device_pipe.c */
    TTI_EVENT_PIPE_OUT,                         /* also uses the next one */
    TTI_EVENT_SETTLED = TTI_EVENT_PIPE_OUT + 2, /* device_reduce.c */
    TTI_EVENT_COMPUTED, /* device_host_staged.c: gradients have been computed */
    TTI_N_OFFLOADED = TTI_EVENT_COMPUTED + 1 - TTI_EVENT_OFFLOADED
};

/* Parameters, averages and states. */
enum { TTI_N_MIRRORS = 2 + TTI_MAX_OUT };

/* The buffers of one step in flight: pinned host memory and its copy on the device. */
typedef struct tti_device_set {
    tti_inputs_shard *shards; /* [n_local], device; empty in sets without samples */
    tti_step_args *args, *args_host;
    int32_t *rows_host;   /* [n_local] */
    int32_t *index;       /* pinned [n_local][1 + b]: indices of resident samples */
    bool gathers;         /* the step in flight uses resident samples */
    char *host_report;    /* pinned: tti_step_report, then the sums */
    void *captured_graph; /* NULL: not captured yet */
    tti_step_desc desc;   /* of the step in flight; shards are not valid */
    int64_t begun_ns;
    bool at_work;
} tti_device_set;

struct tti_exec_device {
    const tti_device_ops *ops;
    tti_device_set sets[TTI_MAX_AHEAD];
    int n_sets; /* number of sets that training uses cyclically */
    tti_resident resident;
    tti_bytes bytes;
    tti_run *fixed, *runs; /* [n_local], device */
    int64_t rows;          /* rows per shard, as stored in fixed; 0: not known yet */
    tti_step_args *args;   /* device: of the step that runs, copied from its set */
    double *sums;          /* device [V][tti_n_sums] */
    tti_step_report *report;
    float *sync_parts, *sync_joined; /* device, for programs with TTI_SYNC */
    tti_device_update *update;
    tti_device_reduce
        *reduce; /* several workers have reduce or host_staged; a single worker has neither */
    tti_device_param_gather
        *param_gather; /* with reduce: gathers the parameters of other workers; NULL: none */
    tti_device_sharded *sharded; /* gathers parameters and scatters gradients; NULL: unsharded */
    tti_device_host_staged *host_staged;
    tti_device_axis *axis; /* tensor ranks communicate in the captured graph; NULL: they do not */
    void *eval_captured_graph; /* with axis: evaluates a batch; NULL: not captured yet */
    bool has_evaluated;
    tti_device_server *server;     /* NULL: the device runs the update */
    tti_device_pipe *pipe;         /* NULL: the worker has all layers */
    tti_device_p2p *p2p;           /* of pipe; borrowed */
    bool between;                  /* the last step of pipe sent values between devices */
    tti_str transport;             /* describes the reductions between workers */
    tutti_status overlap_status;   /* first failed launch during the last shard */
    float *mirrors[TTI_N_MIRRORS]; /* device.c; NULL: not used yet */
    float *gradients; /* host: summed gradients, [n_flat], or [n_elems] of own blocks with sharded;
                         NULL: not used yet */
    bool has_gradients; /* the result of the last tti_exec_compute_gradients is complete */
    const tti_step_desc
        *output_step; /* the training program copies the outputs of this step; NULL: none */
    float *staging;   /* [n_flat] host: state gathered from all workers; NULL: not used yet */
    size_t x_bytes, target_bytes, report_bytes;
    int n_reported; /* number of reported sums of a step */
    uint64_t n_begun, n_ended;
    uint64_t n_reported_steps; /* begun steps whose reports have arrived */
    int n_chained;             /* steps per launch; below 2: one */
    int n_waiting;             /* begun steps that wait for the next launch */
    bool has_just_ended;       /* a step ended and no other has begun since */
    bool loads; /* this step does something for the first time, such as loading kernels */
    void *chains[TTI_MAX_AHEAD]; /* graphs of several steps, by the set of the first; NULL: not
                                    captured yet */
    uint64_t newest, done;       /* the last step begun, and the last step known to be complete */
    tti_str name;
    int64_t last_end_ns;
    int64_t waited_ns;        /* total over all steps, see tti_step_report.waited_ns */
    int64_t waited_before_ns; /* value of tti_exec_device_get_waits before the last rebalancing */
    bool has_low_copies;      /* the 16-bit copies match the parameters */
    bool has_own_sums;        /* sums of other workers' shards are 0 */
    void **timed;             /* [n_timed]: graphs of profiled steps; NULL: no profile */
    int n_timed, next_timed;
};

static inline int tti_device_n_local(const tti_setup *setup) {
    return setup->last_shard - setup->first_shard;
}

/* The set of the oldest step in flight. */
int tti_device_next_to_end(const tti_exec_device *device);

/* The point-to-point group of devices; NULL: none.  Whether the last pipeline step used it. */
tti_device_p2p *tti_device_p2p_of(const tti_exec *x);
bool tti_device_is_between(const tti_exec *x);

/* Allocates n_bytes of device memory, or of pinned memory, and stores the pointer at where. */
tutti_status tti_device_alloc(const tti_setup *setup, void *where, size_t n_bytes);
tutti_status tti_device_alloc_host(tti_exec_device *device, void *where, size_t n_bytes);

/* Allocates one input set; stores seed and index of every shard whose rows are known; allocates all
 * memory for the worker's shards. */
tutti_status tti_device_make_set(tti_exec *x, tti_device_set *set, bool is_input);
tutti_status tti_device_put_runs(tti_exec *x, int64_t rows);
tutti_status tti_device_alloc_shards(tti_exec *x);
void tti_device_release_shards(tti_exec *x);

/* Returns st.  For a device failure adds the device and the steps in flight to the message. */
tutti_status tti_device_failure(const tti_exec *x, tutti_status st);

#endif /* TTI_EXEC_DEVICE_STATE_H */
