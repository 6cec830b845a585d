/* op_samples.h - builds the graph of one sample of the op table, and its data; for the tests of ops
 * and backends.  Header only: it needs ir and ops, which not every test program links. */
#ifndef TTI_TESTS_OP_SAMPLES_H
#define TTI_TESTS_OP_SAMPLES_H

#include <stdio.h>
#include <stdlib.h>

#include "base/dtype.h"
#include "base/philox.h"
#include "ops/op_table.h"

/* Adds inputs "x0", "x1", .. of the given types and a node of op to g; the node, or NULL when g
 * has failed. */
static inline tti_node *t_add_node(tutti_graph *g, const tti_op *op, const tutti_type *types,
                                   int n_in, const tti_attr_arg *attrs) {
    tutti_value *in[TTI_MAX_IN] = {NULL};
    for (int i = 0; i < n_in; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        in[i] = tutti_input(g, name, types[i].dtype, &types[i].shape);
    }
    return tti_graph_add(
        g, &(tti_node_desc){.op = op, .name = "layer", .in = in, .n_in = n_in, .attrs = attrs});
}

/* The types and attributes of a sample; aborts the test on a sample that does not parse. */
static inline int t_parse_sample(const tti_op *op, const tti_sample *sample, tutti_type *types,
                                 tti_attr_arg *attrs) {
    int n_in = 0;
    const char *text = sample->in;
    while (*text) {
        while (*text == ' ') text++;
        if (!*text) break;
        if (tti_type_parse(&text, &types[n_in++]) != TUTTI_OK) abort();
    }
    for (int i = 0; i <= TTI_MAX_ATTRS; i++) attrs[i] = (tti_attr_arg){0};
    const char *list = sample->attrs ? sample->attrs : "";
    static tti_arena bytes; /* of all samples, until the program ends */
    if (tti_attrs_parse(op, &list, &bytes, attrs, TTI_MAX_ATTRS + 1) != TUTTI_OK) abort();
    return n_in;
}

/* Element e of input i of a sample. */
static inline double t_sample_elem(const tti_sample *sample, tutti_dtype dtype, int i, size_t e) {
    double unit = (double)tti_philox_draw(99, (uint64_t)i, e).v[0] * 0x1p-32;
    bool is_int = dtype == TUTTI_I32 || dtype == TUTTI_I64 || dtype == TUTTI_U8;
    double lo = sample->lo, hi = sample->hi;
    if (is_int)
        return (double)(sample->int_lo +
                        (int64_t)(unit * (double)(sample->int_hi - sample->int_lo + 1)));
    if (lo == 0 && hi == 0) lo = -1, hi = 1;
    double shift = sample->shifted >> i & 1 ? sample->shift : 0;
    return shift + lo + (hi - lo) * unit;
}

/* All of input i, rounded to its dtype. */
static inline void t_fill_input(const tti_node *node, const tti_sample *sample, int i, void *to) {
    const tutti_value *value = node->in[i];
    tutti_dtype dtype = value->type.dtype;
    for (size_t e = 0; e < (size_t)tti_value_n_elems(value); e++)
        tti_store_elem(dtype, to, e, t_sample_elem(sample, dtype, i, e));
}

#endif /* TTI_TESTS_OP_SAMPLES_H */
