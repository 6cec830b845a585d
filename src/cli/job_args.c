/* job_args.c - parses the arguments that name a job, the same way for every command. */
#include "cli/job_args.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tutti/launch.h"

/* A problem of a job begins with its place, "job.yaml:3:7: error: ".  A message of another rank
 * does not. */
static bool is_placed(const char *text) {
    const char *error = strstr(text, "error: "), *colon = strstr(text, ": ");
    return error && (error == text || error == colon + 2);
}

int report_failure(tutti_status status) {
    const char *text = tutti_last_error();
    fprintf(stderr, "%s%s\n", is_placed(text) ? "" : "tutti: error: ", /* the program's name */
            text[0] ? text : tutti_status_text(status));
    return tutti_status_exit_code(status);
}

void print_job_warnings(const tutti_job *job) {
    tutti_worker_place place;
    bool known = tutti_worker_detect(&place) == TUTTI_OK; /* on failure the command reports it */
    if (known && (place.rank > 0 || place.comm_fd >= 0)) return;
    for (const char *line = tutti_job_warnings(job); *line;) {
        int n_bytes = (int)strcspn(line, "\n");
        fprintf(stderr, "warning: %.*s\n", n_bytes, line);
        line += n_bytes + (line[n_bytes] == '\n');
    }
}

char **worker_argv(const char *group, int argc, char **argv) {
    char **again = calloc((size_t)argc + 3, sizeof *again);
    int n = 0;
    if (!again) return NULL;
    again[n++] = (char *)(uintptr_t) "/proc/self/exe";
    if (group) again[n++] = (char *)(uintptr_t)group;
    for (int i = 0; i < argc; i++) again[n++] = argv[i];
    return again;
}

static void assign(job_args *args, const char *key, const char *value) {
    char text[1024];
    snprintf(text, sizeof text, "%s=%s", key, value);
    tutti_job_set(args->job, text, "command line");
}

/* Options with a value. key NULL: the value is stored in args. */
typedef struct flag {
    const char *name, *key;
    const char **text;
} flag;

/* Users of other programs write "--lr 0.1": explain that it is optimizer.lr=0.1 here. */
static void refuse_flag(int argc, char **argv, int i) {
    const char *name = argv[i] + strspn(argv[i], "-");
    const char *key = argv[i][1] == '-' ? tutti_job_find_key(name) : NULL;
    bool has_value = i + 1 < argc && (argv[i + 1][0] != '-' || strpbrk(argv[i + 1], "0123456789"));
    if (key)
        fprintf(stderr, "tutti: unknown option %s; write %s=%s\n", argv[i], key,
                has_value ? argv[i + 1] : "VALUE");
    else
        fprintf(stderr, "tutti: unknown option %s%s\n", argv[i],
                i + 1 == argc ? ", or no value after it" : "");
}

static int parse_flag(job_args *args, int argc, char **argv, int *i) {
    const flag flags[] = {
        {"-n", "parallel.workers", NULL},     {"--backend", "parallel.backend", NULL},
        {"--restarts", "run.restarts", NULL}, {"--resume", NULL, &args->resume},
        {"--after", NULL, &args->after},      {"--worker", NULL, &args->worker}};
    for (size_t k = 0; k < sizeof flags / sizeof flags[0]; k++) {
        if (strcmp(argv[*i], flags[k].name) != 0) continue;
        if (++*i == argc) {
            fprintf(stderr, "tutti: no value after %s\n", flags[k].name);
            return 2;
        }
        if (flags[k].text)
            *flags[k].text = argv[*i];
        else
            assign(args, flags[k].key, argv[*i]);
        return 0;
    }
    if (strncmp(argv[*i], "--", 2) == 0 && strchr(argv[*i], '=')) {
        tutti_job_set(args->job, argv[*i] + 2, "command line");
        return 0;
    }
    refuse_flag(argc, argv, *i);
    return 2;
}

static bool wants_help(const char *arg) {
    return strcmp(arg, "--help") == 0 || strcmp(arg, "-h") == 0;
}

/* Whether the previous argument is an unknown option, which `take` refuses.  Then this argument is
 * its value and not a job file. */
static bool is_value_of_unknown(char **argv, int i) {
    const char *before = i > 1 ? argv[i - 1] : "";
    return strncmp(before, "--", 2) == 0 && !strchr(before, '=') &&
           strcmp(before, "--quiet") != 0 && strcmp(before, "--allow-plugin") != 0;
}

bool is_assignment(const char *text) {
    const char *equals = strchr(text, '=');
    return equals && !memchr(text, '/', (size_t)(equals - text)) && access(text, F_OK) != 0;
}

/* Loads the job file first, so that assignments win wherever they stand on the command line. */
static int load(job_args *args, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (wants_help(argv[i])) args->help = true;
        if (strcmp(argv[i], "--resume") == 0 && i + 1 < argc)
            args->resume = argv[++i];
        else if (strcmp(argv[i], "-n") == 0 || strcmp(argv[i], "--backend") == 0 ||
                 strcmp(argv[i], "--after") == 0 || strcmp(argv[i], "--worker") == 0 ||
                 strcmp(argv[i], "--restarts") == 0)
            i++;
        else if (argv[i][0] != '-' && !is_assignment(argv[i]) && !args->path &&
                 !is_value_of_unknown(argv, i))
            args->path = argv[i];
    }
    if (args->help) return 0;
    tutti_status st = TUTTI_OK;
    if (args->path)
        st = tutti_job_load(args->job, args->path);
    else if (args->resume)
        st = tutti_job_load_run(args->job, args->resume);
    return st == TUTTI_OK ? 0 : report_failure(st);
}

static int take(job_args *args, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (args->path && strcmp(argv[i], args->path) == 0) continue;
        if (strcmp(argv[i], "--quiet") == 0 || strcmp(argv[i], "-q") == 0) {
            args->quiet = true;
        } else if (strcmp(argv[i], "--allow-plugin") == 0) {
            tutti_job_allow_plugin(args->job);
        } else if (argv[i][0] == '-') {
            int code = parse_flag(args, argc, argv, &i);
            if (code) return code;
        } else if (is_assignment(argv[i])) {
            tutti_job_set(args->job, argv[i], "command line");
        } else {
            fprintf(stderr, "tutti: unexpected argument '%s' (one job file is enough)\n", argv[i]);
            return 2;
        }
    }
    return 0;
}

int job_args_read(int argc, char **argv, job_args *out) {
    *out = (job_args){0};
    tutti_status st = tutti_job_create(&out->job);
    if (st != TUTTI_OK) return report_failure(st);
    int code = load(out, argc, argv);
    if (code == 0 && !out->help) code = take(out, argc, argv);
    if (code == 0 && !out->help) {
        print_job_warnings(out->job);
        st = tutti_job_check(out->job);
        if (st != TUTTI_OK) code = report_failure(st);
    }
    if (code) job_args_free(out);
    return code;
}

void job_args_free(job_args *args) {
    tutti_job_destroy(args->job);
    args->job = NULL;
}
