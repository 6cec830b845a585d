/* cmd_plan.c - `tutti plan JOB -n N`: ranks the layouts of N workers by predicted time. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/job_args.h"
#include "cli/words.h"
#include "tutti/planner.h"

static const char usage[] =
    "usage: tutti plan [JOB.yaml] [key=value ...] [-n WORKERS] [--memory SIZE] [--out FILE]\n      "
    "            [--device measured|cpu|h200] [--seconds S] [--json] [--all]\n       tutti plan "
    "--check RUN [--device NAME] [--seconds S] [--json]\n                              "
    "[--allow-plugin]\n\nPredicts step time and memory of every layout that the job allows (data, "
    "tensor and pipeline\nparallel sizes, ZeRO stage, number of shards, recomputation).  Prints "
    "the ten best, why the\nothers are slower, and why some are impossible.  Calibration runs the "
    "job's own shard program\non every core for at most --seconds (8) and leaves no run "
    "folder.\n\n  --memory SIZE    memory limit, such as 80GB: of all workers of a host, or of "
    "each GPU\n  --out FILE       write the job with the best layout\n  --device h200    plan for "
    "H200 GPUs, from stored figures, even on a machine without one; set\n"
    "                   their number with -n or parallel.devices\n"
    "  --device cpu     plan for one core per worker\n "
    " --check RUN      compare the prediction for a finished run with its measured time\n          "
    "         and memory\n  --allow-plugin   let --check load the code that model.plugin of RUN "
    "names\n\nThe number of shards changes the results of training: set parallel.shards to keep it "
    "fixed.\n";

typedef struct plan_options {
    tutti_plan_desc desc;
    const char *out_path, *run;
    const char *of_plan; /* an option that cannot be combined with --check; NULL: none was given */
} plan_options;

/* Returns 0, or 2 after a message. */
static int read_options(int *argc, char **argv, plan_options *o) {
    *o = (plan_options){.out_path = parse_option(argc, argv, "--out"),
                        .run = parse_option(argc, argv, "--check")};
    const char *n = parse_option(argc, argv, "-n"); /* overrides the layout of the job */
    const char *memory = parse_option(argc, argv, "--memory");
    const char *seconds = parse_option(argc, argv, "--seconds");
    o->desc.device = parse_option(argc, argv, "--device");
    o->desc.json = parse_flag(argc, argv, "--json");
    o->desc.allow_plugin = o->run && parse_flag(argc, argv, "--allow-plugin");
    if (parse_flag(argc, argv, "--all")) o->desc.max_rows = INT_MAX;
    o->of_plan = n                  ? "-n"
                 : o->out_path      ? "--out"
                 : memory           ? "--memory"
                 : o->desc.max_rows ? "--all"
                                    : NULL;
    if (n && !read_count(n, 1, INT_MAX, &o->desc.n_workers)) {
        fprintf(stderr, "tutti plan: -n expects a number of workers, got '%s'\n", n);
        return 2;
    }
    if (memory && !read_bytes(memory, &o->desc.memory_bytes)) {
        fprintf(stderr, "tutti plan: --memory expects a size such as 80GB, got '%s'\n", memory);
        return 2;
    }
    if (seconds && !read_positive(seconds, &o->desc.budget_s)) {
        fprintf(stderr, "tutti plan: --seconds expects a time in seconds, got '%s'\n", seconds);
        return 2;
    }
    return 0;
}

static int plan(const plan_options *o, tutti_job *job) {
    char *text = NULL, *best = NULL;
    tutti_status st = tutti_plan_job(job, &o->desc, &text, o->out_path ? &best : NULL);
    int code = st == TUTTI_OK ? 0 : report_failure(st);
    if (text) fputs(text, stdout);
    if (best) code = save_text("plan", o->out_path, best);
    free(text);
    free(best);
    return code;
}

static int check(const plan_options *o) {
    char *text;
    tutti_status st = tutti_plan_check(o->run, &o->desc, &text);
    if (st != TUTTI_OK) return report_failure(st);
    fputs(text, stdout);
    free(text);
    return 0;
}

int tutti_cmd_plan(int argc, char **argv) {
    plan_options options;
    job_args args;
    int code = read_options(&argc, argv, &options);
    if (code) return code;
    if (options.run && (argc > 1 || options.of_plan)) {
        fprintf(stderr, "tutti plan: --check takes only a run folder; leave out '%s'\n",
                argc > 1 ? argv[1] : options.of_plan);
        return 2;
    }
    if (options.run) return check(&options);
    code = job_args_read(argc, argv, &args);
    if (code) return code;
    if (args.help)
        fputs(usage, stdout);
    else
        code = plan(&options, args.job);
    job_args_free(&args);
    return code;
}
