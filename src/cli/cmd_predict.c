/* cmd_predict.c - `tutti predict RUN FILE...`: applies a trained model to new samples. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/cmd.h"
#include "cli/run_args.h"
#include "tutti/eval.h"

static const char usage[] =
    "usage: tutti predict RUN FILE|FOLDER|-... [--out DIR] [key=value ...]\n\nPredicts with the "
    "newest valid checkpoint of run folder RUN and prints one line of JSON per\n"
    "sample.  The training data is not needed.  Accepted files depend on the training data:\n\n"
    "  images    JPEG, PNG, IDX (plain or gzipped): class, probability, the five most likely "
    "classes\n"
    "  masks     the same files: the number of pixels of each class; --out DIR writes the mask of\n"
    "            NAME.jpg as DIR/NAME.png\n"
    "  arrays    .npy files of NumPy, or the array x of an .npz: one sample or rows of samples,\n"
    "            with the shape and type of the training data\n"
    "  fields    .npz files with the arrays that the outputs need\n"
    "  tables    .csv, .csv.gz; columns are matched by name and labels are not needed: class, the\n"
    "            value of a regression, or the probability of each 0/1 label\n"
    "  text      .txt, or .bin files of tokens, for a language model: loss and perplexity of each\n"
    "            window of its context, and the most likely next tokens\n\n"
    "A model file with several outputs gives all of them under \"outputs\", by their names.\n"
    "A folder means all such files in it and in its subfolders, sorted by name.  - means standard\n"
    "input, for tables (CSV) and text.  Files that cannot be read and samples with an output that\n"
    "is not finite are reported on standard error and skipped.\n"
    "\n"
    "Exit code: 0; 1 a mask cannot be written; 2 wrong usage or no run; 3 a file cannot be read;\n"
    "4 no valid checkpoint; 7 an output that is not finite.\n";

/* The folder of masks, and the first failure there. */
typedef struct masks {
    const char *dir; /* NULL: nowhere */
    tutti_status status;
    char error[1024];
} masks;

/* DIR/NAME.png for an image PATH/NAME.jpg. */
static tutti_status save_mask(const masks *m, const tutti_prediction *prediction) {
    const char *slash = strrchr(prediction->file, '/');
    const char *name = slash ? slash + 1 : prediction->file, *dot = strrchr(name, '.');
    int n_name = dot && dot > name ? (int)(dot - name) : (int)strlen(name);
    char path[4096];
    int n = prediction->n_in_file > 1
                ? snprintf(path, sizeof path, "%s/%.*s-%lld.png", m->dir, n_name, name,
                           (long long)prediction->index)
                : snprintf(path, sizeof path, "%s/%.*s.png", m->dir, n_name, name);
    if (n >= (int)sizeof path) path[sizeof path - 1] = '\0';
    return tutti_prediction_save_mask(prediction, path);
}

static int print(void *user, const tutti_prediction *prediction) {
    masks *m = user;
    if (prediction->error) {
        fflush(stdout); /* keeps the order of samples if both go to one stream */
        fprintf(stderr, "tutti predict: %s\n", prediction->error);
        return 0;
    }
    if (prediction->notice) {
        fprintf(stderr, "tutti predict: %s\n", prediction->notice);
        return 0;
    }
    if (m->dir && m->status == TUTTI_OK) {
        m->status = save_mask(m, prediction);
        if (m->status != TUTTI_OK) snprintf(m->error, sizeof m->error, "%s", tutti_last_error());
    }
    char *text = tutti_prediction_print(prediction);
    if (text) fputs(text, stdout);
    free(text);
    return 0;
}

int tutti_cmd_predict(int argc, char **argv) {
    run_args args;
    masks m = {0};
    const run_flag flags[] = {{"--out", .text = &m.dir}, {0}};
    int code = run_args_read(argc, argv, usage, flags, &args);
    if (code || !args.job) return code;
    if (args.n_rest == 0) {
        fprintf(stderr,
                "tutti predict: no file after '%s'; name files or folders, or - for standard input "
                "(tutti predict --help)\n",
                args.run_dir);
        run_args_free(&args);
        return 2;
    }
    if (m.dir && mkdir(m.dir, 0777) != 0 && errno != EEXIST) {
        fprintf(stderr, "tutti predict: --out %s: %s\n", m.dir, strerror(errno));
        run_args_free(&args);
        return 1;
    }
    tutti_status st = tutti_predict(args.job, args.run_dir, args.rest, args.n_rest, print, &m);
    if (st != TUTTI_OK) code = report_failure(st);
    if (m.status != TUTTI_OK) fprintf(stderr, "tutti predict: %s\n", m.error);
    if (m.status != TUTTI_OK && code == 0) code = m.status == TUTTI_E_INVALID ? 2 : 1;
    run_args_free(&args);
    return code;
}
