/* blueprint_test.c - from a job to data, counts and a plan; models of the caller's; what is refused
 * before anything runs. */
#include "train/blueprint.h"

#include "train/small_job.h"
#include "tutti/ops.h"

static tti_blueprint *blueprint_of(tutti_job *job) {
    tti_blueprint *b;
    T_OK(tti_job_resolve(job, 2));
    T_OK(tti_blueprint_create(job, &b));
    return b;
}

T_CASE(steps_are_counted) {
    T_UNUSED;
    static const struct {
        const char *a, *b;
        int64_t n_steps, schedule_steps;
    } rows[] = {{"train.steps=0", "train.epochs=3", 15, 15}, /* 140 samples: 5 steps of 32 */
                {"train.steps=7", "train.epochs=3", 7, 15},  /* cut short: the curve stays */
                {"train.steps=7", "train.seed=1", 7, 7},
                {"train.steps=7", "schedule.steps=99", 7, 99}};
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        tutti_job *job = SMALL_JOB(rows[i].a, rows[i].b);
        tti_blueprint *b = blueprint_of(job);
        T_EQ(b->steps_per_epoch, 5);
        T_EQ(b->rows_per_shard, 8);
        T_EQ(b->n_shards, 4);
        T_EQ(b->n_steps, rows[i].n_steps);
        T_EQ(b->schedule_steps, rows[i].schedule_steps);
        tti_blueprint_destroy(b);
        tutti_job_destroy(job);
    }
}

T_CASE(the_plan_is_that_of_the_model) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("model.hidden=[8, 6]", "optimizer.name=adam");
    tti_blueprint *b = blueprint_of(job);
    T_EQ(b->plan->n_params, 784 * 8 + 8 + 8 * 6 + 6 + 6 * 10 + 10);
    T_EQ(b->plan->n_slots, 6);
    T_EQ(b->plan->n_states, 2);
    T_EQ(tutti_dataset_get_info(b->train)->n_samples, 140);
    T_EQ(tutti_dataset_get_info(b->test)->n_samples, 50);
    tti_blueprint_destroy(b);
    tutti_job_set(job, "optimizer.name=sgd", "test");
    b = blueprint_of(job);
    T_EQ(b->plan->n_states, 1);
    tti_blueprint_destroy(b);
    tutti_job_destroy(job);
}

/* "cross_entropy" and "mse" by train.loss; the three sums have their names. */
T_CASE(losses) {
    T_UNUSED;
    for (int mse = 0; mse < 2; mse++) {
        tutti_job *job = SMALL_JOB(mse ? "train.loss=mse" : "train.loss=cross-entropy");
        tti_blueprint *b = blueprint_of(job);
        tutti_graph *g;
        T_OK(tti_blueprint_graph(job, b, true, &g));
        tti_str text = {0};
        tti_graph_print(g, &text);
        assert_true((strstr(text.text, "one_hot") != NULL) == mse);
        assert_non_null(strstr(text.text, "loss_sum"));
        assert_non_null(strstr(text.text, "count"));
        assert_non_null(strstr(text.text, "correct"));
        tti_str_free(&text);
        tutti_graph_destroy(g);
        tti_blueprint_destroy(b);
        tutti_job_destroy(job);
    }
}

/* ---- models of the caller's ---- */

typedef struct wish {
    int64_t n_out;
    int n_calls;
} wish;

static tutti_value *one_layer(tutti_graph *g, tutti_value *x, const void *user) {
    wish *w = (wish *)(uintptr_t)user;
    w->n_calls++;
    return tutti_linear(g, tutti_flatten(g, x), w->n_out, "mine");
}

static tutti_value *nothing(tutti_graph *g, tutti_value *x, const void *user) {
    (void)g, (void)x, (void)user;
    return NULL;
}

static tutti_value *the_input(tutti_graph *g, tutti_value *x, const void *user) {
    (void)g, (void)user;
    return x;
}

static tutti_value *wrong_shapes(tutti_graph *g, tutti_value *x, const void *user) {
    (void)user;
    return tutti_matmul(g, tutti_flatten(g, x), tutti_flatten(g, x));
}

T_CASE(a_model_of_the_callers) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("model.name=lenet");
    wish w = {.n_out = 10};
    tutti_job_set_model(job, one_layer, &w);
    tti_blueprint *b = blueprint_of(job);
    T_EQ(w.n_calls, 2); /* training and evaluation */
    T_EQ(b->plan->n_params, 7850);
    assert_memory_equal(b->plan->slots[0].param->name, "mine.", 5);
    tti_blueprint_destroy(b);
    tutti_job_destroy(job);
}

static void refuse(tutti_model_fn fn, const void *user, const char *text) {
    tutti_job *job = SMALL_JOB("train.seed=1");
    tti_blueprint *b = (tti_blueprint *)job;
    tutti_job_set_model(job, fn, user);
    T_OK(tti_job_resolve(job, 2));
    T_FAILS(tti_blueprint_create(job, &b), TUTTI_E_INVALID, text);
    assert_null(b);
    tutti_job_destroy(job);
}

T_CASE(wrong_models_are_refused) {
    T_UNUSED;
    wish eleven = {.n_out = 11};
    refuse(one_layer, &eleven, "model: logits must be f32[8,10], got f32[8,11]");
    refuse(nothing, NULL, "model: the builder returned NULL");
    refuse(the_input, NULL, "model: logits must be f32[8,10], got f32[8,1,28,28]");
    refuse(wrong_shapes, NULL, "matmul");
}

/* parallel.backend=reference: nothing is fused, nothing turned.  Else what the backend likes. */
T_CASE(targets_of_backends) {
    T_UNUSED;
    static const char *const backends[] = {"parallel.backend=reference", "parallel.backend=cpu"};
    for (int fast = 0; fast < 2; fast++) {
        tutti_job *job = SMALL_JOB(backends[fast]);
        tti_blueprint *b = blueprint_of(job);
        tti_target target = tti_blueprint_target(b);
        assert_true(target.fuse == fast);
        assert_true((target.prefers_channels_last != NULL) == fast);
        bool joins = tti_backend_cpu.fuses_training || tti_backend_cpu.joins_products;
        assert_true(target.fuse_linear_grad == joins);
        T_EQ(target.compute_dtype, TUTTI_F32);
        T_EQ(b->devices.n, 0);
        tti_blueprint_destroy(b);
        tutti_job_destroy(job);
    }
}

T_CASE(missing_data_is_named) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("data.format=idx", "data.dir=/nowhere");
    tti_blueprint *b;
    T_OK(tti_job_resolve(job, 2));
    T_FAILS(tti_blueprint_create(job, &b), TUTTI_E_DATA, "/nowhere");
    assert_null(b);
    tutti_job_destroy(job);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(steps_are_counted),
                                       cmocka_unit_test(the_plan_is_that_of_the_model),
                                       cmocka_unit_test(losses),
                                       cmocka_unit_test(a_model_of_the_callers),
                                       cmocka_unit_test(wrong_models_are_refused),
                                       cmocka_unit_test(targets_of_backends),
                                       cmocka_unit_test(missing_data_is_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
