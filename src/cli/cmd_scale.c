/* cmd_scale.c - `tutti scale RUN N`: changes the number of workers of an elastic run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/job_args.h"
#include "tutti/launch.h"

enum { WAIT_MS = 60000 };

static const char usage[] =
    "usage: tutti scale RUN N\n"
    "\n"
    "Changes the number of workers of an elastic run to N and waits until N workers train.  RUN "
    "is\n"
    "its run folder; N is between parallel.min_workers and parallel.max_workers.  Run it on a "
    "host\n"
    "that has workers of the run.  The newest workers leave first; new workers get their state "
    "from\n"
    "the others.  The result of the training does not change.\n"
    "\n"
    "Exit code: 0; 2 no such run, or N is out of range; 6 N workers were not reached in a "
    "minute.\n";

int tutti_cmd_scale(int argc, char **argv) {
    char *end = NULL;
    long n = argc == 3 ? strtol(argv[2], &end, 10) : 0;
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc != 3 || argv[1][0] == '-' || *end || n < 1 || n > 4096) {
        fputs(usage, stderr);
        return 2;
    }
    tutti_status st = tutti_run_scale(argv[1], (int)n, WAIT_MS);
    return st == TUTTI_OK ? 0 : report_failure(st);
}
