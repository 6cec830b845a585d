/* data.h - data sets: numbered samples, each a tensor x and its labels y, or several named fields.
 *
 * A data set is opened by the name of its format; `tutti formats` lists them.  A tokenizer converts
 * text to tokens and back.
 *
 * Samples: x is the decoded and normalized input of a model: f32 [C,H,W] for images, with
 *          (pixel/255 - mean)/std; i32 [T] for text.  y is i32: a class number; for text the token
 *          that follows each token of x, [T]; for masked text the original token where one is
 *          masked, else -1.  Samples with fields: x is bytes, the elements of all fields one after
 *          the other.
 * Threads: an open data set is read-only; any number of threads may read it at once.
 * Errors:  a missing, damaged or hostile file gives TUTTI_E_DATA with its path and with what was
 *          expected. */
#ifndef TUTTI_DATA_H
#define TUTTI_DATA_H

#include "tutti/types.h"

typedef struct tutti_dataset tutti_dataset;
struct tti_data_spec;
typedef struct tutti_tokenizer tutti_tokenizer;

typedef enum tutti_data_split { TUTTI_TRAIN, TUTTI_TEST, TUTTI_N_SPLITS } tutti_data_split;

/* A named part of a sample, of any shape; f32 or i32 where it is an input of a model. */
typedef struct tutti_field {
    const char *name;
    tutti_type type;
} tutti_field;

/* Samples in the memory of the program, as arrays or by a callback.  They are read as arrays of
 * data.format=npy: "x" with the labels or values "y"; other names are fields.  u8 of x is pixels.
 * Dtypes: all but bf16. */
typedef struct tutti_samples {
    int64_t n_samples;         /* at least 1 */
    const tutti_field *fields; /* [n_fields]: name, and type of one sample; copied */
    int32_t n_fields;          /* 1 .. 32 */
    /* [n_fields] of arrays [n_samples, ...], row-major, borrowed as long as the job or the data set
     * exists; the list is copied.  NULL: get makes the samples. */
    const void *const *data;
    /* Writes sample index into fields[i], one memory for each field.  The same index always gives
     * the same sample.  Called by loader threads, several at a time.  0: success; any other number:
     * the sample is bad (TUTTI_E_DATA, or data.on_error=skip).  With data.classes labels are not
     * read when the data set is opened. */
    int (*get)(void *user, int64_t index, void *const *fields);
    void *user;
} tutti_samples;

/* The data set to open.  Zero is the default of every field except format. */
typedef struct tutti_dataset_desc {
    const char *format;     /* "idx", "digits", "text", ...                                */
    const char *dir;        /* folder with the files; text, tokens: also a file or glob */
    tutti_data_split split; /* only files of this split are read */
    int64_t n_samples;      /* use only the first n samples; 0: all (digits: 60000 or 10000) */
    int64_t n_classes;      /* labels must be smaller; 0: the largest label + 1             */
    double mean, std;       /* x = (pixel/255 - mean) / std; std 0 stands for 1             */
    uint64_t seed;          /* digits: selects which digits are drawn */
    double val_fraction;    /* fraction held out for testing, if the files define no test split;
                               0: 0.1, -1: none */
    bool skip_bad;          /* count and mask damaged samples: x zeros, y -1                */
    int64_t max_unpacked;   /* bytes that a compressed file may unpack to; 0: 1 GiB, or
                               32 times the size of the file, whichever is more       */

    /* Images (images, tar, packed, cifar10, cifar100). */
    int64_t max_pixels;  /* pixels of an image in a file; 0: 2^27, 134 million */
    int64_t image_size;  /* S of x [3,S,S]; 0: 224, CIFAR 32                            */
    const char *augment; /* augmentation of the training split: "random_resized_crop, flip" (see
                            docs/job.md); "": none; NULL or "auto": the usual one for the format */
    const char *channel_mean; /* "0.485, 0.456, 0.406"; NULL or "auto": ImageNet's or CIFAR's */
    const char *channel_std;
    const char *ignore_index; /* masks: value of pixels to ignore, or "none"; NULL or
                                 "auto": 255, and "": none, but if masks have only 0 and 255,
                                 255 is class 1 */

    /* Text (text, tokens) and tables (csv). */
    int64_t context;           /* T, tokens per sample; 0: 256                                */
    int64_t stride;            /* tokens from sample to sample; 0: context                    */
    const char *tokenizer;     /* text: "bytes", "chars" or "gpt2"; NULL, "" or "auto": the one in
                                  tokenizer_dir, or chars without it */
    const char *tokenizer_dir; /* file or folder of the tokenizer; NULL or "": none */
    double mask_prob;          /* fraction of tokens to predict: 80 % of them masked, 10 % random,
                                  10 % unchanged; y is -1 elsewhere; 0: y is the next token   */
    int64_t mask_token; /* token that replaces a masked one; -1: one above the tokens of the data */
    const char *label;  /* csv: name or number of the label column, or several separated by commas
                           (values, or labels of 0 and 1); NULL or "": the column label, class,
                           target or y, else the last one */
    const char *columns; /* csv: "id: ignore, zip: category"; NULL or "": detected */
    const char *target;  /* csv, npy: "class"; "value": regression; "labels" (csv): each label
                            column is 0 or 1, and samples have the fields x and y, f32 [columns];
                            "auto": value if a label of a table is not an integer, if there are
                            several label columns, or if the array of labels has floats; NULL:
                            "class" */
    const char *fields; /* npy: the arrays that are fields of a sample, "x, mask, y", or "all"; NULL
                           or "": samples are x and y */
    bool refuse_missing; /* csv: fail on a missing value; false: fill it in */
    /* npy: the samples of each split instead of files in dir.  Without those of TUTTI_TEST the ones
     * of TUTTI_TRAIN are divided as val_fraction says. */
    const tutti_samples *samples[TUTTI_N_SPLITS];

    /* Used inside the library: the specification of the training split (data/data_spec.h); NULL:
     * make it from the files.  no_files: opens no file and has 0 samples.
     */
    const struct tti_data_spec *spec;
    bool no_files;
    bool takes_all; /* with spec: if no file name selects a split, all samples are test samples */
    bool rows_only; /* csv: take all rows of the file dir; rows without a label have y = -1 */
    /* csv with rows_only: these bytes are the file, and dir is its name in messages; NULL: dir is
     * read.  Borrowed for the call that opens the data set. */
    const char *rows;
    size_t n_row_bytes;
} tutti_dataset_desc;

typedef struct tutti_dataset_info {
    int64_t n_samples;
    int64_t n_classes;
    tutti_type x;     /* type of one sample, without a batch axis */
    tutti_type y;     /* type of one sample, i32; regression: (value - mean) / std, times 2^22 */
    bool is_value;    /* regression: y is n_classes values, a number or [n_classes] */
    int64_t n_tokens; /* tokens of x are smaller; 0: n_classes is the limit, or x is not tokens */
    int n_fields;     /* 0: samples are x and y */
    const tutti_field *fields; /* [n_fields], in the order of x; y is then 0 */
    int64_t n_ignored; /* files and folders in data.dir that are not data: hidden files, system
                          files, files of another kind, unused folders */
} tutti_dataset_info;

TUTTI_EXTERN_C_BEGIN

/* Opens a data set.  On success *out is owned by the caller; on failure *out is NULL.  desc is not
 * kept.  Returns TUTTI_E_INVALID (bad desc), TUTTI_E_DATA or TUTTI_E_NOMEM. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_dataset_open(const tutti_dataset_desc *desc,
                                                          tutti_dataset **out);

/* Counts and types.  Borrowed until the data set is destroyed. */
TUTTI_API const tutti_dataset_info *tutti_dataset_get_info(const tutti_dataset *ds);

/* Reads sample index, 0 .. n_samples-1, into caller memory of the types in the info: x has
 * tutti_shape_n_elems(&info->x.shape) elements of info->x.dtype, y likewise. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_dataset_get(const tutti_dataset *ds, int64_t index,
                                                         void *x, int32_t *y);

/* Samples skipped so far under skip_bad, each counted once. */
TUTTI_API int64_t tutti_dataset_n_skipped(const tutti_dataset *ds);

/* Reason i of the first 100 skips, NULL past the last.  Borrowed until the data set is destroyed.
 */
TUTTI_API const char *tutti_dataset_skip_reason(const tutti_dataset *ds, int64_t i);

/* The number of samples of each class, counts[n_classes].  TUTTI_E_UNSUPPORTED where a sample has
 * no class: tokens, and targets that are not one number. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_dataset_count_classes(const tutti_dataset *ds,
                                                                   int64_t *counts);

/* Returns the notices of opening, one per line: values filled in, columns left out, unknown
 * categories; "" if there are none.  Borrowed until the data set is destroyed. */
TUTTI_API const char *tutti_dataset_notices(const tutti_dataset *ds);

/* Describes the columns of a table, one line each: name, kind, range, values missing in the
 * training rows, categories; or the fields of samples: name, type, range.  Freed with free(); NULL
 * where samples have neither. */
TUTTI_API char *tutti_dataset_print_columns(const tutti_dataset *ds);

/* The name of a class, NULL if it has none.  Borrowed until the data set is destroyed. */
TUTTI_API const char *tutti_dataset_class_name(const tutti_dataset *ds, int64_t label);

/* The tokenizer of a set of text, NULL if it has none.  Borrowed until the set is destroyed. */
TUTTI_API const tutti_tokenizer *tutti_dataset_get_tokenizer(const tutti_dataset *ds);

/* Closes the files and frees the memory.  NULL is a no-op.  No thread may be reading. */
TUTTI_API void tutti_dataset_destroy(tutti_dataset *ds);

/* ---- text to numbers ----
 *
 * Tokenizers: "bytes" (256), "chars" (the Unicode characters of a text), "gpt2" (byte pairs, as
 * Hugging Face's tokenizer.json or vocab.json and merges.txt describe them).  An open tokenizer
 * is read-only: any number of threads may use it. */

/* Selects a tokenizer: by dir or by name; chars needs dir or text. */
typedef struct tutti_tokenizer_desc {
    const char *name;    /* NULL, "" or "auto": what dir holds                             */
    const char *dir;     /* a file that tutti_tokenizer_save wrote, a tokenizer.json, or a
                            folder with tokenizer.json or vocab.json and merges.txt          */
    const char *text;    /* chars: its characters become the vocabulary; UTF-8, not kept     */
    size_t n_text_bytes; /* of text                                                          */
} tutti_tokenizer_desc;

/* Opens a tokenizer.  On success *out is owned by the caller, on failure NULL. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_tokenizer_open(const tutti_tokenizer_desc *desc,
                                                            tutti_tokenizer **out);

/* Writes one JSON file that tutti_tokenizer_open reads back to the same tokenizer; for gpt2 it is
 * a tokenizer.json. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_tokenizer_save(const tutti_tokenizer *tokenizer,
                                                            const char *path);

/* "bytes", "chars" or "gpt2". */
TUTTI_API const char *tutti_tokenizer_get_name(const tutti_tokenizer *tokenizer);

/* Tokens are 0 .. size-1. */
TUTTI_API int64_t tutti_tokenizer_get_size(const tutti_tokenizer *tokenizer);

/* The token that ends a text ("<|endoftext|>"), -1 if there is none. */
TUTTI_API int32_t tutti_tokenizer_get_end(const tutti_tokenizer *tokenizer);

/* Encodes n_bytes of text; special tokens in the text are not recognized.  *tokens is freed with
 * free(). TUTTI_E_DATA names the offset of the first byte that has no token. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_tokenizer_encode(const tutti_tokenizer *tokenizer,
                                                              const char *text, size_t n_bytes,
                                                              int32_t **tokens, int64_t *n_tokens);

/* Decodes the tokens into n_bytes of text followed by a NUL. A character that is cut at either end
 * makes the bytes invalid UTF-8.  *text is freed with free().  TUTTI_E_DATA for a token that does
 * not exist. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_tokenizer_decode(const tutti_tokenizer *tokenizer,
                                                              const int32_t *tokens,
                                                              int64_t n_tokens, char **text,
                                                              size_t *n_bytes);

/* Frees the tokenizer.  NULL is a no-op. */
TUTTI_API void tutti_tokenizer_destroy(tutti_tokenizer *tokenizer);

/* ---- packing ---- */

/* Describes the packed files.  Zero is the default of every field except dir. */
typedef struct tutti_pack_desc {
    const char *dir;      /* output folder; created if missing                                */
    int64_t shard_tokens; /* tokens per file; 0: 100 million                                  */
} tutti_pack_desc;

/* Writes both splits of the data set that source describes (its split is ignored) in the form that
 * loads fastest: text as token files of llm.c with tokenizer.json, to be opened as "tokens"; images
 * decoded, to be opened as "packed".  *report has one line per file; free it with free().
 * TUTTI_E_UNSUPPORTED for a format that has no packed form. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_dataset_pack(const tutti_dataset_desc *source,
                                                          const tutti_pack_desc *desc,
                                                          char **report);

TUTTI_EXTERN_C_END

#endif /* TUTTI_DATA_H */
