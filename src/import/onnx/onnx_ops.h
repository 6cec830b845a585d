/* onnx_ops.h - the ONNX operators, built from the rows of PyTorch's operators. A comment such as "X
 * W B" above an operator's function lists its arguments in order. */
#ifndef TTI_IMPORT_ONNX_OPS_H
#define TTI_IMPORT_ONNX_OPS_H

#include "import/aten/aten.h"

/* Tables of rows, one for each family; a row without a target ends each table. */
extern const tti_operator tti_operators_onnx_functions[], tti_operators_onnx_index[],
    tti_operators_onnx_layers[], tti_operators_onnx_math[], tti_operators_onnx_recurrent[],
    tti_operators_onnx_resize[], tti_operators_onnx_shape[];

#endif /* TTI_IMPORT_ONNX_OPS_H */
