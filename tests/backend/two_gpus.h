/* two_gpus.h - the GPUs of tests that need two of them. */
#ifndef TTI_TESTS_BACKEND_TWO_GPUS_H
#define TTI_TESTS_BACKEND_TWO_GPUS_H

#include <stdio.h>

#include "backend/backend.h"

enum { SKIPPED = 77 }; /* exit code of a test that cannot run here */

static const tti_backend *cuda;
static int n_devices;

/* Finds both; false, and says so: there are fewer. */
static inline bool find_two_gpus(void) {
    if (tti_backend_find("cuda", &cuda) == TUTTI_OK) n_devices = cuda->device->count();
    if (n_devices < 2) printf("skipped: %d GPUs, two are needed\n", n_devices);
    return n_devices >= 2;
}

#endif /* TTI_TESTS_BACKEND_TWO_GPUS_H */
