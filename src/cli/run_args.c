/* run_args.c - parses the arguments that name a run and change its job. */
#include "cli/run_args.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/words.h"

static int fail_usage(const char *command, const char *what, const char *value) {
    fprintf(stderr, "tutti %s: %s '%s' (tutti %s --help)\n", command, what, value, command);
    return 2;
}

static const run_flag *find_flag(const run_flag *flags, const char *name) {
    while (flags->name && strcmp(flags->name, name) != 0) flags++;
    return flags->name ? flags : NULL;
}

static int take_flag(char **argv, int argc, const run_flag *flag, int *i) {
    if (flag->on) {
        *flag->on = true;
        return 0;
    }
    if (++*i == argc) return fail_usage(argv[0], "no value after", argv[*i - 1]);
    if (flag->text) {
        *flag->text = argv[*i];
        return 0;
    }
    if (!read_number(argv[*i], flag->number))
        return fail_usage(argv[0], "not a number, or one too large or too small:", argv[*i]);
    return 0;
}

/* "x=1" may be a file that does not exist. */
static bool has_dotted_key(const char *text) {
    return is_assignment(text) && memchr(text, '.', strcspn(text, "="));
}

static bool wants_help(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

static int take_plain(run_args *args, const char *command, const char *text, bool assignment) {
    bool full = args->n_rest == RUN_MAX_REST || args->n_assignments == RUN_MAX_ASSIGNMENTS;
    if (full) return fail_usage(command, "too many arguments:", text);
    if (assignment)
        args->assignments[args->n_assignments++] = text;
    else if (!args->run_dir)
        args->run_dir = text;
    else
        args->rest[args->n_rest++] = text;
    return 0;
}

static int sort_out(int argc, char **argv, const run_flag *flags, run_args *args) {
    int code = 0;
    bool plain = false;
    for (int i = 1; i < argc && code == 0; i++) {
        const run_flag *flag = plain ? NULL : find_flag(flags, argv[i]);
        if (!plain && strcmp(argv[i], "--") == 0)
            plain = true;
        else if (!plain && strcmp(argv[i], "--allow-plugin") == 0)
            args->allows_plugin = true;
        else if (flag)
            code = take_flag(argv, argc, flag, &i);
        else if (!plain && argv[i][0] == '-' && argv[i][1])
            code = fail_usage(argv[0], "unknown option", argv[i]);
        else
            code = take_plain(args, argv[0], argv[i], !plain && has_dotted_key(argv[i]));
    }
    if (code == 0 && !args->run_dir)
        code = fail_usage(argv[0], "expected a run folder after", argv[0]);
    return code;
}

static tutti_status load_job(run_args *args) {
    tutti_status st = tutti_job_create(&args->job);
    if (st != TUTTI_OK) return st;
    if (args->allows_plugin) tutti_job_allow_plugin(args->job);
    st = tutti_job_load_run(args->job, args->run_dir);
    for (int i = 0; st == TUTTI_OK && i < args->n_assignments; i++)
        tutti_job_set(args->job, args->assignments[i], "command line");
    if (st != TUTTI_OK) return st;
    print_job_warnings(args->job);
    return tutti_job_check(args->job);
}

int run_args_read(int argc, char **argv, const char *usage, const run_flag *flags, run_args *args) {
    *args = (run_args){0};
    if (wants_help(argc, argv)) {
        printf(
            "%s\n--allow-plugin lets the command load the code that model.plugin of RUN names.\n",
            usage);
        return 0;
    }
    int code = sort_out(argc, argv, flags, args);
    if (code) return code;
    tutti_status st = load_job(args);
    if (st != TUTTI_OK) code = report_failure(st);
    if (st != TUTTI_OK) run_args_free(args);
    return code;
}

void run_args_free(run_args *args) {
    tutti_job_destroy(args->job);
    args->job = NULL;
}

void print_warning(void *user, const char *text) {
    (void)user;
    fprintf(stderr, "warning: %s\n", text);
}
