/* plugin.c - opens a shared object that the user named and calls its tutti_build_model to build the
 * graph.
 *
 * The object is built with the public headers and linked with no library; it finds tutti_linear and
 * the other functions in the program that opens it. */
#include "train/model/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "data/files/byte_reader.h"

bool tti_plugin_checksum(const char *path, uint32_t *out) {
    char bytes[1 << 14];
    uint64_t n_bytes, at = 0;
    int fd;
    if (tti_open_regular(path, &fd, &n_bytes) != TUTTI_OK) return false;
    tutti_status st = TUTTI_OK;
    *out = 0;
    while (st == TUTTI_OK && at < n_bytes) {
        size_t n = (size_t)TTI_MIN(n_bytes - at, sizeof bytes);
        st = tti_pread_all(fd, path, bytes, n, at);
        if (st == TUTTI_OK) *out = tti_crc32c(*out, bytes, n);
        at += n;
    }
    close(fd);
    return st == TUTTI_OK;
}

tutti_status tti_plugin_build(const char *path, const tutti_model_params *params, tutti_graph *g,
                              tutti_value *x, tutti_value **logits) {
    char full[PATH_MAX]; /* contains a '/', so that the loader does not search its folders */
    if (!realpath(path, full))
        return tti_fail(TUTTI_E_CONFIG, "model.plugin: %s: %s", path, strerror(errno));
    struct stat info; /* dlopen of a FIFO would block until there is a writer */
    if (stat(full, &info) != 0 || !S_ISREG(info.st_mode))
        return tti_fail(TUTTI_E_CONFIG, "model.plugin: %s: is not a regular file", path);
    void *object = dlopen(full, RTLD_NOW | RTLD_LOCAL);
    if (!object) return tti_fail(TUTTI_E_CONFIG, "model.plugin: %s", dlerror());
    union { /* C has no cast from an object to a function */
        void *object;
        tutti_model_fn fn;
    } symbol = {.object = dlsym(object, "tutti_build_model")};
    if (!symbol.object) {
        dlclose(object);
        return tti_fail(TUTTI_E_CONFIG, "model.plugin: %s exports no function tutti_build_model",
                        path);
    }
    *logits = symbol.fn(g, x, params);
    dlclose(object);
    return TUTTI_OK;
}
