/* load_weights.h - parses parallel.load_weights, the distribution of shards over workers. */
#ifndef TTI_TRAIN_LOAD_WEIGHTS_H
#define TTI_TRAIN_LOAD_WEIGHTS_H

#include "base/str.h"
#include "comm/shard_map.h"
#include "train/job/job.h"

typedef enum tti_load_weights_kind {
    TTI_LOAD_WEIGHTS_AUTO, /* not decided yet */
    TTI_LOAD_WEIGHTS_EQUAL,
    TTI_LOAD_WEIGHTS_MEASURED,
    TTI_LOAD_WEIGHTS_GIVEN
} tti_load_weights_kind;

typedef struct tti_load_weights {
    tti_load_weights_kind kind;
    int n;          /* GIVEN: number of workers that divide the batch */
    double *weight; /* [n] > 0, owned; NULL: none */
} tti_load_weights;

/* Parses "auto", "equal", "measured", or weights such as "3,1".  Returns NULL, or an error text
 * that continues the name of the key, with nothing to free. */
const char *tti_load_weights_parse(const char *text, tti_load_weights *out);
void tti_load_weights_free(tti_load_weights *weights);

tti_load_weights_kind tti_load_weights_kind_of(const tti_job_config *config);

/* Sets the runs of shards for n_workers workers from the weights of a checked job; *given false:
 * the job has no weights (equal or measured), and *out is not set.  The caller frees *out. */
TUTTI_NODISCARD tutti_status tti_load_weights_given(const tti_job_config *config, int n_workers,
                                                    int n_shards, bool *given, tti_shard_map *out);

/* Formats the number of shards of each worker: "6 and 2", "5, 1, 1 and 1". */
void tti_load_weights_print(const tti_shard_map *shard_map, tti_str *out);

#endif /* TTI_TRAIN_LOAD_WEIGHTS_H */
