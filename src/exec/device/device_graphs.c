/* device_graphs.c - captures and replays the graphs of a step.
 *
 * Every input set has its own captured graph.  With resident samples, if a step is so small that
 * its launch matters, one graph has several consecutive steps: the host records the numbers of each
 * as it begins and launches them with the last.  Half of the sets are one launch, so that the
 * device can work on the other half meanwhile.  Each step has its own event and report; only the
 * launch is shared. */
#include "exec/device/device_step.h"

/* Operations in a step of one worker.  At a tenth of the devices' speed this is below a few
 * milliseconds. */
static const double most_flops_chained = 2e11;

tutti_status tti_device_end_capture(tti_exec *x, tutti_status st, void **captured_graph) {
    tutti_status ended = x->device->ops->queues.record_end(captured_graph);
    TTI_TRY(st);
    return ended;
}

tutti_status tti_device_record(tti_exec *x, const tti_device_set *set, void **captured_graph) {
    tti_exec_device *d = x->device;
    TTI_TRY(d->ops->queues.record_begin());
    return tti_device_end_capture(x, tti_device_whole_step(x, set, true), captured_graph);
}

/* ---- several steps in one ---- */

int tti_device_n_chained(const tti_exec *x) {
    const tti_exec_device *d = x->device;
    double n_shards = (double)x->desc.n_shards / x->n_ranks;
    bool is_one_captured_graph =
        !d->host_staged && !d->server && !d->pipe && !x->offload && !x->desc.local;
    bool is_small = tti_program_flops(&x->desc.plan->shard) * n_shards <= most_flops_chained;
    return is_one_captured_graph && is_small ? d->n_sets / 2 : 1;
}

int tti_exec_device_steps_per_launch(const tti_exec *x) {
    return x->device->n_chained > 1 ? x->device->n_chained : 1;
}

/* The very first step is not captured, because it loads kernels.  So launches begin with the
 * second. */
static bool begins_chain(const tti_exec_device *d, int which) {
    int place = (which + d->n_sets - 1) % d->n_sets;
    return place % d->n_chained == 0 && place + d->n_chained <= d->n_sets;
}

bool tti_device_is_chained(const tti_exec *x, const tti_device_set *set) {
    const tti_exec_device *d = x->device;
    return d->n_chained > 1 && set->gathers && !d->loads && !x->profile;
}

static tutti_status put_chain(tti_exec *x, int first) {
    tti_exec_device *d = x->device;
    for (int i = 0; i < d->n_chained; i++) {
        int which = (first + i) % d->n_sets;
        TTI_TRY(tti_device_whole_step(x, &d->sets[which], true));
        TTI_TRY(d->ops->queues.mark(TTI_QUEUE_COMPUTE, which));
    }
    return TUTTI_OK;
}

static tutti_status record_chain(tti_exec *x, int first) {
    tti_exec_device *d = x->device;
    TTI_TRY(d->ops->queues.record_begin());
    return tti_device_end_capture(x, put_chain(x, first), &d->chains[first]);
}

/* ---- all that a worker replays ---- */

/* Capturing may wait for devices, which must not happen while one waits for its peers: all graphs
 * are captured before any runs. */
static tutti_status record_all(tti_exec *x, bool gathers) {
    tti_exec_device *d = x->device;
    for (int i = 0; i < d->n_sets; i++) {
        d->sets[i].gathers = gathers;
        TTI_TRY(tti_device_record(x, &d->sets[i], &d->sets[i].captured_graph));
    }
    for (int i = 0; i < d->n_sets && gathers && d->n_chained > 1; i++)
        if (begins_chain(d, i)) TTI_TRY(record_chain(x, i));
    return d->axis ? tti_device_axis_meet(d->axis) : tti_device_reduce_meet(d->reduce);
}

static bool waits_for_peers(const tti_exec_device *d) { return d->reduce || d->axis; }

tutti_status tti_device_play(tti_exec *x, tti_device_set *set) {
    tti_exec_device *d = x->device;
    if (!set->captured_graph)
        TTI_TRY(waits_for_peers(d) ? record_all(x, set->gathers)
                                   : tti_device_record(x, set, &set->captured_graph));
    return d->ops->queues.replay(set->captured_graph);
}

static tutti_status play_marked(tti_exec *x, int which) {
    TTI_TRY(tti_device_play(x, &x->device->sets[which]));
    return x->device->ops->queues.mark(TTI_QUEUE_COMPUTE, which);
}

static tutti_status play_chain(tti_exec *x, int first) {
    tti_exec_device *d = x->device;
    d->n_waiting = 0;
    if (!d->chains[first])
        TTI_TRY(waits_for_peers(d) ? record_all(x, true) : record_chain(x, first));
    return d->ops->queues.replay(d->chains[first]);
}

/* One by one, if a launch has fewer steps. */
static tutti_status play_waiting(tti_exec *x) {
    tti_exec_device *d = x->device;
    for (; d->n_waiting > 0; d->n_waiting--) {
        uint64_t step = d->n_begun - (uint64_t)d->n_waiting;
        TTI_TRY(play_marked(x, (int)(step % (uint64_t)d->n_sets)));
    }
    return TUTTI_OK;
}

tutti_status tti_device_release_graphs(tti_exec *x) {
    tti_exec_device *d = x->device;
    TTI_TRY(play_waiting(x));
    TTI_TRY(tti_device_reduce_rest(d->reduce));
    for (int i = 0; i < TTI_MAX_AHEAD; i++) {
        d->ops->queues.release_captured_graph(d->sets[i].captured_graph);
        d->ops->queues.release_captured_graph(d->chains[i]);
        d->sets[i].captured_graph = d->chains[i] = NULL;
    }
    return tti_device_reduce_arrive(d->reduce);
}

tutti_status tti_device_chain_step(tti_exec *x, int which) {
    tti_exec_device *d = x->device;
    int first = (which + d->n_sets - d->n_waiting) % d->n_sets;
    if (!begins_chain(d, first)) return play_marked(x, which);
    return ++d->n_waiting < d->n_chained ? TUTTI_OK : play_chain(x, first);
}

tutti_status tti_device_chain_before_end(tti_exec *x) {
    tti_exec_device *d = x->device;
    bool others_may_come = !d->has_just_ended;
    d->has_just_ended = true;
    uint64_t n_given = d->n_begun - d->n_ended - (uint64_t)d->n_waiting;
    return others_may_come && n_given > 0 ? TUTTI_OK : play_waiting(x);
}
