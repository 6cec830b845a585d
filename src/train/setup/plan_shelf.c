/* plan_shelf.c - the plan cache: plans, and reasons why there is none. */
#include "train/setup/plan_shelf.h"

#include <stdlib.h>
#include <string.h>

typedef struct volume {
    tti_shelved of;
    tti_plan *plan;      /* NULL: there is none, or it was only asked whether it may be: */
    tutti_status failed; /* with this, */
    char *why;           /* for that reason */
} volume;

struct tti_plan_shelf {
    tti_drafts *drafts;
    volume *all; /* [n] */
    int n, room;
};

tutti_status tti_plan_shelf_create(tti_plan_shelf **out) {
    *out = calloc(1, sizeof **out);
    if (!*out) return tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
    tutti_status st = tti_drafts_create(&(*out)->drafts);
    if (st != TUTTI_OK) {
        free(*out);
        *out = NULL;
    }
    return st;
}

void tti_plan_shelf_destroy(tti_plan_shelf *shelf) {
    if (!shelf) return;
    for (int i = 0; i < shelf->n; i++) {
        tti_plan_destroy(shelf->all[i].plan);
        free(shelf->all[i].why);
    }
    tti_drafts_destroy(shelf->drafts);
    free(shelf->all);
    free(shelf);
}

/* Targets that differ in their padding alone have a plan each; no two others have one. */
static bool is_same(const tti_shelved *a, const tti_shelved *b) {
    return memcmp(&a->target, &b->target, sizeof a->target) == 0 && a->backend == b->backend &&
           a->n_shards == b->n_shards && a->by_creation == b->by_creation &&
           a->bucket_bytes == b->bucket_bytes && a->bucket_most == b->bucket_most &&
           a->bucket_growth >= b->bucket_growth && a->bucket_growth <= b->bucket_growth;
}

bool tti_plan_shelf_find(const tti_plan_shelf *shelf, const tti_shelved *wanted, tti_plan **out,
                         tutti_status *st) {
    for (int i = 0; i < shelf->n; i++) {
        const volume *v = &shelf->all[i];
        if (!is_same(&v->of, wanted)) continue;
        if (v->plan) *out = v->plan;
        *st = v->failed == TUTTI_OK ? TUTTI_OK : tti_fail(v->failed, "%s", v->why);
        return true;
    }
    return false;
}

static bool has_room(tti_plan_shelf *shelf) {
    if (shelf->n < shelf->room) return true;
    int room = shelf->room ? 2 * shelf->room : 64;
    volume *all = realloc(shelf->all, (size_t)room * sizeof *all);
    if (!all) return false;
    shelf->all = all;
    shelf->room = room;
    return true;
}

tutti_status tti_plan_shelf_put(tti_plan_shelf *shelf, const tti_shelved *made, tti_plan *plan,
                                tutti_status st) {
    if (st == TUTTI_E_NOMEM) return st;
    volume v = {.plan = plan, .failed = st, .why = plan ? NULL : strdup(tutti_last_error())};
    memcpy(&v.of, made, sizeof v.of); /* with its padding */
    if ((plan || v.why) && has_room(shelf)) {
        shelf->all[shelf->n++] = v;
        return st;
    }
    tti_plan_destroy(plan);
    free(v.why);
    return tti_fail(TUTTI_E_NOMEM, "plan: out of memory");
}

tti_drafts *tti_plan_shelf_drafts(tti_plan_shelf *shelf) { return shelf->drafts; }
