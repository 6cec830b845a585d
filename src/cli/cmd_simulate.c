/* cmd_simulate.c - `tutti simulate JOB -n N`: simulates a job on a described cluster. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/cmd.h"
#include "cli/job_args.h"
#include "cli/words.h"
#include "tutti/planner.h"

static const char usage[] =
    "usage: tutti simulate [JOB.yaml] [key=value ...] [-n WORKERS] [--network "
    "FILE|h200|ethernet]\n                      [--device measured|cpu|h200] [--step-ms MS] "
    "[--speeds LIST] [--json]\n\nSimulates a step of the job on 1, 2, 4, ... WORKERS (64), each "
    "with the job's global batch:\nthe compute time of a worker, when each gradient bucket is "
    "ready, and how long its reduction\ntakes. Prints the scaling curve, the reductions and how "
    "much of their time is not overlapped,\nand the bytes that a worker or server sends on each "
    "level of the network.\n\nWith parallel.pipeline and parallel.tensor several workers form each "
    "replica, and the\npipeline bubble is printed.  parallel.zero, parallel.wire, "
    "parallel.compress and local SGD\nchange the bytes that are sent.  For asynchronous parameter "
    "servers and backup workers the\nsimulation prints waits, the load of the servers, and the "
    "staleness of gradients.\n\n  --device D       compute time: measured (on this machine, in a "
    "few seconds), or stored figures\n                   of an H200 or a core\n  --step-ms MS     "
    "use this compute time instead\n  --speeds LIST    relative speeds of replicas: 1,1,1,0.2 "
    "makes every fourth five times slower\n  --network FILE   a YAML file with the groups host, "
    "rack and spine, each with size, gb_s (1e9\n                   bytes per second and worker) "
    "and latency_us\n";

static int read_options(int *argc, char **argv, tutti_simulate_desc *desc) {
    const char *n = parse_option(argc, argv, "-n"), *ms = parse_option(argc, argv, "--step-ms");
    *desc = (tutti_simulate_desc){.network = parse_option(argc, argv, "--network"),
                                  .device = parse_option(argc, argv, "--device"),
                                  .speeds = parse_option(argc, argv, "--speeds"),
                                  .json = parse_flag(argc, argv, "--json")};
    double workers = 64;
    if ((n && !read_positive(n, &workers)) || workers > 1 << 20 || workers != floor(workers)) {
        fprintf(stderr, "tutti simulate: -n expects a number from 1 to %d, got '%s'\n", 1 << 20, n);
        return 2;
    }
    desc->n_workers = (int)workers;
    if (ms && !read_positive(ms, &desc->step_ms)) {
        fprintf(stderr, "tutti simulate: --step-ms expects milliseconds, got '%s'\n", ms);
        return 2;
    }
    return 0;
}

int tutti_cmd_simulate(int argc, char **argv) {
    tutti_simulate_desc desc;
    job_args args;
    char *text;
    int code = read_options(&argc, argv, &desc);
    if (code) return code;
    code = job_args_read(argc, argv, &args);
    if (code) return code;
    if (args.help) {
        fputs(usage, stdout);
    } else {
        tutti_status st = tutti_simulate_job(args.job, &desc, &text);
        code = st == TUTTI_OK ? 0 : report_failure(st);
        if (st == TUTTI_OK) fputs(text, stdout);
        if (st == TUTTI_OK) free(text);
    }
    job_args_free(&args);
    return code;
}
