/* order.h - rows sorted by keys, without sorting them.
 *
 * The experts of a mixture (MoE) are exported as a sort of all rows by expert, operations on the
 * sorted rows, and the way back.  A graph that sorts along the batch cannot be divided among
 * workers, and need not sort: what is done to each row alone may as well be done where the row was.
 * So a row of the sorted side keeps its place and only the operand remembers the order.  Operators
 * on each row alone pass it on (tti_apply_ordered_row); whatever else reads such an operand gets it
 * sorted (tti_sort_out). */
#ifndef TTI_IMPORT_ORDER_H
#define TTI_IMPORT_ORDER_H

#include "import/graph/building.h"

/* The order that sorts keys. */
typedef struct tti_order {
    tti_operand keys; /* [n], of the graph, as it was before */
    int64_t n;
    bool descending;
} tti_order;

/* The results of a sort of keys [n]: the keys and the places they had; either may be NULL.  False:
 * keys are not of a kind that can be sorted so, and nothing was done. */
bool tti_sort_later(tti_building *b, const tti_operand *keys, bool descending, tti_operand *sorted,
                    tti_operand *places);

/* x as it was before, and x [.., in the order] as it would be after the sort. */
tti_operand tti_unordered(const tti_operand *x);
bool tti_sort_out(tti_building *b, const tti_operand *x, tti_operand *out);

bool tti_any_order(const tti_building *b, const tti_call *c);

/* Runs the current row with all its original arguments, and records what its results are. */
bool tti_apply_unordered(tti_building *b, const tti_call *c, const tti_order *order,
                         tti_order_role role);

/* Runs a row of whose arguments some are in an order. */
void tti_apply_ordered_row(tti_building *b, const tti_operator *row, const tti_call *c);

#endif /* TTI_IMPORT_ORDER_H */
