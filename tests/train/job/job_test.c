/* job_test.c - jobs from files and assignments; every bad input with its message; printing reads
 * back; what resolve works out; the examples and docs/job.md as they stand. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "t.h"
#include "train/job/job.h"
#include "train/job_bad_inputs.h"
#include "tutti/catalog.h"

static tutti_job *new_job(void) {
    tutti_job *job = NULL;
    T_OK(tutti_job_create(&job));
    return job;
}

static tutti_job *job_of(const char *text) {
    tutti_job *job = new_job();
    T_OK(tti_job_load_text(job, text, strlen(text), "j"));
    return job;
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* others may keep the machine busy */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The job is refused with exit code 2 and the message, in less than 100 ms. */
static void expect_refusal(const bad_input *bad, bool assignment) {
    double start = now_s();
    tutti_job *job = new_job();
    tutti_status st = TUTTI_OK;
    if (assignment)
        tutti_job_set(job, bad->text, "command line");
    else
        st = tti_job_load_text(job, bad->text, strlen(bad->text), "j");
    if (st == TUTTI_OK) st = tutti_job_check(job);
    if (tutti_status_exit_code(st) != 2)
        fail_msg("'%s': accepted or wrong code: %s", bad->text, tutti_status_text(st));
    if (!strstr(tutti_last_error(), bad->message))
        fail_msg("'%s': '%s' lacks '%s'", bad->text, tutti_last_error(), bad->message);
    if (assignment && strchr(tutti_last_error(), '\n'))
        fail_msg("'%s': one mistake, several messages: %s", bad->text, tutti_last_error());
    assert_true(now_s() - start < 0.1);
    tutti_job_destroy(job);
}

T_CASE(bad_inputs) {
    T_UNUSED;
    assert_true(TTI_COUNT(bad_files) + TTI_COUNT(bad_assignments) >= 120);
    for (size_t i = 0; i < TTI_COUNT(bad_files); i++) expect_refusal(&bad_files[i], false);
    for (size_t i = 0; i < TTI_COUNT(bad_assignments); i++)
        expect_refusal(&bad_assignments[i], true);
}

/* A conflict with a value that was auto is found when it is resolved. */
T_CASE(conflicts_with_auto_values) {
    T_UNUSED;
    tutti_job *job = job_of("train: {loss_scale: 128}");
    T_OK(tutti_job_check(job));
    T_FAILS(tti_job_resolve(job, 2), TUTTI_E_CONFIG,
            "j:1:21: error: train.loss_scale: is for 16-bit gradients, but train.precision is f32");
    tutti_job_set(job, "train.precision=f16", "command line");
    T_OK(tti_job_resolve(job, 2));
    tutti_job_destroy(job);
}

T_CASE(bad_files_on_disk) {
    T_UNUSED;
    char dir[] = "/tmp/job_test_XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/job.yaml", dir);
    tutti_job *job = new_job();
    T_FAILS(tutti_job_load(job, path), TUTTI_E_CONFIG, "No such file or directory");
    T_FAILS(tutti_job_load(job, dir), TUTTI_E_CONFIG, "not a regular file");
    T_FAILS(tutti_job_load(job, ""), TUTTI_E_CONFIG, "No such file");
    T_EQ(mkfifo(path, 0600), 0);
    T_FAILS(tutti_job_load(job, path), TUTTI_E_CONFIG, "not a regular file");
    assert_null(job->path);
    unlink(path);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("train: {bach: 3}\n", f);
    fclose(f);
    T_OK(tutti_job_load(job, path));
    assert_string_equal(job->path, path);
    T_FAILS(tutti_job_check(job), TUTTI_E_CONFIG, "job.yaml:1:9: error: train.bach: unknown key");
    tutti_job_destroy(job);
    unlink(path);
    rmdir(dir);
}

T_CASE(defaults_are_a_job) {
    T_UNUSED;
    tutti_job *job = new_job();
    T_OK(tutti_job_check(job));
    assert_string_equal(tutti_job_get(job, "parallel.mode"), "exact");
    assert_string_equal(tutti_job_get(job, "optimizer.lr"), "0.001");
    assert_null(tutti_job_get(job, "optimizer.lrr"));
    T_EQ(job->config.model.hidden.n, 2);
    tutti_job_destroy(job);
    tutti_job_destroy(NULL);
}

/* "auto" is resolved by optimizer and schedule; given values stay. */
static const struct {
    const char *text, *key, *value;
} habits[] = {
    {"run: {}", "optimizer.beta2", "0.999"},
    {"run: {}", "optimizer.eps", "1e-8"},
    {"run: {}", "schedule.gamma", "0.1"},
    {"run: {}", "schedule.rise", "0.3"},
    {"optimizer: {name: sgd}", "optimizer.momentum", "0.9"},
    {"optimizer: {name: rmsprop}", "optimizer.momentum", "0"},
    {"optimizer: {name: rmsprop, momentum: 0.5}", "optimizer.momentum", "0.5"},
    {"optimizer: {name: lion}", "optimizer.beta2", "0.99"},
    {"optimizer: {name: lion, beta2: 0.95}", "optimizer.beta2", "0.95"},
    {"optimizer: {name: adagrad}", "optimizer.eps", "1e-10"},
    {"optimizer: {name: lamb}", "optimizer.eps", "1e-6"},
    {"schedule: {name: exponential}", "schedule.gamma", "0.95"},
    {"schedule: {name: cyclic}", "schedule.rise", "0.5"},
};

T_CASE(auto_follows_habit) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(habits); i++) {
        tutti_job *job = job_of(habits[i].text);
        T_OK(tti_job_resolve(job, 2));
        tti_job_config once = job->config;
        T_OK(tti_job_resolve(job, 2));
        assert_memory_equal(&once, &job->config, sizeof once);
        double got = strtod(tutti_job_get(job, habits[i].key), NULL);
        assert_true(got == strtod(habits[i].value, NULL));
        tutti_job_destroy(job);
    }
}

/* A later assignment mends a conflict, and a check leaves nothing behind. */
T_CASE(conflicts_can_be_mended) {
    T_UNUSED;
    tutti_job *job = job_of("parallel: {shards: 12, algorithm: ring}");
    T_FAILS(tutti_job_check(job), TUTTI_E_CONFIG, "power of two");
    T_FAILS(tutti_job_check(job), TUTTI_E_CONFIG, "ring adds");
    tutti_job_set(job, "parallel.shards=16", "command line");
    tutti_job_set(job, "parallel.mode=fast", "command line");
    T_OK(tutti_job_check(job));
    T_OK(tti_job_resolve(job, 2));
    tutti_job_destroy(job);
}

static const struct {
    const char *text;
    int n_cores, workers, shards;
} resolved[] = {
    {"run: {}", 1, 1, 1},
    {"run: {}", 2, 2, 2},
    {"run: {}", 6, 6, 8},
    {"run: {}", 0, 1, 1},
    {"run: {}", 5000, 64, 64},
    {"parallel.workers: 3", 2, 3, 4},
    {"parallel.shards: 4", 16, 4, 4},
    {"parallel.shards: 8", 2, 2, 8},
    {"parallel: {shards: 8, workers: 5}", 2, 5, 8},
    {"parallel.workers: 1", 8, 1, 8}, /* up to the cores V does not depend on workers */
    {"parallel.workers: 3", 8, 3, 8},
    {"parallel.workers: 16", 8, 16, 16},
    {"parallel: {workers: 2, tensor: 2}", 8, 2, 4},
    {"parallel: {workers: 1, devices: gpu}", 8, 1, 1},
    {"parallel: {workers: 1}\ntrain.batch: 5", 16, 1, 4},
    {"train.batch: 3", 16, 2, 2},
    {"train.batch: 1", 16, 1, 1},
};

T_CASE(resolve) {
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(resolved); i++) {
        tutti_job *job = job_of(resolved[i].text);
        for (int again = 0; again < 2; again++) { /* a second time changes nothing */
            T_OK(tti_job_resolve(job, resolved[i].n_cores));
            T_EQ(job->config.parallel.workers, resolved[i].workers);
            T_EQ(job->config.parallel.shards, resolved[i].shards);
        }
        assert_true(job->config.data.n_train > 0 && job->config.data.n_test > 0);
        T_OK(tutti_job_check(job));
        tutti_job_destroy(job);
    }
}

T_CASE(resolve_reports_everything) {
    T_UNUSED;
    tutti_job *job = job_of("parallel: {shards: 12, algorithm: ring}\ntrain: {bach: 1}");
    T_FAILS(tti_job_resolve(job, 2), TUTTI_E_CONFIG, "bach: unknown key");
    assert_non_null(strstr(tutti_last_error(), "power of two"));
    assert_non_null(strstr(tutti_last_error(), "ring adds"));
    T_EQ(job->config.parallel.workers, -1);
    tutti_job_destroy(job);
}

/* Faults that depend on the resolved number of workers. */
T_CASE(resolve_looks_at_what_it_chose) {
    T_UNUSED;
    static const char server[] = "parallel: {sync: parameter-server, ";
    static const struct {
        const char *more, *text;
    } rows[] = {{"mode: fast, backup_workers: 2}", "2 of 2 workers leave none"},
                {"place: processes, servers: 3}", "but there are only 2"}};
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        char text[120];
        snprintf(text, sizeof text, "%s%s", server, rows[i].more);
        tutti_job *job = job_of(text);
        T_FAILS(tti_job_resolve(job, 2), TUTTI_E_CONFIG, rows[i].text);
        tutti_job_destroy(job);
        job = job_of(text);
        T_OK(tti_job_resolve(job, 3));
        tutti_job_destroy(job);
    }
}

static void expect_round_trip(tutti_job *job) {
    for (int origins = 0; origins < 2; origins++) {
        char *text = tutti_job_print(job, origins), *again;
        assert_non_null(text);
        tutti_job *back = job_of(text);
        T_OK(tutti_job_check(back));
        assert_memory_equal(&job->config, &back->config, sizeof job->config);
        again = tutti_job_print(back, false);
        assert_non_null(again);
        if (!origins) assert_string_equal(text, again);
        free(text);
        free(again);
        tutti_job_destroy(back);
    }
}

T_CASE(print_reads_back) {
    T_UNUSED;
    static const char *const texts[] = {
        "run: {}",
        "optimizer: {lr: 0.30000000000000004, eps: 1e-30, beta2: 0.99999999}",
        "run: {dir: \"a b: #c 'd' \\\"e\\\" \\\\ h\xC3\xA9\"}\nmodel: {hidden: []}",
        "run: {dir: \" - x \", progress: no}\ntrain: {seed: 9007199254740991}",
        "run: {dir: \"null\"}\ndata: {dir: \"~\", format: idx}\nparallel: {workers: 3}",
        "optimizer: {groups: [\"*.bias: lr=2, decay=0\", \"a?: lr=0.5\"], freeze: conv1.*}",
        "schedule: {name: multi_step, milestones: [3, 7], rise: 0}\noptimizer: {momentum: 0}",
        "data: {dir: \"\xF0\x9F\x98\x80 %x\", mean: -1e-30}\nmodel.hidden: 7",
    };
    for (size_t i = 0; i < TTI_COUNT(texts); i++) {
        tutti_job *job = job_of(texts[i]);
        expect_round_trip(job);
        T_OK(tti_job_resolve(job, 3));
        expect_round_trip(job);
        tutti_job_destroy(job);
    }
}

T_CASE(origins) {
    T_UNUSED;
    tutti_job *job = job_of("train:\n  batch: 64\n");
    tutti_job_set(job, "optimizer.lr=3e-4", "command line");
    T_OK(tti_job_resolve(job, 2));
    char *text = tutti_job_print(job, true);
    assert_non_null(strstr(text, "  batch: 64                             # j:2\n"));
    assert_non_null(strstr(text, "  lr: 0.0003                            # command line\n"));
    assert_non_null(strstr(text, "  workers: 2                            # auto, 2 cores\n"));
    assert_non_null(strstr(text, "  mode: exact                           # default\n"));
    free(text);
    tutti_job_destroy(job);
}

/* The sizes of the mesh stand for the workers, and a run can still be given others. */
T_CASE(copies_of_a_divided_model) {
    T_UNUSED;
    tutti_job *job = job_of("parallel: {data: 2, tensor: 2, pipeline: 3}");
    T_OK(tti_job_resolve(job, 2));
    T_EQ(job->config.parallel.workers, 12);
    T_EQ(job->config.parallel.data, -1);
    tutti_job_set(job, "parallel.workers=6", "test");
    T_OK(tutti_job_check(job));
    tutti_job_destroy(job);
}

static tutti_value *no_model(tutti_graph *g, tutti_value *x, const void *user) {
    (void)g;
    (void)user;
    return x;
}

T_CASE(own_model) {
    T_UNUSED;
    tutti_job *job = new_job();
    tutti_job_set_model(job, no_model, job);
    assert_true(job->model_fn == no_model && job->model_user == job);
    tutti_job_destroy(job);
}

/* Every key is in the schema and the reference, and belongs to a group. */
T_CASE(schema_is_whole) {
    T_UNUSED;
    char *json = tutti_job_schema_json(), *md = tutti_job_reference_md();
    assert_non_null(json);
    for (size_t i = 0; i < tti_job_table.n_rows; i++) {
        char text[128];
        const tti_option *row = &tti_job_table.rows[i];
        snprintf(text, sizeof text, "\"%s\": {\n      \"$ref\"", row->key);
        if (!strstr(json, text)) fail_msg("%s is not in the schema", row->key);
        snprintf(text, sizeof text, "| `%s` | ", row->key);
        if (!strstr(md, text)) fail_msg("%s is not in the reference", row->key);
        assert_true(strlen(row->help) > 5);
    }
    free(json);
    free(md);
}

static char *read_text(const char *path) {
    FILE *f = fopen(path, "r");
    if (!f) fail_msg("%s cannot be opened", path);
    char *text = calloc(1, 1 << 16);
    assert_non_null(text);
    size_t n = fread(text, 1, (1 << 16) - 1, f);
    fclose(f);
    assert_true(n > 0);
    return text;
}

T_CASE(reference_page_is_fresh) {
    T_UNUSED;
    char *page = read_text(TUTTI_TEST_DATA "/../../docs/job.md"), *now = tutti_job_reference_md();
    if (strcmp(page, now)) fail_msg("run: build/tutti config reference > docs/job.md");
    free(page);
    free(now);
}

T_CASE(operators_page_is_fresh) {
    T_UNUSED;
    char *page = read_text(TUTTI_TEST_DATA "/../../docs/operators.md"), *now;
    T_OK(tutti_catalog("operators", &now));
    if (strcmp(page, now)) fail_msg("run: build/tutti operators > docs/operators.md");
    free(page);
    free(now);
}

T_CASE(examples_are_jobs) {
    T_UNUSED;
    static const char *const paths[] = {
        TUTTI_TEST_DATA "/../../examples/mnist.yaml", TUTTI_TEST_DATA "/../../examples/digits.yaml",
        TUTTI_TEST_DATA "/../../examples/unet.yaml", TUTTI_TEST_DATA "/../../examples/vit.yaml"};
    for (size_t i = 0; i < TTI_COUNT(paths); i++) {
        tutti_job *job = new_job();
        T_OK(tutti_job_load(job, paths[i]));
        T_OK(tti_job_resolve(job, 2));
        T_EQ(job->config.parallel.shards, 8);
        assert_string_equal(job->config.optimizer.name, "adamw");
        tutti_job_destroy(job);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_inputs),
        cmocka_unit_test(conflicts_with_auto_values),
        cmocka_unit_test(bad_files_on_disk),
        cmocka_unit_test(defaults_are_a_job),
        cmocka_unit_test(auto_follows_habit),
        cmocka_unit_test(conflicts_can_be_mended),
        cmocka_unit_test(resolve),
        cmocka_unit_test(resolve_reports_everything),
        cmocka_unit_test(resolve_looks_at_what_it_chose),
        cmocka_unit_test(print_reads_back),
        cmocka_unit_test(origins),
        cmocka_unit_test(copies_of_a_divided_model),
        cmocka_unit_test(own_model),
        cmocka_unit_test(schema_is_whole),
        cmocka_unit_test(reference_page_is_fresh),
        cmocka_unit_test(operators_page_is_fresh),
        cmocka_unit_test(examples_are_jobs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
