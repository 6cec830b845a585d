/* main.c - the program: the table of commands, help, and a suggestion for a mistyped name.  To add
 * a command: write cmd_NAME.c, declare it in cmd.h, add a row here. */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/cmd.h"

typedef struct command {
    const char *name;
    const char *help; /* one line */
    int (*run)(int argc, char **argv);
} command;

static int version(int argc, char **argv);

/* Ordered as a new user needs them. */
static const command commands[] = {
    {"demo", "train on generated digits with 1 worker and with one per core", tutti_cmd_demo},
    {"train", "train a job, or continue a run", tutti_cmd_train},
    {"eval", "evaluate a run on its test split", tutti_cmd_eval},
    {"export", "export a trained model for other programs", tutti_cmd_export},
    {"import", "write an exported model (.pt2, .onnx) as a folder for training", tutti_cmd_import},
    {"generate", "continue a prompt with a language model", tutti_cmd_generate},
    {"predict", "predict images, arrays, tables or texts as JSON lines", tutti_cmd_predict},
    {"report", "write report.html: curves, times, memory, mistakes", tutti_cmd_report},
    {"ps", "list the ranks of a running job and what each one does", tutti_cmd_ps},
    {"chaos", "inject faults into elastic runs of a job and compare their results",
     tutti_cmd_chaos},
    {"scale", "change the number of workers of an elastic run", tutti_cmd_scale},
    {"stacks", "print the stack of every thread of a running job", tutti_cmd_stacks},
    {"inspect", "show what a job would run: steps, kernels, memory, graphs", tutti_cmd_inspect},
    {"plan", "predict time and memory of all layouts; find the fastest", tutti_cmd_plan},
    {"simulate", "simulate a job on a described cluster", tutti_cmd_simulate},
    {"config", "show a job with the origin of every value; JSON schema; all keys",
     tutti_cmd_config},
    {"data", "describe a data set; pack it into the form that loads fastest", tutti_cmd_data},
    {"launch", "run any program as N ranks on this host", tutti_cmd_launch},
    {"ops", "list operations with formulas and attributes", tutti_cmd_list},
    {"operators", "list operators of model files and ops, as Markdown", tutti_cmd_list},
    {"passes", "list passes in order", tutti_cmd_list},
    {"models", "list models", tutti_cmd_list},
    {"formats", "list data formats", tutti_cmd_list},
    {"optimizers", "list optimizers", tutti_cmd_list},
    {"schedules", "list learning rate schedules", tutti_cmd_list},
    {"transports", "list transports between ranks", tutti_cmd_list},
    {"algorithms", "list all-reduce algorithms", tutti_cmd_list},
    {"profile", "show where the time of a training step goes; write a trace", tutti_cmd_profile},
    {"doctor", "show cores, devices, modules and their speed", tutti_cmd_doctor},
    {"bench", "measure training, data loading or collectives", tutti_cmd_bench},
    {"version", "print the version", version},
};

enum {
    N_COMMANDS = sizeof commands / sizeof commands[0],
    NAME_MAX_BYTES = 32,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2
};

static int version(int argc, char **argv) {
    (void)argc;
    (void)argv;
    printf("tutti %s\n", TUTTI_VERSION);
    return 0;
}

static void help(FILE *out) {
    fprintf(out,
            "tutti trains neural networks on many devices at once.\n\n"
            "usage: tutti COMMAND [ARGUMENT...]\n"
            "       tutti COMMAND --help\n\n");
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].help);
}

static int min3(int a, int b, int c) {
    int m = a < b ? a : b;
    return m < c ? m : c;
}

/* The Levenshtein distance between a command name and the typed name. */
static int distance(const char *name, const char *typed) {
    int row[NAME_MAX_BYTES + 1], n = (int)strlen(typed);
    if (n > NAME_MAX_BYTES) return NAME_MAX_BYTES;
    for (int j = 0; j <= n; j++) row[j] = j;
    for (int i = 1; name[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            int cost = diagonal + (name[i - 1] != typed[j - 1]);
            diagonal = row[j];
            row[j] = min3(row[j] + 1, row[j - 1] + 1, cost);
        }
    }
    return row[n];
}

/* Names that other programs use for commands. */
static const char *meant(const char *typed) {
    static const char *const words[][2] = {
        {"fit", "train"},         {"run", "train"},         {"resume", "train --resume RUN"},
        {"finetune", "train"},    {"test", "eval"},         {"evaluate", "eval"},
        {"validate", "eval"},     {"score", "eval"},        {"infer", "predict"},
        {"inference", "predict"}, {"classify", "predict"},  {"sample", "generate"},
        {"chat", "generate"},     {"complete", "generate"}, {"convert", "export"},
        {"onnx", "export"},       {"save", "export"},       {"benchmark", "bench"},
        {"summary", "inspect"},   {"graph", "inspect"},     {"info", "doctor"},
        {"env", "doctor"},        {"check", "doctor"},      {"trace", "profile"},
        {"tune", "plan"},         {"dataset", "data"},      {"pack", "data pack"},
        {"settings", "config"},   {"plot", "report"},       {"torchrun", "launch"}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i][0], typed) == 0) return words[i][1];
    return NULL;
}

static int unknown(const char *typed) {
    const char *other = meant(typed);
    const command *best = NULL;
    int best_edits = 3; /* more edits are not a typing error */
    for (int i = 0; i < N_COMMANDS; i++) {
        int edits = distance(commands[i].name, typed);
        if (edits < best_edits) best = &commands[i], best_edits = edits;
    }
    fprintf(stderr, "tutti: no command '%s'", typed);
    if (other || best) fprintf(stderr, ", did you mean '%s'?", other ? other : best->name);
    fprintf(stderr, " (tutti --help lists them)\n");
    return EXIT_USAGE;
}

/* Commands that train or start workers: a signal that stops them is in their exit code. */
static bool has_stop_codes(const char *name) {
    static const char *const names[] = {"demo", "train", "profile", "launch", "bench"};
    bool has = false;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) has |= strcmp(names[i], name) == 0;
    return has;
}

static void exit_now(int number) { _exit(128 + (number == SIGINT ? SIGINT : SIGTERM)); }

/* The library takes these signals while it trains and then restores the caller's handlers.  With
 * these handlers a Ctrl-C before or after that time has the documented exit code too.  A supervisor
 * must see that the signal ended its worker: such a worker may not be connected to others yet, and
 * they must not wait for it. */
static void exit_on_signals(void) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction old, action = {.sa_handler = exit_now};
    sigemptyset(&action.sa_mask);
    if (getenv("TUTTI_SUPERVISOR_PID")) return;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL)
            sigaction(signals[i], &action, NULL);
}

static void on_file_limit(int number) { (void)number; }

static void prepare_process(void) {
    /* Opens /dev/null for standard streams that the caller has closed.  Otherwise the next file
     * opened, such as a checkpoint, would get descriptor 1 or 2 and receive console output. */
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) break;

    /* With a handler for SIGXFSZ, a write beyond `ulimit -f` fails with EFBIG, which is reported
     * like a full disk.  Without it the process would be killed.  A handler and not SIG_IGN, so
     * that programs started by `tutti launch` have the default again. */
    struct sigaction old, action = {.sa_handler = on_file_limit, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGXFSZ, NULL, &old) == 0 && old.sa_handler == SIG_DFL)
        sigaction(SIGXFSZ, &action, NULL);

    /* glibc reserves 64 MB of address space for each thread that allocates.  Under ulimit -v other
     * allocations would then fail, depending on timing. */
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        mallopt(M_ARENA_MAX, 1);
}

/* Results that cannot be written are a failure. */
static int results_have_arrived(const char *name, int code) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    fprintf(stderr, "tutti %s: standard output: %s\n", name, strerror(errno));
    return code ? code : EXIT_FAILED;
}

int main(int argc, char **argv) {
    prepare_process();
    if (argc < 2) {
        help(stderr);
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        help(stdout);
        return results_have_arrived(name, 0);
    }
    if (strcmp(name, "--version") == 0) return results_have_arrived(name, version(0, NULL));
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(commands[i].name, name) != 0) continue;
        if (has_stop_codes(name)) exit_on_signals();
        return results_have_arrived(name, commands[i].run(argc - 1, argv + 1));
    }
    return unknown(name);
}
