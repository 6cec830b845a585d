/* wgmma_plan.h - which matrix products may run on wgmma.cu's kernels, and how long they take. */
#ifndef TTI_CUDA_WGMMA_PLAN_H
#define TTI_CUDA_WGMMA_PLAN_H

#include "backend/cuda/gemm/wgmma.h"
#include "ir/graph.h"

/* True if the device that is open, or would be opened first, is one for wgmma kernels: the same
 * answer before and after. */
bool tti_cuda_wgmma_here(void);

/* Describes a node of linear, linear_gelu, matmul_gelu_grad or matmul_gelu_grad_sums, without its
 * pointers.  False where it is none of these, or not for those kernels: its dtypes, layouts and
 * attributes, too few tiles, a device of another kind. */
bool tti_cuda_wgmma_describe(const tti_node *node, tti_cuda_wgmma_desc *out);

/* The same of cross_entropy_head, of at least a tile for each multiprocessor. */
bool tti_cuda_wgmma_describe_head(const tti_node *node, tti_cuda_wgmma_desc *out);

/* The same for a product whose rows belong, in parts of part_rows, to two devices, and which runs
 * as TTI_WGMMA_PUSH or TTI_WGMMA_PUSH_BACK; without its rank. */
bool tti_cuda_wgmma_describe_push(const tti_node *node, int64_t part_rows,
                                  tti_cuda_wgmma_desc *out);

/* The same of a linear layer, perhaps with gelu, whose rows of the other rank come while it has
 * begun with the own ones; without rows_arrived and what belongs to it. */
bool tti_cuda_wgmma_describe_pull(const tti_node *node, int64_t part_rows,
                                  tti_cuda_wgmma_desc *out);

/* Microseconds of one run on the open device, measured once for each description; 0: it could not
 * be measured. */
double tti_cuda_wgmma_us(const tti_cuda_wgmma_desc *desc);

/* joins_exact_gelu of the backend: true if this product and an exact gelu after it, or its
 * gradient, are one kernel here. */
bool tti_cuda_wgmma_joins(const tti_node *product);

/* joins_head of the backend: true if this head is large enough for the kernels. */
bool tti_cuda_wgmma_joins_head(const tti_node *logits);

#endif /* TTI_CUDA_WGMMA_PLAN_H */
