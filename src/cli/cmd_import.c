/* cmd_import.c - `tutti import FILE`: writes a model of another framework as a folder. */
#include <stdio.h>
#include <string.h>

#include "cli/cmd.h"
#include "cli/job_args.h"
#include "cli/words.h"
#include "tutti/models.h"

static const char usage[] =
    "usage: tutti import FILE --out DIR\n"
    "       tutti import --operators\n\n"
    "Writes an exported model as a folder: graph.json, the operators and their arguments, and\n"
    "model.safetensors, the weights under their names.  Training does not need this step:\n"
    "model.file accepts FILE as well.\n\n"
    "  FILE        a model of PyTorch (.pt2) or ONNX (.onnx)\n"
    "  --out DIR   a new or empty folder\n\n"
    "  --operators lists the operators that can be imported.\n\n"
    "`tutti train JOB model.file=DIR` trains it, `tutti inspect DIR` prints its contents.\n\n"
    "Exit code: 0; 1 cannot write; 2 wrong usage, or an operator that is not supported; 4 FILE is\n"
    "missing or damaged.\n";

int tutti_cmd_import(int argc, char **argv) {
    const char *out = parse_option(&argc, argv, "--out");
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--operators") == 0) {
        for (int i = 0; tutti_model_operator_at(i); i++) puts(tutti_model_operator_at(i));
        return 0;
    }
    if (argc != 2 || !out || !*out || argv[1][0] == '-') {
        fputs("tutti import: give FILE and --out DIR; see tutti import --help\n", stderr);
        return 2;
    }
    tutti_status st = tutti_model_import(argv[1], out);
    if (st != TUTTI_OK) return report_failure(st);
    printf("%s: graph.json, model.safetensors\n", out);
    return 0;
}
