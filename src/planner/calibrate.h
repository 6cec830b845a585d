/* calibrate.h - measures the speed of this machine by running the job's own programs. Each struct
 * is owned by its caller and used by one thread at a time.
 *
 * A micro-batch group runs one shard on every core, or on every device, at the same time, with the
 * same caches, memory and batch norm as training. So the measurement includes the contention
 * between cores, and between devices of one host. */
#ifndef TTI_PLANNER_CALIBRATE_H
#define TTI_PLANNER_CALIBRATE_H

#include "exec/exec.h"
#include "planner/scheme.h"
#include "train/setup/blueprint.h"

/* The measured time and memory of a micro-batch group that ran, or an estimate scaled from another
 * one (tti_calibrated_micro_group). */
typedef struct tti_group_cost {
    int64_t rows; /* samples of the shard */
    const char *recompute;
    double cost_s;        /* seconds of the shard, estimated from the costs of its operations */
    double s;             /* seconds of the micro-batch group */
    double update_s;      /* seconds of the whole update, by all cores together */
    double load_s;        /* seconds to load one sample, by one thread */
    double hidden_bytes;  /* bytes that each compute thread, or a device, uses beyond the planned
                             arrays; may be negative on a host */
    double scratch_bytes; /* devices: part of hidden_bytes that kernels request as scratch */
} tti_group_cost;

/* Scratch memory that the kernels of a plan request from a device. Each plan is queried once. */
typedef struct tti_scratch {
    const tti_plan *plan;
    double bytes; /* for one shard in flight */
} tti_scratch;

enum { TTI_MAX_MICRO_GROUPS = 32, TTI_MAX_SCRATCH = 128 };

/* A connection between workers. */
typedef struct tti_link_speed {
    double latency_s; /* per message, of any size */
    double bytes_s;   /* bandwidth of one worker, in bytes per second */
} tti_link_speed;

typedef struct tti_calibration {
    int n_cores;         /* usable cores; on devices: number of devices */
    double flops, bytes; /* peak operations and memory bytes per second of one core or device */
    double f32_share;    /* fraction of flops that f32 operations reach; 0: all */
    double kernel_overhead_s; /* overhead of each operation, to start and end its kernel */
    double launch_overhead_s; /* additional overhead of each kernel outside a captured graph */
    int64_t tile;             /* channels per tile of a matrix product; 0: any number */
    double attention_share;   /* fraction of flops that attention reaches; 0: all */
    double add_s;             /* seconds per element to add two gradients, by one core or device */
    double sum_latency_s;     /* time of a small all-reduce between n_ranks workers */
    double sum_bytes_s;       /* bus bandwidth of a large all-reduce */
    tti_link_speed tp;        /* tensor-parallel collectives */
    tti_link_speed message;   /* messages between pipeline stages */
    bool has_p2p;             /* devices: stages send and reduce without the host */
    double host_staged_s_per_byte; /* seconds per byte of gradients that devices reduce through the
                                      host */
    double base_bytes; /* memory of the process when the first blueprint was created, without
                          workers */
    double start_bytes, start_file_bytes; /* process memory before the first micro-batch group; the
                                             part of it that belongs to files */
    double code_bytes; /* pages of programs and libraries that micro-batch groups have loaded */
    double read_bytes; /* samples that micro-batch groups were the first to read */
    int n_ranks;       /* number of workers of the all-reduces above */
    bool is_device;
    double slice_s; /* time budget of one short program */
    tti_group_cost micro_groups[TTI_MAX_MICRO_GROUPS];
    tti_scratch scratch[TTI_MAX_SCRATCH];
    int n_micro_groups, n_scratch;
    double stored_scratch; /* scratch bytes of one shard in flight, if kernels cannot be queried; 0:
                             unknown */
} tti_calibration;

/* Estimated seconds of steps first .. last-1 of a program, by a roofline model: each operation is
 * limited by flops or by memory bytes. Excludes communication. */
double tti_steps_cost_s(const tti_calibration *c, const tti_program *program, int first, int last);

/* Estimated seconds of all steps of a program. */
double tti_program_cost_s(const tti_calibration *c, const tti_program *program);

/* True if node is a convolution with so few input channels that the device pads them to a tile. */
bool tti_is_padded(const tti_calibration *c, const tti_node *node);

/* Estimated seconds of an update, by a device or by all cores of a host together. It reads
 * parameters, gradients and states, and writes parameters and states. */
double tti_update_cost_s(const tti_calibration *c, const tti_plan *plan);

/* Bytes of all arrays of a worker: parameters, state, gradients, averages and activations. */
double tti_bytes_of_arrays(const tti_exec_memory *m);

/* Bytes of host memory that n_bytes in n_arrays equal arrays occupy; large arrays occupy whole huge
 * pages. */
double tti_page_bytes(double n_bytes, double n_arrays);

/* The same for parameters, state and averages of a worker, and for its other arrays. Gradients
 * count without rounding unless the worker is alone, because peers read them in shared memory. */
double tti_resident_page_bytes(const tti_exec_memory *m, const tti_plan *plan);
double tti_working_page_bytes(const tti_exec_memory *m, const tti_plan *plan, bool is_alone);

/* Returns the resident bytes of this process; sets *of_files to the part that belongs to files
 * (NULL: not wanted). */
double tti_process_bytes(double *of_files);

/* Measures the ceilings and the all-reduces of this machine for the workers of b. Takes about half
 * a second. budget_s: seconds for the whole calibration; base_bytes: see tti_calibration. */
tutti_status tti_calibrate_machine(const tti_blueprint *b, int n_ranks, double budget_s,
                                   double base_bytes, tti_calibration *out);

/* Runs a few steps of the shard program of b and records its time in c. Does nothing if the time is
 * known, if it would take longer than left_s, or if the program does not fit on a device. Sets
 * *spent_s to the seconds spent. */
tutti_status tti_calibrate_micro_group(const tti_blueprint *b, tti_calibration *c, double left_s,
                                       double *spent_s);

/* The same with n_workers workers at once, each on the device or host that the job assigns. host
 * (NULL: none) receives the results of workers on the host, for the cores that each of them has. */
tutti_status tti_calibrate_micro_groups(const tti_blueprint *b, int n_workers, tti_calibration *c,
                                        tti_calibration *host, double left_s, double *spent_s);

/* Returns the micro-batch group of a program: the measured one, or the nearest measured one scaled
 * by cost_s. Sets *is_measured. */
tti_group_cost tti_calibrated_micro_group(const tti_calibration *c, int64_t rows,
                                          const char *recompute, double cost_s, bool *is_measured);

/* A backend for planning with a device that this machine lacks: graphs and plans can be built, but
 * nothing runs. Static; never freed. */
const tti_backend *tti_planning_device(void);

/* True if device is "measured" or NULL: the plan is for this machine. */
bool tti_is_measured(const char *device);

/* True if device is a kind with stored figures, for which plans use the backend
 * tti_planning_device. */
bool tti_is_known_device(const char *device);

/* Sets *out to stored figures instead of measurements: of an "h200", or of one host core per rank,
 * "cpu". TUTTI_E_INVALID: no figures with that name. */
tutti_status tti_calibration_of(const char *device, int n_ranks, tti_calibration *out);

/* Sets the speed of f32 operations, or of tf32 if the job selects it. Device ceilings are those of
 * 16-bit operations (ops/weight.h). */
void tti_calibration_for(const tti_job_config *config, tti_calibration *c);

#endif /* TTI_PLANNER_CALIBRATE_H */
