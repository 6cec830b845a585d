/* layer_hashes.c - runs one shard on the caller's instance, with gradients in separate memory, and
 * hashes its layers. */
#include "exec/host/layer_hashes.h"

#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "exec/host/host.h"
#include "exec/worker/worker.h"

void tti_layer_hash(const tti_exec *x, tti_instance *instance, int step, uint64_t *hashes) {
    const tti_setup *setup = tti_setup_of(x);
    const tti_node *node = tti_instance_node(instance, step);
    uint64_t hash = 0;
    for (int k = 0; k < node->op->n_out; k++) {
        void *out = tti_instance_step_out(instance, step, k);
        size_t n_bytes = tti_value_n_bytes(node->out[k]);
        if (!out || n_bytes == 0) continue;
        if (TTI_FAULT_AT("exec.flip", tti_exec_number(setup), step)) *(unsigned char *)out ^= 1;
        uint32_t rest = 0;
        size_t n_words = n_bytes / sizeof rest;
        memcpy(&rest, (const char *)out + n_words * sizeof rest, n_bytes - n_words * sizeof rest);
        hash = hash * 31 + setup->desc.backend->hash(out, n_words, 0) + rest;
    }
    hashes[step] = hash;
}

tutti_status tti_layer_hashes_watch(const tti_exec *x, int shard, tti_layer_hashes *w) {
    int n = tti_instance_n_steps(tti_exec_instance(x, 0, false));
    if (tti_setup_of(x)->syncs.n > 0)
        return tti_fail(TUTTI_E_UNSUPPORTED,
                        "parallel.verify_every: the shards of this model wait "
                        "for each other and cannot be computed alone; give 0");
    if (!w->hashes) w->hashes = calloc((size_t)n + 1, sizeof *w->hashes);
    if (!w->hashes) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    w->shard = shard;
    return TUTTI_OK;
}

typedef struct recomputed {
    const tti_exec *x;
    tti_instance *instance;
    uint64_t *hashes;
} recomputed;

static void after_step(int step, void *user) {
    const recomputed *r = user;
    tti_layer_hash(r->x, r->instance, step, r->hashes);
}

tutti_status tti_layer_hashes_again(tti_exec *x, const tti_step_desc *desc, int shard,
                                    const tti_shard_data *data, uint64_t *hashes) {
    const tti_setup *setup = tti_setup_of(x);
    tti_layer_hashes *w = tti_host_layer_hashes(tti_host_of(x));
    recomputed r = {x, tti_exec_instance(x, 0, false), hashes};
    if (!w->grads) w->grads = setup->desc.backend->alloc(setup->desc.plan->n_flat * sizeof(float));
    if (!w->grads) return tti_fail(TUTTI_E_NOMEM, "exec: out of memory");
    tti_run run = tti_exec_shard_run(setup, desc, shard);
    tti_exec_feed(x, r.instance, &setup->shard_inputs, data);
    tti_instance_set_grads(r.instance, w->grads);
    tti_instance_show_layers(r.instance, NULL, 0);
    return tti_instance_run(r.instance, &run, after_step, &r);
}

void tti_layer_hashes_fini(const tti_exec *x, tti_layer_hashes *w) {
    const tti_setup *setup = tti_setup_of(x);
    free(w->hashes);
    if (w->grads) setup->desc.backend->release(w->grads, setup->desc.plan->n_flat * sizeof(float));
}
