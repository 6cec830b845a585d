/* cmd_train.c - `tutti train JOB.yaml`: trains a job. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/job_args.h"
#include "cli/progress_line.h"
#include "tutti/train.h"

static const char usage[] =
    "usage: tutti train [JOB.yaml] [key=value ...] [-n N] [--resume RUN] [--restarts N]\n"
    "                   [--allow-plugin] [--backend NAME] [-q]\n"
    "\n"
    "Trains the job on N workers (default: one per GPU or core) and writes a run folder with\n"
    "job.yaml, metrics.jsonl and checkpoints.  Without a job file every key has its default.\n"
    "\n"
    "  -n N             parallel.workers=N\n"
    "  --backend NAME   parallel.backend=NAME: auto, cpu, reference or none\n"
    "  --resume RUN     continue the run in folder RUN, on any number of workers, bit for bit;\n"
    "                   its job.yaml is used if no job file is given\n"
    "  --allow-plugin   load the code that model.plugin of RUN/job.yaml names\n"
    "  --restarts N     run.restarts=N: with parallel.place=processes, restart all workers after "
    "a\n"
    "                   failure from the last checkpoint, up to N times; the same failure in the\n"
    "                   same step is retried only once\n"
    "  -q, --quiet      warnings only\n"
    "\n"
    "'tutti config reference' lists all keys.  Ctrl-C and SIGTERM stop at a step boundary with a\n"
    "checkpoint; a second Ctrl-C ends at once.\n"
    "\n"
    "Exit code: 0; 2 wrong usage or job; 3 data; 4 checkpoint; 5 a worker was lost; 6 timeout; 7\n"
    "loss not finite; 8 out of memory; 9 workers disagree; 10 a device failed; 93 restarts made\n"
    "no progress; 130, 143 stopped by a signal.\n";

static void print_result(const tutti_train_result *r) {
    if (r->n_params == 0) return; /* in a supervisor, the worker of rank 0 has printed it */
    if (r->stop_signal) {
        fprintf(stderr, "stopped at step %" PRId64 "; continue with: tutti train --resume %s\n",
                r->n_steps, r->run_dir);
        return;
    }
    char r2[R2_TEXT];
    if (r->n_targets > 1) printf("nrmse %.6g%s", r->nrmse, isnan(r->rmse) ? "" : "  ");
    if (r->is_regression && !isnan(r->rmse))
        printf("rmse %.6g  mae %.6g  r2 %s", r->rmse, r->mae, r2_text(r->r2, r2));
    if (!r->is_regression && !isnan(r->accuracy)) printf("accuracy %.4f", r->accuracy);
    printf("%sloss %.6f  samples/s %.0f  steps %" PRId64 "  params_hash %016" PRIx64 "\n",
           !r->is_regression && isnan(r->accuracy) ? "" : "  ", r->loss, r->samples_per_s,
           r->n_steps, r->params_hash);
    if (r->bubble_expected > 0)
        printf("pipeline: stages waited %.1f %% of the time, %.1f %% expected\n", 100 * r->bubble,
               100 * r->bubble_expected);
    if (r->staleness_max > 0)
        printf("staleness: mean %.2f, largest %" PRId64 "\n", r->staleness_mean, r->staleness_max);
    if (r->n_dropped > 0)
        printf("%" PRId64 " gradients of late workers were dropped\n", r->n_dropped);
    if (r->sent_bytes > 0) printf("sent %.3f MB by each worker\n", r->sent_bytes * 1e-6);
    if (r->most_device_bytes > 0)
        printf("device memory at most %.4g GB on rank 0, %.4g to %.4g on all ranks\n",
               (double)r->peak_device_bytes * 1e-9, (double)r->least_device_bytes * 1e-9,
               (double)r->most_device_bytes * 1e-9);
    if (r->slowest_why)
        printf("slowest worker: rank %d (%s); the others waited %.1f %% of the time for it\n",
               r->slowest_rank, r->slowest_why, 100 * r->slowest_late_share);
    printf("run %s\n", r->run_dir);
}

/* A worker thread does not end, so the process must. */
static void end_stuck_run(void *user, tutti_status status, const char *text) {
    (void)user;
    fprintf(stderr, "\ntutti: error: %s; a worker thread does not return, so the program exits\n",
            text);
    _exit(tutti_status_exit_code(status));
}

int tutti_cmd_train(int argc, char **argv) {
    job_args args;
    int code = job_args_read(argc, argv, &args);
    if (code) return code;
    if (args.help) {
        fputs(usage, stdout);
        job_args_free(&args);
        return 0;
    }
    bool silent = args.quiet || strcmp(tutti_job_get(args.job, "run.progress"), "false") == 0;
    progress p = progress_begin(silent);
    char **again = worker_argv(NULL, argc, argv);
    tutti_train_result result;
    tutti_status st = tutti_train(args.job,
                                  &(tutti_train_desc){.resume = args.resume,
                                                      .worker_argv = again,
                                                      .on_event = progress_event,
                                                      .user = &p,
                                                      .on_stuck = end_stuck_run},
                                  &result);
    progress_end(&p);
    if (st == TUTTI_OK)
        print_result(&result);
    else
        report_failure(st);
    free(again);
    job_args_free(&args);
    return result.exit_code;
}
