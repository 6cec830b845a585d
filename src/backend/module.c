/* module.c - backends in shared objects of their own, found when asked for.
 *
 * The program links no vendor's library: one build runs on a laptop and on a machine with devices,
 * and says what is missing where. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"

#ifndef TUTTI_MODULE_DIR
#define TUTTI_MODULE_DIR "/usr/local/lib/tutti"
#endif

enum { MAX_PATH = 4096 };

static void fail_for_module(tutti_status code, const char *text) { tti_fail(code, "%s", text); }

/* Adds "FOLDER/tutti-NAME.so" of the folder that holds the file of this code. */
static void own_folder(char *folder, size_t n) {
    Dl_info info;
    char path[MAX_PATH] = "";
    folder[0] = '\0';
    if (dladdr((void *)(uintptr_t)tti_backend_find, &info) && info.dli_fname &&
        strchr(info.dli_fname, '/')) {
        snprintf(path, sizeof path, "%s", info.dli_fname);
    } else {
        ssize_t got = readlink("/proc/self/exe", path, sizeof path - 1);
        path[got > 0 ? got : 0] = '\0';
    }
    char *slash = strrchr(path, '/');
    if (!slash) return;
    *slash = '\0';
    snprintf(folder, n, "%s", path);
}

static const tti_backend *open_module(const char *path, const char *name, tti_str *tried) {
    if (access(path, R_OK) != 0) {
        tti_str_printf(tried, "\n  %s: not there", path);
        return NULL;
    }
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        tti_str_printf(tried, "\n  %s: %s", path, dlerror());
        return NULL;
    }
    void *symbol = dlsym(handle, "tutti_backend_module");
    tti_backend_module open = NULL;
    memcpy(&open, &symbol, sizeof open);
    static const tti_module_host host = {TTI_MODULE_ABI, TUTTI_VERSION, fail_for_module};
    const tti_backend *backend = open ? open(&host) : NULL;
    if (backend && strcmp(backend->name, name) == 0) return backend;
    tti_str_printf(tried, "\n  %s: %s", path,
                   open ? tutti_last_error() : "not a module of this program");
    dlclose(handle);
    return NULL;
}

static tutti_status find_module(const char *name, const tti_backend **out) {
    char own[MAX_PATH], beside[MAX_PATH + 16], path[MAX_PATH + 128];
    const char *given = getenv("TUTTI_MODULE_PATH");
    own_folder(own, sizeof own);
    snprintf(beside, sizeof beside, "%s/tutti", own);
    const char *const folders[] = {given, own, beside, TUTTI_MODULE_DIR};
    tti_str tried = {0};
    for (size_t i = 0; i < TTI_COUNT(folders) && !*out; i++) {
        if (!folders[i] || !*folders[i]) continue;
        snprintf(path, sizeof path, "%s/tutti-%s.so", folders[i], name);
        *out = open_module(path, name, &tried);
    }
    if (!*out)
        tti_fail(TUTTI_E_UNSUPPORTED, "there is no backend '%s' here; tried:%s", name,
                 tried.text ? tried.text : "");
    tti_str_free(&tried);
    return *out ? TUTTI_OK : TUTTI_E_UNSUPPORTED;
}

tutti_status tti_backend_find(const char *name, const tti_backend **out) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const tti_backend *cuda;
    *out = NULL;
    if (strcmp(name, "cpu") == 0) {
        *out = &tti_backend_cpu;
        return TUTTI_OK;
    }
    if (strcmp(name, "cuda") != 0)
        return tti_fail(TUTTI_E_UNSUPPORTED, "there is no backend '%s': cpu and cuda are known",
                        name);
    pthread_mutex_lock(&lock);
    tutti_status st = cuda ? TUTTI_OK : find_module(name, &cuda);
    *out = cuda;
    pthread_mutex_unlock(&lock);
    return st;
}
