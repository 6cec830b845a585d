/* module.c - backends in shared objects, loaded on demand. */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "backend/backend.h"
#include "base/files/module_file.h"

static void fail_for_module(tutti_status code, const char *text) { tti_fail(code, "%s", text); }

/* The backend of an open module; NULL: why describes the problem. */
static const void *ask_module(void *handle, const char *name, tti_str *why) {
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

static tutti_status find_module(const char *name, const tti_backend **out) {
    tti_str tried = {0};
    *out = tti_module_find(name, ask_module, &tried);
    if (!*out)
        tti_fail(TUTTI_E_UNSUPPORTED, "backend '%s' is not installed here; tried:%s", name,
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
        return tti_fail(TUTTI_E_UNSUPPORTED, "unknown backend '%s'; cpu and cuda are known", name);
    pthread_mutex_lock(&lock);
    tutti_status st = cuda ? TUTTI_OK : find_module(name, &cuda);
    *out = cuda;
    pthread_mutex_unlock(&lock);
    return st;
}
