/* layer_hashes.h - hashes of the outputs of each layer, for a shard of a step and for a shard that
 * is computed again (tti_exec_watch_shard and the functions after it in exec.h). */
#ifndef TTI_EXEC_LAYER_HASHES_H
#define TTI_EXEC_LAYER_HASHES_H

#include "exec/program/exec_program.h"
#include "exec/worker/desc.h"

typedef struct tti_layer_hashes {
    int shard;        /* the watched shard; -1: none */
    uint64_t *hashes; /* [n_layers]; NULL: no shard was watched yet */
    float *grads; /* [n_flat]: gradients of a shard that is computed again; NULL: not used yet */
} tti_layer_hashes;

/* Hashes the outputs that a step of the shard program has just written. */
void tti_layer_hash(const tti_exec *exec, tti_instance *instance, int step, uint64_t *hashes);

tutti_status tti_layer_hashes_watch(const tti_exec *exec, int shard, tti_layer_hashes *watched);
tutti_status tti_layer_hashes_again(tti_exec *exec, const tti_step_desc *desc, int shard,
                                    const tti_shard_data *data, uint64_t *hashes);
void tti_layer_hashes_fini(const tti_exec *exec, tti_layer_hashes *watched);

#endif /* TTI_EXEC_LAYER_HASHES_H */
