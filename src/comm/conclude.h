/* conclude.h - one conclusion from a few bytes of every rank, which all ranks get.
 *
 * With many ranks on one host only rank 0 reads what all ranks give, while the others wait; so a
 * rank needs no room for the values of others, and the call costs no more than a barrier. */
#ifndef TTI_COMM_CONCLUDE_H
#define TTI_COMM_CONCLUDE_H

#include "tutti/comm.h"

enum { TTI_CONCLUDE_BYTES = 4096 };

typedef struct tti_conclusion {
    const void *mine; /* [n_bytes], as many on every rank; at most TTI_CONCLUDE_BYTES */
    size_t n_bytes;
    void *result; /* [n_result], the same on every rank afterwards; at most TTI_CONCLUDE_BYTES */
    size_t n_result;
    /* Called for rank 0, 1, ... in order, then finish, which writes result.  By rank 0 alone if
     * tti_comm_concludes_alone, else by every rank. */
    void (*add)(void *user, int rank, const void *theirs);
    void (*finish)(void *user, void *result);
    void *user;
} tti_conclusion;

/* Whether rank 0 alone adds up: the same answer on every rank. */
bool tti_comm_concludes_alone(const tutti_comm *comm);

/* A collective: errors as in tutti/comm.h. */
TUTTI_NODISCARD tutti_status tti_comm_conclude(tutti_comm *comm, const tti_conclusion *conclusion);

#endif /* TTI_COMM_CONCLUDE_H */
