/* cmd_predict.c - `tutti predict RUN FILE...`: what a trained model says of pictures. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cmd.h"
#include "cli/run_args.h"
#include "tutti/eval.h"

static const char usage[] =
    "usage: tutti predict RUN FILE... [key=value ...]\n\n"
    "Prints one JSON object per picture and line: file, index (in a file of many), class,\n"
    "probability, and the five likeliest classes.  Files are JPEG, PNG, or IDX of pictures, plain\n"
    "or gzipped.  The newest valid checkpoint of run folder RUN is asked.\n\n"
    "Exit code: 0; 2 wrong usage, no run there; 3 a file cannot be read; 4 no good checkpoint.\n";

static void print(void *user, const tutti_prediction *prediction) {
    (void)user;
    char *text = tutti_prediction_print(prediction);
    if (text) fputs(text, stdout);
    free(text);
}

int tutti_cmd_predict(int argc, char **argv) {
    run_args args;
    const run_flag flags[] = {{0}};
    int code = run_args_read(argc, argv, usage, flags, &args);
    if (code || !args.job) return code;
    if (args.n_rest == 0) {
        fprintf(stderr, "tutti predict: no file after '%s' (tutti predict --help)\n", args.run_dir);
        run_args_free(&args);
        return 2;
    }
    tutti_status st = tutti_predict(args.job, args.run_dir, args.rest, args.n_rest, print, NULL);
    if (st != TUTTI_OK) code = report_failure(st);
    run_args_free(&args);
    return code;
}
