/* dnn_library.c - a libcudnn.so.9 that is of version 8, for what is said of it. */
#include <stddef.h>

#include "tutti/status.h"

TUTTI_API size_t cudnnGetVersion(void);

size_t cudnnGetVersion(void) { return 8907; }
