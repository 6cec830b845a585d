/* cmd_profile.c - `tutti profile JOB.yaml`: where the time of a step goes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/job_args.h"
#include "tutti/profile.h"

static const char usage[] =
    "usage: tutti profile [JOB.yaml] [key=value ...] [--trace FILE] [--steps N]\n\n"
    "Trains a few steps with one worker and times every part of them without waiting in between.\n"
    "Prints a table: time, TFLOP/s and GB/s of each kind of operation, its share of the step, and\n"
    "what a kernel at the measured ceilings would save.  --trace FILE writes a trace for\n"
    "https://ui.perfetto.dev or chrome://tracing; --steps N times N steps (3) and tells the\n"
    "fastest.  Nothing is kept of the training.\n";

/* Takes "NAME VALUE" out of argv; NULL: it is not there. */
static const char *take_option(int *argc, char **argv, const char *name) {
    for (int i = 1; i + 1 < *argc; i++) {
        if (strcmp(argv[i], name) != 0) continue;
        const char *value = argv[i + 1];
        memmove(argv + i, argv + i + 2, (size_t)(*argc - i - 1) * sizeof *argv);
        *argc -= 2;
        return value;
    }
    return NULL;
}

int tutti_cmd_profile(int argc, char **argv) {
    job_args args;
    char *text;
    tutti_profile_desc desc = {.trace_path = take_option(&argc, argv, "--trace")};
    const char *steps = take_option(&argc, argv, "--steps");
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
