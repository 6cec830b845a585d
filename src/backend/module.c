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

/* From the folder of the program to that of the modules, and where it was to be installed to. */
#ifndef TUTTI_MODULE_FROM_BIN
#define TUTTI_MODULE_FROM_BIN "../lib/tutti"
#endif
#ifndef TUTTI_MODULE_DIR
#define TUTTI_MODULE_DIR "/usr/local/lib/tutti"
#endif

enum { MAX_PATH = 4096 };

static void fail_for_module(tutti_status code, const char *text) { tti_fail(code, "%s", text); }

/* The folder of the file that holds this code; "" when it is not known. */
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

/* What the module of an open file has to offer; NULL: why says what is wrong with it. */
static const tti_backend *ask_module(void *handle, const char *name, tti_str *why) {
    static const tti_module_host host = {TTI_MODULE_ABI, TUTTI_VERSION, fail_for_module};
    void *symbol = dlsym(handle, "tutti_backend_module");
    tti_backend_module open = NULL;
    memcpy(&open, &symbol, sizeof open);
    if (!open) {
        tti_str_add(why, "not a module of this program");
        return NULL;
    }
    tti_clear_error();
    const tti_backend *backend = open(&host);
    if (!backend)
        tti_str_add(why, *tutti_last_error() ? tutti_last_error() : "it cannot be used");
    else if (strcmp(backend->name, name) != 0)
        tti_str_printf(why, "it is the module of '%s'", backend->name);
    else
        return backend;
    return NULL;
}

static const tti_backend *open_module(const char *path, const char *name, tti_str *tried) {
    tti_str_printf(tried, "\n  %s: ", path);
    if (access(path, R_OK) != 0) {
        tti_str_add(tried, "not there");
        return NULL;
    }
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        tti_str_add(tried, dlerror());
        return NULL;
    }
    const tti_backend *backend = ask_module(handle, name, tried);
    if (!backend) dlclose(handle);
    return backend;
}

/* Sets *out if it is NULL and the folder holds a module that can be used. */
static void try_folder(const char *folder, const char *below, const char *name, tti_str *tried,
                       const tti_backend **out) {
    char path[2 * MAX_PATH];
    if (*out || !*folder) return;
    snprintf(path, sizeof path, "%s%s/tutti-%s.so", folder, below, name);
    *out = open_module(path, name, tried);
}

/* Whoever sets $TUTTI_MODULE_PATH wants the modules of that folder and no others. */
static tutti_status find_module(const char *name, const tti_backend **out) {
    char own[MAX_PATH];
    const char *given = getenv("TUTTI_MODULE_PATH");
    tti_str tried = {0};
    if (given && *given) {
        try_folder(given, "", name, &tried, out);
    } else {
        own_folder(own, sizeof own);
        try_folder(own, "", name, &tried, out);
        try_folder(own, "/tutti", name, &tried, out);
        try_folder(own, "/" TUTTI_MODULE_FROM_BIN, name, &tried, out);
        try_folder(TUTTI_MODULE_DIR, "", name, &tried, out);
    }
    if (!*out)
        tti_fail(TUTTI_E_UNSUPPORTED, "there is no backend '%s' here; tried:%s", name,
                 tti_str_text(&tried));
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
