/* ckpt_fixture.h - a small state whose values follow from its step, in a run folder of its own. */
#ifndef TTI_TESTS_CKPT_FIXTURE_H
#define TTI_TESTS_CKPT_FIXTURE_H

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "t.h"

typedef struct small_state {
    float weight[2][3], bias[3], exp_avg[2][3];
    int64_t counter;
    uint8_t mask[5];
    uint16_t half[2];
    tti_ckpt_tensor params[5], optimizer[2];
    tti_ckpt_text texts[2];
} small_state;

static char run_dir[64];

static inline void state_init(small_state *s, int64_t step) {
    *s = (small_state){.counter = step};
    for (int i = 0; i < 6; i++) s->weight[i / 3][i % 3] = (float)step + 0.25f * (float)i;
    for (int i = 0; i < 3; i++) s->bias[i] = -(float)step - (float)i;
    for (int i = 0; i < 6; i++) s->exp_avg[i / 3][i % 3] = 1.0f / (float)(step + i + 1);
    for (int i = 0; i < 5; i++) s->mask[i] = (uint8_t)(step * 7 + i);
    for (int i = 0; i < 2; i++) s->half[i] = (uint16_t)(step + i);
    tti_ckpt_tensor params[5] = {
        {"fc1.weight", {TUTTI_F32, TUTTI_SHAPE(2, 3)}, s->weight},
        {"fc1.bias", {TUTTI_F32, TUTTI_SHAPE(3)}, s->bias},
        {"mask", {TUTTI_U8, TUTTI_SHAPE(5)}, s->mask},
        {"half", {TUTTI_BF16, TUTTI_SHAPE(1, 2)}, s->half},
        {"empty", {TUTTI_F32, TUTTI_SHAPE(0, 4)}, NULL},
    };
    tti_ckpt_tensor optimizer[2] = {
        {"state.fc1.weight.exp_avg", {TUTTI_F32, TUTTI_SHAPE(2, 3)}, s->exp_avg},
        {"counter", {TUTTI_I64, {0}}, &s->counter},
    };
    memcpy(s->params, params, sizeof params);
    memcpy(s->optimizer, optimizer, sizeof optimizer);
    s->texts[0] = (tti_ckpt_text){"job", "train:\n  batch: 128  # \"quoted\" \\ \xC3\xA9\n"};
    s->texts[1] = (tti_ckpt_text){"note", ""};
}

static inline tti_ckpt_save_desc state_desc(const small_state *s) {
    return (tti_ckpt_save_desc){
        .run_dir = run_dir,
        .meta = {.step = s->counter,
                 .epoch = 3,
                 .position = 77,
                 .n_shards = 8,
                 .seed = -5,
                 .job_digest = 0xFEDCBA9876543210u,
                 .params_hash = (uint64_t)s->counter * 0x9E3779B97F4A7C15u,
                 .backend = "cpu"},
        .texts = s->texts,
        .n_texts = 2,
        .params = s->params,
        .n_params = 5,
        .optimizer = s->optimizer,
        .n_optimizer = 2,
    };
}

static inline tutti_status state_save(int64_t step) {
    small_state s;
    state_init(&s, step);
    tti_ckpt_save_desc desc = state_desc(&s);
    return tti_ckpt_save(&desc);
}

/* Whether ckpt holds, to the bit, what state_save(step) has saved. */
static inline bool state_equals(const tti_ckpt *ckpt, int64_t step) {
    small_state expected, found;
    state_init(&expected, step);
    state_init(&found, 0);
    if (tti_ckpt_read(ckpt, TTI_CKPT_MODEL, found.params, 5) != TUTTI_OK) return false;
    if (tti_ckpt_read(ckpt, TTI_CKPT_OPTIMIZER, found.optimizer, 2) != TUTTI_OK) return false;
    const tti_ckpt_meta *meta = tti_ckpt_get_meta(ckpt);
    const char *job = tti_ckpt_get_text(ckpt, "job");
    return memcmp(expected.weight, found.weight, sizeof found.weight) == 0 &&
           memcmp(expected.bias, found.bias, sizeof found.bias) == 0 &&
           memcmp(expected.exp_avg, found.exp_avg, sizeof found.exp_avg) == 0 &&
           memcmp(expected.mask, found.mask, sizeof found.mask) == 0 &&
           memcmp(expected.half, found.half, sizeof found.half) == 0 && found.counter == step &&
           meta->step == step && meta->epoch == 3 && meta->position == 77 && meta->n_shards == 8 &&
           meta->seed == -5 && meta->job_digest == 0xFEDCBA9876543210u &&
           meta->params_hash == (uint64_t)step * 0x9E3779B97F4A7C15u &&
           strcmp(meta->backend, "cpu") == 0 && job && strcmp(job, expected.texts[0].text) == 0;
}

/* The newest good checkpoint is that of step. */
static inline void check_newest(int64_t step) {
    tti_ckpt *ckpt;
    T_OK(tti_ckpt_open(run_dir, NULL, NULL, &ckpt));
    T_EQ(tti_ckpt_get_meta(ckpt)->step, step);
    assert_true(state_equals(ckpt, step));
    tti_ckpt_close(ckpt);
}

static inline int remove_one(const char *path, const struct stat *info, int kind,
                             struct FTW *level) {
    (void)info, (void)kind, (void)level;
    return remove(path);
}

static inline int fresh_run(void **state) {
    (void)state;
    snprintf(run_dir, sizeof run_dir, "/tmp/tutti-ckpt-XXXXXX");
    return mkdtemp(run_dir) ? 0 : -1;
}

/* In memory where that is possible: for tests that kill processes, not machines. */
static inline int fresh_run_in_memory(void **state) {
    snprintf(run_dir, sizeof run_dir, "/dev/shm/tutti-ckpt-XXXXXX");
    return mkdtemp(run_dir) ? 0 : fresh_run(state);
}

static inline int remove_run(void **state) {
    (void)state;
    return nftw(run_dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* "RUN/checkpoints/NAME" in a buffer that the next call reuses. */
static inline const char *in_checkpoints(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/checkpoints/%s", run_dir, name);
    return path;
}

/* A whole file; *n_bytes is its size. */
static inline uint8_t *read_whole(const char *path, size_t *n_bytes) {
    static uint8_t bytes[1 << 16];
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    ssize_t n = read(fd, bytes, sizeof bytes);
    close(fd);
    assert_true(n >= 0 && (size_t)n < sizeof bytes);
    *n_bytes = (size_t)n;
    return bytes;
}

static inline void write_whole(const char *path, const void *bytes, size_t n_bytes) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n_bytes), n_bytes);
    close(fd);
}

#endif /* TTI_TESTS_CKPT_FIXTURE_H */
