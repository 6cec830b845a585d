/* drafts.h - graphs on their way to plans, kept where the ways of plans part.
 *
 * Plans of one model for the ranks of a pipeline are the same up to the pass "stages", and plans
 * that compute other nodes twice, or write other parameters in 16 bits, up to "recompute".  Who
 * makes many of them, as the planner does, has these passes run once: a graph and what the passes
 * have found is kept in front of both, and copied for the next plan that comes by.  A failure is
 * kept too.
 *
 * One thread at a time. */
#ifndef TTI_PASSES_DRAFTS_H
#define TTI_PASSES_DRAFTS_H

#include "passes/stages.h"

typedef struct tti_drafts tti_drafts;

/* Which graph, before any pass: the same number and training, the same graph. */
typedef struct tti_draft_of {
    int64_t number;
    bool training;
} tti_draft_of;

tutti_status tti_drafts_create(tti_drafts **out);
void tti_drafts_destroy(tti_drafts *drafts);

/* Whether tti_drafts_run needs no graph for this target, neither for training nor for evaluation.
 */
bool tti_drafts_have(const tti_drafts *drafts, int64_t number, const tti_target *target);

/* Runs all passes on *g, as tti_pipeline_run, or on a copy of what is kept of them: *g may be NULL
 * where it is known.  target->cuts is not NULL; the graph for training goes first, as in a plan. */
tutti_status tti_drafts_run(tti_drafts *drafts, const tti_draft_of *of, const tti_target *target,
                            tutti_graph **g);

#endif /* TTI_PASSES_DRAFTS_H */
