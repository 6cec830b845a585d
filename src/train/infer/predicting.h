/* predicting.h - the parts of tutti_predict: converts files of any kind to samples, and samples to
 * batches.
 *
 * The code for a kind of file fills a stored sample and calls tti_predict_add.  Results are
 * reported when the batch is full, in the order of the samples. */
#ifndef TTI_TRAIN_PREDICTING_H
#define TTI_TRAIN_PREDICTING_H

#include "base/arena.h"
#include "base/json.h"
#include "data/image/image.h"
#include "train/infer/predictor.h"
#include "tutti/eval.h"

/* A sample that is waiting for its batch to be full. */
typedef struct tti_predict_sample {
    const char *file; /* borrowed until the end of the call */
    int64_t index, n_in_file;
    int64_t n_tokens; /* text: number of tokens in x; the rest is padding */
    int32_t next;     /* the token after them; -1: unknown */
    int64_t h, w;     /* size of an image, pixels */
} tti_predict_sample;

/* A file to predict, or the contents of standard input. */
typedef struct tti_predict_input {
    const char *file;  /* as the caller gave it; borrowed until the end of the call */
    const char *name;  /* for messages */
    const char *bytes; /* contents of standard input; NULL: the file is read */
    size_t n_bytes;
} tti_predict_input;

/* An output of a model with several. */
typedef struct tti_listed_output {
    const tti_output *output;
    bool *needs;   /* as in tti_shard_graph_needs */
    bool is_given; /* the current samples have these fields */
} tti_listed_output;

typedef struct tti_predicting {
    tti_predictor *p;
    const tti_blueprint *b;
    const tutti_dataset *ds; /* without files: types, decode chain, names, tokenizer */
    tutti_predict_fn fn;
    void *user;
    tti_arena arena;           /* memory of file names */
    int64_t n_rows, n_waiting; /* rows of a batch; rows filled */
    int64_t n_files, n_bad;
    bool has_read_stdin;
    int64_t n_not_finite; /* samples whose output is not finite */
    size_t row_bytes;
    void *x;    /* [n_rows, ...] */
    int32_t *y; /* [rows of a shard, targets]: -1, unknown */
    tti_predict_sample *wait;
    void *chain[2];     /* memory of the data set's chain; a stored sample is written to chain[0] */
    double *values;     /* [targets] of a sample of a regression; [n_outputs] */
    int64_t n_outputs;  /* samples with fields: output elements per sample */
    bool gives_classes; /* the outputs are logits of classes */
    bool gives_labels;  /* the outputs are logits of binary labels */
    bool *needs;        /* [n_fields]: true if the output depends on the field */
    double *probabilities;     /* [n_classes] or [n_outputs] */
    const char **names;        /* [targets] or [labels]; NULL: no names */
    int64_t side;              /* S, if the output has the class of each pixel [S,S]; else 0 */
    int64_t per_pixel;         /* outputs per pixel: logits of classes, or one binary logit */
    bool is_planar;            /* the outputs are [per_pixel,S,S], not [S,S,per_pixel] */
    uint16_t *mask;            /* mask of the last sample; grown on demand */
    tti_listed_output *listed; /* [n_listed]: outputs that are reported under their names */
    int n_listed;
    int64_t shard_rows;
    tutti_output_value *named; /* [n_listed], of the current sample */
    tti_workspace ws;
    tti_buffer rgb; /* an image of a file of raw pixels */
    bool is_text;   /* causal language model: samples and targets are tokens */
} tti_predicting;

/* Passes a prediction to the caller's function.  TUTTI_E_INTERRUPTED: the function ends the
 * call. */
tutti_status tti_predict_report(const tti_predicting *r, const tutti_prediction *prediction);

/* True if the name of a file has the ending, such as ".npz", ignoring case. */
bool tti_predict_ends_in(const char *file, const char *ending);

/* Adds the stored sample in r->chain[0] to the batch; runs the batch when it is full. */
tutti_status tti_predict_add(tti_predicting *r, tti_predict_sample sample);

/* Runs the waiting samples of an incomplete batch. */
tutti_status tti_predict_flush(tti_predicting *r);

/* For samples with fields: determines the needed fields and the kind of output. */
tutti_status tti_predict_prepare_fields(tti_predicting *r);

/* Sets the names of the n targets or labels if the columns of the training data have names. */
tutti_status tti_predict_take_names(tti_predicting *r, int64_t n);

/* predict_masks.c: computes the mask of an image from the output. */
void tti_predict_prepare_masks(tti_predicting *r, const char *loss, const tutti_shape *output);
tutti_status tti_predict_take_mask(tti_predicting *r, const tti_predict_sample *sample,
                                   const float *output, tutti_prediction *out);

/* predict_outputs.c: lists the outputs to report (named_outputs.h) for shards of shard_rows rows.
 * Call it after tti_predict_prepare_fields. */
tutti_status tti_predict_prepare_outputs(tti_predicting *r, int64_t shard_rows, bool takes_images);
void tti_predict_free_outputs(tti_predicting *r);

/* True if only outputs after the first one need the field. */
bool tti_predict_is_optional(const tti_predicting *r, int field);

/* Chooses the outputs of the following samples, which have the fields has [n_fields].  Reports each
 * output that must be left out. */
tutti_status tti_predict_choose_outputs(tti_predicting *r, const char *file, const bool *has);

/* Adds the outputs of a row of the shard to a prediction.  Returns the name of an output that is
 * not finite, or NULL. */
const char *tti_predict_take_outputs(tti_predicting *r, const tti_instance *instance, int64_t row,
                                     tutti_prediction *out);

void tti_predict_print_outputs(tti_json *j, const tutti_prediction *prediction);

/* True if encoded images (JPEG, PNG, IDX) can be converted to samples. */
bool tti_predict_takes_images(const tti_predicting *r);

/* Read the samples of a file: images; NumPy arrays; text, or tokens in a .bin; rows of a CSV. */
tutti_status tti_predict_images(tti_predicting *r, const tti_predict_input *input);
tutti_status tti_predict_array(tti_predicting *r, const tti_predict_input *input);
tutti_status tti_predict_fields(tti_predicting *r, const tti_predict_input *input);
tutti_status tti_predict_text(tti_predicting *r, const tti_predict_input *input);
tutti_status tti_predict_table(tti_predicting *r, const tti_predict_input *input);

/* The same for samples in the memory of the program. */
tutti_status tti_predict_array_of(tti_predicting *r, const tutti_samples *samples);
tutti_status tti_predict_fields_of(tti_predicting *r, const tutti_samples *samples);

#endif /* TTI_TRAIN_PREDICTING_H */
