/* neighbours.h - parameters that are adjacent in the flat arrays, as parts of one value. */
#ifndef TTI_PASSES_NEIGHBOURS_H
#define TTI_PASSES_NEIGHBOURS_H

#include "ir/graph.h"

/* All by node id; zero for other nodes. */
typedef struct tti_neighbours {
    const tutti_value **cut_from; /* of a slice: the whole gradient that has its bytes in place */
    const tti_node **first;       /* of a parameter: the first one of its group, may be itself */
    int *place;                   /* of a parameter: how many of its group lie before it */
    bool *joined;                 /* a concat of parameters that lie so: its bytes are theirs */
} tti_neighbours;

/* Finds the groups of a graph for training: a value that is only cut along dimension 0 into whole
 * gradients of parameters, each a multiple of 16 elements; none unless wanted.  tti_neighbours_fini
 * in any case. */
tutti_status tti_neighbours_find(const tutti_graph *g, bool wanted, tti_neighbours *out);
void tti_neighbours_fini(tti_neighbours *parts);

/* A concat along dimension 0 of nothing but f32 parameters. */
bool tti_joins_params(const tti_node *node);

/* Bytes before a slice along dimension 0. */
size_t tti_slice_offset(const tti_node *slice);

#endif /* TTI_PASSES_NEIGHBOURS_H */
