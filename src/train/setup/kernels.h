/* kernels.h - what ranks compute with, which is the same on all in exact mode.
 *
 * Machines of one job need not be alike.  Where their instruction sets differ exact mode takes the
 * most that all have (backend/levels.h), and refuses what nothing makes equal: other libraries, and
 * devices of other kinds; fast mode goes on and says so. */
#ifndef TTI_TRAIN_KERNELS_H
#define TTI_TRAIN_KERNELS_H

#include "train/job/devices.h"
#include "tutti/comm.h"

/* What a rank tells the others. */
typedef struct tti_kernel_record {
    int32_t level;  /* the best that it has */
    int32_t wanted; /* of the checkpoint that the run goes on from, made with the same libraries;
                       -1: none */
    char libraries[96], extensions[128], caches[64], host[64];
    /* Of the device that it computes on: its kind, its driver and libraries ("": not asked).
     * device "": it is on the host; where nobody is, nothing above but host is looked at. */
    char device[128], stack[256];
} tti_kernel_record;

/* all: [n_ranks].  *level: what all are to use; -1: what they have.  told: what a person should
 * know, "" if nothing; n_bytes.  TUTTI_E_CONFIG: what differs cannot be made equal. */
TUTTI_NODISCARD tutti_status tti_kernels_decide(const tti_kernel_record *all, int n_ranks,
                                                bool exact, int *level, char *told, size_t n_bytes);

typedef struct tti_kernel_query {
    tutti_comm *comm;           /* NULL: all workers are of this machine and of this build */
    const tti_devices *devices; /* of this machine */
    int local_rank;             /* of this rank; with comm */
    int n_workers;              /* without comm */
    bool exact;
    const char *run_dir; /* of the run that is continued, or NULL */
} tti_kernel_query;

/* Collective over comm; before any kernel is prepared.  told: as above, the same on every rank. */
TUTTI_NODISCARD tutti_status tti_agree_on_kernels(const tti_kernel_query *query, char *told,
                                                  size_t n_bytes);

#endif /* TTI_TRAIN_KERNELS_H */
