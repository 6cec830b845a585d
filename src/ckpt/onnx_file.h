/* onnx_file.h - writes models as ONNX files (onnx.ai): nodes, their constants, inputs, outputs.
 *
 * IR version 8 with operator set 17, which readers since 2022 accept.  A part is encoded when it is
 * added; the file is one protobuf message and therefore below 2 GiB. An allocation failure is kept
 * and returned by save. */
#ifndef TTI_CKPT_ONNX_FILE_H
#define TTI_CKPT_ONNX_FILE_H

#include "base/str.h"
#include "tutti/types.h"

/* Empty when all zero. */
typedef struct tti_onnx_file {
    tti_str nodes, tensors, inputs, outputs; /* encoded fields of the graph */
    tti_str metadata;                        /* of the model */
} tti_onnx_file;

typedef enum tti_onnx_attr_kind {
    TTI_ONNX_FLOAT = 1,
    TTI_ONNX_INT = 2,
    TTI_ONNX_INTS = 7
} tti_onnx_attr_kind;

typedef struct tti_onnx_attr {
    const char *name; /* NULL ends a list */
    tti_onnx_attr_kind kind;
    double f;
    int64_t i;
    int n;
    int64_t v[TUTTI_MAX_DIMS];
} tti_onnx_attr;

typedef struct tti_onnx_node {
    const char *op;
    const char *const *in; /* "": an optional one that is left out */
    int n_in;
    const char *const *out;
    int n_out;
    const tti_onnx_attr *attrs; /* NULL: none */
} tti_onnx_node;

/* ONNX's number of a dtype. */
int64_t tti_onnx_dtype(tutti_dtype dtype);

void tti_onnx_add_node(tti_onnx_file *file, const tti_onnx_node *node);

/* A constant: row-major data of that type, copied. */
void tti_onnx_add_tensor(tti_onnx_file *file, const char *name, const tutti_type *type,
                         const void *data);

/* Bit d of open: dimension d is free, "N" if it is the first, else "T". */
void tti_onnx_add_input(tti_onnx_file *file, const char *name, const tutti_type *type,
                        unsigned open);
void tti_onnx_add_output(tti_onnx_file *file, const char *name, const tutti_type *type,
                         unsigned open);

/* A key and a text that readers show (metadata_props). */
void tti_onnx_add_metadata(tti_onnx_file *file, const char *key, const char *text);

/* Writes the file, durable and whole.  TUTTI_E_UNSUPPORTED from 2 GiB on. */
TUTTI_NODISCARD tutti_status tti_onnx_save(const tti_onnx_file *file, const char *graph_name,
                                           const char *path, int64_t *n_bytes);
void tti_onnx_free(tti_onnx_file *file);

#endif /* TTI_CKPT_ONNX_FILE_H */
