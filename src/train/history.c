/* history.c - one pass over the lines; each is a record or is left out. */
#include "train/history.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ckpt/json_read.h"
#include "data/byte_reader.h"
#include "train/job.h"
#include "train/run_dir.h"

enum { MAX_FILE_BYTES = 1 << 30, MAX_TIMES = 1 << 20 };

/* A number of a size that can be drawn, else 0. */
static double number(const json_t *record, const char *key) {
    const json_t *value = json_object_get(record, key);
    double x = json_is_number(value) ? json_number_value(value) : 0;
    return fabs(x) < 1e15 ? x : 0;
}

static const char *text(tti_history *h, const json_t *record, const char *key) {
    const json_t *value = json_object_get(record, key);
    const char *copy =
        json_is_string(value) ? tti_arena_strdup(&h->arena, json_string_value(value)) : NULL;
    return copy ? copy : "";
}

/* ---- records ---- */

static void take_start(tti_history *h, const json_t *r) {
    double step = number(r, "step");
    while (h->n_steps > 0 && h->steps[h->n_steps - 1].step > step) h->n_steps--;
    while (h->n_evals > 0 && h->evals[h->n_evals - 1].step > step) h->n_evals--;
    while (h->n_times > 0 && h->times[h->n_times - 1].step > step) h->n_times--;
    h->planned_steps = number(r, "n_steps");
    h->workers = number(r, "workers");
    h->pipeline = number(r, "pipeline");
    h->tensor = number(r, "tensor");
    h->zero = number(r, "zero");
    h->shards = number(r, "shards");
    h->params = number(r, "params");
    h->bytes_params = number(r, "bytes_params");
    h->bytes_states = number(r, "bytes_states");
    h->bytes_grads = number(r, "bytes_grads");
    h->bytes_activations = number(r, "bytes_activations");
    h->backend = text(h, r, "backend");
    h->version = text(h, r, "version");
    h->ended = h->stopped = false;
}

static void take_step(tti_history *h, const json_t *r) {
    h->steps[h->n_steps++] = (tti_step_point){.step = number(r, "step"),
                                              .loss = number(r, "loss"),
                                              .accuracy = number(r, "accuracy"),
                                              .lr = number(r, "lr"),
                                              .samples_per_s = number(r, "samples_per_s"),
                                              .wait = number(r, "wait_share"),
                                              .comm = number(r, "comm_share"),
                                              .compute = number(r, "compute_share"),
                                              .update = number(r, "update_share"),
                                              .time_s = number(r, "time")};
}

static tti_time_point *new_time(tti_history *h) {
    if (h->n_times == h->max_times) {
        int room = TTI_MAX(2 * h->max_times, 256);
        if (room > MAX_TIMES) return NULL; /* far beyond what a run writes */
        tti_time_point *more = realloc(h->times, (size_t)room * sizeof *more);
        h->no_memory |= !more;
        if (!more) return NULL;
        h->times = more;
        h->max_times = room;
    }
    return &h->times[h->n_times++];
}

/* Element i of an array of numbers, 0 where there is none. */
static double element(const json_t *record, const char *key, size_t i) {
    const json_t *value = json_array_get(json_object_get(record, key), i);
    double x = json_is_number(value) ? json_number_value(value) : 0;
    return x > 0 && x < 1e15 ? x : 0;
}

static void take_times(tti_history *h, const json_t *r) {
    size_t n_ranks = json_array_size(json_object_get(r, "spent_s"));
    for (size_t i = 0; i < TTI_MIN(n_ranks, (size_t)TTI_MAX_WORKERS); i++) {
        tti_time_point *t = new_time(h);
        if (!t) return;
        *t = (tti_time_point){.step = number(r, "step"),
                              .rank = (int)i,
                              .data = element(r, "data_s", i),
                              .compute = element(r, "compute_s", i),
                              .comm = element(r, "comm_s", i),
                              .update = element(r, "update_s", i),
                              .spent = element(r, "spent_s", i)};
    }
}

static void take_eval(tti_history *h, const json_t *r) {
    h->evals[h->n_evals++] =
        (tti_eval_point){number(r, "step"), number(r, "loss"), number(r, "accuracy")};
}

static void take_end(tti_history *h, const json_t *r) {
    h->ended = true;
    h->stopped = json_is_true(json_object_get(r, "stopped"));
    h->samples_per_s = number(r, "samples_per_s");
    h->wall_s += number(r, "wall_s"); /* each part of the run has an end */
    h->last_step = number(r, "step");
    h->peak_rss = TTI_MAX(h->peak_rss, number(r, "peak_rss"));
    h->peak_device = TTI_MAX(h->peak_device, number(r, "peak_device_bytes"));
}

static void take_note(tti_history *h, const json_t *r, bool failed) {
    if (h->n_notes < TTI_HISTORY_NOTES)
        h->notes[h->n_notes++] = (tti_note){text(h, r, "text"), failed};
    else
        h->n_notes_left_out++;
}

static void take(tti_history *h, const json_t *r) {
    const json_t *name = json_object_get(r, "event");
    const char *event = json_is_string(name) ? json_string_value(name) : "";
    if (strcmp(event, "start") == 0) take_start(h, r);
    if (strcmp(event, "step") == 0) take_step(h, r);
    if (strcmp(event, "times") == 0) take_times(h, r);
    if (strcmp(event, "eval") == 0) take_eval(h, r);
    if (strcmp(event, "end") == 0) take_end(h, r);
    if (strcmp(event, "warning") == 0) take_note(h, r, false);
    if (strcmp(event, "failed") == 0) take_note(h, r, true);
}

/* ---- lines ---- */

static size_t count_lines(const char *bytes, size_t n_bytes) {
    size_t n = 1;
    for (size_t i = 0; i < n_bytes; i++) n += bytes[i] == '\n';
    return n;
}

static void read_line(tti_history *h, const char *line, size_t n_bytes) {
    json_t *record;
    if (n_bytes == 0) return;
    if (tti_json_parse("metrics.jsonl", line, n_bytes, &record) != TUTTI_OK) {
        h->n_bad_lines++; /* the last line of a machine that lost power */
        return;
    }
    take(h, record);
    json_decref(record);
}

static tutti_status read_lines(tti_history *h, const char *bytes, size_t n_bytes) {
    size_t n_lines = count_lines(bytes, n_bytes);
    h->steps = calloc(n_lines, sizeof *h->steps);
    h->evals = calloc(n_lines, sizeof *h->evals);
    if (!h->steps || !h->evals) return tti_fail(TUTTI_E_NOMEM, "metrics.jsonl: out of memory");
    for (size_t at = 0; at < n_bytes;) {
        const char *end = memchr(bytes + at, '\n', n_bytes - at);
        size_t n = end ? (size_t)(end - bytes) - at : n_bytes - at;
        read_line(h, bytes + at, n);
        at += n + 1;
    }
    if (h->no_memory) return tti_fail(TUTTI_E_NOMEM, "metrics.jsonl: out of memory");
    if (h->n_steps > 0) h->last_step = TTI_MAX(h->last_step, h->steps[h->n_steps - 1].step);
    return TUTTI_OK;
}

tutti_status tti_history_read(const char *run_dir, tti_history *out) {
    char path[4096], *bytes = NULL;
    size_t n_bytes = 0;
    tti_reader *reader;
    tti_history h = {.backend = "", .version = ""};
    if (!tti_run_dir_exists(run_dir))
        return tti_fail(TUTTI_E_CONFIG, "%s: no run there (no metrics.jsonl)", run_dir);
    snprintf(path, sizeof path, "%s/metrics.jsonl", run_dir);
    TTI_TRY(tti_reader_open(path, &reader));
    tutti_status st = tti_reader_read_all(reader, MAX_FILE_BYTES, &bytes, &n_bytes);
    if (st == TUTTI_OK) st = read_lines(&h, bytes, n_bytes);
    free(bytes);
    tti_reader_close(reader);
    if (st == TUTTI_OK)
        *out = h;
    else
        tti_history_free(&h);
    return st;
}

void tti_history_free(tti_history *h) {
    free(h->steps);
    free(h->evals);
    free(h->times);
    tti_arena_free(&h->arena);
}
