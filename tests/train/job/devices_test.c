/* devices_test.c - what parallel.devices stands for: with a module of another version, which cannot
 * be used, and with one that has three devices.  Both are fake_module.c of tests/backend/modules,
 * which lies beside this program. */
#include "train/job/devices.h"

#include <sys/wait.h>
#include <unistd.h>

#include "train/small_job.h"

static tti_devices found;

static void set_module_usable(bool usable) {
    T_EQ(setenv("TUTTI_TEST_MODULE", usable ? "fit" : "old", 1), 0);
}

static tutti_status find_for(const char *assignment, const char *more, const char *workers) {
    tutti_job *job = SMALL_JOB(assignment, more, workers);
    tutti_status st = tti_devices_find(&job->config, &found);
    tutti_job_destroy(job);
    return st;
}

static tutti_status find(const char *assignment, const char *more) {
    return find_for(assignment, more, "parallel.workers=1");
}

static void expect_host(const char *assignment, const char *more) {
    T_OK(find(assignment, more));
    T_EQ(found.n, 0);
    assert_ptr_equal(found.backend, &tti_backend_cpu);
}

static void refuse(const char *assignment, const char *more, const char *text) {
    T_FAILS(find(assignment, more), TUTTI_E_CONFIG, text);
    T_EQ(found.n, 0);
    T_EQ(tutti_status_exit_code(TUTTI_E_CONFIG), 2);
}

/* Resolved values and where they are from, of a job with auto devices and precision. */
static void expect_resolved(tutti_job *job, const char *devices, const char *precision,
                            const char *origin) {
    T_OK(tti_devices_resolve(job, &found));
    assert_string_equal(tutti_job_get(job, "parallel.devices"), devices);
    assert_string_equal(tutti_job_get(job, "train.precision"), precision);
    char *text = tutti_job_print(job, true);
    assert_non_null(text);
    assert_non_null(strstr(text, origin));
    free(text);
}

static const char SEED[] = "train.seed=1";

T_CASE(without_devices) {
    T_UNUSED;
    set_module_usable(false);
    expect_host("parallel.devices=auto", SEED);
    assert_string_equal(tutti_last_error(), ""); /* auto: no device is not a failure */
    expect_host("parallel.devices=cpu", SEED);
    refuse("parallel.devices=gpu", SEED, "parallel.devices=gpu: no GPU can be used");
    refuse("parallel.devices=gpu", SEED, "parallel.devices=cpu computes on the host");
    refuse("parallel.devices=gpu", SEED, "/tutti-cuda.so: the module is of tutti 0.0.1");
    refuse("parallel.devices=0", SEED, "parallel.devices=0: no GPU can be used");
    tutti_job *job = SMALL_JOB(SEED);
    expect_resolved(job, "cpu", "f32", "auto, no GPU");
    T_EQ(found.n, 0);
    tutti_job_destroy(job);
}

T_CASE(precisions_of_the_host) {
    T_UNUSED;
    set_module_usable(false);
    tutti_job *job = SMALL_JOB("train.precision=tf32");
    T_FAILS(tti_devices_resolve(job, &found), TUTTI_E_CONFIG, "give train.precision=f32");
    tutti_job_set(job, "train.precision=bf16", "test");
    expect_resolved(job, "cpu", "bf16", "test");
    tutti_job_destroy(job);
    job = SMALL_JOB("train.loss_scale=128"); /* with auto, which becomes f32 */
    T_FAILS(tti_devices_resolve(job, &found), TUTTI_E_CONFIG, "train.loss_scale: is for 16-bit");
    tutti_job_destroy(job);
}

/* A malformed list is reported before devices are looked for. */
T_CASE(lists_that_are_none) {
    T_UNUSED;
    static const char *const rows[][2] = {
        {"parallel.devices=gpus", "'gpus' is neither auto, cpu, gpu nor a list of numbers"},
        {"parallel.devices=GPU", "'GPU' is neither"},
        {"parallel.devices=0,", "'0,' is neither"},
        {"parallel.devices=,0", "',0' is neither"},
        {"parallel.devices=0;1", "'0;1' is neither"},
        {"parallel.devices=0 1", "'0 1' is neither"},
        {"parallel.devices=cuda:0", "'cuda:0' is neither"},
        {"parallel.devices=-1", "there is no device -1"},
        {"parallel.devices=4294967296", "there is no device 4294967296"},
        {"parallel.devices=99999999999999999999", "there is no device 9223372036854775807"},
        {"parallel.devices=1,2,1", "device 1 is named twice"}};
    set_module_usable(false);
    for (size_t i = 0; i < TTI_COUNT(rows); i++) refuse(rows[i][0], SEED, rows[i][1]);
    char many[400] = "parallel.devices=0";
    size_t n = strlen(many);
    for (int i = 1; i <= TTI_MAX_DEVICES; i++)
        n += (size_t)snprintf(many + n, sizeof many - n, ",%d", i);
    refuse(many, SEED, "more than 64");
}

T_CASE(devices_of_a_list_are_counted_without_them) {
    T_UNUSED;
    T_EQ(tti_devices_listed("0,1,7"), 3);
    T_EQ(tti_devices_listed("3"), 1);
    static const char *const others[] = {"auto", "cpu", "gpu", "0,cpu", "gpu,cpu", "1,1", "0,"};
    for (size_t i = 0; i < TTI_COUNT(others); i++) T_EQ(tti_devices_listed(others[i]), 0);
    assert_string_equal(tutti_last_error(), "");
}

/* parallel.backend names kernels of the host; devices beside it contradict. */
T_CASE(backends_of_the_host) {
    T_UNUSED;
    static const char *const backends[] = {"parallel.backend=cpu", "parallel.backend=reference"};
    set_module_usable(true);
    for (size_t i = 0; i < TTI_COUNT(backends); i++) {
        expect_host("parallel.devices=auto", backends[i]);
        expect_host("parallel.devices=cpu", backends[i]);
        refuse("parallel.devices=gpu", backends[i], "computes on the host; leave one of the two");
        refuse("parallel.devices=0", backends[i], "computes on the host; leave one of the two");
    }
}

static void expect_devices(const char *assignment, int n, const int *index) {
    T_OK(find(assignment, SEED));
    assert_string_equal(found.backend->name, "cuda");
    T_EQ(found.n, n);
    for (int i = 0; i < n; i++) T_EQ(found.index[i], index[i]);
}

/* From here on the module stays loaded. */
T_CASE(with_devices) {
    T_UNUSED;
    set_module_usable(true);
    expect_devices("parallel.devices=auto", 3, (int[]){0, 1, 2});
    expect_devices("parallel.devices=gpu", 3, (int[]){0, 1, 2});
    expect_devices("parallel.devices=2,0", 2, (int[]){2, 0});
    expect_devices("parallel.devices=1", 1, (int[]){1});
    expect_host("parallel.devices=cpu", SEED);
    refuse("parallel.devices=0,3", SEED, "there is no device 3; this machine has 3");
    tutti_job *job = SMALL_JOB(SEED);
    expect_resolved(job, "gpu", "bf16", "auto, GPUs found");
    T_EQ(found.n, 3);
    tutti_job_destroy(job);
    job = SMALL_JOB("parallel.devices=1", "train.precision=tf32");
    expect_resolved(job, "1", "tf32", "test");
    tutti_job_destroy(job);
    job = SMALL_JOB("parallel.sync=parameter-server"); /* a part in each step is the host's */
    expect_resolved(job, "gpu", "bf16", "auto, GPUs found");
    tutti_job_destroy(job);
    job = SMALL_JOB("train.loss_scale=128"); /* bf16 may have one */
    expect_resolved(job, "gpu", "bf16", "auto, on a GPU");
    tutti_job_destroy(job);
}

/* The devices of its parent are of no use to it, and auto says so. */
T_CASE(a_fork_does_not_silently_compute_on_the_host) {
    T_UNUSED;
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        bool refused = find("parallel.devices=auto", SEED) == TUTTI_E_INVALID && found.n == 0;
        bool is_host = find("parallel.devices=cpu", SEED) == TUTTI_OK && found.n == 0;
        _exit(refused && is_host ? 0 : 1);
    }
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
}

/* The devices that the module reports: see fake_module.c. */
static void expect_shares(const char *kinds, const char *assignment, const char *shares) {
    T_EQ(setenv("TUTTI_TEST_KINDS", kinds, 1), 0);
    tutti_job *job = SMALL_JOB(assignment, SEED);
    T_OK(tti_devices_resolve(job, &found));
    assert_string_equal(tutti_job_get(job, "parallel.load_weights"), shares);
    tutti_job_destroy(job);
}

T_CASE(shares_of_devices_of_different_kinds) {
    T_UNUSED;
    set_module_usable(true);
    expect_shares("aaa", "parallel.devices=auto", "auto");
    expect_shares("aab", "parallel.devices=auto", "measured");
    expect_shares("aab", "parallel.devices=0,1", "auto");
    expect_shares("aab", "parallel.devices=1,2", "measured");
    expect_shares("aab", "parallel.devices=cpu", "auto");
    expect_shares("aab", "parallel.load_weights=equal", "equal");
    expect_shares("aaa", "parallel.load_weights=measured", "measured");
    expect_shares("", "parallel.devices=gpu", "auto"); /* nothing is known of them */
}

/* A choice that would be refused is not made. */
T_CASE(shares_of_workers_that_take_no_others) {
    T_UNUSED;
    set_module_usable(true);
    T_EQ(setenv("TUTTI_TEST_KINDS", "aab", 1), 0);
    static const char server[] = "parallel.sync=parameter-server";
    static const struct {
        const char *sync, *more, *shares;
    } rows[] = {{server, "parallel.staleness=0", "measured"}, /* takes any run of shards */
                {server, "parallel.staleness=2", "auto"},
                {server, "parallel.backup_workers=1", "auto"},
                {"parallel.sync=local", "parallel.staleness=0", "auto"}};
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        tutti_job *job = SMALL_JOB("parallel.devices=gpu", "parallel.mode=fast",
                                   "parallel.workers=3", rows[i].sync, rows[i].more);
        T_OK(tti_devices_resolve(job, &found));
        T_EQ(found.n, 3);
        assert_string_equal(tutti_job_get(job, "parallel.load_weights"), rows[i].shares);
        tutti_job_destroy(job);
    }
}

/* Places of the first four workers. */
static const struct {
    const char *assignment;
    int n, place[4], first, from;
} mixtures[] = {{"parallel.devices=0,cpu", 2, {0, TTI_ON_HOST, TTI_ON_HOST, TTI_ON_HOST}, 0, 2},
                {"parallel.devices=cpu,1", 2, {TTI_ON_HOST, 1, TTI_ON_HOST, TTI_ON_HOST}, 1, 2},
                {"parallel.devices=2,1,cpu", 3, {2, 1, TTI_ON_HOST, TTI_ON_HOST}, 2, 3},
                {"parallel.devices=cpu,cpu,0", 3, {TTI_ON_HOST, TTI_ON_HOST, 0, TTI_ON_HOST}, 0, 3},
                {"parallel.devices=gpu,cpu", 4, {0, 1, 2, TTI_ON_HOST}, 0, 2}};

static const char FAST[] = "parallel.mode=fast";

static void refuse_mixture(const char *assignment, const char *text) {
    T_FAILS(find_for(assignment, FAST, "parallel.workers=4"), TUTTI_E_CONFIG, text);
    T_EQ(found.n, 0);
}

T_CASE(host_and_devices_together) {
    T_UNUSED;
    set_module_usable(true);
    for (size_t i = 0; i < TTI_COUNT(mixtures); i++) {
        T_OK(find_for(mixtures[i].assignment, FAST, "parallel.workers=4"));
        assert_true(found.mixed);
        T_EQ(found.n, mixtures[i].n);
        for (int r = 0; r < 4; r++) T_EQ(tti_devices_place(&found, r), mixtures[i].place[r]);
        T_EQ(tti_devices_first(&found), mixtures[i].first);
        T_EQ(tti_devices_mixed_from(strchr(mixtures[i].assignment, '=') + 1), mixtures[i].from);
    }
    refuse_mixture("parallel.devices=0,cpu,0", "device 0 is named twice");
    refuse_mixture("parallel.devices=0,gpu,cpu", "device 0 is named twice");
    refuse_mixture("parallel.devices=cpu,3", "there is no device 3");
    refuse_mixture("parallel.devices=cuda:0,cpu", "'cuda:0,cpu' is neither");
    refuse_mixture("parallel.devices=cpus,1", "'cpus,1' is neither");
    refuse_mixture("parallel.devices=cpu,,1", "'cpu,,1' is neither");
    refuse_mixture("parallel.devices=0,cpu,", "'0,cpu,' is neither");
    refuse_mixture("parallel.devices=cpu,cpu", "'cpu,cpu' is neither");
    refuse_mixture("parallel.devices=0,gpu", "'0,gpu' is neither");
    tutti_job *job = SMALL_JOB("parallel.devices=0,cpu", FAST, "parallel.workers=2");
    expect_resolved(job, "0,cpu", "f32", "auto, on GPUs and the host");
    assert_string_equal(tutti_job_get(job, "parallel.load_weights"), "measured");
    tutti_job_destroy(job);
    job = SMALL_JOB("parallel.devices=gpu,cpu", FAST, "parallel.workers=3");
    T_FAILS(tti_devices_resolve(job, &found), TUTTI_E_CONFIG, "give at least parallel.workers=4");
    tutti_job_destroy(job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_devices),
        cmocka_unit_test(precisions_of_the_host),
        cmocka_unit_test(lists_that_are_none),
        cmocka_unit_test(devices_of_a_list_are_counted_without_them),
        cmocka_unit_test(backends_of_the_host),
        cmocka_unit_test(with_devices),
        cmocka_unit_test(a_fork_does_not_silently_compute_on_the_host),
        cmocka_unit_test(shares_of_devices_of_different_kinds),
        cmocka_unit_test(host_and_devices_together),
        cmocka_unit_test(shares_of_workers_that_take_no_others)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
