/* cmd_data.c - `tutti data info`: what a job's data set holds; `tutti data pack`: the same in the
 * form that loads fastest.  Both take a job, or for text just its file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/job_args.h"

static const char usage[] =
    "usage: tutti data info JOB.yaml [key=value ...]\n"
    "       tutti data pack JOB.yaml [key=value ...] --out DIR [--shard-tokens N]\n"
    "       tutti data info|pack --text FILE [--tokenizer NAME] [--tokenizer-dir DIR] ...\n"
    "\n"
    "info prints how many samples, of what type, both splits have.  pack writes text as files of\n"
    "tokens (llm.c's .bin, with tokenizer.json), pictures decoded and of one size; the job then\n"
    "says data.format=tokens (packed) and data.dir=DIR.\n"
    "\n"
    "  --text FILE          data.format=text data.dir=FILE; a file, a pattern or a folder\n"
    "  --tokenizer NAME     data.tokenizer=NAME: bytes, chars or gpt2\n"
    "  --tokenizer-dir DIR  data.tokenizer_dir=DIR: tokenizer.json, or vocab.json and merges.txt\n"
    "  --out DIR            pack: where to; made if it is not there\n"
    "  --shard-tokens N     pack: tokens per file; default 100000000\n"
    "  -h, --help           this text\n";

enum { MAX_ARGS = 256, TEXT_BYTES = 1024 };

typedef struct options {
    tutti_pack_desc pack;
    int n_args; /* what is left for the job */
    char *arg[MAX_ARGS];
    char text[2 * MAX_ARGS][TEXT_BYTES]; /* assignments made of options */
    int n_text;
} options;

static int fail_usage(const char *what, const char *value) {
    fprintf(stderr, "tutti data: %s: %s (tutti data --help)\n", what, value);
    return 2;
}

/* "--name value" as "key=value" for the job. */
static int assign(options *o, const char *key, const char *value) {
    if (o->n_args + 1 >= MAX_ARGS) return fail_usage("too many arguments", value);
    char *text = o->text[o->n_text++];
    if (snprintf(text, TEXT_BYTES, "%s=%s", key, value) >= TEXT_BYTES)
        return fail_usage("too long", value);
    o->arg[o->n_args++] = text;
    return 0;
}

static int take_option(options *o, const char *name, const char *value) {
    if (strcmp(name, "--out") == 0) {
        o->pack.dir = value;
    } else if (strcmp(name, "--shard-tokens") == 0) {
        char *end;
        o->pack.shard_tokens = strtoll(value, &end, 10);
        if (*end || o->pack.shard_tokens < 1) return fail_usage("not a number of tokens", value);
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
            int code = take_option(o, argv[i], argv[i + 1]);
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
    printf("classes     %lld\n", (long long)info->n_classes);
    if (tokenizer)
        printf("tokenizer   %s, %lld tokens\n", tutti_tokenizer_get_name(tokenizer),
               (long long)tutti_tokenizer_get_size(tokenizer));
}

static int info(tutti_job *job) {
    static const char *const names[] = {"train", "test"};
    for (int split = 0; split < TUTTI_N_SPLITS; split++) {
        tutti_dataset *ds;
        tutti_status st = tutti_job_open_dataset(job, (tutti_data_split)split, &ds);
        if (st != TUTTI_OK) return report_failure(st);
        const tutti_dataset_info *what = tutti_dataset_get_info(ds);
        if (split == 0) print_head(ds, tutti_job_get(job, "data.format"));
        printf("%s\n  samples   %lld\n", names[split], (long long)what->n_samples);
        print_type("x", &what->x);
        print_type("y", &what->y);
        tutti_dataset_destroy(ds);
    }
    return 0;
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
