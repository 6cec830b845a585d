/* device_session_test.c - sessions on devices, by the module of the tests whose devices are the
 * host: steps, outputs, inputs in device memory, and what devices do not offer. */
#include <stdlib.h>

#include "t.h"
#include "train/small_job.h"
#include "tutti/tutti.h"

enum { ROWS = 29, X = 28 * 28, CLASSES = 10 };

static float x[ROWS * X], logits[2][ROWS * CLASSES];
static int32_t y[ROWS];

static const tutti_field inputs[] = {{"x", {TUTTI_F32, {3, {1, 28, 28}}}}, {"y", {TUTTI_I32, {0}}}};
static tutti_tensor batch[] = {{"x", {TUTTI_F32, {4, {ROWS, 1, 28, 28}}}, x, 0},
                               {"y", {TUTTI_I32, {1, {ROWS}}}, y, 0}};

static void refuse_on_device(tutti_session *s) {
    T_FAILS(tutti_session_gradients(s, batch, 2, NULL), TUTTI_E_UNSUPPORTED, "devices");
    batch[0].data = NULL, batch[0].device = 1;
    T_FAILS(tutti_session_step(s, batch, 2, 0.1, NULL), TUTTI_E_INVALID, "data is NULL");
    batch[0].data = x, batch[0].device = 0;
    T_OK(tutti_session_step(s, batch, 2, 0.1, NULL));
}

static double run(const char *devices, const char *workers, float *out) {
    const tutti_session_desc desc = {.inputs = inputs, .n_inputs = 2, .n_classes = CLASSES};
    const tutti_tensor to = {"logits", {TUTTI_F32, {2, {ROWS, CLASSES}}}, out, 0};
    tutti_job *job = SMALL_JOB("optimizer.name=sgd", "train.precision=f32", devices, workers);
    tutti_session *s;
    tutti_session_result r;
    int32_t device = strcmp(devices, "parallel.devices=gpu") == 0;
    T_OK(tutti_session_create(job, &desc, &s));
    for (int i = 0; i < 3; i++) T_OK(tutti_session_step(s, batch, 2, 0.1, &r));
    batch[0].device = batch[1].device = device; /* its memory is the host's */
    T_OK(tutti_session_step(s, batch, 2, 0.1, &r));
    T_OK(tutti_session_forward(s, batch, 1, &to, 1));
    batch[0].device = batch[1].device = 0;
    if (device) refuse_on_device(s);
    tutti_session_destroy(s);
    tutti_job_destroy(job);
    return r.loss_sum / r.count;
}

T_CASE(devices_give_the_outputs_of_the_host) {
    static const char *const workers[] = {"parallel.workers=1", "parallel.workers=2"};
    T_UNUSED;
    for (int i = 0; i < ROWS * X; i++) x[i] = (float)(i * 37 % 101) / 101 - 0.5f;
    for (int i = 0; i < ROWS; i++) y[i] = i % CLASSES;
    double loss = run("parallel.devices=cpu", workers[0], logits[0]);
    for (size_t n = 0; n < TTI_COUNT(workers); n++) {
        T_NEAR(run("parallel.devices=gpu", workers[n], logits[1]), loss, 1e-5);
        for (int i = 0; i < ROWS * CLASSES; i++) T_NEAR(logits[1][i], logits[0][i], 1e-4);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(devices_give_the_outputs_of_the_host)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
