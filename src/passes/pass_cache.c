/* pass_cache.c - runs the passes in three parts and caches the graphs between them.
 *
 * The passes of a part see a target without the fields that only later passes read.  So a cached
 * graph is valid for every target that agrees in the other fields. */
#include "passes/pass_cache.h"

#include <stdlib.h>
#include <string.h>

/* Clears the fields that only this pass, later passes and the plan read. */
static void blank_from_recompute(tti_target *t) {
    t->recompute = TTI_RECOMPUTE_NONE;
    t->recompute_bytes = 0;
    t->keeps_low_copies = false;
}

static void blank_from_stages(tti_target *t) {
    blank_from_recompute(t);
    t->stage = 0;
}

/* The passes before which graphs are cached, in their order. */
static const struct {
    const char *pass;
    void (*blank)(tti_target *target);
} forks[] = {{"stages", blank_from_stages}, {"recompute", blank_from_recompute}};

enum { N_FORKS = TTI_COUNT(forks) };

typedef struct cached_graph {
    tti_cached_graph_key of;
    int fork;
    tti_target key; /* blank, and without what points to one plan's own */
    tutti_graph *graph;
    tti_stages stages; /* results so far */
    tti_cuts cuts;
    tutti_status failed;
    char *why;
} cached_graph;

struct tti_pass_cache {
    cached_graph *all; /* [n] */
    int n, room;
};

static tti_target key_of(const tti_target *target, int fork) {
    tti_target key = *target;
    forks[fork].blank(&key);
    key.stages = NULL;
    key.cuts = NULL;
    return key;
}

/* Two targets that differ in their padding alone are worked on twice; no two others are one. */
static const cached_graph *find(const tti_pass_cache *d, const tti_cached_graph_key *of,
                                const tti_target *target, int fork) {
    const tti_target key = key_of(target, fork);
    for (int i = 0; i < d->n; i++) {
        const cached_graph *x = &d->all[i];
        if (x->fork == fork && x->of.number == of->number && x->of.training == of->training &&
            memcmp(&x->key, &key, sizeof key) == 0)
            return x;
    }
    return NULL;
}

/* ---- copies ---- */

static tutti_status no_memory(void) { return tti_fail(TUTTI_E_NOMEM, "pass cache: out of memory"); }

static tutti_status copy_text(const char *from, char **to) {
    *to = from ? strdup(from) : NULL;
    return from && !*to ? no_memory() : TUTTI_OK;
}

static tutti_status copy_boundaries(const tti_stage_boundaries *from, tti_stage_boundaries *to) {
    free(to->of);
    *to = (tti_stage_boundaries){0};
    if (from->n == 0) return TUTTI_OK;
    to->of = malloc((size_t)from->n * sizeof *to->of);
    if (!to->of) return no_memory();
    memcpy(to->of, from->of, (size_t)from->n * sizeof *to->of);
    to->n = from->n;
    return TUTTI_OK;
}

static tutti_status copy_tied(const tti_stages *from, tti_stages *to) {
    to->tied = calloc((size_t)from->n_tied + 1, sizeof *to->tied);
    if (!to->tied) return no_memory();
    for (int i = 0; i < from->n_tied; i++) {
        const tti_tied_param *tied = &from->tied[i];
        size_t n_bytes = (size_t)tied->n_stages * sizeof *tied->stages;
        to->n_tied++;
        TTI_TRY(copy_text(tied->name, &to->tied[i].name));
        to->tied[i].stages = malloc(n_bytes);
        if (!to->tied[i].stages) return no_memory();
        memcpy(to->tied[i].stages, tied->stages, n_bytes);
        to->tied[i].n_stages = tied->n_stages;
    }
    return TUTTI_OK;
}

/* Copies the division of the model, but not the graph that it belongs to. */
static tutti_status copy_starts(const tti_stages *from, tti_stages *to) {
    to->n_stages = from->n_stages;
    to->n_chunks = from->n_chunks;
    TTI_TRY(tti_stages_alloc_chunks(to));
    for (int q = 0; q < tti_stages_n_all_chunks(from); q++) {
        to->start[q].nth = from->start[q].nth;
        to->cost[q] = from->cost[q];
        TTI_TRY(copy_text(from->start[q].param, &to->start[q].param));
    }
    to->is_cut = from->is_cut;
    to->is_joined = from->is_joined;
    to->n_metrics = from->n_metrics;
    return copy_tied(from, to);
}

/* The graph for evaluation is cut as that for training, which went before. */
static tutti_status copy_stages(const tti_stages *from, bool training, tti_stages *to) {
    if (training) TTI_TRY(copy_starts(from, to));
    to->n_forward = from->n_forward;
    return training ? copy_boundaries(&from->train, &to->train)
                    : copy_boundaries(&from->eval, &to->eval);
}

static tutti_status copy_cuts(const tti_cuts *from, tti_cuts *to) {
    to->of = calloc((size_t)from->n + 1, sizeof *to->of);
    if (!to->of) return no_memory();
    for (; to->n < from->n; to->n++) {
        to->of[to->n].cut = from->of[to->n].cut;
        TTI_TRY(copy_text(from->of[to->n].name, &to->of[to->n].name));
    }
    return TUTTI_OK;
}

static void cached_graph_fini(cached_graph *x) {
    tutti_graph_destroy(x->graph);
    tti_stages_fini(&x->stages);
    tti_cuts_fini(&x->cuts);
    free(x->why);
}

/* ---- passes with and without the cache ---- */

static tutti_status fill(cached_graph *x, const tti_target *target, const tutti_graph *g) {
    if (x->failed != TUTTI_OK) return copy_text(tutti_last_error(), &x->why);
    TTI_TRY(tti_graph_copy(g, &x->graph));
    if (target->stages) TTI_TRY(copy_stages(target->stages, x->of.training, &x->stages));
    return x->of.training ? copy_cuts(target->cuts, &x->cuts) : TUTTI_OK;
}

static tutti_status keep(tti_pass_cache *d, const tti_cached_graph_key *of,
                         const tti_target *target, int fork, const tutti_graph *g,
                         tutti_status failed) {
    cached_graph x = {.of = *of, .fork = fork, .failed = failed};
    const tti_target key = key_of(target, fork);
    memcpy(&x.key, &key, sizeof key); /* with its padding */
    if (d->n == d->room) {
        int room = d->room ? 2 * d->room : 64;
        cached_graph *all = realloc(d->all, (size_t)room * sizeof *all);
        if (!all) return no_memory();
        d->all = all;
        d->room = room;
    }
    tutti_status st = fill(&x, target, g);
    if (st != TUTTI_OK)
        cached_graph_fini(&x);
    else
        d->all[d->n++] = x;
    return st;
}

static tutti_status take(const cached_graph *x, const tti_target *target, tutti_graph **g) {
    if (x->failed != TUTTI_OK) return tti_fail(x->failed, "%s", x->why);
    tutti_graph_destroy(*g);
    TTI_TRY(tti_graph_copy(x->graph, g));
    if (target->stages) TTI_TRY(copy_stages(&x->stages, x->of.training, target->stages));
    return x->of.training ? copy_cuts(&x->cuts, target->cuts) : TUTTI_OK;
}

static tutti_status run_to(tti_pass_cache *d, const tti_cached_graph_key *of,
                           const tti_target *target, int fork, const char *from, tutti_graph **g) {
    tti_target seen = *target;
    forks[fork].blank(&seen);
    tutti_status st = tti_pipeline_between(g, &seen, from, forks[fork].pass);
    if (st == TUTTI_E_NOMEM) return st;
    tutti_status kept = keep(d, of, target, fork, *g, st);
    return st == TUTTI_OK ? kept : st;
}

tutti_status tti_pass_cache_run(tti_pass_cache *d, const tti_cached_graph_key *of,
                                const tti_target *target, tutti_graph **g) {
    const char *from = NULL;
    const cached_graph *kept = NULL;
    int next = N_FORKS;
    while (!kept && next > 0) kept = find(d, of, target, --next);
    if (kept) {
        TTI_TRY(take(kept, target, g));
        from = forks[next++].pass;
    }
    for (; next < N_FORKS; next++) {
        TTI_TRY(run_to(d, of, target, next, from, g));
        from = forks[next].pass;
    }
    return tti_pipeline_between(g, target, from, NULL);
}

bool tti_pass_cache_has(const tti_pass_cache *d, int64_t number, const tti_target *target) {
    const cached_graph *train = find(d, &(tti_cached_graph_key){number, true}, target, 0);
    return train && (train->failed != TUTTI_OK ||
                     find(d, &(tti_cached_graph_key){number, false}, target, 0));
}

tutti_status tti_pass_cache_create(tti_pass_cache **out) {
    *out = calloc(1, sizeof **out);
    return *out ? TUTTI_OK : no_memory();
}

void tti_pass_cache_destroy(tti_pass_cache *d) {
    if (!d) return;
    for (int i = 0; i < d->n; i++) cached_graph_fini(&d->all[i]);
    free(d->all);
    free(d);
}
