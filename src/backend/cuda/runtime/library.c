/* library.c - finds cublasLt, cuDNN and NCCL when they are first needed.
 *
 * The program uses their headers at most, so it starts without them and reports what is missing.
 * The folders of $TUTTI_CUDA_PATH have priority over all others. */
#include "backend/cuda/runtime/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_PATH = 1024 };

/* The library in one folder of n characters, or in its lib or lib64. */
static void *open_in(const char *folder, size_t n, const char *name) {
    static const char *const parts[] = {"", "/lib", "/lib64"};
    for (int i = 0; i < 3 && n > 0; i++) {
        char path[MAX_PATH];
        if (snprintf(path, sizeof path, "%.*s%s/%s", (int)n, folder, parts[i], name) >= MAX_PATH)
            continue;
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (library) return library;
    }
    return NULL;
}

static void *open_in_folders(const char *folders, const char *name) {
    while (folders && *folders) {
        size_t n = strcspn(folders, ":");
        void *library = n < MAX_PATH ? open_in(folders, n, name) : NULL;
        if (library) return library;
        folders += n + (folders[n] == ':');
    }
    return NULL;
}

void *tti_cuda_library(const char *const *names, tti_str *why) {
    const char *given = getenv("TUTTI_CUDA_PATH");
    void *library = NULL;
    for (int i = 0; names[i] && !library; i++) library = open_in_folders(given, names[i]);
    for (int i = 0; names[i] && !library; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (!library) library = open_in_folders(TUTTI_CUDA_FOLDERS, names[i]);
    }
    if (library) return library;
    tti_str_printf(why, "%s", names[0]);
    for (int i = 1; names[i]; i++) tti_str_printf(why, " or %s", names[i]);
    tti_str_add(why, " is neither where the loader looks nor in $TUTTI_CUDA_PATH");
    if (given && *given) tti_str_printf(why, " (%.200s)", given);
    tti_str_add(why, ": name the folder that has it there");
    return NULL;
}
