/* memory_room.c - /proc/meminfo, control groups and RLIMIT_AS as one number each. */
#include "base/memory_room.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 + 256, LINE_BYTES = 4096 };

/* Joins up to three parts; false: too long. */
static bool join(char out[PATH_BYTES], const char *a, const char *b, const char *c) {
    return snprintf(out, PATH_BYTES, "%s%s%s", a, b, c) < PATH_BYTES;
}

/* The number after a word at the start of a line, such as "MemAvailable:"; fallback if there is
 * none. */
static uint64_t field(const char *path, const char *word, uint64_t fallback) {
    char line[LINE_BYTES];
    size_t n = strlen(word);
    uint64_t value = fallback;
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, word, n) == 0 && (line[n] == ' ' || line[n] == '\t')) {
            value = strtoull(line + n, NULL, 10);
            break;
        }
    if (file) fclose(file);
    return value;
}

/* The number that a file consists of; "max" and what cannot be read: fallback. */
static uint64_t number(const char *dir, const char *name, uint64_t fallback) {
    char path[PATH_BYTES], line[64];
    char *end = line;
    FILE *file = join(path, dir, "/", name) ? fopen(path, "re") : NULL;
    uint64_t value = fallback;
    if (file && fgets(line, sizeof line, file)) value = strtoull(line, &end, 10);
    if (file) fclose(file);
    return end == line ? fallback : value;
}

static uint64_t less(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

static void take(tti_memory_room *out, uint64_t n_bytes, const char *name, const char *group) {
    if (n_bytes >= out->n_bytes) return;
    out->n_bytes = n_bytes;
    snprintf(out->limit, sizeof out->limit, "%s of the cgroup %.100s", name, *group ? group : "/");
}

/* The page cache of a group counts as used, but is released when memory runs short. */
static uint64_t cached(const char *dir, const char *prefix) {
    char path[PATH_BYTES], word[64];
    uint64_t sum = 0;
    static const char *const kinds[] = {"inactive_file", "active_file"};
    if (!join(path, dir, "/", "memory.stat")) return 0;
    for (int i = 0; i < 2; i++) {
        snprintf(word, sizeof word, "%s%s", prefix, kinds[i]);
        sum += field(path, word, 0);
    }
    return sum;
}

static void look_at_v2(const char *dir, const char *group, uint64_t swap, tti_memory_room *out) {
    static const char *const limits[] = {"memory.max", "memory.high"};
    uint64_t used = less(number(dir, "memory.current", 0), cached(dir, ""));
    uint64_t swap_limit = number(dir, "memory.swap.max", UINT64_MAX);
    uint64_t own_swap = less(swap_limit, number(dir, "memory.swap.current", 0));
    if (own_swap < swap) swap = own_swap;
    for (int i = 0; i < 2; i++) {
        uint64_t limit = number(dir, limits[i], UINT64_MAX);
        if (limit != UINT64_MAX) take(out, less(limit, used) + swap, limits[i], group);
    }
}

static void look_at_v1(const char *dir, const char *group, uint64_t swap, tti_memory_room *out) {
    uint64_t limit = number(dir, "memory.limit_in_bytes", UINT64_MAX);
    uint64_t used = less(number(dir, "memory.usage_in_bytes", 0), cached(dir, "total_"));
    if (limit < (uint64_t)1 << 62) /* else there is none */
        take(out, less(limit, used) + swap, "memory.limit_in_bytes", group);
}

typedef void (*look_fn)(const char *dir, const char *group, uint64_t swap, tti_memory_room *out);

/* Visits a group and all its ancestors; in a container the path may be that of the host, and the
 * mount point is the container's own group. */
static void look_upwards(const char *mount, char *group, look_fn look, uint64_t swap,
                         tti_memory_room *out) {
    char dir[PATH_BYTES];
    for (;;) {
        char *slash = strrchr(group, '/');
        if (join(dir, mount, group, "")) look(dir, group, swap, out);
        if (!slash) return;
        *slash = '\0';
    }
}

/* A line of /proc/self/cgroup, "NUMBER:CONTROLLERS:PATH". */
static void look_at_group(const char *root, char *line, uint64_t swap, tti_memory_room *out) {
    char mount[PATH_BYTES];
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) return;
    *controllers++ = *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    if (strcmp(group, "/") == 0) *group = '\0';
    if (!*controllers && join(mount, root, "/sys/fs/cgroup", ""))
        look_upwards(mount, group, look_at_v2, swap, out);
    if (strcmp(controllers, "memory") == 0 && join(mount, root, "/sys/fs/cgroup/memory", ""))
        look_upwards(mount, group, look_at_v1, swap, out);
}

static void look_at_groups(const char *root, uint64_t swap, tti_memory_room *out) {
    char path[PATH_BYTES], line[LINE_BYTES];
    FILE *file = join(path, root, "/proc/self/cgroup", "") ? fopen(path, "re") : NULL;
    while (file && fgets(line, sizeof line, file)) look_at_group(root, line, swap, out);
    if (file) fclose(file);
}

/* The address space left under RLIMIT_AS. */
static uint64_t own_room(const char *root) {
    char path[PATH_BYTES];
    struct rlimit limit;
    bool is_limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    if (!is_limited || !join(path, root, "/proc/self", "")) return UINT64_MAX;
    return less(limit.rlim_cur, number(path, "statm", 0) * (uint64_t)sysconf(_SC_PAGESIZE));
}

void tti_memory_find_room(const char *root, tti_memory_room *out) {
    char path[PATH_BYTES];
    *out = (tti_memory_room){.n_bytes = UINT64_MAX, .own = own_room(root)};
    if (!join(path, root, "/proc/meminfo", "")) return;
    uint64_t available = field(path, "MemAvailable:", UINT64_MAX / 1024);
    uint64_t swap = field(path, "SwapFree:", 0) * 1024;
    if (available < UINT64_MAX / 1024) {
        out->n_bytes = available * 1024 + swap;
        snprintf(out->limit, sizeof out->limit, "the free memory of this machine");
    }
    look_at_groups(root, swap, out);
}

bool tti_memory_can_map(size_t n_bytes) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return true;
    void *room = mmap(NULL, n_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED) return false;
    munmap(room, n_bytes);
    return true;
}

uint64_t tti_memory_peak(void) { return field("/proc/self/status", "VmHWM:", 0) * 1024; }
