/* pipeline.c - the ordered table of passes, with the verifier between them. */
#include <string.h>

#include "passes/stages/stages.h"

static const tti_pass pipeline[] = {
    {"simplify", "drop dead, repeated and identity nodes", tti_pass_simplify},
    {"recognize", "replace computations that are written out by one op each", tti_pass_recognize},
    {"tensor", "divide layers over a tensor axis and add the collectives", tti_pass_tensor},
    {"products", "merge linear layers of one input, and a bias into its product",
     tti_pass_products},
    {"precision", "use 16-bit floats in expensive operations", tti_pass_precision},
    {"assign_stages", "assign nodes to the ranks of a pipeline", tti_pass_assign_stages},
    {"autodiff", "append the gradient of loss_sum for every parameter", tti_pass_autodiff},
    {"split", "prove that the graph may be divided along the batch", tti_pass_split},
    {"stages", "keep the nodes of one rank of a pipeline", tti_pass_stages},
    {"layout", "use N,H,W,C memory order where the backend is faster with it", tti_pass_layout},
    {"fuse", "merge bias and activation into linear and conv; build elementwise chains",
     tti_pass_fuse},
    {"schedule", "compute gradients as early as possible", tti_pass_schedule},
    {"recompute", "recompute activations instead of keeping them", tti_pass_recompute},
};

const tti_pass *tti_pass_at(int i) {
    return i >= 0 && (size_t)i < TTI_COUNT(pipeline) ? &pipeline[i] : NULL;
}

static tutti_status run_pass(size_t i, tutti_graph **g, const tti_target *target) {
    TTI_TRY(pipeline[i].run(g, target));
    tutti_status st = tti_graph_verify(*g);
    if (st != TUTTI_OK) tti_fail_context("after pass %s: ", pipeline[i].name);
    return st;
}

tutti_status tti_pipeline_run(tutti_graph **g, const tti_target *target, const char *until) {
    TTI_TRY(tti_graph_verify(*g));
    for (size_t i = 0; i < TTI_COUNT(pipeline); i++) {
        TTI_TRY(run_pass(i, g, target));
        if (until && strcmp(pipeline[i].name, until) == 0) return TUTTI_OK;
    }
    return until ? tti_fail(TUTTI_E_INVALID, "no pass is called '%s'; `tutti passes` lists them",
                            until)
                 : TUTTI_OK;
}

/* The index of a pass in the table; the number of passes if there is none of that name. */
static size_t place_of(const char *name) {
    size_t i = 0;
    while (name && i < TTI_COUNT(pipeline) && strcmp(pipeline[i].name, name) != 0) i++;
    return name ? i : TTI_COUNT(pipeline);
}

tutti_status tti_pipeline_between(tutti_graph **g, const tti_target *target, const char *from,
                                  const char *to) {
    size_t first = from ? place_of(from) : 0, last = place_of(to);
    TTI_ASSERT(first < TTI_COUNT(pipeline));
    if (first == 0) TTI_TRY(tti_graph_verify(*g));
    for (size_t i = first; i < last; i++) TTI_TRY(run_pass(i, g, target));
    return TUTTI_OK;
}
