/* blocked_test.c - the file that a blocked thread reads is named. */
#include "base/blocked.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "t.h"

static _Atomic int tid;
static int fd;

static void *read_byte(void *arg) {
    char byte;
    atomic_store(&tid, (int)syscall(SYS_gettid));
    return read(fd, &byte, 1) == 1 ? arg : NULL;
}

T_CASE(a_read_that_blocks) {
    T_UNUSED;
    char dir[] = "/tmp/blocked-XXXXXX", path[64], found[128] = "";
    pthread_t thread;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/a fifo", dir);
    T_EQ(mkfifo(path, 0600), 0);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    T_EQ(pthread_create(&thread, NULL, read_byte, NULL), 0);
    for (int i = 0; i < 2000 && strcmp(found, path) != 0; i++) {
        tti_sleep_ms(1);
        if (atomic_load(&tid)) tti_blocked_file(0, atomic_load(&tid), found, sizeof found);
    }
    assert_string_equal(found, path);
    T_EQ(write(fd, "x", 1), 1);
    pthread_join(thread, NULL);
    tti_blocked_file(0, (int)syscall(SYS_gettid), found,
                     sizeof found); /* it reads this file itself */
    tti_blocked_file(0, 0, found, sizeof found);
    assert_string_equal(found, "");
    close(fd);
    unlink(path);
    rmdir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_read_that_blocks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
