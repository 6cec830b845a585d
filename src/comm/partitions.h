/* partitions.h - vectors that are divided over the ranks in partitions of any length.
 *
 * A row of bounds has n_ranks + 1 ascending element numbers: rank r holds bounds[r] ..
 * bounds[r+1]-1. */
#ifndef TTI_COMM_PARTITIONS_H
#define TTI_COMM_PARTITIONS_H

#include "tutti/comm.h"

typedef struct tti_partitions_desc {
    const void *src;      /* holds the partitions of this rank at their offsets; fastest if from
                             tutti_comm_alloc */
    void *dst;            /* receives the other ranks' partitions; may be src, else no overlap */
    const size_t *bounds; /* [n_groups][n_ranks + 1]                               */
    size_t n_groups;
    /* [n_groups][n_ranks]: the offset in elements of each rank's partition in its src, so that src
     * needs no room for the partitions of other ranks; NULL: the offset is its bound */
    const size_t *from;
    tutti_dtype dtype;
} tti_partitions_desc;

/* Distributes every rank's partitions to every rank; elements outside of all partitions, and own
 * partitions of dst, are not touched.  A collective: errors as in tutti/comm.h. */
TUTTI_NODISCARD tutti_status tti_comm_gather_partitions(tutti_comm *comm,
                                                        const tti_partitions_desc *desc);

/* Gathers one number of each rank into *all [n_ranks], which the caller frees.  A collective:
 * errors as in tutti/comm.h; *all is NULL on failure. */
TUTTI_NODISCARD tutti_status tti_comm_gather_words(tutti_comm *comm, uint64_t mine, uint64_t **all);

/* Returns TUTTI_E_INVALID unless every row ascends and stays within n_elems. */
TUTTI_NODISCARD tutti_status tti_check_bounds(const char *who, const tutti_comm *comm,
                                              const size_t *bounds, size_t n_groups,
                                              size_t n_elems);

/* A digest of the n numbers of bounds, for ranks to compare; never 0. */
int32_t tti_bounds_digest(const size_t *bounds, size_t n);

#endif /* TTI_COMM_PARTITIONS_H */
