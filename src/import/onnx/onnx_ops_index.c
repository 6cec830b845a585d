/* onnx_ops_index.c - ONNX operators that create constants, and that select or replace elements by
 * index. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "import/onnx/onnx_ops.h"

/* ---- constants ---- */

/* input value: a tensor of that shape with all elements equal to value. */
static void constant_of_shape(tti_building *b, const tti_call *c) {
    int n;
    const int64_t *list = tti_list_at(b, c, 0, &n);
    const tti_operand *value = tti_has(c, 1) ? tti_operand_at(b, c, 1) : NULL;
    tutti_shape shape = {.n_dims = n};
    tti_host made;
    double x = value ? tti_number_at(b, c, 1) : 0;
    if (n > TUTTI_MAX_DIMS) tti_refuse(b, "a shape of %d dimensions is not supported", n);
    if (!tti_good(b)) return;
    for (int d = 0; d < n; d++) shape.dim[d] = list[d];
    if (!tti_host_new(b, value ? tti_elem_of(value) : TTI_ELEM_F32, &shape, &made)) return;
    n = (int)TTI_MIN(tti_host_n(&made), INT32_MAX);
    for (int i = 0; i < n; i++) made.data[i] = x;
    tti_set_host(c->out[0], &made);
}

/* start limit delta */
static void range(tti_building *b, const tti_call *c) {
    tti_elem elem = tti_elem_of(tti_operand_at(b, c, 0));
    double start = tti_number_at(b, c, 0), end = tti_number_at(b, c, 1);
    double step = tti_number_at(b, c, 2);
    if (!tti_good(b)) return;
    tti_call_row(b, "aten.arange.start_step",
                 (tti_arg[]){tti_float_arg(start),
                             tti_float_arg(end),
                             tti_float_arg(step),
                             {.kind = TTI_ARG_DTYPE, .i = elem}},
                 4, c->out, 1);
}

/* input k upper */
static void trilu(tti_building *b, const tti_call *c) {
    bool upper = tti_bool_at(b, c, 2);
    tti_arg diagonal = tti_int_arg(tti_has(c, 1) ? tti_int_at(b, c, 1) : 0);
    if (tti_good(b))
        tti_call_row(b, upper ? "aten.triu.default" : "aten.tril.default",
                     (tti_arg[]){*c->arg[0], diagonal}, 2, c->out, 1);
}

/* ---- selecting ---- */

/* Negative indices count from the end. Makes constant indices positive. */
static bool wrap_index(tti_building *b, const tti_operand *index, int64_t n, tti_operand *out) {
    *out = *index;
    if (index->kind != TTI_OPERAND_HOST) return tti_good(b);
    tti_host made;
    if (!tti_host_copy(b, &index->host, &made)) return false;
    int64_t n_index = tti_host_n(&made);
    for (int64_t i = 0; i < n_index && tti_good(b); i++) {
        if (made.data[i] < 0) made.data[i] += (double)n;
        if (!(made.data[i] >= 0 && made.data[i] < (double)n))
            tti_refuse(b, "an index is outside the tensor");
    }
    tti_set_host(out, &made);
    out->of_shape = index->of_shape;
    return tti_good(b);
}

/* Looks up rows of a table that does not depend on the samples. padding: the row that gets no
 * gradient; -1: none. */
static void look_up(tti_building *b, const tti_operand *table, const tti_operand *index,
                    int64_t padding, tti_operand *out) {
    tutti_shape s = tti_shape_of(table), si = tti_shape_of(index), to = si;
    tti_operand flat = {0}, rows = {0};
    if (s.n_dims == 2) {
        tti_call_row(
            b, "aten.embedding.default",
            (tti_arg[]){tti_operand_arg(table), tti_operand_arg(index), tti_int_arg(padding)}, 3,
            &out, 1);
        return;
    }
    for (int d = 1; d < s.n_dims; d++) {
        if (to.n_dims == TUTTI_MAX_DIMS) tti_refuse(b, "the result has too many dimensions");
        if (!tti_good(b)) return;
        to.dim[to.n_dims++] = s.dim[d];
    }
    tti_do_reshape(b, table, &TUTTI_SHAPE(s.dim[0], -1), &flat);
    tti_call_row(b, "aten.embedding.default",
                 (tti_arg[]){tti_operand_arg(&flat), tti_operand_arg(index)}, 2,
                 (tti_operand *[]){&rows}, 1);
    if (tti_good(b)) tti_do_reshape(b, &rows, &to, out);
}

/* Exporters write a strided view as an index into a flat tensor, in which row n is row 0 plus n
 * times the size of a sample. True if so: then each row selects from its own sample, *own is row 0
 * of the index, and *n_each the number of elements of a sample. */
static bool picks_by_sample(tti_building *b, const tti_operand *x, const tti_operand *index,
                            tti_host *own, int64_t *n_each) {
    tutti_shape s = tti_shape_of(x), si = tti_shape_of(index);
    if (s.n_dims != 1 || !tti_of_batch(x) || index->kind != TTI_OPERAND_HOST || si.n_dims < 1 ||
        si.dim[0] != tti_batch_rows(b) || s.dim[0] % tti_batch_rows(b) != 0)
        return false;
    *n_each = s.dim[0] / tti_batch_rows(b);
    *own = index->host;
    own->shape.dim[0] = 1;
    int64_t n = tti_host_n(own);
    for (int64_t row = 0; row < tti_batch_rows(b); row++)
        for (int64_t i = 0; i < n; i++) {
            double first = tti_host_at(&index->host, i),
                   here = tti_host_at(&index->host, row * n + i);
            if (!(first < (double)*n_each) || here != first + (double)(row * *n_each)) return false;
        }
    return true;
}

static void pick_by_sample(tti_building *b, const tti_call *c, const tti_host *own,
                           int64_t n_each) {
    tti_operand rows = {0}, index = {.kind = TTI_OPERAND_HOST, .host = *own}, flat = {0},
                made = {0};
    tutti_shape to = own->shape;
    int64_t n = tti_host_n(own);
    bool all = n == n_each;
    to.dim[0] = tti_batch_rows(b);
    for (int64_t i = 0; i < n && all; i++) all = tti_host_at(own, i) == (double)i;
    tti_do_reshape(b, tti_operand_at(b, c, 0), &TUTTI_SHAPE(tti_batch_rows(b), n_each), &rows);
    if (tti_good(b)) tti_do_reshape(b, &index, &TUTTI_SHAPE(n), &flat);
    tti_arg items[2] = {{0}, tti_operand_arg(&flat)};
    if (!all && tti_good(b))
        tti_call_row(
            b, "aten.index.Tensor",
            (tti_arg[]){tti_operand_arg(&rows), {.kind = TTI_ARG_LIST, .items = items, .n = 2}}, 2,
            (tti_operand *[]){&made}, 1);
    if (tti_good(b)) tti_do_reshape(b, all ? &rows : &made, &to, c->out[0]);
}

/* data indices axis padding_idx (only from PyTorch's annotations) */
static void gather(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape s = tti_shape_of(x);
    int dim = tti_dim_at(b, c, 2, s.n_dims);
    tti_operand index;
    if (s.n_dims < 1) tti_refuse(b, "a scalar is not supported");
    if (!tti_good(b) || !wrap_index(b, tti_operand_at(b, c, 1), s.dim[dim], &index)) return;
    bool of_batch = tti_of_batch(x), known = tti_on_host(&index);
    tti_host own;
    int64_t n_each;
    if (picks_by_sample(b, x, &index, &own, &n_each)) {
        pick_by_sample(b, c, &own, n_each);
    } else if (known && tti_shape_of(&index).n_dims == 0) {
        double at = index.kind == TTI_OPERAND_HOST ? tti_host_at(&index.host, 0) : index.number;
        tti_call_row(b, "aten.select.int",
                     (tti_arg[]){*c->arg[0], tti_int_arg(dim), tti_int_arg(tti_to_int(at))}, 3,
                     c->out, 1);
    } else if (!of_batch && dim == 0 && !(known && x->kind == TTI_OPERAND_HOST)) {
        look_up(b, x, &index, tti_int_at(b, c, 3), c->out[0]);
    } else {
        tti_arg items[TUTTI_MAX_DIMS + 1] = {{0}};
        items[dim] = tti_operand_arg(&index);
        tti_arg list = {.kind = TTI_ARG_LIST, .items = items, .n = dim + 1};
        tti_call_row(b, "aten.index.Tensor", (tti_arg[]){*c->arg[0], list}, 2, c->out, 1);
    }
}

/* data indices axis: one index for each element of the result */
static void gather_elements(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0);
    tutti_shape s = tti_shape_of(x);
    int dim = tti_dim_at(b, c, 2, s.n_dims);
    tti_operand index;
    if (!tti_good(b) || !wrap_index(b, tti_operand_at(b, c, 1), s.dim[dim], &index)) return;
    tti_call_row(b, "aten.gather.default",
                 (tti_arg[]){*c->arg[0], tti_int_arg(dim), tti_operand_arg(&index)}, 3, c->out, 1);
}

/* Constant indices [..,K]: each selects in dimensions 0 .. K - 1 of x and keeps the rest. */
typedef struct places {
    int k;             /* number of indexed dimensions */
    int64_t n, inner;  /* number of indices; elements that each selects */
    tutti_shape shape; /* shape of the indices without the last dimension */
} places;

static bool read_places(tti_building *b, const tti_operand *x, const tti_operand *index,
                        places *out) {
    tutti_shape s = tti_shape_of(x), si = tti_shape_of(index);
    *out = (places){.n = 1, .inner = 1};
    if (index->kind != TTI_OPERAND_HOST) {
        tti_refuse(b, "indices that depend on inputs are not supported");
        return false;
    }
    out->k = si.n_dims > 0 && si.dim[si.n_dims - 1] <= s.n_dims ? (int)si.dim[si.n_dims - 1] : -1;
    if (out->k < 1) tti_refuse(b, "the indices do not fit the tensor");
    if (!tti_good(b)) return false;
    out->shape = si;
    out->shape.n_dims--;
    out->n = tutti_shape_n_elems(&out->shape);
    for (int d = out->k; d < s.n_dims; d++) out->inner *= s.dim[d];
    return true;
}

/* Returns the first element that index i selects, in row-major order; -1: out of range. */
static int64_t place_of(const tutti_shape *s, const tti_host *index, const places *p, int64_t i) {
    int64_t place = 0;
    for (int d = 0; d < p->k; d++) {
        double at = tti_host_at(index, i * p->k + d);
        if (at < 0) at += (double)s->dim[d];
        if (!(at >= 0 && at < (double)s->dim[d])) return -1;
        place = place * s->dim[d] + (int64_t)at;
    }
    return place * p->inner;
}

/* The indices of each dimension as separate tensors, as in x[i, j]. */
typedef struct by_dims {
    tti_operand ids[TUTTI_MAX_DIMS];
    tti_arg items[TUTTI_MAX_DIMS], list;
} by_dims;

static void part_indices(tti_building *b, const tti_call *c, by_dims *to) {
    const tti_operand *index = tti_operand_at(b, c, 1);
    tutti_shape s = tti_shape_of(index), from = tti_shape_of(tti_operand_at(b, c, 0));
    bool is_list = index->kind == TTI_OPERAND_LIST; /* from concat, one index per part */
    int64_t k = is_list ? index->n_items : s.n_dims > 0 ? s.dim[s.n_dims - 1] : 0;
    to->list = (tti_arg){.kind = TTI_ARG_LIST, .items = to->items};
    if (k < 1 || k > from.n_dims) tti_refuse(b, "the indices do not fit the tensor");
    for (; tti_good(b) && to->list.n < k; to->list.n++) {
        tti_operand *part = &to->ids[to->list.n];
        const tti_operand *from_part = is_list ? &index->items[to->list.n] : index;
        tti_arg at = tti_int_arg(is_list ? 0 : to->list.n);
        tti_call_row(b, "aten.select.int",
                     (tti_arg[]){tti_operand_arg(from_part), tti_int_arg(-1), at}, 3, &part, 1);
        to->items[to->list.n] = tti_operand_arg(part);
    }
}

/* data indices batch_dims */
static void gather_nd(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *index = tti_operand_at(b, c, 1);
    places p;
    tti_host made;
    if (tti_int_at(b, c, 2) != 0) tti_refuse(b, "batch_dims other than 0 is not supported");
    if (!tti_good(b)) return;
    if (x->kind != TTI_OPERAND_HOST || index->kind != TTI_OPERAND_HOST) {
        by_dims parts = {0};
        part_indices(b, c, &parts);
        if (tti_good(b))
            tti_call_row(b, "aten.index.Tensor", (tti_arg[]){*c->arg[0], parts.list}, 2, c->out, 1);
        return;
    }
    if (!read_places(b, x, index, &p)) return;
    tutti_shape s = tti_shape_of(x), shape = p.shape;
    for (int d = p.k; d < s.n_dims && tti_good(b); d++) {
        if (shape.n_dims == TUTTI_MAX_DIMS) tti_refuse(b, "the result has too many dimensions");
        if (tti_good(b)) shape.dim[shape.n_dims++] = s.dim[d];
    }
    if (!tti_good(b) || !tti_host_new(b, tti_elem_of(x), &shape, &made)) return;
    for (int64_t i = 0; i < p.n && tti_good(b); i++) {
        int64_t from = place_of(&s, &index->host, &p, i);
        if (from < 0) tti_refuse(b, "an index is outside the tensor");
        for (int64_t e = 0; from >= 0 && e < p.inner; e++)
            made.data[i * p.inner + e] = tti_host_at(&x->host, from + e);
    }
    tti_set_host(c->out[0], &made);
}

/* ScatterND on graph values: rows at constant indices of the first dimension, as writes to slices
 * are exported, or elements by their indices. */
static void put_values(tti_building *b, const tti_call *c, bool adds) {
    const tti_operand *index = tti_operand_at(b, c, 1);
    tutti_shape s = tti_shape_of(index);
    by_dims parts = {0};
    part_indices(b, c, &parts);
    if (!tti_good(b)) return;
    if (index->kind == TTI_OPERAND_HOST && s.n_dims == 2 && s.dim[1] == 1)
        tti_call_row(b, adds ? "aten.index_add.default" : "aten.index_copy.default",
                     (tti_arg[]){*c->arg[0], tti_int_arg(0), parts.items[0], *c->arg[2]}, 4, c->out,
                     1);
    else
        tti_call_row(b, "aten.index_put.default",
                     (tti_arg[]){*c->arg[0], parts.list, *c->arg[2], tti_bool_arg(adds)}, 4, c->out,
                     1);
}

/* data indices updates reduction */
static void scatter_nd(tti_building *b, const tti_call *c) {
    const tti_operand *x = tti_operand_at(b, c, 0), *index = tti_operand_at(b, c, 1);
    const tti_operand *news = tti_operand_at(b, c, 2);
    const char *reduction = tti_text_at(b, c, 3);
    bool adds = strcmp(reduction, "add") == 0;
    places p;
    tti_host made;
    if (!adds && strcmp(reduction, "none") != 0)
        tti_refuse(b, "reduction='%.20s' is not supported", reduction);
    if (!tti_good(b)) return;
    if (adds || !tti_on_host(x) || !tti_on_host(index) || !tti_on_host(news)) {
        put_values(b, c, adds);
        return;
    }
    if (!read_places(b, x, index, &p)) return;
    tutti_shape s = tti_shape_of(x);
    if (tti_host_n(&news->host) != p.n * p.inner)
        tti_refuse(b, "the shape of the updates does not match");
    if (!tti_good(b) || !tti_host_copy(b, &x->host, &made)) return;
    for (int64_t i = 0; i < p.n && tti_good(b); i++) {
        int64_t to = place_of(&s, &index->host, &p, i);
        if (to < 0) tti_refuse(b, "an index is outside the tensor");
        for (int64_t e = 0; to >= 0 && e < p.inner; e++)
            made.data[to + e] = tti_host_at(&news->host, i * p.inner + e);
    }
    tti_set_host(c->out[0], &made);
}

/* X K axis largest sorted */
static void top_k(tti_building *b, const tti_call *c) {
    int n;
    const int64_t *k = tti_list_at(b, c, 1, &n);
    if (tti_good(b) && n != 1) tti_refuse(b, "K is not a number");
    if (tti_good(b))
        tti_call_row(b, "aten.topk.default",
                     (tti_arg[]){*c->arg[0], tti_int_arg(k[0]), *c->arg[2],
                                 tti_bool_arg(tti_bool_at(b, c, 3))},
                     4, c->out, c->n_outs);
}

/* data indices updates axis reduction */
static void scatter_elements(tti_building *b, const tti_call *c) {
    static const char *const names[][2] = {
        {"none", ""}, {"add", "sum"}, {"mul", "prod"}, {"max", "amax"}, {"min", "amin"}};
    const char *reduction = tti_text_at(b, c, 4);
    size_t i = 0;
    while (i < TTI_COUNT(names) && strcmp(reduction, names[i][0]) != 0) i++;
    if (i == TTI_COUNT(names)) tti_refuse(b, "reduction='%s' is not supported", reduction);
    if (tti_good(b))
        tti_call_row(b, i == 0 ? "aten.scatter.src" : "aten.scatter_reduce.two",
                     (tti_arg[]){*c->arg[0], *c->arg[3], *c->arg[1], *c->arg[2],
                                 tti_text_arg(i < TTI_COUNT(names) ? names[i][1] : "")},
                     i == 0 ? 4 : 5, c->out, 1);
}

/* Runs a row with two arguments on *x, and stores the result in *x. */
static void call_pair(tti_building *b, const char *target, tti_arg other, tti_operand *x) {
    tti_operand made = {0};
    if (!tti_good(b)) return;
    tti_call_row(b, target, (tti_arg[]){tti_operand_arg(x), other}, 2, (tti_operand *[]){&made}, 1);
    *x = made;
}

/* indices depth values axis: values [off, on]. Negative indices count from the end; other indices
 * outside of 0 .. depth-1 give off. */
static void one_hot(tti_building *b, const tti_call *c) {
    tti_operand ids = *tti_operand_at(b, c, 0), negative = ids;
    int n_depth;
    const int64_t *depth = tti_list_at(b, c, 1, &n_depth);
    const tti_operand *values = tti_operand_at(b, c, 2);
    bool two = values->kind == TTI_OPERAND_HOST && tti_host_n(&values->host) == 2;
    if (tti_good(b) && (n_depth != 1 || !two || tti_int_at(b, c, 3) != -1))
        tti_refuse(b, "a constant depth, two constant values and the last axis are supported");
    if (!tti_good(b)) return;
    double off = tti_host_at(&values->host, 0), on = tti_host_at(&values->host, 1);
    call_pair(b, "aten.lt.Scalar", tti_int_arg(0), &negative);
    call_pair(b, "aten.mul.Tensor", tti_int_arg(depth[0]), &negative);
    call_pair(b, "aten.add.Tensor", tti_operand_arg(&negative), &ids);
    call_pair(b, "aten.one_hot.default", tti_int_arg(depth[0]), &ids);
    call_pair(b, "aten.mul.Tensor", tti_float_arg(on - off), &ids);
    call_pair(b, "aten.add.Tensor", tti_float_arg(off), &ids);
    if (tti_good(b)) tti_set(c->out[0], &ids);
}

#define OWN(op, args, fn) \
    { .target = "onnx." op, .signature = args, .build = fn }

const tti_operator tti_operators_onnx_index[] = {
    OWN("TopK", "X K axis=-1 largest=1 sorted!=1", top_k),
    OWN("ScatterElements", "data indices updates axis=0 reduction=none", scatter_elements),
    OWN("OneHot", "indices depth values axis=-1", one_hot),
    OWN("ConstantOfShape", "input value=None", constant_of_shape),
    OWN("Range", "start limit delta", range),
    OWN("Trilu", "input k=None upper=1", trilu),
    OWN("Gather", "data indices axis=0 padding_idx=-1", gather),
    OWN("GatherElements", "data indices axis=0", gather_elements),
    OWN("GatherND", "data indices batch_dims=0", gather_nd),
    OWN("ScatterND", "data indices updates reduction=none", scatter_nd),
    {0},
};
