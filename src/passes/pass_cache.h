/* pass_cache.h - caches intermediate graphs at the points where the passes of different plans
 * diverge.
 *
 * Plans of one model for the ranks of a pipeline are the same up to the pass "stages"; plans that
 * differ in recomputation or in 16-bit parameter copies up to "recompute".  For code that makes
 * many plans, such as the planner, these passes run once: the graph and the results of the passes
 * are stored before both points and copied for the next plan.  A failure is stored too.
 *
 * One thread at a time. */
#ifndef TTI_PASSES_PASS_CACHE_H
#define TTI_PASSES_PASS_CACHE_H

#include "passes/stages/stages.h"

typedef struct tti_pass_cache tti_pass_cache;

/* Which graph, before any pass: the same number and training, the same graph. */
typedef struct tti_cached_graph_key {
    int64_t number;
    bool training;
} tti_cached_graph_key;

tutti_status tti_pass_cache_create(tti_pass_cache **out);
void tti_pass_cache_destroy(tti_pass_cache *pass_cache);

/* Whether tti_pass_cache_run needs no graph for this target, neither for training nor for
 * evaluation.
 */
bool tti_pass_cache_has(const tti_pass_cache *pass_cache, int64_t number, const tti_target *target);

/* Runs all passes on *g, as tti_pipeline_run, or on a copy of a cached graph: *g may be NULL if it
 * is known. target->cuts is not NULL; the graph for training comes first, as in a plan. */
tutti_status tti_pass_cache_run(tti_pass_cache *pass_cache, const tti_cached_graph_key *of,
                                const tti_target *target, tutti_graph **g);

#endif /* TTI_PASSES_PASS_CACHE_H */
