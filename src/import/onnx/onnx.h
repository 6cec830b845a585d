/* onnx.h - declarations shared by the files that read ONNX models. */
#ifndef TTI_IMPORT_ONNX_H
#define TTI_IMPORT_ONNX_H

#include "import/onnx/protobuf.h"
#include "import/program/program.h"

/* Reads an ONNX model. tti_onnx_read reads n_bytes in memory (borrowed), for which messages use
 * path; external data files are in folder (NULL: not allowed). The caller closes *out. Errors:
 * TUTTI_E_CHECKPOINT (missing, damaged, data outside of the model's folder), TUTTI_E_UNSUPPORTED
 * (opset, types). */
tutti_status tti_onnx_open(const char *path, tti_program_file **out);
tutti_status tti_onnx_read(const uint8_t *bytes, size_t n_bytes, const char *path,
                           const char *folder, tti_program_file **out);

enum {
    TTI_ONNX_MIN_OPSET = 13,
    TTI_ONNX_MAX_OPSET = 24,
    TTI_ONNX_MAX_NODES = 1 << 20, /* counted after functions are inlined */
    TTI_ONNX_MAX_DEPTH = 16,      /* nesting of function calls and of graphs inside nodes */
    TTI_ONNX_MAX_TEXT = 1 << 20
};

/* A hash table from names to numbers. Empty if all members are zero. */
typedef struct tti_onnx_names {
    const char **name;
    int *number;
    int n, cap;
    int *slot; /* [n_slots]: index in name + 1, 0: free */
    size_t n_slots;
} tti_onnx_names;

/* False: out of memory.  The name is borrowed. */
bool tti_onnx_names_put(tti_onnx_names *names, const char *name, int number);
int tti_onnx_names_find(const tti_onnx_names *names, const char *name); /* -1: no such name */
void tti_onnx_names_free(tti_onnx_names *names);

/* The exporter's annotations of a tensor. */
enum { TTI_ONNX_PARAM = 1, TTI_ONNX_NOT_STORED = 2 /* a buffer outside of the state_dict */ };

/* A graph that is being read: that of the model, or one inside a node. */
typedef struct tti_onnx_block {
    struct tti_onnx_block *around; /* the enclosing graph; NULL: this is the model's graph */
    tti_onnx_names values;         /* values by name in the current scope */
    bool is_closed; /* the scope is that of a function, which cannot use enclosing values */
    const char **value_names;
    int n_values, cap_values;
    tti_op_call *calls;
    int n_calls, cap_calls;
    /* Values of `around` that are used here, and the inputs that represent them. */
    int *captured, *captured_as;
    int n_captured, cap_captured, cap_captured_as;
} tti_onnx_block;

/* A model that is being read. */
typedef struct tti_onnx {
    tti_program_file *program;
    const char *path, *folder; /* folder of external data; NULL: not allowed */
    tti_arena *arena;          /* the program's */
    int depth, n_expanded;     /* number of enclosing functions; number of inlined calls */

    tti_onnx_block main, *block; /* block: the current graph */
    int n_copies;
    tti_onnx_names inner_tensors; /* names of tensors in graphs inside nodes */

    /* Inputs of the main block: tensors of the file and user inputs. */
    tti_input_spec *specs;
    int *spec_values;
    int n_specs, cap_specs;

    /* Model-local functions: "domain.name" -> index. */
    tti_onnx_names function_names;
    tti_pb *functions;
    int n_functions;

    /* Open files of external data: name -> index in program->files. */
    tti_onnx_names file_names;

    tti_onnx_names marked; /* kinds of tensors, from the exporter's annotations */
    tti_onnx_names dims;   /* known dimensions from value_info, encoded as a number (onnx.c) */
    const char *signature; /* PyTorch's list of parameters and buffers; NULL: none */
    bool is_torch;
} tti_onnx;

/* ---- failures and texts ---- */

tutti_status tti_onnx_damaged(const tti_onnx *m, const char *what, const char *why);
tutti_status tti_onnx_no_memory(const tti_onnx *m);

/* True if bytes are UTF-8 without control characters. */
bool tti_onnx_is_text(const tti_pb *bytes);
/* Copies a text of the file to the arena. TUTTI_E_CHECKPOINT: it is not a text. */
tutti_status tti_onnx_text(const tti_onnx *m, const tti_pb *bytes, const char *what,
                           const char **out);

/* Reads the next field of a message; *more is false at its end. what: name of the message in
 * errors. */
tutti_status tti_onnx_next_field(const tti_onnx *m, tti_pb *message, const char *what,
                                 tti_pb_field *field, bool *more);

/* ---- tensors (onnx_tensor.c) ---- */

/* Converts ONNX's number of an element type; TTI_ELEM_NONE: not supported. */
tti_elem tti_onnx_elem_of(uint64_t code);
tutti_status tti_onnx_elem(const tti_onnx *m, const char *what, uint64_t code, tti_elem *out);

/* Fills a spec, except its kind, from a TensorProto. name: used for a tensor without a name; NULL:
 * the tensor must have a name. */
tutti_status tti_onnx_tensor(tti_onnx *m, tti_pb message, const char *name, tti_input_spec *out);

/* ---- nodes (onnx_graph.c) ---- */

/* Adds a value; adds a tensor or input together with its value. */
tutti_status tti_onnx_add_value(tti_onnx *m, const char *name, int *out);
tutti_status tti_onnx_add_spec(tti_onnx *m, const tti_input_spec *spec, int *value);

/* Defines a name in the current scope. TUTTI_E_CHECKPOINT: it is already defined. */
tutti_status tti_onnx_define(tti_onnx *m, const char *name, int value);

/* Sets *out to the value of a name in the current block, or -1. A value of an enclosing graph
 * becomes an input of the block. */
tutti_status tti_onnx_find_value(tti_onnx *m, const char *name, int *out);

/* Appends the calls of the nodes of a GraphProto. */
tutti_status tti_onnx_nodes(tti_onnx *m, tti_pb graph);

/* Makes room for one more element of the list *(void **)list [n], with elements of `size` bytes.
 * False: out of memory. */
bool tti_onnx_grow(void *list, int n, int *cap, size_t size);

/* ---- graphs inside nodes (onnx_inner.c) ---- */

/* Reads a GraphProto of a node to out, a TTI_ARG_BLOCK. The block's inputs are its own ones, then
 * the values captured [*n_captured] from the current block; all in the arena. */
tutti_status tti_onnx_inner(tti_onnx *m, const char *what, tti_pb graph, tti_arg *out,
                            const int **captured, int *n_captured);

/* Reads the outputs of a GraphProto: *n outputs of block out. */
tutti_status tti_onnx_outputs(tti_onnx *m, const char *what, tti_pb graph, tti_block *out, int *n);

/* Copies a completely read block to out, which already has its outputs. Its inputs are inputs
 * [n_inputs], then the captured values. */
tutti_status tti_onnx_finish_block(const tti_onnx *m, const tti_onnx_block *block,
                                   const int *inputs, int n_inputs, tti_block *out);
void tti_onnx_free_block(tti_onnx_block *block);

/* ---- parameters (onnx_params.c) ---- */

/* Separates tensors that the exporter merged because they had equal elements. */
tutti_status tti_onnx_restore(tti_onnx *m);

/* Decides for each tensor of the file whether it is a parameter, a buffer or a constant. */
tutti_status tti_onnx_classify(tti_onnx *m);

#endif /* TTI_IMPORT_ONNX_H */
