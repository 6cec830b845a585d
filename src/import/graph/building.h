/* building.h - builds a graph from a program: operands, and functions for the operators.
 *
 * Calls are processed in order.  An operand that depends on neither inputs nor parameters is a
 * host tensor and is computed here, in f64, rounded to its element type after each call; every
 * other operand is a value of the graph.  Failures are sticky: the first one is kept, and later
 * calls do nothing.
 *
 * Integers and booleans that depend on an input are f32 in the graph (exact below 2^24) and are
 * cast to i32 where they serve as indices. */
#ifndef TTI_IMPORT_BUILDING_H
#define TTI_IMPORT_BUILDING_H

#include "import/program/labels.h"
#include "import/program/program.h"
#include "tutti/functional.h"

/* ---- host tensors ---- */

/* State of the memory of a host tensor. */
typedef struct tti_host_use {
    bool shared; /* several tensors look at it */
    bool written;
    bool replaced; /* its elements depend on inputs now: they are in the graph */
} tti_host_use;

typedef struct tti_host {
    double *data; /* of the arena; shared by views */
    tti_elem elem;
    tutti_shape shape;
    int64_t stride[TUTTI_MAX_DIMS], offset;
    bool of_batch; /* dimension 0 is the batch, alone or merged with others */
    int batch_dim; /* > 0: this dimension is the batch, and the elements repeat along it */
    tti_host_use *use;
} tti_host;

typedef enum tti_operand_kind {
    TTI_OPERAND_NONE, /* None, or not defined yet */
    TTI_OPERAND_HOST,
    TTI_OPERAND_GRAPH,
    TTI_OPERAND_NUMBER,
    TTI_OPERAND_LIST /* of tensors: only operators on sequences take one */
} tti_operand_kind;

/* How an operand takes part in the order that sorts rows (order.h). */
typedef enum tti_order_role {
    TTI_ORDER_NONE,
    TTI_ORDER_ROWS,    /* dimension 0 is in that order; value and host have it as it was before */
    TTI_ORDER_KEYS,    /* the same of the keys themselves */
    TTI_ORDER_INVERSE, /* the place of each row in that order */
    TTI_ORDER_COUNTS,  /* how many keys are 0, 1, .. */
    TTI_ORDER_ENDS     /* the running sums of those */
} tti_order_role;

/* Which elements of another value a view has. */
typedef struct tti_view_part {
    int base;      /* number + 1 of the value of whose memory this is a view; 0: none */
    int dim;       /* the view has every step-th element of dimension dim from start on .. */
    int64_t start; /* .. which a selection (selected) removed */
    int64_t step;
    bool selected;
    bool is_whole;    /* it has all elements: in their order, or .. */
    bool is_permuted; /* .. dimension d is dimension perm[d] of the base */
    int8_t perm[TUTTI_MAX_DIMS];
} tti_view_part;

typedef struct tti_operand {
    tti_operand_kind kind;
    tti_host host;
    tutti_value *value;
    tti_elem elem;     /* of value; of a number: I64, F64 or BOOL */
    bool of_input;     /* value differs from sample to sample: dimension 0 is the batch's */
    int64_t rows;      /* > 0: value is [1,..] and stands for so many equal rows */
    bool folded;       /* leading dimensions of shape are one in value: see fold_lead */
    tutti_shape shape; /* of a folded value */
    double number;
    bool is_batch;     /* number: the size of the batch */
    tutti_value *live; /* number that follows from that: computed from the present rows; or NULL */
    tutti_value
        *turned;   /* of a matrix, or matrices [E,..]: the value of which this is the transpose */
    bool of_shape; /* host: computed from the shape of a value whose dimension 0 is the batch */
    const struct tti_operand *items; /* list: [n_items], of the arena */
    int n_items;
    int group, stamp; /* values that share memory in PyTorch, and writes to it when this was made */
    bool is_softmax;  /* value is what a softmax computed */
    bool is_complex;  /* value has pairs of real numbers, in one more dimension, the last */
    bool is_noise;    /* uniform random numbers in 0 .. 1, plus noise_shift */
    double noise_shift;
    tti_view_part part;
    int spec;       /* number + 1 of the tensor of the file among the inputs; 0: none */
    bool of_buffer; /* the elements of a buffer that the model changes (changes.c) */
    int input;      /* number + 1 of the user's input whose elements these are; 0: none */
    const struct tti_order *order; /* order.h; NULL: none */
    tti_order_role role;
} tti_operand;

/* ---- state ---- */

typedef struct tti_operator tti_operator;

/* The row of a target, NULL if the operator table has none; *in_place: the target writes to its
 * first argument, and the row is that of the same operator without. */
typedef const tti_operator *tti_find_operator(const char *target, bool *in_place);

typedef struct tti_reuse tti_reuse;

/* Buffers that the model changes itself (changes.c); all [main.n_inputs]. */
typedef struct tti_changes {
    bool *changed;
    int *last_write;       /* the last call of main that changes it */
    tutti_value **sources; /* the buffer in the graph; NULL: none, or unused */
    double *momentum;      /* of a batch norm's */
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
    int64_t batch;      /* rows of the shard */
    tutti_value *first; /* an input, whose rows are those of the batch */
    tutti_value *row_zeros;
    tutti_value *present; /* i32 [batch], -1: the row is padding; NULL: there is none */
    tutti_value *is_present, *n_present; /* present.c: f32 [batch], 0 or 1; f32, their sum */
    bool fixed_batch;    /* the file has a number where the batch is, not a symbol */
    tti_operand nothing; /* operand of calls after a failure */
    bool *needed;        /* [main.n_calls]: the results need the call, or it has an effect */
    tti_changes changes;
    const char **params; /* [main.n_inputs]: name under which the tensor is in the graph, or NULL */
    int *writes;         /* [n_groups] */
    int n_groups, cap_groups;
    int n_layers;             /* numbers layers that need a name */
    size_t n_room_bytes;      /* of tti_room so far */
    double work, max_work;    /* of tti_add_work so far, and its limit */
    bool keeps_repeats;       /* a host tensor is written to: each element has its own memory */
    tti_reuse *reuse;         /* results of calls on constants (reuse.c); NULL: none yet */
    int n_unrolled;           /* nodes of the iterations of loops so far */
    tti_import_labels labels; /* of the first loss that has noted its labels */
    bool any_trains;          /* some batch norm or dropout was exported in training mode */
    tutti_status st;
    const char
        *why; /* text of a refusal, since builders that are called later replace the last error */
} tti_building;

/* A call whose arguments stand in the order of its row's signature. */
typedef struct tti_call {
    const tti_arg *arg[16];
    int n_args;
    tti_operand *out[64]; /* where results go; NULL: unused */
    int n_outs;
} tti_call;

typedef void (*tti_apply)(tti_building *b, const tti_call *c);
typedef bool (*tti_apply_ordered)(tti_building *b, const tti_call *c);

/* One operator.  signature: its arguments in order with their defaults, as in PyTorch's schema:
 * "self other alpha=1".  A name with ! is ignored (where a tensor lies, which kernel runs); *name
 * takes all arguments by position, as a list. */
struct tti_operator {
    const char *target; /* "aten.add.Tensor" */
    const char *signature;
    tti_apply build;      /* NULL: only on the host */
    tti_apply fold;       /* where all tensors are on the host; NULL: build serves both */
    bool view;            /* its results share memory with the first argument */
    double (*f1)(double); /* of build and fold of functions of one and two numbers */
    double (*f2)(double, double);
    tutti_value *(*b1)(tutti_graph *g, tutti_value *x);
    tutti_value *(*b2)(tutti_graph *g, tutti_value *x, tutti_value *y);
    const char *as;            /* the operator that means the same (tti_build_as), or nearly; or
                                  the formula of tti_build_formula (aten/aten_formula.c) */
    tti_apply_ordered ordered; /* where an argument is in an order (order.h); false: as others are,
                                  nothing was done.  NULL: never done */
};

/* Adds the calls of a program to a graph.  inputs: those of tti_import_samples, as is present;
 * outputs [n]: the results that a user of the model sees. labels: as there. */
tutti_status tti_program_build(const tti_program_file *program, tti_find_operator *find,
                               tutti_graph *g, tutti_value *const *inputs, tutti_value *present,
                               tti_import_labels *labels, tutti_value **outputs);

/* Notes the labels of a loss, to be checked before training.  False: they are not elements of an
 * input, or those of another loss are noted, so the graph must check them. */
bool tti_note_labels(tti_building *b, const tti_operand *label, int64_t n_classes, int64_t ignored);

/* ---- blocks inside calls ---- */

/* Runs the calls of a block once: inputs [block->n_inputs], results [block->n_outputs]; false after
 * a failure.  An input that the block writes to becomes what it has written. */
bool tti_run_inner(tti_building *b, const tti_block *block, tti_operand *inputs,
                   tti_operand *results);

/* The dimensions of result i of the current call, as far as the file states them. */
tti_known_dims tti_known_result(const tti_building *b, int i);

/* Output i of a call, which may be unused or absent. */
void tti_set_result(tti_building *b, const tti_op_call *call, int i, const tti_operand *x);

/* Adds to the number of nodes of the iterations of all loops, and returns it. */
int tti_count_unrolled(tti_building *b, int n);

/* control.c: runs If, Loop or Scan; false: the call is none of these. */
bool tti_run_control(tti_building *b, const tti_op_call *call);

/* ---- changes.c: models that change their buffers ---- */

/* Finds these buffers. */
void tti_find_changes(tti_building *b);
/* Adds buffer i as one of the graph. */
void tti_add_changed(tti_building *b, int i, tti_operand *out);
/* After a call of the main block: the values that a step of training leaves in the buffers to which
 * that call is the last to write. */
void tti_leave_changes(tti_building *b, int call);
/* After all calls: refuses changes of other tensors. */
void tti_refuse_changes(tti_building *b);

tutti_shape tti_shape_of_spec(const tti_input_spec *spec);
/* Whether an argument is, or has in its list, a value that is marked: marked [n_values]. */
bool tti_any_marked(const tti_arg *arg, const bool *marked);

/* Whether some batch norm or dropout was exported in training mode. */
bool tti_any_trains(const tti_building *b);
/* Batch norms of the main block that move the same buffer, one after the other. */
typedef struct tti_sharing {
    int n_calls, call; /* the number of the current one, from 0 */
} tti_sharing;
tti_sharing tti_sharing_of(const tti_building *b, int input); /* of the main block */

/* ---- reuse.c: equal calls on constants are computed once, in programs that write to no host
 * tensor ---- */

/* Sets the results of a call that was computed before; false: it was not. */
bool tti_reuse_call(tti_building *b, const tti_operator *row, const tti_call *c);
/* Keeps the results of a call, if it depends on constants alone. */
void tti_keep_call(tti_building *b, const tti_operator *row, const tti_call *c);
/* A fact about a host tensor: a value of the graph with its elements, or an answer. */
enum {
    TTI_KNOWN_CONSTANT,      /* + dtype */
    TTI_KNOWN_REPEATS = 100, /* + dimension: tti_host_repeats */
    TTI_KNOWN_MASK = 200     /* kind of a mask (aten_attention.c) */
};
tutti_value *tti_reuse_constant(tti_building *b, const tti_host *x, int form);
void tti_keep_constant(tti_building *b, const tti_host *x, int form, tutti_value *value);
bool tti_reuse_answer(tti_building *b, const tti_host *x, int question, int64_t *answer);
void tti_keep_answer(tti_building *b, const tti_host *x, int question, int64_t answer);

/* ---- row_call.c ---- */

/* The arguments of a call in the order of the row's signature, with its defaults. */
void tti_fill_args(tti_building *b, const tti_operator *row, const tti_op_call *call,
                   tti_call *out);

/* Runs a row, on the host if it can; false after a failure. */
bool tti_apply_row(tti_building *b, const tti_operator *row, const tti_call *c);

/* For operators that do not use the fields of tti_building. */
tutti_graph *tti_graph_of(const tti_building *b);
const tti_operator *tti_row_of(const tti_building *b);
const char *tti_as_of(const tti_building *b); /* the operator that its row names in as */
/* The argument of a row's signature with that name; NULL: there is none. */
const tti_arg *tti_arg_called(const tti_operator *row, const tti_call *c, const char *name,
                              int n_name);
/* The row of a target; NULL: it has none. */
const tti_operator *tti_row_for(const tti_building *b, const char *target, bool *in_place);
const tti_program_file *tti_program_of(const tti_building *b);
tti_changes *tti_changes_of(tti_building *b);
/* The stored results of calls on constants; NULL: host tensors may be written to. */
tti_reuse **tti_reuse_of(tti_building *b);
void tti_name_tensor(tti_building *b, int i);    /* input i of main is in the graph, by its name */
void tti_leave_call(tti_building *b);            /* a refusal names no call */
int64_t tti_batch_rows(const tti_building *b);   /* rows of the shard */
bool tti_has_fixed_batch(const tti_building *b); /* the file has a number where the batch is */

/* Runs the row of another operator, for one that means the same: arguments by position, those left
 * out by default.  NULL among outs: the result is unused. */
void tti_call_row(tti_building *b, const char *target, const tti_arg *args, int n_args,
                  tti_operand *const *outs, int n_outs);
void tti_build_as(tti_building *b, const tti_call *c); /* of a row: the one that it names in as */
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
void *tti_room(
    tti_building *b,
    size_t n_bytes); /* zeroed, of the arena; NULL when out of memory, which is recorded */
/* Counts n steps of computing constants.  False: the file asks for more than a model of its size
 * needs, which is recorded. */
bool tti_add_work(tti_building *b, double n);
bool tti_good(const tti_building *b);
/* Keeps the graph's error, if it has one, with the name of the current call. */
void tti_check_graph(tti_building *b);

/* ---- arguments ---- */

const tti_arg *tti_arg_at(const tti_call *c, int k);                    /* kind NONE if omitted */
bool tti_has(const tti_call *c, int k);                                 /* present, and not None */
tti_operand *tti_operand_at(tti_building *b, const tti_call *c, int k); /* a tensor */
tti_operand *tti_operand_of(tti_building *b, const tti_arg *arg);
/* The operand that an argument names; NULL for any other kind of argument. */
const tti_operand *tti_operand_named(const tti_building *b, const tti_arg *arg);
int64_t tti_int_at(tti_building *b, const tti_call *c, int k);
double tti_number_at(tti_building *b, const tti_call *c, int k);
bool tti_bool_at(tti_building *b, const tti_call *c, int k);
const char *tti_text_at(tti_building *b, const tti_call *c, int k);
/* A list of numbers, or one number: at most TUTTI_MAX_DIMS; its length. */
int tti_ints_at(tti_building *b, const tti_call *c, int k, int64_t out[TUTTI_MAX_DIMS]);
/* The same for a pair: one number stands for both. */
void tti_pair_at(tti_building *b, const tti_call *c, int k, int64_t out[2]);
/* A list of numbers of any length, or a host tensor of them: [*n] of the arena, NULL on a failure.
 * Larger than 2^53 in size: 2^53, as ends of slices have it. */
const int64_t *tti_list_at(tti_building *b, const tti_call *c, int k, int *n);
/* A dimension of n_dims, negative from the end; 0 on a failure. */
int tti_dim_at(tti_building *b, const tti_call *c, int k, int n_dims);
int tti_wrap_dim(tti_building *b, int64_t dim, int n_dims);
/* Item i of a list: whether it stands for the size of the batch. */
bool tti_is_batch_item(tti_building *b, const tti_call *c, int k, int i);

/* ---- operands ---- */

tutti_shape tti_shape_of(const tti_operand *x);
tti_elem tti_elem_of(const tti_operand *x);
bool tti_of_batch(const tti_operand *x); /* dimension 0 is the batch's, or stands for it */
tti_elem tti_float_elem(
    tti_elem elem); /* result type of functions that convert integers to floats */
bool tti_on_host(const tti_operand *x);
/* Value of the graph with the shape of x.  Host tensors become constants. */
tutti_value *tti_value_of(tti_building *b, const tti_operand *x);
/* The same with dimension 0 repeated to the batch, as in values that depend on an input. */
tutti_value *tti_batch_value(tti_building *b, const tti_operand *x);
/* The same, but dimensions of equal elements may be 1: for operators that broadcast. */
tutti_value *tti_compact_value(tti_building *b, const tti_operand *x);
/* f32 of an integer or a boolean, i32 for lookups. */
tutti_value *tti_as_float(tti_building *b, tutti_value *x);
tutti_value *tti_as_index(tti_building *b, const tti_operand *x);

/* Results. */
void tti_set_host(tti_operand *out, const tti_host *host);
void tti_set_value(tti_building *b, tti_operand *out, tutti_value *value, tti_elem elem,
                   bool of_input);
void tti_set_number(tti_operand *out, double x, tti_elem elem, bool is_batch);
void tti_set(tti_operand *out, const tti_operand *x); /* x itself: a view of it */

/* A name for a layer that needs one: that of the current module, with a number. */
const char *tti_layer_name_of(tti_building *b);

/* The result of an operator on the last dimension of the value inside of x, which may be folded. */
void tti_set_row_wise(tti_building *b, tti_operand *out, tutti_value *value, const tti_operand *x);
tutti_value *tti_row_wise_value(tti_building *b, const tti_operand *x);

/* The number is computed by live where rows are padding (only the present ones count). */
void tti_set_live(tti_building *b, tti_operand *out, tutti_value *live);

/* ---- present.c: rows that are padding.  dims: bits of dimensions, of which those that hold no
 * samples are passed over ---- */

bool tti_has_padding(const tti_building *b); /* rows may be padding */
tutti_batch tti_batch_of(tti_building *b, const tutti_value *x);
unsigned tti_sample_dims(tti_building *b, const tutti_value *x, unsigned dims);
/* x with zeros for padding along dims; with samples where `at` says. */
tutti_value *tti_present_in(tti_building *b, tutti_value *x, unsigned dims);
tutti_value *tti_present_at(tti_building *b, tutti_value *x, const tutti_batch *at, unsigned dims);
/* tutti_put_along of the rows that are there. */
tutti_value *tti_put_present(tti_building *b, tutti_value *x, tutti_value *places, int dim,
                             int64_t n);
/* The number of present rows, f32, at least 1; and of elements of x in dims that belong to them. */
tutti_value *tti_n_present(tti_building *b);
tutti_value *tti_n_present_in(tti_building *b, const tutti_value *x, unsigned dims);
/* A sum over dims of x as a mean. */
tutti_value *tti_per_present(tti_building *b, tutti_value *sum, const tutti_value *x,
                             unsigned dims);
/* x with low (-INFINITY, or a number below all others) for padding along dims. */
tutti_value *tti_or_low(tti_building *b, tutti_value *x, unsigned dims, double low);

/* x [1,..] repeated to the rows of the batch, as a value of which each row is a sample's; the same
 * of x [..,1,..] along dim. */
tutti_value *tti_repeat_rows(tti_building *b, tutti_value *x);
tutti_value *tti_repeat_along(tti_building *b, tutti_value *x, int dim);
/* x; a host tensor that repeats for the samples becomes a value of the graph with a row for each of
 * them. */
tti_operand tti_repeat_over_batch(tti_building *b, const tti_operand *x);

/* ---- host_tensor.c ---- */

/* Elements in row-major order are numbered; the place of one in data. */
int64_t tti_host_n(const tti_host *x);
int64_t tti_host_place(const tti_host *x, int64_t flat);
double tti_host_at(const tti_host *x, int64_t flat);
/* The elements one after the other, much faster than tti_host_at. */
typedef struct tti_host_walk {
    const double *data;
    int64_t place, stride[TUTTI_MAX_DIMS], dim[TUTTI_MAX_DIMS], index[TUTTI_MAX_DIMS];
    int n_dims;
} tti_host_walk;
tti_host_walk tti_host_begin(const tti_host *x);
int64_t tti_host_next_place(tti_host_walk *w);
double tti_host_next(tti_host_walk *w);
/* The next n of them, which is faster still; they are often taken in groups of TTI_HOST_GROUP. */
enum { TTI_HOST_GROUP = 256 };
void tti_host_take(tti_host_walk *w, double *to, int64_t n); /* to [n] */
/* A new tensor of zeros; false when it is too large, which is recorded. */
bool tti_host_new(tti_building *b, tti_elem elem, const tutti_shape *shape, tti_host *out);
/* A new tensor for elements that are computed one by one from those of parts, which have its shape;
 * *whole is it as others see it.  Where nothing is written to host tensors, a dimension along which
 * all parts repeat has one element in *out, and the parts' shapes become those of *out. */
bool tti_host_new_like(tti_building *b, tti_elem elem, tti_host *const *parts, int n_parts,
                       tti_host *out, tti_host *whole);
/* A row-major copy of the elements. */
bool tti_host_copy(tti_building *b, const tti_host *x, tti_host *out);
double tti_round(tti_elem elem, double x); /* to the nearest number that elem holds */
void tti_round_all(tti_elem elem, double *x, int64_t n);
int64_t tti_to_int(double x); /* without its fraction, at most 2^53 in size; 0 for NaN */
/* The elements of x repeated to shape, as a view. */
bool tti_host_expand(tti_building *b, const tti_host *x, const tutti_shape *shape, tti_host *out);
/* Strides of a view of x with the shape to, of as many elements; false: these elements are no view,
 * and PyTorch copies them too.  Dimensions of x that lie one after the other form a run, which
 * dimensions of to divide. */
bool tti_host_view_strides(const tti_host *x, const tutti_shape *to,
                           int64_t stride[TUTTI_MAX_DIMS]);
/* numpy's rule; false where the shapes do not match, which is recorded. */
bool tti_host_broadcast(tti_building *b, const tutti_shape *x, const tutti_shape *y,
                        tutti_shape *out);
/* The element type of a result by PyTorch's promotion. */
tti_elem tti_promote(const tti_operand *x, const tti_operand *y);
bool tti_host_uniform(const tti_host *x, double *value);
/* All elements along dimension d, of two or more, are equal. */
bool tti_host_repeats(const tti_host *x, int d);

#endif /* TTI_IMPORT_BUILDING_H */
