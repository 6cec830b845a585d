/* scheme.h - the layouts that divide a job between its workers. */
#ifndef TTI_PLANNER_SCHEME_H
#define TTI_PLANNER_SCHEME_H

#include "base/str.h"
#include "train/job/job.h"

/* A layout. The number of workers is data * tensor * pipeline. */
typedef struct tti_scheme {
    int data, tensor, pipeline;
    int chunks;            /* chunks of each stage; 1: stages are not divided */
    int zero;              /* ZeRO stage, 0 .. 3 */
    int64_t shards;        /* of the batch */
    const char *recompute; /* none | light | block; static */
} tti_scheme;

/* "data 4, 8 shards, zero 1, recompute light": only values that differ from the default. */
void tti_scheme_text(const tti_scheme *layout, tti_str *out);

/* Creates a copy of job with this layout, and resolves it; the caller owns *out. TUTTI_E_CONFIG:
 * the job's rules refuse the layout; the message has the reason. is_offline: does not look for the
 * job's devices on this machine. */
tutti_status tti_scheme_job(tutti_job *job, const tti_scheme *layout, bool is_offline,
                            tutti_job **out);

/* Changes the job to one for another machine, with devices or on a host: resolves `auto` values as
 * that machine would.  TUTTI_E_CONFIG: the job uses a property of the machine that is unknown. */
tutti_status tti_scheme_move_machine(tutti_job *job, bool on_device);

/* Removes the parameter server from a job, so that each worker updates its own parameters. */
void tti_scheme_remove_server(tutti_job *job);

typedef struct tti_schemes {
    tti_scheme *of; /* [n], owned */
    int n, n_workers;
    tti_str refused; /* a line with the reason for each impossible layout */
} tti_schemes;

/* Lists every layout of n_workers workers that the job's rules accept, on the host or on devices.
 * Values of shards, recomputation and pipeline chunks that the job sets are kept. is_offline: see
 * tti_scheme_job. The caller frees *out with tti_schemes_fini, also after a failure. */
tutti_status tti_schemes_find(tutti_job *job, int n_workers, bool on_device, bool is_offline,
                              tti_schemes *out);

/* Removes layout i; the reason is this thread's last error.  Later layouts move up.
 * TUTTI_E_CONFIG: none is left; the text has every reason. */
tutti_status tti_schemes_refuse(tti_schemes *layouts, int i);

/* Removes layout i, which equals another one, without recording a reason. */
void tti_schemes_drop(tti_schemes *layouts, int i);
void tti_schemes_fini(tti_schemes *layouts);

#endif /* TTI_PLANNER_SCHEME_H */
