/* memory_room_test.c - what is left of memory, by files as Linux has them in /proc and in control
 * groups of both versions. */
#include "base/memory_room.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "t.h"

static char root[256];

static int enter(void **state) {
    T_UNUSED;
    snprintf(root, sizeof root, "/tmp/tutti-memory-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int leave(void **state) {
    T_UNUSED;
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

/* A file below root, with the folders that it needs. */
static void put(const char *path, const char *text) {
    char full[512], command[600];
    snprintf(full, sizeof full, "%s/%s", root, path);
    snprintf(command, sizeof command, "mkdir -p \"$(dirname '%s')\"", full);
    assert_int_equal(system(command), 0);
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void expect(uint64_t n_bytes, const char *limit) {
    tti_memory_room room;
    tti_memory_find_room(root, &room);
    T_EQ(room.n_bytes, n_bytes);
    assert_string_equal(room.limit, limit);
}

static void put_machine(void) {
    put("proc/meminfo",
        "MemTotal:  9000 kB\nMemFree: 10 kB\nMemAvailable:    5000 kB\n"
        "SwapTotal: 99 kB\nSwapFree:   100 kB\n");
}

T_CASE(a_machine_without_groups) {
    T_UNUSED;
    expect(UINT64_MAX, "");
    put_machine();
    expect(5100 * 1024, "the free memory of this machine");
    put("proc/self/cgroup", "damaged\n0::/\n");
    expect(5100 * 1024, "the free memory of this machine");
}

/* The tightest group around the process counts; the page cache is given back. */
T_CASE(groups_of_version_2) {
    T_UNUSED;
    put_machine();
    put("proc/self/cgroup", "0::/a/b\n");
    put("sys/fs/cgroup/a/b/memory.max", "max\n");
    put("sys/fs/cgroup/a/b/memory.high", "max\n");
    put("sys/fs/cgroup/a/b/memory.current", "900000\n");
    expect(5100 * 1024, "the free memory of this machine");
    put("sys/fs/cgroup/a/memory.max", "3000000\n");
    put("sys/fs/cgroup/a/memory.current", "1000000\n");
    put("sys/fs/cgroup/a/memory.swap.max", "0\n");
    expect(2000000, "memory.max of the cgroup /a");
    put("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 300000\nactive_file 200000\n");
    expect(2500000, "memory.max of the cgroup /a");
    put("sys/fs/cgroup/a/memory.swap.max", "max\n");
    expect(2500000 + 100 * 1024, "memory.max of the cgroup /a");
    put("sys/fs/cgroup/a/b/memory.high", "1000000\n");
    expect(100000 + 100 * 1024, "memory.high of the cgroup /a/b");
    put("sys/fs/cgroup/a/b/memory.high", "1\n"); /* it has more than it may */
    expect(100 * 1024, "memory.high of the cgroup /a/b");
}

/* In a container: the path is the host's, the group itself is what is mounted. */
T_CASE(groups_of_version_1) {
    T_UNUSED;
    put_machine();
    put("proc/self/cgroup", "4:memory:/docker/0123\n3:cpuset:/docker/0123\n0::/\n");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("sys/fs/cgroup/memory/memory.usage_in_bytes", "4000000\n");
    expect(5100 * 1024, "the free memory of this machine");
    put("sys/fs/cgroup/memory/memory.limit_in_bytes", "5000000\n");
    put("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 1000\n");
    expect(1001000 + 100 * 1024, "memory.limit_in_bytes of the cgroup /");
}

T_CASE(address_space) {
    T_UNUSED;
    struct rlimit old, low;
    tti_memory_room room;
    assert_int_equal(getrlimit(RLIMIT_AS, &old), 0);
    if (old.rlim_cur != RLIM_INFINITY) skip();
    tti_memory_find_room("", &room);
    T_EQ(room.own, UINT64_MAX);
    assert_true(room.n_bytes > 0 && room.n_bytes < UINT64_MAX);
    assert_true(tti_memory_can_map((size_t)1 << 40));
    low = (struct rlimit){(rlim_t)1 << 46, old.rlim_max}; /* AddressSanitizer maps 20 TB */
    assert_int_equal(setrlimit(RLIMIT_AS, &low), 0);
    tti_memory_find_room("", &room);
    bool fits = tti_memory_can_map((size_t)1 << 20), all = tti_memory_can_map((size_t)1 << 46);
    assert_int_equal(setrlimit(RLIMIT_AS, &old), 0);
    assert_true(room.own < (uint64_t)1 << 46);
    if (room.own > 0) assert_true(fits);
    assert_false(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_machine_without_groups, enter, leave),
        cmocka_unit_test_setup_teardown(groups_of_version_2, enter, leave),
        cmocka_unit_test_setup_teardown(groups_of_version_1, enter, leave),
        cmocka_unit_test(address_space)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
