/* balance.h - gives each worker as many shards as its speed allows (parallel.load_weights): at the
 * start, after each change of membership of an elastic run, and while the run continues. */
#ifndef TTI_TRAIN_BALANCE_H
#define TTI_TRAIN_BALANCE_H

#include "exec/exec.h"
#include "train/loop/carry.h"
#include "train/report/times.h"
#include "train/setup/throughput.h"

typedef struct tti_balance {
    const tti_blueprint *b; /* borrowed */
    tti_carry *carry; /* borrowed: stores this worker's throughput; NULL: not an elastic run */
    int rank;         /* rank of this worker */
    const tti_shard_map *shard_map; /* NULL: equal runs */
    tti_throughputs throughputs;    /* for parallel.load_weights=measured; n 0: not measured */
    double
        *computed_s; /* [throughputs.n] owned: compute time of each worker since the last check */
    int64_t checked_step, look_after; /* step of that check, and steps until the next one */
} tti_balance;

/* Sets the first shard map: from the weights of the job, from the throughputs that workers of an
 * elastic run measured in earlier epochs, or from a trial. worker->comm NULL: one worker.
 * Collective. *out must not be moved; the caller calls fini, also after a failure. */
TUTTI_NODISCARD tutti_status tti_balance_init(tti_balance *out, const tti_blueprint *b,
                                              const tti_worker_desc *worker, tti_carry *carry);

void tti_balance_fini(tti_balance *balance);

/* Starts measuring at this step, from which the run continues. */
void tti_balance_begin(tti_balance *balance, int64_t step);

/* True if the map may change after n_steps steps.  Then no later step may begin before that step
 * has ended. */
bool tti_balance_may_change(const tti_balance *balance, const tti_exec *exec, int64_t n_steps);

/* Updates the shard map.  Called after times were gathered, so that all workers decide from the
 * same values. *has_changed: the caller must pass the new shard map to tti_exec_rebalance.
 * Collective. */
TUTTI_NODISCARD tutti_status tti_balance_follow(tti_balance *balance, const tti_exec *exec,
                                                const tti_times *times, int64_t step,
                                                bool *has_changed);

#endif /* TTI_TRAIN_BALANCE_H */
