/* predictor_test.c - a run opened for use: the numbers of training again, any rows of a shard for
 * themselves, averages, and runs that are not there or of another model. */
#include "train/infer/predictor.h"

#include "train/small_job.h"
#include "tutti/eval.h"
#include "tutti/train.h"

static tutti_train_result train(const char *a, const char *b) {
    tutti_job *job = SMALL_JOB("run.dir=run", a, b);
    tutti_train_result r;
    T_OK(tutti_train(job, NULL, &r));
    tutti_job_destroy(job);
    return r;
}

/* Loss and accuracy that training logged, for both kinds of parameters, short last batch and all.
 */
T_CASE(the_numbers_of_training) {
    T_UNUSED;
    static const char *const ema[] = {"train.ema=0", "train.ema=0.5"};
    for (int i = 0; i < 2; i++) {
        tutti_train_result trained = train(ema[i], "parallel.workers=2");
        tutti_job *job = SMALL_JOB(ema[i]);
        tutti_eval_result r;
        T_OK(tutti_eval(job, "run", NULL, NULL, &r));
        T_EQ(r.step, 10);
        T_EQ(r.n_samples, 50);
        assert_true(r.accuracy == trained.accuracy);
        T_NEAR(r.loss, trained.loss, 1e-12);
        tutti_eval_result_free(&r);
        tutti_job_destroy(job);
        T_EQ(system("rm -rf run"), 0);
    }
}

T_CASE(rows_for_themselves) {
    T_UNUSED;
    train("train.seed=1", "train.seed=1");
    tutti_job *job = SMALL_JOB("train.seed=1");
    tti_predictor *p;
    T_OK(tti_predictor_open_with_test(job, "run", NULL, NULL, &p));
    T_EQ(tti_predictor_blueprint(p)->rows_per_shard, 8);
    static float x[8 * 784], other[8 * 784], first[10];
    static const int32_t y[8] = {3, -1, -1, -1, -1, -1, -1, -1};
    for (int i = 0; i < 8 * 784; i++) other[i] = (float)(i % 7), x[i] = i < 784 ? other[i] : 0;
    tti_predicted out;
    T_OK(tti_predictor_run(p, &(tti_shard_data){x, y, 1}, 1, &out));
    memcpy(first, out.logits, sizeof first);
    assert_true(out.count == 1 && out.loss_sum > 0);
    T_OK(tti_predictor_run(p, &(tti_shard_data){other, y, 8}, 1, &out));
    assert_memory_equal(first, out.logits, sizeof first);
    tti_predictor_close(p);
    tutti_job_destroy(job);
}

static void refuse(const char *assignment, const char *dir, tutti_status status, const char *text) {
    tutti_job *job = SMALL_JOB(assignment);
    tti_predictor *p;
    T_FAILS(tti_predictor_open_with_test(job, dir, NULL, NULL, &p), status, text);
    assert_null(p);
    tutti_job_destroy(job);
}

static void count(void *user, const char *text) {
    assert_non_null(strstr(text, "skipped"));
    ++*(int *)user;
}

T_CASE(what_cannot_be_used) {
    T_UNUSED;
    refuse("train.seed=1", "nowhere", TUTTI_E_CONFIG, "no run there");
    train("run.checkpoint_every=4", "run.keep=2");
    refuse("model.hidden=[9]", "run", TUTTI_E_CHECKPOINT, "is of another model");
    refuse("train.ema=0.5", "run", TUTTI_E_CHECKPOINT, "has averages of only 0 of 4 parameters");
    refuse("model.hidden=[8, 8]", "run", TUTTI_E_CHECKPOINT, "fc2.weight");
    tutti_job *job = SMALL_JOB("train.seed=1");
    tti_predictor *p;
    int n_warnings = 0;
    T_EQ(truncate("run/checkpoints/step-000000010/model.safetensors", 100), 0);
    T_OK(tti_predictor_open_with_test(job, "run", count, &n_warnings, &p));
    T_EQ(tti_predictor_step(p), 8);
    assert_non_null(strstr(tti_predictor_checkpoint(p), "step-000000008"));
    T_EQ(n_warnings, 1);
    tti_predictor_close(p);
    tutti_job_destroy(job);
    T_EQ(system("rm -rf run/checkpoints/step-*"), 0);
    refuse("train.seed=1", "run", TUTTI_E_CHECKPOINT, "no checkpoint");
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(the_numbers_of_training),
                                       IN_FOLDER(rows_for_themselves),
                                       IN_FOLDER(what_cannot_be_used)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
