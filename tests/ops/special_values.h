/* special_values.h - NaN, infinities, a denormal and -0 in the inputs of the op samples, and which
 * answers of a kernel are honest then; for the tests of backends, which try them on every kernel.
 */
#ifndef TTI_TESTS_SPECIAL_VALUES_H
#define TTI_TESTS_SPECIAL_VALUES_H

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "ir/graph.h"

/* Into one element of an input, or into all. */
typedef enum t_place { T_FIRST, T_INSIDE, T_LAST, T_ALL } t_place;

typedef struct t_special {
    double value;
    t_place place;
} t_special;

static const t_special t_specials[] = {
    {NAN, T_INSIDE},    {NAN, T_FIRST},       {NAN, T_LAST},
    {NAN, T_ALL},       {INFINITY, T_INSIDE}, {-INFINITY, T_INSIDE},
    {-INFINITY, T_ALL}, {-0.0, T_ALL},        {1.1e-38, T_INSIDE}, /* a denormal */
};

static inline void t_put_special(const tutti_value *value, void *memory, const t_special *s) {
    size_t n = (size_t)tti_value_n_elems(value);
    size_t at = s->place == T_FIRST ? 0 : s->place == T_LAST ? n - 1 : (n - 1) * 2 / 3;
    for (size_t e = 0; e < n; e++)
        if (s->place == T_ALL || e == at) tti_store_elem(value->type.dtype, memory, e, s->value);
}

/* Sets the label's logit to -inf in every second row of a kind of cross entropy, and of
 * entropy_part, which may see rows without any weight, all logits of the other rows.  False: the
 * node is of another op.  Gradients stay finite, so every kernel must agree with the reference
 * element by element. */
static inline bool t_put_infinite_labels(const tti_node *node, void *logits, const void *labels) {
    const int32_t *label = (const int32_t *)labels;
    bool is_part = strcmp(node->op->name, "entropy_part") == 0;
    bool is_head = strcmp(node->op->name, "cross_entropy_head") == 0;
    if ((!strstr(node->op->name, "entropy") || node->in[1]->type.dtype != TUTTI_I32) || is_head)
        return false;
    int64_t first = tti_attr_has(node, "first") ? tti_attr_int(node, "first") : 0;
    int64_t n_rows = node->in[0]->type.shape.dim[0], n = node->in[0]->type.shape.dim[1];
    for (int64_t i = 0; i < n_rows * n; i++) {
        int64_t own = label[i / n] - first;
        if (i / n % 2 ? is_part : i % n == own)
            tti_store_elem(node->in[0]->type.dtype, logits, (size_t)i, -INFINITY);
    }
    return true;
}

/* The largest finite magnitude among n elements. */
static inline double t_largest(tutti_dtype dtype, const void *elems, size_t n) {
    double largest = 1e-30;
    for (size_t i = 0; i < n; i++) {
        double x = fabs(tti_load_elem(dtype, elems, i));
        if (x > largest && isfinite(x)) largest = x;
    }
    return largest;
}

/* Whether a kernel may give `got` where the reference gives `want`: what is not finite must not be
 * hidden.  If the special value put into an input is not finite, a kernel may have more elements
 * that are not, because it multiplies by zeros of padding that the reference skips; from infinities
 * it may make an infinity where the reference has NaN, because it adds in another order. */
static inline bool t_is_honest(double got, double want, double put, double tolerance) {
    if (isnan(got)) return isnan(want) || !isfinite(put);
    if (isinf(got)) return got == want || (isinf(put) && !isinf(want));
    return isfinite(want) && fabs(got - want) <= tolerance;
}

#endif /* TTI_TESTS_SPECIAL_VALUES_H */
