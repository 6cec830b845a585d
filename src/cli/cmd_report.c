/* cmd_report.c - `tutti report RUN`: writes the report page of a run again. */
#include <stdio.h>

#include "cli/cmd.h"
#include "cli/run_args.h"
#include "tutti/eval.h"

static const char usage[] =
    "usage: tutti report RUN [key=value ...]\n\nWrites RUN/report.html, one file that needs no "
    "network: loss, accuracy, learning rate,\nthroughput, where the time went, memory, and for "
    "images the mistakes of the newest\ncheckpoint.  Training writes it at its end; use this "
    "command for a run that is still running,\nwas stopped or was killed.\n\nExit code: 0; 2 wrong "
    "usage or no run.\n";

int tutti_cmd_report(int argc, char **argv) {
    run_args args;
    const run_flag flags[] = {{0}};
    int code = run_args_read(argc, argv, usage, flags, &args);
    if (code || !args.job) return code;
    tutti_status st = tutti_report(args.job, args.run_dir);
    if (st == TUTTI_OK)
        printf("%s/report.html\n", args.run_dir);
    else
        code = report_failure(st);
    run_args_free(&args);
    return code;
}
