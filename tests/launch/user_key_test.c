/* user_key_test.c - one private key for all processes that start together; files that are not
 * private, damaged or foreign give none. */
#include "launch/user_key.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cache.h"
#include "t.h"

enum { N_PROCESSES = 8, N_CHARS = 64 };

static char path[256];

static void write_file(const char *text, int mode) {
    unlink(path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    T_EQ(fchmod(fd, (mode_t)mode), 0);
    T_EQ(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

T_CASE(processes_that_start_together) {
    T_UNUSED;
    char first[128], key[128];
    int ends[2], status;
    struct stat info;
    T_EQ(pipe(ends), 0);
    for (int i = 0; i < N_PROCESSES; i++)
        if (fork() == 0) _exit(!tti_user_key(key, sizeof key) || write(ends[1], key, 64) != 64);
    for (int i = 0; i < N_PROCESSES; i++) {
        assert_true(wait(&status) > 0);
        T_EQ(status, 0);
    }
    assert_true(tti_user_key(first, sizeof first));
    T_EQ(strspn(first, "0123456789abcdef"), N_CHARS);
    for (int i = 0; i < N_PROCESSES; i++) {
        T_EQ(read(ends[0], key, N_CHARS), N_CHARS);
        assert_memory_equal(key, first, N_CHARS);
    }
    T_EQ(stat(path, &info), 0);
    T_EQ(info.st_mode & 0777, 0600);
    close(ends[0]);
    close(ends[1]);
}

static void expect_none(void) {
    char key[128];
    assert_false(tti_user_key(key, sizeof key));
    T_EQ(key[0], 0);
    unlink(path);
}

T_CASE(files_that_give_no_key) {
    T_UNUSED;
    char text[N_CHARS + 1];
    memset(text, 'a', N_CHARS);
    text[N_CHARS] = '\0';
    write_file(text, 0640); /* readable by others */
    expect_none();
    write_file("short", 0600);
    expect_none();
    T_EQ(mkfifo(path, 0600), 0);
    expect_none();
    T_EQ(symlink("/dev/zero", path), 0);
    expect_none();
    if (geteuid() != 0) return;
    write_file(text, 0600);
    T_EQ(chown(path, 65534, 65534), 0); /* made by another user in a shared folder */
    expect_none();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_that_start_together),
        cmocka_unit_test(files_that_give_no_key),
    };
    char cache[] = "/tmp/tutti-key-XXXXXX";
    if (!mkdtemp(cache) || setenv("TUTTI_CACHE", cache, 1) != 0) return 1;
    snprintf(path, sizeof path, "%s/rendezvous-key-%u", cache, (unsigned)geteuid());
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    return rmdir(cache) == 0 ? n_failed : 1; /* no draft is left */
}
