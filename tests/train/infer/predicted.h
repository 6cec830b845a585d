/* predicted.h - for tests of tutti_predict: reads the parameters of a run, computes layers in f64,
 * checks predictions against logits, and compares them with the lines of `tutti predict`. */
#ifndef TTI_TESTS_TRAIN_PREDICTED_H
#define TTI_TESTS_TRAIN_PREDICTED_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/str.h"
#include "t.h"
#include "train/small_job.h"
#include "tutti/tutti.h"

enum { T_MOST_OUTPUTS = 64 };

/* f32 output against a computation in f64. */
#define T_LOGIT_TOLERANCE 2e-6

/* The array `name` of the checkpoint of step `step` in the run folder "run", of n elements; freed
 * by the caller.  Reads the safetensors file by itself. */
static inline float *t_parameter(int step, const char *name, size_t n) {
    char path[96], key[96];
    unsigned char size[8];
    unsigned long first, end, n_head = 0;
    snprintf(path, sizeof path, "run/checkpoints/step-%09d/model.safetensors", step);
    snprintf(key, sizeof key, "\"%s\":", name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    T_EQ(fread(size, 1, 8, file), 8);
    for (int i = 7; i >= 0; i--) n_head = n_head << 8 | size[i];
    char *head = calloc(1, n_head + 1);
    float *out = malloc(n * sizeof *out);
    T_EQ(fread(head, 1, n_head, file), n_head);
    const char *at = strstr(head, key);
    if (!at) fail_msg("%s has no %s: %s", path, name, head);
    at = strstr(at, "\"data_offsets\":");
    T_EQ(sscanf(at, "\"data_offsets\":[%lu,%lu]", &first, &end), 2);
    T_EQ(end - first, n * sizeof *out);
    T_EQ(fseek(file, (long)(8 + n_head + first), SEEK_SET), 0);
    T_EQ(fread(out, sizeof *out, n, file), n);
    fclose(file);
    free(head);
    return out;
}

/* y = w x + b of the layer `name`: w [n_out,n_in]. */
static inline void t_layer(int step, const char *name, const double *x, int n_in, double *y,
                           int n_out) {
    char text[96];
    snprintf(text, sizeof text, "%s.weight", name);
    float *w = t_parameter(step, text, (size_t)(n_in * n_out));
    snprintf(text, sizeof text, "%s.bias", name);
    float *b = t_parameter(step, text, (size_t)n_out);
    for (int o = 0; o < n_out; o++) {
        y[o] = (double)b[o];
        for (int i = 0; i < n_in; i++) y[o] += (double)w[o * n_in + i] * x[i];
    }
    free(w);
    free(b);
}

/* The logits of a multi-layer perceptron with one hidden layer. */
static inline void t_mlp(int step, const double *x, int n_in, int n_hidden, double *y, int n_out) {
    double hidden[T_MOST_OUTPUTS];
    t_layer(step, "fc1", x, n_in, hidden, n_hidden);
    for (int i = 0; i < n_hidden; i++) hidden[i] = fmax(hidden[i], 0);
    t_layer(step, "out", hidden, n_hidden, y, n_out);
}

/* The outputs of a prediction are these logits. */
static inline void t_check_logits(const tutti_prediction *p, const double *logits, int64_t n) {
    if (p->error) fail_msg("%s", p->error);
    assert_null(p->notice);
    T_EQ(p->n_outputs, n);
    for (int64_t k = 0; k < n; k++) T_NEAR(p->outputs[k], logits[k], T_LOGIT_TOLERANCE);
}

/* Probabilities are the softmax of the logits, and top has the likeliest classes in order. */
static inline void t_check_classes(const tutti_prediction *p, const double *logits, int64_t n,
                                   const char *const *names) {
    bool taken[T_MOST_OUTPUTS] = {false};
    double sum = 0;
    t_check_logits(p, logits, n);
    assert_false(p->is_value || p->is_labels);
    T_EQ(p->n_values, 0);
    T_EQ(p->n_top, n < TUTTI_PREDICT_TOP ? n : TUTTI_PREDICT_TOP);
    for (int64_t k = 0; k < n; k++) sum += exp(logits[k]);
    for (int64_t k = 0; k < n; k++)
        T_NEAR(p->probabilities[k], exp(logits[k]) / sum, T_LOGIT_TOLERANCE);
    for (int t = 0; t < p->n_top; t++) {
        int64_t best = -1;
        for (int64_t k = 0; k < n; k++)
            if (!taken[k] && (best < 0 || logits[k] > logits[best])) best = k;
        taken[best] = true;
        T_EQ(p->top[t].label, best);
        T_NEAR(p->top[t].probability, exp(logits[best]) / sum, T_LOGIT_TOLERANCE);
        if (names) assert_string_equal(p->top[t].name, names[best]);
    }
}

/* The predictions of one call. */
typedef struct t_predicted {
    void (*check)(const tutti_prediction *p); /* of each sample */
    int n, n_notices;                         /* samples; notices */
    tti_str lines;                            /* the samples as text */
} t_predicted;

static inline int t_take(void *user, const tutti_prediction *p) {
    t_predicted *all = user;
    if (p->notice) {
        all->n_notices++;
        T_EQ(p->n_outputs + p->n_top + p->n_values, 0);
        return 0;
    }
    all->check(p);
    all->n++;
    char *line = tutti_prediction_print(p);
    assert_non_null(line);
    tti_str_add(&all->lines, line);
    free(line);
    return 0;
}

/* Both print the same lines for the run in folder "run". */
static inline void t_compare_with_program(const char *files, const char *lines) {
    char command[512];
    tti_str said = {0};
    snprintf(command, sizeof command, TUTTI_TEST_BUILD "/tutti predict run %s 2> said.txt", files);
    FILE *program = popen(command, "r");
    assert_non_null(program);
    for (int c; (c = fgetc(program)) != EOF;) tti_str_add_bytes(&said, &(char){(char)c}, 1);
    T_EQ(pclose(program), 0);
    assert_string_equal(tti_str_text(&said), lines);
    tti_str_free(&said);
}

/* Predicts a file, or a folder, with the run in folder "run" and checks each sample. */
static inline t_predicted t_predict(const char *file, void (*check)(const tutti_prediction *p)) {
    t_predicted all = {.check = check};
    tutti_job *job;
    T_OK(tutti_job_create(&job));
    T_OK(tutti_job_load_run(job, "run"));
    T_OK(tutti_predict(job, "run", &file, 1, t_take, &all));
    tutti_job_destroy(job);
    t_compare_with_program(file, tti_str_text(&all.lines));
    tti_str_free(&all.lines);
    return all;
}

/* Trains into the folder "run" and destroys the job. */
static inline void t_train(tutti_job *job) {
    tutti_train_result r;
    T_OK(tutti_train(job, NULL, &r));
    tutti_job_destroy(job);
}

#endif /* TTI_TESTS_TRAIN_PREDICTED_H */
