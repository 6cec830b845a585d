/* find_link.c - finds links by name, built in or in modules. */
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "base/error.h"
#include "base/files/module_file.h"
#include "comm/link.h"

static void fail_for_module(tutti_status code, const char *text) { tti_fail(code, "%s", text); }

static const void *ask_module(void *handle, const char *name, tti_str *why) {
    static const tti_link_host host = {TTI_LINK_ABI, TUTTI_VERSION, fail_for_module};
    void *symbol = dlsym(handle, "tutti_link_module");
    tti_link_module open = NULL;
    memcpy(&open, &symbol, sizeof open);
    if (!open) {
        tti_str_add(why, "not a module of this program");
        return NULL;
    }
    tti_clear_error();
    const tti_link *link = open(&host);
    if (!link)
        tti_str_add(why, *tutti_last_error() ? tutti_last_error() : "it cannot be used");
    else if (strcmp(link->name, name) != 0)
        tti_str_printf(why, "it is the module of '%s'", link->name);
    else
        return link;
    return NULL;
}

static const char *const modules[] = {"mpi-openmpi", "mpi-mpich"};

void tti_link_describe(tti_str *out) {
    for (size_t i = 0; i < TTI_COUNT(modules); i++) {
        tti_str tried = {0};
        const tti_link *link = tti_module_find(modules[i], ask_module, &tried);
        if (link)
            tti_str_printf(out, "%s: %s\n  module: %s\n", modules[i], link->doc,
                           tti_module_file_of(link));
        else
            tti_str_printf(out, "%s: not loaded; tried:%s\n", modules[i], tti_str_text(&tried));
        tti_str_free(&tried);
    }
}

static tutti_status find_module(const char *name, const tti_link **out) {
    tti_str tried = {0};
    *out = tti_module_find(name, ask_module, &tried);
    if (!*out)
        tti_fail(TUTTI_E_CONFIG,
                 "there is no module '%s' here (built where MPI's headers are: libopenmpi-dev or "
                 "libmpich-dev; TUTTI_TRANSPORT=tcp with MASTER_ADDR needs none); tried:%s",
                 name, tti_str_text(&tried));
    tti_str_free(&tried);
    return *out ? TUTTI_OK : TUTTI_E_CONFIG;
}

tutti_status tti_link_find(const char *name, const tti_link **out) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static const tti_link *mpi; /* static: one process can load only one MPI implementation */
    *out = NULL;
    if (strcmp(name, "tcp") == 0) {
        *out = &tti_link_tcp;
        return TUTTI_OK;
    }
    if (strcmp(name, modules[0]) != 0 && strcmp(name, modules[1]) != 0)
        return tti_fail(TUTTI_E_INVALID,
                        "comm_create: no transport \"%s\"; there is: shm, tcp, mpi-openmpi, "
                        "mpi-mpich",
                        name);
    pthread_mutex_lock(&lock);
    tutti_status st = TUTTI_OK;
    if (!mpi)
        st = find_module(name, &mpi);
    else if (strcmp(mpi->name, name) != 0)
        st = tti_fail(TUTTI_E_UNSUPPORTED, "comm_create: %s cannot be combined with %s", name,
                      mpi->name);
    if (st == TUTTI_OK) *out = mpi;
    pthread_mutex_unlock(&lock);
    return st;
}
