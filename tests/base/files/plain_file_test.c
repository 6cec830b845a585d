/* plain_file_test.c - links, pipes, folders and devices are refused, without waiting. */
#include "base/files/plain_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "t.h"

static void refuses(const char *path, int flags, const char *why) {
    int fd = -2;
    T_FAILS(tti_plain_file_open(path, flags, &fd), TUTTI_E_IO, why);
    T_EQ(fd, -2);
}

T_CASE(files) {
    T_UNUSED;
    enum { WRITES = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW };
    int fd;
    T_OK(tti_plain_file_open("file", WRITES, &fd));
    T_EQ(write(fd, "x", 1), 1);
    close(fd);
    T_EQ(symlink("file", "link"), 0);
    T_EQ(symlink("nothing", "dangling"), 0);
    refuses("link", WRITES, "link: is a symbolic link");
    refuses("dangling", WRITES, "dangling: is a symbolic link");
    T_EQ(access("nothing", F_OK), -1);
    T_OK(tti_plain_file_open("link", O_RDONLY, &fd)); /* who only reads may follow */
    close(fd);
    T_EQ(mkfifo("pipe", 0600), 0);
    refuses("pipe", WRITES, "pipe: is not a regular file");
    refuses("pipe", O_RDONLY, "pipe: is not a regular file");
    refuses("/dev/null", WRITES, "/dev/null: is not a regular file");
    refuses(".", O_RDONLY, ".: is not a regular file");
    refuses("absent", O_RDONLY, "absent: No such file");
}

T_CASE(folders) {
    T_UNUSED;
    int fd = -2;
    T_EQ(mkdir("folder", 0700), 0);
    T_OK(tti_plain_folder_open("folder", &fd));
    close(fd);
    T_EQ(symlink("folder", "way"), 0);
    T_FAILS(tti_plain_folder_open("way", &fd), TUTTI_E_IO, "way: is a symbolic link");
    T_FAILS(tti_plain_folder_open("file", &fd), TUTTI_E_IO, "file: Not a directory");
    T_FAILS(tti_plain_folder_open("absent", &fd), TUTTI_E_IO, "absent: No such file");
    T_EQ(errno, ENOENT);
}

int main(void) {
    char folder[] = "/tmp/plain_file_test_XXXXXX";
    if (!mkdtemp(folder) || chdir(folder) != 0) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(files), cmocka_unit_test(folders)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    static const char *const names[] = {"file", "link", "dangling", "pipe", "way"};
    for (size_t i = 0; i < TTI_COUNT(names); i++) unlink(names[i]);
    rmdir("folder");
    rmdir(folder);
    return failed;
}
