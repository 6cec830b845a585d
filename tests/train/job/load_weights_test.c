/* load_weights_test.c - words and weights of parallel.load_weights, and the jobs that may have
 * them. */
#include "train/job/load_weights.h"

#include "train/small_job.h"

T_CASE(words_and_weights) {
    T_UNUSED;
    static const struct {
        const char *text;
        tti_load_weights_kind kind;
        int n;
        double weight[3];
    } rows[] = {{"auto", TTI_LOAD_WEIGHTS_AUTO, 0, {0}},
                {"equal", TTI_LOAD_WEIGHTS_EQUAL, 0, {0}},
                {"measured", TTI_LOAD_WEIGHTS_MEASURED, 0, {0}},
                {"3,1", TTI_LOAD_WEIGHTS_GIVEN, 2, {3, 1}},
                {"3, 1", TTI_LOAD_WEIGHTS_GIVEN, 2, {3, 1}},
                {"0.5,2,1e3", TTI_LOAD_WEIGHTS_GIVEN, 3, {0.5, 2, 1000}},
                {"1", TTI_LOAD_WEIGHTS_GIVEN, 1, {1}}};
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        tti_load_weights weights;
        assert_null(tti_load_weights_parse(rows[i].text, &weights));
        assert_int_equal(weights.kind, rows[i].kind);
        T_EQ(weights.n, rows[i].n);
        for (int w = 0; w < weights.n; w++) T_NEAR(weights.weight[w], rows[i].weight[w], 0);
        tti_load_weights_free(&weights);
    }
}

T_CASE(what_is_neither) {
    T_UNUSED;
    static const char *const rows[] = {
        "",      "Equal", "fast", "3,",    "3,,1",
        ",3",    "3;1",   "-1,2", "0,1",   "nan",
        "inf,1", "1e7,1", "3 1",  "[3,1]", "1,00000000000000000000000000000000000001"};
    tti_load_weights weights;
    for (size_t i = 0; i < TTI_COUNT(rows); i++)
        if (!tti_load_weights_parse(rows[i], &weights)) fail_msg("'%s' was taken", rows[i]);
    static char many[2 * TTI_MAX_WORKERS + 4];
    for (int i = 0; i < TTI_MAX_WORKERS; i++) memcpy(many + 2 * i, "1,", 3);
    many[2 * TTI_MAX_WORKERS - 1] = '\0';
    assert_null(tti_load_weights_parse(many, &weights));
    T_EQ(weights.n, TTI_MAX_WORKERS);
    tti_load_weights_free(&weights);
    memcpy(many + 2 * TTI_MAX_WORKERS - 1, ",1", 3);
    assert_non_null(
        strstr(tti_load_weights_parse(many, &weights), "more weights than there can be"));
}

static void refuse(const char *a, const char *b, const char *c, const char *text) {
    tutti_job *job = SMALL_JOB("train.seed=1");
    tutti_job_set(job, a, "test");
    tutti_job_set(job, b, "test");
    tutti_job_set(job, c, "test");
    T_FAILS(tutti_job_check(job), TUTTI_E_CONFIG, text);
    tutti_job_destroy(job);
}

T_CASE(what_does_not_go_with_it) {
    T_UNUSED;
    static const char N2[] = "parallel.workers=2", N4[] = "parallel.workers=4";
    refuse("parallel.load_weights=3,1,1", N2, "train.seed=2", "3 weights for 2 workers");
    refuse("parallel.load_weights=3,1,1,1", N4, "parallel.tensor=2", "4 weights for 2 workers");
    refuse("parallel.load_weights=3:1", N2, "train.seed=2", "expected auto, equal, measured");
    static const char served[] = "parallel.sync=parameter-server";
    refuse("parallel.load_weights=3,1", "parallel.staleness=4", served,
           "already computes more batches");
    refuse("parallel.load_weights=measured", "parallel.staleness=unbounded", served,
           "all shards of a");
    refuse("parallel.load_weights=3,1", "parallel.backup_workers=1", served,
           "so they need equal parts");
    refuse("parallel.load_weights=measured", N4, "parallel.pipeline=2",
           "give weights of the replicas");
    tutti_job *job = SMALL_JOB("parallel.mode=fast", "parallel.sync=local", N2);
    tutti_job_set(job, "parallel.load_weights=3,1", "test");
    T_FAILS(tutti_job_check(job), TUTTI_E_CONFIG,
            "local SGD averages the parameters of all workers equally");
    tutti_job_set(job, "parallel.load_weights=equal", "test");
    T_OK(tutti_job_check(job));
    tutti_job_destroy(job);
    job = SMALL_JOB("parallel.load_weights=3,1", N4, "parallel.pipeline=2"); /* of the copies */
    tutti_job_set(job, "parallel.pipeline_chunks=2", "test");
    T_FAILS(tutti_job_check(job), TUTTI_E_CONFIG, "a multiple of parallel.pipeline shards");
    tutti_job_destroy(job);
}

/* Where the job leaves the number of workers open, it is that of the weights, whatever cores there
 * are. */
T_CASE(weights_say_how_many_workers) {
    T_UNUSED;
    static const char AUTO[] = "parallel.workers=auto";
    tutti_job *job = SMALL_JOB(AUTO, "parallel.load_weights=2,1,1");
    T_OK(tti_job_resolve(job, 8));
    T_EQ(job->config.parallel.workers, 3);
    tutti_job_destroy(job);
    job = SMALL_JOB(AUTO, "parallel.load_weights=2,1", "parallel.tensor=2");
    T_OK(tti_job_resolve(job, 1));
    T_EQ(job->config.parallel.workers, 4);
    tutti_job_destroy(job);
    refuse("parallel.load_weights=2,1,1", AUTO, "parallel.data=2", "3 weights for 2 workers");
    refuse("parallel.load_weights=5,1,1,1,1", AUTO, "train.seed=2", "5 workers for 4 shards");
    refuse("parallel.load_weights=3,1,1", AUTO, "parallel.tensor=32768",
           "at most 65536 are supported");
}

T_CASE(runs_that_a_job_gives) {
    T_UNUSED;
    tti_shard_map shard_map;
    bool given;
    tti_str text = {0};
    tutti_job *job = SMALL_JOB("parallel.load_weights=3,1", "parallel.workers=2");
    T_OK(tti_load_weights_given(&job->config, 2, 8, &given, &shard_map));
    assert_true(given);
    tti_load_weights_print(&shard_map, &text);
    tti_shard_map_free(&shard_map);
    assert_string_equal(tti_str_text(&text), "6 and 2");
    T_OK(tti_load_weights_given(&job->config, 3, 8, &given, &shard_map));
    assert_false(given);
    tutti_job_destroy(job);
    job = SMALL_JOB("parallel.load_weights=measured", "parallel.workers=2");
    T_OK(tti_load_weights_given(&job->config, 2, 8, &given, &shard_map));
    assert_false(given);
    assert_int_equal(tti_load_weights_kind_of(&job->config), TTI_LOAD_WEIGHTS_MEASURED);
    tutti_job_destroy(job);
    tti_str_clear(&text);
    T_OK(tti_shard_map_by_weight((double[]){5, 1, 1, 1}, 4, 8, &shard_map));
    tti_load_weights_print(&shard_map, &text);
    tti_shard_map_free(&shard_map);
    assert_string_equal(tti_str_text(&text), "5, 1, 1 and 1");
    tti_str_free(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_and_weights), cmocka_unit_test(what_is_neither),
        cmocka_unit_test(what_does_not_go_with_it), cmocka_unit_test(weights_say_how_many_workers),
        cmocka_unit_test(runs_that_a_job_gives)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
