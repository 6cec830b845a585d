/* plan_cache.h - a cache of the plans of one job in many layouts.
 *
 * For code that examines plans without training.  Layouts share plans if their tensor shards and
 * shard sizes are equal.  One tensor shard represents the others, whose graphs differ only in
 * attributes (passes/tensor/tensor.c).
 *
 * Jobs of one cache may differ only in the layout and in values that follow from it: workers and
 * their mesh, shards, zero, recomputation.  Used by one thread at a time. */
#ifndef TTI_TRAIN_PLAN_CACHE_H
#define TTI_TRAIN_PLAN_CACHE_H

#include "backend/backend.h"
#include "passes/pass_cache.h"
#include "passes/plan.h"

typedef struct tti_plan_cache tti_plan_cache;

/* The key of a plan. */
typedef struct tti_plan_key {
    tti_target target;
    const tti_backend *backend;
    int n_shards;
    bool by_creation;
    size_t bucket_bytes, bucket_most;
    double bucket_growth;
} tti_plan_key;

tutti_status tti_plan_cache_create(tti_plan_cache **out);

/* Also frees all plans in it. */
void tti_plan_cache_destroy(tti_plan_cache *cache);

/* True if the plan was requested before: *st is the result, and *out belongs to the cache. */
bool tti_plan_cache_find(const tti_plan_cache *cache, const tti_plan_key *wanted, tti_plan **out,
                         tutti_status *st);

/* Stores a plan, or, if plan is NULL, its failure st with the text of tutti_last_error(); returns
 * st.  Takes ownership of the plan, also on failure. */
tutti_status tti_plan_cache_put(tti_plan_cache *cache, const tti_plan_key *made, tti_plan *plan,
                                tutti_status st);

/* The pass cache of plans with this number of shards. */
tti_pass_cache *tti_plan_cache_passes(tti_plan_cache *cache);

#endif /* TTI_TRAIN_PLAN_CACHE_H */
