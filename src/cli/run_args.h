/* run_args.h - the arguments of commands about an existing run: RUN, key=value assignments for its
 * job, further arguments such as files, and options of the command. */
#ifndef TUTTI_CLI_RUN_ARGS_H
#define TUTTI_CLI_RUN_ARGS_H

#include <stdint.h>

#include "cli/job_args.h"

enum { RUN_MAX_REST = 4096, RUN_MAX_ASSIGNMENTS = 128 };

/* An option of the command.  A list ends with an option without a name.  Exactly one destination is
 * set. */
typedef struct run_flag {
    const char *name;
    bool *on;          /* set for an option without a value */
    const char **text; /* receives the value */
    double *number;    /* receives a number */
} run_flag;

typedef struct run_args {
    tutti_job
        *job; /* the job of RUN/job.yaml with the assignments; owned; NULL: help was printed */
    bool allows_plugin; /* --allow-plugin, an option of all these commands */
    const char *run_dir;
    const char *assignments[RUN_MAX_ASSIGNMENTS]; /* key=value, applied to job */
    int n_assignments;
    const char *rest[RUN_MAX_REST]; /* remaining arguments: files */
    int n_rest;
} run_args;

/* Returns 0, or the exit code after printing a message.  With --help usage is printed and args->job
 * is NULL. Arguments after "--" go to rest. */
int run_args_read(int argc, char **argv, const char *usage, const run_flag *flags, run_args *args);
void run_args_free(run_args *args);

/* A tutti_warn_fn that prints one line on standard error. */
void print_warning(void *user, const char *text);

#endif /* TUTTI_CLI_RUN_ARGS_H */
