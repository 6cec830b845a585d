/* null_arguments_test.c - calls without an argument that they need are refused by its name. */
#include <math.h>

#include "t.h"
#include "tutti/tutti.h"

static int take(void *user, const tutti_prediction *prediction) {
    (void)user;
    (void)prediction;
    return 0;
}

T_CASE(jobs) {
    tutti_job *job;
    tutti_dataset *ds;
    char *text;
    const tutti_pack_desc pack = {0};
    T_UNUSED;
    T_FAILS(tutti_job_create(NULL), TUTTI_E_INVALID, "tutti_job_create: out is NULL");
    T_OK(tutti_job_create(&job));
    T_FAILS(tutti_job_load(NULL, "job.yaml"), TUTTI_E_INVALID, "job is NULL");
    T_FAILS(tutti_job_load(job, NULL), TUTTI_E_INVALID, "path is NULL");
    T_FAILS(tutti_job_load_run(NULL, "run"), TUTTI_E_INVALID, "job is NULL");
    T_FAILS(tutti_job_load_run(job, NULL), TUTTI_E_INVALID, "run_dir is NULL");
    T_FAILS(tutti_job_check(NULL), TUTTI_E_INVALID, "job is NULL");
    T_FAILS(tutti_job_set_samples(job, TUTTI_TRAIN, NULL), TUTTI_E_INVALID, "samples is NULL");
    T_FAILS(tutti_job_open_dataset(NULL, TUTTI_TRAIN, &ds), TUTTI_E_INVALID, "job is NULL");
    T_FAILS(tutti_job_open_dataset(job, TUTTI_TRAIN, NULL), TUTTI_E_INVALID, "out is NULL");
    T_FAILS(tutti_job_pack_data(job, NULL, &text), TUTTI_E_INVALID, "how is NULL");
    T_FAILS(tutti_job_pack_data(job, &pack, NULL), TUTTI_E_INVALID, "report is NULL");
    tutti_job_set(NULL, "train.batch=1", "test");
    tutti_job_set_model(NULL, NULL, NULL);
    tutti_job_allow_plugin(NULL);
    assert_null(tutti_job_get(NULL, "train.batch"));
    assert_null(tutti_job_get(job, NULL));
    assert_null(tutti_job_print(NULL, false));
    assert_null(tutti_job_find_key(NULL));
    assert_string_equal(tutti_job_warnings(NULL), "");
    tutti_job_set(job, NULL, NULL);
    T_FAILS(tutti_job_check(job), TUTTI_E_CONFIG, "expected key=value");
    tutti_job_destroy(job);
}

static int ignore(void *user, const char *text, size_t n_bytes) {
    (void)user;
    (void)text;
    (void)n_bytes;
    return 0;
}

static void refuses_descriptions(tutti_job *job) {
    const struct {
        tutti_generate_desc desc;
        const char *name;
    } bad[] = {
        {{.prompt = "a"}, "on_text is NULL"},
        {{.max_tokens = -1, .on_text = ignore}, "max_tokens"},
        {{.top_k = -1, .on_text = ignore}, "top_k"},
        {{.temperature = -1, .on_text = ignore}, "temperature"},
        {{.temperature = INFINITY, .on_text = ignore}, "temperature"},
        {{.top_p = 1.5, .on_text = ignore}, "top_p"},
        {{.top_p = NAN, .on_text = ignore}, "top_p"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        T_FAILS(tutti_generate(job, "run", &bad[i].desc), TUTTI_E_INVALID, bad[i].name);
}

T_CASE(runs) {
    tutti_job *job;
    tutti_train_result trained;
    tutti_eval_result evaluated;
    tutti_export_result exported;
    const tutti_export_desc format = {0};
    const char *const no_file[] = {NULL};
    char *text;
    T_UNUSED;
    T_OK(tutti_job_create(&job));
    T_FAILS(tutti_train(NULL, NULL, &trained), TUTTI_E_INVALID, "job is NULL");
    T_FAILS(tutti_train(job, NULL, NULL), TUTTI_E_INVALID, "result is NULL");
    T_FAILS(tutti_eval(job, NULL, NULL, NULL, &evaluated), TUTTI_E_INVALID, "run_dir is NULL");
    T_FAILS(tutti_eval(job, "run", NULL, NULL, NULL), TUTTI_E_INVALID, "result is NULL");
    T_FAILS(tutti_predict(job, "run", NULL, 1, take, NULL), TUTTI_E_INVALID, "files is NULL");
    T_FAILS(tutti_predict(job, "run", no_file, 1, take, NULL), TUTTI_E_INVALID, "files is NULL");
    T_FAILS(tutti_predict(job, "run", NULL, 0, NULL, NULL), TUTTI_E_INVALID, "fn is NULL");
    T_FAILS(tutti_predict_samples(job, "run", NULL, take, NULL), TUTTI_E_INVALID,
            "samples is NULL");
    T_FAILS(tutti_generate(job, "run", NULL), TUTTI_E_INVALID, "desc is NULL");
    refuses_descriptions(job);
    T_FAILS(tutti_report(job, NULL), TUTTI_E_INVALID, "run_dir is NULL");
    T_FAILS(tutti_export(job, "run", NULL, NULL, NULL, &exported), TUTTI_E_INVALID, "desc is NULL");
    T_FAILS(tutti_export(job, "run", &format, NULL, NULL, NULL), TUTTI_E_INVALID, "result is NULL");
    T_FAILS(tutti_prediction_save_mask(NULL, "mask.png"), TUTTI_E_INVALID, "prediction is NULL");
    T_FAILS(tutti_inspect_job(NULL, NULL, &text), TUTTI_E_INVALID, "job is NULL");
    T_FAILS(tutti_inspect_job(job, NULL, NULL), TUTTI_E_INVALID, "text is NULL");
    T_FAILS(tutti_profile(job, NULL, NULL), TUTTI_E_INVALID, "text is NULL");
    T_FAILS(tutti_catalog(NULL, &text), TUTTI_E_INVALID, "what is NULL");
    T_FAILS(tutti_doctor(false, NULL), TUTTI_E_INVALID, "text is NULL");
    assert_null(tutti_eval_print(NULL, true));
    assert_null(tutti_prediction_print(NULL));
    tutti_eval_result_free(NULL);
    tutti_job_destroy(job);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(jobs), cmocka_unit_test(runs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
