/* conv_node.h - the sizes of a convolution from its node, for every file with rows of conv2d ops.
 */
#ifndef TTI_CUDA_CONV_NODE_H
#define TTI_CUDA_CONV_NODE_H

#include "backend/cuda/conv/conv_direct.h"
#include "ir/graph.h"

typedef enum tti_cuda_conv_kind {
    TTI_CONV_FORWARD, /* conv2d and conv2d_stats */
    TTI_CONV_GRAD_X,
    TTI_CONV_GRAD_W
} tti_cuda_conv_kind;

tti_cuda_conv tti_cuda_conv_read(const tti_node *node, tti_cuda_conv_kind kind);

/* y as planes, or dy. */
tti_cuda_planes tti_cuda_conv_y_planes(const tti_cuda_conv *conv);

#endif /* TTI_CUDA_CONV_NODE_H */
