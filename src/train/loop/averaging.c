/* averaging.c - averages parameters every few steps and at every stop. */
#include "train/loop/averaging.h"

#include <string.h>

#include "train/loop/async.h"

static bool takes_all(const tti_job_config *c) { return strcmp(c->parallel.average, "all") == 0; }

bool tti_averaging_is_due(const tti_blueprint *b, int64_t n_steps, bool *state) {
    const tti_job_config *c = tti_blueprint_config(b);
    *state = false;
    if (!tti_job_is_local(c)) return false;
    bool stops = tti_async_next_stop(b, n_steps - 1) == n_steps;
    *state = stops || takes_all(c);
    return stops || n_steps % c->parallel.average_every == 0;
}

size_t tti_averaging_bytes(const tti_job_config *c, const tti_plan *plan) {
    size_t n_arrays = 1 + (takes_all(c) ? (size_t)plan->n_states + (c->train.ema > 0) : 0);
    return plan->n_flat * sizeof(float) * n_arrays;
}
