/* cmd_ps.c - `tutti ps RUN` and `tutti stacks RUN`: what the ranks of a run do at this moment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/job_args.h"
#include "tutti/launch.h"

static const char ps_usage[] =
    "usage: tutti ps RUN\n"
    "\n"
    "Lists the ranks of the job that runs in folder RUN on this host.  Prints for each rank the\n"
    "process, the committed steps, the phase or operation, and how long ago that began, or how "
    "long\n"
    "ago the last one ended.\n"
    "\n"
    "Exit code: 0; 2 no process of this host trains in RUN.\n";

static const char stacks_usage[] =
    "usage: tutti stacks RUN\n"
    "\n"
    "Prints the native stacks of the threads of each rank of the job that runs in folder RUN on\n"
    "this host: the rank's main thread, the communication thread and the compute threads.  Each "
    "thread is\n"
    "interrupted for less than a millisecond.\n"
    "\n"
    "Exit code: 0; 2 no process of this host trains in RUN.\n";

static int show(int argc, char **argv, const char *usage,
                tutti_status (*describe)(const char *, char **)) {
    char *text;
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc != 2 || argv[1][0] == '-') {
        fputs(usage, stderr);
        return 2;
    }
    tutti_status st = describe(argv[1], &text);
    if (st != TUTTI_OK) return report_failure(st);
    fputs(text, stdout);
    free(text);
    return 0;
}

int tutti_cmd_ps(int argc, char **argv) { return show(argc, argv, ps_usage, tutti_run_ps); }

int tutti_cmd_stacks(int argc, char **argv) {
    return show(argc, argv, stacks_usage, tutti_run_stacks);
}
