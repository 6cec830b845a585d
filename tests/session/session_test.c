/* session_test.c - sessions: the bits of tutti_train for any number of workers and in every layout,
 * parts of steps, arrays by name, the caller's loss, files, and arguments that are refused. */
#include <stdlib.h>
#include <sys/wait.h>

#include "session/batches.h"

T_CASE(layouts_have_the_bits_of_one_worker) {
    static const char *const layouts[][3] = {
        {"parallel.workers=2"},
        {"parallel.workers=4"},
        {"parallel.workers=2", "parallel.copies=each"},
        {"parallel.workers=2", "parallel.zero=1"},
        {"parallel.workers=4", "parallel.zero=2"},
        {"parallel.workers=2", "parallel.zero=3"},
        {"parallel.workers=2", "parallel.sync=parameter-server"},
        {"parallel.workers=2", "parallel.pipeline=2"},
    };
    T_UNUSED;
    uint64_t one = hash_of(SMALL_JOB("optimizer.name=adamw"));
    for (size_t i = 0; i < TTI_COUNT(layouts); i++) {
        tutti_job *job = SMALL_JOB("optimizer.name=adamw");
        for (int k = 0; k < 3 && layouts[i][k]; k++) tutti_job_set(job, layouts[i][k], "test");
        uint64_t hash = hash_of(job);
        if (hash != one) fail_msg("%s %s: other bits", layouts[i][0], layouts[i][1]);
    }
}

/* The job's own data, as tutti_train reads it. */
T_CASE(data_of_the_job_has_the_bits_of_train) {
    tutti_train_result trained;
    T_UNUSED;
    tutti_job *job = SMALL_JOB("optimizer.name=sgd", "schedule.name=cosine", "run.progress=false");
    T_OK(tutti_train(job, NULL, &trained));
    tutti_job_destroy(job);
    for (int n = 1; n <= 4; n *= 2) {
        char workers[32];
        snprintf(workers, sizeof workers, "parallel.workers=%d", n);
        job = SMALL_JOB("optimizer.name=sgd", "schedule.name=cosine", workers);
        tutti_session *s;
        tutti_session_result r;
        T_OK(tutti_session_create(job, NULL, &s));
        for (int i = 0; i < 10; i++) T_OK(tutti_session_step(s, NULL, 0, TUTTI_LR_OF_JOB, &r));
        T_EQ(r.params_hash, trained.params_hash);
        T_OK(tutti_session_evaluate(s, &r));
        T_EQ(r.n_rows, 50);
        T_NEAR(r.loss_sum / r.count, trained.loss, 1e-12);
        T_NEAR(r.correct / r.count, trained.accuracy, 1e-12);
        tutti_session_destroy(s);
        tutti_job_destroy(job);
    }
}

/* ---- parts of a step ---- */

static tutti_tensor named(const char *name, const tutti_shape *shape, float *data) {
    return (tutti_tensor){name, {TUTTI_F32, *shape}, data, 0};
}

static void step_in_parts(tutti_session *s, const batch *b) {
    tutti_session_result r, half;
    T_OK(tutti_session_gradients(s, b->tensors, 2, &half));
    T_EQ(half.step, 0);
    T_OK(tutti_session_apply(s, 0.01, &r));
    T_EQ(r.step, 1);
    T_NEAR(r.loss_sum, half.loss_sum, 0);
}

T_CASE(parts_of_a_step_have_its_bits) {
    static const char *const layouts[] = {
        "parallel.workers=1", "parallel.workers=2", "parallel.copies=each", "parallel.zero=1",
        "parallel.zero=2",    "parallel.zero=3",    "parallel.pipeline=2"};
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(layouts); i++) {
        uint64_t whole, parts;
        tutti_job *job = SMALL_JOB("optimizer.name=adamw", "parallel.workers=2",
                                   "train.clip_norm=0.1", layouts[i]);
        batch *b = make_batch(3, 29);
        tutti_session *s = open_session(job);
        T_OK(tutti_session_step(s, b->tensors, 2, 0.01, NULL));
        T_OK(tutti_session_hash(s, &whole));
        tutti_session_destroy(s);
        s = open_session(job);
        step_in_parts(s, b);
        T_OK(tutti_session_hash(s, &parts));
        T_EQ(parts, whole);
        tutti_session_destroy(s);
        tutti_job_destroy(job);
        free(b);
    }
}

/* With sgd without momentum the update is w -= lr * gradient. */
T_CASE(gradients_are_those_of_the_update) {
    static const char *const layouts[] = {"parallel.workers=1", "parallel.workers=4",
                                          "parallel.zero=1",    "parallel.zero=2",
                                          "parallel.zero=3",    "parallel.pipeline=2"};
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(layouts); i++) {
        tutti_job *job = SMALL_JOB("optimizer.name=sgd", "optimizer.momentum=0",
                                   "optimizer.weight_decay=0", "parallel.workers=2", layouts[i]);
        tutti_session *s = open_session(job);
        batch *b = make_batch(1, BATCH);
        tutti_parameter p;
        T_OK(tutti_session_parameter_at(s, 0, &p));
        size_t n = (size_t)tutti_shape_n_elems(&p.shape);
        float *before = calloc(3 * n, sizeof *before), *grad = before + n, *after = grad + n;
        const tutti_tensor t0 = named(NULL, &p.shape, before), t1 = named(NULL, &p.shape, grad),
                           t2 = named(NULL, &p.shape, after);
        T_OK(tutti_session_read(s, TUTTI_PARAMETER, p.name, &t0));
        T_OK(tutti_session_gradients(s, b->tensors, 2, NULL));
        T_OK(tutti_session_read(s, TUTTI_GRADIENT, p.name, &t1));
        T_OK(tutti_session_apply(s, 0.5, NULL));
        T_OK(tutti_session_read(s, TUTTI_PARAMETER, p.name, &t2));
        double moved = 0;
        for (size_t k = 0; k < n; k++) {
            T_NEAR(after[k], before[k] - 0.5f * grad[k], 1e-6);
            moved += fabs((double)grad[k]);
        }
        assert_true(moved > 1e-3);
        free(before);
        free(b);
        tutti_session_destroy(s);
        tutti_job_destroy(job);
    }
}

/* An optimizer of the caller that does what sgd does. */
static uint64_t hash_of_own_sgd(tutti_job *job) {
    tutti_session *s = open_session(job);
    uint64_t hash;
    for (unsigned i = 0; i < 3; i++) {
        batch *b = make_batch(i, BATCH);
        tutti_session_result r;
        tutti_flat_view view;
        T_OK(tutti_session_gradients(s, b->tensors, 2, &r));
        T_OK(tutti_session_flat(s, &view));
        for (int64_t k = 0; k < view.n_elems; k++)
            view.params[k] -= 0.1f * (float)r.grad_scale * view.grads[k];
        T_OK(tutti_session_apply_flat(s, &r));
        T_EQ(r.step, i + 1);
        free(b);
    }
    T_OK(tutti_session_hash(s, &hash));
    tutti_session_destroy(s);
    tutti_job_destroy(job);
    return hash;
}

T_CASE(optimizers_of_the_caller_work_with_any_workers) {
    T_UNUSED;
    uint64_t one = hash_of_own_sgd(SMALL_JOB(NULL));
    T_EQ(hash_of_own_sgd(SMALL_JOB("parallel.workers=2")), one);
    T_EQ(hash_of_own_sgd(SMALL_JOB("parallel.workers=4", "parallel.copies=each")), one);
}

/* ---- forward ---- */

static const char *const model_layouts[] = {"parallel.workers=1", "parallel.workers=4",
                                            "parallel.zero=3", "parallel.pipeline=2",
                                            "parallel.tensor=2"};

T_CASE(outputs_are_the_same_in_every_layout) {
    float first[29 * CLASSES];
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(model_layouts); i++) {
        tutti_job *job = SMALL_JOB("parallel.workers=2", model_layouts[i]);
        tutti_session *s = open_session(job);
        batch *b = make_batch(5, 29);
        float logits[29 * CLASSES];
        tutti_field field;
        T_OK(tutti_session_output_at(s, 0, &field));
        assert_string_equal(field.name, "logits");
        T_EQ(field.type.shape.n_dims, 1);
        T_EQ(field.type.shape.dim[0], CLASSES);
        const tutti_tensor out = named("logits", &TUTTI_SHAPE(29, CLASSES), logits);
        T_OK(tutti_session_forward(s, b->tensors, 1, &out, 1)); /* without labels */
        for (int k = 0; k < 29 * CLASSES; k++) {
            if (i == 0) first[k] = logits[k];
            T_NEAR(logits[k], first[k], i == 4 ? 1e-5 : 0);
        }
        free(b);
        tutti_session_destroy(s);
        tutti_job_destroy(job);
    }
}

/* ---- a model and a loss of the caller ---- */

static tutti_value *two_inputs(tutti_graph *g, tutti_value *x, const void *user) {
    (void)user;
    tutti_value *a = tutti_linear(g, x, 8, "a"), *b = tutti_find_field(g, "mask");
    tutti_value *h = tutti_mul(g, tutti_relu(g, a), b);
    tutti_output(g, "hidden", h);
    return tutti_linear(g, h, 3, "head");
}

static const tutti_field fields[] = {
    {"x", {TUTTI_F32, {1, {5}}}}, {"mask", {TUTTI_F32, {1, {8}}}}, {"y", {TUTTI_F32, {1, {3}}}}};

enum { ROWS = 16 };

typedef struct values {
    float x[ROWS * 5], mask[ROWS * 8], y[ROWS * 3];
    tutti_tensor tensors[3];
} values;

static values *make_values(int64_t n) {
    values *v = calloc(1, sizeof *v);
    for (int i = 0; i < ROWS * 5; i++) v->x[i] = (float)(i * 37 % 11) / 11 - 0.4f;
    for (int i = 0; i < ROWS * 8; i++) v->mask[i] = i % 3 != 0;
    for (int i = 0; i < ROWS * 3; i++) v->y[i] = (float)(i * 29 % 7) / 7;
    v->tensors[0] = named("x", &TUTTI_SHAPE(n, 5), v->x);
    v->tensors[1] = named("mask", &TUTTI_SHAPE(n, 8), v->mask);
    v->tensors[2] = named("y", &TUTTI_SHAPE(n, 3), v->y);
    return v;
}

/* The mean squared error of logits and y, as train.loss=mse has it. */
static int squared_error(void *user, tutti_host_loss *loss) {
    const float *logits = NULL, *y = loss->inputs[2].data;
    float *grad = NULL;
    for (int i = 0; i < loss->n_outputs; i++) {
        if (strcmp(loss->outputs[i].name, "logits") != 0) continue;
        logits = loss->outputs[i].data;
        grad = loss->grads[i].data;
    }
    ++*(int *)user;
    for (int64_t i = 0; i < loss->n_rows * 3; i++) {
        float d = logits[i] - y[i];
        loss->loss_sum += (double)d * (double)d;
        grad[i] = 2 * d;
    }
    loss->count = (double)loss->n_rows * 3;
    return 0;
}

static tutti_session *open_fields(const char *workers, tutti_host_loss_fn loss, int *n_calls) {
    const tutti_session_desc desc = {
        .inputs = fields, .n_inputs = 3, .loss = loss, .loss_user = n_calls};
    tutti_job *job = SMALL_JOB("train.batch=16", "train.loss=mse", "optimizer.name=sgd", workers);
    tutti_session *s;
    tutti_job_set_model(job, two_inputs, NULL);
    T_OK(tutti_session_create(job, &desc, &s));
    tutti_job_destroy(job);
    return s;
}

T_CASE(losses_of_the_caller_train_as_those_of_the_graph) {
    tutti_session_result by_graph, r;
    uint64_t first = 0, hash;
    T_UNUSED;
    values *v = make_values(13);
    tutti_session *s = open_fields("parallel.workers=1", NULL, NULL);
    for (int i = 0; i < 20; i++) T_OK(tutti_session_step(s, v->tensors, 3, 0.1, &by_graph));
    tutti_session_destroy(s);
    for (int n = 1; n <= 4; n *= 2) {
        char workers[32];
        int n_calls = 0;
        snprintf(workers, sizeof workers, "parallel.workers=%d", n);
        s = open_fields(workers, squared_error, &n_calls);
        for (int i = 0; i < 20; i++) T_OK(tutti_session_step(s, v->tensors, 3, 0.1, &r));
        T_EQ(n_calls, 20);
        T_NEAR(r.loss_sum / r.count, by_graph.loss_sum / by_graph.count, 1e-5);
        T_OK(tutti_session_hash(s, &hash));
        if (n == 1) first = hash;
        T_EQ(hash, first);
        tutti_session_destroy(s);
    }
    free(v);
}

static int refuses(void *user, tutti_host_loss *loss) {
    loss->count = 1;
    return ++*(int *)user;
}

T_CASE(losses_of_the_caller_may_fail) {
    int n_calls = 6;
    uint64_t before, after;
    T_UNUSED;
    values *v = make_values(16);
    tutti_session *s = open_fields("parallel.workers=2", refuses, &n_calls);
    T_OK(tutti_session_hash(s, &before));
    T_FAILS(tutti_session_step(s, v->tensors, 3, 0.1, NULL), TUTTI_E_DATA, "desc.loss returned 7");
    T_OK(tutti_session_hash(s, &after));
    T_EQ(after, before);
    tutti_session_destroy(s);
    free(v);
}

/* ---- arrays and files ---- */

T_CASE(arrays_are_written_and_read) {
    static const char *const layouts[] = {"parallel.workers=1",
                                          "parallel.workers=4",
                                          "parallel.zero=1",
                                          "parallel.zero=3",
                                          "parallel.pipeline=2",
                                          "parallel.tensor=2",
                                          "parallel.sync=parameter-server"};
    static const char *const arrays[] = {"fc1.weight", "fc1.weight.exp_avg", "fc1.weight"};
    static const tutti_array_kind kinds[] = {TUTTI_PARAMETER, TUTTI_STATE, TUTTI_AVERAGE};
    T_UNUSED;
    for (size_t i = 0; i < TTI_COUNT(layouts); i++) {
        tutti_job *job =
            SMALL_JOB("optimizer.name=adamw", "train.ema=0.9", "parallel.workers=2", layouts[i]);
        tutti_session *s = open_session(job);
        assert_string_equal(tutti_session_state_name(s, 0), "exp_avg");
        for (int a = 0; a < 3; a++) {
            float out[8 * X], in[8 * X];
            for (int k = 0; k < 8 * X; k++) out[k] = (float)(k % 100) + (float)a;
            const tutti_tensor to = named(NULL, &TUTTI_SHAPE(8, X), out),
                               from = named(NULL, &TUTTI_SHAPE(8, X), in);
            T_OK(tutti_session_write(s, kinds[a], arrays[a], &to));
            T_OK(tutti_session_read(s, kinds[a], arrays[a], &from));
            assert_memory_equal(in, out, sizeof out);
        }
        tutti_session_destroy(s);
        tutti_job_destroy(job);
    }
}

/* Saved by one layout after 2 steps and loaded by another: as if it had gone on. */
T_CASE(sessions_go_on_from_a_checkpoint) {
    uint64_t whole, rest;
    batch *b = make_batch(2, BATCH);
    T_UNUSED;
    tutti_job *job = SMALL_JOB("optimizer.name=adamw", "train.ema=0.9");
    tutti_session *s = open_session(job);
    for (int i = 0; i < 4; i++) {
        T_OK(tutti_session_step(s, b->tensors, 2, 0.01, NULL));
        if (i != 1) continue;
        T_OK(tutti_session_save(s, "saved"));
        T_OK(tutti_session_save_weights(s, "weights.safetensors"));
    }
    T_OK(tutti_session_hash(s, &whole));
    tutti_session_destroy(s);
    tutti_job_destroy(job);
    job =
        SMALL_JOB("optimizer.name=adamw", "train.ema=0.9", "parallel.workers=2", "parallel.zero=1");
    s = open_session(job);
    T_FAILS(tutti_session_load(s, "nothing"), TUTTI_E_CHECKPOINT, "nothing");
    T_OK(tutti_session_load(s, "saved"));
    for (int i = 0; i < 2; i++) T_OK(tutti_session_step(s, b->tensors, 2, 0.01, NULL));
    T_OK(tutti_session_hash(s, &rest));
    T_EQ(rest, whole);
    T_OK(tutti_session_load(s, "saved"));
    T_OK(tutti_session_hash(s, &whole));
    T_OK(tutti_session_step(s, b->tensors, 2, 0.01, NULL));
    T_OK(tutti_session_load_weights(s, "weights.safetensors"));
    T_OK(tutti_session_hash(s, &rest));
    T_EQ(rest, whole);
    tutti_session_destroy(s);
    tutti_job_destroy(job);
    free(b);
}

/* A run of tutti_train, opened for its outputs by what its folder says. */
T_CASE(runs_are_opened_by_their_folder) {
    tutti_train_result trained;
    float logits[4 * CLASSES];
    T_UNUSED;
    tutti_job *job = SMALL_JOB("run.dir=run", "run.progress=false");
    T_OK(tutti_train(job, NULL, &trained));
    tutti_job_destroy(job);
    T_OK(tutti_job_create(&job));
    T_OK(tutti_job_load_run(job, "run"));
    tutti_session *s;
    uint64_t hash;
    T_OK(tutti_session_create(job, &(tutti_session_desc){.run_dir = "run"}, &s));
    T_OK(tutti_session_hash(s, &hash));
    T_EQ(hash, trained.params_hash);
    batch *b = make_batch(0, 4);
    const tutti_tensor out = named("logits", &TUTTI_SHAPE(4, CLASSES), logits);
    T_OK(tutti_session_forward(s, b->tensors, 1, &out, 1));
    /* The same rows as pixels, as the data set stores them. */
    uint8_t pixels[4 * X];
    for (int i = 0; i < 4 * X; i++) pixels[i] = (uint8_t)(i * 7);
    const tutti_tensor x = {"x", {TUTTI_U8, {4, {4, 1, 28, 28}}}, pixels, 0};
    T_OK(tutti_session_forward(s, &x, 1, &out, 1));
    free(b);
    tutti_session_destroy(s);
    tutti_job_destroy(job);
}

/* ---- arguments that are refused ---- */

T_CASE(bad_inputs_are_named) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB(NULL);
    tutti_session *s = open_session(job);
    batch *b = make_batch(0, BATCH);
    uint64_t before, after;
    float out[BATCH * CLASSES];
    const tutti_tensor logits = named("logits", &TUTTI_SHAPE(BATCH, CLASSES), out);
    T_OK(tutti_session_hash(s, &before));
#define REFUSED(change, text)                                                   \
    do {                                                                        \
        tutti_tensor t[2] = {b->tensors[0], b->tensors[1]};                     \
        change;                                                                 \
        T_FAILS(tutti_session_step(s, t, 2, 0.1, NULL), TUTTI_E_INVALID, text); \
        T_FAILS(tutti_session_gradients(s, t, 2, NULL), TUTTI_E_INVALID, text); \
    } while (0)
    REFUSED(t[0].name = NULL, "inputs[0].name is NULL");
    REFUSED(t[0].name = "z", "there is no input 'z'; inputs are x, y");
    REFUSED(t[1] = t[0], "input 'x' is given twice");
    REFUSED(t[0].data = NULL, "input 'x': data is NULL");
    REFUSED(t[0].type.dtype = TUTTI_I32, "input 'x' must be f32");
    REFUSED(t[0].type.dtype = (tutti_dtype)77, "input 'x': dtype 77");
    REFUSED(t[0].type.shape.n_dims = 9, "input 'x': n_dims is 9");
    REFUSED(t[0].type.shape.dim[2] = 27, "input 'x' must be f32");
    REFUSED(t[0].type.shape.dim[0] = BATCH + 1, "input 'x' has 33 rows");
    REFUSED(t[0].type.shape.dim[0] = 0, "input 'x' has 0 rows");
    REFUSED(t[0].type.shape.dim[0] = INT64_MAX / 2, "input 'x': dimension");
    REFUSED(t[0].type.shape.dim[0] = -1, "input 'x': dimension 0 is -1");
    REFUSED(t[1].type.shape.dim[0] = 3, "input 'y' has 3 rows");
    REFUSED(t[1].type.dtype = TUTTI_F32, "input 'y' must be i32");
    REFUSED(t[0].data = (char *)t[0].data + 1, "input 'x': data is not aligned");
#undef REFUSED
    b->y[5] = CLASSES;
    T_FAILS(tutti_session_step(s, b->tensors, 2, 0.1, NULL), TUTTI_E_INVALID,
            "input 'y': 10 in row 5; values must be -1 .. 9");
    b->y[5] = 0;
    tutti_tensor far = b->tensors[0];
    far.device = 1;
    T_FAILS(tutti_session_step(s, &far, 1, 0.1, NULL), TUTTI_E_UNSUPPORTED, "input 'x': it is in");
    T_FAILS(tutti_session_step(s, b->tensors, 1, 0.1, NULL), TUTTI_E_INVALID,
            "the input 'y' is missing");
    T_FAILS(tutti_session_step(s, NULL, 2, 0.1, NULL), TUTTI_E_INVALID, "inputs is NULL");
    T_FAILS(tutti_session_step(s, NULL, 0, 0.1, NULL), TUTTI_E_INVALID, "inputs is NULL");
    T_FAILS(tutti_session_step(s, b->tensors, 2, -2, NULL), TUTTI_E_INVALID, "lr is -2");
    T_FAILS(tutti_session_step(s, b->tensors, 2, NAN, NULL), TUTTI_E_INVALID, "lr is nan");
    T_FAILS(tutti_session_apply(s, 0.1, NULL), TUTTI_E_INVALID, "there are no gradients");
    T_FAILS(tutti_session_forward(s, b->tensors, 2, NULL, 1), TUTTI_E_INVALID, "outputs is NULL");
    tutti_tensor wrong = logits;
    wrong.name = "probabilities";
    T_FAILS(tutti_session_forward(s, b->tensors, 2, &wrong, 1), TUTTI_E_INVALID,
            "there is no output 'probabilities'; outputs are logits");
    wrong = logits;
    wrong.type.shape.dim[0] = 4;
    T_FAILS(tutti_session_forward(s, b->tensors, 2, &wrong, 1), TUTTI_E_INVALID,
            "output 'logits' must be f32");
    T_FAILS(tutti_session_read(s, TUTTI_PARAMETER, "fc9.weight", &logits), TUTTI_E_INVALID,
            "no parameter 'fc9.weight'");
    T_FAILS(tutti_session_read(s, TUTTI_PARAMETER, NULL, &logits), TUTTI_E_INVALID, "is NULL");
    T_FAILS(tutti_session_read(s, TUTTI_PARAMETER, "fc1.weight", NULL), TUTTI_E_INVALID, "is NULL");
    T_FAILS(tutti_session_read(s, TUTTI_PARAMETER, "fc1.weight", &logits), TUTTI_E_INVALID,
            "the tensor for 'fc1.weight' must be f32");
    T_FAILS(tutti_session_read(s, (tutti_array_kind)9, "fc1.weight", &logits), TUTTI_E_INVALID,
            "array kind 9");
    T_FAILS(tutti_session_read(s, TUTTI_GRADIENT, "fc1.weight", &logits), TUTTI_E_INVALID,
            "there is no gradient of 'fc1.weight'");
    T_FAILS(tutti_session_read(s, TUTTI_STATE, "fc1.weight.rank", &logits), TUTTI_E_INVALID,
            "no optimizer state 'fc1.weight.rank'");
    T_OK(tutti_session_gradients(s, b->tensors, 2, NULL));
    T_OK(tutti_session_forward(s, b->tensors, 1, &logits, 1));
    T_FAILS(tutti_session_apply(s, 0.1, NULL), TUTTI_E_INVALID, "there are no gradients");
    T_FAILS(tutti_session_save(s, NULL), TUTTI_E_INVALID, "the path is NULL");
    T_FAILS(tutti_session_set_step(s, -1), TUTTI_E_INVALID, "step is -1");
    T_FAILS(tutti_session_set_step(s, INT64_MAX), TUTTI_E_INVALID, "step is 9223372036854775807");
    T_FAILS(tutti_session_step(s, b->tensors, 1000, 0.1, NULL), TUTTI_E_INVALID,
            "n_inputs is 1000");
    T_FAILS(tutti_session_forward(s, b->tensors, 1, &logits, 1000), TUTTI_E_INVALID,
            "n_outputs is 1000");
    T_OK(tutti_session_hash(s, &after));
    T_EQ(after, before);
    T_OK(tutti_session_step(s, b->tensors, 2, 0.1, NULL));
    b->x[7] = NAN;
    T_OK(tutti_session_hash(s, &before));
    T_FAILS(tutti_session_step(s, b->tensors, 2, 0.1, NULL), TUTTI_E_NUMERICS, "not finite");
    T_OK(tutti_session_hash(s, &after));
    T_EQ(after, before);
    b->x[7] = 0;
    T_OK(tutti_session_step(s, b->tensors, 2, 0.1, NULL));
    tutti_session_close(s);
    T_FAILS(tutti_session_step(s, b->tensors, 2, 0.1, NULL), TUTTI_E_INVALID,
            "the session is closed");
    T_FAILS(tutti_session_read(s, TUTTI_PARAMETER, "fc1.weight", &logits), TUTTI_E_INVALID,
            "the session is closed");
    tutti_session_close(s);
    tutti_session_destroy(s);
    T_FAILS(tutti_session_step(NULL, b->tensors, 2, 0.1, NULL), TUTTI_E_INVALID, "session is NULL");
    tutti_job_destroy(job);
    free(b);
}

T_CASE(bad_descriptions_are_named) {
    tutti_session *s = NULL;
    T_UNUSED;
    tutti_job *job = SMALL_JOB(NULL);
#define REFUSED(want, status, text) \
    T_FAILS(tutti_session_create(job, &(tutti_session_desc){want}, &s), status, text)
#define GIVES .inputs = inputs, .n_inputs = 2
    REFUSED(.size = 3, TUTTI_E_INVALID, "desc.size is 3");
    REFUSED(.n_inputs = 2, TUTTI_E_INVALID, "desc.inputs is NULL");
    REFUSED(.inputs = inputs, TUTTI_E_INVALID, "desc.n_inputs is 0");
    T_FAILS(tutti_session_create(job, &(tutti_session_desc){GIVES, .n_classes = -1}, &s),
            TUTTI_E_INVALID, "desc.n_classes is -1");
    const tutti_field twice[] = {inputs[0], inputs[0]}, bytes[] = {{"x", {TUTTI_U8, {0}}}};
    const tutti_field empty[] = {{"x", {TUTTI_F32, {1, {0}}}}}, unnamed[] = {{0}};
    T_FAILS(tutti_session_create(job, &(tutti_session_desc){.inputs = twice, .n_inputs = 2}, &s),
            TUTTI_E_INVALID, "has 'x' twice");
    T_FAILS(tutti_session_create(job, &(tutti_session_desc){.inputs = bytes, .n_inputs = 1}, &s),
            TUTTI_E_INVALID, "input 'x' must be f32 or i32");
    T_FAILS(tutti_session_create(job, &(tutti_session_desc){.inputs = empty, .n_inputs = 1}, &s),
            TUTTI_E_INVALID, "input 'x': dimension 0 is 0");
    T_FAILS(tutti_session_create(job, &(tutti_session_desc){.inputs = unnamed, .n_inputs = 1}, &s),
            TUTTI_E_INVALID, "desc.inputs[0] needs a name");
    T_FAILS(tutti_session_create(NULL, NULL, &s), TUTTI_E_INVALID, "job is NULL");
    T_FAILS(tutti_session_create(job, NULL, NULL), TUTTI_E_INVALID, "out is NULL");
    T_EQ(s, NULL);
    tutti_job_set(job, "parallel.workers=2", "test");
    tutti_job_set(job, "parallel.place=processes", "test");
    T_FAILS(tutti_session_create(job, NULL, &s), TUTTI_E_UNSUPPORTED, "parallel.place");
    tutti_job_set(job, "parallel.place=threads", "test");
    tutti_job_set(job, "optimizer.lrr=1", "test");
    T_FAILS(tutti_session_create(job, NULL, &s), TUTTI_E_CONFIG, "optimizer.lrr");
    tutti_job_destroy(job);
#undef GIVES
#undef REFUSED
}

/* ---- threads, cycles, capsules ---- */

typedef struct shared {
    tutti_session *s;
    batch *b;
} shared;

static const char *step_some(int rank, int n_ranks, void *arg) {
    shared *all = arg;
    (void)n_ranks;
    for (int i = 0; i < 10; i++)
        if (rank % 2 ? tutti_session_hash(all->s, &(uint64_t){0}) != TUTTI_OK
                     : tutti_session_step(all->s, all->b->tensors, 2, 0.01, NULL) != TUTTI_OK)
            return "a call failed";
    return NULL;
}

T_CASE(threads_take_turns) {
    tutti_session_info info;
    T_UNUSED;
    tutti_job *job = SMALL_JOB("parallel.workers=2");
    shared all = {open_session(job), make_batch(0, BATCH)};
    tutti_session *other = open_session(job); /* two at a time */
    t_ranks(4, step_some, &all);
    T_OK(tutti_session_step(other, all.b->tensors, 2, 0.01, NULL));
    tutti_session_get_info(all.s, &info);
    T_EQ(info.step, 20);
    T_EQ(info.n_workers, 2);
    T_EQ(info.n_rows, BATCH);
    assert_true(info.is_open);
    tutti_session_destroy(all.s);
    tutti_session_destroy(other);
    tutti_session_get_info(NULL, &info);
    T_EQ(info.batch, 0);
    tutti_job_destroy(job);
    free(all.b);
}

T_CASE(losses_of_the_caller_refuse_compression) {
    int n_calls = 0;
    tutti_session *s;
    T_UNUSED;
    tutti_job *job = SMALL_JOB("train.batch=16", "parallel.workers=2", "parallel.mode=fast",
                               "parallel.compress=topk");
    const tutti_session_desc desc = {
        .inputs = fields, .n_inputs = 3, .loss = squared_error, .loss_user = &n_calls};
    tutti_job_set_model(job, two_inputs, NULL);
    T_FAILS(tutti_session_create(job, &desc, &s), TUTTI_E_UNSUPPORTED, "parallel.compress=topk");
    assert_null(s);
    tutti_job_destroy(job);
}

static int calls_session(void *user, tutti_host_loss *loss) {
    tutti_session *s = *(tutti_session **)user;
    uint64_t hash;
    loss->count = 1;
    return tutti_session_hash(s, &hash) == TUTTI_E_INVALID ? 0 : 1;
}

T_CASE(callbacks_may_not_call_their_session) {
    tutti_session *s = NULL;
    T_UNUSED;
    values *v = make_values(16);
    tutti_job *job = SMALL_JOB("train.batch=16");
    tutti_job_set_model(job, two_inputs, NULL);
    const tutti_session_desc desc = {
        .inputs = fields, .n_inputs = 3, .loss = calls_session, .loss_user = &s};
    T_OK(tutti_session_create(job, &desc, &s));
    T_OK(tutti_session_step(s, v->tensors, 3, 0.1, NULL));
    tutti_session_destroy(s);
    tutti_job_destroy(job);
    free(v);
}

T_CASE(many_cycles_leave_nothing) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("parallel.workers=2");
    batch *b = make_batch(0, BATCH);
    for (int i = 0; i < 100; i++) {
        tutti_session *s = open_session(job);
        T_OK(tutti_session_step(s, b->tensors, 2, 0.01, NULL));
        tutti_session_destroy(s);
    }
    tutti_job_destroy(job);
    free(b);
}

/* The child has none of the workers' threads: its calls fail with a message, and wait for nothing.
 */
T_CASE(sessions_are_not_inherited) {
    T_UNUSED;
    tutti_job *job = SMALL_JOB("parallel.workers=2");
    tutti_session *s = open_session(job);
    batch *b = make_batch(0, BATCH);
    int status;
    T_OK(tutti_session_step(s, b->tensors, 2, 0.1, NULL));
    pid_t child = fork();
    if (child == 0) {
        uint64_t hash;
        bool refused = tutti_session_step(s, b->tensors, 2, 0.1, NULL) == TUTTI_E_INVALID &&
                       strstr(tutti_last_error(), "create one after fork") &&
                       tutti_session_hash(s, &hash) == TUTTI_E_INVALID;
        tutti_session_close(s);
        tutti_session_destroy(s);
        _exit(refused ? 0 : 1);
    }
    T_EQ(waitpid(child, &status, 0), child);
    T_EQ(status, 0);
    T_OK(tutti_session_step(s, b->tensors, 2, 0.1, NULL));
    free(b);
    tutti_session_destroy(s);
    tutti_job_destroy(job);
}

/* A run of tutti_train and another session between two steps of a session. */
T_CASE(runs_of_one_process_do_not_meet) {
    T_UNUSED;
    tutti_train_result trained[2];
    tutti_job *job = SMALL_JOB("run.progress=false", "run.checkpoint_every=-1"), *two;
    T_OK(tutti_train(job, NULL, &trained[0]));
    tutti_session *s[2];
    tutti_session_result r[2] = {0};
    two = SMALL_JOB("parallel.workers=2");
    T_OK(tutti_session_create(job, NULL, &s[0]));
    T_OK(tutti_session_create(two, NULL, &s[1]));
    for (int i = 0; i < 10; i++) {
        if (i == 5) T_OK(tutti_train(job, NULL, &trained[1]));
        for (int k = 0; k < 2; k++) T_OK(tutti_session_step(s[k], NULL, 0, TUTTI_LR_OF_JOB, &r[k]));
    }
    T_EQ(trained[1].params_hash, trained[0].params_hash);
    for (int k = 0; k < 2; k++) {
        T_EQ(r[k].params_hash, trained[0].params_hash);
        tutti_session_destroy(s[k]);
    }
    tutti_job_destroy(job);
    tutti_job_destroy(two);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_have_the_bits_of_one_worker),
        IN_FOLDER(data_of_the_job_has_the_bits_of_train),
        cmocka_unit_test(parts_of_a_step_have_its_bits),
        cmocka_unit_test(gradients_are_those_of_the_update),
        cmocka_unit_test(optimizers_of_the_caller_work_with_any_workers),
        cmocka_unit_test(outputs_are_the_same_in_every_layout),
        cmocka_unit_test(losses_of_the_caller_train_as_those_of_the_graph),
        cmocka_unit_test(losses_of_the_caller_may_fail),
        cmocka_unit_test(arrays_are_written_and_read),
        IN_FOLDER(sessions_go_on_from_a_checkpoint),
        IN_FOLDER(runs_are_opened_by_their_folder),
        cmocka_unit_test(bad_inputs_are_named),
        cmocka_unit_test(bad_descriptions_are_named),
        cmocka_unit_test(threads_take_turns),
        cmocka_unit_test(callbacks_may_not_call_their_session),
        cmocka_unit_test(many_cycles_leave_nothing),
        cmocka_unit_test(losses_of_the_caller_refuse_compression),
        cmocka_unit_test(sessions_are_not_inherited),
        IN_FOLDER(runs_of_one_process_do_not_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
