/* attention_scores.c - reads the steps between the product of queries and keys and the softmax: a
 * scale, a cap, masks and biases, in any order that the op can express.
 *
 * A constant that all heads and samples share is a mask: an element is seen (0), hidden (very low),
 * or a number.  Everything else that is added is a bias, and may be trained or depend on inputs. */
#include <math.h>
#include <stdlib.h>

#include "ops/op_table.h"
#include "passes/recognize/attention.h"

/* Scores that are lower by `masked` have no weight in f32; `replaced` in place of a score is as if
 * it were added, since the score is less than the rounding. */
static const double masked = -1e4, replaced = -1e9;

/* Where constants hide all keys of a query by numbers below this, the products have no gradient if
 * they were replaced, but the op has one: it adds constant masks. */
static const double lowest = -65536;

enum { MOST_STEPS = 24, MOST_DEPTH = 12, MOST_BIAS_STEPS = 8 };

static int64_t dim_at(const tutti_value *x, int from_end) {
    return x->type.shape.dim[x->type.shape.n_dims - from_end];
}

bool tti_is_plain_reshape(const tti_node *node) {
    return tti_is_op(node, "reshape") && tti_attr_int(node, "one_row") == 0;
}

bool tti_keeps_matrices(const tti_node *node) {
    return tti_is_plain_reshape(node) && node->in[0]->type.shape.n_dims >= 3 &&
           node->out[0]->type.shape.n_dims >= 3 &&
           dim_at(node->in[0], 1) == dim_at(node->out[0], 1) &&
           dim_at(node->in[0], 2) == dim_at(node->out[0], 2);
}

/* The scores are scale a x + c, plus the biases, for each query and key, where x is the value `at`;
 * a and c NULL: 1 and 0. */
typedef struct scores {
    tti_match *m;
    tti_attention *out;
    tutti_value *at;
    double scale, *a, *c; /* [n_t n_s], owned */
    int64_t n_t, n_s;
    bool capped;
    int mask_seen;   /* masks from inputs that replace the constant masks; -1: no constant mask */
    bool alternates; /* masks from inputs replace some constant masks and not others */
} scores;

/* ---- masks ---- */

static bool make_elems(scores *s) {
    size_t n = (size_t)(s->n_t * s->n_s);
    if (s->a) return true;
    s->a = malloc((n + 1) * sizeof *s->a);
    s->c = calloc(n + 1, sizeof *s->c);
    for (size_t i = 0; s->a && i < n; i++) s->a[i] = 1;
    return s->a && s->c;
}

/* A constant over queries and keys, which all heads and samples share. */
typedef struct mask {
    const double *x;
    int64_t t_step, s_step;
} mask;

static bool read_mask(scores *s, const tutti_value *value, mask *out) {
    const tutti_shape *shape = &value->type.shape;
    int n = shape->n_dims;
    int64_t keys = n > 0 ? shape->dim[n - 1] : 1, queries = n > 1 ? shape->dim[n - 2] : 1;
    int64_t n_matrix = keys * queries, n_elems = tti_value_n_elems(value);
    *out = (mask){tti_constant_of(s->m->scene, value), queries == 1 ? 0 : keys, keys == 1 ? 0 : 1};
    if (!out->x || (keys != 1 && keys != s->n_s) || (queries != 1 && queries != s->n_t))
        return false;
    for (int64_t i = n_matrix; i < n_elems; i++)
        if (out->x[i] != out->x[i - n_matrix]) return false;
    return make_elems(s);
}

/* How an element of a mask enters the scores. */
typedef enum masking { ADD, MUL, KEEP } masking;

static void apply_mask(scores *s, masking how, const mask *m) {
    s->alternates = s->alternates || (s->mask_seen >= 0 && s->mask_seen != s->out->n_seen);
    s->mask_seen = s->out->n_seen;
    for (int64_t t = 0; t < s->n_t; t++) {
        double *a = s->a + t * s->n_s, *c = s->c + t * s->n_s;
        const double *x = m->x + t * m->t_step;
        for (int64_t i = 0; i < s->n_s; i++) {
            double e = x[i * m->s_step];
            if (how == ADD)
                c[i] += a[i] == 0 ? 0 : s->scale * a[i] * e;
            else
                a[i] *= how == MUL ? e : e != 0;
        }
    }
}

/* Whether the mask hides what causal attention and a window hide. */
static bool hides_by_place(const scores *s, bool causal, int64_t window) {
    for (int64_t t = 0; t < s->n_t; t++) {
        bool sees = false;
        for (int64_t j = 0; j < s->n_s; j++) {
            double a = s->a[t * s->n_s + j], c = s->c[t * s->n_s + j];
            int64_t ahead = j - t, away = ahead < 0 ? -ahead : ahead;
            bool hidden = (causal && ahead > 0) || (window > 0 && away >= window);
            if (hidden ? !(c <= masked) : c != 0 || a != 1) return false;
            sees = sees || !hidden;
        }
        if (!sees) return false;
    }
    return true;
}

/* Finds numbers among the scores: hidden scores may be replaced, others keep their scale. */
static const float *mask_as_numbers(const scores *s, const char **why) {
    size_t n = (size_t)(s->n_t * s->n_s);
    float *out = tti_arena_alloc(&s->m->scene->arena, (n + 1) * sizeof *out);
    if (!out) *why = "out of memory";
    for (size_t i = 0, n_low = 0, n_replaced = 0; i < n && !*why; i++) {
        if (i % (size_t)s->n_s == 0) n_low = n_replaced = 0;
        out[i] = (float)s->c[i];
        if (s->a[i] != 1 && !(s->c[i] <= replaced)) *why = "a mask scales the scores";
        n_low += isfinite(s->c[i]) && s->c[i] < lowest, n_replaced += s->a[i] != 1;
        if (n_low == (size_t)s->n_s && n_replaced > 0)
            *why = "a mask replaces all scores of a query";
    }
    return out;
}

/* ---- biases ---- */

static bool add_bias(scores *s, const tutti_value *value, const tutti_shape *level) {
    tti_attention *a = s->out;
    if (a->n_bias == TTI_MAX_BIASES || value->type.dtype != TUTTI_F32) return false;
    a->bias[a->n_bias++] = (tti_attention_bias){
        .value = value, .scores = *level, .factor = s->scale, .n_seen = a->n_seen};
    return true;
}

/* A value that is added to the scores; a sum of a constant mask and others is taken apart. */
static bool read_added(scores *s, const tutti_value *value, const tutti_shape *level, int depth) {
    mask x;
    const tti_node *node = value->node;
    const tti_scene *scene = s->m->scene;
    if (scene->is_constant[value->id] && read_mask(s, value, &x)) {
        apply_mask(s, ADD, &x);
        return true;
    }
    bool has_mask = tti_is_op(node, "add") &&
                    (scene->is_constant[node->in[0]->id] || scene->is_constant[node->in[1]->id]);
    if (!has_mask || depth == 0) return add_bias(s, value, level);
    return read_added(s, node->in[0], level, depth - 1) &&
           read_added(s, node->in[1], level, depth - 1);
}

/* Whether one of two masks of 0 and 1 is 1 where the other is 0. */
static bool are_opposite(const tutti_value *x, const tutti_value *y) {
    const tutti_value *pair[2] = {x, y};
    for (int i = 0; i < 2; i++) {
        const tti_node *node = pair[i]->node;
        if (tti_is_op(node, "affine") && tti_attr_float(node, "alpha") == -1 &&
            tti_attr_float(node, "beta") == 1 && node->in[0] == pair[1 - i])
            return true;
    }
    return false;
}

/* The very low number that a bias puts where keep(x, seen) is 0; 0: no bias does. */
static double filled_number(const scores *s, const tutti_value *seen) {
    for (int i = 0; i < s->out->n_bias; i++) {
        tti_attention_bias *bias = &s->out->bias[i];
        const tti_node *node = bias->value->node;
        double low;
        if (!tti_is_op(node, "keep") || !are_opposite(node->in[1], seen) ||
            !tti_is_uniform(s->m->scene, node->in[0], &low) || !(low * bias->factor <= replaced))
            continue;
        bias->filled = low * bias->factor;
        return bias->filled;
    }
    return 0;
}

/* Takes keep(x, seen) of a mask from inputs.  Nothing else counts where -infinity is filled in. */
static bool take_replaced(scores *s, const tutti_value *seen) {
    tti_attention *a = s->out;
    double filled = filled_number(s, seen);
    if (filled == 0 || a->n_seen == TTI_MAX_BIASES) return false;
    a->replaces = true;
    if (isfinite(filled))
        a->seen[a->n_seen++] = (tti_attention_bias){.value = seen, .scores = s->at->type.shape};
    return true;
}

/* ---- steps ---- */

/* A rough look at which input of a sum has the product. */
static bool leads_to_product(const tutti_value *x, int depth) {
    const tti_node *node = x->node;
    if (tti_is_op(node, "matmul")) return true;
    if (depth == 0 || (node->op->traits & TTI_SOURCE)) return false;
    bool both = tti_is_op(node, "add") || tti_is_op(node, "mul");
    bool one = tti_is_op(node, "affine") || tti_is_op(node, "keep") || tti_is_op(node, "div") ||
               tti_is_op(node, "tanh") || tti_keeps_matrices(node);
    return ((both || one) && leads_to_product(node->in[0], depth - 1)) ||
           (both && leads_to_product(node->in[1], depth - 1));
}

/* The input of a sum or product that has the scores; -1: none has their shape. */
static int scores_side(const tti_node *node) {
    for (int side = 0; side < 2; side++)
        if (tti_shape_equal(&node->in[side]->type.shape, &node->out[0]->type.shape) &&
            leads_to_product(node->in[side], MOST_DEPTH))
            return side;
    return -1;
}

/* One step of add, mul or keep; false: it is none that the op has. */
static bool mask_step(scores *s) {
    const tti_node *node = s->at->node;
    mask x;
    bool is_add = tti_is_op(node, "add"), is_keep = tti_is_op(node, "keep");
    if (s->capped || (!is_add && !is_keep && !tti_is_op(node, "mul"))) return false;
    int side = is_keep ? 0 : scores_side(node);
    if (side < 0) return false;
    tutti_value *other = node->in[1 - side];
    if (!tti_shape_equal(&node->in[side]->type.shape, &s->at->type.shape)) return false;
    if (is_add) {
        if (!read_added(s, other, &s->at->type.shape, MOST_DEPTH)) return false;
    } else if (s->m->scene->is_constant[other->id] && read_mask(s, other, &x)) {
        apply_mask(s, is_keep ? KEEP : MUL, &x);
    } else if (!is_keep || !take_replaced(s, other)) {
        return false;
    }
    s->at = node->in[side];
    return true;
}

/* cap tanh(x / cap): only a scale may lie between it and the product. */
static bool cap_step(scores *s) {
    const tti_node *node = s->at->node;
    if (s->capped || !tti_is_op(node, "tanh") || !(s->scale > 0)) return false;
    s->capped = true;
    s->out->softcap = s->scale;
    s->at = node->in[0];
    return true;
}

static const tti_node *find_product(scores *s) {
    for (int i = 0; i < MOST_STEPS; i++) {
        const tti_node *node = s->at->node;
        double a, b;
        if (tti_is_op(node, "matmul")) return node;
        if (!tti_match_take(s->m, node)) return NULL;
        tutti_value *x = tti_linear_step(s->m->scene, s->at, &a, &b);
        if (x && b == 0) {
            s->scale *= a;
            s->at = x;
        } else if (tti_keeps_matrices(node)) {
            s->at = node->in[0];
        } else if (!mask_step(s) && !cap_step(s)) {
            return NULL;
        }
    }
    return NULL;
}

/* ---- masks and biases together ---- */

/* Whether a bias is made with a number that hides what it is added to, within some steps. */
static bool has_low_number(const tti_match *m, const tutti_value *x, int depth) {
    const tti_node *node = x->node;
    double e = 0;
    if (tti_is_uniform(m->scene, x, &e)) return isfinite(e) && e <= masked;
    if (depth == 0 || (node->op->traits & TTI_SOURCE)) return false;
    if (tti_is_op(node, "affine") && (fabs(tti_attr_float(node, "alpha")) >= -masked ||
                                      fabs(tti_attr_float(node, "beta")) >= -masked))
        return true;
    for (int i = 0; i < node->n_in; i++)
        if (has_low_number(m, node->in[i], depth - 1)) return true;
    return false;
}

/* How an element of the constant masks changes its score. */
typedef enum effect { NOTHING, ADDED, ADDED_LOW, FILLED, HIDDEN, N_EFFECTS } effect;

static void count_effects(const scores *s, size_t *n) {
    size_t n_elems = (size_t)(s->n_t * s->n_s);
    for (size_t i = 0; s->a && i < n_elems; i++) {
        double c = s->c[i];
        n[c == -INFINITY ? HIDDEN
          : s->a[i] != 1 ? FILLED
          : c == 0       ? NOTHING
          : c < lowest   ? ADDED_LOW
                         : ADDED]++;
    }
}

/* Whether constant masks and masks from inputs fill in the same number. */
static bool fill_same_number(const scores *s) {
    size_t n_elems = (size_t)(s->n_t * s->n_s);
    double number = 0;
    for (int i = 0; i < s->out->n_bias; i++) {
        double own = s->out->bias[i].filled;
        if (own != 0 && number != 0 && own != number) return false;
        number = own != 0 ? own : number;
    }
    for (size_t i = 0; i < n_elems; i++)
        if (s->a[i] != 1 && s->c[i] != number) return false;
    return true;
}

/* A mask from inputs may hide all keys that the constant masks leave to a query.  The softmax then
 * gives weights to keys that finite numbers hide, so the constant masks must stay numbers.  Sets
 * *by_number in this case, and out->mask_seen: the numbers are 0 where one of the first mask_seen
 * masks from inputs replaces them.  Returns the reason if the op cannot express it, else NULL. */
static const char *judge_together(const scores *s, tti_attention *out, bool *by_number) {
    bool hides = false, others = false;
    size_t n[N_EFFECTS] = {0};
    for (int i = 0; i < out->n_bias; i++) {
        const tti_attention_bias *bias = &out->bias[i];
        bool low = s->m->scene->of_input[bias->value->id] &&
                   has_low_number(s->m, bias->value, MOST_BIAS_STEPS);
        if (out->replaces && low && bias->filled == 0)
            return "one mask from inputs is added, another one replaces scores";
        hides = hides || low;
        others = others || bias->filled == 0;
    }
    count_effects(s, n);
    bool is_replaced = s->mask_seen > 0, fills = n[FILLED] > 0;
    bool only_hides = n[FILLED] + n[ADDED] + n[ADDED_LOW] == 0;
    if (!hides || !s->a || (only_hides && !is_replaced)) return NULL;
    *by_number = true;
    if (out->replaces ? n[ADDED_LOW] > 0 : fills)
        return "one mask is added, another one replaces scores";
    if (!out->replaces) return NULL;
    out->mask_seen = s->mask_seen;
    if (s->alternates) return "constant masks and masks from inputs take turns";
    if (fills && others) return "constant masks and masks from inputs replace biases";
    if (fills && s->mask_seen < out->n_seen) {
        if (n[ADDED] > 0 || !fill_same_number(s))
            return "a constant mask replaces a mask from inputs";
        out->mask_seen = out->n_seen; /* the same number, from either of the two */
    }
    return NULL;
}

/* Sets causal and window, or mask, or why. */
static void judge_masks(const scores *s, tti_attention *out) {
    bool by_number = false;
    if (!out->why) out->why = judge_together(s, out, &by_number);
    if (out->why || !s->a || s->n_t * s->n_s == 0) return;
    int64_t ahead = 0, back = 0;
    for (int64_t t = 0; t < s->n_t; t++)
        for (int64_t j = 0; j < s->n_s; j++) {
            if (s->c[t * s->n_s + j] <= masked) continue;
            ahead = TTI_MAX(ahead, j - t);
            back = TTI_MAX(back, t - j);
        }
    bool causal = ahead == 0 && s->n_s > 1;
    int64_t reach = TTI_MAX(ahead, back) + 1;
    int64_t window = reach < TTI_MAX(s->n_t, s->n_s) ? reach : 0;
    if (hides_by_place(s, false, 0)) return;
    if (!by_number && hides_by_place(s, causal, window))
        out->causal = causal, out->window = window;
    else
        out->mask = mask_as_numbers(s, &out->why);
}

const tti_node *tti_attention_scores(tti_match *m, tutti_value *at, tti_attention *a) {
    scores s = {.m = m, .out = a, .at = at, .scale = 1, .mask_seen = -1};
    s.n_t = dim_at(at, 2), s.n_s = dim_at(at, 1);
    const tti_node *product = find_product(&s);
    if (product) {
        judge_masks(&s, a);
        a->scale *= s.scale;
    }
    free(s.a);
    free(s.c);
    return product;
}

/* ---- the biases as the op takes them ---- */

static int64_t aligned_dim(const tutti_shape *part, int n_dims, int d) {
    int at = d - (n_dims - part->n_dims);
    return at < 0 ? 1 : part->dim[at];
}

/* Leading dimensions first .. end-1 of the scores, of which the bias has its own or 1: the number
 * that it has of them; 0: those that it has do not come last. */
static int64_t rows_of(const tti_attention_bias *bias, int first, int end) {
    int64_t rows = 1;
    bool repeats = false;
    for (int d = end - 1; d >= first; d--) {
        int64_t full = bias->scores.dim[d];
        if (full == 1) continue;
        if (aligned_dim(&bias->value->type.shape, bias->scores.n_dims, d) == 1)
            repeats = true;
        else if (repeats)
            return 0;
        else
            rows *= full;
    }
    return rows;
}

static const char *place_bias(const tti_match *m, const tti_attention *a,
                              tti_attention_bias *bias) {
    static const char other[] = "a bias repeats within heads or samples";
    const tutti_shape *own = &bias->value->type.shape;
    int n = bias->scores.n_dims, first_head = n - 2;
    int64_t n_heads = 1;
    while (n_heads < a->h && first_head > 0) n_heads *= bias->scores.dim[--first_head];
    int64_t rows = rows_of(bias, 0, first_head), heads = rows_of(bias, first_head, n - 2);
    if (n_heads == a->b * a->h && n_heads != a->h) { /* [B H,..] */
        if (heads != 1 && heads != n_heads) return other;
        rows = heads == 1 ? 1 : a->b, heads = heads == 1 ? 1 : a->h;
    } else if (n_heads != a->h || rows == 0 || (heads != 1 && heads != a->h)) {
        return other;
    }
    bias->shape = TUTTI_SHAPE(rows, heads, aligned_dim(own, n, n - 2), aligned_dim(own, n, n - 1));
    if (!m->scene->of_input[bias->value->id]) return NULL;
    if (rows != a->b || !tti_batch_is_first(m->scene, bias->value))
        return "a bias is computed from inputs, but has no row for each sample";
    return NULL;
}

void tti_attention_place_biases(const tti_match *m, tti_attention *a) {
    bool by_sample = false;
    for (int i = 0; i < a->n_seen && !a->why; i++) a->why = place_bias(m, a, &a->seen[i]);
    for (int i = 0; i < a->n_bias && !a->why; i++) {
        a->why = place_bias(m, a, &a->bias[i]);
        int64_t rows = a->bias[i].shape.dim[0];
        if (m->scene->of_input[a->bias[i].value->id])
            by_sample = true;
        else if (rows > 1 && a->bias_period > 1 && rows != a->bias_period)
            a->why = "biases repeat after different numbers of samples";
        else
            a->bias_period = rows > 1 ? rows : a->bias_period;
    }
    if (!a->why && by_sample && a->bias_period > 0)
        a->why = "a bias with a row for each sample is added to one that repeats";
}
