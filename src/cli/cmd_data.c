/* cmd_data.c - `tutti data info`: describes a job's data set; `tutti data pack`: writes it in the
 * form that loads fastest.  Both take a job or, for text, just the file. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/job_args.h"

static const char usage[] =
    "usage: tutti data info JOB.yaml [key=value ...]\n       tutti data pack JOB.yaml [key=value "
    "...] --out DIR [--shard-tokens N]\n       tutti data info|pack --text FILE [--tokenizer NAME] "
    "[--tokenizer-dir DIR] ...\n\ninfo prints the type and number of samples in both splits, by "
    "class.  pack writes text as\nfiles of tokens (llm.c's .bin, with tokenizer.json), and images "
    "decoded and resized.  To\ntrain on the result, set data.format=tokens (or packed) and "
    "data.dir=DIR.\n\n  --text FILE          data.format=text data.dir=FILE; a file, a pattern or "
    "a folder\n  --tokenizer NAME     data.tokenizer=NAME: bytes, chars or gpt2\n  --tokenizer-dir "
    "DIR  data.tokenizer_dir=DIR: tokenizer.json, or vocab.json and merges.txt\n  --out DIR        "
    "    pack: output folder; created if missing\n  --shard-tokens N     pack: tokens per file; "
    "default 100000000\n  -h, --help           this text\n";

enum { MAX_ARGS = 256, TEXT_BYTES = 1024 };

typedef struct options {
    tutti_pack_desc pack;
    int n_args; /* remaining arguments, for the job */
    char *arg[MAX_ARGS];
    char text[2 * MAX_ARGS][TEXT_BYTES]; /* assignments made from options */
    int n_text;
} options;

static int fail_usage(const char *what, const char *value) {
    fprintf(stderr, "tutti data: %s: %s (tutti data --help)\n", what, value);
    return 2;
}

/* Turns "--name value" into "key=value" for the job. */
static int assign(options *o, const char *key, const char *value) {
    if (o->n_args + 1 >= MAX_ARGS) return fail_usage("too many arguments", value);
    char *text = o->text[o->n_text++];
    if (snprintf(text, TEXT_BYTES, "%s=%s", key, value) >= TEXT_BYTES)
        return fail_usage("too long", value);
    o->arg[o->n_args++] = text;
    return 0;
}

static int parse_option(options *o, const char *name, const char *value) {
    if (strcmp(name, "--out") == 0) {
        o->pack.dir = value;
    } else if (strcmp(name, "--shard-tokens") == 0) {
        char *end;
        errno = 0;
        o->pack.shard_tokens = strtoll(value, &end, 10);
        if (*end || errno == ERANGE || o->pack.shard_tokens < 1)
            return fail_usage("not a number of tokens", value);
    } else if (strcmp(name, "--text") == 0) {
        int code = assign(o, "data.format", "text");
        return code ? code : assign(o, "data.dir", value);
    } else if (strcmp(name, "--tokenizer") == 0) {
        return assign(o, "data.tokenizer", value);
    } else {
        return assign(o, "data.tokenizer_dir", value);
    }
    return 0;
}

/* Splits the command line into options of this command and arguments of the job. */
static int parse(int argc, char **argv, options *o) {
    static const char *const names[] = {"--out", "--shard-tokens", "--text", "--tokenizer",
                                        "--tokenizer-dir"};
    o->arg[o->n_args++] = argv[0];
    for (int i = 1; i < argc; i++) {
        bool mine = false;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++)
            mine |= strcmp(argv[i], names[k]) == 0;
        if (mine && i + 1 == argc) return fail_usage("no value after", argv[i]);
        if (mine) {
            int code = parse_option(o, argv[i], argv[i + 1]);
            if (code) return code;
            i++;
        } else if (o->n_args + 1 < MAX_ARGS) {
            o->arg[o->n_args++] = argv[i];
        } else {
            return fail_usage("too many arguments", argv[i]);
        }
    }
    return 0;
}

static void print_type(const char *name, const tutti_type *type) {
    printf("  %-9s %s [", name, tutti_dtype_text(type->dtype));
    for (int i = 0; i < type->shape.n_dims; i++)
        printf("%s%lld", i ? "," : "", (long long)type->shape.dim[i]);
    printf("]\n");
}

static void print_head(const tutti_dataset *ds, const char *format) {
    const tutti_dataset_info *info = tutti_dataset_get_info(ds);
    const tutti_tokenizer *tokenizer = tutti_dataset_get_tokenizer(ds);
    printf("format      %s\n", format);
    if (info->is_value && info->n_classes > 1)
        printf("targets     %lld values to predict\n", (long long)info->n_classes);
    else if (info->is_value)
        printf("target      a value to predict\n");
    else if (info->n_fields > 0)
        printf("fields      %d\n", info->n_fields);
    if (!info->is_value && (info->n_fields == 0 || info->n_classes > 0))
        printf("classes     %lld\n", (long long)info->n_classes);
    if (tokenizer)
        printf("tokenizer   %s, %lld tokens\n", tutti_tokenizer_get_name(tokenizer),
               (long long)tutti_tokenizer_get_size(tokenizer));
}

enum { MAX_CLASS_ROWS = 100 };

/* Counts the samples of each class in both splits; NULL: no classes, or targets are values. */
typedef struct class_table {
    int64_t n;
    int64_t *count[TUTTI_N_SPLITS];
} class_table;

static void print_class_row(const tutti_dataset *names, const class_table *table, int64_t i) {
    const char *name = tutti_dataset_class_name(names, i);
    printf("%8lld %12lld %12lld  %s\n", (long long)i, (long long)table->count[TUTTI_TRAIN][i],
           (long long)table->count[TUTTI_TEST][i], name ? name : "");
}

/* Long tables are cut, but every class without training samples is listed. */
static void print_classes(const tutti_dataset *names, const class_table *table) {
    const int64_t *train = table->count[TUTTI_TRAIN];
    if (!train || !table->count[TUTTI_TEST]) return;
    int64_t n_empty = 0;
    printf("%8s %12s %12s  name\n", "class", "train", "test");
    for (int64_t i = 0; i < table->n; i++) {
        n_empty += train[i] == 0;
        if (i < MAX_CLASS_ROWS) print_class_row(names, table, i);
    }
    if (table->n > MAX_CLASS_ROWS)
        printf("     ... and %lld more classes\n", (long long)(table->n - MAX_CLASS_ROWS));
    if (n_empty > 0) printf("warning: %lld classes have no training samples\n", (long long)n_empty);
}

static tutti_status count_split(const tutti_dataset *ds, class_table *table, int split) {
    const tutti_dataset_info *what = tutti_dataset_get_info(ds);
    if (split == 0) table->n = what->n_classes;
    if (what->is_value || what->y.shape.n_dims > 0 || what->n_classes != table->n ||
        what->n_classes < 1 || what->n_fields > 0)
        return TUTTI_OK;
    table->count[split] = calloc((size_t)table->n, sizeof *table->count[split]);
    if (!table->count[split]) return TUTTI_E_NOMEM;
    return tutti_dataset_count_classes(ds, table->count[split]);
}

static void print_split(const char *name, const tutti_dataset_info *what) {
    printf("%s\n  samples   %lld\n", name, (long long)what->n_samples);
    for (int i = 0; i < what->n_fields; i++)
        print_type(what->fields[i].name, &what->fields[i].type);
    if (what->n_fields == 0) print_type("x", &what->x);
    if (what->n_fields == 0) print_type("y", &what->y);
    if (what->n_ignored > 0)
        printf("  ignored   %lld files or folders that are not data of this format\n",
               (long long)what->n_ignored);
}

static void print_notices(const char *text) {
    for (size_t n; *text; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        printf("  notice    %.*s\n", (int)n, text);
    }
}

static void print_columns(const tutti_dataset *ds) {
    char *text = tutti_dataset_print_columns(ds);
    if (text) fputs(text, stdout);
    free(text);
}

static int info(tutti_job *job) {
    static const char *const names[] = {"train", "test"};
    class_table table = {0};
    tutti_dataset *set[TUTTI_N_SPLITS] = {0};
    tutti_status st = TUTTI_OK;
    for (int split = 0; st == TUTTI_OK && split < TUTTI_N_SPLITS; split++) {
        st = tutti_job_open_dataset(job, (tutti_data_split)split, &set[split]);
        if (st != TUTTI_OK) break;
        if (split == 0) print_head(set[split], tutti_job_get(job, "data.format"));
        print_split(names[split], tutti_dataset_get_info(set[split]));
        st = count_split(set[split], &table, split);
        print_notices(tutti_dataset_notices(set[split]));
    }
    if (st == TUTTI_OK) print_columns(set[TUTTI_TRAIN]);
    if (st == TUTTI_OK) print_classes(set[TUTTI_TRAIN], &table);
    int code = st == TUTTI_OK ? 0 : report_failure(st);
    for (int split = 0; split < TUTTI_N_SPLITS; split++) {
        tutti_dataset_destroy(set[split]);
        free(table.count[split]);
    }
    return code;
}

static int pack(tutti_job *job, const tutti_pack_desc *desc) {
    char *report;
    if (!desc->dir) return fail_usage("pack needs", "--out DIR");
    tutti_status st = tutti_job_pack_data(job, desc, &report);
    if (st != TUTTI_OK) return report_failure(st);
    fputs(report, stdout);
    free(report);
    return 0;
}

int tutti_cmd_data(int argc, char **argv) {
    bool packs = argc > 1 && strcmp(argv[1], "pack") == 0;
    bool help = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    if (help || argc < 2 || (!packs && strcmp(argv[1], "info") != 0)) {
        fputs(usage, help ? stdout : stderr);
        return help ? 0 : 2;
    }
    options *o = calloc(1, sizeof *o);
    job_args args = {0};
    if (!o) return report_failure(TUTTI_E_NOMEM);
    int code = parse(argc - 1, argv + 1, o);
    if (code == 0) code = job_args_read(o->n_args, o->arg, &args);
    if (code == 0 && args.help)
        fputs(usage, stdout);
    else if (code == 0)
        code = packs ? pack(args.job, &o->pack) : info(args.job);
    job_args_free(&args);
    free(o);
    return code;
}
