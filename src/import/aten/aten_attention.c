/* aten_attention.c - matrix products and attention. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "import/aten/aten.h"

/* ---- products ---- */

/* Broadcasts the leading dimensions, those before the matrix, by numpy's rule. */
static bool lead_shape(tti_building *b, const tutti_shape *x, const tutti_shape *y,
                       tutti_shape *out) {
    tutti_shape p = *x, q = *y;
    p.n_dims -= 2, q.n_dims -= 2;
    return tti_host_broadcast(b, &p, &q, out);
}

/* Broadcasts value to the leading dimensions `lead`. */
static tutti_value *with_lead(tti_building *b, tutti_value *value, const tutti_shape *lead) {
    tutti_shape own = tutti_value_type(value).shape, to = *lead;
    if (own.n_dims < 2) return value;
    to.dim[to.n_dims++] = own.dim[own.n_dims - 2];
    to.dim[to.n_dims++] = own.dim[own.n_dims - 1];
    bool same = own.n_dims == to.n_dims && memcmp(own.dim, to.dim, sizeof own.dim) == 0;
    return same ? value : tutti_broadcast_to(tti_graph_of(b), value, &to);
}

/* Returns the dimension of x that is the batch, if it is neither the first nor the last; else 0. */
static int batch_inside(tti_building *b, const tutti_value *x) {
    const tutti_batch at = tti_batch_of(b, x);
    int n_dims = tutti_value_type(x).shape.n_dims, found = 0;
    for (int d = 1; d < n_dims - 1; d++)
        if (at.inner[d] == 1 && tutti_value_type(x).shape.dim[d] == tti_batch_rows(b)) found = d;
    return found;
}

/* Moves dimension `from` of x to position `to`. */
static tutti_value *move_dim(tti_building *b, tutti_value *x, int from, int to) {
    int perm[TUTTI_MAX_DIMS], n_dims = tutti_value_type(x).shape.n_dims;
    for (int d = 0, k = 0; d < n_dims; d++) {
        if (k == from) k++;
        perm[d] = d == to ? from : k++;
    }
    return tutti_permute(tti_graph_of(b), x, perm, n_dims);
}

/* p[..,M,K] q[..,K,N], without padding rows if K counts samples. The gradient of one matrix for all
 * rows merges the rows; they stay divisible between workers if samples come first. */
tutti_value *tti_product(tti_building *b, tutti_value *p, tutti_value *q) {
    int np = tutti_value_type(p).shape.n_dims, nq = tutti_value_type(q).shape.n_dims;
    if (!tti_good(b) || np < 2 || nq < 2) return tutti_matmul(tti_graph_of(b), p, q);
    int batch = np > 2 && nq == 2 ? batch_inside(b, p) : 0;
    if (batch > 0)
        return move_dim(b, tutti_matmul(tti_graph_of(b), move_dim(b, p, batch, 0), q), 0, batch);
    if (tti_sample_dims(b, p, 1u << (np - 1)) != 0)
        p = tti_present_in(b, p, 1u << (np - 1));
    else
        q = tti_present_in(b, q, 1u << (nq - 2));
    return tutti_matmul(tti_graph_of(b), p, q);
}

/* The value of an operand of a product with `other`, which has samples. Its first dimension counts
 * samples only if that of `other` does: a matrix may have as many heads as there are samples. */
static tutti_value *value_for_product(tti_building *b, const tti_operand *x,
                                      const tutti_value *other) {
    tutti_shape own = tti_shape_of(x), shape = other ? tutti_value_type(other).shape : own;
    int at = shape.n_dims - own.n_dims; /* in the dimensions of other */
    if (!tti_good(b)) return NULL;
    const tutti_batch samples = tti_batch_of(b, other);
    bool is_known = samples.n > 0 && !samples.mixed_by && own.n_dims > 0;
    bool elsewhere = is_known && (at < 0 || samples.inner[at] == 0);
    bool has_rows = tti_of_batch(x) || (x->kind == TTI_OPERAND_HOST && x->host.of_batch);
    return elsewhere && !has_rows ? tti_value_of(b, x) : tti_batch_value(b, x);
}

/* x[..,M,K] y[..,K,N]. */
static tutti_value *product(tti_building *b, const tti_operand *x, const tti_operand *y) {
    tutti_value *p = NULL, *q = NULL;
    tutti_shape sx = tti_shape_of(x), sy = tti_shape_of(y), lead;
    bool shared = sy.n_dims == 2; /* one matrix for all rows */
    if (tti_of_batch(x)) p = tti_batch_value(b, x);
    if (tti_of_batch(y)) q = shared ? tti_value_of(b, y) : tti_batch_value(b, y);
    if (!p) p = q ? value_for_product(b, x, q) : tti_value_of(b, x);
    if (!q) q = tti_of_batch(x) && !shared ? value_for_product(b, y, p) : tti_value_of(b, y);
    if (!tti_good(b)) return NULL;
    p = tti_as_float(b, p), q = tti_as_float(b, q);
    if (shared) return tti_product(b, p, q);
    if (!lead_shape(b, &sx, &sy, &lead)) return NULL;
    return tti_product(b, with_lead(b, p, &lead), with_lead(b, q, &lead));
}

/* numpy's product: a vector is a row as the first operand, a column as the second. */
static void matmul(tti_building *b, const tti_call *c) {
    tti_operand x = tti_repeat_over_batch(b, tti_operand_at(b, c, 0));
    tti_operand y = *tti_operand_at(b, c, 1);
    tutti_shape sx = tti_shape_of(&x), sy = tti_shape_of(&y);
    if (sy.n_dims > 2 || (y.kind == TTI_OPERAND_HOST && y.host.batch_dim > 0))
        y = tti_repeat_over_batch(b, &y); /* dimension 0 of a shared matrix is summed over */
    bool row = sx.n_dims == 1, column = sy.n_dims == 1;
    if (sx.n_dims < 1 || sy.n_dims < 1) tti_refuse(b, "a scalar is not supported");
    if (row) tti_do_reshape(b, &x, &TUTTI_SHAPE(1, sx.dim[0]), &x);
    if (column) tti_do_reshape(b, &y, &TUTTI_SHAPE(sy.dim[0], 1), &y);
    if (!tti_good(b)) return;
    if (x.folded && sy.n_dims == 2 && !tti_of_batch(&y) && x.kind == TTI_OPERAND_GRAPH &&
        batch_inside(b, x.value) > 0) { /* keeps the rows of samples apart */
        tutti_value *rows = tti_row_wise_value(b, &x);
        rows = tti_product(b, rows, tti_as_float(b, tti_value_of(b, &y)));
        tti_set_row_wise(b, c->out[0], rows, &x);
        return;
    }
    tutti_value *value = product(b, &x, &y);
    if (!tti_good(b)) return;
    tutti_shape made = tutti_value_type(value).shape, to = {0};
    for (int d = 0; d < made.n_dims; d++) {
        bool drop = (row && d == made.n_dims - 2) || (column && d == made.n_dims - 1);
        if (!drop) to.dim[to.n_dims++] = made.dim[d];
    }
    if (row || column) value = tutti_reshape(tti_graph_of(b), value, &to);
    const tutti_batch at = tti_batch_of(b, value);
    bool any = (tti_of_batch(&x) || tti_of_batch(&y)) && (at.n > 0 || at.mixed_by);
    tti_set_value(b, c->out[0], value, TTI_ELEM_F32, any);
}

static void fold_matmul(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *y = tti_operand_at(b, c, 1);
    tutti_shape sx = tti_shape_of(x), sy = tti_shape_of(y), lead, shape;
    tti_host made, p, q, u, v;
    if (sx.n_dims < 2 || sy.n_dims < 2) tti_refuse(b, "constant vectors are not supported");
    if (!tti_good(b) || !lead_shape(b, &sx, &sy, &lead)) return;
    int64_t m = sx.dim[sx.n_dims - 2], k = sx.dim[sx.n_dims - 1], n = sy.dim[sy.n_dims - 1];
    if (sy.dim[sy.n_dims - 2] != k) tti_refuse(b, "the shapes do not match");
    shape = lead;
    shape.dim[shape.n_dims++] = m;
    shape.dim[shape.n_dims++] = n;
    if (!tti_good(b) || !tti_host_new(b, tti_promote(x, y), &shape, &made)) return;
    tutti_shape wide_x = lead, wide_y = lead;
    wide_x.dim[wide_x.n_dims++] = m, wide_x.dim[wide_x.n_dims++] = k;
    wide_y.dim[wide_y.n_dims++] = k, wide_y.dim[wide_y.n_dims++] = n;
    if (!tti_host_expand(b, &x->host, &wide_x, &p) || !tti_host_expand(b, &y->host, &wide_y, &q))
        return;
    if (!tti_host_copy(b, &p, &u) || !tti_host_copy(b, &q, &v)) return;
    int64_t n_lead = tutti_shape_n_elems(&lead);
    if (tti_good(b)) tti_add_work(b, (double)n_lead * (double)m * (double)n * (double)k);
    for (int64_t l = 0; l < n_lead && tti_good(b); l++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                double sum = 0;
                for (int64_t e = 0; e < k; e++)
                    sum += u.data[(l * m + i) * k + e] * v.data[(l * k + e) * n + j];
                made.data[(l * m + i) * n + j] = tti_round(made.elem, sum);
            }
    tti_set_host(c->out[0], &made);
}

/* ---- attention ---- */

/* The kind of a mask [..,T,S]: none, determined by position (causal, a window of keys), or added to
 * scores. */
typedef struct mask_kind {
    bool added, causal;
    int64_t window; /* a query attends to keys fewer than this many positions away; 0: all */
} mask_kind;

static bool is_open(tti_elem elem, double e) { return elem == TTI_ELEM_BOOL ? e != 0 : e == 0; }

static bool is_closed(tti_elem elem, double e) {
    return elem == TTI_ELEM_BOOL ? e == 0 : e <= -1e30;
}

/* True if keys from .. to - 1 of a row are all hidden, or all visible. */
static bool are_all(const tti_host *m, const double *row, int64_t from, int64_t to, bool hidden) {
    int64_t step = m->stride[m->shape.n_dims - 1], j = from;
    if (hidden)
        while (j < to && is_closed(m->elem, row[j * step])) j++;
    else
        while (j < to && is_open(m->elem, row[j * step])) j++;
    return j >= to;
}

static bool hides_by(const tti_host *m, const mask_kind *kind) {
    int last = m->shape.n_dims - 1;
    int64_t s = m->shape.dim[last], t = m->shape.dim[last - 1], n = tti_host_n(m);
    for (int64_t row = 0; row * s < n; row++) {
        const double *x = m->data + tti_host_offset(m, row * s);
        int64_t at = row % t, ahead = kind->causal ? 1 : kind->window > 0 ? kind->window : s;
        int64_t from = kind->window > 0 ? TTI_MAX(at - kind->window + 1, 0) : 0;
        int64_t to = TTI_MIN(at + ahead, s); /* keys from .. to - 1 are visible */
        if (!are_all(m, x, 0, from, true) || !are_all(m, x, from, to, false) ||
            !are_all(m, x, to, s, true))
            return false;
    }
    return true;
}

/* Finds the kind of a constant mask [..,T,S]. */
static mask_kind find_kind(tti_building *b, const tti_host *mask) {
    tti_host once = *mask; /* one of the equal masks along leading dimensions */
    int last = once.shape.n_dims - 1;
    int64_t s = once.shape.dim[last], t = once.shape.dim[last - 1], window = 0;
    for (int d = 0; d < last - 1; d++)
        if (once.stride[d] == 0 && once.shape.dim[d] > 1) once.shape.dim[d] = 1;
    if (!tti_add_work(b, (double)tti_host_n(&once))) return (mask_kind){0};
    if (s == t) /* the last row has as many visible keys as the window */
        for (int64_t j = 0; j < s && tti_host_n(&once) > 0; j++)
            window += is_open(once.elem, tti_host_at(&once, (t - 1) * s + j));
    mask_kind kinds[] = {{0}, {.causal = true}, {.window = window}, {false, true, window}};
    for (size_t i = 0; i < TTI_COUNT(kinds); i++)
        if ((s == t || i == 0) && (i < 2 || window > 0) && hides_by(&once, &kinds[i]))
            return kinds[i];
    return (mask_kind){.added = true};
}

/* The same, evaluated once for each mask. */
static mask_kind judge_mask(tti_building *b, const tti_host *mask) {
    int64_t known;
    if (tti_reuse_answer(b, mask, TTI_KNOWN_MASK, &known))
        return (mask_kind){known & 1, known & 2, known >> 2};
    mask_kind kind = find_kind(b, mask);
    tti_store_answer(b, mask, TTI_KNOWN_MASK, kind.window << 2 | kind.causal << 1 | kind.added);
    return kind;
}

/* Converts a boolean mask: 0 for true, -infinity for false. A floating-point mask is unchanged. */
static void additive_mask(tti_building *b, const tti_operand *mask, tti_operand *out) {
    tti_host made;
    *out = *mask;
    if (mask->kind == TTI_OPERAND_GRAPH && mask->elem == TTI_ELEM_BOOL) {
        tutti_graph *g = tti_graph_of(b);
        tutti_value *closed = tutti_affine(g, tti_nonzero(b, mask), -1, 1);
        tutti_value *least = tutti_constant(g, TUTTI_F32, &(tutti_shape){0}, -INFINITY);
        out->value = tutti_keep(g, least, closed);
        out->elem = TTI_ELEM_F32;
        return;
    }
    if (mask->kind != TTI_OPERAND_HOST || mask->host.elem != TTI_ELEM_BOOL) return;
    if (!tti_host_copy(b, &mask->host, &made)) return;
    int64_t n = tti_host_n(&made);
    for (int64_t i = 0; i < n; i++) made.data[i] = made.data[i] != 0 ? 0 : -INFINITY;
    made.elem = TTI_ELEM_F32;
    tti_set_host(out, &made);
}

/* Returns the value of a mask. A mask with a row for each window (Swin) repeats for each sample;
 * then the result has the rows of one sample, and *period is their number. */
static tutti_value *mask_value(tti_building *b, const tti_operand *mask, int64_t n_rows,
                               int64_t *period) {
    tutti_shape shape = tti_shape_of(mask);
    bool merged = mask->kind == TTI_OPERAND_HOST && shape.n_dims == 4 && shape.dim[0] == n_rows &&
                  n_rows > tti_batch_rows(b) && n_rows % tti_batch_rows(b) == 0;
    if (merged && !tti_add_work(b, (double)tti_host_n(&mask->host))) return NULL;
    int64_t n = merged ? tti_host_n(&mask->host) : 0, n_part = merged ? n / tti_batch_rows(b) : 0;
    for (int64_t i = n_part; i < n && merged; i++)
        merged = tti_host_at(&mask->host, i) == tti_host_at(&mask->host, i - n_part);
    if (!merged) return tti_compact_value(b, mask);
    tti_operand part = *mask;
    *period = part.host.shape.dim[0] = n_rows / tti_batch_rows(b);
    return tti_value_of(b, &part);
}

typedef struct heads {
    tutti_value *q, *k, *v; /* [B,H,T,D], [B,KV,S,D], [B,KV,S,E] */
    int64_t b, h, kv, t, s, d, e;
    double scale;
    int64_t bias_period; /* number of rows of the bias that repeat; 0: they do not repeat */
} heads;

/* [B,H,T,D] -> [B,T,H D] */
static tutti_value *pack(tutti_graph *g, tutti_value *x, int64_t b, int64_t h, int64_t t,
                         int64_t d) {
    x = tutti_permute(g, x, (int[]){0, 2, 1, 3}, 4);
    return tutti_reshape(g, x, &TUTTI_SHAPE(b, t, h * d));
}

/* Attention with packed queries, keys and values. */
static tutti_value *attend(tutti_graph *g, const heads *a, bool causal) {
    tutti_value *parts[3] = {pack(g, a->q, a->b, a->h, a->t, a->d),
                             pack(g, a->k, a->b, a->kv, a->s, a->d),
                             pack(g, a->v, a->b, a->kv, a->s, a->d)};
    tutti_attention_desc desc = {
        .heads = a->h, .kv_heads = a->kv, .causal = causal, .scale = a->scale};
    tutti_value *y = tutti_attention(g, tutti_concat(g, parts, 3, 2), NULL, &desc);
    y = tutti_reshape(g, y, &TUTTI_SHAPE(a->b, a->t, a->h, a->d));
    return tutti_permute(g, y, (int[]){0, 2, 1, 3}, 4);
}

/* Attention with separate queries, keys and values. */
static tutti_value *attend_separately(tutti_graph *g, const heads *a, mask_kind kind,
                                      tutti_value *bias, double p, const char *name) {
    tutti_value *q = pack(g, a->q, a->b, a->h, a->t, a->d);
    tutti_value *k = pack(g, a->k, a->b, a->kv, a->s, a->d);
    tutti_value *v = pack(g, a->v, a->b, a->kv, a->s, a->e);
    tutti_sdpa_desc desc = {.heads = a->h,
                            .kv_heads = a->kv,
                            .causal = kind.causal,
                            .window = kind.window,
                            .scale = a->scale,
                            .bias = bias,
                            .bias_period = a->bias_period,
                            .dropout = p,
                            .name = name};
    if (a->scale == 0) q = tutti_affine(g, q, 0, 0);
    tutti_value *y = tutti_sdpa(g, q, k, v, &desc);
    y = tutti_reshape(g, y, &TUTTI_SHAPE(a->b, a->t, a->h, a->e));
    return tutti_permute(g, y, (int[]){0, 2, 1, 3}, 4);
}

/* Returns the shape with heads: [B,T,D] has one head; in [B,..,H,T,D] all dimensions between B and
 * T are heads. */
static tutti_shape with_heads(const tutti_shape *s) {
    int last = s->n_dims - 1;
    tutti_shape to = TUTTI_SHAPE(s->dim[0], 1, s->dim[last - 1], s->dim[last]);
    for (int d = 1; d < last - 1; d++) to.dim[1] *= s->dim[d];
    return to;
}

/* Reshapes a mask for queries of shape q to four dimensions, with leading ones. */
static tutti_value *with_four(tti_building *b, tutti_value *mask, const tutti_shape *q) {
    tutti_shape own = tutti_value_type(mask).shape, to = {.n_dims = TTI_MAX(q->n_dims, 4)};
    int ahead = to.n_dims - own.n_dims, n_one = 0;
    if (tti_good(b) && ahead < 0)
        tti_refuse(b, "a mask of %d dimensions is not supported", own.n_dims);
    if (!tti_good(b)) return NULL;
    for (int d = 0; d < to.n_dims; d++) to.dim[d] = d < ahead ? 1 : own.dim[d - ahead];
    for (int d = 1; d < to.n_dims - 2; d++) n_one += to.dim[d] == 1;
    if (ahead > 0) mask = tutti_reshape(tti_graph_of(b), mask, &to);
    if (n_one > 0 && n_one < to.n_dims - 3) {
        for (int d = 1; d < to.n_dims - 2; d++) to.dim[d] = q->dim[d];
        mask = tutti_broadcast_to(tti_graph_of(b), mask, &to);
    }
    tutti_shape four = with_heads(&to);
    return to.n_dims > 4 ? tutti_reshape(tti_graph_of(b), mask, &four) : mask;
}

static tutti_value *head_value(tti_building *b, const tti_operand *x, const tutti_shape *q) {
    tutti_shape s = tti_shape_of(x);
    bool fits = s.n_dims == q->n_dims;
    for (int d = 1; d < s.n_dims - 3 && fits; d++) fits = s.dim[d] == q->dim[d];
    tutti_value *value = tti_as_float(b, tti_batch_value(b, x));
    if (s.n_dims < 3)
        tti_refuse(b, "queries, keys and values of %d dimensions are not supported", s.n_dims);
    if (!fits) tti_refuse(b, "the shapes of queries, keys and values do not match");
    if (!tti_good(b) || s.n_dims == 4) return value;
    s.dim[0] = tutti_value_type(value).shape.dim[0];
    tutti_shape four = with_heads(&s);
    return tutti_reshape(tti_graph_of(b), value, &four);
}

/* query key value attn_mask dropout_p is_causal scale enable_gqa */
static void sdpa(tti_building *b, const tti_call *c) {
    const tti_operand *q = tti_operand_at(b, c, 0);
    double p = tti_number_at(b, c, 4);
    bool causal = tti_bool_at(b, c, 5), has_mask = tti_has(c, 3);
    tutti_shape shape = tti_shape_of(q);
    heads a = {.q = head_value(b, q, &shape),
               .k = head_value(b, tti_operand_at(b, c, 1), &shape),
               .v = head_value(b, tti_operand_at(b, c, 2), &shape)};
    if (!tti_good(b)) return;
    tutti_shape sq = tutti_value_type(a.q).shape, sk = tutti_value_type(a.k).shape;
    tutti_shape sv = tutti_value_type(a.v).shape;
    a.b = sq.dim[0], a.h = sq.dim[1], a.t = sq.dim[2], a.d = sq.dim[3];
    a.kv = sk.dim[1], a.s = sk.dim[2], a.e = sv.dim[3];
    a.scale = tti_has(c, 6) ? tti_number_at(b, c, 6) : 1 / sqrt((double)a.d);
    if (sk.dim[0] != a.b || sk.dim[3] != a.d || sv.dim[2] != a.s || a.kv < 1 || a.h % a.kv != 0 ||
        sv.dim[1] != a.kv)
        tti_refuse(b, "the shapes of queries, keys and values do not match");
    const tti_operand *mask = has_mask ? tti_operand_at(b, c, 3) : NULL;
    mask_kind kind = {.added = mask != NULL, .causal = causal};
    if (mask && tti_good(b) && tti_shape_of(mask).n_dims < 2)
        tti_refuse(b, "a mask of one dimension is not supported");
    if (mask && mask->kind == TTI_OPERAND_HOST && tti_good(b)) kind = judge_mask(b, &mask->host);
    if (mask && causal) tti_refuse(b, "attn_mask and is_causal cannot be combined");
    if (!tti_good(b)) return;
    bool packs = !kind.added && kind.window == 0 && a.s == a.t && a.e == a.d && a.scale > 0;
    tutti_value *y;
    if (packs && (p == 0 || !tutti_graph_is_training(tti_graph_of(b)))) {
        y = attend(tti_graph_of(b), &a, kind.causal);
    } else {
        tti_operand added = {0};
        tutti_value *bias = NULL;
        if (kind.added) {
            additive_mask(b, mask, &added);
            int64_t n_rows = shape.n_dims > 4 ? 0 : a.b; /* 0: the rows of masks are not windows */
            bias = tti_as_float(b, mask_value(b, &added, n_rows, &a.bias_period));
            bias = with_four(b, bias, &shape);
        }
        y = attend_separately(tti_graph_of(b), &a, kind, bias, p,
                              p > 0 ? tti_layer_name_of(b) : NULL);
    }
    shape.dim[0] = a.b;
    shape.dim[shape.n_dims - 1] = a.e;
    if (shape.n_dims != 4) y = tutti_reshape(tti_graph_of(b), y, &shape);
    tti_set_value(b, c->out[0], y, TTI_ELEM_F32, true);
}

const tti_operator tti_operators_attention[] = {
    {.target = "aten.matmul.default",
     .signature = "self other",
     .build = matmul,
     .fold = fold_matmul},
    {.target = "aten.mm.default", .signature = "self mat2", .build = matmul, .fold = fold_matmul},
    {.target = "aten.bmm.default", .signature = "self mat2", .build = matmul, .fold = fold_matmul},
    {.target = "aten.scaled_dot_product_attention.default",
     .signature = "query key value attn_mask=None dropout_p=0 is_causal=False scale=None "
                  "enable_gqa!=False",
     .build = sdpa},
    {0},
};
