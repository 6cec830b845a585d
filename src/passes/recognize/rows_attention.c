/* rows_attention.c - softmax(scale q k^T + mask) v, written out or as an op of repeated heads.
 *
 * Queries, keys and values are [B,H,T,D] or [B H,T,D].  They are packed for the op "attention" if
 * it supports the case, else for "sdpa". rows_shape.c then removes the steps that only separated
 * the heads. */
#include <math.h>
#include <string.h>

#include "ops/op_table.h"
#include "passes/recognize/attention.h"
#include "passes/recognize/pattern_rows.h"

static const char grouped[] = "grouped-query attention";

static int64_t dim_at(const tutti_value *x, int from_end) {
    return x->type.shape.dim[x->type.shape.n_dims - from_end];
}

/* ---- what lies before a product ---- */

static bool read_once(const tti_match *m, const tutti_value *x) {
    const tti_scene *s = m->scene;
    return s->first_user[x->id + 1] - s->first_user[x->id] == 1 && !s->is_output[x->id];
}

static bool swaps_last_two(const tti_node *node) {
    if (!tti_is_op(node, "transpose")) return false;
    const tti_attr *perm = tti_attr_get(node, "perm");
    for (int d = 0; d < perm->n - 2; d++)
        if (perm->v[d] != d) return false;
    return perm->n >= 2 && perm->v[perm->n - 1] == perm->n - 2;
}

/* x[B,KV,..] of which value[B,KV n,..] has each head n times, one after the other; NULL: none. */
static tutti_value *unrepeated(tti_match *m, tutti_value *value, int64_t *times) {
    const tutti_shape *to = &value->type.shape;
    const tti_node *wide = value->node, *in;
    if (to->n_dims != 4 || !read_once(m, value)) return NULL;
    if (tti_is_op(wide, "broadcast_to")) { /* of one head */
        const tutti_shape *from = &wide->in[0]->type.shape;
        bool fits = from->n_dims == 4 && from->dim[1] == 1 && from->dim[0] == to->dim[0] &&
                    from->dim[2] == to->dim[2] && from->dim[3] == to->dim[3];
        *times = to->dim[1];
        return fits && tti_match_take(m, wide) ? wide->in[0] : NULL;
    }
    if (!tti_is_plain_reshape(wide) || !tti_is_op(wide->in[0]->node, "broadcast_to")) return NULL;
    wide = wide->in[0]->node;
    in = wide->in[0]->node;
    const tutti_shape *w = &wide->out[0]->type.shape, *one = &in->out[0]->type.shape;
    bool fits = w->n_dims == 5 && one->n_dims == 5 && one->dim[2] == 1 && w->dim[0] == to->dim[0] &&
                w->dim[1] * w->dim[2] == to->dim[1] && w->dim[3] == to->dim[2];
    for (int d = 0; fits && d < 5; d++) fits = d == 2 || w->dim[d] == one->dim[d];
    fits = fits && tti_is_plain_reshape(in) && in->in[0]->type.shape.n_dims == 4 &&
           in->in[0]->type.shape.dim[0] == w->dim[0] && in->in[0]->type.shape.dim[1] == w->dim[1] &&
           in->in[0]->type.shape.dim[2] == w->dim[3] && read_once(m, wide->out[0]);
    if (!fits || !tti_match_take(m, value->node) || !tti_match_take(m, wide)) return NULL;
    *times = w->dim[2];
    return in->in[0];
}

/* Follows an operand to what the op needs: without factors, repeated heads, and a transposition. */
static tti_attention_operand strip(tti_match *m, tutti_value *value) {
    tti_attention_operand o = {.base = value, .scale = 1, .times = 1};
    for (int i = 0; i < 8 && read_once(m, o.base); i++) {
        double a, b;
        int64_t times;
        tutti_value *x = tti_linear_step(m->scene, o.base, &a, &b);
        if (x && b == 0) {
            o.scale *= a;
        } else if (swaps_last_two(o.base->node)) {
            o.swapped = !o.swapped;
            x = o.base->node->in[0];
        } else {
            x = o.times == 1 ? unrepeated(m, o.base, &times) : NULL;
            if (!x) break;
            o.times = times, o.base = x;
            continue;
        }
        if (!tti_match_take(m, o.base->node)) break;
        o.base = x;
    }
    tutti_value *x = o.base; /* a factor after views */
    double a, b;
    while (read_once(m, x) && (tti_is_op(x->node, "transpose") || tti_is_plain_reshape(x->node)))
        x = x->node->in[0];
    tutti_value *inside = read_once(m, x) ? tti_linear_step(m->scene, x, &a, &b) : NULL;
    if (x != o.base && inside && b == 0) o.scale *= a, o.scaled = x, o.instead = inside;
    return o;
}

/* ---- the whole ---- */

/* [B H,T,D] as [B,H,T,D], where it was that before. */
static const tutti_value *split_heads(const tutti_value *x) {
    const tutti_value *in = tti_is_plain_reshape(x->node) ? x->node->in[0] : NULL;
    bool fits = in && in->type.shape.n_dims == 4 && tti_keeps_matrices(x->node);
    return fits ? in : NULL;
}

/* Batch, heads, positions and width of an operand. */
typedef struct extents {
    int64_t b, h, t, d;
} extents;

static extents extents_of(const tutti_value *x, bool swapped) {
    int64_t t = dim_at(x, 2), d = dim_at(x, 1);
    const int64_t *dim = x->type.shape.dim;
    return (extents){dim[0], x->type.shape.n_dims == 4 ? dim[1] : 1, swapped ? d : t,
                     swapped ? t : d};
}

static const char *read_shapes(const tti_match *m, tti_attention *a) {
    const tti_attention_operand *const o[3] = {&a->q, &a->k, &a->v};
    const tutti_value *of[3];
    extents e[3];
    int n_dims = a->q.base->type.shape.n_dims;
    bool split = n_dims == 3;
    if (n_dims != 3 && n_dims != 4) return "heads are not in [B,H,T,D] order";
    for (int i = 0; i < 3; i++) {
        of[i] = o[i]->base;
        if (of[i]->type.shape.n_dims != n_dims) return "queries, keys and values differ in shape";
        if (of[i]->type.dtype != TUTTI_F32) return "it is not computed in f32";
        split = split && split_heads(of[i]);
    }
    for (int i = 0; i < 3; i++) {
        if (split) of[i] = split_heads(of[i]);
        if (!tti_batch_is_first(m->scene, of[i])) return "dimension 0 is not the batch";
        if (m->scene->of_input[of[i]->id] != m->scene->of_input[of[0]->id])
            return "queries, keys or values are the same for all samples";
        e[i] = extents_of(of[i], o[i]->swapped);
    }
    a->b = e[0].b, a->h = e[0].h, a->kv = e[1].h, a->t = e[0].t, a->d = e[0].d;
    a->s = e[1].t, a->e = e[2].d;
    if (e[2].t != a->s || e[1].d != a->d) return "queries, keys and values differ in shape";
    bool fits = e[1].b == a->b && e[2].b == a->b && e[2].h == a->kv && a->q.times == 1 &&
                a->k.times == a->v.times && a->kv * a->k.times == a->h;
    return fits ? NULL : "the heads of queries, keys and values do not match";
}

/* The softmax whose weights p are, after one dropout; NULL: there is none over the last axis. */
static const tti_node *find_softmax(tti_match *m, const tutti_value *p, tti_attention *a) {
    while ((p->node->op->traits & TTI_RANDOM) || tti_keeps_matrices(p->node)) {
        if (p->node->op->traits & TTI_RANDOM) {
            if (a->drop || !tti_is_op(p->node, "dropout"))
                a->why = "its weights are random in a way that is not dropout";
            a->drop = p->node;
        }
        if (!tti_match_take(m, p->node)) return NULL;
        p = p->node->in[0];
    }
    const tti_node *node = p->node;
    if (!tti_is_op(node, "softmax") || p->type.shape.n_dims < 3) return NULL;
    int64_t axis = tti_attr_int(node, "axis"), last = p->type.shape.n_dims - 1;
    return (axis == last || axis == -1) && tti_match_take(m, node) ? node : NULL;
}

/* Reads the operands and scale of the product of queries and keys. */
static void read_product(tti_match *m, const tti_node *product, tti_attention *a) {
    a->q = strip(m, product->in[0]), a->k = strip(m, product->in[1]);
    a->v = strip(m, m->root->in[1]);
    if (!tti_attr_int(product, "trans_b")) a->k.swapped = !a->k.swapped;
    if (tti_attr_int(product, "trans_a")) a->q.swapped = !a->q.swapped;
    if (tti_attr_int(m->root, "trans_b")) a->v.swapped = !a->v.swapped;
    a->scale *= a->q.scale * a->k.scale;
    const char *shapes = read_shapes(m, a);
    if (!a->why && a->v.scale != 1) a->why = "its values are scaled";
    if (!a->why) a->why = shapes;
    if (!a->why && !(a->scale > 0 && isfinite(a->scale))) a->why = "the scale is not positive";
}

bool tti_attention_read(tti_match *m, tti_attention *a) {
    *a = (tti_attention){.scale = 1};
    if (!tti_is_op(m->root, "matmul") || tti_attr_int(m->root, "trans_a") ||
        !tti_match_take(m, m->root))
        return false;
    const tti_node *softmax = find_softmax(m, m->root->in[0], a);
    if (!softmax) return false;
    const tti_node *product = tti_attention_scores(m, softmax->in[0], a);
    if (product && tti_match_take(m, product))
        read_product(m, product, a);
    else if (!a->why)
        a->why = "the scores are more than a product with masks and biases";
    if (!a->why) tti_attention_place_biases(m, a);
    a->n_scores = tti_value_n_elems(softmax->in[0]);
    return true;
}

/* ---- building ---- */

/* base in the new graph, without the factor after its views. */
static tutti_value *operand(tti_rewrite *rw, const tti_attention_operand *o,
                            const tutti_value *value) {
    if (!o->scaled) return tti_mapped(rw, value);
    if (value == o->scaled) return tti_mapped(rw, o->instead);
    tutti_value *x = operand(rw, o, value->node->in[0]);
    if (tti_is_plain_reshape(value->node)) return tti_new_reshape(rw, x, &value->type.shape);
    const tti_attr *order = tti_attr_get(value->node, "perm");
    int perm[TUTTI_MAX_DIMS] = {0};
    for (int d = 0; d < order->n; d++) perm[d] = (int)order->v[d];
    return tti_new_permute(rw, x, perm, order->n);
}

/* -> [B,T,heads D], of n_t positions and width d. */
static tutti_value *pack(tti_rewrite *rw, const tti_attention *a, const tti_attention_operand *o,
                         int64_t heads, int64_t n_t, int64_t d) {
    static const int back[3] = {0, 2, 1}, swap[4] = {0, 1, 3, 2}, order[4] = {0, 2, 1, 3};
    tutti_value *x = operand(rw, o, o->base);
    int64_t n[2] = {o->swapped ? d : n_t, o->swapped ? n_t : d};
    if (!x) return NULL;
    if (a->h == 1 && x->type.shape.n_dims == 3)
        return o->swapped ? tti_new_permute(rw, x, back, 3) : x;
    x = tti_new_reshape(rw, x, &TUTTI_SHAPE(a->b, heads, n[0], n[1]));
    if (o->swapped) x = tti_new_permute(rw, x, swap, 4);
    return tti_new_reshape(rw, tti_new_permute(rw, x, order, 4),
                           &TUTTI_SHAPE(a->b, n_t, heads * d));
}

/* attention of q, k, v [B,T,..] side by side. */
static tutti_value *emit_attention(tti_rewrite *rw, tutti_value *const *parts,
                                   const tti_attention *a) {
    tutti_value *qkv = tti_emit(tti_new_graph(rw), "concat", NULL, parts, 3,
                                (tti_attr_arg[]){TTI_INT("axis", 2), {0}});
    return tti_emit(tti_new_graph(rw), "attention", NULL, &qkv, 1,
                    (tti_attr_arg[]){TTI_INT("heads", a->h),
                                     TTI_INT("kv_heads", a->kv),
                                     TTI_INT("causal", a->causal),
                                     TTI_FLOAT("scale", a->scale),
                                     {0}});
}

/* x, or 0 where one of the first n masks replaces it. */
static tutti_value *unless_replaced(tti_rewrite *rw, const tti_attention *a, tutti_value *x,
                                    int n) {
    for (int i = 0; i < n; i++) {
        const tti_attention_bias *seen = &a->seen[i];
        tutti_value *mask = tti_new_reshape(rw, tti_mapped(rw, seen->value), &seen->shape);
        x = tti_emit(tti_new_graph(rw), "keep", NULL, (tutti_value *[]){x, mask}, 2, NULL);
    }
    return x;
}

/* The sum of the biases and the mask, as the op takes it; NULL: there is none. */
static tutti_value *bias_of(tti_rewrite *rw, const tti_attention *a) {
    tutti_graph *g = tti_new_graph(rw);
    tutti_value *sum = NULL;
    if (a->mask) sum = tutti_constant_array(g, TUTTI_F32, &TUTTI_SHAPE(1, 1, a->t, a->s), a->mask);
    if (a->mask) sum = unless_replaced(rw, a, sum, a->mask_seen);
    for (int i = 0; i < a->n_bias; i++) {
        const tti_attention_bias *bias = &a->bias[i];
        tutti_value *x = tti_new_reshape(rw, tti_mapped(rw, bias->value), &bias->shape);
        x = unless_replaced(rw, a, tti_new_affine(rw, x, bias->factor, 0), bias->n_seen);
        sum = sum ? tti_emit(g, "add", NULL, (tutti_value *[]){sum, x}, 2, NULL) : x;
    }
    return sum;
}

static bool is_packed(const tti_attention *a) {
    return a->n_bias == 0 && !a->mask && a->window == 0 && a->softcap == 0 && !a->drop &&
           a->t == a->s && a->d == a->e;
}

/* sdpa of q, k, v [B,T,..] apart. */
static tutti_value *emit_sdpa(tti_rewrite *rw, tutti_value *const *parts, const tti_attention *a) {
    tutti_value *in[4] = {parts[0], parts[1], parts[2], bias_of(rw, a)};
    bool has_bias = in[3] != NULL;
    return tti_emit(tti_new_graph(rw), "sdpa", a->drop ? a->drop->name : NULL, in, has_bias ? 4 : 3,
                    (tti_attr_arg[]){TTI_INT("heads", a->h),
                                     TTI_INT("kv_heads", a->kv),
                                     TTI_INT("causal", a->causal),
                                     TTI_INT("window", a->window),
                                     TTI_FLOAT("scale", a->scale),
                                     TTI_FLOAT("softcap", a->softcap),
                                     TTI_FLOAT("p", a->drop ? tti_attr_float(a->drop, "p") : 0),
                                     TTI_INT("key", a->drop ? tti_attr_int(a->drop, "key") : 0),
                                     TTI_INT("with", has_bias),
                                     TTI_INT("bias_period", a->bias_period),
                                     TTI_INT("replaces", a->replaces),
                                     {0}});
}

static tutti_value *build_attention(tti_rewrite *rw, const tti_match *m) {
    static const int order[4] = {0, 2, 1, 3};
    const tti_attention *a = m->found;
    tutti_value *parts[3] = {pack(rw, a, &a->q, a->h, a->t, a->d),
                             pack(rw, a, &a->k, a->kv, a->s, a->d),
                             pack(rw, a, &a->v, a->kv, a->s, a->e)};
    tutti_value *y = is_packed(a) ? emit_attention(rw, parts, a) : emit_sdpa(rw, parts, a);
    y = tti_new_reshape(rw, y, &TUTTI_SHAPE(a->b, a->t, a->h, a->e));
    y = tti_new_permute(rw, y, order, 4);
    return tti_new_reshape(rw, y, &m->root->out[0]->type.shape);
}

static bool find_attention(tti_match *m) {
    tti_attention *a = tti_arena_alloc(&m->scene->arena, sizeof *a);
    m->found = a;
    if (!a || !tti_attention_read(m, a) || a->why) return false;
    if (a->k.times > 1) m->name = grouped;
    return true;
}

/* ---- the op itself, of heads that were repeated for it ---- */

/* x[B,KV,T,D] of which part[B,T,KV n D] holds each head n times. */
static tutti_value *unpacked(tti_match *m, tutti_value *part, int64_t *times) {
    const tti_node *flat = part->node;
    if (!read_once(m, part) || !tti_is_plain_reshape(flat)) return NULL;
    const tti_node *turned = flat->in[0]->node;
    if (!tti_is_op(turned, "transpose") || !read_once(m, flat->in[0])) return NULL;
    const tti_attr *perm = tti_attr_get(turned, "perm");
    bool fits = perm->n == 4 && perm->v[0] == 0 && perm->v[1] == 2 && perm->v[2] == 1 &&
                part->type.shape.n_dims == 3 &&
                part->type.shape.dim[1] == turned->out[0]->type.shape.dim[1];
    return fits && tti_match_take(m, flat) && tti_match_take(m, turned)
               ? unrepeated(m, turned->in[0], times)
               : NULL;
}

/* The heads of the op's keys and values, as they were. */
typedef struct repeated {
    tutti_value *k, *v;
    int64_t kv;
} repeated;

/* Reads keys and values of the op at m->root, whose heads were repeated alike. */
static bool read_repeated(tti_match *m, tutti_value *k, tutti_value *v) {
    int64_t heads = tti_attr_int(m->root, "heads"), kv = tti_attr_int(m->root, "kv_heads");
    int64_t k_times = 0, v_times = 0;
    repeated *r = tti_arena_alloc(&m->scene->arena, sizeof *r);
    m->found = r;
    if (!r || (kv != 0 && kv != heads) || !(r->k = unpacked(m, k, &k_times)) ||
        !(r->v = unpacked(m, v, &v_times)))
        return false;
    r->kv = r->k->type.shape.dim[1];
    return k_times == v_times && r->kv * k_times == heads && r->v->type.shape.dim[1] == r->kv &&
           tti_match_take(m, m->root);
}

static bool find_repeated(tti_match *m) {
    const tti_node *root = m->root;
    if (!tti_is_op(root, "attention") || root->n_in != 1 || !read_once(m, root->in[0]))
        return false;
    const tti_node *concat = root->in[0]->node;
    return tti_is_op(concat, "concat") && concat->n_in == 3 &&
           read_repeated(m, concat->in[1], concat->in[2]) && tti_match_take(m, concat);
}

static bool find_repeated_apart(tti_match *m) {
    return tti_is_op(m->root, "sdpa") && m->root->in[1] != m->root->in[2] &&
           read_repeated(m, m->root->in[1], m->root->in[2]);
}

/* x[B,KV,T,D] -> [B,T,KV D] */
static tutti_value *pack_heads(tti_rewrite *rw, const tutti_value *x) {
    static const int order[4] = {0, 2, 1, 3};
    const tutti_shape *s = &x->type.shape;
    tutti_value *turned = tti_new_permute(rw, tti_mapped(rw, x), order, 4);
    return tti_new_reshape(rw, turned, &TUTTI_SHAPE(s->dim[0], s->dim[2], s->dim[1] * s->dim[3]));
}

/* The same op with the heads as they were. */
static tutti_value *build_repeated_apart(tti_rewrite *rw, const tti_match *m) {
    const repeated *r = m->found;
    const tti_node *root = m->root;
    tutti_value *in[TTI_MAX_IN] = {NULL};
    tti_attr_arg attrs[TTI_MAX_ATTRS + 1] = {0};
    for (int i = 0; i < root->n_in; i++) in[i] = tti_mapped(rw, root->in[i]);
    in[1] = pack_heads(rw, r->k), in[2] = pack_heads(rw, r->v);
    for (int i = 0; i < tti_n_attrs(root->op); i++) {
        const char *name = root->op->attrs[i].name;
        attrs[i] = (tti_attr_arg){name, root->attrs[i]};
        if (strcmp(name, "kv_heads") == 0) attrs[i] = TTI_INT("kv_heads", r->kv);
    }
    return tti_emit(tti_new_graph(rw), "sdpa", root->name, in, root->n_in, attrs);
}

static tutti_value *build_repeated(tti_rewrite *rw, const tti_match *m) {
    const repeated *r = m->found;
    const tti_attention a = {.h = tti_attr_int(m->root, "heads"),
                             .kv = r->kv,
                             .causal = tti_attr_int(m->root, "causal") != 0,
                             .scale = tti_attr_float(m->root, "scale")};
    tutti_value *parts[3] = {tti_mapped(rw, m->root->in[0]->node->in[0]), pack_heads(rw, r->k),
                             pack_heads(rw, r->v)};
    return emit_attention(rw, parts, &a);
}

const tti_row tti_rows_attention[] = {
    {.name = "attention", .find = find_attention, .build = build_attention},
    {.name = grouped, .find = find_repeated, .build = build_repeated},
    {.name = grouped, .find = find_repeated_apart, .build = build_repeated_apart},
    {0},
};
