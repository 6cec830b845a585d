/* table_spec.h - what the training rows of a table determine: its columns, and how a row becomes
 * the features of a sample.  A part of the data specification. */
#ifndef TTI_DATA_TABLE_SPEC_H
#define TTI_DATA_TABLE_SPEC_H

#include "base/arena.h"
#include "base/json.h"
#include "base/json_read.h"
#include "tutti/data.h"

enum {
    TTI_MAX_CATEGORIES = 1024,
    TTI_MAX_TABLE_COLUMNS = 1 << 16,
    TTI_MAX_LABEL_COLUMNS = 1024,
    TTI_MAX_TABLE_CLASSES = 1 << 16
};

typedef enum tti_column_kind {
    TTI_COLUMN_IGNORE,   /* no feature                                     */
    TTI_COLUMN_NUMBER,   /* one feature: (value - mean) / std              */
    TTI_COLUMN_BOOLEAN,  /* the same of 0 and 1                            */
    TTI_COLUMN_DATE,     /* the same of seconds since 1970                 */
    TTI_COLUMN_CATEGORY, /* a feature per category: 1 for its own, else 0  */
    TTI_COLUMN_LABEL,    /* no feature                                     */
    TTI_N_COLUMN_KINDS
} tti_column_kind;

typedef struct tti_column {
    const char *name; /* "": the table has no names */
    tti_column_kind kind;
    double mean, std, min, max; /* of the training rows that have a value; std 0: constant, the
                                   feature is always 0.  Of labels of 0 and 1 the mean alone  */
    double fill;                /* stands for a missing value: the median; of categories: the
                                   number of the most frequent one                          */
    int64_t n_missing;          /* training rows without a value                            */
    int n_categories;
    const char **category; /* [n_categories], sorted by bytes */
} tti_column;

/* How labels are compared. */
typedef enum tti_label_kind {
    TTI_LABEL_TEXT,    /* as they are written, sorted by bytes        */
    TTI_LABEL_BOOLEAN, /* in any case, sorted                         */
    TTI_LABEL_NUMBER,  /* by value: 1 and 1.0 are the same class      */
    TTI_LABEL_VALUE,   /* no classes: the target of a regression      */
    TTI_LABEL_YES_NO,  /* 0 or 1: several labels of a sample          */
    TTI_N_LABEL_KINDS
} tti_label_kind;

typedef struct tti_table_spec {
    bool has_names;     /* columns are found by name, else by position */
    bool decimal_comma; /* the training file writes 1,5 */
    int n_columns;
    tti_column *column; /* [n_columns] */
    int n_labels;       /* several: values, or 0 or 1                    */
    int *label;         /* [n_labels] columns, in the order of the targets */
    tti_label_kind labels;
    int64_t n_rows; /* of the training split */
} tti_table_spec;

extern const char *const tti_column_kind_names[TTI_N_COLUMN_KINDS];

/* Features of a column, and of a row. */
int64_t tti_column_n_features(const tti_column *column);
int64_t tti_table_n_features(const tti_table_spec *table);

/* The fields of a sample with labels of 0 and 1: x f32 [features] and y f32 [labels]. */
enum { TTI_TABLE_FIELDS = 2 };
void tti_table_list_fields(const tti_table_spec *table, tutti_field fields[TTI_TABLE_FIELDS]);
bool tti_table_has_fields(const tti_table_spec *table, const tutti_field *fields, int n_fields);

/* "column 'age'" or "column 3", for messages.  Returns out. */
enum { TTI_COLUMN_TEXT = 128 };
const char *tti_column_text(const tti_table_spec *table, int column, char out[TTI_COLUMN_TEXT]);

/* Prints the members of the JSON object "table", and reads that object again; memory comes from
 * arena.  TUTTI_E_CHECKPOINT for anything that tti_table_spec_print does not write. */
void tti_table_spec_print(const tti_table_spec *table, tti_json *json);
tutti_status tti_table_spec_parse(const char *what, const json_t *json, tti_arena *arena,
                                  tti_table_spec **out);

#endif /* TTI_DATA_TABLE_SPEC_H */
