/* data_spec.h - the data specification: everything that the training split determines and a trained
 * model needs in order to read new samples.
 *
 * The training split makes it (its format fills what only the format knows, format_table.c the
 * rest). Every other data set receives it through tutti_dataset_desc and never reads the training
 * files. It is stored beside a run's job as data.json, with tokenizer.json if there is a tokenizer.
 *
 * It is reference-counted: the data sets of both splits and every reader share one.  It does not
 * change after the training split is open, so any thread may read it. */
#ifndef TTI_DATA_DATA_SPEC_H
#define TTI_DATA_DATA_SPEC_H

#include "base/arena.h"
#include "base/str.h"
#include "data/table_spec.h"
#include "data/tokenizer/tokenizer.h"
#include "tutti/data.h"

#define TTI_DATA_SPEC_FILE "data.json"

/* The data formats by the names of data.format; format NAME is tti_format_NAME (format.h). */
#define TTI_FORMATS(X) \
    X(digits)          \
    X(idx)             \
    X(text)            \
    X(tokens)          \
    X(npy)             \
    X(csv)             \
    X(images)          \
    X(masks)           \
    X(cifar10)         \
    X(cifar100)        \
    X(tar)             \
    X(packed)          \
    X(random_images)   \
    X(random_tokens)

enum { TTI_MAX_CLASS_NAMES = 1 << 20 };

/* How an image that is not cropped at random becomes S x S. */
typedef enum tti_fit {
    TTI_FIT_MIDDLE, /* shorter side to 8/7 S, then the middle */
    TTI_FIT_SQUARE, /* shorter side to S, then the middle     */
    TTI_FIT_FILL,   /* all of it                              */
    TTI_N_FITS
} tti_fit;

/* How stored u8 pixels become model inputs: (pixel/255 - mean) / std. */
typedef struct tti_pixel_spec {
    int n_channels; /* 0: samples are not pixels; 1: one mean and std for all elements, whose order
                       stays; 3: RGB, [S,S,3] becomes [3,S,S] */
    double mean[3], std[3];
    tti_fit fit; /* n_channels 3 */
} tti_pixel_spec;

/* The targets of a regression.  The model learns (value - mean) / std of each. */
typedef struct tti_target_spec {
    int64_t n;          /* values of a sample; 0: targets are classes or tokens */
    double *mean, *std; /* [n] */
} tti_target_spec;

typedef struct tti_data_spec {
    tti_arena arena; /* of texts */
    _Atomic int n_owners;
    const char *format;       /* of the training data */
    tutti_type stored, x, y;  /* of one sample, as in dataset.h */
    int64_t n_classes;        /* labels and targets are below it */
    int64_t n_tokens;         /* as tutti_dataset_info has it */
    int n_fields;             /* 0: samples are x and y */
    tutti_field *fields;      /* [n_fields] */
    const char **class_names; /* [n_classes]; NULL: classes have numbers only */
    tti_pixel_spec pixels;
    tti_table_spec *table; /* NULL: samples are not rows of a table */
    tti_target_spec target;
    tutti_tokenizer *tokenizer; /* shared; NULL: none */
} tti_data_spec;

/* An empty one, with one owner; NULL when out of memory. */
tti_data_spec *tti_data_spec_create(void);

/* Adds an owner, which must call tti_data_spec_release; NULL is a no-op.  Any thread. */
const tti_data_spec *tti_data_spec_share(const tti_data_spec *spec);
void tti_data_spec_release(const tti_data_spec *spec);

/* Memory for n targets, all 0. */
tutti_status tti_data_spec_alloc_targets(tti_data_spec *spec, int64_t n);

/* Memory for n fields; the caller copies their names to the arena. */
tutti_status tti_data_spec_alloc_fields(tti_data_spec *spec, int n);

/* The column of target k in a table with names, else NULL. */
const char *tti_data_spec_target_name(const tti_data_spec *spec, int64_t k);

/* Writes dir/data.json, and dir/tokenizer.json if there is a tokenizer; each appears whole. */
tutti_status tti_data_spec_save(const tti_data_spec *spec, const char *dir);

/* Reads them again; *out has one owner.  TUTTI_E_CHECKPOINT for a file that is missing, damaged or
 * not what tti_data_spec_save writes. */
tutti_status tti_data_spec_load(const char *dir, tti_data_spec **out);

/* TUTTI_E_DATA that names the first difference, unless both say the same.  was: of the run. */
tutti_status tti_data_spec_compare(const tti_data_spec *was, const tti_data_spec *now);

/* Prints the text of data.json, and reads it again.  The tokenizer is not in it; *has_tokenizer
 * says whether there is one. what is the begin of error messages. */
tutti_status tti_data_spec_print(const tti_data_spec *spec, tti_str *out);
tutti_status tti_data_spec_parse(const char *what, const char *text, size_t n_bytes,
                                 tti_data_spec **out, bool *has_tokenizer);

/* The same without the checksum, for the object alone: what a fuzzer can get through. */
tutti_status tti_data_spec_parse_body(const char *what, const char *text, size_t n_bytes,
                                      tti_data_spec **out, bool *has_tokenizer);

#endif /* TTI_DATA_DATA_SPEC_H */
