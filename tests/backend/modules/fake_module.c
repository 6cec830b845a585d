/* fake_module.c - a module named cuda without any device of the world, for the tests of who looks
 * for modules.  TUTTI_TEST_MODULE says what it is: "fit", "old" (of another version), "other" (of
 * another name), "mute" (refuses and does not say why).  It has three devices; letter i of
 * TUTTI_TEST_KINDS is the kind of device i. */
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"

static int count(void) { return 3; }

static void kind(int index, tti_str *str) {
    const char *kinds = getenv("TUTTI_TEST_KINDS");
    if (!kinds || (size_t)index >= strlen(kinds)) return;
    if (!str->text) str->text = calloc(2, 1); /* this module is linked with nothing of ours */
    if (!str->text) return;
    str->text[0] = kinds[index];
    str->n_bytes = 1;
}

/* Not constant: a test changes it. */
static tti_device_ops ops = {.count = count, .kind = kind};
static const tti_backend fit = {.name = "cuda", .device = &ops};
static const tti_backend other = {.name = "abacus", .device = &ops};

TUTTI_API const tti_backend *tutti_backend_module(const tti_module_host *host);

const tti_backend *tutti_backend_module(const tti_module_host *host) {
    const char *what = getenv("TUTTI_TEST_MODULE");
    if (!what || host->abi != TTI_MODULE_ABI) return NULL;
    if (strcmp(what, "old") == 0)
        host->fail(TUTTI_E_UNSUPPORTED, "the module is of tutti 0.0.1, the program of a later one");
    return strcmp(what, "fit") == 0 ? &fit : strcmp(what, "other") == 0 ? &other : NULL;
}
