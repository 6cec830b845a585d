/* throughput.h - how fast each worker computes shards, and the runs of shards that follow. */
#ifndef TTI_TRAIN_THROUGHPUT_H
#define TTI_TRAIN_THROUGHPUT_H

#include "comm/shard_map.h"
#include "train/setup/worker_exec.h"

typedef struct tti_throughputs {
    int n;                            /* 0: nothing was measured */
    tti_throughput of[TTI_MAX_RANKS]; /* [n], the same on every worker */
    tti_shard_map shard_map;          /* that follows from them */
    char text[TTI_TEXT_MAX];          /* what is told of it */
} tti_throughputs;

/* Every worker runs the job's own shard program on a first few shards, all at the same time, and
 * all hear what it took.  Parameters of their own are used for it and thrown away, so the run is
 * not touched.  Where a worker cannot be measured the runs are equal and text says why.
 * Collective over worker->comm, with at least two ranks. */
tutti_status tti_throughput_measure(const tti_blueprint *blueprint, const tti_worker_desc *worker,
                                    tti_throughputs *out);

/* What before has become, of seconds that each worker computed in n_steps steps: true if other runs
 * would now end a step sooner by a quarter, and then *now is as tti_throughput_measure would fill
 * it. */
bool tti_throughput_drifted(const tti_throughputs *before, const double *compute_s, int64_t n_steps,
                            tti_throughputs *now);

/* The runs for throughputs [n]: equal ones unless others end a step a tenth sooner; and in words.
 */
void tti_throughput_shard_map(const tti_throughput *throughputs, int n, int n_shards,
                              tti_shard_map *shard_map, tti_str *text);

#endif /* TTI_TRAIN_THROUGHPUT_H */
