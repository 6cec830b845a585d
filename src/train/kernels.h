/* kernels.h - the instruction sets that ranks compute with: in exact mode the same on all.
 *
 * Machines of one job need not be alike.  Where they differ exact mode takes the most that all have
 * (backend/levels.h), or refuses what no level makes equal; fast mode goes on and says so. */
#ifndef TTI_TRAIN_KERNELS_H
#define TTI_TRAIN_KERNELS_H

#include "tutti/comm.h"

/* What a rank tells the others. */
typedef struct tti_kernel_record {
    int32_t level;  /* the best that it has */
    int32_t wanted; /* of the checkpoint that the run goes on from, made with the same libraries;
                       -1: none */
    char libraries[96], extensions[128], caches[64], host[64];
} tti_kernel_record;

void tti_kernels_here(tti_kernel_record *out);

/* all: [n_ranks].  *level: what all are to use; -1: what they have.  told: what a person should
 * know, "" if nothing; n_bytes.  TUTTI_E_CONFIG: what differs cannot be made equal. */
TUTTI_NODISCARD tutti_status tti_kernels_decide(const tti_kernel_record *all, int n_ranks,
                                                bool exact, int *level, char *told, size_t n_bytes);

/* Collective over comm, NULL where this rank is alone; before any kernel is prepared.  run_dir: of
 * the run that is continued, or NULL.  told: as above, the same on every rank. */
TUTTI_NODISCARD tutti_status tti_agree_on_kernels(tutti_comm *comm, bool exact, const char *run_dir,
                                                  char *told, size_t n_bytes);

#endif /* TTI_TRAIN_KERNELS_H */
