/* affinity.h - which cores this process may use, and a fair part of them for each worker.
 *
 * Rule: n = the cores allowed to this process, or fewer where a cgroup grants less time than that.
 * Worker r of W gets n/W cores of its own (rounded down), pinned, for n/W threads.  With W > n, or
 * under a cgroup time limit, nothing is pinned (other containers would pin to the same cores), and
 * a worker has max(1, n/W) threads on all cores. */
#ifndef TTI_BASE_AFFINITY_H
#define TTI_BASE_AFFINITY_H

#include <stdbool.h>

#include "tutti/status.h"

enum { TTI_MAX_CORES = 1024 };

typedef struct tti_cores {
    int n;                 /* 1 .. TTI_MAX_CORES         */
    int id[TTI_MAX_CORES]; /* the kernel's numbers, rising */
} tti_cores;

typedef struct tti_core_share {
    int n_threads; /* how many threads the worker may run at a time, >= 1 */
    bool pinned;   /* cores are the worker's alone: pin to them           */
    tti_cores cores;
} tti_core_share;

/* The cores of the calling thread's affinity mask; core 0 alone if that cannot be read. */
void tti_cores_allowed(tti_cores *out);

/* Whole cores' worth of time granted by the cgroups of this process, rounded up, at least 1;
 * 0: no limit.  cgroup_file is /proc/self/cgroup and sys_root /sys/fs/cgroup, but for tests. */
int tti_cgroup_cores(const char *cgroup_file, const char *sys_root);

/* min(allowed, cgroup limit): what `auto` workers means.  >= 1. */
int tti_cores_usable(void);

/* The part of worker r of n_workers, 0 <= r < n_workers, by the rule above.  n_usable limits the
 * threads; below all->n it also switches pinning off. */
void tti_cores_divide(const tti_cores *all, int n_usable, int r, int n_workers,
                      tti_core_share *out);

/* The weight of a worker, > 0. */
typedef int (*tti_core_weight_fn)(const void *user, int worker);

/* The same with unequal parts: one core for each worker, and the rest in proportion to their
 * weights. */
void tti_cores_divide_by(const tti_cores *all, int n_usable, tti_core_weight_fn weight,
                         const void *user, int r, int n_workers, tti_core_share *out);
void tti_cores_share_by(tti_core_weight_fn weight, const void *user, int r, int n_workers,
                        tti_core_share *out);

/* tti_cores_divide of this process's own cores. */
void tti_cores_share(int r, int n_workers, tti_core_share *out);

/* Binds the calling thread, and threads it starts later, to cores. */
TUTTI_NODISCARD tutti_status tti_cores_pin(const tti_cores *cores);

/* Threads inherit the cores of the thread that starts them.  From widen to return a caller that is
 * bound to fewer cores has all of these; n 0, or cores that it may not have: changes nothing. */
void tti_cores_widen(const tti_cores *cores, tti_cores *before);
void tti_cores_return(const tti_cores *before);

/* Binds the calling thread to one core if it may be used; -1, or a core that may not, changes
 * nothing: pinning is for speed alone. */
void tti_core_pin(int core);

#endif /* TTI_BASE_AFFINITY_H */
