/* p2p.h - launchers of p2p.cu: values that one device writes into the memory of another.
 *
 * A slot is between two ranks, and is empty or full: both count how often it was filled and
 * emptied.  Kernels of one rank on a slot run in order; different slots are independent. */
#ifndef TTI_CUDA_P2P_H
#define TTI_CUDA_P2P_H

#include "backend/cuda/comm/peers.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Loads the kernels, as tti_launch_peers_load. */
cudaError_t tti_launch_p2p_load(void);

/* Waits until the slot is empty, copies n_bytes from src to dst, which is memory of rank to, and
 * marks the slot full. overlapped: on few multiprocessors. */
cudaError_t tti_launch_send(const tti_peers_view *view, const tti_device_message *message,
                            void *dst, bool overlapped, cudaStream_t stream);

/* Waits until the slot is full; and says to rank from that it is empty. */
cudaError_t tti_launch_recv(const tti_peers_view *view, int slot, cudaStream_t stream);
cudaError_t tti_launch_release(const tti_peers_view *view, int slot, int from, cudaStream_t stream);

/* peers.c: a group with slots, and the first partial sum of a rank as it is seen here. */
const tti_peers_view *tti_cuda_p2p_view(const void *group, int slot, int rank, void **partial);

/* See tti_device_ops. */
tutti_status tti_cuda_peers_send(void *group, const tti_device_message *message, bool overlapped);
tutti_status tti_cuda_peers_recv(void *group, int slot);
tutti_status tti_cuda_peers_release(void *group, int slot, int from);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_P2P_H */
