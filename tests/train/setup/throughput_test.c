/* throughput_test.c - measured workers: their numbers of shards, the reports, and that the bits
 * of the run do not change.
 *
 * Nothing here depends on how fast anything is: a worker that sleeps for each shard takes at least
 * that long, and the shares must follow from the reported figures. */
#include "train/setup/throughput.h"

#include "base/affinity.h"
#include "base/fault.h"
#include "train/small_job.h"
#include "tutti/train.h"

static void expect_shard_map(const tti_throughput *throughputs, int n, const int *n_of,
                             const char *text) {
    tti_shard_map shard_map;
    tti_str seen = {0};
    T_OK(tti_throughput_shard_map(throughputs, n, 8, &shard_map, &seen));
    for (int r = 0; r < n; r++) T_EQ(tti_shard_map_n_of(&shard_map, r), n_of[r]);
    tti_shard_map_free(&shard_map);
    assert_string_equal(tti_str_text(&seen), text);
    tti_str_free(&seen);
}

T_CASE(shares_by_throughput) {
    T_UNUSED;
    expect_shard_map((tti_throughput[]){{0.01, 1}, {0.029, 1}}, 2, (int[]){6, 2},
                     "rank 1 takes 2.9 times as long as rank 0 for a shard: 6 and 2 of 8 shards");
    expect_shard_map(
        (tti_throughput[]){{0.05, 1}, {0.01, 1}, {0.01, 1}}, 3, (int[]){1, 4, 3},
        "rank 0 takes 5.0 times as long as rank 1 for a shard: 1, 4 and 3 of 8 shards");
    expect_shard_map((tti_throughput[]){{0.02, 2}, {0.02, 1}}, 2, (int[]){5, 3},
                     "rank 1 takes 2.0 times as long as rank 0 for a shard: 5 and 3 of 8 shards");
}

T_CASE(equal_machines_are_left_alone) {
    T_UNUSED;
    expect_shard_map(
        (tti_throughput[]){{0.010, 1}, {0.0105, 1}}, 2, (int[]){4, 4},
        "rank 1 takes 1.1 times as long as rank 0 for a shard: 4 and 4 of 8 shards, because "
        "no other shard map would make a step 10 % shorter");
}

/* The number after the key and the bracket, as number i of the list. */
static double number(const char *record, const char *key, int i) {
    const char *at = strstr(record, key);
    assert_non_null(at);
    at = strchr(at, '[');
    assert_non_null(at);
    for (at++; i > 0; i--) at = strchr(at, ',') + 1;
    return strtod(at, NULL);
}

/* The line of a run's records that begins so; freed by the caller. */
static char *find_record(const char *run, const char *event) {
    char path[200], key[64], *line = NULL;
    size_t capacity = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    snprintf(key, sizeof key, "{\"event\":\"%s\"", event);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (getline(&line, &capacity, file) > 0)
        if (strncmp(line, key, strlen(key)) == 0) {
            fclose(file);
            return line;
        }
    fail_msg("%s has no record of %s", path, event);
    return NULL;
}

static tutti_train_result train(const char *run_dir, const char *a, const char *b, const char *c) {
    tutti_train_result result;
    tutti_job *job = SMALL_JOB(run_dir, a, b, c, "parallel.shards=8", "parallel.devices=cpu",
                               "model.dropout=0.2", "train.steps=8");
    T_OK(tutti_train(job, NULL, &result));
    tutti_job_destroy(job);
    return result;
}

/* The reported shares follow from the reported throughputs; n workers. */
static void expect_seen(const char *run, int n) {
    tti_throughput throughputs[8];
    tti_shard_map shard_map;
    tti_str text = {0};
    char *record = find_record(run, "shard_map");
    for (int r = 0; r < n; r++) {
        throughputs[r].group_s = number(record, "\"group_s\"", r);
        throughputs[r].n_compute_threads = (int)number(record, "\"compute_threads\"", r);
        assert_true(throughputs[r].group_s > 0 && throughputs[r].n_compute_threads >= 1);
    }
    T_OK(tti_throughput_shard_map(throughputs, n, 8, &shard_map, &text));
    for (int r = 0; r < n; r++)
        T_EQ((int)number(record, "\"shards\"", r), tti_shard_map_n_of(&shard_map, r));
    tti_shard_map_free(&shard_map);
    assert_non_null(strstr(record, tti_str_text(&text)));
    tti_str_free(&text);
    free(record);
}

static double samples_per_s(const char *run) {
    char *record = find_record(run, "end");
    const char *at = strstr(record, "\"samples_per_s\":");
    assert_non_null(at);
    double x = strtod(at + strlen("\"samples_per_s\":"), NULL);
    free(record);
    return x;
}

T_CASE(a_slow_worker_gives_shards_away) {
    T_UNUSED;
    T_OK(tti_fault_set(NULL));
    tutti_train_result alone = train("run.dir=alone", "parallel.workers=1", "train.seed=1",
                                     "parallel.load_weights=measured");
    T_OK(tti_fault_set("exec.shard:delay_ms=20@rank=1"));
    tutti_train_result equal =
        train("run.dir=equal", "parallel.workers=2", "train.seed=1", "parallel.load_weights=equal");
    tutti_train_result seen = train("run.dir=seen", "parallel.workers=2", "train.seed=1",
                                    "parallel.load_weights=measured");
    tutti_train_result served =
        train("run.dir=served", "parallel.workers=2", "parallel.sync=parameter-server",
              "parallel.load_weights=measured");
    T_OK(tti_fault_set(NULL));
    assert_true(equal.params_hash == alone.params_hash && equal.loss == alone.loss);
    assert_true(seen.params_hash == alone.params_hash && seen.loss == alone.loss);
    assert_true(served.params_hash == alone.params_hash && served.loss == alone.loss);
    expect_seen("seen", 2);
    expect_seen("served", 2);
    char *record = find_record("seen", "shard_map");
    assert_true(number(record, "\"group_s\"", 1) >= 0.02);
    print_message(
        "rank 1 sleeps 20 ms for each shard: %.0f samples/s with equal shares, %.0f with "
        "%.0f and %.0f of 8, %.0f with a parameter server\n",
        samples_per_s("equal"), samples_per_s("seen"), number(record, "\"shards\"", 0),
        number(record, "\"shards\"", 1), samples_per_s("served"));
    free(record);
}

T_CASE(several_workers_in_parts) {
    T_UNUSED;
    tutti_train_result alone =
        train("run.dir=alone", "parallel.workers=1", "train.seed=1", "train.clip_norm=0.5");
    T_OK(tti_fault_set("exec.shard:delay_ms=5@rank=0"));
    for (int zero = 0; zero <= 3; zero++) {
        char dir[32], key[32];
        snprintf(dir, sizeof dir, "run.dir=zero-%d", zero);
        snprintf(key, sizeof key, "parallel.zero=%d", zero);
        tutti_job *job = SMALL_JOB(dir, key, "parallel.workers=3", "train.clip_norm=0.5",
                                   "parallel.load_weights=measured", "parallel.shards=8",
                                   "parallel.devices=cpu", "model.dropout=0.2", "train.steps=8");
        tutti_train_result result;
        T_OK(tutti_train(job, NULL, &result));
        tutti_job_destroy(job);
        assert_true(result.params_hash == alone.params_hash && result.loss == alone.loss);
        expect_seen(dir + strlen("run.dir="), 3);
    }
    T_OK(tti_fault_set(NULL));
}

T_CASE(who_cannot_be_measured_changes_nothing) {
    T_UNUSED;
    T_OK(tti_fault_set("exec.compute:fail@1,rank=1"));
    tutti_train_result seen = train("run.dir=seen", "parallel.workers=2", "train.seed=1",
                                    "parallel.load_weights=measured");
    T_EQ(tti_fault_n_fired(), 1);
    T_OK(tti_fault_set(NULL));
    tutti_train_result alone =
        train("run.dir=alone", "parallel.workers=1", "train.seed=1", "parallel.load_weights=auto");
    assert_true(seen.params_hash == alone.params_hash);
    char *record = find_record("seen", "shard_map");
    assert_non_null(strstr(record, "\"shards\":[4,4]"));
    assert_non_null(strstr(record,
                           "rank 1 could not be measured, so shards are distributed evenly: exec: "
                           "worker 1 cannot compute"));
    free(record);
}

/* compute_s of 10 steps of two workers; *now is freed by the caller. */
static bool has_drifted(const tti_throughputs *before, double first_s, double second_s,
                        tti_throughputs *now) {
    bool drifted;
    T_OK(tti_throughput_drifted(before, (double[]){first_s, second_s}, 10, now, &drifted));
    return drifted;
}

static bool stays(const tti_throughputs *before, double first_s, double second_s) {
    tti_throughputs now;
    bool drifted = has_drifted(before, first_s, second_s, &now);
    tti_throughputs_free(&now);
    return !drifted;
}

T_CASE(speeds_that_have_changed) {
    T_UNUSED;
    tti_throughputs before = {.n = 2, .of = (tti_throughput[]){{0.01, 1}, {0.01, 1}}}, now, again;
    tti_shard_map_equally(2, 8, &before.shard_map);
    assert_true(stays(&before, 0.4, 0.41));
    assert_true(stays(&before, 0.4, 0.55)); /* not worth it */
    assert_true(has_drifted(&before, 0.4, 1.2, &now));
    T_NEAR(now.of[0].group_s, 0.01, 1e-12);
    T_NEAR(now.of[1].group_s, 0.03, 1e-12);
    T_EQ(tti_shard_map_n_of(&now.shard_map, 0), 6);
    assert_string_equal(now.text,
                        "speeds have changed: rank 1 takes 3.0 times as long as rank 0 "
                        "for a shard: 6 and 2 of 8 shards");
    assert_true(stays(&now, 0.6, 0.6)); /* and back again */
    assert_true(has_drifted(&now, 0.6, 0.2, &again));
    T_EQ(tti_shard_map_n_of(&again.shard_map, 0), 4);
    tti_throughputs_free(&now);
    tti_throughputs_free(&again);
}

/* The last of a run's records of shares. */
static char *last_shares(const char *run) {
    char path[200], *line = NULL, *last = NULL;
    size_t capacity = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (getline(&line, &capacity, file) > 0)
        if (strstr(line, "{\"event\":\"shard_map\"") == line) {
            free(last);
            last = strdup(line);
        }
    free(line);
    fclose(file);
    assert_non_null(last);
    return last;
}

T_CASE(rebalanced_in_the_run) {
    T_UNUSED;
    static const char *const more[] = {"train.ema=0", "train.ema=0", "parallel.copies=each",
                                       "parallel.sync=parameter-server"};
    tutti_train_result result[4];
    for (int i = 0; i < 4; i++) {
        char dir[32], key[32];
        snprintf(dir, sizeof dir, "run.dir=copy-%d", i);
        snprintf(key, sizeof key, "parallel.workers=%d", i ? 2 : 1);
        tutti_job *job =
            SMALL_JOB(dir, key, "parallel.load_weights=measured", "parallel.shards=8",
                      "parallel.devices=cpu", "train.steps=80", "model.dropout=0.2", more[i]);
        T_OK(tti_fault_set("throughput.drift:fail@rank=1")); /* looks a million times slower */
        T_OK(tutti_train(job, NULL, &result[i]));
        T_OK(tti_fault_set(NULL));
        tutti_job_destroy(job);
        assert_true(result[i].params_hash == result[0].params_hash);
        assert_true(result[i].loss == result[0].loss);
    }
    for (int i = 2; i < 4; i++) {
        char *record = last_shares(i == 2 ? "copy-2" : "copy-3");
        if (!strstr(record, "\"shards\":[7,1]")) fail_msg("the last record is %s", record);
        free(record);
    }
}

/* Beside devices: what the loss comes to depends on the order of sums alone. */
T_CASE(rebalanced_beside_a_device) {
    T_UNUSED;
    static const char *const slow[] = {"throughput.drift:fail@rank=0",
                                       "throughput.drift:fail@rank=1"};
    static const char *const assigned[] = {"\"shards\":[1,7]", "\"shards\":[7,1]"};
    tutti_train_result alone;
    tutti_job *whole = SMALL_JOB("run.dir=alone", "parallel.shards=8", "model.dropout=0.2",
                                 "train.steps=80", "parallel.devices=cpu");
    T_OK(tutti_train(whole, NULL, &alone));
    tutti_job_destroy(whole);
    for (int i = 0; i < 2; i++) {
        char dir[32];
        tutti_train_result result;
        snprintf(dir, sizeof dir, "run.dir=mixed-%d", i);
        tutti_job *job =
            SMALL_JOB(dir, "parallel.devices=0,cpu", "parallel.workers=2", "parallel.mode=fast",
                      "parallel.load_weights=measured", "parallel.shards=8", "model.dropout=0.2",
                      "train.steps=80", i ? "parallel.wire=f32" : "parallel.wire=bf16");
        T_OK(tti_fault_set(slow[i])); /* looks a million times slower */
        T_OK(tutti_train(job, NULL, &result));
        T_OK(tti_fault_set(NULL));
        tutti_job_destroy(job);
        T_NEAR(result.loss, alone.loss, i ? 1e-4 : 1e-2);
        char *record = last_shares(dir + strlen("run.dir="));
        if (!strstr(record, assigned[i])) fail_msg("the last record is %s", record);
        free(record);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(shares_by_throughput),
                                       cmocka_unit_test(speeds_that_have_changed),
                                       IN_FOLDER(rebalanced_in_the_run),
                                       cmocka_unit_test(equal_machines_are_left_alone),
                                       IN_FOLDER(a_slow_worker_gives_shards_away),
                                       IN_FOLDER(several_workers_in_parts),
                                       IN_FOLDER(who_cannot_be_measured_changes_nothing),
                                       IN_FOLDER(rebalanced_beside_a_device)}; /* loads a module */
    /* One core for each of two workers: with more, eight shards are one micro-batch group for
     * either. */
    tti_cores cores;
    tti_cores_allowed(&cores);
    cores.n = TTI_MIN(cores.n, 2);
    T_OK(tti_cores_pin(&cores));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
