/* graph.h - a static graph of one training step, built once.
 *
 * Errors are sticky: a builder call with bad shapes returns NULL, later calls pass NULL on, and
 * tutti_graph_check reports the first failure with layer name and shapes.  Model code therefore
 * needs no error handling.
 *
 * Ownership: values and names belong to the graph and are freed with it.
 * Threads:   one graph is built by one thread at a time; a finished graph is read-only.
 */
#ifndef TUTTI_GRAPH_H
#define TUTTI_GRAPH_H

#include "tutti/types.h"

typedef struct tutti_graph tutti_graph;
typedef struct tutti_value tutti_value;

/* Initial values of a parameter.  Zero is TUTTI_INIT_ZEROS.  fan_in and fan_out follow PyTorch: dim
 * 1 (times the kernel's area) and dim 0 (times the area). */
typedef enum tutti_init_kind {
    TUTTI_INIT_ZEROS,
    TUTTI_INIT_CONSTANT,      /* a: the value                                             */
    TUTTI_INIT_UNIFORM,       /* a, b: the bounds                                         */
    TUTTI_INIT_NORMAL,        /* a: mean, b: standard deviation                           */
    TUTTI_INIT_HE_NORMAL,     /* std = sqrt(2 / fan_in)  (He et al. 2015)                 */
    TUTTI_INIT_HE_UNIFORM,    /* bound = sqrt(6 / fan_in)                                 */
    TUTTI_INIT_XAVIER_NORMAL, /* std = sqrt(2 / (fan_in + fan_out))  (Glorot, Bengio 2010) */
    TUTTI_INIT_XAVIER_UNIFORM,
    TUTTI_INIT_FAN_IN_UNIFORM, /* bound = 1 / sqrt(fan_in): PyTorch's default of linear, conv */
    TUTTI_N_INIT_KINDS
} tutti_init_kind;

typedef struct tutti_init {
    tutti_init_kind kind;
    double a, b;    /* see the kind; unused ones are ignored */
    int64_t fan_in; /* 0: from the shape; for a bias, that of its layer */
} tutti_init;

TUTTI_EXTERN_C_BEGIN

/* Creates an empty graph. training: whether dropout and similar operations are active. NULL when
 * out of memory. */
TUTTI_API tutti_graph *tutti_graph_create(bool training);

/* Frees the graph with all its values.  NULL is a no-op. */
TUTTI_API void tutti_graph_destroy(tutti_graph *g);

/* TUTTI_OK, or the first failure of any builder call, with its text in tutti_last_error(). */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_graph_check(const tutti_graph *g);

/* Records a failure of model code with its reason, as a builder call with bad shapes does.  Keeps
 * an earlier failure.  Returns NULL. */
TUTTI_API tutti_value *tutti_graph_refuse(tutti_graph *g, const char *why);

/* True while the graph is built for training. */
TUTTI_API bool tutti_graph_is_training(const tutti_graph *g);

/* Makes all batch norms built from now on compute their statistics over all shards of the batch, as
 * SyncBatchNorm does.  Off in a new graph: each shard has its own statistics. */
TUTTI_API void tutti_graph_set_sync_batch_norm(tutti_graph *g, bool sync);

/* Sets the number of shards of the batch, of which the graph computes one; 1 in a new graph.
 * Training and evaluation by a job set it before they call the model's builder. */
TUTTI_API void tutti_graph_set_shards(tutti_graph *g, int n_shards);

/* Names the part of the model that values built from now on belong to, such as "layers.0.mlp":
 * reports use it (tutti inspect).  NULL or "": none. */
TUTTI_API void tutti_graph_set_module(tutti_graph *g, const char *module);

/* Adds an input that is set at every step. */
TUTTI_API tutti_value *tutti_input(tutti_graph *g, const char *name, tutti_dtype dtype,
                                   const tutti_shape *shape);

/* An f32 parameter.  Names are unique in the graph, "conv1.weight"; the name and the seed decide
 * the initial bits.  decay: whether weight decay applies (weights yes, biases and norms no). */
TUTTI_API tutti_value *tutti_param(tutti_graph *g, const char *name, const tutti_shape *shape,
                                   const tutti_init *init, bool decay);

/* An f32 value that is kept from step to step and saved with the parameters, but not trained, such
 * as a running mean; starts filled with value.  An output "stat.NAME" of a training graph, a sum
 * over the samples of a shard, updates it in each step: NAME = (1 - momentum) NAME + momentum * the
 * mean of the output over the samples of the global batch.  0 < momentum <= 1. */
TUTTI_API tutti_value *tutti_buffer(tutti_graph *g, const char *name, const tutti_shape *shape,
                                    double value, double momentum);

/* A constant filled with value. */
TUTTI_API tutti_value *tutti_constant(tutti_graph *g, tutti_dtype dtype, const tutti_shape *shape,
                                      double value);

/* A constant with the elements of data, a row-major array of dtype, which is copied. */
TUTTI_API tutti_value *tutti_constant_array(tutti_graph *g, tutti_dtype dtype,
                                            const tutti_shape *shape, const void *data);

/* Names value as a result of the graph, such as "logits" or "loss_sum". */
TUTTI_API void tutti_output(tutti_graph *g, const char *name, tutti_value *value);

/* The type of a value; NULL (which stands for a failed call) gives a scalar f32. */
TUTTI_API tutti_type tutti_value_type(const tutti_value *value);

/* The position of a shard's samples in a value. */
typedef struct tutti_batch {
    int64_t n; /* samples; 0: the value is the same for all of them */
    /* For each dimension: 0 if it holds no samples; else the dimension is [outer, n, inner] merged
     * into one. */
    int64_t inner[TUTTI_MAX_DIMS];
    const char *mixed_by; /* the node that mixed rows of different samples in a way that is not
                             followed; NULL: none.  n and inner are then 0 */
} tutti_batch;

/* Finds where the samples lie; in the graph's inputs they lie along dimension 0.  A sum or a mean
 * over samples is the same for all of them. */
TUTTI_API void tutti_find_batch(tutti_graph *g, const tutti_value *value, tutti_batch *out);

/* The one dimension that holds samples; -1: none does; -2: several do, or it is not known. */
TUTTI_API int tutti_batch_axis(tutti_graph *g, const tutti_value *value);

/* Prints the graph in the text form that tutti_graph_parse reads.  Free it with free(); NULL when
 * out of memory. */
TUTTI_API char *tutti_graph_print(const tutti_graph *g);

/* Reads the text form.  source names the text in messages ("file:line:column: error: ...").
 * On success *out is owned by the caller; on failure it is NULL. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_graph_parse(const char *text, const char *source,
                                                         tutti_graph **out);

TUTTI_EXTERN_C_END

#endif /* TUTTI_GRAPH_H */
