/* passes.h - graph in, graph out; one file per pass, the order in pipeline.c.
 *
 * After a failure *g may hold appended nodes and can only be destroyed. */
#ifndef TTI_PASSES_PASSES_H
#define TTI_PASSES_PASSES_H

#include "ir/graph.h"

/* Which activations are recomputed in the backward pass instead of being kept. */
typedef enum tti_recompute {
    TTI_RECOMPUTE_NONE,
    TTI_RECOMPUTE_LIGHT, /* those of few operations per byte, as long as this lowers the peak */
    TTI_RECOMPUTE_BLOCK, /* all but the ends of blocks, which are chosen for the lowest peak */
    TTI_RECOMPUTE_BUDGET /* as few operations as bring the peak down to recompute_bytes */
} tti_recompute;

typedef struct tti_stages tti_stages;   /* passes/stages/stages.h */
typedef struct tti_rewrite tti_rewrite; /* passes/rewrite.h */
typedef struct tti_weights tti_weights; /* ops/weight.h */

/* How the parameters and buffers of a model are cut over a tensor axis, by name. */
typedef struct tti_cuts {
    struct tti_cut_of_param {
        char *name; /* owned */
        tti_cut cut;
    } * of; /* [n], owned */
    int n;
} tti_cuts;

void tti_cuts_fini(tti_cuts *cuts);

/* The properties of target and job that the passes use; the backend fills its part, so that passes
 * and backends do not see each other. */
typedef struct tti_target {
    bool (*prefers_channels_last)(const tti_node *node); /* NULL: never */
    bool strided; /* layout: broadcasts, sums, slices and joins too may have N,H,W,C values */
    bool (*fuses_pool)(const tti_node *conv, bool tf32); /* fuse: conv2d_pool for it; NULL: never */
    bool tf32;                                           /* products of f32 values in tf32 */
    bool chains_any_float; /* fuse: elementwise chains may hold values of 16 bits, and casts */
    bool fuse;             /* products, epilogues and elementwise chains */
    bool fuse_linear_grad; /* fuse: gelu, additions, casts to f32 into the products before them */
    bool (*joins_products)(const tti_node *product);   /* which ones; NULL: all */
    bool (*joins_exact_gelu)(const tti_node *product); /* an exact gelu too; NULL: never */
    /* fuse: the join of batch norms' gradients, or (keeps) the sums alone, into this conv2d_grad_x;
     * NULL: never */
    bool (*joins_gradient)(const tti_node *grad_x, bool keeps);
    bool (*joins_head)(const tti_node *logits); /* fuse_loss: the product too; NULL: never */
    bool fuse_batch_norm;                       /* fuse: masks and sums of batch norms' gradients */
    bool fuse_residual_norm; /* fuse: layer norms with neighbouring additions and casts */
    bool fuse_loss;          /* fuse: a loss and its gradient */
    bool fuse_sums;          /* fuse: the gradient of a bias into what makes its terms */
    bool one_shard;          /* the whole batch is one shard: split lets ops mix samples */
    bool keeps_low_copies; /* the update leaves parameters in compute_dtype too: none are cast in a
                              step */
    tutti_dtype compute_dtype;   /* of the nodes that take the time: f32, or bf16, f16 */
    bool low_precision_residual; /* also what runs past the blocks of a transformer */
    bool loss_scale;             /* gradients come out times the input "loss_scale" */
    tti_recompute recompute;
    size_t recompute_bytes; /* TTI_RECOMPUTE_BUDGET */
    /* The part of the model that the graph becomes: tensor shard `tensor` of n_tensor of each
     * layer, of the layers of stage `stage` of n_stages.  n 0 or 1: all of it. */
    int tensor, n_tensor, stage, n_stages;
    int n_chunks;               /* chunks of each stage, not neighbours; 0: 1 */
    const tti_weights *weights; /* of nodes, for stages of equal time; NULL: as a host has them */
    tti_stages *stages; /* of these stages: set by tti_plan_create; NULL: the graph stays whole */
    /* stages: the terms of the gradient of a parameter on several stages are added for each shard,
     * to the bits of the whole graph; otherwise once, over all shards. */
    bool adds_tied_by_shard;
    bool collectives; /* schedule: collectives overlap with nodes that do not need them */
    bool joins_norms; /* collectives: norms between two collectives are computed with them */
    int joins_grads;  /* and gradients of norms of at least so many elements; 0: none */
    tti_cuts *cuts; /* n_tensor > 1: of the first graph, which the next ones follow; NULL: freely */
} tti_target;

typedef struct tti_pass {
    const char *name;
    const char *doc;
    tutti_status (*run)(tutti_graph **g, const tti_target *target);
} tti_pass;

/* The pipeline of a training graph, in order: i = 0, 1, ... until NULL. */
const tti_pass *tti_pass_at(int i);

/* Runs the pipeline with the verifier after each pass.  until: stop after the pass of that name
 * (NULL: run all). */
tutti_status tti_pipeline_run(tutti_graph **g, const tti_target *target, const char *until);

/* The same from the pass `from` (NULL: the first) to that before `to` (NULL: the last), on a graph
 * that has passed the earlier ones. */
tutti_status tti_pipeline_between(tutti_graph **g, const tti_target *target, const char *from,
                                  const char *to);

/* Removes nodes that no output needs, identities, and repeated pure nodes. */
tutti_status tti_pass_simplify(tutti_graph **g, const tti_target *target);

/* Computations that are written out in primitive operators, as exporters of models do: our ops in
 * their place (passes/recognize/).  Before autodiff. */
tutti_status tti_pass_recognize(tutti_graph **g, const tti_target *target);

/* The graph of worker target->tensor of n_tensor, which has shards of the parameters
 * (ops/tensor_shard.h) and exchanges values with the others (ops/tensor_collectives.c); results are
 * as of the whole, on each of them.  TUTTI_E_INVALID if hardly anything can be cut so.  Before
 * autodiff. */
tutti_status tti_pass_tensor(tutti_graph **g, const tti_target *target);

/* Linear layers of one input whose results are only joined: one layer over joined weights.  A bias
 * after a product: a linear layer.  Does nothing unless target->fuse. */
tutti_status tti_pass_products(tutti_graph **g, const tti_target *target);

/* Mixed precision: TTI_COMPUTE nodes and what lies between them in target->compute_dtype, by cast
 * nodes; parameters, sums, losses, outputs stay f32, and so do the gradients that autodiff appends
 * after.  target->loss_scale adds the f32 scalar input "loss_scale" to a graph for training. */
tutti_status tti_pass_precision(tutti_graph **g, const tti_target *target);

/* Appends the gradient of output "loss_sum" with respect to every parameter, as outputs
 * "grad.NAME": zeros where tti_mark_unreached has found none.  Does nothing on a graph that is not
 * for training.  The gradients are multiplied by the input "loss_scale" where the graph has one. */
tutti_status tti_pass_autodiff(tutti_graph **g, const tti_target *target);

/* For the training graph of an imported model, with its loss: sets the attribute "reach" of the
 * parameters that no gradient reaches, such as a bias that only decides which experts are taken, or
 * only one of zeros.  Autodiff refuses such a parameter without the attribute.  TUTTI_E_NOMEM. */
tutti_status tti_mark_unreached(tutti_graph *g);

/* Checks that the graph may be cut along the batch: every op has a shard rule for it, gradients and
 * sums come out as terms of a sum.  The interface (tti_split_placements) carries any mesh axis. */
tutti_status tti_pass_split(tutti_graph **g, const tti_target *target);

/* Places every value of g for the given placements of its sources: out [g->n_values] is indexed by
 * value id; source(node, user) says how an input, parameter or constant lies. */
typedef tti_placement (*tti_source_placement)(const tti_node *source, const void *user);
tutti_status tti_split_placements(const tutti_graph *g, tti_source_placement source,
                                  const void *user, tti_placement *out);

/* Places the outputs of one node for its inputs.  Where the op has no rule for a whole value beside
 * parts of the batch, a whole value of equal rows counts as divided too, since each worker makes as
 * many rows as it has samples: its in becomes TTI_SPLIT. */
tutti_status tti_split_node(const tti_node *node, tti_placement *in, tti_placement *placed);

/* The same for the samples of a batch: out [g->n_values]. */
tutti_status tti_split_batch(const tutti_graph *g, tti_placement *out);

/* Chooses N,H,W,C bytes for 4-D activations where the backend prefers them. */
tutti_status tti_pass_layout(tutti_graph **g, const tti_target *target);

/* Bias and activation into linear and conv; chains of elementwise nodes into one. */
tutti_status tti_pass_fuse(tutti_graph **g, const tti_target *target);

/* A part of the fuse pass (fuse_norm.c): does nothing unless target->fuse_residual_norm. */
tutti_status tti_fuse_norm(tutti_graph **g, const tti_target *target);

/* A part of the fuse pass (fuse_linear.c): does nothing unless target->fuse_linear_grad. */
tutti_status tti_fuse_linear(tutti_graph **g, const tti_target *target);

/* The addition that would go into this product there; NULL: none. */
const tti_node *tti_added_by(const tti_rewrite *rw, const tti_node *product);

/* Part of the fuse pass, run first: moves the mask of a relu past a max pooling's gradient, where
 * there are fewer elements (sink_mask.c).  Leaves dead nodes. */
tutti_status tti_sink_masks(tutti_graph **g);

/* A part of the fuse pass (fuse_sums.c): does nothing unless target->fuse_sums. */
tutti_status tti_fuse_sums(tutti_graph **g, const tti_target *target);

/* Part of the fuse pass (fuse_pool.c): convolutions and the poolings after them, if
 * target->fuses_pool allows it. */
tutti_status tti_fuse_pool(tutti_graph **g, const tti_target *target);

/* A part of the fuse pass (fuse_loss.c): does nothing unless target->fuse_loss. */
tutti_status tti_fuse_loss(tutti_graph **g, const tti_target *target);

/* Part of the fuse pass, run last (fuse_head.c), for the first head that target->joins_head
 * accepts: does nothing unless target->fuse_loss. */
tutti_status tti_fuse_head(tutti_graph **g, const tti_target *target);

/* Parts of the fuse pass (fuse_bn.c), before and after the masks, and when dead nodes are removed:
 * do nothing unless target->fuse_batch_norm. */
tutti_status tti_fuse_bn_join(tutti_graph **g, const tti_target *target);
tutti_status tti_fuse_bn_masks(tutti_graph **g, const tti_target *target);
tutti_status tti_fuse_bn_pairs(tutti_graph **g, const tti_target *target);
tutti_status tti_fuse_bn_bits(tutti_graph **g, const tti_target *target);
tutti_status tti_fuse_conv_join(tutti_graph **g, const tti_target *target);
tutti_status tti_fuse_conv_sums(tutti_graph **g, const tti_target *target);
tutti_status tti_fuse_conv_stats(tutti_graph **g, const tti_target *target);

/* Part of the fuse pass (fuse_bn_pool.c): batch norms and the poolings after them. */
tutti_status tti_fuse_bn_pool(tutti_graph **g, const tti_target *target);

/* Orders the nodes: gradients of parameters as early as they can be had. */
tutti_status tti_pass_schedule(tutti_graph **g, const tti_target *target);

/* Forward nodes again in the backward pass, so that their results need not be kept: the same bits
 * in fewer bytes.  Fails with TUTTI_E_INVALID and the least that is possible when the activations
 * cannot be brought down to target->recompute_bytes. */
tutti_status tti_pass_recompute(tutti_graph **g, const tti_target *target);

/* The most bytes of activations that live at the same time when the nodes of g run in order, with
 * views and writing in place; what memplan.c needs at least. */
tutti_status tti_graph_peak_bytes(const tutti_graph *g, size_t *n_bytes);

#endif /* TTI_PASSES_PASSES_H */
