/* gpus.h - the GPUs of tests that need some. */
#ifndef TTI_TESTS_BACKEND_GPUS_H
#define TTI_TESTS_BACKEND_GPUS_H

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "tutti/status.h"

enum { SKIPPED = 77 }; /* exit code of a test that cannot run here */

static const tti_backend *cuda; /* of find_gpus */
static int n_devices;

/* The build of this test has a CUDA module: a test that does not find it has failed. */
static inline bool has_cuda_module(void) {
    return TUTTI_TEST_BUILDS_CUDA || access(TUTTI_TEST_BUILD "/tutti-cuda.so", F_OK) == 0;
}

/* Returns 0 with the backend and its devices, of which there are at least n_wanted; else the exit
 * code, after it has printed why. */
static inline int find_gpus(int n_wanted) {
    if (tti_backend_find("cuda", &cuda) == TUTTI_OK) {
        n_devices = cuda->device->count();
        if (n_devices >= n_wanted) return 0;
        printf("skipped: %d GPUs, %d are needed\n", n_devices, n_wanted);
        return SKIPPED;
    }
    const char *why = tutti_last_error();
    bool no_gpu = strstr(why, "NVIDIA driver") || strstr(why, "no device can be used");
    bool is_skipped = no_gpu || !has_cuda_module();
    printf("%s: %s\n", is_skipped ? "skipped" : "the CUDA module of this build is not used", why);
    return is_skipped ? SKIPPED : 1;
}

#endif /* TTI_TESTS_BACKEND_GPUS_H */
