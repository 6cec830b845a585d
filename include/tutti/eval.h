/* eval.h - uses a trained run: evaluates, predicts, generates text, writes the report page.
 *
 * Every call uses the newest valid checkpoint of a run folder and the job that trained it (its
 * job.yaml, overridden by the caller's assignments).  It uses one thread per core; results do not
 * depend on their number.
 *
 * Threads: a job is used by one thread at a time. */
#ifndef TUTTI_EVAL_H
#define TUTTI_EVAL_H

#include "tutti/job.h"

enum { TUTTI_PREDICT_TOP = 5 };

/* Figures of one class; 0 instead of a division by zero. */
typedef struct tutti_class_result {
    const char *name;    /* NULL: no name; borrowed from the result */
    int64_t n_samples;   /* samples of this class */
    int64_t n_predicted; /* predicted as this class                             */
    int64_t n_correct;   /* both: correct predictions */
    double precision;    /* n_correct / n_predicted                             */
    double recall;       /* n_correct / n_samples                               */
    double f1;           /* harmonic mean of precision and recall */
} tutti_class_result;

/* Errors of one target of a regression. */
typedef struct tutti_value_result {
    const char *name; /* name of its column, NULL: none; borrowed from the result */
    double rmse, mae, r2;
} tutti_value_result;

/* Figures of one label of 0 and 1 (train.loss=bce); NAN instead of a division by zero. */
typedef struct tutti_label_result {
    const char *name;             /* of its column, NULL: none; borrowed from the result */
    int64_t n_samples;            /* samples that have the label */
    int64_t n_positive;           /* of these, with a 1                             */
    int64_t n_predicted;          /* predicted as 1: with a probability above 0.5   */
    int64_t n_correct;            /* correct predictions, 1 or 0                    */
    double accuracy;              /* n_correct / n_samples                          */
    double precision, recall, f1; /* of the 1s                                      */
    double auc;                   /* area under the ROC curve                       */
} tutti_label_result;

/* An output of a model file with several, over all samples and elements; NAN if there are none. */
typedef struct tutti_output_result {
    const char *name;  /* that of the model's file, or "output_1" with its number */
    tutti_shape shape; /* of one sample */
    double mean, std, least, most;
} tutti_output_result;

/* Filled by tutti_eval, emptied by tutti_eval_result_free. */
typedef struct tutti_eval_result {
    char checkpoint[1024]; /* folder of the checkpoint */
    int64_t step;          /* number of updates before the checkpoint */
    char data[512];        /* which samples were evaluated, as text */
    int64_t n_samples;     /* evaluated                                                   */
    int64_t n_targets;     /* labels of these samples; a text has one per token */
    double loss, accuracy; /* mean over targets, as in training; perplexity: exp(loss)    */
    bool is_regression; /* rmse, mae and r2 are set instead of accuracy, in the unit of the target;
                           with several targets they are means over the targets */
    double rmse, mae, r2;        /* r2 is NAN if all values of a target are equal */
    int64_t n_values;            /* number of regression targets */
    tutti_value_result *values;  /* [n_values]                                             */
    int64_t n_labels;            /* 0: the targets are not labels of 0 and 1 */
    tutti_label_result *labels;  /* [n_labels] */
    bool is_sequence;            /* targets are tokens: perplexity, but no classes              */
    double perplexity;           /* 0 unless is_sequence                                        */
    double macro_f1;             /* mean over the classes that have samples                     */
    int64_t n_classes;           /* 0: classes are not counted */
    tutti_class_result *classes; /* [n_classes]                                                 */
    int64_t *confusion; /* [n_classes, n_classes]: row: true class, column: predicted class */
    int64_t n_metrics;
    const tutti_metric_result *metrics; /* [n_metrics]: those of train.metrics and model.metrics */
    int64_t n_outputs;                  /* 0: the model has one output */
    tutti_output_result *outputs;       /* [n_outputs] */
    double wall_s;                      /* time of the evaluation */
    char *names;                        /* memory of the names in classes, values and labels */
} tutti_eval_result;

/* Called with one line for each checkpoint that was skipped. */
typedef void (*tutti_warn_fn)(void *user, const char *text);

TUTTI_EXTERN_C_BEGIN

/* Evaluates the test split.  warn may be NULL.  Returns TUTTI_E_CONFIG (no run there, bad job),
 * TUTTI_E_CHECKPOINT (none, or of another model), TUTTI_E_DATA and the like. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_eval(tutti_job *job, const char *run_dir,
                                                  tutti_warn_fn warn, void *user,
                                                  tutti_eval_result *result);

/* Prints the result as a table, or with json as one JSON object on one line.  Free it with free();
 * NULL when out of memory. */
TUTTI_API char *tutti_eval_print(const tutti_eval_result *result, bool json);

TUTTI_API void tutti_eval_result_free(tutti_eval_result *result);

/* Writes RUN/report.html: curves, times and memory from metrics.jsonl; for images the mistakes of
 * the newest checkpoint and for language models generated texts, if data and checkpoint exist.
 * tutti_train calls it at the end of a run.  TUTTI_E_CONFIG if there is no run. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_report(tutti_job *job, const char *run_dir);

/* An output of the model for one sample. */
typedef struct tutti_output_value {
    const char *name;  /* that of the model's file, or "output_1" with its number */
    tutti_shape shape; /* of one sample; the whole shape of a value that samples share */
    const float *data; /* row-major */
} tutti_output_value;

/* The prediction for one sample, the reason why there is none, or a warning about a file. */
typedef struct tutti_prediction {
    const char *file;
    int64_t index, n_in_file; /* number of this sample (or window of a text) in the file, and how
                                 many the file has; n_in_file is 0 if error or notice is about the
                                 whole file */
    const char *error;  /* NULL, or why there is no prediction: the file cannot be read, or the
                           output is not finite.  Then no field below is set */
    const char *notice; /* NULL, or a warning about the file, such as missing cells that are filled
                           in or unknown categories, or about a damaged checkpoint that is skipped
                           (then file is the run folder).  Then no other field but file is set; the
                           predictions follow in calls of their own */
    bool is_value;      /* regression: n_values values, each in the unit of its target */
    int64_t n_values;
    const double *values;
    const char *const *names; /* names of the targets' or labels' columns; NULL: none */
    bool is_labels; /* labels of 0 and 1 (train.loss=bce): probabilities has the probability of a 1
                       for each of n_outputs labels */
    bool is_text;   /* language model: top has the likeliest next tokens */
    int64_t n_tokens;        /* text: tokens of the window whose next token is known */
    double loss, perplexity; /* mean loss over these tokens, and exp(loss); 0 if there are none */
    int n_top;               /* classes or tokens in top, at most TUTTI_PREDICT_TOP           */
    struct {
        int64_t label;
        const char *name; /* name of the class or text of the token; NULL: none */
        double probability;
    } top[TUTTI_PREDICT_TOP]; /* most likely first */
    /* The model's output for the sample: logits of the classes, or of the token after the last one;
     * standardized values of a regression.  Borrowed like the rest. */
    int64_t n_outputs;
    const float *outputs;
    const double *probabilities; /* [n_outputs] of classes or labels; NULL: values */
    /* Segmentation: the class of each pixel of the image, as masks for training have it; NULL:
     * none. */
    const uint16_t *mask; /* [mask_height, mask_width] */
    int64_t mask_height, mask_width;
    /* All outputs of a model file with several, except its loss and its metrics, and those that
     * need an array which the samples lack. */
    int64_t n_named;
    const tutti_output_value *named; /* [n_named] */
} tutti_prediction;

/* Called for each sample in order; the prediction is borrowed for the call.  Returns 0; any other
 * value ends the call, which returns TUTTI_E_INTERRUPTED. */
typedef int (*tutti_predict_fn)(void *user, const tutti_prediction *prediction);

/* Predicts every sample of the files; a folder stands for all files below it that the model can
 * read, sorted by name, and "-" for standard input (tables and text), which is read to its end.
 * Image models read JPEG, PNG and IDX (u8, [N,H,W]), plain or gzipped.  Array models read .npy, and
 * .npz with x, of the model's shape and dtype: rows or one sample.  Table
 * models read CSV files and match columns by name.  Token models read text (.txt) and token files
 * (.bin) in windows of the model's context.  Samples are prepared as the run folder says; the
 * training data is not read.  For a file that cannot be read, fn receives the error, the remaining
 * files are processed, and the call returns TUTTI_E_DATA. TUTTI_E_UNSUPPORTED for any other model.
 */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_predict(tutti_job *job, const char *run_dir,
                                                     const char *const *files, int n_files,
                                                     tutti_predict_fn fn, void *user);

/* Predicts samples in the memory of the program: their field "x" as the data set stores a sample
 * (pixels u8, tokens i32, f32), or the fields that the output depends on; other fields are not
 * read.  In the predictions file is "samples", and index counts from 0. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_predict_samples(tutti_job *job, const char *run_dir,
                                                             const tutti_samples *samples,
                                                             tutti_predict_fn fn, void *user);

/* Prints the prediction as one JSON object on one line: file, class, probability, top5; for text:
 * tokens, loss, perplexity, next; for a file that cannot be read: error.  Free it with free(). */
TUTTI_API char *tutti_prediction_print(const tutti_prediction *prediction);

/* Writes the mask of a prediction as a grey PNG.  TUTTI_E_INVALID if it has none, TUTTI_E_IO if the
 * file exists or cannot be written. */
TUTTI_API TUTTI_NODISCARD tutti_status
tutti_prediction_save_mask(const tutti_prediction *prediction, const char *path);

/* Describes the text to generate.  Zero is the default of every field except prompt. */
typedef struct tutti_generate_desc {
    const char *prompt; /* UTF-8; "": the start of a text */
    int64_t max_tokens; /* 0: 200                                                        */
    double temperature; /* divides the logits; 0: greedy */
    int64_t top_k;      /* sample from the k most likely tokens; 0: all                  */
    double top_p;  /* sample from the most likely tokens with this total probability, at most 1;
                      0: all */
    uint64_t seed; /* the same seed generates the same text                         */
    /* Called with the prompt, then with the bytes of each token, which may be part of a character.
     * Returns 0; any other value ends the call, which returns TUTTI_E_INTERRUPTED. */
    int (*on_text)(void *user, const char *text, size_t n_bytes);
    void *user;
    tutti_warn_fn on_warning; /* NULL, or called with a checkpoint that is damaged and skipped */
} tutti_generate_desc;

/* Generates text with a causal language model, token by token, until max_tokens or the end-of-text
 * token.  Each token attends to at most as many earlier tokens as the model was trained with.
 * TUTTI_E_UNSUPPORTED for other models or data without a tokenizer; TUTTI_E_DATA for a prompt that
 * the tokenizer cannot encode. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_generate(tutti_job *job, const char *run_dir,
                                                      const tutti_generate_desc *desc);

TUTTI_EXTERN_C_END

#endif /* TUTTI_EVAL_H */
