/* user_key_test.c - one private key for all processes that start together, also where they find
 * a damaged file; what is not the user's own file is refused. */
#include "launch/user_key.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files/cache.h"
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

/* All processes get one key, and the file is private and whole. */
static void expect_one_key(void) {
    char first[128], key[128];
    int ends[2], status;
    struct stat info;
    T_EQ(pipe(ends), 0);
    for (int i = 0; i < N_PROCESSES; i++)
        if (fork() == 0)
            _exit(tti_user_key(key, sizeof key) != TUTTI_OK || write(ends[1], key, 64) != 64);
    for (int i = 0; i < N_PROCESSES; i++) {
        assert_true(wait(&status) > 0);
        T_EQ(status, 0);
    }
    T_OK(tti_user_key(first, sizeof first));
    T_EQ(strspn(first, "0123456789abcdef"), N_CHARS);
    for (int i = 0; i < N_PROCESSES; i++) {
        T_EQ(read(ends[0], key, N_CHARS), N_CHARS);
        assert_memory_equal(key, first, N_CHARS);
    }
    T_EQ(stat(path, &info), 0);
    T_EQ(info.st_mode & 0777, 0600);
    T_EQ(info.st_size, N_CHARS);
    close(ends[0]);
    close(ends[1]);
}

T_CASE(processes_that_start_together) {
    T_UNUSED;
    expect_one_key();
}

/* Also by processes that start together. */
T_CASE(a_damaged_file_is_replaced) {
    T_UNUSED;
    char text[N_CHARS + 2], key[128];
    memset(text, 'a', N_CHARS + 1);
    text[N_CHARS + 1] = '\0';
    const struct {
        int n_chars, mode;
    } damaged[] = {{0, 0600}, {5, 0600}, {N_CHARS + 1, 0600}, {N_CHARS, 0640}, {N_CHARS, 0444}};
    for (size_t i = 0; i < TTI_COUNT(damaged); i++)
        for (int again = 0; again < 5; again++) {
            char part[N_CHARS + 2];
            snprintf(part, sizeof part, "%.*s", damaged[i].n_chars, text);
            write_file(part, damaged[i].mode);
            expect_one_key();
            T_OK(tti_user_key(key, sizeof key));
            assert_memory_not_equal(key, text, N_CHARS);
        }
    text[3] = 'x', text[N_CHARS] = '\0'; /* no hexadecimal digit */
    write_file(text, 0600);
    expect_one_key();
    unlink(path);
}

static void expect_refusal(const char *why) {
    char key[128];
    T_FAILS(tti_user_key(key, sizeof key), TUTTI_E_CONFIG, why);
    T_FAILS(tti_user_key(key, sizeof key), TUTTI_E_CONFIG, path);
    T_FAILS(tti_user_key(key, sizeof key), TUTTI_E_CONFIG, "Delete it");
    T_EQ(key[0], 0);
}

T_CASE(what_is_not_our_file_is_refused_and_kept) {
    T_UNUSED;
    struct stat info;
    char text[N_CHARS + 1], other[300];
    memset(text, 'a', N_CHARS);
    text[N_CHARS] = '\0';
    unlink(path);
    T_EQ(mkfifo(path, 0600), 0);
    expect_refusal("is not a regular file");
    T_EQ(unlink(path), 0);
    write_file("short", 0600);
    snprintf(other, sizeof other, "%s-other", path);
    T_EQ(rename(path, other), 0);
    T_EQ(symlink(other, path), 0);
    expect_refusal("is a symbolic link");
    T_EQ(stat(path, &info), 0);
    T_EQ(info.st_size, 5); /* not written through the link */
    T_EQ(unlink(path) | unlink(other), 0);
    T_EQ(mkdir(path, 0700), 0);
    expect_refusal("is not a regular file");
    T_EQ(rmdir(path), 0);
    if (geteuid() != 0) return;
    write_file(text, 0600);
    T_EQ(chown(path, 65534, 65534), 0); /* made by another user in a shared folder */
    expect_refusal("belongs to another user");
    T_EQ(unlink(path), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_that_start_together),
        cmocka_unit_test(a_damaged_file_is_replaced),
        cmocka_unit_test(what_is_not_our_file_is_refused_and_kept),
    };
    char cache[] = "/tmp/tutti-key-XXXXXX";
    if (!mkdtemp(cache) || setenv("TUTTI_CACHE", cache, 1) != 0) return 1;
    snprintf(path, sizeof path, "%s/rendezvous-key-%u", cache, (unsigned)geteuid());
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    return rmdir(cache) == 0 ? n_failed : 1; /* no draft is left */
}
