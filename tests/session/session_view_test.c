/* session_view_test.c - parameters that the caller changes in place. */
#include <stdlib.h>

#include "t.h"
#include "train/small_job.h"
#include "tutti/tutti.h"

enum { ROWS = 8, X = 28 * 28 };

static float x[ROWS * X];
static int32_t y[ROWS];
static const tutti_tensor batch[] = {{"x", {TUTTI_F32, {4, {ROWS, 1, 28, 28}}}, x, 0},
                                     {"y", {TUTTI_I32, {1, {ROWS}}}, y, 0}};

static tutti_session *open_session(tutti_job *job) {
    static const tutti_field inputs[] = {{"x", {TUTTI_F32, {3, {1, 28, 28}}}},
                                         {"y", {TUTTI_I32, {0}}}};
    const tutti_session_desc desc = {
        .size = sizeof desc, .inputs = inputs, .n_inputs = 2, .n_classes = 10};
    tutti_session *s;
    T_OK(tutti_session_create(job, &desc, &s));
    return s;
}

/* A change in place has the bits of tutti_session_write, before and after steps. */
T_CASE(parameters_are_changed_in_place) {
    static const float values[10] = {1, -2, 3, -4, 5, -6, 7, -8, 9, 0.5f};
    tutti_tensor view, given = {"b", {TUTTI_F32, {1, {10}}}, (void *)(uintptr_t)values, 0};
    T_UNUSED;
    for (int n = 1; n <= 4; n *= 2) {
        uint64_t hash[2];
        for (int in_place = 0; in_place < 2; in_place++) {
            char workers[32];
            snprintf(workers, sizeof workers, "parallel.workers=%d", n);
            tutti_job *job = SMALL_JOB("optimizer.name=adamw", workers);
            tutti_session *s = open_session(job);
            for (int step = 0; step < 3; step++) {
                T_OK(tutti_session_step(s, batch, 2, 0.01, NULL));
                T_OK(tutti_session_view(s, "out.bias", &view));
                T_EQ(view.type.shape.dim[0], 10);
                if (in_place) memcpy(view.data, values, sizeof values);
                if (!in_place) T_OK(tutti_session_write(s, TUTTI_PARAMETER, "out.bias", &given));
                T_OK(tutti_session_hash(s, &hash[in_place]));
            }
            T_OK(tutti_session_step(s, batch, 2, 0.01, NULL));
            T_OK(tutti_session_hash(s, &hash[in_place]));
            tutti_session_destroy(s);
            tutti_job_destroy(job);
        }
        T_EQ(hash[0], hash[1]);
    }
    static const char *const refused[] = {"parallel.zero=2", "parallel.copies=each",
                                          "parallel.sync=parameter-server", "parallel.pipeline=2"};
    for (size_t i = 0; i < TTI_COUNT(refused); i++) {
        tutti_job *job = SMALL_JOB("parallel.workers=2", refused[i]);
        tutti_session *s = open_session(job);
        T_FAILS(tutti_session_view(s, "out.bias", &view), TUTTI_E_UNSUPPORTED,
                "tutti_session_read");
        tutti_session_close(s);
        T_FAILS(tutti_session_view(s, "out.bias", &view), TUTTI_E_INVALID, "closed");
        tutti_session_destroy(s);
        tutti_job_destroy(job);
    }
}

int main(void) {
    for (int i = 0; i < ROWS * X; i++) x[i] = (float)((i * 37) % 101) / 100;
    for (int i = 0; i < ROWS; i++) y[i] = i;
    const struct CMUnitTest tests[] = {cmocka_unit_test(parameters_are_changed_in_place)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
