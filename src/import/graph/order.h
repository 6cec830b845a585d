/* order.h - virtually sorted rows: rows sorted by keys without moving them.
 *
 * A mixture of experts (MoE) is exported as a sort of all rows by expert, operations on the sorted
 * rows, and the inverse sort. A graph that sorts along the batch cannot be divided between workers.
 * Sorting is also unnecessary: an operation on separate rows can be done without moving them. So
 * rows keep their positions, and the operand only records the order. Operators that treat rows
 * separately keep the order virtual (tti_apply_ordered_row); all others get a really sorted operand
 * (tti_sort_rows). */
#ifndef TTI_IMPORT_ORDER_H
#define TTI_IMPORT_ORDER_H

#include "import/graph/building.h"

/* The order that sorts keys. */
typedef struct tti_order {
    tti_operand keys; /* [n], a graph value in the original order */
    int64_t n;
    bool descending;
} tti_order;

/* Sorts keys [n] virtually: sets the sorted keys and their original positions; either may be NULL.
 * False: the keys cannot be sorted virtually, and nothing was done. */
bool tti_sort_virtually(tti_building *b, const tti_operand *keys, bool descending,
                        tti_operand *sorted, tti_operand *places);

/* Unordered: x in the original order. Sort_out: sorts x really; false after a failure. */
tti_operand tti_unordered(const tti_operand *x);
bool tti_sort_rows(tti_building *b, const tti_operand *x, tti_operand *out);

bool tti_any_order(const tti_building *b, const tti_call *c);

/* Runs the current row with all arguments in the original order, and gives its results that
 * role. */
bool tti_apply_unordered(tti_building *b, const tti_call *c, const tti_order *order,
                         tti_order_role role);

/* Runs a row with some virtually sorted arguments. */
void tti_apply_ordered_row(tti_building *b, const tti_operator *row, const tti_call *c);

#endif /* TTI_IMPORT_ORDER_H */
