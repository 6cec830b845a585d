/* option.h - one table of options defines file, command line, help, JSON schema and reference.
 *
 * A row describes a key: type, place in a config struct, default, range, words, help.  A
 * tti_options binds a table to such a struct, reads YAML and `key=value` assignments, later ones
 * win, and records for each key where its value comes from.  Problems are collected, with place,
 * key and the nearest name, and tti_options_check reports them all at once.
 *
 * Values are parsed by the row's type and not by YAML's guesses: 1e-4 is a number for a numeric
 * key, `no` is a name for a text key. `null` restores the default.  Numbers do not depend on the
 * locale.
 *
 * Threads: one tti_options is used by one thread at a time; tables are constant. */
#ifndef TTI_BASE_OPTION_H
#define TTI_BASE_OPTION_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/problem.h"
#include "base/str.h"

enum { TTI_TEXT_MAX = 512, TTI_LIST_MAX = 16 };

#define TTI_NO_LIMIT HUGE_VAL

typedef struct tti_int_list {
    int n;
    int64_t v[TTI_LIST_MAX];
} tti_int_list;

typedef struct tti_text_list {
    int n;
    char v[TTI_LIST_MAX][TTI_TEXT_MAX];
} tti_text_list;

enum { TTI_MAX_WORDS = 8 }; /* that stand for numbers of one option */

typedef enum tti_option_type {
    TTI_OPTION_INT,       /* int64_t                                          */
    TTI_OPTION_FLOAT,     /* double                                           */
    TTI_OPTION_BOOL,      /* bool: true, false, yes, no, on, off              */
    TTI_OPTION_TEXT,      /* char[TTI_TEXT_MAX]: one line of printable UTF-8  */
    TTI_OPTION_CHOICE,    /* char[TTI_TEXT_MAX]: one of choices               */
    TTI_OPTION_INT_LIST,  /* tti_int_list: [512, 256], or one integer         */
    TTI_OPTION_TEXT_LIST, /* tti_text_list: ["fc1.*", conv1], or one text     */
    TTI_OPTION_SIZE,      /* int64_t bytes: 4096, 64MiB, 1.5GB                */
    TTI_N_OPTION_TYPES
} tti_option_type;

typedef struct tti_option {
    const char *key; /* "optimizer.lr": group, dot, name */
    tti_option_type type;
    size_t offset;     /* of the field in the config struct */
    const char *value; /* the default, written as in an assignment */
    double min, max;   /* numbers and elements of lists; TEXT, TEXT_LIST: min is the fewest bytes */
    const char *word;  /* INT, SIZE, FLOAT: words for -1, -2, ..., such as "auto|none"; or NULL */
    const char *choices;    /* CHOICE: "sgd|adam|adamw" */
    const char *former;     /* deprecated name of the key, accepted with a warning; or NULL */
    const char *old_choice; /* CHOICE: deprecated value, accepted with a warning; or NULL */
    const char *instead;    /* the assignment that replaces it: "parallel.wire=bf16" */
    const char *also;       /* other names that people try, "learning_rate|step_size": for hints */
    const char *meant; /* CHOICE: words of others for choices, "fp16=f16|half=f16", for hints */
    const char *alias; /* CHOICE: words that are accepted for choices, "l1=mae" */
    bool joins;        /* TEXT: also a list, [a, b] for "a, b", or keys and values, {a: b, c: d} for
                          "a: b, c: d"; names with a comma only in the text itself */
    const char *help;  /* one sentence without a full stop */
    const char *example; /* a value worth showing; or NULL */
} tti_option;

typedef struct tti_option_group {
    const char *name, *help;
} tti_option_group;

/* An answer for words that users try as keys but that no key stands for. */
typedef struct tti_option_answer {
    const char *words; /* "shuffle|drop_last" */
    const char *text;
} tti_option_answer;

typedef struct tti_option_table {
    const tti_option *rows; /* those of a group stand together, in the order of groups */
    size_t n_rows;
    const tti_option_group *groups;
    size_t n_groups;
    size_t n_config_bytes;            /* of the config struct */
    const tti_option_answer *answers; /* NULL: none */
    size_t n_answers;
} tti_option_table;

/* The state of one key besides its value. */
typedef struct tti_option_state {
    tti_place place; /* of the value; source NULL: the default */
    tti_place last;  /* where load number n_load named the key, to find duplicates */
    int n_load;
    const char *name; /* the name used by the assignment: the key or its former name; NULL: none */
    bool warned;      /* that the former name is deprecated */
    bool bad;         /* some value for it was refused */
    bool is_own;      /* the value was set by tti_options_put, not by the user */
    char *text;       /* what tti_options_get gave last; owned */
} tti_option_state;

typedef struct tti_options {
    const tti_option_table *table;
    void *config;            /* borrowed */
    tti_option_state *state; /* one per row; owned */
    tti_problems problems;
    tti_str warnings;  /* one line each: "job.yaml:3:5: a.x is now called a.y" */
    tti_arena sources; /* names of files */
    int n_loads;
} tti_options;

/* Binds table to config and sets every default. config must outlive o.  Fails only without memory.
 */
tutti_status tti_options_init(tti_options *o, const tti_option_table *table, void *config);
void tti_options_fini(tti_options *o);

/* Reads a YAML text.  Fails if it is not YAML; unknown keys, bad values and duplicates are kept for
 * tti_options_check. */
tutti_status tti_options_load(tti_options *o, const char *text, size_t n_bytes, const char *source);

/* The key of the table that a former name, a word or a mistyped key stands for, or a group; NULL:
 * none. */
const char *tti_option_table_find(const tti_option_table *table, const char *typed);

/* Parses "key=value" (also "--key=value").  A value that starts with a quote or a bracket is parsed
 * as YAML; any other is used literally, without surrounding blanks.  Problems are kept. */
void tti_options_assign(tti_options *o, const char *assignment, const char *origin);

/* Sets a value that the program itself worked out; one that does not fit is a bug. */
void tti_options_put(tti_options *o, const char *key, const char *value, const char *origin);

/* Every value and where it is from, for tti_options_restore. */
typedef struct tti_options_kept {
    void *config;
    tti_option_state *state; /* of places alone */
} tti_options_kept;

/* On success tti_options_restore frees *kept.  Fails only without memory. */
tutti_status tti_options_keep(const tti_options *o, tti_options_kept *kept);

/* Undoes later assignments; problems stay.  Frees *kept; a zero one is a no-op. */
void tti_options_restore(tti_options *o, tti_options_kept *kept);

/* Copies values and their origins from `from` to `to`, which has the same table and no values yet.
 */
tutti_status tti_options_copy(tti_options *to, const tti_options *from);

/* Keeps a problem with a key, placed where its value is from. */
void tti_options_problem(tti_options *o, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* TUTTI_OK, or TUTTI_E_CONFIG with every problem, one per line. */
tutti_status tti_options_check(const tti_options *o);

/* The state of a key, or of its former name; NULL for an unknown key. */
const tti_option_state *tti_options_state(const tti_options *o, const char *key);

/* The value as text, also by the former name of a key; NULL for an unknown key or when out of
 * memory.  Borrowed until the next call for the same key. */
const char *tti_options_get(tti_options *o, const char *key);

/* The config as YAML that reads back to the same values; with origins, each line ends in a comment
 * that says where the value is from.  applies(key, user) false: the key is left out, which then
 * must have its default; NULL: all keys are printed. */
void tti_options_print(const tti_options *o, bool origins,
                       bool (*applies)(const char *key, const void *user), const void *user,
                       tti_str *out);

/* JSON schema (draft 2020-12) of the files that a table reads. */
void tti_option_schema(const tti_option_table *table, const char *title, tti_str *out);

/* A Markdown table for each group. */
void tti_option_reference(const tti_option_table *table, tti_str *out);

/* Describes the valid values of a row, for messages and the reference: "an integer from 1 to 1024
 * or auto". */
void tti_option_expect(const tti_option *row, tti_str *out);

#endif /* TTI_BASE_OPTION_H */
