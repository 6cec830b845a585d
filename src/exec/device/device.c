/* device.c - a worker on a device: connects the devices, copies arrays to and from the host, and
 * runs steps.
 *
 * Two input sets alternate, or up to TTI_MAX_AHEAD if the device has the samples: then a step
 * begins by reading its numbers and indices from host memory, and ends by writing its report there,
 * so that it never waits for the host.  Everything that a captured graph refers to (pointers,
 * sizes, order) is fixed when the worker is created; only the bytes change. */
#include "exec/device/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "comm/progress.h"
#include "comm/sum_order.h"
#include "exec/device/device_step.h"

/* True if everything that the workers of one model exchange goes between devices.  Sums over tensor
 * ranks and then over stages equal one tree over all of them only if the number of tensor ranks is
 * a power of two. */
static bool is_direct(const tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_device_tp *tp = tti_tp_of(x);
    int n_tensor = setup->desc.mesh->size.tensor;
    if (tti_device_host_staged_alone(setup)) return false;
    if (!tti_pipe_of(x)) return tti_device_tp_group(tp) != NULL;
    bool has_axis = n_tensor == 1 || tti_device_tp_group(tp);
    return has_axis && tti_device_pipe_p2p(tti_device_of(x)->pipe) &&
           (n_tensor & (n_tensor - 1)) == 0;
}

static void describe_between(tti_exec *x, const char *sums, bool all) {
    tti_exec_device *device = tti_device_of(x);
    tti_device_tp *tp = tti_tp_of(x);
    tti_str *transport = &device->transport;
    tti_str stages = {0};
    if (all && *sums) tti_str_printf(transport, "%s%s", sums, tp ? ", inside layers " : "");
    tti_device_tp_describe(tp, transport);
    if (tti_pipe_of(x)) tti_device_pipe_describe(device->pipe, &stages);
    if (!all && transport->n_bytes == 0) tti_str_add(transport, "through the host");
    if (stages.n_bytes > 0)
        tti_str_printf(transport, "%sbetween stages %s", transport->n_bytes > 0 ? ", " : "",
                       tti_str_text(&stages));
    tti_str_free(&stages);
}

/* Disconnects devices that cannot be used. Stages may stay connected if layers are undivided;
 * otherwise both groups are needed. */
static tutti_status disconnect_unusable(tti_exec_device *device, tti_device_tp *tp, bool direct) {
    tti_device_p2p *p2p = tti_device_pipe_p2p(device->pipe);
    tti_device_reduce_destroy(device->reduce);
    device->reduce = NULL;
    if (!tti_device_tp_group(tp)) return TUTTI_OK;
    if (p2p) tti_device_p2p_disconnect(p2p);
    return tti_device_tp_give_up(tp,
                                 direct ? "workers with other samples" : "workers of other stages");
}

/* Connects the devices as far as they reach each other. */
static tutti_status connect_devices(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *d = tti_device_of(x);
    if (setup->desc.server) TTI_TRY(tti_device_server_create(x, &d->server));
    if (setup->divided) {
        /* A divided model needs no host in its steps if all its sums are added between devices. */
        tti_str sums = {0};
        bool direct = is_direct(x);
        if (direct) {
            /* Connects the groups one after the other, as for lines of an axis. */
            const tti_mesh *mesh = tti_setup_of(x)->desc.mesh;
            for (int i = 0; i < tti_mesh_n_model(&mesh->size); i++) {
                if (i == tti_mesh_model_rank(&mesh->size, &mesh->at))
                    TTI_TRY(tti_device_reduce_create(x, &tti_device_of(x)->reduce, &sums));
                TTI_TRY(tutti_comm_barrier(mesh->world));
            }
        }
        bool all = direct && (setup->n_ranks == 1 || d->reduce);
        if (direct) TTI_TRY(tti_device_agree(setup, &all));
        if (!all) TTI_TRY(disconnect_unusable(d, tti_tp_of(x), direct));
        describe_between(x, tti_str_text(&sums), all);
        tti_str_free(&sums);
        if (!all) return tti_device_host_staged_create(x, &d->host_staged);
        return tti_device_axis_create(x, tti_device_pipe_p2p(d->pipe), &d->axis);
    }
    if (setup->desc.mixed) return tti_device_host_staged_create(x, &d->host_staged);
    bool host_staged = tti_device_ends_on_host(setup);
    if (!d->server && !host_staged) TTI_TRY(tti_device_reduce_create(x, &d->reduce, &d->transport));
    return setup->n_ranks == 1 || d->reduce ? TUTTI_OK
                                            : tti_device_host_staged_create(x, &d->host_staged);
}

/* ---- host copies of flat arrays; a mirror has the layout of its array ---- */

static size_t flat_bytes(const tti_setup *setup) {
    return setup->desc.plan->n_flat * sizeof(float);
}

static tutti_status alloc_on_host(float **memory, size_t n_bytes) {
    if (!*memory) *memory = calloc(1, n_bytes + 64);
    return *memory
               ? TUTTI_OK
               : tti_fail(TUTTI_E_NOMEM, "exec: cannot allocate %zu bytes of host memory", n_bytes);
}

static float **mirror_of(tti_exec_device *device, int64_t k) {
    return &device->mirrors[k - TTI_STATE_PARAMS];
}

/* pull: copies the device's arrays first .. last-1 to the host; push: copies existing mirrors
 * back. */
static tutti_status copy(tti_exec *x, bool push, int first, int last) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *device = tti_device_of(x);
    tti_device_param_gather *gather = device->param_gather;
    if (gather && push) tti_device_param_gather_written(gather, true);
    if (gather && !push) TTI_TRY(tti_device_param_gather_settle(gather));
    const tti_device_ops *ops = setup->desc.backend->device;
    for (int k = first; k < last; k++) {
        float *array = tti_exec_array(x, k), **mirror = mirror_of(device, k);
        bool is_whole = k == TTI_STATE_PARAMS && !tti_exec_has_sharded_params(x);
        if (!array || (push && !*mirror)) continue;
        size_t n_bytes =
            (is_whole ? setup->desc.plan->n_flat : setup->share.n_elems) * sizeof(float);
        TTI_TRY(alloc_on_host(mirror, n_bytes));
        void *dst = push ? array : *mirror, *src = push ? *mirror : array;
        TTI_TRY(ops->queues.copy(TTI_QUEUE_COMPUTE, dst, src, n_bytes));
    }
    return ops->queues.sync();
}

/* data: copied to the device, and to the mirror if one exists.  NULL: copies the range from the
 * device to the mirror. */
static tutti_status copy_range(tti_exec *x, int64_t k, tti_range range, const float *data) {
    const tti_device_ops *ops = tti_setup_of(x)->desc.backend->device;
    float **mirror = mirror_of(tti_device_of(x), k);
    float *array = tti_exec_array(x, k) + range.first;
    size_t n_bytes = (range.last - range.first) * sizeof *array;
    if (!data) TTI_TRY(alloc_on_host(mirror, flat_bytes(tti_setup_of(x))));
    float *on_host = *mirror ? *mirror + range.first : NULL;
    if (data && on_host) memcpy(on_host, data, n_bytes);
    if (data)
        TTI_TRY(ops->queues.copy(TTI_QUEUE_COMPUTE, array, data, n_bytes));
    else
        TTI_TRY(ops->queues.copy(TTI_QUEUE_COMPUTE, on_host, array, n_bytes));
    return ops->queues.sync();
}

tutti_status tti_exec_device_copy_range(tti_exec *x, int64_t k, tti_range range, void *to) {
    const tti_device_ops *ops = tti_setup_of(x)->desc.backend->device;
    const float *array = tti_exec_array(x, k) + range.first;
    size_t n_bytes = (range.last - range.first) * sizeof *array;
    TTI_TRY(tti_device_failure(x, ops->queues.copy(TTI_QUEUE_COMPUTE, to, array, n_bytes)));
    return tti_device_failure(x, ops->queues.sync());
}

tutti_status tti_exec_device_copy_flat(tti_exec *x, int64_t k, void *other, bool out) {
    const tti_device_ops *ops = tti_setup_of(x)->desc.backend->device;
    float *array = tti_exec_array(x, k);
    void *to = out ? other : array, *from = out ? array : other;
    tutti_status st = ops->queues.copy(TTI_QUEUE_COMPUTE, to, from, flat_bytes(tti_setup_of(x)));
    if (st == TUTTI_OK) st = ops->queues.sync();
    return tti_device_failure(x, st);
}

tutti_status tti_exec_device_broadcast(tti_exec *x, int64_t k, int source, bool *done) {
    tti_device_reduce *reduce = tti_device_of(x)->reduce;
    float **mirror = mirror_of(tti_device_of(x), k);
    *done = reduce != NULL;
    if (!reduce) return TUTTI_OK;
    free(*mirror); /* a later push must not restore the old state */
    *mirror = NULL;
    return tti_device_failure(x, tti_device_reduce_broadcast(reduce, tti_exec_array(x, k), source));
}

tutti_status tti_exec_device_pull_range(tti_exec *x, int64_t k, tti_range range) {
    return tti_device_failure(x, copy_range(x, k, range, NULL));
}

tutti_status tti_exec_device_put_range(tti_exec *x, int64_t k, tti_range range, const float *data) {
    tti_device_of(x)->has_low_copies = false;
    return tti_device_failure(x, copy_range(x, k, range, data));
}

float *tti_exec_device_mirror(tti_exec_device *device, int64_t k) { return *mirror_of(device, k); }

tutti_status tti_exec_device_pull(tti_exec *x) {
    if (tti_offload_of(x)) return TUTTI_OK; /* the host has the newest state */
    return tti_device_failure(x, copy(x, false, TTI_STATE_PARAMS, TTI_MAX_OUT));
}

tutti_status tti_exec_device_pull_params(tti_exec *x) {
    return tti_device_failure(x, copy(x, false, TTI_STATE_PARAMS, TTI_STATE_EMA));
}

tutti_status tti_exec_device_pull_ema(tti_exec *x) {
    return tti_device_failure(x, copy(x, false, TTI_STATE_PARAMS, 0));
}

tutti_status tti_exec_device_pull_averages(tti_exec *x, float **ema) {
    TTI_TRY(tti_device_failure(x, copy(x, false, TTI_STATE_EMA, 0)));
    *ema = tti_exec_array(x, TTI_STATE_EMA) ? *mirror_of(tti_device_of(x), TTI_STATE_EMA) : NULL;
    return TUTTI_OK;
}

tutti_status tti_exec_device_push_params(tti_exec *x) {
    tti_device_of(x)->has_low_copies = false;
    return tti_device_failure(x, copy(x, true, TTI_STATE_PARAMS, 0));
}

/* With parameters of other workers the next step adds their hashes to the hash of own blocks in the
 * report.  This restores that hash as the update left it. */
static tutti_status put_own_hash(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_exec_device *d = tti_device_of(x);
    tti_step_report report = {0};
    if (!d->param_gather || !d->mirrors[0]) return TUTTI_OK;
    for (int i = 0; i < setup->share.n_blocks; i++) {
        const tti_update_step *step = &setup->desc.plan->updates[setup->share.blocks[i].update];
        report.params_hash += tti_hash_block(&tti_backend_cpu, step, d->mirrors[0] + step->first);
    }
    TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COMPUTE, d->report, &report, sizeof report));
    return d->ops->queues.sync();
}

tutti_status tti_exec_device_push(tti_exec *x) {
    tti_offload *offload = tti_offload_of(x);
    if (offload) return tti_device_failure(x, tti_offload_put_params(offload));
    tti_device_of(x)->has_low_copies = false;
    TTI_TRY(tti_device_failure(x, copy(x, true, TTI_STATE_PARAMS, TTI_MAX_OUT)));
    return tti_device_failure(x, put_own_hash(x));
}

tutti_status tti_exec_device_staging(tti_exec *x, float **staging) {
    tti_exec_device *device = tti_device_of(x);
    TTI_TRY(alloc_on_host(&device->staging, flat_bytes(tti_setup_of(x))));
    *staging = device->staging;
    return TUTTI_OK;
}

tutti_status tti_exec_device_put_staging(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_device_ops *ops = setup->desc.backend->device;
    TTI_TRY(ops->queues.copy(TTI_QUEUE_COMPUTE, tti_exec_grads(x), tti_device_of(x)->staging,
                             flat_bytes(setup)));
    return ops->queues.sync();
}

/* ---- gradients between the two halves of a step ---- */

static tutti_status copy_own_blocks(tti_exec *x, float *to) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_exec_device *d = tti_device_of(x);
    for (int i = 0; i < setup->share.n_blocks; i++) {
        const tti_own_block *own = &setup->share.blocks[i];
        size_t n_elems = setup->desc.plan->updates[own->update].n_elems;
        TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COMPUTE, to + own->state, tti_own_grads(x, own),
                                    n_elems * sizeof *to));
    }
    return TUTTI_OK;
}

static tutti_status copy_gradients(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *d = tti_device_of(x);
    bool in_blocks = tti_sharded_of(x) != NULL;
    size_t n = in_blocks ? setup->share.n_elems : setup->desc.plan->n_flat;
    if (!d->gradients) d->gradients = calloc(n + 16, sizeof *d->gradients);
    if (!d->gradients)
        return tti_fail(TUTTI_E_NOMEM, "exec: cannot allocate %zu floats of gradients", n);
    if (in_blocks)
        TTI_TRY(copy_own_blocks(x, d->gradients));
    else
        TTI_TRY(d->ops->queues.copy(TTI_QUEUE_COMPUTE, d->gradients, tti_exec_grads(x),
                                    n * sizeof *d->gradients));
    TTI_TRY(d->ops->queues.sync());
    if (!in_blocks && tti_exec_divides(setup))
        TTI_TRY(tti_zero_gather(setup, d->gradients, d->gradients));
    d->has_gradients = true;
    return TUTTI_OK;
}

tutti_status tti_exec_device_pull_gradients(tti_exec *x) {
    if (tti_device_of(x)->has_gradients) return TUTTI_OK;
    return tti_device_failure(x, copy_gradients(x));
}

float *tti_exec_device_gradients(const tti_exec_device *device) { return device->gradients; }

/* ---- hashes ---- */

/* Hashes block by block, as the update does. */
static uint64_t hash_mirror(const tti_setup *setup, const tti_exec_device *device) {
    uint64_t hash = 0;
    for (int i = 0; i < setup->desc.plan->n_updates; i++) {
        const tti_update_step *step = &setup->desc.plan->updates[i];
        hash += tti_hash_block(&tti_backend_cpu, step, device->mirrors[0] + step->first);
    }
    return hash;
}

tutti_status tti_exec_device_own_hash(tti_exec *x, uint64_t *hash) {
    return tti_device_failure(x, tti_device_update_hash(tti_device_of(x)->update, hash));
}

tutti_status tti_exec_device_hash(tti_exec *x, uint64_t *hash) {
    tti_exec_device *device = tti_device_of(x);
    /* Completes the gathered parameters of the last step.  Collective over the data group. */
    tti_device_param_gather *gather = tti_device_of(x)->param_gather;
    TTI_TRY(gather ? tti_device_failure(x, tti_device_param_gather_settle(gather)) : TUTTI_OK);
    if (!tti_offload_of(x))
        return tti_device_failure(x, tti_device_update_hash(device->update, hash));
    TTI_TRY(tti_exec_device_pull_params(x));
    *hash = hash_mirror(tti_setup_of(x), device);
    return TUTTI_OK;
}

/* ---- preparation ---- */

tutti_status tti_exec_device_open(const tti_setup *setup, tti_exec_device **out) {
    const tti_device_ops *ops = setup->desc.backend->device;
    if (!ops) return TUTTI_OK;
    tti_exec_device *device = *out = calloc(1, sizeof *device);
    if (!device) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    TTI_TRY(ops->open(&setup->desc.device));
    device->ops = ops;
    ops->describe(setup->desc.device.index, &device->name);
    return TUTTI_OK;
}

tutti_status tti_exec_device_prepare(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *d = tti_device_of(x);
    tti_offload *offload = tti_offload_of(x);
    TTI_TRY(tti_device_pipe_create(x, &d->pipe));
    TTI_TRY(tti_device_alloc(setup, &d->args, sizeof *d->args));
    TTI_TRY(connect_devices(x));
    d->n_reported =
        d->reduce || d->axis ? tti_device_n_reported(setup) : (int)tti_n_shard_sums(setup);
    size_t n_sums = (size_t)d->n_reported;
    /* For samples in bytes the labels tell which rows are real, so they are copied even if the
     * program does not read them. */
    const tti_program *program = &setup->desc.plan->shard;
    const tti_program *eval = &setup->desc.plan->eval;
    d->x_bytes = tti_inputs_sample_bytes(program);
    if (eval->graph) d->x_bytes = TTI_MAX(d->x_bytes, tti_inputs_sample_bytes(eval));
    d->target_bytes = tti_inputs_target_bytes(program);
    if (d->target_bytes == 0) d->target_bytes = (size_t)tti_inputs_rows(program) * sizeof(int32_t);
    d->report_bytes = sizeof *d->report + n_sums * sizeof(double);
    TTI_TRY(tti_device_alloc(setup, &d->report, sizeof *d->report));
    TTI_TRY(tti_device_alloc(setup, &d->sums, n_sums * sizeof *d->sums));
    const tti_join_size *most = &tti_joins_of(x)->most;
    TTI_TRY(tti_device_alloc(setup, &d->sync_parts,
                             most->n_part * (size_t)setup->desc.n_shards * sizeof(float)));
    TTI_TRY(tti_device_alloc(setup, &d->sync_joined, most->n_joined * sizeof(float)));
    d->n_sets = TTI_N_INPUTS;
    TTI_TRY(tti_device_alloc_shards(x));
    if (offload)
        return tti_offload_attach(offload, d->host_staged,
                                  &(tti_offload_report){d->report, d->sums, d->n_reported});
    if (tti_sharded_of(x)) TTI_TRY(tti_device_sharded_create(x, d->reduce, &d->sharded));
    if (d->reduce && tti_exec_has_partitions(setup) && !tti_exec_has_sharded_params(x))
        TTI_TRY(tti_device_param_gather_create(x, d->reduce, &d->update, &d->param_gather));
    return tti_device_update_create(x,
                                    &(tti_device_update_desc){.args = d->args,
                                                              .sums = d->sums,
                                                              .reported = d->sums,
                                                              .report = d->report,
                                                              .reduce = d->reduce,
                                                              .host_staged = d->host_staged,
                                                              .axis = d->axis},
                                    &d->update);
}

/* ---- rebalancing ---- */

bool tti_exec_device_can_rebalance(const tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    return setup->desc.mixed || (!tti_offload_of(x) && !setup->desc.server && !tti_profile_of(x));
}

static void release_all(tti_exec *x);

/* Keeps names, counters and mirrors, which do not depend on the shard map. */
static void keep_across_maps(tti_exec_device *d, const tti_exec_device *before, int64_t waited_ns) {
    *d = (tti_exec_device){.ops = before->ops,
                           .name = before->name,
                           .staging = before->staging,
                           .gradients = before->gradients,
                           .n_reported_steps = before->n_reported_steps,
                           .newest = before->newest,
                           .done = before->done,
                           .last_end_ns = before->last_end_ns,
                           .waited_before_ns = waited_ns};
    memcpy(d->mirrors, before->mirrors, sizeof d->mirrors);
}

tutti_status tti_exec_device_release_idle(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *device = tti_device_of(x);
    tti_exec_spent spent = {0};
    TTI_ASSERT(device->n_begun == device->n_ended);
    TTI_TRY(tti_device_failure(x, device->ops->queues.sync()));
    if (setup->desc.mixed) {
        tti_device_release_shards(x);
        return TUTTI_OK;
    }
    /* Otherwise the next step would complete the parameters and their hash. */
    if (device->param_gather) TTI_TRY(tti_exec_device_pull(x));
    TTI_TRY(tti_exec_device_get_waits(x, &spent));
    TTI_TRY(
        tutti_comm_barrier(setup->desc.comm)); /* no device accesses another's memory after this */
    release_all(x);
    const tti_exec_device before = *device;
    keep_across_maps(device, &before, spent.waited_ns);
    return TUTTI_OK;
}

tutti_status tti_exec_device_regain(tti_exec *x) {
    tti_exec_device *device = tti_device_of(x);
    if (tti_setup_of(x)->desc.mixed) {
        TTI_TRY(tti_device_host_staged_grow(device->host_staged));
        return tti_device_failure(x, tti_device_alloc_shards(x));
    }
    TTI_TRY(tti_exec_device_prepare(x));
    return device->param_gather ? tti_exec_device_push(x) : TUTTI_OK;
}

/* ---- resident samples ---- */

tutti_status tti_exec_device_keep(tti_exec *x, const tti_resident_samples *from,
                                  tti_lasting_samples *lasting, int ahead, bool *resident) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *d = tti_device_of(x);
    const tti_resident_desc desc = {.backend = setup->desc.backend,
                                    .samples = from,
                                    .lasting = lasting,
                                    .n_shards = tti_device_n_local(setup),
                                    .x_bytes = d->x_bytes,
                                    .target_bytes = d->target_bytes,
                                    .args = d->args};
    TTI_ASSERT(d->n_begun == 0 && !d->resident.gather.samples.x);
    bool fits = !tti_pipe_of(x) && tti_resident_fits(&desc);
    TTI_TRY(tti_device_agree(setup, &fits));
    if (!fits && lasting) tti_lasting_samples_free(lasting);
    if (!fits) return TUTTI_OK;
    TTI_TRY(tti_resident_create(&desc, &d->resident));
    d->n_sets = ahead > 0 ? TTI_MIN(ahead, TTI_MAX_AHEAD) : TTI_MAX_AHEAD;
    for (int i = 0; i < d->n_sets; i++) {
        if (i >= TTI_N_INPUTS) TTI_TRY(tti_device_make_set(x, &d->sets[i], false));
        TTI_TRY(tti_device_alloc_host(d, &d->sets[i].index,
                                      tti_resident_index_elems(&d->resident) * sizeof(int32_t)));
    }
    d->n_chained = tti_device_n_chained(x);
    *resident = true;
    return TUTTI_OK;
}

size_t tti_exec_device_sent_bytes(const tti_exec_device *device) {
    const tti_device_reduce *reduce = device->reduce;
    if (!reduce) return 0;
    return tti_device_reduce_compress_bytes(reduce) + tti_device_reduce_rounded_bytes(reduce);
}

const char *tti_exec_device_transport(const tti_exec_device *device) {
    return tti_str_text(&device->transport);
}

/* If reductions go through the host, a step waits for the other workers before its end or its
 * update, so these steps run one at a time.  A pipeline stage is measured step by step. */
int tti_exec_device_depth(const tti_exec *x) {
    const tti_exec_device *d = tti_device_of(x);
    return d->host_staged || d->server || tti_offload_of(x) || d->pipe ? 1 : d->n_sets;
}

/* The event of a step's inputs, which is used only while a step begins. */
tutti_status tti_exec_device_wait_for_copies(tti_exec *x) {
    const tti_device_ops *ops = tti_device_of(x)->ops;
    TTI_TRY(ops->queues.record_host_event(TTI_QUEUE_COPY, TTI_EVENT_INPUTS));
    return tti_device_failure(x, ops->queues.await_host_event(TTI_EVENT_INPUTS));
}

/* Kernels of a divided model do not report how long they wait for each other. */
tutti_status tti_exec_device_get_waits(tti_exec *x, tti_exec_spent *spent) {
    const tti_exec_device *d = tti_device_of(x);
    int64_t t_ns = 0;
    if (d->reduce) TTI_TRY(tti_device_failure(x, tti_device_reduce_waited(d->reduce, &t_ns)));
    /* The worker waits for others only between its shards and its update. */
    bool waits_at_end = !tti_sharded_of(x) && !tti_offload_of(x) &&
                        !tti_exec_has_partitions(tti_setup_of(x)) && tti_setup_of(x)->syncs.n == 0;
    if (t_ns < 0 && waits_at_end) t_ns = d->waited_ns;
    spent->known = !d->axis && !d->pipe && t_ns >= 0;
    spent->waited_ns += d->waited_before_ns + TTI_MAX(t_ns, 0);
    return TUTTI_OK;
}

tutti_status tti_exec_device_averages(tti_exec *x) {
    return tti_device_failure(x, tti_device_sharded_averages(tti_device_of(x)->sharded));
}

/* ---- the step ---- */

/* For reductions through the host, which compare immediately with the stored hash. */
static tutti_status compare_own(tti_exec *x, uint64_t step) {
    uint64_t hash;
    if (!tti_exec_has_sharded_params(x) || !tti_tally_of(x)->has_hash) return TUTTI_OK;
    TTI_TRY(tti_device_update_hash(tti_device_of(x)->update, &hash));
    if (hash == tti_sharded_of(x)->hashes->own) return TUTTI_OK;
    return tti_fail(TUTTI_E_MISMATCH,
                    "step %llu: the parameters of rank %d changed in memory after the update",
                    (unsigned long long)step, tti_setup_of(x)->rank);
}

/* From the second step of the worker on (or the second with compression) a captured graph is
 * replayed; the first step loads kernels. */
static tutti_status run_captured(tti_exec *x, tti_device_set *set) {
    tti_exec_device *d = tti_device_of(x);
    bool streams = tti_offload_streams(tti_offload_of(x));
    if (d->pipe || streams) tti_profile_next_step(x);
    if (streams) return tti_device_whole_step(x, set, false);
    if (d->pipe) return tti_device_whole_step(x, set, tti_device_pipe_is_loaded(d->pipe, false));
    bool is_timed_alone =
        tti_profile_of(x) && d->n_timed == 0; /* its timestamps cannot be captured */
    if (is_timed_alone) tti_profile_next_step(x);
    if (d->loads || is_timed_alone) return tti_device_whole_step(x, set, false);
    if (d->next_timed < d->n_timed) return d->ops->queues.replay(d->timed[d->next_timed++]);
    return tti_device_replay(x, set);
}

tutti_status tti_device_sum_through_host(tti_exec *x, tti_device_set *set) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *d = tti_device_of(x);
    tti_profile_next_step(x);
    d->overlap_status = compare_own(x, set->desc.step);
    TTI_TRY(d->overlap_status);
    TTI_TRY(tti_device_put_begin(x, set));
    if (d->sharded) TTI_TRY(tti_device_sharded_step(d->sharded, false));
    TTI_TRY(tti_device_run_shards(x, set));
    if (d->sharded) TTI_TRY(tti_device_sharded_finish(d->sharded));
    TTI_TRY(d->overlap_status);
    if (d->pipe) TTI_TRY(tti_device_pipe_rest(d->pipe)); /* fails if a stage is lost */
    tti_exec_note(setup, &set->desc, "reduce");
    TTI_TRY(tti_device_host_staged_grads(d->host_staged));
    if (d->pipe && setup->n_ranks == 1) TTI_TRY(tti_device_pipe_reduce_tied_grads(d->pipe));
    TTI_TRY(tti_device_host_staged_sums(d->host_staged, d->sums, set->desc.vote));
    return tti_exec_compare_hashes(x, set->desc.step);
}

static tutti_status run_step(tti_exec *x, tti_device_set *set) {
    tti_exec_device *device = tti_device_of(x);
    if (device->server) {
        /* Computes only the gradient, for the server. */
        tti_exec_device *d = tti_device_of(x);
        tti_profile_next_step(x);
        TTI_TRY(tti_device_put_begin(x, set));
        TTI_TRY(tti_device_run_shards(x, set));
        if (d->pipe) TTI_TRY(tti_device_pipe_rest(d->pipe));
        if (d->pipe) TTI_TRY(tti_device_pipe_reduce_tied_grads(d->pipe));
        TTI_TRY(tti_device_server_bring(d->server));
        return d->ops->step.report(d->report, d->sums, d->n_reported, set->host_report);
    }
    if (tti_local_is_on(x)) {
        /* Runs the step as if this worker, or its replica, were alone.  A worker without samples in
         * a short batch changes nothing. */
        const tti_setup *setup = tti_setup_of(x);
        tti_exec_device *d = tti_device_of(x);
        bool updates = set->desc.n_rows > 0;
        TTI_TRY(tti_device_local_begin(x));
        if (updates && !setup->divided) return run_captured(x, set);
        tti_profile_next_step(x);
        TTI_TRY(tti_device_put_begin(x, set));
        TTI_TRY(tti_device_run_shards(x, set));
        if (setup->divided) TTI_TRY(tti_device_local_add_parts(x));
        if (updates) return tti_device_update_and_report(x, set);
        return d->ops->step.report(d->report, d->sums, d->n_reported, set->host_report);
    }
    if (!device->host_staged) return run_captured(x, set);
    TTI_TRY(tti_device_sum_through_host(x, set));
    return tti_offload_of(x) ? TUTTI_OK : tti_device_update_and_report(x, set);
}

tutti_status tti_device_prepare_step(tti_exec *x, const tti_step_desc *desc, tti_device_set **out) {
    const tti_setup *setup = tti_setup_of(x);
    tti_exec_device *d = tti_device_of(x);
    tti_device_set *set = *out = &d->sets[d->n_begun % (uint64_t)d->n_sets];
    TTI_ASSERT(!set->at_work);
    if (d->n_begun == d->n_ended) d->done = desc->step;
    d->newest = desc->step + 1;
    d->has_gradients = false;
    tti_exec_begin_step(x, desc);
    /* Compression begins with this step (parallel.compress_after). */
    tti_device_reduce *reduce = d->reduce;
    d->loads = d->n_begun == 0;
    if (reduce && tti_device_reduce_turns(reduce, desc->step)) {
        TTI_TRY(tti_device_release_graphs(x));
        tti_device_reduce_turn(reduce);
        d->loads = true;
    }
    tti_exec_note(setup, desc, "compute");
    int64_t start = tti_now_ns();
    if (d->n_begun == d->n_ended) { /* devices may have synchronized during a pause */
        if (d->axis)
            TTI_TRY(tti_device_axis_sync_and_barrier(d->axis));
        else if (d->reduce)
            TTI_TRY(tti_device_reduce_barrier(d->reduce));
    }
    set->begun_ns = tti_now_ns();
    tti_exec_waited(x, set->begun_ns - start);
    set->desc = *desc;
    if (tti_local_is_on(x)) set->desc.n_rows = tti_local_rows(setup, desc);
    TTI_TRY(tti_device_feed(x, set, &set->desc));
    if (setup->desc.elastic) tti_device_expect_report(set);
    /* Writes 16-bit copies of parameters that the update did not write. */
    if (tti_arrays_of(x)->low_copies && !d->has_low_copies) {
        d->has_low_copies = true;
        TTI_TRY(tti_device_update_low_copies(d->update));
    }
    tti_exec_copied(x, tti_now_ns() - set->begun_ns);
    return TUTTI_OK;
}

/* Flight records show that the host launches work or waits for the device, not which operation the
 * device computes. */
static void record(const tti_exec *x, const char *name, uint64_t step, bool waits) {
    const tti_setup *setup = tti_setup_of(x);
    tti_flight_begin(setup->desc.flight, TTI_THREAD_COMPUTE,
                     &(tti_flight_op){.name = name,
                                      .step = step,
                                      .may_wait = !waits,
                                      .waits_for_peers = waits && setup->n_ranks > 1});
}

static void end_record(const tti_exec *x) {
    tti_flight_end(tti_setup_of(x)->desc.flight, TTI_THREAD_COMPUTE);
}

static tutti_status begin_step(tti_exec *x, const tti_step_desc *desc) {
    tti_exec_device *d = tti_device_of(x);
    int which = (int)(d->n_begun % (uint64_t)d->n_sets);
    tti_device_set *set;
    TTI_TRY(tti_device_prepare_step(x, desc, &set));
    int64_t inputs_ns = tti_now_ns();
    if (d->param_gather) tti_device_param_gather_written(d->param_gather, false);
    d->has_just_ended = false;
    if (tti_device_is_chained(x, set)) {
        TTI_TRY(tti_device_chain_step(x, which));
    } else {
        TTI_TRY(run_step(x, set));
        TTI_TRY(d->ops->queues.record_host_event(TTI_QUEUE_COMPUTE, which));
    }
    tti_profile_add(x, TTI_ROW_HOST, tti_span_of(TTI_SPAN_OTHER, "feeding"), -1, set->begun_ns,
                    inputs_ns);
    tti_profile_add(x, TTI_ROW_HOST, tti_span_of(TTI_SPAN_OTHER, "putting into queues"), -1,
                    inputs_ns, tti_now_ns());
    set->at_work = true;
    d->n_begun++;
    return TUTTI_OK;
}

tutti_status tti_exec_device_begin(tti_exec *x, const tti_step_desc *desc) {
    tti_exec_device *d = tti_device_of(x);
    record(x, "queue kernels", desc->step, false);
    tutti_status st = begin_step(x, desc);
    end_record(x);
    if (st != TUTTI_OK && d->pipe) tti_device_pipe_fail(d->pipe, st);
    return tti_device_failure(x, st);
}

tutti_status tti_exec_device_end(tti_exec *x, tti_step_result *result) {
    record(x, "wait for device", tti_tally_of(x)->begun.step, true);
    tutti_status st = tti_device_of(x)->server ? tti_device_server_end(x, result)
                                               : tti_device_end_step(x, result);
    end_record(x);
    return tti_device_failure(x, st);
}

tutti_status tti_exec_device_gradient(tti_exec *x, const tti_step_desc *desc,
                                      tti_step_result *result) {
    TTI_TRY(tti_exec_device_begin(x, desc));
    return tti_device_failure(x, tti_device_server_gradient(x, result));
}

tutti_status tti_exec_device_put(tti_exec *x, float *array, const float *from) {
    return tti_device_failure(x, tti_device_server_put(tti_device_of(x)->server, array, from));
}

tutti_status tti_exec_device_eval(tti_exec *x, const tti_step_desc *desc, tti_step_result *result) {
    record(x, "evaluate", desc->step, false);
    tutti_status st = tti_device_eval_batch(x, desc, result);
    end_record(x);
    return tti_device_failure(x, st);
}

/* ---- destruction ---- */

/* Waits until the device is idle, and ends waits for a lost peer.  Keeps the message of the
 * original failure. */
static tutti_status drain(tti_exec_device *d) {
    char kept[2048];
    snprintf(kept, sizeof kept, "%s", tutti_last_error());
    tutti_status st = d->reduce ? tti_device_reduce_settle(d->reduce) : TUTTI_OK;
    tutti_status synced = d->ops->queues.sync();
    if (synced == TUTTI_E_PEER)
        synced = d->ops->queues.sync(); /* until the aborted kernels have ended */
    if (synced != TUTTI_OK && synced != TUTTI_E_PEER) st = synced;
    if (st == TUTTI_OK) return TUTTI_OK;
    tti_clear_error();
    return kept[0] ? tti_fail(st, "%s", kept) : st;
}

tutti_status tti_exec_device_salvage(tti_exec *x, tti_step_result *result, bool *ended) {
    tti_exec_device *d = tti_device_of(x);
    TTI_ASSERT(tti_setup_of(x)->desc.elastic);
    tutti_status st = drain(d);
    if (st != TUTTI_OK && st != TUTTI_E_PEER) return tti_device_failure(x, st);
    bool is_whole = d->reduce && !tti_setup_of(x)->divided;
    return is_whole ? tti_device_end_interrupted(x, result, ended) : TUTTI_OK;
}

/* Everything except the device itself and the mirrors. */
static void release_all(tti_exec *x) {
    tti_exec_device *d = tti_device_of(x);
    const tti_backend *backend = tti_setup_of(x)->desc.backend;
    tti_exec_device_profile_end(d);
    /* Releases captured graphs first: NCCL disconnects only when nothing can call it any more. */
    tti_device_release_shards(x);
    d->ops->queues.release_captured_graph(d->eval_captured_graph);
    tti_device_param_gather_destroy(d->param_gather);
    tti_device_sharded_destroy(d->sharded);
    tti_device_reduce_destroy(d->reduce);
    tti_device_update_destroy(d->update);
    tti_resident_release(backend, &d->resident);
    backend->release(d->args, sizeof *d->args);
    backend->release(d->sums, d->report_bytes - sizeof *d->report);
    backend->release(d->report, sizeof *d->report);
    backend->release(d->sync_parts, 0);
    backend->release(d->sync_joined, 0);
    tti_device_axis_destroy(d->axis);
    tti_device_host_staged_destroy(d->host_staged);
    tti_device_server_destroy(d->server);
    tti_device_pipe_destroy(d->pipe);
    tti_str_free(&d->transport);
}

void tti_exec_device_release(tti_exec *x) {
    tti_exec_device *d = tti_device_of(x);
    if (!d || !d->ops) return;
    (void)drain(d);
    release_all(x);
    tti_str_free(&d->name);
    for (int i = 0; i < TTI_N_MIRRORS; i++) free(d->mirrors[i]);
    free(d->staging);
    free(d->gradients);
}

void tti_exec_device_close(tti_exec_device *device) {
    if (!device) return;
    if (device->ops) device->ops->close();
    free(device);
}
