/* rows.h - a value as a norm sees it: n_rows rows of width elements.  Layer and RMS norm: a row is
 * the last dimension (groups 1, inner 1); group norm: per_group channels with their inner places.
 * Element e of row r has gamma[(r % groups) * per_group + e / inner].  Read by C++ too. */
#ifndef TTI_OPS_ROWS_H
#define TTI_OPS_ROWS_H

#include <stdbool.h>
#include <stddef.h>

typedef struct tti_rows {
    size_t n_rows, width, groups, per_group, inner;
    bool centred; /* false: RMS norm, no mean */
} tti_rows;

struct tti_node;

/* Input i of a norm or of one of its gradients. */
tti_rows tti_rows_of(const struct tti_node *node, int i);

#endif /* TTI_OPS_ROWS_H */
