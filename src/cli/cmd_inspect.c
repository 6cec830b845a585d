/* cmd_inspect.c - `tutti inspect JOB.yaml`: prints the steps, kernels and memory of a job, or its
 * graph after a pass. `tutti inspect RUN`: prints and verifies its checkpoints. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cmd.h"
#include "cli/job_args.h"
#include "cli/words.h"
#include "tutti/ckpt.h"
#include "tutti/models.h"
#include "tutti/planner.h"
#include "tutti/train.h"

static const char usage[] =
    "usage: tutti inspect [JOB.yaml] [key=value ...] [--after PASS] [--worker N]\n"
    "       tutti inspect [JOB.yaml] [key=value ...] --layout [--worker N] | --svg FILE\n"
    "       tutti inspect RUN | CHECKPOINT | FILE.safetensors | FILE.pt2 | FILE.onnx\n"
    "\n"
    "Prints what the job would run: the steps of the shard program with the kernel of each, and\n"
    "the peak use of each kind of memory.\n"
    "\n"
    "  --after PASS   the graph after a pass, as text; --after none: as the model builds it\n"
    "                 ('tutti passes' lists the passes)\n"
    "  --worker N     the program of worker N, if the model is divided over workers\n"
    "  --layout       what each worker holds and sends, in order: shards, parameters and "
    "optimizer\n"
    "                 state, gradient sums or parameter averages, server ranges, pipeline "
    "schedule\n"
    "                 with --worker N: the instructions that this worker executes in a step\n"
    "  --svg FILE     the layout as an SVG image\n"
    "\n"
    "For a run, a checkpoint or a safetensors file: prints its contents and verifies every\n"
    "checksum.  For an exported model (.pt2, .onnx): its inputs, parameters and operators.\n";

static bool ends_with(const char *path, const char *end) {
    size_t n = strlen(path), n_end = strlen(end);
    return n > n_end && strcmp(path + n - n_end, end) == 0;
}

static int print_model(const char *path) {
    char *text;
    tutti_status st = tutti_model_describe(path, &text);
    if (st != TUTTI_OK) return report_failure(st);
    fputs(text, stdout);
    free(text);
    return 0;
}

/* Whether path is a model of another framework, or the folder of one. */
static bool is_model(const char *path) {
    char graph[4096];
    struct stat info;
    if (ends_with(path, ".pt2") || ends_with(path, ".onnx")) return true;
    int n = snprintf(graph, sizeof graph, "%s/graph.json", path);
    return n < (int)sizeof graph && stat(graph, &info) == 0;
}

/* Whether path is a folder or a tensor file, not a job. */
static bool is_checkpoint(const char *path) {
    struct stat info;
    if (ends_with(path, ".safetensors")) return true;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static int print_checkpoint(const char *path) {
    char *text;
    tutti_status st = tutti_ckpt_describe(path, &text);
    if (st != TUTTI_OK) return report_failure(st);
    fputs(text, stdout);
    free(text);
    return 0;
}

/* Which description of the job to print, and the file for SVG; NULL: print it. */
typedef struct requested {
    bool layout;
    const char *svg_path;
} requested;

static tutti_status describe_job(const job_args *args, const requested *w, char **text) {
    const tutti_inspect_desc desc = {.after_pass = args->after, .worker = args->worker};
    if (w->layout && args->worker) return tutti_list_steps(args->job, args->worker, text);
    return w->layout || w->svg_path ? tutti_draw_layout(args->job, w->svg_path != NULL, text)
                                    : tutti_inspect_job(args->job, &desc, text);
}

static int print_job(const job_args *args, const requested *w) {
    char *text;
    tutti_status st = describe_job(args, w, &text);
    if (st != TUTTI_OK) return report_failure(st);
    int code = 0;
    if (w->svg_path)
        code = save_text("inspect", w->svg_path, text);
    else
        fputs(text, stdout);
    free(text);
    return code;
}

static int refuse_checkpoint(const char *path) {
    fprintf(stderr,
            "tutti inspect: --layout and --svg need a job, and %s is not one; for a run, name its "
            "RUN/job.yaml\n",
            path);
    return 2;
}

static int refuse_part(const char *option) {
    fprintf(stderr, "tutti inspect: %s cannot be combined with a %s; leave out %s\n", option,
            strcmp(option, "--after") == 0 ? "layout" : "SVG image of all workers", option);
    return 2;
}

int tutti_cmd_inspect(int argc, char **argv) {
    job_args args;
    requested w = {parse_flag(&argc, argv, "--layout"), parse_option(&argc, argv, "--svg")};
    if (argc == 2 && is_model(argv[1]) && !w.layout && !w.svg_path) return print_model(argv[1]);
    if (argc == 2 && is_checkpoint(argv[1]))
        return w.layout || w.svg_path ? refuse_checkpoint(argv[1]) : print_checkpoint(argv[1]);
    int code = job_args_read(argc, argv, &args);
    if (code) return code;
    if (args.help)
        fputs(usage, stdout);
    else if ((w.layout && args.after) || (w.svg_path && (args.after || args.worker)))
        code = refuse_part(args.after ? "--after" : "--worker");
    else
        code = print_job(&args, &w);
    job_args_free(&args);
    return code;
}
