/* kernels_test.c - what ranks decide from what each of them has. */
#include "train/setup/kernels.h"

#include <stdio.h>

#include "backend/levels.h"
#include "comm/ranks.h"

static tti_kernel_record record(int level, const char *libraries, const char *extensions) {
    tti_kernel_record r = {.level = level, .wanted = -1};
    snprintf(r.libraries, sizeof r.libraries, "%s", libraries);
    snprintf(r.extensions, sizeof r.extensions, "%s", extensions);
    snprintf(r.caches, sizeof r.caches, "32 KiB, 1024 KiB");
    snprintf(r.host, sizeof r.host, "node-%d", level);
    return r;
}

typedef struct outcome {
    int level;
    char seen[1024];
} outcome;

static tutti_status decide(const tti_kernel_record *all, int n, bool exact, outcome *out) {
    return tti_kernels_decide(all, n, exact, &out->level, out->seen, sizeof out->seen);
}

T_CASE(alike_nothing_is_said) {
    T_UNUSED;
    outcome out;
    tti_kernel_record all[3];
    for (int i = 0; i < 3; i++) all[i] = record(TTI_CPU_AVX512, "oneDNN 2.6.3", " vnni");
    for (int exact = 0; exact < 2; exact++) {
        T_OK(decide(all, 3, exact, &out));
        T_EQ(out.level, -1);
        T_EQ(out.seen[0], '\0');
    }
}

T_CASE(exact_mode_takes_the_least_that_all_have) {
    T_UNUSED;
    outcome out;
    tti_kernel_record all[3] = {record(TTI_CPU_TILES, "oneDNN 2.6.3", " vnni bf16 amx"),
                                record(TTI_CPU_AVX2, "oneDNN 2.6.3", ""),
                                record(TTI_CPU_AVX512, "oneDNN 2.6.3", " vnni")};
    T_OK(decide(all, 3, true, &out));
    T_EQ(out.level, TTI_CPU_AVX2);
    assert_non_null(strstr(out.seen, "all ranks compute with avx2 kernels"));
    assert_non_null(strstr(out.seen, "rank 1 on node-1 has avx2"));
    assert_non_null(strstr(out.seen, "rank 0 on node-3 amx"));
    T_OK(decide(all, 3, false, &out));
    T_EQ(out.level, -1);
    assert_non_null(strstr(out.seen, "ranks compute with different kernels"));
}

/* The same level, but oneDNN could use more on one of them: it is set, so that it does not. */
T_CASE(extensions_count) {
    T_UNUSED;
    outcome out;
    tti_kernel_record all[2] = {record(TTI_CPU_AVX512, "oneDNN 2.6.3", ""),
                                record(TTI_CPU_AVX512, "oneDNN 2.6.3", " vnni")};
    T_OK(decide(all, 2, true, &out));
    T_EQ(out.level, TTI_CPU_AVX512);
    assert_non_null(strstr(out.seen, "vnni"));
}

T_CASE(other_libraries_are_refused) {
    T_UNUSED;
    outcome out;
    tti_kernel_record all[2] = {record(TTI_CPU_AVX2, "oneDNN 2.6.3", ""),
                                record(TTI_CPU_AVX2, "oneDNN 3.1.0", "")};
    T_FAILS(decide(all, 2, true, &out), TUTTI_E_CONFIG, "oneDNN 3.1.0");
    T_FAILS(decide(all, 2, true, &out), TUTTI_E_CONFIG, "parallel.mode=fast");
    T_OK(decide(all, 2, false, &out));
    assert_non_null(strstr(out.seen, "oneDNN 3.1.0"));
}

T_CASE(a_run_goes_on_with_less) {
    T_UNUSED;
    outcome out;
    tti_kernel_record all[2] = {record(TTI_CPU_TILES, "oneDNN 2.6.3", ""),
                                record(TTI_CPU_TILES, "oneDNN 2.6.3", "")};
    all[0].wanted = TTI_CPU_AVX512;
    T_OK(decide(all, 2, true, &out));
    T_EQ(out.level, TTI_CPU_AVX512);
    assert_non_null(strstr(out.seen, "continues with avx512 kernels"));
    all[1].level = TTI_CPU_AVX2; /* an unavailable level is reported when the checkpoint is read */
    T_OK(decide(all, 2, true, &out));
    T_EQ(out.level, TTI_CPU_AVX2);
    all[1].level = TTI_CPU_TILES;
    T_OK(decide(all, 2, false, &out));
    T_EQ(out.level, -1);
}

T_CASE(other_caches_are_seen) {
    T_UNUSED;
    outcome out;
    tti_kernel_record all[2] = {record(TTI_CPU_AVX2, "oneDNN 2.6.3", ""),
                                record(TTI_CPU_AVX2, "oneDNN 2.6.3", "")};
    snprintf(all[1].caches, sizeof all[1].caches, "48 KiB, 2048 KiB");
    T_OK(decide(all, 2, true, &out));
    T_EQ(out.level, -1);
    assert_non_null(strstr(out.seen, "48 KiB, 2048 KiB"));
}

static tti_kernel_record on_device(const char *host, const char *device, const char *stack) {
    tti_kernel_record r = {.wanted = -1};
    snprintf(r.host, sizeof r.host, "%s", host);
    snprintf(r.device, sizeof r.device, "%s", device);
    snprintf(r.stack, sizeof r.stack, "%s", stack);
    return r;
}

T_CASE(devices_of_other_kinds_are_refused) {
    T_UNUSED;
    outcome out;
    tti_kernel_record all[3] = {on_device("a", "H200", "cuDNN 9.8.0"),
                                on_device("a", "H200", "cuDNN 9.8.0"),
                                on_device("b", "H200", "cuDNN 9.8.0")};
    T_OK(decide(all, 3, true, &out));
    T_EQ(out.seen[0], '\0');
    all[2] = on_device("b", "A100", "cuDNN 9.8.0");
    T_FAILS(decide(all, 3, true, &out), TUTTI_E_CONFIG,
            "rank 2 on b has A100, rank 0 on a H200; leave out the other kind");
    T_OK(decide(all, 3, false, &out));
    T_EQ(out.level, -1);
    assert_string_equal(out.seen,
                        "ranks compute on different devices: rank 2 on b has A100, rank "
                        "0 on a H200");
    all[2] = on_device("b", "H200", "cuDNN 9.1.0");
    T_FAILS(decide(all, 3, true, &out), TUTTI_E_CONFIG,
            "rank 2 on b has cuDNN 9.1.0, rank 0 on a cuDNN 9.8.0; install the same driver");
    T_OK(decide(all, 3, false, &out));
    assert_non_null(strstr(out.seen, "cuDNN 9.1.0"));
}

/* A worker on the host has no device to compare, and its processor is compared with theirs. */
T_CASE(devices_beside_the_host) {
    T_UNUSED;
    outcome out;
    tti_kernel_record all[3] = {on_device("a", "", ""), on_device("a", "H200", "cuDNN 9.8.0"),
                                on_device("b", "H200", "cuDNN 9.8.0")};
    T_OK(decide(all, 3, false, &out));
    T_EQ(out.seen[0], '\0');
    all[2].level = TTI_CPU_AVX2;
    T_OK(decide(all, 3, false, &out));
    assert_non_null(strstr(out.seen, "ranks compute with different kernels"));
    all[2] = on_device("b", "A100", "cuDNN 9.8.0");
    T_OK(decide(all, 3, false, &out));
    assert_non_null(strstr(out.seen, "rank 2 on b has A100, rank 1 on a H200"));
}

T_CASE(damaged_records) {
    T_UNUSED;
    outcome out;
    tti_kernel_record all[2] = {record(TTI_CPU_AVX2, "a", ""), record(TTI_CPU_AVX2, "a", "")};
    all[1].level = TTI_CPU_N_LEVELS;
    T_FAILS(decide(all, 2, true, &out), TUTTI_E_INTERNAL, "rank 1");
    all[1] = all[0];
    memset(all[1].host, 'x', sizeof all[1].host);
    T_FAILS(decide(all, 2, false, &out), TUTTI_E_INTERNAL, "rank 1");
    all[1] = all[0];
    memset(all[1].device, 'x', sizeof all[1].device);
    T_FAILS(decide(all, 2, false, &out), TUTTI_E_INTERNAL, "rank 1");
    all[1] = all[0];
    memset(all[1].stack, 'x', sizeof all[1].stack);
    T_FAILS(decide(all, 2, false, &out), TUTTI_E_INTERNAL, "rank 1");
}

static const char *agree(tutti_comm *comm, void *arg) {
    char seen[1024];
    (void)arg;
    tti_devices host = {.backend = &tti_backend_cpu};
    tti_kernel_query query = {.comm = comm, .devices = &host, .exact = true};
    COMM_OK(tti_agree_on_kernels(&query, seen, sizeof seen));
    COMM_TRUE(seen[0] == '\0');
    return NULL;
}

T_CASE(ranks_of_one_machine_agree) {
    T_UNUSED;
    comm_run(3, agree, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alike_nothing_is_said),
        cmocka_unit_test(exact_mode_takes_the_least_that_all_have),
        cmocka_unit_test(extensions_count),
        cmocka_unit_test(other_libraries_are_refused),
        cmocka_unit_test(a_run_goes_on_with_less),
        cmocka_unit_test(other_caches_are_seen),
        cmocka_unit_test(devices_of_other_kinds_are_refused),
        cmocka_unit_test(devices_beside_the_host),
        cmocka_unit_test(damaged_records),
        cmocka_unit_test(ranks_of_one_machine_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
