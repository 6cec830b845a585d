/* device_graphs.c - captures and replays the graphs of a step, and waits for its results.
 *
 * Every input set has its own captured graph.  With resident samples and steps so short that the
 * launch matters, one graph contains several consecutive steps: the host stores the numbers of each
 * step when it begins, and launches all of them with the last. A launch uses half of the sets, so
 * that the device can work on the other half meanwhile.  Each step has its own event and report;
 * only the launch is shared. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "exec/device/device_step.h"
#include "exec/worker/worker.h"

/* Upper bound of the operations of a small step on one worker.  At a tenth of the device's speed
 * this takes a few milliseconds at most. */
static const double max_flops_chained = 2e11;

/* Captures a graph of a step with these inputs without running it. */
static tutti_status capture_step(tti_exec *x, const tti_device_set *set, void **captured_graph) {
    tti_exec_device *d = tti_device_of(x);
    TTI_TRY(d->ops->queues.capture_begin());
    return tti_device_end_capture(d, tti_device_whole_step(x, set, true), captured_graph);
}

/* ---- several steps in one launch ---- */

int tti_device_n_chained(const tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_exec_device *d = tti_device_of(x);
    double n_shards = (double)setup->desc.n_shards / setup->n_ranks;
    bool is_one_captured_graph =
        !d->host_staged && !d->server && !d->pipe && !tti_offload_of(x) && !setup->desc.local;
    bool is_small = tti_program_flops(&setup->desc.plan->shard) * n_shards <= max_flops_chained;
    return is_one_captured_graph && is_small ? d->n_sets / 2 : 1;
}

int tti_exec_device_steps_per_launch(const tti_exec_device *device) {
    return device->n_chained > 1 ? device->n_chained : 1;
}

/* The first step is not captured because it loads kernels, so launches begin with the second. */
static bool begins_chain(const tti_exec_device *d, int which) {
    int place = (which + d->n_sets - 1) % d->n_sets;
    return place % d->n_chained == 0 && place + d->n_chained <= d->n_sets;
}

bool tti_device_is_chained(const tti_exec *x, const tti_device_set *set) {
    const tti_exec_device *d = tti_device_of(x);
    return d->n_chained > 1 && set->gathers && !d->loads && !tti_profile_of(x);
}

static tutti_status put_chain(tti_exec *x, int first) {
    tti_exec_device *d = tti_device_of(x);
    for (int i = 0; i < d->n_chained; i++) {
        int which = (first + i) % d->n_sets;
        TTI_TRY(tti_device_whole_step(x, &d->sets[which], true));
        TTI_TRY(d->ops->queues.record_host_event(TTI_QUEUE_COMPUTE, which));
    }
    return TUTTI_OK;
}

static tutti_status record_chain(tti_exec *x, int first) {
    tti_exec_device *d = tti_device_of(x);
    TTI_TRY(d->ops->queues.capture_begin());
    return tti_device_end_capture(d, put_chain(x, first), &d->chains[first]);
}

/* ---- captured graphs ---- */

/* Capturing may wait for devices.  This must not happen while a device waits for its peers, so all
 * graphs are captured before any of them runs. */
static tutti_status capture_all(tti_exec *x, bool gathers) {
    tti_exec_device *d = tti_device_of(x);
    for (int i = 0; i < d->n_sets; i++) {
        d->sets[i].gathers = gathers;
        TTI_TRY(capture_step(x, &d->sets[i], &d->sets[i].captured_graph));
    }
    for (int i = 0; i < d->n_sets && gathers && d->n_chained > 1; i++)
        if (begins_chain(d, i)) TTI_TRY(record_chain(x, i));
    return d->axis ? tti_device_axis_sync_and_barrier(d->axis)
                   : tti_device_reduce_sync_and_barrier(d->reduce);
}

static bool waits_for_peers(const tti_exec_device *d) { return d->reduce || d->axis; }

tutti_status tti_device_replay(tti_exec *x, tti_device_set *set) {
    tti_exec_device *d = tti_device_of(x);
    if (!set->captured_graph)
        TTI_TRY(waits_for_peers(d) ? capture_all(x, set->gathers)
                                   : capture_step(x, set, &set->captured_graph));
    return d->ops->queues.replay(set->captured_graph);
}

static tutti_status replay_marked(tti_exec *x, int which) {
    tti_exec_device *device = tti_device_of(x);
    TTI_TRY(tti_device_replay(x, &device->sets[which]));
    return device->ops->queues.record_host_event(TTI_QUEUE_COMPUTE, which);
}

/* Launches the waiting steps one by one if they are fewer than a launch contains. */
static tutti_status replay_waiting(tti_exec *x) {
    tti_exec_device *d = tti_device_of(x);
    for (; d->n_waiting > 0; d->n_waiting--) {
        uint64_t step = d->n_begun - (uint64_t)d->n_waiting;
        TTI_TRY(replay_marked(x, (int)(step % (uint64_t)d->n_sets)));
    }
    return TUTTI_OK;
}

tutti_status tti_device_release_graphs(tti_exec *x) {
    tti_exec_device *d = tti_device_of(x);
    TTI_TRY(replay_waiting(x));
    TTI_TRY(tti_device_reduce_rest(d->reduce));
    for (int i = 0; i < TTI_MAX_AHEAD; i++) {
        d->ops->queues.release_captured_graph(d->sets[i].captured_graph);
        d->ops->queues.release_captured_graph(d->chains[i]);
        d->sets[i].captured_graph = d->chains[i] = NULL;
    }
    return tti_device_reduce_barrier(d->reduce);
}

tutti_status tti_device_chain_step(tti_exec *x, int which) {
    tti_exec_device *d = tti_device_of(x);
    int first = (which + d->n_sets - d->n_waiting) % d->n_sets;
    if (!begins_chain(d, first)) return replay_marked(x, which);
    if (++d->n_waiting < d->n_chained) return TUTTI_OK;
    d->n_waiting = 0;
    if (!d->chains[first])
        TTI_TRY(waits_for_peers(d) ? capture_all(x, true) : record_chain(x, first));
    return d->ops->queues.replay(d->chains[first]);
}

/* Call before waiting for the oldest step in flight.  If that step still waits for its launch, or
 * no other steps follow, the waiting steps are launched one by one. */
static tutti_status launch_before_end(tti_exec *x) {
    tti_exec_device *d = tti_device_of(x);
    bool others_may_come = !d->has_just_ended;
    d->has_just_ended = true;
    uint64_t n_given = d->n_begun - d->n_ended - (uint64_t)d->n_waiting;
    return others_may_come && n_given > 0 ? TUTTI_OK : replay_waiting(x);
}

/* ---- graphs with timestamps, for a profile ---- */

enum { MAX_TIMESTAMPS = 1 << 21 }; /* timestamps are events of the device */

/* Maximum number of timestamps in a step: for nodes, joins, sums, copies and fetches of each shard
 * (at least one), and between them. */
static int64_t max_timestamps(const tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_sharded *sharded = tti_sharded_of(x);
    const tti_pipe *pipe = tti_pipe_of(x);
    const tti_program *program = &setup->desc.plan->shard;
    int64_t n_shards = setup->last_shard - setup->first_shard, collectives = 0;
    int64_t nodes = (int64_t)(program->n_steps + 8) * n_shards;
    for (int s = 0; s < program->n_steps; s++)
        collectives += program->steps[s]->op->traits & TTI_COLLECTIVE ? n_shards : 0;
    if (pipe) nodes += 4 * pipe->train.schedule.n_actions;
    if (pipe && sharded) /* joined shards continue in turn */
        nodes += 3 * (2 * sharded->train.n_live + sharded->grads.n_live) * n_shards;
    if (sharded)
        nodes +=
            (sharded->train.n_live + setup->desc.plan->n_buckets) * 2 * sharded->n_micro_groups;
    return 2 * (nodes + collectives) + 6 * setup->desc.plan->n_buckets +
           4 * setup->acc.n_micro_groups + 64;
}

/* Every step replays its own graph once, so each timestamp belongs to one step.  If graphs do not
 * support timestamps, kernels are launched one by one. */
tutti_status tti_exec_device_profile_begin(tti_exec *x, int n_steps) {
    tti_exec_device *d = tti_device_of(x);
    TTI_ASSERT(d->n_begun == d->n_ended && d->n_begun > 0);
    if (max_timestamps(x) > MAX_TIMESTAMPS / n_steps)
        return tti_fail(
            TUTTI_E_INVALID,
            "profile: %d steps of up to %lld timestamps each are too many; give fewer, or "
            "fewer parallel.shards",
            n_steps, (long long)max_timestamps(x));
    int n_timestamps = n_steps * (int)max_timestamps(x);
    TTI_TRY(tti_profile_zero(x, n_timestamps));
    uint64_t last = d->newest + (uint64_t)n_steps - 1;
    bool turns = d->reduce && tti_device_reduce_turns(
                                  d->reduce, last); /* compression begins within these steps */
    /* Kernels are launched one by one on all workers if some have no device, or with a server or
     * stages. */
    bool by_kernels =
        turns || d->host_staged || d->server || d->pipe || tti_offload_streams(tti_offload_of(x));
    if (by_kernels) return TUTTI_OK;
    bool records = tti_profile_records(x);
    TTI_TRY(tti_device_agree(tti_setup_of(x), &records));
    if (!records) return tti_profile_zero(x, n_timestamps);
    d->timed = calloc((size_t)n_steps, sizeof *d->timed);
    if (!d->timed) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    for (int i = 0; i < n_steps; i++) {
        tti_device_set *set = &d->sets[(d->n_begun + (uint64_t)i) % (uint64_t)d->n_sets];
        set->gathers = false;
        tti_profile_next_step(x);
        TTI_TRY(capture_step(x, set, &d->timed[i]));
        d->n_timed++;
    }
    if (d->axis)
        TTI_TRY(tti_device_axis_sync_and_barrier(d->axis));
    else if (d->reduce)
        TTI_TRY(tti_device_reduce_sync_and_barrier(d->reduce));
    return tti_profile_zero(x, n_timestamps);
}

void tti_exec_device_profile_end(tti_exec_device *d) {
    for (int i = 0; i < d->n_timed; i++) d->ops->queues.release_captured_graph(d->timed[i]);
    free(d->timed);
    d->timed = NULL;
    d->n_timed = d->next_timed = 0;
}

/* ---- waits for the oldest step in flight and returns its results ---- */

tutti_status tti_device_read_sums(tti_exec *x, const tti_device_set *set) {
    tti_exec_device *d = tti_device_of(x);
    const char *sums = set->host_report + sizeof(tti_step_report);
    if (d->reduce || d->axis)
        return tti_device_store_reported(x, (const double *)(const void *)sums, set->desc.step);
    if (tti_offload_of(x) && d->host_staged) return TUTTI_OK; /* the host added them already */
    memcpy(tti_exec_sums(x), sums, (size_t)d->n_reported * sizeof(double));
    return TUTTI_OK;
}

tutti_status tti_device_await_event(tti_exec *x, int which) {
    tti_exec_device *d = tti_device_of(x);
    if (d->axis && (d->pipe || !d->reduce)) return tti_device_axis_await(d->axis, which);
    return d->reduce ? tti_device_reduce_await(d->reduce, which)
                     : d->ops->queues.await_host_event(which);
}

tutti_status tti_device_await(tti_exec *x, const tti_device_set **out) {
    tti_exec_device *d = tti_device_of(x);
    int which = tti_device_next_to_end(d);
    tti_device_set *set = &d->sets[which];
    TTI_ASSERT(set->at_work);
    TTI_TRY(launch_before_end(x));
    set->at_work = false;
    d->n_ended++;
    *out = set;
    int64_t start = tti_now_ns();
    TTI_TRY(tti_device_await_event(x, which));
    tti_profile_add(x, TTI_ROW_HOST, tti_span_of(TTI_SPAN_WAIT, "waiting for the device"), -1,
                    start, tti_now_ns());
    return TUTTI_OK;
}

void tti_device_note_done(tti_exec *x, const tti_device_set *set, tti_step_result *result) {
    tti_offload *offload = tti_offload_of(x);
    tti_exec_device *d = tti_device_of(x);
    int64_t now = tti_now_ns();
    d->done = set->desc.step + 1;
    /* Excludes waits for other workers, which do not depend on this worker's speed. */
    bool waited = d->host_staged && !d->pipe &&
                  tti_device_host_staged_computed(d->host_staged) > set->begun_ns;
    int64_t computed = waited ? tti_device_host_staged_computed(d->host_staged) : now;
    if (tti_offload_streams(offload)) computed = tti_offload_came_ns(offload);
    if (waited) result->comm_ns = tti_device_host_staged_summed(d->host_staged) - computed;
    result->compute_ns = computed - TTI_MAX(set->begun_ns, d->last_end_ns);
    d->last_end_ns = now;
}

/* ---- the report of a step ---- */

/* The hash of the blocks that each worker updated.  The other workers receive its parameters with
 * the next step. */
static uint64_t reported_hash(const tti_setup *setup, const tti_exec *x,
                              const tti_device_set *set) {
    const char *sums = set->host_report + sizeof(tti_step_report);
    uint64_t hash = tti_device_reported_hash(setup, (const double *)(const void *)sums);
    if (tti_exec_has_sharded_params(x)) {
        tti_param_hashes *hashes = tti_sharded_of(x)->hashes;
        hashes->all = hash;
        hashes->own = hashes->by_rank[setup->rank];
    }
    return hash;
}

/* Completes the step of this set. */
static tutti_status end_step_of(tti_exec *x, const tti_device_set *set, tti_step_result *result) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *device = tti_device_of(x);
    tti_offload *offload = tti_offload_of(x);
    tti_pipe *pipe = tti_pipe_of(x);
    tti_step_report report;
    device->n_reported_steps++;
    if (setup->n_ranks == 1 && !setup->divided) tti_exec_set_votes(x, set->desc.vote ? 1 : 0);
    TTI_TRY(tti_device_read_sums(x, set));
    tti_exec_set_sums(x, result);
    tti_device_note_done(x, set, result);
    result->sent_bytes = tti_exec_sent_bytes(x);
    if (device->reduce)
        result->sent_bytes += tti_device_reduce_sent(device->reduce, set->desc.step);
    if (offload) {
        /* The host runs the update. */
        TTI_TRY(tti_offload_update(tti_offload_of(x), &set->desc, result));
        tti_exec_set_hash(x, result->params_hash);
        tti_exec_report_hash(x, result);
        tti_device_of(x)->last_end_ns = tti_now_ns();
        return TUTTI_OK;
    }
    memcpy(&report, set->host_report, sizeof report);
    /* Records the device's waits at the end of its shards.  For pipeline stages this is the
     * bubble. */
    if (!pipe && report.waited_ns != 0) {
        result->comm_ns = (int64_t)TTI_MIN(report.waited_ns, (uint64_t)result->compute_ns);
        result->compute_ns -= result->comm_ns;
        device->waited_ns += result->comm_ns;
    }
    result->grad_norm = report.grad_norm;
    if (pipe) TTI_TRY(tti_device_pipe_measure(device->pipe));
    result->bubble = pipe ? pipe->measured : 0;
    if (report.bad) {
        result->skipped = true;
        /* A worker knows the sums of all shards, but not where in the program a value first became
         * non-finite. */
        if (report.bad & TTI_BAD_LOSS)
            return tti_exec_bad_loss(x, set->desc.step, TTI_MAX(0, tti_exec_first_bad_shard(x)),
                                     "");
        return tti_exec_bad_gradient(set->desc.step, "");
    }
    if (device->reduce && tti_exec_has_partitions(setup))
        report.params_hash = reported_hash(setup, x, set);
    if (!device->reduce && tti_exec_has_sharded_params(x)) {
        TTI_TRY(tti_sharded_gather_hashes(x, report.params_hash));
        report.params_hash = tti_sharded_of(x)->hashes->all;
    }
    tti_exec_set_hash(x, report.params_hash);
    tti_exec_report_hash(x, result);
    if (tti_local_is_on(x)) return tti_device_local_end(x, &set->desc, result);
    return tti_divided_hash(setup->divided, &result->params_hash);
}

tutti_status tti_device_end_step(tti_exec *x, tti_step_result *result) {
    tti_exec_device *device = tti_device_of(x);
    tti_offload *offload = tti_offload_of(x);
    const tti_device_set *set;
    *result = (tti_step_result){0};
    if (tti_offload_streams(offload))
        TTI_TRY(tti_offload_stream(offload, &device->sets[tti_device_next_to_end(device)].desc));
    TTI_TRY(tti_device_await(x, &set));
    return end_step_of(x, set, result);
}

void tti_device_expect_report(tti_device_set *set) {
    const tti_step_report none = {.bad = TTI_BAD_PEER};
    memcpy(set->host_report, &none, sizeof none);
}

tutti_status tti_device_end_interrupted(tti_exec *x, tti_step_result *result, bool *ended) {
    const tti_exec_device *d = tti_device_of(x);
    const tti_device_set *set = &d->sets[d->n_reported_steps % (uint64_t)d->n_sets];
    tti_step_report report;
    *result = (tti_step_result){0};
    if (d->n_reported_steps == d->n_begun || tti_offload_of(x)) return TUTTI_OK;
    memcpy(&report, set->host_report, sizeof report);
    *ended = !(report.bad & TTI_BAD_PEER);
    return *ended ? end_step_of(x, set, result) : TUTTI_OK;
}
