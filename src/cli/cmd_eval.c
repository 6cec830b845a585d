/* cmd_eval.c - `tutti eval RUN`: evaluates the newest checkpoint of a run on its test split. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cmd.h"
#include "cli/run_args.h"
#include "tutti/eval.h"

static const char usage[] =
    "usage: tutti eval RUN [key=value ...] [--json]\n\nEvaluates the newest valid checkpoint of "
    "run folder RUN on the test split of its job.\nPrints the loss and the metrics of "
    "train.metrics.  For classes: accuracy, precision, recall\n"
    "and F1 of each class, and the most frequent confusions.  For text: perplexity.  For a\n"
    "regression: rmse, mae and r2.\n"
    "data.dir=FILE evaluates other "
    "data: its test split if a name "
    "such as val/ or test.csv\nmarks one, else all of it.\n\n  key=value   overrides a key of "
    "RUN/job.yaml, such as data.dir=new.csv\n  --json      one JSON object, with the whole "
    "confusion matrix\n\nExit code: 0; 2 wrong usage or no run; 3 data; 4 no valid checkpoint, or "
    "another model.\n";

int tutti_cmd_eval(int argc, char **argv) {
    run_args args;
    bool json = false;
    run_flag flags[] = {{"--json", .on = &json}, {0}};
    int code = run_args_read(argc, argv, usage, flags, &args);
    if (code || !args.job) return code;
    tutti_eval_result result;
    tutti_status st = tutti_eval(args.job, args.run_dir, print_warning, NULL, &result);
    char *text = st == TUTTI_OK ? tutti_eval_print(&result, json) : NULL;
    if (st == TUTTI_OK && text)
        fputs(text, stdout);
    else
        code = report_failure(st == TUTTI_OK ? TUTTI_E_NOMEM : st);
    free(text);
    tutti_eval_result_free(&result);
    run_args_free(&args);
    return code;
}
