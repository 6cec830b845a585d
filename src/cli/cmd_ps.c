/* cmd_ps.c - `tutti ps RUN` and `tutti stacks RUN`: what the ranks of a run do at this moment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/job_args.h"
#include "tutti/launch.h"

static const char ps_usage[] =
    "usage: tutti ps RUN\n\nLists the ranks of the job that runs in folder RUN on this host.  "
    "Prints a\nline for each rank: its process, the committed steps, its phase or operation, and "
    "the time since\nthat began (between operations: since the last one ended).\n\nExit code: 0; 2 "
    "no process of this host trains in RUN.\n";

static const char stacks_usage[] =
    "usage: tutti stacks RUN\n\nPrints the native stacks of the threads of each rank of the job "
    "that runs in folder RUN on\nthis host: the main thread, the communication thread and the "
    "compute threads.  Each\nthread is interrupted for less than a millisecond.\n\nExit code: 0; 2 "
    "no process of this host trains in RUN.\n";

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
