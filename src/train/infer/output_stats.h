/* output_stats.h - mean, standard deviation and range of each named output over an evaluation. */
#ifndef TTI_TRAIN_OUTPUT_STATS_H
#define TTI_TRAIN_OUTPUT_STATS_H

#include "exec/program/exec_program.h"
#include "tutti/eval.h"

typedef struct tti_output_stats tti_output_stats;

/* Creates statistics for the named outputs of the evaluation graph, whose shards have `rows` rows.
 * *out is owned by the caller, NULL if there are no named outputs. */
tutti_status tti_output_stats_create(const tutti_graph *eval, int64_t rows, tti_output_stats **out);
void tti_output_stats_destroy(tti_output_stats *stats); /* NULL is a no-op */

/* Adds a shard, whose first n_rows are samples. */
void tti_output_stats_add(tti_output_stats *stats, const tti_instance *instance, int64_t n_rows);

/* Writes *results [*n], including names, in one block that the caller frees. */
tutti_status tti_output_stats_finish(const tti_output_stats *stats, tutti_output_result **results,
                                     int64_t *n);

#endif /* TTI_TRAIN_OUTPUT_STATS_H */
