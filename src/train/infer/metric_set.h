/* metric_set.h - the metrics of an evaluation, computed from outputs of its shards.
 *
 * A graph for evaluation has an output "metric.NAME" for each metric (tutti/losses.h).  Each
 * shard's values are added in the order of batches and shards, in double precision, so the figures
 * do not depend on the number of workers. */
#ifndef TTI_TRAIN_METRIC_SET_H
#define TTI_TRAIN_METRIC_SET_H

#include "ir/graph.h"
#include "tutti/job.h"

enum { TTI_MAX_METRICS = 64 };

typedef struct tti_metric_set tti_metric_set;

/* Creates the metrics of a graph for evaluation, without values yet.  Borrows the graph's names.
 * *out is owned by the caller, NULL if the graph has no metrics. */
tutti_status tti_metric_set_create(const tutti_graph *eval, tti_metric_set **out);
void tti_metric_set_destroy(tti_metric_set *set);

/* The number of metrics, and the number of 32-bit words in a shard's outputs for all of them. */
int tti_metric_set_n(const tti_metric_set *set);
size_t tti_metric_set_n_words(const tti_metric_set *set);

/* The name of the output of metric i, and its bytes per shard. */
const char *tti_metric_set_output(const tti_metric_set *set, int i);
size_t tti_metric_set_n_bytes(const tti_metric_set *set, int i);

/* Adds the outputs of a shard; values[i] is its output for metric i. */
tutti_status tti_metric_set_add(tti_metric_set *set, const void *const *values);

/* Computes the results so far, *out [*n], one for each metric; borrowed until the set is
 * destroyed. */
tutti_status tti_metric_set_finish(tti_metric_set *set, const tutti_metric_result **out, int *n);

#endif /* TTI_TRAIN_METRIC_SET_H */
