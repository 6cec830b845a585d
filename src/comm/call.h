/* call.h - the steps around every communicator call: check, agree, and break on failure. */
#ifndef TTI_COMM_CALL_H
#define TTI_COMM_CALL_H

#include "comm/algorithm.h"

/* Fails if comm is NULL or broken; the message of a broken comm is the first cause. */
tutti_status tti_check_comm(const char *who, const tutti_comm *comm);

/* Fails unless dtype is valid and the size of n_parts * n_elems elements does not overflow. */
tutti_status tti_check_elems(const char *who, size_t n_elems, int n_parts, tutti_dtype dtype);

/* Fails if a buffer is NULL, or if the ranges overlap without starting at the same address. */
tutti_status tti_check_buffers(const char *who, const void *src, size_t src_bytes, const void *dst,
                               size_t dst_bytes);

/* Records the call in the progress page and agrees on it with all ranks.  TUTTI_E_MISMATCH: the
 * message names the first rank whose call differs from rank 0's, with both calls. *direct: see
 * tti_agreement; direct may be NULL. */
tutti_status tti_call_begin(tutti_comm *comm, const tti_offer *offer, bool *direct);

/* Records the end of the call in the progress page.  A failure breaks comm and the group
 * permanently.  Returns status. */
tutti_status tti_call_end(tutti_comm *comm, tutti_status status);

/* Fails with the text of a mismatch between the calls of two ranks. */
tutti_status tti_call_mismatch(int rank, const tti_call *call, int other, const tti_call *theirs);

#endif /* TTI_COMM_CALL_H */
