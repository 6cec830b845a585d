/* job_where_test.c - where in the job is what a late refusal names. */
#include <stdio.h>

#include "t.h"
#include "train/job/job.h"

static const char file[] =
    "model: {name: mlp, init: /nowhere}\n"
    "parallel:\n"
    "  devices: 0,7\n"
    "  pipeline_chunks: 2\n"
    "train: {batch: 32, clip_norm: 1}\n"
    "data.format: digits\n";

static tutti_job *make_job(void) {
    tutti_job *job;
    T_OK(tutti_job_create(&job));
    T_OK(tti_job_load_text(job, file, sizeof file - 1, "job.yaml"));
    tutti_job_set(job, "parallel.tensor=5", "command line");
    return job;
}

/* The place of a failure with that text. */
static void expect(const tutti_job *job, tutti_status st, const char *text, const char *place) {
    char want[512];
    snprintf(want, sizeof want, "%s%s", place, text);
    T_EQ(tti_job_say_where(job, tti_fail(st, "%s", text)), st);
    if (strcmp(tutti_last_error(), want) != 0) fail_msg("%s: not '%s'", tutti_last_error(), want);
}

T_CASE(a_refusal_stands_where_the_key_was_given) {
    T_UNUSED;
    static const struct {
        tutti_status st;
        const char *text, *place;
    } rows[] = {
        {TUTTI_E_CONFIG, "parallel.devices: there is no device 7", "job.yaml:3:12: error: "},
        {TUTTI_E_CONFIG, "parallel.devices=0,7: no GPU can be used", "job.yaml:3:12: error: "},
        {TUTTI_E_INVALID, "parallel.tensor: too many\nof them", "command line: error: "},
        {TUTTI_E_INVALID, "mlp: wants floats (data.format) as", "job.yaml:6:14: error: "},
        {TUTTI_E_DATA, "set: data.dir is a file; see data.format", "job.yaml:6:14: error: "},
        /* of several the first one that was given */
        {TUTTI_E_CONFIG, "parallel.workers is 3, and train.batch 32, so give parallel.tensor",
         "job.yaml:5:16: error: "},
        {TUTTI_E_INVALID, "parallel.pipeline: 9; give parallel.pipeline_chunks=1.",
         "job.yaml:4:20: error: "},
        {TUTTI_E_IO, "model.init: /nowhere: cannot open", "job.yaml:1:26: error: "},
    };
    tutti_job *job = make_job();
    for (size_t i = 0; i < TTI_COUNT(rows); i++)
        expect(job, rows[i].st, rows[i].text, rows[i].place);
    T_EQ(tti_job_say_where(job, TUTTI_OK), TUTTI_OK);
    tutti_job_destroy(job);
}

T_CASE(what_has_no_place_in_the_job_gets_none) {
    T_UNUSED;
    static const struct {
        tutti_status st;
        const char *text;
    } rows[] = {
        {TUTTI_E_CONFIG, "there is no key in this"},
        {TUTTI_E_CONFIG, "train.epochs: nobody has given it"},
        {TUTTI_E_CONFIG, "parallel.pipeline=2 is the beginning of another key alone"},
        {TUTTI_E_DATA, "/set/train.batch/x, my-train.batch, train.batch.gz: no keys but files"},
        {TUTTI_E_CONFIG, "no layout:\ntrain.batch: a reason of many"},
        {TUTTI_E_NUMERICS, "step 3: the loss is not finite; train.clip_norm may help"},
        {TUTTI_E_PEER, "rank 1 failed: train.batch"},
        {TUTTI_E_CONFIG, "other.yaml:1:2: error: train.batch: has its place"},
        {TUTTI_E_CONFIG, "error: train.batch: has none, and that is said"},
    };
    tutti_job *job = make_job();
    for (size_t i = 0; i < TTI_COUNT(rows); i++) expect(job, rows[i].st, rows[i].text, "");
    tutti_job_destroy(job);
}

/* Nor has a value that the program resolved, until the user gives one. */
T_CASE(own_values_were_given_by_nobody) {
    T_UNUSED;
    static const char text[] = "train.batch: too small";
    tti_options_kept kept;
    tutti_job *job = make_job();
    T_OK(tti_options_keep(&job->options, &kept));
    tti_options_put(&job->options, "train.batch", "2", "auto, a guess");
    expect(job, TUTTI_E_CONFIG, text, "");
    tti_options_restore(&job->options, &kept);
    expect(job, TUTTI_E_CONFIG, text, "job.yaml:5:16: error: ");
    T_OK(tti_options_keep(&job->options, &kept));
    tutti_job_set(job, "train.batch=null", "command line");
    expect(job, TUTTI_E_CONFIG, text, "");
    tti_options_put(&job->options, "train.batch", "2", "auto, a guess");
    tutti_job_set(job, "train.batch=4", "command line");
    expect(job, TUTTI_E_CONFIG, text, "command line: error: ");
    tti_options_restore(&job->options, &kept);
    tutti_job_destroy(job);
}

/* A copy has the places of the job, also after the job is freed; values not given have none. */
T_CASE(copies_have_the_same_places) {
    T_UNUSED;
    tutti_job *copy, *job = make_job();
    tti_options_put(&job->options, "train.seed", "7", "auto, a guess");
    T_OK(tti_job_copy(job, &copy));
    tutti_job_set(job, "parallel.devices=1", "elsewhere");
    tutti_job_destroy(job);
    assert_string_equal(tutti_job_get(copy, "parallel.devices"), "0,7");
    T_EQ(copy->config.train.seed, 7);
    expect(copy, TUTTI_E_CONFIG, "train.seed, train.batch: odd", "job.yaml:5:16: error: ");
    expect(copy, TUTTI_E_CONFIG, "parallel.tensor: odd", "command line: error: ");
    expect(copy, TUTTI_E_CONFIG, "train.epochs: odd", "");
    tutti_job_destroy(copy);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refusal_stands_where_the_key_was_given),
        cmocka_unit_test(what_has_no_place_in_the_job_gets_none),
        cmocka_unit_test(own_values_were_given_by_nobody),
        cmocka_unit_test(copies_have_the_same_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
