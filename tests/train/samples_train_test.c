/* samples_train_test.c - samples in the memory of the program: the bits of the same arrays in
 * files, by arrays and by a callback, with classes, values and fields; resumed; and refused
 * arguments. */
#include "data/samples.h"

#include <stdatomic.h>

#include "t.h"
#include "train/small_job.h"
#include "tutti/tutti.h"

enum { N = 140, X = 6 };

static float x[N][X], values[N][2];
static int64_t labels[N];
static atomic_int n_got;

static int get_sample(void *user, int64_t index, void *const *fields) {
    bool gives_values = *(bool *)user;
    atomic_fetch_add(&n_got, 1);
    memcpy(fields[0], x[index], sizeof x[0]);
    if (gives_values)
        memcpy(fields[1], values[index], sizeof values[0]);
    else
        memcpy(fields[1], &labels[index], sizeof labels[0]);
    return 0;
}

static void fill(void) {
    for (int i = 0; i < N; i++) {
        labels[i] = i * 7 % 3;
        for (int k = 0; k < X; k++) x[i][k] = (float)((i * 31 + k * 17) % 23) / 23 - 0.3f;
        for (int k = 0; k < 2; k++) values[i][k] = x[i][k] * 3 + (float)k;
    }
}

/* A .npy file of version 1. */
static void save(const char *name, const char *descr, const char *shape, const void *data,
                 size_t n_bytes) {
    char head[128];
    memset(head, ' ', sizeof head);
    memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
    int n = snprintf(head + 10, 118, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                     descr, shape);
    head[10 + n] = ' ';
    head[127] = '\n';
    FILE *file = fopen(name, "wb");
    T_EQ(fwrite(head, 1, 128, file), 128);
    T_EQ(fwrite(data, 1, n_bytes, file), n_bytes);
    T_EQ(fclose(file), 0);
}

static void save_all(const char *target) {
    save("x.npy", "<f4", "(140, 6)", x, sizeof x);
    if (strcmp(target, "values") == 0)
        save("y.npy", "<f4", "(140, 2)", values, sizeof values);
    else
        save("y.npy", "<i8", "(140,)", labels, sizeof labels);
}

static uint64_t trained(tutti_job *job) {
    tutti_train_result r;
    T_OK(tutti_train(job, NULL, &r));
    tutti_job_destroy(job);
    return r.params_hash;
}

static tutti_job *job_of(bool gives_values, const char *more) {
    return SMALL_JOB("run.progress=false", "data.n_train=0", "data.n_test=0",
                     gives_values ? "train.loss=mse" : "train.loss=cross-entropy", more);
}

static tutti_samples samples_of(bool *gives_values, bool by_callback) {
    static tutti_field fields[2];
    static const void *data[2];
    fields[0] = (tutti_field){"x", {TUTTI_F32, {1, {X}}}};
    fields[1] = *gives_values ? (tutti_field){"y", {TUTTI_F32, {1, {2}}}}
                              : (tutti_field){"y", {TUTTI_I64, {0}}};
    data[0] = x;
    data[1] = *gives_values ? (const void *)values : labels;
    return (tutti_samples){.n_samples = N,
                           .fields = fields,
                           .n_fields = 2,
                           .data = by_callback ? NULL : data,
                           .get = by_callback ? get_sample : NULL,
                           .user = gives_values};
}

static void compare(bool gives_values, const char *more) {
    fill();
    save_all(gives_values ? "values" : "labels");
    tutti_job *job = job_of(gives_values, more);
    tutti_job_set(job, "data.format=npy", "test");
    tutti_job_set(job, "data.dir=.", "test");
    uint64_t from_files = trained(job);
    for (int by_callback = 0; by_callback < 2; by_callback++) {
        job = job_of(gives_values, more);
        tutti_samples s = samples_of(&gives_values, by_callback);
        T_OK(tutti_job_set_samples(job, TUTTI_TRAIN, &s));
        memset(&s, 0xff, sizeof s); /* it was copied */
        T_EQ(trained(job), from_files);
    }
}

T_CASE(classes_have_the_bits_of_files) {
    T_UNUSED;
    compare(false, NULL);
    compare(false, "parallel.workers=2");
}

T_CASE(values_have_the_bits_of_files) {
    T_UNUSED;
    compare(true, NULL);
}

static tutti_value *of_fields(tutti_graph *g, tutti_value *a, const void *user) {
    (void)user;
    return tutti_linear(g, tutti_concat(g, (tutti_value *[]){a, tutti_find_field(g, "b")}, 2, 1), 2,
                        "head");
}

T_CASE(fields_have_the_bits_of_files) {
    uint64_t from_files = 0;
    T_UNUSED;
    fill();
    save("x.npy", "<f4", "(140, 6)", x, sizeof x);
    save("b.npy", "<f4", "(140, 6)", x, sizeof x);
    save("y.npy", "<f4", "(140, 2)", values, sizeof values);
    const tutti_field fields[] = {
        {"y", {TUTTI_F32, {1, {2}}}}, {"x", {TUTTI_F32, {1, {X}}}}, {"b", {TUTTI_F32, {1, {X}}}}};
    const void *const data[] = {values, x, x};
    const tutti_samples s = {.n_samples = N, .fields = fields, .n_fields = 3, .data = data};
    for (int i = 0; i < 2; i++) {
        tutti_job *job = job_of(true, "data.fields=all");
        tutti_job_set_model(job, of_fields, NULL);
        tutti_job_set(job, "data.format=npy", "test");
        tutti_job_set(job, "data.dir=.", "test");
        if (i == 1) T_OK(tutti_job_set_samples(job, TUTTI_TRAIN, &s));
        uint64_t hash = trained(job);
        if (i == 0) from_files = hash;
        T_EQ(hash, from_files);
    }
}

/* Stopped after 4 of 10 steps and resumed. */
T_CASE(runs_on_samples_are_resumed) {
    bool gives_values = false;
    T_UNUSED;
    fill();
    tutti_samples s = samples_of(&gives_values, false);
    tutti_job *job = job_of(false, "run.dir=whole");
    T_OK(tutti_job_set_samples(job, TUTTI_TRAIN, &s));
    uint64_t whole = trained(job);
    job = job_of(false, "run.dir=parts");
    tutti_job_set(job, "train.steps=4", "test");
    tutti_job_set(job, "schedule.steps=10", "test");
    T_OK(tutti_job_set_samples(job, TUTTI_TRAIN, &s));
    trained(job);
    T_OK(tutti_job_create(&job));
    T_OK(tutti_job_load_run(job, "parts"));
    tutti_job_set(job, "train.steps=10", "test");
    T_OK(tutti_job_set_samples(job, TUTTI_TRAIN, &s));
    tutti_train_result r;
    T_OK(tutti_train(job, &(tutti_train_desc){.resume = "parts"}, &r));
    T_EQ(r.params_hash, whole);
    tutti_job_destroy(job);
}

static int fails_at_77(void *user, int64_t index, void *const *fields) {
    bool gives_values = false;
    (void)user;
    return index == 77 ? 5 : get_sample(&gives_values, index, fields);
}

T_CASE(bad_samples_are_named) {
    bool gives_values = false;
    tutti_train_result r;
    tutti_samples good = samples_of(&gives_values, false), s;
    tutti_job *job = job_of(false, "data.classes=3");
    T_UNUSED;
    fill();
#define REFUSED(change, text)                                                        \
    do {                                                                             \
        tutti_field fields[2] = {good.fields[0], good.fields[1]};                    \
        const void *data[2] = {good.data[0], good.data[1]};                          \
        s = good, s.fields = fields, s.data = data;                                  \
        change;                                                                      \
        T_FAILS(tutti_job_set_samples(job, TUTTI_TRAIN, &s), TUTTI_E_INVALID, text); \
    } while (0)
    REFUSED(s.n_samples = 0, "n_samples is 0");
    REFUSED(s.n_samples = INT64_MAX, "n_samples is");
    REFUSED(s.n_fields = 33, "n_fields is 33");
    REFUSED(s.fields = NULL, "fields is NULL");
    REFUSED(s.data = NULL, "give data or get");
    REFUSED(s.get = get_sample, "not both");
    REFUSED(fields[0].name = NULL, "fields[0] needs a name");
    REFUSED(fields[0].name = "y", "there are two fields 'y'");
    REFUSED(fields[0].type.dtype = TUTTI_BF16, "field 'x' has dtype bf16");
    REFUSED(fields[0].type.dtype = (tutti_dtype)50, "field 'x' has dtype ?");
    REFUSED(fields[0].type.shape.n_dims = 8, "field 'x' has 8 dimensions");
    REFUSED(fields[0].type.shape.dim[0] = 0, "field 'x': dimension 0 is 0");
    REFUSED(data[1] = NULL, "the data of field 'y' is NULL");
    REFUSED(data[0] = (const char *)data[0] + 1, "the data of field 'x' is not aligned");
#undef REFUSED
    T_FAILS(tutti_job_set_samples(job, TUTTI_TRAIN, NULL), TUTTI_E_INVALID, "NULL");
    T_FAILS(tutti_job_set_samples(job, (tutti_data_split)7, &good), TUTTI_E_INVALID, "split 7");
    T_FAILS(tutti_job_set_samples(NULL, TUTTI_TRAIN, &good), TUTTI_E_INVALID, "job is NULL");
    s = samples_of(&gives_values, true);
    s.get = fails_at_77;
    T_OK(tutti_job_set_samples(job, TUTTI_TRAIN, &s));
    T_FAILS(tutti_train(job, NULL, &r), TUTTI_E_DATA, "get returned 5 for sample 77");
    tutti_job_set(job, "data.on_error=skip", "test");
    T_OK(tutti_train(job, NULL, &r));
    labels[3] = 3;
    s = samples_of(&gives_values, false);
    T_OK(tutti_job_set_samples(job, TUTTI_TRAIN, &s));
    T_FAILS(tutti_train(job, NULL, &r), TUTTI_E_DATA, "y: label 3");
    tutti_job_destroy(job);
}

/* ---- predictions and evaluation of samples in memory ---- */

typedef struct seen {
    int n, n_correct;
    float logits[N][3];
    int n_wanted; /* the call ends after so many; 0: after all */
} seen;

/* Probabilities are the softmax of the logits, and top has them in order. */
static int see(void *user, const tutti_prediction *p) {
    seen *s = user;
    double sum = 0;
    assert_null(p->error);
    T_EQ(p->index, s->n);
    T_EQ(p->n_outputs, 3);
    T_EQ(p->n_top, 3);
    for (int k = 0; k < 3; k++) sum += exp((double)p->outputs[k]);
    for (int k = 0; k < 3; k++) {
        T_NEAR(p->probabilities[k], exp((double)p->outputs[k]) / sum, 1e-12);
        T_NEAR(p->top[k].probability, p->probabilities[p->top[k].label], 0);
        assert_true(k == 0 || p->top[k].probability <= p->top[k - 1].probability);
        s->logits[s->n][k] = p->outputs[k];
    }
    s->n_correct += p->top[0].label == labels[s->n++];
    return s->n == s->n_wanted;
}

T_CASE(samples_are_predicted_and_evaluated) {
    bool gives_values = false;
    static seen by_arrays, by_callback, by_file;
    T_UNUSED;
    fill();
    tutti_samples s = samples_of(&gives_values, false);
    tutti_job *job = job_of(false, "run.dir=run");
    T_OK(tutti_job_set_samples(job, TUTTI_TRAIN, &s));
    trained(job);
    T_OK(tutti_job_create(&job));
    T_OK(tutti_job_load_run(job, "run"));
    T_OK(tutti_predict_samples(job, "run", &s, see, &by_arrays));
    T_EQ(by_arrays.n, N);
    save("rows.npy", "<f4", "(140, 6)", x, sizeof x);
    T_OK(tutti_predict(job, "run", (const char *const[]){"rows.npy"}, 1, see, &by_file));
    assert_memory_equal(by_file.logits, by_arrays.logits, sizeof by_file.logits);
    s = samples_of(&gives_values, true);
    T_OK(tutti_predict_samples(job, "run", &s, see, &by_callback));
    assert_memory_equal(by_callback.logits, by_arrays.logits, sizeof by_callback.logits);
    tutti_eval_result r;
    T_OK(tutti_job_set_samples(job, TUTTI_TEST, &s));
    T_OK(tutti_eval(job, "run", NULL, NULL, &r));
    T_EQ(r.n_samples, N);
    T_EQ(r.n_classes, 3);
    int64_t n_correct = 0;
    for (int k = 0; k < 3; k++) n_correct += r.classes[k].n_correct;
    T_EQ(n_correct, by_arrays.n_correct);
    T_NEAR(r.accuracy, (double)n_correct / N, 1e-12);
    tutti_eval_result_free(&r);
    by_file = (seen){.n_wanted = 3};
    T_FAILS(tutti_predict_samples(job, "run", &s, see, &by_file), TUTTI_E_INTERRUPTED, "callback");
    T_EQ(by_file.n, 3);
    tutti_field z = {"z", {TUTTI_F32, {1, {X}}}};
    s = samples_of(&gives_values, false);
    s.fields = &z, s.n_fields = 1;
    T_FAILS(tutti_predict_samples(job, "run", &s, see, &by_file), TUTTI_E_INVALID, "no field 'x'");
    T_FAILS(tutti_predict_samples(job, "run", NULL, see, &by_file), TUTTI_E_INVALID, "NULL");
    T_FAILS(tutti_predict_samples(job, "run", &s, NULL, NULL), TUTTI_E_INVALID, "fn is NULL");
    tutti_job_destroy(job);
}

/* The error is all that such a prediction has. */
static int see_overflow(void *user, const tutti_prediction *p) {
    int *n = user;
    T_EQ(p->index, *n);
    T_EQ(p->error != NULL, p->index == 1);
    T_EQ(p->n_outputs, p->error ? 0 : 3);
    if (p->error) {
        assert_non_null(strstr(p->error, "samples: sample 1: the model's output is not finite"));
        T_EQ(p->n_top + p->n_values + p->n_named, 0);
        assert_null(p->outputs);
        assert_null(p->probabilities);
    }
    return (*n)++, 0;
}

T_CASE(samples_that_overflow_are_reported) {
    bool gives_values = false;
    int n = 0;
    T_UNUSED;
    fill();
    tutti_samples s = samples_of(&gives_values, false);
    tutti_job *job = job_of(false, "run.dir=run");
    tutti_job_set(job, "model.hidden=[99, 99]", "test");
    T_OK(tutti_job_set_samples(job, TUTTI_TRAIN, &s));
    trained(job);
    for (int k = 0; k < X; k++) x[1][k] = k % 2 ? 3e38f : -3e38f;
    s.n_samples = 3;
    T_OK(tutti_job_create(&job));
    T_OK(tutti_job_load_run(job, "run"));
    T_FAILS(tutti_predict_samples(job, "run", &s, see_overflow, &n), TUTTI_E_NUMERICS,
            "not finite for 1 samples");
    T_EQ(n, 3);
    tutti_job_destroy(job);
}

/* Outputs are standardized: values have the mean and the deviation of the training rows. */
static int see_values(void *user, const tutti_prediction *p) {
    double *error = user;
    assert_true(p->is_value);
    T_EQ(p->n_values, 2);
    assert_null(p->probabilities);
    for (int k = 0; k < 2; k++) {
        double mean = 0, square = 0;
        for (int i = 0; i < N; i++) mean += (double)values[i][k] / N;
        for (int i = 0; i < N; i++) square += pow((double)values[i][k] - mean, 2) / N;
        T_NEAR(p->values[k], (double)p->outputs[k] * sqrt(square) + mean, 1e-5);
        *error = fmax(*error, fabs(p->values[k] - (double)values[p->index][k]));
    }
    return 0;
}

T_CASE(values_are_predicted_in_their_unit) {
    bool gives_values = true;
    double error = 0;
    T_UNUSED;
    fill();
    tutti_samples s = samples_of(&gives_values, false);
    tutti_job *job = job_of(true, "run.dir=run");
    tutti_job_set(job, "train.steps=400", "test");
    tutti_job_set(job, "model.hidden=[]", "test");
    tutti_job_set(job, "optimizer.lr=0.05", "test");
    T_OK(tutti_job_set_samples(job, TUTTI_TRAIN, &s));
    T_OK(tutti_job_set_samples(job, TUTTI_TEST, &s)); /* none are held out */
    trained(job);
    T_OK(tutti_job_create(&job));
    T_OK(tutti_job_load_run(job, "run"));
    T_OK(tutti_predict_samples(job, "run", &s, see_values, &error));
    assert_true(error < 0.3);
    tutti_job_destroy(job);
}

/* ---- callbacks ---- */

typedef struct calls {
    int n_steps, n_epochs;
    double lr[16];
} calls;

static void on_step(void *user, const tutti_train_progress *p, tutti_train_control *control) {
    calls *c = user;
    T_EQ(p->step, c->n_steps + 1);
    T_EQ(p->n_steps, 10);
    T_EQ(p->epoch, c->n_steps / p->steps_per_epoch);
    c->lr[c->n_steps++] = p->lr;
    control->set_lr = p->step == 3;
    control->lr = 0.125;
    control->save = p->step == 4;
    control->stop = p->step == 7;
}

static void on_epoch(void *user, const tutti_train_progress *p, tutti_train_control *control) {
    calls *c = user;
    (void)control;
    T_EQ(p->step % p->steps_per_epoch, 0);
    assert_true(p->has_eval);
    assert_true(p->eval_loss > 0);
    c->n_epochs++;
}

T_CASE(callbacks_stop_save_and_set_the_rate) {
    T_UNUSED;
    for (int n = 1; n <= 2; n++) {
        char workers[32], dir[32], saved[64];
        calls c = {0};
        tutti_train_result r;
        snprintf(workers, sizeof workers, "parallel.workers=%d", n);
        snprintf(dir, sizeof dir, "run.dir=run-%d", n);
        snprintf(saved, sizeof saved, "run-%d/checkpoints/step-000000004", n);
        tutti_job *job = SMALL_JOB("run.progress=false", "run.keep=9", workers, dir);
        T_OK(tutti_train(
            job, &(tutti_train_desc){.on_step = on_step, .on_epoch = on_epoch, .user = &c}, &r));
        T_EQ(c.n_steps, 7);
        T_EQ(c.n_epochs, 1);
        T_EQ(r.n_steps, 7);
        assert_true(r.stopped_early);
        T_EQ(r.exit_code, 0);
        T_EQ(access(saved, F_OK), 0);
        assert_true(c.lr[2] != 0.125);
        for (int i = 3; i < 7; i++) T_NEAR(c.lr[i], 0.125, 0);
        tutti_job_destroy(job);
    }
}

/* Requests that are rare: steps do not wait for them. */
typedef struct requests {
    int n_calls, request;
    bool saves;
    double lr;
} requests;

static void on_event(void *user, const tutti_event *e) {
    requests *r = user;
    if (e->kind == TUTTI_EVENT_START) __atomic_store_n(&r->request, 1, __ATOMIC_RELEASE);
}

static void on_request(void *user, const tutti_train_progress *p, tutti_train_control *control) {
    requests *r = user;
    bool is_wanted = __atomic_exchange_n(&r->request, 0, __ATOMIC_ACQ_REL) != 0;
    T_EQ(r->n_calls == 0, is_wanted);
    T_EQ(p->step, r->n_calls == 0 ? 1 : p->steps_per_epoch);
    assert_true(r->n_calls == 0 || p->has_eval);
    control->save = control->set_lr = r->n_calls == 0;
    control->lr = 0.125;
    control->stop = r->n_calls == 1;
    r->lr = p->lr;
    r->n_calls++;
}

T_CASE(rare_requests_are_answered_between_steps) {
    T_UNUSED;
    for (int n = 1; n <= 2; n++) {
        char workers[32], dir[32], saved[64];
        requests q = {0};
        tutti_train_result r;
        snprintf(workers, sizeof workers, "parallel.workers=%d", n);
        snprintf(dir, sizeof dir, "run.dir=run-%d", n);
        snprintf(saved, sizeof saved, "run-%d/checkpoints/step-000000001", n);
        tutti_job *job = SMALL_JOB("run.progress=false", "run.keep=9", workers, dir);
        const tutti_train_desc desc = {
            .on_event = on_event, .on_request = on_request, .request = &q.request, .user = &q};
        T_OK(tutti_train(job, &desc, &r));
        T_EQ(q.n_calls, 2);
        T_EQ(r.n_steps, 5);
        assert_true(r.stopped_early);
        T_EQ(access(saved, F_OK), 0);
        T_NEAR(q.lr, 0.125, 0);
        tutti_job_destroy(job);
    }
}

static void sets_nan(void *user, const tutti_train_progress *p, tutti_train_control *control) {
    (void)user, (void)p;
    control->set_lr = true;
    control->lr = NAN;
}

T_CASE(bad_callbacks_are_named) {
    tutti_train_result r;
    T_UNUSED;
    tutti_job *job = SMALL_JOB("run.progress=false", "parallel.workers=2");
    T_FAILS(tutti_train(job, &(tutti_train_desc){.on_step = sets_nan}, &r), TUTTI_E_INVALID,
            "a callback set lr to nan");
    tutti_job_set(job, "parallel.sync=parameter-server", "test");
    tutti_job_set(job, "parallel.mode=fast", "test");
    tutti_job_set(job, "parallel.staleness=1", "test");
    T_FAILS(tutti_train(job, &(tutti_train_desc){.on_step = sets_nan}, &r), TUTTI_E_UNSUPPORTED,
            "on_step");
    tutti_job_destroy(job);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_FOLDER(classes_have_the_bits_of_files),
        IN_FOLDER(values_have_the_bits_of_files),
        IN_FOLDER(fields_have_the_bits_of_files),
        IN_FOLDER(runs_on_samples_are_resumed),
        IN_FOLDER(bad_samples_are_named),
        IN_FOLDER(samples_are_predicted_and_evaluated),
        IN_FOLDER(samples_that_overflow_are_reported),
        IN_FOLDER(values_are_predicted_in_their_unit),
        IN_FOLDER(callbacks_stop_save_and_set_the_rate),
        IN_FOLDER(rare_requests_are_answered_between_steps),
        IN_FOLDER(bad_callbacks_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
