/* cmd_export.c - `tutti export RUN`: writes a trained model in the formats of other programs. */
#include <inttypes.h>
#include <stdio.h>

#include "cli/cmd.h"
#include "cli/run_args.h"
#include "tutti/export.h"

static const char usage[] =
    "usage: tutti export RUN --format FORMAT --out PATH [--max-shard-bytes N] [key=value "
    "...]\n\nExports the newest valid checkpoint of run folder RUN for other programs.\n\n  "
    "--format safetensors   a folder with model.safetensors; tensor names of Tutti\n  --format hf  "
    "          gpt2, bert, resnet: a folder for transformers, with config.json and\n               "
    "          the tokenizer\n  --format torchvision   image models of model.name, except lenet "
    "and unet: a folder with the\n"
    "                         tensor names of torchvision's state dicts\n"
    "  --format "
    "state-dict    a model of model.file: a folder with all "
    "tensors of the PyTorch\n                         module's state_dict, for load_state_dict\n  "
    "--format onnx          a file for onnxruntime and others: from raw samples x [N,...] "
    "(pixels\n                         as bytes, tokens as int64) to logits; the graph normalizes, "
    "the\n                         metadata holds class names; any N and any sequence length\n  "
    "--out PATH             a new or empty folder; for onnx a file\n  --max-shard-bytes N    split "
    "the weights into files of at most N bytes, with an index\n  key=value              "
    "overrides a key of RUN/job.yaml\n\n`tutti train JOB model.init=FOLDER` starts from such a "
    "folder.\n\nExit code: 0; 1 cannot write; 2 wrong usage, no run, or a format that does not "
    "support the\nmodel; 3 data; 4 no valid checkpoint, or another model.\n";

static int refuse(const char *text) {
    fprintf(stderr, "tutti export: %s; see tutti export --help\n", text);
    return 2;
}

static int export_run(const run_args *args, const char *format, tutti_export_desc *desc) {
    tutti_export_result result;
    if (!format || !tutti_export_find(format, &desc->format))
        return refuse("--format must be safetensors, hf, torchvision, onnx or state-dict");
    if (!desc->out || !*desc->out) return refuse("--out PATH is missing");
    tutti_status st = tutti_export(args->job, args->run_dir, desc, print_warning, NULL, &result);
    if (st != TUTTI_OK) return report_failure(st);
    printf("%s: step %" PRId64 ", %" PRId64 " tensors, %" PRId64 " bytes in %d file%s\n", desc->out,
           result.step, result.n_tensors, result.n_bytes, result.n_files,
           result.n_files == 1 ? "" : "s");
    return 0;
}

int tutti_cmd_export(int argc, char **argv) {
    run_args args;
    const char *format = NULL;
    double max_bytes = 0;
    tutti_export_desc desc = {0};
    run_flag flags[] = {{"--format", .text = &format},
                        {"--out", .text = &desc.out},
                        {"--max-shard-bytes", .number = &max_bytes},
                        {0}};
    int code = run_args_read(argc, argv, usage, flags, &args);
    if (code || !args.job) return code;
    desc.max_file_bytes = (int64_t)max_bytes;
    bool good = max_bytes >= 0 && max_bytes <= 1e15;
    code = good ? export_run(&args, format, &desc)
                : refuse("--max-shard-bytes must be from 0 to 1e15");
    run_args_free(&args);
    return code;
}
