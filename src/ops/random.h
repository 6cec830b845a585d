/* random.h - the element indices of a dropout within a sample, for code that draws its masks. */
#ifndef TTI_OPS_RANDOM_H
#define TTI_OPS_RANDOM_H

#include "ir/graph.h"

/* The elements of a sample that a node has, in order: runs of n_elems that begin at element first,
 * first + step, ... of the whole sample.  A node that is not a shard has one run, the sample. */
typedef struct tti_sample_runs {
    size_t n_runs, n_elems, first, step;
} tti_sample_runs;

tti_sample_runs tti_dropout_runs(const tti_node *node);

#endif /* TTI_OPS_RANDOM_H */
