/* atomic_file_test.c - the old file survives every failure, and nothing temporary stays. */
#include "base/files/atomic_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "forked.h"

static char folder[] = "/tmp/tutti-atomic-XXXXXX";
static char path[64];

static int set_up(void **state) {
    T_UNUSED;
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

static int tear_down(void **state) {
    T_UNUSED;
    unlink(path);
    return rmdir(folder); /* fails if anything was left */
}

static int reset(void **state) {
    T_UNUSED;
    return tti_fault_set(NULL) == TUTTI_OK ? 0 : -1;
}

static int n_entries(void) {
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    int n = 0;
    while (readdir(dir)) n++;
    closedir(dir);
    return n - 2;
}

static void check_holds(const char *text) {
    char bytes[64] = "";
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    size_t n = fread(bytes, 1, sizeof bytes - 1, f);
    fclose(f);
    T_EQ(n, strlen(text));
    assert_string_equal(bytes, text);
}

T_CASE(writes_and_replaces) {
    T_UNUSED;
    T_OK(tti_atomic_file_save(path, "one", 3));
    check_holds("one");
    tti_atomic_file *f;
    T_OK(tti_atomic_file_create(path, 1000, &f)); /* reserves more than is written */
    T_OK(tti_atomic_file_write(f, "tw", 2));
    T_OK(tti_atomic_file_write(f, "", 0));
    T_OK(tti_atomic_file_write(f, "o", 1));
    check_holds("one");
    T_OK(tti_atomic_file_commit(f));
    check_holds("two");
    T_FAILS(tti_atomic_file_commit(f), TUTTI_E_INVALID, "twice");
    tti_atomic_file_destroy(f);
    check_holds("two");
    T_EQ(n_entries(), 1);
    tti_atomic_file_destroy(NULL);
}

T_CASE(destroy_without_commit_leaves_nothing) {
    T_UNUSED;
    T_OK(tti_atomic_file_save(path, "old", 3));
    tti_atomic_file *f;
    T_OK(tti_atomic_file_create(path, 0, &f));
    T_OK(tti_atomic_file_write(f, "new", 3));
    T_EQ(n_entries(), 2);
    tti_atomic_file_destroy(f);
    T_EQ(n_entries(), 1);
    check_holds("old");
}

T_CASE(messages_of_open) {
    T_UNUSED;
    tti_atomic_file *f;
    T_FAILS(tti_atomic_file_create("/nonexistent/x", 0, &f), TUTTI_E_IO, "/nonexistent/x: cannot");
    assert_null(f);
    T_FAILS(tti_dir_sync("/nonexistent"), TUTTI_E_IO, "/nonexistent: cannot open the folder");
    T_FAILS(tti_atomic_file_create(path, UINT64_MAX, &f), TUTTI_E_INVALID, "too many bytes");
    assert_null(f);
}

T_CASE(every_injected_failure) {
    T_UNUSED;
    static const char *const points[] = {"create", "reserve", "write",  "fsync",
                                         "close",  "rename",  "dirsync"};
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        T_OK(tti_fault_set(NULL));
        T_OK(tti_atomic_file_save(path, "old", 3));
        char fault[64];
        snprintf(fault, sizeof fault, "file.%s:fail=ENOSPC", points[i]);
        T_OK(tti_fault_set(fault));
        T_FAILS(tti_atomic_file_save(path, "newer", 5), TUTTI_E_IO, folder);
        T_EQ(tti_fault_n_fired(), 1); /* no retry, of fsync least of all */
        if (!strstr(tutti_last_error(), strerror(ENOSPC))) fail_msg("%s", tutti_last_error());
        T_EQ(n_entries(), 1);
        check_holds(strcmp(points[i], "dirsync") == 0 ? "newer" : "old");
    }
}

T_CASE(a_failure_is_lasting) {
    T_UNUSED;
    T_OK(tti_fault_set("file.write:fail=ENOSPC@2"));
    tti_atomic_file *f;
    T_OK(tti_atomic_file_create(path, 0, &f));
    T_OK(tti_atomic_file_write(f, "a", 1));
    T_FAILS(tti_atomic_file_write(f, "bc", 2), TUTTI_E_IO, ": 3 bytes needed, ");
    T_FAILS(tti_atomic_file_write(f, "d", 1), TUTTI_E_IO, "after a failure");
    T_FAILS(tti_atomic_file_commit(f), TUTTI_E_IO, "after a failure");
    tti_atomic_file_destroy(f);
    T_EQ(n_entries(), 1);
}

/* In a child with a file system of its own: 0 passed, FORKED_SKIPPED not permitted, else the failed
 * line. */
static int on_full_disk(void) {
    if (unshare(CLONE_NEWNS) && unshare(CLONE_NEWUSER | CLONE_NEWNS)) return FORKED_SKIPPED;
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) return FORKED_SKIPPED;
    if (mount("tmpfs", folder, "tmpfs", 0, "size=64k")) return FORKED_SKIPPED;
    static char bytes[1 << 20];
    if (tti_atomic_file_save(path, "old", 3) != TUTTI_OK) return __LINE__ & 127;
    if (tti_atomic_file_save(path, bytes, sizeof bytes) != TUTTI_E_IO) return __LINE__ & 127;
    if (!strstr(tutti_last_error(), ": 1048576 bytes needed, ")) return __LINE__ & 127;
    tti_atomic_file *f; /* nothing reserved: the write finds out */
    if (tti_atomic_file_create(path, 0, &f) != TUTTI_OK) return __LINE__ & 127;
    if (tti_atomic_file_write(f, bytes, sizeof bytes) != TUTTI_E_IO) return __LINE__ & 127;
    if (!strstr(tutti_last_error(), "No space left")) return __LINE__ & 127;
    tti_atomic_file_destroy(f);
    if (n_entries() != 1) return __LINE__ & 127;
    return tti_atomic_file_save(path, "new", 3) == TUTTI_OK ? 0 : __LINE__ & 127;
}

T_CASE(real_full_disk) {
    T_UNUSED;
    t_forked(on_full_disk);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(writes_and_replaces, reset),
        cmocka_unit_test_setup(destroy_without_commit_leaves_nothing, reset),
        cmocka_unit_test_setup(messages_of_open, reset),
        cmocka_unit_test_teardown(every_injected_failure, reset),
        cmocka_unit_test_teardown(a_failure_is_lasting, reset),
        cmocka_unit_test(real_full_disk),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
