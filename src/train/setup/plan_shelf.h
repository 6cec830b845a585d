/* plan_shelf.h - the plans of one job in many layouts, each made once.
 *
 * For who looks at plans and does not train by them: what pieces of layers have alike, layouts
 * have, and shards of the same size, is one plan.  A piece of each layer stands for its neighbours,
 * whose graphs differ from its own in attributes only (passes/tensor.c).
 *
 * Jobs of one shelf differ in what a layout is and in what follows of it: workers and their mesh,
 * shards, zero, recomputation.  One thread at a time. */
#ifndef TTI_TRAIN_PLAN_SHELF_H
#define TTI_TRAIN_PLAN_SHELF_H

#include "backend/backend.h"
#include "passes/drafts.h"
#include "passes/plan.h"

typedef struct tti_plan_shelf tti_plan_shelf;

/* What makes a plan another one. */
typedef struct tti_shelved {
    tti_target target;
    const tti_backend *backend;
    int n_shards;
    bool by_creation;
    size_t bucket_bytes, bucket_most;
    double bucket_growth;
} tti_shelved;

tutti_status tti_plan_shelf_create(tti_plan_shelf **out);

/* And all plans on it. */
void tti_plan_shelf_destroy(tti_plan_shelf *shelf);

/* True: the plan was asked for before, *st says with what success, and *out is the shelf's. */
bool tti_plan_shelf_find(const tti_plan_shelf *shelf, const tti_shelved *wanted, tti_plan **out,
                         tutti_status *st);

/* Puts a plan there, or, where plan is NULL, with what success it was asked for, told by
 * tutti_last_error(); returns st.  Owns the plan from now on, also on failure. */
tutti_status tti_plan_shelf_put(tti_plan_shelf *shelf, const tti_shelved *made, tti_plan *plan,
                                tutti_status st);

/* What plans of one number of shards have had made. */
tti_drafts *tti_plan_shelf_drafts(tti_plan_shelf *shelf);

#endif /* TTI_TRAIN_PLAN_SHELF_H */
