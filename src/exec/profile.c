/* profile.c - where the time of one step goes, part by part.
 *
 * On a device moments are noted in the queue and read when the step is over, so that nothing waits
 * in between.  On the host the first shard of the worker is run node by node beside the step. */
#include <stdlib.h>

#include "base/clock.h"
#include "exec/worker.h"

void tti_profile_add(tti_profile *profile, const tti_node *node, const char *name, int shard) {
    if (profile->n == profile->capacity) {
        int capacity = profile->capacity ? 2 * profile->capacity : 512;
        tti_span *more = realloc(profile->spans, (size_t)capacity * sizeof *more);
        if (!more) {
            profile->failed = true;
            return;
        }
        profile->spans = more;
        profile->capacity = capacity;
    }
    profile->spans[profile->n++] = (tti_span){.node = node, .name = name, .shard = shard};
}

typedef struct host_timing {
    tti_exec *x;
    tti_profile *profile;
    int64_t begin_ns, last_ns;
} host_timing;

static void after_step(int step, void *user) {
    host_timing *t = user;
    int64_t now = tti_now_ns();
    tti_profile_add(t->profile, t->x->desc.plan->shard.steps[step],
                    tti_instance_kernel(t->x->lane[0].shard, step), t->x->first_shard);
    if (t->profile->failed) return;
    tti_span *span = &t->profile->spans[t->profile->n - 1];
    span->start_us = (double)(t->last_ns - t->begin_ns) * 1e-3;
    span->us = (double)(now - t->last_ns) * 1e-3;
    t->last_ns = tti_now_ns();
}

/* The gradients of this run go to a buffer that the next step overwrites. */
static tutti_status profile_on_host(tti_exec *x, const tti_step_desc *desc, tti_profile *profile,
                                    tti_step_result *result) {
    if (x->n_syncs > 0)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "profile: shards that wait for each other inside a step cannot be timed "
                        "alone; give parallel.sync_batch_norm=false");
    TTI_TRY(tti_exec_step(x, desc, result));
    tti_run run = tti_exec_shard_run(x, desc, x->first_shard);
    tti_instance_set_grads(x->lane[0].shard, x->buffers[0]);
    host_timing t = {x, profile, tti_now_ns(), tti_now_ns()};
    return tti_instance_run(x->lane[0].shard, &run, after_step, &t);
}

tutti_status tti_exec_profile(tti_exec *x, const tti_step_desc *desc, tti_span **spans,
                              int *n_spans, tti_step_result *result) {
    tti_profile profile = {0};
    *spans = NULL;
    *n_spans = 0;
    if (x->n_ranks > 1)
        return tti_fail(TUTTI_E_UNSUPPORTED, "profile: one worker at a time; give -n 1");
    tutti_status st = x->device ? tti_exec_device_profile(x, desc, &profile, result)
                                : profile_on_host(x, desc, &profile, result);
    if (st == TUTTI_OK && profile.failed) st = tti_fail(TUTTI_E_NOMEM, "profile: out of memory");
    if (st != TUTTI_OK) {
        free(profile.spans);
        return st;
    }
    *spans = profile.spans;
    *n_spans = profile.n;
    return TUTTI_OK;
}
