/* host_tensor.c - host tensors, which are computed while a graph is built: strided views of f64
 * arrays. */
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/error.h"
#include "import/graph/building.h"

/* Host tensors are masks, positions and tables; a larger one is a mistake or an attack. */
#define MAX_ELEMS ((int64_t)1 << 28)

int64_t tti_host_n(const tti_host *x) { return tutti_shape_n_elems(&x->shape); }

int64_t tti_host_offset(const tti_host *x, int64_t flat) {
    int64_t place = x->offset;
    for (int d = x->shape.n_dims - 1; d >= 0; d--) {
        place += flat % x->shape.dim[d] * x->stride[d];
        flat /= x->shape.dim[d];
    }
    return place;
}

double tti_host_at(const tti_host *x, int64_t flat) { return x->data[tti_host_offset(x, flat)]; }

tti_host_walk tti_host_begin(const tti_host *x) {
    tti_host_walk w = {.data = x->data, .place = x->offset, .n_dims = x->shape.n_dims};
    for (int d = 0; d < w.n_dims; d++) {
        w.dim[d] = x->shape.dim[d];
        w.stride[d] = x->stride[d];
    }
    return w;
}

int64_t tti_host_next_offset(tti_host_walk *w) {
    int64_t place = w->place;
    for (int d = w->n_dims - 1; d >= 0; d--) {
        w->place += w->stride[d];
        if (++w->index[d] < w->dim[d]) break;
        w->place -= w->stride[d] * w->dim[d];
        w->index[d] = 0;
    }
    return place;
}

double tti_host_next(tti_host_walk *w) { return w->data[tti_host_next_offset(w)]; }

void tti_host_copy_next(tti_host_walk *w, double *to, int64_t n) {
    int last = w->n_dims - 1;
    int64_t step = last < 0 ? 0 : w->stride[last];
    while (n > 0) { /* copies a row, or the rest of one */
        int64_t run = last < 0 ? n : TTI_MIN(n, w->dim[last] - w->index[last]);
        const double *from = w->data + w->place;
        if (step == 1)
            memcpy(to, from, (size_t)run * sizeof *to);
        else
            for (int64_t i = 0; i < run; i++) to[i] = from[i * step];
        if (last >= 0) {
            w->index[last] += run - 1;
            w->place += (run - 1) * step;
            tti_host_next_offset(w);
        }
        to += run;
        n -= run;
    }
}

bool tti_host_new(tti_building *b, tti_elem elem, const tutti_shape *shape, tti_host *out) {
    int64_t n = 1;
    *out = (tti_host){.elem = elem, .shape = *shape};
    for (int d = shape->n_dims - 1; d >= 0; d--) {
        out->stride[d] = n;
        if (shape->dim[d] < 0 || __builtin_mul_overflow(n, shape->dim[d], &n) || n > MAX_ELEMS) {
            tti_refuse(b, "a constant tensor of more than %lld elements", (long long)MAX_ELEMS);
            return false;
        }
    }
    if (!tti_add_work(b, (double)n)) return false;
    out->data = tti_build_alloc(b, ((size_t)n + 1) * sizeof(double));
    out->use = tti_build_alloc(b, sizeof *out->use);
    return out->data && out->use;
}

bool tti_host_new_like(tti_building *b, tti_elem elem, tti_host *const *parts, int n_parts,
                       tti_host *out, tti_host *whole) {
    tutti_shape full = parts[0]->shape, shape = full;
    int batch_dim = 0;
    for (int i = 0; i < n_parts; i++) batch_dim = TTI_MAX(batch_dim, parts[i]->batch_dim);
    for (int i = 0; i < n_parts && batch_dim > 0; i++)
        if (parts[i]->stride[batch_dim] != 0) batch_dim = 0;
    for (int d = 0; d < shape.n_dims && !b->keeps_repeats; d++) {
        bool repeats = shape.dim[d] > 1;
        for (int i = 0; i < n_parts; i++) repeats = repeats && parts[i]->stride[d] == 0;
        if (repeats) shape.dim[d] = 1;
    }
    if (!tti_host_new(b, elem, &shape, out)) return false;
    for (int i = 0; i < n_parts; i++) parts[i]->shape = shape;
    *whole = *out;
    bool same = memcmp(full.dim, shape.dim, sizeof full.dim) == 0;
    if (!same && !tti_host_expand(b, out, &full, whole)) return false;
    whole->batch_dim = batch_dim;
    return true;
}

bool tti_host_copy(tti_building *b, const tti_host *x, tti_host *out) {
    int64_t n = tti_host_n(x);
    if (!tti_host_new(b, x->elem, &x->shape, out)) return false;
    tti_host_walk from = tti_host_begin(x);
    tti_host_copy_next(&from, out->data, n);
    out->of_batch = x->of_batch;
    out->batch_dim = x->batch_dim;
    return true;
}

int64_t tti_to_int(double x) {
    const int64_t most = (int64_t)1 << 53;
    if (isnan(x)) return 0;
    return x >= 0x1p53 ? most : x <= -0x1p53 ? -most : (int64_t)x;
}

double tti_round(tti_elem elem, double x) {
    switch (elem) {
        case TTI_ELEM_F32:
            return (double)(float)x;
        case TTI_ELEM_F16:
            return (double)tti_f16_to_f32(tti_f32_to_f16((float)x));
        case TTI_ELEM_BF16:
            return (double)tti_bf16_to_f32(tti_f32_to_bf16((float)x));
        case TTI_ELEM_BOOL:
            return x != 0;
        case TTI_ELEM_F64:
        case TTI_ELEM_NONE:
            return x;
        default:
            return trunc(x);
    }
}

void tti_round_all(tti_elem elem, double *x, int64_t n) {
    if (elem == TTI_ELEM_F64 || elem == TTI_ELEM_NONE) return;
    if (elem == TTI_ELEM_F32)
        for (int64_t i = 0; i < n; i++) x[i] = (double)(float)x[i];
    else if (elem == TTI_ELEM_BOOL)
        for (int64_t i = 0; i < n; i++) x[i] = x[i] != 0;
    else
        for (int64_t i = 0; i < n; i++) x[i] = tti_round(elem, x[i]);
}

bool tti_host_expand(tti_building *b, const tti_host *x, const tutti_shape *shape, tti_host *out) {
    int ahead = shape->n_dims - x->shape.n_dims;
    int64_t n = 1;
    tti_host made = *x;
    made.shape = *shape;
    if (made.batch_dim > 0) made.batch_dim += ahead;
    bool fits = ahead >= 0;
    for (int d = 0; d < shape->n_dims && fits; d++) {
        int64_t own = d < ahead ? 1 : x->shape.dim[d - ahead];
        fits = own == shape->dim[d] || own == 1;
        made.stride[d] = d < ahead || own != shape->dim[d] ? 0 : x->stride[d - ahead];
        fits = fits && !__builtin_mul_overflow(n, shape->dim[d], &n) && n <= MAX_ELEMS;
    }
    if (!fits) {
        tti_refuse(b, "a constant cannot be repeated to that shape");
        return false;
    }
    x->use->shared = true;
    *out = made;
    return true;
}

bool tti_host_view_strides(const tti_host *x, const tutti_shape *to,
                           int64_t stride[TUTTI_MAX_DIMS]) {
    int t = to->n_dims - 1;
    int64_t n_run = 1, n_to = 1, unit = 0;
    bool in_run = false;
    for (int d = x->shape.n_dims - 1; d >= 0; d--) {
        if (!in_run) unit = x->stride[d];
        in_run = true;
        n_run *= x->shape.dim[d];
        bool ends = d == 0 || (x->shape.dim[d - 1] != 1 && x->stride[d - 1] != n_run * unit);
        if (!ends) continue;
        for (; t >= 0 && (n_to < n_run || to->dim[t] == 1); t--) {
            stride[t] = n_to * unit;
            n_to *= to->dim[t];
        }
        if (n_to != n_run) return false;
        n_run = n_to = 1;
        in_run = false;
    }
    for (; t >= 0; t--) stride[t] = 1; /* remaining dimensions have size 1 */
    return true;
}

bool tti_host_broadcast(tti_building *b, const tutti_shape *x, const tutti_shape *y,
                        tutti_shape *out) {
    int n = TTI_MAX(x->n_dims, y->n_dims);
    tutti_shape made = {.n_dims = n};
    for (int d = 0; d < n; d++) {
        int64_t p = d < n - x->n_dims ? 1 : x->dim[d - (n - x->n_dims)];
        int64_t q = d < n - y->n_dims ? 1 : y->dim[d - (n - y->n_dims)];
        if (p != q && p != 1 && q != 1) {
            tti_refuse(b, "the shapes do not match: %lld and %lld", (long long)p, (long long)q);
            return false;
        }
        made.dim[d] = p == 1 ? q : p;
    }
    *out = made;
    return true;
}

/* The kind of a type: boolean, integer or float. The result has the higher kind and its widest
 * type; numbers and scalars only count for the kind. */
static int kind_of(tti_elem elem) {
    return elem == TTI_ELEM_BOOL ? 0 : tti_elem_is_float(elem) ? 2 : 1;
}

static bool is_weak(const tti_operand *x) {
    return x->kind == TTI_OPERAND_NUMBER || tti_shape_of(x).n_dims == 0;
}

tti_elem tti_promote(const tti_operand *x, const tti_operand *y) {
    tti_elem p = tti_elem_of(x), q = tti_elem_of(y);
    int kp = kind_of(p), kq = kind_of(q);
    if (x->kind == TTI_OPERAND_NUMBER && kp > kq) return kp == 2 ? TTI_ELEM_F32 : TTI_ELEM_I64;
    if (y->kind == TTI_OPERAND_NUMBER && kq > kp) return kq == 2 ? TTI_ELEM_F32 : TTI_ELEM_I64;
    if (kp != kq) return kp > kq ? p : q;
    if (is_weak(x) != is_weak(y)) return is_weak(x) ? q : p;
    if (p == q) return p;
    bool halves =
        (p == TTI_ELEM_F16 && q == TTI_ELEM_BF16) || (p == TTI_ELEM_BF16 && q == TTI_ELEM_F16);
    if (halves) return TTI_ELEM_F32;
    if (p == TTI_ELEM_F64 || q == TTI_ELEM_F64) return TTI_ELEM_F64;
    if (kp == 2) return p == TTI_ELEM_F32 || q == TTI_ELEM_F32 ? TTI_ELEM_F32 : p;
    return TTI_MAX(p, q);
}

bool tti_host_uniform(const tti_host *x, double *value) {
    tti_host once = *x; /* a view without repeated elements */
    for (int d = 0; d < once.shape.n_dims; d++)
        if (once.stride[d] == 0 && once.shape.dim[d] > 1) once.shape.dim[d] = 1;
    int64_t n = tti_host_n(&once);
    if (n == 0) return false;
    tti_host_walk w = tti_host_begin(&once);
    *value = tti_host_next(&w);
    for (int64_t i = 1; i < n; i++)
        if (tti_f64_to_bits(tti_host_next(&w)) != tti_f64_to_bits(*value)) return false;
    return true;
}

bool tti_host_repeats(const tti_host *x, int d) {
    tti_host first = *x; /* a view without repeated elements */
    for (int i = 0; i < first.shape.n_dims; i++)
        if (i == d || (first.stride[i] == 0 && first.shape.dim[i] > 1)) first.shape.dim[i] = 1;
    int64_t n = tti_host_n(&first), step = x->stride[d];
    if (x->shape.dim[d] < 2) return false;
    tti_host_walk w = tti_host_begin(&first);
    for (int64_t i = 0; step != 0 && i < n; i++) {
        int64_t place = tti_host_next_offset(&w);
        for (int64_t k = 1; k < x->shape.dim[d]; k++) {
            double p = x->data[place], q = x->data[place + k * step];
            if (p != q && !(p != p && q != q)) return false;
        }
    }
    return true;
}
