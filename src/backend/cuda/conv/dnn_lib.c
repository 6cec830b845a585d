/* dnn_lib.c - finds and opens cuDNN 9.
 *
 * Searches the folders of $TUTTI_CUDA_PATH, the loader's paths, and the folders that the build has
 * found.  Nothing is linked: without cuDNN the kernels of conv_direct.cu and attention_flash.cu
 * run. */
#include "backend/cuda/runtime/cuda.h"

#if TUTTI_HAVE_CUDNN
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

#include "backend/cuda/conv/dnn_lib.h"
#include "backend/cuda/runtime/library.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

static tti_dnn_lib the_lib;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool find_functions(void *library, tti_dnn_lib *lib) {
#define FIND(name)                                                           \
    *(void **)&lib->name = dlsym(library, #name);                            \
    if (!lib->name) {                                                        \
        snprintf(lib->why, sizeof lib->why, "its library has no %s", #name); \
        return false;                                                        \
    }
    TTI_DNN_FUNCTIONS(FIND)
#undef FIND
    return true;
}

/* Asked first: a library of another major version lacks functions too.  0: it does not say. */
static size_t version_of(void *library) {
    size_t (*get_version)(void) = NULL;
    *(void **)&get_version = dlsym(library, "cudnnGetVersion");
    return get_version ? get_version() : 0;
}

static void open_library(void) {
    tti_dnn_lib *lib = &the_lib;
    static const char *const names[] = {"libcudnn.so." TEXT(CUDNN_MAJOR), NULL};
    tti_str why = {0};
    void *library = tti_cuda_library(names, &why);
    snprintf(lib->why, sizeof lib->why, "%s", tti_str_text(&why));
    tti_str_free(&why);
    if (!library) return;
    size_t version = version_of(library);
    if (version / 10000 != CUDNN_MAJOR)
        snprintf(lib->why, sizeof lib->why, "version %zu was found, version %d is needed", version,
                 CUDNN_MAJOR);
    else if (find_functions(library, lib))
        lib->version = version;
}

const tti_dnn_lib *tti_dnn_lib_get(void) {
    pthread_once(&once, open_library);
    return &the_lib;
}

size_t tti_dnn_version(void) { return tti_dnn_lib_get()->version; }

tutti_status tti_dnn_check(const tti_dnn_lib *lib, cudnnStatus_t status, const char *what) {
    char text[1000] = "";
    if (status == CUDNN_STATUS_SUCCESS) return TUTTI_OK;
    lib->cudnnGetLastErrorString(text, sizeof text);
    return tti_fail(TUTTI_E_UNSUPPORTED, "cuDNN: %s: %s %s", what, lib->cudnnGetErrorString(status),
                    text);
}

void tti_cuda_dnn_describe(tti_str *str) {
    const tti_dnn_lib *lib = tti_dnn_lib_get();
    if (lib->version)
        tti_str_printf(str, "cuDNN %zu.%zu.%zu", lib->version / 10000, lib->version / 100 % 100,
                       lib->version % 100);
    else
        tti_str_printf(str, "no cuDNN (%s)", lib->why);
}

#else

void tti_cuda_dnn_describe(tti_str *str) { tti_str_add(str, "no cuDNN (built without it)"); }

#endif
