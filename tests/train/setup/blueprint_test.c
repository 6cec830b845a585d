/* blueprint_test.c - from a job to data, counts and a plan; models of the caller's; what is refused
 * before anything runs. */
#include "train/setup/blueprint.h"

#include "train/small_job.h"
#include "tutti/ops.h"

static const tti_blueprint *blueprint_of(tutti_job *job) {
    const tti_blueprint *b;
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
        const tti_blueprint *b = blueprint_of(job);
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
    const tti_blueprint *b = blueprint_of(job);
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
        const tti_blueprint *b = blueprint_of(job);
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

typedef struct requested {
    int64_t n_out;
    int n_calls;
} requested;

static tutti_value *one_layer(tutti_graph *g, tutti_value *x, const void *user) {
    requested *w = (requested *)(uintptr_t)user;
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
    requested w = {.n_out = 10};
    tutti_job_set_model(job, one_layer, &w);
    const tti_blueprint *b = blueprint_of(job);
    T_EQ(w.n_calls, 2); /* training and evaluation */
    T_EQ(b->plan->n_params, 7850);
    assert_memory_equal(b->plan->slots[0].param->name, "mine.", 5);
    tti_blueprint_destroy(b);
    tutti_job_destroy(job);
}

static void refuse(tutti_model_fn fn, const void *user, const char *text) {
    tutti_job *job = SMALL_JOB("train.seed=1");
    const tti_blueprint *b = (const tti_blueprint *)job;
    tutti_job_set_model(job, fn, user);
    T_OK(tti_job_resolve(job, 2));
    T_FAILS(tti_blueprint_create(job, &b), TUTTI_E_INVALID, text);
    assert_null(b);
    tutti_job_destroy(job);
}

T_CASE(wrong_models_are_refused) {
    T_UNUSED;
    requested eleven = {.n_out = 11};
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
        const tti_blueprint *b = blueprint_of(job);
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

/* ---- plans of one model for unlike backends ---- */

static bool any_conv(const tti_node *node, bool tf32) {
    (void)tf32;
    return node != NULL;
}

static bool any(const tti_node *node) { return node != NULL; }

/* The target of a backend that has kernels for everything that passes can make. */
static tti_target target_of_a_device(const tti_blueprint *b) {
    tti_target target = tti_blueprint_target(b);
    target.prefers_channels_last = any;
    target.fuses_pool = any_conv;
    target.joins_exact_gelu = any;
    target.joins_head = any;
    target.joins_products = NULL;
    target.chains_any_float = target.fuse_linear_grad = target.fuse_batch_norm = true;
    target.fuse_residual_norm = target.fuse_loss = target.fuse_sums = true;
    return target;
}

static uint64_t digest_of(const tutti_job *job, const tti_blueprint *b, const tti_target *target,
                          bool by_creation) {
    static const tti_attr_arg momentum[] = {TTI_FLOAT("momentum", 0.9), {0}};
    tutti_graph *train, *eval;
    tti_plan *plan;
    T_OK(tti_blueprint_graph(job, b, true, &train));
    T_OK(tti_blueprint_graph(job, b, false, &eval));
    T_OK(tti_plan_create(&(tti_plan_desc){.train = train,
                                          .eval = eval,
                                          .target = target,
                                          .optimizer = "sgd",
                                          .optimizer_attrs = momentum,
                                          .bucket_bytes = 1 << 16,
                                          .by_creation = by_creation},
                         &plan));
    for (int i = 1; i < plan->n_buckets; i++)
        assert_true(plan->buckets[i].ready_after >= plan->buckets[i - 1].ready_after);
    for (int i = 0; i < plan->n_slots; i++) {
        const tti_bucket *bucket = &plan->buckets[tti_plan_find_bucket(plan, plan->slots[i].first)];
        assert_true(bucket->ready_after >= plan->slots[i].ready_after);
    }
    uint64_t digest = tti_plan_digest(plan);
    tti_plan_destroy(plan);
    return digest;
}

/* One layout, where gradients become ready in another order, and one order of joined values. */
T_CASE(plans_for_unlike_backends) {
    T_UNUSED;
    static const char *const models[][3] = {
        {"model.name=mlp", "model.dropout=0.1", "data.n_test=51"},
        {"model.name=lenet", "data.n_test=50", "data.n_test=51"},
        {"model.name=resnet18", "data.format=random_images", "parallel.sync_batch_norm=true"},
        {"model.name=resnet50", "data.format=random_images", "parallel.sync_batch_norm=true"},
        {"model.name=gpt2", "data.format=random_tokens", "model.layers=2"},
        {"model.name=bert", "data.format=random_tokens", "model.layers=2"}};
    int n_unlike = 0;
    for (size_t i = 0; i < 2 * TTI_COUNT(models); i++) {
        const char *const *m = models[i / 2];
        tutti_job *job = SMALL_JOB(m[0], m[1], m[2], "train.batch=8", "data.image_size=32",
                                   "train.loss=cross-entropy", "parallel.mode=fast",
                                   i % 2 ? "train.precision=bf16" : "train.precision=f32");
        const tti_blueprint *b = blueprint_of(job);
        tti_target host = tti_blueprint_target(b), device = target_of_a_device(b);
        T_EQ(digest_of(job, b, &host, true) == digest_of(job, b, &device, true), true);
        n_unlike += digest_of(job, b, &host, false) != digest_of(job, b, &device, false);
        tti_blueprint_destroy(b);
        tutti_job_destroy(job);
    }
    assert_true(n_unlike > 0); /* else there was nothing to make alike */
}

T_CASE(missing_data_is_named) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("data.format=idx", "data.dir=/nowhere");
    const tti_blueprint *b;
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
                                       cmocka_unit_test(plans_for_unlike_backends),
                                       cmocka_unit_test(missing_data_is_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
