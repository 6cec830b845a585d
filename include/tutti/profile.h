/* profile.h - profiles a training step and describes this machine.
 *
 * Threads: a job is used by one thread at a time. */
#ifndef TUTTI_PROFILE_H
#define TUTTI_PROFILE_H

#include "tutti/job.h"

/* Zero is the default of every field. */
typedef struct tutti_profile_desc {
    int n_steps;              /* timed steps, 0: 3; the fastest is reported                   */
    int n_warm;               /* warm-up steps, 0: 4                                          */
    const char *trace_path;   /* Chrome/Perfetto trace to write; NULL: none                   */
    int max_rows;             /* rows of the table, 0: 25 */
    int rank;                 /* rank whose table is printed */
    const char *table_path;   /* file to write the table to as well; NULL: none               */
    char *const *worker_argv; /* command of a worker, NULL-terminated, for parallel.place=processes;
                                 "--table FILE" is added, which the worker passes as table_path */
} tutti_profile_desc;

TUTTI_EXTERN_C_BEGIN

/* Trains a few steps with the job's parallel layout (one replica unless the job sets the number of
 * workers) and times every part of them without adding waits.  *text is a table for one rank: time,
 * TFLOP/s and GB/s of each kind of operation, its fraction of the step, and the time that a kernel
 * at the measured ceilings would save; below it the time of an untimed step, and how much of the
 * communication overlaps with compute.  Free *text with free(); it is NULL in worker processes of
 * ranks other than 0.  Leaves no run folder. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_profile(tutti_job *job, const tutti_profile_desc *desc,
                                                     char **text);

/* Measures a large matrix product in the job's precision (operations per second) and a large copy
 * (bytes read and written per second) on the job's device, or on one core.  Takes at most a second.
 */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_measure_ceilings(tutti_job *job, double *flops,
                                                              double *bytes);

/* Describes this machine: cores, kernels, modules and why some are not loaded, devices; with
 * measure also the rates of a matrix product and a copy on each.  Free *text with free(). */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_doctor(bool measure, char **text);

TUTTI_EXTERN_C_END

#endif /* TUTTI_PROFILE_H */
