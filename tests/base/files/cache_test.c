/* cache_test.c - what was tuned once: read back whole, or not at all.  No device is needed. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/files/cache.h"

static void path_of(const char *name, char path[128]) {
    snprintf(path, 128, "%s/%s", cache_folder, name);
}

/* The bytes of a file of the cache; the caller frees them. */
static char *file_bytes(const char *name, size_t *n) {
    char path[128], *bytes = malloc(4096);
    path_of(name, path);
    FILE *file = fopen(path, "rb");
    assert_true(file && bytes);
    *n = fread(bytes, 1, 4096, file);
    fclose(file);
    return bytes;
}

static void put_bytes(const char *name, const char *bytes, size_t n) {
    char path[128];
    path_of(name, path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    T_EQ(fwrite(bytes, 1, n, file), n);
    fclose(file);
}

static void expect(const char *name, const char *key, const void *data, size_t n) {
    size_t got = 99;
    char *read = tti_cache_read(name, key, &got);
    assert_non_null(read);
    T_EQ(got, n);
    assert_memory_equal(read, data, n);
    free(read);
}

static void expect_none(const char *name, const char *key) {
    size_t got = 99;
    assert_null(tti_cache_read(name, key, &got));
    T_EQ(got, 0);
}

T_CASE(what_was_written_is_read) {
    T_UNUSED;
    static const char data[] = "tuned\0with zeros";
    expect_none("absent", "key");
    tti_cache_write("a", "key", data, sizeof data);
    expect("a", "key", data, sizeof data);
    tti_cache_write("a", "key", "less", 4); /* written over */
    expect("a", "key", "less", 4);
    tti_cache_write("none", "", data, 0);
    expect("none", "", data, 0);
}

T_CASE(another_key_is_another_file) {
    T_UNUSED;
    tti_cache_write("k", "driver 13", "xyz", 3);
    expect_none("k", "driver 12");
    expect_none("k", "driver 1");
    expect_none("k", "driver 13x"); /* a key that goes on into the data */
    expect_none("k", "");
    expect("k", "driver 13", "xyz", 3);
}

/* Each byte changed, and the file cut at each length or longer, is as good as absent. */
T_CASE(damaged_files) {
    T_UNUSED;
    size_t n;
    tti_cache_write("d", "key", "0123456789", 10);
    char *bytes = file_bytes("d", &n);
    T_EQ(n, 32 + 3 + 10);
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (char)(bytes[i] ^ 0x10);
        put_bytes("d", bytes, n);
        expect_none("d", "key");
        bytes[i] = (char)(bytes[i] ^ 0x10);
        put_bytes("d", bytes, i);
        expect_none("d", "key");
    }
    bytes[n] = 0;
    put_bytes("d", bytes, n + 1);
    expect_none("d", "key");
    put_bytes("d", bytes, n);
    expect("d", "key", "0123456789", 10);
    memset(bytes + 24, 0xFF, 8); /* a length that no file has */
    put_bytes("d", bytes, n);
    expect_none("d", "key");
    free(bytes);
}

T_CASE(why_a_file_is_not_good) {
    T_UNUSED;
    char *data;
    size_t n, got;
    T_EQ(tti_cache_find("w", "key", &data, &got), TTI_CACHE_ABSENT);
    assert_true(tti_cache_write("w", "key", "0123456789", 10));
    T_EQ(tti_cache_find("w", "other", &data, &got), TTI_CACHE_FOREIGN);
    assert_null(data);
    char *bytes = file_bytes("w", &n);
    bytes[n - 1] ^= 1;
    put_bytes("w", bytes, n);
    T_EQ(tti_cache_find("w", "key", &data, &got), TTI_CACHE_DAMAGED);
    T_EQ(tti_cache_find("w", "other", &data, &got), TTI_CACHE_DAMAGED);
    put_bytes("w", bytes, 0);
    T_EQ(tti_cache_find("w", "key", &data, &got), TTI_CACHE_DAMAGED);
    free(bytes);
    assert_true(tti_cache_write("w", "key", "0123456789", 10));
    T_EQ(tti_cache_find("w", "key", &data, &got), TTI_CACHE_GOOD);
    T_EQ(got, 10);
    free(data);
}

/* A cache that cannot be written is no failure of the run. */
T_CASE(no_place_to_write) {
    T_UNUSED;
    tti_clear_error();
    assert_false(tti_cache_write("no/such/folder", "key", "x", 1));
    assert_string_equal(tutti_last_error(), "");
    expect_none("no/such/folder", "key");
    tti_cache_write("huge", "key", "x", (size_t)1 << 40);
    expect_none("huge", "key");
    char path[128];
    path_of("folder", path);
    T_EQ(mkdir(path, 0700), 0);
    expect_none("folder", "key");
}

/* The folder is found once in a process: each row has one of its own. */
static const char *folder_of(const char *cache, const char *xdg, const char *home) {
    unsetenv("TUTTI_CACHE"), unsetenv("XDG_CACHE_HOME"), unsetenv("HOME");
    if (cache) setenv("TUTTI_CACHE", cache, 1);
    if (xdg) setenv("XDG_CACHE_HOME", xdg, 1);
    if (home) setenv("HOME", home, 1);
    return tti_cache_dir();
}

static int judge(const char *cache, const char *xdg, const char *home, const char *want) {
    pid_t child = fork();
    int status = -1;
    if (child == 0) {
        const char *got = folder_of(cache, xdg, home);
        struct stat info;
        if (strcmp(got, want) != 0) fprintf(stderr, "got '%s', not '%s'\n", got, want);
        _exit(strcmp(got, want) == 0 && (!*want || stat(want, &info) == 0) ? 0 : 1);
    }
    return waitpid(child, &status, 0) == child ? status : -1;
}

T_CASE(where_it_is) {
    T_UNUSED;
    char own[64], xdg[64], home[64], xdg_tutti[80], home_tutti[80];
    snprintf(own, sizeof own, "%s/own", cache_folder);
    snprintf(xdg, sizeof xdg, "%s/xdg", cache_folder);
    snprintf(home, sizeof home, "%s", cache_folder);
    snprintf(xdg_tutti, sizeof xdg_tutti, "%s/tutti", xdg);
    snprintf(home_tutti, sizeof home_tutti, "%s/.cache/tutti", home);
    T_EQ(judge(own, xdg, home, own), 0);
    T_EQ(judge("", xdg, home, xdg_tutti), 0);
    T_EQ(judge(NULL, "", home, home_tutti), 0);
    T_EQ(judge(NULL, NULL, NULL, ""), 0);
    T_EQ(judge("/proc/no/cache", NULL, NULL, ""), 0);
}

static void *take_lock(void *arg) {
    int *waited = arg, lock = tti_cache_lock("a", 8, 10000);
    *waited = lock >= 0;
    tti_cache_unlock(lock);
    return NULL;
}

T_CASE(one_worker_at_a_time_has_a_lock) {
    T_UNUSED;
    pthread_t thread;
    int has = 0, lock = tti_cache_lock("a", 8, 0);
    assert_true(lock >= 0);
    T_EQ(tti_cache_lock("a", 8, 5), -1); /* held */
    int other = tti_cache_lock("a", 16, 0), file = tti_cache_lock("b", 8, 0);
    assert_true(other >= 0 && file >= 0); /* of other things */
    T_EQ(pthread_create(&thread, NULL, take_lock, &has), 0);
    pid_t child = fork();
    if (child == 0) _exit(tti_cache_lock("a", 8, 5) == -1 ? 0 : 1);
    int status = -1;
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
    tti_cache_unlock(lock);
    pthread_join(thread, NULL);
    T_EQ(has, 1);
    tti_cache_unlock(other);
    tti_cache_unlock(file);
    tti_cache_unlock(-1);
}

T_CASE(a_killed_worker_leaves_no_lock) {
    T_UNUSED;
    pid_t child = fork();
    if (child == 0) {
        if (tti_cache_lock("killed", 4, 0) < 0) _exit(1);
        raise(SIGKILL);
    }
    int status = 0;
    T_EQ(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    int lock = tti_cache_lock("killed", 4, 10000);
    assert_true(lock >= 0);
    tti_cache_unlock(lock);
}

T_CASE(damaged_files_are_named) {
    T_UNUSED;
    tti_str names = {0};
    T_EQ(tti_cache_find_damaged(&names), 0); /* neither locks nor files of another key */
    tti_cache_write("cut", "key", "data", 4);
    put_bytes("cut", "tutti-cache", 11);
    T_EQ(tti_cache_find_damaged(&names), 1);
    assert_string_equal(tti_str_text(&names), "cut");
    tti_cache_write("cut", "key", "data", 4);
    T_EQ(tti_cache_find_damaged(&names), 0);
    tti_str_free(&names);
}

int main(void) {
    /* where_it_is comes first: its children must not know the folder yet. */
    const struct CMUnitTest tests[] = {cmocka_unit_test(where_it_is),
                                       cmocka_unit_test(what_was_written_is_read),
                                       cmocka_unit_test(one_worker_at_a_time_has_a_lock),
                                       cmocka_unit_test(a_killed_worker_leaves_no_lock),
                                       cmocka_unit_test(damaged_files_are_named),
                                       cmocka_unit_test(another_key_is_another_file),
                                       cmocka_unit_test(damaged_files),
                                       cmocka_unit_test(why_a_file_is_not_good),
                                       cmocka_unit_test(no_place_to_write)};
    return cmocka_run_group_tests(tests, cache_folder_enter, cache_folder_leave);
}
