/* aten_scatter.c - elements put to places of a tensor, of constants.  aten_index.c has the same of
 * values in the graph. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "import/aten/aten.h"

typedef enum put_kind { PUT_SET, PUT_SUM, PUT_MEAN, PUT_MAX, PUT_MIN, PUT_PRODUCT } put_kind;

/* The new value of a place after one more element. */
static double put(put_kind kind, double old, double x) {
    switch (kind) {
        case PUT_SUM:
        case PUT_MEAN:
            return old + x;
        case PUT_MAX:
            return isnan(x) || x > old ? x : old;
        case PUT_MIN:
            return isnan(x) || x < old ? x : old;
        case PUT_PRODUCT:
            return old * x;
        default:
            return x;
    }
}

/* Whether index fits the tensor and the elements that are put: no larger, but along dim. */
static bool fits(const tti_operand *src, const tutti_shape *ids, const tutti_shape *to, int dim) {
    bool good = ids->n_dims == to->n_dims;
    tutti_shape from = tti_shape_of(src);
    good &= src->kind == TTI_OPERAND_NUMBER || from.n_dims == ids->n_dims;
    for (int d = 0; d < ids->n_dims && good; d++) {
        good = d == dim || ids->dim[d] <= to->dim[d];
        good &= src->kind == TTI_OPERAND_NUMBER || ids->dim[d] <= from.dim[d];
    }
    return good;
}

/* self dim index src .. : without the own elements of self in the places that are hit, unless
 * has_own. */
static void fold_put(tti_building *b, const tti_call *c, put_kind kind, bool has_own) {
    const tti_operand *x = tti_operand_at(b, c, 0), *ids = tti_operand_at(b, c, 2);
    const tti_operand *src = tti_operand_at(b, c, 3);
    tutti_shape shape = tti_shape_of(ids), to = tti_shape_of(x);
    int dim = tti_dim_at(b, c, 1, to.n_dims);
    tti_host made, counts;
    if (tti_good(b) && x->kind == TTI_OPERAND_NUMBER) tti_refuse(b, "a tensor is expected");
    if (tti_good(b) && (to.n_dims < 1 || !fits(src, &shape, &to, dim)))
        tti_refuse(b, "the index does not fit the tensor");
    if (!tti_good(b) || !tti_host_copy(b, &x->host, &made)) return;
    if (!tti_host_new(b, TTI_ELEM_I64, &to, &counts)) return;
    int64_t n = tutti_shape_n_elems(&shape), n_to = tti_host_n(&made);
    if (!tti_add_work(b, (double)n)) return;
    for (int64_t i = 0; i < n; i++) {
        int64_t left = i, place = 0, from = src->kind == TTI_OPERAND_HOST ? src->host.offset : 0;
        double where = tti_host_at(&ids->host, i);
        if (!(where >= 0 && where < (double)to.dim[dim])) {
            tti_refuse(b, "an index is outside the tensor");
            return;
        }
        for (int d = shape.n_dims - 1; d >= 0; d--) {
            int64_t at = left % shape.dim[d];
            left /= shape.dim[d];
            place += (d == dim ? (int64_t)where : at) * made.stride[d];
            if (src->kind == TTI_OPERAND_HOST) from += at * src->host.stride[d];
        }
        double e = src->kind == TTI_OPERAND_HOST ? src->host.data[from] : src->number;
        bool is_first = counts.data[place]++ == 0 && !has_own;
        made.data[place] = is_first ? e : put(kind, made.data[place], e);
    }
    for (int64_t i = 0; i < n_to; i++) {
        double n_put = counts.data[i] + has_own;
        if (kind == PUT_MEAN && counts.data[i] > 0) made.data[i] /= n_put;
        made.data[i] = tti_round(made.elem, made.data[i]);
    }
    tti_set_host(c->out[0], &made);
}

void tti_fold_scatter(tti_building *b, const tti_call *c) { fold_put(b, c, PUT_SET, true); }
void tti_fold_scatter_add(tti_building *b, const tti_call *c) { fold_put(b, c, PUT_SUM, true); }

/* self dim index src reduce include_self */
void tti_fold_scatter_reduce(tti_building *b, const tti_call *c) {
    static const struct {
        const char *name;
        put_kind kind;
    } known[] = {{"sum", PUT_SUM},
                 {"mean", PUT_MEAN},
                 {"amax", PUT_MAX},
                 {"amin", PUT_MIN},
                 {"prod", PUT_PRODUCT}};
    const char *reduce = tti_text_at(b, c, 4);
    for (size_t i = 0; i < TTI_COUNT(known) && tti_good(b); i++)
        if (strcmp(reduce, known[i].name) == 0) {
            fold_put(b, c, known[i].kind, tti_bool_at(b, c, 5));
            return;
        }
    tti_refuse(b, "reduce=%.20s", reduce);
}
