/* sum_leaves.c - implements sum_leaves.h. */
#include "base/sum_leaves.h"

#include "base/error.h"

void tti_sum_leaves_add(tti_sum_leaves *l, int t, int host, int n_adds) {
    TTI_ASSERT(l->n < TTI_SUM_DEPTH);
    l->stack[l->n].first = t;
    l->stack[l->n++].host = host;
    l->starts[0] = true; /* also where one host has all */
    for (; n_adds > 0; n_adds--, l->n--) {
        int *a = &l->stack[l->n - 2].host, b = l->stack[l->n - 1].host;
        if (*a >= 0 && *a == b) continue;
        if (*a >= 0) l->starts[l->stack[l->n - 2].first] = true;
        if (b >= 0) l->starts[l->stack[l->n - 1].first] = true;
        *a = -1;
        l->n_outer[t]++;
    }
}
