/* module.c - backends in shared objects, loaded on demand. */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/files/module_file.h"

/* The process that has called a module.  The module may have initialized a driver, which must not
 * be called in forks of that process: they crash or hang.  0: no module has been called. */
static pid_t caller;

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
    caller = getpid();
    const tti_backend *backend = open(&host);
    if (!backend)
        tti_str_add(why, *tutti_last_error() ? tutti_last_error() : "it cannot be used");
    else if (strcmp(backend->name, name) != 0)
        tti_str_printf(why, "it is the module of '%s'", backend->name);
    else
        return backend;
    return NULL;
}

static tutti_status fail_to_find(const char *name, const tti_str *tried) {
    return tti_fail(TUTTI_E_UNSUPPORTED, "backend '%s' is not installed here; tried:%s", name,
                    tti_str_text(tried));
}

static tutti_status fail_in_fork(const char *name) {
    return tti_fail(TUTTI_E_INVALID,
                    "%s: this process is a fork of process %d, which had initialized the GPUs "
                    "before, and a GPU cannot be used after a fork: start processes by spawn "
                    "(Python: multiprocessing.get_context(\"spawn\")) or give "
                    "parallel.devices=cpu",
                    name, (int)caller);
}

tutti_status tti_backend_find(const char *name, const tti_backend **out) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const tti_backend *cuda;
    static tti_str tried; /* the places of the last search, with the reason why each failed */
    tutti_status st = TUTTI_OK;
    *out = NULL;
    if (strcmp(name, "cpu") == 0) {
        *out = &tti_backend_cpu;
        return TUTTI_OK;
    }
    if (strcmp(name, "cuda") != 0)
        return tti_fail(TUTTI_E_UNSUPPORTED, "unknown backend '%s'; cpu and cuda are known", name);
    pthread_mutex_lock(&lock);
    bool is_fork = caller && caller != getpid();
    if (!cuda && !is_fork) {
        tti_str_free(&tried);
        cuda = tti_module_find(name, ask_module, &tried);
    }
    if (!cuda)
        st = fail_to_find(name, &tried); /* a fork fails as its parent did */
    else if (is_fork)
        st = fail_in_fork(name);
    else
        *out = cuda;
    pthread_mutex_unlock(&lock);
    return st;
}
