/* cmd_config.c - `tutti config`: what a job says, and what a job may say.
 * A front of the public job calls: it reads, checks and prints; nothing runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tutti/job.h>

int tutti_cmd_config(int argc, char **argv);

static const char usage[] =
    "usage: tutti config show [JOB] [key=value...]   every value and where it is from\n"
    "       tutti config schema                      JSON schema of job files\n"
    "       tutti config reference                   all keys, as Markdown\n";

static int fail(tutti_status status) {
    fprintf(stderr, "%s\n", tutti_last_error());
    return tutti_status_exit_code(status);
}

/* Prints a text of the library's and frees it. */
static int print(char *text) {
    if (!text) {
        fputs("tutti config: out of memory\n", stderr);
        return tutti_status_exit_code(TUTTI_E_NOMEM);
    }
    bool ok = fputs(text, stdout) >= 0 && fflush(stdout) == 0;
    free(text);
    if (!ok) perror("tutti config: standard output");
    return ok ? 0 : tutti_status_exit_code(TUTTI_E_IO);
}

/* Files in their order, then assignments, which win wherever they stand. */
static tutti_status read_job(tutti_job *job, int n_args, char **args) {
    for (int i = 0; i < n_args; i++) {
        if (strchr(args[i], '=')) continue;
        tutti_status st = tutti_job_load(job, args[i]);
        if (st != TUTTI_OK) return st;
    }
    for (int i = 0; i < n_args; i++)
        if (strchr(args[i], '=')) tutti_job_set(job, args[i], "command line");
    return tutti_job_check(job);
}

static int show(int n_args, char **args) {
    tutti_job *job = NULL;
    tutti_status st = tutti_job_create(&job);
    if (st == TUTTI_OK) st = read_job(job, n_args, args);
    int code = st == TUTTI_OK ? print(tutti_job_print(job, true)) : fail(st);
    tutti_job_destroy(job);
    return code;
}

/* argv[0] is "config". */
int tutti_cmd_config(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    if (!strcmp(what, "show")) return show(argc - 2, argv + 2);
    if (!strcmp(what, "schema") && argc == 2) return print(tutti_job_schema_json());
    if (!strcmp(what, "reference") && argc == 2) return print(tutti_job_reference_md());
    if (!strcmp(what, "--help") || !strcmp(what, "-h")) {
        fputs(usage, stdout);
        return 0;
    }
    fputs(usage, stderr);
    return 2;
}
