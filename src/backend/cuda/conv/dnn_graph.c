/* dnn_graph.c - graphs as data, and their cuDNN descriptors.
 *
 * cuDNN recognizes attention by its pattern, so exactly the given graph is built: order of
 * operations, types, strides.  Tensor i has the unique id i + 1. */
#include "backend/cuda/conv/dnn.h"

int tti_dnn_tensor_add(tti_dnn_graph *graph, int dtype, tti_dnn_kind kind, const int64_t dim[4],
                       const int64_t stride[4]) {
    TTI_ASSERT(graph->n_tensors < TTI_DNN_MAX_TENSORS);
    tti_dnn_tensor *t = &graph->tensors[graph->n_tensors];
    *t = (tti_dnn_tensor){.dtype = dtype, .kind = kind};
    for (int d = 0; d < 4; d++) t->dim[d] = dim[d], t->stride[d] = stride[d];
    return graph->n_tensors++;
}

int tti_dnn_scalar_add(tti_dnn_graph *graph, float value) {
    static const int64_t ones[4] = {1, 1, 1, 1};
    int t = tti_dnn_tensor_add(graph, TUTTI_F32, TTI_DNN_SCALAR, ones, ones);
    graph->tensors[t].value = value;
    return t;
}

int tti_dnn_op_add(tti_dnn_graph *graph, tti_dnn_code code, int a, int b, int c, int out) {
    TTI_ASSERT(graph->n_ops < TTI_DNN_MAX_OPS);
    graph->ops[graph->n_ops++] = (tti_dnn_op){code, {a, b, c, -1, -1}, out};
    return out;
}

void tti_dnn_graph_print(const tti_dnn_graph *graph, tti_str *str) {
    for (int i = 0; i < graph->n_tensors; i++) {
        const tti_dnn_tensor *t = &graph->tensors[i];
        tti_str_printf(str, "t%d %d", t->dtype, (int)t->kind);
        for (int d = 0; d < 4; d++)
            tti_str_printf(str, " %lld/%lld", (long long)t->dim[d], (long long)t->stride[d]);
        tti_str_printf(str, " %a\n", (double)t->value);
    }
    for (int i = 0; i < graph->n_ops; i++) {
        const tti_dnn_op *op = &graph->ops[i];
        tti_str_printf(str, "o%d", (int)op->code);
        for (size_t k = 0; k < TTI_COUNT(op->in); k++) tti_str_printf(str, " %d", op->in[k]);
        tti_str_printf(str, " %d\n", op->out);
    }
    for (int d = 0; d < 2; d++)
        tti_str_printf(str, "w%lld %lld %lld\n", (long long)graph->stride[d],
                       (long long)graph->pad[d], (long long)graph->dilation[d]);
}

#if TUTTI_HAVE_CUDNN
#include "backend/cuda/conv/dnn_lib.h"

tutti_status tti_dnn_pool_new(tti_dnn_pool *pool, cudnnBackendDescriptorType_t type,
                              tti_dnn_desc *desc) {
    TTI_ASSERT(pool->n < (int)TTI_COUNT(pool->descs));
    TTI_DNN(pool->lib, cudnnBackendCreateDescriptor, type, desc);
    pool->descs[pool->n++] = *desc;
    return TUTTI_OK;
}

void tti_dnn_pool_empty(tti_dnn_pool *pool) {
    while (pool->n > 0) pool->lib->cudnnBackendDestroyDescriptor(pool->descs[--pool->n]);
}

/* A graph on its way to descriptors. */
typedef struct builder {
    tti_dnn_pool *pool;
    const tti_dnn_graph *graph;
    tti_dnn_desc tensors[TTI_DNN_MAX_TENSORS];
    tutti_status st; /* sticky */
} builder;

static tti_dnn_desc make(builder *b, cudnnBackendDescriptorType_t type) {
    tti_dnn_desc desc = NULL;
    if (b->st == TUTTI_OK) b->st = tti_dnn_pool_new(b->pool, type, &desc);
    return desc;
}

static void set(builder *b, tti_dnn_desc desc, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t n, const void *value) {
    if (b->st == TUTTI_OK)
        b->st = tti_dnn_check(b->pool->lib,
                              b->pool->lib->cudnnBackendSetAttribute(desc, name, type, n, value),
                              "cudnnBackendSetAttribute");
}

static void set_dtype(builder *b, tti_dnn_desc desc, cudnnBackendAttributeName_t name,
                      cudnnDataType_t dtype) {
    set(b, desc, name, CUDNN_TYPE_DATA_TYPE, 1, &dtype);
}

static void set_ints(builder *b, tti_dnn_desc desc, cudnnBackendAttributeName_t name, int n,
                     const int64_t *v) {
    set(b, desc, name, CUDNN_TYPE_INT64, n, v);
}

static void set_desc(builder *b, tti_dnn_desc desc, cudnnBackendAttributeName_t name,
                     tti_dnn_desc value) {
    set(b, desc, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

/* A tensor as an operand; nothing where t is -1. */
static void set_tensor(builder *b, tti_dnn_desc desc, cudnnBackendAttributeName_t name, int t) {
    if (t >= 0) set_desc(b, desc, name, b->tensors[t]);
}

static tti_dnn_desc finish(builder *b, tti_dnn_desc desc) {
    if (b->st == TUTTI_OK)
        b->st = tti_dnn_check(b->pool->lib, b->pool->lib->cudnnBackendFinalize(desc),
                              "cudnnBackendFinalize");
    return desc;
}

static cudnnDataType_t dtype_of(int dtype) {
    switch (dtype) {
        case TUTTI_F64:
            return CUDNN_DATA_DOUBLE;
        case TUTTI_F16:
            return CUDNN_DATA_HALF;
        case TUTTI_BF16:
            return CUDNN_DATA_BFLOAT16;
        case TUTTI_I32:
            return CUDNN_DATA_INT32;
        case TTI_DNN_BOOL:
            return CUDNN_DATA_BOOLEAN;
        default:
            return CUDNN_DATA_FLOAT;
    }
}

static tti_dnn_desc make_tensor(builder *b, int index) {
    const tti_dnn_tensor *t = &b->graph->tensors[index];
    tti_dnn_desc desc = make(b, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    int64_t id = index + 1, alignment = 16;
    bool yes = true;
    set_dtype(b, desc, CUDNN_ATTR_TENSOR_DATA_TYPE, dtype_of(t->dtype));
    set_ints(b, desc, CUDNN_ATTR_TENSOR_DIMENSIONS, 4, t->dim);
    set_ints(b, desc, CUDNN_ATTR_TENSOR_STRIDES, 4, t->stride);
    set_ints(b, desc, CUDNN_ATTR_TENSOR_UNIQUE_ID, 1, &id);
    set_ints(b, desc, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1, &alignment);
    if (t->kind == TTI_DNN_VIRTUAL)
        set(b, desc, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (t->kind == TTI_DNN_SCALAR)
        set(b, desc, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    return finish(b, desc);
}

static cudnnPointwiseMode_t pointwise_mode(tti_dnn_code code) {
    switch (code) {
        case TTI_DNN_ADD:
            return CUDNN_POINTWISE_ADD;
        case TTI_DNN_SUB:
            return CUDNN_POINTWISE_SUB;
        case TTI_DNN_MUL:
            return CUDNN_POINTWISE_MUL;
        case TTI_DNN_DIV:
            return CUDNN_POINTWISE_DIV;
        case TTI_DNN_EXP:
            return CUDNN_POINTWISE_EXP;
        case TTI_DNN_LOG:
            return CUDNN_POINTWISE_LOG;
        case TTI_DNN_ROW:
        case TTI_DNN_COLUMN:
            return CUDNN_POINTWISE_GEN_INDEX;
        case TTI_DNN_GE:
            return CUDNN_POINTWISE_CMP_GE;
        case TTI_DNN_LT:
            return CUDNN_POINTWISE_CMP_LT;
        case TTI_DNN_AND:
            return CUDNN_POINTWISE_LOGICAL_AND;
        case TTI_DNN_SELECT:
            return CUDNN_POINTWISE_BINARY_SELECT;
        default:
            return CUDNN_POINTWISE_IDENTITY;
    }
}

static tti_dnn_desc make_pointwise(builder *b, const tti_dnn_op *op) {
    tti_dnn_desc how = make(b, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    cudnnPointwiseMode_t mode = pointwise_mode(op->code);
    bool logical = op->code == TTI_DNN_GE || op->code == TTI_DNN_LT || op->code == TTI_DNN_AND;
    int64_t axis = op->code == TTI_DNN_ROW ? 2 : 3;
    set(b, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set_dtype(b, how, CUDNN_ATTR_POINTWISE_MATH_PREC,
              logical ? CUDNN_DATA_BOOLEAN : CUDNN_DATA_FLOAT);
    if (mode == CUDNN_POINTWISE_GEN_INDEX) set_ints(b, how, CUDNN_ATTR_POINTWISE_AXIS, 1, &axis);
    finish(b, how);
    tti_dnn_desc desc = make(b, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_desc(b, desc, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    set_tensor(b, desc, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, op->in[0]);
    set_tensor(b, desc, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, op->in[1]);
    set_tensor(b, desc, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, op->in[2]);
    set_tensor(b, desc, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, op->out);
    return finish(b, desc);
}

static tti_dnn_desc make_matmul(builder *b, const tti_dnn_op *op) {
    tti_dnn_desc how = make(b, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set_dtype(b, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
    finish(b, how);
    tti_dnn_desc desc = make(b, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_tensor(b, desc, CUDNN_ATTR_OPERATION_MATMUL_ADESC, op->in[0]);
    set_tensor(b, desc, CUDNN_ATTR_OPERATION_MATMUL_BDESC, op->in[1]);
    set_tensor(b, desc, CUDNN_ATTR_OPERATION_MATMUL_CDESC, op->out);
    set_desc(b, desc, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    set_tensor(b, desc, CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, op->in[2]);
    set_tensor(b, desc, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC, op->in[3]);
    set_tensor(b, desc, CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC, op->in[4]);
    return finish(b, desc);
}

static tti_dnn_desc make_reduction(builder *b, const tti_dnn_op *op) {
    tti_dnn_desc how = make(b, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    cudnnReduceTensorOp_t kind =
        op->code == TTI_DNN_MAX_OF ? CUDNN_REDUCE_TENSOR_MAX : CUDNN_REDUCE_TENSOR_ADD;
    set_dtype(b, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    set(b, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &kind);
    finish(b, how);
    tti_dnn_desc desc = make(b, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_desc(b, desc, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    set_tensor(b, desc, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, op->in[0]);
    set_tensor(b, desc, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, op->out);
    return finish(b, desc);
}

static tti_dnn_desc make_reshape(builder *b, const tti_dnn_op *op) {
    tti_dnn_desc desc = make(b, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_tensor(b, desc, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, op->in[0]);
    set_tensor(b, desc, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, op->out);
    return finish(b, desc);
}

static tti_dnn_desc make_window(builder *b) {
    tti_dnn_desc how = make(b, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t n_dims = 2;
    set_dtype(b, how, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_DATA_FLOAT);
    set(b, how, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set_ints(b, how, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 1, &n_dims);
    set_ints(b, how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, 2, b->graph->pad);
    set_ints(b, how, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, 2, b->graph->pad);
    set_ints(b, how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, 2, b->graph->stride);
    set_ints(b, how, CUDNN_ATTR_CONVOLUTION_DILATIONS, 2, b->graph->dilation);
    return finish(b, how);
}

/* The attributes of one of the three convolutions: its operands in the order of tti_dnn_op. */
typedef struct conv_names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t how, in[2], out, alpha, beta;
} conv_names;

static const conv_names conv_table[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W},
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W},
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
      CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static tti_dnn_desc make_conv(builder *b, const tti_dnn_op *op) {
    const conv_names *names = &conv_table[op->code - TTI_DNN_CONV];
    tti_dnn_desc how = make_window(b), desc = make(b, names->type);
    float one = 1, zero = 0;
    set_desc(b, desc, names->how, how);
    for (int i = 0; i < 2; i++) set_tensor(b, desc, names->in[i], op->in[i]);
    set_tensor(b, desc, names->out, op->out);
    set(b, desc, names->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    set(b, desc, names->beta, CUDNN_TYPE_FLOAT, 1, &zero);
    return finish(b, desc);
}

static tti_dnn_desc make_totals(builder *b, const tti_dnn_op *op) {
    tti_dnn_desc desc = make(b, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    set(b, desc, CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode);
    set_dtype(b, desc, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_DATA_FLOAT);
    set_tensor(b, desc, CUDNN_ATTR_OPERATION_GENSTATS_XDESC, op->in[0]);
    set_tensor(b, desc, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, op->out);
    set_tensor(b, desc, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, op->in[1]);
    return finish(b, desc);
}

static tti_dnn_desc make_op(builder *b, const tti_dnn_op *op) {
    switch (op->code) {
        case TTI_DNN_MATMUL:
            return make_matmul(b, op);
        case TTI_DNN_MAX_OF:
        case TTI_DNN_SUM_OF:
            return make_reduction(b, op);
        case TTI_DNN_RESHAPE:
            return make_reshape(b, op);
        case TTI_DNN_CONV:
        case TTI_DNN_CONV_GRAD_X:
        case TTI_DNN_CONV_GRAD_W:
            return make_conv(b, op);
        case TTI_DNN_TOTALS:
            return make_totals(b, op);
        default:
            return make_pointwise(b, op);
    }
}

tutti_status tti_dnn_graph_build(tti_dnn_pool *pool, const tti_dnn_graph *graph,
                                 cudnnHandle_t handle, tti_dnn_desc *out) {
    builder b = {.pool = pool, .graph = graph};
    tti_dnn_desc ops[TTI_DNN_MAX_OPS];
    for (int i = 0; i < graph->n_tensors; i++) b.tensors[i] = make_tensor(&b, i);
    for (int i = 0; i < graph->n_ops; i++) ops[i] = make_op(&b, &graph->ops[i]);
    tti_dnn_desc desc = make(&b, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(&b, desc, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph->n_ops, ops);
    if (handle) set(&b, desc, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    *out = finish(&b, desc);
    return b.st;
}

#endif
