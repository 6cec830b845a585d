/* session_test.c - sessions: the bits of tutti_train for any number of workers and in every layout,
 * parts of steps, arrays by name, the caller's loss, files, and arguments that are refused. */
#include <stdlib.h>

#include "t.h"
#include "train/small_job.h"
#include "tutti/tutti.h"

enum { BATCH = 32, X = 28 * 28, CLASSES = 10 };

static const tutti_field inputs[] = {{"x", {TUTTI_F32, {3, {1, 28, 28}}}}, {"y", {TUTTI_I32, {0}}}};

/* A batch of the caller's: x [BATCH,1,28,28] and y [BATCH], the same for the same number. */
typedef struct batch {
    float x[BATCH * X];
    int32_t y[BATCH];
    tutti_tensor tensors[2];
} batch;

static batch *make_batch(unsigned number, int64_t n_rows) {
    batch *b = calloc(1, sizeof *b);
    unsigned state = number * 2654435761u + 1;
    for (int64_t i = 0; i < n_rows * X; i++) {
        state = state * 1664525u + 1013904223u;
        b->x[i] = (float)(state >> 8) / (float)(1 << 24) - 0.5f;
    }
    for (int64_t i = 0; i < n_rows; i++) b->y[i] = (int32_t)((i * 7 + number) % CLASSES);
    b->tensors[0] = (tutti_tensor){"x", {TUTTI_F32, {4, {n_rows, 1, 28, 28}}}, b->x, 0};
    b->tensors[1] = (tutti_tensor){"y", {TUTTI_I32, {1, {n_rows}}}, b->y, 0};
    return b;
}

static tutti_session *open_session(tutti_job *job) {
    const tutti_session_desc desc = {
        .size = sizeof desc, .inputs = inputs, .n_inputs = 2, .n_classes = CLASSES};
    tutti_session *s;
    T_OK(tutti_session_create(job, &desc, &s));
    return s;
}

/* Five steps of the caller's batches, the last one short; the hash. */
static uint64_t hash_of(tutti_job *job) {
    tutti_session *s = open_session(job);
    tutti_session_result r;
    uint64_t hash;
    for (unsigned i = 0; i < 5; i++) {
        batch *b = make_batch(i, i == 4 ? 13 : BATCH);
        T_OK(tutti_session_step(s, b->tensors, 2, 0.01, &r));
        T_EQ(r.n_rows, i == 4 ? 13 : BATCH);
        free(b);
    }
    T_EQ(r.step, 5);
    T_OK(tutti_session_hash(s, &hash));
    if (!strstr(tutti_job_get(job, "parallel.pipeline"), "2")) T_EQ(hash, r.params_hash);
    tutti_session_destroy(s);
    tutti_job_destroy(job);
    return hash;
}

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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_have_the_bits_of_one_worker),
        IN_FOLDER(data_of_the_job_has_the_bits_of_train),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
