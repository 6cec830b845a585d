/* mail.h - launchers of mail.cu: values that one device writes into the memory of another.
 *
 * A slot is between two ranks, and is empty or full: both count how often it was filled and
 * emptied.  Kernels of one rank on a slot run in order; different slots are independent. */
#ifndef TTI_CUDA_MAIL_H
#define TTI_CUDA_MAIL_H

#include "backend/cuda/comm/peers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Loads the kernels, as tti_launch_peers_load. */
cudaError_t tti_launch_mail_load(void);

/* Waits until the slot is empty, copies n_bytes from src to dst, which is memory of rank to, and
 * marks the slot full. beside: on few multiprocessors. */
cudaError_t tti_launch_put(const tti_peers_view *view, const tti_device_letter *letter, void *dst,
                           bool beside, cudaStream_t stream);

/* Waits until the slot is full; and says to rank from that it is empty. */
cudaError_t tti_launch_take(const tti_peers_view *view, int slot, cudaStream_t stream);
cudaError_t tti_launch_leave(const tti_peers_view *view, int slot, int from, cudaStream_t stream);

/* peers.c: a group with slots, and the first piece of a rank as it is seen here. */
const tti_peers_view *tti_cuda_mail(const void *group, int slot, int rank, void **piece);

/* See tti_device_ops. */
tutti_status tti_cuda_peers_put(void *group, const tti_device_letter *letter, bool beside);
tutti_status tti_cuda_peers_take(void *group, int slot);
tutti_status tti_cuda_peers_leave(void *group, int slot, int from);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_MAIL_H */
