/* weight.h - relative times of nodes on a kind of hardware, to divide a model into stages of equal
 * time.
 *
 * The figures are constants on purpose: measured ones differ from rank to rank and from run to run,
 * but all ranks must divide alike, and another division may add in another order. */
#ifndef TTI_OPS_WEIGHT_H
#define TTI_OPS_WEIGHT_H

#include "ir/graph.h"

/* Times in one unit, which is the kind's own. */
typedef struct tti_weights {
    double op;                 /* of one operation on f32 */
    double tf32_op, op_16_bit; /* of a product in tf32; on bf16 and f16 */
    double attention;          /* how many times as long operations of attention take */
    double byte;               /* read or written */
    double byte_between;       /* from a worker to another one, in the time of both */
    double kernel;             /* of a node besides: to begin and to end it */
    bool
        at_once; /* operations overlap with memory traffic: the longer one counts; else their sum */
    bool fused;  /* most nodes are fused: weigh what the fuse pass leaves */
} tti_weights;

extern const tti_weights tti_weights_host; /* a core, in operations */
extern const tti_weights tti_weights_gpu;  /* in seconds of an H200 */

/* The weight of a node without its gradients. tf32: products of f32 use it. */
double tti_node_weight(const tti_weights *weights, const tti_node *node, bool tf32);

/* The part, 0 to 1, of the time of n nodes that those take whose operations last longer than what
 * they move: how much of it waits for multiprocessors, and not for memory. */
double tti_share_of_operations(const tti_weights *weights, tti_node *const *nodes, int n,
                               bool tf32);

#endif /* TTI_OPS_WEIGHT_H */
