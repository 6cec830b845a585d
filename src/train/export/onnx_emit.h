/* onnx_emit.h - the interface of the rules that convert ops to ONNX nodes. */
#ifndef TTI_TRAIN_ONNX_EMIT_H
#define TTI_TRAIN_ONNX_EMIT_H

#include "ckpt/onnx_file.h"
#include "ir/graph.h"
#include "train/export/export.h"

typedef struct tti_onnx_emit {
    tti_arena arena; /* of names */
    tti_onnx_file file;
    const char **names; /* [n_values]: the name of each value of the graph; NULL: not made yet */
    int n_made;         /* names made */
    int64_t n_tensors;
    int64_t n_rows;     /* of the batch that the graph was built for */
    bool fixed_batch;   /* some node is valid only for that many rows */
    bool has_names;     /* the outputs have the names of the model's file */
    const char *causal; /* the mask of causal attention, [T,T]; NULL: none yet */
    /* Samples are sequences whose length is free: the graph is built for n_t tokens, and twin, the
     * same graph for twin_t tokens, shows which dimensions follow the length. */
    const tutti_graph *twin; /* NULL: the length is fixed */
    int64_t n_t, twin_t, most_t;
    const char *length; /* i64 [1]: of the input */
    bool fixed_length; /* some node is valid only for that length: the file must be written again */
} tti_onnx_emit;

#define TTI_ONNX_F(key, x) ((tti_onnx_attr){.name = (key), .kind = TTI_ONNX_FLOAT, .f = (x)})
#define TTI_ONNX_I(key, x) ((tti_onnx_attr){.name = (key), .kind = TTI_ONNX_INT, .i = (x)})
tti_onnx_attr tti_onnx_ints(const char *key, int n, const int64_t *v);

/* The name of input i of a node. */
const char *tti_onnx_in(const tti_onnx_emit *e, const tti_node *node, int i);

/* Adds a node with one output of a new name, which is returned.  in ends with NULL. */
const char *tti_onnx_op(tti_onnx_emit *e, const char *op, const char *const *in,
                        const tti_onnx_attr *attrs);
#define TTI_ONNX_OP(e, op, attrs, ...) \
    tti_onnx_op((e), (op), (const char *const[]){__VA_ARGS__, NULL}, (attrs))

/* Adds a node with n outputs, whose names go to out. */
void tti_onnx_split(tti_onnx_emit *e, const char *x, int64_t axis, int n, const int64_t *sizes,
                    const char **out);

/* Constants: a number, integers, f32 of a shape. */
const char *tti_onnx_number(tti_onnx_emit *e, double x);
const char *tti_onnx_list(tti_onnx_emit *e, int n, const int64_t *v);
const char *tti_onnx_floats(tti_onnx_emit *e, const tutti_shape *shape, const float *data);

/* A shape, i64 [n], whose dimensions may follow the length: as value of node has it, but its first
 * dimension is first where that is not 0. */
const char *tti_onnx_shape(tti_onnx_emit *e, const tti_node *node, int64_t first);

/* i64 [1]: a number of a node that is at there in the twin: it may follow the length by a
 * difference that is the same for any. */
const char *tti_onnx_place(tti_onnx_emit *e, int64_t here, int64_t there);

/* The node of the twin; the node itself where there is none. */
const tti_node *tti_onnx_twin(const tti_onnx_emit *e, const tti_node *node);

/* x with dimensions dim[n]; 0 keeps one, -1 is computed from the rest. */
const char *tti_onnx_reshape(tti_onnx_emit *e, const char *x, int n, const int64_t *dim);
const char *tti_onnx_transpose(tti_onnx_emit *e, const char *x, int n, const int64_t *perm);

/* A rule: adds the ONNX nodes of a node; *out is the name of its output 0. */
typedef tutti_status (*tti_onnx_rule)(tti_onnx_emit *e, const tti_node *node, const char **out);

/* The rule of an op; NULL if ONNX files cannot have it. */
tti_onnx_rule tti_onnx_find(const char *op);
tutti_status tti_onnx_attention(tti_onnx_emit *e, const tti_node *node, const char **out);
tutti_status tti_onnx_sdpa(tti_onnx_emit *e, const tti_node *node, const char **out);
tutti_status tti_onnx_grouped(tti_onnx_emit *e, const tti_node *node, const char **out);
tutti_status tti_onnx_lstm(tti_onnx_emit *e, const tti_node *node, const char **out);
tutti_status tti_onnx_gru(tti_onnx_emit *e, const tti_node *node, const char **out);

/* TUTTI_E_UNSUPPORTED if numbers of a table are outside the range of f32, which files take. */
TUTTI_NODISCARD tutti_status tti_onnx_check_input(const tti_data_spec *spec);

/* Adds the input of a run in the form in which its data stores samples, and its conversion to the
 * model input, whose name is *out; open: as tti_onnx_add_input. */
void tti_onnx_add_raw_input(tti_onnx_emit *e, const tti_data_spec *spec, const tti_node *node,
                            unsigned open, const char **out);

/* Adds metadata for users of the file: the meaning of the input and the names of the classes. */
void tti_onnx_add_info(tti_onnx_emit *e, const tti_exporting *x);

/* Writes the evaluation graph of a run from x to logits. */
tutti_status tti_export_onnx(const tti_exporting *e);

#endif /* TTI_TRAIN_ONNX_EMIT_H */
