/* cmd_profile.c - `tutti profile JOB.yaml`: where the time of a step goes. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cmd.h"
#include "cli/job_args.h"
#include "cli/words.h"
#include "tutti/profile.h"

static const char usage[] =
    "usage: tutti profile [JOB.yaml] [key=value ...] [-n WORKERS] [--trace FILE] [--steps N]\n"
    "                     [--all]\n\n"
    "Trains a few steps and times every part of them without waiting in between: on a GPU the\n"
    "recordings that training plays, with moments in them, on the host the first core's shards.\n"
    "Prints a table: time, TFLOP/s and GB/s of each kind of operation, its share of the step, and\n"
    "what a kernel at the measured ceilings would save; the slowest 25, with --all every one.\n"
    "--trace FILE writes a trace for https://ui.perfetto.dev or chrome://tracing: a process for\n"
    "each worker, in it a line for each queue of its GPU (kernels, copies of samples, sums) and\n"
    "one for what the host waits for.  --steps N times N steps (3), the table is of the fastest.\n"
    "-n WORKERS (1) are threads.  Nothing is kept of the training.\n";

int tutti_cmd_profile(int argc, char **argv) {
    job_args args;
    char *text;
    tutti_profile_desc desc = {.trace_path = take_option(&argc, argv, "--trace")};
    const char *steps = take_option(&argc, argv, "--steps");
    if (take_flag(&argc, argv, "--all")) desc.max_rows = INT_MAX;
    if (steps && ((desc.n_steps = atoi(steps)) < 1 || desc.n_steps > 1000)) {
        fprintf(stderr, "tutti profile: --steps wants a number from 1 to 1000, got '%s'\n", steps);
        return 2;
    }
    int code = job_args_read(argc, argv, &args);
    if (code) return code;
    if (args.help) {
        fputs(usage, stdout);
    } else {
        tutti_status st = tutti_profile(args.job, &desc, &text);
        code = st == TUTTI_OK ? 0 : report_failure(st);
        if (st == TUTTI_OK) fputs(text, stdout);
        if (st == TUTTI_OK) free(text);
    }
    job_args_free(&args);
    return code;
}
