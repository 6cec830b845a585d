/* profile.h - where the time of a training step goes, and what this machine can do.
 *
 * Threads: a job is used by one thread at a time. */
#ifndef TUTTI_PROFILE_H
#define TUTTI_PROFILE_H

#include "tutti/job.h"

/* Zero is the default of every field. */
typedef struct tutti_profile_desc {
    int n_steps;              /* timed, 0: 3; the fastest is told                             */
    int n_warm;               /* before them, 0: 4                                            */
    const char *trace_path;   /* of a Chrome/Perfetto trace to write; NULL: none              */
    int max_rows;             /* of the table, 0: 25                                          */
    int rank;                 /* whose table it is                                            */
    const char *table_path;   /* where the table is left as well; NULL: nowhere               */
    char *const *worker_argv; /* command of a worker, NULL-terminated, for
                                 parallel.place=processes; "--table FILE" is added, and is
                                 table_path of the worker                                   */
} tutti_profile_desc;

TUTTI_EXTERN_C_BEGIN

/* Trains a few steps of the job in whichever way it is parallel, with one copy of the model unless
 * it says how many workers there are, times every part of some of them without waiting in between,
 * and prints a table of one rank: time, TFLOP/s and GB/s of each kind of operation beside what this
 * device was measured to reach, its share of the step, and what a perfect kernel would save.  Below
 * it the time of a step as it runs in training, and of what went between workers how much lay
 * behind their computing.  *text is freed with free(); NULL in a worker process of another rank
 * than 0.  Writes no run. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_profile(tutti_job *job, const tutti_profile_desc *desc,
                                                     char **text);

/* What a large matrix product in the job's precision, in operations per second, and a large copy,
 * in bytes read and written per second, were measured to reach on the device the job computes on,
 * or on one core.  Takes a second or less. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_measure_ceilings(tutti_job *job, double *flops,
                                                              double *bytes);

/* What this machine has: cores, kernels, modules and why they are not loaded, devices, and with
 * measure what a matrix product and a copy reach on each.  *text is freed with free(). */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_doctor(bool measure, char **text);

TUTTI_EXTERN_C_END

#endif /* TUTTI_PROFILE_H */
