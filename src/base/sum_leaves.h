/* sum_leaves.h - the leaves of a sum's order: its largest subtrees whose terms all lie on one host.
 * Only their sums are sent between hosts. */
#ifndef TTI_BASE_SUM_LEAVES_H
#define TTI_BASE_SUM_LEAVES_H

#include <stdbool.h>

enum { TTI_SUM_DEPTH = 24 }; /* more than the stack of an order ever holds, for V <= 2^20 */

/* The order's stack machine, with hosts for values.  Set starts and n_outer, both [terms] and zero,
 * and leave the rest zero. */
typedef struct tti_sum_leaves {
    bool *starts; /* a leaf begins at the term */
    int *n_outer; /* additions after the term that join values of several hosts */
    int n;
    struct {
        int first, host; /* a value's first term, and the host of all its terms or -1 */
    } stack[TTI_SUM_DEPTH];
} tti_sum_leaves;

/* Adds term t, in order from 0, which lies on host, and the n_adds additions after it. */
void tti_sum_leaves_add(tti_sum_leaves *leaves, int t, int host, int n_adds);

#endif /* TTI_BASE_SUM_LEAVES_H */
