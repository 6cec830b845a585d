/* progress_line.c - prints progress on stderr: on a terminal one line that is redrawn and fits its
 * width, else a plain line every few seconds. */
#include "cli/progress_line.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static const double plain_every_s = 5;

progress progress_begin(bool quiet) {
    const char *term = getenv("TERM");
    bool can = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
    return (progress){.terminal = can, .quiet = quiet, .last_s = -plain_every_s};
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void progress_end(progress *p) {
    if (p->drawn) fputc('\n', stderr);
    p->drawn = false;
}

/* Formats seconds as "1:02:03" or "2:03". */
static const char *clock_text(double s, char *out, size_t n_bytes) {
    long t = s < 0 || s > 1e7 ? 0 : (long)(s + 0.5);
    if (t >= 3600)
        snprintf(out, n_bytes, "%ld:%02ld:%02ld", t / 3600, t / 60 % 60, t % 60);
    else
        snprintf(out, n_bytes, "%ld:%02ld", t / 60, t % 60);
    return out;
}

/* A part of the line, including its leading spaces. */
typedef struct field {
    char text[256];
    int leaves; /* on a narrow terminal part 1 is left out first; 0 always stays */
} field;

enum { N_FIELDS = 10, LAST_TO_LEAVE = 8 };

static void make_fields(const tutti_event *e, field p[N_FIELDS]) {
    static const int leaves[N_FIELDS] = {0, 1, 0, 6, 5, 7, 4, 3, 2, LAST_TO_LEAVE};
    char eta[32];
    double share = e->n_steps > 0 ? 100.0 * (double)e->step / (double)e->n_steps : 0;
    for (int i = 0; i < N_FIELDS; i++) p[i] = (field){.leaves = leaves[i]};
    enum { ROOM = sizeof p->text };
    snprintf(p[0].text, ROOM, "%3.0f%% step %lld/%lld", share, (long long)e->step,
             (long long)e->n_steps);
    snprintf(p[1].text, ROOM, "  epoch %lld", (long long)e->epoch + 1);
    snprintf(p[2].text, ROOM, "  loss %.4f", e->loss);
    if (e->is_regression)
        snprintf(p[3].text, ROOM, "  %s %.4g", e->n_targets > 1 ? "nrmse" : "rmse",
                 e->n_targets > 1 ? e->nrmse : e->rmse);
    else if (!isnan(e->accuracy))
        snprintf(p[3].text, ROOM, "  acc %.1f%%", 100 * e->accuracy);
    for (int64_t i = 0, n = 0; i < e->n_metrics && n < ROOM; i++)
        n += snprintf(p[4].text + n, ROOM - (size_t)n, "  %s %.4g", e->metrics[i].name,
                      e->metrics[i].value);
    snprintf(p[5].text, ROOM, "  %.0f samples/s", e->samples_per_s);
    snprintf(p[6].text, ROOM, "  left %s", clock_text(e->eta_s, eta, sizeof eta));
    snprintf(p[7].text, ROOM, "  comm %.0f%%", 100 * e->comm_share);
    snprintf(p[8].text, ROOM, "  wait %.0f%%", 100 * e->wait_share);
    if (e->slowest_why)
        snprintf(p[9].text, ROOM, "  slowest: rank %d, %s +%.0f%%", e->slowest_rank, e->slowest_why,
                 100 * e->slowest_late_share);
}

/* A wrapped line cannot be redrawn: leaves out the least important parts until the line is shorter
 * than the terminal is wide. */
static void fit(field p[N_FIELDS], size_t width) {
    size_t n = 0;
    for (int i = 0; i < N_FIELDS; i++) n += strlen(p[i].text);
    for (int turn = 1; turn <= LAST_TO_LEAVE && n >= width; turn++)
        for (int i = 0; i < N_FIELDS; i++) {
            if (p[i].leaves != turn) continue;
            n -= strlen(p[i].text);
            p[i].text[0] = '\0';
        }
}

/* Returns the columns of the terminal, which can change at any time; SIZE_MAX: unknown. */
static size_t n_columns(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : SIZE_MAX;
}

static void show_step(progress *p, const tutti_event *e) {
    field fields[N_FIELDS];
    double now = now_s();
    if (!p->terminal && now - p->last_s < plain_every_s) return;
    p->last_s = now;
    make_fields(e, fields);
    if (p->terminal) {
        fit(fields, n_columns());
        fputs("\r\033[K", stderr);
    }
    for (int i = 0; i < N_FIELDS; i++) fputs(fields[i].text, stderr);
    if (!p->terminal) fputc('\n', stderr);
    p->drawn = p->terminal;
    fflush(stderr);
}

const char *r2_text(double r2, char out[R2_TEXT]) {
    snprintf(out, R2_TEXT, isnan(r2) ? "undefined" : fabs(r2) < 1e6 ? "%.4f" : "%.4g", r2);
    return out;
}

void progress_event(void *user, const tutti_event *e) {
    progress *p = user;
    char r2[R2_TEXT];
    if (p->quiet && e->kind != TUTTI_EVENT_WARNING) return;
    switch (e->kind) {
        case TUTTI_EVENT_STEP:
            show_step(p, e);
            break;
        case TUTTI_EVENT_START:
            fprintf(stderr, "%s\n", e->text);
            break;
        case TUTTI_EVENT_EVAL:
            progress_end(p);
            fprintf(stderr, "epoch %lld: test loss %.4f", (long long)e->epoch + 1, e->loss);
            if (e->n_targets > 1) fprintf(stderr, ", nrmse %.6g", e->nrmse);
            if (e->is_regression && !isnan(e->rmse))
                fprintf(stderr, ", rmse %.6g, mae %.6g, r2 %s", e->rmse, e->mae,
                        r2_text(e->r2, r2));
            if (!e->is_regression && !isnan(e->accuracy))
                fprintf(stderr, ", accuracy %.2f%%", 100 * e->accuracy);
            for (int64_t i = 0; i < e->n_metrics; i++)
                fprintf(stderr, ", %s %.6g", e->metrics[i].name, e->metrics[i].value);
            fprintf(stderr, "\n");
            break;
        case TUTTI_EVENT_WARNING:
            progress_end(p);
            fprintf(stderr, "warning: %s\n", e->text);
            break;
        case TUTTI_EVENT_CHECKPOINT:
            break; /* shown only in metrics.jsonl */
        case TUTTI_EVENT_END:
            progress_end(p);
            break;
    }
}
