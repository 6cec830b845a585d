/* history.c - reads metrics.jsonl in one pass; skips lines that are not records.
 *
 * A long run has millions of step records, but a curve needs only some hundred points.  So most
 * step records are recognized by their first bytes and never parsed.  Only a record's number
 * decides if it is kept; when there are too many, every second one is discarded. */
#include "train/report/history.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/json_read.h"
#include "data/files/byte_reader.h"
#include "train/job/job.h"
#include "train/setup/run_dir.h"

enum { BLOCK_BYTES = 1 << 20, MAX_POINTS = 1 << 20, LAST_BYTES = 4096 };

typedef struct reading {
    tti_history h;
    int64_t n_steps;       /* step records read so far */
    char last[LAST_BYTES]; /* the last step record, if it was skipped */
    size_t n_last;         /* 0: it was not skipped */
} reading;

/* Returns the number with this key if it is small enough to be drawn, else 0. */
static double number(const json_t *record, const char *key) {
    const json_t *value = json_object_get(record, key);
    double x = json_is_number(value) ? json_number_value(value) : 0;
    return fabs(x) < 1e15 ? x : 0;
}

/* Returns the score of a record, which may have one of several names.  Scores of a regression may
 * have any unit, so any finite value is accepted. */
static double score(tti_history *h, const json_t *record) {
    static const char *const names[] = {"accuracy", "nrmse", "rmse"};
    for (size_t i = 0; i < TTI_COUNT(names); i++) {
        const json_t *value = json_object_get(record, names[i]);
        if (!json_is_number(value)) continue;
        h->score = names[i];
        double x = json_number_value(value);
        return isfinite(x) ? x : 0;
    }
    return 0;
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
    h->last_step = step;
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
    if (h->n_steps == TTI_HISTORY_STEPS) {
        h->n_steps /= 2;
        for (int i = 0; i < h->n_steps; i++) h->steps[i] = h->steps[2 * i];
        h->steps_each *= 2;
    }
    h->steps[h->n_steps++] = (tti_step_point){.step = number(r, "step"),
                                              .loss = number(r, "loss"),
                                              .score = score(h, r),
                                              .lr = number(r, "lr"),
                                              .samples_per_s = number(r, "samples_per_s"),
                                              .wait = number(r, "wait_share"),
                                              .comm = number(r, "comm_share"),
                                              .compute = number(r, "compute_share"),
                                              .update = number(r, "update_share"),
                                              .time_s = number(r, "time")};
}

/* Makes room for one more entry after n entries of n_bytes each.  Returns the array, or NULL when
 * out of memory.
 */
static void *more_room(tti_history *h, void *points, int n, int *max, size_t n_bytes) {
    if (n < *max) return points;
    int room = TTI_MAX(2 * *max, 256);
    if (room > MAX_POINTS) return NULL; /* more than any run writes */
    void *more = realloc(points, (size_t)room * n_bytes);
    h->no_memory |= !more;
    if (more) *max = room;
    return more;
}

/* Returns element i of an array of numbers, 0 if missing. */
static double element(const json_t *record, const char *key, size_t i) {
    const json_t *value = json_array_get(json_object_get(record, key), i);
    double x = json_is_number(value) ? json_number_value(value) : 0;
    return x > 0 && x < 1e15 ? x : 0;
}

static void take_times(tti_history *h, const json_t *r) {
    size_t n_ranks = json_array_size(json_object_get(r, "spent_s"));
    for (size_t i = 0; i < TTI_MIN(n_ranks, (size_t)TTI_MAX_WORKERS); i++) {
        tti_time_point *times = more_room(h, h->times, h->n_times, &h->max_times, sizeof *times);
        if (!times) return;
        h->times = times;
        times[h->n_times++] = (tti_time_point){.step = number(r, "step"),
                                               .rank = (int)i,
                                               .data = element(r, "data_s", i),
                                               .compute = element(r, "compute_s", i),
                                               .comm = element(r, "comm_s", i),
                                               .update = element(r, "update_s", i),
                                               .spent = element(r, "spent_s", i)};
    }
}

/* Adds an evaluation; it replaces an earlier one of the same step. */
static void take_eval(tti_history *h, const json_t *r) {
    if (h->n_evals > 0 && h->evals[h->n_evals - 1].step >= number(r, "step")) h->n_evals--;
    tti_eval_point *evals = more_room(h, h->evals, h->n_evals, &h->max_evals, sizeof *evals);
    if (!evals) return;
    h->evals = evals;
    const json_t *r2 = json_object_get(r, "r2");
    h->evals[h->n_evals++] = (tti_eval_point){number(r, "step"), number(r, "loss"), score(h, r),
                                              json_is_number(r2) ? json_number_value(r2) : NAN};
}

static void take_end(tti_history *h, const json_t *r) {
    h->ended = true;
    h->stopped = json_is_true(json_object_get(r, "stopped"));
    h->samples_per_s = number(r, "samples_per_s");
    h->wall_s += number(r, "wall_s"); /* a resumed run has several end records */
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

static bool is_event(const json_t *record, const char *event) {
    const json_t *name = json_object_get(record, "event");
    return json_is_string(name) && strcmp(json_string_value(name), event) == 0;
}

/* Stores a skipped step record, because it may be the last one of the run. */
static void pass_over(reading *r, const char *line, size_t n_bytes) {
    memcpy(r->last, line, n_bytes);
    r->n_last = n_bytes;
}

/* Parses a record. is_counted: the line was already counted as a step record. */
static void read_record(reading *r, const char *line, size_t n_bytes, bool is_counted) {
    json_t *record;
    if (tti_json_parse("metrics.jsonl", line, n_bytes, &record) != TUTTI_OK) {
        r->h.n_bad_lines++; /* for example a line that was cut by a power failure */
        return;
    }
    bool is_step = is_event(record, "step");
    bool is_due = is_counted || !is_step || r->n_steps++ % r->h.steps_each == 0;
    if (!is_due && n_bytes <= sizeof r->last) {
        pass_over(r, line, n_bytes);
    } else {
        if (is_step || is_event(record, "start")) r->n_last = 0;
        take(&r->h, record);
    }
    json_decref(record);
}

static bool begins_as(const char *line, size_t n_bytes, const char *text) {
    size_t n = strlen(text);
    return n_bytes >= n && memcmp(line, text, n) == 0;
}

static void read_line(reading *r, const char *line, size_t n_bytes) {
    if (n_bytes == 0) return;
    bool is_step = begins_as(line, n_bytes, "{\"event\":\"step\",");
    bool is_due = !is_step || r->n_steps++ % r->h.steps_each == 0;
    if (is_due || line[n_bytes - 1] != '}' || n_bytes > sizeof r->last)
        read_record(r, line, n_bytes, is_step);
    else
        pass_over(r, line, n_bytes);
}

/* Reads all complete lines.  Returns the number of bytes of an incomplete line, which are moved to
 * the front. */
static size_t read_lines(reading *r, char *bytes, size_t n_bytes) {
    size_t at = 0;
    for (const char *end; (end = memchr(bytes + at, '\n', n_bytes - at));) {
        read_line(r, bytes + at, (size_t)(end - bytes) - at);
        at = (size_t)(end - bytes) + 1;
    }
    if (n_bytes - at == BLOCK_BYTES) { /* longer than any record */
        r->h.n_bad_lines++;
        return 0;
    }
    memmove(bytes, bytes + at, n_bytes - at);
    return n_bytes - at;
}

static tutti_status read_blocks(reading *r, int fd, const char *path, uint64_t n_bytes) {
    char *block = malloc(BLOCK_BYTES);
    size_t n_held = 0;
    tutti_status st = TUTTI_OK;
    r->h.steps = malloc(TTI_HISTORY_STEPS * sizeof *r->h.steps);
    if (!block || !r->h.steps) st = tti_fail(TUTTI_E_NOMEM, "metrics.jsonl: out of memory");
    for (uint64_t at = 0; st == TUTTI_OK && at < n_bytes;) {
        size_t n = TTI_MIN(BLOCK_BYTES - n_held, (size_t)(n_bytes - at));
        st = tti_pread_all(fd, path, block + n_held, n, at);
        at += n;
        if (st == TUTTI_OK) n_held = read_lines(r, block, n_held + n);
    }
    if (st == TUTTI_OK) read_line(r, block, n_held);
    if (st == TUTTI_OK && r->n_last > 0) read_record(r, r->last, r->n_last, true);
    free(block);
    return st;
}

tutti_status tti_history_read(const char *run_dir, tti_history *out) {
    char path[4096];
    reading r = {.h = {.backend = "", .version = "", .steps_each = 1}};
    tti_history *h = &r.h;
    uint64_t n_bytes;
    int fd;
    if (!tti_run_dir_exists(run_dir))
        return tti_fail(TUTTI_E_CONFIG, "%s: no run there (no metrics.jsonl)", run_dir);
    snprintf(path, sizeof path, "%s/metrics.jsonl", run_dir);
    TTI_TRY(tti_open_regular(path, &fd, &n_bytes));
    tutti_status st = read_blocks(&r, fd, path, n_bytes);
    close(fd);
    if (st == TUTTI_OK && h->no_memory)
        st = tti_fail(TUTTI_E_NOMEM, "metrics.jsonl: out of memory");
    if (h->n_steps > 0) h->last_step = TTI_MAX(h->last_step, h->steps[h->n_steps - 1].step);
    if (st == TUTTI_OK)
        *out = *h;
    else
        tti_history_free(h);
    return st;
}

void tti_history_free(tti_history *h) {
    free(h->steps);
    free(h->evals);
    free(h->times);
    tti_arena_free(&h->arena);
}
