/* plan_cache.c - stores plans, and for layouts without a plan the failure. */
#include "train/setup/plan_cache.h"

#include <stdlib.h>
#include <string.h>

typedef struct cached_plan {
    tti_plan_key of;
    tti_plan *plan;      /* NULL: there is none, or only the layout was checked */
    tutti_status failed; /* status of the failure */
    char *why;           /* text of the failure, owned */
} cached_plan;

struct tti_plan_cache {
    tti_pass_cache *pass_cache;
    cached_plan *all; /* [n] */
    int n, room;
};

tutti_status tti_plan_cache_create(tti_plan_cache **out) {
    *out = calloc(1, sizeof **out);
    if (!*out) return tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    tutti_status st = tti_pass_cache_create(&(*out)->pass_cache);
    if (st != TUTTI_OK) {
        free(*out);
        *out = NULL;
    }
    return st;
}

void tti_plan_cache_destroy(tti_plan_cache *cache) {
    if (!cache) return;
    for (int i = 0; i < cache->n; i++) {
        tti_plan_destroy(cache->all[i].plan);
        free(cache->all[i].why);
    }
    tti_pass_cache_destroy(cache->pass_cache);
    free(cache->all);
    free(cache);
}

/* Compares bytes.  Targets that differ only in padding get separate plans, which is harmless. */
static bool is_same(const tti_plan_key *a, const tti_plan_key *b) {
    return memcmp(&a->target, &b->target, sizeof a->target) == 0 && a->backend == b->backend &&
           a->n_shards == b->n_shards && a->by_creation == b->by_creation &&
           a->bucket_bytes == b->bucket_bytes && a->bucket_most == b->bucket_most &&
           a->bucket_growth >= b->bucket_growth && a->bucket_growth <= b->bucket_growth;
}

bool tti_plan_cache_find(const tti_plan_cache *cache, const tti_plan_key *wanted, tti_plan **out,
                         tutti_status *st) {
    for (int i = 0; i < cache->n; i++) {
        const cached_plan *v = &cache->all[i];
        if (!is_same(&v->of, wanted)) continue;
        if (v->plan) *out = v->plan;
        *st = v->failed == TUTTI_OK ? TUTTI_OK : tti_fail(v->failed, "%s", v->why);
        return true;
    }
    return false;
}

static bool has_room(tti_plan_cache *cache) {
    if (cache->n < cache->room) return true;
    int room = cache->room ? 2 * cache->room : 64;
    cached_plan *all = realloc(cache->all, (size_t)room * sizeof *all);
    if (!all) return false;
    cache->all = all;
    cache->room = room;
    return true;
}

tutti_status tti_plan_cache_put(tti_plan_cache *cache, const tti_plan_key *made, tti_plan *plan,
                                tutti_status st) {
    if (st == TUTTI_E_NOMEM) return st;
    cached_plan v = {.plan = plan, .failed = st, .why = plan ? NULL : strdup(tutti_last_error())};
    memcpy(&v.of, made, sizeof v.of); /* copies padding too */
    if ((plan || v.why) && has_room(cache)) {
        cache->all[cache->n++] = v;
        return st;
    }
    tti_plan_destroy(plan);
    free(v.why);
    return tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
}

tti_pass_cache *tti_plan_cache_passes(tti_plan_cache *cache) { return cache->pass_cache; }
