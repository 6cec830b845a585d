/* op.h - the record that describes one operation completely.
 *
 * To add an op, write one record at the end of its family file in ops/. Passes look at traits and
 * callbacks, never at names; a pass that needs a name is a missing trait.  The record alone
 * suffices to build, differentiate, split, plan, print, read and test an op.  The record type lives
 * here, below ops/, because graph nodes point to it (docs/adr/0002). */
#ifndef TTI_IR_OP_H
#define TTI_IR_OP_H

#include "base/run.h"
#include "tutti/types.h"

typedef struct tutti_graph tutti_graph;
typedef struct tutti_value tutti_value;
typedef struct tti_node tti_node;

enum { TTI_MAX_IN = 16, TTI_MAX_OUT = 8, TTI_MAX_ATTRS = 14 };

/* ---- attributes: integers, numbers, integer lists and bytes, fixed when the node is made ---- */

typedef enum tti_attr_kind {
    TTI_ATTR_INT,
    TTI_ATTR_FLOAT,
    TTI_ATTR_INTS,
    TTI_ATTR_BYTES
} tti_attr_kind;

typedef struct tti_attr_spec {
    const char *name; /* NULL ends the list */
    tti_attr_kind kind;
    double fallback; /* default of an INT or FLOAT; INTS and BYTES are empty by default */
    const char *doc; /* meaning and unit, a few words */
} tti_attr_spec;

typedef struct tti_attr {
    int64_t i;                 /* TTI_ATTR_INT; of TTI_ATTR_BYTES: how many            */
    double f;                  /* TTI_ATTR_FLOAT                                       */
    int n;                     /* TTI_ATTR_INTS: 0 .. TUTTI_MAX_DIMS                   */
    int64_t v[TUTTI_MAX_DIMS]; /* TTI_ATTR_INTS                                        */
    const void *bytes;         /* TTI_ATTR_BYTES: [i]; of a node: in its graph's arena */
} tti_attr;

/* ---- traits: what passes and backends may rely on ---- */

typedef enum tti_trait {
    TTI_ELEMENTWISE = 1 << 0,   /* every out[.][i] depends on in[.][i] only; shapes all equal     */
    TTI_BROADCAST = 1 << 1,     /* elementwise after numpy broadcasting of the inputs             */
    TTI_IN_PLACE = 1 << 2,      /* out 0 may be written over in 0 while running                   */
    TTI_VIEW = 1 << 3,          /* out 0 is in 0's bytes in plain layout under another shape      */
    TTI_COMMUTATIVE = 1 << 4,   /* in 0 and in 1 may be exchanged                                 */
    TTI_SOURCE = 1 << 5,        /* no inputs: an input, a parameter, a constant                   */
    TTI_RANDOM = 1 << 6,        /* reads tti_run                                                  */
    TTI_UPDATE = 1 << 7,        /* out k replaces in k: optimizers                                */
    TTI_CHANNELS_LAST = 1 << 8, /* has fast kernels for N,H,W,C bytes; 4-D values follow          */
    TTI_TAKES_EPILOGUE = 1 << 9, /* has the attribute "act" and an optional last bias input       */
    TTI_EVAL_IDENTITY = 1 << 10, /* out 0 = in 0 when not training: dropout */
    TTI_PARAM = 1 << 11,    /* a source that is trained                                       */
    TTI_INPUT = 1 << 12,    /* a source that gets a new value every step */
    TTI_CONSTANT = 1 << 13, /* a source filled once: tti_constant_elem                       */
    TTI_FUSED = 1 << 14,    /* runs node->body, a chain of elementwise nodes                  */
    TTI_SYNC = 1 << 15,     /* joins a value over all shards; alone (reference): out 0 = in 0, or
                             * as much of it as fits, and zeros                              */
    TTI_BUFFER = 1 << 16,   /* a source that is kept from step to step and saved, but not trained */
    TTI_COMPUTE = 1 << 17,  /* where the time goes: in 16 bits under mixed precision         */
    TTI_FOLLOWS = 1 << 18,  /* moves or picks elements: in 16 bits where its input is        */
    TTI_WIDE = 1 << 19,     /* elementwise, but grows or falls fast: always in f32           */
    TTI_NORMS = 1 << 20,    /* an optimizer whose last input is f32[2]: |w| and |step|         */
    TTI_TAKES_RESIDUAL = 1 << 21, /* takes epilogues; its optional last input is not a bias but a
                                   * value like out 0, added before act                      */
    TTI_TAKES_MASK =
        1 << 22, /* has the attribute "act"; if it is set, the last input is y, of the type of input
                    0, and input 0 is the gradient before the activation instead of after it */
    TTI_READS_LOW = 1 << 23,  /* in 0 may have 16 bits and needs no cast; sums in f32 all the
                               * same; outputs are f32, or out 0 has in 0's type               */
    TTI_STREAM = 1 << 24,     /* its output is part of the residual stream: lookups; 16 bits if
                                 target->low_precision_residual is set */
    TTI_COLLECTIVE = 1 << 25, /* exchanges values inside the step with the workers of a tensor
                               * axis; alone (reference) the others' are 0: see tti_collective  */
    TTI_TURNS = 1 << 26,      /* out 0 = in 0, but the gradient is not dy: stays for autodiff   */
    TTI_PERMUTES = 1 << 27,   /* out 0 is in 0 with its dimensions in the order of "perm"       */
    TTI_EITHER_LAYOUT = 1 << 28, /* if target->strided: 4-D inputs and outputs in one layout, any */
    TTI_READS_STRIDED = 1 << 29  /* if target->strided: reads each 4-D input as it is stored; its
                                  * outputs have the plain layout                               */
} tti_trait;

/* The operation of a TTI_COLLECTIVE op on input 0 of all workers, in the order of their numbers. */
typedef enum tti_collective {
    TTI_COLLECTIVE_NONE,
    TTI_COLLECTIVE_SUM,    /* their sum                              */
    TTI_COLLECTIVE_GATHER, /* all of them along the attribute "dim"  */
    TTI_COLLECTIVE_SCATTER /* the own part along "dim" of their sum  */
} tti_collective;

/* The kind of epilogue that an op can become in a TTI_TAKES_EPILOGUE op; the value of its "act". */
typedef enum tti_epilogue {
    TTI_EPILOGUE_NONE,
    TTI_EPILOGUE_RELU,
    TTI_EPILOGUE_BIAS /* an addition of a per-channel bias; becomes the bias input, not an act */
} tti_epilogue;

/* How an op can be merged with the matrix product whose result it reads
 * (passes/fuse/fuse_linear.c), and the additional inputs and outputs of the merged op. */
typedef enum tti_joint {
    TTI_JOINT_NONE,
    TTI_JOINT_GELU,      /* in 0 is the product z: outputs act(z), z       */
    TTI_JOINT_GELU_GRAD, /* in 1 is the product: one more input, its in 0  */
    TTI_JOINT_ADD,       /* either is the product: one more input          */
    TTI_JOINT_WIDE,      /* 16 bits to f32: outputs in f32                 */
    TTI_N_JOINTS
} tti_joint;

/* ---- how a value is placed on the workers of one mesh axis ---- */

typedef enum tti_placement_kind {
    TTI_WHOLE,   /* replicated: every worker has all of it        */
    TTI_SPLIT,   /* sharded along dimension dim                   */
    TTI_PARTIAL, /* every worker has a term of a sum              */
    TTI_OWN      /* every worker has its own, from its own samples: statistics; neither a shard nor
                    a partial sum */
} tti_placement_kind;

typedef struct tti_placement {
    tti_placement_kind kind;
    int dim; /* of TTI_SPLIT; 0 otherwise */
} tti_placement;

/* ---- the same for the workers of a tensor axis, which all have all samples ---- */

typedef struct tti_axis {
    int n, index; /* workers, and which one this is */
} tti_axis;

/* As tti_placement; a divided dimension may consist of `groups` packed ones that are each divided:
 * queries, keys and values of an attention are 3.  Otherwise 1. */
typedef struct tti_cut {
    tti_placement_kind kind;
    int dim, groups;
} tti_cut;

typedef struct tti_cost {
    double flops; /* multiply and add count two */
    double bytes; /* read and written, each input and output once */
} tti_cost;

/* ---- the plain-C meaning: double in, double out, row-major ---- */

typedef struct tti_args {
    const tti_node *node;    /* types of in and out, attributes                            */
    const double *const *in; /* [n_in], each n_elems of node->in[i]->type, row-major       */
    double *const *out;      /* [n_out], likewise; never overlaps an input; not zeroed     */
    const tti_run *run;
} tti_args;

/* One case of the generic tests (tests/ops/op_table_test.c). */
typedef struct tti_sample {
    const char *in;         /* types of the inputs: "f32[3,5] f32[5]"; NULL ends the list      */
    const char *attrs;      /* as in the text form: "stride=[2,2] p=0.5"; NULL: defaults      */
    double lo, hi;          /* floating inputs are uniform in [lo, hi]; both 0: [-1, 1]        */
    int64_t int_lo, int_hi; /* integer inputs are uniform in int_lo .. int_hi             */
    double shift;           /* added to floating inputs whose bit of shifted is set; then rounded */
    unsigned shifted;
    tutti_status expect; /* TUTTI_OK, or what infer must answer                        */
} tti_sample;

typedef struct tti_op {
    const char *name;           /* unique; also in files and in the text form */
    const char *doc;            /* one line of mathematics */
    int n_in_min, n_in_max;     /* 0 <= min <= max <= TTI_MAX_IN */
    int n_out;                  /* 1 .. TTI_MAX_OUT */
    const tti_attr_spec *attrs; /* NULL: none */
    unsigned traits;            /* of tti_trait */
    tti_epilogue epilogue;
    tti_epilogue epilogue_grad; /* inputs y, dy: out 0 is dy through that epilogue */
    tti_joint joint;
    const char *joined[TTI_N_JOINTS]; /* of a matrix product: itself and such an op; NULL: none */
    /* The op with the same inputs and outputs and one more output: the sums of output 0 over all
     * but its last dimension, in f32; NULL: none.  It is used if output 0 has at least this many
     * elements: for fewer, a product computes the sums as fast by itself. */
    const char *summed;
    int64_t summed_from;
    /* TTI_CHANNELS_LAST: 4-D inputs and outputs that are weights, not activations, and so stay
     * in plain layout; bit i stands for input or output i. */
    unsigned weights_in, weights_out;
    /* Outputs that are kept for the gradient only: no gradient flows back from them, dy[k] is NULL.
     * Bit k stands for output k. */
    unsigned saved_out;

    /* Types of the outputs, or the reason why not (tti_node_fail). */
    tutti_status (*infer)(const tti_node *node, tutti_type *out);
    /* Appends the nodes of the gradient: dx[i] = d(loss)/d(in i), or leaves dx[i] NULL where an
     * input has none.  dy[k] is NULL where nothing flows into output k.  NULL: no gradient.
     * need[i] is false where dx[i] would go unused: skip the work. */
    tutti_status (*grad)(tutti_graph *g, const tti_node *node, tutti_value *const *dy,
                         const bool *need, tutti_value **dx);
    /* Placement of the outputs for placements of the inputs, or TUTTI_E_UNSUPPORTED. */
    tutti_status (*shard)(const tti_node *node, const tti_placement *in, tti_placement *out);
    /* Additional rules for a tensor axis of n workers, which shard does not know: returns true, and
     * the placement of the outputs, if node can be computed from inputs placed as in `in`. NULL: no
     * more rules. */
    bool (*cut)(const tti_node *node, int n, const tti_cut *in, tti_cut *out);
    /* Appends what node is then for one worker, from its parts of the inputs: out [n_out].  cut:
     * how they lie.  NULL: the same node.  Failures are sticky in g. */
    void (*emit_cut)(tutti_graph *g, const tti_node *node, const tti_axis *axis, const tti_cut *cut,
                     tutti_value *const *in, tutti_value **out);
    tti_collective collective;
    void (*cost)(const tti_node *node, tti_cost *cost); /* NULL: 1 flop per output element */
    void (*reference)(const tti_args *args);            /* NULL only for sources and fused */
    /* TTI_SYNC: combines the values of all shards, parts [n_parts][n_elems], into one, in an order
     * that depends on n_parts alone.  The executor calls it; for one shard it is the identity.  The
     * result has as many elements as the larger one of input 0 and output 0.  If output 0 is
     * smaller, shard s receives the s-th piece of the result, else each shard receives all of it.
     */
    void (*join)(const float *parts, size_t n_parts, size_t n_elems, float *out);
    const tti_sample *samples; /* ended by .in == NULL */
} tti_op;

#endif /* TTI_IR_OP_H */
