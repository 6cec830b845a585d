/* peers_update.h - launcher of peers_update.cu: the sum between devices and the update in one
 * kernel. */
#ifndef TTI_CUDA_PEERS_UPDATE_H
#define TTI_CUDA_PEERS_UPDATE_H

#include "backend/cuda/comm/peers.h"
#include "backend/cuda/optim/update.h"

#ifdef __cplusplus
extern "C" {
#endif

/* update.c: the view of an update that uses no norm and does not change gradients before; else
 * NULL. */
const tti_update_view *tti_cuda_update_plain(const void *update);

/* This rank's partial sums, and memory for their copies in bf16, which are then the view's terms,
 * two values in each float.  n 0: the partial sums are. */
typedef struct tti_peers_rounding {
    const float *from[TTI_PEERS_PARTIALS];
    uint16_t *to[TTI_PEERS_PARTIALS];
    int n;
} tti_peers_rounding;

/* Whether there is a kernel for the rule; loads it, as tti_launch_peers_load does. */
bool tti_peers_can_update(const tti_rule *rule);
cudaError_t tti_launch_peers_update_load(const tti_rule *rule, bool rounds);

/* As update of tti_device_fusion_ops.  The view's gradients are those of its terms. */
cudaError_t tti_launch_peers_update(const tti_peers_view *peers, const tti_update_view *update,
                                    const tti_device_step_sums *step_sums,
                                    const tti_peers_rounding *rounding, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif /* TTI_CUDA_PEERS_UPDATE_H */
