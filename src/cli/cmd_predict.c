/* cmd_predict.c - `tutti predict RUN FILE...`: applies a trained model to new samples. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cmd.h"
#include "cli/run_args.h"
#include "tutti/eval.h"

static const char usage[] =
    "usage: tutti predict RUN FILE|FOLDER... [key=value ...]\n\nPrints one JSON object per sample "
    "and line, with the newest valid checkpoint of run folder\nRUN. The training data is not "
    "needed.  Accepted files depend on the training data:\n\n  images    JPEG, PNG, IDX (plain or "
    "gzipped): class, probability, the five most likely classes\n  arrays    .npy files of NumPy, "
    "or the array x of an .npz: one sample or rows of samples,\n            with the shape and "
    "type of the training data\n  tables    .csv, .csv.gz; columns are matched by name and labels "
    "are not needed: class, or\n            the value of a regression\n  text      .txt, or .bin "
    "files of tokens, for a language model: loss and perplexity of each\n            window of its "
    "context, and the most likely next tokens\n\nA folder stands for all such files in it and "
    "below, sorted by name.  Files that cannot be\nread and samples with an output that is not "
    "finite are reported on standard error; the\nothers continue.\n\nExit code: 0; 2 wrong usage "
    "or no run; 3 a file cannot be read; 4 no valid checkpoint; 7 an\noutput that is not finite.\n";

static void print(void *user, const tutti_prediction *prediction) {
    (void)user;
    if (prediction->error) {
        fflush(stdout); /* keeps the order of samples if both go to one stream */
        fprintf(stderr, "tutti predict: %s\n", prediction->error);
        return;
    }
    if (prediction->notice) {
        fprintf(stderr, "tutti predict: %s\n", prediction->notice);
        return;
    }
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
