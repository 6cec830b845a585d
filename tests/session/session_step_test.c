/* session_step_test.c - steps over the job's data in every layout, local SGD, and models that are
 * finished graphs. */
#include "session/batches.h"

static void expect_bits_of_train(const char *const *layout) {
    tutti_train_result trained;
    tutti_session_result r = {0};
    tutti_session *s;
    tutti_job *job =
        SMALL_JOB("optimizer.name=adamw", "run.progress=false", "run.checkpoint_every=-1",
                  layout[0], layout[1], layout[2], layout[3]);
    T_OK(tutti_train(job, NULL, &trained));
    T_OK(tutti_session_create(job, NULL, &s));
    for (int i = 0; i < 10; i++) T_OK(tutti_session_step(s, NULL, 0, TUTTI_LR_OF_JOB, &r));
    if (r.params_hash != trained.params_hash)
        fail_msg("%s %s: other bits than tutti_train", layout[0], layout[1]);
    tutti_session_destroy(s);
    tutti_job_destroy(job);
}

T_CASE(every_layout_has_the_bits_of_train) {
    static const char *const layouts[][4] = {
        {"parallel.workers=2", "parallel.tensor=2"},
        {"parallel.workers=4", "parallel.tensor=2"},
        {"parallel.workers=4", "parallel.tensor=2", "parallel.pipeline=2"},
        {"parallel.workers=2", "parallel.pipeline=2"},
        {"parallel.workers=2", "parallel.sync=parameter-server"},
        {"parallel.workers=2", "parallel.mode=fast", "parallel.sync=local",
         "parallel.average_every=2"},
        {"parallel.workers=4", "parallel.mode=fast", "parallel.sync=local",
         "parallel.average_every=3"}};
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(layouts); i++) expect_bits_of_train(layouts[i]);
}

/* Between two averages each worker has parameters of its own, of which no file has all. */
T_CASE(local_sgd_saves_averages) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("parallel.workers=2", "parallel.mode=fast", "parallel.sync=local",
                               "parallel.average_every=2");
    tutti_session *s;
    T_OK(tutti_session_create(job, NULL, &s));
    T_OK(tutti_session_save(s, "start"));
    T_OK(tutti_session_step(s, NULL, 0, 0.1, NULL));
    T_FAILS(tutti_session_save(s, "one"), TUTTI_E_INVALID, "parallel.average_every=2");
    T_FAILS(tutti_session_save_weights(s, "one.safetensors"), TUTTI_E_INVALID, "average");
    T_FAILS(tutti_session_gradients(s, NULL, 0, NULL), TUTTI_E_UNSUPPORTED, "parallel.sync=local");
    T_OK(tutti_session_step(s, NULL, 0, 0.1, NULL));
    T_OK(tutti_session_save(s, "two"));
    T_OK(tutti_session_save_weights(s, "two.safetensors"));
    tutti_session_destroy(s);
    tutti_job_destroy(job);
}

/* ---- metrics ---- */

/* With the loss of the job once more as a metric, and the samples with their number. */
static tutti_value *measured_net(tutti_graph *g, tutti_value *x, const void *user) {
    (void)user;
    tutti_value *y = tutti_linear(g, tutti_flatten(g, x), CLASSES, "a");
    tutti_value *target = tutti_find_field(g, "y");
    tutti_loss loss = tutti_loss_named(g, "cross_entropy", y, target, NULL, NULL);
    tutti_value *one = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, 1);
    tutti_add_metric(g, "entropy", loss.sum, loss.count);
    tutti_add_metric(g, "rows", loss.count, one);
    return y;
}

static void expect_metrics(const tutti_session_result *r, const char *text, int64_t n,
                           double rows) {
    if (r->n_metrics != n) fail_msg("%s: %lld metrics", text, (long long)r->n_metrics);
    assert_string_equal(r->metrics[0].name, "entropy");
    assert_string_equal(r->metrics[1].name, "rows");
    T_NEAR(r->metrics[0].value, r->loss_sum / r->count, 0);
    T_NEAR(r->metrics[1].value, rows, 0);
}

T_CASE(steps_and_evaluations_have_metrics) {
    static const char *const layouts[] = {"parallel.workers=1", "parallel.workers=4",
                                          "parallel.zero=3", "parallel.sync=parameter-server"};
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(layouts); i++) {
        tutti_job *job = SMALL_JOB("optimizer.name=sgd", "parallel.workers=2", "parallel.shards=4",
                                   "train.batch=20", "train.metrics=top3", layouts[i]);
        tutti_job_set_model(job, measured_net, NULL);
        tutti_session *s;
        tutti_session_result r;
        T_OK(tutti_session_create(job, NULL, &s));
        T_OK(tutti_session_step(s, NULL, 0, 0.1, &r));
        expect_metrics(&r, layouts[i], 2, 5); /* 20 rows in 4 shards */
        T_OK(tutti_session_evaluate(s, &r));
        if (r.n_metrics != 3) fail_msg("%s: %lld metrics", layouts[i], (long long)r.n_metrics);
        assert_string_equal(r.metrics[2].name, "top3");
        T_NEAR(r.metrics[0].value, r.loss_sum / r.count, 1e-12);
        T_OK(tutti_session_step(s, NULL, 0, 0.1, &r));
        expect_metrics(&r, layouts[i], 2, 5);
        if (!strstr(layouts[i], "server")) {
            T_OK(tutti_session_gradients(s, NULL, 0, &r));
            expect_metrics(&r, layouts[i], 2, 5);
        }
        tutti_session_destroy(s);
        tutti_job_destroy(job);
    }
}

/* ---- models that are finished graphs ---- */

static tutti_value *small_net(tutti_graph *g, tutti_value *x, const void *user) {
    (void)user;
    return tutti_linear(g, tutti_relu(g, tutti_linear(g, tutti_flatten(g, x), 6, "a")), CLASSES,
                        "b");
}

T_CASE(finished_graphs_are_models) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    tutti_output(g, "logits",
                 small_net(g, tutti_input(g, "x", TUTTI_F32, &TUTTI_SHAPE(8, 1, 28, 28)), NULL));
    const tutti_model_graphs graphs = {.train = g};
    tutti_job *job = SMALL_JOB("optimizer.name=adamw");
    tutti_job_set_model(job, small_net, NULL);
    uint64_t hash = hash_of(job);
    for (int n = 1; n <= 2; n++) {
        job = SMALL_JOB("optimizer.name=adamw", n == 2 ? "parallel.workers=2" : NULL);
        tutti_job_set_model(job, tutti_model_from_graph, &graphs);
        T_EQ(hash_of(job), hash);
    }
    tutti_graph_destroy(g);
}

/* ---- schedules without epochs ---- */

static void expect_rate(const char *name, const char *length, double want) {
    tutti_job *job = SMALL_JOB("train.epochs=3", "optimizer.lr=1", name, length);
    tutti_session *s = open_session(job);
    tutti_session_result r;
    batch *b = make_batch(0, BATCH);
    for (int i = 0; i < 6; i++) T_OK(tutti_session_step(s, b->tensors, 2, TUTTI_LR_OF_JOB, &r));
    T_NEAR(r.lr, want, 1e-12);
    free(b);
    tutti_session_destroy(s);
    tutti_job_destroy(job);
}

static void expect_no_rate(const char *name, tutti_status want, const char *text) {
    tutti_job *job = SMALL_JOB("train.steps=null", name);
    tutti_session *s = open_session(job);
    batch *b = make_batch(0, BATCH);
    T_FAILS(tutti_session_step(s, b->tensors, 2, TUTTI_LR_OF_JOB, NULL), want, text);
    T_OK(tutti_session_step(s, b->tensors, 2, 0.1, NULL));
    T_OK(tutti_session_gradients(s, b->tensors, 2, NULL));
    T_FAILS(tutti_session_apply(s, TUTTI_LR_OF_JOB, NULL), want, text);
    free(b);
    tutti_session_destroy(s);
    tutti_job_destroy(job);
}

/* A session without the job's data must not take one of its steps for an epoch. */
T_CASE(schedules_count_steps_without_the_data) {
    T_UNUSED;
    expect_rate("schedule.name=linear", "train.steps=10", 0.5);
    expect_rate("schedule.name=linear", "schedule.steps=20", 0.75);
    expect_no_rate("schedule.name=cosine", TUTTI_E_CONFIG, "schedule.steps");
    expect_no_rate("schedule.name=step", TUTTI_E_CONFIG, "schedule.unit=steps");
    expect_no_rate("schedule.name=plateau", TUTTI_E_UNSUPPORTED, "schedule.name=plateau");
}

int main(void) {
    const struct CMUnitTest tests[] = {IN_FOLDER(every_layout_has_the_bits_of_train),
                                       cmocka_unit_test(schedules_count_steps_without_the_data),
                                       IN_FOLDER(local_sgd_saves_averages),
                                       IN_FOLDER(steps_and_evaluations_have_metrics),
                                       cmocka_unit_test(finished_graphs_are_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
