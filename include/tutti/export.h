/* export.h - exports a trained run to files that other programs read. */
#ifndef TUTTI_EXPORT_H
#define TUTTI_EXPORT_H

#include "tutti/eval.h"

typedef enum tutti_export_format {
    TUTTI_EXPORT_SAFETENSORS, /* a folder; tensor names of Tutti                                */
    TUTTI_EXPORT_HF,          /* gpt2, bert, resnet: a folder for transformers, with config.json */
    TUTTI_EXPORT_TORCHVISION, /* resnet, vgg: a folder; tensor names of torchvision's state dicts */
    TUTTI_EXPORT_ONNX,        /* a file: the model from x to logits, with its parameters         */
    TUTTI_EXPORT_STATE_DICT,  /* models of model.file: a folder; all of the module's state_dict  */
    TUTTI_N_EXPORT_FORMATS
} tutti_export_format;

typedef struct tutti_export_desc {
    tutti_export_format format;
    const char *out;        /* a new or an empty folder, or a file */
    int64_t max_file_bytes; /* of tensors in one file of a folder; 0: no limit */
} tutti_export_desc;

typedef struct tutti_export_result {
    int64_t step;      /* updates that the checkpoint has seen */
    int64_t n_tensors; /* written */
    int64_t n_bytes;   /* of tensors */
    int n_files;       /* of tensors */
} tutti_export_result;

TUTTI_EXTERN_C_BEGIN

/* The format of a name such as "safetensors"; false if there is none. */
TUTTI_API bool tutti_export_find(const char *name, tutti_export_format *out);

/* Exports the newest valid checkpoint of a run; the averaged parameters if the job keeps them.
 * Errors as tutti_eval, TUTTI_E_UNSUPPORTED for a model that the format does not support, and
 * TUTTI_E_IO if a file cannot be written. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_export(tutti_job *job, const char *run_dir,
                                                    const tutti_export_desc *desc,
                                                    tutti_warn_fn warn, void *user,
                                                    tutti_export_result *result);

TUTTI_EXTERN_C_END

#endif /* TUTTI_EXPORT_H */
