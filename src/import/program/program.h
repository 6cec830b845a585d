/* program.h - a model as its exporter describes it: calls with typed arguments, in order of
 * execution, and tensors.
 *
 * A program is immutable after it was read and is allocated in one arena. Values are numbered from
 * 0 in each block. The specs state which inputs of the main block are parameters, buffers,
 * constants or user inputs. Several threads may read a program at the same time. */
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
    const char *module; /* path of the calling module, "features.0"; "": the model itself */
    const char *kind;   /* class of that module, "torch.nn.modules.conv.Conv2d"; "": unknown */
    const tti_named_arg *args;
    int n_args;
    const int *outs; /* values; -1: the output is unused */
    int n_outs;
} tti_op_call;

/* The dimensions of a value that the file states; the masks have a bit for each dimension.
 * Dimensions in neither mask are unknown; so are all dimensions if n_dims is 0. */
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
    const char *symbol[TUTTI_MAX_DIMS]; /* "s77"; NULL: the size is dim */
} tti_import_shape;

typedef enum tti_spec_kind {
    TTI_SPEC_PARAM,
    TTI_SPEC_BUFFER,
    TTI_SPEC_CONSTANT,
    TTI_SPEC_INPUT,
    TTI_SPEC_NOTHING /* a token, or a constant that is not a tensor; calls must not use it */
} tti_spec_kind;

/* Input i of the main block. */
typedef struct tti_input_spec {
    tti_spec_kind kind;
    const char *name; /* state_dict name of a parameter or buffer; name of an input */
    bool persistent;  /* buffer: it is in the state_dict */
    bool fixed;       /* parameter: requires_grad is False */
    tti_elem elem;
    tti_import_shape shape;
    /* Position of its elements, unless it is a user input. bytes: in memory, borrowed; otherwise in
     * an entry of the archive, or at byte `at` of a file next to the model. entry -1 and bytes
     * NULL: an empty tensor. */
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
    const char *name; /* name of the changed buffer, or of the output; "": none */
} tti_output_spec;

bool tti_is_user_output(const tti_output_spec *spec); /* true for a result that forward() returns */

typedef struct tti_program_file {
    tti_arena arena;
    tti_archive *archive; /* owned; NULL: the file is not an archive */
    int *files, n_files;  /* [n_files], owned: descriptors of the files next to the model */
    void *owned;          /* bytes of the model file; NULL: borrowed */
    const char *path;
    const char *exporter; /* "PyTorch 2.9.0" */
    const char *note;     /* a note to print before training; NULL: none */
    tti_block main;
    tti_input_spec *inputs;   /* [main.n_inputs]  */
    tti_output_spec *outputs; /* [main.n_outputs] */
    /* [n_extras], owned: state_dict tensors that are not inputs, which are unused or second names
     * of shared weights. */
    tti_input_spec *extras;
    int n_extras;
} tti_program_file;

#define TTI_MAX_TENSOR_BYTES ((uint64_t)1 << 40)

void tti_program_close(tti_program_file *program); /* NULL is a no-op */

/* Loads a parameter, buffer or constant as f64, row-major, to out [n_elems]. TUTTI_E_CHECKPOINT:
 * the file is damaged or cannot be read. */
tutti_status tti_program_load(const tti_program_file *program, const tti_input_spec *spec,
                              double *out);

/* Likewise without conversion: out [n_elems] of spec->elem. */
tutti_status tti_program_copy(const tti_program_file *program, const tti_input_spec *spec,
                              char *out);

/* Likewise as f32: out [n_elems]. */
tutti_status tti_program_load_f32(const tti_program_file *program, const tti_input_spec *spec,
                                  float *out);

/* Converts n_elems stored elements to f32. */
void tti_program_convert(tti_elem elem, const char *bytes, size_t n_elems, float *out);

/* True if the elements are contiguous in row-major order. */
bool tti_program_is_dense(const tti_input_spec *spec);

/* Reads n_bytes from byte `first` on of a tensor that is in memory or in a file next to the model.
 * Thread-safe. */
tutti_status tti_program_read_bytes(const tti_program_file *program, const tti_input_spec *spec,
                                    size_t first, size_t n_bytes, void *dst);

/* True if calls of the target run a block that is one of their arguments. */
bool tti_runs_block(const char *target);

/* True if x and y are the same elements of the file. */
bool tti_is_same_tensor(const tti_input_spec *x, const tti_input_spec *y);

int64_t tti_import_n_elems(const tti_import_shape *shape); /* the shape must have no symbols */
const char *tti_elem_text(tti_elem elem);
bool tti_elem_is_float(tti_elem elem);
int tti_elem_bytes(tti_elem elem);

#endif /* TTI_IMPORT_PROGRAM_H */
