/* device_cases.h - what a session on devices does, for the devices of the tests and for GPUs:
 * bits of tutti_train, halves of a step, arrays by name, flat arrays, the caller's loss, files. */
#ifndef TTI_TESTS_SESSION_DEVICE_CASES_H
#define TTI_TESTS_SESSION_DEVICE_CASES_H

#include <stdlib.h>

#include "t.h"
#include "train/small_job.h"
#include "tutti/tutti.h"

enum { ROWS = 29, X = 28 * 28, CLASSES = 10, MAX_PARAMETERS = 32 };

static float case_x[ROWS * X];
static int32_t case_y[ROWS];

static const tutti_field case_inputs[] = {{"x", {TUTTI_F32, {3, {1, 28, 28}}}},
                                          {"y", {TUTTI_I32, {0}}}};
static tutti_tensor case_batch[] = {{"x", {TUTTI_F32, {4, {ROWS, 1, 28, 28}}}, case_x, 0},
                                    {"y", {TUTTI_I32, {1, {ROWS}}}, case_y, 0}};

static inline void make_case_batch(void) {
    for (int i = 0; i < ROWS * X; i++) case_x[i] = (float)(i * 37 % 101) / 101 - 0.5f;
    for (int i = 0; i < ROWS; i++) case_y[i] = i % CLASSES;
}

/* With running statistics, which are buffers. */
static inline tutti_value *with_buffers(tutti_graph *g, tutti_value *x, const void *user) {
    const tutti_conv2d_desc conv = {.n_out = 4, .kernel = 5, .stride = 4};
    (void)user;
    tutti_value *h = tutti_conv2d(g, x, &conv, "conv");
    h = tutti_relu(g, tutti_batch_norm2d(g, h, NULL, "norm"));
    return tutti_linear(g, tutti_flatten(g, h), CLASSES, "head");
}

static inline tutti_session *open_case(tutti_job *job, tutti_host_loss_fn loss) {
    const tutti_session_desc desc = {
        .inputs = case_inputs, .n_inputs = 2, .n_classes = CLASSES, .loss = loss};
    tutti_session *s;
    T_OK(tutti_session_create(job, &desc, &s));
    return s;
}

static inline size_t n_elems_of(const tutti_parameter *p) {
    return (size_t)tutti_shape_n_elems(&p->shape);
}

/* ---- the bits of tutti_train ---- */

static inline uint64_t hash_of_train(tutti_job *job) {
    tutti_train_result trained;
    T_OK(tutti_train(job, NULL, &trained));
    tutti_job_destroy(job);
    return trained.params_hash;
}

/* Ten steps over the job's data, whole ones and halves in turn; a gradient may be computed twice.
 */
static inline uint64_t hash_of_session(tutti_job *job) {
    tutti_session *s;
    tutti_session_result r = {0};
    uint64_t hash;
    T_OK(tutti_session_create(job, NULL, &s));
    for (int i = 0; i < 10; i++) {
        if (i % 3 == 0) {
            T_OK(tutti_session_step(s, NULL, 0, TUTTI_LR_OF_JOB, &r));
            T_EQ(r.step, i + 1);
            continue;
        }
        T_OK(tutti_session_gradients(s, NULL, 0, &r));
        if (i == 4) {
            T_OK(tutti_session_set_step(s, i));
            T_OK(tutti_session_gradients(s, NULL, 0, &r));
        }
        double loss = r.loss_sum / r.count;
        T_OK(tutti_session_apply(s, TUTTI_LR_OF_JOB, &r));
        T_NEAR(r.loss_sum / r.count, loss, 0);
        T_EQ(r.step, i + 1);
    }
    T_OK(tutti_session_hash(s, &hash));
    bool is_whole = strcmp(tutti_job_get(job, "parallel.tensor"), "1") == 0;
    if (is_whole) T_EQ(hash, r.params_hash);
    hash = r.params_hash;
    T_OK(tutti_session_evaluate(s, &r));
    T_EQ(r.n_rows, 50);
    tutti_session_destroy(s);
    tutti_job_destroy(job);
    return hash;
}

/* ---- arrays ---- */

/* All that a session gives by name, one after the other. */
typedef struct named_arrays {
    float *values;
    size_t n;
} named_arrays;

static inline void add_array(named_arrays *a, tutti_session *s, tutti_array_kind kind,
                             const char *name, const tutti_shape *shape) {
    size_t n = (size_t)tutti_shape_n_elems(shape);
    a->values = realloc(a->values, (a->n + n) * sizeof *a->values);
    const tutti_tensor to = {NULL, {TUTTI_F32, *shape}, a->values + a->n, 0};
    T_OK(tutti_session_read(s, kind, name, &to));
    a->n += n;
}

static inline void add_kind(named_arrays *a, tutti_session *s, tutti_array_kind kind) {
    tutti_session_info info;
    tutti_session_get_info(s, &info);
    for (int i = 0; i < info.n_parameters; i++) {
        tutti_parameter p;
        char name[256];
        T_OK(tutti_session_parameter_at(s, i, &p));
        if (p.is_buffer && kind != TUTTI_PARAMETER && kind != TUTTI_AVERAGE) continue;
        snprintf(name, sizeof name, "%s", p.name);
        for (int k = 0; k < (kind == TUTTI_STATE ? info.n_states : 1); k++) {
            if (kind == TUTTI_STATE)
                snprintf(name, sizeof name, "%s.%s", p.name, tutti_session_state_name(s, k));
            add_array(a, s, kind, name, &p.shape);
        }
    }
}

static inline void add_outputs(named_arrays *a, tutti_session *s) {
    a->values = realloc(a->values, (a->n + ROWS * CLASSES) * sizeof *a->values);
    const tutti_tensor out = {"logits", {TUTTI_F32, {2, {ROWS, CLASSES}}}, a->values + a->n, 0};
    T_OK(tutti_session_forward(s, case_batch, 1, &out, 1));
    a->n += ROWS * CLASSES;
}

/* Writes the first parameter, and reads it back; the next step finds it the same everywhere. */
static inline void write_first(tutti_session *s) {
    tutti_parameter p;
    T_OK(tutti_session_parameter_at(s, 0, &p));
    size_t n = n_elems_of(&p);
    float *w = calloc(2 * n, sizeof *w);
    const tutti_tensor t[] = {{NULL, {TUTTI_F32, p.shape}, w, 0},
                              {NULL, {TUTTI_F32, p.shape}, w + n, 0}};
    for (size_t i = 0; i < n; i++) w[i] = (float)(i % 17) / 100 - 0.08f;
    T_OK(tutti_session_write(s, TUTTI_PARAMETER, p.name, &t[0]));
    T_OK(tutti_session_read(s, TUTTI_PARAMETER, p.name, &t[1]));
    for (size_t i = 0; i < n; i++) T_NEAR(w[n + i], w[i], 0);
    free(w);
}

static inline named_arrays arrays_of(tutti_job *job) {
    named_arrays a = {0};
    tutti_session *s = open_case(job, NULL);
    tutti_session_info info;
    tutti_session_get_info(s, &info);
    T_OK(tutti_session_step(s, case_batch, 2, 0.1, NULL));
    write_first(s);
    T_OK(tutti_session_step(s, case_batch, 2, 0.1, NULL));
    T_OK(tutti_session_gradients(s, case_batch, 2, NULL));
    add_kind(&a, s, TUTTI_GRADIENT);
    T_OK(tutti_session_gradients(s, case_batch, 2, NULL));
    T_OK(tutti_session_apply(s, 0.05, NULL));
    add_kind(&a, s, TUTTI_PARAMETER);
    add_kind(&a, s, TUTTI_STATE);
    if (info.has_average) add_kind(&a, s, TUTTI_AVERAGE);
    add_outputs(&a, s);
    tutti_session_destroy(s);
    tutti_job_destroy(job);
    return a;
}

static inline void expect_near(const named_arrays *a, const named_arrays *b, double tolerance) {
    double size = 0;
    T_EQ(a->n, b->n);
    for (size_t i = 0; i < a->n; i++) {
        T_NEAR(a->values[i], b->values[i], tolerance);
        size += fabs((double)b->values[i]);
    }
    assert_true(size > 1);
}

/* ---- flat arrays ---- */

/* An optimizer of the caller that does what sgd does. */
static inline named_arrays arrays_of_own_sgd(tutti_job *job) {
    named_arrays a = {0};
    tutti_session *s = open_case(job, NULL);
    tutti_session_info info;
    uint64_t hash;
    tutti_session_get_info(s, &info);
    for (int i = 0; i < 3; i++) {
        tutti_session_result r;
        tutti_flat_view view;
        T_OK(tutti_session_gradients(s, case_batch, 2, &r));
        T_FAILS(tutti_session_apply_flat(s, &r), TUTTI_E_INVALID, "call tutti_session_flat");
        T_OK(tutti_session_flat(s, &view));
        T_OK(tutti_session_hash(s, &hash));
        T_FAILS(tutti_session_apply_flat(s, &r), TUTTI_E_INVALID, "no other call in between");
        T_OK(tutti_session_flat(s, &view));
        for (int k = 0; k < info.n_parameters; k++) {
            tutti_parameter p;
            T_OK(tutti_session_parameter_at(s, k, &p));
            for (size_t e = 0; !p.is_buffer && e < n_elems_of(&p); e++)
                view.params[(size_t)p.first + e] -=
                    0.1f * (float)r.grad_scale * view.grads[(size_t)p.first + e];
        }
        T_OK(tutti_session_apply_flat(s, &r));
        T_EQ(r.step, i + 1);
        T_OK(tutti_session_hash(s, &hash));
        T_EQ(hash, r.params_hash);
    }
    add_kind(&a, s, TUTTI_PARAMETER);
    if (info.has_average) add_kind(&a, s, TUTTI_AVERAGE);
    T_OK(tutti_session_step(s, case_batch, 2, 0.1, NULL));
    tutti_session_destroy(s);
    tutti_job_destroy(job);
    return a;
}

/* ---- the caller's loss ---- */

/* Cross-entropy, as the graph computes it. */
static inline int cross_entropy_of_caller(void *user, tutti_host_loss *loss) {
    const float *logits = loss->outputs[0].data;
    const int32_t *y = loss->inputs[1].data;
    float *grad = loss->grads[0].data;
    (void)user;
    for (int64_t i = 0; i < loss->n_rows; i++) {
        const float *row = logits + i * CLASSES;
        double most = row[0], sum = 0;
        for (int k = 1; k < CLASSES; k++) most = fmax(most, (double)row[k]);
        for (int k = 0; k < CLASSES; k++) sum += exp((double)row[k] - most);
        for (int k = 0; k < CLASSES; k++)
            grad[i * CLASSES + k] =
                (float)(exp((double)row[k] - most) / sum) - (k == y[i] ? 1.0f : 0.0f);
        loss->loss_sum += log(sum) + most - (double)row[y[i]];
    }
    loss->count = (double)loss->n_rows;
    return 0;
}

/* The mean losses of five steps, and the hash. */
static inline uint64_t losses_of(tutti_job *job, tutti_host_loss_fn loss, double *losses) {
    tutti_session *s = open_case(job, loss);
    uint64_t hash;
    for (int i = 0; i < 5; i++) {
        tutti_session_result r;
        if (i == 2) {
            T_OK(tutti_session_gradients(s, case_batch, 2, NULL));
            T_OK(tutti_session_apply(s, 0.1, &r));
        } else {
            T_OK(tutti_session_step(s, case_batch, 2, 0.1, &r));
        }
        losses[i] = r.loss_sum / r.count;
    }
    T_OK(tutti_session_hash(s, &hash));
    tutti_session_destroy(s);
    tutti_job_destroy(job);
    return hash;
}

static inline void expect_losses(const double *losses, const double *others, double tolerance) {
    for (int i = 0; i < 5; i++) T_NEAR(losses[i], others[i], tolerance);
}

/* ---- tensors in device memory ---- */

/* Memory of device 0 with a copy of host memory, kept until the test ends. */
typedef void *(*put_on_device_fn)(const void *from, size_t n_bytes);

/* The same losses and bits as with inputs in host memory. */
static inline void expect_device_inputs(tutti_job *job, tutti_job *same, put_on_device_fn put) {
    double losses[5], others[5];
    uint64_t hash = losses_of(job, NULL, losses);
    case_batch[0].data = put(case_x, sizeof case_x);
    case_batch[1].data = put(case_y, sizeof case_y);
    case_batch[0].device = case_batch[1].device = 1;
    T_EQ(losses_of(same, NULL, others), hash);
    expect_losses(others, losses, 0);
    case_batch[0].data = case_x, case_batch[1].data = case_y;
    case_batch[0].device = case_batch[1].device = 0;
}

static inline tutti_value *two_fields(tutti_graph *g, tutti_value *x, const void *user) {
    (void)user;
    tutti_value *h = tutti_mul(g, tutti_linear(g, x, 8, "a"), tutti_find_field(g, "mask"));
    return tutti_linear(g, tutti_tanh(g, h), 3, "head");
}

/* Named fields, of which the first is in host memory. */
static inline void expect_device_fields(tutti_job *job, put_on_device_fn put) {
    static const tutti_field fields[] = {{"x", {TUTTI_F32, {1, {5}}}},
                                         {"mask", {TUTTI_F32, {1, {8}}}},
                                         {"y", {TUTTI_F32, {1, {3}}}}};
    const tutti_session_desc desc = {.inputs = fields, .n_inputs = 3};
    tutti_tensor t[] = {{"x", {TUTTI_F32, {2, {ROWS, 5}}}, case_x, 0},
                        {"mask", {TUTTI_F32, {2, {ROWS, 8}}}, case_x + 500, 0},
                        {"y", {TUTTI_F32, {2, {ROWS, 3}}}, case_x + 1000, 0}};
    tutti_session_result r[2];
    tutti_job_set_model(job, two_fields, NULL);
    for (int i = 0; i < 2; i++) {
        tutti_session *s;
        T_OK(tutti_session_create(job, &desc, &s));
        for (int k = 0; k < 4; k++) T_OK(tutti_session_step(s, t, 3, 0.1, &r[i]));
        tutti_session_destroy(s);
        for (int k = 1; k < 3; k++) {
            t[k].data = put(t[k].data, (size_t)(ROWS * (k == 1 ? 8 : 3)) * sizeof(float));
            t[k].device = 1;
        }
    }
    T_EQ(r[1].params_hash, r[0].params_hash);
    tutti_job_destroy(job);
}

/* Outputs in a new tensor of the device, whose values come back as a parameter. */
static inline void expect_new_tensors(tutti_job *job) {
    float logits[ROWS * CLASSES], *back;
    const tutti_type type = {TUTTI_F32, {2, {ROWS, CLASSES}}};
    tutti_tensor out = {"logits", type, logits, 0}, view;
    tutti_parameter p;
    void *managed;
    tutti_session *s = open_case(job, NULL);
    T_OK(tutti_session_step(s, case_batch, 2, 0.1, NULL));
    T_OK(tutti_session_forward(s, case_batch, 1, &out, 1));
    for (int versioned = 0; versioned < 2; versioned++) {
        for (int device = 0; device < 2; device++) {
            T_OK(tutti_session_new_dlpack(s, &type, device, versioned, &managed));
            T_OK(tutti_tensor_from_dlpack(managed, versioned, "logits", &view));
            T_EQ(view.device, device);
            T_EQ(view.type.shape.dim[1], CLASSES);
            T_OK(tutti_session_forward(s, case_batch, 1, &view, 1));
            for (int i = 0; device == 0 && i < ROWS * CLASSES; i++)
                T_NEAR(((float *)view.data)[i], logits[i], 0);
            tutti_dlpack_release(managed, versioned);
        }
    }
    T_FAILS(tutti_session_new_dlpack(s, &type, 63, false, &managed), TUTTI_E_INVALID,
            "device is 63");
    assert_null(managed);
    /* From the device and back, by way of a parameter. */
    T_OK(tutti_session_parameter_at(s, 0, &p));
    size_t n = n_elems_of(&p);
    back = calloc(2 * n, sizeof *back);
    const tutti_tensor was = {NULL, {TUTTI_F32, p.shape}, back, 0};
    const tutti_tensor is = {NULL, {TUTTI_F32, p.shape}, back + n, 0};
    T_OK(tutti_session_read(s, TUTTI_PARAMETER, p.name, &was));
    T_OK(tutti_session_read_dlpack(s, TUTTI_PARAMETER, p.name, 1, true, &managed));
    T_OK(tutti_tensor_from_dlpack(managed, true, NULL, &view));
    T_OK(tutti_session_step(s, case_batch, 2, 0.1, NULL)); /* does not change the copy */
    T_OK(tutti_session_write(s, TUTTI_PARAMETER, p.name, &view));
    T_OK(tutti_session_read(s, TUTTI_PARAMETER, p.name, &is));
    for (size_t i = 0; i < n; i++) T_NEAR(back[n + i], back[i], 0);
    T_OK(tutti_session_gradients(s, case_batch, 2, NULL));
    T_OK(tutti_session_read(s, TUTTI_GRADIENT, p.name, &view));
    view.device = 77;
    T_FAILS(tutti_session_read(s, TUTTI_PARAMETER, p.name, &view), TUTTI_E_INVALID, "device is 77");
    /* A tensor outlives its session. */
    void *on_host;
    T_OK(tutti_session_read_dlpack(s, TUTTI_PARAMETER, p.name, 0, false, &on_host));
    tutti_session_destroy(s);
    T_OK(tutti_tensor_from_dlpack(on_host, false, NULL, &view));
    for (size_t i = 0; i < n; i++) T_NEAR(((float *)view.data)[i], back[i], 0);
    tutti_dlpack_release(on_host, false);
    tutti_dlpack_release(managed, true);
    tutti_dlpack_release(NULL, true);
    free(back);
    tutti_job_destroy(job);
}

/* ---- files ---- */

typedef struct predicted {
    const float *logits; /* [ROWS, CLASSES] of forward */
    int n;
} predicted;

static inline int compare_prediction(void *user, const tutti_prediction *p) {
    predicted *all = user;
    for (int k = 0; k < CLASSES; k++)
        T_NEAR(p->outputs[k], all->logits[p->index * CLASSES + k], 1e-3);
    all->n++;
    return 0;
}

/* Saves, loads into another session, and predicts from the folder what forward gives; both go on
 * alike. devices: of the second session. */
static inline void save_and_go_on(tutti_job *job, tutti_job *other) {
    float logits[ROWS * CLASSES];
    const tutti_tensor out = {"logits", {TUTTI_F32, {2, {ROWS, CLASSES}}}, logits, 0};
    predicted all = {.logits = logits};
    tutti_session_result r[2];
    tutti_session *s = open_case(job, NULL);
    for (int i = 0; i < 3; i++) T_OK(tutti_session_step(s, case_batch, 2, 0.1, &r[0]));
    T_OK(tutti_session_save(s, "saved"));
    T_OK(tutti_session_save_weights(s, "saved.safetensors"));
    T_OK(tutti_session_forward(s, case_batch, 1, &out, 1));
    tutti_session *again = open_case(other, NULL);
    T_OK(tutti_session_load_weights(again, "saved.safetensors"));
    T_OK(tutti_session_load(again, "saved"));
    T_OK(tutti_session_step(s, case_batch, 2, 0.1, &r[0]));
    T_OK(tutti_session_step(again, case_batch, 2, 0.1, &r[1]));
    T_EQ(r[1].step, 4);
    T_EQ(r[1].params_hash, r[0].params_hash);
    tutti_session_destroy(again);
    tutti_session_destroy(s);
    tutti_job_destroy(job);
    T_OK(tutti_job_create(&job));
    T_OK(tutti_job_load_run(job, "saved"));
    const tutti_samples samples = {ROWS, case_inputs, 1, (const void *const[]){case_x}, NULL, NULL};
    T_OK(tutti_predict_samples(job, "saved", &samples, compare_prediction, &all));
    T_EQ(all.n, ROWS);
    tutti_job_destroy(job);
    tutti_job_destroy(other);
}

/* ---- what goes wrong ---- */

/* A loss that is not finite leaves the session and its parameters as they are. */
static inline void survive_bad_loss(tutti_job *job) {
    tutti_session *s = open_case(job, NULL);
    uint64_t before, after;
    T_OK(tutti_session_step(s, case_batch, 2, 0.1, NULL));
    T_OK(tutti_session_hash(s, &before));
    float good = case_x[5];
    case_x[5] = NAN;
    T_FAILS(tutti_session_step(s, case_batch, 2, 0.1, NULL), TUTTI_E_NUMERICS, "not finite");
    T_FAILS(tutti_session_gradients(s, case_batch, 2, NULL), TUTTI_E_NUMERICS, "not finite");
    T_FAILS(tutti_session_apply(s, 0.1, NULL), TUTTI_E_INVALID, "there are no gradients");
    case_x[5] = good;
    T_OK(tutti_session_hash(s, &after));
    T_EQ(after, before);
    for (int i = 0; i < 2; i++) {
        tutti_session_result r;
        T_OK(tutti_session_step(s, case_batch, 2, 0.1, &r));
        T_EQ(r.step, i + 2);
        assert_true(r.params_hash != before && !r.skipped);
    }
    tutti_session_destroy(s);
    tutti_job_destroy(job);
}

#endif /* TTI_TESTS_SESSION_DEVICE_CASES_H */
