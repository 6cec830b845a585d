/* program.h - a model in the form of its exporter: nodes with typed arguments, in order of
 * execution, and tensors.
 *
 * A program does not change after it was read, and lies in one arena.  Values are numbered,
 * densely in each block; the specs say which inputs of the main block are parameters, buffers,
 * constants or inputs of the user. */
#ifndef TTI_IMPORT_PROGRAM_H
#define TTI_IMPORT_PROGRAM_H

#include "base/arena.h"
#include "import/program/archive.h"

typedef enum tti_arg_kind {
    TTI_ARG_NONE,
    TTI_ARG_VALUE,   /* value: a tensor, or a number that an earlier node computes */
    TTI_ARG_INT,     /* i */
    TTI_ARG_FLOAT,   /* f */
    TTI_ARG_BOOL,    /* i */
    TTI_ARG_TEXT,    /* text */
    TTI_ARG_DTYPE,   /* i: a tti_elem */
    TTI_ARG_LIST,    /* items [n] */
    TTI_ARG_BLOCK,   /* block */
    TTI_ARG_OPERAND, /* operand: in calls that an operator makes while a graph is built */
    TTI_ARG_OTHER    /* device, layout, memory format: text names the kind */
} tti_arg_kind;

/* Element types of exporters; those of Tutti are fewer. */
typedef enum tti_elem {
    TTI_ELEM_NONE,
    TTI_ELEM_U8,
    TTI_ELEM_I8,
    TTI_ELEM_I16,
    TTI_ELEM_I32,
    TTI_ELEM_I64,
    TTI_ELEM_F16,
    TTI_ELEM_F32,
    TTI_ELEM_F64,
    TTI_ELEM_BF16,
    TTI_ELEM_BOOL,
    TTI_N_ELEMS
} tti_elem;

typedef struct tti_block tti_block;

typedef struct tti_arg {
    tti_arg_kind kind;
    int value;
    int64_t i;
    double f;
    const char *text;
    const struct tti_arg *items;
    int n;
    const tti_block *block;
    const struct tti_operand *operand;
} tti_arg;

typedef struct tti_named_arg {
    const char *name; /* "" for positional ones */
    tti_arg arg;
} tti_named_arg;

/* Name of the argument after a block that holds values of the enclosing block: its last inputs. */
#define TTI_CAPTURED "captured"

typedef struct tti_op_call {
    const char *target; /* "aten.linear.default" */
    const char *module; /* the path of the module that called it, "features.0"; "": the model */
    const char *kind;   /* its class, "torch.nn.modules.conv.Conv2d"; "" */
    const tti_named_arg *args;
    int n_args;
    const int *outs; /* values, -1 for one that is unused */
    int n_outs;
} tti_op_call;

/* The dimensions of a value, as far as the file states them; masks have a bit for each.  Dimensions
 * in neither mask, and all of them if n_dims is 0, are unknown. */
typedef struct tti_known_dims {
    uint8_t n_dims;
    uint8_t of_batch; /* the size is the symbol of the batch */
    uint8_t fixed;    /* the size is a number */
} tti_known_dims;

struct tti_block {
    const int *inputs; /* values */
    int n_inputs;
    const tti_op_call *calls;
    int n_calls;
    const tti_arg *outputs;
    int n_outputs;
    const char *const *names; /* [n_values] */
    int n_values;
    const tti_known_dims *dims; /* [n_values]; NULL: nothing is known */
};

/* A shape whose dimensions may be symbols: dim -1, with its text in symbol. */
typedef struct tti_import_shape {
    int n_dims;
    int64_t dim[TUTTI_MAX_DIMS];
    const char *symbol[TUTTI_MAX_DIMS]; /* "s77"; NULL: dim says it */
} tti_import_shape;

typedef enum tti_spec_kind {
    TTI_SPEC_PARAM,
    TTI_SPEC_BUFFER,
    TTI_SPEC_CONSTANT,
    TTI_SPEC_INPUT,
    TTI_SPEC_NOTHING /* a token, or a constant that is not a tensor: may not be used */
} tti_spec_kind;

/* Input i of the main block. */
typedef struct tti_input_spec {
    tti_spec_kind kind;
    const char *name; /* state_dict name of a parameter or buffer; name of an input */
    bool persistent;  /* of a buffer: in the state_dict */
    bool fixed;       /* of a parameter: without requires_grad */
    tti_elem elem;
    tti_import_shape shape;
    /* Where its elements are, unless it is an input of the user.  bytes: in memory; else in an
     * entry of the archive, or at byte `at` of a file beside the model; entry -1 and no bytes: an
     * empty tensor. */
    const uint8_t *bytes;
    int entry;
    uint64_t at;
    int own; /* distinguishes tensors with equal descriptions in the file */
    int64_t offset, stride[TUTTI_MAX_DIMS]; /* in elements */
} tti_input_spec;

typedef enum tti_result_kind {
    TTI_RESULT_OUTPUT,
    TTI_RESULT_LOSS,
    TTI_RESULT_MUTATION, /* the new value of a buffer */
    TTI_RESULT_OTHER
} tti_result_kind;

/* Output i of the main block. */
typedef struct tti_output_spec {
    tti_result_kind kind;
    const char *name; /* of the buffer of a mutation; of an output, "" if it has none */
} tti_output_spec;

bool tti_is_user_output(const tti_output_spec *spec); /* a result that forward returns */

typedef struct tti_program_file {
    tti_arena arena;
    tti_archive *archive; /* owned; NULL: of a file that is not an archive */
    int *files, n_files;  /* descriptors of the files beside the model, owned */
    void *owned;          /* the model file's bytes, which tensors point into; NULL: borrowed */
    const char *path;
    const char *exporter; /* "PyTorch 2.9.0" */
    const char *note;     /* for the user, before training; NULL: none */
    tti_block main;
    tti_input_spec *inputs;   /* [main.n_inputs]  */
    tti_output_spec *outputs; /* [main.n_outputs] */
    /* Tensors of the state_dict that are not inputs: second names of shared weights, and unused
     * ones. */
    tti_input_spec *extras;
    int n_extras;
} tti_program_file;

#define TTI_MAX_TENSOR_BYTES ((uint64_t)1 << 40)

void tti_program_close(tti_program_file *program); /* NULL is a no-op */

/* The elements of a parameter, buffer or constant as f64, row-major: out [n_elems]. */
tutti_status tti_program_load(const tti_program_file *program, const tti_input_spec *spec,
                              double *out);

/* The same as stored in the file: out [n_elems] of spec->elem. */
tutti_status tti_program_copy(const tti_program_file *program, const tti_input_spec *spec,
                              char *out);

/* As f32: out [n_elems]. */
tutti_status tti_program_load_f32(const tti_program_file *program, const tti_input_spec *spec,
                                  float *out);

/* Stored elements as f32. */
void tti_program_convert(tti_elem elem, const char *bytes, size_t n_elems, float *out);

/* Whether the elements lie one after the other in row-major order. */
bool tti_program_is_dense(const tti_input_spec *spec);

/* n_bytes from byte first of a tensor on, which is in memory or in a file beside the model.  Any
 * number of threads. */
tutti_status tti_program_read_bytes(const tti_program_file *program, const tti_input_spec *spec,
                                    size_t first, size_t n_bytes, void *dst);

/* Whether calls of the target run a block that is one of their arguments. */
bool tti_runs_block(const char *target);

/* Whether both are the same elements of the file. */
bool tti_is_same_tensor(const tti_input_spec *x, const tti_input_spec *y);

int64_t tti_import_n_elems(const tti_import_shape *shape); /* of a shape without symbols */
const char *tti_elem_text(tti_elem elem);
bool tti_elem_is_float(tti_elem elem);
int tti_elem_bytes(tti_elem elem);

#endif /* TTI_IMPORT_PROGRAM_H */
