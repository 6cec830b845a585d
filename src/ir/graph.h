/* graph.h - nodes, values and the graph that holds them, as passes see them.
 *
 * Nodes stand in execution order: a node comes after the producers of its inputs.  A pass either
 * appends nodes or makes a new graph (tti_graph_clone_node); nodes are not changed in place except
 * for attributes and layouts, by the passes that own these. */
#ifndef TTI_IR_GRAPH_H
#define TTI_IR_GRAPH_H

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"
#include "ir/op.h"
#include "tutti/graph.h"

/* Longest name of a node, in bytes: "grad." and a name still read back (read.c). */
enum { TTI_MAX_NAME = 500 };

/* How the elements of a 4-D value lie in memory.  Shapes are always N,C,H,W. */
typedef enum tti_layout {
    TTI_PLAIN,              /* row-major                */
    TTI_CHANNELS_LAST_BYTES /* N,H,W,C            */
} tti_layout;

struct tutti_value {
    tutti_type type;
    tti_layout layout;
    tti_node *node;              /* the producer */
    int out;                     /* which of its outputs */
    int id;                      /* unique in the graph, dense, in order of creation */
    struct tti_samples *samples; /* of the first n_sampled nodes (passes/batch_axis.c) */
};

struct tti_node {
    const tti_op *op;
    const char *name;   /* layer, input or parameter name; "" where none was given */
    int id;             /* position in graph->nodes */
    int stage;          /* of a pipeline (passes/stages/stages.h); 0: there is none */
    const char *module; /* the part of the model that it belongs to; "": unknown */
    int n_in;
    tutti_value **in;              /* [n_in] */
    tutti_value *out[TTI_MAX_OUT]; /* [op->n_out] */
    tti_attr *attrs;               /* as many as op->attrs */
    tti_node **body;               /* TTI_FUSED: the chain, in order; its values are this graph's */
    int n_body;
};

typedef struct tti_output {
    const char *name;
    tutti_value *value;
} tti_output;

/* The op of a name, NULL: there is none.  ops/ has the table; a graph knows how to ask it. */
typedef const tti_op *(*tti_op_finder)(const char *name);

struct tutti_graph {
    tti_arena arena;
    tti_node **nodes;
    int n_nodes, cap_nodes;
    int n_values;
    int n_sampled; /* nodes for which it is known where samples lie (passes/batch_axis.c) */
    tti_output *outputs;
    int n_outputs, cap_outputs;
    int stage;          /* that nodes added from now on belong to */
    const char *module; /* the same */
    bool training;
    tti_op_finder find_op; /* of the nodes that builders add by name */
    bool sync_batch_norm;  /* statistics of batch norms are joined over all shards */
    int n_shards;          /* of the batch; below 2: one */
    bool joins_samples;    /* the loss is the shard's as a whole: the model may join its samples */
    bool mixes_labels;     /* the target has the labels of two samples: models cannot read it */
    tutti_status failed;   /* sticky: the first failure of a builder call */
    char *failed_text;     /* in the arena */
};

/* tutti_graph_create, with a table of ops given by the caller. */
tutti_graph *tti_graph_new(bool training, tti_op_finder find);

/* The value of one attribute of a new node. */
typedef struct tti_attr_arg {
    const char *name; /* NULL ends the list */
    tti_attr value;
} tti_attr_arg;

#define TTI_INT(key, x) ((tti_attr_arg){(key), {.i = (x)}})
#define TTI_FLOAT(key, x) ((tti_attr_arg){(key), {.f = (x)}})
#define TTI_BYTES(key, n_bytes, x) ((tti_attr_arg){(key), {.i = (int64_t)(n_bytes), .bytes = (x)}})
tti_attr_arg TTI_INTS(const char *key, int n, const int64_t *v);

typedef struct tti_node_desc {
    const tti_op *op;
    const char *name; /* copied; NULL: "" */
    tutti_value *const *in;
    int n_in;
    const tti_attr_arg *attrs; /* NULL: all defaults */
} tti_node_desc;

/* Appends a node, infers its output types, and returns it; NULL when anything failed before or
 * now (sticky).  An input that is NULL counts as failed before. */
tti_node *tti_graph_add(tutti_graph *g, const tti_node_desc *desc);

/* The stage that nodes added from now on belong to. */
void tti_graph_set_stage(tutti_graph *g, int stage);

/* The loss is the shard's as a whole: the model may join its samples. */
void tti_graph_set_joins_samples(tutti_graph *g, bool joins);

/* The target has the labels of two samples by data.mixup: a model cannot read them. */
void tti_graph_set_mixes_labels(tutti_graph *g, bool mixes);
bool tti_graph_mixes_labels(const tutti_graph *g);

/* tutti_find_batch has found where samples lie for the first n nodes. */
void tti_graph_set_n_sampled(tutti_graph *g, int n);

/* For training, else for evaluation.  The number of shards of the batch, 1: one. */
bool tti_graph_is_training(const tutti_graph *g);
int tti_graph_n_shards(const tutti_graph *g);
bool tti_graph_joins_samples(const tutti_graph *g);

/* Memory that lives as long as the graph. */
tti_arena *tti_graph_arena(tutti_graph *g);

/* The op of that name in the graph's table, NULL: none. */
const tti_op *tti_graph_find_op(const tutti_graph *g, const char *name);

/* A builder has failed before, or g is NULL: nothing can be added. */
bool tti_graph_has_failed(const tutti_graph *g);

/* Notes a failure of a builder, if it is the first; takes the text from tutti_last_error(). */
void tti_graph_fail(tutti_graph *g, tutti_status status);

/* The value of a named output, or of an input or parameter node; NULL if there is none. */
tutti_value *tti_graph_output(const tutti_graph *g, const char *name);
tti_node *tti_graph_find_source(const tutti_graph *g, const char *name);

/* Attributes by name; asking for one that the op does not have is a bug and asserts. */
int64_t tti_attr_int(const tti_node *node, const char *name);
double tti_attr_float(const tti_node *node, const char *name);
const tti_attr *tti_attr_get(const tti_node *node, const char *name);
void tti_attr_set_int(tti_node *node, const char *name, int64_t value);
bool tti_attr_has(const tti_node *node, const char *name);
int tti_n_attrs(const tti_op *op);

/* Fails with "OP 'NAME': text" and TUTTI_E_INVALID. */
tutti_status tti_node_fail(const tti_node *node, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* "conv2d 'conv1' in module 'layer1.0'", or "conv2d of the model", for messages; returns out. */
enum { TTI_NODE_TEXT = 1100 };
const char *tti_node_text(const tti_node *node, char out[TTI_NODE_TEXT]);

/* Element i of a TTI_CONSTANT: of its attribute "data", or its attribute "value". */
double tti_constant_elem(const tti_node *node, size_t i);

/* The value whose bytes this one shows: itself, unless a view makes it. */
const tutti_value *tti_skip_views(const tutti_value *value);

/* Elements and bytes of a value. */
int64_t tti_value_n_elems(const tutti_value *value);
size_t tti_value_n_bytes(const tutti_value *value);
bool tti_shape_equal(const tutti_shape *a, const tutti_shape *b);

/* The product of the dimensions with a check: TUTTI_E_INVALID on a negative dimension, too many
 * dimensions, or more than 2^40 elements. */
tutti_status tti_shape_check(const tutti_shape *shape);

/* "f32[16,1,28,28]" added to str. */
void tti_type_print(tti_str *str, const tutti_type *type);
void tti_shape_print(tti_str *str, const tutti_shape *shape);
/* The same as a short text in buf, which is returned. */
const char *tti_type_text(const tutti_type *type, char *buf, size_t n_bytes);

/* Reads a type such as "f32[3,5]" at *text and moves *text past it. */
tutti_status tti_type_parse(const char **text, tutti_type *out);

/* Reads attributes such as "stride=[2,2] p=0.5" (also with commas) up to '}' or the end.  Bytes go
 * to the arena. */
tutti_status tti_attrs_parse(const tti_op *op, const char **text, tti_arena *arena,
                             tti_attr_arg *out, int max);

/* Prints and reads with a table of ops given by the caller (ops/ has the real one). */
void tti_graph_print(const tutti_graph *g, tti_str *str);
tutti_status tti_graph_read(const char *text, const char *source, tti_op_finder find,
                            tutti_graph **out);

/* Checks every invariant of a graph: order, ids, arity, inferred types, names, outputs.
 * A failure is TUTTI_E_INTERNAL and names the node. */
tutti_status tti_graph_verify(const tutti_graph *g);

/* Copies node into g with its inputs replaced through map (old value id -> new value); stores
 * the new outputs in map.  NULL on failure (sticky in g). */
tti_node *tti_graph_clone_node(tutti_graph *g, const tti_node *node, tutti_value **map);

/* Copies a finished graph into g: nodes, and outputs except result, whose value is returned.  find
 * gives the value for an input.  NULL on failure (sticky in g). */
typedef tutti_value *(*tti_input_finder)(void *user, tutti_graph *g, const tti_node *input);
tutti_value *tti_graph_insert(tutti_graph *g, const tutti_graph *from, const char *result,
                              tti_input_finder find, void *user);

/* Whether a graph for training has random numbers or running statistics. */
bool tti_graph_differs_in_evaluation(const tutti_graph *g);

/* Another graph, the same in all, ids too; owned by the caller.  Fails as g has failed. */
tutti_status tti_graph_copy(const tutti_graph *g, tutti_graph **out);

#endif /* TTI_IR_GRAPH_H */
