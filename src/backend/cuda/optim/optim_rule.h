/* optim_rule.h - an optimizer op for the kernels of update.cu. */
#ifndef TTI_CUDA_OPTIM_RULE_H
#define TTI_CUDA_OPTIM_RULE_H

#include "backend/cuda/optim/update.h"
#include "ir/graph.h"

/* The kind and the attributes of an optimizer node.  TUTTI_E_UNSUPPORTED for other ops. */
tutti_status tti_cuda_rule(const tti_node *node, tti_rule *out);

#endif /* TTI_CUDA_OPTIM_RULE_H */
