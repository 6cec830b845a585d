/* drafts.h - caches intermediate graphs at the points where the passes of different plans diverge.
 *
 * Plans of one model for the ranks of a pipeline are the same up to the pass "stages"; plans that
 * differ in recomputation or in 16-bit parameter copies up to "recompute".  For code that makes
 * many plans, such as the planner, these passes run once: the graph and the results of the passes
 * are stored before both points and copied for the next plan.  A failure is stored too.
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

/* Runs all passes on *g, as tti_pipeline_run, or on a copy of a cached graph: *g may be NULL if it
 * is known. target->cuts is not NULL; the graph for training comes first, as in a plan. */
tutti_status tti_drafts_run(tti_drafts *drafts, const tti_draft_of *of, const tti_target *target,
                            tutti_graph **g);

#endif /* TTI_PASSES_DRAFTS_H */
