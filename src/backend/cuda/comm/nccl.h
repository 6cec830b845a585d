/* nccl.h - the few calls of NCCL that are used, loaded when they are needed.
 *
 * A communicator belongs to the thread whose device was open when it was made.  Calls put work into
 * a stream; all ranks issue the same ones in the same order. */
#ifndef TTI_CUDA_NCCL_H
#define TTI_CUDA_NCCL_H

#include <cuda_runtime_api.h>

#include "base/str.h"
#include "tutti/types.h"

typedef struct tti_nccl tti_nccl;

/* The identity that rank 0 makes and every other rank receives. */
typedef struct tti_nccl_id {
    char bytes[128];
} tti_nccl_id;

/* One send (in NULL) or receive (out NULL) of n_bytes. */
typedef struct tti_nccl_message {
    int peer;
    const void *out;
    void *in;
    size_t n_bytes;
} tti_nccl_message;

/* Whether the library is there; false: why says what to do. */
bool tti_nccl_load(tti_str *why);

tutti_status tti_nccl_make_id(tti_nccl_id *id);

typedef struct tti_nccl_desc {
    const tti_nccl_id *id; /* of all ranks */
    int rank, n_ranks, timeout_ms;
    tutti_status (*check)(void *user); /* fails if a rank is lost; called while this one waits */
    void *user;
} tti_nccl_desc;

/* Connects the other ranks and runs every call once, on the device of the calling thread.
 * TUTTI_E_TIMEOUT after timeout_ms, or after a minute where that is longer; or the failure of
 * check.  On success *out is owned by the caller. */
tutti_status tti_nccl_create(const tti_nccl_desc *desc, tti_nccl **out);
void tti_nccl_destroy(tti_nccl *nccl); /* takes NULL */

/* Ends pending work soon; afterwards only destroy is allowed, once no captured graph has its calls.
 */
void tti_nccl_abort(tti_nccl *nccl);

/* A failure that came after a call had returned. */
tutti_status tti_nccl_check(tti_nccl *nccl);

/* Sums f32, f16 or bf16 in place, in an order of the library's own. */
tutti_status tti_nccl_sum(tti_nccl *nccl, tutti_dtype dtype, void *data, size_t n_elems,
                          cudaStream_t stream);

/* dst [n_ranks][n_bytes]; src may be its own place in it. */
tutti_status tti_nccl_gather(tti_nccl *nccl, const void *src, void *dst, size_t n_bytes,
                             cudaStream_t stream);

/* All messages together; those between two ranks match in order. */
tutti_status tti_nccl_send_recv(tti_nccl *nccl, const tti_nccl_message *messages, int n_messages,
                                cudaStream_t stream);

/* "NCCL 2.28.9", or "no NCCL (why)". */
void tti_nccl_describe(tti_str *str);

#endif /* TTI_CUDA_NCCL_H */
