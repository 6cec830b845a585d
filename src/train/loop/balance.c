/* balance.c - adapts the shard map when workers become slower or faster, join or leave.
 *
 * A worker of an elastic run keeps its measured throughput from one epoch to the next, so a change
 * of membership needs no new measurement.  A worker that joins has none yet: it is assumed to be as
 * fast as the median of the others until it has been measured. */
#include "train/loop/balance.h"

#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "train/job/load_weights.h"

/* Steps until the speed of workers is first checked; doubled after each new shard map. */
enum { LOOK_AFTER = 32 };

static void keep_speed(const tti_balance *s, const tti_throughputs *all) {
    if (s->carry && all->n > 0) s->carry->group_s = all->of[s->rank].group_s;
}

tutti_status tti_balance_init(tti_balance *s, const tti_blueprint *b, const tti_worker_desc *worker,
                              tti_carry *carry) {
    *s = (tti_balance){.b = b, .carry = carry, .rank = worker->rank, .look_after = LOOK_AFTER};
    if (b->has_shard_map) s->shard_map = &b->shard_map;
    bool is_alone = !worker->comm || tutti_comm_n_ranks(worker->comm) == 1;
    bool is_measured = tti_load_weights_kind_of(&b->config) == TTI_LOAD_WEIGHTS_MEASURED;
    if (!is_measured || is_alone) return TUTTI_OK;
    if (carry && carry->has_changed)
        TTI_TRY(tti_throughput_share(b, worker, carry->group_s, &s->throughputs));
    if (s->throughputs.n == 0) {
        tti_throughputs_free(&s->throughputs);
        TTI_TRY(tti_throughput_measure(b, worker, &s->throughputs));
        keep_speed(s, &s->throughputs);
    }
    s->shard_map = &s->throughputs.shard_map;
    s->computed_s = calloc((size_t)s->throughputs.n + 1, sizeof *s->computed_s);
    return s->computed_s ? TUTTI_OK : tti_fail(TUTTI_E_NOMEM, "train: out of memory");
}

void tti_balance_fini(tti_balance *s) {
    tti_throughputs_free(&s->throughputs);
    free(s->computed_s);
    s->computed_s = NULL;
    s->shard_map = NULL;
}

void tti_balance_begin(tti_balance *s, int64_t step) { s->checked_step = step; }

/* True if the throughput can be measured.  With sharded gradients or joined shards it cannot,
 * because workers wait inside the computation. */
static bool follows(const tti_balance *s, const tti_exec *exec) {
    return s->throughputs.n > 0 && tti_exec_can_rebalance(exec) &&
           !s->b->config.parallel.sync_batch_norm && !s->b->compares_samples;
}

bool tti_balance_may_change(const tti_balance *s, const tti_exec *exec, int64_t n_steps) {
    return follows(s, exec) && n_steps - s->checked_step >= s->look_after;
}

tutti_status tti_balance_follow(tti_balance *s, const tti_exec *exec, const tti_times *times,
                                int64_t step, bool *has_changed) {
    tti_throughputs now = {0};
    int64_t n_steps = step - s->checked_step;
    *has_changed = false;
    if (!follows(s, exec)) return TUTTI_OK;
    for (int r = 0; r < s->throughputs.n; r++) {
        double longer = TTI_FAULT_AT("throughput.drift", r, step) ? 1e6 : 1;
        s->computed_s[r] += times->all[r][TTI_TIME_COMPUTE] * longer;
    }
    if (n_steps < s->look_after) return TUTTI_OK;
    tutti_status st =
        tti_throughput_drifted(&s->throughputs, s->computed_s, n_steps, &now, has_changed);
    if (st == TUTTI_OK) keep_speed(s, &now);
    memset(s->computed_s, 0, (size_t)s->throughputs.n * sizeof *s->computed_s);
    s->checked_step = step;
    if (st == TUTTI_OK && *has_changed) {
        tti_throughputs before = s->throughputs;
        s->throughputs = now;
        now = before;
        s->look_after *= 2;
    }
    tti_throughputs_free(&now);
    return st;
}
