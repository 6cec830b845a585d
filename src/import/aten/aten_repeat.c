/* aten_repeat.c - operators that repeat elements along dimensions, for graph values and host
 * tensors.
 *
 * A dimension that is repeated by the batch size becomes the batch dimension, so that dividing the
 * batch between workers divides it too. */
#include <string.h>

#include "base/error.h"
#include "import/aten/aten.h"

static tutti_shape shape_at(tti_building *b, const tti_call *c, int k) {
    tutti_shape shape = {0};
    shape.n_dims = tti_ints_at(b, c, k, shape.dim);
    return shape;
}

/* Expands x to shape. batch_dim: the dimension that becomes the batch, which has size 1 in x; -1:
 * none. */
static void expand_to(tti_building *b, const tti_operand *x, tutti_shape shape, int batch_dim,
                      tti_operand *out) {
    tutti_shape from = tti_shape_of(x);
    tti_host made;
    bool of_batch = batch_dim == 0;
    if (x->kind == TTI_OPERAND_HOST) {
        if (!tti_host_expand(b, &x->host, &shape, &made)) return;
        made.of_batch = of_batch;
        if (batch_dim >= 0) made.batch_dim = batch_dim;
        tti_set_host(out, &made);
        return;
    }
    if (batch_dim > 0 && !tti_of_batch(x)) {
        shape.dim[batch_dim] = 1;
        tutti_value *one =
            tutti_broadcast_to(tti_graph_of(b), tti_as_float(b, tti_value_of(b, x)), &shape);
        tti_set_value(b, out, tti_repeat_along(b, one, batch_dim), x->elem, true);
        return;
    }
    if (x->rows > 0 && shape.n_dims == from.n_dims && shape.dim[0] == x->rows) of_batch = true;
    int64_t rows = of_batch && !x->of_input ? shape.dim[0] : 0;
    tutti_value *value = x->rows > 0 && rows > 0 ? x->value : tti_value_of(b, x);
    if (rows > 0) shape.dim[0] = 1;
    tutti_shape now = tutti_value_type(value).shape;
    if (now.n_dims != shape.n_dims || memcmp(now.dim, shape.dim, sizeof now.dim) != 0)
        value = tutti_broadcast_to(tti_graph_of(b), tti_as_float(b, value), &shape);
    tti_set_value(b, out, value, x->elem, x->of_input || (x->rows > 0 && rows == 0));
    if (out && tti_good(b)) out->rows = rows;
}

static void expand(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape from = tti_shape_of(x), to = shape_at(b, c, 1);
    int ahead = to.n_dims - from.n_dims;
    if (ahead < 0) tti_refuse(b, "the new shape has fewer dimensions than the tensor");
    if (!tti_good(b)) return;
    for (int d = 0; d < to.n_dims; d++)
        if (to.dim[d] == -1) to.dim[d] = d < ahead ? 1 : from.dim[d - ahead];
    int batch_dim = -1;
    for (int d = 0; d < to.n_dims && batch_dim < 0; d++)
        if (tti_is_batch_item(b, c, 1, d) && to.dim[d] == tti_batch_rows(b) &&
            (d < ahead || from.dim[d - ahead] == 1))
            batch_dim = d;
    expand_to(b, x, to, batch_dim, c->out[0]);
}

int tti_batch_dim_of(tti_building *b, const tti_operand *x) {
    tutti_shape shape = tti_shape_of(x);
    if (x->rows > 0) return 0;
    if (x->kind != TTI_OPERAND_GRAPH || !x->of_input || shape.n_dims < 1) return -1;
    if (x->folded) return shape.dim[0] == tti_batch_rows(b) ? 0 : -1;
    const tutti_batch at = tti_batch_of(b, x->value);
    for (int d = 0; d < shape.n_dims; d++)
        if (at.inner[d] == 1 && shape.dim[d] == tti_batch_rows(b)) return d;
    return -1;
}

static void expand_as(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *like = tti_operand_at(b, c, 1);
    tutti_shape to = tti_shape_of(like), from = tti_shape_of(x);
    int batch_dim = tti_batch_dim_of(b, like), own = batch_dim - (to.n_dims - from.n_dims);
    if (own >= 0 && from.dim[own] != 1) batch_dim = -1; /* x already has the batch */
    expand_to(b, x, to, batch_dim, c->out[0]);
}

/* self repeats: repeats a tensor along each dimension, like a concatenation. */
static void repeat(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape times = shape_at(b, c, 1), from = tti_shape_of(x), to;
    int ahead = times.n_dims - from.n_dims;
    if (ahead < 0) tti_refuse(b, "the new shape has fewer dimensions than the tensor");
    if (!tti_good(b)) return;
    /* [.., n, ..] as [.., 1, n, ..] expanded to [.., times, n, ..] and joined. */
    tti_operand now = {0}, next = {0};
    to = (tutti_shape){.n_dims = times.n_dims};
    for (int d = 0; d < times.n_dims; d++) to.dim[d] = d < ahead ? 1 : from.dim[d - ahead];
    tti_do_reshape(b, x, &to, &now);
    for (int d = 0; d < times.n_dims && tti_good(b); d++) {
        if (times.dim[d] == 1) continue;
        if (to.dim[d] == 1) {
            bool of_batch = tti_is_batch_item(b, c, 1, d) && times.dim[d] == tti_batch_rows(b);
            to.dim[d] = times.dim[d];
            expand_to(b, &now, to, of_batch ? d : -1, &next);
        } else {
            tutti_shape wide = {.n_dims = to.n_dims + 1};
            if (wide.n_dims > TUTTI_MAX_DIMS) tti_refuse(b, "the result has too many dimensions");
            if (!tti_good(b)) return;
            for (int k = 0, w = 0; k < to.n_dims; k++) {
                if (k == d) wide.dim[w++] = 1;
                wide.dim[w++] = to.dim[k];
            }
            tti_operand one = {0}, many = {0};
            tti_do_reshape(b, &now, &wide, &one);
            wide.dim[d] = times.dim[d];
            if (tti_good(b)) expand_to(b, &one, wide, -1, &many);
            to.dim[d] *= times.dim[d];
            if (tti_good(b)) tti_do_reshape(b, &many, &to, &next);
        }
        now = next;
    }
    tti_set(c->out[0], &now);
}

const tti_operator tti_operators_repeat[] = {
    {.target = "aten.expand.default",
     .signature = "self size implicit!",
     .build = expand,
     .fold = expand,
     .view = true},
    {.target = "aten.expand_as.default",
     .signature = "self other",
     .build = expand_as,
     .fold = expand_as,
     .view = true},
    TTI_BOTH("repeat.default", "self repeats", repeat),
    {0},
};
