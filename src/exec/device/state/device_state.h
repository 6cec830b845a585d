/* device_state.h - the state of a worker on a device: its memory, the steps in flight, and what the
 * files of exec/device/ keep for it. */
#ifndef TTI_EXEC_DEVICE_STATE_H
#define TTI_EXEC_DEVICE_STATE_H

#include "backend/backend.h"
#include "exec/device/memory/device_memory.h"
#include "exec/worker/worker.h"

typedef struct tti_device_work {
    const char *name; /* of the device */
    int index;        /* of it */
    uint64_t done,
        newest; /* the last step of the run known to be complete, and the last one begun */
} tti_device_work;

/* The status of a call, with the work before the text of a TUTTI_E_DEVICE.  ops: of a device that
 * may be asked what another failure came from; NULL: it may not, since it waits for others. */
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

/* Events of a device's queues: those of steps in flight come first. */
enum {
    TTI_EVENT_INPUTS = TTI_MAX_AHEAD,   /* the batch of a step is copied */
    TTI_EVENT_TP,                       /* device_tp.c */
    TTI_EVENT_OFFLOADED = TTI_EVENT_TP, /* offload.c, of a worker alone; and the next five */
    TTI_EVENT_PIPE_IN,                  /* device_pipe.c */
    TTI_EVENT_PIPE_OUT,                 /* and the next one */
    TTI_EVENT_SETTLED = TTI_EVENT_PIPE_OUT + 2, /* device_reduce.c */
    TTI_EVENT_COMPUTED,                         /* device_host_staged.c: gradients are computed */
    TTI_N_OFFLOADED = TTI_EVENT_COMPUTED + 1 - TTI_EVENT_OFFLOADED
};

/* Parameters, their averages, and the states. */
enum { TTI_N_MIRRORS = 2 + TTI_MAX_OUT };

/* The buffers of one step in flight: pinned host memory and its copy on the device. */
typedef struct tti_device_set {
    tti_inputs_shard *shards; /* [n_local], device; empty in sets that are never fed */
    tti_step_args *args, *args_host;
    int32_t *rows_host;   /* [n_local] */
    int32_t *index;       /* pinned [n_local][1 + b], of kept samples */
    bool gathers;         /* the step at work is one over kept samples */
    char *host_report;    /* pinned: tti_step_report, then the sums */
    void *captured_graph; /* NULL: not yet made */
    tti_step_desc desc;   /* of the step at work; shards are not kept */
    int64_t begun_ns;
    bool at_work;
} tti_device_set;

struct tti_exec_device {
    const tti_device_ops *ops;
    tti_device_set sets[TTI_MAX_AHEAD];
    int n_sets; /* that take turns in training */
    tti_resident resident;
    tti_bytes bytes;
    tti_run *fixed, *runs; /* [n_local], device */
    int64_t rows;          /* of a shard, as fixed says; 0: not yet known */
    tti_step_args *args;   /* device: of the step that computes, copied from its set */
    double *sums;          /* device [V][tti_n_sums] */
    tti_step_report *report;
    float *sync_parts, *sync_joined; /* device, for programs with TTI_SYNC */
    tti_device_update *update;
    tti_device_reduce *reduce; /* between several workers one of the two, alone none */
    tti_device_param_gather
        *param_gather;           /* with reduce, of the parameters of other workers; NULL: none */
    tti_device_sharded *sharded; /* of gradients, too; NULL: they are whole */
    tti_device_host_staged *host_staged;
    tti_device_axis
        *axis; /* tensor ranks exchange values in the captured graph; NULL: they do not */
    void *eval_captured_graph; /* then: of the evaluation of a batch; NULL: not yet made */
    bool has_evaluated;
    tti_device_server *server;     /* NULL: the device makes the update */
    tti_device_pipe *pipe;         /* NULL: the worker has all layers */
    tti_device_p2p *p2p;           /* of pipe; borrowed */
    bool between;                  /* the last step of pipe went between devices */
    tti_str transport;             /* of the sums between workers, in words */
    tutti_status overlap_status;   /* status of launches during the last shard */
    float *mirrors[TTI_N_MIRRORS]; /* device.c; NULL: not used yet */
    float *gradients;   /* host: summed ones, [n_flat], or [n_elems] of the own blocks with sharded;
                           NULL: not used yet */
    bool has_gradients; /* those of the last tti_exec_compute_gradients are there */
    const tti_step_desc *gives; /* whose outputs the training program copies; NULL: none */
    float *staging; /* [n_flat] host: state that is gathered from all workers; NULL: not yet */
    size_t x_bytes, target_bytes, report_bytes;
    int n_reported; /* number of reported sums of a step */
    uint64_t n_begun, n_ended;
    uint64_t n_reported_steps;   /* of those begun: the host has their reports */
    int n_chained;               /* steps per launch; below 2: one */
    int n_waiting;               /* of those begun, the last ones: for the next launch */
    bool has_just_ended;         /* a step, and none was begun since */
    bool loads;                  /* the step at hand: it does what no step has done before */
    void *chains[TTI_MAX_AHEAD]; /* captured graphs, by the set of the first step; NULL: not made */
    uint64_t newest, done;       /* the last step begun, and the last one known to be complete */
    tti_str name;
    int64_t last_end_ns;
    int64_t waited_ns;        /* of all steps so far, see tti_step_report.waited_ns */
    int64_t waited_before_ns; /* as tti_exec_device_get_waits found before the last rebalancing */
    bool has_low_copies;      /* parameters in 16 bits are those in 32 */
    bool has_own_sums;        /* sums of other workers' shards are 0 */
    void **timed; /* [n_timed]: captured graphs of steps that are profiled; NULL: none is */
    int n_timed, next_timed;
};

static inline int tti_device_n_local(const tti_setup *setup) {
    return setup->last_shard - setup->first_shard;
}

/* The set of the oldest step at work. */
int tti_device_next_to_end(const tti_exec_device *device);

/* Point to point between devices; NULL: none.  And whether the last step of the pipeline used it.
 */
tti_device_p2p *tti_device_p2p_of(const tti_exec *x);
bool tti_device_is_between(const tti_exec *x);

/* n_bytes of the device, of pinned memory, into the pointer at where. */
tutti_status tti_device_alloc(const tti_setup *setup, void *where, size_t n_bytes);
tutti_status tti_device_alloc_host(tti_exec_device *device, void *where, size_t n_bytes);

/* One input set; seed and index of every shard whose rows are known; and all
 * memory for the worker's shards. */
tutti_status tti_device_make_set(tti_exec *x, tti_device_set *set, bool is_input);
tutti_status tti_device_put_runs(tti_exec *x, int64_t rows);
tutti_status tti_device_alloc_shards(tti_exec *x);
void tti_device_release_shards(tti_exec *x);

/* Returns st; adds the device and the steps in flight to the message of a device failure. */
tutti_status tti_device_failure(const tti_exec *x, tutti_status st);

#endif /* TTI_EXEC_DEVICE_STATE_H */
