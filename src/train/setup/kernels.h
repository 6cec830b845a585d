/* kernels.h - the kernel level and libraries of the ranks, which must agree in exact mode.
 *
 * Machines of one job may differ.  If instruction sets differ, exact mode uses the highest level
 * that all ranks have (backend/levels.h).  It refuses differences that cannot be removed: other
 * libraries, and devices of other kinds.  Fast mode continues and reports them. */
#ifndef TTI_TRAIN_KERNELS_H
#define TTI_TRAIN_KERNELS_H

#include "train/job/devices.h"
#include "tutti/comm.h"

/* The record that a rank sends to the others. */
typedef struct tti_kernel_record {
    int32_t level;  /* highest level that the rank supports */
    int32_t wanted; /* level of the checkpoint from which the run resumes, made with the same
                       libraries; -1: none */
    char libraries[96], extensions[128], caches[64], host[64];
    /* The device of the rank: its kind, and its driver and libraries ("": not compared). device "":
     * the rank computes on the host.  If no rank does, only `host` of the fields above is used. */
    char device[128], stack[256];
} tti_kernel_record;

/* Decides from the records of all ranks, all [n_ranks]. *level: the level for all ranks; -1:
 * unchanged. notice [n_bytes]: a message for the user, or "".  TUTTI_E_CONFIG: a difference that
 * cannot be removed. */
TUTTI_NODISCARD tutti_status tti_kernels_decide(const tti_kernel_record *all, int n_ranks,
                                                bool exact, int *level, char *notice,
                                                size_t n_bytes);

/* Describes the kernels and libraries of this machine, or the devices of its workers: hosts with
 * equal texts compute the same bits. */
void tti_kernels_text(const tti_devices *devices, int n_workers, char *out, size_t n_bytes);

typedef struct tti_kernel_query {
    tutti_comm *comm;           /* NULL: all workers run on this machine with this build */
    const tti_devices *devices; /* devices of this machine */
    int local_rank;             /* local rank of this rank; used with comm */
    int n_workers;              /* used without comm */
    bool exact;
    const char *run_dir; /* run that is resumed, or NULL */
} tti_kernel_query;

/* Gathers the records, decides, and sets the level.  Collective over comm; call it before any
 * kernel is prepared. notice: as above, equal on every rank. */
TUTTI_NODISCARD tutti_status tti_agree_on_kernels(const tti_kernel_query *query, char *notice,
                                                  size_t n_bytes);

#endif /* TTI_TRAIN_KERNELS_H */
