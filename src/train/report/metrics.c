/* metrics.c - writes each record of metrics.jsonl as one line with one write. */
#include "train/report/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files/append.h"
#include "base/files/atomic_file.h"
#include "base/files/plain_file.h"

enum { PATH_BYTES = 700 };

tutti_status tti_metrics_open(tti_metrics *m, const char *run_dir) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/metrics.jsonl", run_dir);
    *m = (tti_metrics){.fd = -1};
    TTI_TRY(tti_plain_file_open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW, &m->fd));
    return tti_cut_torn_line(m->fd, path);
}

void tti_metrics_close(tti_metrics *m) {
    if (m->fd >= 0) close(m->fd);
    m->fd = -1;
    tti_str_free(&m->line);
}

/* ---- resuming ---- */

typedef struct rewinding {
    int64_t step;
    bool evaluates_again, had_evaluation;
    int64_t n_dropped;
} rewinding;

/* Returns the step of a record, -1: none.  Writes the record's name to event. */
static int64_t step_of(const char *line, char event[32]) {
    long long step;
    int n =
        sscanf(line, "{\"event\":\"%31[a-z]\",\"time\":%*[0-9.eE+-],\"step\":%lld", event, &step);
    return n == 2 ? step : -1;
}

static bool is_repeated(rewinding *r, const char *line) {
    char event[32];
    int64_t step = step_of(line, event);
    bool is_note = strcmp(event, "failed") == 0 || strcmp(event, "left") == 0;
    if (step < 0 || is_note) return false;
    bool is_evaluation = strcmp(event, "eval") == 0 && step == r->step;
    r->had_evaluation |= is_evaluation;
    return step > r->step || (is_evaluation && r->evaluates_again);
}

/* Copies the lines to keep; out NULL: only checks if any line would be removed. */
static tutti_status copy_lines(FILE *in, rewinding *r, tti_atomic_file *out) {
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    tutti_status st = TUTTI_OK;
    r->n_dropped = 0;
    rewind(in);
    while (st == TUTTI_OK && (n = getline(&line, &room, in)) >= 0) {
        bool stays = !is_repeated(r, line);
        r->n_dropped += !stays;
        if (stays && out) st = tti_atomic_file_write(out, line, (size_t)n);
    }
    if (st == TUTTI_OK && ferror(in))
        st = tti_fail(TUTTI_E_IO, "metrics.jsonl: %s", strerror(errno));
    free(line);
    return st;
}

static tutti_status replace(FILE *in, rewinding *r, const char *path) {
    tti_atomic_file *out;
    TTI_TRY(tti_atomic_file_create(path, 0, &out));
    tutti_status st = copy_lines(in, r, out);
    if (st == TUTTI_OK) st = tti_atomic_file_commit(out);
    tti_atomic_file_destroy(out);
    return st;
}

tutti_status tti_metrics_rewind(tti_metrics *m, const char *run_dir, int64_t step,
                                bool evaluates_again, bool *had_evaluation) {
    char path[PATH_BYTES];
    rewinding r = {.step = step, .evaluates_again = evaluates_again};
    int copy = dup(m->fd);
    FILE *in = copy >= 0 ? fdopen(copy, "r") : NULL;
    snprintf(path, sizeof path, "%s/metrics.jsonl", run_dir);
    if (!in) {
        if (copy >= 0) close(copy);
        return tti_fail(TUTTI_E_IO, "%s: %s", path, strerror(errno));
    }
    tutti_status st = copy_lines(in, &r, NULL);
    bool has_repeated = r.n_dropped > 0;
    if (st == TUTTI_OK && has_repeated) st = replace(in, &r, path);
    fclose(in);
    *had_evaluation = r.had_evaluation;
    if (st != TUTTI_OK || !has_repeated) return st;
    tti_metrics_close(m);
    return tti_metrics_open(m, run_dir);
}

/* ---- records ---- */

void tti_metrics_begin(tti_metrics *m, const char *event) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    tti_str_clear(&m->line);
    m->json = tti_json_begin(&m->line, 0);
    tti_json_object(&m->json, NULL);
    tti_json_text(&m->json, "event", event);
    tti_json_double(&m->json, "time", (double)now.tv_sec + (double)(now.tv_nsec / 1000000) * 1e-3);
}

tutti_status tti_metrics_end(tti_metrics *m) {
    tti_json_end(&m->json);
    tti_str_add(&m->line, "\n");
    if (m->line.failed) return tti_fail(TUTTI_E_NOMEM, "metrics.jsonl: out of memory");
    return tti_append(m->fd, "metrics.jsonl", m->line.text, m->line.n_bytes);
}
