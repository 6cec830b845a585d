/* cmd_doctor.c - `tutti doctor`: lists the hardware and libraries of this machine and measures
 * them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/job_args.h"
#include "tutti/profile.h"

static const char usage[] =
    "usage: tutti doctor [--quick]\n\nPrints the cores and memory of this host, the kernels in "
    "use, the modules that were loaded\nor why they were not, the devices with driver, libraries "
    "and free memory, and the measured\nrates of a matrix product and a copy (a few seconds; "
    "--quick skips it).  With several\ndevices it also times all-reduce by size and "
    "algorithm, and stores the table in\n$TUTTI_CACHE.\n";

int tutti_cmd_doctor(int argc, char **argv) {
    bool quick = false;
    char *text;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            return 0;
        }
        if (strcmp(argv[i], "--quick") != 0) {
            fprintf(stderr, "tutti doctor: unknown argument '%s'\n%s", argv[i], usage);
            return 2;
        }
        quick = true;
    }
    tutti_status st = tutti_doctor(!quick, &text);
    if (st != TUTTI_OK) return report_failure(st);
    fputs(text, stdout);
    free(text);
    return 0;
}
