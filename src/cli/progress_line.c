/* progress_line.c - in the manner of tqdm: on stderr, redrawn on a terminal, a plain line every few
 * seconds elsewhere. */
#include "cli/progress_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* "1:02:03", "2:03" */
static const char *clock_text(double s, char *out, size_t n_bytes) {
    long t = s < 0 || s > 1e7 ? 0 : (long)(s + 0.5);
    if (t >= 3600)
        snprintf(out, n_bytes, "%ld:%02ld:%02ld", t / 3600, t / 60 % 60, t % 60);
    else
        snprintf(out, n_bytes, "%ld:%02ld", t / 60, t % 60);
    return out;
}

/* "  slowest: rank 3, data +12%", "" */
static const char *slowest_text(const tutti_event *e, char *out, size_t n_bytes) {
    out[0] = '\0';
    if (e->slowest_why)
        snprintf(out, n_bytes, "  slowest: rank %d, %s +%.0f%%", e->slowest_rank, e->slowest_why,
                 100 * e->slowest_late_share);
    return out;
}

static void show_step(progress *p, const tutti_event *e) {
    double now = now_s();
    if (!p->terminal && now - p->last_s < plain_every_s) return;
    p->last_s = now;
    char eta[32], slowest[64];
    double share = e->n_steps > 0 ? 100.0 * (double)e->step / (double)e->n_steps : 0;
    fprintf(stderr,
            "%s%3.0f%% step %lld/%lld  epoch %lld  loss %.4f  acc %.1f%%  %.0f samples/s  left %s"
            "  comm %.0f%%  wait %.0f%%%s%s",
            p->terminal ? "\r\033[K" : "", share, (long long)e->step, (long long)e->n_steps,
            (long long)e->epoch + 1, e->loss, 100 * e->accuracy, e->samples_per_s,
            clock_text(e->eta_s, eta, sizeof eta), 100 * e->comm_share, 100 * e->wait_share,
            slowest_text(e, slowest, sizeof slowest), p->terminal ? "" : "\n");
    p->drawn = p->terminal;
    fflush(stderr);
}

void progress_event(void *user, const tutti_event *e) {
    progress *p = user;
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
            fprintf(stderr, "epoch %lld: test loss %.4f, accuracy %.2f%%\n",
                    (long long)e->epoch + 1, e->loss, 100 * e->accuracy);
            break;
        case TUTTI_EVENT_WARNING:
            progress_end(p);
            fprintf(stderr, "warning: %s\n", e->text);
            break;
        case TUTTI_EVENT_CHECKPOINT:
            break; /* it is in metrics.jsonl */
        case TUTTI_EVENT_END:
            progress_end(p);
            break;
    }
}
