/* nonfinite.c - finds the shard and layer where a loss or gradient is not finite.
 *
 * The worker that has the shard computes it again and checks the outputs of every step.  With a
 * divided model all workers of that replica do, since they need each other's values: the shard
 * passes the parts of the model in order, and the first worker that found something reports it to
 * the others. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "comm/transport.h"
#include "exec/worker/worker.h"

/* ---- the layer of a loss ---- */

/* A node without a name is called by the parameter that it reads. */
static void print_layer(const tti_node *node, char layer[TTI_LAYER_TEXT]) {
    const char *name = node->name;
    for (int i = 0; !*name && i < node->n_in; i++)
        if (node->in[i]->node->op->traits & TTI_PARAM) name = node->in[i]->node->name;
    snprintf(layer, TTI_LAYER_TEXT, "%s '%s'", node->op->name, name);
}

/* The first step of the shard program of this worker with a bad output, -1: none; and the moment of
 * the pipeline that it is in. */
static tutti_status find_bad_step(tti_exec *x, const tti_step_desc *desc, int shard, int *moment,
                                  int *step) {
    const tti_setup *setup = tti_setup_of(x);
    *moment = 0, *step = -1;
    if (tti_pipe_of(x)) return tti_pipe_find_nonfinite(x, desc, shard, moment, step);
    tti_run run = tti_exec_shard_run(setup, desc, shard);
    tti_instance *instance = tti_threads_of(x)->thread[0].shard;
    tti_exec_feed(tti_tally_of(x), instance, &setup->shard_inputs,
                  &desc->shards[shard - setup->first_shard]);
    tti_exec_point_at_buffer(tti_arrays_of(x), instance, 0);
    return tti_instance_find_nonfinite(instance, &run, 0, setup->desc.plan->shard.n_steps, step);
}

/* Among the workers of a replica the one with the lowest key, of equal ones the first, reports. */
static tutti_status broadcast_first(const tti_setup *setup, int64_t key,
                                    char layer[TTI_LAYER_TEXT]) {
    tutti_comm *comm = setup->desc.mesh->model;
    int64_t keys[TTI_MAX_RANKS];
    int first = 0;
    TTI_TRY(tutti_comm_all_gather(comm, &key, keys, 1, TUTTI_I64));
    for (int r = 1; r < tutti_comm_n_ranks(comm); r++)
        if (keys[r] < keys[first]) first = r;
    return tutti_comm_broadcast(comm, layer, TTI_LAYER_TEXT, TUTTI_U8, first);
}

/* All workers of the copy of the model compute the shard again. */
static tutti_status find_in_parts(tti_exec *x, const tti_step_desc *desc, int shard,
                                  char layer[TTI_LAYER_TEXT]) {
    const tti_setup *setup = tti_setup_of(x);
    int moment, step;
    TTI_TRY(find_bad_step(x, desc, shard, &moment, &step));
    if (step >= 0) print_layer(setup->desc.plan->shard.steps[step], layer);
    return broadcast_first(setup, step < 0 ? INT64_MAX : (int64_t)moment << 32 | step, layer);
}

void tti_exec_find_bad_layer(tti_exec *x, const tti_step_desc *desc, int shard,
                             char layer[TTI_LAYER_TEXT]) {
    const tti_setup *setup = tti_setup_of(x);
    int moment, step;
    snprintf(layer, TTI_LAYER_TEXT, "%s", "");
    if (setup->divided) {
        if (find_in_parts(x, desc, shard, layer) != TUTTI_OK) tti_clear_error();
        layer[TTI_LAYER_TEXT - 1] = '\0';
        return;
    }
    if (find_bad_step(x, desc, shard, &moment, &step) != TUTTI_OK) tti_clear_error();
    if (step >= 0) print_layer(setup->desc.plan->shard.steps[step], layer);
}

static int owner_of(const tti_setup *setup, int shard) {
    int rank = 0;
    while (setup->shard_map.first[rank + 1] <= shard) rank++;
    return rank;
}

tutti_status tti_exec_report_bad_loss(tti_exec *x, const tti_step_desc *desc, int shard) {
    const tti_setup *setup = tti_setup_of(x);
    char layer[TTI_LAYER_TEXT] = "";
    int owner = owner_of(setup, shard);
    /* No worker has all parameters. */
    if (tti_exec_has_sharded_params(tti_arrays_of(x)))
        return tti_exec_bad_loss(x, desc->step, shard, "");
    if (owner == setup->rank && setup->divided)
        TTI_TRY(find_in_parts(x, desc, shard, layer));
    else if (owner == setup->rank && tti_device_of(x))
        snprintf(layer, sizeof layer, "a shard on a device");
    else if (owner == setup->rank)
        tti_exec_find_bad_layer(x, desc, shard, layer);
    if (setup->n_ranks > 1)
        TTI_TRY(tutti_comm_broadcast(setup->desc.comm, layer, sizeof layer, TUTTI_U8, owner));
    layer[sizeof layer - 1] = '\0';
    return tti_exec_bad_loss(x, desc->step, shard, layer[0] ? layer : "the sums");
}

/* ---- the parameter of a gradient ---- */

/* The first slot with an own gradient that is not finite; n_slots: none. */
static int first_bad_slot(tti_exec *x) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_plan *plan = setup->desc.plan;
    int first = plan->n_slots;
    for (int i = 0; i < setup->share.n_blocks; i++) {
        const tti_own_block *own = &setup->share.blocks[i];
        const tti_update_step *step = &plan->updates[own->update];
        const float *g = tti_own_grads(x, own);
        bool good = step->slot >= first || plan->slots[step->slot].buffer;
        for (size_t k = 0; !good && k < step->n_elems; k++)
            if (!isfinite(g[k])) first = step->slot, good = true;
    }
    return first;
}

/* The first of all ranges of a server. */
static tutti_status join_bad_slot(const tti_setup *setup, tti_update *update, int32_t *slot) {
    double *partials = tti_update_partials(update);
    const tti_plan *plan = setup->desc.plan;
    for (int i = 0; i < plan->n_updates; i++) partials[i] = plan->updates[i].slot == *slot;
    TTI_TRY(tti_zero_join(setup, partials, 1));
    *slot = plan->n_slots;
    for (int i = plan->n_updates - 1; i >= 0; i--)
        if (partials[i] != 0) *slot = plan->updates[i].slot;
    return TUTTI_OK;
}

tutti_status tti_exec_report_bad_gradient(tti_exec *x, uint64_t step) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_plan *plan = setup->desc.plan;
    int32_t slot = first_bad_slot(x), first = slot;
    char name[TTI_LAYER_TEXT] = "";
    if (tti_exec_has_range(setup)) TTI_TRY(join_bad_slot(setup, tti_update_of(x), &first));
    if (setup->n_ranks > 1 && !tti_local_is_on(x)) /* whose gradients are each worker's own */
        TTI_TRY(tutti_comm_all_reduce(setup->desc.comm, &slot, &first, 1, TUTTI_I32, TUTTI_MIN,
                                      TUTTI_ALG_AUTO));
    if (first < plan->n_slots) snprintf(name, sizeof name, "%s", plan->slots[first].param->name);
    if (setup->divided) TTI_TRY(broadcast_first(setup, first < plan->n_slots ? 0 : 1, name));
    name[sizeof name - 1] = '\0';
    return tti_exec_bad_gradient(step, name);
}
