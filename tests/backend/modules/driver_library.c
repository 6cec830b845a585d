/* driver_library.c - a libcuda.so.1 of the version $TUTTI_TEST_DRIVER (as 12080) that knows no
 * device, for what is said of old drivers and of none. */
#include <stdlib.h>
#include <string.h>

#include "tutti/status.h"

enum { SUCCESS = 0, NO_DEVICE = 100 };

TUTTI_API int cuDriverGetVersion(int *version);
TUTTI_API int cuGetProcAddress_v2(const char *name, void **out, int version, unsigned long flags,
                                  int *status);

static int no_device(void) { return NO_DEVICE; }

int cuDriverGetVersion(int *version) {
    const char *text = getenv("TUTTI_TEST_DRIVER");
    *version = text ? atoi(text) : 0;
    return SUCCESS;
}

int cuGetProcAddress_v2(const char *name, void **out, int version, unsigned long flags,
                        int *status) {
    int (*get_version)(int *) = cuDriverGetVersion, (*any)(void) = no_device;
    int (*get_address)(const char *, void **, int, unsigned long, int *) = cuGetProcAddress_v2;
    (void)version, (void)flags;
    memcpy(out, &any, sizeof *out);
    if (strcmp(name, "cuDriverGetVersion") == 0) memcpy(out, &get_version, sizeof *out);
    if (strcmp(name, "cuGetProcAddress") == 0) memcpy(out, &get_address, sizeof *out);
    if (status) *status = 0;
    return SUCCESS;
}
