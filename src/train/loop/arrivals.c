/* arrivals.c - reads and writes arrivals.txt, the order of updates of an asynchronous run. */
#include "train/loop/arrivals.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/files/append.h"
#include "base/files/plain_file.h"
#include "base/number.h"
#include "train/job/numerics.h"

enum { MAX_LINE = 200, MAX_UPDATES = 1 << 28 };

/* True if each line has a loss scale: with a dynamic scale, workers may have different ones. */
static bool is_scaled(const tti_blueprint *b) { return tti_numerics_is_scaled(&b->config); }

static void header_of(const tti_blueprint *b, char out[MAX_LINE]) {
    int n = snprintf(out, MAX_LINE,
                     "tutti arrivals 1 workers %d batch %" PRId64 " seed %" PRId64 " shards %d",
                     b->mesh.data, b->config.train.batch, b->config.train.seed, b->n_shards);
    if (b->n_model_ranks > 0) /* each replica of the model counts as one worker */
        n += snprintf(out + n, (size_t)(MAX_LINE - n), " pipeline %d tensor %d", b->mesh.stage,
                      b->mesh.tensor);
    if (is_scaled(b)) snprintf(out + n, (size_t)(MAX_LINE - n), " scaled");
}

static void path_of(const char *run_dir, char out[700]) {
    snprintf(out, 700, "%s/arrivals.txt", run_dir);
}

tutti_status tti_arrivals_open(const tti_blueprint *b, const char *run_dir, FILE **out) {
    char path[700], header[MAX_LINE];
    path_of(run_dir, path);
    header_of(b, header);
    int fd;
    *out = NULL;
    TTI_TRY(tti_plain_file_open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW, &fd));
    *out = fdopen(fd, "a+");
    if (!*out) {
        close(fd);
        return tti_fail(TUTTI_E_IO, "%s: cannot be written: %s", path, strerror(errno));
    }
    tutti_status st = tti_cut_torn_line(fileno(*out), path);
    if (st != TUTTI_OK) {
        fclose(*out);
        *out = NULL;
        return st;
    }
    if (fseek(*out, 0, SEEK_END) == 0 && ftell(*out) == 0) fprintf(*out, "%s\n", header);
    return TUTTI_OK;
}

tutti_status tti_arrivals_write(const tti_blueprint *b, FILE *file, const tti_arrival *a) {
    char scale[TTI_NUMBER_TEXT + 1] = " ";
    if (!file) return TUTTI_OK;
    if (is_scaled(b))
        tti_format_double(scale + 1, a->loss_scale);
    else
        *scale = '\0';
    if (fprintf(file, "%" PRId64 " %" PRId64 " %d %" PRId64 "%s\n", a->step, a->batch, a->worker,
                a->version, scale) > 0)
        return TUTTI_OK;
    return tti_fail(TUTTI_E_IO, "arrivals.txt: cannot be written: %s", strerror(errno));
}

tutti_status tti_arrivals_flush(FILE *file) {
    if (!file || fflush(file) == 0) return TUTTI_OK;
    return tti_fail(TUTTI_E_IO, "arrivals.txt: cannot be written: %s", strerror(errno));
}

void tti_arrivals_close(FILE *file) {
    if (file) fclose(file);
}

/* ---- reading ---- */

typedef struct reading {
    const tti_blueprint *b;
    const char *path;
    int64_t n_line;
    tti_arrival *a; /* [n], indexed by update; step 0: not read yet */
    int64_t n, cap; /* n: number of entries in the file */
} reading;

static tutti_status refuse(const reading *r, const char *why) {
    return tti_fail(TUTTI_E_CONFIG, "parallel.replay: %s:%" PRId64 ": %s", r->path, r->n_line, why);
}

/* Reads a line without its newline; false at the end of the file. */
static bool next_line(reading *r, FILE *file, char line[MAX_LINE]) {
    if (!fgets(line, MAX_LINE, file)) return false;
    r->n_line++;
    line[strcspn(line, "\n")] = '\0';
    return true;
}

static tutti_status room_for(reading *r, int64_t n) {
    if (n <= r->cap) return TUTTI_OK;
    int64_t cap = TTI_MAX(2 * r->cap, n + 1024);
    tti_arrival *a = realloc(r->a, (size_t)cap * sizeof *a);
    if (!a) return tti_fail(TUTTI_E_NOMEM, "parallel.replay: out of memory");
    memset(a + r->cap, 0, (size_t)(cap - r->cap) * sizeof *a);
    r->a = a;
    r->cap = cap;
    return TUTTI_OK;
}

/* Parses the loss scale at the end of a line. */
static bool take_scale(const reading *r, const char *text, double *scale) {
    *scale = 0;
    if (!is_scaled(r->b)) return true;
    return tti_parse_double(text, scale) == TTI_NUMBER_OK && *scale > 0 && isfinite((float)*scale);
}

static tutti_status take_line(reading *r, const char *line) {
    int64_t number[4];
    double scale;
    char last = is_scaled(r->b) ? ' ' : '\0'; /* separator after the numbers */
    for (int i = 0; i < 4; i++) {
        char *end;
        errno = 0;
        number[i] = strtoll(line, &end, 10);
        if (end == line || errno || number[i] < 0 || *end != (i < 3 ? ' ' : last))
            return refuse(r, "expected four numbers: update, batch, worker, version");
        line = end + 1;
    }
    if (!take_scale(r, line, &scale)) return refuse(r, "expected a loss scale above 0 at the end");
    int64_t step = number[0];
    if (step < 1 || step > r->n + 1 || step > MAX_UPDATES)
        return refuse(r, "the update before this one is missing");
    if (number[2] >= r->b->mesh.data) return refuse(r, "there is no such worker");
    if (number[3] >= step) return refuse(r, "its parameters would be newer than the update");
    r->n = step; /* a resumed run repeats updates, whose last line is valid */
    if (step > r->b->n_steps) return TUTTI_OK;
    TTI_TRY(room_for(r, step));
    r->a[step - 1] = (tti_arrival){.step = step,
                                   .batch = number[1],
                                   .worker = (int32_t)number[2],
                                   .version = number[3],
                                   .loss_scale = scale};
    return TUTTI_OK;
}

static tutti_status read_lines(reading *r, FILE *file) {
    char line[MAX_LINE], header[MAX_LINE];
    header_of(r->b, header);
    if (!next_line(r, file, line)) return refuse(r, "the file is empty");
    if (strcmp(line, header) != 0)
        return tti_fail(TUTTI_E_CONFIG,
                        "parallel.replay: %s belongs to another job: '%.150s' there, '%s' here",
                        r->path, line, header);
    while (next_line(r, file, line)) TTI_TRY(take_line(r, line));
    if (r->n >= r->b->n_steps) return TUTTI_OK;
    return tti_fail(TUTTI_E_CONFIG,
                    "parallel.replay: %s has %" PRId64 " updates, but this job makes %" PRId64
                    "; give train.steps=%" PRId64,
                    r->path, r->n, r->b->n_steps, r->n);
}

/* Checks that between two stops each batch occurs once, and no version is older than the first
 * stop. */
static tutti_status check_stretch(const reading *r, int64_t first, int64_t last, bool *seen) {
    memset(seen, 0, (size_t)(last - first) * sizeof *seen);
    for (int64_t i = first; i < last; i++) {
        const tti_arrival *a = &r->a[i];
        bool inside = a->version >= first && a->batch >= first && a->batch < last;
        if (inside && !seen[a->batch - first]) {
            seen[a->batch - first] = true;
            continue;
        }
        return tti_fail(TUTTI_E_CONFIG,
                        "parallel.replay: %s: update %" PRId64 " (batch %" PRId64
                        ", version %" PRId64 ") does not fit between the stops at %" PRId64
                        " and %" PRId64
                        "; give the run.checkpoint_every and train.eval_every of that run",
                        r->path, a->step, a->batch, a->version, first, last);
    }
    return TUTTI_OK;
}

/* Checks that each worker takes a batch only after its previous gradient was applied. */
static tutti_status check_turns(const reading *r) {
    int64_t *given = calloc((size_t)r->b->n_workers, sizeof *given);
    tutti_status st = TUTTI_OK;
    if (!given) return tti_fail(TUTTI_E_NOMEM, "parallel.replay: out of memory");
    for (int64_t i = 0; st == TUTTI_OK && i < r->b->n_steps; i++) {
        const tti_arrival *a = &r->a[i];
        if (a->version < given[a->worker])
            st = tti_fail(TUTTI_E_CONFIG,
                          "parallel.replay: %s: update %" PRId64
                          " of worker %d is of version "
                          "%" PRId64 ", from before its update %" PRId64,
                          r->path, a->step, a->worker, a->version, given[a->worker]);
        given[a->worker] = a->step;
    }
    free(given);
    return st;
}

static tutti_status check_stretches(const reading *r,
                                    int64_t (*next_stop)(const tti_blueprint *, int64_t)) {
    bool *seen = calloc((size_t)r->b->n_steps + 1, sizeof *seen);
    if (!seen) return tti_fail(TUTTI_E_NOMEM, "parallel.replay: out of memory");
    tutti_status st = TUTTI_OK;
    for (int64_t at = 0; st == TUTTI_OK && at < r->b->n_steps;) {
        int64_t next = next_stop(r->b, at);
        st = check_stretch(r, at, next, seen);
        at = next;
    }
    free(seen);
    return st;
}

tutti_status tti_arrivals_read(const tti_blueprint *b, const char *run_dir,
                               int64_t (*next_stop)(const tti_blueprint *b, int64_t step),
                               tti_arrival **out, int64_t *n_arrivals) {
    char path[700];
    path_of(run_dir, path);
    reading r = {.b = b, .path = path};
    int fd = -1;
    FILE *file = tti_plain_file_open(path, O_RDONLY, &fd) == TUTTI_OK ? fdopen(fd, "r") : NULL;
    *out = NULL;
    if (!file) {
        if (fd >= 0) close(fd);
        return tti_fail(TUTTI_E_CONFIG,
                        "parallel.replay=%s: %s; it is the folder of an asynchronous run", run_dir,
                        fd >= 0 ? strerror(errno) : tutti_last_error());
    }
    tutti_status st = read_lines(&r, file);
    fclose(file);
    if (st == TUTTI_OK) st = check_stretches(&r, next_stop);
    if (st == TUTTI_OK) st = check_turns(&r);
    if (st != TUTTI_OK) {
        free(r.a);
        return st;
    }
    *out = r.a;
    *n_arrivals = b->n_steps;
    return TUTTI_OK;
}
