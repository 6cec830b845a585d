/* plan_cache_test.c - plans of a cache are those that blueprints would have of their own. */
#include "train/setup/plan_cache.h"

#include "train/setup/blueprint.h"
#include "train/small_job.h"

typedef struct layout {
    const char *workers, *tensor, *pipeline, *zero, *recompute;
} layout;

static const tti_blueprint *make(const layout *l, tti_plan_cache *cache) {
    const tti_blueprint *b;
    tutti_job *job =
        SMALL_JOB("model.name=gpt2", "model.layers=2", "model.heads=2", "model.width=16",
                  "data.format=random_tokens", "data.vocabulary=16", "data.context=16", l->workers,
                  l->tensor, l->pipeline, l->zero, l->recompute);
    T_OK(tti_job_resolve(job, 4));
    T_OK(tti_blueprint_create_like(job, NULL, NULL, cache, &b));
    tutti_job_destroy(job);
    return b;
}

static void expect_same(const tti_plan *a, const tti_plan *b) {
    assert_true(tti_plan_digest(a) == tti_plan_digest(b));
    T_EQ(a->shard.n_steps, b->shard.n_steps);
    T_EQ(a->shard.arena_bytes, b->shard.arena_bytes);
    T_EQ(a->eval.n_steps, b->eval.n_steps);
    T_EQ(a->eval.arena_bytes, b->eval.arena_bytes);
    T_EQ(a->n_low_copies, b->n_low_copies);
    T_EQ(a->n_buckets, b->n_buckets);
    T_NEAR(tti_program_flops(&a->shard), tti_program_flops(&b->shard), 0);
}

T_CASE(plans_are_as_without_a_cache) {
    T_UNUSED;
    static const layout layouts[] = {
        {"parallel.workers=2", "parallel.tensor=1", "parallel.pipeline=1", "parallel.zero=0",
         "train.recompute=none"},
        {"parallel.workers=2", "parallel.tensor=1", "parallel.pipeline=1", "parallel.zero=3",
         "train.recompute=none"},
        {"parallel.workers=2", "parallel.tensor=1", "parallel.pipeline=1", "parallel.zero=0",
         "train.recompute=light"},
        {"parallel.workers=4", "parallel.tensor=1", "parallel.pipeline=2", "parallel.zero=0",
         "train.recompute=none"},
        {"parallel.workers=4", "parallel.tensor=2", "parallel.pipeline=2", "parallel.zero=0",
         "train.recompute=block"},
        {"parallel.workers=2", "parallel.tensor=2", "parallel.pipeline=1", "parallel.zero=0",
         "train.recompute=none"}};
    tti_plan_cache *cache;
    T_OK(tti_plan_cache_create(&cache));
    for (size_t i = 0; i < TTI_COUNT(layouts); i++) {
        const tti_blueprint *own = make(&layouts[i], NULL), *lent = make(&layouts[i], cache);
        expect_same(own->plan, lent->plan);
        T_EQ(own->n_model_ranks, lent->n_model_ranks);
        for (int k = 0; k < own->n_model_ranks; k++) expect_same(own->plans[k], lent->plans[k]);
        tti_blueprint_destroy(own);
        tti_blueprint_destroy(lent);
    }
    tti_plan_cache_destroy(cache);
}

/* The whole model is in every mesh the same, and so are tensor shards of a layer. */
T_CASE(what_is_alike_is_one) {
    T_UNUSED;
    static const layout whole = {"parallel.workers=2", "parallel.tensor=1", "parallel.pipeline=1",
                                 "parallel.zero=0", "train.recompute=none"};
    static const layout parts = {"parallel.workers=4", "parallel.tensor=2", "parallel.pipeline=2",
                                 "parallel.zero=0", "train.recompute=none"};
    tti_plan_cache *cache;
    T_OK(tti_plan_cache_create(&cache));
    const tti_blueprint *a = make(&whole, cache), *b = make(&whole, cache),
                        *c = make(&parts, cache);
    assert_ptr_equal(a->plan, b->plan);
    T_EQ(c->n_model_ranks, 4);
    assert_ptr_equal(c->plans[0], c->plans[1]);
    assert_ptr_equal(c->plans[2], c->plans[3]);
    assert_ptr_not_equal(c->plans[0], c->plans[2]);
    assert_ptr_not_equal(c->plans[0], c->plan);
    tti_blueprint_destroy(a);
    tti_blueprint_destroy(b);
    tti_blueprint_destroy(c);
    tti_plan_cache_destroy(cache);
}

T_CASE(a_failure_is_reported_again) {
    T_UNUSED;
    tti_plan_cache *cache;
    tti_plan *plan = NULL;
    tti_plan_key of = {.n_shards = 2}, other = {.n_shards = 4};
    tutti_status st;
    T_OK(tti_plan_cache_create(&cache));
    assert_false(tti_plan_cache_find(cache, &of, &plan, &st));
    st = tti_fail(TUTTI_E_CONFIG, "no: 3 layers");
    T_EQ(tti_plan_cache_put(cache, &of, NULL, st), TUTTI_E_CONFIG);
    tti_clear_error();
    assert_false(tti_plan_cache_find(cache, &other, &plan, &st));
    assert_true(tti_plan_cache_find(cache, &of, &plan, &st));
    T_FAILS(st, TUTTI_E_CONFIG, "no: 3 layers");
    assert_null(plan);
    T_OK(tti_plan_cache_put(cache, &other, NULL, TUTTI_OK)); /* it may be, and was not made */
    assert_true(tti_plan_cache_find(cache, &other, &plan, &st));
    T_OK(st);
    assert_null(plan);
    tti_plan_cache_destroy(cache);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_as_without_a_cache),
        cmocka_unit_test(what_is_alike_is_one),
        cmocka_unit_test(a_failure_is_reported_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
