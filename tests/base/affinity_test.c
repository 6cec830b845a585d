/* affinity_test.c - cores are divided without overlap, cgroup limits of both versions are found. */
#include "base/affinity.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "t.h"

T_CASE(shares_are_disjoint) {
    T_UNUSED;
    tti_cores all = {.n = 11};
    for (int i = 0; i < 11; i++) all.id[i] = 3 * i + 1;
    for (int w = 1; w <= 11; w++) {
        bool taken[64] = {false};
        for (int r = 0; r < w; r++) {
            tti_core_share share;
            tti_cores_divide(&all, 11, r, w, &share);
            assert_true(share.pinned);
            T_EQ(share.cores.n, 11 / w);
            T_EQ(share.n_threads, 11 / w);
            for (int i = 0; i < share.cores.n; i++) {
                int id = share.cores.id[i];
                T_EQ(id % 3, 1);
                assert_false(taken[id]);
                taken[id] = true;
            }
        }
    }
}

T_CASE(too_many_workers_share_unpinned) {
    T_UNUSED;
    tti_cores all = {.n = 2, .id = {4, 5}};
    tti_core_share share;
    tti_cores_divide(&all, 2, 2, 3, &share);
    assert_false(share.pinned);
    T_EQ(share.n_threads, 1);
    T_EQ(share.cores.n, 2);
    T_EQ(share.cores.id[1], 5);
}

T_CASE(a_time_limit_switches_pinning_off) {
    T_UNUSED;
    tti_cores all = {.n = 64};
    for (int i = 0; i < 64; i++) all.id[i] = i;
    tti_core_share share;
    tti_cores_divide(&all, 6, 1, 3, &share);
    assert_false(share.pinned);
    T_EQ(share.n_threads, 2);
    T_EQ(share.cores.n, 64);
}

static int listed_weight(const void *user, int worker) { return ((const int *)user)[worker]; }

/* Each core is one worker's, and none is left. */
T_CASE(parts_by_weight) {
    T_UNUSED;
    static const struct {
        int n_cores, n_workers, weights[4], parts[4];
    } rows[] = {{16, 2, {1, 4}, {3, 13}},
                {16, 2, {4, 1}, {12, 4}},
                {2, 2, {1, 4}, {1, 1}},
                {7, 3, {1, 4, 1}, {1, 4, 2}},
                {64, 4, {1, 1, 1, 4}, {9, 10, 9, 36}},
                {4, 4, {9, 1, 1, 1}, {1, 1, 1, 1}}};
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        tti_cores all = {.n = rows[i].n_cores};
        int n = 0;
        for (int c = 0; c < all.n; c++) all.id[c] = 2 * c;
        for (int r = 0; r < rows[i].n_workers; r++) {
            tti_core_share share;
            tti_cores_divide_by(&all, all.n, listed_weight, rows[i].weights, r, rows[i].n_workers,
                                &share);
            assert_true(share.pinned);
            T_EQ(share.n_threads, rows[i].parts[r]);
            T_EQ(share.cores.n, rows[i].parts[r]);
            for (int c = 0; c < share.cores.n; c++) T_EQ(share.cores.id[c], 2 * n++);
        }
        T_EQ(n, all.n);
    }
    tti_core_share share;
    tti_cores few = {.n = 8, .id = {0, 1, 2, 3, 4, 5, 6, 7}};
    tti_cores_divide_by(&few, 4, listed_weight, (int[]){1, 3}, 1, 2, &share); /* a limit of time */
    assert_false(share.pinned);
    T_EQ(share.n_threads, 3);
    tti_cores_divide_by(&few, 8, listed_weight, (int[]){1, 3, 1, 1, 1, 1, 1, 1, 1}, 1, 9, &share);
    assert_false(share.pinned);
    T_EQ(share.n_threads, 1);
}

T_CASE(own_cores) {
    T_UNUSED;
    tti_cores all, now;
    tti_cores_allowed(&all);
    assert_true(all.n >= 1);
    int usable = tti_cores_usable();
    assert_true(usable >= 1 && usable <= all.n);
    tti_core_share share;
    tti_cores_share(0, 1, &share);
    T_EQ(share.n_threads, usable);
    tti_cores last = {.n = 1, .id = {all.id[all.n - 1]}};
    T_OK(tti_cores_pin(&last));
    T_EQ(sched_getcpu(), last.id[0]);
    tti_cores_allowed(&now);
    T_EQ(now.n, 1);
    T_OK(tti_cores_pin(&all));
    tti_cores none = {.n = 1, .id = {TTI_MAX_CORES - 1}};
    T_FAILS(tti_cores_pin(&none), TUTTI_E_UNSUPPORTED, "cannot pin");
}

static char root[64];

static void put(const char *path, const char *text) {
    char full[256];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *s = full + strlen(root) + 1; (s = strchr(s, '/')); s++) {
        *s = '\0';
        mkdir(full, 0700);
        *s = '/';
    }
    FILE *f = fopen(full, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* The answer for a /proc/self/cgroup of that text. */
static int limit_of(const char *cgroup_text) {
    char file[96];
    put("cgroup", cgroup_text);
    snprintf(file, sizeof file, "%s/cgroup", root);
    return tti_cgroup_cores(file, root);
}

T_CASE(cgroup_limits) {
    T_UNUSED;
    strcpy(root, "/tmp/tutti_affinity_XXXXXX");
    assert_non_null(mkdtemp(root));
    put("a/b/cpu.max", "max 100000\n");
    put("a/cpu.max", "250000 100000\n");
    put("c/cpu.max", "1000 100000\n");
    put("bad/cpu.max", "0 0\n");
    put("cpu/old/cpu.cfs_quota_us", "400000\n");
    put("cpu/old/cpu.cfs_period_us", "100000\n");
    put("cpu/free/cpu.cfs_quota_us", "-1\n");
    put("cpu/free/cpu.cfs_period_us", "100000\n");
    T_EQ(limit_of("0::/a/b\n"), 3); /* 2.5 cores of the parent, rounded up */
    T_EQ(limit_of("0::/c\n"), 1);
    T_EQ(limit_of("0::/\n"), 0);
    T_EQ(limit_of("0::/bad\n"), 0);
    T_EQ(limit_of("5:cpuset:/old\n4:cpuacct,cpu:/old\n"), 4);
    T_EQ(limit_of("4:cpu,cpuacct:/free\n"), 0);
    T_EQ(limit_of("4:cpu,cpuacct:/old\n0::/c\n"), 1);
    T_EQ(limit_of("nonsense\n"), 0);
    T_EQ(tti_cgroup_cores("/nonexistent", root), 0);
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    T_EQ(system(command), 0);
}

static void *cores_of_thread(void *out) {
    tti_cores_allowed(out);
    return NULL;
}

static int n_cores_of_new_thread(void) {
    tti_cores found;
    pthread_t thread;
    T_EQ(pthread_create(&thread, NULL, cores_of_thread, &found), 0);
    T_EQ(pthread_join(thread, NULL), 0);
    return found.n;
}

T_CASE(threads_of_a_bound_thread_may_have_more) {
    T_UNUSED;
    tti_cores all, before, now, none = {0}, foreign = {.n = 1, .id = {TTI_MAX_CORES - 1}};
    tti_cores_allowed(&all);
    tti_core_pin(all.id[0]);
    T_EQ(n_cores_of_new_thread(), 1);
    tti_cores_widen(&all, &before);
    T_EQ(n_cores_of_new_thread(), all.n);
    tti_cores_return(&before);
    tti_cores_allowed(&now);
    T_EQ(now.n, 1);
    T_EQ(now.id[0], all.id[0]);
    for (const tti_cores *c = &none; c; c = c == &none ? &foreign : NULL) {
        tti_cores_widen(c, &before);
        T_EQ(n_cores_of_new_thread(), 1);
        tti_cores_return(&before);
    }
    T_OK(tti_cores_pin(&all));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_are_disjoint),
        cmocka_unit_test(too_many_workers_share_unpinned),
        cmocka_unit_test(a_time_limit_switches_pinning_off),
        cmocka_unit_test(parts_by_weight),
        cmocka_unit_test(own_cores),
        cmocka_unit_test(cgroup_limits),
        cmocka_unit_test(threads_of_a_bound_thread_may_have_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
