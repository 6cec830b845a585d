/* loop_nest_test.c - loop nests against plain indexing: every element of the result once, each
 * operand where broadcasting and layout put it; and how few loops are left.  No device is needed.
 */
#include "backend/cuda/runtime/loop_nest.h"

#include <stdio.h>
#include <stdlib.h>

#include "ir/graph.h"
#include "t.h"

enum { MAX_ELEMS = 4096, MAX_OPERANDS = 3 };

typedef struct offsets {
    uint64_t at[MAX_OPERANDS];
} offsets;

static int by_first(const void *a, const void *b) {
    const offsets *x = a, *y = b;
    return (x->at[0] > y->at[0]) - (x->at[0] < y->at[0]);
}

/* All that a nest visits, sorted by operand 0. */
static size_t walk(const tti_nest *nest, offsets *out) {
    size_t n = 1;
    for (int d = 0; d < nest->n_dims; d++) n *= (size_t)nest->dim[d];
    assert_true(n <= MAX_ELEMS);
    for (size_t i = 0; i < n; i++) {
        size_t rest = i;
        out[i] = (offsets){{0}};
        for (int d = nest->n_dims - 1; d >= 0; d--) {
            uint64_t index = rest % nest->dim[d];
            rest /= nest->dim[d];
            for (int k = 0; k < nest->n_operands; k++) out[i].at[k] += index * nest->stride[k][d];
        }
    }
    qsort(out, n, sizeof *out, by_first);
    return n;
}

/* Where element index[] of the full shape is in a value, repeated along dimensions of 1. */
static uint64_t place(const tutti_value *v, int n_dims, const int64_t *index) {
    const tutti_shape *s = &v->type.shape;
    int64_t i[TUTTI_MAX_DIMS];
    uint64_t at = 0;
    for (int d = 0; d < s->n_dims; d++) i[d] = s->dim[d] == 1 ? 0 : index[d + n_dims - s->n_dims];
    if (v->layout == TTI_CHANNELS_LAST_BYTES && s->n_dims == 4)
        return (uint64_t)(((i[0] * s->dim[2] + i[2]) * s->dim[3] + i[3]) * s->dim[1] + i[1]);
    for (int d = 0; d < s->n_dims; d++) at = at * (uint64_t)s->dim[d] + (uint64_t)i[d];
    return at;
}

static size_t walk_plainly(const tutti_value *const *v, int n_operands, offsets *out) {
    const tutti_shape *full = &v[0]->type.shape;
    size_t n = (size_t)tutti_shape_n_elems(full);
    for (size_t i = 0; i < n; i++) {
        int64_t index[TUTTI_MAX_DIMS] = {0};
        size_t rest = i;
        for (int d = full->n_dims - 1; d >= 0; d--) {
            index[d] = (int64_t)(rest % (size_t)full->dim[d]);
            rest /= (size_t)full->dim[d];
        }
        out[i] = (offsets){{0}};
        for (int k = 0; k < n_operands; k++) out[i].at[k] = place(v[k], full->n_dims, index);
    }
    qsort(out, n, sizeof *out, by_first);
    return n;
}

/* Types of operands, "L" after one for N,H,W,C; and the loops that are left. */
typedef struct row {
    const char *types[MAX_OPERANDS];
    int n_dims;
} row;

static int make_values(tutti_graph *g, const row *r, const tutti_value **v) {
    int n = 0;
    for (; n < MAX_OPERANDS && r->types[n]; n++) {
        const char *text = r->types[n];
        char name[16];
        tutti_type type;
        T_OK(tti_type_parse(&text, &type));
        snprintf(name, sizeof name, "x%d", n);
        tutti_value *value = tutti_input(g, name, type.dtype, &type.shape);
        if (*text == 'L') value->layout = TTI_CHANNELS_LAST_BYTES;
        v[n] = value;
    }
    return n;
}

static const row rows[] = {
    {{"f32[]", "f32[]"}, 1},
    {{"f32[7]", "f32[7]", "f32[7]"}, 1},
    {{"f32[4,5]", "f32[4,5]", "f32[1]"}, 1},
    {{"f32[4,5]", "f32[5]"}, 2},
    {{"f32[4,5]", "f32[4,1]"}, 2},
    {{"f32[2,3,4,5]", "f32[4,5]"}, 2},
    {{"f32[2,3,4,5]", "f32[3,1,1]"}, 3},
    {{"f32[2,3,4,5]L", "f32[2,3,4,5]L"}, 1},
    {{"f32[2,3,4,5]L", "f32[3,1,1]"}, 2},
    {{"f32[2,3,4,5]L", "f32[2,3,4,5]", "f32[2,3,1,1]"}, 3},
    {{"f32[2,3,4,5]", "f32[2,3,4,5]L"}, 3},
    {{"f32[1,3,1,5]", "f32[1,3,1,5]", "f32[3,1,5]"}, 1},
    {{"f32[2,1,4,1]L", "f32[2,1,4,1]"}, 1},
    {{"f32[2,3,2,2,3]", "f32[3,1,2,1]", "f32[2,1,1,2,3]"}, 5},
};

T_CASE(as_plain_indexing) {
    T_UNUSED;
    static offsets got[MAX_ELEMS], want[MAX_ELEMS];
    for (size_t i = 0; i < TTI_COUNT(rows); i++) {
        const tutti_value *v[MAX_OPERANDS];
        tutti_graph *g = tutti_graph_create(false);
        int n = make_values(g, &rows[i], v);
        tti_nest nest = tti_cuda_nest(&v[0]->type.shape, v, n);
        T_EQ(nest.n_operands, n);
        if (nest.n_dims != rows[i].n_dims)
            fail_msg("row %zu: %d loops, not %d", i, nest.n_dims, rows[i].n_dims);
        size_t n_elems = walk_plainly(v, n, want);
        T_EQ(walk(&nest, got), n_elems);
        for (size_t e = 0; e < n_elems; e++)
            for (int k = 0; k < n; k++)
                if (got[e].at[k] != want[e].at[k])
                    fail_msg("row %zu, element %zu, operand %d: %llu, not %llu", i, e, k,
                             (unsigned long long)got[e].at[k], (unsigned long long)want[e].at[k]);
        for (int d = 1; d < nest.n_dims; d++) /* the longest strides outside */
            assert_true(nest.stride[0][d - 1] >= nest.stride[0][d]);
        tutti_graph_destroy(g);
    }
}

T_CASE(same_order) {
    T_UNUSED;
    static const struct {
        row types;
        bool same;
    } pairs[] = {{{{"f32[2,3,4,5]", "bf16[2,3,4,5]"}, 0}, true},
                 {{{"f32[2,3,4,5]", "f32[2,3,4,5]L"}, 0}, false},
                 {{{"f32[2,3,1,1]", "f32[2,3,1,1]L"}, 0}, true},
                 {{{"f32[2,1,4,5]", "f32[2,1,4,5]L"}, 0}, true},
                 {{{"f32[6]", "f32[2,3]"}, 0}, false}};
    for (size_t i = 0; i < TTI_COUNT(pairs); i++) {
        const tutti_value *v[MAX_OPERANDS];
        tutti_graph *g = tutti_graph_create(false);
        T_EQ(make_values(g, &pairs[i].types, v), 2);
        assert_true(tti_cuda_same_order(v[0], v[1]) == pairs[i].same);
        assert_true(tti_cuda_same_order(v[1], v[0]) == pairs[i].same);
        tutti_graph_destroy(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_plain_indexing),
                                       cmocka_unit_test(same_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
