/* cmd_launch.c - `tutti launch -n N CMD...`: runs any program as N ranks on this host.
 *
 * Workers are started as `tutti launch --as-worker CMD...`, which ties itself to this process and
 * then executes CMD, so no program outlives its launcher. */
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/words.h"
#include "tutti/launch.h"

enum { EXIT_USAGE = 2, EXIT_NOT_FOUND = 127 };

static const char usage[] =
    "usage: tutti launch -n N [OPTION...] [--] CMD [ARGUMENT...]\n"
    "\n"
    "Runs CMD as N processes on this host, with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE\n"
    "and TUTTI_COMM_FD set.  If one fails, ends the others and reports the first failure.\n"
    "\n"
    "  -n N                number of workers\n"
    "  --log-dir DIR       raw output of each worker in DIR/rank-N.txt\n"
    "  --error-file FILE   write the first failure as JSON\n"
    "  --grace-ms MS       after a failure, time for the others to end before SIGKILL (1000)\n"
    "  --max-restarts N    restart all workers after a failure, up to N times (0)\n"
    "  --resume-stopped    continue a worker stopped by a signal instead of failing\n"
    "\n"
    "Exit code: 0; that of the worker that failed first; 5 if it was killed by a signal; 93 after\n"
    "three starts without progress, or when tutti train fails twice in the same way at the same\n"
    "step; 130 after Ctrl-C, 143 after SIGTERM.\n";

static int misuse(const char *what, const char *value) {
    fprintf(stderr, "tutti launch: %s%s%s\n(tutti launch --help)\n", what, value ? " " : "",
            value ? value : "");
    return EXIT_USAGE;
}

/* An option with a value, and the variable that receives it. */
typedef struct option_row {
    const char *name;
    int *number;       /* NULL: the value is a text */
    const char **text; /* NULL: the value is a number */
} option_row;

/* Reads the options up to CMD.  Returns its index in argv, 0 for help, -1 for wrong usage. */
static int parse_options(int argc, char **argv, tutti_launch_desc *desc) {
    const option_row rows[] = {{"-n", &desc->n_workers, NULL},
                               {"--log-dir", NULL, &desc->log_dir},
                               {"--error-file", NULL, &desc->error_file},
                               {"--grace-ms", &desc->grace_ms, NULL},
                               {"--max-restarts", &desc->max_restarts, NULL}};
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++) {
        const option_row *row = NULL;
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return 0;
        if (strcmp(argv[i], "--") == 0) return i + 1;
        if (strcmp(argv[i], "--resume-stopped") == 0) {
            desc->resume_stopped = true;
            continue;
        }
        for (size_t k = 0; k < sizeof rows / sizeof rows[0]; k++)
            if (strcmp(argv[i], rows[k].name) == 0) row = &rows[k];
        if (!row) return misuse("unknown option", argv[i]), -1;
        if (++i == argc) return misuse("no value after", row->name), -1;
        if (row->text) *row->text = argv[i];
        if (row->number && !read_count(argv[i], 0, 1000000, row->number))
            return misuse("not a number:", argv[i]), -1;
    }
    return i;
}

/* Checks once that the program exists, instead of failing in every worker. */
static bool can_run(const char *program) {
    const char *path = getenv("PATH");
    if (strchr(program, '/')) return access(program, X_OK) == 0;
    for (const char *dir = path ? path : "/usr/bin:/bin"; *dir;) {
        size_t n = strcspn(dir, ":");
        char full[PATH_MAX];
        int used = snprintf(full, sizeof full, "%.*s/%s", (int)n, n ? dir : ".", program);
        if (used < (int)sizeof full && access(full, X_OK) == 0) return true;
        dir += n + (dir[n] == ':');
    }
    return false;
}

static void say(void *user, const char *text) {
    (void)user;
    fprintf(stderr, "tutti: %s\n", text);
}

static int launch(tutti_launch_desc *desc, int argc, char **argv) {
    char **worker = calloc((size_t)argc + 4, sizeof *worker);
    if (!worker) {
        say(NULL, "out of memory");
        return tutti_status_exit_code(TUTTI_E_NOMEM);
    }
    int n = 0;
    worker[n++] = (char *)"/proc/self/exe";
    worker[n++] = (char *)"launch";
    worker[n++] = (char *)"--as-worker";
    for (int i = 0; i < argc; i++) worker[n++] = argv[i];
    desc->argv = worker;
    desc->on_restart = desc->on_leave = say;
    tutti_launch_result result;
    tutti_status st = tutti_launch(desc, &result);
    free(worker);
    if (st != TUTTI_OK) {
        say(NULL, tutti_last_error());
        return tutti_status_exit_code(st);
    }
    if (result.text[0]) say(NULL, result.text);
    return result.exit_code;
}

static int become_worker(char **argv) {
    tutti_status st = tutti_worker_exec(argv);
    fprintf(stderr, "%s\n", tutti_last_error());
    return st == TUTTI_E_IO ? EXIT_NOT_FOUND : tutti_status_exit_code(st);
}

int tutti_cmd_launch(int argc, char **argv) {
    tutti_launch_desc desc = {0};
    if (argc > 2 && strcmp(argv[1], "--as-worker") == 0) return become_worker(argv + 2);
    int first = parse_options(argc, argv, &desc);
    if (first < 0) return EXIT_USAGE;
    if (first == 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (desc.n_workers < 1) return misuse("give -n N, the number of workers", NULL);
    if (first >= argc) return misuse("give a program to run", NULL);
    if (!can_run(argv[first])) {
        fprintf(stderr, "tutti launch: cannot run '%s': not found or not executable\n",
                argv[first]);
        return EXIT_NOT_FOUND;
    }
    return launch(&desc, argc - first, argv + first);
}
