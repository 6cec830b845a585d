/* module_file.c - finds the file of a module and says why a file that it found cannot be used.
 *
 * The program links no vendor's library: one build runs on a laptop and on a machine with devices
 * or MPI, and says what is missing where. */
#include "base/files/module_file.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* From the folder of the program to that of the modules, and the installation folder. */
#ifndef TUTTI_MODULE_FROM_BIN
#define TUTTI_MODULE_FROM_BIN "../lib/tutti"
#endif
#ifndef TUTTI_MODULE_DIR
#define TUTTI_MODULE_DIR "/usr/local/lib/tutti"
#endif

/* The shared library that holds this code, as the loader opened it; NULL: this code is part of the
 * program, for which the loader knows only argv[0], which can be anything. */
static const char *own_library(void) {
    Dl_info info;
    void *entry = NULL;
    if (!dladdr1((void *)(uintptr_t)tti_module_find, &info, &entry, RTLD_DL_LINKMAP)) return NULL;
    const struct link_map *map = entry;
    return map && map->l_name[0] ? map->l_name : NULL;
}

/* The folder of the file that holds this code, without symbolic links; "" if it is not known.
 * readlink gives the program's path even after the file was replaced or removed. */
static void own_folder(char *folder, size_t n) {
    char path[PATH_MAX] = "";
    const char *library = own_library();
    folder[0] = '\0';
    if (library) {
        if (!realpath(library, path)) return;
    } else {
        ssize_t got = readlink("/proc/self/exe", path, sizeof path - 1);
        path[got > 0 ? got : 0] = '\0';
    }
    char *slash = strrchr(path, '/');
    if (!slash) return;
    *slash = '\0';
    snprintf(folder, n, "%s", path);
}

static const void *open_module(const char *path, const char *name, tti_module_ask ask,
                               tti_str *tried) {
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
    const void *offer = ask(handle, name, tried);
    if (!offer) dlclose(handle);
    return offer;
}

typedef struct search {
    const char *name;
    tti_module_ask ask;
    tti_str *tried;
    const void *offer; /* NULL: none yet */
} search;

/* Sets the offer if there is none yet and the folder holds a module that can be used. */
static void try_folder(search *s, const char *folder, const char *below) {
    char path[2 * PATH_MAX];
    if (s->offer || !*folder) return;
    snprintf(path, sizeof path, "%s%s/tutti-%s.so", folder, below, s->name);
    s->offer = open_module(path, s->name, s->ask, s->tried);
}

const char *tti_module_file_of(const void *offer) {
    Dl_info info;
    return dladdr(offer, &info) && info.dli_fname ? info.dli_fname : "";
}

/* $TUTTI_MODULE_PATH, if set, replaces all other folders. */
const void *tti_module_find(const char *name, tti_module_ask ask, tti_str *tried) {
    char own[PATH_MAX];
    const char *given = getenv("TUTTI_MODULE_PATH");
    search s = {.name = name, .ask = ask, .tried = tried};
    if (given && *given) {
        try_folder(&s, given, "");
        return s.offer;
    }
    own_folder(own, sizeof own);
    try_folder(&s, own, "");
    try_folder(&s, own, "/tutti");
    try_folder(&s, own, "/" TUTTI_MODULE_FROM_BIN);
    try_folder(&s, TUTTI_MODULE_DIR, "");
    return s.offer;
}
