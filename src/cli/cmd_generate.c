/* cmd_generate.c - `tutti generate RUN --prompt TEXT`: continues a text with a language model. */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "cli/cmd.h"
#include "cli/run_args.h"
#include "tutti/eval.h"

static const char usage[] =
    "usage: tutti generate RUN [--prompt TEXT] [options] [key=value ...]\n\nContinues TEXT with "
    "the newest valid checkpoint of the language model in run folder RUN, and\nprints the text as "
    "it is generated.\n\n  --prompt TEXT       text to continue; default: none, the model starts a "
    "new text\n  "
    "--max-tokens N      default 200; generation ends earlier at an end-of-text token\n  "
    "--temperature T     default 1; lower values are more deterministic, 0 is greedy\n  --top-k K  "
    "         sample from the K most likely tokens; default 0: all\n  --top-p P           sample "
    "from the most likely tokens with total probability P; default 1: all,\n"
    "                      0: only the most likely token\n  --seed S            "
    "default 0; the same seed generates the same text\n\nExit code: 0; 2 wrong usage, no run, or "
    "not a language model; 3 data or prompt; 4 no valid\ncheckpoint.\n";

static int print(void *user, const char *text, size_t n_bytes) {
    (void)user;
    fwrite(text, 1, n_bytes, stdout);
    fflush(stdout);
    return 0;
}

static bool in_range(const char *name, double x, double least, double most, bool whole) {
    if (x >= least && x <= most && (!whole || x == floor(x))) return true;
    fprintf(stderr, "tutti generate: %s: expected %s from %g to %g, got %g\n", name,
            whole ? "a whole number" : "a number", least, most, x);
    return false;
}

int tutti_cmd_generate(int argc, char **argv) {
    run_args args;
    const char *prompt = "";
    double max_tokens = 200, temperature = 1, top_k = 0, top_p = 1, seed = 0;
    const run_flag flags[] = {{"--prompt", .text = &prompt},
                              {"--max-tokens", .number = &max_tokens},
                              {"--temperature", .number = &temperature},
                              {"--top-k", .number = &top_k},
                              {"--top-p", .number = &top_p},
                              {"--seed", .number = &seed},
                              {0}};
    int code = run_args_read(argc, argv, usage, flags, &args);
    if (code || !args.job) return code;
    bool good = in_range("--max-tokens", max_tokens, 1, 1e9, true) &&
                in_range("--temperature", temperature, 0, 1e6, false) &&
                in_range("--top-k", top_k, 0, 1e9, true) &&
                in_range("--top-p", top_p, 0, 1, false) &&
                in_range("--seed", seed, 0, 0x1p53, true);
    tutti_generate_desc desc = {.prompt = prompt,
                                .max_tokens = (int64_t)max_tokens,
                                .temperature = temperature,
                                .top_k = (int64_t)top_k,
                                .top_p = top_p > 0 ? top_p : DBL_MIN,
                                .seed = (uint64_t)seed,
                                .on_text = print,
                                .on_warning = print_warning};
    tutti_status st = good ? tutti_generate(args.job, args.run_dir, &desc) : TUTTI_E_INVALID;
    if (good && st == TUTTI_OK) putchar('\n');
    if (good && st != TUTTI_OK) code = report_failure(st);
    run_args_free(&args);
    return good ? code : 2;
}
