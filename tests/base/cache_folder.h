/* cache_folder.h - a folder for a test's cache, empty at first, that goes with the test. */
#ifndef TTI_TESTS_BASE_CACHE_FOLDER_H
#define TTI_TESTS_BASE_CACHE_FOLDER_H

#include <stdio.h>
#include <stdlib.h>

#include "t.h"

static char cache_folder[] = "/tmp/tutti_cache_test_XXXXXX";

static inline int cache_folder_enter(void **state) {
    T_UNUSED;
    return mkdtemp(cache_folder) ? setenv("TUTTI_CACHE", cache_folder, 1) : -1;
}

static inline int cache_folder_leave(void **state) {
    char command[128];
    T_UNUSED;
    snprintf(command, sizeof command, "rm -rf '%s'", cache_folder);
    return system(command);
}

#endif /* TTI_TESTS_BASE_CACHE_FOLDER_H */
