/* cmd_bench_train.c - `tutti bench train MODEL`: measures the speed of a training step and prints
 * one JSON line.
 *
 * Trains briefly on generated digits and takes the median over windows of steps, after the first
 * steps have generated all samples.  Data loading is included; the final checkpoint and evaluation
 * are left out. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/job_args.h"
#include "tutti/profile.h"
#include "tutti/train.h"

static const char usage[] =
    "usage: tutti bench train [MODEL] [key=value ...] [-n N]\n\nTrains MODEL (lenet) on generated "
    "digits for train.steps (400) steps and prints one JSON line:\nmedian samples/s (per_s; for "
    "text also tokens_per_s) and ms per step after the first quarter\nof the steps, time from the "
    "call to the end of the first step, peak memory of host and\ndevice (of rank 0, and with "
    "several devices the most and least of any rank), TFLOP/s, and\ntheir fraction of the measured "
    "rate of a large matrix product on as many cores or devices\n(mfu).  Any job key may be "
    "given.\n";

enum { MAX_WINDOWS = 4096, MAX_ARGS = 128, MAX_OWN_ARGS = 7 };
#define IS_WORKER "TUTTI_BENCH_WORKER" /* set in the environment of worker processes */

typedef struct windows {
    double samples_per_s[MAX_WINDOWS];
    double wait_share; /* sum over the windows: fraction of time spent waiting for data */
    int n;
    int64_t skip_until; /* number of first steps that are not counted */
} windows;

static void on_event(void *user, const tutti_event *e) {
    windows *w = user;
    if (e->kind == TUTTI_EVENT_WARNING) fprintf(stderr, "warning: %s\n", e->text);
    if (e->kind == TUTTI_EVENT_START) w->skip_until = e->n_steps / 4;
    bool counts = e->kind == TUTTI_EVENT_STEP && e->step > w->skip_until && w->n < MAX_WINDOWS;
    if (!counts) return;
    w->samples_per_s[w->n++] = e->samples_per_s;
    w->wait_share += e->wait_share;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(windows *w) {
    if (w->n == 0) return 0;
    qsort(w->samples_per_s, (size_t)w->n, sizeof w->samples_per_s[0], by_value);
    return w->samples_per_s[w->n / 2];
}

/* Returns 0 if samples are not text. */
static double tokens_of_sample(tutti_job *job) {
    static const char *const formats[] = {"text", "tokens", "random_tokens"};
    const char *format = tutti_job_get(job, "data.format");
    bool is_text = false;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        is_text = is_text || strcmp(format, formats[i]) == 0;
    return is_text ? atof(tutti_job_get(job, "data.context")) : 0;
}

static void write_tokens(FILE *out, double per_s) {
    if (per_s > 0) fprintf(out, "\"tokens_per_s\":%.0f,", per_s);
}

/* The model's name, which may come from a file with any name, in JSON. */
static void write_name(FILE *out, const tutti_job *job) {
    char name[256];
    tutti_job_model_name(job, name, sizeof name);
    fprintf(out, "{\"what\":\"");
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
        if (*c < ' ')
            fprintf(out, "\\u%04x", *c);
        else
            fprintf(out, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    }
    fprintf(out, "\",");
}

static void write_line(FILE *out, tutti_job *job, windows *w, const tutti_train_result *r) {
    double per_s = median(w), batch = atof(tutti_job_get(job, "train.batch"));
    double reached = r->step_flops * per_s / batch, ceiling = 0, bytes;
    if (tutti_measure_ceilings(job, &ceiling, &bytes) == TUTTI_OK) ceiling *= r->n_workers;
    write_name(out, job);
    fprintf(out,
            "\"workers\":%d,\"shards\":%d,\"mode\":\"%s\",\"batch\":%.0f,"
            "\"per_s\":%.0f,",
            r->n_workers, r->n_shards, tutti_job_get(job, "parallel.mode"), batch, per_s);
    write_tokens(out, per_s * tokens_of_sample(job));
    fprintf(out,
            "\"ms\":%.3f,\"first_step_s\":%.3f,\"peak_rss_mb\":%.1f,"
            "\"peak_device_gb\":%.4f,\"most_device_gb\":%.4f,\"least_device_gb\":%.4f,"
            "\"wait_share\":%.4f,\"tflops\":%.2f,\"mfu\":%.4f,"
            "\"params_hash\":\"%016" PRIx64 "\"}\n",
            per_s > 0 ? 1e3 * batch / per_s : 0, r->first_step_s,
            (double)r->peak_host_bytes / (1 << 20), (double)r->peak_device_bytes * 1e-9,
            (double)r->most_device_bytes * 1e-9, (double)r->least_device_bytes * 1e-9,
            w->n > 0 ? w->wait_share / w->n : 0, reached * 1e-12,
            ceiling > 0 ? reached / ceiling : 0, r->params_hash);
}

/* A worker process cannot print JSON, because its output gets a rank prefix.  It writes the line to
 * a file in the run folder, and the supervisor, which has no figures itself, prints it. */
static void print_line(tutti_job *job, windows *w, const tutti_train_result *r, bool is_worker) {
    char path[600], line[1024];
    bool has_figures = r->n_params > 0, is_supervisor = !has_figures && !is_worker;
    if (is_worker && !has_figures) return; /* a rank other than 0 */
    if (!is_worker && !is_supervisor) {
        write_line(stdout, job, w, r);
        return;
    }
    snprintf(path, sizeof path, "%s/bench.json", r->run_dir);
    FILE *file = fopen(path, is_supervisor ? "r" : "w");
    if (!file) {
        if (is_worker) perror(path);
        return; /* another rank, started by a foreign launcher */
    }
    if (is_worker)
        write_line(file, job, w, r);
    else if (fgets(line, sizeof line, file))
        fputs(line, stdout);
    fclose(file);
}

/* The number of samples is fixed for files, and chosen freely for generated data. */
static bool reads_files(int argc, char **argv) {
    static const char key[] = "data.format=";
    bool reads = false;
    for (int i = 1; i < argc; i++) {
        const char *assignment = argv[i] + (strncmp(argv[i], "--", 2) == 0 ? 2 : 0);
        const char *format = assignment + sizeof key - 1;
        if (strncmp(assignment, key, sizeof key - 1) == 0)
            reads = strcmp(format, "digits") != 0 && strncmp(format, "random_", 7) != 0;
    }
    return reads;
}

/* Puts the settings of a measurement before the arguments, so that the caller's settings win. */
static int build_args(int argc, char **argv, const char *run_dir, char **out, char *assignment) {
    static char *const defaults[] = {
        (char *)"data.n_train=2048", (char *)"data.n_test=128",
        (char *)"train.steps=400",   (char *)"train.eval_every=0",
        (char *)"run.log_every=10",  (char *)"run.checkpoint_every=-1"};
    int n = 0;
    out[n++] = argv[0];
    for (size_t i = reads_files(argc, argv) ? 2 : 0; i < sizeof defaults / sizeof defaults[0]; i++)
        out[n++] = defaults[i];
    snprintf(assignment, 600, "run.dir=%s", run_dir);
    out[n++] = assignment;
    for (int i = 1; i < argc; i++) out[n++] = argv[i];
    return n;
}

static void remove_run(const char *dir) {
    char command[700];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    if (system(command) != 0) fprintf(stderr, "tutti: %s could not be removed\n", dir);
}

static int train(const job_args *args, char **again) {
    windows *w = calloc(1, sizeof *w);
    tutti_train_result result = {.exit_code = 8};
    tutti_train_desc desc = {
        .worker_argv = again, .keeps_nothing = true, .on_event = on_event, .user = w};
    bool is_worker = getenv(IS_WORKER) != NULL;
    setenv(IS_WORKER, "1", 1);
    tutti_status st = w && again ? tutti_train(args->job, &desc, &result) : TUTTI_E_NOMEM;
    if (st == TUTTI_OK)
        print_line(args->job, w, &result, is_worker);
    else
        report_failure(st);
    free(w);
    return result.exit_code;
}

int tutti_cmd_bench_train(int argc, char **argv) {
    char root[] = "/tmp/tutti-bench-XXXXXX", dir[64], name[128], run_dir[600], *args_in[MAX_ARGS];
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc > 1 && argv[1][0] != '-' && !strchr(argv[1], '=')) {
        snprintf(name, sizeof name, "model.name=%s", argv[1]);
        argv[1] = name;
    }
    if (argc + MAX_OWN_ARGS > MAX_ARGS) {
        fprintf(stderr, "tutti bench train: more than %d arguments\n", MAX_ARGS - MAX_OWN_ARGS - 1);
        return 2;
    }
    if (!mkdtemp(root)) {
        perror("tutti: /tmp");
        return 1;
    }
    snprintf(dir, sizeof dir, "%s/run", root);
    int n = build_args(argc, argv, dir, args_in, run_dir);
    job_args args;
    int code = job_args_read(n, args_in, &args);
    if (code == 0) {
        char **again = worker_argv("bench", argc, argv);
        code = train(&args, again);
        free(again);
        job_args_free(&args);
    }
    remove_run(root);
    return code;
}
