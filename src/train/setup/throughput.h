/* throughput.h - measures the throughput of each worker in shards, and derives the shard map. */
#ifndef TTI_TRAIN_THROUGHPUT_H
#define TTI_TRAIN_THROUGHPUT_H

#include "comm/shard_map.h"
#include "train/setup/worker_exec.h"

typedef struct tti_throughputs {
    int n;                   /* 0: nothing was measured */
    tti_throughput *of;      /* [n] owned, equal on every worker */
    tti_shard_map shard_map; /* derived from them, owned */
    char text[TTI_TEXT_MAX]; /* description for the user */
} tti_throughputs;

void tti_throughputs_free(tti_throughputs *throughputs);

/* All workers time the job's shard program on a few shards at the same time, and exchange their
 * times.  Temporary parameters are used, so the run is not affected.  If a worker cannot be
 * measured, the runs are equal and `text` gives the reason.  Collective over worker->comm, with at
 * least two ranks.  The caller frees *out, also after a failure. */
tutti_status tti_throughput_measure(const tti_blueprint *blueprint, const tti_worker_desc *worker,
                                    tti_throughputs *out);

/* Derives the shard map from times measured in earlier steps. group_s: seconds per micro-batch
 * group of this worker; 0: not measured, then the median of the others is used. out->n is 0 if no
 * worker has a measurement.  Collective over worker->comm.  The caller frees *out, also after a
 * failure. */
TUTTI_NODISCARD tutti_status tti_throughput_share(const tti_blueprint *blueprint,
                                                  const tti_worker_desc *worker, double group_s,
                                                  tti_throughputs *out);

/* Updates the throughputs `before` from the seconds that each worker computed in n_steps steps, and
 * sets *now as tti_throughput_measure does.  *has_drifted: another shard map would now shorten a
 * step by a quarter.  The caller frees *now, also after a failure. */
TUTTI_NODISCARD tutti_status tti_throughput_drifted(const tti_throughputs *before,
                                                    const double *compute_s, int64_t n_steps,
                                                    tti_throughputs *now, bool *has_drifted);

/* Derives the shard map for throughputs [n] and describes it in text.  Runs are equal unless
 * unequal ones shorten a step by a tenth.  The caller frees *shard_map. */
TUTTI_NODISCARD tutti_status tti_throughput_shard_map(const tti_throughput *throughputs, int n,
                                                      int n_shards, tti_shard_map *shard_map,
                                                      tti_str *text);

#endif /* TTI_TRAIN_THROUGHPUT_H */
