/* cmd_profile.c - `tutti profile JOB.yaml`: shows where the time of a step goes. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cmd.h"
#include "cli/job_args.h"
#include "cli/words.h"
#include "tutti/profile.h"

static const char usage[] =
    "usage: tutti profile [JOB.yaml] [key=value ...] [-n WORKERS] [--trace FILE] [--table FILE]\n  "
    "                   [--steps N] [--rank N] [--all]\n\nTrains a few steps with the job's "
    "parallel layout and times every part of them without\nadding waits: on a GPU with timestamps "
    "in the captured graph, on the host on the first\ncompute thread.  Prints time, TFLOP/s and "
    "GB/s of each kind of operation, its fraction of the\nstep, and the time that a kernel at this "
    "machine's measured peak would save.  With several\n"
    "workers also the communication (tensor parallel collectives, stages, gradients, parameters),\n"
    "and how much of it overlaps with compute.  Leaves no run folder.\n\n  -n WORKERS     number "
    "of workers; default: one replica of the "
    "model\n  --trace FILE   a trace for https://ui.perfetto.dev or chrome://tracing: a process "
    "per worker,\n                 with a row for its kernels, for each kind of traffic and for "
    "waits of the host\n  --table FILE   also write the table to FILE\n  --steps N      time N "
    "steps (3); the table shows the fastest one\n  --rank N       print the table of worker N "
    "(0)\n  "
    "--all          all rows instead of the 25 slowest\n";

/* Reads a number from low to high; if text is NULL the value stays. */
static bool read_option(const char *name, const char *text, int low, int high, int *out) {
    if (!text || read_count(text, low, high, out)) return true;
    fprintf(stderr, "tutti profile: %s expects a number from %d to %d, got '%s'\n", name, low, high,
            text);
    return false;
}

static int profile(tutti_job *job, const tutti_profile_desc *desc) {
    char *text;
    tutti_status st = tutti_profile(job, desc, &text);
    if (st != TUTTI_OK) return report_failure(st);
    if (text) fputs(text, stdout);
    free(text);
    return 0;
}

static int profile_job(int argc, char **argv, tutti_profile_desc *desc) {
    job_args args;
    const char *steps = parse_option(&argc, argv, "--steps");
    const char *rank = parse_option(&argc, argv, "--rank");
    desc->trace_path = parse_option(&argc, argv, "--trace");
    desc->table_path = parse_option(&argc, argv, "--table");
    if (parse_flag(&argc, argv, "--all")) desc->max_rows = INT_MAX;
    if (!read_option("--steps", steps, 1, 1000, &desc->n_steps)) return 2;
    if (!read_option("--rank", rank, 0, 4095, &desc->rank)) return 2;
    int code = job_args_read(argc, argv, &args);
    if (code) return code;
    if (args.help)
        fputs(usage, stdout);
    else
        code = profile(args.job, desc);
    job_args_free(&args);
    return code;
}

int tutti_cmd_profile(int argc, char **argv) {
    char **again = worker_argv(NULL, argc, argv);
    tutti_profile_desc desc = {.worker_argv = again};
    int code = profile_job(argc, argv, &desc);
    free(again);
    return code;
}
