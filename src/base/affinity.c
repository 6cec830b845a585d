/* affinity.c - the cores of this process and their division between workers.
 *
 * Reads the affinity mask and the cgroup limits (version 2: cpu.max, version 1: cpu.cfs_quota_us),
 * walking up to the root because any ancestor may limit.  It does not look at sockets or hardware
 * threads: a worker's cores are neighbours in the kernel's numbering. */
#include "base/affinity.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum { PATH_BYTES = 4096 };

void tti_cores_allowed(tti_cores *out) {
    *out = (tti_cores){0};
    cpu_set_t *set = CPU_ALLOC(TTI_MAX_CORES);
    size_t n_bytes = CPU_ALLOC_SIZE(TTI_MAX_CORES);
    if (set && sched_getaffinity(0, n_bytes, set) == 0)
        for (size_t id = 0; id < TTI_MAX_CORES; id++)
            if (CPU_ISSET_S(id, n_bytes, set)) out->id[out->n++] = (int)id;
    CPU_FREE(set);
    if (out->n == 0) out->n = 1;
}

/* Reads a short file as text; false if it is not there. */
static bool read_text(const char *dir, const char *name, char *text, size_t n_bytes) {
    char path[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path) return false;
    FILE *f = fopen(path, "re");
    if (!f) return false;
    size_t n = fread(text, 1, n_bytes - 1, f);
    fclose(f);
    text[n] = '\0';
    return n > 0;
}

/* Cores granted by one cgroup folder, rounded up; 0: no limit here. */
static int folder_cores(const char *dir) {
    char text[128], period_text[64];
    long long quota = 0, period = 0;
    if (read_text(dir, "cpu.max", text, sizeof text)) {
        if (sscanf(text, "%lld %lld", &quota, &period) != 2) return 0; /* "max 100000" */
    } else if (read_text(dir, "cpu.cfs_quota_us", text, sizeof text) &&
               read_text(dir, "cpu.cfs_period_us", period_text, sizeof period_text)) {
        quota = atoll(text), period = atoll(period_text); /* quota -1: none */
    }
    if (quota <= 0 || period <= 0) return 0;
    long long cores = quota / period + (quota % period != 0);
    return (int)TTI_MIN(cores, TTI_MAX_CORES);
}

static int tighter(int a, int b) { return a == 0 ? b : b == 0 ? a : TTI_MIN(a, b); }

/* The tightest limit from sys_root/group up to sys_root. */
static int group_cores(const char *sys_root, const char *group) {
    char dir[PATH_BYTES];
    if (snprintf(dir, sizeof dir, "%s%s", sys_root, group) >= (int)sizeof dir) return 0;
    size_t root_bytes = strlen(sys_root);
    int cores = folder_cores(dir);
    for (char *slash; (slash = strrchr(dir, '/')) && slash >= dir + root_bytes;) {
        *slash = '\0';
        cores = tighter(cores, folder_cores(dir));
    }
    return cores;
}

/* True for "cpu" in a list such as "cpu,cpuacct". */
static bool has_cpu(const char *controllers) {
    for (const char *s = controllers; (s = strstr(s, "cpu")); s += 3)
        if ((s == controllers || s[-1] == ',') && (s[3] == '\0' || s[3] == ',')) return true;
    return false;
}

/* One line of /proc/self/cgroup: "0::/a/b" (version 2) or "4:cpu,cpuacct:/a/b" (version 1). */
static int line_cores(char *line, const char *sys_root) {
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) return 0;
    *group++ = '\0';
    controllers++;
    if (*controllers == '\0') return group_cores(sys_root, group);
    if (!has_cpu(controllers)) return 0;
    char root[PATH_BYTES];
    snprintf(root, sizeof root, "%s/cpu", sys_root); /* cpu,cpuacct has a link named cpu */
    return group_cores(root, group);
}

int tti_cgroup_cores(const char *cgroup_file, const char *sys_root) {
    FILE *f = fopen(cgroup_file, "re");
    if (!f) return 0;
    char line[PATH_BYTES];
    int cores = 0;
    while (fgets(line, sizeof line, f)) cores = tighter(cores, line_cores(line, sys_root));
    fclose(f);
    return cores;
}

static int usable_of(const tti_cores *all) {
    return tighter(all->n, tti_cgroup_cores("/proc/self/cgroup", "/sys/fs/cgroup"));
}

int tti_cores_usable(void) {
    tti_cores all;
    tti_cores_allowed(&all);
    return usable_of(&all);
}

void tti_cores_divide(const tti_cores *all, int n_usable, int r, int n_workers,
                      tti_core_share *out) {
    TTI_ASSERT(r >= 0 && r < n_workers);
    int n = TTI_MIN(n_usable, all->n);
    int each = n / n_workers;
    out->n_threads = TTI_MAX(1, each);
    out->pinned = each >= 1 && n == all->n;
    out->cores = *all;
    if (!out->pinned) return;
    out->cores.n = each;
    memmove(out->cores.id, all->id + r * each, (size_t)each * sizeof all->id[0]);
}

/* The first core after those of the first r workers: each has one, and a part of the rest by its
 * weight.
 */
static int end_by_weight(tti_core_weight_fn weight, const void *user, int n_cores, int r,
                         int n_workers) {
    int64_t before = 0, total = 0;
    for (int i = 0; i < n_workers; i++) {
        before += i < r ? weight(user, i) : 0;
        total += weight(user, i);
    }
    return r + (int)((n_cores - n_workers) * before / total);
}

void tti_cores_divide_by(const tti_cores *all, int n_usable, tti_core_weight_fn weight,
                         const void *user, int r, int n_workers, tti_core_share *out) {
    int n = TTI_MIN(n_usable, all->n);
    if (n < n_workers) {
        tti_cores_divide(all, n_usable, r, n_workers, out);
        return;
    }
    int first = end_by_weight(weight, user, n, r, n_workers);
    int last = end_by_weight(weight, user, n, r + 1, n_workers);
    *out = (tti_core_share){.n_threads = last - first, .pinned = n == all->n, .cores = *all};
    if (!out->pinned) return;
    out->cores.n = last - first;
    memmove(out->cores.id, all->id + first, (size_t)(last - first) * sizeof all->id[0]);
}

void tti_cores_share_by(tti_core_weight_fn weight, const void *user, int r, int n_workers,
                        tti_core_share *out) {
    tti_cores all;
    tti_cores_allowed(&all);
    tti_cores_divide_by(&all, usable_of(&all), weight, user, r, n_workers, out);
}

void tti_cores_share(int r, int n_workers, tti_core_share *out) {
    tti_cores all;
    tti_cores_allowed(&all);
    tti_cores_divide(&all, usable_of(&all), r, n_workers, out);
}

tutti_status tti_cores_pin(const tti_cores *cores) {
    cpu_set_t *set = CPU_ALLOC(TTI_MAX_CORES);
    if (!set) return tti_fail(TUTTI_E_NOMEM, "affinity: out of memory");
    size_t n_bytes = CPU_ALLOC_SIZE(TTI_MAX_CORES);
    CPU_ZERO_S(n_bytes, set);
    for (int i = 0; i < cores->n; i++) CPU_SET_S((size_t)cores->id[i], n_bytes, set);
    int failed = sched_setaffinity(0, n_bytes, set);
    int error = errno;
    CPU_FREE(set);
    if (!failed) return TUTTI_OK;
    return tti_fail(TUTTI_E_UNSUPPORTED, "affinity: cannot pin to %d cores from core %d: %s",
                    cores->n, cores->id[0], strerror(error));
}

void tti_cores_widen(const tti_cores *cores, tti_cores *before) {
    before->n = 0;
    if (cores->n == 0) return;
    tti_cores_allowed(before);
    if (tti_cores_pin(cores) == TUTTI_OK) return;
    tti_clear_error();
    before->n = 0;
}

void tti_cores_return(const tti_cores *before) {
    if (before->n > 0 && tti_cores_pin(before) != TUTTI_OK) tti_clear_error();
}

void tti_core_pin(int core) {
    tti_cores one = {.n = 1, .id = {core}};
    if (core >= 0 && tti_cores_pin(&one) != TUTTI_OK) tti_clear_error();
}
