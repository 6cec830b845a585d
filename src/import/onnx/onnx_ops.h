/* onnx_ops.h - the operators of ONNX, as calls of those of PyTorch. */
#ifndef TTI_IMPORT_ONNX_OPS_H
#define TTI_IMPORT_ONNX_OPS_H

#include "import/aten/aten.h"

/* Rows by family, each ended by one without a target. */
extern const tti_operator tti_operators_onnx_functions[], tti_operators_onnx_index[],
    tti_operators_onnx_layers[], tti_operators_onnx_math[], tti_operators_onnx_recurrent[],
    tti_operators_onnx_resize[], tti_operators_onnx_shape[];

#endif /* TTI_IMPORT_ONNX_OPS_H */
