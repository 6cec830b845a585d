/* cmd_bench_data.c - `tutti bench data JOB`: measures samples per second of each stage and of the
 * loader, and the fraction of its time that training waits for samples. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/job_args.h"
#include "cli/words.h"
#include "tutti/bench.h"

static const char usage[] =
    "usage: tutti bench data JOB.yaml [key=value ...] [options]\n"
    "\n"
    "Loads training samples of the job and prints samples per second: for each stage on one\n"
    "thread, and for whole batches with all threads.  Then trains the job briefly and prints the\n"
    "fraction of the time that training waited for data.\n"
    "\n"
    "  --threads N        loader threads; default: one per core, training: data.threads\n"
    "  --ms T             time for the stages, the loader and training each, in ms; default 2000\n"
    "  --no-training      do not train\n"
    "  --json             one JSON line\n"
    "  -h, --help         this text\n";

enum { MAX_ARGS = 64 };

typedef struct options {
    tutti_bench_data_desc desc;
    bool json;
    int n_args;
    char *arg[MAX_ARGS]; /* remaining arguments, for the job */
} options;

static int fail_usage(const char *what, const char *value) {
    fprintf(stderr, "tutti bench data: %s: %s\n", what, value);
    return 2;
}

/* Returns 0, or the exit code. */
static int parse(int argc, char **argv, options *o) {
    for (int i = 0; i < argc; i++) {
        bool threads = strcmp(argv[i], "--threads") == 0, ms = strcmp(argv[i], "--ms") == 0;
        if (strcmp(argv[i], "--json") == 0) {
            o->json = true;
        } else if (strcmp(argv[i], "--no-training") == 0) {
            o->desc.no_training = true;
        } else if (threads || ms) {
            int *field = threads ? &o->desc.n_threads : &o->desc.min_ms;
            if (i + 1 == argc || !read_count(argv[i + 1], 1, 1000000, field))
                return fail_usage("expected a number from 1 to 1000000 after", argv[i]);
            i++;
        } else if (o->n_args == MAX_ARGS) {
            return fail_usage("too many arguments", argv[i]);
        } else {
            o->arg[o->n_args++] = argv[i];
        }
    }
    return 0;
}

static void print_stage(const char *name, double per_s) {
    if (per_s > 0) printf("%-10s %12.0f  %12.2f\n", name, per_s, 1e6 / per_s);
}

static void print_table(const tutti_bench_data_result *r) {
    printf("# %" PRId64 " training samples, %.0f bytes each as stored; one thread, then %d\n",
           r->n_samples, r->sample_bytes, r->n_threads);
    printf("%-10s %12s  %12s\n", "# stage", "samples/s", "us/sample");
    print_stage("read", r->read_per_s);
    print_stage("decode", r->decode_per_s);
    print_stage("steps", r->steps_per_s);
    print_stage("together", r->thread_per_s);
    print_stage("loader", r->loader_per_s);
    print_stage("training", r->train_per_s);
    if (r->train_per_s > 0)
        printf("# training by %d worker%s waited for data %.1f %% of the time\n", r->n_workers,
               r->n_workers == 1 ? "" : "s", 100 * r->wait_share);
    if (*r->why_not) printf("# training was not measured: %s\n", r->why_not);
    if (r->n_skipped > 0) printf("# %" PRId64 " damaged samples were skipped\n", r->n_skipped);
}

static void print_json(const tutti_bench_data_result *r) {
    printf("{\"n_samples\":%" PRId64 ",\"n_skipped\":%" PRId64
           ",\"sample_bytes\":%.1f,\"read_per_s\":%.1f,\"decode_per_s\":%.1f,"
           "\"steps_per_s\":%.1f,\"thread_per_s\":%.1f,\"loader_per_s\":%.1f,\"n_threads\":%d,"
           "\"train_per_s\":%.1f,\"wait_share\":%.4f,\"n_workers\":%d}\n",
           r->n_samples, r->n_skipped, r->sample_bytes, r->read_per_s, r->decode_per_s,
           r->steps_per_s, r->thread_per_s, r->loader_per_s, r->n_threads, r->train_per_s,
           r->wait_share, r->n_workers);
}

int tutti_cmd_bench_data(int argc, char **argv) {
    options o = {0};
    int code = parse(argc, argv, &o);
    job_args args;
    if (code == 0) code = job_args_read(o.n_args, o.arg, &args);
    if (code) return code;
    if (args.help) {
        fputs(usage, stdout);
        job_args_free(&args);
        return 0;
    }
    tutti_bench_data_result result;
    tutti_status st = tutti_bench_data(args.job, &o.desc, &result);
    if (st == TUTTI_OK && o.json)
        print_json(&result);
    else if (st == TUTTI_OK)
        print_table(&result);
    else
        code = report_failure(st);
    job_args_free(&args);
    return code;
}
