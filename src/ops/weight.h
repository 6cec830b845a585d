/* weight.h - how long nodes take beside each other on a kind of hardware, to cut a model into
 * stages of equal time.
 *
 * Constants of the kind, on purpose: what is measured differs from rank to rank and from run to
 * run, while all ranks have to cut alike, and what is cut elsewhere may add in another order. */
#ifndef TTI_OPS_WEIGHT_H
#define TTI_OPS_WEIGHT_H

#include "ir/graph.h"

/* Times in one unit, which is the kind's own. */
typedef struct tti_weights {
    double op;              /* of one operation on f32 */
    double tf32_op, low_op; /* of a product in tf32; on bf16 and f16 */
    double attention;       /* how many times as long operations of attention take */
    double byte;            /* read or written */
    double byte_between;    /* from a worker to another one, in the time of both */
    double kernel;          /* of a node besides: to begin and to end it */
    bool at_once;           /* operations beside bytes: what takes longer counts; else both */
    bool fused;             /* most nodes are made together: what the fuse pass leaves is weighed */
} tti_weights;

extern const tti_weights tti_weights_host; /* a core, in operations */
extern const tti_weights tti_weights_gpu;  /* in seconds of an H200 */

/* Of a node as it stands, without gradients.  tf32: products of f32 are made so. */
double tti_node_weight(const tti_weights *weights, const tti_node *node, bool tf32);

/* The part, 0 to 1, of the time of n nodes that those take whose operations last longer than what
 * they move: how much of it waits for multiprocessors, and not for memory. */
double tti_share_of_operations(const tti_weights *weights, tti_node *const *nodes, int n,
                               bool tf32);

#endif /* TTI_OPS_WEIGHT_H */
