/* peak.h - the peak of live activation bytes for a planned order of nodes. */
#ifndef TTI_PASSES_PEAK_H
#define TTI_PASSES_PEAK_H

#include "ir/graph.h"

typedef struct tti_peak {
    size_t n_bytes; /* that live at the same time, at most */
    int at;         /* the first place in the order where they do */
} tti_peak;

/* order [n]: nodes of g, each after the producers of its inputs; a second occurrence of a node
 * recomputes its results, which later nodes read.  Live ranges, views and in-place writes are those
 * of memplan.c; sources and outputs of the graph have their bytes elsewhere. */
tutti_status tti_peak_of(const tutti_graph *g, const tti_node *const *order, int n, tti_peak *out);

/* Bytes of a value as memplan.c counts them. */
size_t tti_arena_bytes(const tutti_value *value);

#endif /* TTI_PASSES_PEAK_H */
