/* rows_random.c - stochastic depth.
 *
 * Exporters draw one number for each sample and multiply the branch of a residual block by it.  The
 * import makes that number as drop_path of ones; here the branch itself becomes the input of
 * drop_path, so that it keeps its dtype and is read once. */
#include "ops/op_table.h"
#include "ops/rules.h"
#include "passes/recognize/pattern_rows.h"

/* Views, and lookups in a table of one row, leave ones as they are. */
static bool are_ones(tti_match *m, const tutti_value *value) {
    double x;
    for (int depth = 0; depth < 8; depth++) {
        const tti_node *node = value->node;
        if (tti_is_uniform(m->scene, value, &x)) return x == 1;
        bool is_row = tti_is_op(node, "embedding") && node->in[0]->type.shape.dim[0] == 1;
        if (!is_row && !(node->op->traits & TTI_VIEW)) return false;
        value = node->in[0];
    }
    return false;
}

/* One number for each sample of x, in as many dimensions. */
static bool drop_fits(tti_match *m) {
    const tutti_value *x = TTI_VAR(m, 'x'), *drawn = m->node[2]->out[0];
    const tutti_shape *s = &x->type.shape, *d = &drawn->type.shape;
    return s->n_dims == d->n_dims && s->n_dims > 0 && s->dim[0] == d->dim[0] &&
           tutti_shape_n_elems(d) == d->dim[0] && x->type.dtype == TUTTI_F32 && m->shift[1] == 0 &&
           tti_shape_equal(s, &m->root->out[0]->type.shape) && are_ones(m, TTI_VAR(m, 'o'));
}

static tutti_value *build_drop(tti_rewrite *rw, const tti_match *m) {
    const tti_node *drawn = m->node[2];
    tutti_value *x = tti_new(rw, TTI_VAR(m, 'x'));
    tutti_value *y =
        tti_emit(rw->to, "drop_path", drawn->name, &x, 1,
                 (tti_attr_arg[]){tti_same_attr(drawn, "p"), tti_same_attr(drawn, "key"), {0}});
    return tti_close_to(m->factor[1], 1) ? y : tti_new_affine(rw, y, m->factor[1], 0);
}

const tti_row tti_rows_random[] = {
    {.name = "stochastic depth",
     .spellings = {"mul(x, L1(drop_path@2(o)))"},
     .fits = drop_fits,
     .build = build_drop},
    {0},
};
