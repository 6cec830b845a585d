/* built.h - what a builder made: the type of a value, or the reason why there is none. */
#ifndef TTI_TESTS_OPS_BUILT_H
#define TTI_TESTS_OPS_BUILT_H

#include "ir/graph.h"
#include "t.h"

/* "f32[16,10]" */
static inline void expect_shape(const tutti_value *value, const char *text) {
    char got[128];
    assert_non_null(value);
    assert_string_equal(tti_type_text(&value->type, got, sizeof got), text);
}

/* g has failed, its message contains text; g is destroyed. */
static inline void expect_failure(tutti_graph *g, const char *text) {
    T_FAILS(tutti_graph_check(g), TUTTI_E_INVALID, text);
    tutti_graph_destroy(g);
}

#endif /* TTI_TESTS_OPS_BUILT_H */
