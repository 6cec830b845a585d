/* module_test.c - backends by name: a file that is missing, one that is no module, one of another
 * program, and one that fits.  The only test that sets TUTTI_MODULE_PATH, which is under test too.
 * A module that was loaded stays loaded, so the refusals come first. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend.h"
#include "base/error.h"
#include "t.h"

static const tti_backend *found;

static void look_in(const char *folder, const char *kind) {
    T_EQ(setenv("TUTTI_MODULE_PATH", folder, 1), 0);
    T_EQ(setenv("TUTTI_TEST_MODULE", kind, 1), 0);
}

/* Every part is in the message, and nothing is found. */
static void expect_none(const char *part, const char *why) {
    T_FAILS(tti_backend_find("cuda", &found), TUTTI_E_UNSUPPORTED, part);
    T_FAILS(tti_backend_find("cuda", &found), TUTTI_E_UNSUPPORTED, why);
    assert_null(found);
}

T_CASE(names) {
    T_UNUSED;
    T_OK(tti_backend_find("cpu", &found));
    assert_ptr_equal(found, &tti_backend_cpu);
    T_FAILS(tti_backend_find("tpu", &found), TUTTI_E_UNSUPPORTED, "cpu and cuda are known");
    assert_null(found);
    T_FAILS(tti_backend_find("../x", &found), TUTTI_E_UNSUPPORTED, "unknown backend '../x'");
}

T_CASE(missing_file) {
    T_UNUSED;
    look_in("/nowhere", "fit");
    expect_none("backend 'cuda' is not installed here; tried:\n  /nowhere/tutti-cuda.so: not there",
                "not there");
}

static const char *lacks(const char *part) {
    return strstr(tutti_last_error(), part) ? NULL : part;
}

/* Without a folder given: beside the program, and where it would be installed. */
static const char *look_beside_the_program(void) {
    if (tti_backend_find("cuda", &found) == TUTTI_OK) return NULL; /* one is installed here */
    static const char *const parts[] = {"/tests/tutti-cuda.so: not there",
                                        "/tests/tutti/tutti-cuda.so: not there", "/tests/../lib",
                                        "\n  " TUTTI_TEST_LIBDIR "/tutti/tutti-"};
    for (size_t i = 0; i < TTI_COUNT(parts); i++)
        if (lacks(parts[i])) return parts[i];
    return NULL;
}

/* In a process of its own, since what is found stays; "" is as good as no folder. */
T_CASE(places) {
    T_UNUSED;
    for (int empty = 0; empty < 2; empty++) {
        pid_t child = fork();
        int status = -1;
        if (child == 0) {
            if (empty ? setenv("TUTTI_MODULE_PATH", "", 1) : unsetenv("TUTTI_MODULE_PATH"))
                _exit(2);
            const char *missing = look_beside_the_program();
            if (missing) fprintf(stderr, "no '%s' in: %s\n", missing, tutti_last_error());
            _exit(missing ? 1 : 0);
        }
        T_EQ(waitpid(child, &status, 0), child);
        T_EQ(status, 0);
    }
}

T_CASE(files_that_are_no_modules) {
    T_UNUSED;
    char folder[] = "/tmp/module_test_XXXXXX", path[64], text[128];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/tutti-cuda.so", folder);
    look_in(folder, "fit");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("not a shared object", file);
    fclose(file);
    snprintf(text, sizeof text, "%s: %s: ", path, path); /* dlopen's own words */
    expect_none(text, "tutti-cuda.so");
    unlink(path);
    T_EQ(mkdir(path, 0700), 0);
    expect_none(path, "annot read file data");
    rmdir(path);
    rmdir(folder);
}

T_CASE(objects_that_are_no_modules) {
    T_UNUSED;
    look_in(TUTTI_TEST_MODULES "/plain", "fit");
    expect_none("/plain/tutti-cuda.so: ", "not a module of this program");
}

T_CASE(modules_that_do_not_fit) {
    T_UNUSED;
    look_in(TUTTI_TEST_MODULES "/fake", "old");
    expect_none("/fake/tutti-cuda.so: ", "the module is of tutti 0.0.1");
    look_in(TUTTI_TEST_MODULES "/fake", "other");
    expect_none("/fake/tutti-cuda.so: ", "it is the module of 'abacus'");
    look_in(TUTTI_TEST_MODULES "/fake", "mute");
    tti_fail(TUTTI_E_IO, "a failure of long ago");
    expect_none("/fake/tutti-cuda.so: ", "it cannot be used");
}

T_CASE(a_module_stays) {
    T_UNUSED;
    const tti_backend *again;
    look_in(TUTTI_TEST_MODULES "/fake", "fit");
    T_OK(tti_backend_find("cuda", &found));
    assert_string_equal(found->name, "cuda");
    T_EQ(found->device->count(), 3);
    look_in("/nowhere", "old");
    T_OK(tti_backend_find("cuda", &again));
    assert_ptr_equal(again, found);
}

/* True if a fork of this process does not call the module again and fails with this text. */
static bool fails_in_fork(tutti_status expected, const char *text) {
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        look_in(TUTTI_TEST_MODULES "/fake", "fit");
        bool fails = tti_backend_find("cuda", &found) == expected && !found && !lacks(text);
        if (!fails) fprintf(stderr, "in the fork: %s\n", tutti_last_error());
        _exit(fails ? 0 : 1);
    }
    return waitpid(child, &status, 0) == child && status == 0;
}

/* The module may have initialized a driver, which must not be called after a fork. */
T_CASE(forks_fail_as_their_parent) {
    T_UNUSED;
    look_in(TUTTI_TEST_MODULES "/fake", "old");
    expect_none("/fake/tutti-cuda.so: ", "the module is of tutti 0.0.1");
    assert_true(fails_in_fork(TUTTI_E_UNSUPPORTED, "the module is of tutti 0.0.1"));
}

T_CASE(forks_cannot_use_the_devices_of_their_parent) {
    T_UNUSED;
    assert_true(fails_in_fork(TUTTI_E_INVALID, "start processes by spawn"));
    T_OK(tti_backend_find("cuda", &found)); /* here they can still be used */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names),
        cmocka_unit_test(missing_file),
        cmocka_unit_test(places),
        cmocka_unit_test(files_that_are_no_modules),
        cmocka_unit_test(objects_that_are_no_modules),
        cmocka_unit_test(modules_that_do_not_fit),
        cmocka_unit_test(forks_fail_as_their_parent),
        cmocka_unit_test(a_module_stays),
        cmocka_unit_test(forks_cannot_use_the_devices_of_their_parent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
