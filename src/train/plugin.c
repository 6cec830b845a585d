/* plugin.c - opens a shared object that the user named and lets its tutti_build_model make the
 * graph.
 *
 * The idea to know: the object is built against the public headers and linked with nothing; it
 * finds tutti_linear and the like in the program that opens it. */
#include "train/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"

bool tti_plugin_checksum(const char *path, uint32_t *out) {
    char bytes[1 << 14];
    FILE *file = fopen(path, "rb");
    if (!file) return false;
    *out = 0;
    for (size_t n; (n = fread(bytes, 1, sizeof bytes, file)) > 0;)
        *out = tti_crc32c(*out, bytes, n);
    bool good = !ferror(file);
    fclose(file);
    return good;
}

tutti_status tti_plugin_build(const char *path, const tutti_model_params *params, tutti_graph *g,
                              tutti_value *x, tutti_value **logits) {
    char full[PATH_MAX]; /* with a '/', so that the loader does not search its folders */
    if (!realpath(path, full))
        return tti_fail(TUTTI_E_CONFIG, "model.plugin: %s: %s", path, strerror(errno));
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
