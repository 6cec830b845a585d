/* device_step.h - declarations shared by the files of a step on a device. */
#ifndef TTI_EXEC_DEVICE_STEP_H
#define TTI_EXEC_DEVICE_STEP_H

#include "exec/device/bytes.h"
#include "exec/device/device_axis.h"
#include "exec/device/device_host_staged.h"
#include "exec/device/device_line.h"
#include "exec/device/device_local.h"
#include "exec/device/device_mail.h"
#include "exec/device/device_parts.h"
#include "exec/device/device_pipe.h"
#include "exec/device/device_reduce.h"
#include "exec/device/device_server.h"
#include "exec/device/device_sharded.h"
#include "exec/device/device_told.h"
#include "exec/device/device_update.h"
#include "exec/device/resident_samples.h"
#include "exec/worker/worker.h"

/* Parameters, their averages, and the states. */
enum { TTI_N_MIRRORS = 2 + TTI_MAX_OUT };

/* The buffers of one step in flight: pinned host memory and its copy on the device. */
typedef struct tti_device_set {
    tti_inputs_shard *shards; /* [n_local], device; empty in sets that are never fed */
    tti_step_args *args, *args_host;
    int32_t *rows_host;   /* [n_local] */
    int32_t *index;       /* pinned [n_local][1 + b], of kept samples */
    bool gathers;         /* the step at work is one over kept samples */
    char *told;           /* pinned: tti_step_report, then the sums */
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
    double *sums;          /* device [V][TTI_SUMS] */
    tti_step_report *report;
    float *sync_parts, *sync_joined; /* device, for programs with TTI_SYNC */
    tti_device_update *update;
    tti_device_reduce *reduce;   /* between several workers one of the two, alone none */
    tti_device_parts *parts;     /* with reduce, of others; NULL: there are none */
    tti_device_sharded *sharded; /* of gradients, too; NULL: they are whole */
    tti_device_host_staged *host_staged;
    tti_device_axis
        *axis; /* pieces of layers are exchanged in the captured graph; NULL: they are not */
    void *eval_captured_graph; /* then: of the evaluation of a batch; NULL: not yet made */
    bool has_evaluated;
    tti_device_server *server;     /* NULL: the device makes the update */
    tti_device_pipe *pipe;         /* NULL: the worker has all layers */
    tti_device_mail *mail;         /* of pipe; borrowed */
    bool between;                  /* the last step of pipe went between devices */
    tti_str way;                   /* of the sums between workers, in words */
    tutti_status beside;           /* status of launches during the last shard */
    float *mirrors[TTI_N_MIRRORS]; /* device_mirrors.c; NULL: not used yet */
    float *staging; /* [n_flat] host: state that is gathered from all workers; NULL: not yet */
    size_t x_bytes, target_bytes, told_bytes;
    int n_told; /* number of reported sums of a step */
    uint64_t n_begun, n_ended;
    int n_chained;               /* steps per launch; below 2: one */
    int n_waiting;               /* of those begun, the last ones: for the next launch */
    bool has_just_ended;         /* a step, and none was begun since */
    bool loads;                  /* the step at hand: it does what no step has done before */
    void *chains[TTI_MAX_AHEAD]; /* captured graphs, by the set of the first step; NULL: not made */
    uint64_t newest, done;       /* the last step begun, and the last one known to be complete */
    tti_str name;
    int64_t last_end_ns;
    int64_t exchanged_ns; /* of all steps so far, see tti_step_report.exchange_ns */
    bool has_low;         /* parameters in 16 bits are those in 32 */
    bool has_own_sums;    /* sums of other workers' shards are 0 */
    void **timed;         /* [n_timed]: captured graphs of steps that are profiled; NULL: none is */
    int n_timed, next_timed;
};

/* Sets whose batches the host feeds. */
enum { TTI_N_INPUTS = 2 };

static inline int tti_device_n_local(const tti_exec *x) { return x->last_shard - x->first_shard; }

/* The set of the oldest step at work. */
static inline int tti_device_next_to_end(const tti_exec_device *d) {
    return (int)(d->n_ended % (uint64_t)d->n_sets);
}

/* device_own.c: n_bytes of the device, of pinned memory, into the pointer at where. */
tutti_status tti_device_take(tti_exec *x, void *where, size_t n_bytes);
tutti_status tti_device_take_host(tti_exec *x, void *where, size_t n_bytes);

/* device_shards.c: one input set; seed and index of every shard whose rows are known; and all
 * memory for the worker's shards. */
tutti_status tti_device_make_set(tti_exec *x, tti_device_set *set, bool is_input);
tutti_status tti_device_put_runs(tti_exec *x, int64_t rows);
tutti_status tti_device_take_shards(tti_exec *x);
void tti_device_release_shards(tti_exec *x);

void tti_device_mirrors_fini(tti_exec *x);

/* device_meet.c: how the workers' devices add, as far as they reach each other. */
tutti_status tti_device_meet(tti_exec *x);

/* Batch and numbers of a step into a set; what computes next waits for them. */
tutti_status tti_device_feed(tti_exec *x, tti_device_set *set, const tti_step_desc *desc);
/* The numbers of the step, to where programs read them. */
tutti_status tti_device_put_begin(tti_exec *x, const tti_device_set *set);

/* Launches a step; beside: other devices are read while shards compute. */
tutti_status tti_device_whole_step(tti_exec *x, const tti_device_set *set, bool beside);

/* The end of a step whose gradients are there: the update, and what the host is told. */
tutti_status tti_device_update_and_tell(tti_exec *x, const tti_device_set *set);

/* device_graphs.c: ends capturing; st is the status of the captured launches. */
tutti_status tti_device_end_capture(tti_exec *x, tutti_status st, void **captured_graph);

/* device_graphs.c: a captured graph of a step with these inputs, nothing runs; and the set's own
 * one into the queue, made if it is not there. */
tutti_status tti_device_record(tti_exec *x, const tti_device_set *set, void **captured_graph);
tutti_status tti_device_play(tti_exec *x, tti_device_set *set);

/* device_graphs.c: later steps differ from the captured ones, which are all complete on return.
 * Collective. */
tutti_status tti_device_release_graphs(tti_exec *x);

/* device_graphs.c: how many steps over kept samples the device is best given at once; whether
 * the step of this set is one of those; and such a step, marked as every step is, which waits until
 * the others of its launch have been begun. */
int tti_device_n_chained(const tti_exec *x);
bool tti_device_is_chained(const tti_exec *x, const tti_device_set *set);
tutti_status tti_device_chain_step(tti_exec *x, int which);

/* device_graphs.c: before the oldest step at work is awaited.  Steps that wait for others go to
 * the device one by one if it is among them, or if no others come. */
tutti_status tti_device_chain_before_end(tti_exec *x);

/* device_shard_groups.c: runs the shards of this worker with their inputs; also the overlapped sums
 * with other workers.  And those of an evaluation. */
tutti_status tti_device_run_shards(tti_exec *x, const tti_device_set *set);
tutti_status tti_device_eval_shards(tti_exec *x, const tti_device_set *set);

/* device_join.c: a step of the shard program is in the queue, for a profile. */
void tti_device_time_step(tti_exec *x, const tti_instance *instance, int step, int shard);

/* device_join.c: the values of sync number i of all shards become one. */
tutti_status tti_device_join_shards(tti_exec *x, int i);

/* The oldest step at work is done: its set, until the next step begins. */
tutti_status tti_device_await(tti_exec *x, const tti_device_set **out);
/* Takes its sums into x->sums, and its times into result. */
tutti_status tti_device_take_sums(tti_exec *x, const tti_device_set *set);
void tti_device_note_done(tti_exec *x, const tti_device_set *set, tti_step_result *result);

#endif /* TTI_EXEC_DEVICE_STEP_H */
