/* library_test.c - libraries by name: in folders given and known, and what is said of missing ones.
 * No device is needed. */
#include "backend/cuda/runtime/library.h"

#include <dlfcn.h>
#include <stdlib.h>

#include "t.h"

static const char MODULES[] = TUTTI_TEST_MODULES;

static void *open_with(const char *path, const char *const *names, tti_str *why) {
    T_EQ(path ? setenv("TUTTI_CUDA_PATH", path, 1) : unsetenv("TUTTI_CUDA_PATH"), 0);
    return tti_cuda_library(names, why);
}

/* The shared object of tests/backend/modules that is no module stands for a library. */
static bool is_plain(void *library) { return library && dlsym(library, "tti_test_plain_object"); }

T_CASE(given_folders) {
    T_UNUSED;
    static const char *const names[] = {"tutti-none.so", "tutti-cuda.so", NULL};
    tti_str why = {0}, path = {0};
    tti_str_printf(&path, "%s/plain", MODULES);
    assert_true(is_plain(open_with(tti_str_text(&path), names, &why)));
    tti_str_clear(&path);
    tti_str_printf(&path, "::/nowhere:%s/plain:", MODULES);
    assert_true(is_plain(open_with(tti_str_text(&path), names, &why)));
    T_EQ(why.n_bytes, 0);
    tti_str_free(&path);
    tti_str_free(&why);
}

T_CASE(known_folders_and_the_loader) {
    T_UNUSED;
    tti_str why = {0};

    assert_true(
        is_plain(open_with(NULL, (const char *const[]){"plain/tutti-cuda.so", NULL}, &why)));
    assert_non_null(open_with("/nowhere", (const char *const[]){"libc.so.6", NULL}, &why));
    T_EQ(why.n_bytes, 0);
    tti_str_free(&why);
}

T_CASE(missing_libraries) {
    T_UNUSED;
    static const char *const names[] = {"libtutti-none.so.9", "libtutti-none.so", NULL};
    tti_str why = {0};
    assert_null(open_with(NULL, names, &why));
    assert_non_null(
        strstr(tti_str_text(&why), "libtutti-none.so.9 or libtutti-none.so is neither"));
    assert_non_null(strstr(tti_str_text(&why), "$TUTTI_CUDA_PATH: name the folder"));
    tti_str_clear(&why);
    char path[3000];
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    assert_null(open_with(path, names, &why)); /* longer than any path: passed over */
    assert_non_null(strstr(tti_str_text(&why), "(xxxx"));
    assert_true(why.n_bytes < 600);
    tti_str_free(&why);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(given_folders),
                                       cmocka_unit_test(known_folders_and_the_loader),
                                       cmocka_unit_test(missing_libraries)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
