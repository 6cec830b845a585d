/* scheme.h - the layouts in which the workers of a job can share its work. */
#ifndef TTI_PLANNER_SCHEME_H
#define TTI_PLANNER_SCHEME_H

#include "base/str.h"
#include "train/job/job.h"

/* Sizes multiply to the workers: data * tensor * pipeline. */
typedef struct tti_scheme {
    int data, tensor, pipeline;
    int chunks;            /* of each stage, 1 where it is not divided */
    int zero;              /* 0 .. 3 */
    int64_t shards;        /* V */
    const char *recompute; /* none | light | block; static */
} tti_scheme;

/* "data 4, 8 shards, zero 1, recompute light": only values that differ from the default. */
void tti_scheme_text(const tti_scheme *layout, tti_str *out);

/* The job with this layout written into it and everything resolved, owned by the caller.  Fails
 * with TUTTI_E_CONFIG and the reason where this program does not accept it.  on_paper: its devices
 * are not looked for on this machine. */
tutti_status tti_scheme_job(tutti_job *job, const tti_scheme *layout, bool on_paper,
                            tutti_job **out);

/* Changes the job to one for another machine, with devices or on a host: resolves `auto` values as
 * that machine would.  TUTTI_E_CONFIG: the job uses a property of the machine that is unknown. */
tutti_status tti_scheme_elsewhere(tutti_job *job, bool on_device);

/* Turns a job with a parameter server into that of a worker that updates by itself. */
void tti_scheme_unserved(tutti_job *job);

typedef struct tti_schemes {
    tti_scheme *of; /* [n], owned */
    int n, n_workers;
    tti_str refused; /* a line for each that is not possible, with the reason */
} tti_schemes;

/* Every layout of n_workers that this program accepts for the job, on the host or on devices.
 * Values of shards, recomputation and pipeline chunks that the job sets are kept. on_paper as
 * above.  Free with tti_schemes_fini, also after a failure. */
tutti_status tti_schemes_find(tutti_job *job, int n_workers, bool on_device, bool on_paper,
                              tti_schemes *out);

/* Removes layout i; the reason is this thread's last error.  Later layouts move up.
 * TUTTI_E_CONFIG: none is left; the text has every reason. */
tutti_status tti_schemes_refuse(tti_schemes *layouts, int i);

/* Layout i is another one's like: it goes without a word. */
void tti_schemes_drop(tti_schemes *layouts, int i);
void tti_schemes_fini(tti_schemes *layouts);

#endif /* TTI_PLANNER_SCHEME_H */
