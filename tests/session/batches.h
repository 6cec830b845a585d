/* batches.h - batches of the caller and sessions that take them, for tests on the host. */
#ifndef TTI_TESTS_SESSION_BATCHES_H
#define TTI_TESTS_SESSION_BATCHES_H

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

static inline batch *make_batch(unsigned number, int64_t n_rows) {
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

static inline tutti_session *open_session(tutti_job *job) {
    const tutti_session_desc desc = {
        .size = sizeof desc, .inputs = inputs, .n_inputs = 2, .n_classes = CLASSES};
    tutti_session *s;
    T_OK(tutti_session_create(job, &desc, &s));
    return s;
}

/* Five steps of the caller's batches, the last one short; the hash. */
static inline uint64_t hash_of(tutti_job *job) {
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

#endif /* TTI_TESTS_SESSION_BATCHES_H */
