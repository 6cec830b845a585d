/* dnn_lib.h - cuDNN's functions and types: the only file that sees cudnn.h.  For dnn*.c alone. */
#ifndef TTI_CUDA_DNN_LIB_H
#define TTI_CUDA_DNN_LIB_H

#include <cudnn.h>

#include "backend/cuda/conv/dnn.h"

#define TTI_DNN_FUNCTIONS(X)         \
    X(cudnnGetVersion)               \
    X(cudnnGetErrorString)           \
    X(cudnnGetLastErrorString)       \
    X(cudnnCreate)                   \
    X(cudnnDestroy)                  \
    X(cudnnSetStream)                \
    X(cudnnBackendCreateDescriptor)  \
    X(cudnnBackendDestroyDescriptor) \
    X(cudnnBackendSetAttribute)      \
    X(cudnnBackendGetAttribute)      \
    X(cudnnBackendFinalize)          \
    X(cudnnBackendExecute)

typedef struct tti_dnn_lib {
#define TTI_DNN_MEMBER(name) __typeof__(&name) name;
    TTI_DNN_FUNCTIONS(TTI_DNN_MEMBER)
#undef TTI_DNN_MEMBER
    size_t version; /* 0: there is none */
    char why[500];  /* then */
} tti_dnn_lib;

/* Opened on the first call. */
const tti_dnn_lib *tti_dnn_lib_get(void);

/* TUTTI_OK, or TUTTI_E_UNSUPPORTED with cuDNN's own reason. */
tutti_status tti_dnn_check(const tti_dnn_lib *lib, cudnnStatus_t status, const char *what);
#define TTI_DNN(lib, name, ...) TTI_TRY(tti_dnn_check(lib, (lib)->name(__VA_ARGS__), #name))

typedef cudnnBackendDescriptor_t tti_dnn_desc;

/* Descriptors that live together. */
typedef struct tti_dnn_pool {
    const tti_dnn_lib *lib;
    tti_dnn_desc descs[512];
    int n;
} tti_dnn_pool;

tutti_status tti_dnn_pool_new(tti_dnn_pool *pool, cudnnBackendDescriptorType_t type,
                              tti_dnn_desc *desc);
void tti_dnn_pool_empty(tti_dnn_pool *pool);

/* The operation graph; handle NULL: for a device described to the plan.  Lives in the pool. */
tutti_status tti_dnn_graph_build(tti_dnn_pool *pool, const tti_dnn_graph *graph,
                                 cudnnHandle_t handle, tti_dnn_desc *out);

#endif /* TTI_CUDA_DNN_LIB_H */
