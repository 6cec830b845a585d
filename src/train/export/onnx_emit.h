/* onnx_emit.h - the interface of the rules that convert ops to ONNX nodes. */
#ifndef TTI_TRAIN_ONNX_EMIT_H
#define TTI_TRAIN_ONNX_EMIT_H

#include "ckpt/onnx_file.h"
#include "ir/graph.h"
#include "train/export/export.h"

typedef struct tti_onnx_emit {
    tti_arena arena; /* memory of names */
    tti_onnx_file file;
    const char **names; /* [n_values]: the name of each value of the graph; NULL: not written yet */
    int n_made;         /* number of names created */
    int64_t n_tensors;
    int64_t n_rows;     /* rows of the batch for which the graph was built */
    bool fixed_batch;   /* some node is valid only for n_rows rows */
    bool has_names;     /* the outputs have the names of the model's file */
    const char *causal; /* the mask of causal attention, [T,T]; NULL: none yet */
    /* For sequences of variable length.  The graph is built for n_t tokens, and twin, the same
     * graph for twin_t tokens, shows which dimensions depend on the length. */
    const tutti_graph *twin; /* NULL: the length is fixed */
    int64_t n_t, twin_t, most_t;
    const char *length; /* i64 [1]: the length of the input */
    bool fixed_length;  /* some node is valid only for n_t tokens: the file must be written again */
} tti_onnx_emit;

#define TTI_ONNX_F(key, x) ((tti_onnx_attr){.name = (key), .kind = TTI_ONNX_FLOAT, .f = (x)})
#define TTI_ONNX_I(key, x) ((tti_onnx_attr){.name = (key), .kind = TTI_ONNX_INT, .i = (x)})
tti_onnx_attr tti_onnx_ints(const char *key, int n, const int64_t *v);

/* The name of input i of a node. */
const char *tti_onnx_in(const tti_onnx_emit *e, const tti_node *node, int i);

/* Adds a node with one output and returns the output's new name. in ends with NULL. */
const char *tti_onnx_op(tti_onnx_emit *e, const char *op, const char *const *in,
                        const tti_onnx_attr *attrs);
#define TTI_ONNX_OP(e, op, attrs, ...) \
    tti_onnx_op((e), (op), (const char *const[]){__VA_ARGS__, NULL}, (attrs))

/* Adds a node with n outputs, whose names go to out. */
void tti_onnx_split(tti_onnx_emit *e, const char *x, int64_t axis, int n, const int64_t *sizes,
                    const char **out);

/* Add constants: a number, integers [n], and f32 data of a shape.  Return their names. */
const char *tti_onnx_number(tti_onnx_emit *e, double x);
const char *tti_onnx_list(tti_onnx_emit *e, int n, const int64_t *v);
const char *tti_onnx_floats(tti_onnx_emit *e, const tutti_shape *shape, const float *data);

/* Adds the shape of a node's output 0 as i64 [n]; dimensions may depend on the length. first
 * replaces the first dimension unless it is 0. */
const char *tti_onnx_shape(tti_onnx_emit *e, const tti_node *node, int64_t first);

/* Adds i64 [1]: a number of a node that is `here` in the graph and `there` in the twin, so it may
 * be the length plus a constant. */
const char *tti_onnx_place(tti_onnx_emit *e, int64_t here, int64_t there);

/* The corresponding node of the twin, or the node itself if there is no twin. */
const tti_node *tti_onnx_twin(const tti_onnx_emit *e, const tti_node *node);

/* Reshape x to dim[n] (0 keeps a dimension, -1 is computed from the rest), and permute its axes. */
const char *tti_onnx_reshape(tti_onnx_emit *e, const char *x, int n, const int64_t *dim);
const char *tti_onnx_transpose(tti_onnx_emit *e, const char *x, int n, const int64_t *perm);

/* A rule: adds the ONNX nodes of a node; *out is the name of its output 0. */
typedef tutti_status (*tti_onnx_rule)(tti_onnx_emit *e, const tti_node *node, const char **out);

/* The rule of an op; NULL: the op cannot be exported. */
tti_onnx_rule tti_onnx_find(const char *op);
tutti_status tti_onnx_attention(tti_onnx_emit *e, const tti_node *node, const char **out);
tutti_status tti_onnx_sdpa(tti_onnx_emit *e, const tti_node *node, const char **out);
tutti_status tti_onnx_grouped(tti_onnx_emit *e, const tti_node *node, const char **out);
tutti_status tti_onnx_lstm(tti_onnx_emit *e, const tti_node *node, const char **out);
tutti_status tti_onnx_gru(tti_onnx_emit *e, const tti_node *node, const char **out);

/* Returns TUTTI_E_UNSUPPORTED if numbers of a table exceed the range of f32, the input type of the
 * file. */
TUTTI_NODISCARD tutti_status tti_onnx_check_input(const tti_data_spec *spec);

/* Adds the input of a run in the form in which its data stores samples, and the conversion to the
 * model input, whose name is *out. open: as in tti_onnx_add_input. */
void tti_onnx_add_raw_input(tti_onnx_emit *e, const tti_data_spec *spec, const tti_node *node,
                            unsigned open, const char **out);

/* Adds metadata for users of the file: the meaning of the input and the names of the classes. */
void tti_onnx_add_info(tti_onnx_emit *e, const tti_exporting *x);

/* Writes the evaluation graph of a run from x to logits. */
tutti_status tti_export_onnx(const tti_exporting *e);

#endif /* TTI_TRAIN_ONNX_EMIT_H */
