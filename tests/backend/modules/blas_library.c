/* blas_library.c - a libcublasLt.so.13 that is of version 11, for what is said of it. */
#include <stddef.h>

#include "tutti/status.h"

TUTTI_API size_t cublasLtGetVersion(void);

size_t cublasLtGetVersion(void) { return 110900; }

/* There, and never called. */
#define NOTHING(name)          \
    TUTTI_API void name(void); \
    void name(void) {}

NOTHING(cublasLtCreate)
NOTHING(cublasLtDestroy)
NOTHING(cublasLtGetStatusString)
NOTHING(cublasLtMatmul)
NOTHING(cublasLtMatmulAlgoCheck)
NOTHING(cublasLtMatmulAlgoGetHeuristic)
NOTHING(cublasLtMatmulDescCreate)
NOTHING(cublasLtMatmulDescDestroy)
NOTHING(cublasLtMatmulDescSetAttribute)
NOTHING(cublasLtMatmulPreferenceCreate)
NOTHING(cublasLtMatmulPreferenceDestroy)
NOTHING(cublasLtMatmulPreferenceSetAttribute)
NOTHING(cublasLtMatrixLayoutCreate)
NOTHING(cublasLtMatrixLayoutDestroy)
NOTHING(cublasLtMatrixLayoutSetAttribute)
