/* dnn.h - cuDNN 9 behind a small layer of our own: graphs as data, plans, a cache of plans.
 *
 * A tti_dnn_graph is plain data: tensors and operations by number.  tti_dnn_plan_get turns it into
 * a plan (chooses an engine, compiles it or takes it from the cache on disk) that belongs to the
 * device of the calling thread; tti_dnn_run puts it into the compute stream.  cuDNN itself is
 * opened when it is first asked for; without it tti_dnn_ready is false and every caller has own
 * kernels. */
#ifndef TTI_CUDA_DNN_H
#define TTI_CUDA_DNN_H

#include "backend/cuda/runtime/cuda.h"

enum { TTI_DNN_MAX_TENSORS = 64, TTI_DNN_MAX_OPS = 48 };

/* Element types are tutti_dtype's, and this one for masks. */
enum { TTI_DNN_BOOL = TUTTI_N_DTYPES };

typedef enum tti_dnn_kind {
    TTI_DNN_REAL,    /* has memory: data[] of tti_dnn_run                  */
    TTI_DNN_VIRTUAL, /* lives inside the kernel                            */
    TTI_DNN_SCALAR   /* f32, fixed when the graph is made, dimensions of 1 */
} tti_dnn_kind;

/* Dimensions are always N,C,H,W or B,H,T,D, whatever the strides (in elements) are. */
typedef struct tti_dnn_tensor {
    int dtype;
    tti_dnn_kind kind;
    int64_t dim[4], stride[4];
    float value; /* of a scalar */
} tti_dnn_tensor;

typedef enum tti_dnn_code {
    TTI_DNN_MATMUL, /* in: a, b, then i32[B,1,1,1] with the real m, n, k of each (or none) */
    TTI_DNN_ADD,
    TTI_DNN_SUB,
    TTI_DNN_MUL,
    TTI_DNN_DIV,
    TTI_DNN_EXP,
    TTI_DNN_LOG,
    TTI_DNN_COPY,
    TTI_DNN_ROW,    /* index along dimension 2 */
    TTI_DNN_COLUMN, /* index along dimension 3 */
    TTI_DNN_GE,
    TTI_DNN_LT,
    TTI_DNN_AND,
    TTI_DNN_SELECT, /* in: where true, where false, mask */
    TTI_DNN_MAX_OF, /* to out's dimensions of 1 */
    TTI_DNN_SUM_OF,
    TTI_DNN_RESHAPE,     /* the same elements in another order, by out's strides */
    TTI_DNN_CONV,        /* in: x, w           */
    TTI_DNN_CONV_GRAD_X, /* in: dy, w; out: dx */
    TTI_DNN_CONV_GRAD_W, /* in: x, dy; out: dw */
    TTI_DNN_TOTALS       /* in: x, and a result: the sum of squares; out: the sum; [1,C,1,1] f32 */
} tti_dnn_code;

typedef struct tti_dnn_op {
    tti_dnn_code code;
    int in[5]; /* tensors; -1: none */
    int out;
} tti_dnn_op;

typedef struct tti_dnn_graph {
    int n_tensors, n_ops;
    tti_dnn_tensor tensors[TTI_DNN_MAX_TENSORS];
    tti_dnn_op ops[TTI_DNN_MAX_OPS];
    int64_t stride[2], pad[2], dilation[2]; /* of its convolution */
} tti_dnn_graph;

/* Numbers of new tensors and of an operation's output; a full graph asserts. */
int tti_dnn_tensor_add(tti_dnn_graph *graph, int dtype, tti_dnn_kind kind, const int64_t dim[4],
                       const int64_t stride[4]);
int tti_dnn_scalar_add(tti_dnn_graph *graph, float value);
int tti_dnn_op_add(tti_dnn_graph *graph, tti_dnn_code code, int a, int b, int c, int out);

/* Appends everything that distinguishes a graph to str. */
void tti_dnn_graph_print(const tti_dnn_graph *graph, tti_str *str);

/* The requirements for an engine and how it is chosen. */
typedef struct tti_dnn_choice {
    int n_timed;          /* engines that are timed on the device; 0 or 1: the first that does */
    size_t max_workspace; /* bytes */
    bool no_tensor_cores; /* full f32 */
    bool deterministic;   /* and never chosen by time */
} tti_dnn_choice;

typedef struct tti_dnn_plan tti_dnn_plan;

/* True if cuDNN can be used with the device of this thread; else tti_fail's text says why. */
bool tti_dnn_ready(void);
/* 91900 for 9.19.0; 0 when there is none. */
size_t tti_dnn_version(void);

/* A plan for the graph, borrowed until the device is closed; made once for equal graphs.
 * TUTTI_E_UNSUPPORTED: no engine takes it.  May wait for the device. */
tutti_status tti_dnn_plan_get(const tti_dnn_graph *graph, const tti_dnn_choice *choice,
                              tti_dnn_plan **plan);
size_t tti_dnn_plan_bytes(const tti_dnn_plan *plan); /* of workspace */

/* data[i]: memory of tensor i where it is real, 16-byte aligned. */
tutti_status tti_dnn_run(tti_dnn_plan *plan, void *const *data, void *workspace);

#endif /* TTI_CUDA_DNN_H */
