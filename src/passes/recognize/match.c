/* match.c - reads pattern texts and matches them.
 *
 * Matching works on a list of goals, each a pattern for a value.  A choice (the order of two
 * inputs, how many linear steps to skip) is tried with all later goals, so that the first complete
 * match that the row accepts is found wherever it lies. */
#include "passes/recognize/match.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "ops/op_table.h"

typedef enum kind { VAR, OP, LINEAR, MEAN, NUMBER, SQUARE, CUBE, RSQRT } kind;

enum { MAX_KIDS = 3, MAX_STEPS = 6 };

struct tti_pattern {
    kind kind;
    const tti_op *op;
    int slot; /* a letter, or a number; -1: none */
    int n_kids;
    const tti_pattern *kid[MAX_KIDS];
};

/* ---- reading ---- */

typedef struct reader {
    tti_arena *arena;
    const char *at;
} reader;

static void skip_blanks(reader *r) {
    while (*r->at == ' ') r->at++;
}

static bool take(reader *r, char c) {
    skip_blanks(r);
    if (*r->at != c) return false;
    r->at++;
    return true;
}

static void name_kind(const char *word, tti_pattern *p) {
    static const struct {
        const char *word;
        kind kind;
    } words[] = {{"L", LINEAR},  {"M", MEAN},    {"K", NUMBER},
                 {"sq", SQUARE}, {"cube", CUBE}, {"rsqrt", RSQRT}};
    p->kind = OP;
    for (size_t i = 0; i < TTI_COUNT(words); i++)
        if (strcmp(words[i].word, word) == 0) p->kind = words[i].kind;
    if (p->kind != OP) return;
    if (strlen(word) == 1) {
        p->kind = VAR;
        p->slot = word[0] - 'a';
        return;
    }
    p->op = tti_op_find(word);
    TTI_ASSERT(p->op);
}

static int read_digit(reader *r) {
    TTI_ASSERT(isdigit((unsigned char)*r->at));
    int digit = *r->at++ - '0';
    TTI_ASSERT(digit < TTI_MATCH_SLOTS);
    return digit;
}

static const tti_pattern *read_pattern(reader *r) {
    char word[32];
    size_t n = 0;
    tti_pattern *p = tti_arena_alloc(r->arena, sizeof *p);
    if (!p) return NULL;
    p->slot = -1;
    skip_blanks(r);
    while (isalpha((unsigned char)*r->at) || *r->at == '_') {
        TTI_ASSERT(n + 1 < sizeof word);
        word[n++] = *r->at++;
        if (n == 1 && strchr("LMK", word[0])) break; /* a digit follows */
    }
    word[n] = '\0';
    TTI_ASSERT(n > 0);
    name_kind(word, p);
    if (p->kind == LINEAR || p->kind == MEAN || p->kind == NUMBER) p->slot = read_digit(r);
    if (take(r, '@')) p->slot = read_digit(r);
    if (!take(r, '(')) return p;
    do {
        TTI_ASSERT(p->n_kids < MAX_KIDS);
        if (!(p->kid[p->n_kids++] = read_pattern(r))) return NULL;
    } while (take(r, ','));
    TTI_ASSERT(take(r, ')'));
    return p;
}

const tti_pattern *tti_pattern_read(tti_arena *arena, const char *text) {
    reader r = {arena, text};
    const tti_pattern *p = read_pattern(&r);
    TTI_ASSERT(!p || *r.at == '\0');
    return p;
}

/* ---- matching ---- */

typedef struct goal {
    const tti_pattern *p;
    tutti_value *value;
    const struct goal *next;
} goal;

typedef struct search {
    tti_match *m;
    bool (*fits)(tti_match *m);
} search;

static bool solve(const search *s, const goal *g);

bool tti_match_take(tti_match *m, const tti_node *node) {
    if (m->n_inner == TTI_MATCH_INNER) return false;
    m->inner[m->n_inner++] = node;
    return true;
}

/* Solves the remaining goals; on failure releases the nodes that were taken for them. */
static bool solve_from(const search *s, const goal *g, int n_inner) {
    if (solve(s, g)) return true;
    s->m->n_inner = n_inner;
    return false;
}

static bool solve_kids(const search *s, const goal *g, tutti_value *const *in, int at) {
    if (at == g->p->n_kids) return solve(s, g->next);
    goal kids[MAX_KIDS];
    for (int k = 0; k < g->p->n_kids; k++)
        kids[k] = (goal){g->p->kid[k], in[k], k + 1 < g->p->n_kids ? &kids[k + 1] : g->next};
    return solve(s, &kids[0]);
}

static bool solve_op(const search *s, const goal *g) {
    const tti_node *node = g->value->node;
    tti_match *m = s->m;
    int n_inner = m->n_inner;
    if (node->op != g->p->op || g->value->out != 0 || node->n_in != g->p->n_kids) return false;
    if (!tti_match_take(m, node)) return false;
    const tti_node *before = g->p->slot >= 0 ? m->node[g->p->slot] : NULL;
    if (g->p->slot >= 0) m->node[g->p->slot] = node;
    if (solve_kids(s, g, node->in, 0)) return true;
    m->n_inner = n_inner + 1;
    if ((node->op->traits & TTI_COMMUTATIVE) && node->in[0] != node->in[1] &&
        solve_kids(s, g, (tutti_value *[]){node->in[1], node->in[0]}, 0))
        return true;
    if (g->p->slot >= 0) m->node[g->p->slot] = before;
    m->n_inner = n_inner;
    return false;
}

/* Tries the largest number of skipped steps first. */
static bool solve_linear(const search *s, const goal *g) {
    tti_match *m = s->m;
    int slot = g->p->slot, n = 0, n_inner = m->n_inner;
    double alpha[MAX_STEPS + 1] = {1}, beta[MAX_STEPS + 1] = {0}, a, b;
    tutti_value *at[MAX_STEPS + 1] = {g->value};
    const double factor = m->factor[slot], shift = m->shift[slot];
    while (n < MAX_STEPS) {
        tutti_value *x = tti_linear_step(m->scene, at[n], &a, &b);
        if (!x) break;
        beta[n + 1] = alpha[n] * b + beta[n], alpha[n + 1] = alpha[n] * a;
        at[++n] = x;
    }
    for (; n >= 0; n--) {
        m->n_inner = n_inner;
        bool taken = true;
        for (int i = 0; i < n; i++) taken = taken && tti_match_take(m, at[i]->node);
        m->factor[slot] = alpha[n], m->shift[slot] = beta[n];
        if (taken && solve(s, &(goal){g->p->kid[0], at[n], g->next})) return true;
    }
    m->n_inner = n_inner;
    m->factor[slot] = factor, m->shift[slot] = shift;
    return false;
}

static bool is_last_axis(const tti_node *reduced) {
    const tti_attr *axes = tti_attr_get(reduced, "axes");
    int n_dims = reduced->in[0]->type.shape.n_dims;
    return axes->n == 1 && (axes->v[0] == n_dims - 1 || axes->v[0] == -1);
}

/* A sum or mean over the last axis that keeps it, or is given it back by a reshape. */
static bool solve_mean(const search *s, const goal *g) {
    const tti_node *node = g->value->node, *reduced = node;
    int n_inner = s->m->n_inner;
    if (tti_is_op(node, "reshape")) reduced = node->in[0]->node;
    bool is_mean = tti_is_op(reduced, "mean");
    if ((!is_mean && !tti_is_op(reduced, "sum")) || !is_last_axis(reduced)) return false;
    tutti_shape kept = reduced->in[0]->type.shape;
    int64_t n = kept.dim[kept.n_dims - 1];
    kept.dim[kept.n_dims - 1] = 1;
    if (!tti_shape_equal(&kept, &g->value->type.shape) || n < 1) return false;
    if (!tti_match_take(s->m, node) || (reduced != node && !tti_match_take(s->m, reduced)))
        return false;
    s->m->factor[g->p->slot] = is_mean ? 1 : (double)n;
    return solve_from(s, &(goal){g->p->kid[0], reduced->in[0], g->next}, n_inner);
}

/* The value whose square this is; NULL: it is not a square. */
static tutti_value *root_of_square(const search *s, const tutti_value *value) {
    const tti_node *node = value->node;
    double power;
    if (tti_is_op(node, "square")) return node->in[0];
    if (tti_is_op(node, "mul") && node->in[0] == node->in[1]) return node->in[0];
    bool is_square = tti_is_op(node, "pow") && tti_is_uniform(s->m->scene, node->in[1], &power) &&
                     power == 2 && tti_shape_equal(&node->in[0]->type.shape, &value->type.shape);
    return is_square ? node->in[0] : NULL;
}

static bool solve_square(const search *s, const goal *g) {
    int n_inner = s->m->n_inner;
    tutti_value *x = root_of_square(s, g->value);
    if (!x || !tti_match_take(s->m, g->value->node)) return false;
    return solve_from(s, &(goal){g->p->kid[0], x, g->next}, n_inner);
}

static bool solve_cube(const search *s, const goal *g) {
    const tti_node *node = g->value->node;
    int n_inner = s->m->n_inner;
    double power;
    tutti_value *x = NULL;
    if (!tti_match_take(s->m, node)) return false;
    if (tti_is_op(node, "pow") && tti_is_uniform(s->m->scene, node->in[1], &power) && power == 3 &&
        tti_shape_equal(&node->in[0]->type.shape, &g->value->type.shape))
        x = node->in[0];
    for (int i = 0; i < 2 && !x && tti_is_op(node, "mul"); i++) {
        tutti_value *base = root_of_square(s, node->in[i]);
        if (base && base == node->in[1 - i] && tti_match_take(s->m, node->in[i]->node)) x = base;
    }
    if (x) return solve_from(s, &(goal){g->p->kid[0], x, g->next}, n_inner);
    s->m->n_inner = n_inner;
    return false;
}

static bool solve_rsqrt(const search *s, const goal *g) {
    const tti_node *node = g->value->node;
    tti_scene *scene = s->m->scene;
    int n_inner = s->m->n_inner;
    double x;
    tutti_value *under = NULL;
    if (!tti_match_take(s->m, node)) return false;
    if (tti_is_op(node, "pow") && tti_is_uniform(scene, node->in[1], &x) && x == -0.5)
        under = node->in[0];
    if (tti_is_op(node, "div") && tti_is_op(node->in[1]->node, "sqrt") &&
        tti_is_uniform(scene, node->in[0], &x) && x == 1 && tti_match_take(s->m, node->in[1]->node))
        under = node->in[1]->node->in[0];
    if (under && tti_shape_equal(&under->type.shape, &g->value->type.shape))
        return solve_from(s, &(goal){g->p->kid[0], under, g->next}, n_inner);
    s->m->n_inner = n_inner;
    return false;
}

static bool solve_var(const search *s, const goal *g) {
    tutti_value **var = &s->m->var[g->p->slot];
    if (*var) return *var == g->value && solve(s, g->next);
    *var = g->value;
    if (solve(s, g->next)) return true;
    *var = NULL;
    return false;
}

static bool solve(const search *s, const goal *g) {
    if (!g) return s->fits(s->m) && tti_match_is_closed(s->m);
    switch (g->p->kind) {
        case VAR:
            return solve_var(s, g);
        case OP:
            return solve_op(s, g);
        case LINEAR:
            return solve_linear(s, g);
        case MEAN:
            return solve_mean(s, g);
        case SQUARE:
            return solve_square(s, g);
        case CUBE:
            return solve_cube(s, g);
        case RSQRT:
            return solve_rsqrt(s, g);
        case NUMBER:
            break;
    }
    return tti_is_uniform(s->m->scene, g->value, &s->m->factor[g->p->slot]) && solve(s, g->next);
}

bool tti_pattern_match(const tti_pattern *p, const tti_node *root, bool (*fits)(tti_match *m),
                       tti_match *m) {
    const search s = {m, fits};
    if (p->kind == OP && p->op != root->op) return false;
    return solve(&s, &(goal){p, root->out[0], NULL});
}

/* ---- users of a match ---- */

bool tti_match_is_closed(const tti_match *m) {
    tti_scene *s = m->scene;
    s->stamp++;
    for (int i = 0; i < m->n_inner; i++) s->mark[m->inner[i]->id] = s->stamp;
    for (int i = 0; i < m->n_inner; i++) {
        const tti_node *node = m->inner[i];
        if (node == m->root || (node->op->traits & TTI_SOURCE)) continue;
        for (int k = 0; k < node->op->n_out; k++) {
            int v = node->out[k]->id;
            if (s->is_output[v]) return false;
            for (int u = s->first_user[v]; u < s->first_user[v + 1]; u++)
                if (s->mark[s->user[u]->id] != s->stamp) return false;
        }
    }
    return true;
}

bool tti_close_to(double x, double y) { return fabs(x - y) <= 1e-6 * fabs(y); }
