/* tensor_shard_test.c - runs of shards cover the whole once; first values are those of the whole.
 */
#include "ops/tensor_shard.h"

#include <stdlib.h>

#include "ops/init.h"
#include "ops/op_table.h"
#include "t.h"

/* A parameter [dims] of which dimension dim is cut; dim -1: whole. */
static tti_node *shard(tutti_graph *g, tutti_shape whole, int dim, int n, int index, int groups) {
    if (dim >= 0) whole.dim[dim] /= n;
    tutti_value *none = NULL;
    tutti_value *w = tti_emit(g, "param", "w", &none, 0,
                              (tti_attr_arg[]){TTI_INTS("dims", whole.n_dims, whole.dim),
                                               TTI_INT("init", TUTTI_INIT_HE_NORMAL),
                                               TTI_INT("cut_dim", dim),
                                               TTI_INT("cut_n", n),
                                               TTI_INT("cut_index", index),
                                               TTI_INT("cut_groups", groups),
                                               {0}});
    T_OK(tutti_graph_check(g));
    return w->node;
}

static const struct {
    tutti_shape whole;
    int dim, n, groups;
} cases[] = {
    {{2, {12, 5}}, 0, 2, 1},      {{2, {12, 5}}, 0, 2, 3},      {{2, {7, 6}}, 1, 3, 1},
    {{4, {3, 8, 3, 3}}, 1, 4, 2}, {{1, {24}}, 0, 4, 3},         {{3, {2, 3, 10}}, 2, 5, 1},
    {{2, {6, 6}}, -1, 1, 1},      {{4, {8, 2, 3, 3}}, 0, 8, 1},
};

T_CASE(shards_are_the_parts_of_the_whole) {
    T_UNUSED;
    for (size_t c = 0; c < TTI_COUNT(cases); c++) {
        tutti_graph *g = tutti_graph_create(true);
        tti_node *w = shard(g, cases[c].whole, -1, 1, 0, 1);
        size_t n_whole = (size_t)tutti_shape_n_elems(&cases[c].whole), n_seen = 0;
        float *all = calloc(n_whole, sizeof *all), *own = calloc(n_whole, sizeof *own);
        int *seen = calloc(n_whole, sizeof *seen);
        tti_init_param(w, 7, all);
        for (int index = 0; index < cases[c].n; index++) {
            tutti_graph *h = tutti_graph_create(true);
            const tti_node *p =
                shard(h, cases[c].whole, cases[c].dim, cases[c].n, index, cases[c].groups);
            tutti_shape whole = tti_tensor_shard_whole(p);
            assert_true(tti_shape_equal(&whole, &cases[c].whole));
            tti_init_param(p, 7, own);
            size_t at = 0;
            for (size_t i = 0; i < tti_tensor_shard_n_runs(p); i++) {
                tti_tensor_shard_run run = tti_tensor_shard_run_at(p, i);
                T_EQ(run.in_shard, at);
                for (size_t e = 0; e < run.n_elems; e++) {
                    seen[run.in_whole + e]++;
                    assert_memory_equal(&own[at + e], &all[run.in_whole + e], sizeof *own);
                }
                at += run.n_elems;
            }
            T_EQ(at, tti_value_n_elems(p->out[0]));
            n_seen += at;
            tutti_graph_destroy(h);
        }
        T_EQ(n_seen, n_whole);
        for (size_t e = 0; e < n_whole; e++) T_EQ(seen[e], 1);
        free(all), free(own), free(seen);
        tutti_graph_destroy(g);
    }
}

/* q, k and v of three heads, packed: the second of three workers has the second head of each. */
T_CASE(packed_dimensions_are_cut_group_by_group) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    const tti_node *w = shard(g, TUTTI_SHAPE(18), 0, 3, 1, 3);
    T_EQ(tti_tensor_shard_n_runs(w), 3);
    for (size_t i = 0; i < 3; i++) {
        tti_tensor_shard_run run = tti_tensor_shard_run_at(w, i);
        T_EQ(run.in_whole, 6 * i + 2);
        T_EQ(run.in_shard, 2 * i);
        T_EQ(run.n_elems, 2);
    }
    tutti_graph_destroy(g);
}

/* A range of a shard may begin anywhere. */
T_CASE(ranges_are_parts) {
    T_UNUSED;
    tutti_graph *g = tutti_graph_create(true);
    const tti_node *w = shard(g, TUTTI_SHAPE(5, 9, 7), 1, 3, 2, 1);
    float all[5 * 3 * 7], part[5 * 3 * 7];
    tti_init_param(w, 3, all);
    for (size_t first = 0; first < TTI_COUNT(all); first += 4)
        for (size_t last = first; last <= TTI_COUNT(all); last += 13) {
            tti_init_param_range(w, 3, first, last, part);
            assert_memory_equal(part, all + first, (last - first) * sizeof *part);
        }
    tutti_graph_destroy(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_are_the_parts_of_the_whole),
        cmocka_unit_test(packed_dimensions_are_cut_group_by_group),
        cmocka_unit_test(ranges_are_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
