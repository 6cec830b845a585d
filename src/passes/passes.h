/* passes.h - graph in, graph out; one file per pass, the order in pipeline.c.
 *
 * After a failure *g may hold appended nodes and is only good to be destroyed. */
#ifndef TTI_PASSES_PASSES_H
#define TTI_PASSES_PASSES_H

#include "ir/graph.h"

/* What the passes need to know about the target; the backend fills it, so that passes and
 * backends do not see each other. */
typedef struct tti_target {
    bool (*prefers_channels_last)(const tti_node *node); /* NULL: never */
    bool fuse;                                           /* epilogues and elementwise chains */
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

/* Removes nodes that no output needs, identities, and repeated pure nodes. */
tutti_status tti_pass_simplify(tutti_graph **g, const tti_target *target);

/* Appends the gradient of output "loss_sum" with respect to every parameter, as outputs
 * "grad.NAME".  Does nothing on a graph that is not for training. */
tutti_status tti_pass_autodiff(tutti_graph **g, const tti_target *target);

/* Checks that the graph may be cut along the batch: every op has a shard rule for it, gradients and
 * sums come out as terms of a sum.  The interface (tti_split_placements) carries any mesh axis. */
tutti_status tti_pass_split(tutti_graph **g, const tti_target *target);

/* Places every value of g for the given placements of its sources: out [g->n_values] is indexed by
 * value id; source(node, user) says how an input, parameter or constant lies. */
typedef tti_placement (*tti_source_placement)(const tti_node *source, const void *user);
tutti_status tti_split_placements(const tutti_graph *g, tti_source_placement source,
                                  const void *user, tti_placement *out);

/* Chooses N,H,W,C bytes for 4-D activations where the backend prefers them. */
tutti_status tti_pass_layout(tutti_graph **g, const tti_target *target);

/* Bias and activation into linear and conv; chains of elementwise nodes into one. */
tutti_status tti_pass_fuse(tutti_graph **g, const tti_target *target);

/* Orders the nodes: gradients of parameters as early as they can be had. */
tutti_status tti_pass_schedule(tutti_graph **g, const tti_target *target);

#endif /* TTI_PASSES_PASSES_H */
