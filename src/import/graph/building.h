/* building.h - builds a graph from a program: operands, and the functions that operators of the
 * table call. A build runs on one thread.
 *
 * Calls are processed in order. An operand that depends on neither inputs nor parameters is a host
 * tensor: it is computed during the build, in f64, and rounded to its element type after each call.
 * Every other operand is a value of the graph. Failures are sticky: the first one is kept, and
 * later calls do nothing.
 *
 * Integers and booleans that depend on an input are f32 in the graph (exact below 2^24) and are
 * cast to i32 when they are used as indices. */
#ifndef TTI_IMPORT_BUILDING_H
#define TTI_IMPORT_BUILDING_H

#include "import/program/labels.h"
#include "import/program/program.h"
#include "tutti/functional.h"

/* ---- host tensors ---- */

/* State of the memory of a host tensor. */
typedef struct tti_host_use {
    bool shared; /* several tensors share it */
    bool written;
    bool replaced; /* its elements depend on inputs now and are in the graph */
} tti_host_use;

typedef struct tti_host {
    double *data; /* in the arena; shared by views */
    tti_elem elem;
    tutti_shape shape;
    int64_t stride[TUTTI_MAX_DIMS], offset;
    bool of_batch; /* dimension 0 is the batch, or the batch merged with other dimensions */
    int batch_dim; /* > 0: this dimension is the batch, and the elements repeat along it */
    tti_host_use *use;
} tti_host;

typedef enum tti_operand_kind {
    TTI_OPERAND_NONE, /* None, or undefined */
    TTI_OPERAND_HOST,
    TTI_OPERAND_GRAPH,
    TTI_OPERAND_NUMBER,
    TTI_OPERAND_LIST /* list of tensors, which only sequence operators accept */
} tti_operand_kind;

/* The role of an operand whose rows are virtually sorted (order.h). */
typedef enum tti_order_role {
    TTI_ORDER_NONE,
    TTI_ORDER_ROWS,    /* dimension 0 is virtually sorted; value and host have the original order */
    TTI_ORDER_KEYS,    /* the same, for the sort keys themselves */
    TTI_ORDER_INVERSE, /* the position of each row in the sorted order */
    TTI_ORDER_COUNTS,  /* the number of keys that are 0, 1, .. */
    TTI_ORDER_ENDS     /* the running sums of these counts */
} tti_order_role;

/* Describes which elements of another value a view has. */
typedef struct tti_view_part {
    int base; /* number + 1 of the value whose memory the view shares; 0: it is no view */
    int dim;  /* the view has every step-th element of dimension dim, beginning with start .. */
    int64_t start; /* .. and lacks dimension dim if `selected` */
    int64_t step;
    bool selected;
    bool is_whole;    /* it has all elements, in the same order unless .. */
    bool is_permuted; /* .. is_permuted: dimension d is dimension perm[d] of the base */
    int8_t perm[TUTTI_MAX_DIMS];
} tti_view_part;

typedef struct tti_operand {
    tti_operand_kind kind;
    tti_host host;
    tutti_value *value;
    tti_elem elem;     /* element type of value; for a number: I64, F64 or BOOL */
    bool of_input;     /* value depends on the sample, and dimension 0 is the batch */
    int64_t rows;      /* > 0: value is [1,..] and represents this number of equal rows */
    bool folded;       /* leading dimensions of shape are merged into one in value */
    tutti_shape shape; /* shape of a folded value */
    double number;
    bool is_batch;     /* the number is the size of the batch */
    tutti_value *live; /* the same number computed from the present rows, if it depends on the size
                          of the batch; or NULL */
    tutti_value *transpose_of; /* the value of which this matrix, or these matrices [E,..], are the
                            transpose; NULL: unknown */
    bool of_shape; /* host: computed from the shape of a value whose dimension 0 is the batch */
    const struct tti_operand *items; /* list: [n_items], in the arena */
    int n_items;
    int group, stamp; /* group: number of the memory that values share in PyTorch; stamp: number of
                         writes to it when this operand was made */
    bool is_softmax;  /* value is the result of a softmax */
    bool is_complex;  /* value has pairs of real numbers in an additional last dimension */
    bool is_noise;    /* uniform random numbers in 0 .. 1, plus noise_shift */
    double noise_shift;
    tti_view_part part;
    int spec;       /* index + 1 of the file's tensor among the inputs; 0: none */
    bool of_buffer; /* the elements are those of a buffer that the model changes (changes.c) */
    int input;      /* index + 1 of the user input that has the same elements; 0: none */
    const struct tti_order *order; /* order.h; NULL: none */
    tti_order_role role;
} tti_operand;

/* ---- state ---- */

typedef struct tti_operator tti_operator;

/* Returns the row of a target in the operator table, or NULL. *in_place: the target writes to its
 * first argument, and the row is that of the operator without `_`. */
typedef const tti_operator *tti_find_operator(const char *target, bool *in_place);

typedef struct tti_reuse tti_reuse;

/* Buffers that the model changes itself (changes.c); all [main.n_inputs]. */
typedef struct tti_changes {
    bool *changed;
    int *last_write;       /* the last call of the main block that changes the buffer */
    tutti_value **sources; /* the buffer in the graph; NULL: none, or it is unused */
    double *momentum;      /* momentum of the batch norm that changes the buffer */
} tti_changes;

typedef struct tti_building {
    const tti_program_file *program;
    tutti_graph *graph;
    tti_arena arena;
    tti_operand *values; /* [block->n_values] of the current block */
    const tti_block *block;
    tti_find_operator *find; /* the operator table */
    const tti_op_call *call; /* the current call, NULL: none */
    const tti_operator *row; /* the row of the current call */
    tutti_value *const *inputs;
    int64_t batch;      /* samples of the shard */
    tutti_value *first; /* an input of the graph, whose rows are the samples */
    tutti_value *row_zeros;
    tutti_value *present; /* i32 [batch], -1: the row is padding; NULL: there is no padding */
    tutti_value *is_present,
        *n_present;      /* present.c: f32 [batch], 1 for present rows, else 0; and their sum */
    bool fixed_batch;    /* the batch size in the file is a number instead of a symbol */
    tti_operand nothing; /* returned as an operand after a failure */
    bool *needed; /* [main.n_calls]: the results depend on the call, or it has a side effect */
    tti_changes changes;
    const char **params; /* [main.n_inputs]: name of the tensor in the graph, or NULL */
    int *writes;         /* [n_groups]: number of writes to each group's memory */
    int n_groups, cap_groups;
    int n_layers;          /* counts layers whose names need a number */
    size_t n_alloc_bytes;  /* bytes that tti_build_alloc has allocated */
    double work, max_work; /* sum of tti_add_work, and its limit */
    bool keeps_repeats;    /* the program may write to host tensors, so each element needs its own
                              memory */
    tti_reuse *reuse;      /* stored results of calls on constants (reuse.c); NULL: none yet */
    int n_unrolled;        /* nodes of all unrolled loop iterations */
    tti_import_labels labels; /* labels of the first loss that recorded them */
    bool any_trains;          /* some batch norm or dropout was exported in training mode */
    tutti_status st;
    const char *why; /* text of the first refusal, because later calls may replace the last error */
} tti_building;

/* A call with its arguments in the order of the row's signature. */
typedef struct tti_call {
    const tti_arg *arg[16];
    int n_args;
    tti_operand *out[64]; /* operands that receive the results; NULL: the result is unused */
    int n_outs;
} tti_call;

typedef void (*tti_apply)(tti_building *b, const tti_call *c);
typedef bool (*tti_apply_ordered)(tti_building *b, const tti_call *c);

/* A row of the operator table: one operator. signature: its arguments in order with their defaults,
 * as in PyTorch's schema: "self other alpha=1". A name with ! is ignored (device, memory format,
 * kernel); *name takes all positional arguments as a list. */
struct tti_operator {
    const char *target; /* "aten.add.Tensor" */
    const char *signature;
    tti_apply build;      /* adds the operator to the graph; NULL: it only supports host tensors */
    tti_apply fold;       /* computes it if all tensors are on the host; NULL: build does both */
    bool view;            /* the results share memory with the first argument */
    double (*f1)(double); /* f1, f2, b1, b2: functions of one or two elements */
    double (*f2)(double, double);
    tutti_value *(*b1)(tutti_graph *g, tutti_value *x);
    tutti_value *(*b2)(tutti_graph *g, tutti_value *x, tutti_value *y);
    const char *as; /* an equivalent operator (tti_build_as), or the formula of tti_build_formula
                       (aten/aten_formula.c) */
    tti_apply_ordered ordered; /* handles arguments that are virtually sorted (order.h); false:
                                  nothing was done, sort the arguments. NULL: always sort */
};

/* Adds the calls of a program to graph g. inputs, present and labels: see tti_import_samples; sets
 * outputs [n] to the results of forward(). TUTTI_E_UNSUPPORTED: the message names the operator and
 * its module. */
tutti_status tti_program_build(const tti_program_file *program, tti_find_operator *find,
                               tutti_graph *g, tutti_value *const *inputs, tutti_value *present,
                               tti_import_labels *labels, tutti_value **outputs);

/* Records the labels of a loss, which are checked before training. False: the labels are not
 * elements of an input, or another loss has recorded its labels, so the graph must check them. */
bool tti_record_labels(tti_building *b, const tti_operand *label, int64_t n_classes,
                       int64_t ignored);

/* ---- blocks inside calls ---- */

/* Runs the calls of a block once, with inputs [block->n_inputs] and results [block->n_outputs];
 * false after a failure. If the block writes to an input, that operand is replaced by the new
 * value. */
bool tti_run_inner(tti_building *b, const tti_block *block, tti_operand *inputs,
                   tti_operand *results);

/* Returns the dimensions of result i of the current call that the file states. */
tti_known_dims tti_known_result(const tti_building *b, int i);

/* Sets output i of a call, which may be unused or absent, to x. */
void tti_set_result(tti_building *b, const tti_op_call *call, int i, const tti_operand *x);

/* Adds n to the number of nodes of all unrolled loop iterations, and returns the sum. */
int tti_count_unrolled(tti_building *b, int n);

/* control.c: runs If, Loop or Scan; false: the call is none of these. */
bool tti_run_control(tti_building *b, const tti_op_call *call);

/* ---- changes.c: models that change their buffers ---- */

/* Finds the buffers that the model changes. */
void tti_find_changes(tti_building *b);
/* Adds buffer i to the graph as a buffer. */
void tti_add_changed(tti_building *b, int i, tti_operand *out);
/* Call after a call of the main block: records the values that a training step stores in the
 * buffers to which that call is the last to write. */
void tti_record_changes(tti_building *b, int call);
/* Call after all calls: refuses changes of other tensors. */
void tti_refuse_changes(tti_building *b);

tutti_shape tti_shape_of_spec(const tti_input_spec *spec);
/* True if an argument, or an item of its list, is a value that is marked in marked [n_values]. */
bool tti_any_marked(const tti_arg *arg, const bool *marked);

/* True if some batch norm or dropout was exported in training mode. */
bool tti_any_trains(const tti_building *b);
/* Batch norms of the main block that update the same buffer, one after the other. */
typedef struct tti_sharing {
    int n_calls, call; /* call: index of the current one */
} tti_sharing;
tti_sharing tti_sharing_of(const tti_building *b, int input); /* input of the main block */

/* ---- reuse.c: equal calls on constants are computed once, in programs that write to no host
 * tensor ---- */

/* Sets the results of a call from an equal earlier call; false: there is none. */
bool tti_reuse_call(tti_building *b, const tti_operator *row, const tti_call *c);
/* Stores the results of a call if it depends only on constants. */
void tti_store_call(tti_building *b, const tti_operator *row, const tti_call *c);
/* A stored fact about a host tensor: a graph value with its elements, or an answer. */
enum {
    TTI_KNOWN_CONSTANT,      /* + dtype */
    TTI_KNOWN_REPEATS = 100, /* + dimension: tti_host_repeats */
    TTI_KNOWN_MASK = 200     /* the kind of a mask (aten_attention.c) */
};
tutti_value *tti_reuse_constant(tti_building *b, const tti_host *x, int form);
void tti_store_constant(tti_building *b, const tti_host *x, int form, tutti_value *value);
bool tti_reuse_answer(tti_building *b, const tti_host *x, int question, int64_t *answer);
void tti_store_answer(tti_building *b, const tti_host *x, int question, int64_t answer);

/* ---- row_call.c ---- */

/* Fills *out with the arguments of a call in the order of the row's signature, with its
 * defaults. */
void tti_fill_args(tti_building *b, const tti_operator *row, const tti_op_call *call,
                   tti_call *out);

/* Runs a row, on the host if it can; false after a failure. */
bool tti_apply_row(tti_building *b, const tti_operator *row, const tti_call *c);

/* Accessors for operators, which do not use the fields of tti_building. */
tutti_graph *tti_graph_of(const tti_building *b);
const tti_operator *tti_row_of(const tti_building *b);
const char *tti_as_of(const tti_building *b); /* member `as` of the current row */
/* Returns the argument with that name in the row's signature; NULL: there is none. */
const tti_arg *tti_arg_called(const tti_operator *row, const tti_call *c, const char *name,
                              int n_name);
/* Returns the row of a target; NULL: it has none. */
const tti_operator *tti_row_for(const tti_building *b, const char *target, bool *in_place);
const tti_program_file *tti_program_of(const tti_building *b);
tti_changes *tti_changes_of(tti_building *b);
/* The stored results of calls on constants; NULL: host tensors may be written to. */
tti_reuse **tti_reuse_of(tti_building *b);
void tti_name_tensor(tti_building *b, int i);    /* input i of main is in the graph */
void tti_clear_call(tti_building *b);            /* later refusals name no call */
int64_t tti_batch_rows(const tti_building *b);   /* samples of the shard */
bool tti_has_fixed_batch(const tti_building *b); /* the batch size in the file is a number */

/* Runs the row of another operator, with positional arguments args [n_args] and defaults for the
 * rest. outs [n_outs]: NULL for unused results. */
void tti_call_row(tti_building *b, const char *target, const tti_arg *args, int n_args,
                  tti_operand *const *outs, int n_outs);
void tti_build_as(tti_building *b, const tti_call *c); /* the operator named by `as` */
tti_arg tti_operand_arg(const tti_operand *x);         /* borrowed; NULL: None */
tti_arg tti_int_arg(int64_t i);
tti_arg tti_bool_arg(bool i);
tti_arg tti_float_arg(double f);
tti_arg tti_text_arg(const char *text); /* borrowed */
tti_arg tti_ints_arg(tti_building *b, const int64_t *list, int n);

/* ---- failures ---- */

/* Records TUTTI_E_UNSUPPORTED: "FILE: OPERATOR of 'MODULE': text". */
void tti_refuse(tti_building *b, const char *format, ...)
    __attribute__((format(printf, 2, 3), cold));
void tti_no_memory(tti_building *b);
/* Allocates n_bytes in the arena, zeroed; NULL: out of memory, which is recorded. */
void *tti_build_alloc(tti_building *b, size_t n_bytes);
/* Counts n operations on constants. False: the file requests more than a model of its size needs,
 * which is recorded as the failure. */
bool tti_add_work(tti_building *b, double n);
bool tti_good(const tti_building *b);
/* Records the graph's error, if it has one, with the name of the current call. */
void tti_check_graph(tti_building *b);

/* ---- arguments ---- */

const tti_arg *tti_arg_at(const tti_call *c, int k); /* kind NONE if omitted */
bool tti_has(const tti_call *c, int k);              /* argument k is given and not None */
tti_operand *tti_operand_at(tti_building *b, const tti_call *c, int k); /* argument k, a tensor */
tti_operand *tti_operand_of(tti_building *b, const tti_arg *arg);
/* Returns the operand that an argument names; NULL for any other kind of argument. */
const tti_operand *tti_operand_named(const tti_building *b, const tti_arg *arg);
int64_t tti_int_at(tti_building *b, const tti_call *c, int k);
double tti_number_at(tti_building *b, const tti_call *c, int k);
bool tti_bool_at(tti_building *b, const tti_call *c, int k);
const char *tti_text_at(tti_building *b, const tti_call *c, int k);
/* Reads a list of at most TUTTI_MAX_DIMS numbers, or one number; returns its length. */
int tti_ints_at(tti_building *b, const tti_call *c, int k, int64_t out[TUTTI_MAX_DIMS]);
/* Reads a pair of numbers; one number is used for both. */
void tti_pair_at(tti_building *b, const tti_call *c, int k, int64_t out[2]);
/* Reads a list of numbers of any length, or a host tensor of numbers: [*n] in the arena, NULL after
 * a failure. Magnitudes above 2^53, as in ends of slices, become 2^53. */
const int64_t *tti_list_at(tti_building *b, const tti_call *c, int k, int *n);
/* Reads a dimension of n_dims; a negative one counts from the end. Returns 0 after a failure. */
int tti_dim_at(tti_building *b, const tti_call *c, int k, int n_dims);
int tti_wrap_dim(tti_building *b, int64_t dim, int n_dims);
/* True if item i of list argument k is the size of the batch. */
bool tti_is_batch_item(tti_building *b, const tti_call *c, int k, int i);

/* ---- operands ---- */

tutti_shape tti_shape_of(const tti_operand *x);
tti_elem tti_elem_of(const tti_operand *x);
bool tti_of_batch(const tti_operand *x); /* dimension 0 is the batch */
tti_elem tti_float_elem(
    tti_elem elem); /* result type of a function that converts integers to floats */
bool tti_on_host(const tti_operand *x);
/* Returns a graph value with the shape of x. Host tensors become constants. */
tutti_value *tti_value_of(tti_building *b, const tti_operand *x);
/* The same, with dimension 0 repeated to the batch. */
tutti_value *tti_batch_value(tti_building *b, const tti_operand *x);
/* The same, but dimensions with equal elements may be 1, for operators that broadcast. */
tutti_value *tti_compact_value(tti_building *b, const tti_operand *x);
/* Converts an integer or a boolean to f32; converts an index to i32. */
tutti_value *tti_as_float(tti_building *b, tutti_value *x);
tutti_value *tti_as_index(tti_building *b, const tti_operand *x);

/* Set the result of an operator. */
void tti_set_host(tti_operand *out, const tti_host *host);
void tti_set_value(tti_building *b, tti_operand *out, tutti_value *value, tti_elem elem,
                   bool of_input);
void tti_set_number(tti_operand *out, double x, tti_elem elem, bool is_batch);
void tti_set(tti_operand *out, const tti_operand *x); /* the result is x itself */

/* Returns a name for a layer that needs one: the name of the current module, with a number. */
const char *tti_layer_name_of(tti_building *b);

/* Row_wise functions are for operators on the last dimension only, for which a folded x need not be
 * unfolded: value of x, and result. */
void tti_set_row_wise(tti_building *b, tti_operand *out, tutti_value *value, const tti_operand *x);
tutti_value *tti_row_wise_value(tti_building *b, const tti_operand *x);

/* Sets the value that replaces the number if rows are padding: it counts only present rows. */
void tti_set_live(tti_building *b, tti_operand *out, tutti_value *live);

/* ---- present.c: rows that are padding. dims: bit mask of dimensions; those without samples are
 * ignored ---- */

bool tti_has_padding(const tti_building *b); /* rows may be padding */
tutti_batch tti_batch_of(tti_building *b, const tutti_value *x);
unsigned tti_sample_dims(tti_building *b, const tutti_value *x, unsigned dims);
/* Returns x with zeros for padding along dims. at: position of the samples in x. */
tutti_value *tti_present_in(tti_building *b, tutti_value *x, unsigned dims);
tutti_value *tti_present_at(tti_building *b, tutti_value *x, const tutti_batch *at, unsigned dims);
/* tutti_put_along of the present rows. */
tutti_value *tti_put_present(tti_building *b, tutti_value *x, tutti_value *places, int dim,
                             int64_t n);
/* The number of present rows (f32, at least 1), and of the elements of x along dims that belong to
 * present rows. */
tutti_value *tti_n_present(tti_building *b);
tutti_value *tti_n_present_in(tti_building *b, const tutti_value *x, unsigned dims);
/* Divides a sum over dims of x by the number of present elements. */
tutti_value *tti_per_present(tti_building *b, tutti_value *sum, const tutti_value *x,
                             unsigned dims);
/* Returns x with low (-INFINITY, or a number below all others) for padding along dims. */
tutti_value *tti_fill_padding(tti_building *b, tutti_value *x, unsigned dims, double low);

/* Repeats x [1,..] for all samples of the batch; the second function repeats x [..,1,..] along
 * dim. */
tutti_value *tti_repeat_rows(tti_building *b, tutti_value *x);
tutti_value *tti_repeat_along(tti_building *b, tutti_value *x, int dim);
/* Returns x; a host tensor that repeats for the samples becomes a graph value with a row for each
 * sample. */
tti_operand tti_repeat_over_batch(tti_building *b, const tti_operand *x);

/* ---- host_tensor.c ---- */

/* Number of elements; position in data, and value, of element `flat` in row-major order. */
int64_t tti_host_n(const tti_host *x);
int64_t tti_host_offset(const tti_host *x, int64_t flat);
double tti_host_at(const tti_host *x, int64_t flat);
/* Iterates over the elements, much faster than tti_host_at. */
typedef struct tti_host_walk {
    const double *data;
    int64_t place, stride[TUTTI_MAX_DIMS], dim[TUTTI_MAX_DIMS], index[TUTTI_MAX_DIMS];
    int n_dims;
} tti_host_walk;
tti_host_walk tti_host_begin(const tti_host *x);
int64_t tti_host_next_offset(tti_host_walk *w);
double tti_host_next(tti_host_walk *w);
/* Copies the next n elements, which is faster still. Callers usually take TTI_HOST_GROUP at a
 * time. */
enum { TTI_HOST_GROUP = 256 };
void tti_host_copy_next(tti_host_walk *w, double *to, int64_t n); /* to [n] */
/* Creates a tensor of zeros; false: it is too large, which is recorded as the failure. */
bool tti_host_new(tti_building *b, tti_elem elem, const tutti_shape *shape, tti_host *out);
/* Creates a tensor for an element-wise function of parts, which have its shape. *out is the memory
 * to fill and *whole the result. If the program never writes to host tensors, a dimension along
 * which all parts repeat has one element in *out, and the parts get the shape of *out. */
bool tti_host_new_like(tti_building *b, tti_elem elem, tti_host *const *parts, int n_parts,
                       tti_host *out, tti_host *whole);
/* Copies the elements in row-major order. */
bool tti_host_copy(tti_building *b, const tti_host *x, tti_host *out);
double tti_round(tti_elem elem, double x); /* the nearest number of type elem */
void tti_round_all(tti_elem elem, double *x, int64_t n);
int64_t tti_to_int(double x); /* truncated, with a magnitude of at most 2^53; 0 for NaN */
/* Broadcasts x to shape, as a view. */
bool tti_host_expand(tti_building *b, const tti_host *x, const tutti_shape *shape, tti_host *out);
/* Computes the strides of a view of x with shape `to`, which has as many elements. False: no such
 * view exists, and PyTorch copies too. Adjacent contiguous dimensions of x form a run, which
 * dimensions of `to` divide. */
bool tti_host_view_strides(const tti_host *x, const tutti_shape *to,
                           int64_t stride[TUTTI_MAX_DIMS]);
/* Broadcasts shapes by numpy's rule; false: they do not match, which is recorded as the failure. */
bool tti_host_broadcast(tti_building *b, const tutti_shape *x, const tutti_shape *y,
                        tutti_shape *out);
/* The element type of a result by PyTorch's type promotion. */
tti_elem tti_promote(const tti_operand *x, const tti_operand *y);
bool tti_host_uniform(const tti_host *x, double *value);
/* True if dimension d has at least two elements and all elements along it are equal. */
bool tti_host_repeats(const tti_host *x, int d);

#endif /* TTI_IMPORT_BUILDING_H */
