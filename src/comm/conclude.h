/* conclude.h - reduces a few bytes of every rank to one result, which all ranks get.
 *
 * With many ranks on one host only rank 0 reads the bytes of all ranks, while the others wait.  So
 * the other ranks need no memory for these bytes, and the call costs no more than a barrier. */
#ifndef TTI_COMM_CONCLUDE_H
#define TTI_COMM_CONCLUDE_H

#include "tutti/comm.h"

enum { TTI_CONCLUDE_BYTES = 4096 };

typedef struct tti_conclusion {
    const void *mine; /* [n_bytes]; n_bytes is equal on every rank, at most TTI_CONCLUDE_BYTES */
    size_t n_bytes;
    void *result; /* [n_result], equal on every rank afterwards; at most TTI_CONCLUDE_BYTES */
    size_t n_result;
    /* Called for rank 0, 1, ... in order, followed by finish, which writes result.  Only rank 0
     * calls them if tti_comm_concludes_alone, otherwise every rank. */
    void (*add)(void *user, int rank, const void *theirs);
    void (*finish)(void *user, void *result);
    void *user;
} tti_conclusion;

/* True if only rank 0 computes the result; equal on every rank. */
bool tti_comm_concludes_alone(const tutti_comm *comm);

/* A collective: errors as in tutti/comm.h. */
TUTTI_NODISCARD tutti_status tti_comm_conclude(tutti_comm *comm, const tti_conclusion *conclusion);

#endif /* TTI_COMM_CONCLUDE_H */
