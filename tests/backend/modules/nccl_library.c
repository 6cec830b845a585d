/* nccl_library.c - a libnccl.so.2 from before it could send and receive, for what is said of it. */
#include "tutti/status.h"

/* There, and never called. */
#define NOTHING(name)          \
    TUTTI_API void name(void); \
    void name(void) {}

NOTHING(ncclGetVersion)
NOTHING(ncclGetUniqueId)
NOTHING(ncclCommInitRank)
NOTHING(ncclCommDestroy)
NOTHING(ncclCommAbort)
NOTHING(ncclCommGetAsyncError)
NOTHING(ncclGetErrorString)
NOTHING(ncclAllReduce)
NOTHING(ncclAllGather)
NOTHING(ncclGroupStart)
NOTHING(ncclGroupEnd)
