/* device_update.c - the update on a device, over its table of blocks.
 *
 * Every worker's table has all blocks, so that arrays indexed by block are the same for all of
 * them; blocks of other workers are not updated, and only hashed once their parameters have
 * arrived. */
#include "exec/device/params/device_update.h"

#include <stdlib.h>

#include "exec/device/state/device_state.h"

struct tti_device_update {
    tti_exec *x;
    const tti_device_ops *ops;
    tti_device_update_desc desc;
    void *update;
};

static tti_update_block block_of(const tti_plan *plan, const tti_update_step *step) {
    const tti_slot *slot = &plan->slots[step->slot];
    tti_update_block block = {.hash_at = step->hash_at,
                              .hash_weight = step->hash_weight,
                              .params = step->first,
                              .grads = step->first,
                              .n_elems = (uint32_t)step->n_elems,
                              .slot = step->slot,
                              .lr_factor = (float)slot->rule.lr_factor,
                              .decay = (float)slot->rule.decay,
                              .kind = TTI_BLOCK_TRAINED,
                              .takes_l1 = slot->decay,
                              .is_low = slot->is_low,
                              .low = slot->low + (step->first - slot->first)};
    if (slot->rule.frozen)
        block.kind = TTI_BLOCK_FROZEN;
    else if (slot->buffer) {
        block.kind = TTI_BLOCK_BUFFER;
        block.decay = (float)tti_attr_float(slot->param, "momentum");
    }
    return block;
}

/* Blocks that a server updates are only hashed here. */
static void fill_blocks(const tti_setup *setup, const tti_arrays *arrays, tti_update_block *blocks,
                        const tti_node **node) {
    const tti_plan *plan = setup->desc.plan;
    for (int i = 0; i < plan->n_updates; i++) {
        blocks[i] = block_of(plan, &plan->updates[i]);
        if (setup->desc.server) blocks[i].kind = TTI_BLOCK_FROZEN;
        if (blocks[i].kind == TTI_BLOCK_TRAINED) *node = plan->updates[i].node;
    }
    for (int i = 0; i < plan->n_updates; i++)
        blocks[i].is_here = !tti_exec_has_sharded_params(arrays);
    for (int i = 0; i < setup->share.n_blocks; i++) {
        tti_update_block *own = &blocks[setup->share.blocks[i].update];
        own->is_own = own->is_here = 1;
        own->state = setup->share.blocks[i].state;
        if (tti_exec_has_sharded_params(arrays)) own->params = own->state;
        if (arrays->sharded && arrays->sharded->own_grads) own->grads = own->state;
    }
}

static tutti_status all_gather_words(void *user, void *words, size_t n_words) {
    const tti_device_update *u = user;
    if (u->desc.reduce && tti_exec_has_parts(tti_setup_of(u->x)))
        TTI_TRY(tti_device_reduce_words(u->desc.reduce, words, n_words));
    if (u->desc.axis) return tti_device_axis_partials(u->desc.axis, words, n_words);
    if (u->desc.reduce) return TUTTI_OK;
    return tti_device_host_staged_words(u->desc.host_staged, words, n_words);
}

/* The summed ones. */
static float *grads_of(tti_exec *x) {
    tti_arrays *arrays = tti_arrays_of(x);
    return arrays->sharded && arrays->sharded->own_grads ? arrays->sharded->own_grads
                                                         : tti_exec_grads(x);
}

/* Sums over blocks are not all of this worker. */
static bool completes(const tti_setup *setup) {
    return tti_exec_has_parts(setup) || setup->divided;
}

static tutti_status make(tti_device_update *u, const tti_update_block *blocks,
                         const tti_node *node) {
    tti_exec *x = u->x;
    const tti_setup *setup = tti_setup_of(x);
    tti_arrays *arrays = tti_arrays_of(x);
    const tti_plan *plan = setup->desc.plan;
    if (tti_exec_has_parts(setup) && !u->ops->update.complete)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "exec: this device has all of the optimizer's state or none");
    return u->ops->update.create(
        &(tti_update_desc){.node = node,
                           .blocks = blocks,
                           .n_blocks = plan->n_updates,
                           .n_slots = plan->n_slots,
                           .n_states = setup->desc.server ? 0 : plan->n_states,
                           .n_shards = setup->desc.n_shards,
                           .params = arrays->params,
                           .grads = grads_of(x),
                           .ema = arrays->ema,
                           .low = arrays->low,
                           .low_dtype = plan->low,
                           .states = arrays->states,
                           .args = u->desc.args,
                           .sums = u->desc.sums,
                           .report = u->desc.report,
                           .clip_norm = setup->desc.clip_norm,
                           .clip_value = setup->desc.clip_value,
                           .l1 = setup->desc.l1,
                           .ema_decay = setup->desc.ema,
                           .watch_gradients = setup->desc.watch_gradients,
                           .complete_words = completes(setup) ? all_gather_words : NULL,
                           .user = u},
        &u->update);
}

tutti_status tti_device_update_create(tti_exec *x, const tti_device_update_desc *desc,
                                      tti_device_update **out) {
    const tti_setup *setup = tti_setup_of(x);
    tti_device_update *u = calloc(1, sizeof *u);
    tti_update_block *blocks = calloc((size_t)setup->desc.plan->n_updates + 1, sizeof *blocks);
    const tti_node *node = NULL;
    *out = u;
    tutti_status st = tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    if (u && blocks) {
        *u = (tti_device_update){.x = x, .ops = setup->desc.backend->device, .desc = *desc};
        fill_blocks(setup, tti_arrays_of(x), blocks, &node);
        st = make(u, blocks, node);
    }
    if (st == TUTTI_OK && desc->reduce)
        st = tti_device_reduce_join_update(desc->reduce, u->update, &tti_device_of(x)->transport);
    free(blocks);
    return st;
}

tutti_status tti_device_update_narrow(tti_device_update *u) {
    return u->ops->update.narrow(u->update);
}

void tti_device_update_destroy(tti_device_update *u) {
    if (!u) return;
    if (u->ops) u->ops->update.destroy(u->update);
    free(u);
}

bool tti_device_update_sums(const tti_device_update *u) {
    return u->desc.reduce && tti_device_reduce_updates(u->desc.reduce);
}

tutti_status tti_device_update_run(tti_device_update *u) {
    const tti_device_update_desc *d = &u->desc;
    if (tti_device_update_sums(u))
        return tti_device_reduce_update(d->reduce, d->args, d->report, d->reported);
    TTI_TRY(u->ops->update.run(u->update));
    if (!tti_exec_has_parts(tti_setup_of(u->x))) return TUTTI_OK;
    if (u->desc.reduce)
        return tti_device_reduce_hash(u->desc.reduce, u->desc.report, u->desc.reported);
    if (tti_exec_has_sharded_params(tti_arrays_of(u->x))) return TUTTI_OK;
    TTI_TRY(tti_device_host_staged_gather(u->desc.host_staged));
    return tti_device_update_complete(u, 0, tti_setup_of(u->x)->desc.plan->n_updates);
}

tutti_status tti_device_update_complete(tti_device_update *u, int first, int n) {
    return u->ops->update.complete(u->update, first, n);
}

tutti_status tti_device_update_hash(tti_device_update *u, uint64_t *hash) {
    return u->ops->update.hash(u->update, hash);
}
