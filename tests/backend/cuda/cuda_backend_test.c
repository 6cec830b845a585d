/* cuda_backend_test.c - what the module says to a program that it does not fit, and on a machine
 * without a driver or a device.  Needs the module, and no device. */
#include <dlfcn.h>

#include "backend/gpus.h"
#include "base/files/module_file.h"
#include "t.h"

static tti_backend_module open_module;
static char reported[512];
static tutti_status reported_status;

static void note(tutti_status code, const char *text) {
    reported_status = code;
    snprintf(reported, sizeof reported, "%s", text);
}

static const tti_backend *ask(int abi, const char *version) {
    reported[0] = '\0';
    return open_module(&(tti_module_host){abi, version, note});
}

static void expect_refusal(int abi, const char *version, const char *part) {
    assert_null(ask(abi, version));
    T_EQ(reported_status, TUTTI_E_UNSUPPORTED);
    if (!strstr(reported, part)) fail_msg("'%s' lacks '%s'", reported, part);
}

T_CASE(programs_of_other_versions) {
    T_UNUSED;
    char both[80];
    snprintf(both, sizeof both, "the module is of tutti %s, the program of 0.0.0", TUTTI_VERSION);
    expect_refusal(TTI_MODULE_ABI, "0.0.0", both);
    expect_refusal(TTI_MODULE_ABI + 1, TUTTI_VERSION, "their sources differ (");
    expect_refusal(TTI_MODULE_ABI + 1, TUTTI_VERSION, "): rebuild the older one");
    expect_refusal(TTI_MODULE_ABI, "", "the program of ");
    char long_one[300];
    memset(long_one, '9', sizeof long_one - 1);
    long_one[sizeof long_one - 1] = '\0';
    expect_refusal(TTI_MODULE_ABI, long_one, "the program of 99999999999999999999999999999999: ");
}

/* Either it can be used, or the missing driver or device is named. */
T_CASE(this_machine) {
    T_UNUSED;
    const tti_backend *backend = ask(TTI_MODULE_ABI, TUTTI_VERSION);
    if (backend) {
        assert_string_equal(backend->name, "cuda");
        assert_true(backend->device->count() > 0);
        return;
    }
    T_EQ(reported_status, TUTTI_E_UNSUPPORTED);
    bool no_driver = strstr(reported, "no NVIDIA driver here (libcuda.so.1)") != NULL;
    bool no_device = strstr(reported, "cuda: no device can be used: ") != NULL;
    if (!no_driver && !no_device) fail_msg("'%s'", reported);
}

/* Takes any file with the entry point. */
static const void *take_module(void *handle, const char *name, tti_str *why) {
    void *symbol = dlsym(handle, "tutti_backend_module");
    memcpy(&open_module, &symbol, sizeof open_module);
    if (!symbol) tti_str_printf(why, "no entry point of %s", name);
    return symbol;
}

int main(void) {
    tti_str tried = {0};
    if (!tti_module_find("cuda", take_module, &tried)) {
        printf("no module: tried:%s\n", tti_str_text(&tried));
        tti_str_free(&tried);
        return has_cuda_module() ? 1 : SKIPPED;
    }
    tti_str_free(&tried);
    const struct CMUnitTest tests[] = {cmocka_unit_test(programs_of_other_versions),
                                       cmocka_unit_test(this_machine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
