/* cmd_inspect.c - `tutti inspect JOB.yaml`: steps, kernels, memory; or the graph after a pass. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cmd.h"
#include "cli/job_args.h"
#include "tutti/train.h"

static const char usage[] =
    "usage: tutti inspect [JOB.yaml] [key=value ...] [--after PASS]\n\n"
    "Prints what the job would run: the steps of the shard program with the kernel of each, and "
    "the\n"
    "peak of every kind of memory.  --after PASS prints the graph after a pass in its text form;\n"
    "--after none prints it as the model builds it.  'tutti passes' lists the passes.\n";

int tutti_cmd_inspect(int argc, char **argv) {
    job_args args;
    char *text;
    int code = job_args_read(argc, argv, &args);
    if (code) return code;
    if (args.help) {
        fputs(usage, stdout);
    } else {
        tutti_status st = tutti_inspect_job(args.job, args.after, &text);
        code = st == TUTTI_OK ? 0 : report_failure(st);
        if (st == TUTTI_OK) fputs(text, stdout);
        if (st == TUTTI_OK) free(text);
    }
    job_args_free(&args);
    return code;
}
