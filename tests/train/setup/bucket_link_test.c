/* bucket_link_test.c - how long buckets are by link, job and size of the model. */
#include "train/setup/bucket_link.h"

#include <math.h>

#include "base/cache_folder.h"
#include "exec/device/bench/sum_table.h"
#include "train/small_job.h"

static void describe(tti_str *str) { tti_str_add(str, "driver 13"); }
static void kind(int index, tti_str *str) { tti_str_printf(str, "new%s", index < 8 ? "" : "er"); }

static const tti_device_ops ops = {.kind = kind, .collectives.describe_library = describe};
static const tti_backend backend = {.name = "fake", .device = &ops, .describe = describe};
static const tti_devices host = {.backend = &tti_backend_cpu};
static const tti_devices eight = {.backend = &backend, .n = 8, .index = {0, 1, 2, 3, 4, 5, 6, 7}};

static tti_bucket_link link_on(const tti_devices *devices, int n_workers, int n_hosts,
                               const char *assignment) {
    tti_bucket_link link;
    tutti_job *job = SMALL_JOB("parallel.mode=fast", assignment);
    tti_bucket_link_of(&job->config, devices, n_workers, n_hosts, &link);
    tutti_job_destroy(job);
    return link;
}

static tti_plan_desc applied(const tti_bucket_link *link, const char *assignment) {
    tti_plan_desc desc = {.bucket_bytes = 1};
    tutti_job *job = SMALL_JOB("parallel.zero=0", assignment);
    tti_bucket_link_apply(link, &job->config, &desc);
    tutti_job_destroy(job);
    return desc;
}

/* Latency is a twentieth of a bucket's bytes, and of a longer model's their root. */
T_CASE(size_by_latency_and_bandwidth) {
    T_UNUSED;
    const tti_bucket_link link = {"a link", 1e-5, 1e9, 3e-5, 0};
    tti_plan_desc desc = applied(&link, "parallel.bucket_mb=auto");
    double bytes = (double)desc.bucket_bytes;
    assert_true(fabs(link.latency_s / (link.latency_s + bytes / link.bytes_s) - 0.05) < 1e-4);
    assert_true(fabs(desc.bucket_growth - 4e4) < 1e-6);
    T_EQ(desc.bucket_most, 0);
    /* The costs of each bucket and of the last one: neither more nor fewer buckets cost less. */
    double flat = 4e9, n = sqrt(flat * desc.bucket_growth);
    double cost = flat / n * 4e-5 + n / 1e9;
    assert_true(n > bytes);
    for (double other = n / 4; other < 4 * n; other *= 1.1)
        assert_true(flat / other * 4e-5 + other / 1e9 >= cost);
}

T_CASE(what_the_job_says_goes_first) {
    T_UNUSED;
    const tti_bucket_link link = {"a link", 1e-5, 1e9, 3e-5, 1000};
    tti_plan_desc desc = applied(&link, "parallel.bucket_mb=2");
    T_EQ(desc.bucket_bytes, 2 << 20);
    assert_true(desc.bucket_growth == 0);
    T_EQ(desc.bucket_most, 0);
}

T_CASE(a_link_that_cannot_be) {
    T_UNUSED;
    const tti_bucket_link link = {"a link", 1e6, 1e18, 1e6, 0};
    tti_plan_desc desc = applied(&link, "parallel.bucket_mb=auto");
    T_EQ(desc.bucket_bytes, (size_t)1 << 32);
    assert_true(desc.bucket_growth <= 0x1p32);
}

static void expect(const tti_bucket_link *link, const char *name) {
    assert_string_equal(link->name, name);
    assert_true(link->latency_s > 0 && link->bytes_s > 0 && link->taken_s >= 0);
}

T_CASE(links_of_jobs) {
    T_UNUSED;
    const tti_devices mixed = {.backend = &backend, .n = 1, .mixed = true};
    static const char any[] = "parallel.algorithm=auto";
    tti_bucket_link link = link_on(&host, 2, 1, any);
    expect(&link, "threads of one process");
    link = link_on(&host, 2, 1, "parallel.place=processes");
    expect(&link, "memory of one host");
    link = link_on(&host, 4, 2, any);
    expect(&link, "a network of hosts");
    link = link_on(&eight, 8, 1, any);
    expect(&link, "devices with peer access");
    link = link_on(&eight, 16, 2, any);
    expect(&link, "devices of several hosts");
    link = link_on(&eight, 9, 1, any);
    expect(&link, "devices through their host");
    link = link_on(&mixed, 2, 1, any);
    expect(&link, "devices through their host");
    link = link_on(&eight, 8, 1, "parallel.sync=local");
    expect(&link, "devices through their host");
    link = link_on(&eight, 8, 1, "parallel.compress=topk");
    expect(&link, "devices that compress");
    link = link_on(&eight, 9, 1, "parallel.compress=topk");
    expect(&link, "devices through their host");
    link = link_on(&eight, 8, 1, "parallel.offload=optimizer");
    expect(&link, "copies to the host");
}

/* Workers of a divided model send everything through the host where something of it is left there.
 */
T_CASE(links_of_divided_models) {
    T_UNUSED;
    static const struct {
        const char *cut, *key;
        int n_workers;
        bool host_staged;
    } rows[] = {{"parallel.tensor=2", "parallel.zero=2", 4, true},
                {"parallel.tensor=2", "parallel.zero=2", 2, false},
                {"parallel.pipeline=2", "parallel.zero=1", 4, false},
                {"parallel.tensor=2", "parallel.sync_batch_norm=true", 4, true},
                {"parallel.tensor=2", "parallel.sync_batch_norm=true", 2, false},
                {"parallel.pipeline=2", "parallel.sync_batch_norm=true", 2, true}};
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        tti_bucket_link link;
        tutti_job *job = SMALL_JOB("parallel.workers=4", rows[i].cut, rows[i].key);
        tti_bucket_link_of(&job->config, &eight, rows[i].n_workers, 1, &link);
        tutti_job_destroy(job);
        expect(&link,
               rows[i].host_staged ? "devices through their host" : "devices with peer access");
    }
}

/* Buckets that exist only in flight are not made longer. */
T_CASE(short_ones_where_they_save_memory) {
    T_UNUSED;
    T_EQ(link_on(&eight, 2, 1, "parallel.zero=1").most_bytes, 0);
    T_EQ(link_on(&eight, 2, 1, "parallel.zero=3").most_bytes, 32 << 20);
    T_EQ(link_on(&host, 2, 1, "parallel.zero=2").most_bytes, 4 << 20);
}

static void keep_table(int n, const char *text) {
    tti_sum_kind kinds[TTI_SUM_DEVICES];
    char key[TTI_SUM_KEY];
    tti_sum_table table;
    for (int i = 0; i < n; i++) tti_sum_table_kind(&backend, i, &kinds[i]);
    tti_sum_table_key(&backend, kinds, n, key);
    T_OK(tti_sum_table_parse(text, strlen(text), &table));
    assert_true(tti_sum_table_save(key, n, &table));
}

/* Figures of the selected algorithm; an algorithm that was not measured has the known ones. */
T_CASE(measured_by_doctor) {
    T_UNUSED;
    static const char name[] = "devices, from the table of tutti doctor";
    keep_table(2,
               "library NCCL 2.28.9\nbytes direct tree ring\n4096 5 15 -\n1000000 10 20 -\n"
               "3000000 20 60 -\n");
    tti_bucket_link link = link_on(&eight, 2, 1, "parallel.algorithm=auto");
    expect(&link, name);
    assert_true(fabs(link.latency_s - 5e-6) < 1e-12 && fabs(link.bytes_s / 200e9 - 1) < 1e-9);
    assert_true(link.taken_s > 0);
    link = link_on(&eight, 2, 1, "parallel.algorithm=tree");
    expect(&link, name);
    assert_true(fabs(link.latency_s - 15e-6) < 1e-12 && fabs(link.bytes_s / 50e9 - 1) < 1e-9);
    link = link_on(&eight, 3, 1, "parallel.algorithm=auto");
    expect(&link, "devices with peer access");
    link = link_on(&eight, 2, 2, "parallel.algorithm=auto");
    expect(&link, "devices of several hosts");
    keep_table(2, "library NCCL 2.28.9\nbytes direct tree ring\n4096 - 15 -\n1000000 - 15 -\n");
    link = link_on(&eight, 2, 1, "parallel.algorithm=auto");
    expect(&link, "devices with peer access");
    link = link_on(&eight, 2, 1, "parallel.algorithm=tree");
    expect(&link, "devices with peer access");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(size_by_latency_and_bandwidth),
        cmocka_unit_test(what_the_job_says_goes_first),
        cmocka_unit_test(a_link_that_cannot_be),
        cmocka_unit_test(links_of_jobs),
        cmocka_unit_test(links_of_divided_models),
        cmocka_unit_test(short_ones_where_they_save_memory),
        cmocka_unit_test(measured_by_doctor),
    };
    return cmocka_run_group_tests(tests, cache_folder_enter, cache_folder_leave);
}
