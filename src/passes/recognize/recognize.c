/* recognize.c - the pass: rounds of matching and replacing until no row matches.
 *
 * A round looks for matches from the last node to the first, so that a large pattern comes before
 * the smaller ones inside it, and makes one new graph.  Nodes inside of a match are copied too;
 * simplify then drops them, as no one reads them. */
#include "passes/recognize/recognize.h"

#include <stdlib.h>
#include <string.h>

#include "passes/passes.h"
#include "passes/recognize/pattern_rows.h"

enum { MAX_ROUNDS = 100, MAX_ROWS = 64 };

/* Patterns, and then what makes the graph smaller around them. */
static const tti_row *const families[] = {tti_rows_loss, tti_rows_attention,  tti_rows_rotary,
                                          tti_rows_norm, tti_rows_activation, tti_rows_view,
                                          tti_rows_turn, tti_rows_slice};
enum { N_EARLY = TTI_COUNT(families) - 2 }; /* slices, turns move only if nothing else is found */

/* The rows with their texts read. */
typedef struct table {
    tti_arena arena;
    const tti_row *row[MAX_ROWS];
    const tti_pattern *spelling[MAX_ROWS][TTI_MAX_SPELLINGS];
    int n, n_early;
} table;

static tutti_status read_table(table *t) {
    *t = (table){.n = 0};
    for (size_t f = 0; f < TTI_COUNT(families); f++) {
        if (f == N_EARLY) t->n_early = t->n;
        for (const tti_row *row = families[f]; row->build; row++) {
            TTI_ASSERT(t->n < MAX_ROWS);
            for (int i = 0; i < TTI_MAX_SPELLINGS && row->spellings[i]; i++)
                t->spelling[t->n][i] = tti_pattern_read(&t->arena, row->spellings[i]);
            t->row[t->n++] = row;
        }
    }
    return tti_arena_failed(&t->arena) ? tti_fail(TUTTI_E_NOMEM, "recognize: out of memory")
                                       : TUTTI_OK;
}

/* ---- a round ---- */

typedef struct found_match {
    const tti_row *row;
    tti_match match;
} found_match;

static bool match_row(const table *t, int r, tti_scene *s, const tti_node *root, tti_match *m) {
    const tti_row *row = t->row[r];
    const tti_match none = {.scene = s, .root = root};
    *m = none;
    if (row->find) return row->find(m) && tti_match_is_closed(m);
    for (int i = 0; i < TTI_MAX_SPELLINGS && t->spelling[r][i]; i++) {
        *m = none;
        if (tti_pattern_match(t->spelling[r][i], root, row->fits, m)) return true;
    }
    return false;
}

/* Other outputs have no reader: the replacement has none for them. */
static bool first_output_alone(const tti_scene *s, const tti_node *node) {
    bool alone = true;
    for (int k = 1; k < node->op->n_out && alone; k++) {
        int v = node->out[k]->id;
        alone = s->first_user[v] == s->first_user[v + 1] && !s->is_output[v];
    }
    return alone;
}

static void try_node(const table *t, int n_rows, tti_scene *s, const tti_node *root,
                     found_match **out) {
    tti_match m;
    *out = NULL;
    if ((root->op->traits & TTI_SOURCE) || s->taken[root->id] || !first_output_alone(s, root))
        return;
    for (int r = 0; r < n_rows; r++) {
        if (!match_row(t, r, s, root, &m)) continue;
        if (!(*out = tti_arena_alloc(&s->arena, sizeof **out))) return;
        **out = (found_match){t->row[r], m};
        for (int i = 0; i < m.n_inner; i++) s->taken[m.inner[i]->id] = true;
        return;
    }
}

static tutti_status replace(tutti_graph **g, found_match *const *at) {
    const tutti_graph *from = *g;
    tti_rewrite rw;
    TTI_TRY(tti_rewrite_begin(&rw, *g));
    for (int i = 0; i < from->n_nodes; i++) {
        const tti_node *node = from->nodes[i];
        if (!at[i]) {
            tti_rewrite_copy(&rw, node);
            continue;
        }
        tti_graph_set_stage(tti_new_graph(&rw), node->stage);
        tutti_graph_set_module(tti_new_graph(&rw), node->module);
        tti_map(&rw, node->out[0], at[i]->row->build(&rw, &at[i]->match));
    }
    return tti_rewrite_finish(&rw, g);
}

static void report(const tti_scene *s, found_match *const *at, tti_findings *found) {
    for (int i = 0; i < s->g->n_nodes; i++)
        if (at[i] && at[i]->row->name)
            tti_findings_add(found, at[i]->match.name ? at[i]->match.name : at[i]->row->name,
                             s->g->nodes[i]);
}

static tutti_status run_round(const table *t, int n_rows, tutti_graph **g, tti_findings *found,
                              bool *any) {
    const tutti_graph *from = *g;
    tti_scene s;
    *any = false;
    TTI_TRY(tti_scene_begin(&s, *g));
    found_match **at = calloc((size_t)from->n_nodes + 1, sizeof *at);
    for (int i = from->n_nodes - 1; at && i >= 0; i--) {
        try_node(t, n_rows, &s, from->nodes[i], &at[i]);
        *any = *any || at[i];
    }
    tutti_status st = TUTTI_OK;
    if (!at || tti_arena_failed(&s.arena)) st = tti_fail(TUTTI_E_NOMEM, "recognize: out of memory");
    if (st == TUTTI_OK && *any && found) report(&s, at, found);
    if (st == TUTTI_OK && *any) st = replace(g, at);
    free(at);
    tti_scene_end(&s);
    return st;
}

tutti_status tti_recognize(tutti_graph **g, tti_findings *found) {
    static const tti_target any_target = {0};
    table t;
    bool any = true, late = false;
    tutti_status st = read_table(&t);
    for (int i = 0; i < MAX_ROUNDS && st == TUTTI_OK && (any || !late); i++) {
        late = !any;
        st = run_round(&t, late ? t.n : t.n_early, g, found, &any);
        if (st == TUTTI_OK && any) st = tti_pass_simplify(g, &any_target);
    }
    tti_arena_free(&t.arena);
    return st;
}

tutti_status tti_pass_recognize(tutti_graph **g, const tti_target *target) {
    (void)target;
    return tti_recognize(g, NULL);
}
