/* cmd_config.c - `tutti config`: prints the values of a job, the JSON schema and the reference
 * page.  It only calls the public job functions; nothing runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/job_args.h"

static const char usage[] =
    "usage: tutti config show [JOB] [key=value...] [-n N]   every value and where it comes from\n"
    "       tutti config schema                             JSON schema of job files\n"
    "       tutti config reference                          all keys, as Markdown\n";

/* Prints a text that the library allocated, and frees it. */
static int print(char *text) {
    if (!text) {
        fputs("tutti config: out of memory\n", stderr);
        return tutti_status_exit_code(TUTTI_E_NOMEM);
    }
    fputs(text, stdout);
    free(text);
    return 0;
}

/* Accepts the arguments of `tutti train`, so that a command line can be tested. */
static int show(int argc, char **argv) {
    job_args args;
    int code = job_args_read(argc, argv, &args);
    if (code) return code;
    if (args.help) fputs(usage, stdout);
    if (!args.help) code = print(tutti_job_print(args.job, true));
    job_args_free(&args);
    return code;
}

/* argv[0] is "config". */
int tutti_cmd_config(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "show")) return show(argc - 1, argv + 1);
    if (!strcmp(what, "schema") && argc == 2) return print(tutti_job_schema_json());
    if (!strcmp(what, "reference") && argc == 2) return print(tutti_job_reference_md());
    if (!strcmp(what, "--help") || !strcmp(what, "-h")) {
        fputs(usage, stdout);
        return 0;
    }
    fputs(usage, stderr);
    return 2;
}
