/* cmd_demo.c - `tutti demo`: shows what Tutti does in a minute, without any file.
 *
 * Trains on generated digits twice: with one worker, then with one worker per core.  The second run
 * is faster, and its parameters have the same bits. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cmd.h"
#include "cli/job_args.h"
#include "cli/progress_line.h"
#include "tutti/train.h"

static const char usage[] =
    "usage: tutti demo [key=value ...]\n\nTrains a small network on digits that the program "
    "generates, first with 1 worker on 1 core, then\nwith one worker per core, and compares speed "
    "and parameters.\n";

static int train_once(int argc, char **argv, const char *workers, tutti_train_result *result) {
    job_args args;
    int code = job_args_read(argc, argv, &args);
    if (code) return code;
    tutti_job_set(args.job, workers, "demo");
    tutti_job_set(args.job, "parallel.devices=cpu", "demo"); /* the demo compares cores */
    bool silent = args.quiet || strcmp(tutti_job_get(args.job, "run.progress"), "false") == 0;
    progress p = progress_begin(silent);
    tutti_status st =
        tutti_train(args.job, &(tutti_train_desc){.on_event = progress_event, .user = &p}, result);
    progress_end(&p);
    if (st != TUTTI_OK) report_failure(st);
    job_args_free(&args);
    return st == TUTTI_OK ? result->exit_code : tutti_status_exit_code(st);
}

/* A single worker would use every core by default; the comparison is with one core. */
static bool bind_one_core(cpu_set_t *before) {
    if (sched_getaffinity(0, sizeof *before, before) != 0) return false;
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, before)) continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        return sched_setaffinity(0, sizeof one, &one) == 0;
    }
    return false;
}

static void print_row(const tutti_train_result *r, const tutti_train_result *one) {
    printf("%7d  %7.2f%%  %11.0f  %8.2fx  %016" PRIx64 "  %s\n", r->n_workers, 100 * r->accuracy,
           r->samples_per_s, r->samples_per_s / one->samples_per_s, r->params_hash, r->run_dir);
}

int tutti_cmd_demo(int argc, char **argv) {
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return 0;
    }
    tutti_train_result one, all;
    char workers[64];
    long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
    int n = (int)(n_cores > 8 ? 8 : n_cores < 2 ? 2 : n_cores);
    char *job[64] = {argv[0], (char *)"train.epochs=3", (char *)"parallel.shards=8"};
    int n_args = 3;
    for (int i = 1; i < argc && n_args < 62; i++) job[n_args++] = argv[i];
    cpu_set_t all_cores;
    bool bound = bind_one_core(&all_cores);
    int code = train_once(n_args, job, "parallel.workers=1", &one);
    if (bound) sched_setaffinity(0, sizeof all_cores, &all_cores);
    if (code) return code;
    snprintf(workers, sizeof workers, "parallel.workers=%d", n);
    code = train_once(n_args, job, workers, &all);
    if (code) return code;
    printf("\nworkers  accuracy    samples/s   speed-up  params_hash       run\n");
    print_row(&one, &one);
    print_row(&all, &one);
    bool same = one.params_hash == all.params_hash;
    printf(same ? "The same bits from 1 and %d workers.\n"
                : "DIFFERENT BITS from 1 and %d workers: this is a bug, please report it.\n",
           n);
    return same ? 0 : tutti_status_exit_code(TUTTI_E_MISMATCH);
}
