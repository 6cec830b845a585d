/* plugin.c - opens a shared object that the user named and lets its tutti_build_model make the
 * graph.
 *
 * The idea to know: the object is built against the public headers and linked with nothing; it
 * finds tutti_linear and the like in the program that opens it. */
#include "train/plugin.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

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
