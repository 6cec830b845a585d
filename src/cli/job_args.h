/* job_args.h - the arguments that commands about a job share:
 * JOB.yaml, key=value assignments, -n N, --backend NAME. */
#ifndef TUTTI_CLI_JOB_ARGS_H
#define TUTTI_CLI_JOB_ARGS_H

#include "tutti/job.h"

typedef struct job_args {
    tutti_job *job;     /* owned */
    const char *path;   /* NULL: no job file, defaults only */
    const char *resume; /* --resume RUN; NULL: a new run */
    const char *after;  /* --after PASS */
    const char *worker; /* --worker N; NULL: not given */
    bool help, quiet;
} job_args;

/* Whether an argument is an assignment, "a.b=c", and not a file, "runs/x=1/job.yaml". */
bool is_assignment(const char *text);

/* Reads argv[1 ...] into a job.  Returns 0, or the exit code after a message. */
int job_args_read(int argc, char **argv, job_args *out);
void job_args_free(job_args *args);

/* Returns the command of a worker process: this program with the same arguments. group: the word
 * before argv[0], such as "bench"; NULL: none.  Free the array, not its strings; NULL when out of
 * memory.
 */
char **worker_argv(const char *group, int argc, char **argv);

/* Prints the warnings about the job in only one of the processes that read it. */
void print_job_warnings(const tutti_job *job);

/* Prints the last error, one line per problem, with "tutti: error: " before a line that names no
 * place in a file.  Returns the exit code of status. */
int report_failure(tutti_status status);

#endif /* TUTTI_CLI_JOB_ARGS_H */
