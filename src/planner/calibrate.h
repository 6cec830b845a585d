/* calibrate.h - measures the speed of this machine with the job itself.
 *
 * A micro-batch group runs one shard on every core, or on every device, at once, with the batch
 * norm, the caches and the memory that training would have.  So the measurement includes the
 * contention between cores, and between devices of one host. */
#ifndef TTI_PLANNER_CALIBRATE_H
#define TTI_PLANNER_CALIBRATE_H

#include "exec/exec.h"
#include "planner/scheme.h"
#include "train/setup/blueprint.h"

/* The time of a shard program that ran, in seconds; or with is_measured false an estimate from its
 * costs. */
typedef struct tti_group_cost {
    int64_t rows; /* of the shard */
    const char *recompute;
    double cost_s;        /* by the costs of its operations at the ceilings */
    double s;             /* of a micro-batch group */
    double update_s;      /* of the whole update, by all cores together */
    double load_s;        /* of one sample, by one thread */
    double hidden_bytes;  /* bytes that each compute thread, or a device, takes in addition to those
                             in plans; on a host it may be below 0 */
    double scratch_bytes; /* devices: of these what kernels say that they want */
} tti_group_cost;

/* Scratch memory that the kernels of a plan request from a device, which is asked once. */
typedef struct tti_scratch {
    const tti_plan *plan;
    double bytes; /* of a shard in flight */
} tti_scratch;

enum { TTI_MAX_MICRO_GROUPS = 32, TTI_MAX_SCRATCH = 128 };

/* A connection between workers. */
typedef struct tti_link_speed {
    double latency_s; /* of whatever goes */
    double bytes_s;   /* that one worker sends in a second */
} tti_link_speed;

typedef struct tti_calibration {
    int n_cores;            /* that compute at once; devices: how many there are */
    double flops, bytes;    /* a core's or a device's ceilings, per second */
    double wide;            /* what operations on f32 reach of flops, as a share; 0: all */
    double kernel_s;        /* of every operation besides: to begin and to end a kernel */
    double queued_s;        /* and more of each that is not a part of a recording */
    int64_t tile;           /* channels that a product takes at a time; 0: any number */
    double attention;       /* what attention reaches of the former, as a share; 0: all */
    double add_s;           /* to add one gradient to another, per element, by one core */
    double sum_latency_s;   /* of a small all-reduce between n_ranks workers */
    double sum_bytes_s;     /* bus bandwidth of a large one */
    tti_link_speed tp;      /* collectives of tensor shards, inside a shard of the batch */
    tti_link_speed message; /* sends from stage to stage */
    bool has_p2p;           /* devices: stages send and add without the host */
    double host_staged_s;   /* for one byte of gradients that devices add through the host */
    double base_bytes;      /* of the process without workers, when the first blueprint was made */
    double start_bytes,
        start_file_bytes; /* in memory before the first micro-batch group, of these of files */
    double code_bytes;    /* of programs and libraries that micro-batch groups have read */
    double read_bytes;    /* of samples that micro-batch groups were the first to read */
    int n_ranks;          /* that the two are of */
    bool is_device;
    double slice_s; /* for one short program */
    tti_group_cost micro_groups[TTI_MAX_MICRO_GROUPS];
    tti_scratch scratch[TTI_MAX_SCRATCH];
    int n_micro_groups, n_scratch;
    double paper_scratch; /* of a shard in flight, if no kernel reports it */
} tti_calibration;

/* Seconds that steps first .. last-1 of a program take, by the costs of their operations, each at
 * the ceiling that applies first.  Communication with other workers is not included. */
double tti_steps_cost_s(const tti_calibration *c, const tti_program *program, int first, int last);

/* The same for all steps. */
double tti_program_cost_s(const tti_calibration *c, const tti_program *program);

/* A convolution of images on a device that has no kernel for so few channels. */
bool tti_is_padded(const tti_calibration *c, const tti_node *node);

/* Estimated seconds of an update on a device, or by all cores of a host together: parameters,
 * gradients and states are read, all but gradients written. */
double tti_update_cost_s(const tti_calibration *c, const tti_plan *plan);

/* All arrays of a worker: parameters, state, gradients, averages and activations. */
double tti_bytes_of_arrays(const tti_exec_memory *m);

/* Memory that n_bytes in n_arrays take on a host, whose large arrays occupy whole huge pages. */
double tti_in_pages(double n_bytes, double n_arrays);

/* The same of what workers have once each: parameters, state and averages; and of the rest, whose
 * gradients lie where peers read them unless the worker is alone. */
double tti_resident_in_pages(const tti_exec_memory *m, const tti_plan *plan);
double tti_used_in_pages(const tti_exec_memory *m, const tti_plan *plan, bool is_alone);

/* Resident bytes of this process, and the part of them that belongs to files (NULL: not needed). */
double tti_process_bytes(double *of_files);

/* Ceilings and all-reduces of this machine, for the workers of b.  Takes about half a second, of
 * budget_s for all of the calibration.  base_bytes: as in tti_calibration. */
tutti_status tti_calibrate_machine(const tti_blueprint *b, int n_ranks, double budget_s,
                                   double base_bytes, tti_calibration *out);

/* Runs a few steps of the shard program of b (calibrate_job.c), unless its time is known, it would
 * take longer than left_s, or it does not fit on a device. *spent_s: the time it took. */
tutti_status tti_calibrate_micro_group(const tti_blueprint *b, tti_calibration *c, double left_s,
                                       double *spent_s);

/* The same with so many workers at once, each where the job has it: those on the host, if there is
 * a calibration for it, fill that one, by the cores that each has. */
tutti_status tti_calibrate_micro_groups(const tti_blueprint *b, int n_workers, tti_calibration *c,
                                        tti_calibration *host, double left_s, double *spent_s);

/* The micro-batch group of a program: as measured, or the nearest one's scaled by the costs.
 * *is_measured. */
tti_group_cost tti_calibrated_micro_group(const tti_calibration *c, int64_t rows,
                                          const char *recompute, double cost_s, bool *is_measured);

/* A backend that stands for a device which is not here: for graphs and plans, nothing runs. */
const tti_backend *tti_paper_device(void);

/* Whether the plan is for this machine, which is measured: "measured", or NULL. */
bool tti_is_measured(const char *device);

/* Whether it is a known kind of device, whose programs are those of tti_paper_device. */
bool tti_is_known_device(const char *device);

/* The known figures instead, of an "h200" or of a core of a host, "cpu", for each rank.
 * TUTTI_E_INVALID: there are none of that name. */
tutti_status tti_calibration_of(const char *device, int n_ranks, tti_calibration *out);

/* The ceilings of a known device are those of 16 bits: in f32, or tf32 if the job selects it, it
 * performs fewer operations (ops/weight.h). */
void tti_calibration_for(const tti_job_config *config, tti_calibration *c);

#endif /* TTI_PLANNER_CALIBRATE_H */
