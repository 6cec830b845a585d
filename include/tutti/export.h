/* export.h - exports a trained run to files that other programs read. */
#ifndef TUTTI_EXPORT_H
#define TUTTI_EXPORT_H

#include "tutti/eval.h"

typedef enum tutti_export_format {
    TUTTI_EXPORT_SAFETENSORS, /* folder; tensor names of Tutti */
    TUTTI_EXPORT_HF,          /* gpt2, bert, resnet: folder for transformers, with config.json */
    TUTTI_EXPORT_TORCHVISION, /* networks of images: folder; names of torchvision's state dicts */
    TUTTI_EXPORT_ONNX,        /* file: the model from x to logits, with its parameters */
    TUTTI_EXPORT_STATE_DICT,  /* models of model.file: folder; the module's complete state_dict */
    TUTTI_N_EXPORT_FORMATS
} tutti_export_format;

typedef struct tutti_export_desc {
    tutti_export_format format;
    const char *out;        /* a new or an empty folder, or a file */
    int64_t max_file_bytes; /* largest file of tensors in a folder; 0: no limit */
} tutti_export_desc;

typedef struct tutti_export_result {
    int64_t step;      /* number of updates before the checkpoint */
    int64_t n_tensors; /* tensors written */
    int64_t n_bytes;   /* bytes of these tensors */
    int n_files;       /* files of tensors */
} tutti_export_result;

TUTTI_EXTERN_C_BEGIN

/* Finds the format with a name such as "safetensors"; returns false for an unknown name. */
TUTTI_API bool tutti_export_find(const char *name, tutti_export_format *out);

/* Exports the newest valid checkpoint of a run, with the averaged parameters if the job keeps an
 * average.  Returns errors as tutti_eval does, TUTTI_E_UNSUPPORTED for a model that the format does
 * not support, and TUTTI_E_IO if a file cannot be written. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_export(tutti_job *job, const char *run_dir,
                                                    const tutti_export_desc *desc,
                                                    tutti_warn_fn warn, void *user,
                                                    tutti_export_result *result);

TUTTI_EXTERN_C_END

#endif /* TUTTI_EXPORT_H */
